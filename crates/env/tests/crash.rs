//! What survives a power cut on the simulated disk: exactly what its contract allows, and over many seeds all of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use polylogue_env::sim::{SimDisk, SimRng};
use polylogue_env::{DIRECT_BYTES, Disk, DiskFile, OpenMode, Rng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

const SECTOR: usize = 512;

fn create(disk: &SimDisk, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(Path::new(path), OpenMode::CreateNew).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

/// A file that is on the disk for certain, name and all.
fn durable(disk: &SimDisk, path: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = create(disk, path, bytes);
    file.sync_data().unwrap();
    disk.sync_dir(Path::new(path).parent().unwrap()).unwrap();
    file
}

fn content(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(Path::new(path), OpenMode::Read).ok()?;
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

/// What many crashes of the same moment leave of a file.
fn outcomes(disk: &SimDisk, path: &str) -> BTreeSet<Option<Vec<u8>>> {
    let forks = (0..300).map(|seed| {
        let fork = disk.fork(seed);
        fork.crash();
        content(&fork, path)
    });
    forks.collect()
}

fn texts(outcomes: &BTreeSet<Option<Vec<u8>>>) -> Vec<&str> {
    outcomes.iter().map(|o| o.as_ref().map_or("-", |bytes| std::str::from_utf8(bytes).unwrap_or("?"))).collect()
}

#[test]
fn what_was_flushed_survives_and_the_rest_may() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "/x", b"old");
    assert_eq!(texts(&outcomes(&disk, "/x")), ["old"]);
    file.write_all_at(b"new", 0).unwrap();
    assert_eq!(texts(&outcomes(&disk, "/x")), ["new", "old"]);
    file.sync_data().unwrap();
    assert_eq!(texts(&outcomes(&disk, "/x")), ["new"]);
}

#[test]
fn a_name_survives_for_certain_only_with_its_directory() {
    let disk = SimDisk::new(1);
    let file = create(&disk, "/x", b"data");
    file.sync_data().unwrap();
    assert_eq!(texts(&outcomes(&disk, "/x")), ["-", "data"]);
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(texts(&outcomes(&disk, "/x")), ["data"]);
}

#[test]
fn a_new_directory_needs_the_flush_of_its_parent() {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new("/d/e")).unwrap();
    durable(&disk, "/d/e/x", b"data");
    assert_eq!(texts(&outcomes(&disk, "/d/e/x")), ["-", "data"]);
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(texts(&outcomes(&disk, "/d/e/x")), ["-", "data"]);
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(texts(&outcomes(&disk, "/d/e/x")), ["data"]);
}

#[test]
fn a_rename_is_lost_or_whole() {
    let disk = SimDisk::new(1);
    durable(&disk, "/x", b"old");
    durable(&disk, "/x.tmp", b"new");
    disk.rename(Path::new("/x.tmp"), Path::new("/x")).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let fork = disk.fork(seed);
        fork.crash();
        seen.insert((content(&fork, "/x"), content(&fork, "/x.tmp")));
    }
    let bytes = |text: &str| Some(text.as_bytes().to_vec());
    assert_eq!(Vec::from_iter(seen), [(bytes("new"), None), (bytes("old"), bytes("new"))]);
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(texts(&outcomes(&disk, "/x")), ["new"]);
}

#[test]
fn a_rename_between_directories_is_made_durable_by_that_of_the_new_name() {
    let disk = SimDisk::new(1);
    for dir in ["/a", "/b"] {
        disk.create_dir_all(Path::new(dir)).unwrap();
    }
    disk.sync_dir(Path::new("/")).unwrap();
    create(&disk, "/a/x", b"data").sync_data().unwrap();
    disk.rename(Path::new("/a/x"), Path::new("/b/y")).unwrap();
    disk.sync_dir(Path::new("/a")).unwrap();
    assert_eq!(texts(&outcomes(&disk, "/b/y")), ["-", "data"]);
    assert_eq!(texts(&outcomes(&disk, "/a/x")), ["-", "data"]);
    // The creation, though it happened in the other directory, is part of what the rename builds on.
    disk.sync_dir(Path::new("/b")).unwrap();
    assert_eq!(texts(&outcomes(&disk, "/b/y")), ["data"]);
    assert_eq!(texts(&outcomes(&disk, "/a/x")), ["-"]);
}

