//! `/api/v1/topics`.

use super::App;
use super::ask;
use super::error::Failure;
use super::page::Page;
use crate::api::{NewTopic, Partition, Topic, TopicConfigEntry, TopicSummary, Topics};
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use polylogue_amqp_gateway::QueuesAsTopics;
use polylogue_api::{Catalog as _, Durability, TopicInfo};
use polylogue_kafka::config::{Effect, Source, topic_config_values};
use polylogue_kafka_codec::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use polylogue_kafka_codec::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use polylogue_net::handle::PartitionStatus;
use schemars::JsonSchema;
use serde::Deserialize;
use std::borrow::Cow;
use std::sync::Arc;

/// The versions of the Kafka requests that are sent: the newest.
const CREATE_TOPICS_VERSION: i16 = 7;
const DELETE_TOPICS_VERSION: i16 = 6;

/// Query of the list; all topics without.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Only topics whose name contains this, ignoring case.
    #[serde(default)]
    search: String,
    /// Number of topics to skip.
    #[serde(default)]
    offset: usize,
    /// Maximum number of topics.
    limit: Option<usize>,
    /// Only internal topics, or only the others.
    internal: Option<bool>,
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Topics>, Failure> {
    let Query(Wanted { search, offset, limit, internal }) = query.map_err(|e| Failure::invalid(e.body_text()))?;
    let topics = app.broker.catalog().topics();
    let topics = topics.into_iter().filter(|topic| internal.is_none_or(|internal| topic.internal == internal));
    let (topics, total) = Page::new(&search, offset, limit).cut(topics, |topic| Cow::Borrowed(&*topic.name));
    Ok(Json(Topics { topics: topics.iter().map(|topic| summary(&app, topic)).collect(), total }))
}

pub(super) async fn describe(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Json<Topic>, Failure> {
    // By the name that clients know: a queue is a topic to them, too.
    let catalog = QueuesAsTopics::new(app.broker.catalog(), app.directory.clone());
    let topic = catalog.topic(&name).ok_or_else(|| Failure::unknown_topic(&name))?;
    Ok(Json(in_full(&app, &topic)))
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    body: Result<Json<NewTopic>, JsonRejection>,
) -> Result<(StatusCode, Json<Topic>), Failure> {
    let Json(wanted) = body?;
    let validate_only = wanted.validate_only;
    let partitions = match wanted.partitions {
        // Kafka's value for the broker's default.
        None => -1,
        Some(count) => {
            i32::try_from(count).map_err(|_| Failure::invalid(format!("{count} partitions are too many")))?
        }
    };
    let config = |(name, value): (&String, &String)| CreatableTopicConfig {
        name: name.as_str().into(),
        value: Some(value.as_str().into()),
    };
    let topic = CreatableTopic {
        name: wanted.name.as_str().into(),
        num_partitions: partitions,
        replication_factor: -1,
        configs: wanted.config.iter().map(config).collect(),
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], validate_only, ..CreateTopicsRequest::default() };
    let response = ask::kafka(&app, CREATE_TOPICS_VERSION, &request).await?;
    let missing = || Failure::internal("the broker returned no topic".to_owned());
    let result = response.topics.first().ok_or_else(missing)?;
    if let Some(failure) = Failure::of_kafka(result.error_code, result.error_message.as_deref()) {
        return Err(failure);
    }
    if validate_only {
        let topic = Topic {
            name: wanted.name,
            id: result.topic_id.to_string(),
            internal: false,
            partitions: Vec::new(),
            config: Vec::new(),
        };
        return Ok((StatusCode::OK, Json(topic)));
    }
    // It may have been deleted meanwhile.
    let topic = app.broker.catalog().topic(&wanted.name).ok_or_else(|| Failure::unknown_topic(&wanted.name))?;
    Ok((StatusCode::CREATED, Json(in_full(&app, &topic))))
}

pub(super) async fn delete(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    let state = DeleteTopicState { name: Some(name.as_str().into()), ..DeleteTopicState::default() };
    let request = DeleteTopicsRequest { topics: vec![state], ..DeleteTopicsRequest::default() };
    let response = ask::kafka(&app, DELETE_TOPICS_VERSION, &request).await?;
    let result = response.responses.first();
    let result = result.ok_or_else(|| Failure::internal("the broker returned no topic".to_owned()))?;
    match Failure::of_topic(&name, result.error_code, result.error_message.as_deref()) {
        Some(failure) => Err(failure),
        None => Ok(StatusCode::NO_CONTENT),
    }
}

fn summary(app: &App, topic: &TopicInfo) -> TopicSummary {
    let of = |sum: fn(&PartitionStatus) -> u64| {
        let status = topic.partitions.iter().filter_map(|info| app.broker.partition_status(info.id));
        status.map(|status| sum(&status)).sum()
    };
    TopicSummary {
        messages: of(|status| status.high_watermark.0.saturating_sub(status.log_start.0)),
        bytes: of(|status| status.bytes),
        name: topic.name.to_string(),
        id: topic.id.to_string(),
        partitions: topic.partitions.len(),
        durability: durability(topic.config.durability).to_owned(),
        internal: topic.internal,
    }
}

fn durability(durability: Durability) -> &'static str {
    match durability {
        Durability::Sync => "sync",
        Durability::Async => "async",
        Durability::Memory => "memory",
    }
}

fn in_full(app: &App, topic: &TopicInfo) -> Topic {
    let partition = |(number, info): (usize, &polylogue_api::PartitionInfo)| {
        let status = app.broker.partition_status(info.id);
        Partition {
            partition: number,
            id: info.id.0,
            leader_epoch: info.leader_epoch,
            log_start: status.map(|s| s.log_start.0),
            high_watermark: status.map(|s| s.high_watermark.0),
            bytes: status.map(|s| s.bytes),
        }
    };
    let config = topic_config_values(&topic.config).into_iter().map(|entry| TopicConfigEntry {
        name: entry.def.name.to_owned(),
        value: entry.value,
        source: match entry.source {
            Source::Topic => "topic",
            Source::Broker => "broker",
            Source::Default => "default",
        }
        .to_owned(),
        has_effect: entry.def.effect == Effect::Full,
    });
    Topic {
        name: topic.name.to_string(),
        id: topic.id.to_string(),
        internal: topic.internal,
        partitions: topic.partitions.iter().enumerate().map(partition).collect(),
        config: config.collect(),
    }
}
