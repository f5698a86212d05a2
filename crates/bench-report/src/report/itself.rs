//! Sides beside themselves: what more partitions, more groups or a reader that is behind do to a latency.
//!
//! ```text
//!   cell                                    beside the cell                        ratio of the medians, for each side
//!   D6/rate=5000/partitions=10000/...       D6/rate=5000/partitions=100/...        1.12 times, of 1.3
//!   D8/rate=10000/behind/...                D8/rate=10000/undisturbed/...          1.40 times, of 1.5
//! ```
//!
//! Rounds of two cells are no pairs, so these ratios name no winner: what is wanted of polylogue stands beside each.

use super::model::{Cell, Scenario};
use super::palette::System;
use super::stats::median;

/// What may grow, and what latencies may become then.
struct Grows {
    scenario: &'static str,
    /// The part of a cell's name that says how much there is of it: it begins so.
    part: &'static str,
    /// What stands there where there is little or none.
    least: &'static str,
    times_max: f64,
}

/// Latencies with thousands of partitions or ten groups, of those without; and with as many more topics.
const MANY_TIMES_MAX: f64 = 1.3;
/// Latencies beside a reader that is behind, of those without one.
const BEHIND_TIMES_MAX: f64 = 1.5;
const GROWN: [Grows; 4] = [
    Grows { scenario: "D5", part: "groups=", least: "groups=1", times_max: MANY_TIMES_MAX },
    Grows { scenario: "D6", part: "partitions=", least: "partitions=100", times_max: MANY_TIMES_MAX },
    Grows { scenario: "D8", part: "behind", least: "undisturbed", times_max: BEHIND_TIMES_MAX },
    Grows { scenario: "E3", part: "topics=", least: "topics=100", times_max: MANY_TIMES_MAX },
];

/// The heading of the table.
pub const HEADING: &str = "Beside itself";
/// What is said under it.
pub const SAID: &str = "The median of a latency with many partitions, groups or topics, or beside a reader that is behind, and the same \
     side's without. These are different cells, not pairs: they name no winner.";
const FIGURES: [&str; 2] = ["publish_p99_ms", "end_to_end_p99_ms"];

/// A side of one cell beside itself in another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Beside<'a> {
    /// The cell with much of it.
    pub cell: &'a str,
    /// The cell with little or none.
    pub least: &'a str,
    /// The side.
    pub side: &'a str,
    /// The figure.
    pub figure: &'static str,
    /// The medians, with little and with much.
    pub medians: (f64, f64),
    /// How many rounds the fewer of the two have.
    pub rounds: usize,
    /// How many times as much it may be; `None` for a peer, of which nothing is wanted.
    pub times_max: Option<f64>,
    /// Whether a client was the limit in one of the two: then it is what was measured.
    pub is_client_bound: bool,
}

impl Beside<'_> {
    /// How many times as much it is.
    #[must_use]
    pub fn times(&self) -> f64 {
        self.medians.1 / self.medians.0
    }

    /// Whether it is as it is wanted; `None` for a peer, and where the client was measured.
    #[must_use]
    pub fn is_held(&self) -> Option<bool> {
        self.times_max.filter(|_| !self.is_client_bound).map(|most| self.times() <= most)
    }

    /// What is wanted, and whether it is so.
    #[must_use]
    pub fn wanted(&self) -> String {
        let Some(most) = self.times_max else { return "–".to_owned() };
        let outcome = match self.is_held() {
            Some(true) => "held",
            Some(false) => "missed",
            None => "client-bound",
        };
        format!("{most}: {outcome}")
    }
}

/// The name of the cell with little of it, which this one is compared with.
fn least_of(cell: &str) -> Option<(String, f64)> {
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

/// All sides that were measured with little and with much; smoke runs tell nothing.
#[must_use]
pub fn beside<'a>(scenarios: &[Scenario<'a>]) -> Vec<Beside<'a>> {
    let cells: Vec<&Cell<'a>> =
        scenarios.iter().flat_map(|scenario| &scenario.cells).filter(|cell| !cell.quick).collect();
    let mut all = Vec::new();
    for cell in &cells {
        let Some((name, times_max)) = least_of(cell.name) else { continue };
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
    fn cells_are_told_beside_the_one_with_the_least() {
        let least = |cell: &str| least_of(cell).map(|(name, _)| name);
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
    fn only_of_polylogue_something_is_wanted() {
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
            beside(&reported).iter().map(|one| (one.side, one.times(), one.rounds, one.is_held())).collect();
        assert_eq!(reported, [("polylogue-sync", 1.4, 1, Some(false)), ("kafka-fsync", 4.0, 1, None)]);
    }

    /// A Java client with 10,000 partitions uses its core up: it was reported as a broker that missed its target by a factor of 387.
    #[test]
    fn where_a_client_was_the_limit_nothing_is_missed() {
        let line = |cell: &str, p99: f64, busy: f64| {
            ResultLine::example(cell, "polylogue-sync", 1, &[("publish_p99_ms", p99), (CLIENT_BUSY, busy)])
        };
        let lines =
            [line("D6/partitions=100/client=java", 3.0, 0.5), line("D6/partitions=8000/client=java", 80.0, 0.99)];
        let reported = scenarios(Input { lines: &lines, scenarios: &[], not_run: &[] });
        let reported = beside(&reported);
        let reported: Vec<_> = reported.iter().map(|one| (one.is_held(), one.wanted())).collect();
        assert_eq!(reported, [(None, "1.3: client-bound".to_owned())]);
    }
}
