//! A host for the group coordinator without a broker: a settable clock, a list as the log, and checks that each caller is
//! answered once.

#![allow(dead_code, reason = "each test binary uses its part")]

use bytes::Bytes;
use polylogue_api::{
    Caller, Catalog, ClusterInfo, Context, Effects, NoQueues, Now, PartitionInfo, Proposal, StateMachine, TopicConfig,
    TopicInfo,
};
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_kafka_groups::command::*;
use polylogue_kafka_groups::{GroupSettings, KafkaGroups};
use polylogue_types::{NodeId, PartitionId, TopicId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Wall time at the start of each test; monotonic time starts at another number, so that mixing them up is noticed.
pub(crate) const START_MS: i64 = 1_700_000_000_000;
const MONOTONIC_START_MS: u64 = 5_000;

pub(crate) fn text(s: &str) -> StrBytes {
    StrBytes::from(s)
}

#[derive(Debug, Default)]
pub(crate) struct Topics {
    topics: BTreeMap<String, Arc<TopicInfo>>,
    made: u8,
    changed: u64,
    /// What is set for groups.
    pub(crate) of_groups: BTreeMap<String, polylogue_api::Settings>,
}

impl Topics {
    pub(crate) fn create(&mut self, name: &str, partitions: u32) -> TopicId {
        self.made += 1;
        let id = TopicId([self.made; 16]);
        let partition = |n: u32| PartitionInfo { id: PartitionId(u64::from(n) + 1), leader_epoch: 0 };
        let info = TopicInfo {
            name: Arc::from(name),
            id,
            internal: false,
            partitions: (0..partitions).map(partition).collect(),
            config: Arc::new(TopicConfig::default()),
        };
        self.topics.insert(name.to_owned(), Arc::new(info));
        self.changed += 1;
        id
    }

    /// The same topic with more partitions.
    pub(crate) fn grow(&mut self, name: &str, partitions: u32) {
        let old = self.topics.get(name).expect("a topic to grow");
        let partition = |n: u32| PartitionInfo { id: PartitionId(u64::from(n) + 1), leader_epoch: 0 };
        let info = TopicInfo { partitions: (0..partitions).map(partition).collect(), ..TopicInfo::clone(old) };
        self.topics.insert(name.to_owned(), Arc::new(info));
        self.changed += 1;
    }
}

impl Catalog for Topics {
    fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        self.topics.get(name).cloned()
    }
    fn topic_by_id(&self, id: TopicId) -> Option<Arc<TopicInfo>> {
        self.topics.values().find(|t| t.id == id).cloned()
    }
    fn topics(&self) -> Vec<Arc<TopicInfo>> {
        self.topics.values().cloned().collect()
    }
    fn cluster(&self) -> ClusterInfo {
        ClusterInfo { cluster_id: Arc::from("test"), node: NodeId(1) }
    }
    fn settings(&self, scope: &polylogue_api::SettingsScope) -> Arc<polylogue_api::Settings> {
        match scope {
            polylogue_api::SettingsScope::Group(group) => {
                Arc::new(self.of_groups.get(group).cloned().unwrap_or_default())
            }
            _ => Arc::default(),
        }
    }
    fn settings_scopes(&self) -> Vec<polylogue_api::SettingsScope> {
        Vec::new()
    }

    fn version(&self) -> u64 {
        self.changed
    }
}

/// A reply to a caller.
#[derive(Debug)]
pub(crate) enum CallerReply {
    Reply(GroupReply),
    /// From the host: the record was not committed.
    Unavailable,
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) machine: KafkaGroups,
    pub(crate) topics: Topics,
    pub(crate) now: Now,
    random: u64,
    next_caller: u64,
    waiting: BTreeSet<Caller>,
    /// Callers whose connection is closed; replies to them are dropped, but must still come only once.
    gone: BTreeSet<Caller>,
    reported: BTreeMap<Caller, CallerReply>,
    /// Committed records with their frames' time.
    pub(crate) log: Vec<(Bytes, i64)>,
    /// Proposed and uncommitted records.
    pub(crate) in_flight: VecDeque<Proposal>,
    /// Number of deadline calls.
    pub(crate) deadlines: u64,
    /// Whether the log refuses proposals.
    pub(crate) refuses: bool,
    /// Whether proposals are committed as soon as they are made.
    pub(crate) commit_at_once: bool,
    /// The checkpoint: its chunks, and the length of the log that it covers.
    pub(crate) chunks: BTreeMap<Bytes, Bytes>,
    pub(crate) covered: usize,
}

