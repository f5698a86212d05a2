//! What the comparison with Kafka should show, and whether it does: one row for each requirement, from result lines alone.
//!
//! ```text
//!   requirement                 checks: one for each cell and side that it speaks of        row
//!   "produce CPU, Kafka"   ---> cost/partitions=1   polylogue-sync    0.28 of 0.33   held
//!                               cost/partitions=1   polylogue-async   0.41 of 0.33   missed   --> "not held", and where
//!                               cost/partitions=100 polylogue-sync    -              not measured
//! ```
//!
//! Cells come from the [`crate::matrix`], so that what was not measured is seen to be missing. The comparison with RabbitMQ has rows of
//! its own ([`queues`]); which one it is, the lines tell.

mod queues;

use super::sides::{Sides, above_null};
use super::stats::{PAIRS_MIN, median, number};
use crate::drive::Driver;
use crate::matrix::{Cell, Kind, Scale, cells};
use crate::results::MACHINE;
use crate::results::ResultLine;
use crate::target::Target;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Of Kafka's processor time, what may be used to write.
const PRODUCE_OF_KAFKA: f64 = 1.0 / 3.0;
/// Of the bare loop's.
const PRODUCE_OF_BARE: f64 = 1.8;
/// Of Kafka's processor time, what may be used to read; or of sendfile's, whichever is more.
const FETCH_OF_KAFKA: f64 = 0.5;
const FETCH_OF_BARE: f64 = 1.5;
/// How many times as much as Kafka with a flush for each message.
const TIMES_FSYNC: f64 = 5.0;
/// Of Kafka's latencies.
const P99_OF_KAFKA: f64 = 0.5;
const P999_OF_KAFKA: f64 = 0.25;
/// Of the same without many partitions or groups, and of the same without a cold reader beside it.
const MANY_OF_FEW: f64 = 1.3;
const DISTURBED_OF_NOT: f64 = 1.5;
/// Rounds that comparisons with ourselves need.
const OWN_ROUNDS_MIN: usize = 10;
/// Up to so many checks are listed one by one; of more how many hold, and what is missed.
const ONE_BY_ONE_MAX: usize = 4;

const PRODUCE_CPU: &str = "produce_cpu_s_per_million";
const FETCH_CPU: &str = "fetch_cpu_s_per_million";
const RATE: &str = "produce_per_s";

/// What one side of one cell shows.
#[derive(Debug, Clone, PartialEq)]
struct Measured {
    /// The figure, as printed.
    text: String,
    /// Which part of what is allowed it is; above 1 it is missed, however it is counted.
    part: f64,
    /// Whether it holds, as far as these rounds tell.
    held: bool,
    /// Rounds that it is from.
    rounds: usize,
    /// Whether the client limited our side.
    bound: bool,
}

/// One place that a requirement speaks of.
#[derive(Debug, Clone, PartialEq)]
struct Check {
    place: String,
    measured: Option<Measured>,
}

/// A row.
#[derive(Debug)]
struct Requirement {
    name: String,
    wanted: String,
    rounds_min: usize,
    checks: Vec<Check>,
}

/// What is wanted of the ratio of ours to theirs.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    AtMost(f64),
    AtLeast(f64),
    /// More in every pair.
    Ahead,
    /// Less in every pair.
    Lower,
}

/// What was measured, by cell.
struct Found<'a>(BTreeMap<&'a str, Sides<'a>>);

