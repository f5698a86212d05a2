//! Tests of the segment file format.

use crate::error::ErrorKind;
use crate::store::segment::entries::{TableEncoder, decode_table, scan};
use crate::store::segment::format::encode_header;
use crate::store::segment::writer::{NewEntry, SegmentWriter};
use crate::store::segment::{Block, Row, SegmentKind, SegmentName, SparseIndex, Table};
use bytes::Bytes;
use polylogue_env::sim::{SimRng, SimWorld};
use polylogue_env::{DiskFile, OpenMode, Rng};
use polylogue_record::crc;
use polylogue_record::envelope::{Body, EntryFlags, Envelope, Form, Producer};
use polylogue_types::{Index, Offset, Ordinal, PartitionId, ProducerId};
use std::path::Path;
use std::sync::Arc;

fn name() -> SegmentName {
    let (kind, journal_file) = (SegmentKind::Sorted, 0);
    SegmentName { upto: Index(77), first: Index(5), kind, class: 3, part: 1, rewrite: 2, journal_file }
}

fn some<T>(rng: &SimRng, make: impl FnOnce() -> T) -> Option<T> {
    (rng.below(2) == 0).then(make)
}

/// Returns a random valid envelope for an offset from `base` on.
fn envelope(rng: &SimRng, base: u64, ordinal: u64) -> (Envelope, Vec<u8>) {
    let mut bytes = vec![0; rng.below(60) as usize];
    rng.fill(&mut bytes);
    let any = || rng.next_u64() as i64;
    let e = Envelope {
        ordinal: Ordinal(ordinal),
        base_offset: Offset(base + rng.below(3)),
        count: 1 + rng.below(1000) as u32,
        append_time: any() >> rng.below(64),
        max_timestamp: any() >> rng.below(64),
        leader_epoch: rng.next_u64() as u32,
        flags: EntryFlags::NONE.with_if(rng.below(2) == 0, EntryFlags::TRANSIENT),
        body: Body::Inline { len: bytes.len() as u32, checksum: crc::crc32c(&bytes) },
        producer: some(rng, || Producer {
            id: ProducerId(any()),
            epoch: any() as i16,
            base_sequence: any(),
            last_sequence: any(),
        }),
        deliver_at: some(rng, any),
        expires_at: some(rng, any),
        priority: some(rng, || any() as u8),
        key_hash: some(rng, || any() as u32),
        transaction: some(rng, || any() as u64),
        ..Envelope::new(PartitionId(9), Form::RocketMq)
    };
    (e, bytes)
}

/// Writes a segment of two partitions with random entries; returns those of the first.
fn segment(rng: &SimRng, file: Arc<dyn DiskFile>, interval: u32) -> (Table, Vec<(Envelope, Vec<u8>)>) {
    let mut writer = SegmentWriter::new(file.clone(), file.clone(), name(), interval);
    let mut all = Vec::new();
    for partition in [9, 12] {
        writer.begin_run(PartitionId(partition), Form::RocketMq, None).unwrap();
        let (mut next, mut ordinal) = (rng.below(100), rng.below(100));
        for _ in 0..1 + rng.below(60) {
            ordinal += rng.below(9) / 8;
            let (e, bytes) = envelope(rng, next, ordinal);
            let Body::Inline { len, checksum } = e.body else { unreachable!() };
            let entry = NewEntry {
                base: e.base_offset,
                end: e.next_offset(),
                ordinal: e.ordinal,
                max_timestamp: e.max_timestamp,
                append_time: e.append_time,
                checksum,
                len,
                envelope: Some(&e),
            };
            writer.entry(&entry).unwrap();
            assert_eq!(writer.entry(&entry).unwrap_err().kind, ErrorKind::Invalid, "twice");
            writer.native(&bytes);
            (next, ordinal) = (e.next_offset().0, ordinal + 1);
            if partition == 9 {
                all.push((e, bytes));
            }
        }
    }
    let finished = writer.finish().unwrap();
    let table = Table::read(&*file.as_range_source(), finished.len, finished.len).unwrap();
    let numbered: Vec<_> = (0..).zip(finished.rows).collect();
    assert_eq!(table.rows, numbered);
    assert_eq!(table.expected.name, name());
    (table, all)
}

