//! A subscription in the words of Pulsar: entries are batches, handed out whole; acknowledged one by one, up to a position, or in part.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_lease::*;
use polylogue_types::Backoff;
use std::collections::{BTreeMap, BTreeSet};

fn shared() -> Config {
    Config { whole_entries: true, quantum: 20, ..Config::default() }
}

fn key_shared() -> Config {
    Config { key_order: true, ..Config::default() }
}

fn flow(permits: u64) -> ConsumerConfig {
    ConsumerConfig { permits: Some(permits), ..ConsumerConfig::default() }
}

fn sticky(first: u32, last: u32) -> ConsumerConfig {
    ConsumerConfig { hashes: vec![(first, last)], ..ConsumerConfig::default() }
}

fn keyed(harness: &mut Harness, hash: u32) -> u64 {
    harness.message(Entry { key_hash: Some(hash), ..Entry::default() })
}

#[test]
fn permits_count_messages_and_a_batch_is_not_split() {
    for size in [1, 7, 1000] {
        let mut harness = Harness::new(shared());
        (0..5).for_each(|_| _ = harness.append(size));
        let one = harness.consumer(1, flow(1));
        assert_eq!(offsets(&harness.grant()), (0..u64::from(size)).collect::<Vec<_>>());
        assert_eq!(harness.grant(), []);
        harness.queue.add_permits(one, u64::from(size) + 1, 0).unwrap();
        // So many fit: one batch, and another one for what is left over.
        let given = count_of(&harness.grant());
        assert_eq!(given, if size == 1 { 2 } else { 2 * u64::from(size) });
        // Acknowledging brings no permits.
        let _ = harness.ack(0, u64::from(size));
        assert_eq!(harness.grant(), []);
    }
}

#[test]
fn batches_go_to_consumers_in_turn() {
    let mut harness = Harness::new(Config { quantum: 1, ..shared() });
    harness.consumer(1, flow(100));
    harness.consumer(2, flow(100));
    [3, 5, 2, 4].into_iter().for_each(|size| _ = harness.append(size));
    let whole: Vec<_> =
        harness.grant().iter().map(|grant| (grant.consumer.0, grant.first_offset, grant.count)).collect();
    assert_eq!(whole, [(1, 0, 3), (2, 3, 5), (1, 8, 2), (2, 10, 4)]);
}

#[test]
fn what_is_left_of_a_batch_comes_back_to_one_consumer() {
    let mut harness = Harness::new(Config { quantum: 1, ..shared() });
    let one = harness.consumer(1, flow(10));
    harness.append(10);
    harness.append(10);
    harness.grant();
    // The batch's messages 0, 3 and 4 are done with; the bits say which are not.
    let done = harness.queue.settle_batch(0, 10, &[!0b1_1001]).unwrap();
    assert_eq!(done, Done { messages: 3, record: Some(1) });
    assert_eq!(harness.queue.settle_batch(0, 10, &[!0b1_1001]).unwrap(), Done { messages: 0, record: Some(1) });
    harness.commit();
    assert_eq!(harness.queue.floor(), 1);
    harness.queue.remove_consumer(one, counted(), harness.now).unwrap();
    harness.crash();
    harness.consumer(1, flow(1));
    harness.consumer(2, flow(1));
    let again: Vec<_> = pairs(&harness.grant());
    let of = |consumer: u64| again.iter().filter(|pair| pair.0 == consumer).map(|pair| pair.1).collect::<Vec<_>>();
    assert_eq!((of(1), of(2)), (vec![1, 2, 5, 6, 7, 8, 9], (10..20).collect()));
}

#[test]
fn settled_messages_are_no_longer_settled_when_their_record_is_void() {
    let mut harness = Harness::new(shared());
    harness.consumer(1, flow(100));
    harness.append(10);
    harness.grant();
    let _ = harness.ack(3, 1);
    let record = harness.queue.take_record().unwrap();
    assert!(!record.lazy);
    assert_eq!(harness.queue.settle(3, 1, By::Anyone, harness.now).unwrap(), Done { messages: 0, record: Some(1) });
    assert_eq!(harness.queue.take_record(), None);
    harness.queue.on_writer_lost();
    assert_eq!(harness.queue.settle(3, 1, By::Anyone, harness.now), Err(LeaseError::NotWriter));
    harness.queue.become_writer(harness.now, 77);
    assert_eq!(harness.counts().ready, 10);
    assert_eq!(harness.queue.apply(&record.bytes), Err(LeaseError::NotProposed));
}

