//! Files made ahead, recycled or new, so that beginning a file changes no metadata on the write path.

use super::config::Config;
use super::file::{FILE_HEADER_BYTES, LiveFile, PAGE_BYTES, Role};
use super::pages::open_direct;
use crate::error::{Error, ErrorKind, Result};
use polylogue_env::{Disk, DiskFile, Env, OpenMode};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a file is begun with when the disk has no room for a whole one, the first that has room: what was accepted, the
/// records of a full disk and the beginning of a term must not wait for 64 MiB. Bytes.
const SMALL_FILE_BYTES: [u64; 3] = [1 << 20, 64 << 10, 16 << 10];

/// A file that is not part of the log.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) role: Role,
    pub(crate) file: Arc<dyn DiskFile>,
    /// Bytes allocated.
    pub(crate) capacity: u64,
    /// Bytes from the start that have been written at least once, so that writing them again changes no metadata.
    pub(crate) written_to: u64,
}

/// A file that the writer takes into use.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) sequence: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) capacity: u64,
    /// Neither recycled nor made ahead.
    pub(crate) late: bool,
    /// All of it has been written before.
    pub(crate) written: bool,
    /// The handle for direct writes, if it was filled in this life.
    pub(crate) direct: Option<Arc<dyn DiskFile>>,
}

/// A released file that still has readers.
#[derive(Debug)]
struct Retired {
    live: Arc<LiveFile>,
    /// Bytes from the start that have been written.
    written_to: u64,
}

impl Retired {
    /// Whether a reader has the file: a frame in memory points into it, or a reply is being sent from it.
    fn is_read(&self) -> bool {
        Arc::strong_count(&self.live) > 1 || Arc::strong_count(&self.live.file) > 1
    }
}

/// All files that wait. Behind one lock, which is held during their metadata operations: a thread that needs a file has to
/// wait for these anyhow.
#[derive(Debug)]
pub(crate) struct Spares {
    dir: PathBuf,
    /// The sequence number that the next file gets. Never used twice.
    next_sequence: u64,
    /// Already named as a file of the log; always taken before any other.
    ready: Option<Spare>,
    pool: Vec<Spare>,
    retired: Vec<Retired>,
    /// The handle that fills the ready file, and the file's sequence number.
    filler: Option<(u64, Arc<dyn DiskFile>)>,
}

impl Spares {
    pub(crate) fn new(dir: PathBuf, next_sequence: u64, ready: Option<Spare>, pool: Vec<Spare>) -> Spares {
        Spares { dir, next_sequence, ready, pool, retired: Vec::new(), filler: None }
    }

    /// Bytes that the waiting files can take.
    pub(crate) fn room(&self) -> u64 {
        let usable = |s: &Spare| s.capacity.saturating_sub(FILE_HEADER_BYTES);
        self.ready.iter().chain(&self.pool).map(usable).sum()
    }

    /// Whether a file waits.
    pub(crate) fn has_any(&self) -> bool {
        self.ready.is_some() || !self.pool.is_empty()
    }

    pub(crate) fn has_ready(&self) -> bool {
        self.ready.is_some()
    }

    /// Whether the ready file has been written all over.
    pub(crate) fn is_ready_written(&self) -> bool {
        self.ready.as_ref().is_some_and(|s| s.written_to >= s.capacity)
    }

    /// Takes a file that holds at least `need` bytes: the ready one, a recycled one, or a new one, whose blocks are
    /// reserved but not yet written: the writer does not wait for that. On a full disk, or one that is said to be `short` of room, the new one
    /// is smaller than `file_bytes`.
    ///
    /// # Errors
    /// `StorageFull`, and then nothing has changed. Any other error is final.
    pub(crate) fn take(&mut self, disk: &dyn Disk, need: u64, file_bytes: u64, short: bool) -> Result<Taken> {
        if need > file_bytes {
            return self.take_special(disk, need.next_multiple_of(PAGE_BYTES));
        }
        if self.ready.is_none() {
            unless_full(self.promote(disk))?;
        }
        if let Some(spare) = self.ready.take() {
            let path = self.dir.join(spare.role.name());
            let Spare { role, file, capacity, written_to } = spare;
            let (sequence, written) = (role.sequence(), written_to >= capacity);
            let direct = self.filler.take().filter(|(of, _)| *of == sequence).map(|(_, direct)| direct);
            return Ok(Taken { sequence, path, file, capacity, late: false, written, direct });
        }
        let mut sizes: Vec<u64> =
            SMALL_FILE_BYTES.into_iter().filter(|bytes| need <= *bytes && *bytes < file_bytes).collect();
        let usual = if short { sizes.len() } else { 0 };
        sizes.insert(usual, file_bytes);
        let mut made = Err(Error::new(ErrorKind::StorageFull, "no room for a journal file"));
        for bytes in sizes {
            made = self.create(disk, bytes);
            if !made.as_ref().is_err_and(|e| e.kind == ErrorKind::StorageFull) {
                break;
            }
        }
        made.map(|(path, spare)| self.taken_late(path, spare))
    }

