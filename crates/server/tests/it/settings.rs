//! Changing topics and settings of a running broker, and what is left of it after a restart.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::{Server, TempDir, done, done_with};
use rustix::process::Signal;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Value and source of a topic config.
fn config(server: &Server, topic: &str, name: &str) -> (String, String) {
    let described = json(&server.ok(&["topic", "describe", topic, "--json"]));
    let entry = described["config"].as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap().clone();
    let text = |key: &str| entry[key].as_str().unwrap().to_owned();
    (text("value"), text("source"))
}

fn refused(server: &Server, args: &[&str], text: &str) {
    let refused = done(&mut server.command(args));
    assert_eq!((refused.code, refused.out.as_str()), (Some(1), ""), "{args:?}");
    assert!(refused.err.contains(text), "{args:?}: {}", refused.err);
}

#[test]
fn topics_change_and_stay_changed() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok(&["topic", "create", "t", "-p", "2", "-c", "segment.bytes=2000000"]);
    server.ok_with(&["produce", "t", "-p", "1"], b"before\n");
    let alter =
        ["topic", "alter", "t", "--set", "retention.ms=60000", "--delete", "segment.bytes", "--partitions", "4"];
    assert_eq!(server.ok(&[&alter[..], &["--dry-run"]].concat()), "topic t can be changed\n");
    assert_eq!(config(&server, "t", "retention.ms"), ("604800000".to_owned(), "default".to_owned()));
    assert_eq!(server.ok(&alter), "changed topic t\n");
    server.ok_with(&["produce", "t", "-p", "3"], b"after\n");
    refused(&server, &["topic", "alter", "t", "--partitions", "3"], "3 would not be an increase");
    refused(&server, &["topic", "alter", "t", "--set", "no.such=1"], "Unknown topic config name: no.such");
    refused(
        &server,
        &["topic", "alter", "t", "--set", "polylogue.durability=memory"],
        "is sync and cannot become memory",
    );
    refused(&server, &["topic", "alter", "nope", "--set", "retention.ms=1"], "does not exist");
    // Nothing is changed when a part of it cannot be.
    refused(&server, &["topic", "alter", "t", "--set", "retention.ms=7", "--partitions", "4"], "already has 4");
    server.stop(Signal::KILL);
    let server = Server::start(&dir.0, &[]);
    assert_eq!(config(&server, "t", "retention.ms"), ("60000".to_owned(), "topic".to_owned()));
    assert_eq!(config(&server, "t", "segment.bytes").1, "default");
    let read = server.ok(&["consume", "t", "--from", "beginning", "--no-follow", "-p", "3"]);
    assert_eq!(read, "after\n");
}

#[test]
fn settings_hold_at_once_for_topics_that_exist_and_after_a_restart() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &["--set", "kafka.log.retention.bytes=7000000"]);
    server.ok(&["topic", "create", "t"]);
    assert_eq!(config(&server, "t", "retention.bytes"), ("7000000".to_owned(), "broker".to_owned()));
    let set = server.ok(&["config", "set", "message.max.bytes=500", "num.partitions=3"]);
    assert_eq!(set, "message.max.bytes is now 500\nnum.partitions is now 3\n");
    server.ok(&["config", "set", "--node", "log.retention.bytes=9000000"]);
    let large = "x".repeat(2_000);
    let too_large = done_with(&mut server.command(&["produce", "t"]), large.as_bytes());
    assert_eq!(too_large.code, Some(1), "{}", too_large.err);
    assert_eq!(server.ok(&["topic", "create", "u"]), "created topic u with 3 partitions\n");
    refused(&server, &["config", "set", "log.dirs=/x"], "Cannot update these configs dynamically: [log.dirs]");
    refused(&server, &["config", "set", "num.partition=1"], "did you mean num.partitions?");
    refused(&server, &["config", "set", "num.partitions=0"], "Value must be at least 1");
    server.stop(Signal::KILL);
    // The configuration file says something else by now; what is set while running goes before it.
    let server = Server::start(&dir.0, &["--set", "kafka.log.retention.bytes=8000000"]);
    assert_eq!(config(&server, "t", "retention.bytes").0, "9000000");
    assert_eq!(config(&server, "t", "max.message.bytes").0, "500");
    let got = json(&server.ok(&["config", "get", "message.max.bytes", "log.retention.bytes", "--json"]));
    let sources: Vec<_> = got["settings"].as_array().unwrap().iter().map(|s| s["source"].as_str().unwrap()).collect();
    assert_eq!(sources, ["DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"]);
    server.ok(&["config", "set", "--node", "--delete", "log.retention.bytes"]);
    assert_eq!(config(&server, "t", "retention.bytes"), ("8000000".to_owned(), "broker".to_owned()));
    server.ok(&["config", "set", "--delete", "message.max.bytes"]);
    assert_eq!(server.ok_with(&["produce", "t"], large.as_bytes()), "1 message written to t\n");
}

#[test]
fn groups_and_subscriptions_have_settings_too() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    server.ok(&["config", "set", "--group", "g/1", "consumer.session.timeout.ms=50000"]);
    server.ok(&["config", "set", "--client-metrics", "m", "interval.ms=1000"]);
    refused(&server, &["config", "set", "--group", "g", "x=1"], "Unknown group config name: x");
    let group = server.ok(&["config", "get", "--group", "g/1"]);
    assert!(group.contains("50000") && group.contains("DYNAMIC_GROUP_CONFIG"), "{group}");
    assert!(server.ok(&["config", "get", "--client-metrics", "m"]).contains("1000"));
    assert_eq!(server.ok(&["config", "get", "--group", "other"]), "no settings are set\n");
    let all = json(&server.ok(&["config", "get", "--group", "other", "--all", "--json"]));
    assert_eq!(all["settings"].as_array().unwrap().len(), 17);
}
