//! A shard's log that nothing survives: for topics of class `memory`, and as the simplest provider that keeps the
//! contract.
//!
//! Committed means: taken. Frames are handed to the sink and forgotten; what is kept of them the partition store
//! decides. Its user ensures that offsets are not given out again after a restart.

mod frame;

use crate::{LogView, ReadLevel, Role, ShardLog, Sink, Work};
use frame::Head;
use parking_lot::{Condvar, Mutex};
use polylogue_env::{Env, JoinTask};
use polylogue_log::journal::{Outcome, Proposal, Refused};
use polylogue_log::{Error, ErrorKind, Frame, Result};
use polylogue_types::{Index, NodeId, ShardId, Term, TimestampMs, limits};
use std::collections::VecDeque;
use std::sync::Arc;

/// What a memory shard holds at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// What may wait to be delivered. Bytes.
    pub queue_bytes_max: usize,
    /// How many proposals may wait to be delivered.
    pub queue_count_max: usize,
    /// The largest single entry. Bytes.
    pub entry_bytes_max: usize,
    /// The recent frames that [`ShardLog::read`] can still give. Bytes; one frame is kept however large it is.
    pub recent_bytes_max: usize,
    /// How many these are.
    pub recent_count_max: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            queue_bytes_max: 64 << 20,
            queue_count_max: 64 << 10,
            entry_bytes_max: limits::REQUEST_BYTES_MAX,
            recent_bytes_max: 16 << 20,
            recent_count_max: 1024,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct MemoryLog {
    core: Arc<Core>,
    thread: Mutex<Option<Box<dyn JoinTask>>>,
}

/// Locks: `delivering` before `state`; `state` is never held while the sink is called.
struct Core {
    env: Env,
    shard: ShardId,
    node: NodeId,
    bounds: Bounds,
    sink: Sink,
    state: Mutex<State>,
    wake: Condvar,
    // Held while a batch is delivered, so that two callers of `step` cannot overtake each other.
    delivering: Mutex<End>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryLog").field("shard", &self.shard).finish_non_exhaustive()
    }
}

/// Where the log ends.
#[derive(Debug, Default)]
struct End {
    next: Index,
    time_ms: TimestampMs,
}

/// What waits to become a frame. A term's beginning waits in the same queue as what is proposed, so that it stands
/// between what was accepted in the old term and what is accepted in the new one.
#[derive(Debug)]
enum Item {
    Begin(Term),
    Propose(Proposal),
}

#[derive(Default)]
struct State {
    /// The highest term.
    term: Term,
    /// A proposer may use it.
    has_writer: bool,
    queue: VecDeque<Item>,
    queue_bytes: usize,
    recent: VecDeque<Arc<Frame>>,
    recent_bytes: usize,
    committed: Option<Index>,
    stopped: bool,
}

impl State {
    /// The first index that can be read.
    fn first(&self) -> Index {
        self.recent.front().map_or_else(|| self.next(), |f| f.index)
    }

    /// The index after the last one that is committed.
    fn next(&self) -> Index {
        self.committed.map_or(Index(0), Index::next)
    }

    /// From here on in the queue a new term holds.
    fn begin_term(&mut self, has_writer: bool) -> Term {
        self.term = Term(self.term.0 + 1);
        self.has_writer = has_writer;
        self.queue.push_back(Item::Begin(self.term));
        self.term
    }

    fn commit(&mut self, frames: &[Arc<Frame>], bounds: &Bounds) {
        for frame in frames {
            self.committed = Some(frame.index);
            self.recent_bytes += weight(frame);
            self.recent.push_back(frame.clone());
        }
        while self.recent.len() > bounds.recent_count_max.max(1)
            || (self.recent.len() > 1 && self.recent_bytes > bounds.recent_bytes_max)
        {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some(frame) = self.recent.pop_front() {
            self.recent_bytes -= weight(&frame);
        }
    }

    fn check_running(&self) -> Result<()> {
        if self.stopped {
            return Err(Error::new(ErrorKind::Stopped, "the log is shut down"));
        }
        Ok(())
    }
}

fn weight(frame: &Frame) -> usize {
    frame.bytes.len() + frame.body.len()
}

impl MemoryLog {
    /// An empty log whose first term is the one after `term`: a log that forgets cannot know by itself which terms were
    /// there before.
    #[must_use]
    pub fn new(env: Env, shard: ShardId, node: NodeId, term: Term, sink: Sink) -> MemoryLog {
        MemoryLog::with_bounds(env, shard, node, term, sink, Bounds::default())
    }

    /// The same with bounds other than the defaults.
    #[must_use]
    pub fn with_bounds(env: Env, shard: ShardId, node: NodeId, term: Term, sink: Sink, bounds: Bounds) -> MemoryLog {
        let state = Mutex::new(State { term, ..State::default() });
        let (wake, delivering) = (Condvar::new(), Mutex::default());
        let core = Core { env, shard, node, bounds, sink, state, wake, delivering };
        MemoryLog { core: Arc::new(core), thread: Mutex::new(None) }
    }

