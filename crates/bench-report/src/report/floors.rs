//! Floors: lower bounds set by machine and client, measured with bare loops and the null broker; and observed flushes of brokers.

use super::figures::{FLUSHED, FLUSHES, figure, place};
use super::model::{Cell, Scenario, is_bare};
use super::palette::System;
use super::stats::{median, number};
use super::words::value;
use crate::how::unpinned;
use crate::results::{Conditions, ResultLine};
use std::collections::{BTreeMap, BTreeSet};

/// A row of the bare loops: title, median, minimum to maximum, and unit.
pub type Bare = (String, String, Option<String>, &'static str);

const LOOPS: [(&str, &str); 14] = [
    ("paced_flush_p50_ms", "52 KiB flushed, 1,000 times a second, p50"),
    ("paced_flush_p99_ms", "the same, p99"),
    ("paced_flush_p99.9_ms", "the same, p99.9"),
    ("paced_flush_max_ms", "the same, maximum"),
    ("write_1MB_per_s", "read, sum, write 1 MB batches"),
    ("write_1MB_flushed_per_s", "read, sum, write and flush 1 MB batches"),
    ("write_16KB_per_s", "read, sum, write 16 KB batches"),
    ("write_16KB_flushed_per_s", "read, sum, write and flush 16 KB batches"),
    ("sendfile_per_s", "sendfile"),
    ("write_1MB_cpu_s_per_million", "read, sum, write 1 MB batches"),
    ("write_1MB_flushed_cpu_s_per_million", "read, sum, write and flush 1 MB batches"),
    ("write_16KB_cpu_s_per_million", "read, sum, write 16 KB batches"),
    ("write_16KB_flushed_cpu_s_per_million", "read, sum, write and flush 16 KB batches"),
    ("sendfile_cpu_s_per_million", "sendfile"),
];

/// Returns the rows of the bare loops and flushes.
#[must_use]
pub fn bare(lines: &[ResultLine]) -> Vec<Bare> {
    let mut by_name: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for line in lines.iter().filter(|line| is_bare(line) && line.failures.is_empty()) {
        for (name, value) in &line.figures {
            by_name.entry(name).or_default().push(*value);
        }
    }
    let known = |name: &str| LOOPS.iter().position(|(known, _)| *known == name);
    let mut names: Vec<&str> = by_name.keys().copied().collect();
    names.sort_by_key(|name| (!name.contains("flush_"), known(name).unwrap_or(usize::MAX), place(name)));
    let row = |name: &str| {
        let (middle, spread) = value(by_name.get(name)?)?;
        let about = figure(name);
        let title = known(name)
            .and_then(|at| LOOPS.get(at))
            .map_or_else(|| about.title.to_string(), |(_, title)| (*title).to_owned());
        let about_unit = match name {
            name if name.ends_with("_cpu_s_per_million") => "CPU s per million",
            name if name.ends_with("_ms") => "ms",
            _ => about.unit,
        };
        let unit = if name.ends_with("_per_s") && known(name).is_some() { "messages of 1 KiB/s" } else { about_unit };
        Some((title, middle, spread, unit))
    };
    names.into_iter().filter_map(row).collect()
}

/// Latencies of the null broker with one client, over all cells.
#[derive(Debug, PartialEq)]
pub struct Floor<'a> {
    /// The client.
    pub client: &'a str,
    /// Number of cells.
    pub cells: usize,
    /// Medians of the cells, for p50, p99 and p99.9; empty if not measured.
    pub publish: [Vec<f64>; 3],
}

/// Returns the latencies of the null broker by client.
#[must_use]
pub fn null<'a>(scenarios: &[Scenario<'a>]) -> Vec<Floor<'a>> {
    let cells = || scenarios.iter().flat_map(|scenario| &scenario.cells).filter(|cell| !cell.quick);
    let nulls = |cell: &Cell<'a>| cell.sides.iter().copied().find(|side| side.system == System::Null);
    let clients: BTreeSet<&str> = cells().filter_map(nulls).map(|side| side.client.0).collect();
    let floor = |client: &'a str| {
        let mut floor = Floor { client, cells: 0, publish: Default::default() };
        for cell in cells() {
            let Some(side) = nulls(cell).filter(|side| side.client.0 == client) else { continue };
            let figures = ["publish_p50_ms", "publish_p99_ms", "publish_p99.9_ms"];
            let medians = figures.map(|name| median(&cell.values(&side, name)));
            floor.cells += usize::from(medians.iter().any(Option::is_some));
            for (values, median) in floor.publish.iter_mut().zip(medians) {
                values.extend(median);
            }
        }
        floor
    };
    clients.into_iter().map(floor).filter(|floor| floor.cells > 0).collect()
}

