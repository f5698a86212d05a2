#!/usr/bin/env bash
# Calls rabbitmqadmin (version 2, from its crate) as an operator would, and compares which calls work with passing.txt.
. "$(dirname "$0")/../common.sh"
need cargo "a Rust toolchain"
need curl "curl"

version=2.35.0
if [ ! -x "$build/bin/rabbitmqadmin" ]; then
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=0 cargo install --quiet --locked --version "$version" \
        --root "$build" --target-dir "$build/target" rabbitmqadmin
    rm -rf "$build/target"
fi

rabbitmq=yes
start_broker
node=$(curl -s -u guest:guest "http://$management/api/overview" | sed 's/.*"node":"\([^"]*\)".*/\1/')
program=("$build/bin/rabbitmqadmin" --host 127.0.0.1 --port "${management##*:}" --non-interactive)
. "$here/cases_run.sh"
