//! Topics by name and by id, and the rules for their names.

use super::errors::unknown_topic;
use crate::codec::{ErrorCode, StrBytes};
use polylogue_api::{Catalog, ClusterInfo, PartitionInfo, TopicInfo};
use polylogue_types::TopicId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest name of a topic. Bytes.
pub(super) const NAME_BYTES_MAX: usize = 249;

/// Where Kafka keeps committed offsets. Here it is a topic that the broker makes, and that holds nothing.
pub(super) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Where Kafka keeps its metadata: no topic can have this name.
pub(super) const CLUSTER_METADATA: &str = "__cluster_metadata";

/// Topics in which Kafka's brokers keep their own state. Here they hold nothing; polylogue makes the first, and all may be created by
/// those who may create topics, before Kafka's brokers would. Clients may not write to them and leave them out of patterns.
const INTERNAL_NAMES: [&str; 3] = [OFFSETS_TOPIC, "__transaction_state", "__share_group_state"];

/// Whether a topic of that name is internal (`Topic.isInternal`).
pub(super) fn is_internal(name: &str) -> bool {
    INTERNAL_NAMES.contains(&name)
}

/// Whether Kafka reserves the name for itself.
pub(super) fn is_reserved(name: &str) -> bool {
    is_internal(name) || name == CLUSTER_METADATA
}

/// The error for a client that would write to, change or delete a queue.
pub(super) const QUEUE_REFUSED: &str = "This topic is a queue: Kafka clients may read it. It is written to, changed and deleted by the protocol that it belongs to.";

/// Whether the topic is a queue that is shown as a topic.
pub(super) fn is_queue(topic: &TopicInfo) -> bool {
    topic.config.queue.is_some()
}

/// What is wrong with the name, in Kafka's words (`Topic.validate`).
pub(super) fn invalid_name(name: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let reason = match name {
        "" => "the empty string is not allowed".to_owned(),
        "." => "'.' is not allowed".to_owned(),
        ".." => "'..' is not allowed".to_owned(),
        _ if name.len() > NAME_BYTES_MAX => {
            format!("the length of '{name}' is longer than the max allowed length {NAME_BYTES_MAX}")
        }
        _ if !name.chars().all(legal) => {
            format!("'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")
        }
        _ => return None,
    };
    Some(format!("Topic name is invalid: {reason}"))
}

/// Topics whose names differ from new ones only in dots and underscores: Kafka's metrics could not tell the two apart. All
/// topics are gone through once for all names of a request.
#[derive(Debug)]
pub(super) struct Collisions {
    /// By the name with underscores only: the existing name.
    topics: BTreeMap<String, Option<Arc<TopicInfo>>>,
}

impl Collisions {
    /// Looks for what may collide with these names.
    pub(super) fn of<'n>(names: impl Iterator<Item = &'n str>, catalog: &dyn Catalog) -> Collisions {
        let mut topics: BTreeMap<_, _> =
            names.filter(|name| may_collide(name)).map(|name| (unified(name), None)).collect();
        if !topics.is_empty() {
            for topic in catalog.topics().into_iter().filter(|topic| may_collide(&topic.name)) {
                if let Some(found) = topics.get_mut(&unified(&topic.name)) {
                    found.get_or_insert(topic);
                }
            }
        }
        Collisions { topics }
    }

    /// What collides with a name, one of those that were looked for and none that is there.
    pub(super) fn with(&self, name: &str) -> Option<&Arc<TopicInfo>> {
        if may_collide(name) { self.topics.get(&unified(name))?.as_ref() } else { None }
    }
}

fn may_collide(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && name.contains(['.', '_'])
}

fn unified(name: &str) -> String {
    name.replace('.', "_")
}

/// Topics of a request one after the other; partitions of one topic mostly stand together, and it is looked up once.
#[derive(Debug)]
pub(super) struct Lookup<'a> {
    catalog: &'a dyn Catalog,
    last: Option<Arc<TopicInfo>>,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(catalog: &'a dyn Catalog) -> Lookup<'a> {
        Lookup { catalog, last: None }
    }

    /// The topic of that id, or where there is none (zero) of that name.
    #[inline]
    pub(super) fn topic(&mut self, name: &str, id: TopicId) -> Option<&Arc<TopicInfo>> {
        let hit = self.last.as_ref().is_some_and(|last| if id.is_zero() { *last.name == *name } else { last.id == id });
        if !hit {
            self.last = if id.is_zero() { self.catalog.topic(name) } else { self.catalog.topic_by_id(id) };
        }
        self.last.as_ref()
    }

    /// A partition of it, held against the leader epoch that the client knows (-1 for none).
    pub(super) fn partition(
        &mut self,
        (name, id): (&str, TopicId),
        index: i32,
        epoch: i32,
        by_id: bool,
    ) -> Result<(&Arc<TopicInfo>, PartitionInfo), ErrorCode> {
        let topic = self.topic(name, id).ok_or(unknown_topic(by_id))?;
        let partition = partition_of(topic, index)?;
        check_epoch(epoch, partition.leader_epoch)?;
        Ok((topic, partition))
    }
}

/// The partition of that number.
pub(super) fn partition_of(topic: &TopicInfo, index: i32) -> Result<PartitionInfo, ErrorCode> {
    usize::try_from(index)
        .ok()
        .and_then(|index| topic.partitions.get(index))
        .copied()
        .ok_or(ErrorCode::UnknownTopicOrPartition)
}

/// Compares the client's leader epoch (-1 for none) with the current one (KIP-320).
pub(super) fn check_epoch(known: i32, actual: i32) -> Result<(), ErrorCode> {
    match known {
        -1 => Ok(()),
        older if older < actual => Err(ErrorCode::FencedLeaderEpoch),
        newer if newer > actual => Err(ErrorCode::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

/// This node, as clients number it.
pub(super) fn node_id(cluster: &ClusterInfo) -> i32 {
    i32::try_from(cluster.node.0).unwrap_or(i32::MAX)
}

/// Copies text out of a frame, whose memory would otherwise stay for as long as the text does.
pub(super) fn owned(text: &str) -> StrBytes {
    StrBytes::from(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "a.b_c-D9", "...", &"x".repeat(249)] {
            assert_eq!(invalid_name(good), None, "{good}");
        }
        for (bad, text) in [
            ("", "Topic name is invalid: the empty string is not allowed"),
            (".", "Topic name is invalid: '.' is not allowed"),
            ("..", "Topic name is invalid: '..' is not allowed"),
            (
                "a b",
                "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
            ),
            (
                "é",
                "Topic name is invalid: 'é' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
            ),
        ] {
            assert_eq!(invalid_name(bad).as_deref(), Some(text));
        }
        assert!(invalid_name(&"x".repeat(250)).is_some());
    }

    #[test]
    fn epochs() {
        assert_eq!(check_epoch(-1, 5), Ok(()));
        assert_eq!(check_epoch(5, 5), Ok(()));
        assert_eq!(check_epoch(4, 5), Err(ErrorCode::FencedLeaderEpoch));
        assert_eq!(check_epoch(6, 5), Err(ErrorCode::UnknownLeaderEpoch));
        // no epoch is below -1, so that this one is merely old
        assert_eq!(check_epoch(-2, 5), Err(ErrorCode::FencedLeaderEpoch));
    }
}
