//! The AMQP metadata except exchanges and bindings: virtual hosts, users and permissions, parameters, policies, queues.
//!
//! There are two instances: the committed state, and the state as it will be when all proposals are committed. They share their contents. Both change
//! only by [`Metadata::apply`], which never fails: changing a missing object does nothing.

use crate::change::{Change, Key, READS_BEGUN};
use crate::json::Json;
use crate::policy::{Policy, merged, strongest};
use crate::queue::{DeletionCause, OwnerId, Queue};
use crate::queue_kind::QueueKind;
use crate::settings::{Effective, QueueSettings};
use crate::user::{Permission, TopicPermission, User};
use crate::vhost::Vhost;
use bytestring::ByteString;
use polylogue_auth::{Acl, QuotaEntity, QuotaLimits, QuotaTable};
use polylogue_router::{ExchangeId, QueueId, VhostId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

type ByUser<V> = BTreeMap<VhostId, BTreeMap<ByteString, V>>;

/// An effect of a change.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Effect {
    VhostSet(Arc<Vhost>),
    VhostRemoved(Arc<Vhost>),
    UserSet(Arc<User>),
    UserRemoved(Arc<User>),
    Permissions(VhostId, ByteString),
    Parameter(VhostId, ByteString, ByteString, Option<Json>),
    Global(ByteString, Option<Json>),
    Policies(VhostId),
    QueueAdded(Arc<Queue>),
    QueueRemoved(Arc<Queue>, DeletionCause),
    TopicReadsBegun(ExchangeId),
    AclSet(Arc<Acl>),
    AclRemoved(Arc<Acl>),
    Quotas(QuotaEntity, QuotaLimits),
}

/// The effects of changes, in order, and the chunks that differ.
#[derive(Default, Debug)]
pub(crate) struct Effects {
    pub(crate) list: Vec<Effect>,
    pub(crate) keys: BTreeSet<Key>,
    /// If wanted, the changes that undo the effects: to be applied in reverse order. They leave the next ids of virtual hosts and queues unchanged.
    pub(crate) undo: Option<Vec<Change>>,
}

impl Effects {
    /// Effects that record how to undo them.
    pub(crate) fn with_undo() -> Effects {
        Effects { undo: Some(Vec::new()), ..Effects::default() }
    }

    /// Records a change that undoes the last effect.
    fn undo_with(&mut self, change: impl FnOnce() -> Change) {
        if let Some(undo) = &mut self.undo {
            undo.push(change());
        }
    }

    fn note(&mut self, effect: Effect, key: Key) {
        self.list.push(effect);
        self.keys.insert(key);
    }
}

/// One state of the metadata. Cloning shares the contents.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Metadata {
    vhosts: BTreeMap<VhostId, Arc<Vhost>>,
    vhost_names: BTreeMap<ByteString, VhostId>,
    users: BTreeMap<ByteString, Arc<User>>,
    permissions: ByUser<Arc<Permission>>,
    topics: ByUser<BTreeMap<ByteString, Arc<TopicPermission>>>,
    permission_count: usize,
    /// Values, and the users who set them, if known.
    parameters: BTreeMap<(VhostId, ByteString, ByteString), (Json, Option<ByteString>)>,
    globals: BTreeMap<ByteString, Json>,
    policies: BTreeMap<(VhostId, bool, ByteString), Arc<Policy>>,
    queues: BTreeMap<QueueId, Arc<Queue>>,
    queue_counts: BTreeMap<VhostId, u64>,
    owned: BTreeSet<(OwnerId, QueueId)>,
    topic_reads: BTreeMap<(ExchangeId, u64), u64>,
    acls: BTreeSet<Arc<Acl>>,
    quotas: QuotaTable,
    pub(crate) next_vhost: u32,
    pub(crate) next_queue: u64,
}

impl Metadata {
    /// Returns a virtual host by its id.
    #[must_use]
    pub fn vhost(&self, id: VhostId) -> Option<&Arc<Vhost>> {
        self.vhosts.get(&id)
    }

    /// Returns a virtual host by its name.
    #[must_use]
    pub fn vhost_named(&self, name: &str) -> Option<&Arc<Vhost>> {
        self.vhosts.get(self.vhost_names.get(name)?)
    }

