//! A consumer group as the log keeps it, and the changes that lead from one state of it to the next.
//!
//! Epochs rise: the *group epoch* with every change that asks for a new assignment, the *assignment epoch* when one is computed (it is
//! then the group epoch of that moment), a *member's epoch* when the member has given up what it must and follows an assignment.

pub(crate) use super::partitions::{Held, Partitions};
use crate::applied::MEMBER_BYTES;
use polylogue_kafka_codec::StrBytes;
use std::collections::BTreeMap;

/// What a text costs in memory beside itself, as an estimate. Bytes.
const TEXT_BYTES: usize = 32;
/// What a consumer group costs in memory beside its members, as an estimate. Bytes.
const GROUP_BYTES: usize = 256;

/// The epoch of a static member that left to come back (KIP-848).
pub(super) const LEFT_FOR_NOW: i32 = -2;

/// What a member says of itself.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Subscription {
    pub(super) instance_id: Option<StrBytes>,
    pub(super) rack_id: Option<StrBytes>,
    pub(super) client_id: StrBytes,
    pub(super) client_host: StrBytes,
    /// How long it may take to give up partitions. Milliseconds; -1 as long as it has not said.
    pub(super) rebalance_timeout_ms: i32,
    /// The assignor that it wants.
    pub(super) assignor: Option<StrBytes>,
    /// Topics by name: rising, each once.
    pub(super) topics: Vec<StrBytes>,
    /// A regular expression that topics must match as a whole; empty for none.
    pub(super) regex: StrBytes,
}

/// Where a member is between two assignments.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum MemberState {
    /// It has all of its assignment.
    #[default]
    Stable,
    /// It must give up partitions.
    Unrevoked,
    /// It waits for partitions that others must give up.
    Unreleased,
}

impl MemberState {
    pub(super) fn code(self) -> u8 {
        match self {
            MemberState::Stable => 0,
            MemberState::Unrevoked => 1,
            MemberState::Unreleased => 2,
        }
    }

    pub(super) fn of_code(code: u8) -> Option<MemberState> {
        [MemberState::Stable, MemberState::Unrevoked, MemberState::Unreleased].into_iter().find(|s| s.code() == code)
    }
}

/// What a member holds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Current {
    pub(super) epoch: i32,
    /// The epoch before: a member that has not received the answer with the new one comes with it.
    pub(super) previous_epoch: i32,
    pub(super) state: MemberState,
    /// What it may read.
    pub(super) assigned: Held,
    /// What it must give up, and holds until it says that it did.
    pub(super) revoking: Held,
}

impl Current {
    /// Whether it has all of the assignment of that epoch.
    pub(super) fn is_reconciled(&self, assignment_epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == assignment_epoch
    }

    /// The same at another epoch.
    pub(super) fn at(&self, epoch: i32) -> Current {
        Current { previous_epoch: self.epoch, epoch, ..self.clone() }
    }
}

/// A member of a consumer group.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Member {
    pub(super) subscription: Subscription,
    pub(super) current: Current,
    /// What it is to read by the newest assignment.
    pub(super) target: Partitions,
}

/// The topics that a regular expression stands for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Resolved {
    /// By name: rising, each once.
    pub(super) topics: Vec<StrBytes>,
}

/// A group of the consumer protocol.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct ConsumerGroup {
    pub(super) epoch: i32,
    /// Stands for the topics that members subscribe to, with their ids and numbers of partitions.
    pub(super) metadata_hash: u64,
    pub(super) assignment_epoch: i32,
    pub(super) members: BTreeMap<StrBytes, Member>,
    pub(super) regexes: BTreeMap<StrBytes, Resolved>,
    /// What members and regular expressions hold in memory, as an estimate.
    bytes: usize,
}

