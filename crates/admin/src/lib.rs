//! The listener `http`: polylogue's own API and its types, the console, health, and metrics, RabbitMQ's included.
//!
//! Layer 5: sees the broker through `net::handle`, and knows neither the configuration file, nor commands, nor the other HTTP API. The shared
//! parts of HTTP serving (limits on connections and bodies, origin checks, logins) are here too, for `rabbitmq-http`.

pub mod api;
pub mod backup;
pub mod basic;
pub mod http;
pub mod process;
pub mod properties;
