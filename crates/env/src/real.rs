//! The real operating system, through the C library.

mod beneath;
mod freeing;

use crate::error::annotate;
use crate::{Clock, DIRECT_BYTES, DirLock, Disk, DiskFile, Fatal, JoinTask, OpenMode, Rng, Tasks, sys};
use beneath::Roots;
use freeing::Freeing;
use polylogue_types::{RangeSource, TimestampMs};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The exit code of a process that ended because to continue would have broken a guarantee (`EX_SOFTWARE`).
const EXIT_FATAL: i32 = 70;
/// The mode of files that are made, without what the process' mask takes away.
const FILE_MODE: u32 = 0o666;
/// Messages and password hashes are in directories that are made: they are for no other user of the machine.
const DIR_MODE: u32 = 0o700;
/// The niceness of a background thread relative to the others: about a third of their share, so that it goes on even
/// where they take all they can get.
const BEHIND_NICE: i32 = 5;
/// `st_blocks` counts these, whatever the file system's own block is. Bytes.
const STAT_BLOCK_BYTES: u64 = 512;

/// What is asked of the disk at a time by [`RangeSource::fetch`]. A write of 16 KiB with its flush, 1,000 times a second, has a p99 of
/// 0.2 ms alone and beside 200 MB a second read in pieces of 128 KiB, 0.3 beside two such at a time or pieces of 256 KiB, 2.5 beside
/// what the system reads ahead. Two pieces of 256 KiB at a time read a backlog in less time than Kafka does, and put the p99 of a publisher
/// beside it at 1.7 times undisturbed instead of 1.2 (docs/lab/published-comparisons.md). Bytes.
const FETCH_PIECE_BYTES: u64 = 128 << 10;

/// Where less is written in a second and the one before, hardly any writer can be delayed by a read: a broker that only serves
/// readers still writes its own marks now and then. Writes.
const QUIET_WRITES: u64 = 30;

/// The file system of this machine.
#[derive(Debug, Default)]
pub struct RealDisk {
    roots: Roots,
    freeing: Arc<Freeing>,
    writes: Arc<Writes>,
}

/// How much is written at present, to all files of a disk. Threads that come at the same time may count a write too few.
#[derive(Debug, Default)]
struct Writes {
    clock: RealClock,
    /// The second in which the last write was, of `clock`.
    second: AtomicU64,
    /// Writes in it.
    count: AtomicU64,
    /// Writes in the second before.
    before: AtomicU64,
}

