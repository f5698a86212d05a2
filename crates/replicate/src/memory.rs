//! A shard's log that nothing survives: for topics of class `memory`, and as the simplest provider that keeps the
//! contract.
//!
//! Committed means: taken. Frames are handed to the sink and forgotten; what is kept of them the partition store
//! decides. Whoever uses it sees to it that offsets are not given out again after a restart.

use crate::{LogView, ReadLevel, Role, ShardLog, Sink, Work};
use bytes::BytesMut;
use parking_lot::{Condvar, Mutex};
use polylogue_env::{Env, JoinTask};
use polylogue_log::frame::EntryRef;
use polylogue_log::journal::{Outcome, Proposal, Refused};
use polylogue_log::{Error, ErrorKind, Frame, Kind, Result};
use polylogue_record::envelope::Body;
use polylogue_types::{Index, NodeId, ShardId, Term, TimestampMs};
use std::collections::VecDeque;
use std::sync::Arc;

/// How many recent frames [`ShardLog::read`] can still give.
const FRAMES_KEPT: usize = 1024;
/// What may wait to be delivered. Bytes.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// See the module.
#[derive(Debug)]
pub struct MemoryLog {
    core: Arc<Core>,
    thread: Mutex<Option<Box<dyn JoinTask>>>,
}

struct Core {
    env: Env,
    shard: ShardId,
    node: NodeId,
    sink: Sink,
    state: Mutex<State>,
    wake: Condvar,
    // Held while a batch is delivered, so that two callers of `step` cannot overtake each other.
    delivering: Mutex<()>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryLog").field("shard", &self.shard).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    term: Term,
    next: Index,
    time_ms: TimestampMs,
    queue: VecDeque<Proposal>,
    queue_bytes: usize,
    recent: VecDeque<Arc<Frame>>,
    committed: Option<Index>,
    stopped: bool,
}

impl MemoryLog {
    /// An empty log whose first term is the one after `term`: a log that forgets cannot know by itself which terms were
    /// there before.
    #[must_use]
    pub fn new(env: Env, shard: ShardId, node: NodeId, term: Term, sink: Sink) -> MemoryLog {
        let state = Mutex::new(State { term, ..State::default() });
        let core = Core { env, shard, node, sink, state, wake: Condvar::new(), delivering: Mutex::new(()) };
        MemoryLog { core: Arc::new(core), thread: Mutex::new(None) }
    }
}

fn bytes_of(proposal: &Proposal) -> usize {
    proposal.entries.iter().map(|d| d.bytes.len()).sum::<usize>() + proposal.body.len()
}

impl Core {
    fn deliver(&self) -> bool {
        let _in_order = self.delivering.lock();
        let batch = {
            let mut state = self.state.lock();
            state.queue_bytes = 0;
            std::mem::take(&mut state.queue)
        };
        if batch.is_empty() {
            return false;
        }
        let mut frames = Vec::with_capacity(batch.len());
        let mut outcomes = Vec::with_capacity(batch.len());
        for proposal in batch {
            let ticket = proposal.ticket;
            let frame = Arc::new(self.frame(proposal));
            outcomes.push((ticket, Outcome::Committed(frame.index)));
            frames.push(frame);
        }
        {
            let mut state = self.state.lock();
            state.committed = frames.last().map(|f| f.index);
            state.recent.extend(frames.iter().cloned());
            while state.recent.len() > FRAMES_KEPT {
                state.recent.pop_front();
            }
        }
        self.sink.committed(&frames, &outcomes);
        true
    }

    fn frame(&self, proposal: Proposal) -> Frame {
        let (term, index, time_ms) = {
            let mut state = self.state.lock();
            let index = state.next;
            state.next = index.next();
            state.time_ms = state.time_ms.max(self.env.clock.now_ms());
            (proposal.epoch, index, state.time_ms)
        };
        let mut bytes = BytesMut::with_capacity(bytes_of(&proposal));
        let mut drafts = proposal.entries;
        // Clustered by partition, as in a journal's frame; the sort is stable, so that offsets stay in order.
        let clustered = drafts.windows(2).all(|w| w[0].envelope.partition <= w[1].envelope.partition);
        let has_refs = drafts.iter().any(|d| matches!(d.envelope.body, Body::Ref { .. }));
        if !clustered && !has_refs {
            drafts.sort_by_key(|d| d.envelope.partition);
        }
        let mut entries: Vec<EntryRef> = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let start = bytes.len() as u32;
            let patch = draft.patch.as_slice();
            bytes.extend_from_slice(patch);
            bytes.extend_from_slice(draft.bytes.get(patch.len()..).unwrap_or_default());
            let mut native = start..bytes.len() as u32;
            if let Body::Ref { entry } = draft.envelope.body {
                native = entries.get(entry as usize).map_or(native, |e| e.native.clone());
            }
            let mut envelope = draft.envelope;
            envelope.append_time = time_ms;
            entries.push(EntryRef { envelope, native });
        }
        Frame {
            shard: self.shard,
            term,
            index,
            leader: self.node,
            time_ms,
            kind: proposal.kind,
            bytes: bytes.freeze(),
            entries,
            body: proposal.body,
            place: None,
        }
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

