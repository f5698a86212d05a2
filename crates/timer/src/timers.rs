//! The set of pending timers.

use crate::bucket::{Bucket, Drain, LEVEL_MAX, Op, PART_OPS_MAX, PARTS_MAX, Part, ahead_ms, merge, start_of, width_ms};
use crate::codec::{
    ChunkId, Counters, decode_drains, decode_ops, decode_parts, decode_record, encode_drains, encode_ops, encode_parts,
};
use crate::id::{DEADLINE_MS_MAX, TimerId, TimerOp};
use bytes::Bytes;
use polylogue_types::bin::BinError;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// Operations in memory and in no checkpoint from which [`Timers::wants_checkpoint`] is true and parts of wide buckets are no longer
/// requested. One takes about 70 bytes.
pub const UNSAVED_OPS_MAX: usize = 1 << 18;

/// The result of [`Timers::due`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// More timers are due than the limit.
    pub more: bool,
    /// Timers that may be due are on disk: [`Timers::wanted`] names their chunks. They are late until loaded, never lost.
    pub waiting: bool,
}

/// See the crate's documentation.
#[derive(Debug, Default)]
pub struct Timers {
    counters: Counters,
    /// The latest time that was reported.
    now_ms: u64,
    /// All timers with earlier deadlines are in memory. A start of a narrowest bucket.
    near_end: u64,
    /// By their starts. They do not overlap.
    buckets: BTreeMap<u64, Bucket>,
    /// Parts of buckets that were split.
    drains: VecDeque<Drain>,
    /// Pending timers of the buckets in memory that were not returned by [`Timers::due`].
    ready: BTreeSet<TimerId>,
    /// Timers that [`Timers::due`] returned and whose removal is not applied yet.
    handed: BTreeSet<TimerId>,
    unsaved_ops: usize,
    /// Operations that were put into parts since the last checkpoint was taken.
    early_ops: usize,
    /// Earliest time at which the next bucket has to be opened.
    wake_ms: u64,
    changed: BTreeSet<ChunkId>,
    /// Chunks in a checkpoint that is not confirmed: the number of the latest that has them, and their content.
    unconfirmed: BTreeMap<ChunkId, (u64, Option<Bytes>)>,
    checkpoints: u64,
}

impl Timers {
    /// An empty one.
    #[must_use]
    pub fn new() -> Timers {
        Timers::default()
    }

    /// The latest frame time.
    #[must_use]
    pub fn frame_ms(&self) -> u64 {
        self.counters.frame_ms
    }

    /// The deadline that stands for a wish: not before the latest time there was, not after the last there can be. A caller that inserts a
    /// timer takes this, and removes it by this.
    #[must_use]
    pub fn deadline_ms(&self, wish_ms: i64) -> u64 {
        u64::try_from(wish_ms).unwrap_or(0).max(self.now_ms).min(DEADLINE_MS_MAX)
    }

    /// The number of pending timers. An estimate while insertions and removals of one timer are on disk unmatched, and when timers on disk are
    /// inserted twice or removed without being there.
    #[must_use]
    pub fn pending(&self) -> u64 {
        let buckets: i64 = self.buckets.values().map(Bucket::pending).sum();
        let drains: i64 = self.drains.iter().map(|drain| drain.part.pending()).sum();
        u64::try_from(buckets + drains).unwrap_or(0)
    }

    /// The number of timers and operations in memory, to which memory use is proportional.
    #[must_use]
    pub fn resident(&self) -> usize {
        let read: usize = self.buckets.values().map(|bucket| bucket.read.len()).sum();
        self.ready.len() + self.handed.len() + self.unsaved_ops + read
    }

    /// Timers that [`Timers::due`] returned and whose removal is not yet applied.
    #[must_use]
    pub fn handed(&self) -> usize {
        self.handed.len()
    }

    /// Applies a committed record at its frame's time.
    ///
    /// # Errors
    /// The record cannot be decoded.
    pub fn apply(&mut self, record: &[u8], time_ms: i64) -> Result<(), String> {
        let ops = decode_record(record).map_err(|e: BinError| format!("a record of timers cannot be read: {e}"))?;
        self.note_frame(time_ms);
        ops.into_iter().for_each(|op| self.change(op.id(), matches!(op, TimerOp::Insert(_))));
        Ok(())
    }

