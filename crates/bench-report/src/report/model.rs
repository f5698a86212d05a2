//! Result lines as the model of the pages: scenarios, cells, tables and rows.
//!
//! ```text
//!   scenario  the first part of its cells' names
//!     cell      a measurement of it, with its sides
//!       table     sides with the same client, or each with its system's own client
//!         row       a figure: the values of each side, and the verdict
//! ```

use super::figures::{Better, Group, figure, is_far_tail, place, step};
use super::judge::{Asked, NO_PEER, Outcome, Sided, Standing, ours, outcome};
use super::palette::{Look, System, looks};
use super::scenario::{Input, ScenarioText};
use super::sides::Sides;
use crate::drive::Driver;
use crate::results::{BUSY, ResultLine};
use std::collections::BTreeSet;

/// A scenario and its cells.
#[derive(Debug)]
pub struct Scenario<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its text, if it has one.
    pub text: Option<ScenarioText<'a>>,
    /// Its cells; empty if it was not run.
    pub cells: Vec<Cell<'a>>,
}

/// Whether a line counts, or why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// It counts.
    Counts,
    /// The rate was missed; stored as "not held".
    Missed,
    /// Reads that should have been from the disk were from memory.
    Warm,
    /// The machine was too busy to compare latencies.
    Busy,
    /// Another failure.
    Failed,
}

impl Mark {
    /// Returns the text in reports.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Mark::Counts => "counts",
            Mark::Missed => "rate missed",
            Mark::Warm => "warm",
            Mark::Busy => "machine busy",
            Mark::Failed => "failed",
        }
    }

    /// Returns the mark of a line.
    #[must_use]
    pub fn of(line: &ResultLine) -> Mark {
        let says = |what: &str| line.failures.iter().any(|failure| failure.contains(what));
        match () {
            () if line.failures.is_empty() => Mark::Counts,
            // Lines up to 2026-11-29 have "the rate was not held".
            () if says("not met") || says("not held") => Mark::Missed,
            () if line.failures.iter().all(|failure| failure.starts_with(BUSY)) => Mark::Busy,
            () if says("not cold") || says("warm:") => Mark::Warm,
            () => Mark::Failed,
        }
    }
}

/// A side of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Side<'a> {
    /// Its name.
    pub name: &'a str,
    /// The system.
    pub system: System,
    /// Colour and line style.
    pub look: Look,
    /// Its client, and the client's protocol.
    pub client: (&'a str, &'static str),
    /// [`Mark::Counts`] if one of its runs counts, else why none does.
    pub mark: Mark,
}

impl Side<'_> {
    /// Returns whether the client is native code. An unknown client is not.
    #[must_use]
    pub fn is_native(&self) -> bool {
        self.client.0.parse::<Driver>().is_ok_and(Driver::is_native)
    }
}

/// A cell.
#[derive(Debug)]
pub struct Cell<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its name in links and files, unique in a report.
    pub slug: String,
    /// Its lines.
    pub lines: Vec<&'a ResultLine>,
    /// Its sides, in the order of the lines.
    pub sides: Vec<Side<'a>>,
    /// Whether it is a smoke run.
    pub quick: bool,
    /// The figures of the lines that count.
    pub figures: Sides<'a>,
}

/// A figure of a table.
#[derive(Debug, PartialEq)]
pub struct Row<'a> {
    /// The figure's name.
    pub figure: &'a str,
    /// The values of each side of the table.
    pub values: Vec<Vec<f64>>,
    /// The outcome.
    pub outcome: Outcome,
}

/// The rows of a table.
#[derive(Debug, Default, PartialEq)]
pub struct Rows<'a> {
    /// Figures in which a side can be better.
    pub figures: Vec<Row<'a>>,
    /// Figures at each rate of a ladder.
    pub steps: Vec<Row<'a>>,
    /// Circumstances of the measurement.
    pub circumstances: Vec<Row<'a>>,
}

impl<'a> Rows<'a> {
    /// Returns all rows, in the order of reports.
    pub fn all(&self) -> impl Iterator<Item = &Row<'a>> {
        self.figures.iter().chain(&self.steps).chain(&self.circumstances)
    }
}

/// Sides that are compared.
#[derive(Debug)]
pub struct Table<'a> {
    /// Whether all have the same client.
    pub is_same_client: bool,
    /// The sides.
    pub sides: Vec<Side<'a>>,
}

