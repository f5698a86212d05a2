//! When something of a queue is due: leases that run out, messages that waited long enough.
//!
//! An alarm is a hint. What it is about may be gone or have a later time when it goes off; then there is another alarm for that.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Alarms that are kept before those that are void are looked for.
const ALARMS_KEPT_MIN: usize = 256;

/// Some offsets are to be looked at.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Alarm {
    pub(crate) at_ms: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// They are held, not waiting.
    pub(crate) held: bool,
}

impl Alarm {
    pub(crate) fn new(at_ms: u64, range: Range<u64>, held: bool) -> Alarm {
        Alarm { at_ms, start: range.start, end: range.end, held }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    heap: BinaryHeap<Reverse<Alarm>>,
    /// How many there may be before void ones are looked for.
    kept_max: usize,
}

impl Alarms {
    pub(crate) fn push(&mut self, alarm: Alarm) {
        self.heap.push(Reverse(alarm));
    }

    /// There are so many that void ones are to be left out, by [`Alarms::replace`].
    pub(crate) fn crowded(&self) -> bool {
        self.heap.len() > self.kept_max.max(ALARMS_KEPT_MIN)
    }

    /// These are all that are not void.
    pub(crate) fn replace(&mut self, alarms: impl Iterator<Item = Alarm>) {
        self.heap = alarms.map(Reverse).collect();
        self.kept_max = 2 * self.heap.len();
    }

    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.heap.peek().map(|alarm| alarm.0.at_ms)
    }

    /// Takes an alarm that goes off.
    pub(crate) fn due(&mut self, now_ms: u64) -> Option<Alarm> {
        if self.next_ms()? > now_ms {
            return None;
        }
        let alarm = self.heap.pop()?.0;
        if self.heap.is_empty() {
            self.heap = BinaryHeap::new();
        }
        Some(alarm)
    }

    pub(crate) fn clear(&mut self) {
        *self = Alarms::default();
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.heap.capacity() * size_of::<Alarm>()
    }
}
