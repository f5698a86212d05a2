//! A queue in the words of AMQP 0-9-1 and RabbitMQ's extensions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use bytes::Bytes;
use common::*;
use polylogue_lease::*;
use polylogue_types::Backoff;

fn amqp() -> Config {
    Config { mark_handed: true, dead_letter: true, track_bytes: true, ..Config::default() }
}

fn priority(priority: i32) -> ConsumerConfig {
    ConsumerConfig { priority, prefetch: 2, ..ConsumerConfig::default() }
}

#[test]
fn consumers_take_turns_as_long_as_they_have_credit() {
    let mut harness = Harness::new(amqp());
    harness.prefetch(1, 2);
    harness.prefetch(2, 3);
    harness.append(10);
    assert_eq!(pairs(&harness.grant()), [(1, 0), (2, 1), (1, 2), (2, 3), (2, 4)]);
    // Credit comes back with each acknowledgement, before its record is committed.
    let done = harness.queue.settle(2, 1, By::Consumer(ConsumerId(1)), harness.now).unwrap();
    assert_eq!(done, Done { messages: 1, record: Some(1) });
    assert_eq!(pairs(&harness.grant()), [(1, 5)]);
    assert!(harness.commit());
    assert_eq!((harness.queue.floor(), harness.queue.is_settled(2)), (0, true));
    assert_eq!(harness.counts(), Counts { ready: 4, held: 5, consumers: 2, ..Counts::default() });
}

#[test]
fn the_turn_goes_on_where_it_was() {
    let mut harness = Harness::new(amqp());
    (1..=3).for_each(|id| _ = harness.prefetch(id, 0));
    let mut order = Vec::new();
    for _ in 0..6 {
        harness.append(1);
        order.extend(pairs(&harness.grant()).into_iter().map(|(consumer, _)| consumer));
    }
    assert_eq!(order, [1, 2, 3, 1, 2, 3]);
}

#[test]
fn lower_priorities_get_what_higher_ones_have_no_credit_for() {
    let mut harness = Harness::new(amqp());
    harness.consumer(1, priority(-5));
    harness.consumer(2, priority(7));
    harness.consumer(3, priority(7));
    harness.append(10);
    assert_eq!(pairs(&harness.grant()), [(2, 0), (3, 1), (2, 2), (3, 3), (1, 4), (1, 5)]);
    let _ = harness.ack(0, 1);
    assert_eq!(pairs(&harness.grant()), [(2, 6)]);
}

#[test]
fn what_is_requeued_comes_back_in_its_old_place() {
    for size in [1, 3, 1000] {
        let mut harness = Harness::new(amqp());
        let one = harness.prefetch(1, 4);
        (0..6).for_each(|_| _ = harness.append(size));
        assert_eq!(offsets(&harness.grant()), [0, 1, 2, 3]);
        // basic.nack requeues without counting, basic.reject counts (RabbitMQ 4.3).
        for (offset, how) in [(1, Return::default()), (3, counted())] {
            assert_eq!(harness.queue.release(offset, 1, By::Consumer(one), how, harness.now).unwrap().messages, 1);
        }
        let again = harness.grant();
        assert_eq!(offsets(&again), [1, 3]);
        assert!(again.iter().all(|grant| grant.redelivered));
        let tallies: Vec<_> = again.iter().map(|grant| (grant.tally.returned, grant.tally.failed)).collect();
        assert_eq!(tallies, [(1, 0), (1, 1)]);
        // The channel closes: everything comes back, before what was never handed out.
        assert_eq!(harness.queue.remove_consumer(one, counted(), harness.now), Ok(4));
        harness.prefetch(2, 0);
        let all = harness.grant();
        assert_eq!(offsets(&all), (0..6 * u64::from(size)).collect::<Vec<_>>());
        assert_eq!(all.iter().map(|grant| u64::from(grant.redelivered) * u64::from(grant.count)).sum::<u64>(), 4);
    }
}

