//! Scenarios of the group coordinator, one for each rule. The rules are Kafka's (`GroupMetadataManager`, `ClassicGroup`,
//! `OffsetMetadataManager` of Kafka 4.3) unless a test says otherwise.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so when it fails")]

mod admin;
mod durability;
mod expiry;
mod joining;
mod leaving;
mod offsets;
mod rebalancing;
mod regressions;
mod statics;
mod syncing;
