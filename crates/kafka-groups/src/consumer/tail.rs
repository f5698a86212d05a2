//! A consumer group ahead of what is applied: its state with all changes that were proposed, indexes over it, and deadlines.
//!
//! Every change is one of [`Change`]: what is proposed is what has been applied here, so that the state here follows from applied
//! state and the records in flight. It is made anew at a start, when the writer was lost, and after a refusal of the log.

use super::model::{Change, ConsumerGroup, Member, Subscription};
use super::regex::Resolution;
use crate::timers::Deadline;
use polylogue_kafka_codec::StrBytes;
use polylogue_types::TopicId;
use std::collections::{BTreeMap, BTreeSet};

/// What the indexes and deadlines of a member cost in memory, as an estimate. Bytes.
const MEMBER_SOFT_BYTES: usize = 384;
/// What a held partition costs in the index of holders, as an estimate. Bytes.
const HELD_BYTES: usize = 24;

/// The deadlines of a member.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct MemberDeadlines {
    /// When it will have been silent too long.
    pub(super) session: Deadline,
    /// When it must have given up what it was asked to.
    pub(super) rebalance: Deadline,
    /// The member's epoch when that was asked.
    pub(super) rebalance_epoch: i32,
}

/// A consumer group that has members, or records in flight.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) id: StrBytes,
    /// The user against whose bound it counts; empty where none is known.
    pub(crate) owner: StrBytes,
    group: ConsumerGroup,
    /// Member ids by instance id.
    statics: BTreeMap<StrBytes, StrBytes>,
    /// How many members subscribe to each topic by its name.
    names: BTreeMap<StrBytes, usize>,
    /// How many members have each regular expression.
    regexes: BTreeMap<StrBytes, usize>,
    /// How many members want each assignor.
    assignors: BTreeMap<StrBytes, usize>,
    /// How many members hold each partition; one, unless a record says otherwise.
    holders: BTreeMap<TopicId, BTreeMap<i32, u32>>,
    held: usize,
    pub(super) deadlines: BTreeMap<StrBytes, MemberDeadlines>,
    /// The version of the catalog, and the time, at which topics were last compared with the group's hash of them.
    pub(super) looked: Option<(u64, u64)>,
    /// The version of the catalog, and the time, at which regular expressions were last resolved.
    pub(super) resolved: Option<(u64, u64)>,
    /// A resolution of regular expressions that is under way.
    pub(super) resolution: Option<Resolution>,
    /// When the last assignment was computed. Monotonic milliseconds.
    pub(super) assigned_ms: Option<u64>,
    /// Records of the group that were proposed and not yet applied.
    pub(crate) unapplied: u32,
    /// How many of these end the group.
    ends: u32,
    /// The log refused a record of the group: the state here is void until it is made anew.
    pub(crate) void: bool,
}

impl Tail {
    /// A group as it is applied.
    pub(crate) fn new(id: StrBytes, owner: StrBytes, group: Option<&ConsumerGroup>) -> Tail {
        let mut tail = Tail {
            id,
            owner,
            group: group.cloned().unwrap_or_default(),
            statics: BTreeMap::new(),
            names: BTreeMap::new(),
            regexes: BTreeMap::new(),
            assignors: BTreeMap::new(),
            holders: BTreeMap::new(),
            held: 0,
            deadlines: BTreeMap::new(),
            looked: None,
            resolved: None,
            resolution: None,
            assigned_ms: None,
            unapplied: 0,
            ends: 0,
            void: false,
        };
        for (id, member) in group.iter().flat_map(|group| &group.members) {
            tail.count(id, &member.subscription);
            tail.hold(member, true);
        }
        tail
    }

    pub(crate) fn group(&self) -> &ConsumerGroup {
        &self.group
    }

