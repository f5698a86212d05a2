//! Faults between an unmodified program and its files, for tests on the real file system.
//!
//! [`Injector`] starts a program with the library `polylogue-faultfs-preload` in front of the C library: flushes can
//! be held, flushes and writes can fail, and `kill -9` can be turned into a power cut.
//!
//! For that, each change below the watched directory is written to an undo log together with what it replaces, and
//! each flush that succeeded is noted there too. After the kill, [`revert`] undoes a seed-chosen part of the changes
//! that no flush had covered: the kill alone keeps the page cache and proves nothing about flushes.

mod data;
mod injector;
mod names;
mod record;
mod revert;

pub use injector::{Injector, build_library};
pub use record::{Record, read_log};
pub use revert::{Power, Report, kept_dir, revert};
