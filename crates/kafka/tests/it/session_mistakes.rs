//! Bugs of other brokers, by their number in the list of known bugs, as far as sessions could have them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use bytes::Bytes;
use polylogue_api::{
    AppendError, Appended, Cleanup, Compression, CreatedTopic, FoundOffset, ReadData, ReadError, Reply, Request as Ask,
    TimestampKind, TopicConfig, Unavailable,
};
use polylogue_kafka::session::{CloseReason, Session, SessionInit, supported_apis};
use polylogue_kafka_codec::api_versions::ApiVersionsRequest;
use polylogue_kafka_codec::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use polylogue_kafka_codec::fetch::{FetchPartition, FetchRequest, FetchTopic};
use polylogue_kafka_codec::find_coordinator::FindCoordinatorRequest;
use polylogue_kafka_codec::init_producer_id::InitProducerIdRequest;
use polylogue_kafka_codec::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use polylogue_kafka_codec::metadata::{MetadataRequest, MetadataRequestTopic};
use polylogue_kafka_codec::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use polylogue_kafka_codec::{ErrorCode, Records};
use polylogue_record::compress::Codec;
use polylogue_record::kafka::{BatchBuilder, NewRecord, records};
use polylogue_types::{Chunk, Offset, TopicId};
use session_host::broker::Broker;
use session_host::{Host, START_MS, batch, built, frame, init, text, timed, topic_id};
use std::sync::Arc;

fn code(code: i16) -> ErrorCode {
    ErrorCode::from_code(code).unwrap()
}

fn produce(acks: i16, records: Bytes) -> ProduceRequest {
    ProduceRequest {
        transactional_id: None,
        acks,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: text("a"),
            partition_data: vec![PartitionProduceData { index: 0, records: Some(Records::from(records)) }],
            ..TopicProduceData::default()
        }],
    }
}

/// Returns what the log is to store of a batch for `a`-0.
fn stored(host: &mut Host, records: Bytes) -> Bytes {
    host.send(9, &produce(-1, records));
    let (_, Ask::Append(append)) = host.asked_one() else { panic!("{:?}", host.session) };
    append.entries[0].bytes.clone()
}

/// Returns the error of a produce to `a`-0, for this reply of the broker.
fn produced(answer: Result<Appended, AppendError>) -> (ErrorCode, i64) {
    let mut host = Host::new();
    host.send(9, &produce(-1, built(BatchBuilder::new().producer(7, 0, 5), &[b"x"])));
    let (token, _) = host.asked_one();
    host.reply(token, Reply::Append(vec![answer]));
    let response = host.response::<ProduceRequest>(9);
    let row = &response.responses[0].partition_responses[0];
    (code(row.error_code), row.base_offset)
}

fn fetch(version: i16, topic: TopicId, offset: i64) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 1 << 20,
        topics: vec![FetchTopic {
            topic: text(if version >= 13 { "" } else { "a" }),
            topic_id: if version >= 13 { topic } else { TopicId::ZERO },
            partitions: vec![FetchPartition {
                fetch_offset: offset,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
        }],
        ..FetchRequest::default()
    }
}

#[test]
fn mistake_01_a_fetch_in_the_middle_of_a_batch_gets_the_batch() {
    let mut host = Host::new();
    let mut broker = Broker::default();
    host.send(9, &produce(-1, batch(&[b"0", b"1", b"2"])));
    broker.serve(&mut host);
    host.response::<ProduceRequest>(9);
    for offset in 0..3 {
        host.send(12, &fetch(12, TopicId::ZERO, offset));
        broker.serve(&mut host);
        let response = host.response::<FetchRequest>(12);
        let bytes = response.responses[0].partitions[0].records.as_ref().unwrap().as_bytes().unwrap().clone();
        let offsets: Vec<_> = records(&bytes, 1 << 20).unwrap().map(|record| record.unwrap().offset).collect();
        assert_eq!(offsets, [0, 1, 2], "from {offset}");
    }
}

