//! Giving back the room of what nobody wants any more.
//!
//! ```text
//!   all runs dead        manifest without the segment ─> file removed
//!   some runs dead       manifest with the dead rows marked ─> their blocks punched out (whole pages, neighbours together)
//!   punching impossible  enough dead ─> the live rest copied into a new segment ─> manifest ─> old file removed
//! ```
//!
//! Rows are marked dead durably before their bytes go, so that neither a start nor `check` takes the hole for damage.

use super::ShardStore;
use super::config::PARTITIONS_PER_LOCK_MAX;
use super::index::RunRow;
use super::manifest::{NamedSegment, flushed};
use super::merge::segment_of;
use super::query::read;
use super::registry::Segment;
use super::segment::format::{FOOTER_BYTES, HEADER_BYTES, ROW_BYTES};
use super::segment::writer::SegmentWriter;
use super::segment::{Row, SegmentKind, SegmentName, Table};
use super::shared::{Counters, Shared};
use crate::error::{Error, ErrorKind, Result};
use polylogue_types::{FileRange, Map};
use std::ops::Range;

/// Blocks are given back in whole pages. Bytes.
const PAGE_BYTES: u64 = 4096;
/// Segments removed in one step.
const REMOVED_PER_STEP_MAX: usize = 64;
/// Holes punched in one step.
const HOLES_PER_STEP_MAX: usize = 1024;
/// Dead bytes that make punching worth while: this many, or this share of the segment.
const PUNCH_BYTES_MIN: u64 = 1 << 20;
const PUNCH_SHARE_MIN: u64 = 16;

/// What a step gave back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reclaimed {
    /// Segments removed.
    pub removed: usize,
    /// Bytes of holes punched.
    pub punched: u64,
    /// Bytes written to save the live rest of segments.
    pub rewritten: u64,
    /// Whether there is more to do.
    pub more: bool,
}

impl ShardStore {
    /// Gives back some room, if there is any to give: removes dead segments, punches holes, or does a piece of a rewrite.
    /// Blocks on the disk; readers and writers go on. To be called from time to time, and again while `more` is set.
    ///
    /// # Errors
    /// `StorageFull`, `Io`: what was begun is done another time. A failed flush ends the process.
    pub fn reclaim_step(&self) -> Result<Reclaimed> {
        let mut maintenance = self.shared.maintenance.lock();
        let mut out = Reclaimed::default();
        if let Some(rewrite) = maintenance.take() {
            *maintenance = rewrite.step(&self.shared, &mut out)?;
            out.more = true;
            return Ok(out);
        }
        self.shared.remove_dead(&mut out)?;
        if out.removed == 0 {
            match self.shared.wasteful() {
                Some(Waste::Punch(segment)) => self.shared.punch(segment, &mut out)?,
                Some(Waste::Rewrite(segment)) => {
                    *maintenance = Some(Rewrite::begin(&self.shared, segment)?);
                    out.more = true;
                }
                None => {}
            }
        }
        out.more |= out.removed > 0 || self.shared.wasteful().is_some();
        Ok(out)
    }
}

/// What to do about a segment that holds dead runs.
enum Waste {
    Punch(u32),
    Rewrite(u32),
}

impl Shared {
    fn remove_dead(&self, out: &mut Reclaimed) -> Result<()> {
        let dead: Vec<(u32, Segment)> = {
            let state = self.state.lock();
            let dead = state.segments.iter().filter(|(_, s)| s.live_rows == 0);
            dead.map(|(n, s)| (n, s.clone())).take(REMOVED_PER_STEP_MAX).collect()
        };
        if dead.is_empty() {
            return Ok(());
        }
        let names: Vec<SegmentName> = dead.iter().map(|(_, s)| s.name).collect();
        let forget = || self.manifest.update(|m| m.segments.retain(|s| !names.contains(&s.name)));
        match forget() {
            Err(e) if e.kind == ErrorKind::StorageFull => {
                // Not even the manifest has room. What nobody wants can be given back without it: its rows come to life
                // again at a start, but the log starts of their partitions do too.
                for (number, segment) in &dead {
                    let table = u64::from(segment.rows) * ROW_BYTES as u64 + FOOTER_BYTES as u64;
                    let end = if segment.bytes() == segment.len { segment.len - table } else { segment.data_len };
                    self.data_file(*number)?
                        .punch(HEADER_BYTES as u64, end - HEADER_BYTES as u64)
                        .map_err(|e| Error::io("cannot give blocks back", e))?;
                }
                forget()?;
            }
            other => other?,
        }
        for (number, segment) in dead {
            self.state.lock().segments.remove(number);
            self.close(number);
            self.remove_files(&segment)?;
            out.removed += 1;
        }
        Ok(())
    }

