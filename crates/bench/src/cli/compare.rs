//! `scenarios` and `compare`.

use super::{Places, say};
use crate::engine::{Job, work_through};
use crate::error::{BenchError, Context, Result};
use crate::plan::{PARTS_MAX, describe, parts};
use crate::process::Interrupt;
use crate::progress::Progress;
use crate::scenarios::{Length, NOT_RUN, Row, SCENARIOS, rows};
use crate::target::Target;
use clap::Args;
use serde_json::json;
use std::fmt::Write;
use std::path::PathBuf;

/// Width of the id column in the table of scenarios.
const ID_COLUMNS: usize = 8;
const TITLE_COLUMNS: usize = 40;

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// A smoke run: every cell of every scenario for seconds; its figures mean nothing, and are never committed
    #[arg(long)]
    quick: bool,
    /// Only this part; each takes less than an hour
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=i64::from(PARTS_MAX)))]
    part: Option<u32>,
    /// Only these scenarios or cells: an id (A4), or a part of a cell's name; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Leave out sides on this target; may be repeated
    #[arg(long, value_name = "TARGET")]
    without: Vec<Target>,
    /// Only sides on these targets, and only cells that have any
    #[arg(long, value_name = "TARGET,...", value_delimiter = ',')]
    targets: Vec<Target>,
    /// Rounds of every cell [default: 5 on the first page, 3 of the others, 1 of those that take minutes]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Resume an aborted run: skip sides that have a result of this commit and these programs, under the same conditions, without failures or with a loss
    #[arg(long)]
    resume: bool,
    /// Show the cells, their sides, and the time and disk space they need, and run nothing
    #[arg(long)]
    plan: bool,
    /// File to append result lines to [default: benches/results/compare-PART.jsonl of the checkout; for a smoke run in the build directory]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

/// Whether a row is selected, by its id or by a part of its name.
fn asked(row: &Row, only: &[String]) -> bool {
    only.is_empty()
        || only.iter().any(|text| row.id == text || (text.len() > 2 && row.cell.name.contains(text.as_str())))
}

impl CompareArgs {
    /// Returns the selected rows, each with its part.
    pub(super) fn rows(&self) -> Result<Vec<(Row, u32)>> {
        let all = rows(if self.quick { Length::QUICK } else { Length::FULL });
        let parts = parts(&rows(Length::FULL));
        let mut asked_for: Vec<(Row, u32)> = all.into_iter().zip(parts).collect();
        asked_for.retain(|(row, part)| self.part.is_none_or(|wanted| wanted == *part) && asked(row, &self.only));
        for (row, _) in &mut asked_for {
            let chosen = |target: &Target| self.targets.is_empty() || self.targets.contains(target);
            row.cell.sides.retain(|side| chosen(&side.target) && !self.without.contains(&side.target));
            row.rounds = self.rounds.unwrap_or(row.rounds);
        }
        if !self.targets.is_empty() {
            asked_for.retain(|(row, _)| !row.cell.sides.is_empty());
        }
        if asked_for.is_empty() {
            return Err(BenchError::new("no cell is like that: `scenarios` lists the ids, `compare --plan` the cells"));
        }
        Ok(asked_for)
    }

    fn results(&self, places: &Places) -> PathBuf {
        let part = self.part.map_or_else(|| "all".to_owned(), |part| part.to_string());
        match (&self.results, self.quick) {
            (Some(file), _) => file.clone(),
            (None, true) => places.build.join("bench/compare-quick.jsonl"),
            (None, false) => places.root.join(format!("benches/results/compare-{part}.jsonl")),
        }
    }
}

pub(super) fn compare(args: &CompareArgs, places: &Places, json: bool) -> Result<()> {
    let rows = args.rows()?;
    if args.plan {
        return say(&describe(&rows, args.quick));
    }
    let results = args.results(places);
    let (cells, rounds) = rows.into_iter().map(|(row, _)| (row.cell, row.rounds)).unzip();
    let job = Job {
        cells,
        rounds,
        quick: args.quick,
        keeps_brokers: true,
        resume: args.resume,
        results: results.clone(),
        work: places.build.join("bench"),
    };
    let interrupt = Interrupt::listen()?;
    let done = work_through(&job, &places.programs()?, &interrupt, &mut Progress::new());
    let lines = match done {
        Err(_) if interrupt.is_set() => {
            let what = format!("interrupted; what was measured is in {}: go on with --resume", results.display());
            return Err(BenchError::new(what));
        }
        done => done?,
    };
    if json {
        for line in &lines {
            say(&serde_json::to_string(line).context(|| "cannot write a result".to_owned())?)?;
        }
    } else {
        say(&format!("{} results are in {}; draw them with `report`", lines.len(), results.display()))?;
    }
    match lines.iter().filter(|line| !line.failures.is_empty()).count() {
        0 => Ok(()),
        failed => Err(BenchError::new(format!("{failed} of {} runs do not count; the reasons are above", lines.len()))),
    }
}

