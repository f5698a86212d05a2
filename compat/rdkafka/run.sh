#!/usr/bin/env bash
# Runs the tests that come with the crate rdkafka against a broker.
. "$(dirname "$0")/../common.sh"
crate_tests rdkafka
# Some of its tests take no other address.
[ -n "${kafka_port:-}" ] || own_loopback

# Its tests count on three partitions where a topic is created by being asked for.
# One writes messages of 1970 and reads them back, which works as long as retention does not look, in Kafka every five minutes.
start_broker kafka.num.partitions=3 kafka.node.id=0
export KAFKA_HOST=$bootstrap
run_crate_tests