    fn remove_files(&self, segment: &Segment) -> Result<()> {
        for file in segment.files() {
            let path = self.segments_dir().join(file);
            self.env.disk.remove(&path).map_err(|e| Error::io(format!("cannot remove {}", path.display()), e))?;
        }
        flushed(&self.env, self.env.disk.sync_dir(&self.segments_dir()), "the directory of segments")
    }

    /// The segment with the most dead bytes that it is worth while to do something about.
    fn wasteful(&self) -> Option<Waste> {
        let state = self.state.lock();
        let percent = u64::from(self.config.rewrite_dead_percent);
        let (number, segment) = state
            .segments
            .iter()
            .filter(|(_, s)| s.live_rows > 0)
            .filter(|(_, s)| match s.no_punch {
                true => (s.native_bytes - s.live_bytes) * 100 >= s.native_bytes * percent,
                false => s.dead_bytes >= PUNCH_BYTES_MIN.min(s.native_bytes / PUNCH_SHARE_MIN).max(1),
            })
            .max_by_key(|(_, s)| s.dead_bytes)?;
        Some(if segment.no_punch { Waste::Rewrite(number) } else { Waste::Punch(number) })
    }

    /// Marks the dead rows in the manifest: those of all segments at once, because each change of it is three flushes.
    fn name_dead(&self, segment: &Segment) -> Result<()> {
        let known = self.manifest.look();
        if known.segments.iter().any(|s| s.name == segment.name && *s == NamedSegment::of(segment)) {
            return Ok(());
        }
        let now: Map<SegmentName, NamedSegment> = {
            let state = self.state.lock();
            state.segments.iter().map(|(_, s)| (s.name, NamedSegment::of(s))).collect()
        };
        self.manifest.update(|manifest| {
            for named in &mut manifest.segments {
                if let Some(now) = now.get(&named.name) {
                    named.clone_from(now);
                }
            }
        })
    }

    /// Punches the dead runs of a segment out of its files.
    fn punch(&self, number: u32, out: &mut Reclaimed) -> Result<()> {
        let Some(segment) = self.state.lock().segments.get(number).cloned() else { return Ok(()) };
        self.name_dead(&segment)?;
        let table = self.table(number, &segment)?;
        let holes = holes(&table, &segment);
        let file = self.data_file(number)?;
        let mut punched_rows = Vec::new();
        for hole in holes.iter().take(HOLES_PER_STEP_MAX) {
            let pages = hole.bytes.start.next_multiple_of(PAGE_BYTES)..hole.bytes.end / PAGE_BYTES * PAGE_BYTES;
            if !pages.is_empty() {
                let len = pages.end - pages.start;
                let given = file.punch(pages.start, len).map_err(|e| Error::io("cannot give blocks back", e))?;
                if !given {
                    if let Some(s) = self.state.lock().segments.get_mut(number) {
                        s.no_punch = true;
                    }
                    return Ok(());
                }
                out.punched += len;
                Counters::add(&self.counters.punched_bytes, len);
            }
            punched_rows.extend(hole.rows.clone());
        }
        let mut state = self.state.lock();
        if let Some(s) = state.segments.get_mut(number) {
            for row in punched_rows {
                let len = table.rows.get(row as usize).map_or(0, |r| u64::from(r.len));
                if s.dead.get(row) && s.punched.set(row) {
                    s.dead_bytes = s.dead_bytes.saturating_sub(len);
                }
            }
        }
        Ok(())
    }

    /// Reads the run table of a segment again.
    fn table(&self, number: u32, segment: &Segment) -> Result<Table> {
        Table::read(&*self.index_handle(number)?, segment.len, segment.data_len)
    }
}

/// Dead runs that stand next to each other.
struct Hole {
    bytes: Range<u64>,
    /// Numbers of the rows in it.
    rows: Vec<u32>,
}

