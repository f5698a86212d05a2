//! Commands of a session to the group coordinator, and its replies.
//!
//! A session sends a [`GroupCommand`] in [`polylogue_api::Request::Machine`] under
//! [`polylogue_api::MachineId::KAFKA_GROUPS`] and gets a [`GroupReply`] of the same name back. The fields are those of
//! the newest version of each Kafka message; where an older version means something else, the command carries the
//! version of the request, and the reply is already what that version can say.
//!
//! Strings and bytes may share the memory of the request's frame: whatever outlives the request is copied.

mod consumer;

pub use consumer::{
    ConsumerHeartbeat, ConsumerHeartbeatReply, DescribeConsumerGroups, DescribedConsumerGroup, DescribedConsumerMember,
    DescribedTopic, MayDescribe,
};

use bytes::Bytes;
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_types::{TimestampMs, TopicId};

/// A request to the coordinator.
#[derive(Clone, Debug)]
pub enum GroupCommand {
    /// JoinGroup, versions 0 to 9.
    Join(JoinGroup),
    /// SyncGroup, versions 0 to 5.
    Sync(SyncGroup),
    /// Heartbeat, versions 0 to 4.
    Heartbeat(Heartbeat),
    /// LeaveGroup, versions 0 to 5.
    Leave(LeaveGroup),
    /// OffsetCommit, versions 2 to 10.
    CommitOffsets(CommitOffsets),
    /// OffsetFetch, versions 1 to 10.
    FetchOffsets(FetchOffsets),
    /// ListGroups, versions 0 to 5.
    List(ListGroups),
    /// DescribeGroups, versions 0 to 6.
    Describe(DescribeGroups),
    /// DeleteGroups, versions 0 to 2.
    Delete(DeleteGroups),
    /// OffsetDelete, version 0.
    DeleteOffsets(DeleteOffsets),
    /// ConsumerGroupHeartbeat, versions 0 to 1.
    ConsumerHeartbeat(ConsumerHeartbeat),
    /// ConsumerGroupDescribe, versions 0 to 1.
    DescribeConsumers(DescribeConsumerGroups),
}

/// The answer to the command of the same name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupReply {
    /// To [`GroupCommand::Join`].
    Join(JoinGroupReply),
    /// To [`GroupCommand::Sync`].
    Sync(SyncGroupReply),
    /// To [`GroupCommand::Heartbeat`].
    Heartbeat(ErrorCode),
    /// To [`GroupCommand::Leave`].
    Leave(LeaveGroupReply),
    /// To [`GroupCommand::CommitOffsets`]: topics and partitions in the order of the command.
    CommitOffsets(Vec<TopicResults>),
    /// To [`GroupCommand::FetchOffsets`]: groups in the order of the command.
    FetchOffsets(Vec<FetchedGroup>),
    /// To [`GroupCommand::List`]: by name.
    List(Result<Vec<ListedGroup>, ErrorCode>),
    /// To [`GroupCommand::Describe`]: groups in the order of the command.
    Describe(Vec<DescribedGroup>),
    /// To [`GroupCommand::Delete`]: groups in the order of the command.
    Delete(Vec<(StrBytes, ErrorCode)>),
    /// To [`GroupCommand::DeleteOffsets`].
    DeleteOffsets(DeleteOffsetsReply),
    /// To [`GroupCommand::ConsumerHeartbeat`].
    ConsumerHeartbeat(ConsumerHeartbeatReply),
    /// To [`GroupCommand::DescribeConsumers`]: groups in the order of the command.
    DescribeConsumers(Vec<DescribedConsumerGroup>),
}

/// How a request names a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TopicKey {
    /// By its name.
    Name(StrBytes),
    /// By its incarnation (OffsetCommit and OffsetFetch from version 10).
    Id(TopicId),
}

/// See [`GroupCommand::Join`].
#[derive(Clone, Debug)]
pub struct JoinGroup {
    /// Of the request. Version 0 has no rebalance timeout (the session timeout serves as one); from 4 on a new
    /// member must come back with the id it was given; from 9 on a leader may be asked to keep the assignment.
    pub version: i16,
    /// The user, if known.
    pub user: Option<StrBytes>,
    /// The group.
    pub group_id: StrBytes,
    /// The member, empty for one that has no id yet.
    pub member_id: StrBytes,
    /// The name of a static member.
    pub instance_id: Option<StrBytes>,
    /// From the request header, empty when it has none.
    pub client_id: StrBytes,
    /// The client's address as Kafka writes it: `/127.0.0.1`.
    pub client_host: StrBytes,
    /// After how long a silent member is removed. Milliseconds.
    pub session_timeout_ms: i32,
    /// How long the group waits for this member when it rebalances. Milliseconds; not used in version 0.
    pub rebalance_timeout_ms: i32,
    /// `consumer`, `connect`, ...
    pub protocol_type: StrBytes,
    /// Protocols of the member, in order of preference.
    pub protocols: Vec<Protocol>,
}

