//! Figures: title, unit, group, and whether less or more is better.

use super::stats::count;
use crate::results::{FELL_BEHIND, LADDER_ENDED};
use std::borrow::Cow;

/// Which values are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Lower values.
    Less,
    /// Higher values.
    More,
    /// Neither: a circumstance of the measurement, or too noisy for a verdict.
    Neither,
}

/// Groups of figures, in the order of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Messages a second.
    Rate,
    /// Latency from the due time of a message to its acknowledgement.
    Publish,
    /// Latency from the due time of a message until it is read.
    EndToEnd,
    /// Processor time of the broker.
    Cost,
    /// Memory of the broker.
    Memory,
    /// Open files, threads.
    Files,
    /// Start times, connections and others.
    Other,
    /// Circumstances of the measurement.
    Circumstance,
}

/// Properties of a figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// Title in reports.
    pub title: Cow<'static, str>,
    /// Unit; empty for a plain number.
    pub unit: &'static str,
    /// Which values are better.
    pub better: Better,
    /// Its group.
    pub group: Group,
    /// Whether it has a row on the first page.
    pub is_headline: bool,
}

type Known = (&'static str, &'static str, &'static str, Better, Group, bool);

/// Messages acknowledged a second.
pub const RATE: &str = "produce_per_s";
/// Processor time of the broker per million written messages.
pub const PRODUCE_CPU: &str = "produce_cpu_s_per_million";
/// Anonymous memory of the broker.
pub const ANONYMOUS: &str = "anonymous_mib";
/// The highest rate of a ladder that was met.
pub const HELD_MAX: &str = "held_max_per_s";
/// Flushes of the broker a second.
pub const FLUSHES: &str = "flushes_per_s";
/// Bytes written per flush of the broker.
pub const FLUSHED: &str = "bytes_per_flush";
/// 1 if a warm-up ended before steady state.
pub const CAPPED: &str = "warm_up_capped";
/// Open files of the broker.
pub const FILES: &str = "files";

/// How long a reader far behind took to catch up; if it did not, the time it had, which is a lower bound.
pub const DRAINED: &str = "drained_s";
/// Share of the backlog that it had read by then.
pub const DRAINED_SHARE: &str = "drained_share";

const CPU: &str = "s per million";

const KNOWN: &[Known] = &[
    (RATE, "throughput, writing", "messages/s", Better::More, Group::Rate, true),
    (HELD_MAX, "highest rate met", "messages/s", Better::More, Group::Rate, true),
    ("fetch_per_s", "throughput, reading", "messages/s", Better::More, Group::Rate, true),
    ("cold_read_bytes_per_s", "backlog read", "bytes/s", Better::Neither, Group::Rate, false),
    (PRODUCE_CPU, "broker CPU, writing", CPU, Better::Less, Group::Cost, true),
    ("fetch_cpu_s_per_million", "broker CPU, reading", CPU, Better::Less, Group::Cost, true),
    ("window_cpu_s_per_million", "broker CPU, window only", CPU, Better::Less, Group::Cost, false),
    (
        "with_reader_cpu_s_per_million",
        "broker CPU, writing and serving the lagging reader",
        CPU,
        Better::Neither,
        Group::Circumstance,
        false,
    ),
    ("whole_cpu_s_per_million", "broker CPU, warm-up included", CPU, Better::Neither, Group::Circumstance, false),
    (ANONYMOUS, "anonymous memory", "MiB", Better::Less, Group::Memory, true),
    ("kib_a_connection", "memory per connection", "KiB", Better::Less, Group::Memory, true),
    (
        "kib_a_connection_with_channel",
        "memory per connection with a channel",
        "KiB",
        Better::Less,
        Group::Memory,
        false,
    ),
    (FILES, "open files", "", Better::Less, Group::Files, true),
    ("threads", "threads", "", Better::Less, Group::Files, false),
    ("written_per_byte", "written to the device per byte", "", Better::Less, Group::Other, false),
    (DRAINED, "time to read the backlog, or the time limit", "s", Better::Less, Group::Other, true),
    (DRAINED_SHARE, "share of the backlog read in that time", "", Better::Neither, Group::Other, false),
    ("first_ack_s", "restart after a kill to the first acknowledgement", "s", Better::Less, Group::Other, true),
    ("restart_s", "restart after a kill", "s", Better::Less, Group::Other, false),
    ("start_s", "start", "s", Better::Less, Group::Other, true),
    ("redeclare_per_s", "queues redeclared", "queues/s", Better::More, Group::Other, false),
    ("connections_per_s", "connections accepted", "connections/s", Better::More, Group::Other, true),
    ("machine_idle", "idle share of the machine", "", Better::Neither, Group::Circumstance, false),
    ("produce_client_busy", "client busy while writing, share", "", Better::Neither, Group::Circumstance, false),
    ("fetch_client_busy", "client busy while reading, share", "", Better::Neither, Group::Circumstance, false),
    ("produce_client_cpu_s_per_million", "client CPU, writing", CPU, Better::Neither, Group::Circumstance, false),
    ("fetch_client_cpu_s_per_million", "client CPU, reading", CPU, Better::Neither, Group::Circumstance, false),
    (
        "device_read_per_byte_served",
        "read from the device per byte served",
        "",
        Better::Neither,
        Group::Circumstance,
        false,
    ),
    (FLUSHES, "flushes, in a separate short run", "/s", Better::Neither, Group::Circumstance, false),
    (FLUSHED, "written per flush", "bytes", Better::Neither, Group::Circumstance, false),
    ("flush_mean_ms", "mean flush time", "ms", Better::Neither, Group::Circumstance, false),
    ("flush_delay_ms", "delay added to each flush", "ms", Better::Neither, Group::Circumstance, false),
    ("warm_up_s", "warm-up", "s", Better::Neither, Group::Circumstance, false),
    ("warm_up_messages", "warm-up", "messages", Better::Neither, Group::Circumstance, false),
    (CAPPED, "warm-up capped before steady state", "", Better::Neither, Group::Circumstance, false),
    ("life_round", "round of the broker's life", "", Better::Neither, Group::Circumstance, false),
    ("brokers_up", "running brokers, one of them with a load", "", Better::Neither, Group::Circumstance, false),
    (
        "idle_brokers_cpu_cores",
        "CPU of the brokers without a load",
        "cores",
        Better::Neither,
        Group::Circumstance,
        false,
    ),
    ("client_cpu_cores", "client CPU", "cores", Better::Neither, Group::Circumstance, false),
    ("client_busy", "client busy, share", "", Better::Neither, Group::Circumstance, false),
    (
        "ladder_client_busy",
        "client busy at the lowest rate missed, share",
        "",
        Better::Neither,
        Group::Circumstance,
        false,
    ),
    (
        LADDER_ENDED,
        "the ladder's last rate was met: the maximum may be higher",
        "",
        Better::Neither,
        Group::Circumstance,
        false,
    ),
    ("held_share", "share of the rate acknowledged", "", Better::Neither, Group::Circumstance, false),
    ("backlog_growth_per_s", "growth of the backlog", "messages/s", Better::Neither, Group::Circumstance, false),
    (FELL_BEHIND, "readers fell behind: not sustained", "", Better::Neither, Group::Circumstance, false),
    (
        "past_the_segment_writer",
        "share of writes past the segment writer",
        "",
        Better::Neither,
        Group::Circumstance,
        false,
    ),
];

/// Latency figures: the part of the name after `publish_` or `end_to_end_`.
const LATENCIES: [(&str, Better, bool); 13] = [
    ("mean_ms", Better::Less, false),
    ("median_ms", Better::Less, false),
    ("p50_ms", Better::Less, true),
    ("p75_ms", Better::Less, false),
    ("p90_ms", Better::Less, false),
    ("p95_ms", Better::Less, false),
    ("p99_ms", Better::Less, true),
    ("p99.9_ms", Better::Less, true),
    ("p99.99_ms", Better::Less, false),
    ("max_ms", Better::Neither, false),
    ("p50_ms above the null broker", Better::Less, false),
    ("p99_ms above the null broker", Better::Less, false),
    ("p99.9_ms above the null broker", Better::Less, false),
];

/// Returns the properties of a figure by name. An unknown figure has no winner.
#[must_use]
pub fn figure(name: &str) -> Figure {
    if let Some((rate, _)) = step(name) {
        let about = figure(base(name));
        let title = Cow::Owned(format!("{}/s: {}", count(rate), about.title));
        // The rate of a step is given.
        let better = if about.group == Group::Rate { Better::Neither } else { about.better };
        return Figure { title, better, is_headline: false, ..about };
    }
    if let Some((_, title, unit, better, group, is_headline)) = KNOWN.iter().find(|(known, ..)| *known == name) {
        let (title, is_headline) = (Cow::Borrowed(*title), *is_headline);
        return Figure { title, unit, better: *better, group: *group, is_headline };
    }
    for (prefix, what, group) in
        [("publish_", "publish", Group::Publish), ("end_to_end_", "end-to-end", Group::EndToEnd)]
    {
        let Some(rest) = name.strip_prefix(prefix).filter(|rest| rest.contains("_ms")) else { continue };
        let known = LATENCIES.iter().find(|(known, ..)| *known == rest);
        let (better, is_headline) =
            known.map_or((Better::Neither, false), |(_, better, headline)| (*better, *headline));
        let title = Cow::Owned(format!("{what} {}", rest.replacen("_ms", "", 1)));
        return Figure { title, unit: "ms", better, group, is_headline };
    }
    let (title, unit) = plain(name);
    Figure { title: Cow::Owned(title), unit, better: Better::Neither, group: Group::Circumstance, is_headline: false }
}

/// Splits the name of a ladder's figure into the rate of the step and the rest: `step.50000.publish_p99_ms`.
#[must_use]
pub fn step(name: &str) -> Option<(u64, &str)> {
    let (rate, rest) = name.strip_prefix("step.")?.split_once('.')?;
    Some((rate.parse().ok()?, rest))
}

/// Returns the name of a figure without the rate of its step.
#[must_use]
pub fn base(name: &str) -> &str {
    match step(name) {
        Some((_, "cpu_s_per_million")) => PRODUCE_CPU,
        Some((_, rest)) => rest,
        None => name,
    }
}

/// Splits a name into words and the unit of its suffix.
pub(super) fn plain(name: &str) -> (String, &'static str) {
    const UNITS: [(&str, &str); 9] = [
        ("_cpu_s_per_million", CPU),
        ("_bytes_per_s", "bytes/s"),
        ("_per_s", "/s"),
        ("_per_second", "/s"),
        ("_mib", "MiB"),
        ("_bytes", "bytes"),
        ("_ms", "ms"),
        ("_us", "µs"),
        ("_s", "s"),
    ];
    let (stem, unit) =
        UNITS.iter().find_map(|(suffix, unit)| Some((name.strip_suffix(suffix)?, *unit))).unwrap_or((name, ""));
    (stem.replace('_', " "), unit)
}

/// Returns the sort key of a figure: groups in their order, known figures in theirs, others after them by name; figures of steps last,
/// by rate.
#[must_use]
pub fn place(name: &str) -> (u64, Group, usize, String) {
    let (rate, rest) = step(name).unwrap_or((0, name));
    let known = KNOWN.iter().position(|(known, ..)| *known == rest);
    let latency = || LATENCIES.iter().position(|(latency, ..)| rest.ends_with(&format!("_{latency}")));
    (rate, figure(name).group, known.or_else(latency).unwrap_or(usize::MAX), name.to_owned())
}

/// Returns whether a figure is a far-tail latency, where pauses of a JVM client dominate.
#[must_use]
pub fn is_far_tail(name: &str) -> bool {
    name.contains("p99.9")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_figures_have_properties_and_unknown_ones_no_winner() {
        let p999 = figure("end_to_end_p99.9_ms");
        assert_eq!((p999.title.as_ref(), p999.unit, p999.better), ("end-to-end p99.9", "ms", Better::Less));
        let above = figure("publish_p50_ms above the null broker");
        assert_eq!((above.title.as_ref(), above.better), ("publish p50 above the null broker", Better::Less));
        assert_eq!(figure("publish_max_ms").better, Better::Neither, "one message decides it");
        assert_eq!(figure("produce_per_s").better, Better::More);
        let other = figure("some_new_ms");
        assert_eq!((other.title.as_ref(), other.unit, other.better), ("some new", "ms", Better::Neither));
    }

    #[test]
    fn the_title_of_a_step_has_its_rate() {
        let reported = figure("step.50000.publish_p99_ms");
        assert_eq!(
            (reported.title.as_ref(), reported.unit, reported.better),
            ("50,000/s: publish p99", "ms", Better::Less)
        );
        assert_eq!(figure("step.50000.produce_per_s").better, Better::Neither, "it was given");
        assert_eq!(figure("step.50000.cpu_s_per_million").better, Better::Less);
        assert_eq!(step("step.x.y"), None);
        let mut names = ["step.100000.publish_p99_ms", "step.5000.publish_p99_ms", "zzz"];
        names.sort_by_key(|name| place(name));
        assert_eq!(names, ["zzz", "step.5000.publish_p99_ms", "step.100000.publish_p99_ms"]);
    }

    #[test]
    fn figures_are_ordered_by_group() {
        let mut names = ["zzz", "files", "publish_p99.9_ms", "end_to_end_p50_ms", "publish_p50_ms", "produce_per_s"];
        names.sort_by_key(|name| place(name));
        assert_eq!(names, ["produce_per_s", "publish_p50_ms", "publish_p99.9_ms", "end_to_end_p50_ms", "files", "zzz"]);
    }
}
