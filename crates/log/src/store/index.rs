//! Where every committed entry of every partition is: in memory, behind one lock that is never held across I/O.
//!
//! ```text
//!   partition ──> rows   (runs in segments)     56 GB of week-old data: 48 bytes a run of up to 16 MiB
//!             └─> runs   (runs in the journal)  56 bytes for each (frame, partition); merges turn them into rows
//!
//!   offsets   log start ........................................ end
//!             | row | row | row | row | run|run|run|run|run|run|
//! ```
//!
//! A run is a piece of native bytes without gaps whose entries have consecutive ordinals. All runs of a partition are in
//! ascending order of offset, rows before journal runs.

use super::frames::Frames;
use super::registry::Registry;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{EntryRef, Frame};
use polylogue_record::envelope::{Body, Form};
use polylogue_types::{Index, Map, Offset, PartitionId, TimestampMs};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Every block of the run was verified since the start.
pub(super) const VERIFIED: u8 = 1;

/// A run inside a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunRow {
    pub(super) base: Offset,
    pub(super) end: Offset,
    pub(super) max_timestamp: TimestampMs,
    /// Number of the segment.
    pub(super) segment: u32,
    /// Number of the row in its run table.
    pub(super) row: u32,
    /// Of the native bytes, in the file that holds them.
    pub(super) position: u32,
    pub(super) len: u32,
    /// When its last entry was appended, seconds since the Unix epoch, rounded up.
    pub(super) append_s: u32,
    pub(super) form: Form,
    pub(super) marks: u8,
}

/// A run inside a frame of the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournalRun {
    pub(super) base: Offset,
    pub(super) max_timestamp: TimestampMs,
    pub(super) first_ordinal: u64,
    /// Number of the frame.
    pub(super) slot: u32,
    /// Offsets from its base to its end.
    pub(super) span: u32,
    /// Of the native bytes, in the frame.
    pub(super) position: u32,
    pub(super) len: u32,
    /// Number of its first entry in the frame.
    pub(super) entry: u32,
    /// CRC-32C of the native bytes.
    pub(super) checksum: u32,
    pub(super) append_s: u32,
    /// How many entries; in the frame they stand one after the other.
    pub(super) entries: u16,
    pub(super) form: Form,
    pub(super) marks: u8,
}

impl JournalRun {
    pub(super) fn end(&self) -> Offset {
        Offset(self.base.0 + u64::from(self.span))
    }
}

/// The properties of a run that retention uses, in a segment or in the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunAge {
    /// Offset after its last message.
    pub end: Offset,
    /// Native bytes.
    pub bytes: u64,
    /// Highest timestamp in it; where its messages have none, when it was appended.
    pub newest: TimestampMs,
}

pub(super) fn newest_of_row(row: &RunRow) -> TimestampMs {
    newest(row.max_timestamp, row.append_s)
}

pub(super) fn newest_of_run(run: &JournalRun) -> TimestampMs {
    newest(run.max_timestamp, run.append_s)
}

fn newest(max_timestamp: TimestampMs, append_s: u32) -> TimestampMs {
    if max_timestamp >= 0 { max_timestamp } else { i64::from(append_s) * 1000 }
}

/// Seconds, rounded up, so that nothing expires too early.
pub(super) fn seconds(time: TimestampMs) -> u32 {
    u32::try_from(time.max(0).saturating_add(999) / 1000).unwrap_or(u32::MAX)
}

/// One partition.
#[derive(Debug, Default)]
pub(super) struct Partition {
    pub(super) rows: Vec<RunRow>,
    pub(super) runs: VecDeque<JournalRun>,
    /// Offsets below are not served.
    pub(super) log_start: Offset,
    /// After the last entry that was applied.
    pub(super) end: Offset,
    /// Native bytes in rows and runs.
    pub(super) bytes: u64,
    /// Native bytes in runs.
    pub(super) journal_bytes: u64,
    /// Removed while a merge may still need its runs.
    pub(super) dropped: bool,
    /// Damage has taken offsets of it, which are fenced: it is served from its log start on, wherever its first run begins.
    pub(super) holed: bool,
}

