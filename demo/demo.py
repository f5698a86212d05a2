"""Streams a real data set through polylogue with an unmodified Kafka client (librdkafka), into two consumer groups.

The data is the table of airports of the United States that comes inside the vega_datasets package, keyed by state. One group
shares the records among three members, the other reads everything alone; both count by key. At the end the counts must agree
with the file.

    demo.py BOOTSTRAP
"""

import collections
import csv
import io
import json
import sys
import threading
import time
import uuid

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from vega_datasets import local_data

PARTITIONS = 6
SHARING_MEMBERS = 3
WAIT_S = 120


def records():
    """(state, row as JSON) of every airport."""
    table = csv.DictReader(io.StringIO(local_data.airports.raw().decode()))
    return [(row["state"] or "none", json.dumps(row)) for row in table]


class Member(threading.Thread):
    def __init__(self, bootstrap, topic, group, counts, done):
        super().__init__(daemon=True)
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
        self.topic, self.counts, self.done, self.assigned = topic, counts, done, threading.Event()

    def run(self):
        self.consumer.subscribe([self.topic], on_assign=lambda *_: self.assigned.set())
        while not self.done.is_set():
            for message in self.consumer.consume(500, 0.2):
                if not message.error():
                    self.counts[message.key().decode()] += 1
        self.consumer.close()


def bar(done, total, width=32):
    filled = width * done // max(total, 1)
    return "█" * filled + "░" * (width - filled)


def show(lines, again):
    if sys.stdout.isatty():
        if again:
            sys.stdout.write(f"\033[{len(lines)}F")
        sys.stdout.write("".join(f"\033[2K{line}\n" for line in lines))
        sys.stdout.flush()


def main(bootstrap):
    data = records()
    wanted = collections.Counter(key for key, _ in data)
    topic = f"demo-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    print(f"{len(data)} records with {len(wanted)} keys into topic {topic}, {PARTITIONS} partitions")

    done = threading.Event()
    groups = {"sharing": [collections.Counter() for _ in range(SHARING_MEMBERS)], "alone": [collections.Counter()]}
    members = [
        Member(bootstrap, topic, f"{topic}-{name}", counts, done) for name, all_counts in groups.items() for counts in all_counts
    ]
    for member in members:
        member.start()
    for member in members:
        assert member.assigned.wait(WAIT_S), "a member was given no partitions"

    delivered, failed = [0], []

    def report(error, _):
        if error:
            failed.append(error)
        else:
            delivered[0] += 1

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": "zstd"})
    started, again, sent = time.monotonic(), False, 0
    while time.monotonic() - started < WAIT_S:
        for key, value in data[sent : sent + 200]:
            producer.produce(topic, value, key, on_delivery=report)
        sent = min(sent + 200, len(data))
        producer.poll(0.02)
        if sent == len(data):
            producer.flush(WAIT_S)
        sums = {name: sum(sum(c.values()) for c in counts) for name, counts in groups.items()}
        lines = [f"  produced        {bar(delivered[0], len(data))} {delivered[0]:6}"]
        for name, count in sums.items():
            lines.append(f"  group {name:9} {bar(count, len(data))} {count:6}")
        show(lines, again)
        again = True
        if sent == len(data) and all(count >= len(data) for count in sums.values()):
            break
        time.sleep(0.05)
    time.sleep(0.5)  # anything delivered twice would come now
    done.set()
    for member in members:
        member.join(30)

    assert not failed, f"not delivered: {failed[0]}"
    for name, all_counts in groups.items():
        got = sum(all_counts, collections.Counter())
        assert got == wanted, f"group {name} counted {sum(got.values())} of {len(data)}, or other keys"
        shares = ", ".join(str(sum(counts.values())) for counts in all_counts)
        print(f"group {name}: {sum(got.values())} records with {len(got)} keys, as in the file (by member: {shares})")
    print(f"all counts agree, in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
