//! polylogue-kafka
pub mod codec;
pub mod config;
pub mod groups;
pub mod session;
pub mod settings;
