//! Repair of unreadable parts of the timer index: their timers are rebuilt from the log.
//!
//! ```text
//!   a part cannot be read ──> which others cannot be? ──> all parked messages: their envelopes, a piece at a time
//!                                                              │ those whose time is among the lost ones
//!                                        given up <──committed─┴─ inserted again, by a record
//! ```
//!
//! A part is given up when its timers are committed again. A crash at any point repeats the repair or finds it done; so does the loss of the writer.
//! Until then due timers wait. A returned message has no time in its envelope, and the envelope of an unreadable message is unknown: these are due
//! immediately.

use crate::broker::Inner;
use crate::checkpoint::timers_key;
use crate::queues::delays::{kind_of, timer_of};
use crate::queues::lease_ms;
use crate::shard::{Shard, ShardState};
use bytes::Bytes;
use polylogue_lease::Tally;
use polylogue_log::ErrorKind as LogErrorKind;
use polylogue_log::checkpoint::CheckpointStore;
use polylogue_log::store::Lookup;
use polylogue_timer::TimerOp;
use polylogue_types::{Offset, PartitionId};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Messages per piece.
const PIECE_MESSAGES: u64 = 1_024;

/// A repair in progress.
#[derive(Debug)]
pub(crate) struct Repair {
    /// Identifies the repair in reader threads: an abandoned repair may still be reading when the next has begun.
    number: u64,
    /// The range of times that each part held.
    lost: BTreeMap<Bytes, Range<u64>>,
    /// Queues still to be read, with the next offset of the first one.
    queues: VecDeque<PartitionId>,
    from: u64,
    /// A reader thread is reading messages.
    busy: bool,
    /// The ticket of the last insertion.
    ticket: Option<u64>,
}

/// Messages whose envelopes are read.
struct Piece {
    queue: PartitionId,
    offsets: Range<u64>,
    /// The tally of each message.
    tally: Tally,
}

impl Repair {
    /// Returns whether a part is being repaired.
    pub(super) fn covers(&self, part: &Bytes) -> bool {
        self.lost.contains_key(part)
    }

    fn holds(&self, time_ms: u64) -> bool {
        self.lost.values().any(|times| times.contains(&time_ms))
    }
}

impl ShardState {
    /// Returns the repair with that number, unless it was abandoned.
    fn repair(&mut self, number: u64) -> Option<&mut Repair> {
        self.queues.delays.repair.as_mut().filter(|repair| repair.number == number)
    }

    /// Returns the next messages to read; `None` if the repair is done.
    fn next_piece(&mut self, number: u64) -> Option<Piece> {
        let repair = self.queues.delays.repair.as_mut().filter(|repair| repair.number == number)?;
        loop {
            let queue = *repair.queues.front()?;
            let host = self.queues.hosts.get(&queue);
            if let Some((offsets, tally)) = host.and_then(|h| h.lease.parked_from(repair.from, PIECE_MESSAGES)) {
                repair.from = offsets.end;
                return Some(Piece { queue, offsets, tally });
            }
            repair.queues.pop_front();
            repair.from = 0;
        }
    }

    /// Marks the end of a piece of that repair.
    fn piece_done(&mut self, number: u64) {
        if let Some(repair) = self.repair(number) {
            repair.busy = false;
        }
    }

    /// Gives up the parts whose timers are committed again.
    fn end_repair(&mut self) {
        // Without a writer the insertions may be void, and a failed ticket counts as settled too.
        if !self.proposes() {
            return;
        }
        let settled = self.settled;
        let delays = &mut self.queues.delays;
        let is_done = |repair: &mut Repair| {
            !repair.busy && repair.queues.is_empty() && repair.ticket.is_none_or(|ticket| ticket < settled)
        };
        let Some(repair) = delays.repair.take_if(is_done) else { return };
        if let Some(timers) = &mut delays.timers {
            repair.lost.keys().for_each(|part| timers.lose_part(part));
        }
        // Parts after these are needed now.
        delays.look();
    }
}

impl Inner {
    /// Finds all parts that cannot be read. Reads all parts from the disk, so that messages are read only once.
    pub(super) fn begin_repair(&self, shard: &Shard, checkpoints: &CheckpointStore) {
        let parts = {
            let state = shard.state.lock();
            let delays = &state.queues.delays;
            match &delays.timers {
                // One repair at a time: parts found meanwhile are found again.
                Some(timers) if delays.repair.is_none() => {
                    let mut parts = timers.parts();
                    parts.retain(|part| !timers.is_unconfirmed(part));
                    parts
                }
                _ => return,
            }
        };
        let is_lost = |part: &Bytes| match checkpoints.read(&timers_key(part)) {
            Ok(chunk) => chunk.is_none(),
            Err(e) => e.kind == LogErrorKind::Damaged,
        };
        let lost: Vec<_> = parts.into_iter().filter(is_lost).collect();
        let mut state = shard.state.lock();
        let queues = state.queues.hosts.keys().copied().collect();
        let delays = &mut state.queues.delays;
        let Some(timers) = delays.timers.as_deref() else { return };
        // Parts removed meanwhile are no longer needed.
        let spans = lost.into_iter().filter_map(|part| timers.span(&part).map(|times| (part, times)));
        let lost: BTreeMap<_, _> = spans.collect();
        if !lost.is_empty() {
            delays.repairs += 1;
            delays.repair = Some(Repair { number: delays.repairs, lost, queues, from: 0, busy: false, ticket: None });
        }
    }

