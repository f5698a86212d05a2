#!/usr/bin/env bash
# Runs the tests that come with amqp091-go. Those of its recovery ask RabbitMQ's management API, at the port 15672, to drop connections.
. "$(dirname "$0")/../common.sh"
need go "Go 1.26 or later"

if [ -z "${amqp_port:-}" ]; then
    cd "$here"
    go test -c -tags integration -o "$build/amqp091.test" github.com/rabbitmq/amqp091-go
    go list -f '{{.Dir}}' github.com/rabbitmq/amqp091-go >"$build/tests"
    own_loopback amqp_port=5672 management_port=15672
fi

rabbitmq=yes
start_broker
cd "$(cat "$build/tests")"
AMQP_URL=amqp://guest:guest@$amqp/ "$build/amqp091.test" -test.v -test.timeout 20m >"$build/output.txt" 2>&1 || true
sed -n 's/^ *--- PASS: \([^ ]*\) (.*/\1/p' "$build/output.txt" >"$work/passed"
sed -n 's/^ *--- FAIL: \([^ ]*\) (.*/fails: \1/p; s/^ *--- SKIP: \([^ ]*\) (.*/skipped: \1/p; /^panic: /p' "$build/output.txt"
compare "$work/passed"
