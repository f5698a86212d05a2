//! Writing a segment: runs one after the other, in pieces, flushed now and then.

use super::entries::{TableEncoder, describes_itself};
use super::format::{Block, FOOTER_BYTES, ROW_BYTES, Row, SegmentName, SparseIndex, encode_footer, encode_header};
use crate::error::{Error, ErrorKind, Result};
use crate::journal::pages::PageWriter;
use polylogue_env::DiskFile;
use polylogue_record::crc;
use polylogue_record::envelope::{Envelope, Form};
use polylogue_types::bin::BinWriter;
use polylogue_types::{Offset, Ordinal, PartitionId, TimestampMs};
use std::collections::BTreeSet;
use std::sync::Arc;

/// So much is written until it is flushed. Each flush is one that the journal's may have to wait for. Bytes.
const FLUSH_BYTES: u64 = 4 << 20;

/// One entry on its way into a segment.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry<'a> {
    /// Offset of the first message.
    pub base: Offset,
    /// Offset after the last message.
    pub end: Offset,
    /// Its number in the partition.
    pub ordinal: Ordinal,
    /// Highest timestamp of its messages, -1 for none.
    pub max_timestamp: TimestampMs,
    /// When it was appended.
    pub append_time: TimestampMs,
    /// CRC-32C of its native bytes, already held against them.
    pub checksum: u32,
    /// Length of its native bytes.
    pub len: u32,
    /// Needed for forms that do not describe themselves.
    pub envelope: Option<&'a Envelope>,
}

/// A segment that is being written. Nothing refers to it before it is [finished](SegmentWriter::finish) and named by
/// the manifest.
#[derive(Debug)]
pub struct SegmentWriter {
    file: Arc<dyn DiskFile>,
    /// Writes whole pages: until the end the file is longer than what is written.
    pages: PageWriter,
    name: SegmentName,
    interval: u32,
    /// Bytes of the file that are written.
    written: u64,
    /// Of these, how many are flushed.
    flushed: u64,
    /// What comes after them.
    buffer: Vec<u8>,
    rows: Vec<Row>,
    damaged: BTreeSet<u32>,
    run: Option<OpenRun>,
    native_bytes: u64,
}

/// The run that is being filled.
#[derive(Debug)]
struct OpenRun {
    row: Row,
    tables: Vec<u8>,
    blocks: Vec<Block>,
    encoder: Option<TableEncoder>,
    /// The last block takes no more entries.
    closed: bool,
    damaged: bool,
}

/// A segment whose bytes are on the disk.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its name.
    pub name: SegmentName,
    /// Its runs, as in the run table.
    pub rows: Vec<Row>,
    /// Numbers of the rows with a block that does not verify.
    pub damaged: BTreeSet<u32>,
    /// Length of the `.seg` file in bytes.
    pub len: u64,
    /// CRC-32C of the run table.
    pub table_crc: u32,
    /// The `.seg` file.
    pub file: Arc<dyn DiskFile>,
}

impl SegmentWriter {
    /// Begins a segment in an empty file, which `direct` writes to; `interval` is the distance of the sparse index's marks in
    /// bytes.
    #[must_use]
    pub fn new(file: Arc<dyn DiskFile>, direct: Arc<dyn DiskFile>, name: SegmentName, interval: u32) -> SegmentWriter {
        let buffer = encode_header(&name);
        SegmentWriter {
            pages: PageWriter::over(direct, file.clone()),
            file,
            name,
            interval,
            written: 0,
            flushed: 0,
            buffer,
            rows: Vec::new(),
            damaged: BTreeSet::new(),
            run: None,
            native_bytes: 0,
        }
    }

    /// Where the next byte goes.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Bytes that are not written yet.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes of the run that is open, or 0.
    #[must_use]
    pub fn run_len(&self) -> u32 {
        self.run.as_ref().map_or(0, |run| run.row.len)
    }

