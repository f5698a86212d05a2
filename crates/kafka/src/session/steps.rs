//! What the requests of a connection may cost in one turn, in steps of about 0.1 µs ([`polylogue_types::turn`]).
//!
//! A request whose estimate does not fit into what is left of the turn is not begun: it waits for a fresh turn on an I/O thread or, if it
//! is longer than that, for a worker thread, where a request is never cut. The body of a produce request is estimated while
//! it is read; until it is handed to the broker nothing of it has an effect, so it is read again from the start in the next turn.
//!
//! | work | bytes or records a step |
//! | --- | --- |
//! | records whose frames are checked | 2 records |
//! | decompression | 50 bytes that come out |
//! | compression | 0.3 to 30 bytes that go in, by codec and level |
//! | a list in a request | 2 to 64 bytes, by API |
//! | an answer whose length is known beforehand | 48 bytes |

use super::produce_batch::RATIO_FREE;
use polylogue_api::Reply;
use polylogue_record::compress::Codec;
use polylogue_types::{STEPS_PER_TURN, Unfinished};
use std::cell::Cell;

/// What every request costs. Steps.
const REQUEST_STEPS: u64 = 20;
/// Records whose frames are checked in a step.
const RECORDS_PER_STEP: u64 = 2;
/// Bytes that are decompressed in a step: 500 MB a second, about what zstd and gzip do.
const DECOMPRESSED_BYTES_PER_STEP: u64 = 50;
/// Bytes of an answer that are made in a step.
const ANSWER_BYTES_PER_STEP: u64 = 48;
/// The shortest record: a length, attributes, two deltas, two lengths and a count. Bytes.
const RECORD_BYTES_MIN: usize = 7;

/// The steps of the present turn.
#[derive(Debug)]
pub(super) struct Steps {
    max: u64,
    left: Cell<u64>,
    unfinished: Cell<Option<Unfinished>>,
}

impl Default for Steps {
    /// Without a bound.
    fn default() -> Steps {
        Steps { max: u64::MAX, left: Cell::new(u64::MAX), unfinished: Cell::new(None) }
    }
}

impl Steps {
    /// Those of a new turn.
    pub(super) fn of_turn(max: u64) -> Steps {
        Steps { max, left: Cell::new(max), unfinished: Cell::new(None) }
    }

    /// Why the turn ended before the work, if it did.
    pub(super) fn unfinished(&self) -> Option<Unfinished> {
        self.unfinished.get()
    }

    /// Whether the turn is on an I/O thread, where other connections wait for its end.
    pub(super) fn is_short(&self) -> bool {
        self.max <= STEPS_PER_TURN
    }

    /// Steps that were used so far.
    pub(super) fn used(&self) -> u64 {
        self.max - self.left.get()
    }

    /// Whether so many steps may be begun now. If not, [`Steps::unfinished`] says where they may.
    pub(super) fn afford(&self, steps: u64) -> bool {
        let left = self.left.get();
        let fits = if self.is_short() { steps <= left } else { left > 0 };
        if !fits {
            let is_long = self.is_short() && steps > self.max;
            self.unfinished.set(Some(if is_long || !self.is_short() { Unfinished::Worker } else { Unfinished::Turn }));
        }
        fits
    }

    /// What was begun turned out to be longer than what is left. Where that was most of a turn, another one will not do.
    pub(super) fn pause(&self) {
        let was_fresh = self.left.get() > self.max / 2;
        self.unfinished.set(Some(if was_fresh { Unfinished::Worker } else { Unfinished::Turn }));
    }

    /// Counts steps that were taken.
    pub(super) fn take(&self, steps: u64) {
        if self.max != u64::MAX {
            self.left.set(self.left.get().saturating_sub(steps));
        }
    }

    /// [`Steps::afford`], and takes them if so.
    pub(super) fn try_take(&self, steps: u64) -> bool {
        let fits = self.afford(steps);
        if fits {
            self.take(steps);
        }
        fits
    }

    /// [`Steps::try_take`] in the middle of a request, which on a worker thread is never cut.
    pub(super) fn try_go_on(&self, steps: u64) -> bool {
        if self.is_short() {
            return self.try_take(steps);
        }
        self.take(steps);
        true
    }

    /// How much may be decompressed now. Bytes.
    pub(super) fn decompressed_bytes(&self) -> usize {
        match self.is_short() {
            true => usize::try_from(self.left.get() * DECOMPRESSED_BYTES_PER_STEP).unwrap_or(usize::MAX),
            false => usize::MAX,
        }
    }
}

/// What a request costs whose list has so many bytes, and whose answer may have so many.
pub(super) fn of_request(bytes: usize, bytes_per_step: u64, answer_bytes: usize) -> u64 {
    REQUEST_STEPS + bytes as u64 / bytes_per_step + answer_bytes as u64 / ANSWER_BYTES_PER_STEP
}

/// What it costs to look into what the broker has found, which is more than the request let on: entries are decompressed up to the message
/// that is meant.
pub(super) fn of_reply(reply: &Reply) -> u64 {
    let Reply::FindOffsets(found) = reply else { return 0 };
    let entries = found.iter().flatten().filter_map(|found| found.entry.as_ref());
    entries.map(|entry| of_decompression(entry.len().saturating_mul(RATIO_FREE))).sum()
}

/// What a check of so many records costs, in a batch of so many bytes that is not compressed.
pub(super) fn of_records(count: i32, bytes: usize) -> u64 {
    u64::try_from(count).unwrap_or(0).min((bytes / RECORD_BYTES_MIN) as u64) / RECORDS_PER_STEP
}

/// What it costs to decompress so many bytes.
pub(super) fn of_decompression(bytes: usize) -> u64 {
    bytes as u64 / DECOMPRESSED_BYTES_PER_STEP
}

/// What it costs to compress so many bytes. By throughput on random text of one core; levels in between cost as the next one.
pub(super) fn of_compression(codec: Codec, level: Option<i32>, bytes: usize) -> u64 {
    let bytes = bytes as u64;
    match (codec, level.unwrap_or(0)) {
        (Codec::None, _) => bytes / 200,
        (Codec::Snappy | Codec::Lz4, _) => bytes / 30,
        (Codec::Zstd, ..=3) => bytes / 20,
        (Codec::Zstd, ..=9) => bytes / 5,
        (Codec::Zstd, ..=15) => bytes,
        (Codec::Zstd, _) => bytes.saturating_mul(3),
        (Codec::Gzip, 1..=3) => bytes / 6,
        (Codec::Gzip, _) => bytes / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylogue_types::STEPS_PER_WORKER_TURN;

    #[test]
    fn a_turn_says_where_the_rest_can_go_on() {
        let steps = Steps::of_turn(STEPS_PER_TURN);
        assert!(steps.try_take(STEPS_PER_TURN - 1) && steps.unfinished().is_none());
        assert!(!steps.try_take(2));
        assert_eq!(steps.unfinished(), Some(Unfinished::Turn), "it fits into the next one");
        assert!(!steps.try_take(STEPS_PER_TURN + 1));
        assert_eq!((steps.unfinished(), steps.used()), (Some(Unfinished::Worker), STEPS_PER_TURN - 1));

        let steps = Steps::of_turn(STEPS_PER_WORKER_TURN);
        assert!(steps.try_take(u64::MAX), "the first unit is never cut");
        assert!(!steps.try_take(1));
        assert_eq!(steps.unfinished(), Some(Unfinished::Worker), "others are first");

        let unbounded = Steps::default();
        assert!(unbounded.try_take(u64::MAX) && unbounded.try_take(1) && unbounded.unfinished().is_none());
    }
}
