//! Increasing rates, and the highest one that is met.
//!
//! ```text
//!   published     10,000     50,000    100,000    200,000    500,000        x 0.5: the machine is smaller
//!   stepped        5,000 ok  25,000 ok  50,000 ok 100,000 no                one broker, all steps of the same length
//!   searched                                75,000 ok   87,500 no           bisection between the last rate met and the first one
//!                                                                           missed
//!   confirmed                               75,000 ok                       a run of full length; otherwise the search continues below it, or the
//!                                                                           next lower rate that was met is confirmed
//! ```
//!
//! A rate is met if at least 99 % of it is acknowledged in time, the backlog does not grow, and there are no errors. No latency is given for a
//! rate that was missed.

use crate::contract::{Done, Second, whole_seconds};
use std::fmt;

/// A rate is met if this share of the messages was acknowledged within [`HELD_S`] after the last one was due.
pub const HELD_SHARE: f64 = 0.99;
/// See [`HELD_SHARE`].
pub const HELD_S: f64 = 1.0;
/// A backlog that has grown by less than this time's messages counts as constant: seconds are not cut between messages.
const GROWN_S_MIN: f64 = 0.1;
/// How often a searched maximum that is missed in its full run is replaced by the next lower one.
const CONFIRMS_MAX: usize = 3;
/// The search ends when its bounds are this close. A share of the upper one.
const CLOSE_SHARE: f64 = 0.02;
const PER_MILLE: u64 = 1_000;

/// The rates of a ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ladder {
    /// The published rates, ascending. Messages per second.
    pub published: &'static [u64],
    /// Their scale. Thousandths.
    pub scale_per_mille: u64,
    /// Length of a step. Milliseconds.
    pub step_ms: u64,
    /// Discarded time at its start. Milliseconds.
    pub step_warmup_ms: u64,
    /// Number of bisections for the maximum; 0: none.
    pub search_steps: u32,
}

impl Ladder {
    /// Returns the rates to run, each once.
    #[must_use]
    pub fn rates(&self) -> Vec<u64> {
        let scaled = |rate: &u64| (rate.saturating_mul(self.scale_per_mille) / PER_MILLE).max(1);
        let mut rates: Vec<u64> = self.published.iter().map(scaled).collect();
        rates.sort_unstable();
        rates.dedup();
        rates
    }
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed = |rates: &[u64]| rates.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        write!(f, "published {}; run {}", listed(self.published), listed(&self.rates()))?;
        write!(f, ", {} s each, {} halvings", self.step_ms as f64 / 1e3, self.search_steps)
    }
}

/// The next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A rate, for the length of a step.
    Try(u64),
    /// A rate, for the length of the window.
    Confirm(u64),
}

/// The progress on a ladder.
#[derive(Debug, Clone)]
pub struct Climb {
    /// The remaining rates, the lowest last.
    left: Vec<u64>,
    held: Vec<u64>,
    /// The lowest one that was missed.
    missed: Option<u64>,
    halvings: u32,
    searches: bool,
    refused: usize,
    confirmed: Option<u64>,
}

impl Climb {
    /// Starts on a ladder.
    #[must_use]
    pub fn new(ladder: &Ladder) -> Climb {
        let mut left = ladder.rates();
        left.reverse();
        Climb {
            left,
            held: Vec::new(),
            missed: None,
            halvings: ladder.search_steps,
            searches: ladder.search_steps > 0,
            refused: 0,
            confirmed: None,
        }
    }

    /// Returns the next run, if any.
    #[must_use]
    pub fn next(&self) -> Option<Step> {
        match (self.missed, self.left.last()) {
            (None, Some(rate)) => return Some(Step::Try(*rate)),
            (Some(missed), _) if self.halvings > 0 => {
                let low = self.highest().unwrap_or(0);
                let middle = low + (missed - low) / 2;
                if middle > low && (missed - low) as f64 > CLOSE_SHARE * missed as f64 {
                    return Some(Step::Try(middle));
                }
            }
            _ => {}
        }
        let open = self.searches && self.confirmed.is_none() && self.refused < CONFIRMS_MAX;
        self.highest().filter(|_| open).map(Step::Confirm)
    }

