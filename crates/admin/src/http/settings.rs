//! `/api/v1/settings`, and changes of topics. Both are carried out by Kafka requests, so that the same rules apply.

use super::App;
use super::ask;
use super::error::Failure;
use crate::api::settings::{AlterTopic, ChangeSettings, SettingValue, SettingsList};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use polylogue_kafka::config::{ConfigOp, ConfigSource};
use polylogue_kafka_codec::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use polylogue_kafka_codec::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use polylogue_kafka_codec::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The versions of the Kafka requests that are sent: the newest.
const DESCRIBE_CONFIGS_VERSION: i16 = 4;
const ALTER_CONFIGS_VERSION: i16 = 1;
const CREATE_PARTITIONS_VERSION: i16 = 3;

/// Kafka's `ConfigResource.Type`.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

/// The timeout in Kafka requests; responses arrive when the change is done. Milliseconds.
const TIMEOUT_MS: i32 = 15_000;

/// The resource of settings: Kafka's type and name.
struct Resource(i8, String);

impl Resource {
    /// Returns the resource for `cluster` or `node`.
    fn of_broker(app: &App, scope: &str) -> Result<Resource, Failure> {
        match scope {
            "cluster" => Ok(Resource(BROKER, String::new())),
            "node" => Ok(Resource(BROKER, app.broker.catalog().cluster().node.to_string())),
            other => Err(Failure::not_found(format!("unknown scope {other}: use cluster or node"))),
        }
    }

    /// Returns the resource for a name in `groups` or `client-metrics`.
    fn named(scope: &str, name: String) -> Result<Resource, Failure> {
        match scope {
            "groups" => Ok(Resource(GROUP, name)),
            "client-metrics" => Ok(Resource(CLIENT_METRICS, name)),
            other => Err(Failure::not_found(format!("unknown scope {other}: use groups or client-metrics"))),
        }
    }
}

pub(super) async fn of_broker(
    State(app): State<Arc<App>>,
    Path(scope): Path<String>,
) -> Result<Json<SettingsList>, Failure> {
    show(&app, Resource::of_broker(&app, &scope)?).await
}

pub(super) async fn of_named(
    State(app): State<Arc<App>>,
    Path((scope, name)): Path<(String, String)>,
) -> Result<Json<SettingsList>, Failure> {
    show(&app, Resource::named(&scope, name)?).await
}

pub(super) async fn change_broker(
    State(app): State<Arc<App>>,
    Path(scope): Path<String>,
    body: Result<Json<ChangeSettings>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let resource = Resource::of_broker(&app, &scope)?;
    let Json(ChangeSettings { set, delete, validate_only }) = body?;
    change(&app, resource, set, delete, validate_only).await
}

pub(super) async fn change_named(
    State(app): State<Arc<App>>,
    Path((scope, name)): Path<(String, String)>,
    body: Result<Json<ChangeSettings>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let resource = Resource::named(&scope, name)?;
    let Json(ChangeSettings { set, delete, validate_only }) = body?;
    change(&app, resource, set, delete, validate_only).await
}

/// `PATCH /topics/NAME`. Adding partitions is validated before any config is changed.
pub(super) async fn alter_topic(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    body: Result<Json<AlterTopic>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(AlterTopic { set, delete, partitions, validate_only }) = body?;
    if let Some(count) = partitions {
        grow(&app, &name, count, true).await?;
    }
    if !set.is_empty() || !delete.is_empty() {
        change(&app, Resource(TOPIC, name.clone()), set, delete, validate_only).await?;
    }
    match partitions {
        Some(count) if !validate_only => grow(&app, &name, count, false).await,
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

async fn grow(app: &App, name: &str, count: u32, validate_only: bool) -> Result<StatusCode, Failure> {
    let count = i32::try_from(count).map_err(|_| Failure::invalid(format!("{count} partitions are too many")))?;
    let topics = vec![CreatePartitionsTopic { name: name.into(), count, assignments: None }];
    let request = CreatePartitionsRequest { topics, timeout_ms: TIMEOUT_MS, validate_only };
    let response = ask::kafka(app, CREATE_PARTITIONS_VERSION, &request).await?;
    let result = response.results.first().ok_or_else(no_answer)?;
    outcome(result.error_code, result.error_message.as_deref())
}

async fn change(
    app: &App,
    Resource(resource_type, name): Resource,
    set: BTreeMap<String, String>,
    delete: Vec<String>,
    validate_only: bool,
) -> Result<StatusCode, Failure> {
    let config = |name: String, op: ConfigOp, value: Option<String>| AlterableConfig {
        name: name.into(),
        config_operation: op.code(),
        value: value.map(Into::into),
    };
    let set = set.into_iter().map(|(name, value)| config(name, ConfigOp::Set, Some(value)));
    let delete = delete.into_iter().map(|name| config(name, ConfigOp::Delete, None));
    let configs = set.chain(delete).collect();
    let resources = vec![AlterConfigsResource { resource_type, resource_name: name.into(), configs }];
    let request = IncrementalAlterConfigsRequest { resources, validate_only };
    let response = ask::kafka(app, ALTER_CONFIGS_VERSION, &request).await?;
    let result = response.responses.first().ok_or_else(no_answer)?;
    outcome(result.error_code, result.error_message.as_deref())
}

async fn show(app: &App, Resource(resource_type, name): Resource) -> Result<Json<SettingsList>, Failure> {
    let resources =
        vec![DescribeConfigsResource { resource_type, resource_name: name.into(), configuration_keys: None }];
    let request = DescribeConfigsRequest { resources, include_synonyms: false, include_documentation: true };
    let response = ask::kafka(app, DESCRIBE_CONFIGS_VERSION, &request).await?;
    let result = response.results.into_iter().next().ok_or_else(no_answer)?;
    outcome(result.error_code, result.error_message.as_deref())?;
    let settings = result.configs.into_iter().map(|config| SettingValue {
        name: config.name.to_string(),
        value: config.value.map(|value| value.to_string()),
        source: ConfigSource::from_code(config.config_source).map_or("UNKNOWN", ConfigSource::name).to_owned(),
        read_only: config.read_only,
        sensitive: config.is_sensitive,
        doc: config.documentation.map(|doc| doc.to_string()).unwrap_or_default(),
    });
    Ok(Json(SettingsList { settings: settings.collect() }))
}

fn no_answer() -> Failure {
    Failure::internal("the broker returned an empty result".to_owned())
}

fn outcome(code: i16, message: Option<&str>) -> Result<StatusCode, Failure> {
    match Failure::of_kafka(code, message) {
        Some(failure) => Err(failure),
        None => Ok(StatusCode::NO_CONTENT),
    }
}
