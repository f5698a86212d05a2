//! A journal file: its name, its header, and the handle that readers share.
//!
//! ```text
//!    0            8         10      12      16             32               48         56       60
//!   +------------+---------+-------+-------+--------------+----------------+----------+--------+----+
//!   | "PLJOURNL" | version | flags | zeros | cluster id   | directory id   | node id  | shard  | 0  |
//!   | u64        | u16 = 1 | u16   | u32   | 16 bytes     | 16 bytes       | u64      | u32    | 64 |
//!   +------------+---------+-------+-------+--------------+----------------+----------+--------+----+
//!   | file sequence | salt | first index | previous file: sequence | end position | end checksum | 0 |
//!   | u64        72 | u64 80 | u64    88 | u64                  96 | u64      104 | u32      108 | 508
//!   +---------------+--------+-----------+-------------------------+--------------+--------------+-----+
//!   | crc u32 of the bytes before it 512 | zeros to 2048 | the same 512 bytes again | zeros to 4096   |
//!   +------------------------------------+---------------+--------------------------+-----------------+
//! ```
//!
//! Flag bit 0 says that the format is a preview. Magic, version and crc stay where they are in all versions.
//!
//! *Previous file* says where the log stood when this file was begun, and by that where the file before ends: what follows
//! there (a torn tail that was cut, frames that were copied on) is void. Sequence 0 means that the log begins here. A
//! file whose header names another sequence than its name, or has none, is not begun: it waits to be used.

use crate::error::{Error, ErrorKind, Result};
use crate::frame::header::{u32_at, u64_at};
use crate::journal::Identity;
use crate::journal::mode::WriteMode;
use polylogue_env::DiskFile;
use polylogue_record::crc::crc32c;
use polylogue_types::{Index, NodeId, RangeSource, ShardId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the frames of a file begin. Bytes.
pub(crate) const FILE_HEADER_BYTES: u64 = 4096;
/// The version of the layout that this version writes, and the newest that it reads.
pub(crate) const VERSION: u16 = 1;
/// File sizes are multiples of this, and so are the ends of writes, so that no write has to read a page first. Bytes.
pub(crate) const PAGE_BYTES: u64 = 4096;

const MAGIC: u64 = u64::from_le_bytes(*b"PLJOURNL");
const FLAG_PREVIEW: u16 = 1;
const BLOCK: usize = 512;
const CRC_AT: usize = 508;
const SECOND_COPY: usize = 2048;

/// The directory, in a shard's directory, of damaged bytes that are kept for inspection.
pub(crate) const FENCED_DIR: &str = "fenced";

/// The directory of the journal's files in a shard's directory.
pub(crate) fn journal_dir(dir: &Path) -> PathBuf {
    dir.join("journal")
}

/// What a name in the journal's directory stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Part of the log, or made ready to become it.
    Log(u64),
    /// Recycled.
    Spare(u64),
    /// Left behind by a recovery that did not finish.
    Copy(u64),
}

impl Role {
    pub(crate) fn name(self) -> String {
        match self {
            Role::Log(n) => format!("{n:016x}.plj"),
            Role::Spare(n) => format!("{n:016x}.spare"),
            Role::Copy(n) => format!("{n:016x}.copy"),
        }
    }

    /// `None` for names that are not the journal's.
    pub(crate) fn parse(name: &str) -> Option<Role> {
        let (stem, extension) = name.split_once('.')?;
        let hex = stem.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if stem.len() != 16 || !hex {
            return None;
        }
        let n = u64::from_str_radix(stem, 16).ok()?;
        match extension {
            "plj" => Some(Role::Log(n)),
            "spare" => Some(Role::Spare(n)),
            "copy" => Some(Role::Copy(n)),
            _ => None,
        }
    }

    pub(crate) fn sequence(self) -> u64 {
        match self {
            Role::Log(n) | Role::Spare(n) | Role::Copy(n) => n,
        }
    }
}

/// Where a file of the log ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FileEnd {
    /// The file; 0: before the first one.
    pub(crate) sequence: u64,
    /// After its last frame, aligned.
    pub(crate) position: u64,
    /// The crc of its last frame's local header; of the file's header when it has no frame.
    pub(crate) checksum: u32,
}

