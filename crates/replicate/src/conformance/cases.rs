//! One case for each part of the contract.

use super::{Case, Maker, Mark, QUEUE_BYTES_MAX, Recorder, marks, small};
use crate::{ReadLevel, Role, ShardLog, Work};
use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_log::journal::{CommitSink, Outcome, Proposal};
use polylogue_log::{ErrorKind, Frame, Kind};
use polylogue_record::envelope::Body;
use polylogue_types::{Index, Term};
use std::sync::{Arc, OnceLock, Weak};

/// The size of the entries that fill a queue. Bytes.
const FILLER_BYTES: usize = 64 << 10;

pub(super) fn all(make: Maker<'_>) {
    commits_in_order(make);
    clusters_a_proposal_by_partition(make);
    refuses_what_breaks_its_rules(make);
    refuses_when_busy_and_keeps_the_order(make);
    has_no_writer_before_one_is_acquired(make);
    fences_the_old_term(make);
    begins_a_term_behind_the_old_one(make);
    shows_nothing_uncommitted(make);
    reads_and_trims(make);
    seals(make);
    stops(make);
    says_no_when_the_disk_is_full(make);
    keeps_what_is_committed(make);
}

fn commits_in_order(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("a new log can be acquired");
    for ticket in 0..100 {
        case.log.try_propose(small(term, ticket)).expect("an idle log takes proposals");
        if ticket % 7 == 0 {
            case.drive();
        }
    }
    case.drive();
    assert_eq!(case.committed(), (0..100).collect::<Vec<_>>(), "each ticket has one outcome, in order");
    assert_eq!(case.reported_tickets(), (0..100).collect::<Vec<_>>(), "the order of calls is the order in the log");
}

fn clusters_a_proposal_by_partition(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("acquire");
    let mark = |entry| Mark { term, ticket: 0, entry };
    let mut reference = mark(9).draft(2000, 0);
    (reference.bytes, reference.envelope.body) = (Bytes::new(), Body::Ref { entry: 1 });
    // The reference comes to stand before what it refers to.
    let entries = vec![reference, mark(1).draft(2002, 50), mark(2).draft(2001, 0), mark(3).draft(2002, 0)];
    case.log.try_propose(Proposal::data(term, 0, entries)).expect("propose");
    case.drive();
    let frames = case.frames();
    let found: Vec<_> = marks(&frames).into_iter().map(|(p, _, mark)| (p.0, mark.entry)).collect();
    assert_eq!(found, [(2000, 1), (2001, 2), (2002, 1), (2002, 3)], "by partition, then in the order proposed");
    let entries = frames.iter().flat_map(|f| &f.entries);
    let reference = entries.map(|e| e.envelope.body).find(|b| matches!(b, Body::Ref { .. }));
    assert_eq!(reference, Some(Body::Ref { entry: 2 }), "a reference counts the entries of the frame");
}

fn refuses_what_breaks_its_rules(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("acquire");
    let entry = Mark { term, ticket: 0, entry: 0 }.draft(2000, 100);
    let data = |entries| Proposal::data(term, 0, entries);
    let mut short = entry.clone();
    short.bytes = short.bytes.slice(..99);
    let mut dangling = entry.clone();
    (dangling.bytes, dangling.envelope.body) = (Bytes::new(), Body::Ref { entry: 2 });
    let mut circular = dangling.clone();
    circular.envelope.body = Body::Ref { entry: 0 };
    let body = Bytes::from_static(b"body");
    let bad = [
        data(Vec::new()),
        data(vec![short]),
        data(vec![entry.clone(), dangling]),
        data(vec![circular]),
        Proposal { body: body.clone(), ..data(vec![entry.clone()]) },
        Proposal { kind: Kind::SegmentCut, body: body.clone(), ..data(vec![entry]) },
        Proposal { kind: Kind::Noop, body: body.clone(), ..data(Vec::new()) },
        Proposal { kind: Kind::Vote, body: body.clone(), ..data(Vec::new()) },
    ];
    for (i, proposal) in bad.into_iter().enumerate() {
        let refused = case.log.try_propose(proposal).expect_err("a proposal that breaks its rules");
        assert_eq!(refused.kind, ErrorKind::Invalid, "proposal {i}");
    }
    let cut = Proposal { kind: Kind::SegmentCut, body: body.clone(), ..data(Vec::new()) };
    case.log.try_propose(cut).expect("a cut has a body and no entries");
    case.drive();
    let last = case.frames().pop().expect("the cut");
    assert_eq!((last.kind, last.body.clone()), (Kind::SegmentCut, body));
    assert_eq!(case.outcomes(), [(0, Outcome::Committed(last.index))]);
}

