//! `/api/v1/vhosts/VHOST/bindings`.

use super::App;
use super::error::Failure;
use super::vhosts::{Within, short, shown, table};
use crate::api::queues::{Binding as Shown, Bindings, DestinationType, NewBinding};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use polylogue_amqp::request as amqp;
use polylogue_amqp_gateway::MANAGEMENT_CHANNEL;
use polylogue_router::{Binding, Destination};
use std::sync::Arc;

/// A binding of the virtual host with the names of its ends.
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

fn all(within: &Within) -> Vec<Shown> {
    let bindings = within.view.routes.bindings();
    let mut all: Vec<Shown> = bindings.iter().filter_map(|binding| named(within, binding)).collect();
    all.sort_by(|a, b| {
        let key = |one: &Shown| (one.source.clone(), one.destination_type, one.destination.clone());
        key(a).cmp(&key(b)).then_with(|| a.routing_key.cmp(&b.routing_key))
    });
    all
}

pub(super) async fn list(State(app): State<Arc<App>>, Path(vhost): Path<String>) -> Result<Json<Bindings>, Failure> {
    let within = Within::of(&app, &vhost).await?;
    Ok(Json(Bindings { bindings: all(&within) }))
}

fn wanted(binding: &Shown) -> Result<amqp::Binding, Failure> {
    Ok(amqp::Binding {
        source: short(&binding.source)?,
        destination: short(&binding.destination)?,
        to_exchange: binding.destination_type == DestinationType::Exchange,
        routing_key: short(&binding.routing_key)?,
        arguments: table(&binding.arguments)?,
    })
}

/// 201 for a binding that was not there, 200 for one that was.
pub(super) async fn add(
    State(app): State<Arc<App>>,
    Path(vhost): Path<String>,
    body: Result<Json<NewBinding>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let binding = Shown::from(body?.0);
    let within = Within::of(&app, &vhost).await?;
    let created = !all(&within).contains(&binding);
    within.ask(&app, amqp::Request::Bind(MANAGEMENT_CHANNEL, wanted(&binding)?)).await?;
    Ok(if created { StatusCode::CREATED } else { StatusCode::OK })
}

pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Path(vhost): Path<String>,
    body: Result<Json<NewBinding>, JsonRejection>,
) -> Result<StatusCode, Failure> {
    let binding = Shown::from(body?.0);
    let within = Within::of(&app, &vhost).await?;
    if !all(&within).contains(&binding) {
        let Shown { source, destination, routing_key, .. } = &binding;
        let text = format!("there is no binding from {source} to {destination} with the key '{routing_key}'");
        return Err(Failure::not_found(text));
    }
    within.ask(&app, amqp::Request::Unbind(MANAGEMENT_CHANNEL, wanted(&binding)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}
