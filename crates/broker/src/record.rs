//! Records of the broker itself, in each shard, under a partition of their own.
//!
//! ```text
//! u8 tag, then
//!   1 log start   u64 partition, u64 offset: everything of the partition below it is gone
//!   2 queue       u64 partition, then a record of the lease engine: what became of messages
//!   3 timers      a record of the index of times: what was carried out, what was found again
//! ```

use bytes::Bytes;
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use polylogue_types::{Offset, PartitionId};

/// The partition of these records, in every shard. Part of the disk format.
pub(crate) const BROKER_PARTITION: PartitionId = PartitionId(3);

/// What stands before the lease engine's part of a record.
const QUEUE_HEAD_BYTES: usize = 9;

/// One record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum BrokerRecord {
    /// Retention or a client moved the first offset.
    LogStart { partition: PartitionId, offset: Offset },
    /// What became of messages of a queue.
    Queue { partition: PartitionId, record: Bytes },
    /// What became of timers.
    Timers { record: Bytes },
}

impl BrokerRecord {
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
            _ => return Err(BinError { field: "broker record tag" }),
        };
        r.end("broker record")?;
        Ok(record)
    }
}
