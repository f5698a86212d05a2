//! A persistent hash map (hash array mapped trie): copies share all nodes, and a change copies only the nodes on its path.
//!
//! ```text
//!   bits 0..5 of the hash   select one of 32 places in the root node
//!   bits 5..10              one of 32 in the node below, ...
//!   a place                 nothing | one key and value | a node | all keys with the same hash, sorted
//! ```
//!
//! Keys that come from outside can be chosen to collide. They then cost thirteen steps down and a binary search, not a scan.
//! What a map looks like inside, and so the order of [`Hamt::for_each`], depends on its content only, not on its history.
//!
//! `imbl::HashMap` cannot take its place: it keeps 32 bits of a hash, and keys with the same hash in an unsorted vector in the order of their
//! insertion, so that its iteration order depends on its history, and lookups of colliding keys are linear scans.

use foldhash::fast::FixedState;
use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

const BITS: u32 = 5;
const MASK: u64 = (1 << BITS) - 1;

/// A key: ordered, cheap to copy, and with the same hash in every run.
pub(crate) trait Key: Ord + Clone {
    /// Its hash.
    fn hash64(&self) -> u64;
}

/// The hash of bytes in the namespace of a number, for example a virtual host.
pub(crate) fn hash_bytes(under: u64, bytes: &[u8]) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write_u64(under);
    hasher.write(bytes);
    hasher.finish()
}

/// The hash of a number (the last steps of SplitMix64).
pub(crate) fn hash_number(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[derive(Clone, Debug)]
enum Slot<K, V> {
    One(u64, K, V),
    Node(Arc<Node<K, V>>),
    /// At least two keys, sorted.
    Clash(u64, Arc<Vec<(K, V)>>),
}

#[derive(Clone, Debug)]
struct Node<K, V> {
    /// A bit for each of the 32 places that is taken; the slots are in this order.
    taken: u32,
    slots: Vec<Slot<K, V>>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Hamt<K, V> {
    root: Option<Slot<K, V>>,
    len: usize,
}

impl<K, V> Default for Hamt<K, V> {
    fn default() -> Self {
        Hamt { root: None, len: 0 }
    }
}

fn bit(hash: u64, shift: u32) -> u32 {
    1 << (hash.checked_shr(shift).unwrap_or(0) & MASK)
}

impl<K, V> Node<K, V> {
    fn place(&self, bit: u32) -> usize {
        (self.taken & (bit - 1)).count_ones() as usize
    }
}

impl<K, V> Hamt<K, V> {
    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the map is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value of the key with this hash for which `compare` returns equal.
    pub(crate) fn find(&self, hash: u64, compare: impl Fn(&K) -> Ordering) -> Option<&V> {
        self.find_entry(hash, compare).map(|(_, value)| value)
    }

    fn find_entry(&self, hash: u64, compare: impl Fn(&K) -> Ordering) -> Option<(&K, &V)> {
        let mut slot = self.root.as_ref()?;
        let mut shift = 0;
        loop {
            match slot {
                Slot::One(h, key, value) => return (*h == hash && compare(key).is_eq()).then_some((key, value)),
                Slot::Clash(h, all) if *h == hash => {
                    let at = all.binary_search_by(|(key, _)| compare(key)).ok()?;
                    return all.get(at).map(|(key, value)| (key, value));
                }
                Slot::Clash(..) => return None,
                Slot::Node(node) => {
                    let bit = bit(hash, shift);
                    if node.taken & bit == 0 {
                        return None;
                    }
                    slot = node.slots.get(node.place(bit))?;
                    shift += BITS;
                }
            }
        }
    }

    /// Whether `wanted` is true for any value.
    pub(crate) fn any(&self, wanted: impl Fn(&V) -> bool) -> bool {
        fn walk<K, V>(slot: &Slot<K, V>, wanted: &impl Fn(&V) -> bool) -> bool {
            match slot {
                Slot::One(_, _, value) => wanted(value),
                Slot::Clash(_, all) => all.iter().any(|(_, value)| wanted(value)),
                Slot::Node(node) => node.slots.iter().any(|slot| walk(slot, wanted)),
            }
        }
        self.root.as_ref().is_some_and(|root| walk(root, &wanted))
    }

    /// Returns the only key and value, if there is exactly one.
    pub(crate) fn only(&self) -> Option<(&K, &V)> {
        match &self.root {
            Some(Slot::One(_, key, value)) => Some((key, value)),
            _ => None,
        }
    }

    /// Calls `visit` with each key and value.
    pub(crate) fn for_each<'a>(&'a self, visit: &mut impl FnMut(&'a K, &'a V)) {
        fn walk<'a, K, V>(slot: &'a Slot<K, V>, visit: &mut impl FnMut(&'a K, &'a V)) {
            match slot {
                Slot::One(_, key, value) => visit(key, value),
                Slot::Clash(_, all) => all.iter().for_each(|(key, value)| visit(key, value)),
                Slot::Node(node) => node.slots.iter().for_each(|slot| walk(slot, visit)),
            }
        }
        if let Some(root) = &self.root {
            walk(root, visit);
        }
    }
}

