import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.HdrHistogram.Histogram;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The official Java client as a worker. Its contract, and what the fields of the spec mean, stand in crates/bench/src/contract.rs.
 */
public final class Worker {
    private static final long SECOND_NS = 1_000_000_000L;
    private static final long MS_NS = 1_000_000L;
    private static final long LATENCY_NS_MAX = 600 * SECOND_NS;
    private static final long DRAIN_NS_MAX = 60 * SECOND_NS;
    /** Time enough to serve the callbacks of the last second before it is told. */
    private static final long TELL_AFTER_NS = 500 * MS_NS;
    private static final int STAMP_BYTES = 20;
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long JOIN_NS_MAX = 60 * SECOND_NS;
    private static final ObjectMapper JSON = new ObjectMapper();

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
    private final Tally publish = new Tally();
    private final Tally endToEnd = new Tally();
    private final AtomicLong sent = new AtomicLong();
    private final AtomicLong acked = new AtomicLong();
    private final AtomicLong errors = new AtomicLong();
    private final AtomicLong lastAck = new AtomicLong();
    private final List<Reader> readers = new ArrayList<>();
    private final List<Sender> senders = new ArrayList<>();
    private volatile String error;
    private volatile long start;
    private volatile long measured;
    private volatile long end;
    private volatile long deadline;
    private volatile boolean produced;

    private Worker(JsonNode spec, PrintStream out) {
        this.spec = spec;
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Worker worker = new Worker(JSON.readTree(in.readLine()), out);
        worker.prepare();
        out.println("{\"ready\":true}");
        worker.run(JSON.readTree(in.readLine()).get("start_ns").asLong());
        // The clients' own threads must not keep the process.
        System.exit(0);
    }

    /** Latencies: all that were measured, and those of the running second. */
    private static final class Tally {
        private final Histogram total = new Histogram(LATENCY_NS_MAX, 3);
        private Histogram second = new Histogram(LATENCY_NS_MAX, 3);
        private long count;

        synchronized void add(long ns, boolean counts) {
            long value = Math.min(Math.max(ns, 0), LATENCY_NS_MAX);
            second.recordValue(value);
            count++;
            if (counts) {
                total.recordValue(value);
            }
        }

        synchronized long tell(ObjectNode into, String name, boolean named) {
            if (named) {
                into.put(name + "_max_ns", second.getMaxValue());
                if (second.getTotalCount() >= 10_000) {
                    into.put(name + "_p99_ns", second.getValueAtPercentile(99));
                }
            }
            second.reset();
            long told = count;
            count = 0;
            return told;
        }

        synchronized String text() {
            ByteBuffer buffer = ByteBuffer.allocate(total.getNeededByteBufferCapacity());
            int length = total.encodeIntoCompressedByteBuffer(buffer);
            return Base64.getEncoder().encodeToString(Arrays.copyOf(buffer.array(), length));
        }
    }

    private long number(String name) {
        return spec.get(name).asLong();
    }

    private void failed(String what) {
        if (error == null) {
            error = what;
        }
    }

