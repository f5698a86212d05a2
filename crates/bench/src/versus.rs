//! Runs the matrix, round by round, and keeps every result as soon as it is there.

use crate::bare::{Bare, paced_flush, sendfile_loop, write_loop};
use crate::clock::seconds;
use crate::contract::Second;
use crate::error::Result;
use crate::matrix::{Cell, Scale, Side, cells, queues};
use crate::process::{Folder, Interrupt};
use crate::progress::Progress;
use crate::results::{ResultLine, Stamped, append, read};
use crate::run::{Surroundings, run};
use crate::steps::{Step, steps};
use crate::target::{Programs, Target};
use std::path::PathBuf;
use std::time::Duration;

/// The file of the bare loops: larger than the processors' caches. Bytes.
const BARE_FILE_BYTES: u64 = 256 << 20;
/// Bytes of a bare loop: in full, in a smoke run, and with a flush for every small batch.
const BARE_BYTES: u64 = 4 << 30;
const BARE_QUICK_BYTES: u64 = 64 << 20;
const BARE_FLUSHED_BYTES: u64 = 512 << 20;
/// The paced flushes: bytes of each, how many a second, and for how long. Seconds.
const PACED_BYTES: usize = 52 << 10;
const PACED_PER_S: u64 = 1_000;
const PACED_S: u64 = 20;
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
    for (name, bare) in bare_loops(plan)? {
        line.figures.insert(format!("{name}_cpu_s_per_million"), bare.cpu_s_per_million);
        line.figures.insert(format!("{name}_per_s"), bare.messages_per_s);
    }
    for (name, ms) in paced(plan)? {
        line.figures.insert(name, ms);
    }
    Ok(line)
}

/// What the disk alone takes for the flushes of a broker that gets 50,000 messages of 1 KiB a second and flushes each millisecond.
///
/// # Errors
/// When the machine refuses.
fn paced(plan: &Plan) -> Result<Vec<(String, f64)>> {
    let folder = Folder::create(&plan.work.join("bare"))?;
    let count = if plan.scale.quick { PACED_PER_S } else { PACED_S * PACED_PER_S };
    let latency = paced_flush(folder.path(), PACED_BYTES, PACED_PER_S, count, BARE_FILE_BYTES)?;
    let mut told = vec![("paced_flush_max_ms".to_owned(), seconds(latency.max()) * 1e3)];
    for (name, percentile) in [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)] {
        told.extend(latency.percentile(percentile).map(|ns| (format!("paced_flush_{name}_ms"), seconds(ns) * 1e3)));
    }
    Ok(told)
}

/// All bare loops, by their names.
///
/// # Errors
/// When the machine refuses.
fn bare_loops(plan: &Plan) -> Result<Vec<(&'static str, Bare)>> {
    let folder = Folder::create(&plan.work.join("bare"))?;
    let bytes = |full| if plan.scale.quick { BARE_QUICK_BYTES } else { full };
    let write = |batch, flushed, full| write_loop(folder.path(), bytes(full), batch, BARE_FILE_BYTES, flushed);
    Ok(vec![
        ("write_16KB", write(16_384, false, BARE_BYTES)?),
        ("write_16KB_flushed", write(16_384, true, BARE_FLUSHED_BYTES)?),
        ("write_1MB", write(1_000_000, false, BARE_BYTES)?),
        ("write_1MB_flushed", write(1_000_000, true, BARE_BYTES)?),
        ("sendfile", sendfile_loop(folder.path(), bytes(4 * BARE_BYTES), BARE_FILE_BYTES)?),
    ])
}