#[test]
fn a_directory_flush_takes_along_what_its_names_build_on() {
    let disk = SimDisk::new(1);
    for dir in ["/a", "/b"] {
        disk.create_dir_all(Path::new(dir)).unwrap();
    }
    disk.sync_dir(Path::new("/")).unwrap();
    create(&disk, "/a/x", b"data").sync_data().unwrap();
    disk.rename(Path::new("/a/x"), Path::new("/b/y")).unwrap();
    disk.sync_dir(Path::new("/b")).unwrap();
    assert_eq!(texts(&outcomes(&disk, "/b/y")), ["data"]);
    assert_eq!(texts(&outcomes(&disk, "/a/x")), ["-"], "the creation was left pending and came after the rename");
}

#[test]
fn a_change_of_names_survives_only_with_those_it_builds_on() {
    let disk = SimDisk::new(1);
    drop(create(&disk, "/a", b""));
    disk.rename(Path::new("/a"), Path::new("/b")).unwrap();
    disk.rename(Path::new("/b"), Path::new("/c")).unwrap();
    let left = (0..200).map(|seed| {
        let fork = disk.fork(seed);
        fork.crash();
        fork.list(Path::new("/")).unwrap().concat()
    });
    assert_eq!(Vec::from_iter(left.collect::<BTreeSet<_>>()), ["", "a", "b", "c"]);
}

#[test]
fn renaming_a_file_that_was_not_flushed_may_leave_an_empty_one() {
    let disk = SimDisk::new(1);
    durable(&disk, "/x", b"old");
    drop(create(&disk, "/x.tmp", b"new"));
    disk.rename(Path::new("/x.tmp"), Path::new("/x")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    let seen = outcomes(&disk, "/x");
    assert!(seen.contains(&Some(Vec::new())), "{:?}", texts(&seen));
    assert!(seen.contains(&Some(b"new".to_vec())), "{:?}", texts(&seen));
    assert!(!seen.contains(&Some(b"old".to_vec())), "{:?}", texts(&seen));
}

#[test]
fn a_removed_file_may_come_back() {
    let disk = SimDisk::new(1);
    durable(&disk, "/x", b"data");
    disk.remove(Path::new("/x")).unwrap();
    assert_eq!(texts(&outcomes(&disk, "/x")), ["-", "data"]);
    drop(create(&disk, "/x", b"other"));
    disk.open(Path::new("/x"), OpenMode::Read).unwrap().sync_data().unwrap();
    assert_eq!(texts(&outcomes(&disk, "/x")), ["-", "data", "other"]);
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(texts(&outcomes(&disk, "/x")), ["other"]);
}

#[test]
fn losing_all_leaves_what_was_flushed() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "/x", b"old");
    file.write_all_at(b"newer", 0).unwrap();
    drop(create(&disk, "/y", b"y"));
    let report = disk.crash_losing_all();
    assert_eq!((report.sectors_kept, report.names_kept), (0, 0));
    assert_eq!((report.writes_pending, report.sectors_lost, report.names_lost), (1, 1, 1));
    assert_eq!(content(&disk, "/x").as_deref(), Some(&b"old"[..]));
    assert_eq!(disk.list(Path::new("/")).unwrap(), ["x"]);
}

#[test]
fn a_kill_keeps_what_was_written_and_makes_nothing_durable() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "/x", b"old");
    file.write_all_at(b"new", 0).unwrap();
    drop(create(&disk, "/y", b"y"));
    disk.crash_keep_page_cache();
    assert_eq!(content(&disk, "/x").as_deref(), Some(&b"new"[..]));
    assert_eq!(content(&disk, "/y").as_deref(), Some(&b"y"[..]));
    disk.crash_losing_all();
    assert_eq!(content(&disk, "/x").as_deref(), Some(&b"old"[..]));
    assert_eq!(content(&disk, "/y"), None);
}

