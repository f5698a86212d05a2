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

use super::{BatchError, BatchHeader, HEADER_BYTES, RecordFault, quick, varint};
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
#[derive(PartialEq, Eq, Debug)]
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
    /// Steps over the next record and gives its frame, if [`quick`] can read it; else steps over nothing.
    fn quick(&mut self, _index: i32, _header: &BatchHeader) -> Result<Option<Frame>, Fault> {
        Ok(None)
    }
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

    #[inline]
    fn quick(&mut self, index: i32, header: &BatchHeader) -> Result<Option<Frame>, Fault> {
        let Some((frame, rest)) = quick::frame(self, index, header) else { return Ok(None) };
        *self = rest;
        Ok(Some(frame))
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

    /// A record that the end of a piece cuts in two is not for here.
    #[inline]
    fn quick(&mut self, index: i32, header: &BatchHeader) -> Result<Option<Frame>, Fault> {
        let bytes = self.fill()?;
        let Some((frame, rest)) = quick::frame(bytes, index, header) else { return Ok(None) };
        let len = bytes.len() - rest.len();
        self.consume(len);
        Ok(Some(frame))
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
    walk_counted(batch, header, cap_bytes, visit).map(|(found, _)| found)
}

/// As [`walk`]; also returns how many bytes the records had, decompressed, as far as they were walked over.
///
/// # Errors
/// As [`walk`].
pub(super) fn walk_counted<B>(
    batch: &[u8],
    header: &BatchHeader,
    cap_bytes: usize,
    visit: impl FnMut(Frame) -> ControlFlow<B>,
) -> Result<(Option<B>, usize), BatchError> {
    let payload = batch.get(HEADER_BYTES..).ok_or(BatchError::NoBatch)?;
    match header.codec()? {
        Codec::None => Ok((walk_slice(payload, header, visit)?, payload.len())),
        codec => {
            let mut stream = Stream::new(codec, payload, cap_bytes)?;
            let found = walk_source(&mut stream, header, visit)?;
            Ok((found, stream.decompressed_bytes()))
        }
    }
}

/// As [`walk_source`], for records that are all there.
fn walk_slice<B>(
    mut rest: &[u8],
    header: &BatchHeader,
    mut visit: impl FnMut(Frame) -> ControlFlow<B>,
) -> Result<Option<B>, BatchError> {
    for index in 0..header.record_count {
        let frame = match quick::plain(rest, index, header) {
            Some((frame, after)) => {
                rest = after;
                frame
            }
            None => {
                // Of a copy, so that what is left stays in registers where all records are plain.
                let mut source = rest;
                let frame = next_record(&mut source, index, header).map_err(|fault| fault.at(index))?;
                rest = source;
                frame
            }
        };
        if let ControlFlow::Break(found) = visit(frame) {
            return Ok(Some(found));
        }
    }
    if rest.is_empty() { Ok(None) } else { Err(BatchError::BytesAfterRecords) }
}

fn walk_source<B>(
    source: &mut impl Source,
    header: &BatchHeader,
    mut visit: impl FnMut(Frame) -> ControlFlow<B>,
) -> Result<Option<B>, BatchError> {
    // The count is only ever compared with: nothing is allocated for it.
    for index in 0..header.record_count {
        let frame = next_record(source, index, header).map_err(|fault| fault.at(index))?;
        if let ControlFlow::Break(found) = visit(frame) {
            return Ok(Some(found));
        }
    }
    let at_end = source.at_end().map_err(|fault| fault.at(header.record_count))?;
    if at_end { Ok(None) } else { Err(BatchError::BytesAfterRecords) }
}

fn next_record(source: &mut impl Source, index: i32, header: &BatchHeader) -> Result<Frame, Fault> {
    match source.quick(index, header)? {
        Some(frame) => Ok(frame),
        None => read_record(source, index, header),
    }
}

/// Reads a record byte by byte, wherever they come from, and returns what is wrong with it.
#[inline(never)]
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::compress;
    use crate::kafka::{BatchBuilder, NewRecord};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    const CAP: usize = 1 << 20;

    /// Bytes whose records are all read with care.
    struct Careful<'a>(&'a [u8]);

    impl Source for Careful<'_> {
        fn byte(&mut self) -> Result<u8, Fault> {
            self.0.byte()
        }

        fn skip(&mut self, len: usize) -> Result<(), Fault> {
            self.0.skip(len)
        }

        fn at_end(&mut self) -> Result<bool, Fault> {
            self.0.at_end()
        }
    }

    /// All frames up to the first fault, and the verdict.
    type Walked = (Vec<Frame>, Result<(), BatchError>);

    fn walked(mut source: impl Source, header: &BatchHeader) -> Walked {
        let mut frames = Vec::new();
        let verdict = walk_source::<()>(&mut source, header, |frame| {
            frames.push(frame);
            ControlFlow::Continue(())
        });
        (frames, verdict.map(drop))
    }

    fn walked_at_once(payload: &[u8], header: &BatchHeader) -> Walked {
        let mut frames = Vec::new();
        let verdict = walk_slice::<()>(payload, header, |frame| {
            frames.push(frame);
            ControlFlow::Continue(())
        });
        (frames, verdict.map(drop))
    }

    /// That records are found, and found wrong, alike: with care, at a glance, and in the pieces of each codec.
    fn same_in_all_ways(payload: &[u8], header: &BatchHeader) -> Result<(), TestCaseError> {
        let expected = walked(Careful(payload), header);
        prop_assert_eq!(walked_at_once(payload, header), expected.clone(), "{:02x?}", payload);
        prop_assert_eq!(walked(payload, header), expected.clone(), "{:02x?}", payload);
        for codec in Codec::ALL {
            let mut compressed = Vec::new();
            compress(codec, None, payload, &mut compressed).unwrap();
            let stream = Stream::new(codec, &compressed, CAP).unwrap();
            prop_assert_eq!(walked(stream, header), expected.clone(), "{}: {:02x?}", codec, payload);
        }
        Ok(())
    }

    fn header(record_count: i32, base_timestamp: TimestampMs) -> BatchHeader {
        BatchHeader { record_count, base_timestamp, ..BatchHeader::parse(&[0; HEADER_BYTES]).unwrap() }
    }

    type Sample = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>);

    fn samples() -> impl Strategy<Value = Vec<Sample>> {
        let bytes = || prop_oneof![8 => vec(any::<u8>(), 0..20), 1 => vec(Just(7u8), 60..20_000)];
        let times = prop_oneof![4 => 0..200i64, 2 => 0..i64::from(u32::MAX), 1 => any::<i64>()];
        let headers = vec((vec(any::<u8>(), 0..4), option::of(vec(any::<u8>(), 0..4))), 0..3);
        vec((times, option::of(bytes()), option::of(bytes()), headers), 1..8)
    }

    fn payload(samples: &[Sample]) -> (Vec<u8>, BatchHeader) {
        let mut builder = BatchBuilder::new();
        for (timestamp, key, value, headers) in samples {
            let headers: Vec<_> = headers.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
            let (key, value) = (key.as_deref(), value.as_deref());
            builder.push(&NewRecord { timestamp: *timestamp, key, value, headers: &headers }).unwrap();
        }
        let batch = builder.build().unwrap();
        (batch[HEADER_BYTES..].to_vec(), BatchHeader::parse(&batch).unwrap())
    }

    proptest! {
        #[test]
        fn valid_records_are_walked_alike(samples in samples()) {
            let (payload, header) = payload(&samples);
            prop_assert_eq!(walked(Careful(&payload), &header).1, Ok(()));
            same_in_all_ways(&payload, &header)?;
        }

        #[test]
        fn cut_records_are_walked_alike(samples in samples(), at in any::<prop::sample::Index>()) {
            let (payload, header) = payload(&samples);
            same_in_all_ways(&payload[..at.index(payload.len())], &header)?;
        }

        /// Bits are flipped where the frames are more often than inside of values.
        #[test]
        fn changed_records_are_walked_alike(
            samples in samples(),
            bits in vec((any::<prop::sample::Index>(), any::<bool>(), 0..8u32), 1..6),
            count in -1..3i32,
        ) {
            let (mut payload, header) = payload(&samples);
            for (at, anywhere, bit) in bits {
                let at = at.index(if anywhere { payload.len() } else { payload.len().min(24) });
                payload[at] ^= 1 << bit;
            }
            let record_count = header.record_count + count;
            same_in_all_ways(&payload, &BatchHeader { record_count, ..header })?;
        }

        /// Small numbers make records of noise, large ones make numbers of many bytes.
        #[test]
        fn noise_is_walked_alike(
            payload in vec(prop_oneof![4 => 0..16u8, 1 => 0x80..=0xffu8, 1 => any::<u8>()], 0..60),
            count in 0..4,
            base in any::<i64>(),
        ) {
            same_in_all_ways(&payload, &header(count, base))?;
        }
    }

    /// Five and more bytes a number, of which the last may hold too many bits; and the same numbers, written too long.
    #[test]
    fn long_numbers_are_left_to_the_careful_reader() {
        let header = header(1, 10);
        let long: [&[u8]; 6] = [
            &[0x80, 0x80, 0x80, 0x80, 0x10],
            &[0xff, 0xff, 0xff, 0xff, 0x1f],
            &[0x80, 0x80, 0x80, 0x80, 0x00],
            &[0xff, 0xff, 0xff, 0x7f],
            &[0x80, 0x80, 0x00],
            &[0xff; 11],
        ];
        for number in long {
            for field in 0..5 {
                // timestamp, offset, key, value, headers; the attributes stand before them
                let mut fields: Vec<&[u8]> = vec![&[0], &[0], &[1], &[1], &[0]];
                fields[field] = number;
                let mut record = vec![0];
                fields.iter().for_each(|bytes| record.extend_from_slice(bytes));
                let len = u8::try_from(record.len() * 2).unwrap();
                let payload = [&[len][..], &record].concat();
                same_in_all_ways(&payload, &header).unwrap();
            }
            same_in_all_ways(number, &header).unwrap();
        }
    }

    /// Without this they could all be left to the careful reader, and no test would notice.
    #[test]
    fn plain_records_are_read_as_such() {
        let plain =
            |at: i64| (1_700_000_000_000 + at * 8, (at % 2 == 0).then(|| vec![1; 20]), Some(vec![2; 1_024]), vec![]);
        let (payload, header) = payload(&(0..1_000).map(plain).collect::<Vec<_>>());
        let mut rest = &payload[..];
        for index in 0..1_000 {
            let (frame, after) = quick::plain(rest, index, &header).unwrap();
            let timestamp = 1_700_000_000_000 + i64::from(index) * 8;
            assert_eq!(frame, Frame { index, offset_delta: index, timestamp, has_key: index % 2 == 0 });
            rest = after;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn records_with_headers_are_read_at_a_glance() {
        let header_of = (b"trace".to_vec(), Some(vec![5; 16]));
        let with_one =
            |at| (1_700_000_000_000 + at * 70, Some(vec![1; 20]), Some(vec![2; 1_024]), vec![header_of.clone()]);
        let (payload, header) = payload(&(0..100i64).map(with_one).collect::<Vec<_>>());
        let mut rest = &payload[..];
        for index in 0..100 {
            assert!(quick::plain(rest, index, &header).is_none());
            let quick = rest.quick(index, &header).unwrap().unwrap();
            assert_eq!((quick.index, quick.offset_delta, quick.has_key), (index, index, true));
            assert_eq!(quick.timestamp, 1_700_000_000_000 + i64::from(index) * 70);
        }
        assert!(rest.is_empty());
    }
}
