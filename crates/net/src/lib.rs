//! Connections: sockets on one side, a sans-IO session and the broker on the other.
//!
//! ```text
//!            accept ──▶ Gate (limits on connections)
//!               │
//!   socket ──▶ input ──▶ Lanes (memory permit) ──▶ session ──▶ broker
//!   socket ◀── output ◀─────────────────────────── session ◀── mailbox ◀── replies, events, permits
//!                 └──────▶ ahead: data on disk ──▶ reader threads ──▶ mailbox
//! ```
//!
//! One task serves one connection and never blocks another: its turns have a bounded number of steps, and work that
//! exceeds a turn continues on a [worker thread](workers). Memory of a connection by state:
//!
//! - idle: its task and its session, no buffers;
//! - receiving a request: [`FREE_BYTES`] without a permit, the rest under one;
//! - a request in flight: a permit for its decoded size, reduced to the size it keeps while it waits; a request with messages keeps its
//!   permit until the response is written, the others of a user and of a connection have [a share](shares) of the memory;
//! - a pending read: its maximal result size, counted with the responses;
//! - a response whose size does not depend on its request: [reserved memory](answers) from before it is built until it is taken;
//! - a response that the client does not read: counted, and ended by `write_stall_ms_max`, or sooner when the responses of
//!   all connections approach `output_bytes_max`. Responses of one connection above a sixteenth of that pause its own reads.
//!
//! A connection that holds more than its share of memory for which others wait must make progress: senders and readers at a minimum rate,
//! waiting requests within [a time limit](admission). Otherwise it is closed.
//!
//! Layer 5, the lowest of the crates that form the server: it uses the broker through [`handle`], and has no HTTP, no configuration file and
//! no command line. Parts shared by all listeners are here too: [`users`] and [tokens](oauth), the [audit log](audit), [`memory`], and queries
//! of the AMQP metadata ([`declared`]).

pub mod address;
mod admission;
mod ahead;
pub mod amqp;
mod answers;
pub mod audit;
mod connection;
pub mod declared;
mod gate;
mod gauges;
pub mod groups;
pub mod handle;
mod input;
pub mod kafka;
mod lines;
mod link;
mod listener;
pub mod mailbox;
pub mod memory;
mod metrics;
pub mod oauth;
mod output;
pub mod principal;
pub mod protocol;
mod reads;
mod shares;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod tls;
pub mod trust;
pub mod users;
mod visit;
pub mod workers;

pub use admission::{FREE_BYTES, Lanes, SMALL_FRAME_BYTES_MAX, SMALL_SHARE};
pub use answers::AnswerGauge;
pub use gate::{Gate, Place, Refusal};
pub use gauges::encode_gauges;
pub use listener::{Accept, Connections, Shared, Visitor, WireCounts, accept_loop, pause, stopped};
pub use metrics::{NetMetrics, ProtocolCounts};
pub use output::OutputGauge;
pub use trust::Trust;
pub use visit::Visit;
pub use workers::{WorkerQueue, Workers};
