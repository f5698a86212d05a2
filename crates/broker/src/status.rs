//! Status for operators: partitions, shards, failures of background work.

use crate::broker::Broker;
use parking_lot::Mutex;
use polylogue_api::Durability;
use polylogue_log::journal::Stats as JournalStats;
use polylogue_log::store::StoreStats;
use polylogue_types::{Offset, PartitionId, ShardId, Term};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Status of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionStatus {
    /// The first offset.
    pub log_start: Offset,
    /// The offset after the last committed message.
    pub high_watermark: Offset,
    /// Native bytes stored.
    pub bytes: u64,
    /// Known idempotent producers.
    pub producers: usize,
    /// The shard that it is written to.
    pub shard: ShardId,
}

/// Status of a shard.
#[derive(Clone, Debug)]
pub struct ShardStatus {
    /// The shard's id.
    pub id: ShardId,
    /// Its durability class.
    pub class: Durability,
    /// Its writer's term.
    pub term: Term,
    /// The writer was lost and a new term is about to begin.
    pub writer_lost: bool,
    /// Number of partitions, including those of machines.
    pub partitions: usize,
    /// Number of watches (waiting readers).
    pub watches: usize,
    /// Messages sent to consumers of queues and not taken by them. Bytes.
    pub window_bytes: u64,
    /// Delayed messages that are parked. An estimate until ends are matched with starts.
    pub timers_pending: u64,
    /// Timers and unmatched ends in memory.
    pub timers_resident: u64,
    /// Messages that became ready more than 10 ms after their time, since the start.
    pub timers_late: u64,
    /// Partitions in followed sets, counted once per set.
    pub followed: usize,
    /// Proposals without an outcome.
    pub proposals_open: u64,
    /// Read-only commands of machines that wait until what was acknowledged before them is applied.
    pub commands_waiting: usize,
    /// The journal's counters; none for a memory shard.
    pub journal: Option<JournalStats>,
    /// The partition store's counters.
    pub store: StoreStats,
}

/// Failures of one kind of background work.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Failure {
    /// Number of failures since the start.
    pub count: u64,
    /// Text of the last failure.
    pub last: String,
}

/// Counters of the broker itself.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    failures: Mutex<BTreeMap<&'static str, Failure>>,
    lost_segments: Mutex<Vec<String>>,
    refused_dropped: AtomicU64,
    credit_withheld: AtomicU64,
    credit_granted_late: AtomicU64,
}

impl Gauges {
    pub(crate) fn background_failed(&self, what: &'static str, why: &str) {
        let mut failures = self.failures.lock();
        let failure = failures.entry(what).or_default();
        failure.count += 1;
        why.clone_into(&mut failure.last);
    }

    /// Counts messages rejected by full queues that are dropped.
    pub(crate) fn refused_dropped(&self, count: u64) {
        self.refused_dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts a publish whose credit was withheld by a queue.
    pub(crate) fn credit_withheld(&self) {
        self.credit_withheld.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts credit that was granted because the time limit passed.
    pub(crate) fn credit_granted_late(&self, count: u64) {
        if count > 0 {
            self.credit_granted_late.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Records segments that could not be read when a shard was opened.
    pub(crate) fn segments_lost(&self, shard: ShardId, lost: Vec<String>) {
        self.lost_segments.lock().extend(lost.into_iter().map(|segment| format!("shard {shard}: segment {segment}")));
    }
}

impl Broker {
    /// Returns the layout version of the data directory when it was opened: below [`crate::LAYOUT_VERSION`] it was migrated.
    #[must_use]
    pub fn layout_before(&self) -> u32 {
        self.inner.data.identity.layout
    }

    /// Returns the active feature level ([`polylogue_meta::FEATURE_LEVEL`] says which one this version knows).
    #[must_use]
    pub fn feature_level(&self) -> u32 {
        self.inner.machines.lock().meta.shards().level
    }

    /// Returns the status of a partition; `None` if there is no such partition.
    #[must_use]
    pub fn partition_status(&self, id: PartitionId) -> Option<PartitionStatus> {
        let shard = self.inner.routes.read().get(&id).cloned()?;
        let bytes = shard.store.partition_stats(id).map_or(0, |s| s.bytes);
        let state = shard.state.lock();
        let p = state.partitions.get(&id)?;
        Some(PartitionStatus {
            log_start: p.log_start,
            high_watermark: p.high_watermark,
            bytes,
            producers: p.producers.len(),
            shard: shard.id,
        })
    }

    /// Returns the status of all open shards.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardStatus> {
        let shards = self.inner.all_shards();
        let status = shards.iter().map(|shard| {
            let store = shard.store.stats();
            let journal = shard.log.local().map(|files| files.stats());
            let state = shard.state.lock();
            let timers = state.queues.delays.counts();
            ShardStatus {
                id: shard.id,
                class: shard.class,
                term: state.term,
                writer_lost: state.lost,
                partitions: state.partitions.len(),
                watches: state.watches.len(),
                window_bytes: state.queues.window_bytes(),
                timers_pending: timers.pending,
                timers_resident: timers.resident,
                timers_late: timers.late,
                followed: state.follows.len(),
                proposals_open: state.next_ticket.saturating_sub(state.settled),
                commands_waiting: shard.machines.reads.load(Ordering::Relaxed),
                journal,
                store,
            }
        });
        status.collect()
    }

    /// Returns the number of journals that cannot be written to until a new term begins.
    #[must_use]
    pub fn writers_lost(&self) -> u64 {
        self.inner.all_shards().iter().filter(|shard| shard.state.lock().lost).count() as u64
    }

    /// Returns the segments that could not be read when their shards were opened, with the reason. Their content is fenced.
    #[must_use]
    pub fn lost_segments(&self) -> Vec<String> {
        self.inner.gauges.lost_segments.lock().clone()
    }

    /// Returns the number of messages rejected by full queues that were not dead-lettered because too many were in flight.
    #[must_use]
    pub fn refused_dropped(&self) -> u64 {
        self.inner.gauges.refused_dropped.load(Ordering::Relaxed)
    }

    /// Returns how often a queue withheld the credit of a publish, and how often it granted it because the time limit had passed.
    #[must_use]
    pub fn credit_withheld(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.inner.gauges.credit_withheld), load(&self.inner.gauges.credit_granted_late))
    }

    /// Returns the failures of background work, by kind.
    #[must_use]
    pub fn failures(&self) -> BTreeMap<&'static str, Failure> {
        self.inner.gauges.failures.lock().clone()
    }
}
