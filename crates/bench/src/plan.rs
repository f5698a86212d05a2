//! Estimates the time and disk space of a comparison before it starts, and divides it into parts of about an hour.
//!
//! ```text
//!   a side    start of the broker + topics + backlog + warm-up and window + until it is idle, twice + settle
//!   a row     its sides x its rounds; if brokers stay up, their starts and long warm-ups once
//!   a part    consecutive rows, up to an hour                                           compare --part 1 .. 8
//! ```
//!
//! Estimates are based on observed start times, and on the rates that the clients reach on two cores.

use crate::drive::Driver;
use crate::matrix::{Kind, Load, Side};
use crate::run::lives::is_deleted;
use crate::run::writes_backlog;
use crate::scenarios::Row;
use crate::target::Target;
use std::fmt::Write;

/// The maximum length of a part with more than one row. Seconds: somewhat less than an hour.
pub const PART_S_MAX: f64 = 3_500.0;
/// The maximum number of parts.
pub const PARTS_MAX: u32 = 8;
/// Time for a broker to start and to answer on one core, and until its first topics can be used, by system. Seconds: by how much the first
/// round of a cell took longer than polylogue's, in the median of all cells that were run. RocketMQ's since its broker is made to register with
/// its name server: three rounds of A4 with delayed flushes took 46 to 48 s where polylogue's took 19 to 20, 7 of which are its topics'.
const STARTS_S: &[(&str, f64)] = &[
    ("null", 0.3),
    ("polylogue", 0.7),
    ("kafka", 10.0),
    ("rabbitmq", 5.0),
    ("pulsar", 25.0),
    ("rocketmq", 21.0),
    ("tubemq", 12.0),
];
/// Time in each round until clients know its topics, and readers their partitions. Seconds.
const TOPICS_KNOWN_S: &[(&str, f64)] = &[("kafka", 1.0), ("pulsar", 9.0), ("rocketmq", 7.0), ("tubemq", 6.0)];
/// Time until a broker is idle, before a load and after it; and the pause between two sides. Seconds.
const IDLE_S: f64 = 1.2;
const SETTLE_S: f64 = 1.0;
/// Time for a client's JVM to start and to stop. Seconds.
const JVM_S: f64 = 2.5;
/// Share of the start time in a smoke run, which has all cores, and few partitions.
const QUICK_SHARE: f64 = 0.4;
/// The same as `JVM_S` in a smoke run, with nothing to drain.
const QUICK_JVM_S: f64 = 1.8;
const QUICK_OVERLOADED_S: f64 = 0.5;
const QUICK_KILL_S: f64 = 5.0;
/// Speedup of a smoke run by its two lanes: one works while the other waits, but not always.
const QUICK_LANES_FACTOR: f64 = 1.5;
/// Topics and partitions created per second.
const TOPICS_PER_S: f64 = 40.0;
const PARTITIONS_PER_S: f64 = 400.0;
/// The same for partitions of a broker on a JVM.
const JVM_PARTITIONS_PER_S: f64 = 250.0;
/// Bytes per second written at an unlimited rate, and read by a lagging reader.
const BYTES_PER_S: f64 = 200e6;
/// Messages per second at an unlimited rate, by client.
const RAW_PER_S: f64 = 250_000.0;
const JVM_PER_S: f64 = 120_000.0;
const AMQP_PER_S: f64 = 20_000.0;
/// Messages of 1 KiB per second of a backlog that the raw client writes: D8's 12.6 million took 20 s with polylogue and 26 s with Kafka.
const BACKLOG_PER_S: f64 = 400_000.0;
/// Connections opened per second, and the quiet times around them: F1's sides took 26 and 31 s each in one round. Seconds.
const CONNECTIONS_PER_S: f64 = 2_000.0;
const QUIET_S: f64 = 12.0;
/// A separate run in which flushes are counted, without its start. Seconds.
const TRACED_S: f64 = 9.0;
/// Kill, restart and reading everything: F2's sides took 25 s each with the raw client and 18 with AMQP's in three rounds. Seconds.
const KILL_S: f64 = 8.0;
/// The bare loops. Seconds.
const BARE_S: f64 = 45.0;
/// Draining after a step above the maximum rate. Seconds.
const OVERLOADED_S: f64 = 12.0;

/// Time and disk space.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Seconds.
    pub seconds: f64,
    /// The maximum disk usage. Bytes.
    pub disk_bytes: u64,
}

impl Cost {
    fn then(self, other: Cost) -> Cost {
        Cost { seconds: self.seconds + other.seconds, disk_bytes: self.disk_bytes.max(other.disk_bytes) }
    }
}

fn system(side: &Side) -> String {
    side.target.name().split('-').next().unwrap_or_default().to_owned()
}

