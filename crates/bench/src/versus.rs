//! Runs the matrix, round by round, and keeps every result as soon as it is there.

use crate::contract::Second;
use crate::error::Result;
use crate::machine::machine_figures;
use crate::matrix::{Cell, Scale, Side, cells, queues};
use crate::process::Interrupt;
use crate::progress::Progress;
use crate::results::{ResultLine, Stamped, append, read};
use crate::run::{Surroundings, run};
use crate::steps::{Step, steps};
use crate::target::{Programs, Target};
use std::path::PathBuf;
use std::time::Duration;

/// How long the machine is left alone between two sides, after what is dirty has been flushed.
const SETTLE: Duration = Duration::from_secs(3);

/// Whom polylogue is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    /// Apache Kafka: logs.
    Kafka,
    /// RabbitMQ: queues.
    Rabbitmq,
}

impl Peer {
    /// The name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Peer::Kafka => "kafka",
            Peer::Rabbitmq => "rabbitmq",
        }
    }
}

/// What is to be run.
#[derive(Debug)]
pub struct Plan {
    /// The cells.
    pub peer: Peer,
    /// How long and how large runs are.
    pub scale: Scale,
    /// Rounds of every cell.
    pub rounds: u32,
    /// Only cells whose name contains one of these; all, when there are none.
    pub only: Vec<String>,
    /// Sides on these targets are left out.
    pub without: Vec<Target>,
    /// Whether what the results have already of this commit, under the same conditions, is left as it is.
    pub resume: bool,
    /// Where result lines go.
    pub results: PathBuf,
    /// Where brokers have their data.
    pub work: PathBuf,
}

impl Plan {
    /// The cells that it has, without the sides that are left out.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = match self.peer {
            Peer::Kafka => cells(self.scale),
            Peer::Rabbitmq => queues::cells(self.scale),
        };
        cells.retain(|cell| self.only.is_empty() || self.only.iter().any(|part| cell.name.contains(part.as_str())));
        cells.iter_mut().for_each(|cell| cell.sides.retain(|side| !self.without.contains(&side.target)));
        cells
    }
}

/// Runs the plan; gives the lines, those included that an earlier run has done. A side that cannot be run is told as a failed line,
/// and the rest goes on.
///
/// # Errors
/// When results cannot be read or kept, or the user wants to stop: what was measured until then is in the file.
pub fn versus(
    plan: &Plan,
    programs: &Programs,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<Vec<ResultLine>> {
    let stamped = Stamped::here(plan.scale.quick)?;
    let cells = plan.cells();
    let earlier = if plan.resume && plan.results.exists() { read(&plan.results)? } else { Vec::new() };
    let steps = steps(&cells, plan.rounds, &earlier, &stamped);
    let done = steps.iter().filter(|step| step.done.is_some()).count();
    progress.start(steps.len() - done, done);
    let around = Surroundings { programs, work: &plan.work, interrupt };
    let mut lines = Vec::new();
    for step in &steps {
        if let Some(line) = step.done {
            lines.push(line.clone());
            continue;
        }
        interrupt.check()?;
        let stamped = Stamped { run: step.run.clone(), ..stamped.clone() };
        let line = match step.side {
            None => {
                progress.side(&step.cell.name, step.label(), step.round);
                bare_line(plan, &stamped, step)?
            }
            Some(side) => {
                settle(plan.scale.quick);
                progress.side(&step.cell.name, step.label(), step.round);
                side_line(&stamped, step, side, &around, progress)
            }
        };
        interrupt.check()?;
        append(&plan.results, &line)?;
        progress.line(&line);
        lines.push(line);
    }
    progress.end();
    Ok(lines)
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
    rustix::fs::sync();
    if !quick {
        std::thread::sleep(SETTLE);
    }
}

fn bare_line(plan: &Plan, stamped: &Stamped, step: &Step<'_>) -> Result<ResultLine> {
    let mut line = stamped.line(&step.cell.name, step.label(), step.round);
    line.figures = machine_figures(&plan.work.join("bare"), plan.scale.quick)?;
    Ok(line)
}
