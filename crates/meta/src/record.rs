//! The records of the metadata machine, and the chunk form of a topic.
//!
//! ```text
//! record   u8 tag, then
//!   1 topic created     topic
//!   2 topic deleted     16 bytes topic id
//!   3 producer ids      i64 end of the reserved block (exclusive)
//!   4 topic configured  16 bytes topic id, config
//!   5 partitions added  16 bytes topic id, partitions; they follow those that the topic has
//!   6 settings          scope, values: they replace the scope's document; none remove it
//!   7 topics configured u32 count, count times 16 bytes topic id, config: the same for all of them
//!   8 shards            see shards.rs: added to those that there are
//!
//! topic    str name, 16 bytes id, u8 internal, config, partitions
//! partitions
//!          u32 count, count times: u64 partition id, u32 shard, i32 epoch base, u64 term when it was opened
//! scope    u8 kind, then
//!   0 cluster           nothing
//!   1 node              u64 node id
//!   2 group             str name
//!   3 client metrics    str name
//! values   u32 count, count times: str name, str value
//! config   u8 version = 1 (2: a queue), u8 durability, i64 retention ms (-1 none), i64 retention bytes (-1 none),
//!          u64 max message bytes, u8 timestamp kind, u64 before ms, u64 after ms, u8 codec, i32 level,
//!          u8 cleanup (1 delete, 2 compact), values; of version 2 also: queue
//! queue    u8 mode (0 competing, 1 single active, 2 preempting, 3 readers), u8 overflow (0 drop head, 1 reject, 2 reject dead),
//!          u8 flags (1 key order, 2 whole entries, 4 early, 8 dead letters, 16 keeps settled),
//!          i64 failures (-1 none), i64 length (-1 none), i64 bytes (-1 none),
//!          u8 back-off (see queue.rs), u64 its first number, u64 its longest ms
//! ```
//!
//! What a config says beside its values was resolved when it was recorded; what holds is resolved anew from them and from what is inherited
//! wherever a topic is looked at, because the settings that it inherits from may have changed since.

use crate::queue::{decode_queue, encode_queue};
use crate::shards::Shards;
use polylogue_api::{Cleanup, Compression, Durability, Settings, SettingsScope, TimestampKind, TopicConfig};
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use polylogue_types::{NodeId, PartitionId, ShardId, Term, TopicId};
use std::sync::Arc;

/// The version of a config without a queue.
const TOPIC_VERSION: u8 = 1;
/// That of one with a queue: who does not know queues must not serve it as a mere log.
const QUEUE_VERSION: u8 = 2;
/// Partition ids below this are the machines'.
pub const FIRST_CLIENT_PARTITION: PartitionId = PartitionId(1024);

/// One partition of a topic as recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PartitionRecord {
    pub(crate) id: PartitionId,
    pub(crate) shard: ShardId,
    pub(crate) epoch_base: i32,
    pub(crate) opened_term: Term,
}

/// A topic as recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TopicRecord {
    pub(crate) name: String,
    pub(crate) id: TopicId,
    pub(crate) internal: bool,
    pub(crate) config: Arc<TopicConfig>,
    pub(crate) partitions: Vec<PartitionRecord>,
}

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MetaRecord {
    TopicCreated(TopicRecord),
    TopicDeleted(TopicId),
    ProducerIds { end: i64 },
    TopicConfigured(TopicId, TopicConfig),
    TopicsConfigured(Vec<TopicId>, TopicConfig),
    PartitionsAdded(TopicId, Vec<PartitionRecord>),
    Settings(SettingsScope, Settings),
    Shards(Shards),
}

