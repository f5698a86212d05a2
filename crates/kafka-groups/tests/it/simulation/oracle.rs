//! The invariants.

use crate::host::Host;
use polylogue_kafka_codec::StrBytes;
use polylogue_types::TopicId;
use std::collections::{BTreeMap, BTreeSet};

/// Counts of events, to detect runs without any.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Seen {
    pub(crate) joins: u64,
    pub(crate) assignments: u64,
    pub(crate) left_out: u64,
    pub(crate) commits: u64,
    pub(crate) rebalances_told: u64,
    pub(crate) crashes: u64,
    pub(crate) lost_writers: u64,
    pub(crate) statics_replaced: u64,
    pub(crate) fenced: u64,
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Seen) {
        self.joins += other.joins;
        self.assignments += other.assignments;
        self.left_out += other.left_out;
        self.commits += other.commits;
        self.rebalances_told += other.rebalances_told;
        self.crashes += other.crashes;
        self.lost_writers += other.lost_writers;
        self.statics_replaced += other.statics_replaced;
        self.fenced += other.fenced;
    }
}

/// One generation of a group: generations start again when a group is deleted, and an uncommitted one may be repeated after a
/// crash.
type Generation = (usize, u64, i32);

#[derive(Default, Debug)]
pub(crate) struct Oracle {
    pub(crate) seen: Seen,
    epochs: BTreeMap<usize, u64>,
    highest: BTreeMap<(usize, u64), i32>,
    /// The leader that was asked to assign.
    leaders: BTreeMap<Generation, StrBytes>,
    /// The assignment that members received.
    reported: BTreeMap<Generation, u64>,
    /// Members that an assignment left out.
    left_out: BTreeSet<(u64, StrBytes)>,
    /// Assignments submitted for a group and generation.
    brought: BTreeMap<(usize, i32), BTreeSet<u64>>,
    /// The last acknowledged offset; offsets increase with every commit.
    acknowledged: BTreeMap<(usize, TopicId, i32), i64>,
}

impl Oracle {
    fn epoch(&self, group: usize) -> u64 {
        self.epochs.get(&group).copied().unwrap_or(0)
    }

    /// Generations of the group may start again.
    pub(crate) fn begin_anew(&mut self, group: usize) {
        *self.epochs.entry(group).or_default() += 1;
    }

    /// Generations must not decrease.
    pub(crate) fn look_at_generation(&mut self, group: usize, generation: i32) {
        let highest = self.highest.entry((group, self.epochs.get(&group).copied().unwrap_or(0))).or_insert(0);
        assert!(generation >= *highest, "group {group} went from generation {highest} back to {generation}");
        *highest = generation;
    }

    /// At most one member is asked to assign in a generation.
    pub(crate) fn told_to_assign(&mut self, group: usize, generation: i32, member: &StrBytes) {
        let key = (group, self.epoch(group), generation);
        let leader = self.leaders.entry(key).or_insert_with(|| member.clone());
        assert_eq!(leader, member, "two leaders in group {group}, generation {generation}");
    }

    pub(crate) fn brought(&mut self, group: usize, generation: i32, number: u64, left_out: Option<StrBytes>) {
        self.brought.entry((group, generation)).or_default().insert(number);
        self.left_out.extend(left_out.map(|slot| (number, slot)));
    }

    /// Every member receives exactly what one leader assigned to it in its generation.
    pub(crate) fn told_assignment(&mut self, group: usize, generation: i32, slot: &StrBytes, assignment: &[u8]) {
        self.seen.assignments += 1;
        let numbers = self.brought.get(&(group, generation));
        if assignment.is_empty() {
            self.seen.left_out += 1;
            let meant = numbers.is_some_and(|ns| ns.iter().any(|n| self.left_out.contains(&(*n, slot.clone()))));
            assert!(meant, "{slot} of group {group} has nothing in generation {generation}, and no one meant that");
            return;
        }
        let text = std::str::from_utf8(assignment).unwrap();
        let parts: Vec<&str> = text.split('|').collect();
        assert_eq!(parts[..3], [&group.to_string(), &generation.to_string(), &**slot], "another's assignment");
        let number: u64 = parts[3].parse().unwrap();
        assert!(numbers.is_some_and(|numbers| numbers.contains(&number)));
        let reported = self.reported.entry((group, self.epoch(group), generation)).or_insert(number);
        assert_eq!(*reported, number, "two assignments in group {group}, generation {generation}");
    }

    pub(crate) fn acknowledged(&mut self, group: usize, topic: TopicId, partition: i32, offset: i64) {
        self.seen.commits += 1;
        let last = self.acknowledged.entry((group, topic, partition)).or_insert(offset);
        *last = offset.max(*last);
    }

    /// Offsets up to this one are deleted.
    pub(crate) fn deleted_group(&mut self, group: usize, offset: i64) {
        self.acknowledged.retain(|(g, _, _), last| *g != group || *last > offset);
    }

    pub(crate) fn deleted_topic(&mut self, topic: TopicId) {
        self.acknowledged.retain(|(_, t, _), _| *t != topic);
    }

    /// Acknowledged offsets are stored, or later ones.
    pub(crate) fn look_at_offsets(&self, host: &Host, name: impl Fn(usize) -> String) {
        let mut held: BTreeMap<usize, BTreeMap<(TopicId, i32), i64>> = BTreeMap::new();
        for ((group, topic, partition), acknowledged) in &self.acknowledged {
            let held = held.entry(*group).or_insert_with(|| {
                let listing = host.machine.offsets(&name(*group), &host.topics);
                listing.into_iter().map(|o| ((o.topic_id, o.partition), o.offset)).collect()
            });
            let offset = held.get(&(*topic, *partition)).copied().unwrap_or(-1);
            assert!(offset >= *acknowledged, "group {group} has {offset} where {acknowledged} was acknowledged");
        }
    }
}
