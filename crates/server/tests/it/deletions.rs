//! How queues and exchanges go while others use them: over a socket, of the real binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

use crate::common;

use common::amqp::Client;
use common::{Server, TempDir};
use polylogue_amqp::codec::*;
use std::net::SocketAddr;

const MISSING: &str = "channel 404 50.10 NOT_FOUND - no queue 'q' in vhost '/'";
/// How often two clients run against each other.
const ROUNDS: usize = 200;

fn start(dir: &TempDir) -> (Server, SocketAddr) {
    let server = Server::start(&dir.0, &["--listen", "amqp=127.0.0.1:0"]);
    let at = server.lines.iter().find_map(|line| line.strip_prefix("amqp listening on ")?.parse().ok()).unwrap();
    (server, at)
}

fn declare(client: &mut Client, auto_delete: bool) {
    let declare = QueueDeclare { queue: "q".into(), auto_delete, ..Default::default() };
    assert!(matches!(client.ask(1, declare), Method::QueueDeclareOk(_)));
}

fn consume(queue: &'static str, tag: &'static str) -> BasicConsume {
    BasicConsume { queue: queue.into(), consumer_tag: tag.into(), ..Default::default() }
}

fn cancel(client: &mut Client, channel: u16, tag: &'static str) {
    let cancelled = client.ask(channel, BasicCancel { consumer_tag: tag.into(), nowait: false });
    assert!(matches!(cancelled, Method::BasicCancelOk(_)), "{cancelled:?}");
}

fn open_channel(client: &mut Client, channel: u16) {
    assert!(matches!(client.ask(channel, ChannelOpen::default()), Method::ChannelOpenOk(_)));
}

fn close_channel(client: &mut Client, channel: u16) {
    assert!(matches!(client.ask(channel, ChannelClose::default()), Method::ChannelCloseOk(_)));
}

/// Asks for the queue on channel 1, passively, and hears of it: how many messages and consumers, or why not.
fn look(client: &mut Client) -> Result<(u32, u32), String> {
    client.say(1, QueueDeclare { queue: "q".into(), passive: true, ..Default::default() });
    match client.method() {
        Some((1, Method::QueueDeclareOk(ok))) => Ok((ok.message_count, ok.consumer_count)),
        Some((1, Method::ChannelClose(close))) => {
            client.say(1, ChannelCloseOk {});
            open_channel(client, 1);
            let text = String::from_utf8_lossy(&close.reply_text).into_owned();
            Err(format!("channel {} {}.{} {text}", close.reply_code, close.class_id, close.method_id))
        }
        other => panic!("{other:?}"),
    }
}

fn is_gone(client: &mut Client) {
    assert_eq!(look(client), Err(MISSING.to_owned()));
}

#[test]
fn an_auto_delete_queue_is_gone_when_its_last_consumer_is() {
    let dir = TempDir::new();
    let (_server, at) = start(&dir);
    let mut client = Client::open(at, "guest");
    let mut other = Client::open(at, "guest");
    // Not before the first consumer, however it is used.
    declare(&mut client, true);
    open_channel(&mut client, 2);
    let got = client.ask(2, BasicGet { queue: "q".into(), ..Default::default() });
    assert!(matches!(got, Method::BasicGetEmpty(_)), "{got:?}");
    close_channel(&mut client, 2);
    assert_eq!(look(&mut client), Ok((0, 0)));
    // One of two leaves, and the last one with a message that it has not acknowledged.
    open_channel(&mut client, 2);
    assert!(matches!(client.ask(2, consume("q", "a")), Method::BasicConsumeOk(_)));
    assert!(matches!(other.ask(1, consume("q", "b")), Method::BasicConsumeOk(_)));
    other.say(1, BasicCancel { consumer_tag: "none".into(), nowait: false });
    assert!(matches!(other.method(), Some((1, Method::BasicCancelOk(_)))));
    cancel(&mut other, 1, "b");
    assert_eq!(look(&mut client), Ok((0, 1)));
    client.publish("", "q", &BasicProperties::default(), b"m");
    assert!(matches!(client.method(), Some((2, Method::BasicDeliver(_)))));
    cancel(&mut client, 2, "a");
    is_gone(&mut client);
    // What it held is no loss.
    client.say(2, BasicAck { delivery_tag: 1, multiple: false });
    assert!(matches!(client.ask(2, BasicQos::default()), Method::BasicQosOk(_)));
    // With its channel, and with its connection.
    declare(&mut client, true);
    assert!(matches!(client.ask(2, consume("q", "a")), Method::BasicConsumeOk(_)));
    close_channel(&mut client, 2);
    is_gone(&mut client);
    declare(&mut client, true);
    assert!(matches!(other.ask(1, consume("q", "a")), Method::BasicConsumeOk(_)));
    assert!(matches!(other.ask(0, ConnectionClose::default()), Method::ConnectionCloseOk(_)));
    is_gone(&mut client);
}

