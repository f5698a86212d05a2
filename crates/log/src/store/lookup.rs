//! Finding single entries: by offset, by time, the one with the highest time.

use super::config::RUNS_PER_LOCK_MAX;
use super::index::{JournalRun, Partition, RunRow, VERIFIED};
use super::query::{Attempt, Need, Query, Step, View, step};
use super::read::{Spans, check_range, run_spans};
use super::segment::Span;
use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use polylogue_record::envelope::{Envelope, Form};
use polylogue_types::{FileRange, Offset, Ordinal, PartitionId, TimestampMs};

/// The identity and timestamp of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryLocation {
    /// Offset of the first message.
    pub base: Offset,
    /// Offset after the last message.
    pub end: Offset,
    /// Its number in the partition.
    pub ordinal: Ordinal,
    /// Highest timestamp of its messages, -1 for none.
    pub max_timestamp: TimestampMs,
    /// The leader epoch in which it was appended.
    pub leader_epoch: u32,
}

impl From<&Span> for EntryLocation {
    fn from(span: &Span) -> EntryLocation {
        EntryLocation {
            base: span.base,
            end: span.end,
            ordinal: span.ordinal,
            max_timestamp: span.max_timestamp,
            leader_epoch: span.leader_epoch,
        }
    }
}

/// One entry.
#[derive(Clone, Debug)]
pub struct EntryAt {
    /// Where it is in its partition.
    pub location: EntryLocation,
    /// The form of its native bytes.
    pub form: Form,
    /// Its envelope. A Kafka batch that has left the journal has none: the batch contains all of its fields.
    pub envelope: Option<Envelope>,
    /// Its native bytes.
    pub bytes: Bytes,
}

/// See [`super::ShardStore::entry_at`].
#[derive(Debug)]
pub(super) struct EntryQuery {
    pub(super) partition: PartitionId,
    pub(super) offset: Offset,
}

impl Query for EntryQuery {
    type Out = EntryAt;

    fn attempt(&mut self, view: &View<'_>) -> Result<Step<EntryAt>> {
        let wanted = Wanted { partition: self.partition, offset: self.offset, entries_max: 1, bytes_max: 0 };
        let mut found = None;
        let looked = wanted.find(view, &mut |entry| found = Some(entry));
        step(looked.and_then(|()| found.ok_or_else(|| wanted.misfit().into())))
    }
}

/// See [`super::ShardStore::entries_from`].
#[derive(Debug)]
pub(super) struct EntriesQuery(pub(super) Wanted);

impl Query for EntriesQuery {
    type Out = Vec<EntryAt>;

    fn attempt(&mut self, view: &View<'_>) -> Result<Step<Vec<EntryAt>>> {
        let mut found = Vec::new();
        let entries = self.0.find(view, &mut |entry| found.push(entry));
        step(entries.and_then(|()| if found.is_empty() { Err(self.0.misfit().into()) } else { Ok(found) }))
    }
}

/// Entries that stand one after the other, the first of which has an offset or is the next one after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) partition: PartitionId,
    pub(super) offset: Offset,
    pub(super) entries_max: usize,
    /// Their bytes, unless the first one alone has more.
    pub(super) bytes_max: usize,
}

/// Entries of a block or of a run, and their bytes in one piece.
struct Stretch<'a> {
    form: Form,
    spans: &'a [Span],
    envelopes: &'a [Envelope],
    bytes: Bytes,
}

impl Stretch<'_> {
    fn each(&self, take: &mut dyn FnMut(EntryAt)) {
        let start = self.spans.first().map_or(0, |span| span.position);
        for (number, span) in self.spans.iter().enumerate() {
            let from = (span.position - start) as usize;
            take(EntryAt {
                location: EntryLocation::from(span),
                form: self.form,
                envelope: self.envelopes.get(number).cloned(),
                bytes: self.bytes.slice(from..from + span.len as usize),
            });
        }
    }
}

/// Where the bytes of spans are, from the first to the last of them.
fn extent(spans: &[Span]) -> Option<(u32, u32)> {
    let (first, last) = (spans.first()?, spans.last()?);
    Some((first.position, last.position + last.len - first.position))
}

impl Wanted {
    fn absent(&self) -> Error {
        let what = format!("partition {} has no entry at offset {} or after it", self.partition, self.offset);
        Error::new(ErrorKind::OutOfRange, what)
    }

