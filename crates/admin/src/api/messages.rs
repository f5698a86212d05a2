//! Messages of topics, of all protocols.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Query of `GET /topics/NAME/messages`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessagesQuery {
    /// The partition; all partitions if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
    /// The first offset to read in that partition; the newest messages if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    /// Number of messages, at most 500; the default is 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Whether long keys and values are returned whole. Requires `partition`.
    #[serde(default)]
    pub whole: bool,
}

/// `GET /topics/NAME/messages`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopicMessages {
    /// The offset range of each partition that was read.
    pub partitions: Vec<PartitionRange>,
    /// Sorted by offset, or for several partitions by timestamp, oldest first.
    pub messages: Vec<TopicMessage>,
}

/// The offset range of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionRange {
    /// The partition number.
    pub partition: i32,
    /// The log start offset.
    pub log_start: i64,
    /// The high watermark: the offset after the last committed message.
    pub high_watermark: i64,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TopicMessage {
    /// The partition number.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
    /// The timestamp, set by the producer or the broker. Milliseconds since 1970; -1 for none.
    pub timestamp_ms: i64,
    /// The key; a null key is not an empty one.
    pub key: Option<Content>,
    /// The value; null for a tombstone.
    pub value: Option<Content>,
    /// The headers, in order.
    pub headers: Vec<MessageHeader>,
}

/// A header of a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MessageHeader {
    /// The header's key.
    pub name: String,
    /// The header's value.
    pub value: Option<Content>,
}

/// A byte string of a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Content {
    /// The content, in the given encoding.
    pub data: String,
    /// `text` or `base64`.
    pub encoding: String,
    /// Length of the whole content. Bytes.
    pub bytes: usize,
    /// Whether `data` is truncated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// `POST /topics/NAME/messages`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// The partition; if not set, it is chosen by the key's hash as by Kafka's clients, or at random without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<i32>,
    /// The key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The value; null for a tombstone.
    #[serde(default)]
    pub value: Option<String>,
    /// The encoding of `key` and `value`: `text`, or `base64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// The headers, as text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<NewHeader>,
}

/// A header of a new message.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHeader {
    /// The header's key.
    pub name: String,
    /// The header's value.
    #[serde(default)]
    pub value: Option<String>,
}

/// Response to `POST /topics/NAME/messages`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Written {
    /// The partition that the message was written to.
    pub partition: i32,
    /// The message's offset.
    pub offset: i64,
}
