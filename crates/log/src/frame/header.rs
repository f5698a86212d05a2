//! The bytes in front of a frame.
//!
//! A frame starts on a multiple of 64 bytes of its file. All numbers are little endian.
//!
//! ```text
//!   the local header, of every frame: differs from node to node
//!    0        4      5      6          8         12         16
//!   +--------+------+------+----------+---------+----------+--------------------+
//!   | "PLFR" | kind | ver. | flags    | length  | previous | salt of the file   |
//!   | u32    | u8   | u8=1 | u16=0    | u32     | u32      | u64             24 |
//!   +--------+------+------+----------+---------+----------+--------------------+
//!   | durable_upto: index | durable end: file sequence | durable end: position  |
//!   | u64              32 | u64                     40 | u64                 48 |
//!   +---------------------+---------+------------------+---------------+--------+
//!   | content checksum u32       52 | zeros                         60 | crc 64 |
//!   +-------------------------------+----------------------------------+--------+
//!
//!   the replicated part, of kinds that have an index: identical on every node
//!   64        68     69     70      72      76       80       88        96
//!   +--------+------+------+-------+-------+--------+--------+---------+---------+
//!   | crc    | kind | ver. | flags | shard | entries| term   | index   | leader  |
//!   | u32    | u8   | u8=1 | u16=0 | u32   | u32    | u64    | u64     | u64 104 |
//!   +--------+------+------+-------+-------+--------+--------+---------+---------+
//!   | time i64, ms 112 | body length u32 | table length u32 | native length u32 | 0 128
//!   +------------------+-----------------+------------------+-------------------+
//!   | body | envelope table | native bytes, clustered by partition, no gaps       |
//!   +------+----------------+-----------------------------------------------------+
//! ```
//!
//! - `length` counts from the first byte of the local header to the last native byte, without padding.
//! - `previous` is the local header's crc of the frame before this one in the log; of a file's first frame, the crc of
//!   the file's header. A frame that does not follow from what stands before it never verifies.
//! - `salt` is a random number that the file header names; a recycled file gets a new one, so that frames of its
//!   earlier life never verify. Being random, it cannot be put into a payload by its sender.
//! - `durable_upto` is the index of the last frame that the last finished flush covered, and the *durable end* the place
//!   in the log that it reached. A place orders local frames too, and does not change its meaning when a consensus
//!   engine truncates and reuses indexes, which is why recovery judges by it. `u64::MAX` and (0, 0) mean "none yet".
//! - the replicated part's crc covers the bytes from 68 to the end of the table. The native bytes are not summed again:
//!   the table carries a CRC-32C of every entry. The content checksum of the local header repeats that crc (of local
//!   kinds: it is the CRC-32C of the body), so that the chain of `previous` covers everything.
//! - the local header's crc covers its first 60 bytes.

use polylogue_record::crc::crc32c;
use polylogue_types::{Index, NodeId, ShardId, Term, TimestampMs};

/// Bytes of the local header.
pub(crate) const LOCAL_BYTES: usize = 64;
/// Bytes of the replicated header, which follows it.
pub(crate) const REPLICATED_BYTES: usize = 64;
/// What every frame starts with: "PLFR".
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"PLFR");
/// The largest frame. Bytes. Above it a length is damage, not a length.
pub(crate) const FRAME_BYTES_LIMIT: u32 = 256 << 20;
/// The version of the frame's layout.
const VERSION: u8 = 1;
const LOCAL_SUMMED: usize = 60;

/// A place in the log: a file and a position inside it. Ordered as the log is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct LogEnd {
    /// Sequence number of the file; 0 is before all files.
    pub(crate) sequence: u64,
    /// Bytes from the start of the file.
    pub(crate) position: u64,
}

/// What the last finished flush covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Durable {
    /// The index of the last frame covered; `None` before the first.
    pub(crate) index: Option<Index>,
    /// The place after the last byte covered.
    pub(crate) end: LogEnd,
}

/// The local header, without its crc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LocalHeader {
    /// The tag of the kind.
    pub(crate) kind: u8,
    /// Bytes of the frame without padding.
    pub(crate) len: u32,
    /// The crc of the frame before.
    pub(crate) previous: u32,
    /// The file's salt.
    pub(crate) salt: u64,
    /// What was flushed when the frame was built.
    pub(crate) durable: Durable,
    /// The checksum of what follows.
    pub(crate) content: u32,
}

