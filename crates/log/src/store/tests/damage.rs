//! Tests of damaged bytes: they are fenced, and everything else is served.

use super::rig::{Rig, dir, kafka, opaque, small};
use crate::error::ErrorKind;
use crate::frame::codec::HEADERS_BYTES;
use crate::store::segment::Table;
use crate::store::{FencedRange, SEGMENTS_DIR, ShardStore, StoreConfig, check_segments};
use polylogue_env::{Env, OpenMode};
use polylogue_types::{Offset, PartitionId};
use std::path::PathBuf;
use std::sync::Arc;

/// Three partitions in one segment: 1 of Kafka batches with many blocks, 2 of opaque entries, 3 with one entry.
fn rig() -> Rig {
    let mut rig = Rig::new(1, small(), 1 << 20);
    for i in 0..40 {
        rig.write(&[kafka(1, i, i * 10, 10, i as i64, 139), opaque(2, i, i, 1, i as i64, 100)]);
    }
    rig.write(&[kafka(3, 0, 0, 5, 7, 100)]);
    assert_eq!(rig.merge_all().segments, 1);
    rig.reopen(false);
    rig
}

fn segment(rig: &Rig) -> PathBuf {
    let path = dir().join(SEGMENTS_DIR);
    path.join(rig.world.env().disk.list(&path).unwrap().last().unwrap())
}

fn table(rig: &Rig) -> (Table, u64) {
    let file = rig.world.env().disk.open(&segment(rig), OpenMode::Read).unwrap();
    let size = file.size().unwrap();
    (Table::read(&*file.as_range_source(), size, size).unwrap(), size)
}

/// Reads a partition to its end across damaged ranges; returns the base offsets of the entries read.
fn survivors(rig: &Rig, partition: u64, end: u64) -> Vec<u64> {
    let mut bases = Vec::new();
    let mut at = 0;
    while at < end {
        match rig.store.entry_at(PartitionId(partition), Offset(at)).and_then(|l| l.wait()) {
            Ok(entry) => {
                bases.push(entry.location.base.0);
                at = entry.location.end.0;
            }
            Err(e) => {
                assert_eq!(e.kind, ErrorKind::Damaged, "{e}");
                let end = rig.store.damaged_until(PartitionId(partition), Offset(at));
                at = end.expect("damage without a fence").0;
            }
        }
    }
    bases
}

#[test]
fn a_flipped_bit_fences_its_block_and_nothing_else() {
    let whole = rig();
    let (table, size) = table(&whole);
    let intact = [(1, 400), (2, 40), (3, 5)].map(|(p, end)| survivors(&whole, p, end));
    assert_eq!(intact.each_ref().map(Vec::len), [40, 40, 1]);
    // Every 7th byte between header and run table.
    let end = size - 64 - 96 * table.rows.len() as u64;
    let mut rig = rig();
    for byte in (64..end).step_by(7) {
        let disk = whole.world.disk.fork(byte);
        disk.flip_bit(&segment(&whole), byte, 3).unwrap();
        let env = Env { disk: Arc::new(disk), ..whole.world.env() };
        let findings = check_segments(&env, &dir()).unwrap();
        rig.store = ShardStore::open(env, &dir(), rig.config).unwrap().0;
        let row =
            table.rows.iter().map(|(_, r)| r).find(|r| r.extent(table.expected.name.kind).contains(&byte)).unwrap();
        let found: Vec<FencedRange> = findings.iter().map(|f| f.range.unwrap()).collect();
        assert!(!found.is_empty() && found.iter().all(|f| f.partition == row.partition), "byte {byte}: {findings:?}");
        for (partition, end) in [(1, 400), (2, 40), (3, 5)] {
            let left = survivors(&rig, partition, end);
            let intact = &intact[partition as usize - 1];
            if row.partition.0 != partition {
                assert_eq!(&left, intact, "byte {byte}: partition {partition} is not damaged");
                continue;
            }
            let outside: Vec<u64> = intact
                .iter()
                .copied()
                .filter(|base| !found.iter().any(|f| f.base.0 <= *base && *base < f.end.0))
                .collect();
            assert_eq!(left, outside, "byte {byte}: {findings:?}");
            // A read from the start ends before the fence; one after it succeeds.
            let first = found.iter().map(|f| f.base.0).min().unwrap();
            let before = rig.store.read(PartitionId(partition), Offset(0), 1 << 20, true).and_then(|l| l.wait());
            match before {
                Ok(result) => assert!(first > 0 && result.next.0 <= first.max(1), "byte {byte}: {result:?}"),
                Err(e) => assert!(e.kind == ErrorKind::Damaged && first == 0, "byte {byte}: {e}"),
            }
        }
    }
}

