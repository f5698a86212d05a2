//! Deterministic simulation: a whole node (sessions, broker, log) on a simulated disk and clock, clients that speak the Kafka protocol to it, and an
//! oracle that checks the guarantees.
//!
//! One seed determines everything: the clients' operations, the order in which the node's parts run, power cuts, and the disk's faults. There are no
//! threads and no runtime, so the same seed gives the same run.
//!
//! ```text
//!   clients ──bytes──> kafka::Session ──requests──> Broker ──> journal, store ──> SimDisk (crashes, faults)
//!      └── what they sent, what was acknowledged, what they read ──> Oracle
//!   publishers, consumers of queues ──────requests──────┤
//!   the gateway's mover of dead messages ─────requests──┘
//! ```
//!
//! The guarantees that the oracle checks (crates/sim/src/oracle.rs): an acknowledged message is present at its offset forever; a message that was
//! read is read again; no message is invented; an idempotent producer's messages are present once, in order; committed offsets never go back behind
//! an acknowledged one; a described value (settings, partitions, groups, log starts) was acknowledged last or is in doubt, and a log start never
//! decreases. Guarantees of queues are in crates/sim/src/queues.rs: a confirmed message is present until it is settled, and a settled message is
//! never delivered again. Those of `x-death` are in crates/sim/src/letters.rs: a history has each death once, and the gateway's own mover loses no
//! message. A run with too little activity or too few faults fails.

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
