//! Fetch: long polls, limits, errors, and message data.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use bytes::Bytes;
use polylogue_api::{
    Compression, EpochEnd, EpochEndQuery, ReadData, ReadError, ReadPart, ReadRequest, Reply, Request as Ask, Token,
    TopicConfig,
};
use polylogue_kafka_codec::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState,
};
use polylogue_kafka_codec::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use polylogue_kafka_codec::{ErrorCode, Records};
use polylogue_record::compress::Codec;
use polylogue_record::kafka::BatchBuilder;
use polylogue_types::{Chunk, FileRange, Offset, RangeSource, TopicId};
use session_host::broker::Broker;
use session_host::{EPOCH, Host, NODE, batch, built, partition_id, text, topic_id};
use std::sync::Arc;

/// A request for partitions of `a` from these offsets.
fn request(version: i16, wants: &[(i32, i64)]) -> FetchRequest {
    let (topic, id) = if version >= 13 { (text(""), topic_id(1)) } else { (text("a"), TopicId::ZERO) };
    let partition = |(partition, offset): &(i32, i64)| FetchPartition {
        partition: *partition,
        fetch_offset: *offset,
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    };
    FetchRequest {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 50 << 20,
        topics: vec![FetchTopic { topic, topic_id: id, partitions: wants.iter().map(partition).collect() }],
        ..FetchRequest::default()
    }
}

fn read(host: &mut Host) -> (Token, ReadRequest) {
    match host.asked_one() {
        (token, Ask::Read(read)) => (token, read),
        other => panic!("{other:?}"),
    }
}

fn watch(host: &mut Host) -> (Token, Vec<(polylogue_types::PartitionId, Offset)>) {
    match host.asked_one() {
        (token, Ask::Watch(watch)) => (token, watch.seen),
        other => panic!("{other:?}"),
    }
}

/// Fires the watch, which must then be ended for all its partitions.
fn woken(host: &mut Host, watch: Token) {
    host.changed(watch);
    let Some((_, Ask::Unwatch(ended))) = host.session.poll_request() else { panic!("the watch stays") };
    assert_eq!(ended, watch);
}

fn data(bytes: &Bytes, high_watermark: u64) -> Result<ReadData, ReadError> {
    let chunks = if bytes.is_empty() { vec![] } else { vec![Chunk::Bytes(bytes.clone())] };
    Ok(ReadData { chunks, high_watermark: Offset(high_watermark), log_start: Offset(2) })
}

fn nothing(high_watermark: u64) -> Result<ReadData, ReadError> {
    data(&Bytes::new(), high_watermark)
}

fn rows(response: &FetchResponse) -> Vec<(i32, ErrorCode)> {
    let row = |row: &PartitionData| (row.partition_index, ErrorCode::from_code(row.error_code).unwrap());
    response.responses.iter().flat_map(|topic| &topic.partitions).map(row).collect()
}

fn only(response: FetchResponse) -> PartitionData {
    assert_eq!((response.error_code, response.responses.len()), (0, 1));
    let mut topic = response.responses.into_iter().next().unwrap();
    assert_eq!(topic.partitions.len(), 1);
    topic.partitions.remove(0)
}

/// Returns the response to a fetch that needs no broker, or one that returns nothing.
fn answered(host: &mut Host, version: i16, request: &FetchRequest) -> FetchResponse {
    host.send(version, request);
    for (token, asked) in host.asked() {
        if let Ask::Read(read) = asked {
            host.reply(token, Reply::Read(read.parts.iter().map(|_| nothing(9)).collect()));
        }
    }
    host.response::<FetchRequest>(version)
}

#[test]
fn what_is_there_is_answered_at_once() {
    let mut host = Host::new();
    let batch = batch(&[b"x"]);
    host.send(12, &request(12, &[(2, 7), (0, 0)]));
    let (token, read) = read(&mut host);
    let part = |p, offset| ReadPart { partition: partition_id(1, p), offset: Offset(offset), bytes_max: 1 << 20 };
    assert_eq!(read.parts, [part(2, 7), part(0, 0)]);
    assert_eq!((read.bytes_max, read.at_least_one), (50 << 20, true));
    host.reply(token, Reply::Read(vec![nothing(7), data(&batch, 3)]));
    let response = host.response::<FetchRequest>(12);
    assert_eq!(rows(&response), [(2, ErrorCode::None), (0, ErrorCode::None)]);
    let [empty, full] = response.responses[0].partitions.as_slice() else { panic!() };
    // No records is an empty field, never null: clients fail on null.
    assert_eq!(empty.records, Some(Records::new()));
    assert_eq!(full.records.as_ref().unwrap().as_bytes(), Some(&batch));
    assert_eq!((full.high_watermark, full.last_stable_offset, full.log_start_offset), (3, 3, 2));
    assert!(host.asked().is_empty());
}

