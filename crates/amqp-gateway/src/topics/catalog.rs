//! The catalog of the broker with queues as topics.

use super::name::{self, Named};
use crate::directory::{Directory, QueueEntry, queue_of, topic_of};
use polylogue_amqp_model::Queue;
use polylogue_api::{Catalog, ClusterInfo, Settings, SettingsScope, TopicInfo};
use polylogue_types::TopicId;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

/// A catalog for clients of other protocols, who read by offset: each queue is a topic with one partition, whose name identifies the queue. Exclusive
/// queues are not included, nor are the internal names of queue topics.
#[derive(Clone, Debug)]
pub struct QueuesAsTopics<C> {
    catalog: C,
    directory: Arc<Directory>,
}

/// The name of the topic for a queue; `None` for an exclusive queue.
#[must_use]
pub fn topic_name(vhost: &str, queue: &Queue) -> Option<String> {
    queue.owner.is_none().then(|| name::of(vhost, &queue.name, queue.id))
}

impl<C> QueuesAsTopics<C>
where
    C: Deref,
    C::Target: Catalog,
{
    /// Adds the queues of that directory to this catalog.
    pub fn new(catalog: C, directory: Arc<Directory>) -> QueuesAsTopics<C> {
        QueuesAsTopics { catalog, directory }
    }

    /// The name of the topic for a queue; `None` for an exclusive queue.
    fn name(&self, entry: &QueueEntry) -> Option<String> {
        topic_name(self.directory.metadata().vhost_name(entry.queue.vhost), &entry.queue)
    }

    /// The topic of a queue, as it is shown.
    fn shown(&self, topic: &TopicInfo) -> Option<Arc<TopicInfo>> {
        let entry = self.directory.queue(queue_of(&topic.name)?)?;
        // An existing topic of that name, created before such names were reserved, takes precedence.
        let name = self.name(&entry).filter(|name| self.catalog.topic(name).is_none())?.into();
        Some(Arc::new(TopicInfo { name, internal: false, ..topic.clone() }))
    }

    /// The queue whose topic has this name.
    fn queue(&self, topic: &str) -> Option<Arc<QueueEntry>> {
        let id = match name::queue_of(topic)? {
            Named::Id(id) => id,
            Named::Queue(vhost, queue) => {
                let vhost = self.directory.metadata().vhost_named(&vhost)?.id;
                self.directory.router().load().queue(vhost, queue.as_bytes())?
            }
        };
        self.directory.queue(id).filter(|entry| self.name(entry).as_deref() == Some(topic))
    }

    fn seen(&self, topic: Arc<TopicInfo>) -> Option<Arc<TopicInfo>> {
        if topic.config.queue.is_none() { Some(topic) } else { self.shown(&topic) }
    }
}