#[test]
fn mistake_02_idempotent_producers_hear_what_they_can_act_on() {
    // A duplicate is a success with the original offset.
    let duplicate = Appended { base_offset: Offset(40), log_start: Offset(0), duplicate: true, max_timestamp: -1 };
    assert_eq!(produced(Ok(duplicate)), (ErrorCode::None, 40));
    assert_eq!(produced(Err(AppendError::OutOfOrderSequence)).0, ErrorCode::OutOfOrderSequenceNumber);
    assert_eq!(produced(Err(AppendError::InvalidProducerEpoch)).0, ErrorCode::InvalidProducerEpoch);
    // Never -1, after which a producer gives up or starts a new epoch; all of these can be retried.
    use Unavailable::{Busy, NotCommitted, Stopping, StorageFull, Unknown};
    for why in [Busy, NotCommitted, Stopping, StorageFull, Unknown] {
        assert!(produced(Err(AppendError::Unavailable(why))).0.retriable(), "{why:?}");
    }
    // The sequence number wraps.
    let mut host = Host::new();
    let last = built(BatchBuilder::new().producer(7, 3, i32::MAX), &[b"x", b"y"]);
    host.send(9, &produce(-1, last));
    let (_, Ask::Append(append)) = host.asked_one() else { panic!() };
    assert_eq!(append.entries[0].producer.unwrap().base_sequence, i32::MAX);
}

#[test]
fn mistake_05_a_time_is_looked_up_in_messages() {
    let mut host = Host::new();
    let asked = ListOffsetsRequest {
        topics: vec![ListOffsetsTopic {
            name: text("a"),
            partitions: vec![ListOffsetsPartition { timestamp: 2_000, ..ListOffsetsPartition::default() }],
        }],
        ..ListOffsetsRequest::default()
    };
    let entry = timed(BatchBuilder::new().compression(Codec::Zstd, None), &[1_000, 2_000, 2_001]);
    host.send(7, &asked);
    let (token, _) = host.asked_one();
    let found = FoundOffset { offset: Some(Offset(0)), log_start: Offset(0), leader_epoch: 0, entry: Some(entry) };
    host.reply(token, Reply::FindOffsets(vec![Ok(found)]));
    let response = host.response::<ListOffsetsRequest>(7);
    let row = &response.topics[0].partitions[0];
    // The message's offset and timestamp, not the batch's; at or after, not after.
    assert_eq!((row.offset, row.timestamp), (1, 2_000));
}

#[test]
fn mistake_06_beyond_the_end_is_an_error() {
    let mut host = Host::new();
    host.send(12, &fetch(12, TopicId::ZERO, 99));
    let (token, _) = host.asked_one();
    let error = ReadError::OutOfRange { log_start: Offset(0), high_watermark: Offset(3) };
    host.reply(token, Reply::Read(vec![Err(error)]));
    let row = &host.response::<FetchRequest>(12).responses[0].partitions[0];
    assert_eq!(code(row.error_code), ErrorCode::OffsetOutOfRange);
}

fn topic(name: &str) -> CreatableTopic {
    CreatableTopic { name: text(name), num_partitions: 1, replication_factor: 1, ..CreatableTopic::default() }
}

#[test]
fn mistake_10_good_and_bad_topics_in_one_request() {
    let mut host = Host::new();
    let topics = vec![topic("bad name"), topic("good")];
    host.send(7, &CreateTopicsRequest { topics, ..CreateTopicsRequest::default() });
    let (token, _) = host.asked_one();
    let topic = host.topics.add(9, "good", 1, TopicConfig::default());
    host.reply(token, Reply::CreateTopics(vec![Ok(CreatedTopic { topic })]));
    let response = host.response::<CreateTopicsRequest>(7);
    let rows: Vec<_> = response.topics.iter().map(|row| (&*row.name, code(row.error_code))).collect();
    assert_eq!(rows, [("bad name", ErrorCode::InvalidTopicException), ("good", ErrorCode::None)]);
}

