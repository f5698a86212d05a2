//! The partition store of one shard: where every committed entry of every partition is, and the background work that turns
//! journal files into segments.
//!
//! ```text
//!   committed frames ──apply──> index ──> tail cache      newest frames in memory            (frames.rs, index.rs)
//!                                 │  └──> journal files   what is not merged yet
//!   read, entry_at,               └─────> segments        sorted or adopted                  (segment/, registry.rs)
//!   find_by_time  ──> ready, or a plan that may do I/O                                       (query.rs, read.rs, lookup.rs)
//!
//!   merge_due ─> plan_merge ─> run_merge_step ... : sealed journal files ─> segments ─> manifest ─> release (merge.rs)
//!   retention_scan ─> (the broker writes a record) ─> trim ─> reclaim_step: punch, rewrite, join, remove (reclaim.rs)
//! ```
//!
//! On disk, in the shard's directory:
//!
//! ```text
//!   manifest                      the files in use (manifest.rs)
//!   segments/NAME.seg             runs and their index (segment/format.rs)
//!   segments/NAME.journal         the journal file that NAME.seg indexes in place
//!   checkpoint/NUMBER.ckpt        applied state (crate::checkpoint), and once more in NUMBER.ckpt2
//!   journal/                      the journal's own
//! ```
//!
//! **Invariants**
//! - No entry above the last applied frame is ever returned; an entry that was returned is returned again until it is trimmed.
//! - The index is behind one lock that is never held across I/O. Merging and reclaiming hold a lock of their own.
//! - A file is written and flushed, then its directory, then the manifest names it, then the index uses it, then what it
//!   replaces is released. Files that the manifest does not name are left over.
//! - What a merge writes depends on the log up to the cut alone. What is written anew later is each node's own affair.
//! - Bytes of segments, and journal bytes that recovery did not verify, are held against their checksums before they are
//!   given out for the first time after a start. Damage fences its block and nothing else.
//! - Offsets of one partition only ascend. An entry that takes no offset (count 0) is not in the store.

mod check;
mod config;
mod frames;
mod freeze;
mod index;
mod lease;
mod lookup;
mod lru;
mod manifest;
mod merge;
mod open;
mod prefetch;
mod query;
mod read;
mod read_cache;
mod reclaim;
mod registry;
mod retention;
mod rewrite;
pub mod segment;
mod shared;
#[cfg(test)]
mod tests;
mod varint;

pub use check::{SegmentFinding, check_segments};
pub use config::{CHUNKS_PER_READ_MAX, RUN_BYTES_MAX, SEGMENT_BYTES_MAX, StoreConfig};
pub(crate) use freeze::{Frozen, Pinned, PinnedFile};
pub use index::{FencedRange, RunAge};
pub use lookup::{EntryAt, EntryLocation};
pub(crate) use manifest::{FILE as MANIFEST_FILE, Keeper, NamedCheckpoint, flushed};
pub use merge::{Classes, JournalWaste, MergeDue, MergePlan, MergeProgress, MergeReason, MergeReport, SealedJournal};
pub use open::Opened;
pub use prefetch::{ColdRuns, Prefetch, ReadWanted, ReadWindow};
pub use query::{IoPlan, Lookup};
pub use read::ReadResult;
pub use reclaim::Reclaimed;
pub use retention::{Retention, new_start, retention_class};
pub use shared::SEGMENTS_DIR;

use crate::checkpoint::CheckpointStore;
use crate::error::{Error, ErrorKind, Result};
use crate::frame::Frame;
use index::Partition;
use lookup::{EntriesQuery, EntryQuery, MaxTimeQuery, TimeQuery, Wanted};
use polylogue_types::{Index, Offset, PartitionId, TimestampMs};
use read::ReadQuery;
use shared::Shared;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The store of one shard. Cheap to clone; all clones are the same store.
#[derive(Clone, Debug)]
pub struct ShardStore {
    shared: Arc<Shared>,
}

/// The state of a partition in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionStats {
    /// The first offset that is served.
    pub first: Offset,
    /// The offset after the last message.
    pub end: Offset,
    /// Native bytes that are kept, in whole runs.
    pub bytes: u64,
    /// Of those, the bytes that are in no segment yet.
    pub journal_bytes: u64,
    /// The number of runs.
    pub runs: usize,
    /// Newest timestamp of the oldest run, the next one that retention drops.
    pub oldest: Option<TimestampMs>,
    /// Newest timestamp of the last run.
    pub newest: Option<TimestampMs>,
}

