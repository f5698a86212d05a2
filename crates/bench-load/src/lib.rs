//! What is measured, and what loads it: targets and their installation, drivers and the contract between a driver and its measurer, and the
//! lines that hold the results.
//!
//! It knows neither which cells a comparison has nor how a report is drawn.
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
