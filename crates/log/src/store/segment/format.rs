//! The layout of segment files.
//!
//! ```text
//!   all numbers little endian
//!
//!   sorted segment, NAME.seg                      adopted segment: the journal file as it was, NAME.journal,
//!                                                 and NAME.seg without native bytes
//!   0   +--------------------------------------+
//!       | header, 64 bytes                     |
//!   64  +--------------------------------------+  --.
//!       | native bytes of a run                |    |  as often as there are runs; ordered by partition, then
//!       +--------------------------------------+    |  by offset. A run is one partition's: at most 16 MiB,
//!       | entry tables of its blocks           |    |  one `sendfile`, one row of the run table.
//!       | (forms that are not self-describing) |    |
//!       +--------------------------------------+    |
//!       | sparse index of the run              |    |
//!       +--------------------------------------+  --'
//!       | run table: rows of 96 bytes          |
//!       +--------------------------------------+
//!       | footer, 64 bytes                     |
//!       +--------------------------------------+
//!
//!   header   0       8         10     11      12     14        16            24           32           40      60
//!            | magic | version | kind | class | part | rewrite | first index | last index | journal    | zeros | crc |
//!            | u64   | u16     | u8   | u8    | u16  | u16     | u64         | u64        | file u64   |       | u32 |
//!
//!   row      0           8             16           24              32             40              48
//!            | partition | base offset | end offset | first ordinal | last ordinal | max timestamp | append time |
//!            | u64       | u64         | u64        | u64           | u64          | i64 ms        | i64 ms      |
//!            56         60       64         68           72          76       80        84     85          92    96
//!            | position | length | tables   | tables     | index     | blocks | entries | form | zeros     | crc |
//!            | u32      | u32    | at u32   | length u32 | length u32| u32    | u32     | u8   |           | u32 |
//!
//!   footer   0       8              16     20          24             32            60
//!            | magic | table at u64 | rows | crc of    | native bytes | zeros       | crc |
//!            | u64   |              | u32  | table u32 | u64          |             | u32 |
//!
//!   sparse index, for each block:  entries, base offset less the one before, first ordinal less the one before,
//!            native length, table length (all varints), max timestamp (signed varint), crc of the native bytes (u32);
//!            at the end the crc of the sparse index (u32)
//! ```
//!
//! `position` counts in the file that holds the native bytes, everything else in the `.seg` file. Every checksum is a
//! CRC-32C. "end offset" is the one after the last message. The sparse index follows the entry tables directly.
//!
//! What header and footer say stands in the manifest too, and each row has a checksum of its own: damage there costs the runs
//! whose rows it has hit, and no more.

use crate::error::{Error, ErrorKind, Result};
use polylogue_record::crc;
use polylogue_record::envelope::Form;
use polylogue_types::bin::{BinError, BinReader, BinWriter};
use polylogue_types::{Index, Offset, Ordinal, PartitionId, RangeSource, TimestampMs};
use std::fmt;

use super::super::varint;

/// The version of the layout. Version 1 had no checksums of rows.
pub const VERSION: u16 = 2;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 64;
/// Bytes of a row of the run table.
pub const ROW_BYTES: usize = 96;
/// Rows that one segment may have; 4 million runs would be a segment of 250 bytes a run.
pub const ROWS_MAX: u32 = 1 << 22;

/// Bytes of a row before its checksum.
const ROW_BODY_BYTES: usize = ROW_BYTES - 4;
const MAGIC: u64 = u64::from_le_bytes(*b"plg-sgmt");
const FOOTER_MAGIC: u64 = u64::from_le_bytes(*b"plg-foot");
/// A block of the sparse index takes at least this much. Bytes.
const BLOCK_BYTES_MIN: usize = 10;

/// How a segment came to be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum SegmentKind {
    /// Merged out of journal files.
    Sorted = 1,
    /// A journal file that was kept as it is.
    Adopted = 2,
}

