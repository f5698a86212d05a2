//! What all parts of a store share: the index behind its lock, the caches of files and sparse indexes, the counters.

use super::config::StoreConfig;
use super::freeze::Pins;
use super::index::{FencedRange, JournalRun, RunRow, State};
use super::lease::{Lease, LeasedFile};
use super::lru::Lru;
use super::manifest::Keeper;
use super::query::{Sparse, read};
use super::read_cache::ReadCache;
use super::rewrite::Rewrite;
use super::segment::format::{FOOTER_BYTES, ROW_BYTES, Row};
use super::segment::{Entries, SparseIndex};
use crate::checkpoint::CheckpointStore;
use crate::error::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use polylogue_env::{DiskFile, Env, OpenMode};
use polylogue_types::{FileRange, Offset, RangeSource};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The directory of segment files inside a shard's directory.
pub const SEGMENTS_DIR: &str = "segments";

/// The largest sparse index that is read. Bytes.
const SPARSE_BYTES_MAX: u32 = 64 << 20;

/// Which file of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Part {
    Data,
    Index,
}

/// An open file of a segment.
#[derive(Clone, Debug)]
struct Handle {
    file: Arc<dyn DiskFile>,
    /// The same as readers get it: with the segment's lease, where blocks of it may be given back.
    source: Arc<dyn RangeSource>,
}

impl Handle {
    fn new(part: Part, file: Arc<dyn DiskFile>, lease: &Lease) -> Handle {
        let source = match part {
            Part::Data => Arc::new(LeasedFile::new(file.clone(), lease.clone())),
            Part::Index => file.clone().as_range_source(),
        };
        Handle { file, source }
    }
}

/// Names a journal run for the life of the process: frames' numbers come again after four billion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct RunKey {
    slot: u32,
    entry: u32,
    base: Offset,
    checksum: u32,
}

/// The insides of a store.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) env: Env,
    /// The shard's directory.
    pub(super) dir: PathBuf,
    pub(super) config: StoreConfig,
    pub(super) manifest: Arc<Keeper>,
    /// Never held across I/O.
    pub(super) state: Mutex<State>,
    /// Held by merges and reclaims; never by readers. A rewrite that is at work.
    pub(super) maintenance: Mutex<Option<Rewrite>>,
    /// Opened when first asked for: there must be one only, because it knows what the files hold.
    pub(super) checkpoints: Mutex<Option<CheckpointStore>>,
    /// The segments that a backup copies. Taken after all other locks.
    pub(super) pins: Mutex<Pins>,
    handles: Mutex<Lru<(u32, Part), Handle>>,
    sparse: Mutex<Lru<(u32, u32), Arc<Sparse>>>,
    /// Journal runs that were divided into entries: a reader of one in small pieces, such as the consumer of a queue, would have its whole
    /// frame's table read for each of them.
    runs: Mutex<Lru<RunKey, Arc<Entries>>>,
    /// Its lock is taken after that of `state`.
    pub(super) read_cache: ReadCache,
    pub(super) counters: Counters,
}

