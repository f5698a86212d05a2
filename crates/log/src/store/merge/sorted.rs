//! Merging runs of journal files into sorted segments.

use super::preload::Preload;
use super::{Classes, MergeReport, Stepped};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{EntryRef, Frame};
use crate::store::config::{RUN_BYTES_MAX, RUNS_PER_LOCK_MAX, SEGMENT_BYTES_MAX};
use crate::store::frames::read_entries;
use crate::store::index::{FencedRange, JournalRun, State, VERIFIED};
use crate::store::query::{read_kept, read_once};
use crate::store::segment::writer::{Finished, NewEntry, SegmentWriter};
use crate::store::segment::{SegmentKind, SegmentName, entries};
use crate::store::shared::{Counters, Shared};
use bytes::Bytes;
use polylogue_record::crc;
use polylogue_record::envelope::{Body, Envelope};
use polylogue_types::{FileRange, Index, Ordinal, PartitionId};
use std::sync::Arc;

/// Pieces of a journal file that are nearer to each other than this are read at once. Bytes.
const READ_GAP_BYTES_MAX: u64 = 16 << 10;
/// The most that is read at once, unless one run alone is larger. Bytes.
const READ_BYTES_MAX: u64 = 1 << 20;

/// A sorted merge at work.
pub(super) struct SortedWork {
    preload: Preload,
    first: Index,
    /// What is merged, in the order of the segments.
    order: Vec<(u8, PartitionId)>,
    /// The partition that comes next, and the first of its runs that was not taken yet.
    next: usize,
    next_run: usize,
    writer: Option<SegmentWriter>,
    partition: Option<PartitionId>,
    finished: Vec<(Finished, u64)>,
}

/// A run on its way into a segment.
pub(super) struct Moving {
    class: u8,
    partition: PartitionId,
    pub(super) run: JournalRun,
    /// Where it is read from: its frame in memory or in the file.
    from: From,
    bytes: Bytes,
    /// Of forms that do not describe themselves.
    envelopes: Vec<Envelope>,
    /// The disk gave an error instead of its bytes or envelopes.
    unread: Option<Error>,
}

enum From {
    Tail(Arc<Frame>),
    File(FileRange),
}

impl SortedWork {
    /// At most so many bytes of journal are brought into memory for it at first.
    pub(super) fn new(state: &State, first: Index, upto: Index, preload_bytes_max: u64) -> SortedWork {
        let ripe = |run: &JournalRun| state.frames.slot(run.slot).is_some_and(|s| s.index <= upto);
        let order = state.partitions.iter().filter(|(_, p)| p.runs.front().is_some_and(ripe)).map(|(id, _)| (0, *id));
        SortedWork {
            preload: Preload::upto(&state.frames, upto, preload_bytes_max),
            first,
            order: order.collect(),
            next: 0,
            next_run: 0,
            writer: None,
            partition: None,
            finished: Vec::new(),
        }
    }

    /// The segments that it has begun.
    pub(super) fn begun(&self) -> Vec<SegmentName> {
        self.finished.iter().map(|(f, _)| f.name).chain(self.writer.as_ref().map(|w| *w.name())).collect()
    }

    /// Asks for the classes, without the lock.
    pub(super) fn classify(&mut self, classes: &dyn Classes) {
        for (class, id) in &mut self.order {
            *class = classes.class_of(*id);
        }
        self.order.sort_unstable();
    }

    /// One piece.
    pub(super) fn step(&mut self, shared: &Shared, upto: Index, report: &mut MergeReport) -> Result<Stepped> {
        if let Some(bytes) = self.preload.step() {
            return Ok(Stepped::Preloaded(bytes));
        }
        let mut batch = self.collect(shared, upto)?;
        if batch.is_empty() {
            self.end_segment(shared, report)?;
            shared.name_segments(upto, &self.finished)?;
            let finished = std::mem::take(&mut self.finished);
            report.segments += finished.len();
            super::switch::install(shared, upto, finished, None)?;
            return Ok(Stepped::Done);
        }
        fetch(shared, upto, &mut batch)?;
        for moving in &batch {
            self.place(shared, upto, moving, report)?;
        }
        if let Some(writer) = &mut self.writer {
            let bytes = writer.buffered() as u64;
            shared.flushed(writer.write_piece())?;
            count(shared, report, bytes);
        }
        Ok(Stepped::Written)
    }

