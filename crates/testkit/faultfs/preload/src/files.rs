//! What an open file is and holds, asked for with functions that this library does not stand in front of.

use crate::inside::die;
use std::ffi::c_int;
use std::ops::Range;

/// An open regular file or directory.
pub(crate) struct Open {
    fd: c_int,
    pub(crate) ino: u64,
    /// Length in bytes.
    pub(crate) size: u64,
    pub(crate) is_dir: bool,
}

impl Open {
    /// `None` for what is neither.
    pub(crate) fn of(fd: c_int) -> Option<Open> {
        // SAFETY: all-zero is a valid `stat`: it consists of integers only.
        let mut found: libc::stat64 = unsafe { std::mem::zeroed() };
        // SAFETY: `found` is writable; a descriptor that is not open makes the call fail.
        if unsafe { libc::fstat64(fd, &raw mut found) } != 0 {
            return None;
        }
        let kind = found.st_mode & libc::S_IFMT;
        let is_dir = kind == libc::S_IFDIR;
        let size = found.st_size.unsigned_abs();
        (is_dir || kind == libc::S_IFREG).then_some(Open { fd, ino: found.st_ino, size, is_dir })
    }

    /// Where the next `write` goes.
    pub(crate) fn position(&self) -> u64 {
        // SAFETY: both calls take and give numbers only.
        let (flags, at) = unsafe { (libc::fcntl(self.fd, libc::F_GETFL), libc::lseek64(self.fd, 0, libc::SEEK_CUR)) };
        if flags & libc::O_APPEND != 0 { self.size } else { at.max(0).unsigned_abs() }
    }

    /// The bytes of a range inside the file, without the zeros at their end.
    pub(crate) fn read(&self, range: Range<u64>) -> Vec<u8> {
        if range.is_empty() {
            return Vec::new();
        }
        // The program may have opened the file for writing only.
        let path = format!("/proc/self/fd/{}", self.fd);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let read = std::fs::OpenOptions::new()
            .read(true)
            .open(path)
            .and_then(|file| std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, range.start));
        if let Err(e) = read {
            die(&format!("cannot read what is about to be overwritten: {e}"));
        }
        let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        bytes.truncate(used);
        bytes
    }
}
