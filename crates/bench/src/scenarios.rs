//! The scenarios of the published comparisons, by their ids, and the cells that run them here.
//!
//! ```text
//!   Scenario  A4: what it shows, the published setting and figures, the setting here and its factors     texts
//!      |
//!     Row     A4/rate=25000/durability=async/client=raw      rounds, first page or not                   a, b, c, d, e, f
//!      |
//!     Side    polylogue-sync, kafka, kafka-tuned, null       who is compared, with which load
//! ```
//!
//! What is the same for all rows:
//! - Brokers that acknowledge after a flush are compared with each other (`durability=sync`), and those that do not (`durability=async`);
//!   polylogue with its flush stands in both.
//! - With `client=raw`, `amqp` or `librdkafka` the client is the same on all sides; with `client=java` each system has its own official one,
//!   and polylogue that of Kafka, or RabbitMQ's where its label says so.
//! - Broker and client have cores of their own, but for the rows that say `unpinned`, and but for a smoke run.
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

/// Rounds of a row of the first page, of another one, and of one that takes minutes or asks what others ask.
pub const FIRST_PAGE_ROUNDS: u32 = 5;
pub const ROUNDS: u32 = 3;
pub const SLOW_ROUNDS: u32 = 1;
/// What a broker may use where readers must be cold, page cache included. Bytes.
pub const COLD_MEMORY_BYTES: u64 = 3 << 30;
/// The longest warm-up before the lowest rate of a ladder: its steps go on warming. Milliseconds.
const LADDER_WARMUP_MS_MAX: u64 = 40_000;
/// What the brokers of a cell may have written in all its rounds, when they stay up for them. Bytes.
const STAY_BYTES_MAX: u64 = 24 << 30;
/// Messages without a confirm on the way to queues.
const UNCONFIRMED_MAX: u32 = 1_000;
/// Of so many messages p99.9 is given: a hundred are beyond it.
const P999_MESSAGES: u64 = 100_000;
/// The same of p99.
const P99_MESSAGES: u64 = 10_000;
/// The most partitions of a topic in a smoke run: making them is most of what it waits for.
const QUICK_PARTITIONS_MAX: u32 = 10;
/// The message of most rows. Bytes.
const KIB: u32 = 1_024;
/// A reader that is far behind reads as fast as it goes: more than any disk gives. Bytes a second.
const UNBOUNDED_BYTES_PER_S: u64 = 1 << 40;

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// Whether this only shows that every cell starts.
    pub quick: bool,
    /// The longest warm-up and the window of a row of the first page. Milliseconds.
    pub first_page: (u64, u64),
    /// The same as `first_page` of the others.
    pub other: (u64, u64),
    /// The longest warm-ups, of the first page and of the others, where brokers cannot stay for the rounds of their row: they are paid for
    /// in each of them.
    pub apart: (u64, u64),
    /// The warm-ups of further rounds where they stay, likewise.
    pub again: (u64, u64),
    /// A step of a ladder, its warm-up included, and that warm-up.
    pub step: (u64, u64),
}

impl Length {
    /// The source of figures.
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

/// A cell, and how often it is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The scenario's id.
    pub id: &'static str,
    /// The cell.
    pub cell: Cell,
    /// Whether it stands on the first page.
    pub first_page: bool,
    /// Rounds.
    pub rounds: u32,
}

