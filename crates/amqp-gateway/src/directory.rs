//! What every connection knows of the declared world without asking: how to route, and which partition a queue is.

use crate::presence::{Clients, Presence};
use arc_swap::ArcSwap;
use parking_lot::RwLock;
use polylogue_amqp_model::{Queue, QueueSettings, World};
use polylogue_api::Catalog;
use polylogue_router::{QueueId, SharedRouter};
use polylogue_types::{Map, PartitionId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What topics of queues are called begins like this.
pub(crate) const TOPIC_PREFIX: &str = "__amqp_queue_";

/// The topic of a queue. Ids are never reused, and so are these names.
#[must_use]
pub fn topic_of(queue: QueueId) -> String {
    format!("{TOPIC_PREFIX}{queue}")
}

/// The queue whose topic has this name.
pub(crate) fn queue_of(topic: &str) -> Option<QueueId> {
    topic.strip_prefix(TOPIC_PREFIX)?.parse().ok().map(QueueId)
}

/// A queue as connections see it.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    pub(crate) queue: Arc<Queue>,
    /// What holds for it, policies included.
    pub(crate) settings: QueueSettings,
    partition: OnceLock<PartitionId>,
}

impl QueueEntry {
    pub(crate) fn new(queue: Arc<Queue>, settings: QueueSettings) -> QueueEntry {
        QueueEntry { queue, settings, partition: OnceLock::new() }
    }

    /// Its partition, once its topic is there.
    pub(crate) fn partition(&self, catalog: &dyn Catalog) -> Option<PartitionId> {
        if let Some(known) = self.partition.get() {
            return Some(*known);
        }
        let topic = catalog.topic(&topic_of(self.queue.id))?;
        let partition = topic.partitions.first()?.id;
        Some(*self.partition.get_or_init(|| partition))
    }
}

/// See the module. Shared by all connections; changed only when records are applied.
#[derive(Debug)]
pub struct Directory {
    router: Arc<SharedRouter>,
    queues: RwLock<Map<QueueId, Arc<QueueEntry>>>,
    /// Users and what they may do.
    world: ArcSwap<World>,
    /// Grows when somebody may do something else than before.
    rights: AtomicU64,
    clients: Arc<Clients>,
}

impl Directory {
    pub(crate) fn new(router: Arc<SharedRouter>) -> Directory {
        Directory {
            router,
            queues: RwLock::default(),
            world: ArcSwap::default(),
            rights: AtomicU64::new(0),
            clients: Arc::default(),
        }
    }

    /// Whether the declared world has begun: the first user is there, or others are.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        let world = self.world();
        world.users().len() > 0 || world.vhosts().len() > 0
    }

    /// Who is connected, in the order in which they came.
    #[must_use]
    pub fn clients(&self) -> Vec<Arc<Presence>> {
        self.clients.all()
    }

    /// Who has a queue alone, if anybody does and is shown.
    #[must_use]
    pub fn owner_of(&self, queue: &Queue) -> Option<Arc<Presence>> {
        self.clients.one(queue.owner?.0.checked_sub(1)?)
    }

    pub(crate) fn books(&self) -> Arc<Clients> {
        self.clients.clone()
    }

    pub(crate) fn router(&self) -> &SharedRouter {
        &self.router
    }

    pub(crate) fn queue(&self, id: QueueId) -> Option<Arc<QueueEntry>> {
        self.queues.read().get(&id).cloned()
    }

    pub(crate) fn set(&self, queue: Arc<Queue>, settings: QueueSettings) {
        let mut queues = self.queues.write();
        let entry = QueueEntry::new(queue, settings);
        if let Some(partition) = queues.get(&entry.queue.id).and_then(|before| before.partition.get().copied()) {
            let _ = entry.partition.set(partition);
        }
        queues.insert(entry.queue.id, Arc::new(entry));
    }

    pub(crate) fn remove(&self, id: QueueId) {
        self.queues.write().remove(&id);
    }

    /// What was judged by rights of another number is to be judged anew.
    pub(crate) fn rights(&self) -> u64 {
        self.rights.load(Ordering::Acquire)
    }

    /// Users and what they may do.
    pub(crate) fn world(&self) -> Arc<World> {
        self.world.load_full()
    }

    pub(crate) fn rights_changed(&self, world: World) {
        self.world.store(Arc::new(world));
        self.rights.fetch_add(1, Ordering::Release);
    }
}
