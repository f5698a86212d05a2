//! The deterministic world: a whole node (sessions, broker, log) on a simulated disk and clock, clients that speak the
//! Kafka protocol to it, and an oracle that knows what was promised.
//!
//! One seed decides everything: what clients do, in which order the node's parts get to run, when the power goes, what
//! the disk refuses or forgets. There are no threads and no runtime, so the same seed gives the same run.
//!
//! ```text
//!   clients ──bytes──> kafka::Session ──requests──> Broker ──> journal, store ──> SimDisk (crashes, faults)
//!      └── what they sent, what was acknowledged, what they read ──> Oracle
//!   publishers, consumers of queues ──────requests──────┤
//!   the gateway's mover of dead messages ─────requests──┘
//! ```
//!
//! What the oracle holds (crates/sim/src/oracle.rs): acknowledged is present, at its offset, for ever; what was read once is
//! read again; nothing is invented; an idempotent producer's messages are there once, in order; committed offsets never
//! go back behind an acknowledged one; what is described (settings, partitions, groups, log starts) was acknowledged last or is in
//! doubt, and a log start never goes back. What queues promise is in crates/sim/src/queues.rs: what is confirmed is there until it is
//! settled, and what is settled never comes again. What their `x-death` says of messages that die is in crates/sim/src/letters.rs: it has
//! each death once, and the gateway's own mover loses no message. A run that did too little, or met too few faults, counts as failed.

pub mod admin;
pub mod clients;
pub mod connection;
pub mod letters;
pub mod node;
pub mod oracle;
pub mod queues;
pub mod replay;
pub mod run;

pub use oracle::Oracle;
pub use run::{Mode, Report, Settings, run};
