//! Batches changed after they have come in.

use super::samples::{CAP, batch_around, batch_at, batch_of, codecs, samples, with_header};
use polylogue_record::compress::Codec;
use polylogue_record::kafka::{
    BatchError, BatchHeader, RecordFault, RecordRules, check_records, patch_base, recompress, records,
    rewrite_log_append_time, set_log_append_time, set_max_timestamp, verify_crc,
};
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_checksum_follows_a_new_timestamp(samples in samples(), codec in codecs(), now in any::<i64>()) {
        let batch = batch_of(codec, &samples);
        let before = BatchHeader::parse(&batch).unwrap();
        let stamped = rewrite_log_append_time(&batch, now).unwrap();
        let header = BatchHeader::parse(&stamped).unwrap();
        prop_assert_eq!(verify_crc(&stamped, &header), Ok(()));
        let expected = BatchHeader {
            crc: header.crc,
            attributes: before.attributes | 0x08,
            max_timestamp: now,
            ..before
        };
        prop_assert_eq!(header, expected);
        prop_assert_eq!(&stamped[61..], &batch[61..]);

        let mut back = stamped.to_vec();
        prop_assert_eq!(set_max_timestamp(&mut back, before.max_timestamp), Ok(before.crc));
        prop_assert_eq!(&back, &batch);
        prop_assert_eq!(set_log_append_time(&mut back, now), Ok(header.crc));
        prop_assert_eq!(&back, &stamped);
    }

    #[test]
    fn records_survive_another_codec(samples in samples(), from in codecs(), to in codecs()) {
        let mut batch = batch_of(from, &samples).to_vec();
        patch_base(&mut batch, 5_000, 3).unwrap();
        let again = recompress(&batch, to, None, CAP).unwrap();
        let before = BatchHeader::parse(&batch).unwrap();
        let after = BatchHeader::parse(&again).unwrap();
        prop_assert_eq!(verify_crc(&again, &after), Ok(()));
        prop_assert_eq!(after.total_len(), again.len() as i64);
        prop_assert_eq!(after.codec(), Ok(to));
        let same = BatchHeader { batch_length: before.batch_length, crc: before.crc, attributes: before.attributes, ..after };
        prop_assert_eq!(same, before);
        let read = |batch| records(batch, CAP).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
        prop_assert_eq!(read(&again), read(&batch.into()));
    }

    #[test]
    fn any_records_are_answered(
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        count in prop_oneof![1..5, Just(i32::MAX)],
        codec in 0..8u8,
    ) {
        let _ = recompress(&batch_around(&payload, count, codec), Codec::Lz4, None, CAP);
    }
}

#[test]
fn gaps_are_closed() {
    // Offset deltas 7 and 130, which takes two bytes.
    let payload = [12, 0, 0, 14, 1, 1, 0, 16, 0, 4, 0x84, 0x02, 1, 2, 65, 0];
    let batch = batch_around(&payload, 2, 0);
    let closed = recompress(&batch, Codec::None, None, CAP).unwrap();
    let offsets: Vec<_> = records(&closed, CAP).unwrap().map(|record| record.unwrap().offset).collect();
    assert_eq!(offsets, [0, 1]);
    let header = BatchHeader::parse(&closed).unwrap();
    assert!(check_records(&closed, &header, &RecordRules::default()).unwrap().consecutive);
    assert_eq!(closed.len(), batch.len() - 1);
}

#[test]
fn what_is_no_sequence_of_records_is_not_compressed() {
    let batch = batch_at(Codec::None, &[1, 2]);
    let result = |count| {
        let batch = with_header(&batch, |header| header.record_count = count);
        recompress(&batch, Codec::Zstd, None, CAP).map(drop)
    };
    assert_eq!(result(2), Ok(()));
    assert_eq!(result(1), Err(BatchError::BytesAfterRecords));
    let early = BatchError::Record { index: 2, fault: RecordFault::EndsEarly };
    assert_eq!(result(3), Err(early.clone()));
    assert_eq!(result(i32::MAX), Err(early));
    assert_eq!(recompress(&batch[..60], Codec::Zstd, None, CAP), Err(BatchError::NoBatch));
    assert_eq!(set_log_append_time(&mut [0; 60], 1), Err(BatchError::NoBatch));
    assert_eq!(patch_base(&mut [0; 60], 1, 1), Err(BatchError::NoBatch));
}
