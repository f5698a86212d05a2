//! The segments that are there, by a number of this process, and which of their runs are dead or verified.

use super::lease::{Lease, Leases};
use super::segment::{Expected, SegmentName};
use polylogue_types::{Map, RangeSource};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A set of small numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    pub(super) fn get(&self, bit: u32) -> bool {
        self.words.get(bit as usize / 64).is_some_and(|w| w & (1 << (bit % 64)) != 0)
    }

    /// Sets a bit; says whether it was not set before.
    pub(super) fn set(&mut self, bit: u32) -> bool {
        let word = bit as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let fresh = !self.get(bit);
        if let Some(w) = self.words.get_mut(word) {
            *w |= 1 << (bit % 64);
        }
        fresh
    }

    pub(super) fn count(&self) -> u32 {
        self.words.iter().map(|w| w.count_ones()).sum()
    }

    /// The words without zeros at the end.
    pub(super) fn words(&self) -> &[u64] {
        let used = self.words.iter().rposition(|w| *w != 0).map_or(0, |last| last + 1);
        self.words.get(..used).unwrap_or_default()
    }

    pub(super) fn from_words(words: Vec<u64>) -> Bits {
        Bits { words }
    }
}

/// A segment.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) name: SegmentName,
    /// Length of the `.seg` file.
    pub(super) len: u64,
    /// Length of the file with the native bytes (the same file, unless it was adopted).
    pub(super) data_len: u64,
    pub(super) table_crc: u32,
    pub(super) rows: u32,
    /// Native bytes of all runs, and of the live ones.
    pub(super) native_bytes: u64,
    pub(super) live_bytes: u64,
    pub(super) live_rows: u32,
    /// When the last entry of its oldest and of its newest run was appended, in seconds.
    pub(super) oldest_s: u32,
    pub(super) newest_s: u32,
    /// Dead rows.
    pub(super) dead: Bits,
    /// Of those, the ones that no reader can hold any more.
    pub(super) free: Bits,
    /// Of those, the ones whose blocks were given back.
    pub(super) punched: Bits,
    /// Native bytes of dead rows that were not given back yet, of those of them that are free, and of those that died since the
    /// leases were closed last.
    pub(super) dead_bytes: u64,
    pub(super) free_bytes: u64,
    pub(super) young_bytes: u64,
    /// The file system gives no blocks back: the live rest is written anew when enough is dead.
    pub(super) no_punch: bool,
    /// Its files gave an error when room was to be given back: the others come first, until the next start.
    pub(super) skip: bool,
    /// Rows that could not be read at the start and are not known to be dead: their partitions are unknown.
    pub(super) lost_rows: u32,
}

impl Segment {
    /// Whether no reader can hold anything of its dead rows.
    pub(super) fn is_unread(&self) -> bool {
        self.free.words() == self.dead.words()
    }

    /// The blocks of a dead row were given back.
    pub(super) fn punched(&mut self, row: u32, len: u64) {
        if self.free.get(row) && self.punched.set(row) {
            self.dead_bytes = self.dead_bytes.saturating_sub(len);
            self.free_bytes = self.free_bytes.saturating_sub(len);
        }
    }

    /// What its files must say.
    pub(super) fn expected(&self) -> Expected {
        let Segment { name, rows, table_crc, native_bytes, .. } = *self;
        Expected { name, rows, table_crc, native_bytes }
    }

    /// Bytes of its files; blocks given back are counted still.
    pub(super) fn bytes(&self) -> u64 {
        if self.name.index_file() == self.name.data_file() { self.len } else { self.len + self.data_len }
    }
}

/// All segments of a store.
#[derive(Debug, Default)]
pub(super) struct Registry {
    segments: BTreeMap<u32, Segment>,
    leases: BTreeMap<u32, Leases>,
    next: u32,
    /// Blocks verified so far, of runs that are not verified wholly.
    verified: Map<(u32, u32), Bits>,
    /// Segments that could not be read at the start: holes between offsets may be their runs.
    pub(super) lost: Vec<SegmentName>,
    /// Runs could not be read at the start.
    pub(super) missing: bool,
}

