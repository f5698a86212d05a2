//! One partition's tail and applied state.

use crate::follow::Followers;
use crate::layers::Layered;
use crate::producers::Producers;
use crate::watch::Watchers;
use polylogue_api::TopicConfig;
use polylogue_record::envelope::Envelope;
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use polylogue_types::{Offset, Ordinal, PartitionId, TimestampMs};
use std::sync::Arc;

/// Leader epochs kept per partition. Older ones end where the oldest kept one starts, as in Kafka (`LeaderEpochFileCache.endOffsetFor`).
const EPOCHS_MAX: usize = 64;

/// A proposed and unapplied change of a partition as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Opening,
    Closing,
}

/// Tail: `next_*`, `proposed`, `config` and the unapplied end of `producers`. Soft: `watchers`, `followers`. Applied: everything else. Tail and applied meet at
/// `high_watermark`: everything below is committed.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    pub(crate) config: Layered,
    pub(crate) leader_epoch: i32,
    // tail
    pub(crate) next_offset: Offset,
    pub(crate) next_ordinal: Ordinal,
    /// The change that is proposed.
    pub(crate) proposed: Option<Change>,
    // both, see `Producers`
    pub(crate) producers: Producers,
    // applied
    /// The record that opens the partition is applied. Always true for partitions of machines and of the broker.
    pub(crate) opened: bool,
    pub(crate) high_watermark: Offset,
    pub(crate) applied_ordinal: Ordinal,
    pub(crate) log_start: Offset,
    /// Leader epochs with the first offset of each, oldest first.
    pub(crate) epochs: Vec<(i32, Offset)>,
    /// Changed since the last checkpoint.
    pub(crate) dirty: bool,
    /// A repair removed entries: the next entry may follow a gap in offsets and ordinals.
    pub(crate) gap_allowed: bool,
    // soft
    pub(crate) watchers: Watchers,
    pub(crate) followers: Followers,
}

impl Partition {
    pub(crate) fn new(id: PartitionId, config: Arc<TopicConfig>, leader_epoch: i32, first: Offset) -> Partition {
        Partition {
            id,
            config: Layered::new(config),
            leader_epoch,
            next_offset: first,
            next_ordinal: Ordinal(0),
            proposed: None,
            producers: Producers::default(),
            opened: false,
            high_watermark: first,
            applied_ordinal: Ordinal(0),
            log_start: first,
            epochs: Vec::new(),
            dirty: false,
            gap_allowed: false,
            watchers: Watchers::default(),
            followers: Followers::default(),
        }
    }

    /// Returns whether the partition is open, or will be when the proposed change is applied.
    pub(crate) fn is_opening(&self) -> bool {
        match self.proposed {
            Some(change) => change == Change::Opening,
            None => self.opened,
        }
    }

    /// Applies a committed entry. The offset and ordinal assumed by its proposer must be the next ones (engine.md 4.3 rule 3). A mismatch means that
    /// two writers were active.
    pub(crate) fn apply(&mut self, envelope: &Envelope, time_ms: TimestampMs) -> Result<(), String> {
        let behind_gap = std::mem::take(&mut self.gap_allowed)
            && envelope.base_offset >= self.high_watermark
            && envelope.ordinal >= self.applied_ordinal;
        let is_next = envelope.base_offset == self.high_watermark && envelope.ordinal == self.applied_ordinal;
        if !is_next && !behind_gap {
            return Err(format!(
                "partition {}: a committed entry assumed offset {} and ordinal {}, but {} and {} are next",
                self.id, envelope.base_offset, envelope.ordinal, self.high_watermark, self.applied_ordinal
            ));
        }
        self.high_watermark = envelope.next_offset();
        self.applied_ordinal = Ordinal(envelope.ordinal.0 + 1);
        self.note_epoch(envelope.leader_epoch as i32, envelope.base_offset);
        if let Some(producer) = &envelope.producer {
            self.producers.committed(producer.id, time_ms, self.high_watermark);
        }
        self.dirty = true;
        Ok(())
    }

