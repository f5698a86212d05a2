//! `first`.

use super::{Places, say};
use crate::error::{BenchError, Context, Result};
use crate::first::table::table;
use crate::first::{CELLS, Plan};
use crate::process::Interrupt;
use crate::progress::Progress;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct FirstArgs {
    /// A smoke run: few records, seconds instead of minutes; its figures mean nothing
    #[arg(long)]
    quick: bool,
    /// Rounds of every cell [default: 3; 1 for a smoke run]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Only cells whose name contains this (kafka, rabbitmq, 100 partitions); may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Seconds between the first and the second read; 0 skips the second one [default: 60; 2 for a smoke run]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=3_600))]
    rest: Option<u64>,
    /// List the cells and their sides, and run nothing
    #[arg(long)]
    plan: bool,
    /// File to append result lines to [default: benches/results/first-benchmark.jsonl of the checkout; for a smoke run in the build directory]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

impl FirstArgs {
    fn plan(self, places: &Places) -> Plan {
        let kept = match self.quick {
            true => places.build.join("bench/first-quick.jsonl"),
            false => places.root.join("benches/results/first-benchmark.jsonl"),
        };
        let (records, seconds, rest) = match self.quick {
            true => (20_000, 5, Duration::from_secs(2)),
            false => (1_000_000, 30, Duration::from_secs(60)),
        };
        Plan {
            rounds: self.rounds.unwrap_or(if self.quick { 1 } else { 3 }),
            quick: self.quick,
            only: self.only,
            records,
            seconds,
            rest: self.rest.map_or(rest, Duration::from_secs),
            results: self.results.unwrap_or(kept),
            work: places.build.join("bench"),
        }
    }
}

pub(super) fn first(args: FirstArgs, places: &Places, json: bool) -> Result<()> {
    let lists = args.plan;
    let plan = args.plan(places);
    let cells = plan.cells();
    if cells.is_empty() {
        let all: Vec<&str> = CELLS.iter().map(|(name, _)| *name).collect();
        return Err(BenchError::new(format!("no cell is like that; there are: {}", all.join(", "))));
    }
    if lists {
        for (name, load) in cells {
            say(&format!("{name}: {}", load.sides().map(|side| side.name()).join(", ")))?;
        }
        return Ok(());
    }
    let interrupt = Interrupt::listen()?;
    let lines = crate::first::first(&plan, &places.programs()?, &interrupt, &mut Progress::new())?;
    if json {
        for line in &lines {
            say(&serde_json::to_string(line).context(|| "cannot write a result".to_owned())?)?;
        }
        return Ok(());
    }
    say(&table(&lines))?;
    say(&format!("{} results are in {}", lines.len(), plan.results.display()))
}