    /// Does the next piece of a repair, on a reader thread.
    pub(super) fn repair_timers(&self, shard: &Arc<Shard>) {
        let number = {
            let mut state = shard.state.lock();
            state.end_repair();
            let delays = &mut state.queues.delays;
            let waits = delays.wants_checkpoint();
            let Some(repair) = delays.repair.as_mut().filter(|repair| !repair.busy && !waits) else { return };
            if repair.queues.is_empty() {
                return;
            }
            repair.busy = true;
            repair.number
        };
        let Some(inner) = self.this.upgrade() else { return };
        let job = {
            let shard = shard.clone();
            Box::new(move || {
                inner.repair_piece(&shard, number);
                // Wakes the timer if the repair restarts.
                inner.run_timers(&shard);
            })
        };
        if self.readers.submit(job).is_err() {
            shard.state.lock().piece_done(number);
        }
    }

    /// Reads some messages, and inserts the timers of those whose times were lost. Reads the disk.
    fn repair_piece(&self, shard: &Shard, number: u64) {
        let now_ms = lease_ms(self.env.clock.now_ms());
        let next = shard.state.lock().next_piece(number);
        let Some(piece) = next else { return shard.state.lock().piece_done(number) };
        let mut found = Vec::new();
        for offset in piece.offsets.clone() {
            let at_ms = match piece.tally.returned {
                0 => self.time_of(shard, piece.queue, offset, now_ms),
                _ => Some(now_ms),
            };
            let Some(at_ms) = at_ms else {
                let mut state = shard.state.lock();
                if state.repair(number).is_some() {
                    state.queues.delays.repair_again(now_ms);
                }
                return;
            };
            found.push(timer_of(piece.queue, offset, at_ms, kind_of(piece.tally)));
        }
        let mut state = shard.state.lock();
        state.piece_done(number);
        let Some(repair) = state.repair(number) else { return };
        let due_at_once = |at_ms: u64| at_ms <= now_ms;
        found.retain(|id| due_at_once(id.deadline_ms) || repair.holds(id.deadline_ms));
        if found.is_empty() {
            return;
        }
        let ops: Vec<_> = found.into_iter().map(TimerOp::Insert).collect();
        let ticket = shard.propose_timers(&mut state, &ops);
        let delays = &mut state.queues.delays;
        match (ticket, &mut delays.repair) {
            (Some(ticket), Some(repair)) => repair.ticket = Some(ticket),
            // These messages were skipped.
            _ => delays.repair_again(now_ms),
        }
    }

    /// Returns the delivery time in a message's envelope; `None` if the disk error may be temporary.
    fn time_of(&self, shard: &Shard, queue: PartitionId, offset: u64, now_ms: u64) -> Option<u64> {
        match shard.store.entry_at(queue, Offset(offset)).and_then(Lookup::wait) {
            Ok(entry) => {
                let at_ms = entry.envelope.and_then(|envelope| u64::try_from(envelope.deliver_at?).ok());
                Some(at_ms.unwrap_or(now_ms).min(polylogue_timer::DEADLINE_MS_MAX))
            }
            Err(e) => {
                let what = format!("the time of message {offset} of queue {queue}: {e}");
                self.gauges.background_failed("timers", &what);
                matches!(e.kind, LogErrorKind::Damaged | LogErrorKind::OutOfRange).then_some(now_ms)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader thread of an abandoned repair took the next repair's piece for done: its parts were given up while other threads still looked for
    /// their timers.
    #[test]
    fn who_comes_back_for_a_repair_that_was_left_changes_nothing_of_the_next() {
        let mut state = ShardState { role: polylogue_replicate::Role::Writer, ..ShardState::default() };
        let queues = VecDeque::from([PartitionId(1)]);
        let repair = Repair { number: 2, lost: BTreeMap::new(), queues, from: 0, busy: true, ticket: None };
        state.queues.delays.repair = Some(repair);
        assert!(state.next_piece(1).is_none());
        state.piece_done(1);
        let repair = state.queues.delays.repair.as_ref().unwrap();
        assert_eq!((repair.busy, repair.queues.len()), (true, 1));
        state.piece_done(2);
        state.end_repair();
        assert!(state.queues.delays.repair.is_some(), "it has a queue to look at");
        assert!(state.next_piece(2).is_none());
        state.end_repair();
        assert!(state.queues.delays.repair.is_none());
    }
}
