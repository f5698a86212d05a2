import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import java.util.TreeMap;

/**
 * One system's official client. A class with a constructor that takes the spec stands behind each value of its field {@code system};
 * what the fields mean to it is written at that class.
 */
interface Client extends AutoCloseable {
    /** Has the topic with its partitions made, unless it is there, and returns when it can be written. */
    void create() throws Exception;

    /** A producer with a connection of its own. */
    Producer producer(int number) throws Exception;

    /** Prepares a group, before its first reader. */
    default void group(int group) throws Exception {}

    /**
     * A reader with a connection of its own, which shares the partitions with the other readers of its group. It begins at once, and
     * gives what it reads to the sink, one message after the other.
     */
    Consumer consumer(int group, int number, Sink sink) throws Exception;

    /**
     * Whether the client picks the partition by itself. A producer's messages are then numbered over all partitions, and order is
     * looked at in each partition for itself.
     */
    default boolean scatters() {
        return false;
    }

    /** Whether the broker sends a group that filters only what it wants. */
    default boolean filtersThere() {
        return false;
    }

    /** Messages of a producer that may be unanswered, where the client has no bound of its own; else 0. */
    default int pendingMax() {
        return 0;
    }

    @Override
    default void close() throws Exception {}

    /** What became of a message. */
    interface Answer {
        /** Called once, on any thread: with null when the message was acknowledged. */
        void came(Object refused);
    }

    /** Used by one thread. */
    interface Producer {
        /** Hands a message over; partitions are counted over all topics. The array is the client's from here on. Waits when too many are unanswered. */
        void send(int partition, byte[] message, Answer answer) throws Exception;

        /** Waits for what is unanswered, at most so long, and ends. */
        void close(long millisMax) throws Exception;
    }

    /** A reader; {@link #poll} and {@link #close} are called by one thread. */
    interface Consumer {
        /** The partitions whose next message would come here. */
        long assigned() throws Exception;

        /** Waits for messages, at most so long, where they do not come by themselves. */
        default void poll(long millisMax) throws Exception {
            Thread.sleep(Math.min(millisMax, 10));
        }

        void close() throws Exception;
    }

    /** Who takes what is read; several threads may call it. */
    interface Sink {
        void take(int partition, byte[] message);

        /** Ends the run: what was read cannot be right. */
        void failed(Object why);
    }

    /** Messages that a batch of the spec holds, at least one. */
    static int recordsPerBatch(JsonNode spec) {
        return Math.max((int) (spec.get("batch_bytes").asLong() / spec.get("message_bytes").asLong()), 1);
    }

    /** Unanswered messages that come to as many as the spec's unanswered requests of full batches. */
    static int pending(JsonNode spec) {
        long messages = spec.get("in_flight").asLong() * recordsPerBatch(spec);
        return (int) Math.min(Math.max(messages, 1), 1_000_000);
    }

    /** What no other process of this contract calls its groups. */
    String RUN = Long.toString(System.currentTimeMillis(), 36) + "-" + ProcessHandle.current().pid();

    /** The name of a group: of this run alone, so that where it starts is where the spec says. */
    static String groupName(int group) {
        return "bench-" + RUN + "-" + group;
    }

    /** How often readers tell the broker how far they are. */
    static long commitMs(JsonNode spec) {
        return spec.has("commit_ms") ? spec.get("commit_ms").asLong() : 5_000;
    }

    /** What a load is like beyond one topic: the rules of crates/bench-load/src/contract/shape.rs. */
    static JsonNode shape(JsonNode spec) {
        return spec.path("shape");
    }

    static int topics(JsonNode spec) {
        return Math.max(shape(spec).path("topics").asInt(1), 1);
    }

    /** Partitions of all topics together. */
    static int places(JsonNode spec) {
        return topics(spec) * spec.get("partitions").asInt();
    }

    static String topicName(JsonNode spec, int number) {
        String topic = spec.get("topic").asText();
        return topics(spec) == 1 ? topic : String.format("%s_%04d", topic, number);
    }

    /** Whether a group is one of those that want few of the messages. */
    static boolean filters(JsonNode spec, int group) {
        return group >= spec.get("groups").asInt() - shape(spec).path("filter").path("groups").asInt(0);
    }

    /** Topics that a group reads, the first ones. */
    static int topicsOf(JsonNode spec, int group) {
        return filters(spec, group) ? shape(spec).path("filter").path("topics").asInt() : topics(spec);
    }

    /** Whether a group that filters wants a message. */
    static boolean wants(JsonNode spec, long sequence) {
        return sequence % Math.max(shape(spec).path("filter").path("one_in").asLong(1), 1) == 0;
    }

    /** Settings that are given to the client as they are. */
    static Map<String, String> settings(JsonNode spec) {
        Map<String, String> settings = new TreeMap<>();
        shape(spec).path("settings").fields().forEachRemaining(field -> settings.put(field.getKey(), field.getValue().asText()));
        return settings;
    }

    /** Refuses what this client cannot do. */
    static void oneTopic(JsonNode spec) {
        if (topics(spec) > 1 || shape(spec).has("filter")) {
            throw new IllegalArgumentException("this client is not driven with many topics or filters");
        }
    }

    static void noSettings(JsonNode spec) {
        if (!settings(spec).isEmpty()) {
            throw new IllegalArgumentException("this client takes no settings of a file");
        }
    }

    /**
     * Ends what is not waited for, when no message of it is unanswered: clients take seconds to end their threads, and the process of a
     * run does not outlive it.
     */
    static void endAside(Runnable end) {
        Thread aside = new Thread(end, "bench-end");
        aside.setDaemon(true);
        aside.start();
    }

    static boolean fromEnd(JsonNode spec) {
        return spec.get("from").asText().equals("end");
    }
}