    fn misfit(&self) -> Error {
        let what = format!("the index of partition {} does not fit its entries", self.partition);
        Error::new(ErrorKind::Damaged, what)
    }

    fn find(&self, view: &View<'_>, take: &mut dyn FnMut(EntryAt)) -> Attempt<()> {
        let absent = || self.absent();
        let partition = view.state.partition(self.partition).ok_or_else(absent)?;
        check_range(self.partition, partition, self.offset)?;
        view.refuse_fenced(self.partition, self.offset..self.offset.plus(1))?;
        let rows = &partition.rows;
        match rows.get(rows.partition_point(|r| r.end <= self.offset)) {
            Some(row) => self.in_row(view, row, take),
            None => {
                let at = partition.runs.partition_point(|r| r.end() <= self.offset);
                self.in_run(view, partition.runs.get(at).ok_or_else(absent)?, take)
            }
        }
    }

    /// How many of these entries are taken, at least one: each with its length, and whether it stands right behind the one before.
    fn count(&self, view: &View<'_>, entries: impl Iterator<Item = (Offset, u32, bool)>) -> usize {
        let fenced = view.state.next_fence(self.partition, self.offset).map(|(base, _)| base);
        let mut bytes = 0usize;
        let taken = entries.take(self.entries_max.max(1)).enumerate().take_while(|(number, (base, len, follows))| {
            bytes = bytes.saturating_add(*len as usize);
            *number == 0 || (*follows && bytes <= self.bytes_max && fenced.is_none_or(|fence| *base < fence))
        });
        taken.count()
    }

    /// The spans that are taken of those from `number` on.
    fn some<'s>(&self, view: &View<'_>, spans: &'s [Span], number: usize) -> &'s [Span] {
        let spans = spans.get(number..).unwrap_or_default();
        let mut end = spans.first().map_or(0, |span| span.position);
        let entries = spans.iter().map(|span| {
            let follows = span.position == end;
            end = span.position.wrapping_add(span.len);
            (span.base, span.len, follows)
        });
        let count = self.count(view, entries);
        spans.get(..count).unwrap_or_default()
    }

    fn in_row(&self, view: &View<'_>, row: &RunRow, take: &mut dyn FnMut(EntryAt)) -> Attempt<()> {
        let offset = self.offset.max(row.base);
        view.refuse_fenced(self.partition, offset..offset.plus(1))?;
        let sparse = view.sparse(self.partition, row)?;
        let mut at = sparse.index.find(offset);
        let mut entries = view.block_entries(self.partition, row, at)?;
        if entries.find(offset) == entries.spans.len()
            && let Some(next) = sparse.index.blocks.get(at + 1)
        {
            // The offset lies in a gap at the end of the block.
            view.refuse_fenced(self.partition, next.base..next.base.plus(1))?;
            at += 1;
            entries = view.block_entries(self.partition, row, at)?;
        }
        let source = view.handle(row.segment)?;
        let block = sparse.index.blocks.get(at).map_or(0, |b| b.position);
        let number = entries.find(offset);
        let spans = self.some(view, &entries.spans, number);
        let Some((start, len)) = extent(spans) else { return Ok(()) };
        let position = u64::from(row.position) + u64::from(block) + u64::from(start);
        let bytes = view.verified(self.partition, row, at, FileRange { source, position, len })?;
        let envelopes = entries.envelopes.get(number..).unwrap_or_default();
        Stretch { form: row.form, spans, envelopes, bytes }.each(take);
        Ok(())
    }

    fn in_run(&self, view: &View<'_>, run: &JournalRun, take: &mut dyn FnMut(EntryAt)) -> Attempt<()> {
        if let Some(frame) = view.state.frames.tail(run.slot) {
            let first = run.entry as usize;
            let entries = frame.entries.get(first..first + usize::from(run.entries)).unwrap_or_default();
            let at = entries.partition_point(|e| e.envelope.next_offset() <= self.offset);
            let entries = entries.get(at..).unwrap_or_default();
            let known = entries.iter().map(|e| (e.envelope.base_offset, e.native.end - e.native.start, true));
            for e in entries.iter().take(self.count(view, known)) {
                take(EntryAt {
                    location: EntryLocation::from(&Span::of(&e.envelope, 0, 0)),
                    form: run.form,
                    envelope: Some(e.envelope.clone()),
                    bytes: frame.native(e),
                });
            }
            return Ok(());
        }
        view.refuse_fenced(self.partition, run.base..run.end())?;
        if run.marks & VERIFIED == 0 {
            let range = view.frame_range(run, Some(run.position..run.position + run.len))?;
            return Err(Need::VerifyRun { partition: self.partition, run: *run, range }.into());
        }
        let entries = view.run_entries(self.partition, run)?;
        let number = entries.find(self.offset);
        let spans = self.some(view, &entries.spans, number);
        let Some((start, len)) = extent(spans) else { return Ok(()) };
        let start = run.position + start;
        let bytes = view.bytes(view.frame_range(run, Some(start..start + len))?)?;
        let envelopes = entries.envelopes.get(number..).unwrap_or_default();
        Stretch { form: run.form, spans, envelopes, bytes }.each(take);
        Ok(())
    }
}