impl Writes {
    fn note(&self) {
        let second = self.clock.monotonic_ns() / 1_000_000_000;
        let last = self.second.load(Ordering::Relaxed);
        if second > last && self.second.swap(second, Ordering::Relaxed) == last {
            let count = self.count.swap(0, Ordering::Relaxed);
            self.before.store(if second == last + 1 { count } else { 0 }, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn are_quiet(&self, second: u64) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let lately = match second.saturating_sub(self.second.load(Ordering::Relaxed)) {
            0 => count + self.before.load(Ordering::Relaxed),
            1 => count,
            _ => 0,
        };
        lately < QUIET_WRITES
    }
}

impl RealDisk {
    /// The file system, in which no symbolic link is followed below these directories; those on the way to them are.
    #[must_use]
    pub fn within(roots: &[&Path]) -> RealDisk {
        RealDisk { roots: Roots::new(roots), ..RealDisk::default() }
    }

    /// Opens a file with these flags of the system, by the rules of the roots.
    fn open_by(&self, path: &Path, flags: i32) -> io::Result<File> {
        match self.roots.place(path)? {
            Some(place) => place.open(flags, FILE_MODE),
            None => {
                let mut options = OpenOptions::new();
                let access = flags & libc::O_ACCMODE;
                options.read(access != libc::O_WRONLY).write(access != libc::O_RDONLY);
                options.create_new(flags & libc::O_EXCL != 0).create(flags & libc::O_CREAT != 0);
                options.truncate(false).custom_flags(flags & (libc::O_DIRECT | libc::O_DIRECTORY)).open(path)
            }
        }
    }

    /// A file system that knows nothing of direct writes takes them as usual ones.
    fn open_direct(&self, path: &Path) -> io::Result<File> {
        match self.open_by(path, libc::O_WRONLY | libc::O_DIRECT) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => self.open_by(path, libc::O_WRONLY),
            other => other,
        }
    }

    fn file(&self, file: File, path: &Path) -> Arc<dyn DiskFile> {
        self.freeing.opened(&file);
        Arc::new(RealFile::new(file, path, &self.writes, &self.freeing))
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode == OpenMode::Direct {
            let file = self.open_direct(path).map_err(|e| on_path(e, "open", path))?;
            return Ok(self.file(file, path));
        }
        let (flags, what) = match mode {
            OpenMode::CreateNew => (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, "create"),
            OpenMode::ReadWrite => (libc::O_RDWR, "open"),
            OpenMode::Read | OpenMode::Direct => (libc::O_RDONLY, "open"),
        };
        let file = self.open_by(path, flags).map_err(|e| on_path(e, what, path))?;
        Ok(self.file(file, path))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let make = |path: &Path| std::fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(path);
        let made = match self.roots.above(path) {
            Some(root) => make(root).and_then(|()| self.roots.make(path, DIR_MODE)),
            None => make(path),
        };
        made.map_err(|e| on_path(e, "create the directory", path))
    }

    #[allow(clippy::disallowed_methods, reason = "this is what Disk::rename stands for")]
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let renamed = match (self.roots.place(from), self.roots.place(to)) {
            (Ok(Some(old)), Ok(Some(new))) => old.rename(&new),
            (Err(e), _) | (_, Err(e)) => Err(e),
            _ => std::fs::rename(from, to),
        };
        renamed.map_err(|e| annotate(e, format!("cannot rename {} to {}", from.display(), to.display())))
    }

