//! Error responses.

use super::Server;
use axum::body::Body;
use axum::http::Request as HttpRequest;
use serde_json::{Value, json};
use std::net::SocketAddr;

const NOT_FOUND: (u16, &str, &str) = (404, "Object Not Found", "Not Found");

#[test]
fn what_is_not_there_is_not_found() {
    let server = Server::start();
    for path in [
        "nothing",
        "queues/%2F/none",
        "queues/none",
        "queues/%2F/none/bindings",
        "queues/%2F/a/b/c",
        "exchanges/%2F/none",
        "exchanges/none",
        "bindings/%2F/e/none/q/none",
        "bindings/%2F/e/amq.fanout/x/y",
        "bindings/none",
        "vhosts/none",
        "vhosts/none/permissions",
        "users/none",
        "users/none/permissions",
        "permissions/%2F/none",
        "topic-permissions/%2F/none",
        "policies/%2F/none",
        "policies/none",
        "parameters/c/%2F/none",
        "global-parameters/none",
        "connections/none",
        "channels/none",
        "definitions/none",
        "vhost-limits/none",
        "user-limits/none",
        "health/checks/none",
        "aliveness-test/none",
        "%ff",
        "",
    ] {
        assert_eq!(server.ask("GET", path, &Value::Null).failure(), NOT_FOUND, "{path}");
    }
    for path in ["queues/%2F/none", "queues/none/q", "exchanges/%2F/none", "vhosts/none", "users/none"] {
        assert_eq!(server.ask("DELETE", path, &Value::Null).failure(), NOT_FOUND, "{path}");
    }
    assert_eq!(server.ask("PUT", "queues/none/q", &json!({})).failure(), NOT_FOUND);
    assert_eq!(server.ask("POST", "queues/%2F/none/get", &json!({})).failure(), NOT_FOUND);
}

#[test]
fn methods_that_a_path_does_not_take_are_named() {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({}));
    for (method, path, allow) in [
        ("POST", "overview", "HEAD, GET, OPTIONS"),
        ("DELETE", "queues", "HEAD, GET, OPTIONS"),
        ("POST", "queues/%2F/q", "HEAD, GET, PUT, DELETE, OPTIONS"),
        ("GET", "queues/%2F/q/get", "POST, OPTIONS"),
        ("GET", "queues/%2F/q/contents", "DELETE, OPTIONS"),
        ("PUT", "bindings/%2F/e/amq.fanout/q/q", "HEAD, GET, POST, OPTIONS"),
        ("DELETE", "definitions", "HEAD, GET, POST, OPTIONS"),
        ("POST", "users/guest", "HEAD, GET, PUT, DELETE, OPTIONS"),
        ("PATCH", "overview", "HEAD, GET, PUT, POST, DELETE, OPTIONS"),
    ] {
        let refused = server.ask(method, path, &Value::Null);
        assert_eq!(refused.failure(), (405, "method_not_allowed", "Method Not Allowed"), "{method} {path}");
        assert_eq!(refused.header("allow"), Some(allow), "{method} {path}");
    }
    assert_eq!(server.ask("OPTIONS", "overview", &Value::Null).status, 200);
}