/// What a segment is called: where its content comes from. Two nodes that merge the same log give the same names to
/// the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentName {
    /// The last frame whose entries can be in it.
    pub upto: Index,
    /// The first one.
    pub first: Index,
    /// How it came to be.
    pub kind: SegmentKind,
    /// Retention class of its partitions; 0 for an adopted file, which holds them all.
    pub class: u8,
    /// Counts the files of one class that one merge filled.
    pub part: u16,
    /// Counts how often the live rest was written anew.
    pub rewrite: u16,
    /// Sequence number of the adopted journal file, else 0.
    pub journal_file: u64,
}

impl SegmentName {
    /// Name of the file that ends with the run table.
    #[must_use]
    pub fn index_file(&self) -> String {
        format!("{self}.seg")
    }

    /// The sequence number of the journal file that became the data file of this name, if it is one.
    #[must_use]
    pub fn journal_file_of(data_file: &str) -> Option<u64> {
        let (stem, sequence) = data_file.strip_suffix(".journal")?.split_once("-a-")?;
        let sequence = u64::from_str_radix(sequence, 16).ok()?;
        let upto = Index(u64::from_str_radix(stem, 16).ok()?);
        let (first, kind) = (Index(0), SegmentKind::Adopted);
        let name = SegmentName { upto, first, kind, class: 0, part: 0, rewrite: 0, journal_file: sequence };
        (name.data_file() == data_file).then_some(sequence)
    }

    /// The files that it takes.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files = vec![self.index_file()];
        if self.kind == SegmentKind::Adopted {
            files.push(self.data_file());
        }
        files
    }

    /// Name of the file with the native bytes.
    #[must_use]
    pub fn data_file(&self) -> String {
        match self.kind {
            SegmentKind::Sorted => format!("{self}.seg"),
            SegmentKind::Adopted => format!("{self}.journal"),
        }
    }
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SegmentKind::Sorted => {
                write!(f, "{:016x}-s-{:02x}-{:04x}-{:04x}", self.upto.0, self.class, self.part, self.rewrite)
            }
            SegmentKind::Adopted => write!(f, "{:016x}-a-{:016x}", self.upto.0, self.journal_file),
        }
    }
}

/// One run: the entries of one partition that stand next to each other in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Whose.
    pub partition: PartitionId,
    /// Offset of the first message.
    pub base: Offset,
    /// Offset after the last message.
    pub end: Offset,
    /// Ordinal of the first entry.
    pub first_ordinal: Ordinal,
    /// Ordinal of the last entry.
    pub last_ordinal: Ordinal,
    /// Highest timestamp of its messages, -1 for none.
    pub max_timestamp: TimestampMs,
    /// When the last entry was appended.
    pub append_time: TimestampMs,
    /// Where the native bytes are, in the file that holds them.
    pub position: u32,
    /// How many native bytes.
    pub len: u32,
    /// Where the entry tables begin in the `.seg` file; the sparse index follows them.
    pub tables: u32,
    /// Length of the entry tables.
    pub tables_len: u32,
    /// Length of the sparse index with its checksum.
    pub index_len: u32,
    /// Blocks of the sparse index.
    pub blocks: u32,
    /// Entries.
    pub entries: u32,
    /// The partition's native form.
    pub form: Form,
}

impl Row {
    /// The bytes of the `.seg` file that belong to this run only.
    #[must_use]
    pub fn extent(&self, kind: SegmentKind) -> std::ops::Range<u64> {
        let end = u64::from(self.tables) + u64::from(self.tables_len) + u64::from(self.index_len);
        match kind {
            SegmentKind::Sorted => u64::from(self.position)..end,
            SegmentKind::Adopted => u64::from(self.tables)..end,
        }
    }

