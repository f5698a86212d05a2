//! The vendors' tools: running them and parsing their output.

use crate::error::{BenchError, Result};
use crate::peers::java;
use crate::perf::rate;
use crate::process::{Interrupt, Process};
use crate::target::Programs;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The version of `RabbitMQ`'s `PerfTest`.
pub const PERF_TEST_VERSION: &str = "2.22.1";
/// Maven's project file.
pub const PERF_TEST_POM: &str = include_str!("../../peers/perf-test.xml");
/// The heap that Kafka's scripts give both tools.
const TOOL_HEAP: [&str; 1] = ["-Xmx512M"];
/// The topic.
const TOPIC: &str = "first";
/// Timeout of a tool beyond its set time.
const PATIENCE: Duration = Duration::from_secs(900);

/// The environment of a tool.
#[derive(Debug)]
pub struct Tool<'a> {
    /// The installed programs.
    pub programs: &'a Programs,
    /// The directory of its output.
    pub place: &'a Path,
    /// The broker's address.
    pub at: &'a str,
    /// Set when the user interrupts.
    pub interrupt: &'a Interrupt,
}

/// The figures of a tool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figures {
    /// By name; sides are compared by `rate`.
    pub values: BTreeMap<String, f64>,
    /// Messages that passed the broker.
    pub messages: f64,
}

impl Figures {
    fn new(values: &[(&str, f64)], messages: f64) -> Figures {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Figures { values, messages }
    }
}

impl Tool<'_> {
    /// Runs a command to its end; returns its output.
    fn said(&self, name: &str, command: Command) -> Result<String> {
        let log = self.place.join(format!("{name}.log"));
        let before = std::fs::read_to_string(&log).unwrap_or_default().len();
        let mut process = Process::start(name, command, &log, false)?;
        process.wait(PATIENCE, self.interrupt)?;
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        Ok(said.get(before..).unwrap_or_default().to_owned())
    }

    fn kafka(&self, class: &str) -> Command {
        java(&self.programs.kafka, &TOOL_HEAP, &format!("org.apache.kafka.tools.{class}"))
    }
}

fn unread(name: &str, said: &str) -> BenchError {
    let from = said.len().saturating_sub(2_000);
    let tail = said.char_indices().find(|(at, _)| *at >= from).and_then(|(at, _)| said.get(at..)).unwrap_or_default();
    BenchError::new(format!("{name} tells no rate; it said:\n{tail}"))
}

/// `kafka-topics --create`.
///
/// # Errors
/// The tool failed, or the user interrupts.
pub fn create_topic(tool: &Tool<'_>, partitions: u32) -> Result<()> {
    let mut command = tool.kafka("TopicCommand");
    command.args(["--bootstrap-server", tool.at, "--create", "--topic", TOPIC]);
    command.args(["--partitions", &partitions.to_string()]);
    tool.said("kafka-topics", command).map(drop)
}

/// `kafka-producer-perf-test`.
///
/// # Errors
/// The tool failed, or the user interrupts.
pub fn produce(tool: &Tool<'_>, records: u64, payload: &Path) -> Result<Figures> {
    let mut command = tool.kafka("ProducerPerformance");
    command.args(["--bootstrap-server", tool.at, "--topic", TOPIC, "--num-records", &records.to_string()]);
    command.args(["--throughput", "-1", "--payload-file"]).arg(payload);
    command.args(["--command-property", "acks=all", "batch.size=16384"]);
    let said = tool.said("kafka-producer-perf-test", command)?;
    produced(&said, records).ok_or_else(|| unread("kafka-producer-perf-test", &said))
}

/// Parses the tool's last line: "1000000 records sent, 61234.5 records/sec (59.80 MB/sec), 512.34 ms avg latency, ...".
fn produced(said: &str, records: u64) -> Option<Figures> {
    let last = said.lines().rev().find(|line| line.contains(" 99.9th"))?;
    let sent: u64 = last.split(" records sent").next()?.trim().parse().ok()?;
    (sent == records).then(|| Some(Figures::new(&[("rate", rate(last)?)], records as f64)))?
}

/// `kafka-consumer-perf-test`. Its rate is that of fetches, without the time to join its group.
///
/// # Errors
/// The tool failed or read less, or the user interrupts.
pub fn consume(tool: &Tool<'_>, records: u64) -> Result<Figures> {
    let mut command = tool.kafka("ConsumerPerformance");
    command.args(["--bootstrap-server", tool.at, "--topic", TOPIC, "--num-records", &records.to_string()]);
    let said = tool.said("kafka-consumer-perf-test", command)?;
    consumed(&said, records).ok_or_else(|| unread("kafka-consumer-perf-test", &said))
}

