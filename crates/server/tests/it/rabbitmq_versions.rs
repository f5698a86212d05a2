//! The advertised version and the rules agree: those of RabbitMQ 4.2, or of 4.3 where `amqp.version` says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common;

use common::amqp::{Client, start_ok};
use common::rabbit::Rabbit;
use polylogue_amqp::codec::*;
use serde_json::json;

const OLDER: &str = "4.2.0";
const NEWER: &str = "4.3.0";

fn start(version: &str) -> (Rabbit, Client) {
    start_with(version, &[])
}

fn start_with(version: &str, more: &[&str]) -> (Rabbit, Client) {
    let version = format!("amqp.version={version}");
    let rabbit = Rabbit::start_with(&[&["--set", &version], more].concat());
    let mut client = Client::open(rabbit.amqp, "guest");
    assert!(matches!(client.ask(1, ConfirmSelect::default()), Method::ConfirmSelectOk(_)));
    (rabbit, client)
}

fn declare(client: &mut Client, queue: &'static str, arguments: TableBuilder) {
    let declare =
        QueueDeclare { queue: queue.into(), durable: true, arguments: arguments.build(), ..Default::default() };
    assert!(matches!(client.ask(1, declare), Method::QueueDeclareOk(_)));
}

fn quorum() -> TableBuilder {
    TableBuilder::new().with_text("x-queue-type", "quorum")
}

fn publish(client: &mut Client, queue: &str, body: &[u8], priority: Option<u8>) {
    let properties = BasicProperties { priority, ..BasicProperties::default() };
    client.publish("", queue, &properties, body);
    assert!(matches!(client.method(), Some((1, Method::BasicAck(_)))));
}

/// How a message comes back.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Back {
    Reject,
    Nack,
    Recover,
    ChannelClose,
}

/// Takes a message on a channel of its own and gives it back; its headers, `None` when there is none.
fn come_back(client: &mut Client, queue: &'static str, how: Back) -> Option<Table> {
    assert!(matches!(client.ask(2, ChannelOpen::default()), Method::ChannelOpenOk(_)));
    let got = client.ask(2, BasicGet { queue: queue.into(), ..Default::default() });
    let Method::BasicGetOk(BasicGetOk { delivery_tag, .. }) = got else {
        assert!(matches!(client.ask(2, ChannelClose::default()), Method::ChannelCloseOk(_)));
        return None;
    };
    let (properties, _) = client.message();
    match how {
        Back::Reject => client.say(2, BasicReject { delivery_tag, requeue: true }),
        Back::Nack => client.say(2, BasicNack { delivery_tag, multiple: false, requeue: true }),
        Back::Recover => {
            assert!(matches!(client.ask(2, BasicRecover { requeue: true }), Method::BasicRecoverOk(_)));
        }
        Back::ChannelClose => {}
    }
    assert!(matches!(client.ask(2, ChannelClose::default()), Method::ChannelCloseOk(_)));
    Some(properties.headers.unwrap_or(Table::EMPTY))
}

/// 4.2.0 is announced by default, and what came back by nack or recover never came to its limit, as in 4.3.
#[test]
fn what_counts_towards_the_delivery_limit_is_as_in_the_version_that_is_announced() {
    for version in [OLDER, NEWER] {
        let (rabbit, mut client) = start(version);
        declare(&mut client, "dead", TableBuilder::new());
        for how in [Back::Reject, Back::Nack, Back::Recover, Back::ChannelClose] {
            let arguments = quorum().with("x-delivery-limit", Value::I32(2));
            let arguments =
                arguments.with_text("x-dead-letter-exchange", "").with_text("x-dead-letter-routing-key", "dead");
            declare(&mut client, "q", arguments);
            publish(&mut client, "q", b"x", None);
            let counts = version == OLDER || matches!(how, Back::Reject | Back::ChannelClose);
            let mut came = 0;
            while came < 6
                && let Some(headers) = come_back(&mut client, "q", how)
            {
                let count = |name: &str| headers.get(name).and_then(|value| value.as_i64());
                let expected = match (version, came) {
                    (_, 0) => (None, None),
                    (OLDER, _) => (Some(came), None),
                    _ => (Some(if counts { came } else { 0 }), Some(came)),
                };
                let said = (count("x-delivery-count"), count("x-acquired-count"));
                assert_eq!(said, expected, "{version} {how:?}");
                came += 1;
            }
            assert_eq!(came, if counts { 3 } else { 6 }, "{version} {how:?}");
            let delete = QueueDelete { queue: "q".into(), ..Default::default() };
            assert!(matches!(client.ask(1, delete), Method::QueueDeleteOk(_)));
        }
        let looks = json!({"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"});
        declare(&mut client, "looked", quorum().with("x-delivery-limit", Value::I32(2)));
        publish(&mut client, "looked", b"x", None);
        for _ in 0..6 {
            assert_eq!(rabbit.manage("POST", "queues/%2F/looked/get", &looks), 200);
        }
        assert!(client.take("looked").is_some(), "{version}: a look is no delivery");
    }
}