#[test]
fn a_message_that_fails_too_often_is_dead() {
    let mut harness = Harness::new(Config { failures_max: Some(2), ..amqp() });
    let one = harness.prefetch(1, 1);
    harness.append(2);
    for failed in 0..2 {
        let grants = harness.grant();
        assert_eq!((offsets(&grants), grants[0].tally.failed), (vec![0], failed));
        let _ = harness.queue.release(0, 1, By::Consumer(one), counted(), harness.now).unwrap();
    }
    assert_eq!(offsets(&harness.grant()), [1]);
    let tally = Tally { returned: 2, failed: 2 };
    let letter = DeadLetter { first_offset: 0, count: 1, bytes: 0, reason: Reason::DeliveryLimit, tally };
    assert_eq!(dead(&mut harness.queue), [letter]);
    assert_eq!(dead(&mut harness.queue), []);
    harness.commit();
    // The move was not confirmed: after a crash it is reported again.
    harness.crash();
    assert_eq!(dead(&mut harness.queue), [letter]);
    harness.queue.dead_letter_failed(0, 1);
    assert_eq!(dead(&mut harness.queue), [letter]);
    assert_eq!(harness.queue.dead_lettered(0, 1).unwrap(), Done { messages: 1, record: Some(1) });
    assert_eq!(harness.queue.dead_lettered(0, 1).unwrap(), Done { messages: 0, record: Some(1) });
    harness.commit();
    assert_eq!((harness.queue.floor(), harness.counts().dead), (1, 0));
    harness.crash();
    assert_eq!(dead(&mut harness.queue), []);
}

#[test]
fn a_rejected_message_is_dead_or_gone() {
    for dead_letter in [true, false] {
        let mut harness = Harness::new(Config { dead_letter, ..amqp() });
        let one = harness.prefetch(1, 0);
        harness.append(3);
        harness.grant();
        let done = harness.queue.reject(1, 1, By::Consumer(one), harness.now).unwrap();
        assert_eq!(done, Done { messages: 1, record: Some(1) });
        harness.commit();
        assert_eq!(harness.queue.is_settled(1), !dead_letter);
        let reasons: Vec<_> = dead(&mut harness.queue).iter().map(|letter| letter.reason.name()).collect();
        assert_eq!(reasons, if dead_letter { &["rejected"][..] } else { &[] });
        harness.crash();
        harness.prefetch(1, 0);
        assert_eq!(offsets(&harness.grant()), [0, 2]);
    }
}

#[test]
fn a_crash_marks_what_may_have_been_handed_out() {
    let mut harness = Harness::new(amqp());
    harness.prefetch(1, 3);
    harness.append(5);
    harness.grant();
    assert_eq!(harness.queue.pending_record(), Some(true));
    harness.commit();
    harness.crash();
    harness.prefetch(1, 0);
    let grants = harness.grant();
    let all: Vec<_> = grants.iter().map(|grant| (grant.first_offset, grant.count, grant.redelivered)).collect();
    assert_eq!(all, [(0, 3, true), (3, 2, false)]);
}

/// Of each message that is handed out now whether it was before.
fn redelivered(harness: &mut Harness, id: u64) -> Vec<(u64, bool)> {
    harness.prefetch(id, 0);
    let each = |grant: &Grant| (grant.first_offset..grant.end()).map(|at| (at, grant.redelivered)).collect::<Vec<_>>();
    harness.grant().iter().flat_map(each).collect()
}

/// One offset up to which messages had been handed out said it of all before it: of those of lower priorities and of those that wait for
/// their time, too.
#[test]
fn after_a_crash_only_what_was_handed_out_is_redelivered() {
    for checkpoints in [false, true] {
        let mut harness = Harness::new(amqp());
        let late = Entry { deliver_at_ms: Some(START_MS + 500), ..Entry::default() };
        for priority in [0, 0, 5, 0, 5] {
            harness.message(Entry { priority, ..Entry::default() });
        }
        harness.message(late);
        harness.message(Entry { priority: 9, ..Entry::default() });
        harness.prefetch(1, 3);
        assert_eq!(offsets(&harness.grant()), [6, 2, 4]);
        let _ = harness.ack(2, 1);
        harness.commit();
        if checkpoints {
            harness.checkpoint();
        }
        harness.crash();
        harness.wait(1_000);
        let all = redelivered(&mut harness, 2);
        assert_eq!(all, [(6, true), (4, true), (0, false), (1, false), (3, false), (5, false)]);
        // It goes with them through another crash, and nothing else is said of the others.
        harness.commit();
        harness.crash();
        assert_eq!(redelivered(&mut harness, 3), [6, 4, 0, 1, 3, 5].map(|at| (at, true)));
        // What came back is redelivered by that.
        harness.queue.remove_consumer(ConsumerId(3), counted(), harness.now).unwrap();
        harness.commit();
        harness.crash();
        assert_eq!(redelivered(&mut harness, 4), [6, 4, 0, 1, 3, 5].map(|at| (at, true)));
    }
}

