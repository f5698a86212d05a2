"""Memory, open files and restart time with many partitions.

    partitions.py target/release/polylogue [PARTITIONS] [KIB IN EACH]

Creates the partitions, puts one message in each, and looks at memory and files; then KIB of data in each (idempotent producer),
kills the broker without warning, starts it again and looks at the time until it is ready. Needs confluent-kafka.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS_PER_TOPIC = 1000


def start(binary, place):
    began = time.perf_counter()
    listen = ["--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0"]
    broker = subprocess.Popen([binary, "serve", "--data", f"{place}/d", *listen], stdout=subprocess.PIPE, text=True)
    port = None
    for line in broker.stdout:
        if line.startswith("kafka listening on "):
            port = int(line.split()[3].rsplit(":", 1)[1])
        if line.startswith("polylogue ready"):
            return broker, f"127.0.0.1:{port}", time.perf_counter() - began
    raise SystemExit("the broker did not start")


def look(broker):
    with open(f"/proc/{broker.pid}/status") as status:
        rss = next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024
    return {"rss_mib": rss, "open_files": len(os.listdir(f"/proc/{broker.pid}/fd"))}


def write(at, topics, value, times):
    failed = []
    producer = Producer({"bootstrap.servers": at, "enable.idempotence": True, "queue.buffering.max.messages": 200_000, "linger.ms": 50})
    for _ in range(times):
        for topic in topics:
            for partition in range(PARTITIONS_PER_TOPIC):
                producer.produce(topic, value, partition=partition, on_delivery=lambda e, _: failed.append(e) if e else None)
            producer.poll(0)
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
    write(at, topics, os.urandom(16 << 10), int(kib) // 16)
    loaded = look(broker)
    broker.send_signal(signal.SIGKILL)
    broker.wait()
    broker, _, ready_s = start(binary, place)
    line = {"bench": "partitions", "state": f"{kib} KiB in each", "partitions": int(partitions), "loaded_rss_mib": loaded["rss_mib"]}
    print(json.dumps({**line, "restart_after_kill_s": round(ready_s, 2), **look(broker)}), flush=True)
    broker.send_signal(signal.SIGTERM)
    broker.wait(60)
    shutil.rmtree(place)


if __name__ == "__main__":
    main(*sys.argv[1:])
