//! `/api/v1/groups`.

mod reset;

pub(super) use reset::reset;

use super::App;
use super::ask;
use super::error::Failure;
use crate::api::{Assignment, Group, GroupOffset, GroupSummary, Groups, Member};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use bytes::Bytes;
use polylogue_kafka::codec::consumer_protocol_assignment::ConsumerProtocolAssignment;
use polylogue_kafka::codec::{ErrorCode, Message, Reader};
use polylogue_kafka::groups::command::{
    DeleteGroups, DescribeGroups, DescribedGroup, DescribedMember, FetchGroup, FetchOffsets, FetchedTopic,
    GroupCommand, GroupReply, GroupState, ListGroups,
};
use std::sync::Arc;

/// The versions of Kafka's requests whose rules hold: the newest.
const DESCRIBE_VERSION: i16 = 6;
const FETCH_VERSION: i16 = 10;
/// The protocol type whose assignments can be read.
const CONSUMER: &str = "consumer";

fn surprise() -> Failure {
    Failure::internal("the coordinator answers something else".to_owned())
}

pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json<Groups>, Failure> {
    let command = GroupCommand::List(ListGroups { states: Vec::new(), types: Vec::new() });
    let GroupReply::List(found) = ask::groups(&app, command).await? else { return Err(surprise()) };
    let found = found.map_err(|error| Failure::of_kafka(error.code(), None).unwrap_or_else(surprise))?;
    let groups = found.iter().map(|group| GroupSummary {
        group: group.group_id.to_string(),
        state: group.state.name().to_owned(),
        protocol_type: group.protocol_type.to_string(),
    });
    Ok(Json(Groups { groups: groups.collect() }))
}

/// What DescribeGroups says of a group.
async fn described(app: &App, name: &str) -> Result<DescribedGroup, Failure> {
    let describe = DescribeGroups { version: DESCRIBE_VERSION, groups: vec![name.into()] };
    let GroupReply::Describe(found) = ask::groups(app, GroupCommand::Describe(describe)).await? else {
        return Err(surprise());
    };
    found.into_iter().next().ok_or_else(surprise)
}

/// The state of a group; `Dead` for one that is not there.
async fn state_of(app: &App, name: &str) -> Result<GroupState, Failure> {
    let group = described(app, name).await?;
    match group.error {
        ErrorCode::GroupIdNotFound => Ok(GroupState::Dead),
        error => match Failure::of_kafka(error.code(), group.error_message.as_deref()) {
            Some(failure) => Err(failure),
            None => Ok(group.state),
        },
    }
}

pub(super) async fn delete(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    let delete = DeleteGroups { groups: vec![name.as_str().into()] };
    let GroupReply::Delete(results) = ask::groups(&app, GroupCommand::Delete(delete)).await? else {
        return Err(surprise());
    };
    let (_, error) = results.first().ok_or_else(surprise)?;
    match error {
        ErrorCode::None => Ok(StatusCode::NO_CONTENT),
        ErrorCode::GroupIdNotFound => Err(Failure::unknown_group(&name)),
        ErrorCode::NonEmptyGroup => Err(Failure::group_not_empty(format!(
            "Group '{name}' could not be deleted: The group is not empty. Stop its members first."
        ))),
        other => Err(Failure::of_kafka(other.code(), None).unwrap_or_else(surprise)),
    }
}

pub(super) async fn describe(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Json<Group>, Failure> {
    let group = described(&app, &name).await?;
    if group.error == ErrorCode::GroupIdNotFound || group.state == GroupState::Dead {
        return Err(Failure::unknown_group(&name));
    }
    if let Some(failure) = Failure::of_kafka(group.error.code(), group.error_message.as_deref()) {
        return Err(failure);
    }
    let fetch = FetchGroup { group_id: name.as_str().into(), member_id: None, member_epoch: -1, topics: None };
    let fetch = FetchOffsets { version: FETCH_VERSION, groups: vec![fetch], require_stable: false };
    let GroupReply::FetchOffsets(fetched) = ask::groups(&app, GroupCommand::FetchOffsets(fetch)).await? else {
        return Err(surprise());
    };
    let fetched = fetched.first().ok_or_else(surprise)?;
    if let Some(failure) = Failure::of_kafka(fetched.error.code(), None) {
        return Err(failure);
    }
    Ok(Json(Group {
        group: name,
        state: group.state.name().to_owned(),
        protocol_type: group.protocol_type.to_string(),
        protocol: group.protocol_name.to_string(),
        members: group.members.iter().map(|m| member(m, &group.protocol_type)).collect(),
        offsets: fetched.topics.iter().flat_map(|topic| offsets(&app, topic)).collect(),
    }))
}

fn member(member: &DescribedMember, protocol_type: &str) -> Member {
    Member {
        member: member.member_id.to_string(),
        instance: member.instance_id.as_ref().map(ToString::to_string),
        client: member.client_id.to_string(),
        host: member.client_host.to_string(),
        assignment: if protocol_type == CONSUMER { assignment(&member.assignment) } else { Vec::new() },
    }
}

/// What the leader wrote, if it is what leaders of consumer groups write: a version, and the assignment in it. It is not
/// ours to complain about anything else.
fn assignment(bytes: &Bytes) -> Vec<Assignment> {
    let mut reader = Reader::new(bytes.clone());
    let Ok(version) = reader.i16("ConsumerProtocolAssignment.Version") else { return Vec::new() };
    let version = version.min(*ConsumerProtocolAssignment::VERSIONS.end());
    let Ok(assignment) = ConsumerProtocolAssignment::decode(&mut reader, version) else { return Vec::new() };
    let topics = assignment.assigned_partitions.into_iter();
    topics.map(|t| Assignment { topic: t.topic.to_string(), partitions: t.partitions }).collect()
}

fn offsets(app: &App, topic: &FetchedTopic) -> Vec<GroupOffset> {
    let living = app.broker.catalog().topic_by_id(topic.id).or_else(|| app.broker.catalog().topic(&topic.name));
    let committed = topic.partitions.iter().filter(|p| p.error == ErrorCode::None && p.offset >= 0);
    committed
        .map(|partition| {
            let info = usize::try_from(partition.index)
                .ok()
                .and_then(|index| living.as_ref().and_then(|topic| topic.partitions.get(index)));
            let status = info.and_then(|info| app.broker.partition_status(info.id));
            let high_watermark = status.map(|s| s.high_watermark.0);
            GroupOffset {
                topic: topic.name.to_string(),
                partition: partition.index,
                offset: partition.offset,
                high_watermark,
                lag: high_watermark.map(|end| end.saturating_sub(partition.offset.unsigned_abs())),
                metadata: partition.metadata.to_string(),
            }
        })
        .collect()
}
