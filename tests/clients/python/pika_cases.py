"""Cases of AMQP 0-9-1 with pika: HOST:PORT of the amqp listener, and names of cases. See ../README.md."""

import socket
import threading
import time
from datetime import datetime, timezone
from random import Random

import pika
from amqp_shared import WAIT_S, address, case, fresh, main, until
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    NackError,
    ProbableAuthenticationError,
    UnroutableError,
)

QUIET_S = 0.5


def connect(password="guest"):
    host, port = address()
    credentials = pika.PlainCredentials("guest", password)
    return pika.BlockingConnection(pika.ConnectionParameters(host, port, "/", credentials))


def take(channel, queue, count, **settings):
    """So many messages of a queue, acknowledged."""
    got = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=WAIT_S, **settings):
        assert method is not None, f"only {len(got)} of {count} messages came"
        got.append((method, properties, body))
        channel.basic_ack(method.delivery_tag)
        if len(got) == count:
            channel.cancel()
            return got


def ready(channel, queue):
    return channel.queue_declare(queue, passive=True).method.message_count


def refused(code, text, act):
    try:
        act()
    except (ChannelClosedByBroker, ConnectionClosedByBroker) as closed:
        assert closed.reply_code == code and text in closed.reply_text, closed
        return
    raise AssertionError(f"not refused: {code} {text}")


def refused_to(code, text, act):
    """As `refused`, of what costs a connection: of its own."""
    connection = connect()
    refused(code, text, lambda: act(connection.channel()))
    if connection.is_open:
        connection.close()


@case
def work_queue(connection):
    channel = connection.channel()
    queue = fresh("work")
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    sent = [b"m%d" % i for i in range(100)]
    for i, body in enumerate(sent):
        properties = pika.BasicProperties(delivery_mode=2, headers={"n": i}, content_type="text/plain")
        channel.basic_publish("", queue, body, properties, mandatory=True)
    assert ready(channel, queue) == len(sent)
    got = take(channel, queue, len(sent))
    assert [body for _, _, body in got] == sent
    assert [properties.headers["n"] for _, properties, _ in got] == list(range(len(sent)))
    assert not any(method.redelivered for method, _, _ in got)
    channel.queue_delete(queue)
    refused(404, f"NOT_FOUND - no queue '{queue}' in vhost '/'", lambda: ready(channel, queue))


@case
def get_and_requeue(connection):
    channel = connection.channel()
    queue = fresh("get")
    channel.queue_declare(queue)
    for body in (b"first", b"second"):
        channel.basic_publish("", queue, body)
    until("the messages are there", lambda: ready(channel, queue) == 2)
    method, _, body = channel.basic_get(queue)
    assert (body, method.redelivered, method.message_count) == (b"first", False, 1)
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, body = channel.basic_get(queue)
    assert (body, method.redelivered) == (b"first", True), "it comes back to its old place"
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert channel.basic_get(queue, auto_ack=True)[2] == b"second"
    assert channel.basic_get(queue) == (None, None, None)
    refused(406, "unknown delivery tag 99", lambda: (channel.basic_ack(99), channel.queue_declare(fresh("q"))))


@case
def routing(connection):
    channel = connection.channel()
    exchange = fresh("topic")
    channel.exchange_declare(exchange, "topic")
    queues = {key: channel.queue_declare("", exclusive=True).method.queue for key in ("a.*.c", "a.#", "x")}
    for key, queue in queues.items():
        assert queue.startswith("amq.gen-"), queue
        channel.queue_bind(queue, exchange, key)
    channel.confirm_delivery()
    for key in ("a.b.c", "a.b.d", "y"):
        channel.basic_publish(exchange, key, key.encode())
    assert [ready(channel, queue) for queue in queues.values()] == [1, 2, 0]
    try:
        channel.basic_publish(exchange, "nowhere", b"back", mandatory=True)
        raise AssertionError("a message that reaches no queue did not come back")
    except UnroutableError as returned:
        assert returned.messages[0].body == b"back"
        assert returned.messages[0].method.reply_code == 312
    fanout = fresh("fanout")
    channel.exchange_declare(fanout, "fanout")
    channel.exchange_bind(exchange, fanout, "a.b.c")
    channel.exchange_bind(exchange, fanout, "")
    channel.basic_publish(fanout, "a.b.c", b"through two exchanges")
    assert ready(channel, queues["a.*.c"]) == 2


