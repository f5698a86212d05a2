//! The charts of a scenario and of a cell, for the HTML page and for the Markdown report.

use super::charts::bars::{self, Bar, Bars};
use super::charts::curve::{self, Curve};
use super::charts::ramp::{self, Ramp};
use super::charts::time;
use super::figures::{ANONYMOUS, FILES, HELD_MAX, PRODUCE_CPU, RATE, figure, step};
use super::judge::{Ahead, Asked, judge};
use super::model::{Cell, Mark, Scenario, Side, slug};
use super::stats::PAIRS_MIN;
use super::svg::Svg;
use super::tracks;
use crate::results::ResultLine;
use std::fmt::Write;

/// A chart with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// Name for a file and for links, unique in a report.
    pub name: String,
    /// The drawing.
    pub svg: Svg,
    /// Caption below it; may be empty.
    pub caption: String,
}

/// Stamp across the charts of a smoke run.
const STAMP: &str = "SMOKE RUN";
/// Limit on cells in one bar chart.
const CELLS_MAX: usize = 6;
/// The parts of memory: title and series.
const MEMORY: [(&str, &str); 3] =
    [("anonymous", ""), ("file-mapped, at most", "broker_file_mib"), ("page cache, at most", "page_cache_mib")];
/// Percentiles of lines without a curve, with the names of their figures.
const PERCENTILES: [(&str, f64); 8] = [
    ("p50", 50.0),
    ("p75", 75.0),
    ("p90", 90.0),
    ("p95", 95.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("p99.99", 99.99),
    ("p99.999", 99.999),
];
/// Charts of ladders: suffix of the figure's name, title, unit, whether the axis is logarithmic.
const STEPS: [(&str, &str, &str, bool); 4] = [
    ("publish_p99_ms", "Publish p99 by rate", "ms", true),
    ("end_to_end_p99_ms", "End-to-end p99 by rate", "ms", true),
    ("cpu_s_per_million", "Broker CPU per million messages by rate", "s", false),
    ("anonymous_mib", "Anonymous memory by rate", "MiB", false),
];
/// The last percentile drawn for clients that are not native.
const FAR_TAIL: f64 = 99.0;

/// Returns the bar charts of a scenario.
#[must_use]
pub fn of_scenario(scenario: &Scenario<'_>) -> Vec<Picture> {
    let mut pictures = Vec::new();
    for (name, title) in [
        (HELD_MAX, "Highest rate met"),
        (RATE, "Throughput, written"),
        ("fetch_per_s", "Throughput, read"),
        (PRODUCE_CPU, "Broker CPU to write"),
        ("fetch_cpu_s_per_million", "Broker CPU to read"),
        (FILES, "Open files"),
        ("start_s", "Start"),
        ("kib_a_connection", "Memory of a connection"),
        ("connections_per_s", "Connections accepted"),
    ] {
        let is_rate = name.ends_with("_per_s");
        // A given rate is not a result.
        let is_result = |cell: &&Cell<'_>| {
            let is_ladder = name == RATE && cell.figures.figures().contains(HELD_MAX);
            !is_ladder && (!is_rate || cell.figures.is_unpaced())
        };
        let cells = scenario.cells.iter().filter(is_result);
        let groups: Vec<Bars> = cells.map(|cell| group(cell, |side| vec![cell.values(side, name)], name)).collect();
        let unit = figure(name).unit;
        push_bars(&mut pictures, scenario, (title, unit, &[]), groups, &slug(title));
    }
    let parts: Vec<&str> = MEMORY.iter().map(|(part, _)| *part).collect();
    let memory = |cell: &Cell<'_>| group(cell, |side| memory_of(cell, side), ANONYMOUS);
    let groups: Vec<Bars> = scenario.cells.iter().map(memory).collect();
    push_bars(&mut pictures, scenario, ("Memory", "MiB", &parts), groups, "memory");
    pictures
}

fn memory_of(cell: &Cell<'_>, side: &Side<'_>) -> Vec<Vec<f64>> {
    let lines = || cell.lines.iter().filter(|line| line.side == side.name && line.failures.is_empty());
    let most = |list: &str| -> Vec<f64> {
        let lists = lines().filter_map(|line| tracks::lists(line).remove(list));
        lists.filter_map(|values| values.into_iter().reduce(f64::max)).collect()
    };
    let part = |(_, list): &(&str, &str)| if list.is_empty() { cell.values(side, ANONYMOUS) } else { most(list) };
    MEMORY.iter().map(part).collect()
}

