//! Files below a data directory, opened without following symbolic links.
//!
//! A link in a data directory, or in one that is handed over as a backup, would have the process write where it leads. So what is
//! below one of the [`Roots`] is found from an open root: by `openat2` with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`, or, where the system does not have
//! that, name by name with `O_NOFOLLOW`. The way to a root itself may have links, and other file systems may be mounted below it.
//!
//! The last name of a path goes through the C library's functions, so that the fault injector sees what is opened, made, renamed and removed.

use crate::error::annotate;
use crate::sys;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// `openat2` is not there, or not allowed: nothing is asked of it again.
static WITHOUT_OPENAT2: AtomicBool = AtomicBool::new(false);

/// The directories below which no symbolic link is followed.
#[derive(Debug, Default)]
pub(super) struct Roots(Vec<PathBuf>);

/// A name in an open directory.
#[derive(Debug)]
pub(super) struct Place<'p> {
    dir: File,
    name: &'p OsStr,
}

impl Roots {
    pub(super) fn new(roots: &[&Path]) -> Roots {
        Roots(roots.iter().map(|root| root.to_path_buf()).collect())
    }

    /// The nearest root above a path, and the way from there; `None` for a root itself, and for what is below none.
    fn below<'p>(&self, path: &'p Path) -> Option<(&Path, &'p Path)> {
        let inside = |root: &PathBuf| path.strip_prefix(root).is_ok_and(|rest| !rest.as_os_str().is_empty());
        let root = self.0.iter().filter(|root| inside(root)).max_by_key(|root| root.components().count())?;
        Some((root, path.strip_prefix(root).ok()?))
    }

    /// Whether a path is below a root.
    pub(super) fn guard(&self, path: &Path) -> bool {
        self.below(path).is_some()
    }

    /// The root that a path is below.
    pub(super) fn above(&self, path: &Path) -> Option<&Path> {
        self.below(path).map(|(root, _)| root)
    }

    /// Where a path below a root is; `None` for one that is not.
    ///
    /// # Errors
    /// `ELOOP` when a directory on the way is a link, and what else the system says.
    pub(super) fn place<'p>(&self, path: &'p Path) -> io::Result<Option<Place<'p>>> {
        let Some((root, rest)) = self.below(path) else { return Ok(None) };
        let name = path.file_name().ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let above = rest.parent().unwrap_or(Path::new(""));
        Ok(Some(Place { dir: directory(&opened(root)?, above)?, name }))
    }

    /// Makes a directory below a root, and those above it where they are missing. The root is there.
    ///
    /// # Errors
    /// As [`Roots::place`].
    pub(super) fn make(&self, path: &Path, mode: u32) -> io::Result<()> {
        let Some((root, rest)) = self.below(path) else { return Ok(()) };
        let mut dir = opened(root)?;
        let mut names = names(rest).peekable();
        while let Some(name) = names.next() {
            let name = name?;
            let made = sys::make_dir_at(&dir, name, mode);
            dir = match (directory(&dir, Path::new(name)), made) {
                (_, Err(e)) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                // A file has the name of the directory that is wanted.
                (Err(no), Err(there)) if no.kind() == io::ErrorKind::NotADirectory && names.peek().is_none() => {
                    return Err(there);
                }
                (below, _) => below?,
            };
        }
        Ok(())
    }
}

impl Place<'_> {
    /// Opens the file. One that is a link is not followed.
    pub(super) fn open(&self, flags: i32, mode: u32) -> io::Result<File> {
        sys::open_at(&self.dir, self.name, flags | libc::O_NOFOLLOW, mode).map_err(on_error)
    }

    /// Whether there is anything of that name, be it a link.
    pub(super) fn exists(&self) -> bool {
        sys::open_at(&self.dir, self.name, libc::O_PATH | libc::O_NOFOLLOW, 0).is_ok()
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        sys::unlink_at(&self.dir, self.name)
    }

    pub(super) fn rename(&self, to: &Place<'_>) -> io::Result<()> {
        sys::rename_at((&self.dir, self.name), (&to.dir, to.name))
    }
}

