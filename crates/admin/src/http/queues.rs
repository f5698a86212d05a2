//! `/api/v1/vhosts/VHOST/queues`.

use super::App;
use super::error::Failure;
use super::page::Page;
use super::vhosts::{Within, short, shown, table};
use crate::api::queues::{GetMessages, Message, Messages, NewQueue, Purged, Queue as Shown, Queues};
use crate::properties::shown_properties;
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polylogue_amqp::codec::ShortStr;
use polylogue_amqp::request::{self as amqp, Delivery, Verdict};
use polylogue_amqp_gateway::{MANAGEMENT_CHANNEL, topic_name};
use polylogue_amqp_model::Queue;
use polylogue_api::QueueCounts;
use polylogue_net::declared::{self, Got, payload_of};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// The maximum number of messages of one request.
const GET_MESSAGES_MAX: u32 = 1_000;
/// Bytes of bodies of one request, exceeded only by a single larger message.
const GET_BYTES_MAX: usize = 16 << 20;

/// Query of a deletion.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Only {
    /// Only delete the queue if it has no consumers.
    #[serde(default)]
    if_unused: bool,
    /// Only delete the queue if it has no messages.
    #[serde(default)]
    if_empty: bool,
}

fn counted(vhost: &str, queue: &Queue, counts: &QueueCounts) -> Shown {
    Shown {
        name: queue.name.to_string(),
        kind: queue.kind.name().to_owned(),
        durable: queue.durable,
        auto_delete: queue.auto_delete,
        exclusive: queue.owner.is_some(),
        arguments: shown(&queue.arguments),
        topic: topic_name(vhost, queue),
        ready: counts.ready,
        unsettled: counts.held,
        delayed: counts.delayed,
        consumers: counts.consumers,
    }
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Path(vhost): Path<String>,
    query: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Queues>, Failure> {
    let page = Page::of(query)?;
    let within = Within::of(&app, &vhost).await?;
    let of_it = within.view.metadata.queues().filter(|queue| queue.vhost == within.vhost.id);
    let mut queues: Vec<Arc<Queue>> = of_it.cloned().collect();
    queues.sort_by(|a, b| a.name.cmp(&b.name));
    let (queues, total) = page.cut(queues, |queue| Cow::Borrowed(&*queue.name));
    let counts = declared::counts(&app.broker, &app.directory, &queues).await?;
    let queues = queues.iter().zip(&counts).map(|(queue, counts)| counted(&vhost, queue, counts)).collect();
    Ok(Json(Queues { queues, total }))
}

async fn one(app: &App, within: &Within, name: &str) -> Result<Shown, Failure> {
    let queue = within.queue(name)?;
    let counts = declared::counts(&app.broker, &app.directory, std::slice::from_ref(queue)).await?;
    Ok(counted(&within.vhost.name, queue, &counts.first().copied().unwrap_or_default()))
}

pub(super) async fn describe(
    State(app): State<Arc<App>>,
    Path((vhost, name)): Path<(String, String)>,
) -> Result<Json<Shown>, Failure> {
    let within = Within::of(&app, &vhost).await?;
    Ok(Json(one(&app, &within, &name).await?))
}

/// Returns 201 for a new queue, 200 for one that exists with the same declaration.
pub(super) async fn declare(
    State(app): State<Arc<App>>,
    Path(vhost): Path<String>,
    body: Result<Json<NewQueue>, JsonRejection>,
) -> Result<(StatusCode, Json<Shown>), Failure> {
    let Json(mut wanted) = body?;
    let within = Within::of(&app, &vhost).await?;
    if wanted.name.is_empty() {
        return Err(Failure::invalid("name is empty".to_owned()));
    }
    if let Some(kind) = wanted.kind
        && wanted.arguments.insert("x-queue-type".to_owned(), Value::from(kind)).is_some()
    {
        return Err(Failure::invalid("type and arguments.x-queue-type are both set".to_owned()));
    }
    let created = within.queue(&wanted.name).is_err();
    let declare = amqp::DeclareQueue {
        name: short(&wanted.name)?,
        server_named: false,
        passive: false,
        durable: wanted.durable,
        exclusive: false,
        auto_delete: wanted.auto_delete,
        arguments: table(&wanted.arguments)?,
    };
    if wanted.name.starts_with(polylogue_amqp_model::RESERVED_PREFIX) {
        return Err(Failure::invalid(format!("{} has the prefix of names that the broker generates", wanted.name)));
    }
    within.ask(&app, amqp::Request::DeclareQueue(MANAGEMENT_CHANNEL, declare)).await?;
    let within = Within::of(&app, &vhost).await?;
    let queue = one(&app, &within, &wanted.name).await?;
    Ok((if created { StatusCode::CREATED } else { StatusCode::OK }, Json(queue)))
}

pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Path((vhost, name)): Path<(String, String)>,
    only: Result<Query<Only>, QueryRejection>,
) -> Result<StatusCode, Failure> {
    let Query(Only { if_unused, if_empty }) = only.map_err(|e| Failure::invalid(e.body_text()))?;
    let within = Within::of(&app, &vhost).await?;
    within.queue(&name)?;
    let (channel, queue) = (MANAGEMENT_CHANNEL, short(&name)?);
    within.ask(&app, amqp::Request::DeleteQueue { channel, queue, if_unused, if_empty }).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn purge(
    State(app): State<Arc<App>>,
    Path((vhost, name)): Path<(String, String)>,
) -> Result<Json<Purged>, Failure> {
    let within = Within::of(&app, &vhost).await?;
    within.queue(&name)?;
    match within.ask(&app, amqp::Request::PurgeQueue(MANAGEMENT_CHANNEL, short(&name)?)).await? {
        amqp::Reply::Count(purged) => Ok(Json(Purged { purged: u64::from(purged) })),
        _ => Err(Failure::internal("unexpected reply to a purge".to_owned())),
    }
}

/// Gets one message with manual acknowledgement; `None` when none is ready.
pub(super) async fn take(got: &mut Got<'_>, queue: &ShortStr) -> Result<Option<Delivery>, Failure> {
    match got.get(queue).await? {
        Ok(message) => Ok(message.map(|(delivery, _)| delivery)),
        Err(why) => Err(Failure::refused(why.code, &why.text)),
    }
}

pub(super) async fn get(
    State(app): State<Arc<App>>,
    Path((vhost, name)): Path<(String, String)>,
    body: Result<Json<GetMessages>, JsonRejection>,
) -> Result<Json<Messages>, Failure> {
    let Json(wanted) = body?;
    if !(1..=GET_MESSAGES_MAX).contains(&wanted.count) {
        return Err(Failure::invalid(format!("count is {}, it must be from 1 to {GET_MESSAGES_MAX}", wanted.count)));
    }
    let within = Within::of(&app, &vhost).await?;
    within.queue(&name)?;
    let (mut got, queue) = (Got::new(within.operator(&app)), short(&name)?);
    let (mut messages, mut bytes) = (Vec::new(), 0);
    // Requeued only afterwards: a message requeued at once would be got again.
    while messages.len() < wanted.count as usize && bytes < GET_BYTES_MAX {
        let Some(delivery) = take(&mut got, &queue).await? else { break };
        let payload = payload_of(&delivery)?;
        bytes += payload.len();
        messages.push(message(&delivery, &payload));
    }
    got.settle(if wanted.remove { Verdict::Ack } else { Verdict::Requeue });
    Ok(Json(Messages { messages }))
}

fn message(delivery: &Delivery, payload: &[u8]) -> Message {
    let (body, encoding) = match std::str::from_utf8(payload) {
        Ok(text) => (text.to_owned(), "text"),
        Err(_) => (STANDARD.encode(payload), "base64"),
    };
    let text = |name: &ShortStr| String::from_utf8_lossy(name).into_owned();
    Message {
        exchange: text(&delivery.exchange),
        routing_key: text(&delivery.routing_key),
        redelivered: delivery.redelivered,
        properties: shown_properties(&delivery.properties),
        body,
        encoding: encoding.to_owned(),
    }
}
