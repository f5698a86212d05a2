//! Handing out messages to consumers.

use crate::alarms::Alarm;
use crate::consumers::{Consumer, ConsumerConfig, ConsumerId, Room, Share};
use crate::error::LeaseError;
use crate::mark::{Class, Reason, Size, Tally};
use crate::queue::{Held, Queue};
use polylogue_types::SharedLimit;
use std::ops::Range;
use std::sync::Arc;

/// Messages in one [`Grant`] at the most.
pub const GRANT_MESSAGES_MAX: u32 = 1 << 10;

/// Messages of the higher of two levels of priority that go before one of the lower one.
const HIGH_IN_A_ROW: u8 = 2;

/// A lease: what its holder shows to settle, return or keep its messages. Of no meaning to another writer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId(pub u64);

/// Messages that are handed out to a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// To whom.
    pub consumer: ConsumerId,
    /// The first message.
    pub first_offset: u64,
    /// How many messages, one after the other.
    pub count: u32,
    /// The bytes of each of them, as its consumer's window counts them; 0 where bytes are not counted.
    pub bytes: u32,
    /// What each of them has behind it. This attempt is number `returned + 1`.
    pub tally: Tally,
    /// They were handed out before. Of a build whose records did not say of which messages that is true it may be false.
    pub redelivered: bool,
    /// Under which lease.
    pub lease: LeaseId,
    /// Until when they are held; `None`: until they are settled or returned, or their consumer leaves. Milliseconds.
    pub deadline_ms: Option<u64>,
}

/// What a consumer asks for at once, whatever its credit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acquire {
    /// Messages at the most.
    pub messages_max: u64,
    /// Bytes at the most, unless the first message has more.
    pub bytes_max: u64,
    /// How long it holds them; `None` for as long as the consumer always does. Milliseconds.
    pub lease_ms: Option<u64>,
}

/// To whom messages go, and how.
#[derive(Clone, Copy, Debug)]
struct To {
    id: ConsumerId,
    held: Held,
    settles: bool,
}

impl To {
    /// So many messages, one after the other, handed out for the first time.
    fn grant(&self, first_offset: u64, count: u32, tally: Tally) -> Grant {
        Grant {
            consumer: self.id,
            first_offset,
            count,
            bytes: 0,
            tally,
            redelivered: false,
            lease: LeaseId(self.held.lease),
            deadline_ms: Some(self.held.deadline_ms).filter(|deadline| *deadline < u64::MAX),
        }
    }
}

/// What came of trying to hand out messages.
enum Gave {
    /// So many, with so many bytes.
    Messages(u64, u64),
    /// None is ready for this consumer.
    Nothing,
    /// The next one is too large for what room there is.
    NoRoom,
}

impl Queue {
    /// A consumer comes.
    ///
    /// # Errors
    /// When there is no writer, or it cannot be beside those that are there.
    pub fn add_consumer(&mut self, id: ConsumerId, config: ConsumerConfig) -> Result<(), LeaseError> {
        self.check_writer()?;
        if self.keys.as_deref().is_some_and(|keys| !keys.are_free(&config.hashes)) {
            return Err(LeaseError::HashesTaken);
        }
        let lease = self.next_lease();
        let hashes = config.hashes.clone();
        let slot = self.consumers.add(id, config, lease, self.config.mode)?;
        if let Some(keys) = self.keys.as_deref_mut() {
            keys.add(slot, id.0, &hashes);
        }
        if self.consumers.begins_held_index() {
            self.held.iter().for_each(|run| self.consumers.note_held(run.value.slot, &run.range(), true));
        }
        Ok(())
    }

    /// The consumer that gets messages, where only one does.
    #[must_use]
    pub fn active_consumer(&self) -> Option<ConsumerId> {
        Some(self.consumers.get(self.consumers.active()?)?.id)
    }

