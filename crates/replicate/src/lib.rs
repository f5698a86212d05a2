//! A shard's replicated log: the only path by which data becomes durable.
//!
//! Layer 3. [`ShardLog`] is the trait of engine.md 4.2: a provider owns the order of frames, their durability and the
//! choice of the writer; the partition store above applies committed frames. Providers: [`local`] (the journal of this node, no
//! consensus in the path), [`memory`] (nothing survives), and later a consensus engine over the same journal.
//!
//! The contract, checked by [`conformance`] for every provider:
//! - A proposal names the term of the writer that makes it; after a newer [`ShardLog::acquire`] it is refused
//!   (`Fenced`), for every holder of an old term.
//! - `try_propose` never blocks, and the order of accepted calls is the order in the log.
//! - Every accepted proposal has exactly one outcome, and outcomes come in the order in which proposals were accepted.
//! - `Committed` means: durable in the proposal's class (the shard's, where it names none), and delivered to the sink with the outcome or before it.
//! - `NotCommitted` means: the proposal will never be visible. `Unknown` means: it may be visible after a restart.
//! - No frame above the commit index is ever delivered to the sink or to a reader.
//! - Indexes have no gaps; term and time never decrease from frame to frame. Proposals accepted in a term precede the
//!   first frame of the next one.

pub mod conformance;
pub mod local;
pub mod memory;

use polylogue_log::backup::Source;
use polylogue_log::journal::{CommitSink, Proposal, Refused, Room, Stats};
use polylogue_log::store::{SealedJournal, ShardStore};
use polylogue_log::{Frame, Result};
use polylogue_types::{Index, NodeId, Term};
use std::fmt::Debug;
use std::sync::Arc;

/// The role of a node in its shard's group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// The node proposes, delivers, expires, dead-letters and answers clients.
    Writer,
    /// The node applies committed frames and serves reads up to the commit index.
    #[default]
    Follower,
    /// Shut down or failed.
    Stopped,
}

/// The state of a shard's log at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogView {
    /// The role of this node.
    pub role: Role,
    /// The writer's term; without a writer, that of the last one.
    pub term: Term,
    /// The first index that can still be read.
    pub first: Index,
    /// The last index that is written, durable or not; `None` for an empty log.
    pub tail: Option<Index>,
    /// The last index that is durable; `None` also for a log that is never durable.
    pub durable: Option<Index>,
    /// The last index that is committed.
    pub committed: Option<Index>,
    /// The node to send writes to.
    pub leader: NodeId,
}

/// How a linearizable read is confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadLevel {
    /// By a round to a quorum.
    Quorum,
    /// By the leader's lease, which clock drift can invalidate.
    Lease,
}

/// One shard's log.
pub trait ShardLog: Send + Sync + Debug {
    /// Returns the current state of the log.
    fn view(&self) -> LogView;

    /// Becomes the writer: a new term, made durable, that fences all earlier ones.
    ///
    /// # Errors
    /// `StorageFull` when not even this can be written; `Stopped`.
    fn acquire(&self) -> Result<Term>;

    /// Submits a proposal. Returns without waiting for its outcome.
    ///
    /// # Errors
    /// `Fenced` when `proposal.epoch` is not the writer's term, `Busy` when the queue is full, `StorageFull` when
    /// there is no room for payload, `Invalid` for a proposal that breaks a bound or its own rules, `Stopped`. The
    /// proposal comes back.
    fn try_propose(&self, proposal: Proposal) -> std::result::Result<(), Refused>;

    /// Writes the proposals marked [`prompt`](Proposal::prompt) on the calling thread, if that requires no waiting. Called after each such
    /// proposal, without a lock that the sink takes.
    fn write_prompt(&self) {}

    /// The index up to which a reader must have applied to see everything acknowledged before this call.
    ///
    /// # Errors
    /// `Stopped`, or `Fenced` when this node cannot know.
    fn barrier(&self, level: ReadLevel) -> Result<Option<Index>>;

    /// Committed frames from an index on, as many as fit into `bytes_max`; at least one, if there is one.
    ///
    /// # Errors
    /// `OutOfRange` below the first index and more than one above the last committed one; `Damaged`; `Io`.
    fn read(&self, from: Index, bytes_max: usize) -> Result<Vec<Arc<Frame>>>;

    /// Releases everything up to an index, which a checkpoint and segments cover.
    ///
    /// # Errors
    /// `Invalid` above what is committed, and above what is durable where anything is; `Stopped`; `StorageFull`; `Io`.
    fn trim(&self, upto: Index) -> Result<()>;

    /// Seals the log: ends the writer's term for good and returns the end of the log. The next extent begins elsewhere. There is
    /// no writer afterwards.
    ///
    /// # Errors
    /// `Fenced` when `term` is not the writer's; `Stopped`; `StorageFull`, and then the term is over all the same, but a
    /// restart may not know it.
    fn seal(&self, term: Term) -> Result<Option<Index>>;

    /// Whether this node alone decides what is committed. Then what it has proposed is committed or lost with the process, and never replaced
    /// by what another writer proposed: a message may be handed out ahead of its commit.
    fn decides_alone(&self) -> bool;

    /// The log's files on this node's disk; `None` for a log without files.
    fn local(&self) -> Option<&dyn LocalFiles> {
        None
    }

    /// Runs one piece of the work of the provider's threads; `false` if there was none. The
    /// simulator drives a node with it.
    fn step(&self, work: Work) -> bool;

    /// Starts the provider's own threads.
    ///
    /// # Errors
    /// When the system has none.
    fn run(&self) -> Result<()>;

    /// Flushes, marks a clean stop and ends the threads. Later calls return `Stopped`, except read-only ones.
    fn shutdown(&self);
}

/// The files of a log on this node's disk. They are this node's own business: which of them are sealed, adopted as segments and released differs
/// from node to node, and no frame depends on it.
pub trait LocalFiles: SealedJournal + Send + Sync + Debug {
    /// Ends the current file: the next frame begins a new one.
    fn seal_current(&self);

    /// Free room in the files and on the disk.
    fn room(&self) -> Room;

    /// Counters.
    fn stats(&self) -> Stats;

    /// Pairs the files with the store over them, for a consistent cut of both ([`polylogue_log::backup::cut`]).
    fn source<'a>(&'a self, store: &'a ShardStore) -> Source<'a>;

    /// Writes frames that are committed in the log of the shard's writer ([`polylogue_log::journal::Journal::follow`]).
    ///
    /// # Errors
    /// See there.
    fn follow(&self, frames: &[Arc<Frame>]) -> Result<()>;
}

/// Pieces of work of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Write what is queued.
    Write,
    /// Flush what is written and deliver outcomes.
    Flush,
    /// Spare files, marks, timers.
    Background,
}

/// The receiver of committed frames. See `polylogue_log::journal::CommitSink`.
pub type Sink = Arc<dyn CommitSink>;