fn seconds_of(table: &[(&str, f64)], system: &str) -> f64 {
    table.iter().find(|(name, _)| *name == system).map_or(0.0, |(_, seconds)| *seconds)
}

fn start_s(system: &str) -> f64 {
    seconds_of(STARTS_S, system)
}

/// Returns the maximum rate of a client. Messages per second.
fn per_s(driver: Driver, load: &Load) -> f64 {
    let most = match driver {
        _ if load.queue.is_some() => AMQP_PER_S,
        Driver::Raw | Driver::Librdkafka => RAW_PER_S,
        _ => JVM_PER_S,
    };
    let most = most.min(BYTES_PER_S / f64::from(load.message_bytes.max(1)));
    if load.rate > 0 { most.min(load.rate as f64) } else { most }
}

fn by_time_s(load: &Load) -> f64 {
    (load.warmup_ms + load.window_ms) as f64 / 1e3
}

/// Returns the time of a ladder; its last step is above the broker's maximum if it is above the client's.
fn ladder_s(load: &Load, quick: bool, most_per_s: f64) -> f64 {
    let Some(ladder) = load.how.ladder else { return 0.0 };
    let is_too_much = ladder.rates().last().is_some_and(|rate| *rate as f64 > most_per_s);
    let steps = ladder.rates().len() as f64 + f64::from(ladder.search_steps);
    // The first step warms up, and so does the run that confirms a searched rate.
    let warms = load.warmup_ms.saturating_sub(ladder.step_warmup_ms) as f64 / 1e3;
    let confirmed = match load.how.again_warmup_ms {
        0 => *load,
        warmup_ms => Load { warmup_ms, ..*load },
    };
    let (idle, overloaded) = if quick { (0.3, QUICK_OVERLOADED_S) } else { (IDLE_S, OVERLOADED_S) };
    // The confirmed rate was met before.
    let confirms = if ladder.search_steps > 0 { by_time_s(&confirmed) + 2.0 * idle } else { 0.0 };
    let missed = if is_too_much || ladder.search_steps > 0 { overloaded } else { 0.0 };
    steps * (ladder.step_ms as f64 / 1e3 + idle) + warms + confirms + missed
}

/// Returns the messages written by a ladder: its lowest rate during warm-up, and half the client's maximum in the steps.
fn ladder_messages(load: &Load, quick: bool, rate: f64) -> f64 {
    let lowest = load.how.ladder.and_then(|ladder| ladder.rates().first().copied()).unwrap_or(0) as f64;
    let warm_s = load.warmup_ms as f64 / 1e3;
    warm_s * lowest.min(rate) + (ladder_s(load, quick, rate) - warm_s).max(0.0) * rate / 2.0
}

/// Estimates one round of a side. A smoke run shares brokers and has no waits.
#[must_use]
pub fn of_side(kind: Kind, driver: Driver, side: &Side, quick: bool) -> Cost {
    let (load, system) = (&side.load, system(side));
    let jvm_broker = matches!(system.as_str(), "kafka" | "pulsar" | "rocketmq" | "tubemq");
    let start = start_s(&system) * if quick { QUICK_SHARE } else { 1.0 };
    let jvm = if quick { QUICK_JVM_S } else { JVM_S };
    let client = if driver == Driver::Java { jvm } else { 0.2 };
    let each_s = if jvm_broker { JVM_PARTITIONS_PER_S } else { PARTITIONS_PER_S };
    let places = f64::from(load.partitions) * f64::from(load.many.topics);
    let known = match kind {
        Kind::Connections => 0.0,
        _ => seconds_of(TOPICS_KNOWN_S, &system) * if quick { QUICK_SHARE } else { 1.0 },
    };
    // The null broker has every topic, and stores nothing.
    let is_null = side.target == Target::Null;
    let topics = if is_null { 0.0 } else { f64::from(load.many.topics) / TOPICS_PER_S + places / each_s + known };
    let rate = per_s(driver, load);
    let written_per_s = match writes_backlog(driver, side.target.system()) {
        Driver::Raw => BACKLOG_PER_S,
        writer => per_s(writer, &Load { rate: 0, ..*load }),
    };
    let backlog = load.backlog as f64 / rate.max(written_per_s);
    let counted = (load.messages + load.warm_messages) as f64 / rate;
    let work = match kind {
        Kind::Cost => 3.0 * counted + 2.0 * client,
        Kind::Throughput => counted,
        Kind::Ladder => ladder_s(load, quick, rate),
        Kind::Connections => f64::from(load.connections) / CONNECTIONS_PER_S + if quick { 0.0 } else { QUIET_S },
        Kind::Kill => start + 2.0 * client + if quick { QUICK_KILL_S } else { KILL_S },
        Kind::Start => start,
        _ => by_time_s(load),
    };
    let traced = if load.how.trace_flushes { start + client + if quick { 3.0 } else { TRACED_S } } else { 0.0 };
    let written = match kind {
        Kind::Ladder => ladder_messages(load, quick, rate),
        Kind::Cost | Kind::Throughput => (load.messages + load.warm_messages) as f64,
        Kind::Connections | Kind::Start | Kind::Bare => 0.0,
        _ if is_null => 0.0,
        _ => load.backlog as f64 + by_time_s(load) * rate,
    };
    // Queues free what was read.
    let kept = if load.queue.is_some() && load.groups > 0 { 0.1 } else { 1.0 };
    let waits = if quick { 0.0 } else { start + SETTLE_S + 2.0 * IDLE_S };
    let seconds = waits + client + topics + backlog + work + traced;
    Cost { seconds, disk_bytes: (written * kept * f64::from(load.message_bytes)) as u64 }
}

