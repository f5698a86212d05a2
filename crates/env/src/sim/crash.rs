//! What a power cut leaves: for each sector some version it had since its last flush, for each name some earlier
//! meaning.

use super::CrashReport;
use super::content::{Blocks, Content, PAGE_BYTES, blocks_of};
use super::rng::{SimRng, mix};
use super::state::{Body, Change, DirBody, FileBody, FileOp, Ino, NameOp, ROOT, State};
use crate::Rng;
use polylogue_types::Map;
use std::collections::BTreeSet;
use std::ops::Range;

/// What a disk writes whole or not at all. Bytes.
const SECTOR_BYTES: u64 = 512;

/// How a crash treats what was pending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    /// Nothing of it survives.
    LoseAll,
    /// All of it survives.
    KeepAll,
    /// The oldest part survives, and the operation at the edge is torn.
    Oldest,
    /// Each sector, or each change of names, on its own.
    Any,
}

/// The dice of one file at one crash.
#[derive(Debug)]
pub(super) struct Luck {
    style: Style,
    seed: u64,
}

impl Luck {
    /// Dice that do not depend on the order of the questions.
    fn roll(&self, what: u64) -> u64 {
        mix(self.seed ^ mix(what.wrapping_add(1)))
    }
}

/// What happens to the pending changes of one file.
struct Verdict<'a> {
    luck: &'a Luck,
    /// Changes of length and of blocks survive up to here, exclusive: file systems log them in order.
    structure: usize,
    /// For [`Style::Oldest`], the operation at the edge.
    edge: usize,
    /// For [`Style::Any`], out of 256, how often a sector is as the last write left it.
    bias: u64,
}

impl Verdict<'_> {
    fn new(luck: &Luck, ops: usize) -> Verdict<'_> {
        let ops_64 = ops as u64;
        let edge = (luck.roll(1) % (ops_64 + 1)) as usize;
        let structure = match luck.style {
            Style::LoseAll => 0,
            Style::KeepAll => ops,
            Style::Oldest => edge + (luck.roll(2) & 1) as usize,
            Style::Any if luck.roll(2) & 1 == 1 => ops,
            Style::Any => (luck.roll(3) % (ops_64 + 1)) as usize,
        };
        let bias = [20, 128, 240][(luck.roll(4) % 3) as usize];
        Verdict { luck, structure, edge, bias }
    }

    /// Whether the write `op`, the `rank`th of `of` that may survive in this sector, does. For each sector, an
    /// earlier write survives where a later one does: the later one was made on top of it in memory.
    fn keeps(&self, op: usize, sector: u64, rank: u32, of: u32) -> bool {
        let dice = self.luck.roll(sector.wrapping_add(8));
        match self.luck.style {
            Style::LoseAll => false,
            Style::KeepAll => true,
            Style::Oldest => op < self.edge || (op == self.edge && dice & 1 == 1),
            Style::Any if dice & 0xff < self.bias => true,
            Style::Any => u64::from(rank) < (dice >> 8) % u64::from(of.max(1)),
        }
    }
}

/// What one file lost and kept.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Settled {
    pub(super) sectors_kept: u64,
    pub(super) sectors_lost: u64,
}

impl FileOp {
    /// The bytes that a surviving operation of this kind erases, whatever stood there before.
    fn erases(&self) -> Option<Range<u64>> {
        match &self.what {
            Change::Cut => Some(self.len_after..u64::MAX / 2),
            Change::Punch { range } => Some(range.clone()),
            Change::Write { .. } | Change::Extend | Change::Allocate => None,
        }
    }

    /// The sectors that a write touches.
    fn sectors(&self) -> Range<u64> {
        match &self.what {
            Change::Write { position, data } => position / SECTOR_BYTES..(position + data.len()).div_ceil(SECTOR_BYTES),
            _ => 0..0,
        }
    }
}

fn bytes_of(sector: u64) -> Range<u64> {
    sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES
}

/// How often each sector was written.
fn writes_of_sectors(ops: &[FileOp]) -> Map<u64, u32> {
    let mut counts: Map<u64, u32> = Map::default();
    for sector in ops.iter().flat_map(FileOp::sectors) {
        *counts.entry(sector).or_default() += 1;
    }
    counts
}

fn is_within(sector: u64, ranges: &[Range<u64>]) -> bool {
    let bytes = bytes_of(sector);
    ranges.iter().any(|range| range.start < bytes.end && bytes.start < range.end)
}

