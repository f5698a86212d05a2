//! Peer brokers: fetched from their registries, started on the loopback with their data in a separate directory,
//! stopped by process id.
//!
//! ```text
//!   kafka      Maven    one process: broker and controller
//!   rabbitmq   apt      epmd, and Erlang
//!   pulsar     Maven    one process: broker, bookie and metadata (standalone)
//!   rocketmq   Maven    name server, broker
//!   tubemq     Maven    ZooKeeper, master, broker
//! ```
//!
//! [`about`] describes each target: version, age, heap, durability, and every setting that is not its default.

pub mod about;
pub mod http;
pub mod kafka;
pub mod pulsar;
pub mod rabbitmq;
pub mod remoting;
pub mod rocketmq;
pub mod tubemq;

use crate::error::{BenchError, Context, Result};
use crate::process::SpawnSettings;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Source of a preloaded library: restricts servers that can only listen on all addresses to the loopback.
const LOOPBACK: &str = include_str!("../peers/loopback.c");

/// A setting that differs from a broker's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Reason, or source of the recommendation.
    pub why: &'static str,
}

impl Setting {
    /// Creates a setting.
    #[must_use]
    pub fn new(name: &'static str, value: &str, why: &'static str) -> Setting {
        Setting { name, value: value.to_owned(), why }
    }
}

/// Formats lines and settings as a properties file.
#[must_use]
pub fn properties(lines: &[String], settings: &[Setting]) -> String {
    let mut text = String::new();
    for line in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    for Setting { name, value, .. } in settings {
        let _ = writeln!(text, "{name}={value}");
    }
    text
}

/// Writes a file into the directory of a run.
///
/// # Errors
/// It cannot be written.
pub fn put(place: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let file = place.join(name);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).context(|| format!("cannot create {}", folder.display()))?;
    }
    std::fs::write(&file, text).context(|| format!("cannot write {}", file.display())).map(|()| file)
}

/// Fetches the dependencies of a pom into the directory `to`, unless `last`, one of its jars, exists.
///
/// Removes the jars of another version first: a class path must have one version of each.
///
/// # Errors
/// Maven is missing or cannot fetch something.
pub fn jars(pom: &str, to: &Path, last: &str) -> Result<()> {
    if to.join(last).exists() {
        return Ok(());
    }
    let old = std::fs::read_dir(to).into_iter().flatten().flatten().map(|entry| entry.path());
    for jar in old.filter(|path| path.extension().is_some_and(|extension| extension == "jar")) {
        std::fs::remove_file(&jar).context(|| format!("cannot remove {}", jar.display()))?;
    }
    let pom = put(to, "pom.xml", pom)?;
    copy_dependencies(&pom, to)
}

/// Copies all dependencies of a pom into the directory `to`.
///
/// # Errors
/// Maven is missing or fails.
pub fn copy_dependencies(pom: &Path, to: &Path) -> Result<()> {
    maven(pom, &["dependency:copy-dependencies".to_owned()], to)
}

/// Runs Maven goals with a pom, with output in the directory `to`.
///
/// # Errors
/// Maven is missing or fails.
pub fn maven(pom: &Path, goals: &[String], to: &Path) -> Result<()> {
    let to = std::path::absolute(to).context(|| format!("cannot find the absolute path of {}", to.display()))?;
    let mut command = Command::new("mvn");
    command.args(["-q", "-B", "-f"]).arg(pom).args(goals).arg(format!("-DoutputDirectory={}", to.display()));
    let hint = format!("install Maven and a JDK of version 17 or later to fetch the dependencies of {}", pom.display());
    succeed(&mut command, &hint).map(drop)
}

/// Runs a command and returns its output. An error contains all of its output, and the hint.
///
/// # Errors
/// It cannot be run or fails.
pub fn succeed(command: &mut Command, hint: &str) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.stdin(Stdio::null()).output().context(|| format!("cannot run {name}; {hint}"))?;
    let [stdout, stderr] = [&out.stdout, &out.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    if out.status.success() {
        return Ok(stdout);
    }
    Err(BenchError::new(format!("{name} failed; {hint}: {}", format!("{stdout}\n{stderr}").trim())))
}

/// Returns a command that runs a class from a directory of jars, with JVM options.
#[must_use]
pub fn java(jars: &Path, options: &[&str], class: &str) -> Command {
    java_of(&[format!("{}/*", jars.display())], options, class)
}

