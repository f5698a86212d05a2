//! Counts the flushes of an unmodified program, and can delay them: loaded with `LD_PRELOAD`.
//!
//! Wraps the C library's functions that make data durable. Brokers in Rust, on a JVM and on Erlang's VM all use them. For Linux with
//! glibc.
//!
//! `BENCH_FLUSHES` names an existing file of [`WORDS`] words; every process of a broker maps it, and the measuring process reads it:
//!
//! ```text
//!   word 0    delay of each flush before it starts, microseconds                   written by the measuring process
//!        1    fsync and fdatasync
//!        2    msync with MS_SYNC
//!        3    writes to files opened with O_SYNC or O_DSYNC
//!        4    sync_file_range: starts writing, but makes nothing durable          not delayed
//!        5    nanoseconds in 1 to 3, delays included
//! ```
//!
//! Without the file nothing happens. Raw system calls and io_uring are not seen.
#![allow(unsafe_code, reason = "this crate stands in for functions of the C library; each block says why it holds")]

mod hooks;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of words of the file.
const WORDS: usize = 8;
const HOLD_US: usize = 0;
const TOOK_NS: usize = 5;

/// What is counted, by the index of its word.
#[derive(Clone, Copy)]
enum Counted {
    Sync = 1,
    Msync = 2,
    SynchronousWrite = 3,
    Range = 4,
}

/// Returns the words shared with the measuring process.
fn words() -> Option<&'static [AtomicU64; WORDS]> {
    static SHARED: OnceLock<Option<&'static [AtomicU64; WORDS]>> = OnceLock::new();
    *SHARED.get_or_init(map)
}

fn map() -> Option<&'static [AtomicU64; WORDS]> {
    use std::os::fd::AsRawFd;
    let path = std::env::var_os("BENCH_FLUSHES")?;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).ok()?;
    let bytes = size_of::<[AtomicU64; WORDS]>();
    if file.metadata().ok()?.len() < bytes as u64 {
        return None;
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of an open file that is long enough, at an address of the system's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is as long as the array, starts at a page, so it is aligned, and is never unmapped; all processes use atomic
    // operations on it.
    Some(unsafe { &*at.cast::<[AtomicU64; WORDS]>() })
}

fn word(place: usize) -> Option<&'static AtomicU64> {
    words()?.get(place)
}

fn add(place: usize, count: u64) {
    if let Some(word) = word(place) {
        word.fetch_add(count, Ordering::Relaxed);
    }
}

/// Counts a flush, delays it, then performs it.
#[allow(clippy::disallowed_methods, reason = "this library runs inside programs of their own choice of clock")]
fn flush<T>(what: Counted, call: impl FnOnce() -> T) -> T {
    let Some(hold_us) = word(HOLD_US).map(|word| word.load(Ordering::Relaxed)) else { return call() };
    let began = Instant::now();
    if hold_us > 0 {
        std::thread::sleep(Duration::from_micros(hold_us));
    }
    let result = call();
    let number = polylogue_interpose::errno();
    add(what as usize, 1);
    add(TOOK_NS, u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    polylogue_interpose::set_errno(number);
    result
}
