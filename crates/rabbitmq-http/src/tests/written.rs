//! The JSON text of responses: no object has a duplicate field, and no number is null or not finite. Clients in other languages fail at
//! both, and a parsed value shows neither.

use super::Server;
use super::clients::{Client, NAME, PATH};
use super::server::Answered;
use polylogue_amqp::codec::*;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::fmt;

/// Fields that are null, as in RabbitMQ. None is a number that tools add up.
const NULL: [&str; 7] = [
    "policy",
    "operator_policy",
    "exclusive_consumer_tag",
    "single_active_consumer_tag",
    "head_message_timestamp",
    "consumer_timeout",
    // An argument or a client property of type `void`.
    "nothing",
];

/// Parses JSON and discards it; rejects duplicate fields and unexpected nulls.
struct Strict;

impl<'de> serde::Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Strict, D::Error> {
        from.deserialize_any(Strict)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Strict, E> {
        if value.is_finite() { Ok(Strict) } else { Err(E::custom("the number is not finite")) }
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_unit<E: Error>(self) -> Result<Strict, E> {
        Err(E::custom("null"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Strict, A::Error> {
        while items.next_element::<Strict>()?.is_some() {}
        Ok(Strict)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Strict, A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = fields.next_key::<String>()? {
            if NULL.contains(&name.as_str()) {
                fields.next_value::<IgnoredAny>()?;
            } else {
                let inside = |e: A::Error| A::Error::custom(format!("{name}: {e}"));
                fields.next_value::<Strict>().map_err(inside)?;
            }
            if names.contains(&name) {
                return Err(A::Error::custom(format!("duplicate field {name}")));
            }
            names.insert(name);
        }
        Ok(Strict)
    }
}

/// Returns the error in a response.
fn wrong(what: &str, answered: &Answered) -> Option<String> {
    if answered.status != 200 {
        return Some(format!("{what}: {}", answered.status));
    }
    let why = serde_json::from_str::<Strict>(&answered.text).err()?;
    Some(format!("{what}: {why}\n    {}", answered.text))
}

/// Fills a server with objects of every kind.
fn world(server: &Server) -> Client {
    let dead = json!({"x-dead-letter-exchange": "", "x-max-length": 5, "x-max-priority": 3});
    for (name, kind, arguments) in [
        ("q", "classic", dead),
        ("quorum", "quorum", json!({"x-delivery-limit": 3})),
        ("stream", "stream", json!({"x-max-age": "1h"})),
        ("plain", "classic", json!({})),
    ] {
        let mut arguments = arguments;
        arguments["x-queue-type"] = json!(kind);
        server.put(&format!("queues/%2F/{name}"), &json!({"durable": true, "arguments": arguments}));
    }
    for kind in ["direct", "fanout", "topic", "headers", "x-consistent-hash"] {
        let arguments = json!({"alternate-exchange": "amq.fanout", "n": 1.5, "list": [1, "two", {"three": 3}]});
        server.put(&format!("exchanges/%2F/x-{kind}"), &json!({"type": kind, "arguments": arguments}));
    }
    let bound = json!({"routing_key": "1", "arguments": {"x-match": "all", "k": 2.5}});
    server.post("bindings/%2F/e/x-headers/q/q", &bound);
    server.post("bindings/%2F/e/x-topic/e/x-direct", &json!({"routing_key": "a.#"}));
    for (path, body) in [
        ("policies/%2F/p", json!({"pattern": "^q", "definition": {"message-ttl": 3_600_000}, "priority": 1})),
        ("operator-policies/%2F/o", json!({"pattern": "^q", "definition": {"max-length": 50}})),
        ("policies/%2F/x", json!({"pattern": "^x-", "definition": {"alternate-exchange": "amq.fanout"}})),
        ("users/u", json!({"password": "u", "tags": "management,impersonator"})),
        ("users/alone", json!({"password": "alone", "tags": ""})),
        ("permissions/%2F/u", json!({"configure": ".*", "write": ".*", "read": ".*"})),
        ("topic-permissions/%2F/u", json!({"exchange": "x-topic", "write": ".*", "read": ".*"})),
        ("vhosts/v", json!({"description": "d", "tags": "a,b", "default_queue_type": "quorum"})),
        ("vhost-limits/%2F/max-queues", json!({"value": 100})),
        ("user-limits/u/max-channels", json!({"value": 9})),
        ("global-parameters/g", json!({"value": {"a": 1}})),
        ("cluster-name", json!({"name": "mine"})),
        (
            "parameters/shovel/%2F/s",
            json!({"value": {
                "src-uri": "amqp://", "src-queue": "q", "dest-uri": "amqp://", "dest-queue": "quorum", "src-predeclared": true,
                "dest-predeclared": true,
            }}),
        ),
    ] {
        server.put(path, &body);
    }
    for queue in ["q", "quorum", "stream"] {
        let properties = json!({"headers": {"n": 1.5, "list": [1]}, "delivery_mode": 2});
        let message =
            json!({"properties": properties, "routing_key": queue, "payload": "x", "payload_encoding": "string"});
        server.post("exchanges/%2F/amq.default/publish", &message);
    }
    let twice = TableBuilder::new().with_text("product", "test").with_text("product", "again");
    let twice = twice.with("f", Value::F64(0.5)).with("nothing", Value::Void).with_text("connection_name", "mine");
    let mut client = Client::open_as(server, twice.build());
    let arguments = TableBuilder::new().with("x-priority", Value::I32(1)).with("x-priority", Value::I32(2)).build();
    let consume =
        BasicConsume { queue: "quorum".into(), consumer_tag: "other".into(), arguments, ..Default::default() };
    client.method(server, 1, consume);
    client
}

/// All paths that can be read, for the objects of [`world`].
fn paths(node: &str) -> Vec<String> {
    let (channel, binding) = (format!("{PATH}%20%281%29"), "bindings/%2F/e/x-topic/e/x-direct/a.%2523");
    let paths = "overview version whoami extensions auth nodes nodes/NODE nodes/NODE/memory nodes/NODE/memory/relative cluster-name vhosts vhosts/%2F vhosts/v \
        vhosts/%2F/permissions vhosts/%2F/topic-permissions vhosts/%2F/connections vhosts/%2F/channels \
        users users/u users/guest users/without-permissions users/u/permissions users/u/topic-permissions permissions \
        permissions/%2F/u topic-permissions topic-permissions/%2F/u exchanges exchanges/%2F exchanges/%2F/x-headers \
        exchanges/%2F/amq.default exchanges/%2F/x-topic/bindings/source exchanges/%2F/x-direct/bindings/destination queues queues/%2F \
        queues/%2F/q queues/%2F/quorum queues/%2F/stream queues/%2F/plain queues/%2F/q/bindings bindings bindings/%2F \
        bindings/%2F/e/x-headers/q/q bindings/%2F/e/amq.default/q/q/q bindings/%2F/e/x-topic/e/x-direct BINDING policies policies/%2F \
        policies/%2F/p operator-policies operator-policies/%2F operator-policies/%2F/o parameters parameters/shovel \
        parameters/shovel/%2F parameters/shovel/%2F/s global-parameters global-parameters/g global-parameters/cluster_name vhost-limits \
        vhost-limits/%2F user-limits user-limits/u definitions definitions/%2F connections connections/PATH \
        connections/username/guest connections/PATH/channels channels channels/CHANNEL consumers consumers/%2F health/checks/alarms \
        health/checks/local-alarms health/checks/port-listener/5672 health/checks/protocol-listener/amqp \
        health/checks/virtual-hosts health/checks/node-is-quorum-critical healthchecks/node healthchecks/node/NODE \
        aliveness-test/%2F shovels shovels/%2F shovels/%2F/s shovels/vhost/%2F/s feature-flags auth/attempts/NODE \
        auth/attempts/NODE/source federation-links federation-links/%2F federation-links/state/down \
        federation-links/%2F/state/down deprecated-features deprecated-features/used auth/hash_password/p";
    let named = |path: &str| {
        let path = path.replace("NODE", node).replace("CHANNEL", &channel).replace("BINDING", binding);
        path.replace("PATH", PATH)
    };
    paths.split_whitespace().map(named).collect()
}

/// Query strings of lists.
const QUERIES: [&str; 6] = [
    "",
    "?page=1&page_size=10&name=q",
    "?disable_stats=true&enable_queue_totals=true",
    "?lengths_age=60&lengths_incr=5&msg_rates_age=60&msg_rates_incr=5&data_rates_age=0&data_rates_incr=0",
    "?lengths_age=0&lengths_incr=0",
    "?columns=name,name,messages,messages_details.rate,messages_details&sort=messages_details.rate&sort_reverse=true",
];

#[test]
fn no_field_is_there_twice_and_no_number_is_missing() {
    let server = Server::start();
    let _client = world(&server);
    let node = server.get("overview")["node"].as_str().unwrap().to_owned();
    assert_eq!(server.get("connections")[0]["name"], NAME);
    let mut all = Vec::new();
    for path in paths(&node) {
        for query in QUERIES {
            let path = format!("{path}{query}");
            all.extend(wrong(&path, &server.ask("GET", &path, &Json::Null)));
        }
    }
    for queue in ["q", "quorum"] {
        let get = json!({"ackmode": "ack_requeue_true", "count": 5, "encoding": "auto"});
        all.extend(wrong(queue, &server.ask("POST", &format!("queues/%2F/{queue}/get"), &get)));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// Expands a documented path: `queues[/V[/Q]]` is three paths.
fn expanded(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('[') else { return vec![pattern.to_owned()] };
    let (inside, after) = rest.rsplit_once(']').unwrap();
    let longer = expanded(inside).into_iter().map(|inside| format!("{before}{inside}{after}"));
    std::iter::once(format!("{before}{after}")).chain(longer).collect()
}

/// Whether a path matches a documented one.
fn is_for(documented: &str, path: &str) -> bool {
    let (documented, path): (Vec<_>, Vec<_>) = (documented.split('/').collect(), path.split('/').collect());
    let same = |(name, part): (&&str, &&str)| name == part || name.chars().all(|c| c.is_ascii_uppercase());
    match documented.split_last() {
        Some((&"...", first)) => path.len() > first.len() && first.iter().zip(&path).all(same),
        _ => documented.len() == path.len() && documented.iter().zip(&path).all(same),
    }
}

/// Documented only with methods other than GET.
const NOT_GOT: [&str; 3] = ["topic-permissions/V/U/X", "vhost-limits/V/NAME", "user-limits/U/NAME"];

/// All documented paths with their table rows: object names in capitals, a trailing `...` for more segments.
pub(super) fn documented() -> Vec<(String, &'static str)> {
    let text = include_str!("../../../../docs/protocols/rabbitmq-http.md");
    let mut all = Vec::new();
    for row in text.lines().filter(|line| line.starts_with("| `")) {
        let mut above = String::new();
        for part in row.split('|').nth(1).unwrap().split(',').map(|part| part.trim().trim_matches('`')) {
            // With several optional parts only the first has the prefix.
            let part = match above.rsplit_once('/') {
                Some((above, _)) if !part.contains('/') => format!("{above}/{part}"),
                _ => part.to_owned(),
            };
            all.extend(expanded(&part).into_iter().map(|path| (path, row)));
            above = part;
        }
    }
    all
}

/// Every documented path must be read by these tests.
#[test]
fn every_documented_path_is_looked_at() {
    let paths = paths("NODE");
    let got: Vec<_> = documented().into_iter().filter(|(_, row)| row.contains("GET")).collect();
    for (documented, row) in &got {
        let is_there = paths.iter().any(|path| is_for(documented, path));
        assert!(is_there || NOT_GOT.contains(&documented.as_str()), "{documented} of {row}");
    }
    assert!(got.len() > 50, "only {} paths are documented", got.len());
}

/// Tests the parser itself.
#[test]
fn what_is_wrong_is_found() {
    let read = |text: &str| serde_json::from_str::<Strict>(text).map(|_| ()).map_err(|e| e.to_string());
    assert_eq!(read(r#"{"a": [1, 2.5, {"policy": null}], "b": true}"#), Ok(()));
    for (text, why) in [
        (r#"[{"a": {"b": 1, "c": 2, "b": 1}}]"#, "a: duplicate field b"),
        (r#"{"policy": null, "policy": null}"#, "duplicate field policy"),
        (r#"{"rate": null}"#, "rate: null"),
        (r#"{"rate": NaN}"#, "expected"),
        (r#"{"rate": 1e999}"#, "number out of range"),
    ] {
        let said = read(text).unwrap_err();
        assert!(said.contains(why), "{text}: {said}");
    }
}