fn file(world: &SimWorld, path: &str) -> Arc<dyn DiskFile> {
    world.env().disk.open(Path::new(path), OpenMode::CreateNew).unwrap()
}

fn bytes_of(file: &dyn DiskFile, position: u64, len: u32) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, position).unwrap();
    bytes
}

fn sparse(file: &dyn DiskFile, row: &Row) -> SparseIndex {
    let bytes = bytes_of(file, u64::from(row.tables) + u64::from(row.tables_len), row.index_len);
    SparseIndex::decode(row, &bytes).unwrap()
}

#[test]
fn everything_that_an_envelope_says_comes_back() {
    let world = SimWorld::new(1);
    for seed in 0..100 {
        let rng = SimRng::new(seed);
        let file = file(&world, &format!("/{seed}"));
        let (table, entries) = segment(&rng, file.clone(), [1, 64, 300, 1 << 20][rng.below(4) as usize]);
        let row = &table.rows[0].1;
        assert_eq!((row.base, row.end), (entries[0].0.base_offset, entries.last().unwrap().0.next_offset()));
        assert_eq!(row.max_timestamp, entries.iter().map(|e| e.0.max_timestamp).max().unwrap().max(-1));
        let index = sparse(&*file, row);
        let (mut found, mut natives) = (Vec::new(), Vec::new());
        for block in &index.blocks {
            let native = bytes_of(&*file, u64::from(row.position + block.position), block.len);
            assert_eq!(crc::crc32c(&native), block.crc);
            natives.extend(native);
            let table = bytes_of(&*file, u64::from(row.tables + block.table), block.table_len);
            found.extend(decode_table(row, block, &table).unwrap());
        }
        let (expected, bytes): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        assert_eq!(found, expected);
        assert_eq!(natives, bytes.concat());
    }
}

#[test]
fn a_usual_entry_takes_about_fifteen_bytes_of_index() {
    let mut out = Vec::new();
    let mut encoder = TableEncoder::new(&out, Offset(1000));
    for i in 0..100u64 {
        let mut e = Envelope::new(PartitionId(1), Form::AmqpMessage);
        (e.base_offset, e.count, e.append_time) = (Offset(1000 + i), 1, 1_800_000_000_000 + i as i64);
        (e.max_timestamp, e.leader_epoch) = (e.append_time - 20, 9);
        encoder.push(&mut out, &e, 1024, 0x1234_5678);
    }
    assert!(encoder.finish(&mut out) < 16 * 100, "{}", out.len());
}

#[test]
fn other_files_are_told_apart() {
    let world = SimWorld::new(1);
    let file = file(&world, "/a");
    let (table, _) = segment(&SimRng::new(3), file.clone(), 100);
    let size = file.size().unwrap();
    let read = |file: &Arc<dyn DiskFile>, size| Table::read(&*file.clone().as_range_source(), size, size);
    assert_eq!(read(&file, size - 1).unwrap_err().kind, ErrorKind::Damaged);
    assert_eq!(read(&file, 10).unwrap_err().kind, ErrorKind::Damaged);
    // Native bytes beyond the end of the file.
    assert!(Table::read(&*file.clone().as_range_source(), size, 70).is_err());
    let mut header = encode_header(&table.expected.name);
    header[8] += 1;
    let sum = crc::crc32c(&header[..60]);
    header[60..].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&header, 0).unwrap();
    assert_eq!(read(&file, size).unwrap_err().kind, ErrorKind::Incompatible);
    file.write_all_at(&[0; 64], 0).unwrap();
    assert_eq!(read(&file, size).unwrap_err().kind, ErrorKind::Damaged);
}

