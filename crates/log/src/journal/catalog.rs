//! Where every index is: in which file, at which position. In memory only, rebuilt at each start; as large as the live
//! files have frames (four bytes each).

use super::config::SealedFile;
use super::file::LiveFile;
use polylogue_types::limits::FRAME_ALIGN_BYTES;
use polylogue_types::{Index, Term};
use std::collections::VecDeque;
use std::sync::Arc;

/// In the place of a position: the frame was passed over, because it is damaged. Files are far too short to have it.
const NO_POSITION: u32 = u32::MAX;

/// One file and the frames in it that count.
#[derive(Debug)]
pub(crate) struct FileEntry {
    pub(crate) live: Arc<LiveFile>,
    /// The index at `positions[0]`.
    first: u64,
    /// Positions of the frames with an index, in units of 64 bytes; `NO_POSITION` for one that is missing.
    positions: Vec<u32>,
    /// The highest index that was ever in the file, truncated ones included: it decides when the file may go.
    highest: Option<u64>,
    /// After the last frame.
    pub(crate) end: u64,
    pub(crate) sealed: bool,
    /// It holds damage that was passed over.
    pub(crate) damaged: bool,
}

/// A frame with an index, found.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) live: Arc<LiveFile>,
    pub(crate) position: u64,
    /// The frame ends here at the latest.
    pub(crate) bound: u64,
}

/// All files of the log, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    files: VecDeque<FileEntry>,
    /// The first index that may be read.
    pub(crate) first: u64,
    /// The index after the last.
    pub(crate) next: u64,
    /// Index from which on each term holds; ascending.
    terms: Vec<(u64, Term)>,
}

impl Catalog {
    /// An empty log whose first frame will have index `next`.
    pub(crate) fn new(next: Index) -> Catalog {
        Catalog { first: next.0, next: next.0, ..Catalog::default() }
    }

    /// A file begins; the one before is sealed.
    pub(crate) fn begin_file(&mut self, live: Arc<LiveFile>, end: u64) {
        if let Some(before) = self.files.back_mut() {
            before.sealed = true;
        }
        self.files.push_back(FileEntry {
            live,
            first: self.next,
            positions: Vec::new(),
            highest: None,
            end,
            sealed: false,
            damaged: false,
        });
    }

    /// A frame with the next index stands at `position` of the last file, and ends at `end`.
    pub(crate) fn push(&mut self, term: Term, position: u64, end: u64) {
        let index = self.next;
        if let Some(file) = self.files.back_mut() {
            if file.positions.is_empty() {
                file.first = index;
            }
            // A position fits: files are far below 2^38 bytes.
            file.positions.push((position / FRAME_ALIGN_BYTES) as u32);
            file.highest = Some(file.highest.map_or(index, |h| h.max(index)));
            file.end = end;
        }
        if self.terms.last().is_none_or(|(_, last)| *last != term) {
            self.terms.push((index, term));
        }
        self.next += 1;
    }

    /// The frames of the last file up to before index `next` are missing.
    pub(crate) fn skip(&mut self, next: Index) {
        let Some(missing) = next.0.checked_sub(self.next).filter(|missing| *missing > 0) else { return };
        if let Some(file) = self.files.back_mut() {
            if file.positions.is_empty() {
                file.first = self.next;
            }
            let len = file.positions.len() + usize::try_from(missing).unwrap_or(usize::MAX);
            file.positions.resize(len, NO_POSITION);
            file.highest = file.highest.max(next.0.checked_sub(1));
        }
        self.next = next.0;
    }

    /// The last file holds damage that was passed over.
    pub(crate) fn mark_damaged(&mut self) {
        if let Some(file) = self.files.back_mut() {
            file.damaged = true;
        }
    }

    /// A local frame ends at `end` of the last file.
    pub(crate) fn push_local(&mut self, end: u64) {
        if let Some(file) = self.files.back_mut() {
            file.end = end;
        }
    }

    /// What is at `next` or above is void.
    pub(crate) fn truncate(&mut self, next: Index) {
        for file in self.files.iter_mut().rev() {
            if file.first + (file.positions.len() as u64) <= next.0 {
                break;
            }
            file.positions.truncate(usize::try_from(next.0.saturating_sub(file.first)).unwrap_or(usize::MAX));
        }
        self.next = self.next.min(next.0);
        self.first = self.first.min(self.next);
        self.terms.retain(|(from, _)| *from < next.0);
    }

    /// Frames of the last file from index `next` on were not written after all; the file ends at `end`.
    pub(crate) fn take_back(&mut self, next: Index, end: u64) {
        self.truncate(next);
        self.push_local(end);
    }

