//! The integration tests of this crate, compiled and linked as one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod backup;
mod journal_classes;
mod journal_common;
mod journal_covered;
mod journal_crash;
mod journal_damage;
mod journal_disk_full;
mod journal_files;
mod journal_modes;
mod journal_sectors;
mod journal_threads;
mod journal_write;
mod store_journal;