    /// The next runs in the order of the segments, about as many as a step may move.
    fn collect(&mut self, shared: &Shared, upto: Index) -> Result<Vec<Moving>> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while bytes < shared.config.merge_step_bytes && self.next < self.order.len() {
            let state = shared.state.lock();
            for _ in 0..RUNS_PER_LOCK_MAX {
                let Some((class, id)) = self.order.get(self.next).copied() else { break };
                let run = state.partitions.get(&id).and_then(|p| p.runs.get(self.next_run));
                let slot = run.and_then(|r| state.frames.slot(r.slot)).filter(|s| s.index <= upto);
                let (Some(run), Some(_)) = (run, slot) else {
                    (self.next, self.next_run) = (self.next + 1, 0);
                    continue;
                };
                batch.push(Moving::new(class, id, *run, &state)?);
                bytes += run.len as usize;
                self.next_run += 1;
                if bytes >= shared.config.merge_step_bytes {
                    break;
                }
            }
        }
        Ok(batch)
    }

    /// Puts a run into the segment that it belongs to.
    fn place(&mut self, shared: &Shared, upto: Index, moving: &Moving, report: &mut MergeReport) -> Result<()> {
        let fits = |w: &SegmentWriter| {
            w.name().class == moving.class && w.position() + u64::from(moving.run.len) <= SEGMENT_BYTES_MAX
        };
        if !self.writer.as_ref().is_some_and(fits) {
            self.end_segment(shared, report)?;
            let before = self.finished.last().map(|(f, _)| f.name);
            let part = before.filter(|n| n.class == moving.class).map_or(0, |n| n.part + 1);
            let (first, class) = (self.first, moving.class);
            let kind = SegmentKind::Sorted;
            let name = SegmentName { upto, first, kind, class, part, rewrite: 0, journal_file: 0 };
            self.writer = Some(shared.begin_segment(name)?);
            self.partition = None;
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let long = u64::from(writer.run_len()) + u64::from(moving.run.len) > u64::from(RUN_BYTES_MAX);
        if self.partition != Some(moving.partition) || long || writer.run_form() != Some(moving.run.form) {
            writer.begin_run(moving.partition, moving.run.form, None)?;
            self.partition = Some(moving.partition);
        }
        if !moving.add_to(shared, writer)? {
            report.damaged += 1;
        }
        writer.native(&moving.native());
        Ok(())
    }

    fn end_segment(&mut self, shared: &Shared, report: &mut MergeReport) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            let (before, name) = (writer.written(), *writer.name());
            let finished = shared.flushed(writer.finish()).inspect_err(|_| shared.discard(&[name]))?;
            count(shared, report, finished.len - before);
            let len = finished.len;
            self.finished.push((finished, len));
        }
        Ok(())
    }
}

fn count(shared: &Shared, report: &mut MergeReport, bytes: u64) {
    report.written += bytes;
    Counters::add(&shared.counters.merged_bytes, bytes);
}

/// Reads the runs of a batch, in the order in which they stand in the journal files. An error of the disk fails the merge up to
/// `upto`, until it has failed for `unreadable_ms_max`: then what cannot be read is damage, because otherwise a bad sector would
/// keep the journal for ever.
pub(super) fn fetch(shared: &Shared, upto: Index, batch: &mut [Moving]) -> Result<()> {
    read_all(batch, |_| true);
    list(batch, |moving| !entries::describes_itself(moving.run.form));
    give_up_or_go_on(shared, upto, batch)
}

/// Learns of the runs of a batch whose bytes stay where they are what their index needs. Of those that were verified since the
/// start, that is in the envelope tables of their frames, and their bytes need not be read.
pub(super) fn fetch_in_place(shared: &Shared, upto: Index, batch: &mut [Moving]) -> Result<()> {
    list(batch, |moving| moving.run.marks & VERIFIED != 0 || !entries::describes_itself(moving.run.form));
    read_all(batch, |moving| !moving.is_known());
    give_up_or_go_on(shared, upto, batch)
}

fn give_up_or_go_on(shared: &Shared, upto: Index, batch: &mut [Moving]) -> Result<()> {
    match batch.iter_mut().find_map(|moving| moving.unread.take()) {
        Some(error) if shared.is_to_try_again(upto) => Err(error),
        _ => Ok(()),
    }
}