/// The holes to punch: those in which a run has died since the last time. Only the bytes that belong to dead runs.
fn holes(table: &Table, segment: &Segment) -> Vec<Hole> {
    let native = |row: &Row| match segment.name.kind {
        SegmentKind::Sorted => row.extent(SegmentKind::Sorted),
        SegmentKind::Adopted => u64::from(row.position)..u64::from(row.position) + u64::from(row.len),
    };
    let dead = table.rows.iter().zip(0u32..).filter(|(_, number)| segment.dead.get(*number));
    let mut ranges: Vec<(Range<u64>, u32)> = dead.map(|(row, number)| (native(row), number)).collect();
    ranges.sort_unstable_by_key(|(range, _)| range.start);
    let mut holes: Vec<Hole> = Vec::new();
    for (range, number) in ranges {
        match holes.last_mut() {
            Some(last) if last.bytes.end == range.start => {
                last.bytes.end = range.end;
                last.rows.push(number);
            }
            _ => holes.push(Hole { bytes: range, rows: vec![number] }),
        }
    }
    holes.retain(|hole| hole.rows.iter().any(|row| !segment.punched.get(*row)));
    holes
}

/// The live rest of a segment on its way into a new one.
#[derive(Debug)]
pub(super) struct Rewrite {
    number: u32,
    old: Segment,
    table: Table,
    /// The row that comes next.
    next: usize,
    /// Rows that were copied: number in the old table.
    copied: Vec<u32>,
    writer: SegmentWriter,
}

impl Rewrite {
    fn begin(shared: &Shared, number: u32) -> Result<Rewrite> {
        let old = shared.state.lock().segments.get(number).cloned();
        let old = old.ok_or_else(|| Error::new(ErrorKind::OutOfRange, "the segment is gone"))?;
        let name = SegmentName { kind: SegmentKind::Sorted, rewrite: old.name.rewrite.wrapping_add(1), ..old.name };
        let name = SegmentName { journal_file: 0, ..name };
        let writer = shared.begin_segment(name)?;
        let table = shared.table(number, &old)?;
        Ok(Rewrite { number, old, table, next: 0, copied: Vec::new(), writer })
    }

    /// Copies some runs as they are, checksums included, so that damage stays visible; nothing when that was the last.
    fn step(mut self, shared: &Shared, out: &mut Reclaimed) -> Result<Option<Rewrite>> {
        let data = shared.handle(self.number)?;
        let index = shared.index_handle(self.number)?;
        while self.writer.buffered() < shared.config.merge_step_bytes {
            let Some(row) = self.table.rows.get(self.next).copied() else { break };
            let number = self.next as u32;
            self.next += 1;
            if shared.state.lock().segments.get(self.number).is_none_or(|s| s.dead.get(number)) {
                continue;
            }
            let range = |source: &std::sync::Arc<dyn polylogue_types::RangeSource>, position: u32, len: u32| {
                FileRange { source: source.clone(), position: u64::from(position), len }
            };
            let native = read(&range(&data, row.position, row.len))?;
            let rest = read(&range(&index, row.tables, row.tables_len + row.index_len))?;
            self.writer.copy_run(&row, &native, &rest)?;
            self.copied.push(number);
        }
        let bytes = self.writer.buffered() as u64;
        shared.flushed(self.writer.flush())?;
        out.rewritten += bytes;
        Counters::add(&shared.counters.merged_bytes, bytes);
        if self.next < self.table.rows.len() {
            return Ok(Some(self));
        }
        self.finish(shared, out)?;
        Ok(None)
    }

    fn finish(self, shared: &Shared, out: &mut Reclaimed) -> Result<()> {
        let before = self.writer.written();
        let finished = shared.flushed(self.writer.finish())?;
        out.rewritten += finished.len - before;
        flushed(&shared.env, shared.env.disk.sync_dir(&shared.segments_dir()), "the directory of segments")?;
        let new = segment_of(&finished, finished.len);
        let named = NamedSegment::of(&new);
        let old_name = self.old.name;
        shared.manifest.update(|manifest| {
            manifest.segments.retain(|s| s.name != old_name);
            manifest.segments.push(named);
        })?;
        let number = shared.state.lock().segments.add(new);
        let moved: Vec<_> = finished.rows.iter().zip(0u32..).zip(&self.copied).collect();
        for batch in moved.chunks(PARTITIONS_PER_LOCK_MAX) {
            let mut state = shared.state.lock();
            for ((row, new_row), old_row) in batch {
                let old = |r: &&mut RunRow| (r.segment, r.row) == (self.number, **old_row);
                let live = state.partitions.get_mut(&row.partition);
                match live.and_then(|p| p.rows.iter_mut().find(old)) {
                    Some(live) => {
                        (live.segment, live.row, live.position, live.marks) = (number, *new_row, row.position, 0);
                    }
                    None => state.segments.row_died(number, *new_row, row.len),
                }
            }
        }
        shared.state.lock().segments.remove(self.number);
        shared.close(self.number);
        shared.remove_files(&self.old)
    }
}
