#!/usr/bin/env bash
# Starts a broker of its own on free ports, runs the demo against it, and ends it.
set -euo pipefail
cd "$(dirname "$0")/.."
tests/install.sh python
venv=build/clients/demo
if ! cmp -s demo/requirements.txt "$venv/requirements.txt"; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check -r demo/requirements.txt
    cp demo/requirements.txt "$venv/requirements.txt"
fi
data=$(mktemp -d)
: >"$data/out"
target/release/polylogue serve --data "$data/data" --listen kafka=127.0.0.1:0 --listen http=127.0.0.1:0 >"$data/out" &
broker=$!
trap 'kill "$broker" 2>/dev/null; wait "$broker" 2>/dev/null; rm -rf "$data"' EXIT
until grep -q '^polylogue ready' "$data/out"; do
    kill -0 "$broker" || exit 1
    sleep 0.05
done
address=$(sed -n 's/^kafka listening on \([^ ]*\).*/\1/p' "$data/out")
PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python" demo/demo.py "$address"
