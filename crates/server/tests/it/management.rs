//! RabbitMQ's management API of the real binary: over a restart, and with clients that mean harm.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::{Server, TempDir};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

const LOGIN: &str = "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n";

fn management(server: &Server) -> SocketAddr {
    let line = server.lines.iter().find_map(|line| line.strip_prefix("rabbitmq-http listening on "));
    line.expect("the listener").parse().unwrap()
}

/// Says something and reads until the other side closes.
fn said(at: SocketAddr, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(at).unwrap();
    // What is refused early may not be read to its end.
    let _ = client.write_all(bytes);
    let mut all = Vec::new();
    let _ = client.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

/// A request of its own connection: the status, and what follows.
fn ask(at: SocketAddr, method: &str, path: &str, more: &str, body: &str) -> (u16, String) {
    let head = format!("{method} /api/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}");
    let answer = said(at, format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{method} {path}: {answer:?}")), answer)
}

#[test]
fn what_is_declared_over_http_outlives_a_kill() {
    let dir = TempDir::new();
    let listen = ["--listen", "rabbitmq-http=127.0.0.1:0"];
    let server = Server::start(&dir.0, &listen);
    let at = management(&server);
    assert_eq!(ask(at, "GET", "whoami", "", "").0, 401);
    assert_eq!(ask(at, "PUT", "queues/%2F/q", LOGIN, r#"{"durable": true}"#).0, 201);
    assert_eq!(ask(at, "PUT", "users/u", LOGIN, r#"{"password": "p", "tags": "management"}"#).0, 201);
    let message = r#"{"properties": {"delivery_mode": 2, "timestamp": 1700000000}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}"#;
    let (status, answer) = ask(at, "POST", "exchanges/%2F/amq.default/publish", LOGIN, message);
    assert!(status == 200 && answer.ends_with(r#"{"routed":true}"#), "{answer}");
    server.stop(Signal::KILL);
    let server = Server::start(&dir.0, &listen);
    let at = management(&server);
    let (status, answer) = ask(at, "GET", "queues/%2F/q?columns=messages_ready,durable", LOGIN, "");
    assert!(status == 200 && answer.ends_with(r#"{"durable":true,"messages_ready":1}"#), "{answer}");
    // When its oldest message was sent is read from the disk.
    let (status, answer) = ask(at, "GET", "queues/%2F/q?columns=head_message_timestamp", LOGIN, "");
    assert!(status == 200 && answer.ends_with(r#"{"head_message_timestamp":1700000000}"#), "{answer}");
    assert_eq!(ask(at, "GET", "whoami", "Authorization: Basic dTpw\r\n", "").0, 200);
}

#[test]
fn clients_that_mean_harm_cost_their_connection() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &["--listen", "rabbitmq-http=127.0.0.1:0"]);
    let at = management(&server);
    assert_eq!(ask(at, "GET", "whoami", LOGIN, "").0, 200);
    let before = server.memory_kib();
    let long = format!("GET /api/{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET /api/overview HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(10_000));
    let huge =
        format!("PUT /api/queues/%2F/q HTTP/1.1\r\nHost: localhost\r\n{LOGIN}Content-Length: 99999999999\r\n\r\n");
    let chunks =
        format!("PUT /api/queues/%2F/q HTTP/1.1\r\nHost: localhost\r\n{LOGIN}Transfer-Encoding: chunked\r\n\r\nzz\r\n");
    let no_user =
        "PUT /api/queues/%2F/q HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 20000000\r\n\r\n";
    for bytes in
        [&b"\0\xff\0\xff\r\n\r\n"[..], b"AMQP\0\0\x09\x01", long.as_bytes(), many.as_bytes(), chunks.as_bytes()]
    {
        let answer = said(at, bytes);
        assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    }
    let answer = said(at, [huge.as_bytes(), b"Connection: close"].concat().as_slice());
    assert!(answer.contains("Exceeded HTTP request body size limit"), "{answer}");
    // Who is not known has no body read.
    let answer = said(at, no_user.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert_eq!(ask(at, "GET", "whoami", LOGIN, "").0, 200);
    let grown = server.memory_kib().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more");
}
