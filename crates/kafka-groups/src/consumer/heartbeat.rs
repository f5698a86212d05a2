//! ConsumerGroupHeartbeat: members join, say what they own, receive what to read, and leave.
//!
//! A heartbeat that changes nothing costs a look-up and a deadline. One that changes the group proposes a single record, with all changes
//! in it, and its answer leaves behind that record.

use super::assignor::Assignor;
use super::model::{Change, Current, LEFT_FOR_NOW, Member, Subscription};
use super::reconcile::{Goal, reconcile};
use super::tail::Tail;
use super::turn::{Draft, Refusal, refuse};
use crate::KafkaGroups;
use crate::applied::MEMBER_BYTES;
use crate::command::{ConsumerHeartbeat, ConsumerHeartbeatReply, GroupReply};
use crate::settings::{MEMBER_METADATA_BYTES_MAX, MEMBER_TOPICS_MAX};
use crate::wire::detached;
use polylogue_api::{Caller, Context, Effects};
use polylogue_kafka_codec::{ErrorCode, StrBytes};

/// The epoch with which a member joins.
const JOIN: i32 = 0;
/// The epoch with which a member leaves.
const LEAVE: i32 = -1;
/// From this version on clients make their member ids themselves.
const OWN_MEMBER_ID_FROM: i16 = 1;

impl KafkaGroups {
    pub(crate) fn consumer_heartbeat(
        &mut self,
        context: &Context<'_>,
        caller: Caller,
        request: &ConsumerHeartbeat,
        effects: &mut Effects,
    ) {
        let group = request.group_id.clone();
        let done = match self.validate_heartbeat(request) {
            Ok(()) if request.member_epoch < JOIN => self.consumer_leave(context, caller, request, effects),
            Ok(()) => self.consumer_beat(context, caller, request, effects),
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = done {
            let reply = GroupReply::ConsumerHeartbeat(refusal.into_reply());
            self.answer_behind(&[&group], caller, reply, effects);
        }
    }

    /// What can be said of a request without looking at its group.
    fn validate_heartbeat(&self, request: &ConsumerHeartbeat) -> Result<(), Refusal> {
        let invalid = |text: &str| refuse(ErrorCode::InvalidRequest, text.to_owned());
        let is_empty = |text: &Option<StrBytes>| text.as_ref().is_some_and(|text| text.is_empty());
        let epoch = request.member_epoch;
        if request.member_id.is_empty() && (request.version >= OWN_MEMBER_ID_FROM || epoch > JOIN || epoch == LEAVE) {
            return invalid("MemberId can't be empty.");
        }
        if request.group_id.is_empty() {
            return invalid("GroupId can't be empty.");
        }
        if is_empty(&request.instance_id) {
            return invalid("InstanceId can't be empty.");
        }
        if is_empty(&request.rack_id) {
            return invalid("RackId can't be empty.");
        }
        match epoch {
            JOIN if request.rebalance_timeout_ms == -1 => {
                return invalid("RebalanceTimeoutMs must be provided in first request.");
            }
            JOIN if request.owned.as_ref().is_none_or(|owned| !owned.is_empty()) => {
                return invalid("TopicPartitions must be empty when (re-)joining.");
            }
            JOIN if request.topics.is_none() && request.regex.is_none() => {
                return invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
                );
            }
            LEFT_FOR_NOW if request.instance_id.is_none() => return invalid("InstanceId can't be null."),
            _ if epoch < LEFT_FOR_NOW => return invalid("MemberEpoch is invalid."),
            _ => {}
        }
        let known = &self.settings.consumer.assignors;
        if let Some(wanted) = &request.assignor
            && !known.iter().any(|assignor| assignor.name() == &**wanted)
        {
            let known: Vec<_> = known.iter().map(|assignor| assignor.name()).collect();
            let text = format!("ServerAssignor {wanted} is not supported. Supported assignors: {}.", known.join(", "));
            return refuse(ErrorCode::UnsupportedAssignor, text);
        }
        bounded(request)
    }

    /// A member joins, or says that it is there.
    fn consumer_beat(
        &mut self,
        context: &Context<'_>,
        caller: Caller,
        request: &ConsumerHeartbeat,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        let id = self.make_tail(request, context, effects)?;
        let beat = Beat::new(request, context.random);
        if let Err(refusal) = self.room_for_member(&id, &beat) {
            self.forget_idle(&id);
            return Err(refusal);
        }
        let config = self.consumer_config(context.catalog, &id);
        let owner = self.owner_to_record(&id, request.user.as_ref());
        let beaten = self.visit_consumer(context, effects, &id, |turn, tail| {
            let (reply, draft) = turn.beat(tail, &beat, &config)?;
            turn.session_begins(tail, &beat.member_id, config.session_timeout_ms);
            turn.finish(tail, draft, Some((caller, GroupReply::ConsumerHeartbeat(reply))), owner);
            Ok(())
        });
        beaten.unwrap_or_else(|| refuse(ErrorCode::CoordinatorNotAvailable, String::new()))
    }

