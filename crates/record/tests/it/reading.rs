//! Records, batches one after the other, and finding what is in them.

use super::samples::{CAP, Sample, batch_around, batch_at, batch_of, codecs, push_all, samples, with_header};
use bytes::Bytes;
use polylogue_record::compress::Codec;
use polylogue_record::kafka::{
    Batch, BatchBuilder, BatchError, BatchHeader, BatchIter, NewRecord, Record, RecordAt, RecordFault, find_offset,
    first_at_or_after_timestamp, headers, max_timestamp_record, patch_base, records, rewrite_log_append_time,
};
use proptest::prelude::*;

fn read(batch: &Bytes) -> Vec<Record> {
    records(batch, CAP).unwrap().collect::<Result<_, _>>().unwrap()
}

fn as_sample(record: &Record) -> Sample {
    Sample {
        timestamp: record.timestamp,
        key: record.key.as_deref().map(<[u8]>::to_vec),
        value: record.value.as_deref().map(<[u8]>::to_vec),
        headers: record.headers.iter().map(|(key, value)| (key.to_vec(), value.map(|value| value.to_vec()))).collect(),
    }
}

fn at(base_offset: i64, batch: &[u8]) -> Bytes {
    let mut stored = batch.to_vec();
    patch_base(&mut stored, base_offset, 1).unwrap();
    Bytes::from(stored)
}

proptest! {
    #[test]
    fn records_come_back(samples in samples(), codec in codecs(), base_offset in 0..i64::MAX / 2) {
        let records = read(&at(base_offset, &batch_of(codec, &samples)));
        prop_assert_eq!(records.iter().map(as_sample).collect::<Vec<_>>(), samples);
        for (record, offset) in records.iter().zip(base_offset..) {
            prop_assert_eq!(record.offset, offset);
        }
    }

    #[test]
    fn any_records_are_answered(
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        count in prop_oneof![1..5, Just(i32::MAX)],
        codec in 0..5u8,
    ) {
        let batch = batch_around(&payload, count, codec);
        if let Ok(records) = records(&batch, CAP) {
            // An error is the last that comes.
            let results: Vec<_> = records.collect();
            let errors = results.iter().filter(|result| result.is_err()).count();
            prop_assert!(errors <= 1);
            prop_assert!(results.iter().rposition(Result::is_err).is_none_or(|at| at + 1 == results.len()));
        }
        let _ = max_timestamp_record(&batch, 0, CAP);
        let _ = first_at_or_after_timestamp(&batch, 0, 0, CAP);
    }

    /// The walk and the reader are two readers of one layout.
    #[test]
    fn walking_and_reading_agree(
        payload in proptest::collection::vec(prop_oneof![0..16u8, any::<u8>()], 0..60),
        count in 1..4,
    ) {
        let batch = batch_around(&payload, count, 0);
        let walked = with_header(&batch, |header| header.max_timestamp = i64::MAX);
        let walked = first_at_or_after_timestamp(&walked, i64::MAX, i64::MAX, CAP).map(drop);
        let read = records(&batch, CAP).unwrap().find_map(Result::err).map_or(Ok(()), Err);
        // Which of two faults is seen first may differ.
        prop_assert_eq!(walked.is_ok(), read.is_ok(), "{:?} {:?}", walked, read);
    }

    #[test]
    fn batches_are_found_in_their_concatenation(
        counts in proptest::collection::vec(1..5usize, 1..8),
        cut in any::<prop::sample::Index>(),
        gap in 0..3i64,
    ) {
        let mut all = Vec::new();
        let mut places = Vec::new();
        let mut offset = 100;
        for count in counts {
            let batch = at(offset, &batch_at(Codec::None, &vec![5; count]));
            let last = offset + count as i64 - 1;
            places.push((all.len(), offset, last));
            all.extend_from_slice(&batch);
            offset = last + 1 + gap;
        }
        let cut = cut.index(all.len() + 1);
        let end_of = |at: usize| places.get(at + 1).map_or(all.len(), |next| next.0);
        let whole: Vec<_> = (0..places.len()).filter(|at| end_of(*at) <= cut).map(|at| places[at]).collect();

        let mut iter = headers(&all[..cut]);
        let found: Vec<_> =
            iter.by_ref().map(Result::unwrap).map(|b| (b.position, b.header.base_offset, b.header.last_offset())).collect();
        prop_assert_eq!(&found, &whole);
        prop_assert_eq!(iter.position(), whole.len().checked_sub(1).map_or(0, end_of));

        let mut iter = BatchIter::new(Bytes::copy_from_slice(&all[..cut]));
        let found: Vec<Batch> = iter.by_ref().map(Result::unwrap).collect();
        let joined: Vec<u8> = found.iter().flat_map(|batch| batch.bytes.iter().copied()).collect();
        prop_assert_eq!([&joined[..], &iter.rest()[..]].concat(), &all[..cut]);
        prop_assert_eq!(found.len(), whole.len());

        for wanted in 98..offset + 2 {
            let expected = whole.iter().find(|(_, _, last)| *last >= wanted).map(|(position, ..)| *position);
            prop_assert_eq!(find_offset(&all[..cut], wanted), Ok(expected), "{}", wanted);
        }
    }
}

