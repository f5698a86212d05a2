//! Changing topics and settings, trimming and querying partitions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use node::{Node, entry, stamped};
use parking_lot::Mutex;
use polylogue_api::machine::Command;
use polylogue_api::*;
use polylogue_env::sim::SimWorld;
use polylogue_replicate::Work;
use polylogue_types::{Offset, PartitionId, ProducerId};
use std::sync::Arc;

fn settings(pairs: &[(&str, &str)]) -> Settings {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Sets exactly `raw` for a topic whose present config is `expected`.
fn configure(topic: &TopicInfo, expected: &[(&str, &str)], raw: &[(&str, &str)]) -> TopicChange {
    let config = TopicConfig { raw: settings(raw), ..TopicConfig::clone(&topic.config) };
    let config = Some(ConfigChange { expected: settings(expected), config });
    TopicChange { topic: topic.id, config, partitions: None }
}

fn grow(topic: &TopicInfo, from: u32, to: u32) -> TopicChange {
    TopicChange { topic: topic.id, config: None, partitions: Some(PartitionsChange { from, to }) }
}

fn alter(changes: Vec<TopicChange>) -> Request {
    Request::AlterTopics(AlterTopics { changes, validate_only: false })
}

fn document(scope: SettingsScope, expected: &[(&str, &str)], new: &[(&str, &str)]) -> Request {
    let change = SettingsChange { scope, expected: settings(expected), settings: settings(new) };
    Request::AlterSettings(AlterSettings { changes: vec![change], validate_only: false })
}

fn altered(reply: Reply) -> Result<(), AlterError> {
    match reply {
        Reply::AlterTopics(mut results) | Reply::AlterSettings(mut results) => results.remove(0),
        other => panic!("{other:?}"),
    }
}

fn trimmed(reply: Reply) -> Vec<Result<Offset, TrimError>> {
    match reply {
        Reply::TrimPartitions(results) => results,
        other => panic!("{other:?}"),
    }
}

fn trim(partition: PartitionId, first: Option<u64>) -> TrimPartition {
    TrimPartition { partition, first: first.map(Offset) }
}

/// Topics inherit `retention.bytes` from the cluster's or the node's document.
#[derive(Debug, Default)]
struct Inheriting(Mutex<(Option<u64>, Option<usize>)>);

impl ConfigResolver for Inheriting {
    fn settings_changed(&self, cluster: &Settings, node: &Settings) {
        let number = |name: &str| node.get(name).or_else(|| cluster.get(name)).map(|text| text.parse::<u64>().unwrap());
        *self.0.lock() = (number("retention.bytes"), number("tail").map(|bytes| bytes as usize));
    }

    fn inherited(&self) -> Inherited {
        Inherited::new(TopicConfig { retention_bytes: self.0.lock().0, ..TopicConfig::default() })
    }

    fn topic(&self, inherited: &Inherited, layer: &Arc<TopicConfig>) -> Arc<TopicConfig> {
        let retention_bytes = inherited.config.retention_bytes;
        // An inherited durability must not override the topic's own.
        Arc::new(TopicConfig { retention_bytes, durability: Durability::Memory, ..TopicConfig::clone(layer) })
    }

    fn tuning(&self) -> Tuning {
        Tuning { tail_cache_bytes: self.0.lock().1, ..Tuning::default() }
    }

    fn machine_commands(&self) -> Vec<(MachineId, Command)> {
        Vec::new()
    }
}

#[test]
fn what_was_changed_about_a_topic_survives() {
    let world = SimWorld::new(21);
    let mut node = Node::open(&world, |_| {});
    let topic = node.create("t", 2, TopicConfig::default());
    let mut change = configure(&topic, &[], &[("retention.ms", "5")]);
    change.partitions = grow(&topic, 2, 4).partitions;
    assert_eq!(altered(node.ask(alter(vec![change]))), Ok(()));
    let changed = node.broker.catalog().topic("t").unwrap();
    assert_eq!(changed.config.raw, settings(&[("retention.ms", "5")]));
    assert_eq!(changed.partitions[..2], topic.partitions[..]);
    let ids: Vec<_> = changed.partitions.iter().map(|p| p.id).collect();
    assert_eq!(ids.len(), 4);
    node.append(entry(ids[3], "x")).unwrap();
    let other = node.create("u", 1, TopicConfig::default());
    assert!(!ids.contains(&other.partitions[0].id), "an id was given out twice");
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    let after = node.broker.catalog().topic("t").unwrap();
    assert_eq!(after.config, changed.config);
    assert_eq!(after.partitions.iter().map(|p| p.id).collect::<Vec<_>>(), ids);
    assert_eq!(node.text(ids[3], 0), "x");
}

#[test]
fn a_change_is_answered_when_it_is_committed_and_shown_no_earlier() {
    let world = SimWorld::new(22);
    let mut node = Node::open(&world, |_| {});
    let topic = node.create("t", 1, TopicConfig::default());
    let token = node.start(alter(vec![grow(&topic, 1, 3)]));
    node.broker.log_step(Work::Write);
    assert!(!node.client.replies.lock().contains_key(&token), "acknowledged before the flush");
    assert_eq!(node.broker.catalog().topic("t").unwrap().partitions.len(), 1);
    node.broker.log_step(Work::Flush);
    assert!(node.client.replies.lock().contains_key(&token));
    assert_eq!(node.broker.catalog().topic("t").unwrap().partitions.len(), 3);
}

#[test]
fn of_two_changes_at_the_same_time_none_is_lost() {
    let world = SimWorld::new(23);
    let mut node = Node::open(&world, |_| {});
    let topic = node.create("t", 1, TopicConfig::default());
    let first = node.start(alter(vec![configure(&topic, &[], &[("a", "1")])]));
    // The first one is not committed yet, and counts.
    let second = node.start(alter(vec![configure(&topic, &[], &[("b", "2")])]));
    let third = node.start(alter(vec![configure(&topic, &[("a", "1")], &[("a", "1"), ("b", "2")])]));
    let grown = node.start(alter(vec![grow(&topic, 1, 2)]));
    let late = node.start(alter(vec![grow(&topic, 1, 5)]));
    let refused = [second, late];
    assert!(refused.iter().all(|token| !node.client.replies.lock().contains_key(token)), "nothing is committed");
    node.drive();
    let answer = |token| altered(node.client.replies.lock().remove(&token).expect("an answer"));
    for token in [first, third, grown] {
        assert_eq!(answer(token), Ok(()));
    }
    let current = Current { settings: settings(&[("a", "1")]), partitions: 1 };
    assert_eq!(answer(second), Err(AlterError::Conflict(current)));
    assert!(matches!(answer(late), Err(AlterError::Conflict(Current { partitions: 2, .. }))));
    let topic = node.broker.catalog().topic("t").unwrap();
    assert_eq!((topic.config.raw.clone(), topic.partitions.len()), (settings(&[("a", "1"), ("b", "2")]), 2));
}

#[test]
fn what_cannot_be_changed_is_not() {
    let world = SimWorld::new(24);
    let mut node = Node::open(&world, |config| config.partitions_max = 4);
    let topic = node.create("t", 2, TopicConfig::default());
    let validate = AlterTopics { changes: vec![grow(&topic, 2, 3)], validate_only: true };
    assert_eq!(altered(node.ask(Request::AlterTopics(validate))), Ok(()));
    let mut other = configure(&topic, &[], &[]);
    other.config.as_mut().unwrap().config.durability = Durability::Memory;
    assert_eq!(altered(node.ask(alter(vec![other]))), Err(AlterError::DurabilityFixed));
    let too_many = AlterError::TooManyPartitions { partitions_max: 4 };
    assert_eq!(altered(node.ask(alter(vec![grow(&topic, 2, 5)]))), Err(too_many));
    let large = "x".repeat(2 << 20);
    let large = altered(node.ask(alter(vec![configure(&topic, &[], &[("a", &large)])])));
    assert!(matches!(large, Err(AlterError::TooLarge { .. })), "{large:?}");
    assert_eq!(node.broker.catalog().topic("t").unwrap(), topic);
    node.ask(Request::DeleteTopics(DeleteTopics { topics: vec![TopicRef::Name("t".into())] }));
    assert_eq!(altered(node.ask(alter(vec![grow(&topic, 2, 3)]))), Err(AlterError::UnknownTopic));
    // The topic's quota is free again, including added partitions.
    node.create("u", 4, TopicConfig::default());
}

/// Appends after the change is applied have the new durability, in existing partitions.
#[test]
fn another_durability_holds_for_what_is_appended_from_then_on() {
    let world = SimWorld::new(31);
    let mut node = Node::open(&world, |_| {});
    let of = |durability| TopicConfig { durability, ..TopicConfig::default() };
    let set = |topic: &TopicInfo, durability| {
        let mut change = configure(topic, &[], &[]);
        change.config.as_mut().unwrap().config.durability = durability;
        alter(vec![change])
    };
    let quick = node.create("quick", 1, of(Durability::Async));
    let safe = node.create("safe", 1, of(Durability::Sync));
    let (q, s) = (quick.partitions[0].id, safe.partitions[0].id);
    node.append(entry(q, "a")).unwrap();
    node.append(entry(s, "a")).unwrap();
    assert_eq!(altered(node.ask(set(&quick, Durability::Sync))), Ok(()));
    assert_eq!(altered(node.ask(set(&safe, Durability::Async))), Ok(()));
    let catalog = node.broker.catalog();
    let held = |name: &str| catalog.topic(name).unwrap().config.durability;
    assert_eq!((held("quick"), held("safe")), (Durability::Sync, Durability::Async));
    node.append(entry(q, "b")).unwrap();
    // Written and not flushed: enough for one class, not for the other.
    let append = |p| Request::Append(AppendRequest { entries: vec![entry(p, "c")], ack: Ack::Committed });
    let tokens = [append(q), append(s)].map(|request| node.start(request));
    node.broker.log_step(Work::Write);
    let answered = tokens.map(|token| node.client.replies.lock().contains_key(&token));
    assert_eq!(answered, [false, true]);
    // A power cut removes messages acknowledged before their flush, and nothing else; the new durability stays.
    drop(node);
    world.disk.crash_losing_all();
    world.crash();
    let mut node = Node::open(&world, |_| {});
    assert_eq!((node.text(q, 0), node.text(s, 0)), ("ab".to_owned(), "a".to_owned()));
    let token = node.start(append(s));
    node.broker.log_step(Work::Write);
    assert!(node.client.replies.lock().contains_key(&token));
    // New partitions are placed with the existing ones.
    let safe = node.broker.catalog().topic("safe").unwrap();
    assert_eq!(altered(node.ask(alter(vec![grow(&safe, 1, 2)]))), Ok(()));
    let new = node.broker.catalog().topic("safe").unwrap().partitions[1].id;
    let token = node.start(append(new));
    node.broker.log_step(Work::Write);
    assert!(node.client.replies.lock().contains_key(&token));
}

#[test]
fn documents_are_kept_replaced_and_removed() {
    let world = SimWorld::new(25);
    let small = |config: &mut polylogue_broker::BrokerConfig| config.checkpoint_bytes_max = 1;
    let mut node = Node::open(&world, small);
    let group = || SettingsScope::Group("g".into());
    assert_eq!(altered(node.ask(document(group(), &[], &[("a", "1")]))), Ok(()));
    assert_eq!(altered(node.ask(document(SettingsScope::Cluster, &[], &[("b", "2")]))), Ok(()));
    let stale = altered(node.ask(document(group(), &[], &[("a", "3")])));
    let current = Current { settings: settings(&[("a", "1")]), partitions: 0 };
    assert_eq!(stale, Err(AlterError::Conflict(current)));
    node.background();
    assert_eq!(altered(node.ask(document(group(), &[("a", "1")], &[("a", "3")]))), Ok(()));
    assert_eq!(altered(node.ask(document(SettingsScope::Cluster, &[("b", "2")], &[]))), Ok(()));
    drop(node);
    world.crash();
    // Once from a checkpoint and later frames, once from another checkpoint alone.
    for _ in 0..2 {
        let node = Node::open(&world, small);
        let catalog = node.broker.catalog();
        assert_eq!(*catalog.settings(&group()), settings(&[("a", "3")]));
        assert_eq!(catalog.settings_scopes(), [group()]);
        node.background();
        node.broker.shutdown();
    }
}

#[test]
fn what_is_inherited_reaches_topics_that_exist() {
    let world = SimWorld::new(26);
    let open = |world: &SimWorld| Node::open(world, |config| config.resolver = Arc::new(Inheriting::default()));
    let mut node = open(&world);
    let topic = node.create("t", 1, TopicConfig::default());
    let a = topic.partitions[0].id;
    for _ in 0..10 {
        node.append(entry(a, &"x".repeat(50))).unwrap();
    }
    assert_eq!(altered(node.ask(document(SettingsScope::Cluster, &[], &[("retention.bytes", "200")]))), Ok(()));
    let now = node.broker.catalog().topic("t").unwrap();
    assert_eq!((now.config.retention_bytes, now.config.durability), (Some(200), Durability::Sync));
    world.clock.advance_ms(1000);
    node.drive();
    assert!(node.broker.partition_status(a).unwrap().log_start >= Offset(4), "retention goes by what is inherited");
    drop(node);
    world.crash();
    let mut node = open(&world);
    assert_eq!(node.broker.catalog().topic("t").unwrap().config.retention_bytes, Some(200));
    let own = node.broker.catalog().cluster().node;
    assert_eq!(altered(node.ask(document(SettingsScope::Node(own), &[], &[("retention.bytes", "700")]))), Ok(()));
    assert_eq!(node.broker.catalog().topic("t").unwrap().config.retention_bytes, Some(700));
    assert_eq!(node.create("u", 1, TopicConfig::default()).config.retention_bytes, Some(700));
}

#[test]
fn the_tail_cache_changes_its_size_while_running() {
    let world = SimWorld::new(27);
    let open = |world: &SimWorld| Node::open(world, |config| config.resolver = Arc::new(Inheriting::default()));
    let mut node = open(&world);
    let a = node.create("t", 1, TopicConfig::default()).partitions[0].id;
    for _ in 0..20 {
        node.append(entry(a, &"x".repeat(1000))).unwrap();
    }
    let tail = |node: &Node| node.broker.shards()[1].store.tail_bytes;
    assert!(tail(&node) > 20_000);
    assert_eq!(altered(node.ask(document(SettingsScope::Cluster, &[], &[("tail", "4000")]))), Ok(()));
    assert!(tail(&node) <= 4_000, "{}", tail(&node));
    assert_eq!(node.text(a, 0).len(), 20_000, "what left memory is read from the disk");
    drop(node);
    world.crash();
    let mut node = open(&world);
    for _ in 0..20 {
        node.append(entry(a, &"x".repeat(1000))).unwrap();
    }
    assert!(tail(&node) <= 4_000, "{}", tail(&node));
}

#[test]
fn trimming_is_answered_when_it_is_committed() {
    let world = SimWorld::new(28);
    let mut node = Node::open(&world, |_| {});
    let of = |durability| TopicConfig { durability, ..TopicConfig::default() };
    let partitions = [Durability::Sync, Durability::Async, Durability::Memory]
        .map(|durability| node.create(&format!("{durability:?}"), 1, of(durability)).partitions[0].id);
    for partition in partitions {
        for i in 0..5 {
            node.append(entry(partition, &i.to_string())).unwrap();
        }
    }
    let [a, b, m] = partitions;
    let token = node.start(Request::TrimPartitions(vec![trim(a, Some(2)), trim(b, None), trim(m, Some(3))]));
    node.broker.log_step(Work::Write);
    assert!(!node.client.replies.lock().contains_key(&token), "acknowledged before the flush");
    node.drive();
    let results = trimmed(node.client.replies.lock().remove(&token).expect("an answer"));
    assert_eq!(results, [Ok(Offset(2)), Ok(Offset(5)), Ok(Offset(3))]);
    let first = |node: &Node, partition| node.broker.partition_status(partition).unwrap().log_start;
    assert_eq!(partitions.map(|p| first(&node, p)), [Offset(2), Offset(5), Offset(3)]);
    assert!(matches!(node.read(a, 1), Err(ReadError::OutOfRange { .. })));
    let unknown = PartitionId(77);
    let results =
        trimmed(node.ask(Request::TrimPartitions(vec![trim(a, Some(6)), trim(a, Some(1)), trim(unknown, None)])));
    let beyond = TrimError::OutOfRange { high_watermark: Offset(5) };
    assert_eq!(results, [Err(beyond), Ok(Offset(2)), Err(TrimError::UnknownPartition)]);
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    assert_eq!((first(&node, a), node.text(a, 2)), (Offset(2), "234".to_owned()));
    assert_eq!(node.append(entry(b, "5")).unwrap().base_offset, Offset(5));
}

#[test]
fn a_topic_that_is_only_compacted_keeps_everything() {
    let world = SimWorld::new(29);
    let mut node = Node::open(&world, |_| {});
    let of = |delete| TopicConfig {
        retention_bytes: Some(100),
        retention_ms: Some(1),
        cleanup: Cleanup { delete, compact: true },
        ..TopicConfig::default()
    };
    let kept = node.create("compact", 1, of(false)).partitions[0].id;
    let gone = node.create("both", 1, of(true)).partitions[0].id;
    for _ in 0..10 {
        node.append(entry(kept, &"x".repeat(50))).unwrap();
        node.append(entry(gone, &"x".repeat(50))).unwrap();
    }
    world.clock.advance_ms(60_000);
    node.drive();
    assert_eq!(node.broker.partition_status(kept).unwrap().log_start, Offset(0));
    assert!(node.broker.partition_status(gone).unwrap().log_start > Offset(0), "delete counts as well");
}

#[test]
fn what_partitions_hold_is_told() {
    let world = SimWorld::new(30);
    let mut node = Node::open(&world, |_| {});
    let a = node.create("t", 1, TopicConfig::default()).partitions[0].id;
    for i in 0..3 {
        node.append(stamped(a, "xy", i)).unwrap();
    }
    let token = node.start(Request::Append(AppendRequest { entries: vec![stamped(a, "z", 3)], ack: Ack::Committed }));
    let Reply::DescribePartitions(sizes) = node.ask_now(Request::DescribePartitions(vec![a, PartitionId(7)])) else {
        panic!()
    };
    let size = PartitionSize { bytes: 6, log_start: Offset(0), high_watermark: Offset(3) };
    assert_eq!(sizes.partitions, [Some(size), None]);
    assert_eq!(sizes.directory, "/data");
    assert!(sizes.free_bytes.is_some());
    let Reply::DescribeProducers(producers) = node.ask_now(Request::DescribeProducers(vec![a, PartitionId(7)])) else {
        panic!()
    };
    let producer = producers[0].as_ref().unwrap()[0];
    assert_eq!((producer.id, producer.epoch, producer.last_sequence), (ProducerId(7), 0, 2), "not what is on its way");
    assert_eq!(producers[1], Err(ProducersError::UnknownPartition));
    node.drive();
    assert!(node.client.replies.lock().contains_key(&token));
}

#[test]
fn the_log_of_the_metadata_is_described_as_it_is_applied() {
    let world = SimWorld::new(32);
    let mut node = Node::open(&world, |_| {});
    let describe = |node: &mut Node| {
        let Reply::DescribeMetadataLog(log) = node.ask_now(Request::DescribeMetadataLog) else { panic!() };
        log.unwrap()
    };
    let before = describe(&mut node);
    assert_eq!(before.high_watermark, before.end);
    let topic = NewTopic { name: "t".into(), partitions: 1, config: TopicConfig::default(), internal: false };
    node.start(Request::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false }));
    node.broker.log_step(Work::Write);
    let written = describe(&mut node);
    assert_eq!((written.high_watermark, written.end), (before.high_watermark, before.end.next()), "not committed yet");
    node.drive();
    let after = describe(&mut node);
    // The partition's opening is a record of another shard.
    assert_eq!((after.term, after.high_watermark, after.end), (before.term, written.end, written.end));
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    let next = describe(&mut node);
    assert!(next.term > after.term && next.high_watermark > after.high_watermark, "{next:?} after {after:?}");
    assert_eq!(next.directory, after.directory);
}