impl Partition {
    /// The first offset that is served.
    pub(super) fn first(&self) -> Offset {
        if self.holed {
            return self.log_start;
        }
        let lowest = match (self.rows.first(), self.runs.front()) {
            (Some(row), _) => row.base,
            (None, Some(run)) => run.base,
            (None, None) => self.end,
        };
        lowest.max(self.log_start)
    }

    /// The offset after the last message, never below the first.
    pub(super) fn last(&self) -> Offset {
        self.end.max(self.log_start)
    }

    /// The runs for retention, oldest first.
    pub(super) fn ages(&self) -> impl Iterator<Item = RunAge> {
        let rows = self.rows.iter().map(|r| RunAge { end: r.end, bytes: u64::from(r.len), newest: newest_of_row(r) });
        let runs = self.runs.iter().map(|r| RunAge { end: r.end(), bytes: u64::from(r.len), newest: newest_of_run(r) });
        rows.chain(runs)
    }

    /// Adds a row in the order of offsets. Room is taken exactly: with hundreds of thousands of rows, doubling would
    /// cost as much as the rows.
    pub(super) fn add_row(&mut self, row: RunRow) -> Result<()> {
        // Nearly always at the end: the search would touch memory all over, for each of hundreds of thousands of rows.
        let at_end = self.rows.last().is_none_or(|r| r.end <= row.base);
        let at = if at_end { self.rows.len() } else { self.rows.partition_point(|r| r.end <= row.base) };
        if self.rows.get(at).is_some_and(|next| next.base < row.end) {
            return Err(Error::new(ErrorKind::Damaged, "two segments hold the same offsets of a partition"));
        }
        if self.rows.len() == self.rows.capacity() {
            self.rows.reserve_exact(1 + self.rows.len() / 8);
        }
        self.rows.insert(at, row);
        self.bytes += u64::from(row.len);
        self.end = self.end.max(row.end);
        Ok(())
    }
}

/// A range that cannot be served, because its bytes do not verify.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FencedRange {
    /// The partition.
    pub partition: PartitionId,
    /// Offset of the first message in it.
    pub base: Offset,
    /// Offset after the last message in it.
    pub end: Offset,
}

/// The state of the store that is in memory.
#[derive(Debug)]
pub(super) struct State {
    pub(super) partitions: Map<PartitionId, Partition>,
    pub(super) frames: Frames,
    pub(super) segments: Registry,
    /// The last frame that was applied.
    pub(super) applied: Option<Index>,
    /// The last frame whose entries are in segments.
    pub(super) merged_upto: Option<Index>,
    /// A merge is at work up to this frame: runs up to it stay, even when they are not wanted any more, so that what the
    /// merge writes depends on the log alone.
    pub(super) merging: Option<Index>,
    /// A merge up to that frame has met an error of the disk, for the first time then. Monotonic nanoseconds.
    pub(super) unreadable: Option<(Index, u64)>,
    /// Damaged ranges that were met, to their ends.
    pub(super) fences: BTreeMap<(PartitionId, Offset), Offset>,
    /// Of those, the ones that [`State::expect`] put where it found nothing at all. While there is one, a segment that cannot
    /// be read may hold what is wanted.
    pub(super) holes: BTreeSet<(PartitionId, Offset)>,
    /// The partitions were held against what they should hold: from then on `holes` is the whole truth.
    pub(super) expected: bool,
    /// Ranges that `repair` gave up. They are remembered by the manifest when their frame is merged.
    pub(super) lost: Vec<FencedRange>,
    /// A frame records a loss of unknown extent: any missing range may be part of it.
    pub(super) loss_unknown: bool,
    /// Runs in the journal, over all partitions.
    pub(super) journal_runs: usize,
    scratch: Vec<(PartitionId, JournalRun)>,
}

impl State {
    pub(super) fn new(tail_bytes: usize) -> State {
        State {
            partitions: Map::default(),
            frames: Frames::new(tail_bytes),
            segments: Registry::default(),
            applied: None,
            merged_upto: None,
            merging: None,
            unreadable: None,
            fences: BTreeMap::new(),
            holes: BTreeSet::new(),
            expected: false,
            lost: Vec::new(),
            loss_unknown: false,
            journal_runs: 0,
            scratch: Vec::new(),
        }
    }