#[test]
fn handles_and_locks_of_before_the_crash_are_dead() {
    for keep_page_cache in [false, true] {
        let disk = SimDisk::new(1);
        let node = disk.of_this_life();
        let file = durable(&node, "/x", b"data");
        let lock = disk.lock(Path::new("/x")).unwrap();
        if keep_page_cache {
            disk.crash_keep_page_cache();
        } else {
            disk.crash();
        }
        assert!(file.read_exact_at(&mut [0], 0).is_err());
        assert!(file.write_all_at(b"x", 0).is_err());
        assert!(file.sync_data().is_err());
        assert!(file.size().is_err());
        assert!(node.open(Path::new("/x"), OpenMode::Read).is_err());
        assert!(node.remove(Path::new("/x")).is_err());
        assert!(!node.exists(Path::new("/x")));
        let held = disk.lock(Path::new("/x")).unwrap();
        drop(lock);
        assert!(disk.lock(Path::new("/x")).is_err(), "an old guard freed a new lock");
        drop(held);
        assert_eq!(content(&disk, "/x").as_deref(), Some(&b"data"[..]));
    }
}

#[test]
fn an_open_file_without_a_name_is_read_until_closed_and_gone_after_the_crash() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "/x", b"data");
    disk.remove(Path::new("/x")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    file.read_exact_at(&mut [0; 4], 0).unwrap();
    drop(file);
    disk.crash();
    assert_eq!(content(&disk, "/x"), None);
}

/// Every version that each sector of a file had since the last flush, and every length.
struct History {
    bytes: Vec<u8>,
    versions: BTreeMap<usize, Vec<Vec<u8>>>,
    lens: BTreeSet<usize>,
}

impl History {
    fn new() -> History {
        History { bytes: Vec::new(), versions: BTreeMap::new(), lens: BTreeSet::from([0]) }
    }

    fn sector(&self, sector: usize) -> Vec<u8> {
        let from = (sector * SECTOR).min(self.bytes.len());
        let mut version = self.bytes[from..self.bytes.len().min(from + SECTOR)].to_vec();
        version.resize(SECTOR, 0);
        version
    }

    fn write(&mut self, bytes: &[u8], position: usize) {
        let end = position + bytes.len();
        let sectors = position / SECTOR..end.div_ceil(SECTOR);
        for sector in sectors.clone() {
            let before = self.sector(sector);
            self.versions.entry(sector).or_insert_with(|| vec![before]);
        }
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[position..end].copy_from_slice(bytes);
        for sector in sectors {
            let after = self.sector(sector);
            self.versions.entry(sector).or_default().push(after);
        }
        self.lens.insert(self.bytes.len());
    }

    fn flushed(&mut self) {
        self.versions.clear();
        self.lens = BTreeSet::from([self.bytes.len()]);
    }

    /// Which version each sector written since the flush has, given what survived. Garbage counts as `None` and is
    /// right only where the file grew.
    fn explain(&self, survived: &[u8], flushed_len: usize) -> Vec<Option<usize>> {
        assert!(self.lens.contains(&survived.len()), "length {} of {:?}", survived.len(), self.lens);
        let sectors = 0..survived.len() / SECTOR;
        let explained = sectors.filter_map(|sector| {
            let found = &survived[sector * SECTOR..(sector + 1) * SECTOR];
            let Some(versions) = self.versions.get(&sector) else {
                assert_eq!(found, self.sector(sector), "sector {sector} was flushed");
                return None;
            };
            let version = versions.iter().rposition(|version| version == found);
            assert!(version.is_some() || sector * SECTOR >= flushed_len, "sector {sector} holds what it never held");
            Some(version)
        });
        explained.collect()
    }
}

#[derive(Default)]
struct Seen {
    lost: bool,
    kept: bool,
    torn: bool,
    reordered: bool,
    between: bool,
    garbage: bool,
}

