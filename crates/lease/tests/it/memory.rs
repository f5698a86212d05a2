//! What a queue costs: memory by what is unusual, and no allocation for what is usual.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_lease::*;
use std::sync::Arc;

#[test]
fn an_empty_queue_is_small() {
    let queue = Queue::new(Arc::new(Config::default()), 0, 0).unwrap();
    assert!(queue.memory_bytes() <= 640, "{}", queue.memory_bytes());
    // As is one that was used and is empty again.
    let mut harness = Harness::new(Config::default());
    let one = harness.prefetch(1, 0);
    for offset in (0..100_000).step_by(1000) {
        harness.append(1000);
        harness.grant();
        for offset in offset..offset + 1000 {
            let _ = harness.ack(offset ^ 1, 1);
        }
        harness.commit();
    }
    harness.queue.remove_consumer(one, Return::default(), harness.now).unwrap();
    harness.queue.take_changed_chunks();
    assert!(harness.queue.memory_bytes() <= 3000, "{}", harness.queue.memory_bytes());
}

#[test]
fn ten_million_messages_cost_their_holes() {
    const MESSAGES: u64 = 10_000_000;
    let mut harness = Harness::new(Config::default());
    (0..MESSAGES / 1000).for_each(|_| _ = harness.append(1000));
    assert!(harness.queue.memory_bytes() < 2000, "{}", harness.queue.memory_bytes());
    for hole in (500..MESSAGES).step_by(1000) {
        let _ = harness.ack(hole, 1);
    }
    let holes = MESSAGES as usize / 1000;
    assert!(harness.commit());
    harness.queue.take_changed_chunks();
    assert_eq!(harness.queue.settled_ranges().count(), holes);
    assert_eq!(harness.counts().ready, MESSAGES - holes as u64);
    assert!(harness.queue.memory_bytes() < 100 * holes, "{}", harness.queue.memory_bytes());
    // All of it handed out and acknowledged.
    let one = harness.prefetch(1, 0);
    let grants = harness.grant();
    assert_eq!(count_of(&grants), MESSAGES - holes as u64);
    assert!(harness.queue.memory_bytes() < 150 * holes, "{}", harness.queue.memory_bytes());
    for grant in &grants {
        let _ =
            harness.queue.settle(grant.first_offset, u64::from(grant.count), By::Consumer(one), harness.now).unwrap();
    }
    harness.commit();
    harness.queue.take_changed_chunks();
    assert_eq!(harness.queue.floor(), MESSAGES);
    assert!(harness.queue.memory_bytes() < 3000, "{}", harness.queue.memory_bytes());
}

/// One message that is never settled keeps the floor down; nothing else is kept of the many above it.
#[test]
fn a_message_that_stays_does_not_keep_what_is_known_of_others() {
    for whole_entries in [false, true] {
        let mut harness = Harness::new(Config { track_bytes: true, whole_entries, ..Config::default() });
        harness.append(1);
        for n in 0..20_000u64 {
            let first_offset = harness.queue.committed_end();
            let entry =
                Entry { expires_at_ms: Some(START_MS * 2 + n), bytes: 10 * n, ..Entry::plain(first_offset, 10) };
            harness.queue.appended(&Entry { priority: (n % 3) as u8, ..entry }).unwrap();
            // Out of order, so that an entry is settled in parts.
            let _ = harness.ack(first_offset + 5, 5);
            harness.queue.take_record().map(|record| harness.queue.apply(&record.bytes)).unwrap().unwrap();
            let _ = harness.ack(first_offset, 5);
            harness.queue.take_record().map(|record| harness.queue.apply(&record.bytes)).unwrap().unwrap();
        }
        harness.queue.take_changed_chunks();
        assert_eq!((harness.queue.floor(), harness.queue.settled_ranges().count()), (0, 1));
        assert!(harness.queue.memory_bytes() < 4000, "{}", harness.queue.memory_bytes());
    }
}

