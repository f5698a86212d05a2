//! Queues: per partition a lease engine that is fed with committed entries, and the consumers that it delivers to.
//!
//! ```text
//!   publish ──> drafts, one body for all queues of the shard ──> journal ──commit──> lease engine: appended
//!        \_ early: lease engine directly                                                  │
//!   settle ──> lease engine (tail) ──record, one a queue and flush──> journal ──commit──> lease engine: apply
//!                                                                                         │
//!   consumers <── deliveries <── bodies from the tail cache or the disk <── grants <── pump
//!   mover <────── dead messages <────────────/      publishes them elsewhere, and says so: settled
//! ```
//!
//! Messages with a delivery time far ahead are parked in their engine; an index of times finds them when they are due ([`delays`]).
//!
//! A stream is a queue without a lease engine ([`stream`]): its consumers read the log, each at its own offset, with the same credit.
//!
//! Applied: outcomes of messages, from records and entries alone. Tail: proposed outcomes. Soft: consumers and their leases; consumers are
//! re-attached with no leases when a new term begins. A queue is pumped by one thread at a time, so that each consumer receives messages in order.

mod attach;
mod closing;
mod credit;
mod dead;
pub(crate) mod delays;
mod direct;
mod expiry;
mod heads;
mod host;
mod publish;
mod pump;
mod read;
mod repair;
mod settle;
mod sizes;
mod stream;
pub(crate) mod view;

pub(crate) use attach::Consumers;
pub(crate) use dead::DeadLetterMover;
pub(crate) use direct::Directs;
pub(crate) use host::{QueueHost, Queues};
pub(crate) use pump::lease_ms;
pub(crate) use stream::StreamHost;

use crate::shard::Shard;
use std::sync::Arc;

/// Adds a shard to those that are pumped afterwards, unless it is there already.
pub(crate) fn note_shard(shards: &mut Vec<Arc<Shard>>, shard: Arc<Shard>) {
    if !shards.iter().any(|known| known.id == shard.id) {
        shards.push(shard);
    }
}
