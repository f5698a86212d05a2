//! Durable timers: one index of deadlines for delayed messages, message TTL, queue expiry, retries and other deferred work.
//!
//! Layer 4. Knows no protocol, no I/O and no clock. [`Timers`] is a state machine on the log: [`record`] makes a record,
//! [`Timers::apply`] is the only place where the set of pending timers changes, [`Timers::due`] returns those that are
//! due.
//!
//! ```text
//!             near_end
//!   overdue, soon |     far
//!   --------------+--+--+--+-----+-----+-----+-----------------+------------------------------------->  time
//!   in memory     |1s|1s|1s| 65 s| 65 s| 65 s|     70 minutes  |   3 days ...
//!                  a bucket: unsaved operations in memory  +  parts of at most 4,096 operations, on disk
//! ```
//!
//! A distant bucket is a summary: the number of its parts. Its content is in chunks of the checkpoint that are not read at a
//! start; as the bucket's start approaches, [`Timers::wanted`] requests them. A wide bucket that approaches is split into narrower
//! ones, part by part. So ten million timers cost a few hundred summaries, and memory is proportional to the timers due within seconds plus
//! the operations that no checkpoint holds yet.
//!
//! **Invariants.** The pending set is a function of the applied records alone; the place where its members are kept is not. A timer is
//! inserted and removed by its whole [`TimerId`], deadline included; of several operations on one id the last in the log wins, in any
//! order in which parts are read. Time is monotonic: [`Timers::due`] uses the latest time seen, of frames and
//! of callers. No timer is returned twice before [`Timers::reset_tail`], and none is dropped before its removal is applied.

mod bucket;
mod codec;
mod id;
mod timers;

pub use bucket::{PART_OPS_MAX, PARTS_MAX};
pub use codec::record;
pub use id::{DEADLINE_MS_MAX, Kind, TimerId, TimerKey, TimerOp};
pub use timers::{Due, Timers, UNSAVED_OPS_MAX};
