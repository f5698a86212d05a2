//! The contract of every [`ShardLog`], as functions that a provider's tests call.
//!
//! A provider is given as a [`Place`] that its log lives in. [`all`] drives it by [`ShardLog::step`], without threads, so
//! that a failure repeats; [`race`] takes one with its threads. What is proposed names itself ([`Mark`]): its bytes say in which term it was proposed, by which
//! ticket, and which of that ticket's entries it is.
#![allow(clippy::expect_used, clippy::panic, reason = "a test suite fails by panicking")]

mod cases;
mod race;
mod schedule;

pub use race::race;

use crate::{ShardLog, Sink, Work};
use bytes::Bytes;
use parking_lot::Mutex;
use polylogue_log::Frame;
use polylogue_log::journal::{CommitSink, Draft, Outcome, Proposal};
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::{Body, Envelope, Form};
use polylogue_types::{Index, Offset, Ordinal, PartitionId, Term};
use std::sync::Arc;

/// The queue of a log under test takes at most so much, so that the suite can fill it. Bytes.
pub const QUEUE_BYTES_MAX: usize = 1 << 20;

/// More steps than any test here can need; a log that is not done by then never will be.
const STEPS_MAX: usize = 10_000;
/// Longer than any provider may leave a lazy proposal unflushed. Milliseconds.
const LAZY_MS: u64 = 2_000;

/// Where the log of a provider lives.
pub trait Place {
    /// Opens the log: an empty one at first, later what the life before has left. Its threads do not run. Everything
    /// before `from` may be forgotten.
    fn open(&self, sink: Sink, from: Index) -> Arc<dyn ShardLog>;
    /// The power goes and comes back; what was opened before is dead, and so is a fault that has not struck. `false` for a
    /// place where nothing survives: then nothing has happened.
    fn crash(&self) -> bool;
    /// The next write finds the disk full, and only that one. `false` for a place without a disk.
    fn fail_write(&self) -> bool;
    /// Time passes.
    fn pass_ms(&self, ms: u64);
}

/// Makes a new place. The number is a seed for whatever is random in it.
pub type Maker<'a> = &'a dyn Fn(u64) -> Box<dyn Place>;

/// All of it, with `seeds` random schedules.
///
/// # Panics
/// When the provider breaks the contract; the text says which part.
pub fn all(make: Maker<'_>, seeds: u64) {
    cases::all(make);
    schedule::all(make, seeds);
}

/// A sink that records the frames it receives and checks their order.
#[derive(Debug, Default)]
pub struct Recorder {
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    frames: Vec<Arc<Frame>>,
    outcomes: Vec<(u64, Outcome)>,
}

impl CommitSink for Recorder {
    fn committed(&self, frames: &[Arc<Frame>], outcomes: &[(u64, Outcome)]) {
        let mut heard = self.heard.lock();
        for frame in frames {
            if let Some(last) = heard.frames.last() {
                follows(last, frame);
            }
            heard.frames.push(frame.clone());
        }
        for (ticket, outcome) in outcomes {
            if let Outcome::Committed(index) = outcome {
                let shown = heard.frames.last().is_some_and(|last| *index <= last.index);
                assert!(shown, "ticket {ticket}: its frame {index} was not shown before its outcome");
            }
        }
        heard.outcomes.extend_from_slice(outcomes);
    }
}

/// A frame stands behind another one.
fn follows(before: &Frame, after: &Frame) {
    assert_eq!(after.index, before.index.next(), "indexes have no gaps");
    assert!(after.term >= before.term, "frame {}: the term went from {} to {}", after.index, before.term, after.term);
    assert!(after.time_ms >= before.time_ms, "frame {}: time went back", after.index);
}

/// What an entry's bytes say of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Mark {
    term: Term,
    ticket: u64,
    /// Its number in the proposal.
    entry: u64,
}

/// The bytes of a mark.
const MARK_BYTES: usize = 24;

impl Mark {
    /// An entry of `len` bytes and more that says so.
    fn draft(self, partition: u64, len: usize) -> Draft {
        let numbers = [self.term.0, self.ticket, self.entry];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        bytes.resize(len.max(MARK_BYTES), self.ticket as u8);
        let mut envelope = Envelope::new(PartitionId(partition), Form::Opaque);
        // Some number that grows: a log does not look at it.
        envelope.base_offset = Offset(self.ticket * 100 + self.entry);
        envelope.ordinal = Ordinal(self.ticket * 100 + self.entry);
        envelope.count = 1;
        envelope.body = Body::Inline { len: bytes.len() as u32, checksum: crc32c(&bytes) };
        Draft::new(envelope, Bytes::from(bytes))
    }

