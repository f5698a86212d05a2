import com.fasterxml.jackson.databind.JsonNode;
import java.util.concurrent.CountDownLatch;

/** A client as none should be: it sits in one of its calls for ever, or gives a message away when it is late. The spec's topic says which. */
final class KafkaSystem implements Client {
    private final String where;
    private final int partitions;
    private final CountDownLatch never = new CountDownLatch(1);

    KafkaSystem(JsonNode spec) {
        where = spec.get("topic").asText();
        partitions = spec.get("partitions").asInt();
    }

    private void sit(String here) throws InterruptedException {
        if (here.equals(where)) {
            never.await();
        }
    }

    @Override
    public void create() {}

    @Override
    public Producer producer(int number) {
        return new Producer() {
            @Override
            public void send(int partition, byte[] message, Answer answer) throws Exception {
                sit("send");
                answer.came(null);
            }

            @Override
            public void close(long millisMax) throws Exception {
                sit("close");
            }
        };
    }

    @Override
    public Consumer consumer(int group, int number, Sink sink) {
        return new Consumer() {
            private boolean asked;

            @Override
            public long assigned() {
                asked = true;
                return partitions;
            }

            @Override
            public void poll(long millisMax) throws Exception {
                if (asked) {
                    sit("poll");
                }
                Thread.sleep(10);
            }

            @Override
            public void close() {
                if (where.equals("late")) {
                    sink.take(0, new byte[100]);
                }
            }
        };
    }
}
