//! The console in a real browser: tests/console, which clicks through every page. Where there is no browser it is skipped, and said so; with
//! `CI=true` that is a failure.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes and files")]

use crate::common;

use common::Place;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit code of run.sh: something is missing that cannot be installed here.
const MISSING: i32 = 3;
/// Names a folder for the pictures, where they are wanted elsewhere than in build/console/pictures.
const PICTURES: &str = "POLYLOGUE_PICTURES";
/// The password of the administrator.
const PASSWORD: &str = "admin-password";
/// What is clicked through.
const CASES: [&str; 14] = [
    "login",
    "topics",
    "messages",
    "groups",
    "queues",
    "exchanges",
    "connections",
    "users",
    "settings",
    "keyboard",
    "looks",
    "strangers",
    "described",
    "logout",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

#[test]
fn every_page_of_the_console_does_what_it_says() {
    let place = Place::new("console");
    let mut serve = place.serve(&[]);
    serve.args(["--listen", "amqp=127.0.0.1:0", "--set", "server.login=always"]);
    serve.env("POLYLOGUE_ADMIN_PASSWORD", PASSWORD);
    let server = place.start(serve).unwrap();
    let pictures = std::env::var_os(PICTURES).map_or_else(|| root().join("build/console/pictures"), PathBuf::from);
    let mut run = Command::new(root().join("tests/console/run.sh"));
    run.arg(server.http().unwrap().to_string()).arg(server.kafka().to_string()).arg(PASSWORD).arg(&pictures);
    let output = run.output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(MISSING) {
        polylogue_testkit::skip(&root(), "the console in a browser", &errors);
        return;
    }
    assert!(output.status.success(), "{said}{errors}");
    let passed: BTreeSet<&str> = said.lines().filter_map(|line| line.strip_prefix("ok ")).collect();
    assert_eq!(passed, BTreeSet::from(CASES), "what passed");
    server.terminate().unwrap();
}