#[test]
fn what_came_back_unseen_is_not_redelivered_after_a_crash() {
    for recorded in [false, true] {
        let mut harness = Harness::new(amqp());
        let one = harness.prefetch(1, 3);
        harness.append(4);
        assert_eq!(offsets(&harness.grant()), [0, 1, 2]);
        if recorded {
            harness.commit();
        }
        assert_eq!(harness.queue.unsend(1, 2, By::Consumer(one), harness.now), Ok(2));
        harness.commit();
        harness.crash();
        assert_eq!(redelivered(&mut harness, 2), [(0, true), (1, false), (2, false), (3, false)]);
        // What is not recorded yet need not be.
        harness.append(1);
        harness.commit();
        assert_eq!(offsets(&harness.grant()), [4]);
        assert_eq!(harness.queue.unsend(4, 1, By::Consumer(ConsumerId(2)), harness.now), Ok(1));
        assert_eq!(harness.queue.pending_record(), None);
    }
}

/// Records and checkpoints of builds that kept the offset up to which messages had been handed out.
#[test]
fn what_older_builds_wrote_of_messages_handed_out_counts() {
    // Handed out up to 3, and that 1 is settled.
    let record = Bytes::from_static(&[1, 1, 3, 1, 1, 1, 1]);
    let mut harness = Harness::new(amqp());
    harness.append(5);
    let mut replayed = harness.replayed();
    replayed.apply(&record).unwrap();
    let chunks: Vec<_> = replayed.take_changed_chunks();
    harness.queue = replayed;
    harness.queue.become_writer(harness.now, 7);
    let expected = [(0, true), (2, true), (3, false), (4, false)];
    assert_eq!(redelivered(&mut harness, 1), expected);

    let head = chunks.iter().find(|(id, _)| &id[..] == b"H").unwrap();
    assert_eq!(head.1.as_deref(), Some(&[1, 0, 5, 3][..]), "the head keeps it");
    harness.queue = Queue::empty(harness.config.clone());
    for (id, chunk) in &chunks {
        harness.queue.load_chunk(id, chunk.as_ref().unwrap()).unwrap();
    }
    harness.queue.loaded().unwrap();
    harness.queue.become_writer(harness.now, 8);
    assert_eq!(redelivered(&mut harness, 1), expected);
}

#[test]
fn without_acknowledgements_messages_are_settled_when_they_leave() {
    let mut harness = Harness::new(amqp());
    harness.consumer(1, ConsumerConfig { settles: true, ..ConsumerConfig::default() });
    harness.append(1000);
    assert_eq!(count_of(&harness.grant()), 1000);
    assert_eq!(harness.counts().held, 0);
    harness.commit();
    assert_eq!(harness.queue.floor(), 1000);
}

#[test]
fn a_cancelled_consumer_keeps_what_it_has() {
    let mut harness = Harness::new(amqp());
    let one = harness.prefetch(1, 2);
    harness.append(4);
    harness.grant();
    harness.queue.stop_consumer(one).unwrap();
    let _ = harness.queue.settle(0, 1, By::Consumer(one), harness.now).unwrap();
    assert_eq!(harness.grant(), []);
    assert_eq!(harness.queue.remove_consumer(one, Return::default(), harness.now), Ok(1));
    assert_eq!(harness.queue.remove_consumer(one, Return::default(), harness.now), Err(LeaseError::NoConsumer(one)));
}

#[test]
fn one_active_consumer_at_a_time() {
    for preempts in [false, true] {
        let mut harness = Harness::new(Config { mode: Mode::SingleActive { preempts }, ..amqp() });
        harness.consumer(1, priority(0));
        harness.consumer(2, priority(5));
        harness.consumer(3, priority(5));
        harness.append(10);
        let active = if preempts { 2 } else { 1 };
        assert_eq!(harness.queue.active_consumer(), Some(ConsumerId(active)));
        assert_eq!(pairs(&harness.grant()), [(active, 0), (active, 1)]);
        harness.queue.remove_consumer(ConsumerId(active), counted(), harness.now).unwrap();
        let next = if preempts { 3 } else { 2 };
        assert_eq!(pairs(&harness.grant()), [(next, 0), (next, 1)]);
        let _ = harness.ack(0, 2);
        assert_eq!(pairs(&harness.grant()), [(next, 2), (next, 3)]);
    }
}

#[test]
fn exclusive_is_exclusive() {
    let mut harness = Harness::new(amqp());
    harness.prefetch(1, 1);
    let exclusive = ConsumerConfig { exclusive: true, ..ConsumerConfig::default() };
    assert_eq!(harness.queue.add_consumer(ConsumerId(2), exclusive.clone()), Err(LeaseError::Exclusive));
    assert_eq!(
        harness.queue.add_consumer(ConsumerId(1), ConsumerConfig::default()),
        Err(LeaseError::ConsumerExists(ConsumerId(1)))
    );
    harness.queue.remove_consumer(ConsumerId(1), counted(), harness.now).unwrap();
    harness.consumer(2, exclusive);
    assert_eq!(harness.queue.add_consumer(ConsumerId(3), ConsumerConfig::default()), Err(LeaseError::Exclusive));
}

