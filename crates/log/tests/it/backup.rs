//! Tests of copies of one or two shards taken while they work: each opens, is sound, and contains exactly the state at its cut.
#![allow(clippy::expect_used, reason = "the helpers are part of the tests")]

use crate::journal_common;

use journal_common::{config, draft, identity, payload};
use parking_lot::Mutex;
use polylogue_env::sim::{SimRng, SimWorld};
use polylogue_env::{Env, OpenMode};
use polylogue_log::backup::{CutFile, ShardCut, Source, cut};
use polylogue_log::check::check;
use polylogue_log::checkpoint::ChunkKey;
use polylogue_log::journal::{CommitSink, Durability, Identity, Journal, Outcome, Proposal, Urgency};
use polylogue_log::store::{MergePlan, MergeProgress, ShardStore, StoreConfig};
use polylogue_log::{ErrorKind, Frame};
use polylogue_types::{Offset, PartitionId, ShardId, Term};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Applies committed frames and records acknowledged tickets.
struct Sink {
    store: ShardStore,
    committed: Mutex<BTreeSet<u64>>,
}

impl CommitSink for Sink {
    fn committed(&self, frames: &[Arc<Frame>], outcomes: &[(u64, Outcome)]) {
        for frame in frames {
            self.store.apply(frame).expect("frames come in order");
        }
        let committed = outcomes.iter().filter(|(_, o)| matches!(o, Outcome::Committed(_)));
        self.committed.lock().extend(committed.map(|(ticket, _)| *ticket));
    }
}

/// The expected content of a shard.
#[derive(Clone, Debug, Default)]
struct Model {
    /// Entries by partition and offset: the ticket that wrote each, and its length.
    partitions: BTreeMap<u64, Vec<(u64, usize)>>,
    trimmed: BTreeMap<u64, u64>,
}

struct Shard {
    dir: PathBuf,
    store: ShardStore,
    journal: Journal,
    sink: Arc<Sink>,
    epoch: Term,
    plan: Option<MergePlan>,
    model: Model,
    /// Number of checkpoints.
    checkpoints: u64,
}

fn store_config(adopt: bool) -> StoreConfig {
    StoreConfig {
        tail_cache_bytes: 20 << 10,
        index_interval_bytes: 1024,
        merge_bytes: 200 << 10,
        merge_step_bytes: 32 << 10,
        compact_segments: 2,
        adopt_run_bytes_min: if adopt { 2000 } else { u64::MAX },
        short_class_max: 0,
        ..StoreConfig::default()
    }
}

fn start(env: &Env, root: &str, shard: u32, adopt: bool) -> Shard {
    let dir = Path::new(root).join(format!("shard-{shard}"));
    env.disk.create_dir_all(&dir).expect("a directory");
    for dir in [Path::new("/"), Path::new(root)] {
        env.disk.sync_dir(dir).expect("a flush");
    }
    let (store, opened) = ShardStore::open(env.clone(), &dir, store_config(adopt)).expect("a store");
    assert!(opened.lost.is_empty() && opened.removed.is_empty(), "{opened:?}");
    let durability = if shard == 0 { Durability::Sync } else { Durability::Async };
    let identity = Identity { shard: ShardId(shard), ..identity() };
    let config = polylogue_log::journal::Config { dir: dir.clone(), identity, durability, ..config() };
    let replay = &mut |frame| store.apply(&Arc::new(frame));
    let journal = Journal::open(env, config, store.journal_from(), replay).expect("a journal");
    let sink = Arc::new(Sink { store: store.clone(), committed: Mutex::default() });
    journal.attach(sink.clone());
    let epoch = journal.acquire().expect("a term");
    Shard { dir, store, journal, sink, epoch, plan: None, model: Model::default(), checkpoints: 0 }
}

impl Shard {
    fn settle(&self) {
        while self.journal.write_step() | self.journal.flush_step() {}
    }

    /// Proposes an entry; it is in the model from then on, and may be uncommitted.
    fn write(&mut self, ticket: u64, partition: u64, len: usize, urgency: Urgency) {
        let entries = self.model.partitions.entry(partition).or_default();
        let draft = draft(partition, entries.len() as u64, payload(ticket, len));
        let proposal = Proposal { urgency, ..Proposal::data(self.epoch, ticket, vec![draft]) };
        if self.journal.try_propose(proposal).is_ok() {
            entries.push((ticket, len));
        }
    }

    fn merge_step(&mut self) {
        let class = |_: PartitionId| 1u8;
        if self.plan.is_none()
            && let Some(due) = self.store.merge_due(0, &self.journal, &class)
        {
            self.plan = self.store.plan_merge(due.upto, &self.journal, &class).expect("a plan");
        }
        let Some(mut plan) = self.plan.take() else { return };
        match self.store.run_merge_step(&mut plan, &self.journal) {
            Ok(MergeProgress::More { .. }) => self.plan = Some(plan),
            Ok(MergeProgress::Done(_)) => {}
            Err(e) => assert_eq!(e.kind, ErrorKind::Busy, "{e}"),
        }
    }

