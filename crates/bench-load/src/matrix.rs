//! The matrix: its cells, the load of each on its sides, and their names. Here the cells against Kafka; [`queues`] has those
//! against RabbitMQ.
//!
//! ```text
//!   cell   latency/rate=10000/partitions=100/client=raw
//!            round 1:   polylogue-sync   kafka   null        each on an empty data directory
//!            round 2:   null   kafka   polylogue-sync        in reverse order: A B B A, against drift
//! ```

pub mod queues;

use crate::amqp::load::QueueLoad;
use crate::contract::Filter;
use crate::drive::Driver;
use crate::error::{BenchError, Result};
use crate::how::{How, WarmUp};
use crate::target::Target;
use serde::{Deserialize, Serialize};

/// Kafka's default batching (batch.size, and linger.ms since version 4).
pub(crate) const DEFAULT_BATCH: Batching =
    Batching { name: "default", bytes: 16_384, linger_us: 5_000, per_request: 32 };
/// Batching for throughput.
pub const LARGE_BATCH: Batching = Batching { name: "1MB-10ms", bytes: 1_000_000, linger_us: 10_000, per_request: 1 };
/// Batching for comparisons of latency.
pub const LATENCY_BATCH: Batching = Batching { name: "128KiB-1ms", bytes: 128 << 10, linger_us: 1_000, per_request: 1 };
/// No batching.
pub const NO_BATCH: Batching = Batching { name: "none", bytes: 1, linger_us: 0, per_request: 1 };
/// Batching of messages of all sizes, pipelined.
pub const PIPELINED: Batching = Batching { name: "128KiB-0ms", bytes: 128 << 10, linger_us: 0, per_request: 1 };
/// Message size of most cells. Bytes.
pub(crate) const KIB: u32 = 1_024;
/// Rate of a cold reader. Bytes per second.
const COLD_BYTES_PER_S: u64 = 200_000_000;
/// The maximum of warm-up and window together: the disk space for a cold reader grows with it.
/// Milliseconds.
const TIME_MS_MAX: u64 = 60 * 60 * 1_000;

/// The batching of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    /// Its name in cells.
    pub name: &'static str,
    /// The maximum size of a batch. Bytes.
    pub bytes: u32,
    /// How long a message may wait for others. Microseconds.
    pub linger_us: u64,
    /// Batches per request of the raw driver, if there are as many partitions.
    pub per_request: u32,
}

impl Batching {
    /// Whether it is the default of Kafka's producer.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == DEFAULT_BATCH
    }
}

/// What a cell measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Processor time per million messages, written and read.
    Cost,
    /// Messages per second.
    Throughput,
    /// Latency at a fixed rate.
    Latency,
    /// Increasing rates, and the highest one that is met.
    Ladder,
    /// Messages per second and latency by message size, sequential or pipelined.
    Size,
    /// Latency while a consumer reads old messages from disk.
    Cold,
    /// The same with messages that may be in the page cache: the time until the reader has caught up.
    Drain,
    /// The broker is killed under load, and restarted.
    Kill,
    /// Memory of idle connections.
    Connections,
    /// Duration of a start with many queues.
    Start,
    /// The machine's bare loops.
    Bare,
}

impl Kind {
    /// Returns the first part of a cell's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Cost => "cost",
            Kind::Throughput => "throughput",
            Kind::Latency => "latency",
            Kind::Ladder => "ladder",
            Kind::Size => "size",
            Kind::Cold => "cold",
            Kind::Drain => "drain",
            Kind::Kill => "kill",
            Kind::Connections => "connections",
            Kind::Start => "start",
            Kind::Bare => "bare",
        }
    }
}

/// Multiple topics, producers, consumers and filters of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Many {
    /// Topics, each with the load's partitions.
    pub topics: u32,
    /// Producers, each with its own connection.
    pub producers: u32,
    /// Readers of each group, likewise.
    pub consumers: u32,
    /// Filtering groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
}

impl Default for Many {
    fn default() -> Many {
        Many { topics: 1, producers: 1, consumers: 1, filter: None }
    }
}