fn read_all(batch: &mut [Moving], wanted: impl Fn(&Moving) -> bool) {
    let mut order: Vec<usize> = (0..batch.len()).collect();
    order.retain(|i| batch.get(*i).is_some_and(&wanted));
    order.sort_unstable_by_key(|i| batch.get(*i).map(|m| (m.run.slot, m.run.position)));
    let mut group: Vec<usize> = Vec::new();
    let mut covered: Option<FileRange> = None;
    for i in order {
        let Some(moving) = batch.get_mut(i) else { continue };
        let Some(range) = moving.locate() else { continue };
        if covered.as_mut().is_some_and(|so_far| join(so_far, &range)) {
            group.push(i);
        } else {
            read_group(batch, covered.replace(range), &group);
            group = vec![i];
        }
    }
    read_group(batch, covered, &group);
}

/// Makes a range longer so that it covers another one too, where that is near enough.
fn join(range: &mut FileRange, other: &FileRange) -> bool {
    let end = range.position + u64::from(range.len);
    let joined = (other.position + u64::from(other.len)).max(end) - range.position;
    let near = other.position >= range.position && other.position <= end + READ_GAP_BYTES_MAX;
    if !Arc::ptr_eq(&range.source, &other.source) || !near || joined > READ_BYTES_MAX {
        return false;
    }
    range.len = joined as u32;
    true
}

/// From the page cache where it is there, else past it.
fn read(range: &FileRange) -> Result<Bytes> {
    if range.source.is_in_memory(range.position, range.len) { read_kept(range) } else { read_once(range) }
}

fn read_group(batch: &mut [Moving], range: Option<FileRange>, group: &[usize]) {
    let Some(range) = range else { return };
    // Where the file is too short, or a sector of it is bad, what of it can be read is read run by run.
    let bytes = read(&range).ok();
    for i in group {
        let Some(moving) = batch.get_mut(*i) else { continue };
        let Some(mine) = moving.locate() else { continue };
        let start = (mine.position - range.position) as usize;
        match &bytes {
            Some(bytes) => moving.bytes = bytes.slice(start..start + mine.len as usize),
            None => match read(&mine) {
                Ok(bytes) => moving.bytes = bytes,
                // It stays without bytes, which is damage.
                Err(e) => moving.failed(e),
            },
        }
    }
}

/// Gets the envelopes of the runs that need them. Runs of one frame are looked up together.
fn list(batch: &mut [Moving], wanted: impl Fn(&Moving) -> bool) {
    let mut order: Vec<usize> = (0..batch.len()).collect();
    order.retain(|i| batch.get(*i).is_some_and(&wanted));
    order.sort_unstable_by_key(|i| batch.get(*i).map(|m| m.run.slot));
    let mut last: Option<(u32, Vec<EntryRef>)> = None;
    for i in order {
        let Some(moving) = batch.get_mut(i) else { continue };
        let run = moving.run;
        let known = match &moving.from {
            From::Tail(frame) => {
                moving.envelopes = envelopes(&frame.entries, &run);
                continue;
            }
            From::File(frame) => match &last {
                Some((slot, entries)) if *slot == run.slot => entries,
                _ => match read_entries(frame, read) {
                    Ok(entries) => &last.insert((run.slot, entries)).1,
                    Err(e) => {
                        moving.failed(e);
                        continue;
                    }
                },
            },
        };
        moving.envelopes = envelopes(known, &run);
    }
}

/// The envelopes of a run; one that refers to another entry's body becomes one with a body of its own.
fn envelopes(entries: &[EntryRef], run: &JournalRun) -> Vec<Envelope> {
    let first = run.entry as usize;
    let mine = entries.get(first..first + usize::from(run.entries)).unwrap_or_default();
    let body_of = |e: &EntryRef| match e.envelope.body {
        Body::Ref { entry } => entries.get(entry as usize).map_or(e.envelope.body, |target| target.envelope.body),
        inline => inline,
    };
    mine.iter().map(|e| Envelope { body: body_of(e), ..e.envelope.clone() }).collect()
}

impl Moving {
    pub(super) fn new(class: u8, partition: PartitionId, run: JournalRun, state: &State) -> Result<Moving> {
        let nowhere = || Error::new(ErrorKind::Invalid, "a run is in no file");
        let from = match state.frames.tail(run.slot) {
            Some(frame) => From::Tail(frame.clone()),
            None => {
                let slot = state.frames.slot(run.slot).ok_or_else(nowhere)?;
                let source = state.frames.file(slot).ok_or_else(nowhere)?.source.clone();
                From::File(FileRange { source, position: slot.position, len: slot.len })
            }
        };
        Ok(Moving { class, partition, run, from, bytes: Bytes::new(), envelopes: Vec::new(), unread: None })
    }

