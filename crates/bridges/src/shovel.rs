//! Shovels: they move messages from a queue or an exchange of one broker to another one, or from here to here, as long as a
//! parameter of the component `shovel` says so.
//!
//! ```text
//!   Directory::shovel_news ──▶ supervisor ── one worker a shovel ──▶ status (management API, metrics)
//!                                               │
//!                            source Link ───────┴─────── destination Link          a Link is an amqp::Client and its stream
//!                                 │                            │
//!                    TCP, or inside::serve: this broker's own AMQP connection, in memory
//! ```
//!
//! **Order and loss.** Messages are published in the order in which they came. With `on-confirm` the source hears of a message when the
//! destination has confirmed it and all before it; whatever goes wrong closes both ends, and what was not acknowledged comes again. So
//! nothing is lost, and what was under way at that moment may arrive twice.
//!
//! **Memory.** That of its two [links](crate::links), and one message more.

mod message;
mod status;
mod supervisor;
mod worker;

pub use status::{Shovels, Shown};
pub use supervisor::start;
