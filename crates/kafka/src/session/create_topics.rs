//! CreateTopics. Rules, their order, and texts are Kafka's (`ControllerApis.createTopics`, `ReplicationControlManager.createTopics`), for a
//! cluster of one node.

use super::errors;
use super::topics::{CLUSTER_METADATA, Collisions, invalid_name, is_internal, node_id};
use super::work::{Pending, Step, Work};
use crate::config::{DURABILITY, Source, TopicConfigValue, parse_topic_config, topic_config_values};
use polylogue_api::{CreateTopics, NewTopic, Reply, Request, TopicConfig, TopicError, TopicInfo};
use polylogue_auth::Operation;
use polylogue_kafka_codec::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest,
    CreateTopicsResponse,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use std::collections::{BTreeMap, BTreeSet};

/// Partitions that one request may create (Kafka's `MAX_PARTITIONS_PER_BATCH`).
pub(super) const PARTITIONS_PER_REQUEST_MAX: u64 = 10_000;

/// The first version whose response has the configs of the new topics (KIP-525).
const CONFIGS_FROM: i16 = 5;

/// The error of a refused topic.
type Refusal = (ErrorCode, StrBytes);

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = CreateTopicsRequest::decode(body, work.head.version)?;
    let repeated = repeated(&request.topics);
    let too_many = too_many(&request.topics, work.settings.partitions_default);
    let collisions = Collisions::of(request.topics.iter().map(|topic| &*topic.name), work.catalog);
    let mut response = CreateTopicsResponse::default();
    let mut topics = Vec::new();
    let mut asked = Vec::new();
    for topic in request.topics.iter().filter(|topic| !repeated.contains(&topic.name)) {
        let new = if too_many {
            Err((
                ErrorCode::PolicyViolation,
                StrBytes::from_static("Excessively large number of partitions per request."),
            ))
        } else {
            new_topic(work, topic, &collisions)
        };
        let row = match new {
            Ok(new) => {
                asked.push(response.topics.len());
                topics.push(new);
                CreatableTopicResult {
                    name: topic.name.clone(),
                    error_message: None,
                    ..CreatableTopicResult::default()
                }
            }
            Err((error, text)) => refused(topic.name.clone(), error, text),
        };
        response.topics.push(row);
    }
    for name in repeated {
        response.topics.push(refused(name, ErrorCode::InvalidRequest, StrBytes::from_static("Duplicate topic name.")));
    }
    if topics.is_empty() {
        return Ok(work.answer(&response));
    }
    let creating = topics.iter().map(|new| Creating { partitions: new.partitions, config: new.config.clone() });
    let creating = asked.into_iter().zip(creating).collect();
    let token = work.ask(Request::CreateTopics(CreateTopics { topics, validate_only: request.validate_only }));
    Ok(Step::Wait(token, Box::new(Waiting { response, creating })))
}

fn refused(name: StrBytes, error: ErrorCode, text: StrBytes) -> CreatableTopicResult {
    CreatableTopicResult {
        name,
        error_code: error.code(),
        error_message: Some(text),
        configs: Some(Vec::new()),
        ..CreatableTopicResult::default()
    }
}

/// Names that occur more than once: none is created, and each gets one row.
fn repeated(topics: &[CreatableTopic]) -> BTreeSet<StrBytes> {
    let mut seen = BTreeSet::new();
    topics.iter().map(|topic| &topic.name).filter(|name| !seen.insert(*name)).cloned().collect()
}

fn too_many(topics: &[CreatableTopic], default: u32) -> bool {
    let partitions = |topic: &CreatableTopic| match (topic.assignments.len(), topic.num_partitions) {
        (0, -1) => u64::from(default),
        (0, count) => u64::try_from(count).unwrap_or(0),
        (assigned, _) => assigned as u64,
    };
    topics.iter().map(partitions).fold(0, u64::saturating_add) > PARTITIONS_PER_REQUEST_MAX
}

fn new_topic(work: &Work<'_>, topic: &CreatableTopic, collisions: &Collisions) -> Result<NewTopic, Refusal> {
    let name = &topic.name;
    if !work.may_create_topic(name) {
        return Err(errors::with_message(ErrorCode::TopicAuthorizationFailed));
    }
    if let Some(text) = invalid_name(name) {
        return Err((ErrorCode::InvalidTopicException, text.into()));
    }
    if work.catalog.topic(name).is_some() {
        return Err(errors::of_topic(&TopicError::Exists, name));
    }
    if **name == *CLUSTER_METADATA {
        let text = format!("Creation of internal topic {name} is prohibited.");
        return Err((ErrorCode::InvalidRequest, text.into()));
    }
    if work.catalog.is_reserved(name) {
        let text = format!("Topic names that begin like '{name}' are kept for queues that are read as topics.");
        return Err((ErrorCode::InvalidTopicException, text.into()));
    }
    if let Some(other) = collisions.with(name) {
        let text = format!("Topic '{name}' collides with existing topic: {}", other.name);
        return Err((ErrorCode::InvalidTopicException, text.into()));
    }
    let config = config(work, topic)?;
    let partitions = if topic.assignments.is_empty() {
        counted(topic, work.settings.partitions_default.max(1))?
    } else {
        assigned(topic, node_id(&work.catalog.cluster()))?
    };
    Ok(NewTopic { name: name.to_string(), partitions, config, internal: is_internal(name) })
}