#[test]
fn refusals_have_rabbitmqs_texts() {
    let server = Server::start();
    server.put("queues/%2F/q", &json!({"durable": true}));
    server.put("exchanges/%2F/x", &json!({"type": "topic", "durable": true}));
    server.post("bindings/%2F/e/x/q/q", &json!({}));
    let inequivalent = "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'";
    let both = json!({"password": "a", "password_hash": "b", "tags": ""});
    for (method, path, body, reason) in [
        ("PUT", "queues/%2F/q", json!({"durable": false}), inequivalent),
        (
            "PUT",
            "queues/%2F/bad",
            json!({"arguments": {"x-message-ttl": -1}}),
            "invalid arg 'x-message-ttl' for queue 'bad' in vhost '/': {value_negative,-1}",
        ),
        ("PUT", "exchanges/%2F/y", json!({"type": "none"}), "unknown exchange type 'none'"),
        ("DELETE", "exchanges/%2F/x?if-unused=true", Value::Null, "exchange 'x' in vhost '/' in use"),
        ("PUT", "queues/%2F/n", json!({"durable": "perhaps"}), "durable should be boolean, actually was \"perhaps\""),
        ("PUT", "queues/%2F/n", json!({"arguments": {"a": null}}), "null_not_allowed"),
        ("PUT", "users/u", json!({"password": "a"}), "tags_not_present"),
        ("PUT", "users/u", both, "both_password_and_password_hash_are_provided"),
        ("POST", "users/bulk-delete", json!({}), "[{key_missing,users}]"),
        ("PUT", "permissions/none/guest", json!({}), "vhost_or_user_not_found"),
        ("PUT", "permissions/%2F/none", json!({}), "vhost_or_user_not_found"),
        ("PUT", "permissions/%2F/guest", json!({"configure": ""}), "[{key_missing,write},{key_missing,read}]"),
        ("PUT", "policies/%2F/p", json!({}), "[{key_missing,pattern},{key_missing,definition}]"),
        (
            "PUT",
            "policies/%2F/p",
            json!({"pattern": "a", "definition": {"nope": 1}}),
            "Validation failed\n\n[{<<\"nope\">>,1}] are not recognised policy settings\n",
        ),
        ("PUT", "parameters/c/%2F/p", json!({}), "[{key_missing,value}]"),
        ("PUT", "vhost-limits/%2F/max-fun", json!({"value": 1}), "Unrecognised limit 'max-fun'"),
        ("PUT", "vhosts/v", json!({"default_queue_type": "odd"}), "unsupported queue type 'odd'"),
        ("PUT", "cluster-name", json!({}), "[{key_missing,name}]"),
        ("POST", "queues/%2F/q/actions", json!({"action": "fly"}), "unknown action fly"),
    ] {
        assert_eq!(server.ask(method, path, &body).failure(), (400, "bad_request", reason), "{method} {path}");
    }
    for path in ["exchanges/%2F/amq.new", "exchanges/%2F/amq.default", "queues/%2F/amq.new"] {
        let refused = server.ask("PUT", path, &json!({"type": "direct"}));
        assert_eq!(refused.failure(), (401, "not_authorised", "Access refused."), "{path}");
    }
    let refused = server.ask("POST", "bindings/%2F/e/amq.default/q/q", &json!({}));
    assert_eq!(refused.failure(), (401, "not_authorised", "Access refused."));
    assert_eq!(server.ask("DELETE", "exchanges/%2F/amq.direct", &Value::Null).status, 401);
    let long = format!("queues/%2F/{}", "q".repeat(256));
    assert_eq!(server.ask("PUT", &long, &json!({})).failure(), (400, "bad_request", "a name has at most 255 bytes"));
    for page in ["queues?page=0", "queues?page=x", "queues?page=1&page_size=501", "users?page=7"] {
        assert_eq!(server.ask("GET", page, &Value::Null).status, 400, "{page}");
    }
    assert_eq!(server.ask("GET", "queues?columns=%ff", &Value::Null).status, 400);
}

#[test]
fn bodies_are_bounded_and_judged() {
    let server = Server::start();
    let send = |path: &str, body: Body| {
        let request = HttpRequest::builder().method("PUT").uri(path).header("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=");
        server.send(request.body(body).unwrap(), SocketAddr::from(([127, 0, 0, 1], 1)))
    };
    let too_large = (400, "bad_request", "Exceeded HTTP request body size limit");
    assert_eq!(send("/api/queues/%2F/q", Body::from(vec![b' '; 25 << 20])).failure(), too_large);
    assert_eq!(send("/api/queues/%2F/q", Body::from("[]")).failure(), (400, "bad_request", "not_json"));
    let deep = format!("{}{}", "{\"a\":".repeat(1_000), "}".repeat(1_000));
    assert_eq!(send("/api/queues/%2F/q", Body::from(deep)).failure(), (400, "bad_request", "not_json"));
    let long = json!({"value": "v".repeat(100 << 10)}).to_string();
    assert_eq!(send("/api/parameters/c/%2F/p", Body::from(long)).status, 201);
    assert_eq!(send("/nothing", Body::empty()).status, 404);
    assert_eq!(server.management.bodies.available_permits(), 64 << 20, "permits are released");
}
