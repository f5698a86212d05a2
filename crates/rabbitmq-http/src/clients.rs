//! Connections, channels and consumers, as far as the server knows them without a request to clients.

use super::answer::Answer;
use super::call::Call;
use super::error::Failure;
use super::shapes::{connection_details, shown, with};
use super::{Verb, queues};
use axum::http::HeaderMap;
use polylogue_amqp::codec::Table;
use polylogue_amqp_gateway::{Presence, ShownChannel, ShownConsumer};
use polylogue_amqp_model::{decode_table, json_of_arguments};
use polylogue_router::QueueId;
use serde_json::{Value, json};
use std::sync::Arc;

/// The default reason when an operator closes a connection.
const REASON: &str = "Closed via management plugin";

fn table(table: &Table) -> Value {
    json_of_arguments(&decode_table(table.raw()).unwrap_or_default())
}

/// Returns the connections that the user may see, as in RabbitMQ: all for monitors, otherwise the user's own.
fn visible(call: &Call<'_>, which: impl Fn(&Presence) -> bool) -> Vec<Arc<Presence>> {
    let all = call.app.directory.clients().into_iter();
    all.filter(|client| (call.is_monitor() || client.user == call.user.name) && which(client)).collect()
}

/// Returns the state of a connection and its channels (`credit_flow:state`).
fn state(call: &Call<'_>, client: &Presence) -> &'static str {
    if client.is_in_flow(call.app.broker.now().monotonic_ms) { "flow" } else { "running" }
}

fn connection(call: &Call<'_>, client: &Presence) -> Value {
    let settings = &call.app.settings;
    let properties = table(&client.client_properties);
    let name = properties.get("connection_name").cloned();
    let visitor = call.app.net.connections.visitor(client.id);
    let wire = visitor.as_ref().map(|visitor| visitor.wire.counts()).unwrap_or_default();
    let shape = json!({
        "name": client.ends.name(),
        "user": &*client.user,
        "user_who_performed_action": &*client.user,
        "vhost": call.vhost_name(client.vhost),
        "host": client.ends.local.ip().to_canonical().to_string(),
        "port": client.ends.local.port(),
        "peer_host": client.ends.peer.ip().to_canonical().to_string(),
        "peer_port": client.ends.peer.port(),
        "protocol": "AMQP 0-9-1",
        "type": "network",
        "node": call.app.node(),
        "state": state(call, client),
        "ssl": visitor.is_some_and(|visitor| visitor.tls),
        "auth_mechanism": "PLAIN",
        "recv_oct": wire.received_bytes,
        "recv_cnt": wire.reads,
        "send_oct": wire.sent_bytes,
        "send_cnt": wire.writes,
        "send_pend": wire.waiting_bytes,
        "channels": client.channel_count(),
        "channel_max": settings.channel_max,
        "frame_max": settings.frame_bytes_max,
        "timeout": settings.heartbeat_seconds,
        "connected_at": client.since_ms,
        "client_properties": properties,
    });
    with(shape, name.map_or_else(|| json!({}), |name| json!({"user_provided_name": name})))
}

fn channel_name(client: &Presence, number: u16) -> String {
    format!("{} ({number})", client.ends.name())
}

fn channel(call: &Call<'_>, client: &Presence, number: u16, channel: &ShownChannel) -> Value {
    json!({
        "name": channel_name(client, number),
        "number": number,
        "node": call.app.node(),
        "user": &*client.user,
        "user_who_performed_action": &*client.user,
        "vhost": call.vhost_name(client.vhost),
        "state": if channel.publishes { state(call, client) } else { "running" },
        "connection_details": connection_details(client),
        "consumer_count": channel.consumers.len(),
        "global_prefetch_count": channel.global_prefetch,
        "prefetch_count": channel.consumers.values().map(|consumer| consumer.prefetch).max().unwrap_or(0),
        "confirm": false,
        "transactional": false,
        "acks_uncommitted": 0,
        "messages_unacknowledged": 0,
        "messages_unconfirmed": 0,
        "messages_uncommitted": 0,
    })
}

fn consumer(call: &Call<'_>, client: &Presence, number: u16, consumer: &ShownConsumer) -> Value {
    json!({
        "consumer_tag": shown(&consumer.tag),
        "queue": queues::reference(call, consumer.queue),
        "channel_details": with(connection_details(client), json!({
            "connection_name": client.ends.name(),
            "name": channel_name(client, number),
            "number": number,
            "node": call.app.node(),
        })),
        "ack_required": consumer.ack_required,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch,
        "active": true,
        "activity_status": "up",
        "arguments": table(&consumer.arguments),
        "consumer_timeout": null,
    })
}

/// Returns the visible connections that match.
pub(super) fn connections(call: &Call<'_>, which: impl Fn(&Presence) -> bool) -> Answer {
    Answer::Paged(visible(call, which).iter().map(|client| connection(call, client)).collect())
}

/// Returns the channels of the visible connections that match.
pub(super) fn channels(call: &Call<'_>, which: impl Fn(&Presence) -> bool) -> Answer {
    let mut all = Vec::new();
    for client in visible(call, which) {
        all.extend(client.channels().iter().map(|(number, shown)| channel(call, &client, *number, shown)));
    }
    Answer::Paged(all)
}

/// Returns the consumers that match, by queue and connection.
pub(super) fn consumers(call: &Call<'_>, which: impl Fn(QueueId, &Presence) -> bool) -> Vec<Value> {
    let mut all = Vec::new();
    for client in call.app.directory.clients() {
        for (number, channel) in client.channels() {
            let taken = channel.consumers.values().filter(|consumer| which(consumer.queue, &client));
            all.extend(taken.map(|shown| consumer(call, &client, number, shown)));
        }
    }
    all
}

pub(super) async fn serve_connections(call: &Call<'_>, path: &[&str], headers: &HeaderMap) -> Result<Answer, Failure> {
    let one = |name: &str| {
        let all = call.app.directory.clients().into_iter();
        let found = all.filter(|client| client.ends.name() == name).last().ok_or_else(Failure::not_found)?;
        let may = if call.verb == Verb::Delete { call.is_admin() } else { call.is_monitor() };
        match may || found.user == call.user.name {
            true => Ok(found),
            false => Err(Failure::not_authorised("User not authorised to access object")),
        }
    };
    let reason = headers.get("x-reason").and_then(|reason| reason.to_str().ok()).unwrap_or(REASON);
    match (call.verb, path) {
        (Verb::Get, []) => Ok(connections(call, |_| true)),
        (Verb::Get, ["username", user]) => Ok(connections(call, |client| client.user == *user)),
        (Verb::Delete, ["username", user]) => {
            if *user != &*call.user.name {
                call.admin()?;
            }
            let all = call.app.directory.clients();
            for client in all.iter().filter(|client| client.user == *user) {
                call.app.net.connections.end(client.id, reason);
            }
            Ok(Answer::Done)
        }
        (Verb::Get, [name]) => Ok(Answer::One(connection(call, &*one(name)?))),
        (Verb::Delete, [name]) => {
            call.app.net.connections.end(one(name)?.id, reason);
            Ok(Answer::Done)
        }
        (Verb::Get, [name, "channels"]) => {
            let id = one(name)?.id;
            Ok(channels(call, |client| client.id == id))
        }
        (_, []) => Err(Failure::method_not_allowed("HEAD, GET, OPTIONS")),
        (_, [_]) => Err(Failure::method_not_allowed("HEAD, GET, DELETE, OPTIONS")),
        _ => Err(Failure::not_found()),
    }
}

pub(super) fn serve_channels(call: &Call<'_>, path: &[&str]) -> Result<Answer, Failure> {
    if call.verb != Verb::Get {
        return Err(Failure::method_not_allowed("HEAD, GET, OPTIONS"));
    }
    match path {
        [] => Ok(channels(call, |_| true)),
        [name] => {
            for client in visible(call, |_| true) {
                for (number, shown) in client.channels() {
                    if channel_name(&client, number) == *name {
                        return Ok(Answer::One(channel(call, &client, number, &shown)));
                    }
                }
            }
            Err(Failure::not_found())
        }
        _ => Err(Failure::not_found()),
    }
}

pub(super) fn serve_consumers(call: &Call<'_>, path: &[&str]) -> Result<Answer, Failure> {
    if call.verb != Verb::Get {
        return Err(Failure::method_not_allowed("HEAD, GET, OPTIONS"));
    }
    // Consumers of other users, with their addresses, are visible to monitors only.
    let shows = |client: &Presence| call.is_monitor() || client.user == call.user.name;
    match path {
        [] => {
            let all = consumers(call, |_, client| shows(client) && call.lists(client.vhost));
            Ok(Answer::List(all, &["consumer_tag"]))
        }
        [vhost] => {
            let vhost = call.visible_vhost(vhost)?.id;
            let all = consumers(call, |_, client| shows(client) && client.vhost == vhost);
            Ok(Answer::List(all, &["consumer_tag"]))
        }
        _ => Err(Failure::not_found()),
    }
}
