import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.Callable;
import org.slf4j.LoggerFactory;

/** What the programs of AMQP clients in Java share. See ../README.md. */
final class Shared {
    static final long WAIT_MS = 60_000;

    interface Case {
        void run() throws Exception;
    }

    /** Cases by name, in their order. */
    static final Map<String, Case> CASES = new LinkedHashMap<>();

    static String host;
    static int port;

    private Shared() {}

    static String fresh(String prefix) {
        return prefix + "-" + UUID.randomUUID();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static void same(Object wanted, Object got, String what) {
        check(Objects.equals(wanted, got), what + ": wanted " + wanted + ", got " + got);
    }

    static void until(String what, Callable<Boolean> holds) throws Exception {
        long end = System.nanoTime() + WAIT_MS * 1_000_000;
        while (!holds.call()) {
            check(System.nanoTime() < end, "never happened: " + what);
            Thread.sleep(20);
        }
    }

    static void main(String[] arguments) {
        if (List.of(arguments).equals(List.of("--list"))) {
            CASES.keySet().forEach(System.out::println);
            return;
        }
        int colon = arguments[0].lastIndexOf(':');
        host = arguments[0].substring(0, colon);
        port = Integer.parseInt(arguments[0].substring(colon + 1));
        List<String> names = new ArrayList<>(List.of(arguments).subList(1, arguments.length));
        if (names.isEmpty()) names.addAll(CASES.keySet());
        // The log comes with PerfTest.
        ((Logger) LoggerFactory.getLogger(Logger.ROOT_LOGGER_NAME)).setLevel(Level.WARN);
        int failed = 0;
        for (String name : names) {
            try {
                CASES.get(name).run();
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
