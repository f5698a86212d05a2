//! A queue: its life as a state machine on the log, and what it knows of entries.

use crate::alarms::Alarms;
use crate::applied::Applied;
use crate::codec::{RecordReader, encode_record};
use crate::config::{Config, Mode};
use crate::consumers::Consumers;
use crate::error::LeaseError;
use crate::keys::Keys;
use crate::mark::{Class, Entry, Fate, Mark, OFFSET_MAX, PARKED_MS, Reason, Size, Tally, Transient};
use crate::runs::Runs;
use bytes::Bytes;
use polylogue_types::SharedLimit;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Messages that get one size, when sizes change too often to keep each.
const AVERAGED_MESSAGES: u64 = 256;
/// Messages that came back together and wait for one time are parked up to so many: more of them cost little as they are.
const PARKED_RUN_MAX: u64 = 32;
/// Changes of class that are kept before sizes of neighbours are averaged.
pub(crate) const CLASS_RUNS_MAX: usize = 1 << 16;

/// A change that was proposed and is not applied yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) mark: Mark,
    pub(crate) record: u64,
}

/// Who holds messages, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub(crate) lease: u64,
    /// `u64::MAX` for ever. Milliseconds.
    pub(crate) deadline_ms: u64,
    pub(crate) slot: u32,
    /// They are handed out for the first time: their marks say so since.
    pub(crate) first_time: bool,
}

/// A message to be moved to where dead ones go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dead {
    pub(crate) reason: Reason,
    /// The host was notified.
    pub(crate) moving: bool,
}

/// What the messages in each place count together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sizes {
    pub(crate) ready: Size,
    pub(crate) held: Size,
    pub(crate) delayed: Size,
    pub(crate) dead: Size,
}

/// Messages of one level of priority that are ready.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) level: u8,
    pub(crate) ready: Runs<()>,
}

/// A record to be proposed. Records are applied in the order in which they were taken, each once, or else the writer is lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its number. Replies that wait for it may leave once [`Queue::apply`] says this number or a higher one.
    pub number: u64,
    /// What to propose.
    pub bytes: Bytes,
    /// Nothing in it was settled: it need not be waited for.
    pub lazy: bool,
}

/// How many messages are where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// To be handed out now; committed.
    pub ready: u64,
    /// To be handed out ahead of their commit.
    pub uncommitted: u64,
    /// Held by consumers.
    pub held: u64,
    /// Waiting for their time.
    pub delayed: u64,
    /// Dead, and not settled yet.
    pub dead: u64,
    /// Consumers, whether they get messages or not.
    pub consumers: usize,
    /// What is ready, committed or not.
    pub ready_size: Size,
    /// What is held.
    pub held_size: Size,
    /// What waits for its time.
    pub delayed_size: Size,
    /// What is dead, and not settled yet.
    pub dead_size: Size,
}

/// The messages of one queue or subscription. See the crate's documentation.
#[derive(Debug)]
pub struct Queue {
    pub(crate) config: Arc<Config>,
    pub(crate) applied: Applied,
    /// The tail: what is to go into the next record, and what went into records that are not applied.
    pub(crate) pending: Runs<Mark>,
    pub(crate) sent: Runs<Sent>,
    /// How many records were taken, and applied, since there is a writer.
    pub(crate) taken: u64,
    acknowledged: u64,
    waited: bool,
    writer: bool,
    /// Entries may be missing that records speak of.
    lossy: bool,
    /// The end of what is proposed. At or behind the committed one.
    pub(crate) end: u64,
    // Soft state. Each message that is not settled is in one of these places: ready, held, delayed or dead.
    /// The highest level first.
    pub(crate) lanes: Vec<Lane>,
    /// With two levels: how many messages went since one of the lower level had its turn.
    pub(crate) in_a_row: u8,
    pub(crate) held: Runs<Held>,
    pub(crate) delayed: Runs<u64>,
    pub(crate) dead: Runs<Dead>,
    pub(crate) sizes: Sizes,
    pub(crate) alarms: Alarms,
    pub(crate) consumers: Consumers,
    pub(crate) keys: Option<Box<Keys>>,
    pub(crate) leases: u64,
    /// See [`Queue::take_freed`].
    pub(crate) freed: Vec<Arc<SharedLimit>>,
}

