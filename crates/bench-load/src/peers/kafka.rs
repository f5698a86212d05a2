//! Apache Kafka from its Maven packages: one node that is broker and controller.

use super::{Setting, jars, java, properties, put, succeed};
use crate::error::Result;
use std::path::Path;
use std::process::Command;

/// The version that is compared with, and when it was built, by its jars.
pub const VERSION: &str = "4.4.0";
/// When that version was built.
pub const RELEASED: &str = "2026-10-06";
/// What `kafka-server-start.sh` and `kafka-run-class.sh` of that version give the JVM.
pub const JVM_OPTIONS: [&str; 9] = [
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
];
/// Kafka's documentation, "Operations: Java": what `LinkedIn` runs its busiest clusters with, on machines of 24 GB.
const JVM_TUNED: [&str; 11] = [
    "-Xms6g",
    "-Xmx6g",
    "-server",
    "-XX:MetaspaceSize=96m",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:G1HeapRegionSize=16M",
    "-XX:MinMetaspaceFreeRatio=50",
    "-XX:MaxMetaspaceFreeRatio=80",
    "-XX:+ExplicitGCInvokesConcurrent",
];
/// Where the tuned settings come from.
pub const SOURCES: [&str; 2] = [
    "kafka.apache.org/documentation, Operations: Java (heap and collector), Hardware and OS (flush left to the system, socket buffers)",
    "github.com/openmessaging/benchmark, driver-kafka/deploy/templates/server.properties: Confluent's settings for its published comparison",
];
/// What Maven is asked for.
const POM: &str = include_str!("../../peers/kafka.xml");

/// Fetches Kafka's jars into the folder `to`, unless they are there.
///
/// # Errors
/// When Maven is missing or finds them not.
pub fn install(to: &Path) -> Result<()> {
    jars(POM, to, &format!("kafka_2.13-{VERSION}.jar"))
}

/// How a Kafka is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// As it comes.
    Default,
    /// Every message is flushed before it is acknowledged.
    Fsync,
    /// By the documentation's advice for production.
    Tuned,
}

/// A Kafka that is to be started.
#[derive(Debug)]
pub struct Kafka<'a> {
    /// The folder with its jars.
    pub jars: &'a Path,
    /// The folder of this run.
    pub place: &'a Path,
    /// How it is set.
    pub profile: Profile,
}

/// The options of its JVM.
#[must_use]
pub fn jvm(profile: Profile) -> &'static [&'static str] {
    match profile {
        Profile::Default | Profile::Fsync => &JVM_OPTIONS,
        Profile::Tuned => &JVM_TUNED,
    }
}

/// The settings that differ from Kafka's defaults, but for ports and folders.
#[must_use]
pub fn settings(profile: Profile) -> Vec<Setting> {
    let one = "one node has one replica of everything";
    let mut all = vec![
        Setting::new("offsets.topic.replication.factor", "1", one),
        Setting::new("transaction.state.log.replication.factor", "1", one),
        Setting::new("transaction.state.log.min.isr", "1", one),
        Setting::new("group.initial.rebalance.delay.ms", "0", "so that runs begin at once"),
    ];
    match profile {
        Profile::Default => {}
        Profile::Fsync => all.push(Setting::new("log.flush.interval.messages", "1", "a flush for every message")),
        Profile::Tuned => all.extend([
            Setting::new("num.network.threads", "8", SOURCES[1]),
            Setting::new("num.io.threads", "8", "the default, which the documentation keeps for up to eight disks"),
            Setting::new("socket.send.buffer.bytes", "1048576", SOURCES[0]),
            Setting::new("socket.receive.buffer.bytes", "1048576", SOURCES[0]),
            Setting::new("message.max.bytes", "10485760", SOURCES[1]),
            Setting::new("replica.fetch.max.bytes", "10485760", SOURCES[1]),
        ]),
    }
    all
}

impl Kafka<'_> {
    /// Formats its storage, and gives the command that runs it.
    ///
    /// # Errors
    /// When there is no Java, or the storage cannot be formatted.
    pub fn command(&self, port: u16, controller: u16) -> Result<Command> {
        let file = put(self.place, "kafka.properties", &self.properties(port, controller))?;
        let run = |command: &mut Command| succeed(command, "Kafka formats its storage with it");
        let tool = || java(self.jars, &["-Xmx256m"], "kafka.tools.StorageTool");
        // A Kafka that is started again finds its storage formatted.
        if !self.place.join("data/meta.properties").exists() {
            let cluster = run(tool().arg("random-uuid"))?;
            run(tool().args(["format", "--standalone", "-t", &cluster, "-c"]).arg(&file))?;
        }
        let mut command = java(self.jars, jvm(self.profile), "kafka.Kafka");
        command.arg(&file);
        Ok(command)
    }

    /// The settings that differ from Kafka's defaults. The rest is as it comes.
    fn properties(&self, port: u16, controller: u16) -> String {
        let lines = [
            "process.roles=broker,controller".to_owned(),
            "node.id=1".to_owned(),
            format!("listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"),
            "controller.listener.names=CONTROLLER".to_owned(),
            format!("controller.quorum.bootstrap.servers=127.0.0.1:{controller}"),
            format!("log.dirs={}", self.place.join("data").display()),
        ];
        properties(&lines, &settings(self.profile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_of_kafka_differ_in_the_flush_only() {
        let place = Path::new("somewhere");
        let of = |profile| Kafka { jars: place, place, profile }.properties(1, 2);
        let (default, fsync) = (of(Profile::Default), of(Profile::Fsync));
        assert_eq!(format!("{default}log.flush.interval.messages=1\n"), fsync);
        assert!(default.contains("listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2\n"), "loopback only");
        let tuned = of(Profile::Tuned);
        assert!(tuned.starts_with(&default) && !tuned.contains("log.flush"), "{tuned}");
    }

    #[test]
    fn the_pom_names_the_version_that_is_told() {
        assert_eq!(POM.matches(&format!("<version>{VERSION}</version>")).count(), 2);
    }
}