/// A consumer that was cancelled stays as long as its channel: it kept everybody else from a queue that it had alone.
#[test]
fn a_stopped_consumer_keeps_nobody_from_a_queue() {
    let mut harness = Harness::new(amqp());
    let exclusive = ConsumerConfig { exclusive: true, ..ConsumerConfig::default() };
    harness.consumer(1, exclusive.clone());
    harness.queue.stop_consumer(ConsumerId(1)).unwrap();
    harness.consumer(2, ConsumerConfig::default());
    assert_eq!(harness.queue.add_consumer(ConsumerId(3), exclusive.clone()), Err(LeaseError::Exclusive));
    harness.queue.stop_consumer(ConsumerId(2)).unwrap();
    harness.consumer(3, exclusive);
    assert_eq!(harness.queue.add_consumer(ConsumerId(4), ConsumerConfig::default()), Err(LeaseError::Exclusive));
}

#[test]
fn higher_priorities_first_also_of_what_came_back() {
    let mut harness = Harness::new(amqp());
    let priorities = [0, 3, 9, 3, 0, 9];
    for priority in priorities {
        harness.message(Entry { priority, ..Entry::default() });
    }
    let one = harness.prefetch(1, 0);
    assert_eq!(offsets(&harness.grant()), [2, 5, 1, 3, 0, 4]);
    for offset in [0, 3, 5, 1] {
        let _ = harness.queue.release(offset, 1, By::Consumer(one), Return::default(), harness.now).unwrap();
    }
    assert_eq!(offsets(&harness.grant()), [5, 1, 3, 0]);
    harness.checkpoint();
    harness.crash();
    harness.prefetch(1, 0);
    assert_eq!(offsets(&harness.grant()), [2, 5, 1, 3, 0, 4]);
}

/// cloudamqp/lavinmq#1420, #1440: a consumer of a queue with priorities got nothing more although something was there.
#[test]
fn nobody_is_stuck_on_a_queue_with_priorities() {
    let mut harness = Harness::new(amqp());
    for priority in [1, 0, 5, 5, 0, 9, 1, 0] {
        harness.message(Entry { priority, ..Entry::default() });
    }
    let one = harness.prefetch(1, 1);
    let mut settled = Vec::new();
    for turn in 0.. {
        let [grant] = harness.grant()[..] else { break };
        match turn % 3 {
            // It comes again, and one of a higher priority comes meanwhile, which is first.
            0 => {
                let _ = harness
                    .queue
                    .release(grant.first_offset, 1, By::Consumer(one), Return::default(), harness.now)
                    .unwrap();
                if turn < 9 {
                    harness.message(Entry { priority: 9, ..Entry::default() });
                }
            }
            _ => {
                let _ = harness.ack(grant.first_offset, 1);
                settled.push(grant.first_offset);
                harness.commit();
            }
        }
    }
    settled.sort_unstable();
    assert_eq!(settled, (0..11).collect::<Vec<u64>>());
    assert_eq!((harness.counts().ready, harness.counts().held), (0, 0));
}

#[test]
fn messages_expire_at_the_head_and_are_never_handed_out_late() {
    let mut harness = Harness::new(amqp());
    let at = |ms| Entry { expires_at_ms: Some(START_MS + ms), ..Entry::default() };
    for ms in [100, 50, 500] {
        harness.message(at(ms));
    }
    harness.message(Entry::default());
    assert_eq!(harness.queue.next_deadline_ms(), Some(START_MS + 100));
    harness.wait(60);
    // Behind the head it waits for the head.
    assert_eq!(dead(&mut harness.queue), []);
    harness.wait(40);
    let letters = dead(&mut harness.queue);
    assert_eq!((letters[0].first_offset, letters[0].count, letters[0].reason), (0, 2, Reason::Expired));
    harness.now += 1000;
    harness.prefetch(1, 0);
    assert_eq!(offsets(&harness.grant()), [3]);
    assert_eq!(dead(&mut harness.queue).len(), 1);
}

