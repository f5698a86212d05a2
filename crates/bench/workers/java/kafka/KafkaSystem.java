import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
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
    private final String topic;

    KafkaSystem(JsonNode spec) {
        this.spec = spec;
        topic = spec.get("topic").asText();
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", spec.get("bootstrap").asText());
        return settings;
    }

    @Override
    public void create() throws Exception {
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic(topic, spec.get("partitions").asInt(), (short) 1))).all().get();
        } catch (ExecutionException e) {
            if (!(e.getCause() instanceof TopicExistsException)) {
                throw e;
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
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
        producer.partitionsFor(topic);
        return new Producer() {
            @Override
            public void send(int partition, byte[] message, Answer answer) {
                producer.send(new ProducerRecord<>(topic, partition, null, message), (metadata, refused) -> answer.came(refused));
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
        return new Reader(new KafkaConsumer<>(settings), sink);
    }

    private final class Reader implements Consumer, ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Sink sink;
        private long assigned;

        Reader(KafkaConsumer<byte[], byte[]> consumer, Sink sink) {
            this.consumer = consumer;
            this.sink = sink;
            consumer.subscribe(List.of(topic), this);
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
                sink.take(record.partition(), record.value());
            }
        }

        @Override
        public void close() {
            consumer.close();
        }
    }
}
