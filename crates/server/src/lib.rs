//! The binary `polylogue`: listeners, the http API, configuration, and the command line.
//!
//! Layer 5: it sees everything below and nothing sees it. It is a library too, so that its parts can be tested one by
//! one; the binary itself is [`cli::main`].

pub mod api;
pub mod audit;
mod backup;
mod basic;
mod chores;
pub mod cli;
pub mod client;
mod declared;
mod federation;
pub mod handle;
mod health;
pub mod http;
mod limits;
mod lines;
mod links;
pub mod memory;
pub mod net;
pub mod oauth;
pub mod options;
mod process;
pub mod rabbitmq_http;
pub mod serve;
mod shovel;
#[cfg(test)]
mod testing;
pub mod users;
