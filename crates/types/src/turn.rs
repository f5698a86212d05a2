//! Turns: how much work a connection does before others on its thread go on.
//!
//! A step is about 0.1 microseconds of work: one node of an index looked at, one condition compared, one target emitted.

/// Steps that a connection may take in one turn on an I/O thread, about 2 ms.
pub const STEPS_PER_TURN: u64 = 20_000;

/// Steps that a connection may take in one turn on a worker thread, where no other connection waits for it, about 20 ms.
pub const STEPS_PER_WORKER_TURN: u64 = 200_000;

/// What is left of a connection's work when its turn is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfinished {
    /// It fits into a fresh turn on an I/O thread ([`STEPS_PER_TURN`]).
    Turn,
    /// It does not: the connection goes on on a worker thread.
    Worker,
}
