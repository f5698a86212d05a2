//! Random calls of a log storage, each held against a plain list; with starts after clean stops and power cuts in between.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use super::life::Life;
use super::{Command, RaftEntry, RaftLogId, RaftVote, log_id, term_of};
use bytes::Bytes;
use openraft::storage::RaftLogStorage;
use openraft::{EntryPayload, LogState, RaftLogReader};
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimRng, SimWorld};
use polylogue_types::{Index, Term};
use std::io;

/// Calls in one run.
const CALLS: usize = 120;
/// The largest body of an entry: several fill a file. Bytes.
const BODY_BYTES_MAX: u64 = 9_000;

/// What has happened; a run in which nothing happens shows nothing.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    entries: u64,
    refused: u64,
    truncations: u64,
    purges: u64,
    snapshots: u64,
    starts: u64,
    power_cuts: u64,
    files: u64,
}

impl Counts {
    pub fn add(&mut self, other: Counts) {
        self.entries += other.entries;
        self.refused += other.refused;
        self.truncations += other.truncations;
        self.purges += other.purges;
        self.snapshots += other.snapshots;
        self.starts += other.starts;
        self.power_cuts += other.power_cuts;
        self.files += other.files;
    }

    /// # Panics
    /// When something has not happened.
    pub fn check(&self) {
        let logs = [self.refused, self.truncations, self.purges, self.snapshots];
        let lives = [self.starts, self.power_cuts, self.files];
        let enough = logs.iter().chain(&lives).all(|n| *n > 20);
        assert!(self.entries > 1_000 && enough, "the runs show too little: {self:?}");
    }
}

/// What the log must be.
#[derive(Default)]
struct Model {
    purged: Option<RaftLogId>,
    entries: Vec<RaftEntry>,
    vote: Option<RaftVote>,
    /// What was saved as committed since the last flush, behind the last one before; a power cut leaves one of them.
    committed: Vec<Option<RaftLogId>>,
}

impl Model {
    fn last(&self) -> Option<RaftLogId> {
        self.entries.last().map(|e| e.log_id).or(self.purged)
    }

    fn next(&self) -> u64 {
        self.last().map_or(0, |id| id.index() + 1)
    }

    fn id_at(&self, index: u64) -> Option<RaftLogId> {
        self.entries.iter().map(|e| e.log_id).find(|id| id.index() == index)
    }

    fn committed(&self) -> Option<RaftLogId> {
        self.committed.last().copied().flatten()
    }

    /// What the log says is committed when this was saved: what is purged is committed too, but a log that has heard of
    /// nothing says nothing.
    fn shown(&self, saved: Option<RaftLogId>) -> Option<RaftLogId> {
        saved.and_then(|id| Some(id).max(self.purged))
    }

    fn flushed(&mut self) {
        self.committed = vec![self.committed()];
    }
}

struct Run {
    world: SimWorld,
    rng: SimRng,
    life: Life,
    model: Model,
    counts: Counts,
}

/// One random run.
pub async fn run(seed: u64) -> Counts {
    let world = SimWorld::new(seed);
    let life = Life::start(&world, Index(0));
    let rng = SimRng::derive(seed, "calls");
    let model = Model { committed: vec![None], ..Model::default() };
    let mut run = Run { world, rng, life, model, counts: Counts::default() };
    for _ in 0..CALLS {
        run.call().await;
        run.compare().await;
    }
    run.counts
}

impl Run {
    async fn call(&mut self) {
        self.world.clock.advance_ms(self.rng.below(20));
        match self.rng.below(100) {
            0..40 => self.append().await,
            40..45 => self.append_on_a_full_disk().await,
            45..55 => self.truncate().await,
            55..65 => self.purge().await,
            65..68 => self.install_snapshot().await,
            68..75 => self.vote().await,
            75..85 => self.commit().await,
            85..90 => while self.life.journal.background_step() {},
            90..93 => self.life.journal.seal_current(),
            93..96 => self.start(false).await,
            _ => self.start(true).await,
        }
    }

    fn draw_entries(&self) -> Vec<RaftEntry> {
        let mut term = self.model.last().map_or(1, |id| term_of(&id).0);
        let next = self.model.next();
        let mut entries = Vec::new();
        for index in next..next + 1 + self.rng.below(6) {
            term += u64::from(self.rng.chance(150_000));
            let body = vec![index as u8; self.rng.below(BODY_BYTES_MAX) as usize];
            let payload = match self.rng.below(2) {
                0 => EntryPayload::Blank,
                _ => EntryPayload::Normal(Command::Cut(Bytes::from(body))),
            };
            entries.push(RaftEntry { log_id: log_id(Term(term), Index(index)), payload });
        }
        entries
    }