    /// Appends the row as it is stored.
    pub fn encode(&self, out: &mut BinWriter) {
        let start = out.out.len();
        out.u64(self.partition.0).u64(self.base.0).u64(self.end.0);
        out.u64(self.first_ordinal.0).u64(self.last_ordinal.0);
        out.i64(self.max_timestamp).i64(self.append_time);
        out.u32(self.position).u32(self.len).u32(self.tables).u32(self.tables_len);
        out.u32(self.index_len).u32(self.blocks).u32(self.entries).u8(self.form as u8);
        out.out.resize(start + ROW_BODY_BYTES, 0);
        let sum = crc::crc32c(out.out.get(start..).unwrap_or_default());
        out.u32(sum);
    }

    /// Reads a row and holds its checksum against it.
    ///
    /// # Errors
    /// When it does not verify, or a value cannot be.
    pub fn open(bytes: &[u8]) -> std::result::Result<Row, BinError> {
        match bytes.split_last_chunk() {
            Some((body, sum)) if crc::crc32c(body) == u32::from_le_bytes(*sum) => Row::decode(bytes),
            _ => Err(BinError { field: "checksum of a row" }),
        }
    }

    /// Reads a row whose checksum, or that of the whole table, was held against it.
    ///
    /// # Errors
    /// When a value cannot be.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Row, BinError> {
        let mut r = BinReader::new(bytes);
        let row = Row {
            partition: PartitionId(r.u64("partition")?),
            base: Offset(r.u64("base offset")?),
            end: Offset(r.u64("end offset")?),
            first_ordinal: Ordinal(r.u64("first ordinal")?),
            last_ordinal: Ordinal(r.u64("last ordinal")?),
            max_timestamp: r.i64("max timestamp")?,
            append_time: r.i64("append time")?,
            position: r.u32("position")?,
            len: r.u32("length")?,
            tables: r.u32("entry tables")?,
            tables_len: r.u32("length of the entry tables")?,
            index_len: r.u32("length of the sparse index")?,
            blocks: r.u32("blocks")?,
            entries: r.u32("entries")?,
            form: Form::from_tag(r.u8("form")?).ok_or(BinError { field: "form" })?,
        };
        let possible = row.base < row.end
            && row.end.0 <= i64::MAX as u64
            && row.first_ordinal <= row.last_ordinal
            && row.len <= i32::MAX as u32
            && row.index_len as usize >= BLOCK_BYTES_MIN + 4
            && row.blocks >= 1
            && row.blocks as usize <= row.index_len as usize / BLOCK_BYTES_MIN
            && row.entries >= row.blocks;
        if possible { Ok(row) } else { Err(BinError { field: "run table row" }) }
    }
}

/// What the manifest says of a segment, or its own header and footer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// What it is.
    pub name: SegmentName,
    /// Rows of its run table.
    pub rows: u32,
    /// CRC-32C of its run table.
    pub table_crc: u32,
    /// Native bytes of all runs.
    pub native_bytes: u64,
}

/// The run table of a segment.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it was expected to be.
    pub expected: Expected,
    /// Its runs with their numbers, ordered by partition and offset. Those whose rows do not verify are not among them.
    pub rows: Vec<(u32, Row)>,
    /// What is damaged of header, footer and rows.
    pub wrong: Vec<String>,
}

impl Table {
    /// Reads header, footer and run table of a `.seg` file of `size` bytes whose native bytes are in a file of
    /// `data_size` bytes.
    ///
    /// # Errors
    /// `Damaged` for anything that does not verify, `Incompatible` for another version, `Io`.
    pub fn read(source: &dyn RangeSource, size: u64, data_size: u64) -> Result<Table> {
        let name = read_header(source, size)?;
        let footer = read_footer(source, size)?;
        let Footer { rows, table_crc, native_bytes, .. } = footer;
        let table = Table::read_expected(source, size, data_size, &Expected { name, rows, table_crc, native_bytes })?;
        match table.wrong.first() {
            None => Ok(table),
            Some(wrong) => Err(damaged(wrong)),
        }
    }

