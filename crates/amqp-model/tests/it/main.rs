//! The integration tests of this crate, in one program: it is compiled and linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod access;
mod bounds;
mod common;
mod death;
mod definitions;
mod exchanges;
mod federation;
mod mistakes;
mod policies;
mod queues;
mod replay;
