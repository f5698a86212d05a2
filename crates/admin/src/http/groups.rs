//! `/api/v1/groups`.

mod reset;

pub(super) use reset::reset;

use super::App;
use super::ask;
use super::error::Failure;
use super::lag;
use super::page::Page;
use crate::api::{Assignment, Group, GroupOffset, GroupSummary, Groups, Member, UncommittedOffset};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use bytes::Bytes;
use polylogue_amqp_gateway::QueuesAsTopics;
use polylogue_api::Catalog as _;
use polylogue_kafka_codec::consumer_protocol_assignment::ConsumerProtocolAssignment;
use polylogue_kafka_codec::{ErrorCode, Message, Reader, StrBytes};
use polylogue_kafka_groups::command::{
    DeleteGroups, DescribeConsumerGroups, DescribeGroups, DescribedConsumerGroup, DescribedConsumerMember,
    DescribedGroup, DescribedMember, DescribedTopic, FetchGroup, FetchOffsets, FetchedGroup, FetchedTopic,
    GroupCommand, GroupKind, GroupReply, GroupState, ListGroups,
};
use polylogue_types::{Offset, PartitionId};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The versions of the Kafka requests that are sent: the newest.
const DESCRIBE_VERSION: i16 = 6;
const FETCH_VERSION: i16 = 10;
/// The protocol type whose assignments can be decoded.
const CONSUMER: &str = "consumer";

