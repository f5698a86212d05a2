//! Directories that earlier versions wrote, with all that a broker may hold.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;

use common::{Server, TempDir, done, polylogue};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Command;

fn unpack(layout: &str, into: &TempDir) {
    let archive = format!("{}/../../tests/fixtures/{layout}/data.tar.gz", env!("CARGO_MANIFEST_DIR"));
    let status = Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(&into.0).status().unwrap();
    assert!(status.success());
}

/// All that tests/fixtures/layout-1/make.py put there.
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
    assert_eq!((count("work", "ready"), count("work", "delayed")), (Some(6), Some(3)), "{queues}");
    assert_eq!((count("dead", "ready"), count("stream", "ready")), (Some(3), Some(10)), "{queues}");
}

#[test]
fn a_directory_of_layout_1_is_migrated_with_all_that_is_in_it() {
    let dir = TempDir::new();
    unpack("layout-1", &dir);
    let data = dir.join("data");
    let checked = done(polylogue().arg("check").arg(&data));
    assert_eq!(checked.code, Some(0), "{}{}", checked.out, checked.err);
    let more = ["--listen", "amqp=127.0.0.1:0"];
    let server = Server::start(&data, &more);
    holds_everything(&server);
    assert_eq!(server.stop(Signal::KILL), None);
    let server = Server::start(&data, &more);
    holds_everything(&server);
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let checked = done(polylogue().arg("check").arg(&data));
    assert_eq!(checked.code, Some(0), "{}{}", checked.out, checked.err);
    let identity = std::fs::read(data.join("IDENTITY")).unwrap();
    assert!(identity.starts_with(b"version = 3\n"));
}
