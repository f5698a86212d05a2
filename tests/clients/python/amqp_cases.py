"""Cases of AMQP 0-9-1 with py-amqp alone: HOST:PORT of the amqp listener, and names of cases. See ../README.md."""

import socket
import time

import amqp
from amqp_shared import WAIT_S, Way, address, case, fresh, main, until


def connect(to=None, **settings):
    host, port = to or address()
    connection = amqp.Connection(f"{host}:{port}", userid="guest", password="guest", connect_timeout=WAIT_S, **settings)
    connection.connect()
    return connection


def ready(channel, queue):
    return channel.queue_declare(queue, passive=True).message_count


def refused(error, code, text, act):
    try:
        act()
    except error as closed:
        assert closed.reply_code == code and text in closed.reply_text, closed
        return
    raise AssertionError(f"not refused: {code} {text}")


def drain(connection, what, check):
    """Reads what comes until this holds."""
    end = time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < end, f"never happened: {what}"
        try:
            connection.drain_events(timeout=0.05)
        except socket.timeout:
            pass


@case
def smoke():
    with connect() as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).queue
        assert queue.startswith("amq.gen-"), queue
        for i in range(100):
            message = amqp.Message(b"m%d" % i, content_type="text/plain", delivery_mode=2, application_headers={"n": i})
            channel.basic_publish(message, routing_key=queue)
        got = []
        channel.basic_qos(0, 10, False)
        channel.basic_consume(queue, callback=lambda m: (got.append(m), channel.basic_ack(m.delivery_tag)))
        drain(connection, "all come", lambda: len(got) == 100)
        assert [m.body for m in got] == [f"m{i}" for i in range(100)] or [m.body for m in got] == [b"m%d" % i for i in range(100)]
        assert [m.headers["n"] for m in got] == list(range(100))
        assert got[0].properties["content_type"] == "text/plain"
        assert not any(m.delivery_info["redelivered"] for m in got)


@case
def confirms():
    with connect(confirm_publish=True) as connection:
        channel = connection.channel()
        queue = fresh("confirms")
        channel.queue_declare(queue, durable=True, auto_delete=False, arguments={"x-max-length": 3, "x-overflow": "reject-publish"})
        for _ in range(3):
            channel.basic_publish(amqp.Message(b"taken", delivery_mode=2), routing_key=queue, confirm_timeout=WAIT_S)
        try:
            channel.basic_publish(amqp.Message(b"refused"), routing_key=queue, confirm_timeout=WAIT_S)
            raise AssertionError("a full queue took a message")
        except amqp.exceptions.MessageNacked:
            pass
        assert ready(channel, queue) == 3
        assert channel.queue_delete(queue) == 3


@case
def returns():
    with connect(confirm_publish=True) as connection:
        channel = connection.channel()
        returned = []
        channel.events["basic_return"].add(lambda *what: returned.append(what))
        channel.basic_publish(amqp.Message(b"back"), routing_key="nowhere", mandatory=True)
        [(error, exchange, routing_key, message)] = returned
        assert (error.reply_code, error.reply_text) == (312, "NO_ROUTE"), error
        assert (exchange, routing_key, message.body) == ("", "nowhere", "back") or message.body == b"back"


@case
def logins():
    for method in ("PLAIN", "AMQPLAIN", None):
        with connect(login_method=method) as connection:
            assert {"PLAIN", "AMQPLAIN"} <= {name.decode() if isinstance(name, bytes) else name for name in connection.mechanisms}
            assert connection.server_properties["product"] == "RabbitMQ"
            connection.channel().close()
    host, port = address()
    for method in ("PLAIN", "AMQPLAIN"):
        wrong = amqp.Connection(f"{host}:{port}", userid="guest", password="wrong", login_method=method)
        refused(amqp.exceptions.AccessRefused, 403, f"Login was refused using authentication mechanism {method}", wrong.connect)


