//! The floors: what the machine and the client cost without any broker's work.

use super::figures::{FLUSHED, FLUSHES, figure, place};
use super::model::{Cell, Scenario, is_bare};
use super::palette::System;
use super::stats::median;
use super::words::value;
use crate::results::ResultLine;
use std::collections::{BTreeMap, BTreeSet};

/// A row of the machine's own: what it is, the median, from the least to the most, and its unit.
pub type Bare = (String, String, Option<String>, &'static str);

const LOOPS: [(&str, &str); 14] = [
    ("paced_flush_p50_ms", "52 KiB flushed, 1,000 times a second, p50"),
    ("paced_flush_p99_ms", "the same, p99"),
    ("paced_flush_p99.9_ms", "the same, p99.9"),
    ("paced_flush_max_ms", "the same, longest"),
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

/// What the machine's bare loops and flushes cost.
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

/// The null broker with one client: over all cells the medians from the least to the most, of p50, p99 and p99.9.
#[derive(Debug, PartialEq)]
pub struct Floor<'a> {
    /// The client.
    pub client: &'a str,
    /// In how many cells.
    pub cells: usize,
    /// Of each percentile the values of the cells; empty where none tells it.
    pub publish: [Vec<f64>; 3],
}

/// What latencies the null broker has, client by client.
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

/// What a broker was seen to flush: over all cells the medians.
#[derive(Debug, PartialEq)]
pub struct Flushed<'a> {
    /// The side.
    pub side: &'a str,
    /// Flushes a second.
    pub per_s: Vec<f64>,
    /// Bytes written for each.
    pub bytes: Vec<f64>,
}

/// What each broker was seen to flush, in the order in which they are met; nothing where none was watched.
#[must_use]
pub fn flushed<'a>(scenarios: &[Scenario<'a>]) -> Vec<Flushed<'a>> {
    let mut all: Vec<Flushed<'a>> = Vec::new();
    for cell in scenarios.iter().flat_map(|scenario| &scenario.cells).filter(|cell| !cell.quick) {
        for side in &cell.sides {
            let Some(per_s) = median(&cell.values(side, FLUSHES)) else { continue };
            let at = all.iter().position(|told| told.side == side.name).unwrap_or_else(|| {
                all.push(Flushed { side: side.name, per_s: Vec::new(), bytes: Vec::new() });
                all.len() - 1
            });
            if let Some(told) = all.get_mut(at) {
                told.per_s.push(per_s);
                told.bytes.extend(median(&cell.values(side, FLUSHED)));
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
    fn loops_and_flushes_are_told_flushes_first() {
        let figures = [("sendfile_per_s", 5.0), ("paced_flush_p50_ms", 0.05), ("flush_4096_p50_us", 50.0)];
        let line = ResultLine { conditions: None, ..ResultLine::example("bare", "machine", 1, &figures) };
        let told: Vec<(String, &str)> = bare(&[line]).into_iter().map(|(title, _, _, unit)| (title, unit)).collect();
        let told: Vec<(&str, &str)> = told.iter().map(|(title, unit)| (title.as_str(), *unit)).collect();
        assert_eq!(
            told,
            [
                ("52 KiB flushed, 1,000 times a second, p50", "ms"),
                ("flush 4096 p50", "µs"),
                ("sendfile", "messages of 1 KiB/s")
            ]
        );
    }

    #[test]
    fn what_brokers_flush_is_told_side_by_side() {
        let line = |cell: &str, side: &str, figures: &[(&str, f64)]| ResultLine::example(cell, side, 1, figures);
        let lines = [
            line("A4/a", "polylogue-sync", &[(FLUSHES, 900.0), (FLUSHED, 50_000.0)]),
            line("A4/a", "kafka", &[(FLUSHES, 0.0)]),
            line("A4/b", "polylogue-sync", &[(FLUSHES, 800.0), (FLUSHED, 60_000.0)]),
            line("A4/b", "null", &[]),
        ];
        let told = scenarios(Input { lines: &lines, scenarios: &[], not_run: &[] });
        let ours = Flushed { side: "polylogue-sync", per_s: vec![900.0, 800.0], bytes: vec![50_000.0, 60_000.0] };
        assert_eq!(flushed(&told), [ours, Flushed { side: "kafka", per_s: vec![0.0], bytes: vec![] }]);
    }

    #[test]
    fn the_null_broker_is_told_client_by_client() {
        let line = |cell: &str, p99| ResultLine::example(cell, "null", 1, &[("publish_p99_ms", p99)]);
        let lines = [line("A4/a", 0.3), line("A4/b", 0.5)];
        let told = null(&scenarios(Input { lines: &lines, scenarios: &[], not_run: &[] }))
            .into_iter()
            .map(|floor| (floor.client, floor.cells, floor.publish))
            .collect::<Vec<_>>();
        assert_eq!(told, [("raw", 2, [vec![], vec![0.3, 0.5], vec![]])]);
    }
}
