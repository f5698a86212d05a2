//! What a producer may send, and with which error the rest is refused.

use super::samples::{batch_around, batch_at, batch_of, codecs, resum, samples, with_header};
use polylogue_record::compress::Codec;
use polylogue_record::envelope::{EntryFlags, Producer};
use polylogue_record::kafka::{
    BatchBuilder, BatchError, BatchHeader, CheckedRecords, ErrorKind, NewRecord, ProduceRules, REFUSED_RECORDS_MAX,
    RecordFault, RecordRules, RefusedFor, RefusedRecord, TimestampRange, check_records, entry_checksum,
    increment_sequence, patch_base, records, validate_produce,
};
use polylogue_types::ProducerId;
use proptest::prelude::*;

fn validate(batch: &[u8]) -> Result<(), BatchError> {
    validate_produce(batch, &ProduceRules::default()).map(drop)
}

fn check(batch: &[u8]) -> Result<CheckedRecords, BatchError> {
    check_records(batch, &BatchHeader::parse(batch).unwrap(), &RecordRules::default())
}

fn refused_after(batch: &[u8], change: impl FnOnce(&mut BatchHeader)) -> (BatchError, ErrorKind) {
    let error = validate(&with_header(batch, change)).unwrap_err();
    let kind = error.kind();
    (error, kind)
}

#[test]
fn a_batch_says_what_the_envelope_needs() {
    let mut builder = BatchBuilder::new().compression(Codec::Zstd, None).producer(77, 3, i32::MAX - 1).transactional();
    for timestamp in [500, 900, 700] {
        builder.push(&NewRecord { timestamp, ..NewRecord::default() }).unwrap();
    }
    let batch = builder.build().unwrap();
    let valid = validate_produce(&batch, &ProduceRules::default()).unwrap();
    let header = valid.header;
    assert_eq!((valid.count, header.total_len()), (3, batch.len() as i64));
    assert_eq!((header.base_timestamp, header.max_timestamp), (500, 900));
    assert_eq!(header.crc, crc32c::crc32c(&batch[21..]));
    assert_eq!(header.flags(), EntryFlags::COMPRESSED.with(EntryFlags::TRANSACTIONAL));
    let producer = Producer { id: ProducerId(77), epoch: 3, base_sequence: i64::from(i32::MAX) - 1, last_sequence: 0 };
    assert_eq!(header.producer(), Some(producer));
}

#[test]
fn sequences_wrap_as_in_kafka() {
    assert_eq!(increment_sequence(i32::MAX, 1), 0);
    assert_eq!(increment_sequence(i32::MAX - 1, 1), i32::MAX);
    assert_eq!(increment_sequence(i32::MAX, i32::MAX), i32::MAX - 1);
    assert_eq!(increment_sequence(5, 0), 5);
}

#[test]
fn bytes_that_are_not_one_batch_are_refused() {
    let batch = batch_at(Codec::None, &[1, 2]);
    assert_eq!(validate(&[]), Err(BatchError::NoBatch));
    for len in 0..batch.len() {
        assert_eq!(validate(&batch[..len]), Err(BatchError::NoBatch), "{len}");
    }
    let twice = [&batch[..], &batch[..]].concat();
    assert_eq!(validate(&twice), Err(BatchError::MoreThanOneBatch));
    assert_eq!(BatchError::MoreThanOneBatch.kind(), ErrorKind::InvalidRecord);
    for magic in [0, 1] {
        let old = refused_after(&batch, |header| header.magic = magic);
        assert_eq!(old, (BatchError::OldMagic(magic), ErrorKind::InvalidRecord));
    }
    let unknown = refused_after(&batch, |header| header.magic = 3);
    assert_eq!(unknown, (BatchError::UnknownMagic(3), ErrorKind::CorruptMessage));
    for batch_length in [48, 0, -1, -12, i32::MIN] {
        let (error, kind) = refused_after(&batch, |header| header.batch_length = batch_length);
        let size = i64::from(batch_length) + 12;
        assert_eq!((error, kind), (BatchError::TooShort { size }, ErrorKind::CorruptMessage));
    }
}