impl Found<'_> {
    fn values(&self, cell: &str, side: &str, figure: &str) -> Vec<f64> {
        self.0.get(cell).map(|sides| sides.values(side, figure)).unwrap_or_default()
    }

    fn is_bound(&self, cell: &Cell, side: &str, figure: &str) -> bool {
        let fast = matches!(cell.kind, Kind::Cost | Kind::Throughput | Kind::Size);
        fast && self.0.get(cell.name.as_str()).is_some_and(|sides| sides.is_client_bound(side, figure))
    }

    /// The median ratio of a figure of `ours` to that of `theirs`.
    fn ratio(&self, cell: &Cell, figure: &str, ours: &str, theirs: &str, wanted: Wanted) -> Option<Measured> {
        let pairs = self.0.get(cell.name.as_str())?.pairs(figure, ours, theirs);
        // Nothing is no part of anything, of nothing neither.
        let of = |(ours, theirs): &(f64, f64)| if *ours > 0.0 { ours / theirs } else { 0.0 };
        let ratio = median(&pairs.iter().map(of).collect::<Vec<_>>())?;
        let (part, held) = match wanted {
            Wanted::AtMost(limit) => (ratio / limit, ratio <= limit),
            Wanted::AtLeast(limit) => (limit / ratio, ratio >= limit),
            Wanted::Ahead => (1.0 / ratio, pairs.iter().all(|(ours, theirs)| ours > theirs)),
            Wanted::Lower => (ratio, pairs.iter().all(|(ours, theirs)| ours < theirs)),
        };
        let bound = figure == RATE && self.is_bound(cell, ours, figure);
        Some(Measured { text: format!("{} times", number(ratio)), part, held, rounds: pairs.len(), bound })
    }

    /// The median of a figure in seconds beside the most that it may be.
    fn seconds(&self, cell: &Cell, figure: &str, ours: &str, limit: f64) -> Option<Measured> {
        let values = self.values(&cell.name, ours, figure);
        let middle = median(&values)?;
        let text = format!("{} s of {} s", number(middle), number(limit));
        Some(Measured { text, part: middle / limit, held: middle <= limit, rounds: values.len(), bound: false })
    }

    fn bare(&self, figure: &str) -> Option<f64> {
        median(&self.values(Kind::Bare.name(), MACHINE, figure))
    }
}

/// Writes the table of requirements. `by_cell`: each cell's lines; those of smoke runs count for nothing.
pub fn write(text: &mut String, by_cell: &[(&str, Vec<&ResultLine>)]) {
    let full = |lines: &[&ResultLine]| lines.iter().all(|line| !line.quick);
    let found = by_cell.iter().filter(|(_, lines)| full(lines)).map(|(cell, lines)| (*cell, Sides::of(lines)));
    text.push_str("## What was wanted\n\n| requirement | measured (median) | wanted | |\n|---|---|---|---|\n");
    let found = Found(found.collect());
    let rows = if is_of_queues(by_cell) { queues::requirements(&found) } else { requirements(&found) };
    for requirement in rows {
        let (name, wanted) = (&requirement.name, &requirement.wanted);
        let _ = writeln!(text, "| {name} | {} | {wanted} | {} |", requirement.measured(), requirement.outcome());
    }
    text.push_str("\n## Cells\n\n");
}

/// Whether lines are those of the comparison with RabbitMQ.
fn is_of_queues(by_cell: &[(&str, Vec<&ResultLine>)]) -> bool {
    let client = format!("client={}", Driver::Amqp);
    by_cell.iter().any(|(cell, _)| cell.ends_with(&client))
}

fn requirements(found: &Found<'_>) -> Vec<Requirement> {
    let cells = cells(Scale::FULL);
    let mut all = costs(found, &cells);
    all.extend(throughputs(found, &cells));
    all.extend(latencies(found, &cells));
    all.extend(own(found, &cells));
    let sizes = of_kind(&cells, Kind::Size);
    all.push(ratios(
        found,
        "messages a second, by size",
        "ahead of Kafka",
        &sizes,
        RATE,
        &Target::Kafka,
        Wanted::Ahead,
    ));
    all
}

fn of_kind(cells: &[Cell], kind: Kind) -> Vec<&Cell> {
    cells.iter().filter(|cell| cell.kind == kind).collect()
}

/// A cell's name without its kind.
fn place(cell: &Cell) -> &str {
    cell.name.split_once('/').map_or(&cell.name, |(_, rest)| rest)
}