impl<K: Key, V: Clone> Hamt<K, V> {
    /// Returns the value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.find(key.hash64(), |k| k.cmp(key))
    }

    /// Returns the stored key that equals `key`: equal keys need not be identical.
    pub(crate) fn find_key(&self, key: &K) -> Option<&K> {
        self.find_entry(key.hash64(), |k| k.cmp(key)).map(|(key, _)| key)
    }

    /// Returns the value of a key for changes in place; nodes shared with a copy are copied first.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        // The lookup first avoids copies for a missing key.
        self.get(key)?;
        let hash = key.hash64();
        let mut slot = self.root.as_mut()?;
        let mut shift = 0;
        loop {
            match slot {
                Slot::One(_, _, value) => return Some(value),
                Slot::Clash(_, all) => {
                    let at = all.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
                    return Arc::make_mut(all).get_mut(at).map(|(_, value)| value);
                }
                Slot::Node(node) => {
                    let place = node.place(bit(hash, shift));
                    slot = Arc::make_mut(node).slots.get_mut(place)?;
                    shift += BITS;
                }
            }
        }
    }

    /// Sets the value of a key and returns the previous one.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let hash = key.hash64();
        let old = match &mut self.root {
            Some(root) => insert_at(root, 0, hash, key, value),
            none => {
                *none = Some(Slot::One(hash, key, value));
                None
            }
        };
        self.len += usize::from(old.is_none());
        old
    }

    /// Removes a key and returns its value.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.get(key)?;
        let (value, empty) = remove_at(self.root.as_mut()?, 0, key.hash64(), key)?;
        if empty {
            self.root = None;
        }
        self.len -= 1;
        Some(value)
    }
}

fn insert_at<K: Key, V: Clone>(slot: &mut Slot<K, V>, shift: u32, hash: u64, key: K, value: V) -> Option<V> {
    match slot {
        Slot::Node(node) => {
            let node = Arc::make_mut(node);
            let bit = bit(hash, shift);
            let place = node.place(bit);
            if node.taken & bit != 0 {
                let below = node.slots.get_mut(place)?;
                return insert_at(below, shift + BITS, hash, key, value);
            }
            node.taken |= bit;
            node.slots.insert(place, Slot::One(hash, key, value));
            None
        }
        Slot::One(_, k, v) if *k == key => Some(std::mem::replace(v, value)),
        Slot::One(h, k, v) if *h == hash => {
            let mut all = vec![(k.clone(), v.clone()), (key, value)];
            all.sort_by(|a, b| a.0.cmp(&b.0));
            *slot = Slot::Clash(hash, Arc::new(all));
            None
        }
        Slot::Clash(h, all) if *h == hash => match all.binary_search_by(|(k, _)| k.cmp(&key)) {
            Ok(at) => Arc::make_mut(all).get_mut(at).map(|(_, v)| std::mem::replace(v, value)),
            Err(at) => {
                Arc::make_mut(all).insert(at, (key, value));
                None
            }
        },
        Slot::One(old, ..) | Slot::Clash(old, _) => {
            let old = *old;
            *slot = fork(shift, (old, slot.clone()), (hash, Slot::One(hash, key, value)));
            None
        }
    }
}

