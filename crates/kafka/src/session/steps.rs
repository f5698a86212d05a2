//! The cost of requests, in steps of about 0.1 µs, bounded per turn ([`polylogue_types::turn`]).
//!
//! A request whose estimate exceeds the rest of the turn is not started: it waits for a new turn on an I/O thread or, if it exceeds a
//! whole one, for a worker thread, where a request is never interrupted. The body of a produce request is estimated while it is
//! decoded; until it is sent to the broker it has no effect, so that it is decoded again in the next turn.
//!
//! | work | bytes or records per step |
//! | --- | --- |
//! | record framing checks | 2 records |
//! | decompression | 50 bytes of output |
//! | compression | 0.3 to 30 bytes of input, by codec and level |
//! | a list in a request | 2 to 64 bytes, by API |
//! | a response of known length | 48 bytes |

use super::produce_batch::RATIO_FREE;
use polylogue_api::Reply;
use polylogue_record::compress::Codec;
use polylogue_types::{STEPS_PER_TURN, Unfinished};
use std::cell::Cell;

/// The base cost of a request. Steps.
const REQUEST_STEPS: u64 = 20;
/// Records checked per step.
const RECORDS_PER_STEP: u64 = 2;
/// Decompressed bytes per step: 500 MB per second, about the speed of zstd and gzip.
const DECOMPRESSED_BYTES_PER_STEP: u64 = 50;
/// Bytes of a response built per step.
const ANSWER_BYTES_PER_STEP: u64 = 48;
/// The shortest record: a length, attributes, two deltas, two lengths and a count. Bytes.
const RECORD_BYTES_MIN: usize = 7;

/// The steps of the current turn.
#[derive(Debug)]
pub(super) struct Steps {
    max: u64,
    left: Cell<u64>,
    unfinished: Cell<Option<Unfinished>>,
}

impl Default for Steps {
    /// Without a limit.
    fn default() -> Steps {
        Steps { max: u64::MAX, left: Cell::new(u64::MAX), unfinished: Cell::new(None) }
    }
}

impl Steps {
    /// Starts a turn.
    pub(super) fn of_turn(max: u64) -> Steps {
        Steps { max, left: Cell::new(max), unfinished: Cell::new(None) }
    }

    /// Returns why the turn ended before the work, if it did.
    pub(super) fn unfinished(&self) -> Option<Unfinished> {
        self.unfinished.get()
    }

    /// Whether the turn is on an I/O thread, where other connections wait.
    pub(super) fn is_short(&self) -> bool {
        self.max <= STEPS_PER_TURN
    }

    /// Returns the number of steps used.
    pub(super) fn used(&self) -> u64 {
        self.max - self.left.get()
    }

    /// Whether so many steps may be started now. If not, [`Steps::unfinished`] returns where.
    pub(super) fn afford(&self, steps: u64) -> bool {
        let left = self.left.get();
        let fits = if self.is_short() { steps <= left } else { left > 0 };
        if !fits {
            let is_long = self.is_short() && steps > self.max;
            self.unfinished.set(Some(if is_long || !self.is_short() { Unfinished::Worker } else { Unfinished::Turn }));
        }
        fits
    }

    /// Ends the turn because started work exceeds it. If it had most of a turn, it needs a worker thread.
    pub(super) fn pause(&self) {
        let was_fresh = self.left.get() > self.max / 2;
        self.unfinished.set(Some(if was_fresh { Unfinished::Worker } else { Unfinished::Turn }));
    }

    /// Uses steps.
    pub(super) fn take(&self, steps: u64) {
        if self.max != u64::MAX {
            self.left.set(self.left.get().saturating_sub(steps));
        }
    }

    /// [`Steps::afford`]; uses the steps if so.
    pub(super) fn try_take(&self, steps: u64) -> bool {
        let fits = self.afford(steps);
        if fits {
            self.take(steps);
        }
        fits
    }

    /// [`Steps::try_take`] within a request, which is never interrupted on a worker thread.
    pub(super) fn try_go_on(&self, steps: u64) -> bool {
        if self.is_short() {
            return self.try_take(steps);
        }
        self.take(steps);
        true
    }

    /// Returns how much may be decompressed now. Bytes.
    pub(super) fn decompressed_bytes(&self) -> usize {
        match self.is_short() {
            true => usize::try_from(self.left.get() * DECOMPRESSED_BYTES_PER_STEP).unwrap_or(usize::MAX),
            false => usize::MAX,
        }
    }
}

/// Returns the cost of a request, by the size of its list and of its response.
pub(super) fn of_request(bytes: usize, bytes_per_step: u64, answer_bytes: usize) -> u64 {
    REQUEST_STEPS + bytes as u64 / bytes_per_step + answer_bytes as u64 / ANSWER_BYTES_PER_STEP
}

/// Returns the cost of processing a reply, which the request does not show: entries are decompressed up to the wanted
/// message.
pub(super) fn of_reply(reply: &Reply) -> u64 {
    let Reply::FindOffsets(found) = reply else { return 0 };
    let entries = found.iter().flatten().filter_map(|found| found.entry.as_ref());
    entries.map(|entry| of_decompression(entry.len().saturating_mul(RATIO_FREE))).sum()
}

/// Returns the cost of checking records, in an uncompressed batch of that size.
pub(super) fn of_records(count: i32, bytes: usize) -> u64 {
    u64::try_from(count).unwrap_or(0).min((bytes / RECORD_BYTES_MIN) as u64) / RECORDS_PER_STEP
}

/// Returns the cost of decompression.
pub(super) fn of_decompression(bytes: usize) -> u64 {
    bytes as u64 / DECOMPRESSED_BYTES_PER_STEP
}

/// Returns the cost of compression, by throughput on random text on one core; levels in between cost as the next one.
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
        assert!(steps.try_take(u64::MAX), "the first unit is never interrupted");
        assert!(!steps.try_take(1));
        assert_eq!(steps.unfinished(), Some(Unfinished::Worker), "needs a worker thread");

        let unbounded = Steps::default();
        assert!(unbounded.try_take(u64::MAX) && unbounded.try_take(1) && unbounded.unfinished().is_none());
    }
}