/// Every bit of a batch is either checked, or left to the broker: the leader epoch.
#[test]
fn every_changed_bit_is_noticed() {
    let batch = batch_at(Codec::None, &[1, 2]);
    assert_eq!(validate(&batch), Ok(()));
    for bit in 0..batch.len() * 8 {
        let mut changed = batch.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        let broker_sets_it = (12..16).contains(&(bit / 8));
        assert_eq!(validate(&changed).is_ok(), broker_sets_it, "bit {bit}");
    }
}

#[test]
fn a_header_may_not_lie() {
    let batch = batch_at(Codec::None, &[1, 2]);
    let invalid = ErrorKind::InvalidRecord;
    assert_eq!(refused_after(&batch, |h| h.base_offset = 7), (BatchError::BaseOffset(7), invalid));
    let range = BatchError::OffsetRange { base: 0, last: -1 };
    assert_eq!(refused_after(&batch, |h| h.last_offset_delta = -1), (range, invalid));
    for count in [0, -1, i32::MIN] {
        assert_eq!(refused_after(&batch, |h| h.record_count = count), (BatchError::Count(count), invalid));
    }
    for count in [1, 3, i32::MAX] {
        let mismatch = BatchError::CountMismatch { base: 0, last: 1, count };
        assert_eq!(refused_after(&batch, |h| h.record_count = count), (mismatch, invalid));
    }
    assert_eq!(refused_after(&batch, |h| h.attributes |= 0x20), (BatchError::Control, invalid));
    let transactional = refused_after(&batch, |h| h.attributes |= 0x10);
    assert_eq!(transactional, (BatchError::TransactionalWithoutProducer, invalid));
    let sequence = refused_after(&batch, |h| h.producer_id = 9);
    assert_eq!(sequence, (BatchError::Sequence { sequence: -1, producer_id: 9 }, invalid));
    let time = refused_after(&batch, |h| h.attributes |= 0x08);
    assert_eq!(time, (BatchError::LogAppendTime, ErrorKind::InvalidTimestamp));
    for id in 5..8u8 {
        let (error, kind) = refused_after(&batch, |h| h.attributes |= i16::from(id));
        assert_eq!((error, kind), (BatchError::UnknownCompression(id), ErrorKind::UnsupportedCompressionType));
    }
}

#[test]
fn the_request_and_the_topic_have_their_say() {
    let batch = batch_at(Codec::Zstd, &[1, 2]);
    let rules = ProduceRules { api_version: 6, ..ProduceRules::default() };
    let error = validate_produce(&batch, &rules).unwrap_err();
    assert_eq!(error, BatchError::ZstdTooEarly { version: 6 });
    assert_eq!(error.kind().code(), 76);
    let size = batch.len();
    let rules = ProduceRules { batch_bytes_max: size, segment_bytes: size, ..ProduceRules::default() };
    assert!(validate_produce(&batch, &rules).is_ok());
    let limit = size - 1;
    let error = validate_produce(&batch, &ProduceRules { batch_bytes_max: limit, ..rules }).unwrap_err();
    assert_eq!((error.kind().code(), error), (10, BatchError::TooLarge { size, limit }));
    let error = validate_produce(&batch, &ProduceRules { segment_bytes: limit, ..rules }).unwrap_err();
    assert_eq!((error.kind().code(), error), (18, BatchError::LargerThanSegment { size, limit }));
}

#[test]
fn a_wrong_checksum_is_corruption() {
    let mut batch = batch_at(Codec::None, &[1]).to_vec();
    let computed = crc32c::crc32c(&batch[21..]);
    batch[17] ^= 1;
    let error = validate(&batch).unwrap_err();
    let stored = computed ^ (1 << 24);
    assert_eq!(error, BatchError::Crc { stored, computed });
    assert_eq!(error.to_string(), format!("Record is corrupt (stored crc = {stored}, computed crc = {computed})"));
    assert_eq!(error.kind().code(), 2);
}

