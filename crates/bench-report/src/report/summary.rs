//! Requirements of the comparison with Kafka, and whether they are met: one row for each, from result lines alone.
//!
//! ```text
//!   requirement                 checks: one for each cell and side that it covers           row
//!   "produce CPU, Kafka"   ---> cost/partitions=1   polylogue-sync    0.28 of 0.33   met
//!                               cost/partitions=1   polylogue-async   0.41 of 0.33   missed   --> "missed", with the cell
//!                               cost/partitions=100 polylogue-sync    -              not measured
//! ```
//!
//! Cells come from the [`crate::matrix`], so that cells without lines are reported. The comparison with RabbitMQ has rows of its own
//! ([`queues`]); the lines decide which comparison it is.

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

/// Limit on processor time to write, as a share of Kafka's.
const PRODUCE_OF_KAFKA: f64 = 1.0 / 3.0;
/// Limit on processor time to write, relative to the bare loop's.
const PRODUCE_OF_BARE: f64 = 1.8;
/// Limits on processor time to read, as a share of Kafka's and of sendfile's; the larger limit applies.
const FETCH_OF_KAFKA: f64 = 0.5;
const FETCH_OF_BARE: f64 = 1.5;
/// Minimum throughput relative to Kafka with a flush for each message.
const TIMES_FSYNC: f64 = 5.0;
/// Limits on latencies, as a share of Kafka's.
const P99_OF_KAFKA: f64 = 0.5;
const P999_OF_KAFKA: f64 = 0.25;
/// Limits on latencies with many partitions or groups, and with a cold reader, relative to those without.
const MANY_OF_FEW: f64 = 1.3;
const DISTURBED_OF_NOT: f64 = 1.5;
/// Number of rounds for comparisons of polylogue with itself.
const OWN_ROUNDS_MIN: usize = 10;
/// Limit on checks that are listed one by one. Of more, the number met is reported, with those missed.
const ONE_BY_ONE_MAX: usize = 4;

const PRODUCE_CPU: &str = "produce_cpu_s_per_million";
const FETCH_CPU: &str = "fetch_cpu_s_per_million";
const RATE: &str = "produce_per_s";

/// The measurement of one side of one cell.
#[derive(Debug, Clone, PartialEq)]
struct Measured {
    /// The figure, formatted.
    text: String,
    /// The figure relative to its limit; above 1 the requirement is missed.
    part: f64,
    /// Whether the requirement is met in these rounds.
    met: bool,
    /// Number of rounds.
    rounds: usize,
    /// Whether the client limited polylogue's side.
    bound: bool,
}

/// A check of a requirement: one cell and side.
#[derive(Debug, Clone, PartialEq)]
struct Check {
    place: String,
    measured: Option<Measured>,
}

/// A row: a requirement with its checks.
#[derive(Debug)]
struct Requirement {
    name: String,
    target: String,
    rounds_min: usize,
    checks: Vec<Check>,
}

/// A target for the ratio of polylogue's figure to the peer's.
#[derive(Debug, Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// More in every pair.
    Ahead,
    /// Less in every pair.
    Lower,
}

/// The measurements by cell.
struct Found<'a>(BTreeMap<&'a str, Sides<'a>>);

impl Found<'_> {
    fn values(&self, cell: &str, side: &str, figure: &str) -> Vec<f64> {
        self.0.get(cell).map(|sides| sides.values(side, figure)).unwrap_or_default()
    }

    fn is_bound(&self, cell: &Cell, side: &str, figure: &str) -> bool {
        let fast = matches!(cell.kind, Kind::Cost | Kind::Throughput | Kind::Size);
        fast && self.0.get(cell.name.as_str()).is_some_and(|sides| sides.is_client_bound(side, figure))
    }

    /// Returns the median ratio of a figure of `ours` to that of `theirs`.
    fn ratio(&self, cell: &Cell, figure: &str, ours: &str, theirs: &str, bound: Bound) -> Option<Measured> {
        let pairs = self.0.get(cell.name.as_str())?.pairs(figure, ours, theirs);
        // 0 relative to anything is 0, also relative to 0.
        let of = |(ours, theirs): &(f64, f64)| if *ours > 0.0 { ours / theirs } else { 0.0 };
        let ratio = median(&pairs.iter().map(of).collect::<Vec<_>>())?;
        let (part, met) = match bound {
            Bound::AtMost(limit) => (ratio / limit, ratio <= limit),
            Bound::AtLeast(limit) => (limit / ratio, ratio >= limit),
            Bound::Ahead => (1.0 / ratio, pairs.iter().all(|(ours, theirs)| ours > theirs)),
            Bound::Lower => (ratio, pairs.iter().all(|(ours, theirs)| ours < theirs)),
        };
        let bound = figure == RATE && self.is_bound(cell, ours, figure);
        Some(Measured { text: format!("{} times", number(ratio)), part, met, rounds: pairs.len(), bound })
    }

    /// Returns the median of a figure in seconds, compared with its limit.
    fn seconds(&self, cell: &Cell, figure: &str, ours: &str, limit: f64) -> Option<Measured> {
        let values = self.values(&cell.name, ours, figure);
        let middle = median(&values)?;
        let text = format!("{} s of {} s", number(middle), number(limit));
        Some(Measured { text, part: middle / limit, met: middle <= limit, rounds: values.len(), bound: false })
    }

    fn bare(&self, figure: &str) -> Option<f64> {
        median(&self.values(Kind::Bare.name(), MACHINE, figure))
    }
}

