//! CreatePartitions, DeleteRecords, DescribeLogDirs and DescribeProducers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_api::{
    AlterError, AlterTopics, Cleanup, Current, PartitionSize, PartitionSizes, PartitionsChange, ProducerInfo,
    ProducersError, Reply, Request as Ask, Token, TopicConfig, TrimError, Unavailable,
};
use polylogue_kafka_codec::ErrorCode;
use polylogue_kafka_codec::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
};
use polylogue_kafka_codec::delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use polylogue_kafka_codec::describe_log_dirs::{DescribableLogDirTopic, DescribeLogDirsRequest};
use polylogue_kafka_codec::describe_producers::{DescribeProducersRequest, TopicRequest};
use polylogue_types::{Offset, ProducerId};
use session_host::{Host, NODE, partition_id, text, topic_id};

fn wanted(name: &str, count: i32) -> CreatePartitionsTopic {
    CreatePartitionsTopic { name: text(name), count, assignments: None }
}

fn create(topics: Vec<CreatePartitionsTopic>) -> CreatePartitionsRequest {
    CreatePartitionsRequest { topics, timeout_ms: 1_000, validate_only: false }
}

fn rows(response: &CreatePartitionsResponse) -> Vec<(&str, ErrorCode, Option<&str>)> {
    let code = |code| ErrorCode::from_code(code).unwrap();
    response.results.iter().map(|row| (&*row.name, code(row.error_code), row.error_message.as_deref())).collect()
}

fn growing(host: &mut Host) -> (Token, AlterTopics) {
    match host.asked_one() {
        (token, Ask::AlterTopics(alter)) => (token, alter),
        other => panic!("{other:?}"),
    }
}

#[test]
fn partitions_are_added() {
    for version in 0..=3 {
        let mut host = Host::new();
        host.send(version, &create(vec![wanted("a", 5), wanted("b", 2)]));
        let (token, alter) = growing(&mut host);
        let changes: Vec<_> = alter.changes.iter().map(|c| (c.topic, c.partitions.unwrap())).collect();
        let from_to = |from, to| PartitionsChange { from, to };
        assert_eq!(changes, [(topic_id(1), from_to(3, 5)), (topic_id(2), from_to(1, 2))]);
        let too_many = AlterError::TooManyPartitions { partitions_max: 4 };
        host.reply(token, Reply::AlterTopics(vec![Ok(()), Err(too_many)]));
        let response = host.response::<CreatePartitionsRequest>(version);
        let rows = rows(&response);
        assert_eq!(rows[0], ("a", ErrorCode::None, None));
        assert_eq!((rows[1].0, rows[1].1), ("b", ErrorCode::InvalidPartitions));
    }
}

#[test]
fn what_is_no_increase_is_refused_with_kafkas_words() {
    let assigned = |ids: &[&[i32]]| {
        let assignment = |ids: &&[i32]| CreatePartitionsAssignment { broker_ids: ids.to_vec() };
        CreatePartitionsTopic { assignments: Some(ids.iter().map(assignment).collect()), ..wanted("a", 4) }
    };
    for (topic, code, text) in [
        (wanted("a", 3), ErrorCode::InvalidPartitions, "Topic already has 3 partition(s)."),
        (
            wanted("a", 2),
            ErrorCode::InvalidPartitions,
            "The topic a currently has 3 partition(s); 2 would not be an increase.",
        ),
        (
            wanted("a", -1),
            ErrorCode::InvalidPartitions,
            "The topic a currently has 3 partition(s); -1 would not be an increase.",
        ),
        (wanted("c", 2), ErrorCode::UnknownTopicOrPartition, "This server does not host this topic-partition."),
        (wanted("a", 10_004), ErrorCode::PolicyViolation, "Unable to perform excessively large batch operation."),
        (
            assigned(&[&[NODE], &[NODE]]),
            ErrorCode::InvalidReplicaAssignment,
            "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.",
        ),
        (
            assigned(&[&[9]]),
            ErrorCode::InvalidReplicaAssignment,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            assigned(&[&[]]),
            ErrorCode::InvalidReplicaAssignment,
            "The manual partition assignment includes an empty replica list.",
        ),
    ] {
        let mut host = Host::new();
        let name = topic.name.clone();
        let response = host.ask(3, &create(vec![topic]));
        assert_eq!(rows(&response), [(&*name, code, Some(text))]);
    }
    let mut host = Host::new();
    host.send(3, &create(vec![assigned(&[&[NODE]])]));
    assert_eq!(growing(&mut host).1.changes.len(), 1);
    let mut host = Host::new();
    let response = host.ask(3, &create(vec![wanted("a", 5), wanted("a", 6)]));
    assert_eq!(rows(&response), [("a", ErrorCode::InvalidRequest, Some("Duplicate topic name."))]);
}