/// See [`super::ShardStore::find_by_time`].
#[derive(Debug)]
pub(super) struct TimeQuery {
    pub(super) partition: PartitionId,
    pub(super) time: TimestampMs,
    /// Entries that end at or below it do not count.
    pub(super) from: Offset,
    /// Runs below it were looked at.
    pub(super) cursor: Offset,
}

impl Query for TimeQuery {
    type Out = Option<EntryLocation>;

    fn attempt(&mut self, view: &View<'_>) -> Result<Step<Option<EntryLocation>>> {
        let mut looked = 0;
        match step(self.find(view, &mut looked))? {
            Step::Done(None) if looked >= RUNS_PER_LOCK_MAX => Ok(Step::Again),
            other => Ok(other),
        }
    }
}

impl TimeQuery {
    /// Looks at one run after the other; none when there is none, or when enough were looked at.
    fn find(&mut self, view: &View<'_>, looked: &mut usize) -> Attempt<Option<EntryLocation>> {
        let Some(partition) = view.state.partition(self.partition) else { return Ok(None) };
        let start = partition.first().max(self.from);
        let rows = &partition.rows;
        for row in rows.iter().skip(rows.partition_point(|r| r.end <= self.cursor.max(self.from))) {
            self.refuse_hole(view, start, row.base)?;
            if row.max_timestamp >= self.time
                && let Some(found) = self.in_row(view, row, row.base.max(start))?
            {
                return Ok(Some(found));
            }
            self.cursor = row.end;
            *looked += 1;
            if *looked >= RUNS_PER_LOCK_MAX {
                return Ok(None);
            }
        }
        let runs = &partition.runs;
        for run in runs.range(runs.partition_point(|r| r.end() <= self.cursor.max(self.from))..) {
            self.refuse_hole(view, start, run.base)?;
            if run.max_timestamp >= self.time
                && let Some(found) = self.in_run(view, run, run.base.max(start))?
            {
                return Ok(Some(found));
            }
            self.cursor = run.end();
            *looked += 1;
            if *looked >= RUNS_PER_LOCK_MAX {
                return Ok(None);
            }
        }
        *looked = 0;
        Ok(None)
    }

    /// What lacks between two runs may have been the entry.
    fn refuse_hole(&self, view: &View<'_>, start: Offset, base: Offset) -> Result<()> {
        let from = self.cursor.max(start);
        if view.state.holes.is_empty() || from >= base {
            return Ok(());
        }
        view.refuse_fenced(self.partition, from..base)
    }