    /// A timer follows from something else that is committed, in a frame of this time. What is later than the last deadline there can be is
    /// due then.
    pub fn insert(&mut self, id: TimerId, time_ms: i64) {
        self.note_frame(time_ms);
        self.change(TimerId { deadline_ms: id.deadline_ms.min(DEADLINE_MS_MAX), ..id }, true);
    }

    fn note_frame(&mut self, time_ms: i64) {
        let time_ms = u64::try_from(time_ms).unwrap_or(0).min(DEADLINE_MS_MAX);
        self.counters.frame_ms = self.counters.frame_ms.max(time_ms);
        self.now_ms = self.now_ms.max(self.counters.frame_ms);
        self.changed.insert(ChunkId::Counters);
    }

    fn change(&mut self, id: TimerId, insert: bool) {
        let op = Op { seq: self.counters.next_seq, insert };
        self.counters.next_seq += 1;
        if id.deadline_ms < self.near_end {
            self.change_near(id, op);
        } else {
            self.change_far(id, op);
        }
    }

    /// Appends up to `limit` due timers to `out`, in order of deadline. They are not returned again, and stay pending until
    /// their removal is applied.
    pub fn due(&mut self, now_ms: i64, limit: usize, out: &mut Vec<TimerId>) -> Due {
        self.advance(now_ms);
        let is_due = |id: &&TimerId| id.deadline_ms <= self.now_ms;
        let from = out.len();
        out.extend(self.ready.iter().take_while(is_due).take(limit));
        for id in out.get(from..).unwrap_or_default() {
            self.ready.remove(id);
            self.handed.insert(*id);
        }
        let more = self.ready.first().is_some_and(|id| id.deadline_ms <= self.now_ms);
        Due { more, waiting: self.near_end <= self.now_ms }
    }

