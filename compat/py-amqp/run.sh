#!/usr/bin/env bash
# Runs the integration tests that come with py-amqp, Celery's client, against a broker: each test once, though the suite would
# have many repeated until they pass.
. "$(dirname "$0")/../common.sh"
need python3 "Python 3.9 or later"

if ! cmp -s "$here/requirements.txt" "$build/requirements.txt"; then
    rm -rf "$build/python" "$build/source" "$build/package"
    python3 -m venv "$build/python"
    "$build/python/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt"
    "$build/python/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary amqp -d "$build/package" \
        "$(grep '^amqp==' "$here/requirements.txt")"
    mkdir "$build/source"
    tar -xzf "$build"/package/amqp-*.tar.gz --strip-components 1 -C "$build/source"
    cp "$here/requirements.txt" "$build/requirements.txt"
fi

rabbitmq=yes
start_broker
cd "$build/source"
# There is no TLS listener. No program can listen at the port 0.
export RABBITMQ_HOST=${amqp%:*} RABBITMQ_5672_TCP=${amqp##*:} RABBITMQ_5671_TCP=0 PYTHONDONTWRITEBYTECODE=1
timeout 1200 "$build/python/bin/python" -m pytest -p no:cacheprovider -rA --tb=short t/integration >"$build/output.txt" 2>&1 || true
sed -n 's/^PASSED \(t.*\)/\1/p' "$build/output.txt" >"$work/passed"
sed -n 's/^\(FAILED\|ERROR\) \(t[^ ]*\).*/fails: \2/p' "$build/output.txt"
compare "$work/passed"
