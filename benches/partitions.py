"""Memory, open files and restart time with many partitions.

    partitions.py target/release/polylogue [PARTITIONS] [KIB IN EACH]

Creates the partitions, puts one message in each, and looks at memory and files; then KIB of data in each (idempotent producer) and the
offsets of 100 groups, a hundredth of the partitions each; kills the broker without warning while a producer goes on, starts it again
and looks at the time until it is ready. Prints what was written to the disk per byte of messages too. Needs confluent-kafka.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS_PER_TOPIC = 1000
GROUPS = 100


def start(binary, place):
    began = time.perf_counter()
    listen = ["--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0"]
    broker = subprocess.Popen([binary, "serve", "--data", f"{place}/d", *listen], stdout=subprocess.PIPE, text=True)
    ports = {}
    for line in broker.stdout:
        if " listening on " in line:
            ports[line.split()[0]] = int(line.split()[3].rsplit(":", 1)[1])
        if line.startswith("polylogue ready"):
            broker.http = f"http://127.0.0.1:{ports['http']}"
            return broker, f"127.0.0.1:{ports['kafka']}", time.perf_counter() - began
    raise SystemExit("the broker did not start")


def look(broker):
    with open(f"/proc/{broker.pid}/status") as status:
        rss = next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024
    return {"rss_mib": rss, "open_files": len(os.listdir(f"/proc/{broker.pid}/fd"))}


def metrics(broker):
    """The broker's counters and gauges without labels, by name."""
    with urllib.request.urlopen(f"{broker.http}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    rows = (line.split() for line in lines if not line.startswith("#") and "{" not in line)
    return {name.removeprefix("polylogue_"): float(value) for name, value in rows}


def written_per_byte(broker):
    """Bytes written to files, background included, per byte of messages."""
    now = metrics(broker)
    names = ("journal_bytes_total", "journal_prewritten_bytes_total", "store_merged_bytes_total")
    return round(sum(now[name] for name in names) / now["journal_payload_bytes_total"], 2)


def commit(at, topics):
    all_partitions = [TopicPartition(topic, partition, 1) for topic in topics for partition in range(PARTITIONS_PER_TOPIC)]
    for group in range(GROUPS):
        consumer = Consumer({"bootstrap.servers": at, "group.id": f"g{group}"})
        consumer.commit(offsets=all_partitions[group::GROUPS], asynchronous=False)
        consumer.close()


def go_on(at, topics, stop):
    """Load under which the broker is killed; its outcome is not checked here."""
    producer = Producer({"bootstrap.servers": at, "enable.idempotence": True, "message.timeout.ms": 5000})
    while not stop.is_set():
        for topic in topics:
            producer.produce(topic, b"more")
        producer.poll(0.001)


def write(at, topics, value, times):
    failed = []
    producer = Producer({"bootstrap.servers": at, "enable.idempotence": True, "queue.buffering.max.messages": 200_000, "linger.ms": 50})
    for _ in range(times):
        for topic in topics:
            for partition in range(PARTITIONS_PER_TOPIC):
                producer.produce(topic, value, partition=partition, on_delivery=lambda e, _: failed.append(e) if e else None)
            # What librdkafka holds at a time has a bound.
            producer.flush()
    assert not failed, failed[0]


def main(binary, partitions="10000", kib="64"):
    place = tempfile.mkdtemp(dir=os.environ.get("BENCH_DIR"))
    broker, at, _ = start(binary, place)
    topics = [f"t{i}" for i in range(int(partitions) // PARTITIONS_PER_TOPIC)]
    admin = AdminClient({"bootstrap.servers": at})
    for created in admin.create_topics([NewTopic(t, PARTITIONS_PER_TOPIC, 1) for t in topics]).values():
        created.result(60)
    write(at, topics, b"one", 1)
    time.sleep(1)
    print(json.dumps({"bench": "partitions", "state": "a message in each", "partitions": int(partitions), **look(broker)}), flush=True)
    # Few large messages: with very many small ones librdkafka itself, which looks at all partitions again and again, takes minutes.
    each_kib = min(int(kib), 256)
    write(at, topics, os.urandom(each_kib << 10), int(kib) // each_kib)
    commit(at, topics)
    loaded, per_byte = look(broker), written_per_byte(broker)
    stop = threading.Event()
    load = threading.Thread(target=go_on, args=(at, topics, stop))
    load.start()
    time.sleep(2)
    broker.send_signal(signal.SIGKILL)
    broker.wait()
    stop.set()
    load.join()
    broker, _, ready_s = start(binary, place)
    line = {"bench": "partitions", "state": f"{kib} KiB in each", "partitions": int(partitions), "loaded_rss_mib": loaded["rss_mib"]}
    line |= {"loaded_open_files": loaded["open_files"], "written_per_byte": per_byte}
    print(json.dumps({**line, "restart_after_kill_s": round(ready_s, 2), **look(broker)}), flush=True)
    broker.send_signal(signal.SIGTERM)
    broker.wait(60)
    shutil.rmtree(place)


if __name__ == "__main__":
    main(*sys.argv[1:])
