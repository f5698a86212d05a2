//! Verdicts: which side is ahead in a figure. Used by the Markdown tables and the pages.
//!
//! ```text
//!   judge      two sides, one figure         ahead, level, client-bound, or nothing in a smoke run
//!   outcome    all sides of a row            the side ahead of all other systems, and polylogue's standing
//! ```

use super::figures::{Better, Group, HELD_MAX, PRODUCE_CPU, RATE, figure, step};
use super::palette::System;
use super::sides::Sides;
use super::stats::{Verdict, median, verdict};

/// Number of agreeing pairs for a verdict in the rows measured most, those of the first page. Other rows need
/// [`super::stats::PAIRS_MIN`].
pub const FIRST_PAGE_PAIRS_MIN: usize = 5;

/// Reason: all sides are polylogue's.
pub const ITSELF: &str = "compared with itself";

/// Reason, for throughput: the readers of the faster side fell behind.
pub const UNSUSTAINED: &str = "not sustained: readers fell behind";

/// Reason, for processor time: the readers of the cheaper side read a smaller share of the written messages.
pub const READ_LESS: &str = "its readers read less";

/// Reason, for latencies: the clients have different linger times.
pub const LINGERS: &str = "linger times differ";

/// Reason, for latencies at unlimited rate: they depend on the number of messages in flight.
pub const CLOSED_LOOP: &str = "unlimited rate: latencies are not compared";

/// Minimum ratio of the sides' shares of messages read, for processor times to be compared.
const READ_ALIKE: f64 = 0.95;

/// Reason, for latencies of a ladder: each side was measured at the highest rate that it met.
pub const OWN_RATES: &str = "each at its own rate";

/// Reason: no peer has a value.
pub const NO_PEER: &str = "no peer to compare with";

/// Reason: there is one pair of rounds only.
pub const RUN_ONCE: &str = "run once";

/// A comparison to make.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The cell's name.
    pub cell: &'a str,
    /// The figure's name.
    pub figure: &'a str,
    /// Whether it is a smoke run.
    pub quick: bool,
    /// Number of agreeing pairs for a verdict.
    pub pairs_min: usize,
}

/// Verdict on two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// The first is ahead.
    First,
    /// The second is ahead.
    Second,
    /// Neither: the pairs do not agree, or are too few.
    Level,
    /// No verdict: the client limited one of them.
    ClientBound,
    /// No verdict: the readers of the faster side fell behind.
    Unsustained,
    /// No verdict: the cheaper side served fewer reads.
    ReadLess,
    /// No verdict: the clients have different linger times.
    Lingers,
    /// No verdict: a smoke run.
    NoWinner,
}

/// Result of comparing two sides.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// Ratio of the second side to the first, for each pair.
    pub ratios: Vec<f64>,
    /// The verdict.
    pub ahead: Ahead,
}

/// Returns whether lower values of a figure are better.
fn less_is_better(name: &str) -> bool {
    match figure(name).better {
        Better::Less => true,
        Better::More => false,
        Better::Neither => !name.ends_with("_per_s"),
    }
}

/// Compares two sides. `None` without pairs of values.
#[must_use]
pub fn judge(sides: &Sides<'_>, asked: Asked<'_>, first: &str, second: &str) -> Option<Judged> {
    let pairs = sides.pairs(asked.figure, first, second);
    let ratios: Vec<f64> =
        pairs.iter().map(|(ours, theirs)| theirs / ours).filter(|ratio: &f64| !ratio.is_nan()).collect();
    if ratios.is_empty() {
        return None;
    }
    // A saturated client limits the measured throughput, and adds its own queueing to every latency, also at a given rate.
    let bound = !asked.figure.ends_with("_cpu_s_per_million")
        && [first, second].iter().any(|side| sides.is_client_bound(side, asked.figure));
    let unsustained = |side: &str| asked.figure == RATE && sides.fell_behind(side);
    let served_less = |side: &str, other: &str| {
        let read = |side: &str| sides.read_per_written(side).filter(|_| asked.figure == PRODUCE_CPU);
        read(side).zip(read(other)).is_some_and(|(own, theirs)| own < theirs * READ_ALIKE)
    };
    let is_latency = matches!(figure(asked.figure).group, Group::Publish | Group::EndToEnd);
    let ahead = match verdict(&pairs, less_is_better(asked.figure), asked.pairs_min) {
        _ if asked.quick => Ahead::NoWinner,
        _ if bound => Ahead::ClientBound,
        _ if is_latency && !sides.linger_alike(first, second) => Ahead::Lingers,
        Verdict::First if served_less(first, second) => Ahead::ReadLess,
        Verdict::Second if served_less(second, first) => Ahead::ReadLess,
        Verdict::First if unsustained(first) => Ahead::Unsustained,
        Verdict::Second if unsustained(second) => Ahead::Unsustained,
        Verdict::First => Ahead::First,
        Verdict::Second => Ahead::Second,
        Verdict::Level => Ahead::Level,
    };
    Some(Judged { ratios, ahead })
}

