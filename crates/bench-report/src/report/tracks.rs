//! The time series of a run as panels: known series with titles, others under their own names.

use super::charts::time::{Panel, Run};
use super::figures::plain;
use super::model::{Cell, Mark, Side};
use super::stats::median;
use crate::results::ResultLine;
use serde_json::Value;
use std::collections::BTreeMap;

struct Track {
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    is_log: bool,
    times: f64,
    /// Whether it is of the load, not of resource usage.
    is_load: bool,
}

const fn load(name: &'static str, title: &'static str, unit: &'static str, is_log: bool, times: f64) -> Track {
    Track { name, title, unit, is_log, times, is_load: true }
}

const fn taken(name: &'static str, title: &'static str, unit: &'static str, times: f64) -> Track {
    Track { name, title, unit, is_log: false, times, is_load: false }
}

const MB: f64 = 1e-6;

const TRACKS: [Track; 20] = [
    load("publish_us", "publish p99", "ms", true, 1e-3),
    load("end_to_end_us", "end-to-end p99", "ms", true, 1e-3),
    load("acked", "acknowledged", "messages/s", false, 1.0),
    load("received", "read", "messages/s", false, 1.0),
    load("backlog", "backlog", "messages", false, 1.0),
    load("broker_cpu_s", "broker CPU", "cores", false, 1.0),
    load("client_cpu_s", "client CPU", "cores", false, 1.0),
    taken("broker_anonymous_mib", "broker memory, anonymous", "MiB", 1.0),
    taken("broker_shared_mib", "broker memory, shared part", "MiB", 1.0),
    taken("broker_file_mib", "broker memory, file-mapped", "MiB", 1.0),
    taken("page_cache_mib", "page cache", "MiB", 1.0),
    taken("device_write_bytes", "written to the device", "MB/s", MB),
    taken("device_read_bytes", "read from the device", "MB/s", MB),
    taken("device_operations", "device operations", "/s", 1.0),
    taken("device_busy", "device busy, share of the second", "", 1.0),
    taken("loopback_bytes", "network (loopback, both directions)", "MB/s", MB),
    taken("files", "open files", "", 1.0),
    taken("threads", "threads", "", 1.0),
    taken("connections", "connections", "", 1.0),
    taken("errors", "errors", "/s", 1.0),
];
/// Series that are not shown, because others contain their information.
const LEFT_OUT: [&str; 1] = ["sent"];

/// The panels of a cell.
#[derive(Debug, Default, PartialEq)]
pub struct Panels {
    /// Load: latency, rates, backlog, processor time.
    pub load: Vec<Panel>,
    /// Resource usage: memory, device, network, files.
    pub taken: Vec<Panel>,
    /// Length of the warm-up. Seconds.
    pub warmup_s: f64,
}

/// Returns the round of a side with the median publish p99, of those that count if there are any.
#[must_use]
pub fn middle_round<'a>(cell: &Cell<'a>, side: &Side<'_>) -> Option<&'a ResultLine> {
    let of_side = || cell.lines.iter().copied().filter(|line| line.side == side.name && line.series.is_some());
    let counts: Vec<&ResultLine> = of_side().filter(|line| line.failures.is_empty()).collect();
    let lines = if counts.is_empty() { of_side().collect() } else { counts };
    let p99 = |line: &ResultLine| line.figures.get("publish_p99_ms").copied();
    let values: Vec<f64> = lines.iter().filter_map(|line| p99(line)).collect();
    let Some(middle) = median(&values) else { return lines.first().copied() };
    let distance = |line: &&&ResultLine| p99(line).map_or(f64::MAX, |p99| (p99 - middle).abs());
    lines.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).copied()
}

/// Returns the time series of a line by name.
pub(super) fn lists(line: &ResultLine) -> BTreeMap<String, Vec<f64>> {
    let Some(Ok(Value::Object(fields))) = line.series.as_ref().map(serde_json::to_value) else {
        return BTreeMap::new();
    };
    let list = |value: Value| -> Option<Vec<f64>> {
        value.as_array().map(|values| values.iter().map(|value| value.as_f64().unwrap_or(f64::NAN)).collect())
    };
    fields.into_iter().filter_map(|(name, value)| Some((name, list(value)?))).collect()
}

/// Returns whether a series is of garbage collection: these are marks, not panels.
fn is_of_collector(name: &str) -> bool {
    name.contains("collection") || name.contains("gc_") || name.ends_with("_gc")
}

/// Returns milliseconds of the broker's garbage collections in each second.
fn collections(lists: &BTreeMap<String, Vec<f64>>) -> Vec<f64> {
    let is_it = |name: &str| is_of_collector(name) && name.ends_with("_ms") && !name.contains("client");
    lists.iter().find(|(name, _)| is_it(name)).map(|(_, values)| values.clone()).unwrap_or_default()
}

/// Returns the length of the warm-up in seconds: measured, or else configured.
fn warmup_s(line: &ResultLine) -> f64 {
    let reported = line.conditions.as_ref().map_or(0.0, |reported| reported.warmup_ms as f64 / 1e3);
    line.figures.get("warm_up_s").copied().unwrap_or(reported)
}

/// Returns the length of a run in seconds. Later seconds only have messages that were in flight.
fn seconds(line: &ResultLine) -> usize {
    let window_s = line.conditions.as_ref().map_or(0.0, |reported| reported.window_ms as f64 / 1e3);
    if window_s > 0.0 { (warmup_s(line) + window_s).ceil() as usize } else { usize::MAX }
}

