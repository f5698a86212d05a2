//! Settlement of messages by consumers, and operations on whole queues.

use crate::broker::Inner;
use crate::pending::{Pending, PendingSettle};
use crate::queues::expiry::Uncertain;
use crate::queues::host::Waiter;
use crate::queues::pump::{DeliveryBatch, lease_ms};
use crate::queues::{QueueHost, Queues, note_shard};
use crate::shard::Shard;
use crate::sink::Origin;
use polylogue_api::{
    Holder, QueueCounts, Reply, Settle, SettleError, SettleRequest, Settlement, Take, Taken, Unavailable,
};
use polylogue_lease::{Acquire, By, Delay, Done, LeaseError, LeaseId, Refusal, Return};
use polylogue_types::PartitionId;
use std::sync::Arc;

fn settle_error(error: &LeaseError) -> SettleError {
    match error {
        LeaseError::NotWriter => SettleError::Unavailable(Unavailable::NotCommitted),
        _ => SettleError::NotHeld,
    }
}

/// Applies one settlement. Returns the record that it goes into.
fn settle_one(host: &mut QueueHost, what: &Settlement, now_ms: u64) -> Result<Option<u64>, LeaseError> {
    let queue = &mut host.lease;
    let Settlement { first, count, by, how, .. } = *what;
    let by = match by {
        Holder::Lease(lease) => By::Lease(LeaseId(lease)),
        Holder::Consumer(consumer, life) if life == host.life => By::Consumer(polylogue_lease::ConsumerId(consumer.0)),
        Holder::Consumer(..) => return Err(LeaseError::Refused { offset: first.0, why: Refusal::Stale }),
    };
    let (first, count) = (first.0, u64::from(count));
    let Done { record, .. } = match how {
        Settle::Accept => queue.settle(first, count, by, now_ms)?,
        Settle::Reject => queue.reject(first, count, by, now_ms)?,
        Settle::Return { counts, delay_ms } => {
            let delay = if delay_ms == 0 { Delay::Usual } else { Delay::For(delay_ms) };
            queue.release(first, count, by, Return { counts, delay, ..Return::default() }, now_ms)?
        }
        Settle::Unsent => {
            queue.unsend(first, count, by, now_ms)?;
            Done::default()
        }
        Settle::Extend(ms) => {
            queue.extend(first, count, by, now_ms.saturating_add(ms), now_ms)?;
            Done::default()
        }
    };
    Ok(record)
}

/// Settles in a stream: a message is done when it is read, so the reader gets credit back whatever the outcome. Nothing is requeued: the reader is
/// past the message, and no other consumer waits for it.
fn settle_in_stream(queues: &mut Queues, what: &Settlement) -> Result<(), SettleError> {
    if what.how == Settle::Unsent {
        return Err(SettleError::NotHeld);
    }
    if !queues.streams.contains_key(&what.queue) {
        return Err(SettleError::UnknownQueue);
    }
    let Holder::Consumer(consumer, _) = what.by else { return Err(SettleError::NotHeld) };
    let reader = queues.reader(what.queue, consumer.0).ok_or(SettleError::NotHeld)?;
    reader.settled(what.count);
    Ok(())
}

impl Inner {
    pub(crate) fn settle(&self, origin: Origin, request: &SettleRequest) {
        let now_ms = lease_ms(self.env.clock.now_ms());
        let pending: Arc<PendingSettle> = Arc::new(Pending::new(origin, vec![Ok(()); request.settlements.len()], 1));
        let mut shards: Vec<Arc<Shard>> = Vec::new();
        for (position, what) in (0u32..).zip(&request.settlements) {
            let Some(shard) = self.partition_shard(what.queue) else {
                pending.set(position, Err(SettleError::UnknownQueue));
                continue;
            };
            let mut state = shard.state.lock();
            let done = match state.queues.hosts.get_mut(&what.queue) {
                None => settle_in_stream(&mut state.queues, what),
                Some(host) => settle_one(host, what, now_ms).map_err(|e| settle_error(&e)).map(|record| {
                    if let Some(record) = record.filter(|_| request.wait) {
                        host.wait_for(record, &pending, position);
                    }
                }),
            };
            state.queues.touch(what.queue);
            drop(state);
            if let Err(why) = done {
                pending.set(position, Err(why));
            }
            note_shard(&mut shards, shard);
        }
        pending.part_done(&[], None);
        for shard in shards {
            self.pump(&shard);
        }
    }

