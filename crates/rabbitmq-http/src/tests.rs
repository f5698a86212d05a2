//! Tests of the API against an in-memory broker, which is driven while requests wait.

mod access;
mod clients;
mod definitions;
mod errors;
mod messages;
mod mistakes;
mod monitoring;
mod objects;
mod own_api;
pub(crate) mod server;
mod written;

use server::{Server, json_of};
