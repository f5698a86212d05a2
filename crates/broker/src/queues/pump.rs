//! Delivery of messages from a queue's lease engine to sessions, with their bodies, in order.

use crate::broker::Inner;
use crate::queues::QueueHost;
use crate::queues::credit::Granted;
use crate::queues::host::Waiter;
use crate::record::{BROKER_PARTITION, BrokerRecord};
use crate::shard::{Shard, ShardState};
use crate::sink::ReplySink;
use bytes::Bytes;
use polylogue_api::{ConsumerId, Delivery, Event, Reply, Unavailable};
use polylogue_lease::{By, Delay, Grant, LeaseId, Return};
use polylogue_log::ErrorKind as LogErrorKind;
use polylogue_log::journal::Urgency;
use polylogue_log::store::{EntryAt, Lookup};
use polylogue_types::{Offset, PartitionId, SharedLimit, TimestampMs};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Messages that one pass over a queue delivers at most; then other queues have their turn.
const GRANT_MESSAGES_MAX: u64 = 256;
/// Messages read together at most, and their bytes unless a single message is larger.
const READ_ENTRIES_MAX: usize = GRANT_MESSAGES_MAX as usize;
const READ_BYTES_MAX: usize = 1 << 20;
/// Delay before messages that could not be read from disk are read again. Milliseconds.
pub(crate) const READ_AGAIN_MS: u64 = 1_000;
/// When a record of a queue that the log refused is proposed again. Milliseconds.
const REFUSED_AGAIN_MS: u64 = 50;

/// Messages of a queue that are being delivered. Only the thread that holds this pumps the queue.
pub(crate) struct DeliveryBatch {
    queue: PartitionId,
    /// Messages still to be read, in order.
    grants: VecDeque<GrantedMessage>,
    ready: Vec<Ready>,
}

/// A message with its body.
struct Ready {
    sink: Arc<dyn ReplySink>,
    delivery: Delivery,
    /// The message is settled by being sent.
    settles: bool,
}

/// A granted message whose body is to be read.
struct GrantedMessage {
    sink: Arc<dyn ReplySink>,
    /// See [`crate::queues::host::Recipient::settles`].
    settles: bool,
    grant: Grant,
    offset: u64,
    life: u16,
    early: Option<(u64, Bytes)>,
}

impl GrantedMessage {
    fn delivery(&self, queue: PartitionId, entry: u64, bytes: Bytes) -> Delivery {
        let Grant { consumer, tally, redelivered, lease, bytes: bytes_each, .. } = self.grant;
        Delivery {
            consumer: ConsumerId(consumer.0),
            queue,
            first: Offset(self.offset),
            count: 1,
            lease: lease.0,
            life: self.life,
            weight: u64::from(bytes_each),
            redelivered,
            returned: tally.returned,
            failed: tally.failed,
            entry: Offset(entry),
            bytes,
        }
    }
}

/// Converts time for the lease engine. Wall time, milliseconds.
pub(crate) fn lease_ms(now_ms: TimestampMs) -> u64 {
    u64::try_from(now_ms).unwrap_or(0)
}

impl Inner {
    /// Delivers what the due queues of a shard have to deliver, and proposes the outcomes of messages. Must not be called with a lock held.
    pub(crate) fn pump(&self, shard: &Arc<Shard>) {
        let mut freed = Vec::new();
        self.pump_shard(shard, &mut freed);
        self.offer(freed);
    }

    /// Offers messages to consumers that wait for room under a shared limit, in the order of their turns, while there is room.
    pub(crate) fn offer(&self, mut freed: Vec<Arc<SharedLimit>>) {
        while let Some(limit) = freed.pop() {
            let (mut at, last) = (0, limit.last_turn());
            while let Some((turn, consumer)) = limit.offer_next(at).filter(|(turn, _)| *turn <= last) {
                at = turn;
                match self.offer_to(consumer) {
                    Some(shard) => self.pump_shard(&shard, &mut freed),
                    None => _ = limit.forget(consumer),
                }
            }
        }
    }

