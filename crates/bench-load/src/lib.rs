//! Targets and their installation, drivers and the contract between a driver and the bench, and the lines of results.
//!
//! Knows neither the cells of a comparison nor the form of a report.
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark is a program of its own: it is never simulated, and measures with the real clock on real files"
)]

pub mod amqp;
pub mod built;
pub mod busy;
pub mod cgroup;
pub mod clock;
pub mod contract;
pub mod drive;
pub mod error;
pub mod host;
pub mod how;
pub mod install;
pub mod ladder;
pub mod latency;
pub mod matrix;
pub mod null;
pub mod peers;
pub mod pin;
pub mod process;
pub mod raw;
pub mod results;
pub mod sample;
pub mod schedule;
pub mod stamp;
pub mod steady;
pub mod target;
pub mod verify;
pub mod wire;
pub mod worker;
