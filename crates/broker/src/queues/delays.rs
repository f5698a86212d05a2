//! Delayed messages: parked in their queues, and indexed by time per shard.
//!
//! ```text
//!   entry with a time ─┐ committed                      parts of the index: chunks of the checkpoint, not read at a start
//!   return with a wait ─┴──────────> Timers ───────────────┐ wanted, as their time comes near
//!                                      │ due               └──> a reader's thread
//!            lease engine: parked ──> ready
//!                                      └──> record of the queue, then the record that the timer was carried out
//! ```
//!
//! A message is parked if its time is more than [`PARK_AHEAD_MS`] after its frame's: shorter delays are kept in memory anyway. The log alone
//! determines which messages these are, so no record starts a timer. The end of a timer is recorded after its effect. After a crash in between it is
//! carried out again, which has no effect on messages that are not parked, nor on those that were returned meanwhile and wait for another time: the
//! kind of a timer identifies the return. The timer of a deleted message or queue ends without effect.

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

/// Messages whose time is further ahead than this at their commit are parked. Part of the log's semantics: every replay must get the same result.
/// Milliseconds.
pub(crate) const PARK_AHEAD_MS: u64 = 60_000;
/// Timers that one pass carries out at most; then other work has its turn.
const DUE_MAX: usize = 4_096;
/// Timers that are carried out but not recorded as ended, at most. One takes about 100 bytes.
const HANDED_MAX: usize = 1 << 16;
/// Ends of timers in one record.
const ENDS_PER_RECORD: usize = 8_192;
/// Parts of the index that are read in a row before other work has its turn.
const PARTS_READ_MAX: usize = 16;
/// Delay before parts that could not be read from disk are read again. Milliseconds.
const READ_AGAIN_MS: u64 = 1_000;
/// A timer carried out later than this after its time counts as late. Milliseconds.
const LATE_MS: u64 = 10;

/// Kinds of timers of returned messages: the first one, and their number. Part of the disk format.
const RETURN_KIND_MIN: u8 = 64;
const RETURN_KINDS: u16 = 192;

/// The timers of a shard's queues.
#[derive(Debug, Default)]
pub(crate) struct Delays {
    /// Applied. Created with the first timer.
    pub(super) timers: Option<Box<Timers>>,
    /// Timers carried out, by queue: their ends are recorded after the queue's next record.
    carried_out: BTreeMap<PartitionId, Vec<TimerId>>,
    /// The index needs parts of it, as of the last check.
    wants: bool,
    /// A reader thread is reading parts.
    reading: bool,
    /// No part is read before this time. Wall time, milliseconds.
    read_again_ms: u64,
    /// The repair of unreadable parts that is in progress.
    pub(super) repair: Option<Repair>,
    /// Number of repairs begun.
    pub(super) repairs: u64,
    /// Records were applied: timers may be due.
    pub(crate) applied: bool,
    /// Number of timers that were carried out late.
    late: u64,
}

/// Counts of timers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DelayCounts {
    pub(crate) pending: u64,
    pub(crate) resident: u64,
    pub(crate) late: u64,
}

/// Returns the delivery time of a message committed at `time_ms` if it is parked until then.
pub(crate) fn parked_until(envelope: &Envelope, time_ms: TimestampMs) -> Option<u64> {
    let at_ms = u64::try_from(envelope.deliver_at?).ok()?;
    (envelope.count == 1 && at_ms > beyond_ms(time_ms)).then_some(at_ms)
}

/// Returns the latest time that is not parked, for a frame's time.
pub(crate) fn beyond_ms(time_ms: TimestampMs) -> u64 {
    u64::try_from(time_ms).unwrap_or(0).saturating_add(PARK_AHEAD_MS)
}

/// Returns the kind of the timer of a message with this tally. Each return has its own, in rotation: a timer whose end was not recorded, or whose
/// message was unparked early, must not be taken for that of a later return.
pub(crate) fn kind_of(tally: Tally) -> Kind {
    match tally.returned {
        0 => Kind::DELIVER,
        // Below 192.
        returned => Kind(RETURN_KIND_MIN + (returned % RETURN_KINDS) as u8),
    }
}

