//! Random work, crashes and faults over many restarts, checked by an oracle:
//! acknowledged entries are present, refused ones are absent, unknown ones are either, nothing is invented, the order is that of the proposals,
//! and what recovery has shown is never lost again.
#![allow(clippy::expect_used, reason = "the helpers are part of the tests")]

use crate::journal_common;

use journal_common::*;
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimRng, SimWorld};
use polylogue_log::frame::Frame;
use polylogue_log::journal::{Config, Draft, Durability, Outcome, Proposal, Urgency};
use polylogue_log::{ErrorKind, Kind};
use polylogue_types::{Index, Term};
use std::collections::{BTreeMap, BTreeSet};

const PARTITIONS: u64 = 5;
/// Restarts of one simulated system.
const LIVES: u64 = 8;

/// A proposal accepted since the last start.
struct Accepted {
    ticket: u64,
    entries: Vec<Entry>,
    /// Whether its commit needs a flush.
    flushed: bool,
    outcome: Option<Outcome>,
}

/// The expected content of the log.
struct Oracle {
    rng: SimRng,
    config: Config,
    /// Whether proposals have a durability of their own.
    mixed: bool,
    /// Entries of frames that recovery has shown or an outcome has promised, by index.
    known: BTreeMap<u64, Vec<Entry>>,
    released: Option<u64>,
    next_offset: BTreeMap<u64, u64>,
    ticket: u64,
    accepted: Vec<Accepted>,
    /// Number of outcomes, and of durable frames, that the current sink has reported.
    heard: usize,
    promised: usize,
    acknowledged: u64,
    refused: u64,
    crashes: u64,
}

impl Oracle {
    fn new(seed: u64, config: Config, mixed: bool) -> Oracle {
        Oracle {
            rng: SimRng::derive(seed, "driver"),
            config,
            mixed,
            known: BTreeMap::new(),
            released: None,
            next_offset: BTreeMap::new(),
            ticket: 0,
            accepted: Vec::new(),
            heard: 0,
            promised: 0,
            acknowledged: 0,
            refused: 0,
            crashes: 0,
        }
    }

    fn from(&self) -> Index {
        Index(self.released.map_or(0, |r| r + 1))
    }

    /// Recovery has shown these frames.
    fn begin_life(&mut self, visited: &[Frame]) {
        for pair in visited.windows(2) {
            assert_eq!(pair[1].index, pair[0].index.next(), "indexes have no gaps");
            assert!(pair[1].term >= pair[0].term && pair[1].time_ms >= pair[0].time_ms);
        }
        let shown: BTreeMap<u64, Vec<Entry>> = visited.iter().map(|f| (f.index.0, contents([f]))).collect();
        for (index, entries) in self.known.range(self.from().0..) {
            assert_eq!(shown.get(index), Some(entries), "index {index} was promised");
        }
        let promised = self.known.last_key_value().map_or(0, |(i, _)| i + 1);
        // The rest is a prefix of the outstanding proposals.
        let more: Vec<Entry> = shown.range(promised..).flat_map(|(_, e)| e.clone()).collect();
        self.check_more(&more);
        self.accepted.clear();
        self.heard = 0;
        self.promised = 0;
        self.known.extend(shown);
        self.next_offset.clear();
        for (partition, offset, _) in self.known.values().flatten() {
            let next = self.next_offset.entry(*partition).or_default();
            assert!(*next == 0 || *next == *offset, "partition {partition} jumps from {next} to {offset}");
            *next = offset + 1;
        }
    }

    /// Checks the entries above the promised ones: all are from proposals without a final outcome, in order.
    fn check_more(&self, more: &[Entry]) {
        let promised: BTreeSet<&Entry> = self.known.values().flatten().collect();
        let mut possible: Vec<Entry> = Vec::new();
        for accepted in &self.accepted {
            let entries = accepted.entries.iter().filter(|e| !promised.contains(e));
            match accepted.outcome {
                Some(Outcome::NotCommitted) => {}
                // Any part of these may be present, along with later proposals of another term.
                Some(Outcome::Unknown) => possible.extend(entries.filter(|e| more.contains(e))),
                None | Some(Outcome::Committed(_)) => possible.extend(entries),
            }
        }
        let mut sorted = more.to_vec();
        let mut prefix = possible.get(..more.len()).expect("nothing is invented").to_vec();
        // Within a frame entries are clustered by partition.
        sorted.sort_unstable();
        prefix.sort_unstable();
        assert_eq!(sorted, prefix, "what survives is a prefix of what was proposed");
    }

