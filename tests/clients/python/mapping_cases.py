"""Queues read as topics, with pika and confluent-kafka: KAFKA,AMQP (HOST:PORT each), and names of cases. See ../README.md."""

import sys
import time
import uuid

import pika
from amqp_shared import WAIT_S, case, fresh, main, until
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

KAFKA, AMQP = (sys.argv[1] + ",").split(",")[:2]


def connect():
    host, port = AMQP.rsplit(":", 1)
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))


def declare(channel, arguments=None, name=None):
    """A durable queue, and its topic."""
    queue = name or fresh("mapped")
    channel.queue_declare(queue, durable=True, arguments=arguments or {})
    return queue, "amqp-queue." + queue.replace("_", "__")


def publish(channel, queue, bodies, **properties):
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2, **properties))


def ready(channel, queue):
    return channel.queue_declare(queue, passive=True).method.message_count


def consumer(group=None, **settings):
    base = {
        "bootstrap.servers": KAFKA,
        "group.id": group or fresh("g"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    return Consumer({**base, **{k.replace("_", "."): v for k, v in settings.items()}})


def poll(reader, count):
    messages, end = [], time.monotonic() + WAIT_S
    while len(messages) < count:
        assert time.monotonic() < end, f"only {len(messages)} of {count} messages came"
        message = reader.poll(0.5)
        if message is not None:
            assert not message.error(), message.error()
            messages.append(message)
    return messages


def read(topic, count, offset=OFFSET_BEGINNING, **settings):
    reader = consumer(**settings)
    reader.assign([TopicPartition(topic, 0, offset)])
    try:
        return poll(reader, count)
    finally:
        reader.close()


def bounds(topic):
    reader = consumer()
    try:
        return reader.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S)
    finally:
        reader.close()


def values(messages):
    return [(message.offset(), message.value()) for message in messages]


def get(channel, queue):
    method, _, body = channel.basic_get(queue)
    assert method is not None, "no message"
    return method.delivery_tag, body


@case
def read_a_queue(channel):
    queue, topic = declare(channel)
    exchange = fresh("exchange")
    channel.exchange_declare(exchange, "topic")
    channel.queue_bind(queue, exchange, "orders.#")
    before_ms = int(time.time() * 1000)
    properties = pika.BasicProperties(
        content_type="text/plain",
        delivery_mode=2,
        priority=3,
        correlation_id="c-1",
        timestamp=99,
        headers={"text": "v", "number": -5, "yes": True, "none": None, "list": [1, "two"], "table": {"k": "v"}},
    )
    channel.basic_publish(exchange, "orders.eu", b"hello", properties)
    publish(channel, queue, [b"m%d" % i for i in range(1, 20)])
    first, *rest = read(topic, 20)
    assert (first.offset(), first.key(), first.value()) == (0, b"orders.eu", b"hello")
    assert first.headers() == [
        ("amqp.exchange", exchange.encode()),
        ("amqp.content-type", b"text/plain"),
        ("amqp.correlation-id", b"c-1"),
        ("amqp.delivery-mode", b"2"),
        ("amqp.priority", b"3"),
        ("amqp.timestamp", b"99"),
        ("text", b"v"),
        ("number", b"-5"),
        ("yes", b"true"),
        ("none", None),
        ("list", b'[1,"two"]'),
        ("table", b'{"k":"v"}'),
    ], first.headers()
    assert before_ms <= first.timestamp()[1] <= int(time.time() * 1000), first.timestamp()
    assert values(rest) == [(i, b"m%d" % i) for i in range(1, 20)]
    assert {message.key() for message in rest} == {queue.encode()}
    assert dict(rest[0].headers())["amqp.exchange"] == b""
    assert values(read(topic, 5, 15)) == [(i, b"m%d" % i) for i in range(15, 20)]
    assert bounds(topic) == (0, 20)
    reader = consumer()
    [found] = reader.offsets_for_times([TopicPartition(topic, 0, before_ms)], WAIT_S)
    assert found.offset == 0, found
    [found] = reader.offsets_for_times([TopicPartition(topic, 0, rest[-1].timestamp()[1])], WAIT_S)
    assert 0 < found.offset <= 19, found
    reader.close()
    assert ready(channel, queue) == 20, "reading it takes nothing out of it"


@case
def undisturbed(channel):
    """Offsets are publish order, whatever priority says and whatever becomes of messages."""
    queue, topic = declare(channel, {"x-max-priority": 9})
    for priority, body in ((1, b"a"), (9, b"b"), (5, b"c")):
        publish(channel, queue, [body], priority=priority)
    expected = [(0, b"a"), (1, b"b"), (2, b"c")]
    assert values(read(topic, 3)) == expected
    tag, body = get(channel, queue)
    assert body == b"b", "the highest priority first"
    channel.basic_nack(tag, requeue=True)
    assert values(read(topic, 3)) == expected
    tag, body = get(channel, queue)
    channel.basic_ack(tag)
    assert ready(channel, queue) == 2
    assert values(read(topic, 3)) == expected, "what is settled above the oldest that is not may still be read"
    for body in (b"c", b"a"):
        tag, got = get(channel, queue)
        assert got == body
        channel.basic_ack(tag)
    until("the log starts behind what is settled", lambda: bounds(topic) == (3, 3))
    channel.basic_publish("", queue, b"short", pika.BasicProperties(expiration="50"))
    publish(channel, queue, [b"next"])
    assert values(read(topic, 1, 4)) == [(4, b"next")]
    until("the first expires", lambda: bounds(topic) == (4, 5))
    tag, body = get(channel, queue)
    assert body == b"next"
    channel.basic_ack(tag)


@case
def retention(channel):
    queue, topic = declare(channel, {"x-polylogue-retention-ms": 3_600_000})
    publish(channel, queue, [b"m%d" % i for i in range(10)])
    for i in range(10):
        tag, body = get(channel, queue)
        assert body == b"m%d" % i
        channel.basic_ack(tag)
    assert ready(channel, queue) == 0
    assert values(read(topic, 10)) == [(i, b"m%d" % i) for i in range(10)]
    try:
        channel.queue_declare(fresh("q"), arguments={"x-polylogue-retention-ms": -1})
        raise AssertionError("a negative time was taken")
    except pika.exceptions.ChannelClosedByBroker as closed:
        assert closed.reply_code == 406 and "x-polylogue-retention-ms" in closed.reply_text, closed


@case
def group(channel):
    queue, topic = declare(channel)
    publish(channel, queue, [b"m%d" % i for i in range(10)])
    name = fresh("group")
    for start, count in ((0, 4), (4, 6)):
        member = consumer(name)
        member.subscribe([topic])
        got = poll(member, count)[:count]
        assert values(got) == [(i, b"m%d" % i) for i in range(start, start + count)]
        member.commit(offsets=[TopicPartition(topic, 0, start + count)], asynchronous=False)
        member.close()
    member = consumer(name)
    [committed] = member.committed([TopicPartition(topic, 0)], WAIT_S)
    assert committed.offset == 10
    channel.queue_delete(queue)
    channel.queue_declare(queue, durable=True)
    until("offsets go with their queue", lambda: member.committed([TopicPartition(topic, 0)], WAIT_S)[0].offset < 0)
    member.close()


@case
def follow(channel):
    """Consumers that wait, of one queue and of many, get what is published then."""
    queues = [declare(channel) for _ in range(20)]
    for some in (queues[:1], queues):
        reader = consumer()
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for _, topic in some])
        for turn in range(3):
            assert reader.poll(0.2) is None
            for queue, _ in some:
                publish(channel, queue, [b"%d" % turn])
            got = poll(reader, len(some))
            assert {message.topic() for message in got} == {topic for _, topic in some}
            assert {message.value() for message in got} == {b"%d" % turn}
        reader.close()
        for queue, _ in some:
            while channel.basic_get(queue, auto_ack=True)[0] is not None:
                pass
        until("the logs start anew", lambda: all(low == high for low, high in (bounds(t) for _, t in some)))