#[test]
fn mistake_11_configs_that_connect_and_streams_set_are_taken_and_nonsense_is_not() {
    let config = |name: &str, value: &str| CreatableTopicConfig { name: text(name), value: Some(text(value)) };
    let usual = vec![
        config("min.insync.replicas", "2"),
        config("flush.messages", "1"),
        config("flush.ms", "1000"),
        config("message.timestamp.type", "CreateTime"),
        config("segment.bytes", "52428800"),
        config("cleanup.policy", "compact,delete"),
        config("unclean.leader.election.enable", "false"),
    ];
    let mut host = Host::new();
    let good = CreatableTopic { configs: usual, ..topic("good") };
    host.send(7, &CreateTopicsRequest { topics: vec![good], ..CreateTopicsRequest::default() });
    assert!(matches!(host.asked_one().1, Ask::CreateTopics(_)));
    let bad = CreatableTopic { configs: vec![config("min.insinc.replicas", "2")], ..topic("bad") };
    let response = Host::new().ask(7, &CreateTopicsRequest { topics: vec![bad], ..CreateTopicsRequest::default() });
    assert_eq!(code(response.topics[0].error_code), ErrorCode::InvalidConfig);
}

#[test]
fn mistake_12_message_size_and_keys_are_enforced() {
    let error = |config: TopicConfig, batch: Bytes| {
        let mut host = Host::with_topic(config);
        code(host.ask(9, &produce(-1, batch)).responses[0].partition_responses[0].error_code)
    };
    let small = TopicConfig { max_message_bytes: 100, ..TopicConfig::default() };
    assert_eq!(error(small, batch(&[&[0; 200]])), ErrorCode::MessageTooLarge);
    let compact = TopicConfig { cleanup: Cleanup { delete: false, compact: true }, ..TopicConfig::default() };
    assert_eq!(error(compact, batch(&[b"no key"])), ErrorCode::InvalidRecord);
}

#[test]
fn mistake_13_a_transactional_producer_is_told_that_it_cannot_be_one() {
    let request = InitProducerIdRequest { transactional_id: Some(text("tx")), ..InitProducerIdRequest::default() };
    for version in 0..=5 {
        let response = Host::new().ask(version, &request);
        assert_eq!(code(response.error_code), ErrorCode::TransactionalIdAuthorizationFailed);
    }
}

/// Byte for byte: length, correlation id, no header tags (it is version 0 whatever the body's version), error, compact array of
/// 16 rows.
#[test]
fn mistake_14_the_bytes_of_an_api_versions_response() {
    let mut host = Host::new();
    let request = ApiVersionsRequest { client_software_name: text("x"), client_software_version: text("1") };
    host.feed(&frame(3, 0x0102_0304, &request));
    host.take_output();
    let rows = supported_apis().count();
    let mut expected = vec![1, 2, 3, 4, 0, 0, u8::try_from(rows + 1).unwrap()];
    for api in supported_apis() {
        let (min, max) = (api.advertised.start(), api.advertised.end());
        for number in [api.key.code(), *min, *max] {
            expected.extend(number.to_be_bytes());
        }
        expected.push(0);
    }
    expected.extend([0, 0, 0, 0]); // throttle time
    assert_eq!(host.output[4..4 + expected.len()], expected);
}

#[test]
fn mistake_14_a_version_that_nobody_speaks_is_answered_in_version_0() {
    for version in [5, 9, i16::MAX, -1] {
        let mut host = Host::new();
        // A body that is invalid in version 3.
        let mut bytes = frame(0, 77, &ApiVersionsRequest::default());
        bytes[6..8].copy_from_slice(&version.to_be_bytes());
        if version > 0 {
            // The header of a flexible version has tags.
            bytes.push(0);
        }
        bytes.extend([0xff; 20]);
        let len = i32::try_from(bytes.len() - 4).unwrap();
        bytes[..4].copy_from_slice(&len.to_be_bytes());
        host.feed(&bytes);
        let (correlation, response) = host.response_to::<ApiVersionsRequest>(0);
        assert_eq!((correlation, code(response.error_code)), (77, ErrorCode::UnsupportedVersion));
        let rows: Vec<_> = response.api_keys.iter().map(|k| (k.api_key, k.min_version, k.max_version)).collect();
        assert_eq!(rows, [(18, 0, 4)]);
        // The connection continues.
        assert_eq!(host.ask(0, &ApiVersionsRequest::default()).error_code, 0);
    }
}

