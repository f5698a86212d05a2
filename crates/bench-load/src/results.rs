//! Result lines: one JSON object per side and round of a cell. Writing, reading, and corrections of older lines.

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

/// Name of the side without a broker: the bare loops.
pub const MACHINE: &str = "machine";

/// Figure: the share of a core of the client's busiest thread, for clients whose processor time is unknown.
pub const CLIENT_BUSY: &str = "produce_client_busy";
/// Figure: 1 if the highest rate of a ladder was met, so that the maximum may be higher.
pub const LADDER_ENDED: &str = "ladder_ended";
/// Figure: 1 if the readers of a run at unlimited rate did not keep up.
pub const FELL_BEHIND: &str = "readers_fell_behind";

/// The machine, without its name.
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

/// The conditions of a side's measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Name of the target.
    pub target: String,
    /// When the broker acknowledges a message.
    pub durability: String,
    /// Name of the client.
    pub client: String,
    /// Batch size and linger, formatted.
    pub batching: String,
    /// Limit on requests in flight.
    pub in_flight: u32,
    /// Message size. Bytes.
    pub message_bytes: u32,
    /// Number of partitions.
    pub partitions: u32,
    /// Number of consumer groups, with one reader each.
    pub groups: u32,
    /// Messages a second; 0 is unlimited.
    pub rate: u64,
    /// Messages of the warm-up, for a run by count.
    #[serde(default)]
    pub warm_messages: u64,
    /// Messages measured; 0 for a run by time.
    #[serde(default)]
    pub messages: u64,
    /// Length of the warm-up of a run by time. Milliseconds.
    #[serde(default)]
    pub warmup_ms: u64,
    /// Length of the measurement window of a run by time. Milliseconds.
    #[serde(default)]
    pub window_ms: u64,
    /// The load of queues; then `partitions` counts queues, and `in_flight` limits unconfirmed messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLoad>,
    /// The warm-up of a run by time, formatted, if it has no fixed length.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub warm_up: String,
    /// Cores of broker and client, formatted.
    #[serde(default = "unpinned")]
    pub pinning: String,
    /// Number of cores of the client; 0: all of the machine.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub client_cores: u64,
    /// Delay added to each flush of the broker. Milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub flush_delay_ms: u64,
    /// Memory limit of the broker, formatted, if it has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub memory: String,
    /// Rates of the ladder, formatted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ladder: String,
    /// Counts greater than one, such as topics and producers.
    #[serde(default, skip_serializing_if = "Many::is_plain")]
    pub many: Many,
    /// Messages published before the run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub backlog: u64,
    /// Limit on the rate at which they were read. Bytes a second; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cold_bytes_per_s: u64,
    /// Idle connections.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub connections: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Measurements by second. Equal indexes of the lists are the same second, counted from the due time of the first message.
///
/// A list is empty if its value is unknown: without groups, for a running broker, without a JVM.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Series {
    /// Messages acknowledged.
    pub acked: Vec<u64>,
    /// Messages read.
    pub received: Vec<u64>,
    /// Publish p99, microseconds; the maximum if there are too few samples.
    pub publish_us: Vec<u64>,
    /// End-to-end p99, likewise.
    pub end_to_end_us: Vec<u64>,
    /// Processor seconds of the broker.
    pub broker_cpu_s: Vec<f64>,
    /// Its anonymous memory, and its shared memory up to its size before the load (the heap of a JVM with ZGC), MiB.
    pub broker_anonymous_mib: Vec<u64>,
    /// Messages sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent: Vec<u64>,
    /// Messages sent and not read by a group, at the end of the second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backlog: Vec<u64>,
    /// Its shared memory, also counted in `broker_anonymous_mib`, MiB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broker_shared_mib: Vec<u64>,
    /// Resident memory of its mapped files, MiB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broker_file_mib: Vec<u64>,
    /// Page cache of the broker's control group; without a group, the growth of the machine's page cache since before the broker
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
    /// Bytes read from the device of the data directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_read_bytes: Vec<u64>,
    /// Bytes written to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_write_bytes: Vec<u64>,
    /// Its operations: reads, writes and flushes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_operations: Vec<u64>,
    /// Its utilisation: the share of the second in which it was busy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_busy: Vec<f64>,
    /// Bytes over the loopback interface, in both directions together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loopback_bytes: Vec<u64>,
    /// Garbage collections of the broker's JVMs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collections: Vec<u64>,
    /// Time of those collections, milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collection_ms: Vec<f64>,
    /// Processor seconds of the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_cpu_s: Vec<f64>,
    /// Garbage collections of the client's JVM.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_collections: Vec<u64>,
    /// Time of those collections, milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_collection_ms: Vec<f64>,
}

