//! `polylogue queue`, `exchange`, `binding` and `vhost` against a running broker.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

use crate::common;

use common::amqp::Client;
use common::{Server, TempDir, done, polylogue};
use polylogue_amqp::codec::*;
use rustix::process::Signal;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LISTEN: [&str; 2] = ["--listen", "amqp=127.0.0.1:0"];
/// How long something may take that must come.
const PATIENCE: Duration = Duration::from_secs(60);

fn amqp(server: &Server) -> SocketAddr {
    server.lines.iter().find_map(|line| line.strip_prefix("amqp listening on ")?.parse().ok()).unwrap()
}

fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A command that must fail, and what it says.
fn refused(server: &Server, args: &[&str], code: i32, text: &str) {
    let refused = done(&mut server.command(args));
    assert_eq!(refused.code, Some(code), "{args:?}: {}{}", refused.out, refused.err);
    assert!(refused.err.starts_with("polylogue: ") && refused.err.contains(text), "{args:?}: {}", refused.err);
}

/// Publishes messages and waits until they are on the disk.
fn publish(to: SocketAddr, exchange: &str, key: &str, bodies: &[&str]) {
    let mut client = Client::open(to, "guest");
    assert!(matches!(client.ask(1, ConfirmSelect::default()), Method::ConfirmSelectOk(_)));
    let properties = BasicProperties { delivery_mode: Some(2), ..Default::default() };
    for body in bodies {
        client.publish(exchange, key, &properties, body.as_bytes());
    }
    confirmed(&mut client, bodies.len() as u64);
}

fn confirmed(client: &mut Client, count: u64) {
    let mut last = 0;
    while last < count {
        match client.method() {
            Some((1, Method::BasicAck(ack))) => last = ack.delivery_tag,
            other => panic!("{other:?}"),
        }
    }
}

/// What a queue holds: ready and unsettled.
fn holds(server: &Server, queue: &str) -> (u64, u64) {
    let list = json(&server.ok(&["queue", "list", "--json"]));
    let all = list["queues"].as_array().unwrap();
    let one = all.iter().find(|one| one["name"] == queue).unwrap_or_else(|| panic!("no {queue} in {list}"));
    (one["ready"].as_u64().unwrap(), one["unsettled"].as_u64().unwrap())
}

/// The bodies in a queue, in their order.
fn bodies(server: &Server, queue: &str) -> Vec<String> {
    let got = json(&server.ok(&["queue", "get", queue, "-n", "1000", "--json"]));
    let all = got["messages"].as_array().unwrap();
    all.iter().map(|message| message["body"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn messages_are_published_from_the_command_line() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &LISTEN);
    server.ok(&["queue", "declare", "q", "--type", "quorum"]);
    assert_eq!(server.ok(&["queue", "publish", "q", "hello", "-H", "n=1"]), "published to queue q\n");
    server.ok_with(&["queue", "publish", "q"], b"\xff\x00");
    assert_eq!(bodies(&server, "q"), ["hello", "/wA="]);
    let described = server.ok(&["queue", "describe", "q"]);
    let lines: Vec<&str> = described.lines().collect();
    assert_eq!(lines[0], "q is a quorum queue, durable");
    assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["2", "0", "0", "0"], "{described}");
    assert!(described.contains("Kafka clients read it as the topic amqp-queue.q"), "{described}");
    refused(&server, &["queue", "describe", "nope"], 1, "there is no queue nope");
    refused(&server, &["queue", "publish", "nope", "x"], 1, "there is no queue nope: the message was dropped");
    refused(&server, &["queue", "publish", "k", "x", "--exchange", "amq.direct"], 1, "routes k to no queue");
}

/// Waits until something has become true, which it must.
fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_there() {
        assert!(Instant::now() < deadline, "{what} does not come");
    }
}

