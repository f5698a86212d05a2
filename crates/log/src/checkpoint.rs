//! Chunked snapshots of applied state, so that a start replays a bounded piece of the log.
//!
//! State is cut into chunks with stable keys (a partition, a group, a time bucket). A checkpoint writes the chunks that
//! changed since the one before into a new file; all files that the manifest names are the checkpoint together, and of
//! each key the newest chunk counts. When more than half of the chain is superseded, or it has too many files, the next
//! checkpoint writes everything that counts and begins a new chain.
//!
//! ```text
//!   all numbers little endian; every checksum is a CRC-32C
//!
//!   checkpoint/NUMBER.ckpt, and the same bytes once more in checkpoint/NUMBER.ckpt2
//!   0   +-------------------------------------------------------------------------------------+
//!       | magic u64 | version u16 | zeros u16 | number u32 low | applied index u64 | crc u32  |   header, 28 bytes
//!   28  +-------------------------------------------------------------------------------------+
//!       | chunks, one after the other, as they are                                            |
//!       +-------------------------------------------------------------------------------------+
//!       | directory, for each chunk: kind u8, key length u16, key, removed u8,                |
//!       |            position u64, length u32, crc u32                                        |
//!       +-------------------------------------------------------------------------------------+
//!       | directory at u64 | chunks u32 | crc of the directory u32 | magic u64 | crc u32      |   footer, 28 bytes
//!       +-------------------------------------------------------------------------------------+
//! ```
//!
//! State whose journal files were released exists in checkpoints only, so every file has a second copy. A chunk that does not verify
//! or cannot be read is read from the other copy, and the next checkpoint writes all current chunks. Where neither can be
//! read, the owner supplies all of its state anew ([`CheckpointStore::replace`]).
//!
//! A chunk that its owner does not need at a start is skipped by [`CheckpointStore::load_some`], and read when it is wanted
//! ([`CheckpointStore::read`]), beside whatever is being written.
//!
//! **Invariants**: a file is written and flushed, then its directory, then the manifest names it; only then are files
//! removed that it makes needless. A crash at any point leaves the checkpoint before it, or this one, whole. The journal
//! keeps what is above the applied index of the checkpoint that the manifest names.

mod file;
#[cfg(test)]
mod tests;

pub use file::{CheckpointFinding, check_checkpoints};

use crate::error::{Error, ErrorKind, Result};
use crate::store::{Keeper, NamedCheckpoint, flushed};
use bytes::Bytes;
use file::{Directory, FileWriter, Place};
use parking_lot::{Mutex, RwLock};
use polylogue_env::{DiskFile, Env, OpenMode};
use polylogue_record::crc;
use polylogue_types::{Index, Map};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The directory of checkpoint files in a shard's directory.
pub const CHECKPOINT_DIR: &str = "checkpoint";
/// The longest key of a chunk. Bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// The largest chunk. Bytes.
pub const CHUNK_BYTES_MAX: usize = 64 << 20;
/// Files of a chain; one more checkpoint begins a new chain.
pub const CHAIN_FILES_MAX: usize = 32;

/// The names of a checkpoint file and of its second copy.
pub(crate) fn file_names(sequence: u64) -> [String; 2] {
    ["ckpt", "ckpt2"].map(|ending| format!("{sequence:016x}.{ending}"))
}

/// The key of a chunk: the owner of the state, and the owner's name for the chunk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChunkKey {
    /// The owner of the state.
    pub kind: u8,
    /// The owner's name for the chunk; at most [`KEY_BYTES_MAX`].
    pub id: Bytes,
}

/// The result of writing a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Chunks in the new file.
    pub chunks: usize,
    /// Length of the new file, of which two copies are written.
    pub bytes: u64,
    /// Whether the file holds everything and began a new chain.
    pub complete: bool,
    /// Files that the checkpoint consists of now.
    pub files: usize,
    /// Chunks that were to be kept and can be read nowhere ([`CheckpointStore::replace`]).
    pub lost: usize,
}