#[test]
fn headers_keep_their_order_their_duplicates_and_their_nulls() {
    let wanted: [(&[u8], Option<&[u8]>); 4] =
        [(b"b", Some(b"1")), (b"a", None), (b"b", Some(b"")), (b"\xff", Some(b"2"))];
    let mut builder = BatchBuilder::new();
    builder.push(&NewRecord { headers: &wanted, ..NewRecord::default() }).unwrap();
    let record = read(&builder.build().unwrap()).remove(0);
    let found: Vec<_> = record.headers.iter().collect();
    assert_eq!(found.iter().map(|(key, value)| (&key[..], value.as_deref())).collect::<Vec<_>>(), wanted);
    assert_eq!((record.headers.len(), record.headers.is_empty()), (4, false));
    assert_eq!(record.headers.last(b"b"), Some(Some(Bytes::new())));
    assert_eq!(record.headers.last(b"a"), Some(None));
    assert_eq!(record.headers.last(b"c"), None);
}

#[test]
fn under_log_append_time_all_records_have_the_time_of_the_batch() {
    let batch = rewrite_log_append_time(&at(40, &batch_at(Codec::Snappy, &[1, 9, 5])), 777).unwrap();
    assert_eq!(read(&batch).iter().map(|record| record.timestamp).collect::<Vec<_>>(), [777; 3]);
    assert_eq!(max_timestamp_record(&batch, 0, CAP), Ok(Some(RecordAt { offset: 40, timestamp: 777 })));
    let found = first_at_or_after_timestamp(&batch, 777, 0, CAP);
    assert_eq!(found, Ok(Some(RecordAt { offset: 40, timestamp: 777 })));
    assert_eq!(first_at_or_after_timestamp(&batch, 778, 0, CAP), Ok(None));
}

#[test]
fn a_time_leads_to_the_record_and_not_to_its_batch() {
    for codec in Codec::ALL {
        let batch = at(1_000, &batch_at(codec, &[10, 30, 20, 30, 25]));
        let find = |timestamp, from| first_at_or_after_timestamp(&batch, timestamp, from, CAP).unwrap();
        assert_eq!(find(5, 0), Some(RecordAt { offset: 1_000, timestamp: 10 }), "{codec}");
        assert_eq!(find(10, 0), Some(RecordAt { offset: 1_000, timestamp: 10 }), "at least, not more");
        assert_eq!(find(11, 0), Some(RecordAt { offset: 1_001, timestamp: 30 }));
        assert_eq!(find(11, 1_002), Some(RecordAt { offset: 1_002, timestamp: 20 }), "below the log's start");
        assert_eq!(find(21, 1_002), Some(RecordAt { offset: 1_003, timestamp: 30 }));
        assert_eq!(find(30, 1_004), None);
        assert_eq!(find(31, 0), None);
        let max = |from| max_timestamp_record(&batch, from, CAP).unwrap();
        assert_eq!(max(0), Some(RecordAt { offset: 1_001, timestamp: 30 }), "the first of several");
        assert_eq!(max(1_002), Some(RecordAt { offset: 1_003, timestamp: 30 }), "below the log's start");
        assert_eq!(max(1_004), Some(RecordAt { offset: 1_004, timestamp: 25 }), "not the highest of the batch");
        assert_eq!(max(1_005), None);
    }
}

#[test]
fn records_beyond_the_cap_are_not_decompressed() {
    let samples = [Sample { timestamp: 0, key: None, value: Some(vec![7; CAP]), headers: Vec::new() }];
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let batch = batch_of(codec, &samples);
        assert!(matches!(records(&batch, CAP), Err(BatchError::Compress(_))), "{codec}");
        assert!(max_timestamp_record(&batch, 0, CAP).is_err(), "{codec}");
        assert!(records(&batch, CAP + 20).is_ok(), "{codec}");
    }
}

