//! One checkpoint file: writing it, and reading its directory.

use super::{CHECKPOINT_DIR, CHUNK_BYTES_MAX, ChunkKey, KEY_BYTES_MAX, file_names};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Keeper, flushed};
use bytes::Bytes;
use polylogue_env::{DiskFile, Env, OpenMode};
use polylogue_record::crc;
use polylogue_types::Index;
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The version of the layout.
const VERSION: u16 = 1;
const MAGIC: u64 = u64::from_le_bytes(*b"plg-ckpt");
const FOOTER_MAGIC: u64 = u64::from_le_bytes(*b"plg-ckft");
const HEADER_BYTES: usize = 28;
const FOOTER_BYTES: usize = 28;
/// Minimum size of a directory entry. Bytes.
const ENTRY_BYTES_MIN: usize = 20;
/// What is collected before it is written. Bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// The location of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// The file.
    pub(super) sequence: u64,
    pub(super) position: u64,
    pub(super) len: u32,
    pub(super) crc: u32,
}

/// What a file says: for each key a chunk, or that it was removed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Directory {
    pub(super) entries: BTreeMap<ChunkKey, Option<Place>>,
}

impl Directory {
    /// Reads the directory of a file; `len` is what the manifest says.
    pub(super) fn read(file: &dyn DiskFile, name: &str, sequence: u64, len: u64) -> Result<Directory> {
        let wrong = |what: &str| Error::new(ErrorKind::Damaged, format!("{name}: {what}"));
        let io = |e| Error::io(format!("cannot read {name}"), e);
        if file.size().map_err(io)? != len || len < (HEADER_BYTES + FOOTER_BYTES) as u64 {
            return Err(wrong("it has another length than the manifest says"));
        }
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0).map_err(io)?;
        check_header(&header, sequence).map_err(|version| match version {
            Some(v) => Error::new(
                ErrorKind::Incompatible,
                format!("{name} has version {v}; this program reads up to {VERSION}"),
            ),
            None => wrong("its header does not verify"),
        })?;
        let end = len - FOOTER_BYTES as u64;
        let mut footer = [0; FOOTER_BYTES];
        file.read_exact_at(&mut footer, end).map_err(io)?;
        let (start, count, sum) = decode_footer(&footer).ok_or_else(|| wrong("its footer does not verify"))?;
        if start < HEADER_BYTES as u64 || start > end {
            return Err(wrong("its directory is outside of it"));
        }
        let mut bytes = vec![0; (end - start) as usize];
        file.read_exact_at(&mut bytes, start).map_err(io)?;
        if crc::crc32c(&bytes) != sum {
            return Err(wrong("its directory does not verify"));
        }
        let directory = decode_entries(&bytes, count, sequence).map_err(|e| wrong(&e.to_string()))?;
        let inside = |p: &Place| p.position >= HEADER_BYTES as u64 && p.position + u64::from(p.len) <= start;
        if !directory.entries.values().flatten().all(inside) {
            return Err(wrong("a chunk is outside of it"));
        }
        Ok(directory)
    }
}

/// The error is a later version, or none for damage.
fn check_header(header: &[u8; HEADER_BYTES], sequence: u64) -> std::result::Result<(), Option<u16>> {
    let mut r = BinReader::new(header);
    let mut decode = || -> std::result::Result<_, BinError> {
        let (magic, version, _) = (r.u64("magic")?, r.u16("version")?, r.u16("zeros")?);
        let (number, _) = (r.u32("number")?, r.u64("applied")?);
        Ok((magic, version, number, r.u32("crc")?))
    };
    let (magic, version, number, sum) = decode().map_err(|_| None)?;
    let summed = header.get(..HEADER_BYTES - 4).unwrap_or_default();
    if magic != MAGIC || crc::crc32c(summed) != sum {
        return Err(None);
    }
    if version > VERSION {
        return Err(Some(version));
    }
    if number == sequence as u32 { Ok(()) } else { Err(None) }
}

fn decode_footer(footer: &[u8; FOOTER_BYTES]) -> Option<(u64, u32, u32)> {
    let mut r = BinReader::new(footer);
    let (start, count, sum) = (r.u64("directory").ok()?, r.u32("chunks").ok()?, r.u32("crc").ok()?);
    let magic = r.u64("magic").ok()?;
    let own = r.u32("crc").ok()?;
    let summed = footer.get(..FOOTER_BYTES - 4)?;
    (magic == FOOTER_MAGIC && crc::crc32c(summed) == own).then_some((start, count, sum))
}

fn decode_entries(bytes: &[u8], count: u32, sequence: u64) -> std::result::Result<Directory, BinError> {
    let mut r = BinReader::new(bytes);
    if count as usize > bytes.len() / ENTRY_BYTES_MIN {
        return Err(BinError { field: "directory" });
    }
    let mut directory = Directory::default();
    for _ in 0..count {
        let kind = r.u8("kind")?;
        let key_len = usize::from(r.u16("key length")?);
        if key_len > KEY_BYTES_MAX {
            return Err(BinError { field: "key length" });
        }
        let id = Bytes::copy_from_slice(r.take(key_len, "key")?);
        let removed = r.u8("removed")? != 0;
        let (position, len, crc) = (r.u64("position")?, r.u32("length")?, r.u32("crc")?);
        if len as usize > CHUNK_BYTES_MAX || position > i64::MAX as u64 {
            return Err(BinError { field: "length" });
        }
        let place = (!removed).then_some(Place { sequence, position, len, crc });
        directory.entries.insert(ChunkKey { kind, id }, place);
    }
    r.end("directory")?;
    Ok(directory)
}

