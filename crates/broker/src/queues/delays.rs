//! Messages that wait for a time far off: parked in their queues, and one index of times a shard that says when.
//!
//! ```text
//!   entry with a time ─┐ committed                      parts of the index: chunks of the checkpoint, not read at a start
//!   return with a wait ─┴──────────> Timers ───────────────┐ wanted, as their time comes near
//!                                      │ due               └──> a reader's thread
//!            lease engine: parked ──> ready
//!                                      └──> record of the queue, then the record that the timer was carried out
//! ```
//!
//! A message waits here when the time is more than [`PARK_AHEAD_MS`] away from its frame's: what waits less is in memory anyhow. Which
//! ones those are follows from the log, so no record says that a timer began. Its end is recorded behind what it did: after a crash in between
//! it is carried out once more, and what is not parked is let be, as is what came back again meanwhile and waits for another time: the kind of a
//! timer says of which return it is. A timer of a message, or a queue, that is gone ends with nothing done.

use crate::broker::Inner;
use crate::checkpoint::timers_key;
use crate::queues::Queues;
use crate::queues::repair::Repair;
use crate::record::{BROKER_PARTITION, BrokerRecord};
use crate::shard::{Shard, ShardState};
use bytes::Bytes;
use polylogue_lease::Tally;
use polylogue_log::ErrorKind as LogErrorKind;
use polylogue_log::journal::Urgency;
use polylogue_record::envelope::Envelope;
use polylogue_timer::{Kind, TimerId, TimerKey, TimerOp, Timers};
use polylogue_types::{PartitionId, TimestampMs};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Messages whose time is further off than this, when they are committed, are parked. Part of the log's meaning: every replay must come to
/// the same. Milliseconds.
pub(crate) const PARK_AHEAD_MS: u64 = 60_000;
/// Timers that one look carries out at the most; then others have their turn.
const DUE_MAX: usize = 4_096;
/// Timers that were carried out and are not recorded so: no more are, before some of these are. One takes about 100 bytes.
const HANDED_MAX: usize = 1 << 16;
/// Ends of timers in one record.
const ENDS_PER_RECORD: usize = 8_192;
/// Parts of the index that are read one after the other, before others have their turn.
const PARTS_READ_MAX: usize = 16;
/// When parts that the disk did not give are read again. Milliseconds.
const READ_AGAIN_MS: u64 = 1_000;
/// A timer carried out later than this after its time was late. Milliseconds.
const LATE_MS: u64 = 10;

/// Kinds of timers of messages that came back: from this one on, and how many. Part of the disk format.
const RETURN_KIND_MIN: u8 = 64;
const RETURN_KINDS: u16 = 192;

/// The times that messages of a shard's queues wait for.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    /// Applied. Made when there is something in it.
    pub(super) timers: Option<Box<Timers>>,
    /// Carried out, by queue: their ends are recorded behind what the queue records next.
    carried_out: BTreeMap<PartitionId, Vec<TimerId>>,
    /// The index wants parts of it, as far as it was asked.
    wants: bool,
    /// A reader's thread reads parts.
    reading: bool,
    /// No part is read before. Wall time, milliseconds.
    read_again_ms: u64,
    /// Parts that can be read nowhere are made good.
    pub(super) repair: Option<Repair>,
    /// How often that was begun.
    pub(super) repairs: u64,
    /// Records were applied: there may be something to do.
    pub(crate) applied: bool,
    /// Timers that were carried out late.
    late: u64,
}

/// How many timers there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DelayCounts {
    pub(crate) pending: u64,
    pub(crate) resident: u64,
    pub(crate) late: u64,
}

/// When a message that is committed at `time_ms` is to be delivered, if it waits here until then.
pub(crate) fn parked_until(envelope: &Envelope, time_ms: TimestampMs) -> Option<u64> {
    let at_ms = u64::try_from(envelope.deliver_at?).ok()?;
    (envelope.count == 1 && at_ms > beyond_ms(time_ms)).then_some(at_ms)
}

