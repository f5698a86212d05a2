//! What consumers and hosts do with messages that were handed out, or are not to be.
//!
//! Nothing here changes applied state. What is to be recorded is kept for [`Queue::take_record`], and counts as done meanwhile.

use crate::config::Return;
use crate::consumers::ConsumerId;
use crate::error::{LeaseError, Refusal};
use crate::grant::LeaseId;
use crate::mark::{Fate, Mark, Reason, Tally};
use crate::queue::{Dead, Queue};
use crate::runs::Runs;
use std::ops::Range;

/// On whose word messages are settled, returned or kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// That of the consumer that holds them.
    Consumer(ConsumerId),
    /// The caller holds the lease.
    Lease(LeaseId),
    /// Messages held by any consumer, or by none. Settled ones are skipped.
    Anyone,
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use = "a reply waits for its record"]
pub struct Done {
    /// How many messages were concerned. Those that were settled before are not counted.
    pub messages: u64,
    /// The number of the record that it goes into, or went into when it was done before. `None`: there is nothing to wait for.
    pub record: Option<u64>,
}

/// Messages that are to be moved to where dead ones go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    /// The first message.
    pub first_offset: u64,
    /// How many messages, one after the other.
    pub count: u64,
    /// All of them together, as they are stored; 0 where bytes are not counted.
    pub bytes: u64,
    /// Why.
    pub reason: Reason,
    /// What each of them has behind it.
    pub tally: Tally,
}

impl Queue {
    /// That all these messages are held by who speaks.
    fn check_held(&self, range: &Range<u64>, by: By, now_ms: u64) -> Result<(), LeaseError> {
        self.check_writer()?;
        let by_slot = match by {
            By::Anyone => return Ok(()),
            By::Consumer(id) => Some(self.consumers.slot(id)?),
            By::Lease(_) => None,
        };
        let refused = |offset, why| Err(LeaseError::Refused { offset, why });
        let mut at = range.start;
        while at < range.end {
            let Some(run) = self.held.at(at) else {
                return refused(
                    at,
                    match self.mark_run(at, range.end).1.fate {
                        _ if at >= self.end => Refusal::Beyond,
                        Fate::Settled => Refusal::Settled,
                        Fate::Open | Fate::Dead(_) => Refusal::NotHeld,
                    },
                );
            };
            let same = match by {
                By::Lease(lease) => run.value.lease == lease.0,
                By::Consumer(_) | By::Anyone => Some(run.value.slot) == by_slot,
            };
            if !same {
                return refused(at, Refusal::Stale);
            }
            if run.value.deadline_ms <= now_ms {
                return refused(at, Refusal::Expired);
            }
            at = run.end;
        }
        Ok(())
    }

    fn range(&self, first_offset: u64, count: u64) -> Range<u64> {
        first_offset..first_offset.saturating_add(count)
    }

    /// Whether a message is held under that lease.
    #[must_use]
    pub fn holds(&self, offset: u64, lease: LeaseId) -> bool {
        self.held.at(offset).is_some_and(|run| run.value.lease == lease.0)
    }

    /// Messages are done with: acknowledged, or rejected without a dead-letter target. All of them or none.
    ///
    /// # Errors
    /// The first one that is not held as said.
    pub fn settle(&mut self, first_offset: u64, count: u64, by: By, now_ms: u64) -> Result<Done, LeaseError> {
        let range = self.range(first_offset, count);
        self.check_held(&range, by, now_ms)?;
        if by != By::Anyone {
            while let Some(run) = self.held.first_in(&range) {
                self.unhold(&run);
            }
            self.record_settled(range);
            return Ok(Done { messages: count, record: Some(self.next_record()) });
        }
        Ok(self.settle_any(range))
    }

    /// Settles what there is in a range and is not settled.
    fn settle_any(&mut self, range: Range<u64>) -> Done {
        let range = range.start..range.end.min(self.end);
        let mut messages = 0;
        let mut at = range.start;
        while at < range.end {
            let (end, mark) = self.mark_run(at, range.end);
            if mark.fate != Fate::Settled {
                self.take_out(&(at..end));
                self.record_settled(at..end);
                messages += end - at;
            }
            at = end;
        }
        let record = if messages > 0 { Some(self.next_record()) } else { self.record_of(&range) };
        Done { messages, record }
    }

