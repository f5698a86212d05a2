//! Dead messages: delivered to the dead-letter mover, settled when it confirms the move.
//!
//! A record makes a message dead; its delivery to a session is not recorded. The mover's session may therefore end at any time: the next one receives
//! all dead messages, and those that had been moved already are moved again.

use crate::broker::Inner;
use crate::queues::note_shard;
use crate::queues::pump::{READ_AGAIN_MS, lease_ms};
use crate::shard::{Shard, ShardState};
use crate::sink::{Origin, ReplySink, SessionId};
use bytes::Bytes;
use polylogue_api::{DeadLetterResult, DeadMessage, DeadOutcome, DeadReason, Event};
use polylogue_lease::Reason;
use polylogue_log::ErrorKind as LogErrorKind;
use polylogue_log::store::{EntryAt, Lookup};
use polylogue_types::{Map, Offset, PartitionId, Set};
use std::collections::VecDeque;
use std::sync::Arc;

/// Unacknowledged dead messages of one queue at most.
const QUEUE_MESSAGES_MAX: u64 = 256;
/// Unacknowledged dead messages of all queues at most.
const MESSAGES_MAX: u64 = 4_096;
/// Bytes of unacknowledged dead messages, exceeded by at most one message: they must not fill the log's queue.
const BYTES_MAX: u64 = 4 << 20;
/// Bytes that one queue delivers in a batch, exceeded by at most one message.
const BATCH_BYTES_MAX: u64 = 1 << 20;
/// Unacknowledged messages rejected by full queues at most. More are dropped: their publishers got the rejection.
const REFUSED_MAX: usize = 10_000;
/// Bytes of unacknowledged rejected messages at most.
const REFUSED_BYTES_MAX: u64 = 16 << 20;

/// The dead-letter mover's session, and its unacknowledged messages.
#[derive(Debug, Default)]
pub(crate) struct DeadLetterMover {
    session: Option<(SessionId, Arc<dyn ReplySink>)>,
    /// Accounted size of each message. Bytes.
    delivered: Map<(PartitionId, u64), u64>,
    of_queue: Map<PartitionId, u64>,
    bytes: u64,
    /// Queues that found no room, each once, in order of arrival.
    waiting: VecDeque<PartitionId>,
    waits: Set<PartitionId>,
    refused: Refused,
}

/// Unacknowledged messages rejected by full queues. They have their own bound: they do not wait for room.
#[derive(Debug, Default)]
struct Refused {
    /// Accounted size of each, by its number. Bytes.
    delivered: Map<u64, u64>,
    bytes: u64,
    next: u64,
}

impl Refused {
    /// Returns a number for one more message if there is room.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        if self.delivered.len() >= REFUSED_MAX || self.bytes.saturating_add(bytes) > REFUSED_BYTES_MAX {
            return None;
        }
        self.next += 1;
        self.delivered.insert(self.next, bytes);
        self.bytes += bytes;
        Some(self.next)
    }
}

/// Dead messages of a queue that are being delivered to `DeadLetters`.
pub(crate) struct DeadBatch {
    queue: PartitionId,
    sink: Arc<dyn ReplySink>,
    /// Messages still to be read, in order.
    unread: VecDeque<(u64, Reason)>,
    ready: Vec<DeadMessage>,
}

impl DeadLetterMover {
    /// Returns how many more messages and bytes of a queue may be delivered now. A queue without room is registered for a wake-up.
    fn room(&mut self, queue: PartitionId) -> Option<(Arc<dyn ReplySink>, u64, u64)> {
        let (_, sink) = self.session.as_ref()?;
        let of_queue = QUEUE_MESSAGES_MAX.saturating_sub(self.of_queue.get(&queue).copied().unwrap_or(0));
        let messages = of_queue.min(MESSAGES_MAX.saturating_sub(self.delivered.len() as u64));
        let bytes = BYTES_MAX.saturating_sub(self.bytes).min(BATCH_BYTES_MAX);
        if messages > 0 && bytes > 0 {
            return Some((sink.clone(), messages, bytes));
        }
        // A queue with unacknowledged messages is looked at when they are acknowledged.
        if of_queue > 0 && self.waits.insert(queue) {
            self.waiting.push_back(queue);
        }
        None
    }

    /// Takes the queues to wake after this many acknowledgements.
    fn take_waiting(&mut self, answered: usize) -> Vec<PartitionId> {
        // Without unacknowledged messages no other event would wake the remaining queues.
        let count = if self.delivered.is_empty() { self.waiting.len() } else { answered.min(self.waiting.len()) };
        let queues: Vec<_> = self.waiting.drain(..count).collect();
        queues.iter().for_each(|queue| _ = self.waits.remove(queue));
        queues
    }

    fn note(&mut self, queue: PartitionId, offset: u64, bytes: u64) {
        match self.delivered.insert((queue, offset), bytes) {
            None => *self.of_queue.entry(queue).or_default() += 1,
            Some(before) => self.bytes -= before,
        }
        self.bytes += bytes;
    }

