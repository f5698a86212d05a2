//! Messages that are parked: the index of times knows how long they wait.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_lease::*;

const LATER: Entry = Entry {
    first_offset: 0,
    count: 1,
    bytes: 0,
    extra_bytes: 0,
    transient: false,
    priority: 0,
    key_hash: None,
    expires_at_ms: None,
    deliver_at_ms: Some(START_MS + 1_000_000),
    time_ms: 0,
    parked: true,
};

/// Commits what is to be recorded, as a host does that keeps times beyond a minute; returns what was reported of them.
fn commit_parking(harness: &mut Harness) -> Vec<(u64, u64)> {
    let record = harness.queue.take_record().expect("something to record");
    let mut due = Vec::new();
    let beyond_ms = harness.now + 60_000;
    harness
        .queue
        .apply_parking(&record.bytes, beyond_ms, &mut |offset, until_ms, _| due.push((offset, until_ms)))
        .unwrap();
    due
}

#[test]
fn messages_of_all_times_and_sizes_cost_little_while_they_are_parked() {
    const MESSAGES: u64 = 300_000;
    let mut harness = Harness::new(Config { track_bytes: true, ..Config::default() });
    let mut bytes = 0;
    for i in 0..MESSAGES {
        let size = 100 + i * 7 % 1_000;
        bytes += size;
        let deliver_at_ms = Some(START_MS + 100_000 + i.wrapping_mul(7_919) % 1_000_000_000);
        let entry = Entry { first_offset: i, bytes: size, deliver_at_ms, ..LATER };
        harness.queue.appended(&entry).unwrap();
    }
    assert_eq!((harness.counts().delayed, harness.counts().ready), (MESSAGES, 0));
    // Sizes are averaged where there are too many of them; times cost nothing.
    harness.queue.take_changed_chunks();
    assert!(harness.queue.memory_bytes() < 6 << 20, "{}", harness.queue.memory_bytes());
    assert_eq!(harness.queue.next_deadline_ms(), None);
    harness.wait(2_000_000_000);
    assert_eq!(harness.counts().ready, 0, "their time has not come");
    for i in 0..MESSAGES {
        assert_eq!(harness.queue.unpark(i * 7 % MESSAGES, 1, |_| true), Ok(1));
    }
    let counts = harness.counts();
    assert_eq!((counts.ready, counts.delayed), (MESSAGES, 0));
    assert!(counts.ready_size.bytes.abs_diff(bytes) < MESSAGES, "{} of {bytes} bytes", counts.ready_size.bytes);
    harness.commit();
    assert_eq!(harness.queue.parked_from(0, u64::MAX), None);
    assert_eq!(harness.queue.purge().unwrap().messages, MESSAGES);
    assert_eq!(harness.counts().ready_size.bytes, 0);
}

#[test]
fn what_is_parked_is_there_after_a_crash_until_its_release_is_committed() {
    let mut harness = Harness::new(Config::default());
    (0..5).for_each(|_| _ = harness.message(LATER));
    harness.message(Entry::default());
    harness.checkpoint();
    harness.crash();
    assert_eq!((harness.counts().delayed, harness.counts().ready), (5, 1));
    assert_eq!(harness.queue.parked_from(1, 3), Some((1..4, Tally::default())));
    assert_eq!(harness.queue.unpark(2, 1, |_| true), Ok(1));
    assert_eq!(
        (harness.queue.unpark(2, 1, |_| true), harness.queue.unpark(5, 9, |_| true)),
        (Ok(0), Ok(0)),
        "what is not parked is let be"
    );
    assert_eq!(harness.counts().ready, 2);
    harness.crash();
    assert_eq!((harness.counts().delayed, harness.counts().ready), (5, 1));
    assert_eq!(harness.queue.unpark(2, 1, |_| true), Ok(1));
    assert_eq!(harness.queue.pending_record(), Some(true), "it has no waiter");
    harness.commit();
    harness.crash();
    assert_eq!((harness.counts().delayed, harness.counts().ready), (4, 2));
    assert_eq!(harness.queue.settle(3, 1, By::Anyone, harness.now).unwrap().messages, 1);
    assert_eq!(harness.queue.unpark(0, 6, |_| true), Ok(3), "one is settled, two are ready");
}

#[test]
fn messages_that_came_back_for_long_are_parked_when_that_is_committed() {
    let mut harness = Harness::new(Config::default());
    let one = harness.prefetch(1, 0);
    harness.append(100);
    harness.grant();
    let back = |delay| Return { counts: true, delay: Delay::For(delay), ..Return::default() };
    let by = By::Consumer(one);
    let _ = harness.queue.release(3, 1, by, back(100_000), harness.now).unwrap();
    let _ = harness.queue.release(5, 1, by, back(59_000), harness.now).unwrap();
    let _ = harness.queue.release(7, 2, by, back(u64::MAX), harness.now).unwrap();
    // One time for many is cheap as it is.
    let _ = harness.queue.release(10, 80, by, back(100_000), harness.now).unwrap();
    let due = commit_parking(&mut harness);
    assert_eq!(due, [(3, harness.now + 100_000), (7, u64::MAX - 1), (8, u64::MAX - 1)]);
    assert_eq!((harness.counts().delayed, harness.queue.next_deadline_ms()), (84, Some(harness.now + 59_000)));
    harness.wait(200_000);
    assert_eq!(harness.counts().delayed, 3);
    assert_eq!(harness.queue.parked_from(0, 9), Some((3..4, Tally { returned: 1, failed: 1 })));
    // What is said of another return is ignored.
    assert_eq!(harness.queue.unpark(3, 1, |tally| tally.returned == 2), Ok(0));
    assert_eq!(harness.queue.unpark(3, 1, |tally| tally.returned == 1), Ok(1));
    let grants = harness.grant();
    let third = grants.iter().find(|grant| grant.first_offset == 3).expect("it is handed out");
    assert_eq!((third.tally, third.count), (Tally { returned: 1, failed: 1 }, 1));
}

/// Between its return and the commit of that a message may go on: what the commit says of it then is old.
#[test]
fn what_went_on_before_its_return_is_committed_is_not_parked_in_its_place() {
    let mut harness = Harness::new(Config::default());
    let one = harness.prefetch(1, 0);
    harness.append(3);
    harness.grant();
    let how = Return { delay: Delay::For(100_000), ..Return::default() };
    let _ = harness.queue.release(0, 3, By::Consumer(one), how, harness.now).unwrap();
    let record = harness.queue.take_record().unwrap();
    let _ = harness.ack(1, 1);
    let mut due = Vec::new();
    harness.queue.apply_parking(&record.bytes, harness.now + 1, &mut |offset, _, _| due.push(offset)).unwrap();
    assert_eq!((due, harness.counts().delayed), (vec![0, 1, 2], 2));
    assert_eq!(harness.queue.unpark(0, 3, |_| true), Ok(2));
    harness.commit();
    assert_eq!((harness.counts().ready, harness.queue.is_settled(1)), (2, true));
}
