//! Random commands, commits, checkpoints and crashes against a map of every message.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

#[path = "model/check.rs"]
mod check;
#[path = "model/large.rs"]
mod large;
#[path = "model/steps.rs"]
mod steps;

use bytes::Bytes;
use polylogue_lease::*;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use steps::{Pick, Step, step};

const START_MS: u64 = 1_800_000_000_000;
const LEASE_MS: u64 = 40;
/// Of each message beside its body.
const EXTRA_BYTES: u64 = 3;
/// What waits longer than this after its commit is parked. Milliseconds.
const PARK_AHEAD_MS: u64 = 25;

/// What a message has behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct State {
    settled: bool,
    dead: Option<Reason>,
    tally: Tally,
    not_before: u64,
    /// It was handed out and has not come back, where that is kept.
    handed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    entry: Entry,
    committed: bool,
    /// As committed, and as proposed.
    applied: State,
    now: State,
    /// By whom, under which lease, and until when.
    held: Option<(u64, LeaseId, u64)>,
    /// It was handed out before its holder got it.
    had_before: bool,
    reported: bool,
}

#[derive(Debug)]
enum Proposed {
    Entry(Entry),
    Record(Record, BTreeMap<u64, State>),
    /// Timers that were carried out, behind what they did.
    Fired(Vec<Timer>),
}

/// When the time of a parked message comes, and which one it is.
type Timer = (u64, u64);

#[derive(Clone, Debug)]
enum Logged {
    Entry(Entry),
    /// With the time beyond which messages that came back are parked.
    Record(Bytes, u64),
    Fired(Vec<Timer>),
}

struct Harness {
    config: Arc<Config>,
    early: bool,
    parks: bool,
    /// Pending timers by what is committed, and those that were carried out since.
    timers: BTreeSet<Timer>,
    fired: BTreeSet<Timer>,
    /// Timers of a checkpoint.
    saved_timers: BTreeSet<Timer>,
    /// The subscription was moved: sizes may be forgotten.
    forgetful: bool,
    queue: Queue,
    now: u64,
    messages: BTreeMap<u64, Message>,
    proposed: VecDeque<Proposed>,
    consumers: BTreeMap<u64, ConsumerConfig>,
    next_consumer: u64,
    log: Vec<Logged>,
    disk: BTreeMap<Bytes, Bytes>,
    covered: usize,
    /// Messages that some reply said were done with, once their record was committed: by number of the record.
    replies: Vec<(u64, u64)>,
    promised: BTreeSet<u64>,
    /// Where the log ends, proposals included.
    end: u64,
}

impl Harness {
    fn new(config: Config, early: bool, parks: bool) -> Harness {
        let config = Arc::new(config);
        let mut queue = Queue::new(config.clone(), 0, 0).unwrap();
        queue.become_writer(START_MS, 0);
        Harness {
            config,
            early,
            parks,
            timers: BTreeSet::new(),
            fired: BTreeSet::new(),
            saved_timers: BTreeSet::new(),
            forgetful: false,
            queue,
            now: START_MS,
            messages: BTreeMap::new(),
            proposed: VecDeque::new(),
            consumers: BTreeMap::new(),
            next_consumer: 0,
            log: Vec::new(),
            disk: BTreeMap::new(),
            covered: 0,
            replies: Vec::new(),
            promised: BTreeSet::new(),
            end: 0,
        }
    }

    fn is_ready(&self, message: &Message) -> bool {
        let open = !message.now.settled && message.now.dead.is_none() && message.held.is_none();
        let visible = message.committed || self.early;
        // What waits becomes ready when the time is looked at, which every step here does that moves it.
        open && visible && message.now.not_before <= self.now
    }

    /// The ready ones in the order in which they are to be handed out.
    fn ready(&self) -> Vec<u64> {
        let ready = self.messages.iter().filter(|(_, message)| self.is_ready(message));
        let priority = |message: &Message| if self.config.key_order { 0 } else { message.entry.priority };
        let mut ready: Vec<_> = ready.map(|(offset, message)| (Reverse(priority(message)), *offset)).collect();
        ready.sort_unstable();
        ready.into_iter().map(|(_, offset)| offset).collect()
    }

