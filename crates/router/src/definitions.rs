//! Declared objects: virtual hosts, exchanges, queues by name and bindings; and how changes are applied to them.
//!
//! Copies are cheap and share unchanged parts, so that the proposed state ([`crate::Router`]'s tail) is kept beside the applied one.

use crate::change::Change;
use crate::hamt::{Hamt, Key, hash_bytes};
use crate::ids::{BindingId, Destination, ExchangeId, Name, QueueId, VhostId};
use crate::list::{Item, List};
use crate::objects::{Binding, Exchange, Queue};
use crate::value::{Argument, compare};
use std::cmp::Ordering;
use std::sync::Arc;

/// A binding, compared by the fields that identify it.
#[derive(Clone, Debug)]
pub(crate) struct Identity(pub(crate) Arc<Binding>);

impl Ord for Identity {
    fn cmp(&self, other: &Identity) -> Ordering {
        let (a, b) = (&self.0, &other.0);
        let ends = (a.source, a.destination, &a.key).cmp(&(b.source, b.destination, &b.key));
        ends.then_with(|| compare(&a.arguments, &b.arguments))
    }
}

impl PartialOrd for Identity {
    fn partial_cmp(&self, other: &Identity) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Identity {}

impl Key for Identity {
    fn hash64(&self) -> u64 {
        let ends = hash_bytes(self.0.source.hash64() ^ self.0.destination.hash64().rotate_left(17), &self.0.key);
        let one = |hash: u64, a: &Argument| hash_bytes(hash ^ a.value.view().hash(u64::from(a.tag)), &a.name);
        self.0.arguments.iter().fold(ends, one)
    }
}

impl Item for BindingId {
    fn order(&self) -> u64 {
        self.0
    }
}

/// Why an object was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemovalCause {
    /// By a command.
    Asked,
    /// The last binding from an auto-delete exchange was removed.
    AutoDelete,
    /// The node restarted, and the object was not durable.
    Restart,
    /// Its virtual host, or an end of the binding, was removed.
    Gone,
}

/// An effect of a change; events are in the order of their occurrence.
#[derive(Clone, PartialEq, Debug)]
pub enum RouterEvent {
    /// A virtual host was added.
    VhostAdded(VhostId),
    /// A virtual host was removed; events for its contents came before.
    VhostRemoved(VhostId),
    /// An exchange was declared.
    ExchangeDeclared(Arc<Exchange>),
    /// The effective alternate exchange changed.
    ExchangeChanged(Arc<Exchange>),
    /// An exchange was deleted.
    ExchangeDeleted(Arc<Exchange>, RemovalCause),
    /// A queue can be routed to by its name.
    QueueAdded(Arc<Queue>),
    /// A queue cannot be routed to any more.
    QueueRemoved(Arc<Queue>, RemovalCause),
    /// A binding was added.
    Bound(Arc<Binding>),
    /// A binding was removed.
    Unbound(Arc<Binding>, RemovalCause),
}

/// See the module.
#[derive(Clone, Default, Debug)]
pub struct Definitions {
    pub(crate) vhosts: Hamt<VhostId, ()>,
    pub(crate) exchanges: Hamt<ExchangeId, Arc<Exchange>>,
    pub(crate) exchange_names: Hamt<Name, ExchangeId>,
    pub(crate) queues: Hamt<QueueId, Arc<Queue>>,
    pub(crate) queue_names: Hamt<Name, QueueId>,
    pub(crate) bindings: Hamt<BindingId, Arc<Binding>>,
    pub(crate) identities: Hamt<Identity, ()>,
    outgoing: Hamt<ExchangeId, List<BindingId>>,
    incoming: Hamt<Destination, List<BindingId>>,
    pub(crate) next_exchange: u64,
    pub(crate) next_binding: u64,
}

fn values<K, V: Clone>(map: &Hamt<K, V>) -> Vec<V> {
    let mut all = Vec::with_capacity(map.len());
    map.for_each(&mut |_, value| all.push(value.clone()));
    all
}

impl Definitions {
    /// Returns an exchange by its name.
    #[must_use]
    pub fn exchange(&self, vhost: VhostId, name: &[u8]) -> Option<&Arc<Exchange>> {
        let id = self.exchange_names.find(Name::hash_of(vhost, name), |n| n.compare(vhost, name))?;
        self.exchanges.get(id)
    }

    /// Returns an exchange by its id.
    #[must_use]
    pub fn exchange_by_id(&self, id: ExchangeId) -> Option<&Arc<Exchange>> {
        self.exchanges.get(&id)
    }

    /// Returns a queue by its name.
    #[must_use]
    pub fn queue(&self, vhost: VhostId, name: &[u8]) -> Option<&Arc<Queue>> {
        let id = self.queue_names.find(Name::hash_of(vhost, name), |n| n.compare(vhost, name))?;
        self.queues.get(id)
    }

