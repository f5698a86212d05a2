//! What was read of a partition, record by record.

use bytes::BytesMut;
use polylogue_record::kafka::{Batch, BatchIter, Record, RecordIter, records};
use polylogue_types::Chunk;
use polylogue_types::limits::DECOMPRESSED_BYTES_MAX;
use std::io;

/// A batch whose records are taken.
#[derive(Debug)]
struct Open {
    records: RecordIter,
    /// The offset after its last one.
    end: u64,
    /// What it has in memory as long as any of it is left. Bytes.
    bytes: usize,
}

/// What comes next of what was read.
#[derive(Debug)]
pub(super) enum Next {
    Record(Record),
    /// A compressed batch. It may have a thousand times as many bytes as were read, and is for a turn that may take long.
    Compressed,
    End,
}

/// See the module. What cannot be read is passed over.
#[derive(Debug)]
pub(super) struct Records {
    batches: BatchIter,
    /// The next batch, where it is compressed and was not to be opened yet.
    compressed: Option<Batch>,
    /// The batch in which the next record is.
    open: Option<Open>,
    /// Was taken and put back.
    back: Option<Record>,
    /// Where reading began.
    from: u64,
    /// The offset after what was passed.
    next: u64,
    is_empty: bool,
    damaged: u64,
}

impl Records {
    /// What was read, from an offset on.
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

    /// The offset after all that was taken.
    pub(super) fn passed(&self) -> u64 {
        self.back.as_ref().map_or(self.next, |record| record.offset as u64)
    }

    /// Something was read, and nothing of it could be passed: it begins with what is no batch.
    pub(super) fn is_stuck(&self) -> bool {
        !self.is_empty && self.back.is_none() && self.next == self.from
    }

    /// Nothing was read.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// What is in memory beyond what was read: one batch, decompressed. Bytes.
    pub(super) fn open_bytes(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.bytes)
    }

    /// Records that could not be read since the last call.
    pub(super) fn take_damaged(&mut self) -> u64 {
        std::mem::take(&mut self.damaged)
    }

    pub(super) fn put_back(&mut self, record: Record) {
        self.back = Some(record);
    }

    /// The next record that is a message. A compressed batch, one at the most, is opened only where the turn may take `long`.
    pub(super) fn next(&mut self, mut long: bool) -> Next {
        if let Some(record) = self.back.take() {
            return Next::Record(record);
        }
        loop {
            let Some(Open { records, end, .. }) = &mut self.open else {
                // Behind something that is no batch nothing can be found.
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
                    // Reading began inside of the batch.
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

    /// Goes on to a batch.
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