/// Makes nodes down to the level where two different hashes differ.
fn fork<K, V>(shift: u32, a: (u64, Slot<K, V>), b: (u64, Slot<K, V>)) -> Slot<K, V> {
    let (bit_a, bit_b) = (bit(a.0, shift), bit(b.0, shift));
    let slots = match bit_a.cmp(&bit_b) {
        Ordering::Less => vec![a.1, b.1],
        Ordering::Greater => vec![b.1, a.1],
        Ordering::Equal => vec![fork(shift + BITS, a, b)],
    };
    Slot::Node(Arc::new(Node { taken: bit_a | bit_b, slots }))
}

/// Returns the removed value, and whether the slot is now empty. The key exists.
fn remove_at<K: Key, V: Clone>(slot: &mut Slot<K, V>, shift: u32, hash: u64, key: &K) -> Option<(V, bool)> {
    match slot {
        Slot::One(_, _, value) => Some((value.clone(), true)),
        Slot::Clash(_, all) => {
            let at = all.binary_search_by(|(k, _)| k.cmp(key)).ok()?;
            let left = Arc::make_mut(all);
            let (_, value) = left.remove(at);
            if left.len() == 1 {
                let (key, value) = left.pop()?;
                *slot = Slot::One(hash, key, value);
            }
            Some((value, false))
        }
        Slot::Node(node) => {
            let node = Arc::make_mut(node);
            let bit = bit(hash, shift);
            let place = node.place(bit);
            let (value, empty) = remove_at(node.slots.get_mut(place)?, shift + BITS, hash, key)?;
            if empty {
                node.slots.remove(place);
                node.taken &= !bit;
            }
            // A node with a single key is replaced by that key.
            if let [Slot::One(..) | Slot::Clash(..)] = node.slots.as_slice() {
                *slot = node.slots.pop()?;
            }
            Some((value, false))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Three kinds of keys: well distributed, with equal low bits, and all with one hash.
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
    struct Bad(u16);

    impl Key for Bad {
        fn hash64(&self) -> u64 {
            match self.0 % 3 {
                0 => hash_number(u64::from(self.0)),
                1 => u64::from(self.0) << 58,
                _ => 7,
            }
        }
    }

    fn content<V: Clone>(map: &Hamt<Bad, V>) -> Vec<(Bad, V)> {
        let mut all = Vec::new();
        map.for_each(&mut |k, v| all.push((k.clone(), v.clone())));
        all
    }

    proptest! {
        #[test]
        fn it_is_a_map_and_copies_do_not_change(
            steps in prop::collection::vec((0..60u16, 0..4u8, any::<u8>()), 0..300)
        ) {
            let mut map = Hamt::default();
            let mut model = BTreeMap::new();
            let mut copies = Vec::new();
            for (key, what, value) in steps {
                let key = Bad(key);
                match what {
                    0 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    1 => {
                        if let Some(v) = map.get_mut(&key) { *v = value; }
                        if let Some(v) = model.get_mut(&key) { *v = value; }
                    }
                    _ => prop_assert_eq!(map.insert(key.clone(), value), model.insert(key.clone(), value)),
                }
                prop_assert_eq!(map.get(&key), model.get(&key));
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.is_empty(), model.is_empty());
                if value % 16 == 0 {
                    copies.push((map.clone(), model.clone()));
                }
            }
            copies.push((map, model));
            for (map, model) in copies {
                let mut fresh = Hamt::default();
                model.iter().for_each(|(k, v)| { fresh.insert(k.clone(), *v); });
                // The structure depends on the content, not on its history.
                prop_assert_eq!(format!("{:?}", map), format!("{:?}", fresh));
                let mut sorted = content(&map);
                sorted.sort();
                prop_assert_eq!(sorted, model.into_iter().collect::<Vec<_>>());
            }
        }
    }
}
