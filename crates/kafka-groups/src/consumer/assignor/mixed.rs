//! `uniform`, where members subscribe to different topics.
//!
//! What members have stays with them as far as they still subscribe to it; partitions without a member go to the least loaded subscriber,
//! those of topics with few subscribers first. Then, topic by topic, partitions move from the most loaded of the members that
//! have one to the least loaded subscriber as long as that makes their loads more equal. The assignment is balanced when no single
//! move does.

use super::{Participant, TopicSizes, size_of};
use crate::consumer::model::Partitions;
use polylogue_types::TopicId;
use std::collections::{BTreeMap, BTreeSet};

/// How often all topics are gone through. What is not balanced after that stays as it is: each pass leaves it better than before.
pub(super) const PASSES_MAX: usize = 16;

/// A topic while it is being assigned: members are numbers.
struct Topic {
    id: TopicId,
    subscribers: Vec<usize>,
    /// The partitions of each member that has some.
    owned: BTreeMap<usize, Vec<i32>>,
}

pub(super) fn assign(members: &[Participant<'_>], sizes: &TopicSizes) -> Vec<Partitions> {
    let mut loads = vec![0usize; members.len()];
    let mut topics = topics(members, sizes, &mut loads);
    for _ in 0..PASSES_MAX {
        let mut moved = false;
        for topic in &mut topics {
            moved |= balance(topic, &mut loads);
        }
        if !moved {
            break;
        }
    }
    let mut assigned = vec![Vec::new(); members.len()];
    for topic in topics {
        for (member, partitions) in topic.owned {
            if let Some(assigned) = assigned.get_mut(member) {
                assigned.extend(partitions.into_iter().map(|partition| (topic.id, partition)));
            }
        }
    }
    assigned.into_iter().map(|partitions| partitions.into_iter().collect()).collect()
}

/// All topics with their partitions handed out, those with few subscribers first.
fn topics(members: &[Participant<'_>], sizes: &TopicSizes, loads: &mut [usize]) -> Vec<Topic> {
    let mut subscribers: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        for topic in member.topics.iter() {
            subscribers.entry(*topic).or_default().push(at);
        }
    }
    let topic = |(id, subscribers)| Topic { id, subscribers, owned: BTreeMap::new() };
    let mut topics: Vec<Topic> = subscribers.into_iter().map(topic).collect();
    topics.sort_by_key(|topic| topic.subscribers.len());
    let mut free = Vec::with_capacity(topics.len());
    for topic in &mut topics {
        let mut taken = vec![false; size_of(sizes, topic.id)];
        for at in &topic.subscribers {
            let had = members.get(*at).map(|member| member.target.of(topic.id)).unwrap_or_default();
            for partition in had {
                let place = usize::try_from(*partition).ok().and_then(|place| taken.get_mut(place));
                if place.is_some_and(|taken| !std::mem::replace(taken, true)) {
                    topic.owned.entry(*at).or_default().push(*partition);
                    add(loads, *at, 1);
                }
            }
        }
        let left: Vec<i32> = taken.iter().zip(0i32..).filter(|(taken, _)| !**taken).map(|(_, at)| at).collect();
        free.push(left);
    }
    for (topic, left) in topics.iter_mut().zip(free) {
        let mut by_load: BTreeSet<(usize, usize)> =
            topic.subscribers.iter().map(|at| (load(loads, *at), *at)).collect();
        for partition in left {
            let Some((_, at)) = by_load.pop_first() else { break };
            topic.owned.entry(at).or_default().push(partition);
            add(loads, at, 1);
            by_load.insert((load(loads, at), at));
        }
    }
    topics
}

/// Moves partitions of one topic. False when there is nothing to gain.
fn balance(topic: &mut Topic, loads: &mut [usize]) -> bool {
    let mut by_load: BTreeSet<(usize, usize)> = topic.subscribers.iter().map(|at| (load(loads, *at), *at)).collect();
    let mut owners: BTreeSet<(usize, usize)> = topic.owned.keys().map(|at| (load(loads, *at), *at)).collect();
    let mut moved = false;
    while let (Some((most, from)), Some((least, to))) = (owners.last().copied(), by_load.first().copied()) {
        if most < least + 2 {
            break;
        }
        let Some(partition) = topic.owned.get_mut(&from).and_then(Vec::pop) else {
            owners.remove(&(most, from));
            continue;
        };
        owners.remove(&(most, from));
        owners.remove(&(least, to));
        by_load.remove(&(most, from));
        by_load.remove(&(least, to));
        topic.owned.entry(to).or_default().push(partition);
        add(loads, to, 1);
        if let Some(load) = loads.get_mut(from) {
            *load = load.saturating_sub(1);
        }
        by_load.insert((most - 1, from));
        by_load.insert((least + 1, to));
        owners.insert((least + 1, to));
        if topic.owned.get(&from).is_some_and(|partitions| !partitions.is_empty()) {
            owners.insert((most - 1, from));
        } else {
            topic.owned.remove(&from);
        }
        moved = true;
    }
    moved
}

fn load(loads: &[usize], at: usize) -> usize {
    loads.get(at).copied().unwrap_or(0)
}

fn add(loads: &mut [usize], at: usize, more: usize) {
    if let Some(load) = loads.get_mut(at) {
        *load += more;
    }
}
