//! Consumers of a queue: their credit, and the order in which they are served.

use crate::config::Mode;
use crate::error::LeaseError;
use crate::runs::Runs;
use polylogue_types::SharedLimit;
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fmt;
use std::ops::Range;
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
    /// Where the messages are that it holds; empty unless [`Consumers::indexes_held`].
    held_at: Runs<()>,
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

    /// Its place among the candidates for being the active one.
    fn candidate(&self, slot: u32) -> Candidate {
        (Reverse(self.config.priority), self.config.rank, self.joined, slot)
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

/// Consumers from which on it is kept where the messages are that each holds; with fewer than half of them no longer.
const HELD_INDEX_FROM: usize = 64;
/// Levels without a waiting consumer that are kept, with their memory, for the next one.
const EMPTY_LEVELS_KEPT: u8 = 4;

/// The place of a consumer in a ring. Void once the consumer is gone: its slot may be another's by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    slot: u32,
    joined: u64,
}

/// Consumers of one priority that may want messages, in the order of their turns.
#[derive(Debug, Default)]
struct Level {
    /// A consumer that is removed leaves a void place. No more places are void than are not.
    ring: VecDeque<Place>,
    /// Places that are not void.
    valid: usize,
}

impl Level {
    /// Drops void places where there are more of them than of others: each is looked at once or twice in all.
    fn drop_void(&mut self, slots: &[Option<Consumer>]) {
        if self.ring.len() > 2 * self.valid {
            self.ring.retain(|place| is_valid(slots, *place));
        }
    }
}

/// The order in which consumers become the active one: priority, rank, time of attaching; then the slot.
type Candidate = (Reverse<i32>, u64, u64, u32);

/// Sets that few queues need: free slots exist once a consumer has left while others stay, candidates with a single active consumer.
#[derive(Debug, Default)]
struct Sets {
    /// Slots that are free; the lowest is taken first, as turns with key order go by slots.
    free: BinaryHeap<Reverse<u32>>,
    /// Consumers that may become the active one; empty where all receive messages.
    candidates: BTreeSet<Candidate>,
}

impl Sets {
    fn heap_bytes(&self) -> usize {
        size_of::<Sets>() + self.free.capacity() * size_of::<u32>() + 2 * self.candidates.len() * size_of::<Candidate>()
    }
}

