//! The requests of these clients, and the decoding of their responses.

use super::{Asked, BROKER_KEY, Kind, TOPIC_KEY};
use crate::clients::{commit_request, fetch_commit_request};
use crate::connection::{Connection, Response};
use crate::oracle::{NOTHING, Place};
use polylogue_kafka_codec::{
    StrBytes, alter_configs, create_partitions, delete_groups, delete_records, describe_configs,
    incremental_alter_configs, list_groups, list_offsets, metadata, offset_commit, offset_delete, offset_fetch,
};

/// Resource types of the config requests.
const OF_TOPIC: i8 = 2;
const OF_BROKER: i8 = 4;
/// Sources of a value in DescribeConfigs: the topic, or a default for all brokers.
const SET_FOR_TOPIC: i8 = 1;
const SET_FOR_CLUSTER: i8 = 3;
/// Operations of IncrementalAlterConfigs.
const SET: i8 = 0;
const DELETE: i8 = 1;
/// The timestamp for the first offset in ListOffsets.
const EARLIEST: i64 = -2;
/// Timeout in requests. Not used by the broker here. Milliseconds.
const TIMEOUT_MS: i32 = 30_000;

/// Sends a request. Returns its correlation id.
pub(super) fn send(kind: &Kind, asked: Asked, to: &mut Connection) -> Result<i32, String> {
    let value = if let Asked::Change(value) = asked { Some(value) } else { None };
    match (kind, asked) {
        (Kind::TopicConfig { topic, .. }, Asked::Look | Asked::List) => {
            to.send(4, &describe(OF_TOPIC, topic, TOPIC_KEY))
        }
        (Kind::TopicConfig { topic, legacy: true }, _) => to.send(2, &replace(topic, value)),
        (Kind::TopicConfig { topic, legacy: false }, _) => to.send(1, &alter(OF_TOPIC, topic, TOPIC_KEY, value)),
        (Kind::BrokerConfig, Asked::Look | Asked::List) => to.send(4, &describe(OF_BROKER, "", BROKER_KEY)),
        (Kind::BrokerConfig, _) => to.send(1, &alter(OF_BROKER, "", BROKER_KEY, value)),
        (Kind::Partitions { topic }, Asked::Change(count)) => to.send(3, &grow(topic, count)),
        (Kind::Partitions { topic }, _) => to.send(12, &topic_named(topic)),
        (Kind::LogStart { place }, Asked::Change(offset)) => to.send(2, &trim(place, offset)),
        (Kind::LogStart { place }, _) => to.send(7, &earliest(place)),
        (Kind::Group { .. }, Asked::List) => to.send(4, &list_groups::ListGroupsRequest::default()),
        (Kind::Group { group, place }, Asked::Look) => to.send(8, &fetch_commit_request(group, place)),
        (Kind::Group { group, place }, Asked::Change(offset)) => to.send(8, &commit_request(group, place, offset)),
        (Kind::Group { group, place }, Asked::Forget) => to.send(0, &forget(group, place)),
        (Kind::Group { group, .. }, Asked::DeleteGroup) => {
            let groups_names = vec![group.as_str().into()];
            to.send(2, &delete_groups::DeleteGroupsRequest { groups_names })
        }
    }
}

/// The error of a change of settings or partitions.
pub(super) fn refusal(kind: &Kind, response: Response) -> Result<i16, String> {
    let error = match kind {
        Kind::TopicConfig { legacy: true, .. } => {
            let response: alter_configs::AlterConfigsResponse = response.decode()?;
            response.responses.first().map(|row| row.error_code)
        }
        Kind::TopicConfig { .. } | Kind::BrokerConfig => {
            let response: incremental_alter_configs::IncrementalAlterConfigsResponse = response.decode()?;
            response.responses.first().map(|row| row.error_code)
        }
        _ => {
            let response: create_partitions::CreatePartitionsResponse = response.decode()?;
            response.results.first().map(|row| row.error_code)
        }
    };
    error.ok_or_else(|| format!("{kind:?}: an answer that says nothing"))
}

/// Returns the settings or partitions; none if they are not in the response.
pub(super) fn looked(kind: &Kind, response: Response) -> Result<Option<i64>, String> {
    let source = match kind {
        Kind::TopicConfig { .. } => SET_FOR_TOPIC,
        Kind::BrokerConfig => SET_FOR_CLUSTER,
        _ => {
            let response: metadata::MetadataResponse = response.decode()?;
            let topic = response.topics.first().filter(|topic| topic.error_code == 0);
            return Ok(topic.and_then(|topic| i64::try_from(topic.partitions.len()).ok()));
        }
    };
    let response: describe_configs::DescribeConfigsResponse = response.decode()?;
    let Some(result) = response.results.first().filter(|result| result.error_code == 0) else { return Ok(None) };
    let set = result.configs.first().filter(|config| config.config_source == source);
    let Some(set) = set else { return Ok(Some(NOTHING)) };
    let value = set.value.as_deref().unwrap_or_default();
    value.parse().map(Some).map_err(|_| format!("{kind:?}: {value:?} is no number"))
}

/// Returns the names of all groups; none if they are not in the response.
pub(super) fn listed(response: Response) -> Result<Option<Vec<String>>, String> {
    let response: list_groups::ListGroupsResponse = response.decode()?;
    let names = response.groups.iter().map(|group| group.group_id.to_string());
    Ok((response.error_code == 0).then(|| names.collect()))
}

