//! Functions that make, change and remove names. No fault strikes here; they only keep the undo log.

use crate::files::Open;
use crate::inside::{Inside, die};
use crate::journal::{self, Journal};
use crate::watch;
use libc::mode_t;
use polylogue_faultfs::Record;
use polylogue_interpose::{errno, next, set_errno};
use std::ffi::{c_char, c_int, c_uint};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Runs `body` under the lock of the undo log if the named path is watched and there is such a log, else `call`.
///
/// # Safety
/// `path` must be null or end with a zero byte.
unsafe fn logged<R>(
    dir_fd: c_int,
    path: *const c_char,
    call: impl Fn() -> R,
    body: impl FnOnce(&mut Journal, &Path, &dyn Fn() -> R) -> R,
) -> R {
    let Some(_inside) = Inside::enter() else { return call() };
    // SAFETY: the caller's promise.
    let Some(named) = (unsafe { watch::by_name(dir_fd, path) }) else { return call() };
    match journal::lock().as_mut() {
        Some(journal) => body(journal, &named, &call),
        None => call(),
    }
}

/// The inode number behind a name, `None` when there is none.
fn ino_of(path: &Path) -> Option<u64> {
    std::fs::symlink_metadata(path).ok().map(|found| found.ino())
}

/// # Safety
/// As for [`logged`].
unsafe fn opened(dir_fd: c_int, path: *const c_char, flags: c_int, call: impl Fn() -> c_int) -> c_int {
    if flags & (libc::O_CREAT | libc::O_TRUNC) == 0 {
        return call();
    }
    let body = |journal: &mut Journal, named: &Path, call: &dyn Fn() -> c_int| {
        let before = ino_of(named);
        if flags & libc::O_TRUNC != 0
            && let Ok(file) = OpenOptions::new().read(true).open(named)
            && let Some(file) = Open::of(file.as_raw_fd())
            && !file.is_dir
        {
            journal.add_length(&file, 0);
        }
        let fd = call();
        let number = errno();
        if fd >= 0
            && before.is_none()
            && let Some(file) = Open::of(fd)
        {
            journal.add(&Record::Create { path: named.to_owned(), ino: file.ino });
        }
        set_errno(number);
        fd
    };
    // SAFETY: the caller's promise.
    unsafe { logged(dir_fd, path, call, body) }
}

/// The C function takes `mode` as a variable argument; on the supported machines it is passed like a fixed one.
///
/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let call = || next!(open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int);
    // SAFETY: the caller's promise.
    unsafe { opened(libc::AT_FDCWD, path, flags, call) }
}

/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let call = || next!(open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int);
    // SAFETY: the caller's promise.
    unsafe { opened(libc::AT_FDCWD, path, flags, call) }
}

/// # Safety
/// As openat(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let call = || next!(openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int);
    // SAFETY: the caller's promise.
    unsafe { opened(dir, path, flags, call) }
}

/// # Safety
/// As openat(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let call = || next!(openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int);
    // SAFETY: the caller's promise.
    unsafe { opened(dir, path, flags, call) }
}

/// # Safety
/// As for [`logged`], for both paths.
unsafe fn renamed(
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    flags: c_uint,
    call: impl Fn() -> c_int,
) -> c_int {
    let body = |journal: &mut Journal, target: &Path, call: &dyn Fn() -> c_int| {
        // SAFETY: the caller's promise.
        let Some(source) = (unsafe { watch::by_name(from.0, from.1) }) else {
            die(&format!("cannot undo a rename from outside to {}", target.display()))
        };
        let Ok(moved) = std::fs::symlink_metadata(&source) else { return call() };
        if moved.is_dir() || flags & libc::RENAME_EXCHANGE != 0 {
            die(&format!("cannot undo this kind of rename of {}", source.display()));
        }
        let replaced = journal.keep(target);
        if replaced != moved.ino() {
            journal.add(&Record::Rename { from: source, to: target.to_owned(), ino: moved.ino(), replaced });
        }
        call()
    };
    // SAFETY: the caller's promise.
    unsafe { logged(to.0, to.1, call, body) }
}

/// # Safety
/// As rename(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let call = || next!(rename(from: *const c_char, to: *const c_char) -> c_int);
    // SAFETY: the caller's promise.
    unsafe { renamed((libc::AT_FDCWD, from), (libc::AT_FDCWD, to), 0, call) }
}

