//! Every path of polylogue's own API, as described by OpenAPI, requested without a login and by a user who is not an administrator.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::amqp::Client;
use common::rabbit::Rabbit;
use polylogue_amqp::codec::*;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

const ADMIN: &str = "admin:admin";
/// A user without the tag.
const CLERK: &str = "clerk:clerk";
/// What changes by itself.
const LIVE: [&str; 3] = ["/status", "/connections", "/reports"];

/// Where the console logs in and out, which everybody may.
const LOGIN: &str = "/session";

/// A path with names of what is hidden.
fn filled(path: &str) -> String {
    let names = path.split('/').map(|part| match part {
        "{vhost}" => "%2F",
        part if part.starts_with('{') => "hidden",
        part => part,
    });
    format!("/api/v1{}", names.collect::<Vec<_>>().join("/"))
}

fn ask(at: SocketAddr, method: &str, path: &str, login: Option<&str>) -> (u16, String) {
    use base64::Engine as _;
    let encoded = |login: &str| base64::engine::general_purpose::STANDARD.encode(login);
    let login = login.map_or(String::new(), |login| format!("authorization: Basic {}\r\n", encoded(login)));
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{login}");
    let mut stream = TcpStream::connect(at).unwrap();
    let request = format!("{head}content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

/// A broker that asks who its clients are, with things whose names say that they are hidden.
fn start() -> Rabbit {
    let rabbit = Rabbit::start_with(&["--set", "server.login=always", "--set", "server.guest=on"]);
    for (path, body) in [
        ("users/clerk", json!({"password": "clerk", "tags": "monitoring"})),
        ("users/hidden", json!({"password": "hidden", "tags": ""})),
        ("vhosts/hidden", json!({})),
        ("exchanges/%2F/hidden", json!({"type": "fanout"})),
        ("queues/%2F/hidden", json!({"durable": true})),
        ("permissions/%2F/hidden", json!({"configure": "", "write": "", "read": ""})),
    ] {
        assert!(rabbit.manage("PUT", path, &body) < 300, "{path}");
    }
    let mut client = Client::open(rabbit.amqp, "guest");
    client.ask(1, ConfirmSelect::default());
    assert!(client.is_accepted("hidden", b"hidden"));
    let by = |args: &[&str]| {
        let mut command = rabbit.server.command(args);
        let done = common::done(command.env("POLYLOGUE_USER", "admin").env("POLYLOGUE_PASSWORD", "admin"));
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.err);
    };
    by(&["topic", "create", "hidden"]);
    by(&["acl", "add", "hidden", "read", "--topic", "hidden"]);
    rabbit
}

#[test]
fn no_path_tells_or_changes_anything_for_who_is_no_administrator() {
    let rabbit = start();
    let at = rabbit.server.http;
    let described: Value = serde_json::from_str(include_str!("../../../../docs/openapi.json")).unwrap();
    let paths = described["paths"].as_object().unwrap();
    let gets: Vec<String> = paths
        .iter()
        .filter(|(path, by)| by.get("get").is_some() && !LIVE.contains(&path.as_str()))
        .map(|(path, _)| filled(path))
        .collect();
    let picture = || {
        let shown = gets.iter().map(|path| ask(at, "GET", path, Some(ADMIN)));
        shown
            .map(|(status, reported)| (status, reported.split_once("\r\n\r\n").unwrap().1.to_owned()))
            .collect::<Vec<_>>()
    };
    let before = picture();
    let telling = before.iter().filter(|(status, reported)| *status == 200 && reported.contains("hidden")).count();
    assert!(telling > 8, "only {telling} paths tell an administrator anything: {before:?}");
    let mut count = 0;
    for (path, by) in paths.iter().filter(|(path, _)| *path != LOGIN) {
        let path = filled(path);
        for method in by.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            let method = method.to_uppercase();
            let (status, reported) = ask(at, &method, &path, None);
            let challenge = "www-authenticate: Basic realm=\"polylogue\"";
            assert!(
                status == 401 && reported.contains(challenge) && !reported.contains("hidden"),
                "{method} {path}: {reported}"
            );
            let (status, reported) = ask(at, &method, &path, Some(CLERK));
            let is_refused = status == 403 && reported.contains("clerk is not an administrator");
            assert!(is_refused && !reported.contains("hidden"), "{method} {path}: {reported}");
            count += 1;
        }
    }
    assert!(count > 45, "only {count} requests are described");
    for login in [None, Some(CLERK)] {
        assert!([401, 403].contains(&ask(at, "GET", "/metrics", login).0));
    }
    assert_eq!(picture(), before);
}
