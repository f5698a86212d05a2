//! Backups of a running broker: their contents, and the reasons for which they are aborted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use node::{Node, entry};
use polylogue_api::*;
use polylogue_broker::{Backup, BackupPiece, Broker, BrokerConfig, ErrorKind};
use polylogue_env::sim::{SimRng, SimWorld};
use polylogue_env::{Disk as _, Env, OpenMode};
use polylogue_log::check::check;
use polylogue_types::PartitionId;
use std::collections::BTreeMap;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// A broker with a topic of class `sync`, one of class `async`, and a queue.
fn open(world: &SimWorld, change: impl FnOnce(&mut BrokerConfig)) -> (Node, [PartitionId; 3]) {
    let mut node = Node::open(world, |config| {
        config.checkpoint_bytes_max = 64 << 10;
        config.store.merge_bytes = 256 << 10;
        change(config);
    });
    node.background();
    let kept = TopicConfig { retention_ms: None, ..TopicConfig::default() };
    let queue = TopicConfig { queue: Some(QueueSettings::default()), ..kept.clone() };
    let lax = TopicConfig { durability: Durability::Async, ..kept.clone() };
    let ids = [("sync", kept), ("async", lax), ("queue", queue)].map(|(name, config)| {
        let topic = node.create(name, 1, config);
        topic.partitions[0].id
    });
    (node, ids)
}

/// Appends to both topics and publishes to the queue: the next message, which contains its number.
fn write(node: &mut Node, ids: &[PartitionId; 3], number: u64) {
    let text = format!("{number} {}", "x".repeat(700));
    for id in &ids[..2] {
        node.append(entry(*id, &text)).expect("acknowledged");
    }
    let messages = vec![node::message(&ids[2..], &text)];
    match node.ask(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false })) {
        Reply::Publish(results) => assert!(results.iter().all(Result::is_ok)),
        other => panic!("{other:?}"),
    }
}

/// Publishes a message for an hour from now to a queue of its own.
fn delay(node: &mut Node) {
    let config = TopicConfig { queue: Some(QueueSettings::default()), retention_ms: None, ..TopicConfig::default() };
    let queue = node.create("later", 1, config).partitions[0].id;
    let deliver_at = Some(node.broker.now().wall_ms + 3_600_000);
    let target = Target { deliver_at, ..node::target(queue) };
    let messages = vec![PublishMessage { queues: [target].into_iter().collect(), ..node::message(&[queue], "later") }];
    node.ask(Request::Publish(PublishRequest { messages, ack: Ack::Committed, patient: false }));
    assert_eq!(timers(node), 1);
}

/// Number of delayed messages that are parked.
fn timers(node: &Node) -> u64 {
    node.broker.shards().iter().map(|shard| shard.timers_pending).sum()
}

/// Stores the next piece. Returns false if there is none.
pub(crate) fn copy_next(env: &Env, backup: &mut Backup, at: &mut (String, u64)) -> bool {
    match backup.next_piece().expect("a piece") {
        Some(BackupPiece::File { name, .. }) => {
            let path = Path::new("/copy").join(&name);
            env.disk.create_dir_all(path.parent().unwrap()).unwrap();
            env.disk.open(&path, OpenMode::CreateNew).unwrap();
            *at = (name, 0);
            true
        }
        Some(BackupPiece::Bytes(bytes)) => {
            let file = env.disk.open(&Path::new("/copy").join(&at.0), OpenMode::ReadWrite).unwrap();
            file.write_all_at(&bytes, at.1).unwrap();
            at.1 += bytes.len() as u64;
            true
        }
        None => false,
    }
}

/// Returns all numbers in a partition, which are in order.
fn numbers(node: &mut Node, id: PartitionId) -> Vec<u64> {
    let status = node.broker.partition_status(id).expect("a partition");
    let number = |text: String| text.split(' ').next().unwrap().parse::<u64>().unwrap();
    let mut found = Vec::new();
    while (found.len() as u64) < status.high_watermark.0 {
        let read = node.read(id, found.len() as u64).expect("readable");
        let bytes: Vec<u8> = read.chunks.iter().flat_map(|c| c.to_bytes().unwrap()).collect();
        // All have the same length.
        let text = String::from_utf8(bytes).unwrap();
        let before = found.len();
        found.extend(text.split_inclusive('x').filter(|part| part.contains(' ')).map(|part| number(part.to_owned())));
        assert!(found.len() > before);
    }
    found
}