    /// As [`Inner::pump`]. Adds the shared limits that have room again to `freed`.
    fn pump_shard(&self, shard: &Arc<Shard>, freed: &mut Vec<Arc<SharedLimit>>) {
        let answered = std::mem::take(&mut shard.state.lock().queues.answered);
        for (waiter, error) in answered {
            waiter.answer(error);
        }
        loop {
            let mut granted = Vec::new();
            let (batch, uncertain, unmeasured, delivering_dead, turns) = {
                let mut state = shard.state.lock();
                let Some(id) = state.queues.next_due() else { break };
                let batch = self.look_at_queue(shard, &mut state, id);
                if let Some(host) = state.queues.hosts.get_mut(&id) {
                    freed.extend(host.lease.take_freed());
                    granted = self.look_at_credit(host);
                    if !granted.is_empty() {
                        state.queues.schedule(id);
                    }
                }
                let uncertain = self.look_at_times(&mut state, id);
                let unmeasured = self.look_at_sizes(&mut state, id);
                (batch, uncertain, unmeasured, self.take_dead_batch(&mut state, id), state.turns(id))
            };
            granted.into_iter().for_each(|waiter| waiter.answer(None));
            self.take_turns(shard, turns);
            if let Some(uncertain) = uncertain {
                self.describe_times(shard, uncertain);
            }
            if let Some(unmeasured) = unmeasured {
                self.describe_sizes(shard, unmeasured);
            }
            if let Some(delivering_dead) = delivering_dead {
                self.deliver_dead(shard, delivering_dead);
            }
            if let Some(batch) = batch {
                self.hand_over(shard, batch);
            }
        }
        self.wake_for_queues(shard);
    }

    /// Takes the batch that a queue can deliver now.
    fn look_at_queue(&self, shard: &Shard, state: &mut ShardState, id: PartitionId) -> Option<DeliveryBatch> {
        let now_ms = lease_ms(self.env.clock.now_ms());
        let host = state.queues.hosts.get_mut(&id)?;
        if host.pumping || host.attaching > 0 {
            host.again = true;
            return None;
        }
        let mut grants = Vec::new();
        let given = host.lease.grant(now_ms, GRANT_MESSAGES_MAX, &mut grants);
        host.again = given >= GRANT_MESSAGES_MAX;
        let batch = Some(DeliveryBatch::new(id, host, &grants)).filter(|batch| !batch.grants.is_empty());
        host.pumping = batch.is_some();
        shard.record_queue(state, id, now_ms);
        state.queues.schedule(id);
        batch
    }

    /// Takes the publishers whose credit is no longer withheld.
    fn look_at_credit(&self, host: &mut QueueHost) -> Vec<Waiter> {
        let Granted { waiters, late } = host.grant_credit(self.config.credit_rules, lease_ms(self.env.clock.now_ms()));
        self.gauges.credit_granted_late(late);
        waiters
    }

    /// Reads bodies and sends them; on a reader thread if the disk is needed.
    fn hand_over(&self, shard: &Arc<Shard>, mut batch: DeliveryBatch) {
        let unread = batch.read_in_memory(shard);
        batch.settle_read(shard);
        batch.send();
        if !unread {
            return self.handed_over(shard, batch.queue);
        }
        self.read_and_pump(shard, move |inner, shard| {
            batch.read_all(inner, shard);
            batch.drop_stale(shard);
            batch.settle_read(shard);
            batch.send();
            inner.handed_over(shard, batch.queue);
        });
    }

    /// Runs `work` on a reader thread, and pumps the shard after it. If the readers' queue is full, it runs here and the caller pumps: the caller may
    /// be pumping already, and a nested pump would recurse as deep as there are queues to read.
    pub(crate) fn read_and_pump(&self, shard: &Arc<Shard>, work: impl FnOnce(&Inner, &Arc<Shard>) + Send + 'static) {
        let Some(inner) = self.this.upgrade() else { return };
        let is_reader = Arc::new(AtomicBool::new(true));
        let (shard, pumps) = (shard.clone(), is_reader.clone());
        let job = Box::new(move || {
            work(&inner, &shard);
            if pumps.load(Ordering::Relaxed) {
                inner.pump(&shard);
            }
        });
        if let Err(job) = self.readers.submit(job) {
            is_reader.store(false, Ordering::Relaxed);
            job();
        }
    }