/// One side of one round of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultLine {
    /// Start of the run, which identifies it in a file with several runs. UTC.
    pub run: String,
    /// When this side was measured. UTC.
    pub date: String,
    /// The commit of the checkout, with a + for uncommitted changes.
    pub commit: String,
    /// Digests of the programs; `None` in lines from before it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built: Option<Built>,
    /// The machine.
    pub machine: Machine,
    /// A smoke run, whose figures are not comparable.
    pub quick: bool,
    /// Name of the cell.
    pub cell: String,
    /// Name of the side.
    pub side: String,
    /// The round, from 1 on.
    pub round: u32,
    /// The conditions; `None` for the bare loops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
    /// Reasons for which the run does not count: message loss, an error, a rate that was not met. Empty if it counts.
    pub failures: Vec<String>,
    /// Figures by name.
    pub figures: BTreeMap<String, f64>,
    /// Measurements by second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
    /// Latency percentiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curves: Option<crate::latency::Curves>,
}

/// Parts of final failures. Lines up to 2026-11-29 have "held" instead of "met".
const FINAL: [&str; 7] = [
    "messages lost",
    "messages duplicated",
    "messages out of order",
    "rate was not met",
    "no rate was met",
    "rate was not held",
    "no rate was held",
];

impl ResultLine {
    /// Returns whether the failure is final: a message was lost, duplicated or out of order, or a rate was not met.
    ///
    /// Other failures are retried; retrying these until a run passes would hide them.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.failures.iter().any(|failure| FINAL.iter().any(|part| failure.contains(part)))
    }
}

#[cfg(any(test, feature = "testing"))]
impl ResultLine {
    /// Returns a line that counts, of a run "r" with the raw driver at unlimited rate.
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

/// The fields that are equal in all lines of a run.
#[derive(Debug, Clone)]
pub struct Stamped {
    /// When the run began. UTC.
    pub run: String,
    /// The commit of the checkout.
    pub commit: String,
    /// Digests of the programs, if they were read.
    pub built: Option<Built>,
    /// The machine.
    pub machine: Machine,
    /// Whether this is a smoke run.
    pub quick: bool,
}

impl Stamped {
    /// Reads time, commit and machine.
    ///
    /// # Errors
    /// /proc cannot be read.
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

    /// Adds the digests of these programs.
    #[must_use]
    pub fn with(self, programs: &Programs) -> Stamped {
        Stamped { built: Some(Built::now(programs)), ..self }
    }

