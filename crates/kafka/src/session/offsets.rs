//! OffsetCommit and OffsetFetch: carried to the group coordinator and back.

use super::errors;
use super::groups::{answered, command};
use super::work::{Pending, Step, WaitsFor, Work};
use crate::codec::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestTopic, OffsetCommitResponse, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
};
use crate::codec::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse, OffsetFetchResponseGroup,
    OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use crate::codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use crate::groups::command::{
    CommitOffsets, CommitPartition, CommitTopic, FetchGroup, FetchOffsets, FetchTopic, FetchedGroup, FetchedOffset,
    FetchedTopic, GroupCommand, GroupReply, TopicKey, TopicResults,
};
use polylogue_api::Reply;
use polylogue_types::TopicId;

/// The first version of both that names topics by their ids.
const BY_ID_FROM: i16 = 10;
/// The first version of OffsetFetch that has an error of the whole.
const FETCH_ERROR_FROM: i16 = 2;
/// The first version of OffsetFetch that asks for several groups.
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
    let topics: Vec<CommitTopic> = request.topics.into_iter().map(topic).collect();
    let asked =
        topics.iter().map(|t| (t.topic.clone(), t.partitions.iter().map(|p| p.index).collect::<Vec<_>>())).collect();
    let commit = CommitOffsets {
        version,
        group_id: request.group_id,
        generation: request.generation_id_or_member_epoch,
        member_id: request.member_id,
        instance_id: request.group_instance_id,
        retention_time_ms: request.retention_time_ms,
        topics,
    };
    Ok(Step::Wait(command(work, GroupCommand::CommitOffsets(commit)), Box::new(Committing { asked })))
}

/// A commit that waits for its reply. What was asked serves to say of each partition that nothing could be done.
#[derive(Debug)]
struct Committing {
    asked: Vec<(TopicKey, Vec<i32>)>,
}

impl Pending for Committing {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let results = match answered(reply) {
            Some(Ok(GroupReply::CommitOffsets(results))) => results,
            Some(Err(why)) => {
                let error = errors::of_coordinator(why);
                let failed = |(key, partitions): (TopicKey, Vec<i32>)| {
                    let (name, id) = unkey(key);
                    TopicResults { name, id, partitions: partitions.into_iter().map(|p| (p, error)).collect() }
                };
                self.asked.into_iter().map(failed).collect()
            }
            _ => return work.wrong_reply(),
        };
        let topic = |topic: TopicResults| OffsetCommitResponseTopic {
            name: topic.name,
            topic_id: topic.id,
            partitions: topic
                .partitions
                .into_iter()
                .map(|(index, error)| OffsetCommitResponsePartition {
                    partition_index: index,
                    error_code: error.code(),
                })
                .collect(),
        };
        let topics = results.into_iter().map(topic).collect();
        work.answer(&OffsetCommitResponse { topics, ..OffsetCommitResponse::default() })
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Machine
    }
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
    let asked = groups.clone();
    let fetch = FetchOffsets { version, groups, require_stable: request.require_stable };
    Ok(Step::Wait(command(work, GroupCommand::FetchOffsets(fetch)), Box::new(Fetching { asked })))
}

/// A fetch of offsets that waits for its reply. What was asked serves to say that nothing could be done.
#[derive(Debug)]
struct Fetching {
    asked: Vec<FetchGroup>,
}

impl Pending for Fetching {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let version = work.head.version;
        let groups = match answered(reply) {
            Some(Ok(GroupReply::FetchOffsets(groups))) => groups,
            Some(Err(why)) => {
                let error = errors::of_coordinator(why);
                self.asked.into_iter().map(|group| failed(group, error, version)).collect()
            }
            _ => return work.wrong_reply(),
        };
        if version >= FETCH_BATCHED_FROM {
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

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Machine
    }
}

/// Nothing could be done for the group. Version 1 has no place for that but at each partition.
fn failed(asked: FetchGroup, error: ErrorCode, version: i16) -> FetchedGroup {
    if version >= FETCH_ERROR_FROM {
        return FetchedGroup { group_id: asked.group_id, error, topics: Vec::new() };
    }
    let topic = |topic: FetchTopic| {
        let (name, id) = unkey(topic.topic);
        let none = |index| FetchedOffset { index, offset: -1, leader_epoch: -1, metadata: StrBytes::new(), error };
        FetchedTopic { name, id, partitions: topic.partitions.into_iter().map(none).collect() }
    };
    let topics = asked.topics.unwrap_or_default().into_iter().map(topic).collect();
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
