import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Base64;
import org.HdrHistogram.Histogram;

/** Latencies of one kind, over all and of the current second. */
final class Tally {
    private static final long LATENCY_NS_MAX = 600_000_000_000L;
    /** A percentile is given only with a hundred samples beyond it. */
    private static final long P99_SAMPLES_MIN = 10_000;

    private final Histogram total = new Histogram(LATENCY_NS_MAX, 3);
    private final Histogram second = new Histogram(LATENCY_NS_MAX, 3);
    private long count;
    /** Whether the histogram of each second is given with it. */
    private final boolean histograms;

    Tally(boolean histograms) {
        this.histograms = histograms;
    }

    synchronized void add(long ns, boolean measured) {
        long bounded = Math.min(Math.max(ns, 0), LATENCY_NS_MAX);
        second.recordValue(bounded);
        count++;
        if (measured) {
            total.recordValue(bounded);
        }
    }

    /** Writes the second that ends into a line, and gives its messages. */
    synchronized long tell(ObjectNode into, String name) {
        into.put(name + "_max_ns", second.getMaxValue());
        if (second.getTotalCount() >= P99_SAMPLES_MIN) {
            into.put(name + "_p99_ns", second.getValueAtPercentile(99));
        }
        if (histograms && second.getTotalCount() > 0) {
            into.put(name, text(second));
        }
        second.reset();
        long stated = count;
        count = 0;
        return stated;
    }

    synchronized String text() {
        return text(total);
    }

    private static String text(Histogram histogram) {
        ByteBuffer buffer = ByteBuffer.allocate(histogram.getNeededByteBufferCapacity());
        int length = histogram.encodeIntoCompressedByteBuffer(buffer);
        return Base64.getEncoder().encodeToString(Arrays.copyOf(buffer.array(), length));
    }
}
