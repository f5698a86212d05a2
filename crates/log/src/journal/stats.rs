//! What a journal has done, in numbers.

use super::mode::WriteMode;

/// Upper bounds of the buckets of times, in microseconds; the last bucket has none.
pub const STAGE_BUCKETS_US: [u64; 12] =
    [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000];

/// How long a stage on a message's way took, each time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stage {
    /// How often.
    pub count: u64,
    /// All together. Nanoseconds.
    pub ns: u64,
    /// How often at most [`STAGE_BUCKETS_US`] microseconds and more than the bound before; the last one counts the rest.
    pub buckets: [u64; STAGE_BUCKETS_US.len() + 1],
}

impl Stage {
    /// Counts one time.
    pub(crate) fn took(&mut self, ns: u64) {
        self.count += 1;
        self.ns += ns;
        // 50.2 microseconds are more than 50.
        let us = ns.div_ceil(1_000);
        let bucket = STAGE_BUCKETS_US.partition_point(|bound| *bound < us);
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            *bucket += 1;
        }
    }

    /// Adds what another one counted.
    pub fn add(&mut self, other: &Stage) {
        self.count += other.count;
        self.ns += other.ns;
        self.buckets.iter_mut().zip(other.buckets).for_each(|(bucket, more)| *bucket += more);
    }
}

/// Counters since the journal was opened, and what there is now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Bytes written to files for frames and file headers, padding included.
    pub bytes_written: u64,
    /// Of these, bytes of files that are written through the page cache.
    pub bytes_cached: u64,
    /// Zeros written ahead.
    pub bytes_prewritten: u64,
    /// Native bytes of entries written.
    pub payload_bytes: u64,
    /// Entries written.
    pub entries: u64,
    /// Frames written, local ones included.
    pub frames: u64,
    /// Of these, frames of files that are written through the page cache.
    pub frames_cached: u64,
    /// Proposals written.
    pub proposals: u64,
    /// Proposals refused, of any reason.
    pub refused: u64,
    /// Groups that a proposer wrote on its own thread.
    pub groups_prompt: u64,
    /// Groups handed to a flush.
    pub groups: u64,
    /// How long the first proposal of a group with a waiter was in the queue.
    pub queue: Stage,
    /// Building and writing the frames of a group.
    pub write: Stage,
    /// Flushes.
    pub flush: Stage,
    /// Telling the sink of a group: that answers its waiters.
    pub deliver: Stage,
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
    /// Counts bytes written for frames or a file header.
    pub(crate) fn wrote(&mut self, mode: WriteMode, bytes: u64) {
        self.bytes_written += bytes;
        if mode == WriteMode::Cached {
            self.bytes_cached += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_bucket_whose_bound_it_does_not_exceed() {
        let mut stage = Stage::default();
        for ns in [50_000, 50_001, 51_000, 2_000_000_000] {
            stage.took(ns);
        }
        assert_eq!((stage.buckets[0], stage.buckets[1], stage.buckets[12]), (1, 2, 1));
        let mut sum = stage;
        sum.add(&stage);
        assert_eq!((sum.count, sum.ns, sum.buckets[1]), (8, 4_000_302_002, 4));
    }
}
