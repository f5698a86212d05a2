//! Directories for one test.

use crate::Result;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed with what is in it, unless the test fails: then it stays, and its path is shown.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Makes a new one in `base` (a test's `CARGO_TARGET_TMPDIR`), whose name begins with `name`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(base: &str, name: &str) -> Result<TempDir> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(base).join(format!("{name}-{}-{number}", std::process::id()));
        // One of an earlier process with the same number, which failed.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        Ok(TempDir { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of something in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("left for you to look at: {}", self.path.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
