//! Publishing and getting messages over HTTP, for trying things out and not for bulk transfer.

use super::answer::Answer;
use super::ask::Asker;
use super::body::Body;
use super::call::Call;
use super::error::Failure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use polylogue_admin::properties::shown_properties;
use polylogue_amqp::codec::{BasicProperties, Properties, ShortStr, Table};
use polylogue_amqp::refusal::Refusal;
use polylogue_amqp::request::{self as amqp, Delivery, Publish, Verdict};
use polylogue_amqp_gateway::{MANAGEMENT_CHANNEL, PrincipalOutput};
use polylogue_amqp_model::{Vhost, arguments_of_json, encode_table};
use polylogue_net::declared::{Got, payload_of};
use polylogue_router::Argument;
use serde_json::{Map, Value, json};

/// Bytes of messages that one request gets, exceeded only by a single larger message.
const GET_BYTES_MAX: usize = 16 << 20;
/// The maximum number of messages that one request gets.
const GET_MESSAGES_MAX: i64 = 10_000;
/// The tag of users that may set another user's `user_id`.
const IMPERSONATOR: &str = "impersonator";

/// Converts a name to AMQP's short string.
///
/// # Errors
/// 400 for more than 255 bytes.
pub(super) fn short(text: &str) -> Result<ShortStr, Failure> {
    ShortStr::new(Bytes::copy_from_slice(text.as_bytes()))
        .ok_or_else(|| Failure::bad(format!("a name has at most {} bytes", ShortStr::BYTES_MAX)))
}

/// Converts arguments to an AMQP table.
///
/// # Errors
/// 400 for arguments nested too deeply.
pub(super) fn table(arguments: &[Argument]) -> Result<Table, Failure> {
    Table::new(encode_table(arguments)).map_err(|error| Failure::bad(error.to_string()))
}

/// Makes a message without properties for a queue.
pub(super) fn plain(queue: &str, body: &'static [u8]) -> Result<Publish, Failure> {
    let unchecked = polylogue_amqp::session::UncheckedPublish {
        exchange: ShortStr::from_static(""),
        routing_key: short(queue)?,
        mandatory: true,
        properties: Properties::none(),
        body: amqp::Body::One(Bytes::from_static(body)),
    };
    let publish = Publish::checked(unchecked, b"", false).map_err(|why| Failure::channel(&why))?;
    Ok(Publish { seq: Some(1), ..publish })
}

/// Publishes and waits until the message is durable. Returns whether it was routed.
pub(super) async fn publish(asker: &mut Asker<'_>, publish: Publish) -> Result<bool, Failure> {
    let mut routed = true;
    asker.tell(amqp::Request::Publish(MANAGEMENT_CHANNEL, publish));
    loop {
        match asker.next_output().await? {
            PrincipalOutput::Event(amqp::Event::Return { .. }) => routed = false,
            PrincipalOutput::Event(amqp::Event::Confirmed { .. }) => return Ok(routed),
            PrincipalOutput::Rejected { .. } => {
                return Err(Failure::bad("rejected Unable to publish message. Check queue limits."));
            }
            PrincipalOutput::Event(amqp::Event::CloseChannel { refusal, .. }) => {
                return Err(Failure::channel(&refusal));
            }
            _ => {}
        }
    }
}

/// `POST exchanges/VHOST/NAME/publish`
pub(super) async fn serve_publish(
    call: &Call<'_>,
    vhost: &Vhost,
    exchange: &str,
    body: &Body,
) -> Result<Answer, Failure> {
    body.require(&["routing_key", "properties", "payload", "payload_encoding"])?;
    let Some(Value::String(payload)) = body.get("payload") else { return Err(Failure::bad("payload_not_string")) };
    let payload = match body.required("payload_encoding")?.as_ref() {
        "string" => Bytes::copy_from_slice(payload.as_bytes()),
        "base64" => STANDARD.decode(payload).map(Bytes::from).map_err(|_| Failure::bad("not_base64"))?,
        other => return Err(Failure::bad(format!("{{unsupported_encoding,<<\"{other}\">>}}"))),
    };
    let max = call.app.settings.message_bytes_max;
    if payload.len() as u64 > max {
        return Err(Failure::channel(&Refusal::message_too_large(payload.len() as u64, max)));
    }
    let properties = match body.get("properties") {
        Some(Value::Object(map)) => properties(map)?,
        // RabbitMQ's old tools send an empty array for none.
        Some(Value::Array(items)) if items.is_empty() => BasicProperties::default(),
        _ => return Err(Failure::bad("properties should be an object")),
    };
    let unchecked = polylogue_amqp::session::UncheckedPublish {
        exchange: short(exchange)?,
        routing_key: short(&body.required("routing_key")?)?,
        mandatory: true,
        properties: Properties::from(&properties),
        body: amqp::Body::One(payload),
    };
    let impersonator = call.user.has_tag(IMPERSONATOR);
    let message = Publish::checked(unchecked, call.user.name.as_bytes(), impersonator);
    let message = message.map_err(|why| Failure::channel(&why))?;
    let routed = publish(&mut Asker::new(call, vhost), Publish { seq: Some(1), ..message }).await?;
    Ok(Answer::One(json!({"routed": routed})))
}

