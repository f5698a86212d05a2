//! Functions that change what a file holds.

use crate::control::Control;
use crate::files::Open;
use crate::inside::{Inside, die};
use crate::journal::{self, Journal};
use crate::{events, watch};
use libc::{iovec, off_t, off64_t, size_t, ssize_t};
use polylogue_interpose::{next, set_errno};
use std::ffi::{c_int, c_uint, c_void};

/// A change of the content of an open file: fails it, or logs it and lets it happen.
fn change<T: From<i8>>(
    fd: c_int,
    fault: fn(&Control) -> Option<(&'static str, c_int)>,
    log: impl FnOnce(&mut Journal, &Open),
    call: impl FnOnce() -> T,
) -> T {
    let Some(_inside) = Inside::enter() else { return call() };
    let Some(path) = watch::by_fd(fd) else { return call() };
    if Open::of(fd).is_none_or(|file| file.is_dir) {
        return call();
    }
    if let Some((name, number)) = fault(&Control::for_file(&path)) {
        events::note(name, &path);
        set_errno(number);
        return T::from(-1);
    }
    let mut journal = journal::lock();
    let Some(journal) = journal.as_mut() else { return call() };
    if let Some(file) = Open::of(fd) {
        log(journal, &file);
    }
    call()
}

fn fail_write(control: &Control) -> Option<(&'static str, c_int)> {
    control.fail_write.map(|number| ("fail_write", number))
}

fn fail_allocate(control: &Control) -> Option<(&'static str, c_int)> {
    control.fail_allocate.map(|number| ("fail_allocate", number)).or_else(|| fail_write(control))
}

/// A write of `len` bytes, at a given position or at the file's own.
fn write_at(fd: c_int, position: Option<off64_t>, len: u64, call: impl FnOnce() -> ssize_t) -> ssize_t {
    let log = |journal: &mut Journal, file: &Open| {
        let position = position.map_or_else(|| file.position(), |given| given.max(0).unsigned_abs());
        journal.add_write(file, position, len);
    };
    change(fd, fail_write, log, call)
}

/// The bytes that a vector of buffers holds.
///
/// # Safety
/// `parts` must point to `count` entries, as the C functions ask for.
unsafe fn total(parts: *const iovec, count: c_int) -> u64 {
    if parts.is_null() || count <= 0 {
        return 0;
    }
    // SAFETY: not null, and the caller promised the count.
    let parts = unsafe { std::slice::from_raw_parts(parts, count.unsigned_abs() as usize) };
    parts.iter().map(|part| part.iov_len as u64).sum()
}

/// # Safety
/// As write(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    write_at(fd, None, len as u64, || next!(write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t))
}

/// # Safety
/// As pwrite(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
    write_at(
        fd,
        Some(at),
        len as u64,
        || next!(pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t),
    )
}

/// # Safety
/// As pwrite(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off64_t) -> ssize_t {
    write_at(
        fd,
        Some(at),
        len as u64,
        || next!(pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off64_t) -> ssize_t),
    )
}

/// # Safety
/// As writev(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    let len = unsafe { total(parts, count) };
    write_at(fd, None, len, || next!(writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t))
}

/// # Safety
/// As pwritev(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // SAFETY: the caller's promise.
    let len = unsafe { total(parts, count) };
    write_at(fd, Some(at), len, || next!(pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t))
}

/// # Safety
/// As pwritev(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off64_t) -> ssize_t {
    // SAFETY: the caller's promise.
    let len = unsafe { total(parts, count) };
    write_at(
        fd,
        Some(at),
        len,
        || next!(pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off64_t) -> ssize_t),
    )
}

fn set_length(fd: c_int, len: off64_t, call: impl FnOnce() -> c_int) -> c_int {
    // Making a file shorter needs no room; longer is a hole and needs none either, but fails on a full disk
    // often enough.
    let grows = Open::of(fd).is_some_and(|file| len.max(0).unsigned_abs() > file.size);
    let fault = if grows { fail_write } else { |_: &Control| None };
    change(fd, fault, |journal, file| journal.add_length(file, len.max(0).unsigned_abs()), call)
}

/// # Safety
/// As ftruncate(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ftruncate(fd: c_int, len: off_t) -> c_int {
    set_length(fd, len, || next!(ftruncate(fd: c_int, len: off_t) -> c_int))
}

/// # Safety
/// As ftruncate(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ftruncate64(fd: c_int, len: off64_t) -> c_int {
    set_length(fd, len, || next!(ftruncate64(fd: c_int, len: off64_t) -> c_int))
}

fn reserve(fd: c_int, mode: c_int, at: off64_t, len: off64_t, call: impl FnOnce() -> c_int) -> c_int {
    let (at, len) = (at.max(0).unsigned_abs(), len.max(0).unsigned_abs());
    let log = |journal: &mut Journal, file: &Open| match mode {
        0 => journal.add_length(file, file.size.max(at.saturating_add(len))),
        libc::FALLOC_FL_KEEP_SIZE => {}
        _ if mode == libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE => journal.add_punch(file, at, len),
        _ => die(&format!("cannot undo fallocate of mode {mode}")),
    };
    // A hole needs no room: only an error meant for fallocate itself strikes.
    let only_own = |control: &Control| control.fail_allocate.map(|number| ("fail_allocate", number));
    let fault = if mode & libc::FALLOC_FL_PUNCH_HOLE == 0 { fail_allocate } else { only_own };
    change(fd, fault, log, call)
}

/// # Safety
/// As fallocate(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    reserve(fd, mode, at, len, || next!(fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int))
}

/// # Safety
/// As fallocate(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn fallocate64(fd: c_int, mode: c_int, at: off64_t, len: off64_t) -> c_int {
    reserve(fd, mode, at, len, || next!(fallocate64(fd: c_int, mode: c_int, at: off64_t, len: off64_t) -> c_int))
}

/// Copies inside the kernel are refused below the directory, as an old kernel would; callers then read and write.
///
/// # Safety
/// As copy_file_range(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if refuses_copy(to) {
        set_errno(libc::ENOSYS);
        return -1;
    }
    next!(copy_file_range(
        from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t, flags: c_uint
    ) -> ssize_t)
}

fn refuses_copy(to: c_int) -> bool {
    Inside::enter().is_some_and(|_inside| watch::by_fd(to).is_some())
}

/// # Safety
/// As sendfile(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
    if refuses_copy(to) {
        set_errno(libc::EINVAL);
        return -1;
    }
    next!(sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t)
}

/// # Safety
/// As sendfile(2).
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn sendfile64(to: c_int, from: c_int, at: *mut off64_t, len: size_t) -> ssize_t {
    if refuses_copy(to) {
        set_errno(libc::EINVAL);
        return -1;
    }
    next!(sendfile64(to: c_int, from: c_int, at: *mut off64_t, len: size_t) -> ssize_t)
}
