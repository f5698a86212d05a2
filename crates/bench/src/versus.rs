//! The matrix against one peer, as `versus` runs it.

use crate::engine::{Job, work_through};
use crate::error::Result;
use crate::matrix::{Cell, Scale, cells, queues};
use crate::process::Interrupt;
use crate::progress::Progress;
use crate::results::ResultLine;
use crate::target::{Programs, Target};
use std::path::PathBuf;

/// The system that polylogue is compared with.
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

/// The plan of a run.
#[derive(Debug)]
pub struct Plan {
    /// The peer.
    pub peer: Peer,
    /// Lengths and sizes of runs.
    pub scale: Scale,
    /// Rounds of every cell.
    pub rounds: u32,
    /// Only cells whose name contains one of these; all if empty.
    pub only: Vec<String>,
    /// Targets whose sides are left out.
    pub without: Vec<Target>,
    /// Whether results of this commit under the same conditions are kept.
    pub resume: bool,
    /// The file of result lines.
    pub results: PathBuf,
    /// The directory of brokers' data.
    pub work: PathBuf,
}

impl Plan {
    /// Returns its cells, without the sides that are left out.
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

/// Runs the plan; returns the lines, including those of an earlier run.
///
/// # Errors
/// Results cannot be read or written, or the user interrupts: completed results are in the file.
pub fn versus(
    plan: &Plan,
    programs: &Programs,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<Vec<ResultLine>> {
    let cells = plan.cells();
    let job = Job {
        rounds: vec![plan.rounds; cells.len()],
        cells,
        quick: plan.scale.quick,
        keeps_brokers: false,
        resume: plan.resume,
        results: plan.results.clone(),
        work: plan.work.clone(),
    };
    work_through(&job, programs, interrupt, progress)
}
