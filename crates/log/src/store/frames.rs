//! The committed frames that no segment holds yet: where each stands in its journal file, and the newest of them in memory.
//!
//! ```text
//!            files     [ sealed 7 ][ sealed 8 ][ active 9 ...            handles, held until a merge releases them
//!            frames    f f f f f f f f f f f f f f f f f              24 bytes each
//!            tail                            F F F F F F             Arc<Frame>, a ring bounded in bytes
//! ```
//!
//! The ring has two bounds. It holds the lower one, and up to the upper one as much as a reader was behind lately. So it does not
//! grow for what nothing reads.
//!
//! Frames are numbered from the start of the process; a run keeps the lowest 32 bits of the number. The tail is always
//! the newest part of the frames, so that a number says at once whether its frame is in memory.

use crate::error::{Error, ErrorKind, Result};
use crate::frame::codec::{self, HEADERS_BYTES, Parsed};
use crate::frame::header::{LOCAL_BYTES, LocalHeader, ReplicatedHeader, u32_at};
use crate::frame::{EntryRef, Frame};
use bytes::Bytes;
use polylogue_types::{FileRange, Index, PartitionId, RangeSource, TimestampMs};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The file number of a frame that is in memory only (a shard of class `memory`).
const NO_FILE: u32 = u32::MAX;

/// The position of a frame in its journal file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameSlot {
    pub(super) index: Index,
    /// Position of its first byte in the file.
    pub(super) position: u64,
    pub(super) len: u32,
    /// Counts journal files from the start of the process.
    file: u32,
}

/// A journal file that holds runs.
#[derive(Clone, Debug)]
pub(super) struct JournalFile {
    pub(super) sequence: u64,
    pub(super) source: Arc<dyn RangeSource>,
    /// Bytes of the files before it, since the start.
    pub(super) before: u64,
    /// Where the last frame with entries ends.
    pub(super) end: u64,
    /// The last frame with entries.
    pub(super) last: Index,
    pub(super) last_time: TimestampMs,
    /// Live runs.
    pub(super) live_runs: u64,
    pub(super) live_bytes: u64,
    /// How often a run was of another partition than the one before it.
    pub(super) stretches: u64,
    last_partition: Option<PartitionId>,
    /// Runs that share their bytes with others: they cannot be given back one by one.
    pub(super) shared: bool,
}

impl JournalFile {
    /// Counts a live run.
    pub(super) fn add_run(&mut self, partition: PartitionId, bytes: u64) {
        self.live_runs += 1;
        self.live_bytes += bytes;
        self.stretches += u64::from(self.last_partition.replace(partition) != Some(partition));
    }
}

/// The frames since the last merge.
#[derive(Debug)]
pub(super) struct Frames {
    slots: VecDeque<FrameSlot>,
    first_slot: u32,
    files: VecDeque<JournalFile>,
    first_file: u32,
    /// Bytes of the files before the last one, since the start.
    files_bytes: u64,
    tail: VecDeque<Arc<Frame>>,
    first_tail: u32,
    tail_bytes: usize,
    tail_bytes_min: usize,
    tail_bytes_max: usize,
    /// How far from the end a reader was at the most, since the last turn, and between that and the turn before. Bytes.
    behind: AtomicU64,
    behind_before: u64,
}

/// Memory of a frame in the tail. Bytes.
fn weight(frame: &Frame) -> usize {
    size_of::<Frame>() + frame.bytes.len() + frame.entries.capacity() * size_of::<EntryRef>()
}

impl Frames {
    pub(super) fn new(tail_bytes: usize) -> Frames {
        Frames {
            slots: VecDeque::new(),
            first_slot: 0,
            files: VecDeque::new(),
            first_file: 0,
            files_bytes: 0,
            tail: VecDeque::new(),
            first_tail: 0,
            tail_bytes: 0,
            tail_bytes_min: tail_bytes,
            tail_bytes_max: tail_bytes,
            behind: AtomicU64::new(0),
            behind_before: 0,
        }
    }

    /// Adds a frame and returns its number, and the frames evicted from the tail that are in no file: they are lost.
    pub(super) fn push(&mut self, frame: &Arc<Frame>, shared: bool) -> (u32, Vec<Arc<Frame>>) {
        let number = self.first_slot.wrapping_add(self.slots.len() as u32);
        let slot = match &frame.place {
            None => FrameSlot { index: frame.index, position: 0, len: frame.bytes.len() as u32, file: NO_FILE },
            Some(place) => {
                if self.files.back().is_none_or(|f| f.sequence != place.file_sequence) {
                    self.files_bytes += self.files.back().map_or(0, |file| file.end);
                    self.files.push_back(JournalFile {
                        sequence: place.file_sequence,
                        source: place.file.clone(),
                        before: self.files_bytes,
                        end: 0,
                        last: frame.index,
                        last_time: frame.time_ms,
                        live_runs: 0,
                        live_bytes: 0,
                        stretches: 0,
                        last_partition: None,
                        shared: false,
                    });
                }
                let file = self.first_file.wrapping_add(self.files.len() as u32 - 1);
                if let Some(f) = self.files.back_mut() {
                    (f.last, f.last_time, f.shared) = (frame.index, frame.time_ms, f.shared || shared);
                    f.end = place.position + u64::from(place.len);
                }
                FrameSlot { index: frame.index, position: place.position, len: place.len, file }
            }
        };
        self.slots.push_back(slot);
        (number, self.remember(number, frame))
    }