    /// Returns a partition that is visible to readers.
    pub(super) fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.partitions.get(&id).filter(|p| !p.dropped)
    }

    /// Indexes a committed frame. On an error the state is unchanged.
    pub(super) fn apply(&mut self, frame: &Arc<Frame>) -> Result<()> {
        if frame.kind.is_local() || self.merged_upto.is_some_and(|m| frame.index <= m) {
            return Ok(());
        }
        if self.applied.is_some_and(|a| frame.index <= a) {
            return Err(invalid(format!("frame {} was applied before", frame.index)));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let shared = self.runs_of(frame, &mut scratch);
        let result = shared.map(|shared| {
            if !scratch.is_empty() {
                let (slot, gone) = self.frames.push(frame, shared);
                for (partition, run) in &scratch {
                    self.push_run(*partition, JournalRun { slot, ..*run });
                }
                self.forget(&gone);
            }
            self.lose(frame);
            self.applied = Some(frame.index);
        });
        self.scratch = scratch;
        result
    }

    /// Divides a frame's entries into runs. The result says whether runs share bytes.
    fn runs_of(&self, frame: &Frame, out: &mut Vec<(PartitionId, JournalRun)>) -> Result<bool> {
        let complete = frame.place.as_ref().is_none_or(|p| frame.bytes.len() == p.len as usize);
        let frame_len = frame.place.as_ref().map_or(frame.bytes.len(), |p| p.len as usize);
        let marks = if complete { VERIFIED } else { 0 };
        let mut shared = false;
        for (number, entry) in (0u32..).zip(&frame.entries) {
            let envelope = &entry.envelope;
            // An entry that takes no offset is no message: only the state machines look at it.
            if envelope.count == 0 {
                continue;
            }
            let checksum = match envelope.body {
                Body::Inline { checksum, .. } => checksum,
                Body::Ref { entry } => {
                    shared = true;
                    inline_checksum(frame, entry)?
                }
            };
            if entry.native.start > entry.native.end || entry.native.end as usize > frame_len {
                return Err(invalid(format!("frame {}: an entry's bytes are not in the frame", frame.index)));
            }
            let same = out.last_mut().filter(|(partition, _)| *partition == envelope.partition);
            let above = match (&same, self.partitions.get(&envelope.partition)) {
                (Some((_, run)), _) => run.end() <= envelope.base_offset,
                // What is trimmed already may be applied again when a checkpoint is newer than the segments.
                (None, Some(p)) => envelope.base_offset >= p.end || envelope.next_offset() <= p.log_start,
                (None, None) => true,
            };
            if !above {
                return Err(invalid(format!(
                    "frame {}: offset {} of partition {} is not above what was applied before",
                    frame.index, envelope.base_offset, envelope.partition
                )));
            }
            if !same.is_some_and(|(_, run)| extend(run, number, entry, checksum)) {
                out.push((envelope.partition, begin(entry, number, checksum, marks)));
            }
        }
        Ok(shared)
    }

    fn push_run(&mut self, id: PartitionId, run: JournalRun) {
        let partition = self.partitions.entry(id).or_default();
        if run.end() <= partition.log_start || partition.dropped {
            return;
        }
        partition.end = run.end();
        partition.bytes += u64::from(run.len);
        partition.journal_bytes += u64::from(run.len);
        partition.runs.push_back(run);
        self.journal_runs += 1;
        if let Some(file) = self.frames.file_mut(run.slot) {
            file.add_run(id, u64::from(run.len));
        }
    }

    /// A frame says that damage took offsets: they are fenced for ever. Those that it does not know, [`State::expect`] finds.
    fn lose(&mut self, frame: &Frame) {
        self.loss_unknown |= frame.lost().is_some_and(|lost| !lost.complete);
        for range in frame.lost().iter().flat_map(|lost| &lost.ranges) {
            let partition = self.partitions.entry(range.partition).or_default();
            partition.end = partition.end.max(range.end);
            partition.holed = true;
            let range = FencedRange { partition: range.partition, base: range.first, end: range.end };
            self.fence(range);
            self.lost.push(range);
        }
    }

    /// Frames of a memory shard have left the tail: their entries are gone.
    pub(super) fn forget(&mut self, gone: &[Arc<Frame>]) {
        for frame in gone {
            for entry in frame.entries.iter().filter(|e| e.envelope.count > 0) {
                self.trim(entry.envelope.partition, entry.envelope.next_offset());
            }
        }
    }

    /// Trims a partition below `log_start`. Runs wholly below are dropped.
    pub(super) fn trim(&mut self, id: PartitionId, log_start: Offset) {
        let partition = self.partitions.entry(id).or_default();
        partition.log_start = partition.log_start.max(log_start);
        self.let_go(id);
    }

    /// Drops the runs below the log start that no merge needs.
    pub(super) fn let_go(&mut self, id: PartitionId) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let dead = partition.rows.partition_point(|r| r.end <= partition.log_start);
        for row in partition.rows.drain(..dead) {
            partition.bytes -= u64::from(row.len);
            self.segments.row_died(row.segment, row.row, row.len);
        }
        if dead > 0 && partition.rows.capacity() > 2 * partition.rows.len() + 8 {
            partition.rows.shrink_to_fit();
        }
        while let Some(run) = partition.runs.front().filter(|r| r.end() <= partition.log_start) {
            let index = self.frames.slot(run.slot).map(|s| s.index);
            if self.merging.is_some_and(|m| index.is_some_and(|i| i <= m)) {
                break;
            }
            partition.bytes -= u64::from(run.len);
            partition.journal_bytes -= u64::from(run.len);
            self.journal_runs -= 1;
            if let Some(file) = self.frames.file_mut(run.slot) {
                file.live_runs -= 1;
                file.live_bytes -= u64::from(run.len);
            }
            partition.runs.pop_front();
        }
        let below: Vec<_> = self
            .fences
            .range((id, Offset(0))..=(id, Offset(u64::MAX)))
            .filter(|(_, end)| **end <= partition.log_start)
            .map(|(key, _)| *key)
            .collect();
        below.iter().for_each(|key| {
            self.fences.remove(key);
            self.holes.remove(key);
        });
        if partition.dropped && partition.runs.is_empty() {
            self.partitions.remove(&id);
        }
    }

    /// Checks a partition against its owner's state: see [`super::ShardStore::expect`].
    pub(super) fn expect(&mut self, id: PartitionId, log_start: Offset, end: Offset) -> Offset {
        self.expected = true;
        self.trim(id, log_start);
        let Some(partition) = self.partitions.get_mut(&id) else { return log_start };
        partition.end = partition.end.max(end);
        let log_start = partition.log_start;
        let rows = partition.rows.iter().map(|r| (r.base, r.end));
        let runs = partition.runs.iter().map(|r| (r.base, r.end()));
        let pieces: Vec<_> = rows.chain(runs).chain([(end, end)]).collect();
        let (mut at, mut holes) = (log_start, Vec::new());
        for (base, end) in pieces {
            while at < base {
                let (fence, behind) = self.next_fence(id, at).unwrap_or((base, base));
                if fence > at {
                    holes.push((at, fence.min(base)));
                }
                at = behind.max(at).min(base);
            }
            at = at.max(end);
        }
        if !(self.segments.missing || self.loss_unknown)
            && let Some((_, start)) = holes.first().copied().filter(|(base, _)| *base == log_start)
        {
            holes.remove(0);
            self.trim(id, start);
            self.punch_holes(id, &holes);
            return start;
        }
        self.punch_holes(id, &holes);
        log_start
    }

    /// Fences ranges that no run covers.
    fn punch_holes(&mut self, id: PartitionId, holes: &[(Offset, Offset)]) {
        for (base, end) in holes {
            let range = FencedRange { partition: id, base: *base, end: *end };
            self.fence(range);
            self.holes.insert((id, *base));
            if self.loss_unknown {
                self.lost.push(range);
            }
        }
        if let Some(partition) = self.partitions.get_mut(&id) {
            partition.holed |= !holes.is_empty();
        }
    }

    /// Notes that the bytes of a run match its checksum.
    pub(super) fn mark_verified(&mut self, id: PartitionId, run: &JournalRun) {
        let Some(p) = self.partitions.get_mut(&id) else { return };
        let at = p.runs.partition_point(|r| r.end() <= run.base);
        if let Some(r) = p.runs.get_mut(at).filter(|r| (r.slot, r.entry) == (run.slot, run.entry)) {
            r.marks |= VERIFIED;
        }
    }

    /// Replaces the runs of the frames up to `upto` by the rows of a merged segment.
    pub(super) fn pop_merged(&mut self, id: PartitionId, upto: Index) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        while let Some(run) = partition.runs.front().copied() {
            if self.frames.slot(run.slot).is_none_or(|slot| slot.index > upto) {
                break;
            }
            partition.runs.pop_front();
            partition.bytes -= u64::from(run.len);
            partition.journal_bytes -= u64::from(run.len);
            self.journal_runs -= 1;
            if let Some(file) = self.frames.file_mut(run.slot) {
                file.live_runs -= 1;
                file.live_bytes -= u64::from(run.len);
            }
        }
        if partition.runs.capacity() > 4 * partition.runs.len() + 16 {
            partition.runs.shrink_to(2 * partition.runs.len());
        }
    }

    /// Deletes a partition. Its id is never reused.
    pub(super) fn drop_partition(&mut self, id: PartitionId) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        partition.dropped = true;
        partition.log_start = Offset(u64::MAX);
        self.let_go(id);
    }

    /// Records a damaged range.
    pub(super) fn fence(&mut self, range: FencedRange) {
        if self.partition(range.partition).is_none_or(|p| p.log_start >= range.end) {
            // Dropped, or trimmed, while it was read.
            return;
        }
        let end = self.fences.entry((range.partition, range.base)).or_insert(range.end);
        *end = range.end.max(*end);
    }

    /// The first fence that ends above `offset`.
    pub(super) fn next_fence(&self, id: PartitionId, offset: Offset) -> Option<(Offset, Offset)> {
        let key = |offset| (id, offset);
        let before = self.fences.range(key(Offset(0))..=key(offset)).next_back();
        let at = before.filter(|(_, end)| **end > offset);
        at.or_else(|| self.fences.range(key(offset)..=key(Offset(u64::MAX))).next())
            .map(|((_, base), end)| (*base, *end))
    }

    /// Memory of the index over the journal. Bytes.
    pub(super) fn journal_index_bytes(&self) -> usize {
        self.journal_runs * size_of::<JournalRun>() + self.frames.index_bytes()
    }
}