#[test]
fn queues_from_declaration_to_deletion() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &LISTEN);
    assert_eq!(server.ok(&["queue", "list"]), "no queues\n");
    let declared = server.ok(&["queue", "declare", "orders", "-a", "x-max-length=10", "-a", "x-overflow=drop-head"]);
    assert_eq!(declared, "declared classic queue orders\n");
    assert_eq!(server.ok(&["queue", "declare", "a b/c", "-t", "quorum"]), "declared quorum queue a b/c\n");
    server.ok(&["queue", "declare", "brief", "--transient", "--auto-delete"]);
    // Declared as it is, it is declared.
    server.ok(&["queue", "declare", "brief", "--transient", "--auto-delete"]);
    let list = server.ok(&["queue", "list"]);
    let expected = "QUEUE   TYPE     DURABLE  READY  UNSETTLED  CONSUMERS  ARGUMENTS\n\
                    a b/c   quorum   yes          0          0          0  x-queue-type=quorum\n\
                    brief   classic  no           0          0          0\n\
                    orders  classic  yes          0          0          0  x-max-length=10 x-overflow=drop-head\n";
    assert_eq!(list, expected);
    publish(amqp(&server), "", "orders", &["one", "two", "three"]);
    assert_eq!(server.ok(&["queue", "get", "orders"]), "one\n");
    assert_eq!(server.ok(&["queue", "get", "orders", "-n", "2", "--remove"]), "one\ntwo\n");
    let verbose = server.ok(&["queue", "get", "orders", "-v"]);
    assert_eq!(verbose, "- orders {\"delivery_mode\":2} three\n");
    let mut client = Client::open(amqp(&server), "guest");
    client.publish("", "brief", &BasicProperties::default(), &[0xff, 0]);
    wait_for("the message", || holds(&server, "brief").0 == 1);
    assert_eq!(server.ok(&["queue", "get", "brief"]), "base64 /wA=\n");
    assert_eq!(server.ok(&["queue", "get", "brief", "-v", "--remove"]), "- brief redelivered base64 /wA=\n");
    assert_eq!(
        server.ok(&["queue", "purge", "orders", "brief"]),
        "purged 1 message of queue orders\npurged 0 messages of queue brief\n"
    );
    assert_eq!(server.ok(&["queue", "get", "orders"]), "queue orders has no ready messages\n");
    publish(amqp(&server), "", "a b/c", &["x"]);
    for (args, code, text) in [
        (&["queue", "get", "nope"][..], 1, "there is no queue nope"),
        (&["queue", "purge", "nope"], 1, "there is no queue nope"),
        (&["queue", "delete", "nope"], 1, "there is no queue nope"),
        (&["queue", "list", "--vhost", "nope"], 1, "there is no virtual host nope"),
        (&["queue", "get", "orders", "-n", "1001"], 1, "must be from 1 to 1000"),
        (&["queue", "declare", "orders"], 1, "inequivalent arg 'x-max-length' for queue 'orders' in vhost '/'"),
        (&["queue", "declare", "amq.mine"], 1, "amq.mine has the prefix of names that the broker generates"),
        (&["queue", "declare", "x", "-a", "x-expires=0"], 1, "invalid arg 'x-expires'"),
        (&["queue", "declare", "x", "-a", "novalue"], 2, "expected NAME=VALUE"),
        (&["queue", "declare", "x", "-t", "quorum", "-a", "x-queue-type=classic"], 1, "are both set"),
        (&["queue", "delete", "orders", "--if-empty", "--vhost", "nope"], 1, "there is no virtual host nope"),
        (&["queue", "delete", "a b/c", "--if-empty"], 1, "not supported by quorum queues"),
    ] {
        refused(&server, args, code, text);
    }
    assert_eq!(server.ok(&["queue", "delete", "a b/c", "orders"]), "deleted queue a b/c\ndeleted queue orders\n");
    server.stop(Signal::KILL);
    let server = Server::start(&dir.0, &LISTEN);
    assert_eq!(server.ok(&["queue", "list"]), "no queues\n", "the last one was transient");
}

