//! Consistent hashing: a key always maps to the same destination, and few keys move when a destination is added or removed.
//!
//! Each destination covers as many buckets as the weight of its binding, in the order in which bindings were added; jump consistent hash (Lamping and
//! Veach, 2014) selects the bucket. A destination with several bindings counts once, with the weight of its first binding, as in RabbitMQ. The hash
//! is visible to users: it must never change.

use crate::hamt::Hamt;
use crate::ids::Destination;
use crate::list::{Item, List};
use crate::target::Target;
use crate::value::ValueRef;

#[derive(Clone, Copy, Debug)]
struct Share {
    target: Target,
    weight: u32,
}

impl Item for Share {
    fn order(&self) -> u64 {
        self.target.order()
    }

    fn weight(&self) -> u64 {
        u64::from(self.weight)
    }
}

/// See the module.
#[derive(Clone, Default, Debug)]
pub(crate) struct Ring {
    /// The first binding of each destination.
    shares: List<Share>,
    /// All bindings of each destination.
    bindings: Hamt<Destination, List<Share>>,
}

impl Ring {
    /// Adds a binding.
    pub(crate) fn insert(&mut self, target: Target, weight: u32) {
        self.change(target.to, |all| all.insert(Share { target, weight }));
    }

    /// Removes a binding.
    pub(crate) fn remove(&mut self, target: Target) {
        self.change(target.to, |all| _ = all.remove(target.order()));
    }

    fn change(&mut self, to: Destination, change: impl FnOnce(&mut List<Share>)) {
        let mut all = self.bindings.remove(&to).unwrap_or_default();
        if let Some(first) = all.iter().next() {
            self.shares.remove(first.order());
        }
        change(&mut all);
        let first = all.iter().next().copied();
        if let Some(first) = first {
            self.shares.insert(first);
            self.bindings.insert(to, all);
        }
    }

    /// Returns the destination of a hash.
    pub(crate) fn pick(&self, hash: u64) -> Option<&Target> {
        let buckets = self.shares.weight();
        if buckets == 0 {
            return None;
        }
        self.shares.pick(jump(hash, buckets)).map(|share| &share.target)
    }
}

/// The bucket of a hash, of `buckets` > 0.
fn jump(mut key: u64, buckets: u64) -> u64 {
    let mut bucket = 0;
    let mut next: u64 = 0;
    while next < buckets {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let scale = (1u64 << 31) as f64 / ((key >> 33) + 1) as f64;
        // Far beyond any number of buckets: the conversion saturates.
        next = ((bucket + 1) as f64 * scale) as u64;
    }
    bucket
}

/// FNV-1a over the bytes, then mixed so that every bit matters.
pub(crate) fn hash_of(bytes: &[u8]) -> u64 {
    let fnv = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    crate::hamt::hash_number(fnv)
}

/// The hash of a header or property, or of a missing one.
pub(crate) fn hash_of_value(value: Option<ValueRef<'_>>) -> u64 {
    match value {
        None | Some(ValueRef::Void) => hash_of(b""),
        Some(ValueRef::Bytes(bytes) | ValueRef::Nested(_, bytes)) => hash_of(bytes),
        Some(ValueRef::Bool(v)) => hash_of(&[u8::from(v)]),
        Some(ValueRef::Int(v)) => hash_of(&v.to_le_bytes()),
        Some(ValueRef::Timestamp(v)) => hash_of(&v.to_le_bytes()),
        Some(ValueRef::Float(v)) => hash_of(&v.to_bits().to_le_bytes()),
        Some(ValueRef::Decimal(scale, v)) => hash_of(&(i64::from(v) << 8 | i64::from(scale)).to_le_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{BindingId, QueueId};
    use std::collections::BTreeMap;

    fn target(binding: u64, queue: u64) -> Target {
        Target { binding: BindingId(binding), to: Destination::Queue(QueueId(queue)) }
    }

    fn spread(ring: &Ring, keys: u64) -> BTreeMap<Destination, u64> {
        let mut counts = BTreeMap::new();
        for key in 0..keys {
            let to = ring.pick(hash_of(format!("key-{key}").as_bytes())).unwrap().to;
            *counts.entry(to).or_default() += 1;
        }
        counts
    }

    /// Shares are proportional to weights, within five standard deviations of a fair draw.
    #[test]
    fn keys_spread_by_weight() {
        let mut ring = Ring::default();
        for (queue, weight) in [(1, 1), (2, 2), (3, 1), (4, 6)] {
            ring.insert(target(queue, queue), weight);
        }
        let keys = 100_000;
        let counts = spread(&ring, keys);
        for (queue, weight) in [(1, 1.0), (2, 2.0), (3, 1.0), (4, 6.0)] {
            let share = weight / 10.0;
            let expected = keys as f64 * share;
            let off = (counts[&Destination::Queue(QueueId(queue))] as f64 - expected).abs();
            assert!(off < 5.0 * (expected * (1.0 - share)).sqrt(), "queue {queue} is off by {off}");
        }
    }

    #[test]
    fn few_keys_move_when_a_queue_is_added() {
        let mut before = Ring::default();
        (0..9).for_each(|queue| before.insert(target(queue, queue), 1));
        let mut after = before.clone();
        after.insert(target(9, 9), 1);
        let moved = (0..10_000u64)
            .map(|key| hash_of(&key.to_le_bytes()))
            .filter(|hash| before.pick(*hash).unwrap().to != after.pick(*hash).unwrap().to)
            .inspect(|hash| {
                assert_eq!(after.pick(*hash).unwrap().to, Destination::Queue(QueueId(9)), "only to the new")
            })
            .count();
        assert!((800..1200).contains(&moved), "{moved} of 10000 moved");
    }

    /// RabbitMQ's rule, and a bug of other brokers: an unbind that removes more than its binding.
    #[test]
    fn a_queue_that_is_bound_twice_counts_once_and_stays_while_bound() {
        let mut ring = Ring::default();
        ring.insert(target(1, 1), 1);
        ring.insert(target(2, 2), 1);
        let once = spread(&ring, 1000);
        ring.insert(target(3, 1), 500);
        assert_eq!(spread(&ring, 1000), once);
        ring.remove(target(3, 1));
        assert_eq!(spread(&ring, 1000), once);
        ring.insert(target(4, 1), 1);
        ring.remove(target(1, 1));
        assert_eq!(spread(&ring, 1000).len(), 2, "queue 1 is still bound");
        ring.remove(target(4, 1));
        ring.remove(target(2, 2));
        assert!(ring.pick(7).is_none() && ring.bindings.is_empty());
    }

    /// A change of the hash would move the keys of users. The expected values were computed independently of this code.
    #[test]
    fn the_hash_never_changes() {
        assert_eq!(hash_of(b""), 0xc3817c016ba4ff30);
        assert_eq!(hash_of(b"order-17"), 0xcd8eb7067ceb224d);
        assert_eq!([10, 100, 1000, 1 << 40].map(|n| jump(hash_of(b"order-17"), n)), [9, 31, 561, 853943491900]);
    }
}