#[test]
fn who_is_overtaken_is_told_what_is_so() {
    let mut host = Host::new();
    host.send(3, &create(vec![wanted("a", 5), wanted("b", 4)]));
    let (token, _) = growing(&mut host);
    let now = |partitions| Err(AlterError::Conflict(Current { partitions, ..Current::default() }));
    host.reply(token, Reply::AlterTopics(vec![now(5), now(3)]));
    let (token, alter) = growing(&mut host);
    assert_eq!(alter.changes[0].partitions, Some(PartitionsChange { from: 3, to: 4 }));
    host.reply(token, Reply::AlterTopics(vec![Ok(())]));
    let response = host.response::<CreatePartitionsRequest>(3);
    let text = "Topic already has 5 partition(s).";
    assert_eq!(rows(&response), [("a", ErrorCode::InvalidPartitions, Some(text)), ("b", ErrorCode::None, None)]);
}

/// Kafka's controller uses names: a topic recreated meanwhile is the one to change.
#[test]
fn a_topic_that_somebody_else_deletes_gets_no_partitions_and_its_successor_does() {
    let mut host = Host::new();
    host.send(3, &create(vec![wanted("a", 5), wanted("b", 4)]));
    let (token, _) = growing(&mut host);
    host.topics.remove("a");
    host.topics.remove("b");
    let successor = host.topics.add(9, "b", 1, TopicConfig::default());
    let gone = || Err(AlterError::UnknownTopic);
    host.reply(token, Reply::AlterTopics(vec![gone(), gone()]));
    let (token, alter) = growing(&mut host);
    let changes: Vec<_> = alter.changes.iter().map(|change| (change.topic, change.partitions)).collect();
    assert_eq!(changes, [(successor.id, Some(PartitionsChange { from: 1, to: 4 }))]);
    host.reply(token, Reply::AlterTopics(vec![Ok(())]));
    let response = host.response::<CreatePartitionsRequest>(3);
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(rows(&response), [("a", unknown, Some(unknown.message())), ("b", ErrorCode::None, None)]);
}

fn delete(partitions: &[(&str, i32, i64)]) -> DeleteRecordsRequest {
    let topic = |(name, partition_index, offset): &(&str, i32, i64)| DeleteRecordsTopic {
        name: text(name),
        partitions: vec![DeleteRecordsPartition { partition_index: *partition_index, offset: *offset }],
    };
    DeleteRecordsRequest { topics: partitions.iter().map(topic).collect(), timeout_ms: 1_000 }
}

#[test]
fn records_are_deleted_up_to_an_offset() {
    for version in 0..=2 {
        let mut host = Host::new();
        let only_compact = Cleanup { delete: false, compact: true };
        host.topics.add(3, "c", 1, TopicConfig { cleanup: only_compact, ..TopicConfig::default() });
        let wanted = [("a", 0, 5), ("a", 1, -1), ("a", 9, 0), ("b", 0, -2), ("c", 0, 1), ("d", 0, 1), ("a", 2, 99)];
        host.send(version, &delete(&wanted));
        let (token, Ask::TrimPartitions(trims)) = host.asked_one() else { panic!() };
        let trims: Vec<_> = trims.iter().map(|t| (t.partition, t.first)).collect();
        let expected =
            [(partition_id(1, 0), Some(Offset(5))), (partition_id(1, 1), None), (partition_id(1, 2), Some(Offset(99)))];
        assert_eq!(trims, expected);
        host.no_response();
        let beyond = TrimError::OutOfRange { high_watermark: Offset(8) };
        host.reply(token, Reply::TrimPartitions(vec![Ok(Offset(5)), Ok(Offset(8)), Err(beyond)]));
        let response = host.response::<DeleteRecordsRequest>(version);
        let rows: Vec<_> =
            response.topics.iter().map(|t| (t.partitions[0].low_watermark, t.partitions[0].error_code)).collect();
        let expected = [
            (5, ErrorCode::None),
            (8, ErrorCode::None),
            (-1, ErrorCode::UnknownTopicOrPartition),
            (-1, ErrorCode::OffsetOutOfRange),
            (-1, ErrorCode::PolicyViolation),
            (-1, ErrorCode::UnknownTopicOrPartition),
            (-1, ErrorCode::OffsetOutOfRange),
        ];
        assert_eq!(rows, expected.map(|(low, code)| (low, code.code())));
    }
}