/// The client's own latencies for the load of a cell, measured with the null broker.
#[derive(Debug, PartialEq)]
pub struct Beside<'s> {
    /// The client and its protocol.
    pub client: (&'s str, &'static str),
    /// The cell that measured it: name and link.
    pub cell: (&'s str, &'s str),
    /// Publish p50, p99 and p99.9, if measured: medians of the rounds.
    pub publish: Vec<(&'static str, f64)>,
}

impl Beside<'_> {
    /// Formats the latencies: "p50 0.21, p99 0.35 ms".
    #[must_use]
    pub fn reported(&self) -> String {
        let reported: Vec<String> = self.publish.iter().map(|(name, ms)| format!("{name} {}", number(*ms))).collect();
        format!("{} ms", reported.join(", "))
    }
}

/// Returns whether two conditions have the same publishing load: client, rate, message size, batching, topics, partitions, producers and
/// cores. Readers, window and backlog do not affect the client's own publish latency.
#[must_use]
pub fn is_written_alike(one: &Conditions, other: &Conditions) -> bool {
    let written = |reported: &Conditions| {
        (
            (reported.rate, reported.message_bytes, reported.in_flight, reported.partitions),
            (reported.many.topics, reported.many.producers, reported.queue.is_some()),
            (reported.client_cores, reported.pinning == unpinned()),
        )
    };
    let is_paced = one.rate > 0 && one.ladder.is_empty() && other.ladder.is_empty();
    is_paced && written(one) == written(other) && one.client == other.client && one.batching == other.batching
}

/// Returns the null broker's latencies for the same publishing load, client and machine as polylogue's side of a cell. `None` if the cell
/// has the null broker as a side, at unlimited rate, or if it was not measured.
#[must_use]
pub fn beside<'s>(scenarios: &'s [Scenario<'_>], cell: &Cell<'_>) -> Option<Beside<'s>> {
    if cell.sides.iter().any(|side| side.system == System::Null) {
        return None;
    }
    let ours = cell.ours()?;
    let line = cell.lines.iter().find(|line| line.side == ours.name)?;
    let reported = line.conditions.as_ref()?;
    let is_alike = |other: &ResultLine| {
        let alike = other.conditions.as_ref().is_some_and(|conditions| is_written_alike(conditions, reported));
        alike && other.machine == line.machine && other.quick == line.quick && other.failures.is_empty()
    };
    let found = scenarios.iter().flat_map(|scenario| &scenario.cells).find_map(|other| {
        let null = other.sides.iter().find(|side| side.system == System::Null)?;
        let is_it = other.lines.iter().any(|line| line.side == null.name && is_alike(line));
        is_it.then_some((other, *null))
    });
    let (other, null) = found?;
    let figures = [("p50", "publish_p50_ms"), ("p99", "publish_p99_ms"), ("p99.9", "publish_p99.9_ms")];
    let publish = figures.into_iter().filter_map(|(name, figure)| Some((name, median(&other.values(&null, figure))?)));
    let publish: Vec<(&str, f64)> = publish.collect();
    (!publish.is_empty()).then(|| Beside { client: null.client, cell: (other.name, &other.slug), publish })
}

/// Observed flushes of a broker: medians over all cells.
#[derive(Debug, PartialEq)]
pub struct Flushed<'a> {
    /// The side.
    pub side: &'a str,
    /// Flushes a second.
    pub per_s: Vec<f64>,
    /// Bytes written per flush.
    pub bytes: Vec<f64>,
}

