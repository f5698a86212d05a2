//! The bounded queue in front of the writer, and the condition that the writing pair sleeps on.

use super::config::{Config, Durability};
use super::proposal::{Draft, Proposal, Refused, Urgency};
use super::spares::Spares;
use super::threads::WRITERS;
use crate::error::ErrorKind;
use crate::frame::Kind;
use crate::frame::codec::HEADERS_BYTES;
use parking_lot::{Condvar, Mutex};
use polylogue_env::Clock;
use polylogue_record::crc;
use polylogue_record::envelope::Body;
use polylogue_types::Term;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Room that is left even by reserve proposals, for votes, marks and other records of the journal itself. Bytes.
pub(crate) const CONTROL_BYTES: u64 = 16 << 10;
const NS_PER_US: u64 = 1_000;
/// While a flush runs, no more than so much waits to be written until it is over: then it goes with the next one by a single write,
/// and so does what comes until then. More is written beside the flush, for which the next one need not wait. Bytes.
pub(crate) const GATHERED_BYTES_MAX: usize = 64 << 10;

/// A proposal with what it takes.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) proposal: Proposal,
    /// Native bytes.
    pub(crate) native: usize,
    /// Bytes of its envelopes, or of its body.
    pub(crate) table: usize,
    /// One of its entries is a reference, hence all have to be in one frame.
    pub(crate) has_ref: bool,
}

/// How much the files can still take; written by the writer and the background step, read at the door.
#[derive(Debug, Default)]
pub(crate) struct RoomGauge {
    /// Left in the current file.
    pub(crate) current: AtomicU64,
    /// In the files that wait.
    pub(crate) spare: AtomicU64,
    /// Free on the disk.
    pub(crate) disk: AtomicU64,
    /// The current file, or the one that is ready, has been written all over before.
    pub(crate) current_written: AtomicBool,
    pub(crate) ready_written: AtomicBool,
    pub(crate) full: AtomicBool,
}

impl RoomGauge {
    /// Takes note of what files wait.
    pub(crate) fn see(&self, spares: &Spares) {
        self.spare.store(spares.room(), Ordering::Relaxed);
        self.ready_written.store(spares.is_ready_written(), Ordering::Relaxed);
    }

