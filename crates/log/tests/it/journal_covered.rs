//! Tests of damage in sealed files that a checkpoint covers: a start skips it.
#![allow(clippy::expect_used, reason = "the helpers are part of the tests")]

use crate::journal_common;

use journal_common::*;
use polylogue_env::sim::{SimDisk, SimRng, SimWorld};
use polylogue_env::{Disk, Env};
use polylogue_log::ErrorKind;
use polylogue_log::frame::Frame;
use polylogue_log::journal::{Config, Outcome, SealedFile, StartOfLife};
use polylogue_types::Index;
use std::path::PathBuf;
use std::sync::Arc;

/// A closed journal of several files: its environment, frames and sealed files.
fn journal(seed: u64) -> (SimWorld, Vec<Arc<Frame>>, Vec<SealedFile>) {
    let world = SimWorld::new(seed);
    let node = Node::start(&world, config()).expect("starts");
    for i in 0..100 {
        node.propose(i, vec![draft(1, i, payload(i, 4_000)), draft(2, i, payload(500 + i, 2_000))]).expect("taken");
        node.settle();
    }
    let (frames, files) = (node.sink.frames(), node.journal.sealed_files());
    assert!(files.len() >= 3);
    node.journal.shutdown().expect("ends");
    world.disk.crash_losing_all();
    (world, frames, files)
}

fn path_of(sequence: u64) -> PathBuf {
    journal_dir().join(format!("{sequence:016x}.plj"))
}

fn env_over(world: &SimWorld, disk: &SimDisk) -> Env {
    Env { disk: Arc::new(disk.clone()), ..world.env() }
}

fn covered(upto: Index) -> Config {
    Config { covered: Some(upto), ..config() }
}

/// Flips a bit in each of these bytes of a frame.
fn damage(disk: &SimDisk, frame: &Frame, bytes: &[u64]) {
    let place = frame.place.as_ref().expect("a place");
    for byte in bytes {
        disk.flip_bit(&path_of(place.file_sequence), place.position + byte, 3).expect("flips");
    }
}

/// Returns the frames of a file, without the first and the last.
fn inside<'a>(frames: &'a [Arc<Frame>], file: &SealedFile) -> Vec<&'a Arc<Frame>> {
    let (first, last) = file.indexes.expect("indexes");
    frames.iter().filter(|f| f.index > first && f.index < last && !f.entries.is_empty()).collect()
}

#[test]
fn frames_that_cannot_be_read_are_missing_and_nothing_else_is() {
    let (world, frames, files) = journal(1);
    let last = files[1].indexes.expect("indexes").1;
    let all = inside(&frames, &files[1]);
    // Both headers, one after the other, two adjacent frames, and the last frame of the file.
    let end = frames.iter().find(|f| f.index == last).expect("the last one");
    let bytes: &[u64] = &[20, 90];
    let cases: [Vec<&Arc<Frame>>; 4] = [vec![all[2]], vec![all[1], all[4]], vec![all[2], all[3]], vec![end]];
    for (case, gone) in cases.iter().enumerate() {
        let disk = world.disk.fork(case as u64);
        gone.iter().for_each(|f| damage(&disk, f, bytes));
        let env = env_over(&world, &disk);
        // One frame of the file above the checkpoint suffices for an error, as does a log of several voters.
        let below = covered(Index(last.0 - 1));
        assert_eq!(expect_err(open_in(&env, below, Index(0))).kind, ErrorKind::Damaged, "case {case}");
        let engine = Config { start: StartOfLife::Pristine, ..covered(last) };
        assert_eq!(expect_err(open_in(&env, engine, Index(0))).kind, ErrorKind::Damaged, "case {case}");

        let mut expected = frames.clone();
        expected.retain(|f| gone.iter().all(|g| g.index != f.index));
        for life in 0..3 {
            let (journal, visited) = open_in(&env, covered(last), Index(0)).expect("opens");
            assert_eq!(contents(&visited)[..contents_of(&expected).len()], contents_of(&expected), "{case} {life}");
            let missing: u64 =
                journal.recovery().passed.iter().map(|p| p.missing.expect("missing").0 - p.first.0).sum();
            assert_eq!(missing, gone.len() as u64, "{:?}", journal.recovery().passed);
            assert_eq!(expect_err(journal.read(gone[0].index, 1)).kind, ErrorKind::Damaged);
            // The log continues as usual.
            let sink = Arc::new(Recorder::default());
            journal.attach(sink.clone());
            let epoch = journal.acquire().expect("a term");
            let node = Node { journal, sink, visited, epoch };
            assert!(matches!(node.write(1_000 + life, 3, life, 100), Some(Outcome::Committed(_))));
            drop(node);
            disk.crash();
        }
    }
}

