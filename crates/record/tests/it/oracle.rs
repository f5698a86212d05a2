//! Batches of `kafka-protocol` 0.18, where it is right, and bytes that other clients have sent.
//!
//! It loses repeated header keys, never sets the bit of log append time, and splits records without sequence into batches of
//! their own; the batches here avoid that.

use super::samples::{CAP, Sample, batch_of, samples};
use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records as theirs;
use polylogue_record::compress::Codec;
use polylogue_record::kafka::{BatchHeader, ProduceRules, RecordRules, check_records, records, validate_produce};
use proptest::prelude::*;

fn their_codec(codec: Codec) -> theirs::Compression {
    match codec {
        Codec::None => theirs::Compression::None,
        Codec::Gzip => theirs::Compression::Gzip,
        Codec::Snappy => theirs::Compression::Snappy,
        Codec::Lz4 => theirs::Compression::Lz4,
        Codec::Zstd => theirs::Compression::Zstd,
    }
}

fn their_record(sample: &Sample, index: usize) -> theirs::Record {
    let mut record = theirs::Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id: 12,
        producer_epoch: 3,
        timestamp_type: theirs::TimestampType::Creation,
        offset: index as i64,
        sequence: 100 + index as i32,
        timestamp: sample.timestamp,
        key: sample.key.clone().map(Bytes::from),
        value: sample.value.clone().map(Bytes::from),
        headers: Default::default(),
    };
    for (key, value) in &sample.headers {
        let key = StrBytes::from_string(String::from_utf8(key.clone()).unwrap());
        record.headers.insert(key, value.clone().map(Bytes::from));
    }
    record
}

/// Its timestamps overflow where Java's wrap, and its headers are a map.
fn simpler(samples: Vec<Sample>) -> Vec<Sample> {
    let mut samples = samples;
    for sample in &mut samples {
        sample.timestamp = sample.timestamp.rem_euclid(4_000_000_000_000);
        sample.headers.sort();
        sample.headers.dedup_by(|a, b| a.0 == b.0);
    }
    samples
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn their_batches_are_read_here(samples in samples().prop_map(simpler), codec in super::samples::codecs()) {
        let options = theirs::RecordEncodeOptions { version: 2, compression: their_codec(codec) };
        let their_records: Vec<_> = samples.iter().zip(0..).map(|(sample, index)| their_record(sample, index)).collect();
        let mut buffer = BytesMut::new();
        theirs::RecordBatchEncoder::encode(&mut buffer, &their_records, &options).unwrap();
        let batch = buffer.freeze();

        let valid = validate_produce(&batch, &ProduceRules::default()).unwrap();
        prop_assert_eq!(valid.count as usize, samples.len());
        let producer = valid.header.producer().unwrap();
        prop_assert_eq!((producer.id.0, producer.epoch, producer.base_sequence), (12, 3, 100));
        let checked = check_records(&batch, &valid.header, &RecordRules::default()).unwrap();
        prop_assert!(checked.consecutive);
        prop_assert_eq!(checked.max_timestamp, samples.iter().map(|sample| sample.timestamp).max().unwrap());
        for (record, theirs) in records(&batch, CAP).unwrap().zip(&their_records) {
            let record = record.unwrap();
            prop_assert_eq!((record.offset, record.timestamp), (theirs.offset, theirs.timestamp));
            prop_assert_eq!((&record.key, &record.value), (&theirs.key, &theirs.value));
            let headers: Vec<_> = record.headers.iter().collect();
            let expected: Vec<_> =
                theirs.headers.iter().map(|(key, value)| (Bytes::copy_from_slice(key.as_bytes()), value.clone())).collect();
            prop_assert_eq!(headers, expected);
        }
    }

    #[test]
    fn our_batches_are_read_there(samples in samples().prop_map(simpler), codec in super::samples::codecs()) {
        let batch = batch_of(codec, &samples);
        let set = theirs::RecordBatchDecoder::decode(&mut batch.clone()).unwrap();
        prop_assert_eq!(set.records.len(), samples.len());
        prop_assert_eq!(set.compression, their_codec(codec));
        let header = BatchHeader::parse(&batch).unwrap();
        for ((theirs, sample), offset) in set.records.iter().zip(&samples).zip(header.base_offset..) {
            prop_assert_eq!((theirs.offset, theirs.timestamp), (offset, sample.timestamp));
            prop_assert_eq!(theirs.key.as_deref(), sample.key.as_deref());
            prop_assert_eq!(theirs.value.as_deref(), sample.value.as_deref());
            prop_assert_eq!(theirs.headers.len(), sample.headers.len());
        }
    }
}
