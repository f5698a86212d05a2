import com.fasterxml.jackson.databind.JsonNode;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageRouter;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TopicMessageId;
import org.apache.pulsar.client.api.TopicMetadata;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.policies.data.BacklogQuota;

/**
 * pulsar-client. batch_bytes is batchingMaxBytes, and a batch of one message turns batching off; linger_us is
 * batchingMaxPublishDelay, at least 1 ms, which is the least that the client takes; in_flight full batches are maxPendingMessages,
 * and a producer that has reached it waits (blockIfQueueFull); commit_ms is acknowledgmentGroupTime. A group is a subscription of the
 * type Failover, as in the driver of the OpenMessaging Benchmark: each partition has one consumer at a time. The partition is picked
 * by a router, as the spec says.
 */
final class PulsarSystem implements Client {
    private final JsonNode spec;
    private final String topic;
    private final int partitions;

    PulsarSystem(JsonNode spec) {
        this.spec = spec;
        Client.oneTopic(spec);
        topic = "persistent://public/default/" + spec.get("topic").asText();
        partitions = spec.get("partitions").asInt();
    }

    private PulsarClient connect() throws PulsarClientException {
        return PulsarClient.builder().serviceUrl("pulsar://" + spec.get("bootstrap").asText())
                .loadConf(new java.util.HashMap<>(Client.settings(spec)))
                .statsInterval(0, TimeUnit.SECONDS)
                .connectionsPerBroker(1)
                .maxConcurrentLookupRequests(50_000)
                .maxLookupRequests(100_000)
                // A consumer's messages are handed over by one thread in any case.
                .ioThreads(1).listenerThreads(1)
                .build();
    }

    @Override
    public void create() throws Exception {
        if (!spec.has("admin")) {
            checked();
            return;
        }
        String at = spec.get("admin").asText();
        try (PulsarAdmin admin = PulsarAdmin.builder().loadConf(new java.util.HashMap<>(Client.settings(spec)))
                .serviceHttpUrl(at.contains("://") ? at : "http://" + at).build()) {
            if (is(admin)) {
                return;
            }
            // A backlog is what is measured at times: it is not to be refused, whatever its size.
            admin.namespaces().setBacklogQuota("public/default",
                    BacklogQuota.builder().limitSize(-1).limitTime(-1).retentionPolicy(BacklogQuota.RetentionPolicy.producer_exception).build());
            admin.topics().createPartitionedTopic(topic, partitions);
        } catch (PulsarAdminException.ConflictException e) {
            // Another client has made it meanwhile.
        }
    }

    private boolean is(PulsarAdmin admin) throws PulsarAdminException {
        try {
            return admin.topics().getPartitionedTopicMetadata(topic).partitions == partitions;
        } catch (PulsarAdminException.NotFoundException e) {
            return false;
        }
    }

    /** That the topic is there: without an administrator's address it cannot be made. */
    private void checked() throws Exception {
        int there;
        try (PulsarClient client = connect()) {
            there = client.getPartitionsForTopic(topic, false).get().size();
        } catch (ExecutionException e) {
            there = 0;
        }
        if (there != partitions) {
            throw new IllegalArgumentException("topic " + topic + " has " + there + " partitions, not " + partitions
                    + ": make it, or say where Pulsar is administered (--admin HOST:PORT)");
        }
    }

    /** The partition of the message that is being sent: there is one sending thread. */
    private static final class Router implements MessageRouter {
        private int next;

        @Override
        public int choosePartition(Message<?> message, TopicMetadata metadata) {
            return next;
        }
    }

    @Override
    public Producer producer(int number) throws Exception {
        PulsarClient client = connect();
        Router router = new Router();
        int records = Client.recordsPerBatch(spec);
        var builder = client.newProducer().topic(topic)
                .messageRouter(router)
                .compressionType(CompressionType.NONE)
                .blockIfQueueFull(true)
                .maxPendingMessages(Client.pending(spec))
                .maxPendingMessagesAcrossPartitions(Math.max(Client.pending(spec), 50_000))
                .sendTimeout(0, TimeUnit.SECONDS)
                .enableBatching(records > 1);
        if (records > 1) {
            builder.batchingMaxMessages(Math.max(records, 2))
                    .batchingMaxBytes(spec.get("batch_bytes").asInt())
                    .batchingMaxPublishDelay(Math.max(spec.get("linger_us").asLong(), 1_000), TimeUnit.MICROSECONDS);
        }
        org.apache.pulsar.client.api.Producer<byte[]> producer = builder.create();
        return new Producer() {
            @Override
            public void send(int partition, byte[] message, Answer answer) {
                router.next = partition;
                producer.sendAsync(message).whenComplete((id, refused) -> answer.came(refused));
            }

            @Override
            public void close(long millisMax) throws Exception {
                producer.flushAsync().get(millisMax, TimeUnit.MILLISECONDS);
                producer.closeAsync().get(millisMax, TimeUnit.MILLISECONDS);
                Client.endAside(() -> end(client));
            }
        };
    }

    @Override
    public Consumer consumer(int group, int number, Sink sink) throws Exception {
        PulsarClient client = connect();
        Set<Integer> active = ConcurrentHashMap.newKeySet();
        org.apache.pulsar.client.api.Consumer<byte[]> consumer = client.newConsumer().topic(topic)
                .subscriptionName(Client.groupName(group))
                .subscriptionType(SubscriptionType.Failover)
                .subscriptionInitialPosition(
                        Client.fromEnd(spec) ? SubscriptionInitialPosition.Latest : SubscriptionInitialPosition.Earliest)
                .acknowledgmentGroupTime(Client.commitMs(spec), TimeUnit.MILLISECONDS)
                .consumerEventListener(new ConsumerEventListener() {
                    @Override
                    public void becameActive(org.apache.pulsar.client.api.Consumer<?> consumer, int partition) {
                        active.add(partition);
                    }

                    @Override
                    public void becameInactive(org.apache.pulsar.client.api.Consumer<?> consumer, int partition) {
                        active.remove(partition);
                    }
                })
                .messageListener((from, message) -> {
                    from.acknowledgeAsync(message);
                    sink.take(partition(message), message.getData());
                })
                .subscribe();
        return new Consumer() {
            @Override
            public long assigned() {
                return active.size();
            }

            @Override
            public void close() throws Exception {
                consumer.close();
                Client.endAside(() -> end(client));
            }
        };
    }

    private static void end(PulsarClient client) {
        try {
            client.shutdown();
        } catch (PulsarClientException e) {
            // It was at its end.
        }
    }

    private static int partition(Message<?> message) {
        String from = message.getMessageId() instanceof TopicMessageId id ? id.getOwnerTopic() : message.getTopicName();
        return Math.max(TopicName.getPartitionIndex(from), 0);
    }
}
