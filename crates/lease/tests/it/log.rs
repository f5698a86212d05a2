//! Queues on a log: several on one, moved back and forth, kept in checkpoints, and what a damaged disk hands them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use bytes::Bytes;
use common::*;
use polylogue_lease::*;
use proptest::prelude::*;
use std::sync::Arc;

#[test]
fn several_subscriptions_on_one_log_do_not_see_each_other() {
    for size in [1u32, 10, 1000] {
        let (mut a, mut b) = (Harness::new(Config::default()), Harness::new(Config::default()));
        let (one, two) = (a.prefetch(1, 0), b.prefetch(1, 0));
        for n in 0..5 {
            let entry = Entry::plain(n * u64::from(size), size);
            a.entry(entry);
            b.entry(entry);
        }
        let total = 5 * u64::from(size);
        assert_eq!((count_of(&a.grant()), count_of(&b.grant())), (total, total));
        let _ = a.queue.settle(0, total, By::Consumer(one), a.now).unwrap();
        b.queue.release_all(two, counted(), b.now).unwrap();
        a.commit();
        b.commit();
        assert_eq!((a.queue.floor(), b.queue.floor(), count_of(&b.grant())), (total, 0, total));
        // One that begins later sees what the log holds from there on.
        let mut c = Queue::new(Arc::new(Config::default()), total - 1, total).unwrap();
        c.become_writer(START_MS, 3);
        assert_eq!(c.counts().ready, 1);
    }
    assert!(Queue::new(Arc::new(Config::default()), 5, 4).is_err());
    assert!(Queue::new(Arc::new(Config::default()), 0, OFFSET_MAX + 1).is_err());
}

#[test]
fn a_subscription_moves_back_and_forth() {
    for size in [1u32, 10, 1000] {
        let mut harness = Harness::new(Config { whole_entries: true, ..Config::default() });
        let entries: Vec<u64> = (0..6).map(|n| harness.append(size + n % 2)).collect();
        let end = harness.queue.committed_end();
        let one = harness.prefetch(1, 0);
        harness.grant();
        let _ = harness.ack(0, entries[3]);
        harness.commit();
        harness.checkpoint();
        // Back: everything from there on is new, and what was held is held no longer.
        let done = harness.queue.seek(entries[1], harness.now).unwrap();
        assert_eq!((done.messages, done.record), (end - entries[1], Some(2)));
        let late = harness.queue.settle(entries[4], 1, By::Consumer(one), harness.now);
        assert_eq!(late, refused(entries[4], Refusal::NotHeld));
        // What lies below the old floor is to be described: its entries are not known any more.
        assert_eq!(harness.queue.wants(), Some(entries[1]..entries[3]));
        assert_eq!(harness.grant(), []);
        (1..3).for_each(|n| harness.queue.describe(&Entry::plain(entries[n], size + n as u32 % 2)).unwrap());
        let again = harness.grant();
        assert_eq!(offsets(&again), (entries[1]..end).collect::<Vec<_>>());
        assert!(again.iter().all(|grant| grant.tally == Tally::default()));
        let _ = harness.ack(entries[2], u64::from(size));
        harness.commit();
        assert_eq!(harness.queue.floor(), entries[1]);
        harness.crash();
        assert_eq!(harness.counts().ready, end - entries[1] - u64::from(size));
        // Forth, also beyond the end.
        let _ = harness.queue.seek(entries[5], harness.now).unwrap();
        harness.commit();
        assert_eq!((harness.queue.floor(), harness.counts().ready), (entries[5], end - entries[5]));
        let _ = harness.queue.seek(u64::MAX, harness.now).unwrap();
        harness.commit();
        assert_eq!((harness.queue.floor(), harness.counts().ready), (end, 0));
        harness.checkpoint();
        harness.crash();
        assert_eq!((harness.queue.floor(), harness.counts().ready), (end, 0));
    }
}

