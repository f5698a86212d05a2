//! Ids and names.

use crate::hamt::{Key, hash_bytes, hash_number};
use bytes::Bytes;
use std::cmp::Ordering;
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl Key for $name {
            fn hash64(&self) -> u64 {
                hash_number(u64::from(self.0))
            }
        }
    };
}

id!(/// A virtual host: a namespace of exchanges and queues. Assigned by the owner of virtual hosts; never reused.
    VhostId(u32));
id!(/// An exchange's incarnation. Given by the router; never reused.
    ExchangeId(u64));
id!(/// A queue's incarnation. Assigned by the owner of queues; never reused.
    QueueId(u64));
id!(/// A binding. Given by the router in the order in which bindings were made; never reused.
    BindingId(u64));

/// The destination of a binding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Destination {
    /// A queue.
    Queue(QueueId),
    /// Another exchange, which routes further.
    Exchange(ExchangeId),
}

impl Key for Destination {
    fn hash64(&self) -> u64 {
        match self {
            Destination::Queue(id) => id.hash64(),
            Destination::Exchange(id) => !id.hash64(),
        }
    }
}

/// A name in a virtual host. Any bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Name {
    pub(crate) vhost: VhostId,
    pub(crate) name: Bytes,
}

impl Name {
    pub(crate) fn hash_of(vhost: VhostId, name: &[u8]) -> u64 {
        hash_bytes(u64::from(vhost.0), name)
    }

    pub(crate) fn compare(&self, vhost: VhostId, name: &[u8]) -> Ordering {
        self.vhost.cmp(&vhost).then_with(|| (*self.name).cmp(name))
    }
}

impl Key for Name {
    fn hash64(&self) -> u64 {
        Name::hash_of(self.vhost, &self.name)
    }
}

/// Bytes from clients as text, for error messages.
pub(crate) struct Lossy<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.0.escape_ascii())
    }
}
