//! Federation: exchanges and queues here get messages of exchanges and queues elsewhere, as long as a policy names an upstream for them.
//!
//! ```text
//!   Directory::federation_news ──▶ supervisor ── one link an upstream of an exchange or a queue ──▶ status (management API, metrics)
//!
//!   upstream                                                             here
//!   exchange X ─ bindings of the one here ─▶ "federation: X -> us B" ─▶ queue "federation: X -> us" ══ Pipe ══▶ exchange X
//!   queue Q ══════════════════════ Pipe, while Q here is empty and a consumer waits for messages ══════════════▶ queue Q
//! ```
//!
//! **Bindings.** What an exchange here is bound with, the one there is bound with, to an exchange of the link's own; so only what a binding
//! here wants is sent. A link that begins makes a second such exchange beside the one that may be there, binds it as it is now, and
//! deletes the first one: no message is missed, and no binding of an earlier life stays.
//!
//! **Circles.** `x-received-from` of a message says which links it came over; one that came over `max-hops` of them, or was here before,
//! goes no further. `x-bound-from` of a binding does the same in the other direction.
//!
//! **Loss.** As with [shovels](crate::shovel): with `on-confirm` nothing is lost, and what was under way when something went wrong may
//! arrive twice. The queue there keeps messages while the link is down. It is deleted when the link is no longer needed and its
//! upstream is there, never because this broker stops.
//!
//! Source: RabbitMQ's federation plugins, whose names and headers these are, so that a broker of either kind can be at each end.

mod exchange;
mod link;
mod message;
mod queue;
mod status;
mod supervisor;
mod wanted;

pub use status::{Federation, Key, Of};
pub use supervisor::start;
