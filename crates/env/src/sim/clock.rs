//! Time that is advanced by hand, threads that are not spawned, and an end that is only noted.

use super::SimDisk;
use crate::{Clock, Fatal, JoinTask, Tasks};
use parking_lot::Mutex;
use polylogue_types::TimestampMs;
use std::io;
use std::sync::Arc;

/// Nanoseconds in a millisecond.
const NS_PER_MS: u64 = 1_000_000;
/// Where wall time starts: 2025-01-01T00:00:00Z, milliseconds since the Unix epoch.
const START_MS: TimestampMs = 1_735_689_600_000;

/// A clock that stands still until it is advanced. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct SimClock {
    now: Arc<Mutex<Now>>,
}

#[derive(Debug)]
struct Now {
    monotonic_ns: u64,
    /// Wall time minus monotonic time.
    wall_offset_ms: i64,
}

impl Default for Now {
    fn default() -> Now {
        Now { monotonic_ns: 0, wall_offset_ms: START_MS }
    }
}

impl SimClock {
    /// Both kinds of time move on by `ms` milliseconds.
    pub fn advance_ms(&self, ms: u64) {
        self.advance_ns(ms.saturating_mul(NS_PER_MS));
    }

    /// Both kinds of time move on by `ns` nanoseconds.
    pub fn advance_ns(&self, ns: u64) {
        let mut now = self.now.lock();
        now.monotonic_ns = now.monotonic_ns.saturating_add(ns);
    }

    /// Sets the wall clock: it jumps by `ms`, back too. Monotonic time is unaffected.
    pub fn jump_wall_ms(&self, ms: i64) {
        let mut now = self.now.lock();
        now.wall_offset_ms = now.wall_offset_ms.saturating_add(ms);
    }
}

impl Clock for SimClock {
    fn now_ms(&self) -> TimestampMs {
        let now = self.now.lock();
        let passed = i64::try_from(now.monotonic_ns / NS_PER_MS).unwrap_or(i64::MAX);
        now.wall_offset_ms.saturating_add(passed)
    }

    fn monotonic_ns(&self) -> u64 {
        self.now.lock().monotonic_ns
    }
}

/// Gives no threads: what runs in the simulator is stepped.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimTasks;

impl Tasks for SimTasks {
    fn spawn(&self, name: &str, _body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn JoinTask>> {
        let text = format!("the simulator starts no threads: step {name} instead");
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }
}

/// Notes that a node has ended itself, and stops its disk, because a process that has ended writes nothing. Clones
/// share the note.
#[derive(Clone, Debug, Default)]
pub struct SimFatal {
    reason: Arc<Mutex<Option<String>>>,
    disk: Option<SimDisk>,
}

impl SimFatal {
    /// One that also stops `disk` (see [`SimDisk::stop`]). Give it a disk handle of one life
    /// ([`SimDisk::of_this_life`]), so that what is left of an earlier life cannot stop a later one.
    #[must_use]
    pub fn stopping(disk: SimDisk) -> SimFatal {
        SimFatal { reason: Arc::default(), disk: Some(disk) }
    }

    /// What the first call of [`Fatal::fatal`] said.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.reason.lock().clone()
    }
}

impl Fatal for SimFatal {
    fn fatal(&self, why: &str) {
        self.reason.lock().get_or_insert_with(|| why.to_owned());
        if let Some(disk) = &self.disk {
            disk.stop();
        }
    }

    fn is_fatal(&self) -> bool {
        self.reason.lock().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_only_when_told() {
        let clock = SimClock::default();
        let other = clock.clone();
        assert_eq!((clock.now_ms(), clock.monotonic_ns()), (START_MS, 0));
        clock.advance_ms(5);
        clock.advance_ns(999_999);
        assert_eq!((other.now_ms(), other.monotonic_ns()), (START_MS + 5, 5_999_999));
    }

    #[test]
    fn wall_time_jumps_back_and_monotonic_time_does_not() {
        let clock = SimClock::default();
        clock.advance_ms(10);
        clock.jump_wall_ms(-60_000);
        assert_eq!((clock.now_ms(), clock.monotonic_ns()), (START_MS - 59_990, 10 * NS_PER_MS));
    }

    #[test]
    fn threads_are_refused() {
        let refused = SimTasks.spawn("flusher", Box::new(|| ()));
        assert_eq!(refused.map(drop).map_err(|e| e.kind()), Err(io::ErrorKind::Unsupported));
    }

    #[test]
    fn the_first_reason_is_kept() {
        let fatal = SimFatal::default();
        assert!(!fatal.is_fatal());
        fatal.fatal("first");
        fatal.clone().fatal("second");
        assert!(fatal.is_fatal());
        assert_eq!(fatal.reason().as_deref(), Some("first"));
    }
}