    pub(crate) fn in_files(&self) -> u64 {
        self.current.load(Ordering::Relaxed).saturating_add(self.spare.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
struct State {
    items: Vec<Queued>,
    bytes: usize,
    /// Something in the queue starts a flush.
    urgent: bool,
    /// Something that starts a flush is committed by being written, and waits for no flush.
    unheld: bool,
    /// Something in the queue is committed by a flush.
    held: bool,
    /// A flush is running.
    flushing: bool,
    /// When the first of the queued proposals came, if it may wait.
    lazy_since_ns: u64,
    /// When the first of those came that start a flush.
    urgent_since_ns: u64,
    /// The term whose proposals are taken.
    epoch: Option<Term>,
    /// A flush is due that no proposal stands for (an engine's append, for one).
    kicked: bool,
    stopped: bool,
    /// Threads of the pair that sleep.
    sleepers: usize,
    /// The deadline that one of them watches, 0 for none: the others need not wake up for it, or for a later one.
    watched_ns: u64,
    refused: u64,
}

/// By how much the queue's bounds are higher for reserve proposals: records that go on when there is no room for payload must not
/// be refused because payload has filled the queue.
const RESERVE_FACTOR: usize = 2;

impl State {
    /// Takes in one more. Returns whether a thread of the pair has to be woken. One that is awake looks into the queue before it sleeps; so only
    /// something urgent wakes one while the other is: the other one would do nothing but wait for the same time.
    fn push(&mut self, queued: Queued, own: Durability, clock: &dyn Clock) -> bool {
        let urgent = queued.proposal.urgency == Urgency::Urgent;
        let (first, was_due) = (self.items.is_empty(), self.is_due());
        if first {
            self.lazy_since_ns = if urgent { u64::MAX } else { clock.monotonic_ns() };
        }
        if urgent && !self.urgent {
            self.urgent_since_ns = clock.monotonic_ns();
        }
        self.urgent |= urgent;
        let unheld = queued.proposal.class.unwrap_or(own) == Durability::Async;
        self.unheld |= urgent && unheld;
        self.held |= !unheld;
        let told_later = queued.proposal.prompt && unheld;
        self.bytes += queued.native + queued.table;
        self.items.push(queued);
        let becomes_due = !was_due && self.is_due();
        !told_later && ((becomes_due && self.sleepers > 0) || (first && !urgent && self.sleepers >= WRITERS))
    }

    /// Whether something is to be written at once.
    fn is_due(&self) -> bool {
        self.urgent && (!self.flushing || self.unheld || self.bytes > GATHERED_BYTES_MAX)
    }

    fn is_full(&self, proposal: &Proposal, cost: usize, config: &Config) -> bool {
        let factor = if proposal.reserve { RESERVE_FACTOR } else { 1 };
        let bytes_max = config.queue_bytes_max.saturating_mul(factor);
        self.items.len() >= config.queue_count_max.saturating_mul(factor)
            || (!self.items.is_empty() && self.bytes + cost > bytes_max)
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    work: Condvar,
    pub(crate) room: RoomGauge,
}

/// What a sleeping thread of the pair woke up for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wake {
    /// There is something to write or to flush.
    Work,
    /// The journal has ended.
    Stopped,
}

/// Since when something has waited that was taken out of the queue. Monotonic nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since {
    /// The oldest of what may wait, or now.
    pub(crate) oldest_ns: u64,
    /// The oldest of what starts a flush, if there is any.
    pub(crate) urgent_ns: Option<u64>,
}

impl Queue {
    /// See [`Journal::try_propose`](super::Journal::try_propose).
    pub(crate) fn offer(&self, proposal: Proposal, config: &Config, clock: &dyn Clock) -> Result<(), Refused> {
        let queued = measure(proposal, config).map_err(|p| self.refuse(ErrorKind::Invalid, p))?;
        let cost = queued.native + queued.table;
        let mut state = self.state.lock();
        let refusal = if state.stopped {
            Some(ErrorKind::Stopped)
        } else if state.epoch != Some(queued.proposal.epoch) {
            Some(ErrorKind::Fenced)
        } else if state.is_full(&queued.proposal, cost, config) {
            Some(ErrorKind::Busy)
        } else if self.no_room(&queued, state.bytes, config) {
            Some(ErrorKind::StorageFull)
        } else {
            None
        };
        if let Some(kind) = refusal {
            drop(state);
            return Err(self.refuse(kind, queued.proposal));
        }
        let tell = state.push(queued, config.durability, clock);
        drop(state);
        if tell {
            self.work.notify_one();
        }
        Ok(())
    }

    fn refuse(&self, kind: ErrorKind, proposal: Proposal) -> Refused {
        self.state.lock().refused += 1;
        Refused { kind, proposal: Box::new(proposal) }
    }

    fn no_room(&self, queued: &Queued, waiting: usize, config: &Config) -> bool {
        if !self.room.full.load(Ordering::Relaxed) {
            return false;
        }
        let kept = if queued.proposal.reserve { CONTROL_BYTES } else { config.reserve_bytes };
        // Frames have headers and are aligned; a generous allowance for each proposal is enough.
        let need = (waiting + queued.native + queued.table + 4 * HEADERS_BYTES) as u64;
        self.room.in_files() < kept.saturating_add(need)
    }

    /// Moves what is queued into `into`, which is empty, if it is due: something urgent, or lazy proposals that have
    /// waited long enough, or anything at all when `all`.
    pub(crate) fn take(&self, into: &mut Vec<Queued>, all: bool, now_ns: u64, config: &Config) -> Option<Since> {
        let mut state = self.state.lock();
        if state.items.is_empty() || !(all || state.urgent || now_ns >= state.lazy_due(config)) {
            return None;
        }
        std::mem::swap(&mut state.items, into);
        (state.bytes, state.unheld, state.held) = (0, false, false);
        let urgent_ns = std::mem::take(&mut state.urgent).then_some(state.urgent_since_ns);
        Some(Since { oldest_ns: now_ns.min(state.lazy_since_ns), urgent_ns })
    }

    /// Whether something that starts a flush waits, and all that waits is at most so much.
    pub(crate) fn is_urgent_within(&self, bytes_max: usize) -> bool {
        let state = self.state.lock();
        state.urgent && state.bytes <= bytes_max
    }

    /// The bytes of all that waits, if it is to be written now, needs no flush and is at most so much.
    pub(crate) fn unheld_within(&self, bytes_max: usize) -> Option<usize> {
        let state = self.state.lock();
        (state.unheld && !state.held && state.bytes <= bytes_max).then_some(state.bytes)
    }

    /// Wakes a thread if something is due that no thread was woken for.
    pub(crate) fn tell(&self) {
        let state = self.state.lock();
        let tell = state.sleepers > 0 && !state.items.is_empty() && (state.is_due() || state.sleepers >= WRITERS);
        drop(state);
        if tell {
            self.work.notify_one();
        }
    }

    /// Something is due at that time that is not in the queue. Wakes a thread if all of them would sleep longer.
    pub(crate) fn watch(&self, due_ns: u64) {
        let state = self.state.lock();
        let tell = state.sleepers >= WRITERS && (state.watched_ns == 0 || due_ns < state.watched_ns);
        drop(state);
        if tell {
            self.work.notify_one();
        }
    }

    /// From now on proposals of this term are taken, and of no other. Nothing happens when the journal has stopped.
    pub(crate) fn set_epoch(&self, epoch: Option<Term>) {
        self.state.lock().epoch = epoch;
    }

    pub(crate) fn epoch(&self) -> Option<Term> {
        self.state.lock().epoch
    }

    /// From now on nothing is taken. Threads wake up, so that they see it.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.epoch = None;
        drop(state);
        self.work.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Wakes a thread for something that is not in the queue.
    pub(crate) fn kick(&self) {
        let mut state = self.state.lock();
        state.kicked = true;
        let tell = state.sleepers > 0;
        drop(state);
        if tell {
            self.work.notify_one();
        }
    }

    /// A flush begins, or is over. What has gathered meanwhile wakes a thread then.
    pub(crate) fn set_flushing(&self, flushing: bool) {
        let mut state = self.state.lock();
        state.flushing = flushing;
        let tell = !flushing && state.urgent && state.sleepers > 0;
        drop(state);
        if tell {
            self.work.notify_one();
        }
    }

    /// Sleeps until there is work. `deadline` says when something else is due, on the clock's monotonic time.
    pub(crate) fn wait(&self, clock: &dyn Clock, config: &Config, deadline: impl Fn() -> Option<u64>) -> Wake {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return Wake::Stopped;
            }
            let now = clock.monotonic_ns();
            let lazy = (!state.items.is_empty()).then(|| state.lazy_due(config));
            let due = [lazy, deadline()].into_iter().flatten().min();
            if state.kicked || state.is_due() || due.is_some_and(|due| now >= due) {
                state.kicked = false;
                return Wake::Work;
            }
            state.sleepers += 1;
            match due {
                Some(due) if state.watched_ns == 0 || due < state.watched_ns => {
                    state.watched_ns = due;
                    self.work.wait_for(&mut state, Duration::from_nanos(due - now));
                    if state.watched_ns == due {
                        state.watched_ns = 0;
                    }
                }
                _ => self.work.wait(&mut state),
            }
            state.sleepers -= 1;
        }
    }

