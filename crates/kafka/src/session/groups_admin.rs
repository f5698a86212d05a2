//! ListGroups, DescribeGroups, DeleteGroups and OffsetDelete: passed to the group coordinator.

use super::errors;
use super::groups::{answered, command};
use super::operations::{GROUP_OPERATIONS, NOT_ASKED};
use super::work::{Pending, Step, WaitsFor, Work};
use polylogue_api::Reply;
use polylogue_auth::{Operation, ResourceKind};
use polylogue_kafka_codec::delete_groups::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse};
use polylogue_kafka_codec::describe_groups::{
    self, DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroupMember,
};
use polylogue_kafka_codec::list_groups::{self, ListGroupsRequest, ListGroupsResponse};
use polylogue_kafka_codec::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use polylogue_kafka_groups::command::{
    DeleteGroups, DeleteOffsets, DeleteOffsetsReply, DescribeGroups, DescribedGroup, DescribedMember, GroupCommand,
    GroupReply, ListGroups, ListedGroup, TopicResults,
};
use polylogue_types::TopicId;
use std::collections::BTreeSet;

/// A command that waits for its reply, with the fields of the request that an error response needs.
#[derive(Debug)]
enum Asking {
    List,
    Describe(Describing),
    /// The groups, and the rows of groups that the client may not delete.
    Delete(Vec<StrBytes>, Vec<(StrBytes, ErrorCode)>),
    /// Rows of topics without read access.
    DeleteOffsets(Vec<TopicResults>),
}

/// A request to describe groups.
#[derive(Debug)]
struct Describing {
    groups: Vec<StrBytes>,
    /// Whether the response includes the operations that the client may perform.
    tells_operations: bool,
    /// Rows of groups without describe access.
    refused: Vec<describe_groups::DescribedGroup>,
}

/// Returns the row of a group with an error.
fn not_described(group_id: StrBytes, error: ErrorCode) -> describe_groups::DescribedGroup {
    describe_groups::DescribedGroup { error_code: error.code(), group_id, ..describe_groups::DescribedGroup::default() }
}

impl Pending for Asking {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Some(result) = answered(reply) else { return work.wrong_reply() };
        match (*self, result.map_err(errors::of_coordinator)) {
            (Asking::List, Ok(GroupReply::List(Ok(mut groups)))) => {
                if !work.may_cluster(Operation::Describe) {
                    groups.retain(|group| work.may_group(Operation::Describe, &group.group_id));
                }
                list_response(work, ErrorCode::None, groups)
            }
            (Asking::List, Ok(GroupReply::List(Err(error))) | Err(error)) => list_response(work, error, Vec::new()),
            (Asking::Describe(asked), Ok(GroupReply::Describe(groups))) => {
                let row = |group| described(work, group, asked.tells_operations);
                describe_response(work, groups.into_iter().map(row).chain(asked.refused).collect())
            }
            (Asking::Describe(asked), Err(error)) => {
                let failed = |group_id| not_described(group_id, error);
                describe_response(work, asked.groups.into_iter().map(failed).chain(asked.refused).collect())
            }
            (Asking::Delete(_, refused), Ok(GroupReply::Delete(results))) => {
                delete_response(work, results.into_iter().chain(refused).collect())
            }
            (Asking::Delete(groups, refused), Err(error)) => {
                delete_response(work, groups.into_iter().map(|group| (group, error)).chain(refused).collect())
            }
            (Asking::DeleteOffsets(refused), Ok(GroupReply::DeleteOffsets(mut deleted))) => {
                // A top-level error has no rows.
                if deleted.error == ErrorCode::None {
                    deleted.topics.extend(refused);
                }
                offset_delete_response(work, deleted)
            }
            (Asking::DeleteOffsets(_), Err(error)) => {
                offset_delete_response(work, DeleteOffsetsReply { error, topics: Vec::new() })
            }
            _ => work.wrong_reply(),
        }
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::Machine
    }
}

pub(super) fn start_list(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = ListGroupsRequest::decode(body, work.head.version)?;
    let list = ListGroups { states: request.states_filter, types: request.types_filter };
    Ok(Step::Wait(command(work, GroupCommand::List(list)), Box::new(Asking::List)))
}

fn list_response(work: &Work<'_>, error: ErrorCode, groups: Vec<ListedGroup>) -> Step {
    let row = |group: ListedGroup| list_groups::ListedGroup {
        group_id: group.group_id,
        protocol_type: group.protocol_type,
        group_state: StrBytes::from_static(group.state.name()),
        group_type: StrBytes::from_static(group.kind.name()),
    };
    let groups = groups.into_iter().map(row).collect();
    work.answer(&ListGroupsResponse { error_code: error.code(), groups, ..ListGroupsResponse::default() })
}