impl LocalHeader {
    /// Writes the header over the first 64 bytes of `frame` and returns its crc.
    pub(crate) fn encode(&self, frame: &mut [u8; LOCAL_BYTES]) -> u32 {
        *frame = [0; LOCAL_BYTES];
        frame[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        frame[4] = self.kind;
        frame[5] = VERSION;
        frame[8..12].copy_from_slice(&self.len.to_le_bytes());
        frame[12..16].copy_from_slice(&self.previous.to_le_bytes());
        frame[16..24].copy_from_slice(&self.salt.to_le_bytes());
        let index = self.durable.index.map_or(u64::MAX, |i| i.0);
        frame[24..32].copy_from_slice(&index.to_le_bytes());
        frame[32..40].copy_from_slice(&self.durable.end.sequence.to_le_bytes());
        frame[40..48].copy_from_slice(&self.durable.end.position.to_le_bytes());
        frame[48..52].copy_from_slice(&self.content.to_le_bytes());
        let crc = crc32c(&frame[..LOCAL_SUMMED]);
        frame[LOCAL_SUMMED..].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// Reads a header and its crc; `None` for bytes that are none, or one of another version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(LocalHeader, u32)> {
        let bytes: &[u8; LOCAL_BYTES] = bytes.first_chunk()?;
        if u32_at(bytes, 0) != MAGIC {
            return None;
        }
        let crc = u32_at(bytes, LOCAL_SUMMED);
        if crc32c(&bytes[..LOCAL_SUMMED]) != crc || bytes[5] != VERSION {
            return None;
        }
        let len = u32_at(bytes, 8);
        if (len as usize) < LOCAL_BYTES || len > FRAME_BYTES_LIMIT {
            return None;
        }
        let index = u64_at(bytes, 24);
        let header = LocalHeader {
            kind: bytes[4],
            len,
            previous: u32_at(bytes, 12),
            salt: u64_at(bytes, 16),
            durable: Durable {
                index: (index != u64::MAX).then_some(Index(index)),
                end: LogEnd { sequence: u64_at(bytes, 32), position: u64_at(bytes, 40) },
            },
            content: u32_at(bytes, 48),
        };
        Some((header, crc))
    }
}

/// The replicated header, without its crc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReplicatedHeader {
    pub(crate) kind: u8,
    pub(crate) shard: ShardId,
    pub(crate) entries: u32,
    pub(crate) term: Term,
    pub(crate) index: Index,
    pub(crate) leader: NodeId,
    pub(crate) time_ms: TimestampMs,
    pub(crate) body_len: u32,
    pub(crate) table_len: u32,
    pub(crate) native_len: u32,
}

impl ReplicatedHeader {
    /// Writes the header, but for its crc, over the first 64 bytes of `part`.
    pub(crate) fn encode(&self, part: &mut [u8; REPLICATED_BYTES]) {
        *part = [0; REPLICATED_BYTES];
        part[4] = self.kind;
        part[5] = VERSION;
        part[8..12].copy_from_slice(&self.shard.0.to_le_bytes());
        part[12..16].copy_from_slice(&self.entries.to_le_bytes());
        part[16..24].copy_from_slice(&self.term.0.to_le_bytes());
        part[24..32].copy_from_slice(&self.index.0.to_le_bytes());
        part[32..40].copy_from_slice(&self.leader.0.to_le_bytes());
        part[40..48].copy_from_slice(&self.time_ms.to_le_bytes());
        part[48..52].copy_from_slice(&self.body_len.to_le_bytes());
        part[52..56].copy_from_slice(&self.table_len.to_le_bytes());
        part[56..60].copy_from_slice(&self.native_len.to_le_bytes());
    }

    /// Reads the header in front of `part` (the whole replicated part, or at least what its crc covers), with its crc
    /// verified; `None` for bytes that are none.
    pub(crate) fn decode(part: &[u8]) -> Option<(ReplicatedHeader, u32)> {
        let bytes: &[u8; REPLICATED_BYTES] = part.first_chunk()?;
        let header = ReplicatedHeader::read(bytes);
        let summed = part.get(4..header.summed_end()?)?;
        let crc = u32_at(bytes, 0);
        (crc32c(summed) == crc && bytes[5] == VERSION).then_some((header, crc))
    }

    /// How many bytes [`ReplicatedHeader::decode`] needs, as the bytes say that may be a header.
    pub(crate) fn summed_len(part: &[u8]) -> Option<u64> {
        let header = ReplicatedHeader::read(part.first_chunk()?);
        header.summed_end().map(|end| end as u64).filter(|_| header.frame_len() <= u64::from(FRAME_BYTES_LIMIT))
    }

    fn read(bytes: &[u8; REPLICATED_BYTES]) -> ReplicatedHeader {
        ReplicatedHeader {
            kind: bytes[4],
            shard: ShardId(u32_at(bytes, 8)),
            entries: u32_at(bytes, 12),
            term: Term(u64_at(bytes, 16)),
            index: Index(u64_at(bytes, 24)),
            leader: NodeId(u64_at(bytes, 32)),
            time_ms: i64::from_le_bytes(u64_at(bytes, 40).to_le_bytes()),
            body_len: u32_at(bytes, 48),
            table_len: u32_at(bytes, 52),
            native_len: u32_at(bytes, 56),
        }
    }

    /// Where the bytes end that the crc covers, from the start of the replicated part.
    fn summed_end(&self) -> Option<usize> {
        let end = (REPLICATED_BYTES as u64) + u64::from(self.body_len) + u64::from(self.table_len);
        usize::try_from(end).ok().filter(|_| end <= u64::from(FRAME_BYTES_LIMIT))
    }

    /// Bytes of the whole frame that this header belongs to.
    pub(crate) fn frame_len(&self) -> u64 {
        (LOCAL_BYTES + REPLICATED_BYTES) as u64
            + u64::from(self.body_len)
            + u64::from(self.table_len)
            + u64::from(self.native_len)
    }
}

/// The number at `at` of a block that is long enough by its type.
pub(crate) fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    let mut out = [0; 4];
    out.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(out)
}

/// The number at `at` of a block that is long enough by its type.
pub(crate) fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(out)
}

/// `position`, rounded up to where a frame may start.
pub(crate) fn align(position: u64) -> u64 {
    position.next_multiple_of(polylogue_types::limits::FRAME_ALIGN_BYTES)
}
