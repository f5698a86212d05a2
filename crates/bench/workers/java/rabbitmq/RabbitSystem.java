import com.fasterxml.jackson.databind.JsonNode;
import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ConfirmListener;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;

/**
 * amqp-client: AMQP 0-9-1. A partition is a queue, TOPIC-NUMBER, as with the AMQP driver; with several groups each has queues of its
 * own, TOPIC-NUMBER-gGROUP, behind a direct exchange TOPIC whose routing keys are the partitions. in_flight is the messages without a
 * confirm; batch_bytes and linger_us do nothing, messages go one by one; commit_ms does nothing, acknowledgements are as the field
 * queues says. A queue's messages all go to one consumer.
 */
final class RabbitSystem implements Client {
    private final JsonNode spec;
    private final String topic;
    private final int partitions;
    private final boolean fansOut;
    private final boolean durable;
    private final boolean confirms;
    private final int prefetch;
    private final int ackEvery;
    private final String kind;

    RabbitSystem(JsonNode spec) {
        this.spec = spec;
        Client.oneTopic(spec);
        topic = spec.get("topic").asText();
        partitions = spec.get("partitions").asInt();
        fansOut = spec.get("groups").asInt() > 1;
        JsonNode load = spec.path("queues");
        durable = load.path("durable").asBoolean(true);
        confirms = load.path("confirms").asBoolean(true);
        prefetch = load.path("prefetch").asInt(500);
        ackEvery = load.path("ack_every").asInt(100);
        kind = load.path("kind").asText("classic");
    }

    private Connection connect() throws Exception {
        String[] address = spec.get("bootstrap").asText().split(":");
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost(address[0]);
        factory.setPort(Integer.parseInt(address[1]));
        if (!Client.settings(spec).isEmpty()) {
            com.rabbitmq.client.ConnectionFactoryConfigurator.load(factory, Client.settings(spec), "");
        }
        // A broken connection is an error of the run, not something to be mended in silence.
        factory.setAutomaticRecoveryEnabled(false);
        return factory.newConnection();
    }

    private String queue(int group, int partition) {
        return topic + "-" + partition + (fansOut ? "-g" + group : "");
    }

    @Override
    public void create() throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            if (fansOut) {
                channel.exchangeDeclare(topic, "direct", durable);
            }
            for (int partition = 0; partition < partitions; partition++) {
                for (int group = 0; group < (fansOut ? spec.get("groups").asInt() : 1); group++) {
                    String queue = queue(group, partition);
                    channel.queueDeclare(queue, durable, false, false, kind.equals("classic") ? null : Map.of("x-queue-type", kind));
                    if (fansOut) {
                        channel.queueBind(queue, topic, Integer.toString(partition));
                    }
                }
            }
        }
    }

    @Override
    public int pendingMax() {
        return confirms ? spec.get("in_flight").asInt() : 0;
    }

    @Override
    public Producer producer(int number) throws Exception {
        Connection connection = connect();
        Channel channel = connection.createChannel();
        ConcurrentNavigableMap<Long, Answer> waiting = new ConcurrentSkipListMap<>();
        if (confirms) {
            channel.confirmSelect();
            channel.addConfirmListener(new ConfirmListener() {
                @Override
                public void handleAck(long tag, boolean multiple) {
                    answered(tag, multiple, null);
                }

                @Override
                public void handleNack(long tag, boolean multiple) {
                    answered(tag, multiple, "the broker refuses message " + tag);
                }

                private void answered(long tag, boolean multiple, Object refused) {
                    if (!multiple) {
                        waiting.remove(tag).came(refused);
                        return;
                    }
                    for (var first = waiting.firstEntry(); first != null && first.getKey() <= tag; first = waiting.firstEntry()) {
                        waiting.remove(first.getKey());
                        first.getValue().came(refused);
                    }
                }
            });
        }
        AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder().deliveryMode(durable ? 2 : 1).build();
        return new Producer() {
            @Override
            public void send(int partition, byte[] message, Answer answer) throws IOException {
                if (confirms) {
                    waiting.put(channel.getNextPublishSeqNo(), answer);
                }
                String key = fansOut ? Integer.toString(partition) : queue(0, partition);
                channel.basicPublish(fansOut ? topic : "", key, properties, message);
                if (!confirms) {
                    answer.came(null);
                }
            }

            @Override
            public void close(long millisMax) throws Exception {
                if (confirms) {
                    channel.waitForConfirms(millisMax);
                }
                // Closing the channel is answered when all before it has been heard.
                channel.close();
                connection.close();
            }
        };
    }

    @Override
    public Consumer consumer(int group, int number, Sink sink) throws Exception {
        Connection connection = connect();
        Channel channel = connection.createChannel();
        channel.basicQos(prefetch);
        Acks acks = new Acks(channel);
        long assigned = 0;
        int consumers = spec.get("consumers").asInt();
        for (int partition = number; partition < partitions; partition += consumers) {
            int mine = partition;
            assigned++;
            channel.basicConsume(queue(group, mine), ackEvery == 0, new DefaultConsumer(channel) {
                @Override
                public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) throws IOException {
                    sink.take(mine, body);
                    acks.came(envelope.getDeliveryTag());
                }
            });
        }
        long all = assigned;
        return new Consumer() {
            @Override
            public long assigned() {
                return all;
            }

            @Override
            public void poll(long millisMax) throws Exception {
                Thread.sleep(10);
                acks.flush();
            }

            @Override
            public void close() throws Exception {
                acks.flush();
                channel.close();
                connection.close();
            }
        };
    }

    /** Acknowledges so many messages at once, and what is left over every ten milliseconds, as the AMQP driver does. */
    private final class Acks {
        private final Channel channel;
        private long last;
        private long unacked;

        Acks(Channel channel) {
            this.channel = channel;
        }

        synchronized void came(long tag) throws IOException {
            last = tag;
            if (ackEvery > 0 && ++unacked >= ackEvery) {
                flush();
            }
        }

        synchronized void flush() throws IOException {
            if (unacked > 0) {
                channel.basicAck(last, true);
                unacked = 0;
            }
        }
    }
}
