//! Queues: a lease engine beside the partition, fed with what is committed, and the consumers that it hands messages to.
//!
//! ```text
//!   publish ──> drafts, one body for all queues of the shard ──> journal ──commit──> lease engine: appended
//!        \_ early: lease engine at once                                                   │
//!   settle ──> lease engine (tail) ──record, one a queue and flush──> journal ──commit──> lease engine: apply
//!                                                                                         │
//!   consumers <── deliveries <── bodies from the tail cache or the disk <── grants <── pump
//!   mover <────── dead messages <────────────/      publishes them elsewhere, and says so: settled
//! ```
//!
//! What waits for a time far off is parked in its engine, and an index of times says when ([`delays`]).
//!
//! A stream is a queue without a lease engine ([`stream`]): its consumers read the log, each from a place of its own, with the same credit.
//!
//! Applied: what became of messages, by records and entries alone. Tail: what was proposed of it. Soft: consumers and what they hold; they
//! come back by themselves when a writer is taken anew, with nothing in their hands. A queue is pumped by one thread at a time, so that what
//! a consumer gets comes in order.

mod attach;
mod credit;
mod dead;
pub(crate) mod delays;
mod direct;
mod doors;
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

/// Adds a shard to those that are to be pumped afterwards, unless it is among them.
pub(crate) fn note_shard(shards: &mut Vec<Arc<Shard>>, shard: Arc<Shard>) {
    if !shards.iter().any(|known| known.id == shard.id) {
        shards.push(shard);
    }
}
