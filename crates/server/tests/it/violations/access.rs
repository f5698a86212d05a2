//! Every method there is, by a client that has not logged in, by a user without access to the virtual host, and by a user without permissions.

use super::declare::REFUSED;
use super::*;
use bytes::{BufMut as _, BytesMut};
use std::collections::BTreeSet;

/// The longest method without anything in it. Bytes.
const EMPTY_BYTES_MAX: usize = 64;

/// Methods by which nothing is learned or changed that is not one's own: the connection and its channels, what they got, and their modes.
const OWN: &[&str] = &[
    "connection.start_ok",
    "connection.secure_ok",
    "connection.tune_ok",
    "connection.open",
    "connection.close",
    "connection.close_ok",
    "connection.update_secret",
    "channel.open",
    "channel.flow",
    "channel.flow_ok",
    "channel.close",
    "channel.close_ok",
    "access.request",
    "basic.qos",
    "basic.cancel",
    "basic.ack",
    "basic.reject",
    "basic.recover_async",
    "basic.recover",
    "basic.nack",
    "confirm.select",
    "tx.select",
    "tx.commit",
    "tx.rollback",
];

/// Methods that only a server says.
const ANSWERS: &[&str] = &[
    "connection.start",
    "connection.secure",
    "connection.tune",
    "connection.open_ok",
    "connection.blocked",
    "connection.unblocked",
    "connection.update_secret_ok",
    "channel.open_ok",
    "access.request_ok",
    "exchange.declare_ok",
    "exchange.delete_ok",
    "exchange.bind_ok",
    "exchange.unbind_ok",
    "queue.declare_ok",
    "queue.bind_ok",
    "queue.purge_ok",
    "queue.delete_ok",
    "queue.unbind_ok",
    "basic.qos_ok",
    "basic.consume_ok",
    "basic.cancel_ok",
    "basic.return",
    "basic.deliver",
    "basic.get_ok",
    "basic.get_empty",
    "basic.recover_ok",
    "confirm.select_ok",
    "tx.select_ok",
    "tx.commit_ok",
    "tx.rollback_ok",
];

/// A method with nothing in its fields.
fn empty(id: MethodId) -> Method {
    let of_length = |zeros: usize| {
        let mut payload = BytesMut::new();
        payload.put_u16(id.class);
        payload.put_u16(id.method);
        payload.put_bytes(0, zeros);
        Method::decode(&payload.freeze()).ok()
    };
    (0..EMPTY_BYTES_MAX).find_map(of_length).unwrap()
}

/// Says each method but these on a connection that `open` makes, on its own channel and on another. Nothing comes of it but the end.
fn is_closed_to(open: impl Fn() -> Client, but: &[&str]) {
    let mut wrong = Vec::new();
    for id in MethodId::ALL.iter().copied() {
        let name = id.name().unwrap();
        if but.contains(&name) {
            continue;
        }
        for channel in [0, 1] {
            let mut client = open();
            client.say(channel, empty(id));
            while let Some((channel, heard)) = client.method() {
                match heard {
                    Method::ConnectionClose(_) => client.say(channel, ConnectionCloseOk {}),
                    Method::ConnectionCloseOk(_) => {}
                    other => wrong.push(format!("{name} on channel {channel}: {other:?}")),
                }
            }
            if let Some(why) = client.silence() {
                wrong.push(format!("{name} on channel {channel}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn who_has_not_logged_in_is_told_nothing() {
    let rabbit = Rabbit::with_things();
    is_closed_to(|| Client::started(rabbit.amqp), &["connection.start_ok"]);
    rabbit.check(|to| Client::open(to, "guest"), &[]);
}

#[test]
fn whom_no_virtual_host_lets_in_is_told_nothing() {
    let rabbit = Rabbit::with_things();
    is_closed_to(|| Client::opening(rabbit.amqp, "absent"), &["connection.open"]);
    let open = |name: &'static str| ConnectionOpen { virtual_host: name.into(), ..Default::default() };
    for (name, reported) in [
        ("/", "connection 530 10.40 NOT_ALLOWED - access to vhost '/' refused for user 'absent'"),
        ("other", "connection 530 10.40 NOT_ALLOWED - access to vhost 'other' refused for user 'absent'"),
    ] {
        let mut client = Client::opening(rabbit.amqp, "absent");
        client.say(0, open(name));
        assert_eq!(client.closed(), reported);
    }
}

/// A method that is added needs a row in a table.
#[test]
fn each_method_is_refused_or_ones_own() {
    let is_refused = |id: &&MethodId| {
        let blamed = format!("channel 403 {}.{} ", id.class, id.method);
        REFUSED.iter().any(|(_, _, reported)| reported.starts_with(&blamed))
    };
    let refused: Vec<&str> = MethodId::ALL.iter().filter(is_refused).filter_map(|id| id.name()).collect();
    let all: BTreeSet<&str> = MethodId::ALL.iter().filter_map(|id| id.name()).collect();
    let rows: Vec<&str> = refused.iter().chain(OWN).chain(ANSWERS).copied().collect();
    assert_eq!(BTreeSet::from_iter(rows.iter().copied()), all);
    assert_eq!(rows.len(), all.len(), "a method stands in two tables");
}
