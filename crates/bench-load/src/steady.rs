//! When a broker and its client are warm: when another stretch of the same work costs what the last ones did.
//!
//! ```text
//!   seconds      0 ......... 10 ......... 20 ......... 30 ......... 40
//!   messages/s     31,000       48,000       49,900       50,000          steady: the last three windows differ by less than the
//!   CPU/message    9.1 us       4.2 us       2.0 us       1.9 us          tolerance, in both
//!                               |------------ no ------------|
//!                                            |----------- yes ------------|
//! ```
//!
//! A JVM compiles what it has run often enough, caches fill, files are laid out: that takes work, not time. So a warm-up ends when nothing
//! changes any more, not before its least time and least count, and not after its longest time: then it is reported as capped.

use crate::contract::Second;
use serde::{Deserialize, Serialize};

/// A difference of this share of one core in processor time is none: ticks are 10 ms, and an idle broker wakes now and then.
const CORE_SHARE_MIN: f64 = 0.01;
const PER_MILLE: f64 = 1_000.0;

/// When it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steadiness {
    /// The length of a window. Seconds.
    pub window_s: u32,
    /// How many windows in a row must agree.
    pub windows: u32,
    /// How much the largest of them may differ from the smallest. Thousandths of the largest.
    pub tolerance_per_mille: u32,
    /// The shortest warm-up. Seconds.
    pub least_s: u32,
    /// The fewest messages of a warm-up.
    pub least_messages: u64,
}

impl Steadiness {
    /// What comparisons are measured after.
    pub const FULL: Steadiness =
        Steadiness { window_s: 10, windows: 3, tolerance_per_mille: 50, least_s: 60, least_messages: 1_000_000 };
    /// What the rows behind the first page are measured after: shorter, for there are many of them.
    pub const SHORT: Steadiness =
        Steadiness { window_s: 1, windows: 3, tolerance_per_mille: 50, least_s: 3, least_messages: 10_000 };
    /// What shows that it works.
    pub const QUICK: Steadiness =
        Steadiness { window_s: 1, windows: 3, tolerance_per_mille: 200, least_s: 3, least_messages: 1_000 };

    /// For people.
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

/// How a warm-up is going.
#[derive(Debug, Clone)]
pub struct Warming {
    how: Steadiness,
    /// Messages, and the broker's processor time until its end, of each second. Seconds; `None`: nothing is known of it.
    seconds: Vec<(u64, Option<f64>)>,
}

impl Warming {
    /// One that begins.
    #[must_use]
    pub fn new(how: Steadiness) -> Warming {
        Warming { how, seconds: Vec::new() }
    }

    /// Takes a second and the broker's processor time since it began; gives whether it is warm.
    pub fn second(&mut self, second: &Second, broker_cpu_s: Option<f64>) -> bool {
        self.seconds.push((second.acked.max(second.received), broker_cpu_s));
        self.is_steady()
    }

    /// Messages so far.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.seconds.iter().map(|(messages, _)| messages).sum()
    }

    fn is_steady(&self) -> bool {
        let (length, windows) = (self.how.window_s.max(1) as usize, self.how.windows.max(1) as usize);
        if self.seconds.len() < self.how.least_s as usize || self.messages() < self.how.least_messages {
            return false;
        }
        // One second more than the windows: the processor time at their beginning.
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

    /// The second in which it is warm, counted from 1 on.
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
        assert_eq!(warm_at(HOW, compiling), Some(14), "a message must cost the same, too");
    }

    #[test]
    fn what_is_always_different_is_never_warm() {
        let swinging = (0..100).map(|second| (if second / 4 % 2 == 0 { 1_000 } else { 1_200 }, 0.5));
        assert_eq!(warm_at(HOW, swinging), None);
        assert_eq!(warm_at(HOW, vec![(0, 0.0); 100]), None, "nothing happens");
    }

    #[test]
    fn ticks_are_no_difference() {
        let ticks = (0..100).map(|second| (20, if second % 3 == 0 { 0.01 } else { 0.0 }));
        assert_eq!(warm_at(HOW, ticks), Some(7));
    }

    #[test]
    fn a_warm_up_takes_its_time_and_its_messages() {
        assert_eq!(warm_at(Steadiness { least_s: 50, ..HOW }, vec![(1_000, 0.5); 60]), Some(50));
        assert_eq!(warm_at(Steadiness { least_messages: 40_000, ..HOW }, vec![(1_000, 0.5); 60]), Some(40));
        let mut unknown = Warming::new(HOW);
        let second = Second { received: 500, ..Second::default() };
        let warm = (0..7).map(|_| unknown.second(&second, None)).collect::<Vec<_>>();
        assert_eq!(warm.last(), Some(&true), "of a broker of another the rate must do; readers work, too");
        assert_eq!(unknown.messages(), 3_500);
        assert!(HOW.describe(90_000).contains("3 windows of 2 s within 5 %"), "{}", HOW.describe(90_000));
    }
}