#[test]
fn a_compacted_topic_needs_keys() {
    let mut builder = BatchBuilder::new();
    for key in [Some(&b"k"[..]), None, Some(b""), None] {
        builder.push(&NewRecord { key, ..NewRecord::default() }).unwrap();
    }
    let batch = builder.build().unwrap();
    let header = BatchHeader::parse(&batch).unwrap();
    let error = check_records(&batch, &header, &RecordRules { compacted: true, ..RecordRules::default() }).unwrap_err();
    let records = [1, 3].map(|index| RefusedRecord { index, reason: RefusedFor::NoKey }).to_vec();
    assert_eq!(error.kind(), ErrorKind::InvalidRecord);
    assert_eq!(error, BatchError::Refused { timestamp: false, count: 2, records });
    assert!(check(&batch).is_ok());
}

#[test]
fn timestamps_are_held_against_the_clock() {
    let range = TimestampRange { now: 10_000, before_max_ms: 1_000, after_max_ms: 500 };
    let batch = batch_at(Codec::Gzip, &[9_000, 8_999, 10_500, 10_501, -1, -2]);
    let header = BatchHeader::parse(&batch).unwrap();
    let rules = RecordRules { timestamps: Some(range), ..RecordRules::default() };
    let refused = |index, timestamp| RefusedRecord {
        index,
        reason: RefusedFor::Timestamp { timestamp, offset: i64::from(index), from: 9_000, to: 10_500 },
    };
    let records = vec![refused(1, 8_999), refused(3, 10_501), refused(5, -2)];
    let error = check_records(&batch, &header, &rules).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidTimestamp);
    assert_eq!(error, BatchError::Refused { timestamp: true, count: 3, records });
    assert_eq!(
        refused(1, 8_999).reason.to_string(),
        "Timestamp 8999 of message with offset 1 is out of range. The timestamp should be within [9000, 10500]"
    );
    // Kafka's default for the past is 2^63 - 1.
    let range = TimestampRange { now: 10_000, before_max_ms: i64::MAX, after_max_ms: i64::MAX };
    let rules = RecordRules { timestamps: Some(range), ..RecordRules::default() };
    let batch = batch_at(Codec::None, &[i64::MAX, 0]);
    assert!(check_records(&batch, &BatchHeader::parse(&batch).unwrap(), &rules).is_ok());
}