    /// Reads the run table of a segment of which the manifest says what it is: as much as verifies.
    ///
    /// # Errors
    /// `Damaged` when it is another segment or its end is missing, `Incompatible` for another version, `Io`.
    pub fn read_expected(source: &dyn RangeSource, size: u64, data_size: u64, expected: &Expected) -> Result<Table> {
        let mut table = Table { expected: *expected, rows: Vec::new(), wrong: Vec::new() };
        let header = table.note(read_header(source, size))?.is_none_or(|name| name == expected.name);
        let same = |f: Footer| {
            (f.rows, f.table_crc, f.native_bytes) == (expected.rows, expected.table_crc, expected.native_bytes)
        };
        let footer = table.note(read_footer(source, size))?.is_none_or(same);
        if !header || !footer {
            return Err(damaged("a segment is not the one that the manifest names"));
        }
        let bytes = u64::from(expected.rows) * ROW_BYTES as u64;
        let position = size.checked_sub(FOOTER_BYTES as u64 + bytes);
        let position =
            position.filter(|_| expected.rows <= ROWS_MAX).ok_or_else(|| damaged("a segment is too short"))?;
        let bytes = read(source, position, bytes as usize, size, "run table")?;
        let whole = crc::crc32c(&bytes) == expected.table_crc;
        table.rows.reserve_exact(expected.rows as usize);
        for (number, raw) in (0..).zip(bytes.chunks_exact(ROW_BYTES)) {
            let row = if whole { Row::decode(raw) } else { Row::open(raw) };
            match row.ok().filter(|row| table.may_follow(row, data_size, position)) {
                Some(row) => table.rows.push((number, row)),
                None if whole => return Err(damaged("a row of the run table cannot be")),
                None => {}
            }
        }
        if !whole {
            table.wrong.push(format!("{} of {} runs cannot be read", table.lost_rows(), expected.rows));
        }
        Ok(table)
    }

    /// Takes note of damage, and goes on without what is damaged.
    fn note<T>(&mut self, part: Result<T>) -> Result<Option<T>> {
        match part {
            Ok(part) => Ok(Some(part)),
            Err(e) if e.kind == ErrorKind::Damaged => {
                self.wrong.push(e.context);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Whether a row can be the next one.
    fn may_follow(&self, row: &Row, data_size: u64, table: u64) -> bool {
        let in_place =
            u64::from(row.position) + u64::from(row.len) <= data_size && row.extent(SegmentKind::Adopted).end <= table;
        let in_order = self.rows.last().is_none_or(|(_, last)| {
            (last.partition, last.end) <= (row.partition, row.base) || last.partition < row.partition
        });
        in_place && in_order
    }

    /// The row of that number, if it verifies.
    #[must_use]
    pub fn row(&self, number: u32) -> Option<&Row> {
        let at = self.rows.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.rows.get(at).map(|(_, row)| row)
    }

    /// Rows that do not verify.
    #[must_use]
    pub fn lost_rows(&self) -> u32 {
        self.expected.rows - self.rows.len() as u32
    }
}

/// One block: the entries between two marks of the sparse index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Offset of the first message.
    pub base: Offset,
    /// Ordinal of the first entry; those of the others follow without a gap.
    pub ordinal: Ordinal,
    /// Highest timestamp in it, -1 for none.
    pub max_timestamp: TimestampMs,
    /// Where its native bytes begin, from the start of the run.
    pub position: u32,
    /// How many native bytes.
    pub len: u32,
    /// Where its entry table begins, from the start of the run's tables.
    pub table: u32,
    /// Length of its entry table with checksum; 0 where the form describes itself.
    pub table_len: u32,
    /// Entries in it.
    pub entries: u32,
    /// CRC-32C of its native bytes.
    pub crc: u32,
}

/// The sparse index of one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SparseIndex {
    /// The blocks, in order; never empty.
    pub blocks: Vec<Block>,
}

impl SparseIndex {
    /// Appends the index as it is stored.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let (mut base, mut ordinal) = (0, 0);
        for b in &self.blocks {
            varint::put(out, u64::from(b.entries));
            varint::put(out, b.base.0.wrapping_sub(base));
            varint::put(out, b.ordinal.0.wrapping_sub(ordinal));
            varint::put(out, u64::from(b.len));
            varint::put(out, u64::from(b.table_len));
            varint::put_signed(out, b.max_timestamp);
            out.extend_from_slice(&b.crc.to_le_bytes());
            (base, ordinal) = (b.base.0, b.ordinal.0);
        }
        let sum = crc::crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&sum.to_le_bytes());
    }

    /// Reads the index of a row.
    ///
    /// # Errors
    /// `Damaged` when it does not verify or is not the row's.
    pub fn decode(row: &Row, bytes: &[u8]) -> Result<SparseIndex> {
        let (body, sum) = bytes.split_last_chunk().ok_or_else(|| damaged("a sparse index is too short"))?;
        if crc::crc32c(body) != u32::from_le_bytes(*sum) {
            return Err(damaged("a sparse index has a wrong checksum"));
        }
        decode_blocks(row, body).map_err(|e| damaged(&e.to_string()))
    }

    /// The block in which the first entry that ends above `offset` is, or the next block where it lies in a gap.
    #[must_use]
    pub fn find(&self, offset: Offset) -> usize {
        self.blocks.partition_point(|b| b.base <= offset).saturating_sub(1)
    }

    /// Memory it takes. Bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<SparseIndex>() + self.blocks.capacity() * size_of::<Block>()
    }
}

