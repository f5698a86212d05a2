//! Publishing messages to queues: one body for all queues of a shard, in one frame.

use crate::broker::Inner;
use crate::pending::{Pending, PendingPublish};
use crate::queues::credit::{Amount, amounts};
use crate::queues::host::{QueueHost, body_bytes};
use crate::queues::lease_ms;
use crate::room::refuse;
use crate::shard::{Parked, Shard, ShardState};
use crate::sink::{Origin, ReplySink, SessionId};
use bytes::Bytes;
use parking_lot::MutexGuard;
use polylogue_api::{
    Ack, Durability, Event, LogView, Overflow, PublishError, PublishMessage, PublishRequest, QueueSettings, Reply,
    Target, Token, Unavailable,
};
use polylogue_lease::Entry;
use polylogue_log::journal::{self, Draft, Proposal, Urgency};
use polylogue_record::crc;
use polylogue_record::envelope::{Body, Envelope};
use polylogue_types::{Map, Offset, PartitionId, Set, limits};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of messages and envelopes after which the rest of a request goes into another proposal. A message and its references are always one frame,
/// whatever its size.
const PROPOSAL_BYTES_MAX: usize = limits::FRAME_BYTES_MAX / 2;

/// Messages for the queues of one shard: position in the request and queue. Targets of a message are adjacent.
type Part = Vec<(u32, Target)>;

/// The result of a shard's part of a request.
#[derive(Debug, Default)]
struct PublishOutcome {
    errors: Vec<(u32, PublishError)>,
    /// The ticket to wait for, and the positions that wait for it.
    waits: Option<(u64, Vec<u32>)>,
    /// Positions of messages of which at least one part is proposed.
    proposed: Vec<u32>,
    /// Messages may be delivered before their commit.
    early: bool,
    /// Messages that full queues rejected and that `DeadLetters` is to receive.
    refused: Vec<(PartitionId, Bytes)>,
}

/// Drafts to propose, with the queue and the message of each.
#[derive(Debug)]
struct Planned {
    drafts: Vec<Draft>,
    of: Vec<u32>,
    bytes: usize,
    class: journal::Durability,
}

impl Default for Planned {
    fn default() -> Planned {
        Planned { drafts: Vec::new(), of: Vec::new(), bytes: 0, class: journal::Durability::Async }
    }
}

/// The messages of a request that found no room while others did. They, and so the request, wait for room.
struct Remainder {
    request: PublishRequest,
    positions: Vec<u32>,
}

impl Remainder {
    /// Takes the messages of which no part is proposed for lack of room. They count as written until their outcome is known.
    fn take(request: &PublishRequest, results: &mut [Result<(), PublishError>], proposed: &[u32]) -> Option<Remainder> {
        const FULL: Result<(), PublishError> = Err(PublishError::Unavailable(Unavailable::StorageFull));
        let (mut messages, mut positions) = (Vec::new(), Vec::new());
        for ((position, message), result) in (0u32..).zip(&request.messages).zip(results) {
            if *result == FULL && !proposed.contains(&position) {
                *result = Ok(());
                messages.push(message.clone());
                positions.push(position);
            }
        }
        let request = PublishRequest { messages, ..*request };
        (!positions.is_empty()).then_some(Remainder { request, positions })
    }

    /// Returns the remainder as a part of its request.
    fn of(self, whole: &Arc<PendingPublish>, session: SessionId) -> (Origin, PublishRequest) {
        let rest = Rest { whole: whole.clone(), positions: self.positions };
        (Origin { sink: Arc::new(rest), session, token: 0 }, self.request)
    }
}

/// The waiter for the remainder of a request, with the whole request.
#[derive(Debug)]
struct Rest {
    whole: Arc<PendingPublish>,
    positions: Vec<u32>,
}

impl ReplySink for Rest {
    fn reply(&self, _: Token, reply: Reply) {
        if let Reply::Publish(results) = reply {
            for (position, result) in self.positions.iter().zip(results) {
                self.whole.set(*position, result);
            }
        }
        self.whole.part_done(&[], None);
    }

    fn event(&self, _: Event) {}
}

