"""The client cases with confluent-kafka (librdkafka). See ../README.md."""

import sys
import threading
import time
import traceback
import uuid

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_S = 60
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class Cluster:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def topic(self, partitions=1, config=None):
        name = f"py-{uuid.uuid4()}"
        new = NewTopic(name, partitions, 1, config=config or {})
        self.admin.create_topics([new])[name].result(WAIT_S)
        return name

    def producer(self, **settings):
        return Producer({"bootstrap.servers": self.bootstrap, **{k.replace("_", "."): v for k, v in settings.items()}})

    def consumer(self, group=None, **settings):
        base = {
            "bootstrap.servers": self.bootstrap,
            "group.id": group or f"g-{uuid.uuid4()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        return Consumer({**base, **{k.replace("_", "."): v for k, v in settings.items()}})

    def send(self, topic, messages, **settings):
        """Produces (key, value) pairs and returns the delivered messages."""
        delivered, failed = [], []

        def report(error, message):
            (failed if error else delivered).append(error or message)

        producer = self.producer(**settings)
        for key, value in messages:
            producer.produce(topic, value, key, on_delivery=report)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0, "not everything was delivered"
        assert not failed, failed[0]
        return delivered

    def read(self, topic, count, partitions=1, offset=OFFSET_BEGINNING):
        """Reads `count` messages without a group."""
        consumer = self.consumer()
        consumer.assign([TopicPartition(topic, p, offset) for p in range(partitions)])
        try:
            return take(consumer, count)
        finally:
            consumer.close()


def take(consumer, count, wait_s=WAIT_S):
    messages, end = [], time.monotonic() + wait_s
    while len(messages) < count:
        assert time.monotonic() < end, f"only {len(messages)} of {count} messages came"
        for message in consumer.consume(count - len(messages), 0.5):
            if message.error():
                raise KafkaException(message.error())
            messages.append(message)
    return messages


def numbered(count, size=0):
    return [(f"k{i}".encode(), f"v{i}".encode().ljust(size, b".")) for i in range(count)]


@case
def smoke(cluster):
    topic = cluster.topic()
    cluster.send(topic, numbered(100))
    got = cluster.read(topic, 100)
    assert [(m.key(), m.value()) for m in got] == numbered(100)
    assert [m.offset() for m in got] == list(range(100))
    cluster.admin.delete_topics([topic])[topic].result(WAIT_S)
    assert topic not in cluster.admin.list_topics(timeout=WAIT_S).topics


@case
def produce_acks(cluster):
    for acks in ("0", "1", "all"):
        topic = cluster.topic()
        cluster.send(topic, numbered(50), acks=acks)
        assert [m.value() for m in cluster.read(topic, 50)] == [v for _, v in numbered(50)], acks


@case
def codecs(cluster):
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = cluster.topic()
        messages = numbered(500, 200)
        cluster.send(topic, messages, compression_type=codec, linger_ms=50)
        assert [(m.key(), m.value()) for m in cluster.read(topic, 500)] == messages, codec


@case
def headers(cluster):
    topic = cluster.topic()
    sent = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None), ("a", b"3")]
    producer = cluster.producer()
    producer.produce(topic, b"v", headers=sent)
    assert producer.flush(WAIT_S) == 0
    assert cluster.read(topic, 1)[0].headers() == sent


@case
def tombstones(cluster):
    topic = cluster.topic()
    sent = [(b"k", None), (None, b"v"), (None, None), (b"", b"")]
    cluster.send(topic, sent)
    assert [(m.key(), m.value()) for m in cluster.read(topic, 4)] == sent


@case
def large(cluster):
    topic = cluster.topic()
    value = bytes(range(256)) * 4000
    cluster.send(topic, [(None, value)], message_max_bytes=2_000_000)
    assert cluster.read(topic, 1)[0].value() == value
    errors = []
    producer = cluster.producer(message_max_bytes=5_000_000)
    producer.produce(topic, b"x" * 2_000_000, on_delivery=lambda e, _: errors.append(e))
    producer.flush(WAIT_S)
    assert errors and errors[0] and errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE, errors


