//! The order of requests and responses, frames, idle connections, and closing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use bytes::BytesMut;
use polylogue_api::{Appended, CreatedTopic, Reply, Request as Ask, Unavailable};
use polylogue_kafka::session::{CloseReason, Session};
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::DecodeError;
use polylogue_kafka_codec::api_versions::ApiVersionsRequest;
use polylogue_kafka_codec::create_topics::{CreatableTopic, CreateTopicsRequest};
use polylogue_kafka_codec::heartbeat::HeartbeatRequest;
use polylogue_kafka_codec::init_producer_id::InitProducerIdRequest;
use polylogue_kafka_codec::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use polylogue_kafka_codec::metadata::MetadataRequest;
use polylogue_kafka_codec::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use polylogue_kafka_codec::{ApiKey, Records, Request};
use polylogue_types::{Offset, ProducerId};
use session_host::{Host, batch, frame, requests, text};

fn produce(acks: i16) -> ProduceRequest {
    ProduceRequest {
        acks,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: text("a"),
            partition_data: vec![PartitionProduceData { index: 0, records: Some(Records::from(batch(&[b"x"]))) }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

fn appended(offset: u64) -> Reply {
    Reply::Append(vec![Ok(Appended {
        base_offset: Offset(offset),
        log_start: Offset(0),
        duplicate: false,
        max_timestamp: -1,
    })])
}

fn allocate() -> InitProducerIdRequest {
    InitProducerIdRequest { transactional_id: None, ..InitProducerIdRequest::default() }
}

fn list_offsets() -> ListOffsetsRequest {
    let partitions = vec![ListOffsetsPartition { timestamp: -1, ..ListOffsetsPartition::default() }];
    ListOffsetsRequest {
        topics: vec![ListOffsetsTopic { name: text("a"), partitions }],
        ..ListOffsetsRequest::default()
    }
}

#[test]
fn answers_leave_in_the_order_of_their_requests() {
    let mut host = Host::new();
    let first = host.send(9, &produce(-1));
    let second = host.send(4, &allocate());
    let third = host.send(9, &produce(-1));
    let fourth = host.send(0, &ApiVersionsRequest::default());
    let asked: Vec<_> = host.asked().into_iter().map(|(token, _)| token).collect();
    assert_eq!(asked.len(), 3);

    host.reply(asked[2], appended(1));
    host.reply(asked[1], Reply::ProducerId(Ok(ProducerId(5))));
    host.no_response();
    host.reply(asked[0], appended(0));

    let (correlation, response) = host.response_to::<ProduceRequest>(9);
    assert_eq!((correlation, response.responses[0].partition_responses[0].base_offset), (first, 0));
    let (correlation, response) = host.response_to::<InitProducerIdRequest>(4);
    assert_eq!((correlation, response.producer_id), (second, 5));
    let (correlation, response) = host.response_to::<ProduceRequest>(9);
    assert_eq!((correlation, response.responses[0].partition_responses[0].base_offset), (third, 1));
    let (correlation, response) = host.response_to::<ApiVersionsRequest>(0);
    assert_eq!((correlation, response.error_code), (fourth, 0));
}

#[test]
fn appends_are_in_work_together_and_in_order() {
    let mut host = Host::new();
    for _ in 0..5 {
        host.send(9, &produce(-1));
    }
    let asked = host.asked();
    assert_eq!(asked.len(), 5);
    assert!(asked.iter().all(|(_, request)| matches!(request, Ask::Append(_))));
    assert!(asked.is_sorted_by_key(|(token, _)| *token));
}

/// A client that requests offsets after its own produce sees the messages, as with a broker that processes one request at a
/// time.
#[test]
fn a_read_waits_for_the_writes_before_it() {
    let mut host = Host::new();
    host.send(9, &produce(-1));
    host.send(4, &list_offsets());
    let (token, _) = host.asked_one();
    host.reply(token, appended(0));
    let (_, request) = host.asked_one();
    assert!(matches!(request, Ask::FindOffsets(_)), "{request:?}");
}

/// A request that would wait in the session is better left in the socket, where it takes no memory.
#[test]
fn the_server_is_told_what_could_not_start() {
    let mut host = Host::new();
    let starts = |host: &Host, frame: &[u8]| host.session.starts_at_once(frame);
    let (fetch, metadata) = (frame(12, 1, &requests::fetch(12)), frame(9, 1, &requests::metadata(9)));
    assert!(starts(&host, &fetch));
    host.send(12, &requests::fetch(12));
    assert!(host.session.waiting_bytes(0).is_some_and(|bytes| bytes < 1_000), "{:?}", host.session.waiting_bytes(0));
    assert!(!starts(&host, &fetch), "one fetch at a time");
    assert!(starts(&host, &metadata) && starts(&host, &fetch[..5]), "no one knows what comes");
    host.session.ask_for_room();
    assert!(!starts(&host, &metadata), "its answer may be long, and is made when it is the oldest");
    assert!(starts(&host, &frame(4, 1, &allocate())));
}

#[test]
fn a_produce_waits_for_the_topic_before_it() {
    let mut host = Host::new();
    let new =
        CreatableTopic { name: text("new"), num_partitions: 1, replication_factor: 1, ..CreatableTopic::default() };
    host.send(5, &CreateTopicsRequest { topics: vec![new], ..CreateTopicsRequest::default() });
    let mut request = produce(-1);
    request.topic_data[0].name = text("new");
    host.send(9, &request);
    let (token, _) = host.asked_one();
    let topic = host.topics.add(9, "new", 1, polylogue_api::TopicConfig::default());
    host.reply(token, Reply::CreateTopics(vec![Ok(CreatedTopic { topic })]));
    let (_, request) = host.asked_one();
    assert!(matches!(request, Ask::Append(_)), "{request:?}");
}

#[test]
fn no_more_than_sixteen_are_in_work() {
    let mut host = Host::new();
    for _ in 0..20 {
        host.send(4, &allocate());
    }
    assert_eq!((host.session.inflight(), host.asked().len()), (16, 16));
    assert!(!host.wants_input());
    let left = host.input.len();
    assert!(left > 0);
    // Taking one response frees a slot for one request.
    host.reply(0, Reply::ProducerId(Ok(ProducerId(1))));
    assert_eq!(host.asked().len(), 0);
    host.take_output();
    assert_eq!(host.asked().len(), 1);
    assert!(host.input.len() < left);
}

/// A peer that sends requests and does not read costs one response more than the limit.
#[test]
fn answers_that_nobody_takes_hold_up_further_requests() {
    let mut host = Host::new();
    for number in 0..50 {
        host.topics.add(10 + number, &format!("many-{number}"), 1_000, polylogue_api::TopicConfig::default());
    }
    let all = frame(9, 1, &MetadataRequest { topics: None, ..MetadataRequest::default() });
    host.feed(&all.repeat(16));
    for left in (0..16).rev() {
        let mut out = Vec::new();
        assert!(host.session.poll_output(&mut out));
        let bytes: usize = out.iter().map(polylogue_types::Chunk::len).sum();
        assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}: one response, which is more than the bound");
        assert_eq!(host.session.inflight(), left);
        host.pump();
    }
}

#[test]
fn a_request_that_comes_byte_by_byte() {
    let mut host = Host::new();
    let bytes = frame(0, 9, &ApiVersionsRequest::default());
    for (at, byte) in bytes.iter().enumerate() {
        assert_eq!(host.response_frame(), None);
        let known = (at >= 6).then_some(bytes.len());
        assert_eq!(host.session.next_frame().map(|next| next.len), known, "after {at} bytes");
        host.feed(&[*byte]);
    }
    assert_eq!(host.session.next_frame(), None);
    assert_eq!(host.response_to::<ApiVersionsRequest>(0).0, 9);
}

#[test]
fn a_frame_that_is_too_long_is_refused_by_its_prefix() {
    for len in [i32::MAX, (100 << 20) + 1, -1, i32::MIN] {
        let mut host = Host::new();
        host.feed(&len.to_be_bytes());
        let CloseReason::FrameLength(DecodeError::FrameLength { len: reported, max }) = host.close_reason().unwrap()
        else {
            panic!("{:?}", host.session)
        };
        assert_eq!((*reported, *max), (len, 100 << 20));
        assert_eq!(host.session.next_frame(), None);
        assert!(!host.wants_input());
    }
}

/// A decoded list needs many times its encoded size, so that only payload may be long, and lists need a larger
/// permit.
#[test]
fn a_request_without_payload_may_not_be_as_long_as_one_with_it() {
    let prefix = |key: i16, len: i32| [len.to_be_bytes().as_slice(), &key.to_be_bytes()].concat();
    let next = |key: i16, len: usize| {
        let mut host = Host::new();
        host.feed(&prefix(key, i32::try_from(len).unwrap()));
        assert_eq!(host.session.next_frame().is_none(), host.close_reason().is_some());
        host.session.next_frame().map(|next| (next.len, next.memory))
    };
    let mib = 1 << 20;
    assert_eq!(next(ApiKey::Produce.code(), 90 * mib), Some((90 * mib + 4, 90 * mib + 4)));
    assert_eq!(next(ApiKey::Fetch.code(), 2 * mib), Some((2 * mib + 4, 128 * mib + 4)));
    assert_eq!(next(ApiKey::Fetch.code(), 2 * mib + 1), None);
    assert_eq!(next(ApiKey::SyncGroup.code(), 8 * mib), Some((8 * mib + 4, 192 * mib + 4)));
    assert_eq!(next(ApiKey::SyncGroup.code(), 8 * mib + 1), None);
    assert_eq!(next(ApiKey::Heartbeat.code(), mib), None);
    assert_eq!(next(1_234, 100), Some((104, 404)));
    assert_eq!(next(1_234, mib), None);
}

#[test]
fn a_frame_that_is_too_short_to_say_anything() {
    for frame in [&[0, 0, 0, 0][..], &[0, 0, 0, 1, 7]] {
        let mut host = Host::new();
        host.feed(frame);
        assert!(matches!(host.close_reason(), Some(CloseReason::Header(DecodeError::UnexpectedEnd { .. }))));
    }
}

#[test]
fn a_silent_connection_ends_and_costs_little() {
    let mut host = Host::new();
    assert_eq!(host.deadline_in(), Some(600_000));
    host.pass(599_999);
    assert_eq!(host.close_reason(), None);
    host.pass(1);
    assert_eq!(host.close_reason(), Some(&CloseReason::Idle { idle_ms: 600_000 }));
    assert_eq!(host.deadline_in(), None);
    assert!(size_of::<Session>() <= 512);
}

#[test]
fn a_byte_a_second_is_not_activity() {
    let mut host = Host::new();
    host.pass(300_000);
    let bytes = frame(9, 1, &produce(-1));
    // The first byte of a frame counts as activity; the others do not.
    for byte in &bytes[..60] {
        host.feed(&[*byte]);
        host.pass(10_000);
    }
    assert!(matches!(host.close_reason(), Some(CloseReason::Idle { .. })));
}

#[test]
fn a_request_in_work_keeps_the_connection_and_an_answer_that_is_not_taken_does_not() {
    let mut host = Host::new();
    host.send(4, &HeartbeatRequest::default());
    assert_eq!(host.deadline_in(), None);
    host.pass(3_600_000);
    assert_eq!(host.session.close_reason(), None);
    let (token, _) = host.asked_one();
    host.reply(token, Reply::Machine(Err(Unavailable::Busy)));
    host.pass(599_999);
    assert_eq!(host.session.close_reason(), None);
    host.pass(1);
    assert!(matches!(host.session.close_reason(), Some(CloseReason::Idle { .. })));
}

#[test]
fn what_came_before_a_bad_request_is_answered_first() {
    let mut host = Host::new();
    host.send(9, &produce(-1));
    let mut bad = frame(9, 2, &produce(-1));
    bad[6..8].copy_from_slice(&99_i16.to_be_bytes());
    host.feed(&bad);
    host.feed(&frame(0, 3, &ApiVersionsRequest::default()));
    assert_eq!(host.close_reason(), None);
    let (token, _) = host.asked_one();
    host.reply(token, appended(0));
    assert_eq!(host.response_to::<ProduceRequest>(9).0, 1);
    assert_eq!(host.close_reason(), Some(&CloseReason::Unsupported { api: ApiKey::Produce, version: 99 }));
    // Nothing after it is answered.
    host.no_response();
    assert!(host.asked().is_empty());
}

#[test]
fn versions_and_apis_that_are_not_served_end_the_connection() {
    for (key, version) in [(ApiKey::Produce, 2_i16), (ApiKey::Produce, 14), (ApiKey::Fetch, 3), (ApiKey::EndTxn, 1)] {
        let mut host = Host::new();
        let mut bytes = frame(9, 1, &produce(-1));
        bytes[4..6].copy_from_slice(&key.code().to_be_bytes());
        bytes[6..8].copy_from_slice(&version.to_be_bytes());
        host.feed(&bytes);
        assert_eq!(host.close_reason(), Some(&CloseReason::Unsupported { api: key, version }));
    }
    let mut host = Host::new();
    let mut bytes = frame(9, 1, &produce(-1));
    bytes[4..6].copy_from_slice(&1_234_i16.to_be_bytes());
    host.feed(&bytes);
    assert_eq!(host.close_reason(), Some(&CloseReason::Header(DecodeError::UnknownApiKey { key: 1_234 })));
}

#[test]
fn a_body_that_ends_early_ends_the_connection() {
    let mut host = Host::new();
    let whole = frame(9, 1, &produce(-1));
    let cut = i32::try_from(whole.len() - 4 - 10).unwrap();
    let mut bytes = whole[..whole.len() - 10].to_vec();
    bytes[..4].copy_from_slice(&cut.to_be_bytes());
    host.feed(&bytes);
    let Some(CloseReason::Body { api: ApiKey::Produce, version: 9, .. }) = host.close_reason() else {
        panic!("{:?}", host.session)
    };
    assert!(host.asked().is_empty());
}

#[test]
fn a_reply_that_answers_something_else_ends_the_connection() {
    let mut host = Host::new();
    host.send(9, &produce(-1));
    let (token, _) = host.asked_one();
    host.reply(token, Reply::ProducerId(Ok(ProducerId(1))));
    assert_eq!(host.close_reason(), Some(&CloseReason::Reply { api: ApiKey::Produce }));
    // A wrong number of results is an error too.
    let mut host = Host::new();
    host.send(9, &produce(-1));
    let (token, _) = host.asked_one();
    host.reply(token, Reply::Append(vec![]));
    assert_eq!(host.close_reason(), Some(&CloseReason::Reply { api: ApiKey::Produce }));
}

#[test]
fn a_connection_that_is_gone_says_what_to_forget() {
    let mut host = Host::new();
    host.send(9, &produce(-1));
    host.send(4, &HeartbeatRequest::default());
    let asked: Vec<_> = host.asked().into_iter().map(|(token, _)| token).collect();
    // The broker never got this one.
    host.send(4, &allocate());
    let abandoned = host.session.on_closed();
    assert_eq!(abandoned.requests, [asked[0]]);
    assert_eq!(abandoned.callers, [asked[1]]);
    assert!(abandoned.watches.is_empty());
}

#[test]
fn replies_that_nobody_waits_for_are_dropped() {
    let mut host = Host::new();
    host.reply(99, appended(0));
    host.changed(99);
    assert_eq!(host.close_reason(), None);
    host.no_response();
}

#[test]
fn settings_bound_the_requests_in_work() {
    let mut host = Host::with(KafkaSettings { inflight_requests_max: 1, ..KafkaSettings::default() });
    host.send(4, &allocate());
    host.send(4, &allocate());
    assert_eq!(host.asked().len(), 1);
    assert_eq!(host.session.inflight(), 1);
}

/// Complete frames are split off the input without a copy.
#[test]
fn a_payload_is_not_copied() {
    let mut host = Host::new();
    let bytes = frame(9, 1, &produce(-1));
    host.input = BytesMut::from(bytes.as_slice());
    let range = host.input.as_ptr_range();
    host.pump();
    let (_, Ask::Append(append)) = host.asked_one() else { panic!() };
    assert!(range.contains(&append.entries[0].bytes.as_ptr()));
    assert_eq!(append.entries[0].bytes, batch(&[b"x"]));
    assert_eq!(ProduceRequest::API_KEY, ApiKey::Produce);
}
