#!/usr/bin/env bash
# Runs the integration tests that come with kombu, Celery's messaging library: those over AMQP (py-amqp) and those over Kafka
# (confluent-kafka), each test once, though the suite would have many repeated until they pass. Those over Kafka name the port 9092.
. "$(dirname "$0")/../common.sh"
python_tests kombu
[ -n "${kafka_port:-}" ] || own_loopback kafka_port=9092 amqp_port=5672

rabbitmq=yes
start_broker
export RABBITMQ_HOST=localhost RABBITMQ_5672_TCP=5672
run_python_tests t/integration/test_py_amqp.py t/integration/test_kafka.py