    fn of(bytes: &[u8]) -> Mark {
        let number =
            |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).map_or(u64::MAX, |b| u64::from_le_bytes(*b));
        Mark { term: Term(number(0)), ticket: number(8), entry: number(16) }
    }
}

/// A proposal of one small entry.
fn small(term: Term, ticket: u64) -> Proposal {
    Proposal::data(term, ticket, vec![Mark { term, ticket, entry: 0 }.draft(2000, MARK_BYTES)])
}

/// The marks in frames, with the partition and the index that they stand at.
fn marks<'a>(frames: impl IntoIterator<Item = &'a Arc<Frame>>) -> Vec<(PartitionId, Index, Mark)> {
    let mut out = Vec::new();
    for frame in frames {
        let partitions: Vec<_> = frame.entries.iter().map(|e| e.envelope.partition).collect();
        assert!(partitions.is_sorted(), "frame {}: entries stand by partition", frame.index);
        for entry in &frame.entries {
            assert_eq!(entry.envelope.append_time, frame.time_ms, "an entry's time is its frame's");
            let mark = Mark::of(&frame.native(entry));
            assert_eq!(mark.term, frame.term, "frame {}: an entry of another term", frame.index);
            out.push((entry.envelope.partition, frame.index, mark));
        }
    }
    out
}

/// A log under test and what it reported.
struct Case {
    place: Box<dyn Place>,
    log: Arc<dyn ShardLog>,
    seen: Arc<Recorder>,
}

impl Case {
    fn new(make: Maker<'_>) -> Case {
        Case::in_place(make(1), Index(0))
    }

    fn in_place(place: Box<dyn Place>, from: Index) -> Case {
        let seen = Arc::new(Recorder::default());
        let log = place.open(seen.clone(), from);
        Case { place, log, seen }
    }

    /// Cuts the power and reopens the log, if its place survives that.
    fn crash(self, from: Index) -> Option<Case> {
        let crashed = self.place.crash();
        crashed.then(|| Case::in_place(self.place, from))
    }

    /// Steps until nothing is due.
    fn drive(&self) {
        for _ in 0..STEPS_MAX {
            let mut did = false;
            for work in [Work::Write, Work::Flush, Work::Background] {
                did |= self.log.step(work);
            }
            if !did {
                return;
            }
        }
        panic!("a log that gets nothing to do comes to rest");
    }

    /// Steps and advances time until no work is left.
    fn settle(&self) {
        self.drive();
        self.place.pass_ms(LAZY_MS);
        self.drive();
    }

    fn outcomes(&self) -> Vec<(u64, Outcome)> {
        self.seen.heard.lock().outcomes.clone()
    }

    /// The tickets that are committed.
    fn committed(&self) -> Vec<u64> {
        let outcomes = self.outcomes();
        outcomes.iter().filter(|(_, o)| matches!(o, Outcome::Committed(_))).map(|(t, _)| *t).collect()
    }

    /// The tickets of all entries that were reported, in order.
    fn reported_tickets(&self) -> Vec<u64> {
        marks(&self.seen.heard.lock().frames).into_iter().map(|(_, _, mark)| mark.ticket).collect()
    }

    fn frames(&self) -> Vec<Arc<Frame>> {
        self.seen.heard.lock().frames.clone()
    }

    /// Everything that can be read.
    fn read_all(&self) -> Vec<Arc<Frame>> {
        let view = self.log.view();
        let mut all: Vec<Arc<Frame>> = Vec::new();
        let (mut next, end) = (view.first, view.committed.map_or(view.first, Index::next));
        while next < end {
            let frames = self.log.read(next, 4096).unwrap_or_else(|e| panic!("index {next} is there: {e}"));
            assert!(!frames.is_empty(), "at least one frame, however small the bound");
            for frame in frames {
                assert_eq!(frame.index, next, "frames come from where they were asked for, without gaps");
                if let Some(last) = all.last() {
                    follows(last, &frame);
                }
                next = next.next();
                all.push(frame);
            }
        }
        all
    }
}