@case
def many(channel):
    """More than a fetch takes, in pieces, while half of it is consumed."""
    queue, topic = declare(channel)
    bodies = [b"%d" % i + b"." * 500 for i in range(1_000)]
    publish(channel, queue, bodies)
    until("all are there", lambda: bounds(topic) == (0, 1_000))
    small = {"max_partition_fetch_bytes": 4_096, "check_crcs": True}
    assert values(read(topic, 1_000, **small)) == list(enumerate(bodies))
    got = 0
    for method, _, body in channel.consume(queue, inactivity_timeout=WAIT_S):
        assert body == bodies[got]
        got += 1
        if got == 500:
            channel.basic_ack(method.delivery_tag, multiple=True)
            channel.cancel()
            break
    until("half of it is gone", lambda: bounds(topic) == (500, 1_000))
    assert values(read(topic, 500)) == list(enumerate(bodies))[500:]


def fails(code, futures):
    for future in futures.values():
        try:
            future.result(WAIT_S)
        except KafkaException as e:
            assert e.args[0].code() == code, e
            continue
        raise AssertionError(f"not refused: {list(futures)}")


@case
def refused(channel):
    queue, topic = declare(channel)
    failed = []
    producer = Producer({"bootstrap.servers": KAFKA})
    producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(WAIT_S) == 0
    assert [error.code() for error in failed] == [KafkaError.TOPIC_EXCEPTION], failed
    admin = AdminClient({"bootstrap.servers": KAFKA})
    fails(KafkaError.TOPIC_EXCEPTION, admin.delete_topics([topic]))
    fails(KafkaError.TOPIC_EXCEPTION, admin.create_partitions([NewPartitions(topic, 2)]))
    fails(KafkaError.TOPIC_EXCEPTION, admin.create_topics([NewTopic(f"amqp-queue.{fresh('new')}", 1, 1)]))
    fails(KafkaError.TOPIC_ALREADY_EXISTS, admin.create_topics([NewTopic(topic, 1, 1)]))
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    setting = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    fails(KafkaError.TOPIC_EXCEPTION, admin.incremental_alter_configs([setting]))
    fails(KafkaError.POLICY_VIOLATION, admin.delete_records([TopicPartition(topic, 0, -1)]))
    assert ready(channel, queue) == 0


