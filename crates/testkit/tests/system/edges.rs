//! Layers point down only (ARCHITECTURE.md). A new edge is added here, with its reason in the review.

#![allow(clippy::disallowed_methods, clippy::expect_used, clippy::panic, reason = "a test that reads the tree")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Which of our crates each crate may use outside of its tests.
const ALLOWED: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("env", &["types"]),
    ("record", &["types"]),
    ("api", &["types", "record"]),
    ("auth", &["types"]),
    ("filter", &["types"]),
    ("log", &["types", "env", "record"]),
    ("kafka-codec", &["types"]),
    ("kafka-groups", &["types", "api", "kafka-codec"]),
    ("kafka", &["types", "record", "api", "auth", "kafka-codec", "kafka-groups"]),
    ("replicate", &["types", "env", "record", "log"]),
    ("meta", &["types", "api"]),
    ("router", &["types"]),
    ("timer", &["types"]),
    ("lease", &["types"]),
    ("amqp", &["types", "record", "api"]),
    ("amqp-model", &["types", "auth", "router"]),
    ("amqp-gateway", &["types", "record", "api", "auth", "filter", "amqp", "amqp-model", "router"]),
    ("broker", &["types", "env", "record", "api", "lease", "log", "replicate", "meta", "timer"]),
    (
        "net",
        &[
            "types",
            "env",
            "api",
            "auth",
            "log",
            "kafka",
            "kafka-codec",
            "kafka-groups",
            "amqp",
            "amqp-model",
            "amqp-gateway",
            "broker",
        ],
    ),
    ("config", &["types", "api", "auth", "log", "kafka", "amqp", "amqp-gateway", "net"]),
    (
        "admin",
        &[
            "types",
            "env",
            "record",
            "api",
            "auth",
            "kafka",
            "kafka-codec",
            "kafka-groups",
            "amqp",
            "amqp-model",
            "amqp-gateway",
            "router",
            "broker",
            "net",
            "config",
        ],
    ),
    ("bridges", &["types", "env", "amqp", "amqp-model", "amqp-gateway", "router", "net"]),
    (
        "rabbitmq-http",
        &["types", "env", "api", "auth", "amqp", "amqp-model", "amqp-gateway", "router", "net", "admin", "bridges"],
    ),
    (
        "cli",
        &[
            "types",
            "env",
            "record",
            "auth",
            "kafka",
            "kafka-codec",
            "kafka-groups",
            "amqp-model",
            "amqp-gateway",
            "broker",
            "net",
            "config",
            "admin",
        ],
    ),
    (
        "server",
        &[
            "types",
            "env",
            "api",
            "log",
            "kafka",
            "kafka-groups",
            "amqp",
            "amqp-model",
            "amqp-gateway",
            "broker",
            "net",
            "config",
            "admin",
            "bridges",
            "rabbitmq-http",
            "cli",
        ],
    ),
    (
        "sim",
        &[
            "types",
            "env",
            "record",
            "api",
            "log",
            "kafka",
            "kafka-codec",
            "kafka-groups",
            "amqp",
            "amqp-model",
            "amqp-gateway",
            "router",
            "replicate",
            "meta",
            "broker",
        ],
    ),
    ("bench", &["env", "record", "bench-load", "bench-report"]),
    ("bench-load", &["types", "env", "record", "kafka-codec", "amqp"]),
    ("bench-report", &["bench-load"]),
    ("bench-flushes", &["interpose"]),
    ("bench-librdkafka", &["bench-load"]),
    ("testkit", &[]),
    ("faultfs", &["faultfs-undo", "faultfs-preload", "env"]),
    ("faultfs-preload", &["faultfs", "faultfs-undo", "interpose"]),
    ("faultfs-undo", &["env"]),
    ("interpose", &[]),
];

/// Crates from outside that only some of ours may name, outside of tests.
const CONFINED: &[(&str, &[&str])] = &[
    ("tokio", &["net", "admin", "rabbitmq-http", "bridges", "cli", "server"]),
    ("axum", &["admin", "rabbitmq-http"]),
    ("openraft", &[]),
    ("libc", &["bench-flushes", "env", "faultfs", "faultfs-preload", "faultfs-undo", "interpose", "server"]),
    ("object_store", &[]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The dependencies of every crate under crates/, by its short name.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let mut manifests = Vec::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the crates folder is readable") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("src") && !path.ends_with("tests") {
                folders.push(path.clone());
            }
            if path.ends_with("Cargo.toml") {
                manifests.push(path);
            }
        }
    }
    let parse = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).expect("a manifest");
        let manifest: toml::Table = text.parse().expect("a manifest is TOML");
        let name = manifest["package"]["name"].as_str().expect("a name").to_owned();
        let mut names: BTreeSet<String> = BTreeSet::new();
        let targets = manifest.get("target").and_then(|t| t.as_table()).into_iter().flat_map(|t| t.values());
        for table in targets.chain([&toml::Value::Table(manifest.clone())]) {
            names.extend(
                table.get("dependencies").and_then(|d| d.as_table()).into_iter().flat_map(|d| d.keys().cloned()),
            );
        }
        (name.trim_start_matches("polylogue-").to_owned(), names)
    };
    manifests.iter().map(parse).collect()
}

#[test]
fn layers_point_down_only() {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    for (name, dependencies) in dependencies() {
        let Some(may) = allowed.get(name.as_str()) else { panic!("crate {name} is not in the list of layers") };
        for dependency in dependencies.iter().filter_map(|d| d.strip_prefix("polylogue-")) {
            assert!(may.contains(&dependency), "{name} may not depend on {dependency}");
        }
    }
}

#[test]
fn runtimes_engines_and_the_system_are_named_where_they_belong() {
    let all = dependencies();
    for (outside, may) in CONFINED {
        for (name, dependencies) in &all {
            let names_it = dependencies.contains(*outside);
            assert!(!names_it || may.contains(&name.as_str()), "{name} may not depend on {outside}");
        }
    }
}
