//! Kafka's group coordinator: classic groups, groups of the consumer protocol ([`consumer`]) and committed offsets, as a state machine
//! on the log.
//!
//! ```text
//!  GroupCommand ──► join / members / offsets / admin ──► GroupReply now, or parked on a record
//!                      │ changes          │ reads
//!                      ▼                  ▼
//!                    Live ───record───► Applied ◄── apply(record), load_chunk
//!                 (tail, soft)          (committed) ──► take_changed_chunks
//! ```
//!
//! What members do in a rebalance is soft and lives in memory: a crash before the leader's assignment is committed
//! sends everybody back to the last committed generation. What is committed: the group with its members and their
//! assignments, when the leader has decided, when a static member is replaced and when the group becomes empty; and
//! every offset.
//!
//! Soft state, which may vanish at a crash: members that have not been part of a committed generation, ids that were
//! handed out, parked requests, all deadlines.
//!
//! The behaviour is that of Kafka 4.3 (`GroupMetadataManager`, `ClassicGroup`, `OffsetMetadataManager`), but for: a
//! caller that is superseded or removed is always answered; a connection that is lost before a member knows its id
//! takes the member along; only members that leave, not ids that were handed out, cause a rebalance; the bounds of
//! [`GroupSettings`].

mod admin;
mod applied;
pub mod command;
mod consumer;
mod join;
mod live;
mod members;
mod offsets;
mod rebalance;
mod record;
mod refused;
mod settings;
mod slots;
mod timers;
mod turn;
mod usage;
mod wire;

pub use admin::GroupSummary;
pub use command::{GroupCommand, GroupKind, GroupReply, GroupState};
pub use consumer::ConsumerGroupSettings;
pub use consumer::assignor::Assignor;
pub use settings::GroupSettings;
pub use usage::GroupUsage;

use applied::Applied;
use command::{Heartbeat, JoinGroup, LeaveGroup, SyncGroup};
use consumer::tail::Tail;
use join::Join;
use live::Live;
use members::{leave_reply, validate_sync};
use polylogue_api::machine::{Command, Slots};
use polylogue_api::{Caller, Context, Effects, Now, StateMachine, TopicInfo};
use polylogue_types::TimestampMs;
use record::Record;
use settings::TIMERS_PER_CALL_MAX;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use timers::{TimerKey, TimerKind, Timers};
use turn::{Turn, Unborn, join_error, propose, sync_error};

use bytes::Bytes;
use polylogue_kafka_codec::{ErrorCode, StrBytes};

/// Kafka's group coordinator.
///
/// Commands are [`GroupCommand`], answered by [`GroupReply`]; a [`GroupSettings`] as a command replaces the settings
/// and is answered by `()`. The host must have applied a record before it hands out the replies that were parked on
/// it, and looks at the next deadline after every call.
#[derive(Debug)]
pub struct KafkaGroups {
    settings: GroupSettings,
    applied: Applied,
    live: BTreeMap<StrBytes, Live>,
    /// Groups of the consumer protocol that have members, or records in flight. None of them is in `live`.
    consumers: BTreeMap<StrBytes, Tail>,
    timers: Timers,
    unborn: Unborn,
    /// Groups whose offsets are looked at from time to time: all that have been applied, and some about to be.
    watched: BTreeSet<StrBytes>,
    /// Records that were proposed and not yet applied.
    unapplied: u64,
    /// What live groups hold in memory, as an estimate. Bytes.
    live_bytes: usize,
    /// The same of each owner's.
    live_bytes_of: BTreeMap<StrBytes, usize>,
    /// Shared by the coordinators of all shards.
    usage: Arc<GroupUsage>,
    /// What this one has added to `usage`. Bytes.
    shown_bytes: usize,
    /// Replay is over and commands come.
    ready: bool,
}

impl KafkaGroups {
    /// A coordinator without groups.
    #[must_use]
    pub fn new(settings: GroupSettings) -> KafkaGroups {
        KafkaGroups {
            settings,
            applied: Applied::default(),
            live: BTreeMap::new(),
            consumers: BTreeMap::new(),
            timers: Timers::default(),
            unborn: BTreeMap::new(),
            watched: BTreeSet::new(),
            unapplied: 0,
            live_bytes: 0,
            live_bytes_of: BTreeMap::new(),
            usage: Arc::default(),
            shown_bytes: 0,
            ready: false,
        }
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// What groups and offsets hold in memory, those of other shards included, as an estimate. Bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let others = self.usage.memory_bytes().saturating_sub(self.shown_bytes);
        others + self.own_memory()
    }

