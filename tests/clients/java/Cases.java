import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

/** The client cases with the official Java client. See ../README.md. */
public final class Cases {
    static final Duration WAIT = Duration.ofSeconds(60);
    static final Duration POLL = Duration.ofMillis(200);

    interface Case {
        void run(Cases cluster) throws Exception;
    }

    static final Map<String, Case> CASES = new LinkedHashMap<>();

    static {
        CASES.put("smoke", Cases::smoke);
        CASES.put("produce_acks", Cases::produceAcks);
        CASES.put("codecs", Cases::codecs);
        CASES.put("headers", Cases::headers);
        CASES.put("tombstones", Cases::tombstones);
        CASES.put("large", Cases::large);
        CASES.put("idempotent", Cases::idempotent);
        CASES.put("seek", Cases::seek);
        CASES.put("by_time", Cases::byTime);
        CASES.put("group", Cases::group);
        CASES.put("rebalance", Cases::rebalance);
        CASES.put("static_member", Cases::staticMember);
        CASES.put("consumer_protocol", Cases::consumerProtocol);
        CASES.put("consumer_pattern", Cases::consumerPattern);
        CASES.put("many_partitions", Cases::manyPartitions);
        CASES.put("metadata", Cases::metadata);
    }

    final String bootstrap;
    final Admin admin;

