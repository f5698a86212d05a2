//! A sorted map from offsets to values that costs memory by where the value changes, not by how many offsets there are.
//!
//! ```text
//!   leaves    [ [0..4 a | 9..10 b | ...] , [77..80 a | ...] , ... ]      at most LEAF_RUNS_MAX runs a leaf
//! ```
//!
//! Two levels: a change moves at most one leaf's runs, and the list of leaves only when a leaf is split or goes. Neighbours with one value
//! are one run. A map that had few runs keeps its memory when the last one goes, so that a queue whose messages come and go one by one
//! allocates nothing.

use std::ops::Range;

/// Runs in a leaf at the most.
const LEAF_RUNS_MAX: usize = 128;
/// Runs whose room an empty map may keep.
const KEPT_RUNS_MAX: usize = 8;

/// Offsets with one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run<V> {
    pub(crate) start: u64,
    /// The offset after the last one.
    pub(crate) end: u64,
    pub(crate) value: V,
}

impl<V> Run<V> {
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    fn clip(self, range: &Range<u64>) -> Run<V> {
        Run { start: self.start.max(range.start), end: self.end.min(range.end), value: self.value }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Runs<V> {
    /// None is empty, but one that is alone.
    leaves: Vec<Vec<Run<V>>>,
    covered: u64,
}

impl<V> Default for Runs<V> {
    fn default() -> Runs<V> {
        Runs { leaves: Vec::new(), covered: 0 }
    }
}

/// The place of a run: its leaf, and where in it.
type Place = (usize, usize);

impl<V: Copy + PartialEq> Runs<V> {
    pub(crate) fn is_empty(&self) -> bool {
        self.covered == 0
    }

    /// How many offsets have a value.
    pub(crate) fn covered(&self) -> u64 {
        self.covered
    }

    /// How many runs there are.
    pub(crate) fn runs(&self) -> usize {
        self.leaves.iter().map(Vec::len).sum()
    }

    /// Whether there are more than so many runs, roughly: leaves may be half empty.
    pub(crate) fn exceeds(&self, runs: usize) -> bool {
        self.leaves.len() > runs / LEAF_RUNS_MAX
    }

    /// What it takes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let leaves: usize = self.leaves.iter().map(Vec::capacity).sum();
        self.leaves.capacity() * size_of::<Vec<Run<V>>>() + leaves * size_of::<Run<V>>()
    }

    pub(crate) fn first(&self) -> Option<Run<V>> {
        self.leaves.first()?.first().copied()
    }

    pub(crate) fn last(&self) -> Option<Run<V>> {
        self.leaves.last()?.last().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Run<V>> + '_ {
        self.leaves.iter().flatten().copied()
    }

    /// The runs that end after an offset, in their order.
    pub(crate) fn iter_from(&self, at: u64) -> impl Iterator<Item = Run<V>> + '_ {
        let (leaf, index) = self.seek(at);
        let head = self.leaves.get(leaf).and_then(|runs| runs.get(index..)).unwrap_or_default();
        head.iter().chain(self.leaves.get(leaf + 1..).unwrap_or_default().iter().flatten()).copied()
    }

    /// The first run that ends after an offset.
    pub(crate) fn from(&self, at: u64) -> Option<Run<V>> {
        let (leaf, index) = self.seek(at);
        self.leaves.get(leaf)?.get(index).copied()
    }

    /// The run that an offset is in.
    pub(crate) fn at(&self, at: u64) -> Option<Run<V>> {
        self.from(at).filter(|run| run.start <= at)
    }

    /// The first part of a range that has one value.
    pub(crate) fn first_in(&self, range: &Range<u64>) -> Option<Run<V>> {
        self.from(range.start).filter(|run| run.start < range.end && !range.is_empty()).map(|run| run.clip(range))
    }

    /// How many offsets of a range have a value.
    pub(crate) fn covered_in(&self, range: &Range<u64>) -> u64 {
        let inside = self.iter_from(range.start).take_while(|run| run.start < range.end);
        inside.map(|run| run.clip(range).len()).sum()
    }

