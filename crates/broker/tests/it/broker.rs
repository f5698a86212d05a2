//! The broker on the simulated machine: acknowledged data survives, and only committed data is read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use node::{Node, entry, stamped};
use polylogue_api::*;
use polylogue_broker::BrokerConfig;
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimWorld};
use polylogue_replicate::Work;
use polylogue_types::{Offset, PartitionId};

#[test]
fn what_is_acknowledged_is_read_before_and_after_a_crash() {
    let world = SimWorld::new(1);
    let mut node = Node::open(&world, |_| {});
    let topic = node.create("orders", 2, TopicConfig::default());
    let (a, b) = (topic.partitions[0].id, topic.partitions[1].id);
    for i in 0..10u64 {
        assert_eq!(node.append(entry(a, &format!("a{i}"))).unwrap().base_offset, Offset(i));
    }
    assert_eq!(node.append(entry(b, "b0")).unwrap().base_offset, Offset(0));
    assert_eq!(node.text(a, 3), "a3a4a5a6a7a8a9");
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    let topic = node.broker.catalog().topic("orders").expect("the topic survived");
    assert_eq!(topic.partitions[0].id, a);
    assert_eq!(node.text(a, 0), "a0a1a2a3a4a5a6a7a8a9");
    assert_eq!(node.text(b, 0), "b0");
    assert_eq!(node.append(entry(a, "a10")).unwrap().base_offset, Offset(10));
    assert!(topic.partitions[0].leader_epoch > 0, "a restart is a new leader epoch");
}

#[test]
fn nothing_is_acknowledged_or_shown_before_it_is_flushed() {
    let world = SimWorld::new(2);
    let mut node = Node::open(&world, |_| {});
    let topic = node.create("t", 1, TopicConfig::default());
    let a = topic.partitions[0].id;
    let request = AppendRequest { entries: vec![entry(a, "x")], ack: Ack::Committed };
    let token = node.start(Request::Append(request));
    node.broker.log_step(Work::Write);
    assert!(!node.client.replies.lock().contains_key(&token), "acknowledged before the flush");
    assert_eq!(node.broker.partition_status(a).unwrap().high_watermark, Offset(0));
    node.broker.log_step(Work::Flush);
    assert!(node.client.replies.lock().contains_key(&token));
    assert_eq!(node.broker.partition_status(a).unwrap().high_watermark, Offset(1));
}

#[test]
fn a_retry_is_answered_with_the_first_offset_even_after_a_crash() {
    let world = SimWorld::new(3);
    let mut node = Node::open(&world, |_| {});
    let a = node.create("t", 1, TopicConfig::default()).partitions[0].id;
    for i in 0..6 {
        node.append(stamped(a, "x", i)).unwrap();
    }
    let again = node.append(stamped(a, "x", 3)).unwrap();
    assert_eq!((again.base_offset, again.duplicate), (Offset(3), true));
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    let again = node.append(stamped(a, "x", 5)).unwrap();
    assert_eq!((again.base_offset, again.duplicate), (Offset(5), true));
    assert_eq!(node.append(stamped(a, "x", 7)), Err(AppendError::OutOfOrderSequence));
    assert_eq!(node.append(stamped(a, "x", 6)).unwrap().base_offset, Offset(6));
}

#[test]
fn a_duplicate_of_what_is_not_committed_yet_waits_for_it() {
    let world = SimWorld::new(4);
    let mut node = Node::open(&world, |_| {});
    let a = node.create("t", 1, TopicConfig::default()).partitions[0].id;
    let request = |node: &mut Node| {
        node.start(Request::Append(AppendRequest { entries: vec![stamped(a, "x", 0)], ack: Ack::Committed }))
    };
    let first = request(&mut node);
    let second = request(&mut node);
    assert!(node.client.replies.lock().is_empty() || !node.client.replies.lock().contains_key(&second));
    node.drive();
    let replies = node.client.replies.lock();
    for token in [first, second] {
        assert!(matches!(&replies[&token], Reply::Append(r) if r[0].unwrap().base_offset == Offset(0)), "{token}");
    }
    drop(replies);
    assert_eq!(node.broker.partition_status(a).unwrap().high_watermark, Offset(1), "written once");
}