    /// Processes new events of the sink.
    fn listen(&mut self, node: &Node) {
        let heard = node.sink.0.lock();
        let durable = node.journal.view().durable;
        for (i, (ticket, outcome)) in heard.outcomes.iter().enumerate().skip(self.heard) {
            let accepted = &mut self.accepted[i];
            if let Outcome::Committed(index) = outcome {
                assert!(!accepted.flushed || Some(*index) <= durable, "ticket {ticket} is committed before its flush");
            }
            assert_eq!(accepted.ticket, *ticket, "outcomes come in the order of the proposals");
            accepted.outcome = Some(*outcome);
            self.acknowledged += u64::from(matches!(outcome, Outcome::Committed(_)));
            self.refused += u64::from(*outcome == Outcome::NotCommitted);
        }
        self.heard = heard.outcomes.len();
        while let Some(frame) = heard.frames.get(self.promised).filter(|f| Some(f.index) <= durable) {
            self.known.insert(frame.index.0, contents([&**frame]));
            self.promised += 1;
        }
    }

    fn propose(&mut self, node: &Node, epoch: Term) {
        let mut entries: Vec<Draft> = Vec::new();
        let mut offsets = self.next_offset.clone();
        for _ in 0..=self.rng.below(3) {
            let partition = self.rng.below(PARTITIONS);
            let offset = offsets.entry(partition).or_default();
            let len = match self.rng.below(20) {
                0 => 20_000,
                1..4 => 3_000,
                _ => self.rng.below(400),
            };
            entries.push(draft(partition, *offset, payload(self.ticket * 10 + entries.len() as u64, len as usize)));
            *offset += 1;
        }
        let mut expected: Vec<Entry> =
            entries.iter().map(|d| entry(d.envelope.partition.0, d.envelope.base_offset.0, &d.bytes)).collect();
        let whole: usize = entries.iter().map(|d| d.bytes.len() + 64).sum();
        if whole < self.config.frame_bytes_max {
            expected.sort_by_key(|(p, _, _)| *p);
        }
        let urgency = if self.rng.chance(300_000) { Urgency::Lazy } else { Urgency::Urgent };
        let reserve = self.rng.chance(100_000);
        let classes = [None, Some(Durability::Async), Some(Durability::Sync)];
        let class = if self.mixed { classes[self.rng.below(3) as usize] } else { None };
        let flushed = class.unwrap_or(self.config.durability) == Durability::Sync;
        let proposal = Proposal { urgency, class, reserve, ..Proposal::data(epoch, self.ticket, entries) };
        match node.journal.try_propose(proposal) {
            Ok(()) => {
                self.accepted.push(Accepted { ticket: self.ticket, entries: expected, flushed, outcome: None });
                self.next_offset = offsets;
            }
            Err(refused) => assert!(
                matches!(
                    refused.kind,
                    ErrorKind::Fenced | ErrorKind::StorageFull | ErrorKind::Stopped | ErrorKind::Busy
                ),
                "{:?}",
                refused.kind
            ),
        }
        self.ticket += 1;
    }

    /// One random step.
    fn work(&mut self, world: &SimWorld, node: &mut Node) {
        match self.rng.below(24) {
            0..10 => self.propose(node, node.epoch),
            10..14 => drop(node.journal.write_step()),
            14..17 => drop(node.journal.flush_step()),
            17..19 => drop(node.journal.background_step()),
            19..21 => world.clock.advance_ms(self.rng.below(15)),
            21 => world.clock.advance_ms(self.rng.below(2_000)),
            22 => match self.rng.below(4) {
                0 => node.journal.seal_current(),
                1 => self.reacquire(node),
                _ => self.release(node),
            },
            _ => node.settle(),
        }
        self.listen(node);
        if node.journal.view().epoch.is_none() {
            self.reacquire(node);
        }
    }

