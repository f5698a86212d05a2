//! Tests of background work on a full or partly unreadable disk.

use super::rig::{Rig, dir, kafka, opaque, small};
use crate::error::ErrorKind;
use crate::store::{Reclaimed, SEGMENTS_DIR, StoreConfig};
use polylogue_env::OpenMode;
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimWorld};
use polylogue_types::{Offset, PartitionId};
use std::sync::Arc;

fn files(rig: &Rig) -> Vec<String> {
    rig.world.env().disk.list(&dir().join(SEGMENTS_DIR)).unwrap()
}

/// 64 KiB of partitions 1 to 4 in a sealed file that a checkpoint covers.
fn ready(rig: &Rig, first: u64) {
    for i in first..first + 16 {
        rig.write(&(1..=4).map(|p| kafka(p, i, i, 1, 5, 1024 - 61)).collect::<Vec<_>>());
    }
    rig.journal.seal();
    rig.checkpoint();
}

/// Regression test: an incomplete segment stayed behind and took the very space that was missing.
#[test]
fn a_merge_that_is_given_up_leaves_no_file() {
    let rig = Rig::new(1, small(), 1 << 20);
    ready(&rig, 0);
    let upto = rig.journal.last_index();
    for nth in [2, 5, 9] {
        rig.world.disk.inject(Fault::nth(FaultOp::Write, nth, FaultKind::NoSpace));
        assert_eq!(rig.try_merge(upto, &|p| p.0 as u8).unwrap_err().kind, ErrorKind::StorageFull);
        assert_eq!(files(&rig), Vec::<String>::new(), "write {nth}");
    }
    let mut plan = rig.store.plan_merge(upto, &rig.journal, &|_| 0).unwrap().unwrap();
    rig.store.run_merge_step(&mut plan, &rig.journal).unwrap();
    assert_eq!(files(&rig).len(), 1);
    drop(plan);
    assert_eq!(files(&rig), Vec::<String>::new());
    rig.merge(upto);
    assert_eq!(rig.read_all(3, 0, 5000).unwrap().1.len(), 16 << 10);
}

#[test]
fn an_adoption_that_is_given_up_leaves_no_file() {
    let rig = Rig::new(1, StoreConfig { adopt_run_bytes_min: 500, ..small() }, 1 << 20);
    ready(&rig, 0);
    rig.world.disk.inject(Fault::nth(FaultOp::Rename, 1, FaultKind::NoSpace));
    assert_eq!(rig.try_merge(rig.journal.last_index(), &|_| 0).unwrap_err().kind, ErrorKind::StorageFull);
    assert_eq!(files(&rig), Vec::<String>::new());
}

/// Regression test: merges started regardless of free space, ran out of it, and started again, forever.
#[test]
fn a_merge_waits_for_the_room_that_it_needs() {
    let config = StoreConfig { room_bytes_min: 100 << 10, ..small() };
    let rig = Rig::new(1, config, 1 << 20);
    ready(&rig, 0);
    let upto = rig.journal.last_index();
    let used = (1 << 40) - {
        rig.world.disk.set_capacity(1 << 40);
        rig.world.env().disk.free_bytes(&dir()).unwrap()
    };
    rig.world.disk.set_capacity(used + (163 << 10));
    assert_eq!(rig.try_merge(upto, &|_| 0).unwrap_err().kind, ErrorKind::StorageFull);
    assert_eq!((rig.store.stats().merged_bytes, files(&rig).len()), (0, 0), "it did not begin");
    rig.world.disk.set_capacity(used + (165 << 10));
    rig.merge(upto);
    assert_eq!(rig.read_all(3, 0, 5000).unwrap().1.len(), 16 << 10);
}

