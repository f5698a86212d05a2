//! What an operator may look at: partitions, shards, failures of background work.

use crate::broker::Broker;
use parking_lot::Mutex;
use polylogue_api::Durability;
use polylogue_log::journal::Stats as JournalStats;
use polylogue_log::store::StoreStats;
use polylogue_types::{Offset, PartitionId, ShardId, Term};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// One partition at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionStatus {
    /// The first offset.
    pub log_start: Offset,
    /// The offset after the last committed message.
    pub high_watermark: Offset,
    /// Native bytes that are kept.
    pub bytes: u64,
    /// Idempotent producers that are remembered.
    pub producers: usize,
    /// The shard that takes its writes.
    pub shard: ShardId,
}

/// One shard at one moment.
#[derive(Clone, Debug)]
pub struct ShardStatus {
    /// Which.
    pub id: ShardId,
    /// Its durability class.
    pub class: Durability,
    /// Its writer's term.
    pub term: Term,
    /// Whether its writer was lost and is about to be taken anew.
    pub writer_lost: bool,
    /// Partitions, those of machines included.
    pub partitions: usize,
    /// Readers that wait for something new.
    pub watches: usize,
    /// Messages on their way to consumers of queues that have not taken them. Bytes.
    pub window_bytes: u64,
    /// Messages of queues that wait for a time far off. A guess, as long as what ended is not matched with what began.
    pub timers_pending: u64,
    /// Of these, and of what is known of them, what is in memory.
    pub timers_resident: u64,
    /// Messages that became ready more than 10 ms after their time, since the start.
    pub timers_late: u64,
    /// Partitions that readers of many follow, counted once for each of these.
    pub followed: usize,
    /// Proposals without an outcome.
    pub proposals_open: u64,
    /// The journal's counters; none for a memory shard.
    pub journal: Option<JournalStats>,
    /// The partition store's counters.
    pub store: StoreStats,
}

/// A kind of background work that failed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Failure {
    /// How often since the start.
    pub count: u64,
    /// What the last one said.
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

    /// Messages that full queues refused go nowhere.
    pub(crate) fn refused_dropped(&self, count: u64) {
        self.refused_dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// The credit of a publish was withheld by a queue.
    pub(crate) fn credit_withheld(&self) {
        self.credit_withheld.fetch_add(1, Ordering::Relaxed);
    }

    /// Credit was given back because it had been withheld for as long as it may.
    pub(crate) fn credit_granted_late(&self, count: u64) {
        if count > 0 {
            self.credit_granted_late.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// A shard was opened without segments that cannot be read.
    pub(crate) fn segments_lost(&self, shard: ShardId, lost: Vec<String>) {
        self.lost_segments.lock().extend(lost.into_iter().map(|segment| format!("shard {shard}: segment {segment}")));
    }
}

impl Broker {
    /// The layout that the data directory was of when it was opened: below [`crate::LAYOUT_VERSION`] it was migrated.
    #[must_use]
    pub fn layout_before(&self) -> u32 {
        self.inner.data.identity.layout
    }

    /// A partition's state; `None` when there is no such partition.
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

    /// All open shards.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardStatus> {
        let shards = self.inner.all_shards();
        let status = shards.iter().map(|shard| {
            let store = shard.store.stats();
            let journal = shard.journal.as_ref().map(|journal| journal.stats());
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
                journal,
                store,
            }
        });
        status.collect()
    }

    /// Journals to which nothing can be written until they have a new writer.
    #[must_use]
    pub fn writers_lost(&self) -> u64 {
        self.inner.all_shards().iter().filter(|shard| shard.state.lock().lost).count() as u64
    }

    /// Segments that could not be read at all when their shards were opened, with the reason. What was in them is fenced.
    #[must_use]
    pub fn lost_segments(&self) -> Vec<String> {
        self.inner.gauges.lost_segments.lock().clone()
    }

    /// Messages that full queues refused and that were to be dead-lettered, and were not: too many were on their way.
    #[must_use]
    pub fn refused_dropped(&self) -> u64 {
        self.inner.gauges.refused_dropped.load(Ordering::Relaxed)
    }

    /// How often a queue that did not keep up withheld the credit of a publish, and how often it gave it back because it had been withheld for as
    /// long as it may.
    #[must_use]
    pub fn credit_withheld(&self) -> (u64, u64) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&self.inner.gauges.credit_withheld), load(&self.inner.gauges.credit_granted_late))
    }

    /// Background work that failed, by what it was.
    #[must_use]
    pub fn failures(&self) -> BTreeMap<&'static str, Failure> {
        self.inner.gauges.failures.lock().clone()
    }
}
