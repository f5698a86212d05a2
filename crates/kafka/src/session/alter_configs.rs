//! AlterConfigs and IncrementalAlterConfigs. Rules and texts are Kafka's (`ConfigAdminManager`, `ConfigurationControlManager`).
//!
//! Each resource succeeds or fails separately. The new settings are computed from the current ones; the broker gets both, and applies the
//! change only if the current ones are unchanged (compare-and-set). Otherwise it returns the current ones and the change is computed again,
//! so that concurrent changes are not lost.

use super::errors;
use super::resources::{BROKER, CLIENT_METRICS, GROUP, SetFor, TOPIC, broker_name, config_refusal, layers_of};
use super::topics::{QUEUE_REFUSED, invalid_name, is_queue};
use super::work::{Pending, Step, Work};
use crate::config::{
    ConfigEdit, ConfigOp, Refused, Resource, check_broker, check_client_metrics, check_group, check_topic, edited,
    replaced,
};
use polylogue_api::{
    AlterError, AlterSettings, AlterTopics, ConfigChange, Reply, Request, Settings, SettingsChange, SettingsScope,
    TopicChange, TopicConfig, TopicInfo,
};
use polylogue_auth::Operation;
use polylogue_kafka_codec::alter_configs as legacy;
use polylogue_kafka_codec::incremental_alter_configs as incremental;
use polylogue_kafka_codec::{DecodeError, ErrorCode, Message, Reader, StrBytes};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Attempts of a change after conflicts. Each conflict means that another change succeeded.
const TRIES_MAX: u32 = 100;

/// The requested change of a resource.
#[derive(Debug)]
enum Wanted {
    /// Incremental changes.
    Edits(Vec<ConfigEdit>),
    /// Replaces all settings by these.
    Exactly(Vec<(String, Option<String>)>),
}

impl Wanted {
    fn from(&self, resource: Resource, current: &Settings) -> Result<Settings, Refused> {
        match self {
            Wanted::Edits(edits) => edited(resource, current, edits),
            Wanted::Exactly(configs) => replaced(configs),
        }
    }
}

/// The error of a refused resource, with Kafka's text.
type Refusal = (ErrorCode, StrBytes);

fn refusal(refused: Refused) -> Refusal {
    (refused.code, refused.text.into())
}

/// One resource of a request, and its row in the response.
#[derive(Debug)]
struct Row {
    resource_type: i8,
    resource_name: StrBytes,
    wanted: Wanted,
    state: State,
}

/// A resource to change, with its current settings as far as known.
#[derive(Debug)]
enum State {
    Topic { topic: Arc<TopicInfo>, set: Settings },
    Document { resource: Resource, scope: SettingsScope, set: Settings },
    Done(Result<(), Refusal>),
}

/// A request in progress.
#[derive(Debug)]
struct Altering {
    rows: Vec<Row>,
    validate_only: bool,
    is_incremental: bool,
    tries: u32,
    /// The rows of the last request to the broker, in its order.
    asked: Vec<usize>,
}

pub(super) fn start_incremental(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = incremental::IncrementalAlterConfigsRequest::decode(body, work.head.version)?;
    let rows = request.resources.into_iter().map(|resource| {
        let mut edits = Vec::with_capacity(resource.configs.len());
        let mut unknown = None;
        for config in resource.configs {
            match ConfigOp::from_code(config.config_operation) {
                Some(op) => edits.push(ConfigEdit {
                    name: config.name.to_string(),
                    op,
                    value: config.value.map(|value| value.to_string()),
                }),
                None => unknown = Some(config.config_operation),
            }
        }
        let wanted = Wanted::Edits(edits);
        let state = match unknown {
            Some(op) => {
                let text = format!("Unknown operations type {op}");
                State::Done(Err((ErrorCode::InvalidRequest, text.into())))
            }
            None => State::Done(Ok(())),
        };
        Row { resource_type: resource.resource_type, resource_name: resource.resource_name, wanted, state }
    });
    let altering = Altering {
        rows: rows.collect(),
        validate_only: request.validate_only,
        is_incremental: true,
        tries: 0,
        asked: Vec::new(),
    };
    Ok(altering.begin(work))
}

pub(super) fn start_legacy(work: &mut Work<'_>, body: &mut Reader) -> Result<Step, DecodeError> {
    let request = legacy::AlterConfigsRequest::decode(body, work.head.version)?;
    let rows = request.resources.into_iter().map(|resource| {
        let configs = resource.configs.into_iter();
        let configs = configs.map(|config| (config.name.to_string(), config.value.map(|value| value.to_string())));
        Row {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            wanted: Wanted::Exactly(configs.collect()),
            state: State::Done(Ok(())),
        }
    });
    let altering = Altering {
        rows: rows.collect(),
        validate_only: request.validate_only,
        is_incremental: false,
        tries: 0,
        asked: Vec::new(),
    };
    Ok(altering.begin(work))
}