#[test]
fn too_many_messages_drop_the_next_ones() {
    let mut harness = Harness::new(Config { length_max: Some(3), ..amqp() });
    harness.prefetch(1, 1);
    harness.append(2);
    harness.grant();
    // What is held does not count.
    harness.append(4);
    let letters = dead(&mut harness.queue);
    assert_eq!((letters[0].first_offset, letters[0].count, letters[0].reason), (1, 2, Reason::MaxLength));
    assert_eq!(harness.counts().ready, 3);

    let mut harness = Harness::new(Config { bytes_max: Some(100), ..amqp() });
    for bytes in [30, 30, 30, 50] {
        harness.message(Entry { bytes, ..Entry::default() });
    }
    assert_eq!((harness.counts().ready_size.bytes, dead(&mut harness.queue).len()), (80, 1));
    assert_eq!(harness.counts().dead, 2);
}

/// Of a message with an exchange, a routing key and properties a queue counted all that is stored, and kept a fifth of what it should.
#[test]
fn limits_by_bytes_count_bodies_and_windows_what_is_sent() {
    let mut harness = Harness::new(Config { bytes_max: Some(100), ..amqp() });
    let message = |bytes: u64, transient| Entry { bytes: bytes + 400, extra_bytes: 400, transient, ..Entry::default() };
    for (bytes, transient) in [(30, false), (0, false), (30, true), (30, false), (30, true)] {
        harness.message(message(bytes, transient));
    }
    let size = Size { bytes: 90, transient: 2, transient_bytes: 60 };
    let dropped = dead(&mut harness.queue);
    let dropped: Vec<_> = dropped.iter().map(|one| (one.first_offset, one.count, one.bytes)).collect();
    assert_eq!((harness.counts().ready_size, dropped), (size, vec![(0, 1, 430)]));
    assert_eq!(harness.counts().dead_size, Size { bytes: 30, ..Size::default() });
    harness.commit();
    for from_checkpoint in [false, true] {
        if from_checkpoint {
            harness.checkpoint();
        }
        harness.crash();
        assert_eq!((harness.counts().ready_size, harness.counts().dead_size.bytes), (size, 30));
    }
    // What is empty takes room on its way to a consumer.
    let window = ConsumerConfig { window_bytes: 500, ..ConsumerConfig::default() };
    let one = harness.consumer(1, window);
    assert_eq!(offsets(&harness.grant()), [1]);
    harness.queue.add_permits(one, 0, 400).unwrap();
    assert_eq!(offsets(&harness.grant()), [2]);
    let held = Size { bytes: 30, transient: 1, transient_bytes: 30 };
    assert_eq!((harness.counts().held_size, harness.counts().ready_size.bytes), (held, 60));
}

/// What was sent just before on the same channel and is not committed did not count: 222 messages were in a queue of 10.
#[test]
fn too_many_messages_are_dropped_ahead_of_their_commit() {
    let mut harness = Harness::new(Config { length_max: Some(3), ..amqp() });
    for offset in 0..5 {
        harness.queue.appended_unflushed(&Entry::plain(offset, 1)).unwrap();
    }
    assert_eq!(harness.counts(), Counts { uncommitted: 3, dead: 2, ..Counts::default() });
    assert_eq!((dead(&mut harness.queue), harness.queue.dead_uncommitted()), (vec![], None), "moved when committed");
    (0..5).for_each(|offset| harness.entry(Entry::plain(offset, 1)));
    assert_eq!(dead(&mut harness.queue).iter().map(|letter| letter.count).sum::<u64>(), 2);
    harness.commit();
    harness.crash();
    assert_eq!((harness.counts().ready, harness.counts().dead), (3, 2));

    let mut harness = Harness::new(Config { bytes_max: Some(100), dead_letter: false, ..amqp() });
    for offset in 0..10 {
        harness.queue.appended_unflushed(&Entry { bytes: 30, ..Entry::plain(offset, 1) }).unwrap();
    }
    let reader = harness.puller(1);
    assert_eq!((harness.counts().uncommitted, harness.counts().ready_size.bytes), (3, 90));
    assert_eq!(offsets(&harness.pull(reader, 9, None)), [7, 8, 9]);
}

/// A message that a consumer waits for is handed out and never counts as ready, however many come together.
#[test]
fn what_a_consumer_waits_for_is_not_dropped() {
    for early in [false, true] {
        let mut harness = Harness::new(Config { length_max: Some(2), ..amqp() });
        let one = harness.prefetch(1, 5);
        let all: Vec<_> = (0..10).map(|offset| Entry::plain(offset, 1)).collect();
        if early {
            all.iter().for_each(|entry| harness.queue.appended_unflushed(entry).unwrap());
        } else {
            all.iter().for_each(|entry| harness.entry(*entry));
        }
        assert_eq!(offsets(&harness.grant()), [0, 1, 2, 3, 4], "early: {early}");
        let counts = harness.counts();
        assert_eq!((counts.ready + counts.uncommitted, counts.dead), (2, 3), "the rest is too much at once");
        // What comes back is dropped first, as with RabbitMQ.
        let _ = harness.queue.release(3, 2, By::Consumer(one), Return::default(), harness.now).unwrap();
        assert_eq!(offsets(&harness.grant()), [8, 9]);
        assert_eq!(harness.counts().dead, 5);
    }
}