    /// Ends the delivery of a batch: other threads may pump the queue again.
    fn handed_over(&self, shard: &Shard, queue: PartitionId) {
        let mut stops = Vec::new();
        {
            let mut state = shard.state.lock();
            let again = state.queues.hosts.get_mut(&queue).is_some_and(|host| {
                host.pumping = false;
                stops = std::mem::take(&mut host.stops);
                std::mem::take(&mut host.again)
            });
            if again {
                state.queues.touch(queue);
            }
        }
        for origin in stops {
            origin.reply(Reply::Stopped);
        }
    }

    /// Wakes the timer if a queue's deadline is earlier than the timer's.
    fn wake_for_queues(&self, shard: &Shard) {
        let sooner = {
            // Under the lock: a later result of another thread must not be overwritten.
            let mut state = shard.state.lock();
            state.queues.delays.applied = false;
            shard.queues_due(state.next_deadline_ms())
        };
        if sooner {
            self.deadlines_changed();
        }
    }

    /// Returns when the next queue must be looked at, in monotonic milliseconds.
    pub(crate) fn next_queue_ms(&self) -> u64 {
        let now = self.now();
        let next = self.all_shards().iter().map(|shard| shard.queue_deadline_ms.load(Ordering::Relaxed)).min();
        let wait_ms = next.unwrap_or(u64::MAX).saturating_sub(lease_ms(now.wall_ms));
        now.monotonic_ms.saturating_add(wait_ms)
    }

    /// Advances the time of the queues of all shards, and pumps the queues that were left to the timer.
    pub(crate) fn run_queue_deadlines(&self) {
        let now_ms = lease_ms(self.env.clock.now_ms());
        for shard in self.all_shards() {
            if self.timers_due(&shard, now_ms) {
                self.run_timers(&shard);
            }
            let due = {
                let mut state = shard.state.lock();
                let due = state.queues.next_deadline_ms().is_some_and(|at| at <= now_ms);
                if due {
                    state.queues.on_deadline(now_ms);
                }
                // The queue that the timer was set for may be deleted.
                shard.queues_due(state.next_deadline_ms());
                due || state.queues.has_work()
            };
            if due {
                self.pump(&shard);
            }
        }
    }
}

impl DeliveryBatch {
    /// Splits grants into messages, with all that is known without reading.
    pub(crate) fn new(queue: PartitionId, host: &QueueHost, grants: &[Grant]) -> DeliveryBatch {
        let mut wanted = VecDeque::new();
        for grant in grants {
            let Some(recipient) = host.recipients.get(&grant.consumer.0) else { continue };
            for offset in grant.first_offset..grant.first_offset + u64::from(grant.count) {
                let early = host.early_body(offset);
                let (sink, settles, life) = (recipient.sink.clone(), recipient.settles, host.life);
                wanted.push_back(GrantedMessage { sink, settles, grant: *grant, offset, life, early });
            }
        }
        DeliveryBatch { queue, grants: wanted, ready: Vec::new() }
    }

