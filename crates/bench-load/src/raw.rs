//! The raw Kafka driver: as little client as there can be, so that what is measured is the broker.
//!
//! ```text
//!   thread "bench-produce"                            thread "bench-read"
//!   schedule -> template, patched -> sockets          sockets -> batches -> stamps verified, ages taken
//!          <- acknowledgements -> latencies           long polls with fetch sessions (KIP-227)
//!                    |                                        |
//!                    '------ a tally a second ----------------'------> `worker`: the contract's lines
//! ```
//!
//! Two plain threads with `poll` and sockets that do not block: one thread serves all producers, one all readers. A runtime
//! would put a scheduler between the clock and the socket, and there is nothing for it to schedule.

pub mod frames;
pub mod producer;
pub mod reader;
pub mod template;

use crate::clock::{MS_NS, SECOND_NS};
use crate::contract::{DRAIN_MS_MAX, Measure, Second, Spec};
use crate::latency::Latency;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

/// What the two threads tell each other.
#[derive(Debug, Default)]
pub struct Shared {
    acked: AtomicU64,
    filtered: AtomicU64,
    produced: AtomicBool,
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Shared {
    /// Messages acknowledged so far.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.acked.load(Ordering::Acquire)
    }

    /// Adds acknowledged messages.
    pub fn add_acked(&self, count: u64) {
        self.acked.fetch_add(count, Ordering::AcqRel);
    }

    /// Says how many of those that were added, or are about to be, are in topics that filtering groups read.
    pub fn add_filtered(&self, count: u64) {
        self.filtered.fetch_add(count, Ordering::AcqRel);
    }

    /// Whether the producers have come to an end.
    #[must_use]
    pub fn produced(&self) -> bool {
        self.produced.load(Ordering::Acquire)
    }

    /// The producers have come to an end.
    pub fn set_produced(&self) {
        self.produced.store(true, Ordering::Release);
    }

    /// How many messages a group that reads everything should have; `None` while that is not known.
    #[must_use]
    pub fn wanted(&self, spec: &Spec) -> Option<u64> {
        self.wanted_of(spec, 0)
    }

    /// How many messages a group should have; `None` while that is not known.
    #[must_use]
    pub fn wanted_of(&self, spec: &Spec, group: u32) -> Option<u64> {
        let acked = || match spec.shape.filters(group, spec.groups) {
            Some(_) => self.filtered.load(Ordering::Acquire),
            None => self.acked(),
        };
        match spec.expect {
            0 => (spec.producers > 0 && self.produced()).then(acked),
            expect => Some(expect),
        }
    }

    /// Whether something went wrong that makes going on useless.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Stops with a reason that neither thread knows; the first one stays.
    pub fn fail(&self, why: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.stop();
    }

    /// That reason.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Something went wrong that makes going on useless.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// The times of a run. Unix nanoseconds. With an open warm-up those of the window are moved while both threads work.
#[derive(Debug)]
pub struct Times {
    start_ns: u64,
    measured_ns: AtomicU64,
    end_ns: AtomicU64,
}

impl Times {
    /// Of a run that starts at `start_ns`.
    #[must_use]
    pub fn new(start_ns: u64, warmup_ms: u64, window_ms: u64) -> Times {
        let times = Times { start_ns, measured_ns: AtomicU64::new(0), end_ns: AtomicU64::new(0) };
        let measure_ns = start_ns.saturating_add(warmup_ms.saturating_mul(MS_NS));
        times.measure(Measure { measure_ns, window_ms });
        times
    }

    /// Moves the window.
    pub fn measure(&self, stated: Measure) {
        let end_ns = stated.measure_ns.saturating_add(stated.window_ms.saturating_mul(MS_NS));
        self.measured_ns.store(stated.measure_ns, Ordering::Release);
        self.end_ns.store(end_ns, Ordering::Release);
    }

    /// The first message is due.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// No message is due from here on.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.end_ns.load(Ordering::Acquire)
    }

    /// Threads that have not ended now are stopped.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.end_ns().saturating_add(DRAIN_MS_MAX * MS_NS)
    }

    /// Whether the latency of a message that was due at `intended_ns` counts.
    #[must_use]
    pub fn measures(&self, intended_ns: u64) -> bool {
        (self.measured_ns.load(Ordering::Acquire)..self.end_ns()).contains(&intended_ns)
    }
}

/// Counts and latencies of a thread, in all and of the running second.
#[derive(Debug)]
pub struct Tally {
    start_ns: u64,
    second: Second,
    interval: Latency,
    total: Latency,
    seconds: Sender<Second>,
    publishes: bool,
    histograms: bool,
}

impl Tally {
    /// Of a run that starts at `start_ns`; what happened in a second goes to `seconds`. `publishes`: whether latencies are
    /// those of publishing or end to end.
    #[must_use]
    pub fn new(start_ns: u64, publishes: bool, seconds: Sender<Second>) -> Tally {
        let (second, interval, total) = (Second::default(), Latency::new(), Latency::new());
        Tally { start_ns, second, interval, total, seconds, publishes, histograms: false }
    }

    /// Tells the histograms of each second, if they are asked for.
    #[must_use]
    pub fn with_histograms(self, histograms: bool) -> Tally {
        Tally { histograms, ..self }
    }

    /// Counts messages handed to the broker.
    pub fn sent(&mut self, count: u64) {
        self.second.sent += count;
    }

    /// Counts messages acknowledged.
    pub fn acked(&mut self, count: u64) {
        self.second.acked += count;
    }

    /// Counts a message read.
    pub fn received(&mut self) {
        self.second.received += 1;
    }

    /// Takes `count` messages' latency; into the total only when `measured`.
    pub fn latency(&mut self, ns: u64, count: u64, measured: bool) {
        self.interval.record_many(ns, count);
        if measured {
            self.total.record_many(ns, count);
        }
    }

    /// Passes on the second that has ended by `now_ns`, if one has. `at_the_end`: passes on what there is.
    pub fn tick(&mut self, now_ns: u64, at_the_end: bool) {
        let now = now_ns.saturating_sub(self.start_ns) / SECOND_NS;
        if now == self.second.second && !at_the_end {
            return;
        }
        let (max, p99) = (self.interval.max(), self.interval.percentile(99.0));
        if self.publishes {
            (self.second.publish_max_ns, self.second.publish_p99_ns) = (max, p99);
            self.second.publish = self.histogram();
        } else {
            (self.second.end_to_end_max_ns, self.second.end_to_end_p99_ns) = (max, p99);
            self.second.end_to_end = self.histogram();
        }
        let ended = std::mem::replace(&mut self.second, Second { second: now, ..Second::default() });
        self.interval.clear();
        // No receiver is left when the worker has given up; then nothing is lost.
        let _ = self.seconds.send(ended);
    }

    fn histogram(&self) -> Option<String> {
        let stated = self.histograms && self.interval.count() > 0;
        stated.then(|| self.interval.to_text().ok()).flatten()
    }

    /// The latencies that were measured.
    #[must_use]
    pub fn into_latency(self) -> Latency {
        self.total
    }
}
