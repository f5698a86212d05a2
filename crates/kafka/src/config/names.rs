//! Every broker config name of Kafka 4.3, and the search for the one that was meant.

/// The table that `ConfigTables.java` wrote; only its first column is read here.
const BROKER_NAMES: &str = include_str!("broker_names.tsv");

/// How many edits may lie between what was written and what was meant.
const EDITS_MAX: usize = 5;

/// What Kafka's authorizer reads by itself (`StandardAuthorizer`): in no table of its brokers' configs.
const OF_THE_AUTHORIZER: [&str; 1] = ["allow.everyone.if.no.acl.found"];

/// The broker configs that Kafka 4.3 knows, those of its authorizer last.
pub fn known_broker_names() -> impl Iterator<Item = &'static str> {
    let of_brokers =
        BROKER_NAMES.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split('\t').next());
    of_brokers.chain(OF_THE_AUTHORIZER)
}

/// Whether Kafka 4.3 knows a broker config of that name. Kafka also takes any broker config for one listener alone,
/// as `listener.name.LISTENER.NAME`.
pub(super) fn is_known(name: &str) -> bool {
    let plain = name
        .strip_prefix("listener.name.")
        .and_then(|rest| rest.split_once('.'))
        .map_or(name, |(_listener, name)| name);
    known_broker_names().any(|known| known == plain)
}

/// The candidate that resembles `name` most, if one does: few edits, for its length.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let bound = (name.len() / 3).clamp(1, EDITS_MAX);
    // So many edits at the least as there are bytes more or less; and a name may be long that comes from outside.
    let near = candidates.filter(|c| c.len().abs_diff(name.len()) <= bound);
    near.map(|c| (edits(name, c), c)).filter(|(edits, _)| *edits <= bound).min_by_key(|(e, _)| *e).map(|(_, c)| c)
}

/// How many bytes must be added, removed or changed to make `b` of `a` (Levenshtein).
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let above = *cell;
            let here = (diagonal + usize::from(x != y)).min(above + 1).min(left + 1);
            diagonal = above;
            left = here;
            *cell = here;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, n) in [("", "", 0), ("a", "", 1), ("", "abc", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!(edits(a, b), n, "{a} -> {b}");
        }
    }

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        assert_eq!(nearest("num.partition", known_broker_names()), Some("num.partitions"));
        assert_eq!(nearest("auto.create.topic.enable", known_broker_names()), Some("auto.create.topics.enable"));
        assert_eq!(nearest("xyzzy", known_broker_names()), None);
        assert_eq!(nearest("", known_broker_names()), None);
    }

    #[test]
    fn names_of_one_listener_are_known() {
        assert!(is_known("listener.name.internal.ssl.keystore.location"));
        assert!(!is_known("listener.name.internal.no.such"));
        assert!(!is_known("listener.name."));
    }
}