#[test]
fn mistake_14_a_client_without_a_proper_name() {
    let mut host = Host::new();
    let request = ApiVersionsRequest { client_software_name: text("my lib"), client_software_version: text("1") };
    let response = host.ask(4, &request);
    assert_eq!((code(response.error_code), response.api_keys.len()), (ErrorCode::InvalidRequest, 0));
    assert_eq!(host.session.client_software(), None);
    let request = ApiVersionsRequest { client_software_name: text("lib"), client_software_version: text("1.0") };
    assert_eq!(host.ask(4, &request).error_code, 0);
    let software = host.session.client_software().unwrap();
    assert_eq!((&*software.name, &*software.version), ("lib", "1.0"));
}

/// Regression test: both were stored at any length for the life of a connection: 64 KiB for each of 5,000 idle clients.
#[test]
fn the_name_of_a_client_is_kept_so_far() {
    let mut host = Host::new();
    let (name, version) = (format!("lib{}", "x".repeat(30_000)), "1".repeat(30_000));
    let request = ApiVersionsRequest { client_software_name: text(&name), client_software_version: text(&version) };
    assert_eq!(host.ask(4, &request).error_code, 0);
    let software = host.session.client_software().unwrap();
    assert_eq!((&*software.name, &*software.version), (&name[..64], &version[..64]));
}

/// Clients derive the release from the versions: they are those of one release, Kafka 4.3, without gaps.
#[test]
fn mistake_15_versions_are_those_of_a_real_release() {
    for api in supported_apis() {
        let kafka = api.key.valid_versions();
        let stable = if api.key.latest_version_unstable() { *kafka.end() - 1 } else { *kafka.end() };
        assert_eq!(*api.advertised.end(), stable, "{}", api.key);
        assert_eq!(*api.served.start(), *kafka.start(), "{}", api.key);
    }
}

#[test]
fn mistake_16_unknown_tags_are_skipped_and_defaults_are_not_written() {
    // Two unknown tagged fields at the end of the header and of the body.
    let mut bytes =
        frame(3, 5, &ApiVersionsRequest { client_software_name: text("x"), client_software_version: text("1") });
    assert_eq!(bytes.pop(), Some(0));
    bytes.extend([2, 100, 1, 42, 101, 0]);
    let len = i32::try_from(bytes.len() - 4).unwrap();
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    let mut host = Host::new();
    host.feed(&bytes);
    assert_eq!(host.response_to::<ApiVersionsRequest>(3).1.error_code, 0);

    // An ordinary produce response contains neither a leader nor endpoints, not even as an empty tag.
    host.send(10, &produce(-1, batch(&[b"x"])));
    let (token, _) = host.asked_one();
    let appended = Appended { base_offset: Offset(0), log_start: Offset(0), duplicate: false, max_timestamp: -1 };
    host.reply(token, Reply::Append(vec![Ok(appended)]));
    let frame = host.response_frame().unwrap();
    // Correlation id, header tags, one topic "a" with one partition: no tags in partition, topic and response.
    assert_eq!(frame[4..9], [0, 2, 2, b'a', 2]);
    let partition = 4 + 2 + 8 + 8 + 8;
    let after = 9 + partition;
    assert_eq!(frame[after..], [1, 0, 0, 0, 0, 0, 0, 0, 0], "no record errors, no message, three times no tags");
}

/// kafka-go gives up on an error that it cannot retry: here the response waits until the topic exists.
#[test]
fn mistake_17_an_auto_created_topic_is_there_in_the_first_answer() {
    let mut host = Host::new();
    let new = MetadataRequestTopic { name: Some(text("new")), ..MetadataRequestTopic::default() };
    let request =
        MetadataRequest { topics: Some(vec![new]), allow_auto_topic_creation: true, ..MetadataRequest::default() };
    host.send(4, &request);
    Broker::default().serve(&mut host);
    let response = host.response::<MetadataRequest>(4);
    assert_eq!((response.topics[0].error_code, response.topics[0].partitions.len()), (0, 1));
}

