# Sourced by the run.sh of each suite: a broker of its own, and the list of tests that pass.
#
#   POLYLOGUE_BIN   the broker's binary (default: the release build)
#   UPDATE=1        adds the tests that pass now to passing.txt

set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
suite=$(basename "$here")
root=$(cd "$here/../.." && pwd)
build=$root/build/compat/$suite
work=$(mktemp -d)
broker=
mkdir -p "$build"
export LC_ALL=C

need() { command -v "$1" >/dev/null || { echo "missing: $1 ($2)" >&2; exit 3; }; }

finish() {
    if [ -n "$broker" ]; then
        kill "$broker" 2>/dev/null && wait "$broker" || true
    fi
    rm -rf "$work"
}
trap finish EXIT

# own_loopback [PORT...]: a test suite that names the address localhost:9092 gets a loopback of its own, where that port is free and
# no other process's: run.sh runs itself again in a network namespace, once what needs the network is built. PORT is kafka_port=9092
# (which holds without any), amqp_port=5672, amqps_port=5671, management_port=15672.
own_loopback() {
    need unshare "util-linux"
    need ip "iproute2"
    finish
    trap - EXIT
    exec env "${@:-kafka_port=9092}" unshare --map-root-user --net bash -c 'ip link set lo up && exec "$0"' "$here/run.sh"
}

# certificates: makes $certificates with a certificate authority (ca.pem), a certificate of localhost (server.pem, server.key) and one
# of a client (client.pem, client.key).
certificates() {
    need openssl "openssl"
    certificates=$work/certificates
    mkdir "$certificates"
    local key=(-newkey rsa:2048 -nodes) name
    openssl req -x509 "${key[@]}" -days 2 -subj /CN=compat -addext keyUsage=critical,keyCertSign,cRLSign \
        -keyout "$certificates/ca.key" -out "$certificates/ca.pem" 2>"$work/openssl.txt"
    for name in server client; do
        openssl req "${key[@]}" -subj /CN=localhost -keyout "$certificates/$name.key" -out "$work/$name.csr" 2>>"$work/openssl.txt"
        printf 'authorityKeyIdentifier=keyid\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n' >"$work/$name.extensions"
        openssl x509 -req -in "$work/$name.csr" -CA "$certificates/ca.pem" -CAkey "$certificates/ca.key" -CAcreateserial -days 2 \
            -extfile "$work/$name.extensions" -out "$certificates/$name.pem" 2>>"$work/openssl.txt"
    done
}

# start_broker SETTING...: starts a broker with these settings on the loopback, on free ports, or where own_loopback says, and sets
# `bootstrap`; with `rabbitmq=yes` it has RabbitMQ's listeners, too, and `amqp` and `management` are set. After `certificates`, AMQP
# is spoken over TLS, too, at `amqps`.
start_broker() {
    local binary=${POLYLOGUE_BIN:-$root/target/release/polylogue} arguments=() setting lines=$work/broker.lines
    for setting in kafka.group.initial.rebalance.delay.ms=0 "$@"; do
        arguments+=(--set "$setting")
    done
    if [ "${rabbitmq:-}" = yes ]; then
        # A test suite with a loopback of its own may mean either of localhost's addresses.
        if [ -n "${amqp_port:-}" ] && [ -n "$(cat /proc/net/if_inet6 2>/dev/null)" ]; then
            arguments+=(--listen "amqp=[::1]:$amqp_port")
        fi
        arguments+=(--listen "amqp=127.0.0.1:${amqp_port:-0}" --listen "rabbitmq-http=127.0.0.1:${management_port:-0}")
    fi
    if [ -n "${certificates:-}" ]; then
        arguments+=(--listen "amqp+tls=127.0.0.1:${amqps_port:-0}" --set "tls.certificate=$certificates/server.pem")
        arguments+=(--set "tls.key=$certificates/server.key" --set tls.client_auth=request --set "tls.client_ca=$certificates/ca.pem")
    fi
    [ -x "$binary" ] || { echo "no broker at $binary (run: make build)" >&2; exit 2; }
    mkfifo "$lines"
    # The broker refuses variables that start with its name and that it does not know.
    env -u POLYLOGUE_BIN -u POLYLOGUE_CLIENTS "$binary" serve --data "$work/data" --listen "kafka=127.0.0.1:${kafka_port:-0}" --listen http=127.0.0.1:0 "${arguments[@]}" \
        >"$lines" 2>"$build/broker.log" &
    broker=$!
    exec 3<"$lines"
    # It says where it listens, then that it is ready; the end of the file is the end of the broker.
    local line
    while read -r line <&3; do
        case $line in
        "kafka listening on "*) bootstrap=$(echo "$line" | cut -d ' ' -f 4) ;;
        "amqp listening on 127."*) amqp=${line##* } ;;
        "amqp+tls listening on 127."*) amqps=${line##* } ;;
        "rabbitmq-http listening on "*) management=${line##* } ;;
        *ready*) return ;;
        esac
    done
    tail -n 20 "$build/broker.log" >&2
    exit 2
}

