//! Undoing creations, renames and removals.

use crate::record::Record;
use crate::revert::{Dice, Report, Style, kept_link};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

impl Record {
    /// The names that a change of names gives another meaning.
    fn names(&self) -> Vec<&Path> {
        match self {
            Record::Create { path, .. } | Record::MakeDir { path } | Record::Remove { path, .. } => vec![path],
            Record::Rename { from, to, .. } => vec![to, from],
            _ => vec![],
        }
    }

    /// The directory whose flush makes it durable: for a rename that of the new name.
    fn flushed_with(&self) -> Option<&Path> {
        self.names().first().and_then(|name| name.parent())
    }
}

/// The changes of names that no directory flush has covered, oldest first. A flush covers its directory's changes,
/// and whatever touched one of their names before them.
pub(crate) fn pending(records: &[(u64, Record)]) -> Vec<&Record> {
    let mut pending: Vec<(u64, &Record)> = Vec::new();
    for (at, record) in records {
        if let Record::DirFlushed { path, upto } = record {
            let mut names: BTreeSet<&Path> = BTreeSet::new();
            let mut rest: Vec<(u64, &Record)> = Vec::new();
            for (at, op) in pending.into_iter().rev() {
                let own = at < *upto && op.flushed_with() == Some(path.as_path());
                if own || op.names().iter().any(|name| names.contains(name)) {
                    names.extend(op.names());
                } else {
                    rest.push((at, op));
                }
            }
            rest.reverse();
            pending = rest;
        } else if !record.names().is_empty() {
            pending.push((*at, record));
        }
    }
    pending.into_iter().map(|(_, record)| record).collect()
}

/// Undoes the changes that did not survive, newest first. A change survives only with those that touched its names
/// before.
pub(crate) fn undo(pending: &[&Record], dice: &Dice, kept: &Path, report: &mut Report) -> io::Result<()> {
    let mut lost_names: BTreeSet<&Path> = BTreeSet::new();
    let mut lost: Vec<&Record> = Vec::new();
    let edge = dice.below(1, pending.len() as u64 + 1) as usize;
    for (index, op) in pending.iter().enumerate() {
        let wanted = match dice.style {
            Style::LoseAll => false,
            Style::KeepAll => true,
            Style::Oldest => index < edge,
            Style::Any => dice.below(2 + index as u64, 2) == 0,
        };
        if wanted && !op.names().iter().any(|name| lost_names.contains(name)) {
            report.names_kept += 1;
        } else {
            report.names_lost += 1;
            lost_names.extend(op.names());
            lost.push(op);
        }
    }
    lost.iter().rev().try_for_each(|op| undo_one(op, kept))
}

/// The inode number behind a name, 0 for none.
fn ino_of(path: &Path) -> io::Result<u64> {
    match std::fs::symlink_metadata(path) {
        Ok(found) => Ok(found.ino()),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(0),
        Err(e) => Err(e),
    }
}

#[allow(clippy::disallowed_methods, reason = "this tool works on the real directory behind the broker's back")]
fn undo_one(op: &Record, kept: &Path) -> io::Result<()> {
    match op {
        Record::Create { path, .. } => std::fs::remove_file(path),
        Record::MakeDir { path } => std::fs::remove_dir_all(path),
        // The kill may have come between the record and the change.
        Record::Remove { path, ino } if ino_of(path)? == 0 => put_back(*ino, path, kept),
        Record::Rename { from, to, ino, replaced } if ino_of(to)? == *ino => {
            std::fs::rename(to, from)?;
            if *replaced == 0 { Ok(()) } else { put_back(*replaced, to, kept) }
        }
        _ => Ok(()),
    }
}

fn put_back(ino: u64, path: &PathBuf, kept: &Path) -> io::Result<()> {
    std::fs::hard_link(kept_link(kept, ino), path)
}
