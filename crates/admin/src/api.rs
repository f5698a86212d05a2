//! The shapes of `/api/v1`: what the http listener writes and the command line reads. docs/http-api.md describes them
//! for others. Fields may be added; none changes its meaning within `v1`.

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

/// Where all of this is found on the http listener.
pub const PREFIX: &str = "/api/v1";

/// Every answer that is not a success.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorObject,
}

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ErrorObject {
    /// For programs: `invalid_request`, `unknown_topic`, `unknown_group`, `topic_exists`, `group_not_empty`, `forbidden`,
    /// `not_found`, `too_large`, `timeout`, `unavailable`, `internal`.
    pub code: String,
    /// For people.
    pub message: String,
}

/// `GET /status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// polylogue's version.
    pub version: String,
    /// The cluster's id, the same for the life of the data directory.
    pub cluster_id: String,
    /// This node.
    pub node: u64,
    /// Whether it serves.
    pub ready: bool,
    /// Why messages are refused, if they are.
    pub refuses_writes: Option<String>,
    /// How long the server has been running.
    pub uptime_ms: u64,
    /// Connections of clients.
    pub connections: usize,
    /// Topics.
    pub topics: usize,
    /// Partitions of all topics.
    pub partitions: usize,
    /// Where it listens.
    pub listeners: Vec<ListenerStatus>,
    /// What is counted of connections, by protocol.
    #[serde(default)]
    pub protocols: Vec<ProtocolStatus>,
    /// Free bytes of the data directory's file system, where that is known.
    #[serde(default)]
    pub disk_free_bytes: Option<u64>,
    /// Why publishers to queues are to wait for room on the disk, if they are.
    #[serde(default)]
    pub disk_alarm: Option<String>,
    /// Why publishers to queues are to wait for memory, if they are.
    #[serde(default)]
    pub memory_alarm: Option<String>,
    /// Memory of the process, pages of files not counted.
    #[serde(default)]
    pub memory_bytes: u64,
    /// How long the stages on a message's way take.
    #[serde(default)]
    pub stages: Vec<StageStatus>,
    /// Background work that failed since the start, by what it was: `merge`, `checkpoint`, `recovery`, `delivery` and others.
    #[serde(default)]
    pub failures: BTreeMap<String, FailureStatus>,
    /// Numbers of the broker, by name.
    pub figures: BTreeMap<String, u64>,
}

/// A kind of background work that failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FailureStatus {
    /// How often.
    pub count: u64,
    /// What the last one said.
    pub last: String,
}

/// What is counted of one protocol's connections since the start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProtocolStatus {
    /// The protocol.
    pub protocol: String,
    /// Connections that are open.
    pub connections: u64,
    /// Requests taken in.
    pub requests: u64,
    /// Bytes read from clients.
    pub received_bytes: u64,
    /// Bytes written to clients.
    pub sent_bytes: u64,
}

/// How long a stage on a message's way took since the start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StageStatus {
    /// `queue`, `write`, `flush` or `deliver`.
    pub stage: String,
    /// How often.
    pub count: u64,
    /// All together. Nanoseconds.
    pub ns: u64,
    /// Upper bounds of the buckets. Microseconds.
    pub bounds_us: Vec<u64>,
    /// How often it took at most so long and more than the bound before; the last one counts the rest.
    pub buckets: Vec<u64>,
}

/// One listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ListenerStatus {
    /// What is spoken.
    pub protocol: String,
    /// Whether it is spoken over TLS.
    #[serde(default)]
    pub tls: bool,
    /// Where it is bound.
    pub bound: String,
    /// The advertised address; none when it is the address at which clients arrived.
    pub advertised: Option<String>,
}

/// `GET /config`: every option.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Options {
    /// In the order of the reference.
    pub options: Vec<OptionValue>,
}

