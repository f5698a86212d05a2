//! Directories that earlier versions wrote, with all that a broker may hold.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;

use common::amqp::Client;
use common::{Server, TempDir, done, polylogue};
use polylogue_amqp::codec::ConfirmSelect;
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;

fn unpack(layout: &str, into: &TempDir) {
    let archive = format!("{}/../../tests/fixtures/{layout}/data.tar.gz", env!("CARGO_MANIFEST_DIR"));
    let status = Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(&into.0).status().unwrap();
    assert!(status.success());
}

/// All that tests/fixtures/make.py put there.
fn holds_everything(server: &Server) {
    let json = |args: &[&str]| -> Value { serde_json::from_str(&server.ok(&[args, &["--json"]].concat())).unwrap() };
    let topics = server.ok(&["topic", "list"]);
    for line in ["late-async ", "late-sync ", "of-async ", "of-memory ", "of-sync "] {
        assert!(topics.contains(line), "{topics}");
    }
    assert!(!topics.contains("deleted") && !topics.contains("between"), "{topics}");
    let read = |topic: &str| server.ok(&["consume", topic, "--from", "beginning", "--no-follow"]);
    for durability in ["sync", "async"] {
        let wanted: String = (0..100).map(|at| format!("{durability} {at}\n")).collect();
        assert_eq!(read(&format!("of-{durability}")), format!("{wanted}last\n"));
        assert_eq!(read(&format!("late-{durability}")), "late\n");
    }
    assert_eq!(read("of-memory"), "", "it went with its process");
    let group = json(&["group", "describe", "readers"]).to_string();
    assert!(group.contains("42") && group.contains("of-sync"), "{group}");
    let users = server.ok(&["user", "list"]);
    assert!(users.contains("alice"), "{users}");
    let acls = server.ok(&["acl", "list"]);
    assert!(acls.contains("alice") && acls.contains("of-sync"), "{acls}");
    let quotas = json(&["quota", "list"]);
    assert_eq!(quotas["quotas"][0]["produce_bytes_per_second"], 12_345.0, "{quotas}");
    let queues = json(&["queue", "list"]);
    let queue = |name: &str| queues["queues"].as_array().unwrap().iter().find(|queue| queue["name"] == name).unwrap();
    let count = |name: &str, what: &str| queue(name)[what].as_u64();
    // The delayed ones are due about 23 days after the fixture was made.
    let (ready, delayed) = (count("work", "ready").unwrap(), count("work", "delayed").unwrap());
    assert!(ready >= 6 && ready + delayed == 9, "{queues}");
    assert_eq!((count("dead", "ready"), count("stream", "ready")), (Some(3), Some(10)), "{queues}");
}

/// What was set there, of topics and a queue that were there already.
fn settings_hold(server: &Server) {
    for (topic, name, value) in [
        ("of-async", "retention.bytes", "1000000"),
        ("of-sync", "polylogue.durability", "async"),
        ("late-sync", "retention.ms", "1234567890"),
    ] {
        let described: Value = serde_json::from_str(&server.ok(&["topic", "describe", topic, "--json"])).unwrap();
        let set = described["config"].as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap();
        assert_eq!(set["value"], value, "{described}");
    }
    let at = |line: &String| line.strip_prefix("amqp listening on ").and_then(|at| at.parse().ok());
    let mut client = Client::open(server.lines.iter().find_map(at).unwrap(), "guest");
    client.ask(1, ConfirmSelect::default());
    assert!(!client.is_accepted("work", b"x"), "it has more messages than a policy lets it have");
}

fn is_migrated(layout: u32) {
    let dir = TempDir::new();
    unpack(&format!("layout-{layout}"), &dir);
    let data = dir.join("data");
    let checked = done(polylogue().arg("check").arg(&data));
    assert_eq!(checked.code, Some(0), "{}{}", checked.out, checked.err);
    let more = ["--listen", "amqp=127.0.0.1:0"];
    for start in 0..2 {
        let server = Server::start(&data, &more);
        holds_everything(&server);
        if layout > 1 {
            settings_hold(&server);
        }
        if start == 0 {
            assert_eq!(server.stop(Signal::KILL), None);
            continue;
        }
        assert_eq!(server.stop(Signal::TERM), Some(0));
    }
    let checked = done(polylogue().arg("check").arg(&data));
    assert_eq!(checked.code, Some(0), "{}{}", checked.out, checked.err);
    let identity = std::fs::read(data.join("IDENTITY")).unwrap();
    assert!(identity.starts_with(b"version = 4\n"));
}

#[test]
fn a_directory_of_layout_1_is_migrated_with_all_that_is_in_it() {
    is_migrated(1);
}

#[test]
fn a_directory_of_layout_2_is_migrated_with_all_that_is_in_it() {
    is_migrated(2);
}

#[test]
fn a_directory_of_layout_3_is_migrated_with_all_that_is_in_it() {
    is_migrated(3);
}
