//! Writing the live runs of segments anew: of one in which too much is dead, or of several small ones, which become one.
//!
//! ```text
//!   [ p1 p2 p3 ][ p1 p3 ][ p1 p2 p3 ]  ──>  [ p1 p1 p1 | p2 p2 | p3 p3 p3 ]        runs that follow each other are joined
//!
//!   new file written and flushed ─> manifest: the new one for the old ones ─> index switched ─> old files removed
//! ```
//!
//! Without the second sort, the rows in memory would grow with what is retained, divided by what one merge moves, times the
//! partitions. What is joined is bounded so that nothing stays much longer for it: the segments' span by the retention time
//! of their class, a run by its partition's size.

use super::config::{PARTITIONS_PER_LOCK_MAX, RUN_BYTES_MAX, SEGMENT_BYTES_MAX};
use super::index::{RunRow, State, seconds};
use super::manifest::{NamedSegment, flushed};
use super::merge::segment_of;
use super::query::read_once;
use super::reclaim::Reclaimed;
use super::registry::Segment;
use super::retention::span_max_s;
use super::segment::writer::SegmentWriter;
use super::segment::{Row, SegmentKind, SegmentName, Table};
use super::shared::{Counters, Shared};
use crate::error::{Error, ErrorKind, Result};
use polylogue_types::{FileRange, RangeSource};
use std::sync::Arc;

/// Segments whose live runs are longer than this on average stay as they are. Bytes.
const SHORT_RUN_BYTES: u64 = 1 << 20;
/// Live runs of segments that become one: their run tables are in memory together. 104 bytes each.
const ROWS_MAX: u64 = 1 << 18;
/// A joined run is at most this share of its partition, because it is let go as a whole.
const PARTITION_SHARE: u64 = 8;

impl Shared {
    /// The oldest neighbours of one class that should become one segment.
    pub(super) fn crowded(&self) -> Option<Vec<u32>> {
        let room = self.room();
        let state = self.state.lock();
        let small = |s: &Segment| s.name.kind == SegmentKind::Sorted && s.live_rows > 0 && s.lost_rows == 0 && !s.skip;
        let mut sorted: Vec<_> = state.segments.iter().filter(|(_, s)| small(s)).collect();
        sorted.sort_unstable_by_key(|(_, s)| (s.name.class, s.name.first, s.name.upto, s.name.part));
        let classes = sorted.chunk_by(|(_, a), (_, b)| a.name.class == b.name.class);
        let mut groups = classes.flat_map(|class| class.windows(self.config.compact_segments));
        let group = groups.find(|group| fit_together(group, room))?;
        Some(group.iter().map(|(number, _)| *number).collect())
    }
}

/// Whether segments are small and alike enough to become one. The largest is at most half of all, so that no byte is written
/// often; and as much room stays free as is written, because nothing waits for this.
fn fit_together(group: &[(u32, &Segment)], room: u64) -> bool {
    let sum = |of: fn(&Segment) -> u64| group.iter().map(|(_, s)| of(s)).sum::<u64>();
    let (live, rows) = (sum(|s| s.live_bytes), sum(|s| u64::from(s.live_rows)));
    let written = live + sum(|s| s.len.saturating_sub(s.native_bytes));
    let largest = group.iter().map(|(_, s)| s.live_bytes).max().unwrap_or(0);
    let oldest = group.iter().map(|(_, s)| s.oldest_s).min().unwrap_or(0);
    let newest = group.iter().map(|(_, s)| s.newest_s).max().unwrap_or(0);
    let class = group.first().map_or(0, |(_, s)| s.name.class);
    live < rows * SHORT_RUN_BYTES
        && 2 * largest <= live
        && rows <= ROWS_MAX
        && written <= SEGMENT_BYTES_MAX.min(room / 2)
        && span_max_s(class).is_some_and(|span| newest.saturating_sub(oldest) <= span)
}

/// Live runs of segments on their way into a new one.
#[derive(Debug)]
pub(super) struct Rewrite {
    sources: Vec<Source>,
    writer: SegmentWriter,
}

/// A segment that is to go.
#[derive(Debug)]
struct Source {
    number: u32,
    old: Segment,
    table: Table,
    /// The place in the table of the row that comes next.
    next: usize,
}

impl Source {
    fn row(&self) -> Option<&(u32, Row)> {
        self.table.rows.get(self.next)
    }
}

impl Rewrite {
    pub(super) fn begin(shared: &Shared, numbers: &[u32]) -> Result<Rewrite> {
        let mut sources = Vec::with_capacity(numbers.len());
        for number in numbers {
            let old = shared.state.lock().segments.get(*number).cloned();
            let old = old.ok_or_else(|| Error::new(ErrorKind::OutOfRange, "the segment is gone"))?;
            let table = shared.sound(*number, shared.table(*number, &old))?;
            sources.push(Source { number: *number, old, table, next: 0 });
        }
        let names = || sources.iter().map(|s| s.old.name);
        // No other segment has the part of the last frame's, and none the count.
        let last = names().max_by_key(|name| (name.upto, name.part));
        let last = last.ok_or_else(|| Error::new(ErrorKind::Invalid, "there is nothing to write anew"))?;
        let first = names().map(|name| name.first).min().unwrap_or(last.first);
        let rewrite = names().map(|name| name.rewrite).max().unwrap_or(0).wrapping_add(1);
        let name = SegmentName { kind: SegmentKind::Sorted, first, rewrite, journal_file: 0, ..last };
        let writer = shared.begin_segment(name)?;
        Ok(Rewrite { sources, writer })
    }

