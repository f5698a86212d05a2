//! Tests of the codec's rules, each on bytes written by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::coding;

use bytes::Bytes;
use coding::{decode, encode};
use polylogue_kafka_codec::fetch::{FetchRequest, FetchResponse, FetchableTopicResponse, PartitionData};
use polylogue_kafka_codec::find_coordinator::FindCoordinatorRequest;
use polylogue_kafka_codec::heartbeat::HeartbeatResponse;
use polylogue_kafka_codec::metadata::{MetadataRequest, MetadataRequestTopic};
use polylogue_kafka_codec::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use polylogue_kafka_codec::reader::{ARRAY_BYTES_FACTOR, ARRAY_BYTES_FREE};
use polylogue_kafka_codec::{DecodeError, EncodeError, Message, Reader, Records, StrBytes, Writer};
use polylogue_types::{Chunk, FileRange, RangeSource};
use std::io;
use std::sync::Arc;

fn reader(bytes: &'static [u8]) -> Reader {
    Reader::new(Bytes::from_static(bytes))
}

#[test]
fn varints_are_of_32_bits() {
    for (bytes, value) in [
        (&[0x00][..], 0),
        (&[0x7f], 127),
        (&[0x80, 0x01], 128),
        (&[0xff, 0xff, 0xff, 0xff, 0x0f], u32::MAX),
        (&[0x80, 0x80, 0x80, 0x80, 0x00], 0),
    ] {
        assert_eq!(reader(bytes).uvarint("f"), Ok(value), "{bytes:02x?}");
    }
    let too_long = Err(DecodeError::VarintTooLong { field: "f" });
    assert_eq!(reader(&[0xff, 0xff, 0xff, 0xff, 0x10]).uvarint("f"), too_long);
    assert_eq!(reader(&[0xff, 0xff, 0xff, 0xff, 0x8f, 0x00]).uvarint("f"), too_long);
    for value in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455, 268_435_456, u32::MAX] {
        let mut w = Writer::new();
        w.uvarint(value);
        let bytes = w.into_chunks()[0].to_bytes().unwrap();
        assert_eq!(Reader::new(bytes).uvarint("f"), Ok(value));
    }
}

#[test]
fn only_minus_one_is_null() {
    assert_eq!(reader(&[0xff, 0xff]).opt_string("f", false, true), Ok(None));
    assert_eq!(reader(&[0x00]).opt_string("f", true, true), Ok(None));
    assert_eq!(
        reader(&[0xff, 0xfe]).opt_string("f", false, true),
        Err(DecodeError::NegativeLength { field: "f", len: -2 })
    );
    assert_eq!(
        reader(&[0x80, 0, 0, 0]).opt_bytes("f", false, true),
        Err(DecodeError::NegativeLength { field: "f", len: i32::MIN })
    );
    let null = DecodeError::Null { field: "f" };
    assert_eq!(reader(&[0xff, 0xff]).string("f", false), Err(null.clone()));
    assert_eq!(reader(&[0x00]).bytes("f", true), Err(null.clone()));
    assert_eq!(reader(&[0x00]).array("f", true, 1, |r| r.i8("f")), Err(null));
}

#[test]
fn a_string_has_a_longest_length_in_both_encodings() {
    let longest = StrBytes::from("x".repeat(32_767));
    for flexible in [false, true] {
        let mut w = Writer::new();
        w.string("f", &longest, flexible).unwrap();
        let bytes = w.into_chunks()[0].to_bytes().unwrap();
        assert_eq!(Reader::new(bytes).string("f", flexible).unwrap(), longest);
        let too_long = StrBytes::from("x".repeat(32_768));
        let refused = Writer::new().string("f", &too_long, flexible);
        assert_eq!(refused, Err(EncodeError::TooLong { field: "f", len: 32_768 }));
    }
    let mut bytes = vec![0x81, 0x80, 0x02]; // 32,768 and one
    bytes.resize(40_000, b'x');
    let read = Reader::new(Bytes::from(bytes)).string("f", true);
    assert_eq!(read, Err(DecodeError::StringTooLong { field: "f", len: 32_768 }));
    assert_eq!(reader(&[0, 1, 0xff]).string("f", false), Err(DecodeError::InvalidUtf8 { field: "f" }));
}

#[test]
fn a_count_is_held_against_the_bytes_left() {
    let too_large = |count, remaining| DecodeError::CountTooLarge { field: "f", count, remaining };
    let read = reader(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]).array("f", false, 4, |r| r.i32("f"));
    assert_eq!(read, Err(too_large(0x7fff_ffff, 4)));
    assert_eq!(reader(&[4, 0, 0, 0, 0, 0]).array("f", true, 2, |r| r.i16("f")), Err(too_large(3, 5)));
    assert_eq!(reader(&[3, 0, 1, 0, 2]).array("f", true, 2, |r| r.i16("f")), Ok(vec![1, 2]));
}

