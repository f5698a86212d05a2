//! Sets of partitions, by topic: those that a member is to read, and those that it holds, each since an epoch.

use crate::wire::{Decoder, Encoder, Malformed};
use polylogue_types::TopicId;
use std::collections::BTreeMap;

/// What a topic costs in memory beside its partitions, as an estimate. Bytes.
const TOPIC_BYTES: usize = 64;
/// The fewest bytes of a topic in a record.
const TOPIC_BYTES_MIN: usize = 16 + 1;

/// Partitions by topic. Each list is rising and not empty.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Partitions(BTreeMap<TopicId, Vec<i32>>);

impl Partitions {
    pub(super) fn iter(&self) -> impl Iterator<Item = (TopicId, i32)> {
        self.0.iter().flat_map(|(topic, partitions)| partitions.iter().map(|partition| (*topic, *partition)))
    }

    /// The partitions of a topic.
    pub(super) fn of(&self, topic: TopicId) -> &[i32] {
        self.0.get(&topic).map(|partitions| &**partitions).unwrap_or_default()
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = (&TopicId, &Vec<i32>)> {
        self.0.iter()
    }

    pub(super) fn contains(&self, topic: TopicId, partition: i32) -> bool {
        self.of(topic).binary_search(&partition).is_ok()
    }

    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Adds a range of a topic that has none yet. It must rise.
    pub(super) fn add_range(&mut self, topic: TopicId, range: Vec<i32>) {
        if !range.is_empty() {
            self.0.insert(topic, range);
        }
    }

    pub(super) fn cost(&self) -> usize {
        self.0.values().map(|partitions| TOPIC_BYTES + 4 * partitions.len()).sum()
    }

    pub(super) fn encode(&self, into: &mut Encoder) {
        into.len(self.0.len());
        for (topic, partitions) in &self.0 {
            into.topic(*topic);
            into.len(partitions.len());
            partitions.iter().for_each(|partition| into.i32(*partition));
        }
    }

    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Partitions, Malformed> {
        let mut by_topic = BTreeMap::new();
        rising_topics(from, |from, topic| {
            let partitions = rising(from, 4, |from| from.i32("partition"), |partition| *partition)?;
            by_topic.insert(topic, partitions);
            Ok(())
        })?;
        Ok(Partitions(by_topic))
    }
}

impl FromIterator<(TopicId, i32)> for Partitions {
    fn from_iter<I: IntoIterator<Item = (TopicId, i32)>>(partitions: I) -> Partitions {
        let mut all = Partitions::default();
        all.extend(partitions);
        all
    }
}

impl Extend<(TopicId, i32)> for Partitions {
    fn extend<I: IntoIterator<Item = (TopicId, i32)>>(&mut self, partitions: I) {
        for (topic, partition) in partitions {
            self.0.entry(topic).or_default().push(partition);
        }
        for partitions in self.0.values_mut() {
            partitions.sort_unstable();
            partitions.dedup();
        }
    }
}

/// Partitions that a member holds, each with the epoch since which it does (KIP-1251). Each list is rising and not empty.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Held(BTreeMap<TopicId, Vec<(i32, i32)>>);

impl Held {
    /// Each partition with its epoch.
    pub(super) fn iter(&self) -> impl Iterator<Item = (TopicId, i32, i32)> {
        self.0.iter().flat_map(|(topic, held)| held.iter().map(|(partition, epoch)| (*topic, *partition, *epoch)))
    }

    /// Since which epoch the partition is held.
    pub(super) fn epoch(&self, topic: TopicId, partition: i32) -> Option<i32> {
        let held = self.0.get(&topic)?;
        let at = held.binary_search_by_key(&partition, |(partition, _)| *partition).ok()?;
        held.get(at).map(|(_, epoch)| *epoch)
    }

    pub(super) fn contains(&self, topic: TopicId, partition: i32) -> bool {
        self.epoch(topic, partition).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// The same without epochs.
    pub(super) fn partitions(&self) -> Partitions {
        let plain = |held: &Vec<(i32, i32)>| held.iter().map(|(partition, _)| *partition).collect();
        Partitions(self.0.iter().map(|(topic, held)| (*topic, plain(held))).collect())
    }

    pub(super) fn cost(&self) -> usize {
        self.0.values().map(|held| TOPIC_BYTES + 8 * held.len()).sum()
    }

    pub(super) fn encode(&self, into: &mut Encoder) {
        into.len(self.0.len());
        for (topic, held) in &self.0 {
            into.topic(*topic);
            into.len(held.len());
            for (partition, epoch) in held {
                into.i32(*partition);
                into.i32(*epoch);
            }
        }
    }

    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Held, Malformed> {
        let mut by_topic = BTreeMap::new();
        rising_topics(from, |from, topic| {
            let held = rising(from, 8, |from| Ok((from.i32("partition")?, from.i32("epoch")?)), |(at, _)| *at)?;
            by_topic.insert(topic, held);
            Ok(())
        })?;
        Ok(Held(by_topic))
    }
}

impl FromIterator<(TopicId, i32, i32)> for Held {
    fn from_iter<I: IntoIterator<Item = (TopicId, i32, i32)>>(held: I) -> Held {
        let mut by_topic: BTreeMap<TopicId, Vec<(i32, i32)>> = BTreeMap::new();
        for (topic, partition, epoch) in held {
            by_topic.entry(topic).or_default().push((partition, epoch));
        }
        for held in by_topic.values_mut() {
            held.sort_unstable();
            held.dedup_by_key(|(partition, _)| *partition);
        }
        Held(by_topic)
    }
}

/// Topics in rising order, each with a body.
fn rising_topics(
    from: &mut Decoder<'_>,
    mut body: impl FnMut(&mut Decoder<'_>, TopicId) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut last = None;
    for _ in 0..from.count("topics", TOPIC_BYTES_MIN)? {
        let topic = from.topic("topic id")?;
        if last.is_some_and(|last| last >= topic) {
            return Err(Malformed::new("topic out of order", format_args!("{topic:?}")));
        }
        last = Some(topic);
        body(from, topic)?;
    }
    Ok(())
}

/// A list that is not empty and rises by its key.
fn rising<T>(
    from: &mut Decoder<'_>,
    element_min: usize,
    element: impl Fn(&mut Decoder<'_>) -> Result<T, Malformed>,
    key: impl Fn(&T) -> i32,
) -> Result<Vec<T>, Malformed> {
    let count = from.count("partitions", element_min)?;
    let mut list: Vec<T> = Vec::with_capacity(count);
    for _ in 0..count {
        let element = element(from)?;
        if list.last().is_some_and(|last| key(last) >= key(&element)) {
            return Err(Malformed::new("partition out of order", key(&element)));
        }
        list.push(element);
    }
    if list.is_empty() { Err(Malformed::new("topic without partitions", 0)) } else { Ok(list) }
}
