//! Pieces of journal files that were read back, kept for other readers of the same place.
//!
//! ```text
//!   a journal file   | piece 0          | piece 1          | piece 2 ...       PIECE_BYTES each, whole pages
//!     its runs        a b c d ... a b c d ... a b c d ...                      cut out of memory for each partition
//! ```
//!
//! A run that is given out pins the buffer of its piece. Pinned buffers count: when all of them are pinned no piece is read, and
//! readers get ranges of files as if there were no cache.

use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use polylogue_env::DIRECT_BYTES;
use polylogue_types::{Map, RangeSource, Set};
use std::ops::Range;
use std::sync::Arc;

/// What is read of a journal file at a time. Bytes, a multiple of the page.
pub(super) const PIECE_BYTES: u32 = 1 << 20;
/// How far before a place a piece may begin for its use to say how the place will be used. Bytes of journal.
const LOOK_BACK_BYTES: u64 = 4 << 20;
/// A piece of which this part was given out was worth being read.
pub(super) const WORTH_PART: u64 = 4;
/// Pieces of which it is remembered what was wanted and read by itself. Numbers.
const DECLINED_MAX: usize = 4096;

/// Which piece.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct PieceKey {
    /// Of the journal file.
    pub(super) sequence: u64,
    /// Pieces before it in the file.
    pub(super) number: u32,
}

impl PieceKey {
    /// The first byte of the piece in its file.
    pub(super) fn position(self) -> u64 {
        u64::from(self.number) * u64::from(PIECE_BYTES)
    }

    /// The pieces that a range of a file touches, with the part of it that lies in each, counted from the piece's start.
    pub(super) fn of(sequence: u64, position: u64, len: u32) -> impl Iterator<Item = (PieceKey, Range<u32>)> {
        let piece = u64::from(PIECE_BYTES);
        let end = position + u64::from(len);
        (position / piece..end.div_ceil(piece)).map(move |number| {
            let start = number * piece;
            let part = position.max(start) - start..end.min(start + piece) - start;
            (PieceKey { sequence, number: number as u32 }, part.start as u32..part.end as u32)
        })
    }
}

/// Memory for one piece, aligned for direct reads.
#[derive(Debug)]
struct Buffer {
    memory: Vec<u8>,
    home: Arc<Pool>,
}

impl Buffer {
    fn start(&self) -> usize {
        self.memory.as_ptr().align_offset(DIRECT_BYTES).min(DIRECT_BYTES)
    }

    fn piece_mut(&mut self) -> &mut [u8] {
        let start = self.start();
        self.memory.get_mut(start..start + PIECE_BYTES as usize).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        let start = self.start();
        self.memory.get(start..start + PIECE_BYTES as usize).unwrap_or_default()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.0.lock().spare.push(std::mem::take(&mut self.memory));
    }
}

/// All buffers that there are.
#[derive(Debug, Default)]
struct Pool(Mutex<Buffers>);

#[derive(Debug, Default)]
struct Buffers {
    spare: Vec<Vec<u8>>,
    /// Spare, cached and pinned ones.
    count: usize,
}

#[derive(Debug)]
struct Piece {
    buffer: Arc<Buffer>,
    /// Of the buffer, as far as frames were known to be committed when it was read.
    len: u32,
    /// Where it begins, in bytes of journal since the start.
    place: u64,
    used: u64,
    served: u64,
    /// Read ahead of a fetch, and nothing of it was served yet.
    ahead: bool,
}

impl Piece {
    /// Pins the buffer.
    fn part(&self, part: Range<u32>) -> Bytes {
        Bytes::from_owner(Pin(self.buffer.clone())).slice(part.start as usize..part.end as usize)
    }

    fn is_pinned(&self) -> bool {
        Arc::strong_count(&self.buffer) > 1
    }
}

/// What a response holds.
struct Pin(Arc<Buffer>);