#[test]
fn cumulative_acknowledgement_covers_whatever_lies_before() {
    for size in [1u32, 10, 1000] {
        let mut harness = Harness::new(Config { mode: Mode::Exclusive, ..shared() });
        (0..3).for_each(|_| _ = harness.append(size));
        harness.consumer(1, flow(1));
        harness.grant();
        let to = 2 * u64::from(size) - 1;
        let _ = harness.ack(to, 1);
        assert_eq!(harness.queue.settle_to(to).unwrap().messages, to);
        assert_eq!(harness.queue.settle_to(to).unwrap(), Done { messages: 0, record: Some(1) });
        assert!(harness.commit());
        assert_eq!((harness.queue.floor(), harness.counts().held), (to + 1, 0));
        assert_eq!(harness.queue.settle_to(to).unwrap(), Done::default());
        assert!(!harness.commit());
        let _ = harness.queue.settle_to(u64::MAX).unwrap();
        harness.commit();
        assert_eq!(harness.queue.floor(), 3 * u64::from(size));
    }
}

#[test]
fn negative_acknowledgement_with_delay_keeps_the_others_going() {
    let mut harness = Harness::new(shared());
    harness.consumer(1, flow(1000));
    (0..3).for_each(|_| _ = harness.append(2));
    harness.grant();
    let back_off = Delay::Backoff(Backoff::Exponential { first_ms: 10, factor: 2, max_ms: 1000 });
    let how = Return { counts: true, delay: back_off, ..Return::default() };
    assert_eq!(harness.queue.release(2, 2, By::Anyone, how, harness.now).unwrap().messages, 2);
    assert_eq!(harness.grant(), []);
    harness.commit();
    // The delay survives a crash.
    harness.crash();
    harness.consumer(1, flow(1000));
    assert_eq!(offsets(&harness.grant()), [0, 1, 4, 5]);
    harness.wait(10);
    let again = harness.grant();
    assert_eq!((offsets(&again), again[0].tally.failed), (vec![2, 3], 1));
}

#[test]
fn a_delivery_time_is_kept_to() {
    let mut harness = Harness::new(shared());
    harness.consumer(1, flow(1000));
    harness.entry(Entry { deliver_at_ms: Some(START_MS + 100), ..Entry::plain(0, 3) });
    harness.append(2);
    assert_eq!(offsets(&harness.grant()), [3, 4]);
    assert_eq!(harness.queue.next_deadline_ms(), Some(START_MS + 100));
    harness.checkpoint();
    harness.crash();
    harness.wait(99);
    assert_eq!(harness.counts().delayed, 3);
    harness.wait(1);
    assert_eq!(harness.counts().ready, 5);
}

#[test]
fn failover_is_by_priority_and_name() {
    let mut harness = Harness::new(Config { mode: Mode::SingleActive { preempts: true }, ..shared() });
    for (id, rank) in [(1, 30), (2, 10), (3, 20)] {
        harness.consumer(id, ConsumerConfig { rank, ..flow(1000) });
    }
    harness.append(4);
    assert_eq!(pairs(&harness.grant()), [(2, 0), (2, 1), (2, 2), (2, 3)]);
    harness.queue.remove_consumer(ConsumerId(2), counted(), harness.now).unwrap();
    assert_eq!(harness.queue.active_consumer(), Some(ConsumerId(3)));
    assert_eq!(pairs(&harness.grant()), [(3, 0), (3, 1), (3, 2), (3, 3)]);
}

#[test]
fn a_key_goes_to_one_consumer_at_a_time() {
    let mut harness = Harness::new(key_shared());
    let one = harness.consumer(1, sticky(0, 99));
    let two = harness.consumer(2, sticky(100, 199));
    for hash in [5, 105, 5, 105, 250] {
        keyed(&mut harness, hash);
    }
    let mut first = pairs(&harness.grant());
    first.sort_unstable();
    assert_eq!(first, [(1, 0), (1, 2), (2, 1), (2, 3)]);
    // One moves the range to another: what is held of a key keeps its later messages.
    keyed(&mut harness, 5);
    harness.queue.stop_consumer(one).unwrap();
    harness.consumer(3, sticky(0, 99));
    assert_eq!(harness.grant(), []);
    let _ = harness.ack(0, 1);
    assert_eq!(harness.grant(), []);
    let _ = harness.queue.release(2, 1, By::Consumer(one), Return::default(), harness.now).unwrap();
    assert_eq!(pairs(&harness.grant()), [(3, 2), (3, 5)]);
    harness.queue.remove_consumer(two, Return::default(), harness.now).unwrap();
    harness.consumer(4, sticky(100, 300));
    assert_eq!(pairs(&harness.grant()), [(4, 1), (4, 3), (4, 4)]);
}

#[test]
fn a_delayed_message_keeps_the_later_ones_of_its_key() {
    let mut harness = Harness::new(key_shared());
    let one = harness.consumer(1, ConsumerConfig { prefetch: 1, ..ConsumerConfig::default() });
    [7, 7, 8].into_iter().for_each(|hash| _ = keyed(&mut harness, hash));
    assert_eq!(offsets(&harness.grant()), [0]);
    let how = Return { counts: true, delay: Delay::For(50), ..Return::default() };
    let _ = harness.queue.release(0, 1, By::Consumer(one), how, harness.now).unwrap();
    assert_eq!(offsets(&harness.grant()), [2]);
    let _ = harness.ack(2, 1);
    assert_eq!(harness.grant(), []);
    harness.wait(50);
    assert_eq!(offsets(&harness.grant()), [0]);
    let _ = harness.ack(0, 1);
    assert_eq!(offsets(&harness.grant()), [1]);
}