    /// Removes an acknowledged rejected message.
    fn refused_answered(&mut self, offset: Offset) {
        let number = offset.0 ^ DeadMessage::refused(0).0;
        self.refused.bytes -= self.refused.delivered.remove(&number).unwrap_or(0);
    }

    /// Removes an acknowledged message. Returns whether it had been delivered.
    fn answered(&mut self, queue: PartitionId, offset: u64) -> bool {
        let Some(bytes) = self.delivered.remove(&(queue, offset)) else { return false };
        self.bytes -= bytes;
        if let Some(count) = self.of_queue.get_mut(&queue) {
            *count -= 1;
            if *count == 0 {
                self.of_queue.remove(&queue);
            }
        }
        true
    }

    /// Handles the end of a session, which may be the mover's.
    pub(crate) fn gone(&mut self, session: SessionId) {
        if self.session.as_ref().is_some_and(|(mover, _)| *mover == session) {
            *self = DeadLetterMover::default();
        }
    }
}

fn dead_reason(reason: Reason) -> DeadReason {
    match reason {
        Reason::Rejected => DeadReason::Rejected,
        Reason::DeliveryLimit => DeadReason::DeliveryLimit,
        Reason::Expired => DeadReason::Expired,
        Reason::MaxLength => DeadReason::MaxLength,
    }
}

impl DeadBatch {
    fn took(&mut self, bytes: Option<Bytes>) {
        let Some((offset, reason)) = self.unread.pop_front() else { return };
        let reason = dead_reason(reason);
        self.ready.extend(bytes.map(|bytes| DeadMessage { queue: self.queue, offset: Offset(offset), reason, bytes }));
    }

    /// Reads the messages that are in memory. Returns whether some are left.
    fn read_in_memory(&mut self, shard: &Shard) -> bool {
        while let Some((offset, _)) = self.unread.front() {
            match shard.store.entry_at(self.queue, Offset(*offset)) {
                Ok(Lookup::Ready(EntryAt { bytes, .. })) => self.took(Some(bytes)),
                Ok(Lookup::NeedsIo(_)) | Err(_) => return true,
            }
        }
        false
    }

    /// Reads the rest from disk. Messages that cannot be read are lost, unless the error may be temporary. Returns the number of failures.
    fn read_all(&mut self, inner: &Inner, shard: &Shard) -> usize {
        let mut failed = 0;
        while let Some((offset, _)) = self.unread.front().copied() {
            let read = match shard.store.entry_at(self.queue, Offset(offset)).and_then(Lookup::wait) {
                Ok(EntryAt { bytes, .. }) => Some(bytes),
                Err(e) => {
                    let what = format!("dead message {offset} of queue {}: {e}", self.queue);
                    inner.gauges.background_failed("dead-lettering", &what);
                    let gone = matches!(e.kind, LogErrorKind::Damaged | LogErrorKind::OutOfRange);
                    let how = if gone { DeadLetterResult::Moved } else { DeadLetterResult::Later(READ_AGAIN_MS) };
                    inner.dead_answered(shard, &DeadOutcome { queue: self.queue, offset: Offset(offset), how });
                    failed += 1;
                    None
                }
            };
            self.took(read);
        }
        failed
    }

    fn send(&mut self) {
        if !self.ready.is_empty() {
            self.sink.event(Event::Dead(std::mem::take(&mut self.ready)));
        }
    }
}

impl Inner {
    /// Takes a batch of a queue's dead messages, as far as there is room.
    pub(crate) fn take_dead_batch(&self, state: &mut ShardState, queue: PartitionId) -> Option<DeadBatch> {
        let host = state.queues.hosts.get_mut(&queue)?;
        // Even if there is nothing to deliver now: otherwise the timer would wake up for this queue repeatedly.
        if let Some(at_ms) = host.dead_retry_ms {
            if at_ms > lease_ms(self.env.clock.now_ms()) {
                return None;
            }
            host.dead_retry_ms = None;
            state.queues.schedule(queue);
        }
        let host = state.queues.hosts.get_mut(&queue).filter(|host| host.lease.has_dead() && !host.delivering_dead)?;
        let mut mover = self.mover.lock();
        let (sink, messages_max, bytes_max) = mover.room(queue)?;
        let mut letters = Vec::new();
        host.lease.take_dead_letters(messages_max, bytes_max, &mut letters);
        let mut unread = VecDeque::new();
        for letter in letters {
            let bytes = letter.bytes / letter.count.max(1);
            for offset in letter.first_offset..letter.first_offset + letter.count {
                mover.note(queue, offset, bytes);
                unread.push_back((offset, letter.reason));
            }
        }
        if unread.is_empty() {
            return None;
        }
        host.delivering_dead = true;
        Some(DeadBatch { queue, sink, unread, ready: Vec::new() })
    }

