//! Result lines to Markdown: what was wanted and whether it holds, then a table for each cell.
//!
//! ```text
//!   lines --latest--> lines of one run a cell
//!                       |---> summary   a row for each requirement: measured, wanted, held or not
//!                       '---> table     a table for each cell: medians, spread, ratios, who is ahead        (sides, stats)
//! ```

pub mod sides;
pub mod stats;
pub mod summary;
pub mod table;

use crate::results::ResultLine;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Of each cell the lines of its latest run: the one that the newest line is of.
#[must_use]
pub fn latest(lines: &[ResultLine]) -> Vec<ResultLine> {
    let mut newest: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for line in lines {
        let told = newest.entry(&line.cell).or_default();
        *told = (*told).max((line.date.as_str(), line.run.as_str()));
    }
    let is_of_newest = |line: &&ResultLine| newest.get(line.cell.as_str()).is_some_and(|(_, run)| *run == line.run);
    lines.iter().filter(is_of_newest).cloned().collect()
}

/// The report. The first side that a cell has in the lines is the one that others are compared with; a run that failed counts for
/// nothing and is listed.
#[must_use]
pub fn markdown(lines: &[ResultLine]) -> String {
    let mut text = String::new();
    if lines.iter().any(|line| line.quick) {
        text.push_str(
            "> **SMOKE RUN.** These figures show that every cell runs. They mean nothing, and name no winner.\n\n",
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

// Writing to a string cannot fail, here and in the modules below.
fn write_conditions(text: &mut String, lines: &[ResultLine]) {
    let Some(first) = lines.first() else { return };
    let machine = &first.machine;
    let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
    let mut commits: Vec<&str> = Vec::new();
    for line in lines {
        if !commits.contains(&line.commit.as_str()) {
            commits.push(&line.commit);
        }
    }
    let from = lines.iter().map(|line| line.date.as_str()).min().unwrap_or_default();
    let to = lines.iter().map(|line| line.date.as_str()).max().unwrap_or_default();
    let _ = writeln!(
        text,
        "{} cores ({}), {gib:.0} GiB, Linux {}; client and broker share the cores. {from} to {to}, commit {}.\n",
        machine.cores,
        machine.processor,
        machine.kernel,
        commits.join(", ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(run: &str, date: &str, cell: &str, commit: &str) -> ResultLine {
        let line = ResultLine::example(cell, "ours", 1, &[("produce_per_s", 1.0)]);
        ResultLine { run: run.to_owned(), date: date.to_owned(), commit: commit.to_owned(), ..line }
    }

    #[test]
    fn each_cell_is_told_by_its_latest_run() {
        let lines = [
            line("2026-01-01", "2026-01-01", "size/a", "old"),
            line("2026-01-02", "2026-01-02", "size/a", "mid"),
            line("2026-01-02", "2026-01-02", "size/b", "mid"),
            line("2026-01-03", "2026-01-03", "size/b", "new"),
            // A run that was broken off and went on later than one that began after it.
            line("2026-01-02", "2026-01-04", "size/a", "mid"),
            line("2026-01-03", "2026-01-03", "size/a", "new"),
        ];
        let told: Vec<(String, String)> = latest(&lines).into_iter().map(|line| (line.cell, line.date)).collect();
        let told: Vec<(&str, &str)> = told.iter().map(|(cell, date)| (cell.as_str(), date.as_str())).collect();
        assert_eq!(told, [("size/a", "2026-01-02"), ("size/b", "2026-01-03"), ("size/a", "2026-01-04")]);
        let text = markdown(&latest(&lines));
        assert!(text.contains("2026-01-02 to 2026-01-04, commit mid, new."), "every commit is named: {text}");
        assert!(markdown(&lines).contains("commit old, mid, new."), "all of them can be asked for");
    }

    #[test]
    fn a_smoke_run_has_no_summary_and_names_no_winner() {
        let side = |side, round, rate| ResultLine::example("size/a", side, round, &[("produce_per_s", rate)]);
        let mut lines: Vec<ResultLine> =
            (1..=3).flat_map(|round| [side("ours", round, 9.0), side("theirs", round, 1.0)]).collect();
        assert!(markdown(&lines).contains("ours ahead") && markdown(&lines).contains("## What was wanted"));
        lines.iter_mut().for_each(|line| line.quick = true);
        let text = markdown(&lines);
        assert!(
            text.contains("SMOKE RUN") && !text.contains("ahead") && !text.contains("## What was wanted"),
            "{text}"
        );
    }
}
