//! DescribeTopicPartitions (KIP-966): topics by name, one page of partitions at a time. Follows
//! `DescribeTopicPartitionsRequestHandler` and `KRaftMetadataCache.describeTopicResponse`.

use super::operations::TOPIC_OPERATIONS;
use super::topics::{invalid_name, is_internal, node_id, owned};
use super::work::{Step, Work};
use polylogue_api::TopicInfo;
use polylogue_auth::{Operation, ResourceKind};
use polylogue_kafka_codec::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic, TopicRequest,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use polylogue_types::TopicId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The maximum number of partitions in a response (`max.request.partition.size.limit`).
const PARTITIONS_MAX: usize = 2_000;

/// A requested topic, if it exists.
type Asked = (StrBytes, Option<Arc<TopicInfo>>);

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = DescribeTopicPartitionsRequest::decode(body, work.head.version)?;
    let Some(first) = first(&request) else { return Ok(refuse(work, request.topics)) };
    let from = request.cursor.as_ref().map_or("", |cursor| &*cursor.topic_name);
    // No topic means all. Sorted by name, so that a cursor stays valid.
    let page = if request.topics.is_empty() {
        let may_see = |topic: &Arc<TopicInfo>| work.may_topic(Operation::Describe, &topic.name);
        let topics = work.catalog.topics().into_iter().filter(|topic| *topic.name >= *from).filter(may_see);
        page(work, &request, first, topics.map(|topic| (owned(&topic.name), Some(topic))))
    } else {
        let names = request.topics.iter().map(|topic| &topic.name).filter(|name| ***name >= *from);
        let names: BTreeSet<&StrBytes> = names.collect();
        page(work, &request, first, names.into_iter().map(|name| (name.clone(), work.catalog.topic(name))))
    };
    Ok(work.answer(&page))
}

/// Returns the first partition for the topic at the cursor, 0 without a cursor. `None` if the cursor is invalid.
fn first(request: &DescribeTopicPartitionsRequest) -> Option<usize> {
    let Some(cursor) = &request.cursor else { return Some(0) };
    let named = request.topics.is_empty() || request.topics.iter().any(|topic| topic.name == cursor.topic_name);
    usize::try_from(cursor.partition_index).ok().filter(|_| named)
}

fn refuse(work: &Work<'_>, topics: Vec<TopicRequest>) -> Step {
    let row = |topic: TopicRequest| DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::InvalidRequest.code(),
        name: Some(topic.name),
        ..DescribeTopicPartitionsResponseTopic::default()
    };
    let topics = topics.into_iter().map(row).collect();
    work.answer(&DescribeTopicPartitionsResponse { topics, ..DescribeTopicPartitionsResponse::default() })
}

fn page(
    work: &Work<'_>,
    request: &DescribeTopicPartitionsRequest,
    first: usize,
    topics: impl Iterator<Item = Asked>,
) -> DescribeTopicPartitionsResponse {
    let node = node_id(&work.catalog.cluster());
    let mut left = usize::try_from(request.response_partition_limit).unwrap_or(0).clamp(1, PARTITIONS_MAX);
    let cursor = |name: StrBytes, partition: usize| {
        let partition_index = i32::try_from(partition).unwrap_or(i32::MAX);
        Some(Cursor { topic_name: name, partition_index })
    };
    let mut response = DescribeTopicPartitionsResponse::default();
    for (name, topic) in topics {
        if left == 0 {
            response.next_cursor = cursor(name, 0);
            break;
        }
        if !work.may_topic(Operation::Describe, &name) {
            response.topics.push(DescribeTopicPartitionsResponseTopic {
                error_code: ErrorCode::TopicAuthorizationFailed.code(),
                name: Some(name),
                ..DescribeTopicPartitionsResponseTopic::default()
            });
            continue;
        }
        let topic_authorized_operations = work.operations(ResourceKind::Topic, &name, TOPIC_OPERATIONS);
        let Some(topic) = topic else {
            response.topics.push(not_there(name, topic_authorized_operations));
            continue;
        };
        let resumed = request.cursor.as_ref().is_some_and(|cursor| cursor.topic_name == name);
        let start = if resumed { first } else { 0 };
        let partitions: Vec<_> = partitions(&topic, node).skip(start).take(left).collect();
        left -= partitions.len();
        let next = start.saturating_add(partitions.len());
        response.topics.push(DescribeTopicPartitionsResponseTopic {
            error_code: ErrorCode::None.code(),
            name: Some(name.clone()),
            topic_id: topic.id,
            is_internal: topic.internal,
            partitions,
            topic_authorized_operations,
        });
        if next < topic.partitions.len() {
            response.next_cursor = cursor(name, next);
            break;
        }
    }
    response
}

fn partitions(topic: &TopicInfo, node: i32) -> impl Iterator<Item = DescribeTopicPartitionsResponsePartition> {
    (0..).zip(&topic.partitions).map(move |(index, partition)| DescribeTopicPartitionsResponsePartition {
        partition_index: index,
        leader_id: node,
        leader_epoch: partition.leader_epoch,
        replica_nodes: vec![node],
        isr_nodes: vec![node],
        eligible_leader_replicas: Some(Vec::new()),
        last_known_elr: Some(Vec::new()),
        ..DescribeTopicPartitionsResponsePartition::default()
    })
}

fn not_there(name: StrBytes, topic_authorized_operations: i32) -> DescribeTopicPartitionsResponseTopic {
    let valid = invalid_name(&name).is_none();
    let error = if valid { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::InvalidTopicException };
    DescribeTopicPartitionsResponseTopic {
        error_code: error.code(),
        topic_id: TopicId::ZERO,
        is_internal: is_internal(&name),
        name: Some(name),
        partitions: Vec::new(),
        topic_authorized_operations,
    }
}