/// The header of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileHeader {
    pub(crate) identity: Identity,
    pub(crate) sequence: u64,
    pub(crate) salt: u64,
    pub(crate) first_index: Index,
    pub(crate) previous: FileEnd,
}

/// What the first block of a file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeaderState {
    /// The file is part of the log; with the header's crc, which its first frame names as `previous`.
    Begun(FileHeader, u32),
    /// Zeros, or the header of an earlier life.
    NotBegun,
    /// Written by a later version of polylogue.
    Newer(u16),
    /// Neither copy of the header verifies.
    Unreadable,
}

impl FileHeader {
    /// The first block of the file, and the header's crc.
    pub(crate) fn encode(&self) -> (Vec<u8>, u32) {
        let mut b = [0u8; BLOCK];
        b[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        b[8..10].copy_from_slice(&VERSION.to_le_bytes());
        b[10..12].copy_from_slice(&FLAG_PREVIEW.to_le_bytes());
        b[16..32].copy_from_slice(&self.identity.cluster);
        b[32..48].copy_from_slice(&self.identity.directory);
        b[48..56].copy_from_slice(&self.identity.node.0.to_le_bytes());
        b[56..60].copy_from_slice(&self.identity.shard.0.to_le_bytes());
        b[64..72].copy_from_slice(&self.sequence.to_le_bytes());
        b[72..80].copy_from_slice(&self.salt.to_le_bytes());
        b[80..88].copy_from_slice(&self.first_index.0.to_le_bytes());
        b[88..96].copy_from_slice(&self.previous.sequence.to_le_bytes());
        b[96..104].copy_from_slice(&self.previous.position.to_le_bytes());
        b[104..108].copy_from_slice(&self.previous.checksum.to_le_bytes());
        let crc = crc32c(&b[..CRC_AT]);
        b[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        let mut block = vec![0; FILE_HEADER_BYTES as usize];
        block[..BLOCK].copy_from_slice(&b);
        block[SECOND_COPY..SECOND_COPY + BLOCK].copy_from_slice(&b);
        (block, crc)
    }

    /// Reads the first block of the file that is named by `sequence`.
    pub(crate) fn decode(block: &[u8], sequence: u64) -> HeaderState {
        let mut earlier_life = block.iter().all(|b| *b == 0);
        for start in [0, SECOND_COPY] {
            let Some(b) = block.get(start..).and_then(|b| b.first_chunk::<BLOCK>()) else {
                return HeaderState::NotBegun;
            };
            if u64_at(b, 0) != MAGIC || crc32c(&b[..CRC_AT]) != u32_at(b, CRC_AT) {
                continue;
            }
            let version = u16::from_le_bytes([b[8], b[9]]);
            if version > VERSION {
                return HeaderState::Newer(version);
            }
            let header = FileHeader::decode_block(b);
            if header.sequence == sequence {
                return HeaderState::Begun(header, u32_at(b, CRC_AT));
            }
            earlier_life = true;
        }
        if earlier_life { HeaderState::NotBegun } else { HeaderState::Unreadable }
    }

    fn decode_block(b: &[u8; BLOCK]) -> FileHeader {
        let sixteen = |at: usize| {
            let mut out = [0; 16];
            out.copy_from_slice(&b[at..at + 16]);
            out
        };
        FileHeader {
            identity: Identity {
                cluster: sixteen(16),
                directory: sixteen(32),
                node: NodeId(u64_at(b, 48)),
                shard: ShardId(u32_at(b, 56)),
            },
            sequence: u64_at(b, 64),
            salt: u64_at(b, 72),
            first_index: Index(u64_at(b, 80)),
            previous: FileEnd { sequence: u64_at(b, 88), position: u64_at(b, 96), checksum: u32_at(b, 104) },
        }
    }

    /// Refuses a file that belongs to another directory.
    pub(crate) fn check_identity(&self, ours: &Identity, path: &Path) -> Result<()> {
        let theirs = &self.identity;
        let what = if theirs.cluster != ours.cluster {
            "another cluster".to_owned()
        } else if theirs.node != ours.node {
            format!("node {}, this is node {}", theirs.node, ours.node)
        } else if theirs.directory != ours.directory {
            "another data directory (was it copied?)".to_owned()
        } else if theirs.shard != ours.shard {
            format!("shard {}, this is shard {}", theirs.shard, ours.shard)
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Incompatible, format!("{} belongs to {what}", path.display())))
    }
}

/// A file of the log, open. Its handle, or a clone of it, keeps it from being recycled.
#[derive(Debug)]
pub(crate) struct LiveFile {
    pub(crate) sequence: u64,
    pub(crate) salt: u64,
    /// Bytes that it can hold without growing.
    pub(crate) capacity: u64,
    /// All of it has been written before, so that a flush changes no metadata.
    pub(crate) written: bool,
    /// How its frames are written.
    pub(crate) mode: WriteMode,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
}

impl LiveFile {
    pub(crate) fn new(
        header: &FileHeader,
        path: PathBuf,
        file: Arc<dyn DiskFile>,
        capacity: u64,
        written: bool,
        mode: WriteMode,
    ) -> LiveFile {
        LiveFile { sequence: header.sequence, salt: header.salt, capacity, written, mode, path, file }
    }

