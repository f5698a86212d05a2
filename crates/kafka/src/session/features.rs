//! Feature levels of the cluster (KIP-584), for ApiVersions and UpdateFeatures.

/// A supported feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Feature {
    /// Its name.
    pub(super) name: &'static str,
    /// The lowest supported level.
    pub(super) min: i16,
    /// The highest supported level.
    pub(super) max: i16,
    /// The finalized level.
    pub(super) finalized: i16,
}

/// The feature that represents the release as a whole.
pub(super) const METADATA_VERSION: &str = "metadata.version";
/// The name of the feature that stands for the protocols of groups.
const GROUP_VERSION: &str = "group.version";

/// All supported features. `metadata.version` is at the level that Kafka 4.3 finalizes (`MetadataVersion.IBP_4_3_IV0`; its lowest is
/// `IBP_3_3_IV3`): clients ignore it, but tools request it. `group.version` 1 is the consumer protocol of groups (KIP-848). The other features
/// switch clients to protocols that are not implemented: a client that does not see `transaction.version` or `share.version` uses the older ones.
pub(super) const FEATURES: [Feature; 2] = [
    Feature { name: GROUP_VERSION, min: 0, max: 1, finalized: 1 },
    Feature { name: METADATA_VERSION, min: 7, max: 30, finalized: 30 },
];

/// The features of Kafka 4.3 that are not supported: their level is 0.
pub(super) const FEATURES_OFF: [&str; 5] =
    ["kraft.version", "transaction.version", "eligible.leader.replicas.version", "share.version", "streams.version"];

/// The epoch of the finalized features: they never change.
pub(super) const EPOCH: i64 = 0;
