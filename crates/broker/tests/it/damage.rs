//! A broker with damaged files serves and keeps all undamaged data.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use bytes::Bytes;
use node::{Node, entry};
use polylogue_api::*;
use polylogue_env::Disk;
use polylogue_env::sim::SimWorld;
use polylogue_record::envelope::{EntryFlags, Form};
use polylogue_types::{Offset, PartitionId};
use std::path::{Path, PathBuf};

/// A broker with frequent checkpoints, whose entries are merged into segments at this size.
fn open(world: &SimWorld, merge_bytes: u64) -> Node {
    Node::open(world, |config| {
        config.checkpoint_bytes_max = 64 << 10;
        config.store.merge_bytes = merge_bytes;
    })
}

fn create(node: &mut Node, name: &str) -> PartitionId {
    node.create(name, 1, TopicConfig::default()).partitions[0].id
}

fn append(node: &mut Node, partition: PartitionId, text: &str) -> Offset {
    node.append(entry(partition, text)).expect("appended").base_offset
}

fn text(node: &mut Node, partition: PartitionId, offset: u64) -> Result<String, ReadError> {
    let read = node.read(partition, offset)?;
    let bytes: Vec<u8> = read.chunks.iter().flat_map(|c| c.to_bytes().unwrap()).collect();
    Ok(String::from_utf8(bytes).unwrap())
}

/// A folder of the shard that holds the partitions.
fn files(world: &SimWorld, folder: &str) -> Vec<PathBuf> {
    let dir = Path::new("/data/shard-0001").join(folder);
    let names = world.disk.list(&dir).expect("lists");
    names.into_iter().map(|name| dir.join(name)).collect()
}

/// An unreadable chunk failed all checkpoints of the shard: its journal was never trimmed, and no start succeeded.
#[test]
fn a_checkpoint_that_cannot_be_read_is_written_anew_from_memory() {
    let world = SimWorld::new(1);
    let mut node = open(&world, 1 << 20);
    let quiet = create(&mut node, "quiet");
    let busy = create(&mut node, "busy");
    append(&mut node, quiet, "said once");
    let line = "x".repeat(8 << 10);
    let mut written = 0;
    let mut say = |node: &mut Node, times: u64| {
        for _ in 0..times {
            append(node, busy, &line);
            written += 1;
            node.background();
        }
        written
    };
    say(&mut node, 20);
    // Both copies of every file, from the first chunk on: the chunks of the quiet topic and the metadata.
    let damaged = files(&world, "checkpoint");
    assert!(damaged.len() >= 2);
    for file in damaged {
        for byte in 28..100 {
            world.disk.flip_bit(&file, byte, 2).unwrap();
        }
    }
    let written = say(&mut node, 400);
    assert!(files(&world, "checkpoint").len() <= 2 * 32, "old ones go");
    assert!(files(&world, "journal").len() <= 6, "the journal is let go of");
    drop(node);
    world.crash();
    let mut node = open(&world, 1 << 20);
    assert_eq!(text(&mut node, quiet, 0).unwrap(), "said once");
    assert_eq!(node.broker.partition_status(busy).unwrap().high_watermark, Offset(written));
    assert!(node.broker.catalog().topic("quiet").is_some());
}

/// Returns every readable line of a partition, by offset; `None` where the read is refused.
fn lines(node: &mut Node, partition: PartitionId, end: u64, len: usize) -> Vec<Option<String>> {
    let mut out: Vec<Option<String>> = Vec::new();
    while (out.len() as u64) < end {
        let at = out.len() as u64;
        match text(node, partition, at) {
            Ok(text) => {
                assert!(!text.is_empty(), "nothing at {at}, and no error");
                out.extend(text.as_bytes().chunks(len).map(|one| Some(String::from_utf8(one.to_vec()).unwrap())));
            }
            Err(e) => {
                assert!(matches!(e, ReadError::Storage), "{at}: {e:?}");
                out.push(None);
            }
        }
    }
    out.truncate(end as usize);
    out
}