impl Queue {
    /// A queue whose first message is at `start`, of a log that ends at `end`. It has no writer yet: records are replayed.
    ///
    /// # Errors
    /// When there can be no such offsets.
    pub fn new(config: Arc<Config>, start: u64, end: u64) -> Result<Queue, LeaseError> {
        if end > OFFSET_MAX || start > end {
            return Err(LeaseError::OffsetTooHigh(start.max(end)));
        }
        Ok(Queue::of(config, Applied::new(start, end)))
    }

    fn of(config: Arc<Config>, applied: Applied) -> Queue {
        Queue {
            config,
            end: applied.head.end,
            applied,
            pending: Runs::default(),
            sent: Runs::default(),
            taken: 0,
            acknowledged: 0,
            waited: false,
            writer: false,
            lossy: false,
            lanes: Vec::new(),
            in_a_row: 0,
            held: Runs::default(),
            delayed: Runs::default(),
            dead: Runs::default(),
            sizes: Sizes::default(),
            alarms: Alarms::default(),
            consumers: Consumers::default(),
            keys: None,
            leases: 0,
            freed: Vec::new(),
        }
    }

    /// One that is filled from a checkpoint by [`Queue::load_chunk`].
    #[must_use]
    pub fn empty(config: Arc<Config>) -> Queue {
        Queue::of(config, Applied::default())
    }

    /// Other limits, from now on. What is fixed stays.
    pub fn configure(&mut self, config: Arc<Config>) {
        let Config { mode, key_order, whole_entries, track_bytes, low_priority_max, .. } = *self.config;
        let wanted = Config { mode, key_order, whole_entries, track_bytes, low_priority_max, ..(*config).clone() };
        // Queues of one kind share what they do.
        self.config = if wanted == *config { config } else { Arc::new(wanted) };
        if self.writer {
            self.keep_length();
        }
    }

    /// What it does.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// A chunk of a checkpoint, before entries and records.
    ///
    /// # Errors
    /// What cannot be in it. The queue is of no use then.
    pub fn load_chunk(&mut self, id: &[u8], chunk: &[u8]) -> Result<(), LeaseError> {
        self.applied.load_chunk(id, chunk)?;
        self.end = self.applied.head.end;
        Ok(())
    }

    /// Called after the last chunk.
    ///
    /// # Errors
    /// When the chunks do not fit together.
    pub fn loaded(&mut self) -> Result<(), LeaseError> {
        self.applied.check_loaded()
    }

    /// Chunks of applied state that changed since the last call, with names of their own in this queue; `None` for those that are gone.
    pub fn take_changed_chunks(&mut self) -> Vec<(Bytes, Option<Bytes>)> {
        self.applied.take_changed_chunks()
    }

    /// What records and entries have made of the queue, in an encoding that depends on these alone: equal logs give equal bytes, whatever the
    /// checkpoints, clocks and consumers of a node were. In it: where the queue begins and ends, how far messages were handed out, and of
    /// each message that is not settled its fate, wait, returns, priority, and whether it expires and is transient.
    ///
    /// Not in it: when messages expire and how large they are. Both are kept roughly, and a writer makes them exact by reading the log when it
    /// needs them ([`Queue::describe_expiry`]), so that they follow from the log and from what was asked.
    ///
    /// ```text
    /// u64 floor, u64 end, u64 handed out to, then runs of messages with equal values: 16 bytes value, u64 end of the run
    /// ```
    #[must_use]
    pub fn canonical(&self) -> Bytes {
        Bytes::from(self.applied.canonical())
    }

    /// Counts every chunk as changed.
    pub fn change_all_chunks(&mut self) {
        self.applied.change_all_chunks();
    }