fn refuses_when_busy_and_keeps_the_order(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("acquire");
    case.drive();
    let filler = |ticket| {
        let mark = Mark { term, ticket, entry: 0 };
        Proposal::data(term, ticket, vec![mark.draft(2000 + ticket % 3, FILLER_BYTES)])
    };
    let (mut next, mut settled) = (0, 0);
    for round in 0..2 {
        let most = next + 2 * (QUEUE_BYTES_MAX / FILLER_BYTES) as u64;
        let refused = (next..most).find_map(|ticket| case.log.try_propose(filler(ticket)).err());
        let refused = refused.expect("a queue has a bound");
        assert_eq!(refused.kind, ErrorKind::Busy, "round {round}");
        let back = *refused.proposal;
        assert!(back.ticket > next, "an empty queue takes something");
        assert_eq!(back.entries.first().map(|d| d.bytes.len()), Some(FILLER_BYTES), "it comes back whole");
        assert_eq!(case.committed(), (0..settled).collect::<Vec<_>>(), "a refusal settles nothing");
        case.drive();
        settled = back.ticket;
        case.log.try_propose(back).expect("there is room again");
        next = settled + 1;
    }
    case.drive();
    assert_eq!(
        case.committed(),
        (0..next).collect::<Vec<_>>(),
        "what was refused has no outcome but that of the second try"
    );
    let mut tickets = case.reported_tickets();
    tickets.sort_unstable();
    assert_eq!(tickets, (0..next).collect::<Vec<_>>(), "nothing is there twice");
    for partition in 2000..2003 {
        let all = marks(&case.frames());
        let own: Vec<_> = all.into_iter().filter(|(p, _, _)| p.0 == partition).map(|(_, _, m)| m.ticket).collect();
        assert!(own.is_sorted(), "partition {partition} is in order");
    }
}

fn has_no_writer_before_one_is_acquired(make: Maker<'_>) {
    let case = Case::new(make);
    let view = case.log.view();
    assert_eq!(view.role, Role::Follower);
    let refused = case.log.try_propose(small(view.term, 0));
    assert_eq!(refused.expect_err("no term is acquired").kind, ErrorKind::Fenced);
    let term = case.log.acquire().expect("acquire");
    assert!(term > view.term, "terms grow");
    assert_eq!(case.log.view().role, Role::Writer);
}

fn fences_the_old_term(make: Maker<'_>) {
    let case = Case::new(make);
    let old = case.log.acquire().expect("acquire");
    // Accepted and not yet written when the next term begins.
    case.log.try_propose(small(old, 0)).expect("propose");
    let new = case.log.acquire().expect("acquire again");
    assert!(new > old, "terms grow");
    let refused = case.log.try_propose(small(old, 1));
    assert_eq!(refused.expect_err("the old term is over").kind, ErrorKind::Fenced);
    case.log.try_propose(small(new, 2)).expect("propose");
    case.drive();
    assert_eq!(case.committed(), [0, 2]);
    assert_eq!(case.log.view().term, new);
    assert_eq!(case.reported_tickets(), [0, 2]);
}

/// A sink that proposes at each commit, in the term that it was given, as long as it has tickets.
#[derive(Default)]
struct Echo {
    recorder: Arc<Recorder>,
    log: OnceLock<Weak<dyn ShardLog>>,
    term: Mutex<Option<(Term, std::ops::Range<u64>)>>,
    accepted: Mutex<Vec<u64>>,
}