fn group(cell: &Cell<'_>, parts: impl Fn(&Side<'_>) -> Vec<Vec<f64>>, figure: &str) -> Bars {
    let bar = |side: &Side<'_>| {
        let parts = parts(side);
        let is_empty = parts.iter().all(Vec::is_empty);
        let note = match side.mark {
            Mark::Counts if is_empty => return None,
            Mark::Counts if is_bound(cell, side, figure) => "client-bound",
            Mark::Counts => "",
            mark => mark.text(),
        };
        Some(Bar { name: side.name.to_owned(), look: side.look, parts, note: note.to_owned() })
    };
    let bars: Vec<Bar> = cell.sides.iter().filter_map(bar).collect();
    let has_values = bars.iter().any(|bar| !bar.parts.iter().all(Vec::is_empty));
    Bars { heading: cell.rest().to_owned(), bars: if has_values { bars } else { Vec::new() } }
}

/// Returns whether the client limited a side. Only for rates, which then have no winner.
fn is_bound(cell: &Cell<'_>, side: &Side<'_>, figure: &str) -> bool {
    let asked = Asked { cell: cell.name, figure, quick: false, pairs_min: PAIRS_MIN };
    figure.ends_with("_per_s")
        && judge(&cell.figures, asked, side.name, side.name).is_some_and(|judged| judged.ahead == Ahead::ClientBound)
}

fn push_bars(
    pictures: &mut Vec<Picture>,
    scenario: &Scenario<'_>,
    (title, unit, parts): (&str, &str, &[&str]),
    groups: Vec<Bars>,
    name: &str,
) {
    let groups: Vec<Bars> = groups.into_iter().filter(|group| !group.bars.is_empty()).collect();
    let count = groups.len().div_ceil(CELLS_MAX);
    for (at, groups) in groups.chunks(groups.len().div_ceil(count.max(1)).max(1)).enumerate() {
        let numbered = if count > 1 { format!("{title} ({} of {count})", at + 1) } else { title.to_owned() };
        let Some(mut svg) = bars::draw(&bars::Chart { title: &numbered, unit, parts, groups }) else { continue };
        if scenario.cells.iter().any(|cell| cell.quick) {
            svg.set_stamp(STAMP);
        }
        let name = format!("{}-{name}-{}", slug(scenario.id), at + 1);
        pictures.push(Picture { name, svg, caption: String::new() });
    }
}

/// Returns the charts of a cell: latency by percentile, figures by rate, and time series.
#[must_use]
pub fn of_cell(cell: &Cell<'_>) -> Vec<Picture> {
    let mut pictures = curves(cell);
    if cell.quick {
        pictures.iter_mut().for_each(|picture| picture.svg.set_stamp(STAMP));
    }
    pictures
}

fn curves(cell: &Cell<'_>) -> Vec<Picture> {
    let mut pictures = Vec::new();
    for (what, title) in
        [("publish", "Publish latency by percentile"), ("end_to_end", "End-to-end latency by percentile")]
    {
        let curves: Vec<Curve> = cell.sides.iter().map(|side| curve_of(cell, side, what)).collect();
        let is_cut = cell.sides.iter().any(|side| !side.is_native() && side.mark == Mark::Counts);
        let note =
            if is_cut { "Beyond p99 only native clients are drawn: a JVM client has pauses of its own." } else { "" };
        let Some(svg) = curve::draw(title, &curves, note) else { continue };
        let rounds = curves.iter().map(|curve| curve.rounds.len()).max().unwrap_or_default();
        let mut caption = String::new();
        if cell.figures.figures().contains(HELD_MAX) {
            caption.push_str("Each side at the highest rate that it met. ");
        }
        if rounds > 1 {
            // Writing to a string cannot fail.
            let _ = write!(caption, "Median of up to {rounds} rounds; shaded from minimum to maximum.");
        }
        pictures.push(Picture { name: format!("{}-{}", cell.slug, slug(what)), svg, caption });
    }
    for (rest, title, unit, is_log) in STEPS {
        let ramps: Vec<Ramp> = cell.sides.iter().map(|side| ramp_of(cell, side, rest)).collect();
        let Some(svg) = ramp::draw(title, unit, is_log, &ramps) else { continue };
        pictures.push(Picture { name: format!("{}-{}", cell.slug, slug(title)), svg, caption: String::new() });
    }
    let panels = tracks::panels(cell);
    let shown: Vec<String> = cell
        .sides
        .iter()
        .filter_map(|side| Some(format!("{} round {}", side.name, tracks::middle_round(cell, side)?.round)))
        .collect();
    for (name, title, panels) in
        [("time", "Load by second", &panels.load), ("taken", "Resource usage by second", &panels.taken)]
            .map(|(name, title, list)| (name, title, (list, panels.warmup_s)))
    {
        let Some(svg) = time::draw(title, panels.0, panels.1) else { continue };
        let caption = match name {
            "time" => format!("The round with the median publish p99: {}.", shown.join(", ")),
            _ => String::new(),
        };
        pictures.push(Picture { name: format!("{}-{name}", cell.slug), svg, caption });
    }
    pictures
}

