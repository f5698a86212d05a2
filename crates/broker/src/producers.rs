//! Idempotent producers of a partition: the batches written, so that a retry gets the first reply and is not written again.
//!
//! The semantics are Kafka's (ProducerAppendInfo, KIP-98): the last five batches are kept; an exact repeat of one of them succeeds with its first
//! reply; a gap or a lower epoch is refused; a new epoch starts at sequence 0; an unknown producer may start at any sequence.
//!
//! Tail and applied state share one window: a batch is applied if its offset is below the partition's high watermark, otherwise it is tail. So a
//! duplicate of an uncommitted batch is recognized (its reply waits for the commit), and loss of the writer drops the batches at and above the high
//! watermark. At least the last five *applied* batches are always kept, because the tail may be dropped. Applied state changes by frames alone, and
//! is the same on each node: producers expire by the times of frames.

use polylogue_api::{AppendError, ProducerInfo, ProducerStamp};
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use polylogue_types::{Map, Offset, ProducerId, TimestampMs};
use std::collections::VecDeque;

/// Applied batches kept per producer (Kafka's `NUM_BATCHES_TO_RETAIN`).
const BATCHES_KEPT: usize = 5;
/// Producers kept per partition, without those that have only uncommitted batches. Above it the least recently active one is dropped. Kafka has no
/// such bound.
pub(crate) const PRODUCERS_PER_PARTITION_MAX: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Batch {
    base_offset: Offset,
    count: u32,
    base_sequence: i32,
    epoch: i16,
    max_timestamp: TimestampMs,
}

/// A batch to record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NewBatch {
    pub(crate) base_offset: Offset,
    pub(crate) count: u32,
    pub(crate) max_timestamp: TimestampMs,
}

impl Batch {
    fn last_sequence(&self) -> i32 {
        advance(self.base_sequence, self.count - 1)
    }

    fn end(&self) -> Offset {
        self.base_offset.plus(u64::from(self.count))
    }
}

/// Advances a sequence, which wraps from `i32::MAX` to 0.
fn advance(sequence: i32, by: u32) -> i32 {
    ((i64::from(sequence) + i64::from(by)) & i64::from(i32::MAX)) as i32
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Producer {
    batches: VecDeque<Batch>,
    /// Last activity, by proposed and committed batches.
    last_time_ms: TimestampMs,
    /// The time of the last frame with a batch of this producer.
    applied_ms: TimestampMs,
    /// Epoch and sequence of its first batch, if that was refused and no other is recorded: a following batch must not be taken for the start of an
    /// unknown producer, or the retry of the first would be out of order. Soft.
    expects: Option<(i16, i32)>,
}

impl Producer {
    /// Drops batches that are followed by five batches that can no longer be dropped.
    fn drop_old(&mut self, high_watermark: Offset) {
        while self.batches.get(BATCHES_KEPT).is_some_and(|b| b.end() <= high_watermark) {
            self.batches.pop_front();
        }
    }

    fn is_applied(&self, high_watermark: Offset) -> bool {
        self.batches.front().is_some_and(|b| b.end() <= high_watermark)
    }

    /// Drops the applied batches. Returns whether there were any.
    fn forget_applied(&mut self, high_watermark: Offset) -> bool {
        let is_applied = self.is_applied(high_watermark);
        while self.batches.pop_front_if(|b| b.end() <= high_watermark).is_some() {}
        is_applied
    }
}

/// The decision about a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Write it.
    Write,
    /// The batch is a duplicate: its offset and largest timestamp.
    Duplicate { base_offset: Offset, max_timestamp: TimestampMs },
}

/// The producers of one partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Producers {
    by_id: Map<ProducerId, Producer>,
    /// Number of producers with applied batches.
    applied: usize,
}

