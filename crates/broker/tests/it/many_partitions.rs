//! Reads and watches of many partitions at once, of several shards.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use node::{Node, entry};
use polylogue_api::*;
use polylogue_env::sim::SimWorld;
use polylogue_types::{Offset, PartitionId};

/// More than are checked under one hold of a lock.
const PARTITIONS: u32 = 300;

/// Partitions of a topic on disk and of one in memory, alternating: `entries` are appended to each of those numbers.
fn mixed(node: &mut Node, with_entries: &[usize]) -> Vec<PartitionId> {
    let memory = TopicConfig { durability: Durability::Memory, ..TopicConfig::default() };
    let disk = node.create("disk", PARTITIONS, TopicConfig::default());
    let memory = node.create("memory", PARTITIONS, memory);
    let pairs = disk.partitions.iter().zip(&memory.partitions);
    let all: Vec<_> = pairs.flat_map(|(disk, memory)| [disk.id, memory.id]).collect();
    for number in with_entries {
        node.append(entry(all[*number], &format!("[{number}]"))).unwrap();
    }
    all
}

fn part(partition: PartitionId, offset: u64, bytes_max: u32) -> ReadPart {
    ReadPart { partition, offset: Offset(offset), bytes_max }
}

fn read(node: &mut Node, parts: Vec<ReadPart>, bytes_max: u32, at_least_one: bool) -> Vec<Result<ReadData, ReadError>> {
    match node.ask(Request::Read(ReadRequest { parts, bytes_max, at_least_one })) {
        Reply::Read(results) => results,
        other => panic!("{other:?}"),
    }
}

fn text(result: &Result<ReadData, ReadError>) -> String {
    let chunks = &result.as_ref().unwrap().chunks;
    chunks.iter().map(|chunk| String::from_utf8(chunk.to_bytes().unwrap().to_vec()).unwrap()).collect()
}

#[test]
fn each_part_of_a_read_is_answered_in_its_place() {
    let world = SimWorld::new(1);
    let mut node = Node::open(&world, |_| {});
    let news = [0, 1, 255, 256, 257, 400, 599];
    let all = mixed(&mut node, &news);
    let mut parts: Vec<_> = all.iter().map(|id| part(*id, 0, 1_000)).collect();
    // Partitions of machines and of the broker cannot be read by clients, in any position.
    let own = PartitionId(3);
    parts[300] = part(PartitionId(u64::MAX), 0, 1_000);
    parts[301] = part(own, 0, 1_000);
    parts[302] = part(all[302], 1, 1_000);
    parts[303] = part(own, 0, 1_000);
    parts[400] = part(all[400], 1, 1_000);
    parts[599] = part(all[599], 0, 0);
    let results = read(&mut node, parts, 1 << 20, true);
    assert_eq!(results.len(), all.len());
    for (number, result) in results.iter().enumerate() {
        let high_watermark = Offset(news.contains(&number).into());
        match number {
            300 | 301 | 303 => assert!(matches!(result, Err(ReadError::UnknownPartition)), "{number}: {result:?}"),
            302 => {
                let expected = ReadError::OutOfRange { log_start: Offset(0), high_watermark };
                assert_eq!(result.as_ref().err(), Some(&expected));
            }
            _ => {
                let expected = if news[..5].contains(&number) { format!("[{number}]") } else { String::new() };
                assert_eq!(text(result), expected, "{number}");
                assert_eq!(result.as_ref().unwrap().high_watermark, high_watermark, "{number}");
            }
        }
    }
}

#[test]
fn bytes_are_given_to_the_parts_in_their_order() {
    let world = SimWorld::new(2);
    let mut node = Node::open(&world, |_| {});
    let all = mixed(&mut node, &[3, 4, 298, 590]);
    let parts: Vec<_> = all.iter().rev().map(|id| part(*id, 0, 1_000)).collect();
    for (bytes_max, at_least_one, expected) in [
        (0, false, ""),
        (0, true, "[590]"),
        // A part that does not fit leaves the room to the parts after it.
        (4, false, "[4]"),
        (5, false, "[590]"),
        (9, true, "[590][4]"),
        (100, false, "[590][298][4][3]"),
    ] {
        let results = read(&mut node, parts.clone(), bytes_max, at_least_one);
        let texts: String = results.iter().map(text).collect();
        assert_eq!(texts, expected, "{bytes_max} {at_least_one}");
        assert!(results.iter().rev().zip(0..).all(|(result, number)| {
            result.as_ref().unwrap().high_watermark == Offset([3, 4, 298, 590].contains(&number).into())
        }));
    }
}