@case
def prefetch_and_redelivery(connection):
    channel = connection.channel()
    queue = fresh("prefetch")
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    for i in range(10):
        channel.basic_publish("", queue, b"%d" % i)
    got = []
    channel.basic_qos(prefetch_count=3)
    channel.basic_consume(queue, lambda _, method, __, body: got.append((method, body)))
    until("three messages come", lambda: connection.process_data_events(0.02) or len(got) == 3)
    connection.process_data_events(QUIET_S)
    assert [body for _, body in got] == [b"0", b"1", b"2"], "no more than the prefetch"
    channel.basic_ack(got[1][0].delivery_tag, multiple=True)
    until("two more come", lambda: connection.process_data_events(0.02) or len(got) == 5)
    channel.close()
    other = connection.channel()
    again = take(other, queue, 8)
    assert [body for _, _, body in again] == [b"%d" % i for i in range(2, 10)]
    assert [method.redelivered for method, _, _ in again] == [True] * 3 + [False] * 5


@case
def shared_prefetch(connection):
    """What a channel has no room for goes to others, and comes when it has."""
    channel, others = connection.channel(), connect()
    queues = [fresh("shared"), fresh("shared")]
    for queue in queues:
        channel.queue_declare(queue)
        for number in range(6):
            channel.basic_publish("", queue, str(number).encode())
    channel.basic_qos(prefetch_count=2, global_qos=True)
    got = []
    for queue in queues:
        channel.basic_consume(queue, lambda _, method, properties, body: got.append((method, body)))
    until("two come", lambda: connection.process_data_events(0.05) or len(got) == 2)
    connection.process_data_events(QUIET_S)
    assert len(got) == 2, got
    other = others.channel()
    until("the others are there for anybody", lambda: sum(ready(other, queue) for queue in queues) == 10)
    for queue in queues:
        while ready(other, queue) > 1:
            method, _, _ = other.basic_get(queue, auto_ack=True)
            assert method is None or not method.redelivered
    while sum(ready(other, queue) for queue in queues) > 0 or len(got) < 4:
        tags = [method.delivery_tag for method, _ in got]
        channel.basic_ack(max(tags), multiple=True)
        connection.process_data_events(0.05)
    assert len(got) == 4 and not any(method.redelivered for method, _ in got), got
    channel.basic_qos(prefetch_count=5, global_qos=True)
    for queue in queues:
        for number in range(6):
            channel.basic_publish("", queue, str(number).encode())
    channel.basic_ack(max(method.delivery_tag for method, _ in got), multiple=True)
    until("five more come", lambda: connection.process_data_events(0.05) or len(got) == 9)
    connection.process_data_events(QUIET_S)
    assert len(got) == 9, "as many as the later prefetch says"
    others.close()


