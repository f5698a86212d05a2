//! Kafka's record batch, magic 2 (KIP-98), as it lies in a produce request, in the log and in a fetch response.
//!
//! The layout and its rules are those of Kafka's `DefaultRecordBatch`, `DefaultRecord` and `LogValidator`; the module that a
//! rule is in names its source.
//!
//! The way of a produce request's batch, in the order in which each step may change the bytes of the one before:
//!
//! 1. [`validate_produce`]: the header and the checksum.
//! 2. [`check_records`]: the records. Returns the right header values, where the header differs.
//! 3. [`recompress`], when the topic has a compression of its own or the records are not numbered 0, 1, 2 and so on.
//! 4. [`set_log_append_time`], or [`set_max_timestamp`] when the header's is wrong: the payload is not summed again.
//! 5. [`patch_base`]: the offset and the leader epoch, which no checksum of Kafka's covers.
//! 6. [`entry_checksum`]: the sum of all bytes for the envelope, from the batch's own.

mod build;
mod check;
mod error;
mod header;
mod iter;
mod key;
mod quick;
mod records;
mod rewrite;
mod seek;
mod validate;
mod varint;
mod walk;

pub use build::{BatchBuilder, NewRecord};
pub use check::{CheckedRecords, RecordRules, TimestampRange, check_records};
pub use error::{BatchError, ErrorKind, REFUSED_RECORDS_MAX, RecordFault, RefusedFor, RefusedRecord};
pub use header::{BatchHeader, CRC_FROM, HEADER_BYTES, NO_TIMESTAMP, entry_checksum, increment_sequence, patch_base};
pub use iter::{Batch, BatchAt, BatchIter, HeaderIter, find_offset, headers};
pub use key::partition_of_key;
pub use records::{Headers, HeadersIter, Record, RecordIter, records};
pub use rewrite::{recompress, rewrite_log_append_time, set_log_append_time, set_max_timestamp};
pub use seek::{RecordAt, first_at_or_after_timestamp, max_timestamp_record};
pub use validate::{ProduceRules, ValidatedBatch, validate_produce, verify_crc};