/// The answer of one client whose request raced the other's.
#[derive(PartialEq, Debug)]
enum Deletion {
    Done,
    Refused(u16, String),
}

fn reported(client: &mut Client, is_done: fn(&Method) -> bool) -> Deletion {
    match client.method() {
        Some((1, method)) if is_done(&method) => Deletion::Done,
        Some((1, Method::ChannelClose(close))) => {
            client.say(1, ChannelCloseOk {});
            open_channel(client, 1);
            Deletion::Refused(close.reply_code, String::from_utf8_lossy(&close.reply_text).into_owned())
        }
        other => panic!("{other:?}"),
    }
}

/// A consumer that came between the look at its queue and the deletion got its consume-ok, and its queue was deleted as unused.
#[test]
fn a_queue_is_unused_or_consumed_and_never_both() {
    let dir = TempDir::new();
    let (_server, at) = start(&dir);
    let [mut deletes, mut consumes] = [Client::open(at, "guest"), Client::open(at, "guest")];
    for round in 0..ROUNDS {
        declare(&mut deletes, false);
        let delete = QueueDelete { queue: "q".into(), if_unused: true, ..Default::default() };
        if round % 2 == 0 {
            deletes.say(1, delete);
            consumes.say(1, consume("q", "c"));
        } else {
            consumes.say(1, consume("q", "c"));
            deletes.say(1, delete);
        }
        let deleted = reported(&mut deletes, |method| matches!(method, Method::QueueDeleteOk(_)));
        let consumed = reported(&mut consumes, |method| matches!(method, Method::BasicConsumeOk(_)));
        let missing = Deletion::Refused(404, "NOT_FOUND - no queue 'q' in vhost '/'".into());
        let used = Deletion::Refused(406, "PRECONDITION_FAILED - queue 'q' in vhost '/' in use".into());
        match (deleted, consumed) {
            (Deletion::Done, consumed) => assert_eq!(consumed, missing, "round {round}"),
            (deleted, Deletion::Done) => {
                assert_eq!(deleted, used, "round {round}");
                cancel(&mut consumes, 1, "c");
            }
            both => panic!("round {round}: {both:?}"),
        }
    }
}

/// The same for auto-delete: a consumer that got its consume-ok consumes until it leaves.
#[test]
fn an_auto_delete_queue_does_not_go_with_a_consumer() {
    let dir = TempDir::new();
    let (_server, at) = start(&dir);
    let [mut leaves, mut comes] = [Client::open(at, "guest"), Client::open(at, "guest")];
    for round in 0..ROUNDS {
        declare(&mut leaves, true);
        assert!(matches!(leaves.ask(1, consume("q", "l")), Method::BasicConsumeOk(_)));
        leaves.say(1, BasicCancel { consumer_tag: "l".into(), nowait: false });
        comes.say(1, consume("q", "c"));
        let came = reported(&mut comes, |method| matches!(method, Method::BasicConsumeOk(_)));
        assert_eq!(reported(&mut leaves, |method| matches!(method, Method::BasicCancelOk(_))), Deletion::Done);
        if came == Deletion::Done {
            assert_eq!(look(&mut leaves), Ok((0, 1)), "round {round}");
            cancel(&mut comes, 1, "c");
        } else {
            assert_eq!(came, Deletion::Refused(404, "NOT_FOUND - no queue 'q' in vhost '/'".into()), "round {round}");
        }
        is_gone(&mut leaves);
    }
}

