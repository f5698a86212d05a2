"""The client cases with aiokafka, whose calls run on an event loop in a thread of its own. See ../README.md."""

import asyncio
import sys
import threading

import shared
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import InvalidTopicError, MessageSizeTooLargeError, for_code

POLL_MS = 500


class Listener(ConsumerRebalanceListener):
    def __init__(self, member):
        self.member = member

    def on_partitions_assigned(self, assigned):
        self.member.given(p.partition for p in assigned)

    def on_partitions_revoked(self, revoked):
        self.member.taken()


class Reader:
    def __init__(self, consumer, topic, wait):
        self.consumer, self.first, self.wait = consumer, TopicPartition(topic, 0), wait

    def poll(self, most):
        batches = self.wait(self.consumer.getmany(timeout_ms=POLL_MS, max_records=most))
        return [r for records in batches.values() for r in records]

    def seek(self, offset):
        self.consumer.seek(self.first, offset)

    def seek_to_end(self):
        self.wait(self.consumer.seek_to_end(self.first))

    def bounds(self):
        first = self.wait(self.consumer.beginning_offsets([self.first]))
        return first[self.first], self.wait(self.consumer.end_offsets([self.first]))[self.first]

    def at(self, timestamp):
        found = self.wait(self.consumer.offsets_for_times({self.first: timestamp}))[self.first]
        return found and found.offset

    def commit(self):
        self.wait(self.consumer.commit())

    def close(self):
        self.wait(self.consumer.stop())


class Adapter:
    TOO_LARGE = MessageSizeTooLargeError
    BAD_NAME = InvalidTopicError
    NOT_OFFERED = {}

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.admin = self.wait(self.start(AIOKafkaAdminClient))

    def wait(self, awaitable):
        return asyncio.run_coroutine_threadsafe(awaitable, self.loop).result(shared.WAIT_S)

    async def start(self, what, *arguments, **settings):
        started = what(*arguments, bootstrap_servers=self.bootstrap, **settings)
        await started.start()
        return started

    def create(self, topic, partitions):
        answer = self.wait(self.admin.create_topics([NewTopic(topic, partitions, 1)]))
        for _, code, *message in answer.topic_errors:
            if code:
                raise for_code(code)(*message)

    def delete(self, topic):
        self.wait(self.admin.delete_topics([topic]))

    def topics(self):
        return self.wait(self.admin.list_topics())

    def cluster(self):
        cluster = self.wait(self.admin.describe_cluster())
        return cluster["cluster_id"], len(cluster["brokers"])

    def send(self, topic, records, **settings):
        self.wait(self.send_all(topic, records, settings))

    async def send_all(self, topic, records, settings):
        producer = await self.start(
            AIOKafkaProducer,
            acks=settings.get("acks", 1),
            compression_type=settings.get("codec"),
            enable_idempotence=settings.get("idempotent", False),
            linger_ms=settings.get("linger_ms", 0),
            max_batch_size=settings.get("max_bytes", settings.get("batch_bytes", 16384)),
            max_request_size=settings.get("max_bytes", 1_048_576),
        )
        try:
            sent = [
                await producer.send(topic, r.value, r.key, timestamp_ms=r.timestamp, headers=list(r.headers))
                for r in records
            ]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()

    async def assigned(self, topic, partitions):
        consumer = await self.start(AIOKafkaConsumer, auto_offset_reset="earliest", enable_auto_commit=False)
        consumer.assign([TopicPartition(topic, p) for p in range(partitions)])
        return consumer

    def reader(self, topic, partitions):
        return Reader(self.wait(self.assigned(topic, partitions)), topic, self.wait)

    async def subscribed(self, topic, name, member, instance):
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=name,
            group_instance_id=instance,
            auto_offset_reset="earliest",
            enable_auto_commit=member is not None,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=500,
        )
        consumer.subscribe([topic], listener=member and Listener(member))
        await consumer.start()
        return consumer

    def grouped(self, topic, name, member=None, instance=None):
        return Reader(self.wait(self.subscribed(topic, name, member, instance)), topic, self.wait)

    def close(self):
        self.wait(self.admin.close())
        self.loop.call_soon_threadsafe(self.loop.stop)


if __name__ == "__main__":
    sys.exit(shared.main(Adapter, sys.argv[1:]))
