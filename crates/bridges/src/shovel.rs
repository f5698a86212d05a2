//! Shovels: they move messages from a queue or an exchange to another one, on this broker or others, while a parameter of the component
//! `shovel` defines them.
//!
//! ```text
//!   Directory::shovel_changes ──▶ supervisor ── one worker per shovel ──▶ status (management API, metrics)
//!                                               │
//!                            source Link ───────┴─────── destination Link          a Link is an amqp::Client and its stream
//!                                 │                            │
//!                    TCP, or inside::serve: an in-memory AMQP connection to this broker
//! ```
//!
//! **Order and delivery guarantees.** Messages are published in the order of delivery. With `on-confirm` a message is acknowledged when the
//! destination has confirmed it and all before it; an error closes both ends, and unacknowledged messages are delivered again. So no message
//! is lost, and messages in flight may be duplicated after an error.
//!
//! **Memory.** That of its two [links](crate::links), and one more message.

mod message;
mod status;
mod supervisor;
mod worker;

pub use status::{Shovels, Shown};
pub use supervisor::start;
