//! The published view of topics and settings, in which sessions look up names and ids.

use crate::machine::TopicMeta;
use parking_lot::RwLock;
use polylogue_api::{Catalog, ClusterInfo, ConfigResolver, Inherited, Settings, SettingsScope, TopicConfig, TopicInfo};
use polylogue_types::{Map, ShardId, Term, TopicId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a queue is its protocol has settled, whatever topics inherit.
const EPOCH_OF_QUEUES: u64 = u64::MAX;
/// How many topics are kept with what holds for them under one hold of the lock.
const KEPT_AT_ONCE: usize = 256;

/// Topics and settings as applied. Readers take a read lock for the time of one look-up and get a shared snapshot.
///
/// What topics inherit changes for all of them at once, and costs the same however many there are: what holds for each is made when it is
/// looked up.
#[derive(Debug)]
pub struct SharedCatalog {
    cluster: ClusterInfo,
    resolver: Arc<dyn ConfigResolver>,
    topics: RwLock<Topics>,
    settings: RwLock<BTreeMap<SettingsScope, Arc<Settings>>>,
    /// Changes of topics that are no queues. Grows under the lock of `topics`, with what it counts.
    version: AtomicU64,
}

#[derive(Debug, Default)]
struct Topics {
    // Names come from outside in any number: an ordered map cannot be attacked by colliding hashes.
    by_name: BTreeMap<Arc<str>, Shown>,
    by_id: Map<TopicId, Shown>,
    inherited: Arc<Inherited>,
    /// Changes of `inherited`.
    epoch: u64,
}

/// A topic, with its effective settings as of the last look-up.
#[derive(Clone, Debug)]
struct Shown {
    info: Arc<TopicInfo>,
    /// The topic's own settings.
    layer: Arc<TopicConfig>,
    /// The [`Topics::epoch`] by which `info` says what holds; [`EPOCH_OF_QUEUES`] where nothing is inherited.
    epoch: u64,
}

impl Topics {
    fn show(&mut self, shown: Shown) {
        self.by_name.insert(shown.info.name.clone(), shown.clone());
        self.by_id.insert(shown.info.id, shown);
    }
}

impl SharedCatalog {
    /// An empty one.
    #[must_use]
    pub fn new(cluster: ClusterInfo, resolver: Arc<dyn ConfigResolver>) -> SharedCatalog {
        let (topics, settings) = (RwLock::default(), RwLock::default());
        SharedCatalog { cluster, resolver, topics, settings, version: AtomicU64::new(0) }
    }

    /// Publishes a topic, or its new state. `term_of` tells a shard's current term, from which leader epochs follow.
    pub fn publish(&self, topic: &TopicMeta, term_of: &dyn Fn(ShardId) -> Term) {
        let (inherited, epoch) = self.inherited();
        let layer = topic.layer().clone();
        let info = topic.info(term_of, self.resolver.holding(&inherited, &layer));
        let is_log = layer.queue.is_none();
        let epoch = if is_log { epoch } else { EPOCH_OF_QUEUES };
        let mut topics = self.topics.write();
        topics.show(Shown { info, layer, epoch });
        self.version.fetch_add(u64::from(is_log), Ordering::Release);
    }

    /// Asks the resolver what topics inherit from now on.
    pub fn inherit(&self) {
        let inherited = Arc::new(self.resolver.inherited());
        let mut topics = self.topics.write();
        if *topics.inherited != *inherited {
            topics.inherited = inherited;
            topics.epoch += 1;
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    fn inherited(&self) -> (Arc<Inherited>, u64) {
        let topics = self.topics.read();
        (topics.inherited.clone(), topics.epoch)
    }

    /// Returns a topic with its effective settings. They are computed without a lock held.
    fn current(&self, found: &Shown) -> Arc<TopicInfo> {
        let (inherited, epoch) = self.inherited();
        let shown = self.renewed(found, &inherited, epoch);
        self.keep(std::slice::from_ref(&shown));
        shown.info
    }

    fn renewed(&self, shown: &Shown, inherited: &Inherited, epoch: u64) -> Shown {
        let holds = self.resolver.holding(inherited, &shown.layer);
        let info = match holds == shown.info.config {
            true => shown.info.clone(),
            false => Arc::new(TopicInfo { config: holds, ..TopicInfo::clone(&shown.info) }),
        };
        Shown { info, layer: shown.layer.clone(), epoch }
    }

    /// Keeps what was made of topics, for the next look-up: of those to which nothing has happened meanwhile.
    fn keep(&self, renewed: &[Shown]) {
        let mut topics = self.topics.write();
        for shown in renewed {
            let same = |now: &Shown| Arc::ptr_eq(&now.layer, &shown.layer) && now.epoch < shown.epoch;
            let is_same = |now: &Shown| same(now) && now.info.partitions == shown.info.partitions;
            if topics.by_id.get(&shown.info.id).is_some_and(is_same) {
                topics.by_id.insert(shown.info.id, shown.clone());
                // The name may already belong to a newer incarnation.
                if let Some(named) = topics.by_name.get_mut(&shown.info.name).filter(|now| is_same(now)) {
                    *named = shown.clone();
                }
            }
        }
    }

    /// Publishes a scope's document; an empty one removes it.
    pub fn publish_settings(&self, scope: &SettingsScope, settings: Arc<Settings>) {
        let mut all = self.settings.write();
        if settings.is_empty() {
            all.remove(scope);
        } else {
            all.insert(scope.clone(), settings);
        }
    }

    /// Removes a topic from the view.
    pub fn withdraw(&self, id: TopicId) {
        let mut topics = self.topics.write();
        if let Some(Shown { info, .. }) = topics.by_id.remove(&id) {
            // The name may already belong to a newer incarnation.
            if topics.by_name.get(&info.name).is_some_and(|now| now.info.id == id) {
                topics.by_name.remove(&info.name);
            }
            self.version.fetch_add(u64::from(info.config.queue.is_none()), Ordering::Release);
        }
    }
}

impl Catalog for SharedCatalog {
    fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        let topics = self.topics.read();
        let found = topics.by_name.get(name)?;
        if found.epoch >= topics.epoch {
            return Some(found.info.clone());
        }
        let found = found.clone();
        drop(topics);
        Some(self.current(&found))
    }

    fn topic_by_id(&self, id: TopicId) -> Option<Arc<TopicInfo>> {
        let topics = self.topics.read();
        let found = topics.by_id.get(&id)?;
        if found.epoch >= topics.epoch {
            return Some(found.info.clone());
        }
        let found = found.clone();
        drop(topics);
        Some(self.current(&found))
    }

    fn topics(&self) -> Vec<Arc<TopicInfo>> {
        let (mut all, inherited, epoch) = {
            let topics = self.topics.read();
            let all: Vec<_> = topics.by_name.values().cloned().collect();
            (all, topics.inherited.clone(), topics.epoch)
        };
        for shown in all.chunks_mut(KEPT_AT_ONCE) {
            let stale = shown.iter_mut().filter(|shown| shown.epoch < epoch);
            let renewed: Vec<_> = stale
                .map(|shown| {
                    *shown = self.renewed(shown, &inherited, epoch);
                    shown.clone()
                })
                .collect();
            if !renewed.is_empty() {
                self.keep(&renewed);
            }
        }
        all.into_iter().map(|shown| shown.info).collect()
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
