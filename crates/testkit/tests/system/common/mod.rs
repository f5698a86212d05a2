//! What the tests of the real binary share: a Kafka client, and a place with a data directory.

#![allow(clippy::disallowed_methods, reason = "tests of real processes")]
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

pub(crate) mod amqp;
pub(crate) mod batch;
pub(crate) mod kafka;
pub(crate) mod load;
pub(crate) mod oracle;

use polylogue_testkit::{Result, Server, TempDir, serve};
use std::path::PathBuf;
use std::process::Command;

/// A directory for one test, with the data directory of a broker in it.
pub(crate) struct Place {
    pub(crate) root: TempDir,
}

impl Place {
    pub(crate) fn new(name: &str) -> Place {
        Place { root: TempDir::new(env!("CARGO_TARGET_TMPDIR"), name).unwrap() }
    }

    /// The parent of the data directory, so that an injector can watch that the data directory itself stays.
    pub(crate) fn watched(&self) -> PathBuf {
        self.root.join("disk")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.watched().join("data")
    }

    /// The command that serves the data directory, with these settings.
    pub(crate) fn serve(&self, settings: &[&str]) -> Command {
        std::fs::create_dir_all(self.watched()).unwrap();
        let mut command = serve(&self.data()).unwrap();
        for setting in settings {
            command.args(["--set", setting]);
        }
        command
    }

    /// Starts what [`Place::serve`] gives, or whatever else was made of it.
    pub(crate) fn start(&self, command: Command) -> Result<Server> {
        Server::start(command, &self.root.join("stderr"))
    }
}

/// The value of a variable that says how much to do.
pub(crate) fn amount(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(value) => value.parse().unwrap_or_else(|e| panic!("{variable}={value}: {e}")),
        Err(_) => default,
    }
}

/// The seed of this run: `POLYLOGUE_SEED`, or a new one.
pub(crate) fn seed() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    amount("POLYLOGUE_SEED", (now % 1_000_000_007) as u64)
}
