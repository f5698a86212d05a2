//! Apache RocketMQ from its Maven packages: a name server and one broker without replicas.
//!
//! Broker and name server can be bound to one address except for the replication port; `loopback` binds that too.

use super::{Setting, jars, java, loopback, properties, put};
use crate::error::Result;
use std::path::Path;
use std::process::Command;

/// The version to compare with.
pub const VERSION: &str = "5.5.0";
/// The build date of that version, from its jars.
pub const RELEASED: &str = "2026-04-10";
/// Sources of the tuned settings.
pub const SOURCES: [&str; 2] = [
    "RocketMQ's recommendations for ASYNC_FLUSH, as quoted in operators' broker.conf: transientStorePoolEnable, the spin lock, no transferMsgByHeap",
    "github.com/apache/rocketmq, distribution/bin/runbroker.sh: G1 with regions of 16 MiB, a fixed heap",
];
/// Maven's project file.
const POM: &str = include_str!("../../peers/rocketmq.xml");
/// The JVM options of `runbroker.sh`, except memory and logs.
const JVM: [&str; 11] = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:-UseLargePages",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
];
const NAME_SERVER_JVM: [&str; 3] = ["-server", "-Xms256m", "-Xmx256m"];

/// Fetches `RocketMQ`'s jars into the directory `to`, unless they exist.
///
/// # Errors
/// Maven is missing or cannot fetch them, or there is no C compiler.
pub fn install(to: &Path) -> Result<()> {
    jars(POM, to, &format!("rocketmq-broker-{VERSION}.jar"))?;
    loopback(to).map(drop)
}

/// A profile of `RocketMQ`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The defaults: flushed in the background.
    Default,
    /// Every message is flushed before it is acknowledged.
    Sync,
    /// The recommendations of its documentation; flushed in the background.
    Tuned,
}

/// Returns the options for the broker's heap and direct memory.
#[must_use]
pub fn memory(profile: Profile) -> [&'static str; 4] {
    match profile {
        Profile::Default | Profile::Sync => ["-Xms2g", "-Xmx2g", "-Xmn1g", "-XX:MaxDirectMemorySize=4g"],
        Profile::Tuned => ["-Xms4g", "-Xmx4g", "-Xmn2g", "-XX:MaxDirectMemorySize=6g"],
    }
}

/// Returns the broker's settings that differ from its defaults, except ports and directories.
#[must_use]
pub fn settings(profile: Profile) -> Vec<Setting> {
    let flush = if profile == Profile::Sync { "SYNC_FLUSH" } else { "ASYNC_FLUSH" };
    let mut all = vec![
        Setting::new("flushDiskType", flush, "the setting that this profile varies; ASYNC_FLUSH is the default"),
        Setting::new("autoCreateTopicEnable", "false", "topics are created with their partitions before a run"),
    ];
    if profile == Profile::Tuned {
        all.extend([
            Setting::new("transientStorePoolEnable", "true", SOURCES[0]),
            Setting::new(
                "transientStorePoolSize",
                "3",
                "buffers of 1 GiB; the default of 5 is for machines with more memory",
            ),
            Setting::new("transferMsgByHeap", "false", SOURCES[0]),
            Setting::new("useReentrantLockWhenPutMessage", "false", SOURCES[0]),
            Setting::new("waitTimeMillsInSendQueue", "1000", SOURCES[0]),
        ]);
    }
    all
}

/// Loopback ports.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// The name server's.
    pub names: u16,
    /// The broker's; the one 2 below is used as well.
    pub broker: u16,
    /// For replication, which is not used.
    pub copies: u16,
}

/// A `RocketMQ` to start.
#[derive(Debug)]
pub struct Rocketmq<'a> {
    /// The directory of its jars.
    pub jars: &'a Path,
    /// The directory of this run.
    pub place: &'a Path,
    /// The profile.
    pub profile: Profile,
    /// Its ports.
    pub ports: Ports,
}

impl Rocketmq<'_> {
    fn run(&self, options: &[&str], class: &str) -> Result<Command> {
        // Its logs are written below the home directory.
        let home = format!("-Duser.home={}", self.place.display());
        let options: Vec<&str> = options.iter().copied().chain(std::iter::once(home.as_str())).collect();
        let mut command = java(self.jars, &options, class);
        command.env("ROCKETMQ_HOME", self.place).env("LD_PRELOAD", loopback(self.jars)?).current_dir(self.place);
        Ok(command)
    }

    /// Returns the command that runs the name server.
    ///
    /// # Errors
    /// Its settings cannot be written.
    pub fn name_server(&self) -> Result<Command> {
        let lines = [
            format!("listenPort={}", self.ports.names),
            "bindAddress=127.0.0.1".to_owned(),
            format!("kvConfigPath={}", self.place.join("names/kv.json").display()),
            format!("configStorePath={}", self.place.join("names/stored.properties").display()),
        ];
        let file = put(self.place, "names.conf", &properties(&lines, &[]))?;
        let mut command = self.run(&NAME_SERVER_JVM, "org.apache.rocketmq.namesrv.NamesrvStartup")?;
        command.arg("-c").arg(file);
        Ok(command)
    }

    /// Returns the command that runs the broker.
    ///
    /// # Errors
    /// Its settings cannot be written.
    pub fn broker(&self) -> Result<Command> {
        let file = put(self.place, "broker.conf", &self.properties())?;
        let options: Vec<&str> = memory(self.profile).into_iter().chain(JVM).collect();
        let mut command = self.run(&options, "org.apache.rocketmq.broker.BrokerStartup")?;
        command.args(["-n", &format!("127.0.0.1:{}", self.ports.names), "-c"]).arg(file);
        Ok(command)
    }

    fn properties(&self) -> String {
        let data = self.place.join("data");
        let lines = [
            "brokerClusterName=bench".to_owned(),
            "brokerName=bench".to_owned(),
            "brokerId=0".to_owned(),
            "brokerIP1=127.0.0.1".to_owned(),
            "brokerIP2=127.0.0.1".to_owned(),
            "bindAddress=127.0.0.1".to_owned(),
            format!("listenPort={}", self.ports.broker),
            format!("haListenPort={}", self.ports.copies),
            format!("storePathRootDir={}", data.display()),
            format!("storePathCommitLog={}", data.join("commitlog").display()),
        ];
        properties(&lines, &settings(self.profile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_of_rocketmq_differ_in_the_flush_and_the_recommended_settings() {
        let place = Path::new("somewhere");
        let ports = Ports { names: 1, broker: 4, copies: 3 };
        let of = |profile| Rocketmq { jars: place, place, profile, ports }.properties();
        let (default, sync) = (of(Profile::Default), of(Profile::Sync));
        assert_eq!(default.replace("ASYNC_FLUSH", "SYNC_FLUSH"), sync);
        assert!(default.contains("bindAddress=127.0.0.1\n") && default.contains("brokerIP1=127.0.0.1\n"));
        let tuned = of(Profile::Tuned);
        assert!(tuned.starts_with(&default) && tuned.contains("transientStorePoolEnable=true\n"), "{tuned}");
    }

    #[test]
    fn the_pom_has_the_reported_version() {
        assert_eq!(POM.matches(&format!("<version>{VERSION}</version>")).count(), 2);
    }
}
