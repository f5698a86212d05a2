//! Reports from result lines: Markdown, the committed pages, one HTML file.
//!
//! ```text
//!   lines --latest--> the lines of the latest run of each cell
//!           |---> markdown   summary   a row for each requirement: measured, target, met or missed
//!           |                table     a table for each cell: medians, spread, ratios, who is ahead
//!           |
//!           |---> front     the committed pages under report/    first page, one page per scenario family, four charts
//!           '---> model      scenarios, cells, sides, tables, rows
//!                   |---> page    one HTML file                   first page (score, floors), cells (tables, pictures, conditions)
//!                   '---> book    Markdown and files of pictures  the same
//!
//!   sides, stats   the lines of a cell by side and round: medians, pairs
//!   itself         latencies of a side with more load, compared with the same side's baseline
//!   judge          verdicts: which side is ahead; words   their texts
//!   pictures       charts (bars, curve, time; series by tracks) drawn by svg and scale, coloured by palette
//! ```

pub mod book;
pub mod charts;
pub mod conditions;
pub mod figures;
pub mod floors;
pub mod front;
pub mod itself;
pub mod judge;
pub mod model;
pub mod page;
pub mod palette;
pub mod pictures;
pub mod scale;
pub mod scenario;
pub mod score;
pub mod sides;
pub mod stats;
pub mod summary;
pub mod svg;
pub mod table;
pub mod tracks;
#[cfg(test)]
mod wellformed;
pub mod words;

use crate::error::{Context, Result};
use crate::results::{Machine, ResultLine};
use model::{Mark, Scenario};
use scenario::Input;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Returns the lines of the latest run of each cell: the run of its newest line.
#[must_use]
pub fn latest(lines: &[ResultLine]) -> Vec<ResultLine> {
    let mut newest: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for line in lines {
        let reported = newest.entry(&line.cell).or_default();
        *reported = (*reported).max((line.date.as_str(), line.run.as_str()));
    }
    let is_of_newest = |line: &&ResultLine| newest.get(line.cell.as_str()).is_some_and(|(_, run)| *run == line.run);
    lines.iter().filter(is_of_newest).cloned().collect()
}

/// Returns the report as Markdown. The first side of a cell in the lines is the one that others are compared with. Failed runs are
/// listed and do not count.
#[must_use]
pub fn markdown(lines: &[ResultLine]) -> String {
    let mut text = String::new();
    if lines.iter().any(|line| line.quick) {
        text.push_str(
            "> **SMOKE RUN.** These figures only show that every cell runs. They are not comparable and have no winner.\n\n",
        );
    }
    write_conditions(&mut text, lines);
    let mut cells: Vec<(&str, Vec<&ResultLine>)> = Vec::new();
    for line in lines {
        match cells.iter_mut().find(|(cell, _)| *cell == line.cell) {
            Some((_, of_cell)) => of_cell.push(line),
            None => cells.push((&line.cell, vec![line])),
        }
    }
    if lines.iter().any(|line| !line.quick) {
        summary::write(&mut text, &cells);
    }
    for (cell, of_cell) in &cells {
        table::write(&mut text, cell, of_cell);
    }
    text
}

/// Writes the report as one HTML file.
///
/// # Errors
/// The file cannot be written.
pub fn write_page(input: Input<'_>, file: &Path) -> Result<()> {
    let said = || format!("cannot write {}", file.display());
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).context(said)?;
    }
    std::fs::write(file, page::html(input)).context(said)
}

// Writing to a string cannot fail, here and in the modules below.
fn write_conditions(text: &mut String, lines: &[ResultLine]) {
    let Some(first) = lines.first() else { return };
    let _ =
        writeln!(text, "{}. {}, commit {}.\n", machine_text(&first.machine), dates(lines), commits(lines).join(", "));
}

fn machine_text(machine: &Machine) -> String {
    let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
    format!("{} cores ({}), {gib:.0} GiB, Linux {}", machine.cores, machine.processor, machine.kernel)
}

/// Returns the distinct machines of the lines.
fn machines<'a>(lines: impl IntoIterator<Item = &'a ResultLine>) -> Vec<String> {
    let mut reported: Vec<String> = Vec::new();
    for line in lines {
        let machine = machine_text(&line.machine);
        if !reported.contains(&machine) {
            reported.push(machine);
        }
    }
    reported
}

