//! A walk over the records of a batch that looks at their frames only: keys, values and headers are stepped over.
//!
//! ```text
//!   +--------+------------+-----------+--------+--------+-----+--------+-------+-------+-------------------------------+
//!   | length | attributes | timestamp | offset | key    | key | value  | value | count | for each header:              |
//!   | varint | i8, unused | delta     | delta  | length |     | length |       | of    | key length, key,              |
//!   |        |            | varlong   | varint | varint |     | varint |       | heads | value length, value (varints) |
//!   +--------+------------+-----------+--------+--------+-----+--------+-------+-------+-------------------------------+
//!   length: bytes after it. A key or value length below 0 stands for none.
//! ```
//!
//! Source: `DefaultRecord`.

use super::{BatchError, BatchHeader, HEADER_BYTES, RecordFault, varint};
use crate::compress::{Codec, CompressError, Stream};
use polylogue_types::TimestampMs;
use std::ops::ControlFlow;

/// The frame of one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    /// The number of the record in its batch, from 0 on.
    pub(super) index: i32,
    pub(super) offset_delta: i32,
    /// The timestamp a consumer sees: the batch's under log append time, else the record's own.
    pub(super) timestamp: TimestampMs,
    pub(super) has_key: bool,
}

/// Why reading a record stopped.
pub(super) enum Fault {
    Record(RecordFault),
    Compress(CompressError),
}

impl Fault {
    pub(super) fn at(self, index: i32) -> BatchError {
        match self {
            Fault::Record(fault) => BatchError::Record { index, fault },
            Fault::Compress(e) => BatchError::Compress(e),
        }
    }
}

impl From<RecordFault> for Fault {
    fn from(fault: RecordFault) -> Fault {
        Fault::Record(fault)
    }
}

impl From<CompressError> for Fault {
    fn from(e: CompressError) -> Fault {
        Fault::Compress(e)
    }
}

/// Where the bytes of records come from.
pub(super) trait Source {
    /// The next byte.
    fn byte(&mut self) -> Result<u8, Fault>;
    /// Steps over the next bytes.
    fn skip(&mut self, len: usize) -> Result<(), Fault>;
    /// Whether there are none left.
    fn at_end(&mut self) -> Result<bool, Fault>;
}

impl Source for &[u8] {
    #[inline]
    fn byte(&mut self) -> Result<u8, Fault> {
        let (byte, rest) = self.split_first().ok_or(RecordFault::EndsEarly)?;
        *self = rest;
        Ok(*byte)
    }

    #[inline]
    fn skip(&mut self, len: usize) -> Result<(), Fault> {
        *self = self.get(len..).ok_or(RecordFault::EndsEarly)?;
        Ok(())
    }

    #[inline]
    fn at_end(&mut self) -> Result<bool, Fault> {
        Ok(self.is_empty())
    }
}

impl Source for Stream<'_> {
    #[inline]
    fn byte(&mut self) -> Result<u8, Fault> {
        let byte = *self.fill()?.first().ok_or(RecordFault::EndsEarly)?;
        self.consume(1);
        Ok(byte)
    }

    fn skip(&mut self, mut len: usize) -> Result<(), Fault> {
        while len > 0 {
            let step = self.fill()?.len().min(len);
            if step == 0 {
                return Err(RecordFault::EndsEarly.into());
            }
            self.consume(step);
            len -= step;
        }
        Ok(())
    }

    fn at_end(&mut self) -> Result<bool, Fault> {
        Ok(self.fill()?.is_empty())
    }
}

/// Walks over the records of `batch`, which is exactly one batch with the header `header`, until `visit` breaks off.
///
/// # Errors
/// [`BatchError`] for records that are not framed as they should be, that are fewer or more than the header says, or that
/// decompress to more than `cap_bytes`.
pub(super) fn walk<B>(
    batch: &[u8],
    header: &BatchHeader,
    cap_bytes: usize,
    visit: impl FnMut(Frame) -> ControlFlow<B>,
) -> Result<Option<B>, BatchError> {
    let payload = batch.get(HEADER_BYTES..).ok_or(BatchError::NoBatch)?;
    match header.codec()? {
        Codec::None => walk_source(payload, header, visit),
        codec => walk_source(Stream::new(codec, payload, cap_bytes)?, header, visit),
    }
}

