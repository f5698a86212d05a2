//! Tests that damage is distinguished from a torn tail, reported, refused, and can be recorded by a repair.
#![allow(clippy::expect_used, reason = "the helpers are part of the tests")]

use crate::journal_common;

use journal_common::*;
use polylogue_env::OpenMode;
use polylogue_env::sim::{SimDisk, SimRng, SimWorld};
use polylogue_env::{Disk, Env};
use polylogue_log::check::{journal as check_journal, repair};
use polylogue_log::frame::{Frame, LostRange};
use polylogue_log::journal::{Journal, Outcome};
use polylogue_log::{Error, ErrorKind, Kind};
use polylogue_types::{Index, NodeId, Offset, PartitionId};
use std::path::PathBuf;
use std::sync::Arc;

/// A journal with some frames known to be durable.
fn marked_journal(seed: u64) -> (SimWorld, Vec<Arc<Frame>>) {
    let world = SimWorld::new(seed);
    let node = Node::start(&world, config()).expect("starts");
    for i in 0..6 {
        let entries = vec![draft(1, i, payload(i, 300)), draft(2, i, payload(100 + i, 100))];
        node.propose(i, entries).expect("taken");
        node.settle();
    }
    let frames = node.sink.frames();
    node.journal.shutdown().expect("ends");
    world.disk.crash_losing_all();
    (world, frames)
}

/// The same environment with another disk.
fn env_over(world: &SimWorld, disk: &SimDisk) -> Env {
    Env { disk: Arc::new(disk.clone()), ..world.env() }
}

fn path_of(frame: &Frame) -> PathBuf {
    journal_dir().join(format!("{:016x}.plj", frame.place.as_ref().expect("a place").file_sequence))
}

fn position_of(frame: &Frame) -> u64 {
    frame.place.as_ref().expect("a place").position
}

fn open_disk(world: &SimWorld, disk: &SimDisk) -> Result<(Journal, Vec<Frame>), Error> {
    open_in(&env_over(world, disk), config(), Index(0))
}

#[test]
fn every_flipped_bit_of_a_durable_frame_is_damage_and_none_goes_unseen() {
    let (world, frames) = marked_journal(1);
    let data: Vec<_> = frames.iter().filter(|f| f.kind == Kind::Data).collect();
    let all = contents(data.iter().map(|f| &***f));
    for frame in data.iter().step_by(2) {
        for byte in 0..frame.bytes.len() as u64 {
            let disk = world.disk.fork(byte);
            disk.flip_bit(&path_of(frame), position_of(frame) + byte, (byte % 8) as u8).expect("flips");
            let e = expect_err(open_disk(&world, &disk));
            assert_eq!(e.kind, ErrorKind::Damaged, "byte {byte} of frame {}: {e}", frame.index);
            let name = path_of(frame).display().to_string();
            assert!(e.context.contains(&name), "{e}");
            assert!(e.context.contains(&format!("at {}", position_of(frame))), "{e}");
        }
    }
    assert_eq!(contents(&open_disk(&world, &world.disk).expect("opens").1), all);
}

#[test]
fn damage_in_payload_names_the_partition_and_the_offsets() {
    let (world, frames) = marked_journal(2);
    let frame = &frames[3];
    let entry = &frame.entries[1];
    world.disk.flip_bit(&path_of(frame), position_of(frame) + u64::from(entry.native.start), 3).expect("flips");
    let e = expect_err(open_disk(&world, &world.disk));
    assert_eq!(e.kind, ErrorKind::Damaged);
    let offset = entry.envelope.base_offset;
    assert!(e.context.contains(&format!("partition 2 offsets {offset} to {offset}")), "{e}");
    let report = check_journal(&world.env(), &shard_dir()).expect("checks");
    assert_eq!(report.damage.len(), 1);
    let lost = LostRange { partition: PartitionId(2), first: offset, end: Offset(offset.0 + 1) };
    assert_eq!(report.damage[0].lost, [lost]);
    assert!(report.damage[0].complete);
    assert!(!report.is_sound());
    assert!(report.to_string().contains("partition 2"), "{report}");
}

