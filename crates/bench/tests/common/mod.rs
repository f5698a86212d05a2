//! What tests of whole runs share.

use polylogue_bench::target::Programs;
use std::path::PathBuf;

/// This very bench, and nothing else.
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
