//! Ids, offsets, sizes and bytes-on-their-way that every other crate speaks of.
//!
//! Layer 0: no I/O, no async, no clock. Nothing here knows a protocol.

pub mod backoff;
pub mod bin;
pub mod chunk;
pub mod collections;
pub mod ids;
pub mod limits;
pub mod shared_limit;
pub mod turn;

pub use backoff::{Backoff, Retry, RetryOn};
pub use chunk::{Chunk, FileRange, RangeSource};
pub use collections::{Map, Set};
pub use ids::*;
pub use shared_limit::SharedLimit;
pub use turn::{STEPS_PER_TURN, STEPS_PER_WORKER_TURN, Unfinished};