impl FileBody {
    /// Replaces what is certain by what is left of it and of the pending changes after a power cut; what a process
    /// sees stays as it is.
    pub(super) fn settle(&mut self, luck: &Luck) -> Settled {
        let ops = std::mem::take(&mut self.pending);
        let mut settled = Settled::default();
        if ops.is_empty() {
            return settled;
        }
        let verdict = Verdict::new(luck, ops.len());
        let counts = writes_of_sectors(&ops);
        let mut ranks: Map<u64, u32> = Map::default();
        let mut bare = BTreeSet::new();
        let mut undone = Vec::new();
        let mut reserved = self.durable.blocks().clone();
        let len_before = self.durable.len();
        let mut len = len_before;
        let next = &mut self.durable;
        for (index, op) in ops.iter().enumerate() {
            let structure_kept = index < verdict.structure;
            if structure_kept && op.moves_len {
                len = op.len_after;
            }
            match &op.what {
                Change::Allocate if structure_kept => {
                    next.allocate(op.len_after);
                    reserved.insert(blocks_of(&(0..op.len_after)));
                }
                Change::Cut | Change::Punch { .. } if !structure_kept => undone.extend(op.erases()),
                Change::Cut => next.set_len(op.len_after),
                Change::Punch { range } => next.punch(range),
                Change::Extend | Change::Allocate => {}
                Change::Write { position, data } => {
                    for sector in op.sectors() {
                        let of = counts.get(&sector).copied().unwrap_or(0);
                        let rank = ranks.entry(sector).or_default();
                        *rank += 1;
                        // Behind an erasure that did not happen, a write went to blocks that the surviving file
                        // does not have.
                        let reached = !is_within(sector, &undone);
                        if reached && verdict.keeps(index, sector, *rank - 1, of) {
                            data.put(*position, &bytes_of(sector), next);
                            settled.sectors_kept += 1;
                            bare.remove(&sector);
                        } else {
                            settled.sectors_lost += 1;
                            bare.insert(sector);
                        }
                    }
                }
            }
        }
        next.set_len(len);
        if luck.style == Style::Any && luck.roll(5).is_multiple_of(4) {
            let grown = bare.into_iter().filter(|sector| bytes_of(*sector).start >= len_before);
            leave_garbage(next, grown, &reserved, luck);
        }
        settled
    }
}

/// Fills sectors that the file grew by, but that were never written, with what the blocks held before: some file
/// systems (ext4 with `data=writeback`) do. Reserved blocks are spared: they read as zero until written.
fn leave_garbage(content: &mut Content, grown: impl Iterator<Item = u64>, reserved: &Blocks, luck: &Luck) {
    let dice = SimRng::new(luck.roll(6));
    for sector in grown {
        let bytes = bytes_of(sector);
        let block = bytes.start / PAGE_BYTES;
        if bytes.end <= content.len() && reserved.within(&(block..block + 1)) == 0 {
            let mut old = [0; SECTOR_BYTES as usize];
            dice.fill(&mut old);
            content.put(&old, bytes.start);
        }
    }
}

impl State {
    /// Dice for one file, of a random style.
    pub(super) fn luck(&self) -> Luck {
        let style = match self.rng.below(8) {
            0 => Style::LoseAll,
            1 => Style::KeepAll,
            2..=4 => Style::Oldest,
            _ => Style::Any,
        };
        Luck { style, seed: self.rng.next_u64() }
    }

    /// Ends the life of all handles. Files keep everything that was written, flushed or not.
    pub(super) fn end_life(&mut self) {
        self.life += 1;
        self.stopped = false;
        self.locks.clear();
        for inode in self.inodes.values_mut() {
            inode.handles = 0;
            if let Body::File(file) = &mut inode.body {
                file.end_life();
            }
        }
    }

    /// The power goes and comes back. `forced` decides for everything; else the dice do.
    pub(super) fn crash(&mut self, forced: Option<Style>) -> CrashReport {
        self.end_life();
        self.stats.crashes += 1;
        let mut report = CrashReport::default();
        // Some crashes are of one kind throughout: all kept but one lost rename, all lost, are worth a visit.
        let forced = forced.or_else(|| match self.rng.below(8) {
            0 => Some(Style::LoseAll),
            1 => Some(Style::KeepAll),
            _ => None,
        });
        let names = forced.unwrap_or_else(|| self.luck().style);
        self.crash_names(names, &mut report);
        let inos: Vec<Ino> = self.inodes.keys().copied().collect();
        for ino in inos {
            let mut luck = self.luck();
            luck.style = forced.unwrap_or(luck.style);
            if let Ok(file) = self.file_mut(ino) {
                report.writes_pending += file.pending.len() as u64;
                let settled = file.settle(&luck);
                report.sectors_kept += settled.sectors_kept;
                report.sectors_lost += settled.sectors_lost;
                file.live = file.durable.clone();
            }
        }
        report
    }

