//! The supported APIs, their versions and handlers. An API that is not in the table is unknown to clients.

use super::room::Room;
use super::work::{Step, Work};
use super::{
    acls, alter_configs, api_versions, client_quotas, consumer_groups, create_partitions, create_topics, delete_topics,
    describe_cluster, describe_configs, describe_quorum, describe_topic_partitions, fetch, find_coordinator, groups,
    groups_admin, init_producer_id, list_offsets, metadata, offset_for_leader_epoch, offsets, partitions, produce,
    room, sasl, scram_users, steps, update_features,
};
use crate::settings::KafkaSettings;
use polylogue_kafka_codec::{ApiKey, DecodeError, Reader};
use std::fmt;
use std::ops::RangeInclusive;

/// Effects that a request has or depends on, as far as other requests on the connection could observe them. Kafka processes one
/// request of a connection at a time; here a request waits only for earlier ones whose effects it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Effects(u8);

impl Effects {
    /// None.
    pub(super) const NONE: Effects = Effects(0);
    /// Messages and offsets of partitions.
    pub(super) const DATA: Effects = Effects(1);
    /// The set of topics.
    pub(super) const TOPICS: Effects = Effects(1 << 1);
    /// Committed offsets.
    pub(super) const OFFSETS: Effects = Effects(1 << 2);
    /// The fetch sessions of the connection.
    pub(super) const FETCH: Effects = Effects(1 << 3);
    /// The response to a join: a leader's contains all members, so that only one is built at a time.
    pub(super) const JOIN: Effects = Effects(1 << 4);
    /// The response to an offset fetch, which may be as large.
    pub(super) const COMMITTED: Effects = Effects(1 << 5);

    /// Users, credentials, ACLs, and quotas.
    pub(super) const USERS: Effects = Effects(1 << 6);

    const fn with(self, other: Effects) -> Effects {
        Effects(self.0 | other.0)
    }

    /// Whether the two overlap.
    pub(super) const fn meets(self, other: Effects) -> bool {
        self.0 & other.0 != 0
    }
}

/// Decodes a request's body and starts it.
type Start = fn(&mut Work<'_>, &mut Reader) -> Result<Step, DecodeError>;

/// One API.
pub(super) struct Api {
    key: ApiKey,
    min: i16,
    max: i16,
    /// The lowest advertised version.
    advertised_min: i16,
    size: Size,
    /// Effects of earlier requests that it waits for.
    pub(super) needs: Effects,
    pub(super) does: Effects,
    /// The estimate of its response, if that may be large for a small request.
    pub(super) room: Option<room::Estimate>,
    /// Whether it may return [`Step::Pause`].
    pub(super) is_cut: bool,
    /// Whether it always needs a worker thread: a password is hashed thousands of times before the client is known.
    is_long: bool,
    pub(super) start: Start,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}-{}", self.key, self.min, self.max)
    }
}

const fn api(key: ApiKey, versions: (i16, i16), needs: Effects, does: Effects, start: Start) -> Api {
    let (min, max) = versions;
    Api {
        key,
        min,
        max,
        advertised_min: min,
        size: LIST,
        needs,
        does,
        room: None,
        is_cut: false,
        is_long: false,
        start,
    }
}

/// Size limits of an API's requests. A list element may be encoded in a byte or two and take a hundred in memory until it is
/// answered, so that only payload may be long. (The codec bounds what it decodes, too.)
struct Size {
    /// The maximum size of a request, unless `request_bytes_max` is less. Bytes.
    bytes_max: usize,
    /// Memory of a request until it is answered, in multiples of its size.
    memory_factor: usize,
    /// Bytes of a request processed per step (0.1 µs); `None` if they are counted while decoding.
    bytes_per_step: Option<u64>,
}

