#!/usr/bin/env bash
# Runs every fuzz target for FUZZ_SECONDS each, as many at a time as there are cores. Needs a nightly toolchain and cargo-fuzz; without
# them it says so and ends well, because the same code is covered by the property tests of `cargo test`.
set -euo pipefail
cd "$(dirname "$0")/.."
nightly=$(rustup toolchain list 2>/dev/null | sed -n 's/^\(nightly[^ ]*\).*/\1/p' | head -n 1)
if [ -z "$nightly" ]; then
    echo "skipped: fuzzing (no nightly toolchain)"
    exit 0
fi
# It only starts cargo and the targets: optimised it would take longer to build and be no faster.
if ! cargo fuzz --version >/dev/null 2>&1; then
    cargo install -q --locked --debug cargo-fuzz || { echo "skipped: fuzzing (cargo-fuzz cannot be installed)"; exit 0; }
fi
# What the fuzzer cannot guess in seconds: whole requests of every API. Built as the tests are (see Makefile).
cargo build -q --locked --workspace --example fuzz_seeds
"${CARGO_TARGET_DIR:-target}/debug/examples/fuzz_seeds" fuzz/corpus/kafka_session
cargo "+$nightly" fuzz build -s none

# fuzz_target NAME: its log is printed when it finds something.
fuzz_target() {
    echo "fuzzing $1 for $seconds s"
    cargo "+$nightly" fuzz run -s none "$1" -- -max_total_time="$seconds" -rss_limit_mb=1024 -verbosity=0 >"build/fuzz/$1.log" 2>&1 || {
        tail -n 60 "build/fuzz/$1.log"
        # Ends xargs, too.
        exit 255
    }
}
export -f fuzz_target
export nightly seconds=${FUZZ_SECONDS:-10}
mkdir -p build/fuzz
for target in fuzz/fuzz_targets/*.rs; do
    basename "$target" .rs
done | xargs -P "$(nproc)" -I NAME bash -euo pipefail -c 'fuzz_target NAME'
