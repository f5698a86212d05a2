//! The integration tests of this crate, compiled and linked as one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod coding;
mod frame;
mod java;
mod round_trip;
mod samples;
mod wire;