    /// Returns a queue by its id.
    #[must_use]
    pub fn queue_by_id(&self, id: QueueId) -> Option<&Arc<Queue>> {
        self.queues.get(&id)
    }

    /// All virtual hosts, sorted.
    #[must_use]
    pub fn vhosts(&self) -> Vec<VhostId> {
        let mut all = Vec::new();
        self.vhosts.for_each(&mut |id, ()| all.push(*id));
        all.sort_unstable();
        all
    }

    /// All exchanges, in the order of their declaration.
    #[must_use]
    pub fn exchanges(&self) -> Vec<Arc<Exchange>> {
        let mut all = values(&self.exchanges);
        all.sort_unstable_by_key(|exchange| exchange.id);
        all
    }

    /// All queues by id.
    #[must_use]
    pub fn queues(&self) -> Vec<Arc<Queue>> {
        let mut all = values(&self.queues);
        all.sort_unstable_by_key(|queue| queue.id);
        all
    }

    /// All bindings, in the order of their creation.
    #[must_use]
    pub fn bindings(&self) -> Vec<Arc<Binding>> {
        let mut all = values(&self.bindings);
        all.sort_unstable_by_key(|binding| binding.id);
        all
    }

    /// The bindings from an exchange, in the order of their creation.
    #[must_use]
    pub fn bindings_from(&self, source: ExchangeId) -> Vec<Arc<Binding>> {
        self.listed(self.outgoing.get(&source))
    }

    /// The bindings to a queue or an exchange, in the order of their creation.
    #[must_use]
    pub fn bindings_to(&self, destination: Destination) -> Vec<Arc<Binding>> {
        self.listed(self.incoming.get(&destination))
    }

    /// Whether bindings have this exchange as their source.
    #[must_use]
    pub fn in_use(&self, source: ExchangeId) -> bool {
        self.outgoing.get(&source).is_some()
    }

    fn listed(&self, ids: Option<&List<BindingId>>) -> Vec<Arc<Binding>> {
        let ids = ids.into_iter().flat_map(List::iter);
        ids.filter_map(|id| self.bindings.get(id).cloned()).collect()
    }

    /// Applies a change and records its effects. Changing a missing object does nothing.
    pub(crate) fn apply(&mut self, change: &Change, events: &mut Vec<RouterEvent>) {
        match change {
            Change::VhostAdded(id) => {
                if self.vhosts.insert(*id, ()).is_none() {
                    events.push(RouterEvent::VhostAdded(*id));
                }
            }
            Change::VhostRemoved(id) => self.remove_vhost(*id, events),
            Change::ExchangeDeclared(exchange) => self.add_exchange(exchange.clone(), events),
            Change::ExchangeDeleted(id) => self.remove_exchange(*id, RemovalCause::Asked, events),
            Change::PolicyAlternate(id, name) => {
                let Some(exchange) = self.exchanges.get_mut(id) else { return };
                Arc::make_mut(exchange).policy_alternate.clone_from(name);
                events.push(RouterEvent::ExchangeChanged(exchange.clone()));
            }
            Change::QueueAdded(queue) => self.add_queue(queue.clone(), events),
            Change::QueueRemoved(id) => self.remove_queue(*id, RemovalCause::Asked, events),
            Change::Bound(binding) => self.add_binding(binding.clone(), events),
            Change::Unbound(id) => self.remove_binding(*id, RemovalCause::Asked, events),
            Change::Restarted => self.drop_transient(events),
        }
    }

    pub(crate) fn add_exchange(&mut self, exchange: Arc<Exchange>, events: &mut Vec<RouterEvent>) {
        self.next_exchange = self.next_exchange.max(exchange.id.0 + 1);
        let name = Name { vhost: exchange.vhost, name: exchange.name.clone() };
        self.exchange_names.insert(name, exchange.id);
        self.exchanges.insert(exchange.id, exchange.clone());
        events.push(RouterEvent::ExchangeDeclared(exchange));
    }

    pub(crate) fn add_queue(&mut self, queue: Arc<Queue>, events: &mut Vec<RouterEvent>) {
        self.queue_names.insert(Name { vhost: queue.vhost, name: queue.name.clone() }, queue.id);
        self.queues.insert(queue.id, queue.clone());
        events.push(RouterEvent::QueueAdded(queue));
    }

    pub(crate) fn add_binding(&mut self, binding: Arc<Binding>, events: &mut Vec<RouterEvent>) {
        self.next_binding = self.next_binding.max(binding.id.0 + 1);
        let ends = match binding.destination {
            Destination::Queue(id) => self.queues.get(&id).is_some(),
            Destination::Exchange(id) => self.exchanges.get(&id).is_some(),
        };
        if !ends || self.exchanges.get(&binding.source).is_none() {
            return;
        }
        self.identities.insert(Identity(binding.clone()), ());
        list_in(&mut self.outgoing, binding.source, binding.id);
        list_in(&mut self.incoming, binding.destination, binding.id);
        self.bindings.insert(binding.id, binding.clone());
        events.push(RouterEvent::Bound(binding));
    }