impl AsRef<[u8]> for Pin {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

#[derive(Debug, Default)]
struct Pieces {
    cached: Map<PieceKey, Piece>,
    /// Being read by a thread.
    loading: Set<PieceKey>,
    /// Bytes that were wanted of pieces that were not read as a whole.
    declined: Map<PieceKey, u64>,
    clock: u64,
    /// The clock at the last [`ReadCache::release_unused`].
    released: u64,
    hit_bytes: u64,
    loads: u64,
}

/// A range of a file that may lie in two pieces.
pub(super) type Parts = (Bytes, Option<Bytes>);

impl Pieces {
    fn parts(&self, sequence: u64, position: u64, len: u32) -> Option<Parts> {
        let mut parts = PieceKey::of(sequence, position, len).map(|(key, part)| {
            let piece = self.cached.get(&key).filter(|piece| part.end <= piece.len)?;
            Some(piece.part(part))
        });
        let first = parts.next()??;
        let second = match parts.next() {
            Some(second) => Some(second?),
            None => None,
        };
        // A longer range is none of this cache.
        parts.next().is_none().then_some((first, second))
    }
}

/// What a read cache has done and holds.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct ReadCacheStats {
    /// Buffers, pinned and spare ones too. Bytes.
    pub(super) bytes: usize,
    /// Bytes given out.
    pub(super) hit_bytes: u64,
    /// Pieces read.
    pub(super) loads: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ReadCache {
    buffers_max: usize,
    pool: Arc<Pool>,
    pieces: Mutex<Pieces>,
    loaded: Condvar,
}

impl ReadCache {
    /// With so many bytes at the most; less than a piece switches it off.
    pub(super) fn new(bytes_max: usize) -> ReadCache {
        ReadCache {
            buffers_max: bytes_max / PIECE_BYTES as usize,
            pool: Arc::default(),
            pieces: Mutex::default(),
            loaded: Condvar::new(),
        }
    }

    /// How many pieces it may hold.
    pub(super) fn pieces_max(&self) -> usize {
        self.buffers_max
    }

    /// A range of a file to be given out, in one or two parts. `None` unless all of it is there.
    pub(super) fn serve(&self, sequence: u64, position: u64, len: u32) -> Option<Parts> {
        let mut pieces = self.pieces.lock();
        let found = pieces.parts(sequence, position, len)?;
        pieces.clock += 1;
        pieces.hit_bytes += u64::from(len);
        let used = pieces.clock;
        for (key, part) in PieceKey::of(sequence, position, len) {
            if let Some(piece) = pieces.cached.get_mut(&key) {
                piece.used = used;
                piece.served += u64::from(part.end - part.start);
                piece.ahead = false;
            }
        }
        Some(found)
    }

    /// Whether all of a range is there.
    pub(super) fn has_range(&self, sequence: u64, position: u64, len: u32) -> bool {
        let pieces = self.pieces.lock();
        let has =
            |(key, part): (PieceKey, Range<u32>)| pieces.cached.get(&key).is_some_and(|piece| part.end <= piece.len);
        PieceKey::of(sequence, position, len).all(has)
    }

    /// The same to be verified only.
    pub(super) fn look(&self, sequence: u64, position: u64, len: u32) -> Option<Parts> {
        self.pieces.lock().parts(sequence, position, len)
    }

    /// Whether a piece is there up to `end`.
    pub(super) fn has(&self, key: PieceKey, end: u32) -> bool {
        self.pieces.lock().cached.get(&key).is_some_and(|piece| piece.len >= end)
    }

    /// Whether the pieces right before a place were worth being read. Places count bytes of journal since the start.
    pub(super) fn was_worth_it(&self, place: u64) -> bool {
        let before = place.saturating_sub(LOOK_BACK_BYTES)..=place;
        let worth = |piece: &Piece| piece.served.saturating_mul(WORTH_PART) >= u64::from(piece.len);
        self.pieces.lock().cached.values().any(|piece| before.contains(&piece.place) && worth(piece))
    }

    /// What was wanted of a piece before without its being read.
    pub(super) fn declined(&self, key: PieceKey) -> u64 {
        self.pieces.lock().declined.get(&key).copied().unwrap_or(0)
    }