    /// Begins a run. Its native bytes are appended here, or (of an adopted file) are already at `position`.
    ///
    /// # Errors
    /// `Invalid` when a position does not fit into 32 bits.
    pub fn begin_run(&mut self, partition: PartitionId, form: Form, position: Option<u64>) -> Result<()> {
        self.end_run()?;
        let position = narrow(position.unwrap_or_else(|| self.position()))?;
        let row = Row {
            partition,
            base: Offset(0),
            end: Offset(0),
            first_ordinal: Ordinal(0),
            last_ordinal: Ordinal(0),
            max_timestamp: -1,
            append_time: TimestampMs::MIN,
            position,
            len: 0,
            tables: 0,
            tables_len: 0,
            index_len: 0,
            blocks: 0,
            entries: 0,
            form,
        };
        let (tables, blocks) = (Vec::new(), Vec::new());
        self.run = Some(OpenRun { row, tables, blocks, encoder: None, closed: false, damaged: false });
        Ok(())
    }

    /// Adds an entry to the open run. Its native bytes must be appended with [`SegmentWriter::native`] in the same
    /// order (in larger pieces if that is easier), unless they are in an adopted file.
    ///
    /// # Errors
    /// `Invalid` without an open run, for an entry that is not above the one before, or one without the envelope
    /// that its form needs.
    pub fn entry(&mut self, entry: &NewEntry<'_>) -> Result<()> {
        let interval = self.interval;
        let run = self.run.as_mut().ok_or_else(|| invalid("there is no open run"))?;
        run.add(entry, Some(interval), 1)?;
        self.native_bytes += u64::from(entry.len);
        Ok(())
    }

    /// Adds `entries` entries whose bytes are known not to verify, as one block: `entry` says what should be there. The
    /// checksum that it names is kept, so that a reader of the block finds the damage again.
    ///
    /// # Errors
    /// As [`SegmentWriter::entry`].
    pub fn damaged(&mut self, entry: &NewEntry<'_>, entries: u32) -> Result<()> {
        let run = self.run.as_mut().ok_or_else(|| invalid("there is no open run"))?;
        run.add(entry, None, entries)?;
        run.closed = true;
        run.damaged = true;
        self.native_bytes += u64::from(entry.len);
        Ok(())
    }