    pub(crate) fn purge(&self, origin: Origin, queue: PartitionId) {
        let Some(shard) = self.partition_shard(queue) else {
            return origin.reply(Reply::Purge(Err(SettleError::UnknownQueue)));
        };
        let answer = {
            let mut state = shard.state.lock();
            let purged = match state.queues.hosts.get_mut(&queue) {
                None => Err(SettleError::UnknownQueue),
                Some(host) => match host.lease.purge() {
                    Err(e) => Err(settle_error(&e)),
                    Ok(Done { messages, record: None }) => Ok(messages),
                    Ok(Done { messages, record: Some(record) }) => {
                        host.add_waiter(record, Waiter::Purge(origin.clone(), messages));
                        state.queues.touch(queue);
                        drop(state);
                        return self.pump(&shard);
                    }
                },
            };
            drop(state);
            purged
        };
        origin.reply(Reply::Purge(answer));
    }

    /// Takes messages on request (basic.get). Continues on a reader thread if the disk is needed.
    pub(crate) fn take(&self, origin: Origin, take: Take) {
        let Some(shard) = self.partition_shard(take.queue) else {
            return origin.reply(Reply::Take(Err(SettleError::UnknownQueue)));
        };
        self.take_in(&shard, origin, take, false);
        self.pump(&shard);
    }

    /// `reads`: the current thread may wait for the disk.
    fn take_in(&self, shard: &Arc<Shard>, origin: Origin, take: Take, reads: bool) {
        loop {
            let now_ms = lease_ms(self.env.clock.now_ms());
            let taking = {
                let mut state = shard.state.lock();
                let taking = match state.queues.hosts.get_mut(&take.queue) {
                    None => Err(SettleError::UnknownQueue),
                    Some(host) => take_from(host, take, now_ms),
                };
                state.queues.touch(take.queue);
                taking
            };
            match taking {
                Err(why) => return origin.reply(Reply::Take(Err(why))),
                Ok(TakeOutcome::Had(batch, ready)) => return self.hand_taken(shard, origin, batch, ready, reads),
                Ok(TakeOutcome::Uncertain(uncertain)) if self.describe_awaited(shard, &uncertain, reads) => {}
                Ok(TakeOutcome::Uncertain(_)) => {
                    return self.read_and_pump(shard, move |inner, shard| inner.take_in(shard, origin, take, true));
                }
            }
        }
    }

    /// Replies with the messages taken, and the number still ready.
    fn hand_taken(&self, shard: &Arc<Shard>, origin: Origin, mut batch: DeliveryBatch, ready: u64, reads: bool) {
        if !batch.read_in_memory(shard) {
            batch.settle_read(shard);
            return origin.reply(Reply::Take(Ok(Taken { deliveries: batch.take_ready(), ready })));
        }
        let read = move |inner: &Inner, shard: &Arc<Shard>| {
            batch.read_all(inner, shard);
            batch.drop_stale(shard);
            batch.settle_read(shard);
            origin.reply(Reply::Take(Ok(Taken { deliveries: batch.take_ready(), ready })));
        };
        if reads { read(self, shard) } else { self.read_and_pump(shard, read) }
    }

    pub(crate) fn queue_counts(&self, queues: &[PartitionId]) -> Vec<Option<QueueCounts>> {
        let counts = |queue: &PartitionId| {
            let shard = self.partition_shard(*queue)?;
            let state = shard.state.lock();
            let counts = state.queue_counts(*queue)?;
            if state.queues.hosts.contains_key(queue) {
                return Some(counts);
            }
            drop(state);
            let ready_bytes = shard.store.partition_stats(*queue).map_or(0, |stats| stats.bytes);
            Some(QueueCounts { ready_bytes, ..counts })
        };
        queues.iter().map(counts).collect()
    }
}

/// The result of taking messages from a queue.
enum TakeOutcome {
    /// The messages, possibly none, and the number still ready.
    Had(DeliveryBatch, u64),
    /// The result depends on whether these messages have expired.
    Uncertain(Uncertain),
}

/// Grants messages of a queue to a caller.
fn take_from(host: &mut QueueHost, take: Take, now_ms: u64) -> Result<TakeOutcome, SettleError> {
    let want = Acquire { messages_max: u64::from(take.messages_max), bytes_max: u64::MAX, lease_ms: None };
    let mut grants = Vec::new();
    let consumer = polylogue_lease::ConsumerId(take.consumer.0);
    host.lease.acquire(consumer, &want, now_ms, &mut grants).map_err(|e| settle_error(&e))?;
    if grants.is_empty()
        && let Some(uncertain) = Uncertain::of(take.queue, host, now_ms)
    {
        return Ok(TakeOutcome::Uncertain(uncertain));
    }
    Ok(TakeOutcome::Had(DeliveryBatch::new(take.queue, host, &grants), host.counts().ready))
}
