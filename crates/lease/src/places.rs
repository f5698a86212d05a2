//! Where messages are: ready, held, waiting for their time, or dead. Each that is not settled is in one place.

use crate::alarms::Alarm;
use crate::applied::value_run;
use crate::config::Return;
use crate::error::LeaseError;
use crate::mark::{Class, Fate, Mark, PARKED_MS, Reason, Size, Tally};
use crate::queue::{Dead, Held, Lane, Queue, Sizes};
use crate::runs::{Run, Runs};
use std::ops::Range;

impl Queue {
    /// The mark of a message as it will be once all is applied, and up to where (at most `limit`) the following ones have the same.
    pub(crate) fn mark_run(&self, at: u64, mut limit: u64) -> (u64, Mark) {
        if !self.pending.is_empty() {
            let (end, mark) = value_run(&self.pending, at, limit, None, Some);
            match mark {
                Some(mark) => return (end, mark),
                None => limit = end,
            }
        }
        self.recorded_run(at, limit)
    }

    /// As [`Queue::mark_run`], of what is recorded or on its way to be.
    fn recorded_run(&self, at: u64, mut limit: u64) -> (u64, Mark) {
        if !self.sent.is_empty() {
            let (end, sent) = value_run(&self.sent, at, limit, None, Some);
            match sent {
                Some(sent) => return (end, sent.mark),
                None => limit = end,
            }
        }
        self.applied.mark_run(at, limit)
    }

    /// Puts every message from an offset on in its place. They are in none.
    pub(crate) fn place_all(&mut self, from: u64, now_ms: u64) {
        let mut at = from;
        while at < self.end {
            let (end, mark) = self.mark_run(at, self.end);
            self.place(at..end, mark, now_ms);
            at = end;
        }
    }

    /// Puts messages with one mark in their place.
    pub(crate) fn place(&mut self, range: Range<u64>, mark: Mark, now_ms: u64) {
        match mark.fate {
            Fate::Settled => {}
            Fate::Dead(reason) => self.set_dead(range, reason),
            Fate::Open if mark.not_before_ms > now_ms => self.wait_until(range, mark.not_before_ms),
            Fate::Open => self.make_ready(range),
        }
    }

    pub(crate) fn wait_until(&mut self, range: Range<u64>, until_ms: u64) {
        self.sizes.delayed += self.size_of(&range);
        self.delayed.set(range.clone(), until_ms);
        if let Some(keys) = self.keys.as_deref_mut() {
            keys.set_waiting(&range, true);
        }
        if until_ms < PARKED_MS {
            self.alarm(Alarm::new(until_ms, range, false));
        }
    }

    /// Messages that wait until then, and became parked by a record, wait to be reported. Their alarms are void.
    pub(crate) fn park_waiting(&mut self, mut range: Range<u64>, until_ms: u64) {
        while let Some(run) = self.delayed.first_in(&range) {
            let (end, mark) = self.mark_run(run.start, run.end);
            range.start = end;
            if run.value == until_ms && mark.is_parked() {
                self.delayed.set(run.start..end, PARKED_MS);
            }
        }
    }

    /// The time of parked messages has come: they are ready, but for those of whose tally `is_meant` says that another time is theirs: each return
    /// of a message adds to it. What is not parked is passed over. Returns how many are ready. The record need not be waited for; once it is
    /// proposed, the host may forget the time.
    ///
    /// # Errors
    /// When there is no writer.
    pub fn unpark(
        &mut self,
        first_offset: u64,
        count: u64,
        is_meant: impl Fn(Tally) -> bool,
    ) -> Result<u64, LeaseError> {
        self.check_writer()?;
        let end = first_offset.saturating_add(count).min(self.end);
        let (mut at, mut messages) = (first_offset, 0);
        while at < end {
            let (run_end, mark) = self.mark_run(at, end);
            if mark.is_parked() && is_meant(mark.tally) {
                self.pending.set(at..run_end, Mark { not_before_ms: 0, ..mark });
                while let Some(run) = self.delayed.first_in(&(at..run_end)) {
                    self.undelay(&run.range());
                    self.make_ready(run.range());
                }
                messages += run_end - at;
            }
            at = run_end;
        }
        if messages > 0 {
            self.keep_length();
        }
        Ok(messages)
    }

