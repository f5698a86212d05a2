//! One queue of a shard: its lease engine, its consumers and its waiters.

use crate::config::QueueRules;
use crate::pending::{PendingPublish, PendingSettle};
use crate::queues::credit::Withholding;
use crate::queues::delays::{Delays, beyond_ms, kind_of, parked_until, timer_of};
use crate::queues::stream::{Reader, StreamHost};
use crate::sink::{Origin, ReplySink};
use bytes::Bytes;
use polylogue_api::{ConsumerMode, LogView, Overflow, QueueCounts, QueueSettings, Reply, SettleError, Unavailable};
use polylogue_lease::{Config, ConsumerConfig, Entry, LeaseError, Mode, Queue, Tally};
use polylogue_record::envelope::{EntryFlags, Envelope, Form};
use polylogue_types::{Map, Offset, PartitionId, Set, TimestampMs};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Expiry times are rounded up to multiples of this. Milliseconds.
const EXPIRY_GRAIN_MS: u64 = 10;

/// A consumer of a queue.
#[derive(Clone, Debug)]
pub(crate) struct Recipient {
    pub(crate) sink: Arc<dyn ReplySink>,
    /// As requested, with the current limits: used to re-attach the consumer under a new term.
    pub(crate) config: ConsumerConfig,
    /// Messages are settled when they are sent to this consumer. They stay leased until they are read: a settled message may be trimmed from the log
    /// and could not be read any more.
    pub(crate) settles: bool,
    /// The consumer receives no more messages.
    pub(crate) stopped: bool,
}

impl Recipient {
    /// Whether the consumer waits for messages: it is not stopped, and does not only pull.
    fn waits(&self) -> bool {
        !self.stopped && !self.config.pulls
    }
}

/// A waiter for the commit of a record.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// Settlements, with their positions in the request.
    Settle(Arc<PendingSettle>, Vec<u32>),
    /// A purge, with the number of messages.
    Purge(Origin, u64),
    /// A publisher that waits for credit.
    Credit(Arc<PendingPublish>),
}

impl Waiter {
    /// Sends the outcome to the waiter. Must not be called with a lock held.
    pub(crate) fn answer(self, error: Option<SettleError>) {
        match self {
            Waiter::Settle(pending, positions) => pending.part_done(&positions, error.map(Err)),
            Waiter::Purge(origin, count) => origin.reply(Reply::Purge(error.map_or(Ok(count), Err))),
            // The outcome of the messages is reported at their commit, to callers that asked for it.
            Waiter::Credit(pending) => pending.part_done(&[], None),
        }
    }
}

/// The body of an entry that is proposed and may be delivered before its commit.
#[derive(Debug)]
pub(crate) struct EarlyBody {
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) bytes: Bytes,
}

/// A queue.
#[derive(Debug)]
pub(crate) struct QueueHost {
    pub(crate) lease: Queue,
    /// The settings as proposed: new messages are checked against these.
    pub(crate) settings: QueueSettings,
    /// Settled messages stay until retention trims them. As applied, like the lease engine's settings.
    pub(crate) keeps_settled: bool,
    rules: QueueRules,
    pub(crate) recipients: Map<u64, Recipient>,
    /// Number of recipients that wait for messages: every declaration of the queue returns it.
    consumers: u64,
    /// Number of terms that the queue has begun. Wraps around.
    pub(crate) life: u16,
    /// Waiters by the number of the record that each waits for.
    pub(crate) waiting: VecDeque<(u64, Waiter)>,
    /// The highest of these numbers since the term began.
    awaited: u64,
    /// Number of the last proposed record, and of the last applied record.
    pub(crate) recorded: u64,
    applied: u64,
    /// The record after the last proposed one: the log refused it. It is proposed again before any other, from a time on. Wall time, milliseconds.
    pub(crate) refused: Option<(Bytes, u64)>,
    /// Messages before this offset are covered by a proposed record that is flushed immediately.
    pub(crate) hurried_to: u64,
    /// A thread is pumping this queue; another thread that finds messages only marks the queue as due.
    pub(crate) pumping: bool,
    /// Stop requests of consumers, replied to when the current batch is delivered.
    pub(crate) stops: Vec<Origin>,
    pub(crate) again: bool,
    /// Consumers that are attached but not notified of it yet: nothing is delivered before that.
    pub(crate) attaching: u32,
    /// The queue is in [`Queues::due`].
    queued: bool,
    /// Applied state has changed since the last checkpoint.
    pub(crate) changed: bool,
    /// Bodies of uncommitted entries, oldest first.
    pub(crate) early: VecDeque<EarlyBody>,
    /// The queue's time in [`Queues::deadlines`]. Wall time, milliseconds.
    deadline_ms: Option<u64>,
    /// A read of expiry times from the log is in progress.
    pub(crate) describing: bool,
    /// Body sizes are known for messages before this offset; `None` while they are being read from the log.
    pub(super) sized_to: Option<u64>,
    /// A thread is delivering dead messages to the mover.
    pub(crate) delivering_dead: bool,
    /// Moving dead messages failed: no further delivery before this time. Wall time, milliseconds.
    pub(crate) dead_retry_ms: Option<u64>,
    /// Credit that is withheld from the queue's publishers.
    pub(crate) withholding: Withholding,
}

