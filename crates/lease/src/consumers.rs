//! Consumers of a queue: their credit, and the order in which they are served.

use crate::config::Mode;
use crate::error::LeaseError;
use polylogue_types::SharedLimit;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

/// A consumer, by the host's id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConsumerId(pub u64);

impl fmt::Display for ConsumerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A limit that a consumer shares with others, also of other queues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// The limit. There the consumer is known by its id.
    pub limit: Arc<SharedLimit>,
    /// What it holds counts. What does not waits all the same while there is no room.
    pub counts: bool,
}

/// Settings of a consumer. The default has no limits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConsumerConfig {
    /// Higher ones get messages first, as long as they have credit. Does not matter with key order.
    pub priority: i32,
    /// Of consumers with one priority that of the lowest rank is the active one.
    pub rank: u64,
    /// Maximum unsettled messages; 0 for no limit.
    pub prefetch: u32,
    /// Maximum unsettled bytes, unless a single message has more; 0 for no limit.
    pub prefetch_bytes: u64,
    /// Messages that it may get before it is given more permits; `None` for any number. A consumer that only pulls has none.
    pub permits: Option<u64>,
    /// Bytes that it may get before it is given permits for them, unless one message has more; 0 for any number.
    pub window_bytes: u64,
    /// How long it holds messages before they are redelivered; `None`: until it returns them or detaches. Milliseconds.
    pub lease_ms: Option<u64>,
    /// Messages are settled on delivery.
    pub settles: bool,
    /// The consumer is exclusive: no other may attach. Consumers that only pull do not count.
    pub exclusive: bool,
    /// It only asks for messages ([`crate::Queue::acquire`]) and waits for none: it is never the active one, and blocks no other consumer.
    pub pulls: bool,
    /// The first and the last hash of ranges of keys that it gets, with key order; without any it takes part in all.
    pub hashes: Vec<(u32, u32)>,
    /// What it holds is limited together with what others hold.
    pub share: Option<Share>,
}

/// The remaining credit of a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// One message may have more bytes than there is room for.
    pub(crate) any_one: bool,
}

#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) id: ConsumerId,
    pub(crate) config: ConsumerConfig,
    /// What its leases without deadline are known by. Another one after anything of it came back.
    pub(crate) lease: u64,
    pub(crate) held: u64,
    /// It holds nothing before this offset.
    pub(crate) held_from: u64,
    pub(crate) held_bytes: u64,
    /// Bytes of its window that are used.
    pub(crate) window_used: u64,
    /// It keeps its leases and receives no more messages.
    pub(crate) stopped: bool,
    /// It is in its level's ring.
    queued: bool,
    joined: u64,
}

impl Consumer {
    pub(crate) fn room(&self) -> Room {
        let ConsumerConfig { prefetch, prefetch_bytes, permits, window_bytes, .. } = self.config;
        let limit = |max: u64, held: u64| if max == 0 { u64::MAX } else { max.saturating_sub(held) };
        let messages = limit(u64::from(prefetch), self.held).min(permits.unwrap_or(u64::MAX));
        let bytes = limit(prefetch_bytes, self.held_bytes).min(limit(window_bytes, self.window_used));
        let any_one = (prefetch_bytes == 0 || self.held == 0) && (window_bytes == 0 || self.window_used == 0);
        Room { messages, bytes, any_one }
    }

    /// It may hold more messages, whatever it has permits and a window for.
    fn may_hold_more(&self) -> bool {
        let ConsumerConfig { prefetch, prefetch_bytes, pulls, share, .. } = &self.config;
        let has_room = *prefetch == 0 || self.held < u64::from(*prefetch);
        let has_bytes = *prefetch_bytes == 0 || self.held == 0 || self.held_bytes < *prefetch_bytes;
        has_room && has_bytes && !self.stopped && !pulls && share.as_ref().is_none_or(|share| share.limit.has_room())
    }

    /// It may get messages, as far as its own limits go.
    pub(crate) fn wants(&self) -> bool {
        let room = self.room();
        !self.stopped && room.messages > 0 && (room.bytes > 0 || room.any_one)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if let Some(Share { limit, counts }) = &self.config.share {
            // The caller that drops consumers looks at those that wait, see `Queue::take_freed`.
            let _ = limit.forget(self.id.0);
            let _ = *counts && limit.give_back(self.held);
        }
    }
}

/// Consumers of one priority that may want messages, in the order of their turns.
#[derive(Debug)]
struct Level {
    priority: i32,
    ring: VecDeque<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    slots: Vec<Option<Consumer>>,
    by_id: BTreeMap<ConsumerId, u32>,
    /// The highest first.
    levels: Vec<Level>,
    /// The active consumer, if only one receives messages.
    active: Option<u32>,
    joined: u64,
}

impl Consumers {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn slot(&self, id: ConsumerId) -> Result<u32, LeaseError> {
        self.by_id.get(&id).copied().ok_or(LeaseError::NoConsumer(id))
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Consumer> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Consumer> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Consumer)> {
        self.by_id.values().filter_map(|slot| Some((*slot, self.get(*slot)?)))
    }

    /// Whether one of the first consumers, of so many, may hold more messages.
    pub(crate) fn want_messages(&self, looks_max: usize) -> bool {
        match self.active {
            Some(slot) => self.get(slot).is_some_and(Consumer::may_hold_more),
            None => self.iter().take(looks_max).any(|(_, consumer)| consumer.may_hold_more()),
        }
    }

