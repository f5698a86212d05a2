//! Walking through the frames of files: verifying them one by one, and finding the next one behind a bad one.

use super::config::Identity;
use super::file::FILE_HEADER_BYTES;
use super::inner::LocalState;
use super::survey::ChainFile;
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::frame::codec::{self, FrameError, LocalRecord, Parsed};
use crate::frame::header::{
    Durable, LOCAL_BYTES, LocalHeader, LogEnd, MAGIC, REPLICATED_BYTES, ReplicatedHeader, align,
};
use bytes::Bytes;
use polylogue_env::DiskFile;
use polylogue_types::limits::FRAME_ALIGN_BYTES;
use polylogue_types::{Index, Term, TimestampMs};

/// How much is read at once; a frame that is larger is read whole. Bytes.
const WINDOW_BYTES: u64 = 4 << 20;

/// A window on a file.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    file: &'a dyn DiskFile,
    size: u64,
    start: u64,
    window: Vec<u8>,
    pub(crate) bytes_read: u64,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(file: &'a dyn DiskFile, size: u64) -> Reader<'a> {
        Reader { file, size, start: 0, window: Vec::new(), bytes_read: 0 }
    }

    /// `len` bytes at `position`, or as many as there are before the file's end.
    pub(crate) fn get(&mut self, position: u64, len: u64) -> Result<&[u8]> {
        let len = len.min(self.size.saturating_sub(position));
        let inside = position >= self.start && position + len <= self.start + self.window.len() as u64;
        if !inside {
            self.load(position, len)?;
        }
        let at = (position - self.start) as usize;
        Ok(&self.window[at..at + len as usize])
    }

    /// The bytes from `position` on that are at hand, at least one before the file's end.
    fn at_hand(&mut self, position: u64) -> Result<&[u8]> {
        if position < self.start || position >= self.start + self.window.len() as u64 {
            self.load(position, 0)?;
        }
        let at = (position - self.start) as usize;
        Ok(self.window.get(at..).unwrap_or_default())
    }

    fn load(&mut self, position: u64, len: u64) -> Result<()> {
        let wanted = len.max(WINDOW_BYTES).min(self.size.saturating_sub(position));
        self.window.resize(wanted as usize, 0);
        self.start = position;
        if let Err(e) = self.file.read_exact_at(&mut self.window, position) {
            self.window.clear();
            return Err(Error::io("cannot read the journal", e));
        }
        self.bytes_read += wanted;
        Ok(())
    }
}

/// A frame that verifies and follows from the one before.
#[derive(Debug)]
pub(crate) struct Walked {
    /// Which file of the chain.
    pub(crate) file: usize,
    pub(crate) position: u64,
    pub(crate) parsed: Parsed,
    pub(crate) bytes: Bytes,
    /// `None` for an unknown kind that may be passed over.
    pub(crate) frame: Option<Frame>,
    /// Where the log stands after it.
    pub(crate) end: LogEnd,
}

/// Bytes in the place of a frame that are none, or not the right one.
#[derive(Debug)]
pub(crate) struct Bad {
    pub(crate) file: usize,
    pub(crate) position: u64,
    pub(crate) error: FrameError,
    /// What can still be read of it: the headers and the table verify.
    pub(crate) frame: Option<Frame>,
    /// The index that belongs here, if the frame has one.
    pub(crate) expected: Option<Index>,
}

/// One step of the walk.
#[derive(Debug)]
pub(crate) enum Step {
    Frame(Box<Walked>),
    Bad(Box<Bad>),
    /// The last file is at its end, as the file before says or because it is full.
    End,
}

/// What the walk has learned so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogState {
    pub(crate) local: LocalState,
    /// The index that the next frame has; `None` after damage, when any may follow.
    pub(crate) next: Option<Index>,
    /// The term of the last frame.
    pub(crate) term: Term,
    pub(crate) time_ms: TimestampMs,
    /// The highest mark of what was flushed.
    pub(crate) durable: Durable,
}