#[test]
fn a_flipped_bit_in_a_group_that_no_mark_covers_is_a_torn_tail() {
    let world = SimWorld::new(3);
    let node = Node::start(&world, config()).expect("starts");
    for i in 0..4 {
        node.write(i, 1, i, 300);
    }
    let frames = node.sink.frames();
    world.disk.crash_losing_all();
    // Each frame's header records the flush of the one before; no header does for the last one.
    let last = frames.last().expect("a frame");
    for byte in 0..last.bytes.len() as u64 {
        let disk = world.disk.fork(byte);
        disk.flip_bit(&path_of(last), position_of(last) + byte, 1).expect("flips");
        let (journal, visited) = open_disk(&world, &disk).expect("opens");
        assert_eq!(contents(&visited), contents_of(&frames[..frames.len() - 1]), "byte {byte}");
        let torn = journal.recovery().torn;
        let header_damaged = byte < 64;
        assert_eq!(torn.is_some(), !header_damaged, "byte {byte}: {torn:?}");
    }
    let before = &frames[frames.len() - 2];
    world.disk.flip_bit(&path_of(before), position_of(before) + 70, 1).expect("flips");
    assert_eq!(expect_err(open_disk(&world, &world.disk)).kind, ErrorKind::Damaged);
}

#[test]
fn a_torn_tail_is_cut_and_what_follows_is_written_over_it() {
    let world = SimWorld::new(4);
    let node = Node::start(&world, config()).expect("starts");
    for i in 0..4 {
        node.write(i, 1, i, 300);
    }
    let last = node.sink.frames().pop().expect("a frame");
    world.disk.crash_losing_all();
    world.disk.flip_bit(&path_of(&last), position_of(&last) + 200, 1).expect("flips");
    let node = Node::start(&world, config()).expect("starts");
    let torn = node.journal.recovery().torn.expect("torn");
    assert_eq!(
        (torn.1, torn.2),
        (position_of(&last), u64::from(last.place.as_ref().expect("a place").len).next_multiple_of(64))
    );
    assert!(matches!(node.write(9, 1, 3, 50), Some(Outcome::Committed(_))));
    world.disk.crash_losing_all();
    let (journal, visited) = open_disk(&world, &world.disk).expect("opens");
    assert_eq!(contents(&visited).last(), Some(&entry(1, 3, &payload(9, 50))));
    assert_eq!(journal.recovery().torn, None, "truncated by the first start");
}

#[test]
fn one_flipped_bit_anywhere_never_changes_what_is_served() {
    let (world, frames) = marked_journal(5);
    let all = contents_of(&frames);
    let rng = SimRng::new(5);
    let names = world.disk.list(&journal_dir()).expect("lists");
    for _ in 0..400 {
        let name = &names[rng.below(names.len() as u64) as usize];
        let disk = world.disk.fork(1);
        let byte = rng.below(20 << 10);
        if disk.flip_bit(&journal_dir().join(name), byte, rng.below(8) as u8).is_err() {
            continue;
        }
        match open_disk(&world, &disk) {
            Ok((_, visited)) => assert_eq!(contents(&visited), all, "byte {byte} of {name}"),
            Err(e) => assert_eq!(e.kind, ErrorKind::Damaged, "byte {byte} of {name}: {e}"),
        }
    }
}

#[test]
fn a_lost_header_is_damage_and_one_lost_copy_of_it_is_nothing() {
    let (world, frames) = marked_journal(6);
    let path = path_of(&frames[0]);
    let overwrite = |disk: &SimDisk, at: u64, len: usize| {
        let file = disk.open(&path, OpenMode::ReadWrite).expect("opens");
        file.write_all_at(&vec![0; len], at).expect("writes");
        file.sync_data().expect("flushes");
    };
    for at in [0, 2048] {
        let disk = world.disk.fork(at);
        overwrite(&disk, at, 512);
        assert_eq!(contents(&open_disk(&world, &disk).expect("opens").1), contents_of(&frames));
    }
    let disk = world.disk.fork(9);
    overwrite(&disk, 0, 4096);
    let e = expect_err(open_disk(&world, &disk));
    assert_eq!(e.kind, ErrorKind::Damaged);
    assert!(e.context.contains("header"), "{e}");
}

