//! Queues closed by a machine because it proposes to delete them.
//!
//! ```text
//!   machine: judges ──close──> the queue's shard: no consumers, it is empty │ consumers that come now are refused
//!      └──record──> log ──commit──> machine: the queue is gone ──> its topic is deleted, and the queue with it
//!                    └──lost──> open again
//! ```
//!
//! Checking a queue and closing it are atomic under the state of its shard. The machine stays locked from there until its record is proposed, so that
//! later requests for the queue by its name find none.

use crate::broker::Inner;
use crate::queues::Queues;
use crate::shard::ShardState;
use polylogue_api::{CloseIf, QueueCloser, QueueCounts};
use polylogue_types::PartitionId;

impl ShardState {
    /// Returns the counts of a queue or a stream, without a stream's bytes.
    pub(crate) fn queue_counts(&self, queue: PartitionId) -> Option<QueueCounts> {
        if let Some(host) = self.queues.hosts.get(&queue) {
            return Some(host.counts());
        }
        let consumers = self.queues.streams.get(&queue)?.consumers();
        let there = self.there(queue);
        let ready = there.end.0.saturating_sub(there.start.0);
        Some(QueueCounts { ready, consumers, ..QueueCounts::default() })
    }
}

impl Queues {
    /// Returns whether a queue refuses consumers because it is about to be deleted.
    pub(crate) fn is_closed(&self, queue: PartitionId) -> bool {
        self.closed.contains(&queue)
    }
}

impl Inner {
    /// Reopens the queues whose deletion was lost with the writer.
    pub(crate) fn open_queues(&self) {
        for shard in self.all_shards() {
            shard.state.lock().queues.closed.clear();
        }
    }
}

impl QueueCloser for Inner {
    fn close(&self, queue: PartitionId, only: CloseIf) -> Result<QueueCounts, QueueCounts> {
        let Some(shard) = self.partition_shard(queue) else { return Ok(QueueCounts::default()) };
        let mut state = shard.state.lock();
        let Some(counts) = state.queue_counts(queue) else { return Ok(QueueCounts::default()) };
        if (only.unused && counts.consumers > 0) || (only.empty && counts.ready > 0) {
            return Err(counts);
        }
        state.queues.closed.insert(queue);
        Ok(counts)
    }

    fn open(&self, queue: PartitionId) {
        if let Some(shard) = self.partition_shard(queue) {
            shard.state.lock().queues.closed.remove(&queue);
        }
    }
}
