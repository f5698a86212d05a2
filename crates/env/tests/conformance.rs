//! What every disk must do, run on the real one and on the simulated one, and the same random operations on both
//! with the same results.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use polylogue_env::sim::{SimDisk, SimRng};
use polylogue_env::{DIRECT_BYTES, Disk, DiskFile, OpenMode, RealDisk, Rng, raw_os_error};
use polylogue_types::Chunk;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs `check` in an empty directory of each kind of disk.
fn on_each(name: &str, check: fn(&dyn Disk, &Path)) {
    let sim = SimDisk::new(1);
    let base = Path::new("/data/base");
    sim.create_dir_all(base).unwrap();
    check(&sim, base);

    for disk in [RealDisk::default(), RealDisk::within(&[&real_dir(name)])] {
        let base = real_dir(name);
        check(&disk, &base);
        std::fs::remove_dir_all(base).unwrap();
    }
}

fn real_dir(name: &str) -> PathBuf {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("env-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&base);
    std::fs::create_dir_all(&base).unwrap();
    base
}

fn kind<T>(result: std::io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

fn read_all(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0xaa; file.size().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn create(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(path, OpenMode::CreateNew).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn content(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    read_all(&*disk.open(path, OpenMode::Read).unwrap())
}

#[test]
fn opening() {
    on_each("opening", |disk, base| {
        let path = base.join("x");
        assert_eq!(kind(disk.open(&path, OpenMode::Read)), Some(ErrorKind::NotFound));
        assert_eq!(kind(disk.open(&path, OpenMode::ReadWrite)), Some(ErrorKind::NotFound));
        assert!(!disk.exists(&path));
        drop(create(disk, &path, b"abc"));
        assert!(disk.exists(&path));
        assert_eq!(kind(disk.open(&path, OpenMode::CreateNew)), Some(ErrorKind::AlreadyExists));
        assert_eq!(content(disk, &path), b"abc");
        let deeper = base.join("no/such/dir");
        assert_eq!(kind(disk.open(&deeper, OpenMode::CreateNew)), Some(ErrorKind::NotFound));
        assert_eq!(kind(disk.open(&path.join("y"), OpenMode::Read)), Some(ErrorKind::NotADirectory));
        assert_eq!(kind(disk.open(base, OpenMode::ReadWrite)), Some(ErrorKind::IsADirectory));
    });
}

#[test]
fn errors_name_operation_and_path() {
    on_each("errors", |disk, base| {
        let path = base.join("absent");
        let e = disk.open(&path, OpenMode::Read).unwrap_err();
        let expected = format!("cannot open {}: No such file or directory (os error 2)", path.display());
        assert_eq!(e.to_string(), expected);
        assert_eq!(raw_os_error(&e), Some(libc::ENOENT));
        let e = disk.rename(&path, &base.join("other")).unwrap_err().to_string();
        assert!(e.starts_with(&format!("cannot rename {0}/absent to {0}/other: ", base.display())), "{e}");
        for e in [disk.remove(&path).unwrap_err(), disk.list(&path).unwrap_err(), disk.sync_dir(&path).unwrap_err()] {
            assert_eq!(e.kind(), ErrorKind::NotFound);
            assert!(e.to_string().contains(path.to_str().unwrap()), "{e}");
        }
    });
}

#[test]
fn reading_and_writing_by_position() {
    on_each("positions", |disk, base| {
        let file = create(disk, &base.join("x"), b"hello");
        file.write_all_at(b"world", 10_000).unwrap();
        file.write_all_at(b"J", 0).unwrap();
        file.write_all_at(b"", 1 << 40).unwrap();
        assert_eq!(file.size().unwrap(), 10_005);
        let mut expected = vec![0; 10_005];
        expected[..5].copy_from_slice(b"Jello");
        expected[10_000..].copy_from_slice(b"world");
        assert_eq!(read_all(&*file), expected);

        let mut two = [0; 2];
        file.read_exact_at(&mut two, 10_003).unwrap();
        assert_eq!(&two, b"ld");
        assert_eq!(kind(file.read_exact_at(&mut two, 10_004)), Some(ErrorKind::UnexpectedEof));
        assert_eq!(kind(file.read_exact_at(&mut two, 20_000)), Some(ErrorKind::UnexpectedEof));
        file.read_exact_at(&mut [], 20_000).unwrap();
        assert!(file.write_all_at(b"x", u64::MAX).is_err());
        file.sync_data().unwrap();

        let source = Arc::clone(&file).as_range_source();
        let chunk = Chunk::File(polylogue_types::FileRange { source, position: 10_000, len: 5 });
        assert_eq!(&chunk.to_bytes().unwrap()[..], b"world");
    });
}

#[test]
fn a_reader_cannot_write() {
    on_each("reader", |disk, base| {
        let path = base.join("x");
        drop(create(disk, &path, b"abc"));
        let file = disk.open(&path, OpenMode::Read).unwrap();
        assert!(file.write_all_at(b"x", 0).is_err());
        assert!(file.set_len(0).is_err());
        assert!(file.allocate(100).is_err());
        assert!(file.punch(0, 4096).is_err());
        assert_eq!(read_all(&*file), b"abc");
    });
}

#[test]
fn reading_once_gives_the_same_bytes() {
    on_each("once", |disk, base| {
        let bytes: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
        let file = create(disk, &base.join("x"), &bytes);
        for (position, len) in
            [(0, 1), (0, 20_000), (1, 4_096), (4_095, 2), (4_096, 4_096), (8_191, 8_194), (19_999, 1), (5, 0)]
        {
            let mut found = vec![0; len];
            file.read_once_at(&mut found, position as u64).unwrap();
            assert!(found == bytes[position..position + len], "{len} bytes at {position}");
        }
        for (position, len) in [(19_999, 2), (20_000, 1), (4_096, 16_000), (1 << 40, 1)] {
            let result = file.read_once_at(&mut vec![0; len], position);
            assert_eq!(kind(result), Some(ErrorKind::UnexpectedEof), "{len} bytes at {position}");
        }
        file.write_all_at(b"new", 4_100).unwrap();
        let mut found = [0; 3];
        file.read_once_at(&mut found, 4_100).unwrap();
        assert_eq!(&found, b"new", "what is not on the disk yet is seen too");
    });
}

#[test]
fn fetching_changes_no_byte_and_knows_no_end() {
    on_each("fetch", |disk, base| {
        let bytes: Vec<u8> = (0..600_000_u32).map(|n| (n % 251) as u8).collect();
        let file = create(disk, &base.join("x"), &bytes).as_range_source();
        for (position, len) in [(0, 0), (0, 1), (5, 300_000), (131_072, 131_072), (599_999, 1), (599_999, 900_000)] {
            file.fetch(position, len).unwrap();
            let len = len.min(600_000 - position as u32);
            assert!(file.is_in_memory(position, len), "{len} bytes at {position} were just written");
            let mut found = vec![0; len as usize];
            file.read_exact_at(&mut found, position).unwrap();
            assert!(found == bytes[position as usize..][..len as usize]);
        }
        file.fetch(1 << 40, 1).unwrap();
    });
}

/// What stands in the page cache must not hide what was written past it.
#[test]
fn direct_writes_are_seen_by_readers_that_have_read_before() {
    on_each("direct", |disk, base| {
        let path = base.join("x");
        let file = create(disk, &path, &[1; 3 * DIRECT_BYTES]);
        assert_eq!(content(disk, &path), [1; 3 * DIRECT_BYTES]);
        let direct = disk.open(&path, OpenMode::Direct).unwrap();
        let memory = vec![2_u8; 3 * DIRECT_BYTES];
        let start = memory.as_ptr().align_offset(DIRECT_BYTES);
        direct.write_all_at(&memory[start..start + DIRECT_BYTES], DIRECT_BYTES as u64).unwrap();
        let wanted = [[1; DIRECT_BYTES], [2; DIRECT_BYTES], [1; DIRECT_BYTES]].concat();
        assert!(read_all(&*file) == wanted && content(disk, &path) == wanted);
        file.sync_data().unwrap();
        assert!(kind(direct.read_exact_at(&mut [0; 1], 0)).is_some(), "a handle that only writes");
        assert!(kind(disk.open(&base.join("y"), OpenMode::Direct)).is_some(), "it must exist");
    });
}

/// What was written through the page cache is seen by readers, and durable when it is flushed through either handle.
#[test]
fn cached_writes_behind_direct_ones_are_read_and_flushed_alike() {
    on_each("cached", |disk, base| {
        let path = base.join("x");
        let file = create(disk, &path, &[1; 2 * DIRECT_BYTES]);
        let direct = disk.open(&path, OpenMode::Direct).unwrap();
        let memory = vec![2_u8; 2 * DIRECT_BYTES];
        let start = memory.as_ptr().align_offset(DIRECT_BYTES);
        direct.sync_data().unwrap();
        direct.write_all_at(&memory[start..start + DIRECT_BYTES], 0).unwrap();
        file.write_all_at(&[3; 10], DIRECT_BYTES as u64 - 5).unwrap();
        direct.sync_data().unwrap();
        direct.write_all_at(&memory[start..start + DIRECT_BYTES], DIRECT_BYTES as u64).unwrap();
        let wanted = [vec![2; DIRECT_BYTES - 5], vec![3; 5], vec![2; DIRECT_BYTES]].concat();
        assert!(read_all(&*file) == wanted && content(disk, &path) == wanted);
    });
}

#[test]
fn renaming_and_removing_leave_open_files_alone() {
    on_each("renaming", |disk, base| {
        let (a, b) = (base.join("a"), base.join("b"));
        let first = create(disk, &a, b"first");
        let second = create(disk, &b, b"second");
        disk.rename(&a, &b).unwrap();
        assert_eq!(disk.list(base).unwrap(), ["b"]);
        assert_eq!(content(disk, &b), b"first");
        assert_eq!(read_all(&*second), b"second");
        disk.rename(&b, &b).unwrap();
        disk.remove(&b).unwrap();
        assert!(!disk.exists(&b));
        first.write_all_at(b"F", 0).unwrap();
        first.sync_data().unwrap();
        assert_eq!(read_all(&*first), b"First");
        drop(create(disk, &b, b"third"));
        assert_eq!(content(disk, &b), b"third");
        disk.sync_dir(base).unwrap();
    });
}

#[test]
fn directories() {
    on_each("directories", |disk, base| {
        let deep = base.join("p/q/r");
        disk.create_dir_all(&deep).unwrap();
        disk.create_dir_all(&deep).unwrap();
        for name in ["zeta", "alpha", "mid"] {
            drop(create(disk, &base.join("p/q").join(name), b"x"));
        }
        assert_eq!(disk.list(&base.join("p/q")).unwrap(), ["alpha", "mid", "r", "zeta"]);
        assert!(disk.list(&deep).unwrap().is_empty());
        let file = base.join("p/q/alpha");
        assert_eq!(kind(disk.create_dir_all(&file)), Some(ErrorKind::AlreadyExists));
        assert_eq!(kind(disk.create_dir_all(&file.join("s"))), Some(ErrorKind::NotADirectory));
        assert_eq!(kind(disk.list(&file)), Some(ErrorKind::NotADirectory));
        assert_eq!(kind(disk.sync_dir(&file)), Some(ErrorKind::NotADirectory));
        assert_eq!(kind(disk.remove(&deep)), Some(ErrorKind::IsADirectory));
        assert_eq!(kind(disk.rename(&file, &deep)), Some(ErrorKind::IsADirectory));
        assert_eq!(kind(disk.rename(&deep, &file)), Some(ErrorKind::NotADirectory));
        assert_eq!(kind(disk.rename(&base.join("p"), &deep)), Some(ErrorKind::InvalidInput));
        disk.rename(&base.join("p/q"), &base.join("t")).unwrap();
        assert_eq!(content(disk, &base.join("t/mid")), b"x");
        disk.rename(&base.join("t/r"), &base.join("p")).unwrap();
        assert_eq!(disk.list(base).unwrap(), ["p", "t"]);
        assert_eq!(kind(disk.rename(&base.join("p"), &base.join("t"))), Some(ErrorKind::DirectoryNotEmpty));
    });
}

#[test]
fn lengths() {
    on_each("lengths", |disk, base| {
        let file = create(disk, &base.join("x"), &[7; 5000]);
        file.set_len(100).unwrap();
        assert_eq!(read_all(&*file), [7; 100]);
        file.set_len(6000).unwrap();
        let bytes = read_all(&*file);
        assert_eq!((&bytes[..100], &bytes[100..]), (&[7; 100][..], &[0; 5900][..]));
        file.set_len(0).unwrap();
        assert_eq!(file.size().unwrap(), 0);
        assert_eq!(file.allocated_bytes().unwrap(), 0);
    });
}

#[test]
fn reserving_and_giving_back() {
    on_each("reserving", |disk, base| {
        let file = create(disk, &base.join("x"), &[7; 5000]);
        file.allocate(1 << 20).unwrap();
        assert_eq!(file.size().unwrap(), 1 << 20);
        let reserved = file.allocated_bytes().unwrap();
        assert!(reserved >= 1 << 20, "{reserved}");
        let bytes = read_all(&*file);
        assert_eq!(&bytes[..5000], [7; 5000]);
        assert!(bytes[5000..].iter().all(|b| *b == 0));
        file.allocate(4096).unwrap();
        file.allocate(0).unwrap();
        assert_eq!(file.size().unwrap(), 1 << 20);

        file.write_all_at(&[9; 8192], 512 << 10).unwrap();
        assert!(file.punch(0, 0).unwrap());
        if file.punch(100, 600 << 10).unwrap() {
            let bytes = read_all(&*file);
            assert_eq!(bytes.len(), 1 << 20);
            assert_eq!(&bytes[..100], [7; 100]);
            assert!(bytes[100..].iter().all(|b| *b == 0));
            let left = file.allocated_bytes().unwrap();
            assert!(left + (596 << 10) <= reserved, "{left} of {reserved}");
        }
        file.sync_data().unwrap();

        let file = create(disk, &base.join("y"), &[7; 5000]);
        if file.punch(0, 8192).unwrap() {
            assert_eq!(read_all(&*file), [0; 5000]);
            assert_eq!(file.allocated_bytes().unwrap(), 0, "the last block ends behind the file");
        }
    });
}

#[test]
fn free_space() {
    on_each("free", |disk, base| {
        assert!(disk.free_bytes(base).unwrap() > 0);
        assert_eq!(kind(disk.free_bytes(&base.join("absent"))), Some(ErrorKind::NotFound));
    });
}

#[test]
fn a_lock_is_exclusive_until_dropped() {
    on_each("locks", |disk, base| {
        let path = base.join("lock");
        let held = disk.lock(&path).unwrap();
        let refused = disk.lock(&path).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        assert!(refused.to_string().contains("another process holds the lock"), "{refused}");
        let other = disk.lock(&base.join("other")).unwrap();
        drop(held);
        let _held = disk.lock(&path).unwrap();
        drop(other);
        assert_eq!(kind(disk.lock(&base.join("no/dir"))), Some(ErrorKind::NotFound));
    });
}

/// One random operation, the same on every disk for the same stream. Returns what it saw.
fn random_step(disk: &dyn Disk, base: &Path, files: &mut [Option<Arc<dyn DiskFile>>], rng: &SimRng) -> String {
    let name = |rng: &SimRng| base.join(["a", "b", "c", "d/a", "d/b"][rng.below(5) as usize]);
    let slot = rng.below(files.len() as u64) as usize;
    let (position, len) = (rng.below(40_000), rng.below(9000));
    let byte = (rng.next_u64() & 0xff) as u8;
    let path = name(rng);
    let Some(file) = files[slot].clone() else {
        let mode = [OpenMode::CreateNew, OpenMode::ReadWrite, OpenMode::Read][rng.below(3) as usize];
        let opened = disk.open(&path, mode);
        let seen = format!("{mode:?} {path:?} {:?}", opened.as_ref().map(drop).map_err(|e| e.kind()));
        files[slot] = opened.ok();
        return seen.replace(base.to_str().unwrap(), "");
    };
    let seen = match rng.below(11) {
        0 => {
            files[slot] = None;
            return "close".into();
        }
        1 => format!("remove {:?}", disk.remove(&path).map_err(|e| e.kind())),
        2 => format!("rename {:?}", disk.rename(&path, &name(rng)).map_err(|e| e.kind())),
        3 => format!("cut {:?}", file.set_len(position).is_ok()),
        4 => format!("allocate {:?}", file.allocate(position).is_ok()),
        5 => format!("punch {:?}", file.punch(position, len + 1).is_ok()),
        6 => format!("flush {:?}", file.sync_data().is_ok()),
        7 => format!("list {:?} {:?}", disk.list(base), disk.list(&base.join("d"))),
        _ => format!("write {:?}", file.write_all_at(&vec![byte; len as usize], position).is_ok()),
    };
    format!("{seen} {:x?}", polylogue_hash(&read_all(&*file)))
}

/// Any hash will do: two disks are compared.
fn polylogue_hash(bytes: &[u8]) -> (usize, u64) {
    let folded = bytes.iter().fold(0u64, |h, b| h.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(*b)));
    (bytes.len(), folded)
}

#[test]
fn random_operations_give_the_same_on_both() {
    for seed in 0..8 {
        let (real, sim) = (RealDisk::default(), SimDisk::new(seed));
        let (real_base, sim_base) = (real_dir(&format!("random-{seed}")), PathBuf::from("/data"));
        let (mut real_files, mut sim_files) = (vec![None; 4], vec![None; 4]);
        real.create_dir_all(&real_base.join("d")).unwrap();
        sim.create_dir_all(&sim_base.join("d")).unwrap();
        let (real_rng, sim_rng) = (SimRng::new(seed), SimRng::new(seed));
        for step in 0..400 {
            let real_saw = random_step(&real, &real_base, &mut real_files, &real_rng);
            let sim_saw = random_step(&sim, &sim_base, &mut sim_files, &sim_rng);
            assert_eq!(sim_saw, real_saw, "seed {seed}, step {step}");
        }
        std::fs::remove_dir_all(real_base).unwrap();
    }
}