#[test]
fn a_long_poll_ends_when_something_comes() {
    let mut host = Host::new();
    host.send(12, &request(12, &[(0, 5), (1, 0)]));
    let (token, _) = read(&mut host);
    host.reply(token, Reply::Read(vec![nothing(5), nothing(0)]));
    host.no_response();
    let (token, seen) = watch(&mut host);
    assert_eq!(seen, [(partition_id(1, 0), Offset(5)), (partition_id(1, 1), Offset(0))]);
    assert_eq!(host.deadline_in(), Some(500));
    host.pass(120);
    assert_eq!(host.deadline_in(), Some(380));
    woken(&mut host, token);
    // Partitions of another shard report the same later.
    host.changed(token);
    let (token, again) = read(&mut host);
    assert_eq!(again.parts[0].offset, Offset(5));
    let batch = batch(&[b"new"]);
    host.reply(token, Reply::Read(vec![data(&batch, 6), nothing(0)]));
    let response = host.response::<FetchRequest>(12);
    assert_eq!(response.responses[0].partitions[0].records.as_ref().unwrap().as_bytes(), Some(&batch));
    assert_eq!(host.session.inflight(), 0);
}

#[test]
fn a_long_poll_ends_when_its_time_is_over() {
    let mut host = Host::new();
    host.send(12, &request(12, &[(0, 5)]));
    let (token, _) = read(&mut host);
    host.reply(token, Reply::Read(vec![nothing(5)]));
    let (watch, _) = watch(&mut host);
    host.pass(499);
    host.no_response();
    host.pass(1);
    // The watch is ended without another read.
    let (_, Ask::Unwatch(ended)) = host.asked_one() else { panic!() };
    assert_eq!(ended, watch);
    let row = only(host.response::<FetchRequest>(12));
    assert_eq!((row.error_code, row.high_watermark, row.records), (0, 5, Some(Records::new())));
    host.changed(watch);
    assert!(host.asked().is_empty());
}

#[test]
fn a_poll_that_must_not_wait() {
    let mut host = Host::new();
    let mut at_once = request(12, &[(0, 5)]);
    at_once.max_wait_ms = 0;
    only(answered(&mut host, 12, &at_once));
    at_once.max_wait_ms = -1;
    only(answered(&mut host, 12, &at_once));
    let mut content_with_nothing = request(12, &[(0, 5)]);
    content_with_nothing.min_bytes = 0;
    only(answered(&mut host, 12, &content_with_nothing));
    // More than the largest fetch.
    let mut contradiction = request(12, &[(0, 5)]);
    contradiction.max_bytes = 0;
    only(answered(&mut host, 12, &contradiction));
}

/// Regression test: a client that disappeared without closing its connection kept it and its watch for as long as requested: 25 days.
#[test]
fn no_poll_waits_for_ever() {
    let mut host = Host::new();
    let mut patient = request(12, &[(0, 5)]);
    patient.max_wait_ms = i32::MAX;
    host.send(12, &patient);
    let (token, _) = read(&mut host);
    host.reply(token, Reply::Read(vec![data(&Bytes::new(), 5)]));
    watch(&mut host);
    assert_eq!(host.deadline_in(), Some(300_000));
    host.pass(300_000);
    only(host.response::<FetchRequest>(12));
}