impl Many {
    /// Whether there is one of each.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Many::default()
    }

    /// Describes it; empty if there is one of each.
    #[must_use]
    pub fn describe(&self) -> String {
        if self.is_plain() {
            return String::new();
        }
        let of = |count: u32, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let filter = self.filter.map(|filter| {
            format!(", {} groups want one in {} of {} topics", filter.groups, filter.one_in, filter.topics)
        });
        format!(
            "{}, {}, {} a group{}",
            of(self.topics, "topic"),
            of(self.producers, "producer"),
            of(self.consumers, "reader"),
            filter.unwrap_or_default()
        )
    }
}

/// The load on a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Partitions of the topic.
    pub partitions: u32,
    /// Number of groups with one reader each.
    pub groups: u32,
    /// Messages per second; 0: unlimited.
    pub rate: u64,
    /// Messages of a run by count, and of its warm-up run; 0 for a run by time.
    pub messages: u64,
    /// See `messages`.
    pub warm_messages: u64,
    /// Discarded time of a run by time, 0 for a run by count. Milliseconds.
    pub warmup_ms: u64,
    /// Measured time of a run by time, likewise.
    pub window_ms: u64,
    /// The batching of messages.
    pub batching: Batching,
    /// Requests in flight.
    pub in_flight: u32,
    /// Messages of the backlog, and the rate at which they are read during the run (0: not read). Bytes per second.
    pub backlog: u64,
    /// See `backlog`.
    pub cold_bytes_per_s: u64,
    /// The queue parameters; partitions are queues then.
    pub queue: Option<QueueLoad>,
    /// Whether RabbitMQ's streams are used, with their own client.
    pub stream: bool,
    /// Idle connections.
    pub connections: u32,
    /// Multiple topics, producers, consumers and filters.
    pub many: Many,
    /// How it is measured.
    pub how: How,
}

impl Load {
    /// Whether the lagging reader has idle priority, because the latency of the client beside it, which has a reader at the end of the log, is the
    /// question. They share the client's cores, and the lagging reader reads in bursts. Without a reader at the end, the question is how fast the
    /// backlog is read.
    #[must_use]
    pub fn reader_gives_way(&self) -> bool {
        self.cold_bytes_per_s > 0 && self.groups > 0
    }

    /// Returns the load in a round of a broker's life: in the first one it is warmed until it is steady, in the others it is warm.
    #[must_use]
    pub fn in_round_of_life(self, round: u32) -> Load {
        match (round, self.how.again_warmup_ms) {
            (0 | 1, _) | (_, 0) => self,
            (_, warmup_ms) => Load { warmup_ms, how: How { warm_up: WarmUp::Fixed, ..self.how }, ..self },
        }
    }
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// Its label in the cell.
    pub label: String,
    /// The broker.
    pub target: Target,
    /// Its load.
    pub load: Load,
}

/// A row of the matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Its unique name.
    pub name: String,
    /// What is measured.
    pub kind: Kind,
    /// The client, the same on all sides.
    pub driver: Driver,
    /// The sides; the first one is polylogue's.
    pub sides: Vec<Side>,
}

/// Lengths and sizes of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Whether it is a smoke run.
    pub quick: bool,
    /// Messages of a run by count.
    pub messages: u64,
    /// Messages of its warm-up run.
    pub warm_messages: u64,
    /// Discarded time of a run by time. Milliseconds.
    pub warmup_ms: u64,
    /// Measured time of a run by time. Milliseconds.
    pub window_ms: u64,
}

impl Scale {
    /// The default, for figures.
    pub const FULL: Scale =
        Scale { quick: false, messages: 3_000_000, warm_messages: 2_000_000, warmup_ms: 30_000, window_ms: 60_000 };
    /// A smoke run.
    pub const QUICK: Scale =
        Scale { quick: true, messages: 20_000, warm_messages: 5_000, warmup_ms: 500, window_ms: 2_000 };

    /// Checks that something would be measured.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(self) -> Result<()> {
        if self.messages == 0 {
            return Err(BenchError::new("a run of 0 messages measures nothing: ask for at least 1"));
        }
        if self.window_ms == 0 {
            return Err(BenchError::new("a window of less than 1 ms measures nothing: ask for a longer one"));
        }
        if self.warmup_ms.saturating_add(self.window_ms) > TIME_MS_MAX {
            return Err(BenchError::new(format!(
                "warm-up and window take {} ms together; a run takes at most {TIME_MS_MAX} ms",
                self.warmup_ms.saturating_add(self.window_ms)
            )));
        }
        Ok(())
    }

    fn counted(self, partitions: u32, batching: Batching) -> Load {
        let (messages, warm_messages) = (self.messages, self.warm_messages);
        Load { messages, warm_messages, warmup_ms: 0, window_ms: 0, ..self.timed(partitions, batching, 0) }
    }

    fn timed(self, partitions: u32, batching: Batching, rate: u64) -> Load {
        Load {
            message_bytes: KIB,
            partitions,
            groups: 0,
            rate,
            messages: 0,
            warm_messages: 0,
            warmup_ms: self.warmup_ms,
            window_ms: self.window_ms,
            batching,
            in_flight: 5,
            backlog: 0,
            cold_bytes_per_s: 0,
            queue: None,
            connections: 0,
            stream: false,
            many: Many::default(),
            how: How::default(),
        }
    }
}

