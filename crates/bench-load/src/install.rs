//! Fetches and builds what is not part of the workspace: Kafka, and the workers in other languages.

use crate::contract::System;
use crate::error::{Context, Result};
use crate::peers::{copy_dependencies, succeed};
use crate::target::Programs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the Java worker for a system into a directory below `to`: its jars by Maven, its classes by
/// javac. Clients of different systems conflict on one class path.
///
/// # Errors
/// JDK or Maven is missing or fails.
pub fn java_worker(source: &Path, to: &Path, client: &str) -> Result<()> {
    let own = source.join(client);
    let (jars, classes) = (to.join(client).join("lib"), to.join(client).join("classes"));
    let pom = own.join("pom.xml");
    let read = |file: &Path| std::fs::read_to_string(file).context(|| format!("cannot read {}", file.display()));
    // A changed pom requires other jars.
    let fetched = jars.join("pom.xml");
    if std::fs::read_to_string(&fetched).ok() != Some(read(&pom)?) {
        if jars.exists() {
            std::fs::remove_dir_all(&jars).context(|| format!("cannot empty {}", jars.display()))?;
        }
        copy_dependencies(&pom, &jars)?;
        std::fs::copy(&pom, &fetched).context(|| format!("cannot write {}", fetched.display()))?;
    }
    std::fs::create_dir_all(&classes).context(|| format!("cannot make {}", classes.display()))?;
    let mut command = Command::new("javac");
    command
        .args(["-nowarn", "-Xlint:-deprecation", "-cp"])
        .arg(format!("{}/*", jars.display()))
        .arg("-d")
        .arg(&classes);
    for folder in [source.join("core"), own] {
        let files = std::fs::read_dir(&folder).context(|| format!("cannot list {}", folder.display()))?;
        let sources = files.flatten().map(|entry| entry.path());
        command.args(sources.filter(|path| path.extension().is_some_and(|extension| extension == "java")));
    }
    succeed(&mut command, "install a JDK of version 17 or later").map(drop)
}

/// Returns the directory of the Java worker with a system's client.
#[must_use]
pub fn java_client(system: System) -> &'static str {
    match system {
        System::Kafka => "kafka",
        System::Rabbitmq | System::RabbitmqStream => "rabbitmq",
        System::Pulsar => "pulsar",
        System::Rocketmq => "rocketmq",
        System::Tubemq => "tubemq",
    }
}

/// Builds the librdkafka worker with its crate's librdkafka into the directory `to`; with TLS if OpenSSL is installed
/// for building.
///
/// # Errors
/// cargo or the C compiler fails.
pub fn librdkafka_worker(source: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "--locked", "--quiet"]);
    command.arg("--manifest-path").arg(source.join("Cargo.toml")).arg("--target-dir").arg(to);
    let openssl = Command::new("pkg-config").args(["--exists", "openssl"]).status();
    if openssl.is_ok_and(|status| status.success()) {
        command.args(["--features", "tls"]);
    }
    succeed(&mut command, "it builds the librdkafka worker, with a C compiler").map(drop)
}

/// Returns the paths of all programs, for a checkout at `root` and a build directory `build`.
///
/// # Errors
/// This binary cannot be found.
pub fn programs(root: &Path, build: &Path, polylogue: Option<PathBuf>) -> Result<Programs> {
    let bench = std::env::current_exe().context(|| "where is this binary".to_owned())?;
    let absolute = |path: PathBuf| std::path::absolute(&path).context(|| format!("where is {}", path.display()));
    Ok(Programs {
        polylogue: absolute(polylogue.unwrap_or_else(|| root.join("target/release/polylogue")))?,
        peers: absolute(build.join("peers"))?,
        kafka: absolute(build.join("peers/kafka"))?,
        rabbitmq: absolute(build.join("peers/rabbitmq"))?,
        bench,
        librdkafka: absolute(build.join("workers/librdkafka/release/polylogue-bench-librdkafka"))?,
        java: absolute(build.join("workers/java"))?,
    })
}
