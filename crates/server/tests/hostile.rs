//! Clients that mean harm, or do it: they cost their own connection at most.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "it/common/mod.rs"]
mod common;

use common::{Server, TempDir};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Connections that send nothing.
const SILENT: usize = 5_000;
/// What one of them may cost. KiB.
const SILENT_KIB_MAX: u64 = 8;

fn serves(server: &Server) {
    let list = server.ok(&["topic", "list"]);
    assert!(list.starts_with("TOPIC"), "{list}");
    assert_eq!(server.ok(&["consume", "t", "--from", "beginning", "--no-follow"]), "hello\n");
}

/// Reads until the other side closes.
fn drained(mut client: TcpStream) -> usize {
    let mut all = Vec::new();
    // A reset is an end as well.
    let _ = client.read_to_end(&mut all);
    all.len()
}

#[test]
fn silent_connections_cost_little() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = SILENT as u64 + 200;
    if current.is_some_and(|current| current < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).unwrap();
    }
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok_with(&["produce", "t"], b"hello\n");
    serves(&server);
    let before = server.memory_kib();
    let silent: Vec<TcpStream> = (0..SILENT).map(|_| TcpStream::connect(server.kafka).unwrap()).collect();
    // Connections are accepted in order: once a later one is answered, all of these have been taken.
    serves(&server);
    let each = (server.memory_kib().saturating_sub(before)) as f64 / SILENT as f64;
    assert!(each < SILENT_KIB_MAX as f64, "{each} KiB for each silent connection");
    drop(silent);
    serves(&server);
}

#[test]
fn frames_that_lie_end_their_connection() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok_with(&["produce", "t"], b"hello\n");
    let before = server.memory_kib();
    for frame in [
        // longer than any frame, negative, longer than socket.request.max.bytes
        &[0x7f, 0xff, 0xff, 0xff, 0, 0][..],
        &[0xff, 0xff, 0xff, 0xff],
        &[0x06, 0x40, 0x00, 0x01],
        // an unknown API; a header that is cut off; a body that promises 2^31 - 1 topics
        &[0, 0, 0, 10, 0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0, 0],
        &[0, 0, 0, 2, 0, 3],
        &[0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff],
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ] {
        let mut client = TcpStream::connect(server.kafka).unwrap();
        client.write_all(frame).unwrap();
        assert_eq!(drained(client), 0, "{frame:?}");
    }
    serves(&server);
    let grown = server.memory_kib().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more");
}

/// Large requests that never end hold no more than they were promised, and block no other client.
#[test]
fn requests_that_never_end_hold_up_nobody() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok_with(&["produce", "t"], b"hello\n");
    let before = server.memory_kib();
    let endless: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut client = TcpStream::connect(server.kafka).unwrap();
            // A produce request of 100 MiB, of which 8 KiB come.
            client.write_all(&[0x06, 0x40, 0x00, 0x00, 0, 0, 0, 9]).unwrap();
            client.write_all(&[0; 8 << 10]).unwrap();
            client
        })
        .collect();
    serves(&server);
    let grown = server.memory_kib().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more");
    drop(endless);
    serves(&server);
}

/// A list of names takes many times its bytes when it is decoded: it waits for that much memory, not for its bytes.
#[test]
fn lists_are_admitted_by_what_they_take_when_they_are_decoded() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok_with(&["produce", "t"], b"hello\n");
    let mut client = TcpStream::connect(server.kafka).unwrap();
    // Metadata of 1 MiB, of which 8 KiB come.
    client.write_all(&[0, 0x10, 0, 0, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff]).unwrap();
    client.write_all(&[0; 8 << 10]).unwrap();
    while server.metric("polylogue_request_memory_bytes") == 0 {}
    let taken = server.metric("polylogue_request_memory_bytes");
    assert!(taken >= 64 << 20, "{taken} bytes");
    serves(&server);
    drop(client);
    while server.metric("polylogue_request_memory_bytes") > 0 {}
}