    fn expired(&self, message: &Message) -> bool {
        message.committed && message.entry.expires_at_ms.is_some_and(|at| at <= self.now)
    }

    fn bury(&mut self, offset: u64, reason: Reason) {
        let dead_letter = self.config.dead_letter;
        let message = self.messages.get_mut(&offset).unwrap();
        message.held = None;
        if dead_letter {
            message.now = State { dead: Some(reason), not_before: 0, handed: false, ..message.now };
        } else {
            message.now = State { settled: true, ..State::default() };
        }
    }

    fn give_back(&mut self, offset: u64, counts: bool, delay: u64) {
        let (now, max) = (self.now, self.config.failures_max);
        let message = self.messages.get_mut(&offset).unwrap();
        message.held = None;
        message.now.handed = false;
        message.now.tally.returned += 1;
        message.now.tally.failed += u16::from(counts);
        message.now.not_before = if delay > 0 { now + delay } else { 0 };
        if counts && max.is_some_and(|max| message.now.tally.failed >= max) {
            self.bury(offset, Reason::DeliveryLimit);
        }
    }

    /// Says of the next messages when they expire, where the queue does not know it; whether there were any.
    fn describe_times(&mut self) -> bool {
        let mut any = false;
        while let Some(range) = self.queue.uncertain(self.now) {
            let entries: BTreeSet<u64> =
                range.clone().map(|offset| self.messages[&offset].entry.first_offset).collect();
            entries.iter().for_each(|first| self.queue.describe_expiry(&self.messages[first].entry));
            self.queue.expiry_described(range.clone());
            self.queue.on_deadline(self.now);
            assert_ne!(self.queue.uncertain(self.now), Some(range));
            any = true;
        }
        any
    }

    fn describe_all(&mut self) {
        while let Some(range) = self.queue.wants() {
            let entry = self.messages[&range.start].entry;
            self.queue.describe(&entry).unwrap();
            assert_ne!(self.queue.wants(), Some(range));
        }
    }

    /// Says of all messages what they are, where entries are handed out whole: after a move of the subscription it may be forgotten.
    fn describe_entries(&mut self) {
        let end = if self.early { self.end } else { self.queue.committed_end() };
        let entries = self.messages.iter().filter(|(offset, message)| **offset == message.entry.first_offset);
        let entries: Vec<Entry> =
            entries.map(|(_, message)| message.entry).filter(|entry| entry.end() <= end).collect();
        if self.config.whole_entries {
            entries.iter().for_each(|entry| self.queue.describe(entry).unwrap());
        }
        assert!(!self.config.whole_entries || self.queue.wants().is_none());
    }

    fn settled_now(&mut self, offset: u64, record: Option<u64>) {
        let message = self.messages.get_mut(&offset).unwrap();
        if !message.now.settled {
            message.now = State { settled: true, ..State::default() };
            message.held = None;
            self.replies.push((record.expect("something to wait for"), offset));
        }
    }

    fn append(&mut self, count: u32, priority: u8, key: u32, late: Option<u64>, until: Option<u64>) {
        let entry = Entry {
            first_offset: self.end,
            count,
            bytes: u64::from(count) * (u64::from(priority) + 1 + EXTRA_BYTES),
            extra_bytes: u64::from(count) * EXTRA_BYTES,
            transient: key == 1,
            priority,
            key_hash: Some(key),
            deliver_at_ms: late.map(|ms| self.now + ms),
            expires_at_ms: until.map(|ms| self.now + ms),
            time_ms: 0,
            parked: false,
        };
        self.end += u64::from(count);
        if self.early {
            self.queue.appended_unflushed(&entry).unwrap();
        }
        for offset in entry.first_offset..entry.end() {
            let not_before = entry.deliver_at_ms.unwrap_or(0);
            let applied = State { not_before, ..State::default() };
            let now = applied;
            let message =
                Message { entry, committed: false, applied, now, held: None, had_before: false, reported: false };
            self.messages.insert(offset, message);
        }
        self.proposed.push_back(Proposed::Entry(entry));
    }

