//! Memory usage of the process, by RabbitMQ's categories.
//!
//! ```text
//!   resident memory ── code: file-backed pages
//!                   └─ the rest ── connection_readers, connection_writers, binary, msg_index: counted by the broker
//!                               └─ other_proc: the remainder
//! ```
//!
//! Categories that exist only in Erlang are 0, because tools look for them. The categories add up to the total.

use super::call::Call;
use polylogue_admin::process::Resident;
use serde_json::{Map, Value, json};

/// The method by which [`Resident`] measures.
pub(super) const STRATEGY: &str = "rss";

/// Categories without a counterpart.
const NOTHING: [&str; 19] = [
    "connection_channels",
    "connection_other",
    "queue_procs",
    "quorum_queue_procs",
    "quorum_queue_dlx_procs",
    "stream_queue_procs",
    "stream_queue_replica_reader_procs",
    "stream_queue_coordinator_procs",
    "plugins",
    "metadata_store",
    "metadata_store_ets",
    "metrics",
    "mgmt_db",
    "mnesia",
    "quorum_ets",
    "other_ets",
    "atom",
    "other_system",
    "allocated_unused",
];

/// Internal counters for message bodies.
const BODIES: [&str; 4] = ["store_tail_bytes", "store_read_cache_bytes", "journal_queue_bytes", "publishes_held_bytes"];
/// Internal counters for indexes of the log.
const INDEXES: [&str; 2] = ["store_index_bytes", "store_index_cache_bytes"];

/// Returns the categories, and the total. Bytes.
fn parts(call: &Call<'_>) -> (Map<String, Value>, Resident) {
    let resident = Resident::now().unwrap_or(Resident { all: 0, files: 0 });
    let figures = call.app.broker.status().figures;
    let sum = |names: &[&str]| -> u64 {
        figures.iter().filter(|figure| names.contains(&&*figure.name)).map(|figure| figure.value).sum()
    };
    let net = &call.app.net;
    let (readers, _) = net.lanes.load();
    let counted = [
        ("connection_readers", readers as u64),
        ("connection_writers", net.output.bytes() as u64),
        ("binary", sum(&BODIES)),
        ("msg_index", sum(&INDEXES)),
    ];
    let mut left = resident.all.saturating_sub(resident.files);
    let mut parts: Map<String, Value> = NOTHING.iter().map(|name| ((*name).to_owned(), Value::from(0))).collect();
    for (name, bytes) in counted {
        // Counted memory need not be resident.
        let bytes = bytes.min(left);
        left -= bytes;
        parts.insert(name.to_owned(), bytes.into());
    }
    parts.insert("other_proc".to_owned(), left.into());
    parts.insert("code".to_owned(), resident.files.into());
    parts.insert("reserved_unallocated".to_owned(), 0.into());
    (parts, resident)
}

/// Usage in bytes.
pub(super) fn absolute(call: &Call<'_>) -> Value {
    let (mut parts, Resident { all, files }) = parts(call);
    let allocated = all.saturating_sub(files);
    parts.insert("strategy".to_owned(), STRATEGY.into());
    parts.insert("total".to_owned(), json!({"erlang": allocated, "rss": all, "allocated": allocated}));
    Value::Object(parts)
}

/// Usage in percent of the total; at least 1 for a category that is not empty.
pub(super) fn relative(call: &Call<'_>) -> Value {
    let (mut parts, resident) = parts(call);
    let share = |bytes: u64| match (bytes, (bytes.saturating_mul(100) + resident.all / 2).checked_div(resident.all)) {
        (0, _) | (_, None) => 0,
        (_, Some(share)) => share.max(1),
    };
    for part in parts.values_mut() {
        *part = share(part.as_u64().unwrap_or(0)).into();
    }
    parts.insert("total".to_owned(), 100.into());
    Value::Object(parts)
}
