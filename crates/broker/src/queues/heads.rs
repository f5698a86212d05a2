//! Reads the oldest messages of queues, for monitoring. It changes nothing of them.

use crate::broker::Inner;
use crate::sink::Origin;
use bytes::Bytes;
use polylogue_api::{PeekQueues, Reply};
use polylogue_log::store::Lookup;
use polylogue_record::envelope::Form;
use polylogue_types::{Offset, PartitionId};

/// What one request reads from the disk; then it looks only at what is in memory. Bytes.
const READ_BYTES_MAX: usize = 16 << 20;

/// What a request may still read from the disk.
struct Budget {
    reads: usize,
    bytes: usize,
}

impl Inner {
    /// On a reader's thread: the disk may be asked.
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

    /// The oldest message that is not settled, if it is one of AMQP.
    fn head(&self, queue: PartitionId, budget: &mut Budget) -> Option<Bytes> {
        let shard = self.partition_shard(queue)?;
        let at = {
            let state = shard.state.lock();
            let lease = &state.queues.hosts.get(&queue)?.lease;
            (lease.floor() < lease.committed_end()).then(|| Offset(lease.floor()))?
        };
        // What is gone since then, or cannot be read, is reported where it is needed.
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