#[test]
fn two_moves_in_flight_are_both_kept_to() {
    let mut harness = Harness::new(Config::default());
    harness.append(100);
    let _ = harness.ack(0, 100);
    harness.commit();
    let _ = harness.queue.seek(10, harness.now).unwrap();
    let first = harness.queue.take_record().unwrap();
    let _ = harness.queue.seek(50, harness.now).unwrap();
    let _ = harness.ack(60, 10);
    let second = harness.queue.take_record().unwrap();
    assert_eq!(harness.counts().ready, 40);
    harness.queue.apply(&first.bytes).unwrap();
    assert_eq!((harness.queue.floor(), harness.counts().ready), (10, 40));
    harness.queue.apply(&second.bytes).unwrap();
    assert_eq!((harness.queue.floor(), harness.queue.is_settled(65), harness.counts().ready), (50, true, 40));
    harness.queue.on_writer_lost();
    harness.queue.become_writer(harness.now, 9);
    assert_eq!(harness.counts().ready, 40);
}

/// A record of before a move was applied behind it, and forgot the sizes of messages beside its own that the move had made ready again:
/// what was held counted for more than it gave back.
#[test]
fn bytes_add_up_when_sizes_are_forgotten_during_a_move() {
    let mut harness = Harness::new(Config { track_bytes: true, ..Config::default() });
    harness.entry(Entry { bytes: 80, ..Entry::plain(0, 8) });
    // What is known of the middle is kept as long as both its ends are.
    let _ = harness.ack(3, 2);
    harness.commit();
    let _ = harness.ack(5, 3);
    let settled = harness.queue.take_record().unwrap();
    let _ = harness.queue.seek(0, harness.now).unwrap();
    let _ = harness.ack(5, 3);
    let held = harness.prefetch(1, 0);
    assert_eq!((harness.grant().len(), harness.counts().held_size.bytes), (1, 50));
    harness.queue.apply(&settled.bytes).unwrap();
    let _ = harness.queue.settle(0, 5, By::Consumer(held), harness.now).unwrap();
    let Counts { held, held_size, ready, ready_size, .. } = harness.counts();
    assert_eq!((held, held_size, ready, ready_size), (0, Size::default(), 0, Size::default()));
}

#[test]
fn offsets_that_are_no_messages_are_passed_over() {
    let mut harness = Harness::new(Config::default());
    harness.append(3);
    harness.entry(Entry::plain(10, 2));
    harness.prefetch(1, 0);
    assert_eq!(offsets(&harness.grant()), [0, 1, 2, 10, 11]);
    let _ = harness.ack(0, 3);
    harness.commit();
    assert_eq!(harness.queue.floor(), 10);
    assert_eq!(harness.queue.appended(&Entry::plain(11, 1)), Err(LeaseError::NotInOrder { expected: 12, got: 11 }));
    assert_eq!(harness.queue.appended(&Entry::plain(OFFSET_MAX, 1)), Err(LeaseError::OffsetTooHigh(OFFSET_MAX + 1)));
    assert_eq!(harness.queue.appended(&Entry::plain(12, 0)), Err(LeaseError::OffsetTooHigh(12)));
}

#[test]
fn acknowledgements_of_a_flush_are_one_small_record() {
    let mut harness = Harness::new(Config::default());
    harness.append(1000);
    harness.prefetch(1, 0);
    harness.grant();
    for offset in 0..500 {
        assert_eq!(harness.ack(offset, 1).record, Some(1));
    }
    let record = harness.queue.take_record().unwrap();
    assert!(record.bytes.len() < 10, "{}", record.bytes.len());
    for offset in (501..1000).step_by(2) {
        assert_eq!(harness.ack(offset, 1).record, Some(2));
    }
    assert_eq!(harness.queue.pending_ranges(), 250);
    let record = harness.queue.take_record().unwrap();
    assert!(record.bytes.len() < 4 * 250 + 10, "{}", record.bytes.len());
}

#[test]
fn a_checkpoint_writes_what_changed() {
    let mut harness = Harness::new(Config::default());
    harness.append(100_000);
    for offset in (1..100_000).step_by(10) {
        let _ = harness.ack(offset, 1);
    }
    harness.commit();
    let all = harness.queue.take_changed_chunks();
    assert_eq!(all.len(), 14);
    let _ = harness.ack(50_000, 1);
    harness.commit();
    let changed: Vec<_> = harness.queue.take_changed_chunks();
    assert_eq!(changed.len(), 1);
    assert_eq!(harness.queue.take_changed_chunks(), []);
    harness.queue.change_all_chunks();
    assert_eq!(harness.queue.take_changed_chunks().len(), all.len());
    // Blocks below the floor are gone.
    let _ = harness.ack(0, 90_000);
    harness.commit();
    let gone = harness.queue.take_changed_chunks();
    assert_eq!(gone.iter().filter(|(_, chunk)| chunk.is_none()).count(), 10);
}

