import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;

/**
 * The official Java clients as a worker. Its contract, and what the fields of the spec mean, stand in crates/bench-load/src/contract.rs.
 *
 * <p>Here is what is the same for all: the schedule, the stamps, the verification, the histograms. A {@link Client} for each system
 * is compiled and run with the jars of that system alone, because their dependencies do not get along.
 */
public final class Worker {
    private static final long SECOND_NS = 1_000_000_000L;
    private static final long MS_NS = 1_000_000L;
    /** How long after its window a run may take to its end; shorter in tests only. */
    private static final long DRAIN_NS_MAX = Long.getLong("bench.drain_ms", 60_000) * MS_NS;
    /** How much longer threads that sit in a client are waited for: then the run is over without them. */
    private static final long STUCK_NS_MAX = Long.getLong("bench.stuck_ms", 10_000) * MS_NS;
    /** How often the run is looked at, unless a second ends before: what came after it is not that second's. */
    private static final long LOOK_NS = 20 * MS_NS;
    private static final int STAMP_BYTES = 20;
    private static final long POLL_MS = 100;
    /** How often a reader counts its partitions before the start: a client that has many of them takes its time. */
    private static final long ASSIGNED_EVERY_NS = 100 * MS_NS;
    /** Of threads that sit in a client so many are named. */
    private static final int STUCK_TOLD_MAX = 3;
    private static final long JOIN_NS_MAX = 90 * SECOND_NS;
    /** How long a client may take to end; what it has to say after that is not heard. */
    private static final long CLOSE_MS_MAX = 5_000;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, String> CLIENTS = Map.of(
            "kafka", "KafkaSystem",
            "rabbitmq", "RabbitSystem",
            "rabbitmq-stream", "StreamSystem",
            "pulsar", "PulsarSystem",
            "rocketmq", "RocketSystem",
            "tubemq", "TubeSystem");

    /** Unix nanoseconds of the zero of System.nanoTime(): read once, so that setting the clock does no harm. */
    private static final long EPOCH_NS = epoch();

    private static long epoch() {
        Instant now = Instant.now();
        return now.getEpochSecond() * SECOND_NS + now.getNano() - System.nanoTime();
    }

    static long now() {
        return System.nanoTime() + EPOCH_NS;
    }

    private final JsonNode spec;
    private final PrintStream out;
    private final Client client;
    private final Tally publish;
    private final Tally endToEnd;
    private final AtomicLong sent = new AtomicLong();
    private final AtomicLong acked = new AtomicLong();
    /** Of these, the ones that groups which filter get. */
    private final AtomicLong filtered = new AtomicLong();
    private final AtomicLong lastAck = new AtomicLong();
    private final AtomicLong readBytes = new AtomicLong();
    private final List<Group> groups = new ArrayList<>();
    private final List<Reader> readers = new ArrayList<>();
    private final List<Sender> senders = new ArrayList<>();
    private volatile String error;
    private volatile long start;
    private volatile long measured;
    private volatile long end;
    private volatile long deadline;
    private volatile boolean produced;
    private long sentBefore;

