//! "Benchmarking Kafka, Pulsar and RabbitMQ": peak throughput, batches, flushes, latency, queues.

use super::{CLASSIC, KIB, Maker, QUORUM, Row, UNBOUNDED_BYTES_PER_S, side, sides};
use crate::amqp::load::{Exchange, QueueLoad};
use crate::drive::Driver;
use crate::how::{How, Pinning};
use crate::matrix::{Batching, Kind, LARGE_BATCH, LATENCY_BATCH, Load, Many, NO_BATCH};

/// The rates of A1; this machine has less by a factor: 2 cores for broker and client instead of 56.
const PEAK: &[u64] = &[10_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];
const PEAK_PER_MILLE: u64 = 250;
/// A1's queues: not durable, without confirms and acknowledgements.
const WEAK: QueueLoad = QueueLoad { durable: false, confirms: false, prefetch: 0, ack_every: 0, ..CLASSIC };
const QUEUES: u32 = 24;
/// A4 needs rates that every system can meet. With the raw driver that is an eighth of 200,000; on all cores, which clients and broker share, a
/// sixteenth; with librdkafka a fortieth; and a quarter of the 30,000 of queues. Above, a core for the broker and one for the client were not
/// enough for most. Four producers and four consumers in Java keep one core busy at any rate: there is one of each, at a two-hundredth.
const RAW_RATE: u64 = 25_000;
const SHARED_RATE: u64 = 12_500;
const NATIVE_RATE: u64 = 5_000;
const OWN_RATE: u64 = 1_000;
const QUEUE_RATE: u64 = 7_500;
const ONE: Many = Many { topics: 1, producers: 1, consumers: 1, filter: None };
const FOUR: Many = Many { topics: 1, producers: 4, consumers: 4, filter: None };
const BATCHES: [Batching; 4] = [
    Batching { name: "1KB", bytes: 1_000, linger_us: 10_000, per_request: 1 },
    Batching { name: "10KB", bytes: 10_000, linger_us: 10_000, per_request: 1 },
    Batching { name: "100KB", bytes: 100_000, linger_us: 10_000, per_request: 1 },
    LARGE_BATCH,
];

pub(super) fn rows(maker: Maker) -> Vec<Row> {
    [peaks(maker), batches(maker), latencies(maker), conditions(maker), queues(maker), phases(maker), routing(maker)]
        .concat()
}

fn peaks(maker: Maker) -> Vec<Row> {
    let load = Load { many: FOUR, ..maker.load(100, LARGE_BATCH, 0) };
    let peak = maker.laddered(load, PEAK, PEAK_PER_MILLE);
    let weak = maker.laddered(maker.queued(Load { many: FOUR, ..maker.load(QUEUES, NO_BATCH, 0) }, WEAK), PEAK, 50);
    let row = |id, name, driver, sides| maker.row(id, name, Kind::Ladder, driver, sides);
    let logs = ["polylogue-sync", "kafka", "kafka-tuned"];
    let own = ["polylogue-async", "kafka", "pulsar-nosync"];
    let flushed = ["polylogue-sync", "kafka-fsync"];
    vec![
        row("A1", "durability=async", Driver::Raw, sides(&logs, peak)),
        maker.once(row("A1", "durability=async", Driver::Java, sides(&own, peak))),
        maker.once(row(
            "A1",
            "durability=sync",
            Driver::Java,
            sides(&["polylogue-sync", "kafka-fsync", "pulsar"], peak),
        )),
        maker.once(row("A1", "queues=24", Driver::Amqp, sides(&["polylogue-sync", "rabbitmq"], weak))),
        maker.once(row("A3", "durability=sync", Driver::Raw, sides(&flushed, peak))),
        // A broker that cannot flush each message is compared with its own flush setting.
        {
            let mut compared = sides(&["polylogue-sync", "kafka-fsync", "pulsar"], maker.load(100, LARGE_BATCH, 0));
            let confirmed = maker.queued(maker.load(QUEUES, NO_BATCH, 0), QUORUM);
            compared.extend(side("rabbitmq-quorum", "rabbitmq", confirmed));
            maker.row("A3", "unpaced/durability=sync", Kind::Size, Driver::Java, compared)
        },
    ]
}

