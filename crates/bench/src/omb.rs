//! Workload files of the OpenMessaging Benchmark, unmodified, and results in the format of its result files.
//!
//! ```text
//!   workload.yaml --> Workload --> parameters of a run (topics, groups, rate, backlog ...)
//!                                    |
//!   --omb-result FILE <-- OmbResult <-- its seconds and histograms          figures per topic there are over all topics here
//! ```
//!
//! Meaning of its fields here:
//! - `producersPerTopic` and `consumerPerSubscription` are per topic there; a load's producers and readers use all topics, so they are
//!   multiplied by the number of topics. The readers of a group share all partitions of all topics.
//! - `keyDistributor`: keys are not sent. `NO_KEY` keeps a partition until a batch is full; the others choose the partition of each
//!   message in turn or at random, as hashed keys would. The raw driver supports `NO_KEY` only.
//! - `producerRate: 0` searches for a rate there; here it is unlimited.
//! - A backlog is written at an unlimited rate, then drained while producers continue.

mod result;

pub use result::{Driven, OmbResult};

use crate::contract::{Payloads, Spread, TOPICS_MAX};
use crate::error::{BenchError, Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::path::Path;

/// The maximum size of a workload file and of a payload file. Bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
const PAYLOAD_BYTES_MAX: u64 = 64 << 20;
/// The maximum backlog, in gigabytes of 2^30 bytes.
const BACKLOG_GB_MAX: u64 = 1 << 20;
/// The maximum duration of a phase. Minutes: a week.
const MINUTES_MAX: u64 = 7 * 24 * 60;

/// How messages are distributed over partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
pub enum KeyDistributor {
    /// Messages have no key.
    #[default]
    #[serde(rename = "NO_KEY")]
    None,
    /// Few keys, in turn.
    #[serde(rename = "KEY_ROUND_ROBIN")]
    RoundRobin,
    /// Few keys, at random.
    #[serde(rename = "RANDOM_NANO")]
    Random,
}

impl KeyDistributor {
    /// Returns how a producer chooses the partition of its next message.
    #[must_use]
    pub fn spread(self) -> Spread {
        match self {
            KeyDistributor::None => Spread::Batch,
            KeyDistributor::RoundRobin => Spread::RoundRobin,
            KeyDistributor::Random => Spread::Random,
        }
    }
}

/// A workload, with the names and defaults of the files.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Workload {
    /// Its name; the file's name if missing.
    #[serde(default)]
    pub name: String,
    /// Topics.
    pub topics: u32,
    /// Partitions of each.
    pub partitions_per_topic: u32,
    /// How messages are distributed over partitions.
    #[serde(default)]
    pub key_distributor: KeyDistributor,
    /// Bytes of a message.
    pub message_size: u32,
    /// Whether messages are partly random and partly zero.
    #[serde(default)]
    pub use_randomized_payloads: bool,
    /// The random share; from 0 to 1.
    #[serde(default)]
    pub random_bytes_ratio: f64,
    /// Number of different payloads.
    #[serde(default)]
    pub randomized_payload_pool_size: u32,
    /// The payload's file, if it is not random.
    #[serde(default)]
    pub payload_file: Option<String>,
    /// Groups of each topic.
    pub subscriptions_per_topic: u32,
    /// Producers of each topic.
    pub producers_per_topic: u32,
    /// Readers of each group and topic.
    pub consumer_per_subscription: u32,
    /// Messages per second, over all producers.
    pub producer_rate: u64,
    /// Backlog written before readers start; units of 2^30 bytes.
    #[serde(rename = "consumerBacklogSizeGB", default)]
    pub consumer_backlog_size_gb: u64,
    /// The share that must be read for the backlog to count as drained.
    #[serde(default = "whole")]
    pub backlog_drain_ratio: f64,
    /// Measured time.
    pub test_duration_minutes: u64,
    /// Discarded time before it.
    #[serde(default = "one_minute")]
    pub warmup_duration_minutes: u64,
}

