//! Random timers, times, checkpoints, failures and crashes against a sorted set.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use bytes::Bytes;
use polylogue_timer::{Kind, PART_OPS_MAX, TimerId, TimerKey, TimerOp, Timers, record};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const START_MS: i64 = 1_800_000_000_123;

#[derive(Clone, Debug)]
enum Step {
    /// Timers so far ahead (or behind), all in one record.
    Insert(Vec<i64>),
    /// The timer at this place of the pending ones goes.
    Remove(prop::sample::Index),
    /// One goes that never was.
    RemoveNothing(i64),
    /// One is inserted again.
    Again(prop::sample::Index),
    /// A timer of the past comes again under its old name.
    Revive(prop::sample::Index),
    /// Time goes on (or a clock goes back); what is due is handed out, up to a limit, and removed.
    Tick(i64, usize),
    /// As a tick, but the removal is lost.
    Lost(i64, usize),
    /// Time goes on, and a frame tells of it.
    Frame(i64),
    /// So many chunks that are wanted are read.
    Serve(usize),
    /// A checkpoint is taken.
    Take,
    /// The one that was taken is on disk.
    Durable,
    /// The one that was taken will never be.
    Failed,
    /// A part on disk can be read no more: what it held is inserted again.
    Damage(prop::sample::Index),
    /// The process ends and another one begins.
    Crash(bool),
}