    /// A consumer may get so many more messages, and has room for so many more bytes in its window. One that may get any number goes on
    /// so.
    ///
    /// # Errors
    /// When there is no such consumer.
    pub fn add_permits(&mut self, id: ConsumerId, permits: u64, bytes: u64) -> Result<(), LeaseError> {
        let slot = self.consumers.slot(id)?;
        if let Some(consumer) = self.consumers.get_mut(slot) {
            consumer.config.permits = consumer.config.permits.map(|before| before.saturating_add(permits));
            consumer.window_used = consumer.window_used.saturating_sub(bytes);
        }
        self.consumers.queue_up(slot, self.config.mode);
        Ok(())
    }

    /// Other limits of what a consumer holds; 0 for any number.
    ///
    /// # Errors
    /// When there is no such consumer.
    pub fn set_prefetch(&mut self, id: ConsumerId, messages: u32, bytes: u64) -> Result<(), LeaseError> {
        let slot = self.consumers.slot(id)?;
        if let Some(consumer) = self.consumers.get_mut(slot) {
            (consumer.config.prefetch, consumer.config.prefetch_bytes) = (messages, bytes);
        }
        self.consumers.queue_up(slot, self.config.mode);
        Ok(())
    }

    /// How many messages a consumer holds.
    ///
    /// # Errors
    /// When there is no such consumer.
    pub fn held_by(&self, id: ConsumerId) -> Result<u64, LeaseError> {
        let slot = self.consumers.slot(id)?;
        Ok(self.consumers.get(slot).map_or(0, |consumer| consumer.held))
    }

    /// Hands out up to so many messages to the consumers that have credit, in turn. Returns how many; entries that are kept whole may
    /// make it more. When it is at least as many as were asked for, there may be more to hand out.
    pub fn grant(&mut self, now_ms: u64, messages_max: u64, out: &mut Vec<Grant>) -> u64 {
        let (mut given, mut passed) = (0, 0);
        while given < messages_max && passed <= self.consumers.len() {
            let Some((slot, alone)) = self.turn() else { break };
            let Some(consumer) = self.consumers.get(slot) else { break };
            let mut room = consumer.room();
            let quantum = if alone { u64::MAX } else { u64::from(self.config.quantum.max(1)) };
            room.messages = room.messages.min(messages_max - given).min(quantum);
            let lease_ms = consumer.config.lease_ms;
            let to = self.to(slot, lease_ms, now_ms);
            let Some(to) = to else { break };
            let share = self.consumers.get(slot).and_then(|consumer| consumer.config.share.clone());
            let gave = match share {
                None => self.give(&to, room, now_ms, out),
                Some(share) => self.give_shared(&to, &share, room, now_ms, out),
            };
            match gave {
                Gave::Messages(messages, _) => {
                    (given, passed) = (given + messages, 0);
                    self.consumers.had_turn(slot);
                }
                // With key order turns go by the keys. Others may go on when what this one was to get has expired meanwhile.
                Gave::Nothing if self.keys.as_deref().is_some_and(|keys| keys.next_of(slot).is_none()) => {}
                Gave::NoRoom if self.keys.is_some() => passed += 1,
                Gave::NoRoom => self.consumers.step_down(slot),
                Gave::Nothing => break,
            }
        }
        if given < messages_max {
            // No consumer can have what is left.
            self.drop_head();
        }
        given
    }

    /// As [`Queue::give`], to a consumer that shares a limit: as far as there is room under it.
    fn give_shared(&mut self, to: &To, share: &Share, mut room: Room, now_ms: u64, out: &mut Vec<Grant>) -> Gave {
        let ready: u64 = self.lanes.iter().map(|lane| lane.ready.covered()).sum();
        if ready == 0 {
            self.leave_line(to.id, share);
            return Gave::Nothing;
        }
        let (taken, wakes) = share.limit.take(to.id.0, room.messages.min(ready), share.counts);
        if wakes {
            self.note_freed(share);
        }
        if taken == 0 {
            return Gave::NoRoom;
        }
        room.messages = taken;
        let gave = self.give(to, room, now_ms, out);
        let used = match gave {
            Gave::Messages(messages, _) => messages,
            Gave::Nothing | Gave::NoRoom => 0,
        };
        if share.counts && used > room.messages {
            // Entries that are kept whole.
            share.limit.hold(used - room.messages);
        }
        self.give_back_share(share, room.messages.saturating_sub(used));
        gave
    }

