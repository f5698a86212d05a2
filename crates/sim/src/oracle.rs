//! The oracle: records what was acknowledged and read, and checks the guarantees.

mod held;

use held::Held;
use std::collections::{BTreeMap, BTreeSet};

/// Marks a value that is unset, uncommitted or missing.
pub const NOTHING: i64 = -1;

/// A partition as the oracle names it: topic name and number.
pub type Place = (String, i32);

/// The state of one message that was sent.
#[derive(Clone, Debug, Default)]
struct Sent {
    /// Offsets under which it was acknowledged.
    acknowledged: BTreeSet<i64>,
    /// Its producer is idempotent.
    idempotent: bool,
}

/// The state of one partition.
#[derive(Clone, Debug, Default)]
struct Partition {
    /// Every value that was sent to it.
    sent: BTreeMap<String, Sent>,
    /// The value at an offset, as learned by a client from an acknowledgement or a read.
    known: BTreeMap<i64, String>,
    /// The largest high watermark that a client received.
    high_watermark: i64,
    /// Acknowledged messages survive a kill, but not a power cut (durability `async`).
    weak: bool,
    /// Of a weak partition: the values known at the last power cut.
    at_power_cut: BTreeMap<i64, String>,
    /// The largest log start that a client received, and the largest requested: the log start is between them.
    start: (i64, i64),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    partitions: BTreeMap<Place, Partition>,
    /// Group offsets: the last one acknowledged, and later ones with unknown outcome.
    commits: BTreeMap<(String, Place), (i64, BTreeSet<i64>)>,
    /// Values that clients change and read, by name.
    held: BTreeMap<String, Held>,
    /// Number of starts of the node.
    life: u64,
    /// Acknowledged messages.
    pub acknowledged: u64,
    /// Acknowledged messages of idempotent producers.
    pub sequenced: u64,
    /// Messages read.
    pub read: u64,
    /// Acknowledged changes of values.
    pub changes: u64,
    /// Reads of values.
    pub looks: u64,
    violations: Vec<String>,
    /// Bits were flipped: parts of the data may be refused (never wrong).
    pub damaged: bool,
}

impl Oracle {
    /// The violations.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Records a violation.
    pub fn violation(&mut self, what: String) {
        // The first few identify the fault; the rest are consequences.
        if self.violations.len() < 20 {
            self.violations.push(what);
        }
    }

    /// Marks a partition as weak: acknowledged messages survive a kill, but not a power cut.
    pub fn is_weak_from_now_on(&mut self, place: &Place) {
        self.partitions.entry(place.clone()).or_default().weak = true;
    }

    /// Handles a power cut: weak partitions may end anywhere, and their offsets may be assigned again.
    pub fn power_was_cut(&mut self) {
        for partition in self.partitions.values_mut().filter(|partition| partition.weak) {
            partition.at_power_cut = std::mem::take(&mut partition.known);
            partition.high_watermark = 0;
            partition.sent.values_mut().for_each(|sent| sent.acknowledged.clear());
        }
    }

    /// Returns whether a partition may end before an offset that a client has read.
    #[must_use]
    pub fn may_end_before(&self, place: &Place, offset: i64) -> bool {
        let known_end = |p: &Partition| p.known.last_key_value().map_or(0, |(last, _)| last + 1);
        self.partitions.get(place).is_some_and(|p| p.weak && known_end(p) < offset)
    }

    /// Records a message before it is sent.
    pub fn sends(&mut self, place: &Place, value: &str, idempotent: bool) {
        let partition = self.partitions.entry(place.clone()).or_default();
        partition.sent.entry(value.to_owned()).or_default().idempotent = idempotent;
    }

    /// Records the acknowledgement of a message.
    pub fn acknowledged(&mut self, place: &Place, offset: i64, value: &str) {
        self.acknowledged += 1;
        let partition = self.partitions.entry(place.clone()).or_default();
        let sent = partition.sent.entry(value.to_owned()).or_default();
        sent.acknowledged.insert(offset);
        self.sequenced += u64::from(sent.idempotent);
        self.stands_at(place, offset, value, "acknowledged");
    }

    /// Records a message that was read.
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

    /// Records a high watermark in a response.
    pub fn high_watermark(&mut self, place: &Place, offset: i64) {
        let partition = self.partitions.entry(place.clone()).or_default();
        let before = partition.high_watermark;
        partition.high_watermark = before.max(offset);
        if offset < before {
            self.violation(format!("{place:?}: the high watermark went back from {before} to {offset}"));
        }
    }

