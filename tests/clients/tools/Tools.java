import java.io.File;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

/** Kafka's own command-line tools, each in a process of its own as from its script, and Kafka Streams. See ../README.md. */
public final class Tools {
    static final long TOOL_SECS = 90;
    static final Duration WAIT = Duration.ofSeconds(90);

    interface Case {
        void run(Tools tools) throws Exception;
    }

    static final Map<String, Case> CASES = new LinkedHashMap<>();

    static {
        CASES.put("topics", Tools::topics);
        CASES.put("topics_alter", Tools::topicsAlter);
        CASES.put("configs_topic", Tools::configsTopic);
        CASES.put("configs_broker", Tools::configsBroker);
        CASES.put("configs_group", Tools::configsGroup);
        CASES.put("console", Tools::console);
        CASES.put("groups", Tools::groups);
        CASES.put("groups_reset", Tools::groupsReset);
        CASES.put("groups_delete", Tools::groupsDelete);
        CASES.put("perf", Tools::perf);
        CASES.put("verifiable", Tools::verifiable);
        CASES.put("end_to_end", Tools::endToEnd);
        CASES.put("compatibility", Tools::compatibility);
        CASES.put("get_offsets", Tools::getOffsets);
        CASES.put("delete_records", Tools::deleteRecords);
        CASES.put("cluster", Tools::cluster);
        CASES.put("log_dirs", Tools::logDirs);
        CASES.put("quorum", Tools::quorum);
        CASES.put("features", Tools::features);
        CASES.put("acls", Tools::acls);
        CASES.put("scram_users", Tools::scramUsers);
        CASES.put("quotas", Tools::quotas);
        CASES.put("streams", Tools::streams);
    }

    static final String TOPIC = "org.apache.kafka.tools.TopicCommand";
    static final String CONFIG = "kafka.admin.ConfigCommand";
    static final String GROUP = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";

    final String bootstrap;

    Tools(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static String fresh(String prefix) {
        return prefix + "-" + UUID.randomUUID();
    }

    /** What a tool said, on both outputs, and how it ended. */
    record Said(String tool, int code, String text) {
        Said ok() {
            check(code == 0, tool + " ended with " + code + ": " + text);
            return this;
        }

        /** That a line matches; gives the match. */
        Matcher has(String pattern) {
            Matcher m = Pattern.compile(pattern, Pattern.MULTILINE).matcher(text);
            check(m.find(), tool + " did not say /" + pattern + "/: " + text);
            return m;
        }

        Said hasNot(String pattern) {
            check(!Pattern.compile(pattern, Pattern.MULTILINE).matcher(text).find(), tool + " said /" + pattern + "/: " + text);
            return this;
        }
    }

    /** Runs a tool with this input. */
    static Said start(String name, String input, String... arguments) throws Exception {
        List<String> command = new ArrayList<>(List.of(ProcessHandle.current().info().command().orElse("java"), "-Xmx256m",
            "-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path"), name));
        command.addAll(List.of(arguments));
        File said = File.createTempFile("tool", ".txt");
        try {
            Process process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(said).start();
            try (OutputStream to = process.getOutputStream()) {
                to.write(input.getBytes(StandardCharsets.UTF_8));
            }
            boolean ended = process.waitFor(TOOL_SECS, TimeUnit.SECONDS);
            if (!ended) process.destroyForcibly().waitFor();
            String text = Files.readString(said.toPath(), StandardCharsets.UTF_8);
            String tool = name.substring(name.lastIndexOf('.') + 1) + " " + String.join(" ", arguments);
            check(ended, tool + " did not end; it said: " + text);
            return new Said(tool, process.exitValue(), text);
        } finally {
            Files.delete(said.toPath());
        }
    }

    /** Runs a tool that takes the address first, as all but one do. */
    Said tool(String name, String... arguments) throws Exception {
        return start(name, "", with(new String[] {"--bootstrap-server", bootstrap}, arguments));
    }

    String topic(int partitions) throws Exception {
        String name = fresh("tools");
        tool(TOPIC, "--create", "--topic", name, "--partitions", "" + partitions, "--replication-factor", "1").ok()
            .has("Created topic " + name);
        return name;
    }

