//! Tests of proposals with a durability of their own, in journals of either class.
#![allow(clippy::expect_used, reason = "the helpers are part of the tests")]

use crate::journal_common;

use journal_common::*;
use polylogue_env::sim::SimWorld;
use polylogue_log::journal::{Config, Durability, Outcome, Proposal, Urgency};
use polylogue_types::Index;

fn start(world: &SimWorld, own: Durability) -> Node {
    Node::start(world, Config { durability: own, ..config() }).expect("starts")
}

fn propose(node: &Node, ticket: u64, class: Durability, urgency: Urgency) {
    let drafts = vec![draft(1, ticket, payload(ticket, 100))];
    let proposal = Proposal { class: Some(class), urgency, ..Proposal::data(node.epoch, ticket, drafts) };
    node.journal.try_propose(proposal).expect("taken");
}

fn tickets(node: &Node) -> Vec<u64> {
    node.sink.outcomes().iter().map(|(ticket, _)| *ticket).collect()
}

#[test]
fn what_needs_no_flush_is_committed_when_written_in_a_sync_journal() {
    let world = SimWorld::new(1);
    let node = start(&world, Durability::Sync);
    let flushes = node.journal.stats().flush.count;
    propose(&node, 0, Durability::Async, Urgency::Urgent);
    node.settle();
    assert_eq!(node.sink.outcome(0), Some(Outcome::Committed(Index(2))));
    assert_eq!(node.journal.stats().flush.count, flushes, "committed before any flush");
    assert_eq!(node.journal.view().durable, Some(Index(1)));
    world.clock.advance_ms(999);
    node.settle();
    assert_eq!(node.journal.view().durable, Some(Index(1)), "it has as much time as in a journal of its class");
    world.clock.advance_ms(1);
    node.settle();
    assert_eq!(node.journal.view().durable, Some(Index(2)));
}

#[test]
fn what_needs_a_flush_gets_one_in_an_async_journal() {
    let world = SimWorld::new(2);
    let node = start(&world, Durability::Async);
    let flushes = node.journal.stats().flush.count;
    propose(&node, 0, Durability::Sync, Urgency::Urgent);
    assert!(node.journal.write_step());
    assert_eq!(node.sink.outcome(0), None, "written is not flushed");
    assert!(node.journal.flush_step());
    assert_eq!(node.sink.outcome(0), Some(Outcome::Committed(Index(2))));
    assert_eq!(node.journal.stats().flush.count, flushes + 1);
    world.disk.crash_losing_all();
    let (_, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
    assert_eq!(contents(&visited), [entry(1, 0, &payload(0, 100))]);
}

/// A lazy proposal waits at most ten milliseconds, whatever the journal's class: nothing after it is committed before it.
#[test]
fn a_lazy_one_that_needs_a_flush_holds_an_async_journal_up_only_briefly() {
    let world = SimWorld::new(3);
    let node = start(&world, Durability::Async);
    world.clock.advance_ms(5);
    propose(&node, 0, Durability::Sync, Urgency::Lazy);
    world.clock.advance_ms(1);
    node.settle();
    propose(&node, 1, Durability::Async, Urgency::Urgent);
    node.settle();
    assert_eq!(tickets(&node), [0_u64; 0]);
    world.clock.advance_ms(9);
    node.settle();
    assert_eq!(tickets(&node), [0, 1]);
}

#[test]
fn outcomes_keep_the_order_of_proposals() {
    for own in [Durability::Sync, Durability::Async] {
        let world = SimWorld::new(4);
        let node = start(&world, own);
        propose(&node, 0, Durability::Async, Urgency::Urgent);
        node.journal.write_step();
        assert_eq!(tickets(&node), [0]);
        propose(&node, 1, Durability::Sync, Urgency::Urgent);
        node.journal.write_step();
        propose(&node, 2, Durability::Async, Urgency::Urgent);
        node.journal.write_step();
        assert_eq!(tickets(&node), [0], "a proposal that needs no flush stays after one that does");
        node.journal.flush_step();
        assert_eq!(tickets(&node), [0, 1, 2]);
        // A group of both is committed as a whole.
        propose(&node, 3, Durability::Async, Urgency::Urgent);
        propose(&node, 4, Durability::Sync, Urgency::Urgent);
        node.journal.write_step();
        assert_eq!(tickets(&node), [0, 1, 2]);
        node.journal.flush_step();
        assert_eq!(tickets(&node), [0, 1, 2, 3, 4]);
        propose(&node, 5, Durability::Async, Urgency::Urgent);
        node.journal.write_step();
        assert_eq!(tickets(&node), [0, 1, 2, 3, 4, 5], "nothing is held any more");
    }
}

/// A lazy proposal is written with an urgent one, and flushed once written.
#[test]
fn what_may_wait_is_written_with_what_comes_and_flushed_at_once() {
    let world = SimWorld::new(9);
    let node = start(&world, Durability::Sync);
    let flushes = node.journal.stats().flush.count;
    propose(&node, 0, Durability::Sync, Urgency::Soon);
    propose(&node, 1, Durability::Sync, Urgency::Soon);
    assert!(!node.journal.write_step(), "it waits");
    world.clock.advance_ms(1);
    assert!(node.journal.write_step() && node.journal.flush_step());
    assert_eq!((tickets(&node), node.journal.stats().flush.count), (vec![0, 1], flushes + 1));
    propose(&node, 2, Durability::Sync, Urgency::Soon);
    propose(&node, 3, Durability::Sync, Urgency::Urgent);
    assert!(node.journal.write_step() && node.journal.flush_step(), "it does not wait longer than another");
    assert_eq!((tickets(&node), node.journal.stats().flush.count), (vec![0, 1, 2, 3], flushes + 2));
}
