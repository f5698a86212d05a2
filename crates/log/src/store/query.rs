//! Questions that are answered from memory where possible, and else by a plan that may read the disk.
//!
//! ```text
//!   attempt (lock held, no I/O) ──> done ─────────────────────────────> answer
//!        ^                     └──> need: index piece, blocks to verify, entries of a block, ...
//!        └── load (no lock, I/O; on the caller's thread) <──┘
//! ```

use super::config::LOADS_PER_READ_MAX;
use super::frames::read_entries;
use super::index::{FencedRange, JournalRun, RunRow, State, VERIFIED};
use super::prefetch::{RANGE_RUN_BYTES_MIN, ReadWindow};
use super::read_cache::Parts;
use super::segment::{Entries, Row, SparseIndex, entries};
use super::shared::{Counters, Shared};
use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use polylogue_record::crc;
use polylogue_types::{FileRange, Map, Offset, Ordinal, PartitionId, RangeSource};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Pieces in which blocks are read to be verified. Bytes, unless one block alone is larger.
const VERIFY_PIECE_BYTES: usize = 1 << 20;
/// The least that is fetched from the disk: small entries are read one after the other, and not each of them is to wait. Bytes.
const FETCH_BYTES_MIN: u32 = 32 << 10;
/// A guard: no question needs this many pieces from the disk.
const LOADS_PER_QUESTION_MAX: usize = 4096;

/// An answer, or what has to be done to get it.
#[derive(Debug)]
pub enum Lookup<T> {
    /// It was in memory.
    Ready(T),
    /// The disk has to be asked: see [`IoPlan::run`].
    NeedsIo(IoPlan<T>),
}

impl<T> Lookup<T> {
    /// The answer, with disk I/O on this thread where need be.
    ///
    /// # Errors
    /// As [`IoPlan::run`].
    pub fn wait(self) -> Result<T> {
        match self {
            Lookup::Ready(answer) => Ok(answer),
            Lookup::NeedsIo(plan) => plan.run(),
        }
    }
}

/// A question whose answer needs the disk. It holds no lock and no memory of account; dropping it is fine.
pub struct IoPlan<T> {
    shared: Arc<Shared>,
    query: Box<dyn Query<Out = T> + Send>,
    count: fn(&T, &Counters),
    need: Need,
}

impl<T> fmt::Debug for IoPlan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoPlan").field("need", &self.need).finish_non_exhaustive()
    }
}

impl<T> IoPlan<T> {
    /// Reads what is needed, verifies it where it was not verified before, and answers. Blocks on the disk: for a
    /// thread that may.
    ///
    /// # Errors
    /// `Damaged` when the range asked for does not verify (it is fenced from then on), `OutOfRange` when it was
    /// trimmed meanwhile, `Io`.
    pub fn run(mut self) -> Result<T> {
        let mut loaded = Loaded::default();
        let mut need = std::mem::replace(&mut self.need, Need::Nothing);
        let mut loads = 0;
        loop {
            self.shared.load(need, &mut loaded)?;
            loads += 1;
            let step = self.shared.attempt(&mut *self.query, &loaded)?;
            if loads > LOADS_PER_QUESTION_MAX {
                return Err(Error::new(ErrorKind::Busy, "a question needs more of the disk than one may"));
            }
            need = match step {
                Step::Done(answer) => return Ok(self.counted(answer)),
                Step::Partial(need) => match self.query.so_far().filter(|_| loads >= LOADS_PER_READ_MAX) {
                    Some(answer) => return Ok(self.counted(answer)),
                    None => need,
                },
                Step::Need(need) => need,
                Step::Again => Need::Nothing,
            };
        }
    }

    fn counted(&self, answer: T) -> T {
        (self.count)(&answer, &self.shared.counters);
        answer
    }
}

/// How far an attempt came.
pub(super) enum Step<T> {
    Done(T),
    /// Something could be answered already ([`Query::so_far`]); with the need, more could.
    Partial(Need),
    Need(Need),
    /// Nothing is missing, but the lock was held for long enough.
    Again,
}

