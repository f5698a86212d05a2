//! The broker's own records, in each shard, in a partition of their own.
//!
//! ```text
//! u8 tag, then
//!   1 log start   u64 partition, u64 offset: entries of the partition below it are deleted
//!   2 queue       u64 partition, then a record of the lease engine: settlements of messages
//!   3 timers      a record of the timer index: fired timers, and timers restored after damage
//!   4 level       u32 level: the record kinds allowed from here on; lost openings are restored
//!   5 opened      partitions of a topic: `Opened::encode`
//!   6 closed      16 bytes topic, u32 count, count times u64 partition: closed after their last entry
//!   7 inherited   settings that topics inherit from here on: `encode_inherited`
//!   8 configured  u32 count, count times (16 bytes topic, u32 length, config): settings of topics from here on
//!   9 expired     i64 ms, u32 count, count times u64 partition: idle producers expire, those without a frame since then
//! ```

use crate::layers::{decode_inherited, encode_inherited};
use crate::openings::{Opened, topic_id};
use bytes::Bytes;
use polylogue_api::{Inherited, TopicConfig};
use polylogue_meta::{decode_topic_config, encode_topic_config};
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use polylogue_types::{Offset, PartitionId, TimestampMs, TopicId};
use std::sync::Arc;

/// The partition of these records in every shard. Part of the disk format.
pub(crate) const BROKER_PARTITION: PartitionId = PartitionId(3);

/// Bytes before the lease engine's part of a record.
const QUEUE_HEAD_BYTES: usize = 9;

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum BrokerRecord {
    /// Retention or a client moved the first offset.
    LogStart { partition: PartitionId, offset: Offset },
    /// Outcomes of messages of a queue.
    Queue { partition: PartitionId, record: Bytes },
    /// Changes of timers.
    Timers { record: Bytes },
    /// The level of the records that follow.
    Level { level: u32 },
    /// Partitions were opened.
    Opened(Opened),
    /// Partitions were closed.
    Closed { topic: TopicId, partitions: Vec<PartitionId> },
    /// The inherited settings changed.
    Inherited(Inherited),
    /// Settings of topics changed.
    Configured(Vec<(TopicId, Arc<TopicConfig>)>),
    /// Drops the producers of these partitions without a batch in a frame since `before_ms`. Wall time, milliseconds.
    Expired { before_ms: TimestampMs, partitions: Vec<PartitionId> },
}

impl BrokerRecord {
    pub(crate) const LEVEL: u8 = 4;
    pub(crate) const OPENED: u8 = 5;
    const CLOSED: u8 = 6;
    pub(crate) const INHERITED: u8 = 7;
    pub(crate) const CONFIGURED: u8 = 8;
    const EXPIRED: u8 = 9;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = BinWriter::new();
        match self {
            BrokerRecord::LogStart { partition, offset } => {
                w.u8(1).u64(partition.0).u64(offset.0);
            }
            BrokerRecord::Queue { partition, record } => {
                w.u8(2).u64(partition.0).raw(record);
            }
            BrokerRecord::Timers { record } => {
                w.u8(3).raw(record);
            }
            BrokerRecord::Level { level } => {
                w.u8(BrokerRecord::LEVEL).u32(*level);
            }
            BrokerRecord::Opened(opened) => {
                w.u8(BrokerRecord::OPENED);
                opened.encode(&mut w);
            }
            BrokerRecord::Closed { topic, partitions } => {
                w.u8(BrokerRecord::CLOSED).raw(&topic.0);
                encode_partitions(partitions, &mut w);
            }
            BrokerRecord::Inherited(inherited) => {
                w.u8(BrokerRecord::INHERITED);
                encode_inherited(inherited, &mut w);
            }
            BrokerRecord::Configured(layers) => {
                w.u8(BrokerRecord::CONFIGURED).u32(layers.len() as u32);
                for (topic, layer) in layers {
                    w.raw(&topic.0).bytes(&encode_topic_config(layer));
                }
            }
            BrokerRecord::Expired { before_ms, partitions } => {
                w.u8(BrokerRecord::EXPIRED).i64(*before_ms);
                encode_partitions(partitions, &mut w);
            }
        }
        w.out
    }

    pub(crate) fn decode(bytes: &Bytes) -> Result<BrokerRecord, BinError> {
        let mut r = BinReader::new(bytes);
        let record = match r.u8("broker record tag")? {
            1 => BrokerRecord::LogStart {
                partition: PartitionId(r.u64("partition")?),
                offset: Offset(r.u64("log start")?),
            },
            2 => {
                let partition = PartitionId(r.u64("partition")?);
                return Ok(BrokerRecord::Queue { partition, record: bytes.slice(QUEUE_HEAD_BYTES..) });
            }
            3 => return Ok(BrokerRecord::Timers { record: bytes.slice(1..) }),
            BrokerRecord::LEVEL => BrokerRecord::Level { level: r.u32("level of records")? },
            BrokerRecord::OPENED => BrokerRecord::Opened(Opened::decode(&mut r)?),
            BrokerRecord::CLOSED => {
                let topic = topic_id(&mut r)?;
                BrokerRecord::Closed { topic, partitions: decode_partitions(&mut r)? }
            }
            BrokerRecord::INHERITED => BrokerRecord::Inherited(decode_inherited(&mut r)?),
            BrokerRecord::CONFIGURED => {
                let mut layers = Vec::new();
                for _ in 0..r.count(20, "topics of a record")? {
                    let topic = topic_id(&mut r)?;
                    layers.push((topic, Arc::new(decode_topic_config(r.bytes("settings of a topic")?)?)));
                }
                BrokerRecord::Configured(layers)
            }
            BrokerRecord::EXPIRED => {
                let before_ms = r.i64("time of expiry")?;
                BrokerRecord::Expired { before_ms, partitions: decode_partitions(&mut r)? }
            }
            _ => return Err(BinError { field: "broker record tag" }),
        };
        r.end("broker record")?;
        Ok(record)
    }
}

fn encode_partitions(partitions: &[PartitionId], w: &mut BinWriter) {
    w.u32(partitions.len() as u32);
    for partition in partitions {
        w.u64(partition.0);
    }
}

fn decode_partitions(r: &mut BinReader<'_>) -> Result<Vec<PartitionId>, BinError> {
    let mut partitions = Vec::new();
    for _ in 0..r.count(8, "partitions of a record")? {
        partitions.push(PartitionId(r.u64("partition of a record")?));
    }
    Ok(partitions)
}