/// A few fields.
const WORDS: Size = Size { bytes_max: 64 << 10, memory_factor: 4, bytes_per_step: Some(16) };
/// A list of tens of thousands of partitions.
const LIST: Size = Size { bytes_max: 2 << 20, memory_factor: 64, bytes_per_step: Some(24) };
/// A list of topics, each of which may be created, and is answered with its partitions.
const NAMES: Size = Size { bytes_max: 1 << 20, memory_factor: 128, bytes_per_step: Some(8) };
/// A list of topics to create, answered with all their configs: ten bytes become 5 KiB.
const NEW_TOPICS: Size = Size { bytes_max: 512 << 10, memory_factor: 512, bytes_per_step: Some(2) };
/// A list of keys, with elements of a single byte.
const KEYS: Size = Size { bytes_max: 256 << 10, memory_factor: 256, bytes_per_step: Some(8) };
/// The metadata or the assignments of a group's members.
const GROUP: Size = Size { bytes_max: 8 << 20, memory_factor: 24, bytes_per_step: Some(64) };
/// Messages. The number of partitions is checked against the request's size.
const PAYLOAD: Size = Size { bytes_max: usize::MAX, memory_factor: 1, bytes_per_step: None };

const NONE: Effects = Effects::NONE;
const DATA: Effects = Effects::DATA;
const TOPICS: Effects = Effects::TOPICS;
const OFFSETS: Effects = Effects::OFFSETS;
const FETCH: Effects = Effects::FETCH;
const JOIN: Effects = Effects::JOIN;
const COMMITTED: Effects = Effects::COMMITTED;
const USERS: Effects = Effects::USERS;

