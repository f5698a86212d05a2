//! The journal of one shard: an append-only log of frames with group commit, shared by all partitions and protocols.
//!
//! ```text
//!   <dir>/journal/
//!     0000000000000007.plj   sealed: its frames wait until a checkpoint and segments cover them
//!     0000000000000008.plj   current: the writer appends to it
//!     0000000000000009.plj   ready: made ahead, its header is not its own yet
//!     0000000000000003.spare recycled, waits to become the ready one
//!     000000000000000a.copy  a recovery that was interrupted; removed at the next start
//!
//!   a file
//!   0        4096
//!   +--------+-------+-------+-------+------+-------------------------------+
//!   | header | frame | frame | ...   | frame| zeros, or an earlier life     |
//!   +--------+-------+-------+-------+------+-------------------------------+
//!     file.rs  each on a 64-byte boundary     never verifies: other salt
//!              frame/header.rs
//! ```
//!
//! # How a proposal is written
//!
//! ```text
//!   try_propose ─> queue ─> [write role] take all, build frames, write ─> [flush role] flush ─> [deliver role] sink
//!                           └────────────── two threads take turns ─────────────┘
//! ```
//!
//! Two identical threads run the same loop: wait for work, write, flush, deliver. While one flushes, the other one
//! prepares and writes the next group, so that the disk is never idle, and a proposal costs one wake-up. There is no fixed
//! linger: the group is what came in while the group before was flushed. The simulator calls the steps itself.
//!
//! # Invariants
//! - The order of successful [`Journal::try_propose`] calls is the order in the log and the order of the outcomes.
//! - `Outcome::Committed` is only given for a frame that is flushed, as is everything before it; for a proposal of class `Async`,
//!   that is written, with everything before it committed.
//! - A failed flush of a file or directory ends the process through `env.fatal`; it is never retried, and nothing is
//!   acknowledged after it.
//! - Indexes have no gaps. Frame time does not go back.
//! - Bytes that a finished flush covered are never overwritten, except in a file that is recycled after its
//!   `Purged` record is durable.
//! - No lock that `try_propose` takes is held during I/O.
//!
//! # Recovery
//!
//! Every frame header says how far the log was flushed when the frame was built (`durable_upto`). A start walks over all
//! frames. Where one does not verify, it looks behind it: if any later header says that the place was flushed, this is
//! damage and the start is refused, unless a checkpoint covers the whole file (`journal/passed.rs`); otherwise it was never
//! acknowledged, and the tail is cut. What verifies but
//! was not known to be flushed is copied into a new file and flushed before it is used (`journal/recover.rs`).

mod build;
mod catalog;
mod config;
pub(crate) mod copy;
mod cut;
mod engine;
pub(crate) mod file;
mod flush;
mod inner;
mod mode;
pub(crate) mod pages;
mod passed;
mod pipeline;
mod prompt;
mod proposal;
mod queue;
mod read;
pub(crate) mod recover;
mod release;
pub(crate) mod scan;
mod spares;
mod stats;
pub(crate) mod survey;
mod threads;
mod write;

pub(crate) use cut::{JournalCut, cut_all};

pub use config::{Config, Durability, Identity, JournalIo, Passed, Recovery, Room, SealedFile, StartOfLife};
pub use proposal::{
    Append, CommitSink, Content, Draft, Flushed, Outcome, PATCH_BYTES_MAX, Patch, Proposal, Refused, Urgency, Vote,
};
pub use stats::{STAGE_BUCKETS_US, Stage, Stats};

use crate::error::Result;
use crate::frame::Frame;
use inner::Inner;
use polylogue_env::{DiskFile, Env};
use polylogue_types::{Index, Term};
use std::path::PathBuf;
use std::sync::Arc;

/// The state of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogView {
    /// The first index that can be read.
    pub first: Index,
    /// The index that the next frame gets.
    pub next: Index,
    /// The last index that is committed (not of frames that an engine appended).
    pub committed: Option<Index>,
    /// The last index that a finished flush covers. A checkpoint must not go beyond it.
    pub durable: Option<Index>,
    /// Index and term of the last frame.
    pub last: Option<(Index, Term)>,
    /// Index and term up to which everything is gone.
    pub purged: Option<(Index, Term)>,
    /// The term in which proposals are accepted now.
    pub epoch: Option<Term>,
}

/// A sealed file that left the journal.
#[derive(Clone, Debug)]
pub struct AdoptedFile {
    /// What was in it.
    pub sealed: SealedFile,
    /// Where it is. The adopter renames it out of the journal's directory and flushes both directories.
    pub path: PathBuf,
    /// The open file.
    pub file: Arc<dyn DiskFile>,
}

