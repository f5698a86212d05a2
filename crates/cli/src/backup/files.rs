//! Writes a data directory, for a backup or a restore.
//!
//! Files are flushed one by one, then the directories. The identity file is always last: a broker refuses an incomplete
//! directory.

use polylogue_env::{DiskFile, Env, OpenMode};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size of one read and write. Bytes.
pub(crate) const PIECE_BYTES: usize = 1 << 20;
/// The file that identifies a data directory.
pub(crate) const IDENTITY: &str = "IDENTITY";
/// Runs of zeros of this length are not written, so that the copy is as sparse as the original. Bytes.
const HOLE_BYTES: usize = 64 << 10;

/// A directory being written.
#[derive(Debug)]
pub(crate) struct NewDir {
    env: Env,
    path: PathBuf,
    /// Directories that were created or got a file.
    dirs: BTreeSet<PathBuf>,
}

/// A file being written.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: Arc<dyn DiskFile>,
    len: u64,
}

impl NewDir {
    /// Creates the directory; it may exist.
    pub(crate) fn make(env: &Env, path: &Path) -> io::Result<NewDir> {
        env.disk.create_dir_all(path)?;
        Ok(NewDir { env: env.clone(), path: path.to_owned(), dirs: BTreeSet::from([path.to_owned()]) })
    }

    /// Starts a file; its name has `/` between directories. The identity file marks the directory as complete: before it is created, all
    /// names so far are made durable.
    pub(crate) fn file(&mut self, name: &str, len: u64) -> io::Result<NewFile> {
        if name == IDENTITY {
            self.sync()?;
        }
        let path = self.path.join(name);
        let above = path.ancestors().skip(1).take_while(|dir| dir.starts_with(&self.path));
        let missing: Vec<PathBuf> = above.filter(|dir| !self.dirs.contains(*dir)).map(Path::to_owned).collect();
        if let Some(deepest) = missing.first() {
            self.env.disk.create_dir_all(deepest)?;
        }
        self.dirs.extend(missing);
        Ok(NewFile { file: self.env.disk.open(&path, OpenMode::CreateNew)?, len })
    }

    /// Makes all names durable.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.sync()?;
        self.env.disk.sync_dir(&parent_of(&self.path))
    }
}

impl NewDir {
    fn sync(&self) -> io::Result<()> {
        self.dirs.iter().try_for_each(|dir| self.env.disk.sync_dir(dir))
    }
}

impl NewFile {
    /// Writes a piece.
    pub(crate) fn write(&self, piece: &[u8], position: u64) -> io::Result<()> {
        let mut at = position;
        for part in piece.chunks(HOLE_BYTES) {
            if part.len() < HOLE_BYTES || part.iter().any(|b| *b != 0) {
                self.file.write_all_at(part, at)?;
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Flushes it.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.file.set_len(self.len)?;
        self.file.sync_data()
    }
}

/// Returns a path's parent directory.
pub(crate) fn parent_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) => PathBuf::from("."),
        None => path.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use polylogue_env::Disk;
    use polylogue_env::sim::SimWorld;

    /// Regression test: file names became durable after the identity file, so that a power failure could leave it without the rest.
    #[test]
    fn a_power_cut_never_leaves_the_mark_without_the_rest() {
        let mut marked = 0;
        for seed in 0..64 {
            let world = SimWorld::new(seed);
            let (env, to) = (world.env(), Path::new("/data"));
            let mut dir = NewDir::make(&env, to).unwrap();
            let names = ["shard-0000/manifest", "shard-0000/journal/1.plj", IDENTITY];
            for name in names {
                let file = dir.file(name, 3).unwrap();
                file.write(b"abc", 0).unwrap();
                file.finish().unwrap();
            }
            drop((dir, env));
            world.crash();
            if world.disk.exists(&to.join(IDENTITY)) {
                marked += 1;
                assert!(names.iter().all(|name| world.disk.exists(&to.join(name))), "seed {seed}");
            }
        }
        assert!(marked > 0);
    }
}
