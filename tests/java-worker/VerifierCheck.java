/** What the Java worker's verifier says of a reader that was stopped in the middle; ends with 1 and what is wrong. */
final class VerifierCheck {
    private static void same(String what, long wanted, long found) {
        if (wanted != found) {
            System.err.println(what + ": " + found + ", not " + wanted);
            System.exit(1);
        }
    }

    public static void main(String[] arguments) {
        // Two partitions, messages in turns; the second one was read to 9, the first one only to 4.
        Verifier scattered = new Verifier(true);
        for (long sequence : new long[] {0, 2, 4}) {
            scattered.see(0, 7, sequence);
        }
        for (long sequence : new long[] {1, 5, 7, 9}) {
            scattered.see(1, 7, sequence);
        }
        same("all that is missing", 3, scattered.lost());
        same("of which both partitions have come past 3 alone", 1, scattered.followed(2, 0));
        same("which may have swapped places with 4", 0, scattered.followed(2, 1));
        same("a partition of which nothing was read", 0, scattered.followed(3, 0));

        Verifier each = new Verifier(false);
        each.see(0, 7, 0);
        each.see(0, 7, 2);
        same("a hole in a partition that is read in order", 1, each.followed(2, 100));
    }
}
