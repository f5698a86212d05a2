//! Reading a partition: whole entries from an offset on, as pieces of memory and ranges of files.

use super::config::CHUNKS_PER_READ_MAX;
use super::index::{JournalRun, Partition, RunRow, VERIFIED};
use super::prefetch::ColdRuns;
use super::query::{Attempt, Need, Pause, Query, Sparse, Step, View};
use super::segment::Span;
use super::shared::Counters;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::EntryRef;
use polylogue_types::{Chunk, FileRange, Offset, PartitionId, RangeSource};
use std::ops::Range;
use std::sync::Arc;

/// What a read found.
#[derive(Clone, Debug)]
pub struct ReadResult {
    /// The native bytes of whole entries, one after the other. Pieces of memory pin their frame, ranges pin their file.
    pub chunks: Vec<Chunk>,
    /// Offset of the first message returned; where nothing was, the offset asked for.
    pub start: Offset,
    /// Where to go on reading.
    pub next: Offset,
    /// Native bytes in `chunks`.
    pub bytes: u64,
    /// Whether there is something at `next` already.
    pub more: bool,
    /// What is at `next` lies beyond the window of the fetch ([`ColdRuns::Within`]): reading it ahead of the next fetch spares that
    /// fetch the wait.
    pub cold: bool,
}

/// See [`super::ShardStore::read`].
#[derive(Debug)]
pub(super) struct ReadQuery {
    pub(super) partition: PartitionId,
    pub(super) from: Offset,
    pub(super) max_bytes: usize,
    pub(super) at_least_one: bool,
    pub(super) cold: ColdRuns,
    /// What attempts before this one found: a read of many pieces does not look at all of them again for each.
    pub(super) found: Option<ReadResult>,
}

impl Query for ReadQuery {
    type Out = ReadResult;

    fn attempt(&mut self, view: &View<'_>) -> Result<Step<ReadResult>> {
        let empty = Partition::default();
        let partition = view.state.partition(self.partition).unwrap_or(&empty);
        let found = self.found.take();
        let cursor = found.as_ref().map_or(self.from, |found| found.next);
        match (check_range(self.partition, partition, cursor), &found) {
            (Err(error), None) => return Err(error),
            // It was trimmed meanwhile; the next read returns the error.
            (Err(_), Some(found)) => return Ok(Step::Done(found.clone())),
            (Ok(()), _) => {}
        }
        let nothing =
            ReadResult { chunks: Vec::new(), start: self.from, next: self.from, bytes: 0, more: false, cold: false };
        let force = self.at_least_one && found.is_none();
        let out = ReadResult { cold: false, ..found.unwrap_or(nothing) };
        let mut reader = Reader {
            view,
            id: self.partition,
            partition,
            cursor,
            limit: Offset(u64::MAX),
            left: (self.max_bytes as u64).saturating_sub(out.bytes),
            force,
            cold: self.cold,
            source: None,
            out,
        };
        let filled = reader.fill();
        let mut out = reader.out;
        out.more = out.next < partition.last();
        match filled {
            Ok(()) => Ok(Step::Done(out)),
            // The few runs before it that are in memory would be a small answer, and cost the client a request.
            Err(Pause::Need(Need::ReadBack)) => Ok(Step::Need(Need::ReadBack)),
            Err(Pause::Need(need)) if out.chunks.is_empty() => Ok(Step::Need(need)),
            Err(Pause::Need(need)) => {
                self.found = Some(out);
                Ok(Step::Partial(need))
            }
            Err(Pause::Error(error)) => Err(error),
        }
    }

    fn so_far(&self) -> Option<ReadResult> {
        self.found.clone()
    }

    fn count(answer: &ReadResult, counters: &Counters) {
        for chunk in &answer.chunks {
            let counter = match chunk {
                Chunk::Bytes(_) => &counters.tail_bytes,
                Chunk::File(_) => &counters.file_bytes,
            };
            Counters::add(counter, chunk.len() as u64);
        }
    }
}

