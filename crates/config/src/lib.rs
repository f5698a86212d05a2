//! The options of the server: their table, the sources of their values, and the resulting configuration.
//!
//! ```text
//!   table ──> defaults < file < environment < command line ──> Resolved ──> ServerConfig
//!     │                                                            │
//!     └──> docs/config.md                                          └──> polylogue config
//! ```
//!
//! Layer 5, above `net`, whose TLS, tokens and addresses it configures. Starts nothing.
//!
//! Kafka's settings keep Kafka's names; `polylogue_kafka::config` defines and checks them.

mod config;
mod docs;
mod env;
mod file;
mod resolve;
mod table;
mod value;

pub use config::{GuestPolicy, ListenerConfig, LogConfig, LoginPolicy, ServerConfig};
pub use docs::markdown;
pub use env::{
    ADMIN_PASSWORD_VARIABLE, BOOTSTRAP_VARIABLE, CA_VARIABLE, CONFIG_VARIABLE, PASSWORD_VARIABLE, PROFILE_VARIABLE,
    SERVER_VARIABLE, USER_VARIABLE, variable,
};
pub use resolve::{Given, OptionError, Resolved, Setting, Source, Sources};
pub use table::{OPTIONS, OptionDef, Section};
pub use value::OptionKind;
