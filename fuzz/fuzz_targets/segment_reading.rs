//! Segments and manifests as a damaged disk might hand them back: nothing panics, nothing takes memory that the bytes do not
//! pay for, and what verifies is consistent.
//!
//! The first byte says what the rest is. A fuzzer finds no checksums, so they are put right in most of the runs.

#![no_main]

use libfuzzer_sys::fuzz_target;
use polylogue_env::sim::SimWorld;
use polylogue_env::{Env, OpenMode};
use polylogue_log::store::segment::entries::{decode_table, scan};
use polylogue_log::store::segment::{Block, Row, SparseIndex, Table};
use polylogue_log::store::{ShardStore, StoreConfig, check_segments};
use polylogue_record::crc::crc32c;
use polylogue_record::envelope::Form;
use polylogue_types::{Offset, Ordinal, PartitionId, RangeSource};
use std::io;
use std::path::Path;

fuzz_target!(|input: &[u8]| {
    let Some((&how, bytes)) = input.split_first() else { return };
    match how % 5 {
        0 => table(bytes, how & 64 == 0),
        1 => sparse_index(bytes),
        2 => entry_table(bytes),
        3 => drop(scan(Form::KafkaV2, bytes, Ordinal(0))),
        _ => directory(bytes),
    }
});

#[derive(Debug)]
struct Memory(Vec<u8>);

impl RangeSource for Memory {
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        let start = usize::try_from(position).map_err(io::Error::other)?;
        let from = start.checked_add(into.len()).and_then(|end| self.0.get(start..end));
        into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn raw_fd(&self) -> Option<i32> {
        None
    }
}

/// Puts a checksum over everything before the last four bytes.
fn seal(bytes: &mut [u8]) {
    if let Some(end) = bytes.len().checked_sub(4) {
        let sum = crc32c(&bytes[..end]);
        bytes[end..].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A segment file around any rows: magics, versions, lengths and checksums are right.
fn segment(rows: &[u8], native: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend_from_slice(b"plg-sgmt");
    file.extend_from_slice(&[1, 0, 1, 0]);
    file.resize(64, 0);
    seal(&mut file);
    file.extend_from_slice(native);
    let table = file.len() as u64;
    let rows = &rows[..rows.len() / 96 * 96];
    file.extend_from_slice(rows);
    let start = file.len();
    file.extend_from_slice(b"plg-foot");
    file.extend_from_slice(&table.to_le_bytes());
    file.extend_from_slice(&(rows.len() as u32 / 96).to_le_bytes());
    file.extend_from_slice(&crc32c(rows).to_le_bytes());
    file.resize(start + 64, 0);
    seal(&mut file[start..]);
    file
}

fn table(bytes: &[u8], whole: bool) {
    let file = match bytes.split_at_checked(192) {
        Some((rows, native)) if whole => segment(rows, native),
        _ => bytes.to_vec(),
    };
    let size = file.len() as u64;
    let source = Memory(file);
    let Ok(table) = Table::read(&source, size, size) else { return };
    for (_, row) in &table.rows {
        assert!(u64::from(row.position) + u64::from(row.len) <= size);
        let position = u64::from(row.tables) + u64::from(row.tables_len);
        let mut index = vec![0; row.index_len as usize];
        assert!(source.read_exact_at(&mut index, position).is_ok());
        seal(&mut index);
        walk(row, &index);
    }
}

/// The index of a row verifies only if it covers the row exactly.
fn walk(row: &Row, index: &[u8]) {
    let Ok(sparse) = SparseIndex::decode(row, index) else { return };
    let total: u64 = sparse.blocks.iter().map(|b| u64::from(b.len)).sum();
    assert_eq!(total, u64::from(row.len));
    for (i, block) in sparse.blocks.iter().enumerate() {
        assert!(block.base >= row.base && block.base < row.end);
        assert_eq!(sparse.find(block.base), i);
    }
    let mut again = Vec::new();
    sparse.encode(&mut again);
    assert_eq!(SparseIndex::decode(row, &again).ok().as_ref(), Some(&sparse));
}

fn row_of(bytes: &[u8; 96]) -> Option<Row> {
    Row::decode(bytes).ok()
}

fn sparse_index(bytes: &[u8]) {
    let Some((row, rest)) = bytes.split_first_chunk() else { return };
    let Some(mut row) = row_of(row) else { return };
    let mut index = rest.to_vec();
    seal(&mut index);
    row.index_len = index.len() as u32;
    walk(&row, &index);
}

fn entry_table(bytes: &[u8]) {
    let Some((row, rest)) = bytes.split_first_chunk() else { return };
    let Some(row) = row_of(row) else { return };
    let mut table = rest.to_vec();
    seal(&mut table);
    let block = Block {
        base: row.base,
        ordinal: row.first_ordinal,
        max_timestamp: 0,
        position: 0,
        len: row.len,
        table: 0,
        table_len: table.len() as u32,
        entries: row.entries,
        crc: 0,
    };
    if let Ok(envelopes) = decode_table(&row, &block, &table) {
        assert_eq!(envelopes.len(), row.entries as usize);
        assert!(envelopes.is_sorted_by_key(|e| e.base_offset));
    }
}

/// A shard's directory whose manifest and one segment are any bytes, read through the store.
fn directory(bytes: &[u8]) {
    let Some((&split, rest)) = bytes.split_first() else { return };
    let (body, segments) = rest.split_at(rest.len() * usize::from(split) / 256);
    let world = SimWorld::new(1);
    let env = world.env();
    let dir = Path::new("/shard");
    let put = |name: &str, content: &[u8]| {
        let file = env.disk.open(&dir.join(name), OpenMode::CreateNew).expect("a new file");
        file.write_all_at(content, 0).expect("room");
    };
    env.disk.create_dir_all(&dir.join("segments")).expect("a directory");
    let mut manifest = Vec::new();
    manifest.extend_from_slice(b"plg-mnfs");
    manifest.extend_from_slice(&[1, 0, 0, 0]);
    manifest.extend_from_slice(&(body.len() as u64).to_le_bytes());
    manifest.extend_from_slice(&1u64.to_le_bytes());
    manifest.extend_from_slice(body);
    let sum = crc32c(&manifest);
    manifest.extend_from_slice(&sum.to_le_bytes());
    manifest.extend_from_within(..);
    put("manifest", &manifest);
    put("segments/0000000000000000-s-00-0000-0000.seg", segments);
    drop(check_segments(&env, dir));
    questions(&env, dir);
}

fn questions(env: &Env, dir: &Path) {
    let Ok((store, _)) = ShardStore::open(env.clone(), dir, StoreConfig::default()) else { return };
    for partition in (0..4).map(PartitionId) {
        let Some(stats) = store.partition_stats(partition) else { continue };
        for from in [stats.first, Offset(stats.end.0 / 2), stats.end] {
            drop(store.read(partition, from, 1 << 16, true).and_then(|l| l.wait()));
            drop(store.entry_at(partition, from).and_then(|l| l.wait()));
        }
        drop(store.max_timestamp_entry(partition, Offset(0)).and_then(|l| l.wait()));
        drop(store.find_by_time(partition, 0, Offset(0)).and_then(|l| l.wait()));
    }
    drop(store.checkpoints().and_then(|c| c.load(&mut |_, _| Ok(()))));
}
