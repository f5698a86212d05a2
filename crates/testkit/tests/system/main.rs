//! The integration tests of this crate, in one program: it is compiled and linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod alarms;
mod backup;
mod clients;
mod common;
mod console;
mod crash;
mod crash_deletes;
mod crash_mapping;
mod crash_queues;
mod edges;
mod faults;
mod hostile;
