//! FindCoordinator: the coordinator of a group, always this node.
//!
//! In Kafka the first lookup of a group creates the topic `__consumer_offsets`, and tools and clients look for it. Here it is created, too, as
//! an ordinary, empty topic: committed offsets are records of the group coordinator's own.

use super::topics::{OFFSETS_TOPIC, node_id};
use super::work::{Pending, Step, Work};
use crate::config::parse_topic_config;
use crate::settings::KafkaSettings;
use polylogue_api::{CreateTopics, NewTopic, Reply, Request};
use polylogue_auth::Operation;
use polylogue_kafka_codec::find_coordinator::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};

/// The first version with several keys.
const BATCHED_FROM: i16 = 4;
/// The first version with share group coordinators.
const SHARE_FROM: i16 = 6;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

/// Default of `offsets.topic.segment.bytes`. Bytes.
const OFFSETS_SEGMENT_BYTES: &str = "104857600";

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = FindCoordinatorRequest::decode(body, work.head.version)?;
    let mut keys = request.coordinator_keys.iter().chain((work.head.version < BATCHED_FROM).then_some(&request.key));
    let may_find_one = keys.any(|key| may_find(work, request.key_type, key));
    if request.key_type == GROUP
        && may_find_one
        && work.catalog.topic(OFFSETS_TOPIC).is_none()
        && let Some(topic) = offsets_topic(work.settings)
    {
        let token = work.ask(Request::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false }));
        return Ok(Step::Wait(token, Box::new(Creating { request })));
    }
    Ok(answer(work, request))
}

/// Returns the offsets topic as Kafka creates it (`GroupCoordinatorService.groupMetadataTopicConfigs`). `None` if the broker's
/// defaults contradict that; groups work without it.
fn offsets_topic(settings: &KafkaSettings) -> Option<NewTopic> {
    let segment = settings.fixed.raw.get("offsets.topic.segment.bytes").map_or(OFFSETS_SEGMENT_BYTES, String::as_str);
    let set = [("cleanup.policy", "compact"), ("compression.type", "producer"), ("segment.bytes", segment)];
    let set = set.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let config = parse_topic_config(&settings.topic_defaults, &set).ok()?;
    Some(NewTopic {
        name: OFFSETS_TOPIC.to_owned(),
        partitions: settings.offsets_partitions.max(1),
        config,
        internal: true,
    })
}

/// Waits for the creation of the offsets topic. Its result is ignored: no group needs the topic.
#[derive(Debug)]
struct Creating {
    request: FindCoordinatorRequest,
}

impl Pending for Creating {
    fn on_reply(self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let Reply::CreateTopics(_) = reply else { return work.wrong_reply() };
        answer(work, self.request)
    }
}

fn answer(work: &Work<'_>, request: FindCoordinatorRequest) -> Step {
    let version = work.head.version;
    let key_type = request.key_type;
    let refused = |key: &str| match may_find(work, key_type, key) {
        true => refusal(key_type, version),
        false => Some(not_allowed(key_type)),
    };
    let found = |key: StrBytes| match refused(&key) {
        None => Coordinator {
            key,
            node_id: node_id(&work.catalog.cluster()),
            host: work.peer.listener.host.clone(),
            port: i32::from(work.peer.listener.port),
            ..Coordinator::default()
        },
        Some((error, text)) => Coordinator {
            key,
            node_id: -1,
            port: -1,
            error_code: error.code(),
            error_message: Some(StrBytes::from_static(text)),
            ..Coordinator::default()
        },
    };
    if version >= BATCHED_FROM {
        let coordinators = request.coordinator_keys.into_iter().map(found).collect();
        return work.answer(&FindCoordinatorResponse { coordinators, ..FindCoordinatorResponse::default() });
    }
    let Coordinator { node_id, host, port, error_code, error_message, .. } = found(request.key);
    let response = FindCoordinatorResponse {
        error_code,
        error_message,
        node_id,
        host,
        port,
        ..FindCoordinatorResponse::default()
    };
    work.answer(&response)
}

/// Whether the client may look up the coordinator of this key.
fn may_find(work: &Work<'_>, key_type: i8, key: &str) -> bool {
    match key_type {
        GROUP => work.may_group(Operation::Describe, key),
        TRANSACTION => work.may_transactional_id(Operation::Describe, key),
        SHARE => work.may_cluster(Operation::ClusterAction),
        _ => true,
    }
}

/// Returns the authorization error for a key type.
fn not_allowed(key_type: i8) -> (ErrorCode, &'static str) {
    let error = match key_type {
        GROUP => ErrorCode::GroupAuthorizationFailed,
        TRANSACTION => ErrorCode::TransactionalIdAuthorizationFailed,
        _ => ErrorCode::ClusterAuthorizationFailed,
    };
    (error, error.message())
}

/// Returns the error for unsupported coordinators. For transactions it is the one error that clients treat as final: `librdkafka`
/// retries on all others until its timeout. (Only brokers look up share group coordinators.)
fn refusal(key_type: i8, version: i16) -> Option<(ErrorCode, &'static str)> {
    match key_type {
        GROUP => None,
        TRANSACTION => {
            Some((ErrorCode::TransactionalIdAuthorizationFailed, "Transactions are not supported by this broker."))
        }
        SHARE if version >= SHARE_FROM => {
            Some((ErrorCode::CoordinatorNotAvailable, "Share groups are not supported by this broker."))
        }
        _ => Some((ErrorCode::InvalidRequest, "There is no coordinator of this type.")),
    }
}