    /// What is at `index` or below can no longer be read. The log goes on at `index + 1` if it ended before.
    pub(crate) fn purge(&mut self, index: Index, term: Term) {
        self.first = self.first.max(index.0 + 1);
        if self.next <= index.0 {
            self.next = index.0 + 1;
            self.terms.clear();
            // The last file may go on, with an index that does not follow from those before it in the file.
            if let Some(file) = self.files.back_mut() {
                file.positions.clear();
            }
        }
        let covered = self.terms.partition_point(|(from, _)| *from <= index.0);
        self.terms.drain(..covered.saturating_sub(1));
        // What is known of the term may come from an earlier purge: right after a start, files in between are gone.
        match self.terms.first_mut() {
            Some(first) if first.0 <= index.0 => *first = (index.0, term),
            _ => self.terms.insert(0, (index.0, term)),
        }
    }

    /// The term of an index that is there, or of the last one that was purged.
    pub(crate) fn term_of(&self, index: Index) -> Option<Term> {
        if index.0 >= self.next {
            return None;
        }
        let after = self.terms.partition_point(|(from, _)| *from <= index.0);
        after.checked_sub(1).and_then(|i| self.terms.get(i)).map(|(_, term)| *term)
    }

    /// Where the frame with this index is; `None` for one that is missing, too.
    pub(crate) fn locate(&self, index: Index) -> Option<Located> {
        if index.0 < self.first || index.0 >= self.next {
            return None;
        }
        for file in self.files.iter().rev() {
            let Some(i) = index.0.checked_sub(file.first) else { continue };
            let Some(at) = usize::try_from(i).ok().and_then(|i| file.positions.get(i)) else { continue };
            if *at == NO_POSITION {
                return None;
            }
            let behind = usize::try_from(i + 1).ok().and_then(|i| file.positions.get(i..));
            let after = behind.and_then(|p| p.iter().find(|p| **p != NO_POSITION));
            let bound = after.map_or(file.end, |p| u64::from(*p) * FRAME_ALIGN_BYTES);
            let position = u64::from(*at) * FRAME_ALIGN_BYTES;
            return Some(Located { live: file.live.clone(), position, bound });
        }
        None
    }

    /// Local frames at the end of the last file are gone; if it is the one named, it ends at `end`.
    pub(crate) fn cut_last(&mut self, sequence: u64, end: u64) {
        if let Some(file) = self.files.back_mut().filter(|f| f.live.sequence == sequence) {
            file.end = end;
        }
    }

    /// A file was made shorter, behind its last frame. For those that have no readers yet.
    pub(crate) fn shorten(&mut self, sequence: u64, capacity: u64) {
        if let Some(file) = self.files.iter_mut().find(|f| f.live.sequence == sequence) {
            file.live = Arc::new(file.live.with_capacity(capacity));
        }
    }

    /// All files with where their frames end, oldest first.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Arc<LiveFile>, u64)> {
        self.files.iter().map(|f| (&f.live, f.end))
    }

    /// Seals the last file, so that the next frame begins a new one.
    pub(crate) fn seal_last(&mut self) {
        if let Some(file) = self.files.back_mut() {
            file.sealed = true;
        }
    }

    /// The sealed files, oldest first. The last file is never one of them: right after a start it takes no more frames,
    /// but nothing follows it yet.
    pub(crate) fn sealed_files(&self) -> Vec<SealedFile> {
        let all = self.files.len().saturating_sub(1);
        self.files.iter().take(all).filter(|f| f.sealed).map(FileEntry::describe).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Takes out the oldest file if it is sealed and holds nothing above `upto`. `newest` is the newest file whose header
    /// is durable: until there is a newer one than the oldest, the log would seem to be empty at the next start.
    pub(crate) fn pop_covered(&mut self, upto: Index, newest: u64) -> Option<FileEntry> {
        let covered = |f: &FileEntry| f.sealed && f.live.sequence < newest && f.highest.is_none_or(|h| h <= upto.0);
        if self.files.front().is_some_and(covered) { self.files.pop_front() } else { None }
    }

    /// Takes out a sealed file when all older ones hold nothing above `released`. `Err` says whether it is there at all.
    pub(crate) fn adopt(&mut self, sequence: u64, released: Option<Index>) -> Result<FileEntry, bool> {
        let found = self.files.iter().position(|f| f.live.sequence == sequence && f.sealed);
        let i = found.filter(|i| i + 1 < self.files.len()).ok_or(false)?;
        let covered = |f: &FileEntry| f.highest.is_none_or(|h| released.is_some_and(|r| h <= r.0));
        if !self.files.iter().take(i).all(covered) {
            return Err(true);
        }
        let entry = self.files.remove(i).ok_or(false)?;
        if let Some(h) = entry.highest {
            self.first = self.first.max(h + 1).min(self.next);
        }
        Ok(entry)
    }
}

impl FileEntry {
    pub(crate) fn describe(&self) -> SealedFile {
        let last = self.positions.len().checked_sub(1).map(|n| self.first + n as u64);
        SealedFile {
            sequence: self.live.sequence,
            indexes: last.map(|last| (Index(self.first), Index(last))),
            end: self.end,
        }
    }
}
