//! What a journal has done, in numbers.

/// Upper bounds of the flush time buckets, in microseconds; the last bucket has none.
pub const FLUSH_BUCKETS_US: [u64; 12] =
    [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000];

/// Counters since the journal was opened, and what there is now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Bytes written to files for frames and file headers, padding included.
    pub bytes_written: u64,
    /// Zeros written ahead.
    pub bytes_prewritten: u64,
    /// Native bytes of entries written.
    pub payload_bytes: u64,
    /// Entries written.
    pub entries: u64,
    /// Frames written, local ones included.
    pub frames: u64,
    /// Proposals written.
    pub proposals: u64,
    /// Proposals refused, of any reason.
    pub refused: u64,
    /// Groups handed to a flush.
    pub groups: u64,
    /// Flushes finished.
    pub flushes: u64,
    /// Time spent in flushes. Nanoseconds.
    pub flush_ns: u64,
    /// How many flushes took at most [`FLUSH_BUCKETS_US`] microseconds; the last one counts the rest.
    pub flush_buckets: [u64; FLUSH_BUCKETS_US.len() + 1],
    /// Files begun.
    pub files_begun: u64,
    /// Of these, how many were neither recycled nor made ahead.
    pub files_made_late: u64,
    /// Files recycled.
    pub files_recycled: u64,
    /// Files removed.
    pub files_removed: u64,
    /// Files with frames now.
    pub files: u64,
    /// Proposals in the queue now.
    pub queue_count: u64,
    /// Their bytes.
    pub queue_bytes: u64,
}

impl Stats {
    /// Counts one flush.
    pub(crate) fn flushed(&mut self, ns: u64) {
        self.flushes += 1;
        self.flush_ns += ns;
        let us = ns / 1_000;
        let bucket = FLUSH_BUCKETS_US.partition_point(|bound| *bound < us);
        self.flush_buckets[bucket] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_falls_into_the_bucket_whose_bound_it_does_not_exceed() {
        let mut stats = Stats::default();
        stats.flushed(50_000);
        stats.flushed(51_000);
        stats.flushed(2_000_000_000);
        assert_eq!((stats.flush_buckets[0], stats.flush_buckets[1], stats.flush_buckets[12]), (1, 1, 1));
        assert_eq!(stats.flushes, 3);
    }
}
