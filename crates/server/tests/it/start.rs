//! How the binary starts, refuses to start, and ends.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;

use common::amqp::Client;
use common::rabbit::Rabbit;
use common::{Server, TempDir, contents, done, get, polylogue};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

#[test]
fn it_says_where_it_listens_and_ends_well_at_either_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let dir = TempDir::new();
        let server = Server::start(&dir.join("data"), &["--advertise", "kafka=broker.example:0"]);
        let port = server.kafka.port();
        let expected = [
            format!("kafka listening on 127.0.0.1:{port} (advertised as broker.example:{port})"),
            format!("http listening on {}", server.http),
            "polylogue ready".to_owned(),
        ];
        assert_eq!(server.lines, expected);
        let _silent = TcpStream::connect(server.kafka).unwrap();
        let _silent_http = TcpStream::connect(server.http).unwrap();
        assert_eq!(server.stop(signal), Some(0));
    }
}

/// A server that stopped closed its sockets without a word: clients took that for a fault of the network, and none of them logged why.
#[test]
fn clients_of_amqp_hear_that_the_server_stops() {
    let rabbit = Rabbit::start();
    let mut clients: Vec<_> = (0..3).map(|_| Client::open(rabbit.amqp, "guest")).collect();
    let mut logs_in = Client::tuning(rabbit.amqp, "guest");
    rabbit.server.signal(Signal::TERM);
    let text = "connection 320 0.0 CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'";
    for client in &mut clients {
        assert_eq!(client.closed(), text);
    }
    assert_eq!(logs_in.closed(), "gone", "no one is connected yet");
    // Signalled twice, it would not end in good order.
    assert_eq!(rabbit.server.stop(Signal::CONT), Some(0));
}

#[test]
fn with_json_it_speaks_to_programs() {
    let dir = TempDir::new();
    let mut command = polylogue();
    command.args(["serve", "--json", "--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0", "--data"]);
    let mut child = command.arg(dir.join("data")).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines().take(3);
    let lines: Vec<serde_json::Value> = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let bound = lines[0]["listening"]["bound"].as_str().unwrap();
    let kafka =
        serde_json::json!({"listening": {"protocol": "kafka", "tls": false, "bound": bound, "advertised": bound}});
    assert_eq!(lines[0], kafka);
    assert_eq!(lines[1]["listening"]["protocol"], "http");
    assert_eq!(lines[2], serde_json::json!({"ready": true}));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// While it recovered, the http listener took connections and said nothing once, so that its supervisor ended it.
#[test]
fn it_lives_and_is_not_ready_while_it_recovers() {
    let dir = TempDir::new();
    // Reading this file takes until it is written to.
    assert!(Command::new("mkfifo").arg(dir.join("IDENTITY")).status().unwrap().success());
    let http = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = polylogue();
    command.args(["serve", "--listen", "kafka=127.0.0.1:0", "--listen", &format!("http={http}"), "--data"]).arg(&dir.0);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // No listener is open before it has begun.
    let healthy = std::iter::repeat_with(|| TcpStream::connect(http)).find_map(Result::ok).and(get(http, "/healthz"));
    let ready = get(http, "/readyz");
    let status = get(http, "/api/v1/status").map(|(status, _)| status);
    // Whether it waits for what is written is its own affair.
    drop(std::fs::OpenOptions::new().write(true).open(dir.join("IDENTITY")).unwrap().write_all(b"nothing\n"));
    let ended = child.wait_with_output().unwrap();
    assert_eq!(healthy, Some((200, "ok\n".to_owned())));
    assert_eq!(ready, Some((503, "not ready\n".to_owned())));
    assert_eq!(status, Some(503));
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(1), 0));
    let reported = String::from_utf8(ended.stderr).unwrap();
    assert!(reported.lines().count() == 1 && reported.contains("IDENTITY"), "{reported}");
}

/// A fetch (version 4) of topic `t` that waits for a minute.
fn long_poll() -> Vec<u8> {
    let head: &[&[u8]] = &[&[0, 1, 0, 4], &[0, 0, 0, 1], &[0xff, 0xff]];
    let wants: &[&[u8]] = &[&[0xff; 4], &60_000_i32.to_be_bytes(), &[0, 0, 0, 1], &[0, 1, 0, 0], &[0]];
    let part: &[&[u8]] = &[&[0, 0, 0, 1], &[0, 1, b't'], &[0, 0, 0, 1], &[0; 4], &[0; 8], &[0, 1, 0, 0]];
    let body = [head.concat(), wants.concat(), part.concat()].concat();
    [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], &body].concat()
}