# compare FILE: FILE names the tests that passed, one a line. Fails when one of passing.txt is not there.
compare() {
    sort -u "$1" >"$build/passed.txt"
    local lost
    lost=$(comm -13 "$build/passed.txt" <(sort -u "$here/passing.txt"))
    if [ "${UPDATE:-}" = 1 ]; then
        sort -u "$build/passed.txt" "$here/passing.txt" -o "$here/passing.txt"
    fi
    comm -23 "$build/passed.txt" <(sort -u "$here/passing.txt") | sed 's/^/passes now, and is not in passing.txt (UPDATE=1 adds it): /'
    echo "$suite: $(wc -l <"$build/passed.txt") tests passed"
    if [ -n "$lost" ]; then
        echo "$lost" | sed 's/^/passed before and did not now: /' >&2
        echo "$suite: what the tests said is in $build/output.txt, what the broker said in $build/broker.log" >&2
        return 1
    fi
}

# python_tests NAME: makes a virtual environment of the packages that requirements.txt pins ($build/python), and unpacks the source
# package of NAME, which its tests are in ($build/source).
python_tests() {
    need python3 "Python 3.11 or later with venv"
    if ! cmp -s "$here/requirements.txt" "$build/requirements.txt"; then
        rm -rf "$build/python" "$build/source" "$build/package"
        python3 -m venv "$build/python"
        "$build/python/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt"
        "$build/python/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary "$1" -d "$build/package" \
            "$(grep "^$1==" "$here/requirements.txt")"
        mkdir "$build/source"
        tar -xzf "$build"/package/*.tar.gz --strip-components 1 -C "$build/source"
        cp "$here/requirements.txt" "$build/requirements.txt"
    fi
}

# The longest that the tests of a Python package may run. Seconds.
PYTHON_TESTS_SECS=1800

# run_python_tests ARGUMENT...: runs them by pytest, gives the failures, and compares. What a log of a test says is no result of it.
run_python_tests() {
    (cd "$build/source" && PYTHONDONTWRITEBYTECODE=1 timeout -k 5 "$PYTHON_TESTS_SECS" \
        "$build/python/bin/python" -m pytest -p no:cacheprovider -rA --tb=short "$@") >"$build/output.txt" 2>&1 || true
    sed -n '/^=* short test summary info =*$/,$p' "$build/output.txt" >"$work/summary"
    sed -n 's/^PASSED \([^ ]*::.*\)/\1/p' "$work/summary" >"$work/passed"
    sed -n 's/^\(FAILED\|ERROR\) \([^ ]*\).*/fails: \2/p; s/^SKIPPED/skipped:/p' "$work/summary"
    compare "$work/passed"
}

# crate_tests NAME: copies the sources of the crate that Cargo.toml pins to $build/source, with a lock file, and builds its
# tests.
crate_tests() {
    need cargo "a Rust toolchain"
    export CARGO_TARGET_DIR=$build/target
    # Built before, see own_loopback.
    [ -z "${kafka_port:-}" ] || return 0
    local manifest
    cargo fetch -q --locked --manifest-path "$here/Cargo.toml"
    manifest=$(cargo metadata --format-version 1 --locked --manifest-path "$here/Cargo.toml" |
        grep -o "\"manifest_path\":\"[^\"]*/$1-[0-9.]*/Cargo.toml\"" | cut -d '"' -f 4 | head -n 1)
    rm -rf "$build/source"
    cp -R "$(dirname "$manifest")" "$build/source"
    chmod -R u+w "$build/source"
    # It may name a toolchain that is not here.
    rm -f "$build/source/rust-toolchain" "$build/source/rust-toolchain.toml"
    # The lock that it was published with, unless that one does not build any more.
    if [ -f "$here/source.lock" ]; then
        cp "$here/source.lock" "$build/source/Cargo.lock"
    fi
    # Cargo would take it for a member of the workspace around it.
    printf '\n[workspace]\n' >>"$build/source/Cargo.toml"
    (cd "$build/source" && cargo test -q --locked --tests --no-run "${@:2}") >&2
}

# The longest that the tests of a crate may run. Seconds.
CRATE_TESTS_SECS=1800

# run_crate_tests ARGUMENT...: runs them, gives the failures, and compares.
run_crate_tests() {
    (cd "$build/source" && timeout "$CRATE_TESTS_SECS" cargo test --locked --tests --no-fail-fast "$@") >"$build/output.txt" 2>&1 || true
    # Test names are distinguished by the program that they are in.
    awk '/^ *Running / { program = $2 == "unittests" ? "lib" : $2; sub(/.*\//, "", program); sub(/\.rs$/, "", program) }
        /^test .* \.\.\. ok$/ { print "ok " program "::" $2 }
        /^test .* \.\.\. FAILED$/ { print "fails: " program "::" $2 }' "$build/output.txt" >"$work/results"
    sed -n 's/^ok //p' "$work/results" >"$work/passed"
    sed -n '/^fails/p' "$work/results"
    compare "$work/passed"
}
