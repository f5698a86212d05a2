//! How a load is measured: the same for every target, and part of the conditions.

use crate::cgroup::{MemoryGroup, Room};
use crate::ladder::Ladder;
use crate::pin::Split;
use crate::steady::Steadiness;

/// When a warm-up ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WarmUp {
    /// After its time.
    #[default]
    Fixed,
    /// When the run is steady; its time is then the maximum.
    Steady(Steadiness),
}

/// The cores of broker and client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pinning {
    /// All cores for both.
    #[default]
    Unpinned,
    /// Separate cores ([`Split`]).
    Split,
}

impl Pinning {
    /// Returns the split for this machine, if wanted and there are enough cores.
    #[must_use]
    pub fn split(self) -> Option<Split> {
        match self {
            Pinning::Unpinned => None,
            Pinning::Split => Split::here(),
        }
    }

    /// Describes it.
    #[must_use]
    pub fn describe(self) -> String {
        self.split().map_or_else(unpinned, |split| split.describe())
    }
}

/// Returns the text for no pinning.
#[must_use]
pub fn unpinned() -> String {
    "unpinned".to_owned()
}

/// How a load is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct How {
    /// The end of the warm-up of a run by time.
    pub warm_up: WarmUp,
    /// The cores of broker and client.
    pub pinning: Pinning,
    /// Whether a short separate run counts the broker's flushes.
    pub trace_flushes: bool,
    /// Delay of each flush of the broker. Milliseconds; then the run itself counts them.
    pub flush_delay_ms: u64,
    /// Memory limit of the broker, page cache included, if the machine permits a control group. Bytes; 0: unlimited.
    pub memory_limit_bytes: u64,
    /// Warm-up of the further rounds if a broker stays up for all rounds of its cell; 0: each round has its own
    /// broker. Milliseconds.
    pub again_warmup_ms: u64,
    /// The rates of a ladder cell.
    pub ladder: Option<Ladder>,
}

impl How {
    /// Describes the warm-up of a run by time with this maximum; empty if it is fixed.
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

    /// Describes the memory limit; empty if unlimited.
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
