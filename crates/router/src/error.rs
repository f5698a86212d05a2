//! Why the router does not do what it was told. Each protocol has its own texts and codes for these.

use crate::ids::{Shown, VhostId};
use bytes::Bytes;
use std::fmt;

/// Which of an exchange's properties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// Its type.
    Kind,
    /// Whether it outlives a restart.
    Durable,
    /// Whether it goes with its last binding.
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

/// What there is a limit of.
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
    /// Bytes of a binding key.
    KeyBytes,
    /// Bytes of all arguments of an exchange or a binding.
    ArgumentBytes,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouterError {
    /// There is no such virtual host.
    NoVhost(VhostId),
    /// There is no such exchange.
    NoExchange(Bytes),
    /// There is no such queue.
    NoQueue(Bytes),
    /// The exchange is there and is another one than declared.
    Inequivalent {
        /// The exchange.
        exchange: Bytes,
        /// What differs first.
        field: Field,
        /// As declared now; `None` for an alternate exchange that is not given.
        received: Option<Bytes>,
        /// As it is.
        current: Option<Bytes>,
    },
    /// A queue or virtual host with this name or id is there already.
    Exists(Bytes),
    /// The exchange is to be deleted when unused, and has bindings.
    InUse(Bytes),
    /// The default exchange has the empty name: it is there always and takes no declaration and no binding.
    DefaultExchange,
    /// No such type of exchange.
    UnknownKind(Bytes),
    /// An argument of an exchange is not what its type needs.
    BadArgument {
        /// The argument.
        name: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A binding is not what the exchange's type needs.
    BadBinding {
        /// Its key.
        key: Bytes,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A limit.
    TooMany {
        /// Of what.
        what: Limited,
        /// The limit.
        max: u64,
    },
}

impl fmt::Display for RouterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVhost(id) => write!(f, "there is no virtual host with id {id}"),
            Self::NoExchange(name) => write!(f, "there is no exchange {}", Shown(name)),
            Self::NoQueue(name) => write!(f, "there is no queue {}", Shown(name)),
            Self::Inequivalent { exchange, field, received, current } => {
                let show = |value: &Option<Bytes>| {
                    value.as_deref().map_or_else(|| "none".to_owned(), |value| Shown(value).to_string())
                };
                let (exchange, field) = (Shown(exchange), field.name());
                let (received, current) = (show(received), show(current));
                write!(
                    f,
                    "exchange {exchange} has {field} {current}, not {received}: declare it as it is, or delete it first"
                )
            }
            Self::Exists(name) => write!(f, "{} exists already", Shown(name)),
            Self::InUse(name) => write!(f, "exchange {} has bindings: remove them first", Shown(name)),
            Self::DefaultExchange => {
                write!(f, "the default exchange cannot be declared, deleted or bound: use another one")
            }
            Self::UnknownKind(name) => write!(f, "{} is no type of exchange", Shown(name)),
            Self::BadArgument { name, problem } => write!(f, "argument '{name}' {problem}"),
            Self::BadBinding { key, problem } => write!(f, "binding key {}: {problem}", Shown(key)),
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
