//! DescribeConfigs and ListConfigResources. Rules and texts are Kafka's (`ConfigHelper`).

use super::errors::with_message;
use super::resources::{
    BROKER, CLIENT_METRICS, Documents, GROUP, SetFor, TOPIC, broker_name, config_refusal, layers_of,
};
use super::topics::{invalid_name, node_id, owned};
use super::work::{Step, Work};
use crate::config::{
    ConfigEntry, ConfigSynonym, Facts, describe_broker, describe_client_metrics, describe_cluster, describe_group,
    describe_topic,
};
use polylogue_api::{Settings, SettingsScope};
use polylogue_auth::Operation;
use polylogue_kafka_codec::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult, DescribeConfigsSynonym,
};
use polylogue_kafka_codec::list_config_resources::{
    ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse,
};
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use std::collections::BTreeSet;

/// The maximum number of configs in a response: all those of 14,000 topics. Further resources are refused; Kafka has no limit.
const ENTRIES_MAX: usize = 500_000;

/// Kafka's `ConfigResource.Type.BROKER_LOGGER`: a valid type without resources here.
const BROKER_LOGGER: i8 = 8;

type Refusal = (ErrorCode, StrBytes);

/// What the response includes for each config.
#[derive(Clone, Copy, Debug)]
struct Wants {
    synonyms: bool,
    documentation: bool,
}

pub(super) fn start(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = DescribeConfigsRequest::decode(body, work.head.version)?;
    let wants = Wants { synonyms: request.include_synonyms, documentation: request.include_documentation };
    let documents = layers_of(work);
    let mut left = ENTRIES_MAX;
    let describe = |resource: DescribeConfigsResource| {
        let described = if left == 0 { Err(too_many()) } else { described(work, &resource, &documents) };
        let described = described.and_then(|entries| match left.checked_sub(entries.len()) {
            Some(rest) => {
                left = rest;
                Ok(entries)
            }
            None => {
                // Further resources are refused without a lookup.
                left = 0;
                Err(too_many())
            }
        });
        let (error_code, error_message, configs) = match described {
            Ok(entries) => {
                let configs = entries.into_iter().map(|entry| config(entry, wants)).collect();
                (ErrorCode::None.code(), None, configs)
            }
            Err((error, text)) => (error.code(), Some(text), Vec::new()),
        };
        DescribeConfigsResult {
            error_code,
            error_message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            configs,
        }
    };
    let results = request.resources.into_iter().map(describe).collect();
    Ok(work.answer(&DescribeConfigsResponse { results, ..DescribeConfigsResponse::default() }))
}

fn too_many() -> Refusal {
    let text = format!("One response tells of {ENTRIES_MAX} configs at the most: ask for fewer resources.");
    (ErrorCode::InvalidRequest, text.into())
}

fn described(
    work: &Work<'_>,
    resource: &DescribeConfigsResource,
    documents: &Documents,
) -> Result<Vec<ConfigEntry>, Refusal> {
    let name = &resource.resource_name;
    let keys: BTreeSet<&str> = resource.configuration_keys.iter().flatten().map(|key| &**key).collect();
    let wanted = |name: &str| keys.is_empty() || keys.contains(name);
    let layers = documents.layers();
    if let Some(refusal) = config_refusal(work, Operation::DescribeConfigs, resource.resource_type, name) {
        return Err(refusal);
    }
    let invalid = |text: &'static str| (ErrorCode::InvalidRequest, StrBytes::from_static(text));
    match resource.resource_type {
        TOPIC => {
            if let Some(text) = invalid_name(name) {
                return Err((ErrorCode::InvalidTopicException, text.into()));
            }
            let topic = work.catalog.topic(name).ok_or_else(|| with_message(ErrorCode::UnknownTopicOrPartition))?;
            Ok(describe_topic(&topic.config, layers, &wanted))
        }
        BROKER => Ok(match broker_name(work, name, SetFor::Look)? {
            None => describe_cluster(documents.cluster(), &wanted),
            Some(_) => describe_broker(&facts(work), layers, &wanted),
        }),
        GROUP if name.is_empty() => Err(invalid("Group name must not be empty")),
        GROUP => {
            let document = work.catalog.settings(&SettingsScope::Group(name.to_string()));
            Ok(describe_group(&document, layers, &wanted))
        }
        CLIENT_METRICS if name.is_empty() => Err(invalid("Client metrics subscription name must not be empty")),
        CLIENT_METRICS => {
            let document = work.catalog.settings(&SettingsScope::ClientMetrics(name.to_string()));
            Ok(describe_client_metrics(&document, &wanted))
        }
        BROKER_LOGGER => Err(invalid("Unsupported resource type: BROKER_LOGGER")),
        other => {
            let text = format!("Unexpected resource type UNKNOWN ({other}) for resource {name}");
            Err((ErrorCode::InvalidRequest, text.into()))
        }
    }
}

