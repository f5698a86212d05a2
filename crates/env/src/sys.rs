//! The system calls that the standard library does not wrap. The only unsafe code below the server.
//!
//! All of them go through the C library's symbols, never as bare system calls, so that the fault injector can stand
//! in between (`LD_PRELOAD`).
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
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

/// A name in a directory, as the system takes it.
fn c_name(name: &OsStr) -> io::Result<CString> {
    Ok(CString::new(name.as_bytes())?)
}

fn owned(fd: libc::c_int) -> File {
    // SAFETY: the call that returned it has just opened it, and nothing else knows of it.
    unsafe { File::from_raw_fd(fd) }
}

/// Opens a name in a directory, with the mode of a file that is made.
pub(crate) fn open_at(dir: &File, name: &OsStr, flags: i32, mode: u32) -> io::Result<File> {
    let name = c_name(name)?;
    // SAFETY: the descriptor is open for as long as `dir` is borrowed; `name` ends with a zero byte and lives until the call returns.
    retry(|| unsafe { libc::openat(dir.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC, mode) }).map(owned)
}

/// Makes a directory in another one.
pub(crate) fn make_dir_at(dir: &File, name: &OsStr, mode: u32) -> io::Result<()> {
    let name = c_name(name)?;
    // SAFETY: as in `open_at`.
    retry(|| unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), mode as libc::mode_t) }).map(drop)
}

