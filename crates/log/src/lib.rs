//! The log: journal shards with group commit, recovery, segments with indexes, retention, checkpoints.
//!
//! Layer 2: knows entries and their envelopes, never a protocol. It does I/O through `polylogue_env` only.
//!
//! ```text
//!   proposals ──> journal (frames, group commit, flush) ──> committed frames ──> broker applies state
//!                    │ sealed files                                   └────────> store (tail cache, run index)
//!                    └──> merge: sorted segments, or the file itself becomes a segment ──> reads by offset, time
//! ```
//!
//! Ownership:
//! - [`journal`]: files, frames, the writer, flushing, recovery of frames. It never interprets native bytes.
//! - [`store`]: where each committed entry of each partition is (tail cache, journal file, segment), reading,
//!   trimming, merging, the manifest of segments.
//! - [`checkpoint`]: the chunked snapshot of applied state that bounds replay.
//! - [`backup`]: a consistent copy of shards while they work.
//! - [`check`]: reading a data directory without changing it; `repair`.

pub mod backup;
pub mod check;
pub mod checkpoint;
pub mod error;
pub mod frame;
pub mod journal;
pub mod store;

pub use error::{Error, ErrorKind, Result};
pub use frame::{EntryRef, Frame, FramePlace, Kind};
