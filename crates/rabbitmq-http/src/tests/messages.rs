//! Publishing and getting.

use super::{Server, json_of};
use polylogue_api::Request;
use serde_json::{Value, json};

fn message(key: &str, payload: &str) -> Value {
    json!({"properties": {}, "routing_key": key, "payload": payload, "payload_encoding": "string"})
}

fn get(ackmode: &str, count: u32) -> Value {
    json!({"ackmode": ackmode, "count": count, "encoding": "auto"})
}

fn payloads(messages: &Value) -> Vec<&str> {
    messages.as_array().unwrap().iter().map(|message| message["payload"].as_str().unwrap()).collect()
}

#[test]
fn a_message_comes_back_as_it_was_published() {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({"durable": true}));
    let properties = json!({
        "delivery_mode": 2, "headers": {"a": 1, "b": ["x", true]}, "content_type": "text/plain", "priority": 3,
        "correlation_id": "c", "reply_to": "r", "expiration": "60000", "message_id": "m", "timestamp": 5, "type": "t",
        "user_id": "guest", "app_id": "app"
    });
    let body = json!({"properties": properties, "routing_key": "q", "payload": "/wA=", "payload_encoding": "base64"});
    assert_eq!(server.post("exchanges/%2F/amq.default/publish", &body).body, json!({"routed": true}));
    assert_eq!(server.get("queues/%2F/q")["messages_ready"], 1);
    assert_eq!(server.get("overview")["queue_totals"]["messages"], 1);
    assert_eq!(server.get("vhosts/%2F")["messages_ready"], 1);
    let got = server.post("queues/%2F/q/get", &get("ack_requeue_false", 5)).body;
    let expected = json!({
        "payload_bytes": 2, "redelivered": false, "exchange": "", "routing_key": "q", "message_count": 0,
        "properties": properties, "payload": "/wA=", "payload_encoding": "base64"
    });
    assert_eq!(got, json!([expected]));
    assert_eq!(server.get("queues/%2F/q")["messages"], 0);
}

#[test]
fn what_becomes_of_a_message_is_said_with_the_get() {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({}));
    for text in ["one", "two", "three"] {
        server.post("exchanges/%2F/amq.default/publish", &message("q", text));
    }
    let kept = server.post("queues/%2F/q/get", &get("ack_requeue_true", 2)).body;
    assert_eq!(payloads(&kept), ["one", "two"], "each once, although all are requeued");
    let again = server.post("queues/%2F/q/get", &get("reject_requeue_true", 1)).body;
    assert_eq!((payloads(&again), again[0]["redelivered"].as_bool()), (vec!["one"], Some(true)));
    let dropped = server.post("queues/%2F/q/get", &get("reject_requeue_false", 1)).body;
    assert_eq!(payloads(&dropped), ["one"]);
    let cut = json!({"ackmode": "ack_requeue_false", "count": "1", "encoding": "base64", "truncate": 2});
    let cut = server.post("queues/%2F/q/get", &cut).body;
    assert_eq!(json_of(&cut[0], &["payload", "payload_bytes"]), json!({"payload": "dHc=", "payload_bytes": 3}));
    let old = json!({"requeue": false, "count": 1, "encoding": "auto"});
    assert_eq!(payloads(&server.post("queues/%2F/q/get", &old).body), ["three"]);
    assert_eq!(server.post("queues/%2F/q/get", &get("ack_requeue_false", 1)).body, json!([]));
}

#[test]
fn a_message_says_whether_it_reached_a_queue() {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({}));
    server.post("bindings/%2F/e/amq.topic/q/q", &json!({"routing_key": "a.*"}));
    let publish = |key: &str| server.post("exchanges/%2F/amq.topic/publish", &message(key, "x")).body;
    assert_eq!(publish("a.b"), json!({"routed": true}));
    assert_eq!(publish("b.a"), json!({"routed": false}));
    assert_eq!(server.get("queues/%2F/q")["messages"], 1);
    assert_eq!(server.delete("queues/%2F/q/contents"), 204);
    assert_eq!(server.get("queues/%2F/q")["messages"], 0);
}

#[test]
fn a_full_queue_refuses_and_says_so() {
    let server = Server::start();
    let arguments = json!({"x-max-length": 1, "x-overflow": "reject-publish"});
    server.put("queues/%2F/full", &json!({"durable": true, "arguments": arguments}));
    server.post("exchanges/%2F/amq.default/publish", &message("full", "x"));
    let refused = server.ask("POST", "exchanges/%2F/amq.default/publish", &message("full", "x"));
    let reason = "rejected Unable to publish message. Check queue limits.";
    assert_eq!(refused.failure(), (400, "bad_request", reason));
    assert_eq!(
        server.ask("DELETE", "queues/%2F/full?if-empty=true", &Value::Null).failure(),
        (400, "bad_request", "queue 'full' in vhost '/' not empty")
    );
}