impl MetaRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = BinWriter::new();
        match self {
            MetaRecord::TopicCreated(topic) => {
                w.u8(1);
                topic.encode(&mut w);
            }
            MetaRecord::TopicDeleted(id) => {
                w.u8(2).raw(&id.0);
            }
            MetaRecord::ProducerIds { end } => {
                w.u8(3).i64(*end);
            }
            MetaRecord::TopicConfigured(id, config) => {
                w.u8(4).raw(&id.0);
                encode_config(config, &mut w);
            }
            MetaRecord::TopicsConfigured(ids, config) => {
                w.u8(7).u32(ids.len() as u32);
                ids.iter().for_each(|id| _ = w.raw(&id.0));
                encode_config(config, &mut w);
            }
            MetaRecord::PartitionsAdded(id, partitions) => {
                w.u8(5).raw(&id.0);
                encode_partitions(partitions, &mut w);
            }
            MetaRecord::Settings(scope, values) => {
                w.u8(6);
                encode_scope(scope, &mut w);
                encode_values(values, &mut w);
            }
            MetaRecord::Shards(shards) => {
                w.u8(8);
                shards.encode(&mut w);
            }
        }
        w.out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<MetaRecord, BinError> {
        let mut r = BinReader::new(bytes);
        let record = match r.u8("metadata record tag")? {
            1 => MetaRecord::TopicCreated(TopicRecord::decode(&mut r)?),
            2 => MetaRecord::TopicDeleted(topic_id(&mut r)?),
            3 => MetaRecord::ProducerIds { end: r.i64("producer id block")? },
            4 => MetaRecord::TopicConfigured(topic_id(&mut r)?, decode_config(&mut r)?),
            5 => MetaRecord::PartitionsAdded(topic_id(&mut r)?, decode_partitions(&mut r)?),
            6 => MetaRecord::Settings(decode_scope(&mut r)?, decode_values(&mut r)?),
            7 => {
                let count = r.count(16, "configured topics")?;
                let ids = (0..count).map(|_| topic_id(&mut r)).collect::<Result<_, _>>()?;
                MetaRecord::TopicsConfigured(ids, decode_config(&mut r)?)
            }
            8 => MetaRecord::Shards(Shards::decode(&mut r)?),
            _ => return Err(BinError { field: "metadata record tag" }),
        };
        r.end("metadata record")?;
        Ok(record)
    }
}

impl TopicRecord {
    pub(crate) fn encode(&self, w: &mut BinWriter) {
        w.str(&self.name).raw(&self.id.0).u8(u8::from(self.internal));
        encode_config(&self.config, w);
        encode_partitions(&self.partitions, w);
    }

    pub(crate) fn decode(r: &mut BinReader<'_>) -> Result<TopicRecord, BinError> {
        let name = r.str("topic name")?.to_owned();
        let id = topic_id(r)?;
        let internal = r.u8("topic internal")? != 0;
        let config = Arc::new(decode_config(r)?);
        let partitions = decode_partitions(r)?;
        Ok(TopicRecord { name, id, internal, config, partitions })
    }
}

fn encode_partitions(partitions: &[PartitionRecord], w: &mut BinWriter) {
    w.u32(partitions.len() as u32);
    for p in partitions {
        w.u64(p.id.0).u32(p.shard.0).i32(p.epoch_base).u64(p.opened_term.0);
    }
}

fn decode_partitions(r: &mut BinReader<'_>) -> Result<Vec<PartitionRecord>, BinError> {
    let count = r.count(24, "topic partitions")?;
    let mut partitions = Vec::with_capacity(count);
    for _ in 0..count {
        partitions.push(PartitionRecord {
            id: PartitionId(r.u64("partition id")?),
            shard: ShardId(r.u32("partition shard")?),
            epoch_base: r.i32("partition epoch base")?,
            opened_term: Term(r.u64("partition term")?),
        });
    }
    Ok(partitions)
}

/// Also what a scope is called among the chunks of a checkpoint.
pub(crate) fn encode_scope(scope: &SettingsScope, w: &mut BinWriter) {
    match scope {
        SettingsScope::Cluster => w.u8(0),
        SettingsScope::Node(node) => w.u8(1).u64(node.0),
        SettingsScope::Group(name) => w.u8(2).str(name),
        SettingsScope::ClientMetrics(name) => w.u8(3).str(name),
    };
}