    /// Returns the name of a virtual host; empty when it does not exist.
    #[must_use]
    pub fn vhost_name(&self, id: VhostId) -> &str {
        self.vhosts.get(&id).map_or("", |vhost| &vhost.name)
    }

    /// All virtual hosts, in the order of their creation.
    pub fn vhosts(&self) -> impl ExactSizeIterator<Item = &Arc<Vhost>> {
        self.vhosts.values()
    }

    /// Returns a user.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// All users by name.
    pub fn users(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.users.values()
    }

    /// Returns a user's permissions in a virtual host.
    #[must_use]
    pub fn permission(&self, vhost: VhostId, user: &str) -> Option<&Arc<Permission>> {
        self.permissions.get(&vhost)?.get(user)
    }

    /// All permissions.
    pub fn permissions(&self) -> impl Iterator<Item = (VhostId, &ByteString, &Arc<Permission>)> {
        self.permissions.iter().flat_map(|(vhost, users)| users.iter().map(|(user, p)| (*vhost, user, p)))
    }

    /// Returns a user's permissions at a topic exchange.
    #[must_use]
    pub fn topic_permission(&self, vhost: VhostId, user: &str, exchange: &str) -> Option<&Arc<TopicPermission>> {
        self.topics.get(&vhost)?.get(user)?.get(exchange)
    }

    /// All topic permissions: virtual host, user, exchange, permission.
    pub fn topic_permissions(
        &self,
    ) -> impl Iterator<Item = (VhostId, &ByteString, &ByteString, &Arc<TopicPermission>)> {
        self.topics.iter().flat_map(|(vhost, users)| {
            users.iter().flat_map(move |(user, exchanges)| {
                exchanges.iter().map(move |(exchange, p)| (*vhost, user, exchange, p))
            })
        })
    }

    /// Access control lists: permissions in protocols that use them, beside RabbitMQ's permissions.
    #[must_use]
    pub fn acls(&self) -> &BTreeSet<Arc<Acl>> {
        &self.acls
    }

    /// Quotas of clients of the protocols that have them.
    #[must_use]
    pub fn quotas(&self) -> &QuotaTable {
        &self.quotas
    }

    /// How many permissions there are, topic permissions included.
    #[must_use]
    pub fn permission_count(&self) -> usize {
        self.permission_count
    }

    /// Returns a parameter of a virtual host.
    #[must_use]
    pub fn parameter(&self, vhost: VhostId, component: &ByteString, name: &ByteString) -> Option<&Json> {
        self.parameters.get(&(vhost, component.clone(), name.clone())).map(|(value, _)| value)
    }

    /// Returns the user who set a parameter; `None` when it does not exist, was not set by a user of the user store, or was set by a build that did
    /// not record the user.
    #[must_use]
    pub fn parameter_author(&self, vhost: VhostId, component: &ByteString, name: &ByteString) -> Option<&ByteString> {
        self.parameters.get(&(vhost, component.clone(), name.clone()))?.1.as_ref()
    }

    /// All parameters: virtual host, component, name, value.
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = (VhostId, &ByteString, &ByteString, &Json)> {
        self.parameters.iter().map(|((vhost, component, name), (value, _))| (*vhost, component, name, value))
    }

    /// Returns a global parameter.
    #[must_use]
    pub fn global(&self, name: &str) -> Option<&Json> {
        self.globals.get(name)
    }

    /// All global parameters by name.
    pub fn globals(&self) -> impl ExactSizeIterator<Item = (&ByteString, &Json)> {
        self.globals.iter()
    }

    /// Returns a policy or an operator policy.
    #[must_use]
    pub fn policy(&self, vhost: VhostId, operator: bool, name: &ByteString) -> Option<&Arc<Policy>> {
        self.policies.get(&(vhost, operator, name.clone()))
    }

    /// The policies, or the operator policies, of a virtual host by name.
    pub fn policies_of(&self, vhost: VhostId, operator: bool) -> impl Iterator<Item = &Arc<Policy>> {
        let from = (vhost, operator, ByteString::new());
        let of = move |((of, is_operator, _), _): &(&(VhostId, bool, ByteString), &Arc<Policy>)| {
            (*of, *is_operator) == (vhost, operator)
        };
        self.policies.range(from..).take_while(of).map(|(_, policy)| policy)
    }

