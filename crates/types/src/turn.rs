//! How much a session may do at a time.
//!
//! A connection works in turns. On an I/O thread every connection of that thread waits for the end of a turn, so that a turn there
//! has a bounded number of steps; a session that needs more says so and goes on, in longer turns, on a worker thread.
//! A step is about 0.1 µs of work on the hardware of 2026: one node of a trie, one condition of a binding, 50 bytes decompressed.

/// What a session has left to do after a turn whose steps it has used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfinished {
    /// What comes next fits into another turn on an I/O thread, once the other connections have had theirs.
    Turn,
    /// What comes next is longer than a turn on an I/O thread: it has to go on on a worker thread.
    Worker,
}

/// Steps in a turn on an I/O thread: about 2 ms.
pub const STEPS_PER_TURN: u64 = 20_000;

/// Steps in a turn on a worker thread, unless its first unit of work alone is longer: about 20 ms.
pub const STEPS_PER_WORKER_TURN: u64 = 200_000;
