//! Tests of compaction: small segments are combined.

use super::rig::{Rig, dir, kafka, opaque, small};
use crate::error::ErrorKind;
use crate::store::{Retention, SEGMENTS_DIR, StoreConfig, check_segments, retention_class};
use polylogue_types::{Offset, PartitionId};

const HOUR_MS: i64 = 3_600_000;
const WEEK_MS: u64 = 7 * 24 * HOUR_MS as u64;
const PARTITIONS: u64 = 20;

/// Writes one entry to each partition, and merges.
fn hour(rig: &Rig, hour: u64) {
    let now = hour as i64 * HOUR_MS;
    let entry = |p| match p % 2 {
        0 => kafka(p, hour, hour, 1, now, 300),
        _ => opaque(p, hour, hour, 1, now, 300),
    };
    rig.write(&(0..PARTITIONS).map(entry).collect::<Vec<_>>());
    rig.journal.seal();
    rig.checkpoint();
    let class = |_| retention_class(Some(WEEK_MS));
    rig.try_merge(rig.journal.last_index(), &class).unwrap();
}

fn reclaim(rig: &Rig) -> usize {
    let mut compacted = 0;
    loop {
        let done = rig.store.reclaim_step().unwrap();
        compacted += done.compacted;
        if !done.more {
            return compacted;
        }
    }
}

/// Regression test: every merge left a row for each partition as long as any of its data was kept: gigabytes of memory for a week.
#[test]
fn rows_do_not_grow_with_the_number_of_merges() {
    let mut rig = Rig::new(1, StoreConfig { tail_cache_bytes: 0, ..small() }, 1 << 20);
    let mut written = 0;
    for round in 0..400 {
        hour(&rig, round);
        written += PARTITIONS * 330;
        let keep = Retention { ms: Some(WEEK_MS), bytes: None };
        let starts = rig.store.retention_scan(round as i64 * HOUR_MS, (0..PARTITIONS).map(|p| (PartitionId(p), keep)));
        for (p, start) in starts {
            rig.store.trim(p, start);
            // Nothing is kept longer than an eighth of its class's minimum retention, plus the last run.
            assert!(round < 168 || start.0 + 168 + 24 > round, "round {round}: {start}");
        }
        reclaim(&rig);
        let stats = rig.store.stats();
        assert!(stats.segments <= 32, "round {round}: {stats:?}");
        // A partition with few entries keeps them in separate runs, as one could be a large share of it.
        let runs_max = if round < 200 { 64 } else { 40 };
        assert!(stats.segment_runs <= runs_max * PARTITIONS as usize, "round {round}: {stats:?}");
    }
    let merged = rig.store.stats().merged_bytes;
    assert!(merged < 5 * written, "{merged} bytes written for {written}");
    for life in 0..2 {
        for p in 0..PARTITIONS {
            let first = rig.store.partition_stats(PartitionId(p)).unwrap().first.0;
            let expected: Vec<u8> = (first..400)
                .flat_map(|i| match p % 2 {
                    0 => kafka(p, i, i, 1, i as i64 * HOUR_MS, 300).1,
                    _ => opaque(p, i, i, 1, i as i64 * HOUR_MS, 300).1,
                })
                .collect();
            assert!(rig.read_all(p, first, 1000).unwrap().1 == expected, "partition {p}, life {life}");
            let found =
                rig.store.find_by_time(PartitionId(p), 350 * HOUR_MS, Offset(0)).unwrap().wait().unwrap().unwrap();
            assert_eq!((found.base, found.ordinal.0), (Offset(350), 350));
        }
        assert_eq!(check_segments(&rig.world.env(), &dir()).unwrap(), []);
        rig.reopen(false);
    }
}

#[test]
fn what_is_trimmed_or_dropped_meanwhile_does_not_come_back() {
    let rig = Rig::new(1, StoreConfig { merge_step_bytes: 500, ..small() }, 1 << 20);
    (0..8).for_each(|round| hour(&rig, round));
    assert!(rig.store.reclaim_step().unwrap().more);
    for step in 0.. {
        match step {
            1 => rig.store.trim(PartitionId(0), Offset(5)),
            2 => rig.store.trim(PartitionId(1), Offset(8)),
            3 => rig.store.drop_partition(PartitionId(2)),
            4 => rig.store.trim(PartitionId(PARTITIONS - 1), Offset(8)),
            _ => {}
        }
        let done = rig.store.reclaim_step().unwrap();
        if done.compacted > 0 {
            break;
        }
        assert!(done.more && step < 1000);
    }
    let stats = rig.store.stats();
    assert_eq!((stats.segments, stats.live_bytes), (1, (0..PARTITIONS).map(|p| kept(&rig, p)).sum::<u64>()));
    assert_eq!(rig.read_all(0, 5, 1000).unwrap().1.len(), 3 * 361);
    assert_eq!(rig.store.read(PartitionId(0), Offset(4), 1, true).unwrap_err().kind, ErrorKind::OutOfRange);
    assert_eq!((kept(&rig, 1), kept(&rig, 2), kept(&rig, PARTITIONS - 1)), (0, 0, 0));
    assert_eq!(rig.read_all(3, 0, 1000).unwrap().1.len(), 8 * 300);
    reclaim(&rig);
    assert_eq!(check_segments(&rig.world.env(), &dir()).unwrap(), []);
}

fn kept(rig: &Rig, partition: u64) -> u64 {
    rig.store.partition_stats(PartitionId(partition)).map_or(0, |s| s.bytes)
}

#[test]
fn damage_stays_damage_and_takes_nothing_else_along() {
    let mut rig = Rig::new(1, StoreConfig { tail_cache_bytes: 0, ..small() }, 1 << 20);
    (0..8).for_each(|round| hour(&rig, round));
    // The first native byte after the headers of the first run in the third segment.
    let path = dir().join(SEGMENTS_DIR);
    let file = path.join(&rig.world.env().disk.list(&path).unwrap()[2]);
    rig.world.disk.flip_bit(&file, 64 + 100, 1).unwrap();
    assert_eq!(reclaim(&rig), 8);
    for _ in 0..2 {
        let read = |from| rig.store.read(PartitionId(0), Offset(from), 1 << 20, true).and_then(|l| l.wait());
        assert_eq!(read(2).unwrap_err().kind, ErrorKind::Damaged);
        assert_eq!((read(0).unwrap().next, read(3).unwrap().next), (Offset(2), Offset(8)));
        assert_eq!(rig.read_all(1, 0, 1000).unwrap().1.len(), 8 * 300);
        rig.reopen(false);
    }
}

#[test]
fn only_neighbours_of_one_class_and_time_become_one() {
    let rig = Rig::new(1, small(), 1 << 20);
    let classes = [14, 14, 14, 14, 14, 14, 14, 15];
    for (round, class) in (0..).zip(classes) {
        rig.write(&[kafka(1, round, round, 1, round as i64 * HOUR_MS, 300)]);
        rig.journal.seal();
        rig.checkpoint();
        rig.try_merge(rig.journal.last_index(), &|_| class).unwrap();
    }
    assert_eq!((reclaim(&rig), rig.store.stats().segments), (0, 8));
    // A week later: too far from the others.
    for round in 200..204 {
        rig.write(&[kafka(1, round, round, 1, round as i64 * HOUR_MS, 300)]);
        rig.journal.seal();
        rig.checkpoint();
        rig.try_merge(rig.journal.last_index(), &|_| 14).unwrap();
    }
    assert_eq!((reclaim(&rig), rig.store.stats().segments), (0, 12));
}
