//! The simulated disk's handles: the traits of this crate over the simulated tree.

use super::crash::Style;
use super::fault::{Fault, FaultOp};
use super::state::{Body, Ino, State, system};
use super::trace::hash_bytes;
use crate::error::annotate;
use crate::{DIRECT_BYTES, DirLock, Disk, DiskFile, OpenMode};
use parking_lot::Mutex;
use polylogue_types::RangeSource;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What was done so far. Operations that failed count too.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SimStats {
    /// Files created.
    pub creates: u64,
    /// Calls of `write_all_at`.
    pub writes: u64,
    /// Bytes they brought.
    pub write_bytes: u64,
    /// Direct writes to pages that an unflushed write of the same life through the page cache had left dirty: against the contract of
    /// [`OpenMode::Direct`].
    pub mixed_writes: u64,
    /// Calls of `read_exact_at`.
    pub reads: u64,
    /// Bytes they asked for.
    pub read_bytes: u64,
    /// Calls of `sync_data`.
    pub syncs: u64,
    /// Calls of `sync_dir`.
    pub dir_syncs: u64,
    /// Renames that changed something.
    pub renames: u64,
    /// Files removed.
    pub removes: u64,
    /// Faults that struck.
    pub faults: u64,
    /// Power cuts.
    pub crashes: u64,
}

/// What a power cut did to what was not flushed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CrashReport {
    /// Changes of files that no flush had covered.
    pub writes_pending: u64,
    /// Sectors of such writes that survived.
    pub sectors_kept: u64,
    /// Sectors of such writes that did not.
    pub sectors_lost: u64,
    /// Unflushed creations, renames and removals that survived.
    pub names_kept: u64,
    /// Those that did not.
    pub names_lost: u64,
}

/// A disk in memory that forgets what was not flushed when the power goes, and fails on request.
///
/// Clones are handles of one disk. A handle made by [`SimDisk::of_this_life`] stops working at the next crash, as
/// do all open files and locks; others see what survived.
///
/// **What survives** [`SimDisk::crash`]: everything flushed, and of the rest what the seed says, within what ext4
/// and xfs may do. Of a file: each 512-byte sector has one of the versions it had since its last flush; the length
/// and the blocks are as they were at some moment since; bytes by which a file grew without being written are zero
/// or, rarely and never in reserved blocks, garbage. Of names: any subset of the changes in which a change survives
/// only with those that it builds on; a rename happens whole or not at all, and is made durable by flushing the
/// directory of its new name.
#[derive(Clone)]
pub struct SimDisk {
    pub(super) state: Arc<Mutex<State>>,
    life: Option<u64>,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("life", &self.life).finish_non_exhaustive()
    }
}