/// A question.
pub(super) trait Query {
    type Out;
    /// Answers from memory. The lock is held: no I/O.
    fn attempt(&mut self, view: &View<'_>) -> Result<Step<Self::Out>>;
    /// What the attempts so far have found, if that is an answer.
    fn so_far(&self) -> Option<Self::Out> {
        None
    }
    /// Counts an answer that goes out.
    fn count(_answer: &Self::Out, _counters: &Counters)
    where
        Self: Sized,
    {
    }
}

/// What is missing.
#[derive(Debug)]
pub(super) enum Need {
    Nothing,
    /// The file with the native bytes of a segment.
    Handle {
        segment: u32,
    },
    Sparse {
        partition: PartitionId,
        run: RunRow,
    },
    Verify {
        partition: PartitionId,
        run: RunRow,
        blocks: Range<usize>,
    },
    BlockEntries {
        partition: PartitionId,
        run: RunRow,
        block: usize,
    },
    VerifyRun {
        partition: PartitionId,
        run: JournalRun,
        range: FileRange,
    },
    RunEntries {
        partition: PartitionId,
        run: JournalRun,
        frame: FileRange,
    },
    Bytes {
        range: FileRange,
    },
    /// Pieces of the journal: see [`super::ColdRuns`].
    ReadBack,
}

/// The sparse index of a run with its row.
#[derive(Debug)]
pub(super) struct Sparse {
    pub(super) row: Row,
    pub(super) index: SparseIndex,
}

/// What a plan has read so far. It keeps what the bounded caches may have let go.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    handles: Map<u32, Arc<dyn RangeSource>>,
    sparse: Map<(u32, u32), Arc<Sparse>>,
    blocks: Map<(u32, u32, usize), Entries>,
    runs: Map<(u32, u32), Arc<Entries>>,
    bytes: Option<(u64, Bytes)>,
    /// Runs that were not read back are taken as they are.
    asked: bool,
}

/// What an attempt may look at.
pub(super) struct View<'a> {
    pub(super) state: &'a State,
    pub(super) loaded: &'a Loaded,
    pub(super) shared: &'a Shared,
}

impl<'a> View<'a> {
    pub(super) fn handle(&self, segment: u32) -> Attempt<Arc<dyn RangeSource>> {
        let known = self.loaded.handles.get(&segment).cloned().or_else(|| self.shared.cached_handle(segment));
        Ok(known.ok_or(Need::Handle { segment })?)
    }

    pub(super) fn sparse(&self, partition: PartitionId, run: &RunRow) -> Attempt<Arc<Sparse>> {
        let key = (run.segment, run.row);
        let known = self.loaded.sparse.get(&key).cloned().or_else(|| self.shared.cached_sparse(key));
        Ok(known.ok_or(Need::Sparse { partition, run: *run })?)
    }