/// See the module. To attach, stop or remove a consumer takes time by the logarithm of their number, amortised: as many leave at once as
/// there are connections.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    slots: Vec<Option<Consumer>>,
    by_id: BTreeMap<ConsumerId, u32>,
    /// The highest first.
    levels: BTreeMap<Reverse<i32>, Box<Level>>,
    /// Levels of these without a valid place.
    empty_levels: u8,
    /// Consumers that are neither stopped nor only pull, and how many of them are exclusive.
    receiving: u32,
    exclusive: u32,
    /// The active consumer, if only one receives messages.
    active: Option<u32>,
    sets: Option<Box<Sets>>,
    /// It is known of each consumer where the messages are that it holds. With few consumers they are searched for when one leaves.
    indexes_held: bool,
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
        let alone = mode == Mode::Exclusive || config.exclusive || self.exclusive > 0;
        if alone && !config.pulls && self.receiving > 0 {
            return Err(LeaseError::Exclusive);
        }
        let slot = self.free_slot();
        let (held, held_from, held_bytes, held_at, window_used) = (0, u64::MAX, 0, Runs::default(), 0);
        let (stopped, queued, joined) = (false, false, self.joined);
        let consumer =
            Consumer { id, config, lease, held, held_from, held_bytes, held_at, window_used, stopped, queued, joined };
        if !consumer.config.pulls {
            self.receiving += 1;
            self.exclusive += u32::from(consumer.config.exclusive);
            if matches!(mode, Mode::SingleActive { .. }) {
                self.sets.get_or_insert_default().candidates.insert(consumer.candidate(slot));
            }
        }
        self.slots[slot as usize] = Some(consumer);
        self.joined += 1;
        self.by_id.insert(id, slot);
        self.choose(mode);
        self.queue_up(slot, mode);
        Ok(slot)
    }

    /// The lowest slot that is free.
    fn free_slot(&mut self) -> u32 {
        if let Some(Reverse(slot)) = self.sets.as_mut().and_then(|sets| sets.free.pop()) {
            return slot;
        }
        if self.slots.is_empty() {
            self.slots.reserve_exact(1);
        }
        self.slots.push(None);
        (self.slots.len() - 1) as u32
    }

    /// A consumer receives no more messages.
    pub(crate) fn stop(&mut self, slot: u32, mode: Mode) {
        if let Some(consumer) = self.get_mut(slot).filter(|consumer| !consumer.stopped) {
            consumer.stopped = true;
            let (candidate, pulls, exclusive) =
                (consumer.candidate(slot), consumer.config.pulls, consumer.config.exclusive);
            if !pulls {
                self.receiving -= 1;
                self.exclusive -= u32::from(exclusive);
                self.sets.as_mut().map(|sets| sets.candidates.remove(&candidate));
            }
        }
        self.choose(mode);
    }

    pub(crate) fn remove(&mut self, slot: u32, mode: Mode) {
        self.stop(slot, mode);
        let Some(consumer) = self.slots.get_mut(slot as usize).and_then(Option::take) else { return };
        self.by_id.remove(&consumer.id);
        if self.by_id.is_empty() {
            (self.slots, self.levels, self.sets) = (Vec::new(), BTreeMap::new(), None);
            self.empty_levels = 0;
        } else {
            self.sets.get_or_insert_default().free.push(Reverse(slot));
            if consumer.queued {
                self.leave_ring(consumer.config.priority);
            }
        }
        self.choose(mode);
        if self.by_id.len() < HELD_INDEX_FROM / 2 && self.indexes_held {
            self.indexes_held = false;
            let Consumers { by_id, slots, .. } = self;
            for slot in by_id.values() {
                if let Some(consumer) = slots.get_mut(*slot as usize).and_then(Option::as_mut) {
                    consumer.held_at = Runs::default();
                }
            }
        }
    }

    /// Whether the next consumer makes it so many that it is to be known of each where the messages are that it holds.
    pub(crate) fn begins_held_index(&mut self) -> bool {
        !self.indexes_held && self.by_id.len() >= HELD_INDEX_FROM && {
            self.indexes_held = true;
            true
        }
    }

    /// Notes where messages are that a consumer holds, or holds no longer.
    pub(crate) fn note_held(&mut self, slot: u32, range: &Range<u64>, holds: bool) {
        if !self.indexes_held {
            return;
        }
        if let Some(consumer) = self.get_mut(slot) {
            match holds {
                true => consumer.held_at.set(range.clone(), ()),
                false => consumer.held_at.clear(range),
            }
        }
    }

    /// The lowest offset from `at` on at which a consumer may hold messages; `None` when there is none.
    pub(crate) fn holds_from(&self, slot: u32, at: Option<u64>) -> Option<u64> {
        let consumer = self.get(slot).filter(|consumer| consumer.held > 0)?;
        let at = at.unwrap_or(consumer.held_from);
        if !self.indexes_held {
            return Some(at);
        }
        consumer.held_at.from(at).map(|run| run.start.max(at))
    }

    /// A consumer that had a place in the ring of its level is gone: the place is void.
    fn leave_ring(&mut self, priority: i32) {
        let Some(level) = self.levels.get_mut(&Reverse(priority)) else { return };
        level.valid -= 1;
        if level.valid == 0 {
            self.levels.remove(&Reverse(priority));
        } else {
            level.drop_void(&self.slots);
        }
    }

    /// Chooses the active consumer, in modes that have one.
    pub(crate) fn choose(&mut self, mode: Mode) {
        let Mode::SingleActive { preempts } = mode else { return };
        let stays = self.active.and_then(|slot| self.get(slot)).is_some_and(|consumer| !consumer.stopped);
        if stays && !preempts {
            return;
        }
        self.active = self.sets.as_ref().and_then(|sets| sets.candidates.first()).map(|(.., slot)| *slot);
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
        let (priority, joined) = (consumer.config.priority, consumer.joined);
        let level = match self.levels.entry(Reverse(priority)) {
            Entry::Vacant(vacant) => vacant.insert(Box::default()),
            Entry::Occupied(level) => {
                self.empty_levels -= u8::from(level.get().valid == 0);
                level.into_mut()
            }
        };
        level.valid += 1;
        level.ring.push_back(Place { slot, joined });
    }

    /// The consumer whose turn it is, and whether it is the only one of its priority that waits.
    pub(crate) fn turn(&mut self, mode: Mode) -> Option<(u32, bool)> {
        while self.levels.len() > usize::from(self.empty_levels) {
            let slots = &self.slots;
            let level = self.levels.values_mut().find(|level| level.valid > 0)?;
            while level.ring.pop_front_if(|place| !is_valid(slots, *place)).is_some() {}
            let slot = level.ring.front()?.slot;
            let alone = level.valid == 1;
            let allowed = !matches!(mode, Mode::SingleActive { .. }) || self.active == Some(slot);
            if allowed && self.get(slot).is_some_and(Consumer::wants) {
                return Some((slot, alone));
            }
            self.step_down(slot);
        }
        None
    }

    /// The level of a consumer whose turn it is.
    fn level_of(&mut self, slot: u32) -> Option<(Reverse<i32>, &mut Level)> {
        let consumer = self.get(slot)?;
        let (priority, place) = (Reverse(consumer.config.priority), Place { slot, joined: consumer.joined });
        let level = self.levels.get_mut(&priority)?;
        (level.ring.front() == Some(&place)).then_some((priority, &mut **level))
    }

    /// A consumer had its turn and waits for the next one.
    pub(crate) fn had_turn(&mut self, slot: u32) {
        if let Some((_, level)) = self.level_of(slot) {
            level.ring.rotate_left(1);
        }
    }

    /// The consumer whose turn it is has no credit.
    pub(crate) fn step_down(&mut self, slot: u32) {
        let Some((priority, level)) = self.level_of(slot) else { return };
        level.ring.pop_front();
        level.valid -= 1;
        let is_empty = level.valid == 0;
        if let Some(consumer) = self.get_mut(slot) {
            consumer.queued = false;
        }
        if is_empty && self.empty_levels == EMPTY_LEVELS_KEPT {
            self.levels.remove(&priority);
        } else if let Some(level) = self.levels.get_mut(&priority) {
            self.empty_levels += u8::from(is_empty);
            level.drop_void(&self.slots);
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let rings: usize = self.levels.values().map(|level| level.ring.capacity() * size_of::<Place>()).sum();
        // Nodes of a tree are at least half full.
        self.slots.capacity() * size_of::<Option<Consumer>>()
            + self.slots.iter().flatten().map(|consumer| consumer.held_at.heap_bytes()).sum::<usize>()
            + self.sets.as_ref().map_or(0, |sets| sets.heap_bytes())
            + self.levels.len() * (2 * size_of::<(i32, Box<Level>)>() + size_of::<Level>())
            + rings
            + 2 * self.by_id.len() * size_of::<(ConsumerId, u32)>()
    }
}

/// Whether the consumer of a place is still there.
fn is_valid(slots: &[Option<Consumer>], place: Place) -> bool {
    slots.get(place.slot as usize).and_then(Option::as_ref).is_some_and(|consumer| consumer.joined == place.joined)
}

#[cfg(test)]
mod tests;