#[test]
fn frames_in_the_wrong_order_are_damage() {
    let world = SimWorld::new(19);
    let node = Node::start(&world, config()).expect("starts");
    node.write(1, 1, 0, 100);
    let last = node.sink.frames().pop().expect("a frame");
    // Two local frames of the same size, each valid, without an index.
    node.journal.save_committed(Index(1)).expect("saves");
    node.journal.save_committed(Index(2)).expect("saves");
    node.journal.shutdown().expect("ends");
    let path = path_of(&last);
    let first = (position_of(&last) + u64::from(last.place.as_ref().expect("a place").len)).next_multiple_of(64);
    let file = world.disk.open(&path, OpenMode::ReadWrite).expect("opens");
    let mut both = [[0; 128]; 2];
    for (i, frame) in both.iter_mut().enumerate() {
        file.read_exact_at(frame, first + 128 * i as u64).expect("reads");
        assert_eq!(frame[4], Kind::Committed as u8);
    }
    file.write_all_at(&both[1], first).expect("writes");
    file.write_all_at(&both[0], first + 128).expect("writes");
    file.sync_data().expect("flushes");
    let e = expect_err(open_disk(&world, &world.disk));
    assert_eq!(e.kind, ErrorKind::Damaged);
    assert!(e.context.contains("follow"), "{e}");
}

#[test]
fn a_missing_file_is_damage() {
    let world = SimWorld::new(7);
    let node = Node::start(&world, config()).expect("starts");
    for i in 0..40 {
        node.write(i, 1, i, 10_000);
    }
    let files = node.journal.sealed_files();
    assert!(files.len() >= 2);
    node.journal.shutdown().expect("ends");
    for file in &files {
        let disk = world.disk.fork(1);
        disk.remove(&journal_dir().join(format!("{:016x}.plj", file.sequence))).expect("removes");
        let e = expect_err(open_disk(&world, &disk));
        assert_eq!(e.kind, ErrorKind::Damaged, "{e}");
        assert!(e.context.contains("missing"), "{e}");
        // A reader that does not need this file is not affected.
        let (_, last) = file.indexes.expect("indexes");
        let env = env_over(&world, &disk);
        assert_eq!(expect_err(open_in(&env, config(), last)).kind, ErrorKind::Damaged);
        let (_, visited) = open_in(&env, config(), last.next()).expect("opens");
        assert_eq!(visited.first().map(|f| f.index), Some(last.next()));
    }
}

#[test]
fn a_journal_that_ends_before_its_checkpoint_is_damaged() {
    let (world, frames) = marked_journal(8);
    let next = frames.last().expect("a frame").index.next();
    assert!(open_in(&world.env(), config(), next).is_ok());
    assert_eq!(expect_err(open_in(&world.env(), config(), next.next())).kind, ErrorKind::Damaged);
}

#[test]
fn another_identity_or_a_newer_version_is_refused_and_nothing_is_changed() {
    let (world, _) = marked_journal(9);
    let refused = |change: &dyn Fn(&mut polylogue_log::journal::Config)| {
        let mut config = config();
        change(&mut config);
        let before = world.disk.stats();
        let e = expect_err(open_in(&world.env(), config, Index(0)));
        assert_eq!(e.kind, ErrorKind::Incompatible, "{e}");
        let after = world.disk.stats();
        assert_eq!((before.writes, before.creates), (after.writes, after.creates));
    };
    refused(&|c| c.identity.node = NodeId(8));
    refused(&|c| c.identity.cluster = [9; 16]);
    refused(&|c| c.identity.directory = [9; 16]);
    refused(&|c| c.identity.shard = polylogue_types::ShardId(9));
    // A newer version, in both copies of the header.
    let path = journal_dir().join("0000000000000001.plj");
    let file = world.disk.open(&path, OpenMode::ReadWrite).expect("opens");
    let mut block = vec![0; 512];
    file.read_exact_at(&mut block, 0).expect("reads");
    block[8] = 2;
    let crc = polylogue_record::crc::crc32c(&block[..508]);
    block[508..].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&block, 0).expect("writes");
    file.write_all_at(&block, 2048).expect("writes");
    refused(&|_| {});
}

/// Opens after a repair and compares with the content without some frames' entries.
fn serves_the_rest(world: &SimWorld, expected: &[Entry]) -> Vec<Frame> {
    world.disk.crash_losing_all();
    let node = Node::start(world, config()).expect("starts");
    assert_eq!(contents(&node.visited), expected);
    for pair in node.visited.windows(2) {
        assert_eq!(pair[1].index, pair[0].index.next());
    }
    let report = check_journal(&world.env(), &shard_dir()).expect("checks");
    assert!(report.is_sound(), "{report}");
    assert!(matches!(node.write(1_000, 9, 0, 10), Some(Outcome::Committed(_))));
    node.visited
}

