//! openraft's log storage on a journal.

use super::{Group, LeaderId, RaftEntry, RaftLogId, RaftVote, append_of, entry_of, log_id, term_of};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::vote::RaftLeaderId;
use openraft::{LogState, OptionalSend, RaftLogReader};
use polylogue_env::Clock;
use polylogue_log::ErrorKind;
use polylogue_log::journal::{Journal, Vote};
use polylogue_types::{Index, NodeId, Term, TimestampMs};
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// What one read for replication brings at most: openraft itself bounds it by a count of entries only. Bytes.
const READ_BYTES_MAX: usize = 1 << 20;

/// What is asked to take on an index above an empty log's first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gaps {
    /// It is refused: the log has no holes.
    Refused,
    /// Everything before it counts as purged. openraft's suite begins logs in the middle without saying so; an engine
    /// says so, because it has installed a snapshot before.
    Purged,
}

/// See the module. Clones are handles of one log.
#[derive(Clone, Debug)]
pub struct JournalLog {
    journal: Arc<Journal>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    gaps: Gaps,
    /// The time of the last frame: frame time does not go back, whatever the clock does.
    time_ms: Arc<AtomicI64>,
}

impl JournalLog {
    /// `last_ms` is the time of the journal's last frame.
    pub fn new(
        journal: Arc<Journal>,
        clock: Arc<dyn Clock>,
        node: NodeId,
        last_ms: TimestampMs,
        gaps: Gaps,
    ) -> JournalLog {
        JournalLog { journal, clock, node, gaps, time_ms: Arc::new(AtomicI64::new(last_ms)) }
    }

    fn stamp(&self) -> TimestampMs {
        let now = self.clock.now_ms();
        self.time_ms.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// The entries from `from` to before `end` that are there, as many as fit into `bytes_max` and at least one.
    fn read(&self, from: u64, end: u64, bytes_max: usize) -> io::Result<Vec<RaftEntry>> {
        let frames = self.journal.read_range(Index(from), Index(end), bytes_max).map_err(io_error)?;
        let mut entries = Vec::with_capacity(frames.len());
        for (frame, expected) in frames.iter().zip(from..) {
            // A frame of a kind that this version may pass over is passed over by the journal; a group cannot do that.
            if frame.index.0 != expected {
                return Err(io::Error::other(format!("entry {expected} cannot be read by this version")));
            }
            entries.push(entry_of(frame)?);
        }
        Ok(entries)
    }

    fn log_id_at(&self, index: Index) -> io::Result<Option<RaftLogId>> {
        let view = self.journal.view();
        for known in [view.purged, view.last].into_iter().flatten() {
            if known.0 == index {
                return Ok(Some(log_id(known.1, index)));
            }
        }
        Ok(self.read(index.0, index.0 + 1, 1)?.first().map(|e| e.log_id))
    }
}

fn io_error(e: polylogue_log::Error) -> io::Error {
    let kind = match e.kind {
        ErrorKind::StorageFull => io::ErrorKind::StorageFull,
        ErrorKind::Damaged => io::ErrorKind::InvalidData,
        ErrorKind::Invalid | ErrorKind::OutOfRange => io::ErrorKind::InvalidInput,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, e)
}

/// The range as first and after the last index.
fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(n) => *n,
        Bound::Excluded(n) => n + 1,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(n) => n + 1,
        Bound::Excluded(n) => *n,
        Bound::Unbounded => u64::MAX,
    };
    (from, end)
}

impl RaftLogReader<Group> for JournalLog {
    async fn try_get_log_entries<R>(&mut self, range: R) -> Result<Vec<RaftEntry>, io::Error>
    where
        R: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let view = self.journal.view();
        let (from, end) = bounds(&range);
        let (mut next, end) = (from.max(view.first.0), end.min(view.next.0));
        let mut all = Vec::new();
        while next < end {
            let more = self.read(next, end, READ_BYTES_MAX)?;
            if more.is_empty() {
                return Err(io::Error::other(format!("entry {next} is in the log and cannot be read")));
            }
            next += more.len() as u64;
            all.extend(more);
        }
        Ok(all)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<RaftEntry>, io::Error> {
        self.read(start, end, READ_BYTES_MAX)
    }

    async fn read_vote(&mut self) -> Result<Option<RaftVote>, io::Error> {
        let vote = self.journal.read_vote();
        Ok(vote.map(|v| RaftVote { leader_id: LeaderId::new(v.term.0, v.node.0), committed: v.committed }))
    }
}

impl RaftLogStorage<Group> for JournalLog {
    type LogReader = JournalLog;

    async fn get_log_state(&mut self) -> Result<LogState<Group>, io::Error> {
        let view = self.journal.view();
        let id = |(index, term)| log_id(term, index);
        Ok(LogState { last_purged_log_id: view.purged.map(id), last_log_id: view.last.map(id) })
    }

    async fn get_log_reader(&mut self) -> JournalLog {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &RaftVote) -> Result<(), io::Error> {
        let LeaderId { term, voted_for } = vote.leader_id;
        let vote = Vote { term: Term(term), node: NodeId(voted_for), committed: vote.committed };
        self.journal.save_vote(vote).map_err(io_error)
    }

    async fn save_committed(&mut self, committed: Option<RaftLogId>) -> Result<(), io::Error> {
        let Some(id) = committed else { return Ok(()) };
        self.journal.save_committed(Index(id.index())).map_err(io_error)
    }

    async fn read_committed(&mut self) -> Result<Option<RaftLogId>, io::Error> {
        let Some(saved) = self.journal.read_committed() else { return Ok(None) };
        // What is purged is committed: a snapshot covers it.
        let purged = self.journal.view().purged.map_or(Index(0), |(index, _)| index);
        self.log_id_at(saved.max(purged))
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<Group>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let time_ms = self.stamp();
        let frames = entries.into_iter().map(|e| append_of(e, self.node, time_ms));
        let frames = frames.collect::<io::Result<Vec<_>>>()?;
        if let Some(first) = frames.first()
            && self.gaps == Gaps::Purged
            && self.journal.view().next == Index(0)
            && let Some(before) = first.index.0.checked_sub(1)
        {
            self.journal.purge(Index(before), first.term).map_err(io_error)?;
        }
        let flushed = Box::new(move |result: polylogue_log::Result<()>| flushed.io_completed(result.map_err(io_error)));
        self.journal.append(frames, flushed).map_err(io_error)
    }

    async fn truncate_after(&mut self, last: Option<RaftLogId>) -> Result<(), io::Error> {
        self.journal.truncate_after(last.map(|id| Index(id.index()))).map_err(io_error)
    }

    async fn purge(&mut self, upto: RaftLogId) -> Result<(), io::Error> {
        self.journal.purge(Index(upto.index()), term_of(&upto)).map_err(io_error)
    }
}