pub(crate) fn decode_scope(r: &mut BinReader<'_>) -> Result<SettingsScope, BinError> {
    Ok(match r.u8("settings scope")? {
        0 => SettingsScope::Cluster,
        1 => SettingsScope::Node(NodeId(r.u64("settings node")?)),
        2 => SettingsScope::Group(r.str("settings group")?.to_owned()),
        3 => SettingsScope::ClientMetrics(r.str("settings subscription")?.to_owned()),
        _ => return Err(BinError { field: "settings scope" }),
    })
}

pub(crate) fn encode_values(values: &Settings, w: &mut BinWriter) {
    w.u32(values.len() as u32);
    for (name, value) in values {
        w.str(name).str(value);
    }
}

pub(crate) fn decode_values(r: &mut BinReader<'_>) -> Result<Settings, BinError> {
    let mut values = Settings::new();
    for _ in 0..r.count(8, "config values")? {
        let name = r.str("config name")?.to_owned();
        values.insert(name, r.str("config value")?.to_owned());
    }
    Ok(values)
}

fn topic_id(r: &mut BinReader<'_>) -> Result<TopicId, BinError> {
    let mut id = [0; 16];
    id.copy_from_slice(r.take(16, "topic id")?);
    Ok(TopicId(id))
}

pub(crate) fn optional(value: Option<u64>) -> i64 {
    value.map_or(-1, |v| i64::try_from(v).unwrap_or(i64::MAX))
}

/// What is set for a topic, as it is recorded.
#[must_use]
pub fn encode_topic_config(config: &TopicConfig) -> Vec<u8> {
    let mut w = BinWriter::new();
    encode_config(config, &mut w);
    w.out
}

/// Reads what [`encode_topic_config`] wrote.
///
/// # Errors
/// The field that is wrong.
pub fn decode_topic_config(bytes: &[u8]) -> Result<TopicConfig, BinError> {
    let mut r = BinReader::new(bytes);
    let config = decode_config(&mut r)?;
    r.end("topic settings")?;
    Ok(config)
}

fn encode_config(c: &TopicConfig, w: &mut BinWriter) {
    let durability = match c.durability {
        Durability::Sync => 0,
        Durability::Async => 1,
        Durability::Memory => 2,
    };
    let (codec, level) = match c.compression {
        Compression::Producer => (0, 0),
        Compression::None => (1, 0),
        Compression::Gzip(level) => (2, level),
        Compression::Snappy => (3, 0),
        Compression::Lz4(level) => (4, level),
        Compression::Zstd(level) => (5, level),
    };
    let version = if c.queue.is_some() { QUEUE_VERSION } else { TOPIC_VERSION };
    w.u8(version).u8(durability).i64(optional(c.retention_ms)).i64(optional(c.retention_bytes));
    w.u64(c.max_message_bytes as u64).u8(u8::from(c.timestamp_kind == TimestampKind::LogAppend));
    w.u64(c.timestamp_before_ms_max).u64(c.timestamp_after_ms_max).u8(codec).i32(level);
    w.u8(u8::from(c.cleanup.delete) | (u8::from(c.cleanup.compact) << 1));
    encode_values(&c.raw, w);
    if let Some(queue) = &c.queue {
        encode_queue(queue, w);
    }
}

