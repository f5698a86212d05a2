//! Watches: notifications when a partition passes an offset (Kafka's long poll, and readers at the end of a log).
//!
//! Soft state. A watch covers all of its partitions, fires once and is then removed.

use crate::partition::Partition;
use crate::places::Places;
use crate::sink::Origin;
use polylogue_api::Event;
use polylogue_types::{Map, Offset, PartitionId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Watcher slots whose memory a partition keeps: a consumer that waits repeatedly causes no allocation.
const PLACES_KEPT: usize = 4;

/// Id of a watch within one table.
type WatchId = u64;

/// The watches of one partition. Stored in the partition, so that its lookup finds them.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    waiting: Places<Offset>,
}

impl Watchers {
    /// A partition named twice by one watch is watched once, from the lowest offset: a list of one partition a thousand times must not multiply the
    /// cost of each change.
    fn add(&mut self, id: WatchId, seen: Offset) {
        let lowest = self.waiting.entry(id, || seen);
        *lowest = seen.min(*lowest);
    }

    fn remove(&mut self, id: WatchId) {
        self.waiting.remove(id);
        self.waiting.shrink(PLACES_KEPT);
    }

    /// Takes the watchers that have not seen the entries below `high_watermark`, in one pass, so that firing many watchers of one partition costs
    /// each of them once.
    pub(crate) fn take_passed(&mut self, high_watermark: Offset) -> Due {
        if self.waiting.is_empty() {
            return Due::new();
        }
        let due = self.waiting.take_if(|seen| *seen < high_watermark);
        self.waiting.shrink(PLACES_KEPT);
        due
    }
}

/// Watches released by a partition that are to be fired.
pub(crate) type Due = Vec<WatchId>;

#[derive(Debug)]
struct Watch {
    origin: Origin,
    /// As registered, including duplicates.
    seen: Vec<(PartitionId, Offset)>,
}

/// The watches of one shard; the partitions passed in are always its own.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    next: WatchId,
    by_id: Map<WatchId, Watch>,
    /// Ordered by session, to find the watches of one session.
    by_origin: BTreeMap<(u64, u64), WatchId>,
}

/// Watchers to be notified when no lock is held.
pub(crate) type Fired = Vec<Origin>;

/// The partitions of a shard.
type Partitions = Map<PartitionId, Partition>;

impl Watches {
    /// Registers a watch, unless one of its partitions does not exist or is past the offset seen. Returns whether it was registered.
    pub(crate) fn add(
        &mut self,
        partitions: &mut Partitions,
        origin: Origin,
        seen: Vec<(PartitionId, Offset)>,
    ) -> bool {
        let id = self.next;
        self.next += 1;
        let waits = seen.iter().all(|(partition, seen)| match partitions.get_mut(partition) {
            Some(partition) if partition.high_watermark <= *seen => {
                partition.watchers.add(id, *seen);
                true
            }
            _ => false,
        });
        if waits {
            self.by_origin.insert(origin.key(), id);
            self.by_id.insert(id, Watch { origin, seen });
        } else {
            leave(partitions, id, &seen);
        }
        waits
    }

    /// Removes the watch of that origin.
    pub(crate) fn remove(&mut self, partitions: &mut Partitions, key: (u64, u64)) {
        if let Some(id) = self.by_origin.remove(&key) {
            self.take(partitions, id);
        }
    }

    /// Removes all watches of a session.
    pub(crate) fn remove_session(&mut self, partitions: &mut Partitions, session: u64) {
        let keys: Vec<_> = self.by_origin.range((session, 0)..=(session, u64::MAX)).map(|(key, _)| *key).collect();
        for key in keys {
            self.remove(partitions, key);
        }
    }

    /// Removes the watches that a partition released, and collects their owners.
    pub(crate) fn fire(&mut self, partitions: &mut Partitions, due: Due, fired: &mut Fired) {
        for id in due {
            fired.extend(self.take(partitions, id).map(|watch| watch.origin));
        }
    }

