#!/usr/bin/env bash
# Serializes every message of the official Kafka client for crates/kafka/tests/codec_java.rs to compare with.
# Needs a JDK (17 or newer) and, once, Maven to fetch three jars into build/jars. Installs nothing: where one of them is missing,
# it says in build/skipped what is left out and ends with 0, but with CI=true it ends with 1.
#
#   tests/java-codec/run.sh        writes build/java-codec/samples.bin and errors.tsv
set -euo pipefail
cd "$(dirname "$0")/../.."

# skip WHY: names what is left out, and ends.
skip() {
  local line="skipped: the comparison with Kafka's own message classes: $1"
  echo "$line" >&2
  if [ "${CI:-}" = true ]; then
    exit 1
  fi
  mkdir -p build
  echo "$line" >>build/skipped
  exit 0
}

for tool in javac java; do
  command -v "$tool" >/dev/null || skip "$tool is missing: a JDK, 17 or newer, is needed (Debian: openjdk-17-jdk-headless)"
done
[ "$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')" -ge 17 ] || skip "the JDK is older than 17"

jars=build/jars
classpath=
for artifact in org.apache.kafka:kafka-clients:4.3.1 org.slf4j:slf4j-api:1.7.36 org.slf4j:slf4j-nop:1.7.36; do
  IFS=: read -r _ name version <<<"$artifact"
  jar=$jars/$name-$version.jar
  if [ ! -f "$jar" ]; then
    command -v mvn >/dev/null || skip "$jar is missing, and so is mvn, which would fetch it ($artifact)"
    mvn -q dependency:copy -Dartifact="$artifact" -DoutputDirectory="$jars" || skip "mvn could not fetch $artifact"
  fi
  classpath=$classpath$jar:
done

out=build/java-codec
mkdir -p "$out/classes"
javac -nowarn -cp "$classpath" -d "$out/classes" tests/java-codec/Samples.java
java -cp "$classpath$out/classes" Samples "$out"