    fn commit_one(&mut self, live: bool) {
        match self.proposed.pop_front() {
            None => {}
            Some(Proposed::Entry(mut entry)) => {
                let is_late = entry.deliver_at_ms.is_some_and(|at| at > self.now + PARK_AHEAD_MS);
                entry.time_ms = self.now;
                entry.parked = self.parks && !self.early && is_late;
                if live {
                    apply_entry(&mut self.queue, &entry, &mut self.timers);
                }
                for (_, message) in self.messages.range_mut(entry.first_offset..entry.end()) {
                    message.committed = true;
                }
                self.log.push(Logged::Entry(entry));
                if live {
                    self.tick(0);
                }
            }
            Some(Proposed::Record(record, states)) => {
                let beyond_ms = if self.parks { self.now + PARK_AHEAD_MS } else { u64::MAX };
                if live {
                    let applied = apply_record(&mut self.queue, &record.bytes, beyond_ms, &mut self.timers);
                    assert_eq!(applied, record.number);
                }
                for (offset, state) in states {
                    self.messages.get_mut(&offset).unwrap().applied = state;
                }
                let replies = std::mem::take(&mut self.replies);
                let (done, waiting) = replies.into_iter().partition(|(number, _)| *number <= record.number);
                self.replies = waiting;
                let done: Vec<(u64, u64)> = done;
                self.promised.extend(done.into_iter().map(|(_, offset)| offset));
                self.log.push(Logged::Record(record.bytes, beyond_ms));
            }
            Some(Proposed::Fired(timers)) => {
                if live {
                    timers.iter().for_each(|timer| _ = (self.timers.remove(timer), self.fired.remove(timer)));
                }
                self.log.push(Logged::Fired(timers));
            }
        }
    }

    /// The changes that no record holds yet, as one.
    fn propose(&mut self) {
        let reported: BTreeSet<_> = self.proposed.iter().flat_map(Proposed::fired).copied().collect();
        let fired: Vec<_> = self.fired.difference(&reported).copied().collect();
        self.propose_record();
        if !fired.is_empty() {
            self.proposed.push_back(Proposed::Fired(fired));
        }
    }

    fn propose_record(&mut self) {
        let Some(record) = self.queue.take_record() else { return };
        let mut states = BTreeMap::new();
        for (offset, message) in &self.messages {
            let mut before = message.applied;
            for proposed in &self.proposed {
                match proposed {
                    Proposed::Record(_, states) => before = states.get(offset).copied().unwrap_or(before),
                    Proposed::Entry(_) | Proposed::Fired(_) => {}
                }
            }
            if before != message.now {
                states.insert(*offset, message.now);
            }
        }
        self.proposed.push_back(Proposed::Record(record, states));
    }

    fn crash(&mut self, survive: usize) {
        for _ in 0..survive.min(self.proposed.len()) {
            self.commit_one(false);
        }
        self.proposed.clear();
        self.replies.clear();
        self.messages.retain(|_, message| message.committed);
        self.end = self.messages.keys().next_back().map_or(0, |last| last + 1);
        self.consumers.clear();
        for message in self.messages.values_mut() {
            (message.now, message.held, message.reported) = (message.applied, None, false);
        }
        let mut queue = match self.disk.is_empty() {
            true => Queue::new(self.config.clone(), 0, 0).unwrap(),
            false => Queue::empty(self.config.clone()),
        };
        self.disk.iter().for_each(|(id, chunk)| queue.load_chunk(id, chunk).unwrap());
        queue.loaded().unwrap();
        self.timers.clone_from(&self.saved_timers);
        self.fired.clear();
        for logged in &self.log[self.covered..] {
            match logged {
                Logged::Entry(entry) => apply_entry(&mut queue, entry, &mut self.timers),
                Logged::Record(record, beyond) => _ = apply_record(&mut queue, record, *beyond, &mut self.timers),
                Logged::Fired(timers) => timers.iter().for_each(|timer| _ = self.timers.remove(timer)),
            }
        }
        queue.become_writer(self.now, self.log.len() as u64);
        self.queue = queue;
        self.fire();
        self.describe_all();
        // What was promised is kept.
        for offset in &self.promised {
            assert!(self.messages[offset].now.settled && self.queue.is_settled(*offset), "{offset} is back");
        }
    }