    pub(crate) fn clear_held_bytes(&mut self) {
        self.slots.iter_mut().flatten().for_each(|consumer| consumer.held_bytes = 0);
    }

    pub(crate) fn active(&self) -> Option<u32> {
        self.active
    }

    pub(crate) fn add(
        &mut self,
        id: ConsumerId,
        config: ConsumerConfig,
        lease: u64,
        mode: Mode,
    ) -> Result<u32, LeaseError> {
        if self.by_id.contains_key(&id) {
            return Err(LeaseError::ConsumerExists(id));
        }
        // One that was stopped keeps what it has, and the queue is free for others.
        let others = || self.iter().filter(|(_, other)| !other.config.pulls && !other.stopped);
        let alone = mode == Mode::Exclusive || config.exclusive || others().any(|(_, other)| other.config.exclusive);
        if alone && !config.pulls && others().next().is_some() {
            return Err(LeaseError::Exclusive);
        }
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            if slot == 0 {
                self.slots.reserve_exact(1);
            }
            self.slots.push(None);
        }
        let (held, held_from, held_bytes, window_used) = (0, u64::MAX, 0, 0);
        let (stopped, queued, joined) = (false, false, self.joined);
        let consumer =
            Consumer { id, config, lease, held, held_from, held_bytes, window_used, stopped, queued, joined };
        self.slots[slot] = Some(consumer);
        self.joined += 1;
        let slot = slot as u32;
        self.by_id.insert(id, slot);
        self.choose(mode);
        self.queue_up(slot, mode);
        Ok(slot)
    }

    pub(crate) fn remove(&mut self, slot: u32, mode: Mode) {
        let Some(consumer) = self.slots.get_mut(slot as usize).and_then(Option::take) else { return };
        self.by_id.remove(&consumer.id);
        for level in &mut self.levels {
            level.ring.retain(|other| *other != slot);
        }
        self.levels.retain(|level| !level.ring.is_empty());
        if self.by_id.is_empty() {
            (self.slots, self.levels) = (Vec::new(), Vec::new());
        }
        self.choose(mode);
    }

    /// Chooses the active consumer, in modes that have one.
    pub(crate) fn choose(&mut self, mode: Mode) {
        let Mode::SingleActive { preempts } = mode else { return };
        let stays = self.active.and_then(|slot| self.get(slot)).is_some_and(|consumer| !consumer.stopped);
        if stays && !preempts {
            return;
        }
        let order =
            |consumer: &Consumer| (std::cmp::Reverse(consumer.config.priority), consumer.config.rank, consumer.joined);
        let candidates = self.iter().filter(|(_, consumer)| !consumer.stopped && !consumer.config.pulls);
        self.active = candidates.min_by_key(|(_, consumer)| order(consumer)).map(|(slot, _)| slot);
        if let Some(slot) = self.active {
            self.queue_up(slot, mode);
        }
    }

    /// A consumer may have new credit: it joins its ring.
    pub(crate) fn queue_up(&mut self, slot: u32, mode: Mode) {
        if matches!(mode, Mode::SingleActive { .. }) && self.active != Some(slot) {
            return;
        }
        let Some(consumer) = self.get_mut(slot) else { return };
        if consumer.queued || !consumer.wants() {
            return;
        }
        consumer.queued = true;
        let priority = consumer.config.priority;
        let level = self.levels.partition_point(|level| level.priority > priority);
        if self.levels.get(level).is_none_or(|found| found.priority != priority) {
            self.levels.insert(level, Level { priority, ring: VecDeque::new() });
        }
        self.levels[level].ring.push_back(slot);
    }

    /// The consumer whose turn it is, and whether it is the only one of its priority that waits.
    pub(crate) fn turn(&mut self, mode: Mode) -> Option<(u32, bool)> {
        for level in 0..self.levels.len() {
            while let Some(&slot) = self.levels[level].ring.front() {
                let allowed = !matches!(mode, Mode::SingleActive { .. }) || self.active == Some(slot);
                if allowed && self.get(slot).is_some_and(Consumer::wants) {
                    return Some((slot, self.levels[level].ring.len() == 1));
                }
                self.step_down(slot);
            }
        }
        None
    }

    /// A consumer had its turn and waits for the next one.
    pub(crate) fn had_turn(&mut self, slot: u32) {
        if let Some(level) = self.levels.iter_mut().find(|level| level.ring.front() == Some(&slot)) {
            level.ring.rotate_left(1);
        }
    }

    /// The consumer whose turn it is has no credit.
    pub(crate) fn step_down(&mut self, slot: u32) {
        if let Some(level) = self.levels.iter_mut().find(|level| level.ring.front() == Some(&slot)) {
            level.ring.pop_front();
            if let Some(consumer) = self.get_mut(slot) {
                consumer.queued = false;
            }
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let rings: usize = self.levels.iter().map(|level| level.ring.capacity() * size_of::<u32>()).sum();
        self.slots.capacity() * size_of::<Option<Consumer>>()
            + self.levels.capacity() * size_of::<Level>()
            + rings
            + 2 * self.by_id.len() * size_of::<(ConsumerId, u32)>()
    }
}
