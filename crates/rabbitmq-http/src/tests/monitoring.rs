//! Fields that monitoring tools for RabbitMQ read, according to their sources: a missing field or a wrong type makes them fail or
//! show nothing. Telegraf and KEDA are tested themselves (compat/telegraf, compat/keda).

use super::Server;
use serde::Deserialize;
use serde_json::{Value, json};

/// kbudde/rabbitmq_exporter: the fields that its modules read in each response, or in each item of a list. `_len` stands for the length of an
/// array. The exporter reads booleans as numbers.
const EXPORTER: [(&str, &[&str]); 5] = [
    (
        "overview",
        &[
            "object_totals.channels",
            "object_totals.connections",
            "object_totals.consumers",
            "object_totals.queues",
            "object_totals.exchanges",
            "queue_totals.messages",
            "queue_totals.messages_ready",
            "queue_totals.messages_unacknowledged",
            "message_stats.publish_details.rate",
            "message_stats.deliver_no_ack_details.rate",
            "message_stats.deliver_details.rate",
        ],
    ),
    (
        "nodes",
        &[
            "uptime",
            "running",
            "mem_used",
            "mem_limit",
            "mem_alarm",
            "disk_free",
            "disk_free_alarm",
            "disk_free_limit",
            "fd_used",
            "fd_total",
            "sockets_used",
            "sockets_total",
            "partitions_len",
        ],
    ),
    (
        "queues",
        &[
            "messages_ready",
            "messages_unacknowledged",
            "messages",
            "messages_ram",
            "messages_persistent",
            "message_bytes",
            "message_bytes_ready",
            "message_bytes_unacknowledged",
            "message_bytes_ram",
            "message_bytes_persistent",
            "consumers",
            "consumer_utilisation",
            "memory",
            "head_message_timestamp",
            "members_len",
            "online_len",
        ],
    ),
    ("connections", &["channels", "recv_oct", "recv_cnt", "send_oct", "send_cnt", "send_pend"]),
    (
        "nodes/NODE/memory",
        &[
            "memory.allocated_unused",
            "memory.atom",
            "memory.binary",
            "memory.code",
            "memory.connection_channels",
            "memory.connection_other",
            "memory.connection_readers",
            "memory.connection_writers",
            "memory.metrics",
            "memory.mgmt_db",
            "memory.mnesia",
            "memory.msg_index",
            "memory.other_ets",
            "memory.other_proc",
            "memory.other_system",
            "memory.plugins",
            "memory.queue_procs",
            "memory.reserved_unallocated",
            "memory.total.allocated",
            "memory.total.rss",
            "memory.total.erlang",
        ],
    ),
];
/// The strings that it uses as labels.
const LABELS: [(&str, &[&str]); 3] = [
    ("overview", &["node", "rabbitmq_version", "erlang_version", "cluster_name"]),
    ("queues", &["vhost", "name", "state", "node"]),
    ("connections", &["vhost", "node", "peer_host", "user", "state"]),
];

/// A quorum queue with a message that has a timestamp, and a connection.
fn watched() -> (Server, super::clients::Client, String) {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({"durable": true}));
    let client = super::clients::Client::open(&server);
    let quorum = json!({"durable": true, "arguments": {"x-queue-type": "quorum"}});
    server.put("queues/%2F/orders", &quorum);
    let message = json!({
        "properties": {"timestamp": 1_700_000_000}, "routing_key": "orders", "payload": "x", "payload_encoding": "string"
    });
    server.post("exchanges/%2F/amq.default/publish", &message);
    let node = server.get("overview")["node"].as_str().unwrap().to_owned();
    (server, client, node)
}

fn at<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    key.split('.').try_fold(value, |value, part| value.get(part))
}

/// Returns the item of a list that has the most fields, or the response itself.
fn item(answer: Value) -> Value {
    match answer {
        Value::Array(items) => items.into_iter().max_by_key(|item| item["name"] == "orders").expect("an item"),
        one => one,
    }
}

#[test]
fn the_exporter_finds_its_numbers_and_labels() {
    let (server, _client, node) = watched();
    let mut missing = Vec::new();
    for (path, keys) in EXPORTER {
        let item = item(server.get(&path.replace("NODE", &node)));
        let is_there = |key: &str| match key.strip_suffix("_len") {
            Some(key) => at(&item, key).is_some_and(Value::is_array),
            None => at(&item, key).is_some_and(|value| value.is_number() || value.is_boolean()),
        };
        missing.extend(keys.iter().filter(|key| !is_there(key)).map(|key| format!("{path} {key}")));
    }
    for (path, keys) in LABELS {
        let item = item(server.get(path));
        missing.extend(keys.iter().filter(|key| !item[**key].is_string()).map(|key| format!("{path} {key}")));
    }
    assert_eq!(missing, [""; 0]);
}

/// NServiceBus.RabbitMQ's models. A `required` field there has no default here; its converter of delivery limits accepts an integer or
/// `unlimited`.
mod nservicebus {
    use super::*;