#[test]
fn ranges_of_hashes_do_not_overlap() {
    let mut harness = Harness::new(key_shared());
    harness.consumer(1, sticky(0, 99));
    for config in [sticky(99, 100), sticky(9, 5), ConsumerConfig::default()] {
        assert_eq!(harness.queue.add_consumer(ConsumerId(2), config), Err(LeaseError::HashesTaken));
    }
    let twice = ConsumerConfig { hashes: vec![(100, 110), (105, 120)], ..ConsumerConfig::default() };
    assert_eq!(harness.queue.add_consumer(ConsumerId(2), twice), Err(LeaseError::HashesTaken));
    harness.queue.remove_consumer(ConsumerId(1), counted(), harness.now).unwrap();
    harness.consumer(2, ConsumerConfig::default());
    assert_eq!(harness.queue.add_consumer(ConsumerId(1), sticky(0, 1)), Err(LeaseError::HashesTaken));
}

/// Many keys over consumers that come and go: at any time a key is with one, and its messages are handed out in order.
#[test]
fn keys_spread_over_consumers_and_move_only_when_nobody_holds_them() {
    let mut harness = Harness::new(key_shared());
    (1..=4).for_each(|id| _ = harness.prefetch(id, 50));
    let mut holder: BTreeMap<u32, u64> = BTreeMap::new();
    let mut held: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
    let mut hashes = Vec::new();
    let mut loads: BTreeMap<u64, usize> = BTreeMap::new();
    let mut acked: BTreeMap<u32, u64> = BTreeMap::new();
    for round in 0..200u64 {
        for n in 0..20 {
            let hash = ((round * 20 + n).wrapping_mul(2_654_435_761) % 97) as u32;
            hashes.push(hash);
            keyed(&mut harness, hash);
        }
        if round % 7 == 3 {
            let id = ConsumerId(round % 4 + 1);
            harness.queue.remove_consumer(id, Return::default(), harness.now).unwrap();
            held.retain(|_, (consumer, _)| *consumer != id.0);
            holder.retain(|_, consumer| *consumer != id.0);
            harness.prefetch(id.0, 50);
        }
        for (consumer, offset) in pairs(&harness.grant()) {
            let hash = hashes[offset as usize];
            assert_eq!(*holder.entry(hash).or_insert(consumer), consumer, "{hash} at {offset}");
            held.insert(offset, (consumer, hash));
            *loads.entry(consumer).or_default() += 1;
        }
        let done: Vec<_> = held.keys().copied().filter(|offset| offset % 3 != round % 3).take(30).collect();
        for offset in done {
            let (_, hash) = held.remove(&offset).unwrap();
            // In the order of the key, as its consumer got them.
            let before = acked.insert(hash, offset);
            let first_of_key = held.iter().find(|(_, (_, other))| *other == hash).map(|(offset, _)| *offset);
            assert!(before.is_none() || before < Some(offset) || first_of_key.is_none_or(|first| first > offset));
            let _ = harness.ack(offset, 1);
            if first_of_key.is_none() {
                holder.remove(&hash);
            }
        }
        harness.commit();
    }
    assert!(loads.values().all(|load| *load > 300), "{loads:?}");
    let still: BTreeSet<_> = held.keys().copied().collect();
    assert_eq!(harness.counts().held as usize, still.len());
}

/// Keys are known of a window only; the host says those behind it when room comes, and after a crash all.
#[test]
fn keys_beyond_the_window_are_asked_for() {
    let mut harness = Harness::new(key_shared());
    let total = KEY_WINDOW as u64 + 10_000;
    let hash = |offset: u64| (offset % 1000) as u32;
    for offset in 0..total {
        keyed(&mut harness, hash(offset));
    }
    assert_eq!(harness.queue.wants(), None);
    harness.consumer(1, ConsumerConfig::default());
    let mut given = count_of(&harness.grant());
    assert_eq!(given, KEY_WINDOW as u64);
    let mut asked = 0;
    while let Some(range) = harness.queue.wants() {
        for offset in range {
            let key_hash = Some(hash(offset));
            harness.queue.describe(&Entry { first_offset: offset, count: 1, key_hash, ..Entry::default() }).unwrap();
            asked += 1;
        }
        given += count_of(&harness.grant());
    }
    assert_eq!((asked, given), (10_000, total));
    let _ = harness.ack(0, total - 3);
    harness.commit();
    harness.crash();
    harness.consumer(1, ConsumerConfig::default());
    assert_eq!(harness.grant(), []);
    assert_eq!(harness.queue.wants(), Some(total - 3..total));
    harness.queue.describe(&Entry { key_hash: Some(1), ..Entry::plain(total - 3, 3) }).unwrap();
    assert_eq!(offsets(&harness.grant()), [total - 3, total - 2, total - 1]);
}
