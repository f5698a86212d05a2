//! Very many very small entries.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use bytes::Bytes;
use polylogue_api::*;
use polylogue_broker::{Broker, BrokerConfig, ReplySink};
use polylogue_env::sim::SimWorld;
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_replicate::Work;
use polylogue_types::PartitionId;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Default)]
struct Client(parking_lot::Mutex<Option<Arc<TopicInfo>>>);

impl ReplySink for Client {
    fn reply(&self, _: Token, reply: Reply) {
        match reply {
            Reply::CreateTopics(mut topics) => *self.0.lock() = Some(topics.remove(0).unwrap().topic),
            Reply::Append(results) => assert!(results.iter().all(Result::is_ok), "{results:?}"),
            other => panic!("{other:?}"),
        }
    }

    fn event(&self, _: Event) {}
}

fn drive(broker: &Broker) {
    broker.tick();
    while broker.log_step(Work::Write) | broker.log_step(Work::Flush) {}
}

fn entry(partition: PartitionId) -> AppendEntry {
    let bytes = Bytes::from_static(b"x");
    AppendEntry {
        partition,
        form: Form::Opaque,
        flags: EntryFlags::NONE,
        count: 1,
        max_timestamp: -1,
        body_crc: crc32c(&bytes),
        summed_from: 0,
        bytes,
        producer: None,
    }
}

/// Only full files that a checkpoint covers were merged, and a file holds so many small entries that their index grew to twice its
/// bound before.
#[test]
fn the_index_over_the_journal_keeps_its_bound_before_a_file_is_full() {
    const INDEX_BYTES_MAX: usize = 256 << 10;
    let world = SimWorld::new(1);
    let mut config = BrokerConfig::new("/data".into());
    config.journal_file_bytes = 16 << 20;
    config.checkpoint_bytes_max = 64 << 20;
    config.disk_reserve_bytes = 0;
    config.store.journal_index_bytes_max = INDEX_BYTES_MAX;
    let broker = Broker::open(world.env(), config, BTreeMap::new()).unwrap();
    let (session, client) = (broker.new_session(), Arc::new(Client::default()));
    let sink: Arc<dyn ReplySink> = client.clone();
    let topic = NewTopic { name: "t".into(), partitions: 100, config: TopicConfig::default(), internal: false };
    let create = CreateTopics { topics: vec![topic], validate_only: false };
    broker.submit(&sink, session, 1, Request::CreateTopics(create));
    drive(&broker);
    let topic = client.0.lock().clone().unwrap();
    let (mut most, mut runs) = (0, 0);
    for round in 0..300 {
        // Each request is a frame, so that no two entries of a partition share a run.
        let entries = topic.partitions.iter().map(|p| entry(p.id)).collect();
        broker.submit(&sink, session, 2 + round, Request::Append(AppendRequest { entries, ack: Ack::Committed }));
        drive(&broker);
        let store = broker.shards()[0].store;
        (most, runs) = (most.max(store.journal_runs), runs.max(store.segment_runs));
        for _ in 0..50 {
            let did = broker.background_step();
            drive(&broker);
            broker.log_step(Work::Background);
            if !did {
                break;
            }
        }
    }
    // 56 bytes a run.
    assert!(most * 56 <= INDEX_BYTES_MAX * 5 / 4, "{most} runs in the journal, {runs} in segments");
    assert!(runs > 0);
}
