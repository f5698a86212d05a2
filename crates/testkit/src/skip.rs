//! What cannot be tried here, because something of the surroundings is missing.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// Says that something was skipped, and why: the last line of what a script said that begins with `missing: `. It is said around the test
/// harness, which keeps what a passing test prints, and into `build/skipped` under `root` for the last lines of `make test`.
///
/// # Panics
/// With `CI=true`, where nothing may be skipped, and when the file cannot be written.
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub fn skip(root: &Path, what: &str, said: &str) {
    let why = said.lines().rev().find(|line| line.starts_with("missing: ")).unwrap_or("something is missing");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{what} must not be skipped with CI=true: {why}");
    let line = format!("skipped: {what}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    let folder = root.join("build");
    std::fs::create_dir_all(&folder).unwrap();
    let mut to = File::options().create(true).append(true).open(folder.join("skipped")).unwrap();
    to.write_all(line.as_bytes()).unwrap();
}