#[test]
fn mistake_20_no_acks_and_an_error_closes_the_connection() {
    // Nothing can be appended.
    let mut host = Host::new();
    let mut nowhere = produce(0, batch(&[b"x"]));
    nowhere.topic_data[0].name = text("nowhere");
    host.send(9, &nowhere);
    host.no_response();
    let reason = CloseReason::Produce { error: ErrorCode::UnknownTopicOrPartition };
    assert_eq!(host.close_reason(), Some(&reason));

    // Valid batches are appended, then the connection is closed.
    let mut host = Host::new();
    let mut half = produce(0, batch(&[b"x"]));
    half.topic_data[0].partition_data.push(PartitionProduceData { index: 99, records: None });
    host.send(9, &half);
    let (token, Ask::Append(append)) = host.asked_one() else { panic!() };
    assert_eq!(append.entries.len(), 1);
    assert_eq!(host.close_reason(), None);
    let appended = Appended { base_offset: Offset(0), log_start: Offset(0), duplicate: false, max_timestamp: -1 };
    host.reply(token, Reply::Append(vec![Ok(appended)]));
    assert_eq!(host.close_reason(), Some(&reason));
    host.no_response();

    // The broker refuses.
    let mut host = Host::new();
    host.send(9, &produce(0, batch(&[b"x"])));
    let (token, _) = host.asked_one();
    host.reply(token, Reply::Append(vec![Err(AppendError::Storage)]));
    assert_eq!(host.close_reason(), Some(&CloseReason::Produce { error: ErrorCode::KafkaStorageError }));
}

#[test]
fn mistake_21_the_listener_that_is_told_is_the_one_that_was_used() {
    use polylogue_kafka::session::Listener;
    for (host_name, port) in [("127.0.0.1", 9_092), ("::1", 19_092), ("outside.example", 443)] {
        let mut host = Host::new();
        let listener = Arc::new(Listener { host: text(host_name), port });
        host.session = Session::new(SessionInit { listener, ..init(1, Arc::default()) }, host.now);
        let response = host.ask(9, &MetadataRequest { topics: None, ..MetadataRequest::default() });
        let broker = &response.brokers[0];
        assert_eq!((&*broker.host, broker.port), (host_name, i32::from(port)));
        host.topics.add(9, "__consumer_offsets", 1, TopicConfig::default());
        let request = FindCoordinatorRequest { key: text("g"), ..FindCoordinatorRequest::default() };
        let response = host.ask(1, &request);
        assert_eq!((&*response.host, response.port), (host_name, i32::from(port)));
    }
}

#[test]
fn mistake_22_a_topic_that_was_created_again_is_another_topic() {
    let mut host = Host::new();
    let session = host.send(13, &FetchRequest { session_epoch: 0, ..fetch(13, topic_id(1), 0) });
    let (token, Ask::Read(_)) = host.asked_one() else { panic!() };
    let some = ReadData { chunks: vec![Chunk::Bytes(batch(&[b"x"]))], high_watermark: Offset(1), log_start: Offset(0) };
    host.reply(token, Reply::Read(vec![Ok(some)]));
    let (correlation, response) = host.response_to::<FetchRequest>(13);
    assert_eq!(correlation, session);
    let id = response.session_id;

    host.topics.add(8, "a", 3, TopicConfig::default());
    // By the old id: in a session, in a fetch, in a produce, in metadata.
    let go_on = FetchRequest { session_id: id, session_epoch: 1, topics: vec![], ..fetch(13, topic_id(1), 0) };
    let response = host.ask(13, &go_on);
    assert_eq!(response.responses[0].topic_id, topic_id(1));
    assert_eq!(code(response.responses[0].partitions[0].error_code), ErrorCode::UnknownTopicId);
    let response = host.ask(13, &fetch(13, topic_id(1), 0));
    assert_eq!(code(response.responses[0].partitions[0].error_code), ErrorCode::UnknownTopicId);
    let mut old = produce(-1, batch(&[b"x"]));
    (old.topic_data[0].name, old.topic_data[0].topic_id) = (text(""), topic_id(1));
    let response = host.ask(13, &old);
    assert_eq!(code(response.responses[0].partition_responses[0].error_code), ErrorCode::UnknownTopicId);
    let by_id = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic { name: None, topic_id: topic_id(1) }]),
        ..MetadataRequest::default()
    };
    assert_eq!(code(host.ask(12, &by_id).topics[0].error_code), ErrorCode::UnknownTopicId);
    // By the new id it succeeds.
    old.topic_data[0].topic_id = topic_id(8);
    host.send(13, &old);
    assert!(matches!(host.asked_one().1, Ask::Append(_)));
}

