//! Reading back for many partitions at once: what a fetch wants of a stretch of journal is read in large pieces, once.
//!
//! ```text
//!   journal   | a b c d | a b c d | a b c d | a b c d | a b c d | ...
//!               ^ the oldest run that is wanted                   ^ the end of the window: all partitions of the fetch stop here
//!               |<--------- pieces that are read ------------- >|
//! ```
//!
//! Without the window each partition would be read up to its own bound, through journal that the next partition would read again.
//! Pieces are only read where enough of them is wanted: by this fetch, by others before it, or as far as the pieces before them tell.

use super::ShardStore;
use super::index::{JournalRun, State, VERIFIED};
use super::read_cache::{PIECE_BYTES, PieceKey, WORTH_PART};
use super::shared::Shared;
use polylogue_record::crc;
use polylogue_types::{Offset, PartitionId, RangeSource};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest stretch of journal that one fetch is answered from. Bytes.
const WINDOW_BYTES_MAX: u64 = 16 << 20;
/// The window is this part of the cache, so that fetches that are not at the same place do not push out each other's pieces.
const WINDOW_PART: u64 = 4;
/// Runs of this length are sent as ranges of their file, which takes no copy. Bytes.
pub(super) const RANGE_RUN_BYTES_MIN: u32 = 128 << 10;
/// Partitions that are looked at while the lock is held once.
const PARTITIONS_PER_LOCK_MAX: usize = 256;

/// What a fetch wants of one partition.
#[derive(Clone, Copy, Debug)]
pub struct ReadWanted {
    /// Whose.
    pub partition: PartitionId,
    /// From where on.
    pub from: Offset,
    /// How much at the most.
    pub bytes_max: usize,
}

/// The stretch of journal that the reads of a fetch keep to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadWindow {
    /// Bytes of journal since the start.
    pub(super) end: u64,
}

/// How a read takes short runs that are in journal files and not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColdRuns {
    /// Not: such a read needs I/O, and [`ShardStore::prefetch`] says which.
    Ask,
    /// As they are: from memory where they were read back, else as ranges of their files.
    Take,
    /// The same up to the end of a window. Beyond it there is nothing, or one entry for a read that must have one.
    Within(ReadWindow),
}

#[derive(Debug)]
struct WantedPiece {
    source: Arc<dyn RangeSource>,
    /// Bytes of journal before it.
    place: u64,
    /// How much of it is committed.
    len: u32,
    /// The end of what is wanted of it.
    end: u32,
    wanted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Unverified {
    partition: PartitionId,
    run: JournalRun,
    sequence: u64,
    position: u64,
}

/// Pieces to be read, and runs in them to be verified. It holds no lock; dropping it is fine.
#[derive(Debug)]
pub struct Prefetch {
    shared: Arc<Shared>,
    pieces: BTreeMap<PieceKey, WantedPiece>,
    unverified: Vec<Unverified>,
    window: ReadWindow,
    /// What may still be wanted. Bytes.
    left: u64,
    /// Planned before the fetch that will want it.
    ahead: bool,
}

impl ShardStore {
    /// What of the journal should be read before a fetch of these partitions is answered. `None` where their messages are in
    /// memory, in segments, in long runs, or too far from each other: then each is best read by itself. The fetch takes `bytes_max` at
    /// the most of all of them.
    #[must_use]
    pub fn prefetch(&self, wanted: &[ReadWanted], bytes_max: usize) -> Option<Prefetch> {
        self.plan(wanted, bytes_max, false)
    }

    /// The same for a fetch that has not been sent yet, so that it need not wait for the disk: `wanted` is where the fetch before it
    /// ended. Pieces that were read ahead and are not used yet take at most one window of the cache, over all readers.
    #[must_use]
    pub fn prefetch_ahead(&self, wanted: &[ReadWanted], bytes_max: usize) -> Option<Prefetch> {
        self.plan(wanted, bytes_max, true)
    }

    fn plan(&self, wanted: &[ReadWanted], bytes_max: usize, ahead: bool) -> Option<Prefetch> {
        let shared = &self.shared;
        let window = window_bytes(shared.read_cache.pieces_max())?;
        let mut base = None;
        for some in wanted.chunks(PARTITIONS_PER_LOCK_MAX) {
            let state = shared.state.lock();
            let places = some.iter().filter_map(|w| ColdRun::all(&state, *w).next()).map(|cold| cold.place());
            base = places.chain(base).min();
        }
        let mut plan = Prefetch {
            shared: shared.clone(),
            pieces: BTreeMap::new(),
            unverified: Vec::new(),
            window: ReadWindow { end: base? + window },
            left: bytes_max as u64,
            ahead,
        };
        for some in wanted.chunks(PARTITIONS_PER_LOCK_MAX) {
            let state = shared.state.lock();
            some.iter().for_each(|wanted| plan.add(&state, *wanted));
        }
        plan.pays(base?).then_some(plan)
    }