/// Regression test: the segment with the most dead bytes came first, failed, and came first again.
#[test]
fn a_segment_that_cannot_be_read_keeps_no_other_from_being_reclaimed() {
    for solid in [false, true] {
        let mut rig = Rig::on(SimWorld::new(1), small(), 1 << 20);
        for round in 0..3 {
            ready(&rig, round * 16);
            rig.merge(rig.journal.last_index());
        }
        let env = rig.world.env();
        let disk = if solid { Arc::new(super::room::Solid(env.disk.clone())) } else { env.disk.clone() };
        let env = polylogue_env::Env { disk, ..env };
        rig.store = crate::store::ShardStore::open(env, &dir(), rig.config).unwrap().0;
        let names = files(&rig);
        // All of the first is dead but one run, so it comes first.
        for (p, upto) in [(1, 48), (2, 48), (3, 16)] {
            rig.store.trim(PartitionId(p), Offset(upto));
        }
        let first = dir().join(SEGMENTS_DIR).join(&names[0]);
        rig.world.disk.inject(Fault::from(FaultOp::Read, 1, FaultKind::Io).under(first));
        let (mut errors, mut done) = (0, Reclaimed { more: true, ..Reclaimed::default() });
        while done.more && errors < 10 {
            match rig.store.reclaim_step() {
                Ok(next) => done = next,
                Err(_) => errors += 1,
            }
        }
        assert_eq!(errors, 1, "solid {solid}");
        let stats = rig.store.stats();
        let given = if solid { stats.merged_bytes } else { stats.punched_bytes };
        assert!(given >= 48 << 10, "solid {solid}: {given}");
        assert_eq!(rig.read_all(4, 16, 5000).unwrap().1.len(), 32 << 10);
        assert_eq!(files(&rig).len(), 3, "the incomplete segment is removed");
    }
}

/// Regression test: a file of which a start had used little kept its whole reservation, for the whole retention time.
#[test]
fn an_adopted_file_gives_back_what_was_reserved_for_it() {
    let rig = Rig::new(1, StoreConfig { adopt_run_bytes_min: 500, ..small() }, 1 << 20);
    rig.write(&[kafka(1, 0, 0, 1, 5, 9000)]);
    let file = rig.journal.files().remove(0);
    rig.world.env().disk.open(&file, OpenMode::ReadWrite).unwrap().allocate(1 << 20).unwrap();
    assert!(rig.merge_all().adopted > 0);
    let size = |name: &String| {
        let file = rig.world.env().disk.open(&dir().join(SEGMENTS_DIR).join(name), OpenMode::Read).unwrap();
        file.allocated_bytes().unwrap()
    };
    let taken: u64 = files(&rig).iter().map(size).sum();
    assert!(taken < 32 << 10, "{taken}");
    assert_eq!(rig.read_all(1, 0, 5000).unwrap().1.len(), 9061);
}

/// Regression test: a bad sector failed every merge, so that no journal file was released.
#[test]
fn what_the_disk_does_not_give_for_long_becomes_damage() {
    for adopt in [false, true] {
        let adopt_run_bytes_min = if adopt { 500 } else { 1 << 30 };
        let mut rig = Rig::new(1, StoreConfig { tail_cache_bytes: 0, adopt_run_bytes_min, ..small() }, 1 << 20);
        for file in 0..2 {
            for i in file * 4..file * 4 + 4 {
                rig.write(&[kafka(1, i, i, 1, 5, 2000), opaque(2, i, i, 1, 5, 2000)]);
            }
            rig.journal.seal();
        }
        rig.checkpoint();
        let upto = rig.journal.last_index();
        let bad = rig.journal.files().remove(1);
        rig.world.disk.inject(Fault::from(FaultOp::Read, 1, FaultKind::Io).under(bad));
        for _ in 0..6 {
            assert_eq!(rig.try_merge(upto, &|_| 0).unwrap_err().kind, ErrorKind::Io, "adopt {adopt}");
            rig.world.clock.advance_ms(9_999);
        }
        rig.world.clock.advance_ms(10_000);
        assert_eq!(rig.merge(upto).damaged, 8, "adopt {adopt}");
        assert_eq!(rig.store.merged_upto(), Some(upto));
        for life in 0..2 {
            for partition in [1, 2] {
                let read = |from| {
                    let read = rig.store.read(PartitionId(partition), Offset(from), 1 << 20, true);
                    read.and_then(|l| l.wait())
                };
                // Of a file that was kept, the disk may return the bytes after all.
                if !adopt || life == 0 {
                    assert_eq!(read(0).unwrap().next, Offset(4), "adopt {adopt}, life {life}");
                    assert_eq!(read(4).unwrap_err().kind, ErrorKind::Damaged, "adopt {adopt}, life {life}");
                }
            }
            rig.world.disk.clear_faults();
            rig.reopen(false);
        }
    }
}
