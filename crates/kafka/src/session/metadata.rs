//! Metadata: topics, their partitions, and the broker.

use super::create_topics::PARTITIONS_PER_REQUEST_MAX;
use super::operations::{CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS};
use super::topics::{Collisions, invalid_name, is_reserved, node_id, owned};
use super::work::{Pending, Step, Work};
use polylogue_api::{CreateTopics, CreatedTopic, NewTopic, Reply, Request, TopicConfig, TopicError, TopicInfo};
use polylogue_auth::{CLUSTER_RESOURCE, Operation, ResourceKind};
use polylogue_kafka_codec::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use polylogue_types::TopicId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The first version with lookup by id.
const BY_ID_FROM: i16 = 12;

/// The requested topics.
#[derive(Debug)]
enum Asked {
    All,
    Ids(Vec<TopicId>),
    Names(Vec<StrBytes>),
}

/// The part of the request that the response depends on.
#[derive(Debug)]
struct Question {
    asked: Asked,
    topic_operations: bool,
    cluster_operations: bool,
    /// Unknown topics that the client may not create, though a request creates topics.
    not_to_create: BTreeSet<StrBytes>,
}

/// The results of creations, by name.
type Created = BTreeMap<StrBytes, Result<Arc<TopicInfo>, ErrorCode>>;

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = MetadataRequest::decode(body, version)?;
    // All topics: null, and in version 0, which had no null, an empty list.
    let topics = request.topics.filter(|topics| version > 0 || !topics.is_empty());
    if let Some(topics) = &topics
        && version < BY_ID_FROM
        && topics.iter().any(|topic| topic.name.is_none() || !topic.topic_id.is_zero())
    {
        return Ok(refuse(work, topics));
    }
    let mut question = Question {
        asked: asked(topics),
        not_to_create: BTreeSet::new(),
        topic_operations: request.include_topic_authorized_operations,
        cluster_operations: request.include_cluster_authorized_operations,
    };
    // Before version 4 every request allowed creation.
    let create = work.settings.auto_create_topics && (version < 4 || request.allow_auto_topic_creation);
    let missing = if create { missing(work, &question.asked) } else { Vec::new() };
    let (missing, not_allowed): (Vec<_>, Vec<_>) = missing.into_iter().partition(|name| work.may_create_topic(name));
    question.not_to_create = not_allowed.into_iter().collect();
    if missing.is_empty() {
        return Ok(answer(work, &question, &Created::new()));
    }
    let config = TopicConfig { raw: BTreeMap::new(), ..work.settings.topic_defaults.clone() };
    let new = |name: &StrBytes| NewTopic {
        name: String::from(&**name),
        partitions: work.settings.partitions_default.max(1),
        config: config.clone(),
        internal: false,
    };
    let topics = missing.iter().map(new).collect();
    let token = work.ask(Request::CreateTopics(CreateTopics { topics, validate_only: false }));
    Ok(Step::Wait(token, Box::new(Creating { question, names: missing })))
}

/// Returns each topic once, in the order of the request. One id makes it a request by ids, whose names are ignored.
fn asked(topics: Option<Vec<MetadataRequestTopic>>) -> Asked {
    let Some(topics) = topics else { return Asked::All };
    if topics.iter().any(|topic| !topic.topic_id.is_zero()) {
        let ids = topics.iter().map(|topic| topic.topic_id).filter(|id| !id.is_zero());
        return Asked::Ids(each_once(ids));
    }
    Asked::Names(each_once(topics.into_iter().filter_map(|topic| topic.name)))
}

fn each_once<T: Ord + Clone>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = BTreeSet::new();
    items.filter(|item| seen.insert(item.clone())).collect()
}

/// Returns the unknown topics to create, up to the limit for one request. Others stay unknown, and clients
/// retry.
fn missing(work: &Work<'_>, asked: &Asked) -> Vec<StrBytes> {
    let Asked::Names(names) = asked else { return Vec::new() };
    let reserved = |name: &str| is_reserved(name) || work.catalog.is_reserved(name);
    let creatable = |name: &&StrBytes| {
        work.catalog.topic(name).is_none()
            && !reserved(name)
            && invalid_name(name).is_none()
            && work.may_topic(Operation::Describe, name)
    };
    let mut missing: Vec<StrBytes> = names.iter().filter(creatable).cloned().collect();
    let collisions = Collisions::of(missing.iter().map(|name| &**name), work.catalog);
    missing.retain(|name| collisions.with(name).is_none());
    let each = u64::from(work.settings.partitions_default.max(1));
    let most = usize::try_from(PARTITIONS_PER_REQUEST_MAX / each).unwrap_or(usize::MAX);
    missing.truncate(most.max(1));
    missing
}

/// Refuses ids in versions 10 and 11, which have the field but do not support lookup by id.
fn refuse(work: &Work<'_>, topics: &[MetadataRequestTopic]) -> Step {
    let error_code = ErrorCode::InvalidRequest.code();
    let row = |topic: &MetadataRequestTopic| MetadataResponseTopic {
        error_code,
        name: Some(topic.name.clone().unwrap_or_default()),
        topic_id: topic.topic_id,
        ..MetadataResponseTopic::default()
    };
    let topics = topics.iter().map(row).collect();
    work.answer(&MetadataResponse { topics, ..cluster(work) })
}

/// Waits for the creation of unknown topics, so that the client need not retry.
#[derive(Debug)]
struct Creating {
    question: Question,
    names: Vec<StrBytes>,
}

