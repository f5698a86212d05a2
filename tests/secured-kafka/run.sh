#!/usr/bin/env bash
# Sees that polylogue-bench measures a broker that admits no client without TLS and a password (SASL_SSL, SCRAM): the real Kafka, with the
# Java client and with librdkafka, each configured by a file of its own; and that neither is let in with a wrong password.
#
#   run.sh [BENCH] [BUILD]      the binary, and the folder in which `peers install kafka` and `peers workers` have put things
#
# Needs a JDK (17 or newer), python3, and OpenSSL's headers when the workers are built.
set -euo pipefail
cd "$(dirname "$0")/../.."
bench=${1:-target/release/polylogue-bench}
build=$(realpath -m "${2:-build}")
jars="$build/peers/kafka/*"
what="polylogue-bench with a Kafka that wants TLS and a password"
. tests/java.sh
[ -x "$bench" ] || skip "$bench is missing"
compgen -G "$jars" >/dev/null || skip "there is no Kafka in $build: $bench peers install kafka; $bench peers workers"
for tool in keytool python3; do
  command -v "$tool" >/dev/null || skip "$tool is missing"
done

place=$(mktemp -d)
kafka=
end() {
  [ -z "$kafka" ] || { kill "$kafka" && wait "$kafka" || true; } 2>/dev/null
  rm -rf "$place"
}
trap end EXIT

read -r secured inner controller < <(python3 -c '
import socket
held = [socket.socket() for _ in range(3)]
for one in held: one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in held))')
word=$(head -c 12 /dev/urandom | od -An -tx1 | tr -d ' \n')
store=(-storetype PKCS12 -storepass "$word")
keytool -genkeypair -alias broker -keyalg EC -validity 2 -dname CN=localhost -ext san=ip:127.0.0.1,dns:localhost \
  -keystore "$place/broker.p12" "${store[@]}" 2>/dev/null
keytool -exportcert -rfc -alias broker -keystore "$place/broker.p12" "${store[@]}" >"$place/ca.pem" 2>/dev/null
keytool -importcert -noprompt -alias broker -file "$place/ca.pem" -keystore "$place/trust.p12" "${store[@]}" 2>/dev/null

cat >"$place/server.properties" <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$controller
listeners=SECURED://127.0.0.1:$secured,INNER://127.0.0.1:$inner,CONTROLLER://127.0.0.1:$controller
listener.security.protocol.map=SECURED:SASL_SSL,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=INNER
sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.secured.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PKCS12
ssl.keystore.location=$place/broker.p12
ssl.keystore.password=$word
log.dirs=$place/data
offsets.topic.replication.factor=1
auto.create.topics.enable=false
EOF
tool() { java -Xmx256m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$jars" "$@"; }
id=$(tool kafka.tools.StorageTool random-uuid)
tool kafka.tools.StorageTool format -t "$id" -c "$place/server.properties" --standalone \
  --add-scram "SCRAM-SHA-256=[name=bench,password=$word]" >"$place/format.log"
java -Xmx512m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$jars" kafka.Kafka "$place/server.properties" >"$place/kafka.log" 2>&1 &
kafka=$!
for _ in $(seq 300); do
  if (exec 3<>"/dev/tcp/127.0.0.1/$secured") 2>/dev/null; then break; fi
  sleep 0.1
done

settings() { # CLIENT PASSWORD
  echo "security.protocol=SASL_SSL"
  case $1 in
    java)
      echo "sasl.mechanism=SCRAM-SHA-256"
      echo "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"bench\" password=\"$2\";"
      printf '%s\n' "ssl.truststore.location=$place/trust.p12" "ssl.truststore.type=PKCS12" "ssl.truststore.password=$word"
      ;;
    librdkafka)
      printf '%s\n' "sasl.mechanisms=SCRAM-SHA-256" "sasl.username=bench" "sasl.password=$2" "ssl.ca.location=$place/ca.pem"
      ;;
  esac
}

failed=0
# Java's first: it makes the topic.
for client in java librdkafka; do
  for password in "$word" wrong; do
    settings "$client" "$password" >"$place/client.properties"
    said=$("$bench" --json --build "$build" run --target "kafka=127.0.0.1:$secured" --client "$client" --partitions 3 --rate 500 \
      --warmup 1s --window 2s --client-config "$place/client.properties" 2>"$place/bench.err") && let_in=yes || let_in=no
    case $password:$let_in:$said in
      "$word":yes:*'"acked":1500,'*'"received":1500,'*) echo "ok: $client wrote and read 1,500 messages over TLS with a password" ;;
      wrong:no:*) echo "ok: $client is not let in with a wrong password" ;;
      *)
        echo "$client: let in: $let_in; it says ${said:-nothing}; $(tail -n 5 "$place/bench.err")" >&2
        failed=1
        ;;
    esac
  done
done
exit "$failed"
