//! OffsetCommit and OffsetFetch: passed to the group coordinator.

use super::errors;
use super::groups::{answered, command};
use super::work::{Pending, Step, WaitsFor, Work};
use polylogue_api::Reply;
use polylogue_auth::Operation;
use polylogue_kafka_codec::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestTopic, OffsetCommitResponse, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
};
use polylogue_kafka_codec::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse, OffsetFetchResponseGroup,
    OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use polylogue_kafka_groups::command::{
    CommitOffsets, CommitPartition, CommitTopic, FetchGroup, FetchOffsets, FetchTopic, FetchedGroup, FetchedOffset,
    FetchedTopic, GroupCommand, GroupReply, TopicKey, TopicResults,
};
use polylogue_types::TopicId;

/// The first version of both that identifies topics by id.
const BY_ID_FROM: i16 = 10;
/// The first version of OffsetFetch with a top-level error.
const FETCH_ERROR_FROM: i16 = 2;
/// The first version of OffsetFetch with several groups.
const FETCH_BATCHED_FROM: i16 = 8;

fn key(name: StrBytes, id: TopicId, version: i16) -> TopicKey {
    if version >= BY_ID_FROM { TopicKey::Id(id) } else { TopicKey::Name(name) }
}

fn unkey(key: TopicKey) -> (StrBytes, TopicId) {
    match key {
        TopicKey::Name(name) => (name, TopicId::ZERO),
        TopicKey::Id(id) => (StrBytes::new(), id),
    }
}

pub(super) fn start_commit(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = OffsetCommitRequest::decode(body, version)?;
    let may_commit = work.may_group(Operation::Read, &request.group_id);
    let topic = |topic: OffsetCommitRequestTopic| CommitTopic {
        topic: key(topic.name, topic.topic_id, version),
        partitions: topic
            .partitions
            .into_iter()
            .map(|p| CommitPartition {
                index: p.partition_index,
                offset: p.committed_offset,
                leader_epoch: p.committed_leader_epoch,
                metadata: p.committed_metadata,
            })
            .collect(),
    };
    let (topics, refused): (Vec<CommitTopic>, Vec<_>) = request
        .topics
        .into_iter()
        .map(topic)
        .partition(|topic| may_commit && may_topic(work, Operation::Read, &topic.topic));
    let error = if may_commit { ErrorCode::TopicAuthorizationFailed } else { ErrorCode::GroupAuthorizationFailed };
    let asked = |topics: &[CommitTopic]| -> Vec<(TopicKey, Vec<i32>)> {
        topics.iter().map(|t| (t.topic.clone(), t.partitions.iter().map(|p| p.index).collect())).collect()
    };
    let refused: Vec<_> = asked(&refused).into_iter().map(|topic| uncommitted(topic, error)).collect();
    if topics.is_empty() && (!may_commit || !refused.is_empty()) {
        return Ok(commit_response(work, refused));
    }
    let asked = asked(&topics);
    let commit = CommitOffsets {
        version,
        user: work.peer.login.name().cloned(),
        group_id: request.group_id,
        generation: request.generation_id_or_member_epoch,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
        retention_time_ms: request.retention_time_ms,
        topics,
    };
    Ok(Step::Wait(command(work, GroupCommand::CommitOffsets(commit)), Box::new(Committing { asked, refused })))
}

/// Whether the client may perform an operation on a topic. An unknown id is not confidential.
fn may_topic(work: &Work<'_>, operation: Operation, topic: &TopicKey) -> bool {
    match topic {
        TopicKey::Name(name) => work.may_topic(operation, name),
        TopicKey::Id(id) => work.catalog.topic_by_id(*id).is_none_or(|topic| work.may_topic(operation, &topic.name)),
    }
}

/// Returns the rows of a topic without a commit.
fn uncommitted((key, partitions): (TopicKey, Vec<i32>), error: ErrorCode) -> TopicResults {
    let (name, id) = unkey(key);
    TopicResults { name, id, partitions: partitions.into_iter().map(|p| (p, error)).collect() }
}

/// A commit that waits for its reply. The request is kept for an error response.
#[derive(Debug)]
struct Committing {
    asked: Vec<(TopicKey, Vec<i32>)>,
    /// Rows of topics without read access.
    refused: Vec<TopicResults>,
}