#[test]
fn the_answer_to_many_bad_records_is_short() {
    let batch = batch_at(Codec::None, &[1; 1_000]);
    let rules = RecordRules { compacted: true, ..RecordRules::default() };
    match check_records(&batch, &BatchHeader::parse(&batch).unwrap(), &rules) {
        Err(BatchError::Refused { count: 1_000, records, .. }) => assert_eq!(records.len(), REFUSED_RECORDS_MAX),
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_are_framed_or_refused() {
    let fault = |payload: &[u8], count| {
        let batch = batch_around(payload, count, 0);
        let walked = check(&batch).map(drop);
        let read = records(&batch, 1 << 20).unwrap().try_for_each(|record| record.map(drop));
        assert_eq!(walked, read, "{payload:?}");
        match walked {
            Err(BatchError::Record { index, fault }) => Some((index, fault)),
            Err(BatchError::BytesAfterRecords) => None,
            other => panic!("{payload:?}: {other:?}"),
        }
    };
    // Length 6: attributes, timestamp delta, offset delta, no key, no value, no headers.
    let good = [12, 0, 0, 0, 1, 1, 0];
    assert!(check(&batch_around(&good, 1, 0)).is_ok());
    assert_eq!(fault(&good, 2), Some((1, RecordFault::EndsEarly)));
    assert_eq!(fault(&[&good[..], &good[..]].concat(), 1), None);
    assert_eq!(fault(&good[..6], 1), Some((0, RecordFault::EndsEarly)));
    assert_eq!(fault(&[14, 0, 0, 0, 1, 1, 0, 0], 1), Some((0, RecordFault::Size)));
    assert_eq!(fault(&[10, 0, 0, 0, 1, 1, 0], 1), Some((0, RecordFault::Size)));
    assert_eq!(fault(&[1, 0, 0, 0, 1, 1, 0], 1), Some((0, RecordFault::Size)));
    assert_eq!(fault(&[12, 0, 0, 0, 1, 1, 1], 1), Some((0, RecordFault::HeaderCount(-1))));
    assert_eq!(fault(&[16, 0, 0, 0, 1, 1, 2, 1, 1], 1), Some((0, RecordFault::HeaderKey)));
    assert_eq!(fault(&[12, 0, 0, 0, 1, 4, 0], 1), Some((0, RecordFault::Size)));
    assert!(check(&batch_around(&[12, 0, 0, 0, 9, 1, 0], 1, 0)).is_ok(), "-5 bytes are no key, as in Utils.readBytes");
    let overlong = [20, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x1f, 1, 1, 0];
    assert_eq!(fault(&overlong, 1), Some((0, RecordFault::Varint)));
}

#[test]
fn gaps_and_wrong_highest_timestamps_are_reported() {
    let gap = [12, 0, 0, 0, 1, 1, 0, 12, 0, 4, 4, 1, 1, 0];
    let checked = check(&batch_around(&gap, 2, 0)).unwrap();
    assert_eq!(checked, CheckedRecords { max_timestamp: 3, consecutive: false, bytes: checked.bytes });
    let batch = with_header(&batch_at(Codec::Lz4, &[10, 30, 20]), |header| header.max_timestamp = 99);
    let bytes = batch_at(Codec::None, &[10, 30, 20]).len() - polylogue_record::kafka::HEADER_BYTES;
    assert_eq!(check(&batch), Ok(CheckedRecords { max_timestamp: 30, consecutive: true, bytes }), "bytes decompressed");
}

#[test]
fn linked_lz4_blocks_are_refused_as_java_cannot_read_them() {
    use std::io::Write;
    let info = lz4_flex::frame::FrameInfo::new().block_mode(lz4_flex::frame::BlockMode::Linked);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(&[12, 0, 0, 0, 1, 1, 0]).unwrap();
    let batch = batch_around(&encoder.finish().unwrap(), 1, Codec::Lz4.id());
    assert_eq!(check(&batch), Err(BatchError::LinkedLz4Blocks));
}

proptest! {
    #[test]
    fn what_is_built_is_valid_and_its_checksum_follows(
        samples in samples(),
        codec in codecs(),
        base_offset in 0..i64::MAX,
        epoch in any::<i32>(),
    ) {
        let batch = batch_of(codec, &samples);
        let valid = validate_produce(&batch, &ProduceRules::default()).unwrap();
        prop_assert_eq!(valid.count as usize, samples.len());
        let checked = check(&batch).unwrap();
        let max = samples.iter().map(|sample| sample.timestamp).max().unwrap().max(-1);
        prop_assert_eq!(checked, CheckedRecords { max_timestamp: max, consecutive: true, bytes: checked.bytes });
        prop_assert_eq!(valid.header.max_timestamp, max);

        let mut stored = batch.to_vec();
        patch_base(&mut stored, base_offset, epoch).unwrap();
        prop_assert_eq!(entry_checksum(&stored, valid.header.crc).unwrap(), crc32c::crc32c(&stored));
        let header = BatchHeader::parse(&stored).unwrap();
        prop_assert_eq!(header, BatchHeader { base_offset, partition_leader_epoch: epoch, ..valid.header });
        prop_assert_eq!(header.crc, crc32c::crc32c(&stored[21..]));
    }

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(validate(&bytes).is_err());
    }

    #[test]
    fn any_records_are_answered(
        payload in proptest::collection::vec(any::<u8>(), 0..200),
        count in prop_oneof![1..5, Just(i32::MAX)],
        codec in 0..5u8,
    ) {
        let batch = batch_around(&payload, count, codec);
        prop_assert_eq!(validate(&batch), Ok(()));
        let _ = check(&batch);
    }

    #[test]
    fn damaged_records_are_answered(
        samples in samples(),
        codec in codecs(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut batch = batch_of(codec, &samples).to_vec();
        let at = 61 + at.index(batch.len() - 61);
        batch[at] = byte;
        let _ = check(&resum(batch));
    }
}