/// Returns whether a timer of that kind is the one that the message waits for. Earlier versions' kinds did not identify the return.
fn is_meant(kind: Kind, tally: Tally) -> bool {
    kind == Kind::RETRY || kind == kind_of(tally)
}

/// Returns the id of the timer of a message.
pub(crate) fn timer_of(queue: PartitionId, offset: u64, deadline_ms: u64, kind: Kind) -> TimerId {
    TimerId { deadline_ms, kind, key: TimerKey { object: queue.0, item: offset } }
}

impl Delays {
    /// Adds a timer, at a frame's time.
    pub(crate) fn insert(&mut self, id: TimerId, time_ms: TimestampMs) {
        self.timers.get_or_insert_default().insert(id, time_ms);
    }

    /// Applies a record.
    pub(crate) fn apply(&mut self, record: &[u8], time_ms: TimestampMs) -> Result<(), String> {
        self.applied = true;
        self.timers.get_or_insert_default().apply(record, time_ms)
    }

    /// Loads a chunk of a checkpoint.
    pub(crate) fn load_chunk(&mut self, id: &[u8], chunk: &[u8]) -> Result<(), String> {
        self.timers.get_or_insert_default().load_chunk(id, chunk)
    }

    /// Returns chunks for a checkpoint, and its number for [`Delays::saved`]. Parts on disk are not included, even with `all`.
    pub(crate) fn take_changed_chunks(&mut self, all: bool) -> (u64, Vec<(Bytes, Option<Bytes>)>) {
        let Some(timers) = &mut self.timers else { return (0, Vec::new()) };
        if all {
            timers.change_all_chunks();
        }
        let changed = timers.take_changed_chunks();
        self.look();
        changed
    }

    /// Returns all pending timers, see [`Timers::pending_ids`].
    pub(crate) fn pending_ids(
        &self,
        read: &mut dyn FnMut(&Bytes) -> Result<Bytes, String>,
    ) -> Result<BTreeSet<TimerId>, String> {
        self.timers.as_ref().map_or_else(|| Ok(BTreeSet::new()), |timers| timers.pending_ids(read))
    }

    /// Records that a checkpoint is on disk.
    pub(crate) fn saved(&mut self, checkpoint: u64) {
        if let Some(timers) = &mut self.timers {
            timers.saved(checkpoint);
            // Parts may have waited for it.
            self.look();
        }
    }

    /// Returns whether enough timers are in memory only that a checkpoint is due.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.timers.as_ref().is_some_and(|timers| timers.wants_checkpoint())
    }

    /// Begins a new term: proposals are void.
    pub(crate) fn take_writer(&mut self) {
        self.carried_out.clear();
        self.repair = None;
        if let Some(timers) = &mut self.timers {
            timers.reset_tail();
        }
        // The parts under repair are needed again.
        self.look();
    }

    pub(crate) fn counts(&self) -> DelayCounts {
        let of = |timers: &Timers| (timers.pending(), timers.resident() as u64);
        let (pending, resident) = self.timers.as_deref().map(of).unwrap_or_default();
        DelayCounts { pending, resident, late: self.late }
    }

    /// Returns when to check the index next. Wall time, milliseconds.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let timers = self.timers.as_deref()?;
        let due = timers.next_ms().filter(|_| timers.handed() < HANDED_MAX);
        due.into_iter().chain((self.wants && !self.reading).then_some(self.read_again_ms)).min()
    }

    /// Takes due timers.
    fn take_due(&mut self, now_ms: u64) -> Vec<TimerId> {
        let mut due = Vec::new();
        let Some(timers) = &mut self.timers else { return due };
        let limit = DUE_MAX.min(HANDED_MAX.saturating_sub(timers.handed()));
        timers.due(now_ms.cast_signed(), limit, &mut due);
        self.late += due.iter().filter(|id| now_ms > id.deadline_ms.saturating_add(LATE_MS)).count() as u64;
        self.look();
        due
    }

    /// Updates what the index needs, without the parts under repair.
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

    /// Abandons the repair: its parts are read again a little later, and then it restarts.
    pub(super) fn repair_again(&mut self, now_ms: u64) {
        self.repair = None;
        self.read_again_ms = now_ms + READ_AGAIN_MS;
        self.look();
    }

    /// Returns the next part to read. Parts that are still in memory are taken from there.
    fn next_part(&mut self, now_ms: u64) -> Option<Bytes> {
        self.timers.as_mut()?.advance(now_ms.cast_signed());
        let timers = self.timers.as_deref()?;
        self.wanted(usize::MAX).into_iter().find(|part| !timers.is_unconfirmed(part))
    }

    /// Returns the queues with timers that were carried out.
    pub(crate) fn carried_out_of(&self) -> impl Iterator<Item = PartitionId> {
        self.carried_out.keys().copied()
    }

    /// Returns whether a queue has timers carried out whose ends are to be recorded.
    pub(crate) fn has_ends(&self, queue: PartitionId) -> bool {
        self.carried_out.contains_key(&queue)
    }
}

