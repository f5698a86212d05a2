//! Writers that do not know of each other, and a provider with its own threads.

use super::{follows, marks, small};
use crate::{ShardLog, Sink};
use parking_lot::{Condvar, Mutex};
use polylogue_log::journal::{CommitSink, Outcome};
use polylogue_log::{ErrorKind, Frame};
use polylogue_types::Term;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Threads that propose.
const PROPOSERS: u64 = 3;
/// How often the writer changes.
const CHANGES: usize = 30;
/// The longest that the first commit of a term may take, on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// Tickets from here on belong to the next proposer.
const TICKETS: u64 = 1 << 32;

/// Only listens: what it heard is looked at when all threads have ended.
#[derive(Default)]
struct Listener {
    frames: Mutex<Vec<Arc<Frame>>>,
    outcomes: Mutex<Vec<(u64, Outcome)>>,
    more: Condvar,
}

impl CommitSink for Listener {
    fn committed(&self, frames: &[Arc<Frame>], outcomes: &[(u64, Outcome)]) {
        self.frames.lock().extend_from_slice(frames);
        self.outcomes.lock().extend_from_slice(outcomes);
        self.more.notify_all();
    }
}

/// Proposes in whatever term there is, until it is stopped. Returns the tickets that were taken, with their terms.
fn propose(log: &dyn ShardLog, proposer: u64, stop: &AtomicBool) -> Vec<(u64, Term)> {
    let mut taken = Vec::new();
    let mut ticket = proposer * TICKETS;
    while !stop.load(Ordering::Relaxed) {
        let term = log.view().term;
        match log.try_propose(small(term, ticket)) {
            Ok(()) => taken.push((ticket, term)),
            Err(refused) if matches!(refused.kind, ErrorKind::Fenced | ErrorKind::Busy) => std::thread::yield_now(),
            Err(refused) => panic!("ticket {ticket} was refused: {:?}", refused.kind),
        }
        ticket += 1;
    }
    taken
}

/// Lets proposals and changes of the writer race on a log whose threads `open` has started, and looks at what came of it. The
/// log's queue should be short: all that is in it stands before the next term.
///
/// # Panics
/// When the provider breaks the contract; the text says which part.
pub fn race(open: impl FnOnce(Sink) -> Arc<dyn ShardLog>) {
    let listener = Arc::new(Listener::default());
    let log = open(listener.clone());
    let stop = AtomicBool::new(false);
    let taken: Vec<Vec<(u64, Term)>> = std::thread::scope(|scope| {
        let (shared, stop) = (&*log, &stop);
        let start = |proposer| scope.spawn(move || propose(shared, proposer, stop));
        let proposers: Vec<_> = (0..PROPOSERS).map(start).collect();
        let mut last = log.view().term;
        for _ in 0..CHANGES {
            let term = log.acquire().expect("the writer can be acquired");
            assert!(term > last, "terms grow");
            last = term;
            // Something of each term is to be seen.
            let mut outcomes = listener.outcomes.lock();
            let seen_before = outcomes.len();
            let waited =
                listener.more.wait_while_for(&mut outcomes, |outcomes| outcomes.len() == seen_before, PATIENCE);
            assert!(!waited.timed_out(), "nothing is committed in term {term}");
        }
        stop.store(true, Ordering::Relaxed);
        proposers.into_iter().map(|p| p.join().expect("no proposer panics")).collect()
    });
    log.shutdown();

    let frames = listener.frames.lock();
    for pair in frames.windows(2) {
        follows(&pair[0], &pair[1]);
    }
    let outcomes = listener.outcomes.lock();
    assert!(outcomes.iter().all(|(_, o)| matches!(o, Outcome::Committed(_))), "nothing has failed");
    let committed: Vec<u64> = outcomes.iter().map(|(ticket, _)| *ticket).collect();
    let reported: Vec<u64> = marks(&*frames).into_iter().map(|(_, _, mark)| mark.ticket).collect();
    assert_eq!(reported, committed, "outcomes come in the order of the log");
    for (proposer, taken) in taken.iter().enumerate() {
        let own: Vec<u64> = committed.iter().filter(|t| **t / TICKETS == proposer as u64).copied().collect();
        let accepted: Vec<u64> = taken.iter().map(|(ticket, _)| *ticket).collect();
        assert_eq!(own, accepted, "what was taken has one outcome, in the order in which it was taken");
    }
}
