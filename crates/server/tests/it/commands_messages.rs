//! `produce` and `consume`: places in a topic, input as JSON, lines that cannot be written, restarts of the broker, the wrong kind of listener.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;

use common::tls::{Authority, Broker};
use common::{Server, TempDir, done, done_with};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// `--from` took neither the last messages nor a duration.
#[test]
fn a_consumer_begins_and_ends_where_it_is_said() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok(&["topic", "create", "t"]);
    let lines: String = (0..10).map(|at| format!("{at}\n")).collect();
    server.ok_with(&["produce", "t"], lines.as_bytes());
    let read = |args: &[&str]| server.ok(&[&["consume", "t"], args].concat()).replace('\n', " ");
    assert_eq!(read(&["--from", "-3", "--no-follow"]), "7 8 9 ");
    assert_eq!(read(&["--from=-100", "--until", "2"]), "0 1 ");
    assert_eq!(read(&["--from", "1h", "--until", "end"]), "0 1 2 3 4 5 6 7 8 9 ");
    assert_eq!(read(&["--from", "4", "--until=-4"]), "4 5 ");
    assert_eq!(read(&["--from", "beginning", "--until", "1h"]), "", "all of them are newer");
    let both = done(&mut server.command(&["consume", "t", "--until", "end", "--no-follow"]));
    assert_eq!(both.code, Some(2), "{}", both.err);
    // It meant a day in January 1970.
    let seconds = done(&mut server.command(&["consume", "t", "--from", "@1795862029"]));
    assert!(seconds.code == Some(2) && seconds.err.contains("@1795862029000?"), "{}", seconds.err);
}

/// An empty value and none looked the same.
#[test]
fn a_tombstone_is_told_from_an_empty_value() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok_with(&["produce", "t", "-k", "k"], b"\n");
    server.ok_with(&["produce", "t", "-k", "k", "--empty-as-tombstone"], b"\n");
    let shown = server.ok(&["consume", "t", "--from", "beginning", "--no-follow", "-v"]);
    let ends: Vec<_> = shown.lines().map(|line| line.ends_with("(tombstone)")).collect();
    assert_eq!(ends, [false, true], "{shown}");
}

#[test]
fn what_consume_prints_as_json_produce_takes() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    let lines = concat!(
        r#"{"key":"k","value":"text","timestamp":1700000000000,"headers":[{"name":"h","value":"1"},{"name":"h","value":null}]}"#,
        "\n",
        r#"{"key":{"hex":"00ff"},"value":{"hex":"fffe"}}"#,
        "\n",
        r#"{"value":null}"#,
        "\n",
    );
    server.ok_with(&["produce", "a", "--format", "json"], lines.as_bytes());
    let read = |topic| server.ok(&["consume", topic, "--from", "beginning", "--no-follow", "--json"]);
    let printed = read("a");
    server.ok_with(&["produce", "b", "--format", "json"], printed.as_bytes());
    assert_eq!(read("b"), printed.replace(r#""topic":"a""#, r#""topic":"b""#));
    assert!(printed.contains("1700000000000") && printed.contains(r#"{"hex":"fffe"}"#), "{printed}");
    let file = dir.join("whole");
    std::fs::write(&file, "one\ntwo\n").unwrap();
    server.ok(&["produce", "c", "--whole-file", "-f", &file.display().to_string()]);
    assert_eq!(server.ok(&["consume", "c", "--from", "0", "--no-follow", "-o", "raw"]), "one\ntwo\n");
}

/// Of 200,000 good lines before a bad one 194,112 were written, the rest was dropped, and the command said neither.
#[test]
fn a_bad_line_says_up_to_which_line_everything_is_written() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &["--set", "kafka.num.partitions=3"]);
    let mut lines: String = (0..30_000).map(|at| format!("{at}:{}\n", "x".repeat(90))).collect();
    lines.push_str("no key\nlast:1\n");
    let refused = done_with(&mut server.command(&["produce", "t", "--key-separator", ":"]), lines.as_bytes());
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(refused.err.contains("line 30001 has no \":\""), "{}", refused.err);
    let said = refused.err.split("; ").last().unwrap();
    let numbers: Vec<u64> = said.split(' ').filter_map(|word| word.trim().parse().ok()).collect();
    let [written, upto] = numbers[..] else { panic!("{said}") };
    assert!(written > 0 && written == upto, "{said}");
    let read = server.ok(&["consume", "t", "--from", "beginning", "--no-follow", "--json"]);
    let mut keys: Vec<u64> = read
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["key"].as_str().unwrap().parse().unwrap())
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, (0..upto).collect::<Vec<_>>());
}