    /// The same file, with another size.
    pub(crate) fn with_capacity(&self, capacity: u64) -> LiveFile {
        let LiveFile { sequence, salt, written, mode, .. } = *self;
        LiveFile { sequence, salt, capacity, written, mode, path: self.path.clone(), file: self.file.clone() }
    }

    /// The handle for readers.
    pub(crate) fn source(&self) -> Arc<dyn RangeSource> {
        self.file.clone().as_range_source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FileHeader {
        FileHeader {
            identity: Identity { cluster: [1; 16], node: NodeId(2), directory: [3; 16], shard: ShardId(4) },
            sequence: 5,
            salt: 6,
            first_index: Index(7),
            previous: FileEnd { sequence: 4, position: 8192, checksum: 9 },
        }
    }

    #[test]
    fn names_are_read_back_and_strangers_ignored() {
        for role in [Role::Log(0x1a), Role::Spare(1), Role::Copy(u64::MAX)] {
            assert_eq!(Role::parse(&role.name()), Some(role));
        }
        for name in ["", "lock", "1.plj", "000000000000001A.plj", "0000000000000001.txt", "+000000000000001.plj"] {
            assert_eq!(Role::parse(name), None, "{name}");
        }
    }

    #[test]
    fn either_copy_of_the_header_is_enough() {
        let (good, crc) = header().encode();
        for damaged in [0, 300, SECOND_COPY + 70] {
            let mut block = good.clone();
            block[damaged] ^= 1;
            assert_eq!(FileHeader::decode(&block, 5), HeaderState::Begun(header(), crc));
        }
        let mut block = good.clone();
        block[70] ^= 1;
        block[SECOND_COPY + 70] ^= 1;
        assert_eq!(FileHeader::decode(&block, 5), HeaderState::Unreadable);
    }

    #[test]
    fn zeros_and_the_header_of_an_earlier_life_are_not_begun() {
        let (block, _) = header().encode();
        assert_eq!(FileHeader::decode(&block, 6), HeaderState::NotBegun);
        assert_eq!(FileHeader::decode(&[0; 4096], 6), HeaderState::NotBegun);
        assert_eq!(FileHeader::decode(&[], 6), HeaderState::NotBegun);
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        let (mut block, _) = header().encode();
        block[8] = 2;
        let crc = crc32c(&block[..CRC_AT]);
        block[CRC_AT..BLOCK].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(FileHeader::decode(&block, 5), HeaderState::Newer(2));
    }

    #[test]
    fn a_file_of_somebody_else_is_refused() {
        let ours = header().identity;
        assert!(header().check_identity(&ours, Path::new("x")).is_ok());
        let others = [
            Identity { cluster: [0; 16], ..ours },
            Identity { node: NodeId(9), ..ours },
            Identity { directory: [0; 16], ..ours },
            Identity { shard: ShardId(9), ..ours },
        ];
        for other in others {
            let e = header().check_identity(&other, Path::new("x")).expect_err("refused");
            assert_eq!(e.kind, ErrorKind::Incompatible);
        }
    }
}
