//! Export and import of definitions.

use super::{Server, json_of};
use axum::body::Body;
use axum::http::Request as HttpRequest;
use serde_json::{Value, json};
use std::net::SocketAddr;

/// An export of RabbitMQ 3.13.
fn exported() -> Value {
    json!({
        "rabbit_version": "3.13.7", "rabbitmq_version": "3.13.7", "product_name": "RabbitMQ", "product_version": "3.13.7",
        "users": [{
            "name": "app", "password_hash": "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR",
            "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ["management"], "limits": {"max-channels": 7}
        }],
        "vhosts": [{"name": "/"}, {"name": "shop", "description": "", "tags": [], "metadata": {"description": "", "tags": []}}],
        "permissions": [{"user": "app", "vhost": "shop", "configure": ".*", "write": ".*", "read": ".*"}],
        "topic_permissions": [{"user": "app", "vhost": "shop", "exchange": "events", "write": "^a", "read": ".*"}],
        "parameters": [{"component": "vhost-limits", "vhost": "shop", "name": "limits", "value": {"max-queues": 10}}],
        "global_parameters": [{"name": "cluster_name", "value": "rabbit@old"}],
        "policies": [{
            "vhost": "shop", "name": "short", "pattern": "^o", "apply-to": "queues", "definition": {"max-length": 5}, "priority": 0
        }],
        "queues": [
            {"name": "orders", "vhost": "shop", "durable": true, "auto_delete": false, "arguments": {"x-queue-type": "quorum"}},
            {"name": "mails", "vhost": "shop", "durable": true, "auto_delete": false, "arguments": {}}
        ],
        "exchanges": [{
            "name": "events", "vhost": "shop", "type": "topic", "durable": true, "auto_delete": false, "internal": false,
            "arguments": {}
        }],
        "bindings": [{
            "source": "events", "vhost": "shop", "destination": "orders", "destination_type": "queue",
            "routing_key": "order.#", "arguments": {}
        }]
    })
}

/// Regression test: queues of an import whose client disconnected had no topics, and messages to them were confirmed and lost.
#[test]
fn an_import_is_done_to_its_end_when_its_client_hangs_up() {
    let server = Server::start();
    server.ask_and_hang_up("POST", "definitions", &exported());
    server.get("queues/shop/orders");
    server.put("permissions/shop/guest", &json!({"configure": ".*", "write": ".*", "read": ".*"}));
    let message = json!({"properties": {}, "routing_key": "order.1", "payload": "x", "payload_encoding": "string"});
    assert_eq!(server.post("exchanges/shop/events/publish", &message).body, json!({"routed": true}));
    assert_eq!(server.get("queues/shop/orders")["messages"], 1, "the topic exists");
}

#[test]
fn an_export_of_rabbitmq_is_imported_unchanged_and_its_queues_work() {
    let server = Server::start();
    assert_eq!(server.post("definitions", &exported()).status, 204);
    assert_eq!(server.post("definitions", &exported()).status, 204, "idempotent");
    assert_eq!(server.get("cluster-name"), json!({"name": "rabbit@old"}));
    let queue = server.get("queues/shop/orders");
    let expected = json!({"type": "quorum", "policy": "short", "messages": 0});
    assert_eq!(json_of(&queue, &["type", "policy", "messages"]), expected);
    server.put("permissions/shop/guest", &json!({"configure": ".*", "write": ".*", "read": ".*"}));
    let message = json!({"properties": {}, "routing_key": "order.1", "payload": "x", "payload_encoding": "string"});
    assert_eq!(server.post("exchanges/shop/events/publish", &message).body, json!({"routed": true}));
    assert_eq!(server.get("queues/shop/orders")["messages"], 1, "the topic exists");
    let out = server.get("definitions");
    let again = Server::start();
    assert_eq!(again.post("definitions", &out).status, 204);
    assert_eq!(again.get("definitions"), out, "exported from one and imported into another");
    let user = out["users"].as_array().unwrap().iter().find(|user| user["name"] == "app").unwrap();
    assert_eq!(
        json_of(user, &["password_hash", "tags", "limits"]),
        json_of(&exported()["users"][0], &["password_hash", "tags", "limits"])
    );
}

/// Regression test: messages to a queue without a topic were confirmed and lost.
#[test]
fn queues_whose_topics_were_never_made_get_them_at_a_start() {
    let server = Server::start();
    let definitions = polylogue_amqp_model::Definitions::parse(exported().to_string().as_bytes(), None).unwrap();
    server.change(polylogue_amqp_model::Command::Import(Box::new(definitions)));
    server.put("permissions/shop/guest", &json!({"configure": ".*", "write": ".*", "read": ".*"}));
    let message = json!({"properties": {}, "routing_key": "orders", "payload": "x", "payload_encoding": "string"});
    let publish = || server.post("exchanges/shop/amq.default/publish", &message).body;
    assert_eq!(publish(), json!({"routed": false}));
    server.make_topics();
    assert_eq!(publish(), json!({"routed": true}));
    assert_eq!(server.get("queues/shop/orders")["messages"], 1);
}

#[test]
fn one_virtual_host_goes_into_another() {
    let server = Server::start();
    server.post("definitions", &exported());
    let out = server.get("definitions/shop");
    assert!(out.get("users").is_none());
    assert_eq!(out["queues"].as_array().unwrap().len(), 2);
    server.put("vhosts/copy", &json!({}));
    assert_eq!(server.post("definitions/copy", &out).status, 204);
    assert_eq!(server.get("queues/copy").as_array().unwrap().len(), 2);
    assert_eq!(server.get("bindings/copy/e/events/q/orders")[0]["routing_key"], "order.#");
    assert_eq!(server.get("definitions?vhost=copy")["queues"], out["queues"]);
    assert_eq!(server.ask("POST", "definitions/none", &out).status, 404);
}

#[test]
fn a_form_brings_definitions_too() {
    let server = Server::start();
    let form = format!(
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"d.json\"\r\n\r\n{}\r\n--b--\r\n",
        exported()
    );
    let request = HttpRequest::builder()
        .method("POST")
        .uri("/api/definitions")
        .header("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
        .header("content-type", "multipart/form-data; boundary=b");
    let answered = server.send(request.body(Body::from(form)).unwrap(), SocketAddr::from(([127, 0, 0, 1], 1)));
    assert_eq!(answered.status, 204, "{answered:?}");
    assert_eq!(server.get("queues/shop").as_array().unwrap().len(), 2);
}

#[test]
fn definitions_are_all_or_nothing() {
    let server = Server::start();
    let mut bad = exported();
    bad["queues"][1]["arguments"] = json!({"x-message-ttl": "soon"});
    let refused = server.ask("POST", "definitions", &bad);
    assert_eq!((refused.status, refused.body["error"].as_str()), (400, Some("bad_request")));
    assert!(refused.failure().2.starts_with("queue 'mails' in vhost 'shop': invalid arg 'x-message-ttl'"));
    assert_eq!(server.ask("GET", "vhosts/shop", &Value::Null).status, 404);
    for body in [json!([]), json!("x")] {
        assert_eq!(server.ask("POST", "definitions", &body).status, 400);
    }
}