/// The cost of more batches if each is flushed.
fn batches(maker: Maker) -> Vec<Row> {
    let mut rows = Vec::new();
    for batching in BATCHES {
        let load = Load { groups: 0, ..maker.load(100, batching, 0) };
        let name = |durability| format!("batch={}/durability={durability}", batching.name);
        let row = |durability, driver, who| maker.row("A2", &name(durability), Kind::Size, driver, sides(who, load));
        let is_end = batching == BATCHES[0] || batching == LARGE_BATCH;
        let flushed = row("sync", Driver::Raw, &["polylogue-sync", "kafka-fsync"]);
        rows.push(if is_end { flushed } else { maker.once(flushed) });
        // Without flushes, and with own clients, only the minimum and the maximum.
        if is_end {
            rows.push(row("async", Driver::Raw, &["polylogue-async", "kafka"]));
            // The raw client's rows decide; more does not fit into six hours.
            rows.push(maker.once(row("sync", Driver::Java, &["polylogue-sync", "kafka-fsync", "pulsar"])));
        }
    }
    // Queues have no batches: one row without.
    let queues = maker.queued(Load { groups: 1, ..maker.load(QUEUES, NO_BATCH, 0) }, CLASSIC);
    rows.push(maker.row("A2", "batch=none", Kind::Size, Driver::Amqp, sides(&["polylogue-sync", "rabbitmq"], queues)));
    rows
}

fn latencies(maker: Maker) -> Vec<Row> {
    let load = Load { many: FOUR, ..maker.load(100, LATENCY_BATCH, RAW_RATE) };
    let native_load = maker.with_far_tail(Load { rate: maker.rate(NATIVE_RATE), ..load });
    let own_load = maker.with_tail(Load { many: ONE, rate: maker.rate(OWN_RATE), ..load });
    let queues = maker.queued(maker.load(1, NO_BATCH, QUEUE_RATE), CLASSIC);
    let row = |name, driver, sides| maker.row("A4", name, Kind::Latency, driver, sides);
    let logs = ["polylogue-sync", "kafka", "kafka-tuned", "null"];
    let own = ["polylogue-sync", "kafka-fsync", "pulsar"];
    let native = ["polylogue-sync", "kafka", "kafka-fsync"];
    let unflushed = ["polylogue-async", "kafka", "pulsar-nosync"];
    vec![
        maker.first(row("rate=25000/durability=async", Driver::Raw, sides(&logs, load))),
        row("rate=1000/durability=sync", Driver::Java, sides(&own, own_load)),
        row("rate=25000/durability=sync", Driver::Raw, sides(&["polylogue-sync", "kafka-fsync", "null"], load)),
        row("rate=5000", Driver::Librdkafka, sides(&native, native_load)),
        row("rate=1000/durability=async", Driver::Java, sides(&unflushed, own_load)),
        maker.first(row(
            "rate=7500/queue=classic",
            Driver::Amqp,
            sides(&["polylogue-sync", "rabbitmq", "rabbitmq-tuned", "null"], queues),
        )),
    ]
}

