//! The disk as polylogue needs it: positioned reads and writes, explicit flushes, explicit directory flushes.
//!
//! What the contract promises is what ext4 and xfs promise and no more: bytes survive a power cut once `sync_data`
//! of their file has returned, names once `sync_dir` of their directory has; without them any subset may survive,
//! torn at 512-byte sectors.

use polylogue_types::RangeSource;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// It must not exist; it is created empty, readable and writable.
    CreateNew,
    /// It must exist; readable and writable.
    ReadWrite,
    /// It must exist; readable only.
    Read,
    /// It must exist; only for writing, past the page cache where the file system can: position and length of a write are
    /// multiples of [`DIRECT_BYTES`], and so is the address of its bytes. What is written so is flushed like any other write,
    /// through whichever handle, and read through others. Pages that were written through the page cache are flushed before
    /// they are written so.
    Direct,
}

/// The unit of position, length and address of [`OpenMode::Direct`] writes. Bytes.
pub const DIRECT_BYTES: usize = 4096;

/// A directory tree.
pub trait Disk: Send + Sync + Debug {
    /// Opens a file.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound`, `StorageFull`, or another error of the system; the text names the path.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a directory and its parents. No error if it exists.
    ///
    /// # Errors
    /// The system's error; the text names the path.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Renames a file and replaces the one at `to`, if there is one. Durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// The system's error; the text names both paths.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file. Durable after [`Disk::sync_dir`]. Open handles can still read it.
    ///
    /// # Errors
    /// The system's error; the text names the path.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Names of the entries of a directory, sorted.
    ///
    /// # Errors
    /// The system's error; the text names the path.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Whether there is a file or directory of that name.
    fn exists(&self, path: &Path) -> bool;
    /// Makes creations, renames and removals in `dir` durable.
    ///
    /// # Errors
    /// The system's error. As with a file's flush, a failure is final: it is never retried.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Bytes that an unprivileged process may still write on the file system of `path`.
    ///
    /// # Errors
    /// The system's error.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
    /// Takes the exclusive lock on a file, creating it where need be; freed when the guard is dropped or the
    /// process ends.
    ///
    /// # Errors
    /// `WouldBlock` when another process holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>>;
}

/// A held lock.
pub trait DirLock: Send + Sync + Debug {}

/// An open file.
pub trait DiskFile: RangeSource {
    /// Writes all of `bytes` at `position`, growing the file where need be.
    ///
    /// # Errors
    /// The system's error. After an error any part of the bytes may have been written.
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Makes written bytes (and the length, where it changed) durable: `fdatasync`.
    ///
    /// # Errors
    /// The system's error. After a failure the content of the disk is unknown: the caller ends the process and
    /// never retries.
    fn sync_data(&self) -> io::Result<()>;
    /// Reserves blocks so that the file has at least `len` bytes; new ones read as zero.
    ///
    /// # Errors
    /// `StorageFull` when there is no room; then nothing is reserved.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Punches a hole: frees the blocks of a range, which reads as zero afterwards. The length stays. Without support
    /// in the file system, the file is unchanged and the result is `Ok(false)`.
    ///
    /// # Errors
    /// The system's error.
    fn punch(&self, position: u64, len: u64) -> io::Result<bool>;
    /// Truncates the file or extends it with zeros.
    ///
    /// # Errors
    /// The system's error.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Length in bytes.
    ///
    /// # Errors
    /// The system's error.
    fn size(&self) -> io::Result<u64>;
    /// Allocated bytes of the file (without holes).
    ///
    /// # Errors
    /// The system's error.
    fn allocated_bytes(&self) -> io::Result<u64>;
    /// Upcast for replies that point into the file.
    fn as_range_source(self: Arc<Self>) -> Arc<dyn RangeSource>;
}