#[test]
fn mistake_24_headers_survive_in_number_order_and_nullness() {
    let headers: [(&[u8], Option<&[u8]>); 4] =
        [(b"k", Some(b"1")), (b"k", Some(b"2")), (b"a", None), (b"k", Some(b""))];
    let mut builder = BatchBuilder::new();
    let record = NewRecord { timestamp: START_MS, key: None, value: None, headers: &headers };
    builder.push(&record).unwrap();
    let sent = builder.build().unwrap();
    let reported = |bytes: &Bytes| -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut all = records(bytes, 1 << 20).unwrap();
        let record = all.next().unwrap().unwrap();
        assert!(record.key.is_none() && record.value.is_none());
        record.headers.iter().map(|(key, value)| (key.to_vec(), value.map(|v| v.to_vec()))).collect()
    };
    let expected: Vec<_> = headers.iter().map(|(k, v)| (k.to_vec(), v.map(<[u8]>::to_vec))).collect();
    assert_eq!(stored(&mut Host::new(), sent.clone()), sent);
    for config in [
        TopicConfig { compression: Compression::Zstd(3), ..TopicConfig::default() },
        TopicConfig { timestamp_kind: TimestampKind::LogAppend, ..TopicConfig::default() },
    ] {
        assert_eq!(reported(&stored(&mut Host::with_topic(config), sent.clone())), expected);
    }
}

#[test]
fn mistake_25_a_topic_that_is_named_twice_is_created_not_once() {
    let mut host = Host::new();
    let topics = vec![topic("x"), topic("y"), topic("x"), topic("x")];
    host.send(5, &CreateTopicsRequest { topics, ..CreateTopicsRequest::default() });
    let (token, Ask::CreateTopics(asked)) = host.asked_one() else { panic!() };
    assert_eq!(asked.topics.iter().map(|t| &*t.name).collect::<Vec<_>>(), ["y"]);
    let y = host.topics.add(9, "y", 1, TopicConfig::default());
    host.reply(token, Reply::CreateTopics(vec![Ok(CreatedTopic { topic: y })]));
    let response = host.response::<CreateTopicsRequest>(5);
    let rows: Vec<_> = response.topics.iter().map(|row| (&*row.name, code(row.error_code))).collect();
    assert_eq!(rows, [("y", ErrorCode::None), ("x", ErrorCode::InvalidRequest)]);
}

#[test]
fn mistake_26_timestamps_may_lie_far_apart_or_be_absent() {
    let day = 24 * 3_600_000;
    for timestamps in [vec![START_MS - 30 * day, START_MS], vec![-1, -1], vec![START_MS, -1], vec![0]] {
        let sent = timed(BatchBuilder::new(), &timestamps);
        assert_eq!(stored(&mut Host::new(), sent.clone()), sent, "{timestamps:?}");
    }
}

#[test]
fn mistake_27_what_members_say_is_carried_as_it_is() {
    use polylogue_kafka_codec::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
    use polylogue_kafka_groups::command::GroupCommand;
    let metadata = Bytes::from_static(&[0, 1, 0xff, 0, 0x80]);
    let protocol = |name: &str| JoinGroupRequestProtocol { name: text(name), metadata: metadata.clone() };
    let mut host = Host::new();
    let protocols = vec![protocol("mine"), protocol("range")];
    host.send(2, &JoinGroupRequest { group_id: text("g"), protocols, ..JoinGroupRequest::default() });
    let (_, Ask::Machine(_, command)) = host.asked_one() else { panic!() };
    let GroupCommand::Join(join) = *command.downcast::<GroupCommand>().unwrap() else { panic!() };
    let reported: Vec<_> = join.protocols.iter().map(|p| (&*p.name, p.metadata.clone())).collect();
    assert_eq!(reported, [("mine", metadata.clone()), ("range", metadata)]);
}
