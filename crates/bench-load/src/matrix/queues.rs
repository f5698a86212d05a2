//! The cells of queues: polylogue's AMQP against RabbitMQ.

use super::{Cell, Kind, Load, NO_BATCH, Scale, against, cell};
use crate::amqp::load::{QueueKind, QueueLoad};
use crate::drive::Driver;
use crate::target::Target;

/// Confirmed one by one, acknowledged by hundreds, as PerfTest's `-c 1000 -q 500 -A 100` does.
const CLASSIC: QueueLoad = QueueLoad {
    kind: QueueKind::Classic,
    durable: true,
    confirms: true,
    prefetch: 500,
    ack_every: 100,
    exchange: None,
};
const QUORUM: QueueLoad = QueueLoad { kind: QueueKind::Quorum, ..CLASSIC };
/// With automatic acknowledgement, like the OpenMessaging Benchmark's driver for RabbitMQ.
const AUTOMATIC: QueueLoad = QueueLoad { prefetch: 0, ack_every: 0, ..CLASSIC };
/// The weakest guarantees.
const TRANSIENT: QueueLoad = QueueLoad { durable: false, confirms: false, ..AUTOMATIC };
/// Unconfirmed messages in flight.
const UNCONFIRMED_MAX: u32 = 1_000;
/// Idle connections, and queues at a start.
const CONNECTIONS: u32 = 1_000;
const QUEUES: u32 = 10_000;
/// The same in a smoke run.
const QUICK_CONNECTIONS: u32 = 50;
const QUICK_QUEUES: u32 = 100;

fn loaded(load: Load, queue: QueueLoad) -> Load {
    Load { queue: Some(queue), groups: 1, batching: NO_BATCH, in_flight: UNCONFIRMED_MAX, ..load }
}

/// Returns all cells of queues, in the order of their runs.
#[must_use]
pub fn cells(scale: Scale) -> Vec<Cell> {
    let both = [Target::PolylogueSync, Target::Rabbitmq];
    let amqp = |kind, name: &str, load| cell(kind, Driver::Amqp, name, against(load, &both));
    // Compared with the client's own floor.
    let all = [Target::PolylogueSync, Target::Rabbitmq, Target::Null];
    let floored = |name: &str, load| cell(Kind::Latency, Driver::Amqp, name, against(load, &all));
    let counted = |queue| loaded(scale.counted(1, NO_BATCH), queue);
    let timed = |rate, queues, queue| loaded(scale.timed(queues, NO_BATCH, rate), queue);
    let mut cells = vec![
        amqp(Kind::Throughput, "queue=classic/confirms", counted(CLASSIC)),
        amqp(Kind::Throughput, "queue=quorum/confirms", counted(QUORUM)),
        amqp(Kind::Throughput, "queue=classic/transient", counted(TRANSIENT)),
    ];
    for rate in [1, 10_000, 20_000, 30_000] {
        cells.push(floored(&format!("rate={rate}/queue=classic"), timed(rate, 1, CLASSIC)));
    }
    cells.extend([
        amqp(Kind::Latency, "rate=10000/queue=classic/automatic", timed(10_000, 1, AUTOMATIC)),
        amqp(Kind::Latency, "rate=10000/queue=quorum", timed(10_000, 1, QUORUM)),
        amqp(Kind::Latency, "rate=10000/queues=100", timed(10_000, 100, CLASSIC)),
    ]);
    let (connections, queues) = if scale.quick { (QUICK_CONNECTIONS, QUICK_QUEUES) } else { (CONNECTIONS, QUEUES) };
    let still = |load: Load| Load { groups: 0, warmup_ms: 0, window_ms: 0, ..load };
    cells.push(amqp(
        Kind::Connections,
        &format!("idle={connections}"),
        Load { connections, ..still(timed(0, 1, CLASSIC)) },
    ));
    cells.push(amqp(Kind::Start, &format!("queues={queues}"), still(timed(0, queues, CLASSIC))));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_cell_has_a_name_of_its_own_and_both_sides() {
        for scale in [Scale::FULL, Scale::QUICK] {
            let cells = cells(scale);
            let names: BTreeSet<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
            assert_eq!(names.len(), cells.len());
            for cell in &cells {
                assert!(cell.name.starts_with(cell.kind.name()) && cell.name.ends_with("client=amqp"), "{}", cell.name);
                let targets: Vec<&Target> = cell.sides.iter().map(|side| &side.target).collect();
                assert_eq!(targets[..2], [&Target::PolylogueSync, &Target::Rabbitmq], "{}", cell.name);
                assert!(cell.sides.iter().all(|side| side.load.queue.is_some()), "{}", cell.name);
                assert!(cell.sides.iter().all(|side| side.load == cell.sides[0].load), "the same load: {}", cell.name);
            }
        }
    }
}