    /// Whether the bounds on memory leave room for what the member says. It is held twice: as proposed, and as applied.
    fn room_for_member(&self, id: &StrBytes, beat: &Beat<'_>) -> Result<(), Refusal> {
        let Some(tail) = self.consumers.get(id) else { return Ok(()) };
        let member = beat.member(tail);
        let said = beat.request.topics.as_ref().map_or(0, |topics| super::model::texts_cost(topics))
            + beat.request.regex.as_ref().map_or(0, |regex| regex.len());
        let growth = match member {
            Some(member) => 2 * said.saturating_sub(member.subscription.cost()),
            None => 2 * (MEMBER_BYTES + said + beat.request.client_id.len() + beat.member_id.len()),
        };
        if growth == 0 {
            return Ok(());
        }
        if self.memory() + growth > self.settings.memory_bytes_max {
            return refuse(ErrorCode::CoordinatorNotAvailable, "Groups hold all the memory that they may.".to_owned());
        }
        let user = if tail.owner.is_empty() { beat.request.user.as_ref() } else { Some(&tail.owner) };
        if self.bytes_of(user) + growth > self.settings.user_bytes_max {
            self.usage.refuse();
            let text = "The groups of this user hold all the memory that they may.";
            return refuse(ErrorCode::GroupMaxSizeReached, text.to_owned());
        }
        Ok(())
    }
}

/// What one member may say is bounded.
fn bounded(request: &ConsumerHeartbeat) -> Result<(), Refusal> {
    let topics = request.topics.as_deref().unwrap_or_default();
    let bytes = super::model::texts_cost(topics) + request.regex.as_ref().map_or(0, |regex| regex.len());
    if topics.len() > MEMBER_TOPICS_MAX || bytes > MEMBER_METADATA_BYTES_MAX {
        let text = format!(
            "A member may subscribe to {MEMBER_TOPICS_MAX} topics whose names take {MEMBER_METADATA_BYTES_MAX} bytes."
        );
        return refuse(ErrorCode::InvalidRequest, text);
    }
    Ok(())
}

/// A heartbeat that is not the last one, with what is settled about it.
#[derive(Debug)]
pub(super) struct Beat<'a> {
    pub(super) request: &'a ConsumerHeartbeat,
    /// The member's id, made here for a client of version 0 that has none yet.
    pub(super) member_id: StrBytes,
}

impl<'a> Beat<'a> {
    fn new(request: &'a ConsumerHeartbeat, random: u64) -> Beat<'a> {
        let member_id =
            if request.member_id.is_empty() { super::new_member_id(random) } else { detached(&request.member_id) };
        Beat { request, member_id }
    }

    /// The member that it is about, as it is in the group.
    fn member<'t>(&self, tail: &'t Tail) -> Option<&'t Member> {
        match &self.request.instance_id {
            Some(instance_id) => tail.static_member(instance_id).map(|(_, member)| member),
            None => tail.member(&self.member_id),
        }
    }

    /// What the member says of itself; `None` when that is what is known.
    fn subscription(&self, known: Option<&Member>) -> Option<Subscription> {
        let request = self.request;
        let Some(known) = known.map(|member| &member.subscription) else {
            return Some(self.merged(&Subscription::default()));
        };
        let same = |new: &Option<StrBytes>, old: &Option<StrBytes>| new.is_none() || new == old;
        let nothing_new = request.topics.is_none()
            && request.regex.as_ref().is_none_or(|regex| *regex == known.regex)
            && same(&request.instance_id, &known.instance_id)
            && same(&request.rack_id, &known.rack_id)
            && same(&request.assignor, &known.assignor)
            && [-1, known.rebalance_timeout_ms].contains(&request.rebalance_timeout_ms)
            && (&request.client_id, &request.client_host) == (&known.client_id, &known.client_host);
        if nothing_new { None } else { Some(self.merged(known)).filter(|merged| merged != known) }
    }

    /// What is known with what is new.
    fn merged(&self, before: &Subscription) -> Subscription {
        let request = self.request;
        let option = |new: &Option<StrBytes>, old: &Option<StrBytes>| new.as_ref().map(detached).or(old.clone());
        let topics = request.topics.as_ref().map(|topics| {
            let mut topics: Vec<StrBytes> = topics.iter().map(detached).collect();
            topics.sort_unstable();
            topics.dedup();
            topics
        });
        let timeout_ms = request.rebalance_timeout_ms;
        Subscription {
            instance_id: option(&request.instance_id, &before.instance_id),
            rack_id: option(&request.rack_id, &before.rack_id),
            client_id: detached(&request.client_id),
            client_host: detached(&request.client_host),
            rebalance_timeout_ms: if timeout_ms == -1 { before.rebalance_timeout_ms } else { timeout_ms },
            assignor: option(&request.assignor, &before.assignor),
            topics: topics.unwrap_or_else(|| before.topics.clone()),
            regex: request.regex.as_ref().map_or_else(|| before.regex.clone(), detached),
        }
    }

    /// Whether the member says everything, as it does when it joins or is not sure of the last answer.
    fn is_full(&self) -> bool {
        let request = self.request;
        let subscribes = request.topics.is_some() || request.regex.is_some();
        request.member_epoch == JOIN || (request.rebalance_timeout_ms != -1 && subscribes && request.owned.is_some())
    }
}

