//! Fetch sessions (KIP-227).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_api::{ReadData, Reply, Request as Ask};
use polylogue_kafka::session::Session;
use polylogue_kafka::settings::KafkaSettings;
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_codec::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic};
use polylogue_types::{Chunk, Offset, TopicId};
use session_host::{Host, batch, init, partition_id, text, topic_id};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Content by topic number and partition: high watermark, and whether there are messages.
type Log = BTreeMap<(u8, u32), (u64, bool)>;

fn topic(version: i16, number: u8, wants: &[(i32, i64)]) -> FetchTopic {
    let name = if number == 1 { "a" } else { "b" };
    let partition = |(partition, offset): &(i32, i64)| FetchPartition {
        partition: *partition,
        fetch_offset: *offset,
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    };
    FetchTopic {
        topic: text(if version >= 13 { "" } else { name }),
        topic_id: if version >= 13 { topic_id(number) } else { TopicId::ZERO },
        partitions: wants.iter().map(partition).collect(),
    }
}

fn request(session: (i32, i32), topics: Vec<FetchTopic>) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_id: session.0,
        session_epoch: session.1,
        topics,
        ..FetchRequest::default()
    }
}

/// Sends a fetch, answered by a broker with this `log`.
fn fetch(host: &mut Host, version: i16, request: &FetchRequest, log: &Log) -> FetchResponse {
    host.send(version, request);
    for (token, asked) in host.asked() {
        let Ask::Read(read) = asked else { panic!("{asked:?}") };
        let results = read.parts.iter().map(|part| {
            let key = log.iter().find(|((n, p), _)| partition_id(*n, *p) == part.partition);
            let (high_watermark, full) = key.map_or((0, false), |(_, state)| *state);
            let chunks = if full { vec![Chunk::Bytes(batch(&[b"x"]))] } else { vec![] };
            Ok(ReadData { chunks, high_watermark: Offset(high_watermark), log_start: Offset(0) })
        });
        let results = results.collect();
        host.reply(token, Reply::Read(results));
    }
    host.response::<FetchRequest>(version)
}

/// Returns topic number and partition of each row, in order.
fn reported(response: &FetchResponse) -> Vec<(u8, i32)> {
    let number = |topic: &str, id: TopicId| if topic == "a" || id == topic_id(1) { 1 } else { 2 };
    let topics = response.responses.iter();
    topics.flat_map(|t| t.partitions.iter().map(|p| (number(&t.topic, t.topic_id), p.partition_index))).collect()
}

fn all(version: i16) -> Vec<FetchTopic> {
    vec![topic(version, 1, &[(0, 0), (1, 0)]), topic(version, 2, &[(0, 0)])]
}

/// Creates a session over `a`-0, `a`-1 and `b`-0.
fn begin(host: &mut Host, version: i16) -> i32 {
    let response = fetch(host, version, &request((0, 0), all(version)), &Log::new());
    assert_eq!(reported(&response), [(1, 0), (1, 1), (2, 0)]);
    assert!(response.session_id > 0);
    response.session_id
}

#[test]
fn only_what_has_changed_is_told() {
    for version in [7, 12, 13, 18] {
        let mut host = Host::new();
        let id = begin(&mut host, version);
        let mut log = Log::new();
        let next = |host: &mut Host, epoch, log: &Log| fetch(host, version, &request((id, epoch), vec![]), log);

        let response = next(&mut host, 1, &log);
        assert_eq!((response.error_code, response.session_id), (0, id));
        assert!(response.responses.is_empty(), "nothing new");
        // The high watermark has changed, without messages at the client's offset.
        log.insert((1, 1), (4, false));
        let response = next(&mut host, 2, &log);
        assert_eq!(reported(&response), [(1, 1)]);
        assert_eq!(response.responses[0].partitions[0].high_watermark, 4);
        assert!(next(&mut host, 3, &log).responses.is_empty());
        // Messages are always in the response.
        log.insert((2, 0), (4, true));
        assert_eq!(reported(&next(&mut host, 4, &log)), [(2, 0)]);
        assert_eq!(reported(&next(&mut host, 5, &log)), [(2, 0)]);
    }
}

