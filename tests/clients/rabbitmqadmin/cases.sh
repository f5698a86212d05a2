#!/usr/bin/env bash
# cases.sh TOOL AMQP,MANAGEMENT [CASE...]: the cases of rabbitmqadmin and of rabbitmqadmin-classic, the script that came with RabbitMQ
# before it. See ../README.md.
#
#   smoke    declares an exchange, a queue and a binding, publishes, lists, gets, exports, deletes
#   calls    all calls of compat/TOOL
set -euo pipefail
tool=$1
if [ "$2" = --list ]; then
    printf '%s\n' smoke calls
    exit
fi
amqp=${2%%,*}
management=${2##*,}
shift 2
compat=$(cd "$(dirname "$0")/../../../compat" && pwd)
build=$(dirname "$compat")/build/compat/$tool
mkdir -p "$build"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C

need() { command -v "$1" >/dev/null || { echo "missing: $1 ($2)" >&2; exit 3; }; }

. "$compat/$tool/install.sh"
case $tool in
rabbitmqadmin) program=("$build/bin/rabbitmqadmin" --host 127.0.0.1 --port "${management##*:}" --non-interactive) ;;
rabbitmqadmin-classic) program=("$build/python/bin/python" "$build/rabbitmqadmin.py" --host=127.0.0.1 --port="${management##*:}") ;;
esac

# shows TEXT ARGUMENT...: a call that must succeed, and say this.
shows() {
    local text=$1 said
    shift
    said=$(timeout 30 "${program[@]}" "$@" 2>&1) || { echo "$*: $said"; return 1; }
    [[ $said == *"$text"* ]] || { echo "$*: there is no '$text' in: $said"; return 1; }
}

# shows_no TEXT ARGUMENT...: the same that must not say this.
shows_no() {
    ! shows "$@" >/dev/null || { echo "${*:2}: there is '$1' still"; return 1; }
}

smoke_rabbitmqadmin() {
    shows '' declare exchange --name smoke-exchange --type topic --durable true &&
        shows '' declare queue --name smoke-queue --type quorum --durable true &&
        shows '' declare binding --source smoke-exchange --destination smoke-queue --destination-type queue --routing-key 'smoke.#' &&
        shows '' publish message --exchange smoke-exchange --routing-key smoke.key --payload hello &&
        shows smoke-exchange list exchanges &&
        shows smoke-queue list queues &&
        shows 'smoke.#' list bindings &&
        shows hello get messages --queue smoke-queue --count 1 --ack-mode ack_requeue_false &&
        shows '' definitions export --file "$work/definitions.json" &&
        exported &&
        shows '' delete binding --source smoke-exchange --destination smoke-queue --destination-type queue --routing-key 'smoke.#' &&
        shows '' delete queue --name smoke-queue &&
        shows '' delete exchange --name smoke-exchange &&
        deleted
}

smoke_rabbitmqadmin-classic() {
    shows declared declare exchange name=smoke-exchange type=topic &&
        shows declared declare queue name=smoke-queue durable=true queue_type=quorum &&
        shows declared declare binding source=smoke-exchange destination=smoke-queue destination_type=queue 'routing_key=smoke.#' &&
        shows 'Message published' publish exchange=smoke-exchange routing_key=smoke.key payload=hello &&
        shows smoke-exchange list exchanges &&
        shows smoke-queue list queues &&
        shows 'smoke.#' list bindings &&
        shows hello get queue=smoke-queue count=1 ackmode=ack_requeue_false &&
        shows Exported export "$work/definitions.json" &&
        exported &&
        shows deleted delete binding source=smoke-exchange destination_type=queue destination=smoke-queue 'properties_key=smoke.%23' &&
        shows deleted delete queue name=smoke-queue &&
        shows deleted delete exchange name=smoke-exchange &&
        deleted
}

exported() {
    local name
    for name in smoke-exchange smoke-queue 'smoke.#'; do
        grep -qF "\"$name\"" "$work/definitions.json" || { echo "no $name in what was exported"; return 1; }
    done
}

deleted() {
    shows_no smoke- list exchanges && shows_no smoke- list queues && shows_no smoke- list bindings
}

# compare FILE: that what passed is all that passed before.
compare() {
    local lost
    lost=$(comm -13 <(sort -u "$1") <(sort -u "$compat/$tool/passing.txt"))
    [ -z "$lost" ] || { echo "passed before and did not now: $lost"; return 1; }
}

calls() {
    local here=$compat/$tool node
    node=$(curl -s -u guest:guest "http://$management/api/overview" | sed 's/.*"node":"\([^"]*\)".*/\1/')
    . "$compat/rabbitmqadmin/cases_run.sh"
}

[ $# -gt 0 ] || set -- smoke calls
failed=0
for name in "$@"; do
    case $name in
    smoke) act=smoke_$tool ;;
    calls)
        need curl "curl"
        act=calls
        ;;
    *) echo "no such case: $name" >&2; exit 2 ;;
    esac
    if said=$("$act" 2>&1); then
        echo "ok $name"
    else
        failed=1
        echo "FAIL $name: $said"
    fi
done
exit $failed
