//! Tests of readers concurrent with all other work.

use super::rig::{Rig, kafka, small};
use crate::error::ErrorKind;
use crate::store::{ShardStore, StoreConfig};
use polylogue_env::sim::SimRng;
use polylogue_env::{RealTasks, Tasks};
use polylogue_types::{Offset, PartitionId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PARTITIONS: u64 = 8;
const ENTRY_BYTES: u64 = 200;

/// Reads at random positions until stopped, and compares with the expected content.
fn reader(store: &ShardStore, seed: u64, stop: &AtomicBool) -> u64 {
    let rng = SimRng::new(seed);
    let mut answers = 0;
    while !stop.load(Ordering::Relaxed) {
        let partition = PartitionId(rng.below(PARTITIONS));
        let Some(stats) = store.partition_stats(partition) else { continue };
        let from = stats.first.0 + rng.below(stats.end.0 - stats.first.0 + 1);
        match store.read(partition, Offset(from), 1 + rng.below(3000) as usize, true).and_then(|l| l.wait()) {
            Ok(result) => {
                let mut bytes = Vec::new();
                result.chunks.iter().for_each(|c| bytes.extend_from_slice(&c.to_bytes().unwrap()));
                assert_eq!(bytes.len() as u64, (result.next.0 - result.start.0) * ENTRY_BYTES);
                assert!(result.start.0 == from || (from == stats.end.0 && bytes.is_empty()));
                for (i, entry) in bytes.chunks(ENTRY_BYTES as usize).enumerate() {
                    let expected = kafka(partition.0, 0, from + i as u64, 1, 5, ENTRY_BYTES as usize - 61).1;
                    assert!(entry == expected, "offset {} of partition {partition}", from + i as u64);
                }
                answers += 1;
            }
            // Trimmed meanwhile.
            Err(e) => assert_eq!(e.kind, ErrorKind::OutOfRange, "{e}"),
        }
    }
    answers
}

#[test]
fn readers_see_the_same_while_everything_moves() {
    let config = StoreConfig { adopt_run_bytes_min: 700, tail_cache_bytes: 10 << 10, ..small() };
    let rig = Rig::new(1, config, 12 << 10);
    let stop = Arc::new(AtomicBool::new(false));
    let (answers, finished) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let readers: Vec<_> = (0..2)
        .map(|seed| {
            let (store, stop) = (rig.store.clone(), stop.clone());
            let (answers, finished) = (answers.clone(), finished.clone());
            let body = move || {
                answers.fetch_add(reader(&store, seed, &stop), Ordering::Relaxed);
                finished.fetch_add(1, Ordering::Relaxed);
            };
            RealTasks.spawn("reader", Box::new(body)).unwrap()
        })
        .collect();
    let mut next = [0u64; PARTITIONS as usize];
    for round in 0..400u64 {
        let mut frame = Vec::new();
        for p in 0..PARTITIONS {
            // Sometimes long runs, so that both kinds of files occur.
            for _ in 0..if (round / 40) % 2 == 0 { 1 } else { 5 } {
                let n = &mut next[p as usize];
                frame.push(kafka(p, *n, *n, 1, 5, ENTRY_BYTES as usize - 61));
                *n += 1;
            }
        }
        rig.write(&frame);
        if round % 10 == 0 {
            rig.checkpoint();
            rig.try_merge(rig.journal.last_index(), &|p| (p.0 % 2) as u8).unwrap();
        }
        if round % 25 == 0 {
            let p = round / 25 % PARTITIONS;
            rig.store.trim(PartitionId(p), Offset(next[p as usize] / 2));
            rig.store.reclaim_step().unwrap();
        }
    }
    stop.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|r| r.join());
    let stats = rig.store.stats();
    assert!(stats.merged_bytes > 0 && stats.adopted_bytes > 0 && stats.read_tail_bytes > 0, "{stats:?}");
    assert!(answers.load(Ordering::Relaxed) > 0);
    assert_eq!(finished.load(Ordering::Relaxed), 2, "a reader has panicked");
}
