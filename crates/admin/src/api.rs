//! Request and response types of `/api/v1`, shared by the http listener and the command line. docs/http-api.md describes them
//! for users. Fields may be added; none changes its meaning within `v1`.

pub mod access;
pub mod clients;
pub mod messages;
pub mod queues;
pub mod reports;
mod reset;
pub mod settings;

pub use reset::*;

use polylogue_config::{Setting, variable};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Path prefix of the API on the http listener.
pub const PREFIX: &str = "/api/v1";

/// Body of every error response.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorObject,
}

/// An error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ErrorObject {
    /// Error code for programs: `invalid_request`, `unknown_topic`, `unknown_group`, `topic_exists`, `group_not_empty`, `forbidden`,
    /// `not_found`, `too_large`, `timeout`, `unavailable`, `internal`.
    pub code: String,
    /// Error text for users.
    pub message: String,
}

/// `GET /status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// polylogue's version.
    pub version: String,
    /// The cluster id, which does not change for the life of the data directory.
    pub cluster_id: String,
    /// The id of this node.
    pub node: u64,
    /// Whether the server is ready for clients.
    pub ready: bool,
    /// Why writes are refused; null while they are accepted.
    pub refuses_writes: Option<String>,
    /// Time since the server started. Milliseconds.
    pub uptime_ms: u64,
    /// Open client connections.
    pub connections: usize,
    /// Number of topics, without internal ones: those that the list of topics has by default.
    pub topics: usize,
    /// Number of partitions of all topics, internal ones included.
    pub partitions: usize,
    /// The listeners.
    pub listeners: Vec<ListenerStatus>,
    /// Connection counters by protocol.
    #[serde(default)]
    pub protocols: Vec<ProtocolStatus>,
    /// Free bytes of the data directory's file system; null if unknown.
    #[serde(default)]
    pub disk_free_bytes: Option<u64>,
    /// The reason for the disk alarm, which blocks publishers to queues; null without an alarm.
    #[serde(default)]
    pub disk_alarm: Option<String>,
    /// The reason for the memory alarm, which blocks publishers to queues; null without an alarm.
    #[serde(default)]
    pub memory_alarm: Option<String>,
    /// Resident memory of the process without file-backed pages. Bytes.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Latency histograms of the stages that a message passes through.
    #[serde(default)]
    pub stages: Vec<StageStatus>,
    /// Background work that failed since the start, by kind: `merge`, `checkpoint`, `recovery`, `delivery` and others.
    #[serde(default)]
    pub failures: BTreeMap<String, FailureStatus>,
    /// Internal counters of the broker, by name.
    pub figures: BTreeMap<String, u64>,
}

/// Failures of one kind of background work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FailureStatus {
    /// Number of failures.
    pub count: u64,
    /// Error text of the last failure.
    pub last: String,
}

/// Connection counters of one protocol since the start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProtocolStatus {
    /// The protocol's name.
    pub protocol: String,
    /// Open connections.
    pub connections: u64,
    /// Requests received.
    pub requests: u64,
    /// Bytes read from clients.
    pub received_bytes: u64,
    /// Bytes written to clients.
    pub sent_bytes: u64,
}

/// Latency histogram of one stage since the start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StageStatus {
    /// `queue`, `write`, `flush` or `deliver`.
    pub stage: String,
    /// Number of observations.
    pub count: u64,
    /// Sum of the observations. Nanoseconds.
    pub ns: u64,
    /// Upper bounds of the buckets. Microseconds.
    pub bounds_us: Vec<u64>,
    /// Observations by bucket: greater than the previous bound, at most this one; the last bucket has no upper bound.
    pub buckets: Vec<u64>,
}

/// One listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListenerStatus {
    /// The protocol that it serves.
    pub protocol: String,
    /// Whether it uses TLS.
    #[serde(default)]
    pub tls: bool,
    /// The address that it is bound to.
    pub bound: String,
    /// The advertised address; null if clients are given the address at which they connected.
    pub advertised: Option<String>,
}

/// `GET /config`: every option.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Options {
    /// In the order of the configuration reference.
    pub options: Vec<OptionValue>,
}

/// One option.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OptionValue {
    /// `section.name`.
    pub name: String,
    /// The effective value.
    pub value: String,
    /// The default value.
    pub default: String,
    /// Where the value was set.
    pub source: String,
    /// The type of the value.
    pub kind: String,
    /// The environment variable that sets it.
    pub variable: String,
    /// The description.
    pub doc: String,
}

impl From<&Setting> for OptionValue {
    fn from(s: &Setting) -> OptionValue {
        OptionValue {
            name: format!("{}.{}", s.section.name(), s.name),
            value: s.value.clone(),
            default: s.default.clone(),
            source: s.source.to_string(),
            kind: s.kind.clone(),
            variable: variable(s.section, &s.name),
            doc: s.doc.clone(),
        }
    }
}

