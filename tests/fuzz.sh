#!/usr/bin/env bash
# Runs every fuzz target for FUZZ_SECONDS each. Needs a nightly toolchain and cargo-fuzz; without them it says so and ends well,
# because the same code is covered by the property tests of `cargo test`.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-10}
nightly=$(rustup toolchain list 2>/dev/null | sed -n 's/^\(nightly[^ ]*\).*/\1/p' | head -n 1)
if [ -z "$nightly" ]; then
    echo "skipped: fuzzing (no nightly toolchain)"
    exit 0
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    cargo install -q --locked cargo-fuzz || { echo "skipped: fuzzing (cargo-fuzz cannot be installed)"; exit 0; }
fi
# What the fuzzer cannot guess in seconds: whole requests of every API.
cargo run -q --locked -p polylogue-kafka --example fuzz_seeds -- fuzz/corpus/kafka_session
for target in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$target" .rs)
    echo "fuzzing $name for $seconds s"
    cargo "+$nightly" fuzz run -s none "$name" -- -max_total_time="$seconds" -rss_limit_mb=1024 -verbosity=0 >build/fuzz.log 2>&1 || {
        tail -n 60 build/fuzz.log
        exit 1
    }
done
