//! Records and checkpoints of a queue as a damaged disk might hand them back: nothing panics, nothing takes memory that the bytes do not
//! pay for, and what is taken is consistent.
//!
//! The first byte says how the rest is used; the rest is cut into chunks and records.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use polylogue_lease::{By, Config, ConsumerConfig, ConsumerId, Delay, Entry, Queue, Return};
use std::sync::Arc;

const NOW_MS: u64 = 1 << 40;

fuzz_target!(|input: &[u8]| {
    let Some((&how, mut rest)) = input.split_first() else { return };
    let config = Config {
        key_order: how & 1 > 0,
        whole_entries: how & 2 > 0,
        track_bytes: how & 4 > 0,
        dead_letter: how & 8 > 0,
        mark_handed: how & 64 > 0,
        failures_max: Some(3),
        ..Config::default()
    };
    let config = Arc::new(config);
    let mut queue = Queue::empty(config.clone());
    let chunks = usize::from(how >> 4 & 3);
    for number in 0..chunks {
        let Some((piece, left)) = piece(rest) else { break };
        rest = left;
        // The head, then blocks.
        let mut id = vec![b'H'];
        if number > 0 {
            id[0] = b'B';
            id.extend_from_slice(&(number as u64 - 1).to_be_bytes());
        }
        if queue.load_chunk(&id, piece).is_err() {
            return;
        }
    }
    if queue.loaded().is_err() {
        return;
    }
    let first_offset = queue.committed_end();
    let _ = queue.appended(&Entry {
        bytes: 500,
        extra_bytes: 300,
        transient: true,
        priority: 2,
        deliver_at_ms: Some(5),
        ..Entry::plain(first_offset, 100)
    });
    while let Some((piece, left)) = piece(rest) {
        rest = left;
        let before = state(&queue);
        if queue.apply(piece).is_err() {
            assert_eq!(before, state(&queue));
        }
    }
    again(&config, &mut queue);
    live(queue);
});

/// A piece, as long as its first byte says.
fn piece(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    Some(rest.split_at(rest.len().min(usize::from(len))))
}

fn state(queue: &Queue) -> (u64, u64, usize) {
    (queue.floor(), queue.committed_end(), queue.settled_ranges().count())
}

/// What is written to a checkpoint is read back.
fn again(config: &Arc<Config>, queue: &mut Queue) {
    queue.change_all_chunks();
    let mut copy = Queue::empty(config.clone());
    let chunks: Vec<(Bytes, Option<Bytes>)> = queue.take_changed_chunks();
    for (id, chunk) in chunks {
        if let Some(chunk) = chunk {
            assert_eq!(copy.load_chunk(&id, &chunk), Ok(()));
        }
    }
    assert_eq!(copy.loaded(), Ok(()));
    assert_eq!(state(&copy), state(queue));
}

fn live(mut queue: Queue) {
    queue.become_writer(NOW_MS, 1);
    assert_eq!(queue.add_consumer(ConsumerId(1), ConsumerConfig::default()), Ok(()));
    for _ in 0..4 {
        if let Some(range) = queue.wants() {
            let _ = queue.describe(&Entry { key_hash: Some(7), ..Entry::plain(range.start, 1) });
        }
        let mut grants = Vec::new();
        queue.grant(NOW_MS, 3000, &mut grants);
        for (n, grant) in grants.iter().enumerate() {
            let count = u64::from(grant.count);
            let how = Return { counts: true, delay: Delay::For(n as u64 % 3), unseen: n & 1 == 1 };
            let done = match n % 3 {
                0 => queue.release(grant.first_offset, count, By::Consumer(ConsumerId(1)), how, NOW_MS),
                1 => queue.settle(grant.first_offset, count, By::Lease(grant.lease), NOW_MS),
                _ => queue.reject(grant.first_offset, count, By::Anyone, NOW_MS),
            };
            // A release makes the others' leases another one's, never void.
            assert!(done.is_ok());
        }
        queue.on_deadline(NOW_MS * 2);
        let mut dead = Vec::new();
        queue.take_dead_letters(10, u64::MAX, &mut dead);
        for letter in dead {
            assert!(queue.dead_lettered(letter.first_offset, letter.count).is_ok());
        }
    }
    assert!(queue.seek(queue.committed_end() / 3, NOW_MS).is_ok());
    assert!(queue.settle_to(queue.committed_end() / 2).is_ok());
    while let Some(record) = queue.take_record() {
        assert_eq!(queue.apply(&record.bytes), Ok(record.number));
    }
    assert!(queue.purge().is_ok());
    let counts = queue.counts();
    assert_eq!((counts.ready, counts.delayed), (0, 0));
}