    /// Marks entries up to `end` as lost to damage, as a repair recorded it (`None`: extent unknown).
    pub(crate) fn lose(&mut self, end: Option<Offset>) {
        self.high_watermark = self.high_watermark.max(end.unwrap_or_default());
        self.gap_allowed = true;
        self.dirty = true;
    }

    fn note_epoch(&mut self, epoch: i32, first: Offset) {
        if self.epochs.last().is_none_or(|(last, _)| *last < epoch) {
            if self.epochs.len() == EPOCHS_MAX {
                self.epochs.remove(0);
            }
            self.epochs.push((epoch, first));
        }
    }

    /// Drops the tail: proposed and uncommitted entries.
    pub(crate) fn reset_tail(&mut self) {
        self.next_offset = self.high_watermark;
        self.next_ordinal = self.applied_ordinal;
        self.proposed = None;
        self.producers.reset_tail(self.high_watermark);
    }

    /// Returns the leader epoch in which `offset` was written, or will be if it is the next one.
    pub(crate) fn epoch_at(&self, offset: Offset) -> i32 {
        if offset >= self.high_watermark {
            return self.leader_epoch;
        }
        self.epochs.iter().rev().find(|(_, first)| *first <= offset).map_or(-1, |(epoch, _)| *epoch)
    }

    /// Returns the largest epoch not above `asked` and its end offset (KIP-320); `(-1, None)` if none is known. The current epoch ends at the last
    /// committed entry, never at a proposed one, which another writer may replace. `stored`: the end of what readers can read.
    pub(crate) fn epoch_end(&self, asked: i32, stored: Offset) -> (i32, Option<Offset>) {
        if asked == self.leader_epoch {
            return (asked, Some(self.high_watermark.max(stored)));
        }
        if asked > self.leader_epoch || asked < 0 {
            return (-1, None);
        }
        let after = self.epochs.partition_point(|(epoch, _)| *epoch <= asked);
        if after == 0 {
            // No entry of this epoch is left, or it never had any: it ended where the oldest known epoch starts.
            return (asked, Some(self.epochs.first().map_or(self.high_watermark, |(_, first)| *first)));
        }
        let epoch = self.epochs.get(after - 1).map_or(-1, |(epoch, _)| *epoch);
        let end = self.epochs.get(after).map_or(self.high_watermark, |(_, first)| *first);
        (epoch, Some(end))
    }

    /// Applies a log-start record. The log start never decreases and never exceeds the high watermark.
    pub(crate) fn trim(&mut self, log_start: Offset) {
        let log_start = log_start.min(self.high_watermark);
        if log_start > self.log_start {
            self.log_start = log_start;
            self.dirty = true;
        }
    }

    /// Encodes the applied state.
    ///
    /// ```text
    /// u64 high watermark, u64 ordinal, u64 log start, u32 count, count times (i32 epoch, u64 first), producers
    /// ```
    pub(crate) fn encode(&self, w: &mut BinWriter) {
        w.u64(self.high_watermark.0).u64(self.applied_ordinal.0).u64(self.log_start.0);
        w.u32(self.epochs.len() as u32);
        for (epoch, first) in &self.epochs {
            w.i32(*epoch).u64(first.0);
        }
        self.producers.encode(self.high_watermark, w);
    }

