//! When messages expire that live long: the engine knows it roughly, and the log says it when that matters.

use crate::broker::Inner;
use crate::queues::host::lease_entry;
use crate::queues::lease_ms;
use crate::shard::{Shard, ShardState};
use polylogue_log::store::{EntryAt, Lookup};
use polylogue_types::{Offset, PartitionId};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of entries that are read at once to know when they expire.
const DESCRIBE_BYTES_MAX: usize = 1 << 20;

/// Messages of which the log is asked.
pub(super) struct Uncertain {
    queue: PartitionId,
    offsets: Range<u64>,
    life: u16,
}

impl Inner {
    /// The messages at the head of a queue of which nobody knows whether they have expired, unless the log is being asked already.
    pub(super) fn look_at_times(&self, state: &mut ShardState, id: PartitionId) -> Option<Uncertain> {
        let host = state.queues.hosts.get_mut(&id).filter(|host| !host.describing)?;
        let offsets = host.lease.uncertain(lease_ms(self.env.clock.now_ms()))?;
        host.describing = true;
        let life = host.life;
        state.queues.schedule(id);
        Some(Uncertain { queue: id, offsets, life })
    }

    /// Asks the log; on a reader's thread where the disk is needed. Call it without holding a lock.
    pub(super) fn describe_times(&self, shard: &Arc<Shard>, uncertain: Uncertain) {
        let Range { start, end } = uncertain.offsets;
        let entries_max = usize::try_from(end - start).unwrap_or(usize::MAX);
        let read = shard.store.entries_from(uncertain.queue, Offset(start), entries_max, DESCRIBE_BYTES_MAX);
        match read {
            Ok(Lookup::Ready(entries)) => self.described(shard, &uncertain, Ok(entries)),
            Err(e) => self.described(shard, &uncertain, Err(e)),
            Ok(Lookup::NeedsIo(plan)) => {
                self.read_and_pump(shard, move |inner, shard| inner.described(shard, &uncertain, plan.run()));
            }
        }
    }

    /// The log has answered. What it does not say expires when it surely has: late by the grain that is kept.
    fn described(&self, shard: &Shard, uncertain: &Uncertain, read: polylogue_log::Result<Vec<EntryAt>>) {
        let Uncertain { queue, offsets, life } = uncertain;
        let entries = read.unwrap_or_else(|e| {
            self.gauges.background_failed("expiry", &format!("message {} of queue {queue}: {e}", offsets.start));
            Vec::new()
        });
        let mut state = shard.state.lock();
        if let Some(host) = state.queues.hosts.get_mut(queue) {
            host.describing = false;
            host.changed = true;
            if host.life == *life {
                let mut to = offsets.start;
                for envelope in entries.iter().filter_map(|entry| entry.envelope.as_ref()) {
                    let entry = lease_entry(envelope, 0);
                    host.lease.describe_expiry(&entry);
                    to = to.max(entry.end());
                }
                // Nothing is asked twice.
                let to = if to > offsets.start { to.min(offsets.end) } else { offsets.end };
                host.lease.expiry_described(offsets.start..to);
                host.lease.on_deadline(lease_ms(self.env.clock.now_ms()));
            }
        }
        state.queues.schedule(*queue);
        state.queues.touch(*queue);
    }
}