/// Converts a queue's settings for the lease engine.
fn lease_config(settings: &QueueSettings, rules: QueueRules) -> Config {
    // A queue that rejects when full never drops accepted messages; requeued messages may take it over its limit.
    let drops = settings.overflow == Overflow::DropHead;
    Config {
        mode: match settings.mode {
            // Readers of a stream are not consumers of an engine (`Queues::place`).
            ConsumerMode::Competing | ConsumerMode::Readers => Mode::Competing,
            ConsumerMode::SingleActive => Mode::SingleActive { preempts: false },
            ConsumerMode::Preempting => Mode::SingleActive { preempts: true },
        },
        key_order: settings.key_order,
        whole_entries: settings.whole_entries,
        track_bytes: true,
        mark_handed: true,
        dead_letter: settings.dead_letters,
        failures_max: settings.failures_max,
        returns_count: rules.returns_count,
        low_priority_max: rules.two_levels.then_some(rules.normal_priority),
        retry: settings.retry,
        length_max: settings.length_max.filter(|_| drops),
        bytes_max: settings.bytes_max.filter(|_| drops),
        expiry_grain_ms: EXPIRY_GRAIN_MS,
        ..Config::default()
    }
}

fn ms(time: i64) -> Option<u64> {
    u64::try_from(time).ok()
}

/// Returns the length of a message's body. Of an entry that is not a message: its whole length.
pub(crate) fn body_bytes(view: Option<&Arc<dyn LogView>>, form: Form, bytes: &[u8]) -> usize {
    view.and_then(|view| view.body_bytes(form, bytes)).unwrap_or(bytes.len())
}

/// Converts an entry for the lease engine. `bytes`: total length, `body`: body length, `normal_priority`: the priority of a message without one.
fn lease_entry(envelope: &Envelope, bytes: usize, body: usize, normal_priority: u8) -> Entry {
    Entry {
        first_offset: envelope.base_offset.0,
        count: envelope.count,
        bytes: bytes as u64,
        extra_bytes: bytes.saturating_sub(body) as u64,
        transient: envelope.flags.contains(EntryFlags::TRANSIENT),
        priority: envelope.priority.unwrap_or(normal_priority),
        key_hash: envelope.key_hash,
        expires_at_ms: envelope.expires_at.and_then(ms),
        deliver_at_ms: envelope.deliver_at.and_then(ms),
        time_ms: 0,
        parked: false,
    }
}

impl QueueHost {
    /// Returns a queue whose log starts at `first`, without a writer. `rules` apply to queues without early delivery.
    pub(crate) fn new(settings: &QueueSettings, rules: QueueRules, first: Offset) -> QueueHost {
        let rules = if settings.early { QueueRules::default() } else { rules };
        let config = Arc::new(lease_config(settings, rules));
        // The envelope's check keeps offsets below the engine's bound.
        let lease = Queue::new(config.clone(), first.0, first.0).unwrap_or_else(|_| Queue::empty(config));
        QueueHost {
            lease,
            settings: settings.clone(),
            keeps_settled: settings.keeps_settled,
            rules,
            recipients: Map::default(),
            consumers: 0,
            life: 0,
            waiting: VecDeque::new(),
            refused: None,
            awaited: 0,
            hurried_to: 0,
            recorded: 0,
            applied: 0,
            pumping: false,
            stops: Vec::new(),
            again: false,
            attaching: 0,
            queued: false,
            changed: true,
            early: VecDeque::new(),
            deadline_ms: None,
            describing: false,
            sized_to: Some(0),
            delivering_dead: false,
            dead_retry_ms: None,
            withholding: Withholding::default(),
        }
    }

