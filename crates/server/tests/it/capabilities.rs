//! What the server tells AMQP clients that it can do, done over a socket of the real binary: each capability has a test, and each test a
//! capability.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::amqp::{Client, start_ok};
use common::rabbit::Rabbit;
use polylogue_amqp::codec::*;
use std::collections::BTreeSet;

/// The name of a capability, and what would fail without it.
type Capability = (&'static str, fn(&Rabbit));

const CAPABILITIES: &[Capability] = &[
    ("publisher_confirms", publisher_confirms),
    ("exchange_exchange_bindings", exchange_exchange_bindings),
    ("basic.nack", basic_nack),
    ("consumer_cancel_notify", consumer_cancel_notify),
    ("connection.blocked", connection_blocked),
    ("consumer_priorities", consumer_priorities),
    ("authentication_failure_close", authentication_failure_close),
    ("per_consumer_qos", per_consumer_qos),
    ("direct_reply_to", direct_reply_to),
];

#[test]
fn what_clients_are_told_is_what_is_tested() {
    let rabbit = Rabbit::start();
    let mut client = Client::connect(rabbit.amqp);
    client.raw(&PROTOCOL_HEADER);
    let Some((0, Method::ConnectionStart(start))) = client.method() else { panic!("no beginning") };
    let reported = start.server_properties.get("capabilities").unwrap();
    let reported: BTreeSet<String> = reported
        .fields()
        .map(|field| {
            assert_eq!(field.value, Value::Bool(true), "{:?}", field.name);
            String::from_utf8(field.name.to_vec()).unwrap()
        })
        .collect();
    assert_eq!(reported, CAPABILITIES.iter().map(|(name, _)| (*name).to_owned()).collect());
}

#[test]
fn what_clients_are_told_is_so() {
    let rabbit = Rabbit::start();
    for (name, does) in CAPABILITIES {
        // What panics says what it was about.
        println!("{name}");
        does(&rabbit);
    }
}

fn props() -> BasicProperties {
    BasicProperties::default()
}

/// A client of a queue that is there for it alone.
fn with_queue(rabbit: &Rabbit, queue: &'static str) -> Client {
    let mut client = Client::open(rabbit.amqp, "guest");
    let declare = QueueDeclare { queue: queue.into(), ..Default::default() };
    assert!(matches!(client.ask(1, declare), Method::QueueDeclareOk(_)));
    client
}

/// The messages of a queue that were not delivered.
fn ready(client: &mut Client, queue: &'static str) -> u32 {
    match client.ask(1, QueueDeclare { queue: queue.into(), passive: true, ..Default::default() }) {
        Method::QueueDeclareOk(ok) => ok.message_count,
        other => panic!("{other:?}"),
    }
}

fn consume(client: &mut Client, queue: &'static str, tag: &'static str, arguments: TableBuilder) {
    let (queue, consumer_tag) = (queue.into(), tag.into());
    let consume = BasicConsume { queue, consumer_tag, arguments: arguments.build(), ..Default::default() };
    assert!(matches!(client.ask(1, consume), Method::BasicConsumeOk(_)));
}

/// Which consumer the next message goes to, and its body.
fn delivered(client: &mut Client) -> (String, Vec<u8>) {
    match client.method() {
        Some((1, Method::BasicDeliver(deliver))) => {
            (String::from_utf8(deliver.consumer_tag.to_vec()).unwrap(), client.message().1)
        }
        other => panic!("{other:?}"),
    }
}

fn confirming(client: &mut Client) {
    assert!(matches!(client.ask(1, ConfirmSelect::default()), Method::ConfirmSelectOk(_)));
}

fn publisher_confirms(rabbit: &Rabbit) {
    let mut client = with_queue(rabbit, "confirmed");
    confirming(&mut client);
    for tag in 1..=3 {
        client.publish("", "confirmed", &props(), b"x");
        assert_eq!(client.method(), Some((1, BasicAck { delivery_tag: tag, multiple: false }.into())));
    }
    assert_eq!(ready(&mut client, "confirmed"), 3);
}

fn exchange_exchange_bindings(rabbit: &Rabbit) {
    let mut client = with_queue(rabbit, "bound");
    let bind = QueueBind {
        queue: "bound".into(),
        exchange: "amq.direct".into(),
        routing_key: "k".into(),
        ..Default::default()
    };
    assert!(matches!(client.ask(1, bind), Method::QueueBindOk(_)));
    let (source, destination) = (ShortStr::from("amq.fanout"), ShortStr::from("amq.direct"));
    let bind = ExchangeBind { source: source.clone(), destination: destination.clone(), ..Default::default() };
    assert!(matches!(client.ask(1, bind), Method::ExchangeBindOk(_)));
    confirming(&mut client);
    client.publish("amq.fanout", "k", &props(), b"through");
    assert!(matches!(client.method(), Some((1, Method::BasicAck(_)))));
    assert_eq!(client.take("bound").unwrap().1, b"through");
    let unbind = ExchangeUnbind { source, destination, ..Default::default() };
    assert!(matches!(client.ask(1, unbind), Method::ExchangeUnbindOk(_)));
    client.publish("amq.fanout", "k", &props(), b"nowhere");
    assert!(matches!(client.method(), Some((1, Method::BasicAck(_)))));
    assert!(client.take("bound").is_none());
}

fn basic_nack(rabbit: &Rabbit) {
    let mut client = with_queue(rabbit, "refused");
    confirming(&mut client);
    for body in [b"1", b"2"] {
        assert!(client.is_accepted("refused", body));
    }
    for _ in 0..2 {
        let got = client.ask(1, BasicGet { queue: "refused".into(), ..Default::default() });
        assert!(matches!(got, Method::BasicGetOk(_)));
        client.message();
    }
    assert_eq!(ready(&mut client, "refused"), 0);
    // Several at once, which `basic.reject` cannot.
    client.say(1, BasicNack { delivery_tag: 2, multiple: true, requeue: true });
    assert_eq!(client.take("refused").unwrap().1, b"1");
    assert_eq!(client.take("refused").unwrap().1, b"2");
}

fn consumer_cancel_notify(rabbit: &Rabbit) {
    let mut client = with_queue(rabbit, "deleted");
    consume(&mut client, "deleted", "reported", TableBuilder::new());
    let mut other = Client::open(rabbit.amqp, "guest");
    let delete = QueueDelete { queue: "deleted".into(), ..Default::default() };
    assert!(matches!(other.ask(1, delete), Method::QueueDeleteOk(_)));
    let cancel = BasicCancel { consumer_tag: "reported".into(), nowait: true };
    assert_eq!(client.method(), Some((1, cancel.into())));
}

/// That it is unblocked when there is room again is in `crates/testkit/tests/system/alarms.rs`, where disks run full on any machine.
fn connection_blocked(_: &Rabbit) {
    const MOST_BYTES: u64 = 1 << 40;
    let rabbit = Rabbit::start_with(&["--set", "log.disk_free_limit_bytes=1TiB"]);
    if rabbit.get("nodes")[0]["disk_free"].as_u64().unwrap() > MOST_BYTES {
        return;
    }
    let mut client = Client::open(rabbit.amqp, "guest");
    client.publish("", "nowhere", &props(), b"x");
    match client.method() {
        Some((0, Method::ConnectionBlocked(blocked))) => assert_eq!(&blocked.reason[..], b"low on disk"),
        other => panic!("{other:?}"),
    }
}

fn consumer_priorities(rabbit: &Rabbit) {
    let mut client = with_queue(rabbit, "ranked");
    let priority = |priority| TableBuilder::new().with("x-priority", Value::I32(priority));
    consume(&mut client, "ranked", "low", priority(-1));
    consume(&mut client, "ranked", "high", priority(1));
    for _ in 0..4 {
        client.publish("", "ranked", &props(), b"x");
        assert_eq!(delivered(&mut client).0, "high");
    }
}

fn authentication_failure_close(rabbit: &Rabbit) {
    let mut client = Client::started(rabbit.amqp);
    client.say(0, start_ok("guest", "wrong"));
    match client.method() {
        Some((0, Method::ConnectionClose(close))) => assert_eq!(close.reply_code, 403),
        other => panic!("{other:?}"),
    }
}

fn per_consumer_qos(rabbit: &Rabbit) {
    let mut client = with_queue(rabbit, "shared");
    let qos = BasicQos { prefetch_count: 1, global: false, ..Default::default() };
    assert!(matches!(client.ask(1, qos), Method::BasicQosOk(_)));
    consume(&mut client, "shared", "one", TableBuilder::new());
    consume(&mut client, "shared", "two", TableBuilder::new());
    for _ in 0..3 {
        client.publish("", "shared", &props(), b"x");
    }
    // Each has its own: one together would let one message through.
    let consumers: BTreeSet<String> = (0..2).map(|_| delivered(&mut client).0).collect();
    assert_eq!(consumers, BTreeSet::from(["one".to_owned(), "two".to_owned()]));
    let mut other = Client::open(rabbit.amqp, "guest");
    assert_eq!(ready(&mut other, "shared"), 1);
}

fn direct_reply_to(rabbit: &Rabbit) {
    let mut server = with_queue(rabbit, "calls");
    let mut client = Client::open(rabbit.amqp, "guest");
    let queue = ShortStr::from("amq.rabbitmq.reply-to");
    let replies = BasicConsume { queue: queue.clone(), consumer_tag: "r".into(), no_ack: true, ..Default::default() };
    assert!(matches!(client.ask(1, replies), Method::BasicConsumeOk(_)));
    confirming(&mut client);
    client.publish("", "calls", &BasicProperties { reply_to: Some(queue), ..props() }, b"call");
    assert!(matches!(client.method(), Some((1, Method::BasicAck(_)))));
    let (call, _) = server.take("calls").unwrap();
    let to = String::from_utf8(call.reply_to.unwrap().to_vec()).unwrap();
    assert!(to.starts_with("amq.rabbitmq.reply-to."), "{to}");
    server.publish("", &to, &props(), b"answer");
    assert_eq!(delivered(&mut client), ("r".to_owned(), b"answer".to_vec()));
}