    pub(super) fn partition(&self) -> PartitionId {
        self.partition
    }

    /// It could not be read. What is not in the file at all will not come; of what the disk refuses, it may give another time.
    fn failed(&mut self, error: Error) {
        if error.kind != ErrorKind::Damaged {
            self.unread = Some(error);
        }
    }

    /// Where its bytes are to be read from. What is in memory needs no reading.
    fn locate(&mut self) -> Option<FileRange> {
        match &self.from {
            From::Tail(frame) => {
                let start = self.run.position as usize;
                self.bytes = frame.bytes.slice(start..start + self.run.len as usize);
                None
            }
            From::File(frame) => Some(FileRange {
                source: frame.source.clone(),
                position: frame.position + u64::from(self.run.position),
                len: self.run.len,
            }),
        }
    }

    /// Whether its entries are known without its bytes, which were verified since the start: its envelopes tell the checksum
    /// of each, and together they give the checksum of the run.
    fn is_known(&self) -> bool {
        self.run.marks & VERIFIED != 0 && self.known().is_some()
    }

    fn known(&self) -> Option<Vec<(entries::Span, u32)>> {
        let spans = entries::Entries::listed(self.envelopes.clone()).spans;
        let (mut sum, mut out) = (0, Vec::with_capacity(spans.len()));
        for (span, envelope) in spans.into_iter().zip(&self.envelopes) {
            let Body::Inline { checksum, .. } = envelope.body else { return None };
            sum = crc::combine(sum, checksum, u64::from(span.len));
            out.push((span, checksum));
        }
        self.agrees(sum, &out).then_some(out)
    }

    fn agrees(&self, sum: u32, entries: &[(entries::Span, u32)]) -> bool {
        let end = entries.last().map_or(0, |(span, _)| span.position + span.len);
        sum == self.run.checksum && end == self.run.len && entries.len() == usize::from(self.run.entries)
    }

    /// Its entries and the checksum of each, if they verify. Every byte is summed once.
    fn verified(&self) -> Option<Vec<(entries::Span, u32)>> {
        let run = &self.run;
        if self.bytes.is_empty() && self.run.marks & VERIFIED != 0 {
            return self.known();
        }
        if self.bytes.len() != run.len as usize {
            return None;
        }
        let spans = if entries::describes_itself(run.form) {
            entries::scan(run.form, &self.bytes, Ordinal(run.first_ordinal)).ok()?
        } else {
            entries::Entries::listed(self.envelopes.clone()).spans
        };
        let (mut sum, mut out) = (0, Vec::with_capacity(spans.len()));
        for span in spans {
            let native = self.bytes.get(span.position as usize..(span.position as usize + span.len as usize))?;
            let checksum = crc::crc32c(native);
            sum = crc::combine(sum, checksum, u64::from(span.len));
            out.push((span, checksum));
        }
        self.agrees(sum, &out).then_some(out)
    }

    /// Adds its entries to the open run of a segment, each held against its checksum. A run that does not verify is taken
    /// over as it is, as one block with the checksum that it should have; the result says so.
    pub(super) fn add_to(&self, shared: &Shared, writer: &mut SegmentWriter) -> Result<bool> {
        let run = &self.run;
        let append_time = i64::from(run.append_s) * 1000;
        let Some(entries) = self.verified() else {
            shared.fence(FencedRange { partition: self.partition, base: run.base, end: run.end() });
            let whole = NewEntry {
                base: run.base,
                end: run.end(),
                ordinal: Ordinal(run.first_ordinal),
                max_timestamp: run.max_timestamp,
                append_time,
                checksum: run.checksum,
                len: run.len,
                envelope: None,
            };
            writer.damaged(&whole, u32::from(run.entries))?;
            return Ok(false);
        };
        for (number, (span, checksum)) in entries.into_iter().enumerate() {
            writer.entry(&NewEntry {
                base: span.base,
                end: span.end,
                ordinal: span.ordinal,
                max_timestamp: span.max_timestamp,
                append_time,
                checksum,
                len: span.len,
                envelope: self.envelopes.get(number),
            })?;
        }
        Ok(true)
    }

    /// Its bytes, filled up with zeros where they could not be read.
    pub(super) fn native(&self) -> Bytes {
        if self.bytes.len() == self.run.len as usize {
            return self.bytes.clone();
        }
        let mut bytes = self.bytes.to_vec();
        bytes.resize(self.run.len as usize, 0);
        Bytes::from(bytes)
    }
}
