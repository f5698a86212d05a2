//! Tests of writing, group commit, order, lazy writes and marks: one journal on a simulated disk, stepped manually.

use crate::journal_common;

use bytes::Bytes;
use journal_common::*;
use polylogue_env::sim::SimWorld;
use polylogue_log::journal::{Draft, Durability, Outcome, Patch, Proposal};
use polylogue_log::{ErrorKind, Kind};
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::Body;
use polylogue_types::{Index, Term};

#[test]
fn a_life_begins_with_a_membership_and_a_vote() {
    let world = SimWorld::new(1);
    let (journal, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
    assert!(journal.recovery().started);
    assert_eq!(kinds(&visited), [Kind::Membership]);
    let vote = journal.read_vote().expect("a vote");
    assert_eq!((vote.term, vote.node, vote.committed), (Term(1), identity().node, true));
    let members = polylogue_log::frame::MembershipBody::decode(&visited[0].body).expect("a body");
    assert_eq!(members.voters, [identity().node]);
    assert_eq!(journal.acquire().expect("a term"), Term(2));
    assert_eq!(journal.view().last, Some((Index(1), Term(2))));
}

#[test]
fn what_is_committed_is_read_back_now_and_after_a_power_cut() {
    let world = SimWorld::new(2);
    let node = Node::start(&world, config()).expect("starts");
    assert_eq!(node.write(1, 5, 0, 100), Some(Outcome::Committed(Index(2))));
    assert_eq!(node.write(2, 5, 1, 200), Some(Outcome::Committed(Index(3))));
    let expected = vec![entry(5, 0, &payload(1, 100)), entry(5, 1, &payload(2, 200))];
    assert_eq!(contents_of(&node.sink.frames()), expected);
    let read = node.journal.read(Index(0), usize::MAX).expect("reads");
    assert_eq!(read.iter().map(|f| f.index.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(contents_of(&read), expected);
    world.disk.crash_losing_all();
    let world_env = world.env();
    let (journal, visited) = open_in(&world_env, config(), Index(0)).expect("opens");
    assert_eq!(contents(&visited), expected);
    assert_eq!(journal.acquire().expect("a term"), Term(3));
}

/// Regression test: a frame written between a group's write and its flush waited for that flush and another one.
#[test]
fn what_came_before_a_flush_begins_goes_with_it() {
    let world = SimWorld::new(31);
    let node = Node::start(&world, config()).expect("starts");
    let before = node.journal.stats().flush.count;
    node.propose(1, vec![draft(5, 0, payload(1, 100))]).expect("taken");
    node.journal.write_step();
    node.propose(2, vec![draft(5, 1, payload(2, 100))]).expect("taken");
    node.journal.flush_step();
    assert_eq!(node.journal.stats().flush.count - before, 1);
    for ticket in [1, 2] {
        assert!(matches!(node.sink.outcome(ticket), Some(Outcome::Committed(_))), "{ticket}");
    }
    world.disk.crash_losing_all();
    let (_, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
    assert_eq!(contents(&visited), [entry(5, 0, &payload(1, 100)), entry(5, 1, &payload(2, 100))]);
}

#[test]
fn what_takes_long_to_write_does_not_hold_up_a_flush() {
    let world = SimWorld::new(32);
    let node = Node::start(&world, config()).expect("starts");
    node.propose(1, vec![draft(5, 0, payload(1, 100))]).expect("taken");
    node.journal.write_step();
    node.propose(2, vec![draft(5, 1, payload(2, 100 << 10))]).expect("taken");
    node.journal.flush_step();
    assert!(matches!(node.sink.outcome(1), Some(Outcome::Committed(_))));
    assert_eq!(node.sink.outcome(2), None);
    node.settle();
    assert!(matches!(node.sink.outcome(2), Some(Outcome::Committed(_))));
}

#[test]
fn a_frame_in_memory_is_the_frame_on_disk() {
    let world = SimWorld::new(3);
    let node = Node::start(&world, config()).expect("starts");
    for (ticket, bytes) in [(1, 10), (2, 5_000), (3, 40_000)] {
        node.write(ticket, 1, ticket, bytes);
    }
    for frame in node.sink.frames() {
        let place = frame.place.as_ref().expect("a place");
        assert_eq!(place.position % 64, 0);
        let mut on_disk = vec![0; place.len as usize];
        place.file.read_exact_at(&mut on_disk, place.position).expect("reads");
        assert_eq!(on_disk, frame.bytes);
        for entry in &frame.entries {
            let range = frame.file_range(entry.native.clone()).expect("a place");
            let mut native = vec![0; range.len as usize];
            range.source.read_exact_at(&mut native, range.position).expect("reads");
            assert_eq!(native, frame.native(entry));
        }
    }
}

#[test]
fn many_proposals_share_one_frame_and_one_flush() {
    let world = SimWorld::new(4);
    let node = Node::start(&world, config()).expect("starts");
    let before = node.journal.stats();
    for i in 0..50 {
        node.propose(i, vec![draft(i % 5, i / 5, payload(i, 100))]).expect("taken");
    }
    node.settle();
    let after = node.journal.stats();
    assert_eq!(after.flush.count - before.flush.count, 1);
    assert_eq!(after.frames - before.frames, 1);
    let tickets: Vec<u64> = node.sink.outcomes().iter().map(|(t, _)| *t).collect();
    assert_eq!(tickets, (0..50).collect::<Vec<_>>());
}

#[test]
fn entries_are_clustered_by_partition_and_keep_their_order_within() {
    let world = SimWorld::new(5);
    let node = Node::start(&world, config()).expect("starts");
    node.propose(1, vec![draft(9, 0, payload(1, 10)), draft(2, 0, payload(2, 20))]).expect("taken");
    node.propose(2, vec![draft(9, 1, payload(3, 30)), draft(2, 1, payload(4, 40))]).expect("taken");
    node.settle();
    let frames = node.sink.frames();
    let order: Vec<_> = contents_of(&frames).into_iter().map(|(p, o, _)| (p, o)).collect();
    assert_eq!(order, [(2, 0), (2, 1), (9, 0), (9, 1)]);
    let frame = frames.last().expect("a frame");
    for pair in frame.entries.windows(2) {
        assert_eq!(pair[0].native.end, pair[1].native.start, "no gap between native bytes");
    }
}

#[test]
fn references_point_to_the_bytes_of_their_own_proposal_after_sorting() {
    let world = SimWorld::new(6);
    let node = Node::start(&world, config()).expect("starts");
    node.propose(1, vec![draft(1, 0, payload(1, 10))]).expect("taken");
    // The body is in partition 8; sorted, the references are before and after it.
    node.propose(2, vec![draft(8, 0, payload(2, 77)), reference(3, 0, 0), reference(9, 0, 0)]).expect("taken");
    node.settle();
    let expected = vec![
        entry(1, 0, &payload(1, 10)),
        entry(3, 0, &payload(2, 77)),
        entry(8, 0, &payload(2, 77)),
        entry(9, 0, &payload(2, 77)),
    ];
    assert_eq!(contents_of(&node.sink.frames()), expected);
    let read = node.journal.read(Index(2), 1).expect("reads");
    assert_eq!(contents_of(&read), expected);
    assert_eq!(read[0].entries[1].envelope.body, Body::Ref { entry: 2 });
}

#[test]
fn a_patch_replaces_the_first_bytes() {
    let world = SimWorld::new(7);
    let node = Node::start(&world, config()).expect("starts");
    let patched = Bytes::from_static(b"ABCDefgh");
    let mut one = draft(1, 0, patched.clone());
    one.bytes = Bytes::from_static(b"abcdefgh");
    one.patch = Patch::new(b"ABCD").expect("short enough");
    node.propose(1, vec![one]).expect("taken");
    node.settle();
    assert_eq!(contents_of(&node.sink.frames()), [entry(1, 0, &patched)]);
    assert!(Patch::new(&[0; 33]).is_none());
}

#[test]
fn append_time_is_the_frame_time_and_never_goes_back() {
    let world = SimWorld::new(8);
    world.clock.advance_ms(1_000_000);
    let node = Node::start(&world, config()).expect("starts");
    node.write(1, 1, 0, 10);
    world.clock.jump_wall_ms(-500_000);
    node.write(2, 1, 1, 10);
    world.clock.jump_wall_ms(600_000);
    node.write(3, 1, 2, 10);
    let frames = node.sink.frames();
    let times: Vec<i64> = frames.iter().map(|f| f.time_ms).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times[3] > times[2]);
    for frame in frames {
        assert!(frame.entries.iter().all(|e| e.envelope.append_time == frame.time_ms));
    }
}

#[test]
fn a_lazy_proposal_is_written_after_a_millisecond_and_flushed_after_ten() {
    let world = SimWorld::new(9);
    let node = Node::start(&world, config()).expect("starts");
    world.clock.advance_ms(100);
    node.propose_lazy(1, vec![draft(1, 0, payload(1, 10))]).expect("taken");
    let (frames, flushes) = (node.journal.stats().frames, node.journal.stats().flush.count);
    node.settle();
    assert_eq!(node.journal.stats().frames, frames, "not due yet");
    world.clock.advance_ms(1);
    node.settle();
    assert_eq!(node.journal.stats().frames, frames + 1);
    assert_eq!(node.journal.stats().flush.count, flushes, "it does not start a flush");
    assert_eq!(node.sink.outcome(1), None);
    let deadline = node.journal.next_deadline_ns().expect("a deadline");
    assert_eq!(deadline, 110_000_000);
    world.clock.advance_ms(9);
    node.settle();
    assert_eq!(node.sink.outcome(1), Some(Outcome::Committed(Index(2))));
}

#[test]
fn a_lazy_proposal_is_flushed_with_the_next_urgent_one() {
    let world = SimWorld::new(10);
    let node = Node::start(&world, config()).expect("starts");
    let flushes = node.journal.stats().flush.count;
    node.propose_lazy(1, vec![draft(1, 0, payload(1, 10))]).expect("taken");
    node.propose(2, vec![draft(1, 1, payload(2, 10))]).expect("taken");
    node.propose_lazy(3, vec![draft(1, 2, payload(3, 10))]).expect("taken");
    node.settle();
    assert_eq!(node.journal.stats().flush.count, flushes + 1);
    let tickets: Vec<u64> = node.sink.outcomes().iter().map(|(t, _)| *t).collect();
    assert_eq!(tickets, [1, 2, 3]);
}

#[test]
fn an_async_journal_commits_when_written_and_flushes_in_time() {
    let world = SimWorld::new(11);
    let mut config = config();
    config.durability = Durability::Async;
    let node = Node::start(&world, config).expect("starts");
    let flushes = node.journal.stats().flush.count;
    assert_eq!(node.write(1, 1, 0, 10), Some(Outcome::Committed(Index(2))));
    assert_eq!(node.journal.stats().flush.count, flushes, "committed before any flush");
    assert_eq!(node.journal.view().durable, Some(Index(1)));
    world.clock.advance_ms(1_000);
    node.settle();
    assert_eq!(node.journal.view().durable, Some(Index(2)));
}

#[test]
fn an_idle_journal_writes_one_mark() {
    let world = SimWorld::new(12);
    let node = Node::start(&world, config()).expect("starts");
    node.write(1, 1, 0, 10);
    let frames = node.journal.stats().frames;
    for _ in 0..5 {
        world.clock.advance_ms(1_000);
        node.settle();
    }
    assert_eq!(node.journal.stats().frames, frames + 1, "one mark and no more");
    // With the mark on the disk, recovery returns only frames known to be durable.
    world.disk.crash_losing_all();
    let (journal, _) = open_in(&world.env(), config(), Index(0)).expect("opens");
    assert_eq!(journal.recovery().frames_copied, 0);
}

#[test]
fn a_clean_shutdown_marks_everything_durable() {
    let world = SimWorld::new(13);
    let node = Node::start(&world, config()).expect("starts");
    node.propose(1, vec![draft(1, 0, payload(1, 10))]).expect("taken");
    node.journal.shutdown().expect("ends");
    assert_eq!(node.sink.outcome(1), Some(Outcome::Committed(Index(2))), "what was queued is written");
    let refused = node.propose(2, vec![draft(1, 1, payload(2, 10))]).expect_err("stopped");
    assert_eq!(refused.kind, ErrorKind::Stopped);
    assert_eq!(expect_err(node.journal.shutdown()).kind, ErrorKind::Stopped);
    assert_eq!(expect_err(node.journal.acquire()).kind, ErrorKind::Stopped);
    world.crash();
    let (journal, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
    assert_eq!(journal.recovery().frames_copied, 0);
    assert_eq!(journal.recovery().torn, None);
    assert_eq!(contents(&visited), [entry(1, 0, &payload(1, 10))]);
}

#[test]
fn a_proposal_that_is_too_large_for_a_frame_is_spread_over_several() {
    let world = SimWorld::new(14);
    let node = Node::start(&world, config()).expect("starts");
    let entries: Vec<Draft> = (0..10).map(|i| draft(1, i, payload(i, 4_000))).collect();
    node.propose(1, entries).expect("taken");
    node.propose(2, vec![draft(1, 10, payload(10, 100))]).expect("taken");
    node.settle();
    let frames = node.sink.frames();
    let data: Vec<_> = frames.iter().filter(|f| f.kind == Kind::Data).collect();
    assert!(data.len() >= 3, "{} frames", data.len());
    assert!(data.iter().all(|f| f.bytes.len() <= 16 << 10));
    let offsets: Vec<u64> = contents_of(&frames).iter().map(|(_, o, _)| *o).collect();
    assert_eq!(offsets, (0..=10).collect::<Vec<_>>());
    let Some(Outcome::Committed(last)) = node.sink.outcome(1) else { panic!("not committed") };
    assert_eq!(last.0 + 1, data.last().expect("a frame").index.0, "the outcome names the last of its frames");
}

#[test]
fn an_entry_larger_than_a_file_gets_a_file_of_its_own() {
    let world = SimWorld::new(15);
    let node = Node::start(&world, config()).expect("starts");
    let large = 3 * FILE_BYTES as usize;
    assert!(matches!(node.write(1, 1, 0, large), Some(Outcome::Committed(_))));
    assert!(matches!(node.write(2, 1, 1, 10), Some(Outcome::Committed(_))));
    world.crash();
    let (_, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
    assert_eq!(contents(&visited), [entry(1, 0, &payload(1, large)), entry(1, 1, &payload(2, 10))]);
}

#[test]
fn the_queue_is_bounded_by_count_and_by_bytes() {
    let world = SimWorld::new(16);
    let node = Node::start(&world, config()).expect("starts");
    for i in 0..1_000 {
        node.propose(i, vec![draft(1, i, payload(i, 10))]).expect("taken");
    }
    let refused = node.propose(1_000, vec![draft(1, 1_000, payload(1, 10))]).expect_err("full");
    assert_eq!((refused.kind, refused.proposal.ticket), (ErrorKind::Busy, 1_000));
    // A record that payload displaces would cost its proposer the writer.
    let mut record = refused.proposal.clone();
    record.reserve = true;
    node.journal.try_propose(*record).expect("room that payload cannot take");
    node.settle();
    node.journal.try_propose(*refused.proposal).expect("taken now");
    node.propose(1_001, vec![draft(1, 1_001, payload(1, 900 << 10))]).expect("taken");
    let refused = node.propose(1_002, vec![draft(1, 1_002, payload(1, 200 << 10))]).expect_err("full");
    assert_eq!(refused.kind, ErrorKind::Busy);
    assert_eq!(node.journal.stats().refused, 2);
}

#[test]
fn proposals_of_another_term_are_fenced() {
    let world = SimWorld::new(17);
    let node = Node::start(&world, config()).expect("starts");
    node.propose(1, vec![draft(1, 0, payload(1, 10))]).expect("taken");
    let newer = node.journal.acquire().expect("a term");
    assert!(newer > node.epoch);
    assert_eq!(node.sink.outcome(1), Some(Outcome::Committed(Index(2))), "accepted before, written in its own term");
    let frames = node.sink.frames();
    let terms: Vec<(Kind, u64)> = frames.iter().map(|f| (f.kind, f.term.0)).collect();
    assert_eq!(terms, [(Kind::Noop, 2), (Kind::Data, 2), (Kind::Noop, 3)]);
    let refused = node.propose(2, vec![draft(1, 1, payload(1, 10))]).expect_err("fenced");
    assert_eq!(refused.kind, ErrorKind::Fenced);
    node.journal.try_propose(Proposal::data(newer, 3, vec![draft(1, 1, payload(1, 10))])).expect("taken");
}

#[test]
fn proposals_that_break_their_own_rules_are_refused() {
    let world = SimWorld::new(18);
    let node = Node::start(&world, config()).expect("starts");
    let good = || draft(1, 0, payload(1, 100));
    let mut short = good();
    short.bytes = payload(1, 99);
    let mut sum = good();
    sum.envelope.body = Body::Inline { len: 100, checksum: crc32c(b"other") };
    let mut patch = draft(1, 0, Bytes::from_static(b"ab"));
    patch.patch = Patch::new(b"abc").expect("short enough");
    let cases: Vec<Vec<Draft>> = vec![
        vec![],
        vec![short],
        vec![sum],
        vec![patch],
        vec![draft(1, 0, payload(1, (1 << 20) + 1))],
        vec![reference(1, 0, 0)],
        vec![good(), reference(1, 0, 2)],
        vec![good(), reference(2, 0, 0), reference(3, 0, 1)],
    ];
    for (i, entries) in cases.into_iter().enumerate() {
        let refused = node.propose(i as u64, entries).expect_err("refused");
        assert_eq!(refused.kind, ErrorKind::Invalid, "case {i}");
    }
    for kind in [Kind::Noop, Kind::Vote, Kind::Mark, Kind::Lost] {
        let proposal = Proposal { kind, ..Proposal::data(node.epoch, 1, Vec::new()) };
        assert_eq!(node.journal.try_propose(proposal).expect_err("refused").kind, ErrorKind::Invalid);
    }
}

#[test]
fn other_kinds_carry_a_body() {
    let world = SimWorld::new(19);
    let node = Node::start(&world, config()).expect("starts");
    let body = Bytes::from_static(b"cut here");
    let cut = Proposal { kind: Kind::SegmentCut, body: body.clone(), ..Proposal::data(node.epoch, 5, Vec::new()) };
    node.propose(4, vec![draft(1, 0, payload(1, 10))]).expect("taken");
    node.journal.try_propose(cut).expect("taken");
    node.propose(6, vec![draft(1, 1, payload(2, 10))]).expect("taken");
    node.settle();
    let kinds: Vec<Kind> = node.sink.frames().iter().map(|f| f.kind).collect();
    assert_eq!(kinds, [Kind::Noop, Kind::Data, Kind::SegmentCut, Kind::Data]);
    let read = node.journal.read(Index(3), 1).expect("reads");
    assert_eq!((read[0].kind, read[0].body.clone()), (Kind::SegmentCut, body.clone()));
    assert_eq!(node.sink.frames()[2].body, body);
}

#[test]
fn reading_is_bounded_and_never_above_what_is_committed() {
    let world = SimWorld::new(20);
    let node = Node::start(&world, config()).expect("starts");
    for i in 0..10 {
        node.write(i, 1, i, 1_000);
    }
    let next = node.journal.view().next;
    assert_eq!(node.journal.read(Index(2), 1).expect("reads").len(), 1, "at least one");
    assert_eq!(node.journal.read(Index(2), 3_000).expect("reads").len(), 2);
    assert_eq!(node.journal.read(next, usize::MAX).expect("reads").len(), 0);
    assert_eq!(expect_err(node.journal.read(next.next(), 1)).kind, ErrorKind::OutOfRange);
    node.propose(99, vec![draft(1, 10, payload(1, 10))]).expect("taken");
    node.journal.write_step();
    assert_eq!(node.journal.view().next, next.next(), "written");
    assert_eq!(node.journal.read(next, usize::MAX).expect("reads").len(), 0, "not committed");
    assert_eq!(node.journal.read_range(next, Index(u64::MAX), usize::MAX).expect("reads").len(), 1);
}