    fn crash_names(&mut self, style: Style, report: &mut CrashReport) {
        let ops = std::mem::take(&mut self.pending_names);
        let edge = self.rng.below(ops.len() as u64 + 1) as usize;
        let mut lost_names: BTreeSet<(Ino, String)> = BTreeSet::new();
        let mut kept: Vec<NameOp> = Vec::new();
        for (index, op) in ops.into_iter().enumerate() {
            let wanted = match style {
                Style::LoseAll => false,
                Style::KeepAll => true,
                Style::Oldest => index < edge,
                Style::Any => self.coin(),
            };
            let key = |edit: &super::state::Edit| (edit.dir, edit.name.clone());
            if wanted && !op.edits.iter().any(|edit| lost_names.contains(&key(edit))) {
                report.names_kept += 1;
                kept.push(op);
            } else {
                report.names_lost += 1;
                lost_names.extend(op.edits.iter().map(key));
            }
        }
        self.commit_names(kept);
        self.keep_what_is_reachable();
    }

    /// The durable tree becomes the one that is seen; what no name leads to is gone.
    fn keep_what_is_reachable(&mut self) {
        let mut links: Map<Ino, u32> = Map::default();
        links.insert(ROOT, 1);
        let mut open = vec![ROOT];
        while let Some(ino) = open.pop() {
            if let Ok(DirBody { live, durable }) = self.dir_mut(ino) {
                *live = durable.clone();
                for child in durable.values() {
                    *links.entry(*child).or_default() += 1;
                    open.push(*child);
                }
            }
        }
        self.inodes.retain(|ino, inode| {
            inode.links = links.get(ino).copied().unwrap_or(0);
            inode.links > 0
        });
    }

    /// Turns a bit around, on the disk and in memory alike.
    pub(super) fn flip_bit(&mut self, ino: Ino, byte: u64, bit: u8) -> std::io::Result<()> {
        let file = self.file_mut(ino)?;
        if byte >= file.durable.len() {
            return Err(super::state::system(libc::EINVAL));
        }
        file.durable.flip_bit(byte, bit);
        file.live.flip_bit(byte, bit);
        Ok(())
    }

    /// Pages held in memory, shared ones counted once for each file that has them.
    pub(super) fn pages_held(&self) -> usize {
        let pages = self.inodes.values().map(|inode| match &inode.body {
            Body::File(file) => file.live.pages_held(),
            Body::Dir(_) => 0,
        });
        pages.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{SimDisk, SimRng};
    use crate::{Disk, OpenMode};
    use std::path::Path;

    /// What dice of one style leave of a file of two sectors that was overwritten three times, as the first byte of
    /// each sector, over many seeds.
    fn left_by(style: Style) -> BTreeSet<(u8, u8)> {
        let disk = SimDisk::new(1);
        let file = disk.open(Path::new("/x"), OpenMode::CreateNew).unwrap();
        file.write_all_at(&[0; 1024], 0).unwrap();
        file.sync_data().unwrap();
        for n in 1..=3 {
            file.write_all_at(&[n; 1024], 0).unwrap();
        }
        let left = (0..400).map(|seed| {
            let mut state = State::clone(&disk.state.lock());
            let ino = state.lookup(Path::new("/x")).unwrap();
            let body = state.file_mut(ino).unwrap();
            body.settle(&Luck { style, seed: SimRng::new(seed).next_u64() });
            let mut bytes = [0; 1024];
            body.durable.read(&mut bytes, 0);
            assert!(bytes.chunks(512).all(|sector| sector == [sector[0]; 512]));
            (bytes[0], bytes[512])
        });
        left.collect()
    }

    #[test]
    fn each_style_leaves_what_it_should_and_all_of_that() {
        assert_eq!(Vec::from_iter(left_by(Style::LoseAll)), [(0, 0)]);
        assert_eq!(Vec::from_iter(left_by(Style::KeepAll)), [(3, 3)]);
        let oldest = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3)];
        assert_eq!(Vec::from_iter(left_by(Style::Oldest)), oldest);
        let any: Vec<_> = (0..=3).flat_map(|a| (0..=3).map(move |b| (a, b))).collect();
        assert_eq!(Vec::from_iter(left_by(Style::Any)), any);
    }
}