fn decode_blocks(row: &Row, bytes: &[u8]) -> std::result::Result<SparseIndex, BinError> {
    let wrong = BinError { field: "sparse index" };
    let mut r = BinReader::new(bytes);
    // `Row::decode` held the number against the length.
    let mut blocks = Vec::with_capacity((row.blocks as usize).min(bytes.len() / BLOCK_BYTES_MIN));
    let (mut base, mut ordinal) = (0u64, 0u64);
    let (mut position, mut table, mut entries) = (0u32, 0u32, 0u32);
    for i in 0..row.blocks {
        let count = varint::take_u32(&mut r, "entries")?;
        let step = varint::take(&mut r, "base offset")?;
        base = base.checked_add(step).ok_or(wrong)?;
        ordinal = ordinal.checked_add(varint::take(&mut r, "ordinal")?).ok_or(wrong)?;
        let len = varint::take_u32(&mut r, "length")?;
        let table_len = varint::take_u32(&mut r, "table length")?;
        let max_timestamp = varint::take_signed(&mut r, "max timestamp")?;
        let crc = r.u32("checksum")?;
        let first_wrong = i == 0 && (base != row.base.0 || ordinal != row.first_ordinal.0);
        if first_wrong || (i > 0 && step == 0) || base >= row.end.0 || count == 0 {
            return Err(wrong);
        }
        let (base, ordinal) = (Offset(base), Ordinal(ordinal));
        blocks.push(Block { base, ordinal, max_timestamp, position, len, table, table_len, entries: count, crc });
        position = position.checked_add(len).ok_or(wrong)?;
        table = table.checked_add(table_len).ok_or(wrong)?;
        entries = entries.checked_add(count).ok_or(wrong)?;
    }
    r.end("sparse index")?;
    if (position, table, entries) != (row.len, row.tables_len, row.entries) {
        return Err(wrong);
    }
    Ok(SparseIndex { blocks })
}

/// The header as it is stored.
#[must_use]
pub fn encode_header(name: &SegmentName) -> Vec<u8> {
    let mut w = BinWriter::new();
    w.u64(MAGIC).u16(VERSION).u8(name.kind as u8).u8(name.class).u16(name.part).u16(name.rewrite);
    w.u64(name.first.0).u64(name.upto.0).u64(name.journal_file);
    seal(w, HEADER_BYTES)
}

