//! What a stream has not.

use super::{Case, Client, Rabbit, queue_of, text};
use polylogue_amqp::codec::*;

/// A channel with a prefetch, and a stream.
fn ready(client: &mut Client, shared: bool) {
    assert!(matches!(client.ask(1, queue_of("s", text("x-queue-type", "stream"))), Method::QueueDeclareOk(_)));
    let qos = BasicQos { prefetch_count: 10, global: shared, ..Default::default() };
    assert!(matches!(client.ask(1, qos), Method::BasicQosOk(_)));
}

fn consume(arguments: TableBuilder) -> BasicConsume {
    BasicConsume { queue: "s".into(), arguments: arguments.build(), ..Default::default() }
}

const STREAMS: &[Case] = &[
    (
        "a consumer without a prefetch",
        |c| {
            c.ask(1, queue_of("s", text("x-queue-type", "stream")));
            c.say(1, consume(TableBuilder::new()));
        },
        "channel 406 60.20 PRECONDITION_FAILED - consumer prefetch count is not set for stream queue 's' in vhost '/'",
    ),
    (
        "a consumer that does not acknowledge",
        |c| {
            ready(c, false);
            c.say(1, BasicConsume { no_ack: true, ..consume(TableBuilder::new()) });
        },
        "connection 540 60.20 NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queue 's' in vhost '/'",
    ),
    (
        "a prefetch that is shared",
        |c| {
            ready(c, false);
            ready(c, true);
            c.say(1, consume(TableBuilder::new()));
        },
        "connection 540 60.20 NOT_IMPLEMENTED - queue 's' in vhost '/' does not support global qos",
    ),
    (
        "an offset that is none",
        |c| {
            ready(c, false);
            c.say(1, consume(text("x-stream-offset", "somewhere")));
        },
        // RabbitMQ's reason for an offset that is none; of a text without a digit at its beginning it says 541 instead.
        "channel 406 60.20 PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue 's' in vhost '/': \
         {invalid_stream_offset_arg,{longstr,<<\"somewhere\">>}}",
    ),
    (
        "getting",
        |c| {
            ready(c, false);
            c.say(1, BasicGet { queue: "s".into(), ..Default::default() });
        },
        "connection 540 60.70 NOT_IMPLEMENTED - basic.get not supported by stream queues queue 's' in vhost '/'",
    ),
    (
        "purging",
        |c| {
            ready(c, false);
            c.say(1, QueuePurge { queue: "s".into(), ..Default::default() });
        },
        "connection 540 50.30 NOT_IMPLEMENTED - queue.purge not supported by stream queues queue 's' in vhost '/'",
    ),
    (
        "a stream that is not durable",
        |c| c.say(1, QueueDeclare { durable: false, ..queue_of("x", text("x-queue-type", "stream")) }),
        "channel 406 50.10 PRECONDITION_FAILED - invalid property 'non-durable' for queue 'x' in vhost '/'",
    ),
    (
        "a stream of one connection",
        |c| c.say(1, QueueDeclare { exclusive: true, ..queue_of("x", text("x-queue-type", "stream")) }),
        "channel 406 50.10 PRECONDITION_FAILED - invalid property 'exclusive-owner' for queue 'x' in vhost '/'",
    ),
];

#[test]
fn what_a_stream_has_not() {
    Rabbit::with_things().check(|to| Client::open(to, "guest"), STREAMS);
}