/// A way of assigning that a member knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protocol {
    /// Its name, such as `range`.
    pub name: StrBytes,
    /// What the member says to the leader. Opaque.
    pub metadata: Bytes,
}

/// See [`GroupReply::Join`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinGroupReply {
    /// What went wrong.
    pub error: ErrorCode,
    /// The generation, -1 with an error.
    pub generation: i32,
    /// The group's protocol type, if it has one.
    pub protocol_type: Option<StrBytes>,
    /// The protocol chosen. `None` only where the version of the request allows null (from 7 on), else empty.
    pub protocol_name: Option<StrBytes>,
    /// The leader's member id, empty with an error.
    pub leader: StrBytes,
    /// The leader shall not compute an assignment (only from version 9 on).
    pub skip_assignment: bool,
    /// The member's id; with `MEMBER_ID_REQUIRED` the one to come back with.
    pub member_id: StrBytes,
    /// For the leader all members, for others none.
    pub members: Vec<JoinedMember>,
}

/// A member as its leader sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinedMember {
    /// Its id.
    pub member_id: StrBytes,
    /// The name of a static member.
    pub instance_id: Option<StrBytes>,
    /// What it said with the chosen protocol.
    pub metadata: Bytes,
}

/// See [`GroupCommand::Sync`].
#[derive(Clone, Debug)]
pub struct SyncGroup {
    /// Of the request. From 5 on protocol type and name must be given.
    pub version: i16,
    /// The group.
    pub group_id: StrBytes,
    /// The generation the member joined.
    pub generation: i32,
    /// The member.
    pub member_id: StrBytes,
    /// The name of a static member.
    pub instance_id: Option<StrBytes>,
    /// The protocol type that the member was given.
    pub protocol_type: Option<StrBytes>,
    /// The protocol that the member was given.
    pub protocol_name: Option<StrBytes>,
    /// From the leader: what each member gets.
    pub assignments: Vec<Assignment>,
}

/// A member's assignment by the leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// To whom.
    pub member_id: StrBytes,
    /// What. Opaque.
    pub assignment: Bytes,
}

/// See [`GroupReply::Sync`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncGroupReply {
    /// What went wrong.
    pub error: ErrorCode,
    /// The group's protocol type, `None` with an error.
    pub protocol_type: Option<StrBytes>,
    /// The group's protocol, `None` with an error.
    pub protocol_name: Option<StrBytes>,
    /// What the member gets; empty with an error and for a member that the leader left out.
    pub assignment: Bytes,
}

/// See [`GroupCommand::Heartbeat`].
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// The group.
    pub group_id: StrBytes,
    /// The generation of the member.
    pub generation: i32,
    /// The member.
    pub member_id: StrBytes,
    /// The name of a static member.
    pub instance_id: Option<StrBytes>,
}

/// See [`GroupCommand::Leave`].
#[derive(Clone, Debug)]
pub struct LeaveGroup {
    /// Of the request. Before 3 one member leaves and its error is the error of the whole.
    pub version: i16,
    /// The group.
    pub group_id: StrBytes,
    /// The leaving members: exactly one before version 3.
    pub members: Vec<LeavingMember>,
}

/// A leaving member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeavingMember {
    /// Its id; empty when an operator removes a static member by name.
    pub member_id: StrBytes,
    /// The name of a static member.
    pub instance_id: Option<StrBytes>,
}

/// See [`GroupReply::Leave`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaveGroupReply {
    /// What went wrong with the whole.
    pub error: ErrorCode,
    /// Each member, in the order of the command; empty before version 3.
    pub members: Vec<(LeavingMember, ErrorCode)>,
}

/// See [`GroupCommand::CommitOffsets`].
#[derive(Clone, Debug)]
pub struct CommitOffsets {
    /// Of the request.
    pub version: i16,
    /// The user, if known.
    pub user: Option<StrBytes>,
    /// The group.
    pub group_id: StrBytes,
    /// The generation, -1 from a client that is no member.
    pub generation: i32,
    /// The member id, empty from a client that is no member.
    pub member_id: StrBytes,
    /// The name of a static member.
    pub instance_id: Option<StrBytes>,
    /// Versions 2 to 4: how long the offsets are kept, whatever the state of the group; -1 for the broker's own rule.
    /// Milliseconds.
    pub retention_time_ms: i64,
    /// What to commit.
    pub topics: Vec<CommitTopic>,
}

