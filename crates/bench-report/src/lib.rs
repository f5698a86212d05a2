//! Result lines drawn as pages and pictures.
//!
//! It starts nothing and measures nothing: what it shows follows from the lines and from the texts of the scenarios.

pub mod report;

#[cfg(test)]
use polylogue_bench_load::latency;
use polylogue_bench_load::{busy, drive, error, how, matrix, results, target};
