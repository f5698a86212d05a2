//! The rows of the first page, their counts and tables, and cells in which no run of polylogue counts.

use super::figures::{Better, Group, HELD_MAX, RATE, base, figure, place, step};
use super::judge::{CLOSED_LOOP, FIRST_PAGE_PAIRS_MIN, OWN_RATES, Sided, Standing, ours_beside};
use super::model::{Cell, Mark, Row, Scenario, Side};
use super::palette::System;
use super::stats::{PAIRS_MIN, count as number};

/// A row of the first page.
#[derive(Debug)]
pub struct Entry<'s, 'a> {
    /// Its cell.
    pub cell: &'s Cell<'a>,
    /// Whether its sides have the same client.
    pub is_same_client: bool,
    /// The row.
    pub row: Row<'s>,
}

impl Entry<'_, '_> {
    /// Returns the cell's name, with the rate if several rates are compared.
    #[must_use]
    pub fn label(&self) -> String {
        match step(self.row.figure) {
            Some((rate, _)) => format!("{} at {}/s", self.cell.name, number(rate)),
            None => self.cell.name.to_owned(),
        }
    }

    /// Returns the figure without the rate.
    #[must_use]
    pub fn column(&self) -> &str {
        base(self.row.figure)
    }

    /// Returns whether the row is at a given rate.
    fn is_paced(&self) -> bool {
        step(self.row.figure).is_some() || !self.cell.figures.is_unpaced()
    }
}

/// Returns whether a figure has a row on the first page: headline figures, and latency and processor time at each rate of
/// [`Cell::has_marks`].
fn is_headline(cell: &Cell<'_>, name: &str) -> bool {
    if step(name).is_none() {
        return figure(name).is_headline;
    }
    let reported = figure(base(name));
    cell.has_marks()
        && reported.is_headline
        && reported.better != Better::Neither
        && matches!(reported.group, Group::Publish | Group::EndToEnd | Group::Cost)
}

/// Counts of rows by standing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// polylogue is ahead.
    pub ahead: usize,
    /// A peer is ahead of polylogue.
    pub behind: usize,
    /// Level.
    pub level: usize,
    /// No verdict.
    pub undecided: usize,
}

/// Cells that the plan runs in five rounds, for the first page. A test of the planning crate compares this list with the plan.
pub const FIRST_PAGE_CELLS: &[&str] = &[
    "bare",
    "A4/rate=25000/durability=async/client=raw",
    "A4/rate=7500/queue=classic/client=amqp",
    "C2/kib=1/pipelined/client=java",
    "D1/partitions=100/durability=sync/client=java",
    "D4/rate=20000/groups=1/durability=sync/client=raw",
    "E5/rate=5000/linger=0/client=java",
];

/// Returns the number of agreeing pairs for a verdict in a cell: [`FIRST_PAGE_PAIRS_MIN`] in [`FIRST_PAGE_CELLS`], even if a run was
/// interrupted, and in cells with as many rounds; else [`PAIRS_MIN`].
#[must_use]
pub fn pairs_min(cell: &Cell<'_>) -> usize {
    let rounds = cell.lines.iter().map(|line| line.round as usize).max().unwrap_or(0);
    let is_first = rounds >= FIRST_PAGE_PAIRS_MIN || FIRST_PAGE_CELLS.contains(&cell.name);
    if is_first { FIRST_PAGE_PAIRS_MIN } else { PAIRS_MIN }
}

/// Returns all rows of the first page.
#[must_use]
pub fn entries<'s, 'a>(scenarios: &'s [Scenario<'a>]) -> Vec<Entry<'s, 'a>> {
    let mut entries = Vec::new();
    for cell in scenarios.iter().flat_map(|scenario| &scenario.cells).filter(|cell| !cell.is_floor()) {
        for table in cell.tables() {
            for name in cell.figure_names().into_iter().filter(|name| is_headline(cell, name)) {
                let row = cell.row(&table, name, pairs_min(cell));
                // No side is better at a given rate; latencies at different rates and of closed loops are not compared.
                let is_nothing = |why: &str| why.is_empty() || [OWN_RATES, CLOSED_LOOP].contains(&why);
                let says_nothing = matches!(&row.outcome.standing, Standing::Undecided(why) if is_nothing(why));
                let repeats = name == RATE && cell.figures.figures().contains(HELD_MAX);
                if !says_nothing && !repeats && !row.values.iter().all(Vec::is_empty) {
                    entries.push(Entry { cell, is_same_client: table.is_same_client, row });
                }
            }
        }
    }
    entries
}