#[test]
fn prefetch_by_bytes_lets_one_message_through() {
    let mut harness = Harness::new(amqp());
    let config = ConsumerConfig { prefetch_bytes: 100, ..ConsumerConfig::default() };
    let one = harness.consumer(1, config);
    for bytes in [300, 40, 40, 40] {
        harness.message(Entry { bytes, ..Entry::default() });
    }
    assert_eq!(offsets(&harness.grant()), [0]);
    let _ = harness.ack(0, 1);
    assert_eq!(offsets(&harness.grant()), [1, 2]);
    assert_eq!((harness.counts().held_size.bytes, harness.counts().ready_size.bytes), (80, 40));
    harness.queue.set_prefetch(one, 3, 120).unwrap();
    assert_eq!(offsets(&harness.grant()), [3]);
    assert_eq!(harness.queue.held_by(one), Ok(3));
}

#[test]
fn purge_takes_what_nobody_holds() {
    let mut harness = Harness::new(amqp());
    harness.prefetch(1, 2);
    harness.append(1000);
    harness.message(Entry { deliver_at_ms: Some(START_MS + 50), ..Entry::default() });
    harness.grant();
    assert_eq!(harness.queue.purge().unwrap(), Done { messages: 999, record: Some(1) });
    assert_eq!(harness.counts(), Counts { held: 2, consumers: 1, ..Counts::default() });
    harness.commit();
    harness.crash();
    assert_eq!(harness.counts().ready, 2);
}

/// What was sent just before a purge, on the same channel, was there after it, although it had counted as ready.
#[test]
fn purge_takes_what_is_not_committed_yet() {
    let mut harness = Harness::new(amqp());
    harness.append(2);
    let entry = Entry::plain(2, 3);
    harness.queue.appended_unflushed(&entry).unwrap();
    assert_eq!(harness.queue.purge().unwrap(), Done { messages: 5, record: Some(1) });
    assert_eq!(harness.counts(), Counts::default());
    harness.entry(entry);
    harness.commit();
    harness.prefetch(1, 0);
    assert_eq!((offsets(&harness.grant()), harness.queue.floor()), (Vec::new(), 5));
    harness.crash();
    assert_eq!(harness.counts(), Counts::default());
}

#[test]
fn a_waiting_consumer_gets_a_message_ahead_of_its_commit() {
    let mut harness = Harness::new(Config { length_max: Some(0), ..amqp() });
    let one = harness.prefetch(1, 3);
    let entry = Entry { expires_at_ms: Some(1), ..Entry::plain(0, 4) };
    harness.queue.appended_unflushed(&entry).unwrap();
    assert_eq!(harness.counts(), Counts { uncommitted: 4, consumers: 1, ..Counts::default() });
    // Its expiry does not matter before the commit, and the limit does not to a consumer that waits.
    harness.wait(5);
    assert_eq!(offsets(&harness.grant()), [0, 1, 2]);
    assert_eq!(harness.counts(), Counts { held: 3, dead: 1, consumers: 1, ..Counts::default() });
    let _ = harness.queue.settle(0, 1, By::Consumer(one), harness.now).unwrap();
    assert_eq!(harness.queue.reject(1, 1, By::Consumer(one), harness.now).unwrap().messages, 1);
    assert_eq!(dead(&mut harness.queue), []);
    harness.entry(entry);
    assert_eq!(dead(&mut harness.queue).len(), 2);
    harness.commit();
    assert_eq!((harness.queue.floor(), harness.counts().held), (1, 1));
}