    fn in_row(&self, view: &View<'_>, row: &RunRow, first: Offset) -> Attempt<Option<EntryLocation>> {
        if view.state.next_fence(self.partition, first).is_some_and(|(base, end)| base <= row.base && end >= row.end) {
            view.refuse_fenced(self.partition, first..row.end)?;
        }
        let sparse = view.sparse(self.partition, row)?;
        let blocks = &sparse.index.blocks;
        for (number, block) in blocks.iter().enumerate().skip(sparse.index.find(first)) {
            if block.max_timestamp < self.time {
                continue;
            }
            let end = blocks.get(number + 1).map_or(row.end, |next| next.base);
            view.refuse_fenced(self.partition, block.base..end)?;
            let entries = view.block_entries(self.partition, row, number)?;
            if let Some(found) = self.first_of(Spans::Listed(&entries.spans), first) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn in_run(&self, view: &View<'_>, run: &JournalRun, first: Offset) -> Attempt<Option<EntryLocation>> {
        view.refuse_fenced(self.partition, run.base..run.end())?;
        Ok(self.first_of(run_spans(view, self.partition, run)?, first))
    }

    fn first_of(&self, spans: Spans<'_>, first: Offset) -> Option<EntryLocation> {
        (spans.find(first)..).map_while(|i| spans.get(i)).find(|s| s.max_timestamp >= self.time).map(|s| (&s).into())
    }
}

/// See [`super::ShardStore::max_timestamp_entry`]. Two passes: the highest timestamp of all runs, then the first entry that
/// has it. A run whose front is trimmed, or does not count, may owe its timestamp to that, so its entries are looked at.
#[derive(Debug)]
pub(super) struct MaxTimeQuery {
    pub(super) partition: PartitionId,
    /// Entries that end at or below it do not count.
    pub(super) from: Offset,
    /// Runs below it were looked at.
    pub(super) cursor: Offset,
    pub(super) highest: Option<TimestampMs>,
    pub(super) find: Option<TimeQuery>,
}

impl Query for MaxTimeQuery {
    type Out = Option<EntryLocation>;

    fn attempt(&mut self, view: &View<'_>) -> Result<Step<Option<EntryLocation>>> {
        if self.find.is_none() {
            match step(self.look(view))? {
                Step::Done(true) => {}
                Step::Done(false) => return Ok(Step::Again),
                Step::Need(need) | Step::Partial(need) => return Ok(Step::Need(need)),
                Step::Again => return Ok(Step::Again),
            }
            let Some(time) = self.highest else { return Ok(Step::Done(None)) };
            self.find = Some(TimeQuery { partition: self.partition, time, from: self.from, cursor: Offset(0) });
        }
        self.find.as_mut().map_or(Ok(Step::Done(None)), |find| find.attempt(view))
    }
}

impl MaxTimeQuery {
    /// Goes over the runs for the highest timestamp; false when there are more.
    fn look(&mut self, view: &View<'_>) -> Attempt<bool> {
        let Some(partition) = view.state.partition(self.partition) else { return Ok(true) };
        let first = partition.first().max(self.from);
        if self.cursor <= first
            && let Some((highest, end)) = front_highest(view, self.partition, partition, first)?
        {
            (self.highest, self.cursor) = (highest, end);
        }
        // A merge at work keeps runs that are not wanted any more.
        let gone = |base: Offset, end: Offset| base < self.cursor || end <= first;
        let rows = partition.rows.iter().skip(partition.rows.partition_point(|r| gone(r.base, r.end)));
        let at = partition.runs.partition_point(|r| gone(r.base, r.end()));
        let runs = partition.runs.range(at..).map(|r| (r.max_timestamp, r.end()));
        for (looked, (max_timestamp, end)) in rows.map(|r| (r.max_timestamp, r.end)).chain(runs).enumerate() {
            if looked >= RUNS_PER_LOCK_MAX {
                return Ok(false);
            }
            (self.highest, self.cursor) = (self.highest.max(Some(max_timestamp)), end);
        }
        Ok(true)
    }
}

/// Of the first run, when its front is trimmed or does not count: the highest timestamp of the entries that are left, if any are,
/// and the run's end.
fn front_highest(
    view: &View<'_>,
    id: PartitionId,
    partition: &Partition,
    first: Offset,
) -> Attempt<Option<(Option<TimestampMs>, Offset)>> {
    let highest = |spans: Spans<'_>| (spans.find(first)..).map_while(|i| spans.get(i)).map(|s| s.max_timestamp).max();
    if let Some(row) = partition.rows.iter().find(|r| r.end > first) {
        if row.base >= first {
            return Ok(None);
        }
        view.refuse_fenced(id, first..first.plus(1))?;
        let sparse = view.sparse(id, row)?;
        let number = sparse.index.find(first);
        let here = highest(Spans::Listed(&view.block_entries(id, row, number)?.spans));
        let behind = sparse.index.blocks.iter().skip(number + 1).map(|b| b.max_timestamp).max();
        return Ok(Some((here.max(behind), row.end)));
    }
    let at = partition.runs.partition_point(|r| r.end() <= first);
    let Some(run) = partition.runs.get(at).filter(|r| r.base < first) else { return Ok(None) };
    view.refuse_fenced(id, run.base..run.end())?;
    Ok(Some((highest(run_spans(view, id, run)?), run.end())))
}