/// A user whom the command line had made could do nothing: permissions were RabbitMQ's API to give.
#[test]
fn permissions_of_users_in_virtual_hosts() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &LISTEN);
    server.ok(&["user", "set", "alice"]);
    server.ok(&["vhost", "create", "shop"]);
    let set = ["permission", "set", "alice", "--vhost", "shop", "--configure", "", "--write", "^orders$"];
    assert_eq!(server.ok(&set), "set the permissions of alice in virtual host shop\n");
    let all = json(&server.ok(&["permission", "list", "--json"]));
    let hers: Vec<_> = all["permissions"].as_array().unwrap().iter().filter(|one| one["user"] == "alice").collect();
    assert_eq!(hers, [&json!({"user": "alice", "vhost": "shop", "configure": "", "write": "^orders$", "read": ".*"})]);
    let list = server.ok(&["permission", "list"]);
    assert!(list.starts_with("USER ") && list.contains("^orders$"), "{list}");
    refused(&server, &["permission", "set", "bob"], 1, "there is no user bob");
    refused(&server, &["permission", "set", "alice", "--vhost", "nope"], 1, "there is no virtual host nope");
    refused(&server, &["permission", "set", "alice", "--read", "("], 1, "");
    let delete = ["permission", "delete", "alice", "--vhost", "shop"];
    assert_eq!(server.ok(&delete), "deleted the permissions of alice in virtual host shop\n");
    refused(&server, &delete, 1, "alice has no permissions in the virtual host shop");
}

#[test]
fn exchanges_bindings_and_virtual_hosts() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &LISTEN);
    assert_eq!(server.ok(&["vhost", "create", "shop/eu", "--description", "Europe"]), "created virtual host shop/eu\n");
    let list = server.ok(&["vhost", "list"]);
    assert!(list.contains("shop/eu") && list.contains("Europe"), "{list}");
    let within = |args: &[&str]| server.ok(&[args, &["--vhost", "shop/eu"]].concat());
    assert_eq!(within(&["exchange", "declare", "events", "-t", "topic"]), "declared topic exchange events\n");
    assert_eq!(within(&["exchange", "declare", "all", "-t", "fanout", "--internal"]), "declared fanout exchange all\n");
    within(&["queue", "declare", "q"]);
    assert_eq!(within(&["binding", "list"]), "no bindings\n");
    let add = ["binding", "add", "events", "q", "-k", "eu.#"];
    assert_eq!(within(&add), "bound queue q to exchange events\n");
    within(&["binding", "add", "events", "all", "--to-exchange", "-k", "*.urgent"]);
    within(&["binding", "add", "amq.headers", "q", "-a", "x-match=any", "-a", "level=5"]);
    let list = within(&["binding", "list"]);
    let expected = "EXCHANGE     TO        NAME  KEY       ARGUMENTS\n\
                    amq.headers  queue     q               level=5 x-match=any\n\
                    events       queue     q     eu.#\n\
                    events       exchange  all   *.urgent\n";
    assert_eq!(list, expected);
    let exchanges = json(&within(&["exchange", "list", "--json"]));
    let events = exchanges["exchanges"].as_array().unwrap().iter().find(|one| one["name"] == "events").unwrap();
    let topic = json!({"name": "events", "type": "topic", "durable": true, "auto_delete": false, "internal": false, "arguments": {}});
    assert_eq!(*events, topic);
    for (args, text) in [
        (&["exchange", "declare", "events", "-t", "fanout"][..], "inequivalent arg 'type' for exchange 'events'"),
        (&["exchange", "declare", "x", "-t", "magic"], "unknown exchange type 'magic'"),
        (&["exchange", "delete", "nope"], "there is no exchange nope"),
        (&["exchange", "delete", "amq.topic"], "deletion of system exchange 'amq.topic'"),
        (&["exchange", "delete", "events", "--if-unused"], "exchange 'events' in vhost 'shop/eu' in use"),
        (&["binding", "add", "events", "nope"], "no queue 'nope' in vhost 'shop/eu'"),
        (
            &["binding", "delete", "events", "q", "-k", "us.#"],
            "there is no binding from events to q with the key 'us.#'",
        ),
    ] {
        refused(&server, &[args, &["--vhost", "shop/eu"]].concat(), 1, text);
    }
    let delete = ["binding", "delete", "amq.headers", "q", "-a", "x-match=any", "-a", "level=5"];
    assert_eq!(within(&delete), "unbound queue q from exchange amq.headers\n");
    assert_eq!(within(&["exchange", "delete", "events"]), "deleted exchange events\n");
    assert_eq!(within(&["binding", "list"]), "no bindings\n");
    assert_eq!(server.ok(&["vhost", "delete", "shop/eu"]), "deleted virtual host shop/eu\n");
    refused(&server, &["vhost", "delete", "shop/eu"], 1, "there is no virtual host shop/eu");
}