/// `GET /topics`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Topics {
    /// Sorted by name.
    pub topics: Vec<TopicSummary>,
    /// Number of topics that match, before `offset` and `limit` are applied.
    #[serde(default)]
    pub total: usize,
}

/// One topic in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopicSummary {
    /// The topic's name.
    pub name: String,
    /// The topic id, in Kafka's notation.
    pub id: String,
    /// Number of partitions.
    pub partitions: usize,
    /// `sync`, `async` or `memory`.
    pub durability: String,
    /// Whether the topic is internal; clients hide such topics from users.
    pub internal: bool,
    /// Readable offsets of all partitions: approximately the number of messages.
    #[serde(default)]
    pub messages: u64,
    /// Stored bytes of all partitions.
    #[serde(default)]
    pub bytes: u64,
}

/// `POST /topics`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTopic {
    /// The topic's name.
    pub name: String,
    /// Number of partitions; the broker's default if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// Topic configs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
    /// Only validate the request.
    #[serde(default)]
    pub validate_only: bool,
}

/// `GET /topics/NAME`, and the response to `POST /topics`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Topic {
    /// The topic's name.
    pub name: String,
    /// The topic id, in Kafka's notation.
    pub id: String,
    /// Whether the topic is internal; clients hide such topics from users.
    pub internal: bool,
    /// Sorted by number.
    pub partitions: Vec<Partition>,
    /// Topic configs, sorted by name.
    pub config: Vec<TopicConfigEntry>,
}

/// One partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Partition {
    /// Partition number within the topic.
    pub partition: usize,
    /// Unique id of the partition, never reused.
    pub id: u64,
    /// The leader epoch.
    pub leader_epoch: i32,
    /// The log start offset; null if it cannot be read now, as for the other numbers.
    pub log_start: Option<u64>,
    /// The high watermark: the offset after the last committed message.
    pub high_watermark: Option<u64>,
    /// Stored bytes.
    pub bytes: Option<u64>,
}

/// One topic config of a topic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopicConfigEntry {
    /// The config's name.
    pub name: String,
    /// The effective value.
    pub value: String,
    /// Where the value was set: `topic`, `broker` or `default`.
    pub source: String,
    /// Whether the config has an effect in polylogue.
    pub has_effect: bool,
}

/// `GET /groups`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Groups {
    /// Sorted by name.
    pub groups: Vec<GroupSummary>,
    /// Number of groups that match, before `offset` and `limit` are applied.
    #[serde(default)]
    pub total: usize,
}

/// One group in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GroupSummary {
    /// The group id.
    pub group: String,
    /// The group state, by Kafka's name.
    pub state: String,
    /// `consumer`, `connect`, ...; empty for a group that only holds offsets.
    pub protocol_type: String,
    /// Number of members.
    #[serde(default)]
    pub members: usize,
    /// Lag: messages between the committed offsets and the ends of these partitions.
    #[serde(default)]
    pub lag: u64,
}

/// `GET /groups/NAME`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// The group id.
    pub group: String,
    /// The group state, by Kafka's name.
    pub state: String,
    /// `consumer`, `connect`, ...; empty for a group that only holds offsets.
    pub protocol_type: String,
    /// The assignment protocol; empty until one is chosen.
    pub protocol: String,
    /// The members.
    pub members: Vec<Member>,
    /// The committed offsets.
    pub offsets: Vec<GroupOffset>,
    /// Partitions that are assigned to a member and have no committed offset.
    #[serde(default)]
    pub uncommitted: Vec<UncommittedOffset>,
}

/// A partition that is assigned to a member of a group that has committed no offset of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UncommittedOffset {
    /// The topic's name.
    pub topic: String,
    /// The partition number.
    pub partition: i32,
    /// The high watermark; null if the partition does not exist.
    pub high_watermark: Option<u64>,
    /// Messages in the partition, all of which a consumer that starts at the earliest offset has before it.
    pub lag: Option<u64>,
}

/// One member of a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Member {
    /// The member id.
    pub member: String,
    /// The group instance id of a static member.
    pub instance: Option<String>,
    /// The client id.
    pub client: String,
    /// The client's host.
    pub host: String,
    /// The assigned partitions, if the assignment can be decoded.
    pub assignment: Vec<Assignment>,
}

/// Partitions of one topic that are assigned to a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Assignment {
    /// The topic's name.
    pub topic: String,
    /// The partition numbers.
    pub partitions: Vec<i32>,
}

/// One committed offset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GroupOffset {
    /// The topic's name.
    pub topic: String,
    /// The partition number.
    pub partition: i32,
    /// The committed offset: that of the next message to read.
    pub offset: i64,
    /// The high watermark; null if the partition does not exist.
    pub high_watermark: Option<u64>,
    /// Lag: messages between the committed offset and the high watermark.
    pub lag: Option<u64>,
    /// Lag in time: the age of the first unread message, by the timestamp of its batch. Milliseconds.
    #[serde(default)]
    pub lag_ms: Option<u64>,
    /// Metadata that the client committed with the offset.
    pub metadata: String,
}
