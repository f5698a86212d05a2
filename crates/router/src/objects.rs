//! Exchanges, queues and bindings.

use crate::ids::{BindingId, Destination, ExchangeId, QueueId, VhostId};
use crate::kind::Kind;
use crate::target::Target;
use crate::value::Argument;
use bytes::Bytes;

/// An exchange.
#[derive(Clone, PartialEq, Debug)]
pub struct Exchange {
    /// Its id.
    pub id: ExchangeId,
    /// Its virtual host.
    pub vhost: VhostId,
    /// Its name; not empty.
    pub name: Bytes,
    /// Its type.
    pub kind: Kind,
    /// Whether it survives a restart.
    pub durable: bool,
    /// Whether it is deleted with the last binding from it.
    pub auto_delete: bool,
    /// Whether clients may not publish to it.
    pub internal: bool,
    /// The alternate exchange that its declaration names.
    pub alternate: Option<Bytes>,
    /// The alternate exchange of a policy; the declaration takes precedence.
    pub policy_alternate: Option<Bytes>,
    /// All arguments of its declaration, sorted by name.
    pub arguments: Vec<Argument>,
}

impl Exchange {
    /// The effective alternate exchange.
    #[must_use]
    pub fn effective_alternate(&self) -> Option<&Bytes> {
        self.alternate.as_ref().or(self.policy_alternate.as_ref())
    }
}

/// A queue, as far as routing needs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Its id.
    pub id: QueueId,
    /// Its virtual host.
    pub vhost: VhostId,
    /// Its name.
    pub name: Bytes,
    /// Whether it survives a restart.
    pub durable: bool,
}

/// A binding, identified by source, destination, key and arguments.
#[derive(Clone, PartialEq, Debug)]
pub struct Binding {
    /// Its id.
    pub id: BindingId,
    /// The source.
    pub source: ExchangeId,
    /// The destination.
    pub destination: Destination,
    /// Its key.
    pub key: Bytes,
    /// Its arguments, sorted by name.
    pub arguments: Vec<Argument>,
}

impl Binding {
    pub(crate) fn target(&self) -> Target {
        Target { binding: self.id, to: self.destination }
    }
}