#[test]
fn a_segment_that_cannot_be_read_at_all_leaves_no_silent_gap() {
    let rig = rig();
    // More entries after it, in a separate segment.
    for i in 40..50 {
        rig.write(&[kafka(1, i, i * 10, 10, i as i64, 139)]);
    }
    let first = segment(&rig);
    rig.merge_all();
    let (last, size) = (segment(&rig), rig.world.env().disk.open(&first, OpenMode::Read).unwrap().size().unwrap());
    assert_ne!(first, last);
    rig.world.env().disk.open(&first, OpenMode::ReadWrite).unwrap().set_len(size - 70).unwrap();
    let (store, opened) = ShardStore::open(rig.world.env(), &dir(), rig.config).unwrap();
    assert_eq!((opened.lost.len(), opened.segments), (1, 1));
    assert_eq!(store.expect(PartitionId(1), Offset(0), Offset(500)), Offset(0));
    assert_eq!(store.read(PartitionId(1), Offset(400), 1000, true).unwrap().wait().unwrap().start, Offset(400));
    // The broker knows the partition's start from its own state; the store knows that data is missing.
    let early = store.read(PartitionId(1), Offset(20), 1000, true).and_then(|l| l.wait()).unwrap_err();
    assert_eq!(early.kind, ErrorKind::Damaged, "{early}");
    let findings = check_segments(&rig.world.env(), &dir()).unwrap();
    assert!(matches!(&findings[..], [f] if f.range.is_none()), "{findings:?}");
}

/// Regression test: a reader of a hundred queue messages at a time read and parsed the table of their frame, with thousands, each time:
/// two thirds of the cost of draining a queue.
#[test]
fn the_table_of_a_frame_is_read_once_for_who_reads_it_in_pieces() {
    let config = StoreConfig { tail_cache_bytes: 0, index_cache_bytes: 1 << 20, ..small() };
    let rig = Rig::new(1, config, 1 << 20);
    let entries: Vec<_> = (0..50).map(|i| opaque(1, i, i, 1, 5, 100)).collect();
    let index = rig.write(&entries);
    let read = |at| {
        let found = rig.store.entries_from(PartitionId(1), Offset(at), 1, 1000).and_then(|lookup| lookup.wait())?;
        Ok::<_, crate::error::Error>(found.first().map(|entry| entry.location.base.0))
    };
    assert_eq!(read(0).unwrap(), Some(0));
    assert!(rig.store.stats().divided_bytes > 0);
    let frame = rig.journal.replay(index, true).remove(0);
    let table = frame.place.clone().unwrap().position + HEADERS_BYTES as u64;
    rig.world.disk.flip_bit(&rig.journal.files().remove(0), table + 20, 0).unwrap();
    for at in 1..50 {
        assert_eq!(read(at).unwrap(), Some(at), "its table is not parsed again");
    }
}