impl Producers {
    /// Checks a batch without changes. Producers last active before `oldest_ms` count as unknown.
    pub(crate) fn judge(
        &self,
        stamp: &ProducerStamp,
        count: u32,
        oldest_ms: TimestampMs,
    ) -> Result<Verdict, AppendError> {
        let known = self.by_id.get(&stamp.id).filter(|p| p.last_time_ms >= oldest_ms);
        let last = known.and_then(|p| p.batches.back());
        let next = last.map(|b| (b.epoch, advance(b.last_sequence(), 1)));
        let Some((epoch, next_sequence)) = next.or_else(|| known.and_then(|p| p.expects)) else {
            return Ok(Verdict::Write);
        };
        if stamp.epoch < epoch {
            return Err(AppendError::InvalidProducerEpoch);
        }
        if stamp.epoch > epoch {
            let starts_anew = stamp.base_sequence == 0;
            return if starts_anew { Ok(Verdict::Write) } else { Err(AppendError::OutOfOrderSequence) };
        }
        let same = |b: &&Batch| b.epoch == stamp.epoch && b.base_sequence == stamp.base_sequence && b.count == count;
        if let Some(batch) = known.and_then(|p| p.batches.iter().find(same)) {
            let Batch { base_offset, max_timestamp, .. } = *batch;
            return Ok(Verdict::Duplicate { base_offset, max_timestamp });
        }
        if stamp.base_sequence == next_sequence { Ok(Verdict::Write) } else { Err(AppendError::OutOfOrderSequence) }
    }

    /// Records a batch, proposed or (in replay) applied.
    pub(crate) fn note(
        &mut self,
        stamp: &ProducerStamp,
        batch: NewBatch,
        time_ms: TimestampMs,
        high_watermark: Offset,
    ) {
        if self.by_id.len() >= PRODUCERS_PER_PARTITION_MAX && !self.by_id.contains_key(&stamp.id) {
            self.forget_refused();
        }
        let producer = self.by_id.entry(stamp.id).or_insert_with(|| Producer {
            batches: VecDeque::new(),
            last_time_ms: time_ms,
            applied_ms: 0,
            expects: None,
        });
        producer.expects = None;
        producer.last_time_ms = producer.last_time_ms.max(time_ms);
        let NewBatch { base_offset, count, max_timestamp } = batch;
        producer.batches.push_back(Batch {
            base_offset,
            count,
            max_timestamp,
            base_sequence: stamp.base_sequence,
            epoch: stamp.epoch,
        });
        producer.drop_old(high_watermark);
    }

    /// Removes the batch recorded last, at `base_offset`, which was not written.
    pub(crate) fn undo(&mut self, id: ProducerId, base_offset: Offset) {
        let Some(producer) = self.by_id.get_mut(&id) else { return };
        if let Some(batch) = producer.batches.pop_back_if(|b| b.base_offset == base_offset)
            && producer.batches.is_empty()
        {
            producer.expects = Some((batch.epoch, batch.base_sequence));
        }
    }

    /// Records the commit of a batch: sets the producer's activity to the frame's time, and drops old batches.
    pub(crate) fn committed(&mut self, id: ProducerId, time_ms: TimestampMs, high_watermark: Offset) {
        let mut is_first = false;
        if let Some(producer) = self.by_id.get_mut(&id) {
            producer.last_time_ms = producer.last_time_ms.max(time_ms);
            producer.applied_ms = time_ms;
            producer.drop_old(high_watermark);
            is_first = producer.batches.front().is_some_and(|b| b.end() >= high_watermark);
        }
        self.applied += usize::from(is_first);
        if self.applied > PRODUCERS_PER_PARTITION_MAX {
            self.forget_one(high_watermark);
        }
    }

    /// Drops the tail: batches that are not applied.
    pub(crate) fn reset_tail(&mut self, high_watermark: Offset) {
        for producer in self.by_id.values_mut() {
            let first = producer.batches.front().map(|b| (b.epoch, b.base_sequence));
            producer.batches.retain(|b| b.end() <= high_watermark);
            if producer.batches.is_empty() {
                producer.expects = first.or(producer.expects);
            }
        }
    }

    /// Returns whether there is a producer that [`Producers::expire`] drops.
    pub(crate) fn has_idle(&self, before_ms: TimestampMs, high_watermark: Offset) -> bool {
        self.by_id.values().any(|p| match p.batches.is_empty() {
            true => p.last_time_ms < before_ms,
            false => p.is_applied(high_watermark) && p.applied_ms < before_ms,
        })
    }

    /// Drops applied batches of producers without a batch in a frame since `before_ms`; these count as unknown already. Proposed batches stay: they
    /// are applied after this record.
    pub(crate) fn expire(&mut self, before_ms: TimestampMs, high_watermark: Offset) {
        self.by_id.retain(|_, p| {
            if p.applied_ms < before_ms && p.forget_applied(high_watermark) {
                self.applied = self.applied.saturating_sub(1);
            }
            !p.batches.is_empty() || p.last_time_ms >= before_ms
        });
        if self.by_id.is_empty() {
            self.by_id.shrink_to_fit();
        }
    }