/// Returns the observed flushes of each broker, in the order of the lines.
#[must_use]
pub fn flushed<'a>(scenarios: &[Scenario<'a>]) -> Vec<Flushed<'a>> {
    let mut all: Vec<Flushed<'a>> = Vec::new();
    for cell in scenarios.iter().flat_map(|scenario| &scenario.cells).filter(|cell| !cell.quick) {
        for side in &cell.sides {
            let Some(per_s) = median(&cell.values(side, FLUSHES)) else { continue };
            let at = all.iter().position(|reported| reported.side == side.name).unwrap_or_else(|| {
                all.push(Flushed { side: side.name, per_s: Vec::new(), bytes: Vec::new() });
                all.len() - 1
            });
            if let Some(reported) = all.get_mut(at) {
                reported.per_s.push(per_s);
                reported.bytes.extend(median(&cell.values(side, FLUSHED)));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::scenarios;
    use crate::report::scenario::Input;

    #[test]
    fn flushes_come_before_loops() {
        let figures = [("sendfile_per_s", 5.0), ("paced_flush_p50_ms", 0.05), ("flush_4096_p50_us", 50.0)];
        let line = ResultLine { conditions: None, ..ResultLine::example("bare", "machine", 1, &figures) };
        let reported: Vec<(String, &str)> =
            bare(&[line]).into_iter().map(|(title, _, _, unit)| (title, unit)).collect();
        let reported: Vec<(&str, &str)> = reported.iter().map(|(title, unit)| (title.as_str(), *unit)).collect();
        assert_eq!(
            reported,
            [
                ("52 KiB flushed, 1,000 times a second, p50", "ms"),
                ("flush 4096 p50", "µs"),
                ("sendfile", "messages of 1 KiB/s")
            ]
        );
    }

    #[test]
    fn observed_flushes_are_by_side() {
        let line = |cell: &str, side: &str, figures: &[(&str, f64)]| ResultLine::example(cell, side, 1, figures);
        let lines = [
            line("A4/a", "polylogue-sync", &[(FLUSHES, 900.0), (FLUSHED, 50_000.0)]),
            line("A4/a", "kafka", &[(FLUSHES, 0.0)]),
            line("A4/b", "polylogue-sync", &[(FLUSHES, 800.0), (FLUSHED, 60_000.0)]),
            line("A4/b", "null", &[]),
        ];
        let reported = scenarios(Input { lines: &lines, scenarios: &[], not_run: &[] });
        let ours = Flushed { side: "polylogue-sync", per_s: vec![900.0, 800.0], bytes: vec![50_000.0, 60_000.0] };
        assert_eq!(flushed(&reported), [ours, Flushed { side: "kafka", per_s: vec![0.0], bytes: vec![] }]);
    }

    #[test]
    fn the_floor_of_a_cell_has_the_same_publishing_load() {
        let line = |cell: &str, side: &str, p99| {
            let mut line = ResultLine::example(cell, side, 1, &[("publish_p99_ms", p99)]);
            line.conditions.as_mut().expect("it has some").rate = 5_000;
            line
        };
        let reported = |lines: &[ResultLine]| {
            let all = scenarios(Input { lines, scenarios: &[], not_run: &[] });
            let cell =
                all.iter().flat_map(|reported| &reported.cells).find(|cell| cell.name == "D6/x").expect("the cell");
            beside(&all, cell).map(|beside| (beside.cell.0.to_owned(), beside.reported()))
        };
        let ours = line("D6/x", "polylogue-sync", 2.0);
        let mut null = line("floors/x", "null", 0.3);
        let found = Some(("floors/x".to_owned(), "p99 0.30 ms".to_owned()));
        assert_eq!(reported(&[ours.clone(), null.clone()]), found);
        let mut read = ours.clone();
        let conditions = read.conditions.as_mut().expect("it has some");
        (conditions.groups, conditions.window_ms, conditions.backlog) = (10, 45_000, 7);
        assert_eq!(reported(&[read, null.clone()]), found, "readers do not matter");
        assert_eq!(
            reported(&[ours.clone(), line("D6/x", "null", 0.3), null.clone()]),
            None,
            "it is a side of the cell"
        );
        let changes: [fn(&mut ResultLine, &mut Conditions); 6] = [
            |_, reported| reported.rate = 6_000,
            |_, reported| reported.client = "java".to_owned(),
            |_, reported| reported.many.producers = 2,
            |_, reported| reported.partitions = 2,
            |_, reported| reported.batching = "other".to_owned(),
            |line, _| line.machine.cores = 64,
        ];
        for change in changes {
            let mut other = null.clone();
            let mut conditions = other.conditions.take().expect("it has some");
            change(&mut other, &mut conditions);
            other.conditions = Some(conditions);
            assert_eq!(reported(&[ours.clone(), other.clone()]), None, "{other:?}");
        }
        null.failures.push("the rate was not held".to_owned());
        assert_eq!(reported(&[ours, null]), None, "it does not count");
    }

    #[test]
    fn floors_of_the_null_broker_are_by_client() {
        let line = |cell: &str, p99| ResultLine::example(cell, "null", 1, &[("publish_p99_ms", p99)]);
        let lines = [line("A4/a", 0.3), line("A4/b", 0.5)];
        let reported = null(&scenarios(Input { lines: &lines, scenarios: &[], not_run: &[] }))
            .into_iter()
            .map(|floor| (floor.client, floor.cells, floor.publish))
            .collect::<Vec<_>>();
        assert_eq!(reported, [("raw", 2, [vec![], vec![0.3, 0.5], vec![]])]);
    }
}
