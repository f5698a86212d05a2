//! Tests of the journal with its threads, on the real disk.
#![allow(clippy::expect_used, reason = "the helpers are part of the tests")]

use crate::journal_common;

use journal_common::*;
use parking_lot::{Condvar, Mutex};
use polylogue_env::{Env, Fatal};
use polylogue_log::ErrorKind;
use polylogue_log::frame::Frame;
use polylogue_log::journal::{CommitSink, Config, Durability, Journal, Outcome, Proposal, Urgency};
use polylogue_types::{Index, Term};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A directory that is removed at the end of the test.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let dir = std::env::temp_dir().join(format!("polylogue-journal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        TempDir(dir)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Debug, Default)]
struct NoteFatal(AtomicBool);

impl Fatal for NoteFatal {
    fn fatal(&self, _: &str) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_fatal(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

fn env() -> Env {
    Env { fatal: Arc::new(NoteFatal::default()), ..Env::real() }
}

/// Counts events and lets a test wait for them.
#[derive(Default)]
struct Waiter {
    heard: Mutex<(Vec<u64>, Vec<Index>)>,
    more: Condvar,
    calls: AtomicU64,
}

impl CommitSink for Waiter {
    fn committed(&self, frames: &[Arc<Frame>], outcomes: &[(u64, Outcome)]) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut heard = self.heard.lock();
        for (ticket, outcome) in outcomes {
            assert!(matches!(outcome, Outcome::Committed(_)), "{ticket}: {outcome:?}");
            heard.0.push(*ticket);
        }
        heard.1.extend(frames.iter().map(|f| f.index));
        self.more.notify_all();
    }
}

impl Waiter {
    fn wait_for(&self, outcomes: usize) {
        let mut heard = self.heard.lock();
        while heard.0.len() < outcomes {
            self.more.wait(&mut heard);
        }
    }
}

fn start(dir: &TempDir, change: impl FnOnce(&mut Config)) -> (Arc<Journal>, Arc<Waiter>, Term) {
    let mut config = Config::new(dir.0.clone(), identity());
    config.file_bytes = 1 << 20;
    config.frame_bytes_max = 64 << 10;
    config.reserve_bytes = 64 << 10;
    config.disk_reserve_bytes = 0;
    change(&mut config);
    let (journal, _) = open_in(&env(), config, Index(0)).expect("opens");
    let sink = Arc::new(Waiter::default());
    journal.attach(sink.clone());
    journal.run_threads().expect("starts");
    let epoch = journal.acquire().expect("a term");
    (Arc::new(journal), sink, epoch)
}

fn propose(journal: &Journal, proposal: Proposal) {
    let mut proposal = proposal;
    while let Err(refused) = journal.try_propose(proposal) {
        assert_eq!(refused.kind, ErrorKind::Busy);
        proposal = *refused.proposal;
        std::thread::yield_now();
    }
}

#[test]
fn proposals_of_many_threads_are_committed_in_the_order_in_which_they_were_taken() {
    for durability in [Durability::Sync, Durability::Async] {
        let dir = TempDir::new(&format!("many-{durability:?}"));
        let (journal, sink, epoch) = start(&dir, |c| {
            c.durability = durability;
            c.queue_count_max = 64;
        });
        const EACH: u64 = 2_000;
        let order = Arc::new(Mutex::new((0u64, [0u64; 4])));
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (journal, order) = (journal.clone(), order.clone());
                scope.spawn(move || {
                    for i in 0..EACH {
                        // Tickets are assigned under the lock that orders the calls.
                        let mut order = order.lock();
                        let ticket = order.0;
                        let offset = order.1[thread as usize];
                        let urgency = if i % 7 == 0 { Urgency::Lazy } else { Urgency::Urgent };
                        let bytes = payload(ticket, (i % 900) as usize);
                        let data = Proposal::data(epoch, ticket, vec![draft(thread, offset, bytes)]);
                        // Half of the threads write their own proposals, where possible.
                        let prompt = thread % 2 == 0 && urgency == Urgency::Urgent;
                        propose(&journal, Proposal { urgency, prompt, ..data });
                        order.0 += 1;
                        order.1[thread as usize] += 1;
                        drop(order);
                        if prompt {
                            journal.write_prompt();
                        }
                    }
                });
            }
        });
        sink.wait_for(4 * EACH as usize);
        let stats = journal.stats();
        journal.shutdown().expect("ends");
        let (tickets, indexes) = &*sink.heard.lock();
        assert_eq!(*tickets, (0..4 * EACH).collect::<Vec<_>>());
        assert!(indexes.windows(2).all(|w| w[1] == w[0].next()));
        assert!(stats.flush.count <= stats.groups + 2, "{stats:?}");
        let mut config = Config::new(dir.0.clone(), identity());
        config.file_bytes = 1 << 20;
        config.reserve_bytes = 64 << 10;
        let (reopened, visited) = open_in(&env(), config, Index(0)).expect("opens");
        assert_eq!(reopened.recovery().frames_copied, 0, "a clean end leaves nothing in doubt");
        let mut next = [0; 4];
        for (partition, offset, _) in contents(&visited) {
            assert_eq!(next[partition as usize], offset);
            next[partition as usize] += 1;
        }
        assert_eq!(next, [EACH; 4]);
    }
}