#[test]
fn a_frame_takes_no_more_memory_than_its_length_allows() {
    let names = |count: u32, name: &[u8]| {
        let mut w = Writer::new();
        w.uvarint(count + 1);
        let mut bytes = w.into_chunks()[0].to_bytes().unwrap().to_vec();
        for _ in 0..count {
            bytes.push(u8::try_from(name.len()).unwrap() + 1);
            bytes.extend_from_slice(name);
        }
        let mut r = Reader::new(Bytes::from(bytes));
        r.array("f", true, 1, |r| r.string("f", true)).map(|names| names.len())
    };
    let of_a_string = size_of::<StrBytes>();
    // A short frame may decode to any size.
    let free = u32::try_from(ARRAY_BYTES_FREE / of_a_string).unwrap();
    assert_eq!(names(free, b""), Ok(ARRAY_BYTES_FREE / of_a_string));
    // A long one may not grow more than eight times; with names of five bytes it does not.
    let left = ARRAY_BYTES_FREE + (1_000_000 + 3) * ARRAY_BYTES_FACTOR;
    let needed = 1_000_000 * of_a_string;
    assert_eq!(names(1_000_000, b""), Err(DecodeError::OverBudget { field: "f", needed, left }));
    assert_eq!(names(1_000_000, b"topic"), Ok(1_000_000));
}

/// HeartbeatResponse version 4: throttle time, error code, then these tagged fields.
fn heartbeat(tags: &[u8]) -> Result<HeartbeatResponse, DecodeError> {
    let mut bytes = vec![0, 0, 0, 7, 0, 27];
    bytes.extend_from_slice(tags);
    decode(Bytes::from(bytes), 4)
}

#[test]
fn unknown_tags_are_skipped_within_bounds() {
    let plain = HeartbeatResponse { throttle_time_ms: 7, error_code: 27 };
    assert_eq!(heartbeat(&[0]).as_ref(), Ok(&plain));
    assert_eq!(heartbeat(&[2, 0x09, 0x03, 1, 2, 3, 0x80, 0x01, 0x00]).as_ref(), Ok(&plain));
    assert_eq!(
        heartbeat(&[1, 0x09, 0x04, 1, 2, 3]),
        Err(DecodeError::UnexpectedEnd { field: "HeartbeatResponse", needed: 4, remaining: 3 })
    );
    assert!(heartbeat(&[0xff, 0xff, 0xff, 0xff, 0x0f]).is_err(), "2^32 - 1 tags in no bytes");
    assert_eq!(heartbeat(&[0, 9]), Err(DecodeError::TrailingBytes { remaining: 1 }));
}

/// FetchRequest with these tagged fields.
fn fetch(version: i16, tags: &[u8]) -> Result<FetchRequest, DecodeError> {
    let mut bytes = encode(&FetchRequest::default(), version).to_vec();
    assert_eq!(bytes.pop(), Some(0), "a tag at its default is not written");
    bytes.extend_from_slice(tags);
    decode(Bytes::from(bytes), version)
}

const CLUSTER_ID: [u8; 4] = [0, 2, 2, b'c'];
const REPLICA: [u8; 15] = [1, 13, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0];

#[test]
fn known_tags_come_in_any_order_and_the_last_one_counts() {
    let mut tags = vec![2];
    tags.extend(REPLICA);
    tags.extend(CLUSTER_ID);
    let read = fetch(15, &tags).unwrap();
    assert_eq!(read.cluster_id.as_deref(), Some("c"));
    assert_eq!((read.replica_state.replica_id, read.replica_state.replica_epoch), (3, 4));

    let read = fetch(15, &[2, 0, 2, 2, b'a', 0, 2, 2, b'b']).unwrap();
    assert_eq!(read.cluster_id.as_deref(), Some("b"));
}

#[test]
fn a_tag_below_its_version_is_skipped() {
    // franz-go sends known tags in older versions (redpanda#31663).
    let mut tags = vec![1];
    tags.extend(REPLICA);
    assert_eq!(fetch(14, &tags), Ok(FetchRequest::default()));
}

#[test]
fn a_known_tag_fills_its_size() {
    assert_eq!(
        fetch(12, &[1, 0, 3, 2, b'c', 9]),
        Err(DecodeError::TaggedFieldSize { field: "FetchRequest", tag: 0, extra: 1 })
    );
    // A tagged field is limited to its own bytes.
    assert_eq!(
        fetch(12, &[1, 0, 1, 2, b'c']),
        Err(DecodeError::UnexpectedEnd { field: "FetchRequest.ClusterId", needed: 1, remaining: 0 })
    );
}

#[test]
fn a_tagged_field_longer_than_127_bytes_comes_back() {
    for len in [120, 126, 127, 128, 200, 20_000] {
        let request = FetchRequest { cluster_id: Some("c".repeat(len).into()), ..FetchRequest::default() };
        assert_eq!(decode(encode(&request, 12), 12), Ok(request), "{len}");
    }
}

fn refused<M: Message>(message: &M, version: i16) -> EncodeError {
    message.encode(&mut Writer::new(), version).unwrap_err()
}

