import com.fasterxml.jackson.databind.JsonNode;
import com.rabbitmq.stream.Environment;
import com.rabbitmq.stream.OffsetSpecification;
import com.rabbitmq.stream.StreamException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * stream-client: RabbitMQ's streams by their own protocol. A partition is a stream, TOPIC-NUMBER. batch_bytes is batchSize, counted in
 * messages; linger_us is batchPublishingDelay, and without it batches form by themselves (dynamicBatch); in_flight full batches are
 * the messages that may be unanswered, and maxUnconfirmedMessages; commit_ms is the flush interval of the tracked offsets. A stream's messages all go to one consumer of a
 * group.
 */
final class StreamSystem implements Client {
    private final JsonNode spec;
    private final String topic;
    private final int partitions;

    StreamSystem(JsonNode spec) {
        this.spec = spec;
        Client.oneTopic(spec);
        Client.noSettings(spec);
        topic = spec.get("topic").asText();
        partitions = spec.get("partitions").asInt();
    }

    private Environment connect() {
        String[] address = spec.get("bootstrap").asText().split(":");
        int port = Integer.parseInt(address[1]);
        return Environment.builder().host(address[0]).port(port)
                // One node: whatever it calls itself, it is there.
                .addressResolver(stated -> new com.rabbitmq.stream.Address(address[0], port))
                .maxProducersByConnection(256).maxConsumersByConnection(256).build();
    }

    private String stream(int partition) {
        return topic + "-" + partition;
    }

    @Override
    public void create() {
        try (Environment environment = connect()) {
            for (int partition = 0; partition < partitions; partition++) {
                try {
                    environment.streamCreator().stream(stream(partition)).create();
                } catch (StreamException e) {
                    if (!environment.streamExists(stream(partition))) {
                        throw e;
                    }
                }
            }
        }
    }

    @Override
    public int pendingMax() {
        return Client.pending(spec);
    }

    @Override
    public Producer producer(int number) {
        Environment environment = connect();
        long lingerUs = spec.get("linger_us").asLong();
        List<com.rabbitmq.stream.Producer> producers = new ArrayList<>();
        for (int partition = 0; partition < partitions; partition++) {
            var builder = environment.producerBuilder().stream(stream(partition))
                    .batchSize(Math.min(Client.recordsPerBatch(spec), 10_000))
                    .maxUnconfirmedMessages(Client.pending(spec))
                    .enqueueTimeout(Duration.ZERO)
                    .dynamicBatch(lingerUs == 0);
            if (lingerUs > 0) {
                builder.batchPublishingDelay(Duration.ofNanos(lingerUs * 1_000));
            }
            producers.add(builder.build());
        }
        return new Producer() {
            @Override
            public void send(int partition, byte[] message, Answer answer) {
                com.rabbitmq.stream.Producer producer = producers.get(partition);
                producer.send(producer.messageBuilder().addData(message).build(),
                        status -> answer.came(status.isConfirmed() ? null : "the broker refuses a message: code " + status.getCode()));
            }

            @Override
            public void close(long millisMax) {
                producers.forEach(com.rabbitmq.stream.Producer::close);
                environment.close();
            }
        };
    }

    @Override
    public Consumer consumer(int group, int number, Sink sink) {
        Environment environment = connect();
        int consumers = spec.get("consumers").asInt();
        long assigned = 0;
        for (int partition = number; partition < partitions; partition += consumers) {
            int mine = partition;
            assigned++;
            environment.consumerBuilder().stream(stream(mine)).name(Client.groupName(group))
                    .offset(Client.fromEnd(spec) ? OffsetSpecification.next() : OffsetSpecification.first())
                    .autoTrackingStrategy().flushInterval(Duration.ofMillis(Client.commitMs(spec))).builder()
                    .messageHandler((context, message) -> sink.take(mine, message.getBodyAsBinary()))
                    .build();
        }
        long all = assigned;
        return new Consumer() {
            @Override
            public long assigned() {
                return all;
            }

            @Override
            public void close() {
                environment.close();
            }
        };
    }
}