/// The checkpoints of one shard. All methods block on the disk. Cheap to clone; all clones are the same store.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    env: Env,
    dir: PathBuf,
    manifest: Arc<Keeper>,
    /// Held by the writer of a checkpoint.
    writing: Mutex<()>,
    /// Changed by the writer, for a moment.
    chain: RwLock<Chain>,
    /// A copy could not be read: the next checkpoint begins a new chain.
    wounded: AtomicBool,
}

/// The directory of all current files.
#[derive(Debug, Default)]
struct Chain {
    /// Where the newest chunk of each key is.
    chunks: BTreeMap<ChunkKey, Place>,
    /// Bytes of all files, and of the chunks that count.
    bytes: u64,
    live_bytes: u64,
    /// The last frame that they cover.
    applied: Option<Index>,
}

/// The hash of one chunk of so many bytes with this CRC-32C. Sums of these do not depend on the order of chunks.
#[must_use]
pub fn chunk_hash(key: &ChunkKey, len: u32, checksum: u32) -> u64 {
    let name = u64::from(crc::crc32c(&key.id)) ^ (u64::from(key.kind) << 32) ^ (u64::from(len) << 40);
    mix(mix(name) ^ u64::from(checksum))
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit of the argument.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Chunks of the checkpoint before that go into a new one, unless they are superseded.
struct Copied<'a> {
    chain: &'a Chain,
    which: &'a dyn Fn(&ChunkKey) -> bool,
    /// What cannot be read is left out.
    leaves_out: bool,
}

impl Chain {
    /// Reads the directories of the files that the manifest names, and says whether a copy of one could not be read.
    fn read(env: &Env, dir: &Path, files: &[NamedCheckpoint]) -> Result<(Chain, bool)> {
        let (mut chain, mut wounded) = (Chain::default(), false);
        for named in files {
            let read = |name: &str| Directory::read(&*open_file(env, dir, name)?, name, named.sequence, named.len);
            let [first, second] = file_names(named.sequence);
            let directory = read(&first).or_else(|e| {
                wounded = true;
                otherwise(e, || read(&second))
            })?;
            chain.add(directory, named.len);
        }
        Ok((chain, wounded))
    }

    /// Shows every chunk that counts and is wanted, and says whether a copy of one could not be read.
    fn load(
        &self,
        env: &Env,
        dir: &Path,
        wants: &dyn Fn(&ChunkKey) -> bool,
        visit: &mut dyn FnMut(ChunkKey, Bytes) -> Result<()>,
    ) -> Result<bool> {
        let mut order: Vec<(&ChunkKey, &Place)> = self.chunks.iter().filter(|(key, _)| wants(key)).collect();
        order.sort_unstable_by_key(|(_, place)| (place.sequence, place.position));
        let mut files = Files::new(env, dir);
        for (key, place) in order {
            visit(key.clone(), files.read(key, place)?)?;
        }
        Ok(files.wounded)
    }

    /// Takes a newer file in.
    fn add(&mut self, directory: Directory, len: u64) {
        self.bytes += len;
        for (key, place) in directory.entries {
            let before = match place {
                Some(place) => {
                    self.live_bytes += u64::from(place.len);
                    self.chunks.insert(key, place)
                }
                None => self.chunks.remove(&key),
            };
            self.live_bytes -= before.map_or(0, |p| u64::from(p.len));
        }
    }
}

/// Shows every chunk of the checkpoint of a shard's directory that no broker uses, and gives the index up to which they cover
/// the log. Reads only.
///
/// # Errors
/// `Damaged`, `Incompatible`, `Io`; what `visit` returns.
pub fn read_checkpoint(
    env: &Env,
    shard_dir: &Path,
    visit: &mut dyn FnMut(ChunkKey, Bytes) -> Result<()>,
) -> Result<Option<Index>> {
    let manifest = Keeper::read(env, shard_dir)?.unwrap_or_default();
    let dir = shard_dir.join(CHECKPOINT_DIR);
    let (chain, _) = Chain::read(env, &dir, &manifest.checkpoint_files)?;
    chain.load(env, &dir, &|_| true, visit)?;
    Ok(manifest.checkpoint_applied)
}

