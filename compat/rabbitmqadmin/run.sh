#!/usr/bin/env bash
# Calls rabbitmqadmin (version 2, from its crate) as an operator would, and compares which calls work with passing.txt.
. "$(dirname "$0")/../common.sh"
need curl "curl"
. "$here/install.sh"

rabbitmq=yes
start_broker
node=$(curl -s -u guest:guest "http://$management/api/overview" | sed 's/.*"node":"\([^"]*\)".*/\1/')
program=("$build/bin/rabbitmqadmin" --host 127.0.0.1 --port "${management##*:}" --non-interactive)
. "$here/cases_run.sh"