#[test]
fn what_a_version_lacks_is_dropped_only_where_that_is_allowed() {
    // Ignorable: the session id of a fetch.
    let request = FetchRequest { session_id: 5, ..FetchRequest::default() };
    assert_eq!(decode(encode(&request, 6), 6), Ok(FetchRequest::default()));
    // Not ignorable: the coordinator type, several keys, a replica state in a tag.
    let request = FindCoordinatorRequest { coordinator_keys: vec!["g".into()], ..FindCoordinatorRequest::default() };
    let not_in_version = |field, version| EncodeError::NotInVersion { field, version };
    assert_eq!(refused(&request, 3), not_in_version("FindCoordinatorRequest.CoordinatorKeys", 3));
    let mut request = FetchRequest::default();
    request.replica_state.replica_id = 1;
    assert_eq!(refused(&request, 14), not_in_version("FetchRequest.ReplicaState", 14));
    assert_eq!(refused(&request, 11), not_in_version("FetchRequest.ReplicaState", 11));
}

#[test]
fn null_is_refused_where_a_version_has_no_null() {
    let all = MetadataRequest { topics: None, ..MetadataRequest::default() };
    assert_eq!(refused(&all, 0), EncodeError::Null { field: "MetadataRequest.Topics" });
    assert_eq!(decode(encode(&all, 1), 1), Ok(all));
    let nameless = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic { name: None, ..MetadataRequestTopic::default() }]),
        ..MetadataRequest::default()
    };
    assert_eq!(refused(&nameless, 9), EncodeError::Null { field: "MetadataRequestTopic.Name" });
    assert_eq!(decode(encode(&nameless, 10), 10), Ok(nameless));
    // Likewise when decoding: one topic, no name, no tags.
    let read = decode::<MetadataRequest>(Bytes::from_static(&[2, 0, 0, 1, 0, 0, 0]), 9);
    assert_eq!(read, Err(DecodeError::Null { field: "MetadataRequestTopic.Name" }));
}

fn produce(records: Records) -> ProduceRequest {
    ProduceRequest {
        acks: -1,
        topic_data: vec![TopicProduceData {
            name: "topic".into(),
            partition_data: vec![PartitionProduceData { index: 3, records: Some(records) }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

#[test]
fn decoded_records_and_strings_share_the_frame() {
    let frame = encode(&produce(Records::from(Bytes::from(vec![7; 5000]))), 9);
    let read: ProduceRequest = decode(frame.clone(), 9).unwrap();
    let inside = |part: &[u8]| frame.as_ptr_range().contains(&part.as_ptr());
    let topic = &read.topic_data[0];
    assert!(inside(topic.name.as_bytes()));
    let records = topic.partition_data[0].records.as_ref().unwrap();
    assert_eq!(records.len(), 5000);
    assert!(inside(records.as_bytes().unwrap()));
}

#[derive(Debug)]
struct File(Vec<u8>);

impl RangeSource for File {
    fn read_exact_at(&self, into: &mut [u8], position: u64) -> io::Result<()> {
        let start = usize::try_from(position).unwrap();
        into.copy_from_slice(&self.0[start..start + into.len()]);
        Ok(())
    }

    fn raw_fd(&self) -> Option<i32> {
        None
    }
}

#[test]
fn encoded_records_are_passed_on_and_not_copied() {
    let file: Arc<dyn RangeSource> = Arc::new(File((0..=255).collect()));
    let big = Bytes::from(vec![1; 1000]);
    let records = Records::from(vec![
        Chunk::Bytes(big.clone()),
        Chunk::File(FileRange { source: file, position: 10, len: 20 }),
        Chunk::Bytes(Bytes::from_static(b"small")),
    ]);
    assert_eq!(records.len(), 1025);
    let partition = PartitionData { records: Some(records), ..PartitionData::default() };
    let topic = FetchableTopicResponse { partitions: vec![partition.clone(), partition], ..Default::default() };
    let response = FetchResponse { responses: vec![topic], ..FetchResponse::default() };
    let mut w = Writer::new();
    response.encode(&mut w, 13).unwrap();
    let chunks = w.into_chunks();

    let same = |chunk: &Chunk| matches!(chunk, Chunk::Bytes(bytes) if bytes.as_ptr() == big.as_ptr());
    assert_eq!(chunks.iter().filter(|chunk| same(chunk)).count(), 2);
    assert_eq!(chunks.iter().filter(|chunk| matches!(chunk, Chunk::File(_))).count(), 2);
    assert_eq!(chunks.len(), 7, "our bytes around two times a big piece and a file");
    // The whole decodes as one message.
    let read: FetchResponse = decode(encode(&response, 13), 13).unwrap();
    let bytes = read.responses[0].partitions[1].records.clone().unwrap().into_bytes().unwrap();
    let mut expected = vec![1; 1000];
    expected.extend(10..30);
    expected.extend(b"small");
    assert_eq!(bytes, expected);
}
