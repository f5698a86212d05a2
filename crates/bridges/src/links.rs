//! Connections of this broker's own to brokers, this one or others, for whatever moves messages between them.
//!
//! ```text
//!   Link ── amqp::Client ── TCP, or inside::serve: this broker's own AMQP connection, in memory
//! ```
//!
//! **Memory.** What a source sends is read when the destination takes it: [`EVENTS_BYTES_MAX`] and [`OUTPUT_BYTES_MAX`] of messages and
//! [`UNCONFIRMED_MAX`] numbers a link.

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

/// Messages of the source that wait for the destination. Bytes.
const EVENTS_BYTES_MAX: usize = 4 << 20;
/// Messages that wait for the socket of the destination. Bytes.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Messages that wait for their confirmation.
const UNCONFIRMED_MAX: usize = 1 << 16;

/// What links need of the server.
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

/// A name as it goes over the wire; more than 255 bytes are cut.
pub(crate) fn short(text: &str) -> ShortStr {
    ShortStr::cut(Bytes::copy_from_slice(text.as_bytes()))
}

/// Arguments as they go over the wire.
pub(crate) fn table(arguments: &[Argument]) -> Result<Table, Failure> {
    Table::new(encode_table(arguments)).map_err(|error| failed(error.to_string()))
}