/// That an offset is one that can be read from: not below the first, not above the end.
pub(super) fn check_range(id: PartitionId, partition: &Partition, from: Offset) -> Result<()> {
    let (first, last) = (partition.first(), partition.last());
    if from < first || from > last {
        let what = format!("offset {from} of partition {id} is outside of {first} to {last}");
        return Err(Error::new(ErrorKind::OutOfRange, what));
    }
    Ok(())
}

/// Entries of a run, wherever they come from. Positions count from the start of the run.
#[derive(Clone, Copy)]
pub(super) enum Spans<'a> {
    Listed(&'a [Span]),
    Tail { entries: &'a [EntryRef], position: u32 },
}

impl Spans<'_> {
    pub(super) fn get(&self, i: usize) -> Option<Span> {
        match self {
            Spans::Listed(spans) => spans.get(i).cloned(),
            Spans::Tail { entries, position } => entries.get(i).map(|e| {
                let len = e.native.end.saturating_sub(e.native.start);
                Span::of(&e.envelope, e.native.start.saturating_sub(*position), len)
            }),
        }
    }

    /// The number of the first entry that ends above `offset`.
    pub(super) fn find(&self, offset: Offset) -> usize {
        match self {
            Spans::Listed(spans) => spans.partition_point(|s| s.end <= offset),
            Spans::Tail { entries, .. } => entries.partition_point(|e| e.envelope.next_offset() <= offset),
        }
    }
}

/// The entries of a journal run.
pub(super) fn run_spans<'a>(view: &View<'a>, id: PartitionId, run: &JournalRun) -> Attempt<Spans<'a>> {
    if let Some(frame) = view.state.frames.tail(run.slot) {
        let first = run.entry as usize;
        let entries = frame.entries.get(first..first + usize::from(run.entries)).unwrap_or_default();
        return Ok(Spans::Tail { entries, position: run.position });
    }
    Ok(Spans::Listed(&view.run_entries(id, run)?.spans))
}

struct Reader<'a> {
    view: &'a View<'a>,
    id: PartitionId,
    partition: &'a Partition,
    /// Entries that end above it are still to be returned.
    cursor: Offset,
    /// A fence begins here.
    limit: Offset,
    /// Bytes that still fit.
    left: u64,
    /// The next entry is returned even if it does not fit.
    force: bool,
    cold: ColdRuns,
    /// The file of the segment that was read last: that of the next row, nearly always.
    source: Option<(u32, Arc<dyn RangeSource>)>,
    out: ReadResult,
}

/// Whether reading goes on behind a run.
#[derive(PartialEq, Eq)]
enum Taken {
    All,
    Stop,
}