    /// A consumer shares a limit from now on. What it holds counts.
    ///
    /// # Errors
    /// When there is no such consumer.
    pub fn share(&mut self, id: ConsumerId, share: Share) -> Result<(), LeaseError> {
        let slot = self.consumers.slot(id)?;
        if let Some(consumer) = self.consumers.get_mut(slot)
            && consumer.config.share.as_ref() != Some(&share)
        {
            if share.counts {
                share.limit.hold(consumer.held);
            }
            consumer.config.share = Some(share);
        }
        Ok(())
    }

    /// There may be room again for a consumer that waits for some under a limit that it shares.
    ///
    /// # Errors
    /// When there is no such consumer.
    pub fn offer(&mut self, id: ConsumerId) -> Result<(), LeaseError> {
        let slot = self.consumers.slot(id)?;
        let tired = self.consumers.get(slot).filter(|consumer| !consumer.wants());
        if let Some(share) = tired.and_then(|consumer| consumer.config.share.clone()) {
            self.leave_line(id, &share);
        }
        self.consumers.queue_up(slot, self.config.mode);
        Ok(())
    }

    /// Limits under which there is room again since the last call, and consumers that wait for it: the host offers it to them, in their order.
    #[must_use]
    pub fn take_freed(&mut self) -> Vec<Arc<SharedLimit>> {
        std::mem::take(&mut self.freed)
    }

    pub(crate) fn give_back_share(&mut self, share: &Share, messages: u64) {
        if share.counts && messages > 0 && share.limit.give_back(messages) {
            self.note_freed(share);
        }
    }

    /// A consumer waits no longer for room under a limit that it shares.
    pub(crate) fn leave_line(&mut self, id: ConsumerId, share: &Share) {
        if share.limit.forget(id.0) {
            self.note_freed(share);
        }
    }

    fn note_freed(&mut self, share: &Share) {
        if !self.freed.contains(&share.limit) {
            self.freed.push(share.limit.clone());
        }
    }

    /// Hands out messages to one consumer that asks for them. Returns how many.
    ///
    /// # Errors
    /// When there is no such consumer.
    pub fn acquire(
        &mut self,
        id: ConsumerId,
        want: &Acquire,
        now_ms: u64,
        out: &mut Vec<Grant>,
    ) -> Result<u64, LeaseError> {
        let slot = self.consumers.slot(id)?;
        let lease_ms = want.lease_ms.or(self.consumers.get(slot).and_then(|consumer| consumer.config.lease_ms));
        let to = self.to(slot, lease_ms, now_ms).ok_or(LeaseError::NoConsumer(id))?;
        let (mut messages, mut bytes) = (0, 0);
        while messages < want.messages_max && (messages == 0 || bytes < want.bytes_max) {
            let room = Room {
                messages: want.messages_max - messages,
                bytes: want.bytes_max.saturating_sub(bytes),
                any_one: messages == 0,
            };
            match self.give(&to, room, now_ms, out) {
                Gave::Messages(more, more_bytes) => {
                    messages += more;
                    bytes = more_bytes.saturating_add(bytes);
                }
                Gave::Nothing | Gave::NoRoom => break,
            }
        }
        Ok(messages)
    }

    /// The consumer whose turn it is, and whether it is the only one that waits.
    pub(crate) fn turn(&mut self) -> Option<(u32, bool)> {
        let consumers = &self.consumers;
        match self.keys.as_deref_mut() {
            None => self.consumers.turn(self.config.mode),
            Some(keys) => keys.turn(|slot| consumers.get(slot).is_some_and(Consumer::wants)).map(|slot| (slot, false)),
        }
    }