/// Walks over the files of a chain, frame by frame.
#[derive(Debug)]
pub(crate) struct Walker<'a> {
    chain: &'a [ChainFile],
    shard: polylogue_types::ShardId,
    at: usize,
    reader: Option<Reader<'a>>,
    pub(crate) position: u64,
    /// The crc that the next frame names; `None` after damage.
    previous: Option<u32>,
    pub(crate) state: LogState,
    bytes_read: u64,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(chain: &'a [ChainFile], identity: &Identity) -> Walker<'a> {
        let first = chain.first();
        let next = first.filter(|f| !f.rebuilt).map(|f| f.header.first_index);
        let state = LogState { next, ..LogState::default() };
        let mut walker = Walker {
            chain,
            shard: identity.shard,
            at: 0,
            reader: None,
            position: FILE_HEADER_BYTES,
            previous: None,
            state,
            bytes_read: 0,
        };
        walker.enter(0);
        walker
    }

    fn enter(&mut self, at: usize) {
        self.leave();
        self.at = at;
        self.position = FILE_HEADER_BYTES;
        if let Some(file) = self.chain.get(at) {
            // What is cut off is not read: it may be why the log was cut there.
            self.reader = Some(Reader::new(&*file.file, file.limit()));
            self.previous = Some(file.checksum).filter(|_| !file.rebuilt);
        }
    }

    fn leave(&mut self) {
        self.bytes_read += self.reader.take().map_or(0, |r| r.bytes_read);
    }

    /// Bytes read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read + self.reader.as_ref().map_or(0, |r| r.bytes_read)
    }

    /// Where the walk stands.
    pub(crate) fn place(&self) -> LogEnd {
        let sequence = self.chain.get(self.at).map_or(0, |f| f.header.sequence);
        LogEnd { sequence, position: self.position }
    }

    /// The crc of the last frame, or of the file's header before the first.
    pub(crate) fn checksum(&self) -> u32 {
        self.previous.unwrap_or_default()
    }

    /// The next frame. After [`Step::Bad`] the walk stands still until [`Walker::resume`].
    pub(crate) fn step(&mut self) -> Result<Step> {
        loop {
            let Some(file) = self.chain.get(self.at) else { return Ok(Step::End) };
            let limit = file.limit();
            // A named end behind the file's own is found to be bad right there.
            let over = self.position >= limit && file.end.is_none_or(|end| self.position >= end);
            if over {
                if self.at + 1 >= self.chain.len() {
                    return Ok(Step::End);
                }
                self.enter(self.at + 1);
                continue;
            }
            return self.frame(file, limit).map_err(|e| e.within(&file.path));
        }
    }

    fn frame(&mut self, file: &'a ChainFile, limit: u64) -> Result<Step> {
        let position = self.position;
        let Some(reader) = self.reader.as_mut() else { return Ok(Step::End) };
        let (parsed, bytes) = match read_frame(reader, file, position, limit)? {
            Ok(found) => found,
            Err(error) => return Ok(self.bad(error, None)),
        };
        if self.previous.is_some_and(|previous| parsed.local.previous != previous) {
            return Ok(self.bad(FrameError::Chain, None));
        }
        let kind = match codec::kind_of(&parsed) {
            Ok(kind) => kind,
            Err(e) => return Ok(self.bad(e, None)),
        };
        if let Some(r) = &parsed.replicated {
            if r.shard != self.shard {
                return Ok(self.bad(FrameError::Shard(r.shard), None));
            }
            if self.state.next.is_some_and(|next| next != r.index) {
                return Ok(self.bad(FrameError::Index(r.index), None));
            }
        }
        let decoded = kind.map(|kind| codec::decode(kind, &parsed, bytes.clone(), None)).transpose();
        let frame = match decoded {
            Ok(frame) => frame,
            Err(e) => return Ok(self.bad(e, None)),
        };
        let damaged = frame.as_ref().map_or(0, |f| codec::damaged_entries(f).len());
        if damaged > 0 {
            return Ok(self.bad(FrameError::Payload(damaged as u32), frame));
        }
        if let Err(e) = self.apply(&parsed, frame.as_ref()) {
            return Ok(self.bad(e, None));
        }
        self.pass(&parsed);
        let walked = Walked { file: self.at, position, parsed, bytes, frame, end: self.place() };
        Ok(Step::Frame(Box::new(walked)))
    }

    /// Moves behind a bad place where nothing but native bytes is damaged; `None` where more is.
    pub(crate) fn pass_damaged(&mut self) -> Result<Option<Walked>> {
        let (Some(file), Some(reader)) = (self.chain.get(self.at), self.reader.as_mut()) else { return Ok(None) };
        let position = self.position;
        let Ok((parsed, bytes)) = read_frame(reader, file, position, file.limit())? else { return Ok(None) };
        if self.apply(&parsed, None).is_err() {
            return Ok(None);
        }
        self.pass(&parsed);
        Ok(Some(Walked { file: self.at, position, parsed, bytes, frame: None, end: self.place() }))
    }

    /// Moves behind a bad place whose frame is known as a whole, damaged entries included. What follows it directly is looked at as
    /// always: a second damaged frame there must not be taken for part of this one.
    pub(crate) fn pass_salvaged(&mut self, frame: &Frame) -> LogEnd {
        self.position = align(self.position + frame.bytes.len() as u64);
        self.previous = None;
        self.state.next = Some(frame.index.next());
        self.state.term = frame.term;
        self.state.time_ms = self.state.time_ms.max(frame.time_ms);
        self.place()
    }

    /// Moves behind a frame whose local header verifies.
    fn pass(&mut self, parsed: &Parsed) {
        self.position = align(self.position + u64::from(parsed.local.len));
        self.previous = Some(parsed.crc);
        self.see(parsed.local.durable);
    }

    /// Takes note of a mark.
    pub(crate) fn see(&mut self, durable: Durable) {
        if durable.end > self.state.durable.end {
            self.state.durable = durable;
        }
    }

    /// What the frame changes in the log's state.
    fn apply(&mut self, parsed: &Parsed, frame: Option<&Frame>) -> std::result::Result<(), FrameError> {
        if let Some(r) = &parsed.replicated {
            self.state.next = Some(r.index.next());
            self.state.term = r.term;
            self.state.time_ms = self.state.time_ms.max(r.time_ms);
            return Ok(());
        }
        let Some(frame) = frame else { return Ok(()) };
        let record = LocalRecord::decode(frame.kind, &frame.body)?;
        self.state.local.apply(&record);
        match record {
            LocalRecord::TruncateAfter { index } => self.state.next = Some(index.map_or(Index(0), Index::next)),
            LocalRecord::Purged { index, .. } if self.state.next.is_some_and(|next| next <= index) => {
                self.state.next = Some(index.next());
            }
            _ => {}
        }
        Ok(())
    }

    fn bad(&self, error: FrameError, frame: Option<Frame>) -> Step {
        Step::Bad(Box::new(Bad { file: self.at, position: self.position, error, frame, expected: self.state.next }))
    }

    /// After a bad place: looks for the next frame of this file, or goes on with the next file. Any index and any chain is
    /// taken from there. Returns the place where the walk goes on; `None` when there is nothing behind the bad place.
    pub(crate) fn resume(&mut self) -> Result<Option<LogEnd>> {
        let Some(file) = self.chain.get(self.at) else { return Ok(None) };
        let Some(reader) = self.reader.as_mut() else { return Ok(None) };
        let limit = file.limit();
        let mut position = self.position + FRAME_ALIGN_BYTES;
        while let Some(found) = next_magic(reader, position, limit)? {
            if read_frame(reader, file, found, limit)?.is_ok() {
                self.position = found;
                self.previous = None;
                self.state.next = None;
                return Ok(Some(self.place()));
            }
            position = found + FRAME_ALIGN_BYTES;
        }
        let Some(next) = self.chain.get(self.at + 1) else { return Ok(None) };
        self.enter(self.at + 1);
        self.state.next = Some(next.header.first_index).filter(|_| !next.rebuilt);
        Ok(Some(self.place()))
    }

    /// What can still be read of a bad place whose local header is what is damaged: the replicated part has a checksum of
    /// its own, and its index tells it from an earlier life of the file.
    pub(crate) fn salvage(&mut self, bad: &Bad) -> Result<Option<Frame>> {
        let Some(file) = self.chain.get(self.at) else { return Ok(None) };
        let Some(reader) = self.reader.as_mut() else { return Ok(None) };
        let limit = file.limit();
        let part = bad.position + LOCAL_BYTES as u64;
        let room = limit.saturating_sub(part);
        let head = reader.get(part, room.min(REPLICATED_BYTES as u64))?;
        let Some(summed) = ReplicatedHeader::summed_len(head).filter(|n| *n <= room) else { return Ok(None) };
        let Some((header, content)) = ReplicatedHeader::decode(reader.get(part, summed)?) else { return Ok(None) };
        let len = header.frame_len();
        if Some(header.index) != bad.expected || header.shard != self.shard || bad.position + len > limit {
            return Ok(None);
        }
        let bytes = Bytes::copy_from_slice(reader.get(bad.position, len)?);
        let local = LocalHeader {
            kind: header.kind,
            // Not above the limit of a frame, as the header has been read.
            len: len as u32,
            previous: 0,
            salt: file.header.salt,
            durable: Durable::default(),
            content,
        };
        let parsed = Parsed { local, crc: 0, replicated: Some(header) };
        let Ok(Some(kind)) = codec::kind_of(&parsed) else { return Ok(None) };
        Ok(codec::decode(kind, &parsed, bytes, None).ok())
    }
}

