//! Tests of journal files that are read back in pieces: each range once for all partitions of a fetch, within a limit; damage affects only its partition.

use super::rig::{Rig, kafka, small};
use crate::error::ErrorKind;
use crate::store::read_cache::PIECE_BYTES;
use crate::store::{ColdRuns, ReadResult, ReadWanted, StoreConfig};
use bytes::Bytes;
use polylogue_env::sim::{Fault, FaultKind, FaultOp};
use polylogue_types::{Chunk, Offset, PartitionId};

const PARTITIONS: u64 = 32;
/// The size of a batch; a frame contains one for each partition. Bytes.
const BATCH_BYTES: usize = 4096;

/// A journal of frames with a batch for each partition.
fn rig(frames: u64, config: StoreConfig) -> Rig {
    let rig = Rig::new(1, config, 64 << 20);
    (0..frames).for_each(|i| write(&rig, i));
    rig
}

fn write(rig: &Rig, i: u64) {
    let entries: Vec<_> = (0..PARTITIONS).map(|p| kafka(p, i, i, 1, i as i64, BATCH_BYTES - 61)).collect();
    rig.write(&entries);
}

fn cached(pieces: usize) -> StoreConfig {
    StoreConfig { read_cache_bytes: pieces * PIECE_BYTES as usize, ..small() }
}

/// The positions of a reader of all partitions.
#[derive(Clone, Debug)]
struct Reader {
    at: Vec<u64>,
    got: Vec<Vec<u8>>,
}

impl Reader {
    fn new() -> Reader {
        Reader { at: vec![0; PARTITIONS as usize], got: vec![Vec::new(); PARTITIONS as usize] }
    }

    /// Fetches some partitions as the broker does. Returns the results.
    fn fetch(&mut self, rig: &Rig, of: impl Iterator<Item = u64> + Clone) -> Vec<ReadResult> {
        let wanted = of.clone().map(|p| ReadWanted {
            partition: PartitionId(p),
            from: Offset(self.at[p as usize]),
            bytes_max: 1 << 20,
        });
        let wanted: Vec<_> = wanted.collect();
        let plan = rig.store.prefetch(&wanted, 64 << 20);
        let cold = plan.map_or(ColdRuns::Take, |plan| ColdRuns::Within(plan.run()));
        let mut found = Vec::new();
        for (p, wanted) in of.zip(&wanted) {
            let first = found.iter().all(|read: &ReadResult| read.bytes == 0);
            let read = rig.store.read_with(wanted.partition, wanted.from, 1 << 20, first, cold).unwrap();
            let read = read.wait().unwrap();
            read.chunks.iter().for_each(|c| self.got[p as usize].extend_from_slice(&c.to_bytes().unwrap()));
            self.at[p as usize] = read.next.0;
            found.push(read);
        }
        found
    }

    fn read_all(&mut self, rig: &Rig) {
        while self.fetch(rig, 0..PARTITIONS).iter().any(|read| read.bytes > 0) {}
    }
}

fn reads(rig: &Rig) -> u64 {
    rig.world.disk.stats().reads
}

/// Returns the partitions' contents, read one by one without a cache.
fn plain(frames: u64) -> Vec<Vec<u8>> {
    let rig = rig(frames, cached(0));
    assert!(
        rig.store.prefetch(&[ReadWanted { partition: PartitionId(0), from: Offset(0), bytes_max: 1 }], 1).is_none()
    );
    (0..PARTITIONS).map(|p| rig.read_all(p, 0, 1 << 20).unwrap().1).collect()
}

fn in_memory(reads: &[ReadResult]) -> bool {
    reads.iter().flat_map(|read| &read.chunks).all(|chunk| matches!(chunk, Chunk::Bytes(_)))
}

