//! `/api/v1/vhosts/VHOST/exchanges`.

use super::App;
use super::error::Failure;
use super::vhosts::{Within, short, shown, table};
use crate::api::queues::{Exchange as Shown, Exchanges, NewExchange};
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use polylogue_amqp::request as amqp;
use polylogue_amqp_gateway::MANAGEMENT_CHANNEL;
use serde::Deserialize;
use std::sync::Arc;

/// Query of a deletion.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Only {
    /// Only delete the exchange if it has no bindings.
    #[serde(default)]
    if_unused: bool,
}

pub(super) async fn list(State(app): State<Arc<App>>, Path(vhost): Path<String>) -> Result<Json<Exchanges>, Failure> {
    let within = Within::of(&app, &vhost).await?;
    let exchanges = within.view.routes.exchanges();
    let of_it = exchanges.iter().filter(|exchange| exchange.vhost == within.vhost.id);
    let mut exchanges: Vec<Shown> = of_it
        .map(|exchange| Shown {
            name: String::from_utf8_lossy(&exchange.name).into_owned(),
            kind: exchange.kind.name().to_owned(),
            durable: exchange.durable,
            auto_delete: exchange.auto_delete,
            internal: exchange.internal,
            arguments: shown(&exchange.arguments),
        })
        .collect();
    exchanges.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Json(Exchanges { exchanges }))
}

/// Returns 201 for a new exchange, 200 for one that exists with the same declaration.
pub(super) async fn declare(
    State(app): State<Arc<App>>,
    Path(vhost): Path<String>,
    body: Result<Json<NewExchange>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let Json(wanted) = body?;
    let within = Within::of(&app, &vhost).await?;
    let created = within.view.routes.exchange(within.vhost.id, wanted.name.as_bytes()).is_none();
    let declare = amqp::DeclareExchange {
        name: short(&wanted.name)?,
        kind: short(&wanted.kind)?,
        passive: false,
        durable: wanted.durable,
        auto_delete: wanted.auto_delete,
        internal: wanted.internal,
        arguments: table(&wanted.arguments)?,
    };
    within.ask(&app, amqp::Request::DeclareExchange(MANAGEMENT_CHANNEL, declare)).await?;
    Ok(if created { StatusCode::CREATED } else { StatusCode::OK })
}

pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Path((vhost, name)): Path<(String, String)>,
    only: Result<Query<Only>, QueryRejection>,
) -> Result<StatusCode, Failure> {
    let Query(Only { if_unused }) = only.map_err(|e| Failure::invalid(e.body_text()))?;
    let within = Within::of(&app, &vhost).await?;
    if within.view.routes.exchange(within.vhost.id, name.as_bytes()).is_none() {
        return Err(Failure::unknown_exchange(&name));
    }
    let (channel, exchange) = (MANAGEMENT_CHANNEL, short(&name)?);
    within.ask(&app, amqp::Request::DeleteExchange { channel, exchange, if_unused }).await?;
    Ok(StatusCode::NO_CONTENT)
}
