//! Unacknowledged deliveries of a channel.

use crate::request::{ConsumerRef, Place, Run};
use std::collections::VecDeque;

/// One delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unacked {
    /// The delivery tag.
    pub(super) tag: u64,
    /// The broker's identification.
    pub(super) place: Place,
    /// The consumer it was delivered to.
    pub(super) consumer: ConsumerRef,
    /// When it was delivered, in steps of [`STEP_MS`], and [`LIVE`].
    made: u32,
}

/// The lowest bit of [`Unacked::made`]. Cleared when the delivery is settled out of order: the entry is removed once all earlier ones are.
const LIVE: u32 = 1;
/// [`Unacked::made`] of a delivery that the broker has taken back; the client may still settle it, without effect.
const VOID: u32 = u32::MAX;
/// Resolution of the delivery time: 31 bits last for 17 years. Milliseconds.
const STEP_MS: u64 = 1 << 8;

impl Unacked {
    /// A delivery made now.
    pub(super) fn new(tag: u64, place: Place, consumer: ConsumerRef, now_ms: u64) -> Unacked {
        Unacked { tag, place, consumer, made: (now_ms.div_ceil(STEP_MS) as u32) << 1 | LIVE }
    }

    fn is_live(&self) -> bool {
        self.made & LIVE != 0
    }

    /// Whether the broker has taken it back: settling it has no effect.
    pub(super) fn is_void(&self) -> bool {
        self.made | LIVE == VOID
    }

    /// When it was delivered, or up to one step later. Milliseconds.
    pub(super) fn made_ms(&self) -> u64 {
        u64::from(self.made >> 1) * STEP_MS
    }
}

/// How many settled entries may remain beyond the number of live ones before they are removed.
const SETTLED_SLACK: usize = 64;

/// The unsettled deliveries of a channel, by ascending tag. Memory is at most twice that of the live entries.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    entries: VecDeque<Unacked>,
    live: usize,
}

impl Deliveries {
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Returns the oldest one.
    pub(super) fn oldest(&self) -> Option<&Unacked> {
        self.entries.front()
    }

    /// Takes back deliveries that are older than `timeout_ms` returns for them, and passes them to `each`. Returns when the next one is due.
    /// Milliseconds.
    pub(super) fn take_back_late(
        &mut self,
        now_ms: u64,
        mut timeout_ms: impl FnMut(&Unacked) -> Option<u64>,
        mut each: impl FnMut(&Unacked),
    ) -> Option<u64> {
        let mut next_ms: Option<u64> = None;
        for entry in self.entries.iter_mut().filter(|entry| entry.is_live() && !entry.is_void()) {
            let Some(timeout_ms) = timeout_ms(entry) else { continue };
            let due_ms = entry.made_ms().saturating_add(timeout_ms);
            if due_ms <= now_ms {
                each(entry);
                entry.made = VOID;
            } else {
                next_ms = Some(next_ms.map_or(due_ms, |next| next.min(due_ms)));
            }
        }
        next_ms
    }

    /// Adds a delivery with a higher tag than all others.
    pub(super) fn push(&mut self, delivery: Unacked) {
        self.entries.push_back(delivery);
        self.live += 1;
    }

    /// Returns the position of an unsettled delivery.
    fn find(&self, tag: u64) -> Option<usize> {
        let at = match self.entries.front() {
            // The usual case: settled in order.
            Some(front) if front.tag == tag => 0,
            _ => self.entries.binary_search_by_key(&tag, |entry| entry.tag).ok()?,
        };
        self.entries.get(at).filter(|entry| entry.is_live()).map(|_| at)
    }

    /// Removes one delivery.
    pub(super) fn take(&mut self, tag: u64) -> Option<Unacked> {
        let at = self.find(tag)?;
        let entry = self.entries.get_mut(at)?;
        let taken = *entry;
        entry.made &= !LIVE;
        self.live -= 1;
        while self.entries.front().is_some_and(|entry| !entry.is_live()) {
            self.entries.pop_front();
        }
        if self.entries.len() > 2 * self.live + SETTLED_SLACK {
            self.entries.retain(Unacked::is_live);
        }
        Some(taken)
    }

    /// Passes all deliveries up to this tag to `each`, in order; all of them for tag 0. `None` when the tag is not among them.
    pub(super) fn take_upto(&mut self, tag: u64, mut each: impl FnMut(Unacked)) -> Option<()> {
        let count = if tag == 0 { self.entries.len() } else { self.find(tag)? + 1 };
        for entry in self.entries.drain(..count).filter(Unacked::is_live) {
            self.live -= 1;
            each(entry);
        }
        while self.entries.front().is_some_and(|entry| !entry.is_live()) {
            self.entries.pop_front();
        }
        Some(())
    }

    /// Puts deliveries back that were taken.
    pub(super) fn put_back(&mut self, taken: impl IntoIterator<Item = Unacked>) {
        self.entries.retain(Unacked::is_live);
        self.entries.extend(taken);
        self.live = self.entries.len();
        self.entries.make_contiguous().sort_unstable_by_key(|entry| entry.tag);
    }
}

