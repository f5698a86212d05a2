//! From what a member holds to what it is to read, one step for each heartbeat.
//!
//! ```text
//!               must give up something                 gave it up
//!    Stable ───────────────────────────► Unrevoked ───────────────────┐
//!      ▲ │                                                            ▼
//!      │ └──────── new assignment ─────────────► takes what is free; is in the epoch of the assignment
//!      │                                              │ all is free          │ others still hold some
//!      └──────────────────────────────────────────────┘                      ▼
//!      ▲─────────────────────── what it waited for is free ───────────── Unreleased
//! ```
//!
//! A partition is given to a member only when no other holds it, so that never two read it.

use super::model::{Current, Held, Member, MemberState};
use polylogue_types::TopicId;
use std::collections::BTreeSet;

/// What a member is reconciled with.
pub(super) struct Goal<'a> {
    pub(super) assignment_epoch: i32,
    /// Whether the member subscribes to the topic.
    pub(super) subscribes: &'a dyn Fn(TopicId) -> bool,
    /// Whether any member holds the partition.
    pub(super) is_held: &'a dyn Fn(TopicId, i32) -> bool,
    /// What the member says that it owns; `None` when it says nothing about it.
    pub(super) owned: Option<&'a [(TopicId, Vec<i32>)]>,
    /// The subscription has changed: topics that are no longer subscribed to are given up at once.
    pub(super) subscription_changed: bool,
}

impl Goal<'_> {
    /// Whether the member may still own something of what it must give up.
    fn owns(&self, revoking: &Held) -> bool {
        let Some(owned) = self.owned else { return true };
        owned.iter().any(|(topic, partitions)| partitions.iter().any(|partition| revoking.contains(*topic, *partition)))
    }
}

/// What the member holds next; `None` when nothing changes.
pub(super) fn reconcile(member: &Member, goal: &Goal<'_>) -> Option<Current> {
    let current = &member.current;
    let next = match current.state {
        MemberState::Stable if current.epoch != goal.assignment_epoch => next(member, goal),
        MemberState::Stable if goal.subscription_changed => shrink(member, goal)?,
        MemberState::Stable => return None,
        MemberState::Unrevoked if goal.owns(&current.revoking) => {
            if !goal.subscription_changed {
                return None;
            }
            shrink(member, goal)?
        }
        MemberState::Unrevoked | MemberState::Unreleased => next(member, goal),
    };
    (next != *current).then_some(next)
}

/// Gives up topics to which the member no longer subscribes. `None` when there are none.
fn shrink(member: &Member, goal: &Goal<'_>) -> Option<Current> {
    let current = &member.current;
    let (kept, gone): (Vec<_>, Vec<_>) = current.assigned.iter().partition(|(topic, _, _)| (goal.subscribes)(*topic));
    if gone.is_empty() {
        return None;
    }
    let revoking: Held = current.revoking.iter().chain(gone).collect();
    let assigned = kept.into_iter().collect();
    Some(match goal.owns(&revoking) {
        true => Current { state: MemberState::Unrevoked, assigned, revoking, ..current.at(current.epoch) },
        // It has given them up already.
        false => Current { assigned, ..current.at(current.epoch) },
    })
}

/// Goes towards the assignment as far as it can.
fn next(member: &Member, goal: &Goal<'_>) -> Current {
    let current = &member.current;
    let subscribed: BTreeSet<TopicId> =
        member.target.topics().map(|(topic, _)| *topic).filter(|topic| (goal.subscribes)(*topic)).collect();
    let is_target = |topic, partition| subscribed.contains(&topic) && member.target.contains(topic, partition);
    let (kept, revoking): (Vec<_>, Vec<_>) =
        current.assigned.iter().partition(|(topic, partition, _)| is_target(*topic, *partition));
    let revoking: Held = revoking.into_iter().collect();
    if !revoking.is_empty() && goal.owns(&revoking) {
        let assigned = kept.into_iter().collect();
        return Current { state: MemberState::Unrevoked, assigned, revoking, ..current.at(current.epoch) };
    }
    let mut unreleased = false;
    let lacking = |(topic, partition): &(TopicId, i32)| {
        subscribed.contains(topic) && !current.assigned.contains(*topic, *partition)
    };
    let is_free = |(topic, partition): &(TopicId, i32)| {
        // What it held itself until now is its own to take back.
        let free = !(goal.is_held)(*topic, *partition) || current.revoking.contains(*topic, *partition);
        unreleased |= !free;
        free
    };
    let taken: Vec<_> = member.target.iter().filter(lacking).filter(is_free).collect();
    let taken = taken.into_iter().map(|(topic, partition)| (topic, partition, goal.assignment_epoch));
    Current {
        state: if unreleased { MemberState::Unreleased } else { MemberState::Stable },
        assigned: kept.into_iter().chain(taken).collect(),
        revoking: Held::default(),
        ..current.at(goal.assignment_epoch)
    }
}
