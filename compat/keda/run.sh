#!/usr/bin/env bash
# Decodes answers of the management API into the types of KEDA's RabbitMQ scaler. They are not exported, and its package is built with the
# libraries of all clouds: the types are taken out of the module's source.
. "$(dirname "$0")/../common.sh"
need go "Go 1.26 or later"
need curl "curl"

cd "$here"
module=$(go mod download -json github.com/kedacore/keda/v2 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
mkdir -p "$build/source"
go build -o "$build/extract" extract.go
"$build/extract" "$module/pkg/scalers/rabbitmq_scaler.go" queueInfo regexQueueInfo messageStat publishDetail deliverGetDetail >"$build/source/types.go"
cp main.go "$build/source/"
(cd "$build/source" && GOFLAGS= GO111MODULE=off go build -o ../keda-scaler .)

rabbitmq=yes
start_broker
api() {
    curl -sf -u guest:guest -X "$1" "http://$management/api/$2" -d "$3" >/dev/null
}
api PUT vhosts/other '{}'
api PUT queues/%2F/orders '{"durable": true}'
api PUT queues/%2F/orders.late '{"durable": true}'
api PUT queues/other/jobs '{"durable": true}'
for _ in 1 2; do
    api POST exchanges/%2F/amq.default/publish '{"properties": {}, "routing_key": "orders", "payload": "x", "payload_encoding": "string"}'
done

"$build/keda-scaler" "http://guest:guest@$management" >"$work/passed" 2>"$build/output.txt" || true
sed -n '/^fails: /p' "$build/output.txt"
compare "$work/passed"
