//! A topic view of a queue: it can be read like any topic, and neither written to, nor changed, nor deleted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::session_host;

use polylogue_api::{QueueSettings, Request as Ask, TopicConfig};
use polylogue_kafka_codec::alter_configs::{AlterConfigsRequest, AlterConfigsResource};
use polylogue_kafka_codec::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use polylogue_kafka_codec::delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use polylogue_kafka_codec::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use polylogue_kafka_codec::metadata::{MetadataRequest, MetadataRequestTopic};
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_types::TopicId;
use session_host::{Host, requests, text, topic_id};

const QUEUE: &str = "amqp-queue.q";
/// Its number.
const NUMBER: u8 = 9;

fn host() -> Host {
    let mut host = Host::new();
    let config = TopicConfig { queue: Some(QueueSettings::default()), ..TopicConfig::default() };
    host.topics.add(NUMBER, QUEUE, 1, config);
    host
}

fn refused(code: i16, said: Option<&StrBytes>) {
    assert_eq!(ErrorCode::from_code(code), Some(ErrorCode::InvalidTopicException));
    let said = said.expect("some words");
    assert!(said.contains("is a queue"), "{said:?}");
}

#[test]
fn it_is_there_and_read() {
    let mut host = host();
    let topic = MetadataRequestTopic { name: Some(text(QUEUE)), ..MetadataRequestTopic::default() };
    let response = host.ask(12, &MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() });
    assert_eq!((response.topics[0].error_code, response.topics[0].partitions.len()), (0, 1));
    let mut fetch = requests::fetch(12);
    fetch.topics[0].topic = text(QUEUE);
    host.send(12, &fetch);
    assert!(matches!(host.asked_one().1, Ask::Read(_)));
}

#[test]
fn it_is_not_written_to() {
    for version in [8, 12, 13] {
        let mut host = host();
        let mut produce = requests::produce(version);
        if version >= 13 {
            produce.topic_data[0].topic_id = topic_id(NUMBER);
        } else {
            produce.topic_data[0].name = text(QUEUE);
        }
        let response = host.ask(version, &produce);
        let row = &response.responses[0].partition_responses[0];
        refused(row.error_code, row.error_message.as_ref());
    }
}

#[test]
fn it_is_not_changed_nor_deleted() {
    let mut host = host();
    for by_id in [false, true] {
        let (name, topic_id) = if by_id { (None, topic_id(NUMBER)) } else { (Some(text(QUEUE)), TopicId::ZERO) };
        let topics = vec![DeleteTopicState { name, topic_id }];
        let response = host.ask(6, &DeleteTopicsRequest { topics, topic_names: vec![], timeout_ms: 1_000 });
        refused(response.responses[0].error_code, response.responses[0].error_message.as_ref());
    }
    let topics = vec![CreatePartitionsTopic { name: text(QUEUE), count: 2, assignments: None }];
    let response = host.ask(3, &CreatePartitionsRequest { topics, timeout_ms: 1_000, validate_only: false });
    refused(response.results[0].error_code, response.results[0].error_message.as_ref());
    let resource = AlterConfigsResource { resource_type: 2, resource_name: text(QUEUE), configs: vec![] };
    let response = host.ask(2, &AlterConfigsRequest { resources: vec![resource], validate_only: false });
    refused(response.responses[0].error_code, response.responses[0].error_message.as_ref());
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset: -1 }];
    let topics = vec![DeleteRecordsTopic { name: text(QUEUE), partitions }];
    let response = host.ask(2, &DeleteRecordsRequest { topics, timeout_ms: 1_000 });
    let code = response.topics[0].partitions[0].error_code;
    assert_eq!(ErrorCode::from_code(code), Some(ErrorCode::PolicyViolation));
    assert!(host.asked().is_empty(), "the broker is not asked");
}

#[test]
fn names_that_are_kept_for_queues_are_not_given_to_topics() {
    for asks in [false, true] {
        let mut host = host();
        let name = text("kept-for-queues");
        if asks {
            let topic = MetadataRequestTopic { name: Some(name), ..MetadataRequestTopic::default() };
            let topics = Some(vec![topic]);
            let request = MetadataRequest { topics, allow_auto_topic_creation: true, ..MetadataRequest::default() };
            let code = host.ask(12, &request).topics[0].error_code;
            assert_eq!(ErrorCode::from_code(code), Some(ErrorCode::UnknownTopicOrPartition));
        } else {
            let mut create = requests::create_topics(7);
            create.topics[0].name = name;
            let row = host.ask(7, &create).topics.remove(0);
            assert_eq!(ErrorCode::from_code(row.error_code), Some(ErrorCode::InvalidTopicException));
            assert!(row.error_message.expect("some words").contains("kept for queues"));
        }
        assert!(host.asked().is_empty(), "the broker is not asked");
    }
}