#[test]
fn a_trim_that_fails_for_now_may_be_tried_again() {
    for why in [Unavailable::Unknown, Unavailable::NotCommitted, Unavailable::Busy, Unavailable::Stopping] {
        let mut host = Host::new();
        host.send(2, &delete(&[("a", 0, 5)]));
        let (token, _) = host.asked_one();
        host.reply(token, Reply::TrimPartitions(vec![Err(TrimError::Unavailable(why))]));
        let response = host.response::<DeleteRecordsRequest>(2);
        let code = ErrorCode::from_code(response.topics[0].partitions[0].error_code).unwrap();
        assert!(code.retriable(), "{why:?} became {code:?}");
    }
}

#[test]
fn log_directories() {
    let size = |bytes| Some(PartitionSize { bytes, log_start: Offset(0), high_watermark: Offset(9) });
    for version in 1..=5 {
        let mut host = Host::new();
        host.send(version, &DescribeLogDirsRequest { topics: None });
        let (token, Ask::DescribePartitions(ids)) = host.asked_one() else { panic!() };
        assert_eq!(ids, [partition_id(1, 0), partition_id(1, 1), partition_id(1, 2), partition_id(2, 0)]);
        let partitions = vec![size(10), None, size(30), None];
        let sizes = PartitionSizes { partitions, directory: "/data".into(), free_bytes: Some(77) };
        host.reply(token, Reply::DescribePartitions(sizes));
        let response = host.response::<DescribeLogDirsRequest>(version);
        let [dir] = &response.results[..] else { panic!() };
        assert_eq!(&*dir.log_dir, "/data");
        let usable = if version >= 4 { 77 } else { -1 };
        assert_eq!((dir.error_code, dir.usable_bytes, dir.topics.len()), (0, usable, 1));
        let rows: Vec<_> = dir.topics[0].partitions.iter().map(|p| (p.partition_index, p.partition_size)).collect();
        assert_eq!(rows, [(0, 10), (2, 30)]);
    }
    let mut host = Host::new();
    let topic = DescribableLogDirTopic { topic: text("a"), partitions: vec![2, 2, 9] };
    let stranger = DescribableLogDirTopic { topic: text("x"), partitions: vec![0] };
    host.send(4, &DescribeLogDirsRequest { topics: Some(vec![topic, stranger]) });
    let (_, Ask::DescribePartitions(ids)) = host.asked_one() else { panic!() };
    assert_eq!(ids, [partition_id(1, 2)]);
}

#[test]
fn producers() {
    let mut host = Host::new();
    let topic =
        |name: &str, partitions: &[i32]| TopicRequest { name: text(name), partition_indexes: partitions.to_vec() };
    let topics = vec![topic("a", &[0, 9, 1, 2]), topic("x", &[0]), topic("a b", &[0])];
    host.send(0, &DescribeProducersRequest { topics });
    let (token, Ask::DescribeProducers(ids)) = host.asked_one() else { panic!() };
    assert_eq!(ids, [partition_id(1, 0), partition_id(1, 1), partition_id(1, 2)]);
    let info = ProducerInfo { id: ProducerId(7), epoch: 2, last_sequence: 41, last_timestamp: 1_000 };
    let reported = vec![Ok(vec![info]), Err(ProducersError::TooMany), Err(ProducersError::UnknownPartition)];
    host.reply(token, Reply::DescribeProducers(reported));
    let response = host.response::<DescribeProducersRequest>(0);
    let codes: Vec<Vec<_>> =
        response.topics.iter().map(|t| t.partitions.iter().map(|p| p.error_code).collect()).collect();
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    let expected = [
        vec![0, unknown, ErrorCode::InvalidRequest.code(), unknown],
        vec![unknown],
        vec![ErrorCode::InvalidTopicException.code()],
    ];
    assert_eq!(codes, expected);
    let producer = &response.topics[0].partitions[0].active_producers[0];
    assert_eq!((producer.producer_id, producer.producer_epoch, producer.last_sequence), (7, 2, 41));
    assert_eq!(
        (producer.coordinator_epoch, producer.current_txn_start_offset, producer.last_timestamp),
        (-1, -1, 1_000)
    );
}

/// Other brokers returned an empty list, and clients waited for a row of their topic.
#[test]
fn mistake_10_each_topic_has_its_row_when_partitions_are_added() {
    let mut host = Host::new();
    host.send(1, &create(vec![wanted("a", 5), wanted("x", 5), wanted("b", 1)]));
    let (token, _) = growing(&mut host);
    host.reply(token, Reply::AlterTopics(vec![Ok(())]));
    let response = host.response::<CreatePartitionsRequest>(1);
    let rows: Vec<_> = rows(&response).into_iter().map(|(name, code, _)| (name, code)).collect();
    let expected =
        [("a", ErrorCode::None), ("x", ErrorCode::UnknownTopicOrPartition), ("b", ErrorCode::InvalidPartitions)];
    assert_eq!(rows, expected);
}
