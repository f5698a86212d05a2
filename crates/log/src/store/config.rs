//! Settings of a partition store, and the fixed bounds.

use crate::error::{Error, ErrorKind, Result};
use polylogue_types::limits;

/// The largest sorted segment file; a merge goes on in another one. Well below 4 GiB, because positions inside a segment
/// are kept in 32 bits, and the last run, the run table and its indexes come on top. Bytes.
pub const SEGMENT_BYTES_MAX: u64 = 3 << 30;
/// The longest run of one partition inside a segment: the unit in which retention drops and reclaims. Bytes.
pub const RUN_BYTES_MAX: u32 = 16 << 20;
/// Maximum pieces of one read's result; a reader reads again for the rest.
pub const CHUNKS_PER_READ_MAX: usize = 512;
/// How many things (index pieces, unverified blocks, journal runs) one read fetches from disk before it answers with
/// what it has.
pub(super) const LOADS_PER_READ_MAX: usize = 64;
/// Runs that a lookup by time examines before it releases the lock for a moment.
pub(super) const RUNS_PER_LOCK_MAX: usize = 4096;
/// Partitions that are switched from journal to segment while the lock is held once.
pub(super) const PARTITIONS_PER_LOCK_MAX: usize = 256;

/// Settings of a partition store. Every bound has a default that is good for a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreConfig {
    /// Recent frames kept in memory: their bytes and their decoded entries. Bytes; can be changed while running.
    pub tail_cache_bytes: usize,
    /// What that may grow to while readers are so far behind that they would miss it; not more than before where it is less. Bytes; can be
    /// changed while running.
    pub tail_cache_bytes_max: usize,
    /// Pieces of journal files that were read back, kept for other readers of the same place; those that responses hold count. Below a
    /// MiB nothing is read in pieces. Bytes.
    pub read_cache_bytes: usize,
    /// Distance of two marks of a segment's sparse index; an entry is never divided. Also the unit that is verified and
    /// fenced. Bytes.
    pub index_interval_bytes: u32,
    /// Pieces of segment indexes kept in memory; and as much of what journal runs were divided into. Bytes.
    pub index_cache_bytes: usize,
    /// Segment files held open at the same time.
    pub open_segments_max: usize,
    /// Long-lived data in sealed journal files from which a merge is due. Bytes.
    pub merge_bytes: u64,
    /// Age of long-lived data in sealed journal files from which a merge is due. Milliseconds.
    pub merge_ms_max: u64,
    /// Sealed journal files from which everything is merged, the short-lived too. Bytes.
    pub journal_keep_bytes_max: u64,
    /// Memory of the index over journal files from which a merge is due. Bytes.
    pub journal_index_bytes_max: usize,
    /// Classes up to this one are short-lived: they wait in the journal, because they will soon be dead.
    pub short_class_max: u8,
    /// What one step of a merge reads and writes before it returns. Bytes, unless one run alone is larger.
    pub merge_step_bytes: usize,
    /// Journal files of short runs that a merge first brings into the page cache, at the most. Bytes.
    pub merge_preload_bytes_max: u64,
    /// Whether segments are written past the page cache, where the file system can.
    pub direct_io: bool,
    /// Average length of the runs of a journal file from which the file becomes a segment as it is. Bytes.
    pub adopt_run_bytes_min: u64,
    /// A journal file of shorter runs, which are no shorter than half of `index_interval_bytes`, becomes a segment as it is too where
    /// so much of one partition stands together on average: nothing would be gained by sorting it. Bytes.
    pub adopt_stretch_bytes_min: u64,
    /// Memory of the rows of segments that were journal files. Above it, files of short runs are merged. Bytes.
    pub adopt_rows_bytes_max: usize,
    /// Share of a segment that must be dead before the rest is written anew, where blocks cannot be given back singly.
    /// Percent.
    pub rewrite_dead_percent: u8,
    /// How long a merge is tried again when the disk does not give what it needs; then that is damage. Milliseconds.
    pub unreadable_ms_max: u64,
    /// So many neighbouring segments of one class become one, when their runs are short.
    pub compact_segments: usize,
    /// Room that merges and rewrites leave free, for the manifest and checkpoints. Bytes.
    pub room_bytes_min: u64,
    /// While the disk is short of room, this much in dead journal files is worth a checkpoint and a merge. Bytes.
    pub waste_bytes_min: u64,
}

impl Default for StoreConfig {
    fn default() -> StoreConfig {
        StoreConfig {
            tail_cache_bytes: limits::TAIL_CACHE_BYTES,
            tail_cache_bytes_max: limits::TAIL_CACHE_BYTES,
            read_cache_bytes: limits::READ_CACHE_BYTES,
            index_interval_bytes: 16 << 10,
            index_cache_bytes: 4 << 20,
            open_segments_max: 128,
            merge_bytes: 256 << 20,
            merge_ms_max: 3_600_000,
            journal_keep_bytes_max: 1 << 30,
            journal_index_bytes_max: 32 << 20,
            short_class_max: 0,
            // The journal's flush waits for what the disk has been given meanwhile.
            merge_step_bytes: 256 << 10,
            merge_preload_bytes_max: 512 << 20,
            direct_io: true,
            adopt_run_bytes_min: 256 << 10,
            adopt_stretch_bytes_min: 4 << 20,
            adopt_rows_bytes_max: 32 << 20,
            rewrite_dead_percent: 33,
            unreadable_ms_max: 60_000,
            compact_segments: 8,
            room_bytes_min: 32 << 20,
            waste_bytes_min: 1 << 20,
        }
    }
}

impl StoreConfig {
    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// `Invalid` with the name of the setting that cannot.
    pub fn check(&self) -> Result<()> {
        let wrong = if self.index_interval_bytes == 0 || self.index_interval_bytes > RUN_BYTES_MAX / 4 {
            "index_interval_bytes"
        } else if self.open_segments_max == 0 {
            "open_segments_max"
        } else if self.merge_step_bytes == 0 || self.merge_step_bytes as u64 > SEGMENT_BYTES_MAX / 2 {
            "merge_step_bytes"
        } else if self.rewrite_dead_percent == 0 || self.rewrite_dead_percent > 100 {
            "rewrite_dead_percent"
        } else if self.compact_segments < 2 {
            "compact_segments"
        } else if self.adopt_run_bytes_min == 0 {
            "adopt_run_bytes_min"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Invalid, format!("the store cannot work with this value of {wrong}")))
    }
}
