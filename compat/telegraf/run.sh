#!/usr/bin/env bash
# Runs Telegraf's RabbitMQ input, which is the plugin itself out of its Go module, against what a broker's management API shows.
. "$(dirname "$0")/../common.sh"
need go "Go 1.26 or later"
need curl "curl"

(cd "$here" && go build -o "$build/telegraf-input" .)
rabbitmq=yes
start_broker
api() {
    curl -sf -u guest:guest -X "$1" "http://$management/api/$2" -d "$3" >/dev/null
}
api PUT queues/%2F/plain '{"durable": true}'
api PUT queues/%2F/orders '{"durable": true, "arguments": {"x-queue-type": "quorum"}}'
api PUT queues/%2F/log '{"durable": true, "arguments": {"x-queue-type": "stream"}}'
api PUT exchanges/%2F/x '{"type": "topic", "durable": true}'
api PUT parameters/federation-upstream/%2F/up "{\"value\": {\"uri\": \"amqp://guest:guest@$amqp/%2F\", \"exchange\": \"amq.topic\"}}"
api PUT policies/%2F/federated '{"pattern": "^x$", "apply-to": "exchanges", "definition": {"federation-upstream": "up"}}'
for _ in 1 2; do
    api POST exchanges/%2F/amq.default/publish '{"properties": {"timestamp": 1700000000}, "routing_key": "orders", "payload": "x", "payload_encoding": "string"}'
done
# A link is there a moment after its policy.
until curl -sf -u guest:guest "http://$management/api/federation-links" | grep -q '"upstream":"up"'; do :; done

"$build/telegraf-input" "http://$management" >"$work/passed" 2>"$build/output.txt" || true
sed -n '/^fails: /p' "$build/output.txt" | cut -c 1-200
compare "$work/passed"
