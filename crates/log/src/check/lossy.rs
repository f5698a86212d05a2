//! Reading past sectors that the disk does not give any more: they count as zeros, which never verify, and it is known
//! where they were. For `check` and `repair` only; a start must not take what it cannot read for nothing.

use parking_lot::Mutex;
use polylogue_env::{Disk, DiskFile, OpenMode};
use polylogue_types::RangeSource;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is tried one by one where a larger read fails: what a system reads at the least. Bytes.
const PIECE_BYTES: u64 = 4096;

/// Where reads failed: file, and places of pieces in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Unread(Arc<Mutex<BTreeMap<PathBuf, BTreeSet<u64>>>>);

impl Unread {
    /// Opens a file whose unreadable pieces read as zeros.
    pub(super) fn open(&self, disk: &dyn Disk, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = disk.open(path, mode)?;
        Ok(Arc::new(LossyFile { file, path: path.to_owned(), unread: self.clone() }))
    }

    /// Ranges of a file from `from` on that could not be read so far.
    pub(super) fn behind(&self, path: &Path, from: u64) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let known = self.0.lock();
        for piece in known.get(path).into_iter().flatten().filter(|p| **p + PIECE_BYTES > from) {
            match ranges.last_mut() {
                Some((_, end)) if *end == *piece => *end += PIECE_BYTES,
                _ => ranges.push(((*piece).max(from), *piece + PIECE_BYTES)),
            }
        }
        ranges
    }
}

#[derive(Debug)]
struct LossyFile {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    unread: Unread,
}

impl RangeSource for LossyFile {
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        match self.file.read_exact_at(into, position) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(e),
            Err(_) => {}
        }
        let (mut at, mut rest) = (position, into);
        while !rest.is_empty() {
            let left = PIECE_BYTES - at % PIECE_BYTES;
            let (piece, behind) = rest.split_at_mut(rest.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
            if self.file.read_exact_at(piece, at).is_err() {
                piece.fill(0);
                let mut unread = self.unread.0.lock();
                unread.entry(self.path.clone()).or_default().insert(at - at % PIECE_BYTES);
            }
            at += piece.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    fn raw_fd(&self) -> Option<i32> {
        self.file.raw_fd()
    }
}

impl DiskFile for LossyFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }

    fn punch(&self, position: u64, len: u64) -> io::Result<bool> {
        self.file.punch(position, len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.file.allocated_bytes()
    }

    fn as_range_source(self: Arc<Self>) -> Arc<dyn RangeSource> {
        self
    }
}
