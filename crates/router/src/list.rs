//! A persistent list in the order of binding ids: pieces of at most [`PIECE_MAX`] items, shared between copies.
//!
//! Each item has a weight; [`List::pick`] finds the item that covers a point on the line of all weights, for consistent hashing and random choice.

use std::sync::Arc;

/// Items per piece. A change copies one piece and the list of pieces.
const PIECE_MAX: usize = 128;

/// An element of a [`List`].
pub(crate) trait Item: Copy {
    /// Its position in the order; unique.
    fn order(&self) -> u64;

    /// How much of the line of weights it covers.
    fn weight(&self) -> u64 {
        1
    }
}

#[derive(Clone, Debug)]
struct Piece<T> {
    /// Never empty.
    items: Arc<Vec<T>>,
    weight: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) enum List<T> {
    /// No items.
    #[default]
    Empty,
    /// One item: the common case for keys.
    One(T),
    /// Pieces in order.
    Many(Arc<Pieces<T>>),
}

/// The pieces of a list.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<T> {
    pieces: Vec<Piece<T>>,
    weight: u64,
}

impl<T: Item> List<T> {
    /// Whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, List::Empty)
    }

    /// The sum of all weights.
    pub(crate) fn weight(&self) -> u64 {
        match self {
            List::Empty => 0,
            List::One(item) => item.weight(),
            List::Many(all) => all.weight,
        }
    }

    /// The items in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let (one, many): (Option<&T>, &[Piece<T>]) = match self {
            List::Empty => (None, &[]),
            List::One(item) => (Some(item), &[]),
            List::Many(all) => (None, &all.pieces),
        };
        one.into_iter().chain(many.iter().flat_map(|piece| piece.items.iter()))
    }

    /// The items in order, starting at position `from`.
    pub(crate) fn iter_from(&self, from: u64) -> impl Iterator<Item = &T> {
        let (one, many): (Option<&T>, &[Piece<T>]) = match self {
            List::Empty => (None, &[]),
            List::One(item) => (Some(item), &[]),
            List::Many(all) if from == 0 => (None, &all.pieces),
            List::Many(all) => (None, all.pieces.get(all.piece(from)..).unwrap_or_default()),
        };
        let items = one.into_iter().chain(many.iter().flat_map(|piece| piece.items.iter()));
        items.skip_while(move |item| item.order() < from)
    }

    /// Calls `emit` with the items from position `from` on, one step each, until all are emitted or no step is left. Returns where to continue, if
    /// items are left.
    #[inline]
    pub(crate) fn emit(&self, from: u64, steps: &mut u64, emit: &mut (impl FnMut(&T) + ?Sized)) -> Option<u64> {
        match self {
            List::Empty => {}
            List::One(item) => {
                if item.order() >= from {
                    *steps = steps.saturating_sub(1);
                    emit(item);
                }
            }
            List::Many(all) => {
                let first = if from == 0 { 0 } else { all.piece(from) };
                for piece in all.pieces.get(first..).unwrap_or_default() {
                    let mut items = piece.items.as_slice();
                    if items.first().is_some_and(|item| item.order() < from) {
                        let at = items.partition_point(|item| item.order() < from);
                        items = items.get(at..).unwrap_or_default();
                    }
                    let fit = usize::try_from(*steps).unwrap_or(usize::MAX).min(items.len());
                    items.iter().take(fit).for_each(&mut *emit);
                    *steps -= fit as u64;
                    if let Some(next) = items.get(fit) {
                        return Some(next.order());
                    }
                }
            }
        }
        None
    }

    /// Returns the item that covers `point` on the line of all weights; `point` must be below [`List::weight`].
    pub(crate) fn pick(&self, mut point: u64) -> Option<&T> {
        match self {
            List::Empty => None,
            List::One(item) => (point < item.weight()).then_some(item),
            List::Many(all) => {
                for piece in &all.pieces {
                    if point < piece.weight {
                        return piece.items.iter().find(|item| match point.checked_sub(item.weight()) {
                            Some(rest) => {
                                point = rest;
                                false
                            }
                            None => true,
                        });
                    }
                    point -= piece.weight;
                }
                None
            }
        }
    }

    /// Adds an item, unless one with its position exists.
    pub(crate) fn insert(&mut self, item: T) {
        match self {
            List::Empty => *self = List::One(item),
            List::One(first) if first.order() == item.order() => {}
            List::One(first) => {
                let mut items = vec![*first, item];
                items.sort_by_key(Item::order);
                let weight = first.weight() + item.weight();
                let pieces = vec![Piece { items: Arc::new(items), weight }];
                *self = List::Many(Arc::new(Pieces { pieces, weight }));
            }
            List::Many(all) => Arc::make_mut(all).insert(item),
        }
    }

    /// Removes an item; `false` when it does not exist.
    pub(crate) fn remove(&mut self, order: u64) -> bool {
        match self {
            List::Empty => false,
            List::One(item) if item.order() == order => {
                *self = List::Empty;
                true
            }
            List::One(_) => false,
            List::Many(all) => {
                if all.find(order).is_none() {
                    return false;
                }
                let left = Arc::make_mut(all);
                left.remove(order);
                if let [only] = left.pieces.as_slice()
                    && let [item] = only.items.as_slice()
                {
                    *self = List::One(*item);
                }
                true
            }
        }
    }
}

