//! Memory for requests: who may take how much in.

use crate::handle::{Admission, Permit};

/// What a connection may hold of an arriving request without a permit. Bytes; times `connections_max` this is what all of
/// them together may hold without one.
pub const FREE_BYTES: usize = 4 << 10;
/// Requests up to this size have a part of the memory to themselves, so that a heartbeat never waits for uploads.
/// Bytes.
pub const SMALL_FRAME_BYTES_MAX: usize = 64 << 10;
/// That part is one in this many.
pub const SMALL_SHARE: usize = 4;
/// What a request costs besides its bytes: its decoded form and its place in the session. Bytes.
const FRAME_OVERHEAD_BYTES: usize = 1 << 10;

/// How long a small request may take to arrive when others wait for its memory. Milliseconds.
const SMALL_ARRIVAL_MS: u64 = 2_000;
/// How long a large request may take to arrive when others wait for its memory: so long, and what it needs at
/// [`ARRIVAL_BYTES_PER_MS`]. Milliseconds.
const LARGE_ARRIVAL_MS: u64 = 10_000;
/// The slowest sender that is waited for when others wait too: about 1 MiB a second.
const ARRIVAL_BYTES_PER_MS: u64 = 1_024;

/// The process-wide bound on requests in work, in two lanes.
#[derive(Clone, Debug)]
pub struct Lanes {
    small: Admission,
    large: Admission,
}

impl Lanes {
    /// Divides so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Lanes {
        let small = bytes_max / SMALL_SHARE;
        Lanes { small: Admission::new(small), large: Admission::new(bytes_max - small) }
    }

    /// Asks for the memory of a request; `wake` gets the permit, here or later.
    pub(super) fn admit(&self, frame_bytes: usize, wake: Box<dyn FnOnce(Permit) + Send>) {
        self.lane(frame_bytes).admit(frame_bytes.saturating_add(FRAME_OVERHEAD_BYTES), wake);
    }

    /// The memory of a request, if it is free.
    pub(super) fn try_admit(&self, frame_bytes: usize) -> Option<Permit> {
        self.lane(frame_bytes).try_admit(frame_bytes.saturating_add(FRAME_OVERHEAD_BYTES))
    }

    /// Whether a request of this size that has been arriving for so long has to give way to those who wait.
    pub(super) fn must_give_way(&self, frame_bytes: usize, arriving_ms: u64) -> bool {
        let patience_ms = if frame_bytes <= SMALL_FRAME_BYTES_MAX {
            SMALL_ARRIVAL_MS
        } else {
            LARGE_ARRIVAL_MS + frame_bytes as u64 / ARRIVAL_BYTES_PER_MS
        };
        arriving_ms > patience_ms && self.lane(frame_bytes).load().1 > 0
    }

    /// Bytes in use and requests waiting, over both lanes.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let ((used, waiting), (used_large, waiting_large)) = (self.small.load(), self.large.load());
        (used + used_large, waiting + waiting_large)
    }

    fn lane(&self, frame_bytes: usize) -> &Admission {
        if frame_bytes <= SMALL_FRAME_BYTES_MAX { &self.small } else { &self.large }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn large_requests_do_not_hold_up_small_ones() {
        let lanes = Lanes::new(16 << 20);
        let large = lanes.try_admit(11 << 20).unwrap();
        assert!(lanes.try_admit(2 << 20).is_none());
        assert!(lanes.try_admit(SMALL_FRAME_BYTES_MAX).is_some());
        drop(large);
        assert!(lanes.try_admit(2 << 20).is_some());
        assert_eq!(lanes.load(), (0, 0));
    }

    #[test]
    fn a_slow_sender_gives_way_only_when_somebody_waits() {
        let lanes = Lanes::new(16 << 20);
        let frame = 8 << 20;
        let held = lanes.try_admit(frame).unwrap();
        let arrival_ms = LARGE_ARRIVAL_MS + (8 << 10);
        assert!(!lanes.must_give_way(frame, u64::MAX), "nobody waits");
        let (tx, rx) = mpsc::channel();
        lanes.admit(frame, Box::new(move |permit| tx.send(permit).unwrap()));
        assert!(!lanes.must_give_way(frame, arrival_ms), "it has its time");
        assert!(lanes.must_give_way(frame, arrival_ms + 1));
        assert!(!lanes.must_give_way(1, u64::MAX), "nobody waits in the other lane");
        assert!(rx.try_recv().is_err());
        drop(held);
        assert!(rx.try_recv().is_ok());
    }
}
