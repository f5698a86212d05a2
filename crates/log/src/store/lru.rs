//! A bounded cache that evicts the least recently used values.

use polylogue_types::Map;
use std::collections::BTreeMap;
use std::hash::Hash;

/// Values with a weight each; the sum of the weights stays at or below the bound, but the newest value always stays.
#[derive(Debug)]
pub(super) struct Lru<K, V> {
    values: Map<K, Slot<V>>,
    /// From the time of last use to the key; the first is evicted next.
    ages: BTreeMap<u64, K>,
    clock: u64,
    weight: usize,
    weight_max: usize,
}

#[derive(Debug)]
struct Slot<V> {
    value: V,
    age: u64,
    weight: usize,
}

impl<K: Clone + Eq + Hash, V: Clone> Lru<K, V> {
    /// Returns an empty cache with this bound.
    pub(super) fn new(weight_max: usize) -> Lru<K, V> {
        Lru { values: Map::default(), ages: BTreeMap::new(), clock: 0, weight: 0, weight_max }
    }

    /// Returns the value of a key and marks it as just used.
    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        let slot = self.values.get_mut(key)?;
        self.ages.remove(&slot.age);
        self.clock += 1;
        slot.age = self.clock;
        self.ages.insert(self.clock, key.clone());
        Some(slot.value.clone())
    }

    /// Inserts a value and replaces the one under the key.
    pub(super) fn put(&mut self, key: K, value: V, weight: usize) {
        self.remove(&key);
        self.clock += 1;
        self.ages.insert(self.clock, key.clone());
        self.values.insert(key, Slot { value, age: self.clock, weight });
        self.weight += weight;
        while self.weight > self.weight_max && self.values.len() > 1 {
            let Some((_, oldest)) = self.ages.pop_first() else { return };
            if let Some(slot) = self.values.remove(&oldest) {
                self.weight -= slot.weight;
            }
        }
    }

    /// Removes a value.
    pub(super) fn remove(&mut self, key: &K) {
        if let Some(slot) = self.values.remove(key) {
            self.ages.remove(&slot.age);
            self.weight -= slot.weight;
        }
    }

    /// The number of values.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The sum of the weights.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut lru = Lru::new(3);
        for k in 0..3 {
            lru.put(k, k * 10, 1);
        }
        assert_eq!(lru.get(&0), Some(0));
        lru.put(3, 30, 1);
        assert_eq!((lru.get(&1), lru.get(&0), lru.get(&2)), (None, Some(0), Some(20)));
        assert_eq!((lru.len(), lru.weight()), (3, 3));
    }

    #[test]
    fn a_value_above_the_bound_stays_alone() {
        let mut lru = Lru::new(10);
        lru.put(1, (), 4);
        lru.put(2, (), 100);
        assert_eq!((lru.get(&1), lru.get(&2), lru.weight()), (None, Some(()), 100));
        lru.put(2, (), 5);
        assert_eq!(lru.weight(), 5);
        lru.remove(&2);
        assert_eq!((lru.len(), lru.weight()), (0, 0));
    }
}