#[test]
fn a_poll_that_wants_much_collects_and_rests() {
    let mut host = Host::new();
    let batch = batch(&[&[1; 400]]);
    let mut greedy = request(12, &[(0, 0)]);
    greedy.min_bytes = 1_000;
    host.send(12, &greedy);
    let (token, _) = read(&mut host);
    host.reply(token, Reply::Read(vec![data(&batch, 1)]));
    let (token, _) = watch(&mut host);
    // Woken right after a read: it pauses instead of reading at each small append.
    woken(&mut host, token);
    host.changed(token);
    assert!(host.asked().is_empty());
    let rest = host.deadline_in().unwrap();
    assert!((1..=10).contains(&rest), "{rest}");
    host.pass(rest);
    let (token, _) = read(&mut host);
    host.reply(token, Reply::Read(vec![data(&[batch.clone(), batch.clone()].concat().into(), 2)]));
    host.no_response();
    let (watch, _) = watch(&mut host);
    // At the deadline everything is returned, though less than min_bytes.
    host.pass(500);
    let asked = host.asked();
    assert!(matches!(asked[0].1, Ask::Unwatch(ended) if ended == watch));
    assert!(matches!(asked[1].1, Ask::Read(_)));
    host.reply(asked[1].0, Reply::Read(vec![data(&batch, 2)]));
    assert_eq!(only(host.response::<FetchRequest>(12)).records.unwrap().as_bytes(), Some(&batch));
}

#[test]
fn a_poll_that_wants_much_is_answered_when_it_is_there() {
    let mut host = Host::new();
    let batch = batch(&[&[1; 1_000]]);
    let mut greedy = request(12, &[(0, 0), (1, 0)]);
    greedy.min_bytes = i32::try_from(2 * batch.len()).unwrap();
    host.send(12, &greedy);
    let (token, _) = read(&mut host);
    host.reply(token, Reply::Read(vec![data(&batch, 1), data(&batch, 1)]));
    assert_eq!(rows(&host.response::<FetchRequest>(12)).len(), 2);
}

#[test]
fn bounds_are_those_of_request_and_broker() {
    let mut host = Host::new();
    let mut huge = request(12, &[(0, 0)]);
    huge.max_bytes = i32::MAX;
    host.send(12, &huge);
    let (token, asked) = read(&mut host);
    assert_eq!(asked.bytes_max, 55 << 20);
    host.reply(token, Reply::Read(vec![data(&batch(&[b"x"]), 1)]));
    host.response::<FetchRequest>(12);
    // Negative limits count as zero; the first batch is returned anyway (KIP-74).
    let mut none = request(12, &[(0, 0)]);
    (none.max_bytes, none.topics[0].partitions[0].partition_max_bytes) = (-1, -1);
    host.send(12, &none);
    let (_, asked) = read(&mut host);
    assert_eq!((asked.bytes_max, asked.parts[0].bytes_max, asked.at_least_one), (0, 0, true));
}

#[test]
fn epochs() {
    for (known, expected) in [
        (-1, ErrorCode::None),
        (EPOCH, ErrorCode::None),
        (EPOCH - 1, ErrorCode::FencedLeaderEpoch),
        (EPOCH + 1, ErrorCode::UnknownLeaderEpoch),
    ] {
        let mut host = Host::new();
        let mut asked = request(16, &[(0, 0), (1, 0)]);
        asked.topics[0].partitions[0].current_leader_epoch = known;
        asked.min_bytes = 0;
        let response = answered(&mut host, 16, &asked);
        assert_eq!(rows(&response), [(0, expected), (1, ErrorCode::None)]);
        let row = &response.responses[0].partitions[0];
        let leader = (row.current_leader.leader_id, row.current_leader.leader_epoch);
        let fenced = expected == ErrorCode::FencedLeaderEpoch;
        assert_eq!(leader, if fenced { (NODE, EPOCH) } else { (-1, -1) });
        assert_eq!(response.node_endpoints.len(), usize::from(fenced));
    }
}

/// A partition with an error is answered at once, without waiting for the others.
#[test]
fn an_error_does_not_wait() {
    let mut host = Host::new();
    let mut asked = request(12, &[(0, 0), (1, 0)]);
    asked.topics[0].partitions[0].current_leader_epoch = EPOCH - 1;
    let response = answered(&mut host, 12, &asked);
    assert_eq!(rows(&response), [(0, ErrorCode::FencedLeaderEpoch), (1, ErrorCode::None)]);
}