impl CommitSink for Echo {
    fn committed(&self, frames: &[Arc<Frame>], outcomes: &[(u64, Outcome)]) {
        self.recorder.committed(frames, outcomes);
        let next = self.term.lock().as_mut().and_then(|(term, tickets)| Some((*term, tickets.next()?)));
        if let (Some((term, ticket)), Some(log)) = (next, self.log.get().and_then(Weak::upgrade))
            && log.try_propose(small(term, ticket)).is_ok()
        {
            self.accepted.lock().push(ticket);
        }
    }
}

fn begins_a_term_behind_the_old_one(make: Maker<'_>) {
    let place = make(1);
    let echo = Arc::new(Echo::default());
    let log = place.open(echo.clone(), Index(0));
    let case = Case { place, log, seen: echo.recorder.clone() };
    let _ = echo.log.set(Arc::downgrade(&case.log));
    let old = case.log.acquire().expect("acquire");
    case.drive();
    // While the next term is taken this one is delivered, and the sink goes on proposing in the old term.
    case.log.try_propose(small(old, 0)).expect("propose");
    *echo.term.lock() = Some((old, 1..5));
    let new = case.log.acquire().expect("acquire again");
    case.log.try_propose(small(new, 10)).expect("propose");
    case.drive();
    // That no frame's term goes back, and no entry is in a frame of another term, is seen to on the way.
    let mut expected = vec![0];
    expected.extend(echo.accepted.lock().iter());
    expected.push(10);
    assert_eq!(case.reported_tickets(), expected, "every accepted entry is in the log");
    assert_eq!(case.committed(), expected);
}

fn shows_nothing_uncommitted(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("acquire");
    case.drive();
    case.log.try_propose(small(term, 0)).expect("propose");
    for work in [None, Some(Work::Write), Some(Work::Background)] {
        if let Some(work) = work {
            case.log.step(work);
        }
        let view = case.log.view();
        let barrier = case.log.barrier(ReadLevel::Quorum).expect("barrier");
        assert_eq!(barrier, view.committed);
        let read = case.read_all();
        assert_eq!(
            read.last().map(|f| f.index),
            view.committed,
            "a reader sees what is committed and nothing above it"
        );
        assert_eq!(marks(&read).len(), case.committed().len(), "what can be read has its outcome");
        assert_eq!(case.reported_tickets().len(), case.committed().len(), "the sink receives committed entries only");
        let after = view.committed.map_or(view.first, Index::next);
        assert!(case.log.read(after, 4096).expect("right behind the end").is_empty());
        assert!(case.log.read(after.next(), 4096).is_err(), "there is nothing to wait for up there");
    }
    case.drive();
    assert_eq!(case.committed(), [0]);
}

fn reads_and_trims(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("acquire");
    for ticket in 0..20 {
        case.log.try_propose(small(term, ticket)).expect("propose");
        case.drive();
    }
    case.settle();
    let view = case.log.view();
    let committed = view.committed.expect("something is committed");
    let one = case.log.read(view.first, 1).expect("read");
    assert_eq!(one.len(), 1, "one frame does not fit, and comes all the same");
    assert_eq!(marks(&case.read_all()).len(), 20);
    let beyond = case.log.trim(committed.next()).expect_err("what is not committed cannot be trimmed");
    assert_eq!(beyond.kind, ErrorKind::Invalid);
    let upto = Index(committed.0 - 1);
    case.log.trim(upto).expect("trim");
    assert_eq!(case.log.view().first, committed);
    assert_eq!(case.log.read(upto, 4096).expect_err("it is gone").kind, ErrorKind::OutOfRange);
    assert_eq!(marks(&case.read_all()).len(), 1);
    case.log.trim(upto).expect("trimming twice is nothing new");
    case.log.trim(committed).expect("trim everything");
    assert_eq!(case.log.view().first, committed.next());
    case.log.try_propose(small(term, 20)).expect("propose");
    case.settle();
    assert_eq!(marks(&case.read_all()).len(), 1, "the log goes on");
}

