//! Undoing writes, cuts and holes inside files.

use crate::record::Record;
use crate::revert::{Dice, Report, Style};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// What a disk writes whole or not at all. Bytes.
const SECTOR_BYTES: u64 = 512;

impl Record {
    /// The file that a change of content changes.
    fn changes(&self) -> Option<u64> {
        match self {
            Record::Write { ino, .. }
            | Record::Extend { ino, .. }
            | Record::Cut { ino, .. }
            | Record::Punch { ino, .. } => Some(*ino),
            _ => None,
        }
    }

    /// Whether it takes bytes away that were there before: what comes after it lies in other blocks.
    fn is_erasure(&self) -> bool {
        matches!(self, Record::Cut { .. } | Record::Punch { .. })
    }

    /// The length of the file before it, where it makes the file longer.
    fn grows_from(&self) -> Option<u64> {
        match self {
            Record::Write { position, len, size_before, .. } if position + len > *size_before => Some(*size_before),
            Record::Extend { size_before, .. } => Some(*size_before),
            _ => None,
        }
    }

    fn sectors(&self) -> Range<u64> {
        match self {
            Record::Write { position, len, .. } => position / SECTOR_BYTES..(position + len).div_ceil(SECTOR_BYTES),
            _ => 0..0,
        }
    }
}

/// For each file the changes that no flush has covered, oldest first.
pub(crate) fn pending(records: &[(u64, Record)]) -> BTreeMap<u64, Vec<&Record>> {
    let mut pending: BTreeMap<u64, Vec<(u64, &Record)>> = BTreeMap::new();
    for (at, record) in records {
        if let Record::Flushed { ino, upto } = record {
            pending.entry(*ino).or_default().retain(|(at, _)| at >= upto);
        } else if let Some(ino) = record.changes() {
            pending.entry(ino).or_default().push((*at, record));
        }
    }
    pending.retain(|_, ops| !ops.is_empty());
    pending.into_iter().map(|(ino, ops)| (ino, ops.into_iter().map(|(_, record)| record).collect())).collect()
}

/// Undoes what did not survive of the pending changes of one file.
///
/// Erasures survive in their order, as a journal of the file system keeps them. What came before a surviving one
/// survives; what came after one that did not is lost; between the two each sector has its own fate, in which an
/// earlier write survives where a later one does, and the length is as it was at some moment.
pub(crate) fn undo(file: &File, ops: &[&Record], dice: &Dice, report: &mut Report) -> io::Result<()> {
    let edge = match dice.style {
        Style::LoseAll => 0,
        Style::KeepAll => ops.len(),
        Style::Oldest | Style::Any => dice.below(1, ops.len() as u64 + 1) as usize,
    };
    // The erasure at the edge is the first that does not survive.
    let first_lost = (edge..ops.len()).find(|index| ops[*index].is_erasure()).unwrap_or(ops.len());
    for op in ops[first_lost..].iter().rev() {
        report.sectors_lost += op.sectors().end - op.sectors().start;
        undo_whole(file, op)?;
    }
    let last_kept = (0..edge.min(first_lost)).rev().find(|index| ops[*index].is_erasure());
    let start = last_kept.map_or(0, |index| index + 1);
    for op in &ops[..start] {
        report.sectors_kept += op.sectors().end - op.sectors().start;
    }
    undo_sectors(file, &ops[start..first_lost], edge.saturating_sub(start), dice, report)
}

fn undo_whole(file: &File, op: &Record) -> io::Result<()> {
    match op {
        Record::Write { position, len, size_before, old, .. } => {
            put_old(file, *position, *len, old, *position..position + len)?;
            if position + len > *size_before { file.set_len(*size_before) } else { Ok(()) }
        }
        Record::Extend { size_before, .. } => file.set_len(*size_before),
        Record::Cut { size_before, size_after, old, .. } => {
            file.set_len(*size_before)?;
            file.write_all_at(old, *size_after)
        }
        Record::Punch { position, old, .. } => file.write_all_at(old, *position),
        _ => Ok(()),
    }
}

/// Writes back what stood in `range` before the write of `len` bytes at `position`.
fn put_old(file: &File, position: u64, len: u64, old: &[u8], range: Range<u64>) -> io::Result<()> {
    let range = range.start.max(position)..range.end.min(position + len);
    let mut bytes = vec![0; (range.end - range.start) as usize];
    let skip = (range.start - position) as usize;
    if let Some(rest) = old.get(skip..) {
        let shared = rest.len().min(bytes.len());
        bytes[..shared].copy_from_slice(&rest[..shared]);
    }
    file.write_all_at(&bytes, range.start)
}

/// Undoes part of writes and extensions with no erasure between them. With [`Style::Oldest`], the first `edge` of
/// them survive and the next is torn.
fn undo_sectors(file: &File, ops: &[&Record], edge: usize, dice: &Dice, report: &mut Report) -> io::Result<()> {
    let mut of: BTreeMap<u64, u64> = BTreeMap::new();
    for op in ops {
        for sector in op.sectors() {
            *of.entry(sector).or_default() += 1;
        }
    }
    let mut ranks = of.clone();
    for (index, op) in ops.iter().enumerate().rev() {
        let Record::Write { position, len, old, .. } = op else { continue };
        for sector in op.sectors() {
            let rank = ranks.entry(sector).or_default();
            *rank -= 1;
            let roll = |sides| dice.below(10 + sector, sides);
            let survives = match dice.style {
                Style::LoseAll => false,
                Style::KeepAll => true,
                Style::Oldest => index < edge || (index == edge && roll(2) == 0),
                Style::Any => *rank < roll(of.get(&sector).copied().unwrap_or(0) + 1),
            };
            if survives {
                report.sectors_kept += 1;
            } else {
                report.sectors_lost += 1;
                let bytes = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                put_old(file, *position, *len, old, bytes)?;
            }
        }
    }
    let lengths_kept = match dice.style {
        Style::LoseAll => 0,
        Style::KeepAll => ops.len(),
        Style::Oldest => edge + dice.below(2, 2) as usize,
        Style::Any if dice.below(3, 2) == 0 => ops.len(),
        Style::Any => dice.below(4, ops.len() as u64 + 1) as usize,
    };
    match ops.iter().skip(lengths_kept).find_map(|op| op.grows_from()) {
        Some(len) => file.set_len(len),
        None => Ok(()),
    }
}
