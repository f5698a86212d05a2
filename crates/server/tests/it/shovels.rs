//! Shovels between real processes: nothing is lost, whichever process dies, and they end when they should.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

use crate::common;

use bytes::Bytes;
use common::TempDir;
use common::amqp::Client;
use common::broker::{Broker, listener, wait};
use polylogue_amqp::codec::*;
use rustix::process::Signal;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn number(message: &Json) -> u64 {
    let number = message["properties"]["headers"]["number"].as_u64().unwrap();
    assert_eq!(message["payload"], format!("message {number}"));
    assert_eq!(message["properties"]["delivery_mode"], 2);
    number
}

#[test]
fn whoever_dies_no_message_is_lost_and_the_first_of_each_come_in_order() {
    const MESSAGES: u64 = 10_000;
    let (mut from, mut to) = (Broker::start(), Broker::start());
    from.declare("from");
    from.publish("", "from", 0..MESSAGES);
    // A small prefetch, so that there is something left to kill.
    let shovel = json!({"src-uri": "amqp://", "src-queue": "from", "src-prefetch-count": 20, "dest-uri": to.uri(),
        "dest-queue": "to", "reconnect-delay": 0.1});
    from.set("s", &shovel);
    wait("some arrive", || to.count("to") >= 500);
    to.kill_and_begin();
    let before = to.count("to");
    assert!(before < MESSAGES, "all were there before anybody died");
    wait("it goes on", || to.count("to") > before || to.count("to") >= MESSAGES);
    from.kill_and_begin();
    wait("all are moved", || from.count("from") == 0 && to.count("to") >= MESSAGES);
    let numbers: Vec<u64> = to.take("to").iter().map(number).collect();
    let mut seen = BTreeSet::new();
    let first: Vec<u64> = numbers.into_iter().filter(|number| seen.insert(*number)).collect();
    assert_eq!(first, (0..MESSAGES).collect::<Vec<_>>());
    wait("it is known", || from.state("s")["state"] == "running");
    let state = from.state("s");
    let expected = json!({
        "name": "s", "vhost": "/", "type": "dynamic", "state": "running", "blocked_status": "running",
        "src_uri": "amqp://", "src_protocol": "amqp091", "src_queue": "from",
        "dest_uri": format!("amqp://{}", to.amqp), "dest_protocol": "amqp091", "dest_queue": "to",
        "remaining": "unlimited", "remaining_unacked": "unlimited",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&state[name], value, "{name} of {state}");
    }
    assert_eq!(from.metric("polylogue_shovels_running"), 1);
}

/// A stream gives out again what was acknowledged: who goes on has to know where.
#[test]
fn the_tail_of_a_stream_is_moved_though_the_destination_died_midway() {
    const MESSAGES: u64 = 5_000;
    let (from, mut to) = (Broker::start(), Broker::start());
    let stream = json!({"durable": true, "arguments": {"x-queue-type": "stream"}});
    assert_eq!(from.ask("PUT", "queues/%2F/from", Some(&stream)).0, 201);
    from.publish("", "from", 0..MESSAGES);
    for after in [json!(MESSAGES), json!("queue-length")] {
        let shovel = json!({"src-uri": "amqp://", "src-queue": "from", "src-consumer-args": {"x-stream-offset": "first"},
            "src-prefetch-count": 10, "src-delete-after": after, "dest-uri": to.uri(), "dest-queue": "to",
            "reconnect-delay": 0.1});
        from.set("s", &shovel);
        wait("some arrive", || to.count("to") >= 500);
        to.kill_and_begin();
        assert!(to.count("to") < MESSAGES, "all were there before anybody died");
        wait("it is done", || from.ask("GET", "parameters/shovel/%2F/s", None).0 == 404);
        let numbers: Vec<u64> = to.take("to").iter().map(number).collect();
        assert!(numbers.len() < MESSAGES as usize + 100, "{} messages: it began anew", numbers.len());
        let mut seen = BTreeSet::new();
        let first: Vec<u64> = numbers.into_iter().filter(|number| seen.insert(*number)).collect();
        assert!(first == (0..MESSAGES).collect::<Vec<_>>(), "{} of {MESSAGES} arrived", first.len());
    }
}

