//! Who changed what is in the log, and no secret is: the real binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

use crate::common;

use common::{Server, TempDir, done, done_with};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::process::Stdio;

#[test]
fn changes_are_told_with_who_made_them_and_how_they_ended() {
    let dir = TempDir::new();
    let log = dir.join("log");
    let more =
        ["--listen", "rabbitmq-http=127.0.0.1:0", "--set", "server.login=always", "--set", "server.log_format=json"];
    let mut command = common::polylogue();
    let log_file = Stdio::from(File::create(&log).unwrap());
    let command = command.env("POLYLOGUE_ADMIN_PASSWORD", "admin");
    let server = Server::start_command(command, &dir.join("data"), &more, log_file);
    let by_admin = |args: &[&str], input: &[u8]| {
        let mut command = server.command(args);
        done_with(command.env("POLYLOGUE_USER", "admin").env("POLYLOGUE_PASSWORD", "admin"), input)
    };
    assert_eq!(by_admin(&["topic", "create", "by-http"], b"").code, Some(0));
    assert_eq!(by_admin(&["user", "set", "ann", "--password"], b"very-secret\n").code, Some(0));
    assert_eq!(by_admin(&["topic", "delete", "nothing"], b"").code, Some(1));
    // Kafka's protocol makes a topic that a client wants to write to.
    assert_eq!(by_admin(&["produce", "by-kafka"], b"a message\n").code, Some(0));
    let refused = done(
        server.command(&["topic", "create", "by-absent"]).env("POLYLOGUE_USER", "ann").env("POLYLOGUE_PASSWORD", "x"),
    );
    assert_eq!(refused.code, Some(1));
    // She may write to that topic, and not make it.
    assert_eq!(by_admin(&["acl", "add", "ann", "write", "--topic", "not-hers"], b"").code, Some(0));
    let mut hers = server.command(&["produce", "not-hers"]);
    let refused = done_with(hers.env("POLYLOGUE_USER", "ann").env("POLYLOGUE_PASSWORD", "very-secret"), b"x\n");
    assert_eq!(refused.code, Some(1));
    let prefix = "rabbitmq-http listening on ";
    let management = server.lines.iter().find_map(|line| line.strip_prefix(prefix)).unwrap().to_owned();
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let put =
        agent.put(format!("http://{management}/api/vhosts/v%0A1")).header("authorization", "Basic YWRtaW46YWRtaW4=");
    assert_eq!(put.send_empty().unwrap().status().as_u16(), 201);
    // A page of another site, in the browser of a logged-in user.
    let elsewhere = agent.post(format!("http://{}/api/v1/topics", server.http)).header("origin", "http://evil.example");
    assert_eq!(elsewhere.send("{}").unwrap().status().as_u16(), 403);
    assert_eq!(server.stop(Signal::TERM), Some(0));
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(!log.contains("very-secret") && !log.contains("a message"), "{log}");
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let reported = lines.filter(|line| line["target"] == "audit").map(|line| {
        let fields = &line["fields"];
        let text = |name: &str| fields[name].as_str().unwrap().to_owned();
        assert_eq!(text("address"), "127.0.0.1");
        [text("user"), text("protocol"), text("message"), text("outcome")]
    });
    let wanted = [
        ["admin", "http", "POST /api/v1/topics", "201"],
        ["admin", "http", "PUT /api/v1/users/ann", "201"],
        ["admin", "http", "DELETE /api/v1/topics/nothing", "404"],
        ["admin", "kafka", "create topics by-kafka", "done"],
        ["ann", "http", "POST /api/v1/topics", "401"],
        ["admin", "http", "POST /api/v1/acls", "201"],
        ["ann", "kafka", "create topic not-hers", "refused"],
        ["admin", "rabbitmq-http", "PUT /api/vhosts/v%0A1", "201"],
        ["-", "http", "POST /api/v1/topics", "403"],
    ];
    assert_eq!(reported.collect::<Vec<_>>(), wanted.map(|line| line.map(str::to_owned)));
}
