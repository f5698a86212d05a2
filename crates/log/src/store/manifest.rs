//! The manifest: which segment and checkpoint files count. Whatever it does not name is left over from a crash.
//!
//! ```text
//!   file     | copy | zeros to a multiple of 4096 | the same again |       the second copy begins in the middle of the file
//!
//!   copy     0       8         10          12         20             28
//!            | magic | version | zeros u16 | length of | generation   | body ...              | crc of all |
//!            | u64   | u16     |           | body u64  | u64          |                       | before u32 |
//!
//!   body     merged up to (u64, all ones for nothing)
//!            segments u32, each: last index u64, first index u64, kind u8, class u8, part u16, rewrite u16, journal file u64,
//!                     length u64, data length u64, crc of the run table u32, rows u32, native bytes u64,
//!                     dead rows: words u32, each u64
//!            lost ranges u32, each: partition u64, first offset u64, end offset u64
//!            checkpoint: applied index (u64, all ones for none), files u32, each: sequence u64, length u64
//! ```
//!
//! A new one is written beside the old one, flushed and renamed over it, and the directory is flushed: at any moment one of
//! them is there, whole. The second copy is for a flipped bit, which would otherwise take a whole shard away.

use super::index::FencedRange;
use super::registry::{Bits, Segment};
use super::segment::{Expected, SegmentKind, SegmentName};
use crate::error::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use polylogue_env::{Env, OpenMode};
use polylogue_record::crc;
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use polylogue_types::{Index, Offset, PartitionId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Its name in the shard's directory.
pub(crate) const FILE: &str = "manifest";
/// The name under which a new one is written.
pub(super) const TEMPORARY_FILE: &str = "manifest.new";
/// The version of the layout.
const VERSION: u16 = 1;
/// The largest manifest that is read. Bytes.
const BYTES_MAX: u64 = 1 << 28;

const MAGIC: u64 = u64::from_le_bytes(*b"plg-mnfs");
const HEADER_BYTES: usize = 28;
const ALIGN_BYTES: usize = 4096;
const SEGMENT_BYTES_MIN: usize = 66;
const NONE: u64 = u64::MAX;

/// A segment as the manifest names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NamedSegment {
    pub(crate) name: SegmentName,
    /// Length of the `.seg` file.
    pub(crate) len: u64,
    /// Length of the file with the native bytes.
    pub(crate) data_len: u64,
    pub(crate) table_crc: u32,
    pub(crate) rows: u32,
    pub(crate) native_bytes: u64,
    /// Dead rows; their bytes may have been given back.
    pub(super) dead: Bits,
}

impl NamedSegment {
    pub(super) fn of(segment: &Segment) -> NamedSegment {
        NamedSegment {
            name: segment.name,
            len: segment.len,
            data_len: segment.data_len,
            table_crc: segment.table_crc,
            rows: segment.rows,
            native_bytes: segment.native_bytes,
            dead: segment.dead.clone(),
        }
    }

    /// What its files must say.
    pub(super) fn expected(&self) -> Expected {
        let NamedSegment { name, table_crc, rows, native_bytes, .. } = *self;
        Expected { name, rows, table_crc, native_bytes }
    }

    /// Whether a row's bytes may be gone.
    pub(crate) fn is_dead(&self, row: u32) -> bool {
        self.dead.get(row)
    }
}

/// A checkpoint file as the manifest names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NamedCheckpoint {
    pub(crate) sequence: u64,
    pub(crate) len: u64,
}

/// What the manifest says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Manifest {
    /// Counts the manifests of this directory.
    pub(crate) generation: u64,
    /// The last frame whose entries are in segments.
    pub(crate) merged_upto: Option<Index>,
    pub(crate) segments: Vec<NamedSegment>,
    /// What `repair` gave up in frames that are merged.
    pub(crate) lost: Vec<FencedRange>,
    /// The last frame that the checkpoint covers.
    pub(crate) checkpoint_applied: Option<Index>,
    /// The files that the checkpoint consists of, oldest first.
    pub(crate) checkpoint_files: Vec<NamedCheckpoint>,
}

