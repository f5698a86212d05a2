//! Shared by tests of whole runs.

use polylogue_bench::target::Programs;
use std::path::PathBuf;

/// The bench under test only.
pub(crate) fn programs() -> Programs {
    let nothing = || PathBuf::from("/nowhere");
    Programs {
        polylogue: nothing(),
        peers: nothing(),
        kafka: nothing(),
        rabbitmq: nothing(),
        bench: PathBuf::from(env!("CARGO_BIN_EXE_polylogue-bench")),
        librdkafka: nothing(),
        java: nothing(),
    }
}