impl Altering {
    fn begin(mut self, work: &mut Work<'_>) -> Step {
        let mut times = BTreeMap::<(i8, StrBytes), u32>::new();
        for row in &self.rows {
            *times.entry((row.resource_type, row.resource_name.clone())).or_default() += 1;
        }
        for row in &mut self.rows {
            if times.get(&(row.resource_type, row.resource_name.clone())).is_some_and(|times| *times > 1) {
                let text = StrBytes::from_static("Each resource must appear at most once.");
                row.state = State::Done(Err((ErrorCode::InvalidRequest, text)));
            } else if matches!(row.state, State::Done(Ok(()))) {
                row.state = found(work, row).unwrap_or_else(|why| State::Done(Err(why)));
            }
        }
        Box::new(self).go_on(work)
    }

    /// Sends what is left to do: topics first, then documents.
    fn go_on(mut self: Box<Self>, work: &mut Work<'_>) -> Step {
        let mut topics = Vec::new();
        let mut documents = Vec::new();
        self.asked.clear();
        let topics_open = self.rows.iter().any(|row| matches!(row.state, State::Topic { .. }));
        for (at, row) in self.rows.iter_mut().enumerate() {
            let planned = match &row.state {
                State::Topic { topic, set } => plan_topic(work, &row.wanted, topic, set).map(|new| {
                    let config = ConfigChange { expected: set.clone(), config: new };
                    topics.push(TopicChange { topic: topic.id, config: Some(config), partitions: None });
                }),
                State::Document { resource, scope, set } if !topics_open => {
                    plan_document(work, &row.wanted, *resource, scope, set).map(|settings| {
                        let (scope, expected) = (scope.clone(), set.clone());
                        documents.push(SettingsChange { scope, expected, settings });
                    })
                }
                State::Document { .. } | State::Done(_) => continue,
            };
            match planned {
                Ok(()) => self.asked.push(at),
                Err(why) => row.state = State::Done(Err(why)),
            }
        }
        let validate_only = self.validate_only;
        if !topics.is_empty() {
            let token = work.ask(Request::AlterTopics(AlterTopics { changes: topics, validate_only }));
            return Step::Wait(token, self);
        }
        if !documents.is_empty() {
            let token = work.ask(Request::AlterSettings(AlterSettings { changes: documents, validate_only }));
            return Step::Wait(token, self);
        }
        if self.rows.iter().any(|row| matches!(row.state, State::Document { .. })) {
            // All topics were refused: continue with the documents.
            return self.go_on(work);
        }
        self.answer(work)
    }

    fn answer(self, work: &Work<'_>) -> Step {
        let done = |row: Row| {
            let error = match row.state {
                State::Done(Err((code, text))) => (code, Some(text)),
                _ => (ErrorCode::None, None),
            };
            (row.resource_type, row.resource_name, error)
        };
        let rows = self.rows.into_iter().map(done);
        if self.is_incremental {
            let row = |(resource_type, resource_name, (error, error_message)): (i8, StrBytes, (ErrorCode, _))| {
                let error_code = error.code();
                incremental::AlterConfigsResourceResponse { error_code, error_message, resource_type, resource_name }
            };
            let responses = rows.map(row).collect();
            return work.answer(&incremental::IncrementalAlterConfigsResponse {
                responses,
                ..incremental::IncrementalAlterConfigsResponse::default()
            });
        }
        let row = |(resource_type, resource_name, (error, error_message)): (i8, StrBytes, (ErrorCode, _))| {
            let error_code = error.code();
            legacy::AlterConfigsResourceResponse { error_code, error_message, resource_type, resource_name }
        };
        let responses = rows.map(row).collect();
        work.answer(&legacy::AlterConfigsResponse { responses, ..legacy::AlterConfigsResponse::default() })
    }
}