/// One flipped bit in a journal file kept only until its entries are merged made the start of the whole shard fail.
#[test]
fn damage_that_a_checkpoint_covers_costs_the_offsets_it_took() {
    let world = SimWorld::new(2);
    let mut node = open(&world, 1 << 30);
    let (a, b) = (create(&mut node, "a"), create(&mut node, "b"));
    let line = |i: u64| format!("{i:08}{}", "x".repeat(4 << 10));
    for i in 0..200 {
        assert_eq!((append(&mut node, a, &line(i)), append(&mut node, b, &line(i))), (Offset(i), Offset(i)));
        // Checkpoints, but no file is old enough to be merged.
        node.broker.background_step();
        node.drive();
    }
    drop(node);
    world.crash();
    let first = files(&world, "journal").remove(0);
    let size = 600 << 10;
    for byte in [size / 3, size / 2, size / 2 + 6_000] {
        for bit in 0..64 {
            world.disk.flip_bit(&first, byte + 64 * bit, 1).unwrap();
        }
    }
    let mut lost = None;
    for life in 0..5 {
        let mut node = open(&world, if life < 2 { 1 << 30 } else { 1 << 20 });
        assert!(node.broker.failures().contains_key("recovery") || life > 2, "{:?}", node.broker.failures());
        let mut gone = Vec::new();
        for partition in [a, b] {
            let found = lines(&mut node, partition, 200, line(0).len());
            for (i, one) in found.iter().enumerate() {
                match one {
                    Some(text) => assert!(*text == line(i as u64), "offset {i} of {partition}"),
                    None => gone.push((partition, i)),
                }
            }
        }
        assert!((1..12).contains(&gone.len()), "{gone:?}");
        assert_eq!(lost.get_or_insert_with(|| gone.clone()), &gone, "life {life}");
        let end = append(&mut node, b, "more");
        assert_eq!(end, Offset(200 + life), "what was acknowledged keeps its offset");
        if life == 2 {
            // The rest is merged into segments, and the journal is trimmed.
            for i in 0..600 {
                append(&mut node, a, &line(200 + i));
                node.background();
            }
            assert!(!files(&world, "fenced").is_empty() || files(&world, "segments").len() > 1);
        }
        drop(node);
        world.crash();
    }
}

/// A reader of a stream continues after damage, and receives all undamaged messages.
#[test]
fn a_reader_of_a_stream_passes_over_damage() {
    let world = SimWorld::new(3);
    let mut node = open(&world, 1 << 30);
    let queue = Some(QueueSettings { mode: ConsumerMode::Readers, ..QueueSettings::default() });
    let stream = node.create("s", 1, TopicConfig { queue, ..TopicConfig::default() }).partitions[0].id;
    let line = |i: u64| format!("{i:08}{}", "x".repeat(4 << 10));
    for i in 0..400 {
        let message = PublishMessage {
            queues: vec![Target { queue: stream, priority: None, expires_at: None, deliver_at: None }],
            form: Form::AmqpMessage,
            flags: EntryFlags::NONE,
            bytes: Bytes::from(line(i)),
            timestamp: -1,
            key_hash: None,
            all_or_none: false,
        };
        node.ask(Request::Publish(PublishRequest { messages: vec![message], ack: Ack::Committed, patient: false }));
        node.broker.background_step();
        node.drive();
    }
    drop(node);
    world.crash();
    let first = files(&world, "journal").remove(0);
    let size = 600 << 10;
    for byte in [size / 3, size / 2] {
        for bit in 0..64 {
            world.disk.flip_bit(&first, byte + 64 * bit, 1).unwrap();
        }
    }
    let mut node = open(&world, 1 << 30);
    let attach =
        AttachReader { queue: stream, from: ReadFrom::First, filter: None, prefetch: 0, credit: None, window_bytes: 0 };
    node.ask(Request::AttachReader(attach));
    let got = std::mem::take(&mut *node.client.delivered.lock());
    assert!((385..400).contains(&got.len()), "{}", got.len());
    assert!(got.is_sorted_by(|a, b| a.first < b.first) && got.last().unwrap().first == Offset(399));
    for delivery in &got {
        assert!(delivery.bytes == line(delivery.first.0), "offset {}", delivery.first);
    }
    assert!(node.broker.failures().contains_key("delivery"), "{:?}", node.broker.failures());
}