/// What is later than this waits here, as of a frame's time.
pub(crate) fn beyond_ms(time_ms: TimestampMs) -> u64 {
    u64::try_from(time_ms).unwrap_or(0).saturating_add(PARK_AHEAD_MS)
}

/// The kind of the timer of a message that has this behind it. Each return has its own, round and round: a timer whose end was not recorded, or
/// whose message was called before its time, must not be taken for that of a later return.
pub(crate) fn kind_of(tally: Tally) -> Kind {
    match tally.returned {
        0 => Kind::DELIVER,
        // Below 192.
        returned => Kind(RETURN_KIND_MIN + (returned % RETURN_KINDS) as u8),
    }
}

/// Whether a timer of that kind is the one that such a message waits for. Once the kind did not say of which return it is.
fn is_meant(kind: Kind, tally: Tally) -> bool {
    kind == Kind::RETRY || kind == kind_of(tally)
}

/// The timer of a message of a queue.
pub(crate) fn timer_of(queue: PartitionId, offset: u64, deadline_ms: u64, kind: Kind) -> TimerId {
    TimerId { deadline_ms, kind, key: TimerKey { object: queue.0, item: offset } }
}

impl Delays {
    /// A message waits, as of a frame of that time.
    pub(crate) fn insert(&mut self, id: TimerId, time_ms: TimestampMs) {
        self.timers.get_or_insert_default().insert(id, time_ms);
    }

    /// Applies a record.
    pub(crate) fn apply(&mut self, record: &[u8], time_ms: TimestampMs) -> Result<(), String> {
        self.applied = true;
        self.timers.get_or_insert_default().apply(record, time_ms)
    }

    /// A chunk of a checkpoint.
    pub(crate) fn load_chunk(&mut self, id: &[u8], chunk: &[u8]) -> Result<(), String> {
        self.timers.get_or_insert_default().load_chunk(id, chunk)
    }

    /// Chunks for a checkpoint, and its number for [`Delays::saved`]. Parts that are on disk are not among them, even of `all`.
    pub(crate) fn take_changed_chunks(&mut self, all: bool) -> (u64, Vec<(Bytes, Option<Bytes>)>) {
        let Some(timers) = &mut self.timers else { return (0, Vec::new()) };
        if all {
            timers.change_all_chunks();
        }
        let changed = timers.take_changed_chunks();
        self.look();
        changed
    }

    /// All timers that are pending, see [`Timers::pending_ids`].
    pub(crate) fn pending_ids(
        &self,
        read: &mut dyn FnMut(&Bytes) -> Result<Bytes, String>,
    ) -> Result<BTreeSet<TimerId>, String> {
        self.timers.as_ref().map_or_else(|| Ok(BTreeSet::new()), |timers| timers.pending_ids(read))
    }

    /// A checkpoint is on disk.
    pub(crate) fn saved(&mut self, checkpoint: u64) {
        if let Some(timers) = &mut self.timers {
            timers.saved(checkpoint);
            // Parts may have waited for it.
            self.look();
        }
    }