/// Counts rows.
#[must_use]
pub fn count<'e, 's: 'e, 'a: 's + 'e>(entries: impl Iterator<Item = &'e Entry<'s, 'a>>) -> Count {
    let mut count = Count::default();
    for entry in entries {
        match entry.row.outcome.standing {
            Standing::Ahead => count.ahead += 1,
            Standing::Behind(_) => count.behind += 1,
            Standing::Level => count.level += 1,
            Standing::Undecided(_) => count.undecided += 1,
        }
    }
    count
}

/// Groups the rows in tables: by client, and by given or unlimited rate, which have different figures.
#[must_use]
pub fn tables<'e, 's, 'a>(entries: &'e [Entry<'s, 'a>]) -> Vec<(String, Vec<&'e Entry<'s, 'a>>)> {
    let mut tables = Vec::new();
    for (is_same, who) in [(true, "the same client on all sides"), (false, "each system with its own client")] {
        for (is_unpaced, what) in [(false, "At a given rate"), (true, "Unlimited rate, and other figures")] {
            let is_it = |entry: &&Entry<'_, '_>| entry.is_same_client == is_same && entry.is_paced() != is_unpaced;
            let of_kind: Vec<&Entry<'_, '_>> = entries.iter().filter(is_it).collect();
            if !of_kind.is_empty() {
                tables.push((format!("{what}: {who}"), of_kind));
            }
        }
    }
    tables
}

/// Groups the rows by line of a table: a cell, or one of the rates of a cell.
#[must_use]
pub fn lines<'e, 's, 'a>(entries: &[&'e Entry<'s, 'a>]) -> Vec<(String, Vec<&'e Entry<'s, 'a>>)> {
    let mut lines: Vec<(String, Vec<&Entry<'_, '_>>)> = Vec::new();
    for &entry in entries {
        let label = entry.label();
        match lines.iter_mut().find(|(other, _)| *other == label) {
            Some((_, line)) => line.push(entry),
            None => lines.push((label, vec![entry])),
        }
    }
    lines
}

/// Returns the figures of the rows, in the order of reports.
#[must_use]
pub fn columns<'e>(entries: &[&'e Entry<'_, '_>]) -> Vec<&'e str> {
    let mut columns: Vec<&str> = Vec::new();
    for column in entries.iter().map(|entry| entry.column()) {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns.sort_by_key(|name| place(name));
    columns
}

/// A cell in which no run of polylogue counts and a run of a peer does.
#[derive(Debug)]
pub struct Failed<'s, 'a> {
    /// The cell.
    pub cell: &'s Cell<'a>,
    /// The peers with a run that counts.
    pub peers: Vec<&'a str>,
    /// Text for reports.
    pub said: String,
}