    /** Produces k0:v0, k1:v1 and so on with the console producer. */
    void produce(String topic, int count) throws Exception {
        StringBuilder lines = new StringBuilder();
        for (int i = 0; i < count; i++) lines.append("k").append(i).append(":v").append(i).append("\n");
        start("org.apache.kafka.tools.ConsoleProducer", lines.toString(), "--bootstrap-server", bootstrap, "--topic", topic, "--reader-property", "parse.key=true",
            "--reader-property", "key.separator=:").ok().hasNot("ERROR|Exception");
    }

    /** Consumes with the console consumer, in a group where there is one. */
    Said consume(String topic, int count, String group) throws Exception {
        List<String> arguments = new ArrayList<>(List.of("--topic", topic, "--from-beginning", "--max-messages", "" + count,
            "--timeout-ms", "60000", "--formatter-property", "print.key=true", "--formatter-property", "key.separator=:"));
        if (group != null) arguments.addAll(List.of("--group", group));
        Said said = tool("org.apache.kafka.tools.consumer.ConsoleConsumer", arguments.toArray(new String[0])).ok();
        said.has("Processed a total of " + count + " messages");
        return said;
    }

    void topics() throws Exception {
        String name = fresh("tools");
        tool(TOPIC, "--create", "--topic", name, "--partitions", "3", "--replication-factor", "1", "--config", "retention.ms=3600000")
            .ok();
        tool(TOPIC, "--list").ok().has("^" + name + "$");
        Said described = tool(TOPIC, "--describe", "--topic", name).ok();
        described.has("PartitionCount: 3\\s+ReplicationFactor: 1\\s+Configs: .*retention.ms=3600000");
        for (int p = 0; p < 3; p++) described.has("Partition: " + p + "\\s+Leader: \\d+\\s+Replicas: \\d+\\s+Isr: \\d+");
        Said twice = tool(TOPIC, "--create", "--topic", name);
        check(twice.code() != 0, "a name was taken twice");
        twice.has("Topic '" + name + "' already exists");
        tool(TOPIC, "--create", "--if-not-exists", "--topic", name).ok();
        tool(TOPIC, "--delete", "--topic", name).ok();
        tool(TOPIC, "--list").ok().hasNot("^" + name + "$");
    }

    void topicsAlter() throws Exception {
        String name = topic(2);
        tool(TOPIC, "--alter", "--topic", name, "--partitions", "5").ok();
        tool(TOPIC, "--describe", "--topic", name).ok().has("PartitionCount: 5");
        Said fewer = tool(TOPIC, "--alter", "--topic", name, "--partitions", "4");
        check(fewer.code() != 0, "partitions were taken away");
        fewer.has("would not be an increase");
        produce(name, 50);
        consume(name, 50, null);
    }

    void configsTopic() throws Exception {
        String name = topic(1);
        String[] of = {"--entity-type", "topics", "--entity-name", name};
        Said all = tool(CONFIG, with(of, "--describe", "--all")).ok();
        all.has("retention\\.ms=604800000 sensitive=false synonyms=\\{");
        all.has("min\\.insync\\.replicas=1");
        tool(CONFIG, with(of, "--alter", "--add-config", "retention.ms=7200000,cleanup.policy=[compact,delete]")).ok()
            .has("Completed updating config for topic " + name);
        Said described = tool(CONFIG, with(of, "--describe")).ok();
        described.has("retention\\.ms=7200000 sensitive=false synonyms=\\{DYNAMIC_TOPIC_CONFIG:retention.ms=7200000");
        described.has("cleanup\\.policy=compact,delete");
        tool(CONFIG, with(of, "--alter", "--delete-config", "retention.ms,cleanup.policy")).ok();
        tool(CONFIG, with(of, "--describe")).ok().hasNot("retention\\.ms|cleanup\\.policy");
        Said refused = tool(CONFIG, with(of, "--alter", "--add-config", "retention.ms=soon"));
        check(refused.code() != 0, "a time that is none was taken");
        refused.has("InvalidConfigurationException|InvalidRequestException|ConfigException");
    }

