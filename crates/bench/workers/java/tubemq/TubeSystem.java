import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.inlong.tubemq.client.config.ConsumerConfig;
import org.apache.inlong.tubemq.client.config.TubeClientConfig;
import org.apache.inlong.tubemq.client.consumer.ConsumePosition;
import org.apache.inlong.tubemq.client.consumer.ConsumerResult;
import org.apache.inlong.tubemq.client.consumer.PullMessageConsumer;
import org.apache.inlong.tubemq.client.factory.MessageSessionFactory;
import org.apache.inlong.tubemq.client.factory.TubeMultiSessionFactory;
import org.apache.inlong.tubemq.client.producer.MessageProducer;
import org.apache.inlong.tubemq.client.producer.MessageSentCallback;
import org.apache.inlong.tubemq.client.producer.MessageSentResult;
import org.apache.inlong.tubemq.corebase.Message;
import org.apache.inlong.tubemq.corebase.TErrCodeConstants;

/**
 * tubemq-client. The client picks the partition. It has no batches: batch_bytes and linger_us do nothing, and in_flight full batches
 * are the messages that may be unanswered. A group is one of pull consumers, which confirm each fetch; commit_ms does nothing. After a
 * fetch that found nothing the client waits 10 ms (the published comparison with Kafka did; its default is 400 ms).
 *
 * <p>The broker appends what one producer has sent in the order in which its threads get to it, unless the producer waits for each
 * answer: messages that are pipelined may come out of order.
 */
final class TubeSystem implements Client {
    /** What a broker takes of partitions in one store of a topic. */
    private static final int PARTITIONS_A_STORE_MAX = 100;
    private static final long NOT_FOUND_WAIT_MS = 10;
    /** A broker that gets more than it writes refuses the rest, and leaves it to the program to send it again. */
    private static final long OVERFLOW_WAIT_MS = 10;
    /** How long a fetch waits for a partition that may be asked. */
    private static final long READY_WAIT_MS = 100;
    /** A reader hears in a heartbeat which partitions are its own; by the default it would wait for that for 13 s. */
    private static final long HEARTBEAT_MS = 1_000;
    /** A topic can be used when the broker has fetched its settings and been seen to have them: the master takes its time. */
    private static final long CREATE_S_MAX = 120;
    /** The word that the master is started with. */
    private static final String TOKEN = "bench";
    /** Its client has no names for its settings: these are taken from a file. The first is the token of another master. */
    private static final String TOKEN_SETTING = "confModAuthToken";
    private static final List<String> SETTINGS =
            List.of(TOKEN_SETTING, "usrName", "usrPassWord", "trustStorePath", "trustStorePassword");
    /** How long a topic that is there may take until the client knows of it. */
    private static final long KNOWN_S_MAX = 20;
    /** What messages are called that filters want, and all others. */
    private static final String WANTED = "wanted";
    private static final String OTHER = "other";
    private static final DateTimeFormatter MINUTE = DateTimeFormatter.ofPattern("yyyyMMddHHmm");
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Each has a thread and selectors of its own: one is enough. */
    private final HttpClient http = HttpClient.newHttpClient();
    private final JsonNode spec;
    private final Map<String, String> settings;
    private final List<String> topics;
    private final int partitions;

    TubeSystem(JsonNode spec) {
        this.spec = spec;
        settings = Client.settings(spec);
        for (String name : settings.keySet()) {
            if (!SETTINGS.contains(name)) {
                throw new IllegalArgumentException("TubeMQ's client has no setting " + name + ": it takes " + String.join(", ", SETTINGS));
            }
        }
        topics = IntStream.range(0, Client.topics(spec)).mapToObj(number -> Client.topicName(spec, number)).toList();
        partitions = spec.get("partitions").asInt();
    }