    async fn append(&mut self) {
        let entries = self.draw_entries();
        self.life.append(entries.clone()).await;
        self.appended(entries);
    }

    fn appended(&mut self, entries: Vec<RaftEntry>) {
        self.counts.entries += entries.len() as u64;
        self.model.entries.extend(entries);
        self.model.flushed();
    }

    /// One of the writes finds no room: all of the entries are there, or none.
    async fn append_on_a_full_disk(&mut self) {
        let nth = 1 + self.rng.below(4);
        self.world.disk.inject(Fault::nth(FaultOp::Write, nth, FaultKind::NoSpace));
        let entries = self.draw_entries();
        match self.life.try_append(entries.clone()).await {
            Ok(()) => self.appended(entries),
            Err(e) => {
                assert_eq!(e.kind(), io::ErrorKind::StorageFull, "{e}");
                self.counts.refused += 1;
            }
        }
        self.world.disk.clear_faults();
        while self.life.journal.background_step() {}
    }

    /// What is committed is never truncated.
    async fn truncate(&mut self) {
        let first = self.model.committed().max(self.model.purged).map_or(0, |id| id.index() + 1);
        let next = first + self.rng.below(self.model.next() - first + 1);
        let after = next.checked_sub(1).and_then(|i| self.model.id_at(i)).or(self.model.purged);
        self.life.log.truncate_after(after).await.expect("truncation");
        if next < self.model.next() {
            self.counts.truncations += 1;
            self.model.flushed();
        }
        self.model.entries.retain(|e| e.log_id.index() < next);
    }

    async fn purge(&mut self) {
        let Some(first) = self.model.entries.first().map(|e| e.log_id.index()) else { return };
        let count = self.rng.below(self.model.entries.len() as u64);
        self.purge_to(self.model.id_at(first + count).expect("it is there")).await;
        self.counts.purges += 1;
    }

    /// A snapshot is installed that is ahead of the log.
    async fn install_snapshot(&mut self) {
        let term = self.model.last().map_or(1, |id| term_of(&id).0) + self.rng.below(2);
        let upto = log_id(Term(term), Index(self.model.next() + self.rng.below(50)));
        self.purge_to(upto).await;
        self.counts.snapshots += 1;
    }

    async fn purge_to(&mut self, upto: RaftLogId) {
        self.life.log.purge(upto).await.expect("purge");
        self.model.entries.retain(|e| e.log_id.index() > upto.index());
        self.model.purged = Some(upto);
        self.model.flushed();
    }

    async fn vote(&mut self) {
        let term = self.model.vote.map_or(0, |v| v.leader_id.term) + self.rng.below(3);
        let mut vote = RaftVote::new(term, self.rng.below(3));
        vote.committed = self.rng.chance(500_000);
        self.life.log.save_vote(&vote).await.expect("a vote");
        self.model.vote = Some(vote);
        self.model.flushed();
    }

    async fn commit(&mut self) {
        let first = self.model.committed().max(self.model.purged).map_or(0, |id| id.index() + 1);
        let Some(id) = self.model.id_at(first + self.rng.below(5)) else { return };
        self.life.log.save_committed(Some(id)).await.expect("committed");
        self.model.committed.push(Some(id));
    }

    async fn start(&mut self, power_cut: bool) {
        self.counts.files += self.life.journal.sealed_files().len() as u64;
        self.counts.starts += 1;
        if power_cut {
            self.world.crash();
            self.counts.power_cuts += 1;
        } else {
            self.life.journal.shutdown().expect("a clean stop");
            self.model.flushed();
        }
        let from = self.model.purged.map_or(Index(0), |id| Index(id.index() + 1));
        self.life = Life::start(&self.world, from);
        let found = self.life.log.read_committed().await.expect("committed");
        let survivor = self.model.committed.iter().find(|saved| self.model.shown(**saved) == found);
        assert!(survivor.is_some(), "{found:?} was not saved: {:?}", self.model.committed);
        self.model.committed = survivor.into_iter().copied().collect();
    }

    async fn compare(&mut self) {
        let log = &mut self.life.log;
        let state = LogState { last_purged_log_id: self.model.purged, last_log_id: self.model.last() };
        assert_eq!(log.get_log_state().await.expect("state"), state);
        assert_eq!(log.read_vote().await.expect("vote"), self.model.vote);
        let committed = self.model.shown(self.model.committed());
        assert_eq!(log.read_committed().await.expect("committed"), committed);
        assert_eq!(self.life.entries().await, self.model.entries);
    }
}