    /// Loads the applied state written by [`Partition::encode`].
    pub(crate) fn decode(&mut self, r: &mut BinReader<'_>) -> Result<(), BinError> {
        self.high_watermark = Offset(r.u64("high watermark")?);
        self.applied_ordinal = Ordinal(r.u64("ordinal")?);
        self.log_start = Offset(r.u64("log start")?);
        self.epochs.clear();
        for _ in 0..r.count(12, "epochs")? {
            let epoch = r.i32("epoch")?;
            self.epochs.push((epoch, Offset(r.u64("epoch start")?)));
        }
        self.producers = Producers::decode(r)?;
        self.next_offset = self.high_watermark;
        self.next_ordinal = self.applied_ordinal;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylogue_record::envelope::Form;

    fn partition() -> Partition {
        Partition::new(PartitionId(2000), Arc::default(), 3, Offset(0))
    }

    fn entry(base: u64, ordinal: u64, count: u32, epoch: u32) -> Envelope {
        let mut e = Envelope::new(PartitionId(2000), Form::KafkaV2);
        e.base_offset = Offset(base);
        e.ordinal = Ordinal(ordinal);
        e.count = count;
        e.leader_epoch = epoch;
        e
    }

    #[test]
    fn an_entry_that_assumed_another_offset_is_refused() {
        let mut p = partition();
        assert!(p.apply(&entry(0, 0, 10, 3), 0).is_ok());
        assert!(p.apply(&entry(0, 0, 10, 3), 0).is_err(), "the same entry twice");
        assert!(p.apply(&entry(11, 1, 1, 3), 0).is_err(), "a gap in offsets");
        assert!(p.apply(&entry(10, 2, 1, 3), 0).is_err(), "a gap in ordinals");
        assert!(p.apply(&entry(10, 1, 1, 3), 0).is_ok());
    }

    #[test]
    fn after_a_recorded_loss_the_next_entry_may_leave_a_gap() {
        let mut p = partition();
        p.lose(Some(Offset(10)));
        assert_eq!(p.high_watermark, Offset(10));
        assert!(p.apply(&entry(20, 7, 1, 3), 0).is_ok());
        assert!(p.apply(&entry(30, 9, 1, 3), 0).is_err(), "one gap is recorded, not two");
    }

    #[test]
    fn epochs_end_where_the_next_begins() {
        let mut p = partition();
        p.leader_epoch = 0;
        p.apply(&entry(0, 0, 10, 0), 0).unwrap();
        p.apply(&entry(10, 1, 5, 2), 0).unwrap();
        p.leader_epoch = 4;
        assert_eq!(p.epoch_end(0, Offset(0)), (0, Some(Offset(10))));
        assert_eq!(p.epoch_end(1, Offset(0)), (0, Some(Offset(10))));
        assert_eq!(p.epoch_end(3, Offset(0)), (2, Some(Offset(15))));
        assert_eq!(p.epoch_end(4, Offset(0)), (4, Some(Offset(15))));
        assert_eq!(p.epoch_end(5, Offset(0)), (-1, None));
        assert_eq!(p.epoch_end(-1, Offset(0)), (-1, None));
        assert_eq!((p.epoch_at(Offset(3)), p.epoch_at(Offset(12)), p.epoch_at(Offset(15))), (0, 2, 4));
    }

    /// A consumer at the end of an empty partition saw a truncation after a restart, and skipped the next messages.
    #[test]
    fn an_epoch_in_which_nothing_was_written_ends_where_the_first_known_begins() {
        let mut p = partition();
        p.leader_epoch = 5;
        assert_eq!(p.epoch_end(3, Offset(0)), (3, Some(Offset(0))));
        p.apply(&entry(0, 0, 10, 5), 0).unwrap();
        assert_eq!(p.epoch_end(4, Offset(0)), (4, Some(Offset(0))));
        assert_eq!(p.epoch_end(5, Offset(0)), (5, Some(Offset(10))));
        p.next_offset = Offset(12);
        assert_eq!(p.epoch_end(5, Offset(0)), (5, Some(Offset(10))), "what is only proposed does not count");
        assert_eq!(p.epoch_end(5, Offset(11)), (5, Some(Offset(11))), "what can be read does");
    }

    #[test]
    fn applied_state_comes_back_and_the_tail_does_not() {
        let mut p = partition();
        p.apply(&entry(0, 0, 10, 3), 0).unwrap();
        p.trim(Offset(4));
        p.next_offset = Offset(99);
        let mut w = BinWriter::new();
        p.encode(&mut w);
        let mut back = partition();
        back.decode(&mut BinReader::new(&w.out)).unwrap();
        assert_eq!((back.high_watermark, back.next_offset, back.log_start), (Offset(10), Offset(10), Offset(4)));
        p.trim(Offset(2));
        assert_eq!(p.log_start, Offset(4), "the log start never goes back");
    }
}
