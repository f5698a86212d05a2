//! `uniform`, where all members subscribe to the same topics: sizes differ by one at most, and no more partitions move than that needs.

use super::{Participant, TopicSizes, size_of};
use crate::consumer::model::Partitions;
use polylogue_types::TopicId;
use std::collections::BTreeMap;

/// Which partitions of each topic have a member.
struct Taken(BTreeMap<TopicId, Vec<bool>>);

impl Taken {
    /// Takes a partition. False when it does not exist, or is taken.
    fn take(&mut self, topic: TopicId, partition: i32) -> bool {
        let place = usize::try_from(partition).ok().and_then(|at| self.0.get_mut(&topic)?.get_mut(at));
        place.is_some_and(|taken| !std::mem::replace(taken, true))
    }

    fn free(&self) -> impl Iterator<Item = (TopicId, i32)> {
        let of_topic = |(topic, taken): (&TopicId, &Vec<bool>)| {
            let topic = *topic;
            let free: Vec<_> =
                taken.iter().zip(0i32..).filter(|(taken, _)| !**taken).map(|(_, at)| (topic, at)).collect();
            free
        };
        self.0.iter().flat_map(of_topic)
    }
}

pub(super) fn assign(members: &[Participant<'_>], sizes: &TopicSizes) -> Vec<Partitions> {
    let topics = members.first().map(|member| &*member.topics).unwrap_or_default();
    let mut taken = Taken(topics.iter().map(|topic| (*topic, vec![false; size_of(sizes, *topic)])).collect());
    let all: usize = taken.0.values().map(Vec::len).sum();
    let share = all / members.len().max(1);
    let mut extra = all % members.len().max(1);
    // What each has that still exists.
    let had: Vec<Vec<(TopicId, i32)>> = members
        .iter()
        .map(|member| member.target.iter().filter(|(topic, partition)| taken.take(*topic, *partition)).collect())
        .collect();
    // One more than the share goes to members that have one more already, as long as there are any.
    let mut quotas: Vec<usize> =
        had.iter().map(|had| share + usize::from(take_extra(had.len() > share, &mut extra))).collect();
    for quota in &mut quotas {
        *quota += usize::from(take_extra(*quota == share, &mut extra));
    }
    let mut assigned = Vec::with_capacity(members.len());
    for (had, quota) in had.iter().zip(&quotas) {
        let (kept, given_up) = had.split_at_checked(*quota).unwrap_or((had.as_slice(), &[]));
        for (topic, partition) in given_up {
            taken.release(*topic, *partition);
        }
        assigned.push(kept.iter().copied().collect::<Partitions>());
    }
    let mut free = taken.free();
    for (assigned, quota) in assigned.iter_mut().zip(&quotas) {
        let lacking = quota.saturating_sub(assigned.len());
        assigned.extend(free.by_ref().take(lacking));
    }
    drop(free);
    assigned
}

fn take_extra(wanted: bool, extra: &mut usize) -> bool {
    let taken = wanted && *extra > 0;
    *extra -= usize::from(taken);
    taken
}

impl Taken {
    fn release(&mut self, topic: TopicId, partition: i32) {
        let place = usize::try_from(partition).ok().and_then(|at| self.0.get_mut(&topic)?.get_mut(at));
        if let Some(taken) = place {
            *taken = false;
        }
    }
}
