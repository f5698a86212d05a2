//! The first-try benchmark: the vendors' own tools with their defaults, client and broker on the same two cores.
//!
//! ```text
//!   cell                 for each side, alternating: a broker with an empty directory, then
//!   kafka/P              kafka-producer-perf-test ──> kafka-consumer-perf-test ──> a minute ──> kafka-consumer-perf-test
//!   rabbitmq/LOAD        PerfTest, one producer and one consumer
//!        └─ each step is a row: rate by the tool, processor time of the broker's processes, their memory at its end
//! ```
//!
//! Unlike in the published comparisons nothing is warmed up, and client and broker are not pinned to separate cores: these are a first try's figures.

pub mod table;
pub mod tools;

use crate::error::{Context, Result};
use crate::perf::payloads;
use crate::pin::Split;
use crate::process::{Folder, Interrupt, SpawnSettings};
use crate::progress::Progress;
use crate::results::{ResultLine, Stamped, append};
use crate::sample::Sample;
use crate::target::{Programs, Protocol, Running, Target};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tools::{Tool, consume, create_topic, perf_test, produce};

/// Bytes of a message; PerfTest's own default is 12.
pub const MESSAGE_BYTES: usize = 1_024;
/// Interval of checks for an interrupt during the minute.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The load of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Kafka's tools, with this many partitions.
    Kafka(u32),
    /// PerfTest with these arguments.
    Rabbitmq(&'static [&'static str]),
}

/// The cells, by their names.
pub const CELLS: [(&str, Load); 6] = [
    ("kafka/1 partition", Load::Kafka(1)),
    ("kafka/100 partitions", Load::Kafka(100)),
    ("rabbitmq/defaults", Load::Rabbitmq(&[])),
    ("rabbitmq/1 KiB", Load::Rabbitmq(&["-s", "1024"])),
    ("rabbitmq/1 KiB, -f persistent -c 500", Load::Rabbitmq(&["-s", "1024", "-f", "persistent", "-c", "500"])),
    (
        "rabbitmq/1 KiB, --quorum-queue -c 500",
        Load::Rabbitmq(&["-s", "1024", "--quorum-queue", "-u", "first", "-c", "500"]),
    ),
];

/// The plan of a run.
#[derive(Debug)]
pub struct Plan {
    /// Rounds of every cell.
    pub rounds: u32,
    /// Whether it is a smoke run.
    pub quick: bool,
    /// Only cells whose name contains one of these; all if empty.
    pub only: Vec<String>,
    /// Records of a run of Kafka's tools.
    pub records: u64,
    /// How long PerfTest runs. Seconds.
    pub seconds: u64,
    /// Time between the first and the second read; zero skips the second one.
    pub rest: Duration,
    /// The file of result lines.
    pub results: PathBuf,
    /// The directory of brokers' data.
    pub work: PathBuf,
}

impl Plan {
    /// Returns the selected cells.
    #[must_use]
    pub fn cells(&self) -> Vec<(&'static str, Load)> {
        let asked = |name: &str| self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()));
        CELLS.into_iter().filter(|(name, _)| asked(name)).collect()
    }
}

impl Load {
    /// Returns the sides, polylogue's first.
    #[must_use]
    pub fn sides(self) -> [Target; 3] {
        let peer = match self {
            Load::Kafka(_) => Target::Kafka,
            Load::Rabbitmq(_) => Target::Rabbitmq,
        };
        [Target::PolylogueSync, Target::PolylogueAsync, peer]
    }

    fn protocol(self) -> Protocol {
        match self {
            Load::Kafka(_) => Protocol::Kafka,
            Load::Rabbitmq(_) => Protocol::Amqp,
        }
    }
}

/// A broker under test, and its measurements.
struct Side<'a> {
    plan: &'a Plan,
    programs: &'a Programs,
    place: &'a Path,
    running: Running,
    interrupt: &'a Interrupt,
    stamped: &'a Stamped,
    /// Cell, side, round.
    at: (&'a str, String, u32),
    lines: Vec<ResultLine>,
}

/// Runs the plan; returns its lines.
///
/// # Errors
/// A tool or a broker failed, or the user interrupts: completed results are in the file.
pub fn first(
    plan: &Plan,
    programs: &Programs,
    interrupt: &Interrupt,
    progress: &mut Progress,
) -> Result<Vec<ResultLine>> {
    let cells = plan.cells();
    let stamped = Stamped::here(plan.quick)?.with(programs);
    // Client and broker share two cores on larger machines, too.
    let cores = Split::here().map(|split| split.broker.into_iter().take(1).chain(split.client.into_iter().take(1)));
    let spawn_settings =
        SpawnSettings { cores: cores.map(Iterator::collect).unwrap_or_default(), ..SpawnSettings::default() };
    let mut lines = Vec::new();
    progress.start(cells.iter().map(|(_, load)| load.sides().len()).sum::<usize>() * plan.rounds as usize, 0);
    for (name, load) in cells {
        for round in 1..=plan.rounds {
            let mut sides = load.sides();
            let first = round as usize % sides.len();
            sides.rotate_left(first);
            for target in sides {
                progress.side(name, &target.name(), round);
                let at = (name, target.name(), round);
                let measured =
                    spawn_settings.apply(|| side(plan, programs, interrupt, &stamped, at, (load, &target)))?;
                for line in &measured {
                    append(&plan.results, line)?;
                }
                measured.iter().for_each(|line| progress.line(line));
                lines.extend(measured);
            }
        }
    }
    progress.end();
    Ok(lines)
}

