//! Runs cells, side by side in turns, and keeps every result as soon as it is there.
//!
//! ```text
//!   cells x rounds --> steps (what an earlier run has done is left out) --> settle, run --> a line is appended --> the next
//!   the brokers of a cell may stay up for all its rounds
//!   a smoke run: one target after the other, whose broker stays for all its cells
//! ```

use crate::contract::Second;
use crate::error::Result;
use crate::machine::machine_figures;
use crate::matrix::{Cell, Side};
use crate::process::{Interrupt, take_folder};
use crate::progress::Progress;
use crate::results::{ResultLine, Stamped, append, read};
use crate::run::lives::Kept;
use crate::run::{Surroundings, run};
use crate::steps::{Step, steps};
use crate::target::Programs;
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

/// How long the machine is left alone between two sides, after what is dirty has been flushed.
const SETTLE: Duration = Duration::from_secs(1);

/// What is to be run.
#[derive(Debug)]
pub struct Job {
    /// The cells.
    pub cells: Vec<Cell>,
    /// Rounds of each.
    pub rounds: Vec<u32>,
    /// Whether this only shows that every cell runs.
    pub quick: bool,
    /// Whether brokers stay: in a smoke run one for all its cells, else those of a cell for its rounds, where its load says so.
    pub keeps_brokers: bool,
    /// Whether what the results have already of this commit, under the same conditions, is left as it is.
    pub resume: bool,
    /// Where result lines go.
    pub results: PathBuf,
    /// Where brokers have their data.
    pub work: PathBuf,
}

/// Runs it; gives the lines, those included that an earlier run has done. A side that cannot be run is told as a failed line, and the
/// rest goes on.
///
/// # Errors
/// When results cannot be read or kept, or the user wants to stop: what was measured until then is in the file.
pub fn work_through(
    job: &Job,
    programs: &Programs,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<Vec<ResultLine>> {
    let _alone = take_folder(&job.work)?;
    let stamped = Stamped::here(job.quick)?.with(programs);
    let earlier = if job.resume && job.results.exists() { read(&job.results)? } else { Vec::new() };
    let of_side = |side: &Side| stamped.built.as_ref().map(|built| built.with_peer(&side.target, programs));
    let mut steps = steps(&job.cells, &job.rounds, &earlier, (&stamped, &of_side));
    let kept = RefCell::new(if job.quick { Kept::default() } else { Kept::of_cells() });
    if job.quick && job.keeps_brokers {
        by_broker(&mut steps);
    }
    let done = steps.iter().filter(|step| step.done.is_some()).count();
    progress.start(steps.len() - done, done);
    let around = Surroundings { programs, work: &job.work, interrupt, kept: job.keeps_brokers.then_some(&kept) };
    let (mut lines, mut cell) = (Vec::new(), None);
    for step in &steps {
        if cell.replace(&step.cell.name) != Some(&step.cell.name) {
            kept.borrow_mut().end_cell();
        }
        if let Some(line) = step.done {
            lines.push(line.clone());
            continue;
        }
        interrupt.check()?;
        let stamped = Stamped { run: step.run.clone(), ..stamped.clone() };
        let line = match step.side {
            None => {
                progress.side(&step.cell.name, step.label(), step.round);
                bare_line(job, &stamped, step)?
            }
            Some(side) => {
                settle(job.quick);
                progress.side(&step.cell.name, step.label(), step.round);
                let stamped = Stamped { built: of_side(side), ..stamped };
                side_line(&stamped, step, side, &around, progress)
            }
        };
        // What was broken off in the middle is no result.
        interrupt.check()?;
        append(&job.results, &line)?;
        progress.line(&line);
        lines.push(line);
    }
    progress.end();
    Ok(lines)
}

/// All cells of a target one after the other, and of those the ones that speak the same protocol.
fn by_broker(steps: &mut [Step<'_>]) {
    steps.sort_by_key(|step| step.side.map(|side| (side.target.clone(), side.load.queue.is_some())));
}

fn side_line(
    stamped: &Stamped,
    step: &Step<'_>,
    side: &Side,
    around: &Surroundings<'_>,
    progress: &mut Progress,
) -> ResultLine {
    let mut line = stamped.line(&step.cell.name, step.label(), step.round);
    let mut second = |second: &Second| progress.second(second);
    if let Err(e) = run(step.cell.kind, step.cell.driver, side, around, &mut line, &mut second) {
        line.failures.push(e.to_string());
    }
    line
}

fn settle(quick: bool) {
    if quick {
        return;
    }
    rustix::fs::sync();
    std::thread::sleep(SETTLE);
}

fn bare_line(job: &Job, stamped: &Stamped, step: &Step<'_>) -> Result<ResultLine> {
    let mut line = stamped.line(&step.cell.name, step.label(), step.round);
    line.figures = machine_figures(&job.work.join("bare"), job.quick)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Kind;
    use crate::results::Machine;
    use crate::scenarios::{Length, rows};

    fn job() -> (Vec<Cell>, Vec<u32>) {
        let mut rows = rows(Length::QUICK);
        rows.retain(|row| ["bare", "A4", "F1"].contains(&row.id));
        rows.into_iter().map(|row| (row.cell, row.rounds)).unzip()
    }

    fn now() -> Stamped {
        let machine = Machine { cores: 2, processor: "p".to_owned(), memory_bytes: 1, kernel: "6".to_owned() };
        Stamped { run: "now".to_owned(), commit: "c".to_owned(), built: None, machine, quick: true }
    }

    /// Sixteen brokers are started in a smoke run, not one for each of hundreds of sides.
    #[test]
    fn a_smoke_run_goes_from_broker_to_broker() {
        let (cells, rounds) = job();
        let mut steps = steps(&cells, &rounds, &[], (&now(), &|_| None));
        let all = steps.len();
        by_broker(&mut steps);
        assert_eq!(steps.len(), all);
        assert_eq!(steps.first().map(|step| step.cell.kind), Some(Kind::Bare));
        let brokers: Vec<_> = steps
            .iter()
            .filter_map(|step| step.side)
            .map(|side| (side.target.name(), side.load.queue.is_some()))
            .collect();
        let mut seen = brokers.clone();
        seen.dedup();
        let starts = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(starts, seen.len(), "no broker is started twice: {brokers:?}");
    }
}