#[test]
fn a_shovel_that_is_to_end_deletes_itself_and_leaves_what_came_later() {
    let (from, to) = (Broker::start(), Broker::named("to"));
    from.declare("q");
    from.publish("", "q", 0..1_000);
    // The one that receives fetches, from a queue as long as it is now.
    let mut shovel = json!({"src-uri": from.uri(), "src-queue": "q", "src-delete-after": "queue-length",
        "dest-uri": "amqp://", "dest-queue": "q", "dest-add-forward-headers": true, "dest-add-timestamp-header": true});
    to.set("all", &shovel);
    wait("it is done", || to.ask("GET", "parameters/shovel/%2F/all", None).0 == 404);
    assert_eq!((from.count("q"), to.count("q")), (0, 1_000));
    assert_eq!(to.get("shovels"), json!([]));
    assert_eq!(to.metric("polylogue_shovel_messages_moved_total"), 1_000);
    let message = &to.take("q")[0];
    assert_eq!(number(message), 0);
    let headers = &message["properties"]["headers"];
    let been = json!([{"shovelled-by": "to", "shovel-type": "dynamic", "shovel-name": "all", "shovel-vhost": "/",
        "src-uri": format!("amqp://{}", from.amqp), "dest-uri": "amqp://", "src-queue": "q", "dest-queue": "q"}]);
    assert_eq!(headers["x-shovelled"], been);
    assert!(headers["x-shovelled-timestamp"].as_u64().unwrap() > 1_700_000_000);
    // A number of messages; without waiting for confirmations.
    from.publish("", "q", 0..30);
    for (mode, left) in [("on-confirm", 20), ("on-publish", 10)] {
        shovel["src-delete-after"] = json!(10);
        shovel["ack-mode"] = json!(mode);
        to.set("some", &shovel);
        wait("it is done", || to.ask("GET", "parameters/shovel/%2F/some", None).0 == 404);
        assert_eq!(from.count("q"), left, "{mode}");
    }
    // Nothing is waited for, and yet no more is taken than there was.
    shovel["src-delete-after"] = json!("queue-length");
    shovel["ack-mode"] = json!("no-ack");
    to.set("rest", &shovel);
    wait("it is done", || to.ask("GET", "parameters/shovel/%2F/rest", None).0 == 404);
    wait("they arrive", || to.count("q") == 30);
    let numbers: Vec<u64> = to.take("q").iter().map(number).collect();
    assert_eq!(numbers, (0..30).collect::<Vec<_>>());
}

/// Stands before a server and passes on what comes from it; what goes to it only up to a number of bytes, until that is over.
struct Strait {
    address: SocketAddr,
    opens: mpsc::Sender<()>,
}

impl Strait {
    fn before(server: SocketAddr, bytes: u64) -> Strait {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (opens, opened) = mpsc::channel();
        std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(server).unwrap();
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::io::copy(&mut (&client).take(bytes), &mut &server).unwrap();
            if opened.recv().is_ok() {
                let _ = std::io::copy(&mut &client, &mut &server);
            }
            let _ = server.shutdown(Shutdown::Write);
        });
        Strait { address, opens }
    }
}

/// What waits in memory is gone with the shovel: it is not sent, and the source still has it.
#[test]
fn a_message_was_published_when_it_was_written_and_not_before() {
    let (from, to) = (Broker::start(), Broker::start());
    from.declare("q");
    let mut client = Client::open(from.amqp, "guest");
    let body = vec![7; 12 << 20];
    client.say(1, BasicPublish { routing_key: "q".into(), ..Default::default() });
    client.header(1, body.len() as u64, &BasicProperties::default());
    body.chunks(100_000).for_each(|part| client.frame(3, 1, part));
    wait("it is there", || from.count("q") == 1);
    // Less than the message, and more than all that is said before.
    let strait = Strait::before(to.amqp, 100_000);
    let shovel = json!({"src-uri": "amqp://", "src-queue": "q", "src-delete-after": 1, "ack-mode": "on-publish",
        "dest-uri": format!("amqp://guest:guest@{}", strait.address), "dest-queue": "q"});
    from.set("s", &shovel);
    let mut state = Json::Null;
    let is_over = || from.ask("GET", "parameters/shovel/%2F/s", None).0 == 404;
    wait("it is on its way", || {
        state = from.state("s");
        state["remaining_unacked"] == 0 || is_over()
    });
    assert_eq!((&state["remaining"], from.count("q"), is_over()), (&json!(1), 1, false), "it is not sent yet: {state}");
    strait.opens.send(()).unwrap();
    wait("it is done", is_over);
    wait("it arrives", || to.count("q") == 1);
    assert_eq!(from.count("q"), 0);
}