fn side(
    plan: &Plan,
    programs: &Programs,
    interrupt: &Interrupt,
    stamped: &Stamped,
    at: (&str, String, u32),
    (load, target): (Load, &Target),
) -> Result<Vec<ResultLine>> {
    let folder = Folder::create(&plan.work.join("first"))?;
    let place = folder.path();
    let running = Running::start(target, programs, place, load.protocol(), (1, MESSAGE_BYTES as u32), interrupt)?;
    let lines = Vec::new();
    let mut side = Side { plan, programs, place, running, interrupt, stamped, at, lines };
    match load {
        Load::Kafka(partitions) => side.kafka(partitions)?,
        Load::Rabbitmq(arguments) => side.rabbitmq(arguments)?,
    }
    Ok(side.lines)
}

impl Side<'_> {
    fn tool(&self) -> Tool<'_> {
        Tool { programs: self.programs, place: self.place, at: self.running.bootstrap(), interrupt: self.interrupt }
    }

    fn kafka(&mut self, partitions: u32) -> Result<()> {
        let payload = self.place.join("payload");
        payloads(&payload, MESSAGE_BYTES)?;
        let records = self.plan.records;
        create_topic(&self.tool(), partitions)?;
        self.step("produce", |tool| produce(tool, records, &payload))?;
        self.step("read at once", |tool| consume(tool, records))?;
        if self.plan.rest.is_zero() {
            return Ok(());
        }
        self.rest()?;
        self.step("read a minute later", |tool| consume(tool, records))
    }

    fn rabbitmq(&mut self, arguments: &[&str]) -> Result<()> {
        let seconds = self.plan.seconds;
        self.step("", |tool| perf_test(tool, seconds, arguments))
    }

    /// Waits between the two reads.
    fn rest(&self) -> Result<()> {
        let mut left = self.plan.rest;
        while !left.is_zero() {
            self.interrupt.check()?;
            let now = left.min(LOOK_EVERY);
            std::thread::sleep(now);
            left -= now;
        }
        Ok(())
    }

    /// Runs a tool, and records its output and the broker's resource usage.
    fn step(&mut self, name: &str, run: impl FnOnce(&Tool<'_>) -> Result<tools::Figures>) -> Result<()> {
        let pids = self.running.pids();
        let before = Sample::take_all(&pids)?;
        let stated = run(&self.tool())?;
        self.running.check()?;
        let after = Sample::take_all(&self.running.pids())?;
        let (cell, side, round) = &self.at;
        let row = if name.is_empty() { (*cell).to_owned() } else { format!("{cell}, {name}") };
        let mut line = self.stamped.line(&row, side, *round);
        line.figures = stated.values;
        let cpu = after.cpu_s - before.cpu_s;
        line.figures.insert("broker_cpu_s".to_owned(), cpu);
        line.figures.insert("cpu_s_per_million".to_owned(), cpu / stated.messages.max(1.0) * 1e6);
        let rss = after.anonymous_bytes + after.shared_bytes + after.file_bytes;
        line.figures.insert("rss_bytes".to_owned(), rss as f64);
        self.lines.push(line);
        Ok(())
    }
}

/// Installs PerfTest into `peers/perf-test`.
///
/// # Errors
/// Maven is missing or cannot fetch it.
pub fn install_perf_test(peers: &Path) -> Result<()> {
    let to = peers.join("perf-test");
    std::fs::create_dir_all(&to).context(|| format!("cannot make {}", to.display()))?;
    crate::peers::jars(tools::PERF_TEST_POM, &to, &format!("perf-test-{}.jar", tools::PERF_TEST_VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_chosen_by_parts_of_their_names() {
        let chosen = |only: &[&str]| {
            let plan = Plan {
                rounds: 1,
                quick: true,
                only: only.iter().map(|part| (*part).to_owned()).collect(),
                records: 1,
                seconds: 1,
                rest: Duration::ZERO,
                results: PathBuf::new(),
                work: PathBuf::new(),
            };
            plan.cells().len()
        };
        assert_eq!([chosen(&[]), chosen(&["kafka"]), chosen(&["100", "defaults"]), chosen(&["pulsar"])], [6, 2, 2, 0]);
    }
}
