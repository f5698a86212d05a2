#!/usr/bin/env bash
# Runs the integration tests that come with py-amqp, Celery's client, against a broker: each test once, though the suite would
# have many repeated until they pass.
. "$(dirname "$0")/../common.sh"
python_tests amqp

rabbitmq=yes
certificates
start_broker
# Its authors keep them elsewhere: the package comes without.
mkdir -p "$build/source/t/certs"
cp "$certificates/ca.pem" "$build/source/t/certs/ca_certificate.pem"
cp "$certificates/client.pem" "$build/source/t/certs/client_certificate.pem"
cp "$certificates/client.key" "$build/source/t/certs/client_key.pem"
# One whose key is another's.
cp "$certificates/client.pem" "$build/source/t/certs/client_certificate_broken.pem"
cp "$certificates/server.key" "$build/source/t/certs/client_key_broken.pem"
export RABBITMQ_HOST=${amqp%:*} RABBITMQ_5672_TCP=${amqp##*:} RABBITMQ_5671_TCP=${amqps##*:}
run_python_tests t/integration