/// Returns the committed offset of a group; none if it is not in the response.
pub(super) fn committed(place: &Place, response: Response) -> Result<Option<i64>, String> {
    let response: offset_fetch::OffsetFetchResponse = response.decode()?;
    let Some(group) = response.groups.first().filter(|group| group.error_code == 0) else { return Ok(None) };
    let partition = group.topics.first().and_then(|topic| topic.partitions.first());
    let partition = partition.ok_or_else(|| format!("{place:?}: no partition"))?;
    Ok((partition.error_code == 0).then_some(partition.committed_offset))
}

/// The error of a commit.
pub(super) fn commit_refusal(response: Response) -> Result<i16, String> {
    let response: offset_commit::OffsetCommitResponse = response.decode()?;
    let row = response.topics.first().and_then(|topic| topic.partitions.first());
    row.map(|row| row.error_code).ok_or_else(|| "a commit without a partition".to_owned())
}

/// The error of a deletion of offsets.
pub(super) fn offset_delete_refusal(response: Response) -> Result<i16, String> {
    let response: offset_delete::OffsetDeleteResponse = response.decode()?;
    if response.error_code != 0 {
        return Ok(response.error_code);
    }
    let row = response.topics.first().and_then(|topic| topic.partitions.first());
    row.map(|row| row.error_code).ok_or_else(|| "a deletion of offsets without a partition".to_owned())
}

/// The error of a deletion of a group.
pub(super) fn delete_refusal(response: Response) -> Result<i16, String> {
    let response: delete_groups::DeleteGroupsResponse = response.decode()?;
    response.results.first().map(|row| row.error_code).ok_or_else(|| "a deletion without a group".to_owned())
}

fn describe(resource_type: i8, name: &str, key: &str) -> describe_configs::DescribeConfigsRequest {
    let resource = describe_configs::DescribeConfigsResource {
        resource_type,
        resource_name: name.into(),
        configuration_keys: Some(vec![key.into()]),
    };
    describe_configs::DescribeConfigsRequest { resources: vec![resource], ..Default::default() }
}

fn alter(
    resource_type: i8,
    name: &str,
    key: &str,
    value: Option<i64>,
) -> incremental_alter_configs::IncrementalAlterConfigsRequest {
    let config = incremental_alter_configs::AlterableConfig {
        name: key.into(),
        config_operation: if value.is_some() { SET } else { DELETE },
        value: value.map(|value| StrBytes::from(value.to_string())),
    };
    let resource = incremental_alter_configs::AlterConfigsResource {
        resource_type,
        resource_name: name.into(),
        configs: vec![config],
    };
    incremental_alter_configs::IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false }
}

fn replace(topic: &str, value: Option<i64>) -> alter_configs::AlterConfigsRequest {
    let config = |value: i64| alter_configs::AlterableConfig {
        name: TOPIC_KEY.into(),
        value: Some(StrBytes::from(value.to_string())),
    };
    let resource = alter_configs::AlterConfigsResource {
        resource_type: OF_TOPIC,
        resource_name: topic.into(),
        configs: value.map(config).into_iter().collect(),
    };
    alter_configs::AlterConfigsRequest { resources: vec![resource], validate_only: false }
}

fn grow(topic: &str, count: i64) -> create_partitions::CreatePartitionsRequest {
    let topic = create_partitions::CreatePartitionsTopic {
        name: topic.into(),
        count: i32::try_from(count).unwrap_or(i32::MAX),
        assignments: None,
    };
    create_partitions::CreatePartitionsRequest { topics: vec![topic], timeout_ms: TIMEOUT_MS, validate_only: false }
}

fn topic_named(topic: &str) -> metadata::MetadataRequest {
    let topic = metadata::MetadataRequestTopic { name: Some(topic.into()), ..Default::default() };
    metadata::MetadataRequest { topics: Some(vec![topic]), ..Default::default() }
}

fn trim(place: &Place, offset: i64) -> delete_records::DeleteRecordsRequest {
    let partition = delete_records::DeleteRecordsPartition { partition_index: place.1, offset };
    let topic = delete_records::DeleteRecordsTopic { name: place.0.as_str().into(), partitions: vec![partition] };
    delete_records::DeleteRecordsRequest { topics: vec![topic], timeout_ms: TIMEOUT_MS }
}

/// Returns the log start of a partition.
pub(crate) fn earliest(place: &Place) -> list_offsets::ListOffsetsRequest {
    let partition =
        list_offsets::ListOffsetsPartition { partition_index: place.1, current_leader_epoch: -1, timestamp: EARLIEST };
    let topic = list_offsets::ListOffsetsTopic { name: place.0.as_str().into(), partitions: vec![partition] };
    list_offsets::ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() }
}

fn forget(group: &str, place: &Place) -> offset_delete::OffsetDeleteRequest {
    let partition = offset_delete::OffsetDeleteRequestPartition { partition_index: place.1 };
    let topic = offset_delete::OffsetDeleteRequestTopic { name: place.0.as_str().into(), partitions: vec![partition] };
    offset_delete::OffsetDeleteRequest { group_id: group.into(), topics: vec![topic] }
}