#[test]
fn a_watch_fires_when_its_partition_grows_and_not_before() {
    let world = SimWorld::new(5);
    let mut node = Node::open(&world, |_| {});
    let a = node.create("t", 1, TopicConfig::default()).partitions[0].id;
    let watch = node.start(Request::Watch(WatchRequest { seen: vec![(a, Offset(0))], followed: None }));
    node.drive();
    assert!(node.client.events.lock().is_empty());
    node.append(entry(a, "x")).unwrap();
    assert_eq!(*node.client.events.lock(), [watch]);
    let late = node.start(Request::Watch(WatchRequest { seen: vec![(a, Offset(0))], followed: None }));
    assert_eq!(*node.client.events.lock(), [watch, late], "past events are reported immediately");
}

#[test]
fn deleted_topics_are_gone_and_their_names_are_free() {
    let world = SimWorld::new(6);
    let mut node = Node::open(&world, |_| {});
    let old = node.create("t", 1, TopicConfig::default());
    node.append(entry(old.partitions[0].id, "old")).unwrap();
    let delete = DeleteTopics { topics: vec![TopicRef::Name("t".into())] };
    let Reply::DeleteTopics(results) = node.ask(Request::DeleteTopics(delete)) else { panic!() };
    assert_eq!(results[0].as_ref().unwrap().id, old.id);
    let again = node.create("t", 1, TopicConfig::default());
    assert_ne!((again.id, again.partitions[0].id), (old.id, old.partitions[0].id), "ids are never used again");
    assert!(matches!(node.append(entry(old.partitions[0].id, "x")), Err(AppendError::UnknownPartition)));
    node.append(entry(again.partitions[0].id, "new")).unwrap();
    drop(node);
    world.crash();
    let mut node = Node::open(&world, |_| {});
    assert_eq!(node.text(again.partitions[0].id, 0), "new");
    assert!(matches!(node.read(old.partitions[0].id, 0), Err(ReadError::UnknownPartition)));
}

#[test]
fn checkpoints_and_merges_lose_nothing() {
    let world = SimWorld::new(7);
    let small = |config: &mut BrokerConfig| {
        config.checkpoint_bytes_max = 256 << 10;
        config.store.merge_bytes = 1 << 20;
    };
    let mut node = Node::open(&world, small);
    let topic = node.create("t", 8, TopicConfig::default());
    let text = "0123456789abcdef".repeat(64);
    for i in 0..4000u64 {
        let partition = topic.partitions[(i % 8) as usize].id;
        node.append(entry(partition, &format!("{i:08}{text}"))).unwrap();
        if i % 200 == 0 {
            node.background();
        }
    }
    node.background();
    let status = node.broker.shards();
    assert!(status[1].store.segments > 0, "something was merged: {status:?}");
    assert!(node.broker.failures().is_empty(), "{:?}", node.broker.failures());
    for crash in [false, true] {
        for (p, partition) in topic.partitions.iter().enumerate() {
            let mut next = 0;
            while next < 500 {
                let read = node.read(partition.id, next).unwrap();
                let bytes: Vec<u8> = read.chunks.iter().flat_map(|c| c.to_bytes().unwrap()).collect();
                assert!(!bytes.is_empty(), "nothing at {next}");
                for one in bytes.chunks(8 + text.len()) {
                    assert_eq!(&one[..8], format!("{:08}", next * 8 + p as u64).as_bytes());
                    next += 1;
                }
            }
        }
        if !crash {
            drop(node);
            world.crash();
            node = Node::open(&world, small);
        }
    }
}