@case
def shared_prefetch_in_order(connection):
    """Each queue's only consumer gets its messages in their order, however its channel is full and has room again."""
    channel, random = connection.channel(), Random(7)
    queues, count = [fresh("ordered") for _ in range(3)], 1_000
    got, unsettled = {queue: [] for queue in queues}, []

    def settles(tags):
        for tag in tags:
            unsettled.remove(tag)
            channel.basic_ack(tag)

    def takes(queue):
        def take_one(_, method, properties, body):
            assert not method.redelivered
            got[queue].append(int(body))
            unsettled.append(method.delivery_tag)
            settles(random.sample(unsettled, len(unsettled) * random.randrange(3) // 2))

        return take_one

    def publishes():
        publisher = connect()
        there = publisher.channel()
        for number in range(count):
            for queue in queues:
                there.basic_publish("", queue, str(number).encode())
        publisher.close()

    for queue in queues:
        channel.queue_declare(queue)
        channel.basic_consume(queue, takes(queue))
    publisher = threading.Thread(target=publishes)
    publisher.start()

    def all_came():
        channel.basic_qos(prefetch_count=random.choice([1, 2, 5, 20, 0]), global_qos=True)
        connection.process_data_events(0.05)
        settles(unsettled[:])
        return sum(map(len, got.values())) >= count * len(queues)

    until("all come", all_came)
    publisher.join()
    assert all(numbers == list(range(count)) for numbers in got.values())


@case
def survives_its_connection(connection):
    channel = connection.channel()
    queue, own = fresh("durable"), fresh("exclusive")
    channel.queue_declare(queue, durable=True)
    with_own = connect()
    with_own.channel().queue_declare(own, exclusive=True)
    refused(405, "RESOURCE_LOCKED", lambda: channel.queue_declare(own, passive=True))
    with_own.close()
    channel = connection.channel()
    refused(404, "NOT_FOUND", lambda: channel.queue_declare(own, passive=True))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    refused(406, "inequivalent arg 'durable'", lambda: channel.queue_declare(queue, durable=False))


@case
def transactions(connection):
    channel = connection.channel()
    queue = fresh("tx")
    channel.queue_declare(queue)
    channel.tx_select()
    channel.basic_publish("", queue, b"rolled back")
    channel.tx_rollback()
    channel.basic_publish("", queue, b"committed")
    channel.tx_commit()
    assert ready(channel, queue) == 1
    method, _, body = channel.basic_get(queue)
    assert body == b"committed"
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    assert ready(channel, queue) == 0


@case
def large(connection):
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    body = bytes(range(256)) * 12_000
    channel.confirm_delivery()
    channel.basic_publish("", queue, body)
    assert take(channel, queue, 1)[0][2] == body


@case
def expires(connection):
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True, arguments={"x-message-ttl": 60_000}).method.queue
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"soon", pika.BasicProperties(expiration="50"))
    channel.basic_publish("", queue, b"later")
    until("the first message expires", lambda: ready(channel, queue) == 1)
    assert channel.basic_get(queue)[2] == b"later"


def death(properties, at=0):
    return properties.headers["x-death"][at]


@case
def dead_letters(connection):
    channel = connection.channel()
    channel.confirm_delivery()
    work, grave, exchange = fresh("work"), fresh("grave"), fresh("dlx")
    channel.exchange_declare(exchange, "direct")
    channel.queue_declare(grave)
    channel.queue_bind(grave, exchange, work)
    arguments = {"x-dead-letter-exchange": exchange, "x-max-length": 2}
    channel.queue_declare(work, arguments=arguments)
    sent_at = int(time.time())
    for body in (b"dropped", b"rejected", b"expired"):
        expiration = "50" if body == b"expired" else None
        properties = pika.BasicProperties(expiration=expiration, headers={"mine": 1}, content_type="text/plain")
        channel.basic_publish("", work, body, properties)
    method, _, body = channel.basic_get(work)
    assert body == b"rejected", "the first one had to make room"
    channel.basic_reject(method.delivery_tag, requeue=False)
    got = {body: (method, properties) for method, properties, body in take(channel, grave, 3)}
    for body, reason in ((b"dropped", "maxlen"), (b"rejected", "rejected"), (b"expired", "expired")):
        method, properties = got[body]
        assert (method.exchange, method.routing_key, method.redelivered) == (exchange, work, False), method
        assert (properties.expiration, properties.content_type) == (None, "text/plain"), properties
        headers = properties.headers
        assert headers["mine"] == 1
        for which in ("first", "last"):
            named = [headers[f"x-{which}-death-{field}"] for field in ("reason", "queue", "exchange")]
            assert named == [reason, work, ""], headers
        died = death(properties)
        assert died["time"].timestamp() >= sent_at if hasattr(died["time"], "timestamp") else died["time"] >= sent_at
        del died["time"]
        expected = {"count": 1, "reason": reason, "queue": work, "exchange": "", "routing-keys": [work]}
        if reason == "expired":
            expected["original-expiration"] = "50"
        assert died == expected, died
    channel.queue_delete(work)