    /// An entry is committed. It may have been proposed by [`Queue::appended_unflushed`]. Offsets between the last entry and this one
    /// belong to no message of the queue.
    ///
    /// # Errors
    /// When it is not behind the last one, or too far.
    pub fn appended(&mut self, entry: &Entry) -> Result<(), LeaseError> {
        let expected = self.applied.head.end;
        if entry.first_offset < expected {
            return Err(LeaseError::NotInOrder { expected, got: entry.first_offset });
        }
        let early = entry.end() <= self.end && entry.count > 0;
        if early && entry.first_offset > expected {
            return Err(LeaseError::NotInOrder { expected, got: entry.first_offset });
        }
        if !early {
            self.propose(entry)?;
        } else if entry.expires_at_ms.is_some() {
            self.coarsen(entry);
        }
        if entry.first_offset > expected {
            self.set_applied(expected..entry.first_offset, Mark::SETTLED);
        }
        self.applied.set_end(entry.end());
        if self.writer {
            self.keep_length();
        }
        Ok(())
    }

    /// An entry is proposed, and may be handed out ahead of its commit. [`Queue::appended`] is called once it is committed. Before, it is
    /// settled or dropped at the most, and that is recorded behind it.
    ///
    /// # Errors
    /// When there is no writer, or the entry does not follow the last one.
    pub fn appended_unflushed(&mut self, entry: &Entry) -> Result<(), LeaseError> {
        self.check_writer()?;
        if entry.first_offset != self.end {
            return Err(LeaseError::NotInOrder { expected: self.end, got: entry.first_offset });
        }
        self.propose(entry)?;
        self.keep_length();
        Ok(())
    }

    fn propose(&mut self, entry: &Entry) -> Result<(), LeaseError> {
        if entry.end() > OFFSET_MAX || entry.count == 0 {
            return Err(LeaseError::OffsetTooHigh(entry.end()));
        }
        if entry.first_offset < self.end {
            return Err(LeaseError::NotInOrder { expected: self.end, got: entry.first_offset });
        }
        let class = self.class_of(entry);
        let range = entry.first_offset..entry.end();
        self.applied.set_class(range.clone(), class);
        if let Some(keys) = self.keys.as_deref_mut()
            && keys.known_to == self.end
            && keys.room() >= u64::from(entry.count)
        {
            keys.learn(range.clone(), entry.key_hash.unwrap_or(0));
            keys.known_to = entry.end();
        }
        self.end = entry.end();
        let not_before_ms = match entry.deliver_at_ms {
            Some(_) if entry.parked => PARKED_MS,
            at => at.unwrap_or(0).min(PARKED_MS - 1),
        };
        if not_before_ms > 0 {
            self.applied.set_mark(range.clone(), Mark { not_before_ms, ..Mark::OPEN });
        }
        match self.writer {
            true if not_before_ms > 0 => self.wait_until(range, not_before_ms),
            true => self.make_ready(range),
            false => {}
        }
        self.average_sizes(entry.first_offset);
        Ok(())
    }

    pub(crate) fn class_of(&self, entry: &Entry) -> Class {
        let (expires_at_ms, coarse) = self.expiry_of(entry);
        let messages = u64::from(entry.count.max(1));
        let tracked = |bytes: u64| if self.config.track_bytes { u32::try_from(bytes).unwrap_or(u32::MAX) } else { 0 };
        let bytes = tracked(entry.bytes.div_ceil(messages));
        let count = if self.config.whole_entries { entry.count } else { 0 };
        Class {
            expires_at_ms,
            bytes,
            extra: tracked(entry.extra_bytes / messages).min(bytes),
            transient: Transient::of(self.config.track_bytes && entry.transient),
            // Of one too large the messages are entries of their own.
            entry: u16::try_from(count).unwrap_or(1),
            priority: if self.keyed() { 0 } else { entry.priority },
            coarse,
        }
    }

