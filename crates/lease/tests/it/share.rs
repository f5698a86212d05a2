//! A share group (KIP-932) in its own words: records are acquired for a time, each is accepted, released, rejected or renewed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_lease::*;

const LOCK_MS: u64 = 30_000;

fn group() -> Config {
    Config { failures_max: Some(5), held_max: Some(2000), ..Config::default() }
}

#[test]
fn a_bounded_acquire_crosses_batches() {
    for size in [1, 7, 1000] {
        let mut harness = Harness::new(group());
        (0..3000 / size).for_each(|_| _ = harness.append(size));
        let member = harness.puller(1);
        assert_eq!(harness.grant(), []);
        let grants = harness.pull(member, 500, Some(LOCK_MS));
        assert_eq!(offsets(&grants), (0..500).collect::<Vec<_>>());
        assert!(grants.iter().all(|grant| grant.deadline_ms == Some(START_MS + LOCK_MS) && !grant.redelivered));
        // No more than the group may hold.
        assert_eq!(count_of(&harness.pull(member, 5000, Some(LOCK_MS))), 1500);
        assert_eq!(harness.pull(member, 1, Some(LOCK_MS)), []);
        let _ = harness.queue.settle(0, 10, By::Consumer(member), harness.now).unwrap();
        assert_eq!(count_of(&harness.pull(member, 5000, Some(LOCK_MS))), 10);
    }
}

#[test]
fn every_record_has_an_outcome_of_its_own() {
    let mut harness = Harness::new(group());
    harness.append(1000);
    let (one, two) = (harness.puller(1), harness.puller(2));
    harness.pull(one, 10, Some(LOCK_MS));
    harness.pull(two, 10, Some(LOCK_MS));
    let now = harness.now;
    let accepted = harness.queue.settle(0, 4, By::Consumer(one), now).unwrap();
    let rejected = harness.queue.reject(4, 2, By::Consumer(one), now).unwrap();
    let released = harness.queue.release(6, 2, By::Consumer(one), counted(), now).unwrap();
    assert_eq!(
        [accepted, rejected, released].map(|done| (done.messages, done.record)),
        [4, 2, 2].map(|n| (n, Some(1)))
    );
    // All or none, and only by who holds them.
    assert_eq!(harness.queue.settle(7, 2, By::Consumer(one), now), refused(7, Refusal::NotHeld));
    assert_eq!(harness.queue.settle(9, 2, By::Consumer(one), now), refused(10, Refusal::Stale));
    assert_eq!(harness.queue.settle(3, 1, By::Consumer(one), now), refused(3, Refusal::Settled));
    assert_eq!(harness.queue.settle(1000, 1, By::Consumer(one), now), refused(1000, Refusal::Beyond));
    assert_eq!(harness.counts().held, 12);
    harness.commit();
    assert_eq!(harness.queue.floor(), 6);
    let again = harness.pull(two, 3, Some(LOCK_MS));
    let tallies: Vec<_> = again.iter().map(|grant| (grant.first_offset, grant.count, grant.tally.returned)).collect();
    assert_eq!(tallies, [(6, 2, 1), (20, 1, 0)]);
}

#[test]
fn a_lock_that_runs_out_counts_and_can_be_renewed() {
    let mut harness = Harness::new(group());
    harness.append(2);
    let member = harness.puller(1);
    harness.pull(member, 2, Some(LOCK_MS));
    harness.wait(LOCK_MS - 1);
    let now = harness.now;
    assert_eq!(harness.queue.extend(1, 1, By::Consumer(member), now + LOCK_MS, now), Ok(1));
    harness.wait(1);
    assert_eq!((harness.counts().held, harness.counts().ready), (1, 1));
    let refused_at = |offset| refused(offset, Refusal::NotHeld);
    assert_eq!(harness.queue.settle(0, 1, By::Consumer(member), harness.now), refused_at(0));
    // Even before the time is advanced.
    harness.now += LOCK_MS;
    assert_eq!(harness.queue.settle(1, 1, By::Consumer(member), harness.now), refused(1, Refusal::Expired));
    harness.wait(0);
    let grants = harness.pull(member, 2, Some(LOCK_MS));
    assert_eq!((offsets(&grants), grants[0].tally), (vec![0, 1], Tally { returned: 1, failed: 1 }));
}

#[test]
fn after_its_last_delivery_a_record_is_archived() {
    let mut harness = Harness::new(group());
    harness.append(1);
    let member = harness.puller(1);
    for delivery in 1..=5u16 {
        let grants = harness.pull(member, 1, Some(LOCK_MS));
        assert_eq!(grants[0].tally.returned + 1, delivery);
        harness.wait(LOCK_MS);
        harness.commit();
        harness.crash();
        harness.puller(1);
    }
    assert_eq!((harness.pull(member, 1, Some(LOCK_MS)), harness.queue.floor()), (Vec::new(), 1));
}

#[test]
fn the_groups_lock_is_lifted_when_its_member_leaves() {
    let mut harness = Harness::new(group());
    harness.append(100);
    let one = harness.puller(1);
    harness.pull(one, 100, Some(LOCK_MS));
    let _ = harness.queue.settle(50, 10, By::Consumer(one), harness.now).unwrap();
    assert_eq!(harness.queue.remove_consumer(one, Return::default(), harness.now), Ok(90));
    let two = harness.puller(2);
    let grants = harness.pull(two, 1000, Some(LOCK_MS));
    let ranges: Vec<_> = grants.iter().map(|grant| (grant.first_offset, grant.count)).collect();
    assert_eq!(ranges, [(0, 50), (60, 40)]);
}

#[test]
fn bytes_bound_an_acquire_but_let_one_record_through() {
    let mut harness = Harness::new(Config { track_bytes: true, ..group() });
    (0..10).for_each(|n| harness.entry(Entry { bytes: 1000, ..Entry::plain(n * 10, 10) }));
    let member = harness.puller(1);
    let mut out = Vec::new();
    let want = Acquire { messages_max: 50, bytes_max: 1550, lease_ms: None };
    assert_eq!(harness.queue.acquire(member, &want, harness.now, &mut out), Ok(15));
    let want = Acquire { bytes_max: 1, ..want };
    assert_eq!(harness.queue.acquire(member, &want, harness.now, &mut out), Ok(1));
    assert_eq!(
        harness.queue.acquire(ConsumerId(9), &want, harness.now, &mut out),
        Err(LeaseError::NoConsumer(ConsumerId(9)))
    );
}
