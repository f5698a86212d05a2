//! A disk that keeps changes in memory, for a dry run on a directory.

use crate::disk::{DirLock, Disk, DiskFile, OpenMode};
use parking_lot::Mutex;
use polylogue_types::RangeSource;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Changes are kept in pieces of this size. Bytes.
const PAGE_BYTES: u64 = 4096;

/// What is written stays in memory and is seen through this disk alone; everything else is read from the disk below, which is never
/// changed. Takes memory by what is written. Locks are granted at once: the caller holds the directory.
#[derive(Debug)]
pub struct Overlay {
    below: Arc<dyn Disk>,
    names: Mutex<Names>,
}

#[derive(Debug, Default)]
struct Names {
    /// Files that were opened, created or renamed; `None` for removed ones.
    files: BTreeMap<PathBuf, Option<Arc<Shared>>>,
    dirs: BTreeSet<PathBuf>,
}

/// The content of a file, shared by its handles.
#[derive(Debug)]
struct Shared {
    below: Option<Arc<dyn DiskFile>>,
    content: Mutex<Content>,
}

#[derive(Debug)]
struct Content {
    len: u64,
    /// Bytes from here on are not those of the file below.
    below_len: u64,
    /// Pages that changed; `None` for zeros.
    pages: BTreeMap<u64, Option<Box<[u8]>>>,
}

#[derive(Debug)]
struct Handle {
    file: Arc<Shared>,
    mode: OpenMode,
}

/// A lock that is visible on this disk only.
#[derive(Debug)]
struct Granted;

impl DirLock for Granted {}

impl Overlay {
    /// Creates an overlay over another disk, without changes.
    #[must_use]
    pub fn new(below: Arc<dyn Disk>) -> Overlay {
        Overlay { below, names: Mutex::default() }
    }

    /// The file of that name; opens the one below when it is asked for the first time.
    fn find(&self, names: &mut Names, path: &Path) -> io::Result<Arc<Shared>> {
        match names.files.get(path) {
            Some(Some(file)) => return Ok(file.clone()),
            Some(None) => return Err(not_found(path)),
            None => {}
        }
        let below = self.below.open(path, OpenMode::Read)?;
        let len = below.size()?;
        let content = Mutex::new(Content { len, below_len: len, pages: BTreeMap::new() });
        let file = Arc::new(Shared { below: Some(below), content });
        names.files.insert(path.to_owned(), Some(file.clone()));
        Ok(file)
    }

    fn has(&self, names: &Names, path: &Path) -> bool {
        match names.files.get(path) {
            Some(known) => known.is_some(),
            None => names.dirs.contains(path) || self.below.exists(path),
        }
    }
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} is not there", path.display()))
}

impl Disk for Overlay {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut names = self.names.lock();
        let file = if mode == OpenMode::CreateNew {
            if self.has(&names, path) {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} is there", path.display())));
            }
            let content = Mutex::new(Content { len: 0, below_len: 0, pages: BTreeMap::new() });
            let file = Arc::new(Shared { below: None, content });
            names.files.insert(path.to_owned(), Some(file.clone()));
            file
        } else {
            self.find(&mut names, path)?
        };
        Ok(Arc::new(Handle { file, mode }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        let missing: Vec<_> = path.ancestors().take_while(|dir| !self.has(&names, dir)).map(Path::to_owned).collect();
        names.dirs.extend(missing);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        let file = self.find(&mut names, from)?;
        names.files.insert(from.to_owned(), None);
        names.files.insert(to.to_owned(), Some(file));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        if !self.has(&names, path) {
            return Err(not_found(path));
        }
        names.files.insert(path.to_owned(), None);
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let names = self.names.lock();
        let mut found: BTreeSet<String> =
            if names.dirs.contains(dir) { BTreeSet::new() } else { self.below.list(dir)?.into_iter().collect() };
        let name_of = |path: &Path| {
            let name = path.file_name()?.to_str()?;
            (path.parent() == Some(dir)).then(|| name.to_owned())
        };
        found.extend(names.dirs.iter().filter_map(|path| name_of(path)));
        for (path, file) in &names.files {
            let Some(name) = name_of(path) else { continue };
            if file.is_some() {
                found.insert(name);
            } else {
                found.remove(&name);
            }
        }
        Ok(found.into_iter().collect())
    }

    fn exists(&self, path: &Path) -> bool {
        self.has(&self.names.lock(), path)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        // Nothing that is tried here takes any room.
        Ok(u64::MAX >> 1)
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn DirLock>> {
        Ok(Box::new(Granted))
    }
}

impl Shared {
    /// Reads what is there; the content is locked.
    fn read(&self, content: &Content, into: &mut [u8], position: u64) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let at = position + done as u64;
            let inside = (at % PAGE_BYTES) as usize;
            // Of what did not change as much at once as there is.
            let page = at / PAGE_BYTES;
            let here = content.pages.get(&page);
            let end = match here {
                Some(_) => (page + 1) * PAGE_BYTES,
                None => content.pages.range(page..).next().map_or(u64::MAX, |(next, _)| next * PAGE_BYTES),
            };
            let count = usize::try_from(end - at).unwrap_or(usize::MAX).min(into.len() - done);
            let Some(part) = into.get_mut(done..done + count) else { break };
            match here {
                Some(Some(bytes)) => part.copy_from_slice(bytes.get(inside..inside + count).unwrap_or_default()),
                Some(None) => part.fill(0),
                None => self.read_below(content.below_len, part, at)?,
            }
            done += count;
        }
        Ok(())
    }

    fn read_below(&self, below_len: u64, into: &mut [u8], position: u64) -> io::Result<()> {
        let there = usize::try_from(below_len.saturating_sub(position)).unwrap_or(usize::MAX).min(into.len());
        let (there, beyond) = into.split_at_mut(there);
        beyond.fill(0);
        match &self.below {
            Some(below) if !there.is_empty() => below.read_exact_at(there, position),
            _ => Ok(()),
        }
    }
}

