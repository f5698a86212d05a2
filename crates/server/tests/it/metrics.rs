//! Metrics: each is documented in docs/metrics.md, and alert rules and the dashboard ask for no others. `UPDATE_SNAPSHOTS=1` writes the table
//! anew.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::{Server, TempDir};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

const BEGIN: &str = "| metric | type | labels | what |\n|---|---|---|---|\n";

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// One metric, as Prometheus sees it.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

/// What a server tells by the names that are asked for: those of counters end with `_total`.
fn metrics(text: &str) -> BTreeMap<String, Metric> {
    let mut all = BTreeMap::<String, Metric>::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help.trim_end_matches('.').clone_into(&mut all.entry(name.to_owned()).or_default().help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kind.clone_into(&mut all.entry(name.to_owned()).or_default().kind);
        } else if let Some((name, rest)) = line.split_once('{') {
            // A histogram's buckets are listed one a line, by their bounds.
            let name = name.trim_end_matches("_total").trim_end_matches("_bucket");
            let labels = rest.split('}').next().unwrap().split(',');
            let labels = labels.filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
            let labels = labels.filter(|label| label != "le");
            all.entry(name.to_owned()).or_default().labels.extend(labels);
        }
    }
    let named = |(name, metric): (String, Metric)| match metric.kind.as_str() {
        "counter" => (format!("{name}_total"), metric),
        _ => (name, metric),
    };
    all.into_iter().map(named).collect()
}

/// Everything that there can be: a connection is taken, one is refused, and one has ended.
fn reported() -> BTreeMap<String, Metric> {
    let dir = TempDir::new();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(dir.join("certificate"), made.cert.pem()).unwrap();
    std::fs::write(dir.join("key"), made.signing_key.serialize_pem()).unwrap();
    let [certificate, key] = ["certificate", "key"].map(|name| format!("tls.{name}={}", dir.join(name).display()));
    let keys = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    std::fs::write(dir.join("keys.json"), keys).unwrap();
    let jwks = format!("oauth.jwks={}", dir.join("keys.json").display());
    let listeners = ["amqp=127.0.0.1:0", "rabbitmq-http=127.0.0.1:0", "kafka+tls=127.0.0.1:0"];
    let mut args = vec!["--set", &jwks, "--set", &certificate, "--set", &key, "--set", "server.connections_max=1"];
    listeners.iter().for_each(|listener| args.extend(["--listen", listener]));
    let server = Server::start(&dir.join("data"), &args);
    let first = TcpStream::connect(server.kafka).unwrap();
    let second = TcpStream::connect(server.kafka).unwrap();
    let mut left = 3_000;
    loop {
        let text = server.get("/metrics").unwrap().1;
        let all = metrics(&text);
        let is_there = |name: &str| all.contains_key(name);
        if is_there("polylogue_connections_refused_total") && is_there("polylogue_connections_closed_total") {
            drop((first, second));
            return all;
        }
        left -= 1;
        assert!(left > 0, "no connection was refused or has ended:\n{text}");
    }
}

#[test]
fn every_metric_is_documented() {
    let row = |(name, metric): (&String, &Metric)| {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{name}` | {} | {} | {} |\n", metric.kind, labels.join(", "), metric.help)
    };
    let rows: String = reported().iter().map(row).collect();
    let path = file("docs/metrics.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, table) = text.split_once(BEGIN).unwrap();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{rows}")).unwrap();
        return;
    }
    assert!(
        table == rows,
        "docs/metrics.md is not what the server tells; UPDATE_SNAPSHOTS=1 writes it. It should be:\n{rows}"
    );
}

#[test]
fn alert_rules_and_the_dashboard_ask_for_what_there_is() {
    let documented = std::fs::read_to_string(file("docs/metrics.md")).unwrap();
    let dashboard = std::fs::read_to_string(file("packaging/grafana/polylogue.json")).unwrap();
    let parsed: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    assert!(parsed["panels"].as_array().unwrap().len() > 10);
    let rules = std::fs::read_to_string(file("packaging/prometheus/alerts.yml")).unwrap();
    // Both sides of one differ in the label `outcome`: without that word it took nothing away, and counted certificates that had been accepted.
    assert!(rules.contains(" unless ignoring (outcome) ") && !rules.contains(" unless increase"));
    for text in [dashboard, rules] {
        let names = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        let names: BTreeSet<_> = names.filter(|name| name.starts_with("polylogue_")).collect();
        assert!(names.len() > 10);
        for name in names {
            let name = name.trim_end_matches("_bucket");
            assert!(documented.contains(&format!("| `{name}` |")), "{name} is not there");
        }
    }
}

#[test]
fn single_groups_topics_and_queues_are_told_of_where_that_is_asked() {
    let dir = TempDir::new();
    let server = Server::start(&dir.join("data"), &["--listen", "amqp=127.0.0.1:0"]);
    server.ok_with(&["produce", "t"], b"one\ntwo\nthree\n");
    server.ok(&["group", "reset", "g", "--topic", "t", "--to-offset", "1", "--execute"]);
    server.ok(&["queue", "declare", "q"]);
    let objects = |of: &str| server.get(&format!("/metrics/objects{of}")).unwrap();
    let (status, text) = objects("");
    assert_eq!(status, 200, "{text}");
    for line in [
        "polylogue_group_lag_messages{group=\"g\",topic=\"t\"} 2",
        "polylogue_topic_messages{topic=\"t\"} 3",
        "polylogue_topic_end_offsets{topic=\"t\"} 3",
        "polylogue_queue_ready{vhost=\"/\",queue=\"q\"} 0",
        "polylogue_objects_left_out 0",
    ] {
        assert!(text.lines().any(|reported| reported == line), "{line} is not in\n{text}");
    }
    let seconds = "polylogue_group_lag_seconds{group=\"g\",topic=\"t\"} ";
    let behind = text.lines().find_map(|line| line.strip_prefix(seconds)).unwrap().parse::<f64>().unwrap();
    assert!((0.0..600.0).contains(&behind), "{behind}");
    let documented = std::fs::read_to_string(file("docs/metrics.md")).unwrap();
    for name in metrics(&text).keys() {
        assert!(documented.contains(&format!("`{name}`")), "{name} is not documented");
    }
    assert!(!objects("?of=topics").1.contains("queue_ready"));
    assert_eq!((objects("?of=users").0, objects("?on=topics").0), (400, 400));
}