fn decode_config(r: &mut BinReader<'_>) -> Result<TopicConfig, BinError> {
    let version = r.u8("config version")?;
    if ![TOPIC_VERSION, QUEUE_VERSION].contains(&version) {
        return Err(BinError { field: "config version" });
    }
    let durability = match r.u8("durability")? {
        0 => Durability::Sync,
        1 => Durability::Async,
        2 => Durability::Memory,
        _ => return Err(BinError { field: "durability" }),
    };
    let retention_ms = u64::try_from(r.i64("retention ms")?).ok();
    let retention_bytes = u64::try_from(r.i64("retention bytes")?).ok();
    let max_message_bytes = r.u64("max message bytes")? as usize;
    let timestamp_kind = if r.u8("timestamp kind")? == 0 { TimestampKind::Create } else { TimestampKind::LogAppend };
    let timestamp_before_ms_max = r.u64("timestamp before")?;
    let timestamp_after_ms_max = r.u64("timestamp after")?;
    let codec = r.u8("compression")?;
    let level = r.i32("compression level")?;
    let compression = match codec {
        0 => Compression::Producer,
        1 => Compression::None,
        2 => Compression::Gzip(level),
        3 => Compression::Snappy,
        4 => Compression::Lz4(level),
        5 => Compression::Zstd(level),
        _ => return Err(BinError { field: "compression" }),
    };
    let cleanup = r.u8("cleanup")?;
    let raw = decode_values(r)?;
    let queue = if version == QUEUE_VERSION { Some(decode_queue(r)?) } else { None };
    Ok(TopicConfig {
        durability,
        retention_ms,
        retention_bytes,
        max_message_bytes,
        timestamp_kind,
        timestamp_before_ms_max,
        timestamp_after_ms_max,
        compression,
        cleanup: Cleanup { delete: cleanup & 1 != 0, compact: cleanup & 2 != 0 },
        queue,
        raw,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylogue_api::{ConsumerMode, Overflow, QueueSettings};
    use polylogue_types::{Backoff, Retry, RetryOn};

    fn config() -> TopicConfig {
        TopicConfig {
            durability: Durability::Async,
            retention_ms: None,
            compression: Compression::Zstd(-3),
            raw: [("retention.ms".to_owned(), "-1".to_owned())].into(),
            ..TopicConfig::default()
        }
    }

    fn queue() -> QueueSettings {
        QueueSettings {
            mode: ConsumerMode::Preempting,
            key_order: true,
            early: true,
            failures_max: Some(20),
            retry: Some(Retry { on: RetryOn::Failed, backoff: Backoff::Linear { step_ms: 10, max_ms: 1_000 } }),
            bytes_max: Some(7),
            overflow: Overflow::Reject,
            ..QueueSettings::default()
        }
    }

    fn stream() -> TopicConfig {
        let queue = QueueSettings { mode: ConsumerMode::Readers, ..QueueSettings::default() };
        TopicConfig { queue: Some(queue), retention_ms: Some(3_600_000), retention_bytes: Some(1 << 30), ..config() }
    }

    fn partition() -> PartitionRecord {
        PartitionRecord { id: PartitionId(1024), shard: ShardId(1), epoch_base: 3, opened_term: Term(9) }
    }

    fn samples() -> Vec<MetaRecord> {
        let topic = TopicRecord {
            name: "orders".into(),
            id: TopicId([7; 16]),
            internal: false,
            config: Arc::new(config()),
            partitions: vec![partition()],
        };
        let values: Settings = [("log.retention.ms".to_owned(), "5".to_owned())].into();
        vec![
            MetaRecord::TopicCreated(topic),
            MetaRecord::TopicDeleted(TopicId([1; 16])),
            MetaRecord::ProducerIds { end: 4000 },
            MetaRecord::TopicConfigured(TopicId([7; 16]), config()),
            MetaRecord::TopicConfigured(TopicId([7; 16]), TopicConfig { queue: Some(queue()), ..config() }),
            MetaRecord::TopicConfigured(TopicId([7; 16]), stream()),
            MetaRecord::TopicsConfigured(vec![TopicId([7; 16]), TopicId([8; 16])], stream()),
            MetaRecord::PartitionsAdded(TopicId([7; 16]), vec![partition(), partition()]),
            MetaRecord::Settings(SettingsScope::Cluster, values.clone()),
            MetaRecord::Settings(SettingsScope::Node(NodeId(4)), Settings::new()),
            MetaRecord::Settings(SettingsScope::Group("g".into()), values.clone()),
            MetaRecord::Settings(SettingsScope::ClientMetrics("s".into()), values),
        ]
    }

    #[test]
    fn records_come_back() {
        for record in samples() {
            assert_eq!(MetaRecord::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn truncated_records_are_refused() {
        for record in samples() {
            let bytes = record.encode();
            for len in 0..bytes.len() {
                assert!(MetaRecord::decode(&bytes[..len]).is_err(), "{len} of {} bytes of {record:?}", bytes.len());
            }
        }
    }
}