    /// Whether so much is in memory only that a checkpoint is due.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.timers.as_ref().is_some_and(|timers| timers.wants_checkpoint())
    }

    /// There is a new writer: what was proposed is void.
    pub(crate) fn take_writer(&mut self) {
        self.carried_out.clear();
        self.repair = None;
        if let Some(timers) = &mut self.timers {
            timers.reset_tail();
        }
        // The parts that were being made good are wanted again.
        self.look();
    }

    pub(crate) fn counts(&self) -> DelayCounts {
        let of = |timers: &Timers| (timers.pending(), timers.resident() as u64);
        let (pending, resident) = self.timers.as_deref().map(of).unwrap_or_default();
        DelayCounts { pending, resident, late: self.late }
    }

    /// When to look at the index next. Wall time, milliseconds.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let timers = self.timers.as_deref()?;
        let due = timers.next_ms().filter(|_| timers.handed() < HANDED_MAX);
        due.into_iter().chain((self.wants && !self.reading).then_some(self.read_again_ms)).min()
    }

    /// Takes timers that are due.
    fn take_due(&mut self, now_ms: u64) -> Vec<TimerId> {
        let mut due = Vec::new();
        let Some(timers) = &mut self.timers else { return due };
        let limit = DUE_MAX.min(HANDED_MAX.saturating_sub(timers.handed()));
        timers.due(now_ms.cast_signed(), limit, &mut due);
        self.late += due.iter().filter(|id| now_ms > id.deadline_ms.saturating_add(LATE_MS)).count() as u64;
        self.look();
        due
    }

    /// Asks the index what it wants, but for what is being made good.
    pub(super) fn look(&mut self) {
        self.wants = !self.wanted(1).is_empty();
    }

    fn wanted(&self, limit: usize) -> Vec<Bytes> {
        let Some(timers) = &self.timers else { return Vec::new() };
        let Some(repair) = &self.repair else { return timers.wanted(limit) };
        let mut wanted = timers.wanted(usize::MAX);
        wanted.retain(|part| !repair.covers(part));
        wanted.truncate(limit);
        wanted
    }

    /// What is being made good is left as it is: a little later its parts are read again, and then it begins again.
    pub(super) fn repair_again(&mut self, now_ms: u64) {
        self.repair = None;
        self.read_again_ms = now_ms + READ_AGAIN_MS;
        self.look();
    }

    /// The part to be read next. What is in memory yet is taken from there.
    fn next_part(&mut self, now_ms: u64) -> Option<Bytes> {
        self.timers.as_mut()?.advance(now_ms.cast_signed());
        let timers = self.timers.as_deref()?;
        self.wanted(usize::MAX).into_iter().find(|part| !timers.is_unconfirmed(part))
    }

    /// The queues of which timers were carried out.
    pub(crate) fn carried_out_of(&self) -> impl Iterator<Item = PartitionId> {
        self.carried_out.keys().copied()
    }

    /// Whether timers of a queue were carried out whose ends are to be recorded.
    pub(crate) fn has_ends(&self, queue: PartitionId) -> bool {
        self.carried_out.contains_key(&queue)
    }
}

impl Queues {
    /// Carries out the timers that are due: messages that were parked are ready.
    pub(crate) fn carry_out_timers(&mut self, now_ms: u64) {
        for id in self.delays.take_due(now_ms) {
            let queue = PartitionId(id.key.object);
            if let Some(host) = self.hosts.get_mut(&queue) {
                // One that has no writer gets one, and then this comes again.
                _ = host.lease.unpark(id.key.item, 1, |tally| is_meant(id.kind, tally));
            }
            self.delays.carried_out.entry(queue).or_default().push(id);
        }
        let queues: Vec<_> = self.delays.carried_out_of().collect();
        for queue in queues {
            self.schedule(queue);
            self.touch(queue);
        }
    }
}

impl ShardState {
    /// When the index is to be looked at. Without a writer no timer is carried out, however late: the next insertion looks.
    fn next_timers_ms(&self) -> Option<u64> {
        self.queues.delays.next_ms().filter(|_| self.proposes())
    }

    /// When something is due in the queues. Wall time, milliseconds.
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        self.queues.next_deadline_ms().into_iter().chain(self.next_timers_ms()).min()
    }
}

impl Shard {
    /// Records that timers of a queue were carried out, behind what they did.
    pub(crate) fn record_ends(&self, state: &mut ShardState, queue: PartitionId) {
        if !state.proposes() {
            return;
        }
        let Some(ended) = state.queues.delays.carried_out.remove(&queue) else { return };
        for ended in ended.chunks(ENDS_PER_RECORD) {
            let ops: Vec<_> = ended.iter().map(|id| TimerOp::Remove(*id)).collect();
            if self.propose_timers(state, &ops).is_none() {
                return;
            }
        }
    }

    /// Proposes a record of the index, and gives its ticket. The writer is lost where it is refused.
    pub(super) fn propose_timers(&self, state: &mut ShardState, ops: &[TimerOp]) -> Option<u64> {
        let record = BrokerRecord::Timers { record: polylogue_timer::record(ops) };
        let proposed = self.propose_own(state, BROKER_PARTITION, Bytes::from(record.encode()), Urgency::Lazy);
        // The index counts on what it gave out: its tail is thrown away with the writer.
        state.lost |= proposed.is_err();
        proposed.ok()
    }

