//! Every provider keeps the contract of `ShardLog`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use polylogue_env::Env;
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimWorld};
use polylogue_log::journal::{Config, Durability, Identity, Journal};
use polylogue_replicate::conformance::{self, Place, QUEUE_BYTES_MAX};
use polylogue_replicate::local::LocalLog;
use polylogue_replicate::memory::{Bounds, MemoryLog};
use polylogue_replicate::{ShardLog, Sink};
use polylogue_types::{Index, NodeId, ShardId, Term};
use std::sync::Arc;

const NODE: NodeId = NodeId(1);
const SHARD: ShardId = ShardId(0);
/// How many random schedules each provider goes through.
const SEEDS: u64 = 16;
/// How many proposals may wait while threads race.
const RACE_QUEUE: usize = 32;

fn identity() -> Identity {
    Identity { cluster: [1; 16], node: NODE, directory: [2; 16], shard: SHARD }
}

struct Memory(SimWorld);

impl Place for Memory {
    fn open(&self, sink: Sink, _: Index) -> Arc<dyn ShardLog> {
        let bounds = Bounds { queue_bytes_max: QUEUE_BYTES_MAX, ..Bounds::default() };
        Arc::new(MemoryLog::with_bounds(self.0.env(), SHARD, NODE, Term(0), sink, bounds))
    }

    fn crash(&self) -> bool {
        false
    }

    fn fail_write(&self) -> bool {
        false
    }

    fn pass_ms(&self, ms: u64) {
        self.0.clock.advance_ms(ms);
    }
}

struct Local {
    world: SimWorld,
    class: Durability,
}

impl Place for Local {
    fn open(&self, sink: Sink, from: Index) -> Arc<dyn ShardLog> {
        let config = Config {
            durability: self.class,
            file_bytes: 1 << 20,
            queue_bytes_max: QUEUE_BYTES_MAX,
            ..Config::new("/data/shard-0000".into(), identity())
        };
        let journal = Journal::open(&self.world.env(), config, from, &mut |_| Ok(())).unwrap();
        journal.attach(sink);
        Arc::new(LocalLog::new(Arc::new(journal), NODE))
    }

    fn crash(&self) -> bool {
        self.world.disk.clear_faults();
        match self.class {
            Durability::Sync => _ = self.world.crash(),
            // What is in the page cache survives the process, not the power.
            Durability::Async => self.world.kill(),
        }
        true
    }

    fn fail_write(&self) -> bool {
        self.world.disk.inject(Fault::nth(FaultOp::Write, 1, FaultKind::NoSpace));
        true
    }

    fn pass_ms(&self, ms: u64) {
        self.world.clock.advance_ms(ms);
    }
}

#[test]
fn the_memory_provider_keeps_the_contract() {
    conformance::all(&|seed| Box::new(Memory(SimWorld::new(seed))), SEEDS);
}

#[test]
fn the_local_provider_keeps_the_contract() {
    conformance::all(&|seed| Box::new(Local { world: SimWorld::new(seed), class: Durability::Sync }), SEEDS);
}

#[test]
fn the_local_provider_of_class_async_keeps_the_contract() {
    conformance::all(&|seed| Box::new(Local { world: SimWorld::new(seed), class: Durability::Async }), SEEDS);
}

#[test]
fn the_memory_provider_keeps_the_contract_with_threads() {
    conformance::race(|sink| {
        let bounds = Bounds { queue_count_max: RACE_QUEUE, ..Bounds::default() };
        let log = MemoryLog::with_bounds(Env::real(), SHARD, NODE, Term(0), sink, bounds);
        log.run().unwrap();
        Arc::new(log)
    });
}

#[test]
fn the_local_provider_keeps_the_contract_with_threads() {
    let dir = std::env::temp_dir().join(format!("polylogue-replicate-race-{}", std::process::id()));
    // What a test that was killed has left.
    let _ = std::fs::remove_dir_all(&dir);
    conformance::race(|sink| {
        let file_bytes = 1 << 20;
        let config = Config { file_bytes, queue_count_max: RACE_QUEUE, ..Config::new(dir.clone(), identity()) };
        let journal = Journal::open(&Env::real(), config, Index(0), &mut |_| Ok(())).unwrap();
        journal.attach(sink);
        let log = LocalLog::new(Arc::new(journal), NODE);
        log.run().unwrap();
        Arc::new(log)
    });
    std::fs::remove_dir_all(&dir).unwrap();
}