#[test]
fn a_void_message_was_never_there() {
    let mut harness = Harness::new(amqp());
    let one = harness.prefetch(1, 0);
    harness.append(2);
    harness.queue.appended_unflushed(&Entry { bytes: 9, ..Entry::plain(2, 3) }).unwrap();
    assert_eq!(offsets(&harness.grant()), [0, 1, 2, 3, 4]);
    let _ = harness.queue.settle(3, 1, By::Consumer(one), harness.now).unwrap();
    assert_eq!(harness.queue.void(1), Err(LeaseError::NotInOrder { expected: 2, got: 1 }));
    harness.queue.void(2).unwrap();
    assert_eq!(harness.counts(), Counts { held: 2, consumers: 1, ..Counts::default() });
    assert_eq!(harness.queue.settle(2, 1, By::Consumer(one), harness.now), refused(2, Refusal::Beyond));
    harness.append(1);
    assert_eq!(offsets(&harness.grant()), [2]);
    harness.commit();
    assert_eq!(harness.queue.floor(), 0);
}

#[test]
fn delayed_retries_wait_longer_each_time() {
    let mut harness = Harness::new(amqp());
    let one = harness.prefetch(1, 1);
    harness.append(2);
    let delay = Delay::Backoff(Backoff::Linear { step_ms: 100, max_ms: 150 });
    for wait in [100, 150, 150] {
        assert_eq!(offsets(&harness.grant()), [0]);
        let _ = harness
            .queue
            .release(0, 1, By::Consumer(one), Return { counts: true, delay, ..Return::default() }, harness.now)
            .unwrap();
        assert_eq!(harness.queue.next_deadline_ms(), Some(harness.now + wait));
        assert_eq!(harness.counts().delayed, 1);
        harness.wait(wait - 1);
        assert_eq!(harness.counts().delayed, 1);
        harness.wait(1);
    }
    let _ = harness.queue.release_all(one, Return::default(), harness.now).unwrap();
    harness.commit();
    harness.crash();
    assert_eq!(harness.counts().ready, 2);
}