#[test]
fn requests_change_the_session() {
    for version in [12, 13] {
        let mut host = Host::new();
        let id = begin(&mut host, version);
        // Another partition, another offset, and one less.
        let mut change = request((id, 1), vec![topic(version, 1, &[(2, 7), (0, 3)])]);
        change.forgotten_topics_data = vec![ForgottenTopic {
            topic: text(if version >= 13 { "" } else { "b" }),
            topic_id: if version >= 13 { topic_id(2) } else { TopicId::ZERO },
            partitions: vec![0, 5],
        }];
        host.send(version, &change);
        let (token, Ask::Read(read)) = host.asked_one() else { panic!() };
        let parts: Vec<_> = read.parts.iter().map(|part| (part.partition, part.offset)).collect();
        let part = |p, offset| (partition_id(1, p), Offset(offset));
        assert_eq!(parts, [part(0, 3), part(1, 0), part(2, 7)]);
        let nothing = || Ok(ReadData { chunks: vec![], high_watermark: Offset(0), log_start: Offset(0) });
        host.reply(token, Reply::Read((0..3).map(|_| nothing()).collect()));
        // A new partition is always in the response.
        assert_eq!(reported(&host.response::<FetchRequest>(version)), [(1, 2)]);
    }
}

/// A partition that returned data moves to the end, so that a small `max_bytes` serves each in turn.
#[test]
fn partitions_take_turns() {
    let mut host = Host::new();
    let id = begin(&mut host, 13);
    let order = |host: &mut Host, epoch, full: &[(u8, u32)]| {
        host.send(13, &request((id, epoch), vec![]));
        let (token, Ask::Read(read)) = host.asked_one() else { panic!() };
        let order: Vec<_> = read.parts.iter().map(|part| part.partition).collect();
        let results = order.iter().map(|partition| {
            let has = full.iter().any(|(n, p)| partition_id(*n, *p) == *partition);
            let chunks = if has { vec![Chunk::Bytes(batch(&[b"x"]))] } else { vec![] };
            Ok(ReadData { chunks, high_watermark: Offset(0), log_start: Offset(0) })
        });
        host.reply(token, Reply::Read(results.collect()));
        host.response::<FetchRequest>(13);
        order
    };
    let (a0, a1, b0) = (partition_id(1, 0), partition_id(1, 1), partition_id(2, 0));
    assert_eq!(order(&mut host, 1, &[(1, 0)]), [a0, a1, b0]);
    assert_eq!(order(&mut host, 2, &[(1, 1), (1, 0)]), [a1, b0, a0]);
    assert_eq!(order(&mut host, 3, &[]), [b0, a1, a0]);
}

#[test]
fn errors_are_told_until_they_have_gone() {
    let mut host = Host::new();
    let id = begin(&mut host, 12);
    let mut log = Log::new();
    log.insert((2, 0), (4, false));
    assert_eq!(reported(&fetch(&mut host, 12, &request((id, 1), vec![]), &log)), [(2, 0)]);
    let gone = host.topics.add(2, "b", 1, polylogue_api::TopicConfig::default());
    host.topics.remove("b");
    for epoch in 2..4 {
        let response = fetch(&mut host, 12, &request((id, epoch), vec![]), &log);
        assert_eq!(reported(&response), [(2, 0)]);
        let row = &response.responses[0].partitions[0];
        assert_eq!(row.error_code, ErrorCode::UnknownTopicOrPartition.code());
    }
    host.topics.add(2, "b", 1, (*gone.config).clone());
    let response = fetch(&mut host, 12, &request((id, 4), vec![]), &log);
    assert_eq!((reported(&response), response.responses[0].partitions[0].error_code), (vec![(2, 0)], 0));
    assert!(fetch(&mut host, 12, &request((id, 5), vec![]), &log).responses.is_empty());
}

