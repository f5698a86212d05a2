//! The final table.

use crate::report::judge::{Advantage, Outcome, Standing};
use crate::report::stats::{PAIRS_MIN, Verdict, median, number, spread, verdict};
use crate::report::words::{sentence, times};
use crate::results::ResultLine;
use std::fmt::Write;

/// Label prefix of polylogue's sides.
const OURS: &str = "polylogue";

/// Returns all rows, in the order of their first run, as Markdown: each side's medians, and polylogue's compared with its peer's by pairs of rounds.
#[must_use]
pub fn table(lines: &[ResultLine]) -> String {
    let mut text = String::from(
        "| row | broker | messages a second | broker CPU s per million | RSS, MB | rate | CPU |\n|---|---|---|---|---|---|---|\n",
    );
    for row in in_order(lines.iter().map(|line| line.cell.as_str())) {
        let of_row: Vec<&ResultLine> = lines.iter().filter(|line| line.cell == row).collect();
        let sides = in_order(of_row.iter().map(|line| line.side.as_str()));
        let peer = sides.iter().copied().find(|side| !side.starts_with(OURS));
        let mut sorted = sides.clone();
        // polylogue-sync before polylogue-async.
        sorted.sort_by_key(|side| (!side.starts_with(OURS), side.ends_with("async")));
        for side in sorted {
            let values = |name: &str| -> Vec<f64> { figures(&of_row, side, name).map(|(_, value)| value).collect() };
            let rss: Vec<f64> = values("rss_bytes").iter().map(|bytes| bytes / 1e6).collect();
            let [rate, cpu] = [("rate", false), ("cpu_s_per_million", true)].map(|(name, less_is_better)| {
                peer.filter(|peer| *peer != side)
                    .map(|peer| beside(&of_row, name, less_is_better, side, peer))
                    .unwrap_or_default()
            });
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {row} | {side} | {} | {} | {} | {rate} | {cpu} |",
                spread(&values("rate")),
                spread(&values("cpu_s_per_million")),
                number(median(&rss).unwrap_or_default()),
            );
        }
    }
    text
}

fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// Returns a side's values of a figure, by round.
fn figures<'a>(lines: &'a [&ResultLine], side: &'a str, name: &'a str) -> impl Iterator<Item = (u32, f64)> + 'a {
    let of_side = lines.iter().filter(move |line| line.side == side);
    of_side.filter_map(move |line| Some((line.round, *line.figures.get(name)?)))
}

/// Compares by the rounds that both sides have, in the report's words.
fn beside(lines: &[&ResultLine], name: &str, less_is_better: bool, ours: &str, peer: &str) -> String {
    let theirs: Vec<(u32, f64)> = figures(lines, peer, name).collect();
    let of_round = |round| theirs.iter().find(|(other, _)| *other == round).map(|(_, value)| *value);
    let pairs: Vec<(f64, f64)> =
        figures(lines, ours, name).filter_map(|(round, value)| Some((value, of_round(round)?))).collect();
    let better = |(ours, theirs): &(f64, f64)| if less_is_better { theirs / ours } else { ours / theirs };
    let ratios: Vec<f64> = pairs.iter().map(better).collect();
    let advantage = |over: &str, ratios: &[f64]| {
        let (low, high) = ratios.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
        let times = median(ratios)?;
        Some(Advantage { over: over.to_owned(), profiles: None, times, low, high, pairs: ratios.len() })
    };
    let over_peer = advantage(peer, &ratios);
    let inverse: Vec<f64> = ratios.iter().map(|ratio| 1.0 / ratio).collect();
    let (winner, standing, advantage) = match verdict(&pairs, less_is_better, PAIRS_MIN) {
        Verdict::First => (Some(ours), Standing::Ahead, over_peer.clone()),
        Verdict::Second => (Some(peer), Standing::Behind(vec![peer.to_owned()]), advantage(ours, &inverse)),
        Verdict::Level => (None, Standing::Level, over_peer.clone()),
    };
    match &over_peer {
        // Too few rounds for a verdict.
        Some(ratio) if pairs.len() < PAIRS_MIN => times(ratio),
        _ => sentence(&Outcome { winner: winner.map(str::to_owned), advantage, ours: over_peer, standing }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_paired_and_the_report_s_words_say_who_is_ahead() {
        let line = |side: &str, round: u32, rate: f64, cpu: f64| {
            ResultLine::example(
                "kafka/1 partition, produce",
                side,
                round,
                &[("rate", rate), ("cpu_s_per_million", cpu), ("rss_bytes", 150e6)],
            )
        };
        let mut lines = Vec::new();
        for (round, theirs) in [(1, 50_000.0), (2, 80_000.0), (3, 100_000.0)] {
            lines.push(line("kafka", round, theirs, 10.0));
            lines.push(line("polylogue-async", round, theirs / 2.0, 10.0));
            lines.push(line("polylogue-sync", round, theirs * 1.5, if round == 2 { 11.0 } else { 5.0 }));
        }
        let text = table(&lines);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        let row = "| kafka/1 partition, produce |";
        assert_eq!(
            rows,
            [
                &format!(
                    "{row} polylogue-sync | 120,000 (75,000 to 150,000) | 5.00 (5.00 to 11.0) | 150 | polylogue ahead: 1.50×, \
                          over kafka, 3 pairs | level: polylogue 2.00× (0.91–2.00), over kafka, 3 pairs |"
                ),
                &format!(
                    "{row} polylogue-async | 40,000 (25,000 to 50,000) | 10.0 (10.0 to 10.0) | 150 | kafka ahead of polylogue; \
                          kafka by 2.00×, over polylogue-async, 3 pairs | level: polylogue 1.00×, over kafka, 3 pairs |"
                ),
                &format!("{row} kafka | 80,000 (50,000 to 100,000) | 10.0 (10.0 to 10.0) | 150 |  |  |"),
            ]
        );
        let one = table(&lines[..3]);
        assert!(one.contains("| 1.50× | 2.00× |"), "one pair says nothing of who is ahead: {one}");
    }
}