fn ahead() -> impl Strategy<Value = i64> {
    prop_oneof![
        -5_000..0i64,
        0..3_000i64,
        0..100_000i64,
        0..10_000_000i64,
        0..1_000_000_000i64,
        0..100_000_000_000i64,
        Just(i64::MAX / 2),
        // Many in one place.
        (0..4i64).prop_map(|n| 200_000 + n),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let tick = || (prop_oneof![-10_000..0i64, 0..500i64, 0..70_000i64, 0..5_000_000i64, 0..400_000_000i64], 0..8usize);
    prop_oneof![
        8 => prop::collection::vec(ahead(), 1..12).prop_map(Step::Insert),
        4 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => ahead().prop_map(Step::RemoveNothing),
        1 => any::<prop::sample::Index>().prop_map(Step::Again),
        2 => any::<prop::sample::Index>().prop_map(Step::Revive),
        5 => tick().prop_map(|(ms, limit)| Step::Tick(ms, limit)),
        1 => tick().prop_map(|(ms, limit)| Step::Lost(ms, limit)),
        1 => tick().prop_map(|(ms, _)| Step::Frame(ms)),
        3 => (0..5usize).prop_map(Step::Serve),
        3 => Just(Step::Take),
        3 => Just(Step::Durable),
        1 => Just(Step::Failed),
        1 => any::<prop::sample::Index>().prop_map(Step::Damage),
        1 => any::<bool>().prop_map(Step::Crash),
    ]
}

type Chunks = Vec<(Bytes, Option<Bytes>)>;

struct World {
    timers: Timers,
    pending: BTreeSet<TimerId>,
    /// All that there ever was.
    past: BTreeSet<TimerId>,
    /// The clock, and the latest time that the timers know.
    clock: i64,
    latest: i64,
    log: Vec<(Bytes, i64)>,
    /// Chunks on disk, and how much of the log they cover.
    disk: BTreeMap<Bytes, Bytes>,
    damaged: BTreeSet<Bytes>,
    covered: usize,
    /// A checkpoint that was taken, and how much of the log it covers.
    taken: Option<(u64, Chunks, usize)>,
    next: u64,
}

impl World {
    fn new() -> World {
        World {
            timers: Timers::new(),
            pending: BTreeSet::new(),
            past: BTreeSet::new(),
            clock: START_MS,
            latest: 0,
            log: Vec::new(),
            disk: BTreeMap::new(),
            damaged: BTreeSet::new(),
            covered: 0,
            taken: None,
            next: 0,
        }
    }

    fn commit(&mut self, ops: &[TimerOp]) {
        for op in ops {
            match op {
                TimerOp::Insert(id) => _ = (self.pending.insert(*id), self.past.insert(*id)),
                TimerOp::Remove(id) => _ = self.pending.remove(id),
            }
        }
        let record = record(ops);
        match ops {
            [TimerOp::Insert(id)] => self.timers.insert(*id, self.clock),
            _ => self.timers.apply(&record, self.clock).unwrap(),
        }
        self.log.push((record, self.clock));
        self.latest = self.latest.max(self.clock);
    }

    fn new_id(&mut self, ahead: i64) -> TimerId {
        self.next += 1;
        let deadline_ms = self.timers.deadline_ms(self.clock.saturating_add(ahead));
        TimerId {
            deadline_ms,
            kind: Kind((self.next % 3) as u8),
            key: TimerKey { object: self.next % 5, item: self.next },
        }
    }

    fn tick(&mut self, ms: i64, limit: usize) -> Vec<TimerId> {
        self.clock += ms;
        self.latest = self.latest.max(self.clock);
        let mut due = Vec::new();
        let found = self.timers.due(self.clock, limit, &mut due);
        let expected: Vec<_> =
            self.pending.iter().take_while(|id| id.deadline_ms <= self.latest as u64).copied().collect();
        if found.waiting {
            assert!(due.iter().all(|id| expected.contains(id)), "not due: {due:?}");
        } else {
            // All before it, in order; the rest is said to be more.
            assert_eq!(due, expected[..limit.min(expected.len())]);
            assert_eq!(found.more, expected.len() > limit);
        }
        due
    }

    fn remove(&mut self, due: Vec<TimerId>) {
        if !due.is_empty() {
            self.commit(&due.into_iter().map(TimerOp::Remove).collect::<Vec<_>>());
        }
    }

    fn serve(&mut self, limit: usize) {
        for id in self.timers.wanted(limit) {
            // One that is not on disk yet is known to the timers, which take it when time goes on.
            if let Some(chunk) = self.disk.get(&id) {
                self.timers.load_part(&id, chunk).unwrap();
            }
        }
    }

    fn durable(&mut self) {
        let Some((number, chunks, covered)) = self.taken.take() else { return };
        for (id, chunk) in chunks {
            match chunk {
                Some(chunk) => _ = self.disk.insert(id, chunk),
                None => _ = (self.disk.remove(&id), self.damaged.remove(&id)),
            }
        }
        self.covered = covered;
        self.timers.saved(number);
    }

    fn crash(&mut self, all: bool) {
        self.taken = None;
        self.timers = Timers::new();
        for (id, chunk) in self.disk.iter().filter(|(id, _)| all || !Timers::is_lazy(id)) {
            self.timers.load_chunk(id, chunk).unwrap();
        }
        // What the state stands on is on disk, and nothing else is.
        let parts: BTreeSet<_> = self.timers.parts().into_iter().collect();
        let on_disk: BTreeSet<_> = self.disk.keys().filter(|id| Timers::is_lazy(id)).cloned().collect();
        let lost: BTreeSet<_> = parts.difference(&on_disk).cloned().collect();
        assert!(on_disk.is_subset(&parts) && lost.is_subset(&self.damaged), "{lost:?}");
        for (record, time) in &self.log[self.covered..] {
            self.timers.apply(record, *time).unwrap();
        }
        self.timers.reset_tail();
        // What a caller said of the time is forgotten, what frames said is not.
        self.latest = self.log.iter().map(|(_, time)| *time).max().unwrap_or(0);
        lost.iter().for_each(|id| self.repair(id));
    }

    /// Inserts again what a part holds, and gives the part up.
    fn repair(&mut self, id: &Bytes) {
        self.damaged.insert(id.clone());
        let Some(span) = self.timers.span(id) else { return };
        // What was removed there would come again, which is for the owner to bear: here it is removed again.
        let held = self.past.iter().filter(|id| span.contains(&id.deadline_ms));
        let op = |id: &TimerId| if self.pending.contains(id) { TimerOp::Insert(*id) } else { TimerOp::Remove(*id) };
        let ops: Vec<_> = held.map(op).collect();
        self.commit(&ops);
        self.timers.lose_part(id);
        assert!(!self.timers.wanted(usize::MAX).contains(id) && !self.timers.parts().contains(id));
    }

    fn step(&mut self, step: Step) {
        let nth = |set: &BTreeSet<TimerId>, index: prop::sample::Index| {
            (!set.is_empty()).then(|| *set.iter().nth(index.index(set.len())).unwrap())
        };
        match step {
            Step::Insert(aheads) => {
                let ids: Vec<_> = aheads.into_iter().map(|ahead| self.new_id(ahead)).collect();
                self.commit(&ids.into_iter().map(TimerOp::Insert).collect::<Vec<_>>());
            }
            Step::Remove(index) => {
                if let Some(id) = nth(&self.pending, index) {
                    self.commit(&[TimerOp::Remove(id)]);
                }
            }
            Step::RemoveNothing(ahead) => {
                let id = self.new_id(ahead);
                self.commit(&[TimerOp::Remove(id)]);
            }
            Step::Again(index) => {
                if let Some(id) = nth(&self.pending, index) {
                    self.commit(&[TimerOp::Insert(id)]);
                }
            }
            Step::Revive(index) => {
                if let Some(id) = nth(&self.past, index) {
                    self.commit(&[TimerOp::Insert(id)]);
                }
            }
            Step::Tick(ms, limit) => {
                let due = self.tick(ms, limit);
                self.remove(due);
            }
            Step::Lost(ms, limit) => {
                self.tick(ms, limit);
                self.timers.reset_tail();
            }
            Step::Frame(ms) => {
                self.clock += ms;
                self.commit(&[]);
            }
            Step::Serve(limit) => self.serve(limit),
            Step::Take => {
                let (number, chunks) = self.timers.take_changed_chunks();
                self.taken = Some((number, chunks, self.log.len()));
            }
            Step::Durable => self.durable(),
            Step::Failed => self.taken = None,
            Step::Damage(index) => {
                let parts: Vec<_> = self.disk.keys().filter(|id| Timers::is_lazy(id)).cloned().collect();
                if let Some(id) = parts.get(index.index(parts.len().max(1))) {
                    self.disk.remove(id);
                    self.repair(id);
                }
            }
            Step::Crash(all) => {
                self.check_all();
                self.crash(all);
                self.check_all();
            }
        }
    }

    /// All pending timers, wherever they are, are those that records say.
    fn check_all(&self) {
        let mut read = |id: &Bytes| self.disk.get(id).cloned().ok_or_else(|| format!("{id:?} is not on disk"));
        assert_eq!(self.timers.pending_ids(&mut read), Ok(self.pending.clone()));
    }

    /// Goes from one time to the next, as its steps say, until nothing is left.
    fn run_out(&mut self) -> usize {
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(turns < 20_000, "no end: {:?}", self.timers);
            let due = self.tick(0, usize::MAX);
            let idle = due.is_empty();
            self.remove(due);
            self.serve(usize::MAX);
            if idle && self.timers.wanted(1).is_empty() {
                let Some(next) = self.timers.next_ms() else { break };
                let first = self.pending.first().map_or(u64::MAX, |id| id.deadline_ms);
                assert!(next <= first, "asked for {next} only, when {first} is due");
                self.clock = self.clock.max(next as i64).max(self.latest);
            }
        }
        assert_eq!(self.pending, BTreeSet::new(), "forgotten");
        turns
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn every_timer_is_due_at_its_time_whatever_happens(steps in prop::collection::vec(step(), 0..150)) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.step(step));
        world.step(Step::Crash(false));
        world.run_out();
    }

    /// Two that lived differently: one through all of it, one only from the records.
    #[test]
    fn the_pending_set_is_a_function_of_the_records(steps in prop::collection::vec(step(), 0..100)) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.step(step));
        let lived = world.pending.clone();
        let mut replayed = World { disk: BTreeMap::new(), damaged: BTreeSet::new(), covered: 0, taken: None, ..world };
        replayed.crash(false);
        replayed.check_all();
        prop_assert_eq!(&replayed.pending, &lived);
        replayed.run_out();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// As the first one, with so many in one place that parts are made before a checkpoint is taken.
    #[test]
    fn crowds_are_due_at_their_time_whatever_happens(
        crowds in prop::collection::vec((ahead(), prop::collection::vec(step(), 0..30)), 1..5),
    ) {
        let mut world = World::new();
        for (ahead, steps) in crowds {
            let crowd = (0..PART_OPS_MAX as i64 + 50).map(|n| ahead.saturating_add(n % 900));
            world.step(Step::Insert(crowd.collect()));
            steps.into_iter().for_each(|step| world.step(step));
        }
        world.step(Step::Crash(false));
        world.run_out();
    }
}