/// All APIs, by key. The version ranges are exactly those of Kafka 4.3.1: every lower and upper end is the only one that some
/// client supports.
static APIS: &[Api] = &[
    // Versions 0 to 2 are advertised and refused: librdkafka before 2.11 mistakes a higher minimum for a broker without
    // compression (KAFKA-18659; `PRODUCE_API_VERSIONS_RESPONSE_MIN_VERSION`).
    Api {
        advertised_min: 0,
        size: PAYLOAD,
        is_cut: true,
        ..api(ApiKey::Produce, (3, 13), TOPICS, DATA, produce::start)
    },
    api(ApiKey::Fetch, (4, 18), TOPICS.with(DATA).with(FETCH), FETCH, fetch::start),
    api(ApiKey::ListOffsets, (1, 11), TOPICS.with(DATA), NONE, list_offsets::start),
    // It may create topics.
    Api {
        size: NAMES,
        room: Some(room::of_metadata),
        ..api(ApiKey::Metadata, (0, 13), TOPICS, TOPICS, metadata::start)
    },
    // The coordinator keeps the order of its commands; only an offset fetch must wait for commits.
    api(ApiKey::OffsetCommit, (2, 10), TOPICS, OFFSETS, offsets::start_commit),
    Api {
        room: Some(room::of_offsets),
        ..api(ApiKey::OffsetFetch, (1, 10), TOPICS.with(OFFSETS).with(COMMITTED), COMMITTED, offsets::start_fetch)
    },
    // It may create a topic.
    Api { size: KEYS, ..api(ApiKey::FindCoordinator, (0, 6), NONE, TOPICS, find_coordinator::start) },
    Api { size: GROUP, ..api(ApiKey::JoinGroup, (0, 9), JOIN, JOIN, groups::start_join) },
    Api { size: WORDS, ..api(ApiKey::Heartbeat, (0, 4), NONE, NONE, groups::start_heartbeat) },
    api(ApiKey::LeaveGroup, (0, 5), NONE, NONE, groups::start_leave),
    Api { size: GROUP, ..api(ApiKey::SyncGroup, (0, 5), NONE, NONE, groups::start_sync) },
    // These must see earlier commits.
    Api {
        size: KEYS,
        room: Some(room::unknown),
        ..api(ApiKey::DescribeGroups, (0, 6), OFFSETS, NONE, groups_admin::start_describe)
    },
    Api {
        size: KEYS,
        room: Some(room::unknown),
        ..api(ApiKey::ListGroups, (0, 5), OFFSETS, NONE, groups_admin::start_list)
    },
    Api { size: WORDS, ..api(ApiKey::SaslHandshake, (0, 1), NONE, NONE, sasl::start_handshake) },
    Api { size: WORDS, ..api(ApiKey::ApiVersions, (0, 4), NONE, NONE, api_versions::start) },
    Api { size: NEW_TOPICS, ..api(ApiKey::CreateTopics, (2, 7), TOPICS, TOPICS, create_topics::start) },
    api(ApiKey::DeleteTopics, (1, 6), TOPICS.with(DATA), TOPICS, delete_topics::start),
    api(ApiKey::DeleteRecords, (0, 2), TOPICS.with(DATA), DATA, partitions::start_delete_records),
    // Version 6 is unstable in Kafka 4.3 and not advertised there either.
    Api { size: WORDS, ..api(ApiKey::InitProducerId, (0, 5), NONE, NONE, init_producer_id::start) },
    api(ApiKey::OffsetForLeaderEpoch, (2, 4), TOPICS.with(DATA), NONE, offset_for_leader_epoch::start),
    Api {
        size: KEYS,
        room: Some(room::unknown),
        ..api(ApiKey::DescribeAcls, (1, 3), USERS, NONE, acls::start_describe)
    },
    Api { size: KEYS, ..api(ApiKey::CreateAcls, (1, 3), USERS, USERS, acls::start_create) },
    Api { size: KEYS, room: Some(room::unknown), ..api(ApiKey::DeleteAcls, (1, 3), USERS, USERS, acls::start_delete) },
    // Settings affect topics and all requests on them.
    Api { room: Some(room::of_configs), ..api(ApiKey::DescribeConfigs, (1, 4), TOPICS, NONE, describe_configs::start) },
    api(ApiKey::AlterConfigs, (0, 2), TOPICS, TOPICS, alter_configs::start_legacy),
    Api {
        room: Some(room::unknown),
        ..api(ApiKey::DescribeLogDirs, (1, 5), TOPICS.with(DATA), NONE, partitions::start_describe_log_dirs)
    },
    // Also for tokens without a header.
    Api { size: WORDS, is_long: true, ..api(ApiKey::SaslAuthenticate, (0, 2), NONE, NONE, sasl::start_authenticate) },
    api(ApiKey::CreatePartitions, (0, 3), TOPICS, TOPICS, create_partitions::start),
    Api { size: KEYS, ..api(ApiKey::DeleteGroups, (0, 2), OFFSETS, OFFSETS, groups_admin::start_delete) },
    api(ApiKey::IncrementalAlterConfigs, (0, 1), TOPICS, TOPICS, alter_configs::start_incremental),
    api(ApiKey::OffsetDelete, (0, 0), TOPICS.with(OFFSETS), OFFSETS, groups_admin::start_offset_delete),
    Api {
        size: KEYS,
        room: Some(room::unknown),
        ..api(ApiKey::DescribeClientQuotas, (0, 1), USERS, NONE, client_quotas::start_describe)
    },
    Api { size: KEYS, ..api(ApiKey::AlterClientQuotas, (0, 1), USERS, USERS, client_quotas::start_alter) },
    Api {
        size: KEYS,
        room: Some(room::unknown),
        ..api(ApiKey::DescribeUserScramCredentials, (0, 0), USERS, NONE, scram_users::start_describe)
    },
    Api { size: KEYS, ..api(ApiKey::AlterUserScramCredentials, (0, 0), USERS, USERS, scram_users::start_alter) },
    api(ApiKey::DescribeQuorum, (0, 2), NONE, NONE, describe_quorum::start),
    Api { size: KEYS, ..api(ApiKey::UpdateFeatures, (0, 2), NONE, NONE, update_features::start) },
    Api { size: WORDS, ..api(ApiKey::DescribeCluster, (0, 2), NONE, NONE, describe_cluster::start) },
    Api {
        room: Some(room::unknown),
        ..api(ApiKey::DescribeProducers, (0, 0), TOPICS.with(DATA), NONE, partitions::start_describe_producers)
    },
    // Of the coordinator's thread it takes a look-up, or an assignment.
    api(ApiKey::ConsumerGroupHeartbeat, (0, 1), TOPICS, NONE, consumer_groups::start_heartbeat),
    Api {
        size: KEYS,
        room: Some(room::unknown),
        ..api(ApiKey::ConsumerGroupDescribe, (0, 1), NONE, NONE, consumer_groups::start_describe)
    },
    Api {
        size: WORDS,
        room: Some(room::unknown),
        ..api(ApiKey::ListConfigResources, (0, 1), TOPICS, NONE, describe_configs::start_list)
    },
    Api {
        room: Some(room::unknown),
        ..api(ApiKey::DescribeTopicPartitions, (0, 0), TOPICS, NONE, describe_topic_partitions::start)
    },
];

