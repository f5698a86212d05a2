//! Disks of every size that fill up: deleted data is reclaimed, and no start needs space. Everything is 64 times smaller than in production.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::node;

use node::{Node, entry};
use polylogue_api::*;
use polylogue_broker::BrokerConfig;
use polylogue_env::Disk as _;
use polylogue_env::sim::SimWorld;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// Size of a journal file.
const FILE_BYTES: u64 = MIB;

fn tune(config: &mut BrokerConfig) {
    config.journal_file_bytes = FILE_BYTES;
    config.disk_reserve_bytes = 4 * MIB;
    config.disk_free_limit_bytes = 8 * MIB;
    config.checkpoint_bytes_max = MIB;
    config.store.merge_bytes = 4 * MIB;
    config.store.room_bytes_min = MIB / 2;
    config.store.waste_bytes_min = 16 << 10;
    config.store.journal_keep_bytes_max = 16 * MIB;
}

fn free(world: &SimWorld) -> u64 {
    world.disk.free_bytes(Path::new("/data")).expect("says")
}

/// Advances time, and runs all background work.
fn settle(world: &SimWorld, node: &Node) {
    for _ in 0..12 {
        world.clock.advance_ms(1_000);
        node.drive();
        node.background();
    }
}

/// Appends until it is refused for lack of space.
fn fill(world: &SimWorld, node: &mut Node, topics: &[polylogue_types::PartitionId]) -> u64 {
    let line = "x".repeat(60 << 10);
    for n in 0..10_000 {
        let one = entry(topics[n as usize % topics.len()], &line);
        match node.append(one) {
            Ok(_) => {}
            Err(AppendError::Unavailable(Unavailable::StorageFull)) => return n,
            Err(e) => panic!("{e:?}"),
        }
        node.background();
        if n % 4 == 0 {
            world.clock.advance_ms(1_000);
            node.drive();
        }
    }
    panic!("the disk is never full");
}

fn delete(node: &mut Node, name: &str) {
    let topics = vec![TopicRef::Name(name.into())];
    match node.ask(Request::DeleteTopics(DeleteTopics { topics })) {
        Reply::DeleteTopics(results) => assert!(results[0].is_ok(), "{results:?}"),
        other => panic!("{other:?}"),
    }
}

/// Kills the process and restarts it.
fn again(world: &SimWorld, node: Node, clean: bool) -> Node {
    if clean {
        node.broker.shutdown();
    }
    drop(node);
    world.disk.crash_keep_page_cache();
    Node::open(world, tune)
}

/// A disk was full with 500 MB, the topic was deleted after a restart, and no space was freed: neither a checkpoint nor a merge was due. Each restart
/// took another journal file.
#[test]
fn a_full_disk_gives_back_what_is_deleted_and_restarts_take_nothing() {
    // Corresponds to 250 MB, 500 MB, 1 GB, 2 GB and 4 GB.
    for size in [4, 8, 16, 32, 64] {
        for clean in [false, true] {
            let world = SimWorld::new(size);
            world.disk.set_capacity(size * MIB);
            let mut node = Node::open(&world, tune);
            let kept = node.create("kept", 1, TopicConfig::default()).partitions[0].id;
            let doomed = node.create("doomed", 1, TopicConfig::default()).partitions[0].id;
            settle(&world, &node);
            let before = free(&world);
            let case = format!("{size} MiB, {}", if clean { "stopped" } else { "killed" });
            // A little kept data comes first, so that it is in the oldest file.
            let stays = if before > 6 * MIB { node.append(entry(kept, "stays")).is_ok() } else { false };
            fill(&world, &mut node, &[doomed]);
            settle(&world, &node);
            let mut least = free(&world);
            for restart in 0..4 {
                node = again(&world, node, clean);
                settle(&world, &node);
                let now = free(&world);
                // Above the reserve the next file may be allocated ahead.
                assert!(
                    now + 128 * 1024 >= least.min(4 * MIB),
                    "{case}: restart {restart} left {now} of {least} bytes free"
                );
                least = least.min(now);
            }
            delete(&mut node, "doomed");
            settle(&world, &node);
            let after = free(&world);
            // The current file, the next one, and the remainder that is too small to reclaim.
            assert!(
                after + 3 * FILE_BYTES >= before,
                "{case}: {before} bytes were free, and {after} are after the deletion"
            );
            assert!(node.broker.is_disk_full() == (after < 4 * MIB), "{case}");
            node = again(&world, node, clean);
            settle(&world, &node);
            assert!(free(&world) + FILE_BYTES / 2 >= before, "{case}: {} after one more restart", free(&world));
            if stays {
                assert_eq!(node.text(kept, 0), "stays", "{case}");
            }
            if before > 8 * MIB {
                assert!(node.append(entry(kept, "more")).is_ok(), "{case}");
            }
            assert_eq!(world.fatal().reason(), None);
        }
    }
}

/// Leaves this many bytes free on a world's disk: other programs have the rest.
fn leave_free(world: &SimWorld, bytes: u64) {
    const PLENTY: u64 = 1 << 40;
    world.disk.set_capacity(PLENTY);
    let free = world.disk.free_bytes(Path::new("/data")).expect("says");
    world.disk.set_capacity(PLENTY - free + bytes);
}

/// Other programs have taken every byte of the disk, twice. On tmpfs a start failed.
#[test]
fn with_no_byte_free_it_starts_and_deletes() {
    for clean in [false, true] {
        let world = SimWorld::new(7);
        world.disk.set_capacity(64 * MIB);
        let mut node = Node::open(&world, tune);
        let kept = node.create("kept", 1, TopicConfig::default()).partitions[0].id;
        let doomed = node.create("doomed", 1, TopicConfig::default()).partitions[0].id;
        settle(&world, &node);
        node.append(entry(kept, "stays")).expect("written");
        for _ in 0..40 {
            node.append(entry(doomed, &"x".repeat(60 << 10))).expect("written");
        }
        settle(&world, &node);
        let reserve = Path::new("/data/RESERVE");
        assert!(world.disk.exists(reserve));
        for start in 0..8 {
            if start % 4 == 0 {
                leave_free(&world, 0);
            }
            node = again(&world, node, clean);
            assert!(start > 0 || !world.disk.exists(reserve), "it gave way");
            settle(&world, &node);
            assert!(node.broker.is_disk_full());
        }
        delete(&mut node, "doomed");
        settle(&world, &node);
        assert!(free(&world) > 2 * MIB, "{} bytes are free", free(&world));
        assert!(world.disk.exists(reserve), "made again for the next time");
        assert_eq!(node.text(kept, 0), "stays");
        assert_eq!(world.fatal().reason(), None);
    }
}