/// Counters and sizes of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreStats {
    /// Partitions known.
    pub partitions: usize,
    /// Segments.
    pub segments: usize,
    /// Runs in segments.
    pub segment_runs: usize,
    /// Runs in the journal.
    pub journal_runs: usize,
    /// Native bytes that are kept, in segments and in the journal.
    pub kept_bytes: u64,
    /// Live native bytes in segments.
    pub live_bytes: u64,
    /// Length of the segment files, holes included. Bytes.
    pub segment_bytes: u64,
    /// Memory of the index, without the tail. Bytes, estimated.
    pub index_bytes: usize,
    /// Frames kept in memory for readers. Bytes.
    pub tail_bytes: usize,
    /// The bound of the tail cache while readers lag. Bytes.
    pub tail_bytes_max: usize,
    /// Memory of cached sparse indexes. Bytes.
    pub sparse_bytes: usize,
    /// Memory of journal runs cached as single entries. Bytes.
    pub divided_bytes: usize,
    /// Segment files held open.
    pub open_segments: usize,
    /// Native bytes served from memory, since the start.
    pub read_tail_bytes: u64,
    /// Of those, bytes of journal files that were read back.
    pub read_back_bytes: u64,
    /// Pieces of journal files that were read back, since the start.
    pub read_back_pieces: u64,
    /// Memory of pieces that were read back, including those that responses hold. Bytes.
    pub read_cache_bytes: usize,
    /// Native bytes served as ranges of files, since the start.
    pub read_file_bytes: u64,
    /// Bytes written by merges and rewrites, since the start.
    pub merged_bytes: u64,
    /// Brought into the page cache for merges. Bytes.
    pub preloaded_bytes: u64,
    /// Native bytes that became segments in place, since the start.
    pub adopted_bytes: u64,
    /// Bytes of punched holes in segments, since the start.
    pub punched_bytes: u64,
    /// Damaged ranges that reads found.
    pub fenced: usize,
    /// Segments that cannot be read at all.
    pub segments_lost: usize,
}

impl ShardStore {
    /// Applies a committed frame and makes its entries readable. Called in log order for each one, live and at replay; frames
    /// that segments already cover and local kinds are skipped.
    ///
    /// A frame whose `bytes` are shorter than its place says (headers and envelopes only) is indexed and served from its
    /// file, whose bytes are verified then.
    ///
    /// # Errors
    /// `Invalid` for a frame out of order or one that contradicts what was applied before: nothing has changed, and the
    /// shard must stop.
    pub fn apply(&self, frame: &Arc<Frame>) -> Result<()> {
        self.shared.state.lock().apply(frame)
    }

