//! One call about a consumer group: what it works with beside the group, the record that it proposes, and how it answers.

use super::assignor::{Assignor, Participant, TopicSizes, assign};
use super::heartbeat::GroupConfig;
use super::model::{Change, Current, MemberState};
use super::tail::Tail;
use crate::command::{ConsumerHeartbeatReply, GroupReply};
use crate::record::{self, Record};
use crate::settings::{GROUP_RECORD_BYTES_MAX, GroupSettings};
use crate::timers::{TimerKey, TimerKind, Timers};
use crate::turn::{group_key, propose, session_key};
use crate::wire::Encoder;
use polylogue_api::{Caller, Catalog, Effects, Now, Proposal};
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_types::TopicId;
use std::any::Any;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How long a group goes by what it knows of its topics while the catalog says that nothing has changed: queues that are read as topics
/// come and go without a change of the catalog's version. Milliseconds.
const TOPICS_FRESH_MS: u64 = 10_000;

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(super) error: ErrorCode,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn into_reply(self) -> ConsumerHeartbeatReply {
        let message = Some(self.message).filter(|message| !message.is_empty()).map(StrBytes::from);
        ConsumerHeartbeatReply { message, ..ConsumerHeartbeatReply::refused(self.error) }
    }
}

pub(super) fn refuse<T>(error: ErrorCode, message: String) -> Result<T, Refusal> {
    Err(Refusal { error, message })
}

/// Changes of a group that become one record. Each is applied to the tail as it is added.
#[derive(Debug)]
pub(super) struct Draft {
    into: Encoder,
    is_empty: bool,
}

impl Draft {
    pub(super) fn new(group: &str) -> Draft {
        let mut into = Encoder::default();
        record::consumer_head(&mut into, group);
        Draft { into, is_empty: true }
    }

    pub(super) fn push(&mut self, tail: &mut Tail, change: Change) {
        change.encode(&mut self.into);
        self.is_empty = false;
        tail.apply(change);
    }
}

/// The surroundings of a consumer group while something happens to it.
#[derive(Debug)]
pub(crate) struct ConsumerTurn<'a> {
    pub(crate) now: Now,
    pub(crate) catalog: &'a dyn Catalog,
    pub(crate) settings: &'a GroupSettings,
    pub(crate) timers: &'a mut Timers,
    pub(crate) effects: &'a mut Effects,
    /// What the group may grow by. Bytes.
    pub(crate) room: usize,
    /// What it held before, as an estimate. Bytes.
    pub(crate) before: usize,
}