/// An unknown topic waits: its client would retry at once, forever.
#[test]
fn an_unknown_topic_waits_with_the_others() {
    let mut host = Host::new();
    host.send(12, &request(12, &[(9, 0), (1, 0)]));
    let (token, _) = read(&mut host);
    host.reply(token, Reply::Read(vec![nothing(0)]));
    watch(&mut host);
    host.pass(500);
    let response = host.response::<FetchRequest>(12);
    assert_eq!(rows(&response), [(9, ErrorCode::UnknownTopicOrPartition), (1, ErrorCode::None)]);
    let row = &response.responses[0].partitions[0];
    assert_eq!((row.high_watermark, row.last_stable_offset, row.log_start_offset), (-1, -1, -1));
    assert_eq!(row.records, Some(Records::new()));
    // Alone it has nothing to wait for.
    assert_eq!(rows(&host.ask(12, &request(12, &[(9, 0)]))), [(9, ErrorCode::UnknownTopicOrPartition)]);
}

#[test]
fn errors_of_the_broker() {
    let out_of_range = ReadError::OutOfRange { log_start: Offset(2), high_watermark: Offset(5) };
    for (error, version, expected) in [
        (out_of_range, 12, ErrorCode::OffsetOutOfRange),
        (ReadError::UnknownPartition, 12, ErrorCode::UnknownTopicOrPartition),
        (ReadError::UnknownPartition, 13, ErrorCode::UnknownTopicId),
        (ReadError::Storage, 6, ErrorCode::KafkaStorageError),
        (ReadError::Storage, 5, ErrorCode::NotLeaderOrFollower),
    ] {
        let mut host = Host::new();
        host.send(version, &request(version, &[(0, 9), (1, 0)]));
        let (token, _) = read(&mut host);
        host.reply(token, Reply::Read(vec![Err(error), nothing(0)]));
        let response = host.response::<FetchRequest>(version);
        assert_eq!(rows(&response), [(0, expected), (1, ErrorCode::None)]);
        assert_eq!(response.responses[0].partitions[0].high_watermark, -1);
    }
}

#[test]
fn a_partition_that_goes_while_it_is_watched() {
    let mut host = Host::new();
    host.send(13, &request(13, &[(0, 0)]));
    let (token, _) = read(&mut host);
    host.reply(token, Reply::Read(vec![nothing(0)]));
    let (token, _) = watch(&mut host);
    woken(&mut host, token);
    let (token, _) = read(&mut host);
    host.reply(token, Reply::Read(vec![Err(ReadError::UnknownPartition)]));
    assert_eq!(rows(&host.response::<FetchRequest>(13)), [(0, ErrorCode::UnknownTopicId)]);
}

#[test]
fn an_offset_below_zero() {
    let mut host = Host::new();
    assert_eq!(rows(&host.ask(12, &request(12, &[(0, -5)]))), [(0, ErrorCode::OffsetOutOfRange)]);
}

#[test]
fn unknown_ids() {
    let mut host = Host::new();
    for id in [topic_id(99), TopicId::ZERO] {
        let mut asked = request(13, &[(0, 0)]);
        asked.topics[0].topic_id = id;
        let response = host.ask(13, &asked);
        assert_eq!(rows(&response), [(0, ErrorCode::UnknownTopicId)]);
        assert_eq!(response.responses[0].topic_id, id);
    }
}

#[test]
fn isolation_levels() {
    for (level, aborted) in [(0, None), (1, Some(vec![]))] {
        let mut host = Host::new();
        let mut asked = request(12, &[(0, 0), (9, 0)]);
        (asked.isolation_level, asked.max_wait_ms) = (level, 0);
        let response = answered(&mut host, 12, &asked);
        assert_eq!(response.responses[0].partitions[0].aborted_transactions, aborted);
        assert_eq!(response.responses[0].partitions[1].aborted_transactions, None);
    }
    let mut asked = request(12, &[(0, 0)]);
    asked.isolation_level = 2;
    assert_eq!(Host::new().ask(12, &asked).error_code, ErrorCode::InvalidRequest.code());
}

#[test]
fn there_are_no_followers() {
    let mut old = request(12, &[(0, 0)]);
    old.replica_id = 1;
    assert_eq!(rows(&Host::new().ask(12, &old)), [(0, ErrorCode::NotLeaderOrFollower)]);
    let mut new = request(17, &[(0, 0)]);
    new.replica_state = ReplicaState { replica_id: 1, ..ReplicaState::default() };
    assert_eq!(rows(&Host::new().ask(17, &new)), [(0, ErrorCode::NotLeaderOrFollower)]);
}