pub(super) fn start_describe(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = DescribeGroupsRequest::decode(body, version)?;
    let (groups, refused): (Vec<_>, Vec<_>) =
        request.groups.into_iter().partition(|group| work.may_group(Operation::Describe, group));
    let refused = refused.into_iter().map(|group| not_described(group, ErrorCode::GroupAuthorizationFailed));
    let refused: Vec<_> = refused.collect();
    if groups.is_empty() && !refused.is_empty() {
        return Ok(describe_response(work, refused));
    }
    let tells_operations = request.include_authorized_operations;
    let asking = Asking::Describe(Describing { groups: groups.clone(), tells_operations, refused });
    let describe = DescribeGroups { version, groups };
    Ok(Step::Wait(command(work, GroupCommand::Describe(describe)), Box::new(asking)))
}

fn described(work: &Work<'_>, group: DescribedGroup, tells_operations: bool) -> describe_groups::DescribedGroup {
    let member = |member: DescribedMember| DescribedGroupMember {
        member_id: member.member_id,
        group_instance_id: member.instance_id,
        client_id: member.client_id,
        client_host: member.client_host,
        member_metadata: member.metadata,
        member_assignment: member.assignment,
    };
    let authorized_operations = if tells_operations && group.error == ErrorCode::None {
        work.operations(ResourceKind::Group, &group.group_id, GROUP_OPERATIONS)
    } else {
        NOT_ASKED
    };
    describe_groups::DescribedGroup {
        error_code: group.error.code(),
        error_message: group.error_message,
        group_id: group.group_id,
        group_state: StrBytes::from_static(group.state.name()),
        protocol_type: group.protocol_type,
        protocol_data: group.protocol_name,
        members: group.members.into_iter().map(member).collect(),
        authorized_operations,
    }
}

fn describe_response(work: &Work<'_>, groups: Vec<describe_groups::DescribedGroup>) -> Step {
    work.answer(&DescribeGroupsResponse { groups, ..DescribeGroupsResponse::default() })
}

pub(super) fn start_delete(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = DeleteGroupsRequest::decode(body, work.head.version)?;
    // As in Kafka, a repeated group is deleted once and has one row.
    let mut seen = BTreeSet::new();
    let mut groups = request.groups_names;
    groups.retain(|group| seen.insert(group.clone()));
    let (groups, refused): (Vec<_>, Vec<_>) =
        groups.into_iter().partition(|group| work.may_group(Operation::Delete, group));
    let refused: Vec<_> = refused.into_iter().map(|group| (group, ErrorCode::GroupAuthorizationFailed)).collect();
    if groups.is_empty() && !refused.is_empty() {
        return Ok(delete_response(work, refused));
    }
    let delete = DeleteGroups { groups: groups.clone() };
    Ok(Step::Wait(command(work, GroupCommand::Delete(delete)), Box::new(Asking::Delete(groups, refused))))
}

fn delete_response(work: &Work<'_>, results: Vec<(StrBytes, ErrorCode)>) -> Step {
    let row = |(group_id, error): (StrBytes, ErrorCode)| DeletableGroupResult { group_id, error_code: error.code() };
    let results = results.into_iter().map(row).collect();
    work.answer(&DeleteGroupsResponse { results, ..DeleteGroupsResponse::default() })
}

pub(super) fn start_offset_delete(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = OffsetDeleteRequest::decode(body, work.head.version)?;
    if !work.may_group(Operation::Delete, &request.group_id) {
        let error = ErrorCode::GroupAuthorizationFailed;
        return Ok(offset_delete_response(work, DeleteOffsetsReply { error, topics: Vec::new() }));
    }
    let (topics, refused): (Vec<_>, Vec<_>) =
        request.topics.into_iter().partition(|topic| work.may_topic(Operation::Read, &topic.name));
    let refused = refused.into_iter().map(|topic| TopicResults {
        name: topic.name,
        id: TopicId::ZERO,
        partitions: topic
            .partitions
            .into_iter()
            .map(|p| (p.partition_index, ErrorCode::TopicAuthorizationFailed))
            .collect(),
    });
    let refused: Vec<_> = refused.collect();
    if topics.is_empty() && !refused.is_empty() {
        return Ok(offset_delete_response(work, DeleteOffsetsReply { error: ErrorCode::None, topics: refused }));
    }
    let topics = topics.into_iter();
    let topics = topics.map(|t| (t.name, t.partitions.into_iter().map(|p| p.partition_index).collect())).collect();
    let delete = DeleteOffsets { group_id: request.group_id, topics };
    Ok(Step::Wait(command(work, GroupCommand::DeleteOffsets(delete)), Box::new(Asking::DeleteOffsets(refused))))
}

fn offset_delete_response(work: &Work<'_>, deleted: DeleteOffsetsReply) -> Step {
    let partition = |(partition_index, error): (i32, ErrorCode)| OffsetDeleteResponsePartition {
        partition_index,
        error_code: error.code(),
    };
    let topic = |topic: TopicResults| OffsetDeleteResponseTopic {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(partition).collect(),
    };
    let response = OffsetDeleteResponse {
        error_code: deleted.error.code(),
        topics: deleted.topics.into_iter().map(topic).collect(),
        ..OffsetDeleteResponse::default()
    };
    work.answer(&response)
}