    /// A term ended: its assumptions about the tail are dropped.
    fn reacquire(&mut self, node: &mut Node) {
        let Ok(epoch) = node.journal.acquire() else { return };
        node.epoch = epoch;
        self.listen(node);
        self.next_offset.clear();
        let end = node.journal.view().next;
        let mut from = self.from().max(node.journal.view().first);
        for (partition, offset, _) in self.known.range(..from.0).flat_map(|(_, e)| e) {
            self.next_offset.insert(*partition, offset + 1);
        }
        while from < end {
            let frames = node.journal.read(from, 1 << 20).expect("reads");
            assert!(!frames.is_empty());
            for frame in frames {
                from = frame.index.next();
                for (partition, offset, _) in contents([&*frame]) {
                    self.next_offset.insert(partition, offset + 1);
                }
            }
        }
    }

    fn release(&mut self, node: &Node) {
        let view = node.journal.view();
        let (Some(durable), first) = (view.durable, view.first) else { return };
        if durable <= first {
            return;
        }
        let upto = first.0 + self.rng.below(durable.0 - first.0);
        match node.journal.release(Index(upto)) {
            Ok(()) => {}
            Err(e) => assert!(matches!(e.kind, ErrorKind::StorageFull | ErrorKind::Stopped), "{e}"),
        }
        // Even a failed release may be in the log; the caller does not repeat it.
        self.released = Some(upto.max(self.released.unwrap_or(0)));
    }

    fn crash(&mut self, world: &SimWorld) {
        self.crashes += 1;
        match self.rng.below(4) {
            0 => world.kill(),
            1 => {
                world.disk.crash_losing_all();
                world.crash();
            }
            _ => {
                world.crash();
            }
        }
    }
}

/// Runs one simulated system; returns the numbers of acknowledged and refused proposals, and of crashes.
fn live(seed: u64, config: Config, mixed: bool, faults: &dyn Fn(&SimRng, &SimWorld)) -> (u64, u64, u64) {
    let world = SimWorld::new(seed);
    let mut oracle = Oracle::new(seed, config.clone(), mixed);
    for _ in 0..LIVES {
        world.disk.clear_faults();
        // Recovery may be interrupted too.
        if oracle.rng.chance(200_000) {
            let n = 1 + oracle.rng.below(12);
            world.disk.inject(Fault::nth(FaultOp::AnyChange, n, FaultKind::PowerCut));
        }
        let started = open_in(&world.env(), config.clone(), oracle.from());
        let Ok((journal, visited)) = started else {
            let e = expect_err(started);
            assert!(world.disk.is_stopped(), "seed {seed}: {e}");
            oracle.crash(&world);
            continue;
        };
        oracle.begin_life(&visited);
        let sink = std::sync::Arc::new(Recorder::default());
        journal.attach(sink.clone());
        let mut node = Node { journal, sink, visited, epoch: Term(0) };
        oracle.reacquire(&mut node);
        faults(&oracle.rng, &world);
        for _ in 0..oracle.rng.below(400) {
            if world.disk.is_stopped() {
                break;
            }
            oracle.work(&world, &mut node);
        }
        oracle.listen(&node);
        if !world.disk.is_stopped() && oracle.rng.chance(200_000) {
            let ended = node.journal.shutdown();
            assert!(ended.is_ok() || world.disk.is_stopped());
            oracle.listen(&node);
        }
        oracle.crash(&world);
    }
    (oracle.acknowledged, oracle.refused, oracle.crashes)
}

fn seeds() -> u64 {
    std::env::var("JOURNAL_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(12)
}

fn many(config: Config, faults: &dyn Fn(&SimRng, &SimWorld)) -> (u64, u64) {
    many_of(config, false, faults)
}

fn many_of(config: Config, mixed: bool, faults: &dyn Fn(&SimRng, &SimWorld)) -> (u64, u64) {
    let first: u64 = std::env::var("JOURNAL_FIRST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let (mut acknowledged, mut refused) = (0, 0);
    for seed in first..first + seeds() {
        let before =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| live(seed, config.clone(), mixed, faults)));
        match before {
            Ok((a, r, _)) => {
                acknowledged += a;
                refused += r;
            }
            Err(e) => {
                eprintln!("seed {seed} failed");
                std::panic::resume_unwind(e);
            }
        }
    }
    (acknowledged, refused)
}

