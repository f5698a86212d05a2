//! Deadlines in order, so that ten thousand groups cost what one does.
//!
//! A deadline that moves later leaves its place in the queue alone: when the place comes up, its owner says that it is
//! not due and queues again. So a heartbeat changes one number.

use polylogue_kafka_codec::StrBytes;
use std::collections::BTreeSet;

/// What a timer is for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum TimerKind {
    /// The join phase of a rebalance ends.
    Join,
    /// Members that have not asked for their assignment are removed.
    Sync,
    /// The session of a member, or of a client with a member id only, has timed out.
    Session(StrBytes),
    /// A member of a consumer group has not given up what it must.
    Rebalance(StrBytes),
    /// Regular expressions of a consumer group are being resolved.
    Regex,
    /// Offsets may have outlived their use.
    Offsets,
    /// A void group may be rebuilt.
    Void,
}

/// Whose timer, and what for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct TimerKey {
    pub(super) group: StrBytes,
    pub(super) kind: TimerKind,
}

/// All timers; times in monotonic milliseconds.
#[derive(Default, Debug)]
pub(super) struct Timers {
    queue: BTreeSet<(u64, TimerKey)>,
}

impl Timers {
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// The first timer that is due, taken off the queue.
    pub(super) fn pop_due(&mut self, now_ms: u64) -> Option<TimerKey> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.queue.pop_first().map(|(_, key)| key)
    }

    pub(super) fn queue(&mut self, at_ms: u64, key: TimerKey) {
        self.queue.insert((at_ms, key));
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}

/// A deadline as its owner keeps it, with its place in the queue, if it has one. Only one place at a time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Deadline {
    at_ms: Option<u64>,
    queued_ms: Option<u64>,
}

impl Deadline {
    pub(super) fn set(&mut self, timers: &mut Timers, at_ms: u64, key: impl FnOnce() -> TimerKey) {
        self.at_ms = Some(at_ms);
        if self.queued_ms.is_some_and(|queued_ms| queued_ms <= at_ms) {
            return;
        }
        let key = key();
        if let Some(queued_ms) = self.queued_ms.replace(at_ms) {
            let place = (queued_ms, key);
            timers.queue.remove(&place);
            timers.queue.insert((at_ms, place.1));
        } else {
            timers.queue.insert((at_ms, key));
        }
    }

    pub(super) fn clear(&mut self, timers: &mut Timers, key: impl FnOnce() -> TimerKey) {
        self.at_ms = None;
        if let Some(queued_ms) = self.queued_ms.take() {
            timers.queue.remove(&(queued_ms, key()));
        }
    }

    /// The place in the queue came up: whether the deadline has passed. One that has moved is queued again.
    pub(super) fn came_up(&mut self, timers: &mut Timers, now_ms: u64, key: impl FnOnce() -> TimerKey) -> bool {
        self.queued_ms = None;
        match self.at_ms {
            Some(at_ms) if at_ms > now_ms => {
                self.set(timers, at_ms, key);
                false
            }
            Some(_) => {
                self.at_ms = None;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> TimerKey {
        TimerKey { group: StrBytes::from_static("g"), kind: TimerKind::Join }
    }

    #[test]
    fn a_deadline_that_moves_later_keeps_its_place_and_is_not_due_there() {
        let (mut timers, mut deadline) = (Timers::default(), Deadline::default());
        deadline.set(&mut timers, 100, key);
        deadline.set(&mut timers, 300, key);
        assert_eq!(timers.next_ms(), Some(100));
        assert_eq!(timers.pop_due(100), Some(key()));
        assert!(!deadline.came_up(&mut timers, 100, key));
        assert_eq!(timers.next_ms(), Some(300));
        assert_eq!(timers.pop_due(299), None);
        assert_eq!(timers.pop_due(300), Some(key()));
        assert!(deadline.came_up(&mut timers, 300, key));
        assert_eq!(timers.next_ms(), None);
    }

    #[test]
    fn a_deadline_that_moves_earlier_or_is_cleared_leaves_nothing_behind() {
        let (mut timers, mut deadline) = (Timers::default(), Deadline::default());
        for at in (1..100).rev() {
            deadline.set(&mut timers, at, key);
            assert_eq!(timers.queue.len(), 1);
        }
        assert_eq!(timers.next_ms(), Some(1));
        deadline.clear(&mut timers, key);
        assert_eq!(timers.next_ms(), None);
        assert_eq!(deadline, Deadline::default());
    }
}