/// The same on all cores, and with flushes as slow as those of a disk without a write cache.
fn conditions(maker: Maker) -> Vec<Row> {
    let load = Load { many: FOUR, ..maker.load(100, LATENCY_BATCH, SHARED_RATE) };
    let slow = Load { how: How { flush_delay_ms: 2, ..load.how }, many: ONE, rate: maker.rate(OWN_RATE), ..load };
    let slow = maker.with_tail(slow);
    let free = maker.with_far_tail(Load { how: How { pinning: Pinning::Unpinned, ..load.how }, ..load });
    let queues = maker.queued(maker.load(1, NO_BATCH, QUEUE_RATE), CLASSIC);
    let slow_queues = maker.with_far_tail(Load { how: How { flush_delay_ms: 2, ..queues.how }, ..queues });
    let row = |name, driver, sides| maker.row("A4", name, Kind::Latency, driver, sides);
    let flushed = ["polylogue-sync", "kafka-fsync", "pulsar", "rocketmq-sync"];
    let native = ["polylogue-sync", "kafka", "kafka-fsync"];
    vec![
        maker.once(row("rate=12500/unpinned", Driver::Raw, sides(&native, free))),
        row("rate=1000/flush=2ms", Driver::Java, sides(&flushed, slow)),
        row("rate=7500/flush=2ms/queue=classic", Driver::Amqp, sides(&["polylogue-sync", "rabbitmq"], slow_queues)),
    ]
}

fn queues(maker: Maker) -> Vec<Row> {
    let mut rows = Vec::new();
    for rate in [5_000, 10_000, 20_000] {
        for (name, queue) in [("classic", CLASSIC), ("quorum", QUORUM)] {
            // Replicated queues are overloaded at the higher rates: the lowest one suffices.
            if queue == QUORUM && rate != 5_000 {
                continue;
            }
            let load = maker.for_far_tail(maker.queued(maker.load(1, NO_BATCH, rate), queue));
            let sides = sides(&["polylogue-sync", "rabbitmq"], load);
            rows.push(maker.row("A5", &format!("rate={rate}/queue={name}"), Kind::Latency, Driver::Amqp, sides));
        }
    }
    rows
}

/// Producers only, readers only, and late readers.
fn phases(maker: Maker) -> Vec<Row> {
    let messages = maker.scaled(500_000, 5_000);
    let counted = |batching| Load {
        messages,
        warm_messages: messages / 2,
        groups: 0,
        warmup_ms: 0,
        window_ms: 0,
        ..maker.load(100, batching, 0)
    };
    let logs = counted(LARGE_BATCH);
    let backlog = maker.scaled(2_000_000, 5_000);
    let drain =
        Load { backlog, cold_bytes_per_s: UNBOUNDED_BYTES_PER_S, groups: 0, ..maker.load(100, LATENCY_BATCH, 10_000) };
    let queue_backlog = maker.scaled(200_000, 2_000);
    let queues = maker.queued(
        Load {
            backlog: queue_backlog,
            cold_bytes_per_s: UNBOUNDED_BYTES_PER_S,
            groups: 0,
            ..maker.load(1, NO_BATCH, 2_000)
        },
        CLASSIC,
    );
    let alone = maker.queued(Load { groups: 0, ..maker.load(1, NO_BATCH, 0) }, CLASSIC);
    vec![
        maker.row("A6", "apart", Kind::Cost, Driver::Raw, sides(&["polylogue-sync", "kafka"], logs)),
        maker.row("A6", "producers-only", Kind::Size, Driver::Amqp, sides(&["polylogue-sync", "rabbitmq"], alone)),
        maker.row("A6", "drain", Kind::Drain, Driver::Raw, sides(&["polylogue-sync", "kafka"], drain)),
        maker.once(maker.row(
            "A6",
            "drain",
            Kind::Drain,
            Driver::Java,
            sides(&["polylogue-sync", "kafka", "pulsar"], drain),
        )),
        maker.row("A6", "drain", Kind::Drain, Driver::Amqp, sides(&["polylogue-sync", "rabbitmq"], queues)),
    ]
}

fn routing(maker: Maker) -> Vec<Row> {
    let row = |(name, exchange)| {
        let load = Load { message_bytes: KIB, ..maker.load(100, NO_BATCH, 0) };
        let load = maker.queued(load, QueueLoad { exchange: Some(exchange), ..CLASSIC });
        let sides = sides(&["polylogue-sync", "rabbitmq"], load);
        maker.row("A7", &format!("exchange={name}"), Kind::Size, Driver::Amqp, sides)
    };
    [("direct", Exchange::Direct), ("topic", Exchange::Topic)].map(row).into()
}