fn surprise() -> Failure {
    Failure::internal("unexpected reply from the coordinator".to_owned())
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    query: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Groups>, Failure> {
    let page = Page::of(query)?;
    let command = GroupCommand::List(ListGroups { states: Vec::new(), types: Vec::new() });
    let GroupReply::List(found) = ask::groups(&app, command).await? else { return Err(surprise()) };
    let found = found.map_err(|error| Failure::of_kafka(error.code(), None).unwrap_or_else(surprise))?;
    let (found, total) = page.cut(found, |group| Cow::Borrowed(&*group.group_id));
    let names: Vec<_> = found.iter().map(|group| group.group_id.clone()).collect();
    let of_kind = |kind| found.iter().filter(move |group| group.kind == kind).map(|group| group.group_id.clone());
    let mut members = members_of(&app, of_kind(GroupKind::Classic).collect()).await?;
    members.extend(consumers_of(&app, of_kind(GroupKind::Consumer).collect()).await?);
    let lags = lags_of(&app, names).await?;
    let groups = found.iter().map(|group| GroupSummary {
        group: group.group_id.to_string(),
        state: group.state.name().to_owned(),
        protocol_type: group.protocol_type.to_string(),
        members: members.get(&*group.group_id).copied().unwrap_or(0),
        lag: lags.get(&*group.group_id).copied().unwrap_or(0),
    });
    Ok(Json(Groups { groups: groups.collect(), total }))
}

/// Returns the number of members of each group.
async fn members_of(app: &App, groups: Vec<StrBytes>) -> Result<BTreeMap<String, usize>, Failure> {
    let describe = DescribeGroups { version: DESCRIBE_VERSION, groups };
    let GroupReply::Describe(found) = ask::groups(app, GroupCommand::Describe(describe)).await? else {
        return Err(surprise());
    };
    Ok(found.iter().map(|group| (group.group_id.to_string(), group.members.len())).collect())
}

/// The same of groups of the consumer protocol.
async fn consumers_of(app: &App, groups: Vec<StrBytes>) -> Result<BTreeMap<String, usize>, Failure> {
    if groups.is_empty() {
        return Ok(BTreeMap::new());
    }
    let found = described_consumers(app, groups).await?;
    Ok(found.iter().map(|group| (group.group_id.to_string(), group.members.len())).collect())
}

/// What ConsumerGroupDescribe says of groups.
async fn described_consumers(app: &App, groups: Vec<StrBytes>) -> Result<Vec<DescribedConsumerGroup>, Failure> {
    let describe = GroupCommand::DescribeConsumers(DescribeConsumerGroups { groups });
    let GroupReply::DescribeConsumers(found) = ask::groups(app, describe).await? else { return Err(surprise()) };
    Ok(found)
}

/// A group of the consumer protocol; `None` when there is none of that name.
async fn consumer(app: &App, name: &str) -> Result<Option<DescribedConsumerGroup>, Failure> {
    let group = described_consumers(app, vec![name.into()]).await?.into_iter().next().ok_or_else(surprise)?;
    match group.error {
        ErrorCode::GroupIdNotFound => Ok(None),
        error => match Failure::of_kafka(error.code(), group.error_message.as_deref()) {
            Some(failure) => Err(failure),
            None => Ok(Some(group)),
        },
    }
}

/// Returns the lag of each group, summed over the partitions with committed offsets.
async fn lags_of(app: &App, groups: Vec<StrBytes>) -> Result<BTreeMap<String, u64>, Failure> {
    let fetch = |group_id| FetchGroup { group_id, member_id: None, member_epoch: -1, topics: None };
    let groups = groups.into_iter().map(fetch).collect();
    let fetch = FetchOffsets { version: FETCH_VERSION, groups, require_stable: false };
    let GroupReply::FetchOffsets(fetched) = ask::groups(app, GroupCommand::FetchOffsets(fetch)).await? else {
        return Err(surprise());
    };
    let lag = |group: &FetchedGroup| {
        let all = group.topics.iter().flat_map(|topic| offsets(app, topic));
        (group.group_id.to_string(), all.filter_map(|(offset, _)| offset.lag).sum())
    };
    Ok(fetched.iter().map(lag).collect())
}

/// Returns the committed offsets of a group, with the lag in messages and in time.
pub(super) async fn offsets_of(app: &App, group: StrBytes) -> Result<Vec<GroupOffset>, Failure> {
    let fetch = FetchGroup { group_id: group, member_id: None, member_epoch: -1, topics: None };
    let fetch = FetchOffsets { version: FETCH_VERSION, groups: vec![fetch], require_stable: false };
    let GroupReply::FetchOffsets(fetched) = ask::groups(app, GroupCommand::FetchOffsets(fetch)).await? else {
        return Err(surprise());
    };
    let fetched = fetched.first().ok_or_else(surprise)?;
    if let Some(failure) = Failure::of_kafka(fetched.error.code(), None) {
        return Err(failure);
    }
    let (mut all, ids): (Vec<_>, Vec<_>) = fetched.topics.iter().flat_map(|topic| offsets(app, topic)).unzip();
    let behind = |(at, (offset, id)): (usize, (&GroupOffset, &Option<PartitionId>))| {
        let first = Offset(offset.offset.unsigned_abs());
        offset.lag.filter(|lag| *lag > 0).and(*id).map(|id| (at, (id, first)))
    };
    let behind: Vec<(usize, (PartitionId, Offset))> = all.iter().zip(&ids).enumerate().filter_map(behind).collect();
    let places: Vec<(PartitionId, Offset)> = behind.iter().map(|(_, place)| *place).collect();
    let written = lag::written_ms(app, &places).await;
    for ((at, _), written) in behind.iter().zip(written) {
        if let Some(offset) = all.get_mut(*at) {
            offset.lag_ms = written.map(|ms| lag::age_ms(app, ms));
        }
    }
    for offset in all.iter_mut().filter(|offset| offset.lag == Some(0)) {
        offset.lag_ms = Some(0);
    }
    Ok(all)
}

/// Describes a group by DescribeGroups.
async fn described(app: &App, name: &str) -> Result<DescribedGroup, Failure> {
    let describe = DescribeGroups { version: DESCRIBE_VERSION, groups: vec![name.into()] };
    let GroupReply::Describe(found) = ask::groups(app, GroupCommand::Describe(describe)).await? else {
        return Err(surprise());
    };
    found.into_iter().next().ok_or_else(surprise)
}

/// Returns the state of a group; `Dead` for an unknown one.
async fn state_of(app: &App, name: &str) -> Result<GroupState, Failure> {
    let group = described(app, name).await?;
    match group.error {
        ErrorCode::GroupIdNotFound => Ok(consumer(app, name).await?.map_or(GroupState::Dead, |group| group.state)),
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
        let group = consumer(&app, &name).await?.ok_or_else(|| Failure::unknown_group(&name))?;
        return Ok(Json(of_consumers(&app, group).await?));
    }
    if let Some(failure) = Failure::of_kafka(group.error.code(), group.error_message.as_deref()) {
        return Err(failure);
    }
    let members: Vec<_> = group.members.iter().map(|m| member(m, &group.protocol_type)).collect();
    let offsets = offsets_of(&app, group.group_id.clone()).await?;
    Ok(Json(Group {
        group: name,
        state: group.state.name().to_owned(),
        protocol_type: group.protocol_type.to_string(),
        protocol: group.protocol_name.to_string(),
        uncommitted: uncommitted(&app, &members, &offsets),
        members,
        offsets,
    }))
}

/// Returns the assigned partitions without a committed offset, by topic and number.
fn uncommitted(app: &App, members: &[Member], offsets: &[GroupOffset]) -> Vec<UncommittedOffset> {
    let committed: BTreeSet<(&str, i32)> = offsets.iter().map(|one| (one.topic.as_str(), one.partition)).collect();
    // Queues are topics to consumers.
    let catalog = QueuesAsTopics::new(app.broker.catalog(), app.directory.clone());
    let mut found = BTreeSet::new();
    for assigned in members.iter().flat_map(|member| &member.assignment) {
        let topic = catalog.topic(&assigned.topic);
        for partition in assigned.partitions.iter().filter(|at| !committed.contains(&(assigned.topic.as_str(), **at))) {
            let info = usize::try_from(*partition).ok().and_then(|at| topic.as_ref()?.partitions.get(at));
            let status = info.and_then(|info| app.broker.partition_status(info.id));
            found.insert(UncommittedOffset {
                topic: assigned.topic.clone(),
                partition: *partition,
                high_watermark: status.map(|s| s.high_watermark.0),
                lag: status.map(|s| s.high_watermark.0.saturating_sub(s.log_start.0)),
            });
        }
    }
    found.into_iter().collect()
}

/// A group of the consumer protocol, as the interface shows groups. Its protocol is the assignor.
async fn of_consumers(app: &App, group: DescribedConsumerGroup) -> Result<Group, Failure> {
    let members: Vec<_> = group.members.iter().map(consumer_member).collect();
    let offsets = offsets_of(app, group.group_id.clone()).await?;
    Ok(Group {
        group: group.group_id.to_string(),
        state: group.state.name().to_owned(),
        protocol_type: CONSUMER.to_owned(),
        protocol: group.assignor.to_string(),
        uncommitted: uncommitted(app, &members, &offsets),
        members,
        offsets,
    })
}

fn consumer_member(member: &DescribedConsumerMember) -> Member {
    let assigned =
        |topic: &DescribedTopic| Assignment { topic: topic.name.to_string(), partitions: topic.partitions.clone() };
    Member {
        member: member.member_id.to_string(),
        instance: member.instance_id.as_ref().map(ToString::to_string),
        client: member.client_id.to_string(),
        host: member.client_host.to_string(),
        assignment: member.assigned.iter().map(assigned).collect(),
    }
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

/// Decodes an assignment written by the leader of a consumer group: a version, and the assignment. Other content is allowed
/// and yields an empty list.
fn assignment(bytes: &Bytes) -> Vec<Assignment> {
    let mut reader = Reader::new(bytes.clone());
    let Ok(version) = reader.i16("ConsumerProtocolAssignment.Version") else { return Vec::new() };
    let version = version.min(*ConsumerProtocolAssignment::VERSIONS.end());
    let Ok(assignment) = ConsumerProtocolAssignment::decode(&mut reader, version) else { return Vec::new() };
    let topics = assignment.assigned_partitions.into_iter();
    topics.map(|t| Assignment { topic: t.topic.to_string(), partitions: t.partitions }).collect()
}

/// Returns the committed offsets, with the ids of partitions that exist.
fn offsets(app: &App, topic: &FetchedTopic) -> Vec<(GroupOffset, Option<PartitionId>)> {
    let living = app.broker.catalog().topic_by_id(topic.id).or_else(|| app.broker.catalog().topic(&topic.name));
    let committed = topic.partitions.iter().filter(|p| p.error == ErrorCode::None && p.offset >= 0);
    committed
        .map(|partition| {
            let info = usize::try_from(partition.index)
                .ok()
                .and_then(|index| living.as_ref().and_then(|topic| topic.partitions.get(index)));
            let status = info.and_then(|info| app.broker.partition_status(info.id));
            let high_watermark = status.map(|s| s.high_watermark.0);
            let offset = GroupOffset {
                topic: topic.name.to_string(),
                partition: partition.index,
                offset: partition.offset,
                high_watermark,
                lag: high_watermark.map(|end| end.saturating_sub(partition.offset.unsigned_abs())),
                lag_ms: None,
                metadata: partition.metadata.to_string(),
            };
            (offset, info.map(|info| info.id))
        })
        .collect()
}