/// Offsets in one topic.
#[derive(Clone, Debug)]
pub struct CommitTopic {
    /// Where.
    pub topic: TopicKey,
    /// What.
    pub partitions: Vec<CommitPartition>,
}

/// An offset to commit.
#[derive(Clone, Debug)]
pub struct CommitPartition {
    /// The number of the partition.
    pub index: i32,
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch of the last message read, -1 for none.
    pub leader_epoch: i32,
    /// What the client wants to remember with it; null is kept as empty.
    pub metadata: Option<StrBytes>,
}

/// Results in one topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicResults {
    /// The topic's name; empty when it was asked for by an unknown id.
    pub name: StrBytes,
    /// The topic's id; zero when it was asked for by an unknown name.
    pub id: TopicId,
    /// Each partition's number and what went wrong.
    pub partitions: Vec<(i32, ErrorCode)>,
}

/// See [`GroupCommand::FetchOffsets`].
#[derive(Clone, Debug)]
pub struct FetchOffsets {
    /// Of the request. Before 2 an error of the whole is said of each partition.
    pub version: i16,
    /// The groups: one before version 8.
    pub groups: Vec<FetchGroup>,
    /// Wait for transactions to end: partitions with pending offsets answer `UNSTABLE_OFFSET_COMMIT`. There are no
    /// transactional offsets yet, so that every offset is stable.
    pub require_stable: bool,
}

/// What is wanted of one group.
#[derive(Clone, Debug)]
pub struct FetchGroup {
    /// The group.
    pub group_id: StrBytes,
    /// The member that asks, if it says so (from version 9 on). Only groups of the newer protocol (KIP-848) look at it.
    pub member_id: Option<StrBytes>,
    /// Its epoch, -1 for none. Only groups of the newer protocol look at it.
    pub member_epoch: i32,
    /// Which topics; `None` for all that have offsets.
    pub topics: Option<Vec<FetchTopic>>,
}

/// What is wanted of one topic.
#[derive(Clone, Debug)]
pub struct FetchTopic {
    /// Which topic.
    pub topic: TopicKey,
    /// Which partitions.
    pub partitions: Vec<i32>,
}

/// What is known of one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchedGroup {
    /// The group.
    pub group_id: StrBytes,
    /// What went wrong with the whole; always `NONE` before version 2.
    pub error: ErrorCode,
    /// Topics in the order of the command, or by name when all were asked for.
    pub topics: Vec<FetchedTopic>,
}

/// What is known of one topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchedTopic {
    /// The topic's name; empty when it was asked for by an unknown id.
    pub name: StrBytes,
    /// The topic's id; zero when it was asked for by an unknown name.
    pub id: TopicId,
    /// Partitions in the order of the command, or by number when all were asked for.
    pub partitions: Vec<FetchedOffset>,
}

/// What is known of one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchedOffset {
    /// The number of the partition.
    pub index: i32,
    /// The offset committed, -1 for none.
    pub offset: i64,
    /// The leader epoch committed, -1 for none.
    pub leader_epoch: i32,
    /// What was committed with it, empty for nothing.
    pub metadata: StrBytes,
    /// What went wrong.
    pub error: ErrorCode,
}

/// See [`GroupCommand::List`].
#[derive(Clone, Default, Debug)]
pub struct ListGroups {
    /// Only groups in these states, by Kafka's names in any case; all when empty.
    pub states: Vec<StrBytes>,
    /// Only groups of these types (`classic`, ...) in any case; all when empty.
    pub types: Vec<StrBytes>,
}

/// A group in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedGroup {
    /// The group.
    pub group_id: StrBytes,
    /// `consumer`, `connect`, ...; empty for a group that only holds offsets.
    pub protocol_type: StrBytes,
    /// Its state.
    pub state: GroupState,
    /// Its type.
    pub kind: GroupKind,
}

/// See [`GroupCommand::Describe`].
#[derive(Clone, Debug)]
pub struct DescribeGroups {
    /// Of the request. Before 6 an unknown group is `Dead` without an error.
    pub version: i16,
    /// The groups.
    pub groups: Vec<StrBytes>,
}

/// A group in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedGroup {
    /// What went wrong.
    pub error: ErrorCode,
    /// What went wrong, in words (only from version 6 on).
    pub error_message: Option<StrBytes>,
    /// The group.
    pub group_id: StrBytes,
    /// Its state.
    pub state: GroupState,
    /// `consumer`, `connect`, ...; empty for a group that only holds offsets.
    pub protocol_type: StrBytes,
    /// The protocol chosen; empty while there is none.
    pub protocol_name: StrBytes,
    /// Its members, by id.
    pub members: Vec<DescribedMember>,
}