    /// Gives messages one size, a block of them at a time, when sizes change so often that keeping each would take memory by the length.
    /// Their sum stays, to half a byte each. `before` is where the queue ended before.
    ///
    /// A writer leaves blocks out of which it has handed out messages, so that sizes depend on more than applied state. Persistence, which does
    /// not, stays that of each message.
    fn average_sizes(&mut self, before: u64) {
        let block = self.end / AVERAGED_MESSAGES;
        let full = before / AVERAGED_MESSAGES < block;
        if !self.config.track_bytes || !full || !self.applied.classes.exceeds(CLASS_RUNS_MAX) {
            return;
        }
        let range = (block - 1) * AVERAGED_MESSAGES..block * AVERAGED_MESSAGES;
        let Some(last) = self.applied.classes.at(range.start) else { return };
        // What was taken with its own size gives back the same.
        let ready = self.lanes.iter().map(|lane| lane.ready.covered_in(&range)).sum::<u64>();
        if self.writer && ready + self.delayed.covered_in(&range) < AVERAGED_MESSAGES {
            return;
        }
        let (mut at, mut bodies, mut extra) = (range.start, 0u64, 0u64);
        let mut transient = [Transient::default(); (AVERAGED_MESSAGES / Transient::PERIOD) as usize];
        while at < range.end {
            let (end, class) = self.applied.class_run(at, range.end);
            let Class { bytes, extra: other, transient: which, .. } = class;
            if class.entry > 0 || class != (Class { bytes, extra: other, transient: which, ..last.value }) {
                return;
            }
            bodies = class.body().wrapping_mul(end - at).wrapping_add(bodies);
            extra = u64::from(other).wrapping_mul(end - at).wrapping_add(extra);
            for (part, known) in Transient::periods(range.start).zip(&mut transient) {
                *known = known.with(&(at.max(part.start)..end.min(part.end)), which);
            }
            at = end;
        }
        let average = |sum: u64| sum.saturating_add(AVERAGED_MESSAGES / 2) / AVERAGED_MESSAGES;
        let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        let bytes = small(average(bodies).saturating_add(average(extra)));
        let class = Class { bytes, extra: small(average(extra)).min(bytes), ..last.value };
        if transient.iter().all(|which| *which == transient[0]) {
            return self.resize(range, Class { transient: transient[0], ..class });
        }
        for (part, transient) in Transient::periods(range.start).zip(transient) {
            self.resize(part, Class { transient, ..class });
        }
        self.applied.classes.pack(range.start);
    }

    /// Messages before `end` that are not known were lost to damage: they are not waited for any more. `None`: unknown which; until there
    /// is a writer, what records say of messages that are not known is taken for true.
    pub fn lose(&mut self, end: Option<u64>) {
        match end {
            Some(end) => self.extend_lost(end),
            None => self.lossy = true,
        }
    }

    fn extend_lost(&mut self, end: u64) {
        let from = self.applied.head.end;
        if from < end && end <= OFFSET_MAX {
            self.set_applied(from..end, Mark::SETTLED);
            self.applied.set_end(end);
            self.end = self.end.max(end);
        }
    }

    /// What was proposed from this offset on will not be committed.
    ///
    /// # Errors
    /// When there is no writer, or the offset is of a message that is committed.
    pub fn void(&mut self, from: u64) -> Result<(), LeaseError> {
        self.check_writer()?;
        if from < self.applied.head.end {
            return Err(LeaseError::NotInOrder { expected: self.applied.head.end, got: from });
        }
        let range = from..self.end.max(from);
        self.take_out(&range);
        self.pending.clear(&range);
        self.sent.clear(&range);
        self.applied.forget(range.clone());
        if let Some(keys) = self.keys.as_deref_mut() {
            keys.forget(&range);
            keys.known_to = keys.known_to.min(from);
        }
        self.end = self.end.min(from);
        Ok(())
    }

    /// Applies a committed record, and says how many were applied since there is a writer.
    ///
    /// # Errors
    /// What cannot be in it; nothing is changed then.
    pub fn apply(&mut self, record: &[u8]) -> Result<u64, LeaseError> {
        self.apply_parking(record, u64::MAX, &mut |_, _, _| {})
    }

