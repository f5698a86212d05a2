//! What operators set while the system runs: documents of names and values, kept in the log by scope, and the
//! resolver that makes of them what holds.

use crate::config::TopicConfig;
use crate::machine::{Command, MachineId};
use polylogue_types::NodeId;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Names and values of one scope, in the words of the protocol that set them. Canonical: a name that is not set is not
/// in it.
pub type Settings = BTreeMap<String, String>;

/// What a document of settings is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SettingsScope {
    /// All nodes that have nothing of their own.
    Cluster,
    /// One node. Goes before the cluster's.
    Node(NodeId),
    /// One consumer group.
    Group(String),
    /// One subscription to clients' metrics.
    ClientMetrics(String),
}

/// A new document for a scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingsChange {
    /// Which scope.
    pub scope: SettingsScope,
    /// What the caller believes to hold now; when it does not, nothing changes ([`AlterError::Conflict`]).
    pub expected: Settings,
    /// What is to hold; an empty document is none.
    pub settings: Settings,
}

/// See [`crate::Request::AlterSettings`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterSettings {
    /// The changes; each succeeds or fails by itself.
    pub changes: Vec<SettingsChange>,
    /// Only say what would happen.
    pub validate_only: bool,
}

/// Why a topic or a scope was not changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AlterError {
    /// No such topic (any more).
    UnknownTopic,
    /// Something else holds than the caller believed. It is told what, changes of others that are still on their way
    /// included, so that it can think again at once.
    Conflict(Current),
    /// A topic whose messages are in memory cannot get them onto the disk, nor the other way round.
    DurabilityFixed,
    /// More partitions than the broker will hold.
    TooManyPartitions {
        /// The bound on all partitions together (`partitions_max`).
        partitions_max: u64,
    },
    /// A document is larger than it may be.
    TooLarge {
        /// Bytes of its names and values.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
    /// There are as many documents as there may be.
    TooManyDocuments {
        /// The bound.
        documents_max: usize,
    },
    /// See [`crate::Unavailable`].
    Unavailable(crate::Unavailable),
}

/// What holds, as the newest accepted change left it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Current {
    /// The document, or what is set for the topic.
    pub settings: Settings,
    /// The topic's partitions; 0 for a document.
    pub partitions: u32,
}

/// What the broker itself goes by while it runs; `None` for what it was started with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tuning {
    /// How long a silent producer is remembered. Milliseconds.
    pub producer_expiration_ms: Option<u64>,
    /// Recent messages in memory, for each journal. Bytes.
    pub tail_cache_bytes: Option<usize>,
    /// The pace of background writes that make segments. Bytes per second.
    pub merge_bytes_per_sec: Option<u64>,
}

/// Makes of what is recorded, and of what operators set, what holds. A protocol brings it along, because only it knows
/// what its names mean; the broker asks it whenever it shows a topic.
///
/// What it says is derived and never recorded: it may differ from node to node, because their configuration files do.
pub trait ConfigResolver: Send + Sync + Debug {
    /// These documents hold from now on. Called at a start and after each change, before anything else is asked.
    fn settings_changed(&self, cluster: &Settings, node: &Settings);

    /// What holds for a topic of which this is recorded. Its durability is not asked for: that stays as recorded.
    fn topic(&self, recorded: &TopicConfig) -> TopicConfig;

    /// What holds for the broker itself.
    fn tuning(&self) -> Tuning;

    /// Commands that tell machines what holds for them. Nobody waits for their replies.
    fn machine_commands(&self) -> Vec<(MachineId, Command)>;
}

/// What is recorded is what holds: for brokers without a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AsRecorded;

impl ConfigResolver for AsRecorded {
    fn settings_changed(&self, _: &Settings, _: &Settings) {}

    fn topic(&self, recorded: &TopicConfig) -> TopicConfig {
        recorded.clone()
    }

    fn tuning(&self) -> Tuning {
        Tuning::default()
    }

    fn machine_commands(&self) -> Vec<(MachineId, Command)> {
        Vec::new()
    }
}
