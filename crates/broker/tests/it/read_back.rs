//! Fetches of many partitions that are behind in journal files.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use node::{Node, entry};
use polylogue_api::{Ack, AppendRequest, ReadData, ReadError, ReadPart, ReadRequest, Reply, Request, TopicConfig};
use polylogue_env::sim::SimWorld;
use polylogue_types::{Chunk, Offset, PartitionId};

const PARTITIONS: u32 = 16;
/// Batches of each partition.
const BATCHES: u64 = 60;

/// A node with a journal of 4 MiB that is not cached.
fn node(world: &SimWorld, read_cache_bytes: usize) -> (Node, Vec<PartitionId>) {
    let mut node = Node::open(world, |config| {
        config.journal_file_bytes = 16 << 20;
        config.store.tail_cache_bytes = 0;
        config.store.read_cache_bytes = read_cache_bytes;
    });
    let topic = node.create("t", PARTITIONS, TopicConfig::default());
    for i in 0..BATCHES {
        let text = text(i);
        let entries = topic.partitions.iter().map(|p| entry(p.id, &text)).collect();
        let Reply::Append(results) = node.ask(Request::Append(AppendRequest { entries, ack: Ack::Committed })) else {
            panic!("no answer to an append")
        };
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    (node, topic.partitions.iter().map(|p| p.id).collect())
}

fn text(i: u64) -> String {
    format!("{i}").repeat(2000)
}

fn fetch(node: &mut Node, at: &[(PartitionId, u64)], at_least_one: bool) -> Vec<Result<ReadData, ReadError>> {
    let part = |(partition, offset): &(PartitionId, u64)| ReadPart {
        partition: *partition,
        offset: Offset(*offset),
        bytes_max: 1 << 20,
    };
    let request = ReadRequest { parts: at.iter().map(part).collect(), bytes_max: 50 << 20, at_least_one };
    match node.ask(Request::Read(request)) {
        Reply::Read(results) => results,
        other => panic!("{other:?}"),
    }
}

fn bytes(data: &ReadData) -> Vec<u8> {
    data.chunks.iter().flat_map(|chunk| chunk.to_bytes().unwrap().to_vec()).collect()
}

#[test]
fn a_fetch_of_many_partitions_reads_each_stretch_of_the_journal_once() {
    let world = SimWorld::new(1);
    let (mut node, partitions) = node(&world, 64 << 20);
    let at: Vec<_> = partitions.iter().map(|p| (*p, 0)).collect();
    let before = world.disk.stats().reads;
    let answer = fetch(&mut node, &at, true);
    let reads = world.disk.stats().reads - before;
    assert!(reads <= 5, "{reads} reads");
    let first = bytes(answer[0].as_ref().unwrap());
    for data in answer.iter().flatten() {
        assert!(data.chunks.iter().all(|chunk| matches!(chunk, Chunk::Bytes(_))), "{data:?}");
        assert_eq!((bytes(data).len(), data.high_watermark), (first.len(), Offset(BATCHES)));
    }
    // The same without a cache.
    let plain_world = SimWorld::new(1);
    let (mut plain, _) = self::node(&plain_world, 0);
    let plain = fetch(&mut plain, &at, true);
    for (data, plain) in answer.iter().zip(&plain) {
        assert_eq!(bytes(data.as_ref().unwrap()), bytes(plain.as_ref().unwrap()));
    }
}

/// Each fetch waited for the disk while the client had nothing to consume.
#[test]
fn what_the_next_fetch_wants_is_read_before_it_comes() {
    let world = SimWorld::new(1);
    // A window of 1 MiB; the journal has four.
    let (mut node, partitions) = node(&world, 4 << 20);
    let mut at: Vec<_> = partitions.iter().map(|p| (*p, 0)).collect();
    let mut rounds = 0;
    while at.iter().any(|(_, at)| *at < BATCHES) {
        let request = ReadRequest {
            parts: at
                .iter()
                .map(|(p, at)| ReadPart { partition: *p, offset: Offset(*at), bytes_max: 1 << 20 })
                .collect(),
            bytes_max: 50 << 20,
            at_least_one: true,
        };
        let before = world.disk.stats().reads;
        let token = node.start(Request::Read(request));
        while !node.client.replies.lock().contains_key(&token) {
            assert!(node.broker.read_step(), "the read waits for a thread");
        }
        let reads = world.disk.stats().reads - before;
        assert!(rounds == 0 || reads == 0, "{reads} reads before the answer of fetch {rounds}");
        let Some(Reply::Read(answer)) = node.client.replies.lock().remove(&token) else { panic!("no answer") };
        for ((_, at), data) in at.iter_mut().zip(answer) {
            let len = bytes(&data.unwrap()).len() as u64;
            *at = (0..=BATCHES - *at).map(|count| *at + count).find(|end| batches_bytes(*at..*end) == len).unwrap();
        }
        // While the client consumes, the broker reads.
        node.drive();
        rounds += 1;
    }
    assert!(rounds >= 3, "{rounds} fetches");
}

/// Most of them are at the start, some beyond the window that begins there, which wait until the others have come as far.
#[test]
fn all_partitions_of_a_fetch_come_to_the_end_wherever_they_begin() {
    for at_least_one in [false, true] {
        let world = SimWorld::new(1);
        // A window of 1 MiB.
        let (mut node, partitions) = self::node(&world, 4 << 20);
        let begin = |i: usize| if i % 4 == 3 { BATCHES / 2 } else { 0 };
        let mut at: Vec<_> = partitions.iter().enumerate().map(|(i, p)| (*p, begin(i))).collect();
        let mut rounds = 0;
        while at.iter().any(|(_, at)| *at < BATCHES) {
            rounds += 1;
            assert!(rounds < 20, "{at:?}");
            let answer = fetch(&mut node, &at, at_least_one);
            for ((_, at), data) in at.iter_mut().zip(answer) {
                let len = bytes(&data.unwrap()).len() as u64;
                // Batch texts have one digit or two.
                *at = (0..=BATCHES - *at).map(|count| *at + count).find(|end| batches_bytes(*at..*end) == len).unwrap();
            }
            if rounds == 1 {
                assert!(at[2].1 > 0 && at[2].1 < BATCHES / 2 && at[3].1 == BATCHES / 2, "{at:?}");
            }
        }
    }
}

fn batches_bytes(batches: std::ops::Range<u64>) -> u64 {
    batches.map(|i| text(i).len() as u64).sum()
}
