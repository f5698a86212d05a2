//! The integration tests of this crate, in one program: it is compiled and linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod audit;
mod authors;
mod capabilities;
mod commands;
mod commands_messages;
mod commands_rabbitmq;
mod commands_servers;
mod commands_tls;
mod common;
mod console;
mod deletions;
mod federation;
mod groups;
mod guest;
mod layouts;
mod links;
mod login;
mod management;
mod metrics;
mod oauth;
mod openapi;
mod policies;
mod queues;
mod rabbitmq_metrics;
mod rabbitmq_operators;
mod rabbitmq_versions;
mod settings;
mod shovels;
mod start;
mod tls;
mod unauthorised;
mod violations;