@case
def idempotent(cluster):
    topic = cluster.topic(3)
    messages = numbered(5000)
    cluster.send(topic, messages, enable_idempotence=True, batch_num_messages=10)
    got = cluster.read(topic, 5000, 3)
    assert sorted(m.value() for m in got) == sorted(v for _, v in messages)
    for p in range(3):
        order = [int(m.value()[1:]) for m in got if m.partition() == p]
        assert order == sorted(order), f"partition {p} is out of order"


@case
def seek(cluster):
    topic = cluster.topic()
    cluster.send(topic, numbered(100), linger_ms=100)
    consumer = cluster.consumer()
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    take(consumer, 100)
    for offset in (0, 37, 99):
        consumer.seek(TopicPartition(topic, 0, offset))
        assert take(consumer, 1)[0].offset() == offset
    consumer.seek(TopicPartition(topic, 0, OFFSET_END))
    assert not [m for m in consumer.consume(1, 1) if not m.error()]
    cluster.send(topic, [(b"k", b"last")])
    assert take(consumer, 1)[0].value() == b"last"
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S) == (0, 101)
    consumer.close()


@case
def by_time(cluster):
    topic = cluster.topic()
    start = int(time.time() * 1000) - 100_000
    producer = cluster.producer(compression_type="gzip", linger_ms=200)
    for i in range(100):
        producer.produce(topic, f"v{i}", timestamp=start + i * 10)
    assert producer.flush(WAIT_S) == 0
    consumer = cluster.consumer()

    def at(timestamp):
        return consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], WAIT_S)[0].offset

    assert at(start) == 0
    assert at(start + 500) == 50
    assert at(start + 501) == 51
    assert at(start - 1000) == 0
    assert at(start + 1_000_000) == OFFSET_END
    consumer.close()


@case
def group(cluster):
    topic, name = cluster.topic(2), f"g-{uuid.uuid4()}"
    cluster.send(topic, numbered(100))
    first = cluster.consumer(name)
    first.subscribe([topic])
    got = take(first, 60)
    first.commit(asynchronous=False)
    positions = first.position([TopicPartition(topic, p) for p in range(2)])
    committed = first.committed([TopicPartition(topic, p) for p in range(2)], WAIT_S)
    assert {p.partition: p.offset for p in positions if p.offset >= 0} == {
        p.partition: p.offset for p in committed if p.offset >= 0
    }
    first.close()
    second = cluster.consumer(name)
    second.subscribe([topic])
    rest = take(second, 40)
    assert sorted(m.value() for m in got + rest) == sorted(v for _, v in numbered(100))
    second.close()


class Member(threading.Thread):
    """A group member that consumes until it is stopped, and notes what it was given."""

    def __init__(self, cluster, topic, name, **settings):
        super().__init__(daemon=True)
        self.consumer = cluster.consumer(name, session_timeout_ms=10_000, **settings)
        self.topic, self.seen, self.assigned, self.events = topic, [], set(), 0
        self.ended = threading.Event()
        self.changed = threading.Condition()

    def run(self):
        def on_assign(_, partitions):
            with self.changed:
                self.assigned, self.events = {p.partition for p in partitions}, self.events + 1
                self.changed.notify_all()

        def on_revoke(consumer, _):
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as e:
                if e.args[0].code() != KafkaError._NO_OFFSET:
                    raise
            with self.changed:
                self.assigned = set()

        self.consumer.subscribe([self.topic], on_assign=on_assign, on_revoke=on_revoke)
        while not self.ended.is_set():
            message = self.consumer.poll(0.1)
            if message and not message.error():
                self.seen.append(message.value())
        self.consumer.close()

    def stop(self):
        self.ended.set()
        self.join(WAIT_S)
        assert not self.is_alive(), "the member did not stop"


def until(what, check):
    end = time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.05)


@case
def rebalance(cluster):
    topic, name = cluster.topic(6), f"g-{uuid.uuid4()}"
    members = [Member(cluster, topic, name) for _ in range(3)]

    def owned(*who):
        sets = [m.assigned for m in who]
        return sum(map(len, sets)) == 6 and set().union(*sets) == set(range(6))

    members[0].start()
    until("the first member has all partitions", lambda: owned(members[0]))
    cluster.send(topic, numbered(300))
    members[1].start()
    until("two members share the partitions", lambda: owned(*members[:2]) and all(m.assigned for m in members[:2]))
    members[2].start()
    until("three members share the partitions", lambda: owned(*members) and all(m.assigned for m in members))
    cluster.send(topic, [(k, v + b"b") for k, v in numbered(300)])
    members[0].stop()
    until("the two that stay share the partitions", lambda: owned(*members[1:]))
    wanted = {v for _, v in numbered(300)} | {v + b"b" for _, v in numbered(300)}
    until("everything is consumed", lambda: {v for m in members for v in m.seen} == wanted)
    for member in members[1:]:
        member.stop()