    pub(super) fn block_entries(&self, partition: PartitionId, run: &RunRow, block: usize) -> Attempt<&'a Entries> {
        let known = self.loaded.blocks.get(&(run.segment, run.row, block));
        Ok(known.ok_or(Need::BlockEntries { partition, run: *run, block })?)
    }

    pub(super) fn run_entries(&self, partition: PartitionId, run: &JournalRun) -> Attempt<&'a Entries> {
        match self.loaded.runs.get(&(run.slot, run.entry)) {
            Some(entries) => Ok(entries),
            None => Err(Need::RunEntries { partition, run: *run, frame: self.frame_range(run, None)? }.into()),
        }
    }

    /// A range of the file that a journal run is in: the run itself, or the whole frame.
    pub(super) fn frame_range(&self, run: &JournalRun, part: Option<Range<u32>>) -> Result<FileRange> {
        let gone = || Error::new(ErrorKind::OutOfRange, "the frame of a run is gone");
        let slot = self.state.frames.slot(run.slot).ok_or_else(gone)?;
        let file = self.state.frames.file(slot).ok_or_else(gone)?;
        let part = part.unwrap_or(0..slot.len);
        let position = slot.position + u64::from(part.start);
        Ok(FileRange { source: file.source.clone(), position, len: part.end - part.start })
    }

    /// Whether a run of the journal begins behind a window.
    pub(super) fn is_behind(&self, run: &JournalRun, window: ReadWindow) -> bool {
        let frames = &self.state.frames;
        let place = || {
            let slot = frames.slot(run.slot)?;
            Some(frames.file(slot)?.before + slot.position + u64::from(run.position))
        };
        place().is_some_and(|place| place >= window.end)
    }

    /// Whether reading pieces of the journal may help to have a run that is not in the tail.
    pub(super) fn can_be_read_back(&self, run: &JournalRun) -> bool {
        let cache = &self.shared.read_cache;
        let frames = &self.state.frames;
        let place = || {
            let slot = frames.slot(run.slot)?;
            Some((frames.file(slot)?.sequence, slot.position + u64::from(run.position)))
        };
        let missing = |(sequence, position)| run.marks & VERIFIED == 0 || !cache.has_range(sequence, position, run.len);
        let possible = !self.loaded.asked && cache.pieces_max() > 0 && run.len < RANGE_RUN_BYTES_MIN;
        possible && place().is_some_and(missing)
    }

    /// A part of a short run's frame, where it was read back before.
    pub(super) fn read_back(&self, run: &JournalRun, part: Range<u32>) -> Option<Parts> {
        let frames = &self.state.frames;
        let slot = frames.slot(run.slot).filter(|_| run.len < RANGE_RUN_BYTES_MIN)?;
        let position = slot.position + u64::from(part.start);
        self.shared.read_cache.serve(frames.file(slot)?.sequence, position, part.end - part.start)
    }

    pub(super) fn bytes(&self, range: FileRange) -> Attempt<Bytes> {
        match &self.loaded.bytes {
            Some((at, bytes)) if *at == range.position && bytes.len() == range.len as usize => Ok(bytes.clone()),
            _ => Err(Need::Bytes { range }.into()),
        }
    }

    /// The bytes of a range that lies in one block of a segment.
    pub(super) fn verified(
        &self,
        partition: PartitionId,
        run: &RunRow,
        block: usize,
        range: FileRange,
    ) -> Attempt<Bytes> {
        if run.marks & VERIFIED == 0 && !self.state.segments.is_verified(run.segment, run.row, block as u32) {
            return Err(Need::Verify { partition, run: *run, blocks: block..block + 1 }.into());
        }
        self.bytes(range)
    }

    /// Refuses what is known to be damaged.
    pub(super) fn refuse_fenced(&self, id: PartitionId, offsets: Range<Offset>) -> Result<()> {
        match self.state.next_fence(id, offsets.start) {
            Some((base, end)) if base < offsets.end => {
                let what = format!("offsets {base} to {end} of partition {id} are damaged");
                Err(Error::new(ErrorKind::Damaged, what))
            }
            _ => Ok(()),
        }
    }
}

/// Why an attempt stops: something must be loaded first, or it cannot succeed.
#[derive(Debug)]
pub(super) enum Pause {
    Need(Need),
    Error(Error),
}

impl From<Need> for Pause {
    fn from(need: Need) -> Pause {
        Pause::Need(need)
    }
}

impl From<Error> for Pause {
    fn from(error: Error) -> Pause {
        Pause::Error(error)
    }
}

/// Something in memory, or why not.
pub(super) type Attempt<T> = std::result::Result<T, Pause>;

/// An answer is an answer, a need is no error.
pub(super) fn step<T>(attempt: Attempt<T>) -> Result<Step<T>> {
    match attempt {
        Ok(answer) => Ok(Step::Done(answer)),
        Err(Pause::Need(need)) => Ok(Step::Need(need)),
        Err(Pause::Error(error)) => Err(error),
    }
}

