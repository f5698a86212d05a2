//! Streams on the simulated machine: every reader reads everything, from its own position, and reading removes nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use bytes::Bytes;
use node::{Node, texts};
use polylogue_api::*;
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimWorld};
use polylogue_replicate::Work;
use polylogue_types::{Offset, PartitionId, TimestampMs};
use std::sync::Arc;

fn message(queues: &[PartitionId], text: &str, timestamp: TimestampMs) -> PublishMessage {
    PublishMessage { timestamp, ..node::message(queues, text) }
}

fn offsets(deliveries: &[Delivery]) -> Vec<u64> {
    deliveries.iter().map(|d| d.first.0).collect()
}

fn from(queue: PartitionId, from: ReadFrom) -> AttachReader {
    AttachReader { queue, from, filter: None, prefetch: 0, credit: None, window_bytes: 0 }
}

fn all(queue: PartitionId) -> AttachReader {
    from(queue, ReadFrom::First)
}

/// A node with streams.
trait Streaming {
    fn topic(&mut self, name: &str, mode: ConsumerMode, config: TopicConfig) -> PartitionId;
    fn stream(&mut self, name: &str) -> PartitionId;
    fn publish(&mut self, messages: Vec<PublishMessage>) -> Vec<Result<(), PublishError>>;
    fn write(&mut self, stream: PartitionId, numbers: std::ops::Range<u64>);
    fn attach(&mut self, attach: AttachReader) -> Result<ConsumerId, AttachError>;
    fn delivered(&mut self) -> Vec<Delivery>;
    fn settle(&mut self, deliveries: &[Delivery], how: Settle) -> Vec<Result<(), SettleError>>;
    fn counts(&mut self, queue: PartitionId) -> QueueCounts;
}

impl Streaming for Node {
    fn topic(&mut self, name: &str, mode: ConsumerMode, config: TopicConfig) -> PartitionId {
        let queue = Some(QueueSettings { mode, ..QueueSettings::default() });
        self.create(name, 1, TopicConfig { queue, ..config }).partitions[0].id
    }

    fn stream(&mut self, name: &str) -> PartitionId {
        self.topic(name, ConsumerMode::Readers, TopicConfig { retention_ms: None, ..TopicConfig::default() })
    }