impl ConsumerTurn<'_> {
    /// Has the changes written, and answers when they are committed; without changes, when all before them are. `owner` is the user
    /// against whose bound the group counts, where that has to be recorded.
    pub(super) fn finish(
        &mut self,
        tail: &mut Tail,
        draft: Draft,
        reply: Option<(Caller, GroupReply)>,
        owner: Option<StrBytes>,
    ) {
        if draft.is_empty {
            if let Some((caller, reply)) = reply {
                self.reply_after(tail, caller, reply);
            }
            return;
        }
        let record = draft.into.finish();
        if record.len() > GROUP_RECORD_BYTES_MAX {
            // as Kafka answers when a group's record is too large
            return self.abandon(tail, reply, ErrorCode::UnknownServerError);
        }
        // What is taken out of a group is always taken out. The rest is held twice: as proposed, and as applied.
        if reply.is_some() && 2 * tail.bytes().saturating_sub(self.before) > self.room {
            return self.abandon(tail, reply, ErrorCode::CoordinatorNotAvailable);
        }
        let replies = reply.map(|(caller, reply)| (caller, Box::new(reply) as Box<dyn Any + Send>));
        self.effects.proposals.push(Proposal { record, replies: replies.into_iter().collect() });
        tail.unapplied += 1;
        // Behind the group: one that has nothing has no owner.
        if let Some(user) = owner {
            tail.owner = user.clone();
            propose(self.effects, &Record::Owner { group: tail.id.clone(), user }, []);
        }
    }

    fn reply_after(&mut self, tail: &Tail, caller: Caller, reply: GroupReply) {
        match tail.unapplied {
            0 => self.effects.replies.push((caller, Box::new(reply))),
            _ => propose(self.effects, &Record::Barrier, [(caller, reply)]),
        }
    }

    /// The changes are more than there is room for: the group goes back to what is in the log, as when the log refuses them.
    fn abandon(&mut self, tail: &mut Tail, reply: Option<(Caller, GroupReply)>, error: ErrorCode) {
        self.make_consumer_void(tail);
        self.timers.queue(self.now.monotonic_ms, group_key(&tail.id, TimerKind::Void));
        if let Some((caller, _)) = reply {
            let reply = ConsumerHeartbeatReply::refused(error);
            self.effects.replies.push((caller, Box::new(GroupReply::ConsumerHeartbeat(reply))));
        }
    }

    /// Ends all deadlines of a group whose state is void.
    pub(crate) fn make_consumer_void(&mut self, tail: &mut Tail) {
        tail.void = true;
        let members: Vec<StrBytes> = tail.deadlines.keys().cloned().collect();
        members.iter().for_each(|member| self.forget_deadlines(tail, member));
    }

    /// The member was heard of: it may be silent for so long from now on.
    pub(crate) fn session_begins(&mut self, tail: &mut Tail, member: &StrBytes, timeout_ms: u64) {
        let at_ms = self.now.monotonic_ms.saturating_add(timeout_ms);
        let group = tail.id.clone();
        if tail.member(member).is_some() {
            let deadlines = tail.deadlines.entry(member.clone()).or_default();
            deadlines.session.set(self.timers, at_ms, || session_key(&group, member));
        }
    }

    /// The time in which a member must give up partitions begins, or is over.
    pub(super) fn revocation_begins_or_ends(
        &mut self,
        tail: &mut Tail,
        member: &StrBytes,
        current: &Current,
        timeout_ms: u64,
    ) {
        let at_ms = self.now.monotonic_ms.saturating_add(timeout_ms);
        let key = rebalance_key(&tail.id, member);
        let deadlines = tail.deadlines.entry(member.clone()).or_default();
        if current.state == MemberState::Unrevoked {
            deadlines.rebalance_epoch = current.epoch;
            deadlines.rebalance.set(self.timers, at_ms, || key);
        } else {
            deadlines.rebalance.clear(self.timers, || key);
        }
    }

    pub(super) fn forget_deadlines(&mut self, tail: &mut Tail, member: &StrBytes) {
        if let Some(mut deadlines) = tail.deadlines.remove(member) {
            deadlines.session.clear(self.timers, || session_key(&tail.id, member));
            deadlines.rebalance.clear(self.timers, || rebalance_key(&tail.id, member));
        }
    }

    /// Raises the group's epoch where that is asked for, or where topics to which members subscribe have changed.
    pub(super) fn refresh(&mut self, tail: &mut Tail, draft: &mut Draft, bumps: bool) {
        let (version, now_ms) = (self.catalog.version(), self.now.monotonic_ms);
        let is_fresh = tail.looked.is_some_and(|(seen, at_ms)| seen == version && now_ms < at_ms + TOPICS_FRESH_MS);
        if !bumps && is_fresh {
            return;
        }
        tail.looked = Some((version, now_ms));
        let metadata_hash = self.metadata_hash(tail);
        if bumps || metadata_hash != tail.group().metadata_hash {
            let epoch = tail.group().epoch().saturating_add(1);
            draft.push(tail, Change::Epoch { epoch, metadata_hash });
        }
    }

    /// Stands for the topics that members subscribe to: their names, ids and numbers of partitions. 0 when there are none.
    pub(super) fn metadata_hash(&self, tail: &Tail) -> u64 {
        let mut hash = 0;
        for name in tail.subscribed() {
            let Some(topic) = self.catalog.topic(&name) else { continue };
            let mut of_topic = Fnv::default();
            of_topic.add(name.as_bytes());
            of_topic.add(&topic.id.0);
            of_topic.add(&(topic.partitions.len() as u64).to_le_bytes());
            hash = Fnv(hash ^ of_topic.0).mixed();
        }
        hash
    }

    /// Computes a new assignment, where there is none yet for the group's epoch and the time for one has come.
    pub(super) fn assign(&mut self, tail: &mut Tail, draft: &mut Draft, config: &GroupConfig) {
        let (epoch, now_ms) = (tail.group().epoch(), self.now.monotonic_ms);
        if epoch <= tail.group().assignment_epoch || !assignment_is_due(tail, now_ms, config.assignment_interval_ms) {
            return;
        }
        let assignor = tail.wanted_assignor().and_then(|name| Assignor::named(name)).unwrap_or(config.assignor);
        let targets = self.new_targets(tail, assignor);
        tail.assigned_ms = Some(now_ms);
        draft.push(tail, Change::Targets { epoch, targets });
    }

    /// The targets that a new assignment changes.
    fn new_targets(&self, tail: &Tail, assignor: Assignor) -> Vec<(StrBytes, super::model::Partitions)> {
        let mut topics: BTreeMap<StrBytes, TopicId> = BTreeMap::new();
        let mut sizes = TopicSizes::new();
        for name in tail.subscribed() {
            let Some(topic) = self.catalog.topic(&name) else { continue };
            sizes.insert(topic.id, i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX));
            topics.insert(name, topic.id);
        }
        let members = &tail.group().members;
        // Most members subscribe to the same, and share the list of it.
        let mut last: Option<(&super::model::Subscription, Rc<[TopicId]>)> = None;
        let mut participants = Vec::with_capacity(members.len());
        for (id, member) in members {
            let subscription = &member.subscription;
            let same = last
                .as_ref()
                .filter(|(other, _)| other.topics == subscription.topics && other.regex == subscription.regex);
            let ids: Rc<[TopicId]> = match same {
                Some((_, ids)) => ids.clone(),
                None => subscribed_ids(tail, subscription, &topics),
            };
            last = Some((subscription, ids.clone()));
            let instance_id = subscription.instance_id.as_ref();
            participants.push(Participant { id, instance_id, topics: ids, target: &member.target });
        }
        let targets = assign(assignor, &participants, &sizes);
        let changed = participants.iter().zip(targets).filter(|(participant, target)| participant.target != target);
        changed.map(|(participant, target)| (participant.id.clone(), target)).collect()
    }
}