/// The http listener went first once, so that load balancers did not learn to stay away while requests in work ended.
#[test]
fn it_says_that_it_is_not_ready_while_connections_end() {
    let dir = TempDir::new();
    let server = Server::start(&dir.join("data"), &["--set", "server.shutdown_ms_max=1m"]);
    server.ok(&["topic", "create", "t"]);
    let mut waits = TcpStream::connect(server.kafka).unwrap();
    waits.write_all(&long_poll()).unwrap();
    while server.metric("polylogue_watches") == 0 {}
    assert_eq!(server.get("/readyz").unwrap().0, 200);
    server.signal(Signal::TERM);
    let answers = std::iter::repeat_with(|| server.get("/readyz")).find(|answer| !matches!(answer, Some((200, _))));
    assert_eq!(answers.unwrap(), Some((503, "not ready\n".to_owned())));
    assert_eq!(server.get("/healthz"), Some((200, "ok\n".to_owned())));
    // The request would keep it for a minute; it does not when signalled twice.
    assert_eq!(server.stop(Signal::TERM), Some(1));
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let dir = TempDir::new();
    let server = Server::start(&dir.join("data"), &[]);
    server.ok(&["topic", "create", "kept", "--partitions", "2"]);
    server.ok_with(&["produce", "kept", "--partition", "1"], b"one\ntwo\n");
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let again = Server::start(&dir.join("data"), &[]);
    let read = again.ok(&["consume", "kept", "--from", "beginning", "--no-follow"]);
    assert_eq!(read, "one\ntwo\n");
    assert_eq!(again.stop(Signal::TERM), Some(0));
    let check = done(polylogue().arg("check").arg(dir.join("data")));
    assert_eq!(check.code, Some(0), "{}", check.out);
}

/// One line on standard error, nothing on standard output, and the code.
fn refused(args: &[&str], code: i32, part: &str) {
    let done = done(polylogue().arg("serve").args(args));
    assert_eq!(done.code, Some(code), "{args:?}: {}", done.err);
    assert!(done.err.starts_with("polylogue: ") && done.err.lines().count() == 1, "{args:?}: {}", done.err);
    assert!(done.err.contains(part), "{args:?}: {}", done.err);
    assert_eq!(done.out, "", "{args:?}");
}

#[test]
fn a_bad_configuration_is_refused_before_anything_is_touched() {
    let dir = TempDir::new();
    let data = dir.join("data");
    let data = data.to_str().unwrap();
    let file = dir.join("broken.toml");
    std::fs::write(&file, "[server]\nlisten = 3 4\n").unwrap();
    for (args, part) in [
        (&["--set", "server.conections_max=1"][..], "did you mean server.connections_max?"),
        (&["--set", "kafka.num.partitions=none"], "Not a number of type INT"),
        (&["--set", "kafka.no.such.thing=1"], "Unknown broker config name: no.such.thing"),
        (&["--set", "server.log_filter=a=b=c"], "server.log_filter"),
        (&["--set", "log.tail_cache_bytes=1"], "expected a size"),
        (&["--set", "nonsense"], "expected SECTION.NAME=VALUE"),
        (&["--config", file.to_str().unwrap()], "is not valid: line 2"),
        (&["--config", "/no/such/file.toml"], "cannot read the configuration file /no/such/file.toml"),
    ] {
        refused(&[&["--data", data], args].concat(), 2, part);
    }
    assert!(!dir.join("data").exists());
}

#[test]
fn a_port_that_is_taken_is_refused_before_anything_is_touched() {
    let dir = TempDir::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    let data = dir.join("data");
    for protocol in ["kafka", "http"] {
        let listen = format!("{protocol}={at}");
        let part = format!("cannot listen for {protocol} at {at}: something else listens there");
        refused(&["--data", data.to_str().unwrap(), "--listen", &listen], 1, &part);
    }
    assert!(!data.exists());
}

const FREE: [&str; 4] = ["--listen", "kafka=127.0.0.1:0", "--listen", "http=127.0.0.1:0"];