/// Returns read-only settings of Kafka that are derived here.
fn facts(work: &Work<'_>) -> Facts {
    let node = node_id(&work.catalog.cluster()).to_string();
    let listener = &work.peer.listener;
    // An internal session has no listener.
    let at = match listener.port {
        0 => String::new(),
        port => format!("PLAINTEXT://{}:{port}", listener.host),
    };
    let fact = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let values: Settings = [
        ("advertised.listeners", at.as_str()),
        ("broker.id", node.as_str()),
        ("listeners", at.as_str()),
        ("log.dirs", work.settings.fixed.data_dir.as_str()),
        ("node.id", node.as_str()),
        ("process.roles", "broker,controller"),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(fact)
    .collect();
    Facts { values }
}

fn config(entry: ConfigEntry, wants: Wants) -> DescribeConfigsResourceResult {
    let synonym = |said: ConfigSynonym| DescribeConfigsSynonym {
        name: said.name.into(),
        value: said.value.map(StrBytes::from),
        source: said.source.code(),
    };
    let synonyms = if wants.synonyms { entry.synonyms } else { Vec::new() };
    DescribeConfigsResourceResult {
        name: entry.name.into(),
        value: entry.value.map(StrBytes::from),
        read_only: entry.read_only,
        config_source: entry.source.code(),
        is_sensitive: entry.sensitive,
        synonyms: synonyms.into_iter().map(synonym).collect(),
        config_type: entry.kind.code(),
        documentation: wants.documentation.then(|| StrBytes::from_static(entry.doc)),
    }
}

/// The first version with types in the request; before, it lists client metrics subscriptions only.
const TYPES_FROM: i16 = 1;
const LISTED_TYPES: [i8; 5] = [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];

pub(super) fn start_list(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let version = work.head.version;
    let request = ListConfigResourcesRequest::decode(body, version)?;
    if !work.may_cluster(Operation::DescribeConfigs) {
        let error_code = ErrorCode::ClusterAuthorizationFailed.code();
        return Ok(work.answer(&ListConfigResourcesResponse { error_code, ..ListConfigResourcesResponse::default() }));
    }
    let supported = if version < TYPES_FROM { &[CLIENT_METRICS][..] } else { &LISTED_TYPES };
    if request.resource_types.iter().any(|wanted| !supported.contains(wanted)) {
        let error_code = ErrorCode::UnsupportedVersion.code();
        return Ok(work.answer(&ListConfigResourcesResponse { error_code, ..ListConfigResourcesResponse::default() }));
    }
    let types: BTreeSet<i8> = if request.resource_types.is_empty() {
        supported.iter().copied()
    } else {
        request.resource_types.iter().copied()
    }
    .collect();
    let mut config_resources = Vec::new();
    let mut list =
        |resource_type, resource_name| config_resources.push(ConfigResource { resource_name, resource_type });
    for scope in work.catalog.settings_scopes() {
        match scope {
            SettingsScope::Group(name) if types.contains(&GROUP) => list(GROUP, name.into()),
            SettingsScope::ClientMetrics(name) if types.contains(&CLIENT_METRICS) => list(CLIENT_METRICS, name.into()),
            _ => {}
        }
    }
    if types.contains(&BROKER) {
        list(BROKER, node_id(&work.catalog.cluster()).to_string().into());
    }
    if types.contains(&TOPIC) {
        work.catalog.topics().iter().for_each(|topic| list(TOPIC, owned(&topic.name)));
    }
    Ok(work.answer(&ListConfigResourcesResponse { config_resources, ..ListConfigResourcesResponse::default() }))
}