/// A step from one state of a group to the next. All are absolute: applied twice they change nothing more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// The group has this epoch.
    Epoch { epoch: i32, metadata_hash: u64 },
    /// The member says this of itself. One that is not there is made.
    Member { id: StrBytes, subscription: Subscription },
    /// There is a new assignment. Members that are not named keep what they were to read.
    Targets { epoch: i32, targets: Vec<(StrBytes, Partitions)> },
    /// The member holds this.
    Current { id: StrBytes, current: Current },
    /// The member is gone.
    Remove { id: StrBytes },
    /// The regular expression stands for these topics; `None` when no member has it any more.
    Regex { regex: StrBytes, resolved: Option<Resolved> },
}

impl ConsumerGroup {
    /// What it holds in memory, as an estimate. Bytes.
    pub(crate) fn bytes(&self) -> usize {
        GROUP_BYTES + self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    pub(crate) fn member_ids(&self) -> impl Iterator<Item = &StrBytes> {
        self.members.keys()
    }

    pub(crate) fn epoch(&self) -> i32 {
        self.epoch
    }

    /// Applies a change. A change of a member that is not there does nothing.
    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Epoch { epoch, metadata_hash } => {
                self.epoch = epoch;
                self.metadata_hash = metadata_hash;
            }
            Change::Member { id, subscription } => {
                let mut member = self.take(&id).unwrap_or_default();
                member.subscription = subscription;
                self.put(id, member);
            }
            Change::Targets { epoch, targets } => {
                self.assignment_epoch = epoch;
                for (id, target) in targets {
                    self.change(&id, |member| member.target = target);
                }
            }
            Change::Current { id, current } => self.change(&id, |member| member.current = current),
            Change::Remove { id } => {
                self.take(&id);
            }
            Change::Regex { regex, resolved } => self.set_regex(regex, resolved),
        }
    }

    /// Puts a member in as it was kept.
    pub(crate) fn put(&mut self, id: StrBytes, member: Member) {
        self.take(&id);
        self.bytes += member_cost(&id, &member);
        self.members.insert(id, member);
    }

    fn take(&mut self, id: &StrBytes) -> Option<Member> {
        let member = self.members.remove(id)?;
        self.bytes = self.bytes.saturating_sub(member_cost(id, &member));
        Some(member)
    }

    fn change(&mut self, id: &StrBytes, change: impl FnOnce(&mut Member)) {
        let Some(member) = self.members.get_mut(id) else { return };
        let before = member_cost(id, member);
        change(member);
        self.bytes = (self.bytes + member_cost(id, member)).saturating_sub(before);
    }

    pub(crate) fn set_regex(&mut self, regex: StrBytes, resolved: Option<Resolved>) {
        let before = self.regexes.get(&regex).map_or(0, |resolved| regex_cost(&regex, resolved));
        let after = resolved.as_ref().map_or(0, |resolved| regex_cost(&regex, resolved));
        self.bytes = (self.bytes + after).saturating_sub(before);
        match resolved {
            Some(resolved) => self.regexes.insert(regex, resolved),
            None => self.regexes.remove(&regex),
        };
    }
}

impl Subscription {
    /// What it holds in memory, as an estimate. Bytes.
    pub(super) fn cost(&self) -> usize {
        let option = |text: &Option<StrBytes>| text.as_ref().map_or(0, |text| text.len());
        option(&self.instance_id)
            + option(&self.rack_id)
            + option(&self.assignor)
            + self.client_id.len()
            + self.client_host.len()
            + self.regex.len()
            + texts_cost(&self.topics)
    }
}

/// What texts hold in memory, as an estimate. Bytes.
pub(super) fn texts_cost(texts: &[StrBytes]) -> usize {
    texts.iter().map(|text| TEXT_BYTES + text.len()).sum()
}

/// What a member holds in memory, as an estimate. Bytes.
pub(super) fn member_cost(id: &str, member: &Member) -> usize {
    let Member { subscription, current, target } = member;
    MEMBER_BYTES + id.len() + subscription.cost() + current.assigned.cost() + current.revoking.cost() + target.cost()
}

fn regex_cost(regex: &str, resolved: &Resolved) -> usize {
    TEXT_BYTES + regex.len() + texts_cost(&resolved.topics)
}
