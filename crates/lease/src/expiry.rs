//! When messages expire, kept so that many that live equally long cost little.
//!
//! A queue whose messages live for a day would have a time of its own for each 10 ms of it: millions. So of what lives long only a coarse time
//! is kept, later than the true one by less than a grain: a power of two, about 1/32,768 of its life ([`crate::Config::expiry_times_max`]).
//!
//! ```text
//!      ready, as it is     uncertain: asked for          expired for sure
//!   ----------------------+--------------------------+------------------->  time
//!              coarse time - grain              coarse time
//!                                   ^ the true time
//! ```
//!
//! A message at the head of the queue whose time is uncertain is neither handed out nor expired before the host has said the true one
//! ([`Queue::uncertain`], [`Queue::describe_expiry`]): so it expires as if its own time had been kept.

use crate::mark::{Class, Entry};
use crate::queue::Queue;
use std::ops::Range;

/// Messages whose times are asked for at once, at the most.
const UNCERTAIN_MESSAGES_MAX: u64 = 1 << 12;

impl Class {
    /// Whether it may have expired and may not.
    pub(crate) fn is_uncertain(&self, now_ms: u64) -> bool {
        self.coarse > 0 && self.expires_at_ms > now_ms && self.uncertain_from_ms() <= now_ms
    }

    /// From when on it is not known whether it has expired; of a time that is exact that one.
    pub(crate) fn uncertain_from_ms(&self) -> u64 {
        match self.coarse {
            0 => self.expires_at_ms,
            bits => self.expires_at_ms.saturating_sub(1u64.checked_shl(u32::from(bits)).unwrap_or(u64::MAX)),
        }
    }
}

impl Queue {
    /// The time of expiry that is kept of an entry, rounded up, and the bits of its grain where that is coarse.
    pub(crate) fn expiry_of(&self, entry: &Entry) -> (u64, u8) {
        let Some(at_ms) = entry.expires_at_ms else { return (0, 0) };
        let grain_ms = self.config.expiry_grain_ms.max(1);
        let exact = (at_ms.max(1).div_ceil(grain_ms).saturating_mul(grain_ms), 0);
        // Where messages are not next by their order alone, or whole entries are, times are kept as they are.
        if entry.time_ms == 0 || self.keyed() || self.config.whole_entries {
            return exact;
        }
        let lives_ms = at_ms.saturating_sub(entry.time_ms);
        let grain = lives_ms.div_ceil(self.config.expiry_times_max.max(1)).max(1);
        let mut bits = grain.checked_next_power_of_two().map_or(63, u64::trailing_zeros);
        // Lives that differ by little have one grain.
        let before = entry.first_offset.checked_sub(1).and_then(|at| self.applied.classes.at(at));
        let before = before.map_or(0, |run| u32::from(run.value.coarse));
        if before > 0 && before.abs_diff(bits) <= 1 {
            bits = before;
        }
        let coarse_ms = 1u64 << bits.min(63);
        if coarse_ms <= grain_ms {
            return exact;
        }
        // No more than 63.
        (at_ms.max(1).div_ceil(coarse_ms).saturating_mul(coarse_ms), bits as u8)
    }

    /// An entry that was proposed without its time is committed: from here on it is known how long it lives.
    pub(crate) fn coarsen(&mut self, entry: &Entry) {
        let range = entry.first_offset..entry.end();
        let (expires_at_ms, coarse) = self.expiry_of(entry);
        let (end, class) = self.applied.class_run(range.start, range.end);
        if coarse > 0 && end == range.end && class.coarse == 0 && class.expires_at_ms > 0 {
            self.applied.set_class(range, Class { expires_at_ms, coarse, ..class });
        }
    }

    /// Messages that are next, and of which it is not known whether they have expired: the host reads their entries, describes them one after
    /// the other ([`Queue::describe_expiry`]), and says when it has ([`Queue::expiry_described`]).
    #[must_use]
    pub fn uncertain(&self, now_ms: u64) -> Option<Range<u64>> {
        if !self.applied.coarse {
            return None;
        }
        let committed = self.applied.head.end;
        let mut heads = self.lanes.iter().filter_map(|lane| lane.ready.first());
        heads.find_map(|run| {
            let limit = run.end.min(committed).min(run.start.saturating_add(UNCERTAIN_MESSAGES_MAX));
            let (end, class) = self.applied.class_run(run.start, limit.max(run.start));
            (class.is_uncertain(now_ms) && run.start < end).then_some(run.start..end)
        })
    }

    /// Says when messages expire, those of an entry that were uncertain. Others are let be.
    pub fn describe_expiry(&mut self, entry: &Entry) {
        let (expires_at_ms, _) = self.expiry_of(&Entry { time_ms: 0, ..*entry });
        self.set_expiry(entry.first_offset..entry.end(), |_| expires_at_ms);
    }

    /// All is said of these messages that there is to say: what is still uncertain expires when it surely has.
    pub fn expiry_described(&mut self, range: Range<u64>) {
        self.set_expiry(range, |class| class.expires_at_ms);
    }

    fn set_expiry(&mut self, range: Range<u64>, expires_at_ms: impl Fn(&Class) -> u64) {
        let mut at = range.start.max(self.applied.head.floor);
        let limit = range.end.min(self.applied.head.end);
        while at < limit {
            let (end, class) = self.applied.class_run(at, limit);
            if class.coarse > 0 {
                let class = Class { expires_at_ms: expires_at_ms(&class), coarse: 0, ..class };
                self.applied.set_class(at..end, class);
            }
            at = end;
        }
    }
}
