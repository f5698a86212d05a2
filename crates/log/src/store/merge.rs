//! From journal files to segments.
//!
//! ```text
//!   sealed journal files   [ 7: short runs ][ 8: short runs ][ 9: long runs ][10: ... active
//!                                  │               │                │
//!   prefix of one sort             └──── merge ────┘                └ adopt: 9 stays as it is, an index is written
//!                                           │
//!   one file a class       class 3: p1 p4 p9 ...   class 12: p2 p3 ...      runs of a partition become one
//!                                           │
//!   manifest (segments, merged up to) ── switch the index, partition by partition ── release journal files
//! ```
//!
//! A merge works in steps of `merge_step_bytes`: it collects runs in the order of the segment, reads them in the order of
//! the journal files, holds every byte against its checksum, writes. The caller paces the steps. Until the
//! manifest names the result, a crash or an error costs nothing but the work. Files of short runs are brought into memory before (see
//! [`preload`]). Of a file that is adopted only the envelope tables
//! are read, where its bytes were verified since the start: they stay where they are.
//!
//! What is written depends on the log alone: on the frames up to the cut, and on which partitions, classes and log starts
//! there are when the plan is made. From then on the index keeps the runs in place.

mod adopt;
mod preload;
mod room;
mod sorted;
mod switch;

pub use room::JournalWaste;

use super::config::StoreConfig;
use super::index::{RunRow, State, seconds};
use super::manifest::{NamedSegment, flushed};
use super::open::still_lost;
use super::registry::{Bits, Segment};
use super::segment::writer::{Finished, FlushError, SegmentWriter};
use super::segment::{SegmentKind, SegmentName};
use super::shared::{Counters, Shared};
use super::{ShardStore, invalid};
use crate::error::{Error, ErrorKind, Result};
use crate::journal::pages::open_direct;
use crate::journal::{AdoptedFile, Journal, SealedFile};
use adopt::AdoptWork;
use polylogue_env::OpenMode;
use polylogue_types::{Index, PartitionId, TimestampMs};
use sorted::SortedWork;
use std::fmt;
use std::sync::Arc;

/// The retention class of partitions: those of one class live about equally long, so that their segments die together (see
/// [`super::retention_class`]). Must depend on the log alone.
pub trait Classes {
    /// The class of a partition.
    fn class_of(&self, partition: PartitionId) -> u8;
}

impl<F: Fn(PartitionId) -> u8> Classes for F {
    fn class_of(&self, partition: PartitionId) -> u8 {
        self(partition)
    }
}

/// What the store needs of a journal.
pub trait SealedJournal {
    /// See [`Journal::sealed_files`].
    fn sealed_files(&self) -> Vec<SealedFile>;
    /// See [`Journal::adopt`].
    ///
    /// # Errors
    /// See there.
    fn adopt(&self, sequence: u64) -> Result<AdoptedFile>;
    /// See [`Journal::release`].
    ///
    /// # Errors
    /// See there.
    fn release(&self, upto: Index) -> Result<()>;
}

impl SealedJournal for Journal {
    fn sealed_files(&self) -> Vec<SealedFile> {
        Journal::sealed_files(self)
    }

    fn adopt(&self, sequence: u64) -> Result<AdoptedFile> {
        Journal::adopt(self, sequence)
    }

    fn release(&self, upto: Index) -> Result<()> {
        Journal::release(self, upto)
    }
}

/// Why a merge is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MergeReason {
    /// Nothing in the oldest files is live any more: they can go without a copy.
    Empty,
    /// Long-lived data has reached `merge_bytes`.
    Bytes,
    /// Long-lived data has waited for `merge_ms_max`.
    Age,
    /// Sealed files have reached `journal_keep_bytes_max`.
    JournalFull,
    /// The index over the journal has reached `journal_index_bytes_max`.
    IndexFull,
    /// The disk is short of room, and less than half of what the files hold is wanted.
    Room,
}

/// While the disk is short of room, waste of this part of what is free is worth a merge.
const WORTH_SHARE: u64 = 16;

/// The room that merges have, at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeRoom {
    free: u64,
    room: u64,
}

impl MergeRoom {
    /// What is worth a checkpoint and a merge: the more is free, the more it takes, so that a disk that always is short of room is not always at
    /// it. Bytes.
    pub(super) fn worth(self, least: u64) -> u64 {
        least.max(self.free / WORTH_SHARE)
    }

