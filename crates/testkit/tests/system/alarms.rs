//! RabbitMQ's clients while the disk has no room, on the real binary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes and files")]

use crate::common;

use common::Place;
use common::amqp::{Amqp, Came};
use polylogue_amqp::codec::Method;
use polylogue_faultfs::Injector;
use polylogue_testkit::{Server, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const SETTINGS: &[&str] =
    &["log.journal_file_bytes=4MiB", "log.checkpoint_bytes_max=1MiB", "log.disk_reserve_bytes=16MiB"];
/// How long something may take. Seconds.
const SECS: u64 = 60;
/// How long something that must not come is waited for.
const SILENCE: Duration = Duration::from_secs(1);

fn start(place: &Place) -> (Server, Injector) {
    let mut command = place.serve(SETTINGS);
    command.args(["--listen", "amqp=127.0.0.1:0"]);
    let injector = Injector::new(&place.watched(), place.root.path()).unwrap();
    injector.preload_without_log(&mut command);
    (place.start(command).unwrap(), injector)
}

fn connect(server: &Server) -> Amqp {
    Amqp::connect(server.amqp().unwrap()).unwrap()
}

/// A metric's value.
fn metric(server: &Server, name: &str) -> f64 {
    let mut stream = TcpStream::connect(server.http().unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    line.parse().unwrap()
}

fn method(amqp: &mut Amqp) -> Method {
    match amqp.wait(Duration::from_secs(SECS)).unwrap() {
        Some(Came::Method(method)) => method,
        other => panic!("{other:?}"),
    }
}

/// The tag of a message with this body, which is next.
fn message(amqp: &mut Amqp, expected: &[u8]) -> u64 {
    match amqp.wait(Duration::from_secs(SECS)).unwrap() {
        Some(Came::Message(message)) if message.body == expected => message.tag,
        other => panic!("{other:?}"),
    }
}

/// Publishes until it is blocked, and nothing of that is refused. Returns how many messages those were.
fn publish_until_blocked(publisher: &mut Amqp) -> u64 {
    let mut sent = 0;
    let blocked = wait_until("connection.blocked", SECS, || {
        publisher.publish("q", b"more");
        publisher.flush()?;
        sent += 1;
        loop {
            match publisher.wait(Duration::from_millis(1))? {
                Some(Came::Method(Method::ConnectionBlocked(blocked))) => return Ok(Some(blocked)),
                Some(Came::Method(Method::BasicAck(_))) => {}
                None => return Ok(None),
                other => return Err(format!("{other:?}")),
            }
        }
    });
    assert_eq!(&blocked.unwrap().reason[..], b"low on disk");
    sent
}

#[test]
fn while_the_disk_is_full_publishers_wait_and_consumers_go_on() {
    let place = Place::new("alarm");
    let (server, injector) = start(&place);
    let (mut publisher, mut consumer, mut silent) = (connect(&server), connect(&server), connect(&server));
    publisher.declare("q", &[]).unwrap();
    publisher.confirm().unwrap();
    for (body, tag) in [(&b"first"[..], 1), (b"more", 2)] {
        publisher.publish("q", body);
        publisher.flush().unwrap();
        assert!(matches!(method(&mut publisher), Method::BasicAck(ack) if ack.delivery_tag == tag));
    }
    consumer.consume("q", 1).unwrap();
    let first = message(&mut consumer, b"first");
    assert_eq!((metric(&server, "polylogue_disk_alarm"), metric(&server, "polylogue_amqp_connections")), (0.0, 3.0));

    injector.set(&["free_bytes=1000000"]).unwrap();
    let mut sent = 2 + publish_until_blocked(&mut publisher);
    assert_eq!(metric(&server, "polylogue_disk_alarm"), 1.0);
    publisher.publish("q", b"behind");
    publisher.flush().unwrap();
    sent += 1;
    while let Some(came) = publisher.wait(SILENCE).unwrap() {
        assert!(matches!(&came, Came::Method(Method::BasicAck(ack)) if ack.delivery_tag < sent), "{came:?}");
    }
    // One that has not published is blocked when it does, and may do all else before.
    silent.declare("other", &[("x-queue-type", "quorum")]).unwrap();
    silent.publish("other", b"late");
    silent.flush().unwrap();
    assert!(matches!(method(&mut silent), Method::ConnectionBlocked(_)));
    // So is one that comes now.
    let mut late = connect(&server);
    late.declare("other", &[("x-queue-type", "quorum")]).unwrap();
    late.publish("other", b"last");
    late.flush().unwrap();
    assert!(matches!(method(&mut late), Method::ConnectionBlocked(_)));
    consumer.ack(first);
    consumer.flush().unwrap();
    let mut tag = message(&mut consumer, b"more");

    injector.set(&[]).unwrap();
    assert!(matches!(method(&mut silent), Method::ConnectionUnblocked(_)));
    assert!(matches!(method(&mut late), Method::ConnectionUnblocked(_)));
    let mut unblocked = false;
    loop {
        match method(&mut publisher) {
            Method::ConnectionUnblocked(_) => unblocked = true,
            Method::BasicAck(ack) if ack.delivery_tag == sent => break,
            Method::BasicAck(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(unblocked, "nothing was confirmed of what came behind before the end of it");
    assert_eq!(metric(&server, "polylogue_disk_alarm"), 0.0);
    while tag < sent {
        consumer.ack(tag);
        consumer.flush().unwrap();
        tag = message(&mut consumer, if tag + 1 < sent { b"more" } else { b"behind" });
    }
    server.terminate().unwrap();

    // What was acknowledged meanwhile is gone, what was not comes again.
    let (server, _injector) = start(&place);
    let mut consumer = connect(&server);
    consumer.consume("q", 0).unwrap();
    message(&mut consumer, b"behind");
    assert!(consumer.wait(SILENCE).unwrap().is_none());
    server.terminate().unwrap();
}

#[test]
fn while_too_much_memory_is_taken_publishers_wait_and_consumers_go_on() {
    let place = Place::new("memory-alarm");
    let command = || {
        let mut command = place.serve(SETTINGS);
        command.args(["--listen", "amqp=127.0.0.1:0"]);
        command
    };
    let server = place.start(command()).unwrap();
    let mut publisher = connect(&server);
    publisher.declare("q", &[("x-queue-type", "quorum")]).unwrap();
    publisher.confirm().unwrap();
    publisher.publish("q", b"first");
    publisher.flush().unwrap();
    assert!(matches!(method(&mut publisher), Method::BasicAck(_)));
    assert_eq!(metric(&server, "polylogue_memory_alarm"), 0.0);
    assert!(metric(&server, "polylogue_memory_bytes") < metric(&server, "polylogue_memory_limit_bytes"));
    server.terminate().unwrap();

    // No process takes so little.
    let mut short = command();
    short.args(["--set", "server.memory_limit_bytes=64KiB"]);
    let server = place.start(short).unwrap();
    wait_until("the alarm", SECS, || Ok((metric(&server, "polylogue_memory_alarm") == 1.0).then_some(()))).unwrap();
    let (mut publisher, mut consumer) = (connect(&server), connect(&server));
    publisher.publish("q", b"second");
    publisher.flush().unwrap();
    assert!(
        matches!(method(&mut publisher), Method::ConnectionBlocked(blocked) if &blocked.reason[..] == b"low on memory")
    );
    consumer.consume("q", 0).unwrap();
    let first = message(&mut consumer, b"first");
    consumer.ack(first);
    consumer.flush().unwrap();
    server.terminate().unwrap();
}