#[test]
fn retention_moves_the_log_start_by_a_record() {
    let world = SimWorld::new(8);
    let mut node = Node::open(&world, |c| c.retention_check_ms = 10);
    let config = TopicConfig { retention_bytes: Some(100), ..TopicConfig::default() };
    let a = node.create("t", 1, config).partitions[0].id;
    for _ in 0..10 {
        node.append(entry(a, &"x".repeat(50))).unwrap();
    }
    world.clock.advance_ms(1000);
    node.drive();
    let status = node.broker.partition_status(a).unwrap();
    assert!(status.log_start >= Offset(7), "{status:?}");
    assert!(matches!(node.read(a, 0), Err(ReadError::OutOfRange { .. })));
    drop(node);
    world.crash();
    let node = Node::open(&world, |_| {});
    assert_eq!(node.broker.partition_status(a).unwrap().log_start, status.log_start);
}

#[test]
fn async_and_memory_topics_live_in_shards_of_their_own() {
    let world = SimWorld::new(9);
    let mut node = Node::open(&world, |_| {});
    let config = |durability| TopicConfig { durability, ..TopicConfig::default() };
    let a = node.create("async", 1, config(Durability::Async)).partitions[0].id;
    let m = node.create("memory", 1, config(Durability::Memory)).partitions[0].id;
    let s = node.create("sync", 1, config(Durability::Sync)).partitions[0].id;
    for partition in [a, m, s] {
        node.append(entry(partition, "x")).unwrap();
        assert_eq!(node.text(partition, 0), "x");
    }
    let all = AppendRequest { entries: [a, m, s].map(|p| entry(p, "y")).into(), ack: Ack::Committed };
    let Reply::Append(results) = node.ask(Request::Append(all)) else { panic!() };
    assert!(results.iter().all(|r| r.unwrap().base_offset == Offset(1)), "{results:?}");
    drop(node);
    world.kill();
    let mut node = Node::open(&world, |_| {});
    assert_eq!(node.text(a, 0), "xy", "what is in the page cache survives the process");
    assert_eq!(node.text(s, 0), "xy");
    let first = node.append(entry(m, "z")).unwrap().base_offset;
    assert!(first >= Offset(2), "offset {first} of a memory topic was given out twice");
}

/// A small append of class async is written by the calling thread; one that waits for a flush is left to the journal's threads.
#[test]
fn a_small_async_append_is_answered_without_a_step_of_the_journal() {
    let world = SimWorld::new(9);
    let mut node = Node::open(&world, |_| {});
    let config = |durability| TopicConfig { durability, ..TopicConfig::default() };
    let [a, s] = [("async", Durability::Async), ("sync", Durability::Sync)]
        .map(|(name, durability)| node.create(name, 1, config(durability)).partitions[0].id);
    // The journal's threads begin its first file.
    node.append(entry(a, "x")).unwrap();
    let append = |partitions: &[PartitionId]| {
        let entries = partitions.iter().map(|partition| entry(*partition, "y")).collect();
        Request::Append(AppendRequest { entries, ack: Ack::Committed })
    };
    let Reply::Append(results) = node.ask_now(append(&[a])) else { panic!() };
    assert_eq!(results[0].unwrap().base_offset, Offset(1));
    let Reply::Append(results) = node.ask(append(&[a, s])) else { panic!() };
    assert_eq!(results.iter().map(|r| r.unwrap().base_offset).collect::<Vec<_>>(), [Offset(2), Offset(0)]);
    drop(node);
    world.kill();
    let mut node = Node::open(&world, |_| {});
    assert_eq!((node.text(a, 0), node.text(s, 0)), ("xyy".into(), "y".into()), "it survives the process");
}

#[test]
fn a_clean_stop_needs_no_replay() {
    let world = SimWorld::new(10);
    let mut node = Node::open(&world, |_| {});
    let a = node.create("t", 1, TopicConfig::default()).partitions[0].id;
    node.append(entry(a, "x")).unwrap();
    node.broker.shutdown();
    let refused = node.append(entry(a, "y"));
    assert!(matches!(refused, Err(AppendError::Unavailable(Unavailable::Stopping))), "{refused:?}");
    drop(node);
    let mut node = Node::open(&world, |_| {});
    assert_eq!(node.text(a, 0), "x");
}