    /// Bytes that a merge of journal files of so many bytes may write. Little may be taken of what is else left free: the merge gives back
    /// more.
    pub(super) fn of(self, bytes: u64) -> u64 {
        self.room.max((bytes / MERGE_GAIN_MIN).min(self.free / 4))
    }
}

/// A merge that gives back so many times what it writes may write it though little is free.
const MERGE_GAIN_MIN: u64 = 16;

/// A merge that should be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MergeDue {
    /// The cut: the last frame to merge.
    pub upto: Index,
    /// Why.
    pub reason: MergeReason,
}

/// What a merge did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MergeReport {
    /// Everything up to this frame is in segments now.
    pub upto: Index,
    /// Segments that were made.
    pub segments: usize,
    /// Bytes written, indexes included.
    pub written: u64,
    /// Native bytes of journal files that became segments in place.
    pub adopted: u64,
    /// Journal runs whose bytes did not verify. They were taken over as they are and are fenced.
    pub damaged: usize,
}

/// How far a merge is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MergeProgress {
    /// There is more to do.
    More {
        /// Written in this step. Bytes.
        written: u64,
        /// Brought into memory in this step, to be merged later. Bytes.
        preloaded: u64,
    },
    /// It is done.
    Done(MergeReport),
}

/// A merge at work. Dropping it gives it up, and removes what it has written.
pub struct MergePlan {
    shared: Arc<Shared>,
    upto: Index,
    work: Work,
    report: MergeReport,
    done: bool,
}

/// What a step of a merge did.
enum Stepped {
    /// Brought so many bytes of journal into memory.
    Preloaded(u64),
    /// Read and wrote.
    Written,
    /// The manifest names the last result, and the index uses it.
    Done,
}

enum Work {
    Sorted(SortedWork),
    Adopt(AdoptWork),
}

impl fmt::Debug for MergePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MergePlan").field("upto", &self.upto).field("report", &self.report).finish_non_exhaustive()
    }
}

impl MergePlan {
    /// The last frame that it merges; at most the cut that was asked for.
    #[must_use]
    pub fn upto(&self) -> Index {
        self.upto
    }

    /// Whether it takes journal files over as they are.
    #[must_use]
    pub fn adopts(&self) -> bool {
        matches!(self.work, Work::Adopt(_))
    }
}

impl MergePlan {
    fn give_up(&mut self) {
        self.done = true;
        let begun = match &self.work {
            Work::Sorted(work) => work.begun(),
            Work::Adopt(work) => work.begun(),
        };
        self.shared.discard(&begun);
        switch::give_up(&self.shared);
    }
}

impl Drop for MergePlan {
    fn drop(&mut self) {
        if !self.done {
            self.give_up();
        }
    }
}

impl Shared {
    /// The last frame that both segments and the checkpoint cover.
    pub(super) fn covered_upto(&self) -> Option<Index> {
        self.manifest.look().covered_upto()
    }

    /// Removes `.seg` files of work that was given up: half a segment may be the very room that lacks. What the manifest names
    /// stays.
    pub(super) fn discard(&self, names: &[SegmentName]) {
        if self.env.fatal.is_fatal() {
            // The content of the disk is unknown; the next start looks.
            return;
        }
        let manifest = self.manifest.look();
        for name in names.iter().filter(|name| !manifest.segments.iter().any(|s| s.name == **name)) {
            // One that cannot be removed now is removed by the next start, or written over.
            let _ = self.env.disk.remove(&self.segments_dir().join(name.index_file()));
        }
    }

    /// Bytes that background work may write, so that manifest and checkpoint still have room.
    pub(super) fn room(&self) -> u64 {
        match self.env.disk.free_bytes(&self.dir) {
            Ok(free) => free.saturating_sub(self.config.room_bytes_min),
            // Not knowing is no reason to refuse: the write meets a full disk by itself.
            Err(_) => u64::MAX,
        }
    }

    /// The room that merges have. Asks the system.
    pub(super) fn merge_room(&self) -> MergeRoom {
        MergeRoom { free: self.env.disk.free_bytes(&self.dir).unwrap_or(u64::MAX), room: self.room() }
    }

