//! The integration tests of this crate, in one program: it is compiled and linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod amqp;
mod common;
mod log;
mod memory;
mod model;
mod parked;
mod persistence;
mod pop;
mod pulsar;
mod share;
mod shared;