    fn tick(&mut self, ms: u64) {
        self.now += ms;
        self.fire();
        self.queue.on_deadline(self.now);
        self.describe_times();
        let ran_out = |message: &&Message| message.held.is_some_and(|(_, _, until)| until <= self.now);
        let back: Vec<u64> =
            self.messages.iter().filter(|(_, message)| ran_out(message)).map(|(offset, _)| *offset).collect();
        back.into_iter().for_each(|offset| self.give_back(offset, true, 0));
        self.expire_heads();
    }

    /// Carries out the timers that are due.
    fn fire(&mut self) {
        let due = self.timers.range(..(self.now + 1, 0)).copied().filter(|timer| !self.fired.contains(timer));
        for timer in due.collect::<Vec<_>>() {
            self.queue.unpark(timer.1, 1, |_| true).unwrap();
            self.fired.insert(timer);
        }
    }

    /// At the head of each priority.
    fn expire_heads(&mut self) {
        for priority in [0, 4, 200] {
            let keyed = self.config.key_order;
            if keyed && priority > 0 {
                return;
            }
            let lane = self.ready().into_iter().filter(|at| keyed || self.messages[at].entry.priority == priority);
            let heads: Vec<u64> = lane.take_while(|offset| self.expired(&self.messages[offset])).collect();
            heads.into_iter().for_each(|offset| self.bury(offset, Reason::Expired));
        }
    }

    fn held_of(&self, id: u64) -> u64 {
        self.messages.values().filter(|message| message.held.is_some_and(|held| held.0 == id)).count() as u64
    }

    fn has_room(&self, id: u64) -> bool {
        let ConsumerConfig { prefetch, permits, .. } = self.consumers[&id];
        permits != Some(0) && (prefetch == 0 || self.held_of(id) < u64::from(prefetch))
    }

    /// Takes over what was handed out, in its order, and checks it.
    fn granted(&mut self, grants: &[Grant], limit_hit: impl Fn(&Harness) -> bool) {
        let mut ready = VecDeque::from(self.ready());
        for grant in grants {
            for offset in grant.first_offset..grant.end() {
                if self.config.key_order {
                    self.check_key(grant.consumer.0, offset);
                } else {
                    while ready.front().is_some_and(|first| self.expired(&self.messages[first])) {
                        ready.pop_front().into_iter().for_each(|first| self.bury(first, Reason::Expired));
                    }
                    assert_eq!(ready.pop_front(), Some(offset), "out of order");
                }
                let message = self.messages.get_mut(&offset).unwrap();
                assert_eq!(message.now.tally, grant.tally);
                let had_before = message.now.handed || message.now.tally.returned > 0;
                assert_eq!(grant.redelivered, had_before, "{offset}: {message:?}");
                if self.config.mark_handed && !had_before {
                    message.now = State { handed: true, not_before: 0, ..message.now };
                }
                message.had_before = had_before;
                let until = grant.deadline_ms.unwrap_or(u64::MAX);
                message.held = Some((grant.consumer.0, grant.lease, until));
            }
        }
        if self.config.whole_entries {
            for grant in grants {
                let entry = self.messages[&grant.first_offset].entry;
                let all = self.messages.range(entry.first_offset..entry.end());
                let left = all.filter(|(_, message)| self.is_ready(message)).count();
                assert_eq!(left, 0, "an entry was handed out in part");
            }
        }
        if !self.config.key_order && !limit_hit(self) {
            self.pass_expired();
            assert_eq!(self.ready(), [], "handed out too little");
        }
    }