impl CheckpointStore {
    /// Opens the checkpoints that the manifest names. Reads their directories, not their chunks.
    ///
    /// # Errors
    /// `Damaged`, `Incompatible`, `Io`; nothing is changed.
    pub(crate) fn open(env: Env, shard_dir: &Path, manifest: Arc<Keeper>) -> Result<CheckpointStore> {
        let dir = shard_dir.join(CHECKPOINT_DIR);
        let named = manifest.look();
        let (mut chain, wounded) = Chain::read(&env, &dir, &named.checkpoint_files)?;
        chain.applied = named.checkpoint_applied;
        let (chain, wounded) = (RwLock::new(chain), AtomicBool::new(wounded));
        let inner = Inner { env, dir, manifest, writing: Mutex::new(()), chain, wounded };
        Ok(CheckpointStore { inner: Arc::new(inner) })
    }

    /// The last frame that the checkpoint covers; `None` before the first checkpoint.
    #[must_use]
    pub fn applied(&self) -> Option<Index> {
        self.inner.manifest.look().checkpoint_applied
    }

    /// Keeps a checkpoint from being written for as long as the result is held: the files that the manifest names stay.
    pub(crate) fn hold(&self) -> parking_lot::MutexGuard<'_, ()> {
        self.inner.writing.lock()
    }

    /// The number of current chunks.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.inner.chain.read().chunks.len()
    }

    /// A hash of the chunks that count and are `hashed`, and the last frame that they cover: nodes that hold equal chunks at one index have
    /// one hash. It is made of keys, lengths and checksums, which are in memory; nothing is read. 0 for no chunks.
    #[must_use]
    pub fn hash(&self, hashed: &dyn Fn(&ChunkKey) -> bool) -> (Option<Index>, u64) {
        let chain = self.inner.chain.read();
        let chunks = chain.chunks.iter().filter(|(key, _)| hashed(key));
        let hash = chunks.map(|(key, place)| chunk_hash(key, place.len, place.crc)).fold(0, u64::wrapping_add);
        (chain.applied, hash)
    }

    /// Shows every chunk that counts, one at a time, and gives the index up to which they cover the log. `visit` must not
    /// call this store.
    ///
    /// # Errors
    /// `Damaged` names the file and the chunk; `Io`; what `visit` returns.
    pub fn load(&self, visit: &mut dyn FnMut(ChunkKey, Bytes) -> Result<()>) -> Result<Option<Index>> {
        self.load_some(&|_| true, visit)
    }

    /// As [`CheckpointStore::load`], of the chunks that are `wanted`: the others are not read.
    ///
    /// # Errors
    /// As [`CheckpointStore::load`].
    pub fn load_some(
        &self,
        wanted: &dyn Fn(&ChunkKey) -> bool,
        visit: &mut dyn FnMut(ChunkKey, Bytes) -> Result<()>,
    ) -> Result<Option<Index>> {
        let Inner { env, dir, chain, wounded, .. } = &*self.inner;
        if chain.read().load(env, dir, wanted, visit)? {
            wounded.store(true, Ordering::Relaxed);
        }
        Ok(self.applied())
    }

    /// Reads one chunk; `None` when there is none of that name. Does not wait for a checkpoint that is being written.
    ///
    /// # Errors
    /// `Damaged` when neither copy can be read; `Io`.
    pub fn read(&self, key: &ChunkKey) -> Result<Option<Bytes>> {
        let Inner { env, dir, chain, wounded, .. } = &*self.inner;
        let place_of = || chain.read().chunks.get(key).copied();
        let mut place = place_of();
        loop {
            let Some(here) = place else { return Ok(None) };
            let mut files = Files::new(env, dir);
            let read = files.read(key, &here);
            // A new chain may have taken its place meanwhile, and its file away.
            let now = place_of();
            if read.is_err() && now != Some(here) {
                place = now;
                continue;
            }
            if files.wounded && now == Some(here) {
                wounded.store(true, Ordering::Relaxed);
            }
            return read.map(Some);
        }
    }

    /// Writes the chunks that changed since the last call (`None`: removed), as of frame `applied`. When it returns, they
    /// are durable and the checkpoint covers the log up to `applied`, which must be durable itself. After an error nothing has
    /// changed, and the caller must give the same chunks again.
    ///
    /// # Errors
    /// `Invalid` for an index below that of the last checkpoint, a key or chunk that is too large; `StorageFull`, `Io`;
    /// `Damaged` when neither copy of a chunk that is to be copied can be read: then only [`CheckpointStore::replace`]
    /// helps. A failed flush ends the process.
    pub fn write(
        &self,
        applied: Index,
        changed: impl IntoIterator<Item = (ChunkKey, Option<Bytes>)>,
    ) -> Result<Written> {
        self.inner.write(applied, changed, None)
    }

    /// Writes a checkpoint of these chunks, as of frame `applied`, and of those that were there and are `kept`; of no others. What is to be
    /// kept and can be read nowhere is left out, and counted. Nothing else of the checkpoint before is read.
    ///
    /// # Errors
    /// As [`CheckpointStore::write`], without `Damaged`.
    pub fn replace(
        &self,
        applied: Index,
        chunks: impl IntoIterator<Item = (ChunkKey, Option<Bytes>)>,
        kept: &dyn Fn(&ChunkKey) -> bool,
    ) -> Result<Written> {
        self.inner.write(applied, chunks, Some(kept))
    }
}

