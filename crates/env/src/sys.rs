//! The system calls that the standard library does not wrap. The only unsafe code below the server.
//!
//! All of them go through the C library's symbols, never as bare system calls, so that the fault injector can stand
//! in between (`LD_PRELOAD`).
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Repeats `call` while a signal interrupts it. Negative results become the system's error.
fn retry<T: PartialOrd + Default>(mut call: impl FnMut() -> T) -> io::Result<T> {
    loop {
        let result = call();
        if result >= T::default() {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A file offset as the system takes it. Above `i64::MAX` there is no file.
fn offset(value: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(value).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

/// Whether the file system does not know the operation (as against: tried and failed).
fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS))
}

fn fallocate(file: &File, mode: i32, position: u64, len: u64) -> io::Result<()> {
    let (position, len) = (offset(position)?, offset(len)?);
    // SAFETY: the descriptor is open for as long as `file` is borrowed; the other arguments are plain numbers, and
    // the call touches no memory of ours.
    retry(|| unsafe { libc::fallocate(file.as_raw_fd(), mode, position, len) }).map(drop)
}

/// Reserves blocks for the first `len` bytes; where the file system cannot, only the length is set. On an error the
/// length is put back, so that nothing stays reserved past the old end.
pub(crate) fn allocate(file: &File, len: u64) -> io::Result<()> {
    let before = file.metadata()?.len();
    match fallocate(file, 0, 0, len) {
        Err(e) if is_unsupported(&e) && before < len => file.set_len(len),
        Err(e) if is_unsupported(&e) => Ok(()),
        Err(e) => {
            // ext4 keeps what it had reserved before it ran out; the error to report is the first one.
            let _ = file.set_len(before);
            Err(e)
        }
        Ok(()) => Ok(()),
    }
}

/// Gives the blocks of a range back, keeping the length. `false` when the file system cannot.
pub(crate) fn punch(file: &File, position: u64, len: u64) -> io::Result<bool> {
    match fallocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, position, len) {
        Err(e) if is_unsupported(&e) => Ok(false),
        Err(e) => Err(e),
        Ok(()) => Ok(true),
    }
}

/// Bytes that an unprivileged process may still write on the file system of `path`.
pub(crate) fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all-zero is a valid `statvfs`: it consists of integers only.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends with a zero byte and `found` is writable; both live until the call returns.
    retry(|| unsafe { libc::statvfs(path.as_ptr(), &raw mut found) })?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Sends up to `len` bytes of `in_fd`, from `position` on, to `out_fd` without passing them through this process.
/// Returns how many went; 0 means that the file ends at `position`. `in_fd`'s own position is not used.
///
/// # Errors
/// `WouldBlock` when a non-blocking `out_fd` takes nothing now; else what the system says.
pub fn send_file(out_fd: i32, in_fd: i32, position: u64, len: usize) -> io::Result<usize> {
    let mut position = offset(position)?;
    // SAFETY: the position is a local of ours; a descriptor that is not open makes the call fail with EBADF.
    let sent = retry(|| unsafe { libc::sendfile(out_fd, in_fd, &raw mut position, len) })?;
    // `retry` lets only results from 0 to `len` pass.
    Ok(sent.unsigned_abs())
}

/// Fills `into` from the system's random number generator.
pub(crate) fn random(into: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < into.len() {
        let rest = &mut into[done..];
        // SAFETY: pointer and length are those of `rest`, which is borrowed until the call returns.
        let got = retry(|| unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) })?;
        done += got.unsigned_abs();
    }
    Ok(())
}

/// Lets other threads go before the calling one by so many steps of `nice`. A system that refuses leaves things as they are.
pub(crate) fn stand_back(steps: i32) {
    // SAFETY: two calls that take numbers; 0 stands for the calling thread, because Linux keeps a nice value for each thread.
    unsafe {
        let now = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, now.saturating_add(steps));
    }
}

/// Writes `line` to standard error, unless nobody takes it for a second: a full pipe must not keep a process alive
/// that has to end.
pub(crate) fn last_words(line: &[u8]) {
    let mut wait = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one pollfd, a local of ours. A pipe that polls writable takes a page without blocking.
    let ready = retry(|| unsafe { libc::poll(&raw mut wait, 1, 1000) });
    if matches!(ready, Ok(n) if n > 0) {
        let line = &line[..line.len().min(libc::PIPE_BUF)];
        // SAFETY: pointer and length are those of `line`. The result is of no use: there is nowhere left to tell.
        let _ = retry(|| unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) });
    }
}

/// Ends the process at once: no exit handlers, no flushing, no waiting for other threads.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes a number and never returns.
    unsafe { libc::_exit(code) }
}
