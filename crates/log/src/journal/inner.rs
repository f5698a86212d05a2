//! The parts of a journal, shared by its threads, and the roles they take.
//!
//! Locks, in the order in which they may be taken: *write role*, *flush role* (under which the write role is only tried for),
//! *deliver role*, then the small ones, which are never held during I/O: queue, then pipeline; catalog; stats; background.
//! `spares` is held during metadata operations on files that are not part of the log; it may be taken under the write role, and the catalog under it.

use super::catalog::Catalog;
use super::config::{Config, Recovery, StartOfLife};
use super::file::{FileEnd, LiveFile, journal_dir};
use super::mode::RecentGroups;
use super::pages::{PageBuffer, PageWriter};
use super::pipeline::{Group, Pipeline};
use super::proposal::{CommitSink, Vote};
use super::queue::{Queue, Queued};
use super::spares::Spares;
use super::stats::Stats;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::codec::LocalRecord;
use crate::frame::header::{Durable, LogEnd};
use parking_lot::{Condvar, Mutex};
use polylogue_env::{Env, JoinTask};
use polylogue_types::{Index, Term, TimestampMs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// No index.
const NONE: u64 = u64::MAX;

/// What local frames say, as it stands at some point of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LocalState {
    pub(crate) vote: Option<Vote>,
    pub(crate) purged: Option<(Index, Term)>,
    pub(crate) committed: Option<Index>,
}

impl LocalState {
    /// The records that every file begins with, so that the ones in older files are not needed.
    pub(crate) fn records(&self) -> impl Iterator<Item = LocalRecord> {
        let vote = self.vote.map(|v| LocalRecord::Vote { term: v.term, node: v.node, committed: v.committed });
        let purged = self.purged.map(|(index, term)| LocalRecord::Purged { index, term });
        let committed = self.committed.map(|index| LocalRecord::Committed { index });
        [vote, purged, committed].into_iter().flatten()
    }

    /// Takes in one more record. Truncation changes the log, not this.
    pub(crate) fn apply(&mut self, record: &LocalRecord) {
        match *record {
            LocalRecord::Vote { term, node, committed } => self.vote = Some(Vote { term, node, committed }),
            LocalRecord::Purged { index, term } => self.purged = Some((index, term)),
            LocalRecord::Committed { index } => self.committed = Some(index),
            LocalRecord::TruncateAfter { .. } | LocalRecord::Mark => {}
        }
    }
}

/// Where the next frame goes, and what is needed to build it. Behind the write role.
#[derive(Debug, Default)]
pub(crate) struct WriteState {
    /// The file that is written to; `None` before the first frame since the start.
    pub(crate) current: Option<Arc<LiveFile>>,
    /// The end of the log.
    pub(crate) end: FileEnd,
    /// The term of the last frame.
    pub(crate) term: Term,
    pub(crate) next_index: Index,
    /// The time of the last frame.
    pub(crate) time_ms: TimestampMs,
    pub(crate) local: LocalState,
    /// The next frame begins a file.
    pub(crate) seal: bool,
    /// What this step has written so far.
    pub(crate) group: Group,
    /// Proposals taken from the queue; empty between steps, kept for its memory, as are the next ones.
    pub(crate) taken: Vec<Queued>,
    pub(crate) slots: Vec<super::build::Slot>,
    pub(crate) ranks: Vec<u32>,
    pub(crate) pages: PageWriter,
    /// What the next file's way of writing is chosen by.
    pub(crate) recent: RecentGroups,
}

impl WriteState {
    /// The log's end as a frame header names it.
    pub(crate) fn durable_end(&self) -> Durable {
        Durable {
            index: self.next_index.0.checked_sub(1).map(Index),
            end: LogEnd { sequence: self.end.sequence, position: self.end.position },
        }
    }
}

/// A release whose `Purged` record is not yet durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRelease {
    pub(crate) upto: Index,
    /// The record's end.
    pub(crate) end: LogEnd,
}

/// What opening hands over.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) catalog: Catalog,
    pub(crate) end: FileEnd,
    pub(crate) durable: Durable,
    pub(crate) local: LocalState,
    pub(crate) term: Term,
    pub(crate) time_ms: TimestampMs,
    pub(crate) spares: Spares,
    pub(crate) recovery: Recovery,
}

