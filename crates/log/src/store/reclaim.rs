//! Giving back the room of what is not wanted any more.
//!
//! ```text
//!   all runs dead        manifest without the segment ─> file removed
//!   some runs dead       manifest with the dead rows marked ─> their blocks punched out (whole pages, neighbours together),
//!                        once no reader holds a range of them (lease.rs)
//!   punching impossible  enough dead ─> the live rest written anew                                 (rewrite.rs)
//!   many small segments  of one class ─> written anew as one                                       (rewrite.rs)
//! ```
//!
//! Rows are marked dead durably before their bytes go, so that neither a start nor `check` takes the hole for damage.

use super::ShardStore;
use super::manifest::{NamedSegment, flushed};
use super::registry::Segment;
use super::rewrite::Rewrite;
use super::segment::format::{FOOTER_BYTES, HEADER_BYTES, ROW_BYTES};
use super::segment::{Row, SegmentKind, SegmentName, Table};
use super::shared::{Counters, Shared};
use crate::error::{Error, ErrorKind, Result};
use polylogue_types::Map;
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
    /// Small segments that have become one.
    pub compacted: usize,
    /// Whether there is more to do.
    pub more: bool,
}

impl ShardStore {
    /// Gives back some room, if there is any to give: removes dead segments, punches holes, or does a piece of a rewrite. Where
    /// there is none, it joins small segments, which gives back memory.
    /// Blocks on the disk; readers and writers go on. To be called from time to time, and again while `more` is set.
    ///
    /// # Errors
    /// `StorageFull`, `Io`: what was begun is done another time. A failed flush ends the process.
    pub fn reclaim_step(&self) -> Result<Reclaimed> {
        let mut maintenance = self.shared.maintenance.lock();
        let mut out = Reclaimed::default();
        self.shared.turn_leases();
        if let Some(rewrite) = maintenance.take() {
            let name = rewrite.name();
            *maintenance = rewrite.step(&self.shared, &mut out).inspect_err(|_| self.shared.discard(&[name]))?;
            out.more = true;
            return Ok(out);
        }
        self.shared.remove_dead(&mut out)?;
        if out.removed == 0 {
            match self.shared.wasteful() {
                Some(Waste::Punch(segment)) => self.shared.punch(segment, &mut out)?,
                Some(Waste::Rewrite(segment)) => {
                    *maintenance = Some(Rewrite::begin(&self.shared, &[segment])?);
                }
                None => {
                    if let Some(small) = self.shared.crowded() {
                        *maintenance = Some(Rewrite::begin(&self.shared, &small)?);
                    }
                }
            }
        }
        out.more |= maintenance.is_some();
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
        let (dead, lost): (Vec<(u32, Segment)>, Vec<SegmentName>) = {
            let state = self.state.lock();
            // Where nothing lacks any more, what could not be read is not wanted either.
            let whole = state.expected && state.holes.is_empty();
            let dead = state.segments.iter().filter(|(_, s)| s.live_rows == 0 && (s.lost_rows == 0 || whole));
            let lost = if whole { state.segments.lost.clone() } else { Vec::new() };
            (dead.map(|(n, s)| (n, s.clone())).take(REMOVED_PER_STEP_MAX).collect(), lost)
        };
        if dead.is_empty() && lost.is_empty() {
            return Ok(());
        }
        let names: Vec<SegmentName> = dead.iter().map(|(_, s)| s.name).chain(lost.iter().copied()).collect();
        let forget = || self.manifest.update(|m| m.segments.retain(|s| !names.contains(&s.name)));
        match forget() {
            Err(e) if e.kind == ErrorKind::StorageFull => {
                // Not even the manifest has room. What is not wanted can be given back without it: its rows come to life
                // again at a start, but the log starts of their partitions do too.
                for (number, segment) in dead.iter().filter(|(_, s)| s.is_unread() && !s.skip) {
                    // One that cannot be written to must not keep the others.
                    let _ = self.sound(*number, self.empty(*number, segment));
                }
                forget()?;
            }
            other => other?,
        }
        for (number, segment) in dead {
            self.state.lock().segments.remove(number);
            self.close(number);
            self.remove_files(&segment.name)?;
            out.removed += 1;
        }
        for name in lost {
            self.state.lock().segments.lost.retain(|l| *l != name);
            out.removed += 1;
            // A part of it may be missing; what cannot be removed now the next start removes.
            let _ = self.remove_files(&name);
        }
        Ok(())
    }

    /// Gives all native bytes of a dead segment back.
    fn empty(&self, number: u32, segment: &Segment) -> Result<()> {
        let table = u64::from(segment.rows) * ROW_BYTES as u64 + FOOTER_BYTES as u64;
        let end = if segment.bytes() == segment.len { segment.len - table } else { segment.data_len };
        let given = self.data_file(number)?.punch(HEADER_BYTES as u64, end - HEADER_BYTES as u64);
        given.map(|_| ()).map_err(|e| Error::io("cannot give blocks back", e))
    }

    /// Takes note of a segment whose files give errors: it is passed over until the next start, so that the others have
    /// their turn.
    pub(super) fn sound<T>(&self, number: u32, result: Result<T>) -> Result<T> {
        result.inspect_err(|e| {
            if e.kind != ErrorKind::StorageFull
                && let Some(segment) = self.state.lock().segments.get_mut(number)
            {
                segment.skip = true;
            }
        })
    }

    /// Removes the files of a segment that the manifest does not name any more; later, if a backup copies them.
    pub(super) fn remove_files(&self, segment: &SegmentName) -> Result<()> {
        if self.pins.lock().defer(segment) {
            return Ok(());
        }
        for file in segment.files() {
            let path = self.segments_dir().join(file);
            self.env.disk.remove(&path).map_err(|e| Error::io(format!("cannot remove {}", path.display()), e))?;
        }
        flushed(&self.env, self.env.disk.sync_dir(&self.segments_dir()), "the directory of segments")
    }

    /// The segment with the most dead bytes that it is worth while to do something about.
    fn wasteful(&self) -> Option<Waste> {
        let room = self.room();
        let state = self.state.lock();
        let percent = u64::from(self.config.rewrite_dead_percent);
        let (number, segment) = state
            .segments
            .iter()
            .filter(|(_, s)| s.live_rows > 0 && !s.skip)
            .filter(|(_, s)| match s.no_punch {
                // Runs that cannot be read would not come along.
                true => {
                    s.lost_rows == 0
                        && (s.native_bytes - s.live_bytes) * 100 >= s.native_bytes * percent
                        && s.live_bytes <= room
                }
                false => s.free_bytes >= PUNCH_BYTES_MIN.min(s.native_bytes / PUNCH_SHARE_MIN).max(1),
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
        self.sound(number, self.punch_rows(number, &segment, out))
    }

    fn punch_rows(&self, number: u32, segment: &Segment, out: &mut Reclaimed) -> Result<()> {
        let table = self.table(number, segment)?;
        let holes = holes(&table, segment);
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
                let len = table.row(row).map_or(0, |r| u64::from(r.len));
                s.punched(row, len);
            }
        }
        Ok(())
    }

    /// Reads the run table of a segment again.
    pub(super) fn table(&self, number: u32, segment: &Segment) -> Result<Table> {
        let index = self.index_handle(number)?;
        Table::read_expected(&*index, segment.len, segment.data_len, &segment.expected())
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
    let dead = table.rows.iter().filter(|(number, _)| segment.free.get(*number));
    let mut ranges: Vec<(Range<u64>, u32)> = dead.map(|(number, row)| (native(row), *number)).collect();
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