#[test]
fn messages_that_cannot_be_are_refused() {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({}));
    let publish = |change: Value| {
        let mut body = message("q", "x");
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let refused = server.ask("POST", "exchanges/%2F/amq.default/publish", &body);
        assert_eq!(refused.status, 400, "{change}");
        refused.failure().2.to_owned()
    };
    assert_eq!(publish(json!({"payload": 5})), "payload_not_string");
    assert_eq!(publish(json!({"payload": "?", "payload_encoding": "base64"})), "not_base64");
    assert_eq!(publish(json!({"payload_encoding": "hex"})), "{unsupported_encoding,<<\"hex\">>}");
    assert_eq!(publish(json!({"routing_key": null})), "[{key_missing,routing_key}]");
    assert_eq!(publish(json!({"properties": 1})), "properties should be an object");
    assert_eq!(publish(json!({"properties": {"headers": 1}})), "headers should be an object");
    assert_eq!(publish(json!({"properties": {"priority": 256}})), "priority cannot be 256");
    let text = publish(json!({"properties": {"expiration": "soon"}}));
    assert_eq!(text, "406 PRECONDITION_FAILED - invalid expiration 'soon': no_integer");
    let text = publish(json!({"properties": {"user_id": "other"}}));
    let expected = "406 PRECONDITION_FAILED - user_id property set to 'other' but authenticated user was 'guest'";
    assert_eq!(text, expected);
    assert!(publish(json!({"routing_key": "k".repeat(256)})).contains("255 bytes"));
    let refused = server.ask("POST", "exchanges/%2F/amq.rabbitmq.trace/publish", &message("q", "x"));
    assert_eq!(refused.status, 401, "the exchange is internal");
    for (body, reason) in [
        (json!({"ackmode": "maybe", "count": 1, "encoding": "auto"}), "unknown ackmode maybe"),
        (json!({"count": 1, "encoding": "auto"}), "[{key_missing,ackmode}]"),
        (json!({"ackmode": "ack_requeue_true"}), "[{key_missing,count},{key_missing,encoding}]"),
        (
            json!({"ackmode": "ack_requeue_true", "count": 1, "encoding": "x"}),
            "Unsupported encoding. Please use auto or base64.",
        ),
        (json!({"ackmode": "ack_requeue_true", "count": -1, "encoding": "auto"}), "count must be from 0 to 10000"),
    ] {
        assert_eq!(server.ask("POST", "queues/%2F/q/get", &body).failure(), (400, "bad_request", reason));
    }
}

/// Regression test: a get continued after its client had disconnected, and the messages it removed were lost.
#[test]
fn what_is_got_by_a_client_that_hangs_up_stays() {
    for mode in ["ack_requeue_false", "reject_requeue_false"] {
        let server = Server::start();
        server.put("queues/%2F/q", &json!({"durable": true, "arguments": {"x-queue-type": "quorum"}}));
        for text in ["one", "two", "three"] {
            server.post("exchanges/%2F/amq.default/publish", &message("q", text));
        }
        server.stepped.hold(2, |request| matches!(request, Request::Take(_)));
        server.ask_and_hang_up("POST", "queues/%2F/q/get", &get(mode, 3));
        let got = server.post("queues/%2F/q/get", &get("ack_requeue_true", 3)).body;
        assert_eq!(payloads(&got), ["one", "two", "three"], "{mode}");
        let headers = &got[0]["properties"]["headers"];
        assert!(!headers.to_string().contains("count"), "{mode}: no failed delivery: {headers}");
    }
}

/// Regression test: messages that were acknowledged by a get were lost when a later one failed.
#[test]
fn what_is_got_before_an_error_stays() {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({}));
    for text in ["one", "two", "three"] {
        server.post("exchanges/%2F/amq.default/publish", &message("q", text));
    }
    server.stepped.fail(2, |request| matches!(request, Request::Take(_)));
    assert_eq!(server.ask("POST", "queues/%2F/q/get", &get("ack_requeue_false", 3)).status, 500);
    let got = server.post("queues/%2F/q/get", &get("ack_requeue_true", 3)).body;
    assert_eq!(payloads(&got), ["one", "two", "three"]);
}