type ReadFrame = std::result::Result<(Parsed, Bytes), FrameError>;

/// Reads one frame: its headers, body and table verify, and it belongs to this life of the file.
fn read_frame(reader: &mut Reader<'_>, file: &ChainFile, position: u64, limit: u64) -> Result<ReadFrame> {
    let header = LocalHeader::decode(reader.get(position, LOCAL_BYTES as u64)?);
    let Some((local, _)) = header else { return Ok(Err(FrameError::NoFrame)) };
    if local.salt != file.header.salt {
        return Ok(Err(FrameError::Stale));
    }
    if position + u64::from(local.len) > limit {
        return Ok(Err(FrameError::Cut));
    }
    let bytes = reader.get(position, u64::from(local.len))?;
    Ok(match codec::parse(bytes) {
        Ok(parsed) => Ok((parsed, Bytes::copy_from_slice(bytes))),
        Err(e) => Err(e),
    })
}

/// The next place from `position` on where a frame may begin.
fn next_magic(reader: &mut Reader<'_>, mut position: u64, limit: u64) -> Result<Option<u64>> {
    while position < limit {
        let bytes = reader.at_hand(position)?;
        if let Some(i) = first_magic(bytes) {
            return Ok(Some(position + i as u64).filter(|found| *found < limit));
        }
        position += (bytes.len() as u64).next_multiple_of(FRAME_ALIGN_BYTES).max(FRAME_ALIGN_BYTES);
    }
    Ok(None)
}

