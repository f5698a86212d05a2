//! The errors for a client of AMQP that breaks the protocol or asks for what cannot be: RabbitMQ's codes, the methods to blame and the
//! texts, over a socket, of the real binary. One table a subject.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "violations/access.rs"]
mod access;
#[path = "violations/basic.rs"]
mod basic;
#[path = "violations/behind.rs"]
mod behind;
use crate::common;
#[path = "violations/declare.rs"]
mod declare;
#[path = "violations/framing.rs"]
mod framing;
#[path = "violations/handshake.rs"]
mod handshake;
#[path = "violations/hostile.rs"]
mod hostile;
#[path = "violations/limits.rs"]
mod limits;
#[path = "violations/streams.rs"]
mod streams;

use common::amqp::Client;
use common::rabbit::Rabbit;
use polylogue_amqp::codec::*;
use serde_json::{Value as Json, json};
use std::net::SocketAddr;

/// What is done, how, and what is said of it: `channel CODE CLASS.METHOD TEXT` or `connection ...`, to the last letter. Three dots at the end
/// are RabbitMQ's, which cuts a text after 252 bytes.
pub(crate) type Case = (&'static str, fn(&mut Client), &'static str);

impl Rabbit {
    /// Declares what the cases are about.
    pub(crate) fn with_things() -> Rabbit {
        let mut rabbit = Rabbit::start();
        let mut holder = Client::open(rabbit.amqp, "guest");
        let mut done = |method: Method| {
            let answer = holder.ask(1, method);
            assert!(!matches!(answer, Method::ChannelClose(_) | Method::ConnectionClose(_)), "{answer:?}");
        };
        for name in ["q", "full", "taken", "bound"] {
            done(queue(name).into());
        }
        done(queue_of("quorum", TableBuilder::new().with_text("x-queue-type", "quorum")).into());
        let alone = TableBuilder::new().with_text("x-queue-type", "quorum");
        done(queue_of("alone", alone.with("x-single-active-consumer", Value::Bool(true))).into());
        done(QueueDeclare { queue: "mine".into(), exclusive: true, ..Default::default() }.into());
        done(BasicConsume { queue: "taken".into(), exclusive: true, ..Default::default() }.into());
        for (name, kind) in
            [("direct", "direct"), ("topic", "topic"), ("headers", "headers"), ("hash", "x-consistent-hash")]
        {
            done(exchange(name, kind).into());
        }
        done(ExchangeDeclare { internal: true, ..exchange("internal", "fanout") }.into());
        done(QueueBind { queue: "bound".into(), exchange: "direct".into(), ..Default::default() }.into());
        holder.publish("", "full", &BasicProperties::default(), b"one");
        rabbit.others.push(holder);
        for (path, body) in [
            ("users/clerk", json!({"password": "clerk", "tags": ""})),
            ("users/absent", json!({"password": "absent", "tags": ""})),
            ("vhosts/other", json!({})),
            ("permissions/%2F/clerk", json!({"configure": "^own", "write": "^own|^topic$", "read": "^own|^direct$"})),
            ("topic-permissions/%2F/clerk", json!({"exchange": "topic", "write": "^own", "read": ""})),
        ] {
            let status = rabbit.manage("PUT", path, &body);
            assert!(matches!(status, 201 | 204), "{path}: {status}");
        }
        rabbit
    }

    /// Goes through a table, each case on a connection of its own that `open` makes.
    pub(crate) fn check(&self, open: impl Fn(SocketAddr) -> Client, cases: &[Case]) {
        let mut wrong = Vec::new();
        for (what, does, expected) in cases {
            let mut client = open(self.amqp);
            does(&mut client);
            let said = client.closed();
            if said != *expected {
                wrong.push(format!("{what}\n    gets     {said}\n    and not  {expected}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
        // Whatever they did, others go on.
        let mut client = Client::open(self.amqp, "guest");
        assert!(matches!(client.ask(1, BasicQos::default()), Method::BasicQosOk(_)));
    }
}

/// The declaration of a durable queue.
pub(crate) fn queue(name: &'static str) -> QueueDeclare {
    QueueDeclare { queue: name.into(), durable: true, ..Default::default() }
}

/// The same with arguments.
pub(crate) fn queue_of(name: &'static str, arguments: TableBuilder) -> QueueDeclare {
    QueueDeclare { arguments: arguments.build(), ..queue(name) }
}

/// The declaration of a durable exchange.
pub(crate) fn exchange(name: &'static str, kind: &'static str) -> ExchangeDeclare {
    ExchangeDeclare { exchange: name.into(), kind: kind.into(), durable: true, ..Default::default() }
}

pub(crate) fn text(name: &str, value: &str) -> TableBuilder {
    TableBuilder::new().with_text(name, value)
}

pub(crate) fn int(name: &str, value: i32) -> TableBuilder {
    TableBuilder::new().with(name, Value::I32(value))
}

/// Clients without a mistake: what is refused because of others' changes.
#[test]
fn an_operator_ends_a_connection() {
    let rabbit = Rabbit::start();
    let mut client = Client::open(rabbit.amqp, "guest");
    let name = rabbit.get("connections")[0]["name"].as_str().unwrap().replace(' ', "%20").replace('>', "%3E");
    assert_eq!(rabbit.manage("DELETE", &format!("connections/{name}"), &Json::Null), 204);
    let said = client.closed();
    assert_eq!(said, "connection 320 0.0 CONNECTION_FORCED - Closed via management plugin");
}

#[test]
fn the_user_of_a_connection_goes() {
    let rabbit = Rabbit::with_things();
    let mut client = Client::open(rabbit.amqp, "clerk");
    assert_eq!(rabbit.manage("DELETE", "users/clerk", &Json::Null), 204);
    assert_eq!(client.closed(), "connection 320 0.0 CONNECTION_FORCED - user 'clerk' is deleted");
}

#[test]
fn the_virtual_host_of_a_connection_goes() {
    let rabbit = Rabbit::start();
    assert_eq!(rabbit.manage("PUT", "vhosts/short", &json!({})), 201);
    let mut client = Client::opening(rabbit.amqp, "guest");
    let open = ConnectionOpen { virtual_host: "short".into(), ..Default::default() };
    assert!(matches!(client.ask(0, open), Method::ConnectionOpenOk(_)));
    assert!(matches!(client.ask(1, ChannelOpen::default()), Method::ChannelOpenOk(_)));
    assert_eq!(rabbit.manage("DELETE", "vhosts/short", &Json::Null), 204);
    assert_eq!(client.closed(), "connection 320 0.0 CONNECTION_FORCED - vhost 'short' is deleted");
}