    fn check_running(&self) -> Result<()> {
        if self.state.lock().stopped {
            return Err(Error::new(ErrorKind::Stopped, "the log is shut down"));
        }
        Ok(())
    }
}

impl ShardLog for MemoryLog {
    fn view(&self) -> LogView {
        let state = self.core.state.lock();
        LogView {
            role: if state.stopped { Role::Stopped } else { Role::Writer },
            term: state.term,
            first: state.recent.front().map_or(state.next, |f| f.index),
            tail: state.committed,
            durable: None,
            committed: state.committed,
            leader: self.core.node,
        }
    }

    fn acquire(&self) -> Result<Term> {
        self.core.check_running()?;
        // What was accepted before is written in its own term.
        self.core.deliver();
        let term = {
            let mut state = self.core.state.lock();
            state.term = Term(state.term.0 + 1);
            state.term
        };
        let noop = Proposal { kind: Kind::Noop, ..Proposal::data(term, 0, Vec::new()) };
        let frame = Arc::new(self.core.frame(noop));
        let _in_order = self.core.delivering.lock();
        {
            let mut state = self.core.state.lock();
            state.committed = Some(frame.index);
            state.recent.push_back(frame.clone());
        }
        self.core.sink.committed(&[frame], &[]);
        Ok(term)
    }

    fn try_propose(&self, proposal: Proposal) -> std::result::Result<(), Refused> {
        let mut state = self.core.state.lock();
        let refuse = |kind, proposal| Err(Refused { kind, proposal: Box::new(proposal) });
        if state.stopped {
            return refuse(ErrorKind::Stopped, proposal);
        }
        if proposal.epoch != state.term {
            return refuse(ErrorKind::Fenced, proposal);
        }
        let bytes = bytes_of(&proposal);
        if !state.queue.is_empty() && state.queue_bytes + bytes > QUEUE_BYTES_MAX {
            return refuse(ErrorKind::Busy, proposal);
        }
        state.queue_bytes += bytes;
        state.queue.push_back(proposal);
        drop(state);
        self.core.wake.notify_one();
        Ok(())
    }

    fn barrier(&self, _: ReadLevel) -> Result<Option<Index>> {
        self.core.check_running()?;
        Ok(self.core.state.lock().committed)
    }

    fn read(&self, from: Index, bytes_max: usize) -> Result<Vec<Arc<Frame>>> {
        let state = self.core.state.lock();
        let first = state.recent.front().map_or(state.next, |f| f.index);
        if from < first || from > state.next {
            return Err(Error::new(ErrorKind::OutOfRange, format!("index {from} is not between {first} and {}", state.next)));
        }
        let mut out: Vec<Arc<Frame>> = Vec::new();
        let mut bytes = 0;
        let from = usize::try_from(from.0 - first.0).unwrap_or(usize::MAX);
        for frame in state.recent.iter().skip(from).filter(|f| Some(f.index) <= state.committed) {
            bytes += frame.bytes.len();
            if !out.is_empty() && bytes > bytes_max {
                break;
            }
            out.push(frame.clone());
        }
        Ok(out)
    }

    fn trim(&self, upto: Index) -> Result<()> {
        let mut state = self.core.state.lock();
        if Some(upto) > state.committed {
            let text = format!("cannot forget up to index {upto}: only up to {:?} is committed", state.committed);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        while state.recent.front().is_some_and(|f| f.index <= upto) {
            state.recent.pop_front();
        }
        Ok(())
    }

    fn seal(&self, term: Term) -> Result<Option<Index>> {
        if self.core.state.lock().term != term {
            return Err(Error::new(ErrorKind::Fenced, format!("term {term} is over; only its writer may seal it")));
        }
        self.acquire()?;
        Ok(self.core.state.lock().committed)
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

