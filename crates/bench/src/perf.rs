//! kafka-producer-perf-test, Kafka's own throughput tool, as a client.
//!
//! Its payloads come from a file: generating random ones takes it longer than sending them.

use crate::busy::{Threads, busiest};
use crate::contract::Spec;
use crate::error::{BenchError, Context, Result};
use crate::peers::java;
use crate::process::{Interrupt, Process};
use crate::sample::Sampler;
use crate::stamp;
use crate::wire::Wire;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of different payloads in the file.
const PAYLOADS: usize = 2_000;
/// Characters of payloads: 64, so that a byte carries six bits.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Timeout of a run.
const PATIENCE: Duration = Duration::from_secs(900);

/// The tool's results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Perf {
    /// Messages sent.
    pub records: u64,
    /// Number of messages added to the topic.
    pub arrived: u64,
    /// Messages per second.
    pub records_per_s: f64,
    /// Share of a core used by its busiest thread; `None` if the run was too short.
    pub busy: Option<f64>,
}

/// Writes payloads of this size, one per line.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn payloads(path: &Path, bytes: usize) -> Result<()> {
    let mut text = vec![0; (bytes + 1) * PAYLOADS];
    stamp::fill(&mut text, stamp::seed());
    for (at, byte) in text.iter_mut().enumerate() {
        let letter = LETTERS.get(usize::from(*byte & 63)).copied().unwrap_or(b'A');
        *byte = if at % (bytes + 1) == bytes { b'\n' } else { letter };
    }
    std::fs::write(path, text).context(|| format!("cannot write {}", path.display()))
}

/// Parses the rate in the tool's last line: "... records sent, 12345.6 records/sec (12.06 MB/sec), ...".
pub(crate) fn rate(text: &str) -> Option<f64> {
    let before = text.rsplit_once(" records/sec")?.0;
    before.rsplit([' ', ',']).next()?.parse().ok()
}

/// Produces `spec.messages` messages at an unlimited rate. The tool's own batching defaults apply if `spec.batch_bytes` is
/// 16,384 and `spec.linger_us` 5,000, which are Kafka's.
///
/// # Errors
/// The tool failed, or the user interrupts.
pub fn produce(jars: &Path, spec: &Spec, place: &Path, interrupt: &Interrupt) -> Result<Perf> {
    let payload: PathBuf = place.join(format!("payload-{}", spec.message_bytes));
    if !payload.exists() {
        payloads(&payload, spec.message_bytes as usize)?;
    }
    let count = || -> Result<i64> {
        let partitions: Vec<u32> = (0..spec.partitions).collect();
        Ok(Wire::connect(&spec.bootstrap)?.offsets(&spec.topic, &partitions, true)?.iter().sum())
    };
    let before = count()?;
    let mut command = java(jars, &["-Xms512m", "-Xmx512m"], "org.apache.kafka.tools.ProducerPerformance");
    command.args(["--topic", &spec.topic, "--num-records", &spec.messages.to_string(), "--throughput", "-1"]);
    command.arg("--payload-file").arg(&payload).arg("--producer-props").arg("acks=all");
    command.arg(format!("bootstrap.servers={}", spec.bootstrap)).arg(format!("batch.size={}", spec.batch_bytes));
    command.arg(format!("linger.ms={}", spec.linger_us / 1_000));
    let log = place.join("perf-test.log");
    let said_before = std::fs::read_to_string(&log).unwrap_or_default().len();
    let mut tool = Process::start("kafka-producer-perf-test", command, &log, false)?;
    let pid = tool.pid();
    let sampler = Sampler::start(move || Threads::take(pid))?;
    let ended = tool.wait(PATIENCE, interrupt);
    let busy = busiest(&sampler.finish());
    ended?;
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let records_per_s = rate(said.get(said_before..).unwrap_or_default());
    let records_per_s = records_per_s.ok_or_else(|| tool.explain("it tells no rate"))?;
    let arrived = u64::try_from(count()? - before).map_err(|_| BenchError::new("the topic has become shorter"))?;
    Ok(Perf { records: spec.messages, arrived, records_per_s, busy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_line() {
        let text = "499 records sent, 99.8 records/sec (0.10 MB/sec), 3.1 ms avg latency, 220.0 ms max latency.\n\
                    1000 records sent, 12345.678901 records/sec (12.06 MB/sec), 1.00 ms avg latency, 5.00 ms max latency, 1 ms 50th\n";
        assert_eq!(rate(text), Some(12_345.678_901));
        assert_eq!(rate("java.lang.Exception"), None);
    }
}
