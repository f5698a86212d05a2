//! Expiry of long-lived messages: the engine keeps it approximately, and the exact time is read from the log when it matters.

use crate::broker::Inner;
use crate::queues::QueueHost;
use crate::queues::lease_ms;
use crate::shard::{Shard, ShardState};
use polylogue_log::store::{EntryAt, Lookup};
use polylogue_types::{Offset, PartitionId};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of entries that are read together to get their expiry times.
const DESCRIBE_BYTES_MAX: usize = 1 << 20;

/// Messages whose expiry times are read.
#[derive(Debug)]
pub(super) struct Uncertain {
    queue: PartitionId,
    offsets: Range<u64>,
    life: u16,
}

impl Uncertain {
    /// Returns the messages at the head of a queue that may have expired.
    pub(super) fn of(queue: PartitionId, host: &QueueHost, now_ms: u64) -> Option<Uncertain> {
        let offsets = host.lease.uncertain(now_ms)?;
        Some(Uncertain { queue, offsets, life: host.life })
    }

    fn read(&self, shard: &Shard) -> polylogue_log::Result<Lookup<Vec<EntryAt>>> {
        let Range { start, end } = self.offsets;
        let entries_max = usize::try_from(end - start).unwrap_or(usize::MAX);
        shard.store.entries_from(self.queue, Offset(start), entries_max, DESCRIBE_BYTES_MAX)
    }
}

impl Inner {
    /// As [`Uncertain::of`], unless a read is in progress.
    pub(super) fn look_at_times(&self, state: &mut ShardState, id: PartitionId) -> Option<Uncertain> {
        let host = state.queues.hosts.get_mut(&id).filter(|host| !host.describing)?;
        let uncertain = Uncertain::of(id, host, lease_ms(self.env.clock.now_ms()))?;
        host.describing = true;
        state.queues.schedule(id);
        Some(uncertain)
    }

    /// Reads expiry times; on a reader thread if the disk is needed. Must not be called with a lock held.
    pub(super) fn describe_times(&self, shard: &Arc<Shard>, uncertain: Uncertain) {
        match uncertain.read(shard) {
            Ok(Lookup::Ready(entries)) => self.described(shard, &uncertain, Ok(entries)),
            Err(e) => self.described(shard, &uncertain, Err(e)),
            Ok(Lookup::NeedsIo(plan)) => {
                self.read_and_pump(shard, move |inner, shard| inner.described(shard, &uncertain, plan.run()));
            }
        }
    }

    /// Reads expiry times for a request that waits for these messages, whether or not a read is in progress. Returns `false` if the disk is needed
    /// and the caller may not block; it may if it `reads`. Must not be called with a lock held.
    pub(super) fn describe_awaited(&self, shard: &Shard, uncertain: &Uncertain, reads: bool) -> bool {
        let read = match uncertain.read(shard) {
            Ok(Lookup::NeedsIo(_)) if !reads => return false,
            read => read.and_then(Lookup::wait),
        };
        self.described(shard, uncertain, read);
        true
    }

    /// Applies the times that were read. Messages that could not be read expire when they certainly have: late by the grain that is kept.
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
                    let entry = host.entry(envelope, 0, 0);
                    host.lease.describe_expiry(&entry);
                    to = to.max(entry.end());
                }
                // No message is read twice.
                let to = if to > offsets.start { to.min(offsets.end) } else { offsets.end };
                host.lease.expiry_described(offsets.start..to);
                host.lease.on_deadline(lease_ms(self.env.clock.now_ms()));
            }
        }
        state.queues.schedule(*queue);
        state.queues.touch(*queue);
    }
}