impl Pending for Creating {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::CreateTopics(results) = reply else { return work.wrong_reply() };
        if results.len() != self.names.len() {
            return work.wrong_reply();
        }
        let created = self.names.into_iter().zip(results).map(|(name, result)| {
            let outcome = match result {
                Ok(CreatedTopic { topic }) => Ok(topic),
                // Created by another client.
                Err(TopicError::Exists) => work.catalog.topic(&name).ok_or(ErrorCode::LeaderNotAvailable),
                Err(TopicError::TooManyPartitions { .. }) => Err(ErrorCode::UnknownTopicOrPartition),
                // Clients retry on this code.
                Err(TopicError::Unavailable(_) | TopicError::UnknownName | TopicError::UnknownId) => {
                    Err(ErrorCode::LeaderNotAvailable)
                }
            };
            (name, outcome)
        });
        answer(work, &self.question, &created.collect())
    }
}

fn answer(work: &Work<'_>, question: &Question, created: &Created) -> Step {
    let rows = Rows { work, node: node_id(&work.catalog.cluster()), tells_operations: question.topic_operations };
    let may_see = |name: &str| work.may_topic(Operation::Describe, name);
    let topics = match &question.asked {
        Asked::All => {
            let topics = work.catalog.topics();
            let seen = topics.iter().filter(|topic| may_see(&topic.name));
            seen.map(|topic| rows.topic(owned(&topic.name), topic)).collect()
        }
        Asked::Ids(ids) => ids
            .iter()
            .map(|id| match work.catalog.topic_by_id(*id) {
                // A topic id is not confidential; a name is.
                Some(topic) if !may_see(&topic.name) => rows.refused(None, *id),
                Some(topic) => rows.topic(owned(&topic.name), &topic),
                None => rows.error(None, *id, ErrorCode::UnknownTopicId),
            })
            .collect(),
        Asked::Names(names) => names
            .iter()
            .map(|name| {
                if !may_see(name) || question.not_to_create.contains(name) {
                    return rows.refused(Some(name.clone()), TopicId::ZERO);
                }
                let outcome = match created.get(name) {
                    Some(outcome) => outcome.clone(),
                    None => work.catalog.topic(name).ok_or_else(|| not_there(name)),
                };
                match outcome {
                    Ok(topic) => rows.topic(name.clone(), &topic),
                    Err(error) => rows.error(Some(name.clone()), TopicId::ZERO, error),
                }
            })
            .collect(),
    };
    let response = MetadataResponse {
        topics,
        cluster_authorized_operations: cluster_operations(work, question.cluster_operations),
        ..cluster(work)
    };
    work.answer(&response)
}

/// Returns the error for an unknown topic. (A name that only collides with another is unknown as well.)
fn not_there(name: &str) -> ErrorCode {
    if invalid_name(name).is_none() { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::InvalidTopicException }
}

/// Returns the response without topics: this node, with the address of the listener that the client used.
fn cluster(work: &Work<'_>) -> MetadataResponse {
    let cluster = work.catalog.cluster();
    let node_id = node_id(&cluster);
    let listener = &work.peer.listener;
    MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id,
            host: listener.host.clone(),
            port: i32::from(listener.port),
            rack: None,
        }],
        cluster_id: Some(owned(&cluster.cluster_id)),
        controller_id: node_id,
        ..MetadataResponse::default()
    }
}

/// Returns the operations on the cluster that the client may perform, for clients that may describe it.
pub(super) fn cluster_operations(work: &Work<'_>, are_asked: bool) -> i32 {
    match are_asked {
        false => NOT_ASKED,
        true if work.may_cluster(Operation::Describe) => {
            work.operations(ResourceKind::Cluster, CLUSTER_RESOURCE, CLUSTER_OPERATIONS)
        }
        true => 0,
    }
}

/// Builds the rows of topics.
struct Rows<'w, 'a> {
    work: &'w Work<'a>,
    node: i32,
    tells_operations: bool,
}

impl Rows<'_, '_> {
    fn operations(&self, name: Option<&str>) -> i32 {
        match name {
            _ if !self.tells_operations => NOT_ASKED,
            Some(name) => self.work.operations(ResourceKind::Topic, name, TOPIC_OPERATIONS),
            None => TOPIC_OPERATIONS,
        }
    }

    /// Returns the row of a topic hidden from the client.
    fn refused(&self, name: Option<StrBytes>, topic_id: TopicId) -> MetadataResponseTopic {
        MetadataResponseTopic {
            topic_authorized_operations: NOT_ASKED,
            ..self.error(name, topic_id, ErrorCode::TopicAuthorizationFailed)
        }
    }

    fn topic(&self, name: StrBytes, topic: &TopicInfo) -> MetadataResponseTopic {
        let partition = |(index, leader_epoch): (i32, i32)| MetadataResponsePartition {
            partition_index: index,
            leader_id: self.node,
            leader_epoch,
            replica_nodes: vec![self.node],
            isr_nodes: vec![self.node],
            ..MetadataResponsePartition::default()
        };
        MetadataResponseTopic {
            topic_authorized_operations: self.operations(Some(&name)),
            name: Some(name),
            topic_id: topic.id,
            is_internal: topic.internal,
            partitions: (0..).zip(topic.partitions.iter().map(|p| p.leader_epoch)).map(partition).collect(),
            ..MetadataResponseTopic::default()
        }
    }

    fn error(&self, name: Option<StrBytes>, topic_id: TopicId, error: ErrorCode) -> MetadataResponseTopic {
        MetadataResponseTopic {
            error_code: error.code(),
            topic_authorized_operations: self.operations(name.as_deref()),
            name,
            topic_id,
            ..MetadataResponseTopic::default()
        }
    }
}