impl Handle {
    fn change<T>(&self, body: impl FnOnce(&mut Content) -> io::Result<T>) -> io::Result<T> {
        if self.mode == OpenMode::Read {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file is open for reading only"));
        }
        body(&mut self.file.content.lock())
    }
}

impl RangeSource for Handle {
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        if into.is_empty() {
            return Ok(());
        }
        let content = self.file.content.lock();
        if position.checked_add(into.len() as u64).is_none_or(|end| end > content.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.read(&content, into, position)
    }

    fn raw_fd(&self) -> Option<i32> {
        None
    }
}

impl DiskFile for Handle {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.change(|content| {
            let mut done = 0;
            while done < bytes.len() {
                let at = position + done as u64;
                let (page, inside) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
                let count = (PAGE_BYTES as usize - inside).min(bytes.len() - done);
                let mut held = vec![0; PAGE_BYTES as usize];
                self.file.read(content, &mut held, page * PAGE_BYTES)?;
                let parts = held.get_mut(inside..inside + count).zip(bytes.get(done..done + count));
                parts.into_iter().for_each(|(to, from)| to.copy_from_slice(from));
                content.pages.insert(page, Some(held.into_boxed_slice()));
                done += count;
            }
            content.len = content.len.max(position + bytes.len() as u64);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.change(|content| {
            content.len = content.len.max(len);
            Ok(())
        })
    }

    fn punch(&self, position: u64, len: u64) -> io::Result<bool> {
        self.change(|content| {
            let end = (position + len).min(content.len);
            // Only whole pages: file systems do the same.
            for page in position.div_ceil(PAGE_BYTES)..end / PAGE_BYTES {
                content.pages.insert(page, None);
            }
            Ok(true)
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|content| {
            if len < content.len {
                let (page, inside) = (len / PAGE_BYTES, (len % PAGE_BYTES) as usize);
                content.pages.split_off(&(page + u64::from(inside > 0)));
                if let Some(Some(bytes)) = content.pages.get_mut(&page) {
                    bytes.get_mut(inside..).into_iter().for_each(|rest| rest.fill(0));
                }
                content.below_len = content.below_len.min(len);
            }
            content.len = len;
            Ok(())
        })
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.file.content.lock().len)
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.size()
    }

    fn as_range_source(self: Arc<Self>) -> Arc<dyn RangeSource> {
        self
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::sim::SimDisk;

    fn bytes(file: &dyn DiskFile) -> Vec<u8> {
        let mut all = vec![0; file.size().unwrap() as usize];
        file.read_exact_at(&mut all, 0).unwrap();
        all
    }

    #[test]
    fn what_is_changed_is_seen_through_it_and_nowhere_else() {
        let disk = SimDisk::new(1);
        let (dir, old) = (Path::new("/d"), Path::new("/d/old"));
        disk.create_dir_all(dir).unwrap();
        disk.open(old, OpenMode::CreateNew).unwrap().write_all_at(&[7; 10_000], 0).unwrap();
        let over = Overlay::new(Arc::new(disk.clone()));
        let file = over.open(old, OpenMode::ReadWrite).unwrap();
        file.write_all_at(&[9; 10], 4_090).unwrap();
        let mut expected = vec![7; 10_000];
        expected[4_090..4_100].fill(9);
        assert_eq!(bytes(&*over.open(old, OpenMode::Read).unwrap()), expected);
        file.set_len(4_095).unwrap();
        file.allocate(5_000).unwrap();
        expected.truncate(4_095);
        expected.resize(5_000, 0);
        assert_eq!(bytes(&*file), expected);
        assert!(file.punch(0, 5_000).unwrap());
        expected[..4_096].fill(0);
        assert_eq!(bytes(&*file), expected);
        // As of a file of the system. `check` could not read an empty journal file, with which a start had no trouble.
        file.read_exact_at(&mut [], 9_000).unwrap();
        assert!(file.read_exact_at(&mut [0], 9_000).is_err());
        let new = dir.join("new");
        over.rename(old, &new).unwrap();
        over.open(&dir.join("other"), OpenMode::CreateNew).unwrap();
        over.create_dir_all(&dir.join("sub/deep")).unwrap();
        assert_eq!(over.list(dir).unwrap(), ["new", "other", "sub"]);
        assert_eq!(over.list(&dir.join("sub")).unwrap(), ["deep"]);
        assert!(!over.exists(old) && over.open(old, OpenMode::Read).is_err());
        over.remove(&new).unwrap();
        assert!(over.open(&new, OpenMode::ReadWrite).is_err());
        assert_eq!(disk.list(dir).unwrap(), ["old"]);
        assert_eq!(bytes(&*disk.open(old, OpenMode::Read).unwrap()), [7; 10_000]);
    }
}