#[test]
fn limits_change_and_what_is_fixed_does_not() {
    let mut harness = Harness::new(Config { whole_entries: true, ..Config::default() });
    harness.append(100);
    harness.queue.configure(Arc::new(Config { length_max: Some(10), ..Config::default() }));
    assert!(harness.queue.config().whole_entries);
    harness.wait(0);
    assert_eq!(harness.counts().ready, 10);
}

/// A queue that nothing special was ever asked of.
fn loaded(chunks: &[(Bytes, Bytes)]) -> Option<Queue> {
    let config = Config { key_order: true, track_bytes: true, dead_letter: true, ..Config::default() };
    let mut queue = Queue::empty(Arc::new(config));
    chunks.iter().try_for_each(|(id, chunk)| queue.load_chunk(id, chunk)).ok()?;
    queue.loaded().ok()?;
    Some(queue)
}

fn use_it(mut queue: Queue) {
    queue.become_writer(START_MS, 1);
    queue.add_consumer(ConsumerId(1), ConsumerConfig::default()).unwrap();
    let mut grants = Vec::new();
    queue.grant(START_MS, 10_000, &mut grants);
    grants.iter().take(100).for_each(|grant| {
        let _ = queue.release(grant.first_offset, u64::from(grant.count), By::Anyone, counted(), START_MS).unwrap();
    });
    queue.on_deadline(START_MS * 2);
    let _ = queue.settle_to(queue.committed_end() / 2).unwrap();
    let _ = queue.seek(queue.committed_end() / 3, START_MS).unwrap();
    let _ = queue.purge().unwrap();
    while let Some(record) = queue.take_record() {
        queue.apply(&record.bytes).unwrap();
    }
    queue.take_changed_chunks();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damaged_state_is_refused_or_consistent(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        garbage in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut harness = Harness::new(Config { track_bytes: true, dead_letter: true, ..Config::default() });
        let late = Some(START_MS + 5);
        harness.entry(Entry { bytes: 500, priority: 3, expires_at_ms: late, ..Entry::plain(0, 10) });
        harness.entry(Entry { bytes: 70, deliver_at_ms: late, ..Entry::plain(20, 30) });
        let one = harness.prefetch(1, 0);
        harness.grant();
        let _ = harness.ack(4, 2);
        let _ = harness.queue.reject(7, 1, By::Consumer(one), harness.now).unwrap();
        let _ = harness.queue.release(8, 1, By::Consumer(one), counted(), harness.now).unwrap();
        let record = harness.queue.take_record().unwrap();
        harness.queue.apply(&record.bytes).unwrap();
        let mut all: Vec<(Bytes, Bytes)> =
            harness.queue.take_changed_chunks().into_iter().filter_map(|(id, chunk)| Some((id, chunk?))).collect();
        all.push((Bytes::new(), record.bytes));
        for (place, value) in flips {
            let total: usize = all.iter().map(|(_, bytes)| bytes.len()).sum();
            let mut at = place.index(total);
            for (_, bytes) in &mut all {
                if at < bytes.len() {
                    let mut changed = bytes.to_vec();
                    changed[at] ^= value;
                    *bytes = Bytes::from(changed);
                    break;
                }
                at -= bytes.len();
            }
        }
        let (_, record) = all.pop().unwrap();
        if let Some(mut queue) = loaded(&all) {
            for record in [&record[..], &garbage] {
                let before = (queue.floor(), queue.settled_ranges().collect::<Vec<_>>());
                if queue.apply(record).is_err() {
                    prop_assert_eq!(before, (queue.floor(), queue.settled_ranges().collect::<Vec<_>>()));
                }
            }
            use_it(queue);
        }
        if let Some(queue) = loaded(&[(Bytes::from_static(b"H"), Bytes::from(garbage))]) {
            use_it(queue);
        }
    }
}
