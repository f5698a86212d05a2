//! A frame: what one flush group writes for one shard, and what a consensus engine calls an entry.

pub(crate) mod codec;
pub(crate) mod header;
mod lost;

pub use lost::{LostBody, LostRange, MembershipBody};

use bytes::Bytes;
use polylogue_record::envelope::Envelope;
use polylogue_types::{FileRange, Index, NodeId, RangeSource, ShardId, Term, TimestampMs};
use std::ops::Range;
use std::sync::Arc;

/// What a frame says. Bit 6 (64) makes a kind *local*: it has no index, differs between nodes and is never replicated.
/// Unknown kinds with bit 7 (128) set are skipped (upgrades); all other unknown kinds are errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Entries of partitions.
    Data = 1,
    /// The first frame of a term.
    Noop = 2,
    /// Who the voters are; index 0 of every log is one.
    Membership = 3,
    /// Journal up to here is merged into segments as one step.
    SegmentCut = 4,
    /// Stands where a damaged frame stood: the body lists what was lost ([`Frame::lost`]), the entries are those that
    /// survived. Written by `repair` only.
    Lost = 5,
    /// Local: term and node voted for.
    Vote = 64,
    /// Local: everything up to an index is committed.
    Committed = 65,
    /// Local: what was written after an index is void.
    TruncateAfter = 66,
    /// Local: what is at or before an index is gone, a checkpoint covers it.
    Purged = 67,
    /// Local: a mark that carries `durable_upto` and nothing else.
    Mark = 68,
}

impl Kind {
    /// The kind with this tag, where this version knows it.
    #[must_use]
    pub fn from_tag(tag: u8) -> Option<Kind> {
        Some(match tag {
            1 => Kind::Data,
            2 => Kind::Noop,
            3 => Kind::Membership,
            4 => Kind::SegmentCut,
            5 => Kind::Lost,
            64 => Kind::Vote,
            65 => Kind::Committed,
            66 => Kind::TruncateAfter,
            67 => Kind::Purged,
            68 => Kind::Mark,
            _ => return None,
        })
    }

    /// Whether frames of this kind have no index.
    #[must_use]
    pub fn is_local(self) -> bool {
        tag_is_local(self as u8)
    }
}

/// Whether frames with this tag, known or not, have no index.
pub(crate) fn tag_is_local(tag: u8) -> bool {
    tag & 64 != 0
}

/// Whether a frame with this tag may be passed over by a version that does not know it.
pub(crate) fn tag_may_be_skipped(tag: u8) -> bool {
    tag & 128 != 0
}

/// Where a frame is in the file system.
#[derive(Clone, Debug)]
pub struct FramePlace {
    /// Sequence number of the journal file.
    pub file_sequence: u64,
    /// The file; holding it prevents recycling.
    pub file: Arc<dyn RangeSource>,
    /// Where the frame's first byte is.
    pub position: u64,
    /// The frame's bytes without the padding that follows.
    pub len: u32,
}

/// One entry of a frame: its envelope and where its native bytes are inside the frame.
#[derive(Clone, Debug)]
pub struct EntryRef {
    /// The envelope.
    pub envelope: Envelope,
    /// Native bytes, relative to the frame's first byte. Of a `Ref` entry: those of the entry it refers to.
    pub native: Range<u32>,
}

/// A frame that has been written or read, with its entries decoded. Entries stand clustered by partition, and
/// entries of one partition in offset order, so that a partition's native bytes in a frame are one run.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Shard (the consensus group).
    pub shard: ShardId,
    /// Term it was proposed in.
    pub term: Term,
    /// Its index; local kinds have none (`Index(u64::MAX)`).
    pub index: Index,
    /// The node that proposed it.
    pub leader: NodeId,
    /// The leader's wall time when it was built; never goes back from frame to frame.
    pub time_ms: TimestampMs,
    /// What it says.
    pub kind: Kind,
    /// All bytes as in the file, from the local header on, without padding.
    pub bytes: Bytes,
    /// The entries (of kinds `Data` and `Lost`).
    pub entries: Vec<EntryRef>,
    /// The body of other kinds, or what a consensus engine stores in place of entries.
    pub body: Bytes,
    /// Where it is on disk; `None` for a memory shard.
    pub place: Option<FramePlace>,
}

impl Frame {
    /// The native bytes of an entry, from memory.
    #[must_use]
    pub fn native(&self, entry: &EntryRef) -> Bytes {
        self.bytes.slice(entry.native.start as usize..entry.native.end as usize)
    }

    /// A range of the frame as a range of the file.
    #[must_use]
    pub fn file_range(&self, range: Range<u32>) -> Option<FileRange> {
        self.place.as_ref().map(|place| FileRange {
            source: place.file.clone(),
            position: place.position + u64::from(range.start),
            len: range.end - range.start,
        })
    }

    /// What a frame of kind [`Kind::Lost`] says is gone: `None` when the frame is of another kind, and a list with
    /// `complete == false` where not everything that was lost is known.
    #[must_use]
    pub fn lost(&self) -> Option<LostBody> {
        (self.kind == Kind::Lost).then(|| LostBody::decode(&self.body))
    }
}