/// One shard's journal. See the [module](self).
#[derive(Debug)]
pub struct Journal {
    inner: Arc<Inner>,
}

impl Journal {
    /// Opens the journal in `config.dir`, or starts one when there is none; recovers it; then shows every frame with an
    /// index from `from` on to `visit`, in order, one at a time. When it returns, everything that was shown is durable.
    ///
    /// `from` is the index after the last one that a checkpoint and segments cover. Files that are missing below it are
    /// not missed.
    ///
    /// # Errors
    /// `Damaged` names file, position, and the partitions and offsets concerned as far as they are known: bytes that were
    /// durable once do not verify, or the journal ends before `from`. `OutOfRange` when `from` is purged.
    /// `Incompatible` for files of another identity or a newer version. `StorageFull`, `Io` from the disk.
    /// What `visit` returns. After `Damaged` and `Incompatible` nothing was changed on disk.
    pub fn open(env: &Env, config: Config, from: Index, visit: &mut dyn FnMut(Frame) -> Result<()>) -> Result<Journal> {
        recover::open(env, config, from, visit).map(|inner| Journal { inner })
    }

    /// The result of opening.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.inner.recovery
    }

    /// Sets the sink of commits. Once, before the first [`Journal::acquire`]; later calls change nothing.
    pub fn attach(&self, sink: Arc<dyn CommitSink>) {
        // A second sink would miss what the first one has heard.
        let _ = self.inner.sink.set(sink);
    }

    /// Starts the journal's threads: the writing pair and a background thread. Without them the caller steps.
    ///
    /// # Errors
    /// `Io` when the system has no threads to give.
    pub fn run_threads(&self) -> Result<()> {
        self.inner.run_threads()
    }

    /// Begins a new term: what was accepted before is written in its own term, then a vote and the term's first
    /// frame are written and flushed. Proposals of earlier terms are `Fenced` from then on.
    ///
    /// # Errors
    /// `Stopped`; `StorageFull` when not even these two small frames have room.
    pub fn acquire(&self) -> Result<Term> {
        self.inner.acquire()
    }

    /// Puts a proposal into the queue. Never blocks on I/O; the order of calls is the order in the log.
    ///
    /// # Errors
    /// [`Refused`] gives it back, with the reason.
    pub fn try_propose(&self, proposal: Proposal) -> std::result::Result<(), Refused> {
        self.inner.queue.offer(proposal, &self.inner.config, &*self.inner.env.clock)
    }

    /// Writes what is queued on the calling thread, if that waits for no disk, and delivers what is committed by that; else wakes
    /// a thread of the journal. For the proposer of something that is [`prompt`](Proposal::prompt); it holds no lock that the sink
    /// takes.
    pub fn write_prompt(&self) {
        self.inner.write_prompt();
    }

    /// Writes due proposals. Returns whether it did any work.
    pub fn write_step(&self) -> bool {
        self.inner.write_step()
    }

    /// Flushes due frames and delivers committed ones. Returns whether it did any work.
    pub fn flush_step(&self) -> bool {
        self.inner.flush_step()
    }

    /// One bounded piece of what goes on beside the writing: recycling released files, making files ahead, looking at the
    /// disk's free space. Says whether there is more to do at once.
    pub fn background_step(&self) -> bool {
        self.inner.background_step()
    }

    /// When the next step is due, on the environment's monotonic clock, in nanoseconds; `None` when nothing is pending.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.inner.next_deadline_ns()
    }

    /// The state of the log.
    #[must_use]
    pub fn view(&self) -> LogView {
        self.inner.view()
    }

    /// Committed frames from `from` on, at least one if there is one, more as long as they fit into `max_bytes`. Headers
    /// and envelope tables are verified, native bytes are not.
    ///
    /// # Errors
    /// `OutOfRange` below the first index that is there, or more than one above the committed one; `Damaged`; `Io`.
    pub fn read(&self, from: Index, max_bytes: usize) -> Result<Vec<Arc<Frame>>> {
        self.inner.read(from, max_bytes)
    }

    /// Releases the log that a checkpoint and segments cover, up to `upto`: a `Purged` record is written; when it is
    /// durable, a background step recycles the files that hold nothing else.
    ///
    /// # Errors
    /// `OutOfRange` above what is durable; `Stopped`; `StorageFull`.
    pub fn release(&self, upto: Index) -> Result<()> {
        self.inner.release(upto)
    }

    /// The sealed files, oldest first.
    #[must_use]
    pub fn sealed_files(&self) -> Vec<SealedFile> {
        self.inner.catalog.lock().sealed_files()
    }

    /// Hands a sealed file over to become a segment in place; its frames can no longer be read through the journal.
    /// Files are adopted in log order: all older ones must be released. A start after it must give a `from` above the file's
    /// last index, or the file back.
    ///
    /// # Errors
    /// `OutOfRange` when there is no such sealed file; `Invalid` when an older one is not released or the file is not
    /// flushed.
    pub fn adopt(&self, file_sequence: u64) -> Result<AdoptedFile> {
        self.inner.adopt(file_sequence)
    }

    /// Ends the current file: the next frame begins a new one.
    pub fn seal_current(&self) {
        self.inner.write.lock().seal = true;
    }

    /// Whether it was shut down, or has ended by a failure: everything that writes is `Stopped`.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.inner.queue.is_stopped()
    }

    /// Free room in the files and on the disk.
    #[must_use]
    pub fn journal_room(&self) -> Room {
        self.inner.room()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// Ends the term, writes what is queued, flushes, writes a mark, flushes, and ends the threads. Later calls are
    /// `Stopped`.
    ///
    /// # Errors
    /// `Stopped` when the journal had stopped before.
    pub fn shutdown(&self) -> Result<()> {
        self.inner.shutdown()
    }
}