    /// Records the result of a run.
    pub fn stated(&mut self, step: Step, held: bool) {
        match step {
            Step::Try(rate) => {
                // A rate of the ladder is removed; a searched rate is not in the list.
                self.left.pop_if(|next| *next == rate);
                if self.missed.is_some() {
                    self.halvings = self.halvings.saturating_sub(1);
                }
                if held {
                    self.held.push(rate);
                } else {
                    self.missed = Some(self.missed.map_or(rate, |missed| missed.min(rate)));
                }
            }
            Step::Confirm(rate) if held => self.confirmed = Some(rate),
            Step::Confirm(rate) => {
                // With bisections left the search continues below: the next rate of the ladder may be half of it.
                self.held.retain(|kept| *kept != rate);
                self.missed = Some(self.missed.map_or(rate, |missed| missed.min(rate)));
                self.refused += 1;
            }
        }
    }

    fn highest(&self) -> Option<u64> {
        self.held.iter().copied().max()
    }

    /// Whether the result is the ladder's highest rate: the broker may reach more.
    #[must_use]
    pub fn ends_at(&self, ladder: &Ladder) -> bool {
        self.maximum().is_some_and(|maximum| ladder.rates().last() == Some(&maximum))
    }

    /// Returns the highest rate met: with a search the confirmed one, without one the highest step.
    #[must_use]
    pub fn maximum(&self) -> Option<u64> {
        if self.searches { self.confirmed } else { self.highest() }
    }
}

/// The results of a run at a fixed rate.
#[derive(Debug, Clone, Copy)]
pub struct Ran<'a> {
    /// The target rate. Messages per second.
    pub rate: u64,
    /// Groups that read everything.
    pub groups: u32,
    /// Time from the start to the window. Milliseconds.
    pub warmup_ms: u64,
    /// The window. Milliseconds.
    pub window_ms: u64,
    /// Messages due in the window that were acknowledged.
    pub acked: u64,
    /// The final report.
    pub done: &'a Done,
    /// The reports of each second.
    pub seconds: &'a [Second],
}

impl Ran<'_> {
    /// Returns the acknowledged share of messages due in the window.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.acked as f64 / (self.rate as f64 * self.window_ms as f64 / 1e3)
    }

    /// Returns how long after the last message was due the last acknowledgement arrived. Seconds.
    #[must_use]
    pub fn late_s(&self) -> f64 {
        self.done.publish_s - (self.warmup_ms + self.window_ms) as f64 / 1e3
    }

    /// Returns the growth of the backlog in the window: due and unacknowledged messages, or sent and unread ones of a group, whichever
    /// grows faster. Messages per second.
    #[must_use]
    pub fn growth_per_s(&self) -> f64 {
        let mut acked = 0;
        let unacked = |second: &Second| {
            acked += second.acked;
            (self.rate * (second.second + 1)) as f64 - acked as f64
        };
        let unread: Vec<f64> = backlogs(self.seconds, self.groups).into_iter().map(|left| left as f64).collect();
        if self.rate == 0 {
            // Nothing was due.
            return self.slope(&unread);
        }
        let unacked: Vec<f64> = self.seconds.iter().map(unacked).collect();
        self.slope(&unread).max(self.slope(&unacked))
    }

    /// Returns the slope of a per-second value in the window.
    fn slope(&self, values: &[f64]) -> f64 {
        let whole = whole_seconds(self.warmup_ms, self.window_ms);
        let points = (0_u64..).zip(values).filter(|(second, _)| whole.contains(second));
        slope(points.map(|(second, value)| (second as f64, *value)))
    }

    /// Checks whether the rate was met.
    ///
    /// # Errors
    /// Why it was missed.
    pub fn held(&self) -> Result<(), String> {
        if self.done.errors > 0 {
            return Err(format!("{} messages not acknowledged", self.done.errors));
        }
        if let Some(error) = &self.done.error {
            return Err(error.clone());
        }
        if self.share() < HELD_SHARE || self.late_s() > HELD_S {
            return Err(format!("{:.1} % acknowledged, the last {:.2} s late", self.share() * 100.0, self.late_s()));
        }
        if self.grows(self.rate as f64) {
            return Err(format!("the backlog grew by {:.0} messages a second", self.growth_per_s()));
        }
        Ok(())
    }

    /// Whether the readers of a run at an unlimited rate fell behind.
    #[must_use]
    pub fn fell_behind(&self) -> bool {
        self.grows(self.acked as f64 / (self.window_ms as f64 / 1e3))
    }

    /// Whether the backlog grows significantly, given the write rate.
    fn grows(&self, rate: f64) -> bool {
        let growth = self.growth_per_s();
        growth > (1.0 - HELD_SHARE) * rate && growth * self.window_ms as f64 / 1e3 / rate > GROWN_S_MIN
    }
}

