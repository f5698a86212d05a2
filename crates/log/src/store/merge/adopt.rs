//! Making a segment of a journal file as it is: only an index is written.
//!
//! ```text
//!   1  NAME.seg written and flushed                                    crash: it is left over
//!   2  the journal lets the file go                                    crash: the journal finds it again
//!   3  journal/N.plj renamed to segments/NAME.journal, both            crash: the next start gives it back to the
//!      directories flushed                                                    journal (see open.rs)
//!   4  manifest names the segment, merged up to its end
//!   5  the index is switched
//! ```

use super::preload::Preload;
use super::sorted::{Moving, fetch_in_place};
use super::{MergeReport, SealedJournal, Stepped};
use crate::error::{Error, ErrorKind, Result};
use crate::journal::SealedFile;
use crate::store::index::{JournalRun, State};
use crate::store::manifest::flushed;
use crate::store::segment::writer::SegmentWriter;
use crate::store::segment::{SegmentKind, SegmentName};
use crate::store::shared::{Counters, Shared};
use polylogue_types::{Index, PartitionId};
use std::collections::VecDeque;

/// Of runs that stay where they are only the envelope tables are read: a step goes over so many times what a merge moves in one.
const STEPS_AT_ONCE: usize = 16;

/// Files that are being adopted, one after the other.
pub(super) struct AdoptWork {
    files: VecDeque<SealedFile>,
    current: Option<Indexing>,
}

/// A file whose index is being written.
struct Indexing {
    preload: Preload,
    runs: Vec<(PartitionId, JournalRun)>,
    next: usize,
    writer: SegmentWriter,
    native_bytes: u64,
}

impl AdoptWork {
    pub(super) fn new(files: Vec<SealedFile>) -> AdoptWork {
        AdoptWork { files: files.into(), current: None }
    }

    /// The segments that it has begun and the manifest may not name.
    pub(super) fn begun(&self) -> Vec<SegmentName> {
        self.files.front().and_then(|f| Some(name_of(f, f.indexes?))).into_iter().collect()
    }

    /// One piece.
    pub(super) fn step(
        &mut self,
        shared: &Shared,
        journal: &dyn SealedJournal,
        report: &mut MergeReport,
    ) -> Result<Stepped> {
        let Some((file, (first, last))) = self.files.front().and_then(|f| Some((f.clone(), f.indexes?))) else {
            return Ok(Stepped::Done);
        };
        let mut current = match self.current.take() {
            Some(current) => current,
            None => begin(shared, name_of(&file, (first, last)))?,
        };
        if let Some(bytes) = current.preload.step() {
            self.current = Some(current);
            return Ok(Stepped::Preloaded(bytes));
        }
        if !current.step(shared, report)? {
            self.current = Some(current);
            return Ok(Stepped::Written);
        }
        current.finish(shared, journal, &file, last, report)?;
        self.files.pop_front();
        Ok(if self.files.is_empty() { Stepped::Done } else { Stepped::Written })
    }
}

fn name_of(file: &SealedFile, (first, upto): (Index, Index)) -> SegmentName {
    let (kind, journal_file) = (SegmentKind::Adopted, file.sequence);
    SegmentName { upto, first, kind, class: 0, part: 0, rewrite: 0, journal_file }
}

fn begin(shared: &Shared, name: SegmentName) -> Result<Indexing> {
    let (first, last) = (name.first, name.upto);
    let mut runs = Vec::new();
    let preload;
    {
        let state = shared.state.lock();
        preload = Preload::in_place(&state.frames, name.journal_file, shared.config.merge_preload_bytes_max);
        for (id, partition) in &state.partitions {
            let start = partition.runs.partition_point(|r| index_of(&state, r).is_none_or(|i| i < first));
            let mine = partition.runs.range(start..).take_while(|r| index_of(&state, r).is_some_and(|i| i <= last));
            runs.extend(mine.map(|r| (*id, *r)));
        }
    }
    runs.sort_unstable_by_key(|(id, run)| (*id, run.base));
    let native_bytes = runs.iter().map(|(_, r)| u64::from(r.len)).sum();
    Ok(Indexing { preload, runs, next: 0, writer: shared.begin_segment(name)?, native_bytes })
}

fn index_of(state: &State, run: &JournalRun) -> Option<Index> {
    state.frames.slot(run.slot).map(|s| s.index)
}

impl Indexing {
    /// Writes the index of some runs, and verifies those that were not since the start; true when there are no more.
    fn step(&mut self, shared: &Shared, report: &mut MergeReport) -> Result<bool> {
        let mut batch = Vec::new();
        let mut positions = Vec::new();
        {
            let state = shared.state.lock();
            let mut bytes = 0;
            while let Some((id, run)) = self.runs.get(self.next)
                && bytes < shared.config.merge_step_bytes.saturating_mul(STEPS_AT_ONCE)
            {
                batch.push(Moving::new(0, *id, *run, &state)?);
                positions.push(state.frames.slot(run.slot).map_or(0, |s| s.position) + u64::from(run.position));
                bytes += run.len as usize;
                self.next += 1;
            }
        }
        fetch_in_place(shared, self.writer.name().upto, &mut batch)?;
        for (moving, position) in batch.iter().zip(positions) {
            self.writer.begin_run(moving.partition(), moving.run.form, Some(position))?;
            if !moving.add_to(shared, &mut self.writer)? {
                report.damaged += 1;
            }
            self.writer.end_run()?;
        }
        let bytes = self.writer.buffered() as u64;
        shared.flushed(self.writer.write_piece())?;
        report.written += bytes;
        Counters::add(&shared.counters.merged_bytes, bytes);
        Ok(self.next >= self.runs.len())
    }

    fn finish(
        self,
        shared: &Shared,
        journal: &dyn SealedJournal,
        file: &SealedFile,
        last: Index,
        report: &mut MergeReport,
    ) -> Result<()> {
        let before = self.writer.written();
        let finished = shared.flushed(self.writer.finish())?;
        report.written += finished.len - before;
        Counters::add(&shared.counters.merged_bytes, finished.len - before);
        if let Some(upto) = shared.covered_upto() {
            // Files are adopted in log order: the journal must know that the older ones are not needed.
            journal.release(upto)?;
        }
        let adopted = journal.adopt(file.sequence).map_err(|e| match e.kind {
            // What follows the file is not flushed yet; it soon is.
            ErrorKind::Invalid => Error { kind: ErrorKind::Busy, ..e },
            _ => e,
        })?;
        let to = shared.segments_dir().join(finished.name.data_file());
        let from = &adopted.path;
        shared.env.disk.rename(from, &to).map_err(|e| Error::io(format!("cannot adopt {}", from.display()), e))?;
        flushed(&shared.env, shared.env.disk.sync_dir(&shared.segments_dir()), "the directory of segments")?;
        if let Some(dir) = from.parent() {
            flushed(&shared.env, shared.env.disk.sync_dir(dir), "the directory of the journal")?;
        }
        let data_len = finished.rows.iter().map(|r| u64::from(r.position) + u64::from(r.len)).max().unwrap_or(0);
        let finished = vec![(finished, data_len)];
        shared.name_segments(last, &finished)?;
        super::switch::install(shared, last, finished, Some(adopted.file.clone().as_range_source()))?;
        super::switch::cover(shared, last);
        // What was reserved behind the last frame is room that would never be used. If it cannot be given back now, it
        // comes back with the file.
        let _ = adopted.file.set_len(file.end);
        report.segments += 1;
        report.adopted += self.native_bytes;
        Counters::add(&shared.counters.adopted_bytes, self.native_bytes);
        Ok(())
    }
}
