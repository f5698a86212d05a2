//! The scenarios of the published comparisons, by id, and the cells that run them.
//!
//! ```text
//!   Scenario  A4: what it shows, the published setting and figures, the setting here and its factors     texts
//!      |
//!     Row     A4/rate=25000/durability=async/client=raw      rounds, on the first page or not            a, b, c, d, e, f
//!      |
//!     Side    polylogue-sync, kafka, kafka-tuned, null       a target with its load
//! ```
//!
//! Common to all rows:
//! - Brokers that acknowledge after a flush are compared with each other (`durability=sync`), and so are those that do not
//!   (`durability=async`); polylogue with its flush is in both.
//! - With `client=raw`, `amqp` or `librdkafka` the client is the same on all sides; with `client=java` each system has its own official one,
//!   and polylogue has Kafka's, or RabbitMQ's if its label says so.
//! - Broker and client have separate cores, except in rows named `unpinned` and in smoke runs.
//! - The profile `tuned` is run in the rows of the first page.

mod a;
mod b;
mod c;
mod d;
mod e;
mod f;
mod floors;
mod texts;

pub use texts::{NOT_RUN, NotRunHere, SCENARIOS, Scenario, Texts, TextsOf, not_run};

use crate::amqp::load::{QueueKind, QueueLoad};
use crate::cgroup::COLD_FACTOR;
use crate::drive::Driver;
use crate::host::memory_bytes;
use crate::how::{How, Pinning, WarmUp};
use crate::ladder::Ladder;
use crate::matrix::{Batching, Cell, Kind, LATENCY_BATCH, Load, Many, NO_BATCH, Side};
use crate::plan::of_row;
use crate::run::lives::stay_together;
use crate::steady::Steadiness;
use crate::target::Target;

/// Rounds of a row of the first page, of another one, and of one that takes minutes or repeats the question of another.
pub const FIRST_PAGE_ROUNDS: u32 = 5;
pub const ROUNDS: u32 = 3;
pub const SLOW_ROUNDS: u32 = 1;
/// The memory limit of brokers with cold readers, page cache included. Bytes.
pub const COLD_MEMORY_BYTES: u64 = 3 << 30;
/// The maximum warm-up before the lowest rate of a ladder: its steps continue to warm. Milliseconds.
const LADDER_WARMUP_MS_MAX: u64 = 40_000;
/// The maximum that the brokers of a cell may write in all its rounds if they stay up. Bytes.
const STAY_BYTES_MAX: u64 = 24 << 30;
/// Unconfirmed messages to queues.
const UNCONFIRMED_MAX: u32 = 1_000;
/// Number of messages for which p99.9 is given: a hundred are beyond it.
const P999_MESSAGES: u64 = 100_000;
/// The same for p99.
const P99_MESSAGES: u64 = 10_000;
/// The maximum number of partitions of a topic in a smoke run: their creation takes most of its time.
const QUICK_PARTITIONS_MAX: u32 = 10;
/// Message size of most rows. Bytes.
const KIB: u32 = 1_024;
/// The rate of an unlimited lagging reader: more than any disk. Bytes per second.
const UNBOUNDED_BYTES_PER_S: u64 = 1 << 40;

/// Durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// Whether it is a smoke run.
    pub quick: bool,
    /// The maximum warm-up and the window of a row of the first page. Milliseconds.
    pub first_page: (u64, u64),
    /// The same for the others.
    pub other: (u64, u64),
    /// The maximum warm-ups, of the first page and of the others, if brokers cannot stay up for the rounds of their row: every round has
    /// one.
    pub apart: (u64, u64),
    /// The warm-ups of further rounds if they stay up, likewise.
    pub again: (u64, u64),
    /// A step of a ladder with its warm-up, and that warm-up.
    pub step: (u64, u64),
}

impl Length {
    /// The full length.
    pub const FULL: Length = Length {
        quick: false,
        first_page: (60_000, 10_000),
        other: (4_000, 5_000),
        apart: (6_000, 3_000),
        again: (5_000, 3_000),
        step: (4_000, 1_000),
    };
    /// A smoke run.
    pub const QUICK: Length = Length {
        quick: true,
        first_page: (100, 600),
        other: (100, 600),
        apart: (100, 100),
        again: (0, 0),
        step: (500, 100),
    };
}

