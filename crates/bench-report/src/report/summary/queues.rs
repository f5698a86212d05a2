//! Requirements of the comparison with RabbitMQ.

use super::{Bound, Check, Found, PAIRS_MIN, PRODUCE_CPU, RATE, Requirement, of_kind, place, ratios};
use crate::matrix::queues::cells;
use crate::matrix::{Cell, Kind, Scale};
use crate::target::Target;

/// Limits on processor time for a message at unlimited rate, as a share of RabbitMQ's, by type of queue.
const CLASSIC_CPU: f64 = 1.0 / 5.0;
const QUORUM_CPU: f64 = 1.0 / 10.0;
/// The same limit at a given rate.
const CPU_AT_RATE: f64 = 1.0 / 5.0;
/// The rate for it. Messages a second.
const CPU_RATE: u64 = 10_000;
/// Rates for end-to-end percentiles, and the rate for its median only. Messages a second.
const RATES: [u64; 3] = [10_000, 20_000, 30_000];
const SLOW_RATE: u64 = 1;
/// Limit on memory for a connection, as a share of RabbitMQ's.
const CONNECTION_MEMORY: f64 = 1.0 / 10.0;
/// Limit on the start time with many queues. Seconds.
const START_S_MAX: f64 = 2.0;

/// Returns a row for each requirement.
pub(super) fn requirements(found: &Found<'_>) -> Vec<Requirement> {
    let cells = cells(Scale::FULL);
    let row = |name: &str, text: &str, cells: &[&Cell], figure: &str, bound| {
        ratios(found, name, text, cells, figure, &Target::Rabbitmq, bound)
    };
    let through = of_kind(&cells, Kind::Throughput);
    let named = |part: &str| through.iter().copied().filter(|cell| cell.name.contains(part)).collect::<Vec<_>>();
    let timed = of_kind(&cells, Kind::Latency);
    let at = |rates: &[u64]| timed.iter().copied().filter(|cell| has_rate(cell, rates)).collect::<Vec<_>>();
    let mut rows = vec![
        row(
            "broker CPU for a message, classic queue with confirms",
            "at most a fifth",
            &named("queue=classic/confirms"),
            PRODUCE_CPU,
            Bound::AtMost(CLASSIC_CPU),
        ),
        row(
            "broker CPU for a message, quorum queue with confirms",
            "at most a tenth",
            &named("queue=quorum"),
            PRODUCE_CPU,
            Bound::AtMost(QUORUM_CPU),
        ),
        row("messages a second published", "ahead", &through, RATE, Bound::Ahead),
        row("messages a second consumed meanwhile", "ahead", &through, "fetch_per_s", Bound::Ahead),
    ];
    for percentile in ["p50", "p99", "p99.9"] {
        let figure = format!("end_to_end_{percentile}_ms");
        rows.push(row(&format!("end-to-end {percentile}"), "lower", &at(&RATES), &figure, Bound::Lower));
    }
    let slow = at(&[SLOW_RATE]);
    rows.push(row("end-to-end median at 1 a second", "lower", &slow, "end_to_end_median_ms", Bound::Lower));
    let cpu = at(&[CPU_RATE]);
    rows.push(row("broker CPU at 10,000 a second", "at most a fifth", &cpu, PRODUCE_CPU, Bound::AtMost(CPU_AT_RATE)));
    let memory = of_kind(&cells, Kind::Connections);
    let figure = "kib_a_connection_with_channel";
    rows.push(row("memory of a connection", "at most a tenth", &memory, figure, Bound::AtMost(CONNECTION_MEMORY)));
    rows.push(start(found, &cells));
    rows
}

fn has_rate(cell: &Cell, rates: &[u64]) -> bool {
    cell.sides.iter().all(|side| rates.contains(&side.load.rate))
}

fn start(found: &Found<'_>, cells: &[Cell]) -> Requirement {
    let ours = Target::PolylogueSync.name();
    let measured = |cell: &Cell| found.seconds(cell, "start_s", &ours, START_S_MAX);
    let starts = of_kind(cells, Kind::Start);
    let check = |cell: &&Cell| Check { place: place(cell).to_owned(), measured: measured(cell) };
    Requirement {
        name: "start with many durable queues".to_owned(),
        target: format!("under {START_S_MAX} s"),
        rounds_min: PAIRS_MIN,
        checks: starts.iter().map(check).collect(),
    }
}

#[cfg(test)]
mod tests {
    use crate::report::markdown;
    use crate::results::ResultLine;

    /// Returns three rounds of all cells, with costs of `ours` for polylogue and 10 for RabbitMQ.
    fn lines(ours: f64) -> Vec<ResultLine> {
        let figures = |cost: f64| {
            [
                ("produce_per_s", 1e6 / cost),
                ("fetch_per_s", 1e6 / cost),
                ("produce_cpu_s_per_million", cost),
                ("end_to_end_p50_ms", cost),
                ("end_to_end_p99_ms", cost),
                ("end_to_end_p99.9_ms", cost),
                ("end_to_end_median_ms", cost),
                ("kib_a_connection_with_channel", cost),
                ("start_s", cost),
            ]
        };
        let mut lines = Vec::new();
        for cell in super::cells(super::Scale::FULL) {
            for round in 1..=3 {
                for (side, cost) in [("polylogue-sync", ours), ("rabbitmq", 10.0)] {
                    lines.push(ResultLine::example(&cell.name, side, round, &figures(cost)));
                }
            }
        }
        lines
    }

    fn summary(lines: &[ResultLine]) -> Vec<String> {
        let text = markdown(lines);
        let rows = text.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
        rows.take_while(|line| line.starts_with('|')).map(str::to_owned).collect()
    }

    #[test]
    fn each_requirement_has_a_row() {
        let rows = summary(&lines(0.9));
        assert_eq!(rows.len(), 11);
        assert!(rows.iter().all(|row| row.ends_with("| met |")), "{rows:?}");
    }

    #[test]
    fn being_ahead_does_not_meet_a_target_of_several_times() {
        let rows = summary(&lines(9.0));
        let missed: Vec<&String> = rows.iter().filter(|row| row.ends_with("**missed** |")).collect();
        assert_eq!(missed.len(), 5, "CPU three times, memory, start: {missed:?}");
        let rows = summary(&lines(11.0));
        assert!(rows.iter().all(|row| row.ends_with("**missed** |")), "{rows:?}");
    }
}