/// A binding of AMQP's clients whose argument has another width than the same number in JSON was said to be taken away, and stayed; and
/// a second one was made beside it.
#[test]
fn a_binding_of_an_amqp_client_is_found_by_its_arguments_in_json() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &LISTEN);
    server.ok(&["queue", "declare", "q"]);
    let mut client = Client::open(amqp(&server), "guest");
    for level in [Value::I32(5), Value::I64(5), Value::I32(6)] {
        let arguments = TableBuilder::new().with("level", level).build();
        let (queue, exchange) = ("q".into(), "amq.headers".into());
        let bound = client.ask(1, QueueBind { queue, exchange, arguments, ..Default::default() });
        assert!(matches!(bound, Method::QueueBindOk(_)), "{bound:?}");
    }
    let levels = || {
        let list = json(&server.ok(&["binding", "list", "--json"]));
        let all = list["bindings"].as_array().unwrap();
        all.iter().map(|one| one["arguments"]["level"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    server.ok(&["binding", "add", "amq.headers", "q", "-a", "level=6"]);
    assert_eq!(levels(), [5, 5, 6]);
    server.ok(&["binding", "delete", "amq.headers", "q", "-a", "level=5"]);
    assert_eq!(levels(), [6]);
    let again = ["binding", "delete", "amq.headers", "q", "-a", "level=5"];
    refused(&server, &again, 1, "there is no binding from amq.headers to q with the key ''");
}

/// More than one request moves, in the order of the queue; with a limit, what is behind it stays.
#[test]
fn a_queue_is_moved_into_another() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &LISTEN);
    for queue in ["from", "to"] {
        server.ok(&["queue", "declare", queue]);
    }
    let numbers: Vec<String> = (0..1_200).map(|n| n.to_string()).collect();
    let all: Vec<&str> = numbers.iter().map(String::as_str).collect();
    publish(amqp(&server), "", "from", &all);
    assert_eq!(
        server.ok(&["queue", "move", "from", "--to", "to", "-n", "700"]),
        "moved 700 messages from queue from\n"
    );
    assert_eq!((holds(&server, "from"), holds(&server, "to")), ((500, 0), (700, 0)));
    let moved = json(&server.ok(&["queue", "move", "from", "--to", "to", "--json"]));
    assert_eq!(moved, json!({"queue": "from", "moved": 500, "stay": 0, "why": null, "interrupted": false}));
    assert_eq!(bodies(&server, "to"), all[..1_000]);
    assert_eq!(server.ok(&["queue", "move", "from", "--to", "to"]), "moved 0 messages from queue from\n");
    for (args, code, text) in [
        (&["queue", "move", "from"][..], 2, "--to"),
        (&["queue", "move", "from", "--to", "to", "--to-exchange", "x"], 2, "cannot be used with"),
        (&["queue", "move", "nope", "--to", "to"], 1, "there is no queue nope"),
        (&["queue", "move", "to", "--to", "nope"], 1, "there is no queue nope"),
        (&["queue", "move", "to", "--to", "to"], 1, "to is the source queue"),
        (&["queue", "move", "to", "--to-exchange", "nope"], 1, "there is no exchange nope"),
    ] {
        let refused = done(&mut server.command(args));
        assert!(refused.code == Some(code) && refused.err.contains(text), "{args:?}: {}", refused.err);
    }
    server.stop(Signal::KILL);
    let server = Server::start(&dir.0, &LISTEN);
    assert_eq!(holds(&server, "to").0, 1_200, "what is moved is on the disk");
}

