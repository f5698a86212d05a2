//! Checks one batch of a produce request, and rewrites it if the topic requires.
//!
//! The header, the checksum and the framing of every record are always checked, as in Kafka: a batch with a valid checksum and broken
//! records would stop each consumer of the partition until it is deleted by retention. The check costs about 130 instructions
//! per record, and decompression if the batch is compressed.

use super::steps;
use super::work::Work;
use bytes::Bytes;
use polylogue_api::{AppendEntry, Compression, PartitionInfo, ProducerStamp, TimestampKind, TopicConfig};
use polylogue_kafka_codec::produce::BatchIndexAndErrorMessage;
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_record::compress::{Codec, CompressError};
use polylogue_record::envelope::Form;
use polylogue_record::kafka::{
    BatchError, BatchHeader, CRC_FROM, NO_TIMESTAMP, ProduceRules, RecordRules, RefusedRecord, TimestampRange,
    ValidatedBatch, check_records, recompress, rewrite_log_append_time, set_max_timestamp, validate_produce,
};
use polylogue_types::{ProducerId, TimestampMs};

/// Ratio to which each compressed batch may decompress whatever the other batches do: typical data compresses to no less
/// than a tenth.
pub(super) const RATIO_FREE: usize = 16;
/// The typical ratio of decompression.
const RATIO_USUAL: usize = 4;
/// Factor by which the limit grows when a batch exceeds it and is decompressed again.
const ROOM_FACTOR: usize = 4;
/// The minimum limit: less is decompressed at once in any case. Bytes.
const ROOM_BYTES_MIN: usize = 16 << 10;

/// The budget of one request for decompression and rewriting. A few bytes may decompress to any size, and a request may have
/// thousands of batches, so that a limit for each batch is not enough.
///
/// ```text
///   decompressed   16 times the size of each batch, plus one `decompressed_bytes_max` for all
///   rewritten      16 times the size of the request, plus the last batch
/// ```
#[derive(Debug)]
pub(super) struct Budget {
    /// What all batches together may decompress to beyond the free ratio. Bytes.
    decompressed: usize,
    /// Size of batches that are not stored as received; they stay in memory until they are committed. Bytes.
    rewritten: usize,
}

impl Budget {
    /// Makes the budget of a request of that size.
    pub(super) fn new(request_bytes: usize, decompressed_bytes_max: usize) -> Budget {
        Budget { decompressed: decompressed_bytes_max, rewritten: request_bytes.saturating_mul(RATIO_FREE) }
    }

    /// Runs an operation that decompresses a batch of `len` bytes with a limit; grows the limit by [`ROOM_FACTOR`], because the
    /// actual size is unknown. Returns the limit that was sufficient. A batch that would exceed `turn_max` bytes, or probably
    /// will, is left for another turn.
    fn decompress<T>(
        &mut self,
        len: usize,
        batch_max: usize,
        turn_max: usize,
        mut attempt: impl FnMut(usize) -> Result<T, BatchError>,
    ) -> Result<(T, usize), Halt> {
        let free = len.saturating_mul(RATIO_FREE).min(batch_max);
        let max = free.saturating_add(self.decompressed).min(batch_max);
        if len.saturating_mul(RATIO_USUAL) > turn_max {
            return Err(Halt::Pause);
        }
        let mut cap = free.min(turn_max);
        loop {
            match attempt(cap) {
                Err(BatchError::Compress(CompressError::TooLarge { .. })) if cap < max => {
                    if cap == turn_max {
                        return Err(Halt::Pause);
                    }
                    cap = cap.saturating_mul(ROOM_FACTOR).max(ROOM_BYTES_MIN).min(max).min(turn_max);
                }
                result => {
                    self.decompressed -= cap.saturating_sub(free);
                    return Ok((result?, cap));
                }
            }
        }
    }

    /// Charges a batch that is not stored as received.
    fn rewrite(&mut self, len: usize) -> Result<(), Refused> {
        if self.rewritten == 0 {
            let text = "The batches before it take all that a request's batches may take that are not stored as they \
                        came: send fewer of them in a request, or compress them as the topic has it.";
            return Err(Refused { message: StrBytes::from_static(text), ..Refused::plain(ErrorCode::MessageTooLarge) });
        }
        self.rewritten = self.rewritten.saturating_sub(len);
        Ok(())
    }
}

/// A batch to append.
pub(super) struct Ready {
    pub(super) entry: AppendEntry,
    /// The broker's time if the topic uses LogAppendTime; else -1.
    pub(super) append_time: TimestampMs,
}

/// Why a batch is not appended now.
#[derive(Debug)]
pub(super) enum Halt {
    /// It is refused.
    Refused(Refused),
    /// It exceeds the rest of the turn.
    Pause,
}

impl From<Refused> for Halt {
    fn from(refused: Refused) -> Halt {
        Halt::Refused(refused)
    }
}

impl From<BatchError> for Halt {
    fn from(error: BatchError) -> Halt {
        Halt::Refused(error.into())
    }
}

/// Why a batch is refused.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) error: ErrorCode,
    pub(super) message: StrBytes,
    pub(super) records: Vec<BatchIndexAndErrorMessage>,
}

impl From<BatchError> for Refused {
    fn from(error: BatchError) -> Refused {
        let records = match &error {
            BatchError::Refused { records, .. } => records.iter().map(record_error).collect(),
            _ => Vec::new(),
        };
        Refused {
            error: ErrorCode::from_code(error.kind().code()).unwrap_or(ErrorCode::InvalidRecord),
            message: error.to_string().into(),
            records,
        }
    }
}

fn record_error(refused: &RefusedRecord) -> BatchIndexAndErrorMessage {
    BatchIndexAndErrorMessage {
        batch_index: refused.index,
        batch_index_error_message: Some(refused.reason.to_string().into()),
    }
}

