//! The memory provider's window of recent frames, its barrier, and what becomes of a fenced writer's proposals.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_env::sim::SimWorld;
use polylogue_log::journal::{CommitSink, Outcome, Proposal};
use polylogue_log::{ErrorKind, Frame, Kind};
use polylogue_replicate::memory::{Bounds, MemoryLog};
use polylogue_replicate::{ReadLevel, ShardLog as _, Work};
use polylogue_types::{Index, NodeId, ShardId, Term};
use std::sync::Arc;

const RECENT_MAX: usize = 4;

#[derive(Default)]
struct Outcomes(Mutex<Vec<(u64, Outcome)>>);

impl CommitSink for Outcomes {
    fn committed(&self, _: &[Arc<Frame>], outcomes: &[(u64, Outcome)]) {
        self.0.lock().extend_from_slice(outcomes);
    }
}

fn open() -> (MemoryLog, Arc<Outcomes>) {
    let outcomes = Arc::new(Outcomes::default());
    let bounds = Bounds { recent_count_max: RECENT_MAX, ..Bounds::default() };
    let env = SimWorld::new(1).env();
    (MemoryLog::with_bounds(env, ShardId(0), NodeId(1), Term(0), outcomes.clone(), bounds), outcomes)
}

fn cut(term: Term, ticket: u64) -> Proposal {
    let body = Bytes::from_static(b"cut");
    Proposal { kind: Kind::SegmentCut, body, ..Proposal::data(term, ticket, Vec::new()) }
}

#[test]
fn a_fenced_writers_accepted_proposals_have_one_outcome_each_and_later_ones_are_refused() {
    let (log, outcomes) = open();
    let old = log.acquire().unwrap();
    (0..20).for_each(|ticket| log.try_propose(cut(old, ticket)).unwrap());
    let new = log.acquire().unwrap();
    assert_eq!(log.try_propose(cut(old, 20)).unwrap_err().kind, ErrorKind::Fenced);
    log.try_propose(cut(new, 21)).unwrap();
    while log.step(Work::Flush) {}
    let tickets: Vec<_> = outcomes.0.lock().iter().map(|(ticket, _)| *ticket).collect();
    assert_eq!(tickets, (0..20).chain([21]).collect::<Vec<_>>());
}

#[test]
fn the_oldest_frames_are_evicted_first_and_the_newest_can_be_read() {
    let (log, _) = open();
    let term = log.acquire().unwrap();
    for ticket in 0..20 {
        log.try_propose(cut(term, ticket)).unwrap();
        log.step(Work::Flush);
        let view = log.view();
        let committed = view.committed.unwrap();
        let kept = (committed.0 + 1).min(RECENT_MAX as u64);
        assert_eq!(view.first, Index(committed.0 + 1 - kept));
        let indexes: Vec<_> = log.read(view.first, usize::MAX).unwrap().iter().map(|frame| frame.index.0).collect();
        assert_eq!(indexes, (view.first.0..=committed.0).collect::<Vec<_>>());
        if view.first > Index(0) {
            assert_eq!(log.read(Index(view.first.0 - 1), 1).unwrap_err().kind, ErrorKind::OutOfRange);
        }
    }
}

#[test]
fn a_barrier_does_not_include_a_proposal_that_is_not_committed() {
    let (log, outcomes) = open();
    let term = log.acquire().unwrap();
    for ticket in 0..10 {
        let before = log.view().committed;
        log.try_propose(cut(term, ticket)).unwrap();
        assert_eq!(log.barrier(ReadLevel::Quorum).unwrap(), before);
        log.step(Work::Flush);
        let last = outcomes.0.lock().last().map(|(_, outcome)| format!("{outcome:?}"));
        let barrier = log.barrier(ReadLevel::Quorum).unwrap().unwrap();
        assert_eq!(last, Some(format!("{:?}", Outcome::Committed(barrier))));
    }
}
