//! Commands over RabbitMQ's management API, and connections.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

use crate::common;

use common::amqp::Client;
use common::rabbit::Rabbit;
use common::tls::until;
use common::{Server, TempDir, done, done_with};
use polylogue_amqp::codec::Method;
use serde_json::{Value, json};

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Runs commands that must fail with this in their errors.
fn refused(server: &Server, all: &[(&[&str], i32, &str)]) {
    for (args, code, text) in all {
        let done = done(&mut server.command(args));
        assert_eq!((done.code, done.out.as_str()), (Some(*code), ""), "{args:?}: {}", done.err);
        assert!(done.err.contains(text), "{args:?}: {}", done.err);
    }
}

#[test]
fn policies_are_set_listed_and_deleted() {
    let rabbit = Rabbit::start();
    let server = &rabbit.server;
    assert_eq!(server.ok(&["policy", "list"]), "no policies\n");
    let set = ["policy", "set", "short", "^q", "max-length=10", "overflow=reject-publish", "--apply-to", "queues"];
    assert_eq!(server.ok(&[&set[..], &["--priority", "-1"]].concat()), "set policy short\n");
    assert_eq!(
        server.ok(&["policy", "list"]),
        "POLICY  PATTERN  APPLIES TO  PRIORITY  DEFINITION\n\
         short   ^q       queues      -1        max-length=10 overflow=reject-publish\n"
    );
    server.ok(&["queue", "declare", "q"]);
    assert_eq!(rabbit.get("queues/%2F/q")["policy"], "short");
    server.ok(&["policy", "set", "most", ".*", "max-length=100", "--operator", "--apply-to", "queues"]);
    let listed = read(&server.ok(&["policy", "list", "--operator", "--json"]));
    assert_eq!(listed["policies"][0]["definition"], json!({"max-length": 100}));
    assert_eq!(server.ok(&["policy", "delete", "most", "--operator"]), "deleted operator policy most\n");
    assert_eq!(server.ok(&["policy", "delete", "short"]), "deleted policy short\n");
    refused(
        server,
        &[
            (&["policy", "delete", "nope"], 1, "there is no policy nope in the virtual host /"),
            (&["policy", "list", "--vhost", "nope"], 1, "there is no virtual host nope (`polylogue vhost list`)"),
            (&["policy", "set", "p", "^q", "nope=1"], 1, "not recognised policy settings"),
            (&["policy", "set", "p", "^q", "nope"], 2, "expected NAME=VALUE"),
            (&["policy", "set", "p", "^q"], 2, "KEY=VALUE"),
            (&["policy", "list", "--user", "ann"], 1, "no password was given for the user ann"),
        ],
    );
}

#[test]
fn the_management_api_that_is_off_is_named_and_a_user_is_asked_for() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    refused(&server, &[(&["policy", "list"], 1, "--listen rabbitmq-http=127.0.0.1:15672")]);
    let rabbit = Rabbit::start_with(&["--set", "server.guest=off"]);
    refused(&rabbit.server, &[(&["shovel", "list"], 1, "guest may not log in: give --user NAME")]);
}

