//! Fetching and building what is not part of the workspace: Kafka, and the workers in other languages.

use crate::error::{Context, Result};
use crate::peers::{copy_dependencies, succeed};
use crate::target::Programs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the Java worker into the folder `to`: its jars from Maven, its class by javac.
///
/// # Errors
/// When there is no JDK or no Maven, or one of them fails.
pub fn java_worker(source: &Path, to: &Path) -> Result<()> {
    let (jars, classes) = (to.join("lib"), to.join("classes"));
    if !jars.is_dir() {
        copy_dependencies(&source.join("pom.xml"), &jars)?;
    }
    std::fs::create_dir_all(&classes).context(|| format!("cannot make {}", classes.display()))?;
    let mut command = Command::new("javac");
    command.arg("-cp").arg(format!("{}/*", jars.display())).arg("-d").arg(&classes);
    command.args(["Worker.java", "Verifier.java"].map(|name| source.join(name)));
    succeed(&mut command, "install a JDK of version 17 or later").map(drop)
}

/// Builds the librdkafka worker, with the librdkafka that its crate brings along, into the folder `to`.
///
/// # Errors
/// When cargo or the C compiler fails.
pub fn librdkafka_worker(source: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "--locked", "--quiet"]);
    command.arg("--manifest-path").arg(source.join("Cargo.toml")).arg("--target-dir").arg(to);
    succeed(&mut command, "it builds the librdkafka worker, with a C compiler").map(drop)
}

/// Where everything is, in a checkout whose root is `root` and with what is built in `build`.
///
/// # Errors
/// When this very binary cannot be found.
pub fn programs(root: &Path, build: &Path, polylogue: Option<PathBuf>) -> Result<Programs> {
    let bench = std::env::current_exe().context(|| "where is this binary".to_owned())?;
    let absolute = |path: PathBuf| std::path::absolute(&path).context(|| format!("where is {}", path.display()));
    Ok(Programs {
        polylogue: absolute(polylogue.unwrap_or_else(|| root.join("target/release/polylogue")))?,
        kafka: absolute(build.join("peers/kafka"))?,
        rabbitmq: absolute(build.join("peers/rabbitmq"))?,
        bench,
        librdkafka: absolute(build.join("workers/librdkafka/release/polylogue-bench-librdkafka"))?,
        java: absolute(build.join("workers/java"))?,
    })
}