impl Api {
    /// Returns the maximum size of a frame with this API key, and its memory in multiples of its size. One of an unknown key is not
    /// decoded. Bytes.
    pub(super) fn frame_bounds(key: i16, settings: &KafkaSettings) -> (usize, usize) {
        let size = Api::of_code(key).map_or(&WORDS, |api| &api.size);
        (size.bytes_max.min(settings.request_bytes_max), size.memory_factor)
    }

    /// Returns the cost of a request, by the size of its body and of its response. A response of unknown size counts as long.
    pub(super) fn steps(&self, body_bytes: usize, room: Room) -> u64 {
        match (self.size.bytes_per_step, room) {
            _ if self.is_long => u64::MAX,
            (_, Room::Unknown) => u64::MAX,
            (Some(per_step), Room::Bytes(answer)) => steps::of_request(body_bytes, per_step, answer),
            (None, Room::Bytes(answer)) => steps::of_request(0, 1, answer),
        }
    }

    /// Returns the API with this key, for any version.
    pub(super) fn of_code(key: i16) -> Option<&'static Api> {
        APIS.iter().find(|api| api.key.code() == key)
    }

    /// Returns the API for tokens without a header.
    pub(super) fn of_token() -> Option<&'static Api> {
        APIS.iter().find(|api| api.key == ApiKey::SaslAuthenticate)
    }

    /// Returns the API with this key and version. ApiVersions accepts every version: it has a response for unsupported
    /// ones.
    pub(super) fn find(key: ApiKey, version: i16) -> Option<&'static Api> {
        APIS.iter()
            .find(|api| api.key == key)
            .filter(|api| key == ApiKey::ApiVersions || (api.min..=api.max).contains(&version))
    }
}

/// A supported API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SupportedApi {
    /// The API.
    pub key: ApiKey,
    /// The supported versions.
    pub served: RangeInclusive<i16>,
    /// The advertised versions.
    pub advertised: RangeInclusive<i16>,
}

/// Returns all supported APIs, by key.
pub fn supported_apis() -> impl Iterator<Item = SupportedApi> {
    APIS.iter().map(|api| SupportedApi {
        key: api.key,
        served: api.min..=api.max,
        advertised: api.advertised_min..=api.max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_within_what_the_codec_speaks() {
        assert!(APIS.is_sorted_by(|a, b| a.key.code() < b.key.code()));
        for api in APIS {
            let codec = api.key.valid_versions();
            assert!(codec.contains(&api.min) && codec.contains(&api.max), "{api:?} against {codec:?}");
        }
    }

    #[test]
    fn effects() {
        assert!(DATA.with(FETCH).meets(FETCH));
        assert!(!DATA.meets(TOPICS.with(OFFSETS)));
        assert!(!NONE.meets(NONE));
    }
}
