//! Exchanges, queues and bindings that cannot be.

use super::{Case, Client, Rabbit, exchange, int, queue, queue_of, text};
use polylogue_amqp::codec::*;

fn passive(name: &'static str) -> QueueDeclare {
    QueueDeclare { passive: true, ..queue(name) }
}

fn bind(queue: &'static str, exchange: &'static str) -> QueueBind {
    QueueBind { queue: queue.into(), exchange: exchange.into(), ..Default::default() }
}

fn bind_exchanges(destination: &'static str, source: &'static str) -> ExchangeBind {
    ExchangeBind { destination: destination.into(), source: source.into(), ..Default::default() }
}

fn unbind_exchanges(destination: &'static str, source: &'static str) -> ExchangeUnbind {
    ExchangeUnbind { destination: destination.into(), source: source.into(), ..Default::default() }
}

fn delete(queue: &'static str) -> QueueDelete {
    QueueDelete { queue: queue.into(), ..Default::default() }
}

const EXCHANGES: &[Case] = &[
    (
        "declaring the default exchange",
        |c| c.say(1, exchange("", "direct")),
        "channel 403 40.10 ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    (
        "a new name of the system's",
        |c| c.say(1, exchange("amq.mine", "direct")),
        "channel 403 40.10 ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    (
        "an unknown type",
        |c| c.say(1, exchange("x", "magic")),
        "channel 406 40.10 PRECONDITION_FAILED - unknown exchange type 'magic'",
    ),
    (
        "another type than it has",
        |c| c.say(1, exchange("direct", "fanout")),
        "channel 406 40.10 PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'direct' in vhost '/': received \
         'fanout' but current is 'direct'",
    ),
    (
        "another durability than it has",
        |c| c.say(1, ExchangeDeclare { durable: false, ..exchange("direct", "direct") }),
        "channel 406 40.10 PRECONDITION_FAILED - inequivalent arg 'durable' for exchange 'direct' in vhost '/': received \
         'false' but current is 'true'",
    ),
    (
        "auto-delete, which it is not",
        |c| c.say(1, ExchangeDeclare { auto_delete: true, ..exchange("direct", "direct") }),
        "channel 406 40.10 PRECONDITION_FAILED - inequivalent arg 'auto_delete' for exchange 'direct' in vhost '/': \
         received 'true' but current is 'false'",
    ),
    (
        "internal, which it is not",
        |c| c.say(1, ExchangeDeclare { internal: true, ..exchange("direct", "direct") }),
        "channel 406 40.10 PRECONDITION_FAILED - inequivalent arg 'internal' for exchange 'direct' in vhost '/': received \
         'true' but current is 'false'",
    ),
    (
        "an alternate exchange, which it has not",
        |c| {
            let arguments = text("alternate-exchange", "topic").build();
            c.say(1, ExchangeDeclare { arguments, ..exchange("direct", "direct") });
        },
        "channel 406 40.10 PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'direct' in vhost '/': \
         received the value 'topic' of type 'longstr' but current is none",
    ),
    (
        "an alternate exchange that is no name",
        |c| {
            let arguments = int("alternate-exchange", 1).build();
            c.say(1, ExchangeDeclare { arguments, ..exchange("x", "direct") });
        },
        "channel 406 40.10 PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'",
    ),
    (
        "a delayed exchange that says not of what type",
        |c| c.say(1, exchange("x", "x-delayed-message")),
        "channel 406 40.10 PRECONDITION_FAILED - Invalid argument, 'x-delayed-type' must be an existing exchange type",
    ),
    (
        "a hash of two things",
        |c| {
            let arguments = text("hash-header", "h").with_text("hash-property", "message_id").build();
            c.say(1, ExchangeDeclare { arguments, ..exchange("x", "x-consistent-hash") });
        },
        "channel 406 40.10 PRECONDITION_FAILED - hash-header and hash-property are mutually exclusive",
    ),
    (
        "looking for one that there is not",
        |c| c.say(1, ExchangeDeclare { passive: true, ..exchange("nope", "direct") }),
        "channel 404 40.10 NOT_FOUND - no exchange 'nope' in vhost '/'",
    ),
    (
        "deleting the default exchange",
        |c| c.say(1, ExchangeDelete::default()),
        "channel 403 40.20 ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    (
        "deleting one of the system's",
        |c| c.say(1, ExchangeDelete { exchange: "amq.topic".into(), ..Default::default() }),
        "channel 403 40.20 ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed",
    ),
    (
        "deleting one that is bound, if it is not",
        |c| c.say(1, ExchangeDelete { exchange: "direct".into(), if_unused: true, ..Default::default() }),
        "channel 406 40.20 PRECONDITION_FAILED - exchange 'direct' in vhost '/' in use",
    ),
    (
        "binding from one that there is not",
        |c| c.say(1, bind_exchanges("direct", "nope")),
        "channel 404 40.30 NOT_FOUND - no exchange 'nope' in vhost '/'",
    ),
    (
        "binding to one that there is not",
        |c| c.say(1, bind_exchanges("nope", "direct")),
        "channel 404 40.30 NOT_FOUND - no exchange 'nope' in vhost '/'",
    ),
    (
        "binding to the default exchange",
        |c| c.say(1, bind_exchanges("", "direct")),
        "channel 403 40.30 ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    (
        "binding from the default exchange",
        |c| c.say(1, bind_exchanges("direct", "")),
        "channel 403 40.30 ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    (
        "unbinding from the default exchange",
        |c| c.say(1, unbind_exchanges("direct", "")),
        "channel 403 40.40 ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
];

const QUEUES: &[Case] = &[
    (
        "a name of the system's",
        |c| c.say(1, queue("amq.mine")),
        "channel 403 50.10 ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    (
        "another's exclusive queue",
        |c| c.say(1, QueueDeclare { queue: "mine".into(), exclusive: true, ..Default::default() }),
        "channel 405 50.10 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be \
         originally declared on another connection or the exclusive property value does not match that of the original declaration.",
    ),
    (
        "looking for another's exclusive queue",
        |c| c.say(1, passive("mine")),
        "channel 405 50.10 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be \
         originally declared on another connection or the exclusive property value does not match that of the original declaration.",
    ),
    (
        "exclusive, which it is not",
        |c| c.say(1, QueueDeclare { exclusive: true, ..queue("q") }),
        "channel 405 50.10 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. It could be \
         originally declared on another connection or the exclusive property value does not match that of the original declaration.",
    ),
    (
        "another durability than it has",
        |c| c.say(1, QueueDeclare { durable: false, ..queue("q") }),
        "channel 406 50.10 PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but \
         current is 'true'",
    ),
    (
        "auto-delete, which it is not",
        |c| c.say(1, QueueDeclare { auto_delete: true, ..queue("q") }),
        "channel 406 50.10 PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue 'q' in vhost '/': received 'true' \
         but current is 'false'",
    ),
    (
        "a length, which it has not",
        |c| c.say(1, queue_of("q", int("x-max-length", 10))),
        "channel 406 50.10 PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received the \
         value '10' of type 'signedint' but current is none",
    ),
    (
        "another type than it has",
        |c| c.say(1, queue_of("q", text("x-queue-type", "quorum"))),
        "channel 406 50.10 PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received the \
         value 'quorum' of type 'longstr' but current is none",
    ),
    (
        "looking for one that there is not",
        |c| c.say(1, passive("nope")),
        "channel 404 50.10 NOT_FOUND - no queue 'nope' in vhost '/'",
    ),
    (
        "looking for a reply queue of no one",
        |c| c.say(1, passive("amq.rabbitmq.reply-to.absent")),
        "channel 404 50.10 NOT_FOUND - no queue 'amq.rabbitmq.reply-to.absent' in vhost '/'",
    ),
    (
        "a type that there is not",
        |c| c.say(1, queue_of("x", text("x-queue-type", "magic"))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-queue-type' for queue 'x' in vhost '/': \"unsupported queue type \
         'magic'\"",
    ),
    (
        "a lifetime of no time",
        |c| c.say(1, queue_of("x", int("x-expires", 0))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-expires' for queue 'x' in vhost '/': {value_zero,0}",
    ),
    (
        "messages that live a negative time",
        |c| c.say(1, queue_of("x", int("x-message-ttl", -1))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'x' in vhost '/': {value_negative,-1}",
    ),
    (
        "messages that live a text",
        |c| c.say(1, queue_of("x", text("x-message-ttl", "10"))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'x' in vhost '/': \"expected integer, \
         got longstr\"",
    ),
    (
        "a key for dead letters without an exchange",
        |c| c.say(1, queue_of("x", text("x-dead-letter-routing-key", "k"))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-dead-letter-routing-key' for queue 'x' in vhost '/': \
         routing_key_but_no_dlx_defined",
    ),
    (
        "an exchange for dead letters that is a number",
        |c| c.say(1, queue_of("x", int("x-dead-letter-exchange", 1))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'x' in vhost '/'",
    ),
    (
        "a negative length",
        |c| c.say(1, queue_of("x", int("x-max-length", -5))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-max-length' for queue 'x' in vhost '/': {value_negative,-5}",
    ),
    (
        "too many priorities",
        |c| c.say(1, queue_of("x", int("x-max-priority", 256))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue 'x' in vhost '/': {max_value_exceeded,256}",
    ),
    (
        "an overflow that there is not",
        |c| c.say(1, queue_of("x", text("x-overflow", "explode"))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-overflow' for queue 'x' in vhost '/': invalid_overflow",
    ),
    (
        "a single active consumer that is a text",
        |c| c.say(1, queue_of("x", text("x-single-active-consumer", "yes"))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-single-active-consumer' for queue 'x' in vhost '/': \
         {unacceptable_type,longstr}",
    ),
    (
        "a version that there is not",
        |c| c.say(1, queue_of("x", int("x-queue-version", 3))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-queue-version' for queue 'x' in vhost '/': \"unsupported queue \
         version '3'\"",
    ),
    (
        "a delivery limit for a classic queue",
        |c| c.say(1, queue_of("x", int("x-delivery-limit", 3))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-delivery-limit' for queue 'x' in vhost '/' of queue type \
         rabbit_classic_queue",
    ),
    (
        "a consumer timeout for a classic queue",
        |c| c.say(1, queue_of("x", int("x-consumer-timeout", 3))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-consumer-timeout' for queue 'x' in vhost '/' of queue type \
         rabbit_classic_queue",
    ),
    (
        "priorities for a quorum queue",
        |c| c.say(1, queue_of("x", text("x-queue-type", "quorum").with("x-max-priority", Value::I32(5)))),
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue 'x' in vhost '/' of queue type \
         rabbit_quorum_queue",
    ),
    (
        "a filter of a stream that is too small",
        |c| {
            let stream = text("x-queue-type", "stream");
            c.say(1, queue_of("x", stream.with("x-stream-filter-size-bytes", Value::I32(15))));
        },
        "channel 406 50.10 PRECONDITION_FAILED - Invalid value for x-stream-filter-size-bytes",
    ),
    (
        "an age that is none",
        |c| c.say(1, queue_of("x", text("x-queue-type", "stream").with_text("x-max-age", "long"))),
        // RabbitMQ's reason; where no digit comes first its channel ends with 541 instead.
        "channel 406 50.10 PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'x' in vhost '/': invalid_max_age",
    ),
    (
        "a quorum queue that is not durable",
        |c| c.say(1, QueueDeclare { durable: false, ..queue_of("x", text("x-queue-type", "quorum")) }),
        "channel 406 50.10 PRECONDITION_FAILED - invalid property 'non-durable' for queue 'x' in vhost '/'",
    ),
    (
        "a quorum queue that is exclusive",
        |c| c.say(1, QueueDeclare { exclusive: true, ..queue_of("x", text("x-queue-type", "quorum")) }),
        "channel 406 50.10 PRECONDITION_FAILED - invalid property 'exclusive-owner' for queue 'x' in vhost '/'",
    ),
    (
        "a quorum queue that goes with its consumers",
        |c| c.say(1, QueueDeclare { auto_delete: true, ..queue_of("x", text("x-queue-type", "quorum")) }),
        "channel 406 50.10 PRECONDITION_FAILED - invalid property 'auto-delete' for queue 'x' in vhost '/'",
    ),
    (
        "a quorum queue without a name",
        |c| c.say(1, queue_of("", text("x-queue-type", "quorum"))),
        "channel 406 50.10 PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue",
    ),
];

const BINDINGS: &[Case] = &[
    (
        "a queue that there is not",
        |c| c.say(1, bind("nope", "direct")),
        "channel 404 50.20 NOT_FOUND - no queue 'nope' in vhost '/'",
    ),
    (
        "an exchange that there is not",
        |c| c.say(1, bind("q", "nope")),
        "channel 404 50.20 NOT_FOUND - no exchange 'nope' in vhost '/'",
    ),
    (
        "the default exchange",
        |c| c.say(1, bind("q", "")),
        "channel 403 50.20 ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    (
        "the default exchange, to take away",
        |c| c.say(1, QueueUnbind { queue: "q".into(), ..Default::default() }),
        "channel 403 50.50 ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    (
        "the queue that was declared last, where none was",
        |c| c.say(1, bind("", "direct")),
        "channel 404 50.20 NOT_FOUND - no previously declared queue",
    ),
    (
        "another's exclusive queue",
        |c| c.say(1, bind("mine", "direct")),
        "channel 405 50.20 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be \
         originally declared on another connection or the exclusive property value does not match that of the original declaration.",
    ),
    (
        "headers that match by something else",
        |c| c.say(1, QueueBind { arguments: text("x-match", "some").build(), ..bind("q", "headers") }),
        "channel 406 50.20 PRECONDITION_FAILED - Invalid x-match field value <<\"some\">>; expected all, any, all-with-x, or \
         any-with-x",
    ),
    (
        "headers that match by a number",
        |c| c.say(1, QueueBind { arguments: int("x-match", 1).build(), ..bind("q", "headers") }),
        "channel 406 50.20 PRECONDITION_FAILED - Invalid x-match field type signedint; expected longstr",
    ),
    (
        "a weight that is none",
        |c| c.say(1, QueueBind { routing_key: "heavy".into(), ..bind("q", "hash") }),
        "channel 406 50.20 PRECONDITION_FAILED - The binding key must be an integer: <<\"heavy\">>",
    ),
    (
        "a weight of nothing",
        |c| c.say(1, QueueBind { routing_key: "0".into(), ..bind("q", "hash") }),
        "channel 406 50.20 PRECONDITION_FAILED - The binding key must be greater than 0",
    ),
];

const DELETING: &[Case] = &[
    (
        "one that is used, if it is not",
        |c| c.say(1, QueueDelete { if_unused: true, ..delete("taken") }),
        "channel 406 50.40 PRECONDITION_FAILED - queue 'taken' in vhost '/' in use",
    ),
    (
        "one that holds something, if it does not",
        |c| c.say(1, QueueDelete { if_empty: true, ..delete("full") }),
        "channel 406 50.40 PRECONDITION_FAILED - queue 'full' in vhost '/' not empty",
    ),
    (
        "another's exclusive queue",
        |c| c.say(1, delete("mine")),
        "channel 405 50.40 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be \
         originally declared on another connection or the exclusive property value does not match that of the original declaration.",
    ),
    (
        "a quorum queue, if it is not used",
        |c| c.say(1, QueueDelete { if_unused: true, ..delete("quorum") }),
        "connection 540 50.40 NOT_IMPLEMENTED - cannot delete queue 'quorum' in vhost '/'. queue.delete operations with \
         if-unused flag set are not supported by quorum queues",
    ),
    (
        "a quorum queue, if it is empty",
        |c| c.say(1, QueueDelete { if_empty: true, ..delete("quorum") }),
        "connection 540 50.40 NOT_IMPLEMENTED - cannot delete queue 'quorum' in vhost '/'. queue.delete operations with \
         if-empty flag set are not supported by quorum queues",
    ),
    (
        "the messages of one that there is not",
        |c| c.say(1, QueuePurge { queue: "nope".into(), ..Default::default() }),
        "channel 404 50.30 NOT_FOUND - no queue 'nope' in vhost '/'",
    ),
    (
        "the messages of another's",
        |c| c.say(1, QueuePurge { queue: "mine".into(), ..Default::default() }),
        "channel 405 50.30 RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be \
         originally declared on another connection or the exclusive property value does not match that of the original declaration.",
    ),
    (
        "the messages of the queue that was declared last, where none was",
        |c| c.say(1, QueuePurge::default()),
        "channel 404 50.30 NOT_FOUND - no previously declared queue",
    ),
];

/// A user who may do something with names that begin with `own`, publish to `topic` and read `direct`.
pub(super) const REFUSED: &[Case] = &[
    (
        "declaring a queue",
        |c| c.say(1, queue("x")),
        "channel 403 50.10 ACCESS_REFUSED - configure access to queue 'x' in vhost '/' refused for user 'clerk'",
    ),
    (
        "looking for a queue",
        |c| c.say(1, passive("q")),
        "channel 403 50.10 ACCESS_REFUSED - configure access to queue 'q' in vhost '/' refused for user 'clerk'",
    ),
    (
        "declaring an exchange",
        |c| c.say(1, exchange("x", "fanout")),
        "channel 403 40.10 ACCESS_REFUSED - configure access to exchange 'x' in vhost '/' refused for user 'clerk'",
    ),
    (
        "deleting a queue",
        |c| c.say(1, delete("q")),
        "channel 403 50.40 ACCESS_REFUSED - configure access to queue 'q' in vhost '/' refused for user 'clerk'",
    ),
    (
        "deleting an exchange",
        |c| c.say(1, ExchangeDelete { exchange: "direct".into(), ..Default::default() }),
        "channel 403 40.20 ACCESS_REFUSED - configure access to exchange 'direct' in vhost '/' refused for user 'clerk'",
    ),
    (
        "dead letters to where one may not publish",
        |c| c.say(1, queue_of("own", text("x-dead-letter-exchange", "direct"))),
        "channel 403 50.10 ACCESS_REFUSED - write access to exchange 'direct' in vhost '/' refused for user 'clerk'",
    ),
    (
        "an alternate exchange where one may not publish",
        |c| {
            let arguments = text("alternate-exchange", "direct").build();
            c.say(1, ExchangeDeclare { arguments, ..exchange("own", "direct") });
        },
        "channel 403 40.10 ACCESS_REFUSED - write access to exchange 'direct' in vhost '/' refused for user 'clerk'",
    ),
    (
        "binding another's queue",
        |c| c.say(1, bind("q", "direct")),
        "channel 403 50.20 ACCESS_REFUSED - write access to queue 'q' in vhost '/' refused for user 'clerk'",
    ),
    (
        "binding to an exchange that one may not read",
        |c| c.say(1, bind("own", "headers")),
        "channel 403 50.20 ACCESS_REFUSED - read access to exchange 'headers' in vhost '/' refused for user 'clerk'",
    ),
    (
        "binding an exchange to one that one may not write",
        |c| c.say(1, bind_exchanges("headers", "direct")),
        "channel 403 40.30 ACCESS_REFUSED - write access to exchange 'headers' in vhost '/' refused for user 'clerk'",
    ),
    (
        "taking a binding from another's queue",
        |c| c.say(1, QueueUnbind { queue: "bound".into(), exchange: "direct".into(), ..Default::default() }),
        "channel 403 50.50 ACCESS_REFUSED - write access to queue 'bound' in vhost '/' refused for user 'clerk'",
    ),
    (
        "taking a binding from an exchange that one may not write",
        |c| c.say(1, unbind_exchanges("headers", "direct")),
        "channel 403 40.40 ACCESS_REFUSED - write access to exchange 'headers' in vhost '/' refused for user 'clerk'",
    ),
    (
        "purging",
        |c| c.say(1, QueuePurge { queue: "q".into(), ..Default::default() }),
        "channel 403 50.30 ACCESS_REFUSED - read access to queue 'q' in vhost '/' refused for user 'clerk'",
    ),
    (
        "consuming",
        |c| c.say(1, BasicConsume { queue: "q".into(), ..Default::default() }),
        "channel 403 60.20 ACCESS_REFUSED - read access to queue 'q' in vhost '/' refused for user 'clerk'",
    ),
    (
        "getting a message",
        |c| c.say(1, BasicGet { queue: "q".into(), ..Default::default() }),
        "channel 403 60.70 ACCESS_REFUSED - read access to queue 'q' in vhost '/' refused for user 'clerk'",
    ),
    (
        "publishing",
        |c| c.publish("direct", "k", &BasicProperties::default(), b""),
        "channel 403 60.40 ACCESS_REFUSED - write access to exchange 'direct' in vhost '/' refused for user 'clerk'",
    ),
    (
        "publishing to the default exchange",
        |c| c.publish("", "q", &BasicProperties::default(), b""),
        "channel 403 60.40 ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'clerk'",
    ),
    (
        "publishing with a key that one may not use",
        |c| c.publish("topic", "others.news", &BasicProperties::default(), b""),
        "channel 403 60.40 ACCESS_REFUSED - write access to topic 'others.news' in exchange 'topic' in vhost '/' refused for \
         user 'clerk'",
    ),
];

/// A name that the server gives begins as the client wants, unless it would be one of the system's.
#[test]
fn names_that_the_server_gives() {
    let rabbit = Rabbit::start();
    let mut client = Client::open(rabbit.amqp, "guest");
    for (wanted, begin) in [("shop", "shop-"), ("amq.", "amq.gen-"), ("", "amq.gen-")] {
        let declared = client.ask(1, queue_of("", text("x-name-prefix", wanted)));
        let Method::QueueDeclareOk(declared) = declared else { panic!("{declared:?}") };
        assert!(declared.queue.starts_with(begin.as_bytes()), "{:?}", declared.queue);
    }
}

#[test]
fn exchanges() {
    Rabbit::with_things().check(|to| Client::open(to, "guest"), EXCHANGES);
}

#[test]
fn queues() {
    Rabbit::with_things().check(|to| Client::open(to, "guest"), QUEUES);
}

#[test]
fn as_many_queues_as_a_virtual_host_may_have() {
    let rabbit = Rabbit::start();
    assert_eq!(rabbit.manage("PUT", "vhost-limits/%2F/max-queues", &serde_json::json!({"value": 0})), 204);
    rabbit.check(
        |to| Client::open(to, "guest"),
        &[(
            "one queue too many",
            |c| c.say(1, queue("x")),
            "channel 406 50.10 PRECONDITION_FAILED - cannot declare queue 'x': queue limit in vhost '/' (0) is reached",
        )],
    );
}

#[test]
fn bindings() {
    Rabbit::with_things().check(|to| Client::open(to, "guest"), BINDINGS);
}

#[test]
fn deleting_and_purging() {
    Rabbit::with_things().check(|to| Client::open(to, "guest"), DELETING);
}

#[test]
fn what_a_user_may_not_do() {
    let rabbit = Rabbit::with_things();
    let all = || (rabbit.get("definitions"), rabbit.get("queues/%2F?columns=name,messages"));
    let before = all();
    rabbit.check(|to| Client::open(to, "clerk"), REFUSED);
    assert_eq!(all(), before, "something has changed");
}