/// An entry can be read shortly before the applied state has it: a reader that then asked for the next got an out-of-range error.
#[test]
fn a_reader_ahead_of_the_high_watermark_is_not_out_of_range() {
    let world = SimWorld::new(11);
    let mut node = Node::open(&world, |_| {});
    let a = node.create("t", 1, TopicConfig::default()).partitions[0].id;
    node.start(Request::Append(AppendRequest { entries: vec![entry(a, "x")], ack: Ack::Committed }));
    let mut at = |offset| {
        let part = ReadPart { partition: a, offset: Offset(offset), bytes_max: 1 << 20 };
        let read = ReadRequest { parts: vec![part], bytes_max: 1 << 20, at_least_one: true };
        let token = node.start(Request::Read(read));
        match node.client.replies.lock().remove(&token) {
            Some(Reply::Read(mut results)) => results.remove(0),
            other => panic!("{other:?}"),
        }
    };
    assert!(at(1).is_ok_and(|read| read.chunks.is_empty()));
    assert!(matches!(at(2), Err(ReadError::OutOfRange { .. })));
}

/// The runs of deleted partitions stayed in the store until the next start, and their bytes on the disk.
#[test]
fn entries_on_their_way_when_their_topic_is_deleted_leave_nothing() {
    let world = SimWorld::new(12);
    let mut node = Node::open(&world, |_| {});
    let mut left = Vec::new();
    for in_flight in [false, true] {
        let a = node.create("t", 1, TopicConfig::default()).partitions[0].id;
        node.append(entry(a, "x")).unwrap();
        let delete = DeleteTopics { topics: vec![TopicRef::Name("t".into())] };
        node.start(Request::DeleteTopics(delete));
        if in_flight {
            // Its entry comes in a later frame.
            node.broker.log_step(Work::Write);
            node.start(Request::Append(AppendRequest { entries: vec![entry(a, "y")], ack: Ack::Committed }));
        }
        node.drive();
        left.push(node.broker.shards()[1].store.partitions);
    }
    assert_eq!(left[0], left[1]);
}

/// A ring of frames drops its oldest frames: "earliest" must be the first remaining one, even if nothing is ever deleted.
#[test]
fn the_earliest_offset_of_a_memory_topic_can_be_read() {
    let world = SimWorld::new(13);
    let mut node = Node::open(&world, |c| {
        c.memory_bytes_max = 256 << 10;
        c.retention_check_ms = 1 << 40;
    });
    let config = TopicConfig {
        durability: Durability::Memory,
        cleanup: Cleanup { delete: false, compact: true },
        ..TopicConfig::default()
    };
    let a = node.create("t", 1, config).partitions[0].id;
    for _ in 0..64 {
        node.append(entry(a, &"x".repeat(16 << 10))).unwrap();
    }
    let query = FindOffset { partition: a, at: OffsetSpec::Earliest, from: Offset(0) };
    let Reply::FindOffsets(found) = node.ask(Request::FindOffsets(vec![query])) else { panic!() };
    let earliest = found[0].as_ref().unwrap().offset.unwrap();
    assert!(earliest > Offset(0), "the ring holds everything: nothing is tested");
    assert!(!node.read(a, earliest.0).unwrap().chunks.is_empty());
    let before = node.read(a, earliest.0 - 1).unwrap_err();
    assert!(matches!(before, ReadError::OutOfRange { log_start, .. } if log_start == earliest), "{before:?}");
}

