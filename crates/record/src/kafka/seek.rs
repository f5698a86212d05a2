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
    let header = BatchHeader::parse(batch)?;
    if header.max_timestamp < timestamp {
        return Ok(None);
    }
    walk(batch, &header, cap_bytes, |frame| {
        let record = RecordAt { offset: header.offset_of(frame.offset_delta), timestamp: frame.timestamp };
        let is_it = record.timestamp >= timestamp && record.offset >= from_offset;
        if is_it { ControlFlow::Break(record) } else { ControlFlow::Continue(()) }
    })
}

/// The first record of `batch` that has the highest timestamp of those with an offset of at least `from_offset`: what ListOffsets
/// answers for -3. Under log append time that is the first of them. `None` when there are none.
///
/// Source: `RecordBatch.offsetOfMaxTimestamp`, which knows no `from_offset` and answers with records below the log's start, too.
///
/// # Errors
/// [`BatchError`] when the records before it are no records, or decompress to more than `cap_bytes`.
pub fn max_timestamp_record(batch: &[u8], from_offset: i64, cap_bytes: usize) -> Result<Option<RecordAt>, BatchError> {
    let header = BatchHeader::parse(batch)?;
    let mut highest: Option<RecordAt> = None;
    let found = walk(batch, &header, cap_bytes, |frame| {
        let record = RecordAt { offset: header.offset_of(frame.offset_delta), timestamp: frame.timestamp };
        if record.offset < from_offset || highest.is_some_and(|highest| highest.timestamp >= record.timestamp) {
            return ControlFlow::Continue(());
        }
        highest = Some(record);
        // None that follows is higher.
        if record.timestamp == header.max_timestamp { ControlFlow::Break(record) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found.or(highest))
}
