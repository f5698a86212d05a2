//! Errors of the router. Each protocol maps them to its own texts and codes.

use crate::ids::{Lossy, VhostId};
use bytes::Bytes;
use std::fmt;

/// A property of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// Its type.
    Kind,
    /// Whether it survives a restart.
    Durable,
    /// Whether it is deleted with its last binding.
    AutoDelete,
    /// Whether clients may not publish to it.
    Internal,
    /// Its alternate exchange.
    Alternate,
}

impl Field {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Field::Kind => "type",
            Field::Durable => "durable",
            Field::AutoDelete => "auto_delete",
            Field::Internal => "internal",
            Field::Alternate => "alternate-exchange",
        }
    }
}

/// An object or size that is limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limited {
    /// Virtual hosts.
    Vhosts,
    /// Exchanges of all virtual hosts.
    Exchanges,
    /// Queues of all virtual hosts.
    Queues,
    /// Bindings of all virtual hosts.
    Bindings,
    /// Bytes of a name.
    NameBytes,
    /// The bytes of a binding key.
    KeyBytes,
    /// The bytes of all arguments of an exchange or a binding.
    ArgumentBytes,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouterError {
    /// The virtual host does not exist.
    NoVhost(VhostId),
    /// The exchange does not exist.
    NoExchange(Bytes),
    /// The queue does not exist.
    NoQueue(Bytes),
    /// The exchange exists with other properties than declared.
    Inequivalent {
        /// The exchange.
        exchange: Bytes,
        /// The first property that differs.
        field: Field,
        /// The declared value; `None` for an alternate exchange that is not given.
        received: Option<Bytes>,
        /// The existing value.
        current: Option<Bytes>,
    },
    /// A queue or virtual host with this name or id exists.
    Exists(Bytes),
    /// Deletion with `if_unused` of an exchange that has bindings.
    InUse(Bytes),
    /// The default exchange has the empty name: it always exists and cannot be declared or bound.
    DefaultExchange,
    /// The exchange type is unknown.
    UnknownKind(Bytes),
    /// An argument of an exchange is invalid for its type.
    BadArgument {
        /// The argument.
        name: &'static str,
        /// The problem.
        problem: &'static str,
    },
    /// A binding is invalid for the exchange's type.
    BadBinding {
        /// Its key.
        key: Bytes,
        /// The problem.
        problem: &'static str,
    },
    /// A limit was reached.
    TooMany {
        /// The limited object or size.
        what: Limited,
        /// The limit.
        max: u64,
    },
}

impl fmt::Display for RouterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVhost(id) => write!(f, "there is no virtual host with id {id}"),
            Self::NoExchange(name) => write!(f, "there is no exchange {}", Lossy(name)),
            Self::NoQueue(name) => write!(f, "there is no queue {}", Lossy(name)),
            Self::Inequivalent { exchange, field, received, current } => {
                let show = |value: &Option<Bytes>| {
                    value.as_deref().map_or_else(|| "none".to_owned(), |value| Lossy(value).to_string())
                };
                let (exchange, field) = (Lossy(exchange), field.name());
                let (received, current) = (show(received), show(current));
                write!(
                    f,
                    "exchange {exchange} has {field} {current}, not {received}: declare it as it is, or delete it first"
                )
            }
            Self::Exists(name) => write!(f, "{} exists already", Lossy(name)),
            Self::InUse(name) => write!(f, "exchange {} has bindings: remove them first", Lossy(name)),
            Self::DefaultExchange => {
                write!(f, "the default exchange cannot be declared, deleted or bound: use another one")
            }
            Self::UnknownKind(name) => write!(f, "{} is no type of exchange", Lossy(name)),
            Self::BadArgument { name, problem } => write!(f, "argument '{name}' {problem}"),
            Self::BadBinding { key, problem } => write!(f, "binding key {}: {problem}", Lossy(key)),
            Self::TooMany { what, max } => {
                let what = match what {
                    Limited::Vhosts => "virtual hosts",
                    Limited::Exchanges => "exchanges",
                    Limited::Queues => "queues",
                    Limited::Bindings => "bindings",
                    Limited::NameBytes => "bytes in a name",
                    Limited::KeyBytes => "bytes in a binding key",
                    Limited::ArgumentBytes => "bytes in the arguments",
                };
                write!(f, "there can be at most {max} {what}")
            }
        }
    }
}

impl std::error::Error for RouterError {}
