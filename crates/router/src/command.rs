//! Commands to the router, and their checks.

use crate::change::Change;
use crate::definitions::{Definitions, Identity, RemovalCause, RouterEvent};
use crate::error::{Field, Limited, RouterError};
use crate::ids::{BindingId, Destination, ExchangeId, QueueId, VhostId};
use crate::kind::Kind;
use crate::objects::{Binding, Exchange, Queue};
use crate::value::{Argument, size, sorted};
use bytes::Bytes;
use std::sync::Arc;

/// The longest name of an exchange or a queue. Bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// The longest binding key. Bytes.
pub const BINDING_KEY_BYTES_MAX: usize = 255;
/// The most bytes of all arguments of an exchange or binding. Bytes.
pub const ARGUMENT_BYTES_MAX: usize = 64 << 10;

/// Limits on the number of objects, over all virtual hosts.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Virtual hosts.
    pub vhosts_max: u64,
    /// Exchanges.
    pub exchanges_max: u64,
    /// Queues.
    pub queues_max: u64,
    /// Bindings. One takes about 700 bytes.
    pub bindings_max: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { vhosts_max: 10_000, exchanges_max: 100_000, queues_max: 1_000_000, bindings_max: 2_000_000 }
    }
}

/// An exchange to declare.
#[derive(Clone, PartialEq, Debug)]
pub struct Declare {
    /// The virtual host.
    pub vhost: VhostId,
    /// Its name.
    pub name: Bytes,
    /// Its type; see [`Kind::declared`].
    pub kind: Kind,
    /// See [`Exchange::durable`].
    pub durable: bool,
    /// See [`Exchange::auto_delete`].
    pub auto_delete: bool,
    /// See [`Exchange::internal`].
    pub internal: bool,
    /// See [`Exchange::alternate`].
    pub alternate: Option<Bytes>,
    /// All arguments, unchanged.
    pub arguments: Vec<Argument>,
}

/// The end of a binding, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// A queue.
    Queue(Bytes),
    /// An exchange.
    Exchange(Bytes),
}

/// A binding to add or remove.
#[derive(Clone, PartialEq, Debug)]
pub struct Bind {
    /// The virtual host.
    pub vhost: VhostId,
    /// The source exchange.
    pub source: Bytes,
    /// The destination.
    pub destination: End,
    /// Its key.
    pub key: Bytes,
    /// Its arguments, in any order.
    pub arguments: Vec<Argument>,
}

/// A command to the router.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Adds a virtual host. It has the default exchange and no other.
    AddVhost(VhostId),
    /// Removes a virtual host with everything in it.
    RemoveVhost(VhostId),
    /// Declares an exchange. Changes nothing if it exists.
    Declare(Declare),
    /// Deletes an exchange. Changes nothing if it does not exist.
    Delete {
        /// The virtual host.
        vhost: VhostId,
        /// Its name.
        name: Bytes,
        /// Refuse if bindings have it as their source.
        if_unused: bool,
    },
    /// Sets or removes the alternate exchange that a policy defines.
    PolicyAlternate {
        /// The virtual host.
        vhost: VhostId,
        /// Its name.
        name: Bytes,
        /// The name of the alternate exchange.
        alternate: Option<Bytes>,
    },
    /// Adds a queue.
    AddQueue(Queue),
    /// Removes a queue. Changes nothing if it does not exist.
    RemoveQueue(QueueId),
    /// Adds a binding. Changes nothing if it exists.
    Bind(Bind),
    /// Removes a binding. Changes nothing if it does not exist.
    Unbind(Bind),
    /// The node has restarted: removes exchanges and queues that are not durable.
    Restarted,
}

/// The effect of a command once it is committed.
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    /// The changes in order. Empty if nothing changes.
    pub events: Vec<RouterEvent>,
}

impl Reply {
    /// The exchanges that are deleted with their last binding.
    pub fn auto_deleted(&self) -> impl Iterator<Item = &Arc<Exchange>> {
        self.events.iter().filter_map(|event| match event {
            RouterEvent::ExchangeDeleted(exchange, RemovalCause::AutoDelete) => Some(exchange),
            _ => None,
        })
    }
}

/// Returns the change of a command, if any.
pub(crate) fn plan(now: &Definitions, limits: &Limits, command: &Command) -> Result<Option<Change>, RouterError> {
    match command {
        Command::AddVhost(id) => {
            if now.vhosts.get(id).is_some() {
                return Ok(None);
            }
            within(Limited::Vhosts, now.vhosts.len() + 1, limits.vhosts_max)?;
            Ok(Some(Change::VhostAdded(*id)))
        }
        Command::RemoveVhost(id) => {
            vhost(now, *id)?;
            Ok(Some(Change::VhostRemoved(*id)))
        }
        Command::Declare(declare) => declared(now, limits, declare),
        Command::Delete { vhost: id, name, if_unused } => {
            vhost(now, *id)?;
            not_default(name)?;
            let Some(exchange) = now.exchange(*id, name) else { return Ok(None) };
            if *if_unused && now.in_use(exchange.id) {
                return Err(RouterError::InUse(name.clone()));
            }
            Ok(Some(Change::ExchangeDeleted(exchange.id)))
        }
        Command::PolicyAlternate { vhost: id, name, alternate } => {
            alternate.iter().try_for_each(|name| within(Limited::NameBytes, name.len(), NAME_BYTES_MAX as u64))?;
            let exchange = exchange(now, *id, name)?;
            let same = exchange.policy_alternate == *alternate;
            Ok((!same).then(|| Change::PolicyAlternate(exchange.id, alternate.clone())))
        }
        Command::AddQueue(queue) => {
            vhost(now, queue.vhost)?;
            within(Limited::NameBytes, queue.name.len(), NAME_BYTES_MAX as u64)?;
            if now.queue(queue.vhost, &queue.name).is_some() || now.queue_by_id(queue.id).is_some() {
                return Err(RouterError::Exists(queue.name.clone()));
            }
            within(Limited::Queues, now.queues.len() + 1, limits.queues_max)?;
            Ok(Some(Change::QueueAdded(Arc::new(queue.clone()))))
        }
        Command::RemoveQueue(id) => Ok(now.queue_by_id(*id).map(|_| Change::QueueRemoved(*id))),
        Command::Bind(bind) => bound(now, limits, bind),
        Command::Unbind(bind) => {
            let identity = Identity(Arc::new(wanted(now, bind)?));
            // The stored key has the id, which the requested one lacks.
            let found = now.identities.find_key(&identity);
            Ok(found.map(|identity| Change::Unbound(identity.0.id)))
        }
        Command::Restarted => {
            let transient = now.exchanges.any(|exchange| !exchange.durable) || now.queues.any(|queue| !queue.durable);
            Ok(transient.then_some(Change::Restarted))
        }
    }
}

