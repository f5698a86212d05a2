//! Tests of the store on a real journal: write, merge, adopt, release, crash, restart.
#![allow(clippy::expect_used, reason = "the helpers are part of the tests")]

use crate::journal_common;

use journal_common::{config, draft, payload, shard_dir};
use parking_lot::Mutex;
use polylogue_env::sim::{SimRng, SimWorld};
use polylogue_log::Frame;
use polylogue_log::check::check;
use polylogue_log::journal::{CommitSink, Journal, Outcome, Proposal};
use polylogue_log::store::{MergeProgress, ShardStore, StoreConfig};
use polylogue_types::{Index, Offset, PartitionId, Term};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Applies committed frames and records acknowledged tickets.
struct Sink {
    store: ShardStore,
    committed: Mutex<Vec<u64>>,
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

struct Node {
    store: ShardStore,
    journal: Journal,
    sink: Arc<Sink>,
    epoch: Term,
}

fn store_config(adopt: bool) -> StoreConfig {
    StoreConfig {
        tail_cache_bytes: 20 << 10,
        index_interval_bytes: 1024,
        merge_bytes: 200 << 10,
        merge_step_bytes: 32 << 10,
        adopt_run_bytes_min: if adopt { 2000 } else { u64::MAX },
        short_class_max: 0,
        ..StoreConfig::default()
    }
}

fn start(world: &SimWorld, adopt: bool) -> Node {
    let env = world.env();
    env.disk.create_dir_all(&shard_dir()).expect("a directory");
    for dir in ["/", "/data"] {
        env.disk.sync_dir(Path::new(dir)).expect("a flush");
    }
    let (store, opened) = ShardStore::open(env.clone(), &shard_dir(), store_config(adopt)).expect("a store");
    assert!(opened.lost.is_empty(), "{opened:?}");
    let replay = &mut |frame| store.apply(&Arc::new(frame));
    let journal = Journal::open(&env, config(), store.journal_from(), replay).expect("a journal");
    let sink = Arc::new(Sink { store: store.clone(), committed: Mutex::default() });
    journal.attach(sink.clone());
    let epoch = journal.acquire().expect("a term");
    Node { store, journal, sink, epoch }
}

impl Node {
    fn settle(&self) {
        while self.journal.write_step() | self.journal.flush_step() {}
    }

    fn merge(&self) -> bool {
        let class = |_: PartitionId| 1u8;
        let Some(due) = self.store.merge_due(0, &self.journal, &class) else { return false };
        let mut plan = self.store.plan_merge(due.upto, &self.journal, &class).expect("a plan").expect("work");
        while let MergeProgress::More { .. } = self.store.run_merge_step(&mut plan, &self.journal).expect("a step") {}
        true
    }

