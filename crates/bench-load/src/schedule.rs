//! Due times of messages in an open loop: independent of when earlier messages were sent or acknowledged.
//!
//! ```text
//!   index      0     1     2     3     4     5     6     7          due(i) = start + i * 1 s / rate
//!   due        |-----|-----|-----|-----|-----|-----|-----|-->       depends on nothing else
//!   sent       |-----|------------------|||--|-----|-----|-->       a sender that was blocked
//!                    ^ latency of 2, 3, 4 counts from when they were due
//! ```
//!
//! A sender that was blocked sends all messages that became due meanwhile at once; later due times do not move. If they moved, a
//! stall of the broker would show in the latency of a single message ("coordinated omission").

use crate::clock::SECOND_NS;

/// The due times of one producer out of several that share a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    start_ns: u64,
    end_ns: u64,
    rate: u64,
    /// The number of producers that share the rate, and the index of this one.
    producers: u64,
    producer: u64,
}

impl Schedule {
    /// Creates the schedule of producer number `producer`: `rate` messages a second over all `producers` together, in turns, from
    /// `start_ns` until before `end_ns` (Unix nanoseconds). A rate or number of producers of 0 counts as 1.
    #[must_use]
    pub fn new(start_ns: u64, end_ns: u64, rate: u64, producers: u32, producer: u32) -> Schedule {
        let producers = u64::from(producers.max(1));
        Schedule { start_ns, end_ns, rate: rate.max(1), producers, producer: u64::from(producer) }
    }

    /// Changes the end: no message is due from `end_ns` on. Due times do not move.
    pub fn end_at(&mut self, end_ns: u64) {
        self.end_ns = end_ns;
    }

    /// Returns when this producer's message number `index` is due. Unix nanoseconds.
    #[must_use]
    pub fn due_ns(&self, index: u64) -> u64 {
        let place = u128::from(index) * u128::from(self.producers) + u128::from(self.producer);
        let after = place * u128::from(SECOND_NS) / u128::from(self.rate);
        self.start_ns.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
    }

    /// Returns how many of this producer's messages are due by `now_ns`, counted from the start.
    #[must_use]
    pub fn due_count(&self, now_ns: u64) -> u64 {
        let until = now_ns.min(self.end_ns.saturating_sub(1));
        let Some(passed) = until.checked_sub(self.start_ns) else { return 0 };
        // The number of due times up to `until`: the largest p with p * second / rate <= passed, rounded down.
        let places = ((u128::from(passed) + 1) * u128::from(self.rate)).div_ceil(u128::from(SECOND_NS));
        let mine = places.saturating_sub(u128::from(self.producer)).div_ceil(u128::from(self.producers));
        u64::try_from(mine).unwrap_or(u64::MAX)
    }

    /// Returns how many messages this producer sends in total.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.due_count(self.end_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MS_NS;
    use crate::latency::Latency;

    const START: u64 = 1_000_000_000_000;

    #[test]
    fn due_times_and_their_count_agree() {
        for rate in [1, 7, 999, 10_000, 50_000, 333_333] {
            let schedules: Vec<_> = (0..3).map(|p| Schedule::new(START, START + SECOND_NS, rate, 3, p)).collect();
            for schedule in &schedules {
                assert_eq!(schedule.due_count(START - 1), 0);
                for index in [0, 1, 2, 100, 1000] {
                    let due = schedule.due_ns(index);
                    if due < START + SECOND_NS {
                        assert_eq!(schedule.due_count(due), index + 1, "rate {rate}, index {index}");
                        assert_eq!(schedule.due_count(due - 1), index, "rate {rate}, index {index}");
                    }
                }
            }
            assert_eq!(schedules.iter().map(Schedule::total).sum::<u64>(), rate, "one second's worth");
        }
    }

    /// Ten seconds at 10,000 a second, acknowledged after 1 ms except for a stall from 5.0 to 5.3 s: 3 % of all messages are due
    /// in the stall, the first waits for all of it, and later due times do not move.
    #[test]
    fn a_stall_of_300_ms_shows_in_the_tail() {
        let schedule = Schedule::new(START, START + 10 * SECOND_NS, 10_000, 1, 0);
        let (stall, resumes) = (START + 5 * SECOND_NS, START + 5 * SECOND_NS + 300 * MS_NS);
        let mut latency = Latency::new();
        let (mut sent, mut now) = (0, START);
        while sent < schedule.total() {
            if (stall..resumes).contains(&now) {
                now = resumes;
            }
            for index in sent..schedule.due_count(now) {
                latency.record(now + MS_NS - schedule.due_ns(index));
            }
            sent = schedule.due_count(now);
            now += MS_NS / 10;
        }
        assert_eq!(latency.count(), 100_000);
        let p99 = latency.percentile(99.0).expect("there are 1,000 samples beyond");
        assert!((195 * MS_NS..=206 * MS_NS).contains(&p99), "a third of the stalled messages is beyond p99: {p99}");
        assert!(
            (300 * MS_NS..=302 * MS_NS).contains(&latency.max()),
            "the first one waits for the whole stall: {}",
            latency.max()
        );
        assert_eq!(latency.percentile(50.0).map(|p50| p50 / MS_NS), Some(1), "the rest is unaffected");
    }
}
