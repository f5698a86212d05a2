//! Making batches: for the command line's producer, for records of other protocols that a Kafka client reads, for tests.

use super::header::{CONTROL, LOG_APPEND_TIME, NO_TIMESTAMP, TRANSACTIONAL};
use super::rewrite::seal;
use super::validate::MAGIC;
use super::{BatchError, BatchHeader, HEADER_BYTES, varint};
use crate::compress::{Codec, compress};
use bytes::Bytes;
use polylogue_types::TimestampMs;

/// Collects records into one batch.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    codec: Codec,
    level: Option<i32>,
    /// Room for the header, then the encoded records.
    out: Vec<u8>,
}

/// A record to be put into a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewRecord<'a> {
    /// Its timestamp, -1 for none. Milliseconds.
    pub timestamp: TimestampMs,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// Its headers in their order: keys may repeat and values may be missing.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
}

impl Default for BatchBuilder {
    fn default() -> BatchBuilder {
        BatchBuilder::new()
    }
}

impl BatchBuilder {
    /// A batch as a producer without idempotence sends it, still without records.
    #[must_use]
    pub fn new() -> BatchBuilder {
        BatchBuilder {
            header: BatchHeader {
                base_offset: 0,
                batch_length: 0,
                partition_leader_epoch: -1,
                magic: MAGIC,
                crc: 0,
                attributes: 0,
                last_offset_delta: -1,
                base_timestamp: NO_TIMESTAMP,
                max_timestamp: NO_TIMESTAMP,
                producer_id: -1,
                producer_epoch: -1,
                base_sequence: -1,
                record_count: 0,
            },
            codec: Codec::None,
            level: None,
            out: vec![0; HEADER_BYTES],
        }
    }

    /// Compresses the records.
    #[must_use]
    pub fn compression(mut self, codec: Codec, level: Option<i32>) -> BatchBuilder {
        self.codec = codec;
        self.level = level;
        self
    }

