//! What tests of the whole need: the real binary started, watched and ended, and directories that go away again.
//!
//! Nothing depends on this crate but tests. It knows no protocol: the Kafka client of the tests is in tests/system/common.

#![allow(clippy::disallowed_methods, reason = "these are real processes, real files and real time")]

mod binary;
mod server;
mod skip;
mod tempdir;
mod wait;

pub use binary::{BINARY_ENV, binary, polylogue, run};
pub use server::{Server, serve};
pub use skip::skip;
pub use tempdir::TempDir;
pub use wait::{Deadline, wait_until};

/// Why something of the test's surroundings did not work: a sentence for the person who reads the failure.
pub type Result<T> = std::result::Result<T, String>;
