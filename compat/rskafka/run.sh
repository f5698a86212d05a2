#!/usr/bin/env bash
# Runs the tests that come with the crate rskafka against a broker.
. "$(dirname "$0")/../common.sh"
crate_tests rskafka --features full

start_broker kafka.auto.create.topics.enable=false
export TEST_INTEGRATION=1 TEST_BROKER_IMPL=kafka KAFKA_CONNECT=$bootstrap
run_crate_tests --features full
