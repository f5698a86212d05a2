//! Reads the oldest messages of queues, for monitoring. Changes nothing.

use crate::broker::Inner;
use crate::sink::Origin;
use bytes::Bytes;
use polylogue_api::{PeekQueues, Reply};
use polylogue_log::store::Lookup;
use polylogue_record::envelope::Form;
use polylogue_types::{Offset, PartitionId};

/// Bytes that one request reads from the disk; after that only memory is used.
const READ_BYTES_MAX: usize = 16 << 20;

/// The remaining disk bytes of a request.
struct Budget {
    reads: usize,
    bytes: usize,
}

impl Inner {
    /// Runs on a reader thread: may read the disk.
    pub(crate) fn peek_queues(&self, origin: Origin, peek: PeekQueues) {
        let Some(inner) = self.this.upgrade() else { return };
        let job = Box::new(move || {
            let mut budget = Budget { reads: peek.reads_max, bytes: READ_BYTES_MAX };
            let heads = peek.queues.iter().map(|queue| inner.head(*queue, &mut budget)).collect();
            origin.reply(Reply::PeekQueues(heads));
        });
        if let Err(job) = self.readers.submit(job) {
            job();
        }
    }

    /// Returns the oldest unsettled message if it is an AMQP message.
    fn head(&self, queue: PartitionId, budget: &mut Budget) -> Option<Bytes> {
        let shard = self.partition_shard(queue)?;
        let at = {
            let state = shard.state.lock();
            let lease = &state.queues.hosts.get(&queue)?.lease;
            (lease.floor() < lease.committed_end()).then(|| Offset(lease.floor()))?
        };
        // A message that is gone or unreadable is reported when it is needed.
        let entry = match shard.store.entry_at(queue, at).ok()? {
            Lookup::Ready(entry) => entry,
            Lookup::NeedsIo(_) if budget.reads == 0 || budget.bytes == 0 => return None,
            Lookup::NeedsIo(plan) => {
                budget.reads -= 1;
                let entry = plan.run().ok()?;
                budget.bytes = budget.bytes.saturating_sub(entry.bytes.len());
                entry
            }
        };
        (entry.form == Form::AmqpMessage).then_some(entry.bytes)
    }
}
