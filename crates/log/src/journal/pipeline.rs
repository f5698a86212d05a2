//! What is written and not yet flushed, and what is committed and not yet delivered.

use super::config::{Config, Durability};
use super::file::LiveFile;
use super::proposal::{Flushed, Outcome};
use crate::frame::Frame;
use crate::frame::header::Durable;
use polylogue_types::Index;
use std::collections::VecDeque;
use std::sync::Arc;

const NS_PER_MS: u64 = 1_000_000;

/// When a group has to be flushed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Demand {
    /// With the next flush, or when its time is up.
    #[default]
    Lazy,
    /// At once: a commit that needs it has a waiter.
    Commit,
    /// At once: a vote, an engine's append, the end.
    Now,
}

/// What one write step wrote.
#[derive(Default)]
pub(crate) struct Group {
    /// Frames for the sink.
    pub(crate) frames: Vec<Arc<Frame>>,
    pub(crate) outcomes: Vec<(u64, Outcome)>,
    /// Whom to tell that it is flushed.
    pub(crate) flushed: Vec<Flushed>,
    /// Files that were written to.
    pub(crate) files: Vec<Arc<LiveFile>>,
    pub(crate) bytes: u64,
    pub(crate) demand: Demand,
    /// The strongest class of the proposals in it; `None` without any, and then the journal's own holds.
    class: Option<Durability>,
    /// It is nothing but a mark: no mark follows it.
    pub(crate) mark: bool,
    /// The journal ended before the outcome was known.
    pub(crate) abandoned: bool,
    /// When the first proposal in it came, or when it was written. Monotonic nanoseconds.
    pub(crate) since_ns: u64,
    /// How long the first of its proposals with a waiter was in the queue. Nanoseconds.
    pub(crate) queued_ns: Option<u64>,
    /// How long building and writing its frames took. Nanoseconds.
    pub(crate) write_ns: u64,
    /// The log's end after it.
    pub(crate) end: Durable,
}

impl Group {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.outcomes.is_empty() && self.flushed.is_empty()
    }

    /// Whether its flush has no waiter.
    fn is_bare(&self) -> bool {
        self.frames.is_empty() && self.outcomes.is_empty() && self.flushed.is_empty()
    }

    /// It is committed no earlier than something of this class is.
    pub(crate) fn hold_to(&mut self, class: Durability) {
        self.class = self.class.max(Some(class));
    }

    /// What it is committed by, in a journal of class `own`.
    pub(crate) fn class(&self, own: Durability) -> Durability {
        self.class.unwrap_or(own)
    }

    /// Whether there is something that the sink has not been given.
    pub(crate) fn tells(&self) -> bool {
        !(self.frames.is_empty() && self.outcomes.is_empty())
    }

    /// What is for the sink, taken out: the rest only waits for its flush.
    fn take_told(&mut self) -> Group {
        Group {
            frames: std::mem::take(&mut self.frames),
            outcomes: std::mem::take(&mut self.outcomes),
            end: self.end,
            ..Group::default()
        }
    }

    /// Takes in the bare group that was written after it.
    fn absorb(&mut self, next: Group) {
        next.files.iter().for_each(|file| self.touch(file));
        self.bytes += next.bytes;
        self.mark &= next.mark;
        self.end = next.end;
    }

    /// Notes that a file was written to.
    pub(crate) fn touch(&mut self, file: &Arc<LiveFile>) {
        if self.files.last().is_none_or(|f| !Arc::ptr_eq(f, file)) {
            self.files.push(file.clone());
        }
    }

    /// What it would have become is unknown now.
    pub(crate) fn abandon(mut self) -> Group {
        for (_, outcome) in &mut self.outcomes {
            *outcome = Outcome::Unknown;
        }
        self.frames.clear();
        self.abandoned = true;
        self
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group")
            .field("frames", &self.frames.len())
            .field("outcomes", &self.outcomes.len())
            .field("bytes", &self.bytes)
            .field("demand", &self.demand)
            .finish_non_exhaustive()
    }
}

/// What one flush takes on.
#[derive(Debug, Default)]
pub(crate) struct FlushJob {
    pub(crate) groups: Vec<Group>,
    pub(crate) files: Vec<Arc<LiveFile>>,
    pub(crate) end: Durable,
    /// Nothing but marks.
    pub(crate) only_marks: bool,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    /// Written, in log order.
    unflushed: VecDeque<Group>,
    unflushed_bytes: u64,
    demand: Demand,
    /// When the oldest of them was written.
    since_ns: u64,
    /// How many groups are not committed yet: among the unflushed, and in the flush that runs.
    held: usize,
    /// How many of the unflushed need a flush to be committed.
    waiting: usize,
    /// One of the unflushed was committed without a flush.
    early: bool,
    /// Committed, in log order, waiting for the sink.
    pub(crate) ready: VecDeque<Group>,
    /// What the last finished flush covered.
    pub(crate) durable: Durable,
    /// The log's end after the last group that was written: nothing before it is ever taken back.
    pub(crate) written: Durable,
    /// When an idle journal writes its mark.
    pub(crate) mark_due_ns: Option<u64>,
    /// A flush is running.
    flushing: bool,
    /// The journal has ended by a failure.
    dead: bool,
}