@case
def delivery_limit(connection):
    channel = connection.channel()
    channel.confirm_delivery()
    work, grave = fresh("poison"), fresh("grave")
    channel.queue_declare(grave, durable=True)
    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": 2,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": grave,
    }
    channel.queue_declare(work, durable=True, arguments=arguments)
    # As of RabbitMQ 4.2, which the broker says it is.
    for give_back in (channel.basic_reject, channel.basic_nack, lambda *_, **__: channel.basic_recover(requeue=True)):
        channel.basic_publish("", work, b"poison")
        for failed in range(3):
            method, properties, body = channel.basic_get(work)
            assert body == b"poison"
            assert (properties.headers or {}).get("x-delivery-count", 0) == failed, properties
            give_back(method.delivery_tag, requeue=True)
        assert channel.basic_get(work) == (None, None, None), "two redeliveries and no more"
        [(_, properties, _)] = take(channel, grave, 1)
        assert (death(properties)["reason"], death(properties)["queue"]) == ("delivery_limit", work)
        assert "x-delivery-count" not in properties.headers, "it never failed in this queue"
    for queue in (work, grave):
        channel.queue_delete(queue)


@case
def retry_later(connection):
    """A rejected message waits in a queue of its own and comes back to be tried again."""
    channel = connection.channel()
    channel.confirm_delivery()
    work, wait = fresh("work"), fresh("wait")
    channel.queue_declare(work, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait})
    back = {"x-message-ttl": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work}
    channel.queue_declare(wait, arguments=back)
    channel.basic_publish("", work, b"again", pika.BasicProperties(delivery_mode=2))
    tries = []
    for method, properties, body in channel.consume(work, inactivity_timeout=WAIT_S):
        assert body == b"again", "it never came back"
        tries.append([(d["queue"], d["reason"], d["count"]) for d in (properties.headers or {}).get("x-death", [])])
        if len(tries) == 3:
            channel.basic_ack(method.delivery_tag)
            channel.cancel()
            break
        channel.basic_nack(method.delivery_tag, requeue=False)
    deaths = [[(wait, "expired", n), (work, "rejected", n)] for n in (1, 2)]
    assert tries == [[], *deaths], tries
    for queue in (work, wait):
        channel.queue_delete(queue)


@case
def circle_ends(connection):
    """A message that no consumer rejects is dead-lettered round a cycle once and then dropped."""
    channel = connection.channel()
    channel.confirm_delivery()
    one, two, seen, exchange = fresh("one"), fresh("two"), fresh("seen"), fresh("back")
    channel.exchange_declare(exchange, "fanout")
    channel.queue_declare(seen)
    channel.queue_declare(one, arguments={"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": two})
    channel.queue_declare(two, arguments={"x-message-ttl": 1, "x-dead-letter-exchange": exchange})
    for queue in (one, seen):
        channel.queue_bind(queue, exchange)
    # `seen` gets what comes round; one that went round again would be there before the next one.
    for body in (b"first", b"second", b"third"):
        channel.basic_publish("", one, body)
        [(_, _, came)] = take(channel, seen, 1)
        assert came == body, (came, body)
    until("all queues are empty", lambda: [ready(channel, queue) for queue in (one, two, seen)] == [0, 0, 0])
    for queue in (one, two, seen):
        channel.queue_delete(queue)
    channel.exchange_delete(exchange)