#[test]
fn dead_letters_are_taken_within_count_and_byte_limits() {
    let mut harness = Harness::new(Config { length_max: Some(0), ..amqp() });
    for bytes in [10, 10, 10, 100, 10] {
        harness.message(Entry { bytes, count: 1, ..Entry::default() });
    }
    let mut next_letters = |messages, bytes| {
        let mut letters = Vec::new();
        harness.queue.take_dead_letters(messages, bytes, &mut letters);
        letters.iter().map(|letter| (letter.first_offset, letter.count, letter.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(next_letters(0, 1_000), []);
    assert_eq!(next_letters(1, 1_000), [(0, 1, 10)]);
    assert_eq!(next_letters(9, 25), [(1, 2, 20)], "no room for the large one");
    assert_eq!(next_letters(9, 25), [(3, 1, 100)], "a single letter may exceed the limit");
    assert_eq!(next_letters(9, 25), [(4, 1, 10)]);
    assert_eq!(next_letters(9, 25), []);
    assert!(harness.queue.has_dead());
}

#[test]
fn a_window_of_bytes_is_given_back_as_it_was_taken() {
    let mut harness = Harness::new(amqp());
    let config = ConsumerConfig { permits: Some(100), window_bytes: 50, settles: true, ..ConsumerConfig::default() };
    let one = harness.consumer(1, config);
    for bytes in [20, 20, 20, 70, 1] {
        harness.message(Entry { bytes, count: 1, ..Entry::default() });
    }
    let granted = |harness: &mut Harness, more: u64, bytes| {
        harness.queue.add_permits(one, more, bytes).unwrap();
        harness.grant().iter().map(|grant| (grant.first_offset, grant.count, grant.bytes)).collect::<Vec<_>>()
    };
    assert_eq!(granted(&mut harness, 0, 0), [(0, 2, 20)], "a third one has no room");
    assert_eq!(granted(&mut harness, 1, 20), [(2, 1, 20)]);
    assert_eq!(granted(&mut harness, 1, 20), [], "what is larger than the window goes alone");
    assert_eq!(granted(&mut harness, 1, 20), [(3, 1, 70)]);
    assert_eq!(granted(&mut harness, 0, 0), []);
    assert_eq!(granted(&mut harness, 1, 70), [(4, 1, 1)]);
}

/// A consumer that only pulled was made the active one, and no consumer got anything until it left; nor could one consume exclusively.
#[test]
fn a_consumer_that_only_pulls_is_in_nobodys_way() {
    let pulls = || ConsumerConfig { permits: Some(0), pulls: true, ..ConsumerConfig::default() };
    let mut harness = Harness::new(Config { mode: Mode::SingleActive { preempts: false }, ..amqp() });
    harness.consumer(1, pulls());
    harness.append(2);
    let two = harness.prefetch(2, 1);
    assert_eq!((harness.queue.active_consumer(), pairs(&harness.grant())), (Some(two), vec![(2, 0)]));
    let alone = || ConsumerConfig { exclusive: true, ..ConsumerConfig::default() };
    let mut harness = Harness::new(amqp());
    harness.consumer(1, pulls());
    harness.consumer(2, alone());
    harness.consumer(3, pulls());
    assert_eq!(harness.queue.add_consumer(ConsumerId(4), alone()), Err(LeaseError::Exclusive));
    assert_eq!(harness.queue.add_consumer(ConsumerId(4), ConsumerConfig::default()), Err(LeaseError::Exclusive));
}

/// What goes back unseen is as it was: not handed out before, in its place, and there for others.
#[test]
fn what_was_never_sent_is_not_redelivered() {
    let mut harness = Harness::new(Config::default());
    let (one, two) = (harness.prefetch(1, 0), harness.prefetch(2, 0));
    harness.append(1);
    let lease = harness.grant()[0].lease;
    assert!(harness.queue.unsend(0, 1, By::Consumer(two), harness.now).is_err(), "by its holder only");
    assert_eq!(harness.queue.unsend(0, 1, By::Consumer(one), harness.now), Ok(1));
    assert!(harness.queue.take_record().is_none(), "there is nothing to record");
    let again = harness.grant();
    assert_eq!(pairs(&again), [(2, 0)]);
    assert_eq!((again[0].redelivered, again[0].tally), (false, Tally::default()));
    assert!(harness.queue.settle(0, 1, By::Lease(lease), harness.now).is_err(), "the lease before is over");
}

/// RabbitMQ 4.2 announces itself, and what came back by nack or recover never came to its limit.
#[test]
fn whatever_comes_back_may_count_against_the_limit() {
    for returns_count in [false, true] {
        let mut harness = Harness::new(Config { failures_max: Some(3), returns_count, ..amqp() });
        harness.prefetch(1, 1);
        harness.append(1);
        for attempt in 0..3 {
            let grants = harness.grant();
            assert_eq!((grants.len(), grants[0].tally.returned), (1, attempt), "{returns_count}");
            // What no consumer has seen does not count.
            let unseen = Return { unseen: true, ..Return::default() };
            let by = By::Consumer(ConsumerId(1));
            let _ = harness.queue.release(0, 1, by, unseen, harness.now).unwrap();
            assert_eq!(harness.grant()[0].tally.returned, attempt);
            assert_eq!(harness.queue.unsend(0, 1, by, harness.now), Ok(1));
            harness.grant();
            let _ = harness.queue.release(0, 1, by, Return::default(), harness.now).unwrap();
        }
        let reasons: Vec<_> = dead(&mut harness.queue).iter().map(|letter| letter.reason).collect();
        assert_eq!(reasons, if returns_count { vec![Reason::DeliveryLimit] } else { vec![] });
        assert_eq!(harness.counts().ready, u64::from(!returns_count));
    }
}

/// Up to RabbitMQ 4.2 a quorum queue has two levels of priority, and of three messages two are of the higher one; from 4.3 on it has 32.
#[test]
fn two_levels_of_priority_take_turns_and_many_do_not() {
    let handed = |low_priority_max, priorities: &[u8]| {
        let mut harness = Harness::new(Config { low_priority_max, ..amqp() });
        for priority in priorities {
            harness.message(Entry { priority: *priority, ..Entry::default() });
        }
        harness.prefetch(1, 0);
        let mut order = Vec::new();
        // However they are asked for.
        for max in [1, 4, 3, u64::MAX] {
            let mut out = Vec::new();
            harness.queue.grant(harness.now, max, &mut out);
            order.extend(offsets(&out).into_iter().map(|offset| priorities[offset as usize]));
        }
        order
    };
    let all = [4, 3, 0, 4, 9, 5, 6, 31, 7, 8];
    assert_eq!(handed(Some(4), &all), [9, 5, 4, 6, 31, 3, 7, 8, 0, 4]);
    assert_eq!(handed(Some(4), &[9, 9, 9, 9, 4, 4]), [9, 9, 9, 9, 4, 4], "what is older goes before");
    assert_eq!(handed(None, &all), [31, 9, 8, 7, 6, 5, 4, 4, 3, 0]);
    // What is too much is dropped in the same order.
    let mut harness = Harness::new(Config { low_priority_max: Some(4), length_max: Some(3), ..amqp() });
    for priority in [4, 4, 4, 9, 9, 9] {
        harness.message(Entry { priority, ..Entry::default() });
    }
    harness.prefetch(1, 0);
    // Two of the higher level were dropped, and one of the lower one.
    assert_eq!((offsets(&harness.grant()), harness.counts().dead), (vec![5, 1, 2], 3));
}