#[test]
fn fewer_and_more_records_than_stated_are_noticed() {
    let batch = batch_at(Codec::None, &[1, 2, 3]);
    let errors = |count| {
        let batch = with_header(&batch, |header| header.record_count = count);
        records(&batch, CAP).unwrap().map(Result::err).collect::<Vec<_>>()
    };
    assert_eq!(errors(3), [None, None, None]);
    let early = BatchError::Record { index: 3, fault: RecordFault::EndsEarly };
    assert_eq!(errors(4), [None, None, None, Some(early)]);
    assert_eq!(errors(2), [None, None, Some(BatchError::BytesAfterRecords)]);
    assert_eq!(errors(-5), [Some(BatchError::BytesAfterRecords)]);
}

#[test]
fn a_batch_that_compaction_has_emptied_is_read_over() {
    let batch = with_header(&batch_at(Codec::None, &[1, 2])[..61], |header| {
        header.batch_length = 49;
        header.record_count = 0;
        header.base_timestamp = -1;
    });
    assert_eq!(read(&batch), []);
    assert_eq!(max_timestamp_record(&batch, 0, CAP), Ok(None));
    let all = [&at(0, &batch)[..], &at(2, &batch_at(Codec::None, &[3]))].concat();
    assert_eq!(find_offset(&all, 1), Ok(Some(0)));
    assert_eq!(find_offset(&all, 2), Ok(Some(61)));
}

#[test]
fn what_is_no_batch_ends_the_iteration_with_an_error() {
    let batch = batch_at(Codec::None, &[1]);
    let mut old = batch.to_vec();
    old[16] = 1;
    let all = Bytes::from([&batch[..], &old, &batch].concat());
    let results: Vec<_> = BatchIter::new(all.clone()).map(|batch| batch.map(drop)).collect();
    assert_eq!(results, [Ok(()), Err(BatchError::OldMagic(1))]);
    let results: Vec<_> = headers(&all).map(|batch| batch.map(drop)).collect();
    assert_eq!(results, [Ok(()), Err(BatchError::OldMagic(1))]);
    assert_eq!(find_offset(&all, 7), Err(BatchError::OldMagic(1)));
    let short = with_header(&batch, |header| header.batch_length = 48);
    assert_eq!(headers(&short).next(), Some(Err(BatchError::TooShort { size: 60 })));
}

#[test]
fn the_builder_leaves_gaps_where_it_is_told_to() {
    let mut builder = BatchBuilder::new().base(100, 0);
    for (delta, value) in [(0, b"a"), (5, b"b"), (3, b"c"), (9, b"d")] {
        let record = NewRecord { timestamp: 7, value: Some(value), ..NewRecord::default() };
        let size = builder.bytes_with(delta, &record);
        builder.push_at(delta, &record).unwrap();
        assert_eq!(builder.uncompressed_bytes(), size);
    }
    let batch = builder.build().unwrap();
    let header = BatchHeader::parse(&batch).unwrap();
    assert_eq!((header.last_offset_delta, header.record_count), (9, 4));
    let offsets: Vec<_> = records(&batch, 1 << 10).unwrap().map(|record| record.unwrap().offset).collect();
    assert_eq!(offsets, [100, 105, 106, 109], "one that does not lie behind the last comes right after it");
}

#[test]
fn the_builder_sets_what_it_is_told() {
    let mut builder = BatchBuilder::new().producer(5, 6, 7).transactional().control().base(8, 9);
    push_all(&mut builder, &[Sample { timestamp: 3, key: Some(vec![1]), value: None, headers: Vec::new() }]);
    assert_eq!((builder.len(), builder.is_empty()), (1, false));
    let size = builder.uncompressed_bytes();
    let batch = builder.build().unwrap();
    assert_eq!(batch.len(), size);
    let header = BatchHeader::parse(&batch).unwrap();
    assert_eq!((header.base_offset, header.partition_leader_epoch), (8, 9));
    assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (5, 6, 7));
    assert!(header.is_transactional() && header.is_control() && !header.has_delete_horizon());
    assert_eq!(BatchBuilder::new().build(), Err(BatchError::Count(0)));

    let mut builder = BatchBuilder::new();
    builder.push(&NewRecord { timestamp: 3, ..NewRecord::default() }).unwrap();
    let header = BatchHeader::parse(&builder.build_log_append_time(55).unwrap()).unwrap();
    assert!(header.is_log_append_time());
    assert_eq!((header.base_timestamp, header.max_timestamp), (3, 55));
}
