//! Tracks which partitions of a large fetch session must be read: the broker reports changes, so that others are skipped.
//!
//! ```text
//!   in the request, new, or the catalog has changed ───┐
//!   reported as changed by the broker ─────────────────┼──▶ due ──▶ read: at its end ──▶ not due
//!   an error, or more to read than was returned ───────┘              └──▶ otherwise: still due
//! ```
//!
//! A partition that is not due is followed by the broker, and its client has received everything in it.

use super::turns::Place;
use polylogue_types::{Map, PartitionId};
use std::collections::BTreeMap;

/// Smaller sessions read all partitions: the request for changes costs as much as reading six or seven.
pub(super) const FOLLOWED_PARTITIONS_MIN: usize = 16;

/// The due partitions of one session. Empty until it follows.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// By turn.
    due: BTreeMap<u64, Place>,
    followed: Map<PartitionId, Place>,
    /// No longer followed; the broker has not been notified yet.
    left: Vec<PartitionId>,
    /// Version of the catalog in which the partitions were resolved.
    version: Option<u64>,
}

impl Looks {
    /// Whether the session follows its partitions.
    pub(super) fn follows(&self) -> bool {
        self.version.is_some()
    }

    /// Whether the partitions must be resolved again: for the first time, or because topics have changed.
    pub(super) fn begin(&mut self, version: u64) -> bool {
        self.version.replace(version) != Some(version)
    }

    /// Marks all partitions as due.
    pub(super) fn all_due(&mut self, turns: impl Iterator<Item = (u64, Place)>) {
        self.due = turns.collect();
    }

    /// Returns the due places, by turn.
    pub(super) fn due(&self) -> impl Iterator<Item = Place> {
        self.due.values().copied()
    }

    /// Marks a place as due. Returns whether it was not.
    pub(super) fn mark(&mut self, turn: u64, place: Place) -> bool {
        self.follows() && self.due.insert(turn, place).is_none()
    }

    /// Marks a place as read to its end and answered.
    pub(super) fn clear(&mut self, turn: u64) {
        self.due.remove(&turn);
    }

    /// A partition has got another turn.
    pub(super) fn moved_turn(&mut self, from: u64, to: u64) {
        if let Some(place) = self.due.remove(&from) {
            self.due.insert(to, place);
        }
    }

    /// A partition has moved to another place.
    pub(super) fn moved_place(&mut self, turn: u64, followed: Option<PartitionId>, place: Place) {
        if let Some(due) = self.due.get_mut(&turn) {
            *due = place;
        }
        if let Some(partition) = followed.and_then(|partition| self.followed.get_mut(&partition)) {
            *partition = place;
        }
    }

    /// Follows a partition.
    pub(super) fn follow(&mut self, partition: PartitionId, place: Place) {
        self.followed.insert(partition, place);
    }

    /// Stops following a partition.
    pub(super) fn leave(&mut self, partition: PartitionId) {
        if self.followed.remove(&partition).is_some() {
            self.left.push(partition);
        }
    }

    /// Takes the partitions that the broker must stop following.
    pub(super) fn take_left(&mut self) -> Vec<PartitionId> {
        std::mem::take(&mut self.left)
    }

    /// Returns the place of a followed partition.
    pub(super) fn place(&self, partition: PartitionId) -> Option<Place> {
        self.followed.get(&partition).copied()
    }
}