/// A requirement on the ratio of polylogue in `sync` to `theirs` in each of `cells`.
fn ratios(
    found: &Found<'_>,
    name: &str,
    wanted_text: &str,
    cells: &[&Cell],
    figure: &str,
    theirs: &Target,
    wanted: Wanted,
) -> Requirement {
    let (ours, theirs) = (Target::PolylogueSync.name(), theirs.name());
    let check = |cell: &&Cell| Check {
        place: place(cell).to_owned(),
        measured: found.ratio(cell, figure, &ours, &theirs, wanted),
    };
    let checks = cells.iter().map(check).collect();
    Requirement { name: name.to_owned(), wanted: wanted_text.to_owned(), rounds_min: PAIRS_MIN, checks }
}

fn costs(found: &Found<'_>, cells: &[Cell]) -> Vec<Requirement> {
    let kafka = Target::Kafka.name();
    let mut of = [Vec::new(), Vec::new(), Vec::new()];
    let [against_kafka, against_bare, fetched] = &mut of;
    for cell in of_kind(cells, Kind::Cost) {
        for side in cell.sides.iter().filter(|side| side.label != kafka) {
            let ours = &side.label;
            let check = |measured| Check { place: format!("{} {ours}", place(cell)), measured };
            let wanted = Wanted::AtMost(PRODUCE_OF_KAFKA);
            against_kafka.push(check(found.ratio(cell, PRODUCE_CPU, ours, &kafka, wanted)));
            let flushed = if side.target == Target::PolylogueSync { "_flushed" } else { "" };
            let bare = found.bare(&format!("write_1MB{flushed}_cpu_s_per_million"));
            against_bare
                .push(check(bare.and_then(|bare| found.seconds(cell, PRODUCE_CPU, ours, PRODUCE_OF_BARE * bare))));
            let limits = [
                median(&found.values(&cell.name, &kafka, FETCH_CPU)).map(|kafka| FETCH_OF_KAFKA * kafka),
                found.bare("sendfile_cpu_s_per_million").map(|bare| FETCH_OF_BARE * bare),
            ];
            // The larger one is known when both are.
            let limit =
                limits.into_iter().collect::<Option<Vec<f64>>>().and_then(|both| both.into_iter().reduce(f64::max));
            fetched.push(check(limit.and_then(|limit| found.seconds(cell, FETCH_CPU, ours, limit))));
        }
    }
    let names = [
        ("broker CPU to write a million messages, against Kafka's", "at most a third"),
        ("broker CPU to write a million messages, against the bare loop's", "at most 1.8 times"),
        ("broker CPU to read a million messages", "at most half of Kafka's or 1.5 times bare sendfile's, the larger"),
    ];
    let requirement = |((name, wanted), checks): ((&str, &str), Vec<Check>)| Requirement {
        name: name.to_owned(),
        wanted: wanted.to_owned(),
        rounds_min: PAIRS_MIN,
        checks,
    };
    names.into_iter().zip(of).map(requirement).collect()
}

fn throughputs(found: &Found<'_>, cells: &[Cell]) -> Vec<Requirement> {
    let all = of_kind(cells, Kind::Throughput);
    let is_default = |cell: &&Cell| cell.sides.iter().all(|side| side.load.batching.is_default());
    let default: Vec<&Cell> = all.iter().copied().filter(is_default).collect();
    let (kafka, fsync) = (&Target::Kafka, &Target::KafkaFsync);
    let times = Wanted::AtLeast(TIMES_FSYNC);
    vec![
        ratios(found, "messages a second", "ahead of Kafka", &all, RATE, kafka, Wanted::Ahead),
        ratios(
            found,
            "messages a second, default batching",
            "at least 5 times kafka-fsync",
            &default,
            RATE,
            fsync,
            times,
        ),
    ]
}

