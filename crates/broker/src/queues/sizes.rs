//! Body sizes of messages for which an older build kept only the stored size.
//!
//! Of consecutive messages of the same size one is read, and its overhead is assumed for all of them: most likely they are from one publisher, and
//! the log need not be read as a whole. New messages record their body size.

use crate::broker::Inner;
use crate::queues::host::body_bytes;
use crate::shard::{Shard, ShardState};
use polylogue_log::store::{EntryAt, Lookup};
use polylogue_types::{Offset, PartitionId};
use std::ops::Range;
use std::sync::Arc;

/// Messages with the same stored size.
#[derive(Debug)]
pub(super) struct Unmeasured {
    queue: PartitionId,
    offsets: Range<u64>,
    life: u16,
}

impl Inner {
    /// Returns the next messages of a queue with unknown body sizes, unless a read is in progress.
    pub(super) fn look_at_sizes(&self, state: &mut ShardState, id: PartitionId) -> Option<Unmeasured> {
        self.config.view.as_ref()?;
        let host = state.queues.hosts.get_mut(&id)?;
        let from = host.sized_to.filter(|to| *to < u64::MAX && host.lease.is_writer())?;
        let Some(offsets) = host.lease.unsized_from(from) else {
            host.sized_to = Some(u64::MAX);
            return None;
        };
        host.sized_to = None;
        Some(Unmeasured { queue: id, offsets, life: host.life })
    }

    /// Reads body sizes; on a reader thread if the disk is needed. Must not be called with a lock held.
    pub(super) fn describe_sizes(&self, shard: &Arc<Shard>, unmeasured: Unmeasured) {
        match shard.store.entry_at(unmeasured.queue, Offset(unmeasured.offsets.start)) {
            Ok(Lookup::Ready(entry)) => self.sized(shard, &unmeasured, Ok(entry)),
            Err(e) => self.sized(shard, &unmeasured, Err(e)),
            Ok(Lookup::NeedsIo(plan)) => {
                self.read_and_pump(shard, move |inner, shard| inner.sized(shard, &unmeasured, plan.run()));
            }
        }
    }

    /// Applies the sizes that were read. Messages that could not be read count with their stored size.
    fn sized(&self, shard: &Shard, unmeasured: &Unmeasured, read: polylogue_log::Result<EntryAt>) {
        let Unmeasured { queue, offsets, life } = unmeasured;
        let mut state = shard.state.lock();
        let Some(host) = state.queues.hosts.get_mut(queue).filter(|host| host.life == *life) else { return };
        host.sized_to = Some(offsets.end);
        match read {
            Ok(EntryAt { form, bytes, .. }) => {
                let body = body_bytes(self.config.view.as_ref(), form, &bytes);
                host.lease.describe_extra(offsets.clone(), bytes.len().saturating_sub(body) as u64);
                host.changed = true;
            }
            Err(e) => {
                let what = format!("the size of message {} of queue {queue}: {e}", offsets.start);
                self.gauges.background_failed("delivery", &what);
            }
        }
        state.queues.touch(*queue);
    }
}