    private void prepare() throws InterruptedException {
        for (int group = 0; group < number("groups"); group++) {
            for (int number = 0; number < number("consumers"); number++) {
                readers.add(new Reader(group));
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

    /** Whether the readers of every group have all partitions between them, and their positions. */
    private boolean assigned() {
        long all = number("groups") * number("partitions");
        return readers.stream().mapToLong(reader -> reader.assigned).sum() == all;
    }

    private void run(long startNs) throws InterruptedException {
        start = startNs;
        measured = start + number("warmup_ms") * MS_NS;
        end = measured + number("window_ms") * MS_NS;
        deadline = end + DRAIN_NS_MAX;
        long cpu = cpu();
        senders.forEach(Thread::start);
        long second = 0;
        while (readers.stream().anyMatch(Thread::isAlive) || senders.stream().anyMatch(Thread::isAlive)) {
            if (!produced && senders.stream().noneMatch(Thread::isAlive)) {
                produced = true;
            }
            Thread.sleep(20);
            if (now() >= start + (second + 1) * SECOND_NS + TELL_AFTER_NS) {
                tell(second++);
            }
        }
        tell(second);
        done(cpu);
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private long sentBefore;

    private void tell(long second) {
        ObjectNode line = JSON.createObjectNode();
        ObjectNode told = line.putObject("second");
        long all = sent.get();
        told.put("second", second).put("sent", all - sentBefore);
        sentBefore = all;
        told.put("acked", publish.tell(told, "publish", true));
        told.put("received", endToEnd.tell(told, "end_to_end", true));
        out.println(line);
    }

    private void done(long cpu) {
        long groups = number("groups");
        long wanted = number("expect") > 0 ? number("expect") : senders.isEmpty() ? 0 : acked.get();
        long received = 0;
        long lost = 0;
        long duplicated = 0;
        long outOfOrder = 0;
        long bytes = 0;
        long last = 0;
        for (long group = 0; group < groups; group++) {
            long inGroup = 0;
            long holes = 0;
            for (Reader reader : readers) {
                if (reader.group == group) {
                    inGroup += reader.verifier.received;
                    holes += reader.verifier.lost();
                    duplicated += reader.verifier.duplicated;
                    outOfOrder += reader.verifier.outOfOrder;
                    bytes += reader.bytes;
                    last = Math.max(last, reader.last);
                }
            }
            received += inGroup;
            lost += Math.max(holes, Math.max(wanted - inGroup, 0));
        }
        ObjectNode line = JSON.createObjectNode();
        ObjectNode done = line.putObject("done");
        done.put("sent", sent.get()).put("acked", acked.get()).put("errors", sent.get() - acked.get());
        if (error != null) {
            done.put("error", error);
        }
        done.put("received", received).put("lost", lost).put("duplicated", duplicated).put("out_of_order", outOfOrder);
        done.put("cpu_s", (cpu() - cpu) / (double) SECOND_NS);
        done.put("publish_s", Math.max(lastAck.get() - start, 0) / (double) SECOND_NS);
        done.put("read_s", Math.max(last - start, 0) / (double) SECOND_NS).put("read_bytes", bytes);
        done.put("publish", publish.text()).put("end_to_end", endToEnd.text());
        out.println(line);
    }

    private boolean measures(long intended) {
        return intended >= measured && intended < end;
    }

    /** One producer, on the schedule of crates/bench/src/schedule.rs. */
    private final class Sender extends Thread {
        private final int number;
        private final KafkaProducer<byte[], byte[]> producer;
        private final byte[] filler;
        private final long[] sequences;
        private final long perPartition;

        Sender(int number) {
            super("bench-produce-" + number);
            this.number = number;
            Properties settings = new Properties();
            settings.put("bootstrap.servers", spec.get("bootstrap").asText());
            settings.put("acks", "all");
            settings.put("batch.size", Long.toString(number("batch_bytes")));
            settings.put("linger.ms", Long.toString(number("linger_us") / 1000));
            settings.put("max.in.flight.requests.per.connection", Long.toString(number("in_flight")));
            settings.put("key.serializer", ByteArraySerializer.class.getName());
            settings.put("value.serializer", ByteArraySerializer.class.getName());
            producer = new KafkaProducer<>(settings);
            producer.partitionsFor(spec.get("topic").asText());
            filler = new byte[(int) number("message_bytes")];
            new java.util.Random(now() + number).nextBytes(filler);
            sequences = new long[(int) number("partitions")];
            perPartition = Math.max(number("batch_bytes") / number("message_bytes"), 1);
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
            } catch (RuntimeException e) {
                failed(e.toString());
            }
            producer.close(Duration.ofNanos(Math.max(deadline - now(), SECOND_NS)));
        }

        private void send() {
            String topic = spec.get("topic").asText();
            long rate = number("rate");
            long all = number("messages");
            long share = all / number("producers") + (number < all % number("producers") ? 1 : 0);
            long limit = all == 0 ? Long.MAX_VALUE : share;
            int producerNumber = (int) (number("producer_base") + number);
            int first = (int) (number("partitions") * number / number("producers"));
            pauseUntil(start);
            for (long index = 0; index < limit && error == null; index++) {
                long intended = rate > 0 ? due(index) : now();
                if (intended >= end) {
                    return;
                }
                if (rate > 0) {
                    pauseUntil(intended);
                }
                int partition = (int) ((first + index / perPartition) % sequences.length);
                // The client keeps the message until it is acknowledged, so each has an array of its own.
                byte[] message = filler.clone();
                ByteBuffer stamp = ByteBuffer.wrap(message);
                stamp.putLong(intended).putLong(sequences[partition]++).putInt(producerNumber);
                sent.incrementAndGet();
                producer.send(new ProducerRecord<>(topic, partition, null, message), (metadata, refused) -> {
                    if (refused != null) {
                        errors.incrementAndGet();
                        failed(refused.toString());
                        return;
                    }
                    long now = now();
                    acked.incrementAndGet();
                    lastAck.accumulateAndGet(now, Math::max);
                    publish.add(now - intended, measures(intended));
                });
            }
        }

        private void pauseUntil(long at) {
            for (long left = at - now(); left > 0; left = at - now()) {
                LockSupport.parkNanos(left);
            }
        }
    }

    /** One reader, a member of its group. */
    private final class Reader extends Thread {
        final int group;
        final Verifier verifier = new Verifier();
        volatile long assigned;
        volatile long got;
        long bytes;
        long last;

        Reader(int group) {
            super("bench-read-" + group);
            this.group = group;
        }

        private KafkaConsumer<byte[], byte[]> consumer() {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", spec.get("bootstrap").asText());
            settings.put("group.id", "bench-" + number("producer_base") + "-" + group);
            settings.put("auto.offset.reset", spec.get("from").asText().equals("end") ? "latest" : "earliest");
            settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
            settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
            return new KafkaConsumer<>(settings);
        }

        @Override
        public void run() {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
                consumer.subscribe(List.of(spec.get("topic").asText()), new ConsumerRebalanceListener() {
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
                });
                while (!finished()) {
                    take(consumer.poll(POLL));
                }
            } catch (RuntimeException e) {
                failed(e.toString());
            }
        }

        private boolean finished() {
            if (start == 0) {
                return false;
            }
            if (now() > deadline || error != null) {
                return true;
            }
            long wanted = number("expect") > 0 ? number("expect") : produced && !senders.isEmpty() ? acked.get() : Long.MAX_VALUE;
            if (senders.isEmpty() && number("expect") == 0) {
                return now() >= end;
            }
            return readers.stream().filter(reader -> reader.group == group).mapToLong(reader -> reader.got).sum() >= wanted;
        }

        private void take(ConsumerRecords<byte[], byte[]> records) {
            long now = now();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                byte[] value = record.value();
                bytes += value.length;
                last = now;
                got++;
                if (!spec.get("verify").asBoolean()) {
                    continue;
                }
                if (value.length < STAMP_BYTES) {
                    failed("partition " + record.partition() + " holds a message without a stamp");
                    return;
                }
                ByteBuffer stamp = ByteBuffer.wrap(value);
                long intended = stamp.getLong();
                verifier.see(record.partition(), stamp.getInt(16), stamp.getLong(8));
                endToEnd.add(now - intended, measures(intended));
            }
        }
    }
}
