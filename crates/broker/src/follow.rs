//! Followed sets of partitions, with the changes in each: a consumer of thousands of partitions asks for the changes instead of polling each
//! partition.
//!
//! ```text
//!   partition changes ──▶ marked for each set that has it ──▶ the set's list ──▶ asked for: handed over, marks taken away
//!                          (a second change: it is marked)         └──▶ a watch of the set fires, once
//! ```
//!
//! Soft state. A partition is in the list at most once, so a list is never longer than its set.

use crate::partition::Partition;
use crate::places::Places;
use crate::sink::Origin;
use crate::watch::Fired;
use polylogue_types::{Map, PartitionId, Set};
use std::collections::BTreeMap;

/// Id of a set within one table.
type SetId = u64;

/// The sets that a partition is in, and whether it is in their lists. Stored in the partition, so that no lookup is needed.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    sets: Places<bool>,
}

impl Followers {
    fn leave(&mut self, set: SetId) {
        self.sets.remove(set);
        self.sets.shrink(0);
    }
}

#[derive(Debug)]
struct Followed {
    members: Set<PartitionId>,
    changed: Vec<PartitionId>,
    /// The session to notify of the next change.
    waits: Option<Origin>,
}

/// The sets of one shard; the partitions passed in are always its own.
#[derive(Debug, Default)]
pub(crate) struct Follows {
    next: SetId,
    by_id: Map<SetId, Followed>,
    /// Ordered by session, to find the sets of one session.
    by_key: BTreeMap<(u64, u64), SetId>,
    /// The sets with a waiter, by the waiter's session and token.
    waiting: Map<(u64, u64), SetId>,
}

/// The partitions of a shard.
type Partitions = Map<PartitionId, Partition>;

impl Follows {
    /// Adds the partitions that are in this shard to a set.
    pub(crate) fn add(&mut self, partitions: &mut Partitions, key: (u64, u64), add: &[PartitionId]) {
        let Follows { next, by_id, by_key, .. } = self;
        for new in add {
            let Some(partition) = partitions.get_mut(new) else { continue };
            let id = *by_key.entry(key).or_insert_with(|| {
                *next += 1;
                *next
            });
            let begin = || Followed { members: Set::default(), changed: Vec::new(), waits: None };
            if by_id.entry(id).or_insert_with(begin).members.insert(*new) {
                partition.followers.sets.entry(id, || false);
            }
        }
    }

    /// Removes partitions from a set, if they are in it.
    pub(crate) fn leave(&mut self, partitions: &mut Partitions, key: (u64, u64), leave: &[PartitionId]) {
        let Some(id) = self.by_key.get(&key) else { return };
        let Some(set) = self.by_id.get_mut(id) else { return };
        for gone in leave {
            if set.members.remove(gone)
                && let Some(partition) = partitions.get_mut(gone)
            {
                partition.followers.leave(*id);
            }
        }
    }

    /// Returns the changes in a set since the last call; none if the set has no part in this shard.
    pub(crate) fn take(&mut self, partitions: &mut Partitions, key: (u64, u64), into: &mut Vec<PartitionId>) {
        let Some(id) = self.by_key.get(&key) else { return };
        let Some(set) = self.by_id.get_mut(id) else { return };
        for changed in &set.changed {
            if let Some(marked) =
                partitions.get_mut(changed).and_then(|partition| partition.followers.sets.get_mut(*id))
            {
                *marked = false;
            }
        }
        if into.is_empty() {
            *into = std::mem::take(&mut set.changed);
        } else {
            into.append(&mut set.changed);
        }
    }

    /// Notifies `origin` of the next change in a set. Returns false if a change is pending; then there is no notification.
    pub(crate) fn wait(&mut self, key: (u64, u64), origin: Origin) -> bool {
        let Some((id, set)) = self.by_key.get(&key).and_then(|id| Some((*id, self.by_id.get_mut(id)?))) else {
            return true;
        };
        let waits = set.changed.is_empty();
        if waits {
            self.waiting.insert(origin.key(), id);
            if let Some(before) = set.waits.replace(origin) {
                self.waiting.remove(&before.key());
            }
        }
        waits
    }

    /// Removes the watch of that origin.
    pub(crate) fn unwatch(&mut self, key: (u64, u64)) {
        if let Some(set) = self.waiting.remove(&key).and_then(|id| self.by_id.get_mut(&id)) {
            set.waits = None;
        }
    }

    /// Marks a partition as changed.
    pub(crate) fn changed(&mut self, partition: &mut Partition, fired: &mut Fired) {
        for (id, marked) in partition.followers.sets.iter_mut().filter(|(_, marked)| !**marked) {
            if let Some(set) = self.by_id.get_mut(&id) {
                *marked = true;
                set.changed.push(partition.id);
                if let Some(origin) = set.waits.take() {
                    self.waiting.remove(&origin.key());
                    fired.push(origin);
                }
            }
        }
    }

    /// Marks a deleted partition as changed, for the last time.
    pub(crate) fn gone(&mut self, gone: &mut Partition, fired: &mut Fired) {
        self.changed(gone, fired);
        for id in gone.followers.sets.ids() {
            if let Some(set) = self.by_id.get_mut(&id) {
                set.members.remove(&gone.id);
            }
        }
    }

    /// Removes a set.
    pub(crate) fn remove(&mut self, partitions: &mut Partitions, key: (u64, u64)) {
        let Some(id) = self.by_key.remove(&key) else { return };
        let Some(set) = self.by_id.remove(&id) else { return };
        if let Some(origin) = set.waits {
            self.waiting.remove(&origin.key());
        }
        for member in &set.members {
            if let Some(partition) = partitions.get_mut(member) {
                partition.followers.leave(id);
            }
        }
    }

