//! Changing a batch after it has come in.
//!
//! Kafka's brokers touch what a checksum covers in three cases only: a topic with log append time, a producer that states a
//! wrong highest timestamp, and a topic with a compression of its own. The first two change ten bytes of the header; the
//! checksum then follows from those bytes, and the payload is not read again.
//!
//! Source: `LogValidator`, `DefaultRecordBatch.setMaxTimestamp`.

use super::header::{COMPRESSION_MASK, LOG_APPEND_TIME, LOG_OVERHEAD};
use super::walk::{Fault, Source, varint32, varint64};
use super::{BatchError, BatchHeader, CRC_FROM, HEADER_BYTES, RecordFault, varint};
use crate::compress::{Codec, compress, decompress};
use crate::crc;
use bytes::Bytes;
use polylogue_types::TimestampMs;

const CRC_AT: usize = 17;

/// Makes `now` the timestamp of all records of `batch`, which is exactly one batch with the right checksum. The records keep
/// theirs, but no reader sees them any more. Returns the new checksum.
///
/// # Errors
/// [`BatchError::NoBatch`] when the header is cut off.
pub fn set_log_append_time(batch: &mut [u8], now: TimestampMs) -> Result<u32, BatchError> {
    set_timestamp(batch, LOG_APPEND_TIME, now)
}

/// Corrects the highest timestamp of `batch`, which is exactly one batch with the right checksum, and whose producer set the
/// timestamps. Returns the new checksum.
///
/// # Errors
/// [`BatchError::NoBatch`] when the header is cut off.
pub fn set_max_timestamp(batch: &mut [u8], max_timestamp: TimestampMs) -> Result<u32, BatchError> {
    set_timestamp(batch, 0, max_timestamp)
}

/// A copy of `batch` under log append time: see [`set_log_append_time`].
///
/// # Errors
/// [`BatchError::NoBatch`] when the header is cut off.
pub fn rewrite_log_append_time(batch: &[u8], now: TimestampMs) -> Result<Bytes, BatchError> {
    let mut copy = batch.to_vec();
    set_log_append_time(&mut copy, now)?;
    Ok(Bytes::from(copy))
}

fn set_timestamp(batch: &mut [u8], timestamp_type: i16, max: TimestampMs) -> Result<u32, BatchError> {
    let mut header = BatchHeader::parse(batch)?;
    let (front, records) = batch.split_first_chunk_mut::<HEADER_BYTES>().ok_or(BatchError::NoBatch)?;
    let before = crc::crc32c(&front[CRC_FROM..]);
    header.attributes = header.attributes & !LOG_APPEND_TIME | timestamp_type;
    header.max_timestamp = max;
    *front = header.encode();
    let after = crc::crc32c(&front[CRC_FROM..]);
    let crc = crc::replace_front(header.crc, before, after, records.len() as u64);
    front[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    Ok(crc)
}

/// The records of `batch`, which is exactly one batch, compressed with `codec` at `level`, and numbered 0, 1, 2 and so on.
/// Offsets, timestamps and the producer stay.
///
/// # Errors
/// [`BatchError`] when the records are not what the header says, when they decompress to more than `cap_bytes`, or when the
/// result would be longer than a batch can be.
pub fn recompress(batch: &[u8], codec: Codec, level: Option<i32>, cap_bytes: usize) -> Result<Bytes, BatchError> {
    let header = BatchHeader::parse(batch)?;
    let payload = batch.get(HEADER_BYTES..).ok_or(BatchError::NoBatch)?;
    let plain = match header.codec()? {
        Codec::None => renumber(payload, header.record_count)?,
        from => renumber(&decompress(from, payload, cap_bytes)?, header.record_count)?,
    };
    let mut out = Vec::with_capacity(HEADER_BYTES + plain.len() / 2);
    out.resize(HEADER_BYTES, 0);
    compress(codec, level, &plain, &mut out)?;
    let attributes = header.attributes & !COMPRESSION_MASK | i16::from(codec.id());
    seal(out, BatchHeader { attributes, ..header })
}

/// Puts `header` in front of the records in `out`, where [`HEADER_BYTES`] bytes have been left for it, with the length and the
/// checksum that belong to them.
pub(super) fn seal(mut out: Vec<u8>, header: BatchHeader) -> Result<Bytes, BatchError> {
    let too_large = BatchError::TooLarge { size: out.len(), limit: i32::MAX as usize };
    let batch_length = i32::try_from(out.len() - LOG_OVERHEAD).map_err(|_| too_large)?;
    let (front, records) = out.split_first_chunk_mut::<HEADER_BYTES>().ok_or(BatchError::NoBatch)?;
    *front = BatchHeader { batch_length, ..header }.encode();
    let crc = crc::combine(crc::crc32c(&front[CRC_FROM..]), crc::crc32c(records), records.len() as u64);
    front[CRC_AT..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    Ok(Bytes::from(out))
}

/// The records of `payload` with the offset deltas 0, 1, 2 and so on.
fn renumber(payload: &[u8], count: i32) -> Result<Vec<u8>, BatchError> {
    let mut out = Vec::with_capacity(payload.len());
    let mut rest = payload;
    for index in 0..count {
        renumber_record(&mut rest, index, &mut out).map_err(|fault| fault.at(index))?;
    }
    if rest.is_empty() { Ok(out) } else { Err(BatchError::BytesAfterRecords) }
}

fn renumber_record(rest: &mut &[u8], index: i32, out: &mut Vec<u8>) -> Result<(), Fault> {
    let len = usize::try_from(varint32(rest)?).map_err(|_| RecordFault::Size)?;
    let (record, after) = rest.split_at_checked(len).ok_or(RecordFault::EndsEarly)?;
    *rest = after;
    let mut tail = record;
    tail.skip(1)?;
    varint64(&mut tail)?;
    let head = record.get(..record.len() - tail.len()).unwrap_or_default();
    varint32(&mut tail)?;
    let delta = i64::from(index);
    let len = head.len() + varint::len(delta) + tail.len();
    // A record is part of a batch, whose length is an i32 too: the sum can pass it by a few bytes at the most.
    varint::put(out, i64::try_from(len).unwrap_or(i64::MAX));
    out.extend_from_slice(head);
    varint::put(out, delta);
    out.extend_from_slice(tail);
    Ok(())
}
