//! `fuzz_seeds DIR`: writes what the fuzz target `kafka_session` begins with: one request of every API at every version, whole
//! and cut small.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what it shares with the tests ends by panicking"
)]
#![allow(clippy::disallowed_methods, reason = "it writes files")]

#[path = "../tests/it/session_host/mod.rs"]
mod session_host;

use session_host::requests::frames;
use std::io;
use std::path::PathBuf;

/// How the target cuts its input, and how much time passes: its first two bytes.
const HEADS: [[u8; 2]; 2] = [[255, 0], [0, 1]];

fn main() -> io::Result<()> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from);
    let dir = dir.ok_or_else(|| io::Error::other("usage: fuzz_seeds DIR"))?;
    std::fs::create_dir_all(&dir)?;
    for (number, frame) in frames().into_iter().enumerate() {
        for [cut, pass] in HEADS {
            std::fs::write(dir.join(format!("seed-{number:03}-{cut}")), [&[cut, pass][..], &frame].concat())?;
        }
    }
    Ok(())
}
