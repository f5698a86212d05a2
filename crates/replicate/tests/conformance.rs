//! Every provider keeps the contract of `ShardLog`.

use polylogue_env::sim::SimWorld;
use polylogue_log::journal::{Config, Identity, Journal};
use polylogue_replicate::local::LocalLog;
use polylogue_replicate::memory::MemoryLog;
use polylogue_replicate::{ShardLog, Sink, conformance};
use polylogue_types::{Index, NodeId, ShardId, Term};
use std::sync::Arc;

const NODE: NodeId = NodeId(1);

#[test]
fn the_memory_provider_keeps_the_contract() {
    let world = SimWorld::new(1);
    conformance::all(&|sink: Sink| {
        Arc::new(MemoryLog::new(world.env(), ShardId(0), NODE, Term(0), sink)) as Arc<dyn ShardLog>
    });
}

#[test]
fn the_local_provider_keeps_the_contract() {
    conformance::all(&|sink: Sink| {
        let world = SimWorld::new(2);
        let identity = Identity { cluster: [1; 16], node: NODE, directory: [2; 16], shard: ShardId(0) };
        let config = Config { file_bytes: 1 << 20, ..Config::new("/data/shard-0000".into(), identity) };
        let journal = Journal::open(&world.env(), config, Index(0), &mut |_| Ok(())).unwrap();
        journal.attach(sink);
        Arc::new(LocalLog::new(Arc::new(journal), NODE)) as Arc<dyn ShardLog>
    });
}
