#!/usr/bin/env bash
# run.sh CLIENT BOOTSTRAP [CASE...]: builds the program of a client where need be and runs its cases. Ends with 3 when something
# that it needs is missing and cannot be installed here.
set -euo pipefail
client=$1
bootstrap=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$here/../.." && pwd)/build/clients
mkdir -p "$build"
need() { command -v "$1" >/dev/null || { echo "missing: $1 ($2)" >&2; exit 3; }; }

case $client in
python)
    need python3 "Python 3.9 or later"
    if [ ! -x "$build/python/bin/python" ] || ! cmp -s "$here/python/requirements.txt" "$build/python/requirements.txt"; then
        python3 -m venv "$build/python" || { echo "missing: python3-venv" >&2; exit 3; }
        "$build/python/bin/pip" install -q --disable-pip-version-check -r "$here/python/requirements.txt"
        cp "$here/python/requirements.txt" "$build/python/requirements.txt"
    fi
    PYTHONDONTWRITEBYTECODE=1 exec "$build/python/bin/python" "$here/python/cases.py" "$bootstrap" "$@"
    ;;
java)
    need javac "a JDK, 17 or later"
    need mvn "Maven"
    if [ "$here/java/Cases.java" -nt "$build/java/Cases.class" ]; then
        mvn -q -B -f "$here/java/pom.xml" dependency:copy-dependencies -DoutputDirectory="$build/java/lib" >&2
        javac -cp "$build/java/lib/*" -d "$build/java" "$here/java/Cases.java"
    fi
    exec java -Xmx256m -cp "$build/java/lib/*:$build/java" Cases "$bootstrap" "$@"
    ;;
go)
    need go "Go 1.24 or later"
    (cd "$here/go" && go build -o "$build/go-cases" .)
    exec "$build/go-cases" "$bootstrap" "$@"
    ;;
*)
    echo "no such client: $client (python, java, go)" >&2
    exit 2
    ;;
esac
