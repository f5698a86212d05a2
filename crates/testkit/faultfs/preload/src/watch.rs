//! Which files are watched: those below one directory, whatever way they are named.

use crate::control::path_in_env;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The watched directory without symbolic links. It need not exist yet.
fn dir() -> Option<&'static Path> {
    static DIR: OnceLock<Option<PathBuf>> = OnceLock::new();
    DIR.get_or_init(|| path_in_env("FAULTFS_DIR").map(|path| follow(&path))).as_deref()
}

/// Resolves symbolic links and dots, in the last component too if it exists.
fn follow(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| resolve(path))
}

/// Resolves symbolic links and dots in the part of a path that exists; the last component is never followed.
fn resolve(path: &Path) -> PathBuf {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return path.to_owned() };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    match parent.canonicalize() {
        Ok(parent) => parent.join(name),
        Err(_) => resolve(parent).join(name),
    }
}

/// The path, if it lies below the watched directory.
fn below(path: PathBuf) -> Option<PathBuf> {
    let dir = dir()?;
    (path != dir && path.starts_with(dir)).then_some(path)
}

/// Where an open descriptor leads, if that is watched. The directory itself counts, for its flush.
pub(crate) fn by_fd(fd: c_int) -> Option<PathBuf> {
    let dir = dir()?;
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    path.starts_with(dir).then_some(path)
}

/// The path that a caller named relative to an open directory (or to none: `AT_FDCWD`), if it is watched.
///
/// # Safety
/// `path` must be null or end with a zero byte, as the C functions ask for.
pub(crate) unsafe fn by_name(dir_fd: c_int, path: *const c_char) -> Option<PathBuf> {
    dir()?;
    if path.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller promised the zero byte.
    let named = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    let whole = if named.is_absolute() || dir_fd == libc::AT_FDCWD {
        named.to_owned()
    } else {
        std::fs::read_link(format!("/proc/self/fd/{dir_fd}")).ok()?.join(named)
    };
    below(resolve(&whole))
}

/// Whether what `statvfs` is asked about is the watched directory or lies in it.
///
/// # Safety
/// As for [`by_name`].
pub(crate) unsafe fn is_on_watched(path: *const c_char) -> bool {
    let Some(dir) = dir() else { return false };
    if path.is_null() {
        return false;
    }
    // SAFETY: not null, and the caller promised the zero byte.
    let named = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    follow(named).starts_with(dir)
}
