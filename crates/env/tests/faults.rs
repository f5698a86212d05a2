//! Injected faults of the simulated disk, and the simulated world around it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimDisk, SimWorld};
use polylogue_env::{Disk, DiskFile, Fatal, OpenMode, raw_os_error};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

fn create(disk: &dyn Disk, path: &str) -> Arc<dyn DiskFile> {
    disk.open(Path::new(path), OpenMode::CreateNew).unwrap()
}

/// A file that is on the disk for certain, name and all.
fn durable(disk: &SimDisk, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = create(disk, path);
    file.write_all_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    file
}

fn content(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(Path::new(path), OpenMode::Read).ok()?;
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

fn kind<T>(result: std::io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

#[test]
fn a_full_disk_at_the_nth_write_leaves_a_part_of_it() {
    let mut lens = BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let file = create(&disk, "/x");
        disk.inject(Fault::nth(FaultOp::Write, 2, FaultKind::NoSpace));
        file.write_all_at(b"first", 0).unwrap();
        assert_eq!(kind(file.write_all_at(b"second", 5)), Some(ErrorKind::StorageFull));
        let written = content(&disk, "/x").unwrap();
        assert!(b"firstsecond".starts_with(&written));
        lens.insert(written.len());
        file.write_all_at(b"third", 5).unwrap();
        assert_eq!(disk.stats().faults, 1);
    }
    assert_eq!(Vec::from_iter(lens), [5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn operations_that_fail_change_nothing() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "/x", b"data");
    let x = Path::new("/x");
    let all = [
        (FaultOp::Create, FaultKind::NoSpace, ErrorKind::StorageFull),
        (FaultOp::Allocate, FaultKind::NoSpace, ErrorKind::StorageFull),
    ];
    for (op, fault, _) in all {
        disk.inject(Fault::nth(op, 1, fault));
    }
    for op in [FaultOp::Rename, FaultOp::Remove, FaultOp::Read, FaultOp::SetLen, FaultOp::Punch] {
        disk.inject(Fault::nth(op, 1, FaultKind::Io));
    }
    assert_eq!(kind(disk.open(Path::new("/y"), OpenMode::CreateNew)), Some(ErrorKind::StorageFull));
    assert_eq!(kind(file.allocate(1 << 20)), Some(ErrorKind::StorageFull));
    let errors = [
        disk.rename(x, Path::new("/y")).unwrap_err(),
        disk.remove(x).unwrap_err(),
        file.read_exact_at(&mut [0], 0).unwrap_err(),
        file.set_len(0).unwrap_err(),
        file.punch(0, 4).map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(raw_os_error(&error), Some(libc::EIO), "{error}");
    }
    assert_eq!(disk.list(Path::new("/")).unwrap(), ["x"]);
    assert_eq!(content(&disk, "/x").as_deref(), Some(&b"data"[..]));
    assert_eq!(disk.stats().faults, 7);
}

#[test]
fn faults_can_be_kept_to_one_place_and_cleared() {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new("/a")).unwrap();
    let (inside, outside) = (create(&disk, "/a/x"), create(&disk, "/x"));
    disk.inject(Fault::from(FaultOp::SyncData, 1, FaultKind::Io).under("/a"));
    outside.sync_data().unwrap();
    assert!(inside.sync_data().is_err());
    assert!(inside.sync_data().is_err());
    disk.clear_faults();
    inside.sync_data().unwrap();
}

#[test]
fn a_disk_has_room_for_its_capacity_and_no_more() {
    let disk = SimDisk::new(1);
    disk.set_capacity(10 * 4096);
    let free = || disk.free_bytes(Path::new("/")).unwrap() / 4096;
    let file = create(&disk, "/x");
    assert_eq!(free(), 10);
    file.allocate(4 * 4096).unwrap();
    assert_eq!(free(), 6);
    file.write_all_at(&[1; 4 * 4096], 0).unwrap();
    assert_eq!(free(), 6);
    assert_eq!(kind(file.allocate(11 * 4096)), Some(ErrorKind::StorageFull));
    assert_eq!((free(), file.size().unwrap()), (6, 4 * 4096));

    assert_eq!(kind(file.write_all_at(&[2; 8 * 4096], 4 * 4096 + 100)), Some(ErrorKind::StorageFull));
    assert_eq!((free(), file.size().unwrap()), (0, 10 * 4096));
    file.write_all_at(&[3; 100], 4096).unwrap();
    assert_eq!(kind(file.write_all_at(&[3], 10 * 4096)), Some(ErrorKind::StorageFull));

    assert!(file.punch(0, 2 * 4096).unwrap());
    assert_eq!(free(), 2);
    disk.remove(Path::new("/x")).unwrap();
    assert_eq!(free(), 2, "an open file keeps its room");
    drop(file);
    assert_eq!(free(), 10);

    let open = create(&disk, "/y");
    open.allocate(4096).unwrap();
    disk.remove(Path::new("/y")).unwrap();
    assert_eq!(free(), 9);
    disk.crash_keep_page_cache();
    assert_eq!(free(), 10, "a dead process keeps a file open");
}

#[test]
fn a_failed_flush_loses_data_that_the_next_flush_does_not_bring_back() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let file = durable(&disk, "/x", b"old");
        file.write_all_at(b"new", 0).unwrap();
        disk.inject(Fault::nth(FaultOp::SyncData, 1, FaultKind::Io));
        let e = file.sync_data().unwrap_err();
        assert_eq!(
            (e.to_string().as_str(), raw_os_error(&e)),
            ("cannot flush /x: Input/output error (os error 5)", Some(5))
        );
        file.sync_data().unwrap();
        assert_eq!(content(&disk, "/x").as_deref(), Some(&b"new"[..]), "readers see the page cache");
        disk.crash();
        match content(&disk, "/x").as_deref() {
            Some(b"new") => kept += 1,
            Some(b"old") => lost += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(lost > 10 && kept > 10, "{lost} {kept}");
}

#[test]
fn a_failed_directory_flush_loses_names_that_the_next_one_does_not_bring_back() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        drop((create(&disk, "/a"), create(&disk, "/b")));
        disk.inject(Fault::nth(FaultOp::SyncDir, 1, FaultKind::Io));
        assert!(disk.sync_dir(Path::new("/")).is_err());
        disk.sync_dir(Path::new("/")).unwrap();
        assert_eq!(disk.list(Path::new("/")).unwrap(), ["a", "b"]);
        disk.crash();
        seen.insert(disk.list(Path::new("/")).unwrap().concat());
    }
    assert_eq!(Vec::from_iter(seen), ["", "a", "ab"]);
}