    void configsBroker() throws Exception {
        String id = tool("org.apache.kafka.tools.BrokerApiVersionsCommand").ok().has("\\(id: (\\d+) rack").group(1);
        String[] of = {"--entity-type", "brokers", "--entity-name", id};
        tool(CONFIG, with(of, "--describe", "--all")).ok().has("message\\.max\\.bytes=1048588 sensitive=false");
        tool(CONFIG, with(of, "--alter", "--add-config", "message.max.bytes=2000000")).ok();
        tool(CONFIG, with(of, "--describe")).ok().has("message\\.max\\.bytes=2000000");
        tool(CONFIG, with(of, "--alter", "--delete-config", "message.max.bytes")).ok();
        tool(CONFIG, with(of, "--describe")).ok().hasNot("message\\.max\\.bytes=2000000");
    }

    void acls() throws Exception {
        String acl = "org.apache.kafka.tools.AclCommand", name = fresh("tools"), user = "User:" + fresh("user");
        String[] of = {"--topic", name, "--group", "g"};
        tool(acl, with(of, "--add", "--allow-principal", user, "--consumer")).ok()
            .has("resourceType=TOPIC, name=" + name + ", patternType=LITERAL");
        tool(acl, "--add", "--deny-principal", user, "--operation", "Write", "--topic", name, "--resource-pattern-type", "prefixed").ok();
        Said listed = tool(acl, "--list", "--principal", user).ok();
        listed.has("principal=" + user + ", host=\\*, operation=READ, permissionType=ALLOW");
        listed.has("operation=WRITE, permissionType=DENY");
        tool(acl, "--list", "--topic", name + "-more", "--resource-pattern-type", "match").ok().has("permissionType=DENY");
        tool(acl, with(of, "--remove", "--allow-principal", user, "--consumer", "--force")).ok();
        tool(acl, "--remove", "--topic", name, "--resource-pattern-type", "prefixed", "--force").ok();
        tool(acl, "--list", "--principal", user).ok().hasNot("permissionType=");
        Said wrong = tool(acl, "--add", "--allow-principal", "untyped", "--operation", "Read", "--topic", name);
        check(wrong.code() != 0, "a principal without a type was taken");
    }

