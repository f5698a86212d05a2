//! Everything at once, in an order that a seed chooses: proposals of all kinds, steps, changes of writer, trims, a full
//! disk, power cuts. After each life what was reported and what can be read are compared with what was accepted.

use super::{Case, Maker, Mark, follows, marks};
use crate::{Role, Work};
use polylogue_env::sim::SimRng;
use polylogue_log::journal::{Outcome, Proposal, Refused, Urgency};
use polylogue_log::{ErrorKind, Frame};
use polylogue_types::{Index, PartitionId, Term};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Things that are done in one schedule.
const ACTIONS: u64 = 400;
/// Sizes of entries: all of a proposal fits into one frame. Bytes.
const SIZES: [usize; 8] = [0, 40, 40, 700, 700, 5_000, 5_000, 60_000];
/// Partitions, from this one on.
const PARTITION: u64 = 2000;

pub(super) fn all(make: Maker<'_>, seeds: u64) {
    let mut total = Counts::default();
    for seed in 0..seeds {
        let place = make(seed);
        let mut run = Run::new(Case::in_place(place, Index(0)), seed);
        run.go();
        total.add(&run.counts);
    }
    total.check(seeds);
}

/// What has happened. A run in which nothing happens shows nothing.
#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    committed: u64,
    not_committed: u64,
    unknown: u64,
    busy: u64,
    fenced: u64,
    terms: u64,
    trims: u64,
    write_faults: u64,
    crashes: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.committed += other.committed;
        self.not_committed += other.not_committed;
        self.unknown += other.unknown;
        self.busy += other.busy;
        self.fenced += other.fenced;
        self.terms += other.terms;
        self.trims += other.trims;
        self.write_faults += other.write_faults;
        self.crashes += other.crashes;
    }

    fn check(&self, seeds: u64) {
        let enough = self.committed > 50 * seeds && self.terms > 2 * seeds && self.fenced > seeds;
        let rare = self.busy.min(self.trims) > seeds / 4;
        assert!(enough && rare, "the schedules show too little: {self:?}");
        assert!(self.write_faults == 0 || self.not_committed > seeds / 4, "no fault hit a proposal: {self:?}");
        assert!(self.crashes == 0 || self.unknown > 0, "no power cut hit a proposal: {self:?}");
    }
}

/// A proposal that was taken.
#[derive(Debug)]
struct Accepted {
    ticket: u64,
    /// What it says, with the partition of each entry, in the order in which the log has them.
    entries: Vec<(PartitionId, Mark)>,
    outcome: Option<Outcome>,
}

struct Run {
    /// `None` only between two lives.
    case: Option<Case>,
    rng: SimRng,
    next_ticket: u64,
    accepted: BTreeMap<u64, Accepted>,
    /// The first ticket of this life.
    life: u64,
    term: Option<Term>,
    old_term: Option<Term>,
    highest_term: Term,
    /// A write has failed since the writer was acquired.
    may_lose_writer: bool,
    trimmed: Option<Index>,
    counts: Counts,
}

impl Run {
    fn new(case: Case, seed: u64) -> Run {
        let rng = SimRng::derive(seed, "schedule");
        let (next_ticket, life, accepted, highest_term, may_lose_writer) = Default::default();
        let (term, old_term, trimmed, counts) = Default::default();
        let case = Some(case);
        Run { case, rng, next_ticket, accepted, life, term, old_term, highest_term, may_lose_writer, trimmed, counts }
    }

    fn case(&self) -> &Case {
        self.case.as_ref().expect("a life")
    }

    fn go(&mut self) {
        for _ in 0..ACTIONS {
            self.act();
        }
        self.end_cleanly();
    }

    fn act(&mut self) {
        let log = &self.case().log;
        match self.rng.below(1000) {
            0..500 => self.propose(),
            500..620 => _ = log.step(Work::Write),
            620..740 => _ = log.step(Work::Flush),
            740..800 => _ = log.step(Work::Background),
            800..860 => self.case().place.pass_ms(self.rng.below(30)),
            860..890 => self.acquire(),
            890..930 => self.propose_late(),
            930..950 => self.read(),
            950..970 => self.trim(),
            970..990 => self.fail_write(),
            990..995 => self.burst(),
            _ => self.crash(),
        }
    }

