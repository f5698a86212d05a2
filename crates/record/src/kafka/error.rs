//! What is wrong with a batch, in Kafka's words.

use super::HEADER_BYTES;
use crate::compress::CompressError;
use std::fmt;

/// The error code of Kafka that a [`BatchError`] is answered with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// CORRUPT_MESSAGE
    CorruptMessage,
    /// MESSAGE_TOO_LARGE
    MessageTooLarge,
    /// RECORD_LIST_TOO_LARGE
    RecordListTooLarge,
    /// INVALID_TIMESTAMP
    InvalidTimestamp,
    /// UNSUPPORTED_COMPRESSION_TYPE
    UnsupportedCompressionType,
    /// INVALID_RECORD
    InvalidRecord,
}

impl ErrorKind {
    /// The number on the wire (Kafka's `Errors`).
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::CorruptMessage => 2,
            Self::MessageTooLarge => 10,
            Self::RecordListTooLarge => 18,
            Self::InvalidTimestamp => 32,
            Self::UnsupportedCompressionType => 76,
            Self::InvalidRecord => 87,
        }
    }
}

/// Why a batch is refused. The texts are those of Kafka's brokers, without the name of the partition that some of them end
/// with: only the caller knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BatchError {
    /// No complete batch.
    NoBatch,
    /// Bytes after the first batch.
    MoreThanOneBatch,
    /// Magic 0 or 1: the message sets of before 0.11, which Kafka 4 no longer takes.
    OldMagic(i8),
    /// A magic that never was.
    UnknownMagic(i8),
    /// The length field is too small for a batch.
    TooShort {
        /// Bytes of the whole batch by its length field.
        size: i64,
    },
    /// The checksum does not match.
    Crc {
        /// In the batch.
        stored: u32,
        /// Of its bytes.
        computed: u32,
    },
    /// A producer has to leave the offset to the broker.
    BaseOffset(i64),
    /// The last offset lies before the first.
    OffsetRange {
        /// The first offset.
        base: i64,
        /// The last offset.
        last: i64,
    },
    /// Zero records, or fewer.
    Count(i32),
    /// The offsets and the count of records disagree.
    CountMismatch {
        /// The first offset.
        base: i64,
        /// The last offset.
        last: i64,
        /// Records by the header.
        count: i32,
    },
    /// Transaction markers come from the broker only.
    Control,
    /// A producer id without a sequence number.
    Sequence {
        /// The sequence number.
        sequence: i32,
        /// The producer.
        producer_id: i64,
    },
    /// Transactional without a producer id.
    TransactionalWithoutProducer,
    /// Only the broker sets the append time.
    LogAppendTime,
    /// Compression type 5, 6 or 7.
    UnknownCompression(u8),
    /// ZStandard in a produce request of a version below 7.
    ZstdTooEarly {
        /// The version of the request.
        version: i16,
    },
    /// More bytes than a batch of this topic may have.
    TooLarge {
        /// Bytes of the batch.
        size: usize,
        /// The topic's `max.message.bytes`.
        limit: usize,
    },
    /// More bytes than a segment may have.
    LargerThanSegment {
        /// Bytes of the batch.
        size: usize,
        /// The topic's `segment.bytes`.
        limit: usize,
    },
    /// The records do not decompress, or to too many bytes.
    Compress(CompressError),
    /// LZ4 blocks that refer to one another, which Kafka's Java clients cannot read.
    LinkedLz4Blocks,
    /// One record is not framed as it should be.
    Record {
        /// The number of the record, from 0 on.
        index: i32,
        /// What is wrong with it.
        fault: RecordFault,
    },
    /// There is something after the last record.
    BytesAfterRecords,
    /// Records that the topic does not take.
    Refused {
        /// Whether one of them is refused for its timestamp, which decides the error code.
        timestamp: bool,
        /// How many are refused.
        count: u32,
        /// The first of them, at most [`REFUSED_RECORDS_MAX`].
        records: Vec<RefusedRecord>,
    },
}

/// How many refused records an error names: the answer to a hostile batch stays small.
pub const REFUSED_RECORDS_MAX: usize = 100;

/// What is wrong with the frame of one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordFault {
    /// The batch ends inside it.
    EndsEarly,
    /// Its fields do not end where its length says.
    Size,
    /// A number with more bits than it may have.
    Varint,
    /// A negative number of headers.
    HeaderCount(i32),
    /// A header without a key.
    HeaderKey,
}

impl fmt::Display for RecordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndsEarly => write!(f, "Incorrect declared batch size, premature EOF reached"),
            Self::Size => write!(f, "Invalid record size: the fields do not end where the record does"),
            Self::Varint => write!(f, "Found invalid record structure: varint is too long"),
            Self::HeaderCount(count) => write!(f, "Found invalid number of record headers {count}"),
            Self::HeaderKey => write!(f, "Invalid negative header key size"),
        }
    }
}

/// A record that a topic does not take (KIP-467: `record_errors` of a produce response).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusedRecord {
    /// The number of the record in its batch, from 0 on.
    pub index: i32,
    /// Why.
    pub reason: RefusedFor,
}