#[test]
fn a_backup_of_a_busy_broker_starts_and_holds_what_was_acknowledged_before_it() {
    for seed in 0..6 {
        let (world, rng) = (SimWorld::new(seed), SimRng::derive(seed, "backup"));
        let (mut node, ids) = open(&world, |_| {});
        delay(&mut node);
        let before = 1 + rng.below(1_500);
        for number in 0..before {
            write(&mut node, &ids, number);
            if rng.below(20) == 0 {
                node.broker.background_step();
            }
        }
        let mut backup = node.broker.begin_backup().expect("begun");
        let (mut number, mut at) = (before, (String::new(), 0));
        while copy_next(&world.env(), &mut backup, &mut at) {
            for _ in 0..rng.below(40) {
                write(&mut node, &ids, number);
                number += 1;
            }
            node.broker.background_step();
        }
        assert_eq!((node.broker.backups().running, at.0.as_str()), (true, "IDENTITY"));
        drop(backup);
        let stats = node.broker.backups();
        assert_eq!((stats.running, stats.completed, stats.failed), (false, 1, 0));
        assert!(number > before + 20 && stats.bytes > 0);
        for shard in world.env().disk.list(Path::new("/copy")).unwrap().iter().filter(|n| n.starts_with("shard")) {
            let report = check(&world.env(), &Path::new("/copy").join(shard)).expect("a report");
            assert!(report.is_sound(), "{shard}: {report}");
        }
        let mut copy = Node::open(&world, |config| config.data_dir = "/copy".into());
        copy.background();
        assert_eq!(timers(&copy), 1, "a message that waits for its time");
        for id in ids {
            let found = numbers(&mut copy, id);
            assert_eq!(found, (0..found.len() as u64).collect::<Vec<_>>(), "seed {seed}, {id}");
            assert!((before..number).contains(&(found.len() as u64)), "seed {seed}, {id}: {}", found.len());
        }
        let found = numbers(&mut node, ids[1]).len() as u64;
        assert_eq!(found, number, "the origin has all");
    }
}

#[test]
fn there_is_one_at_a_time_and_one_that_is_dropped_makes_room_for_the_next() {
    let world = SimWorld::new(1);
    let (mut node, ids) = open(&world, |_| {});
    write(&mut node, &ids, 0);
    let mut first = node.broker.begin_backup().expect("begun");
    let refused = node.broker.begin_backup().expect_err("refused");
    assert_eq!(
        (refused.kind, refused.text.as_str()),
        (ErrorKind::Busy, "another backup is in progress: there is one at a time")
    );
    assert!(first.files() > 4 && first.bytes() > 4096);
    assert!(matches!(first.next_piece(), Ok(Some(BackupPiece::File { .. }))));
    drop(first);
    assert!(node.broker.begin_backup().is_ok());
    let stats = node.broker.backups();
    assert_eq!((stats.running, stats.completed, stats.failed), (false, 0, 3));
}

#[test]
fn it_is_broken_off_for_want_of_room_by_time_when_nobody_takes_it_and_at_the_end() {
    let why = |backup: &mut Backup| {
        let why = backup.next_piece().expect_err("aborted");
        assert!(backup.next_piece().is_err(), "there is nothing more to be had");
        why
    };
    let world = SimWorld::new(1);
    let (mut node, ids) = open(&world, |config| {
        (config.disk_reserve_bytes, config.disk_free_limit_bytes) = (MIB, 8 * MIB);
        config.backup_ms_max = 200_000;
    });
    write(&mut node, &ids, 0);
    let wait = |ms: u64| {
        world.clock.advance_ms(ms);
        node.drive();
    };
    let mut backup = node.broker.begin_backup().expect("begun");
    wait(61_000);
    assert!(why(&mut backup).text.contains("has read nothing"));
    drop(backup);

    let mut backup = node.broker.begin_backup().expect("begun");
    for _ in 0..4 {
        wait(50_000);
        assert!(backup.next_piece().is_ok());
    }
    wait(50_000);
    assert!(why(&mut backup).text.contains("log.backup_ms_max"));
    drop(backup);

    let mut backup = node.broker.begin_backup().expect("begun");
    world.disk.set_capacity(1 << 40);
    let free = world.disk.free_bytes(Path::new("/data")).expect("says");
    world.disk.set_capacity((1 << 40) - free + 4 * MIB);
    wait(1_000);
    assert_eq!(why(&mut backup).kind, ErrorKind::StorageFull);
    drop(backup);
    assert_eq!(node.broker.begin_backup().expect_err("refused").kind, ErrorKind::StorageFull);
    world.disk.set_capacity(1 << 40);
    wait(1_000);

    let mut backup = node.broker.begin_backup().expect("begun");
    node.broker.shutdown();
    assert!(why(&mut backup).text.contains("the broker stops"));
    drop(backup);
    assert_eq!(node.broker.backups().failed, 5);
    // The aborted backup does not hold the directory.
    drop(node);
    let config = BrokerConfig::new("/data".into());
    assert!(Broker::open(world.env(), config, BTreeMap::new()).is_ok());
}