/// Sizes that change with every message are kept as averages once there are many, and their sum stays.
#[test]
fn sizes_of_all_kinds_cost_little_and_add_up() {
    let mut harness = Harness::new(Config { track_bytes: true, ..Config::default() });
    let mut total = 0;
    for n in 0..500_000u64 {
        let (body, extra_bytes) = (100 + n * 7919 % 1000, 50 + n * 104_729 % 300);
        total += body;
        let entry = Entry { bytes: body + extra_bytes, extra_bytes, transient: n % 5 == 0, ..Entry::plain(n, 1) };
        harness.queue.appended(&entry).unwrap();
    }
    let counted = harness.counts().ready_size.bytes;
    assert!(counted.abs_diff(total) < total / 1000, "{counted} for {total}");
    harness.queue.take_changed_chunks();
    assert!(harness.queue.memory_bytes() < 4_000_000, "{}", harness.queue.memory_bytes());
    harness.consumer(1, ConsumerConfig { settles: true, ..ConsumerConfig::default() });
    harness.grant();
    assert_eq!(harness.counts(), Counts { consumers: 1, ..Counts::default() });
}

#[test]
fn a_message_that_comes_and_goes_allocates_nothing() {
    for early in [false, true] {
        let mut harness = Harness::new(Config { mark_handed: true, track_bytes: true, ..Config::default() });
        let one = harness.prefetch(1, 100);
        let two = harness.prefetch(2, 100);
        let mut grants = Vec::with_capacity(16);
        let mut next = 0;
        let mut go = |harness: &mut Harness| {
            for _ in 0..50 {
                let entry = Entry { bytes: 100, ..Entry::plain(next, 1) };
                if early {
                    harness.queue.appended_unflushed(&entry).unwrap();
                } else {
                    harness.queue.appended(&entry).unwrap();
                }
                grants.clear();
                assert_eq!(harness.queue.grant(harness.now, 10, &mut grants), 1);
                let by = By::Consumer(if grants[0].consumer == one { one } else { two });
                let done = harness.queue.settle(next, 1, by, harness.now).unwrap();
                assert!(done.record.is_some());
                if early {
                    harness.queue.appended(&entry).unwrap();
                }
                next += 1;
            }
        };
        go(&mut harness);
        harness.commit();
        let counted = allocation_counter::measure(|| go(&mut harness));
        // The measure itself can see one: the record of the flush, which a run of acknowledgements shares.
        let flush = allocation_counter::measure(|| _ = harness.commit());
        assert_eq!((counted.count_total, counted.bytes_total), (0, 0), "early: {early}");
        assert!((1..20).contains(&flush.count_total), "{}", flush.count_total);
    }
}

/// Each 10 ms of messages that live for a day had a time of their own: millions of them.
#[test]
fn messages_that_live_long_cost_little_and_expire_to_the_grain_of_the_queue() {
    const DAY_MS: u64 = 24 * 3600 * 1000;
    const EVERY_MS: u64 = 400;
    const MESSAGES: u64 = DAY_MS / EVERY_MS;
    let mut harness = Harness::new(Config { expiry_grain_ms: 10, track_bytes: true, ..Config::default() });
    let mut described: u64 = 0;
    // One each 400 ms for two days, from clients whose clocks differ by a little: no queue wants them.
    let entry = |offset: u64| {
        let time_ms = START_MS + offset * EVERY_MS;
        let expires_at_ms = Some(time_ms + DAY_MS - offset * 7 % 13);
        Entry { bytes: 100, expires_at_ms, time_ms, ..Entry::plain(offset, 1) }
    };
    let mut most = 0;
    for offset in 0..2 * MESSAGES {
        harness.queue.appended(&entry(offset)).unwrap();
        harness.now = START_MS + offset * EVERY_MS;
        if offset % 97 != 0 && offset % MESSAGES > 10 {
            continue;
        }
        harness.queue.on_deadline(harness.now);
        while let Some(range) = harness.queue.uncertain(harness.now) {
            assert_eq!(harness.grant(), []);
            described += range.end - range.start;
            range.clone().for_each(|offset| harness.queue.describe_expiry(&entry(offset)));
            harness.queue.expiry_described(range);
            harness.queue.on_deadline(harness.now);
        }
        harness.commit();
        harness.queue.take_changed_chunks();
        most = most.max(harness.queue.memory_bytes());
        // Gone is what has expired, to 10 ms, and nothing else.
        let first = harness.queue.floor();
        let expires_ms = |offset| entry(offset).expires_at_ms.unwrap();
        assert!(first == 0 || expires_ms(first - 1) <= harness.now, "{first} is gone too early");
        assert!(expires_ms(first) + 10 > harness.now, "{first} is there for too long");
    }
    assert!(most < (1 << 15) * 60, "{most} bytes");
    assert!(described < 2 * MESSAGES, "nothing is asked twice: {described}");
}
