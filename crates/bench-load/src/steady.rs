//! Steady state: broker and client are warm when consecutive windows have the same rate and cost per message.
//!
//! ```text
//!   seconds      0 ......... 10 ......... 20 ......... 30 ......... 40
//!   messages/s     31,000       48,000       49,900       50,000          steady: the last three windows differ by less than the
//!   CPU/message    9.1 us       4.2 us       2.0 us       1.9 us          tolerance, in both
//!                               |------------ no ------------|
//!                                            |----------- yes ------------|
//! ```
//!
//! JVMs compile frequently run code, caches fill, files are allocated: that depends on work, not on time. A warm-up ends in steady
//! state, after at least its minimum time and count, and at the latest after its maximum time: then it is reported as capped.

use crate::contract::Second;
use serde::{Deserialize, Serialize};

/// Differences in processor time up to this share of a core are ignored: ticks are 10 ms, and an idle broker has timers.
const CORE_SHARE_MIN: f64 = 0.01;
const PER_MILLE: f64 = 1_000.0;

/// Criteria of steady state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steadiness {
    /// The length of a window. Seconds.
    pub window_s: u32,
    /// Number of consecutive windows that must agree.
    pub windows: u32,
    /// Allowed difference between the largest and the smallest of them. Thousandths of the largest.
    pub tolerance_per_mille: u32,
    /// Minimum length of a warm-up. Seconds.
    pub least_s: u32,
    /// Minimum number of messages of a warm-up.
    pub least_messages: u64,
}

impl Steadiness {
    /// For comparisons.
    pub const FULL: Steadiness =
        Steadiness { window_s: 10, windows: 3, tolerance_per_mille: 50, least_s: 60, least_messages: 1_000_000 };
    /// For the many rows behind the first page: shorter.
    pub const SHORT: Steadiness =
        Steadiness { window_s: 1, windows: 3, tolerance_per_mille: 50, least_s: 3, least_messages: 10_000 };
    /// For smoke runs.
    pub const QUICK: Steadiness =
        Steadiness { window_s: 1, windows: 3, tolerance_per_mille: 200, least_s: 3, least_messages: 1_000 };

    /// Formats the criteria for reports.
    #[must_use]
    pub fn describe(&self, cap_ms: u64) -> String {
        format!(
            "until steady ({} windows of {} s within {} %), at least {} s and {} messages, at most {} s",
            self.windows,
            self.window_s,
            f64::from(self.tolerance_per_mille) / PER_MILLE * 100.0,
            self.least_s,
            self.least_messages,
            cap_ms / 1_000
        )
    }
}

/// The progress of a warm-up.
#[derive(Debug, Clone)]
pub struct Warming {
    how: Steadiness,
    /// For each second: messages, and the broker's processor time (seconds) at its end, `None` if unknown.
    seconds: Vec<(u64, Option<f64>)>,
}

impl Warming {
    /// Starts a warm-up.
    #[must_use]
    pub fn new(how: Steadiness) -> Warming {
        Warming { how, seconds: Vec::new() }
    }

    /// Records a second and the broker's processor time so far. Returns whether steady state is reached.
    pub fn second(&mut self, second: &Second, broker_cpu_s: Option<f64>) -> bool {
        self.seconds.push((second.acked.max(second.received), broker_cpu_s));
        self.is_steady()
    }