    fn remember(&mut self, number: u32, frame: &Arc<Frame>) -> Vec<Arc<Frame>> {
        let complete = frame.place.as_ref().is_none_or(|p| frame.bytes.len() == p.len as usize);
        if !complete {
            // Known by its envelopes only (replay below a checkpoint): the tail begins behind it.
            (self.tail_bytes, self.first_tail) = (0, number.wrapping_add(1));
            return std::mem::take(&mut self.tail).into_iter().filter(|f| f.place.is_none()).collect();
        }
        if self.tail.is_empty() {
            self.first_tail = number;
        }
        self.tail.push_back(frame.clone());
        self.tail_bytes += weight(frame);
        self.shrink_tail()
    }

    /// Changes the bounds of the tail.
    pub(super) fn set_tail_bytes(&mut self, min: usize, max: usize) -> Vec<Arc<Frame>> {
        (self.tail_bytes_min, self.tail_bytes_max) = (min, max.max(min));
        self.shrink_tail()
    }

    /// A reader is at a frame. One that is farther behind than the tail may ever reach has no use for it.
    pub(super) fn note_read(&self, number: u32) {
        if self.tail_bytes_max > self.tail_bytes_min {
            let behind = self.bytes_from(number);
            if behind <= self.tail_bytes_max as u64 {
                self.behind.fetch_max(behind, Ordering::Relaxed);
            }
        }
    }

    /// Drops the readers before the last turn. Frames kept for them leave the tail.
    pub(super) fn turn_readers(&mut self) -> Vec<Arc<Frame>> {
        self.behind_before = self.behind.swap(0, Ordering::Relaxed);
        self.shrink_tail()
    }

    /// What the tail is to hold now: for the reader that is farthest behind, and an eighth more, so that it does not fall out at once.
    fn tail_bytes_wanted(&self) -> usize {
        let behind = self.behind.load(Ordering::Relaxed).max(self.behind_before);
        let wanted = usize::try_from(behind + behind / 8).unwrap_or(usize::MAX);
        wanted.min(self.tail_bytes_max).max(self.tail_bytes_min)
    }

    /// What the frames from this one on take, but for the number of their entries. Bytes.
    fn bytes_from(&self, number: u32) -> u64 {
        let place = |slot: &FrameSlot| Some(self.file(slot)?.before + slot.position);
        let first = self.slot(number).and_then(place);
        let end = self.slots.back().and_then(|slot| Some(place(slot)? + u64::from(slot.len)));
        let newer = self.first_slot.wrapping_add(self.slots.len() as u32).wrapping_sub(number);
        let apart = u64::from(newer) * (size_of::<Frame>() + size_of::<EntryRef>()) as u64;
        first.zip(end).map_or(u64::MAX, |(first, end)| end.saturating_sub(first) + apart)
    }

    fn shrink_tail(&mut self) -> Vec<Arc<Frame>> {
        let mut gone = Vec::new();
        let wanted = self.tail_bytes_wanted();
        while self.tail_bytes > wanted {
            let Some(frame) = self.tail.pop_front() else { break };
            self.first_tail = self.first_tail.wrapping_add(1);
            self.tail_bytes -= weight(&frame);
            if frame.place.is_none() {
                gone.push(frame);
            }
        }
        gone
    }

    /// The slot of a frame.
    pub(super) fn slot(&self, number: u32) -> Option<&FrameSlot> {
        self.slots.get(number.wrapping_sub(self.first_slot) as usize)
    }

    /// The frame, where it is in memory.
    pub(super) fn tail(&self, number: u32) -> Option<&Arc<Frame>> {
        self.tail.get(number.wrapping_sub(self.first_tail) as usize)
    }

    /// The journal file that a frame is in.
    pub(super) fn file(&self, slot: &FrameSlot) -> Option<&JournalFile> {
        if slot.file == NO_FILE { None } else { self.files.get(slot.file.wrapping_sub(self.first_file) as usize) }
    }

    /// The journal file of a frame, to count in.
    pub(super) fn file_mut(&mut self, number: u32) -> Option<&mut JournalFile> {
        let file = self.slot(number)?.file;
        if file == NO_FILE { None } else { self.files.get_mut(file.wrapping_sub(self.first_file) as usize) }
    }

