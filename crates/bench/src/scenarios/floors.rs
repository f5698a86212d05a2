//! The client's floor: each latency at a given rate with a broker that answers at once and stores nothing.
//!
//! ```text
//!   D6/rate=5000/partitions=100/...   sync, async, Kafka   \
//!   D6/rate=5000/partitions=10000/..                        >  written alike: one row here, unless the null broker is among its sides
//!   D8/rate=10000/behind, undisturbed                      /
//! ```
//!
//! The report finds the row of a cell by the conditions of both (`report::floors::beside`).

use super::{CLASSIC, Maker, Row, sides};
use crate::contract::System;
use crate::drive::Driver;
use crate::how::{How, Pinning};
use crate::matrix::{Kind, LATENCY_BATCH, Load, Many, NO_BATCH, Side};
use crate::target::Target;

/// The scenario's id.
pub(super) const ID: &str = "floors";

/// Returns the rows for latencies without the null broker among their sides.
pub(super) fn rows(maker: Maker, others: &[Row]) -> Vec<Row> {
    let all: Vec<(&Row, &Side)> = others
        .iter()
        .filter(|row| is_asked(row))
        .flat_map(|row| row.cell.sides.iter().map(move |side| (row, side)))
        .collect();
    let beside = all.iter().filter(|(_, side)| side.target == Target::Null);
    let beside: Vec<(Driver, Load)> = beside.map(|(row, side)| (row.cell.driver, written(&side.load))).collect();
    let mut alone: Vec<(Driver, Load)> = Vec::new();
    for (row, side) in all.iter().filter(|(_, side)| is_spoken(side)) {
        let (driver, load) = (row.cell.driver, written(&side.load));
        if beside.contains(&(driver, load)) {
            continue;
        }
        let window_ms = window_ms(maker, row, &side.load);
        match alone.iter_mut().find(|(other, known)| *other == driver && written(known) == load) {
            Some((_, known)) => known.window_ms = known.window_ms.max(window_ms),
            None => alone.push((driver, Load { window_ms, ..load })),
        }
    }
    alone.into_iter().map(|(driver, load)| row(maker, driver, load)).collect()
}

/// Whether a row measures latency at one given rate. Ladders, drains and kills do not measure publish latency.
fn is_asked(row: &Row) -> bool {
    matches!(row.cell.kind, Kind::Latency | Kind::Cold) && row.id != "flushes"
}

/// Whether the null broker supports this side's client.
fn is_spoken(side: &Side) -> bool {
    side.load.queue.is_some() || (side.target.system() == System::Kafka && !side.load.stream)
}

/// Returns the part of a load that concerns writing: not its duration, its readers, or the broker's conditions.
fn written(load: &Load) -> Load {
    Load {
        groups: 1,
        warmup_ms: 0,
        window_ms: 0,
        backlog: 0,
        cold_bytes_per_s: 0,
        queue: load.queue.map(|_| CLASSIC),
        many: Many { consumers: 1, filter: None, ..load.many },
        how: How { pinning: load.how.pinning, ..How::default() },
        ..*load
    }
}

/// Returns the row's own window if it has several rounds; a single round needs no far tail.
fn window_ms(maker: Maker, row: &Row, load: &Load) -> u64 {
    let shortest = maker.with_tail(Load { window_ms: maker.length.other.1, ..*load }).window_ms;
    let is_compared = row.rounds > 1 && row.cell.kind == Kind::Latency;
    if is_compared { load.window_ms.max(shortest) } else { shortest }
}

fn row(maker: Maker, driver: Driver, load: Load) -> Row {
    let load = Load { warmup_ms: maker.length.other.0, ..load };
    maker.once(maker.row(ID, &name(&load), Kind::Latency, driver, sides(&["null"], maker.for_far_tail(load))))
}

fn name(load: &Load) -> String {
    let mut name = format!("rate={}", load.rate);
    let mut part = |is_told: bool, text: String| {
        if is_told {
            name.push('/');
            name.push_str(&text);
        }
    };
    part(true, format!("{}={}", if load.queue.is_some() { "queues" } else { "partitions" }, load.partitions));
    part(load.many.topics > 1, format!("topics={}", load.many.topics));
    part(load.many.producers > 1, format!("producers={}", load.many.producers));
    part(![LATENCY_BATCH, NO_BATCH].contains(&load.batching), format!("batch={}", load.batching.name));
    part(load.how.pinning == Pinning::Unpinned, "unpinned".to_owned());
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::floors::is_written_alike;
    use crate::run::conditions::conditions;
    use crate::scenarios::{Length, rows};

    /// Regression test: the null broker was compared in three cells only.
    #[test]
    fn every_latency_at_a_given_rate_has_a_null_broker_where_that_speaks_to_its_client() {
        let all = rows(Length::FULL);
        let stated = |row: &Row, side: &Side| conditions(row.cell.driver, side);
        let sides = || all.iter().flat_map(|row| row.cell.sides.iter().map(move |side| (row, side)));
        let nulls = sides().filter(|(_, side)| side.target == Target::Null);
        let nulls: Vec<_> = nulls.map(|(row, side)| (row, stated(row, side))).collect();
        assert!(nulls.len() > 20, "{}", nulls.len());
        let mut count = 0;
        for (row, side) in sides() {
            if is_asked(row) && is_spoken(side) {
                let conditions = stated(row, side);
                let found = nulls.iter().filter(|(_, null)| is_written_alike(null, &conditions)).count();
                assert!(found > 0, "{} {}", row.cell.name, side.label);
                count += 1;
            }
        }
        assert!(count > 60, "{count}");
        for (row, _) in nulls.iter().filter(|(row, _)| row.id == ID) {
            assert_eq!((row.cell.sides.len(), row.rounds), (1, 1), "{}", row.cell.name);
        }
    }
}
