//! "Kafka vs RabbitMQ performance": small messages, with the rate raised until the broker fails.

use super::{CLASSIC, Maker, Row, side, sides};
use crate::drive::Driver;
use crate::matrix::{Kind, LATENCY_BATCH, Load, NO_BATCH};

/// Approximate size of their messages with device, address, version and time. Bytes.
const SMALL_BYTES: u32 = 100;
/// Published rates at which a side's processor is full or fails.
const RAMP: &[u64] = &[5_000, 15_000, 33_000, 70_000, 135_000, 230_000];
/// Those on the first page: RabbitMQ at low rates, full, and with time-outs. Kafka's limit is in the ramp: a Java client reaches its own before.
const MARKS: &[u64] = &[5_000, 15_000, 33_000];
const STREAMS: &[u64] = &[5_000, 12_000, 50_000, 100_000, 135_000, 272_000];

pub(super) fn rows(maker: Maker) -> Vec<Row> {
    let small = |batching| Load { message_bytes: SMALL_BYTES, ..maker.load(1, batching, 0) };
    let logs = maker.laddered(small(LATENCY_BATCH), RAMP, 1_000);
    let queues = maker.laddered(maker.queued(small(NO_BATCH), CLASSIC), RAMP, 500);
    let streams = maker.laddered(small(LATENCY_BATCH), STREAMS, 1_000);
    let row = |id, name, driver, sides| maker.row(id, name, Kind::Ladder, driver, sides);
    let mark = |load| maker.marked(load, MARKS);
    let own_queues = mark(maker.queued(small(NO_BATCH), CLASSIC));
    let mut classic = sides(&["polylogue-sync", "kafka", "kafka-tuned"], mark(small(LATENCY_BATCH)));
    classic.extend(side("polylogue-sync-amqp", "polylogue-sync", own_queues));
    classic.extend(side("rabbitmq", "rabbitmq", own_queues));
    classic.extend(side("rabbitmq-tuned", "rabbitmq-tuned", own_queues));
    let mut beside = sides(&["polylogue-sync", "kafka"], streams);
    beside.extend(side("rabbitmq-stream", "rabbitmq", Load { stream: true, ..streams }));
    vec![
        row("B1", "marks", Driver::Java, classic),
        maker.once(row("B1", "ramp", Driver::Amqp, sides(&["polylogue-sync", "rabbitmq"], queues))),
        maker.once(row("B1", "ramp", Driver::Raw, sides(&["polylogue-sync", "polylogue-async", "kafka"], logs))),
        maker.once(row("B2", "ramp", Driver::Java, beside)),
    ]
}
