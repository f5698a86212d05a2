//! Apache Pulsar standalone from its Maven packages: broker, bookie and metadata store in one process.
//!
//! The later versions of 4.0 are incomplete on Maven Central: 4.0.7 is the last whose broker resolves.

use super::{Setting, jars, java, properties, put};
use crate::error::Result;
use std::path::Path;
use std::process::Command;

/// The version to compare with.
pub const VERSION: &str = "4.0.7";
/// The build date of that version, from its jars.
pub const RELEASED: &str = "2025-09-23";
/// Sources of the tuned settings.
pub const SOURCES: [&str; 2] = [
    "github.com/openmessaging/benchmark, driver-pulsar/deploy/templates/bookkeeper.conf: Pulsar's settings in the published comparisons",
    "github.com/apache/pulsar, comments in conf/broker.conf",
];
const STANDALONE: &str = "as in the distribution's conf/standalone.conf";
/// Maven's project file.
const POM: &str = include_str!("../../peers/pulsar.xml");
/// A JVM option of `bin/pulsar` that is omitted here.
const LEFT_OUT: &str = "-XX:+PerfDisableSharedMem";
/// The JVM options of `bin/pulsar` and `conf/pulsar_env.sh`, except memory and [`LEFT_OUT`].
const JVM: [&str; 12] = [
    "-XX:+UseZGC",
    "-XX:+AlwaysPreTouch",
    "-Dpulsar.allocator.exit_on_oom=true",
    "-Dio.netty.recycler.maxCapacityPerThread=4096",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-opens=java.base/sun.net=ALL-UNNAMED",
    "--add-opens=java.base/java.util.zip=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.platform=ALL-UNNAMED",
    "--add-opens=java.management/sun.management=ALL-UNNAMED",
    "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
];
/// Warnings to standard output.
const LOG4J: &str = r#"<Configuration status="WARN">
  <Appenders><Console name="out"><PatternLayout pattern="%d %p %c{1} - %m%n"/></Console></Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"#;

/// Fetches Pulsar's jars into the directory `to`, unless they exist.
///
/// # Errors
/// Maven is missing or cannot fetch them.
pub fn install(to: &Path) -> Result<()> {
    jars(POM, to, &format!("pulsar-broker-{VERSION}.jar"))
}

/// A profile of Pulsar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The defaults, with the journal flushed.
    Default,
    /// The defaults, with the journal not flushed.
    Nosync,
    /// The settings of Pulsar's developers for benchmarks, with the journal flushed.
    Tuned,
}

/// Returns the options for heap and direct memory.
#[must_use]
pub fn memory(profile: Profile) -> [&'static str; 3] {
    match profile {
        Profile::Default | Profile::Nosync => ["-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g"],
        Profile::Tuned => ["-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=6g"],
    }
}

/// Returns the omitted JVM option of `bin/pulsar`, with the reason.
#[must_use]
pub fn left_out() -> Setting {
    let why =
        "the option disables the JVM's counter file, from which garbage collections are read, as for the other peers";
    Setting::new(LEFT_OUT, "omitted", why)
}

/// Returns the settings that differ from the defaults of its code, except ports and directories.
#[must_use]
pub fn settings(profile: Profile) -> Vec<Setting> {
    let sync = if profile == Profile::Nosync { "false" } else { "true" };
    let one = "one bookie; as in conf/standalone.conf";
    let mut all = vec![
        Setting::new(
            "journalSyncData",
            sync,
            "the setting that this profile varies; false in conf/standalone.conf, true by default in a bookie",
        ),
        Setting::new("managedLedgerDefaultEnsembleSize", "1", one),
        Setting::new("managedLedgerDefaultWriteQuorum", "1", one),
        Setting::new("managedLedgerDefaultAckQuorum", "1", one),
        Setting::new("ledgerStorageClass", "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage", STANDALONE),
        Setting::new("loadManagerClassName", "org.apache.pulsar.broker.loadbalance.NoopLoadManager", STANDALONE),
        Setting::new("loadBalancerEnabled", "false", STANDALONE),
        Setting::new("flushInterval", "60000", STANDALONE),
        Setting::new("gcWaitTime", "300000", STANDALONE),
        Setting::new("journalMaxGroupWaitMSec", "1", STANDALONE),
        Setting::new("diskUsageThreshold", "0.99", STANDALONE),
        Setting::new("diskUsageWarnThreshold", "0.99", STANDALONE),
        Setting::new("maxConcurrentTopicLoadRequest", "5000", STANDALONE),
        Setting::new("dbStorage_readAheadCacheBatchSize", "1000", STANDALONE),
        Setting::new(
            "dbStorage_rocksDB_writeBufferSizeMB",
            if profile == Profile::Tuned { "64" } else { "4" },
            STANDALONE,
        ),
        Setting::new("dbStorage_rocksDB_sstSizeInMB", if profile == Profile::Tuned { "64" } else { "4" }, STANDALONE),
        Setting::new(
            "dbStorage_rocksDB_blockSize",
            if profile == Profile::Tuned { "65536" } else { "4096" },
            STANDALONE,
        ),
        Setting::new(
            "brokerDeleteInactiveTopicsEnabled",
            "false",
            "a topic must not be deleted between two phases of a run",
        ),
        Setting::new("backlogQuotaDefaultLimitGB", "-1", "some runs measure a backlog"),
    ];
    if profile == Profile::Tuned {
        for setting in &mut all {
            if setting.name.starts_with("dbStorage_rocksDB") {
                setting.why = SOURCES[0];
            }
        }
        let tuned = [
            ("dbStorage_writeCacheMaxSizeMb", "1024"),
            ("dbStorage_readAheadCacheMaxSizeMb", "1024"),
            ("dbStorage_rocksDB_blockCacheSize", "1073741824"),
            ("journalWriteBufferSizeKB", "256"),
            ("journalBufferedWritesThreshold", "524288"),
            ("journalAdaptiveGroupWrites", "true"),
            ("numJournalCallbackThreads", "8"),
            ("numAddWorkerThreads", "8"),
            ("numReadWorkerThreads", "8"),
            ("readBufferSizeBytes", "4096"),
            ("writeBufferSizeBytes", "524288"),
        ];
        all.extend(tuned.map(|(name, value)| Setting::new(name, value, SOURCES[0])));
        all.push(Setting::new("managedLedgerNewEntriesCheckDelayInMillis", "0", SOURCES[1]));
    }
    all
}