    /// Those next in order that expired are dead, not handed out.
    fn pass_expired(&mut self) {
        let expired: Vec<u64> =
            self.ready().into_iter().take_while(|first| self.expired(&self.messages[first])).collect();
        expired.into_iter().for_each(|first| self.bury(first, Reason::Expired));
    }

    fn check_key(&self, consumer: u64, offset: u64) {
        let message = &self.messages[&offset];
        assert!(self.is_ready(message), "{offset} is not ready: {message:?}");
        let key = message.entry.key_hash;
        for (other, before) in self.messages.iter().filter(|(_, other)| other.entry.key_hash == key) {
            assert!(before.held.is_none_or(|held| held.0 == consumer), "{offset}: key held at {other}");
            if *other < offset {
                let open = !before.now.settled && before.now.dead.is_none() && before.held.is_none();
                let seen = before.committed || self.early;
                assert!(!open || !seen, "{offset} before {other}");
            }
        }
    }

    /// A message that is held, and the ones after it that the same one holds under the same lease.
    fn run_of(&self, pick: Pick, count: u64) -> Option<(u64, u64, u64, LeaseId)> {
        let held: Vec<_> = self.messages.iter().filter_map(|(at, message)| Some((*at, message.held?))).collect();
        let (first, (consumer, lease, _)) = *held.get(pick.index(held.len().max(1)))?;
        let same = |at: &u64| {
            let held = self.messages.get(at).and_then(|message| message.held);
            held.is_some_and(|held| (held.0, held.1) == (consumer, lease))
        };
        let len = (first..first + count).take_while(same).count() as u64;
        Some((first, len, consumer, lease))
    }

