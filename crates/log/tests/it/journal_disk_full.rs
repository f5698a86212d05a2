//! Tests of a start, and of cleaning up, on a full disk.
#![allow(clippy::expect_used, reason = "the helpers are part of the tests")]

use crate::journal_common;

use journal_common::*;
use polylogue_env::Disk;
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimWorld};
use polylogue_log::journal::{Config, Outcome, Proposal};
use polylogue_types::Index;

/// Sets the free disk space.
fn leave_free(world: &SimWorld, bytes: u64) {
    const PLENTY: u64 = 1 << 40;
    world.disk.set_capacity(PLENTY);
    let free = world.disk.free_bytes(&journal_dir()).expect("says");
    world.disk.set_capacity(PLENTY - free + bytes);
}

/// Writes an entry that is allowed on a full disk.
fn write_reserved(node: &Node, ticket: u64) -> Option<Outcome> {
    let drafts = vec![draft(1, ticket, payload(ticket, 50))];
    let proposal = Proposal { reserve: true, ..Proposal::data(node.epoch, ticket, drafts) };
    node.journal.try_propose(proposal).ok()?;
    node.settle();
    node.sink.outcome(ticket)
}

#[test]
fn every_start_on_a_full_disk_finds_room_for_its_term() {
    let big = Config { file_bytes: 4 << 20, ..config() };
    let world = SimWorld::new(1);
    let node = Node::start(&world, big.clone()).expect("starts");
    for i in 0..4 {
        node.write(i, 1, i, 1_000);
    }
    // Each start ends the current file, and has only its unused space.
    leave_free(&world, 0);
    for start in 4..14 {
        world.kill();
        let node = Node::start(&world, big.clone()).expect("starts");
        assert_eq!(contents(&node.visited).len() as u64, start);
        assert!(node.journal.journal_room().full, "payload is refused from the start");
        assert!(matches!(write_reserved(&node, start), Some(Outcome::Committed(_))), "start {start}");
        // The unused space is either flushed and marked, or copied.
        if start % 2 == 0 {
            node.journal.shutdown().expect("ends");
        }
    }
    // With free space, files have their normal size again, and small ones are not kept.
    leave_free(&world, 8 * big.file_bytes);
    world.kill();
    let node = Node::start(&world, big.clone()).expect("starts");
    node.background();
    assert!(!node.journal.journal_room().full);
    assert!(node.journal.journal_room().in_files >= big.file_bytes);
    let upto = node.journal.view().durable.expect("durable");
    *node.sink.0.lock() = Heard::default();
    assert!(matches!(node.write(14, 1, 14, 2_000), Some(Outcome::Committed(_))));
    node.journal.release(upto).expect("releases");
    world.clock.advance_ms(1_000);
    node.settle();
    node.background();
    for name in world.disk.list(&journal_dir()).expect("lists") {
        let file = world.disk.open(&journal_dir().join(&name), polylogue_env::OpenMode::Read).expect("opens");
        assert_eq!(file.size().expect("says"), big.file_bytes, "{name}");
    }
}

#[test]
fn a_copy_that_was_never_made_is_not_missed_on_a_full_disk() {
    let world = SimWorld::new(2);
    let node = Node::start(&world, config()).expect("starts");
    node.background();
    for i in 0..3 {
        node.write(i, 1, i, 1_000);
    }
    world.kill();
    // Creating the copy fails.
    world.disk.inject(Fault::nth(FaultOp::Create, 1, FaultKind::NoSpace));
    let (journal, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
    assert!(journal.recovery().frames_copied > 0);
    assert_eq!(contents(&visited).len(), 3);
}

#[test]
fn naming_a_file_on_a_full_disk_is_tried_again_later() {
    // Copy-on-write file systems need space for a rename.
    let world = SimWorld::new(3);
    let config = Config { spare_files_max: 2, ..config() };
    let mut node = Node::start(&world, config.clone()).expect("starts");
    node.visited.clear();
    let mut next = 0;
    let mut renames = 0;
    for round in 0..12 {
        for _ in 0..10 {
            assert!(matches!(node.write(next, 1, next, 10_000), Some(Outcome::Committed(_))), "{next}");
            next += 1;
        }
        node.journal.seal_current();
        assert!(matches!(node.write(next, 1, next, 100), Some(Outcome::Committed(_))), "{next}");
        next += 1;
        *node.sink.0.lock() = Heard::default();
        node.journal.release(node.journal.view().durable.expect("durable")).expect("releases");
        // Files are recycled, and recycled ones prepared, or used by a writer that finds none prepared.
        world.disk.inject(Fault::from(FaultOp::Rename, 1 + round % 3, FaultKind::NoSpace));
        world.clock.advance_ms(1_000);
        node.settle();
        node.background();
        node.journal.seal_current();
        assert!(matches!(node.write(next, 1, next, 100), Some(Outcome::Committed(_))), "{next}");
        next += 1;
        renames += world.disk.stats().renames;
        world.disk.clear_faults();
        world.clock.advance_ms(1_000);
        node.settle();
        node.background();
        assert!(!node.journal.is_stopped(), "round {round}");
        assert_eq!(world.fatal().reason(), None);
    }
    assert!(renames > 0 && node.journal.stats().files_recycled >= 5, "{:?}", node.journal.stats());
    world.crash();
    let (_, visited) = open_in(&world.env(), config, node.journal.view().first).expect("opens");
    assert_eq!(contents(&visited).len(), 1);
}

#[test]
fn a_large_frame_that_cannot_have_the_ready_files_number_leaves_it_ready() {
    let world = SimWorld::new(4);
    let node = Node::start(&world, config()).expect("starts");
    node.background();
    let large = FILE_BYTES as usize + 10_000;
    world.disk.inject(Fault::nth(FaultOp::Rename, 1, FaultKind::NoSpace));
    assert_eq!(node.write(1, 1, 0, large), Some(Outcome::NotCommitted));
    let late = node.journal.stats().files_made_late;
    let node = Node { epoch: node.journal.acquire().expect("a term"), ..node };
    node.journal.seal_current();
    assert!(matches!(node.write(2, 1, 0, 100), Some(Outcome::Committed(_))));
    assert_eq!(node.journal.stats().files_made_late, late, "the ready one was there");
    node.background();
    assert!(matches!(node.write(3, 1, 1, large), Some(Outcome::Committed(_))));
    world.crash();
    let (_, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
    assert_eq!(contents(&visited).len(), 2);
}

/// Regression test: each start left an almost empty file of full size: three kills in a row took three times 64 MiB, permanently.
#[test]
fn starts_take_no_more_room_the_more_there_are() {
    let big = Config { file_bytes: 4 << 20, ..config() };
    for clean in [false, true] {
        let world = SimWorld::new(4);
        let mut taken = Vec::new();
        for start in 0..12 {
            let node = Node::start(&world, big.clone()).expect("starts");
            assert_eq!(contents(&node.visited).len() as u64, start);
            node.write(start, 1, start, 1_000);
            node.background();
            if clean {
                node.journal.shutdown().expect("ends");
            }
            drop(node);
            world.kill();
            let names = world.disk.list(&journal_dir()).expect("lists");
            let of = |name: &String| {
                let file = world.disk.open(&journal_dir().join(name), polylogue_env::OpenMode::Read).expect("opens");
                file.allocated_bytes().expect("says")
            };
            taken.push(names.iter().map(of).sum::<u64>());
        }
        let (early, late) = (taken[2], taken[11]);
        // Each start leaves a header, and the pages of its frames.
        assert!(late < early + 12 * (64 << 10), "{taken:?}");
    }
}
