//! A disk that runs a hook when a file is opened.

use parking_lot::Mutex;
use polylogue_env::{DirLock, Disk, DiskFile, OpenMode};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

type Work = Box<dyn FnOnce() + Send>;

/// Runs work once, between the opening of a file and the return to the caller.
pub(super) struct Hook {
    disk: Arc<dyn Disk>,
    work: Mutex<Option<Work>>,
}

impl Hook {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Hook {
        Hook { disk, work: Mutex::new(None) }
    }

    /// Sets the work for the next opening of a file for reading and writing.
    pub(super) fn at_next_open(&self, work: impl FnOnce() + Send + 'static) {
        *self.work.lock() = Some(Box::new(work));
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").finish_non_exhaustive()
    }
}

impl Disk for Hook {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path, mode)?;
        let work = if mode == OpenMode::ReadWrite { self.work.lock().take() } else { None };
        if let Some(work) = work {
            work();
        }
        Ok(file)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn exists(&self, path: &Path) -> bool {
        self.disk.exists(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.disk.free_bytes(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        self.disk.lock(path)
    }
}