fn against(load: Load, targets: &[Target]) -> Vec<Side> {
    targets.iter().map(|target| Side { label: target.name(), target: target.clone(), load }).collect()
}

fn cell(kind: Kind, driver: Driver, rest: &str, sides: Vec<Side>) -> Cell {
    Cell { name: format!("{}/{rest}/client={driver}", kind.name()), kind, driver, sides }
}

/// Returns all cells against Kafka, in the order of their runs.
#[must_use]
pub fn cells(scale: Scale) -> Vec<Cell> {
    let mut cells = vec![Cell { name: "bare".to_owned(), kind: Kind::Bare, driver: Driver::Raw, sides: Vec::new() }];
    cells.extend(costs(scale));
    cells.extend(throughputs(scale));
    cells.extend(latencies(scale));
    cells.extend(own(scale));
    cells.extend(sizes(scale));
    cells
}

fn costs(scale: Scale) -> Vec<Cell> {
    let targets = [Target::PolylogueSync, Target::PolylogueAsync, Target::Kafka];
    let at = |partitions| {
        cell(
            Kind::Cost,
            Driver::Raw,
            &format!("partitions={partitions}"),
            against(scale.counted(partitions, LARGE_BATCH), &targets),
        )
    };
    [1, 100].map(at).into()
}

fn throughputs(scale: Scale) -> Vec<Cell> {
    let targets = [Target::PolylogueSync, Target::Kafka, Target::KafkaFsync, Target::Null];
    let mut cells = Vec::new();
    for driver in [Driver::PerfTest, Driver::Raw] {
        for batching in [DEFAULT_BATCH, LARGE_BATCH] {
            for partitions in [1, 100] {
                let name = format!("partitions={partitions}/batching={}", batching.name);
                cells.push(cell(
                    Kind::Throughput,
                    driver,
                    &name,
                    against(scale.counted(partitions, batching), &targets),
                ));
            }
        }
    }
    cells
}

fn latencies(scale: Scale) -> Vec<Cell> {
    let targets = [Target::PolylogueSync, Target::Kafka, Target::Null];
    let mut cells = Vec::new();
    for driver in [Driver::Raw, Driver::Librdkafka, Driver::Java] {
        for rate in [10_000, 50_000] {
            for partitions in [1, 100, 1_000] {
                let load = Load { groups: 1, ..scale.timed(partitions, LATENCY_BATCH, rate) };
                let name = format!("rate={rate}/partitions={partitions}");
                cells.push(cell(Kind::Latency, driver, &name, against(load, &targets)));
            }
        }
    }
    cells
}

/// Returns the cells that compare polylogue with itself.
fn own(scale: Scale) -> Vec<Cell> {
    let side = |label: &str, load| Side { label: label.to_owned(), target: Target::PolylogueSync, load };
    let load = |partitions| Load { groups: 1, ..scale.timed(partitions, LATENCY_BATCH, 10_000) };
    let groups = |groups| Load { groups, ..load(100) };
    let time_s = (scale.warmup_ms + scale.window_ms).div_ceil(1_000);
    // The reader has enough to read until the end.
    let backlog = if scale.quick { 200_000 } else { COLD_BYTES_PER_S * time_s / u64::from(KIB) };
    let live = Load { backlog, ..load(100) };
    let cold = Load { cold_bytes_per_s: COLD_BYTES_PER_S, ..live };
    let many = vec![side("partitions=10000", load(10_000)), side("partitions=100", load(100))];
    let ten = vec![side("groups=10", groups(10)), side("groups=1", groups(1))];
    let disturbed = vec![side("cold-reader", cold), side("undisturbed", live)];
    vec![
        cell(Kind::Latency, Driver::Raw, "rate=10000/many-partitions", many),
        cell(Kind::Latency, Driver::Raw, "rate=10000/many-groups", ten),
        cell(Kind::Cold, Driver::Raw, "rate=10000/partitions=100", disturbed),
    ]
}