    /// Fires the watches of a deleted partition: their requests are evaluated again.
    pub(crate) fn gone(&mut self, partitions: &mut Partitions, gone: Partition, fired: &mut Fired) {
        let due = gone.watchers.waiting.ids().collect();
        self.fire(partitions, due, fired);
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    fn take(&mut self, partitions: &mut Partitions, id: WatchId) -> Option<Watch> {
        let watch = self.by_id.remove(&id)?;
        leave(partitions, id, &watch.seen);
        self.by_origin.remove(&watch.origin.key());
        Some(watch)
    }
}

fn leave(partitions: &mut Partitions, id: WatchId, seen: &[(PartitionId, Offset)]) {
    for (partition, _) in seen {
        if let Some(partition) = partitions.get_mut(partition) {
            partition.watchers.remove(id);
        }
    }
}

/// Notifies the watchers. Must not be called with a lock held.
pub(crate) fn deliver(fired: Fired) {
    for origin in fired {
        let token = origin.token;
        Arc::clone(&origin.sink).event(Event::Changed(token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::testing::Recorder;

    const P: PartitionId = PartitionId(2000);
    const Q: PartitionId = PartitionId(2001);

    /// A shard's watches and its partitions P and Q, which are empty.
    struct Rig {
        watches: Watches,
        partitions: Partitions,
    }

    impl Rig {
        fn new() -> Rig {
            let partitions = [P, Q].map(|id| (id, Partition::new(id, Arc::default(), 0, Offset(0))));
            Rig { watches: Watches::default(), partitions: partitions.into_iter().collect() }
        }

        fn add(&mut self, session: u64, seen: &[(PartitionId, u64)]) -> bool {
            let seen = seen.iter().map(|(partition, offset)| (*partition, Offset(*offset))).collect();
            self.watches.add(&mut self.partitions, Recorder::origin(session, 7), seen)
        }

        /// The sessions whose watches fire.
        fn pass(&mut self, partition: PartitionId, high_watermark: u64) -> Vec<u64> {
            let mut fired = Fired::new();
            let passed = self.partitions.get_mut(&partition).unwrap();
            passed.high_watermark = Offset(high_watermark);
            let due = passed.watchers.take_passed(Offset(high_watermark));
            self.watches.fire(&mut self.partitions, due, &mut fired);
            fired.iter().map(|origin| origin.key().0).collect()
        }

        /// The number of watchers of P and of Q.
        fn watchers(&self) -> [usize; 2] {
            [P, Q].map(|id| self.partitions.get(&id).map_or(0, |partition| partition.watchers.waiting.ids().count()))
        }
    }

    #[test]
    fn a_watch_fires_once_over_all_its_partitions() {
        let mut rig = Rig::new();
        assert!(rig.add(1, &[(P, 5), (Q, 0)]));
        assert_eq!(rig.watchers(), [1, 1]);
        assert_eq!(rig.pass(P, 5), [], "nothing beyond what was seen");
        assert_eq!(rig.pass(P, 6), [1]);
        assert_eq!(rig.watchers(), [0, 0]);
        assert_eq!(rig.pass(Q, 1), []);
        assert_eq!(rig.watches.len(), 0);
        assert!(rig.watches.by_origin.is_empty());
    }

    #[test]
    fn of_several_watchers_those_fire_who_have_not_seen_it_in_the_order_in_which_they_came() {
        let mut rig = Rig::new();
        for (session, seen) in [(1, 5), (2, 3), (3, 9), (4, 0)] {
            assert!(rig.add(session, &[(P, seen), (Q, 0)]));
        }
        assert_eq!(rig.pass(P, 4), [2, 4]);
        assert_eq!(rig.watchers(), [2, 2]);
        assert_eq!(rig.pass(P, 10), [1, 3]);
        assert_eq!(rig.watchers(), [0, 0]);
    }

    /// Each repetition cost a walk over all watchers of the partition, under the shard's lock.
    #[test]
    fn a_partition_that_is_named_often_is_watched_once() {
        let mut rig = Rig::new();
        assert!(rig.add(1, &[(P, 9), (Q, 0), (P, 3), (P, 5)]));
        assert_eq!(rig.watchers(), [1, 1]);
        assert_eq!(rig.pass(P, 4), [1]);
        assert_eq!((rig.watchers(), rig.watches.len()), ([0, 0], 0));
    }

    #[test]
    fn what_is_past_or_not_there_is_not_watched_and_leaves_nothing() {
        let mut rig = Rig::new();
        assert_eq!(rig.pass(Q, 8), []);
        assert!(!rig.add(1, &[(P, 0), (Q, 7)]));
        assert!(!rig.add(1, &[(P, 0), (PartitionId(2002), 0)]));
        assert_eq!((rig.watchers(), rig.watches.len()), ([0, 0], 0));
        assert!(rig.add(1, &[(P, 0), (Q, 8)]));
    }

    #[test]
    fn a_removed_watch_does_not_fire() {
        let mut rig = Rig::new();
        assert!(rig.add(1, &[(P, 0)]) && rig.add(2, &[(Q, 0), (P, 0)]));
        rig.watches.remove(&mut rig.partitions, (1, 7));
        rig.watches.remove_session(&mut rig.partitions, 3);
        assert_eq!(rig.watchers(), [1, 1]);
        let mut fired = Fired::new();
        let gone = rig.partitions.remove(&P).unwrap();
        rig.watches.gone(&mut rig.partitions, gone, &mut fired);
        assert_eq!(fired.iter().map(Origin::key).collect::<Vec<_>>(), [(2, 7)]);
        assert_eq!(rig.watchers(), [0, 0]);
    }

    #[test]
    fn memory_is_kept_for_a_few_watchers_only() {
        let mut rig = Rig::new();
        let capacity = |rig: &Rig| rig.partitions[&P].watchers.waiting.capacity();
        for (watchers, kept) in [(1, true), (PLACES_KEPT as u64 + 1, false)] {
            (0..watchers).for_each(|session| assert!(rig.add(session, &[(P, 0)])));
            (0..watchers).for_each(|session| rig.watches.remove_session(&mut rig.partitions, session));
            assert_eq!(capacity(&rig) > 0, kept, "{watchers}");
        }
    }
}