/// What the background step remembers.
#[derive(Debug, Default)]
pub(crate) struct Background {
    pub(crate) releases: Vec<PendingRelease>,
    /// Up to where the log is released by records that are durable.
    pub(crate) released: Option<Index>,
    /// When the free space is looked at again. Monotonic nanoseconds.
    pub(crate) poll_due_ns: u64,
    /// When the next piece of a new file is filled.
    pub(crate) piece_due_ns: u64,
    pub(crate) stop: bool,
}

/// See the [module](self).
pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) config: Config,
    /// The directory of the files.
    pub(crate) dir: PathBuf,
    pub(crate) recovery: Recovery,
    pub(crate) queue: Queue,
    pub(crate) write: Mutex<WriteState>,
    pub(crate) flush_role: Mutex<()>,
    pub(crate) deliver_role: Mutex<()>,
    pub(crate) pipeline: Mutex<Pipeline>,
    pub(crate) catalog: Mutex<Catalog>,
    pub(crate) spares: Mutex<Spares>,
    pub(crate) stats: Mutex<Stats>,
    pub(crate) background: Mutex<Background>,
    pub(crate) background_work: Condvar,
    /// What new files are filled with.
    pub(crate) zeros: OnceLock<PageBuffer>,
    /// One `acquire` at a time.
    pub(crate) acquiring: Mutex<()>,
    pub(crate) sink: OnceLock<Arc<dyn CommitSink>>,
    pub(crate) threads: Mutex<Vec<Box<dyn JoinTask>>>,
    /// When proposers may write on their own threads again. Monotonic nanoseconds.
    pub(crate) prompt_from_ns: AtomicU64,
    committed: AtomicU64,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("dir", &self.dir)
            .field("shard", &self.config.identity.shard)
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn new(env: Env, config: Config, opened: Opened) -> Inner {
        let dir = journal_dir(&config.dir);
        let next_index = Index(opened.catalog.next);
        let last = next_index.0.checked_sub(1).unwrap_or(NONE);
        let committed = match config.start {
            // The only voter has everything that it needs to commit what it has.
            StartOfLife::OneVoter | StartOfLife::Follower => last,
            StartOfLife::Pristine => opened.local.committed.map_or(NONE, |saved| saved.0.min(last)),
        };
        let queue = Queue::default();
        queue.room.see(&opened.spares);
        let write = WriteState {
            end: opened.end,
            term: opened.term,
            next_index,
            time_ms: opened.time_ms,
            local: opened.local,
            ..WriteState::default()
        };
        Inner {
            env,
            config,
            dir,
            recovery: opened.recovery,
            queue,
            write: Mutex::new(write),
            flush_role: Mutex::new(()),
            deliver_role: Mutex::new(()),
            pipeline: Mutex::new(Pipeline::new(opened.durable)),
            catalog: Mutex::new(opened.catalog),
            spares: Mutex::new(opened.spares),
            stats: Mutex::new(Stats::default()),
            background: Mutex::new(Background::default()),
            background_work: Condvar::new(),
            zeros: OnceLock::new(),
            acquiring: Mutex::new(()),
            sink: OnceLock::new(),
            threads: Mutex::new(Vec::new()),
            prompt_from_ns: AtomicU64::new(0),
            committed: AtomicU64::new(committed),
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.env.clock.monotonic_ns()
    }

    pub(crate) fn committed(&self) -> Option<Index> {
        let index = self.committed.load(Ordering::Acquire);
        (index != NONE).then_some(Index(index))
    }

    pub(crate) fn set_committed(&self, index: Index) {
        self.committed.store(index.0, Ordering::Release);
    }

    /// Going on would break a promise. Ends the process, or in a simulation the journal. `taken` is what a failed flush had
    /// taken on.
    pub(crate) fn die(&self, why: &Error, taken: Vec<Group>) {
        let shard = self.config.identity.shard;
        self.env.fatal.fatal(&format!("journal of shard {shard}: {why}"));
        self.queue.stop();
        self.pipeline.lock().abandon(taken);
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        if self.queue.is_stopped() { Err(stopped()) } else { Ok(()) }
    }

    /// Tells the background thread that there is something to do.
    pub(crate) fn kick_background(&self) {
        self.background.lock().poll_due_ns = 0;
        self.background_work.notify_all();
    }
}

/// The answer to everything after the end.
pub(crate) fn stopped() -> Error {
    Error::new(ErrorKind::Stopped, "the journal has stopped")
}