impl<T: Item> Pieces<T> {
    /// The index of the piece that contains, or would contain, a position.
    fn piece(&self, order: u64) -> usize {
        let after = self.pieces.partition_point(|p| p.items.first().is_some_and(|first| first.order() <= order));
        after.saturating_sub(1)
    }

    fn find(&self, order: u64) -> Option<(usize, usize)> {
        let at = self.piece(order);
        let place = self.pieces.get(at)?.items.binary_search_by_key(&order, Item::order).ok()?;
        Some((at, place))
    }

    fn insert(&mut self, item: T) {
        let at = self.piece(item.order());
        let appended = at + 1 == self.pieces.len();
        let Some(piece) = self.pieces.get_mut(at) else { return };
        let Err(place) = piece.items.binary_search_by_key(&item.order(), Item::order) else { return };
        let items = Arc::make_mut(&mut piece.items);
        items.insert(place, item);
        piece.weight += item.weight();
        self.weight += item.weight();
        if items.len() > PIECE_MAX {
            // Ids grow, so most items are appended: full pieces stay full.
            let cut = if appended && place + 1 == items.len() { PIECE_MAX } else { items.len() / 2 };
            let right = items.split_off(cut);
            let weight = right.iter().map(Item::weight).sum();
            piece.weight -= weight;
            self.pieces.insert(at + 1, Piece { items: Arc::new(right), weight });
        }
    }

    fn remove(&mut self, order: u64) {
        let Some((at, place)) = self.find(order) else { return };
        let Some(piece) = self.pieces.get_mut(at) else { return };
        let items = Arc::make_mut(&mut piece.items);
        let weight = items.remove(place).weight();
        piece.weight -= weight;
        self.weight -= weight;
        let small = items.len() < PIECE_MAX / 4;
        if items.is_empty() {
            self.pieces.remove(at);
        } else if small && at > 0 {
            self.join(at - 1);
        }
    }

    /// Appends the next piece to the piece `at`, if both fit into one.
    fn join(&mut self, at: usize) {
        let [left, right] = self.pieces.get(at..at + 2).unwrap_or_default() else { return };
        if left.items.len() + right.items.len() > PIECE_MAX / 2 {
            return;
        }
        let gone = self.pieces.remove(at + 1);
        if let Some(left) = self.pieces.get_mut(at) {
            Arc::make_mut(&mut left.items).extend_from_slice(&gone.items);
            left.weight += gone.weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Weighed(u64, u64);

    impl Item for Weighed {
        fn order(&self) -> u64 {
            self.0
        }
        fn weight(&self) -> u64 {
            self.1
        }
    }

    proptest! {
        #[test]
        fn it_is_an_ordered_list_with_weights(
            steps in prop::collection::vec((0..700u64, 1..5u64, prop::bool::weighted(0.3)), 0..1500)
        ) {
            let mut list = List::default();
            let mut model = BTreeMap::new();
            let mut copy = (list.clone(), model.clone());
            for (i, (order, weight, remove)) in steps.into_iter().enumerate() {
                if remove {
                    prop_assert_eq!(list.remove(order), model.remove(&order).is_some());
                } else {
                    list.insert(Weighed(order, weight));
                    model.entry(order).or_insert(weight);
                }
                if i == 700 {
                    copy = (list.clone(), model.clone());
                }
            }
            for (list, model) in [copy, (list, model)] {
                let items: Vec<_> = list.iter().map(|item| (item.0, item.1)).collect();
                prop_assert_eq!(&items, &model.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
                prop_assert_eq!(list.is_empty(), model.is_empty());
                for steps in [1, 7, 128, 5_000] {
                    let (mut from, mut pieces) = (Some(0), Vec::new());
                    while let Some(begin) = from {
                        let mut left = steps;
                        from = list.emit(begin, &mut left, &mut |item| pieces.push((item.0, item.1)));
                    }
                    prop_assert_eq!(&pieces, &items, "in pieces of {} it is the same", steps);
                }
                let line: Vec<u64> = items.iter().flat_map(|(k, w)| std::iter::repeat_n(*k, *w as usize)).collect();
                prop_assert_eq!(list.weight(), line.len() as u64);
                for (point, order) in line.iter().enumerate() {
                    prop_assert_eq!(list.pick(point as u64).map(|item| item.0), Some(*order));
                }
                prop_assert_eq!(list.pick(line.len() as u64), None);
            }
        }
    }
}