@case
def dead_letters_at_least_once(connection):
    """What the next queue has no room for stays where it was until there is some."""
    channel = connection.channel()
    channel.confirm_delivery()
    work, grave = fresh("work"), fresh("small")
    channel.queue_declare(grave, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    arguments = {
        "x-queue-type": "quorum",
        "x-overflow": "reject-publish",
        "x-dead-letter-strategy": "at-least-once",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": grave,
        "x-message-ttl": 1,
    }
    channel.queue_declare(work, durable=True, arguments=arguments)
    sent = [b"%d" % i for i in range(5)]
    for body in sent:
        channel.basic_publish("", work, body)
    got = []
    while len(got) < len(sent):
        until("the next one comes", lambda: ready(channel, grave) == 1)
        got.append(channel.basic_get(grave, auto_ack=True)[2])
    assert sorted(got) == sent, got
    assert channel.basic_get(grave) == (None, None, None)
    for queue in (work, grave):
        channel.queue_delete(queue)


@case
def replies(connection):
    """Remote calls with answers that go past all queues."""
    requests = fresh("rpc")
    with_server = connect()
    server = with_server.channel()
    server.queue_declare(requests)

    def answer(channel, method, properties, body):
        channel.basic_publish("", properties.reply_to, body.upper(), pika.BasicProperties(correlation_id=properties.correlation_id))
        channel.basic_ack(method.delivery_tag)

    server.basic_consume(requests, answer)
    client = connection.channel()
    got = []
    pseudo = "amq.rabbitmq.reply-to"
    client.basic_consume(pseudo, lambda _, method, properties, body: got.append((method, properties, body)), auto_ack=True)
    for i in range(50):
        properties = pika.BasicProperties(reply_to=pseudo, correlation_id=str(i))
        client.basic_publish("", requests, b"call %d" % i, properties)
    until("all are answered", lambda: with_server.process_data_events(0.01) or connection.process_data_events(0.01) or len(got) == 50)
    assert [(properties.correlation_id, body) for _, properties, body in got] == [(str(i), b"CALL %d" % i) for i in range(50)]
    address = got[0][0].routing_key
    assert address.startswith(pseudo + ".") and got[0][0].exchange == "", got[0]
    assert server.queue_declare(address, passive=True).method.consumer_count == 1
    client.close()
    server.confirm_delivery()
    until("the address is gone", lambda: not reaches(server, address))
    refused(404, "NOT_FOUND - no queue", lambda: server.queue_declare(address, passive=True))
    client = connection.channel()
    refused(406, "fast reply consumer does not exist", lambda: (
        client.basic_publish("", requests, b"", pika.BasicProperties(reply_to=pseudo)), ready(client, requests)))
    client = connection.channel()
    refused(406, "reply consumer cannot acknowledge", lambda: client.basic_consume(pseudo, print))
    connection.channel().queue_delete(requests)
    with_server.close()


def reaches(channel, key):
    try:
        channel.basic_publish("", key, b"x", mandatory=True)
        return True
    except UnroutableError:
        return False


def is_there(connection, queue):
    channel = connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
        channel.close()
        return True
    except ChannelClosedByBroker:
        return False


@case
def queues_that_go_by_themselves(connection):
    channel = connection.channel()
    unused, used = fresh("unused"), fresh("used")
    for queue in (unused, used):
        channel.queue_declare(queue, arguments={"x-expires": 300})
    channel.basic_consume(used, print)
    end = time.monotonic() + 1
    until("the time is over", lambda: connection.process_data_events(0.02) or time.monotonic() > end)
    assert not is_there(connection, unused)
    assert is_there(connection, used), "the queue has a consumer"
    channel.close()
    end = time.monotonic() + 1
    until("the time is over", lambda: connection.process_data_events(0.02) or time.monotonic() > end)
    assert not is_there(connection, used)
    # A connection that dies without a word takes the last consumer with it.
    auto = fresh("auto")
    dying = connect()
    consumer = dying.channel()
    consumer.queue_declare(auto, auto_delete=True)
    consumer.basic_consume(auto, print)
    assert is_there(connection, auto)
    dying._impl._transport._sock.shutdown(socket.SHUT_RDWR)
    until("the queue goes with its consumer", lambda: not is_there(connection, auto))


@case
def late_acknowledgement(connection):
    channel = connection.channel()
    queue = fresh("late")
    arguments = {"x-queue-type": "quorum", "x-consumer-timeout": 500}
    channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"x")
    got = []
    channel.basic_consume(queue, lambda _, method, __, body: got.append(body))
    text = "delivery acknowledgement on channel 1 timed out. Timeout value used: 500 ms."
    refused(406, text, channel.start_consuming)
    assert got == [b"x"]
    channel = connection.channel()
    [(method, _, _)] = take(channel, queue, 1)
    assert method.redelivered
    channel.queue_delete(queue)


def stream(channel, **arguments):
    queue = fresh("stream")
    arguments = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "stream", **arguments})
    return queue


def read(connection, queue, count, prefetch=10, settle=None, shared=0, **arguments):
    """So many messages of a stream: their offsets and bodies. `shared` is a prefetch for the whole channel that comes later."""
    channel = connection.channel()
    channel.basic_qos(prefetch_count=prefetch)
    settle = settle or (lambda method: channel.basic_ack(method.delivery_tag))
    arguments = {"x-stream-" + name.replace("_", "-"): value for name, value in arguments.items()}
    got = []

    def take_one(_, method, properties, body):
        assert not method.redelivered
        got.append((properties.headers["x-stream-offset"], body))
        settle(method)

    channel.basic_consume(queue, take_one, arguments=arguments)
    if shared:
        channel.basic_qos(prefetch_count=shared, global_qos=True)
    until(f"{count} messages come", lambda: connection.process_data_events(0.02) or len(got) >= count)
    connection.process_data_events(QUIET_S)
    channel.close()
    return got