    /// Takes the messages that were read.
    pub(crate) fn take_ready(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.ready).into_iter().map(|ready| ready.delivery).collect()
    }

    /// Reads the messages that are in memory. Returns whether some are left.
    pub(crate) fn read_in_memory(&mut self, shard: &Shard) -> bool {
        while let Some(wanted) = self.grants.front_mut() {
            let found = match wanted.early.take() {
                Some(found) => Some(found),
                None => match shard.store.entry_at(self.queue, Offset(wanted.offset)) {
                    Ok(Lookup::Ready(EntryAt { location, bytes, .. })) => Some((location.base.0, bytes)),
                    Ok(Lookup::NeedsIo(_)) | Err(_) => return true,
                },
            };
            self.took(found);
        }
        false
    }

    /// Reads the rest from disk. Drops messages that cannot be read, unless the error may be temporary.
    pub(crate) fn read_all(&mut self, inner: &Inner, shard: &Shard) {
        while let Some(wanted) = self.grants.front_mut() {
            if let Some(early) = wanted.early.take() {
                self.took(Some(early));
                continue;
            }
            let first = Offset(wanted.offset);
            let look = shard.store.entries_from(self.queue, first, self.in_a_row(), READ_BYTES_MAX);
            match look.and_then(Lookup::wait) {
                Ok(entries) => {
                    if entries.iter().take_while(|entry| self.took_entry(entry)).count() == 0 {
                        self.lost(inner, shard, "it is not there", true);
                    }
                }
                Err(e) => {
                    let gone = matches!(e.kind, LogErrorKind::Damaged | LogErrorKind::OutOfRange);
                    self.lost(inner, shard, &e.to_string(), gone);
                }
            }
        }
    }

    /// Handles a message that cannot be read: permanently (`gone`), or for now.
    fn lost(&mut self, inner: &Inner, shard: &Shard, why: &str, gone: bool) {
        let Some(wanted) = self.grants.front() else { return };
        inner
            .gauges
            .background_failed("delivery", &format!("message {} of queue {}: {why}", wanted.offset, self.queue));
        shard.give_back(self.queue, wanted, gone, lease_ms(inner.env.clock.now_ms()));
        self.took(None);
    }

    /// Returns how many of the next messages are adjacent in the log. They are read together, because each read costs a lookup and a system call.
    fn in_a_row(&self) -> usize {
        let first = self.grants.front().map_or(0, |wanted| wanted.offset);
        let follows = |(wanted, offset): &(&GrantedMessage, u64)| wanted.early.is_none() && wanted.offset == *offset;
        self.grants.iter().zip(first..).take(READ_ENTRIES_MAX).take_while(follows).count()
    }

    /// Takes an entry that was read. Returns whether it held the next message of the batch; it may hold later ones as well.
    fn took_entry(&mut self, entry: &EntryAt) -> bool {
        let (base, end) = (entry.location.base.0, entry.location.end.0);
        let is_in = |wanted: &GrantedMessage| wanted.early.is_none() && (base..end).contains(&wanted.offset);
        let before = self.grants.len();
        while self.grants.front().is_some_and(is_in) {
            self.took(Some((base, entry.bytes.clone())));
        }
        self.grants.len() < before
    }

    fn took(&mut self, found: Option<(u64, Bytes)>) {
        let Some(wanted) = self.grants.pop_front() else { return };
        if let Some((entry, bytes)) = found {
            let delivery = wanted.delivery(self.queue, entry, bytes);
            self.ready.push(Ready { sink: wanted.sink, delivery, settles: wanted.settles });
        }
    }

    /// Drops messages that were returned while they were read; they may have been delivered to another consumer and settled since.
    pub(crate) fn drop_stale(&mut self, shard: &Shard) {
        let mut state = shard.state.lock();
        let Some(host) = state.queues.hosts.get_mut(&self.queue) else { return self.ready.clear() };
        self.ready.retain(|Ready { delivery, .. }| {
            let keeps = host.lease.holds(delivery.first.0, LeaseId(delivery.lease));
            if !keeps {
                give_credit_back(host, delivery);
            }
            keeps
        });
    }

    /// Settles the messages that are settled by being sent, now that they are read. Drops those that were returned meanwhile.
    pub(crate) fn settle_read(&mut self, shard: &Shard) {
        if !self.ready.iter().any(|ready| ready.settles) {
            return;
        }
        let mut state = shard.state.lock();
        let Some(host) = state.queues.hosts.get_mut(&self.queue) else { return self.ready.clear() };
        let mut kept = Vec::with_capacity(self.ready.len());
        let mut ready = std::mem::take(&mut self.ready).into_iter().peekable();
        while let Some(first) = ready.next() {
            let Ready { settles, delivery: Delivery { first: Offset(offset), lease, .. }, .. } = first;
            let start = kept.len();
            kept.push(first);
            if !settles {
                continue;
            }
            let follows = |count: usize, next: &Ready| {
                next.settles && next.delivery.lease == lease && next.delivery.first.0 == offset + count as u64
            };
            while let Some(next) = ready.next_if(|next| follows(kept.len() - start, next)) {
                kept.push(next);
            }
            let (count, by) = ((kept.len() - start) as u64, By::Lease(LeaseId(lease)));
            if host.lease.settle(offset, count, by, 0).is_err() {
                let run = kept.split_off(start);
                kept.extend(run.into_iter().filter(|one| {
                    let is_settled = host.lease.settle(one.delivery.first.0, 1, by, 0).is_ok();
                    if !is_settled {
                        give_credit_back(host, &one.delivery);
                    }
                    is_settled
                }));
            }
        }
        self.ready = kept;
        state.queues.touch(self.queue);
    }

    /// Sends the messages: consecutive ones of a session in one event.
    fn send(&mut self) {
        let mut ready = std::mem::take(&mut self.ready).into_iter().peekable();
        while let Some(Ready { sink, delivery, .. }) = ready.next() {
            let mut deliveries = vec![delivery];
            while let Some(next) = ready.next_if(|next| Arc::ptr_eq(&next.sink, &sink)) {
                deliveries.push(next.delivery);
            }
            sink.event(Event::Deliver(deliveries));
        }
    }
}

