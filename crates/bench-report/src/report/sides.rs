//! The figures of one cell by side, run and round, with derived figures.

use super::figures::{DRAINED, DRAINED_SHARE, HELD_MAX, step};
use super::stats::median;
use crate::busy::{BOUND_SHARE, threads};
use crate::drive::Driver;
use crate::results::ResultLine;
use crate::results::{CLIENT_BUSY, FELL_BEHIND};
use crate::target::Target;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Figures that are also reported above the null broker's of the same round, which excludes the client's share.
const ABOVE: [&str; 3] = ["publish_p50_ms", "publish_p99_ms", "publish_p99.9_ms"];
/// Figure: how busy the client was while reading.
const READER_BUSY: &str = "fetch_client_busy";

/// Returns the name of `figure` above the null broker. `None` if it is not reported that way.
#[must_use]
pub fn above_null(figure: &str) -> Option<String> {
    ABOVE.contains(&figure).then(|| format!("{figure} above the null broker"))
}

/// Figure: how busy the client was at the lowest missed rate of a ladder, where it may have been the limit.
const LADDER_BUSY: &str = "ladder_client_busy";

/// Returns the name of the figure for how busy the client was while `figure` was measured.
fn busy_of(figure: &str) -> Cow<'static, str> {
    match step(figure) {
        Some((rate, _)) => Cow::Owned(step_busy(rate)),
        None if figure == HELD_MAX => Cow::Borrowed(LADDER_BUSY),
        None if figure.starts_with("fetch") => Cow::Borrowed(READER_BUSY),
        None => Cow::Borrowed(CLIENT_BUSY),
    }
}

fn step_busy(rate: u64) -> String {
    format!("step.{rate}.client_busy")
}

type Figures = BTreeMap<String, f64>;
type Rounds<'a> = BTreeMap<(&'a str, u32), Figures>;

/// The sides of one cell. Failed runs do not count.
#[derive(Debug, Default)]
pub struct Sides<'a> {
    /// All sides in the order of the lines, including those without a run that counts.
    pub order: Vec<&'a str>,
    figures: BTreeMap<&'a str, Rounds<'a>>,
    is_unpaced: bool,
    /// Sides with several messages in flight.
    pipelined: BTreeSet<&'a str>,
    /// The linger time of each side, if it has one.
    lingers: BTreeMap<&'a str, &'a str>,
}

