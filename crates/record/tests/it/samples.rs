//! Batches to test with.

use bytes::Bytes;
use polylogue_record::compress::Codec;
use polylogue_record::kafka::{BatchBuilder, BatchHeader, CRC_FROM, NewRecord};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// What tests let records decompress to.
pub(crate) const CAP: usize = 1 << 20;

/// A record that owns its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sample {
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// Records of all shapes, at least one.
pub(crate) fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let bytes = || vec(any::<u8>(), 0..40);
    let headers = vec(("[a-c]{0,2}".prop_map(String::into_bytes), option::of(bytes())), 0..4);
    // Long runs of one byte as well, so that the codecs find something.
    let value = prop_oneof![bytes(), (any::<u8>(), 0..5_000usize).prop_map(|(byte, len)| vec![byte; len])];
    let timestamp = prop_oneof![3 => 1_700_000_000_000..1_700_000_100_000i64, 1 => any::<i64>(), 1 => Just(-1)];
    let sample = (timestamp, option::of(bytes()), option::of(value), headers)
        .prop_map(|(timestamp, key, value, headers)| Sample { timestamp, key, value, headers });
    vec(sample, 1..20)
}

/// Any of the codecs.
pub(crate) fn codecs() -> impl Strategy<Value = Codec> {
    proptest::sample::select(Codec::ALL.to_vec())
}

/// Puts records into a batch.
pub(crate) fn push_all(builder: &mut BatchBuilder, samples: &[Sample]) {
    for sample in samples {
        let headers: Vec<_> = sample.headers.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
        let record = NewRecord {
            timestamp: sample.timestamp,
            key: sample.key.as_deref(),
            value: sample.value.as_deref(),
            headers: &headers,
        };
        builder.push(&record).unwrap();
    }
}

/// A batch as a producer sends it.
pub(crate) fn batch_of(codec: Codec, samples: &[Sample]) -> Bytes {
    let mut builder = BatchBuilder::new().compression(codec, None);
    push_all(&mut builder, samples);
    builder.build().unwrap()
}

/// A batch whose records have these timestamps and nothing else.
pub(crate) fn batch_at(codec: Codec, timestamps: &[i64]) -> Bytes {
    let mut builder = BatchBuilder::new().compression(codec, None);
    for timestamp in timestamps {
        builder.push(&NewRecord { timestamp: *timestamp, value: Some(b"value"), ..NewRecord::default() }).unwrap();
    }
    builder.build().unwrap()
}

/// The batch with another header, and the checksum that belongs to it.
pub(crate) fn with_header(batch: &[u8], change: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let mut header = BatchHeader::parse(batch).unwrap();
    change(&mut header);
    let mut out = header.encode().to_vec();
    out.extend_from_slice(&batch[out.len()..]);
    resum(out)
}

/// The bytes with the checksum of a batch put right.
pub(crate) fn resum(mut batch: Vec<u8>) -> Bytes {
    let crc = crc32c::crc32c(&batch[CRC_FROM..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    Bytes::from(batch)
}

/// A batch whose record area is `payload`, with everything else in order.
pub(crate) fn batch_around(payload: &[u8], count: i32, codec: u8) -> Bytes {
    let shell = batch_at(Codec::None, &[1]);
    let mut out = shell[..61].to_vec();
    out.extend_from_slice(payload);
    with_header(&out, |header| {
        header.batch_length = i32::try_from(49 + payload.len()).unwrap();
        header.attributes = i16::from(codec);
        header.record_count = count;
        header.last_offset_delta = count - 1;
    })
}
