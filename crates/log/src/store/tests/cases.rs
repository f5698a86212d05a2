//! Tests of single guarantees.

use super::rig::{Entry, Rig, dir, kafka, opaque, small};
use crate::error::ErrorKind;
use crate::frame::Kind;
use crate::store::{
    CHUNKS_PER_READ_MAX, Lookup, MergeProgress, MergeReason, Retention, SEGMENTS_DIR, SealedJournal, StoreConfig,
};
use polylogue_env::OpenMode;
use polylogue_record::envelope::Body;
use polylogue_types::{Chunk, Index, Offset, PartitionId};

const P: PartitionId = PartitionId(1);

type Make = fn(u64, u64, u64, u32, i64, usize) -> Entry;

fn ten(rig: &Rig, make: Make) -> Vec<Entry> {
    ten_in_frames(rig, make, 1)
}

/// Ten batches of ten messages and 300 bytes each, `a_frame` per frame, with timestamps out of order.
fn ten_in_frames(rig: &Rig, make: Make, a_frame: usize) -> Vec<Entry> {
    let times = [100, 300, 200, 500, 400, 400, 900, 100, 950, 800];
    let entries: Vec<Entry> = (0..10).map(|i| make(1, i, i * 10, 10, times[i as usize], 239)).collect();
    entries.chunks(a_frame).for_each(|entries| {
        rig.write(entries);
    });
    entries
}

/// Runs a check with entries in each of the three places: memory, journal file, segment.
fn everywhere(make: Make, a_frame: usize, check: impl Fn(&Rig, &[Entry], &str)) {
    let rig = Rig::new(1, StoreConfig { tail_cache_bytes: 1 << 20, ..small() }, 1 << 20);
    let entries = ten_in_frames(&rig, make, a_frame);
    check(&rig, &entries, "in memory");
    rig.store.set_tail_cache_bytes(0, 0);
    assert_eq!(rig.store.stats().tail_bytes, 0);
    check(&rig, &entries, "in the journal");
    let mut rig = rig;
    rig.reopen(true);
    check(&rig, &entries, "in the journal after a start");
    assert_eq!(rig.merge_all().segments, 1);
    check(&rig, &entries, "in a segment");
    rig.reopen(false);
    assert_eq!(rig.store.stats().journal_runs, 0);
    check(&rig, &entries, "in a segment after a start");
}

fn both(check: impl Fn(&Rig, &[Entry], &str)) {
    everywhere(kafka, 1, &check);
    everywhere(opaque, 1, &check);
}

#[test]
fn an_offset_inside_an_entry_finds_the_whole_entry() {
    both(|rig, entries, place| {
        for offset in 0..100u64 {
            let first = (offset / 10) as usize;
            let (start, bytes) = rig.read_all(1, offset, 1000).unwrap();
            assert_eq!(start, first as u64 * 10, "{place}, offset {offset}");
            let expected: Vec<u8> = entries[first..].iter().flat_map(|(_, b)| b.to_vec()).collect();
            assert!(bytes == expected, "{place}, offset {offset}");
            let entry = rig.store.entry_at(P, Offset(offset)).unwrap().wait().unwrap();
            assert_eq!((entry.location.base.0, &entry.bytes), (first as u64 * 10, &entries[first].1), "{place}");
            assert_eq!((entry.location.ordinal.0, entry.location.leader_epoch), (first as u64, 7), "{place}");
            if let Some(envelope) = entry.envelope {
                assert_eq!(envelope, entries[first].0, "{place}");
            }
        }
    });
}

#[test]
fn bounds_are_kept_and_at_least_one_entry_comes() {
    both(|rig, entries, place| {
        let size = entries[0].1.len();
        // Verifies all of it first: a read otherwise returns only what needs no disk.
        rig.read_all(1, 0, 100 * size).unwrap();
        for max in [0, 1, size - 1, size, size + 1, 2 * size, 100 * size] {
            let tight = rig.store.read(P, Offset(15), max, false).unwrap().wait().unwrap();
            assert!(tight.bytes <= max as u64, "{place}, {max}: {tight:?}");
            assert_eq!(tight.bytes == 0, max < size, "{place}, {max}");
            let forced = rig.store.read(P, Offset(15), max, true).unwrap().wait().unwrap();
            assert!(forced.bytes >= size as u64 && forced.start == Offset(10), "{place}, {max}: {forced:?}");
            assert_eq!(forced.more, max < 100 * size);
        }
        let end = rig.store.read(P, Offset(100), 1000, true).unwrap().wait().unwrap();
        assert_eq!((end.bytes, end.next, end.more), (0, Offset(100), false), "{place}");
        assert_eq!(rig.store.read(P, Offset(101), 1000, true).unwrap_err().kind, ErrorKind::OutOfRange, "{place}");
        assert_eq!(rig.store.entry_at(P, Offset(100)).unwrap_err().kind, ErrorKind::OutOfRange, "{place}");
    });
}

