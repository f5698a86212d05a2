//! Record batches, good ones and forged ones.

use bytes::Bytes;
use polylogue_record::compress::Codec;
use polylogue_record::crc::crc32c;
use polylogue_record::kafka::{BatchBuilder, CRC_FROM, HEADER_BYTES, NewRecord};
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

/// The time of all messages, in milliseconds: that of this process's first, so that a batch which is sent again is the
/// same, and retention leaves it alone.
static TIMESTAMP: LazyLock<i64> = LazyLock::new(|| UNIX_EPOCH.elapsed().unwrap().as_millis() as i64);

/// A batch of these values.
pub(crate) fn batch<V: AsRef<[u8]>>(values: &[V]) -> Bytes {
    build(BatchBuilder::new(), values)
}

/// A batch of these values, on top of the builder's settings.
pub(crate) fn build<V: AsRef<[u8]>>(mut builder: BatchBuilder, values: &[V]) -> Bytes {
    for value in values {
        let record = NewRecord { timestamp: *TIMESTAMP, key: None, value: Some(value.as_ref()), headers: &[] };
        builder.push(&record).unwrap();
    }
    builder.build().unwrap()
}

/// The batch with `bytes` written over it from `at`, its checksum made right again.
pub(crate) fn forge(batch: &Bytes, at: usize, bytes: &[u8]) -> Bytes {
    let mut forged = batch.to_vec();
    forged[at..at + bytes.len()].copy_from_slice(bytes);
    sealed(forged)
}

/// A batch of one record that says it has `len` zeros as its value, compressed: the codec's best case.
pub(crate) fn bomb(codec: Codec, len: usize) -> Bytes {
    // A record is its length, attributes, two deltas, no key, the value's length, the value, no headers.
    let mut front = Vec::new();
    let value_len = varint(len as i64);
    front.extend(varint((4 + value_len.len() + len + 1) as i64));
    front.extend([0, 0, 0, 1]);
    front.extend(value_len);
    // All zeros but the front: the system gives one page for all of them.
    let mut records = vec![0; front.len() + len + 1];
    records[..front.len()].copy_from_slice(&front);
    let model = build(BatchBuilder::new().compression(codec, None), &["x"]);
    let mut forged = model[..HEADER_BYTES].to_vec();
    polylogue_record::compress::compress(codec, None, &records, &mut forged).unwrap();
    sealed(forged)
}

/// Puts in length and checksum.
fn sealed(mut batch: Vec<u8>) -> Bytes {
    let len = i32::try_from(batch.len() - 12).unwrap();
    batch[8..12].copy_from_slice(&len.to_be_bytes());
    let crc = crc32c(&batch[CRC_FROM..]);
    batch[CRC_FROM - 4..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
    batch.into()
}

/// A signed number as records have it.
fn varint(value: i64) -> Vec<u8> {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    let mut out = Vec::new();
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out
}