fn within(what: Limited, count: usize, max: u64) -> Result<(), RouterError> {
    if count as u64 <= max { Ok(()) } else { Err(RouterError::TooMany { what, max }) }
}

fn vhost(now: &Definitions, id: VhostId) -> Result<(), RouterError> {
    now.vhosts.get(&id).copied().ok_or(RouterError::NoVhost(id))
}

fn not_default(name: &Bytes) -> Result<(), RouterError> {
    if name.is_empty() { Err(RouterError::DefaultExchange) } else { Ok(()) }
}

fn exchange<'a>(now: &'a Definitions, id: VhostId, name: &Bytes) -> Result<&'a Arc<Exchange>, RouterError> {
    vhost(now, id)?;
    not_default(name)?;
    now.exchange(id, name).ok_or_else(|| RouterError::NoExchange(name.clone()))
}

fn declared(now: &Definitions, limits: &Limits, declare: &Declare) -> Result<Option<Change>, RouterError> {
    vhost(now, declare.vhost)?;
    not_default(&declare.name)?;
    if let Some(exchange) = now.exchange(declare.vhost, &declare.name) {
        return equivalent(exchange, declare).map(|()| None);
    }
    for name in declare.alternate.iter().chain([&declare.name]) {
        within(Limited::NameBytes, name.len(), NAME_BYTES_MAX as u64)?;
    }
    within(Limited::ArgumentBytes, size(&declare.arguments), ARGUMENT_BYTES_MAX as u64)?;
    within(Limited::Exchanges, now.exchanges.len() + 1, limits.exchanges_max)?;
    Ok(Some(Change::ExchangeDeclared(Arc::new(Exchange {
        id: ExchangeId(now.next_exchange),
        vhost: declare.vhost,
        name: declare.name.clone(),
        kind: declare.kind.clone(),
        durable: declare.durable,
        auto_delete: declare.auto_delete,
        internal: declare.internal,
        alternate: declare.alternate.clone(),
        policy_alternate: None,
        arguments: sorted(declare.arguments.clone()),
    }))))
}

/// Checks that a declaration is equivalent to the existing exchange: in type, durability, auto-delete, internal and alternate exchange only.
fn equivalent(exchange: &Exchange, declare: &Declare) -> Result<(), RouterError> {
    let text = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    let bool = |bit: bool| text(if bit { "true" } else { "false" });
    let fields = [
        (Field::Kind, text(declare.kind.name()), text(exchange.kind.name())),
        (Field::Durable, bool(declare.durable), bool(exchange.durable)),
        (Field::AutoDelete, bool(declare.auto_delete), bool(exchange.auto_delete)),
        (Field::Internal, bool(declare.internal), bool(exchange.internal)),
        (Field::Alternate, declare.alternate.clone(), exchange.alternate.clone()),
    ];
    match fields.into_iter().find(|(_, received, current)| received != current) {
        None => Ok(()),
        Some((field, received, current)) => {
            Err(RouterError::Inequivalent { exchange: exchange.name.clone(), field, received, current })
        }
    }
}

/// Returns the binding of a command, without its id.
fn wanted(now: &Definitions, bind: &Bind) -> Result<Binding, RouterError> {
    let source = exchange(now, bind.vhost, &bind.source)?;
    let destination = match &bind.destination {
        End::Queue(name) => {
            let queue = now.queue(bind.vhost, name).ok_or_else(|| RouterError::NoQueue(name.clone()))?;
            Destination::Queue(queue.id)
        }
        End::Exchange(name) => Destination::Exchange(exchange(now, bind.vhost, name)?.id),
    };
    let arguments = sorted(bind.arguments.clone());
    Ok(Binding { id: BindingId(now.next_binding), source: source.id, destination, key: bind.key.clone(), arguments })
}

fn bound(now: &Definitions, limits: &Limits, bind: &Bind) -> Result<Option<Change>, RouterError> {
    let binding = wanted(now, bind)?;
    within(Limited::KeyBytes, bind.key.len(), BINDING_KEY_BYTES_MAX as u64)?;
    within(Limited::ArgumentBytes, size(&bind.arguments), ARGUMENT_BYTES_MAX as u64)?;
    let source = exchange(now, bind.vhost, &bind.source)?;
    source.kind.check_binding(binding.destination, &bind.key, &binding.arguments)?;
    let binding = Arc::new(binding);
    if now.identities.find_key(&Identity(binding.clone())).is_some() {
        return Ok(None);
    }
    within(Limited::Bindings, now.bindings.len() + 1, limits.bindings_max)?;
    Ok(Some(Change::Bound(binding)))
}