/// Returns the distinct commits of the lines.
fn commits<'a>(lines: impl IntoIterator<Item = &'a ResultLine>) -> Vec<&'a str> {
    let mut reported: Vec<&str> = Vec::new();
    for line in lines {
        if !reported.contains(&line.commit.as_str()) {
            reported.push(&line.commit);
        }
    }
    reported
}

/// Returns the range of dates of the lines.
fn dates<'a>(lines: impl IntoIterator<Item = &'a ResultLine>) -> String {
    let (mut from, mut to) = ("", "");
    for line in lines {
        from = if from.is_empty() || line.date.as_str() < from { &line.date } else { from };
        to = to.max(&line.date);
    }
    if from == to { from.to_owned() } else { format!("{from} to {to}") }
}

/// Returns what was not run, its system and the reason: the listed omissions, scenarios without lines, and sides without a run that counts.
fn not_run(input: Input<'_>, scenarios: &[Scenario<'_>]) -> Vec<(String, String, String)> {
    let said = input.not_run.iter().map(|row| (row.what.to_owned(), row.target.to_owned(), row.reason.to_owned()));
    let mut rows: Vec<(String, String, String)> = said.collect();
    let is_told = |id: &str| input.not_run.iter().any(|row| row.what == id && row.target.is_empty());
    // The bare loops have no cell; they are in the section of the floors.
    let is_floor = |id: &str| input.lines.iter().any(|line| model::is_bare(line) && line.cell == id);
    for scenario in
        scenarios.iter().filter(|scenario| scenario.cells.is_empty() && !is_told(scenario.id) && !is_floor(scenario.id))
    {
        let title = scenario.text.map_or("", |text| text.title);
        let what = if title.is_empty() { scenario.id.to_owned() } else { format!("{} {title}", scenario.id) };
        rows.push((what, String::new(), "no result lines".to_owned()));
    }
    for cell in scenarios.iter().flat_map(|scenario| &scenario.cells) {
        for side in cell.sides.iter().filter(|side| side.mark != Mark::Counts) {
            let why = cell.lines.iter().filter(|line| line.side == side.name).find_map(|line| line.failures.first());
            let reason = format!("no run counts ({}): {}", side.mark.text(), why.map_or("", String::as_str));
            rows.push((cell.name.to_owned(), side.name.to_owned(), reason));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(run: &str, date: &str, cell: &str, commit: &str) -> ResultLine {
        let line = ResultLine::example(cell, "ours", 1, &[("produce_per_s", 1.0)]);
        ResultLine { run: run.to_owned(), date: date.to_owned(), commit: commit.to_owned(), ..line }
    }

    #[test]
    fn each_cell_has_its_latest_run() {
        let lines = [
            line("2026-01-01", "2026-01-01", "size/a", "old"),
            line("2026-01-02", "2026-01-02", "size/a", "mid"),
            line("2026-01-02", "2026-01-02", "size/b", "mid"),
            line("2026-01-03", "2026-01-03", "size/b", "new"),
            // A run that was interrupted and continued after a later run had begun.
            line("2026-01-02", "2026-01-04", "size/a", "mid"),
            line("2026-01-03", "2026-01-03", "size/a", "new"),
        ];
        let reported: Vec<(String, String)> = latest(&lines).into_iter().map(|line| (line.cell, line.date)).collect();
        let reported: Vec<(&str, &str)> = reported.iter().map(|(cell, date)| (cell.as_str(), date.as_str())).collect();
        assert_eq!(reported, [("size/a", "2026-01-02"), ("size/b", "2026-01-03"), ("size/a", "2026-01-04")]);
        let text = markdown(&latest(&lines));
        assert!(text.contains("2026-01-02 to 2026-01-04, commit mid, new."), "all commits are named: {text}");
        assert!(markdown(&lines).contains("commit old, mid, new."), "all runs can be reported");
    }

    #[test]
    fn a_smoke_run_has_no_summary_and_names_no_winner() {
        let side = |side, round, rate| ResultLine::example("size/a", side, round, &[("produce_per_s", rate)]);
        let mut lines: Vec<ResultLine> =
            (1..=3).flat_map(|round| [side("ours", round, 9.0), side("theirs", round, 1.0)]).collect();
        assert!(markdown(&lines).contains("ours ahead") && markdown(&lines).contains("## Requirements"));
        lines.iter_mut().for_each(|line| line.quick = true);
        let text = markdown(&lines);
        assert!(text.contains("SMOKE RUN") && !text.contains("ahead") && !text.contains("## Requirements"), "{text}");
    }
}
