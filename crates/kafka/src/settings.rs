//! What an operator decides about the Kafka protocol as a whole; a session reads it, it is never changed in place.

use crate::config::Fixed;
use polylogue_api::TopicConfig;
use polylogue_types::limits;
use std::sync::Arc;

/// The settings of the Kafka protocol that sessions go by. The names in brackets are Kafka's broker settings, and the
/// defaults are Kafka's unless said otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KafkaSettings {
    /// The longest request (`socket.request.max.bytes`); a longer one costs its connection, before anything is
    /// allocated for it. Bytes.
    pub request_bytes_max: usize,
    /// Requests of one connection in work, or answered and not yet taken; input waits beyond. Kafka works on one at a
    /// time; its producers keep up to five on the way.
    pub inflight_requests_max: usize,
    /// How long a connection without a request in work may go without finishing one
    /// (`connections.max.idle.ms`); `u64::MAX` for ever. Milliseconds.
    pub idle_ms_max: u64,
    /// How long a login lasts (`connections.max.reauth.ms`); 0 for as long as the connection
    /// lasts. Milliseconds.
    pub reauth_ms_max: u64,
    /// Whether a logged-in user may do everything to a resource that no access control list is about
    /// (`allow.everyone.if.no.acl.found`).
    pub allow_without_acls: bool,
    /// Whether asking for a topic may create it (`auto.create.topics.enable`).
    pub auto_create_topics: bool,
    /// Whether clients may delete topics (`delete.topic.enable`).
    pub delete_topics: bool,
    /// Partitions of a topic whose creator does not say (`num.partitions`). At least 1.
    pub partitions_default: u32,
    /// Partitions of the topic `__consumer_offsets`, for when it is made (`offsets.topic.num.partitions`). At least 1.
    pub offsets_partitions: u32,
    /// What topics inherit (`log.*`, `message.max.bytes`, `compression.type`).
    pub topic_defaults: TopicConfig,
    /// The most that one fetch returns, unless the first batch alone is larger (`fetch.max.bytes`). Bytes.
    pub fetch_bytes_max: u32,
    /// Fetch sessions over all connections (`max.incremental.fetch.session.cache.slots`).
    pub fetch_sessions_max: usize,
    /// Partitions remembered by all fetch sessions together. Kafka bounds the sessions only.
    pub fetch_session_partitions_max: usize,
    /// What the broker was started with: what the settings above are changed from while it runs.
    pub fixed: Arc<Fixed>,
    /// What a batch may decompress to wherever the broker looks inside one. Bytes.
    pub decompressed_bytes_max: usize,
}

impl Default for KafkaSettings {
    fn default() -> KafkaSettings {
        KafkaSettings {
            request_bytes_max: limits::REQUEST_BYTES_MAX,
            inflight_requests_max: 16,
            idle_ms_max: 10 * 60 * 1_000,
            reauth_ms_max: 0,
            allow_without_acls: false,
            auto_create_topics: true,
            delete_topics: true,
            partitions_default: 1,
            offsets_partitions: 50,
            topic_defaults: TopicConfig::default(),
            fetch_bytes_max: 55 << 20,
            fetch_sessions_max: 1_000,
            // at about 150 bytes each, 30 MB; three times that where each is of a topic with the longest name there may be
            fetch_session_partitions_max: 200_000,
            fixed: Arc::default(),
            decompressed_bytes_max: limits::DECOMPRESSED_BYTES_MAX,
        }
    }
}