#[test]
fn a_frame_whose_native_bytes_are_damaged_is_shown_without_them() {
    let (world, frames, files) = journal(2);
    let last = files[1].indexes.expect("indexes").1;
    let bad = inside(&frames, &files[1])[3];
    damage(&world.disk, bad, &[u64::from(bad.entries[1].native.start) + 7]);
    let (journal, visited) = open_in(&world.env(), covered(last), Index(0)).expect("opens");
    let passed = &journal.recovery().passed;
    assert_eq!((passed.len(), passed[0].first, passed[0].missing), (1, bad.index, None));
    assert!(passed[0].to_string().contains(&path_of(files[1].sequence).display().to_string()), "{}", passed[0]);
    let shown = visited.iter().find(|f| f.index == bad.index).expect("shown");
    assert_eq!(shown.entries.len(), bad.entries.len());
    let len = shown.place.as_ref().expect("a place").len as usize;
    assert!(shown.bytes.len() <= shown.entries[0].native.start as usize && len == bad.bytes.len());
    let mut expected = contents_of(&frames);
    expected.retain(|(_, offset, _)| *offset != bad.entries[0].envelope.base_offset.0);
    assert_eq!(contents(visited.iter().filter(|f| f.index != bad.index)), expected);
}

#[test]
fn a_damaged_file_is_kept_aside_when_it_is_released() {
    let (world, frames, files) = journal(3);
    let last = files[1].indexes.expect("indexes").1;
    damage(&world.disk, inside(&frames, &files[1])[2], &[20, 90]);
    let (journal, visited) = open_in(&world.env(), covered(last), Index(0)).expect("opens");
    drop(visited);
    let sink = Arc::new(Recorder::default());
    journal.attach(sink.clone());
    let epoch = journal.acquire().expect("a term");
    let node = Node { journal, sink, visited: Vec::new(), epoch };
    node.journal.release(last).expect("releases");
    world.clock.advance_ms(1_000);
    node.settle();
    node.background();
    assert!(!world.disk.exists(&path_of(files[0].sequence)) && !world.disk.exists(&path_of(files[1].sequence)));
    let name = format!("{:016x}.plj", files[1].sequence);
    assert_eq!(world.disk.list(&shard_dir().join("fenced")).expect("lists"), [name]);
    world.disk.crash_losing_all();
    let (journal, _) = open_in(&world.env(), config(), last.next()).expect("opens without the checkpoint's word");
    assert_eq!(journal.recovery().passed, []);
}

#[test]
fn any_flipped_bits_in_covered_files_cost_their_frames_at_most() {
    let (world, frames, files) = journal(4);
    let all = contents_of(&frames);
    let last = files[files.len() - 1].indexes.expect("indexes").1;
    let mut passed = 0;
    for seed in 0..150 {
        let (rng, disk) = (SimRng::new(seed), world.disk.fork(seed));
        let flips = 1 + rng.below(4);
        for _ in 0..flips {
            let file = &files[rng.below(files.len() as u64) as usize];
            let byte = 4_096 + rng.below(file.end - 4_096);
            disk.flip_bit(&path_of(file.sequence), byte, rng.below(8) as u8).expect("flips");
        }
        let (journal, visited) = open_in(&env_over(&world, &disk), covered(last), Index(0)).expect("opens");
        let doubtful: Vec<Index> =
            journal.recovery().passed.iter().filter(|p| p.missing.is_none()).map(|p| p.first).collect();
        let sound = contents(visited.iter().filter(|f| !doubtful.contains(&f.index)));
        assert!(sound.iter().all(|e| all.contains(e)), "seed {seed}");
        assert!(visited.len() as u64 + 2 * flips >= frames.len() as u64, "seed {seed}");
        passed += journal.recovery().passed.len();
    }
    assert!(passed > 100, "{passed}");
}
