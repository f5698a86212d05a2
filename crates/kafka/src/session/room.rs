//! Estimates of the memory for responses that may be much larger than their requests: a few bytes request all topics.
//!
//! The numbers are sizes of encoded responses, rounded up. Temporary memory is freed before another response is built on the same
//! thread.

use polylogue_api::{Catalog, TopicInfo};
use polylogue_kafka_codec::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use polylogue_kafka_codec::metadata::{MetadataRequest, MetadataRequestTopic};
use polylogue_kafka_codec::offset_fetch::OffsetFetchRequest;
use polylogue_kafka_codec::{Message, Reader};

/// A response up to this size needs no memory permit of its own: that of its request and the limit on all responses suffice. Bytes.
pub(super) const FREE_BYTES: usize = 64 << 10;

/// A topic in Metadata, without its name and partitions. Bytes.
const TOPIC_BYTES: usize = 40;
/// A partition in Metadata: index, leader, epoch, and lists of replicas of one node. Bytes.
const PARTITION_BYTES: usize = 48;
/// The full description of a topic's configs, with documentation and synonyms. Bytes.
const TOPIC_CONFIGS_BYTES: usize = 16 << 10;
/// The same for a broker or another resource. Bytes.
const BROKER_CONFIGS_BYTES: usize = 128 << 10;
/// A partition in OffsetFetch, with the longest metadata that may be committed. Bytes.
const OFFSET_BYTES: usize = 32 + (4 << 10);
/// Kafka's `ConfigResource.Type.TOPIC`.
const TOPIC: i8 = 2;

/// The memory that a response may need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// At most this.
    Bytes(usize),
    /// Its size is unknown until it is built.
    Unknown,
}

impl Room {
    /// No permit is required.
    pub(super) const FREE: Room = Room::Bytes(0);

    /// Whether a permit is required.
    pub(super) const fn is_asked_for(self) -> bool {
        !matches!(self, Room::Bytes(bytes) if bytes <= FREE_BYTES)
    }
}

/// Estimates from a request's body. A malformed body yields any value: the connection is closed. `None` if more than `topics_max`
/// topics would have to be visited.
pub(super) type Estimate = fn(&mut Reader, i16, &dyn Catalog, usize) -> Option<Room>;

/// Topics that may be visited when a request arrives; more of them need steps of a turn.
pub(super) const TOPICS_FREE: usize = 512;
/// The cost of visiting a topic, with a lookup of its display name. Steps.
pub(super) const TOPIC_STEPS: u64 = 4;

/// The size depends on the broker's state only.
pub(super) fn unknown(_: &mut Reader, _: i16, _: &dyn Catalog, _: usize) -> Option<Room> {
    Some(Room::Unknown)
}

fn topic_bytes(topic: &TopicInfo) -> usize {
    TOPIC_BYTES + topic.name.len() + topic.partitions.len() * PARTITION_BYTES
}

pub(super) fn of_metadata(body: &mut Reader, version: i16, catalog: &dyn Catalog, topics_max: usize) -> Option<Room> {
    let Ok(request) = MetadataRequest::decode(body, version) else { return Some(Room::FREE) };
    let named = request.topics.filter(|topics| version > 0 || !topics.is_empty());
    let Some(named) = named else {
        let bytes = || catalog.topics().iter().map(|topic| topic_bytes(topic)).sum();
        return (catalog.topics_len() <= topics_max).then(|| Room::Bytes(bytes()));
    };
    let find = |topic: &MetadataRequestTopic| match &topic.name {
        Some(name) if topic.topic_id.is_zero() => catalog.topic(name),
        _ => catalog.topic_by_id(topic.topic_id),
    };
    // Rows of unknown topics are as long as their names, which the request's permit covers.
    Some(Room::Bytes(named.iter().filter_map(find).map(|topic| topic_bytes(&topic)).sum()))
}

pub(super) fn of_configs(body: &mut Reader, version: i16, _: &dyn Catalog, _: usize) -> Option<Room> {
    let Ok(request) = DescribeConfigsRequest::decode(body, version) else { return Some(Room::FREE) };
    let bytes = |resource: &DescribeConfigsResource| match resource.resource_type {
        TOPIC => TOPIC_CONFIGS_BYTES,
        _ => BROKER_CONFIGS_BYTES,
    };
    Some(Room::Bytes(request.resources.iter().map(bytes).sum()))
}

pub(super) fn of_offsets(body: &mut Reader, version: i16, _: &dyn Catalog, _: usize) -> Option<Room> {
    let Ok(request) = OffsetFetchRequest::decode(body, version) else { return Some(Room::FREE) };
    let mut partitions = request.topics.iter().flatten().map(|t| t.partition_indexes.len()).sum::<usize>();
    if request.groups.is_empty() && request.topics.is_none() {
        return Some(Room::Unknown);
    }
    for group in &request.groups {
        let Some(topics) = &group.topics else { return Some(Room::Unknown) };
        partitions += topics.iter().map(|t| t.partition_indexes.len()).sum::<usize>();
    }
    Some(Room::Bytes(partitions.saturating_mul(OFFSET_BYTES)))
}
