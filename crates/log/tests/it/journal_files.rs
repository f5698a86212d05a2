//! Tests of files: preallocation, recycling, adoption, a full disk; and of operations for a consensus engine.
#![allow(clippy::expect_used, reason = "the helpers are part of the tests")]

use crate::journal_common;

use bytes::Bytes;
use journal_common::*;
use parking_lot::Mutex;
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimWorld};
use polylogue_env::{Disk, OpenMode};
use polylogue_log::journal::{Append, Config, Content, Outcome, Proposal, StartOfLife, Vote};
use polylogue_log::{ErrorKind, Kind};
use polylogue_types::{Index, NodeId, Term};
use std::sync::Arc;

fn fill(node: &Node, first: u64, count: u64) {
    for i in first..first + count {
        assert!(matches!(node.write(i, 1, i, 10_000), Some(Outcome::Committed(_))), "{i}");
    }
}

#[test]
fn a_file_is_ready_before_it_is_needed() {
    let world = SimWorld::new(1);
    let node = Node::start(&world, config()).expect("starts");
    node.background();
    for i in 0..60 {
        let renames = world.disk.stats().renames + world.disk.stats().creates + world.disk.stats().dir_syncs;
        fill(&node, i, 1);
        let after = world.disk.stats().renames + world.disk.stats().creates + world.disk.stats().dir_syncs;
        assert_eq!(after, renames, "writing changes no names");
        world.clock.advance_ms(1_000);
        node.background();
    }
    let stats = node.journal.stats();
    assert!(stats.files_begun >= 5);
    assert_eq!(stats.files_made_late, 1, "only the first one");
    assert!(stats.bytes_prewritten >= FILE_BYTES);
}

#[test]
fn a_writer_does_not_wait_for_a_file_that_is_not_ready() {
    let world = SimWorld::new(2);
    let node = Node::start(&world, config()).expect("starts");
    fill(&node, 0, 40);
    let stats = node.journal.stats();
    assert_eq!((stats.files_made_late, stats.bytes_prewritten), (stats.files_begun, 0));
}

#[test]
fn released_files_are_recycled_and_their_old_frames_never_verify() {
    let world = SimWorld::new(3);
    let node = Node::start(&world, config()).expect("starts");
    let mut released = Index(0);
    for round in 0..20 {
        fill(&node, round * 20, 20);
        // Frames held by a reader keep their file from being recycled.
        *node.sink.0.lock() = Heard::default();
        released = Index(node.journal.view().durable.expect("durable").0 - 5);
        node.journal.release(released).expect("releases");
        world.clock.advance_ms(1_000);
        node.settle();
        node.background();
        // After a crash in any round the log is intact, whatever the recycled files contain after its end.
        let disk = world.disk.fork(round);
        disk.crash_losing_all();
        let env = polylogue_env::Env { disk: Arc::new(disk), ..world.env() };
        let (journal, visited) = open_in(&env, config(), released.next()).expect("opens");
        // All frames have the same size, so that a stale frame often starts right at the end of the log.
        assert_eq!(journal.recovery().torn, None);
        let expected: Vec<u64> = visited.iter().flat_map(|f| &f.entries).map(|e| e.envelope.base_offset.0).collect();
        let last = round * 20 + 19;
        assert_eq!(expected, (last + 1 - expected.len() as u64..=last).collect::<Vec<_>>());
    }
    let stats = node.journal.stats();
    assert!(stats.files_recycled >= 10, "{stats:?}");
    assert!(stats.files <= 4, "{stats:?}");
    assert!(world.disk.list(&journal_dir()).expect("lists").len() <= 6);
    assert_eq!(expect_err(node.journal.read(Index(0), 1)).kind, ErrorKind::OutOfRange);
    assert_eq!(node.journal.view().first, released.next());
}

