//! Brokers of others: fetched from the registries that they come from, started on the loopback with their data in a folder of their
//! own, ended by process id.
//!
//! ```text
//!   kafka      Maven    one process: broker and controller
//!   rabbitmq   apt      epmd, and Erlang
//!   pulsar     Maven    one process: broker, bookie and metadata (standalone)
//!   rocketmq   Maven    name server, broker
//!   tubemq     Maven    ZooKeeper, master, broker
//! ```
//!
//! [`about`] tells what each target is: version, age, heap, durability, and every setting that is not its default.

pub mod about;
pub mod http;
pub mod kafka;
pub mod pulsar;
pub mod rabbitmq;
pub mod remoting;
pub mod rocketmq;
pub mod tubemq;

use crate::error::{BenchError, Context, Result};
use crate::process::Surround;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What keeps servers on the loopback that can only listen on all addresses.
const LOOPBACK: &str = include_str!("../peers/loopback.c");

/// A setting that differs from a broker's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Why it is set, or who advises it.
    pub why: &'static str,
}

impl Setting {
    /// A setting.
    #[must_use]
    pub fn new(name: &'static str, value: &str, why: &'static str) -> Setting {
        Setting { name, value: value.to_owned(), why }
    }
}

/// Lines and settings as a file of properties.
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

/// Writes a file into the folder of a run.
///
/// # Errors
/// When it cannot be written.
pub fn put(place: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let file = place.join(name);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).context(|| format!("cannot make {}", folder.display()))?;
    }
    std::fs::write(&file, text).context(|| format!("cannot write {}", file.display())).map(|()| file)
}

/// Fetches what a pom asks for into the folder `to`, unless `last`, one of its jars, is there. Jars of another version are removed: a class
/// path has one of each.
///
/// # Errors
/// When Maven is missing or finds something not.
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

/// Has Maven copy all that a pom depends on into the folder `to`.
///
/// # Errors
/// When Maven is missing or fails.
pub fn copy_dependencies(pom: &Path, to: &Path) -> Result<()> {
    maven(pom, &["dependency:copy-dependencies".to_owned()], to)
}

/// Has Maven do something with a pom whose output goes into the folder `to`.
///
/// # Errors
/// When Maven is missing or fails.
pub fn maven(pom: &Path, goals: &[String], to: &Path) -> Result<()> {
    let to = std::path::absolute(to).context(|| format!("where is {}", to.display()))?;
    let mut command = Command::new("mvn");
    command.args(["-q", "-B", "-f"]).arg(pom).args(goals).arg(format!("-DoutputDirectory={}", to.display()));
    let hint = format!("to fetch what {} asks for install Maven and a JDK of version 17 or later", pom.display());
    succeed(&mut command, &hint).map(drop)
}

/// Runs a command and gives what it says. When it fails, the error has all of its output, and the hint.
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

/// A command that runs a class from a folder of jars, with the JVM options before it.
#[must_use]
pub fn java(jars: &Path, options: &[&str], class: &str) -> Command {
    java_of(&[format!("{}/*", jars.display())], options, class)
}

/// What a JVM's heap may take of a group whose memory is limited, and as much again beside it: its vendor's sizes are for a machine of its
/// own, and one that is larger than its group is ended by the kernel.
const HEAP_SHARE: u64 = 3;

/// JVM options in a group that may use so much memory; 0: as they are.
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
    // The part of it that is for what is new is for the JVM to choose then.
    let options = options.iter().filter(|option| !(is_smaller && option.starts_with("-Xmn")));
    let stated = |option: &&str| smaller(option).filter(|_| is_smaller).unwrap_or_else(|| (*option).to_owned());
    options.map(stated).collect()
}

/// The same with a class path.
#[must_use]
pub fn java_of(class_path: &[String], options: &[&str], class: &str) -> Command {
    let mut command = Command::new("java");
    command
        .args(within(options, Surround::memory_limit_bytes_here()))
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
    command.arg("-cp").arg(class_path.join(":")).arg(class);
    command
}

/// Builds what keeps a server on the loopback, unless it is there, and gives where it is. `RocketMQ` and `TubeMQ` cannot be made to
/// listen on one address only.
///
/// # Errors
/// When there is no C compiler.
pub fn loopback(to: &Path) -> Result<PathBuf> {
    let library = to.join("loopback.so");
    if !library.exists() {
        let source = put(to, "loopback.c", LOOPBACK)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl");
        succeed(&mut compiler, "install a C compiler: it keeps the peer on the loopback")?;
    }
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pulsar was given more heap and memory beside it than its group had, and the kernel ended it in the middle of a run.
    #[test]
    fn a_jvm_is_no_larger_than_its_group() {
        let pulsar = ["-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g", "-XX:+UseZGC"];
        assert_eq!(within(&pulsar, 0), pulsar);
        assert_eq!(within(&pulsar, 24 << 30), pulsar);
        let small = ["-Xms1024m", "-Xmx1024m", "-XX:MaxDirectMemorySize=1024m", "-XX:+UseZGC"];
        assert_eq!(within(&pulsar, 3 << 30), small);
        assert_eq!(within(&["-Xms256m", "-Xmx2g", "-Xmn640m"], 3 << 29), ["-Xms256m", "-Xmx512m"]);
    }

    /// Kafka 4.4.0's tools were started with the classes of 4.3.1, whose jars lay beside them.
    #[test]
    fn jars_of_another_version_go() {
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
    fn all_that_a_failing_program_says_is_told() {
        let shell = |script: &str| succeed(Command::new("sh").args(["-c", script]), "install a shell");
        assert_eq!(shell("echo done"), Ok("done".to_owned()));
        let stated = shell("echo to the one; echo to the other >&2; false").expect_err("it fails").to_string();
        assert_eq!(stated, "sh fails; install a shell: to the one\nto the other");
        let stated =
            succeed(&mut Command::new("no-such-program"), "install it").expect_err("there is none").to_string();
        assert!(stated.starts_with("cannot run no-such-program; install it"), "{stated}");
    }
}
