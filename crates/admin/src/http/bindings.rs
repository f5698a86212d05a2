//! `/api/v1/vhosts/VHOST/bindings`.

use super::App;
use super::error::Failure;
use super::vhosts::{Within, short, shown, table};
use crate::api::queues::{Binding as Shown, Bindings, DestinationType, NewBinding};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use polylogue_amqp::codec::Table;
use polylogue_amqp::request as amqp;
use polylogue_amqp_gateway::MANAGEMENT_CHANNEL;
use polylogue_amqp_model::encode_table;
use polylogue_router::{Binding, Destination};
use std::sync::Arc;

/// Converts a binding of the virtual host, with the names of its source and destination.
fn named(within: &Within, binding: &Binding) -> Option<Shown> {
    let routes = &within.view.routes;
    let source = routes.exchange_by_id(binding.source).filter(|source| source.vhost == within.vhost.id)?;
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let (destination_type, destination) = match binding.destination {
        Destination::Queue(id) => (DestinationType::Queue, &routes.queue_by_id(id)?.name),
        Destination::Exchange(id) => (DestinationType::Exchange, &routes.exchange_by_id(id)?.name),
    };
    Some(Shown {
        source: text(&source.name),
        destination: text(destination),
        destination_type,
        routing_key: text(&binding.key),
        arguments: shown(&binding.arguments),
    })
}

pub(super) async fn list(State(app): State<Arc<App>>, Path(vhost): Path<String>) -> Result<Json<Bindings>, Failure> {
    let within = Within::of(&app, &vhost).await?;
    let bindings = within.view.routes.bindings();
    let mut all: Vec<Shown> = bindings.iter().filter_map(|binding| named(&within, binding)).collect();
    all.sort_by(|a, b| {
        let key = |one: &Shown| (one.source.clone(), one.destination_type, one.destination.clone());
        key(a).cmp(&key(b)).then_with(|| a.routing_key.cmp(&b.routing_key))
    });
    Ok(Json(Bindings { bindings: all }))
}

/// Returns the bindings that are shown like `wanted`. There may be several: JSON does not preserve AMQP's integer widths.
fn find(within: &Within, wanted: &Shown) -> Vec<Arc<Binding>> {
    let (routes, vhost) = (&within.view.routes, within.vhost.id);
    let name = wanted.destination.as_bytes();
    let destination = match wanted.destination_type {
        DestinationType::Queue => routes.queue(vhost, name).map(|queue| Destination::Queue(queue.id)),
        DestinationType::Exchange => routes.exchange(vhost, name).map(|exchange| Destination::Exchange(exchange.id)),
    };
    let source = routes.exchange(vhost, wanted.source.as_bytes()).map(|source| source.id);
    let (Some(source), Some(destination)) = (source, destination) else { return Vec::new() };
    let is_it = |one: &Arc<Binding>| {
        one.source == source && one.key == wanted.routing_key.as_bytes() && shown(&one.arguments) == wanted.arguments
    };
    routes.bindings_to(destination).into_iter().filter(is_it).collect()
}

/// Converts a binding of the API to one of AMQP.
fn asked(binding: &Shown, arguments: Table) -> Result<amqp::Binding, Failure> {
    Ok(amqp::Binding {
        source: short(&binding.source)?,
        destination: short(&binding.destination)?,
        to_exchange: binding.destination_type == DestinationType::Exchange,
        routing_key: short(&binding.routing_key)?,
        arguments,
    })
}

/// Returns 201 for a new binding, 200 for one that exists.
pub(super) async fn add(
    State(app): State<Arc<App>>,
    Path(vhost): Path<String>,
    body: Result<Json<NewBinding>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let binding = Shown::from(body?.0);
    let within = Within::of(&app, &vhost).await?;
    if !find(&within, &binding).is_empty() {
        return Ok(StatusCode::OK);
    }
    let binding = asked(&binding, table(&binding.arguments)?)?;
    within.ask(&app, amqp::Request::Bind(MANAGEMENT_CHANNEL, binding)).await?;
    Ok(StatusCode::CREATED)
}

pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Path(vhost): Path<String>,
    body: Result<Json<NewBinding>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let binding = Shown::from(body?.0);
    let within = Within::of(&app, &vhost).await?;
    let found = find(&within, &binding);
    if found.is_empty() {
        let Shown { source, destination, routing_key, .. } = &binding;
        let text = format!("there is no binding from {source} to {destination} with the key '{routing_key}'");
        return Err(Failure::not_found(text));
    }
    for one in found {
        // The stored arguments: argument types are part of a binding's identity.
        let arguments = Table::new(encode_table(&one.arguments)).map_err(|e| Failure::internal(e.to_string()))?;
        within.ask(&app, amqp::Request::Unbind(MANAGEMENT_CHANNEL, asked(&binding, arguments)?)).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