impl Inner {
    pub(crate) fn publish(&self, origin: Origin, request: PublishRequest) {
        if self.stopping.load(Ordering::Relaxed) {
            return refuse(origin, &request, Unavailable::Stopping);
        }
        let lacks_room = match self.must_wait() {
            true => Some((origin, request)),
            false => self.try_publish(origin, request).err().map(|back| *back),
        };
        if let Some((origin, request)) = lacks_room {
            self.hold(origin, request);
        }
    }

    /// Publishes, unless there is no room.
    ///
    /// # Errors
    /// Returns the request if none of it could be proposed for lack of room.
    pub(crate) fn try_publish(
        &self,
        origin: Origin,
        request: PublishRequest,
    ) -> Result<(), Box<(Origin, PublishRequest)>> {
        let mut results: Vec<Result<(), PublishError>> = vec![Ok(()); request.messages.len()];
        let parts = self.publish_parts(&request.messages, &mut results);
        if parts.iter().any(|(shard, _)| shard.lacks_room()) {
            return Err(Box::new((origin, request)));
        }
        // Before the lock: it takes by far the longest of what is done to a large message.
        let sum = |message: &PublishMessage| if message.queues.is_empty() { 0 } else { crc::crc32c(&message.bytes) };
        let sums: Vec<u32> = request.messages.iter().map(sum).collect();
        // Each shard's state stays locked until its part is parked, so that no part completes before the number of parts is known. The shards are
        // always locked in the same order.
        let mut states: Vec<_> = parts.iter().map(|(shard, _)| shard.state.lock()).collect();
        let mut waits = Vec::new();
        let mut early = Vec::new();
        let mut refused = Vec::new();
        let mut proposed = Vec::new();
        let kept_out = kept_out(&states, &request.messages, self.config.view.as_ref());
        kept_out.iter().for_each(|position| note(&mut results, *position, PublishError::QueueFull));
        for ((i, (shard, part)), state) in parts.iter().enumerate().zip(&mut states) {
            let goes = |targets: &&[(u32, Target)]| targets.iter().all(|(position, _)| !kept_out.contains(position));
            let messages = part.chunk_by(|one, other| one.0 == other.0).filter(goes);
            let outcome = shard.publish(state, messages, &request, &sums);
            for (position, error) in outcome.errors {
                note(&mut results, position, error);
            }
            waits.extend(outcome.waits.map(|(ticket, positions)| (i, ticket, positions)));
            early.extend(outcome.early.then_some(i));
            refused.extend(outcome.refused);
            proposed.extend(outcome.proposed);
        }
        let left = Remainder::take(&request, &mut results, &proposed);
        if proposed.is_empty() && left.is_some() {
            drop(states);
            return Err(Box::new((origin, request)));
        }
        let withheld = self.withheld(&mut states, &request);
        let parts_open = waits.len() + usize::from(left.is_some()) + withheld.len();
        let mut held = None;
        let answer = if parts_open == 0 {
            Some((origin, results))
        } else {
            let session = origin.session;
            let pending: Arc<PendingPublish> = Arc::new(Pending::new(origin, results, parts_open));
            held = left.map(|left| left.of(&pending, session));
            for (i, ticket, positions) in waits {
                if let Some(state) = states.get_mut(i) {
                    Shard::park(state, ticket, Parked::Publish(pending.clone(), positions));
                }
            }
            self.withhold(&withheld, &mut states, &pending);
            None
        };
        drop(states);
        if let Some((origin, request)) = held {
            self.hold_rest(origin, request);
        }
        if !refused.is_empty() {
            self.deliver_refused(refused);
        }
        if let Some((origin, results)) = answer {
            origin.reply(Reply::Publish(results));
        }
        // The timer needs the latest time at which withheld credit is granted.
        let pumped: BTreeSet<usize> = early.into_iter().chain(withheld.into_iter().map(|(i, ..)| i)).collect();
        for (shard, _) in pumped.into_iter().filter_map(|i| parts.get(i)) {
            self.pump(shard);
        }
        Ok(())
    }