    /// When lazy proposals in the queue are to be written; `Some(0)` when something urgent waits.
    pub(crate) fn due_ns(&self, config: &Config) -> Option<u64> {
        let state = self.state.lock();
        if state.urgent || state.kicked {
            return Some(0);
        }
        (!state.items.is_empty()).then(|| state.lazy_due(config))
    }

    /// Proposals and bytes that wait, and how many proposals were refused.
    pub(crate) fn depth(&self) -> (u64, u64, u64) {
        let state = self.state.lock();
        (state.items.len() as u64, state.bytes as u64, state.refused)
    }
}

impl State {
    fn lazy_due(&self, config: &Config) -> u64 {
        self.lazy_since_ns.saturating_add(config.lazy_write_us_max * NS_PER_US)
    }
}

/// Weighs a proposal and holds it against its own rules. The error gives it back.
pub(crate) fn measure(proposal: Proposal, config: &Config) -> Result<Queued, Proposal> {
    let (mut native, mut table, mut has_ref) = (0usize, proposal.body.len(), false);
    let mut good = match proposal.kind {
        Kind::Data => proposal.body.is_empty() && !proposal.entries.is_empty(),
        Kind::Membership | Kind::SegmentCut => {
            proposal.entries.is_empty() && proposal.body.len() <= config.entry_bytes_max
        }
        _ => false,
    };
    for draft in &proposal.entries {
        let bytes = &draft.bytes;
        good &= match draft.envelope.body {
            Body::Inline { len, .. } => {
                len as usize == bytes.len()
                    && bytes.len() <= config.entry_bytes_max
                    && draft.patch.as_slice().len() <= bytes.len()
                    && sum_is_right(draft)
            }
            Body::Ref { entry } => {
                has_ref = true;
                let target = proposal.entries.get(entry as usize);
                bytes.is_empty() && target.is_some_and(|t| matches!(t.envelope.body, Body::Inline { .. }))
            }
        };
        native = native.saturating_add(bytes.len());
        table += draft.envelope.encoded_len();
    }
    // So large is the largest frame, and so much memory a proposal may take.
    let most = config.entry_bytes_max + config.frame_bytes_max;
    good &= native <= most && table <= most && (!has_ref || native + table <= most);
    if good { Ok(Queued { proposal, native, table, has_ref }) } else { Err(proposal) }
}

