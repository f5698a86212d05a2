//! What a broker checks before it takes a batch from a producer.
//!
//! Sources: `ProduceRequest.validateRecords`, `ByteBufferLogInputStream`, `UnifiedLog.analyzeAndValidateRecords`,
//! `LogValidator.validateBatch` of Kafka 4.

use super::{BatchError, BatchHeader, CRC_FROM, HEADER_BYTES};
use crate::crc;
use polylogue_types::limits;

/// The magic of the batches that Kafka 4 takes.
pub(super) const MAGIC: i8 = 2;

/// What a topic allows in a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProduceRules {
    /// The version of the produce request: ZStandard needs 7.
    pub api_version: i16,
    /// The topic's `max.message.bytes`.
    pub batch_bytes_max: usize,
    /// The topic's `segment.bytes`.
    pub segment_bytes: usize,
}

impl Default for ProduceRules {
    fn default() -> ProduceRules {
        ProduceRules { api_version: 13, batch_bytes_max: limits::MESSAGE_BYTES_MAX, segment_bytes: 1 << 30 }
    }
}

/// A batch that may be taken. Its checksum, its producer and the flags of its envelope are in the header, which is therefore
/// the one thing to read again when the batch is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValidatedBatch {
    /// The header, as the producer sent it; its checksum is that of the bytes.
    pub header: BatchHeader,
    /// How many records, and so how many offsets. Never 0.
    pub count: u32,
}

/// Checks that `bytes` are one batch that a producer may send under `rules`. The records are not looked at: a log that lets
/// producers compress, set timestamps or leave out keys wants them checked too.
///
/// # Errors
/// The first thing found wrong. Every byte is covered by a check or by the batch's CRC-32C, but for the leader epoch, which
/// the broker sets.
pub fn validate_produce(bytes: &[u8], rules: &ProduceRules) -> Result<ValidatedBatch, BatchError> {
    let header = only_batch(bytes, rules)?;
    if header.base_offset != 0 {
        return Err(BatchError::BaseOffset(header.base_offset));
    }
    if bytes.len() > rules.batch_bytes_max {
        return Err(BatchError::TooLarge { size: bytes.len(), limit: rules.batch_bytes_max });
    }
    if bytes.len() > rules.segment_bytes {
        return Err(BatchError::LargerThanSegment { size: bytes.len(), limit: rules.segment_bytes });
    }
    verify_crc(bytes, &header)?;
    check_claims(&header)?;
    Ok(ValidatedBatch { header, count: header.record_count.unsigned_abs() })
}

/// Compares the batch's checksum with its bytes. `batch` is exactly the batch.
///
/// # Errors
/// [`BatchError::Crc`], or [`BatchError::NoBatch`] for fewer bytes than a header has.
pub fn verify_crc(batch: &[u8], header: &BatchHeader) -> Result<(), BatchError> {
    let summed = batch.get(CRC_FROM..).ok_or(BatchError::NoBatch)?;
    let computed = crc::crc32c(summed);
    if computed == header.crc { Ok(()) } else { Err(BatchError::Crc { stored: header.crc, computed }) }
}

/// The header of the one batch that `bytes` are.
fn only_batch(bytes: &[u8], rules: &ProduceRules) -> Result<BatchHeader, BatchError> {
    // The magic decides what the other bytes mean. It stands at the same place in all versions.
    let magic = match bytes.get(16) {
        Some(&magic) => i8::from_be_bytes([magic]),
        None => return Err(BatchError::NoBatch),
    };
    match magic {
        MAGIC => {}
        0 | 1 => return Err(BatchError::OldMagic(magic)),
        _ => return Err(BatchError::UnknownMagic(magic)),
    }
    let header = BatchHeader::parse(bytes)?;
    let size = header.total_len();
    if size < HEADER_BYTES as i64 {
        return Err(BatchError::TooShort { size });
    }
    match usize::try_from(size) {
        Ok(size) if size == bytes.len() => {}
        Ok(size) if size < bytes.len() => return Err(BatchError::MoreThanOneBatch),
        _ => return Err(BatchError::NoBatch),
    }
    match header.compression() {
        0..=3 => Ok(header),
        4 if rules.api_version >= 7 => Ok(header),
        4 => Err(BatchError::ZstdTooEarly { version: rules.api_version }),
        id => Err(BatchError::UnknownCompression(id)),
    }
}

/// What a header may not say.
fn check_claims(header: &BatchHeader) -> Result<(), BatchError> {
    let (base, last) = (header.base_offset, header.last_offset());
    if header.last_offset_delta < 0 {
        return Err(BatchError::OffsetRange { base, last });
    }
    if header.record_count <= 0 {
        return Err(BatchError::Count(header.record_count));
    }
    if i64::from(header.last_offset_delta) + 1 != i64::from(header.record_count) {
        return Err(BatchError::CountMismatch { base, last, count: header.record_count });
    }
    if header.is_control() {
        return Err(BatchError::Control);
    }
    if header.has_producer() && header.base_sequence < 0 {
        return Err(BatchError::Sequence { sequence: header.base_sequence, producer_id: header.producer_id });
    }
    if header.is_transactional() && !header.has_producer() {
        return Err(BatchError::TransactionalWithoutProducer);
    }
    if header.is_log_append_time() {
        return Err(BatchError::LogAppendTime);
    }
    Ok(())
}
