//! What operators set while the system runs: documents of names and values, kept in the log by scope, and the
//! resolver that makes of them what holds.

use crate::config::TopicConfig;
use crate::machine::{Command, MachineId};
use polylogue_types::NodeId;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

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
    /// The new document; an empty one removes it.
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
    /// The current document differs from the expected one. The error has it, with changes of others that are not committed yet,
    /// so that the caller can retry immediately.
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

/// The version of the function that makes of layers what holds: raised when a [`ConfigResolver`] would make something else of the same
/// layers. It is recorded with the inherited layer, so that a log means under a newer version of the software what it meant when written.
pub const INHERITANCE_RULES: u32 = 1;

/// The layer that all topics inherit from: one of the two of which what holds for a topic is a function; the other is what is set for the
/// topic. Every value is in it, so that other defaults (of a newer version, or of another node's configuration file) change nothing that is
/// recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inherited {
    /// By which rules ([`INHERITANCE_RULES`]).
    pub rules: u32,
    /// What is inherited, with the names under which it was set.
    pub config: TopicConfig,
    /// The same without names: what holds for a topic of which nothing is set. Shared by these.
    pub unnamed: Arc<TopicConfig>,
}

impl Inherited {
    /// By this version's rules.
    #[must_use]
    pub fn new(config: TopicConfig) -> Inherited {
        let unnamed = Arc::new(TopicConfig { raw: Settings::new(), ..config.clone() });
        Inherited { rules: INHERITANCE_RULES, config, unnamed }
    }
}

impl Default for Inherited {
    fn default() -> Inherited {
        Inherited::new(TopicConfig::default())
    }
}

/// Makes of layers what holds. A protocol brings it along, because only it knows what its names mean. The shard's writer records what
/// [`ConfigResolver::inherited`] returns, and what holds for a topic follows from that and from what is set for the topic, on each node alike.
pub trait ConfigResolver: Send + Sync + Debug {
    /// These documents hold from now on. Called at a start and after each change, before anything else is asked.
    fn settings_changed(&self, cluster: &Settings, node: &Settings);

    /// What topics inherit, by the documents that hold and by what this node was started with.
    fn inherited(&self) -> Inherited;

    /// What holds for a topic of which `layer` is set. A pure function of both and of [`Inherited::rules`]. It is not asked about topics that
    /// are queues, and the durability that it returns is not used ([`ConfigResolver::holding`]).
    fn topic(&self, inherited: &Inherited, layer: &Arc<TopicConfig>) -> Arc<TopicConfig>;

    /// What holds for a topic, its durability and its queue included: these are as set, and never inherited.
    fn holding(&self, inherited: &Inherited, layer: &Arc<TopicConfig>) -> Arc<TopicConfig> {
        if layer.queue.is_some() {
            return layer.clone();
        }
        let holds = self.topic(inherited, layer);
        if holds.durability == layer.durability {
            return holds;
        }
        Arc::new(TopicConfig { durability: layer.durability, ..TopicConfig::clone(&holds) })
    }

    /// What holds for the broker itself.
    fn tuning(&self) -> Tuning;

    /// Commands that tell machines what holds for them. Their replies have no waiter.
    fn machine_commands(&self) -> Vec<(MachineId, Command)>;
}

/// What is recorded is what holds: for brokers without a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IdentityResolver;

impl ConfigResolver for IdentityResolver {
    fn settings_changed(&self, _: &Settings, _: &Settings) {}

    fn inherited(&self) -> Inherited {
        Inherited::default()
    }

    fn topic(&self, _: &Inherited, layer: &Arc<TopicConfig>) -> Arc<TopicConfig> {
        layer.clone()
    }

    fn tuning(&self) -> Tuning {
        Tuning::default()
    }

    fn machine_commands(&self) -> Vec<(MachineId, Command)> {
        Vec::new()
    }
}
