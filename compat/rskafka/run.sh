#!/usr/bin/env bash
# Runs the tests that come with the crate rskafka against a broker, all but those of later.txt: with the Java client that some of
# them talk to each other by, and through a SOCKS5 proxy where they want one.
. "$(dirname "$0")/../common.sh"
need mvn "Maven"
need python3 "Python 3.9 or later"
crate_tests rskafka --features full
# The tests look for Java packages here, and download none that is there.
mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$CARGO_TARGET_DIR/debug/jassets" >&2
later=()
while read -r name; do later+=(--skip "$name"); done < <(sed '/^#/d' "$here/later.txt")

# It ends with its standard input, that is with this program.
coproc proxy { exec python3 "$here/socks5.py" 2>"$build/proxy.log"; }
read -r proxy_port <&"${proxy[0]}"
# As the brokers of rskafka's own docker-compose-kafka.yml.
start_broker kafka.auto.create.topics.enable=false
export TEST_INTEGRATION=1 TEST_JAVA_INTEROPT=1 TEST_BROKER_IMPL=kafka KAFKA_CONNECT=$bootstrap SOCKS5_PROXY=127.0.0.1:$proxy_port
run_crate_tests --features full -- "${later[@]}"
