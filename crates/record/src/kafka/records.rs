//! The records of a batch, one by one: key, value and headers share the memory of the batch, or of what it decompresses to.

use super::walk::{Fault, Source, varint32, varint64};
use super::{BatchError, BatchHeader, HEADER_BYTES, RecordFault};
use crate::compress::{Codec, decompress};
use bytes::{Buf, Bytes};
use polylogue_types::TimestampMs;

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp: the batch's under log append time, -1 for none. Milliseconds.
    pub timestamp: TimestampMs,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value. None is a tombstone on a compacted topic.
    pub value: Option<Bytes>,
    /// Its headers.
    pub headers: Headers,
}

/// The headers of a record in their order. Keys may repeat and values may be missing (KIP-82). A key is UTF-8 by
/// convention only.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Headers {
    count: usize,
    /// Their encoding, which has been walked through once.
    encoded: Bytes,
}

impl Headers {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each key with its value.
    #[must_use]
    pub fn iter(&self) -> HeadersIter {
        HeadersIter { rest: self.encoded.clone() }
    }

    /// The value of the last header with this key: Kafka's `Headers.lastHeader`. `Some(None)` for one without a value.
    #[must_use]
    pub fn last(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.iter().filter(|(name, _)| name == key).last().map(|(_, value)| value)
    }
}

impl IntoIterator for &Headers {
    type Item = (Bytes, Option<Bytes>);
    type IntoIter = HeadersIter;

    fn into_iter(self) -> HeadersIter {
        self.iter()
    }
}

/// The headers of a record, one by one.
#[derive(Clone, Debug)]
pub struct HeadersIter {
    rest: Bytes,
}

impl Iterator for HeadersIter {
    type Item = (Bytes, Option<Bytes>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = take_bytes(&mut self.rest).ok()??;
        let value = take_bytes(&mut self.rest).ok()?;
        Some((key, value))
    }
}

/// The records of a batch, decoded as they are asked for.
#[derive(Clone, Debug)]
pub struct RecordIter {
    header: BatchHeader,
    rest: Bytes,
    index: i32,
}

/// Goes through the records of `batch`, which is exactly one batch. Compressed records are decompressed here, as a whole.
///
/// # Errors
/// [`BatchError`] when the header is cut off, or when the records do not decompress or to more than `cap_bytes`.
pub fn records(batch: &Bytes, cap_bytes: usize) -> Result<RecordIter, BatchError> {
    let header = BatchHeader::parse(batch)?;
    // There are as many bytes, or there would be no header.
    let payload = batch.slice(HEADER_BYTES..);
    let rest = match header.codec()? {
        Codec::None => payload,
        codec => Bytes::from(decompress(codec, &payload, cap_bytes)?),
    };
    Ok(RecordIter { header, rest, index: 0 })
}

impl RecordIter {
    /// The header of the batch.
    #[must_use]
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// What is in memory for the records that are still to come, of compressed ones decompressed. Bytes.
    #[must_use]
    pub fn bytes_left(&self) -> usize {
        self.rest.len()
    }

    fn read(&mut self) -> Result<Record, Fault> {
        let len = usize::try_from(varint32(&mut self.rest)?).map_err(|_| RecordFault::Size)?;
        if len > self.rest.len() {
            return Err(RecordFault::EndsEarly.into());
        }
        let mut record = self.rest.split_to(len);
        // The record is all there: whatever is missing now, its length was wrong.
        read_fields(&mut record, &self.header).map_err(|fault| match fault {
            Fault::Record(RecordFault::EndsEarly) => RecordFault::Size.into(),
            other => other,
        })
    }
}

impl Iterator for RecordIter {
    type Item = Result<Record, BatchError>;

    /// After an error there is nothing more.
    fn next(&mut self) -> Option<Self::Item> {
        let index = self.index;
        if index >= self.header.record_count {
            return match std::mem::take(&mut self.rest).is_empty() {
                true => None,
                false => Some(Err(BatchError::BytesAfterRecords)),
            };
        }
        self.index += 1;
        let read = self.read().map_err(|fault| fault.at(index));
        if read.is_err() {
            self.index = self.header.record_count;
            self.rest = Bytes::new();
        }
        Some(read)
    }
}

fn read_fields(record: &mut Bytes, header: &BatchHeader) -> Result<Record, Fault> {
    record.skip(1)?;
    let timestamp = header.timestamp_of(varint64(record)?);
    let offset = header.offset_of(varint32(record)?);
    let key = take_bytes(record)?;
    let value = take_bytes(record)?;
    let count = varint32(record)?;
    let count = usize::try_from(count).map_err(|_| RecordFault::HeaderCount(count))?;
    let mut rest: &[u8] = record;
    for _ in 0..count {
        let len = usize::try_from(varint32(&mut rest)?).map_err(|_| RecordFault::HeaderKey)?;
        rest.skip(len)?;
        if let Ok(len) = usize::try_from(varint32(&mut rest)?) {
            rest.skip(len)?;
        }
    }
    if !rest.is_empty() {
        return Err(RecordFault::Size.into());
    }
    let encoded = std::mem::take(record);
    Ok(Record { offset, timestamp, key, value, headers: Headers { count, encoded } })
}

/// Takes bytes with their length in front. A negative length stands for none.
fn take_bytes(source: &mut Bytes) -> Result<Option<Bytes>, Fault> {
    match usize::try_from(varint32(source)?) {
        Ok(len) if len <= source.len() => Ok(Some(source.split_to(len))),
        Ok(_) => Err(RecordFault::EndsEarly.into()),
        Err(_) => Ok(None),
    }
}

impl Source for Bytes {
    #[inline]
    fn byte(&mut self) -> Result<u8, Fault> {
        self.try_get_u8().map_err(|_| RecordFault::EndsEarly.into())
    }

    #[inline]
    fn skip(&mut self, len: usize) -> Result<(), Fault> {
        if len > self.len() {
            return Err(RecordFault::EndsEarly.into());
        }
        self.advance(len);
        Ok(())
    }

    #[inline]
    fn at_end(&mut self) -> Result<bool, Fault> {
        Ok(self.is_empty())
    }
}
