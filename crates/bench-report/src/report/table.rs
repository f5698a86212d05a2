//! The Markdown table of a cell.

use super::judge::{Ahead, Asked, judge};
use super::sides::{Sides, above_null};
use super::stats::{PAIRS_MIN, count, median, number, spread};
use crate::drive::Driver;
use crate::results::CLIENT_BUSY;
use crate::results::{Conditions, ResultLine};
use humantime::format_duration;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// Circumstances of the measurement, in which no value is better.
const CIRCUMSTANCES: [&str; 4] = ["machine_idle", CLIENT_BUSY, "fetch_client_busy", "device_read_per_byte_served"];

/// Returns the figures of the table, chosen by the first part of the cell's name; all figures for other cells.
fn reported<'a>(cell: &str, of_cell: &[&'a ResultLine]) -> Vec<&'a str> {
    let chosen: &'static [&'static str] = match cell.split('/').next().unwrap_or_default() {
        "cost" => &[
            "produce_cpu_s_per_million",
            "fetch_cpu_s_per_million",
            "written_per_byte",
            "anonymous_mib",
            "files",
            CLIENT_BUSY,
            "fetch_client_busy",
        ],
        "throughput" => &["produce_per_s", "fetch_per_s", "produce_cpu_s_per_million", CLIENT_BUSY],
        "latency" | "cold" => &[
            "publish_median_ms",
            "publish_p50_ms",
            "publish_p99_ms",
            "publish_p99.9_ms",
            "end_to_end_median_ms",
            "end_to_end_p50_ms",
            "end_to_end_p99_ms",
            "end_to_end_p99.9_ms",
            "produce_cpu_s_per_million",
            "machine_idle",
            "device_read_per_byte_served",
        ],
        "size" => &[
            "produce_per_s",
            "publish_p50_ms",
            "publish_p99_ms",
            "produce_cpu_s_per_million",
            "machine_idle",
            CLIENT_BUSY,
        ],
        _ => &[],
    };
    if chosen.is_empty() {
        let all: BTreeSet<&str> = of_cell.iter().flat_map(|line| line.figures.keys().map(String::as_str)).collect();
        return all.into_iter().collect();
    }
    chosen.iter().copied().filter(|figure| is_reported(cell, figure)).collect()
}

/// Returns whether a figure is reported: p99.9 only for native clients, because of the pauses of a JVM client.
fn is_reported(cell: &str, figure: &str) -> bool {
    let client = cell.rsplit_once("client=").and_then(|(_, name)| name.parse::<Driver>().ok());
    !figure.contains("p99.9") || client.is_none_or(Driver::is_native)
}

/// Writes the table of a cell, with the conditions of its sides and the runs that do not count.
pub fn write(text: &mut String, cell: &str, of_cell: &[&ResultLine]) {
    let sides = Sides::of(of_cell);
    let _ = writeln!(text, "### {cell}\n");
    for side in &sides.order {
        let conditions = of_cell.iter().find(|line| line.side == **side).and_then(|line| line.conditions.as_ref());
        if let Some(conditions) = conditions {
            let _ = writeln!(text, "- {side}: {}", format_conditions(conditions));
        }
    }
    write_rows(text, cell, &reported(cell, of_cell), &sides, of_cell.iter().any(|line| line.quick));
    for line in of_cell.iter().filter(|line| !line.failures.is_empty()) {
        let _ = writeln!(
            text,
            "- failed run, not counted: {} in round {}: {}",
            line.side,
            line.round,
            line.failures.join("; ")
        );
    }
    text.push('\n');
}

fn format_conditions(c: &Conditions) -> String {
    let rate = if c.rate == 0 { "unlimited rate".to_owned() } else { format!("{}/s", count(c.rate)) };
    let time = |ms: u64| format_duration(Duration::from_millis(ms));
    let extent = match (c.messages, c.window_ms) {
        // Older lines do not have these fields.
        (0, 0) => String::new(),
        (0, window) => format!("; warm-up {}, window {}", time(c.warmup_ms), time(window)),
        (messages, _) => format!("; warm-up {} messages, {} measured", count(c.warm_messages), count(messages)),
    };
    if let Some(queue) = c.queue {
        return format!(
            "{} confirms: {}; client {}, at most {} unconfirmed; {} bytes, {rate}, {} {queue}{extent}",
            c.target,
            c.durability,
            c.client,
            count(c.in_flight.into()),
            c.message_bytes,
            c.partitions
        );
    }
    format!(
        "{} acknowledges: {}; client {}, {}, {} in flight; {} bytes, {rate}, {} partitions, {} groups{extent}",
        c.target, c.durability, c.client, c.batching, c.in_flight, c.message_bytes, c.partitions, c.groups
    )
}