#[test]
fn a_merge_takes_damage_over_as_damage() {
    for heads_only in [false, true] {
        let mut rig = Rig::new(1, StoreConfig { tail_cache_bytes: 0, ..small() }, 1 << 20);
        for i in 0..10 {
            rig.write(&[kafka(1, i, i * 10, 10, 5, 200), opaque(2, i, i, 1, 5, 300)]);
        }
        let frame = rig.journal.replay(polylogue_types::Index(4), true).remove(0);
        let place = frame.place.clone().unwrap();
        let path = rig.journal.files().remove(0);
        for entry in &frame.entries {
            rig.world.disk.flip_bit(&path, place.position + u64::from(entry.native.start) + 100, 0).unwrap();
        }
        if heads_only {
            // A start that reads only heads does not notice it; a reader does.
            rig.reopen(true);
            let read = rig.store.read(PartitionId(1), Offset(30), 10, true).unwrap();
            assert_eq!(read.wait().unwrap_err().kind, ErrorKind::Damaged);
        }
        let report = rig.merge_all();
        assert_eq!(report.damaged, 2);
        for life in 0..2 {
            for (partition, base, end) in [(1, 30, 40), (2, 3, 4)] {
                let read = rig.store.read(PartitionId(partition), Offset(base), 1 << 20, true).and_then(|l| l.wait());
                assert_eq!(read.unwrap_err().kind, ErrorKind::Damaged, "life {life}");
                let before = rig.store.read(PartitionId(partition), Offset(0), 1 << 20, true).unwrap().wait().unwrap();
                assert_eq!(before.next, Offset(base), "life {life}");
                let fence = FencedRange { partition: PartitionId(partition), base: Offset(base), end: Offset(end) };
                assert!(rig.store.fenced().contains(&fence), "life {life}: {:?}", rig.store.fenced());
                let after = rig.read_all(partition, end, 1000).unwrap();
                assert_eq!((after.0, after.1.len()), (end, 6 * if partition == 1 { 261 } else { 300 }));
            }
            assert_eq!(check_segments(&rig.world.env(), &dir()).unwrap().len(), 2);
            rig.reopen(false);
        }
    }
}

#[test]
fn a_fence_goes_when_its_range_is_trimmed() {
    let mut rig = rig();
    let (table, _) = table(&rig);
    let row = table.rows.iter().map(|(_, r)| r).find(|r| r.partition.0 == 1).unwrap();
    rig.world.disk.flip_bit(&segment(&rig), u64::from(row.position) + 70, 1).unwrap();
    rig.reopen(false);
    let read = |rig: &Rig, from| rig.store.read(PartitionId(1), Offset(from), 100_000, true).and_then(|l| l.wait());
    assert_eq!(read(&rig, 0).unwrap_err().kind, ErrorKind::Damaged);
    let fence = rig.store.fenced()[0];
    rig.store.trim(PartitionId(1), fence.end);
    assert_eq!(rig.store.fenced(), []);
    assert_eq!(read(&rig, fence.end.0).unwrap().next, Offset(400));
}

#[test]
fn a_damaged_timestamp_finds_nothing() {
    let mut rig = rig();
    let (table, _) = table(&rig);
    let row = table.rows.iter().map(|(_, r)| r).find(|r| r.partition.0 == 1).unwrap();
    // The highest byte of the first batch's maximum timestamp: it would be the newest of all.
    rig.world.disk.flip_bit(&segment(&rig), u64::from(row.position) + 36, 5).unwrap();
    rig.reopen(false);
    let find = |time| rig.store.find_by_time(PartitionId(1), time, Offset(0)).and_then(|l| l.wait());
    assert_eq!(find(0).unwrap_err().kind, ErrorKind::Damaged);
    assert_eq!(
        rig.store.entry_at(PartitionId(1), Offset(0)).and_then(|l| l.wait()).unwrap_err().kind,
        ErrorKind::Damaged
    );
    // Everything after the damaged block is found.
    assert_eq!(find(30).unwrap().unwrap().base, Offset(300));
}

#[test]
fn a_journal_file_that_has_lost_its_end_costs_what_stood_there() {
    let mut rig = Rig::new(1, StoreConfig { tail_cache_bytes: 0, ..small() }, 1 << 20);
    for i in 0..10 {
        rig.write(&[kafka(1, i, i * 10, 10, 5, 200), opaque(2, i, i, 1, 5, 3000)]);
    }
    let frame = rig.journal.replay(polylogue_types::Index(9), true).remove(0);
    let path = rig.journal.files().remove(0);
    let end = frame.place.as_ref().unwrap().position + u64::from(frame.entries[1].native.start) + 100;
    rig.world.env().disk.open(&path, OpenMode::ReadWrite).unwrap().set_len(end).unwrap();
    rig.journal.seal();
    rig.checkpoint();
    let report = rig.merge(polylogue_types::Index(10));
    assert!(report.damaged >= 2, "{report:?}");
    for _ in 0..2 {
        for (partition, sound, len) in [(1, 80, 8 * 261), (2, 8, 8 * 3000)] {
            let found = rig.store.read(PartitionId(partition), Offset(0), 1 << 20, true).unwrap().wait().unwrap();
            assert!(found.next.0 >= sound && found.bytes >= len, "{found:?}");
        }
        let lost = rig.store.read(PartitionId(2), Offset(9), 1 << 20, true).and_then(|l| l.wait());
        assert_eq!(lost.unwrap_err().kind, ErrorKind::Damaged);
        rig.reopen(false);
    }
}

