//! Writing messages to queues: one body for all queues of a shard, in one frame.

use crate::broker::Inner;
use crate::pending::{Pending, PendingPublish};
use crate::queues::host::lease_entry;
use crate::room::refuse;
use crate::shard::{Parked, Shard, ShardState};
use crate::sink::Origin;
use bytes::Bytes;
use polylogue_api::{
    Ack, Durability, Overflow, PublishError, PublishMessage, PublishRequest, QueueSettings, Reply, Target, Unavailable,
};
use polylogue_log::journal::{self, Draft, Proposal, Urgency};
use polylogue_record::crc;
use polylogue_record::envelope::{Body, Envelope};
use polylogue_types::{PartitionId, limits};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of messages and envelopes from which on the rest of a request goes into another proposal: one with references is one frame,
/// however large.
const PROPOSAL_BYTES_MAX: usize = limits::FRAME_BYTES_MAX / 2;

/// Messages with the queues of one shard: position in the request, queues.
type Part = Vec<(u32, Vec<Target>)>;

/// What came of a shard's part of a request.
#[derive(Debug, Default)]
struct PublishOutcome {
    errors: Vec<(u32, PublishError)>,
    /// The ticket to wait for, and the positions that wait.
    waits: Option<(u64, Vec<u32>)>,
    /// Messages may be handed out already.
    early: bool,
    /// What full queues refused that is to be told to whoever moves dead messages.
    refused: Vec<(PartitionId, Bytes)>,
}

/// Drafts on their way, with the queue and the message of each.
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

    /// Publishes, unless there is no room for it.
    ///
    /// # Errors
    /// What was to be published, when nothing of it was for want of room.
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
        // Every shard's state stays locked until its part is parked, so that no part can be done before the request knows how many
        // there are. The shards come in one order, always.
        let mut states: Vec<_> = parts.iter().map(|(shard, _)| shard.state.lock()).collect();
        let mut waits = Vec::new();
        let mut early = Vec::new();
        let mut refused = Vec::new();
        for ((i, (shard, part)), state) in parts.iter().enumerate().zip(&mut states) {
            let outcome = shard.publish(state, part, &request);
            for (position, error) in outcome.errors {
                note(&mut results, position, error);
            }
            waits.extend(outcome.waits.map(|(ticket, positions)| (i, ticket, positions)));
            early.extend(outcome.early.then_some(i));
            refused.extend(outcome.refused);
        }
        let full = Err(PublishError::Unavailable(Unavailable::StorageFull));
        let answer = if waits.is_empty() && early.is_empty() && results.contains(&full) && !results.contains(&Ok(())) {
            drop(states);
            return Err(Box::new((origin, request)));
        } else if waits.is_empty() {
            Some((origin, results))
        } else {
            let pending: Arc<PendingPublish> = Arc::new(Pending::new(origin, results, waits.len()));
            for (i, ticket, positions) in waits {
                if let Some(state) = states.get_mut(i) {
                    Shard::park(state, ticket, Parked::Publish(pending.clone(), positions));
                }
            }
            None
        };
        drop(states);
        if !refused.is_empty() {
            self.bury_refused(refused);
        }
        if let Some((origin, results)) = answer {
            origin.reply(Reply::Publish(results));
        }
        for (shard, _) in early.iter().filter_map(|i| parts.get(*i)) {
            self.pump(shard);
        }
        Ok(())
    }

    /// The messages by the shards of their queues, in the order of the shards' ids.
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
                match part.last_mut() {
                    Some((last, targets)) if *last == position => targets.push(*target),
                    _ => part.push((position, vec![*target])),
                }
            }
        }
        parts.sort_by_key(|(shard, _)| shard.id);
        parts
    }
}

/// Notes what kept a message from one of its queues: of several reasons the one that counts most.
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
    /// Gives offsets to messages and hands them to the log. The caller parks what `waits` says, under the same lock.
    fn publish(&self, state: &mut ShardState, part: &Part, request: &PublishRequest) -> PublishOutcome {
        let mut outcome = PublishOutcome::default();
        let mut planned = Planned::default();
        let mut waiting = Vec::new();
        for (position, targets) in part {
            self.plan_message(state, *position, targets, request, &mut planned, &mut outcome);
            if planned.of.last() == Some(position) {
                waiting.push(*position);
            }
        }
        self.propose_messages(state, planned, request, &mut outcome);
        if let Some((_, positions)) = &mut outcome.waits {
            *positions = waiting;
        }
        outcome
    }

    /// Drafts for a message: the body with the first queue, references to it with the others. What is planned is proposed when it is a
    /// proposal's worth: one that goes to very many queues has its body in several.
    fn plan_message(
        &self,
        state: &mut ShardState,
        position: u32,
        targets: &[Target],
        request: &PublishRequest,
        planned: &mut Planned,
        outcome: &mut PublishOutcome,
    ) {
        let Some(message) = request.messages.get(position as usize) else { return };
        let mut body = None;
        for target in targets {
            if planned.bytes >= PROPOSAL_BYTES_MAX {
                self.propose_messages(state, std::mem::take(planned), request, outcome);
                body = None;
            }
            let queue = &target.queue;
            let is_queue = !state.lost && state.queues.contains(*queue);
            let Some(partition) = state.partitions.get_mut(queue).filter(|_| is_queue) else {
                let lost = PublishError::Unavailable(Unavailable::NotCommitted);
                outcome.errors.push((position, if state.lost { lost } else { PublishError::UnknownQueue }));
                continue;
            };
            let host = state.queues.hosts.get(queue);
            if let Some(host) = host.filter(|host| host.is_full(partition.next_offset, message.bytes.len())) {
                outcome.errors.push((position, PublishError::QueueFull));
                let QueueSettings { overflow, dead_letters, .. } = host.settings;
                if dead_letters && overflow == Overflow::RejectDead {
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
            if partition.config.durability == Durability::Sync {
                planned.class = journal::Durability::Sync;
            }
            let bytes = match body {
                Some(entry) => {
                    envelope.body = Body::Ref { entry };
                    Bytes::new()
                }
                None => {
                    let len = message.bytes.len() as u32;
                    envelope.body = Body::Inline { len, checksum: crc::crc32c(&message.bytes) };
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
        let urgency = if request.ack == Ack::None { Urgency::Lazy } else { Urgency::Urgent };
        let class = (self.class != Durability::Memory).then_some(class);
        let entries: Vec<_> = drafts.iter().map(|draft| draft.envelope.clone()).collect();
        match self.propose(state, Proposal { urgency, class, ..Proposal::data(state.term, 0, drafts) }) {
            Ok(ticket) => {
                if request.ack == Ack::Committed {
                    outcome.waits = Some((ticket, Vec::new()));
                }
                for (envelope, position) in entries.iter().zip(of) {
                    let Some(message) = request.messages.get(position as usize) else { continue };
                    let Some(host) = state.queues.hosts.get_mut(&envelope.partition) else { continue };
                    if host.proposed(&lease_entry(envelope, message.bytes.len()), &message.bytes) {
                        state.queues.touch(envelope.partition);
                        outcome.early = true;
                    }
                }
            }
            Err(why) => outcome.errors.extend(of.into_iter().map(|p| (p, PublishError::Unavailable(why)))),
        }
    }
}