    /// The latest record on its way that says anything of a range.
    fn record_of(&self, range: &Range<u64>) -> Option<u64> {
        if self.pending.first_in(range).is_some() {
            return Some(self.taken + 1);
        }
        let sent = self.sent.iter_from(range.start).take_while(|run| run.start < range.end);
        sent.map(|run| run.value.record).max()
    }

    /// All messages up to this one, itself included, are settled, by whichever consumer they are held.
    ///
    /// # Errors
    /// When there is no writer.
    pub fn settle_to(&mut self, offset: u64) -> Result<Done, LeaseError> {
        self.check_writer()?;
        let from = self.lowest();
        Ok(self.settle_any(from..offset.saturating_add(1).max(from)))
    }

    /// Of `count` messages from `first_offset` on those are done with whose bit is not set (Pulsar's `ack_set`: the lowest bit of the first
    /// word is the first message; what no word says is done with).
    ///
    /// # Errors
    /// When there is no writer.
    pub fn settle_batch(&mut self, first_offset: u64, count: u32, open: &[u64]) -> Result<Done, LeaseError> {
        self.check_writer()?;
        let is_open = |index: u32| open.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 == 1);
        let mut done = Done::default();
        let mut index = 0;
        while index < count {
            let start = index;
            while index < count && !is_open(index) {
                index += 1;
            }
            if index > start {
                let one = self
                    .settle_any(self.range(first_offset.saturating_add(u64::from(start)), u64::from(index - start)));
                done.messages += one.messages;
                done.record = done.record.max(one.record);
            }
            while index < count && is_open(index) {
                index += 1;
            }
        }
        Ok(done)
    }

    /// Messages are refused for good: they are dead, for the reason `rejected`.
    ///
    /// # Errors
    /// The first one that is not held as said.
    pub fn reject(&mut self, first_offset: u64, count: u64, by: By, now_ms: u64) -> Result<Done, LeaseError> {
        let range = self.range(first_offset, count);
        self.check_held(&range, by, now_ms)?;
        let mut messages = 0;
        while let Some(run) = self.held.first_in(&range) {
            self.unhold(&run);
            messages += run.len();
            let mut at = run.start;
            while at < run.end {
                let (end, mark) = self.mark_run(at, run.end);
                self.bury(at..end, Reason::Rejected, mark.returned(true).tally);
                at = end;
            }
        }
        let record = (messages > 0).then(|| self.next_record());
        Ok(Done { messages, record })
    }

    /// Messages come back: they are handed out again in their old place. Waiting for the record is optional.
    ///
    /// # Errors
    /// The first one that is not held as said. By [`By::Anyone`] those that are not held are passed over.
    pub fn release(
        &mut self,
        first_offset: u64,
        count: u64,
        by: By,
        how: Return,
        now_ms: u64,
    ) -> Result<Done, LeaseError> {
        let range = self.range(first_offset, count);
        self.check_held(&range, by, now_ms)?;
        let mut messages = 0;
        while let Some(run) = self.held.first_in(&range) {
            self.give_back(&run, how, now_ms);
            messages += run.len();
        }
        self.drop_head();
        Ok(Done { messages, record: (messages > 0).then_some(self.taken + 1) })
    }

    /// Messages that no consumer has seen return to their place as if they had never been handed out. No record has to be waited for.
    ///
    /// # Errors
    /// The first one that is not held as said.
    pub fn unsend(&mut self, first_offset: u64, count: u64, by: By, now_ms: u64) -> Result<u64, LeaseError> {
        let range = self.range(first_offset, count);
        self.check_held(&range, by, now_ms)?;
        let mut messages = 0;
        while let Some(run) = self.held.first_in(&range) {
            self.take_back(&run, now_ms);
            messages += run.len();
        }
        self.drop_head();
        Ok(messages)
    }

    /// Messages are held until then, under the lease they have; [`u64::MAX`]: for ever. Milliseconds.
    ///
    /// # Errors
    /// The first one that is not held as said.
    pub fn extend(
        &mut self,
        first_offset: u64,
        count: u64,
        by: By,
        until_ms: u64,
        now_ms: u64,
    ) -> Result<u64, LeaseError> {
        let mut range = self.range(first_offset, count);
        self.check_held(&range, by, now_ms)?;
        let mut messages = 0;
        while let Some(mut run) = self.held.first_in(&range) {
            run.value.deadline_ms = until_ms;
            self.held.set(run.range(), run.value);
            if until_ms < u64::MAX {
                self.alarm(crate::alarms::Alarm::new(until_ms, run.range(), true));
            }
            messages += run.len();
            range.start = run.end;
        }
        Ok(messages)
    }

    /// All that a consumer holds comes back.
    ///
    /// # Errors
    /// When there is no such consumer.
    pub fn release_all(&mut self, id: ConsumerId, how: Return, now_ms: u64) -> Result<u64, LeaseError> {
        let slot = self.consumers.slot(id)?;
        let mut messages = 0;
        let mut at = None;
        while let Some(run) = self.consumers.holds_from(slot, at).and_then(|at| self.held.from(at)) {
            at = Some(run.end);
            if run.value.slot == slot {
                self.give_back(&run, how, now_ms);
                messages += run.len();
            }
        }
        self.drop_head();
        Ok(messages)
    }

    /// A consumer gets no more messages, and keeps those it has.
    ///
    /// # Errors
    /// When there is no such consumer.
    pub fn stop_consumer(&mut self, id: ConsumerId) -> Result<(), LeaseError> {
        let slot = self.consumers.slot(id)?;
        if let Some(share) = self.consumers.get(slot).and_then(|consumer| consumer.config.share.clone()) {
            self.leave_line(id, &share);
        }
        if let Some(keys) = self.keys.as_deref_mut() {
            keys.remove(slot);
        }
        self.consumers.stop(slot, self.config.mode);
        Ok(())
    }

    /// A consumer is gone, and what it held comes back.
    ///
    /// # Errors
    /// When there is no such consumer.
    pub fn remove_consumer(&mut self, id: ConsumerId, how: Return, now_ms: u64) -> Result<u64, LeaseError> {
        self.stop_consumer(id)?;
        let messages = self.release_all(id, how, now_ms)?;
        let slot = self.consumers.slot(id)?;
        self.consumers.remove(slot, self.config.mode);
        Ok(messages)
    }

    /// Everything that is neither held nor dead is settled, also what is not committed yet. Returns how many messages that were.
    ///
    /// # Errors
    /// When there is no writer.
    pub fn purge(&mut self) -> Result<Done, LeaseError> {
        self.check_writer()?;
        let all = self.lowest()..self.end;
        let mut messages = 0;
        for lane in 0..self.lanes.len() {
            while let Some(run) = self.lanes.get(lane).and_then(|lane| lane.ready.first_in(&all)) {
                self.unready_all(&run.range());
                self.record_settled(run.range());
                messages += run.len();
            }
        }
        while let Some(run) = self.delayed.first_in(&all) {
            self.undelay(&run.range());
            self.record_settled(run.range());
            messages += run.len();
        }
        let record = (messages > 0).then(|| self.next_record());
        Ok(Done { messages, record })
    }

    /// The subscription moves: everything before this offset is done with, everything from there on is to be handed out, as if it
    /// had never been. What has a time of delivery still waits for it. Leases are void. Of messages that were settled it may be
    /// forgotten what they are (priority, time of expiry, size, entry, key): [`Queue::describe`] says it again.
    ///
    /// # Errors
    /// When there is no writer.
    pub fn seek(&mut self, to: u64, now_ms: u64) -> Result<Done, LeaseError> {
        self.check_writer()?;
        let to = to.min(self.end);
        let from = self.lowest().min(to);
        let all = from..self.end;
        self.take_out(&all);
        self.alarms.clear();
        if let Some(keys) = self.keys.as_deref_mut() {
            keys.forget(&(0..u64::MAX));
            keys.known_to = to;
        }
        let mut marks = Runs::default();
        marks.set(from..to, Mark::SETTLED);
        let mut at = to;
        while at < self.end {
            let (end, mark) = self.mark_run(at, self.end);
            let untried = mark.fate == Fate::Open && mark.tally == Tally::default() && mark.not_before_ms > now_ms;
            marks.set(at..end, if untried { Mark { handed: false, ..mark } } else { Mark::OPEN });
            at = end;
        }
        self.pending = marks;
        self.place_all(to, now_ms);
        self.keep_length();
        Ok(Done { messages: self.end - to, record: Some(self.next_record()) })
    }

    /// The lowest offset that may not be settled, by what is proposed.
    pub(crate) fn lowest(&self) -> u64 {
        fn first<V: Copy + PartialEq>(runs: &Runs<V>) -> u64 {
            runs.first().map_or(u64::MAX, |run| run.start)
        }
        self.applied.head.floor.min(first(&self.pending)).min(first(&self.sent))
    }

    /// Whether any message is dead, reported or not.
    #[must_use]
    pub fn has_dead(&self) -> bool {
        !self.dead.is_empty()
    }

    /// Up to where messages are dead that are not committed, and so not returned by [`Queue::take_dead_letters`] before they are; `None` when there are
    /// none. What was dropped because too many were ready does not count: no consumer has heard of it, and it can wait for its commit.
    #[must_use]
    pub fn dead_uncommitted(&self) -> Option<u64> {
        let committed = self.applied.head.end;
        if self.dead.last().is_none_or(|run| run.end <= committed) {
            return None;
        }
        let ahead = self.dead.iter_from(committed).filter(|run| run.value.reason != Reason::MaxLength);
        ahead.map(|run| run.end).filter(|end| *end > committed).max()
    }

    /// Tells which messages are to be moved to where dead ones go, at most so many, and no more bytes unless one message alone has more.
    /// Each is returned once, until [`Queue::dead_lettered`] or [`Queue::dead_letter_failed`], or a new writer.
    pub fn take_dead_letters(&mut self, messages_max: u64, bytes_max: u64, out: &mut Vec<DeadLetter>) {
        let (mut messages_left, mut bytes_left) = (messages_max, bytes_max);
        let mut at = 0;
        let mut first = true;
        while messages_left > 0 {
            let Some(run) = self.dead.first_in(&(at..self.applied.head.end)) else { return };
            at = run.end;
            if run.value.moving {
                continue;
            }
            let (end, mark) = self.mark_run(run.start, run.end.min(run.start.saturating_add(messages_left)));
            let (first_offset, end) =
                (run.start, self.end_of_bytes(run.start..end, bytes_left).max(run.start + u64::from(first)));
            let count = end - first_offset;
            if count == 0 {
                return;
            }
            let bytes = self.bytes_of(&(first_offset..end));
            out.push(DeadLetter { first_offset, count, bytes, reason: run.value.reason, tally: mark.tally });
            self.dead.set(first_offset..end, Dead { moving: true, ..run.value });
            (messages_left, bytes_left) = (messages_left - count, bytes_left.saturating_sub(bytes));
            (at, first) = (end, false);
        }
    }

    /// Up to where messages of a range have no more than so many bytes together.
    fn end_of_bytes(&self, range: Range<u64>, bytes_max: u64) -> u64 {
        let (mut at, mut left) = (range.start, bytes_max);
        while at < range.end {
            let (end, class) = self.applied.class_run(at, range.end);
            let fit = left.checked_div(class.weigh(1)).unwrap_or(u64::MAX);
            if fit < end - at {
                return at + fit;
            }
            left = left.saturating_sub(class.weigh(end - at));
            at = end;
        }
        range.end
    }

    /// Dead messages were moved: they are settled. What is not dead is passed over.
    ///
    /// # Errors
    /// When there is no writer.
    pub fn dead_lettered(&mut self, first_offset: u64, count: u64) -> Result<Done, LeaseError> {
        self.check_writer()?;
        let range = self.range(first_offset, count);
        let mut messages = 0;
        while let Some(run) = self.dead.first_in(&range) {
            self.clear_dead(&run.range());
            self.record_settled(run.range());
            messages += run.len();
        }
        let record = if messages > 0 { Some(self.next_record()) } else { self.record_of(&range) };
        Ok(Done { messages, record })
    }

    /// Dead messages could not be moved: they are returned again.
    pub fn dead_letter_failed(&mut self, first_offset: u64, count: u64) {
        let mut range = self.range(first_offset, count);
        while let Some(run) = self.dead.first_in(&range) {
            self.dead.set(run.range(), Dead { moving: false, ..run.value });
            range.start = run.end;
        }
    }
}