#[test]
fn a_frame_of_an_earlier_life_right_behind_the_end_is_not_taken_for_a_torn_one() {
    let world = SimWorld::new(22);
    let node = Node::start(&world, config()).expect("starts");
    node.background();
    // Frames that end at page boundaries: otherwise the zeros after each write would hide stale data.
    let pages = |first: u64, count: u64| {
        node.journal.seal_current();
        for i in first..first + count {
            let bytes = if i == first { 8_192 - 128 - 192 } else { 8_192 - 192 };
            assert!(matches!(node.write(i, 1, i, bytes), Some(Outcome::Committed(_))));
        }
        let last = node.sink.frames().pop().expect("a frame");
        let place = last.place.as_ref().expect("a place");
        assert_eq!((place.position + u64::from(place.len)) % 4_096, 0);
        journal_dir().join(format!("{:016x}.plj", place.file_sequence))
    };
    let first = pages(0, 5);
    node.background();
    // The prepared file gets this one's content, as if it were recycled.
    let ready = world.disk.list(&journal_dir()).expect("lists").pop().expect("a file");
    let mut bytes = vec![0; FILE_BYTES as usize];
    let from = world.disk.open(&first, OpenMode::Read).expect("opens");
    from.read_exact_at(&mut bytes, 0).expect("reads");
    let to = world.disk.open(&journal_dir().join(&ready), OpenMode::ReadWrite).expect("opens");
    to.write_all_at(&bytes, 0).expect("writes");
    to.sync_data().expect("flushes");
    let second = pages(5, 3);
    assert!(second.ends_with(&ready));
    world.disk.crash_losing_all();
    let (journal, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
    assert_eq!(journal.recovery().torn, None);
    assert_eq!(contents(&visited).len(), 8);
}

#[test]
fn no_file_goes_before_the_next_one_is_durable() {
    let world = SimWorld::new(23);
    let mut node = Node::start(&world, config()).expect("starts");
    node.visited.clear();
    fill(&node, 0, 10);
    let upto = node.journal.view().durable.expect("durable");
    node.journal.release(upto).expect("releases");
    world.clock.advance_ms(10);
    node.settle();
    node.background();
    // The next file is started and written to, and nothing of that is flushed.
    node.propose(10, vec![draft(1, 10, payload(10, 30_000))]).expect("taken");
    node.journal.write_step();
    *node.sink.0.lock() = Heard::default();
    let sealed = node.journal.sealed_files();
    assert_eq!(sealed.len(), 1);
    assert_eq!(expect_err(node.journal.adopt(sealed[0].sequence)).kind, ErrorKind::Invalid);
    node.background();
    world.disk.crash_losing_all();
    let (journal, visited) = open_in(&world.env(), config(), upto.next()).expect("opens");
    assert_eq!(visited.len(), 0);
    assert_eq!(journal.view().next, upto.next());
}

#[test]
fn a_file_whose_header_never_reached_the_disk_ends_the_log_before_it() {
    let world = SimWorld::new(24);
    let node = Node::start(&world, config()).expect("starts");
    fill(&node, 0, 5);
    let before = node.journal.view();
    // Two more files are started without a flush, and the header of the first one is lost.
    for i in 5..35 {
        node.propose(i, vec![draft(1, i, payload(i, 10_000))]).expect("taken");
        node.journal.write_step();
    }
    let sealed = node.journal.sealed_files();
    assert!(sealed.len() >= 2);
    world.kill();
    let path = journal_dir().join(format!("{:016x}.plj", sealed[1].sequence));
    let file = world.disk.open(&path, OpenMode::ReadWrite).expect("opens");
    file.write_all_at(&[0; 4096], 0).expect("writes");
    let (journal, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
    let (_, last) = sealed[0].indexes.expect("indexes");
    assert_eq!(journal.view().next, last.next());
    assert!(journal.view().next > before.next && contents(&visited).len() > 5);
}

#[test]
fn a_file_that_is_read_is_not_recycled() {
    let world = SimWorld::new(4);
    let node = Node::start(&world, config()).expect("starts");
    fill(&node, 0, 30);
    let held = node.sink.frames()[3].clone();
    *node.sink.0.lock() = Heard::default();
    let durable = node.journal.view().durable.expect("durable");
    node.journal.release(durable).expect("releases");
    world.clock.advance_ms(1_000);
    node.settle();
    node.background();
    fill(&node, 30, 60);
    let place = held.place.as_ref().expect("a place");
    let mut bytes = vec![0; place.len as usize];
    place.file.read_exact_at(&mut bytes, place.position).expect("reads");
    assert_eq!(bytes, held.bytes);
}

#[test]
fn a_file_stays_until_its_release_is_durable() {
    let world = SimWorld::new(21);
    // A released file that is still open is removed too.
    let node = Node::start(&world, Config { retired_files_max: 0, ..config() }).expect("starts");
    fill(&node, 0, 40);
    *node.sink.0.lock() = Heard::default();
    let (_, last) = node.journal.sealed_files()[1].indexes.expect("indexes");
    node.journal.release(last).expect("releases");
    node.background();
    assert!(world.disk.exists(&journal_dir().join("0000000000000001.plj")));
    assert_eq!(expect_err(node.journal.read(last, 1)).kind, ErrorKind::OutOfRange);
    world.clock.advance_ms(10);
    node.settle();
    node.background();
    assert!(!world.disk.exists(&journal_dir().join("0000000000000001.plj")));
}

#[test]
fn releasing_what_is_not_durable_is_refused() {
    let world = SimWorld::new(5);
    let node = Node::start(&world, config()).expect("starts");
    fill(&node, 0, 2);
    let next = node.journal.view().next;
    assert_eq!(expect_err(node.journal.release(next)).kind, ErrorKind::OutOfRange);
}

#[test]
fn a_sealed_file_is_adopted_in_order_and_not_missed_afterwards() {
    let world = SimWorld::new(6);
    let node = Node::start(&world, config()).expect("starts");
    fill(&node, 0, 40);
    let files = node.journal.sealed_files();
    assert!(files.len() >= 3);
    assert_eq!(expect_err(node.journal.adopt(files[1].sequence)).kind, ErrorKind::Invalid);
    assert_eq!(expect_err(node.journal.adopt(999)).kind, ErrorKind::OutOfRange);
    let (_, last) = files[0].indexes.expect("indexes");
    node.journal.release(last).expect("releases");
    let adopted = node.journal.adopt(files[1].sequence).expect("adopts");
    assert_eq!(adopted.sealed, files[1]);
    world.disk.create_dir_all(&shard_dir().join("segments")).expect("makes");
    let target = shard_dir().join("segments/one");
    world.disk.rename(&adopted.path, &target).expect("renames");
    world.disk.sync_dir(&shard_dir().join("segments")).expect("flushes");
    world.disk.sync_dir(&shard_dir()).expect("flushes");
    world.disk.sync_dir(&journal_dir()).expect("flushes");
    let (_, last) = files[1].indexes.expect("indexes");
    assert_eq!(expect_err(node.journal.read(last, 1)).kind, ErrorKind::OutOfRange);
    fill(&node, 40, 5);
    // With the older, released file present, and without it.
    for gone in [false, true] {
        if gone {
            node.background();
        }
        let disk = world.disk.fork(1);
        disk.crash_losing_all();
        let env = polylogue_env::Env { disk: Arc::new(disk), ..world.env() };
        let (journal, visited) = open_in(&env, config(), last.next()).expect("opens");
        assert_eq!(visited.first().map(|f| f.index), Some(last.next()));
        assert_eq!(journal.view().next, node.journal.view().next);
        drop(journal);
        assert_eq!(expect_err(open_in(&env, config(), last)).kind, ErrorKind::Damaged, "its file is missing");
    }
}

#[test]
fn an_older_file_without_frames_is_not_missed_after_an_adoption() {
    let world = SimWorld::new(24);
    let node = Node::start(&world, config()).expect("starts");
    fill(&node, 0, 3);
    let released = node.journal.view().durable.expect("durable");
    // A file that contains only a vote after a crash.
    node.journal.seal_current();
    node.journal.save_vote(Vote { term: Term(5), node: NodeId(7), committed: true }).expect("saves");
    node.journal.seal_current();
    let node = Node { epoch: node.journal.acquire().expect("a term"), ..node };
    fill(&node, 3, 3);
    node.journal.seal_current();
    fill(&node, 6, 2);
    let files = node.journal.sealed_files();
    assert_eq!((files.len(), &files[1].indexes), (3, &None), "{files:?}");
    node.journal.release(released).expect("releases");
    world.clock.advance_ms(1_000);
    node.settle();
    // The file was moved; the background has not removed the ones before it yet.
    let adopted = node.journal.adopt(files[2].sequence).expect("adopts");
    world.disk.rename(&adopted.path, &shard_dir().join("adopted")).expect("renames");
    for dir in [journal_dir(), shard_dir()] {
        world.disk.sync_dir(&dir).expect("flushes");
    }
    world.crash();
    let from = adopted.sealed.indexes.expect("indexes").1.next();
    let (_, visited) = open_in(&world.env(), config(), from).expect("opens");
    assert_eq!(contents(&visited).len(), 2);
    // A reader that needs its content gets an error.
    let (disk, needed) = (world.disk.fork(1), Index(from.0 - 1));
    let env = polylogue_env::Env { disk: Arc::new(disk), ..world.env() };
    assert!(matches!(expect_err(open_in(&env, config(), needed)).kind, ErrorKind::Damaged | ErrorKind::OutOfRange));
}

#[test]
fn the_last_file_is_not_adopted() {
    let world = SimWorld::new(7);
    let node = Node::start(&world, config()).expect("starts");
    fill(&node, 0, 3);
    node.journal.seal_current();
    assert_eq!(node.journal.sealed_files(), []);
    world.disk.crash();
    let (journal, _) = open_in(&world.env(), config(), Index(0)).expect("opens");
    for file in journal.sealed_files() {
        // Nothing has been written after the last one yet.
        assert!(file.sequence < journal.view().next.0 + 100);
    }
    let node = Node { journal, sink: Arc::default(), visited: Vec::new(), epoch: Term(0) };
    node.journal.acquire().expect("a term");
    assert!(!node.journal.sealed_files().is_empty());
}

/// A nearly full disk.
fn nearly_full(seed: u64) -> (SimWorld, Node, Config) {
    let world = SimWorld::new(seed);
    let config = config();
    let node = Node::start(&world, config.clone()).expect("starts");
    node.background();
    world.disk.set_capacity(5 * FILE_BYTES);
    (world, node, config)
}

#[test]
fn a_full_disk_refuses_payload_and_goes_on_with_the_rest_from_the_reserve() {
    let (world, node, _) = nearly_full(8);
    let mut refused = None;
    for i in 0..200 {
        match node.propose(i, vec![draft(1, i, payload(i, 5_000))]) {
            Ok(()) => {
                node.settle();
                assert!(matches!(node.sink.outcome(i), Some(Outcome::Committed(_))), "what is taken is written");
            }
            Err(e) => {
                refused = Some((i, e.kind));
                break;
            }
        }
        world.clock.advance_ms(1_000);
        node.background();
    }
    let (first, kind) = refused.expect("the disk is full");
    assert_eq!(kind, ErrorKind::StorageFull);
    let room = node.journal.journal_room();
    assert!(room.full && room.for_payload < 6_000 && room.in_files > 0, "{room:?}");
    // Commits, deletes and trims continue.
    for i in 0..5 {
        let small =
            Proposal { reserve: true, ..Proposal::data(node.epoch, 1_000 + i, vec![draft(2, i, payload(i, 100))]) };
        node.journal.try_propose(small).expect("taken");
        node.settle();
        assert!(matches!(node.sink.outcome(1_000 + i), Some(Outcome::Committed(_))));
    }
    // Space is freed without a restart, by releasing.
    *node.sink.0.lock() = Heard::default();
    let durable = node.journal.view().durable.expect("durable");
    node.journal.release(durable).expect("releases");
    world.clock.advance_ms(1_000);
    node.settle();
    node.background();
    world.clock.advance_ms(1_000);
    node.background();
    assert!(!node.journal.journal_room().full);
    assert!(matches!(node.write(first, 1, first, 5_000), Some(Outcome::Committed(_))));
}

#[test]
fn the_reserve_has_an_end_too() {
    let (world, node, _) = nearly_full(9);
    let mut last = None;
    for i in 0..5_000 {
        let small = Proposal { reserve: true, ..Proposal::data(node.epoch, i, vec![draft(2, i, payload(i, 500))]) };
        if let Err(e) = node.journal.try_propose(small) {
            last = Some((i, e.kind));
            break;
        }
        node.settle();
        assert!(matches!(node.sink.outcome(i), Some(Outcome::Committed(_))), "{i}");
        world.clock.advance_ms(100);
        node.background();
    }
    assert_eq!(last.map(|(_, kind)| kind), Some(ErrorKind::StorageFull));
    // The journal's own records still fit: a term can be taken.
    node.journal.acquire().expect("a term");
}

#[test]
fn a_disk_that_refuses_a_file_ends_the_term_and_a_new_one_can_be_taken() {
    let world = SimWorld::new(10);
    let node = Node::start(&world, config()).expect("starts");
    world.disk.inject(Fault::from(FaultOp::Create, 1, FaultKind::NoSpace));
    let mut failed = None;
    for i in 0..40 {
        if let Err(e) = node.propose(i, vec![draft(1, i, payload(i, 10_000))]) {
            assert_eq!(e.kind, ErrorKind::Fenced);
            break;
        }
        node.settle();
        if node.sink.outcome(i) == Some(Outcome::NotCommitted) {
            failed = Some(i);
        }
    }
    let failed = failed.expect("the file is full and there is no other");
    assert!(node.journal.view().epoch.is_none());
    assert!(node.journal.journal_room().full);
    // Small frames still fit into the existing file.
    let epoch = node.journal.acquire().expect("a term");
    world.disk.clear_faults();
    node.background();
    let node = Node { epoch, ..node };
    assert!(matches!(node.write(1_000, 1, failed, 10_000), Some(Outcome::Committed(_))));
    let expected = contents_of(&node.sink.frames());
    assert_eq!(expected.iter().filter(|(_, o, _)| *o == failed).count(), 1);
    world.disk.crash_losing_all();
    let (_, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
    assert_eq!(contents(&visited), expected);
}

#[test]
fn a_refused_write_never_comes_back_after_a_crash() {
    // The write fails after all of its bytes have reached the file.
    for seed in 0..50 {
        let world = SimWorld::new(seed);
        let node = Node::start(&world, config()).expect("starts");
        fill(&node, 0, 2);
        world.disk.inject(Fault::nth(FaultOp::Write, 1, FaultKind::NoSpace));
        node.propose(2, vec![draft(1, 2, payload(2, 50))]).expect("taken");
        node.propose(3, vec![draft(1, 3, payload(3, 50))]).expect("taken");
        node.settle();
        assert_eq!(node.sink.outcome(2), Some(Outcome::NotCommitted));
        assert_eq!(node.sink.outcome(3), Some(Outcome::NotCommitted));
        world.crash();
        let (_, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
        assert_eq!(contents(&visited).len(), 2, "seed {seed}");
    }
}

#[test]
fn a_file_that_could_not_be_begun_cuts_nothing_off() {
    for seed in 0..40 {
        let world = SimWorld::new(seed);
        let node = Node::start(&world, config()).expect("starts");
        node.background();
        fill(&node, 0, 10);
        // The next one does not fit, and the header of the next file fails, possibly after it was written.
        world.disk.inject(Fault::nth(FaultOp::Write, 1, FaultKind::NoSpace));
        node.propose(10, vec![draft(1, 10, payload(10, 30_000))]).expect("taken");
        node.settle();
        assert_eq!(node.sink.outcome(10), Some(Outcome::NotCommitted));
        // Smaller ones still fit into the previous file, and the disk has space after all.
        node.background();
        let node = Node { epoch: node.journal.acquire().expect("a term"), ..node };
        assert!(matches!(node.write(11, 1, 10, 10_000), Some(Outcome::Committed(_))));
        world.kill();
        let (_, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
        assert_eq!(contents(&visited).len(), 11, "seed {seed}");
    }
}

#[test]
fn recovery_on_a_full_disk_takes_the_room_of_spare_files() {
    let world = SimWorld::new(11);
    let node = Node::start(&world, config()).expect("starts");
    node.background();
    fill(&node, 0, 2);
    world.disk.crash_losing_all();
    // Only one file's worth of space is free, and the spare file has it.
    world.disk.set_capacity(2 * FILE_BYTES + 4_096);
    let (journal, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
    assert_eq!(contents(&visited).len(), 2);
    assert!(journal.recovery().frames_copied > 0);
}

/// The next start found the name in the page cache and trusted the mark, so what it acknowledged behind it went with the next power cut.
#[test]
fn a_copy_whose_name_could_not_be_made_durable_is_made_again() {
    for seed in 0..20 {
        let world = SimWorld::new(seed);
        let node = Node::start(&world, config()).expect("starts");
        node.background();
        fill(&node, 0, 2);
        world.kill();
        world.disk.inject(Fault::nth(FaultOp::SyncDir, 1, FaultKind::NoSpace));
        let refused = expect_err(open_in(&world.env(), config(), Index(0)));
        assert!(refused.to_string().contains("the name of what was recovered"), "{refused}");
        world.kill();
        let node = Node::start(&world, config()).expect("starts");
        assert!(node.journal.recovery().frames_copied > 0);
        node.background();
        fill(&node, 2, 2);
        world.crash();
        let (_, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
        assert_eq!(contents(&visited).len(), 4, "seed {seed}");
    }
}

fn engine(world: &SimWorld) -> polylogue_log::journal::Journal {
    let mut config = config();
    config.start = StartOfLife::Pristine;
    open_in(&world.env(), config, Index(0)).expect("opens").0
}

fn opaque(term: u64, index: u64, len: usize) -> Append {
    Append {
        term: Term(term),
        index: Index(index),
        leader: NodeId(7),
        time_ms: 5,
        kind: Kind::Data,
        content: Content::Opaque(payload(term * 1_000 + index, len)),
    }
}

/// Appends; returns whether, and with which result, the callback was called.
fn append(journal: &polylogue_log::journal::Journal, frames: Vec<Append>) -> Arc<Mutex<Option<bool>>> {
    let flushed = Arc::new(Mutex::new(None));
    let outcome = flushed.clone();
    journal.append(frames, Box::new(move |result| *outcome.lock() = Some(result.is_ok()))).expect("appends");
    flushed
}

fn terms(journal: &polylogue_log::journal::Journal) -> Vec<(u64, u64)> {
    let first = journal.view().first;
    let frames = journal.read_range(first, Index(u64::MAX), usize::MAX).expect("reads");
    frames.iter().map(|f| (f.index.0, f.term.0)).collect()
}

#[test]
fn an_engine_appends_reads_at_once_and_hears_of_the_flush() {
    let world = SimWorld::new(12);
    let journal = engine(&world);
    assert_eq!(journal.view().last, None);
    assert_eq!(journal.read_vote(), None);
    let flushed = append(&journal, vec![opaque(1, 0, 100), opaque(1, 1, 5_000), opaque(2, 2, 0)]);
    assert_eq!(terms(&journal), [(0, 1), (1, 1), (2, 2)]);
    let frames = journal.read_range(Index(1), Index(2), 1).expect("reads");
    assert_eq!((frames.len(), sum(&frames[0].body)), (1, sum(&payload(1_001, 5_000))));
    assert_eq!(*flushed.lock(), None, "not yet");
    while journal.flush_step() {}
    assert_eq!(*flushed.lock(), Some(true));
    assert_eq!(journal.view().last, Some((Index(2), Term(2))));
    for wrong in [opaque(2, 2, 1), opaque(2, 4, 1), opaque(1, 3, 1)] {
        let e = expect_err(journal.append(vec![wrong], Box::new(|_| panic!("not to be called"))));
        assert_eq!(e.kind, ErrorKind::Invalid);
    }
}

#[test]
fn an_engine_appends_entries_of_partitions() {
    let world = SimWorld::new(13);
    let journal = engine(&world);
    let entries = vec![draft(2, 0, payload(1, 10)), draft(1, 0, payload(2, 20))];
    append(&journal, vec![Append { content: Content::Entries(entries), ..opaque(1, 0, 0) }]);
    let frames = journal.read_range(Index(0), Index(1), 1).expect("reads");
    assert_eq!(contents_of(&frames), [entry(1, 0, &payload(2, 20)), entry(2, 0, &payload(1, 10))]);
    assert_eq!(frames[0].time_ms, 5, "the leader's time, identical on every node");
}

#[test]
fn truncation_is_logical_and_later_frames_win() {
    let world = SimWorld::new(14);
    let journal = engine(&world);
    append(&journal, (0..10).map(|i| opaque(1, i, 9_000)).collect());
    journal.truncate_after(Some(Index(4))).expect("truncates");
    assert_eq!(terms(&journal), (0..5).map(|i| (i, 1)).collect::<Vec<_>>());
    append(&journal, vec![opaque(3, 5, 10), opaque(3, 6, 10)]);
    let expected: Vec<_> = (0..5).map(|i| (i, 1)).chain([(5, 3), (6, 3)]).collect();
    assert_eq!(terms(&journal), expected);
    while journal.flush_step() {}
    world.disk.crash_losing_all();
    let journal = engine(&world);
    assert_eq!(terms(&journal), expected);
    assert_eq!(journal.view().last, Some((Index(6), Term(3))));
    journal.truncate_after(None).expect("truncates");
    assert_eq!(terms(&journal), []);
    append(&journal, vec![opaque(4, 0, 10)]);
    world.kill();
    assert_eq!(terms(&engine(&world)), [(0, 4)]);
}

#[test]
fn a_purge_may_lie_above_the_last_frame() {
    let world = SimWorld::new(15);
    let journal = engine(&world);
    append(&journal, (0..5).map(|i| opaque(1, i, 10)).collect());
    journal.purge(Index(2), Term(1)).expect("purges");
    assert_eq!(terms(&journal), [(3, 1), (4, 1)]);
    assert_eq!(journal.view().purged, Some((Index(2), Term(1))));
    assert_eq!(expect_err(journal.truncate_after(Some(Index(1)))).kind, ErrorKind::Invalid);
    journal.purge(Index(100), Term(7)).expect("purges");
    assert_eq!(journal.view().last, Some((Index(100), Term(7))));
    append(&journal, vec![opaque(8, 101, 10)]);
    while journal.flush_step() {}
    world.disk.crash_losing_all();
    let mut config = config();
    config.start = StartOfLife::Pristine;
    let (journal, visited) = open_in(&world.env(), config, Index(101)).expect("opens");
    assert_eq!(visited.len(), 1);
    assert_eq!(terms(&journal), [(101, 8)]);
    assert_eq!(journal.view().purged, Some((Index(100), Term(7))));
}

#[test]
fn votes_and_the_committed_index_outlive_the_files_they_were_written_to() {
    let world = SimWorld::new(16);
    let journal = engine(&world);
    let vote = Vote { term: Term(5), node: NodeId(9), committed: false };
    journal.save_vote(vote).expect("saves");
    append(&journal, vec![opaque(5, 0, 10)]);
    journal.save_committed(Index(0)).expect("saves");
    for i in 1..60 {
        append(&journal, vec![opaque(5, i, 9_000)]);
        while journal.flush_step() {}
    }
    journal.purge(Index(58), Term(5)).expect("purges");
    while journal.background_step() {}
    assert!(journal.stats().files <= 2);
    world.disk.crash_losing_all();
    let mut config = config();
    config.start = StartOfLife::Pristine;
    let (journal, _) = open_in(&world.env(), config, Index(59)).expect("opens");
    assert_eq!(journal.read_vote(), Some(vote));
    assert_eq!(journal.read_committed(), Some(Index(0)));
}

#[test]
fn a_vote_is_durable_when_saving_returns() {
    let world = SimWorld::new(17);
    let journal = engine(&world);
    let vote = Vote { term: Term(5), node: NodeId(9), committed: true };
    journal.save_vote(vote).expect("saves");
    world.disk.crash_losing_all();
    assert_eq!(engine(&world).read_vote(), Some(vote));
}

#[test]
fn an_engine_takes_over_from_the_local_writer_and_fences_it() {
    let world = SimWorld::new(18);
    let node = Node::start(&world, config()).expect("starts");
    node.propose(1, vec![draft(1, 0, payload(1, 10))]).expect("taken");
    let next = node.journal.view().next;
    node.journal.save_vote(Vote { term: Term(9), node: NodeId(1), committed: false }).expect("saves");
    assert_eq!(node.sink.outcome(1), Some(Outcome::Committed(next)), "accepted before, hence written before");
    assert_eq!(node.propose(2, Vec::new()).expect_err("refused").kind, ErrorKind::Invalid);
    let refused = node.propose(2, vec![draft(1, 1, payload(2, 10))]).expect_err("refused");
    assert_eq!(refused.kind, ErrorKind::Fenced);
    assert_eq!(node.journal.acquire().expect("a term"), Term(10), "above every vote");
}

#[test]
fn an_append_that_finds_no_room_leaves_nothing_behind() {
    for n in 1..4 {
        let world = SimWorld::new(19);
        let journal = engine(&world);
        append(&journal, vec![opaque(1, 0, 10)]);
        while journal.flush_step() {}
        world.disk.inject(Fault::nth(FaultOp::Write, n, FaultKind::NoSpace));
        let frames = vec![opaque(1, 1, 50), opaque(1, 2, 50), opaque(1, 3, 50)];
        let e = expect_err(journal.append(frames, Box::new(|_| panic!("not to be called"))));
        assert_eq!(e.kind, ErrorKind::StorageFull);
        assert_eq!(terms(&journal), [(0, 1)]);
        let disk = world.disk.fork(n);
        disk.crash();
        let env = polylogue_env::Env { disk: Arc::new(disk), ..world.env() };
        let mut config = config();
        config.start = StartOfLife::Pristine;
        let (after, _) = open_in(&env, config, Index(0)).expect("opens");
        assert_eq!(after.view().next, Index(1), "write {n}");
        append(&journal, vec![opaque(2, 1, 20)]);
        while journal.flush_step() {}
        world.disk.crash_losing_all();
        assert_eq!(terms(&engine(&world)), [(0, 1), (1, 2)]);
    }
}

#[test]
fn an_unread_body_is_kept_byte_for_byte() {
    let world = SimWorld::new(20);
    let journal = engine(&world);
    let body = Bytes::from(vec![0xa5; 70_000]);
    append(&journal, vec![Append { content: Content::Opaque(body.clone()), ..opaque(1, 0, 0) }]);
    world.kill();
    let frames = engine(&world).read_range(Index(0), Index(1), 1).expect("reads");
    assert_eq!(sum(&frames[0].body), sum(&body));
}