#[test]
fn a_queue_is_moved_to_an_exchange_as_far_as_that_goes() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &LISTEN);
    for queue in ["from", "red", "any"] {
        server.ok(&["queue", "declare", queue]);
    }
    server.ok(&["queue", "declare", "small", "-a", "x-max-length=1", "-a", "x-overflow=reject-publish"]);
    server.ok(&["exchange", "declare", "colours"]);
    server.ok(&["binding", "add", "amq.fanout", "from"]);
    server.ok(&["binding", "add", "colours", "red", "-k", "red"]);
    server.ok(&["binding", "add", "colours", "any", "-k", "any"]);
    for (key, body) in [("blue", "1"), ("red", "2"), ("blue", "3"), ("red", "4")] {
        publish(amqp(&server), "amq.fanout", key, &[body]);
    }
    // Each with its own key: nothing is bound for blue ones, which stay where they are.
    refused(
        &server,
        &["queue", "move", "from", "--to-exchange", "colours"],
        1,
        "2 messages stay in queue from: it is unroutable there",
    );
    assert_eq!(
        (bodies(&server, "from"), bodies(&server, "red")),
        (vec!["1".into(), "3".into()], vec!["2".into(), "4".into()])
    );
    // All with one key.
    let move_all = ["queue", "move", "from", "--to-exchange", "colours", "--routing-key", "any"];
    assert_eq!(server.ok(&move_all), "moved 2 messages from queue from\n");
    assert_eq!(bodies(&server, "any"), ["1", "3"]);
    // A queue that is full keeps others out, and they are not lost.
    let stay = done(&mut server.command(&["queue", "move", "red", "--to", "small", "--json"]));
    let reported = json(&stay.out);
    assert_eq!(
        (stay.code, &reported["stay"], &reported["why"]),
        (Some(1), &json!(1), &json!("a target queue is full and rejects it"))
    );
    assert_eq!((bodies(&server, "red"), bodies(&server, "small")), (vec!["4".into()], vec!["2".into()]));
}

/// Each try left a copy of each message where dead letters go, and one in each queue that had room.
#[test]
fn what_a_full_queue_refuses_stays_and_is_nowhere_else() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &LISTEN);
    for queue in ["dead", "from", "other"] {
        server.ok(&["queue", "declare", queue]);
    }
    let full = ["-a", "x-max-length=0", "-a", "x-overflow=reject-publish-dlx"];
    let to_dead = ["-a", "x-dead-letter-exchange=", "-a", "x-dead-letter-routing-key=dead"];
    server.ok(&[&["queue", "declare", "full"][..], &full, &to_dead].concat());
    for queue in ["full", "other"] {
        server.ok(&["binding", "add", "amq.fanout", queue]);
    }
    publish(amqp(&server), "", "from", &["1", "2"]);
    for to in [["--to", "full"], ["--to-exchange", "amq.fanout"]] {
        for _ in 0..2 {
            let args = [&["queue", "move", "from"][..], &to].concat();
            refused(&server, &args, 1, "2 messages stay in queue from: a target queue is full and rejects it");
        }
    }
    // What dies now comes behind whatever died before.
    let mut client = Client::open(amqp(&server), "guest");
    client.publish("", "full", &BasicProperties::default(), b"last");
    wait_for("the dead letter", || bodies(&server, "dead").contains(&"last".to_owned()));
    assert_eq!((bodies(&server, "from"), bodies(&server, "dead")), (vec!["1".into(), "2".into()], vec!["last".into()]));
    assert_eq!(holds(&server, "other"), (0, 0));
}