/// Removes a file's name from a directory.
pub(crate) fn unlink_at(dir: &File, name: &OsStr) -> io::Result<()> {
    let name = c_name(name)?;
    // SAFETY: as in `open_at`.
    retry(|| unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// Renames over whatever stands there.
pub(crate) fn rename_at(from: (&File, &OsStr), to: (&File, &OsStr)) -> io::Result<()> {
    let (old, new) = (c_name(from.1)?, c_name(to.1)?);
    let (from, to) = (from.0.as_raw_fd(), to.0.as_raw_fd());
    // SAFETY: as in `open_at`, for both.
    retry(|| unsafe { libc::renameat(from, old.as_ptr(), to, new.as_ptr()) }).map(drop)
}

/// `struct open_how` of `openat2`.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// `RESOLVE_NO_MAGICLINKS`, `RESOLVE_NO_SYMLINKS` and `RESOLVE_BENEATH`.
const RESOLVE_NO_LINKS_BENEATH: u64 = 0x02 | 0x04 | 0x08;

/// Opens a directory below another one, for names in it, without following a link or leaving the other one. An error where the system cannot (Linux
/// before 5.6) or is not allowed to. C libraries have no function for it yet; what is read and written is opened by [`open_at`], and no fault is to be
/// injected here.
pub(crate) fn open_dir_beneath(dir: &File, path: &OsStr) -> io::Result<File> {
    let path = c_name(path)?;
    let flags = (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
    let how = OpenHow { flags, mode: 0, resolve: RESOLVE_NO_LINKS_BENEATH };
    let (fd, bytes) = (dir.as_raw_fd(), size_of::<OpenHow>());
    // SAFETY: the structure is laid out as the kernel's and a local of ours, of the length that is passed; as for the rest in `open_at`.
    let opened = retry(|| unsafe { libc::syscall(libc::SYS_openat2, fd, path.as_ptr(), &raw const how, bytes) })?;
    libc::c_int::try_from(opened).map(owned).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))
}

/// The number of `cachestat`, for which C libraries have no function yet; the same on these machines.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
const CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`: bytes of a file.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
#[repr(C)]
struct CacheRange {
    position: u64,
    len: u64,
}

/// `struct cachestat`: how many pages of the range are in the page cache, and four numbers about these.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
#[repr(C)]
#[derive(Default)]
struct CacheFound {
    cached: u64,
    others: [u64; 4],
}

/// Pages of a range of at least one byte that are in the page cache, those that are being read included. An error where the
/// system cannot say (Linux before 6.5) or is not allowed to.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(crate) fn cached_pages(file: &File, position: u64, len: u32) -> io::Result<u64> {
    let range = CacheRange { position, len: u64::from(len) };
    let mut found = CacheFound::default();
    // SAFETY: both structures are laid out as the kernel's, are locals of ours and live until the call returns; the descriptor is
    // open for as long as `file` is borrowed. No fault is to be injected here: the call moves no bytes.
    retry(|| unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut found, 0) })?;
    Ok(found.cached)
}

/// As above, of a machine whose number for it is not known here.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))))]
pub(crate) fn cached_pages(_file: &File, _position: u64, _len: u32) -> io::Result<u64> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// Reads a byte if that takes no waiting: `WouldBlock` when it lies on the disk.
pub(crate) fn read_at_once(file: &File, position: u64) -> io::Result<()> {
    let position = offset(position)?;
    let mut byte = 0_u8;
    let into = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: one piece of memory of one byte, a local of ours that lives until the call returns.
    retry(|| unsafe { libc::preadv2(file.as_raw_fd(), &raw const into, 1, position, libc::RWF_NOWAIT) }).map(drop)
}

/// Begins to read a range into the page cache and does not wait for it. Only advice: a system that does not take it reads later.
pub(crate) fn begin_reading(file: &File, position: u64, len: u32) {
    let (Ok(position), Ok(len)) = (offset(position), offset(u64::from(len))) else { return };
    // SAFETY: the call takes numbers, and the descriptor is open for as long as `file` is borrowed.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), position, len, libc::POSIX_FADV_WILLNEED) };
}

/// Pages of a range leave the page cache, as far as they are on the disk and not in use. Only advice. Of at least one byte: none would mean the
/// rest of the file.
pub(crate) fn forget(file: &File, position: u64, len: u32) {
    let (Ok(position), Ok(len)) = (offset(position), offset(u64::from(len.max(1)))) else { return };
    // SAFETY: the call takes numbers, and the descriptor is open for as long as `file` is borrowed.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), position, len, libc::POSIX_FADV_DONTNEED) };
}

/// What a page of the page cache holds. Bytes.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: the call takes a number and reads a constant of the process.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or_default().max(512)
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

/// A thread that waits for a readable socket is woken when so many bytes are there (`SO_RCVLOWAT`), or the peer has nothing more to send, or the
/// system has no room for more; 1: for any. What is there can be read all the same, and this wakes who waits if it is enough.
///
/// # Errors
/// What the system says.
pub fn set_receive_low_water(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let (value, len) = (std::ptr::from_ref(&bytes).cast(), size_of_val(&bytes) as libc::socklen_t);
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the value is a local of ours, of the length that is passed.
    retry(|| unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, value, len) }).map(drop)
}

/// The system takes no more for a socket while so many bytes wait to be sent to a peer that has no room for them (`TCP_NOTSENT_LOWAT`).
///
/// # Errors
/// What the system says.
pub fn set_unsent_low_water(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let (value, len) = (std::ptr::from_ref(&bytes).cast(), size_of_val(&bytes) as libc::socklen_t);
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the value is a local of ours, of the length that is passed.
    retry(|| unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len) }).map(drop)
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

/// Processor time that the calling thread has used. Nanoseconds.
pub(crate) fn thread_cpu_ns() -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to `time`, which lives until the call returns.
    retry(|| unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) })?;
    Ok(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// Lets other threads go before the calling one by so many steps of `nice`. A system that refuses leaves things as they are.
pub(crate) fn stand_back(steps: i32) {
    // SAFETY: two calls that take numbers; 0 stands for the calling thread, because Linux keeps a nice value for each thread.
    unsafe {
        let now = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, now.saturating_add(steps));
    }
}

/// Writes `line` to standard error, unless nothing reads it for a second: a full pipe must not keep a process alive
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
