//! Shovels: they move messages from a queue or an exchange of one broker to another one, or from here to here, as long as a
//! parameter of the component `shovel` says so.
//!
//! ```text
//!   Directory::shovel_news ──▶ supervisor ── one worker a shovel ──▶ status (management API, metrics)
//!                                               │
//!                            source Link ───────┴─────── destination Link          a Link is an amqp::Client and its stream
//!                                 │                            │
//!                    TCP, or inside::serve: this broker's own AMQP connection, in memory
//! ```
//!
//! **Order and loss.** Messages are published in the order in which they came. With `on-confirm` the source hears of a message when the
//! destination has confirmed it and all before it; whatever goes wrong closes both ends, and what was not acknowledged comes again. So
//! nothing is lost, and what was under way at that moment may arrive twice.
//!
//! **Memory.** What a source sends is read when the destination takes it: [`EVENTS_BYTES_MAX`] and [`OUTPUT_BYTES_MAX`] of messages and
//! [`UNCONFIRMED_MAX`] numbers a shovel, and one message more.

mod inside;
mod link;
mod message;
mod status;
mod supervisor;
mod unconfirmed;
mod worker;

pub(crate) use status::Shovels;
pub(crate) use supervisor::start;

use crate::handle::BrokerHandle;
use crate::net::Shared;
use polylogue_amqp::settings::AmqpSettings;
use polylogue_amqp_gateway::Directory;
use polylogue_env::Rng;
use std::sync::Arc;

/// Messages of the source that wait for the destination. Bytes.
const EVENTS_BYTES_MAX: usize = 4 << 20;
/// Messages that wait for the socket of the destination. Bytes.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Messages that wait for their confirmation.
const UNCONFIRMED_MAX: usize = 1 << 16;

/// What shovels need of the server.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) broker: Arc<dyn BrokerHandle>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) settings: Arc<AmqpSettings>,
    pub(crate) net: Arc<Shared>,
    pub(crate) rng: Arc<dyn Rng>,
}

impl Surroundings {
    pub(crate) fn new(
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