/// The footer as it is stored.
#[must_use]
pub fn encode_footer(table: u64, rows: u32, table_crc: u32, native_bytes: u64) -> Vec<u8> {
    let mut w = BinWriter::new();
    w.u64(FOOTER_MAGIC).u64(table).u32(rows).u32(table_crc).u64(native_bytes);
    seal(w, FOOTER_BYTES)
}

/// Fills with zeros and puts the checksum into the last four bytes.
fn seal(mut w: BinWriter, len: usize) -> Vec<u8> {
    w.out.resize(len - 4, 0);
    let sum = crc::crc32c(&w.out);
    w.u32(sum);
    w.out
}

/// Takes the checksum off and compares it.
fn open<'a>(bytes: &'a [u8], what: &str) -> Result<BinReader<'a>> {
    match bytes.split_last_chunk() {
        Some((body, sum)) if crc::crc32c(body) == u32::from_le_bytes(*sum) => Ok(BinReader::new(body)),
        _ => Err(damaged(&format!("the {what}'s checksum is wrong"))),
    }
}

fn read_header(source: &dyn RangeSource, size: u64) -> Result<SegmentName> {
    let bytes = read(source, 0, HEADER_BYTES, size, "header")?;
    let mut r = open(&bytes, "header")?;
    let mut decode = || -> std::result::Result<_, BinError> {
        let magic = r.u64("magic")?;
        let version = r.u16("version")?;
        let kind = r.u8("kind")?;
        let (class, part, rewrite) = (r.u8("class")?, r.u16("part")?, r.u16("rewrite")?);
        let (first, upto) = (Index(r.u64("first index")?), Index(r.u64("last index")?));
        let kind = if kind == SegmentKind::Adopted as u8 { SegmentKind::Adopted } else { SegmentKind::Sorted };
        let journal_file = r.u64("journal file")?;
        Ok((magic, version, SegmentName { upto, first, kind, class, part, rewrite, journal_file }))
    };
    let (magic, version, name) = decode().map_err(|e| damaged(&e.to_string()))?;
    if magic != MAGIC {
        return Err(damaged("this is no segment file"));
    }
    if version != VERSION {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!("a segment file has version {version}; this program reads version {VERSION}"),
        ));
    }
    Ok(name)
}

struct Footer {
    table: u64,
    rows: u32,
    table_crc: u32,
    native_bytes: u64,
}

fn read_footer(source: &dyn RangeSource, size: u64) -> Result<Footer> {
    let at = size.saturating_sub(FOOTER_BYTES as u64);
    let bytes = read(source, at, FOOTER_BYTES, size, "footer")?;
    let mut r = open(&bytes, "footer")?;
    let mut decode = || -> std::result::Result<_, BinError> {
        let magic = r.u64("magic")?;
        let footer = Footer {
            table: r.u64("run table")?,
            rows: r.u32("rows")?,
            table_crc: r.u32("checksum")?,
            native_bytes: r.u64("native bytes")?,
        };
        Ok((magic, footer))
    };
    let (magic, footer) = decode().map_err(|e| damaged(&e.to_string()))?;
    let table_bytes = u64::from(footer.rows) * ROW_BYTES as u64;
    let fits = footer.table >= HEADER_BYTES as u64 && footer.table.checked_add(table_bytes) == Some(at);
    if magic != FOOTER_MAGIC || footer.rows > ROWS_MAX || !fits {
        return Err(damaged("the footer does not fit the file"));
    }
    Ok(footer)
}

/// Reads a piece whose length the file itself stated: it is held against the file's size before memory is taken.
fn read(source: &dyn RangeSource, position: u64, len: usize, size: u64, what: &str) -> Result<Vec<u8>> {
    if position.checked_add(len as u64).is_none_or(|end| end > size) {
        return Err(damaged(&format!("the {what} runs over the end of the file")));
    }
    let mut bytes = vec![0; len];
    source
        .read_exact_at(&mut bytes, position)
        .map_err(|e| Error::io(format!("cannot read the {what} of a segment"), e))?;
    Ok(bytes)
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, what)
}