#[test]
fn every_sector_has_a_version_that_it_had_and_all_kinds_of_loss_occur() {
    let mut seen = Seen::default();
    for seed in 0..300 {
        let (disk, rng) = (SimDisk::new(seed), SimRng::new(seed));
        let file = durable(&disk, "/x", b"");
        let (mut history, mut flushed_len) = (History::new(), 0);
        for _ in 0..rng.below(20) + 3 {
            if rng.below(6) == 0 {
                file.sync_data().unwrap();
                history.flushed();
                flushed_len = history.bytes.len();
            }
            let mut bytes = vec![0; (rng.below(4000) + 1) as usize];
            rng.fill(&mut bytes);
            let position = rng.below(20_000);
            file.write_all_at(&bytes, position).unwrap();
            history.write(&bytes, position as usize);
        }
        for crash in 0..4 {
            let fork = disk.fork(seed * 10 + crash);
            fork.crash();
            let survived = content(&fork, "/x").expect("the name was flushed");
            let explained = history.explain(&survived, flushed_len);
            let last = |sector: usize| history.versions.values().nth(sector).map_or(0, |v| v.len() - 1);
            let whole = explained.iter().enumerate().filter(|(i, v)| **v == Some(last(*i))).count();
            seen.kept |= whole > 0;
            seen.lost |= explained.contains(&Some(0));
            seen.torn |= whole > 0 && whole < explained.len();
            seen.between |= explained.iter().enumerate().any(|(i, v)| v.is_some_and(|v| v > 0 && v < last(i)));
            seen.garbage |= explained.contains(&None);
            // The last write survived somewhere while something before it did not.
            let newest = explained.last() == Some(&Some(last(explained.len().saturating_sub(1))));
            seen.reordered |= newest && explained.first() == Some(&Some(0));
        }
    }
    assert!(seen.kept && seen.lost && seen.torn && seen.reordered && seen.between && seen.garbage);
}

#[test]
fn a_cut_that_was_not_flushed_never_mixes_old_bytes_with_new_ones() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "/x", &[1; 2048]);
    file.set_len(0).unwrap();
    file.write_all_at(&[2; 2048], 0).unwrap();
    let (mut old, mut new, mut cut) = (0, 0, 0);
    for seed in 0..500 {
        let fork = disk.fork(seed);
        fork.crash();
        let survived = content(&fork, "/x").unwrap();
        let (ones, twos) = (survived.contains(&1), survived.contains(&2));
        assert!(!(ones && twos), "seed {seed}: {survived:?}");
        assert!(!ones || survived == [1; 2048], "seed {seed}: part of the old file");
        old += usize::from(ones);
        new += usize::from(twos);
        cut += usize::from(survived.is_empty());
    }
    assert!(old > 0 && new > 0 && cut > 0, "{old} {new} {cut}");
}

#[test]
fn an_unflushed_punch_is_there_or_not() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "/x", &[1; 8192]);
    assert!(file.punch(0, 4096).unwrap());
    let seen = outcomes(&disk, "/x");
    let mut punched = vec![1; 8192];
    punched[..4096].fill(0);
    assert_eq!(Vec::from_iter(seen), [Some(punched.clone()), Some(vec![1; 8192])]);
    file.sync_data().unwrap();
    assert_eq!(Vec::from_iter(outcomes(&disk, "/x")), [Some(punched)]);
}

#[test]
fn reserved_blocks_read_as_zero_or_as_written() {
    for flushed in [true, false] {
        let disk = SimDisk::new(1);
        let file = durable(&disk, "/x", b"");
        file.allocate(64 << 10).unwrap();
        if flushed {
            file.sync_data().unwrap();
        }
        file.write_all_at(&[7; 16 << 10], 0).unwrap();
        for survived in outcomes(&disk, "/x").into_iter().flatten() {
            assert!(survived.len() == 64 << 10 || (survived.is_empty() && !flushed));
            assert!(survived.chunks(SECTOR).all(|s| s == [7; SECTOR] || s == [0; SECTOR]), "garbage");
        }
    }
}

#[test]
fn a_fork_goes_its_own_way() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "/x", b"one");
    let fork = disk.fork(2);
    file.write_all_at(b"two", 0).unwrap();
    drop(create(&fork, "/y", b"y"));
    assert_eq!(content(&fork, "/x").as_deref(), Some(&b"one"[..]));
    assert_eq!(content(&disk, "/x").as_deref(), Some(&b"two"[..]));
    assert!(!disk.exists(Path::new("/y")));
}

