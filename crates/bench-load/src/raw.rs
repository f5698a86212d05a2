//! The raw Kafka driver: a client with minimal overhead, so that the broker is measured and not the client.
//!
//! ```text
//!   thread "bench-produce"                            thread "bench-read"
//!   schedule -> template, patched -> sockets          sockets -> batches -> stamps verified, ages taken
//!          <- acknowledgements -> latencies           long polls with fetch sessions (KIP-227)
//!                    |                                        |
//!                    '------ a tally a second ----------------'------> `worker`: the contract's lines
//! ```
//!
//! Two threads with `poll` and non-blocking sockets: one serves all producers, the other all readers. An async runtime would
//! put a scheduler between the clock and the socket.

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

/// State shared by the two threads.
#[derive(Debug, Default)]
pub struct Shared {
    acked: AtomicU64,
    filtered: AtomicU64,
    produced: AtomicBool,
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Shared {
    /// Returns the number of acknowledged messages so far.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.acked.load(Ordering::Acquire)
    }

    /// Counts acknowledged messages.
    pub fn add_acked(&self, count: u64) {
        self.acked.fetch_add(count, Ordering::AcqRel);
    }

    /// Counts acknowledged messages in topics that groups with a filter read, a subset of [`Shared::acked`].
    pub fn add_filtered(&self, count: u64) {
        self.filtered.fetch_add(count, Ordering::AcqRel);
    }

    /// Returns whether the producers have finished.
    #[must_use]
    pub fn produced(&self) -> bool {
        self.produced.load(Ordering::Acquire)
    }

    /// Marks the producers as finished.
    pub fn set_produced(&self) {
        self.produced.store(true, Ordering::Release);
    }

    /// Returns how many messages a group without a filter must receive. `None` while the producers run.
    #[must_use]
    pub fn wanted(&self, spec: &Spec) -> Option<u64> {
        self.wanted_of(spec, 0)
    }

    /// Returns how many messages a group must receive. `None` while the producers run.
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

    /// Returns whether a thread has stopped the run because of an error.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Stops the run with an error from outside the two threads. The first error is kept.
    pub fn fail(&self, why: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.stop();
    }

    /// Returns the error of [`Shared::fail`].
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops the run.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

/// The times of a run. Unix nanoseconds. With an open warm-up, the measurement window is set while both threads run.
#[derive(Debug)]
pub struct Times {
    start_ns: u64,
    measured_ns: AtomicU64,
    end_ns: AtomicU64,
}

impl Times {
    /// Creates the times of a run that starts at `start_ns`.
    #[must_use]
    pub fn new(start_ns: u64, warmup_ms: u64, window_ms: u64) -> Times {
        let times = Times { start_ns, measured_ns: AtomicU64::new(0), end_ns: AtomicU64::new(0) };
        let measure_ns = start_ns.saturating_add(warmup_ms.saturating_mul(MS_NS));
        times.measure(Measure { measure_ns, window_ms });
        times
    }

    /// Sets the measurement window.
    pub fn measure(&self, stated: Measure) {
        let end_ns = stated.measure_ns.saturating_add(stated.window_ms.saturating_mul(MS_NS));
        self.measured_ns.store(stated.measure_ns, Ordering::Release);
        self.end_ns.store(end_ns, Ordering::Release);
    }

    /// Returns when the first message is due.
    #[must_use]
    pub fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// Returns the end of the window: no message is due from then on.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.end_ns.load(Ordering::Acquire)
    }

    /// Returns the deadline of both threads, which then stop with an error.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.end_ns().saturating_add(DRAIN_MS_MAX * MS_NS)
    }

    /// Returns whether a message that was due at `intended_ns` is in the window.
    #[must_use]
    pub fn measures(&self, intended_ns: u64) -> bool {
        (self.measured_ns.load(Ordering::Acquire)..self.end_ns()).contains(&intended_ns)
    }
}

/// Counts and latencies of a thread, in total and of the current second.
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
    /// Creates the tally of a run that starts at `start_ns`; sends each second to `seconds`. `publishes`: latencies are of
    /// publishing, else end to end.
    #[must_use]
    pub fn new(start_ns: u64, publishes: bool, seconds: Sender<Second>) -> Tally {
        let (second, interval, total) = (Second::default(), Latency::new(), Latency::new());
        Tally { start_ns, second, interval, total, seconds, publishes, histograms: false }
    }

    /// Includes a latency histogram with each second, if requested.
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

    /// Records the latency of `count` messages; in the total only if `measured`.
    pub fn latency(&mut self, ns: u64, count: u64, measured: bool) {
        self.interval.record_many(ns, count);
        if measured {
            self.total.record_many(ns, count);
        }
    }

    /// Sends the current second if it has ended by `now_ns`. `at_the_end`: sends it in any case.
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
        // Fails only when the worker has stopped after an error.
        let _ = self.seconds.send(ended);
    }

    fn histogram(&self) -> Option<String> {
        let stated = self.histograms && self.interval.count() > 0;
        stated.then(|| self.interval.to_text().ok()).flatten()
    }

    /// Returns the latencies in the measurement window.
    #[must_use]
    pub fn into_latency(self) -> Latency {
        self.total
    }
}