#[test]
fn a_stretch_is_read_once_for_all_partitions_and_all_readers() {
    let rig = rig(40, cached(64));
    // Headers and envelopes too.
    let pieces = (41 * PARTITIONS * BATCH_BYTES as u64).div_ceil(u64::from(PIECE_BYTES));
    let (before, mut reader) = (reads(&rig), Reader::new());
    let first = reader.fetch(&rig, 0..PARTITIONS);
    assert!(in_memory(&first) && first.iter().all(|read| read.bytes >= 30 * BATCH_BYTES as u64), "{first:?}");
    reader.read_all(&rig);
    assert_eq!(reader.got, plain(40));
    assert_eq!(reads(&rig) - before, pieces);
    let (before, mut other) = (reads(&rig), Reader::new());
    other.read_all(&rig);
    assert_eq!((other.got, reads(&rig)), (reader.got, before), "another reader is served from memory");
    let stats = rig.store.stats();
    assert_eq!(stats.read_back_bytes, 2 * 40 * PARTITIONS * BATCH_BYTES as u64, "{stats:?}");
    assert!(stats.read_back_pieces == pieces && stats.read_file_bytes == 0, "{stats:?}");
}

#[test]
fn partitions_go_through_the_journal_together_within_a_window() {
    let rig = rig(64, cached(4));
    let (before, mut reader, mut rounds) = (reads(&rig), Reader::new(), 0);
    while reader.fetch(&rig, 0..PARTITIONS).iter().any(|read| read.bytes > 0) {
        let (least, most) = (reader.at.iter().min().unwrap(), reader.at.iter().max().unwrap());
        assert!(most - least <= 1, "{:?}", reader.at);
        rounds += 1;
        assert!(rig.store.stats().read_cache_bytes <= 4 * (PIECE_BYTES as usize + 4096));
    }
    assert_eq!(reader.got, plain(64));
    assert!((8..=12).contains(&rounds), "{rounds}");
    // With a cache of half the journal each piece is read once, or twice where a window starts in it.
    assert!(reads(&rig) - before <= 16, "{} reads", reads(&rig) - before);
}

#[test]
fn what_is_far_apart_is_read_by_itself_until_others_want_it_or_the_pieces_before_it_were_used() {
    let rig = rig(200, cached(64));
    let want = |p, from| ReadWanted { partition: PartitionId(p), from: Offset(from), bytes_max: 1 << 20 };
    // A thirty-second of the journal, and another.
    let alone: Vec<_> = (0..12).map(|p| rig.store.prefetch(&[want(p, 0)], 64 << 20).is_some()).collect();
    let refused = alone.iter().take_while(|pays| !**pays).count();
    assert_eq!(refused, 8, "nearly a quarter was requested before the ninth: {alone:?}");
    let mut reader = Reader::new();
    reader.fetch(&rig, 0..PARTITIONS);
    let at = reader.at[5];
    assert!((120..140).contains(&at), "{at}");
    assert!(rig.store.prefetch(&[want(5, at)], 64 << 20).is_some(), "the others will read that too");
    assert!(rig.store.prefetch(&[want(5, at + 50)], 64 << 20).is_none(), "no other reader has requested that place");
}

#[test]
fn pieces_read_ahead_serve_the_next_fetch_and_take_one_window_of_the_cache() {
    let rig = rig(200, cached(16));
    let ahead = |reader: &Reader, limit: u64| {
        let at = reader.at.iter().enumerate();
        let wanted: Vec<_> = at
            .map(|(p, at)| ReadWanted {
                partition: PartitionId(p as u64),
                from: Offset(*at + limit),
                bytes_max: 1 << 20,
            })
            .collect();
        rig.store.prefetch_ahead(&wanted, 64 << 20).map(|plan| plan.run())
    };
    let mut reader = Reader::new();
    assert!(rig.store.prefetch_ahead(&[], 64 << 20).is_none());
    reader.fetch(&rig, 0..PARTITIONS);
    let before = reads(&rig);
    assert!(ahead(&reader, 0).is_some());
    // The window is four pieces, and ends in a fifth.
    assert_eq!(reads(&rig) - before, 4);
    assert!(ahead(&reader, 50).is_some());
    assert_eq!(reads(&rig) - before, 4, "those wait for their first use");
    let first = reader.fetch(&rig, 0..PARTITIONS);
    assert!(in_memory(&first));
    assert!(reads(&rig) - before <= 5, "{} reads", reads(&rig) - before);
    assert!(ahead(&reader, 0).is_some());
    assert!(reads(&rig) - before > 5, "they are used now");
    reader.read_all(&rig);
    assert_eq!(reader.got, plain(200));
}

