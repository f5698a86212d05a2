#!/usr/bin/env bash
# A disk that fills up, on a real file system of a limited size (tmpfs; needs root): what is deleted is given back, restarts take no room, and with
# no byte free a broker starts and deletes. The counted version is crates/broker/tests/it/full_disk.rs.
#
#   tests/hostile/full-disk.sh [BINARY [SIZE...]]      target/debug/polylogue; 250m 500m 1g 2g 4g
set -euo pipefail

here=$(cd "$(dirname "$0")/../.." && pwd)
binary=${1:-$here/target/debug/polylogue}
shift || true
sizes=("$@")
[ ${#sizes[@]} -gt 0 ] || sizes=(250m 500m 1g 2g 4g)
work=$(mktemp -d)
disk=$work/disk
pid=
mkdir "$disk"

cleanup() {
    [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true
    umount -l "$disk" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

fail() {
    echo "FAILED: $*" >&2
    tail -5 "$work/err" >&2 || true
    exit 1
}

free_kib() { df --output=avail -k "$disk" | tail -1 | tr -d ' '; }

start() {
    : >"$work/out"
    "$binary" serve --data "$disk/data" --listen kafka=127.0.0.1:0 --listen http=127.0.0.1:0 >"$work/out" 2>"$work/err" &
    pid=$!
    until grep -q '^polylogue ready' "$work/out"; do
        kill -0 "$pid" 2>/dev/null || fail "$what: it does not start"
        sleep 0.1
    done
    export POLYLOGUE_BOOTSTRAP POLYLOGUE_SERVER
    POLYLOGUE_BOOTSTRAP=$(sed -n 's/^kafka listening on \([^ ]*\).*/\1/p' "$work/out")
    POLYLOGUE_SERVER=http://$(sed -n 's/^http listening on \([^ ]*\).*/\1/p' "$work/out")
}

end() {
    kill -"$1" "$pid"
    wait "$pid" 2>/dev/null || true
    pid=
}

# Waits until so many KiB are free.
until_free() {
    for _ in $(seq 300); do
        [ "$(free_kib)" -lt "$1" ] || return 0
        sleep 0.1
    done
    fail "$what: $(free_kib) KiB are free, and $1 should be"
}

# One size, one way to end.
fill_and_free() {
    mount -t tmpfs -o "size=$1" tmpfs "$disk"
    what="$1, $2"
    start
    "$binary" topic create kept >/dev/null
    "$binary" topic create doomed >/dev/null
    sleep 2
    local before full now
    before=$(free_kib)
    # Until messages are refused.
    (yes "$(head -c 60000 /dev/zero | tr '\0' x)" || true) | timeout 120 "$binary" produce doomed >/dev/null 2>&1 || true
    sleep 2
    full=$(free_kib)
    for _ in 1 2 3; do
        end "$2"
        start
        sleep 2
        now=$(free_kib)
        # 256 MiB are the reserve, above which the next file of the journal is made ahead.
        [ $((now + 4096)) -ge "$((full < 262144 ? full : 262144))" ] || fail "$what: a restart left $now of $full KiB"
        full=$now
    done
    # Others take the rest.
    dd if=/dev/zero of="$disk/others" bs=1M status=none 2>/dev/null || true
    end "$2"
    start
    "$binary" topic delete doomed >/dev/null || fail "$what: no deletion with $(free_kib) KiB free"
    rm "$disk/others"
    # But for two files of the journal.
    until_free $((before - 140000))
    end "$2"
    start
    until_free $((before - 140000))
    echo "$what: $before KiB free, $full when full, $(free_kib) after the deletion"
    end TERM
    umount "$disk"
}

for size in "${sizes[@]}"; do
    for how in KILL TERM; do
        fill_and_free "$size" "$how"
    done
done
