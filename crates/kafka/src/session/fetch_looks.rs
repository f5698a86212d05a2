//! Which partitions of a fetch session a fetch looks at, where it has many: not all of them, as the broker says which have changed.
//!
//! ```text
//!   named by a request, new, or found by another catalog ──┐
//!   the broker says that it changed ───────────────────────┼──▶ due ──▶ looked at: at its end ──▶ not due
//!   an error, or more to read than was returned ───────────┘              └──▶ anything else: still due
//! ```
//!
//! A partition that is not due is followed by the broker, and its client has received everything there was.

use super::turns::Place;
use polylogue_types::{Map, PartitionId};
use std::collections::BTreeMap;

/// A session of fewer partitions looks at all of them: to ask which have changed costs as much as to look at six or seven.
pub(super) const FOLLOWED_PARTITIONS_MIN: usize = 16;

/// The looks of one session. Nothing is kept until it follows.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// In the order of their turns.
    due: BTreeMap<u64, Place>,
    followed: Map<PartitionId, Place>,
    /// No longer followed, and the broker does not know yet.
    left: Vec<PartitionId>,
    /// Of the catalog by which the partitions were found.
    version: Option<u64>,
}

impl Looks {
    /// Whether the session follows its partitions.
    pub(super) fn follows(&self) -> bool {
        self.version.is_some()
    }

    /// Whether the partitions have to be found anew: they never were, or topics have changed since.
    pub(super) fn begin(&mut self, version: u64) -> bool {
        self.version.replace(version) != Some(version)
    }

    /// All are due.
    pub(super) fn all_due(&mut self, turns: impl Iterator<Item = (u64, Place)>) {
        self.due = turns.collect();
    }

    /// The places that are due, in the order of their turns.
    pub(super) fn due(&self) -> impl Iterator<Item = Place> {
        self.due.values().copied()
    }

    /// Makes a place due. Whether it was not.
    pub(super) fn mark(&mut self, turn: u64, place: Place) -> bool {
        self.follows() && self.due.insert(turn, place).is_none()
    }

    /// All of it is seen and answered.
    pub(super) fn clear(&mut self, turn: u64) {
        self.due.remove(&turn);
    }

    /// The partition at a place gets another turn.
    pub(super) fn moved_turn(&mut self, from: u64, to: u64) {
        if let Some(place) = self.due.remove(&from) {
            self.due.insert(to, place);
        }
    }

    /// The partition is at another place now.
    pub(super) fn moved_place(&mut self, turn: u64, followed: Option<PartitionId>, place: Place) {
        if let Some(due) = self.due.get_mut(&turn) {
            *due = place;
        }
        if let Some(partition) = followed.and_then(|partition| self.followed.get_mut(&partition)) {
            *partition = place;
        }
    }

    /// Follows a partition from now on.
    pub(super) fn follow(&mut self, partition: PartitionId, place: Place) {
        self.followed.insert(partition, place);
    }

    /// Does not follow it any more.
    pub(super) fn leave(&mut self, partition: PartitionId) {
        if self.followed.remove(&partition).is_some() {
            self.left.push(partition);
        }
    }

    /// What the broker need not follow any more; it is notified now.
    pub(super) fn take_left(&mut self) -> Vec<PartitionId> {
        std::mem::take(&mut self.left)
    }

    /// Where a followed partition is.
    pub(super) fn place(&self, partition: PartitionId) -> Option<Place> {
        self.followed.get(&partition).copied()
    }
}
