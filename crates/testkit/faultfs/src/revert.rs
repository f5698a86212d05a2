//! The power cut itself.

use crate::record::read_log;
use crate::{data, names};
use polylogue_env::Rng;
use polylogue_env::sim::SimRng;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How much goes with the power.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Power {
    /// What the seed says: sometimes everything that was not flushed, sometimes nothing, mostly some of it.
    Cut {
        /// The same seed on the same log gives the same result.
        seed: u64,
    },
    /// Everything that was not flushed.
    CutLosingAll,
}

/// What was done. Sectors have 512 bytes and count once for each write that touched them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Files with changes that no flush had covered.
    pub files_pending: u64,
    /// Sectors of unflushed writes that were left as written.
    pub sectors_kept: u64,
    /// Those that were put back.
    pub sectors_lost: u64,
    /// Unflushed creations, renames and removals that were left.
    pub names_kept: u64,
    /// Those that were undone.
    pub names_lost: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    LoseAll,
    KeepAll,
    /// The oldest changes survive.
    Oldest,
    /// Each on its own.
    Any,
}

/// Dice that do not depend on the order of the questions.
pub(crate) struct Dice {
    pub(crate) style: Style,
    seed: u64,
}

impl Dice {
    fn new(power: Power, whose: u64) -> Dice {
        let Power::Cut { seed } = power else { return Dice { style: Style::LoseAll, seed: 0 } };
        // One in four cuts is of one kind throughout.
        let all = SimRng::new(seed).below(8);
        let own = SimRng::new(seed ^ (whose + 1).wrapping_mul(0xd6e8_feb8_6659_fd93));
        let style = match (all, own.below(8)) {
            (0, _) | (2.., 0) => Style::LoseAll,
            (1, _) | (2.., 1) => Style::KeepAll,
            (_, 2..=4) => Style::Oldest,
            _ => Style::Any,
        };
        Dice { style, seed: own.next_u64() }
    }

    /// A number below `sides`, the same each time it is asked for.
    pub(crate) fn below(&self, question: u64, sides: u64) -> u64 {
        SimRng::new(self.seed ^ question.wrapping_mul(0xd6e8_feb8_6659_fd93)).below(sides)
    }
}

/// The directory beside the log in which files stay that lost a name.
#[must_use]
pub fn kept_dir(log: &Path) -> PathBuf {
    let mut name = OsString::from(log);
    name.push(".kept");
    name.into()
}

/// Where the file with that inode number stays in `kept`.
pub(crate) fn kept_link(kept: &Path, ino: u64) -> PathBuf {
    kept.join(ino.to_string())
}

/// Puts `dir` back to what a power cut would have left, and removes the log. The process that wrote the log must
/// have ended.
///
/// # Errors
/// What the system says; then the directory is in no defined state, and the log is still there.
#[allow(clippy::disallowed_methods, reason = "this tool works on the real directory behind the broker's back")]
pub fn revert(log: &Path, dir: &Path, power: Power) -> io::Result<Report> {
    let kept = kept_dir(log);
    let (records, _) = read_log(log)?;
    let mut report = Report::default();
    let mut files = BTreeMap::new();
    for place in [dir, &kept] {
        if place.is_dir() {
            find_files(place, &mut files)?;
        }
    }
    for (nth, (ino, ops)) in data::pending(&records).into_iter().enumerate() {
        // A file without a name, kept or other, was never seen by a flushed directory.
        if let Some(path) = files.get(&ino) {
            report.files_pending += 1;
            let file = OpenOptions::new().write(true).open(path)?;
            // Not by its number: that would make the result depend on the file system's history.
            data::undo(&file, &ops, &Dice::new(power, nth as u64 + 1), &mut report)?;
        }
    }
    names::undo(&names::pending(&records), &Dice::new(power, 0), &kept, &mut report)?;
    if kept.is_dir() {
        std::fs::remove_dir_all(kept)?;
    }
    match std::fs::remove_file(log) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(report),
    }
}

/// Inode numbers of all files below a directory, each with one of its names.
fn find_files(dir: &Path, into: &mut BTreeMap<u64, PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let found = entry.metadata()?;
        if found.is_dir() {
            find_files(&entry.path(), into)?;
        } else if found.is_file() {
            into.insert(found.ino(), entry.path());
        }
    }
    Ok(())
}
