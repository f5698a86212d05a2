#!/usr/bin/env bash
# Serializes every message of the official Kafka client for crates/kafka/tests/codec_java.rs to compare with.
# Needs a JDK (17 or newer) and, once, Maven to fetch three jars into build/jars. Installs nothing.
#
#   tests/java-codec/run.sh        writes build/java-codec/samples.bin and errors.tsv
set -euo pipefail
cd "$(dirname "$0")/../.."

for tool in javac java; do
  if ! command -v "$tool" >/dev/null; then
    echo "run.sh: $tool is missing: a JDK, 17 or newer, is needed (for example openjdk-17-jdk-headless)" >&2
    exit 1
  fi
done

jars=build/jars
classpath=
for artifact in org.apache.kafka:kafka-clients:4.3.1 org.slf4j:slf4j-api:1.7.36 org.slf4j:slf4j-nop:1.7.36; do
  IFS=: read -r _ name version <<<"$artifact"
  jar=$jars/$name-$version.jar
  if [ ! -f "$jar" ]; then
    if ! command -v mvn >/dev/null; then
      echo "run.sh: $jar is missing, and so is mvn, which would fetch it ($artifact)" >&2
      exit 1
    fi
    mvn -q dependency:copy -Dartifact="$artifact" -DoutputDirectory="$jars"
  fi
  classpath=$classpath$jar:
done

out=build/java-codec
mkdir -p "$out/classes"
javac -nowarn -cp "$classpath" -d "$out/classes" tests/java-codec/Samples.java
java -cp "$classpath$out/classes" Samples "$out"
