#!/usr/bin/env bash
# Runs the tests that come with the crate lapin against a broker, with both of the runtimes that it has tests for.
. "$(dirname "$0")/../common.sh"
features=(--no-default-features --features tokio,smol)
crate_tests lapin "${features[@]}"

rabbitmq=yes
start_broker
export AMQP_ADDR=amqp://$amqp/%2f
run_crate_tests "${features[@]}"