impl Shared {
    /// Asks a question; without I/O.
    pub(super) fn ask<Q: Query + Send + 'static>(self: &Arc<Shared>, mut query: Q) -> Result<Lookup<Q::Out>> {
        let loaded = Loaded::default();
        loop {
            return Ok(match self.attempt(&mut query, &loaded)? {
                Step::Done(answer) => {
                    Q::count(&answer, &self.counters);
                    Lookup::Ready(answer)
                }
                Step::Partial(need) | Step::Need(need) => {
                    if let Some(answer) = query.so_far() {
                        Q::count(&answer, &self.counters);
                        return Ok(Lookup::Ready(answer));
                    }
                    let query = Box::new(query);
                    Lookup::NeedsIo(IoPlan { shared: self.clone(), query, count: Q::count, need })
                }
                Step::Again => continue,
            });
        }
    }

    fn attempt<T>(&self, query: &mut dyn Query<Out = T>, loaded: &Loaded) -> Result<Step<T>> {
        let state = self.state.lock();
        query.attempt(&View { state: &state, loaded, shared: self })
    }

    /// Does one piece of I/O. Damage becomes a fence, which the next attempt meets. A segment that has gone meanwhile is no
    /// error: the next attempt finds what has taken its place.
    fn load(&self, need: Need, loaded: &mut Loaded) -> Result<()> {
        match self.fetch(need, loaded) {
            Err(e) if e.kind == ErrorKind::OutOfRange => Ok(()),
            other => other,
        }
    }

    fn fetch(&self, need: Need, loaded: &mut Loaded) -> Result<()> {
        match need {
            Need::Nothing => Ok(()),
            Need::ReadBack => {
                loaded.asked = true;
                Ok(())
            }
            Need::Handle { segment } => {
                let handle = self.handle(segment)?;
                loaded.handles.insert(segment, handle);
                Ok(())
            }
            Need::Sparse { partition, run } => self.fencing(partition, run.base, run.end, |shared| {
                let sparse = shared.sparse(&run)?;
                loaded.sparse.insert((run.segment, run.row), sparse);
                Ok(())
            }),
            Need::Verify { partition, run, blocks } => {
                self.fencing(partition, run.base, run.end, |shared| shared.verify(partition, &run, blocks, loaded))
            }
            Need::BlockEntries { partition, run, block } => self.load_block(partition, &run, block, loaded),
            Need::VerifyRun { partition, run, range } => self.fencing(partition, run.base, run.end(), |shared| {
                shared.verify_run(partition, &run, &range).map(|_| ())
            }),
            Need::RunEntries { partition, run, frame } => self.fencing(partition, run.base, run.end(), |shared| {
                let divided = |shared: &Shared| shared.run_entries(partition, &run, &frame);
                loaded.runs.insert((run.slot, run.entry), shared.divided(&run, divided)?);
                Ok(())
            }),
            Need::Bytes { range } => {
                loaded.bytes = Some((range.position, read(&range)?));
                Ok(())
            }
        }
    }

    /// Runs `body`; what it finds damaged is fenced, and the question goes on to meet the fence.
    fn fencing(
        &self,
        partition: PartitionId,
        base: Offset,
        end: Offset,
        body: impl FnOnce(&Shared) -> Result<()>,
    ) -> Result<()> {
        match body(self) {
            Err(e) if e.kind == ErrorKind::Damaged => {
                self.fence(FencedRange { partition, base, end });
                Ok(())
            }
            other => other,
        }
    }

    /// Reads blocks and holds their checksums against them.
    fn verify(&self, partition: PartitionId, run: &RunRow, blocks: Range<usize>, loaded: &Loaded) -> Result<()> {
        let sparse = loaded.sparse.get(&(run.segment, run.row)).cloned();
        let sparse = sparse.map_or_else(|| self.sparse(run), Ok)?;
        let source = self.handle(run.segment)?;
        let mut next = blocks.start;
        while next < blocks.end {
            let Some(first) = sparse.index.blocks.get(next) else { break };
            let fits = |b: &super::segment::Block| (b.position + b.len - first.position) as usize <= VERIFY_PIECE_BYTES;
            let more = sparse.index.blocks.get(next + 1..blocks.end.max(next + 1)).unwrap_or_default();
            let count = 1 + more.iter().take_while(|b| fits(b)).count();
            let piece = sparse.index.blocks.get(next..next + count).unwrap_or_default();
            let len = piece.iter().map(|b| b.len).sum();
            let position = u64::from(run.position) + u64::from(first.position);
            let bytes = read(&FileRange { source: source.clone(), position, len })?;
            let mut rest: &[u8] = &bytes;
            for (i, block) in piece.iter().enumerate() {
                let (mine, others) = rest.split_at_checked(block.len as usize).unwrap_or_default();
                rest = others;
                self.block_read(partition, run, &sparse, next + i, crc::crc32c(mine) == block.crc);
            }
            next += count;
        }
        Ok(())
    }

    /// Remembers whether a block verifies.
    fn block_read(&self, partition: PartitionId, run: &RunRow, sparse: &Sparse, block: usize, good: bool) {
        let blocks = &sparse.index.blocks;
        let Some(b) = blocks.get(block) else { return };
        if !good {
            let end = blocks.get(block + 1).map_or(run.end, |next| next.base);
            self.fence(FencedRange { partition, base: b.base, end });
            return;
        }
        let mut state = self.state.lock();
        if state.segments.verified(run.segment, run.row, block as u32, blocks.len() as u32)
            && let Some(p) = state.partitions.get_mut(&partition)
        {
            // By its place: a partition has as many rows as its oldest journal files have frames.
            let at = p.rows.partition_point(|r| r.end <= run.base);
            if let Some(r) = p.rows.get_mut(at).filter(|r| (r.segment, r.row) == (run.segment, run.row)) {
                r.marks |= VERIFIED;
            }
        }
    }

    fn load_block(&self, partition: PartitionId, run: &RunRow, block: usize, loaded: &mut Loaded) -> Result<()> {
        let sparse = loaded.sparse.get(&(run.segment, run.row)).cloned();
        let sparse = sparse.map_or_else(|| self.sparse(run), Ok)?;
        let blocks = &sparse.index.blocks;
        let Some(b) = blocks.get(block).copied() else {
            return Err(Error::new(ErrorKind::Invalid, "a run has no such block"));
        };
        let end = blocks.get(block + 1).map_or(run.end, |next| next.base);
        self.fencing(partition, b.base, end, |shared| {
            let entries = shared.block_entries(run, &sparse.row, &b)?;
            loaded.blocks.insert((run.segment, run.row, block), entries);
            Ok(())
        })
    }

    /// Divides a block into entries.
    fn block_entries(&self, run: &RunRow, row: &Row, block: &super::segment::Block) -> Result<Entries> {
        if !entries::describes_itself(run.form) {
            let source = self.index_handle(run.segment)?;
            let position = u64::from(row.tables) + u64::from(block.table);
            let bytes = read(&FileRange { source, position, len: block.table_len })?;
            return Ok(Entries::listed(entries::decode_table(row, block, &bytes)?));
        }
        let source = self.handle(run.segment)?;
        let position = u64::from(run.position) + u64::from(block.position);
        let bytes = read(&FileRange { source, position, len: block.len })?;
        if crc::crc32c(&bytes) != block.crc {
            return Err(Error::new(ErrorKind::Damaged, "a block has a wrong checksum"));
        }
        Ok(Entries::scanned(entries::scan(run.form, &bytes, block.ordinal)?))
    }

    /// Reads a journal run from its file and holds its checksum against it.
    fn verify_run(&self, partition: PartitionId, run: &JournalRun, range: &FileRange) -> Result<Bytes> {
        let bytes = read(range)?;
        if crc::crc32c(&bytes) != run.checksum {
            return Err(Error::new(ErrorKind::Damaged, "a journal run has a wrong checksum"));
        }
        self.state.lock().mark_verified(partition, run);
        Ok(bytes)
    }

    /// Divides a journal run that is not in memory into entries.
    fn run_entries(&self, partition: PartitionId, run: &JournalRun, frame: &FileRange) -> Result<Entries> {
        if entries::describes_itself(run.form) {
            let position = frame.position + u64::from(run.position);
            let range = FileRange { source: frame.source.clone(), position, len: run.len };
            let bytes = self.verify_run(partition, run, &range)?;
            return Ok(Entries::scanned(entries::scan(run.form, &bytes, Ordinal(run.first_ordinal))?));
        }
        let frame = read_entries(frame, read)?;
        let first = run.entry as usize;
        let mine = frame.get(first..first + usize::from(run.entries));
        let mine = mine.ok_or_else(|| Error::new(ErrorKind::Damaged, "a frame has fewer entries than it had"))?;
        let spans = mine.iter().map(|e| {
            let position = e.native.start.wrapping_sub(run.position);
            super::segment::Span::of(&e.envelope, position, e.native.end.wrapping_sub(e.native.start))
        });
        let spans: Vec<_> = spans.collect();
        let inside = |s: &super::segment::Span| s.position.checked_add(s.len).is_some_and(|end| end <= run.len);
        let ours = mine.iter().all(|e| e.envelope.partition == partition);
        if !ours || !spans.iter().all(inside) {
            return Err(Error::new(ErrorKind::Damaged, "a frame has other entries than it had"));
        }
        Ok(Entries { spans, envelopes: mine.iter().map(|e| e.envelope.clone()).collect() })
    }
}