impl SimDisk {
    /// An empty disk without a bound on its size.
    #[must_use]
    pub fn new(seed: u64) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(State::new(seed))), life: None }
    }

    /// A handle that the next crash makes useless: for the node that is to die with it.
    #[must_use]
    pub fn of_this_life(&self) -> SimDisk {
        let life = self.state.lock().life;
        SimDisk { state: Arc::clone(&self.state), life: Some(life) }
    }

    /// A disk of its own with the same files, durable and pending, as if copied in this moment, and with dice of its
    /// own. No faults are in force on it and its counters start at 0. Costs little: pages are shared.
    #[must_use]
    pub fn fork(&self, seed: u64) -> SimDisk {
        let mut state = self.state.lock().clone();
        let fresh = State::new(seed);
        (state.rng, state.faults, state.trace, state.stats) = (fresh.rng, fresh.faults, fresh.trace, fresh.stats);
        state.end_life();
        SimDisk { state: Arc::new(Mutex::new(state)), life: None }
    }

    /// The power goes and comes back. See [`SimDisk`] for what survives. Faults stay in force.
    pub fn crash(&self) -> CrashReport {
        self.crash_as("crash", None)
    }

    /// The power goes, and nothing survives that was not flushed.
    pub fn crash_losing_all(&self) -> CrashReport {
        self.crash_as("crash losing all", Some(Style::LoseAll))
    }

    fn crash_as(&self, name: &str, style: Option<Style>) -> CrashReport {
        let mut state = self.state.lock();
        let report = state.crash(style);
        let numbers = [report.sectors_kept, report.sectors_lost, report.names_kept, report.names_lost];
        state.trace.note(name, "/", &numbers, "ok");
        report
    }

    /// The process is killed, the machine goes on (`kill -9`): everything written stays, and stays pending.
    pub fn crash_keep_page_cache(&self) {
        let mut state = self.state.lock();
        state.end_life();
        state.sweep();
        state.trace.note("kill", "/", &[], "ok");
    }

    /// Nothing works any more until the next crash of either kind: the process has ended. A handle of an earlier
    /// life stops nothing.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        if state.alive(self.life).is_ok() {
            state.stopped = true;
            state.trace.note("stop", "/", &[], "ok");
        }
    }

    /// Whether [`SimDisk::stop`] was called or the power was cut by a fault, and no crash has followed yet.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Puts a fault in force.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.add(fault);
    }

    /// Ends all faults. The capacity stays.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// Bounds the room for data, in bytes; `u64::MAX` for none. What is there already stays, even where it is more.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity = bytes;
    }

    /// Turns one bit around, on the disk and in what readers see.
    ///
    /// # Errors
    /// `NotFound`, or `InvalidInput` when the durable file has no such byte.
    pub fn flip_bit(&self, path: &Path, byte: u64, bit: u8) -> io::Result<()> {
        self.run("flip", path, &[byte, u64::from(bit)], |state| {
            let ino = state.lookup(path)?;
            state.flip_bit(ino, byte, bit)
        })
    }

    /// One number for all operations so far, their results, and what crashes did.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.state.lock().trace.hash()
    }

    /// Keeps the last `lines_max` operations as text from now on (0, the default: none).
    pub fn keep_trace(&self, lines_max: usize) {
        self.state.lock().trace.keep(lines_max);
    }

    /// The operations kept by [`SimDisk::keep_trace`], oldest first.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.state.lock().trace.lines()
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> SimStats {
        self.state.lock().stats
    }

    /// Memory that the contents of all files take, about, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.state.lock().pages_held() as u64 * super::content::PAGE_BYTES
    }

    /// Runs one operation, notes it, and puts "cannot NAME PATH" in front of an error.
    fn run<T>(
        &self,
        name: &str,
        path: &Path,
        numbers: &[u64],
        body: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.state.lock();
        let result = state.alive(self.life).and_then(|()| body(&mut state));
        let on = path.to_string_lossy();
        match result {
            Ok(value) => {
                state.trace.note(name, &on, numbers, "ok");
                Ok(value)
            }
            Err(e) => {
                state.trace.note(name, &on, numbers, &format!("{:?}", e.kind()));
                Err(annotate(e, format!("cannot {name} {on}")))
            }
        }
    }

    fn handle(&self, state: &mut State, ino: Ino, path: &Path, mode: OpenMode) -> io::Result<SimFile> {
        let life = state.life;
        let inode = state.inodes.get_mut(&ino).ok_or_else(|| system(libc::ENOENT))?;
        if matches!(inode.body, Body::Dir(_)) {
            return Err(system(libc::EISDIR));
        }
        inode.handles += 1;
        let disk = SimDisk { state: Arc::clone(&self.state), life: Some(life) };
        Ok(SimFile { disk, ino, path: path.to_owned(), mode })
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let name = if mode == OpenMode::CreateNew { "create" } else { "open" };
        let file = self.run(name, path, &[mode as u64], |state| {
            let ino = match mode {
                OpenMode::CreateNew => state.guarded(FaultOp::Create, path, |s| s.create_file(path))?,
                OpenMode::ReadWrite | OpenMode::Read | OpenMode::Direct => state.lookup(path)?,
            };
            self.handle(state, ino, path, mode)
        })?;
        Ok(Arc::new(file))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.run("create the directory", path, &[], |state| {
            state.guarded(FaultOp::Create, path, |s| s.create_dirs(path))
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let both = PathBuf::from(format!("{} to {}", from.display(), to.display()));
        self.run("rename", &both, &[], |state| state.guarded(FaultOp::Rename, from, |s| s.rename(from, to)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.run("remove", path, &[], |state| state.guarded(FaultOp::Remove, path, |s| s.remove(path)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.run("list", dir, &[], |state| state.list(dir))
    }

    fn exists(&self, path: &Path) -> bool {
        self.run("look for", path, &[], |state| state.lookup(path)).is_ok()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.run("flush the directory", dir, &[], |state| state.sync_dir(dir))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.run("ask for the free space of", path, &[], |state| {
            state.lookup(path)?;
            Ok(state.free_bytes())
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        let file = self.run("lock", path, &[], |state| {
            let ino = match state.lookup(path) {
                Ok(ino) => ino,
                Err(_) => state.guarded(FaultOp::Create, path, |s| s.create_file(path))?,
            };
            if state.locks.contains(&ino) {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "another process holds the lock"));
            }
            let file = self.handle(state, ino, path, OpenMode::ReadWrite)?;
            state.locks.insert(ino);
            Ok(file)
        })?;
        Ok(Box::new(SimLock { file }))
    }
}

/// The lock goes with the guard, or with the life it was taken in.
#[derive(Debug)]
struct SimLock {
    file: SimFile,
}

impl DirLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.file.disk.state.lock();
        if self.file.disk.life == Some(state.life) {
            state.locks.remove(&self.file.ino);
        }
    }
}

#[derive(Debug)]
struct SimFile {
    /// Bound to the life in which the file was opened.
    disk: SimDisk,
    ino: Ino,
    path: PathBuf,
    mode: OpenMode,
}

impl SimFile {
    /// An operation that needs a handle opened for writing.
    fn change<T>(&self, name: &str, numbers: &[u64], body: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.disk.run(name, &self.path, numbers, |state| {
            if self.mode == OpenMode::Read { Err(system(libc::EBADF)) } else { body(state) }
        })
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        if self.disk.life != Some(state.life) {
            return;
        }
        if let Some(inode) = state.inodes.get_mut(&self.ino) {
            inode.handles -= 1;
            if inode.handles == 0 && inode.links == 0 {
                state.sweep();
            }
        }
    }
}

impl RangeSource for SimFile {
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        let numbers = [position, into.len() as u64];
        self.disk.run("read", &self.path, &numbers, |state| {
            if self.mode == OpenMode::Direct {
                return Err(system(libc::EBADF));
            }
            state.guarded(FaultOp::Read, &self.path, |s| s.read(self.ino, into, position))
        })
    }

    fn raw_fd(&self) -> Option<i32> {
        None
    }
}

impl DiskFile for SimFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let numbers = [position, bytes.len() as u64, hash_bytes(bytes)];
        let pages = [position as usize, bytes.len(), bytes.as_ptr().addr()].iter().all(|n| n % DIRECT_BYTES == 0);
        self.change("write", &numbers, |state| {
            if self.mode == OpenMode::Direct && !pages {
                return Err(system(libc::EINVAL));
            }
            state.write(self.ino, &self.path, bytes, position, self.mode == OpenMode::Direct)
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.run("flush", &self.path, &[], |state| state.sync_data(self.ino, &self.path))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.change("reserve room for", &[len], |state| {
            state.guarded(FaultOp::Allocate, &self.path, |s| s.allocate(self.ino, len))
        })
    }

    fn punch(&self, position: u64, len: u64) -> io::Result<bool> {
        self.change("free a range of", &[position, len], |state| {
            state.guarded(FaultOp::Punch, &self.path, |s| s.punch(self.ino, position, len))
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change("set the length of", &[len], |state| {
            state.guarded(FaultOp::SetLen, &self.path, |s| s.set_len(self.ino, len))
        })
    }

    fn size(&self) -> io::Result<u64> {
        self.disk.run("ask for the length of", &self.path, &[], |state| Ok(state.file_mut(self.ino)?.live.len()))
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.disk.run("ask for the blocks of", &self.path, &[], |state| {
            Ok(state.file_mut(self.ino)?.live.blocks().total() * super::content::PAGE_BYTES)
        })
    }

    fn as_range_source(self: Arc<Self>) -> Arc<dyn RangeSource> {
        self
    }
}