/// The ids of the topics that a subscription names, itself or by its regular expression.
fn subscribed_ids(
    tail: &Tail,
    subscription: &super::model::Subscription,
    topics: &BTreeMap<StrBytes, TopicId>,
) -> Rc<[TopicId]> {
    let resolved = tail.group().regexes.get(&subscription.regex).filter(|_| !subscription.regex.is_empty());
    let names = subscription.topics.iter().chain(resolved.iter().flat_map(|resolved| &resolved.topics));
    let mut ids: Vec<TopicId> = names.filter_map(|name| topics.get(name).copied()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.into()
}

/// Whether the time has come for a new assignment: assignments of a group are so far apart at least (KIP-1263).
fn assignment_is_due(tail: &Tail, now_ms: u64, interval_ms: u64) -> bool {
    tail.assigned_ms.is_none_or(|at_ms| now_ms >= at_ms.saturating_add(interval_ms))
}

/// The timer for what a member must give up.
pub(super) fn rebalance_key(group: &StrBytes, member: &StrBytes) -> TimerKey {
    TimerKey { group: group.clone(), kind: TimerKind::Rebalance(member.clone()) }
}

/// FNV-1a of 64 bits: stable, and good enough to see that topics have changed.
#[derive(Clone, Copy, Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        // An end, so that a name and what follows it cannot be divided otherwise.
        self.0 = (self.0 ^ bytes.len() as u64).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// So that the order of topics counts, and equal ones do not cancel out.
    fn mixed(self) -> u64 {
        let mut next = Fnv::default();
        next.add(&self.0.to_le_bytes());
        next.0
    }
}