/// What a consensus engine needs. All of it is ordered with other writes, and ends the local term: proposals are
/// `Fenced` afterwards.
impl Journal {
    /// Writes frames at given indexes. They can be read when this returns; `flushed` is called when they are durable.
    /// They are not delivered to the sink.
    ///
    /// # Errors
    /// `Invalid` for an index that is not the next one or a term that goes back; `StorageFull`, and then nothing of
    /// the call is in the log; `Stopped`. In these cases `flushed` is not called.
    pub fn append(&self, frames: Vec<Append>, flushed: Flushed) -> Result<()> {
        self.inner.append(frames, flushed)
    }

    /// Writes frames that are committed in the log of the shard's writer, as they are but for their local headers, and gives them to the sink
    /// once this log has committed them in its own class. For a log that began as [`StartOfLife::Follower`].
    ///
    /// # Errors
    /// `Invalid` for an index that is not the next one, a term that goes back, and frames of kind `Lost`, which tell of damage to the writer's
    /// own disk; `StorageFull`, and then nothing of the call is in the log; `Stopped`.
    pub fn follow(&self, frames: &[Arc<Frame>]) -> Result<()> {
        self.inner.follow(frames)
    }

    /// Truncates the log above `index` (`None`: everything). Durable when it returns.
    ///
    /// # Errors
    /// `Invalid` below what is purged; `Stopped`; `StorageFull`.
    pub fn truncate_after(&self, index: Option<Index>) -> Result<()> {
        self.inner.truncate_after(index)
    }

    /// Like [`Journal::release`], but the index may lie above the last one (a snapshot was installed): then the log
    /// goes on behind it. Durable when it returns.
    ///
    /// # Errors
    /// `Stopped`; `StorageFull`.
    pub fn purge(&self, index: Index, term: Term) -> Result<()> {
        self.inner.purge(index, term)
    }

    /// Records a vote. Durable when it returns.
    ///
    /// # Errors
    /// `Stopped`; `StorageFull`.
    pub fn save_vote(&self, vote: Vote) -> Result<()> {
        self.inner.save_vote(vote)
    }

    /// The last vote.
    #[must_use]
    pub fn read_vote(&self) -> Option<Vote> {
        self.inner.write.lock().local.vote
    }

    /// Records the commit index. Durable with the next flush; starts none.
    ///
    /// # Errors
    /// `Stopped`; `StorageFull`.
    pub fn save_committed(&self, index: Index) -> Result<()> {
        self.inner.save_committed(index)
    }

    /// The last index remembered by [`Journal::save_committed`], at most the last one that is there.
    #[must_use]
    pub fn read_committed(&self) -> Option<Index> {
        let saved = self.inner.write.lock().local.committed?;
        let last = self.view().next.0.checked_sub(1)?;
        Some(saved.min(Index(last)))
    }

    /// Frames with indexes from `from` to before `end`, flushed or not, committed or not; bounded as
    /// [`Journal::read`] is.
    ///
    /// # Errors
    /// `OutOfRange` below the first index that is there; `Damaged`; `Io`.
    pub fn read_range(&self, from: Index, end: Index, max_bytes: usize) -> Result<Vec<Arc<Frame>>> {
        self.inner.read_range(from, end, max_bytes)
    }
}

impl Drop for Journal {
    /// Ends the threads. What is queued still gets its outcome, but without [`Journal::shutdown`] that is not waited for.
    fn drop(&mut self) {
        if !self.inner.threads.lock().is_empty() {
            self.inner.stop_threads();
        }
    }
}
