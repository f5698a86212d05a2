//! Client connections of shovels and federation to this broker and to others.
//!
//! ```text
//!   Link ── amqp::Client ── TCP, or inside::serve: an in-memory AMQP connection to this broker
//! ```
//!
//! **Memory.** A source is read only as fast as the destination accepts messages: at most [`EVENTS_BYTES_MAX`] and [`OUTPUT_BYTES_MAX`] of
//! messages and [`UNCONFIRMED_MAX`] unconfirmed numbers for each link.

mod author;
mod headers;
mod inside;
mod link;
mod pipe;
mod unconfirmed;

pub(crate) use author::Author;
pub(crate) use headers::{prepended, with_header};
pub(crate) use link::{CHANNEL, FAREWELL, FAREWELL_AT_THE_END, Failure, Link, NOT_FOUND};
pub(crate) use pipe::{DESTINATION, Pipe, SOURCE, beside, ended, failed, of};

use bytes::Bytes;
use polylogue_amqp::codec::{ShortStr, Table};
use polylogue_amqp::settings::AmqpSettings;
use polylogue_amqp_gateway::Directory;
use polylogue_amqp_model::encode_table;
use polylogue_env::Rng;
use polylogue_net::Shared;
use polylogue_net::handle::BrokerHandle;
use polylogue_router::Argument;
use std::sync::Arc;

/// The most bytes of messages from the source that wait for the destination.
const EVENTS_BYTES_MAX: usize = 4 << 20;
/// The most bytes of messages that wait for the destination's socket.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// The most messages that wait for their publisher confirm.
const UNCONFIRMED_MAX: usize = 1 << 16;

/// What links need from the server.
#[derive(Clone, Debug)]
pub struct Surroundings {
    pub(crate) broker: Arc<dyn BrokerHandle>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) settings: Arc<AmqpSettings>,
    pub(crate) net: Arc<Shared>,
    pub(crate) rng: Arc<dyn Rng>,
}

impl Surroundings {
    pub fn new(
        broker: &Arc<dyn BrokerHandle>,
        directory: &Arc<Directory>,
        settings: &Arc<AmqpSettings>,
        net: &Arc<Shared>,
        rng: &Arc<dyn Rng>,
    ) -> Surroundings {
        let (broker, directory, settings) = (broker.clone(), directory.clone(), settings.clone());
        Surroundings { broker, directory, settings, net: net.clone(), rng: rng.clone() }
    }
}

/// Converts a name to a short string, truncated to 255 bytes.
pub(crate) fn short(text: &str) -> ShortStr {
    ShortStr::cut(Bytes::copy_from_slice(text.as_bytes()))
}

/// Encodes arguments as a table.
pub(crate) fn table(arguments: &[Argument]) -> Result<Table, Failure> {
    Table::new(encode_table(arguments)).map_err(|error| failed(error.to_string()))
}
