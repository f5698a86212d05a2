//! Scenarios of the group coordinator, one for each rule. The rules are Kafka's (`GroupMetadataManager`, `ClassicGroup`,
//! `OffsetMetadataManager` of Kafka 4.3) unless a test says otherwise.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says so when it fails")]

#[path = "groups_scenarios/admin.rs"]
mod admin;
#[path = "groups_scenarios/durability.rs"]
mod durability;
#[path = "groups_scenarios/expiry.rs"]
mod expiry;
#[path = "groups_scenarios/joining.rs"]
mod joining;
#[path = "groups_scenarios/leaving.rs"]
mod leaving;
#[path = "groups_scenarios/offsets.rs"]
mod offsets;
#[path = "groups_scenarios/rebalancing.rs"]
mod rebalancing;
#[path = "groups_scenarios/regressions.rs"]
mod regressions;
#[path = "groups_scenarios/statics.rs"]
mod statics;
#[path = "groups_scenarios/syncing.rs"]
mod syncing;