impl Queues {
    /// Carries out due timers: their parked messages become ready.
    pub(crate) fn carry_out_timers(&mut self, now_ms: u64) {
        for id in self.delays.take_due(now_ms) {
            let queue = PartitionId(id.key.object);
            if let Some(host) = self.hosts.get_mut(&queue) {
                // A queue without a writer gets one, and then this is repeated.
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
    /// Returns when to check the index. Without a writer no timer is carried out, however late: the next insertion checks.
    fn next_timers_ms(&self) -> Option<u64> {
        self.queues.delays.next_ms().filter(|_| self.proposes())
    }

    /// Returns the next deadline of the queues. Wall time, milliseconds.
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        self.queues.next_deadline_ms().into_iter().chain(self.next_timers_ms()).min()
    }
}

impl Shard {
    /// Proposes the ends of a queue's timers, after their effects.
    pub(crate) fn record_ends(&self, state: &mut ShardState, queue: PartitionId) {
        if !state.proposes() {
            return;
        }
        let Some(mut ended) = state.queues.delays.carried_out.remove(&queue) else { return };
        while !ended.is_empty() {
            let count = ended.len().min(ENDS_PER_RECORD);
            let ops: Vec<_> = ended.iter().take(count).map(|id| TimerOp::Remove(*id)).collect();
            if self.propose_timers(state, &ops).is_none() {
                // They are proposed again with the queue's next record.
                state.queues.delays.carried_out.insert(queue, ended);
                return;
            }
            ended.drain(..count);
        }
    }

    /// Proposes a record of the index, and returns its ticket; `None` if the log refuses it. The index changes when the record is applied, so it
    /// can be proposed again.
    pub(super) fn propose_timers(&self, state: &mut ShardState, ops: &[TimerOp]) -> Option<u64> {
        let record = BrokerRecord::Timers { record: polylogue_timer::record(ops) };
        let proposed = self.propose_own(state, BROKER_PARTITION, Bytes::from(record.encode()), Urgency::Lazy);
        proposed.ok()
    }

    /// Ends the timers of deleted queues immediately.
    pub(crate) fn record_ends_of_the_gone(&self, state: &mut ShardState) {
        let Queues { hosts, delays, .. } = &state.queues;
        let gone: Vec<_> = delays.carried_out_of().filter(|queue| !hosts.contains_key(queue)).collect();
        gone.into_iter().for_each(|queue| self.record_ends(state, queue));
    }
}

impl Inner {
    /// Reads the parts that a shard's index needs, on a reader thread.
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
            // The readers' queue is full or the broker stops: retried later.
            let mut state = shard.state.lock();
            (state.queues.delays.reading, state.queues.delays.read_again_ms) = (false, now_ms + READ_AGAIN_MS);
        }
    }

    /// Reads parts one by one. Reads the disk.
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
            // The part may be gone meanwhile.
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

    /// Carries out what is due in a shard, and its consequences. Must not be called with a lock held.
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

    /// Returns whether a shard's index is to be checked.
    pub(crate) fn timers_due(&self, shard: &Shard, now_ms: u64) -> bool {
        let state = shard.state.lock();
        let repairs = state.queues.delays.repair.is_some() && state.proposes();
        !self.stopping.load(Ordering::Relaxed) && (repairs || state.next_timers_ms().is_some_and(|at| at <= now_ms))
    }
}
