//! Connections, and a broker that is killed.

use super::{CLASSIC, Maker, QUORUM, Row, side, sides};
use crate::drive::Driver;
use crate::matrix::{Kind, LATENCY_BATCH, Load, Many, NO_BATCH};

/// Idle connections.
const IDLE: [u32; 2] = [2, 10_000];
/// Producers that share a rate.
const ACTIVE: [u32; 2] = [2, 1_000];
const ACTIVE_RATE: u64 = 5_000;
const KILL_RATE: u64 = 5_000;

pub(super) fn rows(maker: Maker) -> Vec<Row> {
    [idle(maker), active(maker), kills(maker)].concat()
}

fn idle(maker: Maker) -> Vec<Row> {
    let mut rows = Vec::new();
    for count in IDLE {
        let connections = maker.scaled(count, count.min(20));
        let load = Load { connections, groups: 0, ..maker.load(1, LATENCY_BATCH, 0) };
        let queues = maker.queued(load, CLASSIC);
        let mut all = sides(&["polylogue-sync", "kafka", "pulsar", "rocketmq", "tubemq"], load);
        all.extend(side("polylogue-sync-amqp", "polylogue-sync", queues));
        all.extend(side("rabbitmq", "rabbitmq", queues));
        rows.push(maker.once(maker.row("F1", &format!("idle={count}"), Kind::Connections, Driver::Raw, all)));
    }
    rows
}

fn active(maker: Maker) -> Vec<Row> {
    let mut rows = Vec::new();
    for count in ACTIVE {
        let many = Many { producers: maker.scaled(count, count.min(20)), ..Many::default() };
        let load = Load { many, ..maker.load(1, LATENCY_BATCH, ACTIVE_RATE) };
        let queues = maker.queued(Load { batching: NO_BATCH, ..load }, CLASSIC);
        let name = format!("active={count}/rate=5000");
        let row = |driver, sides| maker.once(maker.row("F1", &name, Kind::Latency, driver, sides));
        rows.push(row(Driver::Raw, sides(&["polylogue-sync", "kafka"], load)));
        rows.push(row(Driver::Amqp, sides(&["polylogue-sync", "rabbitmq"], queues)));
        if count == 2 {
            let own = ["polylogue-sync", "kafka", "pulsar", "rocketmq", "tubemq"];
            rows.push(row(Driver::Java, sides(&own, load)));
        }
    }
    rows
}

fn kills(maker: Maker) -> Vec<Row> {
    let load = maker.load(1, LATENCY_BATCH, KILL_RATE);
    let queues = maker.queued(load, QUORUM);
    let own = ["polylogue-sync", "kafka-fsync", "pulsar", "rocketmq-sync", "tubemq"];
    let mut own = sides(&own, load);
    // Acknowledged messages must be a prefix of the sent ones, or a loss cannot be distinguished from a reordered message.
    for side in own.iter_mut().filter(|side| !side.target.system().keeps_order_of_pipelined()) {
        side.load.in_flight = 1;
    }
    let row = |driver, sides| maker.row("F2", "rate=5000", Kind::Kill, driver, sides);
    vec![
        row(Driver::Raw, sides(&["polylogue-sync", "kafka-fsync"], load)),
        row(Driver::Amqp, sides(&["polylogue-sync", "rabbitmq"], queues)),
        maker.once(row(Driver::Java, own)),
    ]
}

#[cfg(test)]
mod tests {
    use crate::matrix::Kind;
    use crate::scenarios::{Length, rows};

    /// Regression test: messages sent after a lost one, and received before it, hid the loss.
    #[test]
    fn a_broker_is_killed_under_messages_that_stay_in_order() {
        for row in rows(Length::FULL).into_iter().filter(|row| row.cell.kind == Kind::Kill) {
            for side in &row.cell.sides {
                let in_order = side.target.system().keeps_order_of_pipelined() || side.load.in_flight == 1;
                assert!(in_order, "{} {}", row.cell.name, side.label);
            }
        }
    }
}