#[test]
fn a_repair_without_consent_changes_nothing() {
    let (world, frames) = marked_journal(10);
    world.disk.flip_bit(&path_of(&frames[2]), position_of(&frames[2]) + 70, 1).expect("flips");
    let before = world.disk.stats();
    assert_eq!(expect_err(repair(&world.env(), &shard_dir(), false)).kind, ErrorKind::Invalid);
    assert_eq!(world.disk.stats().writes, before.writes);
    let (sound, _) = marked_journal(11);
    let report = repair(&sound.env(), &shard_dir(), false).expect("nothing to do");
    assert!(report.damage.is_empty() && report.fenced.is_empty());
}

#[test]
fn a_repair_of_a_local_header_loses_nothing() {
    let (world, frames) = marked_journal(12);
    world.disk.flip_bit(&path_of(&frames[3]), position_of(&frames[3]) + 20, 1).expect("flips");
    let report = repair(&world.env(), &shard_dir(), true).expect("repairs");
    assert_eq!((report.damage.len(), report.lost_frames), (1, 0));
    assert_eq!(report.damage[0].lost, []);
    serves_the_rest(&world, &contents_of(&frames));
}

#[test]
fn a_repair_of_a_payload_keeps_the_other_entries_and_records_the_loss() {
    let (world, frames) = marked_journal(13);
    let frame = &frames[3];
    let lost = &frame.entries[0];
    let place = position_of(frame) + u64::from(lost.native.start) + 7;
    world.disk.flip_bit(&path_of(frame), place, 1).expect("flips");
    let report = repair(&world.env(), &shard_dir(), true).expect("repairs");
    assert_eq!((report.damage.len(), report.lost_frames), (1, 1));
    let fenced = world.disk.open(&report.fenced[0], OpenMode::Read).expect("kept");
    let mut kept = vec![0; frame.bytes.len()];
    fenced.read_exact_at(&mut kept, 0).expect("reads");
    let differing = kept.iter().zip(frame.bytes.iter()).filter(|(a, b)| a != b).count();
    assert_eq!(differing, 1, "the damaged bytes are kept as they were found");
    let mut expected = contents_of(&frames);
    expected.retain(|(p, o, _)| (*p, *o) != (lost.envelope.partition.0, lost.envelope.base_offset.0));
    let visited = serves_the_rest(&world, &expected);
    let body = visited.iter().find_map(Frame::lost).expect("a record of the loss");
    assert!(body.complete);
    let offset = lost.envelope.base_offset;
    let range = LostRange { partition: lost.envelope.partition, first: offset, end: Offset(offset.0 + 1) };
    assert_eq!(body.ranges, [range]);
}

#[test]
fn a_repair_of_several_places_keeps_everything_between() {
    let (world, frames) = marked_journal(14);
    // Both headers of one frame, so that nothing in it can be read, and the table of another.
    for (frame, bytes) in [(&frames[2], vec![20, 90]), (&frames[5], vec![140])] {
        for byte in bytes {
            world.disk.flip_bit(&path_of(frame), position_of(frame) + byte, 1).expect("flips");
        }
    }
    let found = check_journal(&world.env(), &shard_dir()).expect("checks");
    assert_eq!(found.damage.len(), 2, "{found}");
    let report = repair(&world.env(), &shard_dir(), true).expect("repairs");
    assert_eq!((report.damage.len(), report.lost_frames), (2, 2));
    let gone: Vec<u64> = [&frames[2], &frames[5]].iter().map(|f| f.entries[0].envelope.base_offset.0).collect();
    let mut expected = contents_of(&frames);
    expected.retain(|(_, o, _)| !gone.contains(o));
    let visited = serves_the_rest(&world, &expected);
    let bodies: Vec<_> = visited.iter().filter_map(Frame::lost).collect();
    assert_eq!(bodies.len(), 2);
    for (body, offset) in bodies.iter().zip(gone) {
        let range = |p| LostRange { partition: PartitionId(p), first: Offset(offset), end: Offset(offset + 1) };
        assert_eq!(body.ranges, [range(1), range(2)], "concluded from the entries around");
        assert!(!body.complete, "another partition may have been there too");
    }
}