    /// Names the idempotent producer, and the sequence number of the first record.
    #[must_use]
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> BatchBuilder {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    /// Makes the batch part of the producer's transaction.
    #[must_use]
    pub fn transactional(mut self) -> BatchBuilder {
        self.header.attributes |= TRANSACTIONAL;
        self
    }

    /// Makes the records markers instead of messages.
    #[must_use]
    pub fn control(mut self) -> BatchBuilder {
        self.header.attributes |= CONTROL;
        self
    }

    /// Sets what the broker decides.
    #[must_use]
    pub fn base(mut self, base_offset: i64, leader_epoch: i32) -> BatchBuilder {
        self.header.base_offset = base_offset;
        self.header.partition_leader_epoch = leader_epoch;
        self
    }

    /// Appends a record.
    ///
    /// # Errors
    /// [`BatchError::TooLarge`] when the batch would be longer than a batch can be; it is then as before.
    pub fn push(&mut self, record: &NewRecord<'_>) -> Result<(), BatchError> {
        self.push_at(self.header.last_offset_delta.saturating_add(1), record)
    }

    /// Appends a record whose offset is so much above that of the batch, where it lies behind the one before: offsets between the
    /// two are left out, as compaction leaves them out. One that does not lie behind it comes right after it.
    ///
    /// # Errors
    /// As [`BatchBuilder::push`].
    pub fn push_at(&mut self, offset_delta: i32, record: &NewRecord<'_>) -> Result<(), BatchError> {
        let Place { offset_delta, base_timestamp, timestamp_delta, len } = self.place(offset_delta, record);
        let size = self.out.len().saturating_add(len).saturating_add(varint::len(wide(len)));
        if i32::try_from(size).is_err() {
            return Err(BatchError::TooLarge { size, limit: i32::MAX as usize });
        }
        self.header.base_timestamp = base_timestamp;
        self.header.max_timestamp = self.header.max_timestamp.max(record.timestamp);
        self.header.last_offset_delta = offset_delta;
        // Each record takes bytes, of which there are fewer than 2^31.
        self.header.record_count += 1;
        varint::put(&mut self.out, wide(len));
        put_body(&mut self.out, record, timestamp_delta, offset_delta);
        Ok(())
    }

    /// What [`BatchBuilder::uncompressed_bytes`] would be with this record appended by [`BatchBuilder::push_at`].
    #[must_use]
    pub fn bytes_with(&self, offset_delta: i32, record: &NewRecord<'_>) -> usize {
        let len = self.place(offset_delta, record).len;
        self.out.len().saturating_add(len).saturating_add(varint::len(wide(len)))
    }

    fn place(&self, offset_delta: i32, record: &NewRecord<'_>) -> Place {
        let base_timestamp = if self.is_empty() { record.timestamp } else { self.header.base_timestamp };
        let timestamp_delta = record.timestamp.wrapping_sub(base_timestamp);
        let offset_delta = offset_delta.max(self.header.last_offset_delta.saturating_add(1));
        let len = body_len(record, timestamp_delta, offset_delta);
        Place { offset_delta, base_timestamp, timestamp_delta, len }
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.record_count.unsigned_abs() as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.header.record_count == 0
    }

    /// Bytes of the batch, were it not compressed.
    #[must_use]
    pub fn uncompressed_bytes(&self) -> usize {
        self.out.len()
    }

    /// The batch, as a producer sends it.
    ///
    /// # Errors
    /// [`BatchError::Count`] without records, [`BatchError::TooLarge`] when compression has made it longer than a batch can be.
    pub fn build(self) -> Result<Bytes, BatchError> {
        let BatchBuilder { mut header, codec, level, out } = self;
        if header.record_count == 0 {
            return Err(BatchError::Count(0));
        }
        if codec == Codec::None {
            return seal(out, header);
        }
        header.attributes |= i16::from(codec.id());
        let mut packed = vec![0; HEADER_BYTES];
        compress(codec, level, out.get(HEADER_BYTES..).unwrap_or_default(), &mut packed)?;
        seal(packed, header)
    }

    /// The batch, under log append time: all its records have the timestamp `now`.
    ///
    /// # Errors
    /// Those of [`BatchBuilder::build`].
    pub fn build_log_append_time(mut self, now: TimestampMs) -> Result<Bytes, BatchError> {
        self.header.attributes |= LOG_APPEND_TIME;
        self.header.max_timestamp = now;
        self.build()
    }
}

/// Where a record would stand in a batch.
struct Place {
    offset_delta: i32,
    base_timestamp: TimestampMs,
    timestamp_delta: i64,
    /// Its bytes after its length.
    len: usize,
}

fn wide(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

/// Bytes of a record after its length.
fn body_len(record: &NewRecord<'_>, timestamp_delta: i64, offset_delta: i32) -> usize {
    let headers: usize = record.headers.iter().map(|(key, value)| bytes_len(Some(key)) + bytes_len(*value)).sum();
    1 + varint::len(timestamp_delta)
        + varint::len(i64::from(offset_delta))
        + bytes_len(record.key)
        + bytes_len(record.value)
        + varint::len(wide(record.headers.len()))
        + headers
}

fn bytes_len(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(varint::len(-1), |bytes| varint::len(wide(bytes.len())) + bytes.len())
}

fn put_body(out: &mut Vec<u8>, record: &NewRecord<'_>, timestamp_delta: i64, offset_delta: i32) {
    out.push(0);
    varint::put(out, timestamp_delta);
    varint::put(out, i64::from(offset_delta));
    put_bytes(out, record.key);
    put_bytes(out, record.value);
    varint::put(out, wide(record.headers.len()));
    for (key, value) in record.headers {
        put_bytes(out, Some(key));
        put_bytes(out, *value);
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => varint::put(out, -1),
        Some(bytes) => {
            varint::put(out, wide(bytes.len()));
            out.extend_from_slice(bytes);
        }
    }
}