/// A cell with its number of rounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The scenario's id.
    pub id: &'static str,
    /// The cell.
    pub cell: Cell,
    /// Whether it is on the first page.
    pub first_page: bool,
    /// Rounds.
    pub rounds: u32,
}

/// Labels and targets of sides.
type Who<'a> = &'a [&'a str];

/// Makes rows.
#[derive(Debug, Clone, Copy)]
struct Maker {
    length: Length,
}

impl Maker {
    fn how(self) -> How {
        let warm_up = if self.length.quick { WarmUp::Fixed } else { WarmUp::Steady(Steadiness::SHORT) };
        // A smoke run has no figures that a neighbour on the same core could spoil, and JVMs start twice as fast on two cores.
        let pinning = self.scaled(Pinning::Split, Pinning::Unpinned);
        How { warm_up, pinning, ..How::default() }
    }

    /// A load of 1 KiB messages read by one group, by time.
    fn load(self, partitions: u32, batching: Batching, rate: u64) -> Load {
        let (warmup_ms, window_ms) = self.length.other;
        Load {
            message_bytes: KIB,
            partitions: self.scaled(partitions, partitions.min(QUICK_PARTITIONS_MAX)),
            groups: 1,
            rate: self.rate(rate),
            messages: 0,
            warm_messages: 0,
            warmup_ms,
            window_ms,
            batching,
            in_flight: 5,
            backlog: 0,
            cold_bytes_per_s: 0,
            queue: None,
            stream: false,
            connections: 0,
            many: Many::default(),
            how: self.how(),
        }
    }

    /// Limits the rate in a smoke run, which shows that a row starts, and not that its rate is met.
    fn rate(self, rate: u64) -> u64 {
        if self.length.quick { rate.min(1_000) } else { rate }
    }

    /// Chooses a smaller count for a smoke run.
    fn scaled<T>(self, full: T, quick: T) -> T {
        if self.length.quick { quick } else { full }
    }

    fn ladder(self, published: &'static [u64], scale_per_mille: u64) -> Option<Ladder> {
        let (step_ms, step_warmup_ms) = self.length.step;
        let published = if self.length.quick { published.get(..2).unwrap_or(published) } else { published };
        let (scale_per_mille, search_steps) = if self.length.quick { (50, 0) } else { (scale_per_mille, 2) };
        Some(Ladder { published, scale_per_mille, step_ms, step_warmup_ms, search_steps })
    }

    fn laddered(self, load: Load, published: &'static [u64], scale_per_mille: u64) -> Load {
        Load { how: How { ladder: self.ladder(published, scale_per_mille), ..load.how }, ..load }
    }

    /// Restricts the load to these rates.
    fn marked(self, load: Load, published: &'static [u64]) -> Load {
        let ladder = self.ladder(published, 1_000).map(|ladder| Ladder { search_steps: 0, ..ladder });
        Load { how: How { ladder, ..load.how }, ..load }
    }

    /// Extends a window that has exactly the number of messages for p99.9 by a second: one less, and it would be missing.
    fn for_far_tail(self, load: Load) -> Load {
        let messages = load.rate * load.window_ms / 1_000;
        let second_ms = if messages == P999_MESSAGES { 1_000 } else { 0 };
        Load { window_ms: load.window_ms + second_ms, ..load }
    }

    /// Extends the window to more than the messages for p99.
    fn with_tail(self, load: Load) -> Load {
        self.with_messages(load, P99_MESSAGES)
    }

    /// Extends the window to more than the messages for p99.9, if that is wanted.
    fn with_far_tail(self, load: Load) -> Load {
        self.with_messages(load, P999_MESSAGES)
    }

    fn with_messages(self, load: Load, messages: u64) -> Load {
        let wanted_ms = (messages * 1_000).div_ceil(load.rate.max(1)) + 1_000;
        Load { window_ms: self.scaled(load.window_ms.max(wanted_ms), load.window_ms), ..load }
    }

    /// Uses queues.
    fn queued(self, load: Load, queue: QueueLoad) -> Load {
        Load { queue: Some(queue), batching: NO_BATCH, in_flight: UNCONFIRMED_MAX, ..load }
    }

    /// A row with three rounds.
    fn row(self, id: &'static str, name: &str, kind: Kind, driver: Driver, sides: Vec<Side>) -> Row {
        let name =
            if name.is_empty() { format!("{id}/client={driver}") } else { format!("{id}/{name}/client={driver}") };
        let rounds = if self.length.quick { 1 } else { ROUNDS };
        Row { id, cell: Cell { name, kind, driver, sides }, first_page: false, rounds }
    }

    /// Puts the row on the first page: longer, with more rounds.
    fn first(self, mut row: Row) -> Row {
        let (warmup_ms, window_ms) = self.length.first_page;
        for side in &mut row.cell.sides {
            (side.load.warmup_ms, side.load.window_ms) = (warmup_ms, side.load.window_ms.max(window_ms));
            if row.cell.kind == Kind::Latency && row.cell.driver.is_native() {
                side.load = self.with_far_tail(side.load);
            }
        }
        Row { first_page: true, rounds: if self.length.quick { 1 } else { FIRST_PAGE_ROUNDS }, ..row }
    }

    /// Keeps the row's brokers up for all its rounds if possible; otherwise each round warms up its own broker. A ladder with several rounds is
    /// warmed up like a row of the first page, but is not one: five rounds of its steps take too long.
    fn warmed(self, mut row: Row, memory_bytes: u64) -> Row {
        let is_long = row.first_page || (row.cell.kind == Kind::Ladder && row.rounds > SLOW_ROUNDS);
        if is_long {
            row.cell.sides.iter_mut().for_each(|side| side.load.warmup_ms = self.length.first_page.0);
        }
        let of = |(first, other): (u64, u64)| if is_long { first } else { other };
        let (again_ms, apart_ms) = (of(self.length.again), of(self.length.apart));
        let mut together = row.clone();
        for side in &mut together.cell.sides {
            let load = &mut side.load;
            load.how.again_warmup_ms = again_ms;
            if is_long {
                load.how.warm_up = WarmUp::Steady(Steadiness::FULL);
            }
            if row.cell.kind == Kind::Ladder {
                load.warmup_ms = load.warmup_ms.min(LADDER_WARMUP_MS_MAX);
            }
            if side.target == Target::Null {
                // It has nothing to warm, and the client is new in each round anyway.
                *load = Load { how: How { again_warmup_ms: 0, ..load.how }, ..load.in_round_of_life(2) };
            }
        }
        let stay = row.rounds > 1 && stay_together(row.cell.kind, &row.cell.sides, memory_bytes);
        if stay && of_row(&together, false).disk_bytes <= STAY_BYTES_MAX {
            return together;
        }
        let mut apart = row;
        for side in &mut apart.cell.sides {
            side.load.warmup_ms = side.load.warmup_ms.min(apart_ms);
        }
        apart
    }

    /// Runs the row once, because it takes minutes.
    fn once(self, row: Row) -> Row {
        Row { rounds: SLOW_ROUNDS, ..row }
    }
}

/// Returns sides on these targets, all with one load.
fn sides(names: Who<'_>, load: Load) -> Vec<Side> {
    names.iter().flat_map(|name| side(name, name, load)).collect()
}

/// Returns one side. An unknown target yields none; a test checks that there are none.
fn side(label: &str, target: &str, load: Load) -> Option<Side> {
    let target: Target = target.parse().ok()?;
    Some(Side { label: label.to_owned(), target, load })
}

/// Queues comparable in every broker: durable, confirmed one by one, acknowledged by hundreds.
const CLASSIC: QueueLoad = QueueLoad {
    kind: QueueKind::Classic,
    durable: true,
    confirms: true,
    prefetch: 500,
    ack_every: 100,
    exchange: None,
};
const QUORUM: QueueLoad = QueueLoad { kind: QueueKind::Quorum, ..CLASSIC };

/// Returns the number of messages of four times the memory limit. Bytes.
fn cold_messages(memory_bytes: u64, message_bytes: u32) -> u64 {
    COLD_FACTOR * memory_bytes / u64::from(message_bytes) + 1
}

/// Returns all rows in the order of their runs, for this machine.
#[must_use]
pub fn rows(length: Length) -> Vec<Row> {
    rows_with(length, memory_bytes())
}

/// Returns all rows for a machine with this much memory.
#[must_use]
pub fn rows_with(length: Length, memory_bytes: u64) -> Vec<Row> {
    let maker = Maker { length };
    let bare = Cell { name: "bare".to_owned(), kind: Kind::Bare, driver: Driver::Raw, sides: Vec::new() };
    let rounds = if length.quick { 1 } else { ROUNDS };
    let mut rows = vec![Row { id: "bare", cell: bare, first_page: true, rounds }, flushes(maker)];
    rows.extend([a::rows(maker), b::rows(maker), c::rows(maker)].concat());
    rows.extend([d::rows(maker), e::rows(maker), f::rows(maker)].concat());
    rows.extend(floors::rows(maker, &rows));
    if length.quick { rows } else { rows.into_iter().map(|row| maker.warmed(row, memory_bytes)).collect() }
}

/// The flushes of each broker, observed: a short separate run, in which every call is counted. Tuned profiles except TubeMQ's are left out: they
/// flush like their default profiles (benches/results/flushes-profiles.jsonl).
fn flushes(maker: Maker) -> Row {
    let load = maker.load(1, LATENCY_BATCH, 5_000);
    // Only the separate run counts.
    let load = Load { how: How { trace_flushes: true, ..load.how }, warmup_ms: 1_000, window_ms: 1_000, ..load };
    let logs = [
        "polylogue-sync",
        "polylogue-async",
        "kafka",
        "kafka-fsync",
        "pulsar",
        "pulsar-nosync",
        "rocketmq",
        "rocketmq-sync",
        "tubemq",
        "tubemq-tuned",
    ];
    let mut compared = sides(&logs, load);
    let (classic, quorum) = (maker.queued(load, CLASSIC), maker.queued(load, QUORUM));
    compared.extend(side("polylogue-sync-amqp", "polylogue-sync", classic));
    compared.extend(side("rabbitmq", "rabbitmq", classic));
    compared.extend(side("rabbitmq-quorum", "rabbitmq", quorum));
    compared.extend(side("rabbitmq-stream", "rabbitmq", Load { stream: true, ..load }));
    // In a smoke run one broker of each system is started once more for that.
    let traced = ["polylogue-sync", "kafka", "pulsar", "rocketmq", "tubemq", "polylogue-sync-amqp", "rabbitmq"];
    for side in &mut compared {
        side.load.how.trace_flushes = maker.scaled(true, traced.contains(&side.label.as_str()));
    }
    maker.once(maker.row("flushes", "rate=5000", Kind::Latency, Driver::Java, compared))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn every_row_has_a_name_of_its_own_that_begins_with_its_scenario() {
        for length in [Length::FULL, Length::QUICK] {
            let rows = rows(length);
            let names: BTreeSet<&str> = rows.iter().map(|row| row.cell.name.as_str()).collect();
            assert_eq!(names.len(), rows.len());
            for row in &rows {
                assert_eq!(row.cell.name.split('/').next(), Some(row.id), "{}", row.cell.name);
                let labels: BTreeSet<&str> = row.cell.sides.iter().map(|side| side.label.as_str()).collect();
                assert_eq!(labels.len(), row.cell.sides.len(), "{}", row.cell.name);
                if row.cell.kind != Kind::Bare {
                    let is_floor = row.id == floors::ID && labels == BTreeSet::from(["null"]);
                    assert!(is_floor || labels.iter().any(|label| label.starts_with("polylogue")), "{}", row.cell.name);
                    assert!(row.cell.name.contains("/client="), "{}", row.cell.name);
                }
                assert!(SCENARIOS.iter().any(|scenario| scenario.id == row.id), "{} is not stated", row.id);
            }
        }
    }

    /// The matrix at the head of the scenarios; substitutes of a system are measured under their own name.
    #[test]
    fn every_system_of_the_matrix_takes_part() {
        let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for row in rows(Length::FULL) {
            let systems =
                row.cell.sides.iter().map(|side| side.target.name().split('-').next().unwrap_or("").to_owned());
            found.entry(row.id).or_default().extend(systems);
        }
        for scenario in SCENARIOS.iter().filter(|scenario| scenario.not_run.is_empty()) {
            let here = found.get(scenario.id).cloned().unwrap_or_default();
            for system in scenario.systems {
                let is_known = system.parse::<Target>().is_ok();
                let excused = NOT_RUN.iter().any(|not| not.what == scenario.id && not.target == *system);
                assert!(!is_known || excused || here.contains(*system), "{system} is missing in {}", scenario.id);
            }
        }
        for id in ["F3", "F4", "F5"] {
            let scenario = SCENARIOS.iter().find(|scenario| scenario.id == id).expect("it is stated");
            assert!(!scenario.not_run.is_empty() && !found.contains_key(id), "{id}");
        }
    }

    /// Regression test: 20,000 per second for 5 s: a message due a moment before the window made p99.9 missing.
    #[test]
    fn no_row_has_just_the_messages_of_its_far_tail() {
        let native = rows(Length::FULL);
        for row in native.iter().filter(|row| row.cell.driver.is_native() && row.cell.kind == Kind::Latency) {
            for load in row.cell.sides.iter().map(|side| side.load) {
                assert_ne!(load.rate * load.window_ms / 1_000, P999_MESSAGES, "{}", row.cell.name);
            }
        }
    }

    #[test]
    fn the_report_knows_the_cells_of_the_first_page() {
        let first: Vec<String> =
            rows(Length::FULL).into_iter().filter(|row| row.first_page).map(|row| row.cell.name).collect();
        assert_eq!(first, crate::report::score::FIRST_PAGE_CELLS);
    }

    /// Regression test: 5,000 per second for 5 s gave no p99.9 for rows whose published figures have one.
    #[test]
    fn rows_that_ask_for_the_far_tail_are_long_enough_for_it() {
        let native = rows(Length::FULL).into_iter().filter(|row| row.cell.driver.is_native());
        let asked = native.filter(|row| ["A4", "D4", "D6", "D8"].contains(&row.id));
        let mut count = 0;
        for row in asked.filter(|row| matches!(row.cell.kind, Kind::Latency | Kind::Cold)) {
            for load in row.cell.sides.iter().map(|side| side.load) {
                assert!(load.rate * load.window_ms / 1_000 > P999_MESSAGES, "{}", row.cell.name);
            }
            count += 1;
        }
        assert!(count > 12, "{count}");
    }

    /// Regression test: at 1,000 per second a window of 5 s gave no p99.
    #[test]
    fn every_latency_that_is_compared_has_a_p99() {
        for row in rows(Length::FULL).iter().filter(|row| row.cell.kind == Kind::Latency && row.id != "flushes") {
            for load in row.cell.sides.iter().map(|side| side.load) {
                assert!(load.rate * load.window_ms / 1_000 > P99_MESSAGES, "{}", row.cell.name);
            }
        }
    }

    /// Regression test: many partitions, and a lagging reader, were compared by one round each.
    #[test]
    fn what_polylogue_is_held_to_beside_itself_is_run_oftener_than_once() {
        let rows = rows(Length::FULL);
        for name in [
            "D5/rate=5000/groups=10/durability=sync/client=raw",
            "D5/rate=5000/groups=1/durability=sync/client=raw",
            "D6/rate=5000/partitions=100/durability=sync/client=raw",
            "D6/rate=5000/partitions=10000/durability=sync/client=raw",
            "D8/rate=10000/behind/client=raw",
            "D8/rate=10000/undisturbed/client=raw",
        ] {
            let row = rows.iter().find(|row| row.cell.name == name).unwrap_or_else(|| panic!("no {name}"));
            assert_eq!(row.rounds, ROUNDS, "{name}");
        }
    }

    #[test]
    fn a_few_rows_stand_on_the_first_page_and_are_run_five_times() {
        let rows = rows(Length::FULL);
        let first: Vec<&Row> = rows.iter().filter(|row| row.first_page && row.cell.kind != Kind::Bare).collect();
        assert!((6..=14).contains(&first.len()), "{}", first.len());
        for row in first {
            assert_eq!(row.rounds, FIRST_PAGE_ROUNDS, "{}", row.cell.name);
            assert!(row.cell.sides.iter().all(|side| side.load.window_ms >= Length::FULL.first_page.1));
        }
        let others = rows.iter().filter(|row| !row.first_page);
        assert!(others.into_iter().all(|row| row.rounds == ROUNDS || row.rounds == SLOW_ROUNDS));
    }

    /// A6, D7 and E7 measure how fast a backlog is read: a reader with lower priority would measure what the client leaves idle.
    #[test]
    fn only_beside_a_reader_at_the_tail_the_one_far_behind_gives_way() {
        let rows = rows(Length::FULL);
        let gives = |row: &&Row| row.cell.sides.iter().any(|side| side.load.reader_gives_way());
        let names: BTreeSet<&str> = rows.iter().filter(gives).map(|row| row.cell.name.as_str()).collect();
        assert_eq!(names, BTreeSet::from(["D8/rate=10000/behind/client=java", "D8/rate=10000/behind/client=raw"]));
    }
}