fn whole() -> f64 {
    1.0
}

fn one_minute() -> u64 {
    1
}

/// Reads a file up to a maximum size.
fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let said = || format!("cannot read {}", path.display());
    let bytes = std::fs::metadata(path).context(said)?.len();
    if bytes > bytes_max {
        return Err(BenchError::new(format!("{} has {bytes} bytes; at most {bytes_max} are read", path.display())));
    }
    std::fs::read(path).context(said)
}

impl Workload {
    /// Reads a workload file.
    ///
    /// # Errors
    /// It is missing, or has an unknown, a missing or an invalid key, which is named.
    pub fn read(path: &Path) -> Result<Workload> {
        let said = || format!("the workload {} is no good", path.display());
        let bytes = read_bounded(path, FILE_BYTES_MAX)?;
        let text = String::from_utf8(bytes).context(said)?;
        let mut workload = Workload::parse(&text).context(said)?;
        if workload.name.is_empty() {
            workload.name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        }
        Ok(workload)
    }

    /// Parses a workload.
    ///
    /// # Errors
    /// As [`Workload::read`].
    pub fn parse(text: &str) -> Result<Workload> {
        let workload: Workload = serde_saphyr::from_str(text).map_err(|e| BenchError::new(e.to_string()))?;
        workload.check()?;
        Ok(workload)
    }