    /// Applies new settings. `newest`: no newer settings are proposed.
    fn configure(&mut self, settings: &QueueSettings, newest: bool) {
        if newest && self.settings != *settings {
            self.settings = settings.clone();
        }
        self.keeps_settled = settings.keeps_settled;
        let config = lease_config(settings, self.rules);
        if *self.lease.config() != config {
            self.lease.configure(Arc::new(config));
        }
    }

    /// Converts an entry for this queue's lease engine.
    pub(crate) fn entry(&self, envelope: &Envelope, bytes: usize, body: usize) -> Entry {
        lease_entry(envelope, bytes, body, self.rules.normal_priority)
    }

    /// Applies a committed entry.
    pub(crate) fn appended(&mut self, entry: &Entry) -> Result<(), LeaseError> {
        while self.early.front().is_some_and(|body| body.end <= entry.end()) {
            self.early.pop_front();
        }
        self.changed = true;
        self.lease.appended(entry)
    }

    /// Converts an entry that waiting consumers may receive before its commit, once it is proposed. `None` if early delivery is not enabled. An entry
    /// with a delivery time waits for its commit, because the engine parks it then.
    pub(crate) fn early_entry(&self, envelope: &Envelope, bytes: usize, body: impl FnOnce() -> usize) -> Option<Entry> {
        let early = self.settings.early && envelope.deliver_at.is_none() && self.lease.is_writer();
        early.then(|| self.entry(envelope, bytes, body()))
    }

    /// An entry of [`QueueHost::early_entry`] is proposed. Returns whether it can be delivered: one that does not follow the engine's tail waits for its
    /// commit.
    pub(crate) fn proposed(&mut self, entry: &Entry, bytes: Bytes) -> bool {
        let early = self.lease.appended_unflushed(entry).is_ok();
        if early {
            self.early.push_back(EarlyBody { first: entry.first_offset, end: entry.end(), bytes });
        }
        early
    }

    /// Returns the body of an uncommitted entry, and the offset of its first message.
    pub(crate) fn early_body(&self, offset: u64) -> Option<(u64, Bytes)> {
        let at = self.early.partition_point(|body| body.end <= offset);
        self.early.get(at).filter(|body| body.first <= offset).map(|body| (body.first, body.bytes.clone()))
    }

    /// Returns whether a record should be proposed now. While a record is in flight new outcomes wait for the next one, unless a waiter needs them.
    pub(crate) fn wants_record(&self) -> bool {
        self.recorded == self.applied || self.refused.is_some() || self.is_awaited() || self.is_hurried()
    }

    /// Returns whether there are uncommitted dead messages that no flush is requested for. They are moved after their commit, and requests for them
    /// wait.
    pub(crate) fn is_hurried(&self) -> bool {
        self.lease.dead_uncommitted().is_some_and(|end| end > self.hurried_to)
    }