impl Inner {
    /// `kept`: these are all chunks but those, not only the ones that changed.
    fn write(
        &self,
        applied: Index,
        chunks: impl IntoIterator<Item = (ChunkKey, Option<Bytes>)>,
        kept: Option<&dyn Fn(&ChunkKey) -> bool>,
    ) -> Result<Written> {
        let _one_at_a_time = self.writing.lock();
        let chain = self.chain.read();
        let named = self.manifest.look();
        if named.checkpoint_applied.is_some_and(|before| applied < before) {
            return Err(invalid("a checkpoint cannot go back"));
        }
        let long = named.checkpoint_files.len() >= CHAIN_FILES_MAX || chain.bytes > 2 * chain.live_bytes;
        let complete = kept.is_some() || long || self.wounded.load(Ordering::Relaxed);
        let (which, leaves_out) = (kept.unwrap_or(&|_| true), kept.is_some());
        let copied = complete.then_some(Copied { chain: &chain, which, leaves_out });
        let sequence = named.checkpoint_files.last().map_or(1, |f| f.sequence + 1);
        let (directory, len, lost) = self.fill(sequence, applied, chunks, copied).inspect_err(|_| {
            // What is left of it is removed at the next start, if not here.
            drop(self.remove_file(sequence));
        })?;
        drop(chain);
        flushed(&self.env, self.env.disk.sync_dir(&self.dir), "the directory of checkpoints")?;
        self.manifest.update(|manifest| {
            manifest.checkpoint_applied = Some(applied);
            if complete {
                manifest.checkpoint_files.clear();
            }
            manifest.checkpoint_files.push(NamedCheckpoint { sequence, len });
        })?;
        let mut written = Written { chunks: directory.entries.len(), bytes: len, complete, files: 1, lost };
        if complete {
            let mut chain = Chain { applied: Some(applied), ..Chain::default() };
            chain.add(directory, len);
            *self.chain.write() = chain;
            self.wounded.store(false, Ordering::Relaxed);
            self.remove(&named.checkpoint_files)?;
        } else {
            let mut chain = self.chain.write();
            chain.applied = Some(applied);
            chain.add(directory, len);
            written.files = named.checkpoint_files.len() + 1;
        }
        Ok(written)
    }

