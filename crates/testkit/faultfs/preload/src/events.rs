//! Tells the test which faults struck.

use crate::control::path_in_env;
use crate::inside::die;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Adds a line to the file of events, where there is one.
pub(crate) fn note(fault: &str, path: &Path) {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let Some(file) = FILE.get_or_init(|| path_in_env("FAULTFS_EVENTS")) else { return };
    // One write, so that lines of several threads do not mix.
    let line = format!("{fault} {}\n", path.display());
    let written =
        OpenOptions::new().append(true).create(true).open(file).and_then(|mut to| to.write_all(line.as_bytes()));
    if let Err(e) = written {
        die(&format!("cannot note the event {fault}: {e}"));
    }
}