    /// Whether a merge that met an error of the disk is to be tried again; false once it has failed for long enough.
    fn is_to_try_again(&self, upto: Index) -> bool {
        let now = self.env.clock.monotonic_ns();
        let mut state = self.state.lock();
        let known = state.unreadable.filter(|(cut, _)| *cut == upto);
        let (_, since) = *state.unreadable.insert(known.unwrap_or((upto, now)));
        now.saturating_sub(since) < self.config.unreadable_ms_max.saturating_mul(1_000_000)
    }

    /// Begins a segment file.
    pub(super) fn begin_segment(&self, name: SegmentName) -> Result<SegmentWriter> {
        let path = self.segments_dir().join(name.index_file());
        let what = || format!("cannot make {}", path.display());
        if self.env.disk.exists(&path) {
            // Left over from a merge that was given up.
            self.env.disk.remove(&path).map_err(|e| Error::io(what(), e))?;
        }
        let file = self.env.disk.open(&path, OpenMode::CreateNew).map_err(|e| Error::io(what(), e))?;
        let direct = open_direct(&*self.env.disk, &path, &file, self.config.direct_io);
        Ok(SegmentWriter::new(file, direct, name, self.config.index_interval_bytes))
    }

    /// A flush that fails ends the process, a write that fails ends the merge.
    pub(super) fn flushed<T>(&self, result: std::result::Result<T, FlushError>) -> Result<T> {
        result.map_err(|e| match e {
            FlushError::Write(error) => error,
            FlushError::Flush(error) => {
                self.env.fatal.fatal(&error.to_string());
                error
            }
        })
    }

    /// Makes the names of new segment files durable, then lets the manifest name them.
    fn name_segments(&self, upto: Index, finished: &[(Finished, u64)]) -> Result<()> {
        flushed(&self.env, self.env.disk.sync_dir(&self.segments_dir()), "the directory of segments")?;
        let lost = still_lost(&self.state.lock());
        self.manifest.update(|manifest| {
            manifest.merged_upto = Some(upto);
            manifest.lost = lost;
            manifest.segments.extend(finished.iter().map(|(f, data_len)| NamedSegment::of(&segment_of(f, *data_len))));
        })
    }
}

/// A new segment as the registry keeps it.
pub(super) fn segment_of(finished: &Finished, data_len: u64) -> Segment {
    let native_bytes = finished.rows.iter().map(|r| u64::from(r.len)).sum();
    let rows = finished.rows.len() as u32;
    Segment {
        name: finished.name,
        len: finished.len,
        data_len,
        table_crc: finished.table_crc,
        rows,
        native_bytes,
        live_bytes: native_bytes,
        live_rows: rows,
        oldest_s: finished.rows.iter().map(|r| seconds(r.append_time)).min().unwrap_or(u32::MAX),
        newest_s: finished.rows.iter().map(|r| seconds(r.append_time)).max().unwrap_or(0),
        dead: Bits::default(),
        free: Bits::default(),
        punched: Bits::default(),
        dead_bytes: 0,
        free_bytes: 0,
        young_bytes: 0,
        no_punch: false,
        skip: false,
        lost_rows: 0,
    }
}

impl ShardStore {
    /// Whether a merge is due, and up to where. Only whole sealed files that the checkpoint covers are merged, so that
    /// they can be released at once.
    #[must_use]
    pub fn merge_due(&self, now: TimestampMs, journal: &dyn SealedJournal, classes: &dyn Classes) -> Option<MergeDue> {
        let covered = self.shared.manifest.look().checkpoint_applied?;
        let sealed = journal.sealed_files();
        let config = &self.shared.config;
        let (files, index_bytes, bytes_of) = {
            let state = self.shared.state.lock();
            let merged = state.merged_upto;
            let files: Vec<_> = sealed.iter().filter_map(|f| ripe(&state, f, merged, covered)).collect();
            let bytes: Vec<_> = state.partitions.iter().map(|(id, p)| (*id, p.journal_bytes)).collect();
            (files, state.journal_index_bytes(), bytes)
        };
        let upto = files.last()?.last;
        let all = |reason| Some(MergeDue { upto, reason });
        if files.iter().map(|f| f.bytes).sum::<u64>() >= config.journal_keep_bytes_max {
            return all(MergeReason::JournalFull);
        }
        if index_bytes >= config.journal_index_bytes_max {
            return all(MergeReason::IndexFull);
        }
        let long = |(id, bytes): &(PartitionId, u64)| *bytes > 0 && classes.class_of(*id) > config.short_class_max;
        let long_bytes: u64 = bytes_of.iter().filter(|p| long(p)).map(|(_, bytes)| bytes).sum();
        if long_bytes >= config.merge_bytes {
            return all(MergeReason::Bytes);
        }
        let oldest = files.iter().filter(|f| f.live_runs > 0).map(|f| f.last_time).min();
        let age = oldest.map_or(0, |time| now.saturating_sub(time));
        if long_bytes > 0 && u64::try_from(age).is_ok_and(|age| age >= config.merge_ms_max) {
            return all(MergeReason::Age);
        }
        let empty = files.iter().take_while(|f| f.live_runs == 0).last();
        empty.map(|f| MergeDue { upto: f.last, reason: MergeReason::Empty })
    }

