//! Topics as a session sees them: immutable snapshots, shared by reference.

use crate::config::TopicConfig;
use crate::settings::{Settings, SettingsScope};
use polylogue_types::{NodeId, PartitionId, TopicId};
use std::fmt::Debug;
use std::sync::Arc;

/// One partition of a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionInfo {
    /// Its id for ever.
    pub id: PartitionId,
    /// The leader epoch that a client must know (KIP-320): never falls.
    pub leader_epoch: i32,
}

/// One incarnation of a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicInfo {
    /// Its name; unique among living topics.
    pub name: Arc<str>,
    /// Its id; unique for ever.
    pub id: TopicId,
    /// Whether clients should hide it from users.
    pub internal: bool,
    /// Partitions by their number.
    pub partitions: Vec<PartitionInfo>,
    /// What holds for it.
    pub config: Arc<TopicConfig>,
}

/// The cluster as clients see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterInfo {
    /// Stable for the life of the data directory.
    pub cluster_id: Arc<str>,
    /// This node.
    pub node: NodeId,
}

/// Looks topics and settings up. Answers come from applied (committed) state only.
pub trait Catalog: Send + Sync + Debug {
    /// The living topic of that name.
    fn topic(&self, name: &str) -> Option<Arc<TopicInfo>>;
    /// The living topic of that id.
    fn topic_by_id(&self, id: TopicId) -> Option<Arc<TopicInfo>>;
    /// All living topics, by name.
    fn topics(&self) -> Vec<Arc<TopicInfo>>;
    /// How many topics [`Catalog::topics`] goes through, at the most: what it costs to call.
    fn topics_len(&self) -> usize {
        self.topics().len()
    }
    /// The cluster.
    fn cluster(&self) -> ClusterInfo;
    /// The document of that scope; empty when there is none.
    fn settings(&self, scope: &SettingsScope) -> Arc<Settings>;
    /// All scopes of which there is a document.
    fn settings_scopes(&self) -> Vec<SettingsScope>;
    /// Whether topics may not be made by that name, because it is kept for queues that are read as topics.
    fn is_reserved(&self, _name: &str) -> bool {
        false
    }
    /// Grows with every change of what [`Catalog::topic`] and [`Catalog::topic_by_id`] give of topics that are no queues: queues come and
    /// are created and deleted by the thousand, which concerns no reader of logs. A caller that caches the answer asks for this
    /// first, and looks again when it has grown.
    fn version(&self) -> u64;
}