/// A wrong sum would turn up as damage, at the next start. Release builds trust the caller: payload is summed once.
fn sum_is_right(draft: &Draft) -> bool {
    if !cfg!(debug_assertions) {
        return true;
    }
    let patch = draft.patch.as_slice();
    let sum = crc::append(crc::crc32c(patch), draft.bytes.get(patch.len()..).unwrap_or_default());
    matches!(draft.envelope.body, Body::Inline { checksum, .. } if checksum == sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polylogue_env::sim::SimWorld;
    use polylogue_record::envelope::{Envelope, Form};
    use polylogue_types::PartitionId;

    fn queued(urgency: Urgency) -> Queued {
        let draft = Draft::new(Envelope::new(PartitionId(1), Form::AmqpMessage), bytes::Bytes::new());
        let proposal = Proposal { urgency, ..Proposal::data(Term(1), 0, vec![draft]) };
        Queued { proposal, native: 0, table: 0, has_ref: false }
    }

    /// Each record of what became of messages woke the second thread of the pair, for nothing but to wait for the same time as the first one
    /// would, which had proposed it and was about to look into the queue.
    #[test]
    fn what_may_wait_wakes_nobody_while_one_of_the_pair_is_awake() {
        let world = SimWorld::new(1);
        let clock = &*world.env().clock;
        for urgency in [Urgency::Lazy, Urgency::Soon] {
            for sleepers in 0..=WRITERS {
                let mut state = State { sleepers, ..State::default() };
                let mut push = |urgency| state.push(queued(urgency), Durability::Sync, clock);
                assert_eq!(push(urgency), sleepers == WRITERS, "{urgency:?} {sleepers}");
                assert!(!push(urgency), "one of them knows the time");
                assert_eq!(push(Urgency::Urgent), sleepers > 0, "a thread has to write");
                assert!(!push(Urgency::Urgent), "one does already");
            }
        }
    }

    /// What came while a flush ran was written at once, and what came after that waited for two more flushes: the one that the
    /// first had to itself, and its own.
    #[test]
    fn what_comes_during_a_flush_gathers_unless_it_is_much_or_waits_for_no_flush() {
        let world = SimWorld::new(1);
        let clock = &*world.env().clock;
        let state = || State { sleepers: WRITERS, flushing: true, ..State::default() };
        let mut gathers = state();
        assert!(!gathers.push(queued(Urgency::Urgent), Durability::Sync, clock), "it waits for the flush that runs");
        assert!(!gathers.push(queued(Urgency::Urgent), Durability::Sync, clock), "and so does the next one");
        let much = Queued { native: GATHERED_BYTES_MAX + 1, ..queued(Urgency::Lazy) };
        assert!(gathers.push(much, Durability::Sync, clock), "much is written beside the flush");
        assert!(state().push(queued(Urgency::Urgent), Durability::Async, clock), "this needs no flush");
        gathers.flushing = false;
        assert!(gathers.is_due());
    }
}