    fn own_memory(&self) -> usize {
        self.live_bytes + self.applied.bytes()
    }

    fn show_usage(&mut self) {
        let bytes = self.own_memory();
        self.usage.change(self.shown_bytes, bytes);
        self.shown_bytes = bytes;
    }

    /// What groups take, for metrics.
    #[must_use]
    pub fn usage(&self) -> Arc<GroupUsage> {
        self.usage.clone()
    }

    /// What the groups of a user hold in memory, as an estimate. Bytes.
    fn bytes_of(&self, user: Option<&StrBytes>) -> usize {
        let user = user.map_or("", |user| &**user);
        self.live_bytes_of.get(user).map_or(0, |bytes| *bytes) + self.applied.bytes_of(user)
    }

    /// Does something with a group that is live. `None` when it is not.
    fn visit<R>(
        &mut self,
        now: Now,
        effects: &mut Effects,
        id: &str,
        act: impl FnOnce(&mut Turn<'_>, &mut Live) -> R,
    ) -> Option<R> {
        let live = self.live.get_mut(id)?;
        let before = live.bytes();
        let (timers, unborn) = (&mut self.timers, &mut self.unborn);
        let result = act(&mut Turn { now, settings: &self.settings, timers, unborn, effects }, live);
        let after = live.bytes();
        let (proposed, idle) = (live.unapplied > 0, live.is_idle());
        let (id, owner) = (live.id.clone(), live.owner.clone());
        if before != after {
            self.account(&owner, before, after);
        }
        if proposed {
            self.watch(now, &id);
        } else if idle {
            self.drop_live(&id);
        }
        Some(result)
    }

    /// Live groups of an owner hold so much less and so much more.
    fn account(&mut self, owner: &StrBytes, before: usize, after: usize) {
        self.live_bytes = (self.live_bytes + after).saturating_sub(before);
        let of = self.live_bytes_of.entry(owner.clone()).or_default();
        *of = (*of + after).saturating_sub(before);
        if *of == 0 {
            self.live_bytes_of.remove(owner);
        }
    }

    /// Forgets the soft state of a classic group.
    fn drop_live(&mut self, id: &str) {
        if let Some(live) = self.live.remove(id) {
            self.account(&live.owner, live.bytes(), 0);
        }
    }

    fn command(&mut self, context: &Context<'_>, caller: Caller, command: GroupCommand, effects: &mut Effects) {
        if let Some(reply) = self.void_reply(&command) {
            return effects.replies.push((caller, Box::new(reply)));
        }
        let reply = match command {
            GroupCommand::Join(request) => return self.join(context, caller, request, effects),
            GroupCommand::Sync(request) => return self.sync(context, caller, &request, effects),
            GroupCommand::Leave(request) => return self.leave(context, caller, request, effects),
            GroupCommand::CommitOffsets(request) => return self.commit(context, caller, &request, effects),
            GroupCommand::DeleteOffsets(request) => return self.delete_offsets(context, caller, &request, effects),
            GroupCommand::Delete(request) => return self.delete(context, caller, request.groups, effects),
            GroupCommand::Heartbeat(request) => {
                let reply = GroupReply::Heartbeat(self.heartbeat(context, &request, effects));
                return self.answer_behind(&[&request.group_id], caller, reply, effects);
            }
            GroupCommand::FetchOffsets(request) => self.fetch(context.catalog, &request),
            GroupCommand::ConsumerHeartbeat(request) => {
                return self.consumer_heartbeat(context, caller, &request, effects);
            }
            GroupCommand::DescribeConsumers(request) => {
                let reply = self.describe_consumers(context.catalog, &request);
                let groups: Vec<_> = request.groups.iter().collect();
                return self.answer_behind(&groups, caller, reply, effects);
            }
            GroupCommand::List(request) => {
                let reply = self.list(&request);
                let groups: Vec<_> = self.live.keys().chain(self.consumers.keys()).collect();
                return self.answer_behind(&groups, caller, reply, effects);
            }
            GroupCommand::Describe(request) => {
                let reply = self.describe(&request);
                let groups: Vec<_> = request.groups.iter().collect();
                return self.answer_behind(&groups, caller, reply, effects);
            }
        };
        effects.replies.push((caller, Box::new(reply)));
    }

    /// Answers what follows from the metadata of groups as proposed: not before that is committed.
    fn answer_behind(&self, groups: &[&StrBytes], caller: Caller, reply: GroupReply, effects: &mut Effects) {
        let on_its_way = |group: &&StrBytes| {
            let classic = self.live.get(*group).is_some_and(|live| live.unapplied > 0);
            classic || self.consumers.get(*group).is_some_and(|tail| tail.unapplied > 0)
        };
        match groups.iter().any(on_its_way) {
            true => propose(effects, &Record::Barrier, [(caller, reply)]),
            false => effects.replies.push((caller, Box::new(reply))),
        }
    }

    fn join(&mut self, context: &Context<'_>, caller: Caller, request: JoinGroup, effects: &mut Effects) {
        let (group_id, member_id, version) = (request.group_id.clone(), request.member_id.clone(), request.version);
        let timeouts = self.settings.session_timeout_ms_min..=self.settings.session_timeout_ms_max;
        let join = if group_id.is_empty() {
            Err(ErrorCode::InvalidGroupId)
        } else if !timeouts.contains(&request.session_timeout_ms) {
            Err(ErrorCode::InvalidSessionTimeout)
        } else {
            Join::new(caller, request, context.random)
        };
        let joined = join.and_then(|join| {
            self.make_live(&join)?;
            self.visit(context.now, effects, &group_id, |turn, live| turn.join(live, join));
            Ok(())
        });
        if let Err(error) = joined {
            effects.replies.push((caller, Box::new(join_error(error, member_id, version))));
        }
    }

    /// Sees to it that the group of a join is live, within the bounds on groups and memory.
    fn make_live(&mut self, join: &Join) -> Result<(), ErrorCode> {
        let id = &join.request.group_id;
        if self.has_consumers(id) {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        let live = self.live.get(id);
        if live.is_none() && !join.request.member_id.is_empty() {
            return Err(ErrorCode::UnknownMemberId);
        }
        let growth = join.growth(live);
        if self.memory() + growth > self.settings.memory_bytes_max {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        let owner = match live {
            Some(live) => live.owner.clone(),
            None => self
                .applied
                .group(id)
                .and_then(|group| group.owner.as_ref())
                .or(join.request.user.as_ref())
                .cloned()
                .unwrap_or_default(),
        };
        if growth > 0 && self.bytes_of(Some(&owner)) + growth > self.settings.user_bytes_max {
            self.usage.refuse();
            return Err(ErrorCode::GroupMaxSizeReached);
        }
        if live.is_some() {
            return Ok(());
        }
        let applied = self.applied.group(id);
        let groups = self.applied.len().max(self.live.len() + self.consumers.len());
        if applied.is_none() && groups >= self.settings.groups_max {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        let id = wire::detached(id);
        let mut live = Live::new(id.clone(), applied.and_then(|group| group.metadata.as_ref()), 0);
        live.owner = wire::detached(&owner);
        // A group of the consumer protocol without members becomes a classic one.
        self.drop_tail(&id);
        self.live.insert(id, live);
        Ok(())
    }

    fn sync(&mut self, context: &Context<'_>, caller: Caller, request: &SyncGroup, effects: &mut Effects) {
        let error = match validate_sync(request) {
            Err(error) => error,
            Ok(()) if !self.has_room_for(request) => ErrorCode::CoordinatorNotAvailable,
            Ok(()) => {
                let id = &request.group_id;
                let known = self.visit(context.now, effects, id, |turn, live| turn.sync(live, caller, request));
                if known.is_some() {
                    return;
                }
                ErrorCode::UnknownMemberId
            }
        };
        effects.replies.push((caller, Box::new(sync_error(error))));
    }

    /// Assignments are held twice: as proposed, and as applied.
    fn has_room_for(&self, request: &SyncGroup) -> bool {
        let bytes: usize = request.assignments.iter().map(|a| a.assignment.len()).sum();
        bytes == 0 || self.memory() + 2 * bytes <= self.settings.memory_bytes_max
    }

    fn heartbeat(&mut self, context: &Context<'_>, request: &Heartbeat, effects: &mut Effects) -> ErrorCode {
        if request.group_id.is_empty() {
            return ErrorCode::InvalidGroupId;
        }
        let beat = self.visit(context.now, effects, &request.group_id, |turn, live| turn.heartbeat(live, request));
        beat.unwrap_or(ErrorCode::UnknownMemberId)
    }

    fn leave(&mut self, context: &Context<'_>, caller: Caller, request: LeaveGroup, effects: &mut Effects) {
        let (id, version) = (request.group_id.clone(), request.version);
        let reply = if id.is_empty() {
            let error = ErrorCode::InvalidGroupId;
            command::LeaveGroupReply { error, members: Vec::new() }
        } else if self.live.contains_key(&id) {
            self.visit(context.now, effects, &id, |turn, live| turn.leave(live, caller, request));
            return;
        } else {
            let unknown = request.members.into_iter().map(|member| (member, ErrorCode::UnknownMemberId));
            leave_reply(version, unknown.collect())
        };
        effects.replies.push((caller, Box::new(GroupReply::Leave(reply))));
    }

    /// Rebuilds soft state from applied state: members are kept, and their session timeouts start again.
    /// `reported`: the generations that members have learned, where they are known.
    fn derive(&mut self, context: &Context<'_>, reported: &BTreeMap<StrBytes, i32>, effects: &mut Effects) {
        self.timers.clear();
        self.unborn.clear();
        self.watched.clear();
        self.live.clear();
        self.consumers.clear();
        self.live_bytes = 0;
        self.live_bytes_of.clear();
        self.unapplied = 0;
        let ids: Vec<StrBytes> = self.applied.groups().map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.watch(context.now, &id);
            self.derive_group(context.now, &id, reported.get(&id).copied().unwrap_or(0), effects);
            self.derive_consumer(context, &id, effects);
        }
    }

    /// Makes soft state of one group, which is not live, if it has members.
    fn derive_group(&mut self, now: Now, id: &StrBytes, reported: i32, effects: &mut Effects) {
        let metadata = self.applied.group(id).and_then(|group| group.metadata.as_ref());
        let Some(metadata) = metadata.filter(|m| !m.members.is_empty()) else { return };
        let mut live = Live::new(id.clone(), Some(metadata), reported);
        live.owner = self.applied.group(id).and_then(|group| group.owner.clone()).unwrap_or_default();
        self.account(&live.owner, 0, live.bytes());
        self.live.insert(id.clone(), live);
        self.visit(now, effects, id, |turn, live| {
            for member in live.member_ids() {
                turn.heard_of(live, &member);
            }
            if live.len() > turn.settings.group_size() {
                // the bound was lowered: joining again sorts out who stays
                turn.prepare(live);
            }
        });
    }

    fn timer(&mut self, context: &Context<'_>, key: &TimerKey, effects: &mut Effects) {
        let now = context.now;
        let group = &key.group;
        match &key.kind {
            TimerKind::Offsets => self.check_offsets(context, group, effects),
            TimerKind::Void => self.renew(context, group, effects),
            TimerKind::Join => {
                self.visit(now, effects, group, |turn, live| {
                    if live.join_deadline.came_up(turn.timers, now.monotonic_ms, || key.clone()) {
                        turn.join_time_is_up(live);
                    }
                });
            }
            TimerKind::Sync => {
                self.visit(now, effects, group, |turn, live| {
                    if live.sync_deadline.came_up(turn.timers, now.monotonic_ms, || key.clone()) {
                        turn.sync_time_is_up(live);
                    }
                });
            }
            TimerKind::Rebalance(member) => {
                self.visit_consumer(context, effects, group, |turn, tail| turn.revocation_came_up(tail, member));
            }
            TimerKind::Regex => {
                self.visit_consumer(context, effects, group, |turn, tail| turn.resolve(tail));
            }
            TimerKind::Session(member) if self.consumers.contains_key(group) => {
                self.visit_consumer(context, effects, group, |turn, tail| turn.consumer_session_came_up(tail, member));
            }
            TimerKind::Session(member) => {
                self.visit(now, effects, group, |turn, live| turn.session_came_up(live, member));
            }
        }
    }

    /// Metadata of a classic group was applied.
    fn metadata_is_applied(&mut self, group: &StrBytes) {
        let Some(live) = self.live.get_mut(group) else { return };
        live.unapplied = live.unapplied.saturating_sub(1);
        if live.is_idle() {
            self.drop_live(group);
        }
    }

    /// A record of a group of the consumer protocol was applied.
    fn consumer_is_applied(&mut self, group: &StrBytes, ends: bool) {
        let Some(tail) = self.consumers.get_mut(group) else { return };
        tail.settle(ends);
        if tail.is_idle() {
            self.drop_tail(group);
        }
    }

    /// Counts the records that a call proposed.
    fn count<R>(&mut self, effects: &mut Effects, call: impl FnOnce(&mut KafkaGroups, &mut Effects) -> R) -> R {
        let before = effects.proposals.len();
        let result = call(self, effects);
        self.unapplied += (effects.proposals.len() - before) as u64;
        self.show_usage();
        result
    }
}

impl StateMachine for KafkaGroups {
    fn handle(&mut self, context: &Context<'_>, caller: Caller, command: Command, effects: &mut Effects) {
        match command.downcast::<GroupCommand>() {
            Ok(command) => self.count(effects, |groups, effects| groups.command(context, caller, *command, effects)),
            Err(other) => {
                if let Ok(settings) = other.downcast::<GroupSettings>() {
                    self.settings = *settings;
                }
                effects.replies.push((caller, Box::new(())));
            }
        }
    }

    fn reads(&self, command: &Command) -> bool {
        use GroupCommand::{Describe, DescribeConsumers, FetchOffsets, List};
        matches!(command.downcast_ref(), Some(FetchOffsets(_) | List(_) | Describe(_) | DescribeConsumers(_)))
    }

    fn on_gone(&mut self, context: &Context<'_>, caller: Caller, effects: &mut Effects) {
        if let Some((group, member)) = self.unborn.remove(&caller) {
            self.count(effects, |groups, effects| {
                groups.visit(context.now, effects, &group, |turn, live| turn.member_is_lost(live, &member));
            });
        }
    }

    fn apply(&mut self, record: &[u8], time_ms: TimestampMs) -> Result<(), String> {
        let record = Record::decode(record)
            .map_err(|malformed| format!("a record of the group coordinator cannot be read: {}", malformed.0))?;
        let group = match &record {
            Record::Metadata { group, .. }
            | Record::Consumer { group, .. }
            | Record::Delete { group }
            | Record::Drop { group, .. }
                if self.ready =>
            {
                Some((
                    group.clone(),
                    matches!(record, Record::Metadata { .. }),
                    !matches!(record, Record::Consumer { .. }),
                ))
            }
            _ => None,
        };
        self.applied.apply(record, time_ms);
        self.show_usage();
        self.unapplied = self.unapplied.saturating_sub(1);
        match group {
            Some((group, true, _)) => self.metadata_is_applied(&group),
            Some((group, false, ends)) => self.consumer_is_applied(&group, ends),
            None => {}
        }
        Ok(())
    }

    fn on_ready(&mut self, context: &Context<'_>) {
        self.ready = true;
        // there are no waiters yet that could be answered
        self.derive(context, &BTreeMap::new(), &mut Effects::default());
    }

    fn on_refused(&mut self, context: &Context<'_>, records: &[Bytes], effects: &mut Effects) {
        self.take_back(context, records, effects);
        self.show_usage();
    }

    fn on_writer_lost(&mut self, context: &Context<'_>, effects: &mut Effects) {
        let mut reported = BTreeMap::new();
        for (id, live) in &mut self.live {
            reported.insert(id.clone(), live.reported());
            for member in live.member_ids() {
                if let Some(join) = live.take_join(&member) {
                    let reply = join_error(ErrorCode::NotCoordinator, member.clone(), join.version);
                    effects.replies.push((join.caller, Box::new(reply)));
                }
                if let Some(caller) = live.take_sync(&member) {
                    effects.replies.push((caller, Box::new(sync_error(ErrorCode::NotCoordinator))));
                }
            }
        }
        self.derive(context, &reported, effects);
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        self.timers.next_ms()
    }

    fn on_deadline(&mut self, context: &Context<'_>, effects: &mut Effects) {
        self.count(effects, |groups, effects| {
            // A record that is refused takes those of the same call with it: they are of one group.
            for _ in 0..TIMERS_PER_CALL_MAX {
                let Some(key) = groups.timers.pop_due(context.now.monotonic_ms) else { return };
                groups.timer(context, &key, effects);
                if !effects.proposals.is_empty() {
                    return;
                }
            }
        });
    }

    fn on_topics_deleted(&mut self, _context: &Context<'_>, topics: &[Arc<TopicInfo>], effects: &mut Effects) {
        // a commit in flight may still add an offset, so that a look is not enough
        if topics.is_empty() || (self.applied.len() == 0 && self.unapplied == 0) {
            return;
        }
        let topics = topics.iter().map(|topic| topic.id).collect();
        self.count(effects, |_, effects| propose(effects, &Record::ForgetTopics { topics }, []));
    }

    fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        self.applied.take_changed_chunks()
    }

    fn change_all_chunks(&mut self) {
        self.applied.change_all_chunks();
    }

    fn load_chunk(&mut self, id: &[u8], chunk: Bytes) -> Result<(), String> {
        self.applied.load_chunk(id, &chunk).map_err(|malformed| malformed.0)
    }

    fn slots(&self) -> Option<Arc<dyn Slots>> {
        Some(Arc::new(slots::GroupSlots { settings: self.settings.clone(), usage: self.usage.clone() }))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
