//! Unmodified client libraries against the real binary: the programs of tests/clients.
//!
//! All cases run with librdkafka (Python), and one with each other client; all with all where
//! `POLYLOGUE_CLIENTS=all`. A client that cannot be had here is skipped, and said so; with `CI=true` it is a failure.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes and files")]

mod common;

use common::Place;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Exit code of run.sh: something is missing that cannot be installed here.
const MISSING: i32 = 3;
/// The longest that all cases of a client may take, installing included. Seconds.
const CLIENT_SECS: u64 = 900;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs these cases of a client, or all where there are none.
fn run(client: &str, cases: &[&str]) {
    let place = Place::new(&format!("client-{client}"));
    let server = place.start(place.serve(&[])).unwrap();
    let all = std::env::var("POLYLOGUE_CLIENTS").is_ok_and(|clients| clients == "all");
    let [output, errors] = ["output", "errors"].map(|name| place.root.join(name));
    let mut command = Command::new("bash");
    command.arg(root().join("tests/clients/run.sh")).arg(client).arg(server.kafka().to_string());
    command.args(if all { &[] } else { cases });
    command.stdin(Stdio::null()).stdout(File::create(&output).unwrap()).stderr(File::create(&errors).unwrap());
    let status = wait(&mut command, client);
    // Not all that a package manager prints is UTF-8.
    let [said, errors] =
        [output, errors].map(|path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned());
    match status.code() {
        Some(0) => {
            let passed = said.lines().filter(|line| line.starts_with("ok ")).count();
            assert!(passed >= cases.len().max(1), "{client} ran {passed} cases:\n{said}\n{errors}");
        }
        Some(MISSING) => skip(client, &errors),
        _ => panic!("{client} ended with {status}:\n{said}\n{errors}\nthe server said:\n{}", server.said()),
    }
    server.terminate().unwrap();
}

fn wait(command: &mut Command, client: &str) -> ExitStatus {
    let mut child = command.spawn().unwrap();
    let ended = polylogue_testkit::wait_until(client, CLIENT_SECS, || child.try_wait().map_err(|e| e.to_string()));
    ended.unwrap_or_else(|e| {
        let _ = child.kill();
        panic!("{e}")
    })
}

/// Around the test harness, which keeps what a passing test prints; and into a file for the last lines of `make test`.
fn skip(client: &str, said: &str) {
    let why = said.lines().rev().find(|line| line.starts_with("missing: ")).unwrap_or("something is missing");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{client} must not be skipped with CI=true: {why}");
    let line = format!("skipped: the cases of the {client} client: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    let folder = root().join("build");
    std::fs::create_dir_all(&folder).unwrap();
    let mut to = File::options().create(true).append(true).open(folder.join("skipped")).unwrap();
    to.write_all(line.as_bytes()).unwrap();
}

#[test]
fn python_librdkafka() {
    run("python", &[]);
}

#[test]
fn java_kafka_clients() {
    run("java", &["smoke"]);
}

#[test]
fn go_franz() {
    run("go", &["smoke"]);
}
