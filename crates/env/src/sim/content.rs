//! What one file holds: sparse pages that copies share, and which blocks take room.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The unit of sharing, and the file system's block. Bytes.
pub(super) const PAGE_BYTES: u64 = 4096;
const PAGE: usize = PAGE_BYTES as usize;

/// A set of block numbers as disjoint ranges that do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Start of a range to its end (exclusive).
    ranges: BTreeMap<u64, u64>,
    total: u64,
}

impl Blocks {
    /// How many blocks there are.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// How many blocks of `range` are in the set.
    pub(super) fn within(&self, range: &Range<u64>) -> u64 {
        self.overlapping(range).map(|(start, end)| end.min(range.end) - start.max(range.start)).sum()
    }

    /// The ranges that share a block with `range`, whole.
    fn overlapping(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, u64)> {
        let before = self.ranges.range(..range.start).next_back();
        let (start, empty) = (range.start, range.is_empty());
        let inside = self.ranges.range(range.start..range.end.max(range.start));
        before.into_iter().chain(inside).map(|(s, e)| (*s, *e)).filter(move |(_, e)| *e > start && !empty)
    }

    /// Adds a range.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() || self.within(&range) == range.end - range.start {
            return;
        }
        let mut merged = range;
        // Neighbours that only touch are merged too.
        let wide = merged.start.saturating_sub(1)..merged.end.saturating_add(1);
        for (start, end) in self.overlapping(&wide).collect::<Vec<_>>() {
            self.ranges.remove(&start);
            self.total -= end - start;
            merged = merged.start.min(start)..merged.end.max(end);
        }
        self.total += merged.end - merged.start;
        self.ranges.insert(merged.start, merged.end);
    }

    /// Takes a range out.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        for (start, end) in self.overlapping(&range).collect::<Vec<_>>() {
            self.ranges.remove(&start);
            self.total -= end - start;
            for rest in [start..range.start.min(end), range.end.max(start)..end] {
                if !rest.is_empty() {
                    self.total += rest.end - rest.start;
                    self.ranges.insert(rest.start, rest.end);
                }
            }
        }
    }
}

/// The blocks that a range of bytes touches.
pub(super) fn blocks_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES)
}

/// The blocks that lie wholly inside a range of bytes.
fn blocks_inside(bytes: &Range<u64>) -> Range<u64> {
    let start = bytes.start.div_ceil(PAGE_BYTES);
    start..(bytes.end / PAGE_BYTES).max(start)
}

/// The bytes of a file. A page that is not there reads as zero; bytes behind the length are zero in every page.
/// Cloning copies the map and shares the pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pages: BTreeMap<u64, Arc<[u8; PAGE]>>,
    blocks: Blocks,
    len: u64,
}

impl Content {
    /// Length of the file in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// The blocks that take room.
    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Copies what stands at `position`; zeros where nothing does. The length is not looked at.
    pub(super) fn read(&self, into: &mut [u8], position: u64) {
        let mut at = position;
        let mut rest = into;
        while !rest.is_empty() {
            let (page, offset) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
            let (part, tail) = rest.split_at_mut(rest.len().min(PAGE - offset));
            match self.pages.get(&page) {
                Some(bytes) => part.copy_from_slice(&bytes[offset..offset + part.len()]),
                None => part.fill(0),
            }
            at += part.len() as u64;
            rest = tail;
        }
    }

