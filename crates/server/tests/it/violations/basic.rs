//! Publishing, consuming, acknowledging, confirms and transactions.

use super::{Case, Client, Rabbit, int, queue_of, text};
use polylogue_amqp::codec::*;
use serde_json::json;

fn props() -> BasicProperties {
    BasicProperties::default()
}

fn consume(queue: &'static str) -> BasicConsume {
    BasicConsume { queue: queue.into(), ..Default::default() }
}

fn with_header(name: &str, value: Value<'_>) -> BasicProperties {
    BasicProperties { headers: Some(TableBuilder::new().with(name, value).build()), ..props() }
}

const PUBLISHING: &[Case] = &[
    (
        "to an exchange that there is not",
        |c| c.publish("nope", "k", &props(), b"x"),
        "channel 404 60.40 NOT_FOUND - no exchange 'nope' in vhost '/'",
    ),
    (
        "to an internal exchange",
        |c| c.publish("internal", "k", &props(), b"x"),
        "channel 403 60.40 ACCESS_REFUSED - cannot publish to internal exchange 'internal' in vhost '/'",
    ),
    (
        "for a time that is no number",
        |c| c.publish("", "q", &BasicProperties { expiration: Some("soon".into()), ..props() }, b"x"),
        "channel 406 60.40 PRECONDITION_FAILED - invalid expiration 'soon': no_integer",
    ),
    (
        "for a negative time",
        |c| c.publish("", "q", &BasicProperties { expiration: Some("-1".into()), ..props() }, b"x"),
        "channel 406 60.40 PRECONDITION_FAILED - invalid expiration '-1': {value_negative,-1}",
    ),
    (
        "in another's name",
        |c| c.publish("", "q", &BasicProperties { user_id: Some("bob".into()), ..props() }, b"x"),
        "channel 406 60.40 PRECONDITION_FAILED - user_id property set to 'bob' but authenticated user was 'guest'",
    ),
    (
        "with copies to what is no list",
        |c| c.publish("", "q", &with_header("CC", Value::LongStr(b"k")), b"x"),
        "channel 406 60.40 PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,\"CC\",longstr}",
    ),
    (
        "with hidden copies to what is no list",
        |c| c.publish("", "q", &with_header("BCC", Value::I32(1)), b"x"),
        "channel 406 60.40 PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,\"BCC\",signedint}",
    ),
    (
        "with an answer wanted where no one takes one",
        |c| c.publish("", "q", &BasicProperties { reply_to: Some("amq.rabbitmq.reply-to".into()), ..props() }, b"x"),
        "channel 406 60.40 PRECONDITION_FAILED - fast reply consumer does not exist",
    ),
];

/// A publish in the name of another user: who has the tag `impersonator` may.
const IMPERSONATING: &[Case] = &[(
    "in another's name, as a clerk",
    |c| c.publish("", "own", &BasicProperties { user_id: Some("guest".into()), ..props() }, b"x"),
    "channel 406 60.40 PRECONDITION_FAILED - user_id property set to 'guest' but authenticated user was 'clerk'",
)];

const CONSUMING: &[Case] = &[
    (
        "a prefetch in bytes",
        |c| c.say(1, BasicQos { prefetch_size: 7, ..Default::default() }),
        "connection 540 60.10 NOT_IMPLEMENTED - prefetch_size!=0 (7)",
    ),
    (
        "a queue that there is not",
        |c| c.say(1, consume("nope")),
        "channel 404 60.20 NOT_FOUND - no queue 'nope' in vhost '/'",
    ),
    (
        "another's queue",
        |c| c.say(1, consume("mine")),
        "channel 405 60.20 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be \
         originally declared on another connection or the exclusive property value does not match that of the original declaration.",
    ),
    (
        "the queue that was declared last, where none was",
        |c| c.say(1, consume("")),
        "channel 404 60.20 NOT_FOUND - no previously declared queue",
    ),
    (
        "a queue that someone consumes alone",
        |c| c.say(1, consume("taken")),
        "channel 403 60.20 ACCESS_REFUSED - queue 'taken' in vhost '/' in exclusive use",
    ),
    (
        "alone, where someone consumes",
        |c| {
            c.ask(1, consume("q"));
            c.say(1, BasicConsume { exclusive: true, ..consume("q") });
        },
        "channel 403 60.20 ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use",
    ),
    (
        "under a tag that is taken",
        |c| {
            c.ask(1, BasicConsume { consumer_tag: "c".into(), ..consume("q") });
            c.say(1, BasicConsume { consumer_tag: "c".into(), ..consume("q") });
        },
        "connection 530 60.20 NOT_ALLOWED - attempt to reuse consumer tag 'c'",
    ),
    (
        "with a priority that is none",
        |c| c.say(1, BasicConsume { arguments: text("x-priority", "high").build(), ..consume("q") }),
        "channel 406 60.20 PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'q' in vhost '/': \"expected integer, got \
         longstr\"",
    ),
    (
        "a quorum queue, with a prefetch for all consumers together",
        |c| {
            c.ask(1, BasicQos { prefetch_count: 1, global: true, ..Default::default() });
            c.say(1, consume("quorum"));
        },
        "connection 540 60.20 NOT_IMPLEMENTED - queue 'quorum' in vhost '/' does not support global qos",
    ),
    (
        "replies that are to be acknowledged",
        |c| c.say(1, consume("amq.rabbitmq.reply-to")),
        "channel 406 60.20 PRECONDITION_FAILED - reply consumer cannot acknowledge",
    ),
    (
        "replies, twice",
        |c| {
            c.ask(1, BasicConsume { no_ack: true, ..consume("amq.rabbitmq.reply-to") });
            c.say(1, BasicConsume { no_ack: true, ..consume("amq.rabbitmq.reply-to") });
        },
        "channel 406 60.20 PRECONDITION_FAILED - reply consumer already set",
    ),
    (
        "one message of a queue that there is not",
        |c| c.say(1, BasicGet { queue: "nope".into(), ..Default::default() }),
        "channel 404 60.70 NOT_FOUND - no queue 'nope' in vhost '/'",
    ),
    (
        "one message of another's",
        |c| c.say(1, BasicGet { queue: "mine".into(), ..Default::default() }),
        "channel 405 60.70 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be \
         originally declared on another connection or the exclusive property value does not match that of the original declaration.",
    ),
    (
        "one message of a quorum queue with a single active consumer",
        |c| c.say(1, BasicGet { queue: "alone".into(), ..Default::default() }),
        "channel 405 60.70 RESOURCE_LOCKED - cannot obtain access to locked queue 'alone' in vhost '/'. basic.get operations are not \
         supported by quorum queues with single active consumer",
    ),
];

