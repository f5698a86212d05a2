//! What every [`ShardLog`] must keep, as functions that a provider's tests call.
//!
//! A provider is given as a maker: it opens an empty log with the sink that it is handed. The suite drives it by
//! [`ShardLog::step`], without threads, so that a failure repeats.

use crate::{ReadLevel, Role, ShardLog, Sink, Work};
use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_log::journal::{CommitSink, Draft, Outcome, Proposal};
use polylogue_log::{ErrorKind, Frame};
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::{Body, Envelope, Form};
use polylogue_types::{Index, Offset, Ordinal, PartitionId, Term};
use std::sync::Arc;

/// Opens an empty log.
pub type Maker<'a> = &'a dyn Fn(Sink) -> Arc<dyn ShardLog>;

/// More steps than any test here can need; a log that is not done by then never will be.
const STEPS_MAX: usize = 10_000;

/// Remembers what it is told.
#[derive(Debug, Default)]
pub struct Recorder {
    frames: Mutex<Vec<Arc<Frame>>>,
    outcomes: Mutex<Vec<(u64, Outcome)>>,
}

impl CommitSink for Recorder {
    fn committed(&self, frames: &[Arc<Frame>], outcomes: &[(u64, Outcome)]) {
        let mut known = self.frames.lock();
        known.extend(frames.iter().cloned());
        for (ticket, outcome) in outcomes {
            if let Outcome::Committed(index) = outcome {
                assert!(known.iter().any(|f| f.index == *index), "ticket {ticket}: its frame was not shown before");
            }
        }
        self.outcomes.lock().extend_from_slice(outcomes);
    }
}

struct Case {
    log: Arc<dyn ShardLog>,
    seen: Arc<Recorder>,
}

impl Case {
    fn new(make: Maker<'_>) -> Case {
        let seen = Arc::new(Recorder::default());
        Case { log: make(seen.clone()), seen }
    }

    fn drive(&self) {
        for _ in 0..STEPS_MAX {
            let mut did = false;
            for work in [Work::Write, Work::Flush, Work::Background] {
                did |= self.log.step(work);
            }
            if !did {
                return;
            }
        }
    }

    fn entries(&self) -> Vec<(PartitionId, Offset, Bytes)> {
        let frames = self.seen.frames.lock();
        let entries = frames.iter().flat_map(|f| f.entries.iter().map(move |e| (f, e)));
        entries.map(|(f, e)| (e.envelope.partition, e.envelope.base_offset, f.native(e))).collect()
    }

    fn committed(&self) -> Vec<u64> {
        let outcomes = self.seen.outcomes.lock();
        outcomes.iter().filter(|(_, o)| matches!(o, Outcome::Committed(_))).map(|(t, _)| *t).collect()
    }
}

fn draft(partition: u64, offset: u64, text: &str) -> Draft {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    let mut envelope = Envelope::new(PartitionId(partition), Form::Opaque);
    envelope.base_offset = Offset(offset);
    envelope.ordinal = Ordinal(offset);
    envelope.count = 1;
    envelope.body = Body::Inline { len: bytes.len() as u32, checksum: crc32c(&bytes) };
    Draft::new(envelope, bytes)
}

/// All of them.
///
/// # Panics
/// When the provider breaks the contract; the text says which part.
#[allow(clippy::expect_used, clippy::panic, reason = "a test suite")]
pub fn all(make: Maker<'_>) {
    commits_in_order(make);
    clusters_a_proposal_by_partition(make);
    fences_the_old_term(make);
    shows_nothing_uncommitted(make);
    reads_and_trims(make);
    seals(make);
    stops(make);
}

#[allow(clippy::expect_used, clippy::panic, reason = "a test suite")]
fn commits_in_order(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("a new log can be acquired");
    for ticket in 0..100 {
        let proposal = Proposal::data(term, ticket, vec![draft(2000, ticket, &format!("entry {ticket}"))]);
        case.log.try_propose(proposal).expect("an idle log takes proposals");
        if ticket % 7 == 0 {
            case.drive();
        }
    }
    case.drive();
    assert_eq!(case.committed(), (0..100).collect::<Vec<_>>(), "each ticket has one outcome, in order");
    let offsets: Vec<_> = case.entries().iter().map(|(_, offset, _)| offset.0).collect();
    assert_eq!(offsets, (0..100).collect::<Vec<_>>(), "the order of calls is the order in the log");
    let frames = case.seen.frames.lock();
    for pair in frames.windows(2) {
        assert_eq!(pair[1].index, pair[0].index.next(), "indexes have no gaps");
        assert!(pair[1].term >= pair[0].term && pair[1].time_ms >= pair[0].time_ms, "term and time never go back");
    }
}

