//! Tests of unreadable sectors: a start is refused, `check` reports where, `repair` skips them.
#![allow(clippy::expect_used, reason = "the helpers are part of the tests")]

use crate::journal_common;

use journal_common::*;
use polylogue_env::sim::{SimDisk, SimWorld};
use polylogue_env::{DirLock, Disk, DiskFile, Env, OpenMode};
use polylogue_log::ErrorKind;
use polylogue_log::check::{journal as check_journal, repair};
use polylogue_log::frame::Frame;
use polylogue_log::store::{ShardStore, StoreConfig};
use polylogue_types::{Index, RangeSource};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SECTOR_BYTES: u64 = 4_096;

/// A disk with unreadable sectors, which stay with their files across renames.
#[derive(Clone, Debug)]
struct Scratched {
    disk: SimDisk,
    file: PathBuf,
    bad: Range<u64>,
}

impl Disk for Scratched {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(path, mode)?;
        let bad = if path == self.file { self.bad.clone() } else { 0..0 };
        Ok(Arc::new(ScratchedFile { file, bad }))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn exists(&self, path: &Path) -> bool {
        self.disk.exists(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.disk.free_bytes(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirLock>> {
        self.disk.lock(path)
    }
}

#[derive(Debug)]
struct ScratchedFile {
    file: Arc<dyn DiskFile>,
    bad: Range<u64>,
}

impl RangeSource for ScratchedFile {
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        if position < self.bad.end && self.bad.start < position + into.len() as u64 {
            return Err(io::Error::other("input/output error"));
        }
        self.file.read_exact_at(into, position)
    }
    fn raw_fd(&self) -> Option<i32> {
        None
    }
}

impl DiskFile for ScratchedFile {
    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, position)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }
    fn punch(&self, position: u64, len: u64) -> io::Result<bool> {
        self.file.punch(position, len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        self.file.allocated_bytes()
    }
    fn as_range_source(self: Arc<Self>) -> Arc<dyn RangeSource> {
        self
    }
}

/// A closed journal of several files, and its frames.
fn journal(seed: u64) -> (SimWorld, Vec<Arc<Frame>>) {
    let world = SimWorld::new(seed);
    let node = Node::start(&world, config()).expect("starts");
    for i in 0..30 {
        node.write(i, 1, i, 10_000);
    }
    let frames = node.sink.frames();
    assert!(node.journal.sealed_files().len() >= 2);
    node.journal.shutdown().expect("ends");
    world.disk.crash_losing_all();
    (world, frames)
}

fn scratched(world: &SimWorld, file_sequence: u64, at: u64) -> Env {
    let disk = world.disk.fork(at);
    let file = journal_dir().join(format!("{file_sequence:016x}.plj"));
    let start = at - at % SECTOR_BYTES;
    Env { disk: Arc::new(Scratched { disk, file, bad: start..start + SECTOR_BYTES }), ..world.env() }
}

/// Refused before the repair, sound after it; returns the remaining entries.
fn repaired(env: &Env) -> Vec<Entry> {
    let e = expect_err(open_in(env, config(), Index(0)));
    assert_eq!(e.kind, ErrorKind::Io, "{e}");
    assert!(e.to_string().contains(".plj"), "it names the file: {e}");
    let found = check_journal(env, &shard_dir()).expect("checks");
    assert!(!found.is_sound(), "{found}");
    assert_eq!(expect_err(repair(env, &shard_dir(), false)).kind, ErrorKind::Invalid);
    let report = repair(env, &shard_dir(), true).expect("repairs");
    assert_eq!(report.damage, found.damage);
    assert_eq!(report.fenced.len(), report.damage.len());
    let left = check_journal(env, &shard_dir()).expect("checks");
    assert!(left.is_sound(), "{left}");
    // Twice: files that the first start has cleaned up are not missed.
    let node = Node::start_env(env, config()).expect("starts");
    assert!(node.write(1_000, 9, 0, 10).is_some());
    drop(node);
    contents(&Node::start_env(env, config()).expect("starts again").visited)
}

#[test]
fn a_bad_sector_loses_its_frames_and_nothing_else() {
    let (world, frames) = journal(1);
    for frame in frames.iter().filter(|f| !f.entries.is_empty()).step_by(5) {
        let place = frame.place.as_ref().expect("a place");
        // In the middle of a payload, so that no other frame is in the sector.
        let env = scratched(&world, place.file_sequence, place.position + 5_000);
        let mut expected = contents_of(&frames);
        expected.retain(|(_, offset, _)| *offset != frame.entries[0].envelope.base_offset.0);
        expected.push(entry(9, 0, &payload(1_000, 10)));
        assert_eq!(repaired(&env), expected, "frame {}", frame.index);
    }
}

#[test]
fn a_bad_sector_in_the_header_of_a_file_loses_nothing() {
    let (world, frames) = journal(2);
    let mut expected = contents_of(&frames);
    expected.push(entry(9, 0, &payload(1_000, 10)));
    let last = frames.last().and_then(|f| f.place.as_ref()).expect("a place").file_sequence;
    for sequence in 1..=last {
        assert_eq!(repaired(&scratched(&world, sequence, 0)), expected, "file {sequence} of {last}");
    }
}

#[test]
fn a_bad_sector_behind_the_end_of_the_log_can_be_agreed_to() {
    let (world, frames) = journal(3);
    let mut expected = contents_of(&frames);
    expected.push(entry(9, 0, &payload(1_000, 10)));
    let place = frames.last().and_then(|f| f.place.clone()).expect("a place");
    // The sector may have contained acknowledged data, so that a start does not treat it as free space.
    let behind = place.position + u64::from(place.len) + 2 * SECTOR_BYTES;
    assert_eq!(repaired(&scratched(&world, place.file_sequence, behind)), expected);
}

#[test]
fn a_bad_header_of_a_file_without_any_frame_can_be_agreed_to() {
    let world = SimWorld::new(4);
    let node = Node::start(&world, config()).expect("starts");
    node.background();
    node.write(1, 1, 0, 100);
    let frames = node.sink.frames();
    node.journal.shutdown().expect("ends");
    world.disk.crash_keep_page_cache();
    let ready = frames.last().and_then(|f| f.place.as_ref()).expect("a place").file_sequence + 1;
    assert!(world.disk.exists(&journal_dir().join(format!("{ready:016x}.plj"))));
    let mut expected = contents_of(&frames);
    expected.push(entry(9, 0, &payload(1_000, 10)));
    assert_eq!(repaired(&scratched(&world, ready, 0)), expected);
}

#[test]
fn a_repair_does_not_end_the_log_before_its_checkpoint() {
    let world = SimWorld::new(5);
    let node = Node::start(&world, config()).expect("starts");
    for i in 0..4 {
        node.write(i, 1, i, 10_000);
    }
    let frames = node.sink.frames();
    let last = frames.last().expect("a frame");
    let (store, _) = ShardStore::open(world.env(), &shard_dir(), StoreConfig::default()).expect("opens");
    store.checkpoints().expect("opens").write(last.index, []).expect("writes");
    world.disk.crash_losing_all();
    // No mark records the flush of the last frame, but the checkpoint does.
    let place = last.place.as_ref().expect("a place");
    let env = scratched(&world, place.file_sequence, place.position + 5_000);
    assert_eq!(expect_err(open_in(&env, config(), last.index.next())).kind, ErrorKind::Io);
    let report = repair(&env, &shard_dir(), true).expect("repairs");
    assert_eq!(report.lost_frames, 1);
    let (journal, visited) = open_in(&env, config(), Index(0)).expect("opens");
    assert_eq!(contents(&visited), contents_of(&frames[..frames.len() - 1]));
    assert_eq!(journal.view().next, last.index.next());
    let loss = visited.last().and_then(Frame::lost).expect("a record of the loss");
    assert!(!loss.complete);
    drop(journal);
    open_in(&env, config(), last.index.next()).expect("opens where the checkpoint ends");
}
