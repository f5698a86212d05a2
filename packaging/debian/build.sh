#!/usr/bin/env bash
# Makes a Debian package of a release binary.
#
#   build.sh [BINARY [FOLDER]]      the binary (target/release/polylogue), and where the package goes (target/debian)
#
# VERSION=... stands for the version of Cargo.toml. The last line that is printed names the package.
set -euo pipefail
cd "$(dirname "$0")/../.."
binary=${1:-target/release/polylogue}
out=${2:-target/debian}
here=packaging/debian
version=${VERSION:-$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)}
for tool in dpkg-deb strip objdump gzip; do
    command -v "$tool" >/dev/null || { echo "build.sh: $tool is missing (Debian: dpkg, binutils)" >&2; exit 1; }
done
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

put() { # MODE FILE PLACE
    install -D -m "$1" "$2" "$root/$3"
}
install -D -m 755 "$binary" "$root/usr/bin/polylogue"
strip --strip-unneeded "$root/usr/bin/polylogue"
put 644 $here/polylogue.service usr/lib/systemd/system/polylogue.service
put 644 $here/polylogue.sysusers usr/lib/sysusers.d/polylogue.conf
put 644 $here/polylogue.toml etc/polylogue/polylogue.toml
put 640 $here/polylogue.default etc/default/polylogue
doc=usr/share/doc/polylogue
put 644 LICENSE $doc/copyright
# As in the sources, so that links lead somewhere.
for file in README.md SECURITY.md docs/*.md docs/protocols/*.md packaging/prometheus/alerts.yml packaging/grafana/polylogue.json; do
    put 644 "$file" "$doc/$file"
done
gzip -9 -n <CHANGELOG.md | install -D -m 644 /dev/stdin "$root/$doc/changelog.gz"
complete() { # SHELL PLACE
    "$binary" completions "$1" | install -D -m 644 /dev/stdin "$root/$2"
}
complete bash usr/share/bash-completion/completions/polylogue
complete zsh usr/share/zsh/vendor-completions/_polylogue
complete fish usr/share/fish/vendor_completions.d/polylogue.fish

# The newest symbol of the C library that it uses.
libc=$(objdump -T "$root/usr/bin/polylogue" | sed -n 's/.*(\?GLIBC_\([0-9.]*\).*/\1/p' | sort -V | tail -n 1)
mkdir "$root/DEBIAN"
for script in postinst prerm postrm; do install -m 755 $here/$script "$root/DEBIAN/$script"; done
(cd "$root" && find etc -type f | sort | sed 's|^|/|') >"$root/DEBIAN/conffiles"
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
cat >"$root/DEBIAN/control" <<END
Package: polylogue
Version: $version
Architecture: $architecture
Maintainer: The polylogue developers <polylogue@localhost>
Installed-Size: $(du -sk "$root" | cut -f1)
Depends: libc6 (>= $libc), libgcc-s1
Recommends: systemd, ca-certificates
Section: net
Priority: optional
Description: message broker for the clients of Kafka and RabbitMQ
 One broker over one durable log that unmodified clients of Kafka and
 RabbitMQ (AMQP 0-9-1) connect to, each with that system's own semantics.
END
mkdir -p "$out"
package=$out/polylogue_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$(stat -c %s "$package") bytes, the binary in it $(stat -c %s "$root/usr/bin/polylogue")"
echo "$package"
