//! A round-robin list: an item is found, moved to the end and removed in constant time.

/// An index of an item. It changes only when an item is removed: see [`Turns::remove`].
pub(super) type Place = usize;

/// Items in a dense array, linked in round-robin order:
///
/// ```text
///   places     0        1        2        3
///            | b ──▶ | c ──▶ | a ──▶ | d     |
///               1       3       0    ▲
///   first = 2                        last = 3
/// ```
#[derive(Debug)]
pub(super) struct Turns<T> {
    slots: Vec<Slot<T>>,
    first: Option<Place>,
    last: Option<Place>,
}

#[derive(Debug)]
struct Slot<T> {
    item: T,
    before: Option<Place>,
    behind: Option<Place>,
}

impl<T> Turns<T> {
    pub(super) const fn new() -> Turns<T> {
        Turns { slots: Vec::new(), first: None, last: None }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn get(&self, place: Place) -> Option<&T> {
        self.slots.get(place).map(|slot| &slot.item)
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        self.slots.get_mut(place).map(|slot| &mut slot.item)
    }

    /// Returns each item with its place, in round-robin order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Place, &T)> {
        let mut next = self.first;
        std::iter::from_fn(move || {
            let place = next?;
            let slot = self.slots.get(place)?;
            next = slot.behind;
            Some((place, &slot.item))
        })
    }

    /// Adds an item at the end.
    pub(super) fn push(&mut self, item: T) -> Place {
        let place = self.slots.len();
        self.slots.push(Slot { item, before: None, behind: None });
        self.link_last(place);
        place
    }

    /// Moves an item to the end.
    pub(super) fn move_to_end(&mut self, place: Place) {
        if place < self.slots.len() {
            self.unlink(place);
            self.link_last(place);
        }
    }

    /// Removes an item. The item at the highest place moves to its place.
    pub(super) fn remove(&mut self, place: Place) -> Option<T> {
        let end = self.slots.len().checked_sub(1).filter(|end| place <= *end)?;
        self.unlink(place);
        let removed = self.slots.swap_remove(place).item;
        if place < end {
            let Slot { before, behind, .. } = *self.slots.get(place)?;
            self.set_behind(before, Some(place));
            self.set_before(behind, Some(place));
        }
        // Memory is released when the array shrinks to a quarter.
        if self.slots.len() < self.slots.capacity() / 4 {
            self.slots.shrink_to(self.slots.len() * 2);
        }
        Some(removed)
    }

    fn link_last(&mut self, place: Place) {
        let last = self.last;
        if let Some(slot) = self.slots.get_mut(place) {
            (slot.before, slot.behind) = (last, None);
        }
        self.set_behind(last, Some(place));
        self.last = Some(place);
    }

    fn unlink(&mut self, place: Place) {
        let Some(Slot { before, behind, .. }) = self.slots.get(place) else { return };
        let (before, behind) = (*before, *behind);
        self.set_behind(before, behind);
        self.set_before(behind, before);
    }

    /// Returns the item after `at`, or the first one for `None`.
    fn set_behind(&mut self, at: Option<Place>, behind: Option<Place>) {
        match at.and_then(|at| self.slots.get_mut(at)) {
            Some(slot) => slot.behind = behind,
            None => self.first = behind,
        }
    }

    /// Returns the item before `at`, or the last one for `None`.
    fn set_before(&mut self, at: Option<Place>, before: Option<Place>) {
        match at.and_then(|at| self.slots.get_mut(at)) {
            Some(slot) => slot.before = before,
            None => self.last = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Do {
        Push,
        Move(prop::sample::Index),
        Remove(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Do>> {
        let step = prop_oneof![
            3 => Just(Do::Push),
            2 => any::<prop::sample::Index>().prop_map(Do::Move),
            2 => any::<prop::sample::Index>().prop_map(Do::Remove),
        ];
        proptest::collection::vec(step, 0..80)
    }

    proptest! {
        /// The same by a plain list, as the model.
        #[test]
        fn turns_are_those_of_a_list(steps in steps()) {
            let (mut turns, mut list) = (Turns::new(), Vec::new());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Do::Push => {
                        turns.push(number);
                        list.push(number);
                    }
                    Do::Move(_) | Do::Remove(_) if list.is_empty() => {}
                    Do::Move(at) => {
                        let moved = list.remove(at.index(list.len()));
                        list.push(moved);
                        let place = turns.iter().find(|(_, item)| **item == moved).unwrap().0;
                        turns.move_to_end(place);
                    }
                    Do::Remove(at) => {
                        let removed = list.remove(at.index(list.len()));
                        let place = turns.iter().find(|(_, item)| **item == removed).unwrap().0;
                        let highest = turns.get(turns.len() - 1).copied().filter(|item| *item != removed);
                        prop_assert_eq!(turns.remove(place), Some(removed));
                        prop_assert!(highest.is_none_or(|item| turns.get(place).or(turns.get(turns.len() - 1)) == Some(&item)));
                    }
                }
                prop_assert_eq!(turns.iter().map(|(_, item)| *item).collect::<Vec<_>>(), list.clone());
                prop_assert!(turns.iter().all(|(place, item)| turns.get(place) == Some(item)));
                prop_assert_eq!(turns.len(), list.len());
                prop_assert_eq!(turns.last.and_then(|last| turns.get(last)), list.last());
            }
        }
    }

    #[test]
    fn what_is_not_there_is_neither_moved_nor_removed() {
        let mut turns = Turns::new();
        turns.push('a');
        turns.move_to_end(1);
        assert_eq!((turns.remove(1), turns.len()), (None, 1));
        assert_eq!((turns.remove(0), turns.remove(0), turns.iter().count()), (Some('a'), None, 0));
    }

    #[test]
    fn memory_goes_with_what_was_in_it() {
        let mut turns = Turns::new();
        (0..1_000).for_each(|number| _ = turns.push(number));
        (0..990).for_each(|_| _ = turns.remove(0));
        assert!(turns.slots.capacity() < 100, "{}", turns.slots.capacity());
    }
}
