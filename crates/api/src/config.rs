//! What can be set for a topic, protocol-free and parsed. Each protocol maps its own names onto it and keeps what
//! it alone understands in [`TopicConfig::raw`].

use crate::queues::QueueSettings;
use std::collections::BTreeMap;

/// When an acknowledgement leaves (DESIGN section 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Durability {
    /// After the flush.
    #[default]
    Sync,
    /// After the write: survives the process, not a power cut.
    Async,
    /// Never on disk.
    Memory,
}

/// Whose timestamp a message carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimestampKind {
    /// The producer's.
    #[default]
    Create,
    /// The broker's, at append.
    LogAppend,
}

/// Whether stored batches are compressed anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compression {
    /// Kept as the producer sent them.
    #[default]
    Producer,
    /// Not compressed.
    None,
    /// gzip with its level.
    Gzip(i32),
    /// Snappy.
    Snappy,
    /// LZ4 with its level.
    Lz4(i32),
    /// Zstandard with its level.
    Zstd(i32),
}

/// What happens to old messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cleanup {
    /// Removed by time and size.
    pub delete: bool,
    /// The last of each key is kept.
    pub compact: bool,
}

/// The settings of one topic with everything inherited filled in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicConfig {
    /// When an acknowledgement leaves.
    pub durability: Durability,
    /// How long messages are kept; `None` for ever. Milliseconds.
    pub retention_ms: Option<u64>,
    /// How many bytes of a partition are kept; `None` for all.
    pub retention_bytes: Option<u64>,
    /// The largest batch. Bytes.
    pub max_message_bytes: usize,
    /// Whose timestamps.
    pub timestamp_kind: TimestampKind,
    /// How far a producer's timestamp may lie before the broker's time. Milliseconds.
    pub timestamp_before_ms_max: u64,
    /// How far a producer's timestamp may lie after the broker's time. Milliseconds.
    pub timestamp_after_ms_max: u64,
    /// Whether batches are compressed anew.
    pub compression: Compression,
    /// What happens to old messages.
    pub cleanup: Cleanup,
    /// What makes queues of its partitions; `None` for a topic that is only read by offset.
    pub queue: Option<QueueSettings>,
    /// What was set for this topic, by the names under which it was set, canonical values.
    pub raw: BTreeMap<String, String>,
}

impl Default for TopicConfig {
    /// Kafka's defaults: a week, no size limit, 1 MiB messages, the producer's timestamps, at most an hour ahead.
    fn default() -> TopicConfig {
        TopicConfig {
            durability: Durability::Sync,
            retention_ms: Some(7 * 24 * 3_600_000),
            retention_bytes: None,
            max_message_bytes: polylogue_types::limits::MESSAGE_BYTES_MAX,
            timestamp_kind: TimestampKind::Create,
            timestamp_before_ms_max: u64::MAX,
            timestamp_after_ms_max: 3_600_000,
            compression: Compression::Producer,
            cleanup: Cleanup { delete: true, compact: false },
            queue: None,
            raw: BTreeMap::new(),
        }
    }
}
