//! Reading queues by offset, on the simulated machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use bytes::Bytes;
use node::{Node, entry};
use polylogue_api::*;
use polylogue_env::sim::SimWorld;
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_record::kafka::{BatchIter, NewRecord, records, verify_crc};
use polylogue_replicate::Work;
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

/// Reads from an offset. Returns offset and text of each record, and the bytes and batches.
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
    let mut find = |at| match node.ask(Request::FindOffsets(vec![FindOffset { partition: q, at, from: Offset(0) }])) {
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

/// A queue's topic whose settings change.
struct Kept {
    topic: Arc<TopicInfo>,
    queue: PartitionId,
}

/// A queue that keeps settled messages for this time, or not at all.
fn keeps_for(retention_ms: Option<u64>) -> TopicConfig {
    let settings = QueueSettings { keeps_settled: retention_ms.is_some(), ..QueueSettings::default() };
    TopicConfig { queue: Some(settings), retention_ms, ..TopicConfig::default() }
}

impl Kept {
    fn new(node: &mut Node, name: &str, retention_ms: Option<u64>) -> Kept {
        let topic = node.create(name, 1, keeps_for(retention_ms));
        Kept { queue: topic.partitions[0].id, topic }
    }

    fn keep_for(&self, node: &mut Node, retention_ms: Option<u64>) {
        let change = ConfigChange { expected: self.topic.config.raw.clone(), config: keeps_for(retention_ms) };
        let changes = vec![TopicChange { topic: self.topic.id, config: Some(change), partitions: None }];
        let altered = node.ask(Request::AlterTopics(AlterTopics { changes, validate_only: false }));
        assert!(matches!(altered, Reply::AlterTopics(results) if results == [Ok(())]));
    }

    fn publish(&self, world: &SimWorld, node: &mut Node, texts: &[&str]) {
        let now = world.env().clock.now_ms();
        publish(node, self.queue, &texts.iter().map(|text| (*text, now, None)).collect::<Vec<_>>());
    }
}

fn pass(world: &SimWorld, node: &Node, secs: u64) {
    for _ in 0..secs {
        world.clock.advance_ms(1_000);
        node.drive();
    }
}

fn looks_each_second(world: &SimWorld) -> Node {
    open(world, |config| config.retention_check_ms = 1_000)
}

#[test]
fn retention_that_comes_keeps_what_is_settled_from_then_on() {
    let world = SimWorld::new(21);
    let mut node = looks_each_second(&world);
    let q = Kept::new(&mut node, "q", None);
    q.publish(&world, &mut node, &["a", "b", "c"]);
    let got = consume(&mut node, q.queue);
    settle(&mut node, &got[..1], Settle::Accept);
    assert_eq!(log_start(&node, q.queue), 1, "no consumer keeps it");
    q.keep_for(&mut node, Some(60_000));
    settle(&mut node, &got[1..2], Settle::Accept);
    pass(&world, &node, 5);
    assert_eq!((log_start(&node, q.queue), all(&mut node, q.queue, 1).len()), (1, 2), "b is settled and kept");
    pass(&world, &node, 70);
    assert_eq!(log_start(&node, q.queue), 2, "c is not settled");
    settle(&mut node, &got[2..], Settle::Accept);
    pass(&world, &node, 5);
    assert_eq!(log_start(&node, q.queue), 3, "c was old when it was settled");
}

#[test]
fn retention_that_gets_shorter_or_longer_holds_for_what_is_settled_already() {
    let world = SimWorld::new(22);
    let mut node = looks_each_second(&world);
    let q = Kept::new(&mut node, "q", Some(3_600_000));
    q.publish(&world, &mut node, &["a", "b"]);
    let got = consume(&mut node, q.queue);
    settle(&mut node, &got, Settle::Accept);
    pass(&world, &node, 30);
    q.keep_for(&mut node, Some(7_200_000));
    pass(&world, &node, 3_700);
    assert_eq!((log_start(&node, q.queue), all(&mut node, q.queue, 0).len()), (0, 2), "kept for longer before it went");
    q.publish(&world, &mut node, &["c"]);
    q.keep_for(&mut node, Some(60_000));
    pass(&world, &node, 5);
    assert_eq!(all(&mut node, q.queue, 2), [(2, "c".to_owned())]);
    assert_eq!(log_start(&node, q.queue), 2);
}

/// Kept messages stayed until another one was settled: forever, in an unused queue.
#[test]
fn retention_that_goes_takes_what_it_kept() {
    let world = SimWorld::new(23);
    let mut node = looks_each_second(&world);
    let q = Kept::new(&mut node, "q", Some(3_600_000));
    q.publish(&world, &mut node, &["a", "b", "c"]);
    let got = consume(&mut node, q.queue);
    settle(&mut node, &[got[0].clone(), got[2].clone()], Settle::Accept);
    pass(&world, &node, 5);
    assert_eq!(log_start(&node, q.queue), 0);
    q.keep_for(&mut node, None);
    pass(&world, &node, 5);
    assert_eq!(log_start(&node, q.queue), 1, "b is not settled, and c is behind it");
    // The same after a crash.
    drop(node);
    world.crash();
    let mut node = looks_each_second(&world);
    assert_eq!(log_start(&node, q.queue), 1);
    let got = consume(&mut node, q.queue);
    settle(&mut node, &got, Settle::Accept);
    pass(&world, &node, 5);
    assert_eq!(log_start(&node, q.queue), 3);
}

/// Messages of each of two neighbours, and their size. Bytes.
const NEIGHBOURS: usize = 100;
const LARGE_BYTES: usize = 20_000;

/// Two queues in one shard, one of which keeps settled messages; both are merged step by step while retention changes.
#[test]
fn retention_of_a_queue_is_not_its_neighbours_while_segments_are_merged() {
    let world = SimWorld::new(24);
    let start = |world: &SimWorld| {
        open(world, |config| {
            config.retention_check_ms = 1_000;
            config.checkpoint_bytes_max = 256 << 10;
            config.store.merge_bytes = 1 << 20;
        })
    };
    let mut node = start(&world);
    let (kept, plain) = (Kept::new(&mut node, "kept", Some(600_000)), Kept::new(&mut node, "plain", None));
    let text = |name: &str, i: usize| format!("{name}{i:04}{}", "x".repeat(LARGE_BYTES));
    for i in 0..NEIGHBOURS {
        kept.publish(&world, &mut node, &[&text("k", i)]);
        plain.publish(&world, &mut node, &[&text("p", i)]);
    }
    let (of_kept, of_plain) = (consume(&mut node, kept.queue), consume(&mut node, plain.queue));
    // Some messages are settled before the first merge, the rest meanwhile.
    let half = NEIGHBOURS / 2;
    settle(&mut node, &of_kept[..half], Settle::Accept);
    settle(&mut node, &of_plain[..half], Settle::Accept);
    assert_eq!((log_start(&node, kept.queue), log_start(&node, plain.queue)), (0, half as u64));
    let (mut steps, mut goes_on) = (0, true);
    while goes_on {
        goes_on = node.broker.background_step();
        node.drive();
        goes_on |= node.broker.log_step(Work::Background);
        match steps {
            1 => kept.keep_for(&mut node, Some(1_200_000)),
            2 => settle(&mut node, &of_kept[half..half + 10], Settle::Accept),
            3 => settle(&mut node, &of_plain[half..half + 10], Settle::Accept),
            _ => {}
        }
        pass(&world, &node, 1);
        steps += 1;
        assert!(steps < 1_000);
    }
    assert!(steps > 4, "nothing is tested");
    node.background();
    let status = node.broker.shards();
    assert!(status.iter().any(|shard| shard.store.segments > 0), "something was merged: {status:?}");
    let offsets = |node: &mut Node, of: &Kept, from: u64, until: usize| {
        for offset in from..until as u64 {
            let (texts, _) = read(node, of.queue, offset, 1, true);
            assert_eq!(texts[0].0, offset);
        }
    };
    let check = |node: &mut Node| {
        assert_eq!((log_start(node, kept.queue), log_start(node, plain.queue)), (0, half as u64 + 10));
        offsets(node, &kept, 0, NEIGHBOURS);
        offsets(node, &plain, half as u64 + 10, NEIGHBOURS);
    };
    check(&mut node);
    drop(node);
    world.crash();
    let mut node = start(&world);
    check(&mut node);
    // The kept messages grow old, and the neighbour's unsettled ones are older.
    pass(&world, &node, 1_300);
    node.background();
    assert_eq!(log_start(&node, kept.queue), half as u64 + 10, "the rest is not settled");
    offsets(&mut node, &kept, half as u64 + 10, NEIGHBOURS);
    offsets(&mut node, &plain, half as u64 + 10, NEIGHBOURS);
}
