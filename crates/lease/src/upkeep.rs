//! What happens to messages by themselves: time passes, too many wait, and what is not known of them is asked for.

use crate::config::Return;
use crate::error::LeaseError;
use crate::mark::{Class, Entry, Fate, Reason};
use crate::queue::Queue;
use std::ops::Range;

/// Messages whose description is asked for at once, at the most.
const WANTED_MESSAGES_MAX: u64 = 1 << 12;

impl Queue {
    /// When to call [`Queue::on_deadline`] next: a lease runs out, a message has waited long enough or expires. Milliseconds.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.next_expiry_ms().into_iter().chain(self.next_alarm_ms()).min()
    }

    /// As [`Queue::next_deadline_ms`], but for messages that expire: while they are described nothing becomes of them.
    #[must_use]
    pub fn next_alarm_ms(&self) -> Option<u64> {
        self.alarms.next_ms()
    }

    /// When a message at the head expires, or it becomes uncertain whether it has.
    fn next_expiry_ms(&self) -> Option<u64> {
        let heads = self.lanes.iter().filter_map(|lane| lane.ready.first());
        let heads = heads.filter(|run| run.start < self.applied.head.end && !self.applied.classes.is_empty());
        let classes = heads.map(|run| self.applied.class_run(run.start, run.end).1);
        classes.filter(|class| class.expires_at_ms > 0).map(|class| class.uncertain_from_ms()).min()
    }

    /// Time has passed: leases that ran out come back, messages that waited long enough are ready, those at the head that expired are dead.
    pub fn on_deadline(&mut self, now_ms: u64) {
        while let Some(alarm) = self.alarms.due(now_ms) {
            let mut range = alarm.start..alarm.end;
            if alarm.held {
                while let Some(run) = self.held.first_in(&range) {
                    range.start = run.end;
                    if run.value.deadline_ms <= now_ms {
                        self.give_back(&run, Return { counts: true, ..Return::default() }, now_ms);
                    }
                }
            } else {
                while let Some(run) = self.delayed.first_in(&range) {
                    range.start = run.end;
                    if run.value <= now_ms {
                        self.undelay(&run.range());
                        self.make_ready(run.range());
                    }
                }
            }
        }
        self.expire(now_ms);
        self.keep_length();
    }

    /// Messages at the head of the queue (of each priority) that expired are dead. Those behind others wait until they come to the head, and
    /// are never handed out.
    fn expire(&mut self, now_ms: u64) {
        if self.applied.classes.is_empty() {
            return;
        }
        for lane in 0..self.lanes.len() {
            while let Some(run) = self.lanes.get(lane).and_then(|lane| lane.ready.first()) {
                let (end, class) = self.applied.class_run(run.start, run.end);
                if !self.is_expired(run.start, &class, now_ms) {
                    break;
                }
                let end = end.min(self.applied.head.end);
                self.bury_ready(lane, run.start..end, &class, Reason::Expired);
            }
        }
    }

    /// Drops the next messages while more are ready than there may be, whether they are committed or not. Not while a consumer has credit
    /// for some: what is about to be handed out does not count as ready, and [`Queue::grant`] ends with this.
    pub(crate) fn keep_length(&mut self) {
        if self.is_too_long() && self.turn().is_none() {
            self.drop_head();
        }
    }

    fn is_too_long(&self) -> bool {
        let (messages, bytes) = self.over();
        messages > 0 || bytes > 0
    }

    /// How many messages more are ready than there may be, and how many bytes.
    fn over(&self) -> (u64, u64) {
        let messages = self.config.length_max.map_or(0, |max| {
            let ready = self.lanes.iter().map(|lane| lane.ready.covered()).sum::<u64>();
            ready.saturating_sub(max)
        });
        (messages, self.config.bytes_max.map_or(0, |max| self.sizes.ready.bytes.saturating_sub(max)))
    }

    /// As [`Queue::keep_length`], even where consumers have credit: what comes back is dropped before it is handed out again, as with RabbitMQ.
    pub(crate) fn drop_head(&mut self) {
        let (mut messages_over, mut bytes_over) = self.over();
        while messages_over > 0 || bytes_over > 0 {
            let Some((lane, run)) = self.next_lane() else { return };
            let (end, class) = self.applied.class_run(run.start, run.end);
            let by_bytes = match class.body() {
                0 if bytes_over > 0 => u64::MAX,
                0 => 0,
                bytes => bytes_over.div_ceil(bytes),
            };
            let end = end.min(run.start.saturating_add(messages_over.max(by_bytes)));
            self.bury_ready(lane, run.start..end, &class, Reason::MaxLength);
            self.went(end - run.start);
            messages_over = messages_over.saturating_sub(end - run.start);
            bytes_over = bytes_over.saturating_sub(class.body().wrapping_mul(end - run.start));
        }
    }

    /// Messages that are next and cannot be handed out before they are described: their keys or entries are not known. After a start, a
    /// seek, and where more are ready than the engine keeps keys of.
    #[must_use]
    pub fn wants(&self) -> Option<Range<u64>> {
        let first = match self.keys.as_deref() {
            Some(keys) => {
                let from = keys.known_to;
                let ready = self.lanes.iter().filter_map(|lane| Some(lane.ready.from(from)?.range()));
                let all = ready.chain(self.delayed.from(from).map(|run| run.range()));
                let first = all.map(|range| range.start.max(from)..range.end).min_by_key(|range| range.start)?;
                first.start..first.end.min(first.start.saturating_add(keys.room()))
            }
            None if self.config.whole_entries => {
                let first = self.lanes.iter().find_map(|lane| lane.ready.first())?.range();
                let (end, class) = self.applied.class_run(first.start, first.end);
                if class.entry > 0 {
                    return None;
                }
                first.start..end
            }
            None => return None,
        };
        let wanted = first.start..first.end.min(first.start.saturating_add(WANTED_MESSAGES_MAX));
        (!wanted.is_empty()).then_some(wanted)
    }

    /// What messages are that [`Queue::wants`] asked for: the entries that they are in, in their order. One without a key goes with hash 0.
    /// Keys that are reported out of order are skipped.
    ///
    /// # Errors
    /// When there is no writer, or no message at these offsets.
    pub fn describe(&mut self, entry: &Entry) -> Result<(), LeaseError> {
        self.check_writer()?;
        if entry.end() > self.end {
            return Err(LeaseError::NotInOrder { expected: self.end, got: entry.end() });
        }
        self.describe_class(entry);
        if let Some(wanted) = self.keys.is_some().then(|| self.wants()).flatten()
            && entry.first_offset <= wanted.start
        {
            self.describe_key(wanted.start..entry.end(), entry.key_hash.unwrap_or(0));
        }
        Ok(())
    }

    /// The next messages from an offset on of which it is not known what of their size is not their bodies: builds before this one did not keep
    /// it. Where there is no such part they are asked for once more.
    #[must_use]
    pub fn unsized_from(&self, offset: u64) -> Option<Range<u64>> {
        let from = offset.max(self.applied.head.floor);
        let mut runs = self.applied.classes.iter_from(from).take_while(|run| run.start < self.applied.head.end);
        let run = runs.find(|run| run.value.bytes > 0 && run.value.extra == 0)?;
        Some(run.start.max(from)..run.end.min(self.applied.head.end))
    }

    /// Says how much of the size of each of these messages is not its body. Of what it is known of it stays.
    pub fn describe_extra(&mut self, range: Range<u64>, extra_bytes: u64) {
        let extra = u32::try_from(extra_bytes).unwrap_or(u32::MAX);
        let mut at = range.start;
        while at < range.end {
            let (end, class) = self.applied.class_run(at, range.end);
            if class.bytes > 0 && class.extra == 0 {
                self.resize(at..end, Class { extra: extra.min(class.bytes), ..class });
            }
            at = end;
        }
    }

    fn describe_class(&mut self, entry: &Entry) {
        let range = entry.first_offset..entry.end();
        let class = self.class_of(entry);
        if self.applied.class_run(range.start, range.end) == (range.end, class) {
            return;
        }
        let held = self.held.first_in(&range).is_some();
        let mut ready = Vec::new();
        for lane in &self.lanes {
            let mut left = range.clone();
            while let Some(run) = lane.ready.first_in(&left) {
                ready.push(run.range());
                left.start = run.end;
            }
        }
        ready.iter().for_each(|part| self.unready_all(part));
        // The whole entry, so that it is known where it starts.
        self.applied.set_class(range.clone(), class);
        ready.into_iter().for_each(|part| self.make_ready(part));
        if held || self.delayed.first_in(&range).is_some() || self.dead.first_in(&range).is_some() {
            self.recount();
        }
    }

    fn describe_key(&mut self, range: Range<u64>, hash: u32) {
        let Some(keys) = self.keys.as_deref_mut() else { return };
        if range.is_empty() {
            return;
        }
        keys.known_to = range.end;
        let mut at = range.start;
        while at < range.end {
            let (end, mark) = self.mark_run(at, range.end);
            if mark.fate == Fate::Open
                && let Some(keys) = self.keys.as_deref_mut()
            {
                keys.learn(at..end, hash);
            }
            at = end;
        }
        self.index_keys(&range);
    }

    /// Puts messages whose keys became known where the order of keys finds them.
    fn index_keys(&mut self, range: &Range<u64>) {
        let Some(mut keys) = self.keys.take() else { return };
        for lane in &self.lanes {
            let mut left = range.clone();
            while let Some(run) = lane.ready.first_in(&left) {
                keys.set_ready(&run.range(), true);
                left.start = run.end;
            }
        }
        let mut left = range.clone();
        while let Some(run) = self.delayed.first_in(&left) {
            keys.set_waiting(&run.range(), true);
            left.start = run.end;
        }
        self.keys = Some(keys);
    }
}