fn walk_source<B>(
    mut source: impl Source,
    header: &BatchHeader,
    mut visit: impl FnMut(Frame) -> ControlFlow<B>,
) -> Result<Option<B>, BatchError> {
    // The count is only ever compared with: nothing is allocated for it.
    for index in 0..header.record_count {
        let frame = read_record(&mut source, index, header).map_err(|fault| fault.at(index))?;
        if let ControlFlow::Break(found) = visit(frame) {
            return Ok(Some(found));
        }
    }
    let at_end = source.at_end().map_err(|fault| fault.at(header.record_count))?;
    if at_end { Ok(None) } else { Err(BatchError::BytesAfterRecords) }
}

fn read_record(source: &mut impl Source, index: i32, header: &BatchHeader) -> Result<Frame, Fault> {
    let left = usize::try_from(varint32(source)?).map_err(|_| RecordFault::Size)?;
    let mut record = Bounded { source, left };
    record.skip(1)?;
    let timestamp = header.timestamp_of(varint64(&mut record)?);
    let offset_delta = varint32(&mut record)?;
    let has_key = skip_bytes(&mut record)?;
    skip_bytes(&mut record)?;
    // Each header takes two bytes at least, so that a count that is too high runs into the end of the record.
    let headers = varint32(&mut record)?;
    if headers < 0 {
        return Err(RecordFault::HeaderCount(headers).into());
    }
    for _ in 0..headers {
        let len = usize::try_from(varint32(&mut record)?).map_err(|_| RecordFault::HeaderKey)?;
        record.skip(len)?;
        skip_bytes(&mut record)?;
    }
    if record.left == 0 { Ok(Frame { index, offset_delta, timestamp, has_key }) } else { Err(RecordFault::Size.into()) }
}

/// Steps over bytes with their length in front. Whether there is something: a negative length stands for none.
#[inline]
fn skip_bytes(source: &mut impl Source) -> Result<bool, Fault> {
    match usize::try_from(varint32(source)?) {
        Ok(len) => source.skip(len).map(|()| true),
        Err(_) => Ok(false),
    }
}

#[inline]
pub(super) fn varint32(source: &mut impl Source) -> Result<i32, Fault> {
    // At most 32 bits have come in, so that what the zigzag makes of them fits.
    read_varint(source, i32::BITS).map(|value| varint::unzigzag(value) as i32)
}

#[inline]
pub(super) fn varint64(source: &mut impl Source) -> Result<i64, Fault> {
    read_varint(source, i64::BITS).map(varint::unzigzag)
}

#[inline]
fn read_varint(source: &mut impl Source, bits: u32) -> Result<u64, Fault> {
    let first = source.byte()?;
    if first < 0x80 {
        return Ok(u64::from(first));
    }
    let mut value = u64::from(first & 0x7f);
    for at in 1.. {
        let byte = source.byte()?;
        value = varint::push(value, at, byte, bits).ok_or(RecordFault::Varint)?;
        if byte < 0x80 {
            break;
        }
    }
    Ok(value)
}

/// The bytes of one record: reading on is an error, before the source is asked.
struct Bounded<'a, S> {
    source: &'a mut S,
    left: usize,
}

impl<S: Source> Source for Bounded<'_, S> {
    #[inline]
    fn byte(&mut self) -> Result<u8, Fault> {
        self.left = self.left.checked_sub(1).ok_or(RecordFault::Size)?;
        self.source.byte()
    }

    #[inline]
    fn skip(&mut self, len: usize) -> Result<(), Fault> {
        self.left = self.left.checked_sub(len).ok_or(RecordFault::Size)?;
        self.source.skip(len)
    }

    #[inline]
    fn at_end(&mut self) -> Result<bool, Fault> {
        Ok(self.left == 0)
    }
}