/// Reads a range. Its length comes from verified indexes. What is not in memory is fetched before in pieces that the journal's
/// writes get past; the system's own reading ahead would take much at a time.
pub(super) fn read(range: &FileRange) -> Result<Bytes> {
    read_by(range, |into, position| {
        if !range.source.is_in_memory(position, range.len) {
            // What goes wrong here goes wrong again below, and is said there.
            let _ = range.source.fetch(position, range.len.max(FETCH_BYTES_MIN));
        }
        range.source.read_exact_at(into, position)
    })
}

/// As [`read`], of what goes elsewhere now: readers will not find it here again.
pub(super) fn read_once(range: &FileRange) -> Result<Bytes> {
    read_by(range, |into, position| range.source.read_once_at(into, position))
}

/// As [`read`], of what is in memory.
pub(super) fn read_kept(range: &FileRange) -> Result<Bytes> {
    read_by(range, |into, position| range.source.read_exact_at(into, position))
}

fn read_by(range: &FileRange, by: impl FnOnce(&mut [u8], u64) -> std::io::Result<()>) -> Result<Bytes> {
    let mut bytes = vec![0; range.len as usize];
    by(&mut bytes, range.position).map_err(|e| {
        let kind = if e.kind() == std::io::ErrorKind::UnexpectedEof { ErrorKind::Damaged } else { ErrorKind::Io };
        Error { kind, context: format!("cannot read {} bytes at {}", range.len, range.position), source: Some(e) }
    })?;
    Ok(Bytes::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::io;

    /// A file of zeros, in memory as far as it was fetched.
    #[derive(Debug, Default)]
    struct OnDisk(Mutex<Vec<Range<u64>>>);

    impl RangeSource for OnDisk {
        fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
            assert!(self.is_in_memory(position, into.len() as u32), "the system would read ahead");
            Ok(())
        }

        fn is_in_memory(&self, position: u64, len: u32) -> bool {
            self.0.lock().iter().any(|range| range.start <= position && position + u64::from(len) <= range.end)
        }

        fn fetch(&self, position: u64, len: u32) -> io::Result<()> {
            self.0.lock().push(position..position + u64::from(len));
            Ok(())
        }

        fn raw_fd(&self) -> Option<i32> {
            None
        }
    }

    #[test]
    fn what_is_read_is_fetched_before_and_small_reads_bring_their_neighbours() {
        let source = Arc::new(OnDisk::default());
        let read = |position, len| read(&FileRange { source: source.clone(), position, len }).unwrap().len();
        assert_eq!((read(1_000, 10), read(1_010, 1_000), read(1, 1_000_000)), (10, 1_000, 1_000_000));
        assert_eq!(*source.0.lock(), [1_000..1_000 + u64::from(FETCH_BYTES_MIN), 1..1_000_001]);
    }
}