    void scramUsers() throws Exception {
        String[] of = {"--entity-type", "users", "--entity-name", fresh("user")};
        tool(CONFIG, with(of, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret],SCRAM-SHA-512=[password=secret]"))
            .ok().has("Completed updating config for user");
        Said described = tool(CONFIG, with(of, "--describe"));
        described.has("SCRAM-SHA-256=iterations=8192");
        described.has("SCRAM-SHA-512=iterations=4096");
        tool(CONFIG, with(of, "--alter", "--delete-config", "SCRAM-SHA-256")).ok();
        tool(CONFIG, with(of, "--describe")).hasNot("SCRAM-SHA-256");
    }

    void quotas() throws Exception {
        String user = fresh("user"), id = fresh("client");
        String[] ofUser = {"--entity-type", "users", "--entity-name", user};
        String[] ofClient = {"--entity-type", "clients", "--entity-name", id};
        String[] ofBoth = with(ofUser, ofClient);
        tool(CONFIG, with(ofUser, "--alter", "--add-config", "producer_byte_rate=1048576,request_percentage=12.5")).ok()
            .has("Completed updating config for user " + user);
        tool(CONFIG, with(ofClient, "--alter", "--add-config", "consumer_byte_rate=2097152")).ok();
        tool(CONFIG, with(ofBoth, "--alter", "--add-config", "consumer_byte_rate=1024")).ok();
        Said described = tool(CONFIG, with(ofUser, "--describe")).ok();
        described.has("user-principal '" + user + "' are .*producer_byte_rate=1048576");
        described.has("request_percentage=12.5");
        tool(CONFIG, with(ofBoth, "--describe")).ok().has("consumer_byte_rate=1024");
        tool(CONFIG, "--entity-type", "clients", "--describe").ok().has("client-id '" + id + "' are consumer_byte_rate=2097152");
        Said refused = tool(CONFIG, with(ofUser, "--alter", "--add-config", "producer_byte_rate=0"));
        check(refused.code() != 0, "a rate of nothing was taken");
        refused.has("producer_byte_rate must be greater than 0");
        tool(CONFIG, with(ofUser, "--alter", "--delete-config", "producer_byte_rate,request_percentage")).ok();
        tool(CONFIG, with(ofClient, "--alter", "--delete-config", "consumer_byte_rate")).ok();
        tool(CONFIG, with(ofBoth, "--alter", "--delete-config", "consumer_byte_rate")).ok();
        tool(CONFIG, with(ofUser, "--describe")).ok().hasNot("producer_byte_rate");
    }

    void configsGroup() throws Exception {
        String[] of = {"--entity-type", "groups", "--entity-name", fresh("g")};
        tool(CONFIG, with(of, "--alter", "--add-config", "consumer.session.timeout.ms=50000")).ok();
        tool(CONFIG, with(of, "--describe")).ok().has("consumer\\.session\\.timeout\\.ms=50000");
        tool(CONFIG, with(of, "--alter", "--delete-config", "consumer.session.timeout.ms")).ok();
    }

    static String[] with(String[] first, String... more) {
        String[] all = Arrays.copyOf(first, first.length + more.length);
        System.arraycopy(more, 0, all, first.length, more.length);
        return all;
    }

    void console() throws Exception {
        String name = topic(3);
        produce(name, 100);
        Said said = consume(name, 100, null);
        for (int i = 0; i < 100; i++) said.has("^k" + i + ":v" + i + "$");
    }

    /** A topic with two partitions and 60 messages, of which a group has consumed all; gives both names. */
    String[] consumed() throws Exception {
        String name = topic(2), group = fresh("g");
        produce(name, 60);
        consume(name, 60, group);
        return new String[] {name, group};
    }

    void groups() throws Exception {
        String[] names = consumed();
        String topic = names[0], group = names[1];
        tool(GROUP, "--list").ok().has("^" + group + "$");
        Said described = tool(GROUP, "--describe", "--group", group).ok();
        described.has("Consumer group '" + group + "' has no active members");
        long end = 0;
        for (int p = 0; p < 2; p++) {
            // GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG
            Matcher row = described.has("^" + group + "\\s+" + topic + "\\s+" + p + "\\s+(\\d+)\\s+(\\d+)\\s+0\\s");
            check(row.group(1).equals(row.group(2)), "an offset that is not the end: " + row.group());
            end += Long.parseLong(row.group(2));
        }
        check(end == 60, "the partitions end at " + end);
        tool(GROUP, "--describe", "--state", "--group", group).ok().has("^" + group + "\\s.*\\bEmpty\\s+0\\s*$");
        tool(GROUP, "--describe", "--members", "--group", group).ok().has("has no active members");
        tool(GROUP, "--list", "--state", "empty").ok().has("^" + group + "\\s+Empty");
        tool(GROUP, "--describe", "--group", fresh("missing")).has("not found");
    }

    void groupsReset() throws Exception {
        String[] names = consumed();
        String[] of = {"--reset-offsets", "--group", names[1], "--topic", names[0]};
        tool(GROUP, with(of, "--to-earliest", "--dry-run")).ok().has("^" + names[1] + "\\s+" + names[0] + "\\s+0\\s+0");
        tool(GROUP, "--describe", "--group", names[1]).ok().has(names[0] + "\\s+0\\s+[1-9]");
        tool(GROUP, with(of, "--to-earliest", "--execute")).ok();
        tool(GROUP, "--describe", "--group", names[1]).ok().has(names[0] + "\\s+0\\s+0\\s+\\d+\\s+[1-9]");
        consume(names[0], 60, names[1]);
        tool(GROUP, with(of, "--shift-by", "-1", "--execute")).ok();
        tool(GROUP, with(of, "--to-datetime", "2001-01-01T00:00:00.000", "--execute")).ok().has(names[0] + "\\s+1\\s+0");
    }

    void groupsDelete() throws Exception {
        String[] names = consumed();
        tool(GROUP, "--delete-offsets", "--group", names[1], "--topic", names[0] + ":0").ok().has("Successful");
        tool(GROUP, "--describe", "--group", names[1]).ok().hasNot(names[0] + "\\s+0\\s");
        tool(GROUP, "--delete", "--group", names[1]).ok().has("Deletion of requested consumer groups .* was successful");
        tool(GROUP, "--list").ok().hasNot("^" + names[1] + "$");
        tool(GROUP, "--delete", "--group", names[1]).has("GroupIdNotFoundException");
    }

    void perf() throws Exception {
        String name = topic(6);
        tool("org.apache.kafka.tools.ProducerPerformance", "--topic", name, "--num-records", "20000", "--record-size", "1000",
            "--throughput", "-1", "--command-property", "acks=all").ok().has("^20000 records sent, .* 99.9th");
        Said said = tool("org.apache.kafka.tools.ConsumerPerformance", "--topic", name, "--num-records", "20000", "--timeout",
            "60000").ok();
        // start, end, MB, MB/s, messages, ...
        said.has("^\\d{4}-.*, \\d{4}-.*, 19\\.\\d+, [0-9.]+, 20\\d{3}, ");
    }

    void verifiable() throws Exception {
        String name = topic(3);
        Said produced = tool("org.apache.kafka.tools.VerifiableProducer", "--topic", name, "--max-messages", "1000", "--acks", "-1")
            .ok();
        produced.has("\"name\":\"tool_data\".*\"sent\":1000.*\"acked\":1000|\"acked\":1000.*\"sent\":1000");
        check(produced.text().lines().filter(l -> l.contains("\"producer_send_success\"")).count() == 1000, "acknowledgements");
        Said read = tool("org.apache.kafka.tools.VerifiableConsumer", "--topic", name, "--group-id", fresh("g"), "--max-messages",
            "1000", "--reset-policy", "earliest", "--verbose").ok();
        check(read.text().lines().filter(l -> l.contains("\"record_data\"")).count() == 1000, "records: " + read.text());
        read.has("\"name\":\"offsets_committed\".*\"success\":true|\"success\":true.*\"name\":\"offsets_committed\"");
    }

    void endToEnd() throws Exception {
        tool("org.apache.kafka.tools.EndToEndLatency", "--topic", topic(1), "--num-records", "1000", "--producer-acks", "all",
            "--record-size", "100").ok().has("Percentiles: 50th = \\d+, 99th = \\d+, 99.9th = \\d+");
    }

    void compatibility() throws Exception {
        tool("org.apache.kafka.tools.ClientCompatibilityTest", "--topic", topic(1), "--offsets-for-times-supported", "true",
            "--cluster-id-supported", "true", "--expect-record-too-large-exception", "false", "--num-cluster-nodes", "1",
            "--create-topics-supported", "true", "--describe-acls-supported", "true", "--describe-configs-supported", "true",
            "--idempotent-producer-supported", "true").ok().hasNot("FAILED|Exception");
    }

    void getOffsets() throws Exception {
        String name = topic(1);
        produce(name, 10);
        String tool = "org.apache.kafka.tools.GetOffsetShell";
        tool(tool, "--topic", name).ok().has("^" + name + ":0:10$");
        tool(tool, "--topic", name, "--time", "earliest").ok().has("^" + name + ":0:0$");
        tool(tool, "--topic", name, "--time", "max-timestamp").ok().has("^" + name + ":0:[0-9]$");
    }

    void deleteRecords() throws Exception {
        String name = topic(1);
        produce(name, 10);
        Path file = Files.createTempFile("records", ".json");
        try {
            Files.writeString(file, "{\"version\":1,\"partitions\":[{\"topic\":\"" + name + "\",\"partition\":0,\"offset\":4}]}");
            tool("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", file.toString()).ok()
                .has("partition: " + name + "-0\\s+low_watermark: 4");
        } finally {
            Files.delete(file);
        }
        consume(name, 6, null).has("^k4:v4$");
    }

    void cluster() throws Exception {
        String tool = "org.apache.kafka.tools.ClusterTool";
        start(tool, "", "cluster-id", "--bootstrap-server", bootstrap).ok().has("Cluster ID: \\S+");
        start(tool, "", "list-endpoints", "--bootstrap-server", bootstrap).ok().has("127\\.0\\.0\\.1");
    }

    void logDirs() throws Exception {
        String name = topic(2);
        produce(name, 100);
        Said said = tool("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", name).ok();
        said.has("\"partition\":\"" + name + "-0\",\"size\":[1-9]");
        said.hasNot("\"error\":\"");
    }

    void quorum() throws Exception {
        Said status = tool("org.apache.kafka.tools.MetadataQuorumCommand", "describe", "--status").ok();
        for (String row : List.of("LeaderId:\\s+\\d+", "LeaderEpoch:\\s+[1-9]\\d*", "HighWatermark:\\s+[1-9]\\d*",
                "MaxFollowerLag:\\s+0", "MaxFollowerLagTimeMs:\\s+0", "CurrentVoters:\\s+\\[.+\\]")) {
            status.has("^" + row + "\\s*$");
        }
        tool("org.apache.kafka.tools.MetadataQuorumCommand", "describe", "--replication").ok()
                .has("^\\d+\\s+[\\w-]{22}\\s+[1-9]\\d*\\s+0\\s+\\d+\\s+\\d+\\s+Leader");
    }

    void features() throws Exception {
        tool("org.apache.kafka.tools.FeatureCommand", "describe").ok().has("Feature: metadata.version\\s.*FinalizedVersionLevel:");
    }

    void streams() throws Exception {
        String in = topic(2), out = topic(2);
        List<String> lines = List.of("all streams lead to the log", "hello log", "join the log", "all is well");
        Map<String, Long> wanted = new TreeMap<>();
        Map<String, Object> client = Map.of("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(client, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < 400; i++) {
                String line = lines.get(i % lines.size());
                producer.send(new ProducerRecord<>(in, "" + i, line));
                for (String word : line.split(" ")) wanted.merge(word, 1L, Long::sum);
            }
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(in, Consumed.with(Serdes.String(), Serdes.String())).flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String())).count(Materialized.as("counts"))
            .toStream().to(out, Produced.with(Serdes.String(), Serdes.Long()));
        Path state = Files.createTempDirectory("streams");
        Properties settings = new Properties();
        settings.putAll(Map.of("application.id", fresh("wordcount"), "bootstrap.servers", bootstrap, "num.stream.threads", 2,
            "state.dir", state.toString(), "processing.guarantee", "at_least_once", "commit.interval.ms", 200,
            "auto.offset.reset", "earliest", "replication.factor", 1));
        try (KafkaStreams application = new KafkaStreams(builder.build(), settings)) {
            application.start();
            Map<String, Long> counts = counts(out, wanted);
            check(counts.equals(wanted), "wanted " + wanted + ", got " + counts);
            check(application.state() == KafkaStreams.State.RUNNING, "the application is " + application.state());
        } finally {
            try (var files = Files.walk(state)) {
                files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
            }
        }
    }

    /** The last count of each word, read until they are these or the time is over. */
    Map<String, Long> counts(String topic, Map<String, Long> wanted) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "group.id", fresh("g"), "auto.offset.reset", "earliest");
        Map<String, Long> counts = new TreeMap<>();
        try (KafkaConsumer<String, Long> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new LongDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + WAIT.toNanos();
            while (!counts.equals(wanted) && System.nanoTime() < end) {
                for (ConsumerRecord<String, Long> r : consumer.poll(Duration.ofMillis(200))) counts.put(r.key(), r.value());
            }
        }
        return counts;
    }

    public static void main(String[] arguments) {
        if (List.of(arguments).equals(List.of("--list"))) {
            CASES.keySet().forEach(System.out::println);
            return;
        }
        List<String> names = new ArrayList<>(List.of(arguments).subList(1, arguments.length));
        if (names.isEmpty()) names.addAll(CASES.keySet());
        int failed = 0;
        Tools tools = new Tools(arguments[0]);
        for (String name : names) {
            try {
                CASES.get(name).run(tools);
                System.out.println("ok " + name);
            } catch (Throwable e) {
                failed++;
                e.printStackTrace();
                System.out.println("FAIL " + name + ": " + e);
            }
        }
        System.exit(failed > 0 ? 1 : 0);
    }
}
