//! Definitions of real brokers can be imported unchanged, are exported again, and a second import changes nothing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use crate::common;

use common::*;
use polylogue_amqp_model::*;
use proptest::prelude::*;
use serde_json::{Value, json};

/// An export of RabbitMQ 3.13: operator policies and limits among the parameters, bindings of queues that are not exported, policies of mirrored
/// queues, tags as arrays, empty limits as arrays.
fn of_3_13() -> Value {
    json!({
        "rabbit_version": "3.13.7", "rabbitmq_version": "3.13.7", "product_name": "RabbitMQ", "product_version": "3.13.7",
        "users": [
            {"name": "guest", "password_hash": "BMfxN8drrYcIqXZMr+pWTpDT0nMcOagMduLX0bjr4jwud/pN",
             "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ["administrator"], "limits": {}},
            {"name": "shop", "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR",
             "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": [], "limits": {"max-connections": 5}}
        ],
        "vhosts": [
            {"name": "/", "limits": [], "metadata": {"description": "Default virtual host", "tags": []}},
            {"name": "shop", "limits": {"max-queues": 50},
             "metadata": {"description": "Orders", "tags": ["prod", "eu"], "default_queue_type": "quorum", "owner": "team-a"}}
        ],
        "permissions": [
            {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
            {"user": "shop", "vhost": "shop", "configure": "^(?!amq\\.).*", "write": ".*", "read": ".*"}
        ],
        "topic_permissions": [
            {"user": "shop", "vhost": "shop", "exchange": "events", "write": "^{username}\\..*", "read": ".*"}
        ],
        "parameters": [
            {"component": "operator_policy", "name": "cap", "vhost": "shop",
             "value": {"apply-to": "queues", "definition": {"max-length": 1000}, "pattern": ".*", "priority": 0}},
            {"component": "vhost-limits", "name": "limits", "vhost": "shop", "value": {"max-queues": 50}},
            {"component": "shovel", "name": "move", "vhost": "shop",
             "value": {"src-uri": ["amqp://a", "amqp://b"], "src-queue": "q", "dest-uri": "amqp://c", "dest-queue": "q"}}
        ],
        "global_parameters": [
            {"name": "cluster_name", "value": "rabbit@old"},
            {"name": "internal_cluster_id", "value": "rabbitmq-cluster-id-YVlaHpOVFS2hZcRdaeaVgw"}
        ],
        "policies": [
            {"vhost": "shop", "name": "ha", "pattern": "^ha\\.", "apply-to": "all", "priority": 0,
             "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}},
            {"vhost": "shop", "name": "dlx", "pattern": "^orders", "apply-to": "quorum_queues", "priority": 5,
             "definition": {"dead-letter-exchange": "dead", "message-ttl": 60_000}},
            {"vhost": "shop", "name": "ae", "pattern": "^events$", "apply-to": "exchanges", "priority": 0,
             "definition": {"alternate-exchange": "dead"}}
        ],
        "queues": [
            {"name": "orders", "vhost": "shop", "durable": true, "auto_delete": false,
             "arguments": {"x-queue-type": "quorum", "x-max-length": 5000}},
            {"name": "lazy", "vhost": "shop", "durable": true, "auto_delete": false,
             "arguments": {"x-queue-type": "classic", "x-queue-mode": "lazy"}},
            {"name": "transient", "vhost": "/", "durable": false, "auto_delete": true, "arguments": {}},
            {"name": "amq.gen-aB3", "vhost": "/", "durable": false, "auto_delete": false, "arguments": {}}
        ],
        "exchanges": [
            {"name": "events", "vhost": "shop", "type": "topic", "durable": true, "auto_delete": false, "internal": false,
             "arguments": {}},
            {"name": "dead", "vhost": "shop", "type": "fanout", "durable": true, "auto_delete": false, "internal": false,
             "arguments": {}},
            {"name": "later", "vhost": "shop", "type": "x-delayed-message", "durable": true, "auto_delete": false,
             "internal": false, "arguments": {"x-delayed-type": "direct"}}
        ],
        "bindings": [
            {"source": "events", "vhost": "shop", "destination": "orders", "destination_type": "queue",
             "routing_key": "order.#", "arguments": {}},
            {"source": "amq.headers", "vhost": "shop", "destination": "lazy", "destination_type": "queue",
             "routing_key": "", "arguments": {"x-match": "any", "kind": "a"}},
            {"source": "events", "vhost": "shop", "destination": "dead", "destination_type": "exchange",
             "routing_key": "#", "arguments": {}},
            {"source": "events", "vhost": "shop", "destination": "an-exclusive-queue", "destination_type": "queue",
             "routing_key": "x", "arguments": {}},
            {"source": "amq.direct", "vhost": "/", "destination": "amq.gen-aB3", "destination_type": "queue",
             "routing_key": "x", "arguments": {}}
        ]
    })
}

#[test]
fn an_export_of_rabbitmq_3_13_is_imported_unchanged() {
    let mut live = Live::empty();
    live.run(import(of_3_13())).unwrap();
    let metadata = live.model.metadata();
    let shop = metadata.vhost_named("shop").unwrap().clone();
    assert!(metadata.user("shop").unwrap().password.verify(b"test12"));
    assert_eq!(metadata.user("shop").unwrap().connections_max, Some(5));
    assert_eq!((&*shop.description, shop.tags.len(), shop.queues_max), ("Orders", 2, Some(50)));
    assert_eq!(shop.default_queue_type, Some(QueueKind::Quorum));
    assert_eq!(shop.metadata.value(), json!({"owner": "team-a"}));
    let orders = live.model.queue(shop.id, "orders").unwrap();
    let effective = metadata.effective(orders);
    assert_eq!((effective.policy.as_deref(), effective.operator_policy.as_deref()), (Some("dlx"), Some("cap")));
    assert_eq!(effective.settings.max_length, Some(1_000));
    assert_eq!(effective.settings.dead_letter_exchange.as_deref(), Some("dead"));
    assert!(live.model.queue(shop.id, "lazy").is_some() && live.model.queue(HOST, "amq.gen-aB3").is_none());
    let events = live.model.routes().exchange(shop.id, b"events").unwrap();
    assert_eq!(events.effective_alternate().map(|name| &**name), Some(&b"dead"[..]));
    assert_eq!(live.model.routes().bindings().len(), 3);
    assert!(metadata.may("shop", shop.id, Access::Configure, Resource::Queue, "orders"));
    assert!(!metadata.may("shop", shop.id, Access::Configure, Resource::Queue, "amq.gen-x"));
    assert!(metadata.check_topic("shop", shop.id, Access::Write, "events", "shop.new", None).is_ok());
    assert!(same(&live.model, &live.replayed()));
}

#[test]
fn a_second_import_changes_nothing() {
    let mut live = Live::empty();
    live.run(import(of_3_13())).unwrap();
    let log = live.log.len();
    live.run(import(of_3_13())).unwrap();
    assert_eq!(live.log.len(), log);
    let out = exported(&live);
    live.run(import(out)).unwrap();
    assert_eq!(live.log.len(), log, "nor does an import of its own export");
}

#[test]
fn export_and_import_round_trip() {
    let mut live = Live::empty();
    live.run(import(of_3_13())).unwrap();
    let out = exported(&live);
    let mut other = Live::empty();
    other.run(import(out.clone())).unwrap();
    assert_eq!(exported(&other), out);
    assert_eq!(out["rabbit_version"], json!("4.2.0"));
    // Sections and fields that tools read.
    let names = |section: &str, field: &str| -> Vec<String> {
        out[section].as_array().unwrap().iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("exchanges", "name"), ["events", "dead", "later"]);
    assert_eq!(names("global_parameters", "name"), ["cluster_name"]);
    assert_eq!(names("parameters", "component"), ["shovel", "operator_policy", "vhost-limits"]);
    assert_eq!(names("queues", "type"), ["quorum", "classic", "classic"]);
    assert_eq!(names("policies", "apply-to"), ["exchanges", "quorum_queues", "all"]);
    let user = &out["users"][0];
    assert_eq!(user["password_hash"], json!("BMfxN8drrYcIqXZMr+pWTpDT0nMcOagMduLX0bjr4jwud/pN"));
    assert_eq!(out["vhosts"][1]["metadata"]["owner"], json!("team-a"));
}

/// Additions of RabbitMQ 4, and the notations of older and other brokers.
#[test]
fn other_notations_are_accepted() {
    let mut live = Live::empty();
    let json = json!({
        "rabbit_version": "4.1.2", "rabbitmq_definition_format": "cluster", "original_cluster_name": "rabbit@a",
        "explanation": "Definitions of cluster 'rabbit@a'", "something_new": {"a": 1},
        "users": [
            {"name": "old", "password_hash": "", "tags": "administrator, monitoring", "limits": []},
            {"name": "plain", "password": "secret", "tags": ""},
            "not an object"
        ],
        "vhosts": [
            {"name": "v", "description": "d", "tags": "a,b", "default_queue_type": "undefined", "metadata": [],
             "tracing": true, "new_field": 1}
        ],
        "queues": [
            {"name": "q", "vhost": "v", "type": "quorum", "durable": true, "auto_delete": false, "arguments": []},
            {"name": "s", "vhost": "v", "durable": true, "arguments": {"x-queue-type": "stream", "x-max-age": "7D"}},
            {"name": "q", "vhost": "v", "durable": true, "arguments": {}}
        ],
        "exchanges": [{"name": "x", "vhost": "v", "type": "headers"}, {"name": "", "vhost": "v", "type": "direct"}],
        "bindings": [
            {"source": "x", "vhost": "v", "destination": "q", "destination_type": "queue", "routing_key": "",
             "arguments": {"x-match": "all", "n": 5, "list": [1, {"deep": true}]}},
            {"source": "", "vhost": "v", "destination": "q", "destination_type": "queue", "routing_key": "q", "arguments": {}}
        ]
    });
    live.run(import(json.clone())).unwrap();
    let metadata = live.model.metadata();
    assert_eq!(metadata.user("old").unwrap().tags, ["administrator", "monitoring"]);
    assert!(!metadata.user("old").unwrap().password.verify(b""));
    assert!(metadata.user("plain").unwrap().password.verify(b"secret"));
    let v = metadata.vhost_named("v").unwrap();
    assert_eq!((v.tags.len(), v.default_queue_type, v.tracing), (2, None, true));
    assert_eq!(live.model.queue(v.id, "q").unwrap().kind, QueueKind::Quorum);
    assert_eq!(live.model.routes().bindings().len(), 1);
    let out = exported(&live);
    assert_eq!(out["bindings"][0]["arguments"]["list"], json!([1, {"deep": true}]));
    let log = live.log.len();
    live.run(import(json)).unwrap();
    assert_eq!(live.log.len(), log, "even a plain-text password is not hashed again");
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn an_error_names_the_item_and_nothing_is_imported() {
    let mut live = Live::new();
    for (section, item, text) in [
        ("users", json!({"name": "u", "password_hash": "?", "tags": []}), "user 'u': the password hash is not base64"),
        ("users", json!({"name": "u", "hashing_algorithm": "rot13"}), "user 'u': unknown hashing algorithm 'rot13'"),
        ("vhosts", json!({"description": "no name"}), "vhost '?': 'name' is missing"),
        (
            "permissions",
            json!({"user": "u", "vhost": "/", "configure": "", "write": "", "read": ""}),
            "permission of user 'u' in vhost '/': user 'u' does not exist",
        ),
        (
            "permissions",
            json!({"user": "guest", "vhost": "/", "configure": "(", "write": "", "read": ""}),
            "permission of user 'guest' in vhost '/': '(' is not a regular expression",
        ),
        (
            "parameters",
            json!({"name": "p", "vhost": "no", "component": "c", "value": 1}),
            "parameter 'p' in vhost 'no': vhost 'no' does not exist",
        ),
        (
            "parameters",
            json!({"name": "limits", "vhost": "/", "component": "vhost-limits", "value": {"max-fun": 1}}),
            "parameter 'limits' in vhost '/': Unrecognised terms",
        ),
        (
            "policies",
            json!({"name": "p", "vhost": "/", "pattern": "a", "definition": {"foo": 1}}),
            "policy 'p' in vhost '/': Validation failed",
        ),
        (
            "policies",
            json!({"name": "p", "vhost": "/", "pattern": "a", "apply-to": "cats", "definition": {"max-length": 1}}),
            "policy 'p' in vhost '/': Validation failed\n\napply-to 'cats' unrecognised",
        ),
        (
            "queues",
            json!({"name": "q", "vhost": "/", "durable": "yes"}),
            "queue 'q' in vhost '/': 'durable' must be true or false",
        ),
        (
            "queues",
            json!({"name": "q", "vhost": "/", "durable": true, "arguments": {"x-message-ttl": -1}}),
            "queue 'q' in vhost '/': invalid arg 'x-message-ttl' for queue 'q' in vhost '/': {value_negative,-1}",
        ),
        (
            "queues",
            json!({"name": "q", "vhost": "/", "durable": false, "arguments": {"x-queue-type": "quorum"}}),
            "queue 'q' in vhost '/': invalid property 'non-durable' for queue 'q' in vhost '/'",
        ),
        (
            "queues",
            json!({"name": "q", "vhost": "/", "arguments": {"a": null}}),
            "queue 'q' in vhost '/': 'arguments': null_not_allowed",
        ),
        (
            "exchanges",
            json!({"name": "x", "vhost": "/", "type": "quantum"}),
            "exchange 'x' in vhost '/': unknown exchange type 'quantum'",
        ),
        (
            "exchanges",
            json!({"name": "x".repeat(300), "vhost": "/", "type": "fanout"}),
            "there can be at most 255 bytes in a name",
        ),
        (
            "bindings",
            json!({"source": "ring", "destination": "good", "destination_type": "queue", "vhost": "/", "routing_key": "heavy"}),
            "binding of queue 'good' to exchange 'ring' in vhost '/': ",
        ),
        (
            "bindings",
            json!({"source": "ring", "destination": "good", "destination_type": "planet", "vhost": "/"}),
            "destination type 'planet'",
        ),
    ] {
        let mut all = json!({
            "vhosts": [{"name": "new"}],
            "queues": [{"name": "good", "vhost": "/", "durable": true, "auto_delete": false, "arguments": {}}],
            "exchanges": [{"name": "ring", "vhost": "/", "type": "x-consistent-hash"}],
        });
        if all[section].is_null() {
            all[section] = json!([]);
        }
        all[section].as_array_mut().unwrap().push(item);
        let refused = live.refusal(&Caller::broker(), import(all));
        assert!(refused.starts_with("BAD_REQUEST - ") && refused.contains(text), "{refused}\nis not\n{text}");
    }
    assert!(Definitions::parse(b"[]", None).is_err());
    assert!(Definitions::parse(b"{", None).is_err());
    let refused = live.refusal(&Caller::broker(), import(json!({"queues": {"q": 1}})));
    assert_eq!(refused, "BAD_REQUEST - 'queues' must be an array");
}

#[test]
fn an_import_respects_limits() {
    let mut live = Live::new();
    live.run(Command::SetVhostLimit("/".into(), VhostLimit::Queues, Some(2))).unwrap();
    let queue = |name: &str| json!({"name": name, "vhost": "/", "durable": true, "arguments": {}});
    let text = live.refusal(&Caller::broker(), import(json!({"queues": [queue("a"), queue("b"), queue("c")]})));
    assert!(text.contains("queue limit in vhost '/' (2) is reached"), "{text}");
    live.run(import(json!({"queues": [queue("a"), queue("b"), queue("a")]}))).unwrap();
}

#[test]
fn definitions_of_one_virtual_host_are_imported_into_the_given_one() {
    let mut live = Live::empty();
    live.run(import(of_3_13())).unwrap();
    let shop = live.model.metadata().vhost_named("shop").unwrap().id;
    let out = export(live.model.metadata(), live.model.routes(), Some(shop), &product());
    assert!(out["queues"][0].get("vhost").is_none() && out.get("users").is_none());
    assert_eq!((&out["original_vhost_name"], &out["default_queue_type"]), (&json!("shop"), &json!("quorum")));
    live.run(Command::PutVhost(PutVhost { name: "copy".into(), ..PutVhost::default() })).unwrap();
    let definitions = Definitions::parse(out.to_string().as_bytes(), Some("copy".into())).unwrap();
    live.run(Command::Import(Box::new(definitions))).unwrap();
    let copy = live.model.metadata().vhost_named("copy").unwrap().id;
    let sections = ["queues", "exchanges", "bindings", "policies", "parameters"];
    let again = export(live.model.metadata(), live.model.routes(), Some(copy), &product());
    for section in sections {
        assert_eq!(again[section], out[section], "{section}");
    }
    let nowhere = Definitions::parse(out.to_string().as_bytes(), Some("nowhere".into())).unwrap();
    let text = live.refusal(&Caller::broker(), Command::Import(Box::new(nowhere)));
    assert!(text.contains("vhost 'nowhere' does not exist"), "{text}");
}

#[test]
fn existing_objects_are_left_unchanged() {
    let mut live = Live::new();
    live.declare(queue("q"));
    live.run(Command::DeclareExchange(exchange("x", "fanout"))).unwrap();
    live.declare_as(&connection(1), DeclareQueue { exclusive: true, ..queue("mine") }).unwrap();
    live.run(import(json!({
        "queues": [{"name": "q", "vhost": "/", "durable": false, "arguments": {"x-max-length": 1}}],
        "exchanges": [{"name": "x", "vhost": "/", "type": "direct", "durable": false}]
    })))
    .unwrap();
    assert!(live.model.queue(HOST, "q").unwrap().durable);
    assert_eq!(live.model.routes().exchange(HOST, b"x").unwrap().kind.name(), "fanout");
    let names = exported(&live)["queues"].to_string();
    assert!(!names.contains("mine"), "exclusive queues cannot be declared again");
}

/// Replaces value number `at` of a JSON tree by `with`, or removes it.
fn replace(value: &mut Value, at: &mut usize, with: Option<&Value>) -> bool {
    let children: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(map) => {
            if with.is_none() && *at < map.len() {
                let key = map.keys().nth(*at).cloned().unwrap();
                map.remove(&key);
                return true;
            }
            map.values_mut().collect()
        }
        _ => return false,
    };
    for child in children {
        if *at == 0 {
            *child = with.cloned().unwrap_or(Value::Null);
            return true;
        }
        *at -= 1;
        if replace(child, at, with) {
            return true;
        }
    }
    false
}

fn odd_value() -> impl proptest::strategy::Strategy<Value = Option<Value>> {
    let values = vec![
        None,
        Some(Value::Null),
        Some(json!(0)),
        Some(json!(-1)),
        Some(json!(u64::MAX)),
        Some(json!(1e300)),
        Some(json!(true)),
        Some(json!("")),
        Some(json!("/")),
        Some(json!("shop")),
        Some(json!("orders")),
        Some(json!("amq.topic")),
        Some(json!("(")),
        Some(json!("policy")),
        Some(json!("x".repeat(300))),
        Some(json!([])),
        Some(json!({})),
        Some(json!([[[{"a": [1]}]]])),
        Some(json!({"x-queue-type": "stream", "max-length": 1})),
    ];
    prop::sample::select(values)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn odd_definitions_are_refused_or_round_trip(
        odd in prop::collection::vec((0..400usize, odd_value()), 1..4),
    ) {
        let mut json = of_3_13();
        for (at, value) in &odd {
            replace(&mut json, &mut at.clone(), value.as_ref());
        }
        let Ok(definitions) = Definitions::parse(json.to_string().as_bytes(), None) else { return Ok(()) };
        let mut live = Live::new();
        let command = Command::Import(Box::new(definitions));
        if live.run(command.clone()).is_err() {
            live.refusal(&Caller::broker(), command);
            return Ok(());
        }
        let log = live.log.len();
        live.run(command).unwrap();
        prop_assert_eq!(live.log.len(), log, "the second import changes something");
        // Bindings of internal exchanges are exported and these exchanges are not, as in RabbitMQ.
        let without_bindings = |live: &Live| {
            let mut out = exported(live);
            out["bindings"] = Value::Null;
            out
        };
        let mut other = Live::new();
        other.run(import(exported(&live))).unwrap();
        prop_assert_eq!(without_bindings(&other), without_bindings(&live));
        prop_assert!(same(&live.model, &live.replayed()));
    }
}