/// A Pulsar to start.
#[derive(Debug)]
pub struct Pulsar<'a> {
    /// The directory of its jars.
    pub jars: &'a Path,
    /// The directory of this run.
    pub place: &'a Path,
    /// The profile.
    pub profile: Profile,
}

impl Pulsar<'_> {
    /// Writes its settings, and returns the command that runs it. The bookie chooses a loopback port and keeps it across restarts.
    ///
    /// # Errors
    /// The settings cannot be written.
    pub fn command(&self, port: u16, http: u16) -> Result<Command> {
        let file = put(self.place, "standalone.conf", &self.properties(port, http))?;
        let log = put(self.place, "log4j2.xml", LOG4J)?;
        let log = format!("-Dlog4j2.configurationFile={}", log.display());
        let options: Vec<&str> =
            memory(self.profile).into_iter().chain(JVM).chain(std::iter::once(log.as_str())).collect();
        let mut command = java(self.jars, &options, "org.apache.pulsar.PulsarStandaloneStarter");
        command.arg("--config").arg(file).args(["--no-functions-worker", "--no-stream-storage"]);
        command.arg("--metadata-dir").arg(self.place.join("data/metadata"));
        command.arg("--bookkeeper-dir").arg(self.place.join("data/bookkeeper")).current_dir(self.place);
        Ok(command)
    }

    fn properties(&self, port: u16, http: u16) -> String {
        let lines = [
            format!("brokerServicePort={port}"),
            format!("webServicePort={http}"),
            "bindAddress=127.0.0.1".to_owned(),
            "advertisedAddress=127.0.0.1".to_owned(),
            "clusterName=standalone".to_owned(),
            "listeningInterface=lo".to_owned(),
            "allowLoopback=true".to_owned(),
        ];
        properties(&lines, &settings(self.profile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_of_pulsar_flush_or_do_not() {
        let place = Path::new("somewhere");
        let of = |profile| Pulsar { jars: place, place, profile }.properties(1, 2);
        let (default, nosync) = (of(Profile::Default), of(Profile::Nosync));
        assert_eq!(default.replace("journalSyncData=true", "journalSyncData=false"), nosync);
        assert!(default.contains("bindAddress=127.0.0.1\n") && default.contains("listeningInterface=lo\n"));
        let tuned = of(Profile::Tuned);
        assert!(tuned.contains("journalSyncData=true\n") && tuned.contains("numAddWorkerThreads=8\n"), "{tuned}");
        let names: Vec<&str> = tuned.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        assert!(
            names.iter().all(|name| names.iter().filter(|other| other == &name).count() == 1),
            "set once: {names:?}"
        );
    }

    /// Regression test: no collections were reported for Pulsar: its JVM was configured without the counters' file.
    #[test]
    fn its_collections_can_be_read() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-pulsar-{}", std::process::id()));
        let folder = crate::process::Folder::create(&place).expect("a folder");
        let pulsar = Pulsar { jars: folder.path(), place: folder.path(), profile: Profile::Default };
        let command = pulsar.command(1, 2).expect("a command");
        assert!(command.get_args().any(|option| option == "-XX:+UseZGC"));
        assert!(command.get_args().all(|option| option != LEFT_OUT), "{command:?}");
    }

    #[test]
    fn the_pom_has_the_reported_version() {
        assert_eq!(POM.matches(&format!("<version>{VERSION}</version>")).count(), 1);
    }
}
