//! The integration tests of this crate, in one program: it is compiled and linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod admin;
mod backup;
mod broker;
mod damage;
mod delays;
mod flips;
mod follower;
mod full_disk;
mod layouts;
mod many_partitions;
mod node;
mod queue_credit;
mod queue_doors;
mod queue_sizes;
mod queue_troubles;
mod queue_view;
mod queues;
mod queues_dead;
mod read_back;
mod refused;
mod room;
mod short_times;
mod slots;
mod small_entries;
mod streams;