fn latencies(found: &Found<'_>, cells: &[Cell]) -> Vec<Requirement> {
    let mut all = of_kind(cells, Kind::Latency);
    all.retain(|cell| cell.sides.iter().any(|side| side.target == Target::Kafka));
    let native: Vec<&Cell> = all.iter().copied().filter(|cell| cell.driver.is_native()).collect();
    let mut rows = Vec::new();
    for (percentile, limit, text, cells) in [
        ("p99", P99_OF_KAFKA, "at most half of Kafka's", &all),
        ("p99.9", P999_OF_KAFKA, "at most a quarter of Kafka's", &native),
    ] {
        for (what, title) in [("publish", "publish"), ("end_to_end", "end-to-end")] {
            let figure = format!("{what}_{percentile}_ms");
            let mut row = |name: &str, figure: &str| {
                rows.push(ratios(found, name, text, cells, figure, &Target::Kafka, Wanted::AtMost(limit)));
            };
            row(&format!("{title} {percentile}, as measured"), &figure);
            if let Some(above) = above_null(&figure) {
                row(&format!("{title} {percentile}, above the null broker"), &above);
            }
        }
    }
    rows
}

/// What is compared with itself: cells whose sides are all polylogue.
fn own(found: &Found<'_>, cells: &[Cell]) -> Vec<Requirement> {
    let mut rows = Vec::new();
    for cell in cells.iter().filter(|cell| cell.sides.iter().all(|side| side.target == Target::PolylogueSync)) {
        let [ours, theirs] = cell.sides.as_slice() else { continue };
        let limit = if cell.kind == Kind::Cold { DISTURBED_OF_NOT } else { MANY_OF_FEW };
        let measured = found.ratio(cell, "publish_p99_ms", &ours.label, &theirs.label, Wanted::AtMost(limit));
        rows.push(Requirement {
            name: format!("publish p99, {} against {}", ours.label, theirs.label),
            wanted: format!("at most {limit} times, at least {OWN_ROUNDS_MIN} rounds"),
            rounds_min: OWN_ROUNDS_MIN,
            checks: vec![Check { place: place(cell).to_owned(), measured }],
        });
    }
    rows
}

impl Requirement {
    /// What was measured: each place by itself where there are few; of many those that are missed, worst first, or the one that is
    /// closest to it.
    fn measured(&self) -> String {
        let mut found: Vec<(&str, &Measured)> =
            self.checks.iter().filter_map(|check| Some((check.place.as_str(), check.measured.as_ref()?))).collect();
        let reported = |(place, measured): &(&str, &Measured)| format!("{place}: {}", measured.reported());
        if found.is_empty() {
            return "-".to_owned();
        }
        if self.checks.len() <= ONE_BY_ONE_MAX {
            return found.iter().map(reported).collect::<Vec<_>>().join("; ");
        }
        found.sort_by(|(_, a), (_, b)| b.part.total_cmp(&a.part));
        let missed: Vec<String> = found.iter().filter(|(_, measured)| !measured.held).map(reported).collect();
        let held = format!("{} of {} hold", found.len() - missed.len(), found.len());
        match (missed.is_empty(), found.first()) {
            (true, Some(closest)) => format!("{held}; closest {}", reported(closest)),
            _ => format!("{held}; missed {}", missed.join("; ")),
        }
    }

    /// Whether it holds, in every place that it speaks of.
    fn outcome(&self) -> String {
        let measured: Vec<&Measured> = self.checks.iter().filter_map(|check| check.measured.as_ref()).collect();
        let decided: Vec<&Measured> =
            measured.iter().copied().filter(|measured| measured.rounds >= self.rounds_min).collect();
        let missed: Vec<&&Measured> = decided.iter().filter(|measured| !measured.held).collect();
        if measured.is_empty() {
            return "not measured".to_owned();
        }
        if !missed.is_empty() {
            let bound = missed.iter().all(|measured| measured.bound);
            return if bound { "not held, client-bound" } else { "**not held**" }.to_owned();
        }
        let mut left = Vec::new();
        if decided.len() < measured.len() {
            left.push(format!("too few rounds in {} (wanted: {})", measured.len() - decided.len(), self.rounds_min));
        }
        if measured.len() < self.checks.len() {
            left.push(format!("not measured in {} of {}", self.checks.len() - measured.len(), self.checks.len()));
        }
        match (decided.is_empty(), left.is_empty()) {
            (_, true) => "held".to_owned(),
            (false, false) => format!("held so far; {}", left.join("; ")),
            (true, false) => format!("open; {}", left.join("; ")),
        }
    }
}

