//! A layer of faults between an unmodified program and its files, loaded with `LD_PRELOAD`.
//!
//! It stands in for the C library's functions that change files, looks at what lies below one directory, and passes
//! everything on to the next definition. It is a tool for tests on Linux with glibc, on x86-64 and aarch64.
//!
//! # Environment
//!
//! - `FAULTFS_DIR`: the directory; without it nothing happens. Files outside are never touched.
//! - `FAULTFS`: settings, separated by blanks.
//! - `FAULTFS_CONTROL`: a file of settings, one a line, each line ended. Read again at each intercepted
//!   call, and while a flush is held, so that a test can switch while the program runs. It overrides
//!   `FAULTFS`. It may be missing.
//! - `FAULTFS_JOURNAL`: the undo log, on the same file system as the directory and not inside it; files
//!   that lose a name are kept beside it in `JOURNAL.kept`. After the kill, `faultfs-revert` undoes what was not
//!   flushed.
//! - `FAULTFS_EVENTS`: a file that gets a line for each fault as it strikes, `hold_sync PATH`,
//!   `fail_sync PATH`, `fail_write PATH`, `fail_allocate PATH`, so that a test can tell that one did.
//!
//! # Settings
//!
//! - `hold_sync_ms=N`: `fsync` and `fdatasync` wait that long before they start, or until the setting is lowered.
//! - `fail_sync=NAME`, `fail_write=NAME`, `fail_allocate=NAME`: flushes, writes (and making files longer), or
//!   `fallocate` fail with that error: EIO, ENOSPC, EDQUOT, EROFS or EOPNOTSUPP. Nothing is written or flushed.
//! - `free_bytes=N`: what `statvfs` says is free.
//! - `only=TEXT`: the settings above concern only files whose path contains it (not `free_bytes`).
//!
//! # What it does not see
//!
//! Writes through `mmap`, io_uring, or bare system calls; `syncfs` and `O_SYNC`. Renaming or removing a directory
//! with an undo log ends the program with a message and exit code 99, as does everything that would make the undo
//! log wrong.
#![allow(unsafe_code, reason = "this crate stands in for functions of the C library; each block says why it holds")]

mod control;
mod events;
mod files;
mod hooks;
mod inside;
mod journal;
mod watch;
