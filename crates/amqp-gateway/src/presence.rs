//! Who is connected: what listings show of connections, their channels and consumers.
//!
//! Soft state. An entry is there from the moment a client is in a virtual host until its connection is dropped. It changes with
//! channels and consumers, never with a message.

use bytes::Bytes;
use bytestring::ByteString;
use parking_lot::{Mutex, RwLock};
use polylogue_amqp::codec::Table;
use polylogue_amqp::request::{ChannelRef, ConsumerRef};
use polylogue_router::{QueueId, VhostId};
use polylogue_types::{Map, TimestampMs};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// What is kept of a consumer's arguments; longer ones are not shown. Bytes.
pub(crate) const SHOWN_ARGUMENTS_BYTES_MAX: usize = 1 << 10;

/// The two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// Where the client is.
    pub peer: SocketAddr,
    /// Where it arrived.
    pub local: SocketAddr,
}

impl Ends {
    /// The name that RabbitMQ gives such a connection.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} -> {}", self.peer, self.local)
    }
}

/// A consumer as it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownConsumer {
    /// What the client calls it.
    pub tag: Bytes,
    /// Its queue.
    pub queue: QueueId,
    /// Whether deliveries are to be acknowledged.
    pub ack_required: bool,
    /// Whether it is the only one.
    pub exclusive: bool,
    /// Its prefetch; 0 for none.
    pub prefetch: u16,
    /// Its arguments; none where they are long.
    pub arguments: Table,
}

/// A channel as it is shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShownChannel {
    /// The prefetch of all its consumers together; 0 for none.
    pub global_prefetch: u16,
    /// Its consumers.
    pub consumers: BTreeMap<ConsumerRef, ShownConsumer>,
}

/// A connection as it is shown.
#[derive(Debug)]
pub struct Presence {
    /// The connection's id: its own for the life of the process.
    pub id: u64,
    /// Where it comes from.
    pub ends: Ends,
    /// Who.
    pub user: ByteString,
    /// Where it is.
    pub vhost: VhostId,
    /// What the client says of itself.
    pub client_properties: Table,
    /// Since when. Wall time.
    pub since_ms: TimestampMs,
    channels: Mutex<BTreeMap<u16, ShownChannel>>,
}

impl Presence {
    /// Its channels by their numbers, as they are now.
    #[must_use]
    pub fn channels(&self) -> BTreeMap<u16, ShownChannel> {
        self.channels.lock().clone()
    }

    /// How many channels it has.
    #[must_use]
    pub fn channel_count(&self) -> usize {
        self.channels.lock().len()
    }
}

/// All that are there.
#[derive(Debug, Default)]
pub(crate) struct Clients(RwLock<Map<u64, Arc<Presence>>>);

impl Clients {
    pub(crate) fn one(&self, id: u64) -> Option<Arc<Presence>> {
        self.0.read().get(&id).cloned()
    }

    /// In the order in which they came.
    pub(crate) fn all(&self) -> Vec<Arc<Presence>> {
        let mut all: Vec<_> = self.0.read().values().cloned().collect();
        all.sort_unstable_by_key(|presence| presence.id);
        all
    }
}

/// An entry, which goes with the connection.
#[derive(Debug)]
pub(crate) struct Entry {
    presence: Arc<Presence>,
    of: Arc<Clients>,
}

impl Entry {
    pub(crate) fn new(
        of: Arc<Clients>,
        id: u64,
        ends: Ends,
        user: ByteString,
        vhost: VhostId,
        client_properties: Table,
        since_ms: TimestampMs,
    ) -> Entry {
        let channels = Mutex::default();
        let presence = Arc::new(Presence { id, ends, user, vhost, client_properties, since_ms, channels });
        of.0.write().insert(id, presence.clone());
        Entry { presence, of }
    }

    pub(crate) fn opened(&self, channel: ChannelRef) {
        self.presence.channels.lock().insert(channel.number, ShownChannel::default());
    }

    pub(crate) fn closed(&self, channel: ChannelRef) {
        self.presence.channels.lock().remove(&channel.number);
    }

    pub(crate) fn prefetch(&self, channel: ChannelRef, count: u16) {
        if let Some(shown) = self.presence.channels.lock().get_mut(&channel.number) {
            shown.global_prefetch = count;
        }
    }

    pub(crate) fn consumes(&self, channel: ChannelRef, consumer: ConsumerRef, what: ShownConsumer) {
        if let Some(shown) = self.presence.channels.lock().get_mut(&channel.number) {
            shown.consumers.insert(consumer, what);
        }
    }

    pub(crate) fn cancelled(&self, channel: ChannelRef, consumer: ConsumerRef) {
        if let Some(shown) = self.presence.channels.lock().get_mut(&channel.number) {
            shown.consumers.remove(&consumer);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.of.0.write().remove(&self.presence.id);
    }
}
