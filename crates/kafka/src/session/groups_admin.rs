//! ListGroups, DescribeGroups, DeleteGroups and OffsetDelete: carried to the group coordinator and back.

use super::errors;
use super::groups::{answered, command};
use super::operations::{GROUP_OPERATIONS, NOT_ASKED};
use super::work::{Pending, Step, WaitsFor, Work};
use crate::codec::delete_groups::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse};
use crate::codec::describe_groups::{self, DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroupMember};
use crate::codec::list_groups::{self, ListGroupsRequest, ListGroupsResponse};
use crate::codec::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use crate::codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use crate::groups::GROUP_TYPE;
use crate::groups::command::{
    DeleteGroups, DeleteOffsets, DeleteOffsetsReply, DescribeGroups, DescribedGroup, DescribedMember, GroupCommand,
    GroupReply, ListGroups, ListedGroup, TopicResults,
};
use polylogue_api::Reply;
use std::collections::BTreeSet;

/// A command that waits for its reply, with what of the request it takes to say that nothing could be done.
#[derive(Debug)]
enum Asking {
    List,
    /// The groups, and the operations to be told of each that is there.
    Describe(Vec<StrBytes>, i32),
    Delete(Vec<StrBytes>),
    DeleteOffsets,
}

impl Pending for Asking {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Some(result) = answered(reply) else { return work.wrong_reply() };
        match (*self, result.map_err(errors::of_coordinator)) {
            (Asking::List, Ok(GroupReply::List(Ok(groups)))) => list_response(work, ErrorCode::None, groups),
            (Asking::List, Ok(GroupReply::List(Err(error))) | Err(error)) => list_response(work, error, Vec::new()),
            (Asking::Describe(_, operations), Ok(GroupReply::Describe(groups))) => {
                describe_response(work, groups.into_iter().map(|group| described(group, operations)).collect())
            }
            (Asking::Describe(groups, _), Err(error)) => {
                let failed = |group_id| describe_groups::DescribedGroup {
                    error_code: error.code(),
                    group_id,
                    ..describe_groups::DescribedGroup::default()
                };
                describe_response(work, groups.into_iter().map(failed).collect())
            }
            (Asking::Delete(_), Ok(GroupReply::Delete(results))) => delete_response(work, results),
            (Asking::Delete(groups), Err(error)) => {
                delete_response(work, groups.into_iter().map(|group| (group, error)).collect())
            }
            (Asking::DeleteOffsets, Ok(GroupReply::DeleteOffsets(deleted))) => offset_delete_response(work, deleted),
            (Asking::DeleteOffsets, Err(error)) => {
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
        group_type: StrBytes::from_static(GROUP_TYPE),
    };
    let groups = groups.into_iter().map(row).collect();
    work.answer(&ListGroupsResponse { error_code: error.code(), groups, ..ListGroupsResponse::default() })
}

pub(super) fn start_describe(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = DescribeGroupsRequest::decode(body, version)?;
    let operations = if request.include_authorized_operations { GROUP_OPERATIONS } else { NOT_ASKED };
    let asking = Asking::Describe(request.groups.clone(), operations);
    let describe = DescribeGroups { version, groups: request.groups };
    Ok(Step::Wait(command(work, GroupCommand::Describe(describe)), Box::new(asking)))
}

fn described(group: DescribedGroup, operations: i32) -> describe_groups::DescribedGroup {
    let member = |member: DescribedMember| DescribedGroupMember {
        member_id: member.member_id,
        group_instance_id: member.instance_id,
        client_id: member.client_id,
        client_host: member.client_host,
        member_metadata: member.metadata,
        member_assignment: member.assignment,
    };
    describe_groups::DescribedGroup {
        error_code: group.error.code(),
        error_message: group.error_message,
        group_id: group.group_id,
        group_state: StrBytes::from_static(group.state.name()),
        protocol_type: group.protocol_type,
        protocol_data: group.protocol_name,
        members: group.members.into_iter().map(member).collect(),
        authorized_operations: if group.error == ErrorCode::None { operations } else { NOT_ASKED },
    }
}

fn describe_response(work: &Work<'_>, groups: Vec<describe_groups::DescribedGroup>) -> Step {
    work.answer(&DescribeGroupsResponse { groups, ..DescribeGroupsResponse::default() })
}

pub(super) fn start_delete(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = DeleteGroupsRequest::decode(body, work.head.version)?;
    // a group that is named twice is deleted once, and has one row, as in Kafka
    let mut seen = BTreeSet::new();
    let mut groups = request.groups_names;
    groups.retain(|group| seen.insert(group.clone()));
    let delete = DeleteGroups { groups: groups.clone() };
    Ok(Step::Wait(command(work, GroupCommand::Delete(delete)), Box::new(Asking::Delete(groups))))
}

fn delete_response(work: &Work<'_>, results: Vec<(StrBytes, ErrorCode)>) -> Step {
    let row = |(group_id, error): (StrBytes, ErrorCode)| DeletableGroupResult { group_id, error_code: error.code() };
    let results = results.into_iter().map(row).collect();
    work.answer(&DeleteGroupsResponse { results, ..DeleteGroupsResponse::default() })
}

pub(super) fn start_offset_delete(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = OffsetDeleteRequest::decode(body, work.head.version)?;
    let topics = request.topics.into_iter();
    let topics = topics.map(|t| (t.name, t.partitions.into_iter().map(|p| p.partition_index).collect())).collect();
    let delete = DeleteOffsets { group_id: request.group_id, topics };
    Ok(Step::Wait(command(work, GroupCommand::DeleteOffsets(delete)), Box::new(Asking::DeleteOffsets)))
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
