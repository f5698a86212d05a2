//! Where the binary under test is, and how it is run once.

use crate::Result;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The variable that names the binary under test.
pub const BINARY_ENV: &str = "POLYLOGUE_BIN";

/// The binary under test: what [`BINARY_ENV`] says; else the release build, else the debug build, of the target
/// directory that this test was built in.
///
/// # Errors
/// When there is none; the text says how to make one.
pub fn binary() -> Result<PathBuf> {
    if let Some(given) = std::env::var_os(BINARY_ENV) {
        let given = PathBuf::from(given);
        return match given.is_file() {
            true => Ok(given),
            false => Err(format!("{BINARY_ENV} names {}, which is not a file", given.display())),
        };
    }
    let test = std::env::current_exe().map_err(|e| format!("cannot tell where this test is: {e}"))?;
    // TARGET/debug/deps/TEST, or TARGET/release/deps/TEST
    let target = test.ancestors().nth(3).unwrap_or(Path::new("target"));
    let candidates = ["release", "debug"].map(|profile| target.join(profile).join("polylogue"));
    // Whichever was built last is the one that is meant.
    let built = |path: &PathBuf| path.metadata().and_then(|found| found.modified()).ok();
    candidates.into_iter().filter(|path| path.is_file()).max_by_key(built).ok_or_else(|| {
        format!(
            "no binary `polylogue` below {}: build it with `cargo build -p polylogue-server`, or name one in {BINARY_ENV}",
            target.display()
        )
    })
}

/// The command that starts the binary. The variables that configure the tests, and the broker of their user, do
/// not reach it: it would take the one for mistyped options and the other for what the test wants.
///
/// # Errors
/// When there is no binary.
pub fn polylogue() -> Result<Command> {
    let mut command = Command::new(binary()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("POLYLOGUE_") {
            command.env_remove(name);
        }
    }
    // Nor do the profiles of their user.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    Ok(command)
}

/// Runs the binary with these arguments until it ends.
///
/// # Errors
/// When there is no binary or it cannot be started.
pub fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Result<Output> {
    polylogue()?.args(args).output().map_err(|e| format!("cannot start the binary: {e}"))
}