fn sizes(scale: Scale) -> Vec<Cell> {
    let targets = [Target::PolylogueSync, Target::Kafka, Target::Null];
    let mut cells = Vec::new();
    for kib in [1, 10, 100] {
        for (mode, batching, in_flight) in [("blocking", NO_BATCH, 1), ("pipelined", PIPELINED, 5)] {
            let load = Load { message_bytes: kib * KIB, in_flight, ..scale.timed(1, batching, 0) };
            cells.push(cell(Kind::Size, Driver::Raw, &format!("kib={kib}/{mode}"), against(load, &targets)));
        }
    }
    cells
}

/// Returns the sides of a round in order: every second round is reversed.
#[must_use]
pub fn turns(cell: &Cell, round: u32) -> Vec<&Side> {
    let mut sides: Vec<&Side> = cell.sides.iter().collect();
    if round.is_multiple_of(2) {
        sides.reverse();
    }
    sides
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_cell_has_a_name_of_its_own_that_tells_what_it_is() {
        for scale in [Scale::FULL, Scale::QUICK] {
            let cells = cells(scale);
            let names: BTreeSet<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
            assert_eq!(names.len(), cells.len());
            for name in [
                "bare",
                "cost/partitions=100/client=raw",
                "throughput/partitions=1/batching=1MB-10ms/client=perf-test",
                "latency/rate=50000/partitions=1000/client=java",
                "latency/rate=10000/many-partitions/client=raw",
                "cold/rate=10000/partitions=100/client=raw",
                "size/kib=100/blocking/client=raw",
            ] {
                assert!(names.contains(name), "{name} is missing in {names:?}");
            }
            assert_eq!(cells.len(), 1 + 2 + 8 + 18 + 3 + 6);
            for cell in &cells {
                assert!(cell.name.starts_with(cell.kind.name()), "{}", cell.name);
                let labels: BTreeSet<&str> = cell.sides.iter().map(|side| side.label.as_str()).collect();
                assert_eq!(labels.len(), cell.sides.len(), "{}", cell.name);
            }
        }
    }

    #[test]
    fn sides_take_turns() {
        let cells = cells(Scale::QUICK);
        let cost = cells.iter().find(|cell| cell.kind == Kind::Cost).expect("there is one");
        let labels = |round| turns(cost, round).iter().map(|side| side.label.as_str()).collect::<Vec<_>>();
        assert_eq!(labels(1), ["polylogue-sync", "polylogue-async", "kafka"]);
        assert_eq!(labels(2), ["kafka", "polylogue-async", "polylogue-sync"]);
    }

    #[test]
    fn a_run_is_as_long_or_as_large_as_was_asked_for() {
        let scale = Scale { messages: 7, warm_messages: 0, warmup_ms: 1_000, window_ms: 2_500, ..Scale::FULL };
        assert_eq!(scale.check(), Ok(()));
        let mut backlogs = 0;
        for cell in cells(scale) {
            for side in &cell.sides {
                let load = side.load;
                let extent = (load.messages, load.warm_messages, load.warmup_ms, load.window_ms);
                let counted = matches!(cell.kind, Kind::Cost | Kind::Throughput);
                assert_eq!(extent, if counted { (7, 0, 0, 0) } else { (0, 0, 1_000, 2_500) }, "{}", cell.name);
                if load.backlog > 0 {
                    backlogs += 1;
                    assert_eq!(
                        load.backlog,
                        4 * COLD_BYTES_PER_S / 1_024,
                        "enough for four seconds, begun ones included"
                    );
                }
            }
        }
        assert_eq!(backlogs, 2);
    }

    #[test]
    fn a_scale_that_measures_nothing_is_refused() {
        for (bad, said) in [
            (Scale { messages: 0, ..Scale::FULL }, "0 messages"),
            (Scale { window_ms: 0, ..Scale::FULL }, "window"),
            (Scale { warmup_ms: u64::MAX, ..Scale::FULL }, "at most"),
        ] {
            let stated = bad.check().expect_err("it measures nothing").to_string();
            assert!(stated.contains(said), "{stated}");
        }
    }
}