    #[derive(Deserialize)]
    pub(super) struct Overview {
        pub(super) rabbitmq_version: String,
        pub(super) disable_stats: bool,
    }

    #[derive(Deserialize)]
    pub(super) struct FeatureFlag {
        pub(super) name: String,
        pub(super) state: String,
    }

    #[derive(Deserialize)]
    #[serde(untagged)]
    pub(super) enum Limit {
        Number(i32),
        Text(String),
    }

    #[derive(Deserialize)]
    pub(super) struct QueueArguments {
        #[serde(rename = "x-delivery-limit")]
        pub(super) delivery_limit: Option<Limit>,
    }

    #[derive(Deserialize)]
    pub(super) struct PolicyDefinition {
        #[serde(rename = "delivery-limit")]
        pub(super) delivery_limit: Option<Limit>,
    }

    #[derive(Deserialize)]
    pub(super) struct Stats {
        pub(super) ack: Option<i64>,
    }

    #[derive(Deserialize)]
    pub(super) struct Queue {
        pub(super) name: String,
        #[serde(rename = "type")]
        pub(super) kind: Option<String>,
        pub(super) arguments: QueueArguments,
        pub(super) delivery_limit: Option<Limit>,
        pub(super) effective_policy_definition: Option<PolicyDefinition>,
        pub(super) policy: Option<String>,
        #[serde(default)]
        pub(super) messages: i64,
        pub(super) message_stats: Option<Stats>,
    }

    #[derive(Deserialize)]
    pub(super) struct Queues {
        pub(super) items: Vec<Queue>,
        pub(super) page: i32,
        pub(super) page_count: i32,
    }

    #[derive(Deserialize)]
    pub(super) struct Binding {
        pub(super) source: String,
        pub(super) destination: String,
        pub(super) destination_type: String,
        pub(super) routing_key: String,
        pub(super) properties_key: String,
    }
}

/// Regression test: without the feature flag `stream_queue` it reported that the broker is too old; a quorum queue's delivery limit was missing, and
/// it assumed none.
#[test]
fn nservicebus_reads_its_models() {
    use nservicebus::*;
    let (server, _client, _) = watched();
    fn read<T: serde::de::DeserializeOwned>(server: &Server, path: &str) -> T {
        serde_json::from_value(server.get(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }
    let overview: Overview = read(&server, "overview");
    assert!(overview.rabbitmq_version.split('.').count() == 3 && !overview.disable_stats);
    let flags: Vec<FeatureFlag> = read(&server, "feature-flags");
    for name in ["stream_queue", "quorum_queue"] {
        assert!(flags.iter().any(|flag| flag.name == name && flag.state == "enabled"), "{name}");
        assert_eq!(server.put(&format!("feature-flags/{name}/enable"), &Value::Null), 204);
    }
    let refused = server.ask("PUT", "feature-flags/khepri_db/enable", &Value::Null);
    assert_eq!(refused.failure(), (400, "bad_request", "unsupported"));
    let policy = json!({"pattern": "^orders$", "apply-to": "quorum_queues", "definition": {"delivery-limit": -1}});
    server.put("policies/%2F/nsb.delivery-limit", &policy);
    let queue: Queue = read(&server, "queues/%2F/orders");
    assert_eq!((queue.name.as_str(), queue.kind.as_deref(), queue.messages), ("orders", Some("quorum"), 1));
    assert!(matches!(&queue.delivery_limit, Some(Limit::Text(text)) if text == "unlimited"));
    let definition = queue.effective_policy_definition.and_then(|definition| definition.delivery_limit);
    assert!(matches!(definition, Some(Limit::Number(-1))) && queue.arguments.delivery_limit.is_none());
    assert_eq!(queue.policy.as_deref(), Some("nsb.delivery-limit"));
    assert!(queue.message_stats.is_none_or(|stats| stats.ack.is_none_or(|acks| acks >= 0)));
    // Its client adds a trailing slash.
    let queues: Queues = read(&server, "queues/%2F/?page=1&page_size=500");
    assert_eq!((queues.items.len(), queues.page, queues.page_count), (2, 1, 1));
    server.post("bindings/%2F/e/amq.fanout/q/orders", &json!({"routing_key": "k"}));
    for path in ["queues/%2F/orders/bindings", "exchanges/%2F/amq.fanout/bindings/source"] {
        let bindings: Vec<Binding> = read(&server, path);
        let bound = bindings.iter().find(|one| one.source == "amq.fanout").expect("the binding");
        assert_eq!((bound.destination.as_str(), bound.destination_type.as_str()), ("orders", "queue"));
        assert_eq!((bound.routing_key.as_str(), bound.properties_key.as_str()), ("k", "k"));
    }
    let none: Vec<Binding> = read(&server, "exchanges/%2F/amq.fanout/bindings/destination");
    assert!(none.is_empty());
}
