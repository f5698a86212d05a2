//! Groups of the consumer protocol (KIP-848): the coordinator assigns, and members are reconciled one by one.
//!
//! ```text
//!  heartbeat ──► validate ──► Tail: member, epoch, targets, what it holds ──► one record ──► Applied
//!                               │      (assignor)       (reconcile)
//!                               └── deadlines: session, revocation
//! ```
//!
//! A group's state is its epochs, its members with what they subscribe to, what they are to read and what they hold, and what its
//! regular expressions stand for. All of that is in the log: after a crash members go on with their next heartbeat. Soft state: deadlines,
//! when topics were last looked at, when the last assignment was computed, and a resolution of regular expressions under way.
//!
//! The behaviour is that of Kafka 4.3 (`GroupMetadataManager`, `ConsumerGroup`, `CurrentAssignmentBuilder`, `TargetAssignmentBuilder`) with
//! `group.consumer.migration.policy=disabled`. Where Kafka leaves an order to chance (that of a hash table), members come by rising id.

pub(crate) mod assignor;
mod config;
mod describe;
mod heartbeat;
mod leave;
pub(crate) mod model;
pub(crate) mod offsets;
mod partitions;
mod reconcile;
mod record;
mod regex;
pub(crate) mod tail;
pub(crate) mod turn;

pub use config::ConsumerGroupSettings;

use self::tail::Tail;
use self::turn::{ConsumerTurn, Refusal, refuse};
use super::KafkaGroups;
use super::command::{ConsumerHeartbeat, GroupState};
use super::join::mix;
use super::wire::detached;
use polylogue_api::{Context, Effects};
use polylogue_kafka_codec::{ErrorCode, StrBytes};

/// What a group of the consumer protocol tells as its protocol type.
pub(super) const PROTOCOL_TYPE: &str = "consumer";

/// A new member id, as Kafka makes them: 128 bits in base64 for URLs.
fn new_member_id(random: u64) -> StrBytes {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut left = u128::from(mix(random)) << 64 | u128::from(mix(!random));
    let mut digits = Vec::with_capacity(22);
    for _ in 0..22 {
        let digit = DIGITS.get((left & 0x3f) as usize).copied().unwrap_or(b'A');
        // Tools would take a leading dash for an option.
        digits.push(if digits.is_empty() && digit == b'-' { b'A' } else { digit });
        left >>= 6;
    }
    StrBytes::from(String::from_utf8_lossy(&digits).into_owned())
}

