"""What a noisy tenant does to a quiet one, with and without quotas (docs/lab/security.md).

    tenants.py POLYLOGUE POLYLOGUE_BENCH [ROUNDS [BUILD]]

The quiet tenant is polylogue-bench with the raw client: 1,000 messages of 1 KiB a second into 10 partitions and out again. The noisy one is
librdkafka (confluent-kafka, which this Python has): two processes that produce messages of 1 KiB as fast as it goes, in batches of up to 1 MB, and one that
reads them. Clients of tenants have machines of their own; here they get only the processor time that is otherwise idle (SCHED_IDLE). In turns: the
quiet one alone, beside the noisy one, beside the noisy one under quotas of 10 MiB/s for producing, 10 MiB/s for fetching and 20 % of a thread, and
beside a noisy one under the same quotas at a second broker on this machine, which shows what the machine costs by itself. Prints a JSON
line a run and one with the medians.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

NOISY = """
import sys
from confluent_kafka import Consumer, Producer
role, bootstrap = sys.argv[1:]
base = {"bootstrap.servers": bootstrap, "client.id": "noisy"}
if role == "produce":
    producer = Producer({**base, "linger.ms": 5, "batch.size": 1_000_000, "queue.buffering.max.messages": 20_000})
    value = b"x" * 1024
    while True:
        try:
            producer.produce("noise", value)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
consumer = Consumer({**base, "group.id": "noise", "auto.offset.reset": "latest"})
consumer.subscribe(["noise"])
while True:
    consumer.consume(1_000, 1)
"""
KINDS = ("alone", "noisy", "quotas", "elsewhere")
IDLE = ["chrt", "--idle", "0"]
QUOTAS = ["--produce", str(10 << 20), "--fetch", str(10 << 20), "--threads", "20"]


def listener(lines, name):
    return next(line.split(" ")[3] for line in lines if line.startswith(f"{name} listening on"))


def wait_ready(broker):
    lines = []
    for line in broker.stdout:
        lines.append(line.strip())
        if line.startswith("polylogue ready"):
            return lines
    raise SystemExit("the broker did not start")


def start(polylogue, place):
    """A broker, and where it listens for Kafka and for HTTP."""
    listeners = ["--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0"]
    broker = subprocess.Popen(
        [polylogue, "serve", "--data", place, *listeners, "--set", "kafka.num.partitions=10"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    lines = wait_ready(broker)
    return broker, listener(lines, "kafka"), listener(lines, "http")


def run(kind, polylogue, bench, build):
    place = tempfile.mkdtemp()
    brokers, others = [], []
    try:
        broker, kafka, http = start(polylogue, f"{place}/d")
        brokers.append(broker)
        noisy, noisy_http = kafka, http
        if kind == "elsewhere":
            broker, noisy, noisy_http = start(polylogue, f"{place}/e")
            brokers.append(broker)
        if kind in ("quotas", "elsewhere"):
            command = [polylogue, "quota", "set", "--server", noisy_http, "--client-id", "noisy", *QUOTAS]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        if kind != "alone":
            for role in ("produce", "produce", "consume"):
                others.append(subprocess.Popen([*IDLE, sys.executable, "-c", NOISY, role, noisy], stderr=subprocess.DEVNULL))
        load = ["--partitions", "10", "--rate", "1000", "--warmup", "5s", "--window", "20s", "--linger", "0ms"]
        reported = subprocess.run(
            [bench, "--json", "run", "--build", build, "--target", f"kafka={kafka}", "--client", "raw", *load],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        figures = json.loads(reported.stdout.strip().splitlines()[-1])
        topic = subprocess.run(
            [polylogue, "--json", "topic", "describe", "noise", "--server", noisy_http],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return {
            "kind": kind,
            "publish_p50_ms": figures["publish"]["p50_ms"],
            "publish_p99_ms": figures["publish"]["p99_ms"],
            "end_to_end_p50_ms": figures["end_to_end"]["p50_ms"],
            "end_to_end_p99_ms": figures["end_to_end"]["p99_ms"],
            "noise_mib_s": round(noise_bytes(topic.stdout) / 25 / (1 << 20), 1),
        }
    finally:
        for other in others:
            other.kill()
            other.wait()
        for broker in brokers:
            broker.send_signal(signal.SIGTERM)
            broker.wait()
        shutil.rmtree(place)


def noise_bytes(described):
    """Bytes of the noisy topic, as far as there is one."""
    try:
        topic = json.loads(described)
    except ValueError:
        return 0
    return sum(partition.get("bytes") or 0 for partition in topic.get("partitions", []))


def main():
    polylogue, bench = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    build = sys.argv[4] if len(sys.argv) > 4 else "build"
    results = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind in KINDS:
            result = run(kind, polylogue, bench, build)
            print(json.dumps(result), flush=True)
            results[kind].append(result)
            time.sleep(2)
    names = [name for name in results["alone"][0] if name != "kind"]
    medians = {
        kind: {name: statistics.median(result[name] for result in of) for name in names} for kind, of in results.items()
    }
    print(json.dumps({"rounds": rounds, "cores": os.cpu_count(), "medians": medians}))


if __name__ == "__main__":
    main()
