import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;

/** Whether every message of a reader arrived once and in order: the rules of crates/bench/src/verify.rs. */
final class Verifier {
    private static final int HOLES_MAX = 4096;

    long received;
    long duplicated;
    long outOfOrder;
    private long givenUp;
    private final Map<Long, Track> tracks = new HashMap<>();

    /** The messages of one producer in one partition. */
    private static final class Track {
        long next;
        /** Sequences that were jumped over: start, and end (exclusive). */
        final TreeMap<Long, Long> holes = new TreeMap<>();
    }

    void see(int partition, int producer, long sequence) {
        Track track = tracks.computeIfAbsent((long) partition << 32 | producer & 0xffffffffL, key -> new Track());
        if (sequence >= track.next) {
            if (sequence > track.next) {
                track.holes.put(track.next, sequence);
                if (track.holes.size() > HOLES_MAX) {
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
        outOfOrder++;
    }

    /** Messages after which others arrived and which never did. */
    long lost() {
        long lost = givenUp;
        for (Track track : tracks.values()) {
            for (Map.Entry<Long, Long> hole : track.holes.entrySet()) {
                lost += hole.getValue() - hole.getKey();
            }
        }
        return lost;
    }
}
