//! Finding records by time, inside compressed batches too.

use super::walk::walk;
use super::{BatchError, BatchHeader};
use polylogue_types::TimestampMs;
use std::ops::ControlFlow;

/// A record's offset and timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordAt {
    /// The offset of the record.
    pub offset: i64,
    /// Its timestamp: the batch's under log append time. Milliseconds.
    pub timestamp: TimestampMs,
}

/// The first record of `batch` with an offset of at least `from_offset` and a timestamp of at least `timestamp`: what
/// ListOffsets answers for a time. It is the record, not its batch (KAFKA-16342).
///
/// Source: `FileRecords.searchForTimestamp`, which looks at no batch whose `max_timestamp` is lower either.
///
/// # Errors
/// [`BatchError`] when the records before it are no records, or decompress to more than `cap_bytes`.
pub fn first_at_or_after_timestamp(
    batch: &[u8],
    timestamp: TimestampMs,
    from_offset: i64,
    cap_bytes: usize,
) -> Result<Option<RecordAt>, BatchError> {
    find(batch, timestamp, cap_bytes, |record| record.timestamp >= timestamp && record.offset >= from_offset)
}

/// The first record of `batch` that has the batch's highest timestamp: what ListOffsets answers for -3. Under log append time
/// that is the first record. `None` for a batch without such a record, as compaction may leave one.
///
/// Source: `RecordBatch.offsetOfMaxTimestamp`.
///
/// # Errors
/// [`BatchError`] when the records before it are no records, or decompress to more than `cap_bytes`.
pub fn max_timestamp_record(batch: &[u8], cap_bytes: usize) -> Result<Option<RecordAt>, BatchError> {
    let max = BatchHeader::parse(batch)?.max_timestamp;
    find(batch, max, cap_bytes, |record| record.timestamp == max)
}

fn find(
    batch: &[u8],
    at_least: TimestampMs,
    cap_bytes: usize,
    wanted: impl Fn(&RecordAt) -> bool,
) -> Result<Option<RecordAt>, BatchError> {
    let header = BatchHeader::parse(batch)?;
    if header.max_timestamp < at_least {
        return Ok(None);
    }
    walk(batch, &header, cap_bytes, |frame| {
        let record = RecordAt { offset: header.offset_of(frame.offset_delta), timestamp: frame.timestamp };
        if wanted(&record) { ControlFlow::Break(record) } else { ControlFlow::Continue(()) }
    })
}
