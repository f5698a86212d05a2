//! Writes the undo log.
//!
//! **Invariant:** the order of the records is the order of the changes. One lock is held around reading what a
//! change replaces, logging it, and making it. A change of content is logged before it is made, so that the kill can
//! at worst leave a record without its change, and undoing that puts back what is there anyway.

use crate::control::path_in_env;
use crate::files;
use crate::inside::die;
use polylogue_faultfs::{Record, kept_dir, read_log};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The open undo log.
pub(crate) struct Journal {
    log: File,
    /// Length of the log.
    end: u64,
    kept: PathBuf,
}

/// Locks the undo log; `None` inside when none is asked for.
pub(crate) fn lock() -> MutexGuard<'static, Option<Journal>> {
    static JOURNAL: OnceLock<Mutex<Option<Journal>>> = OnceLock::new();
    let open = || Mutex::new(path_in_env("FAULTFS_JOURNAL").map(|path| Journal::open(&path)));
    JOURNAL.get_or_init(open).lock().unwrap_or_else(PoisonError::into_inner)
}

impl Journal {
    /// Goes on with a log that an earlier process left, or starts one.
    fn open(path: &Path) -> Journal {
        let fail = |e| -> ! { die(&format!("cannot open the undo log {}: {e}", path.display())) };
        let (_, end) = read_log(path).unwrap_or_else(|e| fail(e));
        let log = OpenOptions::new().append(true).create(true).open(path).unwrap_or_else(|e| fail(e));
        // What follows the last whole record announces a change that was never made.
        log.set_len(end).unwrap_or_else(|e| fail(e));
        let kept = kept_dir(path);
        std::fs::create_dir_all(&kept).unwrap_or_else(|e| fail(e));
        Journal { log, end, kept }
    }

    /// How far the log goes: what a flush that starts now covers.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn add(&mut self, record: &Record) {
        let bytes = record.to_bytes();
        if let Err(e) = self.log.write_all(&bytes) {
            die(&format!("cannot write the undo log: {e}"));
        }
        self.end += bytes.len() as u64;
    }

    /// Keeps the file behind `path` alive, though it loses that name, and says which it is; 0 when there is none, or
    /// a directory (which the call will refuse).
    pub(crate) fn keep(&self, path: &Path) -> u64 {
        let Ok(found) = std::fs::symlink_metadata(path) else { return 0 };
        if found.is_dir() {
            return 0;
        }
        match std::fs::hard_link(path, self.kept.join(found.ino().to_string())) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                die(&format!("cannot keep {}: {e}", path.display()))
            }
            _ => found.ino(),
        }
    }

    /// Logs that `len` bytes at `position` are about to be overwritten.
    pub(crate) fn add_write(&mut self, file: &files::Open, position: u64, len: u64) {
        let shared = position.min(file.size)..file.size.min(position.saturating_add(len));
        let old = file.read(shared);
        self.add(&Record::Write { ino: file.ino, position, len, size_before: file.size, old });
    }

    /// Logs that the file is about to get this length.
    pub(crate) fn add_length(&mut self, file: &files::Open, size_after: u64) {
        let (ino, size_before) = (file.ino, file.size);
        if size_after > size_before {
            self.add(&Record::Extend { ino, size_before });
        } else if size_after < size_before {
            let old = file.read(size_after..size_before);
            self.add(&Record::Cut { ino, size_before, size_after, old });
        }
    }

    /// Logs that a hole is about to be punched.
    pub(crate) fn add_punch(&mut self, file: &files::Open, position: u64, len: u64) {
        let old = file.read(position.min(file.size)..file.size.min(position.saturating_add(len)));
        self.add(&Record::Punch { ino: file.ino, position, old });
    }
}
