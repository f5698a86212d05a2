//! Permissions by tag.

use super::Server;
use super::written::documented;
use axum::body::Body;
use axum::http::Request as HttpRequest;
use polylogue_admin::http::{Door, Login};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// A server with a user for each tag; none has permissions in the virtual host `other`.
fn server() -> Server {
    let server = Server::start();
    server.put("vhosts/other", &json!({}));
    server.put("queues/other/hidden", &json!({}));
    for tag in ["management", "policymaker", "monitoring", "administrator", "absent"] {
        server.put(&format!("users/{tag}"), &json!({"password": tag, "tags": tag}));
        server.put(&format!("permissions/%2F/{tag}"), &json!({"configure": "^own", "write": ".*", "read": ".*"}));
    }
    server
}

#[test]
fn nobody_gets_in_without_a_login_and_a_tag() {
    let server = server();
    let local = SocketAddr::from(([127, 0, 0, 1], 1));
    let plain = |login: Option<&str>, from| {
        let request = HttpRequest::builder().uri("/api/whoami");
        let request = if let Some(login) = login { request.header("authorization", login) } else { request };
        server.send(request.body(Body::empty()).unwrap(), from)
    };
    for login in
        [None, Some("Basic"), Some("Basic !"), Some("Bearer x"), Some("Basic Z3Vlc3Q="), Some("Basic Z3Vlc3Q6eA==")]
    {
        let refused = plain(login, local);
        assert_eq!(refused.failure(), (401, "not_authorized", "Login failed"), "{login:?}");
        assert_eq!(refused.header("www-authenticate"), Some("Basic realm=\"RabbitMQ Management\""));
    }
    let guest = Some("Basic Z3Vlc3Q6Z3Vlc3Q=");
    assert_eq!(plain(guest, local).status, 200);
    assert_eq!(plain(guest, "[::ffff:127.0.0.1]:5".parse().unwrap()).status, 200);
    let refused = plain(guest, SocketAddr::from(([10, 0, 0, 1], 1)));
    assert_eq!(refused.failure(), (401, "not_authorised", "User can only log in via localhost"));
    let refused = server.ask_as("absent", "GET", "whoami", &Value::Null);
    assert_eq!(refused.failure(), (401, "not_authorised", "Not management user"));
}

