//! Sides compared with themselves: the effect of more partitions, groups or topics, or of a lagging reader, on latency.
//!
//! ```text
//!   cell                                    baseline cell                          ratio of the medians, for each side
//!   D6/rate=5000/partitions=10000/...       D6/rate=5000/partitions=100/...        1.12, limit 1.3
//!   D8/rate=10000/behind/...                D8/rate=10000/undisturbed/...          1.40, limit 1.5
//! ```
//!
//! Rounds of two cells are not pairs, so these ratios have no winner. polylogue has a limit for each.

use super::model::{Cell, Scenario};
use super::palette::System;
use super::stats::median;

/// A dimension that grows, and the limit on the ratio of latencies.
struct Growth {
    scenario: &'static str,
    /// Prefix of the part of a cell's name with its size.
    part: &'static str,
    /// That part in the baseline cell.
    least: &'static str,
    times_max: f64,
}

/// Limit with thousands of partitions, ten groups or more topics, relative to the baseline.
const MANY_TIMES_MAX: f64 = 1.3;
/// Limit with a lagging reader, relative to the run without one.
const BEHIND_TIMES_MAX: f64 = 1.5;
const GROWN: [Growth; 4] = [
    Growth { scenario: "D5", part: "groups=", least: "groups=1", times_max: MANY_TIMES_MAX },
    Growth { scenario: "D6", part: "partitions=", least: "partitions=100", times_max: MANY_TIMES_MAX },
    Growth { scenario: "D8", part: "behind", least: "undisturbed", times_max: BEHIND_TIMES_MAX },
    Growth { scenario: "E3", part: "topics=", least: "topics=100", times_max: MANY_TIMES_MAX },
];

/// The heading of the table.
pub const HEADING: &str = "Compared with itself";
/// Text under the heading.
pub const SAID: &str = "Median latencies with many partitions, groups or topics, or with a lagging reader, relative to the same side's \
     baseline without. These are different cells, not pairs of rounds: there is no winner.";
const FIGURES: [&str; 2] = ["publish_p99_ms", "end_to_end_p99_ms"];

/// A side of one cell compared with the same side of its baseline cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Beside<'a> {
    /// The cell.
    pub cell: &'a str,
    /// Its baseline cell.
    pub least: &'a str,
    /// The side.
    pub side: &'a str,
    /// The figure.
    pub figure: &'static str,
    /// Medians of the baseline and of the cell.
    pub medians: (f64, f64),
    /// Number of rounds: the smaller of the two.
    pub rounds: usize,
    /// Limit on the ratio; `None` for peers, which have no limit.
    pub times_max: Option<f64>,
    /// Whether one of the two was client-bound: then the client was measured.
    pub is_client_bound: bool,
}

impl Beside<'_> {
    /// Returns the ratio.
    #[must_use]
    pub fn times(&self) -> f64 {
        self.medians.1 / self.medians.0
    }

    /// Returns whether the limit is met. `None` for peers, and if client-bound.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        self.times_max.filter(|_| !self.is_client_bound).map(|most| self.times() <= most)
    }

    /// Formats the limit and whether it is met.
    #[must_use]
    pub fn limit(&self) -> String {
        let Some(most) = self.times_max else { return "–".to_owned() };
        let outcome = match self.is_met() {
            Some(true) => "met",
            Some(false) => "missed",
            None => "client-bound",
        };
        format!("{most}: {outcome}")
    }
}

/// Returns the name of the baseline cell, and the limit on the ratio.
fn baseline_of(cell: &str) -> Option<(String, f64)> {
    let mut parts = cell.split('/');
    let scenario = parts.next()?;
    let grows = GROWN.iter().find(|grows| grows.scenario == scenario)?;
    let is_it = |part: &str| part.starts_with(grows.part) && part != grows.least;
    if !cell.split('/').any(is_it) {
        return None;
    }
    let named: Vec<&str> = cell.split('/').map(|part| if is_it(part) { grows.least } else { part }).collect();
    Some((named.join("/"), grows.times_max))
}