    /// Plans a merge of the frames up to `upto` (of a prefix of them, where files that are adopted and files that are not
    /// take turns). Replicated shards call it when they apply the `SegmentCut` record, so that all replicas plan the
    /// same. `None` when there is nothing to merge.
    ///
    /// # Errors
    /// `Busy` while another merge is at work; `OutOfRange` above what was applied.
    pub fn plan_merge(
        &self,
        upto: Index,
        journal: &dyn SealedJournal,
        classes: &dyn Classes,
    ) -> Result<Option<MergePlan>> {
        let covered = self.shared.manifest.look().checkpoint_applied;
        let sealed = journal.sealed_files();
        let upto_end = |f: &&SealedFile| f.indexes.is_some_and(|(_, last)| last <= upto);
        let room = self.shared.merge_room().of(sealed.iter().filter(upto_end).map(|f| f.end).sum());
        let mut state = self.shared.state.lock();
        if state.merging.is_some() {
            return Err(Error::new(ErrorKind::Busy, "another merge is at work"));
        }
        if state.merged_upto.is_some_and(|m| upto <= m) {
            return Ok(None);
        }
        if state.applied.is_none_or(|applied| upto > applied) {
            return Err(Error::new(ErrorKind::OutOfRange, format!("frame {upto} was not applied yet")));
        }
        let first = state.merged_upto.map_or(Index(0), Index::next);
        let mut adopted_rows = adopted_rows(&state);
        let adoptable = |f: &SealedFile, rows: u64| {
            let inside = f.indexes.is_some_and(|(a, b)| a >= first && b <= upto && Some(b) <= covered);
            if inside { self.adoptable(&state, f, rows) } else { None }
        };
        let above = |f: &&SealedFile| f.indexes.is_some_and(|(_, last)| last >= first);
        let files: Vec<&SealedFile> = sealed.iter().filter(above).collect();
        let one_more =
            |f: &&SealedFile| adoptable(f, adopted_rows).inspect(|rows| adopted_rows += rows).map(|_| (*f).clone());
        let adopted: Vec<SealedFile> = files.iter().map_while(one_more).collect();
        let (upto, work) = match adopted.last().and_then(|f| f.indexes) {
            Some((_, last)) => (last, Work::Adopt(AdoptWork::new(adopted))),
            None => {
                let next = files.iter().find(|f| adoptable(f, adopted_rows).is_some()).and_then(|f| f.indexes);
                let upto = next.map_or(upto, |(start, _)| upto.min(Index(start.0.saturating_sub(1))));
                let bytes = state.frames.live_bytes_upto(upto);
                // What is dead needs none: it must not wait behind what does.
                let upto = if bytes > room { state.frames.empty_upto(upto) } else { Some(upto) };
                let Some(upto) = upto else {
                    let what = format!("a merge of {bytes} bytes has room for {room}: it waits until more is free");
                    return Err(Error::new(ErrorKind::StorageFull, what));
                };
                (upto, Work::Sorted(SortedWork::new(&state, first, upto, self.shared.config.merge_preload_bytes_max)))
            }
        };
        state.merging = Some(upto);
        drop(state);
        let mut plan = MergePlan {
            shared: self.shared.clone(),
            upto,
            work,
            report: MergeReport { upto, ..MergeReport::default() },
            done: false,
        };
        if let Work::Sorted(work) = &mut plan.work {
            work.classify(classes);
        }
        Ok(Some(plan))
    }