/// Kafka 3 refuses topics with `compression.type=zstd` below version 10, whatever they contain; Kafka 4.3 refuses nothing. Clients with
/// an old version may support Zstandard all the same (`rskafka` fetches with version 4).
#[test]
fn zstandard_is_for_every_version() {
    let zstd = built(BatchBuilder::new().compression(Codec::Zstd, None), &[b"x"]);
    for config in [TopicConfig::default(), TopicConfig { compression: Compression::Zstd(3), ..TopicConfig::default() }]
    {
        for version in [4, 9, 10] {
            let mut host = Host::with_topic(config.clone());
            host.send(version, &request(version, &[(0, 0)]));
            let (token, _) = read(&mut host);
            host.reply(token, Reply::Read(vec![data(&zstd, 1)]));
            let row = only(host.response::<FetchRequest>(version));
            assert_eq!((row.error_code, row.records.unwrap().len()), (0, zstd.len()), "version {version}");
        }
    }
}

#[derive(Debug)]
struct NoFile;

impl RangeSource for NoFile {
    fn read_exact_at(&self, _: &mut [u8], _: u64) -> std::io::Result<()> {
        panic!("a session reads no files")
    }

    fn raw_fd(&self) -> Option<i32> {
        None
    }
}

#[test]
fn messages_pass_untouched() {
    let mut host = Host::new();
    let in_memory = batch(&[&[1; 5_000]]);
    let file = Chunk::File(FileRange { source: Arc::new(NoFile), position: 77, len: 9_000 });
    host.send(12, &request(12, &[(0, 0), (1, 0)]));
    let (token, _) = read(&mut host);
    let of_file = ReadData { chunks: vec![file], high_watermark: Offset(9), log_start: Offset(0) };
    host.reply(token, Reply::Read(vec![data(&in_memory, 1), Ok(of_file)]));
    let mut out = Vec::new();
    assert!(host.session.poll_output(&mut out));
    let memory = out.iter().any(|chunk| matches!(chunk, Chunk::Bytes(b) if b.as_ptr() == in_memory.as_ptr()));
    let file = out.iter().any(|chunk| matches!(chunk, Chunk::File(f) if (f.position, f.len) == (77, 9_000)));
    assert!(memory && file, "{out:?}");
    // The length prefix includes data in files.
    let Chunk::Bytes(first) = &out[0] else { panic!() };
    let len = i32::from_be_bytes(*first.first_chunk().unwrap());
    let rest: usize = out.iter().map(Chunk::len).sum();
    assert_eq!(usize::try_from(len).unwrap() + 4, rest);
}

#[test]
fn an_empty_request_has_an_empty_answer() {
    let mut host = Host::new();
    let response = host.ask(12, &FetchRequest { max_wait_ms: 500, min_bytes: 1, ..FetchRequest::default() });
    assert!(response.responses.is_empty());
}

/// A produce on one connection wakes an earlier fetch on the same connection, through the broker.
#[test]
fn a_fetch_is_woken_by_a_produce_behind_it() {
    let mut host = Host::new();
    let mut broker = Broker::default();
    host.send(12, &request(12, &[(0, 0)]));
    broker.serve(&mut host);
    host.no_response();
    let produce = ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: text("a"),
            partition_data: vec![PartitionProduceData { index: 0, records: Some(Records::from(batch(&[b"x"]))) }],
            ..TopicProduceData::default()
        }],
    };
    host.send(9, &produce);
    broker.serve(&mut host);
    let (_, response) = host.response_to::<FetchRequest>(12);
    assert!(!only(response).records.unwrap().is_empty());
    assert_eq!(host.response::<ProduceRequest>(9).responses[0].partition_responses[0].error_code, 0);
}

#[test]
fn a_connection_that_is_gone_names_its_watch() {
    let mut host = Host::new();
    host.send(12, &request(12, &[(0, 0)]));
    let (token, _) = read(&mut host);
    host.reply(token, Reply::Read(vec![nothing(0)]));
    let (watch, _) = watch(&mut host);
    let abandoned = host.session.on_closed();
    assert_eq!((abandoned.watches, abandoned.requests), (vec![watch], vec![]));
}

