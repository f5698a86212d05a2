//! An ordered table for the watchers and followers of a partition, keyed by a rising number.

/// Entries in the order of their numbers. Usually few, so that a vector is faster than a map. When twenty thousand consumers of one partition
/// disconnect together, each removal is a search without a move: it leaves a hole, until half of all are holes.
#[derive(Debug)]
pub(crate) struct Places<T> {
    /// Numbers rise. `None` is a hole.
    entries: Vec<(u64, Option<T>)>,
    holes: usize,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places { entries: Vec::new(), holes: 0 }
    }
}

impl<T> Places<T> {
    fn find(&self, id: u64) -> Result<usize, usize> {
        // Nearly always the newest number is added.
        match self.entries.last() {
            Some((last, _)) if *last >= id => self.entries.binary_search_by_key(&id, |(id, _)| *id),
            _ => Err(self.entries.len()),
        }
    }

    /// Returns the entry of that number, created by `begin` if missing.
    pub(crate) fn entry(&mut self, id: u64, begin: impl FnOnce() -> T) -> &mut T {
        let at = match self.find(id) {
            Ok(at) => at,
            Err(at) => {
                self.entries.insert(at, (id, None));
                self.holes += 1;
                at
            }
        };
        let entry = &mut self.entries[at].1;
        self.holes -= usize::from(entry.is_none());
        entry.get_or_insert_with(begin)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let at = self.find(id).ok()?;
        self.entries[at].1.as_mut()
    }

    pub(crate) fn remove(&mut self, id: u64) {
        let Ok(at) = self.find(id) else { return };
        self.holes += usize::from(self.entries[at].1.take().is_some());
        if 2 * self.holes >= self.entries.len() {
            self.entries.retain(|(_, entry)| entry.is_some());
            self.holes = 0;
        }
    }

    /// Takes the entries for which `is_due` holds, in order, in one pass.
    pub(crate) fn take_if(&mut self, mut is_due: impl FnMut(&T) -> bool) -> Vec<u64> {
        let taken = self.entries.extract_if(.., |(_, entry)| entry.as_ref().is_none_or(&mut is_due));
        let taken = taken.filter(|(_, entry)| entry.is_some()).map(|(id, _)| id).collect();
        self.holes = 0;
        taken
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.entries.iter_mut().filter_map(|(id, entry)| Some((*id, entry.as_mut()?)))
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().filter(|(_, entry)| entry.is_some()).map(|(id, _)| *id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Allocated capacity.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Releases the memory if there is more than `kept` entries need and no entry is left.
    pub(crate) fn shrink(&mut self, kept: usize) {
        if self.entries.is_empty() && self.entries.capacity() > kept {
            self.entries = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(ops in proptest::collection::vec((0_u8..4, 0_u64..40), 0..300)) {
            let mut places = Places::default();
            let mut model: BTreeMap<u64, u64> = BTreeMap::new();
            for (op, id) in ops {
                match op {
                    0 | 1 => {
                        *places.entry(id, || 0) += 1;
                        *model.entry(id).or_default() += 1;
                    }
                    2 => {
                        places.remove(id);
                        model.remove(&id);
                    }
                    _ => {
                        let due: Vec<u64> = model.extract_if(.., |_, value| *value > 2).map(|(id, _)| id).collect();
                        prop_assert_eq!(places.take_if(|value| *value > 2), due);
                    }
                }
                prop_assert_eq!(places.get_mut(id).copied(), model.get(&id).copied());
                prop_assert!(places.ids().eq(model.keys().copied()));
                prop_assert!(places.iter_mut().map(|(id, value)| (id, *value)).eq(model.iter().map(|(id, value)| (*id, *value))));
                prop_assert_eq!(places.is_empty(), model.is_empty());
                prop_assert!(places.entries.len() <= 2 * model.len());
            }
        }
    }
}