    /// Puts bytes at `position` and takes blocks for them. The length is left alone, see [`Content::grow`].
    pub(super) fn put(&mut self, bytes: &[u8], position: u64) {
        self.blocks.insert(blocks_of(&(position..position + bytes.len() as u64)));
        let mut at = position;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (page, offset) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
            let (part, tail) = rest.split_at(rest.len().min(PAGE - offset));
            at += part.len() as u64;
            rest = tail;
            // Zeros over nothing stay nothing: a preallocated file costs no memory.
            if !self.pages.contains_key(&page) && part.iter().all(|b| *b == 0) {
                continue;
            }
            let bytes = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(bytes)[offset..offset + part.len()].copy_from_slice(part);
        }
    }

    /// Puts zeros and takes blocks for them. The length is left alone.
    pub(super) fn put_zeros(&mut self, range: Range<u64>) {
        self.blocks.insert(blocks_of(&range));
        self.clear(&range);
    }

    /// Makes a range read as zero without touching its blocks.
    fn clear(&mut self, range: &Range<u64>) {
        let touched = blocks_of(range);
        if touched.is_empty() {
            return;
        }
        self.drop_pages(blocks_inside(range));
        for page in [touched.start, touched.end - 1] {
            if let Some(bytes) = self.pages.get_mut(&page) {
                let base = page * PAGE_BYTES;
                let from = range.start.max(base) - base;
                let to = range.end.min(base + PAGE_BYTES) - base;
                Arc::make_mut(bytes)[from as usize..to as usize].fill(0);
            }
        }
    }

    fn drop_pages(&mut self, pages: Range<u64>) {
        // Not `split_off` and `append`: the latter rebuilds the whole map.
        let held: Vec<u64> = self.pages.range(pages).map(|(page, _)| *page).collect();
        for page in held {
            self.pages.remove(&page);
        }
    }

    /// The file has at least `len` bytes; new ones are zero and take no room.
    pub(super) fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// Cuts or extends with zeros that take no room.
    pub(super) fn set_len(&mut self, len: u64) {
        if !self.pages.is_empty() {
            self.clear(&(len..u64::MAX / 2));
        }
        self.blocks.remove(len.div_ceil(PAGE_BYTES)..u64::MAX);
        self.len = len;
    }

    /// The first `len` bytes take room, and the file has them.
    pub(super) fn allocate(&mut self, len: u64) {
        self.blocks.insert(blocks_of(&(0..len)));
        self.grow(len);
    }

    /// A range reads as zero and its whole blocks take no room any more. The length is kept.
    pub(super) fn punch(&mut self, range: &Range<u64>) {
        self.clear(range);
        self.blocks.remove(blocks_inside(range));
    }

    /// Takes over the pages that hold `range` from `other`, length and blocks of the whole file too.
    pub(super) fn take_over(&mut self, other: &Content, range: &Range<u64>) {
        let pages = blocks_of(range);
        self.drop_pages(pages.clone());
        self.pages.extend(other.pages.range(pages).map(|(page, bytes)| (*page, Arc::clone(bytes))));
        self.len = other.len;
        if self.blocks != other.blocks {
            self.blocks = other.blocks.clone();
        }
    }

    /// Turns one bit around. Nothing happens where no byte is.
    pub(super) fn flip_bit(&mut self, byte: u64, bit: u8) {
        if byte < self.len {
            let page = self.pages.entry(byte / PAGE_BYTES).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[(byte % PAGE_BYTES) as usize] ^= 1 << (bit % 8);
        }
    }

    /// How many pages are held in memory by this content (shared ones count too).
    pub(super) fn pages_held(&self) -> usize {
        self.pages.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::SimRng;
    use super::*;
    use crate::Rng;

    /// The obvious way to do what [`Content`] does.
    #[derive(Default)]
    struct Plain {
        bytes: Vec<u8>,
        blocks: std::collections::BTreeSet<u64>,
    }

    impl Plain {
        fn put(&mut self, bytes: &[u8], position: usize) {
            let end = position + bytes.len();
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[position..end].copy_from_slice(bytes);
            self.blocks.extend((position / PAGE) as u64..end.div_ceil(PAGE) as u64);
        }

        fn check(&self, content: &Content) {
            assert_eq!(content.len(), self.bytes.len() as u64);
            let mut bytes = vec![1; self.bytes.len() + 100];
            content.read(&mut bytes, 0);
            assert_eq!(bytes[..self.bytes.len()], self.bytes[..]);
            assert!(bytes[self.bytes.len()..].iter().all(|b| *b == 0), "bytes behind the end");
            assert_eq!(content.blocks().total(), self.blocks.len() as u64);
            let held = content.blocks().ranges.iter().flat_map(|(from, to)| *from..*to);
            assert!(held.eq(self.blocks.iter().copied()), "{:?}", content.blocks());
            let ranges: Vec<_> = content.blocks().ranges.iter().collect();
            assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0), "ranges touch: {ranges:?}");
        }
    }

    #[test]
    fn random_changes_give_what_the_obvious_way_gives() {
        for seed in 0..30 {
            let rng = SimRng::new(seed);
            let (mut content, mut plain) = (Content::default(), Plain::default());
            for _ in 0..200 {
                let (at, len) = (rng.below(60_000), rng.below(12_000) + 1);
                let end = at + len;
                match rng.below(6) {
                    0 => {
                        content.set_len(at);
                        plain.bytes.resize(at as usize, 0);
                        plain.blocks.retain(|block| block * PAGE_BYTES < at);
                    }
                    1 => {
                        content.allocate(at);
                        plain.bytes.resize(plain.bytes.len().max(at as usize), 0);
                        plain.blocks.extend(0..at.div_ceil(PAGE_BYTES));
                    }
                    2 => {
                        content.punch(&(at..end));
                        let upto = plain.bytes.len().min(end as usize);
                        plain.bytes[(at as usize).min(upto)..upto].fill(0);
                        plain.blocks.retain(|b| b * PAGE_BYTES < at || (b + 1) * PAGE_BYTES > end);
                    }
                    3 => {
                        content.put_zeros(at..end);
                        content.grow(end);
                        plain.put(&vec![0; len as usize], at as usize);
                    }
                    _ => {
                        let mut bytes = vec![0; len as usize];
                        rng.fill(&mut bytes);
                        content.put(&bytes, at);
                        content.grow(end);
                        plain.put(&bytes, at as usize);
                    }
                }
                plain.check(&content);
            }
        }
    }

    #[test]
    fn zeros_over_nothing_hold_no_memory() {
        let mut content = Content::default();
        content.allocate(64 << 20);
        content.put(&[0; 100_000], 5000);
        assert_eq!(content.pages_held(), 0);
        content.put_zeros(0..64 << 20);
        assert_eq!(content.pages_held(), 0);
        content.put(&[1], 4096);
        assert_eq!(content.pages_held(), 1);
    }

    #[test]
    fn a_copy_keeps_what_it_copied() {
        let mut content = Content::default();
        content.put(&[1; 10_000], 0);
        content.grow(10_000);
        let copy = content.clone();
        content.put(&[2; 10], 5000);
        let mut bytes = [0; 10];
        copy.read(&mut bytes, 5000);
        assert_eq!(bytes, [1; 10]);
    }

    #[test]
    fn taking_over_a_range_leaves_the_other_pages() {
        let (mut old, mut new) = (Content::default(), Content::default());
        old.put(&[1; 3 * PAGE], 0);
        new.put(&[2; 4 * PAGE], 0);
        new.grow(4 * PAGE_BYTES);
        old.take_over(&new, &(PAGE_BYTES + 7..PAGE_BYTES + 8));
        let mut bytes = vec![0; 3 * PAGE];
        old.read(&mut bytes, 0);
        assert!(bytes[..PAGE].iter().all(|b| *b == 1));
        assert!(bytes[PAGE..2 * PAGE].iter().all(|b| *b == 2));
        assert!(bytes[2 * PAGE..].iter().all(|b| *b == 1));
        assert_eq!((old.len(), old.blocks().total()), (4 * PAGE_BYTES, 4));
    }
}
