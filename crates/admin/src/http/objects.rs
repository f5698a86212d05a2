//! `GET /metrics/objects?of=groups,topics,queues`: metrics of single groups, topics and queues, for those who want them and pay for them.

use super::App;
use super::ask;
use super::error::Failure;
use super::groups::offsets_of;
use super::metrics::{OPEN_METRICS, registry};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use polylogue_amqp_model::Queue;
use polylogue_kafka::groups::command::{GroupCommand, GroupReply, ListGroups};
use polylogue_net::declared;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Objects of each kind that are shown, of groups the pairs of one and a topic; the number of the others is shown.
pub(super) const OBJECTS_MAX: usize = 1_000;
/// How that is shown.
pub(super) const LEFT_OUT: &str =
    "Pairs of a group and a topic, topics and queues left out of this answer, which has at most 1,000 of each kind";

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// `groups`, `topics`, `queues`, with commas between them; all without.
    of: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGroup {
    group: String,
    topic: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfTopic {
    topic: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQueue {
    vhost: String,
    queue: String,
}

/// A number of each object.
type Numbers<L> = Family<L, Gauge<u64, AtomicU64>>;

fn surprise() -> Failure {
    Failure::internal("the coordinator answers something else".to_owned())
}

pub(super) async fn metrics(
    State(app): State<Arc<App>>,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Failure> {
    let Query(Wanted { of }) = query.map_err(|e| Failure::invalid(e.body_text()))?;
    let mut registry = registry();
    let mut left_out = 0;
    for kind in of.as_deref().unwrap_or("groups,topics,queues").split(',') {
        left_out += match kind {
            "groups" => groups(&app, &mut registry).await?,
            "topics" => topics(&app, &mut registry),
            "queues" => queues(&app, &mut registry).await?,
            other => {
                return Err(Failure::invalid(format!("there are no metrics of {other}: use groups, topics or queues")));
            }
        };
    }
    registry.register("objects_left_out", LEFT_OUT, ConstGauge::new(left_out as u64));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|e| Failure::internal(format!("the metrics cannot be written: {e}")))?;
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

/// How far groups are behind. How many pairs of a group and a topic are left out; a group that is not asked counts as one.
async fn groups(app: &App, registry: &mut Registry) -> Result<usize, Failure> {
    let command = GroupCommand::List(ListGroups { states: Vec::new(), types: Vec::new() });
    let GroupReply::List(found) = ask::groups(app, command).await? else { return Err(surprise()) };
    let found = found.map_err(|error| Failure::of_kafka(error.code(), None).unwrap_or_else(surprise))?;
    let messages = Numbers::<OfGroup>::default();
    let seconds = Family::<OfGroup, Gauge<f64, AtomicU64>>::default();
    let (mut reported, mut left_out) = (0, found.len().saturating_sub(OBJECTS_MAX));
    for group in found.iter().take(OBJECTS_MAX) {
        let mut of_topics: BTreeMap<String, (u64, Option<u64>)> = BTreeMap::new();
        // One that goes meanwhile has none.
        for offset in offsets_of(app, group.group_id.clone()).await.unwrap_or_default() {
            let (lag, behind_ms) = of_topics.entry(offset.topic).or_default();
            *lag += offset.lag.unwrap_or(0);
            *behind_ms = (*behind_ms).max(offset.lag_ms);
        }
        let room = OBJECTS_MAX - reported;
        left_out += of_topics.len().saturating_sub(room);
        reported += of_topics.len().min(room);
        for (topic, (lag, behind_ms)) in of_topics.into_iter().take(room) {
            let label = OfGroup { group: group.group_id.to_string(), topic };
            messages.get_or_create(&label).set(lag);
            if let Some(ms) = behind_ms {
                seconds.get_or_create(&label).set(ms as f64 / 1_000.0);
            }
        }
    }
    registry.register(
        "group_lag_messages",
        "Messages that a group has not read, of all partitions of a topic",
        messages,
    );
    let text = "Age of the first message that a group has not read, of the partition where it is oldest";
    registry.register_with_unit("group_lag", text, Unit::Seconds, seconds);
    Ok(left_out)
}

/// What topics hold. How many are left out.
fn topics(app: &App, registry: &mut Registry) -> usize {
    let topics = app.broker.catalog().topics();
    let own: Vec<_> = topics.iter().filter(|topic| !topic.internal).collect();
    let (messages, bytes, ends) = <(Numbers<OfTopic>, Numbers<OfTopic>, Numbers<OfTopic>)>::default();
    for topic in own.iter().take(OBJECTS_MAX) {
        let label = OfTopic { topic: topic.name.to_string() };
        let partitions = topic.partitions.iter().filter_map(|info| app.broker.partition_status(info.id));
        let (mut kept, mut size, mut end) = (0, 0, 0);
        for status in partitions {
            kept += status.high_watermark.0.saturating_sub(status.log_start.0);
            size += status.bytes;
            end += status.high_watermark.0;
        }
        messages.get_or_create(&label).set(kept);
        bytes.get_or_create(&label).set(size);
        ends.get_or_create(&label).set(end);
    }
    registry.register("topic_messages", "Offsets of a topic that can be read: about as many messages", messages);
    registry.register_with_unit("topic_kept", "Bytes that a topic keeps", Unit::Bytes, bytes);
    registry.register("topic_end_offsets", "The ends of a topic's partitions, added up: grows with each message", ends);
    own.len().saturating_sub(OBJECTS_MAX)
}

/// What queues hold. How many are left out.
async fn queues(app: &App, registry: &mut Registry) -> Result<usize, Failure> {
    let view = declared::view(&app.broker).await?;
    let all: Vec<Arc<Queue>> = view.world.queues().cloned().collect();
    let reported: Vec<Arc<Queue>> = all.iter().take(OBJECTS_MAX).cloned().collect();
    let counts = declared::counts(&app.broker, &app.directory, &reported).await?;
    let families: [Numbers<OfQueue>; 4] = Default::default();
    for (queue, counts) in reported.iter().zip(&counts) {
        let label = OfQueue { vhost: view.world.vhost_name(queue.vhost).to_owned(), queue: queue.name.to_string() };
        let numbers = [counts.ready, counts.held, counts.delayed, counts.consumers];
        for (family, number) in families.iter().zip(numbers) {
            family.get_or_create(&label).set(number);
        }
    }
    let names = [
        ("queue_ready", "Messages of a queue that are ready for a consumer"),
        ("queue_unsettled", "Messages of a queue that are delivered and unacknowledged"),
        ("queue_delayed", "Messages of a queue that are delayed"),
        ("queue_consumers", "Consumers of a queue"),
    ];
    for ((name, text), family) in names.into_iter().zip(families) {
        registry.register(name, text, family);
    }
    Ok(all.len().saturating_sub(OBJECTS_MAX))
}
