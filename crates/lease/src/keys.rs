//! The order of keys: messages of one key go to one consumer at a time, in the order of their offsets.
//!
//! Keys are known of a *window* of messages only, so that memory does not go with the backlog: [`KEY_WINDOW`] messages that are ready. Of
//! those further on [`crate::Queue::wants`] asks for the keys when room comes.
//!
//! ```text
//!    floor                               known_to                    end
//!      | held | ready: by key, in order    | ready, keys not known     |
//!                |
//!       first of each key that may be handed out  ->  under the consumer that the key belongs to
//! ```
//!
//! A key belongs to the consumer its hash leads to. While another one still holds messages of it, or an earlier one of it waits for its
//! time, none of it is handed out.

use crate::runs::Runs;
use polylogue_types::Map;
use std::collections::BTreeSet;
use std::ops::Range;

/// Messages that are ready whose keys are known, at the most, unless they were handed out before.
pub const KEY_WINDOW: usize = 1 << 16;
/// Points of a consumer on the ring.
const RING_POINTS: u32 = 64;

/// Who holds messages of a key.
#[derive(Clone, Copy, Debug)]
struct Holder {
    slot: u32,
    held: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// The hashes of messages, as far as they are known and not settled.
    hashes: Runs<u32>,
    /// The keys of all messages before this are known, of those that are not settled.
    pub(crate) known_to: u64,
    ready: BTreeSet<(u32, u64)>,
    waiting: BTreeSet<(u32, u64)>,
    holders: Map<u32, Holder>,
    /// The first ready message of each key that may be handed out, under its consumer.
    next: BTreeSet<(u32, u64, u32)>,
    /// Where a key is in `next`.
    chosen: Map<u32, (u32, u64)>,
    /// Points of the consumers that take part in all keys.
    ring: Vec<(u32, u32)>,
    /// First and last hashes of ranges, and whose they are.
    ranges: Vec<(u32, u32, u32)>,
    /// Who had the last turn.
    turn: u32,
}

impl Keys {
    pub(crate) fn new(known_to: u64) -> Keys {
        Keys { known_to, ..Keys::default() }
    }

    /// How many more messages may have their keys known.
    pub(crate) fn room(&self) -> u64 {
        KEY_WINDOW.saturating_sub(self.ready.len()) as u64
    }

    /// Whether ranges can be a consumer's: none overlaps one that is there, and all consumers have some or none has.
    pub(crate) fn are_free(&self, ranges: &[(u32, u32)]) -> bool {
        let fits = if ranges.is_empty() { self.ranges.is_empty() } else { self.ring.is_empty() };
        let overlap = |a: (u32, u32), b: (u32, u32)| a.0 <= b.1 && b.0 <= a.1;
        let legal = ranges.iter().all(|range| range.0 <= range.1);
        let taken = ranges.iter().any(|range| self.ranges.iter().any(|other| overlap(*range, (other.0, other.1))));
        let twice = ranges.iter().enumerate().any(|(i, a)| ranges.iter().take(i).any(|b| overlap(*a, *b)));
        fits && legal && !taken && !twice
    }

    /// A consumer comes. Its points on the ring go with its number, so that they are the same wherever it connects.
    pub(crate) fn add(&mut self, slot: u32, id: u64, ranges: &[(u32, u32)]) {
        if ranges.is_empty() {
            let points =
                (0..RING_POINTS).map(|point| (mix(id.wrapping_mul(u64::from(RING_POINTS)) + u64::from(point)), slot));
            self.ring.extend(points);
            self.ring.sort_unstable();
        } else {
            self.ranges.extend(ranges.iter().map(|range| (range.0, range.1, slot)));
            self.ranges.sort_unstable();
        }
        self.refresh_all();
    }