@case
def streams(connection):
    """Everybody reads all there is, from a place of his own, as often as he likes."""
    channel = connection.channel()
    channel.confirm_delivery()
    before = time.time()
    queue = stream(channel, max_age="1Y", max_length_bytes=1 << 30, stream_max_segment_size_bytes=1_000_000)
    exchange = fresh("exchange")
    channel.exchange_declare(exchange, "fanout")
    channel.queue_bind(queue, exchange)
    sent = [(i, b"m%d" % i) for i in range(50)]
    for i, body in sent:
        # A header that came with it from another stream does not survive.
        headers = {"n": i, "x-stream-offset": 1 << 40} if i % 2 else None
        properties = pika.BasicProperties(delivery_mode=2, priority=9, expiration="0", headers=headers)
        channel.basic_publish(exchange, "k", body, properties, mandatory=True)
    assert ready(channel, queue) == len(sent)
    assert read(connection, queue, 50, offset="first") == sent
    assert read(connection, queue, 50, prefetch=1, offset="first") == sent, "one after the other"
    assert read(connection, queue, 50, offset=0) == sent
    assert read(connection, queue, 10, offset=40) == sent[40:]
    assert read(connection, queue, 1, offset="last") == sent[49:]
    assert read(connection, queue, 50, offset="1h") == sent, "what came in the last hour"
    assert read(connection, queue, 50, offset=datetime.fromtimestamp(before - 5, timezone.utc)) == sent
    assert read(connection, queue, 0, offset=datetime.fromtimestamp(before + 3600, timezone.utc)) == []
    assert read(connection, queue, 0) == [], "the next one, unless an offset is given"
    assert read(connection, queue, 50, shared=5, offset="first") == sent, "whatever its channel requests later"
    never = lambda method: None
    assert read(connection, queue, 3, prefetch=3, settle=never, offset="first") == sent[:3], "no more than the prefetch"
    assert ready(channel, queue) == len(sent), "nothing went"
    # Those who wait get what comes.
    got = []
    waiting = connection.channel()
    waiting.basic_qos(prefetch_count=2)

    def rejects(_, method, properties, body):
        got.append((properties.headers["x-stream-offset"], body))
        waiting.basic_nack(method.delivery_tag, requeue=len(got) % 2 == 0)

    tag = waiting.basic_consume(queue, rejects)
    for i in range(50, 60):
        channel.basic_publish("", queue, b"m%d" % i)
    until("what is new comes", lambda: connection.process_data_events(0.02) or len(got) == 10)
    assert got == [(i, b"m%d" % i) for i in range(50, 60)], "a nack makes room, and the message does not come again"
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 1
    waiting.basic_cancel(tag)
    # A consumer is no reason to keep a stream, with RabbitMQ neither.
    waiting.basic_consume(queue, rejects)
    channel.queue_delete(queue, if_unused=True, if_empty=True)
    refused(404, "NOT_FOUND", lambda: ready(channel, queue))


@case
def stream_filters(connection):
    channel = connection.channel()
    channel.confirm_delivery()
    queue = stream(channel, stream_filter_size_bytes=32)
    values = ["de", "fr", None, "it"] * 100
    for value in values:
        headers = {"x-stream-filter-value": value} if value else {}
        channel.basic_publish("", queue, b"x", pika.BasicProperties(headers=headers))
    at = lambda *wanted: [(i, b"x") for i, value in enumerate(values) if value in wanted]
    assert read(connection, queue, 100, prefetch=1, offset="first", filter="de") == at("de")
    assert read(connection, queue, 200, offset="first", filter=["de", "it"]) == at("de", "it")
    assert read(connection, queue, 200, offset="first", filter="fr", match_unfiltered=True) == at("fr", None)
    assert read(connection, queue, 0, offset="first", filter="es") == []
    assert read(connection, queue, 400, offset="first") == [(i, b"x") for i in range(400)]
    channel.queue_delete(queue)