/// Returns the cells in which no run of polylogue counts and a run of a peer does.
#[must_use]
pub fn failed<'s, 'a>(scenarios: &'s [Scenario<'a>]) -> Vec<Failed<'s, 'a>> {
    let cells = scenarios.iter().flat_map(|scenario| &scenario.cells).filter(|cell| !cell.quick);
    let reported = |cell: &'s Cell<'a>| {
        let order: Vec<Sided<'_>> = cell.sides.iter().map(|side| (side.name, side.system)).collect();
        let main = cell.ours().map(|ours| ours.name);
        // Each side of polylogue is compared with some of the peers.
        let failed = cell.sides.iter().filter(|side| side.system == System::Polylogue && side.mark != Mark::Counts);
        let of_side = |ours: &Side<'a>| {
            let is_its = |side: &&Side<'a>| {
                let is_peer = !matches!(side.system, System::Polylogue | System::Null) && side.mark == Mark::Counts;
                is_peer && ours_beside(&order, side.system) == Some(ours.name)
            };
            let peers: Vec<&str> = cell.sides.iter().filter(is_its).map(|side| side.name).collect();
            let why = cell.lines.iter().find(|line| line.side == ours.name && Mark::of(line) == ours.mark);
            let why = why.map(|line| line.failures.join("; ")).unwrap_or_default();
            let who = if Some(ours.name) == main { "polylogue" } else { ours.name };
            let (mark, others) = (ours.mark.text(), peers.join(", "));
            let said = format!("no run of {who} counts ({mark}: {why}), runs of {others} do");
            (!peers.is_empty()).then_some(Failed { cell, peers, said })
        };
        failed.filter_map(of_side).collect::<Vec<_>>()
    };
    cells.flat_map(reported).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::scenarios;
    use crate::report::scenario::Input;
    use crate::results::ResultLine;

    #[test]
    fn rows_are_counted_without_given_rates() {
        let figures = |p99: f64| [("publish_p99_ms", p99), ("produce_per_s", 10.0), ("publish_mean_ms", 1.0)];
        let mut lines: Vec<ResultLine> = (1..=5)
            .flat_map(|round| {
                [("polylogue-sync", 1.0), ("kafka", 2.0)]
                    .map(|(side, p99)| ResultLine::example("A4/x", side, round, &figures(p99)))
            })
            .collect();
        for line in &mut lines {
            line.conditions.as_mut().expect("it has some").rate = 10;
        }
        let reported = scenarios(Input { lines: &lines, scenarios: &[], not_run: &[] });
        let entries = entries(&reported);
        let names: Vec<&str> = entries.iter().map(|entry| entry.row.figure).collect();
        assert_eq!(names, ["publish_p99_ms"]);
        assert_eq!(count(entries.iter()), Count { ahead: 1, ..Count::default() });
        assert!(failed(&reported).is_empty());
    }

    /// Regression test: a peer ahead at each of these rates was not on the first page.
    #[test]
    fn fixed_rates_have_rows_and_steps_of_a_ladder_do_not() {
        let figures = |p50: f64| {
            let of = |rate: &str, what: &str| format!("step.{rate}.{what}");
            let names = ["publish_p50_ms", "cpu_s_per_million", "produce_per_s", "anonymous_mib"];
            let steps = ["5000", "15000"].into_iter().flat_map(move |rate| names.map(|what| of(rate, what)));
            let named: Vec<(String, f64)> =
                steps.map(|name| (name, p50)).chain([(HELD_MAX.to_owned(), 15e3)]).collect();
            named
        };
        let rows_of = |cell: &str| {
            let lines: Vec<ResultLine> = (1..=5)
                .flat_map(|round| {
                    [("polylogue-sync", 2.0), ("kafka", 1.0)].map(|(side, p50)| {
                        let figures = figures(p50);
                        let figures: Vec<(&str, f64)> = figures.iter().map(|(name, v)| (name.as_str(), *v)).collect();
                        ResultLine::example(cell, side, round, &figures)
                    })
                })
                .collect();
            let reported = scenarios(Input { lines: &lines, scenarios: &[], not_run: &[] });
            let entries = entries(&reported);
            let rows: Vec<(String, String)> =
                entries.iter().map(|entry| (entry.label(), entry.column().to_owned())).collect();
            (rows, count(entries.iter()).behind)
        };
        let row = |label: &str, column: &str| (label.to_owned(), column.to_owned());
        let (rows, behind) = rows_of("B1/marks");
        let wanted = [
            row("B1/marks", HELD_MAX),
            row("B1/marks at 5,000/s", "publish_p50_ms"),
            row("B1/marks at 5,000/s", "produce_cpu_s_per_million"),
            row("B1/marks at 15,000/s", "publish_p50_ms"),
            row("B1/marks at 15,000/s", "produce_cpu_s_per_million"),
        ];
        assert_eq!((rows, behind), (wanted.to_vec(), 4));
        assert_eq!(rows_of("B1/ramp"), (vec![row("B1/ramp", HELD_MAX)], 0));
    }

    /// Regression test: rows that were run three times, as most are, were always level on the first page.
    #[test]
    fn a_row_needs_as_many_pairs_as_its_cell_has_rounds() {
        let of = |rounds: u32, worse_in: Option<u32>| {
            let lines: Vec<ResultLine> = (1..=rounds)
                .flat_map(|round| {
                    let theirs = if worse_in == Some(round) { 0.5 } else { 2.0 };
                    [("polylogue-sync", 1.0), ("kafka", theirs)]
                        .map(|(side, files)| ResultLine::example("A4/x", side, round, &[("files", files)]))
                })
                .collect();
            let reported = scenarios(Input { lines: &lines, scenarios: &[], not_run: &[] });
            count(entries(&reported).iter())
        };
        let (ahead, level) = (Count { ahead: 1, ..Count::default() }, Count { level: 1, ..Count::default() });
        let once = Count { undecided: 1, ..Count::default() };
        assert_eq!([of(1, None), of(2, None), of(3, None), of(5, None)], [once, level, ahead, ahead]);
        assert_eq!([of(3, Some(2)), of(5, Some(4))], [level, level]);
    }

    #[test]
    fn a_rate_that_only_a_peer_met_is_listed() {
        let mut lines =
            vec![ResultLine::example("A4/x", "polylogue-sync", 1, &[]), ResultLine::example("A4/x", "kafka", 1, &[])];
        lines[0].failures.push("the rate was not held".to_owned());
        let reported = scenarios(Input { lines: &lines, scenarios: &[], not_run: &[] });
        let failed = failed(&reported);
        assert_eq!(failed.len(), 1);
        let said = "no run of polylogue counts (rate missed: the rate was not held), runs of kafka do";
        assert_eq!((failed[0].peers.as_slice(), failed[0].said.as_str()), (&["kafka"][..], said));
    }
}
