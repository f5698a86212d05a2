//! Bringing the journal files of a merge into memory, where their runs are short.
//!
//! ```text
//!   journal   | a b c d | a b c d | a b c d | ...      a merge wants all of a, then all of b, ...
//!               ──────────────────────────────>        so it first reads all of it in its order, into the page cache,
//!               a       a       a                      and then each run from there
//! ```
//!
//! Asked from the disk one by one, runs of 16 KiB take most of the processor time of a merge. What the system has dropped meanwhile is read past
//! the page cache. After a merge the pages are given up: the files are overwritten past the page cache. Those of a file that becomes a segment
//! as it is stay, for the readers that come next.

use crate::store::frames::{Frames, JournalFile};
use crate::store::prefetch::RANGE_RUN_BYTES_MIN;
use polylogue_types::{FileRange, Index};
use std::collections::VecDeque;
use std::sync::Arc;

/// What is brought into memory in one step. Bytes.
const STEP_BYTES: u32 = 1 << 20;
/// A file of which less than this part is still wanted is not brought into memory.
const WANTED_PART: u64 = 4;

/// What is to be brought into memory, and what was.
#[derive(Debug, Default)]
pub(super) struct Preload {
    left: VecDeque<FileRange>,
    done: Vec<FileRange>,
    stays: bool,
}

impl Preload {
    /// Of the files up to a frame those that pay, the oldest first, at most so many bytes of them.
    pub(super) fn upto(frames: &Frames, upto: Index, bytes_max: u64) -> Preload {
        Preload::of(frames.files().take_while(|file| file.last <= upto), bytes_max)
    }

    /// A file that becomes a segment as it is.
    pub(super) fn in_place(frames: &Frames, sequence: u64, bytes_max: u64) -> Preload {
        let file = frames.files().filter(|file| file.sequence == sequence);
        let mut preload = Preload::of(file, bytes_max);
        preload.stays = true;
        preload
    }

    fn of<'a>(files: impl Iterator<Item = &'a JournalFile>, bytes_max: u64) -> Preload {
        let mut preload = Preload::default();
        let mut bytes = 0;
        for file in files {
            let short = file.live_bytes < file.live_runs.saturating_mul(u64::from(RANGE_RUN_BYTES_MIN));
            let pays = short && file.live_bytes.saturating_mul(WANTED_PART) >= file.end;
            let Some(len) = u32::try_from(file.end).ok().filter(|_| pays) else { continue };
            bytes += file.end;
            if bytes > bytes_max {
                break;
            }
            preload.left.push_back(FileRange { source: file.source.clone(), position: 0, len });
        }
        preload
    }

    /// Fetches the next piece that is not in memory: how many bytes it has; `None` when all is there. What cannot be read is met by the merge
    /// itself.
    pub(super) fn step(&mut self) -> Option<u64> {
        loop {
            let piece = self.next()?;
            let is_there = piece.source.is_in_memory(piece.position, piece.len);
            if !is_there {
                let _ = piece.source.fetch(piece.position, piece.len);
            }
            let len = piece.len;
            match self.done.last_mut().filter(|last| Arc::ptr_eq(&last.source, &piece.source)) {
                Some(last) => last.len += len,
                None => self.done.push(piece),
            }
            if !is_there {
                return Some(u64::from(len));
            }
        }
    }

    fn next(&mut self) -> Option<FileRange> {
        let range = self.left.front_mut()?;
        let len = range.len.min(STEP_BYTES);
        let piece = FileRange { len, ..range.clone() };
        (range.position, range.len) = (range.position + u64::from(len), range.len - len);
        if range.len == 0 {
            self.left.pop_front();
        }
        Some(piece)
    }
}

impl Drop for Preload {
    fn drop(&mut self) {
        if !self.stays {
            self.done.iter().for_each(|range| range.source.forget(range.position, range.len));
        }
    }
}