    /// Records a group offset before it is committed.
    pub fn commits(&mut self, group: &str, place: &Place, offset: i64) {
        self.commits.entry((group.to_owned(), place.clone())).or_insert_with(|| (-1, BTreeSet::new())).1.insert(offset);
    }

    /// Records the acknowledgement of the commit.
    pub fn committed(&mut self, group: &str, place: &Place, offset: i64) {
        if let Some((last, unknown)) = self.commits.get_mut(&(group.to_owned(), place.clone())) {
            *last = (*last).max(offset);
            unknown.retain(|o| *o > offset);
        }
    }

    /// Checks a committed offset that was fetched.
    pub fn fetched_commit(&mut self, group: &str, place: &Place, offset: i64) {
        let (last, unknown) =
            self.commits.get(&(group.to_owned(), place.clone())).cloned().unwrap_or((-1, BTreeSet::new()));
        if offset != last && !unknown.contains(&offset) {
            self.violation(format!("group {group} {place:?}: committed {last} (or {unknown:?}), fetched {offset}"));
        }
    }

    /// Handles a start of the node: pending requests have taken effect by now, or never will.
    pub fn new_life(&mut self) {
        self.life += 1;
    }

    /// Sets an initial value; a value that is not reported is unset.
    pub fn begins(&mut self, what: &str, value: i64) {
        self.held.insert(what.to_owned(), Held::new(value));
    }

    /// Records a change of a value before it is requested, by its only writer.
    pub fn changes(&mut self, what: &str, value: i64) {
        let life = self.life;
        self.held(what).changes(value, life);
    }

    /// Records the acknowledgement of the change.
    pub fn changed(&mut self, what: &str, value: i64) {
        self.changes += 1;
        *self.held(what) = Held::new(value);
    }

    /// Checks a value that a client read.
    pub fn looked(&mut self, what: &str, value: i64) {
        self.looks += 1;
        if self.may_hold(what, value) {
            let life = self.life;
            self.held(what).settles(value, life);
        }
    }

    /// Returns whether a value that was read is allowed.
    pub fn may_hold(&mut self, what: &str, value: i64) -> bool {
        let held = self.held(what);
        let may = held.may_be(value);
        if !may {
            let text = format!("{what}: {value}, and {held} was acknowledged or in doubt");
            self.violation(text);
        }
        may
    }

    fn held(&mut self, what: &str) -> &mut Held {
        self.held.entry(what.to_owned()).or_insert_with(|| Held::new(NOTHING))
    }

    /// Records a deletion of messages below an offset before it is requested.
    pub fn trims(&mut self, place: &Place, offset: i64) {
        let (_, asked) = &mut self.partitions.entry(place.clone()).or_default().start;
        *asked = (*asked).max(offset);
    }

    /// Checks a log start that a client received: never below an earlier one, nor above all requested ones.
    pub fn start_told(&mut self, place: &Place, offset: i64) {
        let (reported, asked) = self.partitions.entry(place.clone()).or_default().start;
        if offset < reported {
            self.violation(format!("{place:?}: the log start went back from {reported} to {offset}"));
        } else if offset > asked && !self.damaged {
            self.violation(format!("{place:?}: the log begins at {offset}, and {asked} was asked for at the most"));
        }
        // Messages that are fenced because of damage need not have been deleted.
        self.partitions.entry(place.clone()).or_default().start.0 = reported.max(offset.min(asked));
    }

    /// Records a lower bound of the log start.
    #[must_use]
    pub fn start_at_least(&self, place: &Place) -> i64 {
        self.partitions.get(place).map_or(0, |p| p.start.0)
    }

    /// Records an upper bound of the log start.
    #[must_use]
    pub fn start_at_most(&self, place: &Place) -> i64 {
        self.partitions.get(place).map_or(0, |p| p.start.1)
    }

    /// Returns the largest high watermark that a client received.
    #[must_use]
    pub fn told_high_watermark(&self, place: &Place) -> i64 {
        self.partitions.get(place).map_or(0, |p| p.high_watermark)
    }

    /// Handles a (possible) deletion of the topic: it has no guarantees any more.
    pub fn forget_topic(&mut self, topic: &str) {
        self.partitions.retain(|(name, _), _| name != topic);
        self.commits.retain(|(_, (name, _)), _| name != topic);
    }

    /// Returns the partitions that were written to.
    #[must_use]
    pub fn places(&self) -> Vec<Place> {
        self.partitions.keys().cloned().collect()
    }