@case
def static_member(cluster):
    topic, name = cluster.topic(4), f"g-{uuid.uuid4()}"
    a = Member(cluster, topic, name, group_instance_id="a")
    b = Member(cluster, topic, name, group_instance_id="b")
    a.start()
    b.start()
    until("both have partitions", lambda: len(a.assigned) == 2 and len(b.assigned) == 2)
    before, events = set(b.assigned), a.events
    b.stop()
    again = Member(cluster, topic, name, group_instance_id="b")
    again.start()
    until("the member is back", lambda: again.assigned == before)
    assert a.events == events, "the other member saw a rebalance"
    a.stop()
    again.stop()


@case
def consumer_protocol(cluster):
    """The consumer protocol (KIP-848): two members share, one leaves, a third goes on from what is committed."""
    topic, name = cluster.topic(4), f"g-{uuid.uuid4()}"
    members = [cluster.consumer(name, group_protocol="consumer") for _ in range(2)]
    wanted, seen = {v for _, v in numbered(200)}, []

    def owned(consumer):
        """What a member has, after a turn in which it may be given more or less, and read."""
        for message in consumer.consume(50, 0.1):
            if message.error():
                raise KafkaException(message.error())
            seen.append(message.value())
        return {p.partition for p in consumer.assignment()}

    def shared():
        a, b = (owned(member) for member in members)
        return len(a) == 2 and len(b) == 2 and a | b == set(range(4))

    for member in members:
        member.subscribe([topic])
    until("two members share the partitions", shared)
    cluster.send(topic, numbered(200))
    until("both read what they have", lambda: shared() and set(seen) == wanted)
    for member in members:
        member.commit(asynchronous=False)
    members[0].close()
    until("the other one has all partitions", lambda: owned(members[1]) == set(range(4)))
    described = cluster.admin.list_consumer_groups().result(WAIT_S).valid
    assert name in {group.group_id for group in described}, described
    members[1].close()
    cluster.send(topic, [(k, v + b"b") for k, v in numbered(20)])
    again = cluster.consumer(name, group_protocol="consumer")
    again.subscribe([topic])
    assert {m.value() for m in take(again, 20)} == {v + b"b" for _, v in numbered(20)}, "committed messages came again"
    again.close()
    assert sorted(seen) == sorted(wanted), "a message came twice"


@case
def many_partitions(cluster):
    topic = cluster.topic(100)
    messages = [(f"k{i % 250}".encode(), str(i).encode()) for i in range(5000)]
    cluster.send(topic, messages)
    last = {}
    for message in cluster.read(topic, 5000, 100):
        assert last.get(message.key(), -1) < int(message.value()), "a key is out of order"
        last[message.key()] = int(message.value())
    assert len(last) == 250


@case
def metadata(cluster):
    topic = f"py-auto-{uuid.uuid4()}"
    cluster.send(topic, [(None, b"created by being produced to")])
    assert cluster.read(topic, 1)
    listed = cluster.admin.list_topics(timeout=WAIT_S)
    assert topic in listed.topics and listed.cluster_id and len(listed.brokers) == 1
    bad = cluster.admin.create_topics([NewTopic("not a legal name!", 1, 1)])
    try:
        next(iter(bad.values())).result(WAIT_S)
        raise AssertionError("an illegal name was taken")
    except KafkaException as e:
        assert e.args[0].code() == KafkaError.TOPIC_EXCEPTION, e


def main(arguments):
    if arguments == ["--list"]:
        print("\n".join(CASES))
        return 0
    bootstrap, *names = arguments
    failed = 0
    for name in names or CASES:
        try:
            CASES[name](Cluster(bootstrap))
            print(f"ok {name}", flush=True)
        except Exception as e:
            failed += 1
            traceback.print_exc()
            print(f"FAIL {name}: {e!r}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
