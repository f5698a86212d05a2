//! The journal of this node as a shard's log: one voter, no consensus in the path.
//!
//! The bytes are those of a one-voter Raft group's log (engine.md 4.4), so that a consensus engine can take the
//! directory over as it is.

use crate::{LogView, ReadLevel, Role, ShardLog, Work};
use polylogue_log::journal::{Journal, Proposal, Refused};
use polylogue_log::{Error, ErrorKind, Frame, Result};
use polylogue_types::{Index, NodeId, Term};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module.
#[derive(Debug)]
pub struct LocalLog {
    journal: Arc<Journal>,
    node: NodeId,
    stopped: AtomicBool,
}

impl LocalLog {
    /// Wraps an open journal.
    #[must_use]
    pub fn new(journal: Arc<Journal>, node: NodeId) -> LocalLog {
        LocalLog { journal, node, stopped: AtomicBool::new(false) }
    }

    /// The journal, for the partition store, which reads and adopts its files.
    #[must_use]
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }
}

impl ShardLog for LocalLog {
    fn view(&self) -> LogView {
        let view = self.journal.view();
        let role = match view.epoch {
            _ if self.stopped.load(Ordering::Relaxed) => Role::Stopped,
            Some(_) => Role::Writer,
            None => Role::Reader,
        };
        LogView {
            role,
            term: view.epoch.unwrap_or_default(),
            first: view.first,
            tail: view.last.map(|(index, _)| index),
            durable: view.durable,
            committed: view.committed,
            leader: self.node,
        }
    }

    fn acquire(&self) -> Result<Term> {
        self.journal.acquire()
    }

    fn try_propose(&self, proposal: Proposal) -> std::result::Result<(), Refused> {
        self.journal.try_propose(proposal)
    }

    fn barrier(&self, _: ReadLevel) -> Result<Option<Index>> {
        // The only voter is always right about what it has committed.
        let view = self.journal.view();
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Stopped, "the log is shut down"));
        }
        Ok(view.committed)
    }

    fn read(&self, from: Index, bytes_max: usize) -> Result<Vec<Arc<Frame>>> {
        self.journal.read(from, bytes_max)
    }

    fn trim(&self, upto: Index) -> Result<()> {
        self.journal.release(upto)
    }

    fn seal(&self, term: Term) -> Result<Option<Index>> {
        if self.journal.view().epoch != Some(term) {
            return Err(Error::new(ErrorKind::Fenced, format!("term {term} is over; only its writer may seal it")));
        }
        // A term that is taken and given to nobody: every proposal of the old one is fenced, durably.
        self.journal.acquire()?;
        Ok(self.journal.view().committed)
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