fn client_of(line: &ResultLine) -> (&str, &'static str) {
    let Some(reported) = &line.conditions else { return ("", "") };
    let speaks = match System::of_line(line) {
        _ if reported.queue.is_some() => "amqp",
        System::Rabbitmq => "rabbitmq",
        System::Pulsar => "pulsar",
        System::Rocketmq => "rocketmq",
        System::Tubemq => "tubemq",
        System::Polylogue | System::Kafka | System::Null | System::Other => "kafka",
    };
    (&reported.client, speaks)
}

impl<'a> Cell<'a> {
    /// Creates the cell of these lines. `None` without lines.
    #[must_use]
    pub fn of(lines: Vec<&'a ResultLine>) -> Option<Cell<'a>> {
        let name = lines.first()?.cell.as_str();
        let figures = Sides::of(&lines);
        let first = |side: &str| lines.iter().copied().find(|line| line.side == side);
        let systems: Vec<System> =
            figures.order.iter().map(|side| first(side).map_or(System::Other, System::of_line)).collect();
        let side = |(at, look): (usize, Look)| {
            let name = figures.order.get(at).copied()?;
            let mark = lines.iter().filter(|line| line.side == name).map(|line| Mark::of(line)).min()?;
            Some(Side { name, system: look.system, look, client: client_of(first(name)?), mark })
        };
        let sides = looks(&systems).into_iter().enumerate().filter_map(side).collect();
        let quick = lines.iter().any(|line| line.quick);
        Some(Cell { name, slug: slug(name), lines, sides, quick, figures })
    }

    /// Returns its name without the scenario's id.
    #[must_use]
    pub fn rest(&self) -> &'a str {
        self.name.split_once('/').map_or(self.name, |(_, rest)| rest)
    }

    /// Returns whether its rates are fixed and compared one by one, instead of a ladder up to the first missed rate.
    #[must_use]
    pub fn has_marks(&self) -> bool {
        self.name.split('/').any(|part| part == "marks")
    }

    /// Returns whether the null broker is its only side: then it measures the client.
    #[must_use]
    pub fn is_floor(&self) -> bool {
        self.sides.iter().all(|side| side.system == System::Null)
    }

    fn ordered(sides: &[Side<'a>]) -> Vec<Sided<'a>> {
        sides.iter().map(|side| (side.name, side.system)).collect()
    }

    /// Returns polylogue's side that is compared.
    #[must_use]
    pub fn ours(&self) -> Option<Side<'a>> {
        let ours = ours(&Self::ordered(&self.sides))?;
        self.sides.iter().copied().find(|side| side.name == ours)
    }

    /// Returns its tables: the sides with the same client as polylogue's side, then polylogue's side and those with other clients. Without
    /// a side of polylogue, the client of the first side decides.
    #[must_use]
    pub fn tables(&self) -> Vec<Table<'a>> {
        let client = self.ours().or_else(|| self.sides.first().copied()).map(|side| side.client);
        let (same, own): (Vec<Side<'a>>, Vec<Side<'a>>) =
            self.sides.iter().copied().partition(|side| Some(side.client) == client);
        let mut tables = Vec::new();
        let has_peers = same.iter().any(|side| Some(side.name) != self.ours().map(|ours| ours.name));
        let mut with_own: Vec<Side<'a>> = self.ours().into_iter().collect();
        if has_peers || own.is_empty() {
            tables.push(Table { is_same_client: true, sides: same });
        }
        if !own.is_empty() {
            with_own.extend(own);
            tables.push(Table { is_same_client: false, sides: with_own });
        }
        tables
    }

    /// Returns whether a figure is reported for a side: far-tail latencies only of native or unknown clients.
    #[must_use]
    pub fn is_reported(&self, side: &Side<'_>, figure: &str) -> bool {
        !is_far_tail(figure) || side.is_native() || side.client.0.is_empty()
    }

    /// Returns the values of a figure of a side; empty if it is not reported.
    #[must_use]
    pub fn values(&self, side: &Side<'_>, figure: &str) -> Vec<f64> {
        if self.is_reported(side, figure) { self.figures.values(side.name, figure) } else { Vec::new() }
    }