/// Random work with crashes in between, on one disk.
fn busy_life(seed: u64) -> (u64, Vec<Option<Vec<u8>>>) {
    let (disk, rng) = (SimDisk::new(seed), SimRng::derive(seed, "driver"));
    let paths = ["/a", "/b", "/c", "/d"];
    for _ in 0..300 {
        let path = Path::new(paths[rng.below(4) as usize]);
        let file = disk.open(path, OpenMode::ReadWrite).or_else(|_| disk.open(path, OpenMode::CreateNew)).unwrap();
        match rng.below(12) {
            0 => disk.sync_dir(Path::new("/")).unwrap(),
            1 => disk.rename(path, Path::new(paths[rng.below(4) as usize])).unwrap(),
            2 => disk.remove(path).unwrap(),
            3 => file.sync_data().unwrap(),
            4 => file.set_len(rng.below(5000)).unwrap(),
            5 if rng.below(4) == 0 => {
                disk.crash();
            }
            _ => file.write_all_at(&vec![rng.next_u64() as u8; 700], rng.below(5000)).unwrap(),
        }
    }
    (disk.trace_hash(), paths.iter().map(|path| content(&disk, path)).collect())
}

#[test]
fn the_same_seed_gives_the_same_life() {
    for seed in 0..20 {
        assert_eq!(busy_life(seed), busy_life(seed), "seed {seed}");
    }
    let hashes: BTreeSet<u64> = (0..20).map(|seed| busy_life(seed).0).collect();
    assert_eq!(hashes.len(), 20, "seeds do not differ");
}

#[test]
fn preallocated_files_cost_little_memory() {
    let disk = SimDisk::new(1);
    let files: Vec<_> = (0..20)
        .map(|n| {
            let file = create(&disk, &format!("/{n}"), b"");
            file.allocate(64 << 20).unwrap();
            file.write_all_at(&vec![0; 1 << 20], 5 << 20).unwrap();
            file.sync_data().unwrap();
            assert_eq!(file.allocated_bytes().unwrap(), 64 << 20);
            file
        })
        .collect();
    assert_eq!(disk.memory_bytes(), 0);
    files[0].write_all_at(&[1; 10_000], 4096).unwrap();
    files[0].sync_data().unwrap();
    assert_eq!(disk.memory_bytes(), 3 * 4096);
    disk.sync_dir(Path::new("/")).unwrap();
    disk.crash();
    assert_eq!(disk.memory_bytes(), 3 * 4096);
    assert_eq!(content(&disk, "/0").map(|bytes| bytes.len()), Some(64 << 20));
    disk.remove(Path::new("/0")).unwrap();
    assert_eq!(disk.memory_bytes(), 3 * 4096, "it may come back");
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(disk.memory_bytes(), 0);
}

/// A direct write to a page that is dirty in the page cache is counted; one behind its flush, in another page or in another life is not.
#[test]
fn direct_writes_to_dirty_pages_are_counted() {
    let disk = SimDisk::new(1);
    let file = durable(&disk, "/x", &[1; 4 * DIRECT_BYTES]);
    let direct = disk.open(Path::new("/x"), OpenMode::Direct).unwrap();
    let memory = vec![2_u8; 2 * DIRECT_BYTES];
    let start = memory.as_ptr().align_offset(DIRECT_BYTES);
    let write = |direct: &Arc<dyn DiskFile>, page: usize| {
        direct.write_all_at(&memory[start..start + DIRECT_BYTES], (page * DIRECT_BYTES) as u64).unwrap();
        disk.stats().mixed_writes
    };
    file.write_all_at(&[3; 10], DIRECT_BYTES as u64 + 5).unwrap();
    assert_eq!((write(&direct, 0), write(&direct, 2)), (0, 0));
    assert_eq!(write(&direct, 1), 1);
    direct.sync_data().unwrap();
    assert_eq!(write(&direct, 1), 1);
    file.write_all_at(&[3; 10], 0).unwrap();
    disk.crash_keep_page_cache();
    let direct = disk.open(Path::new("/x"), OpenMode::Direct).unwrap();
    assert_eq!(write(&direct, 0), 1);
}