/// The profiles of a peer in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profiles {
    /// The default settings.
    Default,
    /// Its vendor's recommended settings.
    Tuned,
    /// Both; the better one is compared.
    Both,
}

impl Profiles {
    /// Returns the profiles of a side's system among the candidates. `None` for systems without profiles: polylogue, the null broker, an
    /// external broker.
    fn of(side: &str, candidates: &[Sided<'_>]) -> Option<Profiles> {
        let (_, system) = candidates.iter().find(|(other, _)| *other == side)?;
        if matches!(system, System::Polylogue | System::Null | System::Other) {
            return None;
        }
        let mut same = candidates.iter().filter(|(_, other)| other == system).map(|(other, _)| is_tuned(other));
        let first = same.next()?;
        Some(match (first, same.all(|other| other == first)) {
            (_, false) => Profiles::Both,
            (true, true) => Profiles::Tuned,
            (false, true) => Profiles::Default,
        })
    }
}

fn has_part(side: &str, part: &str) -> bool {
    side.split('-').any(|other| other == part)
}

fn is_tuned(side: &str) -> bool {
    has_part(side, "tuned")
}

fn speaks_amqp(side: &str) -> bool {
    has_part(side, "amqp")
}

/// How many times better one side is than another: median, minimum and maximum of the pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct Advantage {
    /// The other side.
    pub over: String,
    /// Profiles of the other side's system that it covers, if the system has profiles.
    pub profiles: Option<Profiles>,
    /// Median ratio; below 1 is worse.
    pub times: f64,
    /// Minimum ratio.
    pub low: f64,
    /// Maximum ratio.
    pub high: f64,
    /// Number of pairs.
    pub pairs: usize,
}

/// polylogue's standing in a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// Ahead of every measured peer.
    Ahead,
    /// Behind these peers.
    Behind(Vec<String>),
    /// Neither ahead of all nor behind one.
    Level,
    /// No verdict, with the reason; empty for figures without a better side.
    Undecided(String),
}

/// Outcome of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The side that is ahead of all other systems.
    pub winner: Option<String>,
    /// The winner's advantage over the closest side; without a winner, polylogue's over the best peer.
    pub advantage: Option<Advantage>,
    /// polylogue's advantage over the best peer; below 1 if behind.
    pub ours: Option<Advantage>,
    /// polylogue's standing.
    pub standing: Standing,
}

/// A side of a row with its system.
pub type Sided<'a> = (&'a str, System);

fn advantage(judged: &Judged, name: &str, over: &str, candidates: &[Sided<'_>]) -> Option<Advantage> {
    let oriented = |ratio: &f64| if less_is_better(name) { *ratio } else { 1.0 / ratio };
    let times: Vec<f64> = judged.ratios.iter().map(oriented).collect();
    let (low, high) = times.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    let profiles = Profiles::of(over, candidates);
    Some(Advantage { over: over.to_owned(), profiles, times: median(&times)?, low, high, pairs: times.len() })
}

/// Returns the side of polylogue that is compared: the one that acknowledges after the flush, or else the first.
#[must_use]
pub fn ours<'a>(order: &[Sided<'a>]) -> Option<&'a str> {
    let ours = || order.iter().filter(|(_, system)| *system == System::Polylogue).map(|(side, _)| *side);
    ours().find(|side| *side == "polylogue-sync").or_else(|| ours().next())
}

