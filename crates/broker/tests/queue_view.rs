//! Queues that are read by offset, over the simulated machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod node;

use bytes::Bytes;
use node::{Node, entry};
use polylogue_api::*;
use polylogue_env::sim::SimWorld;
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_record::kafka::{BatchIter, NewRecord, records, verify_crc};
use polylogue_types::{Offset, PartitionId};
use std::sync::Arc;

/// The text of a message is the value, its first letter the key.
#[derive(Debug)]
struct Texts;

impl LogView for Texts {
    fn record(&self, message: StoredMessage<'_>, put: &mut dyn FnMut(&NewRecord<'_>)) {
        let key = message.bytes.get(..1);
        if message.form == Form::AmqpMessage && key != Some(b"?") {
            put(&NewRecord { timestamp: message.timestamp, key, value: Some(message.bytes), headers: &[] });
        }
    }
}

fn open(world: &SimWorld, change: impl FnOnce(&mut polylogue_broker::BrokerConfig)) -> Node {
    Node::open(world, |config| {
        config.view = Some(Arc::new(Texts));
        change(config);
    })
}

fn queue(node: &mut Node, name: &str, settings: QueueSettings, retention_ms: Option<u64>) -> PartitionId {
    let config = TopicConfig { queue: Some(settings), retention_ms, ..TopicConfig::default() };
    node.create(name, 1, config).partitions[0].id
}

/// Publishes texts; each with its own time.
fn publish(node: &mut Node, queue: PartitionId, texts: &[(&str, i64, Option<u8>)]) {
    let message = |(text, timestamp, priority): &(&str, i64, Option<u8>)| PublishMessage {
        queues: vec![Target { queue, priority: *priority, expires_at: None, deliver_at: None }],
        form: Form::AmqpMessage,
        flags: EntryFlags::NONE,
        bytes: Bytes::copy_from_slice(text.as_bytes()),
        timestamp: *timestamp,
        key_hash: None,
        all_or_none: false,
    };
    let messages = texts.iter().map(message).collect();
    match node.ask(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false })) {
        Reply::Publish(results) => assert!(results.iter().all(Result::is_ok)),
        other => panic!("{other:?}"),
    }
}

fn consume(node: &mut Node, queue: PartitionId) -> Vec<Delivery> {
    match node.ask(Request::Attach(Attach { queue, consumer: ConsumerSpec::default() })) {
        Reply::Attach(attached) => drop(attached.expect("a consumer")),
        other => panic!("{other:?}"),
    }
    node.drive();
    std::mem::take(&mut *node.client.delivered.lock())
}

fn settle(node: &mut Node, deliveries: &[Delivery], how: Settle) {
    let one = |d: &Delivery| Settlement { queue: d.queue, first: d.first, count: 1, by: Holder::Lease(d.lease), how };
    let settlements = deliveries.iter().map(one).collect();
    match node.ask(Request::Settle(SettleRequest { settlements, wait: true })) {
        Reply::Settle(results) => assert!(results.iter().all(Result::is_ok)),
        other => panic!("{other:?}"),
    }
}

