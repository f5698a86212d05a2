//! Result lines: one JSON object for each side of each round of a cell.

use crate::amqp::load::QueueLoad;
use crate::built::Built;
use crate::error::{BenchError, Context, Result};
use crate::how::unpinned;
use crate::matrix::Many;
use crate::target::Programs;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// The side of a cell without a broker.
pub const MACHINE: &str = "machine";

/// The figure that says how busy a client was of which no processor time is known: the share of a core of its busiest thread.
pub const CLIENT_BUSY: &str = "produce_client_busy";
/// The figure that says that the highest rate of a ladder was held: there may be more.
pub const LADDER_ENDED: &str = "ladder_ended";
/// The figure that says of a run as fast as it goes that its readers did not keep up.
pub const FELL_BEHIND: &str = "readers_fell_behind";

/// The machine. Nothing here names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors.
    pub cores: usize,
    /// Their model.
    pub processor: String,
    /// Memory. Bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
}

/// Under which conditions a side was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// The broker.
    pub target: String,
    /// When it acknowledges.
    pub durability: String,
    /// The client.
    pub client: String,
    /// How messages become batches.
    pub batching: String,
    /// Unanswered requests at a time.
    pub in_flight: u32,
    /// Bytes of a message.
    pub message_bytes: u32,
    /// Partitions.
    pub partitions: u32,
    /// Groups of one reader each.
    pub groups: u32,
    /// Messages a second; 0: as fast as it goes.
    pub rate: u64,
    /// Messages of the run that warmed up, for a run by count.
    #[serde(default)]
    pub warm_messages: u64,
    /// Messages measured; 0 for a run by time.
    #[serde(default)]
    pub messages: u64,
    /// What was thrown away of a run by time. Milliseconds.
    #[serde(default)]
    pub warmup_ms: u64,
    /// What was measured of it. Milliseconds.
    #[serde(default)]
    pub window_ms: u64,
    /// How messages went through queues; partitions are queues then, and `in_flight` counts messages without a confirm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLoad>,
    /// How a run by time was warmed up, when that was not for a fixed time.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub warm_up: String,
    /// Which cores broker and client had.
    #[serde(default = "unpinned")]
    pub pinning: String,
    /// How many of them the client had; 0: all of the machine.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub client_cores: u64,
    /// How long each flush of the broker was held. Milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flush_delay_ms: u64,
    /// What the broker could use, when that was not everything.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memory: String,
    /// The rates that were stepped, published and run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ladder: String,
    /// Of what there was more than one.
    #[serde(default, skip_serializing_if = "Many::is_plain")]
    pub many: Many,
    /// Messages that lay there from before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub backlog: u64,
    /// The fastest that they were read. Bytes a second.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cold_bytes_per_s: u64,
    /// Connections that did nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub connections: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// What happened second by second; the same place in each list is the same second, counted from when the first message was due. A list
/// is empty where there is nothing to know: no groups, a named running broker, no JVM.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Series {
    /// Messages acknowledged.
    pub acked: Vec<u64>,
    /// Messages read.
    pub received: Vec<u64>,
    /// Publish p99, microseconds; where there were too few samples the longest.
    pub publish_us: Vec<u64>,
    /// End-to-end p99, likewise.
    pub end_to_end_us: Vec<u64>,
    /// Processor seconds of the broker.
    pub broker_cpu_s: Vec<f64>,
    /// Its anonymous memory and as much of its shared memory as it had before the load (a heap of ZGC is that), MiB.
    pub broker_anonymous_mib: Vec<u64>,
    /// Messages sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent: Vec<u64>,
    /// Messages sent and not yet read by a group, at the end of the second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backlog: Vec<u64>,
    /// Its shared memory, which is in `broker_anonymous_mib` too, MiB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broker_shared_mib: Vec<u64>,
    /// Its mapped files, as far as they are in memory, MiB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broker_file_mib: Vec<u64>,
    /// Page cache of the broker's control group or, without one, by how much that of the machine has grown since before the broker was
    /// started, MiB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub page_cache_mib: Vec<u64>,
    /// Its open files and sockets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<u64>,
    /// Its threads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<u64>,
    /// Connections to the broker's port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<u64>,
    /// Bytes read from the device that holds the data folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_read_bytes: Vec<u64>,
    /// Bytes written to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_write_bytes: Vec<u64>,
    /// Its operations: reads, writes and flushes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_operations: Vec<u64>,
    /// Its utilisation: the share of the second in which it had something to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_busy: Vec<f64>,
    /// Bytes over the machine's loopback: what went to the broker and what came from it, together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loopback_bytes: Vec<u64>,
    /// Collections of the broker's JVMs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collections: Vec<u64>,
    /// What they took, milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collection_ms: Vec<f64>,
    /// Processor seconds of the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_cpu_s: Vec<f64>,
    /// Collections of the client's JVM.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_collections: Vec<u64>,
    /// What they took, milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_collection_ms: Vec<f64>,
}

