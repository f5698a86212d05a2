import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.LongUnaryOperator;

/**
 * Whether every message of a reader arrived once and in order: the rules of crates/bench-load/src/verify.rs. Where a client picks the
 * partition, a producer's messages are numbered over all partitions: whether they arrived is looked at over all, and order in each.
 */
final class Verifier {
    private static final int HOLES_MAX = 4096;
    /** Partitions are not read in step, so there are many more. */
    private static final int SCATTERED_HOLES_MAX = 1 << 20;

    long received;
    long duplicated;
    long outOfOrder;
    private long givenUp;
    private final Map<Long, Track> tracks = new HashMap<>();
    private final boolean scattered;
    /** The highest sequence of a producer in a partition, when they are scattered. */
    private final Map<Long, Long> highest = new HashMap<>();

    Verifier(boolean scattered) {
        this.scattered = scattered;
    }

    /** The messages of one producer in one partition. */
    private static final class Track {
        long next;
        /** Sequences that were jumped over: start, and end (exclusive). */
        final TreeMap<Long, Long> holes = new TreeMap<>();
    }

    /** Takes a message of which nothing but its coming is known. */
    synchronized void count() {
        received++;
    }

    synchronized void see(int partition, int producer, long sequence) {
        long place = (long) partition << 32 | producer & 0xffffffffL;
        if (scattered && highest.merge(place, sequence, Math::max) > sequence) {
            outOfOrder++;
        }
        Track track = tracks.computeIfAbsent(scattered ? producer & 0xffffffffL : place, key -> new Track());
        if (sequence >= track.next) {
            if (sequence > track.next) {
                track.holes.put(track.next, sequence);
                if (track.holes.size() > (scattered ? SCATTERED_HOLES_MAX : HOLES_MAX)) {
                    Map.Entry<Long, Long> oldest = track.holes.pollFirstEntry();
                    givenUp += oldest.getValue() - oldest.getKey();
                }
            }
            track.next = sequence + 1;
            received++;
            return;
        }
        Map.Entry<Long, Long> hole = track.holes.floorEntry(sequence);
        if (hole == null || sequence >= hole.getValue()) {
            duplicated++;
            return;
        }
        track.holes.remove(hole.getKey());
        if (hole.getKey() < sequence) {
            track.holes.put(hole.getKey(), sequence);
        }
        if (sequence + 1 < hole.getValue()) {
            track.holes.put(sequence + 1, hole.getValue());
        }
        received++;
        if (!scattered) {
            outOfOrder++;
        }
    }

    /** Messages after which others arrived and which never did. */
    synchronized long lost() {
        return before(producer -> Long.MAX_VALUE);
    }

    /**
     * Of these, the ones that the reader had surely come past, when it was stopped in the middle. Where messages are scattered it has
     * read some partitions further than others, and what is missing may lie in one of those: it has come past what is older than the
     * last message of every partition, but for as many as may be under way at a time and so swap places.
     */
    synchronized long followed(long partitions, long swapped) {
        if (!scattered) {
            return lost();
        }
        return before(producer -> {
            var ends = highest.entrySet().stream().filter(end -> (end.getKey() & 0xffffffffL) == producer).mapToLong(Map.Entry::getValue);
            var all = ends.summaryStatistics();
            return all.getCount() < partitions ? 0 : all.getMin() - swapped;
        });
    }

    /** Missing messages, of each producer those before such a one. */
    private long before(LongUnaryOperator end) {
        long missing = givenUp;
        for (Map.Entry<Long, Track> track : tracks.entrySet()) {
            long until = end.applyAsLong(track.getKey() & 0xffffffffL);
            for (Map.Entry<Long, Long> hole : track.getValue().holes.entrySet()) {
                missing += Math.max(Math.min(hole.getValue(), until) - hole.getKey(), 0);
            }
        }
        return missing;
    }
}