/// A member in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedMember {
    /// Its id.
    pub member_id: StrBytes,
    /// The name of a static member.
    pub instance_id: Option<StrBytes>,
    /// From its request header.
    pub client_id: StrBytes,
    /// Its address, as Kafka writes it.
    pub client_host: StrBytes,
    /// What it said with the chosen protocol; empty unless the group is stable.
    pub metadata: Bytes,
    /// What the leader gave it last; empty for nothing.
    pub assignment: Bytes,
}

/// See [`GroupCommand::Delete`].
#[derive(Clone, Debug)]
pub struct DeleteGroups {
    /// The groups.
    pub groups: Vec<StrBytes>,
}

/// See [`GroupCommand::DeleteOffsets`].
#[derive(Clone, Debug)]
pub struct DeleteOffsets {
    /// The group.
    pub group_id: StrBytes,
    /// Topics by name, with the numbers of their partitions.
    pub topics: Vec<(StrBytes, Vec<i32>)>,
}

/// See [`GroupReply::DeleteOffsets`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeleteOffsetsReply {
    /// What went wrong with the whole.
    pub error: ErrorCode,
    /// Topics and partitions in the order of the command; empty with an error of the whole.
    pub topics: Vec<TopicResults>,
}

/// The state of a group, with Kafka's names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GroupState {
    /// No members; there may be offsets.
    Empty,
    /// Waiting for members to join.
    PreparingRebalance,
    /// Waiting for the leader's assignment.
    CompletingRebalance,
    /// Everybody works.
    Stable,
    /// Gone.
    Dead,
    /// A group of the consumer protocol that waits for an assignment.
    Assigning,
    /// A group of the consumer protocol in which not every member has all of its assignment.
    Reconciling,
}

/// The type of a group: by which protocol its members speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupKind {
    /// JoinGroup and SyncGroup, or offsets only.
    Classic,
    /// ConsumerGroupHeartbeat (KIP-848).
    Consumer,
}

impl GroupKind {
    /// Kafka's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            GroupKind::Classic => "classic",
            GroupKind::Consumer => "consumer",
        }
    }
}

impl TopicKey {
    /// Its name and its id, as far as the request says.
    #[must_use]
    pub fn parts(&self) -> (StrBytes, TopicId) {
        match self {
            TopicKey::Name(name) => (name.clone(), TopicId::ZERO),
            TopicKey::Id(id) => (StrBytes::new(), *id),
        }
    }
}

/// An error of a whole group, which before version 2 is said of each partition.
pub(super) fn refused_fetch(group: &FetchGroup, version: i16, error: ErrorCode) -> FetchedGroup {
    if version >= FETCH_GROUP_ERROR_FROM {
        return FetchedGroup { group_id: group.group_id.clone(), error, topics: Vec::new() };
    }
    let topic = |topic: &FetchTopic| {
        let (name, id) = topic.topic.parts();
        let partitions = topic.partitions.iter().map(|index| FetchedOffset::none(*index, error)).collect();
        FetchedTopic { name, id, partitions }
    };
    let topics = group.topics.iter().flatten().map(topic).collect();
    FetchedGroup { group_id: group.group_id.clone(), error: ErrorCode::None, topics }
}

/// From this version of OffsetFetch on a group as a whole can have an error.
const FETCH_GROUP_ERROR_FROM: i16 = 2;

impl FetchedOffset {
    /// No offset, for the reason given, if there is one.
    pub(super) fn none(index: i32, error: ErrorCode) -> FetchedOffset {
        FetchedOffset { index, offset: -1, leader_epoch: -1, metadata: StrBytes::new(), error }
    }
}

impl DescribedGroup {
    pub(super) fn without_members(group_id: StrBytes, state: GroupState, error: ErrorCode) -> DescribedGroup {
        DescribedGroup {
            error,
            error_message: None,
            group_id,
            state,
            protocol_type: StrBytes::new(),
            protocol_name: StrBytes::new(),
            members: Vec::new(),
        }
    }
}

impl GroupState {
    /// Kafka's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            GroupState::Empty => "Empty",
            GroupState::PreparingRebalance => "PreparingRebalance",
            GroupState::CompletingRebalance => "CompletingRebalance",
            GroupState::Stable => "Stable",
            GroupState::Dead => "Dead",
            GroupState::Assigning => "Assigning",
            GroupState::Reconciling => "Reconciling",
        }
    }
}

/// One committed offset, for people to look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OffsetListing {
    /// The topic's name.
    pub topic: StrBytes,
    /// The topic's id.
    pub topic_id: TopicId,
    /// The number of the partition.
    pub partition: i32,
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch committed, -1 for none.
    pub leader_epoch: i32,
    /// What was committed with it.
    pub metadata: StrBytes,
    /// When.
    pub committed_ms: TimestampMs,
}