    /// When to call [`Timers::due`] next, unless chunks are loaded or records applied before: a deadline, or a bucket that is to be opened.
    /// `None` if there is nothing to wait for.
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        let ready = self.ready.first().map(|id| id.deadline_ms);
        let open = Some(self.wake_ms).filter(|wake| *wake < u64::MAX);
        ready.into_iter().chain(open).min()
    }

    /// Makes the returned timers due again, as their proposed records are void. Called after replay as well.
    pub fn reset_tail(&mut self) {
        self.ready.append(&mut self.handed);
    }

    /// Advances the time and opens the buckets whose lead time has begun.
    pub fn advance(&mut self, now_ms: i64) {
        self.now_ms = self.now_ms.max(u64::try_from(now_ms).unwrap_or(0)).min(DEADLINE_MS_MAX);
        self.open_near();
        self.load_unconfirmed();
    }

    /// Loads the wanted parts that are still in memory, because no checkpoint is confirmed to hold them.
    fn load_unconfirmed(&mut self) {
        loop {
            let known = |number: &u64| matches!(self.unconfirmed.get(&ChunkId::Part(*number)), Some((_, Some(_))));
            let wanted: Vec<u64> = self.wanted_parts().filter(known).collect();
            if wanted.is_empty() {
                return;
            }
            for number in wanted {
                let Some((_, Some(chunk))) = self.unconfirmed.get(&ChunkId::Part(number)) else { continue };
                let chunk = chunk.clone();
                // Written by this very state, it can be read; what a damaged checkpoint says of it may be wrong, and then it stays wanted.
                if self.load_part(&ChunkId::Part(number).encode(), &chunk).is_err() {
                    return;
                }
            }
        }
    }

    /// When the first bucket that is neither in memory nor being loaded is to be opened. One that should be by now waits for parts that
    /// are to be spread first: loading them opens it.
    fn next_wake(&self) -> u64 {
        let far = self.buckets.range(self.near_end..).filter(|(_, bucket)| !bucket.opening);
        let open = far.map(|(start, bucket)| start.saturating_sub(ahead_ms(bucket.level)));
        open.filter(|wake| *wake > self.now_ms).min().unwrap_or(u64::MAX)
    }

    /// Splits the wide buckets that are no longer far enough away for their width.
    fn split_wide(&mut self) {
        loop {
            let now = self.now_ms;
            let near = |(start, bucket): &(&u64, &Bucket)| {
                bucket.level > 0 && start.saturating_sub(ahead_ms(bucket.level)) <= now
            };
            let Some(start) = self.buckets.range(self.near_end..).find(near).map(|(start, _)| *start) else { return };
            self.split(start);
        }
    }

    fn split(&mut self, start: u64) {
        let Some(bucket) = self.buckets.remove(&start) else { return };
        let end = start + width_ms(bucket.level);
        self.changed.insert(ChunkId::Bucket { start, level: bucket.level });
        self.drains.extend(bucket.parts.into_iter().map(|part| Drain { start, end, part }));
        self.changed.insert(ChunkId::Drains);
        self.unsaved_ops -= bucket.unsaved.len();
        for (id, op) in bucket.unsaved {
            self.change_far(id, op);
        }
    }

    /// Loads the narrow buckets that have come near, in their order, as far as their content is there.
    fn open_near(&mut self) {
        // A frame may have reported the time before.
        if self.wake_ms <= self.now_ms {
            self.split_wide();
        }
        let target = start_of(0, self.now_ms + ahead_ms(0)) + width_ms(0);
        self.move_near_end(target);
        for (_, bucket) in self.buckets.range_mut(self.near_end..target.max(self.near_end)) {
            if bucket.level == 0 && !std::mem::replace(&mut bucket.opening, true) {
                bucket.missing = bucket.parts.iter().map(|part| part.number).collect();
            }
        }
        self.wake_ms = self.next_wake();
    }

    fn move_near_end(&mut self, target: u64) {
        while self.near_end < target {
            let drained = self.drains.iter().map(|drain| drain.start).min().unwrap_or(u64::MAX);
            let next = self.buckets.range(self.near_end..).next().map(|(start, bucket)| (*start, bucket.level));
            match next {
                _ if drained <= self.near_end => return,
                Some((start, 0)) if start == self.near_end => {
                    if !self.load(start) {
                        return;
                    }
                    self.near_end += width_ms(0);
                }
                Some((start, _)) if start == self.near_end => self.split(start),
                next => {
                    let start = next.map_or(target, |(start, _)| start.min(target));
                    self.near_end = start.min(start_of(0, drained));
                }
            }
        }
    }

    /// Loads a narrow bucket into memory; `false` while parts of it are still to be read.
    fn load(&mut self, start: u64) -> bool {
        let Some(bucket) = self.buckets.get_mut(&start) else { return true };
        if !std::mem::replace(&mut bucket.opening, true) {
            bucket.missing = bucket.parts.iter().map(|part| part.number).collect();
        }
        if !bucket.missing.is_empty() {
            return false;
        }
        let mut all = std::mem::take(&mut bucket.read);
        // From here on `unsaved` is how the bucket differs from its parts: what says what they say is left out.
        let before = bucket.unsaved.len();
        bucket.unsaved.retain(|id, op| match all.get(id) {
            Some(saved) => saved.seq < op.seq && saved.insert != op.insert,
            None => op.insert,
        });
        self.unsaved_ops = self.unsaved_ops + bucket.unsaved.len() - before;
        bucket.unsaved.iter().for_each(|(id, op)| merge(&mut all, *id, *op));
        let live = all.into_iter().filter(|(_, op)| op.insert).map(|(id, _)| id);
        let before = self.ready.len();
        self.ready.extend(live);
        bucket.live = Some((self.ready.len() - before) as u64);
        self.drop_empty(start);
        true
    }

    /// Drops a bucket in memory that has no timer left, with its parts.
    fn drop_empty(&mut self, start: u64) {
        if self.buckets.get(&start).is_none_or(|bucket| bucket.live != Some(0)) {
            return;
        }
        let Some(bucket) = self.buckets.remove(&start) else { return };
        self.unsaved_ops -= bucket.unsaved.len();
        self.changed.insert(ChunkId::Bucket { start, level: bucket.level });
        self.changed.extend(bucket.parts.iter().map(|part| ChunkId::Part(part.number)));
    }

    /// Applies an operation on a timer of a bucket in memory.
    fn change_near(&mut self, id: TimerId, op: Op) {
        let start = start_of(0, id.deadline_ms);
        let done = match op.insert {
            true => !self.handed.contains(&id) && self.ready.insert(id),
            false => self.ready.remove(&id) || self.handed.remove(&id),
        };
        if !done {
            return;
        }
        let bucket =
            self.buckets.entry(start).or_insert_with(|| Bucket { live: Some(0), opening: true, ..Bucket::new(0) });
        let live = bucket.live.get_or_insert(0);
        *live = if op.insert { *live + 1 } else { live.saturating_sub(1) };
        // What undoes an operation that no part holds leaves what the parts say.
        if bucket.unsaved.remove(&id).is_some() {
            self.unsaved_ops -= 1;
        } else {
            bucket.unsaved.insert(id, op);
            self.unsaved_ops += 1;
        }
        self.drop_empty(start);
    }

    /// Applies an operation on a timer of a bucket on disk, where it is unknown whether the timer is pending.
    fn change_far(&mut self, id: TimerId, op: Op) {
        let start = self.bucket_of(id.deadline_ms);
        let Some(bucket) = self.buckets.get_mut(&start) else { return };
        let before = bucket.unsaved.len();
        merge(&mut bucket.unsaved, id, op);
        // Nothing on disk that it could undo: then it has nothing to say.
        let drained = || self.drains.iter().any(|drain| (drain.start..drain.end).contains(&id.deadline_ms));
        if !op.insert && bucket.parts.is_empty() && !drained() {
            bucket.unsaved.remove(&id);
        }
        self.unsaved_ops = self.unsaved_ops + bucket.unsaved.len() - before;
        if bucket.unsaved.is_empty() && bucket.parts.is_empty() && !bucket.opening {
            let level = bucket.level;
            self.buckets.remove(&start);
            self.changed.insert(ChunkId::Bucket { start, level });
        } else if bucket.unsaved.len() >= PART_OPS_MAX {
            // As many as make a part are written as one at once: all of them together would keep others waiting when a checkpoint is
            // taken.
            self.early_ops += bucket.unsaved.len();
            self.save(start, self.checkpoints + 1);
        }
    }

    /// The start of the bucket of a time that is not near: the one that is there, or else the widest that fits between those that are
    /// there and is far enough away for its width.
    fn bucket_of(&mut self, time_ms: u64) -> u64 {
        if let Some((start, bucket)) = self.buckets.range(..=time_ms).next_back()
            && time_ms < start + width_ms(bucket.level)
        {
            return *start;
        }
        let fits = |level: &u8| {
            let start = start_of(*level, time_ms);
            let far = *level == 0 || start.saturating_sub(ahead_ms(*level)) > self.now_ms;
            let free = self.buckets.range(start..start + width_ms(*level)).next().is_none();
            far && free && start >= self.near_end
        };
        let level = (0..=LEVEL_MAX).rev().find(fits).unwrap_or(0);
        let start = start_of(level, time_ms);
        self.buckets.insert(start, Bucket::new(level));
        self.wake_ms = self.wake_ms.min(start.saturating_sub(ahead_ms(level)));
        start
    }

    /// The names of up to `limit` chunks whose content is needed now, the most urgent first. The caller reads them and passes them to
    /// [`Timers::load_part`].
    #[must_use]
    pub fn wanted(&self, limit: usize) -> Vec<Bytes> {
        self.wanted_parts().take(limit).map(|number| ChunkId::Part(number).encode()).collect()
    }

    fn wanted_parts(&self) -> impl Iterator<Item = u64> {
        let opening = self.buckets.range(self.near_end..).filter(|(_, bucket)| bucket.opening);
        let missing = opening.flat_map(|(_, bucket)| bucket.missing.iter().copied());
        // What is spread over other buckets is in memory until the next checkpoint. What is late anyhow does not wait for one.
        let room = self.unsaved_ops < UNSAVED_OPS_MAX;
        let late = move |drain: &&Drain| room || drain.start <= self.now_ms + ahead_ms(0);
        missing.chain(self.drains.iter().filter(late).map(|drain| drain.part.number))
    }

    /// Loads the content of a wanted chunk. A chunk that is no longer wanted is ignored.
    ///
    /// # Errors
    /// The chunk cannot be decoded. It stays wanted.
    pub fn load_part(&mut self, id: &[u8], chunk: &[u8]) -> Result<(), String> {
        let Some(ChunkId::Part(number)) = ChunkId::decode(id) else {
            return Err(format!("the timers have no part named {id:?}"));
        };
        let ops = decode_ops(chunk).map_err(|e| format!("part {number} of the timers cannot be read: {e}"))?;
        if let Some(at) = self.drains.iter().position(|drain| drain.part.number == number) {
            return self.drain(at, ops);
        }
        let mut opening = self.buckets.range_mut(self.near_end..);
        let Some((start, bucket)) = opening.find(|(_, bucket)| bucket.missing.contains(&number)) else { return Ok(()) };
        within(*start..start + width_ms(bucket.level), number, &ops)?;
        bucket.missing.remove(&number);
        ops.into_iter().for_each(|(id, op)| merge(&mut bucket.read, id, op));
        if bucket.missing.is_empty() {
            self.open_near();
        }
        Ok(())
    }

    /// The times of the timers that a part holds, whether it is wanted or not; `None` if the state no longer depends on it.
    #[must_use]
    pub fn span(&self, id: &[u8]) -> Option<Range<u64>> {
        let Some(ChunkId::Part(number)) = ChunkId::decode(id) else { return None };
        if let Some(drain) = self.drains.iter().find(|drain| drain.part.number == number) {
            return Some(drain.start..drain.end);
        }
        let holds = |bucket: &Bucket| bucket.parts.iter().any(|part| part.number == number);
        let (start, bucket) = self.buckets.iter().find(|(_, bucket)| holds(bucket))?;
        Some(*start..start + width_ms(bucket.level))
    }

    /// A part can be read nowhere, and the owner of the timers has inserted again what it knows to be in it. Nothing waits for it any more.
    /// What it said was removed, and other parts hold, is due again.
    pub fn lose_part(&mut self, id: &[u8]) {
        let Some(ChunkId::Part(number)) = ChunkId::decode(id) else { return };
        if let Some(at) = self.drains.iter().position(|drain| drain.part.number == number) {
            _ = self.drain(at, Vec::new());
            return;
        }
        let holds = |bucket: &Bucket| bucket.parts.iter().any(|part| part.number == number);
        let Some((start, bucket)) = self.buckets.iter_mut().find(|(_, bucket)| holds(bucket)) else { return };
        if bucket.live.is_some() {
            // Its timers are here: all of them are to be written again.
            self.changed.extend(bucket.parts.drain(..).map(|part| ChunkId::Part(part.number)));
            self.changed.insert(ChunkId::Bucket { start: *start, level: bucket.level });
            let times = *start..start + width_ms(bucket.level);
            let here = |id: &&TimerId| times.contains(&id.deadline_ms);
            let op = Op { seq: self.counters.next_seq, insert: true };
            let all = self.ready.iter().chain(&self.handed).filter(here).map(|id| (*id, op));
            let before = std::mem::replace(&mut bucket.unsaved, all.collect()).len();
            self.unsaved_ops = self.unsaved_ops + bucket.unsaved.len() - before;
            self.counters.next_seq += 1;
            return;
        }
        bucket.missing.remove(&number);
        // What was read may be of this one: all of it is to be written again.
        let before = bucket.unsaved.len();
        std::mem::take(&mut bucket.read).into_iter().for_each(|(id, op)| merge(&mut bucket.unsaved, id, op));
        self.unsaved_ops = self.unsaved_ops + bucket.unsaved.len() - before;
        let stays = |part: &Part| part.number != number && (!bucket.opening || bucket.missing.contains(&part.number));
        let (parts, gone) = std::mem::take(&mut bucket.parts).into_iter().partition(stays);
        bucket.parts = parts;
        let gone: Vec<Part> = gone;
        self.changed.insert(ChunkId::Bucket { start: *start, level: bucket.level });
        self.changed.extend(gone.into_iter().map(|part| ChunkId::Part(part.number)));
        if bucket.opening {
            self.open_near();
        }
    }

    fn drain(&mut self, at: usize, ops: Vec<(TimerId, Op)>) -> Result<(), String> {
        let Some(drain) = self.drains.get(at).copied() else { return Ok(()) };
        within(drain.start..drain.end, drain.part.number, &ops)?;
        for (id, op) in ops {
            self.change_far(id, op);
        }
        self.drains.remove(at);
        self.changed.extend([ChunkId::Drains, ChunkId::Part(drain.part.number)]);
        self.open_near();
        Ok(())
    }

    /// Whether enough operations are in memory only for a checkpoint to be due.
    #[must_use]
    pub fn wants_checkpoint(&self) -> bool {
        self.unsaved_ops + self.early_ops >= UNSAVED_OPS_MAX
    }

    /// Whether a chunk is one whose content is not needed at a start.
    #[must_use]
    pub fn is_lazy(id: &[u8]) -> bool {
        matches!(ChunkId::decode(id), Some(ChunkId::Part(_)))
    }

    /// The chunks that changed since the last checkpoint that was confirmed, `None` for those that are gone, and the number by
    /// which to confirm this one. They belong together: all are written, or none.
    pub fn take_changed_chunks(&mut self) -> (u64, Vec<(Bytes, Option<Bytes>)>) {
        self.checkpoints += 1;
        self.early_ops = 0;
        let starts: Vec<u64> = self.buckets.iter().filter(|(_, b)| !b.unsaved.is_empty()).map(|(s, _)| *s).collect();
        starts.into_iter().for_each(|start| self.save(start, self.checkpoints));
        for id in std::mem::take(&mut self.changed) {
            let chunk = match id {
                ChunkId::Counters => Some(self.counters.encode()),
                ChunkId::Drains => Some(encode_drains(self.drains.iter())),
                ChunkId::Bucket { start, level } => {
                    let bucket = self.buckets.get(&start).filter(|bucket| bucket.level == level);
                    bucket.map(|bucket| encode_parts(&bucket.parts))
                }
                // New ones stand among the unconfirmed already.
                ChunkId::Part(_) => None,
            };
            self.unconfirmed.insert(id, (self.checkpoints, chunk));
        }
        self.unconfirmed.values_mut().for_each(|(since, _)| *since = self.checkpoints);
        let chunks = self.unconfirmed.iter().map(|(id, (_, chunk))| (id.encode(), chunk.clone())).collect();
        (self.checkpoints, chunks)
    }

    /// Whether a part is in memory, because no checkpoint is confirmed to hold it.
    #[must_use]
    pub fn is_unconfirmed(&self, id: &[u8]) -> bool {
        ChunkId::decode(id).is_some_and(|id| matches!(self.unconfirmed.get(&id), Some((_, Some(_)))))
    }

    /// Marks every chunk as changed except parts, which are immutable.
    pub fn change_all_chunks(&mut self) {
        self.changed.extend([ChunkId::Counters, ChunkId::Drains]);
        let buckets = self.buckets.iter().map(|(start, bucket)| (*start, bucket.level));
        self.changed.extend(buckets.map(|(start, level)| ChunkId::Bucket { start, level }));
    }

    /// Confirms that a checkpoint is on disk: releases from memory the parts that it holds.
    pub fn saved(&mut self, checkpoint: u64) {
        self.unconfirmed.retain(|_, (since, _)| *since > checkpoint);
    }

    /// Writes what a bucket has unsaved into parts, which this checkpoint is the first to hold.
    fn save(&mut self, start: u64, checkpoint: u64) {
        let Some(bucket) = self.buckets.get_mut(&start) else { return };
        let unsaved: Vec<_> = std::mem::take(&mut bucket.unsaved).into_iter().collect();
        self.unsaved_ops -= unsaved.len();
        for ops in unsaved.chunks(PART_OPS_MAX) {
            let part = Part::of(self.counters.next_part, ops);
            self.counters.next_part += 1;
            bucket.parts.push(part);
            if bucket.opening && bucket.live.is_none() {
                // Others of its parts are being read; these need not be.
                ops.iter().for_each(|(id, op)| merge(&mut bucket.read, *id, *op));
            }
            self.unconfirmed.insert(ChunkId::Part(part.number), (checkpoint, Some(encode_ops(ops))));
        }
        let end = start + width_ms(bucket.level);
        let small = |part: &Part| part.ops() < PART_OPS_MAX / 2;
        if bucket.parts.len() > PARTS_MAX && !bucket.opening && bucket.parts.iter().filter(|p| small(p)).count() > 1 {
            // Read again and written together.
            let few = std::mem::take(&mut bucket.parts);
            let (few, full) = few.into_iter().partition(small);
            bucket.parts = full;
            let few: Vec<Part> = few;
            self.drains.extend(few.into_iter().map(|part| Drain { start, end, part }));
            self.changed.insert(ChunkId::Drains);
        }
        self.changed.extend([ChunkId::Counters, ChunkId::Bucket { start, level: bucket.level }]);
    }

    /// The names of all parts that this state refers to: a checkpoint that lacks one of them is damaged.
    #[must_use]
    pub fn parts(&self) -> Vec<Bytes> {
        let drained = self.drains.iter().map(|drain| drain.part);
        let parts = self.buckets.values().flat_map(|bucket| bucket.parts.iter().copied()).chain(drained);
        parts.map(|part| ChunkId::Part(part.number).encode()).collect()
    }

    /// All pending timers, wherever they are kept: what two sets that applied the same records agree on, whatever their checkpoints and clocks
    /// were. `read` returns a part that is on disk, by its name. Costs memory and time by the number of timers.
    ///
    /// # Errors
    /// Why a part cannot be read.
    pub fn pending_ids(
        &self,
        read: &mut dyn FnMut(&Bytes) -> Result<Bytes, String>,
    ) -> Result<BTreeSet<TimerId>, String> {
        let mut ops = BTreeMap::new();
        let far = || self.buckets.values().filter(|bucket| bucket.live.is_none());
        let parts = far().flat_map(|bucket| &bucket.parts).chain(self.drains.iter().map(|drain| &drain.part));
        for part in parts {
            let id = ChunkId::Part(part.number);
            let chunk = match self.unconfirmed.get(&id) {
                Some((_, Some(chunk))) => chunk.clone(),
                _ => read(&id.encode())?,
            };
            let read = decode_ops(&chunk).map_err(|e| format!("part {} of the timers: {e}", part.number))?;
            read.into_iter().for_each(|(id, op)| merge(&mut ops, id, op));
        }
        let unsaved = far().flat_map(|bucket| bucket.unsaved.iter().chain(&bucket.read));
        unsaved.for_each(|(id, op)| merge(&mut ops, *id, *op));
        let far = ops.into_iter().filter(|(_, op)| op.insert).map(|(id, _)| id);
        Ok(far.chain(self.ready.iter().copied()).chain(self.handed.iter().copied()).collect())
    }

    /// Restores a chunk of a checkpoint, before replay; in any order. Lazy ones may be left out.
    ///
    /// # Errors
    /// The chunk cannot be decoded.
    pub fn load_chunk(&mut self, id: &[u8], chunk: &[u8]) -> Result<(), String> {
        let bad = |e: BinError| format!("the timers' chunk {id:?} cannot be read: {e}");
        match ChunkId::decode(id).ok_or_else(|| format!("the timers have no chunk named {id:?}"))? {
            ChunkId::Counters => {
                let counters = Counters::decode(chunk).map_err(bad)?;
                self.counters = Counters { next_part: counters.next_part.max(self.counters.next_part), ..counters };
                self.now_ms = self.now_ms.max(self.counters.frame_ms);
            }
            ChunkId::Drains => {
                self.drains = decode_drains(chunk).map_err(bad)?.into();
                let drained = self.drains.iter().map(|drain| drain.part.number + 1).max();
                self.counters.next_part = self.counters.next_part.max(drained.unwrap_or(0));
            }
            ChunkId::Bucket { start, level } => {
                if level > LEVEL_MAX || start != start_of(level, start) || start > DEADLINE_MS_MAX {
                    return Err(format!("the timers have no bucket of level {level} at {start} ms"));
                }
                let parts = decode_parts(chunk).map_err(bad)?;
                let last = parts.iter().map(|part| part.number + 1).max();
                self.counters.next_part = self.counters.next_part.max(last.unwrap_or(0));
                self.buckets.insert(start, Bucket { parts, ..Bucket::new(level) });
            }
            ChunkId::Part(_) => {}
        }
        Ok(())
    }
}

/// Checks that all deadlines of a part are within its bounds.
fn within(times: Range<u64>, number: u64, ops: &[(TimerId, Op)]) -> Result<(), String> {
    match ops.iter().find(|(id, _)| !times.contains(&id.deadline_ms)) {
        None => Ok(()),
        Some((id, _)) => {
            Err(format!("part {number} of the timers holds one at {} ms, outside of {times:?}", id.deadline_ms))
        }
    }
}