/// An entry that contains the log start was read at its base, which is below the log start: out of range for any time.
#[test]
fn entries_are_found_by_time_where_the_log_starts_inside_of_one() {
    let world = SimWorld::new(31);
    let mut node = Node::open(&world, |_| {});
    for durability in [Durability::Sync, Durability::Memory] {
        let config = TopicConfig { durability, ..TopicConfig::default() };
        let a = node.create(&format!("{durability:?}"), 1, config).partitions[0].id;
        for (text, max_timestamp) in [("first", 500), ("second", 300), ("third", 400)] {
            node.append(AppendEntry { count: 10, max_timestamp, ..entry(a, text) }).unwrap();
        }
        let trim = TrimPartition { partition: a, first: Some(Offset(5)) };
        assert!(matches!(node.ask(Request::TrimPartitions(vec![trim])), Reply::TrimPartitions(r) if r[0].is_ok()));
        let mut find = |at, from| {
            let query = FindOffset { partition: a, at, from: Offset(from) };
            let Reply::FindOffsets(mut found) = node.ask(Request::FindOffsets(vec![query])) else { panic!() };
            let found = found.remove(0).expect("found");
            assert_eq!(found.log_start, Offset(5));
            assert_eq!(found.leader_epoch >= 0, found.offset.is_some());
            (found.offset.map(|offset| offset.0), found.entry.map(|entry| String::from_utf8(entry.to_vec()).unwrap()))
        };
        let some = |base, text: &str| (Some(base), Some(text.to_owned()));
        for (time, from, found) in [
            (0, 0, some(0, "first")),
            (500, 0, some(0, "first")),
            (0, 10, some(10, "second")),
            (301, 10, some(20, "third")),
            (401, 10, (None, None)),
        ] {
            assert_eq!(find(OffsetSpec::AtTimestamp(time), from), found, "{durability:?}, time {time} from {from}");
        }
        assert_eq!(find(OffsetSpec::MaxTimestamp, 0), some(0, "first"));
        assert_eq!(find(OffsetSpec::MaxTimestamp, 10), some(20, "third"));
        assert_eq!(find(OffsetSpec::MaxTimestamp, 30), (None, None));
    }
}

/// The record was committed first and its journal created afterwards: a full disk ended the process, and each start after it.
#[test]
fn a_topic_of_a_class_for_which_there_is_no_room_is_refused() {
    let world = SimWorld::new(14);
    let mut node = Node::open(&world, |_| {});
    let create = || {
        let config = TopicConfig { durability: Durability::Async, ..TopicConfig::default() };
        let topic = NewTopic { name: "t".into(), partitions: 1, config, internal: false };
        Request::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false })
    };
    world.disk.inject(Fault::chance(FaultOp::Allocate, 1_000_000, FaultKind::NoSpace));
    let Reply::CreateTopics(results) = node.ask(create()) else { panic!() };
    assert_eq!(results[0].as_ref().unwrap_err(), &TopicError::Unavailable(Unavailable::StorageFull));
    assert_eq!(world.fatal().reason(), None);
    world.disk.clear_faults();
    let Reply::CreateTopics(results) = node.ask(create()) else { panic!() };
    let a = results[0].as_ref().unwrap().topic.partitions[0].id;
    node.append(entry(a, "x")).unwrap();
    assert_eq!(node.text(a, 0), "x");
}

/// A failing merge was retried repeatedly, while dead data, the very space that it lacked, was not reclaimed.
#[test]
fn a_merge_that_fails_keeps_nothing_from_being_reclaimed() {
    let world = SimWorld::new(15);
    let mut node = Node::open(&world, |config| {
        config.checkpoint_bytes_max = 256 << 10;
        config.store.merge_bytes = 1 << 20;
    });
    let topics = ["old", "new"].map(|name| node.create(name, 1, TopicConfig::default()));
    let fill = |node: &mut Node, topic: usize| {
        for _ in 0..300 {
            node.append(entry(topics[topic].partitions[0].id, &"x".repeat(16 << 10))).unwrap();
        }
    };
    fill(&mut node, 0);
    let rest = |node: &Node| {
        for _ in 0..20 {
            // A cut's record is written after a moment without other records.
            world.clock.advance_ms(100);
            node.drive();
            node.background();
        }
    };
    rest(&node);
    let dead = node.broker.shards()[1].store.segments;
    assert!(dead > 0, "{:?} {:?}", node.broker.failures(), node.broker.shards());
    let broken = Fault::from(FaultOp::Create, 1, FaultKind::NoSpace).under("/data/shard-0001/segments");
    world.disk.inject(broken);
    fill(&mut node, 1);
    rest(&node);
    assert!(!node.broker.failures().is_empty(), "no merge failed: nothing is tested");
    let delete = DeleteTopics { topics: vec![TopicRef::Name("old".into())] };
    assert!(matches!(node.ask(Request::DeleteTopics(delete)), Reply::DeleteTopics(results) if results[0].is_ok()));
    rest(&node);
    assert_eq!(node.broker.shards()[1].store.segments, 0, "{dead} segments of a deleted topic");
    world.disk.clear_faults();
    rest(&node);
    assert!(node.broker.shards()[1].store.segments > 0, "it goes on by itself");
}

