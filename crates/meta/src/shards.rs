//! Which shards there are, and in which of them machines live that are spread over slots.
//!
//! ```text
//!   a key (a group, a transactional id) ──hash──> one of 256 slots ──record──> a shard
//! ```
//!
//! Both are records of the metadata, never options: an option only says how many shards a writer adds. A shard is never removed, and a slot's shard
//! stays. In a directory of an earlier layout the machines' records are in the metadata's shard, and so their slots stay there.

use polylogue_types::ShardId;
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use std::collections::BTreeMap;

/// The shard of the metadata, and of machines that are not spread over slots.
pub const META_SHARD: ShardId = ShardId(0);
/// Slots of a machine.
pub const SLOTS: usize = 256;

/// The feature level of this version. A version writes only records of the level that is active, which only an operator raises, so that one can go
/// back to the version before until then. A new directory, and one that is migrated from an earlier layout, begins with this level.
pub const FEATURE_LEVEL: u32 = 1;

/// What a shard is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShardUse {
    /// Metadata; in a directory of an earlier layout also the partitions that were placed there.
    Metadata,
    /// Partitions of class `sync`, and slots.
    Sync,
    /// Partitions of class `async`.
    Async,
    /// Partitions of class `memory`.
    Memory,
}

impl ShardUse {
    fn tag(self) -> u8 {
        match self {
            ShardUse::Metadata => 0,
            ShardUse::Sync => 1,
            ShardUse::Async => 2,
            ShardUse::Memory => 3,
        }
    }

    fn of(tag: u8) -> Result<ShardUse, BinError> {
        Ok(match tag {
            0 => ShardUse::Metadata,
            1 => ShardUse::Sync,
            2 => ShardUse::Async,
            3 => ShardUse::Memory,
            _ => return Err(BinError { field: "use of a shard" }),
        })
    }
}

/// The shard of each slot of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotMap {
    /// The end of each run of slots (exclusive, rising, the last is [`SLOTS`]), with the shard of the run.
    runs: Vec<(u16, ShardId)>,
}

impl SlotMap {
    /// Spreads the slots evenly over shards, in their order; over the metadata's shard if there are none.
    #[must_use]
    pub fn spread(shards: &[ShardId]) -> SlotMap {
        let shards = if shards.is_empty() { &[META_SHARD] } else { &shards[..shards.len().min(SLOTS)] };
        let end = |nth: usize| ((nth + 1) * SLOTS / shards.len()) as u16;
        SlotMap { runs: shards.iter().enumerate().map(|(nth, shard)| (end(nth), *shard)).collect() }
    }

    /// The shard of a key.
    #[must_use]
    pub fn shard_of(&self, key: &[u8]) -> ShardId {
        let slot = u16::from(slot_of(key));
        self.runs.iter().find(|(end, _)| slot < *end).map_or(META_SHARD, |(_, shard)| *shard)
    }

    /// The shards that have slots, each once, by their ids.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardId> {
        let mut shards: Vec<_> = self.runs.iter().map(|(_, shard)| *shard).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    fn encode(&self, w: &mut BinWriter) {
        w.u32(self.runs.len() as u32);
        for (end, shard) in &self.runs {
            w.u16(*end).u32(shard.0);
        }
    }

    fn decode(r: &mut BinReader<'_>) -> Result<SlotMap, BinError> {
        let wrong = BinError { field: "slots" };
        let mut runs: Vec<(u16, ShardId)> = Vec::new();
        for _ in 0..r.count(6, "slots")? {
            let end = r.u16("end of a run of slots")?;
            if usize::from(end) > SLOTS || runs.last().is_some_and(|(before, _)| *before >= end) {
                return Err(wrong);
            }
            runs.push((end, ShardId(r.u32("shard of slots")?)));
        }
        if runs.last().is_none_or(|(end, _)| usize::from(*end) != SLOTS) {
            return Err(wrong);
        }
        Ok(SlotMap { runs })
    }
}

/// The slot of a key: FNV-1a, 32 bits, folded. Part of the disk format.
#[must_use]
pub fn slot_of(key: &[u8]) -> u8 {
    let hash = key.iter().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    hash.to_le_bytes().into_iter().fold(0, |slot, byte| slot ^ byte)
}

/// Shards, the slots of machines by the machines' numbers, and the feature level.
///
/// ```text
/// u32 level
/// u32 count, count times: u32 shard, u8 use (0 metadata, 1 sync, 2 async, 3 memory)
/// u32 count, count times: u8 machine, slots
/// slots    u32 count, count times: u16 end of a run of slots (exclusive, rising, the last is 256), u32 shard
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shards {
    /// The active feature level; 0 where none is recorded. It never falls.
    pub level: u32,
    /// What each shard is for.
    pub shards: BTreeMap<ShardId, ShardUse>,
    /// The slots of each machine.
    pub slots: BTreeMap<u8, SlotMap>,
}

