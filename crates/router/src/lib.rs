//! Exchanges and bindings in front of queues: where a message goes.
//!
//! Layer 4. Knows no protocol (the names of exchange types and of a few arguments and headers are those that RabbitMQ's clients send), no
//! I/O and no clock. [`Router`] is a state machine on the log: [`Router::plan`] makes records of commands, [`Router::apply`] changes
//! state. [`SharedRouter`] is what any thread routes by.
//!
//! **Invariants.** Ids are never reused. A binding is told from others by source, destination, key and arguments. A message
//! reaches a queue once, whatever ways lead there, and enters an exchange once. What is routed by is committed; it is a whole state
//! between two calls of [`Router::publish`], never half a record. Routing waits for nobody and allocates nothing once
//! its scratch has grown; it costs a step a word and trie node at most, whatever patterns and keys are sent, and can be left after so
//! many steps and gone on with later ([`Snapshot::route_within`]).
//!
//! A virtual host has the default exchange from the beginning. All others, those that a protocol calls predeclared too, are declared
//! by whoever adds the virtual host, in the same call of [`Router::plan`].

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
mod ring;
mod snapshot;
mod topic;
mod value;

pub use command::{
    ARGUMENT_BYTES_MAX, BINDING_KEY_BYTES_MAX, Bind, Command, Declare, End, Limits, NAME_BYTES_MAX, Reply,
};
pub use definitions::{Binding, Definitions, Exchange, Queue, RouterEvent, Why};
pub use error::{Field, Limited, RouterError};
pub use ids::{BindingId, Destination, ExchangeId, QueueId, VhostId};
pub use kind::{
    DELAYED_TYPE, DOWNSTREAM_NAME, DOWNSTREAM_VHOST, Downstream, FEDERATION_UPSTREAM, HASH_HEADER, HASH_PROPERTY,
    HashOn, Kind, MAX_HOPS, Property, WEIGHT_MAX,
};
pub use machine::{Plan, Proposed, Router};
pub use snapshot::{
    Bare, DELAY_HEADER, DELAY_MS_MAX, Delayed, Entry, Hops, Message, MessageView, Outcome, PausedRouting, Route,
    Routed, Scratch, SharedRouter, Snapshot,
};
pub use value::{Argument, Value, ValueRef, decode_arguments, encode_arguments, lookup, sorted};
