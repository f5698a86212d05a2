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
    /// When the queues that have waiting consumers keep up with what comes, or after a bounded time. Of an append it is as without it.
    KeptUp {
        /// And not before it is committed; else no flush is started for it.
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

/// A producer's stamp on a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerStamp {
    /// The producer.
    pub id: ProducerId,
    /// Its incarnation.
    pub epoch: i16,
    /// The sequence of the batch's first message; wraps from `i32::MAX` to 0.
    pub base_sequence: i32,
}

/// One entry to write: native bytes that the session has validated.
#[derive(Clone, Debug)]
pub struct AppendEntry {
    /// Where to.
    pub partition: PartitionId,
    /// The native form; must be the partition's.
    pub form: Form,
    /// What the envelope shall say of it.
    pub flags: EntryFlags,
    /// Native bytes. Offsets and leader epoch inside are filled in by the broker.
    pub bytes: Bytes,
    /// Messages inside, at least 1.
    pub count: u32,
    /// The largest timestamp inside, -1 for none.
    pub max_timestamp: TimestampMs,
    /// CRC32C of the bytes from [`AppendEntry::summed_from`] to the end, already verified by the session.
    pub body_crc: u32,
    /// Where the bytes begin that `body_crc` covers; what stands before may still be patched.
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

/// An entry is written (or was before: a duplicate gets its first answer).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Offset of its first message.
    pub base_offset: Offset,
    /// The partition's first offset.
    pub log_start: Offset,
    /// It was a duplicate of an entry written before.
    pub duplicate: bool,
    /// The largest timestamp of what is stored: the entry's own, or of a duplicate the one of the entry written before.
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
    /// See [`crate::Unavailable`]; the entry may be there after `Unknown`.
    Unavailable(crate::Unavailable),
}

/// One part of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadPart {
    /// Where from.
    pub partition: PartitionId,
    /// The first offset wanted; may lie inside an entry, which then comes whole.
    pub offset: Offset,
    /// Bytes at most from this partition.
    pub bytes_max: u32,
}

/// See [`crate::Request::Read`].
#[derive(Clone, Debug)]
pub struct ReadRequest {
    /// What to read.
    pub parts: Vec<ReadPart>,
    /// Bytes at most over all parts.
    pub bytes_max: u32,
    /// Whether the first entry found comes even if it is larger than the bounds (KIP-74).
    pub at_least_one: bool,
}

/// What was read of one part.
#[derive(Clone, Debug)]
pub struct ReadData {
    /// Whole entries, as stored, those of queues as their [`crate::LogView`] shows them; empty when nothing is there yet.
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
    /// Partitions and the high watermark that the watcher has seen of each.
    pub seen: Vec<(PartitionId, Offset)>,
    /// A set that the session follows: something of it has changed since it was asked last.
    pub followed: Option<u64>,
}

/// See [`crate::Request::Follow`]. A reader of thousands of partitions, of which few change between two reads, follows them
/// instead of looking at each.
#[derive(Clone, Debug, Default)]
pub struct FollowRequest {
    /// Names the set among those of the session, which chooses it. The first request of that number begins it.
    pub set: u64,
    /// Belong to the set from now on; one that does already stays as it is. One that is not there is not taken in, and counts as
    /// changed.
    pub add: Vec<PartitionId>,
    /// Belong to it no longer.
    pub remove: Vec<PartitionId>,
}

/// One question for an offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FindOffset {
    /// Where.
    pub partition: PartitionId,
    /// Which.
    pub at: OffsetSpec,
    /// By time: entries that end at or below it are not looked at. They were before.
    pub from: Offset,
}

/// Which offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetSpec {
    /// The first there is.
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
    /// The first offset that can be read: what stands before it in `entry` is deleted, and may be why it qualifies.
    pub log_start: Offset,
    /// The leader epoch in which the entry (or the next one) was written.
    pub leader_epoch: i32,
    /// The entry in which the session looks for the exact message.
    pub entry: Option<Bytes>,
}

/// Where does a leader epoch end?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEndQuery {
    /// Where.
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
