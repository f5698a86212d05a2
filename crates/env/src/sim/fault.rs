//! What can be made to go wrong, and when.

use super::rng::SimRng;
use std::path::{Path, PathBuf};

/// An operation of the disk, as far as faults and counters tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FaultOp {
    /// Opening with `CreateNew`, making a directory, making a lock file.
    Create,
    /// `write_all_at`.
    Write,
    /// `allocate`.
    Allocate,
    /// `set_len`.
    SetLen,
    /// `punch`.
    Punch,
    /// `read_exact_at`.
    Read,
    /// `sync_data`.
    SyncData,
    /// `sync_dir`.
    SyncDir,
    /// `rename`.
    Rename,
    /// `remove`.
    Remove,
    /// Any of the above but `Read`. Only in a [`Fault`]: it counts them all together.
    AnyChange,
}

impl FaultOp {
    fn covers(self, op: FaultOp) -> bool {
        self == op || (self == FaultOp::AnyChange && op != FaultOp::Read)
    }
}

/// How it goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// `StorageFull` (ENOSPC). A write leaves a part of its bytes behind; nothing else changes anything.
    NoSpace,
    /// EIO. A write leaves a part of its bytes behind. A failed flush behaves as Linux does: a part of what was
    /// pending reaches the disk, the rest never will, though it goes on being read until the crash, and the next
    /// flush succeeds without it.
    Io,
    /// A flush (of a file or directory) that says yes and does nothing: what was pending stays pending. Other
    /// operations are not affected.
    Lie,
    /// The power goes during the operation: it may have been done in part, it returns an error, and so does
    /// everything after it until [`super::SimDisk::crash`].
    PowerCut,
}

/// When it goes wrong. Operations are counted from the moment of the injection, only those that the fault covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When {
    Nth(u64),
    From(u64),
    Chance(u32),
}

/// A rule for [`super::SimDisk::inject`].
#[derive(Clone, Debug)]
pub struct Fault {
    op: FaultOp,
    kind: FaultKind,
    when: When,
    under: Option<PathBuf>,
    seen: u64,
}

impl Fault {
    fn new(op: FaultOp, kind: FaultKind, when: When) -> Fault {
        Fault { op, kind, when, under: None, seen: 0 }
    }

    /// Strikes once, at the `n`th operation from now on (1 is the next).
    #[must_use]
    pub fn nth(op: FaultOp, n: u64, kind: FaultKind) -> Fault {
        Fault::new(op, kind, When::Nth(n))
    }

    /// Strikes at the `n`th operation from now on and at all after it.
    #[must_use]
    pub fn from(op: FaultOp, n: u64, kind: FaultKind) -> Fault {
        Fault::new(op, kind, When::From(n))
    }

    /// Strikes each time with a chance of `per_million`.
    #[must_use]
    pub fn chance(op: FaultOp, per_million: u32, kind: FaultKind) -> Fault {
        Fault::new(op, kind, When::Chance(per_million))
    }

    /// Only for this file, or for everything below this directory. A file goes by the path it was opened with.
    #[must_use]
    pub fn under(mut self, path: impl AsRef<Path>) -> Fault {
        self.under = Some(path.as_ref().to_owned());
        self
    }

    /// Counts the operation and says whether the fault strikes.
    fn strikes(&mut self, op: FaultOp, path: &Path, rng: &SimRng) -> bool {
        let elsewhere = self.under.as_ref().is_some_and(|under| !path.starts_with(under));
        if !self.op.covers(op) || elsewhere {
            return false;
        }
        self.seen += 1;
        match self.when {
            When::Nth(n) => self.seen == n,
            When::From(n) => self.seen >= n,
            When::Chance(per_million) => rng.chance(per_million),
        }
    }

    fn is_spent(&self) -> bool {
        matches!(self.when, When::Nth(n) if self.seen >= n)
    }
}

/// The rules in force.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    rules: Vec<Fault>,
}

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.rules.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    /// Every rule counts the operation; the first that strikes decides.
    pub(super) fn strike(&mut self, op: FaultOp, path: &Path, rng: &SimRng) -> Option<FaultKind> {
        let mut struck = None;
        for rule in &mut self.rules {
            if rule.strikes(op, path, rng) && struck.is_none() {
                struck = Some(rule.kind);
            }
        }
        self.rules.retain(|rule| !rule.is_spent());
        struck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(fault: Fault, ops: &[(FaultOp, &str)]) -> Vec<bool> {
        let (mut faults, rng) = (Faults::default(), SimRng::new(1));
        faults.add(fault);
        ops.iter().map(|(op, path)| faults.strike(*op, Path::new(path), &rng).is_some()).collect()
    }

    #[test]
    fn nth_strikes_once_and_from_for_ever() {
        let writes = [(FaultOp::Write, "/a"); 4];
        assert_eq!(run(Fault::nth(FaultOp::Write, 2, FaultKind::Io), &writes), [false, true, false, false]);
        assert_eq!(run(Fault::from(FaultOp::Write, 3, FaultKind::Io), &writes), [false, false, true, true]);
    }

    #[test]
    fn only_what_is_covered_is_counted() {
        let mixed = [
            (FaultOp::Read, "/a/x"),
            (FaultOp::Rename, "/b/x"),
            (FaultOp::SyncData, "/a/x"),
            (FaultOp::Write, "/ab"),
            (FaultOp::Write, "/a"),
        ];
        let fault = Fault::nth(FaultOp::AnyChange, 2, FaultKind::PowerCut).under("/a");
        assert_eq!(run(fault, &mixed), [false, false, false, false, true]);
    }

    #[test]
    fn a_chance_strikes_about_that_often() {
        let writes = [(FaultOp::Write, "/a"); 1000];
        let hits = run(Fault::chance(FaultOp::Write, 250_000, FaultKind::Io), &writes);
        let hits = hits.iter().filter(|hit| **hit).count();
        assert!((200..300).contains(&hits), "{hits}");
    }
}