    /// Removes all sets of a session.
    pub(crate) fn remove_session(&mut self, partitions: &mut Partitions, session: u64) {
        let keys: Vec<_> = self.by_key.range((session, 0)..=(session, u64::MAX)).map(|(key, _)| *key).collect();
        for key in keys {
            self.remove(partitions, key);
        }
    }

    /// Returns the number of followed partitions, counted once per set.
    pub(crate) fn len(&self) -> usize {
        self.by_id.values().map(|set| set.members.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::testing::Recorder;
    use polylogue_types::Offset;
    use std::sync::Arc;

    const P: PartitionId = PartitionId(2000);
    const Q: PartitionId = PartitionId(2001);
    const NOT_THERE: PartitionId = PartitionId(2002);
    const SET: (u64, u64) = (1, 40);
    const OTHER: (u64, u64) = (2, 40);

    /// A shard's sets and its partitions P and Q.
    struct Rig {
        follows: Follows,
        partitions: Partitions,
    }

    impl Rig {
        fn new() -> Rig {
            let partitions = [P, Q].map(|id| (id, Partition::new(id, Arc::default(), 0, Offset(0))));
            Rig { follows: Follows::default(), partitions: partitions.into_iter().collect() }
        }

        fn add(&mut self, key: (u64, u64), add: &[PartitionId]) {
            self.follows.add(&mut self.partitions, key, add);
        }

        /// The sessions that are notified.
        fn changed(&mut self, partition: PartitionId) -> Vec<u64> {
            let mut fired = Fired::new();
            self.follows.changed(self.partitions.get_mut(&partition).unwrap(), &mut fired);
            fired.iter().map(|origin| origin.key().0).collect()
        }

        fn take(&mut self, key: (u64, u64)) -> Vec<PartitionId> {
            let mut changed = Vec::new();
            self.follows.take(&mut self.partitions, key, &mut changed);
            changed
        }

        fn followers(&self) -> [usize; 2] {
            [P, Q].map(|id| self.partitions.get(&id).map_or(0, |partition| partition.followers.sets.ids().count()))
        }
    }

    #[test]
    fn what_changes_is_told_once_to_each_set() {
        let mut rig = Rig::new();
        rig.add(SET, &[P, Q]);
        rig.add(OTHER, &[Q, Q]);
        assert_eq!(rig.followers(), [1, 2], "named twice it is in the set once");
        assert_eq!(rig.take(SET), [], "being taken in is no change");
        for changed in [Q, P, Q] {
            assert_eq!(rig.changed(changed), []);
        }
        assert_eq!(rig.take(SET), [Q, P]);
        assert_eq!(rig.take(SET), []);
        assert_eq!(rig.changed(Q), []);
        assert_eq!((rig.take(SET), rig.take(OTHER)), (vec![Q], vec![Q]));
        rig.follows.leave(&mut rig.partitions, SET, &[Q, NOT_THERE]);
        rig.changed(Q);
        assert_eq!((rig.take(SET), rig.followers()), (vec![], [1, 1]));
    }

    #[test]
    fn a_watch_of_a_set_fires_once_and_at_the_first_change() {
        let mut rig = Rig::new();
        rig.add(SET, &[P, Q]);
        assert!(rig.follows.wait(SET, Recorder::origin(1, 7)));
        assert_eq!(rig.changed(Q), [1]);
        assert_eq!(rig.changed(P), []);
        assert!(!rig.follows.wait(SET, Recorder::origin(1, 8)), "there is something to ask for");
        assert_eq!(rig.take(SET), [Q, P]);
        assert!(rig.follows.wait(SET, Recorder::origin(1, 8)));
        rig.follows.unwatch((1, 7));
        assert_eq!(rig.changed(P), [1], "another watch was called off");
        rig.take(SET);
        assert!(rig.follows.wait(SET, Recorder::origin(1, 9)));
        rig.follows.unwatch((1, 9));
        assert_eq!(rig.changed(P), []);
    }

    #[test]
    fn what_goes_has_changed_and_what_is_not_there_is_not_taken_in() {
        let mut rig = Rig::new();
        rig.add(OTHER, &[NOT_THERE]);
        assert!(rig.follows.by_key.is_empty());
        rig.add(SET, &[P, NOT_THERE]);
        assert_eq!(rig.take(SET), []);
        assert!(rig.follows.wait(SET, Recorder::origin(1, 7)));
        let mut fired = Fired::new();
        rig.follows.gone(&mut rig.partitions.remove(&P).unwrap(), &mut fired);
        assert_eq!((fired.len(), rig.take(SET), rig.follows.len()), (1, vec![P], 0));
    }

    #[test]
    fn a_set_and_a_session_leave_nothing_behind() {
        let mut rig = Rig::new();
        for set in 0..3 {
            rig.add((1, set), &[P, Q]);
            assert!(rig.follows.wait((1, set), Recorder::origin(1, set + 7)));
        }
        rig.add(OTHER, &[P]);
        rig.follows.remove(&mut rig.partitions, (1, 2));
        assert_eq!((rig.followers(), rig.follows.len()), ([3, 2], 5));
        rig.follows.remove_session(&mut rig.partitions, 1);
        assert_eq!((rig.followers(), rig.follows.len()), ([1, 0], 1));
        rig.follows.remove(&mut rig.partitions, OTHER);
        let Follows { by_id, by_key, waiting, .. } = &rig.follows;
        assert!(by_id.is_empty() && by_key.is_empty() && waiting.is_empty());
    }
}