    /// Checks the whole content of a partition from its log start on, at the end of a run: `(offset, value)` in order, and offsets that were refused
    /// because of damage.
    pub fn final_content(&mut self, place: &Place, start: i64, content: &[(i64, String)], refused: &BTreeSet<i64>) {
        self.start_told(place, start);
        let Some(partition) = self.partitions.get(place).cloned() else { return };
        let at: BTreeMap<i64, &str> = content.iter().map(|(o, v)| (*o, v.as_str())).collect();
        for (offset, value) in partition.known.range(start..) {
            let lost = at.get(offset) != Some(&value.as_str());
            if lost && !(self.damaged && refused.contains(offset)) {
                self.violation(format!("{place:?} offset {offset}: {value:?} is lost, {:?} is there", at.get(offset)));
            }
        }
        // A power cut removes the end of a log, never a part in the middle.
        let stands = |(offset, value): &(&i64, &String)| at.get(*offset) == Some(&value.as_str());
        let mut behind_loss = partition.at_power_cut.range(start..).skip_while(stands);
        if let Some((offset, value)) = behind_loss.find(stands).filter(|_| !self.damaged) {
            self.violation(format!("{place:?} offset {offset}: {value:?} survived a power cut, and not all before it"));
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
        assert_eq!(found(|o| o.final_content(&place(), 0, &content(&[(0, "p-1")]), &none)), 0);
        assert_eq!(
            found(|o| o.final_content(&place(), 0, &content(&[(0, "p-1"), (1, "p-2")]), &none)),
            0,
            "unknown: either"
        );
        assert_ne!(found(|o| o.final_content(&place(), 0, &content(&[]), &none)), 0, "lost");
        assert_ne!(found(|o| o.final_content(&place(), 0, &content(&[(0, "p-1"), (1, "p-1")]), &none)), 0, "twice");
        assert_ne!(found(|o| o.final_content(&place(), 0, &content(&[(0, "p-1"), (1, "x-1")]), &none)), 0, "invented");
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
    fn a_power_cut_takes_the_end_of_a_weak_partition_and_nothing_else() {
        let none = BTreeSet::new();
        let found = |cut: bool, left: &[(i64, &str)]| {
            found(|o| {
                o.is_weak_from_now_on(&place());
                o.sends(&place(), "p-3", false);
                o.acknowledged(&place(), 1, "p-2");
                if cut {
                    o.power_was_cut();
                }
                assert_eq!(o.may_end_before(&place(), 2), cut);
                o.final_content(&place(), 0, &content(left), &none);
            })
        };
        assert_eq!(found(true, &[]), 0);
        assert_eq!(found(true, &[(0, "p-1"), (1, "p-3")]), 0, "the offset is given out again");
        assert_eq!(found(true, &[(0, "p-1"), (1, "p-2")]), 0);
        assert_ne!(found(true, &[(1, "p-2")]), 0, "a hole");
        assert_ne!(found(false, &[(0, "p-1")]), 0, "a kill takes nothing");
    }

    #[test]
    fn a_log_start_goes_forward_as_far_as_was_asked() {
        let violations = |offsets: &[i64]| {
            found(|o| {
                o.trims(&place(), 3);
                offsets.iter().for_each(|offset| o.start_told(&place(), *offset));
            })
        };
        assert_eq!(violations(&[0, 2, 3, 3]), 0);
        assert_eq!(violations(&[2, 1]), 1, "back");
        assert_eq!(violations(&[4]), 1, "too far");
        let none = BTreeSet::new();
        let kept = content(&[(1, "p-2")]);
        assert_ne!(found(|o| o.final_content(&place(), 1, &kept, &none)), 0, "deleted without a request");
        let deleted = found(|o| {
            o.trims(&place(), 1);
            o.final_content(&place(), 1, &kept, &none);
        });
        assert_eq!(deleted, 0);
    }

    #[test]
    fn what_holds_was_acknowledged_or_is_in_doubt() {
        let mut oracle = Oracle::default();
        oracle.begins("x", 1);
        oracle.changes("x", 2);
        oracle.looked("x", 1);
        oracle.looked("x", 2);
        oracle.looked("x", 1);
        assert!(oracle.violations().is_empty(), "it may still come");
        oracle.new_life();
        oracle.looked("x", 2);
        assert!(oracle.violations().is_empty());
        oracle.looked("x", 1);
        assert_eq!(oracle.violations().len(), 1, "it is decided");
        oracle.changes("x", NOTHING);
        oracle.changed("x", NOTHING);
        oracle.looked("x", 2);
        assert_eq!(oracle.violations().len(), 2, "it is gone");
        assert!(!oracle.may_hold("y", 0) && oracle.may_hold("y", NOTHING));
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
