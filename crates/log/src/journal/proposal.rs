//! Proposals and their outcomes.

use super::config::Durability;
use crate::error::ErrorKind;
use crate::frame::{Frame, Kind};
use bytes::Bytes;
use polylogue_record::envelope::Envelope;
use polylogue_types::{Index, NodeId, Term, TimestampMs};
use std::fmt;
use std::sync::Arc;

/// The most bytes at the front of an entry that a draft may replace.
pub const PATCH_BYTES_MAX: usize = 32;

/// Bytes that stand in place of the first ones of a draft's native bytes, so that offset and epoch inside a batch can be
/// set without a copy of the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Patch {
    bytes: [u8; PATCH_BYTES_MAX],
    len: u8,
}

impl Patch {
    /// Replaces the first `bytes.len()` bytes; `None` when these are more than [`PATCH_BYTES_MAX`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Patch> {
        let mut patch = Patch { bytes: [0; PATCH_BYTES_MAX], len: u8::try_from(bytes.len()).ok()? };
        patch.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(patch)
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// One entry to write.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The envelope. `append_time` is filled in by the journal. The number in [`Body::Ref`](polylogue_record::envelope::Body)
    /// counts the drafts of the same proposal; the length of an inline body is that of `bytes`, and its checksum that
    /// of the native bytes after patching.
    pub envelope: Envelope,
    /// The native bytes; empty for a reference.
    pub bytes: Bytes,
    /// What to write in place of the first of them.
    pub patch: Patch,
}

impl Draft {
    /// An entry whose bytes are written as they are.
    #[must_use]
    pub fn new(envelope: Envelope, bytes: Bytes) -> Draft {
        Draft { envelope, bytes, patch: Patch::default() }
    }
}

/// Whether the outcome has a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// It is written at once, and flushed at once where its commit needs a flush.
    Urgent,
    /// It is written with whatever is written next, or a little later by itself ([`Config::lazy_write_us_max`]), and then flushed at once
    /// where its commit needs a flush: for a proposer that waits, and has more on its way.
    ///
    /// [`Config::lazy_write_us_max`]: super::Config::lazy_write_us_max
    Soon,
    /// It is written soon and flushed with whatever is flushed next, or a little later by itself.
    Lazy,
}

/// What is written as one step.
///
/// The entries of a proposal are in one frame, hence all there or none after a crash, as long as their bytes are at
/// most `frame_bytes_max`, or one of them is a reference. A larger proposal is spread over several frames, and its outcome
/// is that of the last one.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The caller's name for it; comes back with the outcome. Not looked at.
    pub ticket: u64,
    /// The entries of a proposal of kind [`Kind::Data`]; those of a partition in offset order.
    pub entries: Vec<Draft>,
    /// [`Kind::Data`], or [`Kind::SegmentCut`] or [`Kind::Membership`] with a body and no entries.
    pub kind: Kind,
    /// The body of kinds other than `Data`.
    pub body: Bytes,
    /// Whether it starts a flush.
    pub urgency: Urgency,
    /// When it counts as committed; `None` for as the journal's own class has it. Outcomes keep their order: what needs no flush
    /// waits for an earlier proposal that does.
    pub class: Option<Durability>,
    /// The term that the proposer holds; from [`acquire`](super::Journal::acquire).
    pub epoch: Term,
    /// Small and needed to make room or to keep readers going (acknowledgements, commits, deletes, trims): may use
    /// the reserve when the disk is full.
    pub reserve: bool,
    /// The proposer calls [`write_prompt`](super::Journal::write_prompt) next: no thread is woken for it before. Means
    /// something only for what waits for no flush.
    pub prompt: bool,
}

impl Proposal {
    /// Entries with a waiter.
    #[must_use]
    pub fn data(epoch: Term, ticket: u64, entries: Vec<Draft>) -> Proposal {
        Proposal {
            ticket,
            entries,
            kind: Kind::Data,
            body: Bytes::new(),
            urgency: Urgency::Urgent,
            class: None,
            epoch,
            reserve: false,
            prompt: false,
        }
    }
}

/// A refused proposal, none of which is in the log, with the reason. It is returned, so that the caller can retry when the queue was busy.
#[derive(Debug)]
pub struct Refused {
    /// `Busy`, `Fenced`, `Stopped`, `StorageFull`, or `Invalid` for a proposal that breaks a bound or its own rules.
    pub kind: ErrorKind,
    /// The proposal.
    pub proposal: Box<Proposal>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proposal {} was refused: {:?}", self.proposal.ticket, self.kind)
    }
}

impl std::error::Error for Refused {}

/// The outcome of a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is in the log, in the frame with this index (its last one), and committed in its class.
    Committed(Index),
    /// It is not in the log and never will be.
    NotCommitted,
    /// It may be in the log or not; the next reader of the log sees.
    Unknown,
}

/// Receives committed frames and outcomes.
pub trait CommitSink: Send + Sync {
    /// Frames with an index in log order, each exactly once, and the outcomes of proposals in the order in which they were
    /// proposed, each exactly once. A proposal's outcome comes with its last frame, or after it.
    ///
    /// Called by one thread at a time, with no lock held that [`try_propose`](super::Journal::try_propose) needs: the
    /// sink may propose. It must not call [`acquire`](super::Journal::acquire),
    /// [`shutdown`](super::Journal::shutdown) or another call that waits for a flush. The flush of the next group runs
    /// meanwhile, but the one after that waits for this call.
    fn committed(&self, frames: &[Arc<Frame>], outcomes: &[(u64, Outcome)]);
}

/// What an appended frame of a consensus engine holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// Bytes that only the engine reads.
    Opaque(Bytes),
    /// Entries of partitions.
    Entries(Vec<Draft>),
}

/// A frame that a consensus engine puts at an index.
#[derive(Clone, Debug)]
pub struct Append {
    /// Its term, not below that of the frame before it.
    pub term: Term,
    /// Its index, the one after the last.
    pub index: Index,
    /// The node that proposed it.
    pub leader: NodeId,
    /// The leader's wall time.
    pub time_ms: TimestampMs,
    /// What it is; not a local kind.
    pub kind: Kind,
    /// What it holds.
    pub content: Content,
}

/// A vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vote {
    /// In which term.
    pub term: Term,
    /// For whom.
    pub node: NodeId,
    /// A quorum granted it.
    pub committed: bool,
}

/// Called once when everything before it in the log is flushed, or with the error that ended the journal.
pub type Flushed = Box<dyn FnOnce(crate::Result<()>) + Send>;