    fn any_offset(&self, pick: Pick) -> u64 {
        pick.index(self.messages.len() + 1) as u64
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append(count, priority, key, late, until) => self.append(count, priority, key, late, until),
            Step::Propose => self.propose(),
            Step::Commit(count) => (0..count).for_each(|_| self.commit_one(true)),
            Step::Crash(survive) => self.crash(survive),
            Step::Tick(ms) => self.tick(ms),
            Step::Checkpoint => self.checkpoint(),
            Step::TellDead(count) => self.tell_dead(count),
            Step::Moved(count) => self.moved(count),
            Step::Purge => self.purge(),
            Step::Seek(pick) => self.seek(pick),
            Step::Join(..) | Step::Leave(..) | Step::Grant(..) | Step::Pull(..) => self.step_of_consumers(step),
            _ => self.step_of_messages(step),
        }
        self.check();
    }

    fn checkpoint(&mut self) {
        for (id, chunk) in self.queue.take_changed_chunks() {
            match chunk {
                Some(chunk) => _ = self.disk.insert(id, chunk),
                None => _ = self.disk.remove(&id),
            }
        }
        self.covered = self.log.len();
        self.saved_timers.clone_from(&self.timers);
    }

    fn step_of_consumers(&mut self, step: Step) {
        self.describe_entries();
        let mut out = Vec::new();
        let nth = |harness: &Harness, pick: Pick| {
            let all: Vec<u64> = harness.consumers.keys().copied().collect();
            all.get(pick.index(all.len().max(1))).copied()
        };
        match step {
            Step::Join(prefetch, leased) if self.consumers.len() < 5 => {
                self.next_consumer += 1;
                let permits = (prefetch == 8).then_some(0);
                let lease_ms = leased.then_some(LEASE_MS);
                let config = ConsumerConfig { prefetch, permits, lease_ms, ..ConsumerConfig::default() };
                self.queue.add_consumer(ConsumerId(self.next_consumer), config.clone()).unwrap();
                self.consumers.insert(self.next_consumer, config);
            }
            Step::Leave(pick, counts, delay) => {
                let Some(id) = nth(self, pick) else { return };
                let held = self.messages.iter().filter(|(_, message)| message.held.is_some_and(|held| held.0 == id));
                let held: Vec<u64> = held.map(|(offset, _)| *offset).collect();
                let how = Return { counts, delay: Delay::For(delay), ..Return::default() };
                assert_eq!(self.queue.remove_consumer(ConsumerId(id), how, self.now), Ok(held.len() as u64));
                held.into_iter().for_each(|offset| self.give_back(offset, counts, delay));
                self.consumers.remove(&id);
            }
            Step::Grant(max) => {
                let mut given = self.queue.grant(self.now, max, &mut out);
                let mut described = false;
                while self.describe_times() {
                    described = true;
                    given += self.queue.grant(self.now, max.saturating_sub(given), &mut out);
                }
                let full =
                    move |harness: &Harness| given >= max || !harness.consumers.keys().any(|id| harness.has_room(*id));
                self.granted(&out, full);
                if described {
                    self.expire_heads();
                }
            }
            Step::Pull(pick, max) => {
                let Some(id) = nth(self, pick) else { return };
                let mut want = Acquire { messages_max: max, bytes_max: u64::MAX, lease_ms: Some(LEASE_MS) };
                let mut given = self.queue.acquire(ConsumerId(id), &want, self.now, &mut out).unwrap();
                let mut described = false;
                while self.describe_times() {
                    described = true;
                    want.messages_max = max.saturating_sub(given);
                    given += self.queue.acquire(ConsumerId(id), &want, self.now, &mut out).unwrap();
                }
                self.granted(&out, move |_| given >= max);
                if described {
                    self.expire_heads();
                }
            }
            _ => {}
        }
    }

    fn step_of_messages(&mut self, step: Step) {
        match step {
            Step::Settle(pick, count) => {
                let Some((first, count, consumer, lease)) = self.run_of(pick, count) else { return };
                let by = if count % 2 == 0 { By::Consumer(ConsumerId(consumer)) } else { By::Lease(lease) };
                let done = self.queue.settle(first, count, by, self.now).unwrap();
                assert_eq!(done.messages, count);
                (first..first + count).for_each(|offset| self.settled_now(offset, done.record));
                assert!(self.queue.settle(first, 1, by, self.now).is_err());
            }
            Step::SettleAny(pick, count) => {
                let first = self.any_offset(pick);
                let done = self.queue.settle(first, count, By::Anyone, self.now).unwrap();
                self.settled_any(first..first + count, done);
            }
            Step::SettleTo(pick) => {
                let to = self.any_offset(pick) / 2;
                let done = self.queue.settle_to(to).unwrap();
                self.settled_any(0..to + 1, done);
            }
            Step::SettleBatch(pick, bits) => {
                let Some(entry) = self.messages.get(&self.any_offset(pick)).map(|message| message.entry) else {
                    return;
                };
                let seen = self.messages[&entry.first_offset].committed || self.early;
                let words = vec![bits; entry.count.div_ceil(64) as usize];
                let done = self.queue.settle_batch(entry.first_offset, entry.count, &words).unwrap();
                let is_done = |offset: &u64| bits >> ((offset - entry.first_offset) % 64) & 1 == 0;
                let chosen = (entry.first_offset..entry.end()).filter(|offset| seen && is_done(offset));
                let open: Vec<u64> = chosen.filter(|offset| !self.messages[offset].now.settled).collect();
                assert_eq!(done.messages, open.len() as u64);
                open.into_iter().for_each(|offset| self.settled_now(offset, done.record));
            }
            Step::Release(pick, count, counts, delay) => {
                let Some((first, count, _, lease)) = self.run_of(pick, count) else { return };
                let how = Return { counts, delay: Delay::For(delay), ..Return::default() };
                let done = self.queue.release(first, count, By::Lease(lease), how, self.now).unwrap();
                assert_eq!(done.messages, count);
                (first..first + count).for_each(|offset| self.give_back(offset, counts, delay));
            }
            Step::Reject(pick, count) => {
                let Some((first, count, _, lease)) = self.run_of(pick, count) else { return };
                assert_eq!(self.queue.reject(first, count, By::Lease(lease), self.now).unwrap().messages, count);
                for offset in first..first + count {
                    let tally = &mut self.messages.get_mut(&offset).unwrap().now.tally;
                    (tally.returned, tally.failed) = (tally.returned + 1, tally.failed + 1);
                    self.bury(offset, Reason::Rejected);
                }
            }
            Step::Unsend(pick, count) => {
                let Some((first, count, _, lease)) = self.run_of(pick, count) else { return };
                assert_eq!(self.queue.unsend(first, count, By::Lease(lease), self.now), Ok(count));
                for (_, message) in self.messages.range_mut(first..first + count) {
                    message.held = None;
                    message.now.handed &= message.had_before;
                }
            }
            Step::Extend(pick, ms) => {
                let Some((first, count, _, lease)) = self.run_of(pick, 3) else { return };
                let until = self.now + ms;
                assert_eq!(self.queue.extend(first, count, By::Lease(lease), until, self.now), Ok(count));
                for (_, message) in self.messages.range_mut(first..first + count) {
                    message.held = message.held.map(|held| (held.0, held.1, until));
                }
            }
            _ => {}
        }
    }

    fn settled_any(&mut self, range: std::ops::Range<u64>, done: Done) {
        let seen = |message: &Message| !message.now.settled && (message.committed || self.early);
        let open: Vec<u64> =
            self.messages.range(range).filter(|(_, message)| seen(message)).map(|(offset, _)| *offset).collect();
        assert_eq!(done.messages, open.len() as u64);
        open.into_iter().for_each(|offset| self.settled_now(offset, done.record));
    }

    fn tell_dead(&mut self, count: usize) {
        let mut letters = Vec::new();
        self.queue.take_dead_letters(count as u64, u64::MAX, &mut letters);
        for letter in letters {
            for offset in letter.first_offset..letter.first_offset + letter.count {
                let message = self.messages.get_mut(&offset).unwrap();
                assert_eq!((message.now.dead, message.now.tally), (Some(letter.reason), letter.tally));
                assert!(
                    message.committed && !std::mem::replace(&mut message.reported, true),
                    "{offset} reported twice"
                );
            }
        }
    }

    fn moved(&mut self, count: usize) {
        let dead = |message: &Message| message.reported && message.now.dead.is_some();
        let reported: Vec<u64> =
            self.messages.iter().filter(|(_, message)| dead(message)).map(|(offset, _)| *offset).collect();
        for (n, offset) in reported.into_iter().take(count).enumerate() {
            if n == 2 {
                self.queue.dead_letter_failed(offset, 1);
                self.messages.get_mut(&offset).unwrap().reported = false;
            } else {
                let done = self.queue.dead_lettered(offset, 1).unwrap();
                self.settled_now(offset, done.record);
            }
        }
    }

    fn purge(&mut self) {
        let done = self.queue.purge().unwrap();
        let open = |message: &Message| {
            let seen = message.committed || self.early;
            seen && !message.now.settled && message.now.dead.is_none() && message.held.is_none()
        };
        let open: Vec<u64> =
            self.messages.iter().filter(|(_, message)| open(message)).map(|(offset, _)| *offset).collect();
        assert_eq!(done.messages, open.len() as u64);
        open.into_iter().for_each(|offset| self.settled_now(offset, done.record));
    }

    fn seek(&mut self, pick: Pick) {
        let end = if self.early { self.end } else { self.queue.committed_end() };
        let to = self.any_offset(pick).min(end);
        let done = self.queue.seek(to, self.now).unwrap();
        self.forgetful = true;
        assert_eq!(done.messages, end - to);
        // It is another subscription from here on: nothing was promised of it.
        self.promised.retain(|offset| *offset < to);
        self.replies.retain(|(_, offset)| *offset < to);
        for (offset, message) in self.messages.range_mut(..end) {
            (message.held, message.reported) = (None, false);
            let State { settled, dead, tally, not_before, .. } = message.now;
            let waits = !settled && dead.is_none() && tally == Tally::default() && not_before > self.now;
            let not_before = if waits && *offset >= to { not_before } else { 0 };
            message.now = State { settled: *offset < to, not_before, ..State::default() };
        }
        self.describe_all();
    }
}

