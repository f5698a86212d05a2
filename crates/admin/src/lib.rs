//! The listener `http`: polylogue's own API and its shapes, the console, health, and metrics, RabbitMQ's names included.
//!
//! Layer 5: it sees the broker through `net::handle`, and knows no configuration file, no command and no other HTTP API. What serves HTTP
//! (bounds of connections and bodies, where a request comes from, logins) is here too, for the API of `rabbitmq-http`.

pub mod api;
pub mod backup;
pub mod basic;
pub mod http;
pub mod process;
pub mod properties;