/// A JVM in a control group with a memory limit gets at most one in this many parts of it as heap, and as much as direct memory.
/// Vendors' sizes assume a dedicated machine, and the kernel kills a process that exceeds its group's limit.
const HEAP_SHARE: u64 = 3;

/// Returns JVM options for a group with this memory limit; unchanged for 0.
fn within(options: &[&str], limit_bytes: u64) -> Vec<String> {
    let most_mib = (limit_bytes / HEAP_SHARE) >> 20;
    let sized = ["-Xms", "-Xmx", "-XX:MaxDirectMemorySize="];
    let mib = |size: &str| {
        let (number, unit) = size.split_at(size.len().saturating_sub(1));
        let number: u64 = number.parse().ok()?;
        Some(if unit == "g" { number << 10 } else { number })
    };
    let smaller = |option: &str| {
        let name = sized.into_iter().find(|name| option.starts_with(name))?;
        (mib(option.strip_prefix(name)?)? > most_mib).then(|| format!("{name}{most_mib}m"))
    };
    let is_smaller = limit_bytes > 0 && options.iter().any(|option| smaller(option).is_some());
    // The size of the young generation is then left to the JVM.
    let options = options.iter().filter(|option| !(is_smaller && option.starts_with("-Xmn")));
    let stated = |option: &&str| smaller(option).filter(|_| is_smaller).unwrap_or_else(|| (*option).to_owned());
    options.map(stated).collect()
}

/// Returns a command that runs a class with a class path and JVM options.
#[must_use]
pub fn java_of(class_path: &[String], options: &[&str], class: &str) -> Command {
    let mut command = Command::new("java");
    command
        .args(within(options, SpawnSettings::memory_limit_bytes_here()))
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
    command.arg("-cp").arg(class_path.join(":")).arg(class);
    command
}

/// Builds the library that restricts a server to the loopback, unless it exists, and returns its path. `RocketMQ` and `TubeMQ` cannot
/// listen on one address only.
///
/// # Errors
/// There is no C compiler.
pub fn loopback(to: &Path) -> Result<PathBuf> {
    let library = to.join("loopback.so");
    if !library.exists() {
        let source = put(to, "loopback.c", LOOPBACK)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl");
        succeed(&mut compiler, "install a C compiler: a library restricts the peer to the loopback")?;
    }
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: Pulsar's heap and direct memory exceeded its group, and the kernel killed it during a run.
    #[test]
    fn a_jvm_is_no_larger_than_its_group() {
        let pulsar = ["-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g", "-XX:+UseZGC"];
        assert_eq!(within(&pulsar, 0), pulsar);
        assert_eq!(within(&pulsar, 24 << 30), pulsar);
        let small = ["-Xms1024m", "-Xmx1024m", "-XX:MaxDirectMemorySize=1024m", "-XX:+UseZGC"];
        assert_eq!(within(&pulsar, 3 << 30), small);
        assert_eq!(within(&["-Xms256m", "-Xmx2g", "-Xmn640m"], 3 << 29), ["-Xms256m", "-Xmx512m"]);
    }

    /// Regression test: Kafka 4.4.0's tools were started with classes of 4.3.1, whose jars were in the same directory.
    #[test]
    fn jars_of_another_version_are_removed() {
        let place = std::env::temp_dir().join(format!("polylogue-bench-jars-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("a folder");
        for name in ["kafka-1.jar", "kafka-2.jar", "loopback.so"] {
            std::fs::write(place.join(name), "").expect("a file");
        }
        jars("", &place, "kafka-2.jar").expect("it is there");
        assert!(place.join("kafka-1.jar").exists(), "nothing is fetched");
        assert!(jars("no pom", &place, "kafka-3.jar").is_err());
        let left = ["kafka-1.jar", "kafka-2.jar", "loopback.so"].map(|name| place.join(name).exists());
        std::fs::remove_dir_all(&place).expect("the folder goes");
        assert_eq!(left, [false, false, true]);
    }

    #[test]
    fn the_error_of_a_failing_program_contains_its_output() {
        let shell = |script: &str| succeed(Command::new("sh").args(["-c", script]), "install a shell");
        assert_eq!(shell("echo done"), Ok("done".to_owned()));
        let stated = shell("echo to the one; echo to the other >&2; false").expect_err("it fails").to_string();
        assert_eq!(stated, "sh failed; install a shell: to the one\nto the other");
        let stated =
            succeed(&mut Command::new("no-such-program"), "install it").expect_err("there is none").to_string();
        assert!(stated.starts_with("cannot run no-such-program; install it"), "{stated}");
    }
}
