//! What a client sent behind a publish that is refused, before it heard of that: none of it has an effect or an answer.
//!
//! A consumer that published to an exchange that was not there and acknowledged the message it had this from lost that message.

use super::{Client, Rabbit, queue};
use polylogue_amqp::codec::*;

/// Publishes what is refused, and why it is.
type Refused = (&'static str, &'static str, fn(&mut Client), &'static str);

fn props() -> BasicProperties {
    BasicProperties::default()
}

const REFUSED: &[Refused] = &[
    (
        "to an exchange that there is not",
        "guest",
        |c| c.publish("nope", "k", &props(), b"x"),
        "404 NOT_FOUND - no exchange 'nope' in vhost '/'",
    ),
    (
        "to an internal exchange",
        "guest",
        |c| c.publish("internal", "k", &props(), b"x"),
        "403 ACCESS_REFUSED - cannot publish to internal exchange 'internal' in vhost '/'",
    ),
    (
        "where the user may not write",
        "clerk",
        |c| c.publish("direct", "k", &props(), b"x"),
        "403 ACCESS_REFUSED - write access to exchange 'direct' in vhost '/' refused for user 'clerk'",
    ),
    (
        "with a key that the user may not use",
        "clerk",
        |c| c.publish("topic", "other", &props(), b"x"),
        "403 ACCESS_REFUSED - write access to topic 'other' in exchange 'topic' in vhost '/' refused for user 'clerk'",
    ),
    (
        "in the name of another",
        "guest",
        |c| c.publish("", "q", &BasicProperties { user_id: Some("bob".into()), ..props() }, b"x"),
        "406 PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'guest'",
    ),
    (
        "larger than a message may be",
        "guest",
        |c| {
            c.say(1, BasicPublish { routing_key: "q".into(), ..Default::default() });
            c.header(1, (16 << 20) + 1, &props());
            c.frame(3, 1, b"its beginning");
        },
        "406 PRECONDITION_FAILED - message size 16777217 is larger than configured max size 16777216",
    ),
];

/// A client that has got the only message of the queue `own`, and not acknowledged it.
fn holding(rabbit: &Rabbit, user: &str) -> Client {
    let mut other = Client::open(rabbit.amqp, "guest");
    other.ask(1, QueueDelete { queue: "own".into(), ..Default::default() });
    other.ask(1, queue("own"));
    other.ask(1, ConfirmSelect::default());
    assert!(other.is_accepted("own", b"source"));
    let mut client = Client::open(rabbit.amqp, user);
    let Method::BasicGetOk(got) = client.ask(1, BasicGet { queue: "own".into(), ..Default::default() }) else {
        panic!("the queue is empty")
    };
    assert_eq!((got.delivery_tag, client.message().1), (1, b"source".to_vec()));
    client
}

/// All that has an effect, or an answer, without waiting for one.
fn go_on(client: &mut Client) {
    client.say(1, BasicAck { delivery_tag: 1, multiple: false });
    client.publish("", "own", &props(), b"second");
    client.publish("topic", "own.second", &props(), b"second");
    client.say(1, BasicAck { delivery_tag: 7, multiple: false });
    client.say(1, BasicQos { prefetch_count: 1, ..Default::default() });
    client.say(1, ConfirmSelect::default());
    client.say(1, QueueDeclare { queue: "own-made".into(), nowait: true, ..Default::default() });
    client.say(1, QueueDeclare { queue: "own-made".into(), ..Default::default() });
    client.say(1, QueuePurge { queue: "own".into(), ..Default::default() });
    client.say(1, QueueDelete { queue: "own".into(), ..Default::default() });
    client.say(1, BasicConsume { queue: "own".into(), no_ack: true, ..Default::default() });
    client.say(1, TxCommit {});
}

/// The client hears why, and nothing of what it said behind; the message it holds is there again, and it alone.
fn check(rabbit: &Rabbit, mut client: Client, what: &str, reported: &str) {
    let (code, text) = reported.split_once(' ').unwrap();
    assert_eq!(client.closed(), format!("channel {code} 60.40 {text}"), "{what}");
    let Method::ChannelClose(close) =
        client.ask(1, QueueDeclare { queue: "own-made".into(), passive: true, ..Default::default() })
    else {
        panic!("{what}: the queue that was declared behind it is there")
    };
    assert_eq!(close.reply_code, 404, "{what}: {close:?}");
    let mut other = Client::open(rabbit.amqp, "guest");
    let (_, body) = other.take("own").unwrap_or_else(|| panic!("{what}: the message that the client held is lost"));
    assert_eq!(body, b"source", "{what}");
    assert_eq!(other.take("own").map(|(_, body)| body), None, "{what}: what was published behind it is there");
}

#[test]
fn nothing_behind_a_refused_publish_has_an_effect() {
    let rabbit = Rabbit::with_things();
    for (what, user, publish, reported) in REFUSED {
        let mut client = holding(&rabbit, user);
        client.at_once(|client| {
            publish(client);
            go_on(client);
        });
        check(&rabbit, client, what, reported);
    }
}

/// It was refused when the transaction was committed, and what came before that had its effect.
#[test]
fn a_publish_in_a_transaction_is_refused_at_once() {
    let rabbit = Rabbit::with_things();
    for (what, user, publish, reported) in REFUSED {
        let mut client = holding(&rabbit, user);
        assert!(matches!(client.ask(1, TxSelect {}), Method::TxSelectOk(_)));
        client.at_once(publish);
        check(&rabbit, client, what, reported);
        let mut client = holding(&rabbit, user);
        assert!(matches!(client.ask(1, TxSelect {}), Method::TxSelectOk(_)));
        client.at_once(|client| {
            client.say(1, BasicAck { delivery_tag: 1, multiple: false });
            publish(client);
            go_on(client);
        });
        check(&rabbit, client, what, reported);
    }
}

#[test]
fn what_came_before_a_refused_publish_stands() {
    let rabbit = Rabbit::with_things();
    for (what, user, publish, reported) in REFUSED {
        let mut client = holding(&rabbit, user);
        client.at_once(|client| {
            client.say(1, BasicAck { delivery_tag: 1, multiple: false });
            client.say(1, QueueDeclare { queue: "own-before".into(), nowait: true, ..Default::default() });
            publish(client);
            go_on(client);
        });
        let (code, text) = reported.split_once(' ').unwrap();
        assert_eq!(client.closed(), format!("channel {code} 60.40 {text}"), "{what}");
        let deleted = client.ask(1, QueueDelete { queue: "own-before".into(), ..Default::default() });
        assert!(matches!(deleted, Method::QueueDeleteOk(_)), "{what}: {deleted:?}");
        let mut other = Client::open(rabbit.amqp, "guest");
        assert_eq!(other.take("own").map(|(_, body)| body), None, "{what}: the acknowledgement before it is lost");
    }
}

/// A client that closes its channel behind such a publish heard that it was closed, and not that the publish was refused.
#[test]
fn a_channel_that_is_closed_behind_a_refused_publish_is_told() {
    let rabbit = Rabbit::with_things();
    for (what, user, publish, reported) in REFUSED {
        let mut client = holding(&rabbit, user);
        client.at_once(|client| {
            publish(client);
            client.say(1, ChannelClose::default());
        });
        let (code, _) = reported.split_once(' ').unwrap();
        let Some((1, Method::ChannelClose(close))) = client.method() else { panic!("{what}: it was not reported") };
        assert_eq!(close.reply_code.to_string(), code, "{what}");
        assert_eq!(client.method(), Some((1, ChannelCloseOk {}.into())), "{what}");
        client.say(1, ChannelCloseOk {});
        assert!(matches!(client.ask(1, ChannelOpen::default()), Method::ChannelOpenOk(_)), "{what}");
    }
}

/// Other channels of the same connection go on, in whatever order their frames come.
#[test]
fn other_channels_go_on_behind_a_refused_publish() {
    let rabbit = Rabbit::with_things();
    let mut client = holding(&rabbit, "guest");
    assert!(matches!(client.ask(2, ChannelOpen::default()), Method::ChannelOpenOk(_)));
    client.at_once(|client| {
        client.publish("nope", "k", &props(), b"x");
        client.say(2, QueueDeclare { queue: "of-two".into(), ..Default::default() });
        client.say(1, BasicAck { delivery_tag: 1, multiple: false });
    });
    let mut heard: Vec<_> = (0..2).map(|_| client.method().expect("an answer")).collect();
    heard.sort_by_key(|(channel, _)| *channel);
    assert!(matches!(&heard[..], [(1, Method::ChannelClose(_)), (2, Method::QueueDeclareOk(_))]), "{heard:?}");
}
