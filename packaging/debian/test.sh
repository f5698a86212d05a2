#!/usr/bin/env bash
# Sees that the Debian package installs, serves, upgrades, goes and leaves nothing behind, in a fresh root that debootstrap makes.
#
#   test.sh [BINARY]      needs root, and debootstrap (which it installs where it can)
#
# systemd does not run in that root: the unit is verified, and the broker is started as the unit would, as its user.
set -euo pipefail
cd "$(dirname "$0")/../.."
binary=${1:-target/release/polylogue}
[ "$(id -u)" = 0 ] || { echo "skipped: the test of the Debian package needs root"; exit 0; }
command -v debootstrap >/dev/null || {
    apt-get -qq update >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends debootstrap >/dev/null
} || { echo "skipped: debootstrap cannot be installed"; exit 0; }
place=$(mktemp -d)
root=$place/root
broker=
end() {
    [ -z "$broker" ] || kill -9 "$broker" 2>/dev/null || true
    umount "$root/proc" 2>/dev/null || true
    rm -rf "$place"
}
trap end EXIT
say() { echo "- $*"; }
fail() { echo "FAIL: $*" >&2; exit 1; }
within() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

first=$(VERSION=0.0.1 packaging/debian/build.sh "$binary" "$place" | tail -n 1)
second=$(VERSION=0.0.2 packaging/debian/build.sh "$binary" "$place" | tail -n 1)
. /etc/os-release
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)
say "a root with $VERSION_CODENAME"
debootstrap --variant=minbase --include=systemd,init-system-helpers "$VERSION_CODENAME" "$root" "$mirror" >"$place/debootstrap.log" 2>&1 ||
    { tail -n 5 "$place/debootstrap.log" >&2; fail "debootstrap"; }
mount -t proc proc "$root/proc"
cp "$first" "$second" "$root/"
everything() { (cd "$root" && find . -xdev -path ./proc -prune -o -path ./run -prune -o -print | sort); }
everything >"$place/before"

within dpkg -i "/$(basename "$first")" >"$place/dpkg.log" 2>&1 || { cat "$place/dpkg.log" >&2; fail "it does not install"; }
within polylogue --version
within systemd-analyze verify polylogue.service || fail "the unit is not right"
[ "$(within stat -c %U:%a /var/lib/polylogue)" = polylogue:750 ] || fail "the data directory"
[ -L "$root/etc/systemd/system/multi-user.target.wants/polylogue.service" ] || fail "the unit is not enabled"
say "installed, enabled, and the unit is verified"

# On ports that are free; the configuration file was changed by its user, and stays.
sed -i 's/127.0.0.1:9092/127.0.0.1:0/; s/127.0.0.1:9600/127.0.0.1:0/' "$root/etc/polylogue/polylogue.toml"
start() {
    : >"$place/said"
    chroot --userspec=polylogue:polylogue "$root" /usr/bin/polylogue serve --json --config /etc/polylogue/polylogue.toml >"$place/said" 2>"$place/log" &
    broker=$!
    for _ in $(seq 600); do
        if grep -q '"ready":true' "$place/said"; then break; fi
        kill -0 "$broker" 2>/dev/null || { cat "$place/log" >&2; fail "the broker has ended"; }
        sleep 0.1
    done
    kafka=$(sed -n 's/.*"bound":"\([0-9.:]*\)".*"protocol":"kafka".*/\1/p' "$place/said" | head -n 1)
    [ -n "$kafka" ] || { cat "$place/said" >&2; fail "it does not say where it listens"; }
}
stop() {
    kill "$broker"
    wait "$broker" || fail "it ended with $?"
    broker=
}
read_all() { within polylogue consume packaged --bootstrap "$kafka" --from beginning --no-follow; }
start
echo one | within polylogue produce packaged --bootstrap "$kafka" >/dev/null
[ "$(read_all)" = one ] || fail "what was produced is not there"
stop
say "serves as the user polylogue"

within dpkg -i "/$(basename "$second")" >"$place/dpkg.log" 2>&1 || { cat "$place/dpkg.log" >&2; fail "it does not upgrade"; }
grep -q '127.0.0.1:0' "$root/etc/polylogue/polylogue.toml" || fail "a changed configuration is lost"
start
[ "$(read_all)" = one ] || fail "what was produced before the upgrade is not there"
stop
say "upgraded, with the configuration and the data as they were"

within dpkg -r polylogue >"$place/dpkg.log" 2>&1 || { cat "$place/dpkg.log" >&2; fail "it does not go"; }
[ ! -e "$root/usr/bin/polylogue" ] || fail "the binary is still there"
[ -d "$root/var/lib/polylogue" ] && [ -e "$root/etc/polylogue/polylogue.toml" ] || fail "data or configuration went with the program"
within dpkg -P polylogue >"$place/dpkg.log" 2>&1 || { cat "$place/dpkg.log" >&2; fail "it cannot be purged"; }
everything >"$place/after"
left=$(comm -13 "$place/before" "$place/after" | grep -v -E '^\./(var/(log|cache|lib/(dpkg|systemd))|etc/(passwd|group|shadow|gshadow|subuid|subgid)-?)' || true)
[ -z "$left" ] || { echo "$left" >&2; fail "the files above are left"; }
! grep -q '^polylogue:' "$root/etc/passwd" || fail "the user is left"
say "removed with its data kept, purged with nothing left"
echo "the Debian package passes"