/// Reads from there: offset and text of each record, and how many bytes and batches that were.
fn read(
    node: &mut Node,
    queue: PartitionId,
    offset: u64,
    bytes_max: u32,
    at_least_one: bool,
) -> (Vec<(u64, String)>, usize) {
    let part = ReadPart { partition: queue, offset: Offset(offset), bytes_max };
    let Reply::Read(mut results) = node.ask(Request::Read(ReadRequest { parts: vec![part], bytes_max, at_least_one }))
    else {
        panic!("no read")
    };
    let data = results.remove(0).expect("readable");
    let bytes: Vec<u8> = data.chunks.iter().flat_map(|c| c.to_bytes().unwrap()).collect();
    let mut texts = Vec::new();
    let len = bytes.len();
    for batch in BatchIter::new(bytes.into()) {
        let batch = batch.expect("a batch");
        verify_crc(&batch.bytes, &batch.header).expect("its checksum");
        for record in records(&batch.bytes, 1 << 20).expect("records") {
            let record = record.expect("a record");
            texts.push((record.offset as u64, String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
        }
    }
    (texts, len)
}

fn all(node: &mut Node, queue: PartitionId, offset: u64) -> Vec<(u64, String)> {
    read(node, queue, offset, 1 << 20, true).0
}

fn log_start(node: &Node, queue: PartitionId) -> u64 {
    node.broker.partition_status(queue).unwrap().log_start.0
}

#[test]
fn offsets_are_publish_order_whatever_becomes_of_messages() {
    let world = SimWorld::new(1);
    let mut node = open(&world, |_| {});
    let q = queue(&mut node, "q", QueueSettings::default(), None);
    publish(&mut node, q, &[("low", 1, None), ("high", 2, Some(5)), ("mid", 3, Some(2)), ("last", 4, None)]);
    let texts = |from: u64| -> Vec<(u64, String)> {
        (0u64..).zip(["low", "high", "mid", "last"]).skip(from as usize).map(|(o, t)| (o, t.to_owned())).collect()
    };
    assert_eq!(all(&mut node, q, 0), texts(0));
    let got = consume(&mut node, q);
    assert_eq!(got.iter().map(|d| d.first.0).collect::<Vec<_>>(), [1, 2, 0, 3], "by priority");
    settle(&mut node, &got[..1], Settle::Accept);
    settle(&mut node, &got[1..2], Settle::Return { counts: true, delay_ms: 0 });
    assert_eq!(all(&mut node, q, 0), texts(0), "what is settled above the oldest that is not stays");
    assert_eq!(all(&mut node, q, 2), texts(2));
    settle(&mut node, &got[2..3], Settle::Accept);
    assert_eq!(log_start(&node, q), 2, "the start follows the oldest that is not settled");
    drop(node);
    world.crash();
    let mut node = open(&world, |_| {});
    assert_eq!(all(&mut node, q, 2), texts(2), "the same after a restart");
    assert_eq!(all(&mut node, q, 4), [], "at the end there is nothing");
}

#[test]
fn a_read_keeps_to_its_bytes() {
    let world = SimWorld::new(2);
    let mut node = open(&world, |_| {});
    let q = queue(&mut node, "q", QueueSettings::default(), None);
    let texts: Vec<String> = (0..50).map(|i| format!("{i:0>100}")).collect();
    publish(&mut node, q, &texts.iter().map(|text| (&**text, 1, None)).collect::<Vec<_>>());
    let mut next = 0;
    while next < 50 {
        let (got, bytes) = read(&mut node, q, next, 1_000, false);
        assert!(bytes <= 1_000 && got.len() >= 7.min(50 - next as usize), "{bytes} bytes of {} messages", got.len());
        for (offset, text) in got {
            assert_eq!((offset, &text), (next, &texts[next as usize]));
            next += 1;
        }
    }
    assert_eq!(read(&mut node, q, 0, 50, false).0, [], "none fits");
    assert_eq!(read(&mut node, q, 0, 50, true).0.len(), 1, "the first comes whatever it takes");
    let large = "x".repeat(2 << 20);
    publish(&mut node, q, &[(&large, 1, None), ("after", 1, None)]);
    assert_eq!(read(&mut node, q, 50, 3 << 20, true).0.len(), 1, "one look makes no more than 1 MiB of batches");
}

#[test]
fn queues_and_logs_are_read_in_one_request() {
    let world = SimWorld::new(3);
    let mut node = open(&world, |_| {});
    let q = queue(&mut node, "q", QueueSettings::default(), None);
    let log = node.create("log", 1, TopicConfig::default()).partitions[0].id;
    let other = queue(&mut node, "other", QueueSettings::default(), None);
    publish(&mut node, q, &[("a", 1, None), ("b", 1, None)]);
    publish(&mut node, other, &[("c", 1, None)]);
    node.append(entry(log, "as it came")).unwrap();
    let part = |partition, offset| ReadPart { partition, offset: Offset(offset), bytes_max: 1 << 20 };
    let parts = vec![part(q, 1), part(log, 0), part(q, 2), part(other, 0), part(log, 0), part(PartitionId(77), 0)];
    let Reply::Read(results) = node.ask(Request::Read(ReadRequest { parts, bytes_max: 1 << 20, at_least_one: true }))
    else {
        panic!("no read")
    };
    let bytes = |at: usize| -> Vec<u8> {
        results[at].as_ref().unwrap().chunks.iter().flat_map(|c| c.to_bytes().unwrap()).collect()
    };
    let count =
        |at: usize| BatchIter::new(bytes(at).into()).map(|batch| batch.unwrap().header.record_count).sum::<i32>();
    assert_eq!((count(0), count(3), bytes(2)), (1, 1, vec![]));
    assert_eq!([bytes(1), bytes(4)], [b"as it came".to_vec(), b"as it came".to_vec()]);
    assert!(matches!(results[5], Err(ReadError::UnknownPartition)));
}

#[test]
fn offsets_are_found_by_time() {
    let world = SimWorld::new(4);
    let mut node = open(&world, |_| {});
    let q = queue(&mut node, "q", QueueSettings::default(), None);
    publish(&mut node, q, &[("a", 100, None), ("b", 200, None), ("c", 300, None)]);
    let mut find = |at| match node.ask(Request::FindOffsets(vec![FindOffset { partition: q, at }])) {
        Reply::FindOffsets(mut found) => found.remove(0).expect("found"),
        other => panic!("{other:?}"),
    };
    let found = find(OffsetSpec::AtTimestamp(150));
    assert_eq!(found.offset, Some(Offset(1)));
    let batch = found.entry.expect("the message as a batch");
    let batch = BatchIter::new(batch).next().unwrap().unwrap();
    assert_eq!((batch.header.base_offset, batch.header.max_timestamp, batch.header.record_count), (1, 200, 1));
    assert_eq!(find(OffsetSpec::MaxTimestamp).offset, Some(Offset(2)));
    assert_eq!(find(OffsetSpec::AtTimestamp(301)).offset, None);
}

#[test]
fn what_is_no_message_is_an_error_and_not_skipped() {
    let world = SimWorld::new(5);
    let mut node = open(&world, |_| {});
    let q = queue(&mut node, "q", QueueSettings::default(), None);
    publish(&mut node, q, &[("a", 1, None), ("?", 1, None)]);
    assert_eq!(all(&mut node, q, 0), [(0, "a".to_owned())]);
    assert!(matches!(node.read(q, 1), Err(ReadError::Storage)));
}

#[test]
fn retention_keeps_what_is_settled_and_never_takes_what_is_not() {
    let world = SimWorld::new(6);
    let mut node = open(&world, |config| config.retention_check_ms = 1_000);
    let keeps = QueueSettings { keeps_settled: true, ..QueueSettings::default() };
    let q = queue(&mut node, "q", keeps, Some(10_000));
    let now = world.env().clock.now_ms();
    publish(&mut node, q, &[("a", now, None), ("b", now, None)]);
    let got = consume(&mut node, q);
    settle(&mut node, &got[..1], Settle::Accept);
    assert_eq!((log_start(&node, q), all(&mut node, q, 0).len()), (0, 2), "what is settled is still there");
    let pass = |node: &Node, ms: u64| {
        for _ in 0..ms / 500 {
            world.clock.advance_ms(500);
            node.drive();
        }
    };
    pass(&node, 5_000);
    assert_eq!(log_start(&node, q), 0);
    pass(&node, 20_000);
    assert_eq!(log_start(&node, q), 1, "b is old too, and not settled");
    assert_eq!(all(&mut node, q, 1), [(1, "b".to_owned())]);
    settle(&mut node, &got[1..], Settle::Accept);
    pass(&node, 5_000);
    assert_eq!(log_start(&node, q), 2);
}
