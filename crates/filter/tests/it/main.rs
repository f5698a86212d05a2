//! Filters from the outside: RocketMQ's cases and verdicts, a model of selectors, bounds, wire form.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod bounds;
mod kinds;
mod message;
mod model;
mod rocketmq;
mod spec;
mod verdicts;
