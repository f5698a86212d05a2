//! Kafka, RocketMQ and RabbitMQ with messages of three sizes, sequential and pipelined.

use super::{CLASSIC, KIB, Maker, Row, side, sides};
use crate::drive::Driver;
use crate::matrix::{Kind, Load, Many, NO_BATCH, PIPELINED, Side};

const PARTITIONS: u32 = 10;
/// Readers per group, if several.
const SEVERAL: u32 = 4;

/// The sides: the vendors' default acknowledges from the page cache, RabbitMQ's queues are durable.
fn compared(maker: Maker, load: Load, tuned: bool) -> Vec<Side> {
    let in_flight = if load.in_flight == 1 { 1 } else { maker.queued(load, CLASSIC).in_flight };
    let queues = Load { in_flight, ..maker.queued(load, CLASSIC) };
    let mut all = sides(&["polylogue-sync", "kafka", "rocketmq"], load);
    all.extend(side("rabbitmq", "rabbitmq", queues));
    if load.many.consumers < SEVERAL && (load.in_flight == 1 || tuned) {
        // RabbitMQ's own client against RabbitMQ. Of the pipelined rows only the first page's: more does not fit into six hours.
        all.extend(side("polylogue-sync-amqp", "polylogue-sync", queues));
    }
    if tuned {
        all.extend(sides(&["kafka-tuned", "rocketmq-tuned"], load));
        all.extend(side("rabbitmq-tuned", "rabbitmq-tuned", queues));
    }
    all
}

pub(super) fn rows(maker: Maker) -> Vec<Row> {
    let mut rows = Vec::new();
    let cases: [(&'static str, u32, bool); 6] =
        [("C1", 1, false), ("C2", 1, true), ("C3", 10, false), ("C4", 10, true), ("C5", 100, false), ("C6", 100, true)];
    for (id, kib, pipelined) in cases {
        let (batching, in_flight, mode) =
            if pipelined { (PIPELINED, 5, "pipelined") } else { (NO_BATCH, 1, "blocking") };
        let load = Load { message_bytes: kib * KIB, in_flight, ..maker.load(PARTITIONS, batching, 0) };
        let name = format!("kib={kib}/{mode}");
        let own = |many: &str, load, tuned| {
            maker.row(id, &format!("{name}{many}"), Kind::Size, Driver::Java, compared(maker, load, tuned))
        };
        let row = own("", load, id == "C2");
        rows.push(match id {
            // The headline.
            "C2" => maker.first(row),
            // The effect of large messages shows in one round; more does not fit into six hours.
            "C4" | "C6" => maker.once(row),
            _ => row,
        });
        if id == "C2" {
            rows.push(maker.row(id, &name, Kind::Size, Driver::Raw, sides(&["polylogue-sync", "kafka"], load)));
        }
        let several = Load { many: Many { consumers: SEVERAL, ..Many::default() }, ..load };
        let row = maker.row(
            "C7",
            &format!("{name}/consumers={SEVERAL}"),
            Kind::Size,
            Driver::Java,
            compared(maker, several, false),
        );
        rows.push(maker.once(row));
    }
    rows
}