    /// Gives all offsets of a range a value.
    pub(crate) fn set(&mut self, range: Range<u64>, value: V) {
        if range.is_empty() {
            return;
        }
        let count = range.end - range.start;
        if let Some(last) = self.leaves.last_mut().and_then(|runs| runs.last_mut())
            && last.end == range.start
            && last.value == value
        {
            last.end = range.end;
            self.covered += count;
            return;
        }
        self.clear(&range);
        self.covered += count;
        let right = self.seek(range.start);
        let joins_right = self.run(right).is_some_and(|run| run.start == range.end && run.value == value);
        let left = self.before(right);
        let joined =
            left.and_then(|left| self.run_mut(left)).filter(|run| run.end == range.start && run.value == value);
        if let Some(joined) = joined {
            joined.end = range.end;
            if joins_right {
                let end = self.remove(right).map_or(range.end, |run| run.end);
                if let Some(place) = self.before(self.seek(range.end)).or(left)
                    && let Some(run) = self.run_mut(place)
                {
                    run.end = end;
                }
            }
        } else if joins_right {
            if let Some(run) = self.run_mut(right) {
                run.start = range.start;
            }
        } else {
            self.insert(right, Run { start: range.start, end: range.end, value });
        }
    }

    /// Takes the value from all offsets of a range.
    pub(crate) fn clear(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        loop {
            let place = self.seek(range.start);
            let Some(run) = self.run_mut(place) else { return };
            if run.start >= range.end {
                return;
            }
            let whole = *run;
            if whole.start < range.start {
                run.end = range.start;
                self.covered -= whole.end.min(range.end) - range.start;
                if whole.end > range.end {
                    self.insert((place.0, place.1 + 1), Run { start: range.end, ..whole });
                    return;
                }
            } else if whole.end > range.end {
                run.start = range.end;
                self.covered -= range.end - whole.start;
                return;
            } else {
                self.covered -= whole.len();
                self.remove(place);
            }
        }
    }

    /// Takes the value from all offsets, and keeps a little memory.
    pub(crate) fn reset(&mut self) {
        self.covered = 0;
        self.leaves.truncate(1);
        match self.leaves.first_mut() {
            Some(runs) if runs.capacity() <= KEPT_RUNS_MAX => runs.clear(),
            _ => self.leaves = Vec::new(),
        }
    }

    /// The place of the first run that ends after an offset.
    fn seek(&self, at: u64) -> Place {
        let leaf = self.leaves.partition_point(|runs| runs.last().is_none_or(|run| run.end <= at));
        let index = self.leaves.get(leaf).map_or(0, |runs| runs.partition_point(|run| run.end <= at));
        (leaf, index)
    }

    fn run(&self, place: Place) -> Option<&Run<V>> {
        self.leaves.get(place.0)?.get(place.1)
    }

    fn run_mut(&mut self, place: Place) -> Option<&mut Run<V>> {
        self.leaves.get_mut(place.0)?.get_mut(place.1)
    }

    /// The place of the run before.
    fn before(&self, (leaf, index): Place) -> Option<Place> {
        match index.checked_sub(1) {
            Some(index) => Some((leaf, index)),
            None => {
                let leaf = leaf.checked_sub(1)?;
                Some((leaf, self.leaves.get(leaf)?.len().checked_sub(1)?))
            }
        }
    }

    fn insert(&mut self, (mut leaf, mut index): Place, run: Run<V>) {
        if leaf >= self.leaves.len() {
            if self.leaves.is_empty() {
                self.leaves.push(Vec::new());
            }
            leaf = self.leaves.len() - 1;
            index = self.leaves[leaf].len();
        }
        if self.leaves[leaf].len() >= LEAF_RUNS_MAX {
            // What grows at its end fills its leaves.
            let at = if index == LEAF_RUNS_MAX { index } else { LEAF_RUNS_MAX / 2 };
            let right = self.leaves[leaf].split_off(at);
            self.leaves.insert(leaf + 1, right);
            if index >= at {
                (leaf, index) = (leaf + 1, index - at);
            }
        }
        self.leaves[leaf].insert(index, run);
    }

    fn remove(&mut self, (leaf, index): Place) -> Option<Run<V>> {
        let runs = self.leaves.get_mut(leaf)?;
        let run = (index < runs.len()).then(|| runs.remove(index))?;
        let (len, room) = (runs.len(), runs.capacity());
        if len == 0 && self.leaves.len() > 1 {
            self.leaves.remove(leaf);
            if self.leaves.capacity() > 8 && self.leaves.capacity() > 4 * self.leaves.len() {
                self.leaves.shrink_to(2 * self.leaves.len());
            }
        } else if len < LEAF_RUNS_MAX / 4 && !self.join(leaf) && room > KEPT_RUNS_MAX && room > 4 * len {
            self.leaves[leaf].shrink_to((2 * len).max(KEPT_RUNS_MAX));
        }
        Some(run)
    }

