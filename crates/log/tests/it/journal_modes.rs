//! Tests of files written by direct I/O and through the page cache, alternating.
#![allow(clippy::expect_used, reason = "the helpers are part of the tests")]

use crate::journal_common;

use journal_common::*;
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimWorld};
use polylogue_env::{Clock, Env};
use polylogue_log::journal::{Config, Durability, JournalIo, Outcome, Proposal};
use polylogue_types::{Index, TimestampMs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MODES: [JournalIo; 3] = [JournalIo::Direct, JournalIo::Cached, JournalIo::BySize];

fn by_size(durability: Durability) -> Config {
    Config { durability, cached_group_bytes_max: 4 << 10, ..config() }
}

/// Writes `count` messages; returns the bytes written through the page cache, and in total.
fn written(node: &Node, first: u64, count: u64, bytes: usize) -> (u64, u64) {
    let before = node.journal.stats();
    for i in first..first + count {
        assert!(matches!(node.write(i, 1, i, bytes), Some(Outcome::Committed(_))), "{i}");
    }
    let after = node.journal.stats();
    (after.bytes_cached - before.bytes_cached, after.bytes_written - before.bytes_written)
}

#[test]
fn each_file_is_written_the_way_that_suits_the_groups_before_it() {
    let world = SimWorld::new(1);
    let node = Node::start(&world, by_size(Durability::Async)).expect("starts");
    let (cached, all) = written(&node, 0, 100, 1_000);
    assert_eq!(cached, all, "small ones of class async");
    let begun = node.journal.stats().files_begun;
    let (cached, all) = written(&node, 100, 60, 10_000);
    assert!(node.journal.stats().files_begun > begun + 3);
    assert!(cached > 0 && cached < all / 2, "large ones once a file has begun behind some: {cached} of {all}");
    let (cached, all) = written(&node, 160, 600, 1_000);
    assert!(cached > all / 2 && cached < all, "small ones again: {cached} of {all}");
    assert_eq!(world.disk.stats().mixed_writes, 0);
}

#[test]
fn what_is_flushed_goes_past_the_page_cache() {
    let world = SimWorld::new(2);
    let node = Node::start(&world, by_size(Durability::Sync)).expect("starts");
    written(&node, 0, 400, 1_000);
    let stats = node.journal.stats();
    assert!(stats.files_begun > 2 && stats.bytes_cached == 0 && stats.frames_cached == 0, "{stats:?}");
}

/// Restarts with a release.
fn go_on(world: &SimWorld, config: Config, from: Index) -> Node {
    let (journal, visited) = open_in(&world.env(), config, from).expect("opens");
    let sink = Arc::new(Recorder::default());
    journal.attach(sink.clone());
    let epoch = journal.acquire().expect("a term");
    Node { journal, sink, visited, epoch }
}

/// Writes small and large messages, lets files be prepared, and releases all but the last of them.
fn fill_and_release(world: &SimWorld, node: &Node, mut next: u64) -> (u64, Index) {
    let mut released = Index(0);
    for bytes in [900, 9_000, 300] {
        for _ in 0..20 {
            assert!(matches!(node.write(next, 1, next, bytes), Some(Outcome::Committed(_))), "{next}");
            next += 1;
        }
        node.background();
        world.clock.advance_ms(1_000);
        node.settle();
        // Frames held by a reader keep their file from being recycled.
        *node.sink.0.lock() = Heard::default();
        released = Index(node.journal.view().durable.expect("durable").0 - 15);
        node.journal.release(released).expect("releases");
        node.settle();
    }
    world.clock.advance_ms(1_000);
    node.settle();
    (next, released)
}

/// Restarts in each I/O mode on the files of the others, after a power cut or a kill; with recycled
/// files.
#[test]
fn lives_that_write_otherwise_go_on_in_the_same_files() {
    let (mut recycled, mut cached, mut direct) = (0, 0, 0);
    for seed in 0..20 {
        let world = SimWorld::new(seed);
        let (mut next, mut from) = (0, Index(0));
        for life in 0..9 {
            let io = MODES[(seed + life) as usize % MODES.len()];
            let own = if (seed + life) % 2 == 0 { Durability::Sync } else { Durability::Async };
            let mut node = go_on(&world, Config { io, ..by_size(own) }, from);
            let last = node.visited.iter().flat_map(|frame| &frame.entries).map(|e| e.envelope.base_offset.0).max();
            assert!(
                next == 0 || last.is_some_and(|last| last + 1 >= next),
                "seed {seed}, life {life}: {last:?} of {next}"
            );
            next = last.map_or(next, |last| last + 1);
            node.visited.clear();
            let (after, released) = fill_and_release(&world, &node, next);
            (next, from) = (after, released.next());
            // Everything was flushed; later writes may be lost, and torn.
            for lost in 0..seed % 7 {
                node.propose(next + lost, vec![draft(1, next + lost, payload(next + lost, 2_000))]).expect("taken");
                node.journal.write_step();
            }
            let stats = node.journal.stats();
            recycled += stats.files_recycled;
            cached += stats.bytes_cached;
            direct += stats.bytes_written - stats.bytes_cached;
            drop(node);
            if seed % 3 == 2 {
                world.kill();
            } else {
                world.crash();
            }
        }
        assert_eq!(world.disk.stats().mixed_writes, 0, "seed {seed}");
    }
    assert!(recycled > 100 && cached > 10 << 20 && direct > 10 << 20, "{recycled} {cached} {direct}");
}

/// A write that fails for lack of space is voided in the file's own I/O mode.
#[test]
fn what_a_full_disk_left_is_taken_back_the_way_the_file_is_written() {
    for io in MODES {
        let world = SimWorld::new(7);
        let node = Node::start(&world, Config { io, ..by_size(Durability::Async) }).expect("starts");
        written(&node, 0, 10, 1_000);
        let failing = Fault::nth(FaultOp::Write, 1, FaultKind::NoSpace);
        world.disk.inject(failing);
        assert_eq!(node.write(10, 1, 10, 1_000), Some(Outcome::NotCommitted));
        let epoch = node.journal.acquire().expect("goes on");
        let node = Node { epoch, ..node };
        written(&node, 11, 20, 1_000);
        assert_eq!(world.disk.stats().mixed_writes, 0);
        world.clock.advance_ms(1_000);
        node.settle();
        world.disk.crash_losing_all();
        let (_, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
        let offsets: Vec<u64> = visited.iter().flat_map(|f| &f.entries).map(|e| e.envelope.base_offset.0).collect();
        assert_eq!(offsets, (0..31).filter(|i| *i != 10).collect::<Vec<_>>());
    }
}

fn propose_prompt(node: &Node, ticket: u64, class: Durability, bytes: usize) {
    let drafts = vec![draft(1, ticket, payload(ticket, bytes))];
    let proposal = Proposal { class: Some(class), prompt: true, ..Proposal::data(node.epoch, ticket, drafts) };
    node.journal.try_propose(proposal).expect("taken");
}

#[test]
fn a_proposer_writes_what_is_little_and_waits_for_no_flush() {
    let world = SimWorld::new(11);
    let node = Node::start(&world, Config { prompt_bytes_max: 2_000, ..by_size(Durability::Async) }).expect("starts");
    propose_prompt(&node, 0, Durability::Async, 1_000);
    assert_eq!(node.sink.outcome(0), None, "the proposer writes after releasing its locks");
    node.journal.write_prompt();
    assert!(matches!(node.sink.outcome(0), Some(Outcome::Committed(_))));
    assert_eq!(node.journal.stats().groups_prompt, 1);
    assert!(node.journal.view().durable < node.journal.view().committed, "not by a flush");
    world.clock.advance_ms(1_000);
    assert!(node.journal.flush_step(), "that comes in its time");
    assert_eq!(node.journal.view().durable, node.journal.view().committed);
    // Work that waits for a flush, and large work, is done by the threads.
    propose_prompt(&node, 1, Durability::Sync, 1_000);
    node.journal.write_prompt();
    propose_prompt(&node, 2, Durability::Async, 10);
    node.journal.write_prompt();
    assert_eq!((node.sink.outcome(1), node.sink.outcome(2)), (None, None));
    node.settle();
    propose_prompt(&node, 3, Durability::Async, 3_000);
    node.journal.write_prompt();
    assert_eq!(node.sink.outcome(3), None);
    node.settle();
    let outcomes = node.sink.outcomes();
    assert_eq!(outcomes.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(node.journal.stats().groups_prompt, 1);
}

#[test]
fn a_proposer_neither_waits_for_the_disk_nor_begins_a_file() {
    let direct = Config { io: JournalIo::Direct, ..by_size(Durability::Async) };
    let node = Node::start(&SimWorld::new(12), direct).expect("starts");
    propose_prompt(&node, 0, Durability::Async, 100);
    node.journal.write_prompt();
    assert_eq!(node.sink.outcome(0), None, "its file is written by direct I/O");
    let node = Node::start(&SimWorld::new(13), by_size(Durability::Async)).expect("starts");
    let begun = node.journal.stats().files_begun;
    let mut tickets = 0..1_000;
    let refused = tickets.find(|ticket| {
        propose_prompt(&node, *ticket, Durability::Async, 1_000);
        node.journal.write_prompt();
        node.sink.outcome(*ticket).is_none()
    });
    assert_eq!(node.journal.stats().files_begun, begun);
    node.settle();
    assert_eq!(node.journal.stats().files_begun, begun + 1);
    assert!(matches!(node.sink.outcome(refused.expect("the file is full")), Some(Outcome::Committed(_))));
}

/// A clock that takes two milliseconds to read.
#[derive(Debug)]
struct SlowClock(Arc<dyn Clock>, AtomicU64);

impl Clock for SlowClock {
    fn now_ms(&self) -> TimestampMs {
        self.0.now_ms()
    }

    fn monotonic_ns(&self) -> u64 {
        self.0.monotonic_ns() + self.1.fetch_add(2_000_000, Ordering::Relaxed)
    }
}

#[test]
fn after_a_slow_write_the_threads_write_for_a_while() {
    let world = SimWorld::new(14);
    let clock = Arc::new(SlowClock(world.env().clock, AtomicU64::new(0)));
    let node = Node::start_env(&Env { clock, ..world.env() }, by_size(Durability::Async)).expect("starts");
    for ticket in 0..2 {
        propose_prompt(&node, ticket, Durability::Async, 100);
        node.journal.write_prompt();
    }
    assert!(node.sink.outcome(0).is_some() && node.sink.outcome(1).is_none());
    node.settle();
    world.clock.advance_ms(1_000);
    propose_prompt(&node, 2, Durability::Async, 100);
    node.journal.write_prompt();
    assert!(node.sink.outcome(2).is_some());
    assert_eq!(node.journal.stats().groups_prompt, 2);
}
