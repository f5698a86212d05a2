//! `/api/v1/connections`: client connections of all protocols.

use super::App;
use super::error::Failure;
use super::page::Page;
use crate::api::clients::{Connection as Shown, Connections};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use polylogue_amqp_gateway::{Presence, View};
use polylogue_amqp_model::{decode_table, json_of_arguments};
use polylogue_net::Visitor;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// The reason that a client gets when an operator closes its connection.
const WHY: &str = "an operator ended the connection";

fn address(at: SocketAddr) -> String {
    SocketAddr::new(at.ip().to_canonical(), at.port()).to_string()
}

fn shown(visitor: &Visitor) -> Shown {
    let about = visitor.client_info.get();
    Shown {
        id: visitor.id,
        protocol: visitor.protocol.to_owned(),
        tls: visitor.tls,
        peer: address(visitor.peer),
        local: address(visitor.local),
        since_ms: visitor.since_ms,
        user: about.and_then(|about| about.user.clone()),
        client: about.map(|about| about.client.clone()),
        software: about.and_then(|about| about.software.clone()),
        vhost: None,
        channels: None,
    }
}

/// Adds what is known about an AMQP client.
fn with_presence(shown: Shown, client: &Presence, view: &View) -> Shown {
    let properties = json_of_arguments(&decode_table(client.client_properties.raw()).unwrap_or_default());
    let text = |key: &str| properties.get(key).and_then(|value| value.as_str()).map(ToOwned::to_owned);
    let software = match (text("product"), text("version")) {
        (Some(product), Some(version)) => Some(format!("{product} {version}")),
        (product, version) => product.or(version),
    };
    Shown {
        user: Some(client.user.to_string()),
        client: text("connection_name"),
        software,
        vhost: Some(view.metadata.vhost_name(client.vhost).to_string()),
        channels: Some(client.channel_count()),
        ..shown
    }
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    query: Result<Query<Page>, QueryRejection>,
) -> Result<Json<Connections>, Failure> {
    let page = Page::of(query)?;
    let view = polylogue_net::declared::view(&app.broker).await?;
    let clients: BTreeMap<u64, Arc<Presence>> =
        app.directory.clients().into_iter().map(|client| (client.id, client)).collect();
    let all = app.net.connections.visitors().into_iter().map(|visitor| {
        let shown = shown(&visitor);
        match clients.get(&visitor.id) {
            Some(client) => with_presence(shown, client, &view),
            None => shown,
        }
    });
    let names = |one: &Shown| {
        let said = [&one.user, &one.client, &one.software, &one.vhost].map(|text| text.as_deref().unwrap_or_default());
        format!("{} {} {}", one.protocol, one.peer, said.join(" "))
    };
    let (connections, total) = page.cut(all, |one| Cow::Owned(names(one)));
    Ok(Json(Connections { connections, total }))
}

pub(super) async fn end(State(app): State<Arc<App>>, Path(id): Path<u64>) -> Result<StatusCode, Failure> {
    match app.net.connections.end(id, WHY) {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Failure::not_found(format!("there is no connection {id}"))),
    }
}
