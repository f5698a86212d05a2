//! Conditions of the sides of a cell, and its runs that do not count.

use super::figures::plain;
use super::model::Cell;
use super::stats::count;
use crate::results::ResultLine;
use serde_json::Value;

/// The conditions that come first, with their titles; others follow under their own names.
const KNOWN: [(&str, &str); 12] = [
    ("target", "broker"),
    ("durability", "acknowledges when"),
    ("client", "client"),
    ("batching", "batching"),
    ("in_flight", "in flight at most"),
    ("message_bytes", "message, bytes"),
    ("partitions", "partitions or queues"),
    ("groups", "groups"),
    ("rate", "messages a second"),
    ("warmup_ms", "warm-up, ms"),
    ("window_ms", "window, ms"),
    ("warm_messages", "warm-up, messages"),
];
/// Conditions that are not shown if 0.
const EXTENTS: [&str; 5] = ["messages", "warm_messages", "warmup_ms", "window_ms", "flush_delay_ms"];
/// Limit on listed runs of a side that do not count.
const FAILURES_MAX: usize = 12;

fn reported(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_u64() {
            Some(0) if name == "rate" => "unlimited".to_owned(),
            Some(number) => count(number),
            None => number.to_string(),
        },
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        Value::Array(values) => values.iter().map(|value| reported(name, value)).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| format!("{} {}", plain(name).0, reported(name, value)))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// Returns the conditions of a line by name; empty if it has none.
fn fields(line: Option<&ResultLine>) -> serde_json::Map<String, Value> {
    match line.and_then(|line| line.conditions.as_ref()).map(serde_json::to_value) {
        Some(Ok(Value::Object(fields))) => fields,
        _ => serde_json::Map::new(),
    }
}

/// Returns each condition with its value on every side; then rounds, dates, commits and machines.
#[must_use]
pub fn of_cell(cell: &Cell<'_>) -> Vec<(String, Vec<String>)> {
    let lines = |side: &str| cell.lines.iter().copied().filter(move |line| line.side == side).collect::<Vec<_>>();
    let by_side: Vec<Vec<&ResultLine>> = cell.sides.iter().map(|side| lines(side.name)).collect();
    // The newest line suffices: all lines of a run have the same conditions.
    let all: Vec<_> = by_side.iter().map(|lines| fields(lines.last().copied())).collect();
    let mut names: Vec<String> = KNOWN.iter().map(|(name, _)| (*name).to_owned()).collect();
    for name in all.iter().flat_map(|fields| fields.keys()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let mut rows = Vec::new();
    for name in names {
        // A run by time has no count of messages, and one by count no time.
        let says_nothing = |value: &Value| value.is_null() || (EXTENTS.contains(&name.as_str()) && *value == 0);
        if all.iter().all(|fields| fields.get(&name).is_none_or(says_nothing)) {
            continue;
        }
        let title = KNOWN.iter().find(|(known, _)| *known == name).map_or_else(
            || match plain(&name) {
                (title, "") => title,
                (title, unit) => format!("{title}, {unit}"),
            },
            |(_, title)| (*title).to_owned(),
        );
        let value = |fields: &serde_json::Map<String, Value>| {
            fields.get(&name).map_or("–".to_owned(), |value| reported(&name, value))
        };
        rows.push((title, all.iter().map(value).collect()));
    }
    let counted = |lines: &Vec<&ResultLine>| {
        let counts = lines.iter().filter(|line| line.failures.is_empty()).count();
        if counts == lines.len() { format!("{counts}") } else { format!("{counts} of {}", lines.len()) }
    };
    rows.push(("rounds that count".to_owned(), by_side.iter().map(counted).collect()));
    rows.push(("measured".to_owned(), by_side.iter().map(|lines| super::dates(lines.iter().copied())).collect()));
    rows.push((
        "commit".to_owned(),
        by_side.iter().map(|lines| super::commits(lines.iter().copied()).join(", ")).collect(),
    ));
    rows.push((
        "machine".to_owned(),
        by_side.iter().map(|lines| super::machines(lines.iter().copied()).join(" / ")).collect(),
    ));
    rows
}

/// Returns the runs that do not count, with the reasons.
#[must_use]
pub fn failures(cell: &Cell<'_>) -> Vec<String> {
    let mut reported = Vec::new();
    for side in &cell.sides {
        let failed: Vec<&&ResultLine> =
            cell.lines.iter().filter(|line| line.side == side.name && !line.failures.is_empty()).collect();
        for line in failed.iter().take(FAILURES_MAX) {
            reported.push(format!("{} in round {}: {}", side.name, line.round, line.failures.join("; ")));
        }
        if failed.len() > FAILURES_MAX {
            reported.push(format!("{} in {} more rounds", side.name, failed.len() - FAILURES_MAX));
        }
    }
    reported
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_conditions_have_titles_and_new_ones_their_own_names() {
        let lines = [ResultLine::example("A4/x", "kafka", 1, &[]), ResultLine::example("A4/x", "pulsar", 1, &[])];
        let cell = Cell::of(lines.iter().collect()).expect("a cell");
        let reported = of_cell(&cell);
        assert_eq!(reported[0], ("broker".to_owned(), vec!["kafka".to_owned(), "pulsar".to_owned()]));
        assert!(reported.contains(&("messages a second".to_owned(), vec!["unlimited".to_owned(); 2])), "{reported:?}");
        assert!(reported.contains(&("message, bytes".to_owned(), vec!["1,024".to_owned(); 2])), "{reported:?}");
        assert!(!reported.iter().any(|(name, _)| name.contains("window")), "0 is not shown: {reported:?}");
        assert!(
            !reported.iter().any(|(name, _)| name == "queue"),
            "a condition without values is omitted: {reported:?}"
        );
    }

    #[test]
    fn runs_that_do_not_count_are_listed_up_to_a_limit() {
        let mut lines: Vec<ResultLine> =
            (1..=20).map(|round| ResultLine::example("A4/x", "kafka", round, &[])).collect();
        assert!(failures(&Cell::of(lines.iter().collect()).expect("a cell")).is_empty());
        lines.iter_mut().for_each(|line| line.failures.push("1 messages lost".to_owned()));
        let reported = failures(&Cell::of(lines.iter().collect()).expect("a cell"));
        assert_eq!((reported.len(), reported[0].as_str()), (13, "kafka in round 1: 1 messages lost"));
        assert_eq!(reported[12], "kafka in 8 more rounds");
    }
}