#[test]
fn wrong_sessions() {
    let mut host = Host::new();
    let id = begin(&mut host, 12);
    let log = Log::new();
    let mut error = |session, version| {
        let response = fetch(&mut host, version, &request(session, vec![]), &log);
        assert!(response.responses.is_empty() && response.session_id == 0);
        ErrorCode::from_code(response.error_code).unwrap()
    };
    assert_eq!(error((id ^ 1, 1), 12), ErrorCode::FetchSessionIdNotFound);
    assert_eq!(error((0, 1), 12), ErrorCode::FetchSessionIdNotFound);
    assert_eq!(error((id, 2), 12), ErrorCode::InvalidFetchSessionEpoch);
    assert_eq!(error((id, -7), 12), ErrorCode::InvalidFetchSessionEpoch);
    assert_eq!(error((id, 1), 13), ErrorCode::FetchSessionTopicIdError);
    // None of these has advanced the epoch.
    assert_eq!(fetch(&mut host, 12, &request((id, 1), vec![]), &log).error_code, 0);
    // A repeated request.
    let twice = fetch(&mut host, 12, &request((id, 1), vec![]), &log);
    assert_eq!(twice.error_code, ErrorCode::InvalidFetchSessionEpoch.code());
}

#[test]
fn full_requests_end_sessions() {
    let log = Log::new();
    for (epoch, begins) in [(0, true), (-1, false)] {
        let mut host = Host::new();
        let id = begin(&mut host, 12);
        let response = fetch(&mut host, 12, &request((id, epoch), all(12)), &log);
        assert_eq!(reported(&response), [(1, 0), (1, 1), (2, 0)]);
        assert_eq!(response.session_id > 0, begins);
        assert_ne!(response.session_id, id);
        let old = fetch(&mut host, 12, &request((id, 1), vec![]), &log);
        assert_eq!(old.error_code, ErrorCode::FetchSessionIdNotFound.code());
    }
}

#[test]
fn a_session_without_partitions_is_over() {
    let mut host = Host::new();
    let id = begin(&mut host, 12);
    let mut forget = request((id, 1), vec![]);
    let forgotten = |name, partitions| ForgottenTopic { topic: text(name), partitions, ..ForgottenTopic::default() };
    forget.forgotten_topics_data = vec![forgotten("a", vec![0, 1]), forgotten("b", vec![0])];
    let response = fetch(&mut host, 12, &forget, &Log::new());
    assert_eq!((response.error_code, response.session_id), (0, 0));
    let after = fetch(&mut host, 12, &request((id, 2), vec![]), &Log::new());
    assert_eq!(after.error_code, ErrorCode::FetchSessionIdNotFound.code());
}

#[test]
fn a_session_may_begin_empty() {
    let mut host = Host::new();
    let id = fetch(&mut host, 13, &request((0, 0), vec![]), &Log::new()).session_id;
    assert!(id > 0);
    let response = fetch(&mut host, 13, &request((id, 1), all(13)), &Log::new());
    assert_eq!((reported(&response).len(), response.session_id), (3, id));
}

/// Kafka has one cache for all connections; here a session belongs to its connection, and another one must create a
/// new session, as after an eviction.
#[test]
fn a_session_belongs_to_its_connection() {
    let mut host = Host::new();
    let id = begin(&mut host, 12);
    host.session = Session::new(init(2, Arc::default()), host.now);
    let response = fetch(&mut host, 12, &request((id, 1), vec![]), &Log::new());
    assert_eq!(response.error_code, ErrorCode::FetchSessionIdNotFound.code());
    assert_ne!(begin(&mut host, 12), id);
}

