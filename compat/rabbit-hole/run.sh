#!/usr/bin/env bash
# Runs the tests that come with rabbit-hole, the Go client of RabbitMQ's management API. They name the ports 5672 and 15672.
. "$(dirname "$0")/../common.sh"
need go "Go 1.26 or later"
need curl "curl"

if [ -z "${management_port:-}" ]; then
    cd "$here"
    go test -c -o "$build/rabbit-hole.test" github.com/michaelklishin/rabbit-hole/v3
    own_loopback amqp_port=5672 management_port=15672
fi

rabbitmq=yes
start_broker
# What the suite wants to be there (its bin/ci/before_build.sh).
put() {
    curl -sf -u guest:guest -X PUT "http://$management/api/$1" -d "$2"
}
all='{"configure": ".*", "write": ".*", "read": ".*"}'
put users/policymaker '{"password": "policymaker", "tags": "policymaker"}'
put permissions/%2F/policymaker "$all"
put vhosts/rabbit%2Fhole '{}'
put permissions/rabbit%2Fhole/guest "$all"
put cluster-name '{"name": "rabbitmq@localhost"}'

cd "$work"
"$build/rabbit-hole.test" -test.timeout 20m -ginkgo.no-color -ginkgo.junit-report="$work/report.xml" >"$build/output.txt" 2>&1 || true
cases() {
    sed -n "s/.*<testcase name=\"\(\[It\] \)\{0,1\}\([^\"]*\)\".* status=\"$1\".*/\2/p" "$work/report.xml" | sed 's/&#34;/"/g; s/&gt;/>/g; s/&amp;/\&/g'
}
cases passed >"$work/passed"
for how in failed panicked timedout; do cases $how | sed 's/^/fails: /'; done
compare "$work/passed"
