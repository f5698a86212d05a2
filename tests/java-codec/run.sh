#!/usr/bin/env bash
# Serializes every message of the official Kafka client for crates/kafka-codec/tests/it/java.rs to compare with.
# Needs a JDK (17 or newer) and, once, Maven to fetch three jars; tests/java.sh says what happens without them.
#
#   tests/java-codec/run.sh        writes build/java-codec/samples.bin and errors.tsv
set -euo pipefail
cd "$(dirname "$0")/../.."

what="the comparison with Kafka's own message classes"
. tests/java.sh
jars org.apache.kafka:kafka-clients:4.3.1 org.slf4j:slf4j-api:1.7.36 org.slf4j:slf4j-nop:1.7.36

out=build/java-codec
mkdir -p "$out/classes"
javac -nowarn -cp "$classpath" -d "$out/classes" tests/java-codec/Samples.java
java -cp "$classpath$out/classes" Samples "$out"