/// Parses message properties.
fn properties(map: &Map<String, Value>) -> Result<BasicProperties, Failure> {
    let body = Body(map.clone());
    let text = |key: &str| body.text(key)?.map(|text| short(&text)).transpose();
    let number = |key: &str, max: i64| match body.integer(key)? {
        None => Ok(None),
        Some(number) if (0..=max).contains(&number) => Ok(Some(number)),
        Some(number) => Err(Failure::bad(format!("{key} cannot be {number}"))),
    };
    let headers = match body.get("headers") {
        None => None,
        Some(Value::Object(map)) => {
            let fields = arguments_of_json(map).map_err(|error| Failure::bad(error.0))?;
            Some(table(&fields)?)
        }
        Some(_) => return Err(Failure::bad("headers should be an object")),
    };
    Ok(BasicProperties {
        content_type: text("content_type")?,
        content_encoding: text("content_encoding")?,
        headers,
        delivery_mode: number("delivery_mode", 255)?.map(|number| number as u8),
        priority: number("priority", 255)?.map(|number| number as u8),
        correlation_id: text("correlation_id")?,
        reply_to: text("reply_to")?,
        expiration: text("expiration")?,
        message_id: text("message_id")?,
        timestamp: number("timestamp", i64::MAX)?.map(i64::unsigned_abs),
        kind: text("type")?,
        user_id: text("user_id")?,
        app_id: text("app_id")?,
        cluster_id: text("cluster_id")?,
    })
}

/// Gets one message with manual acknowledgement; `None` when none is ready.
pub(super) async fn get(got: &mut Got<'_>, queue: &ShortStr) -> Result<Option<(Delivery, u32)>, Failure> {
    got.get(queue).await?.map_err(|why| Failure::channel(&why))
}

/// Returns the outcome for the messages that were got.
fn ackmode(body: &Body) -> Result<Verdict, Failure> {
    let mode = match body.text("ackmode")? {
        Some(mode) => mode,
        // Before RabbitMQ 3.7.
        None if body.get("requeue").is_some() => match body.flag("requeue")? {
            true => "ack_requeue_true".into(),
            false => "ack_requeue_false".into(),
        },
        None => return Err(Failure::missing_keys(&["ackmode"])),
    };
    match &*mode {
        "ack_requeue_false" => Ok(Verdict::Ack),
        "ack_requeue_true" => Ok(Verdict::Requeue),
        "reject_requeue_true" => Ok(Verdict::RequeueFailed),
        "reject_requeue_false" => Ok(Verdict::Discard),
        other => Err(Failure::bad(format!("unknown ackmode {other}"))),
    }
}

/// `POST queues/VHOST/NAME/get`
pub(super) async fn serve_get(call: &Call<'_>, vhost: &Vhost, queue: &str, body: &Body) -> Result<Answer, Failure> {
    let verdict = ackmode(body)?;
    body.require(&["count", "encoding"])?;
    let count = body.integer("count")?.unwrap_or(0);
    if !(0..=GET_MESSAGES_MAX).contains(&count) {
        return Err(Failure::bad(format!("count must be from 0 to {GET_MESSAGES_MAX}")));
    }
    let base64 = match body.required("encoding")?.as_ref() {
        "auto" => false,
        "base64" => true,
        _ => return Err(Failure::bad("Unsupported encoding. Please use auto or base64.")),
    };
    let truncate = body.integer("truncate")?.map(|len| usize::try_from(len).unwrap_or(0));
    let mut got = Asker::new(call, vhost).gets();
    let name = short(queue)?;
    let (mut shown, mut bytes) = (Vec::new(), 0);
    for _ in 0..count {
        let Some((delivery, left)) = get(&mut got, &name).await? else { break };
        let payload = payload_of(&delivery)?;
        bytes += payload.len().min(truncate.unwrap_or(usize::MAX)) + delivery.properties.len();
        shown.push(shown_message(&delivery, &payload, left, truncate, base64));
        if bytes >= GET_BYTES_MAX {
            break;
        }
    }
    // Settled last: a requeued message would be got again, and an acknowledged one would be lost if a later one fails.
    got.settle(verdict);
    Ok(Answer::One(Value::Array(shown)))
}

fn shown_message(delivery: &Delivery, payload: &[u8], left: u32, truncate: Option<usize>, base64: bool) -> Value {
    let cut = payload.get(..truncate.unwrap_or(payload.len())).unwrap_or(payload);
    let (text, encoding) = match std::str::from_utf8(cut) {
        Ok(text) if !base64 => (text.to_owned(), "string"),
        _ => (STANDARD.encode(cut), "base64"),
    };
    json!({
        "payload_bytes": payload.len(),
        "redelivered": delivery.redelivered,
        "exchange": super::shapes::shown(&delivery.exchange),
        "routing_key": super::shapes::shown(&delivery.routing_key),
        "message_count": left,
        "properties": shown_properties(&delivery.properties),
        "payload": text,
        "payload_encoding": encoding,
    })
}