    /// All policies and operator policies.
    pub fn policies(&self) -> impl ExactSizeIterator<Item = &Arc<Policy>> {
        self.policies.values()
    }

    /// Returns a queue by its id. By name see [`crate::Model::queue`].
    #[must_use]
    pub fn queue(&self, id: QueueId) -> Option<&Arc<Queue>> {
        self.queues.get(&id)
    }

    /// All queues, in the order of their declaration.
    pub fn queues(&self) -> impl ExactSizeIterator<Item = &Arc<Queue>> {
        self.queues.values()
    }

    /// The queues that were declared after `after`, in order; all queues for `None`.
    pub(crate) fn queues_after(&self, after: Option<QueueId>) -> impl Iterator<Item = &Arc<Queue>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.queues.range((from, Bound::Unbounded)).map(|(_, queue)| queue)
    }

    /// How many queues a virtual host has.
    #[must_use]
    pub fn queue_count(&self, vhost: VhostId) -> u64 {
        self.queue_counts.get(&vhost).copied().unwrap_or(0)
    }

    /// The connections that have exclusive queues.
    #[must_use]
    pub fn owners(&self) -> BTreeSet<OwnerId> {
        self.owned.iter().map(|(owner, _)| *owner).collect()
    }

    /// The queues that are exclusive to a connection.
    pub fn owned_by(&self, owner: OwnerId) -> impl Iterator<Item = QueueId> {
        self.owned.range((owner, QueueId(0))..=(owner, QueueId(u64::MAX))).map(|(_, id)| *id)
    }

    /// How far the topic of an exchange was read: partitions, and the next offset of each.
    pub fn topic_reads(&self, exchange: ExchangeId) -> impl Iterator<Item = (u64, u64)> {
        let of_exchange = self.topic_reads.range((exchange, 0)..=(exchange, u64::MAX));
        of_exchange.map(|((_, partition), offset)| (*partition, *offset))
    }

    pub(crate) fn topic_read(&self, exchange: ExchangeId, partition: u64) -> Option<u64> {
        self.topic_reads.get(&(exchange, partition)).copied()
    }

    /// Returns the policy and the operator policy that apply to a queue of this type (to an exchange, without one) with this name.
    #[must_use]
    pub fn matching(&self, vhost: VhostId, kind: Option<QueueKind>, name: &str) -> [Option<&Policy>; 2] {
        [false, true].map(|operator| {
            let applying = self.policies_of(vhost, operator).filter(|policy| policy.applies(kind, name));
            strongest(applying.map(|policy| &**policy))
        })
    }

    /// Computes the effective settings of a queue.
    #[must_use]
    pub fn effective(&self, queue: &Queue) -> Effective {
        let [policy, operator] = self.matching(queue.vhost, Some(queue.kind), &queue.name);
        let definition = merged(policy, operator);
        Effective {
            policy: policy.map(|policy| policy.name.clone()),
            operator_policy: operator.map(|policy| policy.name.clone()),
            settings: QueueSettings::of(queue, &definition),
            definition,
        }
    }

    /// Returns the alternate exchange that policies set for an exchange.
    #[must_use]
    pub fn policy_alternate(&self, vhost: VhostId, exchange: &str) -> Option<ByteString> {
        let [policy, operator] = self.matching(vhost, None, exchange);
        merged(policy, operator).get("alternate-exchange")?.as_str().map(ByteString::from)
    }

    /// Applies a change.
    pub(crate) fn apply(&mut self, change: &Change, effects: &mut Effects) {
        match change {
            Change::Vhost(vhost) => self.set_vhost(vhost, effects),
            Change::VhostRemoved(id) => self.remove_vhost(*id, effects),
            Change::User(user) => self.set_user(user, effects),
            Change::UserRemoved(name) => self.remove_user(name, effects),
            Change::Permission(vhost, user, permission) => self.set_permission(*vhost, user, permission, effects),
            Change::PermissionRemoved(vhost, user) => self.remove_permission(*vhost, user, effects),
            Change::Topic(vhost, user, exchange, permission) => {
                self.set_topic(*vhost, user, exchange, permission, effects);
            }
            Change::TopicRemoved(vhost, user, exchange) => self.remove_topic(*vhost, user, exchange, effects),
            Change::Parameter(vhost, component, name, value, author) => {
                let before =
                    self.parameters.insert((*vhost, component.clone(), name.clone()), (value.clone(), author.clone()));
                effects.undo_with(|| match before {
                    Some((value, author)) => Change::Parameter(*vhost, component.clone(), name.clone(), value, author),
                    None => Change::ParameterRemoved(*vhost, component.clone(), name.clone()),
                });
                note_parameter(*vhost, component, name, Some(value), effects);
            }
            Change::ParameterRemoved(vhost, component, name) => {
                self.remove_parameter(*vhost, component, name, effects);
            }
            Change::Global(name, value) => self.set_global(name, Some(value), effects),
            Change::GlobalRemoved(name) => self.set_global(name, None, effects),
            Change::Policy(policy) => self.set_policy(policy, effects),
            Change::PolicyRemoved(vhost, operator, name) => self.remove_policy(*vhost, *operator, name, effects),
            Change::Queue(queue) => self.add_queue(queue, effects),
            Change::QueueRemoved(id, gone) => self.remove_queue(*id, *gone, effects),
            Change::Restarted => self.restart(effects),
            Change::Counters(vhost, queue) => {
                self.next_vhost = self.next_vhost.max(*vhost);
                self.next_queue = self.next_queue.max(*queue);
                effects.keys.insert(Key::Counters);
            }
            Change::TopicRead(exchange, partition, offset) => {
                self.set_topic_read(*exchange, *partition, Some(*offset), effects);
            }
            Change::TopicReadRemoved(exchange, partition) => {
                self.set_topic_read(*exchange, *partition, None, effects);
            }
            Change::Acl(acl) => self.set_acl(acl, true, effects),
            Change::AclRemoved(acl) => self.set_acl(acl, false, effects),
            Change::Quotas(entity, limits) => self.set_quotas(entity, *limits, effects),
            Change::QuotasRemoved(entity) => self.set_quotas(entity, QuotaLimits::default(), effects),
        }
    }

    fn set_user(&mut self, user: &Arc<User>, effects: &mut Effects) {
        let name = user.name.clone();
        let before = self.users.insert(name.clone(), user.clone());
        effects.undo_with(|| before.map_or(Change::UserRemoved(name), Change::User));
        effects.note(Effect::UserSet(user.clone()), Key::User(user.name.clone()));
    }

    fn set_permission(
        &mut self,
        vhost: VhostId,
        user: &ByteString,
        permission: &Arc<Permission>,
        effects: &mut Effects,
    ) {
        let before = self.permissions.entry(vhost).or_default().insert(user.clone(), permission.clone());
        self.permission_count += usize::from(before.is_none());
        effects.undo_with(|| match before {
            Some(before) => Change::Permission(vhost, user.clone(), before),
            None => Change::PermissionRemoved(vhost, user.clone()),
        });
        effects.note(Effect::Permissions(vhost, user.clone()), Key::Permission(vhost, user.clone()));
    }

    fn set_topic(
        &mut self,
        vhost: VhostId,
        user: &ByteString,
        exchange: &ByteString,
        permission: &Arc<TopicPermission>,
        effects: &mut Effects,
    ) {
        let users = self.topics.entry(vhost).or_default();
        let before = users.entry(user.clone()).or_default().insert(exchange.clone(), permission.clone());
        self.permission_count += usize::from(before.is_none());
        effects.undo_with(|| match before {
            Some(before) => Change::Topic(vhost, user.clone(), exchange.clone(), before),
            None => Change::TopicRemoved(vhost, user.clone(), exchange.clone()),
        });
        let key = Key::Topic(vhost, user.clone(), exchange.clone());
        effects.note(Effect::Permissions(vhost, user.clone()), key);
    }

    fn set_global(&mut self, name: &ByteString, value: Option<&Json>, effects: &mut Effects) {
        let before = match value {
            Some(value) => self.globals.insert(name.clone(), value.clone()),
            None => self.globals.remove(name),
        };
        if before.is_none() && value.is_none() {
            return;
        }
        effects.undo_with(|| match before {
            Some(before) => Change::Global(name.clone(), before),
            None => Change::GlobalRemoved(name.clone()),
        });
        effects.note(Effect::Global(name.clone(), value.cloned()), Key::Global(name.clone()));
    }

    fn set_policy(&mut self, policy: &Arc<Policy>, effects: &mut Effects) {
        let before = self.policies.insert((policy.vhost, policy.operator, policy.name.clone()), policy.clone());
        effects.undo_with(|| match before {
            Some(before) => Change::Policy(before),
            None => Change::PolicyRemoved(policy.vhost, policy.operator, policy.name.clone()),
        });
        let key = Key::Policy(policy.vhost, policy.operator, policy.name.clone());
        effects.note(Effect::Policies(policy.vhost), key);
    }

    /// Removes everything that is not durable.
    fn restart(&mut self, effects: &mut Effects) {
        let transient = self.queues.values().filter(|queue| !queue.durable);
        let transient: Vec<_> = transient.map(|queue| queue.id).collect();
        transient.into_iter().for_each(|id| self.remove_queue(id, DeletionCause::Restart, effects));
    }

    fn set_quotas(&mut self, entity: &QuotaEntity, limits: QuotaLimits, effects: &mut Effects) {
        let before = self.quotas.get(entity).copied();
        if limits.is_empty() {
            self.quotas.remove(entity);
        } else {
            self.quotas.insert(entity.clone(), limits);
        }
        effects.undo_with(|| match before {
            Some(before) => Change::Quotas(entity.clone(), before),
            None => Change::QuotasRemoved(entity.clone()),
        });
        effects.note(Effect::Quotas(entity.clone(), limits), Key::Quotas(entity.clone()));
    }

    fn set_acl(&mut self, acl: &Arc<Acl>, is_there: bool, effects: &mut Effects) {
        let effect = match is_there {
            true if self.acls.insert(acl.clone()) => Effect::AclSet(acl.clone()),
            false if self.acls.remove(acl) => Effect::AclRemoved(acl.clone()),
            _ => return,
        };
        effects.undo_with(|| if is_there { Change::AclRemoved(acl.clone()) } else { Change::Acl(acl.clone()) });
        effects.note(effect, Key::Acl(acl.clone()));
    }

    fn set_topic_read(&mut self, exchange: ExchangeId, partition: u64, offset: Option<u64>, effects: &mut Effects) {
        let before = match offset {
            Some(offset) => self.topic_reads.insert((exchange, partition), offset),
            None => self.topic_reads.remove(&(exchange, partition)),
        };
        effects.undo_with(|| match before {
            Some(before) => Change::TopicRead(exchange, partition, before),
            None => Change::TopicReadRemoved(exchange, partition),
        });
        effects.keys.insert(Key::TopicRead(exchange, partition));
        if partition == READS_BEGUN && offset.is_some() {
            effects.list.push(Effect::TopicReadsBegun(exchange));
        }
    }

    /// Removes the read offsets of a deleted exchange.
    pub(crate) fn forget_topic_reads(&mut self, exchange: ExchangeId, effects: &mut Effects) {
        let partitions: Vec<u64> = self.topic_reads(exchange).map(|(partition, _)| partition).collect();
        for partition in partitions {
            self.set_topic_read(exchange, partition, None, effects);
        }
    }

    fn set_vhost(&mut self, vhost: &Arc<Vhost>, effects: &mut Effects) {
        self.next_vhost = self.next_vhost.max(vhost.id.0.saturating_add(1));
        let before = self.vhosts.insert(vhost.id, vhost.clone());
        if let Some(before) = &before {
            self.vhost_names.remove(&before.name);
        }
        effects.undo_with(|| before.map_or(Change::VhostRemoved(vhost.id), Change::Vhost));
        self.vhost_names.insert(vhost.name.clone(), vhost.id);
        effects.note(Effect::VhostSet(vhost.clone()), Key::Vhost(vhost.id));
        effects.keys.insert(Key::Counters);
    }

    fn remove_vhost(&mut self, id: VhostId, effects: &mut Effects) {
        let Some(vhost) = self.vhosts.remove(&id) else { return };
        self.vhost_names.remove(&vhost.name);
        effects.undo_with(|| Change::Vhost(vhost.clone()));
        let queues: Vec<_> = self.queues.values().filter(|queue| queue.vhost == id).map(|queue| queue.id).collect();
        queues.into_iter().for_each(|queue| self.remove_queue(queue, DeletionCause::Vhost, effects));
        let users: Vec<_> = self.permissions.get(&id).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        users.iter().for_each(|user| self.remove_permission(id, user, effects));
        let topics: Vec<_> =
            self.topic_permissions().filter(|(of, ..)| *of == id).map(|(_, u, x, _)| (u.clone(), x.clone())).collect();
        topics.iter().for_each(|(user, exchange)| self.remove_topic(id, user, exchange, effects));
        let parameters: Vec<_> =
            self.parameters().filter(|(of, ..)| *of == id).map(|(_, c, n, _)| (c.clone(), n.clone())).collect();
        parameters.iter().for_each(|(component, name)| self.remove_parameter(id, component, name, effects));
        for operator in [false, true] {
            let names: Vec<_> = self.policies_of(id, operator).map(|policy| policy.name.clone()).collect();
            names.iter().for_each(|name| self.remove_policy(id, operator, name, effects));
        }
        effects.note(Effect::VhostRemoved(vhost), Key::Vhost(id));
    }

    fn remove_user(&mut self, name: &ByteString, effects: &mut Effects) {
        let Some(user) = self.users.remove(name) else { return };
        effects.undo_with(|| Change::User(user.clone()));
        let hosts: Vec<VhostId> = self.permissions.keys().copied().collect();
        hosts.into_iter().for_each(|vhost| self.remove_permission(vhost, name, effects));
        let topics: Vec<_> =
            self.topic_permissions().filter(|(_, of, ..)| *of == name).map(|(v, _, x, _)| (v, x.clone())).collect();
        topics.iter().for_each(|(vhost, exchange)| self.remove_topic(*vhost, name, exchange, effects));
        effects.note(Effect::UserRemoved(user), Key::User(name.clone()));
    }

    fn remove_permission(&mut self, vhost: VhostId, user: &ByteString, effects: &mut Effects) {
        let Some(users) = self.permissions.get_mut(&vhost) else { return };
        if let Some(before) = users.remove(user) {
            self.permission_count -= 1;
            effects.undo_with(|| Change::Permission(vhost, user.clone(), before));
            effects.note(Effect::Permissions(vhost, user.clone()), Key::Permission(vhost, user.clone()));
        }
        if users.is_empty() {
            self.permissions.remove(&vhost);
        }
    }

    fn remove_topic(&mut self, vhost: VhostId, user: &ByteString, exchange: &ByteString, effects: &mut Effects) {
        let Some(users) = self.topics.get_mut(&vhost) else { return };
        let Some(exchanges) = users.get_mut(user) else { return };
        if let Some(before) = exchanges.remove(exchange) {
            self.permission_count -= 1;
            effects.undo_with(|| Change::Topic(vhost, user.clone(), exchange.clone(), before));
            let key = Key::Topic(vhost, user.clone(), exchange.clone());
            effects.note(Effect::Permissions(vhost, user.clone()), key);
        }
        if exchanges.is_empty() {
            users.remove(user);
        }
        if users.is_empty() {
            self.topics.remove(&vhost);
        }
    }

    fn remove_parameter(&mut self, vhost: VhostId, component: &ByteString, name: &ByteString, effects: &mut Effects) {
        if let Some((value, author)) = self.parameters.remove(&(vhost, component.clone(), name.clone())) {
            effects.undo_with(|| Change::Parameter(vhost, component.clone(), name.clone(), value, author));
            note_parameter(vhost, component, name, None, effects);
        }
    }

    fn remove_policy(&mut self, vhost: VhostId, operator: bool, name: &ByteString, effects: &mut Effects) {
        if let Some(before) = self.policies.remove(&(vhost, operator, name.clone())) {
            effects.undo_with(|| Change::Policy(before));
            effects.note(Effect::Policies(vhost), Key::Policy(vhost, operator, name.clone()));
        }
    }

    fn add_queue(&mut self, queue: &Arc<Queue>, effects: &mut Effects) {
        // Only a damaged record has an id twice; the counters stay correct.
        self.remove_queue(queue.id, DeletionCause::Asked, effects);
        self.next_queue = self.next_queue.max(queue.id.0.saturating_add(1));
        *self.queue_counts.entry(queue.vhost).or_default() += 1;
        self.owned.extend(queue.owner.map(|owner| (owner, queue.id)));
        self.queues.insert(queue.id, queue.clone());
        effects.undo_with(|| Change::QueueRemoved(queue.id, DeletionCause::Asked));
        effects.note(Effect::QueueAdded(queue.clone()), Key::Queue(queue.id));
        effects.keys.insert(Key::Counters);
    }

    fn remove_queue(&mut self, id: QueueId, gone: DeletionCause, effects: &mut Effects) {
        let Some(queue) = self.queues.remove(&id) else { return };
        if let Some(count) = self.queue_counts.get_mut(&queue.vhost) {
            *count -= 1;
            if *count == 0 {
                self.queue_counts.remove(&queue.vhost);
            }
        }
        if let Some(owner) = queue.owner {
            self.owned.remove(&(owner, id));
        }
        effects.undo_with(|| Change::Queue(queue.clone()));
        effects.note(Effect::QueueRemoved(queue, gone), Key::Queue(id));
    }

    /// Returns the change that recreates a chunk; `None` when its object does not exist.
    pub(crate) fn chunk(&self, key: &Key) -> Option<Change> {
        Some(match key {
            Key::Vhost(id) => Change::Vhost(self.vhosts.get(id)?.clone()),
            Key::User(name) => Change::User(self.users.get(name)?.clone()),
            Key::Permission(vhost, user) => {
                Change::Permission(*vhost, user.clone(), self.permission(*vhost, user)?.clone())
            }
            Key::Topic(vhost, user, exchange) => {
                let permission = self.topic_permission(*vhost, user, exchange)?.clone();
                Change::Topic(*vhost, user.clone(), exchange.clone(), permission)
            }
            Key::Parameter(vhost, component, name) => {
                let (value, author) = self.parameters.get(&(*vhost, component.clone(), name.clone()))?.clone();
                Change::Parameter(*vhost, component.clone(), name.clone(), value, author)
            }
            Key::Global(name) => Change::Global(name.clone(), self.globals.get(name)?.clone()),
            Key::Policy(vhost, operator, name) => Change::Policy(self.policy(*vhost, *operator, name)?.clone()),
            Key::Queue(id) => Change::Queue(self.queues.get(id)?.clone()),
            Key::Counters => Change::Counters(self.next_vhost, self.next_queue),
            Key::TopicRead(exchange, partition) => {
                Change::TopicRead(*exchange, *partition, self.topic_read(*exchange, *partition)?)
            }
            Key::Acl(acl) => Change::Acl(self.acls.get(acl)?.clone()),
            Key::Quotas(entity) => Change::Quotas(entity.clone(), *self.quotas.get(entity)?),
        })
    }

    /// Returns the keys of all chunks.
    pub(crate) fn keys(&self) -> BTreeSet<Key> {
        let mut keys = BTreeSet::from([Key::Counters]);
        keys.extend(self.vhosts.keys().copied().map(Key::Vhost));
        keys.extend(self.users.keys().cloned().map(Key::User));
        keys.extend(self.permissions().map(|(vhost, user, _)| Key::Permission(vhost, user.clone())));
        keys.extend(self.topic_permissions().map(|(v, user, x, _)| Key::Topic(v, user.clone(), x.clone())));
        keys.extend(self.parameters().map(|(vhost, c, name, _)| Key::Parameter(vhost, c.clone(), name.clone())));
        keys.extend(self.globals.keys().cloned().map(Key::Global));
        keys.extend(self.policies.keys().cloned().map(|(vhost, operator, name)| Key::Policy(vhost, operator, name)));
        keys.extend(self.queues.keys().copied().map(Key::Queue));
        keys.extend(self.topic_reads.keys().map(|(exchange, partition)| Key::TopicRead(*exchange, *partition)));
        keys.extend(self.acls.iter().cloned().map(Key::Acl));
        keys.extend(self.quotas.keys().cloned().map(Key::Quotas));
        keys
    }
}

fn note_parameter(
    vhost: VhostId,
    component: &ByteString,
    name: &ByteString,
    value: Option<&Json>,
    effects: &mut Effects,
) {
    let effect = Effect::Parameter(vhost, component.clone(), name.clone(), value.cloned());
    effects.note(effect, Key::Parameter(vhost, component.clone(), name.clone()));
}