#[test]
fn a_lying_flush_flushes_nothing() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "/x", b"old");
    disk.inject(Fault::from(FaultOp::SyncData, 1, FaultKind::Lie));
    disk.inject(Fault::from(FaultOp::SyncDir, 1, FaultKind::Lie));
    file.write_all_at(b"new", 0).unwrap();
    file.sync_data().unwrap();
    drop(create(&disk, "/y"));
    disk.sync_dir(Path::new("/")).unwrap();
    disk.crash_losing_all();
    assert_eq!(content(&disk, "/x").as_deref(), Some(&b"old"[..]));
    assert!(!disk.exists(Path::new("/y")));
}

#[test]
fn a_flipped_bit_is_seen_and_stays() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "/x", &[0; 5000]);
    disk.flip_bit(Path::new("/x"), 4999, 3).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 4999).unwrap();
    assert_eq!(byte, [8]);
    disk.crash();
    assert_eq!(content(&disk, "/x").unwrap()[4990..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 8]);
    assert_eq!(kind(disk.flip_bit(Path::new("/x"), 5000, 0)), Some(ErrorKind::InvalidInput));
    // What a reader does not see any more is not flipped for him.
    let file = disk.open(Path::new("/x"), OpenMode::ReadWrite).unwrap();
    file.set_len(4096).unwrap();
    disk.flip_bit(Path::new("/x"), 4096, 0).unwrap();
    file.set_len(5000).unwrap();
    assert_eq!(content(&disk, "/x").unwrap()[4096], 0);
    assert_eq!(kind(disk.flip_bit(Path::new("/y"), 0, 0)), Some(ErrorKind::NotFound));
}

/// Creates, writes, flushes and renames; stops at the first error. Returns what it knows to be on the disk.
fn careful_work(disk: &dyn Disk) -> std::io::Result<()> {
    let tmp = disk.open(Path::new("/x.tmp"), OpenMode::CreateNew)?;
    tmp.write_all_at(&[1; 5000], 0)?;
    tmp.sync_data()?;
    disk.rename(Path::new("/x.tmp"), Path::new("/x"))?;
    disk.sync_dir(Path::new("/"))
}

