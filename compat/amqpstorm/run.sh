#!/usr/bin/env bash
# Runs the functional tests that come with amqpstorm, its client of the management API included. They name the ports 5672, 5671 and 15672.
. "$(dirname "$0")/../common.sh"
need curl "curl"
python_tests amqpstorm
[ -n "${amqp_port:-}" ] || own_loopback amqp_port=5672 amqps_port=5671 management_port=15672

rabbitmq=yes
certificates
start_broker
# The name of the cluster that its authors test against.
curl -sf -u guest:guest -X PUT "http://$management/api/cluster-name" -d '{"name": "rabbit@rmq.eandersson.net"}'
export AMQP_HOST=localhost AMQP_USERNAME=guest AMQP_PASSWORD=guest AMQP_URI=amqp://guest:guest@localhost:5672/%2F
export AMQP_HTTP_URL=http://localhost:15672
export AMQP_SSL_HOST=localhost AMQP_SSL_URI=amqps://guest:guest@localhost:5671/%2F AMQP_CAFILE=$certificates/ca.pem
export AMQP_CERTFILE=$certificates/client.pem AMQP_KEYFILE=$certificates/client.key
run_python_tests amqpstorm/tests/functional