/// Writes the table of requirements. `by_cell`: the lines of each cell; smoke runs do not count.
pub fn write(text: &mut String, by_cell: &[(&str, Vec<&ResultLine>)]) {
    let full = |lines: &[&ResultLine]| lines.iter().all(|line| !line.quick);
    let found = by_cell.iter().filter(|(_, lines)| full(lines)).map(|(cell, lines)| (*cell, Sides::of(lines)));
    text.push_str("## Requirements\n\n| requirement | measured (median) | target | result |\n|---|---|---|---|\n");
    let found = Found(found.collect());
    let rows = if is_of_queues(by_cell) { queues::requirements(&found) } else { requirements(&found) };
    for requirement in rows {
        let (name, target) = (&requirement.name, &requirement.target);
        let _ = writeln!(text, "| {name} | {} | {target} | {} |", requirement.measured(), requirement.outcome());
    }
    text.push_str("\n## Cells\n\n");
}

/// Returns whether lines are of the comparison with RabbitMQ.
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
    all.push(ratios(found, "messages a second, by size", "ahead of Kafka", &sizes, RATE, &Target::Kafka, Bound::Ahead));
    all
}

fn of_kind(cells: &[Cell], kind: Kind) -> Vec<&Cell> {
    cells.iter().filter(|cell| cell.kind == kind).collect()
}

/// Returns a cell's name without its kind.
fn place(cell: &Cell) -> &str {
    cell.name.split_once('/').map_or(&cell.name, |(_, rest)| rest)
}

/// Returns a requirement on the ratio of polylogue in class `sync` to `theirs` in each of `cells`.
fn ratios(
    found: &Found<'_>,
    name: &str,
    target: &str,
    cells: &[&Cell],
    figure: &str,
    theirs: &Target,
    bound: Bound,
) -> Requirement {
    let (ours, theirs) = (Target::PolylogueSync.name(), theirs.name());
    let check = |cell: &&Cell| Check {
        place: place(cell).to_owned(),
        measured: found.ratio(cell, figure, &ours, &theirs, bound),
    };
    let checks = cells.iter().map(check).collect();
    Requirement { name: name.to_owned(), target: target.to_owned(), rounds_min: PAIRS_MIN, checks }
}