    /** Asks the master something. */
    private JsonNode ask(String question) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://" + spec.get("admin").asText() + "/webapi.htm"))
                .header("Content-Type", "application/x-www-form-urlencoded")
                .POST(HttpRequest.BodyPublishers.ofString(question + "&confModAuthToken=" + settings.getOrDefault(TOKEN_SETTING, TOKEN))).build();
        return JSON.readTree(http.send(request, HttpResponse.BodyHandlers.ofString()).body());
    }

    private void change(String what) throws Exception {
        JsonNode said = ask("type=op_modify&method=" + what);
        if (!said.path("result").asBoolean()) {
            throw new IOException("TubeMQ's master refuses " + what + ": " + said);
        }
    }

    /** With what a file of settings says. */
    private <T extends TubeClientConfig> T set(T config) throws Exception {
        if (settings.containsKey("usrName")) {
            config.setAuthenticInfo(true, settings.get("usrName"), settings.getOrDefault("usrPassWord", ""));
        }
        if (settings.containsKey("trustStorePath")) {
            config.setTLSEnableInfo(settings.get("trustStorePath"), settings.getOrDefault("trustStorePassword", ""));
        }
        return config;
    }

    /** That the topics are there: without an administrator's address they cannot be made. */
    private void checked() throws Exception {
        MessageSessionFactory factory = new TubeMultiSessionFactory(set(new TubeClientConfig(spec.get("bootstrap").asText())));
        MessageProducer producer = factory.createProducer();
        producer.publish(new TreeSet<>(topics));
        long until = System.nanoTime() + KNOWN_S_MAX * 1_000_000_000L;
        for (String topic : topics) {
            while (!producer.isTopicCurAcceptPublish(topic)) {
                if (System.nanoTime() > until) {
                    throw new IllegalArgumentException("topic " + topic + " cannot be written: make it, or say where TubeMQ's master is "
                            + "administered (--admin HOST:PORT)");
                }
                Thread.sleep(200);
            }
        }
        end(producer::shutdown);
        factory.shutdown();
    }

    @Override
    public void create() throws Exception {
        if (!spec.has("admin")) {
            checked();
            return;
        }
        int stores = 1;
        while (partitions / stores > PARTITIONS_A_STORE_MAX || partitions % stores != 0) {
            stores++;
        }
        if (usable()) {
            return;
        }
        change("admin_add_new_topic_record&brokerId=1&createUser=bench&topicName=" + String.join(",", topics) + "&numTopicStores=" + stores
                + "&numPartitions=" + partitions / stores);
        change("admin_reload_broker_configure&brokerId=1&modifyUser=bench");
        long until = System.nanoTime() + CREATE_S_MAX * 1_000_000_000L;
        while (!usable()) {
            if (System.nanoTime() > until) {
                throw new IOException("TubeMQ's topic cannot be used after " + CREATE_S_MAX + " s: "
                        + ask("type=op_query&method=admin_query_topic_info&topicName=" + topics.get(0)));
            }
            Thread.sleep(200);
        }
    }

    /** Whether all topics can be written and read: one question, however many there are. */
    private boolean usable() throws Exception {
        Set<String> usable = new HashSet<>();
        for (JsonNode found : ask("type=op_query&method=admin_query_topic_info&topicName=" + String.join(",", topics)).path("data")) {
            if (found.path("isSrvAcceptPublish").asBoolean() && found.path("isSrvAcceptSubscribe").asBoolean()
                    && found.path("totalRunNumPartCount").asInt() == partitions) {
                usable.add(found.path("topicName").asText());
            }
        }
        return usable.containsAll(topics);
    }

    @Override
    public boolean filtersThere() {
        return true;
    }

    @Override
    public boolean scatters() {
        return true;
    }

    @Override
    public int pendingMax() {
        return Client.pending(spec);
    }

    /** What its shutdown() declares. */
    private interface Ending {
        void end() throws Throwable;
    }

    private static void end(Ending ending) throws Exception {
        try {
            ending.end();
        } catch (Throwable e) {
            throw new IOException("TubeMQ's client does not end", e);
        }
    }

    @Override
    public Producer producer(int number) throws Exception {
        MessageSessionFactory factory = new TubeMultiSessionFactory(set(new TubeClientConfig(spec.get("bootstrap").asText())));
        MessageProducer producer = factory.createProducer();
        producer.publish(new TreeSet<>(topics));
        ScheduledExecutorService later = Executors.newSingleThreadScheduledExecutor();
        return new Producer() {
            @Override
            public void send(int partition, byte[] message, Answer answer) throws Exception {
                Message sent = new Message(topics.get(partition / partitions), message);
                if (Client.shape(spec).has("filter")) {
                    // The time is a part of the header that filters are in.
                    boolean wanted = Client.wants(spec, ByteBuffer.wrap(message).getLong(8));
                    sent.putSystemHeader(wanted ? WANTED : OTHER, MINUTE.format(LocalDateTime.now()));
                }
                send(sent, answer);
            }

            private void send(Message sent, Answer answer) throws Exception {
                producer.sendMessage(sent, new MessageSentCallback() {
                    @Override
                    public void onMessageSent(MessageSentResult result) {
                        if (result.getErrCode() == TErrCodeConstants.SERVER_RECEIVE_OVERFLOW) {
                            later.schedule(() -> again(sent, answer), OVERFLOW_WAIT_MS, TimeUnit.MILLISECONDS);
                            return;
                        }
                        answer.came(result.isSuccess() ? null : result.getErrMsg());
                    }

                    @Override
                    public void onException(Throwable refused) {
                        answer.came(refused);
                    }
                });
            }

            private void again(Message sent, Answer answer) {
                try {
                    send(sent, answer);
                } catch (Exception refused) {
                    answer.came(refused);
                }
            }

            @Override
            public void close(long millisMax) throws Exception {
                later.shutdownNow();
                end(producer::shutdown);
                factory.shutdown();
            }
        };
    }

    @Override
    public Consumer consumer(int group, int number, Sink sink) throws Exception {
        ConsumerConfig config = set(new ConsumerConfig(spec.get("bootstrap").asText(), Client.groupName(group)));
        config.setConsumePosition(
                Client.fromEnd(spec) ? ConsumePosition.CONSUMER_FROM_LATEST_OFFSET : ConsumePosition.CONSUMER_FROM_FIRST_OFFSET);
        config.setMsgNotFoundWaitPeriodMs(NOT_FOUND_WAIT_MS);
        config.setHeartbeatPeriodMs(HEARTBEAT_MS);
        // Else a fetch waits a minute and a half while all partitions rest after one that found nothing: the reader would not see its end.
        config.setPullConsumeReadyWaitPeriodMs(READY_WAIT_MS);
        MessageSessionFactory factory = new TubeMultiSessionFactory(config);
        PullMessageConsumer consumer = factory.createPullConsumer(config);
        TreeSet<String> wanted = Client.filters(spec, group) ? new TreeSet<>(List.of(WANTED)) : null;
        Map<String, Integer> places = new HashMap<>();
        for (String topic : topics.subList(0, Client.topicsOf(spec, group))) {
            places.put(topic, places.size() * partitions);
            consumer.subscribe(topic, wanted);
        }
        consumer.completeSubscribe();
        return new Consumer() {
            @Override
            public long assigned() throws Exception {
                return consumer.getCurConsumedPartitions().size();
            }

            @Override
            public void poll(long millisMax) throws Exception {
                ConsumerResult result = consumer.getMessage();
                if (result.isSuccess()) {
                    for (Message message : result.getMessageList()) {
                        sink.take(places.getOrDefault(message.getTopic(), 0) + result.getPeerInfo().getPartitionId(), message.getData());
                    }
                    consumer.confirmConsume(result.getConfirmContext(), true);
                }
            }

            @Override
            public void close() throws Exception {
                end(consumer::shutdown);
                factory.shutdown();
            }
        };
    }
}