    /// Returns the producers with committed batches that were active since `oldest_ms`, by id.
    pub(crate) fn active(&self, high_watermark: Offset, oldest_ms: TimestampMs) -> Vec<ProducerInfo> {
        let info = |(id, p): (&ProducerId, &Producer)| {
            let last = p.batches.iter().rev().find(|b| b.end() <= high_watermark)?;
            let (epoch, last_sequence) = (last.epoch, last.last_sequence());
            Some(ProducerInfo { id: *id, epoch, last_sequence, last_timestamp: p.last_time_ms })
        };
        let mut active: Vec<_> =
            self.by_id.iter().filter(|(_, p)| p.last_time_ms >= oldest_ms).filter_map(info).collect();
        active.sort_unstable_by_key(|producer| producer.id);
        active
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Drops the applied batches of the producer whose last frame is oldest.
    fn forget_one(&mut self, high_watermark: Offset) {
        let applied = self.by_id.iter().filter(|(_, p)| p.is_applied(high_watermark));
        let idle = applied.min_by_key(|(id, p)| (p.applied_ms, **id)).map(|(id, _)| *id);
        if let Some(id) = idle
            && let Some(producer) = self.by_id.get_mut(&id)
        {
            let was_applied = producer.forget_applied(high_watermark);
            self.applied = self.applied.saturating_sub(usize::from(was_applied));
            if producer.batches.is_empty() {
                self.by_id.remove(&id);
            }
        }
    }

    /// Drops the least recently active producer of which only a refused first batch is recorded.
    fn forget_refused(&mut self) {
        let refused = self.by_id.iter().filter(|(_, p)| p.batches.is_empty());
        let idle = refused.min_by_key(|(id, p)| (p.last_time_ms, **id)).map(|(id, _)| *id);
        if let Some(id) = idle {
            self.by_id.remove(&id);
        }
    }

    /// Encodes the applied part, in an order that depends on content only.
    pub(crate) fn encode(&self, high_watermark: Offset, w: &mut BinWriter) {
        let applied = |p: &Producer| p.batches.iter().take_while(|b| b.end() <= high_watermark).count();
        let mut ids: Vec<_> = self.by_id.iter().filter(|(_, p)| applied(p) > 0).collect();
        ids.sort_unstable_by_key(|(id, _)| **id);
        w.u32(ids.len() as u32);
        for (id, producer) in ids {
            let count = applied(producer);
            let keep = count.min(BATCHES_KEPT);
            w.i64(id.0).i64(producer.applied_ms).u8(keep as u8);
            for b in producer.batches.iter().take(count).skip(count - keep) {
                w.u64(b.base_offset.0).u32(b.count).i32(b.base_sequence).i16(b.epoch).i64(b.max_timestamp);
            }
        }
    }

    pub(crate) fn decode(r: &mut BinReader<'_>) -> Result<Producers, BinError> {
        let mut producers = Producers::default();
        for _ in 0..r.count(17, "producers")? {
            let id = ProducerId(r.i64("producer id")?);
            let last_time_ms = r.i64("producer time")?;
            let count = r.u8("producer batches")?;
            let mut batches = VecDeque::with_capacity(BATCHES_KEPT + 1);
            for _ in 0..count {
                let base_offset = Offset(r.u64("batch offset")?);
                let count = r.u32("batch count")?;
                if count == 0 {
                    return Err(BinError { field: "batch count" });
                }
                let base_sequence = r.i32("batch sequence")?;
                let epoch = r.i16("batch epoch")?;
                let max_timestamp = r.i64("batch timestamp")?;
                batches.push_back(Batch { base_offset, count, base_sequence, epoch, max_timestamp });
            }
            producers.applied += usize::from(!batches.is_empty());
            producers.by_id.insert(id, Producer { batches, last_time_ms, applied_ms: last_time_ms, expects: None });
        }
        Ok(producers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(epoch: i16, base_sequence: i32) -> ProducerStamp {
        ProducerStamp { id: ProducerId(1), epoch, base_sequence }
    }

    /// A batch whose timestamp is derived from its offset.
    fn batch(base_offset: Offset, count: u32) -> NewBatch {
        NewBatch { base_offset, count, max_timestamp: base_offset.0 as i64 + 1_000 }
    }

    fn duplicate(base_offset: Offset) -> Result<Verdict, AppendError> {
        Ok(Verdict::Duplicate { base_offset, max_timestamp: base_offset.0 as i64 + 1_000 })
    }

    /// Writes batches of 10 messages at sequences 0, 10, ... and commits them.
    fn written(batches: u32) -> Producers {
        let mut p = Producers::default();
        for i in 0..batches {
            let end = u64::from(i + 1) * 10;
            p.note(&stamp(0, i as i32 * 10), batch(Offset(u64::from(i) * 10), 10), 0, Offset(end));
        }
        p
    }

    #[test]
    fn each_of_the_last_five_batches_is_known() {
        // A window of one batch gave duplicates or fatal errors elsewhere when five requests were in flight.
        let p = written(8);
        for i in 3..8 {
            assert_eq!(p.judge(&stamp(0, i * 10), 10, 0), duplicate(Offset(i as u64 * 10)), "batch {i}");
        }
        assert_eq!(p.judge(&stamp(0, 20), 10, 0), Err(AppendError::OutOfOrderSequence));
    }

    #[test]
    fn a_gap_is_refused_and_the_next_sequence_is_written() {
        let p = written(2);
        assert_eq!(p.judge(&stamp(0, 20), 1, 0), Ok(Verdict::Write));
        assert_eq!(p.judge(&stamp(0, 21), 1, 0), Err(AppendError::OutOfOrderSequence));
    }

    #[test]
    fn sequences_wrap_to_zero() {
        let mut p = Producers::default();
        p.note(&stamp(0, i32::MAX - 1), batch(Offset(0), 3), 0, Offset(3));
        assert_eq!(p.judge(&stamp(0, 1), 1, 0), Ok(Verdict::Write));
        let mut p = Producers::default();
        p.note(&stamp(0, i32::MAX), batch(Offset(0), 1), 0, Offset(1));
        assert_eq!(p.judge(&stamp(0, 0), 1, 0), Ok(Verdict::Write));
    }

    #[test]
    fn epochs_only_grow_and_start_at_zero() {
        let mut p = written(1);
        assert_eq!(p.judge(&stamp(1, 10), 1, 0), Err(AppendError::OutOfOrderSequence));
        assert_eq!(p.judge(&stamp(1, 0), 1, 0), Ok(Verdict::Write));
        p.note(&stamp(1, 0), batch(Offset(10), 1), 0, Offset(11));
        assert_eq!(p.judge(&stamp(0, 10), 1, 0), Err(AppendError::InvalidProducerEpoch));
    }

    #[test]
    fn an_unknown_or_expired_producer_may_start_anywhere() {
        assert_eq!(Producers::default().judge(&stamp(3, 77), 1, 0), Ok(Verdict::Write));
        assert_eq!(written(1).judge(&stamp(0, 77), 1, 1), Ok(Verdict::Write));
    }

    #[test]
    fn five_applied_batches_survive_any_number_of_lost_ones() {
        let mut p = written(6);
        for i in 6..20 {
            p.note(&stamp(0, i * 10), batch(Offset(i as u64 * 10), 10), 0, Offset(60));
        }
        p.reset_tail(Offset(60));
        for i in 1..6 {
            assert_eq!(p.judge(&stamp(0, i * 10), 10, 0), duplicate(Offset(i as u64 * 10)), "batch {i}");
        }
        assert_eq!(p.judge(&stamp(0, 60), 10, 0), Ok(Verdict::Write));
    }

    #[test]
    fn what_follows_a_refused_first_batch_is_refused_too() {
        // Otherwise the second of two pipelined batches would be taken for the start of a producer whose state is gone, and the retry of the first
        // would be out of order forever.
        for lose in [|p: &mut Producers| p.undo(ProducerId(1), Offset(0)), |p: &mut Producers| p.reset_tail(Offset(0))]
        {
            let mut p = Producers::default();
            p.note(&stamp(0, 0), batch(Offset(0), 10), 0, Offset(0));
            lose(&mut p);
            assert_eq!(p.judge(&stamp(0, 10), 10, 0), Err(AppendError::OutOfOrderSequence));
            assert_eq!(p.judge(&stamp(0, 0), 10, 0), Ok(Verdict::Write));
        }
    }

    #[test]
    fn only_the_applied_part_is_kept_in_a_checkpoint() {
        let mut p = written(7);
        let mut applied = BinWriter::new();
        p.encode(Offset(70), &mut applied);
        p.note(&stamp(0, 70), batch(Offset(70), 10), 0, Offset(70));
        let mut again = BinWriter::new();
        p.encode(Offset(70), &mut again);
        assert_eq!(applied.out, again.out);
        let mut back = Producers::decode(&mut BinReader::new(&again.out)).unwrap();
        p.reset_tail(Offset(70));
        assert_eq!(back.judge(&stamp(0, 20), 10, 0), duplicate(Offset(20)));
        assert!(back.has_idle(1, Offset(70)) && !back.has_idle(0, Offset(70)));
        back.expire(1, Offset(70));
        assert_eq!(back.len(), 0);
    }

    fn encoded(p: &Producers, high_watermark: u64) -> Vec<u8> {
        let mut w = BinWriter::new();
        p.encode(Offset(high_watermark), &mut w);
        w.out
    }

    fn of(id: i64) -> ProducerStamp {
        ProducerStamp { id: ProducerId(id), epoch: 0, base_sequence: 0 }
    }

    /// Applies a batch of ten, which the writer recorded at its proposal and a replay records now.
    fn commit(p: &mut Producers, id: i64, first: u64, time_ms: TimestampMs, replays: bool) {
        if replays {
            p.note(&of(id), batch(Offset(first), 10), time_ms, Offset(first));
        }
        p.committed(ProducerId(id), time_ms, Offset(first + 10));
    }

    /// A producer with an uncommitted batch was dropped with the batch, by the clock of a node.
    #[test]
    fn an_expiry_takes_what_is_applied_and_leaves_what_is_proposed() {
        let [mut writer, mut replay] = [Producers::default(), Producers::default()];
        for (id, first, proposed_ms) in [(1, 0, 5), (2, 10, 6), (1, 20, 900)] {
            let stamp = ProducerStamp { base_sequence: if first == 20 { 10 } else { 0 }, ..of(id) };
            writer.note(&stamp, batch(Offset(first), 10), proposed_ms, Offset(0));
        }
        for p in [&mut writer, &mut replay] {
            let replays = p.len() == 0;
            commit(p, 1, 0, 10, replays);
            commit(p, 2, 10, 20, replays);
            assert!(p.has_idle(15, Offset(20)));
            p.expire(15, Offset(20));
            assert!(!p.has_idle(15, Offset(20)));
        }
        assert_eq!(encoded(&writer, 20), encoded(&replay, 20));
        assert_eq!((writer.len(), replay.len()), (2, 1));
        let second = ProducerStamp { base_sequence: 10, ..of(1) };
        assert_eq!(writer.judge(&second, 10, 0), duplicate(Offset(20)), "it is still on its way");
        replay.note(&second, batch(Offset(20), 10), 950, Offset(20));
        for p in [&mut writer, &mut replay] {
            p.committed(ProducerId(1), 950, Offset(30));
        }
        assert_eq!(encoded(&writer, 30), encoded(&replay, 30));
    }

    /// The producer to drop when there are too many was chosen by proposed batches.
    #[test]
    fn beyond_the_bound_the_one_is_forgotten_whose_last_frame_is_oldest() {
        let [mut writer, mut replay] = [Producers::default(), Producers::default()];
        let count = PRODUCERS_PER_PARTITION_MAX as i64 + 3;
        let first = |id: i64| id as u64 * 10;
        // Proposed in another order of times than that of their frames, all before the first commit.
        for id in 0..count {
            writer.note(&of(id), batch(Offset(first(id)), 10), (count - id) * 7, Offset(0));
        }
        for p in [&mut writer, &mut replay] {
            let replays = p.len() == 0;
            (0..count).for_each(|id| commit(p, id, first(id), 1_000 + id, replays));
            assert_eq!(p.len(), PRODUCERS_PER_PARTITION_MAX);
        }
        assert_eq!(encoded(&writer, first(count)), encoded(&replay, first(count)));
        assert_eq!(writer.judge(&of(2), 10, 0), Ok(Verdict::Write), "one of three that were forgotten");
        assert_eq!(writer.judge(&of(3), 10, 0), duplicate(Offset(30)));
        // Refused first batches are kept up to the same bound.
        for id in count..count + 5 {
            writer.note(&of(id), batch(Offset(first(count)), 10), 1, Offset(first(count)));
            writer.undo(ProducerId(id), Offset(first(count)));
        }
        assert_eq!(writer.len(), PRODUCERS_PER_PARTITION_MAX + 1);
    }
}
