//! Exchanges and bindings: routing of messages to queues.
//!
//! Layer 4. Protocol-independent (names of exchange types and of a few arguments and headers are those that RabbitMQ's clients send), without I/O or
//! clock. [`Router`] is a state machine on the log: [`Router::plan`] makes records of commands, [`Router::apply`] changes state. [`SharedRouter`] is
//! the routing state that any thread reads.
//!
//! **Invariants.** Ids are never reused. A binding is identified by source, destination, key and arguments. A message is routed to a queue once, by
//! whichever paths, and enters an exchange once. Routing uses committed state only; between two calls of [`Router::publish`] it is a complete state,
//! never half a record. Routing never blocks and allocates nothing once its scratch has grown; it costs at most one step per word and trie node, for
//! any patterns and keys, and can be paused after a number of steps and resumed later ([`Snapshot::route_within`]).
//!
//! A virtual host has only the default exchange at first. All others, including those that a protocol predeclares, are declared by the code that adds
//! the virtual host, in the same call of [`Router::plan`].

mod change;
mod command;
mod definitions;
mod error;
mod hamt;
mod headers;
mod ids;
mod index;
mod kind;
mod list;
mod machine;
mod objects;
mod ring;
mod snapshot;
mod target;
mod topic;
mod value;

pub use command::{
    ARGUMENT_BYTES_MAX, BINDING_KEY_BYTES_MAX, Bind, Command, Declare, End, Limits, NAME_BYTES_MAX, Reply,
};
pub use definitions::{Definitions, RemovalCause, RouterEvent};
pub use error::{Field, Limited, RouterError};
pub use ids::{BindingId, Destination, ExchangeId, QueueId, VhostId};
pub use kind::{
    DELAYED_TYPE, DOWNSTREAM_NAME, DOWNSTREAM_VHOST, Downstream, FEDERATION_UPSTREAM, HASH_HEADER, HASH_PROPERTY,
    HashOn, Kind, MAX_HOPS, Property, WEIGHT_MAX,
};
pub use machine::{Plan, Proposed, Router};
pub use objects::{Binding, Exchange, Queue};
pub use snapshot::{
    Bare, DELAY_HEADER, DELAY_MS_MAX, Delayed, Entry, Hops, Message, MessageView, Outcome, PausedRouting, Route,
    Routed, Scratch, SharedRouter, Snapshot,
};
pub use value::{Argument, Value, ValueRef, decode_arguments, encode_arguments, lookup, sorted};