fn inline_checksum(frame: &Frame, entry: u32) -> Result<u32> {
    match frame.entries.get(entry as usize).map(|e| e.envelope.body) {
        Some(Body::Inline { checksum, .. }) => Ok(checksum),
        _ => Err(invalid(format!("frame {}: an entry refers to one that has no body", frame.index))),
    }
}

fn begin(entry: &EntryRef, number: u32, checksum: u32, marks: u8) -> JournalRun {
    let envelope = &entry.envelope;
    JournalRun {
        base: envelope.base_offset,
        max_timestamp: envelope.max_timestamp,
        first_ordinal: envelope.ordinal.0,
        slot: 0,
        span: envelope.count,
        position: entry.native.start,
        len: entry.native.end - entry.native.start,
        entry: number,
        checksum,
        append_s: seconds(envelope.append_time),
        entries: 1,
        form: envelope.form,
        marks,
    }
}

/// Adds an entry to a run, where it follows directly: in the frame, by its ordinal and by its bytes.
fn extend(run: &mut JournalRun, number: u32, entry: &EntryRef, checksum: u32) -> bool {
    let envelope = &entry.envelope;
    let Ok(span) = u32::try_from(envelope.next_offset().0 - run.base.0) else { return false };
    let follows = run.position + run.len == entry.native.start
        && run.first_ordinal + u64::from(number - run.entry) == envelope.ordinal.0
        && number - run.entry == u32::from(run.entries)
        && run.entries < u16::MAX
        && run.form == envelope.form;
    if !follows {
        return false;
    }
    let len = entry.native.end - entry.native.start;
    run.checksum = polylogue_record::crc::combine(run.checksum, checksum, u64::from(len));
    run.max_timestamp = run.max_timestamp.max(envelope.max_timestamp);
    run.append_s = run.append_s.max(seconds(envelope.append_time));
    run.span = span;
    run.len += len;
    run.entries += 1;
    true
}

fn invalid(what: String) -> Error {
    Error::new(ErrorKind::Invalid, what)
}