/// Returns a group's unread messages at the end of each second: sent minus received; empty without groups.
#[must_use]
pub fn backlogs(seconds: &[Second], groups: u32) -> Vec<u64> {
    let Some(groups) = std::num::NonZeroU64::new(groups.into()) else { return Vec::new() };
    let (mut sent, mut received) = (0_u64, 0_u64);
    let left = |second: &Second| {
        sent += second.sent;
        received += second.received;
        sent.saturating_sub(received / groups)
    };
    seconds.iter().map(left).collect()
}

/// Returns the slope of the linear regression; 0 for fewer than two points.
fn slope(points: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let count = points.clone().count() as f64;
    let mean = |of: fn((f64, f64)) -> f64| points.clone().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let (over, under) = points.fold((0.0, 0.0), |(over, under), point| {
        (over + (point.0 - x) * (point.1 - y), under + (point.0 - x) * (point.0 - x))
    });
    if under > 0.0 { over / under } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LADDER: Ladder = Ladder {
        published: &[10_000, 50_000, 100_000, 200_000, 500_000],
        scale_per_mille: 500,
        step_ms: 20_000,
        step_warmup_ms: 5_000,
        search_steps: 3,
    };

    /// Runs a ladder with a broker defined by `holds`; returns the steps and the maximum.
    fn climb(ladder: &Ladder, holds: impl Fn(Step) -> bool) -> (Vec<Step>, Option<u64>) {
        let (mut climb, mut steps) = (Climb::new(ladder), Vec::new());
        while let Some(step) = climb.next() {
            assert!(steps.len() < 20, "it never ends: {steps:?}");
            steps.push(step);
            climb.stated(step, holds(step));
        }
        (steps, climb.maximum())
    }

    fn up_to(most: u64) -> impl Fn(Step) -> bool {
        move |step| matches!(step, Step::Try(rate) | Step::Confirm(rate) if rate <= most)
    }

    #[test]
    fn the_maximum_is_searched_between_the_last_that_held_and_the_first_that_did_not() {
        let (steps, maximum) = climb(&LADDER, up_to(80_000));
        let tried = [5_000, 25_000, 50_000, 100_000, 75_000, 87_500, 81_250].map(Step::Try);
        assert_eq!(steps, [&tried[..], &[Step::Confirm(75_000)]].concat());
        assert_eq!(maximum, Some(75_000));
    }

    #[test]
    fn a_maximum_that_does_not_hold_is_given_up_for_the_next_lower_one() {
        let weak = |step| match step {
            Step::Try(rate) => rate <= 80_000,
            Step::Confirm(rate) => rate <= 60_000,
        };
        let (steps, maximum) = climb(&LADDER, weak);
        assert_eq!(steps[7..], [75_000, 50_000].map(Step::Confirm));
        assert_eq!(maximum, Some(50_000));
        let (steps, maximum) = climb(&LADDER, |step| matches!(step, Step::Try(rate) if rate <= 80_000));
        assert_eq!(steps.len(), 7 + CONFIRMS_MAX, "{steps:?}");
        assert_eq!(maximum, None, "nothing counts that no fixed rate holds");
    }

    /// Regression test: a peer whose highest step was missed in the full run was recorded with the step below, half of it.
    #[test]
    fn below_a_step_that_does_not_hold_for_long_is_searched() {
        let weak = |step| match step {
            Step::Try(_) => true,
            Step::Confirm(rate) => rate <= 200_000,
        };
        let (steps, maximum) = climb(&LADDER, weak);
        assert_eq!(steps[5], Step::Confirm(250_000), "{steps:?}");
        let tried = [175_000, 212_500, 231_250].map(Step::Try);
        assert_eq!(steps[6..], [&tried[..], &[231_250, 212_500].map(Step::Confirm)].concat());
        assert_eq!(maximum, None, "three were refused");
        let (steps, maximum) = climb(&LADDER, |step| matches!(step, Step::Try(_) | Step::Confirm(..220_000)));
        assert_eq!((steps.last(), maximum), (Some(&Step::Confirm(212_500)), Some(212_500)));
    }

    #[test]
    fn a_maximum_at_the_ladders_end_says_so() {
        let ended = |most: u64| {
            let mut climb = Climb::new(&LADDER);
            while let Some(step) = climb.next() {
                climb.stated(step, up_to(most)(step));
            }
            climb.ends_at(&LADDER)
        };
        assert_eq!([ended(u64::MAX), ended(240_000), ended(0)], [true, false, false]);
    }

    #[test]
    fn a_ladder_that_holds_to_its_end_or_not_at_all() {
        let (steps, maximum) = climb(&LADDER, up_to(u64::MAX));
        assert_eq!(steps.last(), Some(&Step::Confirm(250_000)), "there is nothing to search");
        assert_eq!(maximum, Some(250_000));
        let (steps, maximum) = climb(&LADDER, up_to(700));
        assert_eq!(
            steps,
            [5_000, 2_500, 1_250, 625].map(Step::Try).into_iter().chain([Step::Confirm(625)]).collect::<Vec<_>>()
        );
        assert_eq!(maximum, Some(625));
        assert_eq!(climb(&LADDER, |_| false).1, None);
    }

    #[test]
    fn without_a_search_the_highest_step_counts() {
        let (steps, maximum) = climb(&Ladder { search_steps: 0, ..LADDER }, up_to(80_000));
        assert_eq!(steps, [5_000, 25_000, 50_000, 100_000].map(Step::Try));
        assert_eq!(maximum, Some(50_000));
        let close = Ladder { published: &[100, 101], scale_per_mille: 1_000, ..LADDER };
        assert_eq!(climb(&close, up_to(100)).0, [Step::Try(100), Step::Try(101), Step::Confirm(100)]);
        assert!(
            LADDER.to_string().starts_with("published 10000 50000 100000 200000 500000; run 5000 25000"),
            "{LADDER}"
        );
    }

    fn seconds(each: impl IntoIterator<Item = (u64, u64)>) -> Vec<Second> {
        let second = |(second, (sent, received))| Second { second, sent, acked: sent, received, ..Second::default() };
        (0..).zip(each).map(second).collect()
    }

    fn held(seconds: &[Second], acked: u64, done: &Done) -> Result<(), String> {
        Ran { rate: 1_000, groups: 2, warmup_ms: 2_000, window_ms: 8_000, acked, done, seconds }.held()
    }

    #[test]
    fn a_rate_is_held_by_acknowledgements_in_time_without_a_growing_backlog() {
        let done = Done { publish_s: 10.1, ..Done::default() };
        let even = seconds(vec![(1_000, 2_000); 10]);
        assert_eq!(held(&even, 8_000, &done), Ok(()));
        let stated = |seconds: &[Second], acked, done: &Done| held(seconds, acked, done).expect_err("it was not held");
        assert!(stated(&even, 7_900, &done).contains("98.8 %"));
        assert!(stated(&even, 8_000, &Done { publish_s: 11.5, ..done.clone() }).contains("1.50 s late"));
        assert!(stated(&even, 8_000, &Done { errors: 3, ..done.clone() }).contains("3 messages not"));
        let error = Some("the reader was closed".to_owned());
        assert_eq!(stated(&even, 8_000, &Done { error, ..done.clone() }), "the reader was closed", "whatever was sent");
        let behind = seconds(vec![(1_000, 1_960); 10]);
        assert!(stated(&behind, 8_000, &done).contains("grew by 20 messages"), "{}", stated(&behind, 8_000, &done));
        let saturated: Vec<Second> = even.iter().map(|second| Second { acked: 950, ..second.clone() }).collect();
        assert!(
            stated(&saturated, 8_000, &done).contains("grew by 50 messages"),
            "all of it came in the end, but late"
        );
        let late = seconds([(1_000, 0)].into_iter().chain(vec![(1_000, 2_000); 9]));
        assert_eq!(held(&late, 8_000, &done), Ok(()), "a backlog that stays as it is does not grow");
        assert_eq!(backlogs(&late, 2), [1_000; 10]);
        assert_eq!(backlogs(&late, 0), [0; 0]);
    }
}