#[test]
fn an_exchange_is_unused_or_bound_and_never_both() {
    let dir = TempDir::new();
    let (_server, at) = start(&dir);
    let [mut deletes, mut binds] = [Client::open(at, "guest"), Client::open(at, "guest")];
    declare(&mut binds, false);
    for round in 0..ROUNDS {
        let declare = ExchangeDeclare { exchange: "x".into(), kind: "fanout".into(), ..Default::default() };
        assert!(matches!(deletes.ask(1, declare), Method::ExchangeDeclareOk(_)));
        deletes.say(1, ExchangeDelete { exchange: "x".into(), if_unused: true, ..Default::default() });
        binds.say(1, QueueBind { queue: "q".into(), exchange: "x".into(), ..Default::default() });
        let deleted = reported(&mut deletes, |method| matches!(method, Method::ExchangeDeleteOk(_)));
        let bound = reported(&mut binds, |method| matches!(method, Method::QueueBindOk(_)));
        match (deleted, bound) {
            (Deletion::Done, bound) => {
                assert_eq!(bound, Deletion::Refused(404, "NOT_FOUND - no exchange 'x' in vhost '/'".into()));
            }
            (deleted, Deletion::Done) => {
                let used = "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use";
                assert_eq!(deleted, Deletion::Refused(406, used.into()), "round {round}");
                let unbind = QueueUnbind { queue: "q".into(), exchange: "x".into(), ..Default::default() };
                assert!(matches!(binds.ask(1, unbind), Method::QueueUnbindOk(_)));
            }
            both => panic!("round {round}: {both:?}"),
        }
    }
}

#[test]
fn a_get_and_what_else_runs_against_a_deletion_is_told_that_there_is_no_such_queue() {
    let dir = TempDir::new();
    let (_server, at) = start(&dir);
    let [mut deletes, mut gets] = [Client::open(at, "guest"), Client::open(at, "guest")];
    for round in 0..ROUNDS {
        declare(&mut deletes, false);
        deletes.publish("", "q", &BasicProperties::default(), b"m");
        // It takes from the same queue before and while it goes.
        let get = || BasicGet { queue: "q".into(), no_ack: round % 2 == 0, ..Default::default() };
        gets.say(1, get());
        deletes.say(1, QueueDelete { queue: "q".into(), ..Default::default() });
        let mut last = Deletion::Done;
        while last == Deletion::Done {
            last = reported(&mut gets, |method| matches!(method, Method::BasicGetOk(_) | Method::BasicGetEmpty(_)));
            if last == Deletion::Done {
                match round % 3 {
                    0 => gets.say(1, QueueDeclare { queue: "q".into(), passive: true, ..Default::default() }),
                    1 => gets.say(1, QueuePurge { queue: "q".into(), ..Default::default() }),
                    _ => {}
                }
                if round % 3 < 2 {
                    let is_done =
                        |method: &Method| matches!(method, Method::QueueDeclareOk(_) | Method::QueuePurgeOk(_));
                    last = reported(&mut gets, is_done);
                }
            }
            if last == Deletion::Done {
                gets.say(1, get());
            }
        }
        assert_eq!(last, Deletion::Refused(404, "NOT_FOUND - no queue 'q' in vhost '/'".into()), "round {round}");
        assert_eq!(reported(&mut deletes, |method| matches!(method, Method::QueueDeleteOk(_))), Deletion::Done);
    }
}
