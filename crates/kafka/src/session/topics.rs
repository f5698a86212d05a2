//! Lookup of topics by name and by id, and the rules for their names.

use super::errors::unknown_topic;
use polylogue_api::{Catalog, ClusterInfo, PartitionInfo, TopicInfo};
use polylogue_kafka_codec::{ErrorCode, StrBytes};
use polylogue_types::TopicId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum length of a topic name. Bytes.
pub(super) const NAME_BYTES_MAX: usize = 249;

/// Kafka's topic for committed offsets. Created here too, but always empty.
pub(super) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Kafka's metadata topic: no topic can have this name.
pub(super) const CLUSTER_METADATA: &str = "__cluster_metadata";

/// Topics for the state of Kafka brokers. Here they stay empty; polylogue creates the first, and clients that may create topics may
/// create the others. Clients may not write to them and leave them out of patterns.
const INTERNAL_NAMES: [&str; 3] = [OFFSETS_TOPIC, "__transaction_state", "__share_group_state"];

/// Whether a topic of that name is internal (`Topic.isInternal`).
pub(super) fn is_internal(name: &str) -> bool {
    INTERNAL_NAMES.contains(&name)
}

/// Whether Kafka reserves the name for itself.
pub(super) fn is_reserved(name: &str) -> bool {
    is_internal(name) || name == CLUSTER_METADATA
}

/// The error for a client that tries to write to, change or delete a queue.
pub(super) const QUEUE_REFUSED: &str = "This topic is a queue: Kafka clients may read it. It is written to, changed and deleted by the protocol that it belongs to.";

/// Whether the topic is the topic view of a queue.
pub(super) fn is_queue(topic: &TopicInfo) -> bool {
    topic.config.queue.is_some()
}

/// Returns what is wrong with a name, in Kafka's words (`Topic.validate`).
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

/// Existing topics whose names differ from new ones only in dots and underscores: Kafka's metrics could not distinguish them. All
/// topics are visited once for all names of a request.
#[derive(Debug)]
pub(super) struct Collisions {
    /// Existing topics, by name with underscores only.
    topics: BTreeMap<String, Option<Arc<TopicInfo>>>,
}

impl Collisions {
    /// Finds the topics that collide with these names.
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

    /// Returns the topic that collides with a name, one of those passed to `of` and not an existing one.
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

/// Looks up topics of a request in sequence; partitions of a topic are mostly adjacent, so that the last topic is cached.
#[derive(Debug)]
pub(super) struct Lookup<'a> {
    catalog: &'a dyn Catalog,
    last: Option<Arc<TopicInfo>>,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(catalog: &'a dyn Catalog) -> Lookup<'a> {
        Lookup { catalog, last: None }
    }

    /// Returns the topic with that id, or with that name if the id is zero.
    #[inline]
    pub(super) fn topic(&mut self, name: &str, id: TopicId) -> Option<&Arc<TopicInfo>> {
        let hit = self.last.as_ref().is_some_and(|last| if id.is_zero() { *last.name == *name } else { last.id == id });
        if !hit {
            self.last = if id.is_zero() { self.catalog.topic(name) } else { self.catalog.topic_by_id(id) };
        }
        self.last.as_ref()
    }

    /// Returns a partition after comparing leader epochs (-1 if the client has none).
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

/// Returns the partition of that number.
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

/// Returns this node's id for clients.
pub(super) fn node_id(cluster: &ClusterInfo) -> i32 {
    i32::try_from(cluster.node.0).unwrap_or(i32::MAX)
}

/// Copies text out of a frame, which would otherwise stay in memory as long as the text.
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
        // An epoch below -1 is invalid, and is treated as old.
        assert_eq!(check_epoch(-2, 5), Err(ErrorCode::FencedLeaderEpoch));
    }
}