/// Writes both copies of a file.
#[derive(Debug)]
pub(super) struct FileWriter {
    copies: [Arc<dyn DiskFile>; 2],
    sequence: u64,
    written: u64,
    buffer: Vec<u8>,
    directory: Directory,
}

impl FileWriter {
    pub(super) fn new(copies: [Arc<dyn DiskFile>; 2], sequence: u64, applied: Index) -> FileWriter {
        let mut w = BinWriter::new();
        w.u64(MAGIC).u16(VERSION).u16(0).u32(sequence as u32).u64(applied.0);
        let sum = crc::crc32c(&w.out);
        w.u32(sum);
        FileWriter { copies, sequence, written: 0, buffer: w.out, directory: Directory::default() }
    }

    /// Adds a chunk, or that it was removed. The last one of a key counts.
    pub(super) fn chunk(&mut self, key: ChunkKey, chunk: Option<&Bytes>) -> Result<()> {
        let place = chunk.map(|bytes| Place {
            sequence: self.sequence,
            position: self.written + self.buffer.len() as u64,
            // Held against CHUNK_BYTES_MAX by the caller.
            len: bytes.len() as u32,
            crc: crc::crc32c(bytes),
        });
        self.directory.entries.insert(key, place);
        self.buffer.extend_from_slice(chunk.map_or(&[][..], |bytes| bytes));
        if self.buffer.len() >= BUFFER_BYTES { self.write_out() } else { Ok(()) }
    }

    pub(super) fn has(&self, key: &ChunkKey) -> bool {
        self.directory.entries.contains_key(key)
    }

    /// The file holds everything: nothing older needs a record of its removal.
    pub(super) fn forget_removed(&mut self) {
        self.directory.entries.retain(|_, place| place.is_some());
    }

    fn write_out(&mut self) -> Result<()> {
        for (file, name) in self.copies.iter().zip(file_names(self.sequence)) {
            let written = file.write_all_at(&self.buffer, self.written);
            written.map_err(|e| Error::io(format!("cannot write {name}"), e))?;
        }
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the file and flushes both copies; their directory entries are not flushed. Returns its content and its length.
    pub(super) fn finish(mut self, env: &Env) -> Result<(Directory, u64)> {
        let start = self.written + self.buffer.len() as u64;
        let mut w = BinWriter::new();
        for (key, place) in &self.directory.entries {
            let p = place.unwrap_or(Place { sequence: 0, position: 0, len: 0, crc: 0 });
            // Held against KEY_BYTES_MAX by the caller.
            w.u8(key.kind).u16(key.id.len() as u16).raw(&key.id).u8(u8::from(place.is_none()));
            w.u64(p.position).u32(p.len).u32(p.crc);
        }
        let sum = crc::crc32c(&w.out);
        self.buffer.extend_from_slice(&w.out);
        let mut footer = BinWriter::new();
        footer.u64(start).u32(self.directory.entries.len() as u32).u32(sum).u64(FOOTER_MAGIC);
        let own = crc::crc32c(&footer.out);
        footer.u32(own);
        self.buffer.extend_from_slice(&footer.out);
        self.write_out()?;
        for file in &self.copies {
            flushed(env, file.sync_data(), "a checkpoint")?;
        }
        Ok((self.directory, self.written))
    }
}

/// Something wrong with a checkpoint file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointFinding {
    /// Name of the file, in the directory of checkpoints.
    pub file: String,
    /// What is wrong.
    pub what: String,
}

/// Verifies both copies of every checkpoint file that the manifest of a shard's directory names. Reads only.
///
/// # Errors
/// `Damaged`, `Incompatible` when the manifest itself cannot be read; `Io`.
pub fn check_checkpoints(env: &Env, shard_dir: &Path) -> Result<Vec<CheckpointFinding>> {
    let manifest = Keeper::read(env, shard_dir)?.unwrap_or_default();
    let mut findings = Vec::new();
    for named in &manifest.checkpoint_files {
        for name in file_names(named.sequence) {
            if let Err(e) = check_file(env, &shard_dir.join(CHECKPOINT_DIR), &name, named.sequence, named.len) {
                findings.push(CheckpointFinding { file: name, what: e.to_string() });
            }
        }
    }
    Ok(findings)
}

fn check_file(env: &Env, dir: &Path, name: &str, sequence: u64, len: u64) -> Result<()> {
    let file = env.disk.open(&dir.join(name), OpenMode::Read).map_err(|e| Error::io("cannot be opened", e))?;
    let directory = Directory::read(&*file, name, sequence, len)?;
    for (key, place) in directory.entries.iter().filter_map(|(k, p)| Some((k, (*p)?))) {
        let mut bytes = vec![0; place.len as usize];
        file.read_exact_at(&mut bytes, place.position).map_err(|e| Error::io("cannot be read", e))?;
        if crc::crc32c(&bytes) != place.crc {
            let what = format!("chunk {}/{:?} does not verify", key.kind, key.id);
            return Err(Error::new(ErrorKind::Damaged, what));
        }
    }
    Ok(())
}