impl Refused {
    /// Makes a refusal with Kafka's default text.
    pub(super) fn plain(error: ErrorCode) -> Refused {
        Refused { error, message: StrBytes::from_static(error.message()), records: Vec::new() }
    }
}

/// Whether the batch is transactional, by its attributes.
#[inline]
pub(super) fn is_transactional(batch: &[u8]) -> bool {
    BatchHeader::parse(batch).is_ok_and(|header| header.magic == 2 && header.is_transactional())
}

/// Checks a batch for a partition, and converts it as the topic requires.
pub(super) fn prepare(
    work: &Work<'_>,
    config: &TopicConfig,
    partition: PartitionInfo,
    bytes: Bytes,
    budget: &mut Budget,
) -> Result<Ready, Halt> {
    let rules = ProduceRules {
        api_version: work.head.version,
        batch_bytes_max: config.max_message_bytes,
        ..ProduceRules::default()
    };
    let batch = validate_produce(&bytes, &rules)?;
    let Changed { bytes, batch } = change(work, config, bytes, batch, budget)?;
    let append_time = match config.timestamp_kind {
        TimestampKind::LogAppend => work.now.wall_ms,
        TimestampKind::Create => NO_TIMESTAMP,
    };
    let header = &batch.header;
    let entry = AppendEntry {
        partition: partition.id,
        form: Form::KafkaV2,
        flags: header.flags(),
        count: batch.count,
        max_timestamp: header.max_timestamp,
        body_crc: header.crc,
        summed_from: CRC_FROM as u32,
        producer: header.has_producer().then_some(ProducerStamp {
            id: ProducerId(header.producer_id),
            epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
        }),
        bytes,
    };
    Ok(Ready { entry, append_time })
}

/// A rewritten batch, with its header.
struct Changed {
    bytes: Bytes,
    batch: ValidatedBatch,
}

impl Changed {
    fn to(bytes: Bytes, batch: &ValidatedBatch) -> Result<Changed, BatchError> {
        let header = BatchHeader::parse(&bytes)?;
        Ok(Changed { bytes, batch: ValidatedBatch { header, ..*batch } })
    }
}

fn change(
    work: &Work<'_>,
    config: &TopicConfig,
    bytes: Bytes,
    batch: ValidatedBatch,
    budget: &mut Budget,
) -> Result<Changed, Halt> {
    let timestamps = (config.timestamp_kind == TimestampKind::Create).then(|| TimestampRange {
        now: work.now.wall_ms,
        before_max_ms: i64::try_from(config.timestamp_before_ms_max).unwrap_or(i64::MAX),
        after_max_ms: i64::try_from(config.timestamp_after_ms_max).unwrap_or(i64::MAX),
    });
    let has = batch.header.codec()?;
    if !work.steps.try_go_on(steps::of_records(batch.header.record_count, bytes.len())) {
        return Err(Halt::Pause);
    }
    let check = |decompressed_bytes_max| {
        let rules = RecordRules { compacted: config.cleanup.compact, timestamps, decompressed_bytes_max };
        check_records(&bytes, &batch.header, &rules)
    };
    let batch_max = work.settings.decompressed_bytes_max;
    let (checked, decompressed_bytes_max) = match has {
        Codec::None => (check(batch_max)?, batch_max),
        _ => {
            let done = budget.decompress(bytes.len(), batch_max, work.steps.decompressed_bytes(), check);
            let done = done.inspect_err(|halt| match halt {
                Halt::Pause => work.steps.pause(),
                Halt::Refused(_) => {}
            })?;
            work.steps.take(steps::of_decompression(done.0.bytes));
            done
        }
    };
    let mut changed = Changed { bytes, batch };
    if timestamps.is_some() && checked.max_timestamp != changed.batch.header.max_timestamp {
        budget.rewrite(changed.bytes.len())?;
        let mut copy = changed.bytes.to_vec();
        set_max_timestamp(&mut copy, checked.max_timestamp)?;
        changed = Changed::to(Bytes::from(copy), &changed.batch)?;
    }
    // Consumers derive offsets from offset deltas: duplicate deltas would lose a record.
    let renumbered = (!checked.consecutive).then_some((has, None));
    if let Some((codec, level)) = target(config.compression, has).or(renumbered) {
        if !work.steps.try_go_on(steps::of_compression(codec, level, checked.bytes)) {
            return Err(Halt::Pause);
        }
        // The second decompression of the same batch is not charged again.
        let bytes = recompress(&changed.bytes, codec, level, decompressed_bytes_max)?;
        if bytes.len() > config.max_message_bytes {
            return Err(BatchError::TooLarge { size: bytes.len(), limit: config.max_message_bytes }.into());
        }
        budget.rewrite(bytes.len())?;
        changed = Changed::to(bytes, &changed.batch)?;
    }
    if config.timestamp_kind == TimestampKind::LogAppend {
        budget.rewrite(changed.bytes.len())?;
        let bytes = rewrite_log_append_time(&changed.bytes, work.now.wall_ms)?;
        changed = Changed::to(bytes, &changed.batch)?;
    }
    Ok(changed)
}

/// Returns the codec if the batch must be recompressed. A different level alone is no reason.
fn target(wanted: Compression, has: Codec) -> Option<(Codec, Option<i32>)> {
    let (codec, level) = match wanted {
        Compression::Producer => return None,
        Compression::None => (Codec::None, None),
        Compression::Gzip(level) => (Codec::Gzip, Some(level)),
        Compression::Snappy => (Codec::Snappy, None),
        Compression::Lz4(level) => (Codec::Lz4, Some(level)),
        Compression::Zstd(level) => (Codec::Zstd, Some(level)),
    };
    (codec != has).then_some((codec, level))
}
