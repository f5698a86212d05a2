//! The order of consumers against a plain model that walks all of them.

use super::*;
use crate::config::Config;
use crate::grant::Grant;
use crate::mark::Entry as LogEntry;
use crate::queue::Queue;
use crate::{By, Return};
use proptest::prelude::*;

/// The rule as it is meant: every change walks all consumers.
#[derive(Debug, Default)]
struct Model {
    slots: Vec<Option<Consumer>>,
    by_id: BTreeMap<ConsumerId, u32>,
    /// The highest priority first.
    levels: Vec<(i32, VecDeque<u32>)>,
    active: Option<u32>,
    joined: u64,
}

impl Model {
    fn get(&self, slot: u32) -> Option<&Consumer> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn get_mut(&mut self, slot: u32) -> Option<&mut Consumer> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    fn iter(&self) -> impl Iterator<Item = (u32, &Consumer)> {
        self.by_id.values().filter_map(|slot| Some((*slot, self.get(*slot)?)))
    }

    fn add(&mut self, id: ConsumerId, config: ConsumerConfig, mode: Mode) -> Result<u32, LeaseError> {
        if self.by_id.contains_key(&id) {
            return Err(LeaseError::ConsumerExists(id));
        }
        let others = || self.iter().filter(|(_, other)| !other.config.pulls && !other.stopped);
        let alone = mode == Mode::Exclusive || config.exclusive || others().any(|(_, other)| other.config.exclusive);
        if alone && !config.pulls && others().next().is_some() {
            return Err(LeaseError::Exclusive);
        }
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(Consumer {
            id,
            config,
            lease: 0,
            held: 0,
            held_from: u64::MAX,
            held_bytes: 0,
            held_at: Runs::default(),
            window_used: 0,
            stopped: false,
            queued: false,
            joined: self.joined,
        });
        self.joined += 1;
        let slot = slot as u32;
        self.by_id.insert(id, slot);
        self.choose(mode);
        self.queue_up(slot, mode);
        Ok(slot)
    }

    fn stop(&mut self, slot: u32, mode: Mode) {
        if let Some(consumer) = self.get_mut(slot) {
            consumer.stopped = true;
        }
        self.choose(mode);
    }

    fn remove(&mut self, slot: u32, mode: Mode) {
        self.stop(slot, mode);
        let Some(consumer) = self.slots.get_mut(slot as usize).and_then(Option::take) else { return };
        self.by_id.remove(&consumer.id);
        for (_, ring) in &mut self.levels {
            ring.retain(|other| *other != slot);
        }
        self.levels.retain(|(_, ring)| !ring.is_empty());
        if self.by_id.is_empty() {
            (self.slots, self.levels) = (Vec::new(), Vec::new());
        }
        self.choose(mode);
    }

    fn choose(&mut self, mode: Mode) {
        let Mode::SingleActive { preempts } = mode else { return };
        let stays = self.active.and_then(|slot| self.get(slot)).is_some_and(|consumer| !consumer.stopped);
        if stays && !preempts {
            return;
        }
        let order = |consumer: &Consumer| (Reverse(consumer.config.priority), consumer.config.rank, consumer.joined);
        let candidates = self.iter().filter(|(_, consumer)| !consumer.stopped && !consumer.config.pulls);
        self.active = candidates.min_by_key(|(_, consumer)| order(consumer)).map(|(slot, _)| slot);
        if let Some(slot) = self.active {
            self.queue_up(slot, mode);
        }
    }

    fn queue_up(&mut self, slot: u32, mode: Mode) {
        if matches!(mode, Mode::SingleActive { .. }) && self.active != Some(slot) {
            return;
        }
        let Some(consumer) = self.get_mut(slot) else { return };
        if consumer.queued || !consumer.wants() {
            return;
        }
        consumer.queued = true;
        let priority = consumer.config.priority;
        let level = self.levels.partition_point(|(other, _)| *other > priority);
        if self.levels.get(level).is_none_or(|(other, _)| *other != priority) {
            self.levels.insert(level, (priority, VecDeque::new()));
        }
        self.levels[level].1.push_back(slot);
    }

