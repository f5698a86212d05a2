//! Connections: sockets on one side, a sans-IO session and the broker on the other.
//!
//! ```text
//!            accept ──▶ Gate (how many, from where)
//!               │
//!   socket ──▶ input ──▶ Lanes (memory permit) ──▶ session ──▶ broker
//!   socket ◀── output ◀─────────────────────────── session ◀── mailbox ◀── replies, events, permits
//!                 └──────▶ ahead: what lies on the disk ──▶ readers' threads ──▶ mailbox
//! ```
//!
//! One task serves one connection and does nothing that could block another one: its turns have a bounded number of steps, and one that
//! needs more goes on on a [worker thread](workers). What a connection may cost:
//!
//! - silent: its task and its session, no buffers;
//! - taking a request in: [`FREE_BYTES`] without a permit, the rest under one;
//! - a request in work: a permit for what it takes when it is decoded, and what it holds once it only waits; one with messages keeps its
//!   permit until the response is written, the others of a user and of a connection have [a share](shares) of the memory;
//! - a read on its way: what it may bring, counted with the responses;
//! - an answer that may be long whatever its request: [room for it](answers) from before it is made until it is taken;
//! - a response that the client does not take: counted, and ended by `write_stall_ms_max`, or sooner when responses over
//!   all connections come near `output_bytes_max`. Those of one connection bring its own reads to a halt at a sixteenth.
//!
//! Who holds more than its share of what others wait for has to get on: a sender and a reader at a least rate, a request
//! that only waits within [some seconds](admission). Else its connection is closed.
//!
//! Layer 5, the lowest of the crates that make the server: it sees the broker through [`handle`], and no HTTP, no configuration file and no
//! command line. What all listeners share is here too: [`users`] and [tokens](oauth), the [audit log](audit), [`memory`], and queries of what is
//! [`declared`].

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