fn config(work: &Work<'_>, topic: &CreatableTopic) -> Result<TopicConfig, Refusal> {
    let nulls: Vec<&str> =
        topic.configs.iter().filter(|config| config.value.is_none()).map(|config| &*config.name).collect();
    if !nulls.is_empty() {
        let text = format!("Null value not supported for topic configs: {}", nulls.join(","));
        return Err((ErrorCode::InvalidConfig, text.into()));
    }
    let set =
        topic.configs.iter().filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string())));
    parse_topic_config(&work.settings.topic_defaults, &set.collect::<BTreeMap<_, _>>())
        .map_err(|error| (ErrorCode::InvalidConfig, error.to_string().into()))
}

/// Returns the number of partitions of a topic without a replica assignment.
fn counted(topic: &CreatableTopic, default: u32) -> Result<u32, Refusal> {
    match topic.replication_factor {
        -1 | 1 => {}
        ..=0 => {
            let text = "Replication factor must be larger than 0, or -1 to use the default value.";
            return Err((ErrorCode::InvalidReplicationFactor, StrBytes::from_static(text)));
        }
        factor => {
            let text = format!(
                "Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot \
                 be reached because only 1 broker(s) are registered or some brokers have all their log directories \
                 cordoned."
            );
            return Err((ErrorCode::InvalidReplicationFactor, text.into()));
        }
    }
    match topic.num_partitions {
        -1 => Ok(default),
        count => u32::try_from(count).ok().filter(|count| *count > 0).ok_or((
            ErrorCode::InvalidPartitions,
            StrBytes::from_static("Number of partitions was set to an invalid non-positive value."),
        )),
    }
}

/// Returns the number of partitions of a topic with a replica assignment, which may name this broker only.
fn assigned(topic: &CreatableTopic, node: i32) -> Result<u32, Refusal> {
    let request = |text: &'static str| (ErrorCode::InvalidRequest, StrBytes::from_static(text));
    if topic.replication_factor != -1 {
        return Err(request("A manual partition assignment was specified, but replication factor was not set to -1."));
    }
    if topic.num_partitions != -1 {
        return Err(request("A manual partition assignment was specified, but numPartitions was not set to -1."));
    }
    let mut seen = BTreeSet::new();
    for assignment in &topic.assignments {
        check_assignment(assignment, node, &mut seen)
            .map_err(|text| (ErrorCode::InvalidReplicaAssignment, text.into()))?;
    }
    if !seen.iter().copied().eq((0..).take(seen.len())) {
        let text = "partitions should be a consecutive 0-based integer sequence";
        return Err((ErrorCode::InvalidReplicaAssignment, StrBytes::from_static(text)));
    }
    Ok(u32::try_from(seen.len()).unwrap_or(u32::MAX))
}

fn check_assignment(
    assignment: &CreatableReplicaAssignment,
    node: i32,
    seen: &mut BTreeSet<i32>,
) -> Result<(), String> {
    let partition = assignment.partition_index;
    if !seen.insert(partition) {
        return Err(format!("Found multiple manual partition assignments for partition {partition}"));
    }
    match assignment.broker_ids.as_slice() {
        [] => Err("The manual partition assignment includes an empty replica list.".to_owned()),
        brokers => match brokers.iter().filter(|broker| **broker != node).min() {
            Some(stranger) => Err(format!(
                "The manual partition assignment includes broker {stranger}, but no such broker is registered."
            )),
            None if brokers.len() > 1 => {
                Err(format!("The manual partition assignment includes the broker {node} more than once."))
            }
            None => Ok(()),
        },
    }
}

/// A request in progress.
#[derive(Debug)]
struct Creating {
    partitions: u32,
    config: TopicConfig,
}

#[derive(Debug)]
struct Waiting {
    response: CreateTopicsResponse,
    /// The rows of the topics being created.
    creating: Vec<(usize, Creating)>,
}

impl Pending for Waiting {
    fn on_reply(mut self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::CreateTopics(results) = reply else { return work.wrong_reply() };
        if results.len() != self.creating.len() {
            return work.wrong_reply();
        }
        for (result, (row, asked)) in results.into_iter().zip(self.creating) {
            let Some(row) = self.response.topics.get_mut(row) else { continue };
            match result {
                Ok(created) => succeed(row, &created.topic, &asked, work),
                Err(error) => {
                    let (error, text) = errors::of_topic(&error, &row.name);
                    *row = refused(row.name.clone(), error, text);
                }
            }
        }
        work.answer(&self.response)
    }
}

fn succeed(row: &mut CreatableTopicResult, topic: &TopicInfo, asked: &Creating, work: &Work<'_>) {
    let config = |value: TopicConfigValue| CreatableTopicConfigs {
        name: StrBytes::from_static(value.def.name),
        value: Some(match value.source {
            Source::Default => StrBytes::from_static(value.def.default),
            Source::Topic | Source::Broker => value.value.into(),
        }),
        read_only: false,
        config_source: source_id(value.source),
        is_sensitive: false,
    };
    row.topic_id = topic.id;
    if work.head.version >= CONFIGS_FROM && !work.may_topic(Operation::DescribeConfigs, &topic.name) {
        row.topic_config_error_code = ErrorCode::TopicAuthorizationFailed.code();
        (row.num_partitions, row.replication_factor, row.configs) = (-1, -1, None);
        return;
    }
    row.num_partitions = i32::try_from(asked.partitions).unwrap_or(i32::MAX);
    row.replication_factor = 1;
    if work.head.version >= CONFIGS_FROM {
        // polylogue's own config is reported only if set: clients know Kafka's configs.
        let reported = |value: &TopicConfigValue| value.def.name != DURABILITY || value.source == Source::Topic;
        row.configs = Some(topic_config_values(&asked.config).into_iter().filter(reported).map(config).collect());
    }
}

/// Kafka's `DescribeConfigsResponse.ConfigSource`.
fn source_id(source: Source) -> i8 {
    match source {
        Source::Topic => 1,
        Source::Broker => 4,
        Source::Default => 5,
    }
}