impl Reader<'_> {
    /// Collects until the bound, the end, a fence, or something that is not in memory.
    fn fill(&mut self) -> Attempt<()> {
        if self.cursor >= self.partition.last() {
            return Ok(());
        }
        if let Some((base, _)) = self.view.state.next_fence(self.id, self.cursor) {
            if base <= self.cursor && !self.out.chunks.is_empty() {
                return Ok(());
            }
            self.limit = base;
        }
        self.view.refuse_fenced(self.id, self.cursor..self.cursor.plus(1))?;
        let rows = &self.partition.rows;
        for row in rows.iter().skip(rows.partition_point(|r| r.end <= self.cursor)) {
            if self.step(row.base, row.end, u64::from(row.len), |reader| reader.row(row))? == Taken::Stop {
                return Ok(());
            }
        }
        let runs = &self.partition.runs;
        if let Some(run) = runs.get(runs.partition_point(|r| r.end() <= self.cursor)) {
            self.view.state.frames.note_read(run.slot);
        }
        for run in runs.range(runs.partition_point(|r| r.end() <= self.cursor)..) {
            if self.step(run.base, run.end(), u64::from(run.len), |reader| reader.run(run))? == Taken::Stop {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What is common to all runs: bounds, gaps, fences.
    fn step(
        &mut self,
        base: Offset,
        end: Offset,
        len: u64,
        take: impl FnOnce(&mut Self) -> Attempt<Taken>,
    ) -> Attempt<Taken> {
        let found = !self.out.chunks.is_empty();
        let full = found && (self.left == 0 || self.out.chunks.len() >= CHUNKS_PER_READ_MAX);
        // When a run does not fit, what has been found is enough: a part of it might need the disk.
        if full || base >= self.limit || (found && len > self.left) {
            return Ok(Taken::Stop);
        }
        let taken = take(self)?;
        if taken == Taken::All {
            self.cursor = self.cursor.max(end);
            self.out.next = self.cursor;
        }
        Ok(taken)
    }

    /// Whether a run can be returned as it is.
    fn whole(&self, base: Offset, end: Offset, len: u64) -> bool {
        self.cursor <= base && end <= self.limit && len <= self.left
    }

    fn row(&mut self, row: &RunRow) -> Attempt<Taken> {
        let source = self.source(row.segment)?;
        let range = |position: u32, len| FileRange {
            source: source.clone(),
            position: u64::from(row.position) + u64::from(position),
            len,
        };
        if row.marks & VERIFIED != 0 && self.whole(row.base, row.end, u64::from(row.len)) {
            self.push(row.base, row.end, Chunk::File(range(0, row.len)));
            return Ok(Taken::All);
        }
        let sparse = self.view.sparse(self.id, row)?;
        let Some(piece) = self.piece(row, &sparse)? else { return Ok(Taken::Stop) };
        if let Some(blocks) = self.unverified(row, &piece) {
            return Err(Need::Verify { partition: self.id, run: *row, blocks }.into());
        }
        let len = piece.bytes.end - piece.bytes.start;
        self.push(piece.base, piece.end, Chunk::File(range(piece.bytes.start, len)));
        Ok(if piece.end >= row.end { Taken::All } else { Taken::Stop })
    }

    fn source(&mut self, segment: u32) -> Attempt<Arc<dyn RangeSource>> {
        if let Some((_, source)) = self.source.as_ref().filter(|(of, _)| *of == segment) {
            return Ok(source.clone());
        }
        let source = self.view.handle(segment)?;
        self.source = Some((segment, source.clone()));
        Ok(source)
    }

    /// The part of a segment's run that is to be returned; none where the first entry does not fit.
    fn piece(&self, row: &RunRow, sparse: &Sparse) -> Attempt<Option<Piece>> {
        let blocks = &sparse.index.blocks;
        let end_of = |i: usize| blocks.get(i + 1).map_or(row.end, |next| next.base);
        let mut at = if self.cursor <= row.base { 0 } else { sparse.index.find(self.cursor) };
        let mut inside = None;
        if blocks.get(at).is_some_and(|b| b.base < self.cursor) {
            let entries = self.view.block_entries(self.id, row, at)?;
            match entries.spans.get(entries.find(self.cursor)) {
                Some(span) => inside = Some((span.base, span.position)),
                // The offset lies in a gap at the end of the block.
                None => at += 1,
            }
        }
        let Some(first) = blocks.get(at).filter(|b| b.base < self.limit) else { return Ok(None) };
        let (base, skipped) = inside.unwrap_or((first.base, 0));
        let start = first.position + skipped;
        let fits = |i: &usize| {
            let end = blocks.get(*i).map_or(0, |b| b.position + b.len);
            u64::from(end - start) <= self.left && end_of(*i) <= self.limit
        };
        if let Some(last) = (at..blocks.len()).take_while(fits).last() {
            let end = blocks.get(last).map_or(start, |b| b.position + b.len);
            return Ok(Some(Piece { base, end: end_of(last), bytes: start..end, blocks: at..last + 1 }));
        }
        // A block of one entry needs no look into it: the entry fits whole or not at all.
        if first.entries == 1 && end_of(at) <= self.limit {
            let bytes = first.position..first.position + first.len;
            let piece = Piece { base: first.base, end: end_of(at), bytes, blocks: at..at + 1 };
            return Ok((self.force || u64::from(first.len) <= self.left).then_some(piece));
        }
        // Less than what is left of one block.
        let entries = self.view.block_entries(self.id, row, at)?;
        let part = self.part(Spans::Listed(&entries.spans), entries.find(self.cursor.max(base)));
        Ok(part.map(|p| Piece {
            base,
            end: p.end,
            bytes: first.position + p.bytes.start..first.position + p.bytes.end,
            blocks: at..at + 1,
        }))
    }

    /// Entries from number `first` on, as many as fit.
    fn part(&self, spans: Spans<'_>, first: usize) -> Option<Piece> {
        let head = spans.get(first)?;
        let mut part = Piece { base: head.base, end: head.base, bytes: head.position..head.position, blocks: 0..0 };
        let mut left = self.left;
        let mut force = self.force;
        for i in first.. {
            let Some(span) = spans.get(i) else { break };
            if span.end > self.limit || (u64::from(span.len) > left && !force) {
                break;
            }
            left = left.saturating_sub(u64::from(span.len));
            force = false;
            (part.end, part.bytes.end) = (span.end, span.position + span.len);
        }
        (part.end > part.base).then_some(part)
    }

    fn unverified(&self, row: &RunRow, piece: &Piece) -> Option<Range<usize>> {
        let verified = |block: &usize| self.view.state.segments.is_verified(row.segment, row.row, *block as u32);
        if row.marks & VERIFIED != 0 || piece.blocks.clone().all(|b| verified(&b)) {
            None
        } else {
            Some(piece.blocks.clone())
        }
    }

    fn run(&mut self, run: &JournalRun) -> Attempt<Taken> {
        let (start, end, part) = if self.whole(run.base, run.end(), u64::from(run.len)) {
            (run.base, run.end(), 0..run.len)
        } else if run.entries == 1 && run.end() <= self.limit {
            // One entry fits whole or not at all: there is no need to look into it.
            if !self.force && u64::from(run.len) > self.left {
                return Ok(Taken::Stop);
            }
            (run.base, run.end(), 0..run.len)
        } else {
            let spans = run_spans(self.view, self.id, run)?;
            match self.part(spans, spans.find(self.cursor)) {
                Some(piece) => (piece.base, piece.end, piece.bytes),
                None => return Ok(Taken::Stop),
            }
        };
        let place = run.position + part.start..run.position + part.end;
        if let Some(frame) = self.view.state.frames.tail(run.slot) {
            self.push(start, end, Chunk::Bytes(frame.bytes.slice(place.start as usize..place.end as usize)));
        } else {
            match self.cold {
                ColdRuns::Within(window) if !self.force && self.view.is_behind(run, window) => {
                    self.out.cold = true;
                    return Ok(Taken::Stop);
                }
                ColdRuns::Ask if self.view.can_be_read_back(run) => return Err(Need::ReadBack.into()),
                _ => {}
            }
            if run.marks & VERIFIED == 0 {
                let range = self.view.frame_range(run, Some(run.position..run.position + run.len))?;
                return Err(Need::VerifyRun { partition: self.id, run: *run, range }.into());
            }
            match self.view.read_back(run, place.clone()) {
                Some((first, second)) => {
                    self.push(start, end, Chunk::Bytes(first));
                    second.into_iter().for_each(|second| self.push(start, end, Chunk::Bytes(second)));
                }
                None => self.push(start, end, Chunk::File(self.view.frame_range(run, Some(place))?)),
            }
        }
        Ok(if end >= run.end() { Taken::All } else { Taken::Stop })
    }

    /// Adds a piece; one that follows the last one in the same file makes it longer.
    fn push(&mut self, base: Offset, end: Offset, chunk: Chunk) {
        if self.out.chunks.is_empty() {
            self.out.start = base;
        }
        let len = chunk.len() as u64;
        self.out.bytes += len;
        self.left = self.left.saturating_sub(len);
        self.force = false;
        self.out.next = end;
        self.cursor = self.cursor.max(end);
        if let (Some(Chunk::File(last)), Chunk::File(new)) = (self.out.chunks.last_mut(), &chunk)
            && Arc::ptr_eq(&last.source, &new.source)
            && last.position + u64::from(last.len) == new.position
            && let Some(len) = last.len.checked_add(new.len)
        {
            last.len = len;
            return;
        }
        self.out.chunks.push(chunk);
    }
}

/// A part of a run.
struct Piece {
    base: Offset,
    end: Offset,
    /// From the start of the run.
    bytes: Range<u32>,
    blocks: Range<usize>,
}
