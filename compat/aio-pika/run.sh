#!/usr/bin/env bash
# Runs the tests that come with aio-pika. They have Docker start a RabbitMQ: what answers them here as Docker is docker.py, and its only
# container is the broker.
. "$(dirname "$0")/../common.sh"
python_tests aio-pika
[ -n "${amqp_port:-}" ] || own_loopback amqp_port=5672

rabbitmq=yes
certificates
# It sends messages of 22 MB.
start_broker amqp.message_bytes_max=32MiB
"$build/python/bin/python" "$here/docker.py" "$work/docker.sock" "${amqp##*:}" "${amqps##*:}" &
docker=$!
trap 'kill "$docker" 2>/dev/null || true; finish' EXIT
until [ -S "$work/docker.sock" ]; do
    kill -0 "$docker" || exit 2
    sleep 0.1
done
export DOCKER_HOST=unix://$work/docker.sock
run_python_tests tests
