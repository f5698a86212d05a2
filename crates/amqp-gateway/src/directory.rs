//! The metadata that connections read without a request: routes, and partitions of queues.

use crate::alarm::{Alarms, Resource};
use crate::changes::{ExchangeChange, IdleChanges, PendingChanges};
use crate::convert::topic_config;
use crate::counts::{Count, Traffic};
use crate::machine::ADMINISTRATOR;
use crate::presence::{Clients, Presence};
use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use polylogue_amqp::settings::AmqpSettings;
use polylogue_amqp_model::{Home, Metadata, OwnerId, Queue, QueueSettings};
use polylogue_api::{Catalog, NewTopic, Now};
use polylogue_auth::{Acl, AclBook, Quotas};
use polylogue_router::{QueueId, SharedRouter, VhostId};
use polylogue_types::{Map, PartitionId};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The prefix of names of queue topics.
pub(crate) const TOPIC_PREFIX: &str = "__amqp_queue_";

/// The topic of a queue. Ids are never reused, so these names are not either.
#[must_use]
pub fn topic_of(queue: QueueId) -> String {
    format!("{TOPIC_PREFIX}{queue}")
}

/// The queue whose topic has this name.
pub(crate) fn queue_of(topic: &str) -> Option<QueueId> {
    topic.strip_prefix(TOPIC_PREFIX)?.parse().ok().map(QueueId)
}

/// A queue, as connections see it.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    pub(crate) queue: Arc<Queue>,
    /// Its effective settings, policies included.
    pub(crate) settings: QueueSettings,
    partition: OnceLock<PartitionId>,
    /// When it was last used, by monotonic time; 0 if unknown. Milliseconds.
    used_ms: Arc<AtomicU64>,
}

impl QueueEntry {
    pub(crate) fn new(queue: Arc<Queue>, settings: QueueSettings) -> QueueEntry {
        QueueEntry { queue, settings, partition: OnceLock::new(), used_ms: Arc::default() }
    }

    /// It is being declared, consumed from or read by `basic.get`, or has just lost a consumer.
    pub(crate) fn used(&self, now: Now) {
        self.used_ms.store(now.monotonic_ms.max(1), Ordering::Relaxed);
    }

