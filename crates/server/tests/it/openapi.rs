//! What is written of the API: docs/openapi.json is what the binary says, and docs/http-api.md names the same paths. That answers are what it says
//! is seen by tests/console. `UPDATE_SNAPSHOTS=1` writes docs/openapi.json anew.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::{Server, TempDir};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn start(dir: &TempDir) -> (Server, Value) {
    let server = Server::start(&dir.join("data"), &["--listen", "amqp=127.0.0.1:0"]);
    let (status, text) = server.get("/api/v1/openapi.json").unwrap();
    assert_eq!(status, 200);
    (server, serde_json::from_str(&text).unwrap())
}

#[test]
fn the_description_is_the_one_that_was_reviewed() {
    let dir = TempDir::new();
    let (_server, document) = start(&dir);
    let path = file("docs/openapi.json");
    let reported = format!("{document:#}\n");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, reported).unwrap();
        return;
    }
    let reviewed = std::fs::read_to_string(&path).unwrap();
    assert!(reviewed == reported, "the API is not what docs/openapi.json says; look at it with UPDATE_SNAPSHOTS=1");
}

/// `/topics/NAME` for `/topics/{name}`.
fn plain(path: &str) -> String {
    path.replace("{vhost}", "VHOST").replace("{user}", "USER").replace("{id}", "ID").replace("{name}", "NAME")
}

#[test]
fn the_guide_names_the_same_paths() {
    let dir = TempDir::new();
    let (_server, document) = start(&dir);
    let guide = std::fs::read_to_string(file("docs/http-api.md")).unwrap();
    let rows = guide.lines().filter(|line| line.starts_with("| `"));
    let named =
        rows.flat_map(|line| line.split('`').skip(1).step_by(2)).filter_map(|cell| cell.split("/api/v1").nth(1));
    let named: BTreeSet<String> = named.map(|path| path.split(['?', ' ']).next().unwrap().to_owned()).collect();
    let described: BTreeSet<String> = document["paths"].as_object().unwrap().keys().map(|path| plain(path)).collect();
    let missing: Vec<_> = described.iter().filter(|path| !path.contains("{scope}") && !named.contains(*path)).collect();
    assert!(missing.is_empty(), "docs/http-api.md does not name {missing:?}");
    let known =
        |path: &&String| described.contains(*path) || path.starts_with("/settings/") || *path == "/openapi.json";
    let stale: Vec<_> = named.iter().filter(|path| !known(path)).collect();
    assert!(stale.is_empty(), "docs/http-api.md names {stale:?}, which are not there");
}