/// Regression test: guest's password is well known, so any site's page could use the API in the browser of the broker's operator.
#[test]
fn pages_of_other_sites_do_nothing() {
    let server = server();
    let local = SocketAddr::from(([127, 0, 0, 1], 1));
    let ask = |method: &str, headers: &[(&str, &str)]| {
        let door = Door::new(Login::Never, local.ip(), &["127.0.0.1"]);
        let mut request = HttpRequest::builder().method(method).uri("/api/vhosts/new").extension(door);
        if headers.iter().all(|(name, _)| *name != "authorization") {
            request = request.header("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        server.send(request.body(Body::from("{}")).unwrap(), local).status
    };
    assert_eq!(ask("PUT", &[("host", "evil.example:15672")]), 401, "DNS rebinding");
    assert_eq!(ask("GET", &[("host", "evil.example:15672")]), 401);
    assert_eq!(ask("PUT", &[("host", "localhost:15672"), ("origin", "http://evil.example")]), 401);
    assert_eq!(ask("PUT", &[("host", "localhost:15672"), ("sec-fetch-site", "cross-site")]), 401);
    assert_eq!(ask("PUT", &[("host", "localhost:15672")]), 201, "a program");
    let other = ("authorization", "Basic YWRtaW5pc3RyYXRvcjphZG1pbmlzdHJhdG9y");
    assert_eq!(
        ask("PUT", &[("host", "broker.example:15672"), other]),
        204,
        "through a proxy, as a user whose password is not well known"
    );
    assert_eq!(ask("PUT", &[("host", "localhost:15672"), ("origin", "http://evil.example"), other]), 401);
}

/// Regression test: a user allowed to set parameters of a virtual host could write to any Kafka topic, and act as any user.
#[test]
fn a_shovel_does_not_do_what_its_maker_may_not() {
    let server = server();
    let set = |user: &str, destination: &str, arguments: Value| {
        let value = json!({"src-uri": "amqp:///%2F", "src-queue": "own-a", "dest-uri": destination, "dest-queue": "own-b",
            "dest-queue-args": arguments});
        server.ask_as(user, "PUT", "parameters/shovel/%2F/s", &json!({"value": value}))
    };
    let topic = json!({"x-polylogue-topic": "payments"});
    let refused = set("policymaker", "amqp:///%2F", topic.clone());
    let reason = "Validation failed\n\nwrite access to topic 'payments' refused for user 'policymaker'\n";
    assert_eq!(refused.failure(), (400, "bad_request", reason));
    let refused = set("policymaker", "amqp://administrator@/%2F", json!({}));
    let reason = "Validation failed\n\nuser \"policymaker\" may not connect as \"administrator\"\n";
    assert_eq!(refused.failure(), (400, "bad_request", reason));
    for (user, destination, arguments) in [
        ("policymaker", "amqp:///%2F", json!({})),
        ("policymaker", "amqp://policymaker@/%2F", json!({})),
        ("policymaker", "amqp://elsewhere/%2F", topic.clone()),
        ("administrator", "amqp://guest@/%2F", topic),
    ] {
        let done = set(user, destination, arguments);
        assert!(done.status < 300, "{user} {destination}: {done:?}");
    }
}

/// Regression test: a policymaker could read passwords set by an administrator.
#[test]
fn passwords_in_parameters_are_shown_to_administrators_only() {
    let server = server();
    let shovel = json!({"src-uri": ["amqp://me:secret@h1", "amqp:///%2F"], "src-queue": "own-a",
        "dest-uri": "amqps://me:secret@h2/v?password=secret&heartbeat=3", "dest-queue": "own-b"});
    let other = json!({"at": [{"uri": "amqp://me:secret@h"}], "plain": "text"});
    let upstream = json!({"uri": "amqp://me:secret@h3"});
    for (path, value) in [("shovel/%2F/s", shovel), ("federation-upstream/%2F/u", upstream), ("other/%2F/o", other)] {
        server.put(&format!("parameters/{path}"), &json!({"value": value}));
    }
    let paths = [
        "parameters",
        "parameters/shovel",
        "parameters/shovel/%2F",
        "parameters/shovel/%2F/s",
        "parameters/federation-upstream/%2F/u",
        "parameters/other/%2F/o",
        "definitions/%2F",
    ];
    for path in paths {
        let shown = |user: &str| {
            let answered = server.ask_as(user, "GET", path, &Value::Null);
            assert_eq!(answered.status, 200, "{user} {path}");
            answered.text
        };
        assert!(!shown("policymaker").contains("secret") && shown("policymaker").contains("me:***@"), "{path}");
        assert!(shown("administrator").contains("me:secret@"), "{path}");
    }
    let shown = server.ask_as("policymaker", "GET", "parameters/shovel/%2F/s", &Value::Null).body["value"].clone();
    assert_eq!(shown["dest-uri"], "amqps://me:***@h2/v?password=***&heartbeat=3");
    let again = server.ask_as("policymaker", "PUT", "parameters/shovel/%2F/s", &json!({ "value": shown }));
    assert_eq!(
        again.failure(),
        (400, "bad_request", "Validation failed\n\na password is masked (***): name it again\n")
    );
}

/// cloudamqp/lavinmq#1686, #1687: some paths were open to more tags than in RabbitMQ.
#[test]
fn each_tag_opens_what_it_is_for() {
    let server = server();
    let status = |user: &str, method: &str, path: &str| {
        let body = json!({"pattern": "x", "definition": {"max-length": 1}, "value": 1, "tags": ""});
        server.ask_as(user, method, path, &if method == "GET" { Value::Null } else { body }).status
    };
    // management, policymaker, monitoring, administrator
    for (method, path, expected) in [
        ("GET", "overview", [200, 200, 200, 200]),
        ("GET", "queues/%2F", [200, 200, 200, 200]),
        ("GET", "queues/other", [401, 401, 200, 200]),
        ("GET", "queues/other/hidden", [401, 401, 200, 200]),
        ("GET", "vhosts/other", [401, 401, 200, 200]),
        ("DELETE", "queues/other/none", [401, 401, 401, 404]),
        ("GET", "nodes", [401, 401, 200, 200]),
        ("GET", "health/checks/alarms", [401, 401, 200, 200]),
        ("GET", "users", [401, 401, 401, 200]),
        ("GET", "permissions", [401, 401, 401, 200]),
        ("GET", "definitions", [401, 401, 401, 200]),
        ("GET", "definitions/%2F", [401, 200, 401, 200]),
        ("POST", "definitions/%2F", [401, 401, 401, 204]),
        ("GET", "parameters", [401, 200, 401, 200]),
        ("PUT", "policies/%2F/p", [401, 201, 401, 204]),
        ("PUT", "policies/other/p", [401, 401, 401, 201]),
        ("PUT", "operator-policies/%2F/p", [401, 401, 401, 201]),
        ("PUT", "parameters/operator_policy/%2F/q", [401, 401, 401, 400]),
        ("PUT", "global-parameters/g", [401, 401, 401, 201]),
        ("GET", "global-parameters", [401, 401, 401, 200]),
        ("DELETE", "global-parameters/g", [401, 401, 401, 204]),
        ("PUT", "vhosts/new", [401, 401, 401, 201]),
        ("PUT", "vhost-limits/%2F/max-queues", [401, 401, 401, 204]),
        ("PUT", "parameters/vhost-limits/%2F/limits", [401, 401, 401, 400]),
        ("DELETE", "parameters/vhost-limits/%2F/limits", [401, 401, 401, 404]),
        ("DELETE", "users/none", [401, 401, 401, 404]),
        ("GET", "feature-flags", [200, 200, 200, 200]),
        ("PUT", "parameters/shovel/%2F/s", [401, 400, 401, 400]),
        ("GET", "shovels", [401, 401, 200, 200]),
        ("GET", "shovels/other", [401, 401, 200, 200]),
        ("GET", "shovels/vhost/%2F/none", [401, 401, 404, 404]),
        ("DELETE", "shovels/vhost/%2F/none", [401, 404, 401, 404]),
        ("DELETE", "shovels/vhost/%2F/none/restart", [401, 404, 401, 404]),
        ("DELETE", "shovels/vhost/other/none", [401, 401, 401, 404]),
    ] {
        for (user, expected) in ["management", "policymaker", "monitoring", "administrator"].into_iter().zip(expected) {
            assert_eq!(status(user, method, path), expected, "{user} {method} {path}");
        }
    }
}

#[test]
fn lists_show_what_one_may_see() {
    let server = server();
    server.put("queues/%2F/mine", &json!({}));
    let count = |user: &str, path: &str| server.ask_as(user, "GET", path, &Value::Null).body.as_array().unwrap().len();
    for (path, expected) in [("queues", [1, 1, 1, 2]), ("vhosts", [1, 1, 2, 2]), ("exchanges", [7, 7, 7, 14])] {
        for (user, expected) in ["management", "policymaker", "monitoring", "administrator"].into_iter().zip(expected) {
            assert_eq!(count(user, path), expected, "{user} {path}");
        }
    }
    let total =
        |user: &str| server.ask_as(user, "GET", "overview", &Value::Null).body["object_totals"]["queues"].clone();
    assert_eq!((total("management"), total("monitoring")), (json!(1), json!(2)));
}

#[test]
fn declarations_go_by_permissions_in_the_virtual_host() {
    let server = server();
    let put = |user: &str, path: &str| server.ask_as(user, "PUT", path, &json!({"durable": true}));
    assert_eq!(put("management", "queues/%2F/own").status, 201);
    assert_eq!(put("management", "queues/%2F/foreign").failure(), (401, "not_authorised", "Access refused."));
    assert_eq!(put("management", "exchanges/%2F/foreign").status, 401);
    // An administrator without permissions sees everything and changes nothing.
    let refused = put("administrator", "queues/other/own");
    assert_eq!(refused.failure(), (401, "not_authorised", "Access refused."));
    server.put("permissions/%2F/management", &json!({"configure": ".*", "write": "^$", "read": "^$"}));
    let get = json!({"ackmode": "ack_requeue_true", "count": 1, "encoding": "auto"});
    let refused = server.ask_as("management", "POST", "queues/%2F/own/get", &get);
    let reason = "ACCESS_REFUSED - read access to queue 'own' in vhost '/' refused for user 'management'";
    assert_eq!(refused.failure(), (401, "not_authorised", reason));
    let message = json!({"properties": {}, "routing_key": "own", "payload": "x", "payload_encoding": "string"});
    let refused = server.ask_as("management", "POST", "exchanges/%2F/amq.default/publish", &message);
    let reason = "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'management'";
    assert_eq!(refused.failure(), (401, "not_authorised", reason));
}

/// Fills in a documented path with names of objects that other users must not see.
fn filled(path: &str, node: &str) -> String {
    let part = |part: &str| match part {
        "V" => "other".to_owned(),
        "NODE" => node.to_owned(),
        "C" => "shovel".to_owned(),
        "..." => "checks/alarms".to_owned(),
        name if name.chars().all(|c| c.is_ascii_uppercase()) => "hidden".to_owned(),
        name => name.to_owned(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// The first path segments that `dispatch` handles.
fn served() -> Vec<&'static str> {
    let (_, dispatch) = include_str!("../lib.rs").split_once("async fn dispatch(").unwrap();
    let arms = dispatch.lines().map(str::trim).filter(|line| line.starts_with('"') && line.contains("=>"));
    let names = arms.flat_map(|arm| arm.split("=>").next().unwrap().split('"').skip(1).step_by(2));
    names.chain(["definitions"]).collect()
}

/// Every path and method as: no user, a user without a tag, and a user who may use the API but has no permissions in any virtual host.
#[test]
fn no_path_tells_or_changes_anything_for_who_has_no_right() {
    let server = server();
    server.put("users/hidden", &json!({"password": "hidden", "tags": ""}));
    server.put("permissions/other/guest", &json!({"configure": ".*", "write": ".*", "read": ".*"}));
    server.put("exchanges/other/hidden", &json!({"type": "fanout"}));
    server.post("bindings/other/e/hidden/q/hidden", &json!({"routing_key": "hidden"}));
    server.put("policies/other/hidden", &json!({"pattern": "x", "definition": {"max-length": 1}}));
    server.put("global-parameters/hidden", &json!({"value": "hidden"}));
    server.put("vhost-limits/other/max-queues", &json!({"value": 10}));
    server.put("users/stranger", &json!({"password": "stranger", "tags": "management"}));
    let node = server.get("overview")["node"].as_str().unwrap().to_owned();
    let all = documented();
    for name in served() {
        assert!(all.iter().any(|(path, _)| path.split('/').next() == Some(name)), "{name} is not documented");
    }
    let before = server.get("definitions");
    let local = SocketAddr::from(([127, 0, 0, 1], 1));
    let mut wrong = Vec::new();
    for (documented, _) in &all {
        let path = filled(documented, &node);
        for method in ["GET", "PUT", "POST", "DELETE"] {
            let body = if method == "GET" { Value::Null } else { json!({}) };
            let anonymous = HttpRequest::builder().method(method).uri(format!("/api/{path}"));
            let anonymous = server.send(anonymous.body(Body::empty()).unwrap(), local);
            assert_eq!(anonymous.failure(), (401, "not_authorized", "Login failed"), "{method} {path}");
            let untagged = server.ask_as("absent", method, &path, &body);
            assert_eq!(untagged.failure(), (401, "not_authorised", "Not management user"), "{method} {path}");
            let reported = server.ask_as("stranger", method, &path, &body);
            let is_well = match reported.status {
                200 => method == "GET" && !reported.text.contains("hidden") && !reported.text.contains("other"),
                401 | 405 => true,
                404 => reported.failure().1 == "Object Not Found",
                _ => false,
            };
            if !is_well {
                wrong.push(format!("{method} {path}: {} {}", reported.status, reported.text));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(server.get("definitions"), before);
}
