//! Measures message brokers side by side: `polylogue-bench`.
//!
//! ```text
//!                          cli
//!   compare, versus ----> run ------> target    a fresh broker: polylogue, one of the peers, null, or a running one
//!              |          /|\ \-----> look      each second: sample (/proc/PID), host (device, page cache, network), jvm (collections)
//!              |         / | \------> flush     its flushes, counted and delayed (flushes/, preloaded)
//!              |      how  |          how: warm-up by work (steady), cores (pin), memory (cgroup), rates (ladder)
//!   engine, lanes, steps,  |          remote: a worker on another machine
//!   matrix, scenarios      |
//!    (order; the cells)  drive ----> worker processes, one contract: raw driver (worker), amqp, librdkafka, Java; perf (Kafka's own tool)
//!              |
//!           results ----> report     JSON lines to Markdown         machine, bare    the machine's limits, and the cost of a flush
//! ```
//!
//! What keeps figures honest:
//! - [`schedule`]: open loop. Latency counts from when a message should have been sent, whatever delayed it.
//! - [`stamp`], [`verify`]: every message is tracked; a run with a loss is a failed run.
//! - [`latency`]: a percentile is given only with 100 samples beyond it.
//! - [`busy`]: if the client was the limit, no broker is ahead.
//! - [`steady`]: measuring starts when another stretch of work costs what the last ones did.
//! - [`ladder`]: no latency is given for a rate with a growing backlog; a searched maximum must be met once more.
//! - [`pin`], [`cgroup`]: broker and client have separate cores, and every broker has the same memory.
//! - [`flush`]: durability is observed, not declared.
//! - [`sample`], [`run`]: processor time is counted from an idle broker to an idle broker.
//! - [`null`], [`bare`]: the floors of client and machine are shown beside the figures.
//! - [`matrix`], [`report`]: sides alternate, and one is ahead only if all pairs agree.
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark is a program of its own: it is never simulated, and measures with the real clock on real files"
)]

pub mod bare;
pub mod cli;
pub mod engine;
pub mod first;
pub mod flush;
pub mod jvm;
pub mod lanes;
pub mod look;
pub mod machine;
pub mod omb;
pub mod perf;
pub mod plan;
pub mod progress;
pub mod remote;
pub mod run;
pub mod scenarios;
pub mod steps;
pub mod versus;

pub use polylogue_bench_load::{
    amqp, built, busy, cgroup, clock, contract, drive, error, host, how, install, ladder, latency, matrix, null, peers,
    pin, process, raw, results, sample, schedule, stamp, steady, target, verify, wire, worker,
};
pub use polylogue_bench_report::report;