fn seals(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("acquire");
    assert_eq!(case.log.seal(Term(term.0 + 100)).expect_err("not the writer").kind, ErrorKind::Fenced);
    case.log.try_propose(small(term, 0)).expect("propose");
    let end = case.log.seal(term).expect("seal");
    assert_eq!(case.committed(), [0], "what was accepted before the end is committed when the end is known");
    assert_eq!(end, case.log.view().committed);
    let view = case.log.view();
    assert_eq!(view.role, Role::Follower, "there is no writer");
    for over in [term, view.term] {
        assert_eq!(case.log.seal(over).expect_err("it is over").kind, ErrorKind::Fenced);
    }
    let refused = case.log.try_propose(small(term, 1));
    assert_eq!(refused.expect_err("sealed").kind, ErrorKind::Fenced);
    case.drive();
    assert_eq!(case.log.view().committed, end, "the end is the end");
    assert!(case.log.acquire().expect("a new writer may come") > view.term);
    assert_eq!(case.log.view().role, Role::Writer);
}

fn stops(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("acquire");
    case.log.try_propose(small(term, 0)).expect("propose");
    case.log.shutdown();
    assert_eq!(case.committed(), [0], "what was taken before a clean stop is committed");
    assert_eq!(case.log.view().role, Role::Stopped);
    let refused = case.log.try_propose(small(term, 1));
    assert_eq!(refused.expect_err("stopped").kind, ErrorKind::Stopped);
    let first = case.log.view().first;
    let errors = [
        case.log.acquire().err(),
        case.log.barrier(ReadLevel::Lease).err(),
        case.log.trim(first).err(),
        case.log.seal(term).err(),
    ];
    for error in errors {
        assert_eq!(error.expect("stopped").kind, ErrorKind::Stopped);
    }
    assert_eq!(marks(&case.read_all()).len(), 1, "reading goes on");
    case.log.shutdown();
}

fn says_no_when_the_disk_is_full(make: Maker<'_>) {
    let case = Case::new(make);
    let old = case.log.acquire().expect("acquire");
    case.log.try_propose(small(old, 0)).expect("propose");
    case.drive();
    if !case.place.fail_write() {
        return;
    }
    for ticket in 1..4 {
        case.log.try_propose(small(old, ticket)).expect("propose");
    }
    case.drive();
    let refused: Vec<_> = case.outcomes().into_iter().skip(1).collect();
    assert_eq!(
        refused,
        [1, 2, 3].map(|t| (t, Outcome::NotCommitted)),
        "nothing of it is in the log, and that is known"
    );
    assert_ne!(case.log.view().role, Role::Writer, "the writer is lost: it has to look at the log again");
    let fenced = case.log.try_propose(small(old, 4));
    assert_eq!(fenced.expect_err("the writer is lost").kind, ErrorKind::Fenced);
    let new = case.log.acquire().expect("there is room again");
    assert!(new > old, "terms grow");
    case.drive();
    case.log.try_propose(small(new, 5)).expect("propose");
    case.drive();
    assert_eq!(case.committed(), [0, 5]);
    assert_eq!(case.reported_tickets(), [0, 5]);
    let Some(case) = case.crash(Index(0)) else { return };
    let read = case.read_all();
    let tickets: Vec<_> = marks(&read).into_iter().map(|(_, _, mark)| mark.ticket).collect();
    assert_eq!(tickets, [0, 5], "what is not committed never comes");
}

fn keeps_what_is_committed(make: Maker<'_>) {
    let case = Case::new(make);
    let term = case.log.acquire().expect("acquire");
    for ticket in 0..10 {
        case.log.try_propose(small(term, ticket)).expect("propose");
        case.drive();
    }
    let before = marks(&case.frames());
    let Some(case) = case.crash(Index(0)) else { return };
    assert_eq!(marks(&case.read_all()), before, "it is there, at its place");
    assert!(case.log.acquire().expect("acquire") > term, "terms grow, over restarts too");
}