    fn to(&mut self, slot: u32, lease_ms: Option<u64>, now_ms: u64) -> Option<To> {
        let deadline_ms = lease_ms.map_or(u64::MAX, |ms| now_ms.saturating_add(ms));
        let consumer = self.consumers.get(slot)?;
        let (id, settles, lease) = (consumer.id, consumer.config.settles, consumer.lease);
        let lease = if deadline_ms < u64::MAX { self.next_lease() } else { lease };
        Some(To { id, settles, held: Held { lease, deadline_ms, slot, first_time: false } })
    }

    /// The lane and the range of the messages that are next for a consumer.
    fn next_for(&self, slot: u32) -> Option<(usize, Range<u64>)> {
        let Some(keys) = self.keys.as_deref() else { return self.next_lane() };
        let first = keys.next_of(slot)?;
        let same_key = keys.same_until(first)?;
        let ready = self.lanes.first()?.ready.at(first)?.end;
        Some((0, first..ready.min(same_key)))
    }

    /// The lane and the range of the messages that are next. With two levels, as RabbitMQ's quorum queues had them up to 4.2: two of the
    /// higher one for each of the lower one, unless that is younger.
    pub(crate) fn next_lane(&self) -> Option<(usize, Range<u64>)> {
        let lanes = self.lanes.iter().enumerate();
        let mut heads = lanes.filter_map(|(index, lane)| Some((index, lane.ready.first()?.range())));
        let (index, range) = heads.next()?;
        if self.config.low_priority_max.is_none() {
            return Some((index, range));
        }
        let Some((low, low_range)) = heads.next() else { return Some((index, range)) };
        let (index, range, count) = match HIGH_IN_A_ROW.saturating_sub(self.in_a_row) {
            0 if low_range.start < range.start => (low, low_range, 1),
            0 => (index, range, 1),
            count => (index, range, u64::from(count)),
        };
        Some((index, range.start..range.end.min(range.start.saturating_add(count))))
    }

    /// So many messages went, in the order of [`Queue::next_lane`].
    pub(crate) fn went(&mut self, count: u64) {
        let turns = u64::from(HIGH_IN_A_ROW) + 1;
        self.in_a_row = ((u64::from(self.in_a_row) + count % turns) % turns) as u8;
    }

    /// Hands out messages that follow one another, or what is ready of an entry, to a consumer.
    fn give(&mut self, to: &To, mut room: Room, now_ms: u64, out: &mut Vec<Grant>) -> Gave {
        if let Some(max) = self.config.held_max {
            room.messages = room.messages.min(max.saturating_sub(self.held.covered()));
            if room.messages == 0 {
                return Gave::Nothing;
            }
        }
        loop {
            let Some((lane, range)) = self.next_for(to.held.slot) else { return Gave::Nothing };
            let (end, class) = self.applied.class_run(range.start, range.end);
            if self.is_expired(range.start, &class, now_ms) {
                let end = end.min(self.applied.head.end);
                self.bury_ready(lane, range.start..end, &class, Reason::Expired);
                continue;
            }
            let uncertain = class.is_uncertain(now_ms) && range.start < self.applied.head.end;
            if uncertain || self.config.whole_entries && class.entry == 0 {
                return Gave::Nothing;
            }
            let messages = room.messages.min(match u64::from(class.bytes) {
                0 => u64::MAX,
                bytes => (room.bytes / bytes).max(u64::from(room.any_one)),
            });
            if messages == 0 {
                return Gave::NoRoom;
            }
            let mut range = range.start..end.min(range.start.saturating_add(messages));
            if self.config.whole_entries {
                range.end = self.whole(&range);
            }
            let messages = self.hand(to, lane, range, &class, now_ms, out);
            return Gave::Messages(messages, class.weigh(messages));
        }
    }

