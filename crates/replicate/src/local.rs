//! The journal of this node as a shard's log: one voter, no consensus in the path.
//!
//! The bytes are those of a one-voter Raft group's log (engine.md 4.4), so that a consensus engine can take the
//! directory over as it is.

use crate::{LocalFiles, LogView, ReadLevel, Role, ShardLog, Work};
use parking_lot::Mutex;
use polylogue_log::backup::Source;
use polylogue_log::journal::{AdoptedFile, Journal, Proposal, Refused, Room, SealedFile, Stats};
use polylogue_log::store::{SealedJournal, ShardStore};
use polylogue_log::{Error, ErrorKind, Frame, Result};
use polylogue_types::{Index, NodeId, Term};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the module.
#[derive(Debug)]
pub struct LocalLog {
    journal: Arc<Journal>,
    node: NodeId,
    stopped: AtomicBool,
    // One change of writer at a time: a seal must not end the term of a writer that came in between.
    changing: Mutex<()>,
    /// The term that the last seal took without a holder; 0 for none.
    sealed: AtomicU64,
}

impl LocalLog {
    /// Wraps an open journal.
    #[must_use]
    pub fn new(journal: Arc<Journal>, node: NodeId) -> LocalLog {
        let (stopped, changing, sealed) = Default::default();
        LocalLog { journal, node, stopped, changing, sealed }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.journal.is_stopped()
    }

    fn check_running(&self) -> Result<()> {
        if self.is_stopped() {
            return Err(Error::new(ErrorKind::Stopped, "the log is shut down"));
        }
        Ok(())
    }
}

impl ShardLog for LocalLog {
    fn view(&self) -> LogView {
        let view = self.journal.view();
        let role = match view.epoch {
            _ if self.is_stopped() => Role::Stopped,
            Some(term) if term.0 != self.sealed.load(Ordering::Relaxed) => Role::Writer,
            _ => Role::Follower,
        };
        LogView {
            role,
            term: view.epoch.or(view.last.map(|(_, term)| term)).unwrap_or_default(),
            first: view.first,
            tail: view.last.map(|(index, _)| index),
            durable: view.durable,
            committed: view.committed,
            leader: self.node,
        }
    }

    fn acquire(&self) -> Result<Term> {
        let _one = self.changing.lock();
        self.journal.acquire()
    }

    fn try_propose(&self, proposal: Proposal) -> std::result::Result<(), Refused> {
        if proposal.epoch.0 == self.sealed.load(Ordering::Relaxed) {
            return Err(Refused { kind: ErrorKind::Fenced, proposal: Box::new(proposal) });
        }
        self.journal.try_propose(proposal)
    }

    fn write_prompt(&self) {
        self.journal.write_prompt();
    }

    fn barrier(&self, _: ReadLevel) -> Result<Option<Index>> {
        self.check_running()?;
        // The only voter is always right about what it has committed.
        Ok(self.journal.view().committed)
    }

    fn read(&self, from: Index, bytes_max: usize) -> Result<Vec<Arc<Frame>>> {
        self.journal.read(from, bytes_max)
    }

    fn trim(&self, upto: Index) -> Result<()> {
        self.check_running()?;
        let view = self.journal.view();
        if Some(upto) > view.committed.min(view.durable) {
            let (committed, durable) = (view.committed, view.durable);
            let text = format!("cannot forget up to index {upto}: committed is {committed:?}, durable {durable:?}");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        self.journal.release(upto)
    }

    fn seal(&self, term: Term) -> Result<Option<Index>> {
        let _one = self.changing.lock();
        self.check_running()?;
        if self.journal.view().epoch != Some(term) || self.sealed.load(Ordering::Relaxed) == term.0 {
            return Err(Error::new(ErrorKind::Fenced, format!("term {term} is over; only its writer may seal it")));
        }
        // A term that is taken without a holder: every proposal of the old one is fenced, durably.
        let unheld = self.journal.acquire()?;
        self.sealed.store(unheld.0, Ordering::Relaxed);
        Ok(self.journal.view().committed)
    }

    fn decides_alone(&self) -> bool {
        true
    }

    fn local(&self) -> Option<&dyn LocalFiles> {
        Some(self)
    }

    fn step(&self, work: Work) -> bool {
        match work {
            Work::Write => self.journal.write_step(),
            Work::Flush => self.journal.flush_step(),
            Work::Background => self.journal.background_step(),
        }
    }

    fn run(&self) -> Result<()> {
        self.journal.run_threads()
    }

    fn shutdown(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        // It had stopped by itself before: there is nothing left to flush.
        let _ = self.journal.shutdown();
    }
}

impl SealedJournal for LocalLog {
    fn sealed_files(&self) -> Vec<SealedFile> {
        self.journal.sealed_files()
    }

    fn adopt(&self, sequence: u64) -> Result<AdoptedFile> {
        self.journal.adopt(sequence)
    }

    fn release(&self, upto: Index) -> Result<()> {
        self.journal.release(upto)
    }
}

impl LocalFiles for LocalLog {
    fn seal_current(&self) {
        self.journal.seal_current();
    }

    fn room(&self) -> Room {
        self.journal.journal_room()
    }

    fn stats(&self) -> Stats {
        self.journal.stats()
    }

    fn source<'a>(&'a self, store: &'a ShardStore) -> Source<'a> {
        Source { store, journal: &self.journal }
    }

    fn follow(&self, frames: &[Arc<Frame>]) -> Result<()> {
        self.journal.follow(frames)
    }
}
