//! Hooks of the functions that make data durable, open files for synchronous writes, and write.

use crate::{Counted, add, flush};
use libc::{iovec, mode_t, off_t, off64_t, size_t, ssize_t};
use polylogue_interpose::next;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of descriptors tracked: synchronous writes to higher ones are not counted.
const FDS_MAX: usize = 1 << 16;
const BITS: usize = u64::BITS as usize;
/// A bit for each descriptor that was opened with `O_SYNC` or `O_DSYNC`.
static SYNCHRONOUS: [AtomicU64; FDS_MAX / BITS] = [const { AtomicU64::new(0) }; FDS_MAX / BITS];

/// Returns the word and the bit of a descriptor.
fn place(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((SYNCHRONOUS.get(fd / BITS)?, 1 << (fd % BITS)))
}

/// Records how a descriptor was opened.
fn opened(fd: c_int, flags: c_int) -> c_int {
    if let Some((word, bit)) = place(fd) {
        // O_SYNC includes O_DSYNC.
        if flags & libc::O_DSYNC != 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        } else if word.load(Ordering::Relaxed) & bit != 0 {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
    fd
}

fn write_to(fd: c_int, call: impl FnOnce() -> ssize_t) -> ssize_t {
    match place(fd) {
        Some((word, bit)) if word.load(Ordering::Relaxed) & bit != 0 => flush(Counted::SynchronousWrite, call),
        _ => call(),
    }
}

/// # Safety
/// As fsync(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    flush(Counted::Sync, || next!(fsync(fd: c_int) -> c_int))
}

/// # Safety
/// As fdatasync(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    flush(Counted::Sync, || next!(fdatasync(fd: c_int) -> c_int))
}

/// # Safety
/// As msync(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int {
    let call = || next!(msync(at: *mut c_void, len: size_t, flags: c_int) -> c_int);
    if flags & libc::MS_SYNC == 0 { call() } else { flush(Counted::Msync, call) }
}

/// # Safety
/// As sync_file_range(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sync_file_range(fd: c_int, at: off64_t, len: off64_t, flags: c_uint) -> c_int {
    add(Counted::Range as usize, 1);
    next!(sync_file_range(fd: c_int, at: off64_t, len: off64_t, flags: c_uint) -> c_int)
}

/// # Safety
/// As open(2); the mode is read even if the caller passed none, and is then ignored.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    opened(next!(open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int), flags)
}

/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    opened(next!(open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int), flags)
}

/// # Safety
/// As openat(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    opened(next!(openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int), flags)
}

/// # Safety
/// As openat(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    opened(next!(openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int), flags)
}

/// # Safety
/// As close(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn close(fd: c_int) -> c_int {
    // The descriptor's number may be reused by a socket.
    opened(fd, 0);
    next!(close(fd: c_int) -> c_int)
}

/// # Safety
/// As dup2(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    let synchronous = place(from).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0);
    opened(next!(dup2(from: c_int, to: c_int) -> c_int), if synchronous { libc::O_DSYNC } else { 0 })
}

/// # Safety
/// As write(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    write_to(fd, || next!(write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t))
}

/// # Safety
/// As pwrite(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
    write_to(fd, || next!(pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t))
}

/// # Safety
/// As pwrite(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off64_t) -> ssize_t {
    write_to(fd, || next!(pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off64_t) -> ssize_t))
}

/// # Safety
/// As writev(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    write_to(fd, || next!(writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t))
}

/// # Safety
/// As pwritev(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
    write_to(fd, || next!(pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t))
}

/// # Safety
/// As pwritev(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off64_t) -> ssize_t {
    write_to(fd, || next!(pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off64_t) -> ssize_t))
}