    /// Whether a message is not to be handed out any more. Before its commit it is.
    pub(crate) fn is_expired(&self, offset: u64, class: &Class, now_ms: u64) -> bool {
        class.expires_at_ms > 0 && class.expires_at_ms <= now_ms && offset < self.applied.head.end
    }

    /// Where a range ends that is cut to whole entries, and holds one at the least.
    fn whole(&self, range: &Range<u64>) -> u64 {
        let Some(run) = self.applied.classes.at(range.start) else { return range.end };
        let entry = u64::from(run.value.entry.max(1));
        let entries = ((range.end - run.start) / entry).max((range.start - run.start) / entry + 1);
        run.end.min(run.start + entries * entry)
    }

    /// Hands out what is ready of a range of one class.
    fn hand(
        &mut self,
        to: &To,
        lane: usize,
        mut range: Range<u64>,
        class: &Class,
        now_ms: u64,
        out: &mut Vec<Grant>,
    ) -> u64 {
        let first = range.start;
        let (mut count, mut size) = (0, Size::default());
        while let Some(ready) = self.lanes.get(lane).and_then(|lane| lane.ready.first_in(&range)) {
            count += ready.len();
            size += class.size(&ready.range());
            range.start = ready.end;
            self.unready(lane, &ready.range(), class);
            self.hand_run(to, ready.range(), class.bytes, out);
            if to.settles {
                self.record_settled(ready.range());
                continue;
            }
            if let Some(keys) = self.keys.as_deref_mut() {
                keys.set_held(&ready.range(), to.held.slot, true);
            }
        }
        self.went(count);
        let bytes = class.weigh(count);
        if let Some(consumer) = self.consumers.get_mut(to.held.slot) {
            consumer.config.permits = consumer.config.permits.map(|permits| permits.saturating_sub(count));
            if consumer.config.window_bytes > 0 {
                consumer.window_used = consumer.window_used.saturating_add(bytes);
            }
            if !to.settles {
                if consumer.held == 0 {
                    consumer.held_from = first;
                }
                consumer.held_from = consumer.held_from.min(first);
                consumer.held += count;
                consumer.held_bytes = consumer.held_bytes.wrapping_add(bytes);
            }
        }
        if !to.settles {
            self.sizes.held += size;
            if to.held.deadline_ms < u64::MAX {
                self.alarm(Alarm::new(to.held.deadline_ms.max(now_ms), first..range.start, true));
            }
        }
        count
    }

    /// Adds messages to what is handed out, together with those before them where nothing is different, and holds them, unless they
    /// are settled by it.
    fn hand_run(&mut self, to: &To, range: Range<u64>, bytes: u32, out: &mut Vec<Grant>) {
        let handed_to = self.applied.head.handed_to;
        let mut at = range.start;
        while at < range.end {
            let mut limit = range.end.min(at + u64::from(GRANT_MESSAGES_MAX));
            if at < handed_to {
                limit = limit.min(handed_to);
            }
            let (end, mark) = self.mark_run(at, limit);
            let redelivered = mark.tally.returned > 0 || mark.handed || at < handed_to;
            let grant = Grant { bytes, redelivered, ..to.grant(at, (end - at) as u32, mark.tally) };
            match out.last_mut() {
                Some(last) if last.joins(&grant) => last.count += grant.count,
                _ => out.push(grant),
            }
            if !to.settles {
                let first_time = self.config.mark_handed && !redelivered;
                if first_time {
                    self.pending.set(at..end, mark.handed());
                }
                self.held.set(at..end, Held { first_time, ..to.held });
                self.consumers.note_held(to.held.slot, &(at..end), true);
            }
            at = end;
        }
    }
}

impl Grant {
    /// The offset after the last message.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first_offset + u64::from(self.count)
    }

    fn joins(&self, next: &Grant) -> bool {
        self.end() == next.first_offset
            && self.count + next.count <= GRANT_MESSAGES_MAX
            && *self == Grant { first_offset: self.first_offset, count: self.count, ..*next }
    }
}