    /// Returns the row of a figure; `pairs_min` agreeing pairs are needed for a verdict.
    #[must_use]
    pub fn row<'f>(&self, table: &Table<'_>, figure: &'f str, pairs_min: usize) -> Row<'f> {
        let reported: Vec<Side<'_>> =
            table.sides.iter().copied().filter(|side| self.is_reported(side, figure)).collect();
        let asked = Asked { cell: self.name, figure, quick: self.quick, pairs_min };
        let order: Vec<Sided<'_>> = reported.iter().map(|side| (side.name, side.system)).collect();
        let values = table.sides.iter().map(|side| self.values(side, figure)).collect();
        let mut outcome = outcome(&self.figures, asked, &order);
        // A peer without a run that counts is named in the reason.
        let absent = reported
            .iter()
            .find(|side| side.mark != Mark::Counts && !matches!(side.system, System::Polylogue | System::Null));
        if let (Standing::Undecided(why), Some(side)) = (&mut outcome.standing, absent)
            && why == NO_PEER
        {
            *why = format!("{} {}", side.name, side.mark.text());
        }
        Row { figure, values, outcome }
    }

    /// Returns the names of its figures in the order of reports.
    #[must_use]
    pub fn figure_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.figures.figures().into_iter().collect();
        names.sort_by_key(|name| place(name));
        names
    }

    /// Returns the rows of a table.
    #[must_use]
    pub fn rows(&self, table: &Table<'_>, pairs_min: usize) -> Rows<'_> {
        let mut rows = Rows::default();
        for name in self.figure_names() {
            let row = self.row(table, name, pairs_min);
            if row.values.iter().all(Vec::is_empty) {
                continue;
            }
            let known = figure(name);
            match step(name) {
                Some(_) if known.better != Better::Neither => rows.steps.push(row),
                Some(_) => {}
                None if known.better != Better::Neither || known.group < Group::Other => rows.figures.push(row),
                None => rows.circumstances.push(row),
            }
        }
        rows
    }
}

/// Returns a name for links: letters, digits and hyphens.
#[must_use]
pub fn slug(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let text: String = name.chars().map(plain).collect();
    let words: Vec<&str> = text.split('-').filter(|word| !word.is_empty()).collect();
    if words.is_empty() { "x".to_owned() } else { words.join("-") }
}

/// Returns whether a line is of the bare loops: of the machine, not of a broker.
#[must_use]
pub fn is_bare(line: &ResultLine) -> bool {
    line.conditions.is_none() && line.side == crate::results::MACHINE
}