impl Proposed {
    fn fired(&self) -> &[Timer] {
        if let Proposed::Fired(timers) = self { timers } else { &[] }
    }
}

fn apply_entry(queue: &mut Queue, entry: &Entry, timers: &mut BTreeSet<Timer>) {
    queue.appended(entry).unwrap();
    if entry.parked {
        timers.extend((entry.first_offset..entry.end()).map(|offset| (entry.deliver_at_ms.unwrap(), offset)));
    }
}

fn apply_record(queue: &mut Queue, record: &[u8], beyond_ms: u64, timers: &mut BTreeSet<Timer>) -> u64 {
    queue.apply_parking(record, beyond_ms, &mut |offset, until, _| _ = timers.insert((until, offset))).unwrap()
}

fn run(config: Config, early: bool, parks: bool, steps: Vec<Step>) {
    let mut harness = Harness::new(config, early, parks);
    steps.into_iter().for_each(|step| harness.step(step));
    // All that is left can be had.
    harness.crash(usize::MAX);
    harness.tick(1000);
    harness.step(Step::Join(0, false));
    harness.step(Step::Grant(u64::MAX));
    assert_eq!(harness.ready(), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_queue_does_what_its_model_does(
        steps in prop::collection::vec(step(), 1..120),
        early in any::<bool>(),
        dead_letter in any::<bool>(),
        failures_max in prop::option::of(1u16..4),
        quantum in 1u32..4,
        seeks in any::<bool>(),
        parks in any::<bool>(),
        expiry_times_max in prop_oneof![Just(1 << 15), 1u64..8],
        mark_handed in any::<bool>(),
    ) {
        let config = Config {
            dead_letter, failures_max, quantum, expiry_times_max, mark_handed, track_bytes: true, ..Config::default()
        };
        // What messages are is forgotten below the floor, from where only a seek brings them back.
        let steps = steps.into_iter().map(|step| match step {
            Step::Append(count, _, key, late, _) if seeks => Step::Append(count, 0, key, late, None),
            Step::Seek(_) if !seeks => Step::Tick(1),
            other => other,
        });
        // A timer of what was parked before a seek may be of another wait after it.
        run(config, early, parks && !seeks, steps.collect());
    }

    #[test]
    fn a_queue_of_whole_entries_does_what_its_model_does(
        steps in prop::collection::vec(step(), 1..120),
        early in any::<bool>(),
        quantum in 1u32..4,
    ) {
        let config = Config { whole_entries: true, quantum, track_bytes: true, ..Config::default() };
        let plain = steps.into_iter().map(|step| match step {
            Step::Append(count, _, key, late, _) => Step::Append(count, 0, key, late, None),
            other => other,
        });
        run(config, early, false, plain.collect());
    }

    #[test]
    fn a_queue_with_key_order_does_what_its_model_does(
        steps in prop::collection::vec(step(), 1..120),
        early in any::<bool>(),
        dead_letter in any::<bool>(),
        parks in any::<bool>(),
    ) {
        let config = Config { key_order: true, mark_handed: true, dead_letter, failures_max: Some(3), ..Config::default() };
        // Which expired messages are met goes by the keys, and is not modelled.
        let plain = steps.into_iter().map(|step| match step {
            Step::Append(count, priority, key, late, _) => Step::Append(count, priority, key, late, None),
            Step::Seek(_) if parks => Step::Tick(1),
            other => other,
        });
        run(config, early, parks, plain.collect());
    }
}