/// Returns the panels of a cell; empty if its lines have no series.
#[must_use]
pub fn panels(cell: &Cell<'_>) -> Panels {
    let mut panels = Panels::default();
    let mut sides = Vec::new();
    for side in &cell.sides {
        let Some(line) = middle_round(cell, side) else { continue };
        panels.warmup_s = panels.warmup_s.max(warmup_s(line));
        let name = match Mark::of(line) {
            Mark::Counts => side.name.to_owned(),
            mark => format!("{} ({})", side.name, mark.text()),
        };
        sides.push((name, side.look, lists(line), seconds(line)));
    }
    let mut names: Vec<&str> = TRACKS.iter().map(|track| track.name).collect();
    for name in sides.iter().flat_map(|(_, _, lists, _)| lists.keys()) {
        if !names.contains(&name.as_str()) && !LEFT_OUT.contains(&name.as_str()) && !is_of_collector(name) {
            names.push(name);
        }
    }
    for name in names {
        let track = TRACKS.iter().find(|track| track.name == name);
        let times = track.map_or(1.0, |track| track.times);
        let is_log = track.is_some_and(|track| track.is_log);
        let run = |(side, look, lists, seconds): &(String, _, BTreeMap<String, Vec<f64>>, usize)| {
            let values: Vec<f64> = lists.get(name)?.iter().take(*seconds).map(|value| value * times).collect();
            let collections_ms = collections(lists).into_iter().take(*seconds).collect();
            // A latency without samples in the whole run is omitted.
            let has_samples = values.iter().any(|value| !is_log || *value != 0.0);
            has_samples.then(|| Run { name: side.clone(), look: *look, values, collections_ms })
        };
        let runs: Vec<Run> = sides.iter().filter_map(run).collect();
        let (title, unit) = track.map_or_else(|| plain(name), |track| (track.title.to_owned(), track.unit));
        let panel = Panel { title, unit, is_log, runs };
        // A series that is zero in the whole run is omitted.
        if panel.runs.iter().all(|run| run.values.iter().all(|value| *value == 0.0)) {
            continue;
        }
        if track.is_some_and(|track| track.is_load) { panels.load.push(panel) } else { panels.taken.push(panel) }
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Series;

    fn line(round: u32, p99: f64, failures: &[&str]) -> ResultLine {
        let mut line = ResultLine::example("A4/x", "kafka", round, &[("publish_p99_ms", p99)]);
        let reported = line.conditions.as_mut().expect("it has some");
        (reported.warmup_ms, reported.window_ms) = (1_000, 2_000);
        line.failures = failures.iter().map(|failure| (*failure).to_owned()).collect();
        let (acked, publish_us) = (vec![5, 5, 5, 1], vec![u64::from(round) * 1_000; 4]);
        line.series = Some(Series { acked, publish_us, ..Series::default() });
        line
    }

    #[test]
    fn the_median_round_is_drawn_up_to_its_end() {
        let lines = [line(1, 1.0, &[]), line(2, 9.0, &[]), line(3, 2.0, &[]), line(4, 1.9, &["1 messages lost"])];
        let cell = Cell::of(lines.iter().collect()).expect("a cell");
        assert_eq!(middle_round(&cell, &cell.sides[0]).map(|line| line.round), Some(3));
        let panels = panels(&cell);
        let reported: Vec<(&str, &[f64])> =
            panels.load.iter().map(|panel| (panel.title.as_str(), panel.runs[0].values.as_slice())).collect();
        assert_eq!(
            reported,
            [("publish p99", &[3.0; 3][..]), ("acknowledged", &[5.0; 3][..])],
            "a series of zeros is omitted"
        );
        assert_eq!(panels.warmup_s, 1.0);
    }

    #[test]
    fn a_side_without_readers_has_no_end_to_end_latency() {
        let mut lines = [line(1, 1.0, &[]), line(1, 1.0, &[])];
        lines[1].side = "null".to_owned();
        for (line, us) in lines.iter_mut().zip([1_000, 0]) {
            line.series.as_mut().expect("it has one").end_to_end_us = vec![us; 3];
        }
        let panels = panels(&Cell::of(lines.iter().collect()).expect("a cell"));
        let sides = |title: &str| -> Vec<String> {
            let panel = panels.load.iter().find(|panel| panel.title == title);
            panel.map(|panel| panel.runs.iter().map(|run| run.name.clone()).collect()).unwrap_or_default()
        };
        assert_eq!((sides("end-to-end p99"), sides("publish p99").len()), (vec!["kafka".to_owned()], 2));
    }

    #[test]
    fn a_side_that_does_not_count_is_drawn_and_marked() {
        let lines = [line(1, 1.0, &["the rate was not held: 1 %"])];
        let cell = Cell::of(lines.iter().collect()).expect("a cell");
        assert_eq!(panels(&cell).load[0].runs[0].name, "kafka (rate missed)");
    }

    #[test]
    fn lines_without_a_series_have_no_panels() {
        let lines = [ResultLine::example("A4/x", "kafka", 1, &[])];
        assert_eq!(panels(&Cell::of(lines.iter().collect()).expect("a cell")), Panels::default());
    }
}
