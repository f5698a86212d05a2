//! Commands about groups of the consumer protocol (KIP-848), and their replies.

use super::GroupState;
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_types::TopicId;
use std::fmt;
use std::sync::Arc;

/// Which topics a user may describe.
#[derive(Clone)]
pub struct MayDescribe(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl MayDescribe {
    /// By that rule, which must not block.
    pub fn new(rule: impl Fn(&str) -> bool + Send + Sync + 'static) -> MayDescribe {
        MayDescribe(Arc::new(rule))
    }

    /// Whether the topic may be described.
    #[must_use]
    pub fn topic(&self, name: &str) -> bool {
        (self.0)(name)
    }
}

impl fmt::Debug for MayDescribe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MayDescribe")
    }
}

/// See [`GroupCommand::ConsumerHeartbeat`](super::GroupCommand::ConsumerHeartbeat). What is `None` has not changed since the member said it last.
#[derive(Clone, Debug)]
pub struct ConsumerHeartbeat {
    /// Of the request. Before version 1 a member that joins may have no id yet.
    pub version: i16,
    /// The user, if known.
    pub user: Option<StrBytes>,
    /// Which topics the user may describe; `None` for all. Only those match a regular expression.
    pub may_describe: Option<MayDescribe>,
    /// The group.
    pub group_id: StrBytes,
    /// The member.
    pub member_id: StrBytes,
    /// The member's epoch: 0 joins, -1 leaves, -2 leaves as a static member that will be back.
    pub member_epoch: i32,
    /// The name of a static member.
    pub instance_id: Option<StrBytes>,
    /// Where the client is.
    pub rack_id: Option<StrBytes>,
    /// How long the member may take to give up partitions; -1 for no change. Milliseconds.
    pub rebalance_timeout_ms: i32,
    /// Topics by name.
    pub topics: Option<Vec<StrBytes>>,
    /// A regular expression that names of topics match; an empty one for none.
    pub regex: Option<StrBytes>,
    /// The assignor that the member wants.
    pub assignor: Option<StrBytes>,
    /// The partitions that the member owns.
    pub owned: Option<Vec<(TopicId, Vec<i32>)>>,
    /// From the request header, empty when it has none.
    pub client_id: StrBytes,
    /// The client's address as Kafka writes it: `/127.0.0.1`.
    pub client_host: StrBytes,
}

/// See [`GroupReply::ConsumerHeartbeat`](super::GroupReply::ConsumerHeartbeat).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsumerHeartbeatReply {
    /// What went wrong.
    pub error: ErrorCode,
    /// The same in words.
    pub message: Option<StrBytes>,
    /// The member's id.
    pub member_id: Option<StrBytes>,
    /// The member's epoch.
    pub member_epoch: i32,
    /// When the next heartbeat is due. Milliseconds.
    pub heartbeat_interval_ms: i32,
    /// What the member may read; `None` for no change.
    pub assignment: Option<Vec<(TopicId, Vec<i32>)>>,
}

impl ConsumerHeartbeatReply {
    /// A reply that says no more than that.
    #[must_use]
    pub fn refused(error: ErrorCode) -> ConsumerHeartbeatReply {
        ConsumerHeartbeatReply {
            error,
            message: None,
            member_id: None,
            member_epoch: 0,
            heartbeat_interval_ms: 0,
            assignment: None,
        }
    }
}

/// See [`GroupCommand::DescribeConsumers`](super::GroupCommand::DescribeConsumers).
#[derive(Clone, Debug)]
pub struct DescribeConsumerGroups {
    /// The groups.
    pub groups: Vec<StrBytes>,
}

/// A consumer group in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedConsumerGroup {
    /// What went wrong.
    pub error: ErrorCode,
    /// The same in words.
    pub error_message: Option<StrBytes>,
    /// The group.
    pub group_id: StrBytes,
    /// Its state.
    pub state: GroupState,
    /// Its epoch.
    pub epoch: i32,
    /// The epoch of its assignment.
    pub assignment_epoch: i32,
    /// The assignor that is used.
    pub assignor: StrBytes,
    /// Its members, by id.
    pub members: Vec<DescribedConsumerMember>,
}

impl DescribedConsumerGroup {
    /// A group of which no more is said than that.
    #[must_use]
    pub fn refused(group_id: StrBytes, error: ErrorCode, error_message: Option<StrBytes>) -> DescribedConsumerGroup {
        DescribedConsumerGroup {
            error,
            error_message,
            group_id,
            state: GroupState::Dead,
            epoch: 0,
            assignment_epoch: 0,
            assignor: StrBytes::new(),
            members: Vec::new(),
        }
    }
}

/// A member of a consumer group in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedConsumerMember {
    /// Its id.
    pub member_id: StrBytes,
    /// The name of a static member.
    pub instance_id: Option<StrBytes>,
    /// Where the client is.
    pub rack_id: Option<StrBytes>,
    /// Its epoch.
    pub epoch: i32,
    /// From its request header.
    pub client_id: StrBytes,
    /// Its address, as Kafka writes it.
    pub client_host: StrBytes,
    /// Topics to which it subscribes by name.
    pub topics: Vec<StrBytes>,
    /// Its regular expression.
    pub regex: Option<StrBytes>,
    /// What it may read.
    pub assigned: Vec<DescribedTopic>,
    /// What it is to read.
    pub target: Vec<DescribedTopic>,
}

/// Partitions of a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedTopic {
    /// The topic's id.
    pub id: TopicId,
    /// The topic's name.
    pub name: StrBytes,
    /// The numbers of the partitions.
    pub partitions: Vec<i32>,
}