    /// As [`Queue::apply`], for a host that keeps times of delivery: messages that came back and wait beyond `beyond_ms` are parked, and each
    /// is reported with its time and what it has behind it. All that are to have the record must be given the same time here.
    ///
    /// # Errors
    /// As [`Queue::apply`].
    pub fn apply_parking(
        &mut self,
        record: &[u8],
        beyond_ms: u64,
        parked: &mut dyn FnMut(u64, u64, Tally),
    ) -> Result<u64, LeaseError> {
        let mut reader = RecordReader::new(record)?;
        if self.lossy {
            self.extend_lost(reader.end()?);
        }
        self.applied.check(reader)?;
        if self.writer {
            if self.acknowledged == self.taken {
                return Err(LeaseError::NotProposed);
            }
            self.acknowledged += 1;
        }
        if let Some(to) = reader.handed_to {
            self.applied.set_handed_to(to);
        }
        while let Some(run) = reader.next()? {
            let Mark { fate, not_before_ms: until_ms, .. } = run.value;
            let parks = fate == Fate::Open && (beyond_ms..PARKED_MS).contains(&until_ms) && run.len() <= PARKED_RUN_MAX;
            let mark = if parks { Mark { not_before_ms: PARKED_MS, ..run.value } } else { run.value };
            self.set_applied(run.range(), mark);
            self.drop_sent(run.range());
            if parks {
                self.park_waiting(run.range(), until_ms);
                run.range().for_each(|offset| parked(offset, until_ms, run.value.tally));
            }
        }
        Ok(self.acknowledged)
    }

    /// Sets a mark of applied state. What a move of the subscription that is on its way made ready again is settled until then, and what it is
    /// may be forgotten now.
    fn set_applied(&mut self, range: Range<u64>, mark: Mark) {
        let forgotten = self.applied.set_mark(range, mark);
        if self.config.track_bytes && (self.is_placed(&forgotten) || self.is_placed(&(0..self.applied.head.floor))) {
            self.recount();
        }
    }

    /// Whether any of these messages are in any place.
    fn is_placed(&self, range: &Range<u64>) -> bool {
        let is_ready = |lane: &Lane| lane.ready.first_in(range).is_some();
        self.held.first_in(range).is_some()
            || self.lanes.iter().any(is_ready)
            || self.delayed.first_in(range).is_some()
            || self.dead.first_in(range).is_some()
    }

    /// Forgets what of this range went into records that are applied by now.
    fn drop_sent(&mut self, mut range: Range<u64>) {
        while let Some(run) = self.sent.first_in(&range) {
            if run.value.record <= self.acknowledged {
                self.sent.clear(&run.range());
            }
            range.start = run.end;
        }
    }

    /// From now on this queue is its log's writer: whatever is committed was applied. Everything that is not settled is ready, waits for its
    /// time, or is dead. `seed` is a random number; leases are drawn from it.
    pub fn become_writer(&mut self, now_ms: u64, seed: u64) {
        self.on_writer_lost();
        self.writer = true;
        self.leases = seed;
        self.end = self.applied.head.end;
        let floor = self.applied.head.floor;
        self.keys = self.keyed().then(|| Box::new(Keys::new(floor)));
        self.place_all(floor, now_ms);
        self.keep_length();
    }

    /// The queue is no longer the writer: what was proposed and not applied is void, and consumers and leases are gone.
    pub fn on_writer_lost(&mut self) {
        let end = self.applied.head.end;
        self.applied.forget(end..self.end.max(end));
        let empty = Queue::of(self.config.clone(), Applied::default());
        let applied = std::mem::take(&mut self.applied);
        let mut freed = std::mem::take(&mut self.freed);
        freed.extend(self.limits());
        *self = Queue { end, applied, freed, ..empty };
    }

    /// The limits that consumers share.
    #[must_use]
    pub fn limits(&self) -> Vec<Arc<SharedLimit>> {
        let mut seen = BTreeSet::new();
        let shares = self.consumers.iter().filter_map(|(_, consumer)| consumer.config.share.as_ref());
        let limits = shares.map(|share| &share.limit).filter(|limit| seen.insert(Arc::as_ptr(limit)));
        limits.cloned().collect()
    }

    /// Whether the queue is the writer.
    #[must_use]
    pub fn is_writer(&self) -> bool {
        self.writer
    }

    pub(crate) fn check_writer(&self) -> Result<(), LeaseError> {
        if self.writer { Ok(()) } else { Err(LeaseError::NotWriter) }
    }

    /// Whether messages go by their keys. One consumer alone gets them in order anyway.
    pub(crate) fn keyed(&self) -> bool {
        self.config.key_order && self.config.mode == Mode::Competing
    }