    /// Timers of queues that are gone end at once.
    pub(crate) fn record_ends_of_the_gone(&self, state: &mut ShardState) {
        let Queues { hosts, delays, .. } = &state.queues;
        let gone: Vec<_> = delays.carried_out_of().filter(|queue| !hosts.contains_key(queue)).collect();
        gone.into_iter().for_each(|queue| self.record_ends(state, queue));
    }
}

impl Inner {
    /// Has the parts of a shard's index read that it wants, on a reader's thread.
    pub(crate) fn read_timers(&self, shard: &Arc<Shard>) {
        let now_ms = super::lease_ms(self.env.clock.now_ms());
        {
            let mut state = shard.state.lock();
            let delays = &mut state.queues.delays;
            if !delays.wants || delays.reading || now_ms < delays.read_again_ms {
                return;
            }
            delays.reading = true;
        }
        let Some(inner) = self.this.upgrade() else { return };
        let job = {
            let shard = shard.clone();
            Box::new(move || {
                inner.read_parts(&shard);
                inner.run_timers(&shard);
            })
        };
        if self.readers.submit(job).is_err() {
            // Too many wait, or the broker stops: there is another time.
            let mut state = shard.state.lock();
            (state.queues.delays.reading, state.queues.delays.read_again_ms) = (false, now_ms + READ_AGAIN_MS);
        }
    }

    /// Reads parts one after the other. Reads the disk.
    fn read_parts(&self, shard: &Arc<Shard>) {
        let Some(checkpoints) = &shard.checkpoints else { return };
        let now_ms = super::lease_ms(self.env.clock.now_ms());
        let mut lost = false;
        for _ in 0..PARTS_READ_MAX {
            let Some(part) = shard.state.lock().queues.delays.next_part(now_ms) else { break };
            let read = checkpoints.read(&timers_key(&part));
            let mut state = shard.state.lock();
            let delays = &mut state.queues.delays;
            let loaded = match (read, &mut delays.timers) {
                (Ok(Some(chunk)), Some(timers)) => timers.load_part(&part, &chunk).map_err(|why| (true, why)),
                (Ok(None), _) => Err((true, "it is not in the checkpoint".to_owned())),
                (Err(e), _) => Err((e.kind == LogErrorKind::Damaged, e.to_string())),
                (_, None) => break,
            };
            // It may have gone meanwhile.
            let Err((damaged, why)) = loaded else { continue };
            if !delays.wanted(usize::MAX).contains(&part) {
                continue;
            }
            lost |= damaged;
            delays.read_again_ms = now_ms + READ_AGAIN_MS;
            drop(state);
            self.gauges.background_failed("timers", &format!("a part of the index of shard {}: {why}", shard.id));
            break;
        }
        if lost {
            self.begin_repair(shard, checkpoints);
        }
        let mut state = shard.state.lock();
        state.queues.delays.reading = false;
        state.queues.delays.look();
    }

    /// Carries out what is due in a shard, and what follows from it. Call it without holding a lock.
    pub(crate) fn run_timers(&self, shard: &Arc<Shard>) {
        let now_ms = super::lease_ms(self.env.clock.now_ms());
        {
            let mut state = shard.state.lock();
            if state.queues.delays.timers.is_none() {
                return;
            }
            if state.proposes() {
                state.queues.carry_out_timers(now_ms);
                shard.record_ends_of_the_gone(&mut state);
            }
        }
        self.read_timers(shard);
        self.repair_timers(shard);
        self.pump(shard);
    }

    /// Whether a shard's index is to be looked at.
    pub(crate) fn timers_due(&self, shard: &Shard, now_ms: u64) -> bool {
        let state = shard.state.lock();
        let repairs = state.queues.delays.repair.is_some() && state.proposes();
        !self.stopping.load(Ordering::Relaxed) && (repairs || state.next_timers_ms().is_some_and(|at| at <= now_ms))
    }
}
