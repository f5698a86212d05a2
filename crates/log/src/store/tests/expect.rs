//! Tests of the expected ranges of partitions, which are compared with the stored data.

use super::rig::{Rig, dir, kafka, small};
use crate::error::ErrorKind;
use crate::store::{FencedRange, SEGMENTS_DIR, ShardStore};
use polylogue_env::OpenMode;
use polylogue_types::{Offset, PartitionId};

const P: PartitionId = PartitionId(1);

/// Partition 1 in three segments of 10 entries each, offsets 0 to 300; partition 2 only in the second.
fn three() -> Rig {
    let rig = Rig::new(1, small(), 1 << 20);
    for i in 0..30 {
        rig.write(&[kafka(1, i, i * 10, 10, i as i64, 139)]);
        if i == 15 {
            rig.write(&[kafka(2, 0, 0, 10, 5, 100)]);
        }
        if i % 10 == 9 {
            rig.merge_all();
        }
    }
    rig
}

/// Truncates a segment at its start and opens the store again.
fn without(rig: &Rig, segment: usize) -> ShardStore {
    let (disk, path) = (rig.world.env().disk, dir().join(SEGMENTS_DIR));
    let file = path.join(&disk.list(&path).unwrap()[segment]);
    disk.open(&file, OpenMode::ReadWrite).unwrap().set_len(10).unwrap();
    let (store, opened) = ShardStore::open(rig.world.env(), &dir(), rig.config).unwrap();
    assert_eq!((opened.lost.len(), opened.segments), (1, 2));
    store
}

fn read(store: &ShardStore, partition: PartitionId, from: u64) -> Result<(u64, u64), ErrorKind> {
    let read = store.read(partition, Offset(from), 1 << 20, true).and_then(|l| l.wait());
    read.map(|r| (r.start.0, r.next.0)).map_err(|e| e.kind)
}

fn fence(partition: PartitionId, base: u64, end: u64) -> FencedRange {
    FencedRange { partition, base: Offset(base), end: Offset(end) }
}

/// Regression test: the first served offset became that of the next segment: a consumer at the log start got an out-of-range error, requested
/// the earliest offset, got the log start again, and so on forever.
#[test]
fn a_lost_front_is_damage_and_not_out_of_range() {
    let rig = three();
    let store = without(&rig, 0);
    assert_eq!(store.expect(P, Offset(0), Offset(300)), Offset(0));
    assert_eq!(store.fenced(), [fence(P, 0, 100)]);
    assert_eq!(store.partition_stats(P).unwrap().first, Offset(0));
    assert_eq!(read(&store, P, 0), Err(ErrorKind::Damaged));
    assert_eq!(read(&store, P, 99), Err(ErrorKind::Damaged));
    assert_eq!(read(&store, P, 100), Ok((100, 300)));
    assert_eq!(store.entry_at(P, Offset(50)).and_then(|l| l.wait()).unwrap_err().kind, ErrorKind::Damaged);
    assert_eq!(store.find_by_time(P, 0, Offset(0)).and_then(|l| l.wait()).unwrap_err().kind, ErrorKind::Damaged);
    store.trim(P, Offset(100));
    assert_eq!((store.fenced(), read(&store, P, 99)), (vec![], Err(ErrorKind::OutOfRange)));
    assert_eq!(store.find_by_time(P, 12, Offset(0)).unwrap().wait().unwrap().unwrap().base, Offset(120));
}

/// A hole in the middle stays one before and after the log start reaches it.
#[test]
fn a_lost_middle_is_fenced() {
    let rig = three();
    let store = without(&rig, 1);
    assert_eq!(store.expect(P, Offset(0), Offset(300)), Offset(0));
    assert_eq!(store.fenced(), [fence(P, 100, 200)]);
    assert_eq!((read(&store, P, 0), read(&store, P, 100)), (Ok((0, 100)), Err(ErrorKind::Damaged)));
    assert_eq!(store.find_by_time(P, 3, Offset(0)).unwrap().wait().unwrap().unwrap().base, Offset(30));
    assert_eq!(store.find_by_time(P, 25, Offset(0)).and_then(|l| l.wait()).unwrap_err().kind, ErrorKind::Damaged);
    store.trim(P, Offset(150));
    assert_eq!((read(&store, P, 150), read(&store, P, 200)), (Err(ErrorKind::Damaged), Ok((200, 300))));
}

/// Regression test: the partition's end became that of the last remaining segment: a fetch there waited forever for acknowledged data, and one
/// beyond it got an out-of-range error.
#[test]
fn a_lost_tail_is_damage_and_not_the_end() {
    let mut rig = three();
    let store = without(&rig, 2);
    assert_eq!(store.expect(P, Offset(0), Offset(300)), Offset(0));
    assert_eq!(store.fenced(), [fence(P, 200, 300)]);
    assert_eq!(store.partition_stats(P).unwrap().end, Offset(300));
    assert_eq!((read(&store, P, 150), read(&store, P, 200)), (Ok((150, 200)), Err(ErrorKind::Damaged)));
    assert_eq!((read(&store, P, 299), read(&store, P, 300)), (Err(ErrorKind::Damaged), Ok((300, 300))));
    // New entries follow the hole.
    rig.store = store;
    rig.write(&[kafka(1, 30, 300, 10, 30, 139)]);
    assert_eq!(read(&rig.store, P, 300), Ok((300, 310)));
    assert_eq!(read(&rig.store, P, 200), Err(ErrorKind::Damaged));
}

#[test]
fn a_partition_that_was_in_the_lost_segment_only_is_damaged() {
    let rig = three();
    let store = without(&rig, 1);
    let p = PartitionId(2);
    assert_eq!(store.expect(p, Offset(0), Offset(10)), Offset(0));
    assert_eq!((read(&store, p, 0), read(&store, p, 10)), (Err(ErrorKind::Damaged), Ok((10, 10))));
    assert_eq!(store.expect(PartitionId(3), Offset(7), Offset(7)), Offset(7));
    assert_eq!(read(&store, PartitionId(3), 7), Ok((7, 7)));
}

/// Regression test: the trim was written and not flushed, the segment was removed, and then the power was cut: the old log start came
/// back without its messages.
#[test]
fn a_log_start_that_came_back_without_its_segment_goes_where_the_partition_begins() {
    let mut rig = three();
    rig.store.trim(P, Offset(150));
    rig.store.drop_partition(PartitionId(2));
    while rig.store.reclaim_step().unwrap().more {}
    rig.reopen(false);
    assert_eq!(rig.store.expect(P, Offset(0), Offset(300)), Offset(100));
    assert_eq!((rig.store.fenced(), read(&rig.store, P, 100)), (vec![], Ok((100, 300))));
    rig.store.trim(P, Offset(300));
    while rig.store.reclaim_step().unwrap().more {}
    rig.reopen(false);
    assert_eq!(rig.store.expect(P, Offset(120), Offset(300)), Offset(300));
    assert_eq!((rig.store.fenced(), read(&rig.store, P, 300)), (vec![], Ok((300, 300))));
}