    /// Removes a binding, and its source exchange if that is auto-delete and this was its last one.
    fn remove_binding(&mut self, id: BindingId, why: RemovalCause, events: &mut Vec<RouterEvent>) {
        // An exchange deleted with its last binding may have been the destination of another exchange's last binding.
        let mut gone = vec![(id, why)];
        while let Some((id, why)) = gone.pop() {
            let Some(source) = self.unlink(id, why, events) else { continue };
            let auto_delete = |exchange: &Arc<Exchange>| exchange.auto_delete && !self.in_use(source);
            if self.exchanges.get(&source).is_some_and(auto_delete) {
                let incoming = self.incoming.get(&Destination::Exchange(source));
                gone.extend(incoming.into_iter().flat_map(List::iter).map(|id| (*id, RemovalCause::Gone)));
                self.forget_exchange(source, RemovalCause::AutoDelete, events);
            }
        }
    }

    /// Removes only the binding; returns its source.
    fn unlink(&mut self, id: BindingId, why: RemovalCause, events: &mut Vec<RouterEvent>) -> Option<ExchangeId> {
        let binding = self.bindings.remove(&id)?;
        self.identities.remove(&Identity(binding.clone()));
        list_out(&mut self.outgoing, &binding.source, id);
        list_out(&mut self.incoming, &binding.destination, id);
        let source = binding.source;
        events.push(RouterEvent::Unbound(binding, why));
        Some(source)
    }

    fn forget_exchange(&mut self, id: ExchangeId, why: RemovalCause, events: &mut Vec<RouterEvent>) {
        let Some(exchange) = self.exchanges.remove(&id) else { return };
        self.exchange_names.remove(&Name { vhost: exchange.vhost, name: exchange.name.clone() });
        events.push(RouterEvent::ExchangeDeleted(exchange, why));
    }

    fn remove_exchange(&mut self, id: ExchangeId, why: RemovalCause, events: &mut Vec<RouterEvent>) {
        if self.exchanges.get(&id).is_none() {
            return;
        }
        // First the bindings from it, so that it is not deleted again with its last one.
        for binding in self.bindings_from(id) {
            self.unlink(binding.id, RemovalCause::Gone, events);
        }
        self.forget_exchange(id, why, events);
        for binding in self.bindings_to(Destination::Exchange(id)) {
            self.remove_binding(binding.id, RemovalCause::Gone, events);
        }
    }

    fn remove_queue(&mut self, id: QueueId, why: RemovalCause, events: &mut Vec<RouterEvent>) {
        let Some(queue) = self.queues.remove(&id) else { return };
        let name = Name { vhost: queue.vhost, name: queue.name.clone() };
        if self.queue_names.get(&name) == Some(&id) {
            self.queue_names.remove(&name);
        }
        events.push(RouterEvent::QueueRemoved(queue, why));
        for binding in self.bindings_to(Destination::Queue(id)) {
            self.remove_binding(binding.id, RemovalCause::Gone, events);
        }
    }

    fn remove_vhost(&mut self, id: VhostId, events: &mut Vec<RouterEvent>) {
        if self.vhosts.remove(&id).is_none() {
            return;
        }
        for exchange in self.exchanges().iter().filter(|exchange| exchange.vhost == id) {
            self.remove_exchange(exchange.id, RemovalCause::Gone, events);
        }
        for queue in self.queues().iter().filter(|queue| queue.vhost == id) {
            self.remove_queue(queue.id, RemovalCause::Gone, events);
        }
        events.push(RouterEvent::VhostRemoved(id));
    }

    fn drop_transient(&mut self, events: &mut Vec<RouterEvent>) {
        for exchange in self.exchanges().iter().filter(|exchange| !exchange.durable) {
            self.remove_exchange(exchange.id, RemovalCause::Restart, events);
        }
        for queue in self.queues().iter().filter(|queue| !queue.durable) {
            self.remove_queue(queue.id, RemovalCause::Restart, events);
        }
    }
}

fn list_in<K: Key>(lists: &mut Hamt<K, List<BindingId>>, key: K, id: BindingId) {
    match lists.get_mut(&key) {
        Some(list) => list.insert(id),
        None => _ = lists.insert(key, List::One(id)),
    }
}

fn list_out<K: Key>(lists: &mut Hamt<K, List<BindingId>>, key: &K, id: BindingId) {
    let Some(list) = lists.get_mut(key) else { return };
    list.remove(id.0);
    if list.is_empty() {
        lists.remove(key);
    }
}
