"""The client cases over an adapter of a client library; aiokafka and kafka-python have one each. See ../README.md.

An adapter is a class with TOO_LARGE, BAD_NAME (the exceptions of that client), NOT_OFFERED (see ../README.md), and

    create(topic, partitions)   delete(topic)   topics() -> names   cluster() -> (cluster id, number of brokers)
    send(topic, records, **settings)            settings: acks, codec, idempotent, linger_ms, batch_bytes, max_bytes
    reader(topic, partitions) -> Reader         from the beginning, without a group
    grouped(topic, group, listener, instance)   -> Reader of a member; no automatic commit without a listener

A Reader has poll(most) -> records, seek(offset), seek_to_end(), bounds() -> (first, next), at(timestamp) -> offset or None
(all of partition 0), commit(), and close().
"""

import threading
import time
import traceback
import uuid
from collections import namedtuple

WAIT_S = 60
CASES = {}

Record = namedtuple("Record", "key value headers timestamp", defaults=(None, None, (), None))


def case(function):
    CASES[function.__name__] = function
    return function


def fresh(prefix):
    return f"{prefix}-{uuid.uuid4()}"


def new_topic(client, partitions=1):
    name = fresh("py")
    client.create(name, partitions)
    return name


def until(what, check):
    end = time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.05)


def take(reader, count):
    records, end = [], time.monotonic() + WAIT_S
    while len(records) < count:
        assert time.monotonic() < end, f"only {len(records)} of {count} messages came"
        records += reader.poll(count - len(records))
    return records


def read(client, topic, count, partitions=1):
    reader = client.reader(topic, partitions)
    try:
        return take(reader, count)
    finally:
        reader.close()


def numbered(count, size=0):
    return [Record(f"k{i}".encode(), f"v{i}".encode().ljust(size, b".")) for i in range(count)]


def pairs(records):
    return [(r.key, r.value) for r in records]


def values(records):
    return {r.value for r in records}


@case
def smoke(client):
    topic = new_topic(client)
    client.send(topic, numbered(100))
    got = read(client, topic, 100)
    assert pairs(got) == pairs(numbered(100))
    assert [r.offset for r in got] == list(range(100))
    client.delete(topic)
    assert topic not in client.topics()


@case
def produce_acks(client):
    for acks in (0, 1, "all"):
        topic = new_topic(client)
        client.send(topic, numbered(50), acks=acks)
        assert pairs(read(client, topic, 50)) == pairs(numbered(50)), acks


@case
def codecs(client):
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        topic = new_topic(client)
        client.send(topic, numbered(500, 200), codec=codec, linger_ms=50)
        assert pairs(read(client, topic, 500)) == pairs(numbered(500, 200)), codec


@case
def headers(client):
    topic = new_topic(client)
    sent = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None), ("a", b"3")]
    if "headers/null" in client.NOT_OFFERED:
        sent = [h for h in sent if h[1] is not None]
    client.send(topic, [Record(None, b"v", sent)])
    assert list(read(client, topic, 1)[0].headers) == sent


@case
def tombstones(client):
    topic = new_topic(client)
    sent = [Record(b"k", None), Record(None, b"v"), Record(b"", b"")]
    client.send(topic, sent)
    assert pairs(read(client, topic, 3)) == pairs(sent)


@case
def large(client):
    topic = new_topic(client)
    value = bytes(range(256)) * 4000
    client.send(topic, [Record(None, value)], max_bytes=2_000_000)
    assert read(client, topic, 1)[0].value == value
    try:
        client.send(topic, [Record(None, b"x" * 2_000_000)], max_bytes=5_000_000)
    except client.TOO_LARGE:
        return
    raise AssertionError("a message above the bound was taken")


@case
def idempotent(client):
    topic = new_topic(client, 3)
    sent = numbered(5000)
    client.send(topic, sent, idempotent=True, acks="all", batch_bytes=512)
    got = read(client, topic, 5000, 3)
    assert sorted(r.value for r in got) == sorted(r.value for r in sent)
    for p in range(3):
        order = [int(r.value[1:]) for r in got if r.partition == p]
        assert order == sorted(order), f"partition {p} is out of order"


@case
def seek(client):
    topic = new_topic(client)
    client.send(topic, numbered(100), linger_ms=100)
    reader = client.reader(topic, 1)
    take(reader, 100)
    for offset in (0, 37, 99):
        reader.seek(offset)
        assert take(reader, 1)[0].offset == offset
    reader.seek_to_end()
    assert not reader.poll(1)
    client.send(topic, [Record(b"k", b"last")])
    assert take(reader, 1)[0].value == b"last"
    assert reader.bounds() == (0, 101)
    reader.close()