/// One side of one round of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultLine {
    /// When the run began that this line is of: what tells two runs in one file apart. UTC.
    pub run: String,
    /// When. UTC.
    pub date: String,
    /// What was built: the commit, and whether there were changes on top.
    pub commit: String,
    /// What programs ran; none in lines from before it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built: Option<Built>,
    /// Where.
    pub machine: Machine,
    /// A smoke run: its figures mean nothing.
    pub quick: bool,
    /// The cell.
    pub cell: String,
    /// The side.
    pub side: String,
    /// The round, from 1 on.
    pub round: u32,
    /// The conditions; none for the bare loops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
    /// Why the run does not count: a loss, an error, a rate that was not held. Empty when it does.
    pub failures: Vec<String>,
    /// The figures by their names.
    pub figures: BTreeMap<String, f64>,
    /// Second by second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// Latency by percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curves: Option<crate::latency::Curves>,
}

/// What the failures say that a broker is blamed for, whatever comes of the next try.
const FINAL: [&str; 5] =
    ["messages lost", "messages duplicated", "messages out of order", "rate was not held", "no rate was held"];

impl ResultLine {
    /// Whether a message was lost, doubled or swapped, or a rate was not held: that is a result, and running the side again until it passes
    /// would hide it.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.failures.iter().any(|failure| FINAL.iter().any(|part| failure.contains(part)))
    }
}

#[cfg(any(test, feature = "testing"))]
impl ResultLine {
    /// A line that counts, of a run "r" with the raw driver as fast as it goes.
    pub fn example(cell: &str, side: &str, round: u32, figures: &[(&str, f64)]) -> ResultLine {
        let conditions = Conditions {
            target: side.to_owned(),
            durability: "flushed".to_owned(),
            client: "raw".to_owned(),
            batching: "1 bytes, linger 0 ms".to_owned(),
            in_flight: 5,
            message_bytes: 1_024,
            partitions: 1,
            groups: 0,
            rate: 0,
            warm_messages: 0,
            messages: 0,
            warmup_ms: 0,
            window_ms: 0,
            queue: None,
            warm_up: String::new(),
            pinning: unpinned(),
            client_cores: 0,
            flush_delay_ms: 0,
            memory: String::new(),
            ladder: String::new(),
            many: Many::default(),
            backlog: 0,
            cold_bytes_per_s: 0,
            connections: 0,
        };
        ResultLine {
            run: "r".to_owned(),
            date: "2026-01-01T00:00:00Z".to_owned(),
            commit: "c".to_owned(),
            built: None,
            machine: Machine { cores: 2, processor: "p".to_owned(), memory_bytes: 8 << 30, kernel: "6".to_owned() },
            quick: false,
            cell: cell.to_owned(),
            side: side.to_owned(),
            round,
            conditions: Some(conditions),
            failures: Vec::new(),
            figures: figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            series: None,
            curves: None,
        }
    }
}

/// What all lines of a run have in common.
#[derive(Debug, Clone)]
pub struct Stamped {
    /// When the run began. UTC.
    pub run: String,
    /// The commit of the checkout.
    pub commit: String,
    /// What programs run; none when it was not looked at.
    pub built: Option<Built>,
    /// The machine.
    pub machine: Machine,
    /// Whether this is a smoke run.
    pub quick: bool,
}

impl Stamped {
    /// Looks around.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn here(quick: bool) -> Result<Stamped> {
        let read = |path: &str| std::fs::read_to_string(path).context(|| format!("cannot read {path}"));
        let memory = read("/proc/meminfo")?;
        let kib = memory
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
        let processors = read("/proc/cpuinfo")?;
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let machine = Machine {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: model.map_or("unknown", |(_, model)| model).to_owned(),
            memory_bytes: kib.unwrap_or(0).saturating_mul(1_024),
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        };
        Ok(Stamped { run: now(), commit: commit(), built: None, machine, quick })
    }

    /// The same with what these programs are.
    #[must_use]
    pub fn with(self, programs: &Programs) -> Stamped {
        Stamped { built: Some(Built::now(programs)), ..self }
    }

    /// A line of now without figures.
    #[must_use]
    pub fn line(&self, cell: &str, side: &str, round: u32) -> ResultLine {
        ResultLine {
            run: self.run.clone(),
            date: now(),
            commit: self.commit.clone(),
            built: self.built.clone(),
            machine: self.machine.clone(),
            quick: self.quick,
            cell: cell.to_owned(),
            side: side.to_owned(),
            round,
            conditions: None,
            failures: Vec::new(),
            figures: BTreeMap::new(),
            series: None,
            curves: None,
        }
    }
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// The commit of the working directory, with a + when something was changed; "unknown" outside of a checkout.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let out = Command::new("git").args(arguments).stdin(Stdio::null()).output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    // Result files that grew do not change what was built.
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!benches/results"]);
    let changed = changed.is_some_and(|text| !text.is_empty());
    if changed { format!("{commit}+") } else { commit }
}

