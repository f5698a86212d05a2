//! Result lines to a Markdown table: medians, spread, ratios, and who is ahead.

use crate::results::ResultLine;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A side is ahead when all its alternating pairs say so and there are at least this many.
pub const PAIRS_MIN: usize = 3;

/// Figures in which less is better; in all others more is.
fn less_is_better(figure: &str) -> bool {
    !figure.ends_with("_per_s")
}

/// The figures that stand in the table, by the beginning of the cell's name; all there are for others.
fn told<'a>(cell: &str, of_cell: &[&'a ResultLine]) -> Vec<&'a str> {
    let chosen: &'static [&'static str] = match cell.split('/').next().unwrap_or_default() {
        "cost" => {
            &["produce_cpu_s_per_million", "fetch_cpu_s_per_million", "written_per_byte", "anonymous_mib", "files"]
        }
        "throughput" => &["produce_per_s", "produce_cpu_s_per_million"],
        "latency" | "cold" => &[
            "publish_p50_ms",
            "publish_p99_ms",
            "publish_p99.9_ms",
            "end_to_end_p50_ms",
            "end_to_end_p99_ms",
            "end_to_end_p99.9_ms",
            "produce_cpu_s_per_million",
            "machine_idle",
            "device_read_per_byte_served",
        ],
        "size" => &["produce_per_s", "publish_p50_ms", "publish_p99_ms", "produce_cpu_s_per_million"],
        _ => &[],
    };
    if !chosen.is_empty() {
        return chosen.to_vec();
    }
    let all: BTreeSet<&str> = of_cell.iter().flat_map(|line| line.figures.keys().map(String::as_str)).collect();
    all.into_iter().collect()
}

/// The middle of the values; between the two middle ones of an even number.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle).copied()?;
    match sorted.len() % 2 {
        0 => Some((sorted.get(middle.checked_sub(1)?)? + upper) / 2.0),
        _ => Some(upper),
    }
}

/// Who is ahead of two sides whose values stand in pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The first side in every pair.
    First,
    /// The second side in every pair.
    Second,
    /// The pairs do not agree, or are too few.
    Level,
}

/// Compares pairs of values.
#[must_use]
pub fn verdict(pairs: &[(f64, f64)], less_is_better: bool) -> Verdict {
    let better = |a: f64, b: f64| if less_is_better { a < b } else { a > b };
    if pairs.len() < PAIRS_MIN {
        return Verdict::Level;
    }
    if pairs.iter().all(|(first, second)| better(*first, *second)) {
        return Verdict::First;
    }
    if pairs.iter().all(|(first, second)| better(*second, *first)) { Verdict::Second } else { Verdict::Level }
}

/// A number with three significant digits or so.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1_000.0 => {
            let digits = format!("{value:.0}");
            let places = digits.len();
            let comma = |(at, digit): (usize, char)| {
                if at > 0 && (places - at) % 3 == 0 { format!(",{digit}") } else { digit.to_string() }
            };
            digits.chars().enumerate().map(comma).collect()
        }
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Median and spread.
fn spread(values: &[f64]) -> String {
    let Some(middle) = median(values) else { return "-".to_owned() };
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    if values.len() < 2 { number(middle) } else { format!("{} ({} to {})", number(middle), number(low), number(high)) }
}

type Sides<'a> = BTreeMap<&'a str, Vec<&'a ResultLine>>;

/// The table. The first side that a cell has in the lines is the one that others are compared with; a run that failed counts for
/// nothing and is listed.
#[must_use]
pub fn markdown(lines: &[ResultLine]) -> String {
    let mut text = String::new();
    if lines.iter().any(|line| line.quick) {
        text.push_str(
            "> **SMOKE RUN.** These figures show that every cell runs. They mean nothing, and name no winner.\n\n",
        );
    }
    write_conditions(&mut text, lines);
    let mut cells: Vec<&str> = Vec::new();
    for line in lines {
        if !cells.contains(&line.cell.as_str()) {
            cells.push(&line.cell);
        }
    }
    for cell in cells {
        write_cell(&mut text, cell, lines);
    }
    text
}

// Writing to a string cannot fail, here and below.
fn write_conditions(text: &mut String, lines: &[ResultLine]) {
    let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return };
    let machine = &first.machine;
    let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
    let _ = writeln!(
        text,
        "{} cores ({}), {gib:.0} GiB, Linux {}; client and broker share the cores. {} to {}, commit {}.\n",
        machine.cores, machine.processor, machine.kernel, first.date, last.date, first.commit
    );
}

fn write_cell(text: &mut String, cell: &str, lines: &[ResultLine]) {
    let of_cell: Vec<&ResultLine> = lines.iter().filter(|line| line.cell == cell).collect();
    let mut order: Vec<&str> = Vec::new();
    let mut sides = Sides::new();
    for line in &of_cell {
        if !order.contains(&line.side.as_str()) {
            order.push(&line.side);
        }
        if line.failures.is_empty() {
            sides.entry(&line.side).or_default().push(line);
        }
    }
    let _ = writeln!(text, "### {cell}\n");
    for side in &order {
        let conditions = of_cell.iter().find(|line| line.side == **side).and_then(|line| line.conditions.as_ref());
        if let Some(c) = conditions {
            let rate =
                if c.rate == 0 { "as fast as it goes".to_owned() } else { format!("{}/s", number(c.rate as f64)) };
            let _ = writeln!(
                text,
                "- {side}: {} acknowledges when {}; client {}, {}, {} in flight; {} bytes, {rate}, {} partitions, {} groups",
                c.target, c.durability, c.client, c.batching, c.in_flight, c.message_bytes, c.partitions, c.groups
            );
        }
    }
    write_table(text, &told(cell, &of_cell), &order, &sides, of_cell.iter().any(|line| line.quick));
    for line in of_cell.iter().filter(|line| !line.failures.is_empty()) {
        let _ = writeln!(text, "- does not count: {} in round {}: {}", line.side, line.round, line.failures.join("; "));
    }
    text.push('\n');
}