    fn check(&self) -> Result<()> {
        let ratio = |value: f64| (0.0..=1.0).contains(&value);
        let wrong = [
            (self.topics == 0 || self.topics > TOPICS_MAX, format!("topics: from 1 to {TOPICS_MAX}")),
            (self.partitions_per_topic == 0, "partitionsPerTopic: at least 1".to_owned()),
            (self.message_size == 0, "messageSize: at least 1".to_owned()),
            (!ratio(self.random_bytes_ratio), "randomBytesRatio: from 0 to 1".to_owned()),
            (!ratio(self.backlog_drain_ratio), "backlogDrainRatio: from 0 to 1".to_owned()),
            (
                self.use_randomized_payloads && self.randomized_payload_pool_size == 0,
                "randomizedPayloadPoolSize: at least 1 with useRandomizedPayloads".to_owned(),
            ),
            (
                self.subscriptions_per_topic > 0 && self.consumer_per_subscription == 0,
                "consumerPerSubscription: at least 1 with subscriptions".to_owned(),
            ),
            (
                self.subscriptions_per_topic == 0 && self.producers_per_topic == 0,
                "producersPerTopic, subscriptionsPerTopic: there is nothing to do".to_owned(),
            ),
            (
                self.consumer_backlog_size_gb > 0 && self.producer_rate == 0,
                "producerRate: a backlog needs a rate at which producers go on".to_owned(),
            ),
            (
                self.consumer_backlog_size_gb > 0 && self.subscriptions_per_topic == 0,
                "subscriptionsPerTopic: no reader would drain the backlog".to_owned(),
            ),
            (
                self.consumer_backlog_size_gb > BACKLOG_GB_MAX,
                format!("consumerBacklogSizeGB: at most {BACKLOG_GB_MAX}"),
            ),
            (self.test_duration_minutes == 0, "testDurationMinutes: at least 1".to_owned()),
            (
                self.test_duration_minutes > MINUTES_MAX || self.warmup_duration_minutes > MINUTES_MAX,
                format!("testDurationMinutes, warmupDurationMinutes: at most {MINUTES_MAX}"),
            ),
            (
                self.topics.checked_mul(self.partitions_per_topic).is_none()
                    || self.topics.checked_mul(self.producers_per_topic).is_none()
                    || self.topics.checked_mul(self.consumer_per_subscription).is_none(),
                "topics: too many partitions, producers or consumers together".to_owned(),
            ),
        ];
        match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, what)) => Err(BenchError::new(what)),
            None => Ok(()),
        }
    }

    /// Producers of all topics.
    #[must_use]
    pub fn producers(&self) -> u32 {
        self.topics * self.producers_per_topic
    }

    /// Readers of each group, over all topics.
    #[must_use]
    pub fn consumers(&self) -> u32 {
        self.topics * self.consumer_per_subscription
    }

    /// Number of messages of the backlog, over all groups' shares of its size.
    #[must_use]
    pub fn backlog_messages(&self) -> u64 {
        let bytes = self.consumer_backlog_size_gb << 30;
        bytes / u64::from(self.message_size.max(1)) / u64::from(self.subscriptions_per_topic.max(1))
    }

    /// Returns the payloads after the stamps; `place` is the directory that a payload file's name is relative to.
    ///
    /// # Errors
    /// The payload file is missing or its length differs from that of messages.
    pub fn payloads(&self, place: &Path) -> Result<Option<Payloads>> {
        if self.use_randomized_payloads {
            // Thousandths are precise enough.
            let random_per_mille = (self.random_bytes_ratio * 1_000.0).round() as u32;
            return Ok(Some(Payloads { random_per_mille, pool: self.randomized_payload_pool_size, message: None }));
        }
        let Some(file) = &self.payload_file else { return Ok(None) };
        let path = place.join(file);
        let message = read_bounded(&path, PAYLOAD_BYTES_MAX)?;
        if message.len() as u64 != u64::from(self.message_size) {
            return Err(BenchError::new(format!(
                "payloadFile: {} has {} bytes and messageSize is {}",
                path.display(),
                message.len(),
                self.message_size
            )));
        }
        Ok(Some(Payloads { random_per_mille: 1_000, pool: 1, message: Some(STANDARD.encode(message)) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Folder;

    const PLAIN: &str = "name: plain\ntopics: 1\npartitionsPerTopic: 100\nmessageSize: 1024\nsubscriptionsPerTopic: 1\n\
                         producersPerTopic: 4\nconsumerPerSubscription: 4\nproducerRate: 200000\ntestDurationMinutes: 15\n";

    fn with(lines: &str) -> Result<Workload> {
        // Duplicate keys are replaced.
        let key = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
        let rest: Vec<&str> = PLAIN.lines().filter(|old| lines.lines().all(|line| key(line) != key(old))).collect();
        Workload::parse(&format!("{}\n{lines}\n", rest.join("\n")))
    }

    #[test]
    fn a_file_is_read_as_it_is() {
        let plain = Workload::parse(PLAIN).expect("a workload");
        assert_eq!((plain.name.as_str(), plain.topics, plain.partitions_per_topic), ("plain", 1, 100));
        assert_eq!((plain.producers(), plain.consumers(), plain.producer_rate), (4, 4, 200_000));
        assert_eq!((plain.test_duration_minutes, plain.warmup_duration_minutes), (15, 1), "a minute unless it says");
        assert_eq!((plain.backlog_messages(), plain.backlog_drain_ratio), (0, 1.0));
        assert_eq!(plain.payloads(Path::new(".")).expect("none"), None);
        let comments = format!("# a comment\n\n---\n{PLAIN}\n# the end\n");
        assert_eq!(Workload::parse(&comments).expect("a workload"), plain);
    }

    #[test]
    fn each_field_is_understood() {
        let stated = |line: &str| with(line).expect(line);
        assert_eq!(stated("name: \"a b\"").name, "a b");
        assert_eq!(stated("topics: 100").producers(), 400);
        assert_eq!(stated("partitionsPerTopic: 7").partitions_per_topic, 7);
        let keys = ["NO_KEY", "KEY_ROUND_ROBIN", "RANDOM_NANO"];
        let spreads = keys.map(|key| stated(&format!("keyDistributor: {key}")).key_distributor.spread());
        assert_eq!(spreads, [Spread::Batch, Spread::RoundRobin, Spread::Random]);
        assert_eq!(stated("keyDistributor: \"NO_KEY\"").key_distributor, KeyDistributor::None);
        assert_eq!(stated("messageSize: 100").message_size, 100);
        let random = stated("useRandomizedPayloads: true\nrandomBytesRatio: 0.5\nrandomizedPayloadPoolSize: 1000");
        let payloads = random.payloads(Path::new(".")).expect("some").expect("some");
        assert_eq!((payloads.random_per_mille, payloads.pool, payloads.message), (500, 1_000, None));
        assert_eq!(
            stated("payloadFile: \"payload/payload-1Kb.data\"").payload_file.as_deref(),
            Some("payload/payload-1Kb.data")
        );
        assert_eq!(stated("subscriptionsPerTopic: 10").subscriptions_per_topic, 10);
        assert_eq!(stated("producersPerTopic: 2").producers(), 2);
        assert_eq!(stated("consumerPerSubscription: 3").consumers(), 3);
        assert_eq!(stated("producerRate: 0").producer_rate, 0);
        let backlog = stated("consumerBacklogSizeGB: 2\nbacklogDrainRatio: 0.9");
        assert_eq!((backlog.backlog_messages(), backlog.backlog_drain_ratio), (2 << 20, 0.9));
        assert_eq!(stated("testDurationMinutes: 5").test_duration_minutes, 5);
        assert_eq!(stated("warmupDurationMinutes: 0").warmup_duration_minutes, 0);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, named) in [
            ("partitionPerTopic: 1", "partitionPerTopic"),
            ("topics: 0", "topics"),
            ("topics: many", "topics"),
            ("keyDistributor: SOME", "SOME"),
            ("messageSize: 0", "messageSize"),
            ("messageSize: -1", "messageSize"),
            ("randomBytesRatio: 1.5", "randomBytesRatio"),
            ("useRandomizedPayloads: true", "randomizedPayloadPoolSize"),
            ("consumerPerSubscription: 0", "consumerPerSubscription"),
            ("backlogDrainRatio: 2", "backlogDrainRatio"),
            ("consumerBacklogSizeGB: 1\nproducerRate: 0", "producerRate"),
            ("testDurationMinutes: 0", "testDurationMinutes"),
            ("warmupDurationMinutes: 1000000", "warmupDurationMinutes"),
        ] {
            let stated = with(line).expect_err(line).to_string();
            assert!(stated.contains(named), "{line}: {stated}");
        }
        let lacking = PLAIN.replace("messageSize: 1024\n", "");
        let stated = Workload::parse(&lacking).expect_err("it lacks one").to_string();
        assert!(stated.contains("messageSize"), "{stated}");
        assert!(Workload::parse("").is_err() && Workload::parse("[1, 2]").is_err());
    }

    #[test]
    fn a_payload_file_is_the_message() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-omb-{}", std::process::id()));
        let folder = Folder::create(&place).expect("a folder");
        std::fs::write(folder.path().join("message"), [7; 100]).expect("a file");
        let stated = with("payloadFile: message\nmessageSize: 100").expect("a workload");
        let payloads = stated.payloads(folder.path()).expect("it is there").expect("some");
        assert_eq!(payloads.message, Some(STANDARD.encode([7; 100])));
        let wrong = with("payloadFile: message").expect("a workload").payloads(folder.path());
        let wrong = wrong.expect_err("another length").to_string();
        assert!(wrong.contains("payloadFile") && wrong.contains("1024"), "{wrong}");
        std::fs::write(folder.path().join("some.yaml"), PLAIN.replace("name: plain\n", "")).expect("a file");
        assert_eq!(Workload::read(&folder.path().join("some.yaml")).expect("a workload").name, "some");
        let none = Workload::read(&folder.path().join("none.yaml")).expect_err("not there").to_string();
        assert!(none.contains("none.yaml"), "{none}");
    }
}
