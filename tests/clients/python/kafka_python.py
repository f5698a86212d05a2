"""The client cases with kafka-python. See ../README.md."""

import sys

import shared
from kafka import (
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    TopicPartition,
)
from kafka.errors import InvalidTopicError, MessageSizeTooLargeError

POLL_MS = 500


class Listener(ConsumerRebalanceListener):
    def __init__(self, member):
        self.member = member

    def on_partitions_assigned(self, assigned):
        self.member.given(p.partition for p in assigned)

    def on_partitions_revoked(self, revoked):
        self.member.taken()


class Reader:
    def __init__(self, consumer, topic):
        self.consumer, self.first = consumer, TopicPartition(topic, 0)

    def poll(self, most):
        return [r for records in self.consumer.poll(POLL_MS, most).values() for r in records]

    def seek(self, offset):
        self.consumer.seek(self.first, offset)

    def seek_to_end(self):
        self.consumer.seek_to_end(self.first)
        self.consumer.position(self.first)

    def bounds(self):
        first = [self.first]
        return self.consumer.beginning_offsets(first)[self.first], self.consumer.end_offsets(first)[self.first]

    def at(self, timestamp):
        found = self.consumer.offsets_for_times({self.first: timestamp})[self.first]
        return found and found.offset

    def commit(self):
        self.consumer.commit()

    def close(self):
        self.consumer.close()


class Adapter:
    TOO_LARGE = MessageSizeTooLargeError
    BAD_NAME = InvalidTopicError
    NOT_OFFERED = {"headers/null": "its producer takes bytes only as the value of a header"}

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def create(self, topic, partitions):
        self.admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}})

    def delete(self, topic):
        self.admin.delete_topics([topic])

    def topics(self):
        return self.admin.list_topics()

    def cluster(self):
        cluster = self.admin.describe_cluster()
        return cluster["cluster_id"], len(cluster["brokers"])

    def send(self, topic, records, **settings):
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks=settings.get("acks", 1),
            compression_type=settings.get("codec"),
            enable_idempotence=settings.get("idempotent", False),
            linger_ms=settings.get("linger_ms", 0),
            batch_size=settings.get("batch_bytes", 16384),
            max_request_size=settings.get("max_bytes", 1_048_576),
        )
        try:
            sent = [
                producer.send(topic, r.value, r.key, headers=list(r.headers), timestamp_ms=r.timestamp) for r in records
            ]
            producer.flush(shared.WAIT_S)
            for future in sent:
                future.get(shared.WAIT_S)
        finally:
            producer.close(shared.WAIT_S)

    def consumer(self, **settings):
        return KafkaConsumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest", **settings)

    def reader(self, topic, partitions):
        consumer = self.consumer(group_id=None, enable_auto_commit=False)
        consumer.assign([TopicPartition(topic, p) for p in range(partitions)])
        return Reader(consumer, topic)

    def grouped(self, topic, name, member=None, instance=None):
        consumer = self.consumer(
            group_id=name,
            group_instance_id=instance,
            enable_auto_commit=member is not None,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=500,
        )
        consumer.subscribe([topic], listener=member and Listener(member))
        return Reader(consumer, topic)

    def close(self):
        self.admin.close()


if __name__ == "__main__":
    sys.exit(shared.main(Adapter, sys.argv[1:]))