    /// When it was last used, by monotonic time. `None` before the first use. Milliseconds.
    pub(crate) fn used_ms(&self) -> Option<u64> {
        Some(self.used_ms.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// Its partition, once its topic exists.
    pub(crate) fn partition(&self, catalog: &dyn Catalog) -> Option<PartitionId> {
        if let Some(known) = self.partition.get() {
            return Some(*known);
        }
        let topic = catalog.topic(&topic_of(self.queue.id))?;
        let partition = topic.partitions.first()?.id;
        Some(*self.partition.get_or_init(|| partition))
    }

    /// The topic to create for it.
    pub(crate) fn new_topic(&self) -> NewTopic {
        let config = topic_config(&self.queue, &self.settings);
        NewTopic { name: topic_of(self.queue.id), partitions: 1, config, internal: true }
    }
}

/// See the module. Shared by all connections; changes only when records are applied.
#[derive(Debug)]
pub struct Directory {
    router: Arc<SharedRouter>,
    queues: RwLock<Map<QueueId, Arc<QueueEntry>>>,
    /// Users and permissions.
    metadata: ArcSwap<Metadata>,
    /// The version of permissions; incremented when any permission changes.
    rights: AtomicU64,
    /// At least one virtual host is traced.
    traces: AtomicBool,
    /// Access control lists, and the administrators.
    book: RwLock<AclBook>,
    quotas: Quotas,
    clients: Arc<Clients>,
    idle: PendingChanges<IdleChanges>,
    /// Resource alarms.
    alarms: Alarms,
    /// Messages that were abandoned because their bodies timed out.
    late_bodies: AtomicU64,
    /// The start of the machine is complete.
    begun: AtomicBool,
    /// The identity of this process.
    home: OnceLock<Home>,
    /// The first user may log in, from this machine.
    lets_guest: AtomicBool,
    to_topics: PendingChanges<BTreeSet<QueueId>>,
    /// All queues that forward to a topic.
    forwarding: RwLock<BTreeSet<QueueId>>,
    from_topics: PendingChanges<Vec<ExchangeChange>>,
    new_queues: PendingChanges<Vec<QueueId>>,
    shovels: PendingChanges<()>,
    federation: PendingChanges<()>,
    /// The configured cluster name, and the session settings that contain it.
    cluster_name: Mutex<(Option<String>, Option<Arc<AmqpSettings>>)>,
}

impl Directory {
    pub(crate) fn new(router: Arc<SharedRouter>) -> Directory {
        Directory {
            router,
            queues: RwLock::default(),
            metadata: ArcSwap::default(),
            rights: AtomicU64::new(0),
            traces: AtomicBool::new(false),
            book: RwLock::default(),
            quotas: Quotas::default(),
            clients: Arc::default(),
            idle: PendingChanges::default(),
            alarms: Alarms::default(),
            late_bodies: AtomicU64::new(0),
            begun: AtomicBool::new(false),
            home: OnceLock::new(),
            lets_guest: AtomicBool::new(true),
            to_topics: PendingChanges::default(),
            forwarding: RwLock::default(),
            from_topics: PendingChanges::default(),
            new_queues: PendingChanges::default(),
            shovels: PendingChanges::default(),
            federation: PendingChanges::default(),
            cluster_name: Mutex::default(),
        }
    }

    /// Whether the first user may log in, from this machine.
    #[must_use]
    pub fn lets_guest(&self) -> bool {
        self.lets_guest.load(Ordering::Relaxed)
    }

    pub(crate) fn let_guest(&self, may_log_in: bool) {
        self.lets_guest.store(may_log_in, Ordering::Relaxed);
    }

    pub(crate) fn count_late_bodies(&self, count: u64) {
        if count > 0 {
            self.late_bodies.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// How many messages were abandoned because their bodies timed out.
    #[must_use]
    pub fn late_bodies(&self) -> u64 {
        self.late_bodies.load(Ordering::Relaxed)
    }

    /// Raises or clears a resource alarm; each connection is notified by [`crate::Connection::on_alarm`]. Returns whether it changed.
    pub fn set_alarm(&self, of: Resource, on: bool) -> bool {
        self.alarms.set(of, on)
    }

    /// The reason why publishers are blocked, if they are.
    pub(crate) fn alarm(&self) -> Option<&'static str> {
        self.alarms.reason()
    }

    /// Sets the cluster name, or `None` for that of the settings.
    pub(crate) fn set_cluster_name(&self, name: Option<String>) {
        *self.cluster_name.lock() = (name, None);
    }

    /// Returns these settings with the current cluster name.
    #[must_use]
    pub fn named(&self, settings: Arc<AmqpSettings>) -> Arc<AmqpSettings> {
        let mut named = self.cluster_name.lock();
        let (Some(name), known) = &mut *named else { return settings };
        let new = || Arc::new(AmqpSettings { cluster_name: name.clone(), ..(*settings).clone() });
        known.get_or_insert_with(new).clone()
    }

    /// Changes for [`crate::IdleQueues`].
    pub fn idle_changes(&self) -> &PendingChanges<IdleChanges> {
        &self.idle
    }

    /// Changes for [`crate::ToTopics`]: queues with a topic that were declared or changed.
    pub fn topic_changes(&self) -> &PendingChanges<BTreeSet<QueueId>> {
        &self.to_topics
    }

    /// Changes for [`crate::MissingTopics`]: queues that were declared.
    pub fn queue_changes(&self) -> &PendingChanges<Vec<QueueId>> {
        &self.new_queues
    }

    /// Changes for the runner of shovels: a shovel was set or cleared. [`View::metadata`](crate::View) has them all.
    pub fn shovel_changes(&self) -> &PendingChanges<()> {
        &self.shovels
    }

    /// Changes for the runner of federation links: an upstream changed or, while there are any, a policy, a queue, an exchange or a binding.
    /// [`View`](crate::View) has them all.
    pub fn federation_changes(&self) -> &PendingChanges<()> {
        &self.federation
    }

    /// Changes for [`crate::FromTopics`]: events of exchanges that name a topic, in order.
    pub fn exchange_changes(&self) -> &PendingChanges<Vec<ExchangeChange>> {
        &self.from_topics
    }

    /// Whether a queue of a virtual host forwards to a topic.
    pub(crate) fn forwards_to(&self, vhost: VhostId, topic: &str) -> bool {
        let forwarding = self.forwarding.read();
        forwarding
            .iter()
            .filter_map(|id| self.queue(*id))
            .any(|entry| entry.queue.vhost == vhost && entry.settings.topic.as_deref() == Some(topic))
    }

    /// These queues lost consumers with a connection.
    pub(crate) fn consumers_left(&self, queues: impl Iterator<Item = QueueId>) {
        let queues: Vec<_> = queues.collect();
        if !queues.is_empty() {
            self.idle.update(|changes| changes.left.extend(queues));
        }
    }

    /// Whether the start is complete: the first user or others exist, and non-durable objects of earlier processes are removed.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    pub(crate) fn set_begun(&self) {
        self.begun.store(true, Ordering::Release);
    }

    /// All connections, in the order of their creation.
    #[must_use]
    pub fn clients(&self) -> Vec<Arc<Presence>> {
        self.clients.all()
    }

    /// The numbers of connections and channels.
    #[must_use]
    pub fn client_counts(&self) -> (u64, u64) {
        self.clients.count()
    }

    /// How many connections are in flow (blocked for lack of credit).
    #[must_use]
    pub fn clients_in_flow(&self) -> u64 {
        self.clients.in_flow()
    }

    /// Returns the connection that a queue is exclusive to, if it is listed.
    #[must_use]
    pub fn owner_of(&self, queue: &Queue) -> Option<Arc<Presence>> {
        self.clients.one(self.connection_of(queue.owner?)?)
    }

    /// Whether the owner of exclusive queues is connected.
    pub(crate) fn is_connected(&self, owner: OwnerId) -> bool {
        self.connection_of(owner).is_some_and(|id| self.clients.one(id).is_some())
    }

    /// The number of the connection of this process with this owner id.
    fn connection_of(&self, owner: OwnerId) -> Option<u64> {
        let is_here = self.home.get() == Some(&owner.home);
        owner.connection.checked_sub(1).filter(|_| is_here)
    }

    /// Sets the identity of this process. Called once, before the first connection.
    pub(crate) fn set_home(&self, home: Home) {
        // A machine that becomes ready again belongs to the same process.
        let _ = self.home.set(home);
    }

    /// Counters of clients and their messages.
    #[must_use]
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.clients.traffic
    }

    /// Counts created or deleted queues. Those of a start are not counted.
    fn queues_changed(&self, what: Count) {
        if self.has_begun() {
            self.clients.traffic.more(what, 1);
        }
    }

    pub(crate) fn entries(&self) -> Arc<Clients> {
        self.clients.clone()
    }

    pub(crate) fn router(&self) -> &SharedRouter {
        &self.router
    }

    pub(crate) fn queue(&self, id: QueueId) -> Option<Arc<QueueEntry>> {
        self.queues.read().get(&id).cloned()
    }

    pub(crate) fn queues(&self) -> Vec<Arc<QueueEntry>> {
        self.queues.read().values().cloned().collect()
    }

    pub(crate) fn set(&self, queue: Arc<Queue>, settings: QueueSettings) {
        let mut queues = self.queues.write();
        let mut entry = QueueEntry::new(queue, settings);
        let mut expires = entry.settings.expires_ms.is_some();
        let before = queues.get(&entry.queue.id);
        let is_new = before.is_none();
        if let Some(before) = before {
            if let Some(partition) = before.partition.get() {
                let _ = entry.partition.set(*partition);
            }
            entry.used_ms = before.used_ms.clone();
            expires |= before.settings.expires_ms.is_some();
        }
        let id = entry.queue.id;
        let goes_on = entry.settings.topic.is_some();
        queues.insert(id, Arc::new(entry));
        drop(queues);
        if is_new {
            self.queues_changed(Count::QueuesCreated);
            self.new_queues.update(|changes| changes.push(id));
        }
        if goes_on {
            self.forwarding.write().insert(id);
            self.to_topics.update(|changes| _ = changes.insert(id));
        }
        if expires {
            self.idle.update(|changes| changes.changed.push(id));
        }
    }

    pub(crate) fn remove(&self, id: QueueId) {
        if self.queues.write().remove(&id).is_some() {
            self.queues_changed(Count::QueuesDeleted);
        }
        self.forwarding.write().remove(&id);
    }

    /// The version of permissions: results of checks for other versions are outdated.
    pub(crate) fn rights(&self) -> u64 {
        self.rights.load(Ordering::Acquire)
    }

    /// Users and permissions.
    pub(crate) fn metadata(&self) -> Arc<Metadata> {
        self.metadata.load_full()
    }

    /// Access control lists, locked for reading: release them after the check.
    pub(crate) fn book(&self) -> RwLockReadGuard<'_, AclBook> {
        self.book.read()
    }

