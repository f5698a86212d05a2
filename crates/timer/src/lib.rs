//! What is to happen at a time: one durable index of deadlines, for delayed messages, time to live, expiry of queues, retries and
//! whatever else waits.
//!
//! Layer 4. Knows no protocol, no I/O and no clock. [`Timers`] is a state machine on the log: [`record`] makes a record,
//! [`Timers::apply`] is the only place where the set of pending timers changes, [`Timers::due`] says which of them are to be carried
//! out.
//!
//! ```text
//!             near_end
//!   overdue, soon |     far
//!   --------------+--+--+--+-----+-----+-----+-----------------+------------------------------------->  time
//!   in memory     |1s|1s|1s| 65 s| 65 s| 65 s|     70 minutes  |   3 days ...
//!                  a bucket: what is not saved yet, in memory  +  parts of at most 4,096 operations, on disk
//! ```
//!
//! A bucket far away is a summary: how many parts it has. Its content is in chunks of the checkpoint that are not read at a
//! start; when the bucket comes near, [`Timers::wanted`] asks for them. A wide bucket that comes nearer is split into narrower
//! ones, part by part. So ten million timers cost a few hundred summaries, and memory goes with what is due within seconds and
//! with what no checkpoint holds yet.
//!
//! **Invariants.** The pending set is a function of the applied records alone; where its members are kept is not. A timer is
//! inserted and removed by its whole [`TimerId`], deadline included; of several operations on one id the last in the log holds, in
//! whatever order parts are read. Time never goes back: [`Timers::due`] goes by the latest time it has seen, of frames and
//! of callers. Nothing is handed out twice before [`Timers::reset_tail`], and nothing is forgotten before its removal is applied.

mod bucket;
mod codec;
mod id;
mod timers;

pub use bucket::{PART_OPS_MAX, PARTS_MAX};
pub use codec::record;
pub use id::{DEADLINE_MS_MAX, Kind, TimerId, TimerKey, TimerOp};
pub use timers::{Due, Timers, UNSAVED_OPS_MAX};
