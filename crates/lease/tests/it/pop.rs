//! RocketMQ's pop in its own words: messages are invisible for a time, and acknowledged with a receipt handle.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_lease::*;
use polylogue_types::{Backoff, Retry, RetryOn};
use std::collections::BTreeSet;

const INVISIBLE_MS: u64 = 10_000;

#[test]
fn a_receipt_handle_is_good_for_one_delivery() {
    for size in [1, 100, 1000] {
        let mut harness = Harness::new(Config::default());
        harness.append(size);
        let client = harness.puller(1);
        let first = harness.pull(client, 1, Some(INVISIBLE_MS))[0];
        assert_eq!(harness.pull(client, 1, Some(INVISIBLE_MS)).len(), usize::from(size > 1));
        harness.wait(INVISIBLE_MS);
        let second = harness.pull(client, 1, Some(INVISIBLE_MS))[0];
        assert_eq!((second.first_offset, second.tally.returned), (0, 1));
        assert_ne!(first.lease, second.lease);
        assert_eq!(harness.queue.settle(0, 1, By::Lease(first.lease), harness.now), refused(0, Refusal::Stale));
        assert_eq!(harness.queue.settle(0, 1, By::Lease(second.lease), harness.now).unwrap().messages, 1);
        assert_eq!(harness.queue.settle(0, 1, By::Lease(second.lease), harness.now), refused(0, Refusal::Settled));
    }
}

#[test]
fn a_handle_from_before_a_crash_is_refused() {
    let mut harness = Harness::new(Config::default());
    harness.append(3);
    let client = harness.puller(1);
    let before = harness.pull(client, 1, Some(INVISIBLE_MS))[0];
    harness.crash();
    assert_eq!(harness.queue.settle(0, 1, By::Lease(before.lease), harness.now), refused(0, Refusal::NotHeld));
    harness.puller(1);
    harness.pull(client, 1, Some(INVISIBLE_MS));
    assert_eq!(harness.queue.settle(0, 1, By::Lease(before.lease), harness.now), refused(0, Refusal::Stale));
}

#[test]
fn leases_are_not_guessed_from_one_another() {
    let mut harness = Harness::new(Config::default());
    harness.append(1000);
    let client = harness.puller(1);
    let leases: Vec<u64> = (0..1000).map(|_| harness.pull(client, 1, Some(INVISIBLE_MS))[0].lease.0).collect();
    assert_eq!(leases.iter().collect::<BTreeSet<_>>().len(), 1000);
    assert!(leases.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1 << 20));
}

#[test]
fn the_invisible_time_can_be_changed() {
    let backoff = Backoff::Exponential { first_ms: 500, factor: 1, max_ms: 500 };
    let retry = Retry { on: RetryOn::Failed, backoff };
    let mut harness = Harness::new(Config { retry: Some(retry), ..Config::default() });
    harness.append(2);
    let client = harness.puller(1);
    let grant = harness.pull(client, 2, Some(INVISIBLE_MS))[0];
    let now = harness.now;
    assert_eq!(harness.queue.extend(0, 1, By::Lease(grant.lease), now + 100, now), Ok(1));
    assert_eq!(harness.queue.next_deadline_ms(), Some(now + 100));
    harness.wait(100);
    // It failed, and waits for its retry.
    assert_eq!((harness.counts().delayed, harness.counts().held), (1, 1));
    harness.wait(500);
    let again = harness.pull(client, 9, Some(INVISIBLE_MS));
    assert_eq!((offsets(&again), again[0].tally.failed), (vec![0], 1));
    assert_eq!(harness.queue.settle(1, 1, By::Lease(grant.lease), harness.now).unwrap().messages, 1);
}

/// Renewing again and again costs no memory.
#[test]
fn renewals_do_not_pile_up() {
    let mut harness = Harness::new(Config::default());
    harness.append(100);
    let client = harness.puller(1);
    let lease = harness.pull(client, 100, Some(INVISIBLE_MS))[0].lease;
    for round in 0..10_000 {
        let until = START_MS + INVISIBLE_MS + round;
        assert_eq!(harness.queue.extend(round % 100, 1, By::Lease(lease), until, harness.now), Ok(1));
    }
    assert!(harness.queue.memory_bytes() < 50_000, "{}", harness.queue.memory_bytes());
    harness.wait(INVISIBLE_MS + 9_999);
    assert_eq!(harness.counts().ready, 100);
}
