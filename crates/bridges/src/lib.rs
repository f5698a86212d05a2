//! Shovels and federation, which move messages between brokers, and the AMQP client links that both use.
//!
//! Layer 5: a link connects to another broker over a socket, and to this one in memory through `net`. Sees neither an HTTP API nor the
//! configuration file; shovels and federation are defined by parameters and policies (`net::declared`).

pub mod federation;
pub mod links;
pub mod shovel;
