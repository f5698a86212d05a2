//! Looking at partitions and at the log of the metadata, and taking partitions' oldest messages away.

use polylogue_types::{Index, Offset, PartitionId, ProducerId, Term, TimestampMs};

/// Producers that one reply to [`crate::Request::DescribeProducers`] tells of at the most.
pub const PRODUCERS_PER_REPLY_MAX: usize = 100_000;

/// A new first offset for a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrimPartition {
    /// Where.
    pub partition: PartitionId,
    /// The first offset that is kept; `None` for the one after the last committed message. One below the partition's
    /// first changes nothing.
    pub first: Option<Offset>,
}

/// Why a partition was not trimmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrimError {
    /// No such partition (any more).
    UnknownPartition,
    /// The offset lies beyond what is committed.
    OutOfRange {
        /// The offset after the last committed message.
        high_watermark: Offset,
    },
    /// See [`crate::Unavailable`].
    Unavailable(crate::Unavailable),
}

/// What a partition holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionSize {
    /// Native bytes that are kept.
    pub bytes: u64,
    /// The first offset.
    pub log_start: Offset,
    /// The offset after the last committed message.
    pub high_watermark: Offset,
}

/// Partitions, and what they are stored on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionSizes {
    /// In the order asked; `None` for one that is not there.
    pub partitions: Vec<Option<PartitionSize>>,
    /// The data directory, as an absolute path where it could be made one.
    pub directory: String,
    /// Bytes that the file system still takes; none when it does not say.
    pub free_bytes: Option<u64>,
}

/// An idempotent producer as a partition remembers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerInfo {
    /// Its id.
    pub id: ProducerId,
    /// Its incarnation.
    pub epoch: i16,
    /// The sequence of its last committed message.
    pub last_sequence: i32,
    /// When it was heard last, by the log's time.
    pub last_timestamp: TimestampMs,
}

/// Why a partition's producers cannot be listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProducersError {
    /// No such partition (any more).
    UnknownPartition,
    /// The reply tells of [`PRODUCERS_PER_REPLY_MAX`] producers without these: ask for fewer partitions.
    TooMany,
}

/// The log that holds the metadata, as this node has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetadataLog {
    /// The writer's term.
    pub term: Term,
    /// The index after the last applied frame: everything below is committed and in force.
    pub high_watermark: Index,
    /// The index after the last written frame.
    pub end: Index,
    /// The id of the data directory that it is in.
    pub directory: [u8; 16],
}