    /// Gives back the memory of what was read back and not used since the last call, and of what the tail cache keeps for readers who
    /// have not come by since the call before that.
    pub fn release_unused_reads(&self) {
        self.shared.read_cache.release_unused();
        let mut state = self.shared.state.lock();
        let gone = state.frames.turn_readers();
        state.forget(&gone);
    }
}

fn window_bytes(pieces_max: usize) -> Option<u64> {
    let bytes = pieces_max as u64 * u64::from(PIECE_BYTES);
    (bytes > 0).then(|| (bytes / WINDOW_PART).clamp(u64::from(PIECE_BYTES), WINDOW_BYTES_MAX))
}

/// A short run that is in a journal file and not in memory.
struct ColdRun<'a> {
    run: &'a JournalRun,
    file: &'a super::frames::JournalFile,
    /// Of the run, in the file.
    position: u64,
}

impl<'a> ColdRun<'a> {
    /// Those that a read begins with.
    fn all(state: &'a State, wanted: ReadWanted) -> impl Iterator<Item = ColdRun<'a>> {
        let partition = state.partition(wanted.partition).filter(|p| {
            let fenced = state.next_fence(wanted.partition, wanted.from).is_some_and(|(base, _)| base <= wanted.from);
            !fenced && wanted.from >= p.first() && p.rows.last().is_none_or(|row| row.end <= wanted.from)
        });
        let runs = partition
            .into_iter()
            .flat_map(move |p| p.runs.range(p.runs.partition_point(|run| run.end() <= wanted.from)..));
        let mut left = wanted.bytes_max as u64;
        runs.map_while(move |run| {
            if left == 0 || run.len >= RANGE_RUN_BYTES_MIN || state.frames.tail(run.slot).is_some() {
                return None;
            }
            left = left.saturating_sub(u64::from(run.len));
            let slot = state.frames.slot(run.slot)?;
            let file = state.frames.file(slot)?;
            Some(ColdRun { run, file, position: slot.position + u64::from(run.position) })
        })
    }

    fn place(&self) -> u64 {
        self.file.before + self.position
    }
}

impl Prefetch {
    fn add(&mut self, state: &State, wanted: ReadWanted) {
        let end = self.window.end;
        for cold in ColdRun::all(state, wanted).take_while(|cold| cold.place() < end) {
            if self.left == 0 {
                return;
            }
            self.left = self.left.saturating_sub(u64::from(cold.run.len));
            let ColdRun { run, file, position } = cold;
            for (key, part) in PieceKey::of(file.sequence, position, run.len) {
                let piece = self.pieces.entry(key).or_insert_with(|| WantedPiece {
                    source: file.source.clone(),
                    place: file.before + key.position(),
                    len: u32::try_from(file.end - key.position()).unwrap_or(u32::MAX).min(PIECE_BYTES),
                    end: 0,
                    wanted: 0,
                });
                piece.end = piece.end.max(part.end);
                piece.wanted += u64::from(part.end - part.start);
            }
            if run.marks & VERIFIED == 0 {
                let partition = wanted.partition;
                self.unverified.push(Unverified { partition, run: *run, sequence: file.sequence, position });
            }
        }
    }

    /// Whether the pieces that are missing are worth reading; else what a fetch wanted of them is remembered.
    fn pays(&self, base: u64) -> bool {
        let cache = &self.shared.read_cache;
        let missing = || self.pieces.iter().filter(|(key, piece)| !cache.has(**key, piece.end));
        let bytes: u64 = missing().map(|(_, piece)| u64::from(piece.len)).sum();
        let wanted: u64 = missing().map(|(key, piece)| piece.wanted + cache.declined(*key)).sum();
        let pays = wanted.saturating_mul(WORTH_PART) >= bytes || cache.was_worth_it(base);
        if !pays && !self.ahead {
            missing().for_each(|(key, piece)| cache.decline(*key, piece.wanted));
        }
        pays
    }

    /// Reads and verifies. What cannot be read, or does not verify, is left to the reads, which meet it again by itself. Blocks
    /// on the disk: for a thread that may.
    #[must_use]
    pub fn run(self) -> ReadWindow {
        let cache = &self.shared.read_cache;
        for (key, piece) in &self.pieces {
            if cache.has(*key, piece.end) {
                continue;
            }
            if self.ahead && !cache.has_room_ahead(WINDOW_PART) {
                break;
            }
            let _ = cache.load(*key, piece.place, &*piece.source, piece.len, self.ahead);
        }
        let good: Vec<_> = self.unverified.iter().filter(|unverified| self.verifies(unverified)).collect();
        for some in good.chunks(PARTITIONS_PER_LOCK_MAX) {
            let mut state = self.shared.state.lock();
            some.iter().for_each(|good| state.mark_verified(good.partition, &good.run));
        }
        self.window
    }

    fn verifies(&self, unverified: &Unverified) -> bool {
        let Unverified { run, sequence, position, .. } = unverified;
        let parts = self.shared.read_cache.look(*sequence, *position, run.len);
        parts.is_some_and(|(first, second)| {
            crc::append(crc::crc32c(&first), second.as_deref().unwrap_or_default()) == run.checksum
        })
    }
}
