//! Which messages are transient stays known of each, however many kinds of them there are: it is part of applied state.

use crate::common::*;
use polylogue_lease::*;
use std::sync::Arc;

/// More than the changes of class from which on sizes are averaged.
const MESSAGES: u64 = 150_000;

fn config() -> Config {
    Config { track_bytes: true, ..Config::default() }
}

/// Sizes and persistence change with each message, in no period.
fn message(offset: u64) -> Entry {
    let mixed = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    Entry { bytes: 500 + mixed % 700, transient: is_transient(offset), ..Entry::plain(offset, 1) }
}

fn is_transient(offset: u64) -> bool {
    match offset / 10_000 % 4 {
        0 => true,
        1 => offset.is_multiple_of(2),
        2 => offset % 7 < 4,
        _ => offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1,
    }
}

fn transient() -> u64 {
    (0..MESSAGES).filter(|offset| is_transient(*offset)).count() as u64
}

/// Blocks of which a writer had handed out messages kept persistence, those of a follower lost it.
#[test]
fn a_writer_that_holds_messages_and_a_follower_have_equal_canonical_state() {
    let mut writer = Harness::new(config());
    let mut follower = Queue::new(Arc::new(config()), 0, 0).unwrap();
    let one = writer.prefetch(1, 0);
    for offset in 0..MESSAGES {
        writer.entry(message(offset));
        follower.appended(&message(offset)).unwrap();
        if offset % 700 == 0 {
            // Also the first messages of a block that is averaged later.
            writer.pull(one, 1_000, None);
        }
    }
    assert!(writer.queue.canonical() == follower.canonical());
    let (counts, transient) = (writer.counts(), transient());
    assert_eq!(counts.held, (MESSAGES - 1) / 700 * 700 + 1);
    assert_eq!(counts.ready_size.transient + counts.held_size.transient, transient);
    follower.become_writer(START_MS, 2);
    assert_eq!(follower.counts().ready_size.transient, transient);
}

/// With sizes of all kinds, and with one: then runs of one class begin before the block of messages that a change concerns.
#[test]
fn a_checkpoint_keeps_the_persistence_of_each_message_and_costs_as_little_memory_after_it() {
    for bytes in [None, Some(500)] {
        let mut harness = Harness::new(config());
        for offset in 0..MESSAGES {
            let entry = message(offset);
            harness.entry(Entry { bytes: bytes.unwrap_or(entry.bytes), ..entry });
            if offset % 9_973 == 0 {
                // What is written meanwhile must be written again where it changes.
                harness.checkpoint();
            }
        }
        for offset in (0..MESSAGES).step_by(101) {
            let _ = harness.ack(offset, 1 + offset % 70);
        }
        harness.commit();
        harness.checkpoint();
        let (canonical, counts) = (harness.queue.canonical(), harness.counts());
        let memory = harness.queue.memory_bytes();
        assert!(harness.replayed().canonical() == canonical);
        harness.crash();
        assert!(harness.queue.canonical() == canonical);
        assert_eq!(harness.counts(), counts);
        assert!(harness.queue.memory_bytes() < memory + memory / 4, "{} for {memory}", harness.queue.memory_bytes());
        // What changes later, in one block or the other, is written without the others.
        for block in [13, 14, 17, 3, 4, 10, 0] {
            let _ = harness.ack((block << 13) + 4_000, 300);
            harness.commit();
            harness.checkpoint();
            assert!(harness.replayed().canonical() == harness.queue.canonical(), "{block}");
        }
    }
}