const SETTLING: &[Case] = &[
    (
        "acknowledging what was not delivered",
        |c| c.say(1, BasicAck { delivery_tag: 7, multiple: false }),
        "channel 406 60.80 PRECONDITION_FAILED - unknown delivery tag 7",
    ),
    (
        "acknowledging all up to what was not delivered",
        |c| c.say(1, BasicAck { delivery_tag: 7, multiple: true }),
        "channel 406 60.80 PRECONDITION_FAILED - unknown delivery tag 7",
    ),
    (
        "acknowledging nothing",
        |c| c.say(1, BasicAck::default()),
        "channel 406 60.80 PRECONDITION_FAILED - unknown delivery tag 0",
    ),
    (
        "acknowledging twice",
        |c| {
            c.publish("", "q", &props(), b"x");
            assert!(matches!(c.ask(1, BasicGet { queue: "q".into(), ..Default::default() }), Method::BasicGetOk(_)));
            c.say(1, BasicAck { delivery_tag: 1, multiple: false });
            c.say(1, BasicAck { delivery_tag: 1, multiple: false });
        },
        "channel 406 60.80 PRECONDITION_FAILED - unknown delivery tag 1",
    ),
    (
        "acknowledging what was settled by being delivered",
        |c| {
            c.publish("", "q", &props(), b"x");
            let get = BasicGet { queue: "q".into(), no_ack: true, ..Default::default() };
            assert!(matches!(c.ask(1, get), Method::BasicGetOk(_)));
            c.say(1, BasicAck { delivery_tag: 1, multiple: false });
        },
        "channel 406 60.80 PRECONDITION_FAILED - unknown delivery tag 1",
    ),
    (
        "acknowledging too late",
        |c| {
            c.publish("", "quorum", &props(), b"x");
            c.say(1, BasicConsume { arguments: int("x-consumer-timeout", 1).build(), ..consume("quorum") });
        },
        "channel 406 0.0 PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 1 ms. This \
         timeout value can be configured, see consumers doc guide to learn more",
    ),
    (
        "rejecting what was not delivered",
        |c| c.say(1, BasicReject { delivery_tag: 7, requeue: true }),
        "channel 406 60.90 PRECONDITION_FAILED - unknown delivery tag 7",
    ),
    (
        "rejecting many that were not delivered",
        |c| c.say(1, BasicNack { delivery_tag: 7, multiple: true, requeue: true }),
        "channel 406 60.120 PRECONDITION_FAILED - unknown delivery tag 7",
    ),
    (
        "recovering without giving back",
        |c| c.say(1, BasicRecover { requeue: false }),
        "connection 540 60.110 NOT_IMPLEMENTED - requeue=false",
    ),
    (
        "recovering without giving back or waiting",
        |c| c.say(1, BasicRecoverAsync { requeue: false }),
        "connection 540 60.100 NOT_IMPLEMENTED - requeue=false",
    ),
];

