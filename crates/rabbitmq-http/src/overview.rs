//! The overview, the nodes, and the cluster's name.

use super::answer::Answer;
use super::body::Body;
use super::call::Call;
use super::error::Failure;
use super::shapes::{shown, sum, totals, with};
use super::{Verb, ask, memory};
use bytestring::ByteString;
use polylogue_admin::process;
use polylogue_amqp_gateway::CLUSTER_NAME;
use polylogue_amqp_model::{Command, Queue};
use serde_json::{Value, json};
use std::sync::Arc;

/// The `Allow` header of read-only paths.
pub(super) const LOOK: &str = "HEAD, GET, OPTIONS";
/// The supported exchange types.
const EXCHANGE_TYPES: [&str; 8] = [
    "direct",
    "fanout",
    "headers",
    "topic",
    "x-consistent-hash",
    "x-delayed-message",
    "x-federation-upstream",
    "x-local-random",
];

pub(super) async fn serve(call: &Call<'_>, path: &[&str], body: &Body) -> Result<Answer, Failure> {
    match (call.verb, path) {
        (Verb::Get, ["overview"]) => overview(call).await,
        (Verb::Get, ["version"]) => Ok(Answer::One(Value::from(call.app.settings.version.clone()))),
        (Verb::Get, ["whoami"]) => {
            let tags = super::shapes::texts(&call.user.tags);
            Ok(Answer::One(json!({"name": &*call.user.name, "tags": tags})))
        }
        (Verb::Get, ["nodes"]) => {
            call.monitor()?;
            Ok(Answer::List(vec![node(call)], &["name"]))
        }
        (Verb::Get, ["nodes", name]) => {
            call.monitor()?;
            if *name == call.app.node() { Ok(Answer::One(node(call))) } else { Err(Failure::not_found()) }
        }
        (Verb::Get, ["nodes", name, "memory", rest @ ..]) if matches!(rest, [] | ["relative"]) => {
            call.monitor()?;
            match *name == call.app.node() {
                true if rest.is_empty() => Ok(Answer::One(json!({"memory": memory::absolute(call)}))),
                true => Ok(Answer::One(json!({"memory": memory::relative(call)}))),
                false => Err(Failure::not_found()),
            }
        }
        (Verb::Get, ["cluster-name"]) => Ok(Answer::One(json!({"name": cluster_name(call)}))),
        (Verb::Put, ["cluster-name"]) => {
            call.admin()?;
            let name = Value::from(String::from(&*body.required("name")?));
            ask::put(call.app, Command::SetGlobalParameter(CLUSTER_NAME.into(), name)).await?;
            Ok(Answer::Done)
        }
        (_, ["cluster-name"]) => Err(Failure::method_not_allowed("HEAD, GET, PUT, OPTIONS")),
        (_, ["overview" | "version" | "whoami" | "nodes"]) => Err(Failure::method_not_allowed(LOOK)),
        _ => Err(Failure::not_found()),
    }
}

/// Returns the cluster's name.
pub(super) fn cluster_name(call: &Call<'_>) -> String {
    let set = call.view.metadata.global(&ByteString::from_static(CLUSTER_NAME));
    let set = set.and_then(|json| json.value().as_str().map(str::to_owned));
    set.unwrap_or_else(|| call.app.settings.cluster_name.clone())
}

/// Returns the queues whose statistics the user may see.
pub(super) fn seen_queues(call: &Call<'_>) -> Vec<Arc<Queue>> {
    call.view.metadata.queues().filter(|queue| call.sees(queue.vhost)).cloned().collect()
}