impl Pending for Committing {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let mut results = match answered(reply) {
            Some(Ok(GroupReply::CommitOffsets(results))) => results,
            Some(Err(why)) => {
                let error = errors::of_coordinator(why);
                self.asked.into_iter().map(|topic| uncommitted(topic, error)).collect()
            }
            _ => return work.wrong_reply(),
        };
        results.extend(self.refused);
        commit_response(work, results)
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Machine
    }
}

fn commit_response(work: &Work<'_>, results: Vec<TopicResults>) -> Step {
    let partition = |(partition_index, error): (i32, ErrorCode)| OffsetCommitResponsePartition {
        partition_index,
        error_code: error.code(),
    };
    let topic = |topic: TopicResults| OffsetCommitResponseTopic {
        name: topic.name,
        topic_id: topic.id,
        partitions: topic.partitions.into_iter().map(partition).collect(),
    };
    let topics = results.into_iter().map(topic).collect();
    work.answer(&OffsetCommitResponse { topics, ..OffsetCommitResponse::default() })
}

pub(super) fn start_fetch(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = OffsetFetchRequest::decode(body, version)?;
    let groups: Vec<FetchGroup> = if version < FETCH_BATCHED_FROM {
        let topics = request.topics.map(|topics| {
            let one = topics.into_iter();
            one.map(|t| FetchTopic { topic: TopicKey::Name(t.name), partitions: t.partition_indexes }).collect()
        });
        vec![FetchGroup { group_id: request.group_id, member_id: None, member_epoch: -1, topics }]
    } else {
        let group = |group: OffsetFetchRequestGroup| FetchGroup {
            group_id: group.group_id,
            member_id: group.member_id,
            member_epoch: group.member_epoch,
            topics: group.topics.map(|topics| {
                let one = topics.into_iter();
                one.map(|t| FetchTopic { topic: key(t.name, t.topic_id, version), partitions: t.partition_indexes })
                    .collect()
            }),
        };
        request.groups.into_iter().map(group).collect()
    };
    let mut refused = Vec::with_capacity(groups.len());
    let mut allowed = Vec::with_capacity(groups.len());
    for mut group in groups {
        if work.may_group(Operation::Describe, &group.group_id) {
            refused.push(Refused::Topics(take_refused(work, &mut group)));
            allowed.push(group);
        } else {
            refused.push(Refused::Group(failed(group, ErrorCode::GroupAuthorizationFailed, version)));
        }
    }
    let groups = allowed;
    let fetching = Fetching { asked: groups.clone(), refused };
    if groups.is_empty() && !fetching.refused.is_empty() {
        let none = fetching.in_order(Vec::new());
        return Ok(fetch_response(work, none));
    }
    let fetch = FetchOffsets { version, groups, require_stable: request.require_stable };
    Ok(Step::Wait(command(work, GroupCommand::FetchOffsets(fetch)), Box::new(fetching)))
}

/// Removes from a group's request topics with unknown ids and those without describe access, and returns their rows. Kafka's brokers
/// answer these themselves, after the rows of the coordinator.
fn take_refused(work: &Work<'_>, group: &mut FetchGroup) -> Vec<FetchedTopic> {
    let Some(topics) = &mut group.topics else { return Vec::new() };
    let mut refused = Vec::new();
    let mut left = Vec::with_capacity(topics.len());
    for topic in std::mem::take(topics) {
        let error = match &topic.topic {
            TopicKey::Id(id) if work.catalog.topic_by_id(*id).is_none() => ErrorCode::UnknownTopicId,
            key if !may_topic(work, Operation::Describe, key) => ErrorCode::TopicAuthorizationFailed,
            _ => {
                left.push(topic);
                continue;
            }
        };
        refused.push(unfetched(topic, error));
    }
    *topics = left;
    refused
}

/// Returns the rows of a topic without offsets.
fn unfetched(topic: FetchTopic, error: ErrorCode) -> FetchedTopic {
    let (name, id) = unkey(topic.topic);
    let none = |index| FetchedOffset { index, offset: -1, leader_epoch: -1, metadata: StrBytes::new(), error };
    FetchedTopic { name, id, partitions: topic.partitions.into_iter().map(none).collect() }
}