fn opened(root: &Path) -> io::Result<File> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    // The standard library asks for an access that O_PATH does not look at.
    OpenOptions::new().read(true).custom_flags(flags).open(root)
}

/// The names of a way, none of which leads up.
fn names(path: &Path) -> impl Iterator<Item = io::Result<&OsStr>> {
    path.components().filter(|one| *one != Component::CurDir).map(|one| match one {
        Component::Normal(name) => Ok(name),
        _ => Err(io::Error::from_raw_os_error(libc::EXDEV)),
    })
}

/// The directory at the end of a way from another one.
fn directory(from: &File, path: &Path) -> io::Result<File> {
    if path.as_os_str().is_empty() {
        return from.try_clone();
    }
    if !WITHOUT_OPENAT2.load(Ordering::Relaxed) {
        match sys::open_dir_beneath(from, path.as_os_str()) {
            // Containers of before refuse calls that they do not know.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                WITHOUT_OPENAT2.store(true, Ordering::Relaxed);
            }
            found => return found.map_err(on_error),
        }
    }
    walk(from, path)
}

/// The same without `openat2`.
fn walk(from: &File, path: &Path) -> io::Result<File> {
    let mut dir = from.try_clone()?;
    for name in names(path) {
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        let next = sys::open_at(&dir, name?, flags, 0)?;
        if next.metadata()?.file_type().is_symlink() {
            return Err(on_error(io::Error::from_raw_os_error(libc::ELOOP)));
        }
        dir = next;
    }
    Ok(dir)
}

/// Says what the system's words do not.
fn on_error(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ELOOP) => annotate(
            error,
            "it is a symbolic link or below one, and a data directory's are not followed (mount what is elsewhere)"
                .to_owned(),
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let path = std::env::temp_dir().join(format!("polylogue-beneath-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(path.join("data/sub")).unwrap();
            std::fs::create_dir_all(path.join("outside")).unwrap();
            std::fs::write(path.join("outside/file"), "kept").unwrap();
            std::os::unix::fs::symlink(path.join("outside"), path.join("data/link")).unwrap();
            std::os::unix::fs::symlink("../outside/file", path.join("data/sub/file")).unwrap();
            Dir(path)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn errno<T>(result: io::Result<T>) -> Option<i32> {
        result.err().and_then(|e| crate::raw_os_error(&e))
    }

    #[test]
    fn the_nearest_root_counts_and_a_root_is_below_none() {
        let roots = Roots::new(&[Path::new("/a"), Path::new("/a/b/c"), Path::new("./d")]);
        assert_eq!(roots.below(Path::new("/a/b/x")), Some((Path::new("/a"), Path::new("b/x"))));
        assert_eq!(roots.below(Path::new("/a/b/c/x")), Some((Path::new("/a/b/c"), Path::new("x"))));
        assert!(roots.guard(Path::new("./d/x")) && roots.guard(Path::new("/a/b/c")));
        assert!(!roots.guard(Path::new("/a")) && !roots.guard(Path::new("/ab")) && !roots.guard(Path::new("d/x")));
    }

    /// Both ways are held to the same, whatever this system has.
    #[test]
    fn no_link_is_followed_on_the_way_by_either_way() {
        let dir = Dir::new("ways");
        let root = opened(&dir.0.join("data")).unwrap();
        type Way = fn(&File, &Path) -> io::Result<File>;
        let by_openat2: Way = |from, path| match sys::open_dir_beneath(from, path.as_os_str()) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => walk(from, path),
            found => found.map_err(on_error),
        };
        for way in [by_openat2, walk as Way] {
            assert!(way(&root, Path::new("sub")).is_ok() && way(&root, Path::new("./sub/.")).is_ok());
            assert_eq!(errno(way(&root, Path::new("link"))), Some(libc::ELOOP));
            assert_eq!(errno(way(&root, Path::new("link/below"))), Some(libc::ELOOP));
            assert_eq!(errno(way(&root, Path::new("../outside"))), Some(libc::EXDEV));
            assert_eq!(errno(way(&root, Path::new("none"))), Some(libc::ENOENT));
        }
    }
}