/// What holds for a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupConfig {
    pub(super) session_timeout_ms: u64,
    pub(super) heartbeat_interval_ms: i32,
    pub(super) assignment_interval_ms: u64,
    pub(super) assignor: Assignor,
}

impl super::turn::ConsumerTurn<'_> {
    /// A heartbeat in a group that there is. Nothing is changed when it is refused.
    fn beat(
        &mut self,
        tail: &mut Tail,
        beat: &Beat<'_>,
        config: &GroupConfig,
    ) -> Result<(ConsumerHeartbeatReply, Draft), Refusal> {
        self.refuse_if_full(tail, beat)?;
        let replaced = find_member(tail, beat)?;
        let known = tail.member(replaced.as_ref().unwrap_or(&beat.member_id));
        let subscription = beat.subscription(known);
        let old_regex = known.map(|member| member.subscription.regex.clone()).unwrap_or_default();
        if let Some(new) = &subscription {
            self.check_regex(tail, &old_regex, &new.regex)?;
        }
        let mut draft = Draft::new(&tail.id);
        if let Some(old) = replaced {
            self.forget_deadlines(tail, &old);
            replace(tail, &mut draft, &old, &beat.member_id);
        }
        let changed = self.subscribe(tail, &mut draft, beat, subscription);
        self.maybe_resolve(tail, beat);
        self.refresh(tail, &mut draft, changed.bumps);
        self.assign(tail, &mut draft, config);
        let moved = self.reconcile(tail, &mut draft, beat, changed.subscription);
        let current = tail.member(&beat.member_id).map(|member| &member.current);
        let shown = current.filter(|_| moved || beat.is_full());
        let shown = shown.map(|current| current.assigned.partitions().topics().map(|(t, p)| (*t, p.clone())).collect());
        let reply = ConsumerHeartbeatReply {
            error: ErrorCode::None,
            message: None,
            member_id: Some(beat.member_id.clone()),
            member_epoch: current.map_or(0, |current| current.epoch),
            heartbeat_interval_ms: config.heartbeat_interval_ms,
            assignment: shown,
        };
        Ok((reply, draft))
    }

    fn refuse_if_full(&self, tail: &Tail, beat: &Beat<'_>) -> Result<(), Refusal> {
        let size_max = self.settings.consumer.group_size();
        if tail.group().len() >= size_max && tail.member(&beat.request.member_id).is_none() {
            let text = format!("The consumer group has reached its maximum capacity of {size_max} members.");
            return refuse(ErrorCode::GroupMaxSizeReached, text);
        }
        Ok(())
    }

    /// Takes down what the member says of itself, if that is new.
    fn subscribe(
        &self,
        tail: &mut Tail,
        draft: &mut Draft,
        beat: &Beat<'_>,
        subscription: Option<Subscription>,
    ) -> Changed {
        let is_new_group = tail.group().epoch() == 0;
        let Some(subscription) = subscription else { return Changed { bumps: is_new_group, subscription: false } };
        let old = tail.member(&beat.member_id).map(|member| &member.subscription);
        let names_changed = old.map_or(!subscription.topics.is_empty(), |old| old.topics != subscription.topics);
        let old_regex = old.map(|old| old.regex.clone()).unwrap_or_default();
        let regex_changed = subscription.regex != old_regex;
        let resolved = regex_changed && self.regex_is_known(tail, &old_regex, &subscription.regex);
        if regex_changed && tail.regex_count(&old_regex) == 1 {
            draft.push(tail, Change::Regex { regex: old_regex, resolved: None });
        }
        draft.push(tail, Change::Member { id: beat.member_id.clone(), subscription });
        Changed { bumps: names_changed || resolved || is_new_group, subscription: names_changed || regex_changed }
    }

    /// Takes the member a step towards its assignment. Whether it may read something else than before.
    fn reconcile(&mut self, tail: &mut Tail, draft: &mut Draft, beat: &Beat<'_>, subscription_changed: bool) -> bool {
        let catalog = self.catalog;
        let Some(member) = tail.member(&beat.member_id) else { return false };
        let assignment_epoch = tail.group().assignment_epoch;
        if !subscription_changed && member.current.is_reconciled(assignment_epoch) {
            return false;
        }
        let subscribes = |topic| {
            let topic = catalog.topic_by_id(topic);
            topic.is_some_and(|topic| tail.names_topic(&member.subscription, &topic.name))
        };
        let is_held = |topic, partition| tail.is_held(topic, partition);
        let goal = Goal {
            assignment_epoch,
            subscribes: &subscribes,
            is_held: &is_held,
            owned: beat.request.owned.as_deref(),
            subscription_changed,
        };
        let Some(current) = reconcile(member, &goal) else { return false };
        let moved = current.assigned != member.current.assigned;
        let timeout_ms = u64::try_from(member.subscription.rebalance_timeout_ms).unwrap_or(0);
        self.revocation_begins_or_ends(tail, &beat.member_id, &current, timeout_ms);
        draft.push(tail, Change::Current { id: beat.member_id.clone(), current });
        moved
    }
}