#[test]
fn dead_letters_go_back_to_where_they_died() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &LISTEN);
    let to_dead = ["-a", "x-dead-letter-exchange=", "-a", "x-dead-letter-routing-key=dead"];
    for queue in ["a", "b", "gone"] {
        server.ok(&[&["queue", "declare", queue][..], &to_dead].concat());
    }
    server.ok(&["queue", "declare", "dead"]);
    let mut client = Client::open(amqp(&server), "guest");
    for (queue, body) in [("gone", "g1"), ("a", "a1"), ("b", "b1"), ("a", "a2")] {
        publish(amqp(&server), "", queue, &[body]);
        let got = client.ask(1, BasicGet { queue: queue.into(), ..Default::default() });
        let Method::BasicGetOk(got) = got else { panic!("{got:?}") };
        client.say(1, BasicReject { delivery_tag: got.delivery_tag, requeue: false });
        let settled = client.ask(1, BasicQos::default());
        assert!(matches!(settled, Method::BasicQosOk(_)), "{settled:?}");
        // The next one dies after this one is there.
        wait_for(body, || bodies(&server, "dead").last().map(String::as_str) == Some(body));
    }
    publish(amqp(&server), "", "dead", &["alive"]);
    server.ok(&["queue", "delete", "gone"]);
    assert_eq!(bodies(&server, "dead"), ["g1", "a1", "b1", "a2", "alive"]);
    refused(
        &server,
        &["queue", "redrive", "dead"],
        1,
        "2 messages stay in queue dead: the queue gone, from which it was dead-lettered, does not exist",
    );
    assert_eq!((bodies(&server, "a"), bodies(&server, "b")), (vec!["a1".into(), "a2".into()], vec!["b1".into()]));
    assert_eq!(bodies(&server, "dead"), ["g1", "alive"]);
    assert_eq!(server.ok(&["queue", "redrive", "dead", "--to", "b", "-n", "1"]), "moved 1 message from queue dead\n");
    assert_eq!((bodies(&server, "dead"), bodies(&server, "b").len()), (vec!["alive".into()], 2));
}

/// A command that moves so many messages from one queue into another. It ends with the test.
struct Moving {
    child: Option<Child>,
    bodies: Vec<String>,
}

impl Moving {
    const COUNT: u64 = 5_000;

    /// Some of them are there when it returns.
    fn start(server: &Server) -> Moving {
        for queue in ["from", "to"] {
            server.ok(&["queue", "declare", queue]);
        }
        let bodies: Vec<String> = (0..Moving::COUNT).map(|n| n.to_string()).collect();
        publish(amqp(server), "", "from", &bodies.iter().map(String::as_str).collect::<Vec<_>>());
        let moving = Moving::of(&mut server.command(&["queue", "move", "from", "--to", "to", "--json"]), bodies);
        wait_for("the first message", || holds(server, "to").0 > 0);
        moving
    }

    fn of(command: &mut Command, bodies: Vec<String>) -> Moving {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Moving { child: Some(child), bodies }
    }

    fn interrupt(&self) {
        let child = self.child.as_ref().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(child), Signal::INT).unwrap();
    }

    /// Its exit code, and what it wrote.
    fn end(mut self) -> (Option<i32>, String) {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Ctrl-C: what was moved is reported, and nothing is lost or there twice.
#[test]
fn a_move_that_is_interrupted_ends_in_good_order() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &LISTEN);
    let moving = Moving::start(&server);
    moving.interrupt();
    let (code, reported) = moving.end();
    let reported = json(&reported);
    let (moved, left) = (reported["moved"].as_u64().unwrap(), holds(&server, "from"));
    assert_eq!((left, holds(&server, "to")), ((Moving::COUNT - moved, 0), (moved, 0)));
    let interrupted = reported["interrupted"].as_bool().unwrap();
    assert_eq!((code, moved < Moving::COUNT), (Some(i32::from(interrupted)), interrupted));
}

/// Ctrl-C while the last piece was under way was reported as an interruption, though nothing was left.
#[test]
fn a_move_that_was_done_when_it_was_interrupted_was_not_interrupted() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = polylogue();
    command.env("POLYLOGUE_SERVER", format!("http://{}", server.local_addr().unwrap()));
    let moving = Moving::of(command.args(["queue", "move", "from", "--to", "to", "--json"]), Vec::new());
    let answer = |body: &Json, meanwhile: &dyn Fn()| {
        let (mut client, _) = server.accept().unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let text = String::from_utf8(head).unwrap().to_lowercase();
        let len = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        client.read_exact(&mut vec![0; len]).unwrap();
        meanwhile();
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}",
            body.len()
        );
        client.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
    };
    let queue = json!({"name": "from", "type": "classic", "durable": true, "auto_delete": false, "exclusive": false,
        "arguments": {}, "ready": 2, "unsettled": 0, "delayed": 0, "consumers": 0});
    answer(&queue, &|| {});
    answer(&json!({"moved": 2, "stay": 0, "why": null, "done": false}), &|| moving.interrupt());
    let (code, reported) = moving.end();
    assert_eq!((code, &json(&reported)["interrupted"]), (Some(0), &json!(false)));
}