    /// Returns the queues that withhold credit for a request, with the index of their shard and part; none if the request asks for no credit.
    fn withheld(
        &self,
        states: &mut [MutexGuard<'_, ShardState>],
        request: &PublishRequest,
    ) -> Vec<(usize, PartitionId, Amount)> {
        let mut withheld = Vec::new();
        if !matches!(request.ack, Ack::KeptUp { .. }) {
            return withheld;
        }
        for (queue, amount) in amounts(request) {
            let of = |(i, state): (usize, &mut MutexGuard<'_, ShardState>)| {
                let host = state.queues.hosts.get_mut(&queue)?;
                host.withholds(self.config.credit_rules).then_some(i)
            };
            withheld.extend(states.iter_mut().enumerate().find_map(of).map(|i| (i, queue, amount)));
        }
        withheld
    }

    /// Parks a request until the queues grant its withheld credit.
    fn withhold(
        &self,
        withheld: &[(usize, PartitionId, Amount)],
        states: &mut [MutexGuard<'_, ShardState>],
        pending: &Arc<PendingPublish>,
    ) {
        let until_ms = lease_ms(self.env.clock.now_ms()).saturating_add(self.config.credit_rules.withheld_ms_max);
        for (i, queue, amount) in withheld {
            let Some(state) = states.get_mut(*i) else { continue };
            if let Some(host) = state.queues.hosts.get_mut(queue) {
                host.withhold(*amount, until_ms, pending);
                self.gauges.credit_withheld();
            }
            state.queues.touch(*queue);
            state.queues.schedule(*queue);
        }
    }

    /// Groups messages by the shards of their queues, in the order of shard ids.
    fn publish_parts(
        &self,
        messages: &[PublishMessage],
        results: &mut [Result<(), PublishError>],
    ) -> Vec<(Arc<Shard>, Part)> {
        let mut parts: Vec<(Arc<Shard>, Part)> = Vec::with_capacity(1);
        let routes = self.routes.read();
        for (position, message) in (0u32..).zip(messages) {
            for target in &message.queues {
                let Some(shard) = routes.get(&target.queue) else {
                    note(results, position, PublishError::UnknownQueue);
                    continue;
                };
                let at = parts.iter().position(|(other, _)| other.id == shard.id).unwrap_or_else(|| {
                    parts.push((shard.clone(), Vec::with_capacity(messages.len())));
                    parts.len() - 1
                });
                let Some((_, part)) = parts.get_mut(at) else { continue };
                part.push((position, *target));
            }
        }
        parts.sort_by_key(|(shard, _)| shard.id);
        parts
    }
}

/// Returns the positions of messages that go to all of their queues or to none, and that have a full queue. Earlier messages of the same request
/// count as present.
fn kept_out(
    states: &[MutexGuard<'_, ShardState>],
    messages: &[PublishMessage],
    view: Option<&Arc<dyn LogView>>,
) -> Set<u32> {
    let mut kept_out = Set::default();
    if !messages.iter().any(|message| message.all_or_none) {
        return kept_out;
    }
    let mut before: Map<PartitionId, u64> = Map::default();
    for (position, message) in (0u32..).zip(messages) {
        let is_full = |queue: &PartitionId| {
            let found =
                states.iter().find_map(|state| Some((state.partitions.get(queue)?, state.queues.hosts.get(queue)?)));
            let count = before.get(queue).copied().unwrap_or(0);
            let body = || body_bytes(view, message.form, &message.bytes);
            found.is_some_and(|(at, host)| host.is_full(Offset(at.next_offset.0 + count), body))
        };
        let (full, room): (Vec<_>, Vec<_>) = message.queues.iter().map(|target| target.queue).partition(is_full);
        if message.all_or_none && !full.is_empty() {
            kept_out.insert(position);
        } else {
            room.into_iter().for_each(|queue| *before.entry(queue).or_default() += 1);
        }
    }
    kept_out
}

/// Records why a queue rejected a message; of several reasons the most important one.
fn note(results: &mut [Result<(), PublishError>], position: u32, error: PublishError) {
    let weight = |error| match error {
        PublishError::UnknownQueue => 0,
        PublishError::QueueFull => 1,
        PublishError::Unavailable(_) => 2,
    };
    let Some(slot) = results.get_mut(position as usize) else { return };
    if slot.err().is_none_or(|before| weight(before) < weight(error)) {
        *slot = Err(error);
    }
}

impl Shard {
    /// Assigns offsets to messages and proposes them. `sums`: the checksum of each message of the request. The caller parks `waits` under the same lock.
    fn publish<'a>(
        &self,
        state: &mut ShardState,
        messages: impl Iterator<Item = &'a [(u32, Target)]>,
        request: &PublishRequest,
        sums: &[u32],
    ) -> PublishOutcome {
        let mut outcome = PublishOutcome::default();
        let mut planned = Planned::default();
        for targets in messages {
            self.plan_message(state, targets, (request, sums), &mut planned, &mut outcome);
        }
        self.propose_messages(state, planned, request, &mut outcome);
        outcome.proposed.dedup();
        if let Some((_, positions)) = &mut outcome.waits {
            positions.clone_from(&outcome.proposed);
        }
        outcome
    }

    /// Plans a message: the body with the first queue, references with the others. Proposes the plan when it reaches the size of a proposal: a
    /// message for very many queues has its body in several.
    fn plan_message(
        &self,
        state: &mut ShardState,
        targets: &[(u32, Target)],
        (request, sums): (&PublishRequest, &[u32]),
        planned: &mut Planned,
        outcome: &mut PublishOutcome,
    ) {
        let mut body = None;
        for (position, target) in targets {
            let position = *position;
            let Some(message) = request.messages.get(position as usize) else { return };
            if planned.bytes >= PROPOSAL_BYTES_MAX {
                self.propose_messages(state, std::mem::take(planned), request, outcome);
                body = None;
            }
            let queue = &target.queue;
            let is_queue = state.proposes() && state.queues.contains(*queue);
            let Some(partition) = state.partitions.get_mut(queue).filter(|_| is_queue) else {
                let lost = PublishError::Unavailable(Unavailable::NotCommitted);
                outcome.errors.push((position, if state.proposes() { PublishError::UnknownQueue } else { lost }));
                continue;
            };
            let body_len = || body_bytes(self.view.as_ref(), message.form, &message.bytes);
            let full = |host: &&QueueHost| host.is_full(partition.next_offset, body_len);
            if let Some(host) = state.queues.hosts.get(queue).filter(full) {
                outcome.errors.push((position, PublishError::QueueFull));
                let QueueSettings { overflow, dead_letters, .. } = host.settings;
                if dead_letters && overflow == Overflow::RejectDead && !message.all_or_none {
                    outcome.refused.push((*queue, message.bytes.clone()));
                }
                continue;
            }
            let mut envelope = Envelope::new(*queue, message.form);
            envelope.base_offset = partition.next_offset;
            envelope.ordinal = partition.next_ordinal;
            envelope.count = 1;
            envelope.max_timestamp = message.timestamp;
            envelope.leader_epoch = partition.leader_epoch as u32;
            envelope.flags = message.flags;
            envelope.priority = target.priority;
            envelope.key_hash = message.key_hash;
            envelope.expires_at = target.expires_at;
            envelope.deliver_at = target.deliver_at;
            partition.next_offset = envelope.next_offset();
            partition.next_ordinal.0 += 1;
            if partition.config.own().durability == Durability::Sync {
                planned.class = journal::Durability::Sync;
            }
            let bytes = match body {
                Some(entry) => {
                    envelope.body = Body::Ref { entry };
                    Bytes::new()
                }
                None => {
                    let len = message.bytes.len() as u32;
                    let checksum = sums.get(position as usize).copied().unwrap_or_default();
                    envelope.body = Body::Inline { len, checksum };
                    body = Some(planned.drafts.len() as u32);
                    planned.bytes += message.bytes.len();
                    message.bytes.clone()
                }
            };
            planned.bytes += envelope.encoded_len();
            planned.drafts.push(Draft::new(envelope, bytes));
            planned.of.push(position);
        }
    }

    /// Returns what the queue of a draft may deliver before its commit.
    fn early_entry(
        &self,
        state: &ShardState,
        draft: &Draft,
        request: &PublishRequest,
        position: u32,
    ) -> Option<(PartitionId, Entry, Bytes)> {
        let message = request.messages.get(position as usize)?;
        let host = state.queues.hosts.get(&draft.envelope.partition)?;
        let body = || body_bytes(self.view.as_ref(), message.form, &message.bytes);
        let entry = host.early_entry(&draft.envelope, message.bytes.len(), body)?;
        Some((draft.envelope.partition, entry, message.bytes.clone()))
    }

    fn propose_messages(
        &self,
        state: &mut ShardState,
        planned: Planned,
        request: &PublishRequest,
        outcome: &mut PublishOutcome,
    ) {
        let Planned { drafts, of, class, .. } = planned;
        if drafts.is_empty() {
            return;
        }
        let may_be_early = self.early_deliveries;
        let of_early = |draft: &Draft| {
            let host = state.queues.hosts.get(&draft.envelope.partition);
            host.is_some_and(|host| host.settings.early)
        };
        let urgency = match request.ack {
            ack if !ack.is_committed() => Urgency::Lazy,
            _ if request.patient && may_be_early && drafts.iter().all(of_early) => Urgency::Soon,
            _ => Urgency::Urgent,
        };
        let class = (self.class != Durability::Memory).then_some(class);
        let early: Vec<_> = match may_be_early {
            true => {
                drafts.iter().zip(&of).filter_map(|(draft, at)| self.early_entry(state, draft, request, *at)).collect()
            }
            false => Vec::new(),
        };
        match self.propose(state, Proposal { urgency, class, ..Proposal::data(state.term, 0, drafts) }) {
            Ok(ticket) => {
                if request.ack.is_committed() {
                    outcome.waits = Some((ticket, Vec::new()));
                }
                outcome.proposed.extend_from_slice(&of);
                for (queue, entry, bytes) in early {
                    let host = state.queues.hosts.get_mut(&queue);
                    if host.is_some_and(|host| host.proposed(&entry, bytes)) {
                        state.queues.touch(queue);
                        outcome.early = true;
                    }
                }
            }
            Err(why) => outcome.errors.extend(of.into_iter().map(|p| (p, PublishError::Unavailable(why)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::testing::Recorder;
    use polylogue_record::envelope::{EntryFlags, Form};

    const FULL: Result<(), PublishError> = Err(PublishError::Unavailable(Unavailable::StorageFull));

    fn request(bodies: &[&'static str]) -> PublishRequest {
        let message = |body: &&'static str| PublishMessage {
            queues: Vec::new(),
            form: Form::AmqpMessage,
            flags: EntryFlags::NONE,
            bytes: Bytes::from_static(body.as_bytes()),
            timestamp: -1,
            key_hash: None,
            all_or_none: false,
        };
        PublishRequest { messages: bodies.iter().map(message).collect(), ack: Ack::Committed, patient: false }
    }

    /// When the disk became full between two proposals of a request, either the rest was refused although it must wait, or the first part was written
    /// again with it.
    #[test]
    fn of_a_request_that_found_room_in_part_the_rest_waits_and_is_told_with_it() {
        let recorder = Arc::new(Recorder::default());
        for (last, reported) in [(Ok(()), Ok(())), (FULL, FULL)] {
            let mut results = vec![Ok(()), FULL, FULL, Err(PublishError::QueueFull)];
            let left = Remainder::take(&request(&["a", "b", "c", "d"]), &mut results, &[0, 2]).expect("b is left");
            assert_eq!(results, [Ok(()), Ok(()), FULL, Err(PublishError::QueueFull)], "a part of c is on its way");
            let origin = Origin { sink: recorder.clone(), session: SessionId(1), token: 7 };
            let whole: Arc<PendingPublish> = Arc::new(Pending::new(origin, results, 2));
            let (rest, request) = left.of(&whole, SessionId(1));
            assert_eq!(request.messages.iter().map(|message| &message.bytes[..]).collect::<Vec<_>>(), [b"b"]);
            rest.reply(Reply::Publish(vec![last]));
            assert!(recorder.replies.lock().is_empty(), "the first is not written yet");
            whole.part_done(&[], None);
            let Some((7, Reply::Publish(results))) = recorder.replies.lock().pop() else { panic!("no answer") };
            assert_eq!(results, [Ok(()), reported, FULL, Err(PublishError::QueueFull)]);
        }
        let mut results = vec![Ok(()), Err(PublishError::UnknownQueue)];
        assert!(Remainder::take(&request(&["a", "b"]), &mut results, &[0]).is_none());
    }
}
