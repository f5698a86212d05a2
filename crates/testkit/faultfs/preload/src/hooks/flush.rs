//! Functions that make changes durable, and the one that tells how much room there is.

use crate::control::Control;
use crate::files::Open;
use crate::inside::Inside;
use crate::{events, journal, watch};
use polylogue_faultfs::Record;
use polylogue_interpose::{errno, next, set_errno};
use std::ffi::{c_char, c_int};
use std::path::Path;
use std::time::Duration;

/// How often a held flush looks whether it is let go.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Waits as long as the settings say, looking at them again and again.
#[allow(clippy::disallowed_methods, reason = "this library runs inside programs of its own choice of clock")]
fn hold(path: &Path) {
    let start = std::time::Instant::now();
    let mut noted = false;
    while start.elapsed() < Duration::from_millis(Control::for_file(path).hold_sync_ms) {
        if !noted {
            events::note("hold_sync", path);
            noted = true;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn flush(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let Some(_inside) = Inside::enter() else { return call() };
    let Some(path) = watch::by_fd(fd) else { return call() };
    let Some(file) = Open::of(fd) else { return call() };
    hold(&path);
    if let Some(number) = Control::for_file(&path).fail_sync {
        events::note("fail_sync", &path);
        set_errno(number);
        return -1;
    }
    // What is logged from now on may or may not be covered; only what was before it is for certain.
    let upto = journal::lock().as_ref().map(journal::Journal::end);
    let result = call();
    let number = errno();
    if let (0, Some(upto), Some(journal)) = (result, upto, journal::lock().as_mut()) {
        let flushed =
            if file.is_dir { Record::DirFlushed { path, upto } } else { Record::Flushed { ino: file.ino, upto } };
        journal.add(&flushed);
    }
    set_errno(number);
    result
}

/// # Safety
/// As fsync(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    flush(fd, || next!(fsync(fd: c_int) -> c_int))
}

/// # Safety
/// As fdatasync(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    flush(fd, || next!(fdatasync(fd: c_int) -> c_int))
}

/// The free bytes that the settings speak of, where `path` is watched.
///
/// # Safety
/// `path` must be null or end with a zero byte.
unsafe fn pretended_free(path: *const c_char) -> Option<u64> {
    let _inside = Inside::enter()?;
    // SAFETY: the caller's promise.
    if unsafe { watch::is_on_watched(path) } { Control::now().free_bytes } else { None }
}

/// # Safety
/// As statvfs(3).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn statvfs(path: *const c_char, into: *mut libc::statvfs) -> c_int {
    let result = next!(statvfs(path: *const c_char, into: *mut libc::statvfs) -> c_int);
    // SAFETY: the caller's promise.
    if let (0, Some(free)) = (result, unsafe { pretended_free(path) }) {
        // SAFETY: the call has just filled it, so it is valid and writable.
        let into = unsafe { &mut *into };
        into.f_bavail = free / into.f_frsize.max(1);
        into.f_bfree = into.f_bavail;
    }
    result
}

/// # Safety
/// As statvfs(3).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn statvfs64(path: *const c_char, into: *mut libc::statvfs64) -> c_int {
    let result = next!(statvfs64(path: *const c_char, into: *mut libc::statvfs64) -> c_int);
    // SAFETY: the caller's promise.
    if let (0, Some(free)) = (result, unsafe { pretended_free(path) }) {
        // SAFETY: the call has just filled it, so it is valid and writable.
        let into = unsafe { &mut *into };
        into.f_bavail = free / into.f_frsize.max(1);
        into.f_bfree = into.f_bavail;
    }
    result
}
