//! Shovels and federation, which move messages between brokers, and the links that both use.
//!
//! Layer 5: a link speaks AMQP with a broker elsewhere over a socket, and with this one in memory through `net`. It sees no HTTP API and no
//! configuration file: what is to be moved is declared (`net::declared`).

pub mod federation;
pub mod links;
pub mod shovel;