/// Why a topic does not take a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusedFor {
    /// A compacted topic keeps the last record of each key.
    NoKey,
    /// Its timestamp is too far from the broker's clock.
    Timestamp {
        /// The record's timestamp. Milliseconds.
        timestamp: i64,
        /// The record's offset, as the producer numbered it.
        offset: i64,
        /// The lowest timestamp allowed now. Milliseconds.
        from: i64,
        /// The highest. Milliseconds.
        to: i64,
    },
}

impl fmt::Display for RefusedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey => write!(f, "Compacted topic cannot accept message without key"),
            Self::Timestamp { timestamp, offset, from, to } => write!(
                f,
                "Timestamp {timestamp} of message with offset {offset} is out of range. The timestamp should be within \
                 [{from}, {to}]"
            ),
        }
    }
}

impl From<CompressError> for BatchError {
    fn from(e: CompressError) -> BatchError {
        BatchError::Compress(e)
    }
}

impl BatchError {
    /// The error code it is answered with.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownMagic(_) | Self::TooShort { .. } | Self::Crc { .. } => {
                ErrorKind::CorruptMessage
            }
            Self::UnknownCompression(_) | Self::ZstdTooEarly { .. } => {
                ErrorKind::UnsupportedCompressionType
            }
            Self::LogAppendTime | Self::Refused { timestamp: true, .. } => ErrorKind::InvalidTimestamp,
            // A producer splits such a batch and tries again, which helps unless it is a bomb.
            Self::TooLarge { .. } | Self::Compress(CompressError::TooLarge { .. }) => ErrorKind::MessageTooLarge,
            Self::LargerThanSegment { .. } => ErrorKind::RecordListTooLarge,
            Self::NoBatch
            | Self::MoreThanOneBatch
            | Self::OldMagic(_)
            | Self::BaseOffset(_)
            | Self::OffsetRange { .. }
            | Self::Count(_)
            | Self::CountMismatch { .. }
            | Self::Control
            | Self::Sequence { .. }
            | Self::TransactionalWithoutProducer
            // Not CORRUPT_MESSAGE: the checksum was right, so that sending it again would change nothing.
            | Self::Compress(CompressError::Corrupt { .. })
            | Self::LinkedLz4Blocks
            | Self::Record { .. }
            | Self::BytesAfterRecords
            | Self::Refused { timestamp: false, .. } => ErrorKind::InvalidRecord,
        }
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBatch => write!(f, "Produce requests must have at least one record batch per partition"),
            Self::MoreThanOneBatch => {
                write!(f, "Produce requests are only allowed to contain exactly one record batch per partition")
            }
            Self::OldMagic(_) => {
                write!(f, "Produce requests are only allowed to contain record batches with magic version 2")
            }
            Self::UnknownMagic(magic) => write!(f, "Invalid magic found in record: {magic}"),
            Self::TooShort { size } => write!(
                f,
                "Record batch is corrupt (the size {size} is smaller than the minimum allowed overhead {HEADER_BYTES})"
            ),
            Self::Crc { stored, computed } => {
                write!(f, "Record is corrupt (stored crc = {stored}, computed crc = {computed})")
            }
            Self::BaseOffset(base) => write!(f, "The baseOffset of the record batch should be 0, but it is {base}"),
            Self::OffsetRange { base, last } => {
                write!(f, "Batch has an invalid offset range: [{base}, {last}]")
            }
            Self::Count(count) => write!(f, "Invalid reported count for record batch: {count}"),
            Self::CountMismatch { base, last, count } => {
                write!(f, "Inconsistent batch offset range [{base}, {last}] and count of records {count}")
            }
            Self::Control => write!(f, "Clients are not allowed to write control records"),
            Self::Sequence { sequence, producer_id } => {
                write!(f, "Invalid sequence number {sequence} in record batch with producerId {producer_id}")
            }
            Self::TransactionalWithoutProducer => {
                write!(f, "Transactional record batch without a producerId")
            }
            Self::LogAppendTime => {
                write!(f, "Invalid timestamp type. Producer should not set timestamp type to LogAppendTime.")
            }
            Self::UnknownCompression(id) => write!(f, "Unknown compression type id: {id}"),
            Self::ZstdTooEarly { version } => {
                write!(f, "Produce requests with version {version} are not allowed to use ZStandard compression")
            }
            Self::TooLarge { size, limit } => {
                write!(f, "The record batch size is {size} bytes which exceeds the maximum configured value of {limit}")
            }
            Self::LargerThanSegment { size, limit } => {
                write!(
                    f,
                    "Message batch size is {size} bytes which exceeds the maximum configured segment size of {limit}"
                )
            }
            Self::Compress(e) => write!(f, "Failed to decompress record stream: {e}"),
            Self::LinkedLz4Blocks => {
                write!(f, "Dependent block stream is unsupported (BLOCK_INDEPENDENCE must be set)")
            }
            Self::Record { index, fault } => write!(f, "{fault} (record {index})"),
            Self::BytesAfterRecords => {
                write!(f, "Incorrect declared batch size, records still remaining in file")
            }
            Self::Refused { timestamp: true, .. } => {
                write!(f, "One or more records have been rejected due to invalid timestamp")
            }
            Self::Refused { count, .. } => {
                write!(f, "One or more records have been rejected due to {count} record errors in total")
            }
        }
    }
}

impl std::error::Error for BatchError {}