@case
def stream_refusals(connection):
    channel = connection.channel()
    queue = stream(channel)
    name = f"queue '{queue}' in vhost '/'"

    def consume(channel, prefetch=1, global_qos=False, auto_ack=False, **arguments):
        channel.basic_qos(prefetch_count=prefetch, global_qos=global_qos)
        if global_qos:
            channel.basic_qos(prefetch_count=1)
            channel.basic_qos(prefetch_count=prefetch, global_qos=True)
        arguments = {"x-stream-" + key: value for key, value in arguments.items()}
        channel.basic_consume(queue, lambda *_: None, auto_ack=auto_ack, arguments=arguments)

    declare = lambda **wrong: lambda channel: stream(channel, **wrong)
    other = {"durable": True, "arguments": {"x-queue-type": "stream"}}
    for code, text, act in (
        (406, f"consumer prefetch count is not set for stream {name}", lambda c: consume(c, prefetch=0)),
        (540, f"automatic acknowledgement not supported by stream {name}", lambda c: consume(c, auto_ack=True)),
        (540, f"{name} does not support global qos", lambda c: consume(c, global_qos=True)),
        (540, f"basic.get not supported by stream queues {name}", lambda c: c.basic_get(queue)),
        (540, f"queue.purge not supported by stream queues {name}", lambda c: c.queue_purge(queue)),
        (406, "{invalid_stream_offset_arg,{longstr,<<\"soon\">>}}", lambda c: consume(c, offset="soon")),
        (406, "{invalid_stream_offset_arg,{longstr,<<\"1d\">>}}", lambda c: consume(c, offset="1d")),
        (406, "invalid arg 'x-stream-filter'", lambda c: consume(c, filter=7)),
        (406, "invalid property 'non-durable'", lambda c: c.queue_declare(fresh("s"), arguments=other["arguments"])),
        (406, "invalid property 'auto-delete'", lambda c: c.queue_declare(fresh("s"), auto_delete=True, **other)),
        (406, "invalid property 'exclusive-owner'", lambda c: c.queue_declare(fresh("s"), exclusive=True, **other)),
        (406, "Cannot declare a server-named queue for type rabbit_stream_queue", lambda c: c.queue_declare("", **other)),
        (406, "invalid_max_age", declare(max_age="1w")),
        (406, "Invalid value for x-stream-filter-size-bytes", declare(stream_filter_size_bytes=15)),
        (406, "Exceeded max value for x-stream-max-segment-size-bytes", declare(stream_max_segment_size_bytes=4 << 30)),
        (406, "of queue type rabbit_stream_queue", declare(message_ttl=1000)),
        (406, "of queue type rabbit_stream_queue", declare(single_active_consumer=True)),
        (406, "inequivalent arg 'x-queue-type'", lambda c: c.queue_declare(queue, durable=True)),
    ):
        refused_to(code, text, act)
    channel.queue_delete(queue)


@case
def refused_and_dead(connection):
    channel = connection.channel()
    queue, grave = fresh("full"), fresh("grave")
    channel.queue_declare(grave, durable=True)
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish-dlx"}
    arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave}
    channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"fits")
    try:
        channel.basic_publish("", queue, b"too much", pika.BasicProperties(delivery_mode=2))
        raise AssertionError("a full queue took a message")
    except NackError:
        pass
    [(_, properties, body)] = take(channel, grave, 1)
    assert body == b"too much"
    entry = death(properties)
    assert (entry["reason"], entry["queue"], entry["count"]) == ("maxlen", queue, 1), entry
    assert ready(channel, queue) == 1
    channel.queue_delete(queue)
    channel.queue_delete(grave)


@case
def delayed(connection):
    channel = connection.channel()
    exchange, queue = fresh("delays"), fresh("delayed")
    arguments = {"x-delayed-type": "topic"}
    channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments=arguments)
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, exchange, "a.#")
    channel.confirm_delivery()
    began = time.monotonic()
    channel.basic_publish(exchange, "a.b", b"later", pika.BasicProperties(headers={"x-delay": 400}, delivery_mode=2))
    channel.basic_publish(exchange, "a", b"now", mandatory=True)
    [(_, _, first), (_, properties, second)] = take(channel, queue, 2)
    took = time.monotonic() - began
    assert (first, second, properties.headers) == (b"now", b"later", {"x-delay": -400}), (first, second, properties.headers)
    assert took >= 0.4, took
    channel.queue_delete(queue)
    channel.exchange_delete(exchange)
    wrong = {"x-delayed-type": "nonsense"}
    text = "Invalid argument, 'x-delayed-type' must be an existing exchange type"
    refused(406, text, lambda: channel.exchange_declare(fresh("x"), "x-delayed-message", arguments=wrong))


