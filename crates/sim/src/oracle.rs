//! What was promised, and whether it is kept.

use std::collections::{BTreeMap, BTreeSet};

/// A partition as the oracle names it: topic name and number.
pub type Place = (String, i32);

/// What is known of one message that was sent.
#[derive(Clone, Debug, Default)]
struct Sent {
    /// Offsets under which it was acknowledged.
    acknowledged: BTreeSet<i64>,
    /// Whether its producer makes sure that it is written once.
    idempotent: bool,
}

/// What is known of one partition.
#[derive(Clone, Debug, Default)]
struct Partition {
    /// Every value that anybody has sent to it.
    sent: BTreeMap<String, Sent>,
    /// What stands at an offset, as somebody was told (by an acknowledgement or by reading it).
    known: BTreeMap<i64, String>,
    /// The largest high watermark that somebody was told.
    high_watermark: i64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    partitions: BTreeMap<Place, Partition>,
    /// Group offsets: the last one acknowledged, and later ones whose fate is unknown.
    commits: BTreeMap<(String, Place), (i64, BTreeSet<i64>)>,
    /// Acknowledged messages.
    pub acknowledged: u64,
    /// Messages read.
    pub read: u64,
    violations: Vec<String>,
    /// Bits were flipped: parts of the data may be refused (never wrong).
    pub damaged: bool,
}

impl Oracle {
    /// What is broken, if anything is.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Notes a broken promise.
    pub fn violation(&mut self, what: String) {
        // The first few tell what is wrong; the rest follows from them.
        if self.violations.len() < 20 {
            self.violations.push(what);
        }
    }

    /// A message is about to be sent.
    pub fn sends(&mut self, place: &Place, value: &str, idempotent: bool) {
        let partition = self.partitions.entry(place.clone()).or_default();
        partition.sent.entry(value.to_owned()).or_default().idempotent = idempotent;
    }

    /// A message was acknowledged at an offset.
    pub fn acknowledged(&mut self, place: &Place, offset: i64, value: &str) {
        self.acknowledged += 1;
        let partition = self.partitions.entry(place.clone()).or_default();
        partition.sent.entry(value.to_owned()).or_default().acknowledged.insert(offset);
        self.stands_at(place, offset, value, "acknowledged");
    }

    /// A message was read.
    pub fn read(&mut self, place: &Place, offset: i64, value: &str) {
        self.read += 1;
        let known = self.partitions.get(place).is_some_and(|p| p.sent.contains_key(value));
        if !known {
            self.violation(format!("{place:?} offset {offset}: {value:?} was never sent there"));
        }
        self.stands_at(place, offset, value, "read");
    }

    fn stands_at(&mut self, place: &Place, offset: i64, value: &str, how: &str) {
        let partition = self.partitions.entry(place.clone()).or_default();
        match partition.known.get(&offset) {
            Some(before) if before != value => {
                let text = format!("{place:?} offset {offset}: {how} {value:?}, but {before:?} stood there");
                self.violation(text);
            }
            Some(_) => {}
            None => {
                partition.known.insert(offset, value.to_owned());
            }
        }
    }

    /// A high watermark was told.
    pub fn high_watermark(&mut self, place: &Place, offset: i64) {
        let partition = self.partitions.entry(place.clone()).or_default();
        let before = partition.high_watermark;
        partition.high_watermark = before.max(offset);
        if offset < before {
            self.violation(format!("{place:?}: the high watermark went back from {before} to {offset}"));
        }
    }

    /// An offset of a group is about to be committed.
    pub fn commits(&mut self, group: &str, place: &Place, offset: i64) {
        self.commits.entry((group.to_owned(), place.clone())).or_insert_with(|| (-1, BTreeSet::new())).1.insert(offset);
    }

    /// The commit was acknowledged.
    pub fn committed(&mut self, group: &str, place: &Place, offset: i64) {
        if let Some((last, unknown)) = self.commits.get_mut(&(group.to_owned(), place.clone())) {
            *last = (*last).max(offset);
            unknown.retain(|o| *o > offset);
        }
    }

    /// A committed offset was fetched.
    pub fn fetched_commit(&mut self, group: &str, place: &Place, offset: i64) {
        let (last, unknown) =
            self.commits.get(&(group.to_owned(), place.clone())).cloned().unwrap_or((-1, BTreeSet::new()));
        if offset != last && !unknown.contains(&offset) {
            self.violation(format!("group {group} {place:?}: committed {last} (or {unknown:?}), fetched {offset}"));
        }
    }