fn write_table(text: &mut String, figures: &[&str], order: &[&str], sides: &Sides<'_>, quick: bool) {
    let _ = writeln!(text, "\n| | {} | against the first |", order.join(" | "));
    let _ = writeln!(text, "|---{}|---|", "|---".repeat(order.len()));
    for figure in figures {
        let values = |side: &str| -> Vec<f64> {
            sides.get(side).into_iter().flatten().filter_map(|line| line.figures.get(*figure).copied()).collect()
        };
        if order.iter().all(|side| values(side).is_empty()) {
            continue;
        }
        let row: Vec<String> = order.iter().map(|side| spread(&values(side))).collect();
        let first = order.first().copied().unwrap_or_default();
        let against: Vec<String> =
            order.iter().skip(1).filter_map(|side| compare(figure, first, side, sides, quick)).collect();
        let _ = writeln!(text, "| {figure} | {} | {} |", row.join(" | "), against.join("; "));
    }
    text.push('\n');
}

/// A side's values by run and round.
fn by_round<'a>(figure: &str, side: &str, sides: &Sides<'a>) -> BTreeMap<(&'a str, u32), f64> {
    let mut values = BTreeMap::new();
    for line in sides.get(side).into_iter().flatten().copied() {
        if let Some(value) = line.figures.get(figure) {
            values.insert((line.run.as_str(), line.round), *value);
        }
    }
    values
}

/// "kafka 3.10 times, polylogue-sync ahead": the median ratio of the pairs, theirs to ours.
fn compare(figure: &str, first: &str, second: &str, sides: &Sides<'_>, quick: bool) -> Option<String> {
    let (ours, theirs) = (by_round(figure, first, sides), by_round(figure, second, sides));
    let pairs: Vec<(f64, f64)> =
        ours.iter().filter_map(|(round, ours)| Some((*ours, theirs.get(round).copied()?))).collect();
    let ratios: Vec<f64> = pairs.iter().filter(|(ours, _)| *ours > 0.0).map(|(ours, theirs)| theirs / ours).collect();
    let ratio = median(&ratios)?;
    if quick {
        return Some(format!("{second} {} times", number(ratio)));
    }
    let ahead = match verdict(&pairs, less_is_better(figure)) {
        Verdict::First => format!("{first} ahead"),
        Verdict::Second => format!("{second} ahead"),
        Verdict::Level => "level".to_owned(),
    };
    Some(format!("{second} {} times, {ahead}", number(ratio)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Machine;

    fn line(side: &str, round: u32, p99: f64) -> ResultLine {
        ResultLine {
            run: "r".to_owned(),
            date: "2026-01-01T00:00:00Z".to_owned(),
            commit: "c".to_owned(),
            machine: Machine { cores: 2, processor: "p".to_owned(), memory_bytes: 8 << 30, kernel: "6".to_owned() },
            quick: false,
            cell: "latency/rate=1/client=raw".to_owned(),
            side: side.to_owned(),
            round,
            conditions: None,
            failures: Vec::new(),
            figures: [("publish_p99_ms".to_owned(), p99)].into(),
            series: None,
        }
    }

    #[test]
    fn a_win_needs_three_pairs_that_agree() {
        let ahead = [(1.0, 2.0), (1.0, 3.0), (2.0, 2.5)];
        assert_eq!(verdict(&ahead, true), Verdict::First);
        assert_eq!(verdict(&ahead, false), Verdict::Second);
        assert_eq!(verdict(&ahead[..2], true), Verdict::Level, "two are too few");
        assert_eq!(verdict(&[(1.0, 2.0), (1.0, 3.0), (2.0, 1.9)], true), Verdict::Level, "they do not agree");
        assert_eq!(verdict(&[(1.0, 1.0); 3], true), Verdict::Level, "nobody is better");
    }

    #[test]
    fn medians_are_of_an_odd_and_an_even_number() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn the_table_tells_median_spread_ratio_and_who_is_ahead() {
        let mut lines: Vec<ResultLine> =
            (1..=3).flat_map(|round| [line("ours", round, f64::from(round)), line("theirs", round, 10.0)]).collect();
        let text = markdown(&lines);
        assert!(
            text.contains(
                "| publish_p99_ms | 2.00 (1.00 to 3.00) | 10.0 (10.0 to 10.0) | theirs 5.00 times, ours ahead |"
            ),
            "{text}"
        );
        lines[5].failures.push("1 messages lost".to_owned());
        let text = markdown(&lines);
        assert!(text.contains("level") && !text.contains("ours ahead"), "two pairs are left: {text}");
        assert!(text.contains("does not count: theirs in round 3: 1 messages lost"), "{text}");
    }

    #[test]
    fn a_smoke_run_names_no_winner() {
        let mut lines: Vec<ResultLine> =
            (1..=3).flat_map(|round| [line("ours", round, 1.0), line("theirs", round, 10.0)]).collect();
        lines[0].quick = true;
        let text = markdown(&lines);
        assert!(text.contains("SMOKE RUN") && !text.contains("ahead"), "{text}");
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!([number(1_234_567.8), number(123.4), number(0.1234)], ["1,234,568", "123", "0.12"]);
    }
}
