"""Cases of AMQP 0-9-1 with aio-pika (over aiormq): HOST:PORT of the amqp listener, and names of cases. See ../README.md."""

import asyncio

import aio_pika
from aio_pika import DeliveryMode, ExchangeType, Message
from aio_pika.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed, MessageProcessError, PublishError
from aio_pika.patterns import RPC, Master
from amqp_shared import WAIT_S, Way, address, case, fresh, main


async def connect(to=None, robust=False, **settings):
    host, port = to or address()
    of = aio_pika.connect_robust if robust else aio_pika.connect
    return await of(host=host, port=port, login="guest", password="guest", **settings)


async def until(what, check):
    end = asyncio.get_running_loop().time() + WAIT_S
    while not await check():
        assert asyncio.get_running_loop().time() < end, f"never happened: {what}"
        await asyncio.sleep(0.02)


async def ready(channel, queue):
    return (await channel.declare_queue(queue, passive=True)).declaration_result.message_count


async def take(queue, count):
    """So many messages, acknowledged."""
    got = []
    async with queue.iterator(timeout=WAIT_S) as messages:
        async for message in messages:
            await message.ack()
            got.append(message)
            if len(got) == count:
                return got


async def refused(error, text, act):
    try:
        await act
    except error as closed:
        assert text in str(closed), closed
        return
    raise AssertionError(f"not refused: {text}")


@case
async def smoke():
    async with await connect() as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("", exclusive=True)
        sent = [b"m%d" % i for i in range(100)]
        send = channel.default_exchange.publish
        await asyncio.gather(
            *(send(Message(b, headers={"n": i}, delivery_mode=DeliveryMode.PERSISTENT), queue.name) for i, b in enumerate(sent))
        )
        got = await take(queue, len(sent))
        assert [message.body for message in got] == sent
        assert [message.headers["n"] for message in got] == list(range(len(sent)))
        assert not any(message.redelivered for message in got)


@case
async def topics():
    async with await connect() as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(fresh("topic"), ExchangeType.TOPIC, auto_delete=True)
        queues = {}
        for key in ("orders.*.paid", "orders.#", "#", "users.*"):
            queues[key] = await channel.declare_queue(exclusive=True)
            await queues[key].bind(exchange, key)
        for key in ("orders.eu.paid", "orders", "users.x.y"):
            await exchange.publish(Message(key.encode()), key)
        found = {key: [m.body.decode() for m in await take(queue, n)] for (key, queue), n in zip(queues.items(), (1, 2, 3))}
        assert found["orders.*.paid"] == ["orders.eu.paid"]
        assert found["orders.#"] == ["orders.eu.paid", "orders"]
        assert len(found["#"]) == 3 and await ready(channel, queues["users.*"].name) == 0
        await queues["#"].unbind(exchange, "#")
        channel = await connection.channel(on_return_raises=True)
        exchange = await channel.get_exchange(exchange.name)
        await refused(PublishError, "312", exchange.publish(Message(b"back"), "nowhere"))


@case
async def prefetch():
    async with await connect() as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(fresh("prefetch"), durable=True)
        for i in range(10):
            await channel.default_exchange.publish(Message(b"%d" % i), queue.name)
        await channel.set_qos(prefetch_count=3)
        got = []
        tag = await queue.consume(lambda message: keep(got, message))
        await until("three come", lambda: reached(got, 3))
        assert await ready(channel, queue.name) == 7
        await got[2].ack(multiple=True)
        await until("three more come", lambda: reached(got, 6))
        assert await ready(channel, queue.name) == 4
        await queue.cancel(tag)
        for message in got[3:]:
            await message.nack(requeue=True)
        again = await take(queue, 7)
        assert [message.body for message in again] == [b"%d" % i for i in range(3, 10)]
        assert [message.redelivered for message in again] == [True] * 3 + [False] * 4
        await queue.delete()


async def keep(got, message):
    got.append(message)


async def reached(got, count):
    assert len(got) <= count, f"{len(got)} came where {count} may: {got}"
    return len(got) == count


@case
async def transactions():
    async with await connect() as connection:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue("", exclusive=True)
        async with channel.transaction():
            await channel.default_exchange.publish(Message(b"committed"), queue.name)
        try:
            async with channel.transaction():
                await channel.default_exchange.publish(Message(b"rolled back"), queue.name)
                raise KeyError("on purpose")
        except KeyError:
            pass
        assert await ready(channel, queue.name) == 1
        assert (await queue.get(no_ack=True)).body == b"committed"


