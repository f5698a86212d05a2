//! Tests of slow readers while space is reclaimed.

use super::hook::Hook;
use super::rig::{Rig, dir, kafka, small};
use crate::store::{SEGMENTS_DIR, ShardStore, StoreConfig};
use polylogue_env::Env;
use polylogue_env::sim::{Fault, FaultKind, FaultOp};
use polylogue_types::{Chunk, Offset, PartitionId};
use std::sync::Arc;

const RUN_BYTES: u64 = 64 << 10;

/// Partitions 1 to `count` with 64 KiB each, in one segment of a store that was just opened.
fn rig(count: u64) -> Rig {
    let mut rig = Rig::new(1, small(), 4 << 20);
    for i in 0..64 {
        let entries: Vec<_> = (1..=count).map(|p| kafka(p, i, i, 1, 5, 1024 - 61)).collect();
        rig.write(&entries);
    }
    rig.merge_all();
    rig.reopen(false);
    rig
}

/// A response that is not sent yet: ranges of files only.
fn unsent(store: &ShardStore, partition: u64) -> Vec<Chunk> {
    let read = store.read(PartitionId(partition), Offset(0), 1 << 20, true).unwrap().wait().unwrap();
    assert_eq!(read.bytes, RUN_BYTES);
    assert!(read.chunks.iter().all(|c| matches!(c, Chunk::File(_))));
    read.chunks
}

fn bytes(chunks: &[Chunk]) -> Vec<u8> {
    chunks.iter().flat_map(|c| c.to_bytes().unwrap()).collect()
}

fn expected(partition: u64) -> Vec<u8> {
    (0..64).flat_map(|i| kafka(partition, i, i, 1, 5, 1024 - 61).1).collect()
}

fn reclaim_all(store: &ShardStore) -> u64 {
    let before = store.stats().punched_bytes;
    while store.reclaim_step().unwrap().more {}
    store.stats().punched_bytes - before
}

/// Regression test: a slow consumer at the log start got zeros in the middle of a batch after retention.
#[test]
fn no_hole_is_punched_under_a_range_that_is_not_sent_yet() {
    let rig = rig(4);
    let (slow, later) = (unsent(&rig.store, 1), unsent(&rig.store, 4));
    rig.store.trim(PartitionId(1), Offset(64));
    rig.store.trim(PartitionId(2), Offset(64));
    assert_eq!(reclaim_all(&rig.store), 0);
    assert!(bytes(&slow) == expected(1));
    // The cache closes the file and it is opened again: the first range stays valid.
    for p in 3..=4 {
        drop(unsent(&rig.store, p));
        assert_eq!(reclaim_all(&rig.store), 0);
    }
    drop(later);
    assert_eq!(reclaim_all(&rig.store), 0);
    assert!(bytes(&slow) == expected(1));
    drop(slow);
    let given = reclaim_all(&rig.store);
    assert!(given >= RUN_BYTES + RUN_BYTES / 2, "{given}");
}

/// A range of a journal file has no lease, and the file becomes a segment.
#[test]
fn no_hole_is_punched_under_a_range_of_a_file_that_was_adopted_since() {
    let config = StoreConfig { tail_cache_bytes: 0, adopt_run_bytes_min: 500, ..small() };
    let mut rig = Rig::new(1, config, 4 << 20);
    for p in [1, 4] {
        rig.write(&(0..64).map(|i| kafka(p, i, i, 1, 5, 1024 - 61)).collect::<Vec<_>>());
    }
    rig.reopen(false);
    let slow = unsent(&rig.store, 1);
    assert!(rig.merge_all().adopted > 0);
    rig.store.trim(PartitionId(1), Offset(64));
    assert_eq!(reclaim_all(&rig.store), 0);
    assert!(bytes(&slow) == expected(1));
    drop(slow);
    assert!(reclaim_all(&rig.store) >= RUN_BYTES / 2);
}

/// Space is reclaimed even if there is always some reader.
#[test]
fn readers_that_came_later_keep_nothing() {
    let rig = rig(6);
    let mut readers = Vec::new();
    let mut given = 0;
    for p in 1..=4 {
        readers.push(unsent(&rig.store, 6));
        rig.store.trim(PartitionId(p), Offset(64));
        given += reclaim_all(&rig.store);
        // The previous reader ends; there is always another.
        if readers.len() > 1 {
            readers.remove(0);
        }
        given += reclaim_all(&rig.store);
        assert!(readers.iter().all(|r| bytes(r) == expected(6)));
    }
    assert!(given >= RUN_BYTES, "{given}");
}

#[test]
fn a_full_disk_does_not_punch_under_a_reader_either() {
    let rig = rig(2);
    let slow = unsent(&rig.store, 1);
    rig.world.disk.inject(Fault::from(FaultOp::Write, 1, FaultKind::NoSpace));
    rig.store.trim(PartitionId(1), Offset(64));
    rig.store.trim(PartitionId(2), Offset(64));
    assert!(rig.store.reclaim_step().is_err());
    assert!(bytes(&slow) == expected(1));
    rig.world.disk.clear_faults();
    assert_eq!(rig.store.reclaim_step().unwrap().removed, 1);
    assert!(bytes(&slow) == expected(1), "a removed file is read to its end");
}

/// Regression test: a reader that opened a file while its segment was removed kept it open: its space was not freed until enough other files
/// had been opened.
#[test]
fn a_file_that_is_removed_while_it_is_opened_is_let_go() {
    let mut rig = rig(2);
    let env = rig.world.env();
    let hook = Arc::new(Hook::new(env.disk.clone()));
    rig.store = ShardStore::open(Env { disk: hook.clone(), ..env }, &dir(), rig.config).unwrap().0;
    let other = rig.store.clone();
    hook.at_next_open(move || {
        for p in 1..=2 {
            other.trim(PartitionId(p), Offset(64));
        }
        assert_eq!(other.reclaim_step().unwrap().removed, 1);
    });
    let read = rig.store.read(PartitionId(1), Offset(0), 1 << 20, true).unwrap().wait();
    assert!(read.is_err(), "{read:?}");
    assert_eq!(rig.store.stats().open_segments, 0);
    assert_eq!(rig.world.env().disk.list(&dir().join(SEGMENTS_DIR)).unwrap(), Vec::<String>::new());
}

/// The same for a lease that ends while the file is opened: the cache would keep it open forever.
#[test]
fn a_lease_that_is_closed_while_the_file_is_opened_is_let_go() {
    let mut rig = rig(3);
    let env = rig.world.env();
    let hook = Arc::new(Hook::new(env.disk.clone()));
    rig.store = ShardStore::open(Env { disk: hook.clone(), ..env }, &dir(), rig.config).unwrap().0;
    let other = rig.store.clone();
    hook.at_next_open(move || {
        other.trim(PartitionId(1), Offset(64));
        other.reclaim_step().unwrap();
    });
    drop(unsent(&rig.store, 3));
    assert!(reclaim_all(&rig.store) >= RUN_BYTES / 2);
}