    /// Returns whether the next record has a waiter.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited > self.recorded
    }

    /// Adds a waiter for a record; the record counts as one more part of its request.
    pub(crate) fn wait_for(&mut self, record: u64, pending: &Arc<PendingSettle>, position: u32) {
        if let Some((last, Waiter::Settle(other, positions))) = self.waiting.back_mut()
            && *last == record
            && Arc::ptr_eq(other, pending)
        {
            positions.push(position);
            return;
        }
        pending.grow();
        self.add_waiter(record, Waiter::Settle(pending.clone(), vec![position]));
    }

    /// Adds a waiter for a record.
    pub(crate) fn add_waiter(&mut self, record: u64, waiter: Waiter) {
        self.awaited = self.awaited.max(record);
        self.waiting.push_back((record, waiter));
    }

    /// Adds a consumer that the lease engine has accepted.
    pub(crate) fn add_recipient(&mut self, id: u64, recipient: Recipient) {
        self.consumers += u64::from(recipient.waits());
        self.recipients.insert(id, recipient);
    }

    pub(crate) fn remove_recipient(&mut self, id: u64) {
        let removed = self.recipients.remove(&id);
        self.consumers -= u64::from(removed.is_some_and(|recipient| recipient.waits()));
    }

    pub(crate) fn stop_recipient(&mut self, id: u64) {
        if let Some(recipient) = self.recipients.get_mut(&id) {
            self.consumers -= u64::from(recipient.waits());
            recipient.stopped = true;
        }
    }

    /// Marks messages up to `end` as lost to damage (`None`: extent unknown).
    pub(crate) fn lose(&mut self, end: Option<Offset>) {
        self.lease.lose(end.map(|end| end.0));
        self.changed = true;
    }

    /// Applies a committed record of this queue. Returns its waiters.
    fn apply(
        &mut self,
        record: &[u8],
        beyond_ms: u64,
        parked: &mut dyn FnMut(u64, u64, Tally),
        answered: &mut Vec<(Waiter, Option<SettleError>)>,
    ) -> Result<(), LeaseError> {
        let applied = self.lease.apply_parking(record, beyond_ms, parked)?;
        self.changed = true;
        self.applied = applied;
        while self.waiting.front().is_some_and(|(number, _)| *number <= applied) {
            answered.extend(self.waiting.pop_front().map(|(_, waiter)| (waiter, None)));
        }
        Ok(())
    }

    /// Resets the queue for a new term: drops uncommitted proposals and re-attaches consumers. Returns the waiters of the dropped proposals.
    fn take_writer(&mut self, now_ms: u64, seed: u64) -> Vec<Waiter> {
        self.lease.become_writer(now_ms, seed);
        self.life = self.life.wrapping_add(1);
        self.early.clear();
        self.sized_to = Some(0);
        self.dead_retry_ms = None;
        self.refused = None;
        (self.recorded, self.applied, self.hurried_to, self.awaited) = (0, 0, 0, 0);
        let mut recipients: Vec<_> = self.recipients.iter().collect();
        recipients.sort_by_key(|(id, _)| **id);
        for (id, recipient) in recipients {
            // The consumers were attached together before.
            let id = polylogue_lease::ConsumerId(*id);
            let _ = self.lease.add_consumer(id, recipient.config.clone());
            if recipient.stopped {
                let _ = self.lease.stop_consumer(id);
            }
        }
        let void = self.waiting.drain(..).map(|(_, waiter)| waiter);
        void.chain(self.withholding.take_all()).collect()
    }

    pub(crate) fn counts(&self) -> QueueCounts {
        let counts = self.lease.counts();
        let sizes = [counts.ready_size, counts.held_size, counts.delayed_size, counts.dead_size];
        let [ready_bytes, held_bytes, delayed_bytes, dead_bytes] = sizes.map(|size| size.bytes);
        QueueCounts {
            ready: counts.ready + counts.uncommitted,
            held: counts.held,
            delayed: counts.delayed,
            dead: counts.dead,
            consumers: self.consumers,
            ready_bytes,
            held_bytes,
            delayed_bytes,
            dead_bytes,
            transient: sizes.iter().map(|size| size.transient).sum(),
            transient_bytes: sizes.iter().map(|size| size.transient_bytes).sum(),
        }
    }

    /// Returns whether the queue rejects a message with the offset `next` because it is full. Proposed messages count as ready; their bytes count
    /// from the commit on.
    pub(crate) fn is_full(&self, next: Offset, body_bytes: impl Fn() -> usize) -> bool {
        let QueueSettings { length_max, bytes_max, .. } = self.settings;
        if self.settings.overflow == Overflow::DropHead || (length_max.is_none() && bytes_max.is_none()) {
            return false;
        }
        let counts = self.lease.counts();
        let ready = counts.ready + counts.uncommitted + next.0.saturating_sub(self.lease.proposed_end());
        length_max.is_some_and(|max| ready >= max)
            || bytes_max.is_some_and(|max| counts.ready_size.bytes.saturating_add(body_bytes() as u64) > max)
    }
}

/// The queues of a shard.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    rules: QueueRules,
    pub(crate) hosts: Map<PartitionId, QueueHost>,
    pub(crate) streams: Map<PartitionId, StreamHost>,
    pub(crate) delays: Delays,
    /// Queues that accept no consumers because they are about to be deleted ([`super::closing`]).
    pub(crate) closed: Set<PartitionId>,
    /// Queues that may have messages to deliver or records to propose.
    due: VecDeque<PartitionId>,
    /// The time at which each queue must be looked at. Wall time, milliseconds.
    deadlines: BTreeSet<(u64, PartitionId)>,
    /// Waiters with outcomes, replied to when no lock is held.
    pub(crate) answered: Vec<(Waiter, Option<SettleError>)>,
    /// Checkpoint chunks of queues that were deleted since the last checkpoint.
    gone: Vec<(PartitionId, Bytes, Option<Bytes>)>,
}

impl Queues {
    /// Returns an empty set of queues under these rules.
    pub(crate) fn ruled(rules: QueueRules) -> Queues {
        Queues { rules, ..Queues::default() }
    }