/// Regression test: one flipped bit there lost all partitions of the segment.
#[test]
fn a_flipped_bit_in_header_footer_or_table_costs_one_run_at_the_most() {
    let whole = rig();
    let (table, size) = table(&whole);
    let rows = size - 64 - 96 * table.rows.len() as u64;
    let mut rig = rig();
    for byte in (0..64).chain(rows..size) {
        let disk = whole.world.disk.fork(byte);
        disk.flip_bit(&segment(&whole), byte, (byte % 8) as u8).unwrap();
        let env = Env { disk: Arc::new(disk), ..whole.world.env() };
        assert!(!check_segments(&env, &dir()).unwrap().is_empty(), "byte {byte}: it is not reported");
        let (store, opened) = ShardStore::open(env, &dir(), rig.config).unwrap();
        assert_eq!((opened.segments, opened.lost.len()), (1, 1), "byte {byte}: {opened:?}");
        rig.store = store;
        let hit = (byte >= rows && byte < size - 64).then(|| table.rows[(byte - rows) as usize / 96].1);
        for (partition, end, entries) in [(1, 400, 40), (2, 40, 40), (3, 5, 1)] {
            assert_eq!(rig.store.expect(PartitionId(partition), Offset(0), Offset(end)), Offset(0));
            let survived = survivors(&rig, partition, end);
            match hit.filter(|row| row.partition.0 == partition) {
                None => assert_eq!(survived.len(), entries, "byte {byte}, partition {partition}"),
                Some(row) => {
                    assert_eq!(survived.len(), 0, "byte {byte}, partition {partition}");
                    let lost = FencedRange { partition: row.partition, base: row.base, end: row.end };
                    assert_eq!(rig.store.fenced(), [lost], "byte {byte}");
                }
            }
        }
    }
}

/// Regression test: nothing of an unreadable segment was ever removed, and of a partly readable one it was unknown what was lost
/// once the rest was removed.
#[test]
fn a_damaged_segment_stays_until_nobody_wants_what_it_has_lost() {
    for (cut, lost_rows) in [(70, 1), (10_000, 3)] {
        let rig = rig();
        let path = segment(&rig);
        let size = rig.world.env().disk.open(&path, OpenMode::Read).unwrap().size().unwrap();
        if lost_rows == 1 {
            // In partition 3.
            rig.world.disk.flip_bit(&path, size - cut, 1).unwrap();
        } else {
            rig.world.env().disk.open(&path, OpenMode::ReadWrite).unwrap().set_len(size - cut).unwrap();
        }
        let open = || {
            let store = ShardStore::open(rig.world.env(), &dir(), rig.config).unwrap().0;
            for (partition, end) in [(1, 400), (2, 40), (3, 5)] {
                let _ = store.expect(PartitionId(partition), Offset(0), Offset(end));
            }
            store
        };
        let read = |store: &ShardStore| store.read(PartitionId(3), Offset(0), 1000, true).and_then(|l| l.wait());
        let store = open();
        for (partition, end) in [(1, 400), (2, 40)] {
            store.trim(PartitionId(partition), Offset(end));
        }
        while store.reclaim_step().unwrap().more {}
        assert_eq!(read(&store).unwrap_err().kind, ErrorKind::Damaged);
        let store = open();
        assert_eq!(read(&store).unwrap_err().kind, ErrorKind::Damaged, "cut {cut}: forgotten with the rest");
        for (partition, end) in [(1, 400), (2, 40), (3, 5)] {
            store.trim(PartitionId(partition), Offset(end));
        }
        while store.reclaim_step().unwrap().more {}
        assert!(!rig.world.env().disk.exists(&path), "cut {cut}");
        let opened = ShardStore::open(rig.world.env(), &dir(), rig.config).unwrap().1;
        assert_eq!((opened.segments, opened.lost.len()), (0, 0), "cut {cut}");
    }
}
