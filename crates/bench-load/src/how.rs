//! How a load is measured: what is the same for every target, and stands in the conditions.

use crate::cgroup::{MemoryGroup, Room};
use crate::ladder::Ladder;
use crate::pin::Split;
use crate::steady::Steadiness;

/// When a warm-up is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WarmUp {
    /// When its time is.
    #[default]
    Fixed,
    /// When nothing changes any more; its time is then the longest that it may take.
    Steady(Steadiness),
}

/// Which cores broker and client have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pinning {
    /// All of them, both.
    #[default]
    Unpinned,
    /// Cores of their own ([`Split`]).
    Split,
}

impl Pinning {
    /// The split of this machine, where one is asked for and there are cores enough.
    #[must_use]
    pub fn split(self) -> Option<Split> {
        match self {
            Pinning::Unpinned => None,
            Pinning::Split => Split::here(),
        }
    }

    /// For people.
    #[must_use]
    pub fn describe(self) -> String {
        self.split().map_or_else(unpinned, |split| split.describe())
    }
}

/// What is said where nothing is pinned.
#[must_use]
pub fn unpinned() -> String {
    "unpinned".to_owned()
}

/// How it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct How {
    /// When the warm-up of a run by time is over.
    pub warm_up: WarmUp,
    /// Which cores broker and client have.
    pub pinning: Pinning,
    /// Whether a short run of its own counts the broker's flushes.
    pub trace_flushes: bool,
    /// How long each flush of the broker is held before it starts. Milliseconds; then the run itself counts them.
    pub flush_delay_ms: u64,
    /// What the broker may use, page cache included, where the machine has a control group for it. Bytes; 0: everything.
    pub memory_limit_bytes: u64,
    /// The warm-up of the further rounds of a broker's life, where it stays up for all rounds of its cell; 0: each round has a broker of
    /// its own. Milliseconds.
    pub again_warmup_ms: u64,
    /// The rates that are stepped, for such a cell.
    pub ladder: Option<Ladder>,
}

impl How {
    /// How a run by time is warmed up, when its warm-up takes at most so long; empty: for that time.
    #[must_use]
    pub fn warm_up(&self, warmup_ms: u64) -> String {
        match self.warm_up {
            WarmUp::Fixed => String::new(),
            WarmUp::Steady(steadiness) => {
                let first = steadiness.describe(warmup_ms);
                match self.again_warmup_ms {
                    0 => first,
                    again => format!("{first}; {} s in later rounds, warm from round 1", again as f64 / 1e3),
                }
            }
        }
    }

    /// What the broker may use; empty: everything.
    #[must_use]
    pub fn memory(&self) -> String {
        let room = MemoryGroup::place().map(|_| Room::Group(self.memory_limit_bytes));
        match room {
            _ if self.memory_limit_bytes == 0 => String::new(),
            Some(room) => {
                format!(
                    "a control group of {} MiB; of a JVM at most a third as heap and a third beside it",
                    room.bytes() >> 20
                )
            }
            None => "the machine's: it has no control group for a broker".to_owned(),
        }
    }
}