impl Measured {
    fn reported(&self) -> String {
        format!("{}{}", self.text, if self.bound { ", client-bound" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCIES: [&str; 4] = ["publish_p99_ms", "publish_p99.9_ms", "end_to_end_p99_ms", "end_to_end_p99.9_ms"];
    const ROWS: usize = 15;

    /// Figures with which everything holds.
    fn figures(target: &Target) -> Vec<(&'static str, f64)> {
        let (cpu, fetch, rate, latency) = match target {
            Target::PolylogueSync | Target::PolylogueAsync => (1.0, 0.2, 500_000.0, 1.0),
            Target::Kafka => (4.0, 2.0, 100_000.0, 5.0),
            _ => (9.0, 9.0, 20_000.0, 0.5),
        };
        let costs = [(PRODUCE_CPU, cpu), (FETCH_CPU, fetch), (RATE, rate)];
        costs.into_iter().chain(LATENCIES.map(|name| (name, latency))).collect()
    }

    fn everything(rounds: u32) -> Vec<ResultLine> {
        let bare = [
            ("write_1MB_cpu_s_per_million", 0.6),
            ("write_1MB_flushed_cpu_s_per_million", 0.7),
            ("sendfile_cpu_s_per_million", 0.1),
        ];
        let mut lines = Vec::new();
        for round in 1..=rounds {
            lines.push(ResultLine::example("bare", MACHINE, round, &bare));
            for cell in cells(Scale::FULL) {
                let of = |side: &crate::matrix::Side| {
                    ResultLine::example(&cell.name, &side.label, round, &figures(&side.target))
                };
                lines.extend(cell.sides.iter().map(of));
            }
        }
        lines
    }

    /// The rows: requirement, measured, wanted, outcome.
    fn rows(lines: &[ResultLine]) -> Vec<[String; 4]> {
        let mut by_cell: Vec<(&str, Vec<&ResultLine>)> = Vec::new();
        for line in lines {
            match by_cell.iter_mut().find(|(cell, _)| *cell == line.cell) {
                Some((_, of_cell)) => of_cell.push(line),
                None => by_cell.push((&line.cell, vec![line])),
            }
        }
        let mut text = String::new();
        write(&mut text, &by_cell);
        let fields = |line: &str| {
            let mut fields = line.trim_matches('|').split('|').map(|field| field.trim().to_owned());
            std::array::from_fn(|_| fields.next().expect("four fields"))
        };
        text.lines().filter(|line| line.starts_with('|')).skip(2).map(fields).collect()
    }

    /// The rows that do not simply hold: requirement and outcome.
    fn not_held(lines: &[ResultLine]) -> Vec<(String, String)> {
        let rows = rows(lines).into_iter();
        rows.filter(|row| row[3] != "held").map(|[name, _, _, outcome]| (name, outcome)).collect()
    }

    /// Everything, but with a figure of a side changed in all rounds of the cells whose name contains `cell`.
    fn but(cell: &str, side: &str, figure: &str, value: f64) -> Vec<ResultLine> {
        let mut lines = everything(10);
        let mut changed = 0;
        for line in lines.iter_mut().filter(|line| line.cell.contains(cell) && line.side == side) {
            line.figures.insert(figure.to_owned(), value);
            changed += 1;
        }
        assert!(changed >= 10, "{cell} {side} is in the matrix");
        lines
    }

    #[test]
    fn without_lines_nothing_is_measured() {
        let line = ResultLine::example("some/other/cell", "ours", 1, &[(RATE, 1.0)]);
        let rows = rows(&[line]);
        assert_eq!(rows.len(), ROWS);
        assert!(rows.iter().all(|row| row[1] == "-" && row[3] == "not measured"), "{rows:?}");
    }

    #[test]
    fn every_requirement_can_hold() {
        let rows = rows(&everything(10));
        assert_eq!(rows.len(), ROWS);
        assert!(rows.iter().all(|row| row[3] == "held"), "{rows:?}");
        assert!(rows[0][1].contains("partitions=100/client=raw polylogue-async: 0.25 times"), "{rows:?}");
        assert!(rows[1][1].contains("partitions=1/client=raw polylogue-sync: 1.00 s of 1.26 s"), "flushed: {rows:?}");
        assert!(rows[1][1].contains("partitions=1/client=raw polylogue-async: 1.00 s of 1.08 s"), "{rows:?}");
        assert_eq!(rows[3][1], "8 of 8 hold; closest partitions=1/batching=default/client=perf-test: 5.00 times");
    }

    #[test]
    fn every_requirement_can_be_missed() {
        let kafka_cpu = "broker CPU to write a million messages, against Kafka's";
        let bare_cpu = "broker CPU to write a million messages, against the bare loop's";
        let read_cpu = "broker CPU to read a million messages";
        let (sync, asynchronous) = ("polylogue-sync", "polylogue-async");
        let cases: [(&str, &str, &str, f64, &[&str]); 16] = [
            ("cost/partitions=100/", asynchronous, PRODUCE_CPU, 1.07, &[]),
            ("cost/partitions=100/", asynchronous, PRODUCE_CPU, 1.09, &[bare_cpu]),
            ("cost/partitions=1/", sync, PRODUCE_CPU, 1.4, &[kafka_cpu, bare_cpu]),
            ("cost/partitions=1/", sync, FETCH_CPU, 1.01, &[read_cpu]),
            ("bare", MACHINE, "sendfile_cpu_s_per_million", 0.1, &[]),
            ("throughput/partitions=100/batching=1MB-10ms/client=raw", sync, RATE, 100_000.0, &["messages a second"]),
            (
                "throughput/partitions=1/batching=default/client=raw",
                "kafka-fsync",
                RATE,
                101_000.0,
                &["messages a second, default batching"],
            ),
            ("throughput/partitions=1/batching=1MB-10ms/client=raw", "kafka-fsync", RATE, 101_000.0, &[]),
            (
                "rate=50000/partitions=1000/client=java",
                "kafka",
                "end_to_end_p99_ms",
                1.9,
                &["end-to-end p99, as measured"],
            ),
            ("rate=50000/partitions=1000/client=java", "kafka", "end_to_end_p99.9_ms", 1.0, &[]),
            (
                "rate=50000/partitions=1000/client=librdkafka",
                "kafka",
                "end_to_end_p99.9_ms",
                3.9,
                &["end-to-end p99.9, as measured"],
            ),
            (
                "rate=10000/partitions=1/client=raw",
                sync,
                "publish_p99.9_ms",
                2.0,
                &["publish p99.9, as measured", "publish p99.9, above the null broker"],
            ),
            (
                "many-partitions",
                "partitions=10000",
                "publish_p99_ms",
                1.31,
                &["publish p99, partitions=10000 against partitions=100"],
            ),
            ("many-groups", "groups=10", "publish_p99_ms", 1.31, &["publish p99, groups=10 against groups=1"]),
            ("cold/", "cold-reader", "publish_p99_ms", 1.51, &["publish p99, cold-reader against undisturbed"]),
            ("size/kib=100/blocking", sync, RATE, 99_000.0, &["messages a second, by size"]),
        ];
        for (cell, side, figure, value, missed) in cases {
            let reported = not_held(&but(cell, side, figure, value));
            let names: Vec<&str> = reported.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, missed, "{cell} {side} {figure} {value}");
            assert!(reported.iter().all(|(_, outcome)| outcome == "**not held**"), "{reported:?}");
        }
    }

    #[test]
    fn above_the_null_broker_is_a_requirement_of_its_own() {
        let cell = "rate=10000/partitions=1/client=raw";
        let missed = |ours, null| {
            let mut lines = but(cell, "polylogue-sync", "publish_p99_ms", ours);
            for line in lines.iter_mut().filter(|line| line.side == "null") {
                line.figures.insert("publish_p99_ms".to_owned(), null);
            }
            not_held(&lines).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let (measured, above) = ("publish p99, as measured", "publish p99, above the null broker");
        assert!(missed(2.5, 0.0).is_empty(), "half of 5 is half");
        assert_eq!(missed(2.6, 0.0), [measured, above]);
        assert_eq!(missed(2.6, 0.5), [measured], "2.1 of 4.5 is less than half");
        assert_eq!(missed(2.8, 0.5), [measured, above], "2.3 of 4.5 is more");
        assert_eq!(missed(4.0, 5.0), [measured], "nothing is left of either: nothing is no part");
    }

    #[test]
    fn reading_may_take_what_sendfile_takes_where_that_is_more() {
        let lines = but("cost/", "polylogue-sync", FETCH_CPU, 2.9);
        assert_eq!(not_held(&lines).len(), 1);
        let mut dear = lines;
        for line in dear.iter_mut().filter(|line| line.cell == "bare") {
            line.figures.insert("sendfile_cpu_s_per_million".to_owned(), 2.0);
        }
        assert_eq!(not_held(&dear), []);
        dear.retain(|line| line.cell != "bare");
        let outcomes: Vec<String> = not_held(&dear).into_iter().map(|(_, outcome)| outcome).collect();
        assert_eq!(outcomes, ["not measured"; 2], "without the bare loops it is unknown");
    }

    #[test]
    fn too_few_rounds_decide_nothing() {
        let reported = not_held(&everything(9));
        assert_eq!(reported.len(), 3, "comparisons with ourselves: {reported:?}");
        assert!(
            reported.iter().all(|(_, outcome)| outcome == "open; too few rounds in 1 (wanted: 10)"),
            "{reported:?}"
        );
        let rows = rows(&everything(2));
        assert!(rows.iter().all(|row| row[3].starts_with("open; too few rounds in")), "{rows:?}");
        assert!(rows[3][1].starts_with("8 of 8 hold;"), "as far as is known: {rows:?}");
        let mut lines = everything(10);
        lines.retain(|line| line.cell != "size/kib=10/pipelined/client=raw");
        let reported = not_held(&lines);
        assert_eq!(reported[0].1, "held so far; not measured in 1 of 6", "{reported:?}");
    }

    #[test]
    fn a_limit_of_the_client_is_told() {
        let cell = "throughput/partitions=1/batching=default/client=raw";
        let mut lines = but(cell, "polylogue-sync", RATE, 100_000.0);
        for line in lines.iter_mut().filter(|line| line.cell == cell && line.side == "polylogue-sync") {
            line.figures.insert("produce_client_cpu_s_per_million".to_owned(), 9.0);
        }
        let reported = not_held(&lines);
        assert_eq!(reported, [("messages a second".to_owned(), "not held, client-bound".to_owned())]);
        let rows = rows(&lines);
        assert!(
            rows[3][1]
                .ends_with("7 of 8 hold; missed partitions=1/batching=default/client=raw: 1.00 times, client-bound"),
            "{rows:?}"
        );
    }

    #[test]
    fn ahead_means_in_every_round() {
        let mut lines = everything(10);
        let cell = "size/kib=1/blocking/client=raw";
        let one = lines.iter_mut().find(|line| line.cell == cell && line.side == "kafka" && line.round == 7);
        one.expect("it is in the matrix").figures.insert(RATE.to_owned(), 500_001.0);
        assert_eq!(not_held(&lines), [("messages a second, by size".to_owned(), "**not held**".to_owned())]);
    }

    #[test]
    fn smoke_runs_count_for_nothing() {
        let mut lines = everything(10);
        lines.iter_mut().for_each(|line| line.quick = true);
        assert!(rows(&lines).iter().all(|row| row[3] == "not measured"));
    }
}