@case
def to_topic(channel):
    """An exchange bound to a topic of Kafka: what is published is there, by key, also what came before the topic."""
    admin = AdminClient({"bootstrap.servers": KAFKA})
    topic, exchange = fresh("orders"), fresh("sales")
    queue, _ = declare(channel, {"x-polylogue-topic": topic})
    # No other queue takes messages for the topic, also while there is none.
    for take in (lambda other: other.basic_consume(queue, print), lambda other: other.basic_get(queue)):
        own = connect()
        try:
            take(own.channel())
            raise AssertionError("a second consumer was taken")
        except pika.exceptions.ChannelClosedByBroker as closed:
            assert closed.reply_code == 403, closed
        own.close()
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.queue_bind(queue, exchange, "order.#")
    early = pika.BasicProperties(delivery_mode=2, headers={"n": 0})
    channel.basic_publish(exchange, "order.early", b"early", early)
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(WAIT_S)
    for i in range(300):
        channel.basic_publish(exchange, f"order.{i % 7}", b"%d" % i)
    channel.basic_publish(exchange, "other", b"not bound")
    reader = consumer()
    reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(3)])
    got = poll(reader, 301)
    reader.close()
    by_key = {}
    for message in got:
        by_key.setdefault(message.key(), []).append(message)
    [first] = by_key.pop(b"order.early")
    assert (first.value(), dict(first.headers())["n"]) == (b"early", b"0")
    assert {len({message.partition() for message in messages}) for messages in by_key.values()} == {1}
    for k in range(7):
        key = f"order.{k}".encode()
        assert [message.value() for message in by_key[key]] == [b"%d" % i for i in range(k, 300, 7)], key
    until("the queue is empty", lambda: ready(channel, queue) == 0)
    channel.queue_delete(queue)