/// Parses the values under the tool's header: "start.time, end.time, data.consumed.in.MB, ..., fetch.nMsg.sec".
fn consumed(said: &str, records: u64) -> Option<Figures> {
    let mut lines = said.lines().skip_while(|line| !line.starts_with("start.time"));
    let header: Vec<&str> = lines.next()?.split(", ").map(str::trim).collect();
    let values: Vec<&str> = lines.find(|line| line.split(", ").count() == header.len())?.split(", ").collect();
    let value = |name: &str| -> Option<f64> {
        values.get(header.iter().position(|other| *other == name)?)?.trim().parse().ok()
    };
    let read = value("data.consumed.in.nMsg")?;
    let figures = [("rate", value("fetch.nMsg.sec")?), ("whole_rate", value("nMsg.sec")?)];
    (read >= records as f64).then(|| Figures::new(&figures, read))
}

/// `PerfTest` for this many seconds.
///
/// # Errors
/// The tool failed, or the user interrupts.
pub fn perf_test(tool: &Tool<'_>, seconds: u64, arguments: &[&str]) -> Result<Figures> {
    let jars = tool.programs.peers.join("perf-test");
    let mut command = java(&jars, &[], "com.rabbitmq.perf.PerfTest");
    command.args(["-h", &format!("amqp://guest:guest@{}", tool.at), "-z", &seconds.to_string()]).args(arguments);
    let said = tool.said("PerfTest", command)?;
    tested(&said, seconds).ok_or_else(|| unread("PerfTest", &said))
}

/// Parses "sending rate avg: 50437 msg/s", "receiving rate avg: 38172 msg/s", "consumer latency min/median/75th/95th/99th 6/7/8/9/10 µs".
fn tested(said: &str, seconds: u64) -> Option<Figures> {
    let average = |name: &str| -> Option<f64> {
        let line = said.lines().rev().find_map(|line| line.split_once(name))?.1;
        line.trim_start().split(' ').next()?.parse().ok()
    };
    let received = average("receiving rate avg:")?;
    let mut values = vec![("rate", received), ("sent_rate", average("sending rate avg:")?)];
    let latency = said.lines().rev().find_map(|line| line.split_once(", consumer latency min/median/75th/95th/99th "));
    let latency: Option<Vec<f64>> = latency.and_then(|(_, list)| {
        let (list, unit) = list.split_once(' ')?;
        let us = if unit.trim() == "ms" { 1e3 } else { 1.0 };
        list.split('/').map(|one| Some(one.parse::<f64>().ok()? * us / 1e3)).collect()
    });
    if let Some([_, median, _, _, p99]) = latency.as_deref() {
        values.extend([("latency_median_ms", *median), ("latency_p99_ms", *p99)]);
    }
    Some(Figures::new(&values, received * seconds as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_producer_says_is_read_when_it_has_sent_all() {
        let said = "1 records sent, 0.8 records/sec (0.00 MB/sec), 5.0 ms avg latency, 6.0 ms max latency.\n\
                    1000 records sent, 61234.567890 records/sec (59.80 MB/sec), 512.34 ms avg latency, 901.00 ms max latency, \
                    500 ms 50th, 800 ms 95th, 850 ms 99th, 900 ms 99.9th.\n";
        let figures = produced(said, 1_000).expect("all are sent");
        assert_eq!((figures.values["rate"], figures.messages), (61_234.567_89, 1_000.0));
        assert_eq!((produced(said, 1_001), produced("org.apache.kafka.common.KafkaException", 1)), (None, None));
    }

    #[test]
    fn the_consumer_is_read_without_the_time_in_which_it_joins() {
        let said = "WARN something\n\
                    start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, \
                    fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n\
                    2026-11-28 20:00:00:000, 2026-11-28 20:00:05:000, 976.5625, 195.3, 1000000, 200000.0, 3500, 1500, 651.0, 666666.6667\n";
        let figures = consumed(said, 1_000_000).expect("all are read");
        assert_eq!((figures.values["rate"], figures.values["whole_rate"]), (666_666.666_7, 200_000.0));
        assert_eq!(consumed(said, 1_000_001), None, "it has read less");
    }

    #[test]
    fn perf_test_tells_rates_and_latencies() {
        let said = "id: test-1, time 1.0 s, sent: 9 msg/s, received: 8 msg/s, min/median/75th/95th/99th consumer latency: 1/2/3/4/5 µs\n\
                    id: test-1, sending rate avg: 50437 msg/s\nid: test-1, receiving rate avg: 38172 msg/s\n\
                    id: test-1, consumer latency min/median/75th/95th/99th 60/1669/2445/2951/3068 µs\n";
        let figures = tested(said, 10).expect("rates");
        let value = |name: &str| figures.values[name];
        assert_eq!((value("sent_rate"), value("rate"), figures.messages), (50_437.0, 38_172.0, 381_720.0));
        assert_eq!((value("latency_median_ms"), value("latency_p99_ms")), (1.669, 3.068));
        let in_ms = said.replace(" µs\n", " ms\n");
        assert_eq!(tested(&in_ms, 10).expect("rates").values["latency_p99_ms"], 3_068.0);
        assert_eq!(tested("Main thread caught exception", 10), None);
    }

    #[test]
    fn the_pom_names_the_version() {
        assert!(PERF_TEST_POM.contains(&format!("<version>{PERF_TEST_VERSION}</version>")));
    }
}
