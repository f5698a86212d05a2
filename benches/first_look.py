"""A first look at polylogue beside Apache Kafka 4.3.1: Kafka's own perf tools against both, in turns, on this machine.

    first_look.py target/release/polylogue [MILLIONS OF RECORDS] [ROUNDS]

Each round: both brokers in turn, on an empty directory, one topic; ProducerPerformance (acks=all, 1 KiB records from a file,
batch.size 1 MB, linger.ms 10) and ConsumerPerformance. Prints a JSON line a run: rate, and the broker's CPU (user and system, of
/proc/PID/stat) per million records. Durability: polylogue acknowledges after fdatasync; Kafka, as it comes, after the page
cache. Needs a JDK and Maven.
"""

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIB = os.path.join(HERE, "..", "build", "kafka-beside")
TICKS = os.sysconf("SC_CLK_TCK")


def java(*arguments, heap="512m"):
    return ["java", f"-Xmx{heap}", "-cp", f"{LIB}/*", *arguments]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024


def answers(port):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit("the broker does not answer")


def start_kafka(place, port):
    config = f"{place}/kafka.properties"
    controller = free_port()
    with open(config, "w") as out:
        out.write(
            f"process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
            f"controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:{controller}\n"
            f"log.dirs={place}/data\noffsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n"
            "transaction.state.log.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n"
        )
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    uuid = subprocess.run(java("kafka.tools.StorageTool", "random-uuid"), capture_output=True, text=True).stdout.strip()
    format_ = java("kafka.tools.StorageTool", "format", "-t", uuid, "-c", config, "--standalone")
    subprocess.run(format_, check=True, **quiet)
    return subprocess.Popen(java("kafka.Kafka", config, heap="1g"), **quiet)


def start_polylogue(binary, place, port):
    listen = ["--listen", f"kafka=127.0.0.1:{port}", "--listen", "http=127.0.0.1:0"]
    quick = ["--set", "kafka.group.initial.rebalance.delay.ms=0"]
    command = [binary, "serve", "--data", f"{place}/data", *listen, *quick]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def perf(kind, port, records, payload):
    at = f"127.0.0.1:{port}"
    if kind == "produce":
        settings = ["acks=all", "batch.size=1000000", "linger.ms=10", f"bootstrap.servers={at}"]
        command = java(
            "org.apache.kafka.tools.ProducerPerformance", "--topic", "look", "--num-records", str(records), "--throughput", "-1",
            "--payload-file", payload, "--producer-props", *settings,
        )
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return float(re.findall(r"([\d.]+) records/sec", text)[-1])
    command = java(
        "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", at, "--topic", "look", "--messages", str(records),
        "--timeout", "60000",
    )
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    row = text.strip().splitlines()[-1].split(",")
    return float(row[-1])


def one_run(name, binary, partitions, records, payload):
    place, port = tempfile.mkdtemp(), free_port()
    broker = start_kafka(place, port) if name == "kafka" else start_polylogue(binary, place, port)
    try:
        answers(port)
        create = java(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"127.0.0.1:{port}", "--create", "--topic", "look",
            "--partitions", str(partitions),
        )
        subprocess.run(create, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        perf("produce", port, records // 10, payload)  # warms client and broker
        for kind in ("produce", "consume"):
            before = cpu_s(broker.pid)
            rate = perf(kind, port, records, payload)
            spent = (cpu_s(broker.pid) - before) / (records / 1e6)
            line = {"bench": "first_look", "broker": name, "what": kind, "partitions": partitions, "records": records}
            line |= {"records_per_s": round(rate), "broker_cpu_s_per_million": round(spent, 2), "rss_mib": rss_mib(broker.pid)}
            print(json.dumps(line), flush=True)
    finally:
        broker.send_signal(signal.SIGTERM)
        broker.wait(60)
        shutil.rmtree(place)


def main(binary, millions="1", rounds="2"):
    if not os.path.isdir(LIB):
        pom = os.path.join(HERE, "pom.xml")
        subprocess.run(["mvn", "-q", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={LIB}"], check=True)
    records = int(float(millions) * 1e6)
    random.seed(1)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as payload:
        letters = "abcdefghijklmnopqrstuvwxyz0123456789"
        payload.writelines("".join(random.choices(letters, k=1024)) + "\n" for _ in range(2000))
        payload.flush()
        for _ in range(int(rounds)):
            for partitions in (1, 100):
                for name in ("polylogue", "kafka"):
                    one_run(name, os.path.abspath(binary), partitions, records, payload.name)


if __name__ == "__main__":
    main(*sys.argv[1:])