    /// An ACL binding was added or deleted.
    pub(crate) fn set_acl(&self, acl: &Arc<Acl>, is_there: bool) {
        let mut book = self.book.write();
        if is_there {
            book.insert(acl.clone());
        } else {
            book.remove(acl);
        }
    }

    /// Quotas of clients, and their usage.
    #[must_use]
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Takes all ACL bindings, quotas and administrators from committed state.
    pub(crate) fn fill_book(&self, metadata: &Metadata) {
        let mut book = AclBook::default();
        metadata.acls().iter().for_each(|acl| _ = book.insert(acl.clone()));
        let administrators = metadata.users().filter(|user| user.has_tag(ADMINISTRATOR));
        administrators.for_each(|user| book.set_administrator(&user.name, true));
        *self.book.write() = book;
        self.quotas.fill(metadata.quotas().clone());
    }

    /// A user was changed or deleted.
    pub(crate) fn set_administrator(&self, user: &str, is_one: bool) {
        self.book.write().set_administrator(user, is_one);
    }

    /// Whether at least one virtual host is traced.
    pub(crate) fn is_tracing(&self) -> bool {
        self.traces.load(Ordering::Relaxed)
    }

    pub(crate) fn rights_changed(&self, metadata: Metadata) {
        let traces = metadata.vhosts().any(|vhost| vhost.tracing);
        self.metadata.store(Arc::new(metadata));
        self.rights.fetch_add(1, Ordering::Release);
        self.traces.store(traces, Ordering::Relaxed);
    }
}