/// Returns the credit of a message that was not sent.
fn give_credit_back(host: &mut QueueHost, delivery: &Delivery) {
    let _ = host.lease.add_permits(polylogue_lease::ConsumerId(delivery.consumer.0), 1, delivery.weight);
}

impl Shard {
    /// Returns a message that cannot be read: settles it if it is `gone`, otherwise requeues it with a delay.
    fn give_back(&self, queue: PartitionId, wanted: &GrantedMessage, gone: bool, now_ms: u64) {
        let mut state = self.state.lock();
        // An uncommitted message is not in the store yet; it is not lost.
        let committed = state.partitions.get(&queue).is_some_and(|p| wanted.offset < p.high_watermark.0);
        let gone = gone && committed;
        let Some(host) = state.queues.hosts.get_mut(&queue) else { return };
        // A message that was not sent releases its credit.
        let _ = host.lease.add_permits(wanted.grant.consumer, 1, u64::from(wanted.grant.bytes));
        // The lease may have ended meanwhile, and another consumer may hold the message.
        let by = By::Lease(wanted.grant.lease);
        let _ = if gone {
            host.lease.settle(wanted.offset, 1, by, now_ms)
        } else {
            let how = Return { delay: Delay::For(READ_AGAIN_MS), unseen: true, ..Return::default() };
            host.lease.release(wanted.offset, 1, by, how, now_ms)
        };
        state.queues.touch(queue);
    }

    /// Proposes the outcomes of a queue's messages since the last record, unless a record is in flight: then they wait for the next one.
    pub(crate) fn record_queue(&self, state: &mut ShardState, id: PartitionId, now_ms: u64) {
        if state.queues.hosts.get(&id).is_some_and(QueueHost::wants_record) {
            self.record_queue_now(state, id, now_ms);
        }
    }

    /// Proposes the outcomes of messages of all queues, even while a record is in flight, because no other follows.
    pub(crate) fn record_all_queues(&self, state: &mut ShardState) {
        let mut ids: Vec<_> = state.queues.hosts.keys().copied().collect();
        ids.sort_unstable();
        // A record that was refused a moment ago, too: there is no later.
        ids.into_iter().for_each(|id| self.record_queue_now(state, id, u64::MAX));
    }