/// A shovel that is deleted and set again is a new one, also where its absence was not seen.
#[test]
fn a_shovel_that_is_set_again_as_it_was_begins_anew() {
    let (from, to) = (Broker::start(), Broker::start());
    ["a", "b"].iter().for_each(|queue| from.declare(queue));
    from.publish("", "a", 0..10);
    let shovel = json!({"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "to"});
    from.set("a", &shovel);
    wait("it moves", || from.state("a")["forwarded"] == 10);
    // One that takes its time to end keeps the supervisor busy: its destination hears no more of it.
    from.publish("", "b", 0..5_000);
    let strait = Strait::before(to.amqp, 50_000);
    let mut slow = json!({"src-uri": "amqp://", "src-queue": "b", "src-delete-after": 10_000,
        "dest-uri": format!("amqp://guest:guest@{}", strait.address), "dest-queue": "to"});
    from.set("b", &slow);
    wait("it has stopped", || from.state("b")["remaining"].as_u64().is_some_and(|left| left < 10_000));
    slow["reconnect-delay"] = json!(0.1);
    from.set("b", &slow);
    assert_eq!(from.ask("DELETE", "parameters/shovel/%2F/a", None).0, 204);
    from.set("a", &shovel);
    wait("it has begun anew", || from.state("a")["forwarded"] == 0);
    from.publish("", "a", 10..20);
    wait("it moves again", || from.state("a")["forwarded"] == 10);
    let numbers: Vec<u64> = from.take("to").iter().map(number).collect();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
}

#[test]
fn an_exchange_can_be_moved_from_and_to() {
    let (from, to) = (Broker::start(), Broker::start());
    to.declare("q");
    let binding = json!({"routing_key": "a.*"});
    assert_eq!(to.ask("POST", "bindings/%2F/e/amq.topic/q/q", Some(&binding)).0, 201);
    let shovel = json!({"src-uri": ["amqp://guest:guest@127.0.0.1:1", from.uri()], "src-exchange": "amq.topic",
        "src-exchange-key": "#", "dest-uri": "amqp://", "dest-exchange": "amq.topic", "ack-mode": "no-ack",
        "dest-publish-properties": {"app_id": "moved"}});
    to.set("s", &shovel);
    wait("it runs", || to.state("s")["state"] == "running");
    assert_eq!(to.state("s")["src_exchange_key"], "#");
    assert_eq!(
        to.state("s")["src_uri"],
        format!("amqp://{}", from.amqp),
        "the second address, as the first one is no one's"
    );
    from.publish("amq.topic", "a.b", 0..10);
    from.publish("amq.topic", "b.b", 10..20);
    wait("they arrive", || to.count("q") == 10);
    let message = &to.take("q")[0];
    assert_eq!((&message["routing_key"], &message["exchange"]), (&json!("a.b"), &json!("amq.topic")));
    assert_eq!(message["properties"]["app_id"], "moved");
    assert_eq!(to.ask("DELETE", "shovels/vhost/%2F/s", None).0, 204);
    wait("its queue is gone", || from.get("queues") == json!([]));
}

/// While one end waits for an address that does not answer, the other one hears that the shovel lives, and is there for the next.
#[test]
fn an_address_that_does_not_answer_is_not_the_end_of_the_list() {
    let (from, to) = (Broker::start(), Broker::start());
    from.declare("from");
    from.publish("", "from", 0..10);
    // Connects, and says nothing for longer than the source waits for a heartbeat.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("amqp://{}/%2F?connection_timeout=4000", silent.local_addr().unwrap());
    let shovel = json!({"src-uri": format!("{}/%2F?heartbeat=1", from.uri()), "src-queue": "from",
        "dest-uri": [address, to.uri()], "dest-queue": "to", "reconnect-delay": 0.1});
    from.set("s", &shovel);
    wait("the second address is used", || to.count("to") == 10);
    assert_eq!(from.state("s")["state"], "running");
}

#[test]
fn a_wrong_password_shows_and_is_shown_to_nobody_and_deletion_is_the_end() {
    let (from, to) = (Broker::start(), Broker::start());
    from.declare("from");
    let wrong = format!("amqp://guest:verysecret@{}", to.amqp);
    let shovel = json!({"src-uri": "amqp://", "src-queue": "from", "dest-uri": wrong, "dest-queue": "to",
        "reconnect-delay": 0.2});
    from.set("s", &shovel);
    wait("it is refused", || from.state("s")["state"] == "terminated");
    let reason = from.state("s")["reason"].as_str().unwrap_or_default().to_owned();
    let begins = format!("needed a restart: destination: amqp://{}: the login is refused: ACCESS_REFUSED", to.amqp);
    assert!(reason.starts_with(&begins), "{reason}");
    wait("it tries again", || from.metric("polylogue_shovel_restarts_total") >= 3);
    for path in ["shovels", "shovels/%2F", "shovels/%2F/s", "shovels/vhost/%2F/s"] {
        let (status, answer) = from.ask("GET", path, None);
        assert!(status == 200 && !answer.to_string().contains("secret"), "{path}: {answer}");
    }
    // Another definition counts at once.
    from.set("s", &json!({"src-uri": "amqp://", "src-queue": "from", "dest-uri": to.uri(), "dest-queue": "to"}));
    wait("it runs", || from.state("s")["state"] == "running");
    from.publish("", "from", 0..100);
    wait("they arrive", || to.count("to") == 100);
    assert_eq!(from.ask("DELETE", "shovels/vhost/%2F/s/restart", None).0, 204);
    from.publish("", "from", 100..200);
    wait("it has begun anew", || to.count("to") == 200);
    assert_eq!(from.ask("DELETE", "parameters/shovel/%2F/s", None).0, 204);
    assert_eq!(from.get("shovels"), json!([]));
    wait("it has ended", || from.metric("polylogue_shovels") == 0);
    from.publish("", "from", 200..210);
    assert_eq!((from.count("from"), to.count("to")), (10, 200));
    assert_eq!(from.ask("DELETE", "shovels/vhost/%2F/s", None).0, 404);
    assert_eq!(from.ask("DELETE", "shovels/vhost/%2F/s/restart", None).0, 404);
}

/// Where the destination cannot take a message, it stays where it was.
#[test]
fn what_the_destination_refuses_stays_at_the_source() {
    let broker = Broker::start();
    broker.declare("from");
    let full = json!({"durable": true, "arguments": {"x-max-length": 5, "x-overflow": "reject-publish"}});
    assert_eq!(broker.ask("PUT", "queues/%2F/to", Some(&full)).0, 201);
    broker.publish("", "from", 0..20);
    let shovel = json!({"src-uri": "amqp://guest@/%2F", "src-queue": "from", "dest-uri": "amqp://guest:guest@/%2F",
        "dest-queue": "to", "reconnect-delay": 0.05});
    broker.set("s", &shovel);
    let mut numbers = Vec::new();
    while numbers.len() < 20 {
        wait("some are there", || broker.count("to") > 0);
        numbers.extend(broker.take("to").iter().map(number));
    }
    assert_eq!(numbers, (0..20).collect::<Vec<_>>(), "in their order, and none twice");
    // Nor does it vanish with a queue that a user deletes.
    wait("all are moved", || broker.count("from") == 0);
    assert_eq!(broker.ask("DELETE", "queues/%2F/to", None).0, 204);
    broker.publish("", "from", 20..23);
    wait("its queue is made again", || broker.count("to") == 3);
    // A user without permission gets an error.
    let other =
        json!({"value": {"src-uri": "amqp:///none", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}});
    let (status, answer) = broker.ask("PUT", "parameters/shovel/%2F/t", Some(&other));
    let reason = "Validation failed\n\nuser \"guest\" may not connect to vhost \"none\"\n";
    assert_eq!((status, &answer["reason"]), (400, &json!(reason)));
}

/// A message of many frames, and one that has nothing.
#[test]
fn messages_of_any_size_are_moved() {
    let (from, to) = (Broker::start(), Broker::start());
    from.declare("q");
    let mut client = Client::open(from.amqp, "guest");
    let bodies = [Bytes::new(), Bytes::from(vec![7; 1_000_000]), Bytes::from_static(b"x")];
    for body in &bodies {
        client.say(1, BasicPublish { routing_key: "q".into(), ..Default::default() });
        client.header(1, body.len() as u64, &BasicProperties::default());
        body.chunks(100_000).for_each(|part| client.frame(3, 1, part));
    }
    wait("they are there", || from.count("q") == 3);
    let shovel = json!({"src-uri": "amqp://", "src-queue": "q", "dest-uri": format!("{}/%2F?frame_max=8192&heartbeat=5", to.uri()),
        "dest-queue": "q"});
    from.set("s", &shovel);
    wait("they arrive", || to.count("q") == 3);
    let sizes: Vec<u64> = to.take("q").iter().map(|message| message["payload_bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [0, 1_000_000, 1]);
}

/// Connections inside of the process are ended like all others.
#[test]
fn a_server_with_shovels_stops_in_good_order() {
    let mut broker = Broker::start();
    broker.declare("from");
    let shovel = json!({"src-uri": "amqp://", "src-queue": "from", "dest-uri": "amqp://", "dest-queue": "to",
        "reconnect-delay": 0.01});
    broker.set("s", &shovel);
    broker.publish("", "from", 0..10);
    // What the source has not heard of before the stop would come twice, as it may.
    wait("they arrive", || broker.count("to") == 10 && broker.count("from") == 0);
    let connections = broker.get("connections");
    let names: Vec<_> =
        connections.as_array().unwrap().iter().map(|of| &of["client_properties"]["connection_name"]).collect();
    assert_eq!(names, ["Shovel s", "Shovel s"]);
    let since = Instant::now();
    assert_eq!(broker.server.take().unwrap().stop(Signal::TERM), Some(0));
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    broker.begin();
    broker.publish("", "from", 10..20);
    wait("it goes on", || broker.count("to") == 20);
}

#[test]
fn a_shovel_speaks_tls_with_whom_it_can_verify() {
    let files = TempDir::new();
    let path = |name: &str| files.join(name).display().to_string();
    for name in ["server", "stranger"] {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(path(&format!("{name}.pem")), made.cert.pem()).unwrap();
        std::fs::write(path(&format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
    }
    let options = [format!("tls.certificate={}", path("server.pem")), format!("tls.key={}", path("server.key"))];
    let mut more = vec!["--listen".to_owned(), "amqp+tls=127.0.0.1:0".to_owned()];
    options.into_iter().for_each(|option| more.extend(["--set".to_owned(), option]));
    let (from, to) = (Broker::start(), Broker::start_with(more));
    let port = listener(to.server.as_ref().unwrap(), "amqp+tls").port();
    from.declare("from");
    from.publish("", "from", 0..100);
    let shovel = |ca: &str| {
        let uri = format!("amqps://guest:guest@localhost:{port}?cacertfile={}", path(ca));
        json!({"src-uri": "amqp://", "src-queue": "from", "dest-uri": uri, "dest-queue": "to", "reconnect-delay": 0.1})
    };
    for (ca, why) in [("stranger.pem", "TLS: "), ("nothing.pem", "cacertfile, certfile or keyfile cannot be used")] {
        from.set("s", &shovel(ca));
        wait("it says why not", || from.state("s")["reason"].as_str().is_some_and(|reason| reason.contains(why)));
        assert_eq!((from.count("from"), to.count("to")), (100, 0), "{ca}");
    }
    from.set("s", &shovel("server.pem"));
    wait("all are moved", || to.count("to") == 100 && from.count("from") == 0);
    assert_eq!(number(&to.take("to")[0]), 0);
}