/// Appends a line to a file of results.
///
/// # Errors
/// When it cannot be written.
pub fn append(file: &Path, line: &ResultLine) -> Result<()> {
    let said = || format!("cannot write {}", file.display());
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).context(said)?;
    }
    let mut text = serde_json::to_string(line).context(said)?;
    text.push('\n');
    let mut out = OpenOptions::new().create(true).append(true).open(file).context(said)?;
    out.write_all(text.as_bytes()).context(said)
}

/// The remark of a run whose machine was too busy for its latency to count, as far as all of them have it.
pub const BUSY: &str = "the machine was only";

/// Lines up to 2026-11-23 say that the machine was busy where broker and client had cores of their own, too; whose client was not busy is
/// its broker's own latency.
fn without_busy(mut line: ResultLine) -> ResultLine {
    if line.conditions.as_ref().is_some_and(|stated| stated.pinning != unpinned()) {
        line.failures.retain(|failure| !failure.starts_with(BUSY));
    }
    line
}

/// Lines up to 2026-11-25 tell how fast a reader far behind read until its window ended, which is long after it had caught up.
fn with_reading_rate(mut line: ResultLine) -> ResultLine {
    let Some(stated) = line.conditions.as_ref().filter(|stated| stated.backlog > 0) else { return line };
    let bytes = (stated.backlog * u64::from(stated.message_bytes)) as f64;
    if let Some(drained_s) = line.figures.get("drained_s").copied() {
        line.figures.insert("cold_read_bytes_per_s".to_owned(), bytes / drained_s);
    }
    line
}

/// Reads a file of results.
///
/// # Errors
/// When it is not there or a line of it is no result; the line is named.
pub fn read(file: &Path) -> Result<Vec<ResultLine>> {
    let text = std::fs::read_to_string(file).context(|| format!("cannot read {}", file.display()))?;
    let parse = |(number, line): (usize, &str)| {
        let line = serde_json::from_str(line).map(without_busy).map(with_reading_rate);
        line.map_err(|e| BenchError::new(format!("{} line {}: {e}", file.display(), number + 1)))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reader that caught up within its window was reported at the same rate, however long that had taken.
    #[test]
    fn a_reader_that_caught_up_is_told_at_the_rate_until_then() {
        let mut line =
            ResultLine::example("A6/drain/x", "s", 1, &[("drained_s", 4.0), ("cold_read_bytes_per_s", 266e6)]);
        line.conditions.as_mut().unwrap().backlog = 2_000_000;
        assert_eq!(with_reading_rate(line).figures.get("cold_read_bytes_per_s"), Some(&512e6));
    }

    /// A ladder says at which rate a message was lost: such a side was run again until nothing was.
    #[test]
    fn a_loss_is_final_wherever_it_is_told() {
        let is_final = |failure: &str| {
            let mut line = ResultLine::example("A1/x", "s", 1, &[]);
            line.failures.push(failure.to_owned());
            line.is_final()
        };
        for failure in
            ["3 messages lost", "3 messages lost at 25000 a second", "the rate was not held: 98.0 % acknowledged"]
        {
            assert!(is_final(failure), "{failure}");
        }
        assert!(!is_final("the broker was not idle after 90 s"));
    }

    /// Kafka's and RabbitMQ's latency was not compared in most rows, because their brokers used up their own core.
    #[test]
    fn a_broker_that_uses_up_its_own_cores_is_compared() {
        let busy = |pinning: &str| {
            let mut line = ResultLine::example("latency/x/client=raw", "theirs", 1, &[]);
            line.failures = vec![format!("{BUSY} 24 % idle: no latency is compared"), "2 messages lost".to_owned()];
            line.conditions.as_mut().unwrap().pinning = pinning.to_owned();
            without_busy(line).failures.len()
        };
        assert_eq!((busy("broker core 0, client core 1"), busy(&unpinned())), (1, 2));
    }
}