    /// How many rows a file makes if it becomes a segment as it is, beside so many that there are by others; `None` if it is better
    /// merged.
    fn adoptable(&self, state: &State, sealed: &SealedFile, adopted_rows: u64) -> Option<u64> {
        let StoreConfig {
            adopt_run_bytes_min,
            adopt_stretch_bytes_min,
            adopt_rows_bytes_max,
            index_interval_bytes,
            ..
        } = self.shared.config;
        let file = state.frames.files().find(|f| f.sequence == sealed.sequence)?;
        let average = |of: u64| file.live_bytes.checked_div(of).unwrap_or(0);
        let long_runs = average(file.live_runs) >= adopt_run_bytes_min;
        let in_order = average(file.live_runs) >= u64::from(index_interval_bytes / 2)
            && average(file.stretches) >= adopt_stretch_bytes_min
            && adopted_rows + file.live_runs <= (adopt_rows_bytes_max / size_of::<RunRow>()) as u64;
        let fits = file.live_bytes * 2 >= sealed.end && sealed.end <= u64::from(u32::MAX);
        ((long_runs || in_order) && !file.shared && fits).then_some(file.live_runs)
    }

    /// Does a bounded piece of a merge: about `merge_step_bytes` are read and written. Blocks on the disk. Readers
    /// and writers go on; the caller decides when the next step comes.
    ///
    /// # Errors
    /// `StorageFull`, `Io`: the merge is given up and can be planned again. A failed flush ends the process. After an
    /// error from the journal's release the merge is done nevertheless; see [`ShardStore::release_journal`].
    pub fn run_merge_step(&self, plan: &mut MergePlan, journal: &dyn SealedJournal) -> Result<MergeProgress> {
        if plan.done || !Arc::ptr_eq(&plan.shared, &self.shared) {
            return Err(invalid("this plan is not one of this store, or it is done"));
        }
        let _maintenance = self.shared.maintenance.lock();
        let before = plan.report.written;
        let stepped = match &mut plan.work {
            Work::Sorted(work) => work.step(&self.shared, plan.upto, &mut plan.report),
            Work::Adopt(work) => work.step(&self.shared, journal, &mut plan.report),
        };
        match stepped {
            Ok(Stepped::Preloaded(bytes)) => {
                Counters::add(&self.shared.counters.preloaded_bytes, bytes);
                Ok(MergeProgress::More { written: 0, preloaded: bytes })
            }
            Ok(Stepped::Written) => Ok(MergeProgress::More { written: plan.report.written - before, preloaded: 0 }),
            Ok(Stepped::Done) => {
                plan.done = true;
                switch::finish(&self.shared, plan.upto);
                self.release_journal(journal)?;
                Ok(MergeProgress::Done(plan.report))
            }
            Err(e) => {
                plan.give_up();
                Err(e)
            }
        }
    }

    /// Releases the journal files that both segments and the checkpoint cover. Merges do it themselves; to be called after
    /// a checkpoint too.
    ///
    /// # Errors
    /// As [`Journal::release`].
    pub fn release_journal(&self, journal: &dyn SealedJournal) -> Result<()> {
        self.shared.covered_upto().map_or(Ok(()), |upto| journal.release(upto))
    }
}

/// Rows of segments that were journal files.
fn adopted_rows(state: &State) -> u64 {
    let adopted = state.segments.iter().filter(|(_, s)| s.name.kind == SegmentKind::Adopted);
    adopted.map(|(_, s)| u64::from(s.live_rows)).sum()
}

/// What counts of a sealed file that can be merged and released.
struct Ripe {
    last: Index,
    bytes: u64,
    live_runs: u64,
    last_time: TimestampMs,
}

fn ripe(state: &State, sealed: &SealedFile, merged: Option<Index>, covered: Index) -> Option<Ripe> {
    let (_, last) = sealed.indexes?;
    if last > covered || merged.is_some_and(|m| last <= m) || state.applied.is_none_or(|a| last > a) {
        return None;
    }
    let file = state.frames.files().find(|f| f.sequence == sealed.sequence);
    Some(Ripe {
        last,
        bytes: sealed.end,
        live_runs: file.map_or(0, |f| f.live_runs),
        last_time: file.map_or(TimestampMs::MAX, |f| f.last_time),
    })
}