#[test]
fn entries_come_one_after_the_other_within_bounds_and_at_least_one() {
    let check = |rig: &Rig, entries: &[Entry], place: &str| {
        let size = entries[0].1.len();
        for (entries_max, bytes_max) in [(1, usize::MAX), (0, 0), (3, usize::MAX), (100, 2 * size), (100, usize::MAX)] {
            let most = entries_max.min(bytes_max / size).max(1);
            let (mut at, mut got, mut largest) = (15, Vec::new(), 0);
            while at < 100 {
                let some = rig.store.entries_from(P, Offset(at), entries_max, bytes_max).unwrap().wait().unwrap();
                assert!((1..=most).contains(&some.len()), "{place}, {entries_max}, {bytes_max}: {}", some.len());
                largest = largest.max(some.len());
                at = some.last().unwrap().location.end.0;
                got.extend(some);
            }
            assert!(got.len() == 9 && got[0].location.base == Offset(10), "{place}, {entries_max}, {bytes_max}");
            for (entry, (envelope, bytes)) in got.iter().zip(&entries[1..]) {
                let known = entry.envelope.as_ref().is_none_or(|known| known == envelope);
                assert!(known && entry.bytes == bytes, "{place}, {entries_max}, {bytes_max}");
            }
            assert_eq!(largest > 1, most > 1, "{place}, {entries_max}, {bytes_max}");
        }
        let end = rig.store.entries_from(P, Offset(100), 10, 1000);
        assert_eq!(end.unwrap_err().kind, ErrorKind::OutOfRange, "{place}");
    };
    everywhere(kafka, 5, check);
    everywhere(opaque, 5, check);
}

#[test]
fn entries_are_found_by_time() {
    both(|rig, _, place| {
        let find = |time| {
            rig.store.find_by_time(P, time, Offset(0)).unwrap().wait().unwrap().map(|e| (e.base.0, e.max_timestamp))
        };
        for (time, found) in [
            (i64::MIN, Some((0, 100))),
            (100, Some((0, 100))),
            (101, Some((10, 300))),
            (301, Some((30, 500))),
            (500, Some((30, 500))),
            (501, Some((60, 900))),
            (901, Some((80, 950))),
            (951, None),
        ] {
            assert_eq!(find(time), found, "{place}, time {time}");
        }
        let max = rig.store.max_timestamp_entry(P, Offset(0)).unwrap().wait().unwrap().unwrap();
        assert_eq!((max.base.0, max.end.0, max.max_timestamp), (80, 90, 950), "{place}");
        let find =
            |time, from| rig.store.find_by_time(P, time, Offset(from)).unwrap().wait().unwrap().map(|e| e.base.0);
        for (time, from, found) in [
            (i64::MIN, 9, Some(0)),
            (i64::MIN, 10, Some(10)),
            (101, 20, Some(20)),
            (101, 35, Some(30)),
            (101, 40, Some(40)),
            (950, 89, Some(80)),
            (950, 90, None),
            (i64::MIN, 90, Some(90)),
            (i64::MIN, 100, None),
        ] {
            assert_eq!(find(time, from), found, "{place}, time {time} from {from}");
        }
        let max = |from| rig.store.max_timestamp_entry(P, Offset(from)).unwrap().wait().unwrap().map(|e| e.base.0);
        assert_eq!([max(89), max(90), max(99), max(100)], [Some(80), Some(90), Some(90), None], "{place}");
    });
}

#[test]
fn what_is_trimmed_is_gone_for_every_question() {
    let rig = Rig::new(1, small(), 1 << 20);
    // One frame, so that the log start lies inside a run.
    let times = [900, 100, 500, 200];
    let entries: Vec<Entry> = (0..4).map(|i| opaque(1, i, i * 10, 10, times[i as usize], 100)).collect();
    rig.write(&entries);
    let check = |rig: &Rig| {
        let early = rig.store.read(P, Offset(9), 1000, true);
        assert_eq!(early.unwrap_err().kind, ErrorKind::OutOfRange);
        assert_eq!(rig.read_all(1, 10, 1000).unwrap().0, 10);
        let find = |time| rig.store.find_by_time(P, time, Offset(0)).unwrap().wait().unwrap().map(|e| e.base.0);
        assert_eq!((find(0), find(150), find(600)), (Some(10), Some(20), None));
        assert_eq!(rig.store.max_timestamp_entry(P, Offset(0)).unwrap().wait().unwrap().unwrap().base, Offset(20));
        assert_eq!(rig.store.partition_stats(P).unwrap().first, Offset(10));
    };
    rig.store.trim(P, Offset(10));
    check(&rig);
    rig.store.set_tail_cache_bytes(0, 0);
    check(&rig);
    rig.merge_all();
    check(&rig);
    rig.store.trim(P, Offset(5));
    check(&rig);
    rig.store.trim(P, Offset(40));
    let stats = rig.store.partition_stats(P).unwrap();
    assert_eq!((stats.first, stats.end, stats.bytes, stats.runs), (Offset(40), Offset(40), 0, 0));
    assert_eq!(rig.store.read(P, Offset(40), 10, true).unwrap().wait().unwrap().bytes, 0);
    assert_eq!(rig.store.max_timestamp_entry(P, Offset(0)).unwrap().wait().unwrap(), None);
    rig.store.drop_partition(P);
    assert_eq!(rig.store.partition_stats(P), None);
    assert_eq!(rig.store.read(P, Offset(40), 10, true).unwrap_err().kind, ErrorKind::OutOfRange);
}