/// One option.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OptionValue {
    /// `section.name`.
    pub name: String,
    /// The value that holds.
    pub value: String,
    /// The value when nothing is said.
    pub default: String,
    /// Who set it.
    pub source: String,
    /// The type of its value.
    pub kind: String,
    /// Its variable of the environment.
    pub variable: String,
    /// What it does.
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
    /// By name.
    pub topics: Vec<TopicSummary>,
    /// How many there are, those left out by `offset` and `limit` included.
    #[serde(default)]
    pub total: usize,
}

/// One topic in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopicSummary {
    /// Its name.
    pub name: String,
    /// Its incarnation, as Kafka writes it.
    pub id: String,
    /// How many partitions it has.
    pub partitions: usize,
    /// `sync`, `async` or `memory`.
    pub durability: String,
    /// Whether clients should hide it from users.
    pub internal: bool,
    /// Offsets that can be read: about as many messages.
    #[serde(default)]
    pub messages: u64,
    /// What it keeps.
    #[serde(default)]
    pub bytes: u64,
}

/// `POST /topics`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; the broker's default without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    /// Its topic configs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
    /// Only say whether it could be created.
    #[serde(default)]
    pub validate_only: bool,
}

/// `GET /topics/NAME`, and the answer to `POST /topics`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its incarnation, as Kafka writes it.
    pub id: String,
    /// Whether clients should hide it from users.
    pub internal: bool,
    /// By number.
    pub partitions: Vec<Partition>,
    /// By name.
    pub config: Vec<TopicConfigEntry>,
}

/// One partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Partition {
    /// Its number.
    pub partition: usize,
    /// Its id for ever.
    pub id: u64,
    /// The leader epoch that clients know.
    pub leader_epoch: i32,
    /// The first offset; none when the broker cannot say just now, as for the others.
    pub log_start: Option<u64>,
    /// The offset after the last committed message.
    pub high_watermark: Option<u64>,
    /// What it keeps.
    pub bytes: Option<u64>,
}

/// One topic config of a topic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopicConfigEntry {
    /// Its name.
    pub name: String,
    /// The value that holds.
    pub value: String,
    /// `topic`, `broker` or `default`.
    pub source: String,
    /// Whether it does anything here.
    pub has_effect: bool,
}

/// `GET /groups`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Groups {
    /// By name.
    pub groups: Vec<GroupSummary>,
    /// How many there are, those left out by `offset` and `limit` included.
    #[serde(default)]
    pub total: usize,
}

/// One group in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GroupSummary {
    /// Its name.
    pub group: String,
    /// Kafka's name of its state.
    pub state: String,
    /// `consumer`, `connect`, ...; empty for a group that only holds offsets.
    pub protocol_type: String,
    /// How many members it has.
    #[serde(default)]
    pub members: usize,
    /// Messages between what it has committed and the ends of these partitions.
    #[serde(default)]
    pub lag: u64,
}

/// `GET /groups/NAME`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// Its name.
    pub group: String,
    /// Kafka's name of its state.
    pub state: String,
    /// `consumer`, `connect`, ...; empty for a group that only holds offsets.
    pub protocol_type: String,
    /// How partitions are given out; empty while that is not chosen.
    pub protocol: String,
    /// Its members.
    pub members: Vec<Member>,
    /// What it has committed.
    pub offsets: Vec<GroupOffset>,
}

/// One member of a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Member {
    /// Its id.
    pub member: String,
    /// The name of a static member.
    pub instance: Option<String>,
    /// How its client calls itself.
    pub client: String,
    /// Where from.
    pub host: String,
    /// What it was given, where that can be read.
    pub assignment: Vec<Assignment>,
}

/// Partitions of one topic that a member has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Assignment {
    /// The topic.
    pub topic: String,
    /// Its partitions.
    pub partitions: Vec<i32>,
}

/// One committed offset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GroupOffset {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset of the next message to be read.
    pub offset: i64,
    /// The offset after the last committed message; none when the partition is gone.
    pub high_watermark: Option<u64>,
    /// Messages between the two.
    pub lag: Option<u64>,
    /// How old the first of them is, by the time of the batch that it is in: how far the group is behind. Milliseconds.
    #[serde(default)]
    pub lag_ms: Option<u64>,
    /// What the client kept with the offset.
    pub metadata: String,
}