/// # Safety
/// As renameat(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn renameat(a: c_int, from: *const c_char, b: c_int, to: *const c_char) -> c_int {
    let call = || next!(renameat(a: c_int, from: *const c_char, b: c_int, to: *const c_char) -> c_int);
    // SAFETY: the caller's promise.
    unsafe { renamed((a, from), (b, to), 0, call) }
}

/// # Safety
/// As renameat2(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn renameat2(
    a: c_int,
    from: *const c_char,
    b: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    let call = || next!(renameat2(a: c_int, from: *const c_char, b: c_int, to: *const c_char, flags: c_uint) -> c_int);
    // SAFETY: the caller's promise.
    unsafe { renamed((a, from), (b, to), flags, call) }
}

/// # Safety
/// As for [`logged`].
unsafe fn removed(dir: c_int, path: *const c_char, call: impl Fn() -> c_int) -> c_int {
    let body = |journal: &mut Journal, named: &Path, call: &dyn Fn() -> c_int| {
        let ino = journal.keep(named);
        if ino != 0 {
            journal.add(&Record::Remove { path: named.to_owned(), ino });
        }
        call()
    };
    // SAFETY: the caller's promise.
    unsafe { logged(dir, path, call, body) }
}

/// # Safety
/// As for [`logged`].
unsafe fn directory_removed(dir: c_int, path: *const c_char, call: impl Fn() -> c_int) -> c_int {
    let body = |_: &mut Journal, named: &Path, _: &dyn Fn() -> c_int| {
        die(&format!("cannot undo the removal of the directory {}", named.display()))
    };
    // SAFETY: the caller's promise.
    unsafe { logged(dir, path, call, body) }
}

/// # Safety
/// As unlink(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    let call = || next!(unlink(path: *const c_char) -> c_int);
    // SAFETY: the caller's promise.
    unsafe { removed(libc::AT_FDCWD, path, call) }
}

/// # Safety
/// As unlinkat(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    let call = || next!(unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int);
    // SAFETY: the caller's promise.
    unsafe {
        if flags & libc::AT_REMOVEDIR != 0 { directory_removed(dir, path, call) } else { removed(dir, path, call) }
    }
}

/// # Safety
/// As rmdir(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    let call = || next!(rmdir(path: *const c_char) -> c_int);
    // SAFETY: the caller's promise.
    unsafe { directory_removed(libc::AT_FDCWD, path, call) }
}

/// Logs, after it has happened, that a name came to be.
///
/// # Safety
/// As for [`logged`].
unsafe fn appeared(
    dir: c_int,
    path: *const c_char,
    call: impl Fn() -> c_int,
    record: impl FnOnce(&Path) -> Option<Record>,
) -> c_int {
    let body = |journal: &mut Journal, named: &Path, call: &dyn Fn() -> c_int| {
        let result = call();
        if result == 0
            && let Some(record) = record(named)
        {
            journal.add(&record);
        }
        result
    };
    // SAFETY: the caller's promise.
    unsafe { logged(dir, path, call, body) }
}

fn directory_made(path: &Path) -> Option<Record> {
    Some(Record::MakeDir { path: path.to_owned() })
}

fn linked(path: &Path) -> Option<Record> {
    ino_of(path).map(|ino| Record::Create { path: path.to_owned(), ino })
}

/// # Safety
/// As mkdir(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    let call = || next!(mkdir(path: *const c_char, mode: mode_t) -> c_int);
    // SAFETY: the caller's promise.
    unsafe { appeared(libc::AT_FDCWD, path, call, directory_made) }
}

/// # Safety
/// As mkdirat(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    let call = || next!(mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int);
    // SAFETY: the caller's promise.
    unsafe { appeared(dir, path, call, directory_made) }
}

/// # Safety
/// As link(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    let call = || next!(link(from: *const c_char, to: *const c_char) -> c_int);
    // SAFETY: the caller's promise.
    unsafe { appeared(libc::AT_FDCWD, to, call, linked) }
}

/// # Safety
/// As linkat(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn linkat(
    a: c_int,
    from: *const c_char,
    b: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    let call = || next!(linkat(a: c_int, from: *const c_char, b: c_int, to: *const c_char, flags: c_int) -> c_int);
    // SAFETY: the caller's promise.
    unsafe { appeared(b, to, call, linked) }
}