#[test]
fn a_trim_before_the_replay_is_kept_by_it() {
    let mut rig = Rig::new(1, small(), 1 << 20);
    ten(&rig, kafka);
    rig.reopen(false);
    let (store, _) = crate::store::ShardStore::open(rig.world.env(), &dir(), rig.config).unwrap();
    store.trim(P, Offset(35));
    for frame in rig.journal.replay(store.journal_from(), false) {
        store.apply(&frame).unwrap();
    }
    let stats = store.partition_stats(P).unwrap();
    assert_eq!((stats.first, stats.end, stats.runs), (Offset(35), Offset(100), 7));
}

#[test]
fn pieces_that_follow_each_other_in_a_file_are_one_piece() {
    let rig = Rig::new(1, StoreConfig { index_interval_bytes: 256, ..small() }, 1 << 20);
    ten(&rig, kafka);
    rig.merge_all();
    let result = rig.store.read(P, Offset(0), 2950, true).unwrap().wait().unwrap();
    assert!(matches!(result.chunks[..], [Chunk::File(_)]), "{result:?}");
    assert_eq!((result.bytes, result.next), (2700, Offset(90)));
}

#[test]
fn reading_what_is_known_needs_no_disk() {
    let rig = Rig::new(1, small(), 1 << 20);
    ten(&rig, kafka);
    rig.merge_all();
    // A merge has just verified and written it.
    assert!(matches!(rig.store.read(P, Offset(0), 10_000, true), Ok(Lookup::Ready(_))));
    let mut rig = rig;
    rig.reopen(false);
    let cold = rig.store.read(P, Offset(0), 10_000, true).unwrap();
    let Lookup::NeedsIo(plan) = cold else { panic!("nothing is verified after a start: {cold:?}") };
    assert_eq!(plan.run().unwrap().bytes, 3000);
    assert!(matches!(rig.store.read(P, Offset(0), 10_000, true), Ok(Lookup::Ready(_))));
}

/// Regression test: to find that a large entry does not fit, everything was read a second time.
#[test]
fn an_entry_that_does_not_fit_is_not_looked_into() {
    let mut rig = Rig::new(1, StoreConfig { index_interval_bytes: 256, ..small() }, 1 << 20);
    ten(&rig, kafka);
    rig.store.set_tail_cache_bytes(0, 0);
    let tight = |rig: &Rig, place: &str| {
        let found = rig.store.read(P, Offset(10), 299, false).unwrap();
        let Lookup::Ready(found) = found else {
            panic!("the disk is read for an entry that cannot fit, {place}: {found:?}")
        };
        assert_eq!((found.bytes, found.more), (0, true), "{place}");
        let forced = rig.store.read(P, Offset(10), 299, true).unwrap().wait().unwrap();
        assert_eq!((forced.bytes, forced.start, forced.next), (300, Offset(10), Offset(20)), "{place}");
    };
    tight(&rig, "journal");
    rig.merge_all();
    rig.reopen(false);
    // Reads the index of the run.
    assert_eq!(rig.store.read(P, Offset(0), 300, false).unwrap().wait().unwrap().bytes, 300);
    tight(&rig, "segment");
}

#[test]
fn references_share_the_body_in_the_journal_and_get_one_each_in_a_segment() {
    let mut rig = Rig::new(1, small(), 1 << 20);
    let body = opaque(1, 0, 0, 1, 50, 400);
    let mut other = opaque(2, 0, 0, 1, 50, 0).0;
    other.body = Body::Ref { entry: 0 };
    let own = opaque(2, 1, 1, 1, 60, 100);
    rig.write(&[body.clone(), (other, body.1.clone()), own.clone()]);
    let expected = [body.1.to_vec(), own.1.to_vec()].concat();
    for place in ["memory", "file", "segment"] {
        assert!(rig.read_all(2, 0, 10_000).unwrap().1 == expected, "{place}");
        assert!(rig.read_all(2, 0, 1).unwrap().1 == expected, "{place}");
        assert!(rig.read_all(1, 0, 10_000).unwrap().1 == body.1.to_vec(), "{place}");
        match place {
            "memory" => rig.store.set_tail_cache_bytes(0, 0),
            _ => drop(rig.merge_all()),
        }
    }
    rig.reopen(false);
    let entry = rig.store.entry_at(PartitionId(2), Offset(0)).unwrap().wait().unwrap();
    assert_eq!(entry.bytes, body.1);
    assert!(matches!(entry.envelope.unwrap().body, Body::Inline { len: 400, .. }));
}

