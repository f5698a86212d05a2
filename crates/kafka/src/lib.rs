//! polylogue-kafka
pub mod codec;
pub mod groups;
pub mod config;
pub mod session;
pub mod settings;