@case
def from_topic(channel):
    """An exchange that names a topic of Kafka: what is produced there is published to it, and nothing goes round."""
    admin = AdminClient({"bootstrap.servers": KAFKA})
    topic, exchange = fresh("orders"), fresh("sales")
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(WAIT_S)
    producer = Producer({"bootstrap.servers": KAFKA, "linger.ms": 0})
    producer.produce(topic, b"before", b"order.early")
    assert producer.flush(WAIT_S) == 0
    arguments = {"x-polylogue-topic": topic}
    channel.exchange_declare(exchange, "topic", durable=True, arguments=arguments)
    channel.exchange_declare(exchange, "topic", durable=True, arguments=arguments)
    orders, _ = declare(channel)
    channel.queue_bind(orders, exchange, "order.#")

    def taken(queue, count):
        messages, end = [], time.monotonic() + WAIT_S
        while len(messages) < count:
            assert time.monotonic() < end, f"only {len(messages)} of {count} messages came"
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                time.sleep(0.02)
                continue
            messages.append((method, properties, body))
        return messages

    headers = [("amqp.content-type", b"text/plain"), ("amqp.priority", b"3"), ("trace", b"t-1"), ("none", None)]
    for codec in ("none", "gzip", "lz4", "zstd", "snappy"):
        own = Producer({"bootstrap.servers": KAFKA, "compression.type": codec, "linger.ms": 50})
        for i in range(200):
            own.produce(topic, b"%s %d " % (codec.encode(), i) + b"." * 100, b"order.%d" % (i % 7), headers=headers)
        own.produce(topic, b"not bound", b"other")
        assert own.flush(WAIT_S) == 0
        got = taken(orders, 200)
        by_key = {}
        for method, properties, body in got:
            by_key.setdefault(method.routing_key, []).append(body)
            assert (method.exchange, properties.content_type, properties.priority) == (exchange, "text/plain", 3)
            assert properties.delivery_mode == 2 and abs(properties.timestamp - time.time()) < 2 * WAIT_S
            assert (properties.headers["trace"], properties.headers["none"]) == ("t-1", None)
            assert properties.headers["x-polylogue-topic"] == topic
            assert properties.headers["x-polylogue-partition"] in (0, 1, 2)
        for k in range(7):
            expected = [b"%s %d " % (codec.encode(), i) + b"." * 100 for i in range(k, 200, 7)]
            assert by_key[f"order.{k}"] == expected, (codec, k)
        places = [(p.headers["x-polylogue-partition"], p.headers["x-polylogue-offset"]) for _, p, _ in got]
        assert len(set(places)) == 200
    # No key, and no value: what is bound to all keys gets it.
    everything, _ = declare(channel)
    channel.queue_bind(everything, exchange, "#")
    producer.produce(topic, None)
    assert producer.flush(WAIT_S) == 0
    [(method, _, body)] = taken(everything, 1)
    assert (method.routing_key, body) == ("", b"")
    channel.queue_delete(everything)
    # Both ways: what is published goes to the topic once, and what is produced comes once.
    back, _ = declare(channel, {"x-polylogue-topic": topic})
    channel.queue_bind(back, exchange, "#")
    channel.basic_publish(exchange, "order.amqp", b"from amqp", pika.BasicProperties(delivery_mode=2))
    producer.produce(topic, b"from kafka", b"order.kafka")
    assert producer.flush(WAIT_S) == 0
    assert {body for _, _, body in taken(orders, 2)} == {b"from amqp", b"from kafka"}
    until("nothing is on its way to the topic", lambda: ready(channel, back) == 0)
    channel.basic_publish(exchange, "order.end", b"end", pika.BasicProperties(delivery_mode=2))
    producer.produce(topic, b"end too", b"order.end")
    assert producer.flush(WAIT_S) == 0
    assert {body for _, _, body in taken(orders, 2)} == {b"end", b"end too"}
    until("nothing is on its way to the topic", lambda: ready(channel, back) == 0)
    assert ready(channel, orders) == 0
    reader = consumer()
    reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(3)])
    both = [m for m in poll(reader, 1 + 5 * 201 + 1 + 4) if m.key() in (b"order.amqp", b"order.kafka", b"order.end")]
    assert sorted(m.value() for m in both) == [b"end", b"end too", b"from amqp", b"from kafka"]
    assert reader.poll(1) is None, "something went round"
    reader.close()
    for wrong in ({"x-polylogue-topic": topic + "-other"}, None):
        own = connect()
        try:
            own.channel().exchange_declare(exchange, "topic", durable=True, arguments=wrong)
            raise AssertionError("another topic was taken")
        except pika.exceptions.ChannelClosedByBroker as closed:
            assert closed.reply_code == 406 and "x-polylogue-topic" in closed.reply_text, closed
        own.close()
    channel.queue_delete(back)
    channel.exchange_delete(exchange)


@case
def read_a_stream(channel):
    """A stream is a topic at the same offsets for all readers."""
    queue, topic = declare(channel, {"x-queue-type": "stream"})
    publish(channel, queue, [b"%d" % i for i in range(5)], headers={"kind": "first"})
    expected = [(i, b"%d" % i) for i in range(5)]
    assert values(read(topic, 5)) == expected
    channel.basic_qos(prefetch_count=10)
    first = {"x-stream-offset": "first"}
    got = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=WAIT_S, arguments=first):
        assert method is not None, got
        got.append((properties.headers["x-stream-offset"], body))
        channel.basic_ack(method.delivery_tag)
        if len(got) == 5:
            break
    channel.cancel()
    assert got == expected
    publish(channel, queue, [b"5"], headers={"kind": "last"})
    again = read(topic, 6)
    assert values(again) == expected + [(5, b"5")]
    assert dict(again[5].headers())["kind"] == b"last"
    channel.queue_delete(queue)


@case
def names(channel):
    queue, topic = declare(channel, name=f"a_b.c:{uuid.uuid4()}")
    topic = topic.replace(":", "_3a")
    publish(channel, queue, [b"x"])
    assert values(read(topic, 1)) == [(0, b"x")]
    own = channel.queue_declare("", exclusive=True).method.queue
    listed = consumer().list_topics(timeout=WAIT_S).topics
    assert topic in listed and not any(own in name or name.startswith("__amqp") for name in listed), list(listed)
    long, _ = declare(channel, name="n" * 255)
    publish(channel, long, [b"long"])
    listed = consumer().list_topics(timeout=WAIT_S).topics
    [topic] = [name for name in listed if name.startswith("amqp-queue-id.")]
    assert values(read(topic, 1)) == [(0, b"long")]
    channel.queue_delete(long)


def run(function):
    connection = connect()
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        function(channel)
    finally:
        if connection.is_open:
            connection.close()


main(run)
