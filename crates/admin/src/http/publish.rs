//! `POST /api/v1/vhosts/VHOST/publish`: publishes a message to an exchange, for trying things out.

use super::App;
use super::error::Failure;
use super::vhosts::{Within, short, table};
use crate::api::queues::{NewPublish, Published};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use polylogue_amqp::codec::{BasicProperties, Properties};
use polylogue_amqp::request::{self as amqp, Publish};
use polylogue_amqp::session::UncheckedPublish as Spoken;
use polylogue_amqp_gateway::{MANAGEMENT_CHANNEL, PrincipalOutput};
use std::sync::Arc;

/// AMQP's delivery modes, persistent and transient.
const PERSISTENT: u8 = 2;
const TRANSIENT: u8 = 1;

fn message(wanted: &NewPublish) -> Result<Publish, Failure> {
    let body = match wanted.encoding.as_deref().unwrap_or("text") {
        "text" => Bytes::copy_from_slice(wanted.body.as_bytes()),
        "base64" => {
            let bytes = STANDARD.decode(&wanted.body);
            bytes.map(Bytes::from).map_err(|e| Failure::invalid(format!("body is not base64: {e}")))?
        }
        other => return Err(Failure::invalid(format!("encoding is {other}: it must be text or base64"))),
    };
    let text = |text: &Option<String>| text.as_deref().map(short).transpose();
    let properties = BasicProperties {
        content_type: text(&wanted.content_type)?,
        correlation_id: text(&wanted.correlation_id)?,
        message_id: text(&wanted.message_id)?,
        reply_to: text(&wanted.reply_to)?,
        delivery_mode: Some(if wanted.persistent { PERSISTENT } else { TRANSIENT }),
        headers: (!wanted.headers.is_empty()).then(|| table(&wanted.headers)).transpose()?,
        ..BasicProperties::default()
    };
    let spoken = Spoken {
        exchange: short(&wanted.exchange)?,
        routing_key: short(&wanted.routing_key)?,
        mandatory: true,
        properties: Properties::from(&properties),
        body: amqp::Body::One(body),
    };
    let publish = Publish::checked(spoken, b"", false).map_err(|why| Failure::refused(why.code, &why.text))?;
    Ok(Publish { seq: Some(1), ..publish })
}

/// Publishes and waits until the message is durable in all queues.
pub(super) async fn serve(
    State(app): State<Arc<App>>,
    Path(vhost): Path<String>,
    body: Result<Json<NewPublish>, JsonRejection>,
) -> Result<Json<Published>, Failure> {
    let Json(wanted) = body?;
    let within = Within::of(&app, &vhost).await?;
    let mut asker = within.operator(&app);
    let mut routed = true;
    asker.tell(amqp::Request::Publish(MANAGEMENT_CHANNEL, message(&wanted)?));
    loop {
        match asker.next_output().await? {
            PrincipalOutput::Event(amqp::Event::Return { .. }) => routed = false,
            PrincipalOutput::Event(amqp::Event::Confirmed { .. }) => return Ok(Json(Published { routed })),
            PrincipalOutput::Rejected { .. } => {
                let text = "a target queue is full and rejects new messages (x-overflow)";
                return Err(Failure::conflict("rejected", text));
            }
            PrincipalOutput::Event(amqp::Event::CloseChannel { refusal, .. }) => {
                return Err(Failure::refused(refusal.code, &refusal.text));
            }
            _ => {}
        }
    }
}