/// It ended with `failed to fill whole buffer`, and a hint about a login that was not required.
#[test]
fn a_consumer_goes_on_over_a_restart_of_the_broker() {
    let dir = TempDir::new();
    let (data, free) = (dir.join("data"), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let at = free.local_addr().unwrap();
    drop(free);
    let start = || {
        let mut command = common::polylogue();
        command.args(["serve", "--listen", &format!("kafka={at}"), "--data"]).arg(&data);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "polylogue ready"));
        child
    };
    let ask = |args: &[&str]| {
        let mut command = common::polylogue();
        command.args(args).env("POLYLOGUE_BOOTSTRAP", at.to_string());
        command
    };
    let mut broker = start();
    assert_eq!(done_with(&mut ask(&["produce", "t"]), b"before\n").code, Some(0));
    let mut reading = ask(&["consume", "t", "--from", "beginning", "-n", "2"]);
    let mut reading = reading.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(reading.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "before\n");
    rustix::process::kill_process(rustix::process::Pid::from_child(&broker), Signal::KILL).unwrap();
    broker.wait().unwrap();
    let mut errors = BufReader::new(reading.stderr.take().unwrap());
    let mut said = String::new();
    errors.read_line(&mut said).unwrap();
    assert!(said.contains(&at.to_string()) && said.ends_with("connecting again\n"), "{said}");
    assert!(!said.contains("login") && !said.contains("buffer"), "{said}");
    broker = start();
    assert_eq!(done_with(&mut ask(&["produce", "t"]), b"after\n").code, Some(0));
    line.clear();
    out.read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), reading.wait().unwrap().code()), ("after\n", Some(0)));
    broker.kill().unwrap();
    broker.wait().unwrap();
}

/// A frame of 352518912 bytes, it said, and nothing of TLS.
#[test]
fn a_listener_of_the_other_kind_is_named() {
    let dir = TempDir::new();
    let authority = Authority::new(&dir.0, "ca");
    let signed = authority.sign("server", |_| {});
    let broker = Broker::start(&dir, &signed, &[]);
    let secured = broker.at("kafka+tls").to_string();
    let plain = done(&mut broker.server.command(&["consume", "t", "--bootstrap", &secured]));
    assert!(plain.code == Some(1) && plain.err.contains("speaks TLS: pass --tls"), "{}", plain.err);
    let tls = done(&mut broker.server.command(&["consume", "t", "--tls"]));
    assert!(tls.code == Some(1) && tls.err.contains("without --tls"), "{}", tls.err);
    let secured = format!("http://{}", broker.at("http+tls"));
    let plain = done(&mut broker.server.command(&["topic", "list", "--server", &secured]));
    assert!(plain.code == Some(1) && plain.err.contains("use https://"), "{}", plain.err);
    let plain = format!("https://{}", broker.server.http);
    let tls = done(&mut broker.server.command(&["topic", "list", "--server", &plain]));
    assert!(tls.code == Some(1) && tls.err.contains("use http://"), "{}", tls.err);
}

/// Consuming it worked, and `topic describe` knew no such topic.
#[test]
fn the_topic_of_a_queue_is_described_by_the_name_that_clients_see() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok(&["queue", "declare", "q"]);
    let described = server.ok(&["topic", "describe", "amqp-queue.q"]);
    assert!(described.starts_with("amqp-queue.q (id "), "{described}");
}
