//! Kafka's record batch, magic 2 (KIP-98), as it lies in a produce request, in the log and in a fetch response.
//!
//! The layout and its rules are those of Kafka's `DefaultRecordBatch`, `DefaultRecord` and `LogValidator`; the module that a
//! rule is in names its source.
//!
//! A produce request's batch goes through [`validate_produce`], where the topic demands it through [`check_records`], and
//! then [`patch_base`] puts in what the broker decides; nothing else of it changes unless the topic has a compression or a
//! timestamp type of its own.

mod build;
mod check;
mod error;
mod header;
mod iter;
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
pub use records::{Headers, HeadersIter, Record, RecordIter, records};
pub use rewrite::{recompress, rewrite_log_append_time, set_log_append_time, set_max_timestamp};
pub use seek::{RecordAt, first_at_or_after_timestamp, max_timestamp_record};
pub use validate::{ProduceRules, ValidatedBatch, validate_produce, verify_crc};