    #[allow(clippy::disallowed_methods, reason = "this is what Disk::remove stands for")]
    fn remove(&self, path: &Path) -> io::Result<()> {
        // Dropped when the name is gone: who closes the last handle frees the file.
        let _last = self.open(path, OpenMode::Read);
        let removed = match self.roots.place(path) {
            Ok(Some(place)) => place.remove(),
            Ok(None) => std::fs::remove_file(path),
            Err(e) => Err(e),
        };
        removed.map_err(|e| on_path(e, "remove", path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let say = |e| on_path(e, "list", dir);
        let mut names = Vec::new();
        let held = match self.roots.guard(dir) {
            true => Some(self.open_by(dir, libc::O_RDONLY | libc::O_DIRECTORY).map_err(say)?),
            false => None,
        };
        // By the directory that is open, whatever has its name by now; by its name where the system does not show that.
        let same = held.as_ref().map(|held| PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd())));
        let entries = std::fs::read_dir(same.as_deref().unwrap_or(dir)).or_else(|_| std::fs::read_dir(dir));
        for entry in entries.map_err(say)? {
            names.push(entry.map_err(say)?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> bool {
        match self.roots.place(path) {
            Ok(Some(place)) => place.exists(),
            Ok(None) => path.exists(),
            Err(_) => false,
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let say = |e| on_path(e, "flush the directory", dir);
        let handle = self.open_by(dir, libc::O_RDONLY | libc::O_DIRECTORY).map_err(say)?;
        handle.sync_all().map_err(say)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        sys::free_bytes(path).map_err(|e| on_path(e, "ask for the free space of", path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        let say = |e| on_path(e, "lock", path);
        // Nothing is read from or written to the file, so what it holds stays; and an existing one is locked as well by a process that may
        // only read it.
        let open = |flags| self.open_by(path, flags);
        let file = open(libc::O_RDWR | libc::O_CREAT).or_else(|e| open(libc::O_RDONLY).map_err(|_| e)).map_err(say)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(RealLock { _held: file })),
            Err(TryLockError::WouldBlock) => {
                Err(say(io::Error::new(io::ErrorKind::WouldBlock, "another process holds the lock")))
            }
            Err(TryLockError::Error(e)) => Err(say(e)),
        }
    }
}

/// The same file once more, whatever its name is by now.
fn open_once(file: &File) -> Option<File> {
    let same = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(same).ok()
}

/// Reads the pages around a range, past the page cache.
fn read_pages(direct: &File, into: &mut [u8], position: u64) -> io::Result<()> {
    let page = DIRECT_BYTES as u64;
    let head = (position % page) as usize;
    let span = (head + into.len()).next_multiple_of(DIRECT_BYTES);
    let mut memory = vec![0; span + DIRECT_BYTES];
    let start = memory.as_ptr().align_offset(DIRECT_BYTES).min(DIRECT_BYTES);
    let pages = memory.get_mut(start..start + span).unwrap_or_default();
    let mut done = 0;
    while done < head + into.len() {
        // What was read short, at the end of the file or by a signal, is read again from its page on.
        done -= done % DIRECT_BYTES;
        match direct.read_at(&mut pages[done..], position - head as u64 + done as u64) {
            Ok(read) if done + read >= head + into.len() => done += read,
            Ok(read) if read < DIRECT_BYTES => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(read) => done += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    into.copy_from_slice(&pages[head..head + into.len()]);
    Ok(())
}

/// Reads whole pages past the page cache, straight into `into`, at least `len` bytes. `step` is asked for at a time.
fn read_direct(direct: &File, into: &mut [u8], len: usize, position: u64, step: usize) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        // What was read short, at the end of the file or by a signal, is read again from its page on.
        done -= done % DIRECT_BYTES;
        let end = (done + step).min(into.len());
        let piece = into.get_mut(done..end).unwrap_or_default();
        match direct.read_at(piece, position + done as u64) {
            Ok(read) if done + read >= len => done += read,
            Ok(read) if read < DIRECT_BYTES => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(read) => done += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Whether all pages of a range are in the page cache. `None` where the system cannot be asked for all of them.
fn is_cached(file: &File, position: u64, len: u32) -> Option<bool> {
    static PAGE_BYTES: OnceLock<u64> = OnceLock::new();
    let Some(rest) = len.checked_sub(1) else { return Some(true) };
    let found = sys::cached_pages(file, position, len).ok()?;
    let page = *PAGE_BYTES.get_or_init(sys::page_bytes);
    Some(found > position.saturating_add(u64::from(rest)) / page - position / page)
}

/// Brings a range into the page cache, one piece after the other. The system's own reading ahead asks for much more at a time (8 MiB
/// where that is how the disk is set up), and all writes wait behind it; so it is bypassed while anything is written. With
/// hardly any writes it is the better way: it makes larger pages, which cost less to bring in and to send.
fn fetch_pages(file: &File, position: u64, len: u32, gently: bool) -> io::Result<()> {
    let end = position.saturating_add(u64::from(len));
    let mut passed = if gently { Vec::new() } else { vec![0; (FETCH_PIECE_BYTES as usize).min(len as usize)] };
    let mut at = position;
    while at < end {
        // Pieces begin at multiples of their length, so that ranges that follow each other do not ask for the same one twice.
        let next = (at / FETCH_PIECE_BYTES + 1).saturating_mul(FETCH_PIECE_BYTES).min(end);
        let len = next - at;
        let read = if gently {
            sys::begin_reading(file, at, u32::try_from(len).unwrap_or(u32::MAX));
            // Pages of a piece come together: the last one is there when all are.
            file.read_at(&mut [0], next - 1)?
        } else {
            // Only reading them all in their order shows the system that it should go ahead.
            file.read_at(passed.get_mut(..len as usize).unwrap_or_default(), at)?
        };
        if read == 0 {
            break;
        }
        at = next;
    }
    Ok(())
}

/// "cannot open /x/y: Permission denied (os error 13)".
fn on_path(error: io::Error, what: &str, path: &Path) -> io::Error {
    annotate(error, format!("cannot {what} {}", path.display()))
}

/// The lock goes when the descriptor is closed.
#[derive(Debug)]
struct RealLock {
    _held: File,
}

impl DirLock for RealLock {}

/// An open file and the path it was opened by, for error texts (a rename does not change it).
#[derive(Debug)]
struct RealFile {
    file: File,
    path: PathBuf,
    /// Reads past the page cache; made when it is wanted, `None` inside where there is no such thing.
    once: OnceLock<Option<File>>,
    freeing: Arc<Freeing>,
    /// The system does not show which of its pages are in the page cache.
    hidden: AtomicBool,
    writes: Arc<Writes>,
}

impl Drop for RealFile {
    fn drop(&mut self) {
        self.freeing.closing(&self.file);
    }
}

impl RealFile {
    fn new(file: File, path: &Path, writes: &Arc<Writes>, freeing: &Arc<Freeing>) -> RealFile {
        let (path, writes, freeing) = (path.to_owned(), writes.clone(), freeing.clone());
        RealFile { file, path, once: OnceLock::new(), hidden: AtomicBool::new(false), writes, freeing }
    }

    fn say(&self, error: io::Error, what: &str) -> io::Error {
        on_path(error, what, &self.path)
    }

    /// Whether there are writes that large reads would delay.
    fn is_gentle(&self) -> bool {
        !self.writes.are_quiet(self.writes.clock.monotonic_ns() / 1_000_000_000)
    }
}

impl RangeSource for RealFile {
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        let len = into.len();
        self.file.read_exact_at(into, position).map_err(|e| self.say(e, &format!("read {len} bytes at {position} of")))
    }

    fn read_once_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        let Some(direct) = self.once.get_or_init(|| open_once(&self.file)) else {
            return self.read_exact_at(into, position);
        };
        let len = into.len();
        read_pages(direct, into, position).map_err(|e| self.say(e, &format!("read {len} bytes at {position} of")))
    }

    fn read_piece_at(&self, into: &mut [u8], len: usize, position: u64) -> io::Result<()> {
        let pages = len.next_multiple_of(DIRECT_BYTES);
        let fits = position.is_multiple_of(DIRECT_BYTES as u64)
            && into.as_ptr().align_offset(DIRECT_BYTES) == 0
            && into.len() >= pages;
        // A direct read of what was written through the page cache, and is there still, would have it written back first.
        let cached = || is_cached(&self.file, position, u32::try_from(len).unwrap_or(u32::MAX)) == Some(true);
        let direct = if fits && !cached() { self.once.get_or_init(|| open_once(&self.file)).as_ref() } else { None };
        let Some(direct) = direct else {
            return self.read_exact_at(into.get_mut(..len).ok_or(io::ErrorKind::UnexpectedEof)?, position);
        };
        let step = if self.is_gentle() { FETCH_PIECE_BYTES as usize } else { pages };
        read_direct(direct, into.get_mut(..pages).unwrap_or_default(), len, position, step)
            .map_err(|e| self.say(e, &format!("read {len} bytes at {position} of")))
    }

    fn is_in_memory(&self, position: u64, len: u32) -> bool {
        let shown = if self.hidden.load(Ordering::Relaxed) { None } else { is_cached(&self.file, position, len) };
        shown.unwrap_or_else(|| {
            // The last page stands for the others; where nothing can be asked at all, all are taken to be there.
            let last = position.saturating_add(u64::from(len)).saturating_sub(1);
            !matches!(sys::read_at_once(&self.file, last), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
        })
    }

    fn fetch(&self, position: u64, len: u32) -> io::Result<()> {
        fetch_pages(&self.file, position, len, self.is_gentle())
            .map_err(|e| self.say(e, &format!("read {len} bytes at {position} of")))?;
        // Files of an overlay have their pages elsewhere: none is shown here, now or ever.
        if len > 0 && matches!(sys::cached_pages(&self.file, position, len), Ok(0)) {
            self.hidden.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn forget(&self, position: u64, len: u32) {
        sys::forget(&self.file, position, len);
    }

    fn raw_fd(&self) -> Option<i32> {
        Some(self.file.as_raw_fd())
    }
}

impl DiskFile for RealFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.writes.note();
        self.file
            .write_all_at(bytes, position)
            .map_err(|e| self.say(e, &format!("write {} bytes at {position} of", bytes.len())))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().map_err(|e| self.say(e, "flush"))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        sys::allocate(&self.file, len).map_err(|e| self.say(e, &format!("reserve {len} bytes for")))
    }

    fn punch(&self, position: u64, len: u64) -> io::Result<bool> {
        if len == 0 {
            return Ok(true);
        }
        let end = position.saturating_add(len);
        // In one transaction it would hold up the writes to other files.
        for at in (position..end).step_by(freeing::STEP_BYTES as usize) {
            let step = (end - at).min(freeing::STEP_BYTES);
            let say = |e| self.say(e, &format!("free {step} bytes at {at} of"));
            if !sys::punch(&self.file, at, step).map_err(say)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len).map_err(|e| self.say(e, &format!("set the length {len} of")))
    }

    fn size(&self) -> io::Result<u64> {
        self.file.metadata().map(|m| m.len()).map_err(|e| self.say(e, "ask for the length of"))
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        let found = self.file.metadata().map_err(|e| self.say(e, "ask for the blocks of"))?;
        Ok(found.blocks().saturating_mul(STAT_BLOCK_BYTES))
    }

    fn as_range_source(self: Arc<Self>) -> Arc<dyn RangeSource> {
        self
    }
}

/// The machine's clocks.
#[derive(Debug)]
pub struct RealClock {
    start: Instant,
}

impl Default for RealClock {
    #[allow(clippy::disallowed_methods, reason = "this is where Clock::monotonic_ns comes from")]
    fn default() -> RealClock {
        RealClock { start: Instant::now() }
    }
}

impl Clock for RealClock {
    #[allow(clippy::disallowed_methods, reason = "this is where Clock::now_ms comes from")]
    fn now_ms(&self) -> TimestampMs {
        let millis = |d: std::time::Duration| TimestampMs::try_from(d.as_millis()).unwrap_or(TimestampMs::MAX);
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => millis(since),
            Err(before) => -millis(before.duration()),
        }
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn thread_cpu_ns(&self) -> u64 {
        sys::thread_cpu_ns().unwrap_or_else(|_| self.monotonic_ns())
    }
}

/// The operating system's random number generator (`getrandom`): good enough for secrets. A system that refuses it
/// ends the process: ids that are not random would be worse.
#[derive(Debug)]
pub struct RealRng;

impl Rng for RealRng {
    fn fill(&self, into: &mut [u8]) {
        if let Err(e) = sys::random(into) {
            ExitOnFatal::default().fatal(&format!("the system gives no random numbers: {e}"));
        }
    }
}

/// Threads of the operating system.
#[derive(Debug)]
pub struct RealTasks;

impl Tasks for RealTasks {
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn JoinTask>> {
        // The standard library panics on a zero byte in a name.
        let builder = std::thread::Builder::new().name(name.replace('\0', " "));
        let handle = builder.spawn(body).map_err(|e| annotate(e, format!("cannot start the thread {name}")))?;
        Ok(Box::new(RealTask { handle }))
    }

    fn spawn_behind(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn JoinTask>> {
        let behind = move || {
            sys::stand_back(BEHIND_NICE);
            body();
        };
        self.spawn(name, Box::new(behind))
    }
}

#[derive(Debug)]
struct RealTask {
    handle: JoinHandle<()>,
}

impl JoinTask for RealTask {
    fn join(self: Box<Self>) {
        // An error here means that the thread panicked: it has ended, which is all that was asked.
        let _ = self.handle.join();
    }
}

/// Ends the process with one line on standard error and exit code 70. Nothing else runs: no exit handlers, no
/// destructors, because any of them might still answer a client. Of several threads that call it the first counts.
#[derive(Debug, Default)]
pub struct ExitOnFatal {
    called: AtomicBool,
}

impl Fatal for ExitOnFatal {
    fn fatal(&self, why: &str) {
        if self.called.swap(true, Ordering::SeqCst) {
            // Another thread is ending the process; this one must not go on meanwhile.
            loop {
                std::thread::park();
            }
        }
        sys::last_words(format!("polylogue: fatal: {}\n", why.replace('\n', " ")).as_bytes());
        sys::exit_now(EXIT_FATAL);
    }

    fn is_fatal(&self) -> bool {
        self.called.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the system can say what is in its page cache, it has to be understood. A file that was only made longer is not there.
    #[test]
    fn what_was_never_read_is_not_in_memory() {
        let path = std::env::temp_dir().join(format!("polylogue-cached-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        RealDisk::default().remove(&path).unwrap();
        file.set_len(2 << 20).unwrap();
        let page = sys::page_bytes();
        file.write_all_at(&[1], 10 * page).unwrap();
        if sys::cached_pages(&file, 10 * page, 1).unwrap_or(0) == 0 {
            return;
        }
        let file = RealFile::new(file, &path, &Arc::default(), &Arc::default());
        let is_cached = |position, len| file.is_in_memory(position, len);
        assert!(is_cached(10 * page, page as u32) && is_cached(11 * page - 1, 1));
        assert!(!is_cached(10 * page, page as u32 + 1) && !is_cached(10 * page - 1, 2));
        assert!(!is_cached(0, 1) && !is_cached(1 << 20, 1 << 20));
        assert!(is_cached(0, 0), "nothing is always there");
        for (position, gently) in [(1 << 20, true), (3 << 19, false)] {
            fetch_pages(&file.file, position, 1 << 19, gently).unwrap();
            fetch_pages(&file.file, 2 << 20, 1, gently).unwrap();
        }
        // As with a file of an overlay, nothing shows after this was fetched.
        file.fetch(2 << 20, 1).unwrap();
        assert!(file.hidden.load(Ordering::Relaxed) && is_cached(10 * page, 1), "it is asked for in another way");
    }

    /// Direct where buffer and position allow it, and the same bytes where they do not; up to the end of the file and no further.
    #[test]
    fn pieces_are_read_directly_or_else_through_the_page_cache() {
        let path = std::env::temp_dir().join(format!("polylogue-pieces-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let (disk, mut memory) = (RealDisk::default(), vec![0; (512 << 10) + DIRECT_BYTES]);
        let direct = disk.open(&path, OpenMode::Direct).unwrap();
        disk.remove(&path).unwrap();
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i / 7) as u8).collect();
        let start = memory.as_ptr().align_offset(DIRECT_BYTES);
        memory[start..start + bytes.len()].copy_from_slice(&bytes);
        direct.write_all_at(&memory[start..start + (304 << 10)], 0).unwrap();
        file.set_len(300_000).unwrap();
        let uncached = matches!(sys::cached_pages(&file, 66 * 4096, 4096), Ok(0));
        let writes = Arc::<Writes>::default();
        let file = RealFile::new(file, &path, &writes, &Arc::default());
        for gentle in [false, true] {
            // There are writes: pieces are small.
            (0..2 * QUIET_WRITES).filter(|_| gentle).for_each(|_| writes.note());
            for (start, position, len) in [(start, 4096, 200_000), (start + 1, 8192, 5_000), (start, 3, 5_000)] {
                let into = &mut memory[start..];
                into.fill(0xEE);
                file.read_piece_at(into, len, position).unwrap();
                assert!(into[..len] == bytes[position as usize..position as usize + len], "{position}");
                assert_eq!(into[len.next_multiple_of(DIRECT_BYTES)], 0xEE, "{position}");
            }
            let into = &mut memory[start..];
            file.read_piece_at(into, 300_000 - 4096, 4096).unwrap();
            assert_eq!(into[..300_000 - 4096], bytes[4096..]);
            let beyond = file.read_piece_at(into, 300_000, 4096).unwrap_err();
            assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof, "{beyond}");
            assert_eq!(file.read_piece_at(&mut into[..10], 11, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        assert!(!uncached || !file.is_in_memory(66 * 4096, 4096), "it went through the page cache");
    }

    #[test]
    fn a_disk_is_quiet_when_little_is_written() {
        let writes = Writes::default();
        let second = || writes.second.load(Ordering::Relaxed);
        for _ in 1..QUIET_WRITES {
            writes.note();
        }
        assert!(writes.are_quiet(second()));
        for _ in 0..2 * QUIET_WRITES {
            writes.note();
        }
        assert!(!writes.are_quiet(second()) && !writes.are_quiet(second() + 1) && writes.are_quiet(second() + 2));
    }
}