/// Estimates all rounds of a row.
#[must_use]
pub fn of_row(row: &Row, quick: bool) -> Cost {
    if row.cell.kind == Kind::Bare {
        let seconds = if quick { 4.0 } else { BARE_S * f64::from(row.rounds) };
        return Cost { seconds, disk_bytes: 5 << 30 };
    }
    let cost = |side: &Side| of_side(row.cell.kind, row.cell.driver, side, quick);
    let sides = &row.cell.sides;
    if quick || sides.iter().all(|side| side.load.how.again_warmup_ms == 0) {
        let once = sides.iter().map(cost).fold(Cost::default(), Cost::then);
        return Cost { seconds: once.seconds * f64::from(row.rounds), ..once };
    }
    let further = row.rounds.saturating_sub(1);
    let lives = sides.iter().map(|side| {
        let (first, again) = (cost(side), cost(&Side { load: side.load.in_round_of_life(2), ..side.clone() }));
        let started = if side.load.how.again_warmup_ms > 0 { start_s(&system(side)) } else { 0.0 };
        // Topics that cannot be deleted after a round stay until the last one.
        let left = if is_deleted(&side.target) { 0 } else { u64::from(further) * again.disk_bytes };
        let seconds = first.seconds + f64::from(further) * (again.seconds - started);
        Cost { seconds, disk_bytes: first.disk_bytes + left }
    });
    lives.fold(Cost::default(), |all, life| Cost {
        seconds: all.seconds + life.seconds,
        disk_bytes: all.disk_bytes + life.disk_bytes,
    })
}

/// Estimates all rows. A smoke run starts each broker once, and runs two of them concurrently.
#[must_use]
pub fn of_rows(rows: &[Row], quick: bool) -> Cost {
    let all = rows.iter().map(|row| of_row(row, quick)).fold(Cost::default(), Cost::then);
    let targets: std::collections::BTreeSet<String> =
        rows.iter().flat_map(|row| &row.cell.sides).map(|side| side.target.name()).collect();
    let starts: f64 = targets.iter().map(|name| start_s(name.split('-').next().unwrap_or_default())).sum();
    let seconds = match quick {
        false => all.seconds,
        true if targets.len() < 2 => all.seconds + starts * QUICK_SHARE,
        true => (all.seconds + starts * QUICK_SHARE) / QUICK_LANES_FACTOR,
    };
    Cost { seconds, ..all }
}

/// Returns the part of each row, from 1 on: consecutive rows, as many as fit.
#[must_use]
pub fn parts(rows: &[Row]) -> Vec<u32> {
    let (mut part, mut taken_s) = (1, 0.0);
    let of = |row: &Row| {
        let seconds = of_row(row, false).seconds;
        if taken_s > 0.0 && taken_s + seconds > PART_S_MAX {
            (part, taken_s) = (part + 1, 0.0);
        }
        taken_s += seconds;
        part
    };
    rows.iter().map(of).collect()
}

/// Formats the plan: each row with its sides, and the totals.
#[must_use]
pub fn describe(rows: &[(Row, u32)], quick: bool) -> String {
    let mut text = String::new();
    let (mut part, mut all) = (0, Vec::new());
    // Writing to a string cannot fail.
    for (row, of) in rows {
        if *of != part && !quick {
            part = *of;
            let _ = writeln!(text, "part {part}");
        }
        let labels: Vec<&str> = row.cell.sides.iter().map(|side| side.label.as_str()).collect();
        let (cost, first) = (of_row(row, quick), if row.first_page { " *" } else { "" });
        let minutes = cost.seconds / 60.0;
        let _ = writeln!(
            text,
            "  {}{first}  {} rounds  {minutes:.1} min  {}",
            row.cell.name,
            row.rounds,
            labels.join(", ")
        );
        all.push(row.clone());
    }
    let mut numbers: Vec<u32> = rows.iter().map(|(_, part)| *part).collect();
    numbers.dedup();
    for number in numbers.into_iter().filter(|_| !quick) {
        let of: Vec<Row> = rows.iter().filter(|(_, part)| *part == number).map(|(row, _)| row.clone()).collect();
        let _ = writeln!(text, "part {number}: {}", stated(&of, quick));
    }
    let _ = write!(text, "all: {}; the rows with * stand on the first page", stated(&all, quick));
    text
}

