//! What clients can do to each other, measured: `make hostile`.
//!
//! Each scenario has an attacker who sends something small that costs the broker much, at a lower priority than everything else, and victims
//! on connections of their own who produce one message at a time by both protocols. What is asked for: a p99 below 50 ms and no
//! wait above 250 ms, beside the bare flush of the same disk at the same time. The counted versions of these scenarios are in the tests
//! of the crates, and run with all others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests of real processes")]

mod attacks;
#[path = "../system/common/mod.rs"]
mod common;
mod victims;