/// What a subscription changes.
struct Changed {
    /// A new assignment is needed.
    bumps: bool,
    /// The member subscribes to something else than before.
    subscription: bool,
}

/// Whether the member may do what it asks for; the static member that it takes the place of, if there is one.
fn find_member(tail: &Tail, beat: &Beat<'_>) -> Result<Option<StrBytes>, Refusal> {
    let (group, id, request) = (&tail.id, &beat.member_id, beat.request);
    let joins = request.member_epoch == JOIN;
    let Some(instance_id) = &request.instance_id else {
        return match tail.member(id) {
            Some(member) => check_epoch(&member.current, request).map(|()| None),
            None if joins => Ok(None),
            None => refuse(ErrorCode::UnknownMemberId, format!("Member {id} is not a member of group {group}.")),
        };
    };
    match tail.static_member(instance_id) {
        None if joins => Ok(None),
        None => refuse(ErrorCode::UnknownMemberId, format!("Instance id {instance_id} is unknown.")),
        Some((owner, member)) if joins && member.current.epoch != LEFT_FOR_NOW => {
            let text = format!(
                "Static member {id} with instance id {instance_id} cannot join the group because the instance id is \
                 owned by {owner} member."
            );
            refuse(ErrorCode::UnreleasedInstanceId, text)
        }
        Some((owner, _)) if joins => Ok(Some(owner.clone())),
        Some((owner, _)) if owner != id => refuse(ErrorCode::FencedInstanceId, fenced_instance(id, instance_id, owner)),
        Some((_, member)) => check_epoch(&member.current, request).map(|()| None),
    }
}

pub(super) fn fenced_instance(id: &str, instance_id: &str, owner: &str) -> String {
    format!("Static member {id} with instance id {instance_id} was fenced by member {owner}.")
}

/// Whether the member's epoch is the one that it was given last, or the one before, if that answer may have been lost.
fn check_epoch(current: &Current, request: &ConsumerHeartbeat) -> Result<(), Refusal> {
    let (said, known) = (request.member_epoch, current.epoch);
    if said == JOIN || said == known {
        return Ok(());
    }
    let owns_only_its_own = || {
        let owned = request.owned.as_ref()?;
        let mut all = owned.iter().flat_map(|(topic, partitions)| partitions.iter().map(|at| (*topic, *at)));
        all.all(|(topic, partition)| current.assigned.contains(topic, partition)).then_some(())
    };
    if said < known && said == current.previous_epoch && owns_only_its_own().is_some() {
        return Ok(());
    }
    let compared = if said > known { "greater" } else { "smaller" };
    let text = format!(
        "The consumer group member has a {compared} member epoch ({said}) than the one known by the group coordinator \
         ({known}). The member must abandon all its partitions and rejoin."
    );
    refuse(ErrorCode::FencedMemberEpoch, text)
}

/// A static member comes back under another id: it takes over everything, and starts from epoch 0.
fn replace(tail: &mut Tail, draft: &mut Draft, old: &StrBytes, new: &StrBytes) {
    let Some(Member { subscription, current, target }) = tail.member(old).cloned() else { return };
    let epoch = tail.group().assignment_epoch;
    draft.push(tail, Change::Remove { id: old.clone() });
    draft.push(tail, Change::Member { id: new.clone(), subscription });
    draft.push(tail, Change::Targets { epoch, targets: vec![(new.clone(), target)] });
    let current = Current { epoch: 0, previous_epoch: 0, ..current };
    draft.push(tail, Change::Current { id: new.clone(), current });
}
