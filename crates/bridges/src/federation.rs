//! Federation: exchanges and queues here receive messages of upstream exchanges and queues, while a policy names an upstream for them.
//!
//! ```text
//!   Directory::federation_changes ──▶ supervisor ── one link per upstream of an exchange or a queue ──▶ status (management API, metrics)
//!
//!   upstream                                                             downstream (this broker)
//!   exchange X ─ bindings of the downstream ─▶ "federation: X -> us B" ─▶ queue "federation: X -> us" ══ Pipe ══▶ exchange X
//!   queue Q ══════════════ Pipe, while the downstream Q is empty and a consumer has free prefetch ═════════════▶ queue Q
//! ```
//!
//! **Bindings.** The bindings of the downstream exchange are replicated at the upstream, to an internal exchange of the link; so the upstream
//! sends only messages that a downstream binding wants. A starting link declares a second internal exchange beside the existing one, binds it
//! by the current bindings, and deletes the first: no message is missed, and no stale binding remains.
//!
//! **Cycles.** A message's `x-received-from` lists the links it passed; a message that passed `max-hops` links, or was on this broker before,
//! is not forwarded. A binding's `x-bound-from` does the same in the other direction.
//!
//! **Delivery guarantees.** As with [shovels](crate::shovel): with `on-confirm` no message is lost, and messages in flight may be duplicated
//! after an error. The upstream queue keeps messages while the link is down. It is deleted when the link is no longer wanted and the
//! upstream can be reached, never because this broker stops.
//!
//! Source: RabbitMQ's federation plugins. Names and headers are the same, so that either end may be RabbitMQ.

mod exchange;
mod link;
mod message;
mod queue;
mod status;
mod supervisor;
mod wanted;

pub use status::{Federation, Key, Of};
pub use supervisor::start;