/// Adds valid checksums to invalid values, so that the values themselves are checked.
#[test]
fn values_that_cannot_be_are_damage_and_no_panic() {
    let world = SimWorld::new(1);
    let file = file(&world, "/a");
    let (table, _) = segment(&SimRng::new(5), file.clone(), 100);
    let size = file.size().unwrap();
    let row = table.rows[0].1;
    let index = sparse(&*file, &row);
    let position = u64::from(row.tables) + u64::from(row.tables_len);
    let (mut refused, mut read) = (0, 0);
    for seed in 0..20_000 {
        let rng = SimRng::new(seed);
        let change = |bytes: &mut Vec<u8>| {
            let len = bytes.len() - 4;
            for _ in 0..=rng.below(3) {
                bytes[rng.below(len as u64) as usize] = rng.next_u64() as u8;
            }
            let sum = crc::crc32c(&bytes[..len]);
            bytes[len..].copy_from_slice(&sum.to_le_bytes());
        };
        let mut sparse = bytes_of(&*file, position, row.index_len);
        change(&mut sparse);
        let block = index.blocks[rng.below(index.blocks.len() as u64) as usize];
        let mut entries = bytes_of(&*file, u64::from(row.tables + block.table), block.table_len);
        change(&mut entries);
        let mut raw = polylogue_types::bin::BinWriter::new();
        row.encode(&mut raw);
        raw.out[rng.below(96) as usize] = rng.next_u64() as u8;
        let row_result = Row::decode(&raw.out);
        for ok in [
            SparseIndex::decode(&row, &sparse).is_ok(),
            decode_table(&row, &block, &entries).is_ok(),
            row_result.is_ok(),
        ] {
            *(if ok { &mut read } else { &mut refused }) += 1;
        }
        if let Ok(row) = row_result {
            drop(SparseIndex::decode(&row, &sparse));
        }
        let noise: Vec<u8> = entries.iter().map(|b| b ^ (rng.next_u64() & 1) as u8).collect();
        drop(scan(Form::KafkaV2, &noise, Ordinal(0)));
    }
    assert!(refused > 10_000 && read > 1_000, "{refused} {read}");
    assert_eq!(size, file.size().unwrap());
}

#[test]
fn scanning_wants_whole_batches_in_order() {
    let (first, second) = (super::rig::kafka(1, 0, 5, 3, 9, 40).1, super::rig::kafka(1, 1, 10, 1, 8, 0).1);
    let both = [first.clone(), second.clone()].concat();
    let spans = scan(Form::KafkaV2, &both, Ordinal(4)).unwrap();
    let found: Vec<_> =
        spans.iter().map(|s| (s.base.0, s.end.0, s.ordinal.0, s.position, s.len, s.max_timestamp)).collect();
    assert_eq!(found, [(5, 8, 4, 0, 101, 9), (10, 11, 5, 101, 61, 8)]);
    let bad: [Bytes; 4] = [
        [second, first.clone()].concat().into(),
        both[..both.len() - 1].to_vec().into(),
        both[1..].to_vec().into(),
        [&first[..16], &[1], &first[17..]].concat().into(),
    ];
    for bytes in bad {
        assert_eq!(scan(Form::KafkaV2, &bytes, Ordinal(0)).unwrap_err().kind, ErrorKind::Damaged);
    }
    assert!(scan(Form::Opaque, &both, Ordinal(0)).is_err());
}

#[test]
fn the_last_block_before_an_offset_is_found() {
    let block = |base: u64| Block {
        base: Offset(base),
        ordinal: Ordinal(base),
        max_timestamp: 0,
        position: 0,
        len: 1,
        table: 0,
        table_len: 0,
        entries: 1,
        crc: 0,
    };
    let index = SparseIndex { blocks: vec![block(10), block(20), block(25)] };
    let found = [0, 10, 19, 20, 24, 25, 1000].map(|o| index.find(Offset(o)));
    assert_eq!(found, [0, 0, 0, 1, 1, 2, 2]);
}