/// A frame written by its proposer is flushed in time, though the threads slept and were not notified.
#[test]
fn what_a_proposer_writes_itself_is_flushed_by_the_threads() {
    let dir = TempDir::new("prompt");
    let (journal, sink, epoch) = start(&dir, |c| {
        c.durability = Durability::Async;
        c.async_flush_ms_max = 1;
        // Longer than any machine needs.
        c.prompt_us_max = 10_000_000;
    });
    for ticket in 0..200 {
        let data = Proposal::data(epoch, ticket, vec![draft(1, ticket, payload(ticket, 100))]);
        propose(&journal, Proposal { prompt: true, ..data });
        journal.write_prompt();
        sink.wait_for(ticket as usize + 1);
        while journal.view().durable < journal.view().committed {
            std::thread::yield_now();
        }
    }
    assert!(journal.stats().groups_prompt > 0, "{:?}", journal.stats());
    journal.shutdown().expect("ends");
}

#[test]
fn a_single_lazy_proposal_is_committed_without_anything_else() {
    let dir = TempDir::new("lazy");
    let (journal, sink, epoch) = start(&dir, |_| {});
    let data = Proposal::data(epoch, 0, vec![draft(1, 0, payload(0, 10))]);
    propose(&journal, Proposal { urgency: Urgency::Lazy, ..data });
    sink.wait_for(1);
    journal.shutdown().expect("ends");
}

/// Proposes the next entry at the outcome of the last one.
#[derive(Default)]
struct Chain {
    journal: Mutex<Option<(Arc<Journal>, Term)>>,
    done: Mutex<u64>,
    more: Condvar,
}

const CHAIN: u64 = 1_000;

impl CommitSink for Chain {
    fn committed(&self, _: &[Arc<Frame>], outcomes: &[(u64, Outcome)]) {
        for (ticket, _) in outcomes {
            *self.done.lock() = ticket + 1;
            self.more.notify_all();
            if let Some((journal, epoch)) = &*self.journal.lock()
                && ticket + 1 < CHAIN
            {
                let next = draft(1, ticket + 1, payload(*ticket, 10));
                propose(journal, Proposal::data(*epoch, ticket + 1, vec![next]));
            }
        }
    }
}

#[test]
fn a_sink_may_propose() {
    let dir = TempDir::new("chain");
    let mut config = Config::new(dir.0.clone(), identity());
    config.disk_reserve_bytes = 0;
    let (journal, _) = open_in(&env(), config, Index(0)).expect("opens");
    let journal = Arc::new(journal);
    let sink = Arc::new(Chain::default());
    journal.attach(sink.clone());
    journal.run_threads().expect("starts");
    let epoch = journal.acquire().expect("a term");
    *sink.journal.lock() = Some((journal.clone(), epoch));
    propose(&journal, Proposal::data(epoch, 0, vec![draft(1, 0, payload(0, 10))]));
    let mut done = sink.done.lock();
    while *done < CHAIN {
        sink.more.wait(&mut done);
    }
    drop(done);
    *sink.journal.lock() = None;
    journal.shutdown().expect("ends");
}

#[test]
fn an_engines_append_is_flushed_by_the_threads() {
    let dir = TempDir::new("engine");
    let (journal, _, _) = start(&dir, |_| {});
    let next = journal.view().next;
    let (tell, hear) = std::sync::mpsc::channel();
    let frame = polylogue_log::journal::Append {
        term: Term(50),
        index: next,
        leader: identity().node,
        time_ms: 0,
        kind: polylogue_log::Kind::Data,
        content: polylogue_log::journal::Content::Opaque(payload(1, 100)),
    };
    journal.append(vec![frame], Box::new(move |done| tell.send(done.is_ok()).expect("heard"))).expect("appends");
    assert!(hear.recv().expect("called"));
    journal.shutdown().expect("ends");
}

#[test]
fn an_idle_journal_marks_what_is_durable_by_itself() {
    let dir = TempDir::new("mark");
    let (journal, sink, epoch) = start(&dir, |c| c.mark_idle_ms = 1);
    // Counted before the proposal: its mark may be written before this thread continues.
    let frames = journal.stats().frames;
    propose(&journal, Proposal::data(epoch, 0, vec![draft(1, 0, payload(0, 10))]));
    sink.wait_for(1);
    while journal.stats().frames < frames + 2 {
        std::thread::yield_now();
    }
    journal.shutdown().expect("ends");
}

#[test]
fn files_are_recycled_while_the_threads_write() {
    let dir = TempDir::new("recycle");
    let (journal, sink, epoch) = start(&dir, |c| c.prewrite_bytes_per_sec = 1 << 40);
    let mut done = 0;
    for round in 0..30u64 {
        for i in 0..20 {
            let ticket = round * 20 + i;
            propose(&journal, Proposal::data(epoch, ticket, vec![draft(1, ticket, payload(ticket, 20_000))]));
            done += 1;
        }
        sink.wait_for(done);
        let durable = journal.view().durable.expect("durable");
        journal.release(durable).expect("releases");
    }
    while journal.stats().files_recycled == 0 {
        std::thread::yield_now();
    }
    let stats = journal.stats();
    assert!(stats.files_begun >= 10, "{stats:?}");
    journal.shutdown().expect("ends");
}
