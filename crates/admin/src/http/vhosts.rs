//! `/api/v1/vhosts`, and helpers for the paths within a virtual host.

use super::App;
use super::error::Failure;
use crate::api::queues::{NewVhost, Vhost as Shown, Vhosts};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use bytes::Bytes;
use polylogue_amqp::codec::{ShortStr, Table};
use polylogue_amqp::request as amqp;
use polylogue_amqp_gateway::{Principal, View};
use polylogue_amqp_model::{Command, PutVhost, Queue, QueueKind, Reply, Vhost, arguments_of_json, encode_table};
use polylogue_net::declared::{self, Asker};
use serde_json::{Map, Value};
use std::sync::Arc;

/// The objects of one virtual host.
pub(super) struct Within {
    pub(super) view: Arc<View>,
    pub(super) vhost: Arc<Vhost>,
}

impl Within {
    /// # Errors
    /// 404 for an unknown virtual host.
    pub(super) async fn of(app: &App, vhost: &str) -> Result<Within, Failure> {
        let view = declared::view(&app.broker).await?;
        let vhost = view.metadata.vhost_named(vhost).ok_or_else(|| Failure::unknown_vhost(vhost))?.clone();
        Ok(Within { view, vhost })
    }

    /// # Errors
    /// 404 for an unknown queue.
    pub(super) fn queue(&self, name: &str) -> Result<&Arc<Queue>, Failure> {
        let id = self.view.routes.queue(self.vhost.id, name.as_bytes()).map(|queue| queue.id);
        id.and_then(|id| self.view.metadata.queue(id)).ok_or_else(|| Failure::unknown_queue(name))
    }

    /// An internal connection with an operator's permissions in this virtual host.
    pub(super) fn operator<'a>(&self, app: &'a App) -> Asker<'a> {
        let vhost = (self.vhost.id, self.vhost.name.clone());
        Asker::new(&app.broker, |catalog, id, now| Principal::operator(app.directory.clone(), catalog, id, vhost, now))
    }

    /// The same, for moving messages: a message that a queue rejects stays in its source queue and is not dead-lettered.
    pub(super) fn mover<'a>(&self, app: &'a App) -> Asker<'a> {
        let vhost = (self.vhost.id, self.vhost.name.clone());
        Asker::new(&app.broker, |catalog, id, now| {
            Principal::operator(app.directory.clone(), catalog, id, vhost, now).all_or_none()
        })
    }

    /// Sends a request to the AMQP session.
    ///
    /// # Errors
    /// The refusal.
    pub(super) async fn ask(&self, app: &App, request: amqp::Request) -> Result<amqp::Reply, Failure> {
        match self.operator(app).ask(request).await? {
            amqp::Reply::Refused(why) => Err(Failure::refused(why.code, &why.text)),
            reply => Ok(reply),
        }
    }
}

/// Converts a name to AMQP's short string.
///
/// # Errors
/// 400 for more than 255 bytes.
pub(super) fn short(text: &str) -> Result<ShortStr, Failure> {
    let short = ShortStr::new(Bytes::copy_from_slice(text.as_bytes()));
    short.ok_or_else(|| Failure::invalid(format!("a name has at most {} bytes", ShortStr::BYTES_MAX)))
}

/// Converts arguments to an AMQP table.
///
/// # Errors
/// 400 for arguments nested too deeply.
pub(super) fn table(arguments: &Map<String, Value>) -> Result<Table, Failure> {
    let arguments = arguments_of_json(arguments).map_err(|e| Failure::invalid(format!("arguments: {e}")))?;
    Table::new(encode_table(&arguments)).map_err(|e| Failure::invalid(format!("arguments: {e}")))
}

/// Converts arguments to JSON.
pub(super) fn shown(arguments: &[polylogue_router::Argument]) -> Map<String, Value> {
    match polylogue_amqp_model::json_of_arguments(arguments) {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

pub(super) async fn list(State(app): State<Arc<App>>) -> Result<Json<Vhosts>, Failure> {
    let view = declared::view(&app.broker).await?;
    let vhosts = view.metadata.vhosts().map(|vhost| Shown {
        name: vhost.name.to_string(),
        description: vhost.description.to_string(),
        default_queue_type: vhost.default_queue_type.unwrap_or(QueueKind::Classic).name().to_owned(),
        queues: view.metadata.queue_count(vhost.id),
    });
    Ok(Json(Vhosts { vhosts: vhosts.collect() }))
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    body: Result<Json<NewVhost>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(wanted) = body?;
    let kind = match wanted.default_queue_type.as_deref() {
        None => None,
        Some(name) => {
            let kind = QueueKind::named(name);
            Some(Some(kind.ok_or_else(|| Failure::invalid(format!("unknown queue type {name}")))?))
        }
    };
    let put = PutVhost {
        name: wanted.name.into(),
        description: wanted.description.map(Into::into),
        tags: None,
        default_queue_type: kind,
        tracing: None,
        metadata: None,
    };
    match declared::change(&app.broker, Command::PutVhost(put)).await? {
        Reply::Put { created: true } => Ok(StatusCode::CREATED),
        _ => Ok(StatusCode::OK),
    }
}

pub(super) async fn delete(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<StatusCode, Failure> {
    Within::of(&app, &name).await?;
    declared::delete_vhost(&app.broker, &app.directory, &app.net, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
