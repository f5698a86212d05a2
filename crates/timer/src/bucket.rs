//! Buckets of time: how wide they are, when they are opened, and what they hold.

use crate::id::TimerId;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum operations in a part. One takes about a dozen bytes on disk.
pub const PART_OPS_MAX: usize = 4096;
/// Parts of a bucket above which its small parts are joined.
pub const PARTS_MAX: usize = 64;

/// The widths of buckets, level by level: milliseconds as powers of two. 1 s, 65 s, 70 minutes, 3 days, 199 days, 35 and
/// 2,230 years.
const WIDTH_BITS: [u32; 7] = [10, 16, 22, 28, 34, 40, 46];
/// The widest level.
pub(crate) const LEVEL_MAX: u8 = WIDTH_BITS.len() as u8 - 1;
/// Lead time with which the content of a bucket of the narrowest level is requested. Milliseconds before its start.
const LOAD_AHEAD_MS: u64 = 2048;
/// Minimum lead time with which a wider bucket is split. Milliseconds before its start.
const SPLIT_AHEAD_MS_MIN: u64 = 30_000;

/// The width of a level in milliseconds.
pub(crate) fn width_ms(level: u8) -> u64 {
    1 << WIDTH_BITS.get(usize::from(level)).copied().unwrap_or(WIDTH_BITS[0])
}

/// The start of the bucket of a level that contains a time.
pub(crate) fn start_of(level: u8, time_ms: u64) -> u64 {
    time_ms & !(width_ms(level) - 1)
}

/// How long before its start a bucket is opened: loaded, or split into narrower ones, of which there is then time to load the first.
pub(crate) fn ahead_ms(level: u8) -> u64 {
    match level.checked_sub(1) {
        None => LOAD_AHEAD_MS,
        Some(below) => width_ms(below).max(SPLIT_AHEAD_MS_MIN),
    }
}

/// An operation in the order of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Op {
    /// Its sequence number; of two operations on one timer the higher one wins.
    pub(crate) seq: u64,
    pub(crate) insert: bool,
}

/// Operations on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) number: u64,
    pub(crate) inserts: u32,
    pub(crate) removes: u32,
}

impl Part {
    pub(crate) fn of(number: u64, ops: &[(TimerId, Op)]) -> Part {
        let inserts = ops.iter().filter(|(_, op)| op.insert).count();
        // At most PART_OPS_MAX of either.
        Part { number, inserts: inserts as u32, removes: (ops.len() - inserts) as u32 }
    }

    pub(crate) fn ops(&self) -> usize {
        self.inserts as usize + self.removes as usize
    }

    /// Its effect on the number of pending timers, if each removal has its insertion.
    pub(crate) fn pending(&self) -> i64 {
        i64::from(self.inserts) - i64::from(self.removes)
    }
}

/// A part of a split bucket, whose operations have to be distributed over the current buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Drain {
    /// The lower bound of its deadlines, inclusive.
    pub(crate) start: u64,
    /// The upper bound of its deadlines, exclusive.
    pub(crate) end: u64,
    pub(crate) part: Part,
}

/// Adds an operation, unless a later one on the same timer is present.
pub(crate) fn merge(ops: &mut BTreeMap<TimerId, Op>, id: TimerId, op: Op) {
    let kept = ops.entry(id).or_insert(op);
    if kept.seq < op.seq {
        *kept = op;
    }
}

/// The summary of one bucket, and its content as far as it is in memory.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    pub(crate) level: u8,
    /// The number of its timers if all are in memory. `None`: they are on disk, except those in `unsaved`.
    pub(crate) live: Option<u64>,
    /// Its parts on disk or in a checkpoint that is being written.
    pub(crate) parts: Vec<Part>,
    /// Operations that are in no part. For a bucket in memory: the difference from its parts.
    pub(crate) unsaved: BTreeMap<TimerId, Op>,
    /// Operations of the parts read so far, while other parts are still to be read.
    pub(crate) read: BTreeMap<TimerId, Op>,
    /// Parts still to be read.
    pub(crate) missing: BTreeSet<u64>,
    /// The bucket is being loaded.
    pub(crate) opening: bool,
}

impl Bucket {
    pub(crate) fn new(level: u8) -> Bucket {
        Bucket { level, ..Bucket::default() }
    }

    /// The number of its timers; an estimate while removals are not matched with insertions.
    pub(crate) fn pending(&self) -> i64 {
        let unsaved = self.unsaved.values().map(|op| if op.insert { 1 } else { -1 }).sum::<i64>();
        let on_disk = self.parts.iter().map(Part::pending).sum::<i64>();
        self.live.map_or(on_disk + unsaved, |live| live.cast_signed())
    }
}
