//! The conditions under which a side was measured, as its broker and its client implement them.

use super::system_of;
use crate::amqp::load::{QueueKind, QueueLoad};
use crate::contract::System;
use crate::drive::Driver;
use crate::matrix::{Load, Side};
use crate::results::Conditions;
use crate::target::Target;

/// The minimum linger of Pulsar's and `RocketMQ`'s clients. Microseconds.
const LINGER_US_MIN: u64 = 1_000;

/// Returns when a broker acknowledges messages to such a queue, and when it delivers them.
fn durability(target: &Target, queue: QueueLoad) -> &'static str {
    match (target, queue.kind, queue.confirms) {
        (_, _, false) => "no confirms",
        (Target::PolylogueSync, QueueKind::Classic, _) => "flushed; waiting consumers receive it earlier",
        (Target::PolylogueSync, QueueKind::Quorum, _) => "flushed; consumers receive it after that",
        (Target::Rabbitmq, QueueKind::Classic, _) => {
            "page cache, or acknowledged by a consumer before that; waiting consumers receive it earlier"
        }
        (Target::Rabbitmq, QueueKind::Quorum, _) => "flushed (Raft log of one node); consumers receive it after that",
        _ => target.durability(),
    }
}

/// Returns a client's actual batching: not all support what is requested (see the table of [`crate::contract::Spec`]).
fn actual_batching(driver: Driver, side: &Side) -> String {
    let batching = side.load.batching;
    let lingers = |linger_us: u64| format!("{} bytes, linger {} ms", batching.bytes, linger_us / 1_000);
    match (side.load.queue, system_of(driver, side)) {
        (Some(_), _) | (None, System::Tubemq) => "one by one".to_owned(),
        // The minimum of their clients.
        (None, System::Pulsar | System::Rocketmq) => lingers(batching.linger_us.max(LINGER_US_MIN)),
        (None, _) => lingers(batching.linger_us),
    }
}

/// Returns the conditions of a side.
#[must_use]
pub fn conditions(driver: Driver, side: &Side) -> Conditions {
    let load = side.load;
    Conditions {
        target: side.target.name(),
        durability: match load.queue {
            _ if load.stream => "page cache (a stream)",
            Some(queue) => durability(&side.target, queue),
            None => side.target.durability(),
        }
        .to_owned(),
        client: driver.name().to_owned(),
        batching: actual_batching(driver, side),
        in_flight: load.in_flight,
        message_bytes: load.message_bytes,
        partitions: load.partitions,
        groups: load.groups,
        rate: load.rate,
        warm_messages: load.warm_messages,
        messages: load.messages,
        warmup_ms: load.warmup_ms,
        window_ms: load.window_ms,
        queue: load.queue,
        warm_up: load.how.warm_up(load.warmup_ms),
        pinning: pinning(&load),
        client_cores: load.how.pinning.split().map_or(0, |split| split.client.len() as u64),
        flush_delay_ms: load.how.flush_delay_ms,
        memory: load.how.memory(),
        ladder: load.how.ladder.map(|ladder| ladder.to_string()).unwrap_or_default(),
        many: load.many,
        backlog: load.backlog,
        cold_bytes_per_s: load.cold_bytes_per_s,
        connections: u64::from(load.connections),
    }
}
/// Returns the cores, and whether a lagging reader uses those the client leaves idle.
fn pinning(load: &Load) -> String {
    let cores = load.how.pinning.describe();
    if load.reader_gives_way() { format!("{cores}, of which the reader far behind has what is left") } else { cores }
}