    /// What it holds in memory, as an estimate. Bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.group.bytes() + self.group.len() * MEMBER_SOFT_BYTES + self.held * HELD_BYTES
    }

    /// Whether nothing is lost when it is forgotten.
    pub(crate) fn is_idle(&self) -> bool {
        self.unapplied == 0 && self.group.is_empty() && !self.void
    }

    pub(crate) fn member(&self, id: &str) -> Option<&Member> {
        self.group.members.get(id)
    }

    /// The static member of that instance id, with its member id.
    pub(crate) fn static_member(&self, instance_id: &str) -> Option<(&StrBytes, &Member)> {
        let id = self.statics.get(instance_id)?;
        self.group.members.get_key_value(id)
    }

    /// How many members have that regular expression.
    pub(super) fn regex_count(&self, regex: &str) -> usize {
        self.regexes.get(regex).copied().unwrap_or(0)
    }

    /// The regular expressions that members have.
    pub(super) fn regexes(&self) -> impl Iterator<Item = &StrBytes> {
        self.regexes.keys()
    }

    /// Whether a member holds the partition.
    pub(super) fn is_held(&self, topic: TopicId, partition: i32) -> bool {
        self.holders.get(&topic).is_some_and(|partitions| partitions.contains_key(&partition))
    }

    /// The assignor that most members want; of equals the first by name. `None` when no member wants one.
    pub(super) fn wanted_assignor(&self) -> Option<&StrBytes> {
        let best = self.assignors.iter().max_by(|(a, x), (b, y)| x.cmp(y).then_with(|| b.cmp(a)));
        best.map(|(name, _)| name)
    }

    /// The names of all topics to which a member subscribes, also by a regular expression.
    pub(crate) fn subscribed(&self) -> BTreeSet<StrBytes> {
        let resolved = self.regexes.keys().filter_map(|regex| self.group.regexes.get(regex));
        self.names.keys().chain(resolved.flat_map(|resolved| &resolved.topics)).cloned().collect()
    }

    /// Whether that subscription names the topic, itself or by its regular expression.
    pub(super) fn names_topic(&self, subscription: &Subscription, topic: &str) -> bool {
        let resolved = self.group.regexes.get(&subscription.regex).filter(|_| !subscription.regex.is_empty());
        has_text(&subscription.topics, topic) || resolved.is_some_and(|resolved| has_text(&resolved.topics, topic))
    }

    /// Applies a change that is proposed.
    pub(crate) fn apply(&mut self, change: Change) {
        match &change {
            Change::Member { id, .. } | Change::Current { id, .. } | Change::Remove { id } => {
                let id = id.clone();
                if let Some(member) = self.group.members.remove(&id) {
                    self.uncount(&member.subscription);
                    self.hold(&member, false);
                    self.group.members.insert(id.clone(), member);
                }
                self.group.apply(change);
                if let Some(member) = self.group.members.remove(&id) {
                    self.count(&id, &member.subscription);
                    self.hold(&member, true);
                    self.group.members.insert(id, member);
                }
            }
            Change::Epoch { .. } | Change::Targets { .. } | Change::Regex { .. } => self.group.apply(change),
        }
    }

    /// The end of the group is proposed: another one of the same name starts from nothing.
    pub(crate) fn end(&mut self) {
        let (id, owner) = (self.id.clone(), self.owner.clone());
        let (unapplied, ends) = (self.unapplied + 1, self.ends + 1);
        *self = Tail { unapplied, ends, ..Tail::new(id, owner, None) };
    }

    /// A record of the group is applied, or refused. `ends`: one that ends the group; not every one that names it is counted here, because
    /// it may have been proposed while the group was a classic one. Whether it was counted.
    pub(crate) fn settle(&mut self, ends: bool) -> bool {
        if ends && self.ends == 0 {
            return false;
        }
        self.ends -= u32::from(ends);
        self.unapplied = self.unapplied.saturating_sub(1);
        true
    }

    fn count(&mut self, id: &StrBytes, subscription: &Subscription) {
        if let Some(instance_id) = &subscription.instance_id {
            self.statics.insert(instance_id.clone(), id.clone());
        }
        subscription.topics.iter().for_each(|topic| more(&mut self.names, topic));
        subscription.assignor.iter().for_each(|assignor| more(&mut self.assignors, assignor));
        if !subscription.regex.is_empty() {
            more(&mut self.regexes, &subscription.regex);
        }
    }

    fn uncount(&mut self, subscription: &Subscription) {
        if let Some(instance_id) = &subscription.instance_id {
            self.statics.remove(instance_id);
        }
        subscription.topics.iter().for_each(|topic| less(&mut self.names, topic));
        subscription.assignor.iter().for_each(|assignor| less(&mut self.assignors, assignor));
        less(&mut self.regexes, &subscription.regex);
    }

    /// Counts the partitions of a member in, or out.
    fn hold(&mut self, member: &Member, holds: bool) {
        for (topic, partition, _) in member.current.assigned.iter().chain(member.current.revoking.iter()) {
            let partitions = self.holders.entry(topic).or_default();
            if holds {
                *partitions.entry(partition).or_default() += 1;
                self.held += 1;
                continue;
            }
            self.held = self.held.saturating_sub(1);
            if let Some(holders) = partitions.get_mut(&partition) {
                *holders = holders.saturating_sub(1);
                if *holders == 0 {
                    partitions.remove(&partition);
                }
            }
            if partitions.is_empty() {
                self.holders.remove(&topic);
            }
        }
    }
}

fn more(counts: &mut BTreeMap<StrBytes, usize>, name: &StrBytes) {
    match counts.get_mut(name) {
        Some(count) => *count += 1,
        None => {
            counts.insert(name.clone(), 1);
        }
    }
}

fn less(counts: &mut BTreeMap<StrBytes, usize>, name: &StrBytes) {
    let Some(count) = counts.get_mut(name) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(name);
    }
}

/// Whether a rising list has the text.
fn has_text(texts: &[StrBytes], text: &str) -> bool {
    texts.binary_search_by(|other| (**other).cmp(text)).is_ok()
}
