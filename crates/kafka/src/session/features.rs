//! Feature levels of the cluster (KIP-584), as ApiVersions tells them and UpdateFeatures judges them.

/// A feature that this broker knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Feature {
    /// Its name.
    pub(super) name: &'static str,
    /// The lowest level that is known.
    pub(super) min: i16,
    /// The highest level that is known.
    pub(super) max: i16,
    /// The level that holds.
    pub(super) finalized: i16,
}

/// The name of the feature that stands for the release as a whole.
pub(super) const METADATA_VERSION: &str = "metadata.version";

/// All that are known. `metadata.version` is at the level that Kafka 4.3 finalizes (`MetadataVersion.IBP_4_3_IV0`; the lowest it
/// knows is `IBP_3_3_IV3`): it means nothing to clients, but tools ask for it. The other features switch clients to
/// protocols that are not served yet: a client that does not see `transaction.version`, `group.version` or
/// `share.version` stays with the old ones.
pub(super) const FEATURES: [Feature; 1] = [Feature { name: METADATA_VERSION, min: 7, max: 30, finalized: 30 }];

/// The features of Kafka 4.3 that are not known here: their level is 0.
pub(super) const FEATURES_OFF: [&str; 6] = [
    "kraft.version",
    "transaction.version",
    "group.version",
    "eligible.leader.replicas.version",
    "share.version",
    "streams.version",
];

/// How often levels have changed: they never do.
pub(super) const EPOCH: i64 = 0;