impl Manifest {
    /// The last frame that both segments and the checkpoint cover.
    pub(crate) fn covered_upto(&self) -> Option<Index> {
        Some(self.merged_upto?.min(self.checkpoint_applied?))
    }

    /// A manifest file's content.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = BinWriter::new();
        body.u64(self.merged_upto.map_or(NONE, |i| i.0));
        body.u32(self.segments.len() as u32);
        for s in &self.segments {
            let n = &s.name;
            body.u64(n.upto.0).u64(n.first.0).u8(n.kind as u8).u8(n.class).u16(n.part).u16(n.rewrite);
            body.u64(n.journal_file).u64(s.len).u64(s.data_len).u32(s.table_crc).u32(s.rows).u64(s.native_bytes);
            body.u32(s.dead.words().len() as u32);
            s.dead.words().iter().for_each(|w| {
                body.u64(*w);
            });
        }
        body.u32(self.lost.len() as u32);
        for range in &self.lost {
            body.u64(range.partition.0).u64(range.base.0).u64(range.end.0);
        }
        body.u64(self.checkpoint_applied.map_or(NONE, |i| i.0));
        body.u32(self.checkpoint_files.len() as u32);
        for c in &self.checkpoint_files {
            body.u64(c.sequence).u64(c.len);
        }
        let mut copy = BinWriter::new();
        copy.u64(MAGIC).u16(VERSION).u16(0).u64(body.out.len() as u64).u64(self.generation).raw(&body.out);
        let sum = crc::crc32c(&copy.out);
        copy.u32(sum);
        let mut file = copy.out;
        file.resize(file.len().next_multiple_of(ALIGN_BYTES), 0);
        file.extend_from_within(..);
        file
    }

    /// Reads a manifest file's content.
    ///
    /// # Errors
    /// `Damaged` when neither copy verifies, `Incompatible` for a later version.
    pub(crate) fn decode(file: &[u8]) -> Result<Manifest> {
        let (first, second) = file.split_at(file.len() / 2);
        let mut later = None;
        for copy in [first, second] {
            match decode_copy(copy) {
                Ok(Ok(manifest)) => return Ok(manifest),
                Ok(Err(version)) => later = Some(version),
                Err(_) => {}
            }
        }
        Err(match later {
            Some(version) => Error::new(
                ErrorKind::Incompatible,
                format!("the manifest has version {version}; this program reads up to {VERSION}"),
            ),
            None => Error::new(ErrorKind::Damaged, "neither copy of the manifest verifies"),
        })
    }
}

/// One copy; the inner error is a version that this program does not know.
fn decode_copy(copy: &[u8]) -> std::result::Result<std::result::Result<Manifest, u16>, BinError> {
    let wrong = BinError { field: "manifest" };
    let mut r = BinReader::new(copy);
    let magic = r.u64("magic")?;
    let version = r.u16("version")?;
    r.u16("zeros")?;
    let len = usize::try_from(r.u64("length")?).map_err(|_| wrong)?;
    let generation = r.u64("generation")?;
    if magic != MAGIC {
        return Err(wrong);
    }
    let body = r.take(len, "body")?;
    let sum = r.u32("checksum")?;
    let summed = copy.get(..HEADER_BYTES + len).ok_or(wrong)?;
    if crc::crc32c(summed) != sum {
        return Err(wrong);
    }
    if version > VERSION {
        return Ok(Err(version));
    }
    let mut manifest = decode_body(body)?;
    manifest.generation = generation;
    Ok(Ok(manifest))
}