/// A fetch of `a`-0 at this offset, after a message of epoch 2, which ends as given.
fn after_epoch_2(host: &mut Host, offset: i64, end: Result<EpochEnd, ReadError>) {
    let mut request = request(12, &[(1, 0), (0, offset)]);
    request.topics[0].partitions[1].last_fetched_epoch = 2;
    host.send(12, &request);
    let (token, Ask::EpochEnds(queries)) = host.asked_one() else { panic!("epochs are not compared") };
    assert_eq!(queries, [EpochEndQuery { partition: partition_id(1, 0), epoch: 2 }]);
    host.reply(token, Reply::EpochEnds(vec![end]));
}

fn ends(epoch: i32, end: u64) -> Result<EpochEnd, ReadError> {
    Ok(EpochEnd { epoch, end: Some(Offset(end)) })
}

/// Regression test: `last_fetched_epoch` was ignored, and clients that had read truncated messages continued after them (KIP-595).
#[test]
fn a_log_that_went_another_way_is_told_at_once() {
    let out = || Err(ReadError::OutOfRange { log_start: Offset(2), high_watermark: Offset(9) });
    for (end, there) in [(ends(1, 6), data(&batch(&[b"x"]), 9)), (ends(2, 6), out())] {
        let mut host = Host::new();
        after_epoch_2(&mut host, 7, end);
        let (token, asked) = read(&mut host);
        assert_eq!(asked.parts.iter().map(|part| part.bytes_max).collect::<Vec<_>>(), [1 << 20, 0]);
        host.reply(token, Reply::Read(vec![nothing(0), there]));
        let response = host.response::<FetchRequest>(12);
        let row = &response.responses[0].partitions[1];
        assert_eq!((row.error_code, row.high_watermark, row.log_start_offset), (0, 9, 2));
        assert_eq!(row.records, Some(Records::new()));
        let reported = (row.diverging_epoch.epoch, row.diverging_epoch.end_offset);
        assert_eq!(reported, end.map(|end| (end.epoch, 6)).unwrap());
    }
}

#[test]
fn epochs_that_agree_or_that_nobody_knows() {
    let mut host = Host::new();
    after_epoch_2(&mut host, 7, ends(2, 7));
    let (token, _) = read(&mut host);
    host.reply(token, Reply::Read(vec![nothing(0), nothing(7)]));
    // Epochs are compared again before another read.
    let (token, _) = watch(&mut host);
    woken(&mut host, token);
    let (token, Ask::EpochEnds(_)) = host.asked_one() else { panic!() };
    host.reply(token, Reply::EpochEnds(vec![ends(2, 7)]));
    let (token, _) = read(&mut host);
    let batch = batch(&[b"x"]);
    host.reply(token, Reply::Read(vec![nothing(0), data(&batch, 8)]));
    let response = host.response::<FetchRequest>(12);
    let row = &response.responses[0].partitions[1];
    assert_eq!((row.diverging_epoch.epoch, row.diverging_epoch.end_offset), (-1, -1));
    assert_eq!(row.records.as_ref().unwrap().as_bytes(), Some(&batch));

    for (end, offset, there, expected) in [
        (Ok(EpochEnd { epoch: -1, end: None }), 7, None, ErrorCode::OffsetOutOfRange),
        (Err(ReadError::UnknownPartition), 7, None, ErrorCode::UnknownTopicOrPartition),
        // Trimmed offsets are out of range, whatever the epochs.
        (
            ends(1, 6),
            1,
            Some(Err(ReadError::OutOfRange { log_start: Offset(2), high_watermark: Offset(9) })),
            ErrorCode::OffsetOutOfRange,
        ),
    ] {
        let mut host = Host::new();
        after_epoch_2(&mut host, offset, end);
        let (token, _) = read(&mut host);
        host.reply(token, Reply::Read([Some(nothing(0)), there].into_iter().flatten().collect()));
        host.pass(500);
        let asked = host.asked();
        assert!(asked.iter().all(|(_, asked)| matches!(asked, Ask::Watch(_) | Ask::Unwatch(_))), "{asked:?}");
        let response = host.response::<FetchRequest>(12);
        let row = &response.responses[0].partitions[1];
        assert_eq!((ErrorCode::from_code(row.error_code), row.diverging_epoch.epoch), (Some(expected), -1));
    }
}
