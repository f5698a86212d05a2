//! Writing and reading partitions.

use bytes::Bytes;
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_types::{Chunk, Offset, PartitionId, ProducerId, TimestampMs};

/// When the reply to an append leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ack {
    /// Immediately: the producer does not wait, and no flush is started for it.
    None,
    /// When committed in the topic's durability class.
    Committed,
    /// When the queues with waiting consumers keep up with the publishers, or after a bounded time (credit). For an append as [`Ack::None`] or
    /// [`Ack::Committed`].
    KeptUp {
        /// Also wait for the commit; else no flush is started for it.
        committed: bool,
    },
}

impl Ack {
    /// Whether the reply waits for the commit.
    #[must_use]
    pub fn is_committed(self) -> bool {
        matches!(self, Ack::Committed | Ack::KeptUp { committed: true })
    }
}

/// The producer id, epoch and sequence of a batch (KIP-98).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerStamp {
    /// The producer.
    pub id: ProducerId,
    /// The producer's epoch.
    pub epoch: i16,
    /// The sequence of the batch's first message; wraps from `i32::MAX` to 0.
    pub base_sequence: i32,
}

/// One entry to write: native bytes that the session has validated.
#[derive(Clone, Debug)]
pub struct AppendEntry {
    /// The partition.
    pub partition: PartitionId,
    /// The native form; must be the partition's.
    pub form: Form,
    /// Flags of its envelope.
    pub flags: EntryFlags,
    /// Native bytes. Offsets and leader epoch inside are filled in by the broker.
    pub bytes: Bytes,
    /// Messages inside, at least 1.
    pub count: u32,
    /// The largest timestamp inside, -1 for none.
    pub max_timestamp: TimestampMs,
    /// CRC32C of the bytes from [`AppendEntry::summed_from`] to the end, already verified by the session.
    pub body_crc: u32,
    /// The start of the bytes that `body_crc` covers; bytes before it may still be patched.
    pub summed_from: u32,
    /// The producer's stamp, for idempotence.
    pub producer: Option<ProducerStamp>,
}

/// See [`crate::Request::Append`].
#[derive(Clone, Debug)]
pub struct AppendRequest {
    /// What to write; entries of one partition in order.
    pub entries: Vec<AppendEntry>,
    /// When to answer.
    pub ack: Ack,
}

/// The result of an append. A duplicate gets the result of the first one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Offset of its first message.
    pub base_offset: Offset,
    /// The partition's first offset.
    pub log_start: Offset,
    /// It was a duplicate of an entry written before.
    pub duplicate: bool,
    /// The largest timestamp of the stored entry; for a duplicate that of the entry written before.
    pub max_timestamp: TimestampMs,
}

/// Why an entry is not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendError {
    /// No such partition (any more).
    UnknownPartition,
    /// A gap in the producer's sequence, or a duplicate older than the five batches remembered.
    OutOfOrderSequence,
    /// The producer was replaced by a newer incarnation.
    InvalidProducerEpoch,
    /// The partition's range is fenced by damage, or the disk is full.
    Storage,
    /// See [`crate::Unavailable`]; with `Unknown` the entry may be stored.
    Unavailable(crate::Unavailable),
}

/// One part of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadPart {
    /// The partition.
    pub partition: PartitionId,
    /// The first offset. If it lies inside an entry, the whole entry is returned.
    pub offset: Offset,
    /// The most bytes from this partition.
    pub bytes_max: u32,
}

/// See [`crate::Request::Read`].
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// What to read.
    pub parts: Vec<ReadPart>,
    /// The most bytes over all parts.
    pub bytes_max: u32,
    /// Whether the first entry found is returned even if it exceeds the bounds (KIP-74).
    pub at_least_one: bool,
}

/// What was read of one part.
#[derive(Clone, Debug)]
pub struct ReadData {
    /// Whole entries as stored, those of queues as their [`crate::LogView`] shows them; empty at the end of the log.
    pub chunks: Vec<Chunk>,
    /// The offset after the last committed message.
    pub high_watermark: Offset,
    /// The partition's first offset.
    pub log_start: Offset,
}

/// Why nothing was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// No such partition (any more).
    UnknownPartition,
    /// The offset lies before the first or after the next.
    OutOfRange {
        /// The partition's first offset.
        log_start: Offset,
        /// The offset after the last committed message.
        high_watermark: Offset,
    },
    /// The range is fenced by damage, or the disk failed.
    Storage,
}

/// See [`crate::Request::Watch`].
#[derive(Clone, Debug)]
pub struct WatchRequest {
    /// Partitions, each with the high watermark that the watcher has seen.
    pub seen: Vec<(PartitionId, Offset)>,
    /// A followed set: the event also comes when one of its partitions has changed since the last request.
    pub followed: Option<u64>,
}

/// See [`crate::Request::Follow`]. A reader of thousands of partitions, of which few change between two reads, follows them
/// instead of looking at each.
#[derive(Clone, Debug, Default)]
pub struct FollowRequest {
    /// The number of the set, chosen by the session. The first request with a number creates the set.
    pub set: u64,
    /// Partitions to add; members stay as they are. An unknown partition is not added, and counts as changed.
    pub add: Vec<PartitionId>,
    /// Partitions to remove.
    pub remove: Vec<PartitionId>,
}

/// A look-up of an offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FindOffset {
    /// The partition.
    pub partition: PartitionId,
    /// Which offset.
    pub at: OffsetSpec,
    /// For look-ups by time: entries that end at or below it were looked at before, and are skipped.
    pub from: Offset,
}

/// Which offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetSpec {
    /// The first one.
    Earliest,
    /// The one after the last committed.
    Latest,
    /// The first entry whose largest timestamp is at or after this one.
    AtTimestamp(TimestampMs),
    /// The first entry with the largest timestamp of all.
    MaxTimestamp,
}

/// An answer to [`FindOffset`].
#[derive(Clone, Debug)]
pub struct FoundOffset {
    /// For `Earliest` and `Latest` the offset; else the base offset of `entry`, `None` when no entry qualifies. It may be below
    /// `log_start`.
    pub offset: Option<Offset>,
    /// The first readable offset: messages before it in `entry` are deleted, and may be the ones that qualify.
    pub log_start: Offset,
    /// The leader epoch in which the entry (or the next one) was written.
    pub leader_epoch: i32,
    /// The entry in which the session finds the exact message.
    pub entry: Option<Bytes>,
}

/// A look-up of a leader epoch's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEndQuery {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch that the client knows.
    pub epoch: i32,
}

/// The largest epoch not above the one asked for, and the first offset after it; `(-1, none)` when unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEnd {
    /// The epoch.
    pub epoch: i32,
    /// The offset after its last message.
    pub end: Option<Offset>,
}