/// Returns the side of polylogue that is compared with a system: the one with its protocol if there is one, else [`ours`].
///
/// Includes sides without a run that counts: another side does not replace a failed one.
pub fn ours_beside<'a>(order: &[Sided<'a>], system: System) -> Option<&'a str> {
    let same = order.iter().find(|(side, other)| *other == System::Polylogue && speaks_amqp(side));
    same.filter(|_| system == System::Rabbitmq).map(|(side, _)| *side).or_else(|| ours(order))
}

/// Returns the outcome of a row of these sides. The null broker is not a peer.
#[must_use]
pub fn outcome(sides: &Sides<'_>, asked: Asked<'_>, order: &[Sided<'_>]) -> Outcome {
    let undecided = |why: &str, ours: Option<Advantage>| Outcome {
        winner: None,
        advantage: ours.clone(),
        ours,
        standing: Standing::Undecided(why.to_owned()),
    };
    let known = figure(asked.figure);
    // A given rate is met or missed; no side is better at it.
    if known.better == Better::Neither || (known.group == Group::Rate && !sides.is_unpaced()) {
        return undecided("", None);
    }
    let ours = ours(order);
    // Other sides of polylogue are not candidates.
    let is_candidate = |(side, system): &Sided<'_>| match system {
        System::Null => false,
        System::Polylogue => Some(*side) == ours || speaks_amqp(side),
        _ => true,
    };
    let tells = |side: &Sided<'_>| is_candidate(side) && !sides.values(side.0, asked.figure).is_empty();
    let candidates: Vec<Sided<'_>> = order.iter().copied().filter(tells).collect();
    if !candidates.iter().any(|(side, _)| Some(*side) == ours) {
        return undecided(if ours.is_some() { "no run of polylogue counts" } else { "polylogue was not run" }, None);
    }
    let peers = || candidates.iter().copied().filter(|(_, system)| *system != System::Polylogue);
    let is_there = |side: &str| candidates.iter().any(|(other, _)| *other == side);
    let missing = peers().find_map(|(_, system)| ours_beside(order, system).filter(|side| !is_there(side)));
    if let Some(side) = missing {
        return undecided(&format!("no run of {side} counts"), None);
    }
    let against: Vec<(Sided<'_>, Judged)> =
        peers().filter_map(|peer| Some((peer, judge(sides, asked, ours_beside(order, peer.1)?, peer.0)?))).collect();
    let closest = against
        .iter()
        .filter_map(|((peer, _), judged)| advantage(judged, asked.figure, peer, &candidates))
        .min_by(|a, b| a.times.total_cmp(&b.times));
    if against.is_empty() {
        let with_itself = with_itself(sides, asked, order);
        let why = if with_itself.is_some() { ITSELF } else { NO_PEER };
        return undecided(why, with_itself);
    }
    if let Some(why) = nothing_compared(sides, asked, &candidates) {
        return undecided(why, closest.filter(|_| asked.quick));
    }
    if let Some(why) = no_winner(&against) {
        return undecided(why, closest);
    }
    if against.iter().all(|(_, judged)| judged.ahead == Ahead::Level && judged.ratios.len() == 1) {
        return undecided(RUN_ONCE, closest);
    }
    let behind: Vec<String> = against
        .iter()
        .filter(|(_, judged)| judged.ahead == Ahead::Second)
        .map(|((peer, _), _)| (*peer).to_owned())
        .collect();
    let standing = match () {
        () if !behind.is_empty() => Standing::Behind(behind),
        () if against.iter().all(|(_, judged)| judged.ahead == Ahead::First) => Standing::Ahead,
        () => Standing::Level,
    };
    let winning = match (&standing, &closest) {
        (Standing::Ahead, Some(over)) => {
            let closest = against.iter().find(|((peer, _), _)| *peer == over.over).map(|((_, system), _)| *system);
            closest.and_then(|system| ours_beside(order, system)).map(|side| (side, over.clone()))
        }
        _ => against.iter().find_map(|(peer, _)| lead(sides, asked, *peer, &candidates)),
    };
    let (winner, lead) = winning.map_or((None, closest.clone()), |(side, lead)| (Some(side.to_owned()), Some(lead)));
    Outcome { winner, advantage: lead, ours: closest, standing }
}

/// Returns the reason why the sides cannot be compared in a figure, if any.
fn nothing_compared(sides: &Sides<'_>, asked: Asked<'_>, candidates: &[Sided<'_>]) -> Option<&'static str> {
    match () {
        () if asked.quick => Some("smoke run"),
        () if is_of_own_rate(sides, asked.figure) => Some(OWN_RATES),
        () if is_closed_loop(sides, asked.figure, candidates) => Some(CLOSED_LOOP),
        () => None,
    }
}

/// Returns the reason why a row has no winner, if one of its comparisons has no verdict.
fn no_winner(against: &[(Sided<'_>, Judged)]) -> Option<&'static str> {
    let whys = [
        (Ahead::ClientBound, "client-bound"),
        (Ahead::Unsustained, UNSUSTAINED),
        (Ahead::ReadLess, READ_LESS),
        (Ahead::Lingers, LINGERS),
    ];
    whys.into_iter().find(|(ahead, _)| against.iter().any(|(_, judged)| judged.ahead == *ahead)).map(|(_, why)| why)
}

/// Returns whether a figure of a ladder was measured at each side's own highest rate. Only figures of steps have the same rate.
fn is_of_own_rate(sides: &Sides<'_>, name: &str) -> bool {
    step(name).is_none()
        && matches!(figure(name).group, Group::Publish | Group::EndToEnd | Group::Cost | Group::Memory)
        && sides.figures().contains(HELD_MAX)
}

/// Returns whether a latency is of a closed loop: at unlimited rate with several messages in flight. It is then the number of messages in
/// flight divided by the throughput, without further information. With one message in flight it is the broker's latency.
fn is_closed_loop(sides: &Sides<'_>, name: &str, candidates: &[Sided<'_>]) -> bool {
    step(name).is_none()
        && sides.is_unpaced()
        && matches!(figure(name).group, Group::Publish | Group::EndToEnd)
        && candidates.iter().any(|(side, _)| sides.is_pipelined(side))
}

/// Returns the advantage of the first side over the second, if both are polylogue's and there are no others.
fn with_itself(sides: &Sides<'_>, asked: Asked<'_>, order: &[Sided<'_>]) -> Option<Advantage> {
    match order {
        [(first, System::Polylogue), (second, System::Polylogue)] => {
            advantage(&judge(sides, asked, first, second)?, asked.figure, second, order)
        }
        _ => None,
    }
}

/// Returns a peer's advantage over the closest side of another system, if it is ahead of all of them. Of polylogue's sides, only the one
/// that is compared with it counts.
fn lead<'a>(
    sides: &Sides<'_>,
    asked: Asked<'_>,
    (side, system): Sided<'a>,
    candidates: &[Sided<'_>],
) -> Option<(&'a str, Advantage)> {
    let mut closest: Option<Advantage> = None;
    let beside = ours_beside(candidates, system);
    let is_other = |(other, of): &&Sided<'_>| match of {
        System::Polylogue => Some(*other) == beside,
        of => *of != system,
    };
    for (other, _) in candidates.iter().filter(is_other) {
        let judged = judge(sides, asked, side, other).filter(|judged| judged.ahead == Ahead::First)?;
        let over = advantage(&judged, asked.figure, other, candidates)?;
        if closest.as_ref().is_none_or(|so_far| over.times < so_far.times) {
            closest = Some(over);
        }
    }
    Some((side, closest?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::FELL_BEHIND;
    use crate::results::ResultLine;

    const P99: &str = "publish_p99_ms";
    fn rounds(cell: &str, sides: &[(&str, &[(&str, f64)])], rounds: u32) -> Vec<ResultLine> {
        let of = |round| sides.iter().map(move |(side, figures)| ResultLine::example(cell, side, round, figures));
        // One message in flight, so that latencies are compared.
        let one_by_one = |mut line: ResultLine| {
            line.conditions.as_mut().expect("it has some").in_flight = 1;
            line
        };
        (1..=rounds).flat_map(of).map(one_by_one).collect()
    }

    fn reported(lines: &[ResultLine], figure: &str, pairs_min: usize) -> Outcome {
        let refs: Vec<&ResultLine> = lines.iter().collect();
        let sides = Sides::of(&refs);
        let order: Vec<Sided<'_>> = sides.order.iter().map(|side| (*side, System::of_target(side))).collect();
        let cell = &lines.first().expect("there are some").cell;
        let quick = lines.iter().any(|line| line.quick);
        outcome(&sides, Asked { cell, figure, quick, pairs_min }, &order)
    }

    /// Regression test: RabbitMQ was compared with polylogue over the Kafka protocol, although there was a side over AMQP.
    #[test]
    fn a_peer_is_compared_with_the_side_of_its_protocol() {
        let beside = |amqp: f64, kafka: f64| {
            let lines = rounds(
                "B1/x",
                &[
                    ("polylogue-sync", &[(P99, 2.0)]),
                    ("polylogue-sync-amqp", &[(P99, amqp)]),
                    ("kafka", &[(P99, kafka)]),
                    ("rabbitmq", &[(P99, 1.0)]),
                ],
                3,
            );
            reported(&lines, P99, 3)
        };
        let won = beside(0.5, 3.0);
        assert_eq!((won.standing, won.winner.as_deref()), (Standing::Ahead, Some("polylogue-sync")), "kafka is closer");
        let won = beside(0.5, 9.0);
        assert_eq!((won.standing, won.winner.as_deref()), (Standing::Ahead, Some("polylogue-sync-amqp")));
        let lost = beside(4.0, 3.0);
        assert_eq!(lost.standing, Standing::Behind(vec!["rabbitmq".to_owned()]));
        assert_eq!(lost.winner.as_deref(), Some("rabbitmq"));
        let lost = beside(0.5, 0.25);
        assert_eq!(lost.standing, Standing::Behind(vec!["kafka".to_owned()]));
        assert_eq!(lost.winner.as_deref(), Some("kafka"));
    }

    /// Regression test: if polylogue's AMQP side had failed, its Kafka side was compared with RabbitMQ instead.
    #[test]
    fn a_failed_side_is_not_replaced_by_another() {
        let mut lines = rounds(
            "B1/x",
            &[("polylogue-sync", &[(P99, 1.0)]), ("polylogue-sync-amqp", &[(P99, 1.0)]), ("rabbitmq", &[(P99, 2.0)])],
            3,
        );
        assert_eq!(reported(&lines, P99, 3).standing, Standing::Ahead);
        for line in lines.iter_mut().filter(|line| line.side == "polylogue-sync-amqp") {
            line.failures.push("the rate was not held".to_owned());
        }
        let why = Standing::Undecided("no run of polylogue-sync-amqp counts".to_owned());
        assert_eq!(reported(&lines, P99, 3).standing, why);
    }

    /// Regression test: a reader that was slower than a peer's was neither ahead nor behind.
    #[test]
    fn the_side_that_reads_a_backlog_faster_is_ahead() {
        let lines =
            rounds("A6/drain", &[("polylogue-sync", &[("drained_s", 4.0)]), ("kafka", &[("drained_s", 3.0)])], 3);
        assert_eq!(reported(&lines, "drained_s", 3).standing, Standing::Behind(vec!["kafka".to_owned()]));
    }

    /// Regression test: such latencies are the messages in flight divided by the throughput: one win was counted five times.
    #[test]
    fn at_unlimited_rate_latencies_are_compared_with_one_message_in_flight_only() {
        let standing = |in_flight: u32| {
            let mut lines = rounds("C2/x", &[("polylogue-sync", &[(P99, 1.0)]), ("kafka", &[(P99, 2.0)])], 3);
            lines.iter_mut().for_each(|line| line.conditions.as_mut().expect("it has some").in_flight = in_flight);
            reported(&lines, P99, 3).standing
        };
        assert_eq!((standing(5), standing(1)), (Standing::Undecided(CLOSED_LOOP.to_owned()), Standing::Ahead));
    }

    #[test]
    fn a_side_that_serves_fewer_reads_is_not_cheaper() {
        let of = |read: f64| {
            let figures = |cpu: f64, read: f64| [(PRODUCE_CPU, cpu), (RATE, 100.0), ("fetch_per_s", read)];
            let (ours, theirs) = (figures(1.0, read), figures(5.0, 100.0));
            let lines = rounds("A3/x", &[("polylogue-sync", ours.as_slice()), ("kafka", theirs.as_slice())], 3);
            reported(&lines, PRODUCE_CPU, 3).standing
        };
        assert_eq!(of(40.0), Standing::Undecided(READ_LESS.to_owned()));
        assert_eq!(
            (of(98.0), of(190.0)),
            (Standing::Ahead, Standing::Ahead),
            "a side that serves more reads is compared"
        );
    }

    #[test]
    fn latencies_with_different_linger_times_are_not_compared() {
        let lines = |theirs: &str| {
            let mut lines = rounds("E5/x", &[("polylogue-sync", &[(P99, 15.0)]), ("tubemq", &[(P99, 0.3)])], 3);
            for line in &mut lines {
                let is_theirs = line.side == "tubemq";
                let reported = line.conditions.as_mut().expect("it has some");
                reported.rate = 5_000;
                reported.batching =
                    if is_theirs { theirs.to_owned() } else { "131072 bytes, linger 200 ms".to_owned() };
            }
            reported(&lines, P99, 3).standing
        };
        assert_eq!(lines("one by one"), Standing::Undecided(LINGERS.to_owned()));
        assert_eq!(lines("1 bytes, linger 200 ms"), Standing::Behind(vec!["tubemq".to_owned()]));
    }

    #[test]
    fn the_winner_is_ahead_of_every_other_system_in_its_better_profile() {
        let sides: [(&str, &[(&str, f64)]); 5] = [
            ("polylogue-sync", &[(P99, 2.0)]),
            ("polylogue-async", &[(P99, 1.0)]),
            ("kafka", &[(P99, 9.0)]),
            ("kafka-tuned", &[(P99, 5.0)]),
            ("null", &[(P99, 0.1)]),
        ];
        let outcome = reported(&rounds("A4/x", &sides, 3), P99, 3);
        assert_eq!(
            outcome.winner.as_deref(),
            Some("polylogue-sync"),
            "polylogue's other side and the null broker are not peers"
        );
        assert_eq!(outcome.standing, Standing::Ahead);
        let lead = outcome.advantage.expect("it has one");
        assert_eq!((lead.over.as_str(), lead.times, lead.pairs), ("kafka-tuned", 2.5, 3));
        assert_eq!(lead.profiles, Some(Profiles::Both));
    }

    /// Regression test: a win over the only measured profile read like a win over both.
    #[test]
    fn a_win_names_the_profiles_that_it_covers() {
        let profiles = |peers: &[&str]| {
            let peer: &[(&str, f64)] = &[(P99, 9.0)];
            let ours: (&str, &[(&str, f64)]) = ("polylogue-sync", &[(P99, 2.0)]);
            let sides: Vec<(&str, &[(&str, f64)])> =
                std::iter::once(ours).chain(peers.iter().map(|name| (*name, peer))).collect();
            reported(&rounds("A4/x", &sides, 3), P99, 3).advantage.and_then(|lead| lead.profiles)
        };
        assert_eq!(profiles(&["kafka"]), Some(Profiles::Default));
        assert_eq!(profiles(&["kafka", "kafka-fsync"]), Some(Profiles::Default), "a durability is not a profile");
        assert_eq!(profiles(&["kafka-tuned"]), Some(Profiles::Tuned));
        assert_eq!(profiles(&["kafka", "kafka-tuned"]), Some(Profiles::Both));
        assert_eq!(
            profiles(&["kafka-fsync", "pulsar-tuned"]),
            Some(Profiles::Default),
            "profiles of another system do not count"
        );
    }

    #[test]
    fn a_loss_has_the_winners_advantage() {
        let sides: [(&str, &[(&str, f64)]); 3] =
            [("polylogue-sync", &[(RATE, 100.0)]), ("kafka", &[(RATE, 200.0)]), ("pulsar", &[(RATE, 50.0)])];
        let outcome = reported(&rounds("A1/x", &sides, 3), RATE, 3);
        assert_eq!(outcome.winner.as_deref(), Some("kafka"));
        assert_eq!(outcome.standing, Standing::Behind(vec!["kafka".to_owned()]));
        assert_eq!(outcome.advantage.map(|lead| (lead.over, lead.times)), Some(("polylogue-sync".to_owned(), 2.0)));
    }

    #[test]
    fn a_throughput_whose_readers_fall_behind_does_not_win() {
        let behind = |behind: f64, rate: f64| [(RATE, rate), (FELL_BEHIND, behind), ("files", 1e6 / rate)];
        let sides = |ours: f64, theirs: f64| {
            let figures = [behind(ours, 100.0), behind(theirs, 50.0)];
            rounds("A1/x", &[("polylogue-sync", figures[0].as_slice()), ("kafka", figures[1].as_slice())], 3)
        };
        assert_eq!(
            reported(&sides(0.0, 1.0), RATE, 3).standing,
            Standing::Ahead,
            "the readers of the slower side fall behind"
        );
        let unsustained = reported(&sides(1.0, 0.0), RATE, 3);
        assert_eq!((unsustained.standing, unsustained.winner), (Standing::Undecided(UNSUSTAINED.to_owned()), None));
        assert_eq!(reported(&sides(1.0, 0.0), "files", 3).standing, Standing::Ahead, "other figures are compared");
    }

    #[test]
    fn the_first_page_needs_five_pairs() {
        let sides: [(&str, &[(&str, f64)]); 2] = [("polylogue-sync", &[(P99, 1.0)]), ("kafka", &[(P99, 2.0)])];
        let four = rounds("A4/x", &sides, 4);
        assert_eq!(reported(&four, P99, 3).standing, Standing::Ahead);
        let level = reported(&four, P99, FIRST_PAGE_PAIRS_MIN);
        assert_eq!((level.standing, level.winner), (Standing::Level, None));
        assert_eq!(reported(&rounds("A4/x", &sides, 5), P99, FIRST_PAGE_PAIRS_MIN).standing, Standing::Ahead);
    }

    #[test]
    fn a_row_without_a_winner_has_a_reason() {
        let sides: [(&str, &[(&str, f64)]); 2] = [("polylogue-sync", &[(P99, 1.0)]), ("kafka", &[(P99, 2.0)])];
        let why = |lines: &[ResultLine], figure: &str| match reported(lines, figure, 3).standing {
            Standing::Undecided(why) => why,
            other => panic!("{other:?}"),
        };
        let mut quick = rounds("A4/x", &sides, 3);
        quick.iter_mut().for_each(|line| line.quick = true);
        assert_eq!(why(&quick, P99), "smoke run");
        assert_eq!(why(&rounds("A4/x", &sides[1..], 3), P99), "polylogue was not run");
        assert_eq!(why(&rounds("A4/x", &sides[..1], 3), P99), "no peer to compare with");
        assert_eq!(why(&rounds("A4/x", &sides, 3), "flush_delay_ms"), "", "an unknown figure has no winner");
        let mut failed = rounds("A4/x", &sides, 3);
        failed
            .iter_mut()
            .filter(|line| line.side == "polylogue-sync")
            .for_each(|line| line.failures.push("x".to_owned()));
        assert_eq!(why(&failed, P99), "no run of polylogue counts");
    }

    #[test]
    fn latencies_of_a_ladder_are_compared_at_the_same_rate_only() {
        const STEP: &str = "step.5000.publish_p99_ms";
        let figures = |p99: f64| [(HELD_MAX, 1_000.0 / p99), (P99, p99), (STEP, p99)];
        let sides: [(&str, &[(&str, f64)]); 2] = [("polylogue-sync", &figures(1.0)), ("kafka", &figures(2.0))];
        let lines = rounds("B1/x", &sides, 3);
        assert_eq!(reported(&lines, P99, 3).standing, Standing::Undecided(OWN_RATES.to_owned()));
        assert_eq!(reported(&lines, STEP, 3).standing, Standing::Ahead);
        assert_eq!(reported(&lines, HELD_MAX, 3).standing, Standing::Ahead);
    }

    #[test]
    fn a_comparison_with_itself_has_a_ratio_and_no_winner() {
        let sides: [(&str, &[(&str, f64)]); 2] =
            [("partitions=10000", &[(P99, 1.3)]), ("partitions=100", &[(P99, 1.0)])];
        let mut lines = rounds("D6/x", &sides, 3);
        let target =
            |line: &mut ResultLine| line.conditions.as_mut().expect("it has some").target = "polylogue-sync".to_owned();
        lines.iter_mut().for_each(target);
        let refs: Vec<&ResultLine> = lines.iter().collect();
        let sides = Sides::of(&refs);
        let order = [("partitions=10000", System::Polylogue), ("partitions=100", System::Polylogue)];
        let asked = Asked { cell: "D6/x", figure: P99, quick: false, pairs_min: 3 };
        let outcome = outcome(&sides, asked, &order);
        assert_eq!(outcome.standing, Standing::Undecided(ITSELF.to_owned()));
        let reported = outcome.advantage.map(|reported| (reported.over, (reported.times * 1e3).round()));
        assert_eq!(reported, Some(("partitions=100".to_owned(), 769.0)), "1 / 1.3");
    }

    #[test]
    fn a_scenario_without_a_rate_is_client_bound_like_a_throughput_cell() {
        let figures = |rate: f64| {
            [
                (RATE, rate),
                ("produce_client_cpu_s_per_million", 9.0),
                ("files", 1e6 / rate),
                ("produce_cpu_s_per_million", rate / 1e5),
            ]
        };
        let sides: [(&str, &[(&str, f64)]); 2] =
            [("polylogue-sync", &figures(100_000.0)), ("kafka", &figures(50_000.0))];
        let mut lines = rounds("A1/x", &sides, 3);
        assert_eq!(reported(&lines, RATE, 3).standing, Standing::Undecided("client-bound".to_owned()));
        let cost = reported(&lines, "produce_cpu_s_per_million", 3);
        assert_eq!(cost.standing, Standing::Behind(vec!["kafka".to_owned()]), "processor time is compared");
        assert_eq!(reported(&lines, "files", 3).standing, Standing::Undecided("client-bound".to_owned()));
        for line in &mut lines {
            line.conditions.as_mut().expect("it has some").rate = 1_000;
        }
        assert_eq!(
            reported(&lines, "files", 3).standing,
            Standing::Undecided("client-bound".to_owned()),
            "at a rate, too"
        );
        assert_eq!(
            reported(&lines, RATE, 3).standing,
            Standing::Undecided(String::new()),
            "and no side is better at it"
        );
    }

    /// Regression test: with a client at 95 % of its core, a given rate had a winner in latency.
    #[test]
    fn with_a_saturated_client_at_a_given_rate_only_cpu_has_a_winner() {
        const CPU: &str = "produce_cpu_s_per_million";
        let lines = |cores: f64| {
            let figures = |p99: f64| [(P99, p99), (CPU, p99), ("window_client_cpu_cores", cores)];
            let (ours, theirs) = (figures(1.0), figures(2.0));
            let mut lines = rounds("A4/x", &[("polylogue-sync", &ours), ("kafka", &theirs)], 3);
            for conditions in lines.iter_mut().filter_map(|line| line.conditions.as_mut()) {
                (conditions.rate, conditions.client_cores) = (25_000, 1);
                "java".clone_into(&mut conditions.client);
            }
            lines
        };
        assert_eq!(reported(&lines(0.95), P99, 3).standing, Standing::Undecided("client-bound".to_owned()));
        assert_eq!(reported(&lines(0.95), CPU, 3).standing, Standing::Ahead);
        assert_eq!(reported(&lines(0.5), P99, 3).standing, Standing::Ahead);
    }

    /// The client may limit the lowest step that was missed, not the highest that was met.
    #[test]
    fn the_client_of_a_ladder_is_checked_at_the_missed_step() {
        const STEP: &str = "step.1000.publish_p99_ms";
        let lines = |missed: f64| {
            let figures = |held: f64| {
                [
                    (HELD_MAX, held),
                    ("window_client_cpu_cores", 0.3),
                    ("step.1000.held", 1.0),
                    ("step.1000.client_cpu_cores", 0.3),
                    ("step.2000.held", 0.0),
                    ("step.2000.client_cpu_cores", missed),
                    ("step.10000.held", 0.0),
                    ("step.10000.client_cpu_cores", 1.0),
                    (STEP, 1.0 / held),
                ]
            };
            let (ours, theirs) = (figures(2_000.0), figures(1_000.0));
            rounds("B1/x", &[("polylogue-sync", &ours), ("kafka", &theirs)], 3)
        };
        assert_eq!(reported(&lines(0.95), HELD_MAX, 3).standing, Standing::Undecided("client-bound".to_owned()));
        assert_eq!(reported(&lines(0.5), HELD_MAX, 3).standing, Standing::Ahead, "higher steps do not matter");
        assert_eq!(reported(&lines(0.95), STEP, 3).standing, Standing::Ahead, "a step has a client of its own");
    }
}