fn costs(found: &Found<'_>, cells: &[Cell]) -> Vec<Requirement> {
    let kafka = Target::Kafka.name();
    let mut of = [Vec::new(), Vec::new(), Vec::new()];
    let [against_kafka, against_bare, fetched] = &mut of;
    for cell in of_kind(cells, Kind::Cost) {
        for side in cell.sides.iter().filter(|side| side.label != kafka) {
            let ours = &side.label;
            let check = |measured| Check { place: format!("{} {ours}", place(cell)), measured };
            let bound = Bound::AtMost(PRODUCE_OF_KAFKA);
            against_kafka.push(check(found.ratio(cell, PRODUCE_CPU, ours, &kafka, bound)));
            let flushed = if side.target == Target::PolylogueSync { "_flushed" } else { "" };
            let bare = found.bare(&format!("write_1MB{flushed}_cpu_s_per_million"));
            against_bare
                .push(check(bare.and_then(|bare| found.seconds(cell, PRODUCE_CPU, ours, PRODUCE_OF_BARE * bare))));
            let limits = [
                median(&found.values(&cell.name, &kafka, FETCH_CPU)).map(|kafka| FETCH_OF_KAFKA * kafka),
                found.bare("sendfile_cpu_s_per_million").map(|bare| FETCH_OF_BARE * bare),
            ];
            // The larger limit is known only if both are.
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
    let requirement = |((name, target), checks): ((&str, &str), Vec<Check>)| Requirement {
        name: name.to_owned(),
        target: target.to_owned(),
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
    let times = Bound::AtLeast(TIMES_FSYNC);
    vec![
        ratios(found, "messages a second", "ahead of Kafka", &all, RATE, kafka, Bound::Ahead),
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
                rows.push(ratios(found, name, text, cells, figure, &Target::Kafka, Bound::AtMost(limit)));
            };
            row(&format!("{title} {percentile}, as measured"), &figure);
            if let Some(above) = above_null(&figure) {
                row(&format!("{title} {percentile}, above the null broker"), &above);
            }
        }
    }
    rows
}

/// Returns the requirements of cells whose sides are all polylogue.
fn own(found: &Found<'_>, cells: &[Cell]) -> Vec<Requirement> {
    let mut rows = Vec::new();
    for cell in cells.iter().filter(|cell| cell.sides.iter().all(|side| side.target == Target::PolylogueSync)) {
        let [ours, theirs] = cell.sides.as_slice() else { continue };
        let limit = if cell.kind == Kind::Cold { DISTURBED_OF_NOT } else { MANY_OF_FEW };
        let measured = found.ratio(cell, "publish_p99_ms", &ours.label, &theirs.label, Bound::AtMost(limit));
        rows.push(Requirement {
            name: format!("publish p99, {} against {}", ours.label, theirs.label),
            target: format!("at most {limit} times, at least {OWN_ROUNDS_MIN} rounds"),
            rounds_min: OWN_ROUNDS_MIN,
            checks: vec![Check { place: place(cell).to_owned(), measured }],
        });
    }
    rows
}

impl Requirement {
    /// Formats the measurements: all of them if they are few, else those missed, worst first, or the one closest to its limit.
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
        let missed: Vec<String> = found.iter().filter(|(_, measured)| !measured.met).map(reported).collect();
        let met = format!("{} of {} met", found.len() - missed.len(), found.len());
        match (missed.is_empty(), found.first()) {
            (true, Some(closest)) => format!("{met}; closest {}", reported(closest)),
            _ => format!("{met}; missed {}", missed.join("; ")),
        }
    }

    /// Returns whether the requirement is met in all of its checks.
    fn outcome(&self) -> String {
        let measured: Vec<&Measured> = self.checks.iter().filter_map(|check| check.measured.as_ref()).collect();
        let decided: Vec<&Measured> =
            measured.iter().copied().filter(|measured| measured.rounds >= self.rounds_min).collect();
        let missed: Vec<&&Measured> = decided.iter().filter(|measured| !measured.met).collect();
        if measured.is_empty() {
            return "not measured".to_owned();
        }
        if !missed.is_empty() {
            let bound = missed.iter().all(|measured| measured.bound);
            return if bound { "missed, client-bound" } else { "**missed**" }.to_owned();
        }
        let mut left = Vec::new();
        if decided.len() < measured.len() {
            left.push(format!("too few rounds in {} (needed: {})", measured.len() - decided.len(), self.rounds_min));
        }
        if measured.len() < self.checks.len() {
            left.push(format!("not measured in {} of {}", self.checks.len() - measured.len(), self.checks.len()));
        }
        match (decided.is_empty(), left.is_empty()) {
            (_, true) => "met".to_owned(),
            (false, false) => format!("met so far; {}", left.join("; ")),
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

    /// Figures with which all requirements are met.
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

    /// Returns the rows: requirement, measured, target, result.
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

    /// Returns the rows that are not met: requirement and result.
    fn not_met(lines: &[ResultLine]) -> Vec<(String, String)> {
        let rows = rows(lines).into_iter();
        rows.filter(|row| row[3] != "met").map(|[name, _, _, outcome]| (name, outcome)).collect()
    }

    /// Returns lines that meet all requirements, but with a figure of a side changed in the cells whose name contains `cell`.
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
    fn every_requirement_can_be_met() {
        let rows = rows(&everything(10));
        assert_eq!(rows.len(), ROWS);
        assert!(rows.iter().all(|row| row[3] == "met"), "{rows:?}");
        assert!(rows[0][1].contains("partitions=100/client=raw polylogue-async: 0.25 times"), "{rows:?}");
        assert!(rows[1][1].contains("partitions=1/client=raw polylogue-sync: 1.00 s of 1.26 s"), "flushed: {rows:?}");
        assert!(rows[1][1].contains("partitions=1/client=raw polylogue-async: 1.00 s of 1.08 s"), "{rows:?}");
        assert_eq!(rows[3][1], "8 of 8 met; closest partitions=1/batching=default/client=perf-test: 5.00 times");
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
            let reported = not_met(&but(cell, side, figure, value));
            let names: Vec<&str> = reported.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, missed, "{cell} {side} {figure} {value}");
            assert!(reported.iter().all(|(_, outcome)| outcome == "**missed**"), "{reported:?}");
        }
    }

    #[test]
    fn latency_above_the_null_broker_is_a_separate_requirement() {
        let cell = "rate=10000/partitions=1/client=raw";
        let missed = |ours, null| {
            let mut lines = but(cell, "polylogue-sync", "publish_p99_ms", ours);
            for line in lines.iter_mut().filter(|line| line.side == "null") {
                line.figures.insert("publish_p99_ms".to_owned(), null);
            }
            not_met(&lines).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let (measured, above) = ("publish p99, as measured", "publish p99, above the null broker");
        assert!(missed(2.5, 0.0).is_empty(), "half of 5 is half");
        assert_eq!(missed(2.6, 0.0), [measured, above]);
        assert_eq!(missed(2.6, 0.5), [measured], "2.1 of 4.5 is less than half");
        assert_eq!(missed(2.8, 0.5), [measured, above], "2.3 of 4.5 is more");
        assert_eq!(missed(4.0, 5.0), [measured], "0 above the null broker for both");
    }

    #[test]
    fn the_limit_on_reading_is_sendfiles_if_that_is_larger() {
        let lines = but("cost/", "polylogue-sync", FETCH_CPU, 2.9);
        assert_eq!(not_met(&lines).len(), 1);
        let mut dear = lines;
        for line in dear.iter_mut().filter(|line| line.cell == "bare") {
            line.figures.insert("sendfile_cpu_s_per_million".to_owned(), 2.0);
        }
        assert_eq!(not_met(&dear), []);
        dear.retain(|line| line.cell != "bare");
        let outcomes: Vec<String> = not_met(&dear).into_iter().map(|(_, outcome)| outcome).collect();
        assert_eq!(outcomes, ["not measured"; 2], "without the bare loops it is unknown");
    }

    #[test]
    fn too_few_rounds_decide_nothing() {
        let reported = not_met(&everything(9));
        assert_eq!(reported.len(), 3, "comparisons with ourselves: {reported:?}");
        assert!(
            reported.iter().all(|(_, outcome)| outcome == "open; too few rounds in 1 (needed: 10)"),
            "{reported:?}"
        );
        let rows = rows(&everything(2));
        assert!(rows.iter().all(|row| row[3].starts_with("open; too few rounds in")), "{rows:?}");
        assert!(rows[3][1].starts_with("8 of 8 met;"), "so far: {rows:?}");
        let mut lines = everything(10);
        lines.retain(|line| line.cell != "size/kib=10/pipelined/client=raw");
        let reported = not_met(&lines);
        assert_eq!(reported[0].1, "met so far; not measured in 1 of 6", "{reported:?}");
    }

    #[test]
    fn a_client_bound_miss_is_reported_as_such() {
        let cell = "throughput/partitions=1/batching=default/client=raw";
        let mut lines = but(cell, "polylogue-sync", RATE, 100_000.0);
        for line in lines.iter_mut().filter(|line| line.cell == cell && line.side == "polylogue-sync") {
            line.figures.insert("produce_client_cpu_s_per_million".to_owned(), 9.0);
        }
        let reported = not_met(&lines);
        assert_eq!(reported, [("messages a second".to_owned(), "missed, client-bound".to_owned())]);
        let rows = rows(&lines);
        assert!(
            rows[3][1]
                .ends_with("7 of 8 met; missed partitions=1/batching=default/client=raw: 1.00 times, client-bound"),
            "{rows:?}"
        );
    }

    #[test]
    fn ahead_means_in_every_round() {
        let mut lines = everything(10);
        let cell = "size/kib=1/blocking/client=raw";
        let one = lines.iter_mut().find(|line| line.cell == cell && line.side == "kafka" && line.round == 7);
        one.expect("it is in the matrix").figures.insert(RATE.to_owned(), 500_001.0);
        assert_eq!(not_met(&lines), [("messages a second, by size".to_owned(), "**missed**".to_owned())]);
    }

    #[test]
    fn smoke_runs_do_not_count() {
        let mut lines = everything(10);
        lines.iter_mut().for_each(|line| line.quick = true);
        assert!(rows(&lines).iter().all(|row| row[3] == "not measured"));
    }
}