    /// Reads whole entries of a partition, from the one that contains `from` (or the next, where `from` lies in a gap), as
    /// many as fit into `max_bytes`, and with `at_least_one` the first even if it does not. A result may hold less than
    /// fits: it ends at pieces that would need more I/O, at [`CHUNKS_PER_READ_MAX`], or before a damaged range. At the
    /// end it is empty.
    ///
    /// Never does I/O itself: [`Lookup::NeedsIo`] says that the disk is needed, and the caller chooses the thread.
    ///
    /// # Errors
    /// `OutOfRange` below the first offset or above the end (of an unknown partition both are 0); `Damaged` when `from`
    /// lies in a fenced range.
    pub fn read(
        &self,
        partition: PartitionId,
        from: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Lookup<ReadResult>> {
        self.read_with(partition, from, max_bytes, at_least_one, ColdRuns::Take)
    }

    /// As [`ShardStore::read`], which does not read journal files back.
    ///
    /// # Errors
    /// As [`ShardStore::read`].
    pub fn read_with(
        &self,
        partition: PartitionId,
        from: Offset,
        max_bytes: usize,
        at_least_one: bool,
        cold: ColdRuns,
    ) -> Result<Lookup<ReadResult>> {
        self.shared.ask(ReadQuery { partition, from, max_bytes, at_least_one, cold, found: None })
    }

    /// The entry that contains an offset, or the next one where it lies in a gap.
    ///
    /// # Errors
    /// `OutOfRange` below the first offset or at the end; `Damaged`.
    pub fn entry_at(&self, partition: PartitionId, offset: Offset) -> Result<Lookup<EntryAt>> {
        self.shared.ask(EntryQuery { partition, offset })
    }

    /// Entries that follow one another, the first of which is that of [`ShardStore::entry_at`]: at least one, at most `entries_max`, and
    /// none that makes them larger than `bytes_max` together. There may be more behind the last one: one answer comes from one place.
    ///
    /// # Errors
    /// As [`ShardStore::entry_at`].
    pub fn entries_from(
        &self,
        partition: PartitionId,
        offset: Offset,
        entries_max: usize,
        bytes_max: usize,
    ) -> Result<Lookup<Vec<EntryAt>>> {
        self.shared.ask(EntriesQuery(Wanted { partition, offset, entries_max, bytes_max }))
    }

    /// Returns the end of the damaged range that contains an offset; `None` if no known range does.
    #[must_use]
    pub fn damaged_until(&self, partition: PartitionId, offset: Offset) -> Option<Offset> {
        let fence = self.shared.state.lock().next_fence(partition, offset);
        fence.filter(|(base, _)| *base <= offset).map(|(_, end)| end)
    }

    /// The first entry, in the order of offsets, that ends above `from` and whose highest timestamp is at or after `time`. Its first
    /// messages may be trimmed: they count for its timestamp, and cannot be read.
    ///
    /// # Errors
    /// `Damaged` when the entry may be in a fenced range.
    pub fn find_by_time(
        &self,
        partition: PartitionId,
        time: TimestampMs,
        from: Offset,
    ) -> Result<Lookup<Option<EntryLocation>>> {
        self.shared.ask(TimeQuery { partition, time, from, cursor: Offset(0) })
    }

    /// The first entry that has the highest timestamp of all that end above `from`. Its first messages may be trimmed, as with
    /// [`ShardStore::find_by_time`].
    ///
    /// # Errors
    /// As [`ShardStore::find_by_time`].
    pub fn max_timestamp_entry(&self, partition: PartitionId, from: Offset) -> Result<Lookup<Option<EntryLocation>>> {
        self.shared.ask(MaxTimeQuery { partition, from, cursor: Offset(0), highest: None, find: None })
    }

    /// Makes all offsets below `log_start` permanently unreadable. Runs wholly below are dropped; [`ShardStore::reclaim_step`] frees
    /// their bytes. A value lower than before has no effect.
    pub fn trim(&self, partition: PartitionId, log_start: Offset) {
        self.shared.state.lock().trim(partition, log_start);
    }

    /// Checks a partition against its owner's state: it must hold all offsets from `log_start` up to `end`. To be
    /// called for every partition at the end of a replay, before [`ShardStore::reclaim_step`]; it trims, and:
    ///
    /// - offsets missing in the middle or at the end are fenced, so that a reader gets `Damaged` and not an empty result;
    /// - offsets missing at the front are fenced too when runs of segments could not be read. Otherwise a power cut has taken the
    ///   record that trimmed it, while the removal of the segment was flushed (class `async`): the result is where the
    ///   partition really begins, above `log_start`, and the owner must go on from there.
    #[must_use = "the partition may begin later than its owner thinks"]
    pub fn expect(&self, partition: PartitionId, log_start: Offset, end: Offset) -> Offset {
        self.shared.state.lock().expect(partition, log_start, end)
    }

    /// Says that frames of the journal are missing and that it is unknown what was in them: whatever [`ShardStore::expect`] finds
    /// to lack is lost, at the front too, and the manifest remembers it once the frames around are merged.
    pub fn lose_unknown(&self) {
        self.shared.state.lock().loss_unknown = true;
    }

    /// Drops a partition. Its id is never used again.
    pub fn drop_partition(&self, partition: PartitionId) {
        self.shared.state.lock().drop_partition(partition);
    }

    /// Drops all partitions for which `keep` is false: for the end of a replay, because the record that deleted a
    /// partition may be older than what is replayed.
    pub fn retain_partitions(&self, mut keep: impl FnMut(PartitionId) -> bool) {
        let mut state = self.shared.state.lock();
        let gone: Vec<_> = state.partitions.keys().copied().filter(|id| !keep(*id)).collect();
        gone.into_iter().for_each(|id| state.drop_partition(id));
    }

    /// Returns the state of a partition; `None` if the store has none with this id.
    #[must_use]
    pub fn partition_stats(&self, partition: PartitionId) -> Option<PartitionStats> {
        let state = self.shared.state.lock();
        let p = state.partition(partition)?;
        Some(PartitionStats {
            first: p.first(),
            end: p.last(),
            bytes: p.bytes,
            journal_bytes: p.journal_bytes,
            runs: p.rows.len() + p.runs.len(),
            oldest: p.ages().next().map(|r| r.newest),
            newest: p.runs.back().map(index::newest_of_run).or_else(|| p.rows.last().map(index::newest_of_row)),
        })
    }

    /// Returns the log starts that retention requires. Changes nothing: the broker writes them as records and
    /// calls [`ShardStore::trim`] when they are applied.
    #[must_use]
    pub fn retention_scan(
        &self,
        now: TimestampMs,
        limits: impl IntoIterator<Item = (PartitionId, Retention)>,
    ) -> Vec<(PartitionId, Offset)> {
        let mut starts = Vec::new();
        for (id, keep) in limits {
            // One lock for each: a scan of thousands must not keep writers waiting.
            let state = self.shared.state.lock();
            let scan = |p: &Partition| new_start(now, keep, p.bytes, p.ages()).filter(|start| *start > p.log_start);
            starts.extend(state.partition(id).and_then(scan).map(|start| (id, start)));
        }
        starts
    }

    /// Fenced ranges, whose bytes do not verify, as far as reads have found them.
    #[must_use]
    pub fn fenced(&self) -> Vec<FencedRange> {
        let state = self.shared.state.lock();
        state
            .fences
            .iter()
            .map(|((partition, base), end)| FencedRange { partition: *partition, base: *base, end: *end })
            .collect()
    }

    /// The shard's directory.
    pub(crate) fn dir(&self) -> &std::path::Path {
        &self.shared.dir
    }

    /// The last frame that was applied.
    #[must_use]
    pub fn applied(&self) -> Option<Index> {
        self.shared.state.lock().applied
    }

    /// The last frame whose entries are in segments.
    #[must_use]
    pub fn merged_upto(&self) -> Option<Index> {
        self.shared.state.lock().merged_upto
    }

    /// The first frame that the journal must still show at a start: the one after the last that both segments and the
    /// checkpoint cover.
    #[must_use]
    pub fn journal_from(&self) -> Index {
        self.shared.covered_upto().map_or(Index(0), Index::next)
    }

    /// The checkpoints of this shard. They share the store's manifest. The first call reads the directories of the
    /// checkpoint's files.
    ///
    /// # Errors
    /// `Damaged`, `Incompatible`, `Io`; nothing is changed.
    pub fn checkpoints(&self) -> Result<CheckpointStore> {
        let mut known = self.shared.checkpoints.lock();
        if let Some(store) = &*known {
            return Ok(store.clone());
        }
        let store = CheckpointStore::open(self.shared.env.clone(), &self.shared.dir, self.shared.manifest.clone())?;
        *known = Some(store.clone());
        Ok(store)
    }

    /// Changes the bounds of the tail cache: its base size, and its size for readers that lag. Bytes.
    pub fn set_tail_cache_bytes(&self, min: usize, max: usize) {
        let mut state = self.shared.state.lock();
        let gone = state.frames.set_tail_bytes(min, max);
        state.forget(&gone);
    }

    /// Memory of the index over the journal. Bytes. Takes constant time.
    #[must_use]
    pub fn journal_index_bytes(&self) -> usize {
        self.shared.state.lock().journal_index_bytes()
    }

    /// What readers were given that is in no frame in memory, since the start. Bytes. Cheap to ask for.
    #[must_use]
    pub fn cold_read_bytes(&self) -> u64 {
        self.shared.counters.file_bytes.load(Ordering::Relaxed) + self.shared.read_cache.stats().hit_bytes
    }

    /// What the store has done and holds. Goes over all partitions: for metrics, not for each request.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let counters = &self.shared.counters;
        let open_segments = self.shared.open_segments();
        let (sparse_bytes, divided_bytes) = (self.shared.sparse_bytes(), self.shared.divided_bytes());
        let read_cache = self.shared.read_cache.stats();
        let state = self.shared.state.lock();
        let partitions = state.partitions.values();
        let rows =
            |p: &Partition| p.rows.capacity() * size_of::<index::RunRow>() + size_of::<(PartitionId, Partition)>();
        StoreStats {
            partitions: state.partitions.len(),
            segments: state.segments.iter().count(),
            segment_runs: partitions.clone().map(|p| p.rows.len()).sum(),
            journal_runs: state.journal_runs,
            kept_bytes: partitions.clone().map(|p| p.bytes).sum(),
            live_bytes: state.segments.iter().map(|(_, s)| s.live_bytes).sum(),
            segment_bytes: state.segments.iter().map(|(_, s)| s.bytes()).sum(),
            index_bytes: partitions.map(rows).sum::<usize>() + state.journal_index_bytes(),
            tail_bytes: state.frames.tail_bytes(),
            tail_bytes_max: state.frames.tail_bytes_max(),
            sparse_bytes,
            divided_bytes,
            open_segments,
            read_tail_bytes: counters.tail_bytes.load(Ordering::Relaxed),
            read_back_bytes: read_cache.hit_bytes,
            read_back_pieces: read_cache.loads,
            read_cache_bytes: read_cache.bytes,
            read_file_bytes: counters.file_bytes.load(Ordering::Relaxed),
            merged_bytes: counters.merged_bytes.load(Ordering::Relaxed),
            preloaded_bytes: counters.preloaded_bytes.load(Ordering::Relaxed),
            adopted_bytes: counters.adopted_bytes.load(Ordering::Relaxed),
            punched_bytes: counters.punched_bytes.load(Ordering::Relaxed),
            fenced: state.fences.len(),
            segments_lost: state.segments.lost.len(),
        }
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, what)
}
