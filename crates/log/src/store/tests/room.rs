//! Tests of reclaiming space, and of running out of it.

use super::rig::{Rig, dir, kafka, opaque, small};
use crate::error::ErrorKind;
use crate::store::{Lookup, Retention, SEGMENTS_DIR, StoreConfig, check_segments, retention_class};
use polylogue_env::sim::{Fault, FaultKind, FaultOp, SimWorld};
use polylogue_env::{DirLock, Disk, DiskFile, Env, OpenMode};
use polylogue_types::{Offset, PartitionId, RangeSource};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Returns the disk space allocated to the files of a directory. Bytes.
fn allocated(env: &Env, under: &str) -> u64 {
    let path = dir().join(under);
    let size = |name: String| env.disk.open(&path.join(name), OpenMode::Read).unwrap().allocated_bytes().unwrap();
    env.disk.list(&path).unwrap().into_iter().map(size).sum()
}

fn reclaim_all(rig: &Rig) {
    while rig.store.reclaim_step().unwrap().more {}
}

/// 20 partitions with 16 KiB each in one segment.
fn twenty(rig: &Rig) {
    for i in 0..16 {
        let entries: Vec<_> = (0..20).map(|p| kafka(p, i, i, 1, 5, 1024 - 61)).collect();
        rig.write(&entries);
    }
    rig.merge_all();
}

#[test]
fn dead_runs_are_punched_and_dead_segments_removed() {
    let mut rig = Rig::new(1, small(), 1 << 20);
    twenty(&rig);
    let env = rig.world.env();
    let full = allocated(&env, SEGMENTS_DIR);
    assert!(full >= 320 << 10);
    for p in 0..10 {
        rig.store.trim(PartitionId(p), Offset(16));
    }
    reclaim_all(&rig);
    let half = allocated(&env, SEGMENTS_DIR);
    assert!(half <= full / 2 + (16 << 10), "{half} of {full}");
    // Only dead data: the rest is intact, also after a start and for `check`.
    for life in 0..2 {
        for p in 10..20 {
            assert_eq!(rig.read_all(p, 0, 5000).unwrap().1.len(), 16 << 10, "life {life}");
        }
        assert!(check_segments(&rig.world.env(), &dir()).unwrap().is_empty());
        assert_eq!(rig.store.stats().segment_runs, 10, "dead runs do not come back");
        rig.reopen(false);
        reclaim_all(&rig);
    }
    for p in 10..20 {
        rig.store.trim(PartitionId(p), Offset(16));
    }
    reclaim_all(&rig);
    assert_eq!(allocated(&rig.world.env(), SEGMENTS_DIR), 0);
    assert_eq!(rig.store.stats().segments, 0);
    rig.reopen(false);
}

/// A disk that cannot punch holes.
#[derive(Debug)]
pub(super) struct Solid(pub(super) Arc<dyn Disk>);

#[derive(Debug)]
struct SolidFile(Arc<dyn DiskFile>);

impl Disk for Solid {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(SolidFile(self.0.open(path, mode)?)))
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

impl RangeSource for SolidFile {
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        self.0.read_exact_at(into, position)
    }
    fn raw_fd(&self) -> Option<i32> {
        None
    }
}