/// A fetch of offsets that waits for its reply. The request is kept for an error response.
#[derive(Debug)]
struct Fetching {
    asked: Vec<FetchGroup>,
    /// For each group of the request, in order, what the coordinator is not asked for.
    refused: Vec<Refused>,
}

/// The refused part of a group's request.
#[derive(Debug)]
enum Refused {
    /// The group: no describe access.
    Group(FetchedGroup),
    /// Some topics.
    Topics(Vec<FetchedTopic>),
}

impl Fetching {
    /// Merges the rows into the order of the request; `answered` has the groups requested from the coordinator.
    fn in_order(self, answered: Vec<FetchedGroup>) -> Vec<FetchedGroup> {
        let mut answered = answered.into_iter();
        let group = |refused| match refused {
            Refused::Group(group) => Some(group),
            Refused::Topics(topics) => answered.next().map(|mut group| {
                // An error of the group has no rows.
                if group.error == ErrorCode::None {
                    group.topics.extend(topics);
                }
                group
            }),
        };
        self.refused.into_iter().filter_map(group).collect()
    }
}

impl Pending for Fetching {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let groups: Vec<FetchedGroup> = match answered(reply) {
            Some(Ok(GroupReply::FetchOffsets(mut groups))) => {
                for (group, asked) in groups.iter_mut().zip(&self.asked) {
                    if asked.topics.is_none() {
                        group.topics.retain(|topic| work.may_topic(Operation::Describe, &topic.name));
                    }
                }
                groups
            }
            Some(Err(why)) => {
                let error = errors::of_coordinator(why);
                self.asked.iter().map(|group| failed(group.clone(), error, work.head.version)).collect()
            }
            _ => return work.wrong_reply(),
        };
        let groups = self.in_order(groups);
        fetch_response(work, groups)
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Machine
    }
}

fn fetch_response(work: &Work<'_>, groups: Vec<FetchedGroup>) -> Step {
    if work.head.version >= FETCH_BATCHED_FROM {
        let groups = groups.into_iter().map(group).collect();
        return work.answer(&OffsetFetchResponse { groups, ..OffsetFetchResponse::default() });
    }
    let Some(only) = groups.into_iter().next() else { return work.wrong_reply() };
    let response = OffsetFetchResponse {
        topics: only.topics.into_iter().map(topic_of_one).collect(),
        error_code: only.error.code(),
        ..OffsetFetchResponse::default()
    };
    work.answer(&response)
}

/// Returns the response for a group with an error. Version 1 has an error field in each partition only.
fn failed(asked: FetchGroup, error: ErrorCode, version: i16) -> FetchedGroup {
    if version >= FETCH_ERROR_FROM {
        return FetchedGroup { group_id: asked.group_id, error, topics: Vec::new() };
    }
    let topics = asked.topics.unwrap_or_default().into_iter().map(|topic| unfetched(topic, error)).collect();
    FetchedGroup { group_id: asked.group_id, error: ErrorCode::None, topics }
}

fn group(group: FetchedGroup) -> OffsetFetchResponseGroup {
    let partition = |p: FetchedOffset| OffsetFetchResponsePartitions {
        partition_index: p.index,
        committed_offset: p.offset,
        committed_leader_epoch: p.leader_epoch,
        metadata: Some(p.metadata),
        error_code: p.error.code(),
    };
    let topic = |topic: FetchedTopic| OffsetFetchResponseTopics {
        name: topic.name,
        topic_id: topic.id,
        partitions: topic.partitions.into_iter().map(partition).collect(),
    };
    OffsetFetchResponseGroup {
        group_id: group.group_id,
        topics: group.topics.into_iter().map(topic).collect(),
        error_code: group.error.code(),
    }
}

fn topic_of_one(topic: FetchedTopic) -> OffsetFetchResponseTopic {
    let partition = |p: FetchedOffset| OffsetFetchResponsePartition {
        partition_index: p.index,
        committed_offset: p.offset,
        committed_leader_epoch: p.leader_epoch,
        metadata: Some(p.metadata),
        error_code: p.error.code(),
    };
    OffsetFetchResponseTopic { name: topic.name, partitions: topic.partitions.into_iter().map(partition).collect() }
}