/// A message is in the one queue or in the other, or in both for a crash at the wrong moment.
#[test]
fn a_server_that_dies_while_it_moves_loses_nothing() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &LISTEN);
    let moving = Moving::start(&server);
    server.stop(Signal::KILL);
    let all: BTreeSet<String> = moving.bodies.iter().cloned().collect();
    moving.end();
    let server = Server::start(&dir.0, &LISTEN);
    let mut found = BTreeSet::new();
    for queue in ["from", "to"] {
        while holds(&server, queue).0 > 0 {
            let got = json(&server.ok(&["queue", "get", queue, "-n", "1000", "--remove", "--json"]));
            let all = got["messages"].as_array().unwrap();
            found.extend(all.iter().map(|message| message["body"].as_str().unwrap().to_owned()));
        }
    }
    assert_eq!(found, all);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &LISTEN);
    server.ok(&["queue", "declare", "q"]);
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let post = |path: &str, body: &str| {
        let request = agent.post(format!("http://{}/api/v1/vhosts/%2F/{path}", server.http));
        let mut answer = request.header("content-type", "application/json").send(body).unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), json(&text)["error"]["code"].as_str().unwrap().to_owned(), text)
    };
    for (path, body, status, code) in [
        ("queues", r#"{"name": "x", "colour": "red"}"#, 400, "invalid_request"),
        ("queues", r#"{"name": ""}"#, 400, "invalid_request"),
        ("queues", r#"{"name": "q", "durable": false}"#, 409, "precondition_failed"),
        ("queues/q/get", r#"{"count": 0}"#, 400, "invalid_request"),
        ("queues/q/move", r#"{"to": {"queue": "x", "exchange": "y"}, "limit": 1}"#, 400, "invalid_request"),
        ("queues/q/move", r#"{"to": {"routing_key": "k"}, "limit": 1}"#, 400, "invalid_request"),
        ("queues/q/move", r#"{"limit": 1001}"#, 400, "invalid_request"),
        ("queues/q/move", r#"{"limit": 1, "skip": 10001}"#, 400, "invalid_request"),
        ("exchanges", r#"{"name": "", "type": "direct"}"#, 403, "forbidden"),
        (
            "exchanges",
            r#"{"name": "x", "type": "direct", "arguments": {"alternate-exchange": 1}}"#,
            409,
            "precondition_failed",
        ),
        ("bindings", r#"{"source": "nope", "destination": "q"}"#, 404, "not_found"),
        ("bindings", r#"{"source": "", "destination": "q"}"#, 403, "forbidden"),
        ("bindings/delete", r#"{"source": "nope", "destination": "q"}"#, 404, "not_found"),
    ] {
        let (reported, named, text) = post(path, body);
        assert_eq!((reported, named.as_str()), (status, code), "{path} {body}: {text}");
    }
    let exchange = format!("http://{}/api/v1/vhosts/%2F/exchanges/amq.direct?if_empty=true", server.http);
    assert_eq!(agent.delete(exchange).call().unwrap().status(), 400, "an exchange is never empty");
    // An exclusive queue is accessible to no other client, not the operator's either.
    let mut client = Client::open(amqp(&server), "guest");
    let own = QueueDeclare { queue: "own".into(), exclusive: true, ..Default::default() };
    assert!(matches!(client.ask(1, own), Method::QueueDeclareOk(_)));
    refused(
        &server,
        &["queue", "purge", "own"],
        1,
        "cannot obtain exclusive access to locked queue 'own' in vhost '/'",
    );
    // Without a server there is a word of what to do.
    let no_user = done(polylogue().args(["queue", "list", "--server", "127.0.0.1:1"]));
    assert!(no_user.code == Some(1) && no_user.err.contains("polylogue serve"), "{}", no_user.err);
}