proptest! {
    /// A disk may give back anything: it is refused or read, and nothing worse.
    #[test]
    fn damage_is_refused_or_read(
        steps in prop::collection::vec(step(), 0..60), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()
    ) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.step(step));
        world.step(Step::Take);
        world.durable();
        let damage = |chunk: &Bytes| {
            let mut chunk = chunk.to_vec();
            let place = at.index(chunk.len());
            chunk[place] ^= byte;
            chunk.truncate(if cut { place } else { chunk.len() });
            chunk
        };
        let mut timers = Timers::new();
        for (id, chunk) in &world.disk {
            _ = timers.load_chunk(id, &damage(chunk));
        }
        for (record, time) in &world.log {
            _ = timers.apply(&damage(record), *time);
        }
        let mut due = Vec::new();
        for _ in 0..100 {
            timers.due(timers.next_ms().unwrap_or(0) as i64, 100, &mut due);
            for id in timers.wanted(9) {
                if let Some(chunk) = world.disk.get(&id) {
                    _ = timers.load_part(&id, &damage(chunk));
                }
            }
            timers.take_changed_chunks();
        }
    }
}

#[test]
fn damaged_chunks_are_told_and_stay_wanted() {
    let mut world = World::new();
    world.step(Step::Insert(vec![100_000, 200_000]));
    world.step(Step::Take);
    world.durable();
    world.crash(false);
    world.tick(90_000, 0);
    let wanted = world.timers.wanted(9);
    assert_eq!(wanted.len(), 1);
    let chunk = world.disk[&wanted[0]].clone();
    let mut damaged = chunk.to_vec();
    damaged.truncate(chunk.len() - 1);
    assert!(world.timers.load_part(&wanted[0], &damaged).unwrap_err().contains("part 0"));
    // Another bucket's deadlines do not belong there.
    let other = {
        let mut other = World::new();
        other.step(Step::Insert(vec![900_000_000]));
        other.step(Step::Take);
        other.durable();
        other.disk[&wanted[0]].clone()
    };
    assert!(world.timers.load_part(&wanted[0], &other).unwrap_err().contains("outside"));
    assert_eq!(world.timers.wanted(9), wanted);
    world.serve(9);
    world.run_out();
    assert!(world.timers.load_chunk(b"Z", b"").is_err());
    assert!(world.timers.load_chunk(b"S\0\0\0\0\0\0\0\x01\0", b"\x01\0\0\0\0").is_err(), "no start of a bucket");
    assert!(world.timers.apply(b"", 0).is_err());
}

