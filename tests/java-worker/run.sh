#!/usr/bin/env bash
# Sees that the Java worker of polylogue-bench ends its run in time, whatever a client does: with one that sits in a call for ever, it
# tells that as the run's error. A worker that waited for such a client kept the whole comparison.
# And that its verifier takes nothing for lost which a reader that was stopped had not come to: of a reader of several partitions whose
# messages are numbered over all of them, everything that it had not read in the slowest one was reported as a loss.
# And that what a client still gives away while it ends is counted nowhere: some end on threads of their own, while the run is reported.
# Needs a JDK (17 or newer) and, once, Maven to fetch four jars; tests/java.sh says what happens without them.
set -euo pipefail
cd "$(dirname "$0")/../.."

what="the Java worker with a client that hangs"
. tests/java.sh
jackson=com.fasterxml.jackson.core
jars org.hdrhistogram:HdrHistogram:2.2.2 "$jackson:jackson-databind:2.19.0" "$jackson:jackson-core:2.19.0" \
  "$jackson:jackson-annotations:2.19.0"

out=build/java-worker
mkdir -p "$out/classes"
javac -nowarn -cp "$classpath" -d "$out/classes" crates/bench/workers/java/core/*.java tests/java-worker/*.java

# run WHERE: the last line of a run of 200 ms whose client sits in that call.
run() {
  local spec start
  spec='{"bootstrap":"","topic":"'$1'","partitions":1,"producers":1,"producer_base":0,"consumers":1,"groups":1,"message_bytes":100,
    "rate":100,"messages":0,"warmup_ms":0,"window_ms":200,"batch_bytes":1,"linger_us":0,"batches_per_request":1,"in_flight":5,
    "from":"end","expect":0,"read_bytes_per_s_max":0,"verify":true}'
  {
    echo "${spec//$'\n'/ }"
    start=$(($(date +%s) + 2))
    echo "{\"start_ns\":${start}000000000}"
  } | timeout 60 java -Dbench.drain_ms=300 -Dbench.stuck_ms=300 -cp "$classpath$out/classes" Worker 2>"$out/$1.err" | tail -n 1
}

failed=0
if java -cp "$classpath$out/classes" VerifierCheck; then
  echo "ok: what a stopped reader had not come to is no loss"
else
  failed=1
fi
for where in send close poll; do
  last=$(run "$where") || true
  case $last in
    *'"done":'*'stuck in bench-'*) echo "ok: a client that sits in $where is reported" ;;
    *)
      echo "a client that sits in $where: the worker's last line is ${last:-none}" >&2
      failed=1
      ;;
  esac
done
last=$(run late) || true
case $last in
  *'"done":'*'"received":0,'*) echo "ok: what comes when its reader has ended is not counted" ;;
  *)
    echo "a message that comes when its reader has ended: the worker's last line is ${last:-none}" >&2
    failed=1
    ;;
esac
exit "$failed"