/// Who may take part, and as what.
type Who<'a> = &'a [&'a str];

/// Makes rows.
#[derive(Debug, Clone, Copy)]
struct Maker {
    length: Length,
}

impl Maker {
    fn how(self) -> How {
        let warm_up = if self.length.quick { WarmUp::Fixed } else { WarmUp::Steady(Steadiness::SHORT) };
        // A smoke run has no figures that a neighbour on its core could spoil, and JVMs start twice as fast on two.
        let pinning = self.scaled(Pinning::Split, Pinning::Unpinned);
        How { warm_up, pinning, ..How::default() }
    }

    /// A load of 1 KiB messages that one group reads, by time.
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

    /// A smoke run shows that a row starts, not that its rate holds.
    fn rate(self, rate: u64) -> u64 {
        if self.length.quick { rate.min(1_000) } else { rate }
    }

    /// A count that a smoke run has less of.
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

    /// The load at these rates, and none between them.
    fn marked(self, load: Load, published: &'static [u64]) -> Load {
        let ladder = self.ladder(published, 1_000).map(|ladder| Ladder { search_steps: 0, ..ladder });
        Load { how: How { ladder, ..load.how }, ..load }
    }

    /// The load with a window of a second more where it has just the messages of which p99.9 is given: one less, and it would not be.
    fn for_far_tail(self, load: Load) -> Load {
        let messages = load.rate * load.window_ms / 1_000;
        let second_ms = if messages == P999_MESSAGES { 1_000 } else { 0 };
        Load { window_ms: load.window_ms + second_ms, ..load }
    }

    /// The load with a window that has more than the messages of which p99 is given.
    fn with_tail(self, load: Load) -> Load {
        self.with_messages(load, P99_MESSAGES)
    }

    /// The load with a window that has more than the messages of which p99.9 is given, where that is asked for.
    fn with_far_tail(self, load: Load) -> Load {
        self.with_messages(load, P999_MESSAGES)
    }

    fn with_messages(self, load: Load, messages: u64) -> Load {
        let wanted_ms = (messages * 1_000).div_ceil(load.rate.max(1)) + 1_000;
        Load { window_ms: self.scaled(load.window_ms.max(wanted_ms), load.window_ms), ..load }
    }

    /// The load with its messages in queues.
    fn queued(self, load: Load, queue: QueueLoad) -> Load {
        Load { queue: Some(queue), batching: NO_BATCH, in_flight: UNCONFIRMED_MAX, ..load }
    }

    /// A row that is run three times.
    fn row(self, id: &'static str, name: &str, kind: Kind, driver: Driver, sides: Vec<Side>) -> Row {
        let name =
            if name.is_empty() { format!("{id}/client={driver}") } else { format!("{id}/{name}/client={driver}") };
        let rounds = if self.length.quick { 1 } else { ROUNDS };
        Row { id, cell: Cell { name, kind, driver, sides }, first_page: false, rounds }
    }

    /// The row on the first page: longer, and oftener.
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

    /// The row with brokers that stay up for all its rounds where they can; else each round warms up a broker of its own. A ladder that is
    /// run oftener than once is warmed up like a row of the first page, on which it has no place: five rounds of its steps take too long.
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
                // It has nothing to be warmed, and the client is new in each round anyway.
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

    /// The row once, because it takes minutes.
    fn once(self, row: Row) -> Row {
        Row { rounds: SLOW_ROUNDS, ..row }
    }
}

/// The sides on these targets, all with one load.
fn sides(names: Who<'_>, load: Load) -> Vec<Side> {
    names.iter().flat_map(|name| side(name, name, load)).collect()
}

/// One side. A target that is not known to this build gives none; that there is none such is tested.
fn side(label: &str, target: &str, load: Load) -> Option<Side> {
    let target: Target = target.parse().ok()?;
    Some(Side { label: label.to_owned(), target, load })
}

/// Queues as in every broker: durable, confirmed one by one, acknowledged by hundreds.
const CLASSIC: QueueLoad = QueueLoad {
    kind: QueueKind::Classic,
    durable: true,
    confirms: true,
    prefetch: 500,
    ack_every: 100,
    exchange: None,
};
const QUORUM: QueueLoad = QueueLoad { kind: QueueKind::Quorum, ..CLASSIC };

/// How many messages are four times what a broker may use. Bytes.
fn cold_messages(memory_bytes: u64, message_bytes: u32) -> u64 {
    COLD_FACTOR * memory_bytes / u64::from(message_bytes) + 1
}

/// All rows, in the order in which they run, for this machine.
#[must_use]
pub fn rows(length: Length) -> Vec<Row> {
    rows_with(length, memory_bytes())
}

/// All rows for a machine with so much memory.
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

/// What each broker flushes, observed: a short run of its own, in which every call is counted. Tuned profiles but TubeMQ's are left out: they
/// flush as their default profiles do (benches/results/flushes-profiles.jsonl).
fn flushes(maker: Maker) -> Row {
    let load = maker.load(1, LATENCY_BATCH, 5_000);
    // What counts is the run of its own.
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
    // In a smoke run one broker of each system is started another time for that.
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

    /// The matrix at the head of the scenarios, and who may be measured instead of a system is measured by name.
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

    /// 20,000 a second for 5 s: a message that was due a moment before the window took p99.9 with it.
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

    /// 5,000 a second for 5 s gave no p99.9 of the rows that are published with one.
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

    /// At 1,000 a second a window of 5 s gave no p99.
    #[test]
    fn every_latency_that_is_compared_has_a_p99() {
        for row in rows(Length::FULL).iter().filter(|row| row.cell.kind == Kind::Latency && row.id != "flushes") {
            for load in row.cell.sides.iter().map(|side| side.load) {
                assert!(load.rate * load.window_ms / 1_000 > P99_MESSAGES, "{}", row.cell.name);
            }
        }
    }

    /// One round of each was all that many partitions, and a reader that is behind, were compared by.
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

    /// A6, D7 and E7 ask how fast a backlog is read: with a reader that gave way its speed would be what the client leaves.
    #[test]
    fn only_beside_a_reader_at_the_tail_the_one_far_behind_gives_way() {
        let rows = rows(Length::FULL);
        let gives = |row: &&Row| row.cell.sides.iter().any(|side| side.load.reader_gives_way());
        let names: BTreeSet<&str> = rows.iter().filter(gives).map(|row| row.cell.name.as_str()).collect();
        assert_eq!(names, BTreeSet::from(["D8/rate=10000/behind/client=java", "D8/rate=10000/behind/client=raw"]));
    }
}