    fn record_queue_now(&self, state: &mut ShardState, id: PartitionId, now_ms: u64) {
        if !state.proposes() {
            return;
        }
        let Some(host) = state.queues.hosts.get_mut(&id) else { return };
        if host.refused.as_ref().is_some_and(|(_, at_ms)| now_ms < *at_ms) {
            return;
        }
        let urgent = host.refused.is_some() || host.is_awaited() || host.is_hurried();
        let record = match host.refused.take() {
            Some((record, _)) => Some(record),
            None => host.lease.take_record().map(|record| {
                host.recorded = record.number;
                record.bytes
            }),
        };
        if let Some(record) = record {
            if urgent {
                host.hurried_to = host.lease.proposed_end();
            }
            let urgency = if urgent { Urgency::Urgent } else { Urgency::Lazy };
            if let Err(why) = self.propose_outcomes(state, id, record.clone(), urgency) {
                // The engine's state depends on the record: it is proposed again before anything behind it. One that can never be taken ends the term.
                state.lost |= why == Unavailable::TooLarge;
                if let Some(host) = state.queues.hosts.get_mut(&id) {
                    host.refused = Some((record, now_ms.saturating_add(REFUSED_AGAIN_MS)));
                }
                return;
            }
        }
        // The effects of timers are proposed by now.
        if state.queues.delays.has_ends(id) {
            self.record_ends(state, id);
        }
    }

    fn propose_outcomes(
        &self,
        state: &mut ShardState,
        partition: PartitionId,
        record: Bytes,
        urgency: Urgency,
    ) -> Result<(), Unavailable> {
        let record = BrokerRecord::Queue { partition, record };
        self.propose_own(state, BROKER_PARTITION, Bytes::from(record.encode()), urgency).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use crate::sink::testing::Recorder;
    use crate::{Broker, BrokerConfig, ReplySink};
    use bytes::Bytes;
    use polylogue_api::*;
    use polylogue_env::sim::SimWorld;
    use polylogue_record::envelope::{EntryFlags, Form};
    use polylogue_replicate::Work;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const QUEUES: usize = 2_000;

    /// When the readers' queue was full, each queue to be read was pumped from within the pump of the queue before it, until the stack overflowed.
    #[test]
    fn many_queues_are_read_one_after_the_other_where_readers_take_no_more() {
        let world = SimWorld::new(1);
        let mut config = BrokerConfig::new("/data".into());
        config.disk_reserve_bytes = 0;
        config.store.tail_cache_bytes = 0;
        let broker = Broker::open(world.env(), config, BTreeMap::new()).unwrap();
        let recorder = Arc::new(Recorder::default());
        let sink: Arc<dyn ReplySink> = recorder.clone();
        let session = broker.new_session();
        let ask = |request| {
            broker.submit(&sink, session, 1, request);
            while broker.log_step(Work::Write) | broker.log_step(Work::Flush) {}
        };
        let config =
            TopicConfig { queue: Some(QueueSettings::default()), retention_ms: None, ..TopicConfig::default() };
        let name = |i: usize| format!("q{i}");
        let topic = |i| NewTopic { name: name(i), partitions: 1, config: config.clone(), internal: false };
        ask(Request::CreateTopics(CreateTopics { topics: (0..QUEUES).map(topic).collect(), validate_only: false }));
        let id = |i| broker.catalog().topic(&name(i)).unwrap().partitions[0].id;
        let queues: Vec<_> = (0..QUEUES).map(id).collect();
        let deliver_at = Some(broker.now().wall_ms + 1_000);
        let target = |queue: &polylogue_types::PartitionId| Target {
            queue: *queue,
            priority: None,
            expires_at: None,
            deliver_at,
        };
        let message = PublishMessage {
            queues: queues.iter().map(target).collect(),
            form: Form::AmqpMessage,
            flags: EntryFlags::NONE,
            bytes: Bytes::from_static(b"x"),
            timestamp: -1,
            key_hash: None,
            all_or_none: false,
        };
        ask(Request::Publish(PublishRequest { messages: vec![message], ack: Ack::Committed, patient: false }));
        for queue in queues {
            ask(Request::Attach(Attach { queue, consumer: ConsumerSpec::default() }));
        }
        broker.inner.readers.stop();
        world.clock.advance_ms(2_000);
        broker.tick();
        assert_eq!(recorder.events.lock().len(), QUEUES);
    }
}
