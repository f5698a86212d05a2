//! The 61 bytes in front of a batch's records.
//!
//! ```text
//!   all numbers big endian
//!    0                8        12       16    17      21
//!   +----------------+--------+--------+-----+-------+
//!   | base offset    | length | leader | mag | crc   |  length: bytes from 12 on
//!   | i64            | i32    | epoch  | ic  | u32   |  crc: CRC-32C of the bytes from 21 on, so that the broker
//!   +----------------+--------+--------+-----+-------+       may set the base offset and the leader epoch
//!    21      23           27               35
//!   +-------+------------+----------------+----------------+
//!   | attri | last offset| base timestamp | max timestamp  |  base timestamp: of the first record, or the delete horizon
//!   | butes | delta i32  | i64 ms         | i64 ms         |
//!   +-------+------------+----------------+----------------+
//!    43               51      53         57             61
//!   +----------------+-------+----------+--------------+----------------------------
//!   | producer id    | epoch | base     | record count | records, one after the other,
//!   | i64            | i16   | sequence | i32          | compressed as one piece or not at all
//!   +----------------+-------+----------+--------------+----------------------------
//!
//!   attributes   15 .. 7   6               5         4               3                 2 .. 0
//!                unused    delete horizon  control   transactional   log append time   compression
//! ```
//!
//! Source: `DefaultRecordBatch`; bit 6 from KIP-534.

use super::BatchError;
use crate::compress::Codec;
use crate::crc;
use crate::envelope::{EntryFlags, Producer};
use polylogue_types::{ProducerId, TimestampMs};

/// Bytes in front of the records.
pub const HEADER_BYTES: usize = 61;
/// The checksum of a batch covers its bytes from this one on.
pub const CRC_FROM: usize = 21;
/// The base offset and the length: what the length field does not count.
pub(super) const LOG_OVERHEAD: usize = 12;
/// The timestamp of a record that has none.
pub const NO_TIMESTAMP: TimestampMs = -1;

pub(super) const COMPRESSION_MASK: i16 = 0x07;
pub(super) const LOG_APPEND_TIME: i16 = 0x08;
pub(super) const TRANSACTIONAL: i16 = 0x10;
pub(super) const CONTROL: i16 = 0x20;
pub(super) const DELETE_HORIZON: i16 = 0x40;