/// Appends a delivery to the ranges of earlier ones.
pub(super) fn add_to_runs(runs: &mut Vec<Run>, consumer: ConsumerRef, place: Place) {
    if let Some(last) = runs.last_mut() {
        let next = last.first.at.checked_add(last.count);
        if last.consumer == consumer && last.first.queue == place.queue && next == Some(place.at) {
            last.count += 1;
            return;
        }
    }
    runs.push(Run { consumer, first: place, count: 1 });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn delivery(tag: u64) -> Unacked {
        Unacked::new(tag, Place { queue: 1, at: tag }, ConsumerRef(1), tag * 1_000)
    }

    #[test]
    fn the_delivery_time_is_kept() {
        assert_eq!(size_of::<Unacked>(), 32);
        let mut deliveries = Deliveries::default();
        (1..=3).for_each(|tag| deliveries.push(delivery(tag)));
        deliveries.take(1);
        let made_ms = deliveries.oldest().map(Unacked::made_ms);
        assert!(made_ms.is_some_and(|at| (2_000..=2_256).contains(&at)), "{made_ms:?}");
        let _ = deliveries.take_upto(0, |_| ());
        assert_eq!(deliveries.oldest(), None);
    }

    #[test]
    fn a_late_delivery_is_taken_back_once_and_may_still_be_settled() {
        let mut deliveries = Deliveries::default();
        (1..=4).for_each(|tag| deliveries.push(delivery(tag)));
        deliveries.take(2);
        let take_back = |deliveries: &mut Deliveries, now_ms| {
            let mut late = Vec::new();
            let timeout = |entry: &Unacked| (entry.tag != 1).then_some(500);
            let next = deliveries.take_back_late(now_ms, timeout, |entry| late.push(entry.tag));
            (late, next.map(|at| at / 1_000))
        };
        assert_eq!(take_back(&mut deliveries, 3_000), (vec![], Some(3)));
        assert_eq!(take_back(&mut deliveries, 4_000), (vec![3], Some(4)));
        assert_eq!(take_back(&mut deliveries, 9_000), (vec![4], None));
        assert_eq!(deliveries.len(), 3);
        assert_eq!(
            [1, 3, 4].map(|tag| deliveries.take(tag).map(|entry| entry.is_void())),
            [false, true, true].map(Some)
        );
    }

    #[test]
    fn one_delivery_that_is_never_settled_does_not_hold_memory_for_those_after_it() {
        let mut deliveries = Deliveries::default();
        for tag in 1..=100_000 {
            deliveries.push(delivery(tag));
            if tag > 1 {
                assert_eq!(deliveries.take(tag), Some(delivery(tag)));
            }
        }
        assert_eq!(deliveries.len(), 1);
        assert!(deliveries.entries.len() <= 2 + SETTLED_SLACK);
        assert!(deliveries.entries.capacity() < 1024);
    }

    #[test]
    fn neighbours_become_ranges() {
        let mut runs = Vec::new();
        for (queue, at, consumer) in [(1, 5, 1), (1, 6, 1), (1, 8, 1), (2, 9, 1), (2, 10, 2), (2, 11, 2)] {
            add_to_runs(&mut runs, ConsumerRef(consumer), Place { queue, at });
        }
        let counts: Vec<_> = runs.iter().map(|run| (run.first.queue, run.first.at, run.count)).collect();
        assert_eq!(counts, [(1, 5, 2), (1, 8, 1), (2, 9, 1), (2, 10, 2)]);
    }

    proptest! {
        #[test]
        fn it_is_a_map_by_tag(steps in proptest::collection::vec((0u8..4, 1u64..60), 1..200)) {
            let (mut deliveries, mut model, mut next) = (Deliveries::default(), BTreeMap::new(), 1);
            for (step, tag) in steps {
                match step {
                    0 | 1 => {
                        deliveries.push(delivery(next));
                        model.insert(next, delivery(next));
                        next += 1;
                    }
                    2 => prop_assert_eq!(deliveries.take(tag), model.remove(&tag)),
                    _ => {
                        let mut taken = Vec::new();
                        let found = deliveries.take_upto(tag, |entry| taken.push(entry));
                        prop_assert_eq!(found.is_some(), model.contains_key(&tag));
                        if found.is_some() {
                            let rest = model.split_off(&(tag + 1));
                            let expected: Vec<_> = std::mem::replace(&mut model, rest).into_values().collect();
                            prop_assert_eq!(&taken, &expected);
                        }
                        if tag % 3 == 0 {
                            // a rollback
                            model.extend(taken.iter().map(|entry| (entry.tag, *entry)));
                            deliveries.put_back(taken);
                        }
                    }
                }
                prop_assert_eq!(deliveries.len(), model.len());
            }
        }
    }
}