/// A prefetch that is only predicted does not count as demand.
#[test]
fn what_is_not_worth_reading_ahead_is_not_noted_as_wanted() {
    let rig = rig(200, cached(64));
    let want = |p| ReadWanted { partition: PartitionId(p), from: Offset(0), bytes_max: 1 << 20 };
    assert!((0..12).all(|p| rig.store.prefetch_ahead(&[want(p)], 64 << 20).is_none()));
    assert!(rig.store.prefetch(&[want(12)], 64 << 20).is_none());
}

#[test]
fn damage_in_a_piece_is_refused_alone() {
    let mut rig = rig(40, cached(64));
    let place = {
        let state = rig.store.shared.state.lock();
        let run = state.partition(PartitionId(5)).unwrap().runs[3];
        state.frames.slot(run.slot).unwrap().position + u64::from(run.position) + 100
    };
    rig.world.disk.flip_bit(&rig.journal.files()[0], place, 3).unwrap();
    let files = rig.journal.files();
    assert_eq!(files.len(), 1);
    rig.reopen(true);
    let mut reader = Reader::new();
    reader.fetch(&rig, 0..PARTITIONS);
    assert_eq!(reader.at[5], 3, "up to the damage");
    assert!((0..PARTITIONS as usize).all(|p| p == 5 || reader.at[p] == 40), "{:?}", reader.at);
    let read = |from| rig.store.read(PartitionId(5), Offset(from), 1 << 20, true).and_then(|l| l.wait());
    assert_eq!(read(3).unwrap_err().kind, ErrorKind::Damaged);
    assert_eq!(read(4).unwrap().start, Offset(4));
    assert_eq!(rig.store.fenced().len(), 1);
    // A fetch of it and others is not delayed by it.
    let want =
        |p| ReadWanted { partition: PartitionId(p), from: Offset(if p == 5 { 3 } else { 0 }), bytes_max: 1 << 20 };
    assert!(rig.store.prefetch(&[want(5), want(6)], 1 << 20).is_some());
}

#[test]
fn what_cannot_be_read_in_a_piece_is_read_by_itself() {
    let rig = rig(40, cached(64));
    rig.world.disk.inject(Fault::nth(FaultOp::Read, 2, FaultKind::Io));
    let mut reader = Reader::new();
    let first = reader.fetch(&rig, 0..PARTITIONS);
    assert!(!in_memory(&first), "the second piece is missing");
    reader.read_all(&rig);
    assert_eq!(reader.got, plain(40));
}

#[test]
fn pieces_that_responses_hold_count_and_no_more_are_made() {
    let rig = rig(40, cached(2));
    let (mut reader, mut held) = (Reader::new(), Vec::new());
    loop {
        let found = reader.fetch(&rig, 0..PARTITIONS);
        if found.iter().all(|read| read.bytes == 0) {
            break;
        }
        held.push(found);
        assert!(rig.store.stats().read_cache_bytes <= 2 * (PIECE_BYTES as usize + 4096));
    }
    assert_eq!(reader.got, plain(40));
    assert_eq!(rig.store.stats().read_back_pieces, 2);
    let held_bytes: Vec<Bytes> = held[0][0].chunks.iter().map(|chunk| chunk.to_bytes().unwrap()).collect();
    assert_eq!(held_bytes[0], reader.got[0][..held_bytes[0].len()], "what is held stays as it was");
    // Pieces unused since the last time are freed; those in use are not.
    drop(held);
    rig.store.release_unused_reads();
    rig.store.release_unused_reads();
    assert_eq!(rig.store.stats().read_cache_bytes, PIECE_BYTES as usize + 4096);
    drop(held_bytes);
    rig.store.release_unused_reads();
    assert_eq!(rig.store.stats().read_cache_bytes, 0);
}

#[test]
fn a_piece_that_was_not_complete_is_read_again_for_what_came_after_it() {
    let rig = rig(4, cached(64));
    let mut reader = Reader::new();
    reader.read_all(&rig);
    (4..12).for_each(|i| write(&rig, i));
    reader.read_all(&rig);
    assert_eq!(reader.got, plain(12));
    assert_eq!(rig.store.stats().read_back_pieces, 3);
}