    fn turn(&mut self, mode: Mode) -> Option<(u32, bool)> {
        for level in 0..self.levels.len() {
            while let Some(&slot) = self.levels[level].1.front() {
                let allowed = !matches!(mode, Mode::SingleActive { .. }) || self.active == Some(slot);
                if allowed && self.get(slot).is_some_and(Consumer::wants) {
                    return Some((slot, self.levels[level].1.len() == 1));
                }
                self.step_down(slot);
            }
        }
        None
    }

    fn had_turn(&mut self, slot: u32) {
        if let Some((_, ring)) = self.levels.iter_mut().find(|(_, ring)| ring.front() == Some(&slot)) {
            ring.rotate_left(1);
        }
    }

    fn step_down(&mut self, slot: u32) {
        if let Some((_, ring)) = self.levels.iter_mut().find(|(_, ring)| ring.front() == Some(&slot)) {
            ring.pop_front();
            if let Some(consumer) = self.get_mut(slot) {
                consumer.queued = false;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u64, ConsumerConfig),
    Stop(u64),
    Remove(u64),
    /// So many permits for a consumer.
    Permits(u64, u64),
    /// The consumer whose turn it is is given a message.
    Turn,
    /// The consumer whose turn it is has no room for the next message.
    NoRoom,
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0_u64..24;
    // Many priorities, and few.
    let priority = prop_oneof![0..3_i32, -40..40_i32];
    let config =
        (priority, 0_u64..2, prop::option::of(0_u64..4), 0_u8..20).prop_map(|(priority, rank, permits, kind)| {
            let (pulls, exclusive) = (kind == 0, kind == 1);
            ConsumerConfig { priority, rank, permits, pulls, exclusive, ..ConsumerConfig::default() }
        });
    prop_oneof![
        4 => (id(), config).prop_map(|(id, config)| Step::Add(id, config)),
        1 => id().prop_map(Step::Stop),
        3 => id().prop_map(Step::Remove),
        2 => (id(), 0_u64..3).prop_map(|(id, permits)| Step::Permits(id, permits)),
        4 => Just(Step::Turn),
        1 => Just(Step::NoRoom),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::Competing),
        1 => Just(Mode::Exclusive),
        2 => Just(Mode::SingleActive { preempts: false }),
        2 => Just(Mode::SingleActive { preempts: true }),
    ]
}

fn more_permits(consumer: Option<&mut Consumer>, permits: u64) {
    if let Some(consumer) = consumer {
        consumer.config.permits = consumer.config.permits.map(|before| before + permits);
    }
}

fn took_one(consumer: Option<&mut Consumer>) {
    if let Some(consumer) = consumer {
        consumer.config.permits = consumer.config.permits.map(|before| before.saturating_sub(1));
    }
}

/// Its own books add up.
fn check(consumers: &Consumers) {
    let slots = &consumers.slots;
    for (priority, level) in &consumers.levels {
        let valid = level.ring.iter().filter(|place| is_valid(slots, **place)).count();
        assert_eq!(level.valid, valid, "{priority:?}");
        assert!(level.ring.len() <= 2 * valid, "{} places for {valid}", level.ring.len());
    }
    let empty = consumers.levels.values().filter(|level| level.valid == 0).count();
    assert_eq!(usize::from(consumers.empty_levels), empty);
    assert!(consumers.empty_levels <= EMPTY_LEVELS_KEPT);
    assert_eq!(consumers.sets.as_ref().map_or(0, |sets| sets.free.len()) + consumers.len(), slots.len());
    let receiving = || consumers.iter().filter(|(_, one)| !one.stopped && !one.config.pulls);
    assert_eq!(consumers.receiving as usize, receiving().count());
    assert_eq!(consumers.exclusive as usize, receiving().filter(|(_, one)| one.config.exclusive).count());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn turns_and_the_active_consumer_are_those_of_the_model(
        mode in mode(),
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let (mut consumers, mut model) = (Consumers::default(), Model::default());
        for step in steps {
            match step {
                Step::Add(id, config) => {
                    let id = ConsumerId(id);
                    prop_assert_eq!(consumers.add(id, config.clone(), 0, mode), model.add(id, config, mode));
                }
                Step::Stop(id) | Step::Remove(id) => {
                    let Ok(slot) = consumers.slot(ConsumerId(id)) else { continue };
                    if matches!(step, Step::Stop(_)) {
                        consumers.stop(slot, mode);
                        model.stop(slot, mode);
                    } else {
                        consumers.remove(slot, mode);
                        model.remove(slot, mode);
                    }
                }
                Step::Permits(id, permits) => {
                    let Ok(slot) = consumers.slot(ConsumerId(id)) else { continue };
                    more_permits(consumers.get_mut(slot), permits);
                    more_permits(model.get_mut(slot), permits);
                    consumers.queue_up(slot, mode);
                    model.queue_up(slot, mode);
                }
                Step::Turn | Step::NoRoom => {
                    let turn = consumers.turn(mode);
                    prop_assert_eq!(turn, model.turn(mode));
                    let Some((slot, _)) = turn else { continue };
                    if matches!(step, Step::NoRoom) {
                        consumers.step_down(slot);
                        model.step_down(slot);
                    } else {
                        took_one(consumers.get_mut(slot));
                        took_one(model.get_mut(slot));
                        consumers.had_turn(slot);
                        model.had_turn(slot);
                    }
                }
            }
            prop_assert_eq!(consumers.active(), model.active);
            prop_assert_eq!(&consumers.by_id, &model.by_id);
            check(&consumers);
        }
    }
}

/// Where the messages are that each consumer holds, found by looking at all.
fn held_by_all(queue: &Queue) -> BTreeMap<u32, Vec<Range<u64>>> {
    let mut all: BTreeMap<u32, Vec<Range<u64>>> = BTreeMap::new();
    for run in queue.held.iter() {
        let of = all.entry(run.value.slot).or_default();
        match of.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => of.push(run.range()),
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Around the number of consumers from which on it is kept where each of them holds messages.
    #[test]
    fn a_consumer_returns_all_that_it_holds_among_few_and_many(
        steps in prop::collection::vec((0_u8..10, 0_u64..120, 1_u64..6), 0..400),
    ) {
        let mut queue = Queue::new(Arc::new(Config::default()), 0, 0).unwrap();
        queue.become_writer(1, 1);
        for id in 0..60 {
            queue.add_consumer(ConsumerId(id), ConsumerConfig { prefetch: 7, ..ConsumerConfig::default() }).unwrap();
        }
        let mut grants: Vec<Grant> = Vec::new();
        for (op, id, count) in steps {
            let consumer = ConsumerId(id);
            match op {
                0..3 => {
                    let config = ConsumerConfig { prefetch: 7, ..ConsumerConfig::default() };
                    let _ = queue.add_consumer(consumer, config);
                }
                3..6 => {
                    let held = queue.held_by(consumer).unwrap_or(0);
                    let before = queue.counts();
                    if let Ok(messages) = queue.remove_consumer(consumer, Return::default(), 1) {
                        prop_assert_eq!(messages, held);
                        prop_assert_eq!(queue.counts().held, before.held - held);
                        prop_assert_eq!(queue.counts().ready, before.ready + held);
                    }
                }
                6..8 => {
                    let entry = LogEntry::plain(queue.committed_end(), 20 * count as u32);
                    queue.appended(&entry).unwrap();
                    queue.grant(1, 20 * count, &mut grants);
                }
                8 => {
                    let _ = queue.settle(id * 5, count, By::Anyone, 1);
                }
                _ => _ = queue.release(id * 5, count, By::Anyone, Return::default(), 1),
            }
            let indexes = queue.consumers.indexes_held;
            let (len, bound) = (queue.consumers.len(), HELD_INDEX_FROM);
            prop_assert!(len >= bound / 2 && indexes || len < bound && !indexes, "{} consumers, {}", len, indexes);
            let all = held_by_all(&queue);
            for (slot, consumer) in queue.consumers.iter() {
                let known: Vec<_> = consumer.held_at.iter().map(|run| run.range()).collect();
                let held = all.get(&slot).filter(|_| indexes).cloned().unwrap_or_default();
                prop_assert_eq!(known, held);
            }
        }
    }
}
