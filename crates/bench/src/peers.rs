//! Brokers of others. Here: Apache Kafka from its Maven packages, installed into a folder, started on the loopback with its data in a
//! folder of its own.

pub mod rabbitmq;

use crate::error::{BenchError, Context, Result};
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The version that is compared with.
pub const KAFKA_VERSION: &str = "4.3.1";
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
/// What Maven is asked for.
const POM: &str = include_str!("../peers/kafka.xml");

/// Fetches Kafka's jars into the folder `jars`, unless they are there.
///
/// # Errors
/// When Maven is missing or finds them not.
pub fn install_kafka(jars: &Path) -> Result<()> {
    if jars.join(format!("kafka_2.13-{KAFKA_VERSION}.jar")).exists() {
        return Ok(());
    }
    std::fs::create_dir_all(jars).context(|| format!("cannot make {}", jars.display()))?;
    let pom = jars.join("pom.xml");
    std::fs::write(&pom, POM).context(|| format!("cannot write {}", pom.display()))?;
    copy_dependencies(&pom, jars)
}

/// Has Maven copy all that a pom depends on into the folder `to`.
///
/// # Errors
/// When Maven is missing or fails.
pub fn copy_dependencies(pom: &Path, to: &Path) -> Result<()> {
    let to = std::path::absolute(to).context(|| format!("where is {}", to.display()))?;
    let mut command = Command::new("mvn");
    command.arg("-q").arg("-f").arg(pom).arg("dependency:copy-dependencies");
    command.arg(format!("-DoutputDirectory={}", to.display()));
    let hint = format!("to fetch what {} asks for install Maven and a JDK of version 17 or later", pom.display());
    succeed(&mut command, &hint).map(drop)
}

/// Runs a command and gives what it says. When it fails, all that it says is told, and the hint.
///
/// # Errors
/// When it cannot be run or fails.
pub fn succeed(command: &mut Command, hint: &str) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().context(|| format!("cannot run {name}; {hint}"))?;
    let [said, complained] = [&out.stdout, &out.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    if out.status.success() {
        return Ok(said);
    }
    Err(BenchError::new(format!("{name} fails; {hint}: {}", format!("{said}\n{complained}").trim())))
}

/// A Kafka that is to be started.
#[derive(Debug)]
pub struct Kafka<'a> {
    /// The folder with its jars.
    pub jars: &'a Path,
    /// The folder of this run.
    pub place: &'a Path,
    /// Whether every message is flushed before it is acknowledged.
    pub fsync: bool,
}

impl Kafka<'_> {
    /// A command that runs a class of Kafka, with the JVM options before it.
    #[must_use]
    pub fn java(jars: &Path, options: &[&str], class: &str) -> Command {
        let mut command = Command::new("java");
        command.args(options).arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
        command.arg("-cp").arg(format!("{}/*", jars.display())).arg(class);
        command
    }

    /// Formats its storage, and gives the command that runs it.
    ///
    /// # Errors
    /// When there is no Java, or the storage cannot be formatted.
    pub fn command(&self, port: u16, controller: u16) -> Result<Command> {
        let file = self.place.join("kafka.properties");
        std::fs::write(&file, self.properties(port, controller))
            .context(|| format!("cannot write {}", file.display()))?;
        let run = |command: &mut Command| succeed(command, "Kafka formats its storage with it");
        let tool = || Kafka::java(self.jars, &["-Xmx256m"], "kafka.tools.StorageTool");
        let cluster = run(tool().arg("random-uuid"))?;
        run(tool().args(["format", "--standalone", "-t", &cluster, "-c"]).arg(&file))?;
        let mut command = Kafka::java(self.jars, &JVM_OPTIONS, "kafka.Kafka");
        command.arg(&file);
        Ok(command)
    }

    /// The settings that differ from Kafka's defaults. One node has one replica of everything; the rest is as it comes.
    fn properties(&self, port: u16, controller: u16) -> String {
        let mut text = String::new();
        let lines = [
            "process.roles=broker,controller".to_owned(),
            "node.id=1".to_owned(),
            format!("listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"),
            "controller.listener.names=CONTROLLER".to_owned(),
            format!("controller.quorum.bootstrap.servers=127.0.0.1:{controller}"),
            format!("log.dirs={}", self.place.join("data").display()),
            "offsets.topic.replication.factor=1".to_owned(),
            "transaction.state.log.replication.factor=1".to_owned(),
            "transaction.state.log.min.isr=1".to_owned(),
            "group.initial.rebalance.delay.ms=0".to_owned(),
        ];
        let fsync = self.fsync.then(|| "log.flush.interval.messages=1".to_owned());
        for line in lines.into_iter().chain(fsync) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_of_kafka_differ_in_the_flush_only() {
        let place = Path::new("somewhere");
        let of = |fsync| Kafka { jars: place, place, fsync }.properties(1, 2);
        let (default, fsync) = (of(false), of(true));
        assert_eq!(format!("{default}log.flush.interval.messages=1\n"), fsync);
        assert!(default.contains("listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2\n"), "loopback only");
    }

    #[test]
    fn all_that_a_failing_program_says_is_told() {
        let shell = |script: &str| succeed(Command::new("sh").args(["-c", script]), "install a shell");
        assert_eq!(shell("echo done"), Ok("done".to_owned()));
        let told = shell("echo to the one; echo to the other >&2; false").expect_err("it fails").to_string();
        assert_eq!(told, "sh fails; install a shell: to the one\nto the other");
        let told = succeed(&mut Command::new("no-such-program"), "install it").expect_err("there is none").to_string();
        assert!(told.starts_with("cannot run no-such-program; install it"), "{told}");
    }

    #[test]
    fn the_pom_names_the_version_that_is_told() {
        assert_eq!(POM.matches(&format!("<version>{KAFKA_VERSION}</version>")).count(), 2);
    }
}