    /// Ends the term and delivers up to that point.
    fn change_term(&self, expected: Option<Term>, has_writer: bool) -> Result<Term> {
        let term = {
            let mut state = self.core.state.lock();
            state.check_running()?;
            if let Some(expected) = expected
                && !(state.has_writer && state.term == expected)
            {
                let text = format!("term {expected} is over; only its writer may seal it");
                return Err(Error::new(ErrorKind::Fenced, text));
            }
            state.begin_term(has_writer)
        };
        self.core.deliver();
        Ok(term)
    }
}

impl Core {
    /// Makes frames of all that is queued and hands them over. When it returns, everything that was queued when it was called
    /// has been delivered.
    fn deliver(&self) -> bool {
        let mut end = self.delivering.lock();
        let batch = {
            let mut state = self.state.lock();
            state.queue_bytes = 0;
            std::mem::take(&mut state.queue)
        };
        if batch.is_empty() {
            return false;
        }
        end.time_ms = end.time_ms.max(self.env.clock.now_ms());
        let mut frames = Vec::with_capacity(batch.len());
        let mut outcomes = Vec::with_capacity(batch.len());
        for item in batch {
            let head =
                |term| Head { shard: self.shard, term, index: end.next, leader: self.node, time_ms: end.time_ms };
            let frame = match item {
                Item::Begin(term) => frame::noop(head(term)),
                Item::Propose(proposal) => {
                    outcomes.push((proposal.ticket, Outcome::Committed(end.next)));
                    frame::build(head(proposal.epoch), proposal)
                }
            };
            frames.push(Arc::new(frame));
            end.next = end.next.next();
        }
        self.state.lock().commit(&frames, &self.bounds);
        self.sink.committed(&frames, &outcomes);
        true
    }

    fn run(&self) {
        loop {
            {
                let mut state = self.state.lock();
                while state.queue.is_empty() && !state.stopped {
                    self.wake.wait(&mut state);
                }
                if state.stopped && state.queue.is_empty() {
                    return;
                }
            }
            self.deliver();
        }
    }
}

impl ShardLog for MemoryLog {
    fn view(&self) -> LogView {
        let state = self.core.state.lock();
        LogView {
            role: match (state.stopped, state.has_writer) {
                (true, _) => Role::Stopped,
                (false, true) => Role::Writer,
                (false, false) => Role::Follower,
            },
            term: state.term,
            first: state.first(),
            tail: state.committed,
            durable: None,
            committed: state.committed,
            leader: self.core.node,
        }
    }

    fn acquire(&self) -> Result<Term> {
        self.change_term(None, true)
    }

    fn try_propose(&self, proposal: Proposal) -> std::result::Result<(), Refused> {
        let bounds = &self.core.bounds;
        let refuse = |kind, proposal| Err(Refused { kind, proposal: Box::new(proposal) });
        if !frame::is_valid(&proposal, bounds.entry_bytes_max) {
            return refuse(ErrorKind::Invalid, proposal);
        }
        let bytes = frame::bytes_of(&proposal);
        let mut state = self.core.state.lock();
        if state.stopped {
            return refuse(ErrorKind::Stopped, proposal);
        }
        if !state.has_writer || proposal.epoch != state.term {
            return refuse(ErrorKind::Fenced, proposal);
        }
        let full = state.queue.len() >= bounds.queue_count_max || state.queue_bytes + bytes > bounds.queue_bytes_max;
        if full && !state.queue.is_empty() {
            return refuse(ErrorKind::Busy, proposal);
        }
        state.queue_bytes += bytes;
        state.queue.push_back(Item::Propose(proposal));
        drop(state);
        self.core.wake.notify_one();
        Ok(())
    }

    fn barrier(&self, _: ReadLevel) -> Result<Option<Index>> {
        let state = self.core.state.lock();
        state.check_running()?;
        Ok(state.committed)
    }

    fn read(&self, from: Index, bytes_max: usize) -> Result<Vec<Arc<Frame>>> {
        let state = self.core.state.lock();
        let (first, next) = (state.first(), state.next());
        if from < first || from > next {
            return Err(Error::new(ErrorKind::OutOfRange, format!("index {from} is not between {first} and {next}")));
        }
        let mut out: Vec<Arc<Frame>> = Vec::new();
        let mut bytes = 0;
        let skipped = usize::try_from(from.0 - first.0).unwrap_or(usize::MAX);
        for frame in state.recent.iter().skip(skipped) {
            bytes += weight(frame);
            if !out.is_empty() && bytes > bytes_max {
                break;
            }
            out.push(frame.clone());
        }
        Ok(out)
    }

    fn trim(&self, upto: Index) -> Result<()> {
        let mut state = self.core.state.lock();
        state.check_running()?;
        if Some(upto) > state.committed {
            let text = format!("cannot forget up to index {upto}: committed is up to {:?}", state.committed);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        while state.recent.front().is_some_and(|f| f.index <= upto) {
            state.forget_first();
        }
        Ok(())
    }

    fn seal(&self, term: Term) -> Result<Option<Index>> {
        self.change_term(Some(term), false)?;
        Ok(self.core.state.lock().committed)
    }

    fn decides_alone(&self) -> bool {
        true
    }

    fn step(&self, work: Work) -> bool {
        work == Work::Flush && self.core.deliver()
    }

    fn run(&self) -> Result<()> {
        let core = self.core.clone();
        let name = format!("pl-mem-{}", self.core.shard);
        let thread = self.core.env.tasks.spawn(&name, Box::new(move || core.run()));
        *self.thread.lock() = Some(thread.map_err(|e| Error::io("cannot start the memory shard's thread", e))?);
        Ok(())
    }

    fn shutdown(&self) {
        self.core.state.lock().stopped = true;
        self.core.wake.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            thread.join();
        }
        self.core.deliver();
    }
}