@case
def heartbeats():
    """With a heartbeat of a second the broker sends some while nothing else happens, and hangs up on a client that sends none."""
    with connect(heartbeat=1) as connection:
        assert connection.heartbeat == 1
        before, end = connection.bytes_recv, time.monotonic() + WAIT_S
        while connection.bytes_recv - before < 4:
            assert time.monotonic() < end, "no heartbeat came"
            connection.send_heartbeat()
            try:
                connection.drain_events(timeout=0.1)
            except socket.timeout:
                pass
    silent = connect(heartbeat=1)
    try:
        for _ in range(WAIT_S * 10):
            try:
                silent.drain_events(timeout=0.1)
            except socket.timeout:
                pass
        raise AssertionError("a connection without a word was kept")
    except (OSError, amqp.exceptions.ConnectionError):
        pass


@case
def refusals():
    with connect() as connection:
        name = fresh("q")
        connection.channel().queue_declare(name, durable=True, auto_delete=False)
        not_found = amqp.exceptions.NotFound
        refused(not_found, 404, "NOT_FOUND - no queue 'none'", lambda: connection.channel().queue_declare("none", passive=True))
        refused(not_found, 404, "NOT_FOUND - no exchange 'none'", lambda: connection.channel().exchange_declare("none", "direct", passive=True))
        again = lambda: connection.channel().queue_declare(name, durable=False, auto_delete=False)
        refused(amqp.exceptions.PreconditionFailed, 406, f"inequivalent arg 'durable' for queue '{name}' in vhost '/'", again)
        new = lambda: connection.channel().exchange_declare("amq.mine", "direct")
        refused(amqp.exceptions.AccessRefused, 403, "prefix 'amq.*'", new)
        with connect() as other:
            own = other.channel().queue_declare("", exclusive=True).queue
            locked = lambda: connection.channel().basic_get(own)
            refused(amqp.exceptions.ResourceLocked, 405, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue", locked)
        connection.channel().queue_delete(name)
    broken = connect()
    unknown = lambda: broken.channel().exchange_declare(fresh("x"), "no-such-type")
    refused(amqp.exceptions.PreconditionFailed, 406, "unknown exchange type 'no-such-type'", unknown)
    broken.close()


@case
def transactions():
    with connect() as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).queue
        channel.tx_select()
        channel.basic_publish(amqp.Message("rolled back"), routing_key=queue)
        channel.tx_rollback()
        channel.basic_publish(amqp.Message("committed"), routing_key=queue)
        assert ready(connection.channel(), queue) == 0
        channel.tx_commit()
        assert ready(channel, queue) == 1
        message = channel.basic_get(queue)
        channel.basic_ack(message.delivery_tag)
        channel.tx_rollback()
        channel.basic_recover(requeue=True)
        again = channel.basic_get(queue)
        assert again.delivery_info["redelivered"]


@case
def large():
    with connect(frame_max=4096) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).queue
        body = bytes(range(256)) * 4000
        channel.basic_publish(amqp.Message(body), routing_key=queue)
        until("it is there", lambda: ready(channel, queue) == 1)
        assert channel.basic_get(queue, no_ack=True).body == body


@case
def cancelled():
    """A consumer is cancelled when its queue is deleted."""
    with connect() as connection:
        queue = fresh("gone")
        channel = connection.channel()
        channel.queue_declare(queue, auto_delete=False)
        gone = []
        tag = channel.basic_consume(queue, callback=print, on_cancel=gone.append)
        connection.channel().queue_delete(queue)
        drain(connection, "the broker cancels", lambda: gone)
        assert gone == [tag], gone


@case
def nothing_lost():
    """What was confirmed before the way was cut is there afterwards, and what was not acknowledged comes again."""
    way = Way()
    queue = fresh("cut")
    connection = connect(way.address, confirm_publish=True)
    channel = connection.channel()
    channel.queue_declare(queue, durable=True, auto_delete=False)
    for i in range(10):
        channel.basic_publish(amqp.Message(str(i), delivery_mode=2), routing_key=queue)
    held = [channel.basic_get(queue) for _ in range(4)]
    for message in held[:2]:
        channel.basic_ack(message.delivery_tag)
    assert ready(channel, queue) == 6
    way.cut()
    with connect() as again:
        channel = again.channel()
        until("the broker sees it", lambda: ready(channel, queue) == 8)
        got = [channel.basic_get(queue, no_ack=True) for _ in range(8)]
        assert [message.body for message in got] == [str(i) for i in range(2, 10)]
        assert [message.delivery_info["redelivered"] for message in got] == [True, True] + [False] * 6
        channel.queue_delete(queue)


main(lambda function: function())