    /// The topic was deleted, or may have been: nothing of it is promised any more.
    pub fn forget_topic(&mut self, topic: &str) {
        self.partitions.retain(|(name, _), _| name != topic);
        self.commits.retain(|(_, (name, _)), _| name != topic);
    }

    /// Places that were written to.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        self.partitions.keys().cloned().collect()
    }

    /// The whole content of a partition at the end of a run: `(offset, value)` in order, and offsets that were refused
    /// because of damage.
    pub fn final_content(&mut self, place: &Place, content: &[(i64, String)], refused: &BTreeSet<i64>) {
        let Some(partition) = self.partitions.get(place).cloned() else { return };
        let at: BTreeMap<i64, &str> = content.iter().map(|(o, v)| (*o, v.as_str())).collect();
        for (offset, value) in &partition.known {
            let lost = at.get(offset) != Some(&value.as_str());
            if lost && !(self.damaged && refused.contains(offset)) {
                self.violation(format!("{place:?} offset {offset}: {value:?} is lost, {:?} is there", at.get(offset)));
            }
        }
        let mut first_seen: BTreeMap<&str, i64> = BTreeMap::new();
        for (offset, value) in content {
            let Some(sent) = partition.sent.get(value) else {
                self.violation(format!("{place:?} offset {offset}: {value:?} was never sent there"));
                continue;
            };
            if let Some(before) = first_seen.insert(value, *offset)
                && sent.idempotent
            {
                self.violation(format!("{place:?}: {value:?} is there twice, at {before} and {offset}"));
            }
        }
        self.check_order(place, content);
    }

    /// Values are `<producer>-<number>`; a producer's numbers only grow.
    fn check_order(&mut self, place: &Place, content: &[(i64, String)]) {
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for (offset, value) in content {
            let Some((producer, number)) = value.rsplit_once('-') else { continue };
            let number: u64 = number.parse().unwrap_or(0);
            if last.get(producer).is_some_and(|before| *before >= number) {
                self.violation(format!("{place:?} offset {offset}: {value:?} is out of order"));
            }
            last.insert(producer, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        ("t".into(), 0)
    }

    fn found(act: impl FnOnce(&mut Oracle)) -> usize {
        let mut oracle = Oracle::default();
        oracle.sends(&place(), "p-1", true);
        oracle.sends(&place(), "p-2", true);
        oracle.acknowledged(&place(), 0, "p-1");
        act(&mut oracle);
        oracle.violations().len()
    }

    fn content(values: &[(i64, &str)]) -> Vec<(i64, String)> {
        values.iter().map(|(o, v)| (*o, (*v).to_owned())).collect()
    }

    #[test]
    fn broken_promises_are_found() {
        let none = BTreeSet::new();
        assert_eq!(found(|o| o.final_content(&place(), &content(&[(0, "p-1")]), &none)), 0);
        assert_eq!(
            found(|o| o.final_content(&place(), &content(&[(0, "p-1"), (1, "p-2")]), &none)),
            0,
            "unknown: either"
        );
        assert_ne!(found(|o| o.final_content(&place(), &content(&[]), &none)), 0, "lost");
        assert_ne!(found(|o| o.final_content(&place(), &content(&[(0, "p-1"), (1, "p-1")]), &none)), 0, "twice");
        assert_ne!(found(|o| o.final_content(&place(), &content(&[(0, "p-1"), (1, "x-1")]), &none)), 0, "invented");
        assert_ne!(found(|o| o.read(&place(), 0, "p-2")), 0, "another value at a known offset");
        assert_ne!(
            found(|o| {
                o.high_watermark(&place(), 5);
                o.high_watermark(&place(), 4)
            }),
            0,
            "back"
        );
    }

    #[test]
    fn a_committed_offset_is_the_last_acknowledged_or_a_later_unknown_one() {
        let mut oracle = Oracle::default();
        oracle.commits("g", &place(), 5);
        oracle.committed("g", &place(), 5);
        oracle.commits("g", &place(), 9);
        oracle.fetched_commit("g", &place(), 5);
        oracle.fetched_commit("g", &place(), 9);
        assert!(oracle.violations().is_empty());
        oracle.fetched_commit("g", &place(), -1);
        assert_eq!(oracle.violations().len(), 1);
    }
}
