#!/usr/bin/env bash
# run.sh HTTP KAFKA PASSWORD PICTURES: clicks through the console of the broker whose http listener is at HTTP, in headless Chromium, as the
# administrator with that password, and leaves pictures of its pages in the folder PICTURES. Ends with 3 when something that it needs is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build/console
mkdir -p "$build"
need() { command -v "$1" >/dev/null || { echo "missing: $1 ($2)" >&2; exit 3; }; }
need npm "Node.js 18 or later with npm"
need chromium "Debian: chromium"
if ! cmp -s "$here/package-lock.json" "$build/installed.json"; then
    cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$build"
    (cd "$build" && npm ci --silent >&2)
    cp "$here/package-lock.json" "$build/installed.json"
fi
cp "$here"/*.mjs "$build"
cmp "$build/node_modules/htm/preact/standalone.module.js" "$root/crates/admin/console/vendor/htm-preact.js"
CHROMIUM=$(command -v chromium) exec node --no-warnings "$build/console.mjs" "$@"