@case
def delayed_and_dead(connection):
    """What a delayed exchange kept dies in its queue when its life is over, which begins when it gets there."""
    channel = connection.channel()
    channel.confirm_delivery()
    exchange, grave = fresh("delays"), fresh("grave")
    channel.exchange_declare(exchange, "x-delayed-message", arguments={"x-delayed-type": "direct"})
    channel.queue_declare(grave)
    for ttl_ms, expiration in ((None, "200"), (200, None), (60_000, "200")):
        queue = fresh("work")
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave}
        if ttl_ms is not None:
            arguments["x-message-ttl"] = ttl_ms
        channel.queue_declare(queue, arguments=arguments)
        channel.queue_bind(queue, exchange, "key")
        sent_at, began = int(time.time()), time.monotonic()
        properties = pika.BasicProperties(headers={"x-delay": 300, "mine": 1}, expiration=expiration)
        channel.basic_publish(exchange, "key", b"x", properties)
        [(method, properties, body)] = take(channel, grave, 1)
        assert time.monotonic() - began >= 0.5, "it waits, and then it lives"
        assert (method.exchange, method.routing_key, body) == ("", grave, b"x"), method
        headers = properties.headers
        assert (properties.expiration, headers["x-delay"], headers["mine"]) == (None, -300, 1), properties
        for which in ("first", "last"):
            named = [headers[f"x-{which}-death-{field}"] for field in ("reason", "queue", "exchange")]
            assert named == ["expired", queue, exchange], headers
        [died] = headers["x-death"]
        at = died.pop("time")
        at = at.timestamp() if hasattr(at, "timestamp") else at
        assert sent_at <= at <= time.time() + 1, (sent_at, at)
        expected = {"count": 1, "reason": "expired", "queue": queue, "exchange": exchange, "routing-keys": ["key"]}
        if expiration:
            expected["original-expiration"] = expiration
        assert died == expected, died
        channel.queue_delete(queue)
    channel.queue_delete(grave)
    channel.exchange_delete(exchange)


@case
def delayed_retry(connection):
    """What failed waits longer each time; what is only handed back does not wait."""
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=1)
    for multiplier, waits in ((None, (0.2, 0.4, 0.5)), (1, (0.2, 0.2, 0.2)), (3, (0.2, 0.5, 0.5))):
        arguments = {
            "x-queue-type": "quorum",
            "x-delayed-retry-type": "failed",
            "x-delayed-retry-min": 200,
            "x-delayed-retry-max": 500,
        }
        if multiplier:
            arguments["x-delayed-retry-multiplier"] = multiplier
        queue = fresh("retried")
        channel.queue_declare(queue, durable=True, arguments=arguments)
        channel.basic_publish("", queue, b"x")

        def comes():
            for method, _, _ in channel.consume(queue, inactivity_timeout=WAIT_S):
                assert method is not None, "it does not come"
                return method.delivery_tag

        tag, since = comes(), time.monotonic()
        channel.basic_nack(tag, requeue=True)
        tag = comes()
        assert time.monotonic() - since < 0.2, "it did not fail"
        for wait in waits:
            since = time.monotonic()
            channel.basic_reject(tag, requeue=True)
            tag = comes()
            assert time.monotonic() - since >= wait - 0.005, f"{time.monotonic() - since} and not {wait}"
        channel.basic_ack(tag)
        channel.cancel()
        channel.queue_delete(queue)


@case
def wrong_password(_):
    try:
        connect("wrong").close()
    except ProbableAuthenticationError:
        return
    raise AssertionError("a wrong password was taken")


def run(function):
    connection = connect()
    try:
        function(connection)
    finally:
        if connection.is_open:
            connection.close()


main(run)