fn write_rows(text: &mut String, cell: &str, figures: &[&str], sides: &Sides<'_>, quick: bool) {
    let _ = writeln!(text, "\n| | {} | ratio to the first |", sides.order.join(" | "));
    let _ = writeln!(text, "|---{}|---|", "|---".repeat(sides.order.len()));
    for figure in figures {
        write_row(text, cell, figure, sides, quick);
        if let Some(above) = above_null(figure) {
            write_row(text, cell, &above, sides, quick);
        }
    }
    text.push('\n');
}

fn write_row(text: &mut String, cell: &str, figure: &str, sides: &Sides<'_>, quick: bool) {
    let values: Vec<Vec<f64>> = sides.order.iter().map(|side| sides.values(side, figure)).collect();
    if values.iter().all(Vec::is_empty) {
        return;
    }
    let row: Vec<String> = values.iter().map(|values| spread(values)).collect();
    let first = sides.order.first().copied().unwrap_or_default();
    let others = sides.order.iter().skip(1);
    let against: Vec<String> = others.filter_map(|side| compare(cell, figure, first, side, sides, quick)).collect();
    let _ = writeln!(text, "| {figure} | {} | {} |", row.join(" | "), against.join("; "));
}

/// Formats a comparison: "kafka 3.10 times, polylogue-sync ahead", the median ratio of the pairs, second to first, and the verdict. If
/// client-bound, only processor time has a winner.
fn compare(cell: &str, figure: &str, first: &str, second: &str, sides: &Sides<'_>, quick: bool) -> Option<String> {
    if CIRCUMSTANCES.contains(&figure) {
        return None;
    }
    let judged = judge(sides, Asked { cell, figure, quick, pairs_min: PAIRS_MIN }, first, second)?;
    let ratio = median(&judged.ratios)?;
    if super::figures::figure(figure).better == super::figures::Better::Neither {
        return Some(format!("{second} {} times", number(ratio)));
    }
    let ahead = match judged.ahead {
        Ahead::NoWinner => return Some(format!("{second} {} times", number(ratio))),
        Ahead::ClientBound => "client-bound".to_owned(),
        Ahead::Unsustained => super::judge::UNSUSTAINED.to_owned(),
        Ahead::ReadLess => super::judge::READ_LESS.to_owned(),
        Ahead::Lingers => super::judge::LINGERS.to_owned(),
        Ahead::First => format!("{first} ahead"),
        Ahead::Second => format!("{second} ahead"),
        Ahead::Level if judged.ratios.len() == 1 => super::judge::RUN_ONCE.to_owned(),
        Ahead::Level => "level".to_owned(),
    };
    Some(format!("{second} {} times, {ahead}", number(ratio)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: &str = "latency/rate=1/client=raw";
    const THROUGHPUT: &str = "throughput/partitions=1/client=raw";

    fn table(lines: &[ResultLine]) -> String {
        let mut text = String::new();
        let cell = lines.first().map(|line| line.cell.clone()).unwrap_or_default();
        write(&mut text, &cell, &lines.iter().collect::<Vec<_>>());
        text
    }

    fn three(cell: &str, sides: &[(&str, &[(&str, f64)])]) -> Vec<ResultLine> {
        let of = |round| sides.iter().map(move |(side, figures)| ResultLine::example(cell, side, round, figures));
        (1..=3).flat_map(of).collect()
    }

    #[test]
    fn a_row_has_median_spread_ratio_and_verdict() {
        let line = |side, round, p99| ResultLine::example(LATENCY, side, round, &[("publish_p99_ms", p99)]);
        let mut lines: Vec<ResultLine> =
            (1..=3).flat_map(|round| [line("ours", round, f64::from(round)), line("theirs", round, 10.0)]).collect();
        let text = table(&lines);
        assert!(
            text.contains(
                "| publish_p99_ms | 2.00 (1.00 to 3.00) | 10.0 (10.0 to 10.0) | theirs 5.00 times, ours ahead |"
            ),
            "{text}"
        );
        lines[5].failures.push("1 messages lost".to_owned());
        let text = table(&lines);
        assert!(text.contains("level") && !text.contains("ours ahead"), "two pairs remain: {text}");
        assert!(text.contains("not counted: theirs in round 3: 1 messages lost"), "{text}");
    }

    #[test]
    fn latencies_above_the_null_broker_have_a_row() {
        let lines = three(
            LATENCY,
            &[
                ("ours", &[("publish_p99_ms", 2.0)]),
                ("theirs", &[("publish_p99_ms", 5.0)]),
                ("null", &[("publish_p99_ms", 1.0)]),
            ],
        );
        let text = table(&lines);
        let row = "| publish_p99_ms above the null broker | 1.00 (1.00 to 1.00) | 4.00 (4.00 to 4.00) | - \
                   | theirs 4.00 times, ours ahead |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("theirs 2.50 times, ours ahead; null 0.50 times, null ahead"), "as measured: {text}");
    }

    #[test]
    fn a_latency_of_zero_above_the_null_broker_is_ahead() {
        let lines = three(
            LATENCY,
            &[
                ("ours", &[("publish_p99_ms", 0.5)]),
                ("theirs", &[("publish_p99_ms", 5.0)]),
                ("null", &[("publish_p99_ms", 1.0)]),
            ],
        );
        assert!(table(&lines).contains("| theirs ∞ times, ours ahead |"), "{}", table(&lines));
    }

    #[test]
    fn p999_is_reported_for_native_clients_only() {
        let figures: &[(&str, f64)] =
            &[("publish_p99_ms", 1.0), ("publish_p99.9_ms", 2.0), ("end_to_end_p99.9_ms", 3.0)];
        for (client, tells) in [("raw", true), ("librdkafka", true), ("java", false)] {
            let cell = format!("latency/rate=1/client={client}");
            let text = table(&three(&cell, &[("ours", figures), ("null", figures)]));
            assert!(text.contains("| publish_p99_ms |"), "{text}");
            assert_eq!(text.contains("p99.9"), tells, "{client}: {text}");
        }
    }

    #[test]
    fn the_idle_share_of_the_machine_has_no_winner() {
        let lines = three(LATENCY, &[("ours", &[("machine_idle", 0.6)]), ("theirs", &[("machine_idle", 0.3)])]);
        let text = table(&lines);
        assert!(text.contains("| machine_idle | 0.60 (0.60 to 0.60) | 0.30 (0.30 to 0.30) |  |"), "{text}");
    }

    #[test]
    fn with_a_saturated_client_only_processor_time_has_a_winner() {
        let figures = |cost: f64, client: f64| {
            [
                ("produce_per_s", 100_000.0),
                ("produce_cpu_s_per_million", cost),
                ("produce_client_cpu_s_per_million", client * 10.0),
            ]
        };
        let text = table(&three(THROUGHPUT, &[("ours", &figures(1.0, 0.9)), ("theirs", &figures(3.0, 0.5))]));
        assert!(text.contains("theirs 1.00 times, client-bound |"), "{text}");
        assert!(text.contains("theirs 3.00 times, ours ahead |"), "processor time: {text}");
        assert!(text.contains("| produce_client_busy | 0.90 (0.90 to 0.90) | 0.50 (0.50 to 0.50) |  |"), "{text}");
        let text = table(&three(THROUGHPUT, &[("ours", &figures(1.0, 0.8)), ("theirs", &figures(3.0, 0.5))]));
        assert!(!text.contains("client-bound"), "{text}");
        let text = table(&three(LATENCY, &[("ours", &figures(1.0, 0.9)), ("theirs", &figures(3.0, 0.5))]));
        assert!(!text.contains("client-bound"), "a rate is given there: {text}");
    }

    #[test]
    fn conditions_contain_the_length_of_a_run() {
        let mut lines = three(THROUGHPUT, &[("ours", &[("produce_per_s", 1.0)])]);
        assert!(table(&lines).contains("0 groups\n"), "an older line");
        let c = lines[0].conditions.as_mut().expect("it has some");
        (c.warm_messages, c.messages) = (0, 3_000_000);
        assert!(table(&lines).contains("; warm-up 0 messages, 3,000,000 measured"), "{}", table(&lines));
        let c = lines[0].conditions.as_mut().expect("it has some");
        (c.messages, c.warmup_ms, c.window_ms) = (0, 20_000, 60_500);
        assert!(table(&lines).contains("; warm-up 20s, window 1m 500ms"), "{}", table(&lines));
    }
}