    /// Adds a partition, as a queue or stream if its topic has queue settings. Returns whether it is one now and was not before.
    pub(crate) fn place(&mut self, id: PartitionId, settings: Option<&QueueSettings>, first: Offset) -> bool {
        let Some(settings) = settings.filter(|_| !self.contains(id)) else { return false };
        if settings.mode == ConsumerMode::Readers {
            // A stream has no state but its log.
            self.streams.insert(id, StreamHost::default());
            return false;
        }
        self.hosts.insert(id, QueueHost::new(settings, self.rules, first));
        true
    }

    /// Returns whether a partition is a queue or a stream.
    pub(crate) fn contains(&self, id: PartitionId) -> bool {
        self.hosts.contains_key(&id) || self.streams.contains_key(&id)
    }

    /// Returns a reader of a stream.
    pub(crate) fn reader(&mut self, stream: PartitionId, reader: u64) -> Option<&mut Reader> {
        self.streams.get_mut(&stream)?.reader(reader)
    }

    /// Applies a committed entry, with the time of its frame.
    pub(crate) fn appended(
        &mut self,
        envelope: &Envelope,
        native: &[u8],
        view: Option<&Arc<dyn LogView>>,
        time_ms: TimestampMs,
    ) -> Result<(), LeaseError> {
        let id = envelope.partition;
        if let Some(host) = self.hosts.get_mut(&id) {
            let parked = parked_until(envelope, time_ms);
            let entry = host.entry(envelope, native.len(), body_bytes(view, envelope.form, native));
            host.appended(&Entry { parked: parked.is_some(), time_ms: ms(time_ms).unwrap_or(0), ..entry })?;
            if let Some(until_ms) = parked {
                self.delays.insert(timer_of(id, envelope.base_offset.0, until_ms, kind_of(Tally::default())), time_ms);
            }
            self.touch(id);
        } else if self.streams.get(&id).is_some_and(|host| !host.is_empty()) {
            self.touch(id);
        }
        Ok(())
    }

    /// Applies new settings of a queue. `newest`: no newer settings are proposed.
    pub(crate) fn configure(&mut self, id: PartitionId, settings: &QueueSettings, newest: bool) {
        if let Some(host) = self.hosts.get_mut(&id) {
            host.configure(settings, newest);
            // The new limits may allow more deliveries.
            self.touch(id);
        }
    }

    /// Sets the settings that new messages are checked against: those proposed last, or the applied ones if a proposal is void.
    pub(crate) fn judge_by(&mut self, id: PartitionId, settings: &QueueSettings) {
        if let Some(host) = self.hosts.get_mut(&id).filter(|host| host.settings != *settings) {
            host.settings = settings.clone();
        }
    }

    /// Loads a chunk of a checkpoint. Chunks of deleted queues are ignored.
    pub(crate) fn load_chunk(&mut self, id: PartitionId, chunk: &[u8], bytes: &[u8]) -> Result<(), LeaseError> {
        let Some(host) = self.hosts.get_mut(&id) else { return Ok(()) };
        if host.changed {
            host.lease = Queue::empty(Arc::new(lease_config(&host.settings, host.rules)));
            host.changed = false;
        }
        host.lease.load_chunk(chunk, bytes)
    }

    /// Completes loading after the last chunk.
    pub(crate) fn loaded(&mut self) -> Result<(), LeaseError> {
        self.hosts.values_mut().try_for_each(|host| host.lease.loaded())
    }

    /// Takes the chunks of the queues that changed since the last checkpoint, or of `all`; then those of deleted queues.
    pub(crate) fn take_changed_chunks(&mut self, all: bool) -> Vec<(PartitionId, Bytes, Option<Bytes>)> {
        let mut chunks = std::mem::take(&mut self.gone);
        for (id, host) in self.hosts.iter_mut().filter(|(_, host)| host.changed || all) {
            host.changed = false;
            if all {
                host.lease.change_all_chunks();
            }
            chunks.extend(host.lease.take_changed_chunks().into_iter().map(|(chunk, bytes)| (*id, chunk, bytes)));
        }
        chunks
    }

    /// Marks a queue as due.
    pub(crate) fn touch(&mut self, id: PartitionId) {
        if let Some(queued) = self.queued(id)
            && !std::mem::replace(queued, true)
        {
            self.due.push_back(id);
        }
    }