impl Registry {
    /// The number that the next segment gets.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Adds a segment and gives it a number.
    pub(super) fn add(&mut self, segment: Segment) -> u32 {
        let number = self.next;
        self.next += 1;
        self.segments.insert(number, segment);
        self.leases.insert(number, Leases::default());
        number
    }

    /// The segment is a journal file that was read as `file` until now.
    pub(super) fn was_journal(&mut self, number: u32, file: Arc<dyn RangeSource>) {
        self.leases.insert(number, Leases::of_journal(file));
    }

    pub(super) fn get(&self, number: u32) -> Option<&Segment> {
        self.segments.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Segment> {
        self.segments.get_mut(&number)
    }

    /// All of them with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        self.segments.iter().map(|(n, s)| (*n, s))
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<Segment> {
        self.verified.retain(|(segment, _), _| *segment != number);
        self.leases.remove(&number);
        self.segments.remove(&number)
    }

    /// What a reader of a segment must hold.
    pub(super) fn lease(&self, number: u32) -> Option<&Lease> {
        self.leases.get(&number).map(Leases::current)
    }

    /// Frees the dead rows without readers, and closes the leases of segments where rows have died since: the
    /// numbers of those segments.
    pub(super) fn turn_leases(&mut self) -> Vec<u32> {
        let mut closed = Vec::new();
        for (number, segment) in &mut self.segments {
            let Some(leases) = self.leases.get_mut(number) else { continue };
            if let Some(free) = leases.freed() {
                segment.free = free;
                segment.free_bytes = segment.dead_bytes - segment.young_bytes;
            }
            if segment.young_bytes > 0 && leases.close(&segment.dead) {
                segment.young_bytes = 0;
                closed.push(*number);
            }
        }
        closed
    }

    /// A row is dead.
    pub(super) fn row_died(&mut self, number: u32, row: u32, len: u32) {
        self.verified.remove(&(number, row));
        if let Some(segment) = self.segments.get_mut(&number)
            && segment.dead.set(row)
        {
            segment.live_rows -= 1;
            segment.live_bytes -= u64::from(len);
            segment.dead_bytes += u64::from(len);
            segment.young_bytes += u64::from(len);
        }
    }

    /// Whether a block was verified since the start.
    pub(super) fn is_verified(&self, segment: u32, row: u32, block: u32) -> bool {
        self.verified.get(&(segment, row)).is_some_and(|bits| bits.get(block))
    }

    /// Remembers that a block verifies; says whether all `blocks` of the run do now.
    pub(super) fn verified(&mut self, segment: u32, row: u32, block: u32, blocks: u32) -> bool {
        if self.segments.get(&segment).is_none_or(|s| s.dead.get(row)) {
            // Removed, or trimmed, while it was read.
            return false;
        }
        let bits = self.verified.entry((segment, row)).or_default();
        bits.set(block);
        let all = bits.count() >= blocks;
        if all {
            self.verified.remove(&(segment, row));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_remember_and_forget_trailing_zeros() {
        let mut bits = Bits::default();
        assert!(bits.set(3) && bits.set(200) && !bits.set(200));
        assert_eq!(
            (bits.get(3), bits.get(4), bits.get(200), bits.get(9999), bits.count()),
            (true, false, true, false, 2)
        );
        assert_eq!(Bits::from_words(bits.words().to_vec()), bits);
        assert_eq!(Bits::from_words(vec![1, 0, 0]).words(), [1]);
    }

    #[test]
    fn what_is_gone_is_not_remembered() {
        let mut registry = Registry::default();
        assert!(!registry.verified(7, 0, 0, 1) && !registry.verified(7, 0, 0, 2));
        assert!(!registry.is_verified(7, 0, 0));
        assert!(registry.verified.is_empty());
    }
}
