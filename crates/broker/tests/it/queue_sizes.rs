//! Limits and counts of queues in bytes count bodies, without the stored envelope.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use node::{Node, message};
use polylogue_api::*;
use polylogue_broker::BrokerConfig;
use polylogue_env::sim::SimWorld;
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_record::kafka::NewRecord;
use polylogue_types::PartitionId;
use std::sync::Arc;

/// The body of a message is the text after its first colon.
#[derive(Debug)]
struct Headed;

impl LogView for Headed {
    fn record(&self, _: StoredMessage<'_>, _: &mut dyn FnMut(&NewRecord<'_>)) {}

    fn body_bytes(&self, form: Form, bytes: &[u8]) -> Option<usize> {
        let colon = bytes.iter().position(|byte| *byte == b':').filter(|_| form == Form::AmqpMessage)?;
        Some(bytes.len() - colon - 1)
    }
}

fn with_view(config: &mut BrokerConfig) {
    config.view = Some(Arc::new(Headed));
}

fn queue(node: &mut Node, name: &str, settings: QueueSettings) -> PartitionId {
    let config = TopicConfig { queue: Some(settings), retention_ms: None, ..TopicConfig::default() };
    node.create(name, 1, config).partitions[0].id
}

fn publish(node: &mut Node, messages: Vec<PublishMessage>) -> Vec<Result<(), PublishError>> {
    match node.ask(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false })) {
        Reply::Publish(results) => results,
        other => panic!("{other:?}"),
    }
}

fn counts(node: &mut Node, queue: PartitionId) -> QueueCounts {
    match node.ask(Request::DescribeQueues(vec![queue])) {
        Reply::DescribeQueues(counts) => counts[0].expect("a queue"),
        other => panic!("{other:?}"),
    }
}

/// A full queue drops or rejects.
const BOTH: [Overflow; 2] = [Overflow::DropHead, Overflow::Reject];

/// A queue of 10,000 bytes kept 23 messages of 81: it counted their exchange, routing key and headers.
#[test]
fn a_limit_by_bytes_counts_bodies() {
    for (early, overflow) in [false, true].into_iter().flat_map(|early| BOTH.map(|overflow| (early, overflow))) {
        let world = SimWorld::new(41);
        let open = || {
            Node::open(&world, |config| {
                with_view(config);
                config.checkpoint_bytes_max = 1;
            })
        };
        let mut node = open();
        let settings = QueueSettings { early, overflow, bytes_max: Some(10_000), ..QueueSettings::default() };
        let queue = queue(&mut node, "q", settings);
        let text = format!("{}:{}", "h".repeat(350), "b".repeat(81));
        let refused = (0..200).filter(|_| publish(&mut node, vec![message(&[queue], &text)]) != [Ok(())]).count();
        let expected = if overflow == Overflow::Reject { 77 } else { 0 };
        let found = counts(&mut node, queue);
        assert_eq!((found.ready, found.ready_bytes, refused), (123, 123 * 81, expected), "early: {early}");
        // The same number is restored from the log, and from a checkpoint.
        for checkpoint in [false, true] {
            if checkpoint {
                node.background();
            }
            drop(node);
            world.crash();
            node = open();
            assert_eq!(counts(&mut node, queue), found);
        }
    }
}

#[test]
fn bytes_are_counted_where_messages_are() {
    let world = SimWorld::new(42);
    let mut node = Node::open(&world, with_view);
    let settings = QueueSettings { dead_letters: true, ..QueueSettings::default() };
    let queue = queue(&mut node, "q", settings);
    let mut messages = ["hh:12345", "h:1234", "hhhh:123", "h:12"].map(|text| message(&[queue], text));
    messages[1].flags = EntryFlags::TRANSIENT;
    messages[2].queues[0].deliver_at = Some(node.broker.now().wall_ms + 1_000_000);
    messages[3].flags = EntryFlags::TRANSIENT;
    publish(&mut node, messages.into());
    let spec = ConsumerSpec { prefetch: 2, ..ConsumerSpec::default() };
    node.ask(Request::Attach(Attach { queue, consumer: spec }));
    node.drive();
    let got = std::mem::take(&mut *node.client.delivered.lock());
    let expected = QueueCounts {
        ready: 1,
        held: 2,
        delayed: 1,
        consumers: 1,
        ready_bytes: 2,
        held_bytes: 9,
        delayed_bytes: 3,
        transient: 2,
        transient_bytes: 6,
        ..QueueCounts::default()
    };
    assert_eq!(counts(&mut node, queue), expected);
    let settle =
        |at: usize, how| Settlement { queue, first: got[at].first, count: 1, by: Holder::Lease(got[at].lease), how };
    let settlements = vec![settle(0, Settle::Accept), settle(1, Settle::Reject)];
    node.ask(Request::Settle(SettleRequest { settlements, wait: true }));
    let expected = QueueCounts { ready: 0, held: 1, dead: 1, ready_bytes: 0, held_bytes: 2, dead_bytes: 4, ..expected };
    assert_eq!(counts(&mut node, queue), expected);
}

/// Checkpoints of builds that kept one size of a message, the stored one.
#[test]
fn sizes_of_an_older_build_become_those_of_bodies() {
    let world = SimWorld::new(43);
    let mut node = Node::open(&world, |config| config.checkpoint_bytes_max = 1);
    let settings = QueueSettings { bytes_max: Some(1_000_000), ..QueueSettings::default() };
    let queue = queue(&mut node, "q", settings);
    let sizes = [(10, 90), (10, 90), (10, 90), (20, 200), (3, 1_000), (10, 90), (40, 0)];
    let text = |(head, body): (usize, usize)| format!("{}:{}", "h".repeat(head), "b".repeat(body));
    publish(&mut node, sizes.iter().map(|size| message(&[queue], &text(*size))).collect());
    let stored: usize = sizes.iter().map(|(head, body)| head + 1 + body).sum();
    let bodies: usize = sizes.iter().map(|(_, body)| body).sum();
    assert_eq!(counts(&mut node, queue).ready_bytes, stored as u64);
    node.background();
    for round in 0..2 {
        drop(node);
        world.crash();
        node = Node::open(&world, |config| {
            with_view(config);
            config.checkpoint_bytes_max = 1;
            // Reads the disk.
            config.store.tail_cache_bytes = 0;
        });
        node.drive();
        assert_eq!(counts(&mut node, queue).ready_bytes, bodies as u64, "{round}");
        publish(&mut node, vec![message(&[queue], ":")]);
        node.background();
    }
}
