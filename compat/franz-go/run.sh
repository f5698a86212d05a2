#!/usr/bin/env bash
# Runs the tests that come with franz-go's client (package kgo) against a broker, all but those of later.txt.
# KGO_TEST_RECORDS=500000: records that the larger tests send through.
. "$(dirname "$0")/../common.sh"
need go "Go 1.26 or later"

cd "$here"
go test -c -o "$build/kgo.test" github.com/twmb/franz-go/pkg/kgo
tests=$(go list -f '{{.Dir}}' github.com/twmb/franz-go/pkg/kgo)
later=$(sed '/^#/d' later.txt | paste -s -d '|')

start_broker
cd "$tests"
KGO_SEEDS=$bootstrap KGO_TEST_RF=1 KGO_LOG_LEVEL=none \
    "$build/kgo.test" -test.v -test.timeout 20m -test.skip "^($later)\$" >"$build/output.txt" 2>&1 || true
sed -n 's/^ *--- PASS: \([^ ]*\) (.*/\1/p' "$build/output.txt" >"$work/passed"
sed -n 's/^ *--- FAIL: \([^ ]*\) (.*/fails: \1/p; /^panic: /p' "$build/output.txt"
compare "$work/passed"