#[test]
fn nothing_acknowledged_is_lost_by_crashes() {
    let (acknowledged, _) = many(config(), &|_, _| {});
    assert!(acknowledged > 100 * seeds(), "{acknowledged} acknowledgements prove nothing");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_power_goes_during_an_operation() {
    let (acknowledged, _) = many(config(), &|rng, world| {
        let op = [FaultOp::AnyChange, FaultOp::Write, FaultOp::SyncData, FaultOp::Rename, FaultOp::SyncDir];
        let op = op[rng.below(5) as usize];
        world.disk.inject(Fault::nth(op, 1 + rng.below(60), FaultKind::PowerCut));
    });
    assert!(acknowledged > 10 * seeds(), "{acknowledged} acknowledgements prove nothing");
}

#[test]
fn nothing_is_acknowledged_after_a_failed_flush() {
    let (acknowledged, _) = many(config(), &|rng, world| {
        let op = [FaultOp::SyncData, FaultOp::SyncDir, FaultOp::Write, FaultOp::Rename, FaultOp::Create];
        let op = op[rng.below(5) as usize];
        world.disk.inject(Fault::nth(op, 1 + rng.below(40), FaultKind::Io));
    });
    assert!(acknowledged > 10 * seeds(), "{acknowledged} acknowledgements prove nothing");
}

#[test]
fn a_full_disk_refuses_and_loses_nothing() {
    let (acknowledged, refused) = many(config(), &|rng, world| {
        let chance = [2_000, 20_000, 200_000][rng.below(3) as usize];
        for op in [FaultOp::Write, FaultOp::Allocate, FaultOp::Create] {
            world.disk.inject(Fault::chance(op, chance, FaultKind::NoSpace));
        }
    });
    assert!(acknowledged > 10 * seeds(), "{acknowledged} acknowledgements prove nothing");
    assert!(refused > seeds(), "{refused} refusals prove nothing");
}

#[test]
fn an_async_journal_keeps_order_and_what_a_start_has_shown() {
    let mut config = config();
    config.durability = Durability::Async;
    config.async_flush_ms_max = 50;
    let (acknowledged, _) = many(config, &|_, _| {});
    assert!(acknowledged > 100 * seeds(), "{acknowledged} acknowledgements prove nothing");
}

/// Proposals of both classes in journals of either: none is committed too early, and order and guarantees are unchanged.
#[test]
fn classes_can_be_mixed() {
    for durability in [Durability::Sync, Durability::Async] {
        let config = Config { durability, async_flush_ms_max: 50, ..config() };
        let (acknowledged, _) = many_of(config, true, &|rng, world| {
            let op = [FaultOp::AnyChange, FaultOp::Write, FaultOp::SyncData][rng.below(3) as usize];
            world.disk.inject(Fault::nth(op, 1 + rng.below(400), FaultKind::PowerCut));
        });
        assert!(acknowledged > 50 * seeds(), "{acknowledged} acknowledgements prove nothing");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let world = SimWorld::new(77);
        let mut oracle = Oracle::new(77, config(), false);
        for _ in 0..3 {
            let (journal, visited) = open_in(&world.env(), config(), oracle.from()).expect("opens");
            oracle.begin_life(&visited);
            let sink = std::sync::Arc::new(Recorder::default());
            journal.attach(sink.clone());
            let mut node = Node { journal, sink, visited, epoch: Term(0) };
            oracle.reacquire(&mut node);
            for _ in 0..200 {
                oracle.work(&world, &mut node);
            }
            oracle.crash(&world);
        }
        world.disk.trace_hash()
    };
    assert_eq!(run(), run());
}

#[test]
fn a_directory_that_was_not_flushed_would_be_noticed() {
    // The oracle must detect a missing directory flush; this disk ignores them.
    let world = SimWorld::new(5);
    world.disk.inject(Fault::from(FaultOp::SyncDir, 1, FaultKind::Lie));
    let node = Node::start(&world, config()).expect("starts");
    assert!(matches!(node.write(1, 1, 0, 10), Some(Outcome::Committed(_))));
    world.disk.crash_losing_all();
    world.disk.clear_faults();
    let (_, visited) = open_in(&world.env(), config(), Index(0)).expect("opens");
    assert_eq!(kinds(&visited), [Kind::Membership], "the file's name was lost, and a new life began");
}
