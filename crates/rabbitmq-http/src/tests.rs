//! The API against a broker in memory, whose work is done while it is asked.

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
