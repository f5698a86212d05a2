//! `GET /metrics/objects?of=groups,topics,queues`: metrics of single groups, topics and queues, on a path of their own because of their cost.

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
use polylogue_kafka_groups::command::{GroupCommand, GroupReply, ListGroups};
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

/// The maximum number of objects of each kind, for groups of pairs of group and topic; the number left out is a metric.
pub(super) const OBJECTS_MAX: usize = 1_000;
/// Help text of that metric.
pub(super) const LEFT_OUT: &str =
    "Pairs of a group and a topic, topics and queues left out of this answer, which has at most 1,000 of each kind";

/// The query.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Any of `groups`, `topics`, `queues`, separated by commas; all if not set.
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

/// A gauge for each object.
type Numbers<L> = Family<L, Gauge<u64, AtomicU64>>;

fn surprise() -> Failure {
    Failure::internal("unexpected reply from the coordinator".to_owned())
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
                return Err(Failure::invalid(format!("unknown kind {other}: use groups, topics or queues")));
            }
        };
    }
    registry.register("objects_left_out", LEFT_OUT, ConstGauge::new(left_out as u64));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|e| Failure::internal(format!("the metrics cannot be written: {e}")))?;
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

/// Adds the groups' lag. Returns the number of pairs of group and topic that are left out; a group that is not queried counts as one.
async fn groups(app: &App, registry: &mut Registry) -> Result<usize, Failure> {
    let command = GroupCommand::List(ListGroups { states: Vec::new(), types: Vec::new() });
    let GroupReply::List(found) = ask::groups(app, command).await? else { return Err(surprise()) };
    let found = found.map_err(|error| Failure::of_kafka(error.code(), None).unwrap_or_else(surprise))?;
    let messages = Numbers::<OfGroup>::default();
    let seconds = Family::<OfGroup, Gauge<f64, AtomicU64>>::default();
    let (mut reported, mut left_out) = (0, found.len().saturating_sub(OBJECTS_MAX));
    for group in found.iter().take(OBJECTS_MAX) {
        let mut of_topics: BTreeMap<String, (u64, Option<u64>)> = BTreeMap::new();
        // A group that was deleted meanwhile has no offsets.
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
    registry.register("group_lag_messages", "Lag of a group in messages, over all partitions of a topic", messages);
    let text = "Lag of a group in time: the age of its oldest unread message in a topic";
    registry.register_with_unit("group_lag", text, Unit::Seconds, seconds);
    Ok(left_out)
}

/// Adds the topics' sizes. Returns the number of topics that are left out.
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
    registry.register("topic_messages", "Readable offsets of a topic: approximately its number of messages", messages);
    registry.register_with_unit("topic_kept", "Stored bytes of a topic", Unit::Bytes, bytes);
    registry.register(
        "topic_end_offsets",
        "Sum of the end offsets of a topic's partitions; grows with each message",
        ends,
    );
    own.len().saturating_sub(OBJECTS_MAX)
}

/// Adds the queues' message counts. Returns the number of queues that are left out.
async fn queues(app: &App, registry: &mut Registry) -> Result<usize, Failure> {
    let view = declared::view(&app.broker).await?;
    let all: Vec<Arc<Queue>> = view.metadata.queues().cloned().collect();
    let reported: Vec<Arc<Queue>> = all.iter().take(OBJECTS_MAX).cloned().collect();
    let counts = declared::counts(&app.broker, &app.directory, &reported).await?;
    let families: [Numbers<OfQueue>; 4] = Default::default();
    for (queue, counts) in reported.iter().zip(&counts) {
        let label = OfQueue { vhost: view.metadata.vhost_name(queue.vhost).to_owned(), queue: queue.name.to_string() };
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
