import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * kafka-clients. batch_bytes is batch.size; linger_us is linger.ms, in whole milliseconds; in_flight is
 * max.in.flight.requests.per.connection; commit_ms is auto.commit.interval.ms. What waits is bound by buffer.memory, 32 MiB by
 * default.
 */
final class KafkaSystem implements Client {
    private final JsonNode spec;
    private final int partitions;

    KafkaSystem(JsonNode spec) {
        this.spec = spec;
        partitions = spec.get("partitions").asInt();
    }

    private List<String> topics(int count) {
        return IntStream.range(0, count).mapToObj(number -> Client.topicName(spec, number)).toList();
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", spec.get("bootstrap").asText());
        settings.putAll(Client.settings(spec));
        return settings;
    }

    @Override
    public void create() throws Exception {
        try (Admin admin = Admin.create(settings())) {
            List<NewTopic> wanted =
                    topics(Client.topics(spec)).stream().map(topic -> new NewTopic(topic, partitions, (short) 1)).toList();
            for (KafkaFuture<Void> made : admin.createTopics(wanted).values().values()) {
                try {
                    made.get();
                } catch (ExecutionException e) {
                    if (!(e.getCause() instanceof TopicExistsException)) {
                        throw e;
                    }
                }
            }
        }
    }

    @Override
    public Producer producer(int number) {
        Properties settings = settings();
        settings.put("acks", "all");
        settings.put("batch.size", spec.get("batch_bytes").asText());
        settings.put("linger.ms", Long.toString(spec.get("linger_us").asLong() / 1_000));
        settings.put("max.in.flight.requests.per.connection", spec.get("in_flight").asText());
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        settings.putAll(Client.settings(spec));
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
        List<String> topics = topics(Client.topics(spec));
        topics.forEach(producer::partitionsFor);
        return new Producer() {
            @Override
            public void send(int partition, byte[] message, Answer answer) {
                String topic = topics.get(partition / partitions);
                producer.send(new ProducerRecord<>(topic, partition % partitions, null, message),
                        (metadata, refused) -> answer.came(refused));
            }

            @Override
            public void close(long millisMax) {
                producer.close(Duration.ofMillis(millisMax));
            }
        };
    }

    @Override
    public Consumer consumer(int group, int number, Sink sink) {
        Properties settings = settings();
        settings.put("group.id", Client.groupName(group));
        settings.put("auto.offset.reset", Client.fromEnd(spec) ? "latest" : "earliest");
        settings.put("auto.commit.interval.ms", Long.toString(Client.commitMs(spec)));
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.putAll(Client.settings(spec));
        return new Reader(new KafkaConsumer<>(settings), topics(Client.topicsOf(spec, group)), sink);
    }

    private final class Reader implements Consumer, ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Sink sink;
        private long assigned;

        private final Map<String, Integer> places = new HashMap<>();

        Reader(KafkaConsumer<byte[], byte[]> consumer, List<String> topics, Sink sink) {
            this.consumer = consumer;
            this.sink = sink;
            topics.forEach(topic -> places.put(topic, places.size() * partitions));
            consumer.subscribe(topics, this);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            assigned -= partitions.size();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            // A position that is known now cannot slip behind what is sent from here on.
            partitions.forEach(consumer::position);
            assigned += partitions.size();
        }

        @Override
        public long assigned() {
            return assigned;
        }

        @Override
        public void poll(long millisMax) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(millisMax))) {
                sink.take(places.get(record.topic()) + record.partition(), record.value());
            }
        }

        @Override
        public void close() {
            consumer.close();
        }
    }
}
