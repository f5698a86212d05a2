//! The published view of topics and settings: what sessions look names and ids up in.

use crate::machine::TopicMeta;
use parking_lot::RwLock;
use polylogue_api::{Catalog, ClusterInfo, Settings, SettingsScope, TopicInfo};
use polylogue_types::{Map, ShardId, Term, TopicId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Topics and settings as applied. Readers take a read lock for the time of one look-up and get a shared snapshot.
#[derive(Debug)]
pub struct SharedCatalog {
    cluster: ClusterInfo,
    topics: RwLock<Topics>,
    settings: RwLock<BTreeMap<SettingsScope, Arc<Settings>>>,
    /// Changes of topics that are no queues. Grows under the lock of `topics`, with what it counts.
    version: AtomicU64,
}

#[derive(Debug, Default)]
struct Topics {
    // Names come from outside in any number: an ordered map cannot be attacked by colliding hashes.
    by_name: BTreeMap<Arc<str>, Arc<TopicInfo>>,
    by_id: Map<TopicId, Arc<TopicInfo>>,
}

impl SharedCatalog {
    /// An empty one.
    #[must_use]
    pub fn new(cluster: ClusterInfo) -> SharedCatalog {
        SharedCatalog { cluster, topics: RwLock::default(), settings: RwLock::default(), version: AtomicU64::new(0) }
    }

    /// Shows a topic, or its new state. `term_of` tells a shard's current term, from which leader epochs follow.
    pub fn publish(&self, topic: &TopicMeta, term_of: &dyn Fn(ShardId) -> Term) {
        let info = topic.info(term_of);
        let mut topics = self.topics.write();
        topics.by_name.insert(info.name.clone(), info.clone());
        let is_log = info.config.queue.is_none();
        topics.by_id.insert(info.id, info);
        self.version.fetch_add(u64::from(is_log), Ordering::Release);
    }

    /// Shows a scope's document; an empty one is none.
    pub fn publish_settings(&self, scope: &SettingsScope, settings: Arc<Settings>) {
        let mut all = self.settings.write();
        if settings.is_empty() {
            all.remove(scope);
        } else {
            all.insert(scope.clone(), settings);
        }
    }

    /// Hides a topic.
    pub fn withdraw(&self, id: TopicId) {
        let mut topics = self.topics.write();
        if let Some(info) = topics.by_id.remove(&id) {
            // The name may already belong to a newer incarnation.
            if topics.by_name.get(&info.name).is_some_and(|now| now.id == id) {
                topics.by_name.remove(&info.name);
            }
            self.version.fetch_add(u64::from(info.config.queue.is_none()), Ordering::Release);
        }
    }
}

impl Catalog for SharedCatalog {
    fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        self.topics.read().by_name.get(name).cloned()
    }

    fn topic_by_id(&self, id: TopicId) -> Option<Arc<TopicInfo>> {
        self.topics.read().by_id.get(&id).cloned()
    }

    fn topics(&self) -> Vec<Arc<TopicInfo>> {
        self.topics.read().by_name.values().cloned().collect()
    }

    fn topics_len(&self) -> usize {
        self.topics.read().by_name.len()
    }

    fn cluster(&self) -> ClusterInfo {
        self.cluster.clone()
    }

    fn settings(&self, scope: &SettingsScope) -> Arc<Settings> {
        self.settings.read().get(scope).cloned().unwrap_or_default()
    }

    fn settings_scopes(&self) -> Vec<SettingsScope> {
        self.settings.read().keys().cloned().collect()
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
}
