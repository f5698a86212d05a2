//! `range`: the partitions of each topic in ranges, over its subscribers in one order for all topics.
//!
//! Static members come first, by instance id, so that a restart under another member id changes nothing; then the others, by member id.
//! Where several topics have the same subscribers and equally many partitions, partition `n` of all of them is with the same member.

use super::{Participant, TopicSizes, size_of};
use crate::consumer::model::Partitions;
use polylogue_kafka_codec::StrBytes;
use polylogue_types::TopicId;
use std::collections::BTreeMap;

/// The place of a member in the order: static members first.
fn place<'a>(member: &Participant<'a>) -> (bool, &'a StrBytes) {
    (member.instance_id.is_none(), member.instance_id.unwrap_or(member.id))
}

/// What is left of a topic while its subscribers take their ranges.
struct Rest {
    next: usize,
    /// Partitions for each subscriber.
    share: usize,
    /// Subscribers that still get one more.
    extra: usize,
}

pub(super) fn assign(members: &[Participant<'_>], sizes: &TopicSizes) -> Vec<Partitions> {
    let mut subscribers: BTreeMap<TopicId, usize> = BTreeMap::new();
    for topic in members.iter().flat_map(|member| member.topics.iter()) {
        *subscribers.entry(*topic).or_default() += 1;
    }
    let rest = |(topic, subscribers): (TopicId, usize)| {
        let size = size_of(sizes, topic);
        (topic, Rest { next: 0, share: size / subscribers, extra: size % subscribers })
    };
    let mut rests: BTreeMap<TopicId, Rest> = subscribers.into_iter().map(rest).collect();
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|at| members.get(*at).map(place));
    let mut assigned = vec![Partitions::default(); members.len()];
    for at in order {
        let (Some(member), Some(assigned)) = (members.get(at), assigned.get_mut(at)) else { continue };
        for topic in member.topics.iter() {
            let Some(rest) = rests.get_mut(topic) else { continue };
            let end = rest.next + rest.share + usize::from(rest.extra > 0);
            rest.extra = rest.extra.saturating_sub(1);
            let range = (rest.next..end).filter_map(|partition| i32::try_from(partition).ok());
            assigned.add_range(*topic, range.collect());
            rest.next = end;
        }
    }
    assigned
}