    fn publish(&mut self, messages: Vec<PublishMessage>) -> Vec<Result<(), PublishError>> {
        match self.ask(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false })) {
            Reply::Publish(results) => results,
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, stream: PartitionId, numbers: std::ops::Range<u64>) {
        let messages = numbers.map(|i| message(&[stream], &format!("m{i}"), i as i64 * 1_000)).collect();
        assert!(self.publish(messages).iter().all(Result::is_ok));
    }

    fn attach(&mut self, attach: AttachReader) -> Result<ConsumerId, AttachError> {
        match self.ask(Request::AttachReader(attach)) {
            Reply::Attach(attached) => attached,
            other => panic!("{other:?}"),
        }
    }

    fn delivered(&mut self) -> Vec<Delivery> {
        self.drive();
        std::mem::take(&mut *self.client.delivered.lock())
    }

    fn settle(&mut self, deliveries: &[Delivery], how: Settle) -> Vec<Result<(), SettleError>> {
        let settlement = |d: &Delivery| {
            let by = Holder::Consumer(d.consumer, d.life);
            Settlement { queue: d.queue, first: d.first, count: d.count, by, how }
        };
        let settlements = deliveries.iter().map(settlement).collect();
        match self.ask(Request::Settle(SettleRequest { settlements, wait: true })) {
            Reply::Settle(results) => results,
            other => panic!("{other:?}"),
        }
    }

    fn counts(&mut self, queue: PartitionId) -> QueueCounts {
        match self.ask_now(Request::DescribeQueues(vec![queue])) {
            Reply::DescribeQueues(counts) => counts[0].expect("a queue"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn each_reader_begins_where_it_wants_and_gets_all_from_there() {
    let world = SimWorld::new(1);
    let mut node = Node::open(&world, |_| {});
    let stream = node.stream("s");
    node.write(stream, 0..10);
    for (begins, first) in [
        (ReadFrom::First, 0),
        (ReadFrom::Last, 9),
        (ReadFrom::Next, 10),
        (ReadFrom::Offset(Offset(3)), 3),
        (ReadFrom::Offset(Offset(12)), 12),
        (ReadFrom::Time(0), 0),
        (ReadFrom::Time(4_001), 5),
        (ReadFrom::Time(9_001), 10),
    ] {
        let reader = node.attach(from(stream, begins)).unwrap();
        let got = node.delivered();
        assert_eq!(offsets(&got), (first..10).collect::<Vec<_>>(), "{begins:?}");
        assert!(got.iter().all(|d| d.consumer == reader && d.count == 1 && d.entry == d.first && !d.redelivered));
        node.start(Request::Detach(reader));
    }
    let early = [ReadFrom::First, ReadFrom::Last, ReadFrom::Next, ReadFrom::Time(5)];
    let empty = node.stream("empty");
    for begins in early {
        node.attach(from(empty, begins)).unwrap();
    }
    node.attach(from(empty, ReadFrom::Offset(Offset(2)))).unwrap();
    assert_eq!(node.delivered().len(), 0);
    node.write(empty, 0..3);
    assert_eq!(offsets(&node.delivered()), [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 2], "what comes, comes to all of them");
}

#[test]
fn settling_makes_room_and_takes_nothing_away() {
    let world = SimWorld::new(2);
    let mut node = Node::open(&world, |_| {});
    let stream = node.stream("s");
    node.write(stream, 0..9);
    let reader = node.attach(AttachReader { prefetch: 2, ..all(stream) }).unwrap();
    let mut got = node.delivered();
    assert_eq!(texts(&got), ["m0", "m1"]);
    let again = Settle::Return { counts: true, delay_ms: 0 };
    for (how, expected) in [(Settle::Accept, [2, 3]), (Settle::Reject, [4, 5]), (again, [6, 7])] {
        assert_eq!(node.settle(&got, how), [Ok(()); 2]);
        got = node.delivered();
        assert_eq!(offsets(&got), expected, "{how:?}");
    }
    // A reader that returned a message unread was past it nevertheless, and received the following ones.
    assert_eq!(node.settle(&got[1..], Settle::Unsent), [Err(SettleError::NotHeld)]);
    assert_eq!(node.delivered().len(), 0, "it makes no room");
    assert_eq!(node.settle(&got[1..], Settle::Accept), [Ok(())]);
    assert_eq!(offsets(&node.delivered()), [8], "room for one");
    let QueueCounts { ready, held, consumers, .. } = node.counts(stream);
    assert_eq!((ready, held, consumers), (9, 0, 1));
    node.start(Request::Detach(reader));
    assert_eq!(node.settle(&got[..1], Settle::Accept), [Err(SettleError::NotHeld)]);
    node.attach(all(stream)).unwrap();
    assert_eq!(node.delivered().len(), 9, "all of it is there");
}

#[test]
fn a_reader_gets_no_more_than_its_credit_and_its_window() {
    let world = SimWorld::new(3);
    let mut node = Node::open(&world, |_| {});
    let stream = node.stream("s");
    node.write(stream, 0..10);
    let reader = node.attach(AttachReader { credit: Some(3), window_bytes: 5, ..all(stream) }).unwrap();
    let got = node.delivered();
    assert_eq!(got.iter().map(|d| d.weight).collect::<Vec<_>>(), [2, 2], "a third one does not fit in");
    let window = |node: &Node| node.broker.shards().iter().map(|shard| shard.window_bytes).sum::<u64>();
    assert_eq!(window(&node), 4);
    node.start(Request::Credit(reader, Credit { messages: 0, bytes: 4 }));
    assert_eq!(offsets(&node.delivered()), [2], "its credit is used up");
    node.start(Request::Credit(reader, Credit { messages: 100, bytes: 2 }));
    assert_eq!(offsets(&node.delivered()), [3, 4]);
    let large = node.stream("large");
    node.publish((0..3).map(|_| message(&[large], "larger than any window", -1)).collect());
    let reader = node.attach(AttachReader { window_bytes: 5, ..all(large) }).unwrap();
    assert_eq!(offsets(&node.delivered()), [0], "one is let through");
    node.start(Request::Credit(reader, Credit { messages: 0, bytes: 22 }));
    assert_eq!(offsets(&node.delivered()), [1]);
    node.start(Request::Stop(reader));
    node.start(Request::Credit(reader, Credit { messages: 0, bytes: 22 }));
    assert_eq!(node.delivered().len(), 0, "it was stopped");
    assert_eq!(node.counts(large).consumers, 0);
}

/// The window became empty at the end of a turn that had found it too full: no later event would have made room, and the reader stalled forever.
#[test]
fn room_that_comes_while_a_reader_is_at_the_disk_is_seen() {
    let world = SimWorld::new(12);
    let mut node = Node::open(&world, |config| config.store.tail_cache_bytes = 0);
    let stream = node.stream("s");
    node.publish((0..3).map(|_| message(&[stream], "abc", -1)).collect());
    let reader = node.attach(AttachReader { window_bytes: 5, prefetch: 1, ..all(stream) }).unwrap();
    let got = node.delivered();
    assert_eq!(offsets(&got), [0]);
    let by = Holder::Consumer(reader, got[0].life);
    let settlement = Settlement { queue: stream, first: Offset(0), count: 1, by, how: Settle::Accept };
    // Its turn begins with two bytes of room, and all settlements arrive before it ends.
    node.start(Request::Settle(SettleRequest { settlements: vec![settlement], wait: false }));
    node.start(Request::Credit(reader, Credit { messages: 0, bytes: 3 }));
    assert_eq!(offsets(&node.delivered()), [1]);
}

/// Each settlement checked all readers of a stream; a waiting reader is checked after an event of its own or of its stream.
#[test]
fn readers_that_wait_go_on_when_there_is_more() {
    let world = SimWorld::new(13);
    let mut node = Node::open(&world, |_| {});
    let stream = node.stream("s");
    let waiting = node.attach(all(stream)).unwrap();
    let full = node.attach(AttachReader { prefetch: 1, ..all(stream) }).unwrap();
    for i in 0..3 {
        node.write(stream, i..i + 1);
        let got = node.delivered();
        let (mine, others): (Vec<_>, Vec<_>) = got.into_iter().partition(|d| d.consumer == waiting);
        assert_eq!(offsets(&mine), [i]);
        let expected: &[u64] = if i == 0 { &[0] } else { &[] };
        assert_eq!((offsets(&others), node.counts(stream).consumers), (expected.to_vec(), 2), "{full:?}");
    }
    let by = Holder::Consumer(full, 0);
    let settlement = Settlement { queue: stream, first: Offset(0), count: 1, by, how: Settle::Accept };
    node.ask(Request::Settle(SettleRequest { settlements: vec![settlement], wait: true }));
    assert_eq!(offsets(&node.delivered()), [1]);
}

/// A filter for messages that start with a letter.
#[derive(Debug)]
struct Begins(u8);

impl EntryFilter for Begins {
    fn wants(&self, entry: &Bytes) -> bool {
        entry.first() == Some(&self.0)
    }
}

#[test]
fn what_a_filter_does_not_want_takes_no_room() {
    let world = SimWorld::new(4);
    let mut node = Node::open(&world, |_| {});
    let stream = node.stream("s");
    let text = |i: u64| if i % 400 == 399 { format!("y{i}") } else { format!("n{i}") };
    node.publish((0..2_000).map(|i| message(&[stream], &text(i), -1)).collect());
    let filter: Option<Arc<dyn EntryFilter>> = Some(Arc::new(Begins(b'y')));
    node.attach(AttachReader { filter, prefetch: 1, credit: Some(4), ..all(stream) }).unwrap();
    let mut seen = Vec::new();
    loop {
        let got = node.delivered();
        assert!(got.len() <= 1);
        if got.is_empty() {
            break;
        }
        seen.extend(offsets(&got));
        node.settle(&got, Settle::Accept);
    }
    assert_eq!(seen, [399, 799, 1_199, 1_599], "as many as it has credit for");
}

#[test]
fn nobody_reads_what_is_not_on_the_disk_and_offsets_outlive_a_crash() {
    let world = SimWorld::new(5);
    let mut node = Node::open(&world, |_| {});
    let stream = node.stream("s");
    node.attach(all(stream)).unwrap();
    let request = PublishRequest { messages: vec![message(&[stream], "m0", -1)], ack: Ack::Committed, patient: false };
    node.start(Request::Publish(request));
    node.broker.log_step(Work::Write);
    assert_eq!(node.client.delivered.lock().len(), 0, "written and not flushed");
    assert_eq!(texts(&node.delivered()), ["m0"]);
    node.write(stream, 1..6);
    node.background();
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    assert_eq!((node.counts(stream).ready, node.counts(stream).consumers), (6, 0), "readers are of no life but one");
    node.attach(from(stream, ReadFrom::Offset(Offset(4)))).unwrap();
    assert_eq!(texts(&node.delivered()), ["m4", "m5"]);
    node.write(stream, 6..7);
    assert_eq!(offsets(&node.delivered()), [6]);
}

#[test]
fn a_reader_far_behind_reads_from_the_disk_in_order_while_others_read_the_end() {
    let world = SimWorld::new(6);
    let mut node = Node::open(&world, |config| {
        config.store.tail_cache_bytes = 0;
        config.checkpoint_bytes_max = 1;
    });
    let stream = node.stream("s");
    (0..20).for_each(|i| node.write(stream, i * 50..i * 50 + 50));
    node.background();
    let behind = node.attach(AttachReader { prefetch: 300, ..all(stream) }).unwrap();
    let at_end = node.attach(from(stream, ReadFrom::Next)).unwrap();
    let mut seen = Vec::new();
    for round in 0..5 {
        node.write(stream, 1_000 + round..1_001 + round);
        let got = node.delivered();
        let (old, new): (Vec<_>, Vec<_>) = got.into_iter().partition(|d| d.consumer == behind);
        assert_eq!(offsets(&new), [1_000 + round], "a slow reader does not delay the others");
        assert!(new.iter().all(|d| d.consumer == at_end));
        node.settle(&old, Settle::Accept);
        seen.extend(texts(&old));
    }
    seen.extend(texts(&node.delivered().into_iter().filter(|d| d.consumer == behind).collect::<Vec<_>>()));
    assert_eq!(seen, (0..1_005).map(|i| format!("m{i}")).collect::<Vec<_>>());
}

#[test]
fn a_reader_goes_on_with_the_oldest_there_is_when_retention_took_the_rest() {
    let world = SimWorld::new(7);
    let mut node = Node::open(&world, |config| {
        config.retention_check_ms = 10;
        config.store.tail_cache_bytes = 0;
    });
    let bounded = TopicConfig { retention_ms: None, retention_bytes: Some(20), ..TopicConfig::default() };
    let stream = node.topic("s", ConsumerMode::Readers, bounded);
    (0..4).for_each(|i| node.write(stream, i..i + 1));
    node.attach(AttachReader { prefetch: 1, ..all(stream) }).unwrap();
    let got = node.delivered();
    assert_eq!(offsets(&got), [0]);
    // One has its turn at the disk when the messages that it needs are deleted.
    let late = node.start(Request::AttachReader(all(stream)));
    (4..30).for_each(|i| {
        node.start(Request::Publish(PublishRequest {
            messages: vec![message(&[stream], &format!("m{i}"), -1)],
            ack: Ack::Committed,
            patient: false,
        }));
        while node.broker.log_step(Work::Write) | node.broker.log_step(Work::Flush) {}
    });
    world.clock.advance_ms(1_000);
    node.broker.tick();
    while node.broker.log_step(Work::Write) | node.broker.log_step(Work::Flush) {}
    let start = node.broker.partition_status(stream).unwrap().log_start.0;
    assert!(start > 4, "{start}");
    let Some(Reply::Attach(Ok(late))) = node.client.replies.lock().remove(&late) else { panic!("attached") };
    let all_there: Vec<_> = (start..30).collect();
    assert_eq!(offsets(&node.delivered()), all_there);
    node.start(Request::Detach(late));
    node.settle(&got, Settle::Accept);
    assert_eq!(offsets(&node.delivered()), [start]);
    assert_eq!(node.counts(stream).ready, 30 - start);
}

/// cloudamqp/lavinmq#1760, #1772: times were not found any more after the log continued in another file.
#[test]
fn times_are_found_in_old_files_after_a_start_and_after_retention() {
    let world = SimWorld::new(11);
    let mut node = Node::open(&world, |config| {
        config.checkpoint_bytes_max = 1;
        config.journal_file_bytes = 1 << 16;
    });
    let stream = node.stream("s");
    let large = |i: u64| PublishMessage {
        bytes: Bytes::from(vec![0; 1_000]),
        ..message(&[stream], "", 1_000 * i64::try_from(i).unwrap())
    };
    for i in 0..40 {
        assert!(node.publish((i * 10..i * 10 + 10).map(large).collect()).iter().all(Result::is_ok));
        node.background();
    }
    let first_at = |node: &mut Node, time| {
        let reader = node.attach(AttachReader { prefetch: 1, ..from(stream, ReadFrom::Time(time)) }).unwrap();
        let got = offsets(&node.delivered());
        node.start(Request::Detach(reader));
        got
    };
    let times = [(0, 0), (1, 1), (105_000, 105), (105_001, 106), (399_000, 399)];
    for (time, offset) in times {
        assert_eq!(first_at(&mut node, time), [offset], "{time}");
    }
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |config| {
        config.journal_file_bytes = 1 << 16;
        config.store.tail_cache_bytes = 0;
    });
    for (time, offset) in times {
        assert_eq!(first_at(&mut node, time), [offset], "{time}, after a start");
    }
    assert_eq!(first_at(&mut node, 399_001), [0; 0]);
    node.ask(Request::TrimPartitions(vec![TrimPartition { partition: stream, first: Some(Offset(105)) }]));
    for (time, offset) in [(0, 105), (104_000, 105), (105_001, 106)] {
        assert_eq!(first_at(&mut node, time), [offset], "{time}, of what is left");
    }
}

#[test]
fn readers_of_a_stream_that_goes_or_that_the_disk_does_not_give_hear_of_it() {
    let world = SimWorld::new(8);
    let mut node = Node::open(&world, |config| config.store.tail_cache_bytes = 0);
    let stream = node.stream("s");
    node.write(stream, 0..3);
    world.disk.inject(Fault::from(FaultOp::Read, 1, FaultKind::Io));
    let unlucky = node.attach(all(stream)).unwrap();
    assert_eq!((node.delivered().len(), &node.client.detached.lock()[..]), (0, &[unlucky][..]));
    assert_eq!(node.counts(stream).consumers, 0);
    world.disk.clear_faults();
    let readers = [0, 1].map(|_| node.attach(all(stream)).unwrap());
    assert_eq!(node.delivered().len(), 6);
    let topic = node.broker.catalog().topic("s").unwrap().id;
    node.ask(Request::DeleteTopics(DeleteTopics { topics: vec![TopicRef::Id(topic)] }));
    assert_eq!(node.client.detached.lock()[1..], readers);
    assert_eq!(node.attach(all(stream)), Err(AttachError::UnknownQueue));
}

#[test]
fn readers_go_with_their_session_wherever_they_are() {
    let world = SimWorld::new(9);
    let mut node = Node::open(&world, |config| config.store.tail_cache_bytes = 0);
    let stream = node.stream("s");
    node.write(stream, 0..3);
    // One waits for the disk, one for the offset of its time.
    node.start(Request::AttachReader(all(stream)));
    node.start(Request::AttachReader(from(stream, ReadFrom::Time(1_000))));
    assert_eq!(node.counts(stream).consumers, 2);
    let (gone, session) = (node.session, node.broker.new_session());
    node.start(Request::AttachReader(from(stream, ReadFrom::Time(1_000))));
    node.session = session;
    node.broker.session_gone(gone);
    assert_eq!(node.delivered().len(), 0);
    assert_eq!(node.counts(stream).consumers, 0);
}

#[test]
fn a_stream_and_a_queue_share_a_body_and_each_has_consumers_of_its_own_kind() {
    let world = SimWorld::new(10);
    let mut node = Node::open(&world, |_| {});
    let stream = node.stream("s");
    let config = TopicConfig { retention_ms: None, ..TopicConfig::default() };
    let queue = node.topic("q", ConsumerMode::Competing, config);
    assert_eq!(node.publish(vec![message(&[stream, queue], "both", -1)]), [Ok(())]);
    let consumer = Attach { queue: stream, consumer: ConsumerSpec::default() };
    let Reply::Attach(refused) = node.ask(Request::Attach(consumer)) else { panic!("no answer") };
    assert_eq!(refused, Err(AttachError::UnknownQueue));
    assert_eq!(node.attach(all(queue)), Err(AttachError::UnknownQueue));
    let Reply::Purge(purged) = node.ask(Request::Purge(stream)) else { panic!("no answer") };
    assert_eq!(purged, Err(SettleError::UnknownQueue));
    node.attach(all(stream)).unwrap();
    node.ask(Request::Attach(Attach { queue, consumer: ConsumerSpec::default() }));
    let got = node.delivered();
    assert_eq!(texts(&got), ["both", "both"]);
    let by_lease =
        Settlement { queue: stream, first: Offset(0), count: 1, by: Holder::Lease(got[0].lease), how: Settle::Accept };
    let Reply::Settle(results) = node.ask(Request::Settle(SettleRequest { settlements: vec![by_lease], wait: false }))
    else {
        panic!("no answer")
    };
    assert_eq!(results, [Err(SettleError::NotHeld)], "a stream knows no leases");
}