impl KafkaGroups {
    /// Does something with a consumer group that has a tail. `None` when it has none.
    pub(super) fn visit_consumer<R>(
        &mut self,
        context: &Context<'_>,
        effects: &mut Effects,
        id: &str,
        act: impl FnOnce(&mut ConsumerTurn<'_>, &mut Tail) -> R,
    ) -> Option<R> {
        let room = self.consumer_room(id);
        let tail = self.consumers.get_mut(id)?;
        let (owner, before) = (tail.owner.clone(), tail.bytes());
        let (now, catalog) = (context.now, context.catalog);
        let mut turn =
            ConsumerTurn { now, catalog, settings: &self.settings, timers: &mut self.timers, effects, room, before };
        let result = act(&mut turn, tail);
        let (new_owner, after) = (tail.owner.clone(), tail.bytes());
        let (proposed, idle) = (tail.unapplied > 0, tail.is_idle());
        let id = tail.id.clone();
        self.account(&owner, before, 0);
        self.account(&new_owner, 0, after);
        if proposed {
            self.watch(context.now, &id);
        } else if idle {
            self.drop_tail(&id);
        }
        Some(result)
    }

    /// What a group may grow by. Bytes.
    fn consumer_room(&self, id: &str) -> usize {
        let all = self.settings.memory_bytes_max.saturating_sub(self.memory());
        let owner = self.consumers.get(id).map(|tail| &tail.owner);
        all.min(self.settings.user_bytes_max.saturating_sub(self.bytes_of(owner)))
    }

    /// Forgets the tail of a group that has nothing.
    fn forget_idle(&mut self, id: &str) {
        if self.consumers.get(id).is_some_and(Tail::is_idle) {
            self.drop_tail(id);
        }
    }

    /// Forgets the tail of a group.
    pub(super) fn drop_tail(&mut self, id: &str) {
        if let Some(tail) = self.consumers.remove(id) {
            self.account(&tail.owner, tail.bytes(), 0);
        }
    }

    /// Sees to it that a group of the consumer protocol has a tail. False when there is no such group.
    pub(super) fn load_tail(&mut self, id: &StrBytes) -> bool {
        if self.consumers.contains_key(id) {
            return true;
        }
        let Some(applied) = self.applied.group(id).filter(|applied| applied.consumer.is_some()) else { return false };
        // A classic member has taken the group over; its records are on their way.
        if self.live.contains_key(id) {
            return false;
        }
        let owner = applied.owner.clone().unwrap_or_default();
        let tail = Tail::new(detached(id), owner, applied.consumer.as_deref());
        self.put_tail(tail);
        true
    }

    pub(super) fn put_tail(&mut self, tail: Tail) {
        self.account(&tail.owner, 0, tail.bytes());
        self.consumers.insert(tail.id.clone(), tail);
    }

    /// Sees to it that the group of a member that joins has a tail, within the bound on groups. An empty group of the classic
    /// protocol becomes one of the consumer protocol.
    fn make_tail(
        &mut self,
        request: &ConsumerHeartbeat,
        context: &Context<'_>,
        effects: &mut Effects,
    ) -> Result<StrBytes, Refusal> {
        let id = &request.group_id;
        if self.load_tail(id) {
            return Ok(detached(id));
        }
        if request.member_epoch != 0 {
            return refuse(ErrorCode::GroupIdNotFound, self.not_a_consumer_group(id, "Consumer group"));
        }
        let live = self.live.get(id);
        if live.is_some_and(|live| live.state != GroupState::Empty) {
            let text =
                format!("Cannot upgrade classic group {id} to consumer group because online upgrade is disabled.");
            return refuse(ErrorCode::GroupIdNotFound, text);
        }
        let groups = self.applied.len().max(self.live.len() + self.consumers.len());
        if live.is_none() && self.applied.group(id).is_none() && groups >= self.settings.groups_max {
            return refuse(ErrorCode::CoordinatorNotAvailable, "There are as many groups as there may be.".to_owned());
        }
        // Metadata on its way takes the place of what is applied.
        let is_settled = live.is_none_or(|live| live.unapplied == 0);
        self.visit(context.now, effects, id, |turn, live| turn.forget_pending(live));
        self.drop_live(id);
        if is_settled && self.load_tail(id) {
            return Ok(detached(id));
        }
        let owner = self.applied.group(id).and_then(|applied| applied.owner.clone());
        let owner = owner.or(request.user.clone()).unwrap_or_default();
        self.put_tail(Tail::new(detached(id), detached(&owner), None));
        Ok(detached(id))
    }

    /// The user that has to be recorded as the owner of a group, if there is one and the group has none.
    fn owner_to_record(&self, id: &StrBytes, user: Option<&StrBytes>) -> Option<StrBytes> {
        let is_new = self.consumers.get(id).is_some_and(|tail| tail.group().epoch() == 0);
        let is_owned = self.applied.group(id).is_some_and(|group| group.owner.is_some());
        user.filter(|_| is_new && !is_owned).map(detached)
    }

    /// Why there is no such group. `kind` is what Kafka calls one that is not there at all.
    pub(super) fn not_a_consumer_group(&self, id: &StrBytes, kind: &str) -> String {
        let is_there = self.live.contains_key(id) || self.applied.group(id).is_some();
        if is_there { format!("Group {id} is not a consumer group.") } else { format!("{kind} {id} not found.") }
    }

    /// Whether a group of the consumer protocol has members, by what is proposed.
    pub(super) fn has_consumers(&self, id: &str) -> bool {
        // What a void group has is not known.
        self.consumers.get(id).is_some_and(|tail| tail.void || !tail.group().is_empty())
    }

    /// Whether a group is one of the consumer protocol, by what is proposed.
    pub(super) fn is_consumer_group(&self, id: &str) -> bool {
        self.consumers.contains_key(id)
            || (!self.live.contains_key(id) && self.applied.group(id).is_some_and(|group| group.consumer.is_some()))
    }

    /// Begins the deadlines of all members of a group anew: the process has started, or there is a new writer.
    pub(super) fn derive_consumer(&mut self, context: &Context<'_>, id: &StrBytes, effects: &mut Effects) {
        let has_members = |group: &super::applied::AppliedGroup| group.consumer.as_ref().is_some_and(|c| !c.is_empty());
        if !self.applied.group(id).is_some_and(has_members) || !self.load_tail(id) {
            return;
        }
        let session_timeout_ms = self.consumer_config(context.catalog, id).session_timeout_ms;
        self.visit_consumer(context, effects, id, |turn, tail| {
            let members: Vec<StrBytes> = tail.group().members.keys().cloned().collect();
            for member in &members {
                turn.session_begins(tail, member, session_timeout_ms);
                let Some(known) = tail.member(member) else { continue };
                let timeout_ms = u64::try_from(known.subscription.rebalance_timeout_ms).unwrap_or(0);
                let current = known.current.clone();
                turn.revocation_begins_or_ends(tail, member, &current, timeout_ms);
            }
        });
    }
}

#[cfg(test)]
mod tests;