/// Bytes that are skipped together where all are zero: most of what is behind the last frame of a file was never written. A multiple of
/// [`FRAME_ALIGN_BYTES`].
const ZERO_BLOCK_BYTES: usize = 4 << 10;
static ZEROS: [u8; ZERO_BLOCK_BYTES] = [0; ZERO_BLOCK_BYTES];

/// The place of the first [`MAGIC`] that is aligned, from the start of `bytes`. Bytes.
fn first_magic(bytes: &[u8]) -> Option<usize> {
    let (magic, step) = (MAGIC.to_le_bytes(), FRAME_ALIGN_BYTES as usize);
    bytes.chunks(ZERO_BLOCK_BYTES).enumerate().find_map(|(number, block)| {
        // One comparison of memory, without optimisation too, in contrast to those below.
        if ZEROS.starts_with(block) {
            return None;
        }
        let found = block.chunks(step).position(|chunk| chunk.starts_with(&magic))?;
        Some(number * ZERO_BLOCK_BYTES + found * step)
    })
}

/// What a file holds behind a place: the highest mark of what was flushed in frames of this salt, and where the last
/// such frame ends. Headers count even where what follows them is damaged.
///
/// Only the salt distinguishes a frame from bytes that a client has sent: without it, a payload could claim to be a mark.
pub(crate) fn marks_behind(
    file: &dyn DiskFile,
    size: u64,
    from: u64,
    salt: u64,
    bytes_read: &mut u64,
) -> Result<(Durable, Option<u64>)> {
    let mut reader = Reader::new(file, size);
    let (mut durable, mut last) = (Durable::default(), None);
    let mut position = from;
    while let Some(found) = next_magic(&mut reader, position, size)? {
        position = found + FRAME_ALIGN_BYTES;
        let header = LocalHeader::decode(reader.get(found, LOCAL_BYTES as u64)?);
        let Some((local, _)) = header.filter(|(local, _)| local.salt == salt) else { continue };
        if local.durable.end > durable.end {
            durable = local.durable;
        }
        last = Some(align(found + u64::from(local.len)));
    }
    *bytes_read += reader.bytes_read;
    Ok((durable, last))
}

/// The salt that the first frame of a file has, whether or not the file's header is its own: the place of the first frame
/// is the journal's, never a payload's.
pub(crate) fn first_salt(file: &dyn DiskFile, size: u64) -> Result<Option<u64>> {
    let mut reader = Reader::new(file, size.min(FILE_HEADER_BYTES + LOCAL_BYTES as u64));
    let header = LocalHeader::decode(reader.get(FILE_HEADER_BYTES, LOCAL_BYTES as u64)?);
    Ok(header.map(|(local, _)| local.salt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_magic_is_found_wherever_it_is_aligned_and_only_there() {
        let step = FRAME_ALIGN_BYTES as usize;
        assert_eq!(ZERO_BLOCK_BYTES % step, 0);
        for len in [0, 3, step, ZERO_BLOCK_BYTES - 1, ZERO_BLOCK_BYTES + step + 3] {
            assert_eq!(first_magic(&vec![0; len]), None);
            for place in 0..len.saturating_sub(3) {
                let mut bytes = vec![0; len];
                bytes[place..place + 4].copy_from_slice(&MAGIC.to_le_bytes());
                assert_eq!(first_magic(&bytes), (place % step == 0).then_some(place), "{place} of {len}");
                bytes.fill(b'P');
                bytes[place..place + 4].copy_from_slice(&MAGIC.to_le_bytes());
                assert_eq!(first_magic(&bytes), (place % step == 0).then_some(place), "{place} of {len}, not in zeros");
            }
        }
    }
}