    /// A consumer gets no more. What it holds still keeps keys from others.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.ring.retain(|point| point.1 != slot);
        self.ranges.retain(|range| range.2 != slot);
        self.refresh_all();
    }

    /// Whose messages of a hash are.
    fn owner(&self, hash: u32) -> Option<u32> {
        if self.ring.is_empty() {
            let behind = self.ranges.partition_point(|range| range.0 <= hash);
            let range = self.ranges.get(behind.checked_sub(1)?)?;
            return (hash <= range.1).then_some(range.2);
        }
        let point = mix(u64::from(hash));
        let index = self.ring.partition_point(|other| other.0 < point);
        self.ring.get(index).or(self.ring.first()).map(|point| point.1)
    }

    /// The keys of these messages are known from now on.
    pub(crate) fn learn(&mut self, range: Range<u64>, hash: u32) {
        self.hashes.set(range, hash);
    }

    /// These messages are settled.
    pub(crate) fn forget(&mut self, range: &Range<u64>) {
        self.hashes.clear(range);
    }

    /// Up to where messages have the key of this one.
    pub(crate) fn same_until(&self, at: u64) -> Option<u64> {
        self.hashes.at(at).map(|run| run.end)
    }

    /// For each part of a range with one key.
    fn each(&mut self, range: &Range<u64>, mut what: impl FnMut(&mut Keys, Range<u64>, u32)) {
        let mut left = range.clone();
        while let Some(run) = self.hashes.first_in(&left) {
            what(self, run.range(), run.value);
            self.refresh(run.value);
            left.start = run.end;
        }
    }

    pub(crate) fn set_ready(&mut self, range: &Range<u64>, ready: bool) {
        self.each(range, |keys, range, hash| {
            for offset in range {
                if ready {
                    keys.ready.insert((hash, offset));
                } else {
                    keys.ready.remove(&(hash, offset));
                }
            }
        });
    }

    pub(crate) fn set_waiting(&mut self, range: &Range<u64>, waiting: bool) {
        self.each(range, |keys, range, hash| {
            for offset in range {
                if waiting {
                    keys.waiting.insert((hash, offset));
                } else {
                    keys.waiting.remove(&(hash, offset));
                }
            }
        });
    }

    pub(crate) fn set_held(&mut self, range: &Range<u64>, slot: u32, held: bool) {
        self.each(range, |keys, range, hash| {
            let count = range.end - range.start;
            let holder = keys.holders.entry(hash).or_insert(Holder { slot, held: 0 });
            if held {
                *holder = Holder { slot, held: holder.held + count };
            } else {
                holder.held = holder.held.saturating_sub(count);
            }
            if holder.held == 0 {
                keys.holders.remove(&hash);
            }
        });
    }

    /// Looks again at which message of a key may be handed out next, and to whom.
    fn refresh(&mut self, hash: u32) {
        let of = |set: &BTreeSet<(u32, u64)>| set.range((hash, 0)..=(hash, u64::MAX)).next().map(|found| found.1);
        let owner = self.owner(hash).filter(|owner| self.holders.get(&hash).is_none_or(|holder| holder.slot == *owner));
        let first = of(&self.ready).filter(|first| of(&self.waiting).is_none_or(|waiting| waiting > *first));
        let chosen = owner.zip(first);
        let before = match chosen {
            Some(chosen) => self.chosen.insert(hash, chosen),
            None => self.chosen.remove(&hash),
        };
        if before == chosen {
            return;
        }
        if let Some((slot, offset)) = before {
            self.next.remove(&(slot, offset, hash));
        }
        if let Some((slot, offset)) = chosen {
            self.next.insert((slot, offset, hash));
        }
    }

    fn refresh_all(&mut self) {
        let mut from = Some(0);
        while let Some(hash) = from.and_then(|from| self.ready.range((from, 0)..).next().map(|found| found.0)) {
            self.refresh(hash);
            from = hash.checked_add(1);
        }
    }

    /// The next message for a consumer.
    pub(crate) fn next_of(&self, slot: u32) -> Option<u64> {
        self.next.range((slot, 0, 0)..=(slot, u64::MAX, u32::MAX)).next().map(|found| found.1)
    }

    /// The next consumer, in turn, that there is a message for and that has room.
    pub(crate) fn turn(&mut self, has_room: impl Fn(u32) -> bool) -> Option<u32> {
        let after = self.turn.saturating_add(1);
        let mut from = after;
        let mut wrapped = false;
        loop {
            match self.next.range((from, 0, 0)..).next() {
                Some((slot, ..)) if wrapped && *slot >= after => return None,
                Some((slot, ..)) if has_room(*slot) => {
                    self.turn = *slot;
                    return Some(*slot);
                }
                Some((slot, ..)) => from = slot.saturating_add(1),
                None if wrapped => return None,
                None => (from, wrapped) = (0, true),
            }
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let messages = self.ready.len() + self.waiting.len();
        // Nodes of a tree are at least half full, tables of a map at least three eighths.
        self.hashes.heap_bytes()
            + 2 * messages * size_of::<(u32, u64)>()
            + (2 * self.next.len() + 3 * self.chosen.len()) * size_of::<(u32, u64, u32)>()
            + 3 * self.holders.len() * size_of::<(u32, Holder)>()
            + self.ring.capacity() * size_of::<(u32, u32)>()
            + self.ranges.capacity() * size_of::<(u32, u32, u32)>()
    }
}

/// Spreads numbers evenly: the upper half of what splitmix64 ends with.
fn mix(value: u64) -> u32 {
    (scramble(value) >> 32) as u32
}

/// A permutation of all numbers in which neighbours are far apart (the finalizer of splitmix64).
pub(crate) fn scramble(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