impl DiskFile for SolidFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, position)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.0.allocate(len)
    }
    fn punch(&self, _: u64, _: u64) -> io::Result<bool> {
        Ok(false)
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

#[test]
fn where_nothing_can_be_punched_the_live_rest_is_written_anew() {
    let world = SimWorld::new(1);
    let solid = |env: Env| Env { disk: Arc::new(Solid(env.disk.clone())), ..env };
    let mut rig = Rig::on(world, small(), 1 << 20);
    rig.store = crate::store::ShardStore::open(solid(rig.world.env()), &dir(), rig.config).unwrap().0;
    twenty(&rig);
    let env = rig.world.env();
    let full = allocated(&env, SEGMENTS_DIR);
    let mut dead = 0;
    for p in (0..20).step_by(2) {
        // A reader has the old file open and continues with it.
        let held = rig.store.read(PartitionId(19), Offset(0), 100_000, true).unwrap().wait().unwrap();
        rig.store.trim(PartitionId(p), Offset(16));
        dead += 1;
        reclaim_all(&rig);
        let now = allocated(&env, SEGMENTS_DIR);
        let retained = full * (20 - dead) / 20;
        assert!(now <= retained * 3 / 2 + (16 << 10), "{now} for {retained}");
        for chunk in &held.chunks {
            assert!(chunk.to_bytes().unwrap().len() > 1000);
        }
        for p in (1..20).step_by(2) {
            assert_eq!(rig.read_all(p, 0, 5000).unwrap().1.len(), 16 << 10);
        }
    }
    assert!(rig.store.stats().merged_bytes > full);
    let (store, opened) = crate::store::ShardStore::open(solid(env.clone()), &dir(), rig.config).unwrap();
    assert_eq!((opened.segments, opened.removed.len(), opened.lost.len()), (1, 0, 0), "{opened:?}");
    rig.store = store;
    for p in (1..20).step_by(2) {
        assert_eq!(rig.read_all(p, 0, 5000).unwrap().1.len(), 16 << 10);
    }
    assert!(check_segments(&env, &dir()).unwrap().is_empty());
    rig.store = crate::store::ShardStore::open(solid(env.clone()), &dir(), rig.config).unwrap().0;
    // A plan made before a rewrite is executed on the new segment.
    let asked: Vec<_> = [3, 5, 19]
        .into_iter()
        .map(|p| rig.store.find_by_time(PartitionId(p), 0, Offset(0)).unwrap())
        .inspect(|l| assert!(matches!(l, Lookup::NeedsIo(_))))
        .collect();
    for p in (7..19).step_by(2) {
        rig.store.trim(PartitionId(p), Offset(16));
    }
    let before = rig.store.stats().merged_bytes;
    reclaim_all(&rig);
    assert!(rig.store.stats().merged_bytes > before);
    for question in asked {
        assert_eq!(question.wait().unwrap().unwrap().base, Offset(0));
    }
}

/// Disk space of a thousand partitions of mixed retention, relative to the retained bytes.
fn mixed_retention(punch: bool) {
    // A round is a minute. Retention in rounds: 1, 2, 4 ... 128. Partition 0 keeps everything and is idle after its first
    // entry.
    let keep = |p: u64| 60_000u64 << (p % 8);
    let config = StoreConfig {
        merge_bytes: 256 << 10,
        journal_keep_bytes_max: 1 << 20,
        merge_step_bytes: 256 << 10,
        index_interval_bytes: 4096,
        ..small()
    };
    let file_bytes = 256 << 10;
    let world = SimWorld::new(1);
    let mut rig = Rig::on(world, config, file_bytes);
    if !punch {
        let env = rig.world.env();
        let env = Env { disk: Arc::new(Solid(env.disk.clone())), ..env };
        rig.store = crate::store::ShardStore::open(env, &dir(), config).unwrap().0;
    }
    let partitions = 1000;
    let mut next = vec![0u64; partitions];
    for round in 0..160i64 {
        let now = round * 60_000;
        let mut frame = Vec::new();
        for p in 0..partitions as u64 {
            // A few hundred partitions per round, some of them often.
            if p == 0 && round > 0 || p > 0 && (p * 7 + round as u64 * 13) % 5 > 1 {
                continue;
            }
            let n = &mut next[p as usize];
            frame.push(kafka(p, *n, *n, 1, now, 200));
            *n += 1;
        }
        rig.write(&frame);
        let limits = (1..partitions as u64).map(|p| (PartitionId(p), Retention { ms: Some(keep(p)), bytes: None }));
        for (p, start) in rig.store.retention_scan(now, limits) {
            rig.store.trim(p, start);
        }
        rig.checkpoint();
        let class = |p: PartitionId| retention_class((p.0 > 0).then(|| keep(p.0)));
        while let Some(due) = rig.store.merge_due(now, &rig.journal, &class) {
            rig.try_merge(due.upto, &class).unwrap();
        }
        reclaim_all(&rig);
        let stats: u64 =
            (0..partitions as u64).filter_map(|p| rig.store.partition_stats(PartitionId(p))).map(|s| s.bytes).sum();
        let used = allocated(&rig.world.env(), SEGMENTS_DIR) + allocated(&rig.world.env(), "journal");
        // The journal keeps up to its limit plus one file, and each segment has pages that two runs share.
        let constant = config.journal_keep_bytes_max + 2 * file_bytes;
        let bound = stats * 3 / 2 + constant;
        assert!(used < bound, "round {round}: {used} used for {stats} retained, bound {bound}");
    }
    assert_eq!(rig.read_all(0, 0, 1000).unwrap().1.len(), 261, "the idle partition's entry is there");
}

#[test]
fn mixed_retention_stays_under_its_bound_with_punching() {
    mixed_retention(true);
}

#[test]
fn mixed_retention_stays_under_its_bound_without_punching() {
    mixed_retention(false);
}

#[test]
fn a_full_disk_gives_a_merge_up_and_lets_trimming_go_on() {
    let mut rig = Rig::new(1, small(), 1 << 20);
    twenty(&rig);
    for i in 16..40 {
        rig.write(&[opaque(100, i, i, 1, 5, 1000)]);
    }
    rig.journal.seal();
    rig.checkpoint();
    let full = Fault::from(FaultOp::Write, 1, FaultKind::NoSpace).under(dir().join(SEGMENTS_DIR));
    rig.world.disk.inject(full);
    let upto = rig.journal.last_index();
    assert_eq!(rig.try_merge(upto, &|_| 0).unwrap_err().kind, ErrorKind::StorageFull);
    assert_eq!(rig.read_all(100, 16, 1000).unwrap().1.len(), 24_000);
    // Nothing can be written any more, not even the manifest.
    rig.world.disk.clear_faults();
    rig.world.disk.inject(Fault::from(FaultOp::Write, 1, FaultKind::NoSpace));
    let before = allocated(&rig.world.env(), SEGMENTS_DIR);
    for p in 0..20 {
        rig.store.trim(PartitionId(p), Offset(16));
    }
    assert_eq!(rig.store.reclaim_step().unwrap_err().kind, ErrorKind::StorageFull);
    let after = allocated(&rig.world.env(), SEGMENTS_DIR);
    assert!(after < before / 4, "{after} of {before}: dead bytes go without a manifest");
    // With free space everything continues without a restart.
    rig.world.disk.clear_faults();
    reclaim_all(&rig);
    rig.merge(upto);
    assert_eq!(rig.read_all(100, 16, 1000).unwrap().1.len(), 24_000);
    rig.reopen(false);
    assert_eq!(rig.read_all(100, 16, 1000).unwrap().1.len(), 24_000);
}

#[test]
fn a_failed_flush_ends_the_process() {
    for op in [FaultOp::SyncData, FaultOp::SyncDir] {
        let rig = Rig::new(1, small(), 1 << 20);
        rig.write(&[kafka(1, 0, 0, 1, 5, 100)]);
        rig.journal.seal();
        rig.checkpoint();
        rig.world.disk.inject(Fault::nth(op, 1, FaultKind::Io));
        assert!(rig.try_merge(rig.journal.last_index(), &|_| 0).is_err());
        assert!(rig.world.fatal().reason().is_some(), "{op:?}");
    }
}

#[test]
fn few_files_are_open() {
    let mut rig = Rig::new(1, small(), 1 << 20);
    for i in 0..12 {
        rig.write(&[kafka(1, i, i, 1, 5, 1000)]);
        rig.merge_all();
    }
    assert_eq!(rig.store.stats().segments, 12);
    for _ in 0..2 {
        assert_eq!(rig.read_all(1, 0, 1061).unwrap().1.len(), 12 * 1061);
        assert!(rig.store.stats().open_segments <= rig.config.open_segments_max);
        assert!(rig.store.stats().sparse_bytes <= rig.config.index_cache_bytes);
        rig.reopen(false);
    }
}