/// Regression test: the search for the next valid frame skipped one that was intact except for an entry: the repaired log had a gap in
/// its indexes, and neither a start nor a repair accepted it.
#[test]
fn a_repair_of_two_frames_one_behind_the_other_leaves_no_gap() {
    let (world, frames) = marked_journal(17);
    let (first, second) = (&frames[3], &frames[4]);
    let body = u64::from(first.entries[1].native.start);
    for (first_byte, second_bytes) in [(body, vec![20, 90]), (body, vec![140]), (20, vec![20, 90]), (20, vec![20])] {
        let disk = world.disk.fork(first_byte);
        disk.flip_bit(&path_of(first), position_of(first) + first_byte, 1).expect("flips");
        for byte in second_bytes {
            disk.flip_bit(&path_of(second), position_of(second) + byte, 1).expect("flips");
        }
        let env = env_over(&world, &disk);
        let report = repair(&env, &shard_dir(), true).expect("repairs");
        assert_eq!(report.damage.len(), 2, "{:?}", report.damage);
        let (_, visited) = open_in(&env, config(), Index(0)).expect("opens");
        let indexes: Vec<u64> = visited.iter().map(|frame| frame.index.0).collect();
        assert_eq!(indexes, (0..=frames.last().expect("a frame").index.0).collect::<Vec<_>>());
        assert!(check_journal(&env, &shard_dir()).expect("checks").is_sound());
    }
}

#[test]
fn a_repair_of_the_last_durable_frame_replaces_it() {
    let (world, frames) = marked_journal(15);
    let last = frames.last().expect("a frame");
    for byte in [20, 90] {
        world.disk.flip_bit(&path_of(last), position_of(last) + byte, 1).expect("flips");
    }
    repair(&world.env(), &shard_dir(), true).expect("repairs");
    let expected = contents_of(&frames[..frames.len() - 1]);
    let visited = serves_the_rest(&world, &expected);
    assert_eq!(visited.last().map(|f| (f.kind, f.index)), Some((Kind::Lost, last.index)));
}

#[test]
fn a_repair_of_a_lost_file_header_loses_nothing() {
    let (world, frames) = marked_journal(16);
    let node = Node::start(&world, config()).expect("starts");
    for i in 6..30 {
        node.write(i, 1, i, 10_000);
    }
    let mut all = contents_of(&frames);
    all.extend(contents_of(&node.sink.frames()));
    let files = node.journal.sealed_files();
    node.journal.shutdown().expect("ends");
    for victim in &files {
        let disk = world.disk.fork(victim.sequence);
        let path = journal_dir().join(format!("{:016x}.plj", victim.sequence));
        let file = disk.open(&path, OpenMode::ReadWrite).expect("opens");
        file.write_all_at(&[0x55; 4096], 0).expect("writes");
        let env = env_over(&world, &disk);
        assert_eq!(expect_err(open_in(&env, config(), Index(0))).kind, ErrorKind::Damaged);
        let report = check_journal(&env, &shard_dir()).expect("checks");
        assert!(report.damage.iter().any(|d| d.what.contains("header")), "{report}");
        let report = repair(&env, &shard_dir(), true).expect("repairs");
        assert_eq!(report.lost_frames, 0);
        let (_, visited) = open_in(&env, config(), Index(0)).expect("opens");
        assert_eq!(contents(&visited), all, "file {:x}", victim.sequence);
    }
}

#[test]
fn a_sound_journal_is_counted() {
    let (world, frames) = marked_journal(17);
    let report = check_journal(&world.env(), &shard_dir()).expect("checks");
    assert!(report.is_sound());
    // The membership at index 0 was written before the sink existed.
    assert_eq!((report.frames, report.entries), (frames.len() as u64 + 1, 12));
    assert_eq!(report.payload_bytes, 6 * 400);
    assert_eq!(report.identity, Some(identity()));
    assert_eq!(report.indexes, Some((Index(0), frames.last().expect("a frame").index)));
    assert_eq!(report.durable, Some(frames.last().expect("a frame").index));
    assert_eq!(report.torn, None);
    let empty = SimWorld::new(18);
    assert!(check_journal(&empty.env(), &shard_dir()).expect("checks").is_sound());
}
