//! Very many very small entries.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use node::{Node, entry};
use polylogue_api::{Ack, AppendRequest, Reply, Request, TopicConfig};
use polylogue_env::sim::SimWorld;
use polylogue_replicate::Work;

/// Only full files that a checkpoint covers were merged, and a file holds so many small entries that their index grew to twice its bound before.
#[test]
fn the_index_over_the_journal_keeps_its_bound_before_a_file_is_full() {
    const INDEX_BYTES_MAX: usize = 256 << 10;
    let world = SimWorld::new(1);
    let mut node = Node::open(&world, |config| {
        config.journal_file_bytes = 16 << 20;
        config.checkpoint_bytes_max = 64 << 20;
        config.store.journal_index_bytes_max = INDEX_BYTES_MAX;
    });
    let topic = node.create("t", 100, TopicConfig::default());
    let (mut most, mut runs) = (0, 0);
    for _ in 0..300 {
        // Each request is a frame, so that no two entries of a partition share a run.
        let entries = topic.partitions.iter().map(|p| entry(p.id, "x")).collect();
        let Reply::Append(results) = node.ask(Request::Append(AppendRequest { entries, ack: Ack::Committed })) else {
            panic!("no answer to an append")
        };
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        let store = node.broker.shards()[1].store;
        (most, runs) = (most.max(store.journal_runs), runs.max(store.segment_runs));
        for _ in 0..50 {
            let did = node.broker.background_step();
            node.drive();
            node.broker.log_step(Work::Background);
            if !did {
                break;
            }
        }
    }
    // 56 bytes per run.
    assert!(most * 56 <= INDEX_BYTES_MAX * 5 / 4, "{most} runs in the journal, {runs} in segments");
    assert!(runs > 0);
}