    Cases(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    String topic(int partitions) throws Exception {
        String name = "java-" + UUID.randomUUID();
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        return name;
    }

    KafkaProducer<byte[], byte[]> producer(Object... settings) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "enable.idempotence", false));
        for (int i = 0; i < settings.length; i += 2) config.put((String) settings[i], settings[i + 1]);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<byte[], byte[]> consumer(String group, Object... settings) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "group.id", group));
        for (int i = 0; i < settings.length; i += 2) config.put((String) settings[i], settings[i + 1]);
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static String freshGroup() {
        return "g-" + UUID.randomUUID();
    }

    static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    void send(String topic, List<String[]> messages, Object... settings) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String[] m : messages) sent.add(producer.send(new ProducerRecord<>(topic, bytes(m[0]), bytes(m[1]))));
            producer.flush();
            for (Future<RecordMetadata> f : sent) f.get();
        }
    }

    static List<String[]> numbered(int count) {
        List<String[]> out = new ArrayList<>();
        for (int i = 0; i < count; i++) out.add(new String[] {"k" + i, "v" + i});
        return out;
    }

    static List<ConsumerRecord<byte[], byte[]>> take(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> out = new ArrayList<>();
        long end = System.nanoTime() + WAIT.toNanos();
        while (out.size() < count) {
            check(System.nanoTime() < end, "only " + out.size() + " of " + count + " messages came");
            consumer.poll(POLL).forEach(out::add);
        }
        return out;
    }

    List<ConsumerRecord<byte[], byte[]>> read(String topic, int count, int partitions) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(freshGroup())) {
            List<TopicPartition> all = new ArrayList<>();
            for (int p = 0; p < partitions; p++) all.add(new TopicPartition(topic, p));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            return take(consumer, count);
        }
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static void same(Object wanted, Object got, String what) {
        check(Objects.equals(wanted, got), what + ": wanted " + wanted + ", got " + got);
    }

    static void until(String what, BooleanSupplier holds) throws InterruptedException {
        long end = System.nanoTime() + WAIT.toNanos();
        while (!holds.getAsBoolean()) {
            check(System.nanoTime() < end, "never happened: " + what);
            Thread.sleep(20);
        }
    }

    static void comeBack(List<String[]> sent, List<ConsumerRecord<byte[], byte[]>> got, String what) {
        same(sent.size(), got.size(), what + " count");
        for (int i = 0; i < sent.size(); i++) {
            same(sent.get(i)[0], text(got.get(i).key()), what + " key " + i);
            same(sent.get(i)[1], text(got.get(i).value()), what + " value " + i);
        }
    }

    void smoke() throws Exception {
        String topic = topic(1);
        send(topic, numbered(100));
        comeBack(numbered(100), read(topic, 100, 1), "smoke");
        admin.deleteTopics(List.of(topic)).all().get();
        check(!admin.listTopics().names().get().contains(topic), "the topic is still listed");
    }

    void produceAcks() throws Exception {
        for (String acks : List.of("0", "1", "all")) {
            String topic = topic(1);
            send(topic, numbered(50), "acks", acks);
            comeBack(numbered(50), read(topic, 50, 1), "acks " + acks);
        }
    }

    void codecs() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = topic(1);
            List<String[]> sent = numbered(500);
            for (String[] m : sent) m[1] = m[1] + ".".repeat(200);
            send(topic, sent, "compression.type", codec, "linger.ms", 50);
            comeBack(sent, read(topic, 500, 1), codec);
        }
    }

    void headers() throws Exception {
        String topic = topic(1);
        List<Header> sent = List.of(new RecordHeader("a", bytes("1")), new RecordHeader("a", bytes("2")),
            new RecordHeader("empty", new byte[0]), new RecordHeader("null", (byte[]) null), new RecordHeader("a", bytes("3")));
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            producer.send(new ProducerRecord<byte[], byte[]>(topic, (Integer) null, null, bytes("v"), sent)).get();
        }
        same(sent, List.of(read(topic, 1, 1).get(0).headers().toArray()), "headers");
    }

    void tombstones() throws Exception {
        String topic = topic(1);
        List<String[]> sent = List.of(new String[] {"k", null}, new String[] {null, "v"}, new String[] {null, null},
            new String[] {"", ""});
        send(topic, sent);
        comeBack(sent, read(topic, 4, 1), "tombstones");
    }

    void large() throws Exception {
        String topic = topic(1);
        byte[] value = new byte[1_000_000];
        new Random(1).nextBytes(value);
        try (KafkaProducer<byte[], byte[]> producer = producer("max.request.size", 5_000_000)) {
            producer.send(new ProducerRecord<>(topic, value)).get();
            check(Arrays.equals(value, read(topic, 1, 1).get(0).value()), "the large message changed");
            try {
                producer.send(new ProducerRecord<>(topic, new byte[2_000_000])).get();
                throw new AssertionError("a message above the bound was taken");
            } catch (ExecutionException e) {
                check(e.getCause() instanceof RecordTooLargeException, "another error: " + e.getCause());
            }
        }
    }

    void idempotent() throws Exception {
        String topic = topic(3);
        List<String[]> sent = numbered(5000);
        send(topic, sent, "enable.idempotence", true, "acks", "all", "batch.size", 256);
        Map<Integer, Integer> last = new HashMap<>();
        Set<String> values = new HashSet<>();
        for (ConsumerRecord<byte[], byte[]> r : read(topic, 5000, 3)) {
            int n = Integer.parseInt(text(r.value()).substring(1));
            check(last.getOrDefault(r.partition(), -1) < n, "partition " + r.partition() + " is out of order");
            last.put(r.partition(), n);
            check(values.add(text(r.value())), "written twice: " + text(r.value()));
        }
    }

    void seek() throws Exception {
        String topic = topic(1);
        send(topic, numbered(100), "linger.ms", 100);
        TopicPartition p = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(freshGroup())) {
            consumer.assign(List.of(p));
            take(consumer, 100);
            for (long offset : new long[] {0, 37, 99}) {
                consumer.seek(p, offset);
                same(offset, take(consumer, 1).get(0).offset(), "offset after seek");
            }
            consumer.seekToEnd(List.of(p));
            same(100L, consumer.position(p), "the end");
            send(topic, List.<String[]>of(new String[] {"k", "last"}));
            same("last", text(take(consumer, 1).get(0).value()), "after the end");
            same(Map.of(p, 101L), consumer.endOffsets(List.of(p)), "end offsets");
            same(Map.of(p, 0L), consumer.beginningOffsets(List.of(p)), "beginning offsets");
        }
    }

    void byTime() throws Exception {
        String topic = topic(1);
        long start = System.currentTimeMillis() - 100_000;
        try (KafkaProducer<byte[], byte[]> producer = producer("compression.type", "gzip", "linger.ms", 200)) {
            for (int i = 0; i < 100; i++)
                producer.send(new ProducerRecord<>(topic, 0, start + i * 10L, null, bytes("v" + i)));
        }
        TopicPartition p = new TopicPartition(topic, 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(freshGroup())) {
            long[][] wanted = {{0, 0}, {500, 50}, {501, 51}, {-1000, 0}, {990, 99}};
            for (long[] w : wanted) {
                OffsetAndTimestamp at = consumer.offsetsForTimes(Map.of(p, start + w[0])).get(p);
                same(w[1], at.offset(), "offset for " + w[0]);
                same(start + w[1] * 10, at.timestamp(), "timestamp for " + w[0]);
            }
            same(null, consumer.offsetsForTimes(Map.of(p, start + 1_000_000)).get(p), "after the last");
        }
        ListOffsetsResult.ListOffsetsResultInfo max =
            admin.listOffsets(Map.of(p, OffsetSpec.maxTimestamp())).partitionResult(p).get();
        same(99L, max.offset(), "offset of the largest timestamp");
        same(start + 990, max.timestamp(), "the largest timestamp");
    }

    void group() throws Exception {
        String topic = topic(2), group = freshGroup();
        send(topic, numbered(100));
        Set<String> values = new HashSet<>();
        try (KafkaConsumer<byte[], byte[]> first = consumer(group, "max.poll.records", 20)) {
            first.subscribe(List.of(topic));
            for (ConsumerRecord<byte[], byte[]> r : take(first, 60)) values.add(text(r.value()));
            first.commitSync();
        }
        try (KafkaConsumer<byte[], byte[]> second = consumer(group)) {
            second.subscribe(List.of(topic));
            for (ConsumerRecord<byte[], byte[]> r : take(second, 100 - values.size()))
                check(values.add(text(r.value())), "consumed twice: " + text(r.value()));
        }
        same(100, values.size(), "messages consumed");
    }

    /** A member that consumes until it is stopped. */
    static final class Member extends Thread implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> consumer;
        final String topic;
        final Set<String> seen = ConcurrentHashMap.newKeySet();
        volatile Set<Integer> assigned = Set.of();
        volatile int events;
        volatile boolean ended;

        Member(Cases cluster, String topic, String group, Object... settings) {
            Object[] all = Arrays.copyOf(settings, settings.length + 2);
            all[settings.length] = "session.timeout.ms";
            all[settings.length + 1] = 10_000;
            this.consumer = cluster.consumer(group, all);
            this.topic = topic;
            setDaemon(true);
        }

        @Override
        public void run() {
            consumer.subscribe(List.of(topic), this);
            while (!ended) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(50))) seen.add(text(r.value()));
            }
            consumer.close();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            Set<Integer> now = new TreeSet<>();
            for (TopicPartition p : partitions) now.add(p.partition());
            events++;
            assigned = now;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            consumer.commitSync();
            assigned = Set.of();
        }

        void end() throws InterruptedException {
            ended = true;
            join(WAIT.toMillis());
            check(!isAlive(), "the member did not stop");
        }
    }

    static boolean share(int partitions, Member... members) {
        Set<Integer> all = new HashSet<>();
        int sum = 0;
        for (Member m : members) {
            if (m.assigned.isEmpty()) return false;
            all.addAll(m.assigned);
            sum += m.assigned.size();
        }
        return sum == partitions && all.size() == partitions;
    }

    static final String RANGE = "org.apache.kafka.clients.consumer.RangeAssignor";

    void rebalance() throws Exception {
        String topic = topic(6), group = freshGroup();
        Object[] eager = {"partition.assignment.strategy", RANGE};
        Member a = new Member(this, topic, group, eager), b = new Member(this, topic, group, eager);
        Member c = new Member(this, topic, group, eager);
        a.start();
        until("the first member has all partitions", () -> share(6, a));
        send(topic, numbered(300));
        b.start();
        until("two members share the partitions", () -> share(6, a, b));
        c.start();
        until("three members share the partitions", () -> share(6, a, b, c));
        List<String[]> more = numbered(300);
        for (String[] m : more) m[1] += "b";
        send(topic, more);
        a.end();
        until("the two that stay share the partitions", () -> share(6, b, c));
        until("everything is consumed", () -> {
            Set<String> all = new HashSet<>(a.seen);
            all.addAll(b.seen);
            all.addAll(c.seen);
            return all.size() == 600;
        });
        b.end();
        c.end();
    }

    void staticMember() throws Exception {
        String topic = topic(4), group = freshGroup();
        Object[] range = {"partition.assignment.strategy", RANGE, "group.instance.id", "a"};
        Member a = new Member(this, topic, group, range);
        Object[] other = range.clone();
        other[3] = "b";
        Member b = new Member(this, topic, group, other);
        a.start();
        b.start();
        until("both have partitions", () -> share(4, a, b));
        Set<Integer> before = b.assigned;
        int events = a.events;
        b.end();
        Member again = new Member(this, topic, group, other);
        again.start();
        until("the member is back", () -> again.assigned.equals(before));
        same(events, a.events, "rebalances that the other member saw");
        a.end();
        again.end();
    }

    /** A member of the consumer protocol (KIP-848): partitions come and go one by one. */
    static final class NewMember extends Thread implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> consumer;
        final java.util.function.BiConsumer<KafkaConsumer<byte[], byte[]>, NewMember> subscribe;
        final Set<String> seen = ConcurrentHashMap.newKeySet();
        final Set<TopicPartition> assigned = ConcurrentHashMap.newKeySet();
        volatile int revoked;
        volatile boolean ended;
        volatile Throwable failed;

        NewMember(Cases cluster, String group,
                  java.util.function.BiConsumer<KafkaConsumer<byte[], byte[]>, NewMember> subscribe, Object... settings) {
            Object[] all = Arrays.copyOf(settings, settings.length + 2);
            all[settings.length] = "group.protocol";
            all[settings.length + 1] = "consumer";
            this.consumer = cluster.consumer(group, all);
            this.subscribe = subscribe;
            setDaemon(true);
        }

        @Override
        public void run() {
            try (consumer) {
                subscribe.accept(consumer, this);
                while (!ended) {
                    consumer.poll(Duration.ofMillis(50)).forEach(r -> seen.add(text(r.value())));
                }
                consumer.commitSync();
            } catch (Throwable e) {
                failed = e;
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assigned.addAll(partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty() && !ended) revoked++;
            consumer.commitSync();
            partitions.forEach(assigned::remove);
        }

        void end() throws InterruptedException {
            ended = true;
            join(WAIT.toMillis());
            check(!isAlive(), "the member did not stop");
            check(failed == null, "the member failed: " + failed);
        }
    }

    static boolean shareNew(int partitions, NewMember... members) {
        Set<TopicPartition> all = new HashSet<>();
        int sum = 0, least = Integer.MAX_VALUE, most = 0;
        for (NewMember m : members) {
            check(m.failed == null, "a member failed: " + m.failed);
            int mine = m.assigned.size();
            all.addAll(m.assigned);
            sum += mine;
            least = Math.min(least, mine);
            most = Math.max(most, mine);
        }
        return sum == partitions && all.size() == partitions && most - least <= 1;
    }

    void consumerProtocol() throws Exception {
        String topic = topic(6), group = freshGroup();
        java.util.function.BiConsumer<KafkaConsumer<byte[], byte[]>, NewMember> one = (c, m) -> c.subscribe(List.of(topic), m);
        NewMember a = new NewMember(this, group, one);
        NewMember b = new NewMember(this, group, one, "group.instance.id", "b");
        a.start();
        until("the first member has all partitions", () -> shareNew(6, a));
        send(topic, numbered(300));
        b.start();
        until("two members share the partitions", () -> shareNew(6, a, b));
        ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        same(org.apache.kafka.common.GroupType.CONSUMER, described.type(), "type of the group");
        same(org.apache.kafka.common.GroupState.STABLE, described.groupState(), "state of the group");
        same("uniform", described.partitionAssignor(), "assignor of the group");
        same(2, described.members().size(), "members of the group");
        // a restart of the static member moves nothing
        Set<TopicPartition> before = Set.copyOf(b.assigned);
        int revoked = a.revoked;
        b.end();
        NewMember again = new NewMember(this, group, one, "group.instance.id", "b");
        again.start();
        until("the static member is back", () -> again.assigned.equals(before));
        same(revoked, a.revoked, "revocations that the other member saw");
        List<String[]> more = numbered(300);
        for (String[] m : more) m[1] += "b";
        send(topic, more);
        a.end();
        until("the one that stays has all partitions", () -> shareNew(6, again));
        until("everything is consumed", () -> {
            Set<String> all = new HashSet<>(a.seen);
            all.addAll(b.seen);
            all.addAll(again.seen);
            return all.size() == 600;
        });
        again.end();
        Set<String> values = new HashSet<>();
        send(topic, List.<String[]>of(new String[] {"k", "last"}));
        try (KafkaConsumer<byte[], byte[]> next = consumer(group, "group.protocol", "consumer", "group.instance.id", "b")) {
            next.subscribe(List.of(topic));
            take(next, 1).forEach(r -> values.add(text(r.value())));
        }
        same(Set.of("last"), values, "what is left after the commits");
    }

    void consumerPattern() throws Exception {
        String prefix = "java-pattern-" + UUID.randomUUID();
        for (String end : List.of("-a", "-b"))
            admin.createTopics(List.of(new NewTopic(prefix + end, 2, (short) 1))).all().get();
        NewMember a = new NewMember(this, freshGroup(), (c, m) -> c.subscribe(new SubscriptionPattern(prefix + "-.*"), m));
        a.start();
        until("the topics that match are assigned", () -> shareNew(4, a));
        admin.createTopics(List.of(new NewTopic(prefix + "-c", 1, (short) 1))).all().get();
        until("a topic that comes later is assigned", () -> shareNew(5, a));
        a.end();
        try (KafkaConsumer<byte[], byte[]> wrong = consumer(freshGroup(), "group.protocol", "consumer")) {
            wrong.subscribe(new SubscriptionPattern("["));
            try {
                long end = System.nanoTime() + WAIT.toNanos();
                while (System.nanoTime() < end) wrong.poll(POLL);
                throw new AssertionError("an expression that is none was taken");
            } catch (InvalidRegularExpression e) {
                check(e.getMessage().contains("not a valid regular expression"), "another text: " + e.getMessage());
            }
        }
    }

    void manyPartitions() throws Exception {
        String topic = topic(100);
        List<String[]> sent = new ArrayList<>();
        for (int i = 0; i < 5000; i++) sent.add(new String[] {"k" + i % 250, "" + i});
        send(topic, sent);
        Map<String, Integer> last = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> r : read(topic, 5000, 100)) {
            int n = Integer.parseInt(text(r.value()));
            check(last.getOrDefault(text(r.key()), -1) < n, "a key is out of order");
            last.put(text(r.key()), n);
        }
        same(250, last.size(), "keys");
    }

    void metadata() throws Exception {
        String topic = "java-auto-" + UUID.randomUUID();
        send(topic, List.<String[]>of(new String[] {null, "created by being produced to"}));
        read(topic, 1, 1);
        check(admin.listTopics().names().get().contains(topic), "the topic is not listed");
        try {
            admin.createTopics(List.of(new NewTopic("not a legal name!", 1, (short) 1))).all().get();
            throw new AssertionError("an illegal name was taken");
        } catch (ExecutionException e) {
            check(e.getCause() instanceof InvalidTopicException, "another error: " + e.getCause());
        }
        try {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            throw new AssertionError("a name was taken twice");
        } catch (ExecutionException e) {
            check(e.getCause() instanceof TopicExistsException, "another error: " + e.getCause());
        }
    }

    public static void main(String[] arguments) {
        if (List.of(arguments).equals(List.of("--list"))) {
            CASES.keySet().forEach(System.out::println);
            return;
        }
        List<String> names = new ArrayList<>(List.of(arguments).subList(1, arguments.length));
        if (names.isEmpty()) names.addAll(CASES.keySet());
        int failed = 0;
        Cases cluster = new Cases(arguments[0]);
        for (String name : names) {
            try {
                CASES.get(name).run(cluster);
                System.out.println("ok " + name);
            } catch (Throwable e) {
                failed++;
                e.printStackTrace();
                System.out.println("FAIL " + name + ": " + e);
            }
        }
        cluster.admin.close(Duration.ofSeconds(5));
        System.exit(failed > 0 ? 1 : 0);
    }
}
