//! The tree of files and directories: what a process sees (live), what is certain to survive (durable), and what
//! stands between the two (pending).

use super::SimStats;
use super::content::{Content, PAGE_BYTES, blocks_of};
use super::fault::{FaultKind, FaultOp, Faults};
use super::rng::SimRng;
use super::trace::Trace;
use crate::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Component, Path};
use std::sync::Arc;

pub(super) type Ino = u64;
pub(super) const ROOT: Ino = 0;
/// The longest file: what ext4 has with 4 KiB blocks. Bytes.
const FILE_BYTES_MAX: u64 = 16 << 40;

/// What a write brought.
#[derive(Clone, Debug)]
pub(super) enum Data {
    /// Nothing but zeros, as many as given.
    Zeros(u64),
    /// These bytes.
    Bytes(Arc<[u8]>),
}

impl Data {
    fn of(bytes: &[u8]) -> Data {
        if bytes.iter().all(|b| *b == 0) { Data::Zeros(bytes.len() as u64) } else { Data::Bytes(bytes.into()) }
    }

    pub(super) fn len(&self) -> u64 {
        match self {
            Data::Zeros(len) => *len,
            Data::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Puts the part of the data that falls into `range` (of the file) where it belongs, `position` being the
    /// place of the whole.
    pub(super) fn put(&self, position: u64, range: &Range<u64>, content: &mut Content) {
        let range = range.start.max(position)..range.end.min(position + self.len());
        match self {
            Data::Zeros(_) => content.put_zeros(range),
            Data::Bytes(bytes) => {
                let (from, to) = ((range.start - position) as usize, (range.end - position) as usize);
                content.put(&bytes[from..to], range.start);
            }
        }
    }
}

/// A change of a file that no flush has covered yet.
#[derive(Clone, Debug)]
pub(super) struct FileOp {
    pub(super) what: Change,
    /// The length of the file after it, and whether that is another than before.
    pub(super) len_after: u64,
    pub(super) moves_len: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Write {
        position: u64,
        data: Data,
    },
    /// Longer, in zeros that take no room.
    Extend,
    /// Shorter: what stood from the new length on is gone.
    Cut,
    Allocate,
    Punch {
        range: Range<u64>,
    },
}

/// A file.
#[derive(Clone, Debug, Default)]
pub(super) struct FileBody {
    pub(super) live: Content,
    pub(super) durable: Content,
    pub(super) pending: Vec<FileOp>,
    /// Pages that this life has written through the page cache and not flushed.
    dirty: BTreeSet<u64>,
}

impl FileBody {
    /// Takes note of a write; whether it is a direct one to a page that is dirty in the page cache.
    fn note_write(&mut self, range: &Range<u64>, direct: bool) -> bool {
        let pages = blocks_of(range);
        if !direct {
            self.dirty.extend(pages);
            return false;
        }
        self.dirty.range(pages).next().is_some()
    }

    /// What is dirty stays so, but no longer by this life's doing.
    pub(super) fn end_life(&mut self) {
        self.dirty.clear();
    }

    fn push(&mut self, what: Change, len_before: u64) {
        let len_after = self.live.len();
        self.pending.push(FileOp { what, len_after, moves_len: len_after != len_before });
    }

    /// Everything pending is on the disk.
    pub(super) fn commit(&mut self) {
        self.dirty.clear();
        for op in std::mem::take(&mut self.pending) {
            let touched = match &op.what {
                Change::Write { position, data } => *position..*position + data.len(),
                Change::Cut => op.len_after..FILE_BYTES_MAX,
                Change::Punch { range } => range.clone(),
                Change::Extend | Change::Allocate => 0..0,
            };
            self.durable.take_over(&self.live, &touched);
        }
    }
}

/// A directory.
#[derive(Clone, Debug, Default)]
pub(super) struct DirBody {
    pub(super) live: BTreeMap<String, Ino>,
    pub(super) durable: BTreeMap<String, Ino>,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    File(FileBody),
    Dir(DirBody),
}

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) body: Body,
    /// Names in live directories.
    pub(super) links: u32,
    /// Open handles.
    pub(super) handles: u32,
}