    /// The files, oldest first.
    pub(super) fn files(&self) -> impl Iterator<Item = &JournalFile> {
        self.files.iter()
    }

    /// The last frame of the oldest files in which nothing is wanted, at most `upto`.
    pub(super) fn empty_upto(&self, upto: Index) -> Option<Index> {
        let empty = self.files.iter().take_while(|f| f.live_runs == 0 && f.last <= upto);
        empty.last().map(|f| f.last)
    }

    /// The end of the last frame in its file.
    pub(super) fn last_end(&self) -> u64 {
        self.slots.back().map_or(0, |slot| slot.position + u64::from(slot.len))
    }

    /// Native bytes that may still be wanted, in the files that hold the frames up to `index`.
    pub(super) fn live_bytes_upto(&self, index: Index) -> u64 {
        let whole = self.files.iter().take_while(|f| f.last < index).map(|f| f.live_bytes).sum::<u64>();
        whole + self.files.iter().find(|f| f.last >= index).map_or(0, |f| f.live_bytes)
    }

    /// Forgets the frames up to `index`; no run refers to them any more.
    pub(super) fn drop_upto(&mut self, index: Index) {
        while self.slots.front().is_some_and(|s| s.index <= index) {
            self.slots.pop_front();
            if self.first_tail == self.first_slot
                && let Some(frame) = self.tail.pop_front()
            {
                self.tail_bytes -= weight(&frame);
                self.first_tail = self.first_tail.wrapping_add(1);
            }
            self.first_slot = self.first_slot.wrapping_add(1);
        }
        if self.slots.is_empty() {
            self.first_tail = self.first_slot;
        }
        while self.files.front().is_some_and(|f| f.last <= index) {
            self.files.pop_front();
            self.first_file = self.first_file.wrapping_add(1);
        }
        if self.slots.capacity() > 4 * self.slots.len().max(256) {
            self.slots.shrink_to(2 * self.slots.len());
        }
    }

    /// The upper bound of the tail. Bytes.
    pub(super) fn tail_bytes_max(&self) -> usize {
        self.tail_bytes_max
    }

    /// Bytes that the tail holds.
    pub(super) fn tail_bytes(&self) -> usize {
        self.tail_bytes
    }

    /// Memory of the table of frames, without the tail. Bytes.
    pub(super) fn index_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<FrameSlot>() + self.files.capacity() * size_of::<JournalFile>()
    }
}

/// Where the lengths of body and table are in a frame's headers.
/// What is read of a frame first. Bytes.
const FRONT_BYTES: u32 = 512;
const BODY_LEN_AT: usize = LOCAL_BYTES + 48;
const TABLE_LEN_AT: usize = LOCAL_BYTES + 52;

/// Reads the entries of a frame from its file, without the native bytes behind them.
///
/// # Errors
/// `Damaged` when headers or envelope table do not verify, `Io`.
pub(super) fn read_entries(frame: &FileRange, read: fn(&FileRange) -> Result<Bytes>) -> Result<Vec<EntryRef>> {
    let wrong = |what: String| Error::new(ErrorKind::Damaged, format!("frame at {}: {what}", frame.position));
    if (frame.len as usize) < HEADERS_BYTES {
        return Err(wrong("too short".into()));
    }
    // Of most frames that is the whole table too.
    let front = read(&FileRange { len: frame.len.min(FRONT_BYTES), ..frame.clone() })?;
    let head: &[u8; HEADERS_BYTES] = front.first_chunk().ok_or_else(|| wrong("too short".into()))?;
    let part = u64::from(u32_at(head, BODY_LEN_AT)) + u64::from(u32_at(head, TABLE_LEN_AT)) + HEADERS_BYTES as u64;
    let len = u32::try_from(part).ok().filter(|len| *len <= frame.len);
    let len = len.ok_or_else(|| wrong("its table runs over its end".into()))?;
    let bytes = match front.len() >= len as usize {
        true => front.slice(..len as usize),
        false => read(&FileRange { len, ..frame.clone() })?,
    };
    let local = LocalHeader::decode(&bytes);
    let replicated = bytes.get(LOCAL_BYTES..).and_then(ReplicatedHeader::decode);
    let (Some((local, crc)), Some((replicated, content))) = (local, replicated) else {
        return Err(wrong("its headers do not verify".into()));
    };
    if content != local.content || replicated.frame_len() != u64::from(frame.len) {
        return Err(wrong("its headers do not belong together".into()));
    }
    let parsed = Parsed { local, crc, replicated: Some(replicated) };
    let kind = codec::kind_of(&parsed).map_err(|e| wrong(e.to_string()))?;
    let kind = kind.ok_or_else(|| wrong("its kind is unknown".into()))?;
    Ok(codec::decode(kind, &parsed, bytes, None).map_err(|e| wrong(e.to_string()))?.entries)
}
