//! Messages of topics, whatever protocol wrote them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is asked of `GET /topics/NAME/messages`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessagesQuery {
    /// The partition; all of them without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
    /// The first offset of that partition; without it the newest messages are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    /// How many messages, at most 500; 50 without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Whether long keys and values are shown to their end. Only of one partition.
    #[serde(default)]
    pub whole: bool,
}

/// `GET /topics/NAME/messages`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopicMessages {
    /// Of each partition that was looked at, what it has.
    pub partitions: Vec<PartitionRange>,
    /// By offset, or of several partitions by time, the oldest first.
    pub messages: Vec<TopicMessage>,
}

/// What a partition has for readers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionRange {
    /// Its number.
    pub partition: i32,
    /// The first offset.
    pub log_start: i64,
    /// The offset after the last committed message.
    pub high_watermark: i64,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopicMessage {
    /// The partition that it is in.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its time, as its producer or the broker said. Milliseconds since 1970; -1 for none.
    pub timestamp_ms: i64,
    /// Its key; none is something else than an empty one.
    pub key: Option<Content>,
    /// Its value; none is a tombstone.
    pub value: Option<Content>,
    /// Its headers in their order.
    pub headers: Vec<MessageHeader>,
}

/// A header of a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MessageHeader {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Option<Content>,
}

/// Bytes of a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Content {
    /// As they are, or in base64.
    pub data: String,
    /// `text` or `base64`.
    pub encoding: String,
    /// How many there are.
    pub bytes: usize,
    /// Whether `data` is only their beginning.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// `POST /topics/NAME/messages`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// The partition; without it the key decides as with Kafka's clients, and without a key chance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
    /// The key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The value; none is a tombstone.
    #[serde(default)]
    pub value: Option<String>,
    /// What `key` and `value` are in: `text`, or `base64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// The headers: text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<NewHeader>,
}

/// A header of a new message.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHeader {
    /// Its name.
    pub name: String,
    /// Its value.
    #[serde(default)]
    pub value: Option<String>,
}

/// What `POST /topics/NAME/messages` answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    /// The partition that the message is in.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
}