    /// As in a broker, a checkpoint never covers more than what is durable.
    fn checkpoint(&mut self) {
        let Some(durable) = self.journal.view().durable else { return };
        let applied = self.store.applied().map_or(durable, |a| a.min(durable));
        self.checkpoints += 1;
        let number = bytes::Bytes::copy_from_slice(&self.checkpoints.to_le_bytes());
        let key = ChunkKey { kind: b'n', id: bytes::Bytes::from_static(b"number") };
        self.store.checkpoints().expect("checkpoints").write(applied, [(key, Some(number))]).expect("a checkpoint");
        self.store.release_journal(&self.journal).expect("a release");
    }

    fn trim(&mut self, rng: &SimRng) {
        let partition = rng.below(5);
        let end = self.model.partitions.get(&partition).map_or(0, Vec::len) as u64;
        let at = self.model.trimmed.get(&partition).copied().unwrap_or(0);
        let to = at + (end - at) / 2;
        if self.store.partition_stats(PartitionId(partition)).is_some_and(|s| s.end >= Offset(to)) {
            self.store.trim(PartitionId(partition), Offset(to));
            self.model.trimmed.insert(partition, to);
        }
    }

    fn busy(&mut self, rng: &SimRng, ticket: &mut u64, adopt: bool) {
        for _ in 0..=rng.below(4) {
            let len = if adopt { 2000 + rng.below(6000) } else { rng.below(2000) } as usize;
            *ticket += 1;
            let urgency = if rng.below(4) == 0 { Urgency::Lazy } else { Urgency::Urgent };
            self.write(*ticket, rng.below(5), len, urgency);
        }
        match rng.below(5) {
            0 => drop(self.journal.write_step()),
            1 => drop(self.journal.flush_step()),
            _ => self.settle(),
        }
        while self.journal.background_step() {}
        if rng.below(5) == 0 {
            self.checkpoint();
        }
        for _ in 0..rng.below(3) {
            self.merge_step();
        }
        if rng.below(6) == 0 {
            self.trim(rng);
        }
        if rng.below(3) == 0 {
            self.store.reclaim_step().expect("room");
        }
    }

    /// Compares the content with a model: everything acknowledged is present, and everything present was written.
    fn verify(&self, model: &Model, acknowledged: &BTreeSet<u64>, what: &str) {
        for (partition, entries) in &model.partitions {
            let id = PartitionId(*partition);
            let end = self.store.partition_stats(id).map_or(0, |s| s.end.0);
            let promised = entries.iter().rposition(|(ticket, _)| acknowledged.contains(ticket)).map_or(0, |at| at + 1);
            assert!(end >= promised as u64, "{what}: partition {partition} ends at {end}, {promised} was acknowledged");
            assert!(end <= entries.len() as u64, "{what}: partition {partition}: {end} was never written");
            let mut at = model.trimmed.get(partition).copied().unwrap_or(0);
            self.store.trim(id, Offset(at));
            while at < end {
                let found = self.store.read(id, Offset(at), 5000, true).and_then(|l| l.wait());
                let found = found.unwrap_or_else(|e| unreachable!("{what}: partition {partition} at {at}: {e}"));
                let mut bytes = Vec::new();
                found.chunks.iter().for_each(|chunk| bytes.extend_from_slice(&chunk.to_bytes().expect("bytes")));
                let mut rest = &bytes[..];
                for (ticket, len) in &entries[at as usize..found.next.0 as usize] {
                    let (mine, others) = rest.split_at(*len);
                    assert!(mine == payload(*ticket, *len), "{what}: partition {partition}, ticket {ticket}");
                    rest = others;
                }
                assert!(rest.is_empty() && found.next.0 > at, "{what}: partition {partition} at {at}: {found:?}");
                at = found.next.0;
            }
        }
    }
}

/// A copy in progress.
struct Copying {
    cuts: Vec<(PathBuf, ShardCut)>,
    at: Option<(PathBuf, CutFile, u64)>,
    /// By shard: tickets acknowledged at the start, and written at the cut.
    acknowledged: Vec<BTreeSet<u64>>,
    models: Vec<Model>,
}

impl Copying {
    fn begin(env: &Env, shards: &[Shard]) -> Copying {
        let acknowledged = shards.iter().map(|s| s.sink.committed.lock().clone()).collect();
        let sources: Vec<_> = shards.iter().map(|s| Source { store: &s.store, journal: &s.journal }).collect();
        let cuts = cut(env, &sources).expect("a cut");
        for ((shard, source), cut) in shards.iter().zip(&sources).zip(&cuts) {
            assert!(shard.journal.view().durable >= cut.end(), "the cut is not durable");
            let again = refused(env, *source);
            assert_eq!(again, ErrorKind::Busy, "two at a time");
        }
        let dirs = (0..).map(|n| PathBuf::from(format!("/copy/shard-{n}")));
        let models = shards.iter().map(|s| s.model.clone()).collect();
        Copying { cuts: dirs.zip(cuts).collect(), at: None, acknowledged, models }
    }

