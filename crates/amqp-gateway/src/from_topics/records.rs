//! The records of a read of a partition, one by one.

use bytes::BytesMut;
use polylogue_record::kafka::{Batch, BatchIter, Record, RecordIter, records};
use polylogue_types::Chunk;
use polylogue_types::limits::DECOMPRESSED_BYTES_MAX;
use std::io;

/// A batch whose records are being taken.
#[derive(Debug)]
struct Open {
    records: RecordIter,
    /// The offset after its last one.
    end: u64,
    /// The memory that it occupies until all records are taken. Bytes.
    bytes: usize,
}

/// The next element of a read.
#[derive(Debug)]
pub(super) enum Next {
    Record(Record),
    /// A compressed batch. It may be a thousand times as large as its input, and needs a long turn.
    Compressed,
    End,
}

/// See the module. Invalid bytes are skipped.
#[derive(Debug)]
pub(super) struct Records {
    batches: BatchIter,
    /// The next batch, if it is compressed and was not opened yet.
    compressed: Option<Batch>,
    /// The batch of the next record.
    open: Option<Open>,
    /// A record that was taken and put back.
    back: Option<Record>,
    /// Where reading began.
    from: u64,
    /// The offset after everything that was taken or skipped.
    next: u64,
    is_empty: bool,
    damaged: u64,
}

impl Records {
    /// The result of a read from an offset on.
    pub(super) fn new(chunks: &[Chunk], from: u64) -> io::Result<Records> {
        let bytes = match chunks {
            [one] => one.to_bytes()?,
            several => {
                let mut whole = BytesMut::new();
                for chunk in several {
                    whole.extend_from_slice(&chunk.to_bytes()?);
                }
                whole.freeze()
            }
        };
        let is_empty = bytes.is_empty();
        let (batches, open, back, damaged) = (BatchIter::new(bytes), None, None, 0);
        Ok(Records { batches, compressed: None, open, back, from, next: from, is_empty, damaged })
    }

    /// The offset after everything that was taken or skipped.
    pub(super) fn passed(&self) -> u64 {
        self.back.as_ref().map_or(self.next, |record| record.offset as u64)
    }

    /// Something was read, and it starts with bytes that are no batch.
    pub(super) fn is_stuck(&self) -> bool {
        !self.is_empty && self.back.is_none() && self.next == self.from
    }

    /// Nothing was read.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Memory beyond the input: one decompressed batch. Bytes.
    pub(super) fn open_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.bytes)
    }

    /// How many records could not be decoded since the last call.
    pub(super) fn take_damaged(&mut self) -> u64 {
        std::mem::take(&mut self.damaged)
    }

    pub(super) fn put_back(&mut self, record: Record) {
        self.back = Some(record);
    }

    /// Returns the next record that is a message. At most one compressed batch is opened, and only if the turn may take `long`.
    pub(super) fn next(&mut self, mut long: bool) -> Next {
        if let Some(record) = self.back.take() {
            return Next::Record(record);
        }
        loop {
            let Some(Open { records, end, .. }) = &mut self.open else {
                // After bytes that are no batch nothing can be found.
                let Some(batch) = self.compressed.take().or_else(|| self.batches.next()?.ok()) else {
                    return Next::End;
                };
                if batch.header.compression() != 0 && !std::mem::take(&mut long) {
                    self.compressed = Some(batch);
                    return Next::Compressed;
                }
                self.open_batch(&batch);
                continue;
            };
            let end = *end;
            match records.next() {
                Some(Ok(record)) => match u64::try_from(record.offset) {
                    // Reading began within the batch.
                    Ok(offset) if offset < self.next => {}
                    Ok(offset) => {
                        self.next = offset + 1;
                        return Next::Record(record);
                    }
                    Err(_) => self.damaged += 1,
                },
                other => {
                    if other.is_some() {
                        self.damaged += end.saturating_sub(self.next).max(1);
                    }
                    self.next = self.next.max(end);
                    self.open = None;
                }
            }
        }
    }

    /// Opens a batch.
    fn open_batch(&mut self, batch: &Batch) {
        let end = u64::try_from(batch.header.last_offset()).map_or(self.next, |last| last + 1);
        if batch.header.is_control() || end <= self.next {
            self.next = self.next.max(end);
            return;
        }
        match records(&batch.bytes, DECOMPRESSED_BYTES_MAX) {
            Ok(records) => {
                let bytes = records.bytes_left();
                self.open = Some(Open { records, end, bytes });
            }
            Err(_) => {
                self.damaged += end - self.next;
                self.next = end;
            }
        }
    }
}
