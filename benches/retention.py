"""Disk in use with partitions of mixed retention, one of them idle.

    retention.py target/release/polylogue [PARTITIONS] [SECONDS] [MIB A SECOND]

Topics that keep their messages for a minute, two minutes, an hour, a day and a week, a fifth of the partitions each, written to at one
rate, all alike; one partition gets a message at the start and no more. Prints each 15 seconds what the data directory takes and what
is to be retained by the clock, and at the end what the first takes above 1.5 times the second, at the most: that has to be a constant.
Needs confluent-kafka.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from partitions import metrics, start, written_per_byte

KEPT_S = [60, 120, 3600, 86_400, 604_800]
MESSAGE_BYTES = 4 << 10
MIB = 1 << 20


def taken(place):
    """Bytes that the files below take on the disk."""
    total = 0
    for folder, _, names in os.walk(place):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


def main(binary, partitions="1000", seconds="360", mib="20"):
    place = tempfile.mkdtemp(dir=os.environ.get("BENCH_DIR"))
    broker, at, _ = start(binary, place)
    each = int(partitions) // len(KEPT_S)
    admin = AdminClient({"bootstrap.servers": at})
    new = [NewTopic(f"kept{s}", each, 1, config={"retention.ms": str(s * 1000)}) for s in KEPT_S]
    for created in admin.create_topics(new + [NewTopic("idle", 1, 1)]).values():
        created.result(60)
    producer = Producer({"bootstrap.servers": at, "linger.ms": 20, "queue.buffering.max.messages": 200_000})
    producer.produce("idle", b"one")
    value = os.urandom(MESSAGE_BYTES)
    rate = int(mib) * MIB // MESSAGE_BYTES
    began = reported = time.monotonic()
    sent, log, above = 0, [], 0
    while (now := time.monotonic()) - began < int(seconds):
        while sent < (now - began) * rate:
            kept = KEPT_S[sent % len(KEPT_S)]
            producer.produce(f"kept{kept}", value, partition=sent // len(KEPT_S) % each)
            sent += 1
            producer.poll(0)
        producer.poll(0.01)
        log.append((now, sent))
        if now - reported >= 15:
            reported = now
            retained = 0
            for kept in KEPT_S:
                before = max((count for at_s, count in log if at_s <= now - kept), default=0)
                retained += (sent - before) // len(KEPT_S) * MESSAGE_BYTES
            disk = taken(place)
            above = max(above, disk - 1.5 * retained)
            line = {"bench": "retention", "at_s": round(now - began), "disk_mib": disk // MIB, "retained_mib": retained // MIB}
            print(json.dumps(line), flush=True)
    producer.flush()
    line = {"bench": "retention", "partitions": int(partitions), "seconds": int(seconds), "mib_per_s": int(mib)}
    line |= {"above_1_5_times_mib_max": round(above / MIB), "written_per_byte": written_per_byte(broker)}
    print(json.dumps({**line, "segments": int(metrics(broker)["store_segments"])}), flush=True)
    broker.send_signal(signal.SIGTERM)
    broker.wait(60)
    shutil.rmtree(place)


if __name__ == "__main__":
    main(*sys.argv[1:])