#[test]
fn time_never_goes_back() {
    let mut world = World::new();
    world.step(Step::Insert(vec![1000]));
    let mut due = Vec::new();
    world.timers.due(START_MS + 999, 9, &mut due);
    assert!(due.is_empty());
    world.timers.apply(&record(&[]), START_MS + 1000).unwrap();
    // The caller's clock is behind the frames'.
    world.timers.due(START_MS - 5000, 9, &mut due);
    assert_eq!(due.len(), 1);
    world.timers.apply(&record(&[]), 17).unwrap();
    assert_eq!(world.timers.frame_ms(), START_MS as u64 + 1000);
    assert_eq!(world.timers.deadline_ms(0), START_MS as u64 + 1000);
    assert_eq!(world.timers.deadline_ms(i64::MAX), polylogue_timer::DEADLINE_MS_MAX);
}

/// A hundred thousand timers over days, then in one hour: a start reads summaries, and memory holds what is near.
#[test]
fn far_timers_cost_no_memory_and_no_reading_at_a_start() {
    const TIMERS: i64 = 100_000;
    let mut world = World::new();
    for round in 0..10 {
        let aheads = (0..TIMERS / 10).map(|n| 60_000 + (n * 10 + round) * 7919 % 600_000_000).collect();
        world.step(Step::Insert(aheads));
        world.step(Step::Take);
        world.durable();
    }
    assert_eq!(world.timers.resident(), 0);
    let eager: usize = world.disk.iter().filter(|(id, _)| !Timers::is_lazy(id)).map(|(_, chunk)| chunk.len()).sum();
    let all: usize = world.disk.values().map(Bytes::len).sum();
    assert!(eager * 50 < all, "{eager} of {all} bytes are read at a start");
    world.crash(false);
    assert_eq!((world.timers.pending(), world.timers.resident()), (TIMERS as u64, 0));
    let mut most = 0;
    let mut carried_out = 0;
    for turn in 0..40_000 {
        let due = world.tick(0, usize::MAX);
        carried_out += due.len();
        world.remove(due);
        world.serve(8);
        most = most.max(world.timers.resident());
        if turn % 8 == 0 {
            world.step(Step::Take);
            world.durable();
        }
        if world.timers.wanted(1).is_empty() {
            let Some(next) = world.timers.next_ms() else { break };
            world.clock = world.clock.max(next as i64);
        }
        if carried_out > 15_000 {
            break;
        }
    }
    assert!(carried_out > 15_000, "{carried_out}");
    assert!(most < TIMERS as usize / 2, "{most} in memory");
}