impl<C> Catalog for QueuesAsTopics<C>
where
    C: Deref + Send + Sync + Debug,
    C::Target: Catalog,
{
    fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        match self.catalog.topic(name) {
            Some(topic) if topic.config.queue.is_none() => Some(topic),
            _ => self.shown(self.catalog.topic(&topic_of(self.queue(name)?.queue.id))?.as_ref()),
        }
    }

    fn topic_by_id(&self, id: TopicId) -> Option<Arc<TopicInfo>> {
        self.seen(self.catalog.topic_by_id(id)?)
    }

    fn topics(&self) -> Vec<Arc<TopicInfo>> {
        let mut topics: Vec<_> = self.catalog.topics().into_iter().filter_map(|topic| self.seen(topic)).collect();
        // Queues are sorted by their internal names.
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        topics
    }

    fn topics_len(&self) -> usize {
        self.catalog.topics_len()
    }

    fn is_reserved(&self, topic: &str) -> bool {
        name::is_reserved(topic) || self.catalog.is_reserved(topic)
    }

    fn cluster(&self) -> ClusterInfo {
        self.catalog.cluster()
    }

    fn settings(&self, scope: &SettingsScope) -> Arc<Settings> {
        self.catalog.settings(scope)
    }

    fn settings_scopes(&self) -> Vec<SettingsScope> {
        self.catalog.settings_scopes()
    }

    fn version(&self) -> u64 {
        self.catalog.version()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
    use polylogue_amqp_model::{Caller, Command, DeclareQueue, OwnerId};
    use polylogue_api::{QueueSettings, TopicConfig};
    use polylogue_types::NodeId;
    use serde_json::json;

    /// Topics by name.
    #[derive(Debug, Default)]
    struct Stored(Vec<Arc<TopicInfo>>);

    impl Stored {
        fn add(&mut self, name: &str, queue: bool) -> TopicId {
            let id = TopicId::from_random([self.0.len() as u8 + 1; 16]);
            let config = TopicConfig { queue: queue.then(QueueSettings::default), ..TopicConfig::default() };
            let (name, partitions, config) = (name.into(), Vec::new(), Arc::new(config));
            self.0.push(Arc::new(TopicInfo { name, id, internal: queue, partitions, config }));
            id
        }
    }

    impl Catalog for Stored {
        fn topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
            self.0.iter().find(|topic| *topic.name == *name).cloned()
        }
        fn topic_by_id(&self, id: TopicId) -> Option<Arc<TopicInfo>> {
            self.0.iter().find(|topic| topic.id == id).cloned()
        }
        fn topics(&self) -> Vec<Arc<TopicInfo>> {
            self.0.clone()
        }
        fn cluster(&self) -> ClusterInfo {
            ClusterInfo { cluster_id: "c".into(), node: NodeId(1) }
        }
        fn settings(&self, _: &SettingsScope) -> Arc<Settings> {
            Arc::default()
        }
        fn settings_scopes(&self) -> Vec<SettingsScope> {
            Vec::new()
        }
        fn version(&self) -> u64 {
            7
        }
    }

    fn queue_id(world: &World, name: &str) -> polylogue_router::QueueId {
        world.directory.router().load().queue(world.vhost, name.as_bytes()).expect("declared")
    }

    #[test]
    fn queues_have_names_of_their_own_and_topics_keep_theirs() {
        let mut world = World::new();
        world.queue("orders", json!({}));
        world.queue("taken", json!({}));
        let own = DeclareQueue { vhost: world.vhost, name: "own".into(), exclusive: true, ..DeclareQueue::default() };
        world.act_as(Caller { owner: OwnerId::local(1), ..Caller::broker() }, Command::DeclareQueue(own));
        let mut stored = Stored::default();
        let log = stored.add("a-log", false);
        let [orders, taken, own] =
            ["orders", "taken", "own"].map(|name| stored.add(&topic_of(queue_id(&world, name)), true));
        let before = stored.add("amqp-queue.taken", false);
        let left = stored.add("__amqp_queue_99", true);
        let shown = QueuesAsTopics::new(&stored, world.directory.clone());
        let id = |name: &str| shown.topic(name).map(|topic| topic.id);
        assert_eq!(id("a-log"), Some(log));
        assert_eq!(id("amqp-queue.orders"), Some(orders));
        assert_eq!(id("amqp-queue.taken"), Some(before), "a topic that existed before");
        assert_eq!([id("amqp-queue.own"), id("amqp-queue.other"), id("amqp-vhost.no.orders"), id("orders")], [None; 4]);
        assert_eq!(id(&topic_of(queue_id(&world, "orders"))), None, "the broker's own name for it");
        assert_eq!(id("amqp-vhost._2f.orders"), None, "a queue has one name");
        let name = |id: TopicId| shown.topic_by_id(id).map(|topic| topic.name.to_string());
        assert_eq!(name(orders).as_deref(), Some("amqp-queue.orders"));
        assert_eq!([name(taken), name(own), name(left)], [None, None, None]);
        let topics = shown.topics();
        let names: Vec<_> = topics.iter().map(|topic| &*topic.name).collect();
        assert_eq!(names, ["a-log", "amqp-queue.orders", "amqp-queue.taken"]);
        assert!(topics.iter().all(|topic| !topic.internal));
    }
}