    /// Fills the leaf before the one that an offset is in with all that is in that, if it has the room: what shrinks at its end keeps full leaves.
    pub(crate) fn pack(&mut self, at: u64) {
        let (leaf, _) = self.seek(at);
        if let Some(left) = leaf.checked_sub(1)
            && let Some(right) = self.leaves.get(leaf)
            && self.leaves[left].len() + right.len() <= LEAF_RUNS_MAX
        {
            let right = self.leaves.remove(leaf);
            self.leaves[left].extend(right);
        }
    }

    /// Puts a leaf that became small together with the one behind or before it, when both have room in one.
    fn join(&mut self, leaf: usize) -> bool {
        for left in [Some(leaf), leaf.checked_sub(1)].into_iter().flatten() {
            if let Some(right) = self.leaves.get(left + 1)
                && self.leaves[left].len() + right.len() <= LEAF_RUNS_MAX * 3 / 4
            {
                let right = self.leaves.remove(left + 1);
                self.leaves[left].extend(right);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn same(runs: &Runs<u8>, expected: &[Option<u8>]) {
        let mut flat = vec![None; expected.len()];
        let mut before: Option<Run<u8>> = None;
        for run in runs.iter() {
            assert!(run.start < run.end);
            if let Some(before) = before {
                assert!(before.end < run.start || before.end == run.start && before.value != run.value);
            }
            flat[run.start as usize..run.end as usize].fill(Some(run.value));
            before = Some(run);
        }
        assert_eq!(flat, expected);
        assert_eq!(runs.covered(), expected.iter().flatten().count() as u64);
        assert!(runs.leaves.len() == 1 || runs.leaves.iter().all(|leaf| !leaf.is_empty()));
        for at in 0..expected.len() as u64 {
            assert_eq!(runs.at(at).map(|run| run.value), expected[at as usize]);
        }
    }

    proptest! {
        #[test]
        fn a_map_of_runs_is_the_map_of_its_offsets(
            steps in prop::collection::vec((0u64..2000, 1u64..40, prop::option::weighted(0.7, 0u8..3)), 0..60),
            dense in 0u64..1500,
        ) {
            let mut runs = Runs::default();
            let mut expected = vec![None; 2100];
            for at in (0..dense).step_by(2) {
                runs.set(at..at + 1, 1);
                expected[at as usize] = Some(1);
            }
            same(&runs, &expected);
            for (start, len, value) in steps {
                let range = start..start + len;
                match value {
                    Some(value) => runs.set(range.clone(), value),
                    None => runs.clear(&range),
                }
                expected[start as usize..(start + len) as usize].fill(value);
                let inside = expected[start as usize..].iter().take(77).flatten().count() as u64;
                prop_assert_eq!(runs.covered_in(&(start..start + 77)), inside);
            }
            same(&runs, &expected);
            let half = 0..1000;
            runs.clear(&half);
            expected[..1000].fill(None);
            same(&runs, &expected);
        }
    }

    #[test]
    fn memory_goes_with_the_runs_that_are_there() {
        let mut runs = Runs::default();
        (0..100_000u64).for_each(|at| runs.set(2 * at..2 * at + 1, ()));
        let full = runs.heap_bytes();
        assert!(full < 100_000 * 16 * 3 / 2, "{full}");
        (0..99_990u64).for_each(|at| runs.clear(&(2 * at..2 * at + 1)));
        assert_eq!(runs.runs(), 10);
        assert!(runs.heap_bytes() < 5000, "{}", runs.heap_bytes());
        // All but every hundredth, from within.
        let mut runs = Runs::default();
        (0..100_000u64).for_each(|at| runs.set(2 * at..2 * at + 1, ()));
        (0..100_000u64).filter(|at| at % 100 > 0).for_each(|at| runs.clear(&(2 * at..2 * at + 1)));
        assert_eq!(runs.runs(), 1000);
        assert!(runs.heap_bytes() < 1000 * 16 * 6, "{}", runs.heap_bytes());
        runs.reset();
        assert_eq!(runs.heap_bytes(), 0);
    }
}
