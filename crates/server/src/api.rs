//! The shapes of `/api/v1`: what the http listener writes and the command line reads. docs/http-api.md describes them
//! for others. Fields may be added; none changes its meaning within `v1`.

pub mod access;
pub mod queues;
mod reset;
pub mod settings;

pub use reset::*;

use crate::options::{Setting, variable};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where all of this is found on the http listener.
pub const PREFIX: &str = "/api/v1";

/// Every answer that is not a success.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorObject,
}

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErrorObject {
    /// For programs: `invalid_request`, `unknown_topic`, `unknown_group`, `topic_exists`, `group_not_empty`, `forbidden`,
    /// `not_found`, `too_large`, `timeout`, `unavailable`, `internal`.
    pub code: String,
    /// For people.
    pub message: String,
}

/// `GET /status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    /// Numbers of the broker, by name.
    pub figures: BTreeMap<String, u64>,
}

/// One listener.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// What is spoken.
    pub protocol: String,
    /// Whether it is spoken over TLS.
    #[serde(default)]
    pub tls: bool,
    /// Where it is bound.
    pub bound: String,
    /// What clients are told; none when they are told the address at which they arrived.
    pub advertised: Option<String>,
}

/// `GET /config`: every option.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Options {
    /// In the order of the reference.
    pub options: Vec<OptionValue>,
}

/// One option.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Topics {
    /// By name.
    pub topics: Vec<TopicSummary>,
}

/// One topic in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
}

/// `POST /topics`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Groups {
    /// By name.
    pub groups: Vec<GroupSummary>,
}

/// One group in a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupSummary {
    /// Its name.
    pub group: String,
    /// Kafka's name of its state.
    pub state: String,
    /// `consumer`, `connect`, ...; empty for a group that only holds offsets.
    pub protocol_type: String,
}

/// `GET /groups/NAME`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// The topic.
    pub topic: String,
    /// Its partitions.
    pub partitions: Vec<i32>,
}

/// One committed offset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
    /// What the client kept with the offset.
    pub metadata: String,
}