#[test]
fn the_power_can_go_in_each_operation() {
    let mut done = BTreeSet::new();
    for cut in 1..=5 {
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            disk.inject(Fault::nth(FaultOp::AnyChange, cut, FaultKind::PowerCut));
            careful_work(&disk).unwrap_err();
            assert!(disk.is_stopped());
            assert!(disk.list(Path::new("/")).is_err(), "the disk works without power");
            let names = disk.fork(seed).list(Path::new("/")).unwrap().concat();
            done.insert((cut, names));
            disk.crash();
            let seen = content(&disk, "/x");
            assert!(seen.is_none() || seen == Some(vec![1; 5000]), "cut {cut}, seed {seed}: a torn file");
            assert!(cut >= 4 || seen.is_none(), "cut {cut}, seed {seed}: the rename was not reached");
        }
    }
    // The operation in which the power goes has happened or not.
    let done: Vec<(u64, &str)> = done.iter().map(|(cut, names)| (*cut, names.as_str())).collect();
    assert_eq!(done, [(1, ""), (1, "x.tmp"), (2, "x.tmp"), (3, "x.tmp"), (4, "x"), (4, "x.tmp"), (5, "x")]);
    let disk = SimDisk::new(1);
    disk.inject(Fault::nth(FaultOp::AnyChange, 6, FaultKind::PowerCut));
    careful_work(&disk).unwrap();
    disk.crash();
    assert_eq!(content(&disk, "/x"), Some(vec![1; 5000]));
}

#[test]
fn a_power_cut_in_a_flush_leaves_any_part() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let file = durable(&disk, "/x", &[1; 1024]);
        file.write_all_at(&[2; 1024], 0).unwrap();
        disk.inject(Fault::nth(FaultOp::SyncData, 1, FaultKind::PowerCut));
        assert!(file.sync_data().is_err());
        disk.crash();
        let left = content(&disk, "/x").unwrap();
        seen.insert((left[0], left[1023]));
    }
    assert_eq!(Vec::from_iter(seen), [(1, 1), (1, 2), (2, 1), (2, 2)]);
}

#[test]
fn operations_are_counted() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "/x", b"12345");
    file.write_all_at(b"678", 5).unwrap();
    file.read_exact_at(&mut [0; 4], 0).unwrap();
    disk.rename(Path::new("/x"), Path::new("/y")).unwrap();
    disk.remove(Path::new("/y")).unwrap();
    disk.crash();
    let stats = disk.stats();
    assert_eq!((stats.creates, stats.writes, stats.write_bytes), (1, 2, 8));
    assert_eq!((stats.reads, stats.read_bytes), (1, 4));
    assert_eq!((stats.syncs, stats.dir_syncs, stats.renames, stats.removes), (1, 1, 1, 1));
    assert_eq!((stats.faults, stats.crashes), (0, 1));
}

#[test]
fn the_trace_tells_what_happened() {
    let disk = SimDisk::new(1);
    let before = disk.trace_hash();
    disk.keep_trace(10);
    drop(disk.open(Path::new("/x"), OpenMode::Read));
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(disk.trace(), ["open /x [2] NotFound", "flush the directory / [] ok"]);
    assert_ne!(disk.trace_hash(), before);
}

#[test]
fn a_node_that_ended_itself_writes_nothing_more() {
    let world = SimWorld::new(1);
    let first = world.env();
    let file = create(&*first.disk, "/x");
    first.fatal.fatal("the flush failed");
    assert!(world.fatal().is_fatal());
    assert!(file.write_all_at(b"x", 0).is_err());
    assert!(first.disk.list(Path::new("/")).is_err());

    world.crash();
    let second = world.env();
    assert!(!second.fatal.is_fatal() && first.fatal.is_fatal());
    second.disk.list(Path::new("/")).unwrap();
    // What is left of the first life dies loudly, and the second does not notice.
    first.fatal.fatal("again");
    assert!(first.disk.list(Path::new("/")).is_err());
    assert!(!second.fatal.is_fatal());
    second.disk.list(Path::new("/")).unwrap();

    create(&*second.disk, "/y").write_all_at(b"y", 0).unwrap();
    world.kill();
    assert_eq!(content(&world.disk, "/y").as_deref(), Some(&b"y"[..]));
    assert!(second.disk.list(Path::new("/")).is_err());
}

#[test]
fn one_seed_makes_one_world() {
    let draw = |seed| {
        let env = SimWorld::new(seed).env();
        (env.rng.next_u64(), env.clock.now_ms(), env.clock.monotonic_ns())
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}