pub(super) fn scenarios(json: bool) -> Result<()> {
    if json {
        for scenario in SCENARIOS {
            say(&json!({
                "id": scenario.id, "title": scenario.title, "what": scenario.what, "setting": scenario.setting,
                "published": scenario.published, "here": scenario.here, "systems": scenario.systems,
                "not_run": scenario.not_run,
            })
            .to_string())?;
        }
        return Ok(());
    }
    say(&table())
}

fn table() -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for scenario in SCENARIOS {
        let systems = scenario.systems.join(" ");
        let _ = writeln!(text, "{:<ID_COLUMNS$}{:<TITLE_COLUMNS$}{systems}", scenario.id, scenario.title);
        for (name, stated) in [
            ("shows", scenario.what),
            ("there", scenario.setting),
            ("found", scenario.published),
            ("here", scenario.here),
            ("not run", scenario.not_run),
        ] {
            if !stated.is_empty() {
                let _ = writeln!(text, "{:ID_COLUMNS$}{name}: {stated}", "");
            }
        }
    }
    text.push_str("not run:\n");
    for not in NOT_RUN {
        let target = if not.target.is_empty() { String::new() } else { format!(" ({})", not.target) };
        let _ = writeln!(text, "{:ID_COLUMNS$}{}{target}: {}", "", not.what, not.reason);
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn asked_for(arguments: &[&str]) -> std::result::Result<Vec<(Row, u32)>, String> {
        let line = ["polylogue-bench", "compare"].iter().chain(arguments);
        let Command::Compare(args) = Cli::try_parse_from(line).map_err(|e| e.to_string())?.command else {
            return Err("another command".to_owned());
        };
        args.rows().map_err(|e| e.to_string())
    }

    #[test]
    fn a_part_is_what_it_is_whatever_else_is_asked_for() {
        let all = asked_for(&[]).expect("all of them");
        let mut parts: Vec<u32> = all.iter().map(|(_, part)| *part).collect();
        parts.dedup();
        assert_eq!(parts, (1..=parts.len() as u32).collect::<Vec<_>>(), "one after the other");
        let count: usize =
            parts.iter().map(|part| asked_for(&["--part", &part.to_string()]).expect("a part").len()).sum();
        assert_eq!(count, all.len(), "every cell is in one part");
        assert!(asked_for(&["--part", &(PARTS_MAX + 1).to_string()]).is_err());
    }

    #[test]
    fn rows_are_chosen_by_id_and_by_name() {
        let ids = |arguments: &[&str]| -> Vec<&'static str> {
            let mut ids: Vec<_> = asked_for(arguments).expect("some").iter().map(|(row, _)| row.id).collect();
            ids.dedup();
            ids
        };
        assert_eq!(ids(&["--only", "E3"]), ["E3"]);
        assert_eq!(ids(&["--only", "A7", "--only", "F2"]), ["A7", "F2"]);
        assert_eq!(ids(&["--only", "flush=2ms"]), ["A4"]);
        let few = asked_for(&["--only", "A5", "--without", "rabbitmq", "--rounds", "2", "--quick"]).expect("some");
        assert!(few.iter().all(|(row, _)| row.rounds == 2 && row.cell.sides.len() == 1));
        let some = asked_for(&["--only", "F2", "--targets", "tubemq,pulsar"]).expect("some");
        let sides: Vec<&str> =
            some.iter().flat_map(|(row, _)| &row.cell.sides).map(|side| side.label.as_str()).collect();
        assert_eq!((some.len(), sides), (1, vec!["pulsar", "tubemq"]), "rows without them are left out");
        assert!(asked_for(&["--only", "Z9"]).expect_err("there is none").contains("scenarios"));
    }

    #[test]
    fn every_scenario_is_in_the_table() {
        let table = table();
        for scenario in SCENARIOS {
            assert!(table.contains(scenario.title) && table.contains(scenario.what), "{}", scenario.id);
        }
        assert!(table.contains("F3") && table.contains("three nodes"), "{table}");
    }
}