impl Host {
    pub(crate) fn new(settings: GroupSettings) -> Host {
        let mut host = Host {
            machine: KafkaGroups::new(settings),
            topics: Topics::default(),
            now: Now { wall_ms: START_MS, monotonic_ms: MONOTONIC_START_MS },
            random: 0,
            next_caller: 0,
            waiting: BTreeSet::new(),
            gone: BTreeSet::new(),
            reported: BTreeMap::new(),
            log: Vec::new(),
            in_flight: VecDeque::new(),
            deadlines: 0,
            refuses: false,
            commit_at_once: true,
            chunks: BTreeMap::new(),
            covered: 0,
        };
        host.with(|machine, context, _| machine.on_ready(context));
        host
    }

    /// Without the initial rebalance delay, which most tests do not need.
    pub(crate) fn quick() -> Host {
        Host::new(GroupSettings { initial_rebalance_delay_ms: 0, ..GroupSettings::default() })
    }

    pub(crate) fn with<R>(&mut self, call: impl FnOnce(&mut KafkaGroups, &Context<'_>, &mut Effects) -> R) -> R {
        self.random += 1;
        let context = Context { now: self.now, catalog: &self.topics, queues: &NoQueues, random: self.random };
        let mut effects = Effects::default();
        let result = call(&mut self.machine, &context, &mut effects);
        for (caller, reply) in effects.replies {
            self.tell(caller, reply);
        }
        if self.refuses && !effects.proposals.is_empty() {
            self.refuse(effects.proposals);
        } else {
            self.in_flight.extend(effects.proposals);
        }
        if self.commit_at_once {
            self.commit_all();
        }
        result
    }

    fn refuse(&mut self, proposals: Vec<Proposal>) {
        let records: Vec<_> = proposals.iter().map(|proposal| proposal.record.clone()).collect();
        let context = Context { now: self.now, catalog: &self.topics, queues: &NoQueues, random: 0 };
        let mut effects = Effects::default();
        self.machine.on_refused(&context, &records, &mut effects);
        assert!(effects.proposals.is_empty(), "nothing is proposed instead");
        for (caller, _) in proposals.into_iter().flat_map(|proposal| proposal.replies) {
            self.told_once(caller, CallerReply::Unavailable);
        }
        for (caller, reply) in effects.replies {
            self.tell(caller, reply);
        }
    }

    fn tell(&mut self, caller: Caller, reply: Box<dyn std::any::Any + Send>) {
        let reply = *reply.downcast::<GroupReply>().expect("a reply of the machine's own type");
        self.told_once(caller, CallerReply::Reply(reply));
    }

    fn told_once(&mut self, caller: Caller, reported: CallerReply) {
        if self.gone.remove(&caller) {
            return;
        }
        assert!(self.waiting.remove(&caller), "{caller:?} is answered twice, or never asked: {reported:?}");
        self.reported.insert(caller, reported);
    }

    pub(crate) fn commit_one(&mut self) -> bool {
        let Some(proposal) = self.in_flight.pop_front() else { return false };
        let time_ms = self.now.wall_ms;
        self.machine.apply(&proposal.record, time_ms).expect("what was proposed can be applied");
        self.log.push((proposal.record, time_ms));
        for (caller, reply) in proposal.replies {
            self.tell(caller, reply);
        }
        true
    }

    pub(crate) fn commit_all(&mut self) {
        while self.commit_one() {}
    }

    pub(crate) fn send(&mut self, command: GroupCommand) -> Caller {
        self.next_caller += 1;
        let caller = Caller(self.next_caller);
        self.waiting.insert(caller);
        self.with(|machine, context, effects| machine.handle(context, caller, Box::new(command), effects));
        caller
    }

    /// Takes a caller's reply.
    pub(crate) fn take(&mut self, caller: Caller) -> Option<CallerReply> {
        self.reported.remove(&caller)
    }

    pub(crate) fn is_waiting(&self, caller: Caller) -> bool {
        self.waiting.contains(&caller)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn reply(&mut self, caller: Caller) -> GroupReply {
        match self.take(caller) {
            Some(CallerReply::Reply(reply)) => reply,
            other => panic!("{caller:?} has no reply: {other:?}"),
        }
    }

    pub(crate) fn call(&mut self, command: GroupCommand) -> GroupReply {
        let caller = self.send(command);
        self.reply(caller)
    }

    pub(crate) fn gone(&mut self, caller: Caller) {
        if self.waiting.remove(&caller) {
            self.gone.insert(caller);
        }
        self.with(|machine, context, effects| machine.on_gone(context, caller, effects));
    }

    /// Number of callers that were never answered.
    pub(crate) fn never_told(&self) -> usize {
        self.gone.len()
    }

    /// Advances time, with every deadline at its time.
    pub(crate) fn advance(&mut self, ms: u64) {
        let until = self.now.monotonic_ms + ms;
        while let Some(at) = self.machine.next_deadline_ms().filter(|at| *at <= until) {
            self.jump_to(at.max(self.now.monotonic_ms));
            self.deadline();
        }
        self.jump_to(until);
    }

    /// Calls the deadline once.
    pub(crate) fn deadline(&mut self) {
        self.deadlines += 1;
        self.with(|machine, context, effects| machine.on_deadline(context, effects));
    }

    fn jump_to(&mut self, monotonic_ms: u64) {
        let step = monotonic_ms - self.now.monotonic_ms;
        self.now.monotonic_ms = monotonic_ms;
        self.now.wall_ms += i64::try_from(step).unwrap();
    }

    /// Crashes the process: uncommitted records and callers are lost; recovers from the checkpoint and the rest of the
    /// log.
    pub(crate) fn crash(&mut self) -> Vec<Caller> {
        let settings = self.machine.settings().clone();
        self.in_flight.clear();
        self.machine = KafkaGroups::new(settings);
        for (id, chunk) in &self.chunks {
            self.machine.load_chunk(id, chunk.clone()).expect("a chunk that was taken can be loaded");
        }
        for (record, time_ms) in &self.log[self.covered..] {
            self.machine.apply(record, *time_ms).expect("what was applied once can be replayed");
        }
        self.now.monotonic_ms = MONOTONIC_START_MS;
        self.with(|machine, context, _| machine.on_ready(context));
        self.gone.clear();
        std::mem::take(&mut self.waiting).into_iter().collect()
    }

    /// Loses the writer: uncommitted proposals are dropped, and their callers get an error from the host.
    pub(crate) fn lose_writer(&mut self) {
        for proposal in std::mem::take(&mut self.in_flight) {
            for (caller, _) in proposal.replies {
                self.told_once(caller, CallerReply::Unavailable);
            }
        }
        self.with(|machine, context, effects| machine.on_writer_lost(context, effects));
    }

    pub(crate) fn checkpoint(&mut self) {
        assert!(self.in_flight.is_empty(), "a checkpoint is taken of applied state");
        merge(&mut self.chunks, self.machine.take_changed_chunks());
        self.covered = self.log.len();
    }

    /// Returns the applied state as chunks: the checkpoint with later changes, and the same from the whole log.
    pub(crate) fn both_states(&mut self) -> [BTreeMap<Bytes, Bytes>; 3] {
        let mut replayed = KafkaGroups::new(GroupSettings::default());
        for (record, time_ms) in &self.log {
            replayed.apply(record, *time_ms).unwrap();
        }
        let mut from_log = BTreeMap::new();
        merge(&mut from_log, replayed.take_changed_chunks());
        let mut suffix = KafkaGroups::new(GroupSettings::default());
        let mut from_checkpoint = self.chunks.clone();
        for (id, chunk) in &self.chunks {
            suffix.load_chunk(id, chunk.clone()).unwrap();
        }
        for (record, time_ms) in &self.log[self.covered..] {
            suffix.apply(record, *time_ms).unwrap();
        }
        merge(&mut from_checkpoint, suffix.take_changed_chunks());
        self.checkpoint();
        [from_log, from_checkpoint, self.chunks.clone()]
    }

    pub(crate) fn delete_topic(&mut self, name: &str) {
        let info = self.topics.topics.remove(name).expect("a topic to delete");
        self.topics.changed += 1;
        self.with(|machine, context, effects| machine.on_topics_deleted(context, &[info], effects));
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.machine.next_deadline_ms()
    }

    pub(crate) fn state(&self, group: &str) -> Option<GroupState> {
        self.machine.summary(group).map(|s| s.state)
    }

    pub(crate) fn configure(&mut self, settings: GroupSettings) {
        let context = Context { now: self.now, catalog: &self.topics, queues: &NoQueues, random: 0 };
        let mut effects = Effects::default();
        self.machine.handle(&context, Caller(0), Box::new(settings), &mut effects);
        assert!(effects.replies.pop().is_some_and(|(_, reply)| reply.is::<()>()));
    }
}

fn merge(into: &mut BTreeMap<Bytes, Bytes>, changed: Vec<(Bytes, Option<Bytes>)>) {
    for (id, chunk) in changed {
        match chunk {
            Some(chunk) => into.insert(id, chunk),
            None => into.remove(&id),
        };
    }
}

/// A JoinGroup for tests to modify.
pub(crate) fn join(group: &str, member: &str) -> JoinGroup {
    JoinGroup {
        version: 9,
        user: None,
        group_id: text(group),
        member_id: text(member),
        instance_id: None,
        client_id: text("client"),
        client_host: text("/127.0.0.1"),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: text("consumer"),
        protocols: protocols(&["range"]),
    }
}

pub(crate) fn static_join(group: &str, member: &str, instance: &str) -> JoinGroup {
    JoinGroup { instance_id: Some(text(instance)), ..join(group, member) }
}

pub(crate) fn protocols(names: &[&str]) -> Vec<Protocol> {
    names.iter().map(|name| Protocol { name: text(name), metadata: subscription(&["t"]) }).collect()
}

/// The metadata of a consumer: version 0, topics, no user data.
pub(crate) fn subscription(topics: &[&str]) -> Bytes {
    let mut bytes = vec![0, 0];
    bytes.extend(u32::try_from(topics.len()).unwrap().to_be_bytes());
    for topic in topics {
        bytes.extend(u16::try_from(topic.len()).unwrap().to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    bytes.extend((-1i32).to_be_bytes());
    Bytes::from(bytes)
}

pub(crate) fn sync(group: &str, generation: i32, member: &str, assignments: &[(&str, &str)]) -> SyncGroup {
    SyncGroup {
        version: 5,
        group_id: text(group),
        generation,
        member_id: text(member),
        instance_id: None,
        protocol_type: Some(text("consumer")),
        protocol_name: Some(text("range")),
        assignments: assignments
            .iter()
            .map(|(to, what)| Assignment { member_id: text(to), assignment: Bytes::copy_from_slice(what.as_bytes()) })
            .collect(),
    }
}

pub(crate) fn beat(group: &str, generation: i32, member: &str) -> Heartbeat {
    Heartbeat { group_id: text(group), generation, member_id: text(member), instance_id: None }
}

pub(crate) fn leaving(member: &str, instance: Option<&str>) -> LeavingMember {
    LeavingMember { member_id: text(member), instance_id: instance.map(text) }
}

pub(crate) fn commit(group: &str, topic: &str, offsets: &[(i32, i64)]) -> CommitOffsets {
    let partition = |&(index, offset): &(i32, i64)| CommitPartition { index, offset, leader_epoch: -1, metadata: None };
    CommitOffsets {
        version: 9,
        user: None,
        group_id: text(group),
        generation: -1,
        member_id: text(""),
        instance_id: None,
        retention_time_ms: -1,
        topics: vec![CommitTopic {
            topic: TopicKey::Name(text(topic)),
            partitions: offsets.iter().map(partition).collect(),
        }],
    }
}

impl Host {
    pub(crate) fn join(&mut self, request: JoinGroup) -> JoinGroupReply {
        let caller = self.send(GroupCommand::Join(request));
        self.joined(caller)
    }

    pub(crate) fn joined(&mut self, caller: Caller) -> JoinGroupReply {
        match self.reply(caller) {
            GroupReply::Join(reply) => reply,
            other => panic!("not a join: {other:?}"),
        }
    }

    pub(crate) fn sync(&mut self, request: SyncGroup) -> SyncGroupReply {
        let caller = self.send(GroupCommand::Sync(request));
        self.synced(caller)
    }

    pub(crate) fn synced(&mut self, caller: Caller) -> SyncGroupReply {
        match self.reply(caller) {
            GroupReply::Sync(reply) => reply,
            other => panic!("not a sync: {other:?}"),
        }
    }

    pub(crate) fn beat(&mut self, request: Heartbeat) -> ErrorCode {
        match self.call(GroupCommand::Heartbeat(request)) {
            GroupReply::Heartbeat(error) => error,
            other => panic!("not a heartbeat: {other:?}"),
        }
    }

    pub(crate) fn leave(&mut self, group: &str, members: Vec<LeavingMember>) -> LeaveGroupReply {
        self.leave_at(3, group, members)
    }

    pub(crate) fn leave_at(&mut self, version: i16, group: &str, members: Vec<LeavingMember>) -> LeaveGroupReply {
        match self.call(GroupCommand::Leave(LeaveGroup { version, group_id: text(group), members })) {
            GroupReply::Leave(reply) => reply,
            other => panic!("not a leave: {other:?}"),
        }
    }

    /// Returns the error codes of a commit, in order.
    pub(crate) fn commit(&mut self, request: CommitOffsets) -> Vec<ErrorCode> {
        match self.call(GroupCommand::CommitOffsets(request)) {
            GroupReply::CommitOffsets(topics) => {
                topics.iter().flat_map(|t| &t.partitions).map(|(_, error)| *error).collect()
            }
            other => panic!("not a commit: {other:?}"),
        }
    }

    pub(crate) fn fetch(&mut self, version: i16, groups: Vec<FetchGroup>) -> Vec<FetchedGroup> {
        match self.call(GroupCommand::FetchOffsets(FetchOffsets { version, groups, require_stable: true })) {
            GroupReply::FetchOffsets(groups) => groups,
            other => panic!("not a fetch: {other:?}"),
        }
    }

    pub(crate) fn fetch_all(&mut self, group: &str) -> Vec<(String, i32, i64)> {
        let fetched = self.fetch(8, vec![fetch_group(group, None)]);
        assert_eq!(fetched.len(), 1);
        let topics = fetched[0].topics.iter();
        topics.flat_map(|t| t.partitions.iter().map(|p| (t.name.to_string(), p.index, p.offset))).collect()
    }

    /// Joins a member with an id, as clients do since KIP-394; its join is parked or answered.
    pub(crate) fn newcomer(&mut self, request: JoinGroup) -> (StrBytes, Caller) {
        let first = self.join(request.clone());
        assert_eq!(first.error, ErrorCode::MemberIdRequired);
        let caller = self.send(GroupCommand::Join(JoinGroup { member_id: first.member_id.clone(), ..request }));
        (first.member_id, caller)
    }

    /// A stable group of that many members, returned in the order of their ids; the first is the leader.
    /// Each has its own id as its assignment. (Requires a quick host.)
    pub(crate) fn stable(&mut self, group: &str, members: usize) -> Vec<StrBytes> {
        let (first, caller) = self.newcomer(join(group, ""));
        assert_eq!(self.joined(caller).error, ErrorCode::None);
        let mut callers = Vec::new();
        let mut ids = vec![first.clone()];
        for _ in 1..members {
            let (id, caller) = self.newcomer(join(group, ""));
            ids.push(id);
            callers.push(caller);
        }
        if members > 1 {
            let reply = self.join(join(group, &first));
            assert_eq!(reply.leader, first);
        }
        let generation = self.machine.summary(group).unwrap().generation;
        callers.into_iter().for_each(|caller| assert_eq!(self.joined(caller).generation, generation));
        let own: Vec<(&str, &str)> = ids.iter().map(|id| (&**id, &**id)).collect();
        let assigned = self.sync(sync(group, generation, &first, &own));
        assert_eq!(assigned.assignment, first.as_bytes());
        for id in &ids[1..] {
            assert_eq!(self.sync(sync(group, generation, id, &[])).assignment, id.as_bytes());
        }
        assert_eq!(self.state(group), Some(GroupState::Stable));
        ids
    }
}

pub(crate) fn fetch_group(group: &str, topics: Option<&[(&str, &[i32])]>) -> FetchGroup {
    let topic = |(name, partitions): &(&str, &[i32])| FetchTopic {
        topic: TopicKey::Name(text(name)),
        partitions: partitions.to_vec(),
    };
    FetchGroup {
        group_id: text(group),
        member_id: None,
        member_epoch: -1,
        topics: topics.map(|topics| topics.iter().map(topic).collect()),
    }
}