#[test]
fn without_room_there_are_no_sessions() {
    let mut host = Host::with(KafkaSettings { fetch_session_partitions_max: 4, ..KafkaSettings::default() });
    let budget = Arc::<polylogue_kafka::session::FetchBudget>::default();
    host.session = Session::new(init(1, Arc::clone(&budget)), host.now);
    let id = begin(&mut host, 12);
    assert_eq!((budget.sessions(), budget.partitions()), (1, 3));
    // Another connection has no budget for three more.
    let mut other = Host::with(host.settings.clone());
    other.session = Session::new(init(2, Arc::clone(&budget)), other.now);
    let response = fetch(&mut other, 12, &request((0, 0), all(12)), &Log::new());
    assert_eq!((reported(&response).len(), response.session_id), (3, 0));
    // Nor this one for two.
    let grown = request((id, 1), vec![topic(12, 1, &[(2, 0)]), topic(12, 2, &[(1, 0)])]);
    let response = fetch(&mut host, 12, &grown, &Log::new());
    assert_eq!(response.error_code, ErrorCode::FetchSessionIdNotFound.code());
    assert_eq!((budget.sessions(), budget.partitions()), (0, 0));
    // That frees budget until the connection is closed.
    begin(&mut host, 12);
    drop(host.session.on_closed());
    assert_eq!((budget.sessions(), budget.partitions()), (0, 0));
}

/// A second fetch of a session waits for the first, so that epochs and responses stay in order.
#[test]
fn fetches_of_one_connection_take_turns() {
    let mut host = Host::new();
    let id = begin(&mut host, 12);
    let mut patient = request((id, 1), vec![]);
    patient.max_wait_ms = 500;
    host.send(12, &patient);
    host.send(12, &request((id, 2), vec![]));
    let (token, Ask::Read(read)) = host.asked_one() else { panic!() };
    let nothing = || Ok(ReadData { chunks: vec![], high_watermark: Offset(0), log_start: Offset(0) });
    host.reply(token, Reply::Read(read.parts.iter().map(|_| nothing()).collect()));
    let (_, Ask::Watch(_)) = host.asked_one() else { panic!() };
    host.pass(500);
    let asked = host.asked();
    assert!(matches!(asked[0].1, Ask::Unwatch(_)));
    assert!(matches!(asked[1].1, Ask::Read(_)));
    assert_eq!(host.response_to::<FetchRequest>(12).1.error_code, 0);
}

/// Regression test: the budget counts partitions, and names of any length were stored: 200,000 of 30 KiB each were 6 GB.
#[test]
fn names_that_no_topic_can_have_are_answered_and_not_remembered() {
    let named = |len: usize, partitions: &[i32]| {
        let wants: Vec<_> = partitions.iter().map(|partition| (*partition, 0)).collect();
        FetchTopic { topic: text(&"x".repeat(len)), ..topic(12, 1, &wants) }
    };
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    let codes = |response: &FetchResponse| -> Vec<_> {
        response.responses.iter().map(|t| (t.topic.len(), t.partitions.len(), t.partitions[0].error_code)).collect()
    };
    let mut host = Host::new();
    let budget = Arc::<polylogue_kafka::session::FetchBudget>::default();
    host.session = Session::new(init(1, Arc::clone(&budget)), host.now);
    let long = 30_000;
    let first = vec![named(long, &[0, 1]), named(249, &[0])];
    let response = fetch(&mut host, 12, &request((0, 0), first), &Log::new());
    assert_eq!(codes(&response), [(long, 2, unknown), (249, 1, unknown)]);
    assert_eq!(budget.partitions(), 1);
    let id = response.session_id;
    let more = request((id, 1), vec![named(250, &[0]), named(long, &[7, 8])]);
    let response = fetch(&mut host, 12, &more, &Log::new());
    assert_eq!(codes(&response), [(249, 1, unknown), (250, 1, unknown), (long, 2, unknown)]);
    assert_eq!((response.session_id, budget.partitions()), (id, 1));
    let response = fetch(&mut host, 12, &request((id, 2), vec![]), &Log::new());
    assert_eq!(codes(&response), [(249, 1, unknown)]);
}