fn decode_body(body: &[u8]) -> std::result::Result<Manifest, BinError> {
    let some = |raw: u64| (raw != NONE).then_some(Index(raw));
    let mut r = BinReader::new(body);
    let mut manifest = Manifest { merged_upto: some(r.u64("merged")?), ..Manifest::default() };
    for _ in 0..r.count(SEGMENT_BYTES_MIN, "segments")? {
        manifest.segments.push(decode_segment(&mut r)?);
    }
    for _ in 0..r.count(24, "lost ranges")? {
        manifest.lost.push(FencedRange {
            partition: PartitionId(r.u64("partition")?),
            base: Offset(r.u64("first offset")?),
            end: Offset(r.u64("end offset")?),
        });
    }
    manifest.checkpoint_applied = some(r.u64("applied index")?);
    for _ in 0..r.count(16, "checkpoint files")? {
        let (sequence, len) = (r.u64("sequence")?, r.u64("length")?);
        manifest.checkpoint_files.push(NamedCheckpoint { sequence, len });
    }
    r.end("manifest")?;
    Ok(manifest)
}

fn decode_segment(r: &mut BinReader<'_>) -> std::result::Result<NamedSegment, BinError> {
    let (upto, first) = (Index(r.u64("last index")?), Index(r.u64("first index")?));
    let kind = match r.u8("kind")? {
        1 => SegmentKind::Sorted,
        2 => SegmentKind::Adopted,
        _ => return Err(BinError { field: "kind of segment" }),
    };
    let (class, part, rewrite) = (r.u8("class")?, r.u16("part")?, r.u16("rewrite")?);
    let name = SegmentName { upto, first, kind, class, part, rewrite, journal_file: r.u64("journal file")? };
    let (len, data_len) = (r.u64("length")?, r.u64("data length")?);
    let (table_crc, rows, native_bytes) = (r.u32("checksum")?, r.u32("rows")?, r.u64("native bytes")?);
    let words = r.count(8, "dead rows")?;
    if words > (rows as usize).div_ceil(64) {
        return Err(BinError { field: "dead rows" });
    }
    let dead = (0..words).map(|_| r.u64("dead rows")).collect::<std::result::Result<_, _>>()?;
    Ok(NamedSegment { name, len, data_len, table_crc, rows, native_bytes, dead: Bits::from_words(dead) })
}

/// Keeps the manifest of a directory.
#[derive(Debug)]
pub(crate) struct Keeper {
    env: Env,
    dir: PathBuf,
    current: Mutex<Arc<Manifest>>,
    /// Held while a new one is written; [`Keeper::look`] does not wait for the disk.
    writing: Mutex<()>,
}

impl Keeper {
    /// Reads the manifest of `dir`; a directory without one has an empty manifest. Changes nothing.
    pub(crate) fn open(env: Env, dir: &Path) -> Result<Keeper> {
        let current = Keeper::read(&env, dir)?.unwrap_or_default();
        Ok(Keeper { env, dir: dir.to_owned(), current: Mutex::new(Arc::new(current)), writing: Mutex::new(()) })
    }

    /// What the manifest of a directory says, if there is one.
    pub(crate) fn read(env: &Env, dir: &Path) -> Result<Option<Manifest>> {
        let path = dir.join(FILE);
        if !env.disk.exists(&path) {
            return Ok(None);
        }
        let what = || format!("cannot read {}", path.display());
        let file = env.disk.open(&path, OpenMode::Read).map_err(|e| Error::io(what(), e))?;
        let size = file.size().map_err(|e| Error::io(what(), e))?;
        if size > BYTES_MAX {
            return Err(Error::new(ErrorKind::Damaged, format!("{} is too large", path.display())));
        }
        let mut bytes = vec![0; size as usize];
        file.read_exact_at(&mut bytes, 0).map_err(|e| Error::io(what(), e))?;
        Manifest::decode(&bytes).map(Some).map_err(|mut e| {
            e.context = format!("{}: {}", path.display(), e.context);
            e
        })
    }