    /// Copies about `bytes`; returns false at the end.
    fn step(&mut self, env: &Env, bytes: usize) -> bool {
        if self.at.is_none() {
            while let Some((dir, cut)) = self.cuts.first_mut() {
                if let Some(file) = cut.next_file().expect("a file") {
                    self.at = Some((dir.join(&file.name), file, 0));
                    break;
                }
                self.cuts.remove(0);
            }
        }
        let Some((path, file, position)) = &mut self.at else { return false };
        let mut piece = vec![0; bytes.min((file.len - *position) as usize)];
        file.read(&mut piece, *position).expect("bytes");
        let to = match *position {
            0 => {
                env.disk.create_dir_all(path.parent().expect("a directory")).expect("a directory");
                env.disk.open(path, OpenMode::CreateNew).expect("a file")
            }
            _ => env.disk.open(path, OpenMode::ReadWrite).expect("a file"),
        };
        to.write_all_at(&piece, *position).expect("a write");
        *position += piece.len() as u64;
        if *position == file.len {
            self.at = None;
        }
        true
    }
}

fn refused(env: &Env, source: Source<'_>) -> ErrorKind {
    cut(env, &[source]).map(|_| ()).expect_err("refused").kind
}

fn history(seed: u64) -> BTreeMap<&'static str, u64> {
    let rng = SimRng::derive(seed, "backup");
    let world = SimWorld::new(seed);
    let env = world.env();
    let adopt = seed.is_multiple_of(2);
    let mut shards = [start(&env, "/data", 0, adopt), start(&env, "/data", 1, adopt)];
    let mut ticket = 0;
    for _ in 0..rng.below(80) {
        shards.iter_mut().for_each(|shard| shard.busy(&rng, &mut ticket, adopt));
    }
    let mut copying = Copying::begin(&env, &shards);
    let at_cut: Vec<_> = shards.iter().map(|s| s.store.stats()).collect();
    let files_at_cut: u64 =
        shards.iter().map(|s| s.journal.stats().files_recycled + s.journal.stats().files_removed).sum();
    while copying.step(&env, 1 + rng.below(60 << 10) as usize) {
        if rng.below(2) == 0 {
            shards.iter_mut().for_each(|shard| shard.busy(&rng, &mut ticket, adopt));
        }
    }
    let mut done = BTreeMap::new();
    for (shard, before) in shards.iter().zip(at_cut) {
        let now = shard.store.stats();
        *done.entry("adopted").or_default() += now.adopted_bytes - before.adopted_bytes;
        *done.entry("merged").or_default() += now.merged_bytes - before.merged_bytes;
        *done.entry("punched").or_default() += now.punched_bytes - before.punched_bytes;
        *done.entry("segments").or_default() += before.segments as u64;
    }
    let files: u64 = shards.iter().map(|s| s.journal.stats().files_recycled + s.journal.stats().files_removed).sum();
    done.insert("let go", files - files_at_cut);
    let Copying { acknowledged, models, .. } = copying;
    for (number, (model, acknowledged)) in models.iter().zip(&acknowledged).enumerate() {
        let what = format!("seed {seed}, shard {number}");
        let dir = PathBuf::from(format!("/copy/shard-{number}"));
        let report = check(&env, &dir).expect("a report");
        assert!(report.is_sound(), "{what}: {report}");
        let mut copy = start(&env, "/copy", number as u32, adopt);
        copy.verify(model, acknowledged, &what);
        // The copy works like any other shard.
        copy.model = model.clone();
        for (partition, entries) in &mut copy.model.partitions {
            entries.truncate(copy.store.partition_stats(PartitionId(*partition)).map_or(0, |s| s.end.0) as usize);
        }
        for _ in 0..20 {
            copy.busy(&rng, &mut ticket, adopt);
        }
        copy.settle();
        copy.verify(&copy.model, &copy.sink.committed.lock().clone(), &what);
        let report = check(&env, &dir).expect("a report");
        assert!(report.is_sound(), "{what}, later: {report}");
    }
    // Files that the copy held back are removed, and the origin is unaffected.
    for shard in &mut shards {
        shard.settle();
        shard.plan = None;
        while shard.store.reclaim_step().expect("room").more {}
        shard.verify(&shard.model, &shard.sink.committed.lock().clone(), &format!("seed {seed}, origin"));
        assert!(check(&env, &shard.dir).expect("a report").is_sound());
        let names = env.disk.list(&shard.dir.join("segments")).expect("names").into_iter();
        let indexes = names.filter(|name| name.ends_with(".seg")).count();
        assert_eq!(indexes, shard.store.stats().segments, "files are left over");
    }
    done
}

#[test]
fn a_copy_of_shards_at_work_holds_exactly_what_was_there_at_its_cut() {
    let mut all: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in 0..40 {
        for (what, count) in history(seed) {
            *all.entry(what).or_default() += count;
        }
    }
    // Other work must have happened during the copy.
    let enough = [("adopted", 1 << 20), ("merged", 1 << 20), ("let go", 20), ("segments", 40), ("punched", 1 << 20)];
    for (what, least) in enough {
        assert!(all[what] >= least, "{what}: {all:?}");
    }
}