impl Pending for Altering {
    fn on_reply(mut self: Box<Self>, work: &mut Work<'_>, reply: Reply) -> Step {
        let (Reply::AlterTopics(results) | Reply::AlterSettings(results)) = reply else { return work.wrong_reply() };
        if results.len() != self.asked.len() {
            return work.wrong_reply();
        }
        self.tries += 1;
        let again = self.tries < TRIES_MAX;
        for (result, at) in results.into_iter().zip(std::mem::take(&mut self.asked)) {
            let Some(row) = self.rows.get_mut(at) else { continue };
            match (result, &mut row.state) {
                (Err(AlterError::Conflict(current)), State::Topic { set, .. } | State::Document { set, .. })
                    if again =>
                {
                    *set = current.settings;
                }
                // Another client deleted the topic meanwhile. A new topic of that name is the one to change.
                (Err(AlterError::UnknownTopic), State::Topic { topic, set })
                    if again && let Some(other) = another(work, topic) =>
                {
                    (*set, *topic) = (other.config.raw.clone(), other);
                }
                (Err(error), _) => row.state = State::Done(Err(errors::of_alter(&error, &row.resource_name))),
                (Ok(()), _) => row.state = State::Done(Ok(())),
            }
        }
        self.go_on(work)
    }
}

/// Returns a topic with the name of a deleted one.
fn another(work: &Work<'_>, gone: &TopicInfo) -> Option<Arc<TopicInfo>> {
    work.catalog.topic(&gone.name).filter(|topic| topic.id != gone.id && !is_queue(topic))
}

/// Returns the resource of a row with its current settings.
fn found(work: &Work<'_>, row: &Row) -> Result<State, Refusal> {
    let name = &row.resource_name;
    if let Some(refusal) = config_refusal(work, Operation::AlterConfigs, row.resource_type, name) {
        return Err(refusal);
    }
    let invalid = |text: &'static str| (ErrorCode::InvalidRequest, StrBytes::from_static(text));
    let document = |resource, scope: SettingsScope| {
        let set = Settings::clone(&work.catalog.settings(&scope));
        Ok(State::Document { resource, scope, set })
    };
    match row.resource_type {
        TOPIC => found_topic(work, row),
        BROKER => match broker_name(work, name, SetFor::Change)? {
            None => document(Resource::Cluster, SettingsScope::Cluster),
            Some(node) => document(Resource::Broker, SettingsScope::Node(node)),
        },
        GROUP if name.is_empty() => Err(invalid("Default group resources are not allowed.")),
        GROUP => document(Resource::Group, SettingsScope::Group(name.to_string())),
        CLIENT_METRICS if name.is_empty() => Err(invalid("Subscription name can't be empty")),
        CLIENT_METRICS => document(Resource::ClientMetrics, SettingsScope::ClientMetrics(name.to_string())),
        other => Err((ErrorCode::InvalidRequest, format!("Unknown resource type {other}").into())),
    }
}

fn found_topic(work: &Work<'_>, row: &Row) -> Result<State, Refusal> {
    let name = &row.resource_name;
    if name.is_empty() {
        let text = StrBytes::from_static("Default topic resources are not allowed.");
        return Err((ErrorCode::InvalidRequest, text));
    }
    if let Some(text) = invalid_name(name) {
        return Err((ErrorCode::InvalidTopicException, text.into()));
    }
    if let Some(topic) = work.catalog.topic(name) {
        if is_queue(&topic) {
            return Err((ErrorCode::InvalidTopicException, StrBytes::from_static(QUEUE_REFUSED)));
        }
        let set = topic.config.raw.clone();
        return Ok(State::Topic { topic, set });
    }
    // As in Kafka, the change is validated before the topic is looked up.
    let nothing = TopicConfig { raw: Settings::new(), ..work.settings.topic_defaults.clone() };
    let new = row.wanted.from(Resource::Topic, &nothing.raw).map_err(refusal)?;
    check_topic(work.settings, &nothing, &new).map_err(refusal)?;
    Err(errors::of_alter(&AlterError::UnknownTopic, name))
}

fn plan_topic(work: &Work<'_>, wanted: &Wanted, topic: &TopicInfo, set: &Settings) -> Result<TopicConfig, Refusal> {
    let new = wanted.from(Resource::Topic, set).map_err(refusal)?;
    let now = TopicConfig { raw: set.clone(), ..TopicConfig::clone(&topic.config) };
    check_topic(work.settings, &now, &new).map_err(refusal)
}

fn plan_document(
    work: &Work<'_>,
    wanted: &Wanted,
    resource: Resource,
    scope: &SettingsScope,
    set: &Settings,
) -> Result<Settings, Refusal> {
    let new = wanted.from(resource, set).map_err(refusal)?;
    let documents = layers_of(work);
    let layers = documents.layers();
    match (resource, scope) {
        (Resource::Group, _) => check_group(&new, layers),
        (Resource::ClientMetrics, _) => check_client_metrics(&new),
        _ => check_broker(resource, &new, layers, &work.settings.fixed),
    }
    .map_err(refusal)
}