impl Shards {
    /// Whether nothing is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Shards::default()
    }

    /// The shards of a use, by their ids.
    #[must_use]
    pub fn of_use(&self, wanted: ShardUse) -> Vec<ShardId> {
        self.shards.iter().filter(|(_, is)| **is == wanted).map(|(id, _)| *id).collect()
    }

    /// Adds what is not there. What is there stays.
    ///
    /// # Errors
    /// The feature level is of a newer version.
    pub(crate) fn add(&mut self, more: Shards) -> Result<(), String> {
        if more.level > FEATURE_LEVEL {
            let level = more.level;
            return Err(format!(
                "the data directory has feature level {level}, and this version knows levels up to {FEATURE_LEVEL}: use the version that raised it, \
                 or a newer one"
            ));
        }
        self.level = self.level.max(more.level);
        for (id, is) in more.shards {
            self.shards.entry(id).or_insert(is);
        }
        for (machine, slots) in more.slots {
            self.slots.entry(machine).or_insert(slots);
        }
        Ok(())
    }

    pub(crate) fn encode(&self, w: &mut BinWriter) {
        w.u32(self.level).u32(self.shards.len() as u32);
        for (id, is) in &self.shards {
            w.u32(id.0).u8(is.tag());
        }
        w.u32(self.slots.len() as u32);
        for (machine, slots) in &self.slots {
            w.u8(*machine);
            slots.encode(w);
        }
    }

    pub(crate) fn decode(r: &mut BinReader<'_>) -> Result<Shards, BinError> {
        let mut shards = Shards { level: r.u32("feature level")?, ..Shards::default() };
        for _ in 0..r.count(5, "shards")? {
            let id = ShardId(r.u32("shard")?);
            shards.shards.insert(id, ShardUse::of(r.u8("use of a shard")?)?);
        }
        for _ in 0..r.count(5, "slots of machines")? {
            let machine = r.u8("machine")?;
            shards.slots.insert(machine, SlotMap::decode(r)?);
        }
        Ok(shards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_spread_evenly_and_read_back() {
        for count in [1, 2, 3, 64, 256, 300] {
            let shards: Vec<_> = (1..=count).map(ShardId).collect();
            let slots = SlotMap::spread(&shards);
            let mut w = BinWriter::new();
            let all = Shards { slots: BTreeMap::from([(2, slots.clone())]), ..Shards::default() };
            all.encode(&mut w);
            assert_eq!(Shards::decode(&mut BinReader::new(&w.out)).unwrap(), all);
            let of_each = slots.shards().len();
            assert_eq!(of_each, (count as usize).min(SLOTS));
            let mut before = 0;
            for (end, _) in &slots.runs {
                let len = usize::from(*end) - before;
                assert!((SLOTS / of_each..=SLOTS.div_ceil(of_each)).contains(&len), "{len} of {of_each}");
                before = usize::from(*end);
            }
        }
        assert_eq!(SlotMap::spread(&[]).shards(), [META_SHARD]);
    }

    /// Part of the disk format: a group must be found where it was.
    #[test]
    fn the_slots_of_keys_do_not_change() {
        let slots = ["", "a", "orders", "a-much-longer-name-of-a-group"].map(|key| slot_of(key.as_bytes()));
        assert_eq!(slots, [0xc5, 0xed, 0x16, 0x43]);
    }

    #[test]
    fn a_level_of_a_newer_version_is_refused_and_none_falls() {
        let of = |level| Shards { level, ..Shards::default() };
        let mut shards = of(FEATURE_LEVEL);
        shards.add(of(0)).unwrap();
        assert_eq!(shards.level, FEATURE_LEVEL);
        let refused = shards.add(of(FEATURE_LEVEL + 1)).unwrap_err();
        assert!(refused.contains("feature level 2, and this version knows levels up to 1"), "{refused}");
    }

    #[test]
    fn slots_that_leave_a_gap_or_go_back_are_refused() {
        for runs in
            [vec![], vec![(255, 1)], vec![(256, 1), (256, 2)], vec![(200, 1), (100, 2), (256, 3)], vec![(300, 1)]]
        {
            let mut w = BinWriter::new();
            w.u32(1).u32(0).u32(1).u8(2).u32(runs.len() as u32);
            runs.iter().for_each(|(end, shard)| _ = w.u16(*end).u32(*shard));
            assert!(Shards::decode(&mut BinReader::new(&w.out)).is_err(), "{runs:?}");
        }
    }
}