/// Returns the scenarios of a report: those with a text in their order, then others in the order of the lines. The bare loops are not a
/// scenario.
#[must_use]
pub fn scenarios<'a>(input: Input<'a>) -> Vec<Scenario<'a>> {
    let mut all: Vec<Scenario<'a>> =
        input.scenarios.iter().map(|text| Scenario { id: text.id, text: Some(*text), cells: Vec::new() }).collect();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut slugs: BTreeSet<String> = BTreeSet::new();
    for line in input.lines.iter().filter(|line| !is_bare(line)) {
        if !done.insert(line.cell.as_str()) {
            continue;
        }
        let of_cell: Vec<&ResultLine> = input.lines.iter().filter(|other| other.cell == line.cell).collect();
        let id = line.cell.split('/').next().unwrap_or_default();
        let Some(mut cell) = Cell::of(of_cell) else { continue };
        // Two names may have the same letters and digits.
        while !slugs.insert(cell.slug.clone()) {
            cell.slug.push_str("-2");
        }
        match all.iter_mut().find(|scenario| scenario.id == id) {
            Some(scenario) => scenario.cells.push(cell),
            None => all.push(Scenario { id, text: None, cells: vec![cell] }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(cell: &str, side: &str, round: u32, client: &str, figures: &[(&str, f64)]) -> ResultLine {
        let mut line = ResultLine::example(cell, side, round, figures);
        line.conditions.as_mut().expect("it has some").client = client.to_owned();
        line
    }

    #[test]
    fn scenarios_with_a_text_come_first() {
        let text = |id| ScenarioText { id, title: "", what: "", published: "", scaled: "" };
        let lines = [
            ResultLine::example("zz/a", "ours", 1, &[]),
            ResultLine::example("A4/a", "ours", 1, &[]),
            ResultLine::example("A4/b", "ours", 1, &[]),
            ResultLine { conditions: None, ..ResultLine::example("bare", "machine", 1, &[]) },
        ];
        let texts = [text("A1"), text("A4")];
        let reported = scenarios(Input { lines: &lines, scenarios: &texts, not_run: &[] });
        let reported: Vec<(&str, usize)> =
            reported.iter().map(|scenario| (scenario.id, scenario.cells.len())).collect();
        assert_eq!(reported, [("A1", 0), ("A4", 2), ("zz", 1)]);
    }

    #[test]
    fn the_same_client_and_each_systems_own_are_separate_tables() {
        let figures: &[(&str, f64)] = &[("publish_p99_ms", 1.0)];
        let lines: Vec<ResultLine> = ["polylogue-sync", "kafka", "pulsar", "rabbitmq"]
            .iter()
            .flat_map(|side| (1..=3).map(move |round| line("A4/x", side, round, "java", figures)))
            .collect();
        let cell = Cell::of(lines.iter().collect()).expect("a cell");
        let tables = cell.tables();
        let reported: Vec<(bool, Vec<&str>)> =
            tables.iter().map(|t| (t.is_same_client, t.sides.iter().map(|side| side.name).collect())).collect();
        assert_eq!(
            reported,
            [(true, vec!["polylogue-sync", "kafka"]), (false, vec!["polylogue-sync", "pulsar", "rabbitmq"]),]
        );
        let only = [line("A4/x", "pulsar", 1, "java", figures)];
        let tables = Cell::of(only.iter().collect()).map(|cell| cell.tables().len());
        assert_eq!(tables, Some(1), "one side only");
        let apart = [line("A4/x", "polylogue-sync", 1, "java", figures), line("A4/x", "pulsar", 1, "java", figures)];
        let tables = Cell::of(apart.iter().collect()).expect("a cell").tables();
        assert!(tables.len() == 1 && !tables[0].is_same_client, "no other side has the same client");
    }

    #[test]
    fn the_far_tail_is_compared_with_native_clients_only() {
        let figures: &[(&str, f64)] = &[("publish_p99_ms", 1.0), ("publish_p99.9_ms", 2.0)];
        for (client, tells) in [("raw", true), ("librdkafka", true), ("java", false), ("pulsar-client", false)] {
            let lines: Vec<ResultLine> =
                ["polylogue-sync", "kafka"].map(|side| line("A4/x", side, 1, client, figures)).into();
            let cell = Cell::of(lines.iter().collect()).expect("a cell");
            let rows = cell.rows(&cell.tables()[0], 3);
            let reported: Vec<&str> = rows.figures.iter().map(|row| row.figure).collect();
            assert_eq!(reported.contains(&"publish_p99.9_ms"), tells, "{client}: {reported:?}");
        }
    }

    #[test]
    fn a_side_without_a_run_that_counts_has_a_reason() {
        let mut lines = vec![line("A4/x", "polylogue-sync", 1, "raw", &[("publish_p99_ms", 1.0)])];
        for (failure, mark) in [
            ("the rate was not held: 12.0 % acknowledged", Mark::Missed),
            ("the rate was not met: 12.0 % acknowledged", Mark::Missed),
            ("the reader was not cold: only 3 %", Mark::Warm),
            ("the machine was only 3 % idle: no latency is compared", Mark::Busy),
            ("1 messages lost", Mark::Failed),
        ] {
            lines.truncate(1);
            lines.push(line("A4/x", "kafka", 1, "raw", &[("publish_p99_ms", 1.0)]));
            lines[1].failures.push(failure.to_owned());
            let cell = Cell::of(lines.iter().collect()).expect("a cell");
            assert_eq!(cell.sides[1].mark, mark);
            let row = cell.row(&cell.tables()[0], "publish_p99_ms", 3);
            assert_eq!(row.outcome.standing, Standing::Undecided(format!("kafka {}", mark.text())));
        }
        lines.push(line("A4/x", "kafka", 2, "raw", &[]));
        assert_eq!(Cell::of(lines.iter().collect()).expect("a cell").sides[1].mark, Mark::Counts, "one of them counts");
    }

    #[test]
    fn a_slug_is_valid_in_a_link() {
        assert_eq!(slug("A4/rate=200000/client=raw"), "a4-rate-200000-client-raw");
        assert_eq!(slug("<script>"), "script");
        assert_eq!(slug("//"), "x");
    }
}