    /// The first messages from an offset on that are parked, committed, at most so many; and what each of them has
    /// behind it.
    #[must_use]
    pub fn parked_from(&self, offset: u64, count: u64) -> Option<(Range<u64>, Tally)> {
        let run = self.applied.marks.iter_from(offset).find(|run| run.value.is_parked())?;
        let start = run.start.max(offset);
        let end = run.end.min(start.saturating_add(count)).min(self.applied.head.end);
        (start < end).then_some((start..end, run.value.tally))
    }

    pub(crate) fn alarm(&mut self, alarm: Alarm) {
        self.alarms.push(alarm);
        if self.alarms.crowded() {
            let waiting = self.delayed.iter().filter(|run| run.value < PARKED_MS);
            let waiting = waiting.map(|run| Alarm::new(run.value, run.range(), false));
            let held = self.held.iter().filter(|run| run.value.deadline_ms < u64::MAX);
            self.alarms.replace(waiting.chain(held.map(|run| Alarm::new(run.value.deadline_ms, run.range(), true))));
        }
    }

    pub(crate) fn make_ready(&mut self, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let (end, class) = self.applied.class_run(at, range.end);
            self.lane(class.priority).ready.set(at..end, ());
            self.sizes.ready += class.size(&(at..end));
            at = end;
        }
        if let Some(keys) = self.keys.as_deref_mut() {
            keys.set_ready(&range, true);
        }
    }

    fn lane(&mut self, priority: u8) -> &mut Lane {
        let level = self.config.low_priority_max.map_or(priority, |max| u8::from(priority > max));
        let index = self.lanes.partition_point(|lane| lane.level > level);
        if self.lanes.get(index).is_none_or(|lane| lane.level != level) {
            if self.lanes.is_empty() {
                self.lanes.reserve_exact(1);
            }
            self.lanes.insert(index, Lane { level, ready: Runs::default() });
        }
        &mut self.lanes[index]
    }

    /// Messages that are ready, all of one class, are no longer.
    pub(crate) fn unready(&mut self, lane: usize, range: &Range<u64>, class: &Class) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.ready.clear(range);
        }
        self.sizes.ready -= class.size(range);
        if let Some(keys) = self.keys.as_deref_mut() {
            keys.set_ready(range, false);
        }
    }

    /// Takes what is ready of a range out of its place.
    pub(crate) fn unready_all(&mut self, range: &Range<u64>) {
        for lane in 0..self.lanes.len() {
            while let Some(run) = self.lanes.get(lane).and_then(|lane| lane.ready.first_in(range)) {
                let (end, class) = self.applied.class_run(run.start, run.end);
                self.unready(lane, &(run.start..end), &class);
            }
        }
    }

    /// Messages held under one lease are no longer. Their consumer may get more.
    pub(crate) fn unhold(&mut self, run: &Run<Held>) {
        self.held.clear(&run.range());
        self.consumers.note_held(run.value.slot, &run.range(), false);
        let (bytes, size) = self.each_class(&run.range(), (0u64, Size::default()), |(bytes, size), class, part| {
            *bytes = class.weigh(part.end - part.start).wrapping_add(*bytes);
            *size += class.size(part);
        });
        self.sizes.held -= size;
        let slot = run.value.slot;
        if let Some(keys) = self.keys.as_deref_mut() {
            keys.set_held(&run.range(), slot, false);
        }
        let mut share = None;
        if let Some(consumer) = self.consumers.get_mut(slot) {
            consumer.held -= run.len();
            consumer.held_bytes = consumer.held_bytes.wrapping_sub(bytes);
            share.clone_from(&consumer.config.share);
        }
        if let Some(share) = share {
            self.give_back_share(&share, run.len());
        }
        self.consumers.queue_up(slot, self.config.mode);
    }

    /// The stored bytes of messages.
    pub(crate) fn bytes_of(&self, range: &Range<u64>) -> u64 {
        let weigh = |class: &Class, part: &Range<u64>| class.weigh(part.end - part.start);
        self.each_class(range, 0, |bytes: &mut u64, class, part| *bytes = weigh(class, part).wrapping_add(*bytes))
    }

    /// What messages count.
    pub(crate) fn size_of(&self, range: &Range<u64>) -> Size {
        self.each_class(range, Size::default(), |size: &mut Size, class, part| *size += class.size(part))
    }

    fn each_class<T>(&self, range: &Range<u64>, mut sum: T, add: impl Fn(&mut T, &Class, &Range<u64>)) -> T {
        let mut at = range.start;
        while at < range.end && !self.applied.classes.is_empty() {
            let (end, class) = self.applied.class_run(at, range.end);
            add(&mut sum, &class, &(at..end));
            at = end;
        }
        sum
    }

    /// What messages of a range count, by the places that they are in.
    fn sizes_in(&self, range: &Range<u64>) -> Sizes {
        let ready = self.lanes.iter().map(|lane| &lane.ready);
        let mut sizes = Sizes { held: self.size_in(&self.held, range), ..Sizes::default() };
        ready.for_each(|ready| sizes.ready += self.size_in(ready, range));
        sizes.delayed = self.size_in(&self.delayed, range);
        sizes.dead = self.size_in(&self.dead, range);
        sizes
    }

    /// What those messages of a range count that are in this place.
    fn size_in<V: Copy + PartialEq>(&self, place: &Runs<V>, range: &Range<u64>) -> Size {
        let mut size = Size::default();
        let mut left = range.clone();
        while let Some(run) = place.first_in(&left) {
            size += self.size_of(&run.range());
            left.start = run.end;
        }
        size
    }

    /// Messages count something else than was known. What is held is as large as stored as before, and what is ready has its priority.
    pub(crate) fn resize(&mut self, range: Range<u64>, class: Class) {
        let before = self.sizes_in(&range);
        self.applied.set_class(range.clone(), class);
        let after = self.sizes_in(&range);
        for (sum, before, after) in [
            (&mut self.sizes.ready, before.ready, after.ready),
            (&mut self.sizes.held, before.held, after.held),
            (&mut self.sizes.delayed, before.delayed, after.delayed),
            (&mut self.sizes.dead, before.dead, after.dead),
        ] {
            *sum -= before;
            *sum += after;
        }
    }

    /// Counts the bytes of what is in each place again, by what is known of it now.
    pub(crate) fn recount(&mut self) {
        self.sizes = self.sizes_in(&(0..u64::MAX));
        self.consumers.clear_held_bytes();
        let mut at = 0;
        while let Some(run) = self.held.from(at) {
            at = run.end;
            let bytes = self.bytes_of(&run.range());
            if let Some(consumer) = self.consumers.get_mut(run.value.slot) {
                consumer.held_bytes = consumer.held_bytes.wrapping_add(bytes);
            }
        }
    }

    pub(crate) fn undelay(&mut self, range: &Range<u64>) {
        self.sizes.delayed -= self.size_in(&self.delayed, range);
        self.delayed.clear(range);
        if let Some(keys) = self.keys.as_deref_mut() {
            keys.set_waiting(range, false);
        }
    }

    /// Takes messages out of whatever place they are in.
    pub(crate) fn take_out(&mut self, range: &Range<u64>) {
        while let Some(run) = self.held.first_in(range) {
            self.unhold(&run);
        }
        self.unready_all(range);
        if !self.delayed.is_empty() {
            self.undelay(range);
        }
        if !self.dead.is_empty() {
            self.clear_dead(range);
        }
    }

    fn set_dead(&mut self, range: Range<u64>, reason: Reason) {
        self.sizes.dead += self.size_of(&range);
        self.dead.set(range, Dead { reason, moving: false });
    }

    /// Messages are dead no longer.
    pub(crate) fn clear_dead(&mut self, range: &Range<u64>) {
        self.sizes.dead -= self.size_in(&self.dead, range);
        self.dead.clear(range);
    }

    /// Records that messages, which are in no place any more, are settled.
    pub(crate) fn record_settled(&mut self, range: Range<u64>) {
        if let Some(keys) = self.keys.as_deref_mut() {
            keys.forget(&range);
        }
        self.pending.set(range, Mark::SETTLED);
    }

    /// Messages that are in no place any more are dead: they are to be moved, or settled where there is no dead-letter target.
    pub(crate) fn bury(&mut self, range: Range<u64>, reason: Reason, tally: Tally) {
        if self.config.dead_letter {
            if let Some(keys) = self.keys.as_deref_mut() {
                keys.forget(&range);
            }
            self.pending.set(range.clone(), Mark { fate: Fate::Dead(reason), tally, ..Mark::OPEN });
            self.set_dead(range, reason);
        } else {
            self.record_settled(range);
        }
    }

    /// As [`Queue::bury`], of messages that were ready: each with its own tally.
    pub(crate) fn bury_ready(&mut self, lane: usize, range: Range<u64>, class: &Class, reason: Reason) {
        self.unready(lane, &range, class);
        let mut at = range.start;
        while at < range.end {
            let (end, mark) = self.mark_run(at, range.end);
            self.bury(at..end, reason, mark.tally);
            at = end;
        }
    }

    /// Messages that were held, and that no consumer has seen, return to their place.
    pub(crate) fn take_back(&mut self, run: &Run<Held>, now_ms: u64) {
        self.unhold_for_good(run);
        let mut at = run.start;
        while at < run.end {
            let (end, mut mark) = self.mark_run(at, run.end);
            if run.value.first_time && mark.handed {
                mark.handed = false;
                self.unmark_handed(at..end, mark);
            }
            self.place(at..end, mark, now_ms);
            at = end;
        }
    }

    /// Messages with this mark were not handed out after all. Where that was not recorded yet there is nothing to record.
    fn unmark_handed(&mut self, range: Range<u64>, mark: Mark) {
        let mut at = range.start;
        while at < range.end {
            let (end, recorded) = self.recorded_run(at, range.end);
            if recorded == mark {
                self.pending.clear(&(at..end));
            } else {
                self.pending.set(at..end, mark);
            }
            at = end;
        }
    }

    /// Messages are held no longer, and what is said under their lease counts no more.
    fn unhold_for_good(&mut self, run: &Run<Held>) {
        self.unhold(run);
        let lease = self.next_lease();
        if let Some(consumer) = self.consumers.get_mut(run.value.slot) {
            consumer.lease = lease;
        }
    }

    /// Messages that were held come back to their place.
    pub(crate) fn give_back(&mut self, run: &Run<Held>, how: Return, now_ms: u64) {
        let Return { counts, delay, unseen } = how;
        let returns_count = self.config.returns_count;
        self.unhold_for_good(run);
        let mut at = run.start;
        while at < run.end {
            let (end, mark) = self.mark_run(at, run.end);
            let mut mark = if unseen { mark } else { mark.returned(counts) };
            let counted = if returns_count { mark.tally.returned } else { mark.tally.failed };
            let is_counted = !unseen && (counts || returns_count);
            if is_counted && self.config.failures_max.is_some_and(|max| counted >= max) {
                self.bury(at..end, Reason::DeliveryLimit, mark.tally);
            } else {
                let until_ms = delay.until_ms(self.config.retry, now_ms, counts, mark.tally);
                if until_ms > now_ms {
                    mark.not_before_ms = until_ms.min(PARKED_MS - 1);
                }
                self.pending.set(at..end, mark);
                self.place(at..end, mark, now_ms);
            }
            at = end;
        }
    }

    /// The number of a new lease. No two of a writer are the same, and the next one cannot be derived from the last.
    pub(crate) fn next_lease(&mut self) -> u64 {
        self.leases = self.leases.wrapping_add(1);
        crate::keys::scramble(self.leases)
    }
}