    /// A file for a frame that is larger than a usual file. The ready one gives up its sequence number: files are begun
    /// in the order of their numbers.
    fn take_special(&mut self, disk: &dyn Disk, bytes: u64) -> Result<Taken> {
        self.ready_into_pool(disk)?;
        self.create(disk, bytes).map(|(path, spare)| self.taken_late(path, spare))
    }

    fn taken_late(&self, path: PathBuf, spare: Spare) -> Taken {
        let sequence = spare.role.sequence();
        Taken { sequence, path, file: spare.file, capacity: spare.capacity, late: true, written: false, direct: None }
    }

    fn ready_into_pool(&mut self, disk: &dyn Disk) -> Result<()> {
        let Some(spare) = &self.ready else { return Ok(()) };
        let role = Role::Spare(spare.role.sequence());
        rename(disk, &self.dir, &self.dir.join(spare.role.name()), role)?;
        self.pool.extend(self.ready.take().map(|spare| Spare { role, ..spare }));
        Ok(())
    }

    /// A new file of the log with its blocks reserved and its name durable.
    fn create(&mut self, disk: &dyn Disk, bytes: u64) -> Result<(PathBuf, Spare)> {
        let role = Role::Log(self.next_sequence);
        let path = self.dir.join(role.name());
        let made = disk.open(&path, OpenMode::CreateNew).and_then(|file| {
            file.allocate(bytes).inspect_err(|_| {
                // Without it the next attempt finds the name taken; if it stays, the next start removes it.
                let _ = disk.remove(&path);
            })?;
            Ok(file)
        });
        let file = made.map_err(|e| Error::io("cannot make a journal file", e))?;
        self.next_sequence += 1;
        disk.sync_dir(&self.dir).map_err(|e| final_error("cannot make a journal file's name durable", e))?;
        Ok((path, Spare { role, file, capacity: bytes, written_to: 0 }))
    }

    /// Names a file of the pool as the next one of the log. With `StorageFull` nothing has changed.
    pub(crate) fn promote(&mut self, disk: &dyn Disk) -> Result<()> {
        let Some(spare) = self.pool.last().filter(|_| self.ready.is_none()) else { return Ok(()) };
        let role = Role::Log(self.next_sequence);
        rename(disk, &self.dir, &self.dir.join(spare.role.name()), role)?;
        self.next_sequence += 1;
        self.ready = self.pool.pop().map(|spare| Spare { role, ..spare });
        Ok(())
    }

    /// Makes a new file ready, its blocks reserved and not written. With `StorageFull` nothing has changed.
    pub(crate) fn make_ready(&mut self, disk: &dyn Disk, bytes: u64) -> Result<()> {
        if self.ready.is_none() {
            let (_, spare) = self.create(disk, bytes)?;
            self.ready = Some(spare);
        }
        Ok(())
    }

    /// Fills the next `piece` bytes of the ready file with zeros. Returns the file, to be flushed outside the lock, and
    /// how many bytes were written; `None` when there is nothing to fill.
    pub(crate) fn prewrite(
        &mut self,
        disk: &dyn Disk,
        piece: &[u8],
        direct_io: bool,
    ) -> Result<Option<(Arc<dyn DiskFile>, u64)>> {
        let Some(spare) = self.ready.as_mut().filter(|s| s.written_to < s.capacity) else { return Ok(None) };
        let sequence = spare.role.sequence();
        let direct = match self.filler.take().filter(|(of, _)| *of == sequence) {
            Some((_, direct)) => direct,
            None => open_direct(disk, &self.dir.join(spare.role.name()), &spare.file, direct_io),
        };
        // Nothing of worth is in the file: the page in which a former life ended is filled whole.
        let from = spare.written_to - spare.written_to % PAGE_BYTES;
        let left = usize::try_from(spare.capacity - from).unwrap_or(usize::MAX);
        let zeros = &piece[..piece.len().min(left)];
        direct.write_all_at(zeros, from).map_err(|e| Error::io("cannot fill a new journal file", e))?;
        self.filler = Some((sequence, direct));
        spare.written_to = from + zeros.len() as u64;
        Ok(Some((spare.file.clone(), zeros.len() as u64)))
    }

