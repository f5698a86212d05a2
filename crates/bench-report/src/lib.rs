//! Result lines drawn as pages and pictures.
//!
//! It starts nothing and measures nothing: what it shows follows from the lines and from the texts of the scenarios.
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark is a program of its own: it is never simulated, and writes real files"
)]

pub mod report;

#[cfg(test)]
use polylogue_bench_load::latency;
use polylogue_bench_load::{busy, drive, error, how, matrix, results, target};