#[test]
fn definitions_are_exported_and_imported() {
    let dir = TempDir::new();
    let (from, to) = (Rabbit::start(), Rabbit::start());
    from.server.ok(&["queue", "declare", "q"]);
    from.server.ok(&["exchange", "declare", "e"]);
    from.server.ok(&["binding", "add", "e", "q", "--key", "k"]);
    let file = dir.join("definitions.json").display().to_string();
    let exported = from.server.ok(&["definitions", "export", "--file", &file]);
    let what = "1 virtual host, 1 user, 1 permission, 1 exchange, 1 queue, 1 binding";
    assert_eq!(exported, format!("exported {what} to {file}\n"));
    assert_eq!(to.server.ok(&["definitions", "import", &file]), format!("imported {what}\n"));
    let bindings = read(&to.server.ok(&["binding", "list", "--json"]));
    assert!(bindings.to_string().contains(r#""source":"e""#), "{bindings}");
    let printed = from.server.ok(&["definitions", "export", "--vhost", "/"]);
    assert_eq!(read(&printed)["queues"][0]["name"], "q");
    to.server.ok(&["vhost", "create", "v"]);
    let json = to.server.ok_with(&["definitions", "import", "-", "--vhost", "v", "--json"], printed.as_bytes());
    assert_eq!(read(&json)["imported"]["queues"], 1);
    assert!(to.server.ok(&["queue", "list", "--vhost", "v"]).contains("q "));
    refused(
        &to.server,
        &[
            (&["definitions", "export", "--vhost", "nope"], 1, "there is no virtual host nope"),
            (&["definitions", "export", "--file", &file], 1, "File exists"),
            (&["definitions", "import", "/nonexistent"], 1, "/nonexistent: No such file"),
        ],
    );
    let broken = done_with(&mut to.server.command(&["definitions", "import", "-"]), b"queues:");
    assert!(broken.code == Some(1) && broken.err.contains("- is not JSON"), "{}", broken.err);
}

#[test]
fn shovels_are_created_shown_and_deleted() {
    let rabbit = Rabbit::start();
    let server = &rabbit.server;
    for queue in ["a", "b"] {
        server.ok(&["queue", "declare", queue]);
    }
    server.ok(&["queue", "publish", "a", "moved"]);
    assert_eq!(server.ok(&["shovel", "list"]), "no shovels\n");
    let create = ["shovel", "create", "s", "--from-queue", "a", "--to-queue", "b"];
    assert_eq!(server.ok(&create), "set shovel s (`polylogue shovel status s`)\n");
    until("it has moved the message", || server.ok(&["queue", "get", "b"]) == "moved\n");
    until("it runs", || server.ok(&["shovel", "list"]).contains("s       running  amqp:// queue a  amqp:// queue b"));
    let status = server.ok(&["shovel", "status", "s"]);
    assert!(status.starts_with("s: running\n") && status.contains("  src_queue: a\n"), "{status}");
    assert_eq!(read(&server.ok(&["shovel", "status", "s", "--json"]))["shovels"][0]["dest_queue"], "b");
    assert_eq!(server.ok(&["shovel", "delete", "s"]), "deleted shovel s\n");
    refused(
        server,
        &[
            (&["shovel", "status", "s"], 1, "there is no shovel s in the virtual host / (`polylogue shovel list`)"),
            (&["shovel", "delete", "s"], 1, "there is no shovel s"),
            (&["shovel", "create", "s", "--from-queue", "a"], 2, "--to-queue"),
            (&[&create[..], &["--from", "nonsense"]].concat(), 1, "not a valid URI"),
        ],
    );
    assert_eq!(server.ok(&["federation", "list"]), "no federation links\n");
    assert_eq!(read(&server.ok(&["federation", "list", "--json"])), json!({"links": []}));
}

#[test]
fn federation_links_are_listed() {
    let rabbit = Rabbit::start();
    let upstream = json!({"value": {"uri": "amqp://127.0.0.1:1"}});
    assert_eq!(rabbit.manage("PUT", "parameters/federation-upstream/%2F/up", &upstream), 201);
    rabbit.server.ok(&["exchange", "declare", "federated"]);
    rabbit.server.ok(&["policy", "set", "f", "^federated$", "federation-upstream-set=all", "--apply-to", "exchanges"]);
    let row = "up        exchange federated";
    until("the link is there", || rabbit.server.ok(&["federation", "list", "--down"]).contains(row));
}

#[test]
fn connections_are_listed_and_closed() {
    let rabbit = Rabbit::start();
    let server = &rabbit.server;
    assert_eq!(server.ok(&["connection", "list"]), "no connections\n");
    let mut client = Client::open(rabbit.amqp, "guest");
    let list = server.ok(&["connection", "list", "--search", "amqp"]);
    let row: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[1], row[3]), ("amqp", "guest"), "{list}");
    let all = read(&server.ok(&["connection", "list", "--json"]));
    assert_eq!(all["connections"][0]["id"].to_string(), row[0]);
    assert_eq!(server.ok(&["connection", "close", row[0]]), format!("closed connection {}\n", row[0]));
    assert!(matches!(client.method(), Some((0, Method::ConnectionClose(_)))));
    refused(
        server,
        &[(&["connection", "close", "999999"], 1, "there is no connection 999999 (`polylogue connection list`)")],
    );
}