    /// As in a broker, a checkpoint never covers more than what is durable.
    fn checkpoint(&self) {
        if let Some(durable) = self.journal.view().durable {
            let applied = self.store.applied().map_or(durable, |a| a.min(durable));
            self.store.checkpoints().expect("checkpoints").write(applied, []).expect("a checkpoint");
        }
    }
}

/// The expected entries by partition and offset, with the ticket that wrote each.
type Model = BTreeMap<u64, Vec<(u64, usize)>>;

fn verify(node: &Node, model: &Model, trimmed: &BTreeMap<u64, u64>) {
    for (partition, entries) in model {
        let mut at = trimmed.get(partition).copied().unwrap_or(0);
        while at < entries.len() as u64 {
            let found = node.store.read(PartitionId(*partition), Offset(at), 5000, true);
            let found = found.and_then(|l| l.wait()).expect("acknowledged entries");
            let mut bytes = Vec::new();
            for chunk in &found.chunks {
                bytes.extend_from_slice(&chunk.to_bytes().expect("bytes"));
            }
            assert_eq!(found.start, Offset(at), "partition {partition}");
            let mut rest = &bytes[..];
            for (ticket, len) in &entries[at as usize..found.next.0 as usize] {
                let (mine, others) = rest.split_at(*len);
                assert!(mine == payload(*ticket, *len), "partition {partition}, ticket {ticket}");
                rest = others;
            }
            assert!(rest.is_empty() && found.next.0 > at, "partition {partition} at {at}: {found:?}");
            at = found.next.0;
        }
        let stats = node.store.partition_stats(PartitionId(*partition)).expect("a partition");
        assert_eq!(stats.end, Offset(entries.len() as u64), "partition {partition}");
    }
}

fn history(seed: u64) -> (u64, u64, u64) {
    let rng = SimRng::derive(seed, "store on journal");
    let world = SimWorld::new(seed);
    // Long and short runs, so that files are adopted in some histories and merged in others.
    let adopt = seed.is_multiple_of(2);
    let mut node = start(&world, adopt);
    let (mut model, mut trimmed) = (Model::new(), BTreeMap::new());
    let (mut ticket, mut adopted, mut merged, mut released) = (0, 0, 0, 0);
    for round in 0..120 {
        let mut pending: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        for _ in 0..=rng.below(4) {
            let partition = rng.below(5);
            let len = if adopt { 2000 + rng.below(6000) } else { rng.below(2000) } as usize;
            let next = model.entry(partition).or_default();
            ticket += 1;
            let proposal =
                Proposal::data(node.epoch, ticket, vec![draft(partition, next.len() as u64, payload(ticket, len))]);
            if node.journal.try_propose(proposal).is_ok() {
                next.push((ticket, len));
                pending.insert(ticket, (partition, len));
            }
        }
        node.settle();
        let committed = node.sink.committed.lock().clone();
        assert!(pending.keys().all(|t| committed.contains(t)), "seed {seed}, round {round}");
        while node.journal.background_step() {}
        if rng.below(5) == 0 {
            node.checkpoint();
        }
        while rng.below(3) > 0 && node.merge() {}
        if rng.below(10) == 0 {
            let partition = rng.below(5);
            let end = model.get(&partition).map_or(0, Vec::len) as u64;
            let at: u64 = trimmed.get(&partition).copied().unwrap_or(0);
            let to = at + (end - at) / 2;
            node.store.trim(PartitionId(partition), Offset(to));
            trimmed.insert(partition, to);
            node.store.reclaim_step().expect("room");
        }
        if rng.below(12) == 0 || round == 119 {
            let stats = node.store.stats();
            (adopted, merged) = (adopted + stats.adopted_bytes, merged + stats.merged_bytes);
            released += node.journal.stats().files_recycled + node.journal.stats().files_removed;
            if rng.below(3) == 0 {
                world.kill();
            } else {
                world.crash();
            }
            node = start(&world, adopt);
            for (partition, to) in &trimmed {
                node.store.trim(PartitionId(*partition), Offset(*to));
            }
            verify(&node, &model, &trimmed);
            let report = check(&world.env(), &shard_dir()).expect("a report");
            assert!(report.is_sound(), "seed {seed}, round {round}: {report}");
        }
    }
    (adopted, merged, released)
}

#[test]
fn acknowledged_entries_survive_merges_adoptions_and_crashes() {
    let (mut adopted, mut merged, mut released) = (0, 0, 0);
    for seed in 0..12 {
        let (a, m, r) = history(seed);
        (adopted, merged, released) = (adopted + a, merged + m, released + r);
    }
    assert!(adopted > 1 << 20 && merged > 256 << 10 && released > 12, "{adopted} {merged} {released}");
}

#[test]
fn an_adopted_file_that_the_manifest_does_not_name_goes_back_to_the_journal() {
    let world = SimWorld::new(3);
    let node = start(&world, true);
    let mut model = Model::new();
    for ticket in 0..60 {
        let len = 4000;
        let proposal = Proposal::data(node.epoch, ticket, vec![draft(1, ticket, payload(ticket, len))]);
        node.journal.try_propose(proposal).map_err(|r| r.kind).expect("room");
        node.settle();
        while node.journal.background_step() {}
        model.entry(1).or_default().push((ticket, len));
    }
    // The state after a crash between a rename and the manifest.
    let disk = world.env().disk;
    let journal = shard_dir().join("journal");
    let oldest = disk.list(&journal).expect("names").remove(0);
    let sequence = oldest.strip_suffix(".plj").expect("a file of the log");
    let sealed = node.journal.sealed_files();
    let last = sealed.first().and_then(|f| f.indexes).expect("a sealed file").1;
    let moved = shard_dir().join("segments").join(format!("{:016x}-a-{sequence}.journal", last.0));
    disk.rename(&journal.join(&oldest), &moved).expect("a rename");
    disk.sync_dir(&journal).expect("a flush");
    disk.sync_dir(&shard_dir().join("segments")).expect("a flush");
    world.crash();
    let node = start(&world, true);
    assert!(!world.env().disk.exists(&moved) && world.env().disk.exists(&journal.join(&oldest)));
    assert_eq!(node.store.merged_upto(), None::<Index>);
    verify(&node, &model, &BTreeMap::new());
}