    /// Returns the number of messages so far.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.seconds.iter().map(|(messages, _)| messages).sum()
    }

    fn is_steady(&self) -> bool {
        let (length, windows) = (self.how.window_s.max(1) as usize, self.how.windows.max(1) as usize);
        if self.seconds.len() < self.how.least_s as usize || self.messages() < self.how.least_messages {
            return false;
        }
        // One more second than the windows: it has the processor time at their start.
        let Some(begin) = self.seconds.len().checked_sub(length * windows + 1) else { return false };
        let last = self.seconds.get(begin..).unwrap_or_default();
        let (mut rates, mut cpus) = (Vec::new(), Vec::new());
        for window in 0..windows {
            let Some(part) = last.get(window * length..=(window + 1) * length) else { return false };
            let messages: u64 = part.iter().skip(1).map(|(messages, _)| messages).sum();
            rates.push(messages as f64);
            let span = part.first().and_then(|first| first.1).zip(part.last().and_then(|last| last.1));
            cpus.extend(span.map(|(from, to)| (to - from, (to - from) / messages.max(1) as f64)));
        }
        let (used, each): (Vec<f64>, Vec<f64>) = cpus.into_iter().unzip();
        let tolerance = f64::from(self.how.tolerance_per_mille) / PER_MILLE;
        let small = spread(&used).is_none_or(|(most, least)| most - least <= CORE_SHARE_MIN * length as f64);
        agree(&rates, tolerance) && (small || agree(&each, tolerance))
    }
}

fn spread(values: &[f64]) -> Option<(f64, f64)> {
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    Some((most, values.iter().copied().min_by(f64::total_cmp)?))
}

fn agree(values: &[f64], tolerance: f64) -> bool {
    spread(values).is_some_and(|(most, least)| most > 0.0 && most - least <= tolerance * most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOW: Steadiness =
        Steadiness { window_s: 2, windows: 3, tolerance_per_mille: 50, least_s: 6, least_messages: 100 };

    /// Returns the second, counted from 1, in which steady state is reached.
    fn warm_at(how: Steadiness, seconds: impl IntoIterator<Item = (u64, f64)>) -> Option<usize> {
        let (mut warming, mut cpu) = (Warming::new(how), 0.0);
        seconds
            .into_iter()
            .position(|(acked, cpu_s)| {
                cpu += cpu_s;
                warming.second(&Second { acked, ..Second::default() }, Some(cpu))
            })
            .map(|place| place + 1)
    }

    #[test]
    fn a_warm_up_ends_when_three_windows_agree() {
        assert_eq!(warm_at(HOW, vec![(1_000, 0.5); 20]), Some(7), "three windows, and the second before them");
        let rising = (0..8).map(|second| (1_000 + 100 * second, 0.5)).chain(vec![(1_800, 0.5); 10]);
        assert_eq!(warm_at(HOW, rising), Some(13), "all but the last step is out of the windows");
        let compiling = (0..8).map(|second| (1_000, 0.9 - 0.1 * f64::from(second))).chain(vec![(1_000, 0.1); 20]);
        assert_eq!(warm_at(HOW, compiling), Some(14), "the cost per message must agree, too");
    }

    #[test]
    fn a_changing_rate_is_never_steady() {
        let swinging = (0..100).map(|second| (if second / 4 % 2 == 0 { 1_000 } else { 1_200 }, 0.5));
        assert_eq!(warm_at(HOW, swinging), None);
        assert_eq!(warm_at(HOW, vec![(0, 0.0); 100]), None, "no messages");
    }

    #[test]
    fn differences_of_a_tick_are_ignored() {
        let ticks = (0..100).map(|second| (20, if second % 3 == 0 { 0.01 } else { 0.0 }));
        assert_eq!(warm_at(HOW, ticks), Some(7));
    }

    #[test]
    fn a_warm_up_has_a_minimum_time_and_count() {
        assert_eq!(warm_at(Steadiness { least_s: 50, ..HOW }, vec![(1_000, 0.5); 60]), Some(50));
        assert_eq!(warm_at(Steadiness { least_messages: 40_000, ..HOW }, vec![(1_000, 0.5); 60]), Some(40));
        let mut unknown = Warming::new(HOW);
        let second = Second { received: 500, ..Second::default() };
        let warm = (0..7).map(|_| unknown.second(&second, None)).collect::<Vec<_>>();
        assert_eq!(warm.last(), Some(&true), "without processor time the rate decides; received messages count, too");
        assert_eq!(unknown.messages(), 3_500);
        assert!(HOW.describe(90_000).contains("3 windows of 2 s within 5 %"), "{}", HOW.describe(90_000));
    }
}
