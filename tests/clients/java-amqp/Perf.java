import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import java.io.File;
import java.nio.file.Files;
import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/**
 * RabbitMQ's PerfTest, in a process of its own as from its script, with a number of messages to send and to receive; what it
 * prints is held against what must be there. See ../README.md.
 */
public final class Perf {
    static {
        Shared.CASES.put("smoke", () -> run(1, 1, 2000, "-c", "100", "-q", "100", "-f", "persistent"));
        Shared.CASES.put("automatic_acks", () -> run(1, 1, 20_000, "-a"));
        Shared.CASES.put("transient", () -> run(2, 2, 20_000, "-s", "1000", "-q", "200", "-A", "50"));
        Shared.CASES.put("confirms", () -> run(2, 2, 20_000, "-c", "200", "-q", "200", "-A", "10", "-f", "persistent", "-s", "200"));
        Shared.CASES.put("many_queues", () -> run(10, 10, 5000, "-c", "50", "-q", "20", "-f", "persistent"));
        Shared.CASES.put("quorum_queue", () -> run(2, 2, 10_000, "-c", "100", "-q", "100", "-qq"));
        Shared.CASES.put("topic", () -> run(1, 1, 10_000, "-c", "100", "-q", "100", "-t", "topic", "-e", Shared.fresh("topic")));
        Shared.CASES.put("polling", () -> run(1, 1, 1000, "-po"));
        Shared.CASES.put("transactions", () -> run(1, 1, 2000, "-m", "10", "-n", "10", "-q", "100"));
        Shared.CASES.put("large", () -> run(1, 1, 200, "-c", "10", "-q", "10", "-s", "1000000", "-f", "persistent"));
        Shared.CASES.put("rate", () -> run(1, 1, 1000, "-r", "500", "-c", "10", "-q", "100"));
    }

    private Perf() {}

    /**
     * So many producers with so many messages each, and as many consumers, over as many queues: a consumer that has its number keeps
     * what it was sent beyond it, so that two at one queue might wait for ever.
     */
    static void run(int pairs, int queues, int messages, String... options) throws Exception {
        String name = Shared.fresh("perf");
        List<String> command = new ArrayList<>(List.of(
            new File(System.getProperty("java.home"), "bin/java").getPath(), "-Xmx256m", "-cp", System.getProperty("java.class.path"),
            "com.rabbitmq.perf.PerfTest", "-h", "amqp://" + Shared.host + ":" + Shared.port,
            "-x", "" + pairs, "-y", "" + pairs, "-C", "" + messages, "-D", "" + messages, "-st", "30", "-ad", "false",
            "--queue-pattern", name + "-%d", "--queue-pattern-from", "1", "--queue-pattern-to", "" + queues));
        command.addAll(List.of(options));
        String said = ended(command);
        Shared.check(!Pattern.compile("WARN|ERROR|Exception").matcher(said).find(), "PerfTest warned:\n" + said);
        Shared.check(said.contains("sending rate avg") && said.contains("receiving rate avg"), "no rates:\n" + said);
        try (Connection connection = Client.connect(); Channel channel = connection.createChannel()) {
            for (int i = 1; i <= queues; i++) {
                Shared.same(0L, channel.messageCount(name + "-" + i), "messages left in queue " + i);
                Shared.same(0, channel.queueDelete(name + "-" + i).getMessageCount(), "messages deleted with queue " + i);
            }
        }
    }

    /** What a program said that has to end by itself, without an error. */
    static String ended(List<String> command) throws Exception {
        File said = File.createTempFile("perf-test", ".log");
        try {
            Process process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(said).start();
            boolean ended = process.waitFor(Shared.WAIT_MS * 2, TimeUnit.MILLISECONDS);
            if (!ended) process.destroyForcibly().waitFor();
            String text = Files.readString(said.toPath());
            Shared.check(ended, "PerfTest did not end:\n" + text);
            Shared.check(process.exitValue() == 0, "PerfTest ended with " + process.exitValue() + ":\n" + text);
            return text;
        } finally {
            said.delete();
        }
    }

    public static void main(String[] arguments) {
        Shared.main(arguments);
    }
}