    fn draw(&mut self, term: Term) -> (Proposal, Accepted) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let count = 1 + self.rng.below(3);
        let mut entries = Vec::new();
        let mut says = Vec::new();
        for entry in 0..count {
            let partition = PARTITION + self.rng.below(4);
            let mark = Mark { term, ticket, entry };
            let size = SIZES[self.rng.below(SIZES.len() as u64) as usize];
            entries.push(mark.draft(partition, size));
            says.push((PartitionId(partition), mark));
        }
        says.sort_by_key(|(partition, _)| *partition);
        let urgency = if self.rng.chance(250_000) { Urgency::Lazy } else { Urgency::Urgent };
        let proposal = Proposal { urgency, ..Proposal::data(term, ticket, entries) };
        (proposal, Accepted { ticket, entries: says, outcome: None })
    }

    fn propose(&mut self) {
        let Some(term) = self.term else { return self.acquire() };
        let (proposal, accepted) = self.draw(term);
        match self.case().log.try_propose(proposal) {
            Ok(()) => _ = self.accepted.insert(accepted.ticket, accepted),
            Err(Refused { kind: ErrorKind::Busy, .. }) => self.counts.busy += 1,
            Err(Refused { kind: ErrorKind::Fenced, .. }) if self.may_lose_writer => {
                assert_ne!(self.case().log.view().role, Role::Writer);
                self.old_term = self.term.take();
                self.counts.fenced += 1;
            }
            Err(Refused { kind: ErrorKind::StorageFull, .. }) if self.may_lose_writer => {}
            Err(refused) => panic!("a proposal of the writer's term was refused: {:?}", refused.kind),
        }
    }

    /// More at once than the queue takes.
    fn burst(&mut self) {
        for _ in 0..80 {
            self.propose();
        }
    }

    /// A proposer has not learned that the term is over.
    fn propose_late(&mut self) {
        let Some(old) = self.old_term else { return };
        let (proposal, _) = self.draw(old);
        let refused = self.case().log.try_propose(proposal).expect_err("the old term is over");
        assert_eq!(refused.kind, ErrorKind::Fenced);
        self.counts.fenced += 1;
    }

    fn acquire(&mut self) {
        match self.case().log.acquire() {
            Ok(term) => {
                assert!(term > self.highest_term, "terms grow");
                self.highest_term = term;
                self.old_term = self.term.replace(term).or(self.old_term);
                self.counts.terms += 1;
            }
            Err(e) => {
                assert!(self.may_lose_writer && e.kind == ErrorKind::StorageFull, "the writer cannot be acquired: {e}");
                self.old_term = self.term.take().or(self.old_term);
            }
        }
    }

    fn read(&self) {
        let read = self.case().read_all();
        let committed = self.case().log.view().committed;
        assert!(read.last().is_none_or(|f| Some(f.index) <= committed), "nothing uncommitted is shown");
    }

    fn trim(&mut self) {
        let view = self.case().log.view();
        let Some(committed) = view.committed else { return };
        let upto = Index(self.rng.below(committed.0 + 1));
        // Where the class lets more be committed than is durable, no checkpoint goes beyond the latter.
        if view.durable.is_some_and(|durable| upto > durable) {
            return;
        }
        match self.case().log.trim(upto) {
            Ok(()) => {
                assert!(self.case().log.view().first > upto, "what was trimmed cannot be read");
                self.trimmed = self.trimmed.max(Some(upto));
                self.counts.trims += 1;
            }
            Err(e) => assert!(self.may_lose_writer && e.kind == ErrorKind::StorageFull, "cannot trim: {e}"),
        }
    }

    fn fail_write(&mut self) {
        if self.case().place.fail_write() {
            self.may_lose_writer = true;
            self.counts.write_faults += 1;
        }
    }

    fn crash(&mut self) {
        self.take_outcomes();
        let Some(case) = self.case.take() else { return };
        let reported = case.frames();
        if !case.place.crash() {
            self.case = Some(case);
            return;
        }
        let from = self.trimmed.map_or(Index(0), Index::next);
        self.case = Some(Case::in_place(case.place, from));
        self.begin_life(&reported);
    }

    /// Starts a new life of the log: compares the frames that the last one reported with those in the log.
    fn begin_life(&mut self, reported: &[Arc<Frame>]) {
        (self.life, self.term, self.may_lose_writer) = (self.next_ticket, None, false);
        self.counts.crashes += 1;
        let read = self.case().read_all();
        let by_index: BTreeMap<Index, &Arc<Frame>> = read.iter().map(|f| (f.index, f)).collect();
        for frame in reported.iter().filter(|f| Some(f.index) > self.trimmed) {
            let there = by_index.get(&frame.index);
            let there = there.unwrap_or_else(|| panic!("frame {} was committed and is gone", frame.index));
            assert_eq!((there.term, there.time_ms), (frame.term, frame.time_ms), "frame {} has changed", frame.index);
        }
        self.check(&read);
        // What was unknown is known now: the log has it, or it never will.
        let ends: BTreeMap<u64, Index> = marks(&read).into_iter().map(|(_, i, mark)| (mark.ticket, i)).collect();
        let unknown = |a: &&mut Accepted| matches!(a.outcome, None | Some(Outcome::Unknown));
        for accepted in self.accepted.values_mut().filter(unknown) {
            let end = ends.get(&accepted.ticket);
            accepted.outcome = Some(end.map_or(Outcome::NotCommitted, |index| Outcome::Committed(*index)));
            self.counts.unknown += 1;
        }
    }

    fn end_cleanly(&mut self) {
        self.case().settle();
        self.take_outcomes();
        let open: Vec<u64> = self.accepted.values().filter(|a| a.outcome.is_none()).map(|a| a.ticket).collect();
        assert_eq!(open, [], "every accepted proposal has an outcome");
        self.check(&self.case().read_all());
        self.check(&self.case().frames());
    }

    /// Notes the outcomes of this life: each accepted proposal has at most one, in the order of acceptance.
    fn take_outcomes(&mut self) {
        let outcomes = self.case().outcomes();
        let mut reported = outcomes.iter();
        for accepted in self.accepted.range_mut(self.life..).map(|(_, a)| a) {
            let Some((ticket, outcome)) = reported.next() else { break };
            assert_eq!(*ticket, accepted.ticket, "outcomes come in the order of acceptance, each once");
            if accepted.outcome.replace(*outcome).is_none() {
                match outcome {
                    Outcome::Committed(_) => self.counts.committed += 1,
                    Outcome::NotCommitted => self.counts.not_committed += 1,
                    Outcome::Unknown => {}
                }
            }
        }
        assert_eq!(reported.next(), None, "an outcome of a proposal that was not accepted");
    }

    /// Holds frames against what was accepted.
    fn check(&self, frames: &[Arc<Frame>]) {
        let Some(first) = frames.first().map(|f| f.index) else { return };
        for pair in frames.windows(2) {
            follows(&pair[0], &pair[1]);
        }
        let mut found: BTreeMap<u64, (Index, Vec<(PartitionId, Mark)>)> = BTreeMap::new();
        let mut last: BTreeMap<PartitionId, Mark> = BTreeMap::new();
        for (partition, index, mark) in marks(frames) {
            let before = last.insert(partition, mark);
            assert!(before.is_none_or(|b| b < mark), "partition {partition}: {mark:?} stands behind {before:?}");
            let (place, says) = found.entry(mark.ticket).or_insert((index, Vec::new()));
            assert_eq!(*place, index, "ticket {} stands in two frames", mark.ticket);
            says.push((partition, mark));
        }
        for (ticket, (index, says)) in &found {
            let Some(accepted) = self.accepted.get(ticket) else { panic!("ticket {ticket} was never accepted") };
            assert_eq!(*says, accepted.entries, "ticket {ticket} is not what was proposed");
            match accepted.outcome {
                Some(Outcome::NotCommitted) => panic!("ticket {ticket} is not committed and is there"),
                Some(Outcome::Committed(reported)) => assert_eq!(reported, *index, "ticket {ticket} is elsewhere"),
                Some(Outcome::Unknown) | None => {}
            }
        }
        for accepted in self.accepted.values() {
            if let Some(Outcome::Committed(index)) = accepted.outcome {
                let there = index < first || found.contains_key(&accepted.ticket);
                assert!(there, "ticket {} was committed at index {index} and is gone", accepted.ticket);
            }
        }
    }
}