    /// Remembers what was wanted of a piece that is not read as a whole.
    pub(super) fn decline(&self, key: PieceKey, bytes: u64) {
        let declined = &mut self.pieces.lock().declined;
        if declined.len() >= DECLINED_MAX && !declined.contains_key(&key) {
            declined.clear();
        }
        *declined.entry(key).or_default() += bytes;
    }

    /// Whether another piece may be read ahead: those that wait for their first use take at most one part in `parts` of the cache.
    pub(super) fn has_room_ahead(&self, parts: u64) -> bool {
        let ahead = self.pieces.lock().cached.values().filter(|piece| piece.ahead).count();
        (ahead as u64) < self.buffers_max as u64 / parts
    }

    /// Reads the first `len` bytes of a piece, unless they are there or another thread is reading them: then waits for it. `ahead`
    /// of the fetch that wants it, or for one.
    ///
    /// # Errors
    /// `Io`; `Busy` when all buffers are pinned.
    pub(super) fn load(
        &self,
        key: PieceKey,
        place: u64,
        source: &dyn RangeSource,
        len: u32,
        ahead: bool,
    ) -> Result<()> {
        {
            let mut pieces = self.pieces.lock();
            while pieces.loading.contains(&key) {
                self.loaded.wait(&mut pieces);
            }
            if pieces.cached.get(&key).is_some_and(|piece| piece.len >= len) {
                return Ok(());
            }
            pieces.loading.insert(key);
        }
        let _loading = Loading { cache: self, key };
        let mut buffer = self.take().ok_or_else(|| Error::new(ErrorKind::Busy, "all pieces are being sent"))?;
        let read = source.read_piece_at(buffer.piece_mut(), len as usize, key.position());
        read.map_err(|e| Error::io("cannot read a piece of the journal", e))?;
        let mut pieces = self.pieces.lock();
        pieces.clock += 1;
        pieces.loads += 1;
        pieces.declined.remove(&key);
        let served = pieces.cached.get(&key).map_or(0, |piece| piece.served);
        let piece =
            Piece { buffer: Arc::new(buffer), len, place, used: pieces.clock, served, ahead: ahead && served == 0 };
        pieces.cached.insert(key, piece);
        Ok(())
    }

    /// A buffer: a spare one, a new one, or that of the piece that was not used for the longest time and that no response pins.
    fn take(&self) -> Option<Buffer> {
        loop {
            {
                let mut buffers = self.pool.0.lock();
                let spare = buffers.spare.pop();
                if spare.is_some() || buffers.count < self.buffers_max {
                    buffers.count += usize::from(spare.is_none());
                    let memory = spare.unwrap_or_else(|| vec![0; PIECE_BYTES as usize + DIRECT_BYTES]);
                    return Some(Buffer { memory, home: self.pool.clone() });
                }
            }
            let mut pieces = self.pieces.lock();
            let free = pieces.cached.iter().filter(|(_, piece)| !piece.is_pinned());
            let oldest = free.min_by_key(|(_, piece)| piece.used).map(|(key, _)| *key)?;
            pieces.cached.remove(&oldest);
        }
    }

    /// Forgets the pieces that were not used since the last call, and gives back memory that is not used.
    pub(super) fn release_unused(&self) {
        let pieces = &mut *self.pieces.lock();
        let before = std::mem::replace(&mut pieces.released, pieces.clock);
        pieces.cached.retain(|_, piece| piece.used > before);
        if pieces.cached.is_empty() {
            (pieces.cached, pieces.declined) = Default::default();
        }
        let buffers = &mut *self.pool.0.lock();
        buffers.count -= buffers.spare.len();
        buffers.spare = Vec::new();
    }

    pub(super) fn stats(&self) -> ReadCacheStats {
        let pieces = self.pieces.lock();
        let bytes = self.pool.0.lock().count * (PIECE_BYTES as usize + DIRECT_BYTES);
        ReadCacheStats { bytes, hit_bytes: pieces.hit_bytes, loads: pieces.loads }
    }
}

/// A piece is being read; others that want it are woken when that has ended, however.
struct Loading<'a> {
    cache: &'a ReadCache,
    key: PieceKey,
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.cache.pieces.lock().loading.remove(&self.key);
        self.cache.loaded.notify_all();
    }
}