fn stated(rows: &[Row], quick: bool) -> String {
    let cost = of_rows(rows, quick);
    let runs: usize = rows.iter().map(|row| row.cell.sides.len().max(1) * row.rounds as usize).sum();
    let (hours, gib) = (cost.seconds / 3_600.0, cost.disk_bytes as f64 / f64::from(1 << 30));
    format!("{} cells, {runs} runs, about {hours:.2} h, up to {gib:.0} GiB of disk at a time", rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Cell;
    use crate::scenarios::{Length, rows, rows_with};

    /// However many brokers a machine can run at once.
    #[test]
    fn the_matrix_fits_into_six_hours_and_its_parts_into_one_each() {
        for gib in [4, 8, 16, 24, 32, 64] {
            fits(rows_with(Length::FULL, gib << 30));
        }
    }

    fn fits(rows: Vec<Row>) {
        let parts = parts(&rows);
        let last = parts.last().copied().unwrap_or(0);
        assert!((1..=PARTS_MAX).contains(&last), "{last} parts");
        for part in 1..=last {
            let of: Vec<Row> =
                rows.iter().zip(&parts).filter(|(_, of)| **of == part).map(|(row, _)| row.clone()).collect();
            let cost = of_rows(&of, false);
            assert!(cost.seconds < 3_600.0, "part {part} takes {} s", cost.seconds);
        }
        let all = of_rows(&rows, false);
        assert!(all.seconds <= 6.0 * 3_600.0, "{}", describe(&rows.into_iter().zip(parts).collect::<Vec<_>>(), false));
        assert!(all.disk_bytes <= 24 << 30, "{} bytes", all.disk_bytes);
    }

    #[test]
    fn lanes_of_a_smoke_run_are_of_use_where_there_are_two_brokers() {
        let rows = rows(Length::QUICK);
        let row = rows.iter().find(|row| row.id == "F2" && row.cell.driver == Driver::Java).expect("a row");
        let of = |sides: &[Side]| {
            let cell = Cell { sides: sides.to_vec(), ..row.cell.clone() };
            of_rows(&[Row { cell, ..row.clone() }], true).seconds
        };
        let both = &row.cell.sides[..2];
        assert_ne!(both[0].target, both[1].target);
        let apart = of(&both[..1]) + of(&both[1..]);
        assert!((of(both) - apart / QUICK_LANES_FACTOR).abs() < 1e-6, "{apart} s one after the other");
    }

    #[test]
    fn a_smoke_run_takes_twenty_minutes() {
        let rows = rows(Length::QUICK);
        let all = of_rows(&rows, true);
        assert!(
            all.seconds <= 20.0 * 60.0,
            "{}",
            describe(&rows.into_iter().map(|row| (row, 1)).collect::<Vec<_>>(), true)
        );
    }

    #[test]
    fn what_a_row_takes_is_what_its_sides_take_as_often_as_they_are_run() {
        let rows = rows_with(Length::FULL, 24 << 30);
        let row =
            rows.iter().find(|row| row.cell.name == "A4/rate=25000/durability=async/client=raw").expect("there is one");
        let kind = row.cell.kind;
        let polylogue = &row.cell.sides[0];
        let first = of_side(kind, row.cell.driver, polylogue, false);
        assert!((70.0..90.0).contains(&first.seconds), "warm-up and window are 70 s: {first:?}");
        assert_eq!(first.disk_bytes, 70 * 25_000 * 1_024);
        let later = Side { load: polylogue.load.in_round_of_life(2), ..polylogue.clone() };
        let later = of_side(kind, row.cell.driver, &later, false);
        assert!((15.0..25.0).contains(&later.seconds), "it is warm: {later:?}");
        let alone = Row { cell: Cell { sides: vec![polylogue.clone()], ..row.cell.clone() }, ..row.clone() };
        let expected = first.seconds + 4.0 * (later.seconds - start_s("polylogue"));
        assert!((of_row(&alone, false).seconds - expected).abs() < 1e-6, "it is started once");
        let text = describe(&[(row.clone(), 2)], false);
        assert!(
            text.contains("part 2") && text.contains("1 cells, 20 runs") && text.contains("polylogue-sync, kafka"),
            "{text}"
        );
    }
}