/// Returns the steps of a side, for one of their figures.
fn ramp_of(cell: &Cell<'_>, side: &Side<'_>, rest: &str) -> Ramp {
    let mut rates: Vec<u64> = cell.figures.figures().into_iter().filter_map(step).map(|(rate, _)| rate).collect();
    rates.sort_unstable();
    rates.dedup();
    let reported = |rate: u64| {
        let held = cell.figures.values(side.name, &format!("step.{rate}.held"));
        let values = cell.values(side, &format!("step.{rate}.{rest}"));
        (!held.is_empty()).then(|| (rate, values, held.iter().all(|held| *held > 0.0)))
    };
    Ramp { name: side.name.to_owned(), look: side.look, steps: rates.into_iter().filter_map(reported).collect() }
}

fn curve_of(cell: &Cell<'_>, side: &Side<'_>, what: &str) -> Curve {
    let lines = cell.lines.iter().filter(|line| line.side == side.name && line.failures.is_empty());
    let is_told = |point: &(f64, f64)| point.0 <= FAR_TAIL || cell.is_reported(side, "p99.9");
    let round = |line: &&ResultLine| {
        let points: Vec<(f64, f64)> = points_of(line, what).into_iter().filter(is_told).collect();
        (!points.is_empty()).then_some(points)
    };
    Curve { name: side.name.to_owned(), look: side.look, rounds: lines.filter_map(round).collect() }
}

/// Returns the curve of a line, or else the percentiles among its figures.
fn points_of(line: &ResultLine, what: &str) -> Vec<(f64, f64)> {
    let curve = line.curves.as_ref().map(|curves| if what == "publish" { &curves.publish } else { &curves.end_to_end });
    if let Some(curve) = curve.filter(|curve| !curve.is_empty()) {
        return curve.clone();
    }
    let point =
        |(name, percentile): &(&str, f64)| Some((*percentile, *line.figures.get(&format!("{what}_{name}_ms"))?));
    PERCENTILES.iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Curves;
    use crate::report::scenario::Input;

    fn line(side: &str, client: &str, rate: u64, figures: &[(&str, f64)]) -> ResultLine {
        let mut line = ResultLine::example("A1/x", side, 1, figures);
        let reported = line.conditions.as_mut().expect("it has some");
        (reported.client, reported.rate) = (client.to_owned(), rate);
        line
    }

    #[test]
    fn a_given_rate_has_no_bars() {
        let names = |rate: u64| {
            let lines = [line("kafka", "raw", rate, &[(RATE, 5.0), (PRODUCE_CPU, 1.0)])];
            let input = Input { lines: &lines, scenarios: &[], not_run: &[] };
            let scenarios = crate::report::model::scenarios(input);
            of_scenario(&scenarios[0]).into_iter().map(|picture| picture.name).collect::<Vec<_>>()
        };
        assert_eq!(names(0), ["a1-throughput-written-1", "a1-broker-cpu-to-write-1"]);
        assert_eq!(names(10), ["a1-broker-cpu-to-write-1"]);
    }

    #[test]
    fn a_ladder_is_drawn_by_rate() {
        let figures = [("step.5000.held", 1.0), ("step.5000.publish_p99_ms", 2.0), ("step.10000.held", 0.0)];
        let lines = [line("rabbitmq", "amqp", 0, &figures)];
        let cell = Cell::of(lines.iter().collect()).expect("a cell");
        let ramp = ramp_of(&cell, &cell.sides[0], "publish_p99_ms");
        assert_eq!(ramp.steps, [(5_000, vec![2.0], true), (10_000, vec![], false)]);
        assert!(of_cell(&cell).iter().any(|picture| picture.name == "a1-x-publish-p99-by-rate"));
    }

    #[test]
    fn the_curve_of_a_jvm_ends_at_p99() {
        let figures = [("publish_p50_ms", 1.0), ("publish_p99_ms", 2.0), ("publish_p99.9_ms", 3.0)];
        for (client, ends) in [("java", 99.0), ("librdkafka", 99.9)] {
            let lines = [line("kafka", client, 1, &figures)];
            let cell = Cell::of(lines.iter().collect()).expect("a cell");
            let curve = curve_of(&cell, &cell.sides[0], "publish");
            assert_eq!(curve.rounds[0].last().map(|point| point.0), Some(ends), "{client}");
        }
    }

    #[test]
    fn the_curve_of_a_line_is_preferred_to_its_percentiles() {
        let mut with = line("kafka", "raw", 1, &[("publish_p50_ms", 1.0)]);
        with.curves = Some(Curves { publish: vec![(75.0, 4.0)], end_to_end: Vec::new() });
        assert_eq!(points_of(&with, "publish"), [(75.0, 4.0)]);
        assert_eq!(points_of(&with, "end_to_end"), []);
    }
}