const MODES: &[Case] = &[
    (
        "confirms in a transaction",
        |c| {
            c.ask(1, TxSelect {});
            c.say(1, ConfirmSelect::default());
        },
        "channel 406 85.10 PRECONDITION_FAILED - cannot switch from tx to confirm mode",
    ),
    (
        "a transaction with confirms",
        |c| {
            c.ask(1, ConfirmSelect::default());
            c.say(1, TxSelect {});
        },
        "channel 406 90.10 PRECONDITION_FAILED - cannot switch from confirm to tx mode",
    ),
    (
        "the end of no transaction",
        |c| c.say(1, TxCommit {}),
        "channel 406 90.20 PRECONDITION_FAILED - channel is not transactional",
    ),
    (
        "back from no transaction",
        |c| c.say(1, TxRollback {}),
        "channel 406 90.30 PRECONDITION_FAILED - channel is not transactional",
    ),
    (
        "a transaction that a queue refuses a part of",
        |c| {
            let narrow = int("x-max-length", 1).with_text("x-overflow", "reject-publish");
            c.ask(1, queue_of("narrow", narrow));
            c.ask(1, TxSelect {});
            c.publish("", "narrow", &props(), b"one");
            c.publish("", "narrow", &props(), b"two");
            c.publish("", "narrow", &props(), b"three");
            c.say(1, TxCommit {});
        },
        "channel 406 90.20 PRECONDITION_FAILED - partial tx completion",
    ),
];

#[test]
fn publishing() {
    Rabbit::with_things().check(|to| Client::open(to, "guest"), PUBLISHING);
}

/// The tag is looked at when a client logs in, as RabbitMQ does.
#[test]
fn only_an_impersonator_publishes_in_the_name_of_another() {
    let rabbit = Rabbit::with_things();
    let access = json!({"configure": ".*", "write": ".*", "read": ".*"});
    assert!(matches!(rabbit.manage("PUT", "permissions/%2F/clerk", &access), 201 | 204));
    rabbit.check(|to| Client::open(to, "clerk"), IMPERSONATING);
    assert_eq!(rabbit.manage("PUT", "users/clerk", &json!({"password": "clerk", "tags": "impersonator"})), 204);
    let mut client = Client::open(rabbit.amqp, "clerk");
    assert!(matches!(client.ask(1, ConfirmSelect::default()), Method::ConfirmSelectOk(_)));
    let claimed = BasicProperties { user_id: Some("guest".into()), ..props() };
    client.publish("", "q", &claimed, b"x");
    assert_eq!(client.method(), Some((1, BasicAck { delivery_tag: 1, multiple: false }.into())));
    // The message says who was claimed.
    let (properties, _) = client.take("q").unwrap();
    assert_eq!(properties.user_id.as_deref(), Some(&b"guest"[..]));
    // One's own name is everybody's to say.
    client.publish("", "q", &BasicProperties { user_id: Some("clerk".into()), ..props() }, b"x");
    assert_eq!(client.method(), Some((1, BasicAck { delivery_tag: 2, multiple: false }.into())));
    let mut other = Client::open(rabbit.amqp, "guest");
    other.publish("", "q", &BasicProperties { user_id: Some("clerk".into()), ..props() }, b"x");
    let refused =
        "channel 406 60.40 PRECONDITION_FAILED - user_id property set to 'clerk' but authenticated user was 'guest'";
    assert_eq!(other.closed(), refused, "an administrator is no impersonator");
}

#[test]
fn consuming() {
    Rabbit::with_things().check(|to| Client::open(to, "guest"), CONSUMING);
}

#[test]
fn settling() {
    Rabbit::with_things().check(|to| Client::open(to, "guest"), SETTLING);
}

#[test]
fn confirms_and_transactions() {
    Rabbit::with_things().check(|to| Client::open(to, "guest"), MODES);
}

/// 312 and 313 come with the message that comes back, and close nothing.
#[test]
fn a_mandatory_message_that_reaches_nobody_comes_back() {
    let rabbit = Rabbit::with_things();
    let mut client = Client::open(rabbit.amqp, "guest");
    client.say(1, BasicPublish { routing_key: "nope".into(), mandatory: true, ..Default::default() });
    client.header(1, 0, &props());
    let Some((1, Method::BasicReturn(back))) = client.method() else { panic!("it did not come back") };
    assert_eq!((back.reply_code, &back.reply_text[..]), (312, &b"NO_ROUTE"[..]));
    // Deleting what is not there, and cancelling and unbinding it, are no mistakes.
    let bound = QueueUnbind { queue: "q".into(), exchange: "direct".into(), ..Default::default() };
    assert!(matches!(client.ask(1, bound), Method::QueueUnbindOk(_)));
    let nope = || ShortStr::from("nope");
    let deleted = client.ask(1, QueueDelete { queue: nope(), ..Default::default() });
    assert_eq!(deleted, QueueDeleteOk { message_count: 0 }.into());
    let deleted = client.ask(1, ExchangeDelete { exchange: nope(), ..Default::default() });
    assert!(matches!(deleted, Method::ExchangeDeleteOk(_)));
    assert!(matches!(client.ask(1, BasicCancel { consumer_tag: nope(), nowait: false }), Method::BasicCancelOk(_)));
}