/// Returns all sides that were measured with and without growth, without smoke runs.
#[must_use]
pub fn beside<'a>(scenarios: &[Scenario<'a>]) -> Vec<Beside<'a>> {
    let cells: Vec<&Cell<'a>> =
        scenarios.iter().flat_map(|scenario| &scenario.cells).filter(|cell| !cell.quick).collect();
    let mut all = Vec::new();
    for cell in &cells {
        let Some((name, times_max)) = baseline_of(cell.name) else { continue };
        let Some(least) = cells.iter().find(|other| other.name == name) else { continue };
        for side in &cell.sides {
            for figure in FIGURES {
                let (few, many) = (least.figures.values(side.name, figure), cell.figures.values(side.name, figure));
                let Some(medians) = median(&few).zip(median(&many)).filter(|(few, _)| *few > 0.0) else { continue };
                all.push(Beside {
                    cell: cell.name,
                    least: least.name,
                    side: side.name,
                    figure,
                    medians,
                    rounds: few.len().min(many.len()),
                    times_max: (side.system == System::Polylogue).then_some(times_max),
                    is_client_bound: [least, cell].iter().any(|cell| cell.figures.is_client_bound(side.name, figure)),
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::scenarios;
    use crate::report::scenario::Input;
    use crate::results::CLIENT_BUSY;
    use crate::results::ResultLine;

    #[test]
    fn cells_have_a_baseline_cell() {
        let least = |cell: &str| baseline_of(cell).map(|(name, _)| name);
        assert_eq!(
            least("D6/rate=5/partitions=8000/client=raw").as_deref(),
            Some("D6/rate=5/partitions=100/client=raw")
        );
        assert_eq!(least("D6/rate=5/partitions=100/client=raw"), None);
        assert_eq!(least("D5/rate=5/groups=10/client=raw").as_deref(), Some("D5/rate=5/groups=1/client=raw"));
        assert_eq!(least("D8/rate=5/behind/client=java").as_deref(), Some("D8/rate=5/undisturbed/client=java"));
        assert_eq!(least("D8/rate=5/undisturbed/client=java"), None);
        assert_eq!(least("E3/topics=500/client=raw").as_deref(), Some("E3/topics=100/client=raw"));
        assert_eq!(least("A4/partitions=8000/client=raw"), None);
    }

    #[test]
    fn only_polylogue_has_limits() {
        let line = |cell: &str, side: &str, round, p99: f64| {
            ResultLine::example(cell, side, round, &[("publish_p99_ms", p99)])
        };
        let (few, many) = ("D6/partitions=100/client=raw", "D6/partitions=8000/client=raw");
        let lines = [
            line(few, "polylogue-sync", 1, 1.0),
            line(many, "polylogue-sync", 1, 1.2),
            line(many, "polylogue-sync", 2, 1.6),
            line(few, "kafka-fsync", 1, 2.0),
            line(many, "kafka-fsync", 1, 8.0),
            line(many, "pulsar", 1, 8.0),
        ];
        let reported = scenarios(Input { lines: &lines, scenarios: &[], not_run: &[] });
        let reported: Vec<_> =
            beside(&reported).iter().map(|one| (one.side, one.times(), one.rounds, one.is_met())).collect();
        assert_eq!(reported, [("polylogue-sync", 1.4, 1, Some(false)), ("kafka-fsync", 4.0, 1, None)]);
    }

    /// Regression test: a Java client with 10,000 partitions uses all of its core; the broker was reported to miss its limit by a factor of 387.
    #[test]
    fn a_client_bound_side_misses_no_limit() {
        let line = |cell: &str, p99: f64, busy: f64| {
            ResultLine::example(cell, "polylogue-sync", 1, &[("publish_p99_ms", p99), (CLIENT_BUSY, busy)])
        };
        let lines =
            [line("D6/partitions=100/client=java", 3.0, 0.5), line("D6/partitions=8000/client=java", 80.0, 0.99)];
        let reported = scenarios(Input { lines: &lines, scenarios: &[], not_run: &[] });
        let reported = beside(&reported);
        let reported: Vec<_> = reported.iter().map(|one| (one.is_met(), one.limit())).collect();
        assert_eq!(reported, [(None, "1.3: client-bound".to_owned())]);
    }
}