fn refused_unchanged(data: &std::path::Path, part: &str) {
    let before = contents(data);
    let args = [&FREE[..], &["--data", data.to_str().unwrap()]].concat();
    refused(&args, 1, part);
    assert!(contents(data) == before, "something changed in {}", data.display());
}

#[test]
fn a_data_directory_in_use_is_refused() {
    let dir = TempDir::new();
    let server = Server::start(&dir.join("data"), &[]);
    server.ok(&["topic", "create", "t"]);
    // Halted, so that whatever changes is not its own doing.
    server.signal(Signal::STOP);
    refused_unchanged(&dir.join("data"), "in use by another polylogue process");
    let check = done(polylogue().arg("check").arg(dir.join("data")));
    assert_eq!(check.code, Some(1));
    server.signal(Signal::CONT);
    assert_eq!(server.ok(&["topic", "list", "--json"]).matches("\"name\"").count(), 1, "the first one is undisturbed");
}

#[test]
fn a_data_directory_of_a_newer_version_or_of_something_else_is_refused() {
    let dir = TempDir::new();
    std::fs::write(dir.join("IDENTITY"), "version = 999\nsomething = new\n").unwrap();
    refused_unchanged(&dir.0, "newer polylogue");
    let other = TempDir::new();
    std::fs::write(other.join("thesis.txt"), "all my work").unwrap();
    refused_unchanged(&other.0, "is not a polylogue data directory");
    assert_eq!(done(polylogue().arg("check").arg(&other.0)).code, Some(1));
}

#[test]
fn a_data_directory_of_another_broker_is_refused() {
    let dir = TempDir::new();
    let data = dir.join("data");
    let server = Server::start(&data, &["--set", "kafka.node.id=0"]);
    server.ok(&["topic", "create", "t"]);
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let before = contents(&data);
    let args = [&FREE[..], &["--data", data.to_str().unwrap(), "--set", "kafka.node.id=2"]].concat();
    refused(&args, 1, "is the data directory of broker 0, and this is broker 2");
    assert!(contents(&data) == before);
    let again = Server::start(&data, &[]);
    assert!(again.ok(&["topic", "describe", "t", "--json"]).contains("\"t\""));
    assert_eq!(again.stop(Signal::TERM), Some(0));
}

/// With everything that a server hosts: what `check` says of a directory is what a start does, and a repair ends well when it starts.
#[test]
#[allow(clippy::disallowed_methods, reason = "this is the damage")]
fn a_directory_whose_identity_is_damaged_is_checked_repaired_and_starts() {
    let dir = TempDir::new();
    let (data, identity) = (dir.join("data"), dir.join("data/IDENTITY"));
    let server = Server::start(&data, &[]);
    server.ok_with(&["produce", "t"], b"one\ntwo\n");
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let whole = std::fs::read(&identity).unwrap();
    let path = data.to_str().unwrap();
    let check = || {
        let before = contents(&data);
        let said = done(polylogue().args(["check", path, "--json"]));
        assert!(contents(&data) == before, "check changes nothing");
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap()
    };
    let sound = check();
    assert_eq!((&sound["sound"], &sound["starts"]), (&true.into(), &true.into()), "{sound}");
    let mut both = whole.clone();
    for at in [whole.len() / 2 + 30, 30] {
        both[at] ^= 1;
        std::fs::write(&identity, &both).unwrap();
        let said = check();
        assert_eq!((&said["sound"], &said["starts"]), (&false.into(), &(at > 30).into()), "{said}");
    }
    refused(&[&FREE[..], &["--data", path]].concat(), 1, "IDENTITY");
    let repaired = done(polylogue().args(["repair", path]));
    assert_eq!(repaired.code, Some(0), "{}", repaired.err);
    assert!(repaired.out.contains("from the headers of the journal files"), "{}", repaired.out);
    assert!(std::fs::read(&identity).unwrap() == whole);
    assert_eq!(check()["sound"], true);
    // Without the file it may be a restore that was broken off: nothing makes it start.
    std::fs::remove_file(&identity).unwrap();
    assert_eq!(done(polylogue().args(["repair", path, "--fence"])).code, Some(1));
    refused(&[&FREE[..], &["--data", path]].concat(), 1, "is not a polylogue data directory");
}
