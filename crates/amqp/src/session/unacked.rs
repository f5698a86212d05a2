//! Deliveries that wait for their acknowledgement.

use crate::request::{ConsumerRef, Place, Run};
use std::collections::VecDeque;

/// One delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unacked {
    /// What the client settles it by.
    pub(super) tag: u64,
    /// What the broker settles it by.
    pub(super) place: Place,
    /// Who got it.
    pub(super) consumer: ConsumerRef,
    /// When it was made, in steps of [`STEP_MS`], and [`LIVE`].
    made: u32,
}

/// The lowest bit of [`Unacked::made`]. Cleared when it is settled out of its turn: it goes when all before it have gone.
const LIVE: u32 = 1;
/// How exactly it is kept when a delivery was made: 31 bits last for 17 years. Milliseconds.
const STEP_MS: u64 = 1 << 8;

impl Unacked {
    /// One that is made now.
    pub(super) fn new(tag: u64, place: Place, consumer: ConsumerRef, now_ms: u64) -> Unacked {
        Unacked { tag, place, consumer, made: (now_ms.div_ceil(STEP_MS) as u32) << 1 | LIVE }
    }

    fn is_live(&self) -> bool {
        self.made & LIVE != 0
    }

    /// When it was made, or up to a step after. Milliseconds.
    pub(super) fn made_ms(&self) -> u64 {
        u64::from(self.made >> 1) * STEP_MS
    }
}

/// How many settled ones may be among the others before they are swept out, beyond as many as there are others.
const SETTLED_SLACK: usize = 64;

/// The deliveries of a channel that are not settled, by rising tag. Takes memory for at most twice as many as there are.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    entries: VecDeque<Unacked>,
    live: usize,
}

impl Deliveries {
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// The oldest one.
    pub(super) fn oldest(&self) -> Option<&Unacked> {
        self.entries.front()
    }

    /// One more; its tag is above all others.
    pub(super) fn push(&mut self, delivery: Unacked) {
        self.entries.push_back(delivery);
        self.live += 1;
    }

    /// Where the delivery is, if it is not settled.
    fn find(&self, tag: u64) -> Option<usize> {
        let at = match self.entries.front() {
            // the usual case: in their order
            Some(front) if front.tag == tag => 0,
            _ => self.entries.binary_search_by_key(&tag, |entry| entry.tag).ok()?,
        };
        self.entries.get(at).filter(|entry| entry.is_live()).map(|_| at)
    }

    /// Takes one out.
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

    /// Hands all up to this one to `each`, in their order; all there are for tag 0. `None` when it is not among them.
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

    /// Puts back what was taken.
    pub(super) fn put_back(&mut self, taken: impl IntoIterator<Item = Unacked>) {
        self.entries.retain(Unacked::is_live);
        self.entries.extend(taken);
        self.live = self.entries.len();
        self.entries.make_contiguous().sort_unstable_by_key(|entry| entry.tag);
    }
}

/// Adds a delivery to the ranges of those before it.
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
    fn a_delivery_knows_when_it_was_made() {
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