/// What is counted, from the start of the process on.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) tail_bytes: AtomicU64,
    pub(super) file_bytes: AtomicU64,
    pub(super) merged_bytes: AtomicU64,
    pub(super) preloaded_bytes: AtomicU64,
    pub(super) adopted_bytes: AtomicU64,
    pub(super) punched_bytes: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, bytes: u64) {
        counter.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Shared {
    pub(super) fn new(env: Env, dir: PathBuf, config: StoreConfig, manifest: Arc<Keeper>, state: State) -> Shared {
        Shared {
            env,
            dir,
            manifest,
            state: Mutex::new(state),
            maintenance: Mutex::new(None),
            checkpoints: Mutex::new(None),
            pins: Mutex::default(),
            handles: Mutex::new(Lru::new(config.open_segments_max)),
            sparse: Mutex::new(Lru::new(config.index_cache_bytes)),
            runs: Mutex::new(Lru::new(config.index_cache_bytes)),
            read_cache: ReadCache::new(config.read_cache_bytes),
            counters: Counters::default(),
            config,
        }
    }

    /// Where segment files are.
    pub(super) fn segments_dir(&self) -> PathBuf {
        self.dir.join(SEGMENTS_DIR)
    }

    /// The open file with a segment's native bytes, if it is open.
    pub(super) fn cached_handle(&self, segment: u32) -> Option<Arc<dyn RangeSource>> {
        self.handles.lock().get(&(segment, Part::Data)).map(|handle| handle.source)
    }

    /// The sparse index of a run, if it is in memory.
    pub(super) fn cached_sparse(&self, key: (u32, u32)) -> Option<Arc<Sparse>> {
        self.sparse.lock().get(&key)
    }

    /// Opens the file with a segment's native bytes, or takes the open one.
    pub(super) fn handle(&self, segment: u32) -> Result<Arc<dyn RangeSource>> {
        self.open(segment, Part::Data).map(|handle| handle.source)
    }

    /// The same to write to (punching).
    pub(super) fn data_file(&self, segment: u32) -> Result<Arc<dyn DiskFile>> {
        self.open(segment, Part::Data).map(|handle| handle.file)
    }

    /// The same of a segment's `.seg` file.
    pub(super) fn index_handle(&self, segment: u32) -> Result<Arc<dyn RangeSource>> {
        self.open(segment, Part::Index).map(|handle| handle.source)
    }

    fn open(&self, segment: u32, part: Part) -> Result<Handle> {
        if let Some(handle) = self.handles.lock().get(&(segment, part)) {
            return Ok(handle);
        }
        let gone = || Error::new(ErrorKind::OutOfRange, "the segment is gone");
        let known = |shared: &Shared| {
            let state = shared.state.lock();
            state.segments.get(segment).map(|s| s.name).zip(state.segments.lease(segment).cloned())
        };
        let (name, lease) = known(self).ok_or_else(gone)?;
        let file = if part == Part::Data { name.data_file() } else { name.index_file() };
        let path = self.segments_dir().join(file);
        let opened = self.env.disk.open(&path, OpenMode::ReadWrite).map_err(|e| match known(self) {
            None => gone(),
            Some(_) => Error::io(format!("cannot open {}", path.display()), e),
        })?;
        let handle = Handle::new(part, opened, &lease);
        self.handles.lock().put((segment, part), handle.clone(), 1);
        // Meanwhile the segment may have been removed, or its lease closed: no later call would release this.
        if known(self).is_none_or(|(_, now)| !now.is(&lease)) {
            self.handles.lock().remove(&(segment, part));
        }
        Ok(handle)
    }

    /// Keeps a file open that a merge has just written.
    pub(super) fn keep_open(&self, segment: u32, file: Arc<dyn DiskFile>) {
        let lease = self.state.lock().segments.lease(segment).cloned().unwrap_or_default();
        self.handles.lock().put((segment, Part::Data), Handle::new(Part::Data, file, &lease), 1);
    }

    /// Finds out which dead rows no reader can hold any more.
    pub(super) fn turn_leases(&self) {
        let closed = self.state.lock().segments.turn_leases();
        for segment in &closed {
            // The cache is no reader.
            self.handles.lock().remove(&(*segment, Part::Data));
        }
        if !closed.is_empty() {
            self.state.lock().segments.turn_leases();
        }
    }

    /// The segment is removed.
    pub(super) fn close(&self, segment: u32) {
        let mut handles = self.handles.lock();
        handles.remove(&(segment, Part::Data));
        handles.remove(&(segment, Part::Index));
    }

    /// Segment files that are open.
    pub(super) fn open_segments(&self) -> usize {
        self.handles.lock().len()
    }

    /// A run's entries: those in memory, or as `divide` finds them.
    pub(super) fn divided(
        &self,
        run: &JournalRun,
        divide: impl FnOnce(&Shared) -> Result<Entries>,
    ) -> Result<Arc<Entries>> {
        let key = RunKey { slot: run.slot, entry: run.entry, base: run.base, checksum: run.checksum };
        if let Some(known) = self.runs.lock().get(&key) {
            return Ok(known);
        }
        let entries = Arc::new(divide(self)?);
        self.runs.lock().put(key, entries.clone(), entries.weight());
        Ok(entries)
    }

    /// Memory of divided runs that are held. Bytes.
    pub(super) fn divided_bytes(&self) -> usize {
        self.runs.lock().weight()
    }

    /// Memory of the sparse indexes that are held. Bytes.
    pub(super) fn sparse_bytes(&self) -> usize {
        self.sparse.lock().weight()
    }

    /// Reads the sparse index of a run, or takes the one in memory.
    pub(super) fn sparse(&self, run: &RunRow) -> Result<Arc<Sparse>> {
        let key = (run.segment, run.row);
        if let Some(known) = self.cached_sparse(key) {
            return Ok(known);
        }
        let (len, rows) = {
            let state = self.state.lock();
            let segment = state.segments.get(run.segment);
            let segment = segment.ok_or_else(|| Error::new(ErrorKind::OutOfRange, "the segment is gone"))?;
            (segment.len, segment.rows)
        };
        let source = self.index_handle(run.segment)?;
        let from_end = (FOOTER_BYTES + (rows - run.row) as usize * ROW_BYTES) as u64;
        let position = len.checked_sub(from_end).ok_or_else(|| damaged("a segment is too short"))?;
        let bytes = read(&FileRange { source: source.clone(), position, len: ROW_BYTES as u32 })?;
        let row = Row::open(&bytes).map_err(|e| damaged(&e.to_string()))?;
        if (row.base, row.end, row.position, row.len) != (run.base, run.end, run.position, run.len) {
            return Err(damaged("a row of a run table has changed"));
        }
        let position = u64::from(row.tables) + u64::from(row.tables_len);
        if row.index_len > SPARSE_BYTES_MAX || position + u64::from(row.index_len) > len {
            return Err(damaged("a sparse index runs over the end of its segment"));
        }
        let bytes = read(&FileRange { source, position, len: row.index_len })?;
        let sparse = Arc::new(Sparse { row, index: SparseIndex::decode(&row, &bytes)? });
        self.sparse.lock().put(key, sparse.clone(), sparse.index.weight());
        Ok(sparse)
    }

    /// Remembers that a range is damaged.
    pub(super) fn fence(&self, range: FencedRange) {
        self.state.lock().fence(range);
    }
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, what)
}
