//! Apache Kafka from its Maven packages: one node as broker and controller.

use super::{Setting, jars, java, properties, put, succeed};
use crate::error::Result;
use std::path::Path;
use std::process::Command;

/// The version to compare with.
pub const VERSION: &str = "4.4.0";
/// The build date of that version, from its jars.
pub const RELEASED: &str = "2026-10-06";
/// The JVM options of `kafka-server-start.sh` and `kafka-run-class.sh` of that version.
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
/// Kafka's documentation, "Operations: Java": the options of `LinkedIn`'s busiest clusters, on machines of 24 GB.
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
/// Sources of the tuned settings.
pub const SOURCES: [&str; 2] = [
    "kafka.apache.org/documentation, Operations: Java (heap and collector), Hardware and OS (flush left to the system, socket buffers)",
    "github.com/openmessaging/benchmark, driver-kafka/deploy/templates/server.properties: Confluent's settings for its published comparison",
];
/// Maven's project file.
const POM: &str = include_str!("../../peers/kafka.xml");

/// Fetches Kafka's jars into the directory `to`, unless they exist.
///
/// # Errors
/// Maven is missing or cannot fetch them.
pub fn install(to: &Path) -> Result<()> {
    jars(POM, to, &format!("kafka_2.13-{VERSION}.jar"))
}

/// A profile of Kafka.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The defaults.
    Default,
    /// Every message is flushed before it is acknowledged.
    Fsync,
    /// The documentation's recommendations for production.
    Tuned,
}

/// A Kafka to start.
#[derive(Debug)]
pub struct Kafka<'a> {
    /// The directory of its jars.
    pub jars: &'a Path,
    /// The directory of this run.
    pub place: &'a Path,
    /// The profile.
    pub profile: Profile,
}

/// Returns the JVM options.
#[must_use]
pub fn jvm(profile: Profile) -> &'static [&'static str] {
    match profile {
        Profile::Default | Profile::Fsync => &JVM_OPTIONS,
        Profile::Tuned => &JVM_TUNED,
    }
}

/// Returns the settings that differ from Kafka's defaults, except ports and directories.
#[must_use]
pub fn settings(profile: Profile) -> Vec<Setting> {
    let one = "one node has one replica of everything";
    let mut all = vec![
        Setting::new("offsets.topic.replication.factor", "1", one),
        Setting::new("transaction.state.log.replication.factor", "1", one),
        Setting::new("transaction.state.log.min.isr", "1", one),
        Setting::new("group.initial.rebalance.delay.ms", "0", "so that runs start without a delay"),
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
    /// Formats its storage, and returns the command that runs it.
    ///
    /// # Errors
    /// There is no Java, or the storage cannot be formatted.
    pub fn command(&self, port: u16, controller: u16) -> Result<Command> {
        let file = put(self.place, "kafka.properties", &self.properties(port, controller))?;
        let run = |command: &mut Command| succeed(command, "needed to format Kafka's storage");
        let tool = || java(self.jars, &["-Xmx256m"], "kafka.tools.StorageTool");
        // The storage is already formatted at a restart.
        if !self.place.join("data/meta.properties").exists() {
            let cluster = run(tool().arg("random-uuid"))?;
            run(tool().args(["format", "--standalone", "-t", &cluster, "-c"]).arg(&file))?;
        }
        let mut command = java(self.jars, jvm(self.profile), "kafka.Kafka");
        command.arg(&file);
        Ok(command)
    }

    /// Returns the properties file; other settings have their defaults.
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
    fn the_pom_has_the_reported_version() {
        assert_eq!(POM.matches(&format!("<version>{VERSION}</version>")).count(), 2);
    }
}
