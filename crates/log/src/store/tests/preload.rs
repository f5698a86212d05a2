//! Tests of merges of short runs: the journal is read sequentially, in large pieces, and not run by run.

use super::rig::{FakeJournal, Rig, dir, kafka, small};
use crate::store::{ShardStore, StoreConfig};
use parking_lot::Mutex;
use polylogue_env::sim::SimWorld;
use polylogue_env::{DirLock, Disk, DiskFile, Env, OpenMode};
use polylogue_types::RangeSource;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PAGE_BYTES: u64 = 4096;
const PARTITIONS: u64 = 32;
const FRAMES: u64 = 32;
const BATCH_BYTES: usize = 4096;

/// Requests to the disk.
#[derive(Debug, Default)]
struct Asked {
    /// Pages in the page cache.
    pages: BTreeSet<(PathBuf, u64)>,
    /// Lengths of prefetches. Bytes.
    fetched: Vec<u32>,
    /// Number of reads of journal files outside the page cache.
    past: usize,
    /// Whether the page cache keeps nothing.
    forgetful: bool,
}

/// A disk with a page cache that can be inspected and contains only prefetched pages.
#[derive(Debug)]
struct Paged(Arc<dyn Disk>, Arc<Mutex<Asked>>);

#[derive(Debug)]
struct PagedFile(Arc<dyn DiskFile>, PathBuf, Arc<Mutex<Asked>>);

impl PagedFile {
    fn pages(&self, position: u64, len: u32) -> impl Iterator<Item = (PathBuf, u64)> {
        let end = position + u64::from(len);
        (position / PAGE_BYTES..end.div_ceil(PAGE_BYTES)).map(|page| (self.1.clone(), page))
    }
}

impl Disk for Paged {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(PagedFile(self.0.open(path, mode)?, path.to_owned(), self.1.clone())))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }
    fn exists(&self, path: &Path) -> bool {
        self.0.exists(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.0.free_bytes(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        self.0.lock(path)
    }
}

impl RangeSource for PagedFile {
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        self.0.read_exact_at(into, position)
    }
    fn read_once_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        self.2.lock().past += usize::from(self.1.starts_with(dir().join("journal")));
        self.0.read_once_at(into, position)
    }
    fn is_in_memory(&self, position: u64, len: u32) -> bool {
        let asked = self.2.lock();
        self.pages(position, len).all(|page| asked.pages.contains(&page))
    }
    fn fetch(&self, position: u64, len: u32) -> io::Result<()> {
        let mut asked = self.2.lock();
        asked.fetched.push(len);
        if !asked.forgetful {
            asked.pages.extend(self.pages(position, len));
        }
        Ok(())
    }
    fn forget(&self, position: u64, len: u32) {
        let mut asked = self.2.lock();
        for page in self.pages(position, len) {
            asked.pages.remove(&page);
        }
    }
    fn raw_fd(&self) -> Option<i32> {
        None
    }
}

impl DiskFile for PagedFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, position)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }
    fn punch(&self, position: u64, len: u64) -> io::Result<bool> {
        self.0.punch(position, len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.0.allocated_bytes()
    }
    fn as_range_source(self: Arc<Self>) -> Arc<dyn RangeSource> {
        self
    }
}

/// A store on such a disk, with frames of a batch for each partition (all of one partition if `alone`), merged.
fn merged(config: StoreConfig, alone: bool, asked: &Arc<Mutex<Asked>>) -> Rig {
    let world = SimWorld::new(1);
    let env = world.env();
    let env = Env { disk: Arc::new(Paged(env.disk.clone(), asked.clone())), ..env };
    let journal = FakeJournal::new(env.clone(), 1 << 20);
    let (store, _) = ShardStore::open(env, &dir(), config).unwrap();
    let rig = Rig { world, store, journal, config };
    for i in 0..FRAMES {
        for p in 0..PARTITIONS {
            let (partition, base) = if alone { (0, i * PARTITIONS + p) } else { (p, i) };
            rig.write(&[kafka(partition, base, base, 1, base as i64, BATCH_BYTES - 61)]);
        }
    }
    rig.merge_all();
    rig
}

fn read(rig: &Rig) -> Vec<Vec<u8>> {
    (0..PARTITIONS).map(|p| rig.read_all(p, 0, 1 << 20).map(|(_, bytes)| bytes).unwrap_or_default()).collect()
}

fn total(asked: &Mutex<Asked>) -> u64 {
    asked.lock().fetched.iter().map(|len| u64::from(*len)).sum()
}

const JOURNAL_BYTES: u64 = FRAMES * PARTITIONS * BATCH_BYTES as u64;

#[test]
fn a_merge_of_short_runs_reads_the_journal_once_in_its_order() {
    let asked = Arc::default();
    let rig = merged(small(), false, &asked);
    assert_eq!(asked.lock().past, 0, "no single run is read from disk");
    let fetched = total(&asked);
    assert!((JOURNAL_BYTES..JOURNAL_BYTES * 3 / 2).contains(&fetched), "{fetched} for {JOURNAL_BYTES}");
    let largest = asked.lock().fetched.iter().copied().max();
    assert!(largest <= Some(1 << 20), "{largest:?}");
    assert!(asked.lock().pages.is_empty(), "pages of released files stay");
    let plain = merged(StoreConfig { merge_preload_bytes_max: 0, ..small() }, false, &Arc::default());
    assert_eq!(read(&rig), read(&plain));
}

#[test]
fn nothing_is_brought_into_memory_above_the_bound() {
    let asked = Arc::default();
    merged(StoreConfig { merge_preload_bytes_max: 0, ..small() }, false, &asked);
    assert_eq!(total(&asked), 0);
    assert!(asked.lock().past > 0);
    let asked = Arc::default();
    merged(StoreConfig { merge_preload_bytes_max: JOURNAL_BYTES / 2, ..small() }, false, &asked);
    assert!((1..=JOURNAL_BYTES / 2).contains(&total(&asked)), "{}", total(&asked));
}

#[test]
fn what_the_system_has_dropped_is_read_past_the_page_cache() {
    let asked = Arc::new(Mutex::new(Asked { forgetful: true, ..Asked::default() }));
    let rig = merged(small(), false, &asked);
    assert!(asked.lock().past > 0);
    assert_eq!(read(&rig), read(&merged(small(), false, &Arc::default())));
}

#[test]
fn pages_of_a_file_that_becomes_a_segment_stay() {
    let asked = Arc::default();
    let config = StoreConfig { adopt_stretch_bytes_min: 1 << 10, ..small() };
    let rig = merged(config, true, &asked);
    assert!(rig.store.stats().adopted_bytes > 0, "{:?}", rig.store.stats());
    assert_eq!(asked.lock().past, 0);
    assert!(asked.lock().pages.len() as u64 * PAGE_BYTES >= rig.store.stats().adopted_bytes);
    let fetched = asked.lock().fetched.len();
    assert_eq!(read(&rig)[0].len() as u64, JOURNAL_BYTES);
    assert_eq!(asked.lock().fetched.len(), fetched, "a reader finds them there");
}
