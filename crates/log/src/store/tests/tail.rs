//! Tests of the tail cache: it keeps frames for lagging readers, and grows for nothing else.

use super::rig::{Rig, kafka, small};
use crate::store::StoreConfig;
use polylogue_types::{Chunk, Offset, PartitionId};

const MIN: usize = 32 << 10;
const MAX: usize = 256 << 10;

fn rig() -> Rig {
    Rig::new(
        1,
        StoreConfig { tail_cache_bytes: MIN, tail_cache_bytes_max: MAX, read_cache_bytes: 0, ..small() },
        1 << 20,
    )
}

/// Writes about 4 KiB per frame.
fn write(rig: &Rig, frames: std::ops::Range<u64>) {
    for i in frames {
        rig.write(&[kafka(1, i, i, 1, i as i64, 3500)]);
    }
}

/// Whether a read of one entry was served from memory.
fn read(rig: &Rig, offset: u64) -> bool {
    let read = rig.store.read(PartitionId(1), Offset(offset), 1, true).unwrap().wait().unwrap();
    assert_eq!((read.start, read.next), (Offset(offset), Offset(offset + 1)));
    matches!(&read.chunks[..], [Chunk::Bytes(_)])
}

fn tail_bytes(rig: &Rig) -> usize {
    rig.store.stats().tail_bytes
}

#[test]
fn the_tail_does_not_grow_for_what_nothing_reads_and_not_for_readers_at_its_end() {
    let rig = rig();
    write(&rig, 0..100);
    assert!(tail_bytes(&rig) <= MIN);
    for i in 100..200 {
        write(&rig, i..i + 1);
        assert!(read(&rig, i - 2));
        assert!(tail_bytes(&rig) <= MIN);
    }
}

#[test]
fn the_tail_grows_for_a_reader_behind_and_gives_it_back_when_it_has_gone() {
    let rig = rig();
    write(&rig, 0..40);
    // It misses at first, then hits the frames that were kept for it.
    let from_disk = (0..100u64).filter(|i| {
        write(&rig, 40 + i..41 + i);
        assert!(tail_bytes(&rig) <= MAX);
        !read(&rig, *i)
    });
    let from_disk = from_disk.count();
    assert!((30..40).contains(&from_disk), "{from_disk} of 100 from the disk");
    assert!(tail_bytes(&rig) > 4 * MIN, "{}", tail_bytes(&rig));
    rig.store.release_unused_reads();
    assert!(tail_bytes(&rig) > 4 * MIN, "the reader may return");
    rig.store.release_unused_reads();
    assert!(tail_bytes(&rig) <= MIN);
}

#[test]
fn the_tail_keeps_its_bound_and_nothing_for_a_reader_that_it_will_not_reach() {
    let rig = rig();
    write(&rig, 0..200);
    for i in 0..100 {
        write(&rig, 200 + i..201 + i);
        read(&rig, i);
        assert!(tail_bytes(&rig) <= MIN, "800 KiB behind");
    }
    // A reader that falls behind by a frame each time finds its frames up to the limit, and no longer. At the lower limit it misses one.
    let in_memory = (0..100).map(|i| {
        write(&rig, 300 + 2 * i..302 + 2 * i);
        assert!(tail_bytes(&rig) <= MAX);
        read(&rig, 299 + i)
    });
    let in_memory: Vec<bool> = in_memory.collect();
    assert!(in_memory[..50].iter().filter(|found| !**found).count() <= 2, "{in_memory:?}");
    assert!(in_memory[70..].iter().all(|found| !*found), "{in_memory:?}");
}