/// One name that gets another meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) dir: Ino,
    pub(super) name: String,
    pub(super) to: Option<Ino>,
}

/// A change of names that no directory flush has covered yet. All edits happen or none: file systems with a journal
/// (ext4, xfs) promise that much for a rename.
#[derive(Clone, Debug)]
pub(super) struct NameOp {
    pub(super) edits: Vec<Edit>,
    /// The directory whose flush makes it durable; for a rename the one of the new name.
    pub(super) flushed_with: Ino,
}

/// Everything behind one [`super::SimDisk`].
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) inodes: BTreeMap<Ino, Inode>,
    next_ino: Ino,
    pub(super) pending_names: Vec<NameOp>,
    pub(super) locks: BTreeSet<Ino>,
    /// Counts crashes; handles of an earlier life are dead.
    pub(super) life: u64,
    /// Nothing works until the next crash.
    pub(super) stopped: bool,
    pub(super) capacity: u64,
    pub(super) rng: SimRng,
    pub(super) faults: Faults,
    pub(super) trace: Trace,
    pub(super) stats: SimStats,
}

pub(super) fn system(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn dead() -> io::Error {
    io::Error::other("the simulated node is down")
}

impl State {
    pub(super) fn new(seed: u64) -> State {
        let root = Inode { body: Body::Dir(DirBody::default()), links: 1, handles: 0 };
        State {
            inodes: BTreeMap::from([(ROOT, root)]),
            next_ino: ROOT + 1,
            pending_names: Vec::new(),
            locks: BTreeSet::new(),
            life: 0,
            stopped: false,
            capacity: u64::MAX,
            rng: SimRng::derive(seed, "disk"),
            faults: Faults::default(),
            trace: Trace::default(),
            stats: SimStats::default(),
        }
    }

    /// Refuses what comes from an earlier life, and everything while the disk is stopped.
    pub(super) fn alive(&self, life: Option<u64>) -> io::Result<()> {
        if self.stopped || life.is_some_and(|life| life != self.life) { Err(dead()) } else { Ok(()) }
    }

    fn strike(&mut self, op: FaultOp, path: &Path) -> Option<FaultKind> {
        let struck = self.faults.strike(op, path, &self.rng);
        self.stats.faults += u64::from(struck.is_some());
        struck
    }

    pub(super) fn coin(&self) -> bool {
        self.rng.next_u64() & 1 == 1
    }

    fn cut_power(&mut self) -> io::Error {
        self.stopped = true;
        dead()
    }

    /// Runs an operation that either happens whole or not, under the faults in force.
    pub(super) fn guarded<T>(
        &mut self,
        op: FaultOp,
        path: &Path,
        body: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        match self.strike(op, path) {
            None | Some(FaultKind::Lie) => body(self),
            Some(FaultKind::NoSpace) => Err(system(libc::ENOSPC)),
            Some(FaultKind::Io) => Err(system(libc::EIO)),
            Some(FaultKind::PowerCut) => {
                if self.coin() {
                    // It happened, and no caller will learn of it.
                    let _ = body(self);
                }
                Err(self.cut_power())
            }
        }
    }

    // --- names ---

    fn dir(&self, ino: Ino) -> io::Result<&DirBody> {
        match self.inodes.get(&ino).map(|inode| &inode.body) {
            Some(Body::Dir(dir)) => Ok(dir),
            Some(Body::File(_)) => Err(system(libc::ENOTDIR)),
            None => Err(system(libc::ENOENT)),
        }
    }

    pub(super) fn dir_mut(&mut self, ino: Ino) -> io::Result<&mut DirBody> {
        match self.inodes.get_mut(&ino).map(|inode| &mut inode.body) {
            Some(Body::Dir(dir)) => Ok(dir),
            Some(Body::File(_)) => Err(system(libc::ENOTDIR)),
            None => Err(system(libc::ENOENT)),
        }
    }

    pub(super) fn file_mut(&mut self, ino: Ino) -> io::Result<&mut FileBody> {
        match self.inodes.get_mut(&ino).map(|inode| &mut inode.body) {
            Some(Body::File(file)) => Ok(file),
            Some(Body::Dir(_)) => Err(system(libc::EISDIR)),
            None => Err(system(libc::ENOENT)),
        }
    }

    /// The components of a path. `..` goes up; relative paths start at the root.
    fn parts(path: &Path) -> Vec<String> {
        let mut parts = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
                Component::ParentDir => drop(parts.pop()),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        parts
    }

    fn find(&self, parts: &[String]) -> io::Result<Ino> {
        let mut at = ROOT;
        for name in parts {
            at = *self.dir(at)?.live.get(name).ok_or_else(|| system(libc::ENOENT))?;
        }
        Ok(at)
    }

    pub(super) fn lookup(&self, path: &Path) -> io::Result<Ino> {
        self.find(&State::parts(path))
    }

    /// The directory that holds the last component of `path`, and that component.
    fn parent(&self, path: &Path) -> io::Result<(Ino, String)> {
        let mut parts = State::parts(path);
        let name = parts.pop().ok_or_else(|| system(libc::EISDIR))?;
        let dir = self.find(&parts)?;
        self.dir(dir)?;
        Ok((dir, name))
    }

    /// Does the edits for everybody to see, and leaves them pending.
    fn edit(&mut self, flushed_with: Ino, edits: Vec<Edit>) -> io::Result<()> {
        for edit in &edits {
            if let Some(inode) = edit.to.and_then(|ino| self.inodes.get_mut(&ino)) {
                inode.links += 1;
            }
            let live = &mut self.dir_mut(edit.dir)?.live;
            let before = match edit.to {
                Some(ino) => live.insert(edit.name.clone(), ino),
                None => live.remove(&edit.name),
            };
            if let Some(inode) = before.and_then(|ino| self.inodes.get_mut(&ino)) {
                inode.links -= 1;
            }
        }
        self.pending_names.push(NameOp { edits, flushed_with });
        Ok(())
    }

    fn make(&mut self, dir: Ino, name: String, body: Body) -> io::Result<Ino> {
        let ino = self.next_ino;
        self.next_ino += 1;
        self.inodes.insert(ino, Inode { body, links: 0, handles: 0 });
        self.edit(dir, vec![Edit { dir, name, to: Some(ino) }])?;
        Ok(ino)
    }

    /// Makes an empty file; it must not exist.
    pub(super) fn create_file(&mut self, path: &Path) -> io::Result<Ino> {
        if self.lookup(path).is_ok() {
            return Err(system(libc::EEXIST));
        }
        let (dir, name) = self.parent(path)?;
        self.stats.creates += 1;
        self.make(dir, name, Body::File(FileBody::default()))
    }

    pub(super) fn create_dirs(&mut self, path: &Path) -> io::Result<()> {
        let mut at = ROOT;
        for name in State::parts(path) {
            at = match self.dir(at)?.live.get(&name) {
                Some(ino) => *ino,
                None => self.make(at, name, Body::Dir(DirBody::default()))?,
            };
        }
        // A file of that name is an error.
        self.dir(at).map(drop).map_err(|_| system(libc::EEXIST))
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let moved = self.lookup(from)?;
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        let replaced = self.dir(to_dir)?.live.get(&to_name).copied();
        if replaced == Some(moved) {
            return Ok(());
        }
        if self.dir(moved).is_ok() && State::parts(to).starts_with(&State::parts(from)) {
            return Err(system(libc::EINVAL));
        }
        if let Some(replaced) = replaced {
            match (self.dir(moved).is_ok(), self.dir(replaced)) {
                (true, Err(_)) => return Err(system(libc::ENOTDIR)),
                (false, Ok(_)) => return Err(system(libc::EISDIR)),
                (true, Ok(dir)) if !dir.live.is_empty() => return Err(system(libc::ENOTEMPTY)),
                _ => {}
            }
        }
        self.stats.renames += 1;
        let edits = vec![
            Edit { dir: to_dir, name: to_name, to: Some(moved) },
            Edit { dir: from_dir, name: from_name, to: None },
        ];
        self.edit(to_dir, edits)
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let ino = self.lookup(path)?;
        self.file_mut(ino)?;
        let (dir, name) = self.parent(path)?;
        self.stats.removes += 1;
        self.edit(dir, vec![Edit { dir, name, to: None }])
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        Ok(self.dir(self.lookup(path)?)?.live.keys().cloned().collect())
    }

    /// Takes out of the pending changes what a flush of `dir` covers: its own, and whatever touched one of their
    /// names before them.
    fn take_names_of(&mut self, dir: Ino) -> Vec<NameOp> {
        let mut names: BTreeSet<(Ino, String)> = BTreeSet::new();
        let (mut covered, mut rest) = (Vec::new(), Vec::new());
        for op in std::mem::take(&mut self.pending_names).into_iter().rev() {
            let key = |edit: &Edit| (edit.dir, edit.name.clone());
            if op.flushed_with == dir || op.edits.iter().any(|edit| names.contains(&key(edit))) {
                names.extend(op.edits.iter().map(key));
                covered.push(op);
            } else {
                rest.push(op);
            }
        }
        rest.reverse();
        covered.reverse();
        self.pending_names = rest;
        covered
    }

    /// Makes changes of names durable.
    pub(super) fn commit_names(&mut self, ops: impl IntoIterator<Item = NameOp>) {
        for edit in ops.into_iter().flat_map(|op| op.edits) {
            // A directory that was lost takes its names with it.
            if let Ok(dir) = self.dir_mut(edit.dir) {
                match edit.to {
                    Some(ino) => drop(dir.durable.insert(edit.name, ino)),
                    None => drop(dir.durable.remove(&edit.name)),
                }
            }
        }
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let dir = self.lookup(path)?;
        self.dir(dir)?;
        self.stats.dir_syncs += 1;
        let fault = self.strike(FaultOp::SyncDir, path);
        match fault {
            Some(FaultKind::Lie) => return Ok(()),
            Some(FaultKind::PowerCut) if self.coin() => return Err(self.cut_power()),
            _ => {}
        }
        let covered = self.take_names_of(dir);
        let kept = match fault {
            Some(FaultKind::Io | FaultKind::NoSpace) => self.rng.below(covered.len() as u64 + 1) as usize,
            _ => covered.len(),
        };
        self.commit_names(covered.into_iter().take(kept));
        self.sweep();
        match fault {
            Some(FaultKind::Io) => Err(system(libc::EIO)),
            Some(FaultKind::NoSpace) => Err(system(libc::ENOSPC)),
            Some(FaultKind::PowerCut) => Err(self.cut_power()),
            _ => Ok(()),
        }
    }

    /// Forgets files that no name, no handle and no pending change leads to.
    pub(super) fn sweep(&mut self) {
        let mut wanted: BTreeSet<Ino> =
            self.pending_names.iter().flat_map(|op| &op.edits).filter_map(|edit| edit.to).collect();
        for inode in self.inodes.values() {
            if let Body::Dir(dir) = &inode.body {
                wanted.extend(dir.durable.values());
            }
        }
        self.inodes.retain(|ino, inode| inode.links > 0 || inode.handles > 0 || wanted.contains(ino));
    }

    // --- files ---

    /// Blocks in use, in bytes: those of files that have a name or a handle.
    fn used_bytes(&self) -> u64 {
        let blocks = self.inodes.values().map(|inode| match &inode.body {
            Body::File(file) if inode.links > 0 || inode.handles > 0 => file.live.blocks().total(),
            _ => 0,
        });
        blocks.sum::<u64>() * PAGE_BYTES
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.capacity.saturating_sub(self.used_bytes())
    }

    /// How much of a write to `range` finds room, from its start on.
    fn room_for(&mut self, ino: Ino, range: &Range<u64>) -> io::Result<u64> {
        let whole = range.end - range.start;
        if self.capacity == u64::MAX {
            return Ok(whole);
        }
        let blocks = blocks_of(range);
        let missing = (blocks.end - blocks.start) - self.file_mut(ino)?.live.blocks().within(&blocks);
        // Most writes go to blocks that are there, and asking for the free room is not cheap.
        if missing == 0 {
            return Ok(whole);
        }
        let mut free = self.free_bytes() / PAGE_BYTES;
        if missing <= free {
            return Ok(whole);
        }
        let held = self.file_mut(ino)?.live.blocks();
        for block in blocks {
            if held.within(&(block..block + 1)) == 0 {
                if free == 0 {
                    return Ok((block * PAGE_BYTES).saturating_sub(range.start));
                }
                free -= 1;
            }
        }
        Ok(whole)
    }

    pub(super) fn write(&mut self, ino: Ino, path: &Path, bytes: &[u8], position: u64, direct: bool) -> io::Result<()> {
        let end = position.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or_else(|| system(libc::EFBIG))?;
        let fault = self.strike(FaultOp::Write, path);
        let mut done = self.room_for(ino, &(position..end))?;
        let full = done < bytes.len() as u64;
        if matches!(fault, Some(FaultKind::NoSpace | FaultKind::Io | FaultKind::PowerCut)) {
            done = self.rng.below(done + 1);
        }
        self.stats.writes += 1;
        self.stats.write_bytes += done;
        if done > 0 {
            let file = self.file_mut(ino)?;
            let mixed = file.note_write(&(position..position + done), direct);
            let (before, data) = (file.live.len(), Data::of(&bytes[..done as usize]));
            data.put(position, &(position..position + done), &mut file.live);
            file.live.grow(position + done);
            file.push(Change::Write { position, data }, before);
            self.stats.mixed_writes += u64::from(mixed);
        }
        match fault {
            Some(FaultKind::NoSpace) => Err(system(libc::ENOSPC)),
            Some(FaultKind::Io) => Err(system(libc::EIO)),
            Some(FaultKind::PowerCut) => Err(self.cut_power()),
            Some(FaultKind::Lie) | None if full => Err(system(libc::ENOSPC)),
            Some(FaultKind::Lie) | None => Ok(()),
        }
    }

    pub(super) fn read(&mut self, ino: Ino, into: &mut [u8], position: u64) -> io::Result<()> {
        self.stats.reads += 1;
        self.stats.read_bytes += into.len() as u64;
        let file = self.file_mut(ino)?;
        let end = position.checked_add(into.len() as u64).filter(|end| *end <= file.live.len());
        if end.is_none() && !into.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "failed to fill whole buffer"));
        }
        file.live.read(into, position);
        Ok(())
    }

    pub(super) fn allocate(&mut self, ino: Ino, len: u64) -> io::Result<()> {
        if len > FILE_BYTES_MAX {
            return Err(system(libc::EFBIG));
        }
        if self.room_for(ino, &(0..len))? < len {
            return Err(system(libc::ENOSPC));
        }
        let file = self.file_mut(ino)?;
        let before = file.live.len();
        file.live.allocate(len);
        file.push(Change::Allocate, before);
        Ok(())
    }

    pub(super) fn punch(&mut self, ino: Ino, position: u64, len: u64) -> io::Result<bool> {
        let file = self.file_mut(ino)?;
        let before = file.live.len();
        // The last block goes whole, though the file may end inside it.
        let end = position.saturating_add(len).min(before.next_multiple_of(PAGE_BYTES));
        if position < end {
            file.live.punch(&(position..end));
            file.push(Change::Punch { range: position..end }, before);
        }
        Ok(true)
    }

    pub(super) fn set_len(&mut self, ino: Ino, len: u64) -> io::Result<()> {
        if len > FILE_BYTES_MAX {
            return Err(system(libc::EFBIG));
        }
        let file = self.file_mut(ino)?;
        let before = file.live.len();
        file.live.set_len(len);
        if len != before {
            file.push(if len < before { Change::Cut } else { Change::Extend }, before);
        }
        Ok(())
    }

    pub(super) fn sync_data(&mut self, ino: Ino, path: &Path) -> io::Result<()> {
        self.stats.syncs += 1;
        let fault = self.strike(FaultOp::SyncData, path);
        match fault {
            None => self.file_mut(ino)?.commit(),
            Some(FaultKind::Lie) => {}
            Some(FaultKind::Io | FaultKind::NoSpace) => {
                let luck = self.luck();
                self.file_mut(ino)?.settle(&luck);
                let number = if fault == Some(FaultKind::Io) { libc::EIO } else { libc::ENOSPC };
                return Err(system(number));
            }
            Some(FaultKind::PowerCut) => {
                if self.coin() {
                    self.file_mut(ino)?.commit();
                }
                return Err(self.cut_power());
            }
        }
        Ok(())
    }
}