    /// What it is called that is written.
    pub(super) fn name(&self) -> SegmentName {
        *self.writer.name()
    }

    /// Copies some runs with their checksums, so that damage stays visible; nothing when that was the last.
    pub(super) fn step(mut self, shared: &Shared, out: &mut Reclaimed) -> Result<Option<Rewrite>> {
        while self.writer.buffered() < shared.config.merge_step_bytes && self.copy_next(shared)? {}
        let bytes = self.writer.buffered() as u64;
        shared.flushed(self.writer.write_piece())?;
        out.rewritten += bytes;
        Counters::add(&shared.counters.merged_bytes, bytes);
        if self.sources.iter().any(|s| s.row().is_some()) {
            return Ok(Some(self));
        }
        self.finish(shared, out)?;
        Ok(None)
    }

    /// Copies the next run in the order of partition and offset, if it is still live; false when there is none.
    fn copy_next(&mut self, shared: &Shared) -> Result<bool> {
        let several = self.sources.len() > 1;
        let left = self.sources.iter_mut().filter(|s| s.row().is_some());
        let next = left.min_by_key(|s| s.row().map(|(_, row)| (row.partition, row.base)));
        let Some(source) = next else { return Ok(false) };
        let Some((in_table, row)) = source.row().copied() else { return Ok(false) };
        source.next += 1;
        let len_max = {
            let state = shared.state.lock();
            if state.segments.get(source.number).is_none_or(|s| s.dead.get(in_table)) {
                return Ok(true);
            }
            let share = state.partition(row.partition).map_or(0, |p| p.bytes / PARTITION_SHARE);
            if several { share.min(u64::from(RUN_BYTES_MAX)) } else { 0 }
        };
        let read_of = |source: Arc<dyn RangeSource>, position: u32, len: u32| {
            read_once(&FileRange { source, position: u64::from(position), len })
        };
        let copied = || {
            let native = read_of(shared.handle(source.number)?, row.position, row.len)?;
            let index = shared.index_handle(source.number)?;
            Ok((native, read_of(index, row.tables, row.tables_len + row.index_len)?))
        };
        let (native, rest) = shared.sound(source.number, copied())?;
        self.writer.join_run(&row, &native, &rest, len_max as u32)?;
        Ok(true)
    }

    fn finish(self, shared: &Shared, out: &mut Reclaimed) -> Result<()> {
        let before = self.writer.written();
        let finished = shared.flushed(self.writer.finish())?;
        out.rewritten += finished.len - before;
        Counters::add(&shared.counters.merged_bytes, finished.len - before);
        flushed(&shared.env, shared.env.disk.sync_dir(&shared.segments_dir()), "the directory of segments")?;
        let new = segment_of(&finished, finished.len);
        let named = NamedSegment::of(&new);
        let names: Vec<_> = self.sources.iter().map(|s| s.old.name).collect();
        shared.manifest.update(|manifest| {
            manifest.segments.retain(|s| !names.contains(&s.name));
            manifest.segments.push(named);
        })?;
        let olds: Vec<_> = self.sources.iter().map(|s| s.number).collect();
        let number = shared.state.lock().segments.add(new);
        let rows: Vec<_> = finished.rows.iter().zip(0u32..).collect();
        for batch in rows.chunks(PARTITIONS_PER_LOCK_MAX) {
            let mut state = shared.state.lock();
            batch.iter().for_each(|(row, in_table)| take_over(&mut state, &olds, number, *in_table, row));
        }
        for old in &olds {
            shared.state.lock().segments.remove(*old);
            shared.close(*old);
        }
        if olds.len() > 1 {
            out.compacted += olds.len();
        }
        names.iter().try_for_each(|name| shared.remove_files(name))
    }
}

/// Puts a new row in the place of those that it was made of, as far as they were not trimmed meanwhile.
fn take_over(state: &mut State, olds: &[u32], segment: u32, in_table: u32, row: &Row) {
    let live = state.partitions.get_mut(&row.partition).and_then(|p| {
        let first = p.rows.partition_point(|r| r.base < row.base);
        let behind = p.rows.partition_point(|r| r.end <= row.end);
        let made_of = p.rows.get(first..behind)?;
        let bytes: u64 = made_of.iter().map(|r| u64::from(r.len)).sum();
        let ours = !made_of.is_empty() && made_of.iter().all(|r| olds.contains(&r.segment));
        ours.then_some((p, first..behind, bytes))
    });
    let Some((partition, place, bytes)) = live else {
        state.segments.row_died(segment, in_table, row.len);
        return;
    };
    let new = RunRow {
        base: row.base,
        end: row.end,
        max_timestamp: row.max_timestamp,
        segment,
        row: in_table,
        position: row.position,
        len: row.len,
        append_s: seconds(row.append_time),
        form: row.form,
        marks: 0,
    };
    partition.rows.splice(place, [new]);
    partition.bytes = partition.bytes - bytes + u64::from(row.len);
    if partition.rows.capacity() > 2 * partition.rows.len() + 8 {
        partition.rows.shrink_to_fit();
    }
}