#[test]
fn priorities_of_quorum_queues_are_as_in_the_version_that_is_announced() {
    for (version, order) in [(OLDER, "xyazbc"), (NEWER, "zxyabc")] {
        let (_rabbit, mut client) = start(version);
        declare(&mut client, "q", quorum());
        let all = [("a", Some(4)), ("b", None), ("c", Some(0)), ("x", Some(9)), ("y", Some(5)), ("z", Some(255))];
        for (body, priority) in all {
            publish(&mut client, "q", body.as_bytes(), priority);
        }
        let mut got = String::new();
        while got.len() < all.len() {
            if let Some((_, body)) = client.take("q") {
                got.push_str(std::str::from_utf8(&body).unwrap());
            }
        }
        assert_eq!(got, order, "{version}");
    }
}

fn consume(client: &mut Client, queue: &'static str, arguments: TableBuilder) {
    let consume = BasicConsume {
        queue: queue.into(),
        consumer_tag: queue.into(),
        arguments: arguments.build(),
        ..Default::default()
    };
    assert!(matches!(client.ask(1, consume), Method::BasicConsumeOk(_)));
    assert!(matches!(client.method(), Some((1, Method::BasicDeliver(_)))));
    client.message();
}

/// From 4.3 on a late acknowledgement costs a quorum queue's consumer and no channel, and classic queues wait for ever.
#[test]
fn late_acknowledgements_are_as_in_the_version_that_is_announced() {
    for version in [OLDER, NEWER] {
        let (rabbit, mut client) = start_with(version, &["--set", "amqp.ack_ms_max=1s"]);
        declare(&mut client, "classic", TableBuilder::new());
        publish(&mut client, "classic", b"c", None);
        consume(&mut client, "classic", TableBuilder::new());
        if version == OLDER {
            assert!(client.closed().starts_with("channel 406"), "a classic queue minds");
            continue;
        }
        declare(&mut client, "quorum", quorum());
        publish(&mut client, "quorum", b"q", None);
        consume(&mut client, "quorum", TableBuilder::new().with("x-consumer-timeout", Value::I32(1_500)));
        let Some((1, Method::BasicCancel(cancel))) = client.method() else { panic!("the consumer is not cancelled") };
        assert_eq!(&cancel.consumer_tag[..], b"quorum");
        let (properties, body) = client.take("quorum").expect("it came back");
        let count = |name: &str| properties.headers.as_ref()?.get(name)?.as_i64();
        assert_eq!((&body[..], count("x-acquired-count"), count("x-delivery-count")), (&b"q"[..], Some(1), Some(0)));
        // What was taken back may still be acknowledged, and what another one holds is not.
        client.say(1, BasicAck { delivery_tag: 2, multiple: false });
        client.say(1, BasicAck { delivery_tag: 1, multiple: false });
        declare(&mut client, "classic", TableBuilder::new());
        // One without support for consumer cancellation loses its channel.
        let mut deaf = deaf(rabbit.amqp);
        publish(&mut client, "quorum", b"q", None);
        consume(&mut deaf, "quorum", TableBuilder::new());
        assert!(deaf.closed().starts_with("channel 406"));
    }
}

/// A client without any capability.
fn deaf(to: std::net::SocketAddr) -> Client {
    let mut client = Client::started(to);
    let start_ok = ConnectionStartOk { client_properties: Table::EMPTY, ..start_ok("guest", "guest") };
    assert!(matches!(client.ask(0, start_ok), Method::ConnectionTune(_)));
    client.say(0, ConnectionTuneOk { channel_max: 2047, frame_max: 131_072, heartbeat: 0 });
    let open = ConnectionOpen { virtual_host: "/".into(), ..Default::default() };
    assert!(matches!(client.ask(0, open), Method::ConnectionOpenOk(_)));
    assert!(matches!(client.ask(1, ChannelOpen::default()), Method::ChannelOpenOk(_)));
    client
}

/// RabbitMQ 4.3 refuses them by default, which breaks clients.
#[test]
fn global_prefetches_and_transient_queues_are_accepted_under_every_version() {
    for version in [OLDER, NEWER] {
        let (_rabbit, mut client) = start(version);
        let qos = BasicQos { prefetch_size: 0, prefetch_count: 1, global: true };
        assert!(matches!(client.ask(1, qos), Method::BasicQosOk(_)));
        let transient = QueueDeclare { queue: "t".into(), ..Default::default() };
        assert!(matches!(client.ask(1, transient), Method::QueueDeclareOk(_)));
    }
}