@case
def by_time(client):
    topic = new_topic(client)
    start = int(time.time() * 1000) - 100_000
    sent = [Record(None, b"v%d" % i, (), start + i * 10) for i in range(100)]
    client.send(topic, sent, codec="gzip", linger_ms=200)
    reader = client.reader(topic, 1)
    for after, offset in ((0, 0), (500, 50), (501, 51), (-1000, 0), (990, 99), (1_000_000, None)):
        assert reader.at(start + after) == offset, f"{after} ms: {reader.at(start + after)}"
    reader.close()


@case
def group(client):
    topic, name = new_topic(client, 2), fresh("g")
    client.send(topic, numbered(100))
    first = client.grouped(topic, name)
    got = take(first, 60)
    first.commit()
    first.close()
    second = client.grouped(topic, name)
    got += take(second, 40)
    second.close()
    assert sorted(r.value for r in got) == sorted(r.value for r in numbered(100))


class Member(threading.Thread):
    """A group member that consumes until it is stopped, and notes what it was given."""

    def __init__(self, client, topic, name, instance=None):
        super().__init__(daemon=True)
        self.seen, self.assigned, self.events, self.failure = set(), frozenset(), 0, None
        self.ended = threading.Event()
        self.join_group = lambda: client.grouped(topic, name, self, instance)

    def run(self):
        try:
            reader = self.join_group()
            while not self.ended.is_set():
                self.seen |= values(reader.poll(500))
            reader.close()
        except Exception as e:  # noqa: BLE001: reported when the member is joined
            self.failure = e

    def given(self, partitions):
        self.assigned, self.events = frozenset(partitions), self.events + 1

    def taken(self):
        self.assigned = frozenset()

    def stop(self):
        self.ended.set()
        self.join(WAIT_S)
        assert not self.is_alive(), "the member did not stop"
        if self.failure:
            raise self.failure


def shared_by(count, *members):
    def check():
        for m in members:
            if m.failure:
                raise m.failure
        sets = [m.assigned for m in members]
        return all(sets) and sum(map(len, sets)) == count and frozenset().union(*sets) == set(range(count))

    return check


@case
def rebalance(client):
    topic, name = new_topic(client, 6), fresh("g")
    a, b, c = (Member(client, topic, name) for _ in range(3))
    a.start()
    until("the first member has all partitions", shared_by(6, a))
    client.send(topic, numbered(300))
    b.start()
    until("two members share the partitions", shared_by(6, a, b))
    c.start()
    until("three members share the partitions", shared_by(6, a, b, c))
    more = [r._replace(value=r.value + b"b") for r in numbered(300)]
    client.send(topic, more)
    a.stop()
    until("the two that stay share the partitions", shared_by(6, b, c))
    wanted = values(numbered(300)) | values(more)
    until("everything is consumed", lambda: a.seen | b.seen | c.seen == wanted)
    b.stop()
    c.stop()


@case
def static_member(client):
    topic, name = new_topic(client, 4), fresh("g")
    a, b, again = (Member(client, topic, name, instance) for instance in "abb")
    a.start()
    b.start()
    until("both have partitions", shared_by(4, a, b))
    before, events = b.assigned, a.events
    b.stop()
    again.start()
    until("the member is back", lambda: again.assigned == before)
    assert a.events == events, "the other member saw a rebalance"
    a.stop()
    again.stop()


@case
def many_partitions(client):
    topic = new_topic(client, 100)
    client.send(topic, [Record(b"k%d" % (i % 250), b"%d" % i) for i in range(5000)])
    last = {}
    for record in read(client, topic, 5000, 100):
        assert last.get(record.key, -1) < int(record.value), "a key is out of order"
        last[record.key] = int(record.value)
    assert len(last) == 250


@case
def metadata(client):
    topic = fresh("py-auto")
    client.send(topic, [Record(None, b"created by being produced to")])
    assert read(client, topic, 1)
    assert topic in client.topics()
    cluster_id, brokers = client.cluster()
    assert cluster_id and brokers == 1, (cluster_id, brokers)
    try:
        client.create("not a legal name!", 1)
    except client.BAD_NAME:
        return
    raise AssertionError("an illegal name was taken")


def main(adapter, arguments):
    if arguments == ["--list"]:
        print("\n".join(CASES))
        return 0
    bootstrap, *names = arguments
    for what, why in adapter.NOT_OFFERED.items():
        print(f"not offered {what}: {why}", flush=True)
    client = adapter(bootstrap)
    failed = 0
    for name in names or [name for name in CASES if name not in adapter.NOT_OFFERED]:
        try:
            CASES[name](client)
            print(f"ok {name}", flush=True)
        except Exception as e:  # noqa: BLE001: the next case runs all the same
            failed += 1
            traceback.print_exc()
            print(f"FAIL {name}: {e!r}", flush=True)
    client.close()
    return 1 if failed else 0