impl Pipeline {
    /// A journal whose log is durable up to `durable`.
    pub(crate) fn new(durable: Durable) -> Pipeline {
        Pipeline { durable, written: durable, ..Pipeline::default() }
    }

    /// A group has been written in a journal of class `own`. If it needs no flush, and nothing before it waits for one, it is
    /// committed by that. Says whether there is something to deliver.
    pub(crate) fn push(&mut self, mut group: Group, own: Durability) -> bool {
        if self.dead {
            self.ready.push_back(group.abandon());
            return true;
        }
        if self.unflushed.is_empty() {
            self.since_ns = group.since_ns;
            self.demand = Demand::Lazy;
        }
        self.mark_due_ns = None;
        self.written = group.end;
        self.unflushed_bytes += group.bytes;
        self.demand = self.demand.max(group.demand);
        let class = *group.class.get_or_insert(own);
        let tells = group.tells();
        let committed = tells && class == Durability::Async && self.held == 0;
        if committed {
            self.ready.push_back(group.take_told());
            self.early = true;
        } else if tells {
            self.held += 1;
            self.waiting += usize::from(class == Durability::Sync);
        }
        match self.unflushed.back_mut() {
            // Between two flushes of class `Async` lies a second: its groups would add up to something.
            Some(last) if last.is_bare() && group.is_bare() => last.absorb(group),
            _ => self.unflushed.push_back(group),
        }
        committed
    }

    /// When a flush is due; 0 for at once.
    pub(crate) fn flush_due_ns(&self, config: &Config) -> Option<u64> {
        // Without a waiter for a flush, a thread that could write must not wait for one that runs. With one, the
        // thread whose group is written has nothing better to do.
        let busy = self.flushing && self.waiting == 0;
        if self.unflushed.is_empty() || busy {
            return None;
        }
        if self.demand >= Demand::Commit || self.unflushed_bytes >= config.flush_bytes_max {
            return Some(0);
        }
        let nobody_waits = self.early || config.durability == Durability::Async;
        let wait_ms = match self.waiting == 0 && nobody_waits {
            true => config.async_flush_ms_max,
            false => config.lazy_flush_ms_max,
        };
        Some(self.since_ns.saturating_add(wait_ms * NS_PER_MS))
    }

    /// Everything that is written and not flushed.
    pub(crate) fn take_unflushed(&mut self) -> Option<FlushJob> {
        let end = self.unflushed.back()?.end;
        let mut job = FlushJob { end, only_marks: true, ..FlushJob::default() };
        job.groups = self.unflushed.drain(..).collect();
        for group in &mut job.groups {
            job.only_marks &= group.mark;
            for file in group.files.drain(..) {
                if !job.files.iter().any(|f| Arc::ptr_eq(f, &file)) {
                    job.files.push(file);
                }
            }
        }
        (self.unflushed_bytes, self.waiting, self.early) = (0, 0, false);
        self.flushing = true;
        Some(job)
    }

    /// A flush has finished.
    pub(crate) fn flushed(&mut self, job: FlushJob, now_ns: u64, config: &Config) {
        self.flushing = false;
        if self.dead {
            self.ready.extend(job.groups.into_iter().map(Group::abandon));
            return;
        }
        self.durable = job.end;
        if !job.only_marks && self.unflushed.is_empty() {
            self.mark_due_ns = Some(now_ns.saturating_add(config.mark_idle_ms * NS_PER_MS));
        }
        self.held -= job.groups.iter().filter(|group| group.tells()).count();
        self.ready.extend(job.groups.into_iter().filter(|g| !g.is_bare()));
        self.commit_written();
    }

    /// What was written meanwhile, needs no flush and waited only for what was before it is committed now.
    fn commit_written(&mut self) {
        for group in &mut self.unflushed {
            if self.held == 0 || (group.tells() && group.class != Some(Durability::Async)) {
                return;
            }
            if group.tells() {
                self.ready.push_back(group.take_told());
                self.held -= 1;
                self.early = true;
            }
        }
    }

    /// The journal has ended by a failure: nothing that is not yet delivered will be called committed, nor is what is
    /// pushed later. `taken` is what a failed flush had taken on.
    pub(crate) fn abandon(&mut self, taken: Vec<Group>) {
        self.dead = true;
        let all: Vec<Group> = self.ready.drain(..).chain(taken).chain(self.unflushed.drain(..)).collect();
        self.ready.extend(all.into_iter().map(Group::abandon));
        self.unflushed_bytes = 0;
        self.mark_due_ns = None;
    }

    /// The last index known to be durable.
    pub(crate) fn durable_index(&self) -> Option<Index> {
        self.durable.index
    }
}