impl<'a> Sides<'a> {
    /// Collects the sides of a cell's lines.
    #[must_use]
    pub fn of(lines: &[&'a ResultLine]) -> Sides<'a> {
        let is_unpaced = lines.iter().any(|line| line.conditions.as_ref().is_some_and(|reported| reported.rate == 0));
        let mut sides = Sides { is_unpaced, ..Sides::default() };
        for line in lines {
            if !sides.order.contains(&line.side.as_str()) {
                sides.order.push(&line.side);
            }
            if let Some(reported) = &line.conditions {
                if reported.in_flight > 1 {
                    sides.pipelined.insert(&line.side);
                }
                sides
                    .lingers
                    .insert(&line.side, reported.batching.split_once("linger ").map_or("", |(_, linger)| linger));
            }
            if line.failures.is_empty() {
                let rounds = sides.figures.entry(&line.side).or_default();
                rounds.insert((line.run.as_str(), line.round), with_bound(line, without_missed(with_busy(line))));
            }
        }
        sides.take_off_null();
        sides
    }

    /// Adds the latencies above the null broker's of the same round, at least 0.
    fn take_off_null(&mut self) {
        let null = Target::Null.name();
        let Some(floors) = self.figures.get(null.as_str()).cloned() else { return };
        for (_, rounds) in self.figures.iter_mut().filter(|(side, _)| **side != null) {
            for (round, figures) in rounds {
                for name in ABOVE {
                    let floor = floors.get(round).and_then(|floor| floor.get(name));
                    if let (Some(value), Some(floor), Some(above)) = (figures.get(name), floor, above_null(name)) {
                        let left = (value - floor).max(0.0);
                        figures.insert(above, left);
                    }
                }
            }
        }
    }

    fn rounds(&self, side: &str) -> impl Iterator<Item = (&(&'a str, u32), &Figures)> {
        self.figures.get(side).into_iter().flatten()
    }

    /// Returns whether the rate was unlimited.
    #[must_use]
    pub fn is_unpaced(&self) -> bool {
        self.is_unpaced
    }

    /// Returns whether a side had several messages in flight. At unlimited rate, its latencies then depend on their number.
    #[must_use]
    pub fn is_pipelined(&self, side: &str) -> bool {
        self.pipelined.contains(side)
    }

    /// Returns whether the clients of two sides have the same linger time.
    #[must_use]
    pub fn linger_alike(&self, first: &str, second: &str) -> bool {
        self.lingers.get(first) == self.lingers.get(second)
    }

    /// Returns the number of messages read per message written. `None` without readers.
    #[must_use]
    pub fn read_per_written(&self, side: &str) -> Option<f64> {
        let per_s = |figure| median(&self.values(side, figure)).filter(|per_s| *per_s > 0.0);
        Some(per_s("fetch_per_s")? / per_s("produce_per_s")?)
    }

    /// Returns the names of the figures of all sides.
    #[must_use]
    pub fn figures(&self) -> BTreeSet<&str> {
        self.figures.values().flat_map(BTreeMap::values).flat_map(BTreeMap::keys).map(String::as_str).collect()
    }

    /// Returns a figure of each run and round of a side that counts.
    #[must_use]
    pub fn by_round(&self, side: &str, figure: &str) -> Vec<((&'a str, u32), f64)> {
        self.rounds(side).filter_map(|(round, figures)| Some((*round, figures.get(figure).copied()?))).collect()
    }

    /// Returns all values of a figure of a side.
    #[must_use]
    pub fn values(&self, side: &str, figure: &str) -> Vec<f64> {
        self.rounds(side).filter_map(|(_, figures)| figures.get(figure).copied()).collect()
    }

    /// Returns the values of two sides in the rounds that have both.
    #[must_use]
    pub fn pairs(&self, figure: &str, first: &str, second: &str) -> Vec<(f64, f64)> {
        let theirs = self.figures.get(second);
        self.rounds(first)
            .filter_map(|(round, figures)| {
                Some((figures.get(figure).copied()?, theirs?.get(round)?.get(figure).copied()?))
            })
            .collect()
    }

    /// Returns whether the readers of a side fell behind in most of its rounds.
    #[must_use]
    pub fn fell_behind(&self, side: &str) -> bool {
        median(&self.values(side, FELL_BEHIND)).is_some_and(|behind| behind > 0.0)
    }

    /// Returns whether the client limited a side while `figure` was measured.
    #[must_use]
    pub fn is_client_bound(&self, side: &str, figure: &str) -> bool {
        median(&self.values(side, &busy_of(figure))).is_some_and(|busy| busy >= BOUND_SHARE)
    }
}

/// Removes latencies at missed rates: in lines up to 2026-11-25 they are of a shorter run at that rate.
fn without_missed(mut figures: Figures) -> Figures {
    let is_missed = |rate: u64| figures.get(&format!("step.{rate}.held")).is_some_and(|held| *held == 0.0);
    let wrong =
        figures.keys().filter(|name| name.ends_with("_ms") && step(name).is_some_and(|(rate, _)| is_missed(rate)));
    for name in wrong.cloned().collect::<Vec<_>>() {
        figures.remove(&name);
    }
    figures
}

/// Adds a lower bound of the drain time if the reader did not reach the end of its backlog: the time it had. Otherwise such a side could
/// not be compared.
fn with_bound(line: &ResultLine, mut figures: Figures) -> Figures {
    let had_s = line.conditions.as_ref().map(|reported| (reported.warmup_ms + reported.window_ms) as f64 / 1e3);
    if let Some(had_s) = had_s.filter(|_| figures.contains_key(DRAINED_SHARE)) {
        figures.entry(DRAINED.to_owned()).or_insert(had_s);
    }
    figures
}

/// Returns the figures of a line, with how busy its client was: its share of the processor time that it can use.
fn with_busy(line: &ResultLine) -> Figures {
    let mut figures = line.figures.clone();
    let Some(client) = line.conditions.as_ref().and_then(|reported| reported.client.parse::<Driver>().ok()) else {
        return figures;
    };
    let Some(threads) = threads(client) else { return figures };
    let own = line.conditions.as_ref().map_or(0, |reported| reported.client_cores);
    let all_cores = if own > 0 { usize::try_from(own).unwrap_or(usize::MAX) } else { line.machine.cores.max(1) };
    let cores = threads.min(all_cores) as f64;
    for (busy, rate, cost) in [
        (CLIENT_BUSY, "produce_per_s", "produce_client_cpu_s_per_million"),
        (READER_BUSY, "fetch_per_s", "fetch_client_cpu_s_per_million"),
    ] {
        if let Some((rate, cost)) = line.figures.get(rate).zip(line.figures.get(cost)) {
            figures.insert(busy.to_owned(), rate / 1e6 * cost / cores);
        }
    }
    // In a run by time both roles run concurrently, and their processor time in the window is known.
    let roles = if client != Driver::Amqp && line.conditions.as_ref().is_some_and(|reported| reported.groups > 0) {
        2
    } else {
        1
    };
    let cores = (roles * threads).min(all_cores) as f64;
    if let Some(used) = line.figures.get("window_client_cpu_cores") {
        for busy in [CLIENT_BUSY, READER_BUSY] {
            figures.insert(busy.to_owned(), used / cores);
        }
    }
    let steps = line.figures.iter().filter_map(|(name, used)| match step(name) {
        Some((rate, "client_cpu_cores")) => Some((rate, used / cores)),
        _ => None,
    });
    let steps: BTreeMap<u64, f64> = steps.collect();
    let is_missed = |rate: u64| line.figures.get(&format!("step.{rate}.held")).is_some_and(|held| *held == 0.0);
    if let Some((_, busy)) = steps.iter().find(|(rate, _)| is_missed(**rate)) {
        figures.insert(LADDER_BUSY.to_owned(), *busy);
    }
    figures.extend(steps.into_iter().map(|(rate, busy)| (step_busy(rate), busy)));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sides<'a>(lines: &'a [ResultLine]) -> Sides<'a> {
        Sides::of(&lines.iter().collect::<Vec<_>>())
    }

    #[test]
    fn latencies_above_the_null_broker_are_by_round() {
        let line =
            |side, round, p99| ResultLine::example("latency/x/client=raw", side, round, &[("publish_p99_ms", p99)]);
        let lines = [
            line("ours", 1, 3.0),
            line("null", 1, 1.0),
            line("ours", 2, 1.5),
            line("null", 2, 2.0),
            line("ours", 3, 9.0),
        ];
        let sides = sides(&lines);
        let above = above_null("publish_p99_ms").expect("it is reported");
        assert_eq!(sides.values("ours", &above), [2.0, 0.0], "at least 0, and only in rounds with a null broker");
        assert!(sides.values("null", &above).is_empty(), "the null broker itself has none");
        assert_eq!(above_null("end_to_end_p99_ms"), None, "nothing can be read from the null broker");
    }

    #[test]
    fn pairs_are_of_one_run_and_round() {
        let line = |run: &str, side, round, rate| {
            let line = ResultLine::example("size/x/client=raw", side, round, &[("produce_per_s", rate)]);
            ResultLine { run: run.to_owned(), ..line }
        };
        let lines = [
            line("a", "ours", 1, 1.0),
            line("a", "theirs", 1, 2.0),
            line("b", "ours", 1, 3.0),
            line("b", "ours", 2, 4.0),
            line("b", "theirs", 2, 5.0),
        ];
        assert_eq!(sides(&lines).pairs("produce_per_s", "ours", "theirs"), [(1.0, 2.0), (4.0, 5.0)]);
    }

    /// Regression test: a side that did not reach the end of its backlog had no value, and was not behind any peer.
    #[test]
    fn the_drain_time_without_reaching_the_end_is_the_time_it_had() {
        let mut line = ResultLine::example("A6/drain/x", "ours", 1, &[("drained_share", 0.8)]);
        let conditions = line.conditions.as_mut().expect("it has some");
        (conditions.warmup_ms, conditions.window_ms) = (2_000, 6_000);
        assert_eq!(sides(&[line]).values("ours", "drained_s"), [8.0]);
        let line = ResultLine::example("A6/drain/x", "ours", 1, &[("drained_share", 1.0), ("drained_s", 3.5)]);
        assert_eq!(sides(&[line]).values("ours", "drained_s"), [3.5]);
    }

    #[test]
    fn latencies_at_missed_rates_are_removed() {
        let figures = |held: f64| [("step.1000.held", held), ("step.1000.publish_p99_ms", 34.1)];
        let of = |held: f64| {
            let line = ResultLine::example("A1/x", "theirs", 1, &figures(held));
            sides(&[line]).values("theirs", "step.1000.publish_p99_ms")
        };
        assert_eq!((of(1.0), of(0.0)), (vec![34.1], Vec::new()));
    }

    #[test]
    fn a_client_is_bound_by_its_threads_and_cores() {
        let bound = |client: &str, cores: usize, figures: &[(&str, f64)]| {
            let mut line = ResultLine::example("throughput/x", "ours", 1, figures);
            line.machine.cores = cores;
            line.conditions.as_mut().expect("it has some").client = client.to_owned();
            sides(&[line]).is_client_bound("ours", "produce_per_s")
        };
        let used = |share: f64| [("produce_per_s", 100_000.0), ("produce_client_cpu_s_per_million", share * 10.0)];
        assert!(bound("raw", 2, &used(0.85)) && !bound("raw", 2, &used(0.84)), "one thread writes");
        assert!(bound("java", 2, &used(1.7)) && !bound("java", 2, &used(1.6)), "two threads, two cores");
        assert!(bound("librdkafka", 1, &used(0.9)), "two threads, one core");
        assert!(
            !bound("perf-test", 2, &used(1.9)) && bound("perf-test", 2, &[(CLIENT_BUSY, 0.9)]),
            "the measured share"
        );
    }

    #[test]
    fn a_client_with_cores_of_its_own_is_bound_by_those() {
        let figures = [("produce_per_s", 100_000.0), ("produce_client_cpu_s_per_million", 9.0)];
        let mut line = ResultLine::example("throughput/x", "ours", 1, &figures);
        line.machine.cores = 2;
        let conditions = line.conditions.as_mut().expect("it has some");
        conditions.client = "java".to_owned();
        assert!(!sides(&[line.clone()]).is_client_bound("ours", "produce_per_s"), "0.9 of 2 cores");
        line.conditions.as_mut().expect("it has some").client_cores = 1;
        assert!(sides(&[line]).is_client_bound("ours", "produce_per_s"), "0.9 of its own core");
    }

    #[test]
    fn writing_and_reading_are_distinguished() {
        let figures = [("fetch_per_s", 1e6), ("fetch_client_cpu_s_per_million", 1.0)];
        let lines = [ResultLine::example("cost/x/client=raw", "ours", 1, &figures)];
        let sides = sides(&lines);
        assert!(sides.is_client_bound("ours", "fetch_per_s") && !sides.is_client_bound("ours", "produce_per_s"));
    }
}