    /// Reads the bodies of dead messages and delivers them; on a reader thread if the disk is needed.
    pub(crate) fn deliver_dead(&self, shard: &Arc<Shard>, mut delivering_dead: DeadBatch) {
        let unread = delivering_dead.read_in_memory(shard);
        delivering_dead.send();
        if !unread {
            return dead_delivered(shard, delivering_dead.queue);
        }
        self.read_and_pump(shard, move |inner, shard| {
            let failed = delivering_dead.read_all(inner, shard);
            delivering_dead.send();
            dead_delivered(shard, delivering_dead.queue);
            if failed > 0 {
                // Failures make room, possibly for queues of other shards: the timer looks at them.
                inner.wake_waiting(failed);
                inner.deadlines_changed();
            }
        });
    }

    /// Wakes queues that wait for room after this many acknowledgements. Returns their shards.
    fn wake_waiting(&self, answered: usize) -> Vec<Arc<Shard>> {
        let mut shards = Vec::new();
        let waiting = self.mover.lock().take_waiting(answered);
        for queue in waiting {
            if let Some(shard) = self.partition_shard(queue) {
                shard.state.lock().queues.touch(queue);
                note_shard(&mut shards, shard);
            }
        }
        shards
    }

    /// Makes a session the mover: it receives all dead messages.
    pub(crate) fn move_dead(&self, origin: &Origin) {
        *self.mover.lock() =
            DeadLetterMover { session: Some((origin.session, origin.sink.clone())), ..DeadLetterMover::default() };
        for shard in self.all_shards() {
            let mut state = shard.state.lock();
            let dead: Vec<_> =
                state.queues.hosts.iter().filter(|(_, host)| host.lease.has_dead()).map(|(id, _)| *id).collect();
            for queue in dead {
                if let Some(host) = state.queues.hosts.get_mut(&queue) {
                    host.lease.dead_letter_failed(0, u64::MAX);
                    host.dead_retry_ms = None;
                }
                state.queues.touch(queue);
            }
            drop(state);
            self.pump(&shard);
        }
    }

    /// Applies the mover's outcomes of dead messages. Outcomes of other sessions are ignored.
    pub(crate) fn dead_moved(&self, session: SessionId, outcomes: &[DeadOutcome]) {
        if self.mover.lock().session.as_ref().is_none_or(|(mover, _)| *mover != session) {
            return;
        }
        let mut shards: Vec<Arc<Shard>> = Vec::new();
        for outcome in outcomes {
            if DeadMessage::was_refused(outcome.offset) {
                self.mover.lock().refused_answered(outcome.offset);
                continue;
            }
            match self.partition_shard(outcome.queue) {
                Some(shard) => {
                    self.dead_answered(&shard, outcome);
                    note_shard(&mut shards, shard);
                }
                // The message was removed with its queue.
                None => _ = self.mover.lock().answered(outcome.queue, outcome.offset.0),
            }
        }
        for shard in self.wake_waiting(outcomes.len()) {
            note_shard(&mut shards, shard);
        }
        for shard in shards {
            self.pump(&shard);
        }
    }

    /// Delivers messages that full queues rejected to the mover. They are dropped if there is no room or no mover.
    pub(crate) fn deliver_refused(&self, refused: Vec<(PartitionId, Bytes)>) {
        let mut mover = self.mover.lock();
        let sink = mover.session.as_ref().map(|(_, sink)| sink.clone());
        let mut letters = Vec::with_capacity(refused.len());
        let mut dropped = 0;
        for (queue, bytes) in refused {
            match sink.as_ref().and_then(|_| mover.refused.take(bytes.len() as u64)) {
                Some(number) => {
                    let offset = DeadMessage::refused(number);
                    letters.push(DeadMessage { queue, offset, reason: DeadReason::MaxLength, bytes });
                }
                None => dropped += 1,
            }
        }
        drop(mover);
        self.gauges.refused_dropped(dropped);
        if let Some(sink) = sink.filter(|_| !letters.is_empty()) {
            sink.event(Event::Dead(letters));
        }
    }

    fn dead_answered(&self, shard: &Shard, outcome: &DeadOutcome) {
        let DeadOutcome { queue, offset, how } = *outcome;
        let mut state = shard.state.lock();
        if !self.mover.lock().answered(queue, offset.0) {
            return;
        }
        let Some(host) = state.queues.hosts.get_mut(&queue) else { return };
        match how {
            // Without a waiter: a new writer delivers the message again.
            DeadLetterResult::Moved => _ = host.lease.dead_lettered(offset.0, 1),
            DeadLetterResult::Later(ms) => {
                host.lease.dead_letter_failed(offset.0, 1);
                host.dead_retry_ms = Some(lease_ms(self.env.clock.now_ms()).saturating_add(ms));
            }
        }
        state.queues.touch(queue);
    }
}

/// Ends the delivery of a batch of dead messages: another one may be taken.
fn dead_delivered(shard: &Shard, queue: PartitionId) {
    let mut state = shard.state.lock();
    if let Some(host) = state.queues.hosts.get_mut(&queue) {
        host.delivering_dead = false;
    }
    state.queues.touch(queue);
}
