//! The integration tests of this crate, compiled and linked as one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod session_access;
mod session_cluster;
mod session_configs;
mod session_consumer_groups;
mod session_fetch;
mod session_fetch_follow;
mod session_fetch_sessions;
mod session_groups;
mod session_groups_admin;
mod session_host;
mod session_hostile;
mod session_login;
mod session_memory;
mod session_mistakes;
mod session_offsets;
mod session_partitions;
mod session_pipeline;
mod session_produce;
mod session_queues;
mod session_quotas;
mod session_room;
mod session_steps;
mod session_tokens;
mod session_topics;
mod session_versions;