    /// Appends native bytes of entries that were added.
    pub fn native(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Ends the open run, if there is one: its entry tables and sparse index follow the native bytes.
    ///
    /// # Errors
    /// `Invalid` when a position does not fit into 32 bits.
    pub fn end_run(&mut self) -> Result<()> {
        let Some(mut run) = self.run.take() else { return Ok(()) };
        run.close_table();
        if run.blocks.is_empty() {
            return Ok(());
        }
        let mut index = Vec::new();
        let blocks = SparseIndex { blocks: run.blocks };
        blocks.encode(&mut index);
        let row = Row {
            tables: narrow(self.position())?,
            tables_len: narrow(run.tables.len() as u64)?,
            index_len: narrow(index.len() as u64)?,
            blocks: narrow(blocks.blocks.len() as u64)?,
            ..run.row
        };
        self.buffer.extend_from_slice(&run.tables);
        self.buffer.extend_from_slice(&index);
        if run.damaged {
            self.damaged.insert(narrow(self.rows.len() as u64)?);
        }
        self.rows.push(row);
        Ok(())
    }

    /// Adds a run of another segment: its native bytes, then its tables and sparse index, whose positions count from the run.
    /// It becomes a part of the open run where it follows that one directly and both together are not longer than `len_max`.
    /// A sparse index that does not verify is taken over as it is.
    ///
    /// # Errors
    /// `Invalid` when a position does not fit into 32 bits.
    pub fn join_run(&mut self, row: &Row, native: &[u8], tables_and_index: &[u8], len_max: u32) -> Result<()> {
        let parts = tables_and_index.split_at_checked(row.tables_len as usize);
        let known = parts.and_then(|(tables, index)| Some((tables, SparseIndex::decode(row, index).ok()?)));
        let Some((tables, index)) = known else {
            return self.copy_run(row, native, tables_and_index);
        };
        if !self.run.as_ref().is_some_and(|run| run.takes(row, len_max)) {
            self.end_run()?;
            self.run = Some(OpenRun::before(row, narrow(self.position())?));
        }
        let run = self.run.as_mut().ok_or_else(|| invalid("there is no open run"))?;
        run.join(row, tables, index);
        self.buffer.extend_from_slice(native);
        self.native_bytes += u64::from(row.len);
        Ok(())
    }

    fn copy_run(&mut self, row: &Row, native: &[u8], tables_and_index: &[u8]) -> Result<()> {
        self.end_run()?;
        let position = narrow(self.position())?;
        self.buffer.extend_from_slice(native);
        let tables = narrow(self.position())?;
        self.buffer.extend_from_slice(tables_and_index);
        self.native_bytes += u64::from(row.len);
        self.rows.push(Row { position, tables, ..*row });
        Ok(())
    }

    /// Writes what is buffered. Now and then that is flushed, so that no flush has much to do: neither the last one of this file nor,
    /// meanwhile, those of the journal.
    ///
    /// # Errors
    /// `StorageFull`, `Io` from writing; then nothing refers to the file and it can be removed. A failed flush is reported
    /// apart by [`FlushError::Flush`], because it ends the process.
    pub fn write_piece(&mut self) -> std::result::Result<(), FlushError> {
        self.write()?;
        if self.written - self.flushed < FLUSH_BYTES {
            return Ok(());
        }
        self.flushed = self.written;
        self.sync()
    }

    fn write(&mut self) -> std::result::Result<(), FlushError> {
        let write = self.pages.write(&self.buffer, self.written);
        write.map_err(|e| FlushError::Write(Error::io(format!("cannot write segment {}", self.name), e)))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&self) -> std::result::Result<(), FlushError> {
        let flush = self.file.sync_data();
        flush.map_err(|e| FlushError::Flush(Error::io(format!("cannot flush segment {}", self.name), e)))
    }

    /// Ends the segment: run table, footer, flush. The directory is not flushed.
    ///
    /// # Errors
    /// As [`SegmentWriter::write_piece`].
    pub fn finish(mut self) -> std::result::Result<Finished, FlushError> {
        self.end_run().map_err(FlushError::Write)?;
        let mut table = BinWriter { out: Vec::with_capacity(self.rows.len() * ROW_BYTES + FOOTER_BYTES) };
        for row in &self.rows {
            row.encode(&mut table);
        }
        let table_crc = crc::crc32c(&table.out);
        let rows = narrow(self.rows.len() as u64).map_err(FlushError::Write)?;
        let footer = encode_footer(self.position(), rows, table_crc, self.native_bytes);
        self.buffer.extend_from_slice(&table.out);
        self.buffer.extend_from_slice(&footer);
        self.write()?;
        let cut = self.file.set_len(self.written);
        cut.map_err(|e| FlushError::Write(Error::io(format!("cannot set the length of segment {}", self.name), e)))?;
        self.sync()?;
        let (name, rows, damaged) = (self.name, self.rows, self.damaged);
        Ok(Finished { name, rows, damaged, len: self.written, table_crc, file: self.file })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &SegmentName {
        &self.name
    }

    /// Bytes that are written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The form of the open run.
    #[must_use]
    pub fn run_form(&self) -> Option<Form> {
        self.run.as_ref().map(|run| run.row.form)
    }
}

/// Why a piece did not reach the disk.
#[derive(Debug)]
pub enum FlushError {
    /// It could not be written: the segment is given up, nothing else is lost.
    Write(Error),
    /// The flush failed: the content of the disk is unknown.
    Flush(Error),
}

impl OpenRun {
    /// A run at `position` that another one is about to become the first part of.
    fn before(row: &Row, position: u32) -> OpenRun {
        let (tables, index_len, len) = (0, 0, 0);
        let row = Row { position, len, tables, tables_len: 0, index_len, blocks: 0, entries: 0, ..*row };
        OpenRun { row, tables: Vec::new(), blocks: Vec::new(), encoder: None, closed: true, damaged: false }
    }

    /// Whether a run of another segment can become a part of this one.
    fn takes(&self, row: &Row, len_max: u32) -> bool {
        let mine = &self.row;
        let fits = |a: u32, b: u32, max: u32| a.checked_add(b).is_some_and(|sum| sum <= max);
        (mine.partition, mine.form, mine.end) == (row.partition, row.form, row.base)
            && mine.last_ordinal < row.first_ordinal
            && fits(mine.len, row.len, len_max)
            && fits(mine.entries, row.entries, u32::MAX)
            && fits(self.tables.len() as u32, row.tables_len, i32::MAX as u32)
    }

    /// Makes a run of another segment a part of this one.
    fn join(&mut self, row: &Row, tables: &[u8], index: SparseIndex) {
        // Where a block begins is not stored: it follows from the lengths of those before it.
        self.blocks.extend(index.blocks);
        self.tables.extend_from_slice(tables);
        let mine = &mut self.row;
        (mine.end, mine.last_ordinal) = (row.end, row.last_ordinal);
        mine.max_timestamp = mine.max_timestamp.max(row.max_timestamp);
        mine.append_time = mine.append_time.max(row.append_time);
        mine.len += row.len;
        mine.entries += row.entries;
        self.closed = true;
    }

    /// Adds so many entries that `entry` describes together. Without an interval they are known to be damaged.
    fn add(&mut self, entry: &NewEntry<'_>, interval: Option<u32>, entries: u32) -> Result<()> {
        let row = &mut self.row;
        if entry.base >= entry.end || (row.entries > 0 && entry.base < row.end) {
            return Err(invalid("an entry is not above the one before"));
        }
        let fresh = match self.blocks.last() {
            None => true,
            Some(b) => {
                self.closed
                    || interval.is_none_or(|i| b.len >= i)
                    || b.ordinal.0 + u64::from(b.entries) != entry.ordinal.0
            }
        };
        if fresh {
            self.close_table();
            self.open_block(entry, interval.is_some());
        }
        let row = &mut self.row;
        let block = self.blocks.last_mut().ok_or_else(|| invalid("a run has no block"))?;
        block.crc = crc::combine(block.crc, entry.checksum, u64::from(entry.len));
        block.len += entry.len;
        block.entries += entries;
        block.max_timestamp = block.max_timestamp.max(entry.max_timestamp);
        if let Some(encoder) = &mut self.encoder {
            let envelope = entry.envelope.ok_or_else(|| invalid("an entry needs its envelope"))?;
            encoder.push(&mut self.tables, envelope, entry.len, entry.checksum);
        }
        if row.entries == 0 {
            row.base = entry.base;
            row.first_ordinal = entry.ordinal;
        }
        row.end = entry.end;
        row.last_ordinal = Ordinal(entry.ordinal.0 + u64::from(entries) - 1);
        row.max_timestamp = row.max_timestamp.max(entry.max_timestamp);
        row.append_time = row.append_time.max(entry.append_time);
        row.len = row.len.checked_add(entry.len).ok_or_else(|| invalid("a run is too long"))?;
        row.entries += entries;
        Ok(())
    }

    fn open_block(&mut self, entry: &NewEntry<'_>, listed: bool) {
        self.closed = false;
        self.blocks.push(Block {
            base: entry.base,
            ordinal: entry.ordinal,
            max_timestamp: -1,
            position: self.row.len,
            len: 0,
            table: self.tables.len() as u32,
            table_len: 0,
            entries: 0,
            crc: 0,
        });
        if listed && !describes_itself(self.row.form) {
            self.encoder = Some(TableEncoder::new(&self.tables, entry.base));
        }
    }

    fn close_table(&mut self) {
        if let (Some(encoder), Some(block)) = (self.encoder.take(), self.blocks.last_mut()) {
            block.table_len = encoder.finish(&mut self.tables);
        }
    }
}

fn narrow(value: u64) -> Result<u32> {
    u32::try_from(value).map_err(|_| invalid("a segment grows over 4 GiB"))
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, what)
}
