//! Reports of the bench: pages and charts from result lines.
//!
//! It measures nothing: a report depends only on the result lines and the texts of the scenarios.
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark is a program of its own: it is never simulated, and writes real files"
)]

pub mod report;

#[cfg(test)]
use polylogue_bench_load::latency;
use polylogue_bench_load::{busy, drive, error, how, matrix, results, target};