#[allow(clippy::expect_used, clippy::panic, reason = "a test suite")]
fn clusters_a_proposal_by_partition(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("acquire");
    let entries = vec![draft(2001, 0, "b0"), draft(2000, 0, "a0"), draft(2001, 1, "b1"), draft(2000, 1, "a1")];
    case.log.try_propose(Proposal::data(term, 0, entries)).expect("propose");
    case.drive();
    let texts: Vec<_> = case.entries().into_iter().map(|(_, _, bytes)| bytes).collect();
    assert_eq!(texts, ["a0", "a1", "b0", "b1"], "by partition, then in the order proposed");
}

#[allow(clippy::expect_used, clippy::panic, reason = "a test suite")]
fn fences_the_old_term(make: Maker<'_>) {
    let case = Case::new(make);
    let old = case.log.acquire().expect("acquire");
    case.log.try_propose(Proposal::data(old, 0, vec![draft(2000, 0, "of the old term")])).expect("propose");
    case.drive();
    let new = case.log.acquire().expect("acquire again");
    assert!(new > old, "terms grow");
    let refused = case.log.try_propose(Proposal::data(old, 1, vec![draft(2000, 1, "too late")]));
    assert_eq!(refused.expect_err("the old term is over").kind, ErrorKind::Fenced);
    case.log.try_propose(Proposal::data(new, 2, vec![draft(2000, 1, "of the new term")])).expect("propose");
    case.drive();
    assert_eq!(case.committed(), [0, 2]);
    assert_eq!(case.log.view().term, new);
}

#[allow(clippy::expect_used, clippy::panic, reason = "a test suite")]
fn shows_nothing_uncommitted(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("acquire");
    case.drive();
    case.log.try_propose(Proposal::data(term, 0, vec![draft(2000, 0, "not yet")])).expect("propose");
    let committed = case.log.barrier(ReadLevel::Quorum).expect("barrier");
    let shown = case.log.read(case.log.view().first, 1 << 20).expect("read");
    assert!(shown.iter().all(|f| Some(f.index) <= committed), "a reader never sees above the commit index");
    assert!(case.entries().is_empty(), "the sink never hears of what is not committed");
}

#[allow(clippy::expect_used, clippy::panic, reason = "a test suite")]
fn reads_and_trims(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("acquire");
    for ticket in 0..20 {
        case.log.try_propose(Proposal::data(term, ticket, vec![draft(2000, ticket, "x")])).expect("propose");
        case.drive();
    }
    let committed = case.log.view().committed.expect("something is committed");
    let first = case.log.view().first;
    let mut next = first;
    let mut entries = 0;
    while next <= committed {
        let frames = case.log.read(next, 1).expect("read");
        assert!(!frames.is_empty(), "at least one frame, however small the bound");
        for frame in frames {
            assert_eq!(frame.index, next, "frames come without gaps");
            entries += frame.entries.len();
            next = next.next();
        }
    }
    assert_eq!(entries, 20);
    let beyond = case.log.trim(Index(committed.0 + 1000));
    assert!(beyond.is_err(), "what is not committed cannot be trimmed");
    case.log.trim(Index(committed.0 - 1)).expect("trim");
    case.drive();
}

#[allow(clippy::expect_used, clippy::panic, reason = "a test suite")]
fn seals(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("acquire");
    assert!(case.log.seal(Term(term.0 + 100)).is_err(), "only the writer seals");
    case.log.seal(term).expect("seal");
    let refused = case.log.try_propose(Proposal::data(term, 0, vec![draft(2000, 0, "after the end")]));
    assert_eq!(refused.expect_err("sealed").kind, ErrorKind::Fenced);
}

#[allow(clippy::expect_used, clippy::panic, reason = "a test suite")]
fn stops(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("acquire");
    case.log.try_propose(Proposal::data(term, 0, vec![draft(2000, 0, "the last one")])).expect("propose");
    case.log.shutdown();
    assert_eq!(case.committed(), [0], "what was taken before a clean stop is committed");
    let refused = case.log.try_propose(Proposal::data(term, 1, vec![draft(2000, 1, "after the end")]));
    assert_eq!(refused.expect_err("stopped").kind, ErrorKind::Stopped);
    assert_eq!(case.log.view().role, Role::Stopped);
    case.log.shutdown();
}