async fn overview(call: &Call<'_>) -> Result<Answer, Failure> {
    let queues = seen_queues(call);
    let counts = if call.query.is_true("disable_stats") { Vec::new() } else { ask::counts(call.app, &queues).await? };
    let sum = sum(counts.iter());
    let view = &call.view;
    let default_exchanges = view.metadata.vhosts().filter(|vhost| call.sees(vhost.id)).count();
    let exchanges = view.routes.exchanges().iter().filter(|exchange| call.sees(exchange.vhost)).count();
    let clients = call.app.directory.clients();
    let clients: Vec<_> = clients.iter().filter(|client| call.sees(client.vhost)).collect();
    let settings = &call.app.settings;
    let version = &settings.version;
    // Statistics over all virtual hosts: hidden from users who do not see all of them.
    let (message_stats, churn_rates) = match call.is_monitor() {
        true => call.app.rates.shapes(call.app.directory.traffic()),
        false => (json!({}), json!({})),
    };
    let mut shape = json!({
        "management_version": version,
        "rates_mode": "basic",
        "sample_retention_policies": {"global": [], "basic": [], "detailed": []},
        "exchange_types": EXCHANGE_TYPES.map(|name| json!({"name": name, "description": name, "enabled": true})),
        "product_version": version,
        "product_name": settings.product,
        "rabbitmq_version": version,
        "cluster_name": cluster_name(call),
        "cluster_tags": {},
        "node_tags": {},
        "erlang_version": settings.platform,
        "erlang_full_version": settings.platform,
        "release_series_support_status": "supported",
        "disable_stats": false,
        "is_op_policy_updating_enabled": true,
        "enable_queue_totals": true,
        "message_stats": message_stats,
        "churn_rates": churn_rates,
        "queue_totals": totals(call, &sum),
        "object_totals": {
            "channels": clients.iter().map(|client| client.channel_count()).sum::<usize>(),
            "connections": clients.len(),
            "consumers": sum.consumers,
            "exchanges": exchanges + default_exchanges,
            "queues": queues.len(),
        },
        "statistics_db_event_queue": 0,
        "node": call.app.node(),
        "listeners": [],
        "contexts": [],
    });
    if let (true, Value::Object(shape)) = (call.is_monitor(), &mut shape) {
        shape.insert("listeners".to_owned(), listeners(call).into_iter().map(|(listener, _)| listener).collect());
        let here = json!({"node": call.app.node()});
        shape.insert("contexts".to_owned(), contexts(call).into_iter().map(|one| with(one, here.clone())).collect());
    }
    Ok(Answer::One(shape))
}

/// Maps a listener's protocol to RabbitMQ's name.
fn protocol(ours: &str) -> &str {
    match ours {
        "rabbitmq-http" => "http",
        "rabbitmq-metrics" => "http/prometheus",
        "http" => "http/polylogue",
        other => other,
    }
}

/// Returns the listeners with their addresses and ports.
pub(super) fn listeners(call: &Call<'_>) -> Vec<(Value, (String, u16))> {
    let one = |listener: &polylogue_admin::api::ListenerStatus| {
        let at: std::net::SocketAddr = listener.bound.parse().ok()?;
        let name = protocol(&listener.protocol).to_owned();
        let shape = json!({
            "node": call.app.node(),
            "protocol": name,
            "ip_address": at.ip().to_string(),
            "port": at.port(),
            "socket_opts": {},
        });
        Some((shape, (name, at.port())))
    };
    call.app.listeners.iter().filter_map(one).collect()
}

/// Returns the HTTP listeners for RabbitMQ's tools. Ports are strings, as in RabbitMQ.
fn contexts(call: &Call<'_>) -> Vec<Value> {
    let one = |listener: &polylogue_admin::api::ListenerStatus| {
        let at: std::net::SocketAddr = listener.bound.parse().ok()?;
        let description = match listener.protocol.as_str() {
            "rabbitmq-http" => "RabbitMQ Management",
            "rabbitmq-metrics" => "RabbitMQ Prometheus",
            _ => return None,
        };
        Some(json!({
            "ssl_opts": [],
            "description": description,
            "path": "/",
            "ip": at.ip().to_string(),
            "port": at.port().to_string(),
        }))
    };
    call.app.listeners.iter().filter_map(one).collect()
}

fn node(call: &Call<'_>) -> Value {
    let status = call.app.broker.status();
    let taken = &call.app.net.memory;
    let exchange_types = EXCHANGE_TYPES.map(|name| json!({"name": name, "description": name, "enabled": true}));
    let mechanisms = call.app.settings.mechanisms.iter();
    let mechanisms: Vec<Value> =
        mechanisms.map(|m| json!({"name": m.name(), "description": m.name(), "enabled": true})).collect();
    json!({
        "name": call.app.node(),
        "type": "disc",
        "running": true,
        "being_drained": false,
        "uptime": call.app.broker.now().monotonic_ms,
        "os_pid": std::process::id().to_string(),
        "rates_mode": "basic",
        "mem_used": taken.used_bytes(),
        "mem_calculation_strategy": memory::STRATEGY,
        "mem_limit": taken.limit_bytes(),
        "mem_alarm": taken.is_alarm(),
        "disk_free": status.disk_free_bytes.unwrap_or(0),
        "disk_free_limit": call.app.setup.disk_free_limit_bytes,
        "disk_free_alarm": status.health.disk_alarm.is_some(),
        "fd_used": process::open_descriptors().unwrap_or(0),
        "fd_total": process::descriptors_max().unwrap_or(0),
        "sockets_used": call.app.net.connections.len(),
        "sockets_total": call.app.setup.connections_max,
        "proc_used": 0,
        "proc_total": 0,
        "run_queue": 0,
        "processors": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "net_ticktime": 60,
        "enabled_plugins": ["rabbitmq_management"],
        "applications": [],
        "partitions": [],
        "cluster_links": [],
        "auth_mechanisms": mechanisms,
        "exchange_types": exchange_types,
        "contexts": contexts(call),
        "log_files": [],
        "config_files": [],
        "db_dir": shown(b""),
    })
}