@case
async def dead_letters():
    async with await connect() as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(fresh("dlx"), ExchangeType.FANOUT, auto_delete=True)
        grave = await channel.declare_queue("", exclusive=True)
        await grave.bind(exchange)
        work = await channel.declare_queue("", exclusive=True, arguments={"x-dead-letter-exchange": exchange.name})
        for body, expiration in ((b"expired", 0.05), (b"rejected", None)):
            await channel.default_exchange.publish(Message(body, expiration=expiration), work.name)
        [expired] = await take(grave, 1)
        async with work.iterator(timeout=WAIT_S) as messages:
            async for message in messages:
                async with message.process(requeue=False, ignore_processed=True):
                    await message.reject()
                break
        [rejected] = await take(grave, 1)
        for message, reason in ((expired, "expired"), (rejected, "rejected")):
            [death] = message.headers["x-death"]
            assert (message.body.decode(), death["reason"], death["queue"], death["count"]) == (reason, reason, work.name, 1), death


async def multiply(*, x, y):
    return x * y


async def divide(*, x, y):
    return x / y


@case
async def calls():
    """Remote calls as aio-pika makes them: a queue for answers, and a headers exchange for calls that expired before a worker took them."""
    async with await connect() as serving, await connect() as calling:
        server = await RPC.create(await serving.channel())
        name = fresh("multiply")
        await server.register(name, multiply, auto_delete=True)
        await server.register(name + "-divide", divide, auto_delete=True)
        client = await RPC.create(await calling.channel())
        got = await asyncio.gather(*(client.call(name, {"x": i, "y": 2}) for i in range(50)))
        assert got == [2 * i for i in range(50)]
        try:
            await client.call(name + "-divide", {"x": 1, "y": 0})
            raise AssertionError("the error of the call did not come back")
        except ZeroDivisionError:
            pass
        await refused(MessageProcessError, "returned", client.call(fresh("no-worker")))
        arguments = {"x-dead-letter-exchange": RPC.DLX_NAME}
        slow = await (await calling.channel()).declare_queue(fresh("slow"), auto_delete=True, arguments=arguments)
        try:
            await client.call(slow.name, expiration=0.1)
            raise AssertionError("a call that no worker took was answered")
        except asyncio.TimeoutError:
            pass
        await slow.delete()


@case
async def workers():
    async with await connect() as connection:
        master = Master(await connection.channel())
        name, done = fresh("worker"), []

        async def work(*, task):
            done.append(task)

        worker = await master.create_worker(name, work, auto_delete=True)
        for i in range(20):
            await master.create_task(name, {"task": i})
        await until("all is done", lambda: reached(done, 20))
        assert done == list(range(20))
        await worker.close()


@case
async def refusals():
    async with await connect() as connection:
        name = fresh("q")
        channel = await connection.channel()
        queue = await channel.declare_queue(name, durable=True)
        text = f"PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue '{name}' in vhost '/'"
        await refused(ChannelPreconditionFailed, text, channel.declare_queue(name, durable=True, arguments={"x-max-length": 1}))
        channel = await connection.channel()
        await refused(ChannelNotFoundEntity, "NOT_FOUND - no queue 'none' in vhost '/'", channel.get_queue("none", ensure=True))
        channel = await connection.channel()
        assert (await channel.get_queue(name)).name == queue.name
        await channel.queue_delete(name)


@case
async def comes_back():
    """A robust connection that was cut declares all again and goes on consuming."""
    way = Way()
    async with await connect(way.address, robust=True, reconnect_interval=0.1) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=5)
        exchange = await channel.declare_exchange(fresh("x"), ExchangeType.DIRECT, auto_delete=True)
        durable = await channel.declare_queue(fresh("durable"), durable=True)
        own = await channel.declare_queue(fresh("own"), exclusive=True)
        await durable.bind(exchange, "durable")
        await own.bind(exchange, "own")
        got = []

        async def note(message):
            async with message.process():
                pass
            got.append((message.body, message.redelivered))

        await durable.consume(note)
        await own.consume(note)
        await exchange.publish(Message(b"before"), "durable")
        await until("it comes", lambda: reached(got, 1))
        # A channel is answered in order: the broker has the acknowledgement then, and the cut cannot bring the message again.
        await channel.set_qos(prefetch_count=5)
        back = asyncio.Event()
        connection.reconnect_callbacks.add(lambda *_: back.set())
        way.cut()
        await asyncio.sleep(0.3)
        async with await connect() as other:
            await (await other.channel()).default_exchange.publish(Message(b"meanwhile"), durable.name)
        way.mend()
        await asyncio.wait_for(back.wait(), WAIT_S)
        await until("what came meanwhile", lambda: reached(got, 2))
        await exchange.publish(Message(b"after"), "own")
        await until("the exclusive queue is there again", lambda: reached(got, 3))
        assert got == [(b"before", False), (b"meanwhile", False), (b"after", False)], got
        await durable.delete(if_unused=False)


main(lambda function: asyncio.run(asyncio.wait_for(function(), 3 * WAIT_S)))