    fn queued(&mut self, id: PartitionId) -> Option<&mut bool> {
        match self.hosts.get_mut(&id) {
            Some(host) => Some(&mut host.queued),
            None => self.streams.get_mut(&id).map(|host| &mut host.queued),
        }
    }

    /// Bytes granted to consumers by their credit windows and not taken yet.
    pub(crate) fn window_bytes(&self) -> u64 {
        let queues: u64 = self.hosts.values().map(|host| host.lease.window_bytes()).sum();
        queues + self.streams.values().map(StreamHost::window_bytes).sum::<u64>()
    }

    /// Returns whether a queue has deliveries, records or replies to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.due.is_empty() || !self.answered.is_empty() || self.delays.applied
    }

    /// Takes the next due queue.
    pub(crate) fn next_due(&mut self) -> Option<PartitionId> {
        let id = self.due.pop_front()?;
        if let Some(queued) = self.queued(id) {
            *queued = false;
        }
        Some(id)
    }

    /// Records when a queue must be looked at next.
    pub(crate) fn schedule(&mut self, id: PartitionId) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        // The reply to a read of the log wakes the queue.
        let next = if host.describing { host.lease.next_alarm_ms() } else { host.lease.next_deadline_ms() };
        let refused_ms = host.refused.as_ref().map(|(_, at_ms)| *at_ms);
        let own = host.dead_retry_ms.into_iter().chain(refused_ms).chain(host.withholding.next_deadline_ms());
        let next = next.into_iter().chain(own).min();
        let next = next.filter(|_| host.lease.is_writer());
        if next != host.deadline_ms {
            if let Some(before) = host.deadline_ms.take() {
                self.deadlines.remove(&(before, id));
            }
            if let Some(next) = next {
                self.deadlines.insert((next, id));
            }
            host.deadline_ms = next;
        }
    }

    /// Returns when the next queue must be looked at. Wall time, milliseconds.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Advances the time of all queues: leases time out, messages become ready or expire.
    pub(crate) fn on_deadline(&mut self, now_ms: u64) {
        let later = self.deadlines.split_off(&(now_ms + 1, PartitionId(0)));
        for (_, id) in std::mem::replace(&mut self.deadlines, later) {
            if let Some(host) = self.hosts.get_mut(&id) {
                host.deadline_ms = None;
                host.lease.on_deadline(now_ms);
            }
            self.schedule(id);
            self.touch(id);
        }
    }

    /// Applies a committed record of a queue, with the time of its frame. Returns the queue's new log start, unless it keeps settled messages.
    pub(crate) fn apply(
        &mut self,
        id: PartitionId,
        record: &[u8],
        time_ms: TimestampMs,
    ) -> Result<Option<Offset>, LeaseError> {
        let Queues { hosts, answered, delays, .. } = self;
        let Some(host) = hosts.get_mut(&id) else { return Ok(None) };
        let mut parked = |offset, until_ms, tally| {
            delays.insert(timer_of(id, offset, until_ms, kind_of(tally)), time_ms);
        };
        host.apply(record, beyond_ms(time_ms), &mut parked, answered)?;
        Ok((!host.keeps_settled).then(|| Offset(host.lease.floor())))
    }

    /// Removes a queue. Returns it with its consumers and waiters.
    pub(crate) fn remove(&mut self, id: PartitionId) -> Option<QueueHost> {
        let mut host = self.hosts.remove(&id)?;
        host.lease.change_all_chunks();
        self.gone.extend(host.lease.take_changed_chunks().into_iter().map(|(chunk, _)| (id, chunk, None)));
        if let Some(at) = host.deadline_ms {
            self.deadlines.remove(&(at, id));
        }
        Some(host)
    }

    /// Begins a new term for all queues.
    pub(crate) fn take_writer(&mut self, now_ms: u64, seed: u64) {
        self.delays.take_writer();
        let ids: Vec<_> = self.hosts.keys().copied().collect();
        for id in ids {
            self.begin(id, now_ms, seed ^ id.0.rotate_left(17));
        }
    }

    /// Begins a new term for one queue. `seed` must be unpredictable.
    pub(crate) fn begin(&mut self, id: PartitionId, now_ms: u64, seed: u64) {
        if let Some(host) = self.hosts.get_mut(&id) {
            let void = host.take_writer(now_ms, seed);
            self.answered.extend(void.into_iter().map(|waiter| (waiter, Some(VOID))));
        }
        self.schedule(id);
        self.touch(id);
    }
}

/// The error for waiters of dropped proposals.
const VOID: SettleError = SettleError::Unavailable(Unavailable::NotCommitted);