    private Worker(JsonNode spec, PrintStream out) throws Exception {
        this.spec = spec;
        this.out = out;
        publish = new Tally(Client.shape(spec).path("histograms").asBoolean());
        endToEnd = new Tally(Client.shape(spec).path("histograms").asBoolean());
        String system = spec.has("system") ? spec.get("system").asText() : "kafka";
        String name = CLIENTS.get(system);
        if (name == null) {
            throw new IllegalArgumentException("there is no client for " + system);
        }
        try {
            client = (Client) Class.forName(name).getDeclaredConstructor(JsonNode.class).newInstance(spec);
        } catch (InvocationTargetException e) {
            throw e.getCause() instanceof Exception cause ? cause : e;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        // What a client prints is no line of the contract.
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            Worker worker = new Worker(JSON.readTree(in.readLine()), out);
            worker.prepare();
            out.println("{\"ready\":true}");
            String stated = in.readLine();
            if (stated != null) {
                worker.run(JSON.readTree(stated).get("start_ns").asLong(), in);
            }
        } catch (Throwable e) {
            e.printStackTrace();
            // The clients' own threads must not keep the process.
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }

    private long number(String name) {
        return spec.get(name).asLong();
    }

    private void failed(Object what) {
        if (error == null) {
            error = String.valueOf(what);
        }
    }

    private void prepare() throws Exception {
        if (spec.has("create") && spec.get("create").asBoolean()) {
            client.create();
        }
        for (int number = 0; number < number("groups"); number++) {
            Group group = new Group(number);
            groups.add(group);
            client.group(number);
            for (int reader = 0; reader < number("consumers"); reader++) {
                readers.add(new Reader(group, reader));
            }
        }
        readers.forEach(Thread::start);
        long until = now() + JOIN_NS_MAX;
        while (!assigned()) {
            if (now() > until || error != null) {
                throw new IllegalStateException("the groups have not got their partitions: " + error);
            }
            Thread.sleep(10);
        }
        for (int number = 0; number < number("producers"); number++) {
            senders.add(new Sender(number));
        }
    }

    /**
     * Whether the readers of every group have all partitions between them, and their positions; and each reader some, where there are enough.
     * One that joins when messages go already takes partitions from another, and what was read of them before looked like a loss to it.
     */
    private boolean assigned() {
        return groups.stream().allMatch(group -> {
            long all = (long) Client.topicsOf(spec, group.number) * number("partitions");
            var has = readers.stream().filter(reader -> reader.group == group).mapToLong(reader -> reader.assigned).summaryStatistics();
            return has.getSum() == all && (all < has.getCount() || has.getMin() > 0);
        });
    }

    /** Moves the times of the run; what ends is moved first, so that no reader finds the run over meanwhile. */
    private void measure(long from, long windowMs) {
        deadline = from + windowMs * MS_NS + DRAIN_NS_MAX;
        end = from + windowMs * MS_NS;
        measured = from;
    }

    /** Waits for the word that ends an open warm-up. */
    private void listen(BufferedReader in) {
        try {
            String stated = in.readLine();
            if (stated != null) {
                JsonNode measure = JSON.readTree(stated);
                measure(measure.required("measure_ns").asLong(), measure.required("window_ms").asLong());
            }
        } catch (IOException | RuntimeException e) {
            failed("what should end the warm-up is no good: " + e);
        }
    }

    private void run(long startNs, BufferedReader in) throws InterruptedException {
        measure(startNs + number("warmup_ms") * MS_NS, number("window_ms"));
        start = startNs;
        if (spec.path("open_warmup").asBoolean()) {
            Thread listener = new Thread(() -> listen(in), "bench-listen");
            listener.setDaemon(true);
            listener.start();
        }
        long cpu = cpu();
        senders.forEach(Thread::start);
        long second = 0;
        while (readers.stream().anyMatch(Thread::isAlive) || senders.stream().anyMatch(Thread::isAlive)) {
            if (now() > deadline + STUCK_NS_MAX) {
                failed("the client has not come to its end: it is stuck in " + stuck());
                break;
            }
            if (!produced && senders.stream().noneMatch(Thread::isAlive)) {
                produced = true;
            }
            long ends = start + (second + 1) * SECOND_NS;
            LockSupport.parkNanos(Math.max(Math.min(ends - now(), LOOK_NS), 1));
            if (now() >= ends) {
                tell(second++);
            }
        }
        tell(second);
        done(cpu);
    }

    /** The threads that have not ended, each with where it is. */
    private String stuck() {
        List<Thread> threads = new ArrayList<>(senders);
        threads.addAll(readers);
        return threads.stream().filter(Thread::isAlive).map(thread -> {
            StackTraceElement[] at = thread.getStackTrace();
            return thread.getName() + (at.length > 0 ? " (" + at[0] + ")" : "");
        }).limit(STUCK_TOLD_MAX).collect(Collectors.joining(", "));
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private void tell(long second) {
        ObjectNode line = JSON.createObjectNode();
        ObjectNode stated = line.putObject("second");
        long all = sent.get();
        stated.put("second", second).put("sent", all - sentBefore);
        sentBefore = all;
        stated.put("acked", publish.tell(stated, "publish"));
        stated.put("received", endToEnd.tell(stated, "end_to_end"));
        out.println(line);
    }

    private void done(long cpu) {
        long received = 0;
        long lost = 0;
        long followed = 0;
        long duplicated = 0;
        long outOfOrder = 0;
        long last = 0;
        // A reader that only has a time is stopped in the middle.
        boolean stopped = senders.isEmpty() && number("expect") == 0;
        for (Group group : groups) {
            long inGroup = 0;
            long holes = 0;
            long passed = 0;
            long partitions = (long) Client.topicsOf(spec, group.number) * number("partitions");
            for (Verifier verifier : group.verifiers) {
                inGroup += verifier.received;
                holes += verifier.lost();
                passed += verifier.followed(partitions, Client.pending(spec));
                duplicated += verifier.duplicated;
                outOfOrder += verifier.outOfOrder;
            }
            long wanted = number("expect") > 0 ? number("expect") : senders.isEmpty() ? 0 : ackedFor(group.number);
            received += spec.get("verify").asBoolean() ? inGroup : group.got.get();
            followed += passed;
            lost += stopped ? passed : Math.max(holes, Math.max(wanted - inGroup, 0));
            last = Math.max(last, group.last.get());
        }
        ObjectNode line = JSON.createObjectNode();
        ObjectNode done = line.putObject("done");
        done.put("sent", sent.get()).put("acked", acked.get()).put("errors", sent.get() - acked.get());
        if (error != null) {
            done.put("error", error);
        }
        done.put("received", received).put("lost", lost).put("duplicated", duplicated).put("out_of_order", outOfOrder);
        done.put("holes", followed);
        done.put("cpu_s", (cpu() - cpu) / (double) SECOND_NS);
        done.put("publish_s", Math.max(lastAck.get() - start, 0) / (double) SECOND_NS);
        done.put("read_s", Math.max(last - start, 0) / (double) SECOND_NS).put("read_bytes", readBytes.get());
        done.put("publish", publish.text()).put("end_to_end", endToEnd.text());
        out.println(line);
    }

    /** Messages acknowledged that a group gets. */
    private long ackedFor(int group) {
        return Client.filters(spec, group) ? filtered.get() : acked.get();
    }

    private boolean measures(long intended) {
        return intended >= measured && intended < end;
    }

    private static void pauseUntil(long at) {
        for (long left = at - now(); left > 0; left = at - now()) {
            LockSupport.parkNanos(left);
        }
    }

    /** One producer, on the schedule of crates/bench-load/src/schedule.rs. */
    private final class Sender extends Thread {
        private final int number;
        private final Client.Producer producer;
        private final byte[] filler;
        private final long[] sequences;
        private final long perPartition;
        /** Messages that may be unanswered, where the client does not count for itself. */
        private final Semaphore room;
        private final int pending;

        Sender(int number) throws Exception {
            super("bench-produce-" + number);
            this.number = number;
            producer = client.producer(number);
            filler = new byte[(int) number("message_bytes")];
            fill();
            sequences = new long[Client.places(spec)];
            perPartition = Client.recordsPerBatch(spec);
            // One at a time is a blocking send, whatever the client would do by itself.
            pending = number("in_flight") == 1 ? 1 : client.pendingMax();
            room = pending > 0 ? new Semaphore(pending) : null;
        }

        private void fill() {
            JsonNode payloads = Client.shape(spec).path("payloads");
            if (payloads.hasNonNull("message")) {
                byte[] given = java.util.Base64.getDecoder().decode(payloads.get("message").asText());
                if (given.length != filler.length) {
                    throw new IllegalArgumentException("the message that was given has another length");
                }
                System.arraycopy(given, 0, filler, 0, given.length);
                return;
            }
            byte[] random = new byte[(int) (filler.length * payloads.path("random_per_mille").asLong(1_000) / 1_000)];
            new java.util.Random(now() + number).nextBytes(random);
            System.arraycopy(random, 0, filler, 0, random.length);
        }

        /** The place of a message, counted over all topics. */
        private int place(int first, long index) {
            return switch (Client.shape(spec).path("spread").asText("batch")) {
                case "round_robin" -> (int) ((first + index) % sequences.length);
                case "random" -> java.util.concurrent.ThreadLocalRandom.current().nextInt(sequences.length);
                default -> (int) ((first + index / perPartition) % sequences.length);
            };
        }

        private long due(long index) {
            // The product of a day's messages and a second fits; the place is small enough to be taken apart.
            long place = index * number("producers") + number;
            long rate = number("rate");
            return start + place / rate * SECOND_NS + place % rate * SECOND_NS / rate;
        }

        @Override
        public void run() {
            try {
                send();
                // All room is there again when all is answered.
                if (!answeredInTime(pending)) {
                    failed("messages were not answered in time");
                }
            } catch (Exception e) {
                failed(e);
            }
            try {
                producer.close(Math.max((deadline - now()) / MS_NS, 1_000));
            } catch (Exception e) {
                failed(e);
            }
        }

        private void send() throws Exception {
            long rate = number("rate");
            long all = number("messages");
            long share = all / number("producers") + (number < all % number("producers") ? 1 : 0);
            long limit = all == 0 ? Long.MAX_VALUE : share;
            int producerNumber = (int) (number("producer_base") + number);
            int first = (int) ((long) sequences.length * number / number("producers"));
            pauseUntil(start);
            for (long index = 0; index < limit && error == null; index++) {
                long intended = rate > 0 ? due(index) : now();
                if (intended >= end) {
                    return;
                }
                if (rate > 0) {
                    pauseUntil(intended);
                }
                int partition = place(first, index);
                // The client keeps the message until it is acknowledged, so each has an array of its own.
                byte[] message = filler.clone();
                ByteBuffer stamp = ByteBuffer.wrap(message);
                long sequence = sequences[client.scatters() ? 0 : partition]++;
                stamp.putLong(intended).putLong(sequence).putInt(producerNumber);
                boolean forFew = partition < Client.topicsOf(spec, (int) number("groups") - 1) * number("partitions")
                        && (!client.filtersThere() || Client.wants(spec, sequence));
                if (!answeredInTime(1)) {
                    failed("messages were not answered in time");
                    return;
                }
                sent.incrementAndGet();
                producer.send(partition, message, refused -> answered(intended, forFew, refused));
                if (number("in_flight") == 1) {
                    // The answer gives the room back: the message is answered when there is room again.
                    if (!answeredInTime(1)) {
                        failed("messages were not answered in time");
                        return;
                    }
                    room.release();
                }
            }
        }

        /** Waits for room for so many messages, and takes it. */
        private boolean answeredInTime(int messages) throws InterruptedException {
            return room == null || error != null || room.tryAcquire(messages, deadline - now(), TimeUnit.NANOSECONDS);
        }

        private void answered(long intended, boolean forFew, Object refused) {
            if (room != null) {
                room.release();
            }
            if (refused != null) {
                failed(refused);
                return;
            }
            long now = now();
            if (forFew) {
                filtered.incrementAndGet();
            }
            acked.incrementAndGet();
            lastAck.accumulateAndGet(now, Math::max);
            publish.add(now - intended, measures(intended));
        }
    }

    /** The readers of a group, and what they got together. */
    private final class Group {
        final int number;
        final AtomicLong got = new AtomicLong();
        final AtomicLong last = new AtomicLong();
        /** One for each reader; or one for all, when any of them may get a producer's next message. */
        final List<Verifier> verifiers = new ArrayList<>();

        Group(int number) {
            this.number = number;
        }

        Verifier verifier() {
            if (verifiers.isEmpty() || !client.scatters()) {
                verifiers.add(new Verifier(client.scatters()));
            }
            return verifiers.get(verifiers.size() - 1);
        }
    }

    /** One reader, a member of its group. */
    private final class Reader extends Thread implements Client.Sink {
        private final Group group;
        private final int number;
        private final Verifier verifier;
        private final boolean verifies = spec.get("verify").asBoolean();
        private final long bytesPerSecondMax = number("read_bytes_per_s_max");
        /** The only producer whose messages count; -1: all do. */
        private final int onlyProducer = Client.shape(spec).path("only_producer").asInt(-1);
        volatile long assigned;
        /** What still comes while the client ends, on a thread of its own, is counted nowhere: the run is being reported then. */
        private volatile boolean ended;

        Reader(Group group, int number) {
            super("bench-read-" + group.number + "-" + number);
            this.group = group;
            this.number = number;
            verifier = group.verifier();
        }

        @Override
        public void run() {
            Client.Consumer consumer = null;
            try {
                consumer = client.consumer(group.number, number, this);
                long look = 0;
                while (!finished()) {
                    consumer.poll(POLL_MS);
                    if (start == 0 && now() >= look) {
                        assigned = consumer.assigned();
                        look = now() + ASSIGNED_EVERY_NS;
                    }
                }
            } catch (Exception e) {
                failed(e);
            }
            end(consumer);
        }

        /** A client that does not come to its end keeps no other process: its process ends. */
        private void end(Client.Consumer consumer) {
            ended = true;
            if (consumer == null) {
                return;
            }
            Client.Consumer ending = consumer;
            Thread closer = new Thread(() -> {
                try {
                    ending.close();
                } catch (Exception e) {
                    e.printStackTrace();
                }
            });
            closer.setDaemon(true);
            closer.start();
            try {
                closer.join(CLOSE_MS_MAX);
            } catch (InterruptedException e) {
                interrupt();
            }
        }

        private boolean finished() {
            if (start == 0) {
                return error != null;
            }
            if (now() > deadline || error != null) {
                return true;
            }
            long wanted = number("expect") > 0 ? number("expect") : produced && !senders.isEmpty() ? ackedFor(group.number) : Long.MAX_VALUE;
            if (senders.isEmpty() && number("expect") == 0) {
                return now() >= Worker.this.end;
            }
            return group.got.get() >= wanted;
        }

        @Override
        public void failed(Object why) {
            Worker.this.failed(why);
        }

        @Override
        public void take(int partition, byte[] message) {
            if (ended) {
                return;
            }
            long now = now();
            long bytes = readBytes.addAndGet(message.length);
            group.last.accumulateAndGet(now, Math::max);
            if (verifies) {
                if (message.length < STAMP_BYTES) {
                    failed("partition " + partition + " holds a message without a stamp");
                    return;
                }
                ByteBuffer stamp = ByteBuffer.wrap(message);
                if (onlyProducer >= 0 && stamp.getInt(16) != onlyProducer) {
                    return;
                }
                long intended = stamp.getLong();
                boolean filters = Client.filters(spec, group.number);
                // What the broker leaves out is no loss: there only the count is looked at.
                if (filters && client.filtersThere()) {
                    verifier.count();
                } else {
                    verifier.see(partition, stamp.getInt(16), stamp.getLong(8));
                }
                if (!filters || Client.wants(spec, stamp.getLong(8))) {
                    endToEnd.add(now - intended, measures(intended));
                }
            }
            group.got.incrementAndGet();
            if (bytesPerSecondMax > 0 && start > 0) {
                pauseUntil(Math.min(start + (long) ((double) bytes / bytesPerSecondMax * SECOND_NS), deadline));
            }
        }
    }
}