#[test]
fn a_watch_over_shards_fires_for_each_of_them_and_is_called_off_in_all() {
    let world = SimWorld::new(3);
    let mut node = Node::open(&world, |_| {});
    let all = mixed(&mut node, &[7]);
    let watches = |node: &Node| node.broker.shards().iter().map(|shard| shard.watches).sum::<usize>();
    let seen = |high_watermark: u64| {
        let seen = |(number, id): (usize, &PartitionId)| (*id, Offset(if number == 7 { high_watermark } else { 0 }));
        Request::Watch(WatchRequest { seen: all.iter().enumerate().map(seen).collect(), followed: None })
    };
    let late = node.start(seen(0));
    assert_eq!(*node.client.events.lock(), [late], "number 7 is past it");
    assert_eq!(watches(&node), 0, "and nothing is left of it in either shard");
    let watch = node.start(seen(1));
    assert_eq!(watches(&node), 2);
    node.append(entry(all[400], "x")).unwrap();
    assert_eq!(*node.client.events.lock(), [late, watch]);
    node.append(entry(all[402], "x")).unwrap();
    assert_eq!(*node.client.events.lock(), [late, watch], "once in a shard");
    assert_eq!(watches(&node), 1);
    node.start(Request::Unwatch(watch));
    assert_eq!(watches(&node), 0);
    node.append(entry(all[401], "x")).unwrap();
    assert_eq!(*node.client.events.lock(), [late, watch]);
}

#[test]
fn who_watches_a_topic_that_is_deleted_is_told_once() {
    let world = SimWorld::new(4);
    let mut node = Node::open(&world, |_| {});
    let all = mixed(&mut node, &[]);
    let disk: Vec<_> = all.iter().step_by(2).map(|id| (*id, Offset(0))).collect();
    let watch = node.start(Request::Watch(WatchRequest { seen: disk.clone(), followed: None }));
    let delete = DeleteTopics { topics: vec![TopicRef::Name("disk".into())] };
    let Reply::DeleteTopics(results) = node.ask(Request::DeleteTopics(delete)) else { panic!() };
    assert!(results[0].is_ok());
    assert_eq!(*node.client.events.lock(), [watch]);
    let late = node.start(Request::Watch(WatchRequest { seen: disk, followed: None }));
    assert_eq!(*node.client.events.lock(), [watch, late]);
    assert_eq!(node.broker.shards().iter().map(|shard| shard.watches).sum::<usize>(), 0);
}

#[test]
fn a_followed_set_tells_what_changed_over_shards() {
    let world = SimWorld::new(5);
    let mut node = Node::open(&world, |_| {});
    let all = mixed(&mut node, &[]);
    let followed = |node: &Node| node.broker.shards().iter().map(|shard| shard.followed).sum::<usize>();
    let follow = |node: &mut Node, add: &[PartitionId], remove: &[PartitionId]| {
        let request = FollowRequest { set: 9, add: add.to_vec(), remove: remove.to_vec() };
        let Reply::Follow(mut changed) = node.ask(Request::Follow(request)) else { panic!() };
        changed.sort_unstable();
        changed
    };
    let wait = || Request::Watch(WatchRequest { seen: Vec::new(), followed: Some(9) });
    let missing = PartitionId(77_000);
    assert_eq!(follow(&mut node, &[all[400], all[401], missing], &[]), [missing]);
    assert_eq!(followed(&node), 2);
    let first = node.start(wait());
    node.append(entry(all[402], "not followed")).unwrap();
    assert!(node.client.events.lock().is_empty());
    node.append(entry(all[400], "x")).unwrap();
    assert_eq!(*node.client.events.lock(), [first]);
    node.append(entry(all[401], "x")).unwrap();
    node.append(entry(all[400], "x")).unwrap();
    node.start(Request::Unwatch(first));
    let mut changed = [all[400], all[401]];
    changed.sort_unstable();
    assert_eq!(follow(&mut node, &[all[400]], &[]), changed);
    // Changes between the query and the watch are not lost.
    node.append(entry(all[401], "y")).unwrap();
    let second = node.start(wait());
    assert!(node.client.events.lock().contains(&second));
    node.start(Request::Unwatch(second));
    assert_eq!(follow(&mut node, &[], &[all[401]]), [all[401]]);
    node.append(entry(all[401], "y")).unwrap();
    assert_eq!(follow(&mut node, &[], &[]), []);
    // A new log start and a deletion are changes too.
    let trim = vec![TrimPartition { partition: all[400], first: None }];
    let Reply::TrimPartitions(_) = node.ask(Request::TrimPartitions(trim)) else { panic!() };
    assert_eq!(follow(&mut node, &[], &[]), [all[400]]);
    let last = node.start(wait());
    node.ask(Request::DeleteTopics(DeleteTopics { topics: vec![TopicRef::Name("disk".into())] }));
    assert!(node.client.events.lock().contains(&last));
    assert_eq!((follow(&mut node, &[], &[]), followed(&node)), (vec![all[400]], 0));
    node.start(Request::Unfollow(9));
    assert_eq!(follow(&mut node, &[], &[]), []);
}