    /// How the next record would leave: `None` when there is nothing to record, `Some(true)` when it has no waiter.
    #[must_use]
    pub fn pending_record(&self) -> Option<bool> {
        (!self.pending.is_empty() || self.waited).then_some(!self.waited)
    }

    /// How many ranges the next record has: a host that waits for more to come together stops at some number.
    #[must_use]
    pub fn pending_ranges(&self) -> usize {
        self.pending.runs()
    }

    /// All that is to be recorded since the last call, as one record. `None` when nothing is.
    pub fn take_record(&mut self) -> Option<Record> {
        let lazy = self.pending_record()?;
        self.waited = false;
        self.taken += 1;
        let bytes = encode_record(&self.pending);
        for run in self.pending.iter() {
            self.sent.set(run.range(), Sent { mark: run.value, record: self.taken });
        }
        self.pending.reset();
        Some(Record { number: self.taken, bytes, lazy })
    }

    /// The record that a change of now goes into; it has a waiter.
    pub(crate) fn next_record(&mut self) -> u64 {
        self.waited = true;
        self.taken + 1
    }

    /// The offset before which everything is settled, committed. What lies before it may go.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.applied.head.floor
    }

    /// The end of what is committed.
    #[must_use]
    pub fn committed_end(&self) -> u64 {
        self.applied.head.end
    }

    /// The end of what was proposed, as far as the queue knows.
    #[must_use]
    pub fn proposed_end(&self) -> u64 {
        self.end
    }

    /// Whether it is committed that a message is settled.
    #[must_use]
    pub fn is_settled(&self, offset: u64) -> bool {
        self.applied.mark_run(offset, u64::MAX).1 == Mark::SETTLED
    }

    /// The ranges from the floor on that are settled, committed, in their order.
    pub fn settled_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.applied.marks.iter().filter(|run| run.value == Mark::SETTLED).map(|run| run.range())
    }

    /// How many messages are where. Takes time by the messages that are not committed.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let committed = self.applied.head.end;
        let behind = committed..self.end;
        let ready: u64 = self.lanes.iter().map(|lane| lane.ready.covered()).sum();
        let uncommitted = self.lanes.iter().map(|lane| lane.ready.covered_in(&behind)).sum();
        Counts {
            ready: ready - uncommitted,
            uncommitted,
            held: self.held.covered(),
            delayed: self.delayed.covered(),
            dead: self.dead.covered(),
            consumers: self.consumers.len(),
            ready_size: self.sizes.ready,
            held_size: self.sizes.held,
            delayed_size: self.sizes.delayed,
            dead_size: self.sizes.dead,
        }
    }

    /// Messages that are ready, committed or not, and the bytes of the committed ones.
    #[must_use]
    pub fn backlog(&self) -> (u64, u64) {
        (self.lanes.iter().map(|lane| lane.ready.covered()).sum(), self.sizes.ready.bytes)
    }

    /// Returns whether one of the first `looks_max` consumers waits for messages: it may hold more than it has, though its permits or its window
    /// may be used up for now.
    #[must_use]
    pub fn has_waiting_consumer(&self, looks_max: usize) -> bool {
        self.consumers.want_messages(looks_max)
    }

    /// Bytes that consumers got and have not taken, by their windows.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        self.consumers.iter().fold(0, |bytes, (_, consumer)| consumer.window_used.saturating_add(bytes))
    }

    /// What the queue takes in memory, estimated from the sizes of its parts. Bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let lanes: usize = self.lanes.iter().map(|lane| lane.ready.heap_bytes()).sum();
        size_of::<Queue>()
            + self.applied.heap_bytes()
            + self.pending.heap_bytes()
            + self.sent.heap_bytes()
            + self.lanes.capacity() * size_of::<Lane>()
            + lanes
            + self.held.heap_bytes()
            + self.delayed.heap_bytes()
            + self.dead.heap_bytes()
            + self.alarms.heap_bytes()
            + self.consumers.heap_bytes()
            + self.keys.as_deref().map_or(0, |keys| size_of::<Keys>() + keys.heap_bytes())
    }
}
