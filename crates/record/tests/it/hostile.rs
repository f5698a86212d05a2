//! Batches made to hurt: counts and lengths that promise more than there is.

use super::samples::{CAP, batch_around, batch_at, batch_of, samples, with_header};
use bytes::Bytes;
use polylogue_record::compress::Codec;
use polylogue_record::kafka::{
    BatchError, BatchHeader, BatchIter, ProduceRules, RecordFault, RecordRules, check_records, find_offset,
    first_at_or_after_timestamp, headers, max_timestamp_record, recompress, records, validate_produce,
};
use proptest::prelude::*;

/// Everything that reads a batch.
fn read_in_all_ways(batch: &Bytes) {
    let _ = validate_produce(batch, &ProduceRules::default());
    let _ = BatchIter::new(batch.clone()).count();
    let _ = headers(batch).count();
    let _ = find_offset(batch, 1);
    let _ = max_timestamp_record(batch, 0, CAP);
    let _ = first_at_or_after_timestamp(batch, 1, 0, CAP);
    let _ = recompress(batch, Codec::Lz4, None, CAP);
    if let Ok(records) = records(batch, CAP) {
        let _ = records.flatten().flat_map(|record| record.headers.iter().collect::<Vec<_>>()).count();
    }
    if let Ok(header) = BatchHeader::parse(batch) {
        let _ = check_records(batch, &header, &RecordRules { decompressed_bytes_max: CAP, ..RecordRules::default() });
    }
}

/// kafka-protocol 0.18 asks for 377 GB here, and the process is gone.
#[test]
fn a_header_alone_promises_nothing() {
    let batch = with_header(&batch_at(Codec::None, &[1])[..61], |header| {
        header.batch_length = 49;
        header.record_count = i32::MAX;
        header.last_offset_delta = i32::MAX - 1;
    });
    assert_eq!(batch.len(), 61);
    assert!(validate_produce(&batch, &ProduceRules::default()).is_ok(), "the header alone is in order");
    let early = BatchError::Record { index: 0, fault: RecordFault::EndsEarly };
    let header = BatchHeader::parse(&batch).unwrap();
    assert_eq!(check_records(&batch, &header, &RecordRules::default()), Err(early.clone()));
    assert_eq!(records(&batch, CAP).unwrap().next(), Some(Err(early)));
    read_in_all_ways(&batch);
}

#[test]
fn counts_inside_a_record_promise_nothing() {
    // 2^31 - 1 headers in a record of 10 bytes; then a key, then a record of that many bytes.
    let headers = [20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f];
    let key = [20, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f, 1, 0];
    let record = [0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 1, 1, 0];
    for payload in [headers, key, record] {
        let batch = batch_around(&payload, 1, 0);
        assert!(matches!(records(&batch, CAP).unwrap().next(), Some(Err(BatchError::Record { .. }))), "{payload:?}");
        read_in_all_ways(&batch);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_cut_batch_is_answered_wherever_it_is_cut(samples in samples(), codec in super::samples::codecs()) {
        let batch = batch_of(codec, &samples);
        let step = batch.len().div_ceil(60);
        for len in (0..batch.len()).step_by(step).chain(0..batch.len().min(80)) {
            let cut = batch.slice(..len);
            read_in_all_ways(&cut);
            prop_assert!(validate_produce(&cut, &ProduceRules::default()).is_err());
            prop_assert_eq!(BatchIter::new(cut).count(), 0);
        }
    }

    #[test]
    fn a_flipped_bit_is_answered(samples in samples(), codec in super::samples::codecs(), bits in proptest::collection::vec(any::<prop::sample::Index>(), 1..20)) {
        let mut batch = batch_of(codec, &samples).to_vec();
        for bit in bits {
            let bit = bit.index(batch.len() * 8);
            batch[bit / 8] ^= 1 << (bit % 8);
        }
        read_in_all_ways(&Bytes::from(batch));
    }

    #[test]
    fn any_header_is_answered(front in proptest::collection::vec(any::<u8>(), 61), samples in samples()) {
        let batch = batch_of(Codec::None, &samples);
        let mut front = front;
        front[16] = 2;
        read_in_all_ways(&Bytes::from([&front[..], &batch[61..]].concat()));
    }
}