#[test]
fn what_contradicts_the_log_is_refused_and_changes_nothing() {
    let rig = Rig::new(1, small(), 1 << 20);
    rig.write(&[kafka(1, 0, 0, 10, 1, 10)]);
    let again = rig.journal.write(&[kafka(2, 0, 0, 1, 1, 10), kafka(1, 1, 9, 1, 1, 10)]);
    assert_eq!(rig.store.apply(&again).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(rig.store.partition_stats(PartitionId(2)), None);
    assert_eq!(rig.store.applied(), Some(Index(1)));
    let good = rig.journal.write(&[kafka(1, 1, 10, 1, 1, 10)]);
    rig.store.apply(&good).unwrap();
    assert_eq!(rig.store.apply(&good).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(rig.store.partition_stats(P).unwrap().end, Offset(11));
    // Out of order, though consistent with the stored entries.
    let (early, late) =
        (rig.journal.write(&[kafka(7, 0, 0, 1, 1, 10)]), rig.journal.write(&[kafka(8, 0, 0, 1, 1, 10)]));
    rig.store.apply(&late).unwrap();
    assert_eq!(rig.store.apply(&early).unwrap_err().kind, ErrorKind::Invalid);
    assert_eq!(rig.store.partition_stats(PartitionId(7)), None);
}

#[test]
fn entries_without_offsets_are_not_in_the_store() {
    let rig = Rig::new(1, small(), 1 << 20);
    rig.write(&[opaque(1, 0, 0, 1, 5, 50), opaque(1, 1, 1, 0, 900, 50), opaque(1, 2, 1, 1, 6, 50)]);
    assert_eq!(rig.read_all(1, 0, 1000).unwrap().1.len(), 100);
    assert_eq!(rig.store.max_timestamp_entry(P, Offset(0)).unwrap().wait().unwrap().unwrap().max_timestamp, 6);
    rig.merge_all();
    assert_eq!(rig.read_all(1, 0, 1000).unwrap().1.len(), 100);
    assert_eq!(rig.store.entry_at(P, Offset(1)).unwrap().wait().unwrap().location.ordinal.0, 2);
}

#[test]
fn a_memory_shard_forgets_its_oldest_frames() {
    let rig = Rig::new(1, StoreConfig { tail_cache_bytes: 4 << 10, ..small() }, 1 << 20);
    for i in 0..40 {
        let frame = rig.journal.write(&[opaque(1, i, i, 1, 1, 200)]);
        let frame = crate::frame::Frame { place: None, ..(*frame).clone() };
        rig.store.apply(&std::sync::Arc::new(frame)).unwrap();
    }
    let stats = rig.store.partition_stats(P).unwrap();
    assert!(stats.first > Offset(20) && stats.first < Offset(39), "{stats:?}");
    assert_eq!(stats.end, Offset(40));
    assert!(matches!(rig.store.read(P, stats.first, 100_000, true), Ok(Lookup::Ready(_))));
    assert_eq!(rig.read_all(1, stats.first.0, 1000).unwrap().1.len() as u64, (40 - stats.first.0) * 200);
}

/// Returns the segment files with their contents.
fn segment_files(rig: &Rig) -> Vec<(String, Vec<u8>)> {
    let disk = rig.world.env().disk;
    let path = dir().join(SEGMENTS_DIR);
    let read = |name: String| {
        let file = disk.open(&path.join(&name), OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.size().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        (name, bytes)
    };
    disk.list(&path).unwrap().into_iter().map(read).collect()
}

#[test]
fn two_nodes_merge_the_same_log_into_the_same_bytes() {
    let merged = |seed: u64, tail: usize, step: usize, file_bytes: u64, restart: bool, late_trim: bool| {
        let config = StoreConfig { tail_cache_bytes: tail, merge_step_bytes: step, ..small() };
        let mut rig = Rig::new(seed, config, file_bytes);
        for i in 0..60 {
            let frame = [kafka(3, i, i * 3, 3, i as i64, 200), kafka(9, i, i, 1, -1, 90), opaque(5, i, i, 1, 7, 33)];
            rig.write(&frame);
        }
        if restart {
            rig.reopen(true);
        }
        rig.store.trim(PartitionId(9), Offset(30));
        rig.checkpoint();
        let classes = |p: PartitionId| if p.0 == 5 { 2 } else { 1 };
        let mut plan = rig.store.plan_merge(Index(50), &rig.journal, &classes).unwrap().unwrap();
        if late_trim {
            // After the cut: must not affect the output.
            rig.store.trim(PartitionId(3), Offset(100));
            rig.store.drop_partition(PartitionId(5));
        }
        while matches!(rig.store.run_merge_step(&mut plan, &rig.journal), Ok(MergeProgress::More { .. })) {}
        segment_files(&rig)
    };
    let one = merged(1, 1 << 20, 1 << 20, 1 << 20, false, false);
    assert_eq!(
        one.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["0000000000000032-s-01-0000-0000.seg", "0000000000000032-s-02-0000-0000.seg"]
    );
    for other in [merged(2, 0, 700, 3 << 10, true, false), merged(3, 2000, 5000, 20 << 10, false, true)] {
        assert!(one == other);
    }
}

#[test]
fn a_plan_excludes_another_and_can_be_given_up() {
    let rig = Rig::new(1, small(), 4 << 10);
    ten(&rig, kafka);
    rig.checkpoint();
    let upto = rig.journal.sealed_files().last().unwrap().indexes.unwrap().1;
    let mut plan = rig.store.plan_merge(upto, &rig.journal, &|_| 0).unwrap().unwrap();
    assert_eq!(rig.store.plan_merge(upto, &rig.journal, &|_| 0).unwrap_err().kind, ErrorKind::Busy);
    rig.store.run_merge_step(&mut plan, &rig.journal).unwrap();
    rig.store.trim(P, Offset(20));
    assert_eq!(rig.store.stats().journal_runs, 10, "a merge keeps its runs");
    drop(plan);
    assert_eq!(rig.store.stats().journal_runs, 8);
    assert_eq!(rig.store.plan_merge(Index(1000), &rig.journal, &|_| 0).unwrap_err().kind, ErrorKind::OutOfRange);
    rig.merge(upto);
    assert_eq!(rig.store.merged_upto(), Some(upto));
    assert_eq!(rig.read_all(1, 20, 1000).unwrap().1.len(), 2400);
}

#[test]
fn merges_are_due_by_size_age_and_emptiness_but_never_above_the_checkpoint() {
    let config = StoreConfig { merge_bytes: 2000, merge_ms_max: 1000, short_class_max: 3, ..small() };
    let rig = Rig::new(1, config, 5 << 10);
    ten(&rig, kafka);
    let due = |now, class: u8| rig.store.merge_due(now, &rig.journal, &|_| class).map(|d| (d.upto.0, d.reason));
    assert_eq!(due(0, 9), None, "no checkpoint");
    rig.store.checkpoints().unwrap().write(Index(6), []).unwrap();
    let sealed = rig.journal.sealed_files();
    let last = |upto: u64| sealed.iter().filter_map(|f| f.indexes).rfind(|i| i.1.0 <= upto).unwrap().1.0;
    assert!(last(6) < last(10));
    assert_eq!(due(0, 9), Some((last(6), MergeReason::Bytes)));
    assert_eq!(due(0, 3), None, "short-lived data waits");
    rig.checkpoint();
    assert_eq!(due(0, 9), Some((last(10), MergeReason::Bytes)));
    rig.store.trim(P, Offset(50));
    assert_eq!(due(0, 9).map(|d| d.1), Some(MergeReason::Empty));
    assert_eq!(due(1_000_000, 9).map(|d| d.1), Some(MergeReason::Age));
    let empty = due(0, 3).unwrap().0;
    assert!(empty < last(10));
    assert_eq!(rig.merge(Index(empty)).written, 0, "dead data is not copied");
    // A file without readable entries has no age.
    let rig = Rig::new(1, StoreConfig { merge_bytes: 1 << 30, ..config }, 1 << 20);
    rig.store.apply(&rig.journal.write_kind(Kind::Noop, &[], &[])).unwrap();
    rig.journal.seal();
    ten(&rig, kafka);
    rig.journal.seal();
    rig.checkpoint();
    let due = |now| rig.store.merge_due(now, &rig.journal, &|_| 9).unwrap().reason;
    assert_eq!((due(500), due(1_000_000)), (MergeReason::Empty, MergeReason::Age));
    let full = StoreConfig { journal_keep_bytes_max: 1, ..config };
    let rig = Rig::new(1, full, 5 << 10);
    ten(&rig, kafka);
    rig.checkpoint();
    let due = rig.store.merge_due(0, &rig.journal, &|_| 0).unwrap();
    assert_eq!(due.reason, MergeReason::JournalFull);
}

#[test]
fn a_file_of_long_runs_becomes_a_segment_as_it_is() {
    let config = StoreConfig { adopt_run_bytes_min: 250, ..small() };
    let mut rig = Rig::new(1, config, 20 << 10);
    let entries: Vec<Entry> = (0..10).map(|i| kafka(1, i, i * 10, 10, 5, 2939)).collect();
    entries.iter().for_each(|e| {
        rig.write(std::slice::from_ref(e));
    });
    rig.journal.seal();
    // A file of short runs between files of long ones.
    for i in 0..3 {
        rig.write(&[opaque(2, i, i, 1, 5, 20)]);
    }
    rig.journal.seal();
    rig.write(&[opaque(3, 0, 0, 1, 5, 14_000)]);
    rig.journal.seal();
    rig.checkpoint();
    let report = rig.merge(rig.journal.last_index());
    assert_eq!(report.adopted, 30_000 + 14_000);
    assert!(report.written < 3000, "{report:?}");
    let names: Vec<String> = segment_files(&rig).into_iter().map(|(name, _)| name).collect();
    assert!(names.iter().filter(|n| n.ends_with(".journal")).count() >= 3, "{names:?}");
    let expected: Vec<u8> = entries.iter().flat_map(|(_, b)| b.to_vec()).collect();
    for life in 0..3 {
        assert!(rig.read_all(1, 0, 1000).unwrap().1 == expected, "life {life}");
        assert_eq!(rig.read_all(2, 0, 1000).unwrap().1.len(), 60);
        assert_eq!(rig.read_all(3, 0, 1000).unwrap().1.len(), 14_000);
        rig.reopen(false);
        assert!(rig.journal.replay(rig.store.journal_from(), false).is_empty());
    }
    assert!(crate::store::check_segments(&rig.world.env(), &dir()).unwrap().is_empty());
}

/// Regression test: with default batching one partition was written twice, and slower than the journal's speed.
#[test]
fn a_file_of_one_partition_becomes_a_segment_whatever_its_runs_up_to_a_bound() {
    let rows = |rows: usize| rows * size_of::<crate::store::index::RunRow>();
    for (partitions, rows_max, adopted) in [(1, 40, 20_000), (1, 10, 10_000), (1, 9, 0), (2, 40, 0)] {
        let config = StoreConfig { adopt_stretch_bytes_min: 5_000, adopt_rows_bytes_max: rows(rows_max), ..small() };
        let mut rig = Rig::new(1, config, 64 << 10);
        for file in 0..2 {
            for i in file * 10..file * 10 + 10 {
                rig.write(&[opaque(1 + i % partitions, i, i, 1, 5, 1000)]);
            }
            rig.journal.seal();
        }
        rig.checkpoint();
        let report = rig.merge(rig.journal.last_index());
        assert_eq!(report.adopted, adopted, "{partitions} partitions, {rows_max} rows");
        for life in 0..2 {
            let bytes: usize = (1..=partitions).map(|p| rig.read_all(p, p - 1, 3000).unwrap().1.len()).sum();
            assert_eq!(bytes, 20_000, "life {life}");
            rig.reopen(false);
        }
    }
}

#[test]
fn retention_is_proposed_and_not_done() {
    let rig = Rig::new(1, small(), 1 << 20);
    ten(&rig, kafka);
    let limits = |ms, bytes| [(P, Retention { ms, bytes }), (PartitionId(77), Retention { ms: Some(0), bytes: None })];
    assert_eq!(rig.store.retention_scan(10_000, limits(None, None)), []);
    assert_eq!(rig.store.retention_scan(600, limits(Some(399), None)), [(P, Offset(10))]);
    assert_eq!(rig.store.retention_scan(10_000, limits(None, Some(1000))), [(P, Offset(60))]);
    assert_eq!(rig.store.partition_stats(P).unwrap().first, Offset(0));
    // Messages without a timestamp use their append time.
    let mut none = kafka(2, 0, 0, 1, -1, 10);
    none.0.append_time = 5_500;
    rig.write(&[none]);
    let scan = |now| rig.store.retention_scan(now, [(PartitionId(2), Retention { ms: Some(1000), bytes: None })]);
    assert_eq!(scan(7_000), []);
    assert_eq!(scan(7_001), [(PartitionId(2), Offset(1))]);
}

#[test]
fn partitions_that_nobody_knows_any_more_are_dropped() {
    let mut rig = Rig::new(1, small(), 1 << 20);
    rig.write(&[kafka(1, 0, 0, 1, 1, 100), kafka(2, 0, 0, 1, 1, 100)]);
    rig.merge_all();
    rig.reopen(false);
    rig.store.retain_partitions(|id| id == P);
    assert_eq!(rig.store.partition_stats(PartitionId(2)), None);
    assert_eq!(rig.store.stats().segment_runs, 1);
    assert_eq!(rig.read_all(1, 0, 1000).unwrap().1.len(), 161);
}

#[test]
fn what_repair_gave_up_stays_fenced_after_its_frame_is_merged() {
    let mut rig = Rig::new(1, small(), 1 << 20);
    rig.write(&[kafka(1, 0, 0, 10, 1, 100)]);
    let range = crate::frame::LostRange { partition: P, first: Offset(10), end: Offset(20) };
    let body = crate::frame::LostBody { complete: true, ranges: vec![range] };
    let lost = rig.journal.write_kind(Kind::Lost, &body.encode(), &[]);
    rig.store.apply(&lost).unwrap();
    rig.write(&[kafka(1, 2, 20, 10, 1, 100)]);
    for life in 0..3 {
        assert_eq!(rig.store.read(P, Offset(12), 1000, true).unwrap_err().kind, ErrorKind::Damaged, "life {life}");
        let before = rig.store.read(P, Offset(0), 100_000, true).unwrap().wait().unwrap();
        assert_eq!((before.bytes, before.next), (161, Offset(10)), "it ends before the fence");
        assert_eq!(rig.read_all(1, 20, 1000).unwrap().1.len(), 161);
        assert_eq!(rig.store.fenced().len(), 1);
        rig.merge_all();
        rig.reopen(false);
    }
}

#[test]
fn a_later_version_changes_nothing() {
    let rig = Rig::new(1, small(), 1 << 20);
    ten(&rig, kafka);
    rig.merge_all();
    let disk = rig.world.env().disk;
    let path = dir().join("manifest");
    let file = disk.open(&path, OpenMode::ReadWrite).unwrap();
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let half = bytes.len() / 2;
    for start in [0, half] {
        bytes[start + 8] = 9;
        let len = 28 + u64::from_le_bytes(bytes[start + 12..start + 20].try_into().unwrap()) as usize;
        let sum = polylogue_record::crc::crc32c(&bytes[start..start + len]);
        bytes[start + len..start + len + 4].copy_from_slice(&sum.to_le_bytes());
    }
    file.write_all_at(&bytes, 0).unwrap();
    let before = rig.world.disk.stats();
    let e = crate::store::ShardStore::open(rig.world.env(), &dir(), rig.config).unwrap_err();
    assert_eq!(e.kind, ErrorKind::Incompatible);
    let after = rig.world.disk.stats();
    assert_eq!(before.write_bytes, after.write_bytes);
    assert!(disk.exists(&dir().join(SEGMENTS_DIR).join(&segment_files(&rig)[0].0)));
}

#[test]
fn the_journal_keeps_what_the_checkpoint_does_not_cover() {
    let mut rig = Rig::new(1, StoreConfig { adopt_run_bytes_min: 100, ..small() }, 5 << 10);
    ten(&rig, kafka);
    rig.journal.seal();
    let files = rig.journal.files().len();
    rig.store.checkpoints().unwrap().write(Index(1), []).unwrap();
    let report = rig.merge(Index(10));
    assert_eq!((report.segments, report.adopted), (1, 0), "a file that is still needed is not adopted");
    assert_eq!(rig.journal.files().len(), files);
    assert_eq!((rig.store.merged_upto(), rig.store.journal_from()), (Some(Index(10)), Index(2)));
    rig.reopen(false);
    assert_eq!((rig.store.stats().journal_runs, rig.read_all(1, 0, 1000).unwrap().1.len()), (0, 3000));
    rig.checkpoint();
    rig.store.release_journal(&rig.journal).unwrap();
    assert_eq!(rig.journal.files().len(), 1);
}

#[test]
fn what_a_crash_left_over_is_removed_and_nothing_else() {
    let mut rig = Rig::new(1, small(), 1 << 20);
    ten(&rig, kafka);
    rig.merge_all();
    let disk = rig.world.env().disk;
    let leftovers =
        ["segments/0000000000000099-s-00-0000-0000.seg", "checkpoint/00000000000000ff.ckpt", "manifest.new"];
    for path in leftovers {
        disk.open(&dir().join(path), OpenMode::CreateNew).unwrap();
    }
    let (_, opened) = crate::store::ShardStore::open(rig.world.env(), &dir(), rig.config).unwrap();
    assert_eq!(opened.removed.len(), 3, "{opened:?}");
    assert!(leftovers.iter().all(|path| !disk.exists(&dir().join(path))));
    rig.reopen(false);
    assert_eq!(rig.read_all(1, 0, 1000).unwrap().1.len(), 3000);
    // Without a manifest it is unknown what is needed.
    disk.remove(&dir().join("manifest")).unwrap();
    let (_, opened) = crate::store::ShardStore::open(rig.world.env(), &dir(), rig.config).unwrap();
    assert_eq!((opened.segments, opened.removed.len()), (0, 0));
}

#[test]
fn one_read_has_a_bounded_number_of_pieces() {
    let rig = Rig::new(1, StoreConfig { tail_cache_bytes: 1 << 20, ..small() }, 1 << 20);
    for i in 0..1200 {
        rig.write(&[kafka(1, i, i, 1, 1, 5)]);
    }
    for _ in 0..2 {
        let result = rig.store.read(P, Offset(0), 1 << 20, true).unwrap().wait().unwrap();
        assert_eq!((result.chunks.len(), result.next, result.more), (CHUNKS_PER_READ_MAX, Offset(512), true));
        assert_eq!(rig.read_all(1, 0, 1 << 20).unwrap().1.len(), 1200 * 66);
        rig.store.set_tail_cache_bytes(0, 0);
    }
}

/// Data written since the start and adopted in place need not be read back: its envelopes contain what its index needs.
#[test]
fn adoption_reads_the_tables_and_not_the_messages() {
    let config = StoreConfig { tail_cache_bytes: 0, adopt_run_bytes_min: 500, ..small() };
    let rig = Rig::new(1, config, 1 << 20);
    for i in 0..8 {
        rig.write(&[kafka(1, i, i, 1, 5, 20_000), opaque(2, i, i, 1, 5, 20_000)]);
    }
    let before = rig.world.disk.stats().read_bytes;
    assert!(rig.merge_all().adopted > 300_000);
    let read = rig.world.disk.stats().read_bytes - before;
    assert!(read < 20_000, "{read} bytes were read");
    assert_eq!(rig.read_all(1, 0, 100_000).unwrap().1.len(), 8 * 20_061);
    assert_eq!(crate::store::check_segments(&rig.world.env(), &dir()).unwrap(), []);
}

#[test]
fn a_file_with_shared_bodies_is_not_adopted() {
    let rig = Rig::new(1, StoreConfig { adopt_run_bytes_min: 100, ..small() }, 1 << 20);
    let body = opaque(1, 0, 0, 1, 50, 20_000);
    let mut other = opaque(2, 0, 0, 1, 50, 0).0;
    other.body = Body::Ref { entry: 0 };
    rig.write(&[body.clone(), (other, body.1.clone())]);
    let report = rig.merge_all();
    assert_eq!((report.adopted, report.segments), (0, 1));
    // Either can be removed without the other.
    rig.store.trim(P, Offset(1));
    while rig.store.reclaim_step().unwrap().more {}
    assert!(rig.read_all(2, 0, 1000).unwrap().1 == body.1);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let good = StoreConfig::default();
    assert!(good.check().is_ok());
    for bad in [
        StoreConfig { index_interval_bytes: 0, ..good },
        StoreConfig { open_segments_max: 0, ..good },
        StoreConfig { merge_step_bytes: 0, ..good },
        StoreConfig { merge_step_bytes: 2 << 30, ..good },
        StoreConfig { adopt_run_bytes_min: 0, ..good },
        StoreConfig { rewrite_dead_percent: 101, ..good },
        StoreConfig { compact_segments: 1, ..good },
    ] {
        let e = crate::store::ShardStore::open(polylogue_env::sim::SimWorld::new(1).env(), &dir(), bad).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Invalid);
    }
}

#[test]
fn what_is_trimmed_during_a_merge_is_dead_after_it() {
    let rig = Rig::new(1, small(), 1 << 20);
    ten(&rig, kafka);
    rig.write(&[opaque(2, 0, 0, 1, 1, 500)]);
    rig.checkpoint();
    let mut plan = rig.store.plan_merge(Index(11), &rig.journal, &|_| 0).unwrap().unwrap();
    rig.store.run_merge_step(&mut plan, &rig.journal).unwrap();
    rig.store.trim(P, Offset(100));
    rig.store.drop_partition(PartitionId(2));
    while let MergeProgress::More { .. } = rig.store.run_merge_step(&mut plan, &rig.journal).unwrap() {}
    let stats = rig.store.stats();
    assert_eq!((stats.partitions, stats.segment_runs, stats.journal_runs, stats.live_bytes), (1, 0, 0, 0));
    assert_eq!(rig.store.reclaim_step().unwrap().removed, 1);
}

#[test]
fn runs_that_only_a_merge_still_needs_answer_no_question() {
    let rig = Rig::new(1, StoreConfig { tail_cache_bytes: 1 << 20, ..small() }, 1 << 20);
    let times = [900, 800, 100, 300, 200];
    for (i, time) in (0..).zip(times) {
        rig.write(&[kafka(1, i, i * 10, 10, time, 300)]);
    }
    rig.checkpoint();
    let mut plan = rig.store.plan_merge(Index(5), &rig.journal, &|_| 0).unwrap().unwrap();
    rig.store.run_merge_step(&mut plan, &rig.journal).unwrap();
    for start in [20, 25, 25] {
        rig.store.trim(P, Offset(start));
        assert_eq!(rig.store.partition_stats(P).unwrap().first, Offset(start));
        let max = rig.store.max_timestamp_entry(P, Offset(0)).unwrap().wait().unwrap().unwrap();
        assert_eq!((max.base, max.max_timestamp), (Offset(30), 300));
        let found = rig.store.find_by_time(P, 50, Offset(0)).unwrap().wait().unwrap().unwrap();
        assert_eq!(found.base, Offset(20));
        assert_eq!(rig.store.read(P, Offset(start - 1), 100, true).unwrap_err().kind, ErrorKind::OutOfRange);
        if start == 20 {
            continue;
        }
        while let Ok(MergeProgress::More { .. }) = rig.store.run_merge_step(&mut plan, &rig.journal) {}
    }
}

#[test]
fn the_tail_keeps_its_bound() {
    let rig = Rig::new(1, StoreConfig { tail_cache_bytes: 20 << 10, ..small() }, 1 << 20);
    for i in 0..100 {
        rig.write(&[kafka(1, i, i, 1, 1, 1000), opaque(2, i, i, 1, 1, 10)]);
        let tail = rig.store.stats().tail_bytes;
        assert!(tail <= 20 << 10 && (i < 20 || tail > 15 << 10), "{tail}");
    }
    rig.store.set_tail_cache_bytes(5 << 10, 0);
    assert!(rig.store.stats().tail_bytes <= 5 << 10);
    // A frame larger than the tail cache is read from its file.
    rig.write(&[kafka(1, 100, 100, 1, 1, 100_000)]);
    assert_eq!(rig.store.stats().tail_bytes, 0);
    assert_eq!(rig.read_all(1, 0, 5000).unwrap().1.len(), 100 * 1061 + 100_061);
}