    /// What it says now.
    pub(crate) fn look(&self) -> Arc<Manifest> {
        self.current.lock().clone()
    }

    /// Changes it durably. When this fails nothing has changed, except after a failed flush, which ends the process.
    ///
    /// # Errors
    /// `StorageFull`, `Io`.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        let _writing = self.writing.lock();
        let mut next = Manifest::clone(&self.look());
        change(&mut next);
        next.generation += 1;
        let temporary = self.dir.join(TEMPORARY_FILE);
        let what = || format!("cannot write {}", temporary.display());
        if self.env.disk.exists(&temporary) {
            self.env.disk.remove(&temporary).map_err(|e| Error::io(what(), e))?;
        }
        let file = self.env.disk.open(&temporary, OpenMode::CreateNew).map_err(|e| Error::io(what(), e))?;
        file.write_all_at(&next.encode(), 0).map_err(|e| Error::io(what(), e))?;
        flushed(&self.env, file.sync_data(), "the manifest")?;
        let path = self.dir.join(FILE);
        self.env
            .disk
            .rename(&temporary, &path)
            .map_err(|e| Error::io(format!("cannot replace {}", path.display()), e))?;
        flushed(&self.env, self.env.disk.sync_dir(&self.dir), "the directory of the manifest")?;
        *self.current.lock() = Arc::new(next);
        Ok(())
    }
}

/// A flush that failed is the end of the process: the content of the disk is unknown.
pub(crate) fn flushed(env: &Env, result: std::io::Result<()>, what: &str) -> Result<()> {
    result.map_err(|e| {
        let error = Error::io(format!("cannot flush {what}"), e);
        env.fatal.fatal(&error.to_string());
        error
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Manifest {
        let mut dead = Bits::default();
        dead.set(70);
        let name = SegmentName {
            upto: Index(9),
            first: Index(3),
            kind: SegmentKind::Adopted,
            class: 7,
            part: 1,
            rewrite: 2,
            journal_file: 44,
        };
        Manifest {
            generation: 5,
            merged_upto: Some(Index(9)),
            segments: vec![NamedSegment {
                name,
                len: 100,
                data_len: 200,
                table_crc: 1,
                rows: 80,
                native_bytes: 77,
                dead,
            }],
            lost: vec![FencedRange { partition: PartitionId(4), base: Offset(5), end: Offset(6) }],
            checkpoint_applied: None,
            checkpoint_files: vec![NamedCheckpoint { sequence: 3, len: 4 }],
        }
    }

    #[test]
    fn it_comes_back() {
        assert_eq!(Manifest::decode(&example().encode()).unwrap(), example());
        assert_eq!(Manifest::decode(&Manifest::default().encode()).unwrap(), Manifest::default());
    }

    #[test]
    fn one_damaged_copy_is_survived_and_two_are_not() {
        let good = example().encode();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert_eq!(Manifest::decode(&bad).unwrap(), example(), "byte {at}");
        }
        let mut bad = good.clone();
        bad[30] ^= 1;
        bad[good.len() / 2 + 40] ^= 1;
        assert_eq!(Manifest::decode(&bad).unwrap_err().kind, ErrorKind::Damaged);
        for cut in [0, 1, 27, 100] {
            assert_eq!(Manifest::decode(&good[..cut]).unwrap_err().kind, ErrorKind::Damaged);
        }
    }

    #[test]
    fn a_later_version_is_told_apart_from_damage() {
        let mut file = example().encode();
        for start in [0, file.len() / 2] {
            file[start + 8] = 2;
            let len = HEADER_BYTES + u64::from_le_bytes(file[start + 12..start + 20].try_into().unwrap()) as usize;
            let sum = crc::crc32c(&file[start..start + len]);
            file[start + len..start + len + 4].copy_from_slice(&sum.to_le_bytes());
        }
        assert_eq!(Manifest::decode(&file).unwrap_err().kind, ErrorKind::Incompatible);
    }
}
