//! Who wants to know when a partition goes past an offset (Kafka's long poll, and tailing readers of any kind).
//!
//! Soft state. A watch fires once, over all of its partitions, and is then gone.

use crate::sink::Origin;
use polylogue_api::Event;
use polylogue_types::{Map, Offset, PartitionId};
use std::sync::Arc;

/// Names a watch inside one table.
type WatchId = u64;

#[derive(Debug)]
struct Watch {
    origin: Origin,
    partitions: Vec<PartitionId>,
}

/// The watches of one shard.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    next: WatchId,
    by_id: Map<WatchId, Watch>,
    // Several watchers of one partition are few (its consumers), so that a vector beats a map.
    by_partition: Map<PartitionId, Vec<(WatchId, Offset)>>,
    by_origin: Map<(u64, u64), WatchId>,
}

/// An event that is to be delivered once no lock is held.
pub(crate) type Fired = Vec<Origin>;

impl Watches {
    /// Registers a watch; the caller has made sure that none of the offsets has been passed yet.
    pub(crate) fn add(&mut self, origin: Origin, mut seen: Vec<(PartitionId, Offset)>) {
        // Named twice, a partition is watched once, from the lowest offset on: a list of one partition a thousand times must
        // not make every change of it a thousand times as dear.
        seen.sort_unstable();
        seen.dedup_by_key(|(partition, _)| *partition);
        let id = self.next;
        self.next += 1;
        let mut partitions = Vec::with_capacity(seen.len());
        for (partition, offset) in seen {
            self.by_partition.entry(partition).or_default().push((id, offset));
            partitions.push(partition);
        }
        self.by_origin.insert(origin.key(), id);
        self.by_id.insert(id, Watch { origin, partitions });
    }

    /// Forgets the watch of that origin.
    pub(crate) fn remove(&mut self, key: (u64, u64)) {
        if let Some(id) = self.by_origin.remove(&key) {
            self.take(id);
        }
    }

    /// Forgets all watches of a session.
    pub(crate) fn remove_session(&mut self, session: u64) {
        let keys: Vec<_> = self.by_origin.keys().filter(|key| key.0 == session).copied().collect();
        for key in keys {
            self.remove(key);
        }
    }

    /// The partition's high watermark is now `high_watermark`: collects those who waited for it.
    pub(crate) fn passed(&mut self, partition: PartitionId, high_watermark: Offset, fired: &mut Fired) {
        let Some(watchers) = self.by_partition.get_mut(&partition) else { return };
        let mut due = Vec::new();
        // In one go, so that firing many watchers of one partition costs each of them once.
        watchers.retain(|(id, seen)| {
            let waits = *seen >= high_watermark;
            if !waits {
                due.push(*id);
            }
            waits
        });
        if watchers.is_empty() {
            self.by_partition.remove(&partition);
        }
        for id in due {
            fired.extend(self.take(id).map(|watch| watch.origin));
        }
    }

    /// The partition is gone: whoever watched it looks again and finds out.
    pub(crate) fn gone(&mut self, partition: PartitionId, fired: &mut Fired) {
        for (id, _) in self.by_partition.remove(&partition).unwrap_or_default() {
            fired.extend(self.take(id).map(|watch| watch.origin));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    fn take(&mut self, id: WatchId) -> Option<Watch> {
        let watch = self.by_id.remove(&id)?;
        for partition in &watch.partitions {
            if let Some(watchers) = self.by_partition.get_mut(partition) {
                watchers.retain(|(other, _)| *other != id);
                if watchers.is_empty() {
                    self.by_partition.remove(partition);
                }
            }
        }
        self.by_origin.remove(&watch.origin.key());
        Some(watch)
    }
}

/// Tells the watchers; call it without holding a lock.
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

    #[test]
    fn a_watch_fires_once_over_all_its_partitions() {
        let mut watches = Watches::default();
        watches.add(Recorder::origin(1, 7), vec![(P, Offset(5)), (Q, Offset(0))]);
        let mut fired = Fired::new();
        watches.passed(P, Offset(5), &mut fired);
        assert!(fired.is_empty(), "nothing beyond what was seen");
        watches.passed(P, Offset(6), &mut fired);
        watches.passed(Q, Offset(1), &mut fired);
        assert_eq!(fired.len(), 1);
        assert_eq!(watches.len(), 0);
        assert!(watches.by_partition.is_empty() && watches.by_origin.is_empty());
    }

    /// Each time cost a walk over all watchers of the partition, under the shard's lock.
    #[test]
    fn a_partition_that_is_named_often_is_watched_once() {
        let mut watches = Watches::default();
        watches.add(Recorder::origin(1, 7), vec![(P, Offset(9)), (P, Offset(3)), (P, Offset(5))]);
        assert_eq!(watches.by_partition[&P], [(0, Offset(3))]);
        let mut fired = Fired::new();
        watches.passed(P, Offset(4), &mut fired);
        assert_eq!((fired.len(), watches.len()), (1, 0));
    }

    #[test]
    fn a_removed_watch_does_not_fire() {
        let mut watches = Watches::default();
        watches.add(Recorder::origin(1, 7), vec![(P, Offset(0))]);
        watches.add(Recorder::origin(2, 7), vec![(P, Offset(0))]);
        watches.remove((1, 7));
        watches.remove_session(3);
        let mut fired = Fired::new();
        watches.gone(P, &mut fired);
        assert_eq!(fired.iter().map(Origin::key).collect::<Vec<_>>(), [(2, 7)]);
    }
}
