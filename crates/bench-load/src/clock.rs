//! The clocks of a measurement.
//!
//! Messages carry the wall time at which they should have been sent, so that another process can compute their age. Wall time
//! may be adjusted during a run, so each process reads it once and continues with the monotonic clock.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::Duration;

/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const MS_NS: u64 = 1_000_000;

fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(SECOND_NS).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Nanoseconds since an arbitrary moment; never decreases.
#[must_use]
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds since the Unix epoch, ignoring adjustments of the clock since the process started.
#[must_use]
pub fn unix_ns() -> u64 {
    static EPOCH: OnceLock<u64> = OnceLock::new();
    let epoch = EPOCH.get_or_init(|| nanoseconds(clock_gettime(ClockId::Realtime)).saturating_sub(monotonic_ns()));
    monotonic_ns().saturating_add(*epoch)
}

/// Processor time that this process has used, in nanoseconds.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

/// Processor time that this thread has used, in nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

/// Nanoseconds as seconds.
#[must_use]
pub fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

/// Converts a duration for `poll`.
#[must_use]
pub fn timespec(ns: u64) -> Timespec {
    let part = |value: u64| value.try_into().unwrap_or(0);
    Timespec { tv_sec: part(ns / SECOND_NS), tv_nsec: part(ns % SECOND_NS) }
}

/// Waits until [`unix_ns`] has reached `at_ns`.
pub fn wait_until(at_ns: u64) {
    let now = unix_ns();
    if at_ns > now {
        std::thread::sleep(Duration::from_nanos(at_ns - now));
    }
}

/// Reduces this thread's timer slack, which is 50 microseconds by default. If the kernel
/// refuses, the slack is part of every latency, on all sides alike.
pub fn wake_sharply() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}