/// The header of a batch of magic 2, as it stands in the bytes: nothing is checked but that they are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// The offset of the first record. 0 from a producer.
    pub base_offset: i64,
    /// Bytes after this field.
    pub batch_length: i32,
    /// The epoch of the leader that took the batch. -1 from a producer.
    pub partition_leader_epoch: i32,
    /// The version of the layout: 2.
    pub magic: i8,
    /// CRC-32C of everything after this field.
    pub crc: u32,
    /// Compression, timestamp type and flags.
    pub attributes: i16,
    /// The offset of the last record, less the base offset.
    pub last_offset_delta: i32,
    /// What the records' timestamps are counted from. Milliseconds.
    pub base_timestamp: TimestampMs,
    /// The highest timestamp of the records, or their common one under log append time. Milliseconds.
    pub max_timestamp: TimestampMs,
    /// The idempotent producer, or -1.
    pub producer_id: i64,
    /// Its epoch, or -1.
    pub producer_epoch: i16,
    /// The sequence number of the first record, or -1.
    pub base_sequence: i32,
    /// How many records follow.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`BatchError::NoBatch`] when there are fewer bytes than a header has.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let mut rest = bytes;
        let input = &mut rest;
        Ok(BatchHeader {
            base_offset: i64::from_be_bytes(take(input)?),
            batch_length: i32::from_be_bytes(take(input)?),
            partition_leader_epoch: i32::from_be_bytes(take(input)?),
            magic: i8::from_be_bytes(take(input)?),
            crc: u32::from_be_bytes(take(input)?),
            attributes: i16::from_be_bytes(take(input)?),
            last_offset_delta: i32::from_be_bytes(take(input)?),
            base_timestamp: i64::from_be_bytes(take(input)?),
            max_timestamp: i64::from_be_bytes(take(input)?),
            producer_id: i64::from_be_bytes(take(input)?),
            producer_epoch: i16::from_be_bytes(take(input)?),
            base_sequence: i32::from_be_bytes(take(input)?),
            record_count: i32::from_be_bytes(take(input)?),
        })
    }

    /// The 61 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let mut rest = out.as_mut_slice();
        put(&mut rest, self.base_offset.to_be_bytes());
        put(&mut rest, self.batch_length.to_be_bytes());
        put(&mut rest, self.partition_leader_epoch.to_be_bytes());
        put(&mut rest, self.magic.to_be_bytes());
        put(&mut rest, self.crc.to_be_bytes());
        put(&mut rest, self.attributes.to_be_bytes());
        put(&mut rest, self.last_offset_delta.to_be_bytes());
        put(&mut rest, self.base_timestamp.to_be_bytes());
        put(&mut rest, self.max_timestamp.to_be_bytes());
        put(&mut rest, self.producer_id.to_be_bytes());
        put(&mut rest, self.producer_epoch.to_be_bytes());
        put(&mut rest, self.base_sequence.to_be_bytes());
        put(&mut rest, self.record_count.to_be_bytes());
        out
    }

    /// Bytes of the whole batch by its length field; below [`HEADER_BYTES`] for a length that no batch has.
    #[must_use]
    pub const fn total_len(&self) -> i64 {
        // Both fit: widening cannot lose anything.
        self.batch_length as i64 + LOG_OVERHEAD as i64
    }

    /// The offset of the last record.
    #[must_use]
    pub const fn last_offset(&self) -> i64 {
        self.offset_of(self.last_offset_delta)
    }

    /// The number of the compression type: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    #[must_use]
    pub const fn compression(&self) -> u8 {
        (self.attributes & COMPRESSION_MASK) as u8
    }

    /// How the records are compressed.
    ///
    /// # Errors
    /// [`BatchError::UnknownCompression`] for a number that no codec has.
    pub fn codec(&self) -> Result<Codec, BatchError> {
        let id = self.compression();
        Codec::from_id(id).ok_or(BatchError::UnknownCompression(id))
    }

    /// The timestamp of a record with this timestamp delta. Source: `DefaultRecord.readFrom`, which lets it wrap too.
    #[must_use]
    pub const fn timestamp_of(&self, delta: i64) -> TimestampMs {
        if self.is_log_append_time() { self.max_timestamp } else { self.base_timestamp.wrapping_add(delta) }
    }

    /// The offset of a record with this offset delta.
    #[must_use]
    pub const fn offset_of(&self, delta: i32) -> i64 {
        self.base_offset.wrapping_add(delta as i64)
    }

    /// Whether the records' timestamp is the time of appending, which is `max_timestamp`.
    #[must_use]
    pub const fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }

    /// Whether the batch is part of a transaction.
    #[must_use]
    pub const fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// Whether it holds markers instead of messages.
    #[must_use]
    pub const fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// Whether `base_timestamp` is the time from which on compaction may drop the batch's tombstones (KIP-534).
    #[must_use]
    pub const fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON != 0
    }

    /// Whether an idempotent producer sent it.
    #[must_use]
    pub const fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }

    /// The sequence number of the last record, or -1 where the first has none.
    #[must_use]
    pub const fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 { -1 } else { increment_sequence(self.base_sequence, self.last_offset_delta) }
    }

    /// The producer and its sequence numbers, where an idempotent producer sent the batch.
    #[must_use]
    pub fn producer(&self) -> Option<Producer> {
        self.has_producer().then(|| Producer {
            id: ProducerId(self.producer_id),
            epoch: self.producer_epoch,
            base_sequence: i64::from(self.base_sequence),
            last_sequence: i64::from(self.last_sequence()),
        })
    }

    /// What an entry's envelope says of the batch.
    #[must_use]
    pub const fn flags(&self) -> EntryFlags {
        EntryFlags::NONE
            .with_if(self.compression() != 0, EntryFlags::COMPRESSED)
            .with_if(self.is_log_append_time(), EntryFlags::LOG_APPEND_TIME)
            .with_if(self.is_transactional(), EntryFlags::TRANSACTIONAL)
            .with_if(self.is_control(), EntryFlags::CONTROL)
    }
}

fn take<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], BatchError> {
    let (taken, rest) = input.split_first_chunk().ok_or(BatchError::NoBatch)?;
    *input = rest;
    Ok(*taken)
}

/// Writes to the front of `out` and leaves it at what comes after.
fn put<const N: usize>(out: &mut &mut [u8], field: [u8; N]) {
    if let Some((place, rest)) = std::mem::take(out).split_first_chunk_mut() {
        *place = field;
        *out = rest;
    }
}

/// The sequence number `increment` records after `sequence`: 2^31 - 1 is followed by 0.
/// Source: `DefaultRecordBatch.incrementSequence`.
#[must_use]
pub const fn increment_sequence(sequence: i32, increment: i32) -> i32 {
    (sequence as u32).wrapping_add(increment as u32) as i32 & i32::MAX
}

/// Sets what the broker decides: the offset of the first record and the epoch of the leader that takes the batch. Neither is
/// covered by the batch's checksum.
///
/// # Errors
/// [`BatchError::NoBatch`] when there are fewer bytes than a header has; they are left alone.
pub fn patch_base(batch: &mut [u8], base_offset: i64, leader_epoch: i32) -> Result<(), BatchError> {
    let header: &mut [u8; HEADER_BYTES] = batch.first_chunk_mut().ok_or(BatchError::NoBatch)?;
    header[..8].copy_from_slice(&base_offset.to_be_bytes());
    header[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
    Ok(())
}

/// The CRC-32C over all bytes of a batch, whose own checksum `crc` is known to be right: the payload is not read again.
///
/// # Errors
/// [`BatchError::NoBatch`] when there are fewer bytes than a header has.
pub fn entry_checksum(batch: &[u8], crc: u32) -> Result<u32, BatchError> {
    let (front, summed) = batch.split_at_checked(CRC_FROM).ok_or(BatchError::NoBatch)?;
    Ok(crc::combine(crc::crc32c(front), crc, summed.len() as u64))
}