    /// Writes and flushes both copies of a file: the given chunks, and those of a chain that they do not supersede. With what is `copied` the
    /// file holds everything. Tells how many chunks were left out.
    fn fill(
        &self,
        sequence: u64,
        applied: Index,
        chunks: impl IntoIterator<Item = (ChunkKey, Option<Bytes>)>,
        copied: Option<Copied<'_>>,
    ) -> Result<(Directory, u64, usize)> {
        self.remove_file(sequence)?;
        let make = |name: &String| {
            let path = self.dir.join(name);
            let made = self.env.disk.open(&path, OpenMode::CreateNew);
            made.map_err(|e| Error::io(format!("cannot make {}", path.display()), e))
        };
        let [first, second] = &file_names(sequence);
        let mut writer = FileWriter::new([make(first)?, make(second)?], sequence, applied);
        for (key, chunk) in chunks {
            if key.id.len() > KEY_BYTES_MAX || chunk.as_ref().is_some_and(|c| c.len() > CHUNK_BYTES_MAX) {
                return Err(invalid("a chunk of a checkpoint, or its key, is too large"));
            }
            writer.chunk(key, chunk.as_ref())?;
        }
        let mut lost = 0;
        if let Some(Copied { chain, which, leaves_out }) = copied {
            let mut files = Files::new(&self.env, &self.dir);
            let mut order: Vec<(&ChunkKey, &Place)> = chain.chunks.iter().filter(|(key, _)| which(key)).collect();
            order.retain(|(key, _)| !writer.has(key));
            order.sort_unstable_by_key(|(_, place)| (place.sequence, place.position));
            for (key, place) in order {
                match files.read(key, place) {
                    Ok(chunk) => writer.chunk(key.clone(), Some(&chunk))?,
                    Err(e) if leaves_out && e.kind == ErrorKind::Damaged => lost += 1,
                    Err(e) => return Err(e),
                }
            }
            writer.forget_removed();
        }
        let (directory, len) = writer.finish(&self.env)?;
        Ok((directory, len, lost))
    }

    fn remove(&self, files: &[NamedCheckpoint]) -> Result<()> {
        for named in files {
            self.remove_file(named.sequence)?;
        }
        if files.is_empty() {
            Ok(())
        } else {
            flushed(&self.env, self.env.disk.sync_dir(&self.dir), "the directory of checkpoints")
        }
    }

    /// Removes both copies of a file, as far as they are there.
    fn remove_file(&self, sequence: u64) -> Result<()> {
        for path in file_names(sequence).map(|name| self.dir.join(name)) {
            if self.env.disk.exists(&path) {
                let removed = self.env.disk.remove(&path);
                removed.map_err(|e| Error::io(format!("cannot remove {}", path.display()), e))?;
            }
        }
        Ok(())
    }
}

/// What the second copy gives after the first one has not. Of two errors the first is returned.
fn otherwise<T>(first: Error, second: impl FnOnce() -> Result<T>) -> Result<T> {
    match first.kind {
        ErrorKind::Damaged | ErrorKind::Io => second().map_err(|_| Error {
            kind: ErrorKind::Damaged,
            context: format!("{} (both copies)", first.context),
            ..first
        }),
        _ => Err(first),
    }
}

/// Checkpoint files while chunks are read from them.
struct Files<'a> {
    env: &'a Env,
    dir: &'a Path,
    open: Map<String, Arc<dyn DiskFile>>,
    /// A first copy could not be read.
    wounded: bool,
}

impl Files<'_> {
    fn new<'a>(env: &'a Env, dir: &'a Path) -> Files<'a> {
        Files { env, dir, open: Map::default(), wounded: false }
    }

    fn read(&mut self, key: &ChunkKey, place: &Place) -> Result<Bytes> {
        let [first, second] = file_names(place.sequence);
        self.read_copy(first, key, place).or_else(|e| {
            self.wounded = true;
            otherwise(e, || self.read_copy(second, key, place))
        })
    }

    fn read_copy(&mut self, name: String, key: &ChunkKey, place: &Place) -> Result<Bytes> {
        let file = match self.open.get(&name) {
            Some(file) => file.clone(),
            None => {
                let file = open_file(self.env, self.dir, &name)?;
                self.open.insert(name.clone(), file.clone());
                file
            }
        };
        let mut bytes = vec![0; place.len as usize];
        let what = || format!("chunk {}/{:?} of {name}", key.kind, key.id);
        file.read_exact_at(&mut bytes, place.position).map_err(|e| Error::io(format!("cannot read {}", what()), e))?;
        if crc::crc32c(&bytes) != place.crc {
            return Err(Error::new(ErrorKind::Damaged, format!("{} does not verify", what())));
        }
        Ok(Bytes::from(bytes))
    }
}

fn open_file(env: &Env, dir: &Path, name: &str) -> Result<Arc<dyn DiskFile>> {
    let path = dir.join(name);
    env.disk.open(&path, OpenMode::Read).map_err(|e| Error::io(format!("cannot open {}", path.display()), e))
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, what)
}