/// All that no checkpoint held was put into parts when one was taken, under the publisher's lock.
#[test]
fn little_is_left_to_do_when_a_checkpoint_is_taken() {
    const TIMERS: usize = 8 * PART_OPS_MAX;
    let mut world = World::new();
    world.step(Step::Insert(vec![500_000_000]));
    // Written while the others come: it does not hold them.
    world.step(Step::Take);
    for _ in 0..TIMERS / 64 {
        world.step(Step::Insert(vec![500_000_001; 64]));
        assert!(world.timers.resident() <= PART_OPS_MAX, "{} are to be put into parts", world.timers.resident());
    }
    world.durable();
    assert!(world.disk.values().map(Bytes::len).sum::<usize>() < 1000);
    world.step(Step::Take);
    world.durable();
    world.crash(false);
    assert_eq!((world.timers.pending(), world.timers.resident()), (TIMERS as u64 + 1, 0));
    world.run_out();
}

/// What waits for a checkpoint asks for one, in parts or not.
#[test]
fn what_is_in_parts_already_asks_for_a_checkpoint_too() {
    let mut world = World::new();
    let mut inserted = 0;
    while inserted < polylogue_timer::UNSAVED_OPS_MAX {
        assert!(!world.timers.wants_checkpoint(), "after {inserted}");
        let ids: Vec<_> = (0..PART_OPS_MAX).map(|_| TimerOp::Insert(world.new_id(500_000_000))).collect();
        world.timers.apply(&record(&ids), world.clock).unwrap();
        inserted += PART_OPS_MAX;
    }
    assert!(world.timers.wants_checkpoint());
    world.timers.take_changed_chunks();
    assert!(!world.timers.wants_checkpoint());
}

/// A frame reported a time at which a bucket was to be opened, and a part that was read before the next look at the clock lost that.
#[test]
fn a_bucket_is_opened_although_a_frame_told_of_its_time_first() {
    let mut world = World::new();
    world.step(Step::Insert(vec![10_000, 400_000]));
    world.step(Step::Take);
    world.durable();
    world.crash(false);
    world.tick(9_000, 9);
    // Twenty seconds before the bucket of the second one, which is 65 seconds wide and opened half a minute before.
    let second = world.pending.last().unwrap().deadline_ms;
    world.clock = ((second & !((1 << 16) - 1)) - 20_000) as i64;
    world.commit(&[]);
    world.serve(9);
    world.run_out();
}