/// The log start was restored without its segments: a request for the earliest offset returned one that is out of range.
#[test]
fn a_log_start_that_a_power_cut_has_taken_back_is_where_the_partition_begins() {
    let world = SimWorld::new(16);
    let change = |config: &mut BrokerConfig| {
        config.checkpoint_bytes_max = 256 << 10;
        config.store.merge_bytes = 1 << 20;
        config.retention_check_ms = 10;
        config.async_flush_ms_max = 1_000;
    };
    let mut node = Node::open(&world, change);
    let config = TopicConfig { durability: Durability::Async, retention_ms: Some(3_600_000), ..TopicConfig::default() };
    let a = node.create("t", 1, config).partitions[0].id;
    for _ in 0..300 {
        node.append(entry(a, &"x".repeat(16 << 10))).unwrap();
    }
    for _ in 0..5 {
        world.clock.advance_ms(2_000);
        node.drive();
        node.background();
    }
    let segments = |node: &Node| node.broker.shards().iter().map(|s| s.store.segments).sum::<usize>();
    assert!(segments(&node) > 0);
    world.clock.advance_ms(7_200_000);
    node.drive();
    node.background();
    assert_eq!(segments(&node), 0);
    let trimmed = node.broker.partition_status(a).unwrap().log_start;
    assert!(trimmed > Offset(0));
    drop(node);
    world.disk.crash_losing_all();
    world.crash();
    let mut node = Node::open(&world, change);
    // Before the clock advances: retention would correct it.
    let mut ask = |request| {
        let token = node.start(request);
        while node.broker.read_step() {}
        node.client.replies.lock().remove(&token).expect("an answer")
    };
    let query = FindOffset { partition: a, at: OffsetSpec::Earliest, from: Offset(0) };
    let Reply::FindOffsets(found) = ask(Request::FindOffsets(vec![query])) else { panic!() };
    let earliest = found[0].as_ref().unwrap().offset.unwrap();
    let part = ReadPart { partition: a, offset: earliest, bytes_max: 1 << 20 };
    let read = ReadRequest { parts: vec![part], bytes_max: 1 << 20, at_least_one: true };
    let Reply::Read(results) = ask(Request::Read(read)) else { panic!() };
    assert!(results[0].is_ok(), "{results:?} at the earliest offset {earliest}, trimmed to {trimmed}");
}

/// Old timestamps: messages can be read until the next retention check, as in Kafka; short retention times are checked sooner.
#[test]
fn retention_looks_when_it_is_due_and_sooner_at_brief_lives() {
    let world = SimWorld::new(15);
    let mut node = Node::open(&world, |_| {});
    let week = node.create("week", 1, TopicConfig::default()).partitions[0].id;
    let brief = TopicConfig { retention_ms: Some(60_000), ..TopicConfig::default() };
    let minute = node.create("minute", 1, brief).partitions[0].id;
    for partition in [week, minute] {
        node.append(AppendEntry { max_timestamp: 1_111, ..entry(partition, "x") }).unwrap();
    }
    let starts = |node: &Node, advance_ms| {
        world.clock.advance_ms(advance_ms);
        node.drive();
        [week, minute].map(|id| node.broker.partition_status(id).unwrap().log_start.0)
    };
    assert_eq!(starts(&node, 3_000), [0, 0]);
    assert_eq!(starts(&node, 4_000), [0, 1]);
    assert_eq!(starts(&node, 280_000), [0, 1]);
    assert_eq!(starts(&node, 20_000), [1, 1]);
}