    /// Returns a line with the current time and without figures.
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

/// Returns the commit of the working directory, with a + for uncommitted changes; "unknown" outside of a checkout.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let out = Command::new("git").args(arguments).stdin(Stdio::null()).output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    // Changed result files do not change the programs.
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!benches/results"]);
    let changed = changed.is_some_and(|text| !text.is_empty());
    if changed { format!("{commit}+") } else { commit }
}

/// Appends a line to a result file.
///
/// # Errors
/// The file cannot be written.
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

/// Common prefix of the failures of runs whose machine was too busy to compare latencies.
pub const BUSY: &str = "the machine was only";

/// Removes the failure of a busy machine from lines with pinned broker and client, which have it up to 2026-11-23.
///
/// A broker that uses all of its own cores does not slow the client: the latency is the broker's.
fn without_busy(mut line: ResultLine) -> ResultLine {
    if line.conditions.as_ref().is_some_and(|stated| stated.pinning != unpinned()) {
        line.failures.retain(|failure| !failure.starts_with(BUSY));
    }
    line
}

/// Recomputes the read rate of readers far behind: lines up to 2026-11-25 average over the window, which includes the time after they
/// caught up.
fn with_reading_rate(mut line: ResultLine) -> ResultLine {
    let Some(stated) = line.conditions.as_ref().filter(|stated| stated.backlog > 0) else { return line };
    let bytes = (stated.backlog * u64::from(stated.message_bytes)) as f64;
    if let Some(drained_s) = line.figures.get("drained_s").copied() {
        line.figures.insert("cold_read_bytes_per_s".to_owned(), bytes / drained_s);
    }
    line
}

/// Texts of [`Conditions::durability`] in lines up to 2026-11-29, and the current ones.
const DURABILITY_TEXTS: [(&str, &str); 3] = [
    ("a waiting consumer has it before", "waiting consumers receive it earlier"),
    ("consumers have it after", "consumers receive it after that"),
    ("never: nothing is confirmed", "no confirms"),
];

/// Replaces texts of conditions in older lines by the current ones.
fn with_current_texts(mut line: ResultLine) -> ResultLine {
    if let Some(stated) = &mut line.conditions {
        for (old, new) in DURABILITY_TEXTS {
            stated.durability = stated.durability.replace(old, new);
        }
    }
    line
}

/// Reads a result file.
///
/// # Errors
/// The file cannot be read, or a line is invalid; the error has its number.
pub fn read(file: &Path) -> Result<Vec<ResultLine>> {
    let text = std::fs::read_to_string(file).context(|| format!("cannot read {}", file.display()))?;
    let parse = |(number, line): (usize, &str)| {
        let line = serde_json::from_str(line).map(without_busy).map(with_reading_rate).map(with_current_texts);
        line.map_err(|e| BenchError::new(format!("{} line {}: {e}", file.display(), number + 1)))
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: all readers that caught up within their window had the same reported rate.
    #[test]
    fn the_read_rate_is_measured_until_the_reader_has_caught_up() {
        let mut line =
            ResultLine::example("A6/drain/x", "s", 1, &[("drained_s", 4.0), ("cold_read_bytes_per_s", 266e6)]);
        line.conditions.as_mut().unwrap().backlog = 2_000_000;
        assert_eq!(with_reading_rate(line).figures.get("cold_read_bytes_per_s"), Some(&512e6));
    }

    #[test]
    fn texts_of_older_lines_are_replaced() {
        let mut line = ResultLine::example("A4/x", "s", 1, &[]);
        line.conditions.as_mut().unwrap().durability = "flushed; a waiting consumer has it before".to_owned();
        let durability = with_current_texts(line).conditions.unwrap().durability;
        assert_eq!(durability, "flushed; waiting consumers receive it earlier");
    }

    /// Regression test: the failure of a ladder names the rate of a loss; such a side was retried until nothing was lost.
    #[test]
    fn a_loss_is_final_with_and_without_a_rate() {
        let is_final = |failure: &str| {
            let mut line = ResultLine::example("A1/x", "s", 1, &[]);
            line.failures.push(failure.to_owned());
            line.is_final()
        };
        for failure in [
            "3 messages lost",
            "3 messages lost at 25000 a second",
            "the rate was not held: 98.0 % acknowledged",
            "no rate was met",
        ] {
            assert!(is_final(failure), "{failure}");
        }
        assert!(!is_final("the broker was not idle after 90 s"));
    }

    /// Regression test: the latencies of Kafka and RabbitMQ were not compared in most rows, because their brokers used all of their own core.
    #[test]
    fn a_pinned_broker_that_uses_all_of_its_cores_is_compared() {
        let busy = |pinning: &str| {
            let mut line = ResultLine::example("latency/x/client=raw", "theirs", 1, &[]);
            line.failures = vec![format!("{BUSY} 24 % idle: no latency is compared"), "2 messages lost".to_owned()];
            line.conditions.as_mut().unwrap().pinning = pinning.to_owned();
            without_busy(line).failures.len()
        };
        assert_eq!((busy("broker core 0, client core 1"), busy(&unpinned())), (1, 2));
    }
}