    /// Takes in a released file whose last reader may still be there.
    pub(crate) fn retire(&mut self, live: Arc<LiveFile>, end: u64) {
        let written_to = if live.written { live.capacity } else { end };
        self.retired.push(Retired { live, written_to });
    }

    /// Recycles released files without readers, removes what is too much, and says how many of each. Where the
    /// disk has no room for the change of a name, the file waits. On a full disk only the next file is kept.
    pub(crate) fn recycle(&mut self, disk: &dyn Disk, config: &Config, full: bool) -> Result<(u64, u64)> {
        let (mut recycled, mut removed) = (0, 0);
        let mut kept = Vec::new();
        let spare_max = if full { usize::from(self.ready.is_none()) } else { config.spare_files_max };
        for retired in std::mem::take(&mut self.retired) {
            let read = retired.is_read();
            let wanted = retired.live.capacity == config.file_bytes && self.pool.len() < spare_max;
            if read && wanted && kept.len() < config.retired_files_max && !full {
                kept.push(retired);
                continue;
            }
            let recycle = !read && wanted;
            let done = if recycle {
                self.recycle_one(disk, &retired)
            } else {
                disk.remove(&retired.live.path).map_err(|e| Error::io("cannot remove a journal file", e))
            };
            match done {
                Ok(()) if recycle => recycled += 1,
                Ok(()) => removed += 1,
                Err(e) if e.kind == ErrorKind::StorageFull => kept.push(retired),
                Err(e) => return Err(e),
            }
        }
        self.retired = kept;
        if recycled + removed > 0 {
            disk.sync_dir(&self.dir).map_err(|e| final_error("cannot flush the journal's directory", e))?;
        }
        Ok((recycled, removed))
    }

    fn recycle_one(&mut self, disk: &dyn Disk, retired: &Retired) -> Result<()> {
        let Retired { live, written_to } = retired;
        let role = Role::Spare(live.sequence);
        let renamed = disk.rename(&live.path, &self.dir.join(role.name()));
        renamed.map_err(|e| Error::io("cannot recycle a journal file", e))?;
        self.pool.push(Spare { role, file: live.file.clone(), capacity: live.capacity, written_to: *written_to });
        Ok(())
    }

    /// Removes the files that only wait, but for the next one: on a full disk others want their room. Says how many.
    pub(crate) fn give_way(&mut self, disk: &dyn Disk) -> Result<u64> {
        let mut removed = 0;
        while self.ready.is_some() || self.pool.len() > 1 {
            let Some(spare) = self.pool.pop() else { break };
            let gone = disk.remove(&self.dir.join(spare.role.name()));
            gone.map_err(|e| Error::io("cannot remove a spare journal file", e))?;
            removed += 1;
        }
        if removed > 0 {
            disk.sync_dir(&self.dir).map_err(|e| final_error("cannot flush the journal's directory", e))?;
        }
        Ok(removed)
    }

    /// Whether released files wait for their readers.
    pub(crate) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }
}

/// What a full disk refused can wait; any other error stays one. Some file systems need room for a name.
pub(crate) fn unless_full(done: Result<()>) -> Result<()> {
    done.or_else(|e| if e.kind == ErrorKind::StorageFull { Ok(()) } else { Err(e) })
}

/// Gives a file another name, durably. With `StorageFull` nothing has changed.
fn rename(disk: &dyn Disk, dir: &Path, from: &Path, to: Role) -> Result<()> {
    let renamed = disk.rename(from, &dir.join(to.name()));
    renamed.map_err(|e| Error::io("cannot rename a journal file", e))?;
    disk.sync_dir(dir).map_err(|e| final_error("cannot make a journal file's name durable", e))
}

/// An error after which it is unknown what is on the disk. A full disk is no excuse here: the kind must not look like one
/// that can be waited out.
pub(crate) fn final_error(context: &str, source: std::io::Error) -> Error {
    Error { kind: ErrorKind::Io, context: context.to_owned(), source: Some(source) }
}

/// Opens a file that waits, found at a start.
pub(crate) fn open_spare(env: &Env, dir: &Path, role: Role, file_bytes: u64) -> Result<Option<Spare>> {
    let opened = env.disk.open(&dir.join(role.name()), OpenMode::ReadWrite).and_then(|f| Ok((f.size()?, f)));
    let (size, file) = opened.map_err(|e| Error::io("cannot open a spare journal file", e))?;
    // Whether it was filled once is not known; filling it again would cost more than finding out by writing.
    Ok((size == file_bytes).then_some(Spare { role, file, capacity: size, written_to: size }))
}
